/* quasar inspect: what a model file holds. One JSON object is gathered for each
 * form of file; the readable summary is printed from it. */
#include "config.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/jsonio.h"
#include "format/container.h"
#include "format/gguf.h"
#include "format/modelconf.h"
#include "format/safetensors.h"
#include "cmd/model.h"

static void set(json_t *o, const char *key, json_t *v)
{
    json_object_set_new(o, key, v);
}

static json_t *text(const char *s)
{
    return s ? json_str_lossy(s, strlen(s)) : json_null();
}

static json_t *hex(const uint8_t *digest)
{
    char s[SHA256_HEX];
    if (!digest) {
        return json_null();
    }
    hex_of(digest, SHA256_BYTES, s);
    return json_string(s);
}

/* One more tensor in the list and in the totals of its type; the entry is
 * borrowed. */
static json_t *add_tensor(json_t *root, const char *name, const char *type, int n_dims,
                          const uint64_t *shape, size_t bytes)
{
    json_t *t = json_object();
    json_t *dims = json_array();
    for (int i = 0; i < n_dims; i++) {
        json_array_append_new(dims, json_integer((json_int_t)shape[i]));
    }
    set(t, "name", text(name));
    set(t, "type", text(type));
    set(t, "shape", dims);
    set(t, "bytes", json_integer((json_int_t)bytes));
    json_array_append_new(json_object_get(root, "tensors"), t);
    json_t *types = json_object_get(root, "types");
    json_t *sum = json_object_get(types, type);
    if (!sum) {
        sum = json_pack("{s:i,s:i}", "tensors", 0, "bytes", 0);
        json_object_set_new(types, type, sum);
    }
    json_t *n = json_object_get(sum, "tensors");
    json_t *b = json_object_get(sum, "bytes");
    json_integer_set(n, json_integer_value(n) + 1);
    json_integer_set(b, json_integer_value(b) + (json_int_t)bytes);
    return t;
}

static json_t *new_root(const char *path, const char *format, int version, uint64_t size)
{
    json_t *o = json_object();
    set(o, "path", text(path));
    set(o, "format", json_string(format));
    if (version > 0) {
        set(o, "version", json_integer(version));
    }
    set(o, "size", json_integer((json_int_t)size));
    set(o, "types", json_object());
    set(o, "tensors", json_array());
    return o;
}

static int inspect_container(const char *path, bool verify, json_t **out, struct err *e)
{
    struct container *c = NULL;
    int rc = container_open(path, verify, &c, e);
    if (rc < 0) {
        return rc;
    }
    int version = container_version(c);
    json_t *o = new_root(path, version == 1 ? "q27" : "qsr", version, container_file_size(c));
    const json_t *meta = container_meta(c);
    static const char *const keys[] = {"name", "tier", "vocab_used", "writer", "source"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(meta, keys[i]);
        if (v) {
            set(o, keys[i], json_deep_copy(v));
        }
    }
    set(o, "digest", json_string(container_digest(c)));
    set(o, "verified", json_boolean(verify && version > 1));
    set(o, "config", json_deep_copy(container_config(c)));
    for (size_t i = 0; i < container_count(c); i++) {
        const struct tensor *t = container_at(c, i);
        struct container_origin from = container_origin(c, i);
        json_t *row = add_tensor(o, t->name, dtype_name(t->dtype), t->n_dims, t->shape,
                                 t->size + t->scale_size);
        set(row, "source_name", text(from.name[0] ? from.name : t->name));
        set(row, "source_type", text(from.type));
        set(row, "sha256", hex(from.data_digest));
        if (t->scale_size > 0) {
            set(row, "scales_sha256", hex(from.scale_digest));
        }
    }
    json_t *docs = json_array();
    for (size_t i = 0; i < container_doc_count(c); i++) {
        struct container_doc d = container_doc_at(c, i);
        json_array_append_new(docs, json_pack("{s:s,s:I,s:o}", "name", d.name, "size",
                                              (json_int_t)d.size, "sha256", hex(d.digest)));
    }
    set(o, "documents", docs);
    container_close(c);
    *out = o;
    return 0;
}

static int inspect_gguf(const char *path, json_t **out, struct err *e)
{
    struct gguf *g = NULL;
    int rc = gguf_open(path, &g, e);
    if (rc < 0) {
        return rc;
    }
    json_t *o = new_root(path, "gguf", (int)gguf_version(g), gguf_file_size(g));
    static const char *const keys[][2] = {{"general.name", "name"},
                                          {"general.architecture", "architecture"}};
    for (size_t i = 0; i < 2; i++) {
        const char *p = NULL;
        size_t n = 0;
        if (gguf_get_str(g, keys[i][0], false, &p, &n, NULL) == 0 && p) {
            set(o, keys[i][1], json_str_lossy(p, n));
        }
    }
    set(o, "keys", json_integer((json_int_t)gguf_kv_count(g)));
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        const char *type = "unknown";
        gguf_type_info(t->type, &type, NULL, NULL);
        add_tensor(o, t->name, type, t->n_dims, t->shape, t->size);
    }
    gguf_close(g);
    *out = o;
    return 0;
}

static int inspect_safetensors(const char *path, bool folder, json_t **out, struct err *e)
{
    struct safetensors *s = NULL;
    int rc = st_open(path, &s, e);
    if (rc < 0) {
        return rc;
    }
    json_t *o = new_root(path, "safetensors", 0, st_file_size(s));
    if (folder) {
        char *file = io_join(path, "config.json");
        json_t *raw = NULL;
        json_t *config = NULL;
        if (json_parse_file(file, 16U << 20, &raw, NULL) == 0 &&
            modelconf_from_hf(raw, file, &config, NULL) == 0) {
            set(o, "config", config);
        } else {
            set(o, "architecture", json_deep_copy(json_object_get(raw, "model_type")));
        }
        json_decref(raw);
        free(file);
    }
    for (size_t i = 0; i < st_count(s); i++) {
        const struct st_tensor *t = st_at(s, i);
        add_tensor(o, t->name, t->type, t->n_dims, t->shape, t->size);
    }
    st_close(s);
    *out = o;
    return 0;
}

/* ---- the readable form ---- */

static void print_size(double n)
{
    printf(n < 1e4    ? "%.0f B"
           : n < 1e7  ? "%.0f kB"
           : n < 1e10 ? "%.1f MB"
                      : "%.2f GB",
           n < 1e4    ? n
           : n < 1e7  ? n / 1e3
           : n < 1e10 ? n / 1e6
                      : n / 1e9);
}

static long long number(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static void print_config(const json_t *root)
{
    const json_t *c = json_object_get(root, "config");
    if (!c) {
        return;
    }
    struct modelconf m = modelconf_get(c);
    const json_t *types = json_object_get(c, "layer_types");
    int full = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        full += strcmp(json_string_value(json_array_get(types, i)), "full_attention") == 0;
    }
    printf("  layers     %d (%d DeltaNet, %d attention)%s, hidden %d, FFN %lld\n", m.layers,
           m.layers - full, full, m.mtp ? " and MTP" : "", m.hidden,
           number(c, "intermediate_size"));
    printf("  heads      attention %lld over %lld of %lld, DeltaNet %d over %d of %d\n",
           number(c, "num_attention_heads"), number(c, "num_key_value_heads"),
           number(c, "head_dim"), m.v_heads, m.k_heads, m.v_dim);
    printf("  vocabulary %d", m.vocab);
    if (number(root, "vocab_used") > 0) {
        printf(" (%lld used)", number(root, "vocab_used"));
    }
    printf("%s, context %lld\n", m.tied ? ", head shared with the embedding" : "",
           number(c, "max_position_embeddings"));
}

static void print_text(const json_t *o, bool verify)
{
    const char *format = json_string_value(json_object_get(o, "format"));
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *tier = json_string_value(json_object_get(o, "tier"));
    const char *arch = json_string_value(json_object_get(o, "architecture"));
    printf("%s\n  format     %s", json_string_value(json_object_get(o, "path")), format);
    if (number(o, "version") > 0) {
        printf(" version %lld", number(o, "version"));
    }
    printf(", ");
    print_size((double)number(o, "size"));
    printf(", %zu tensors\n", json_array_size(json_object_get(o, "tensors")));
    if (name || tier || arch) {
        printf("  model      %s%s%s%s%s\n", name ? name : "", name && arch ? ", " : "",
               arch ? arch : "", tier ? ", tier " : "", tier ? tier : "");
    }
    print_config(o);
    const char *type;
    json_t *sum;
    const char *label = "types";
    json_object_foreach(json_object_get(o, "types"), type, sum)
    {
        printf("  %-10s %-8s %5lld tensors, ", label, type, number(sum, "tensors"));
        print_size((double)number(sum, "bytes"));
        printf("\n");
        label = "";
    }
    const json_t *docs = json_object_get(o, "documents");
    for (size_t i = 0; i < json_array_size(docs); i++) {
        const json_t *d = json_array_get(docs, i);
        printf("  %-10s %s, ", i == 0 ? "documents" : "",
               json_string_value(json_object_get(d, "name")));
        print_size((double)number(d, "size"));
        printf("\n");
    }
    const char *digest = json_string_value(json_object_get(o, "digest"));
    if (digest) {
        printf("  digest     %s\n", digest);
    }
    if (verify) {
        printf("  verified   %s\n", json_is_true(json_object_get(o, "verified"))
                                        ? "every byte"
                                        : "sizes and offsets only: this format has no digests");
    }
}

int cmd_inspect(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs != 1) {
        return err_set(e, QE_USAGE, "quasar inspect needs one file: quasar inspect model.qsr");
    }
    char *path = NULL;
    bool verify = conf_flag(cf, "verify");
    struct stat st;
    json_t *o = NULL;
    int rc = model_source(args[0], &path, e);
    if (rc < 0) {
        return rc;
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        rc = inspect_safetensors(path, true, &o, e);
    } else {
        struct io_map m = {NULL, 0, -1};
        rc = io_map_open(&m, path, e);
        bool gguf = rc == 0 && m.size >= 4 && memcmp(m.data, "GGUF", 4) == 0;
        bool st_file =
            rc == 0 && m.size > 8 && m.data[8] == '{' && m.data[6] == 0 && m.data[7] == 0;
        io_map_close(&m);
        if (rc == 0) {
            rc = gguf      ? inspect_gguf(path, &o, e)
                 : st_file ? inspect_safetensors(path, false, &o, e)
                           : inspect_container(path, verify, &o, e);
        }
    }
    free(path);
    if (rc < 0) {
        return rc;
    }
    if (conf_flag(cf, "json")) {
        json_print_take(o);
    } else {
        print_text(o, verify);
        json_decref(o);
    }
    return 0;
}
