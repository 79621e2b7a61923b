/* Rebuilds whole tokenizer files from the compact ones under tests/data. Entry
 * b of the vocabulary is the b-th character of the byte alphabet, entry 256 + i
 * is what merge i joins. */
#include "config.h"
#include "tests/unit/tokdata.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"

static void die(const char *what)
{
    fprintf(stderr, "tests/data: %s\n", what);
    exit(1);
}

void tokdata_read(const char *name, struct buf *out)
{
    const char *src = getenv("QUASAR_SRCDIR");
    struct buf path = BUF_INIT;
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    buf_printf(&path, "%s/tests/data/%s", src ? src : ".", name);
    if (io_read_file(path.data, 64 << 20, &b, &e) < 0) {
        die(e.msg);
    }
    size_t len = strlen(name);
    if (len > 4 && strcmp(name + len - 4, ".zst") == 0) {
        unsigned long long size = ZSTD_getFrameContentSize(b.data, b.len);
        if (size > 64 << 20) {
            die("a compressed file is broken");
        }
        buf_reserve(out, (size_t)size);
        size_t n = ZSTD_decompress(out->data + out->len, (size_t)size, b.data, b.len);
        if (n != size) {
            die("a compressed file is broken");
        }
        out->len += n;
        out->data[out->len] = 0;
    } else {
        buf_add(out, b.data, b.len);
    }
    buf_free(&b);
    buf_free(&path);
}

/* Texts of all base entries in the byte alphabet, and the pairs they are of. */
struct entries {
    struct buf text;
    size_t *off; /* n + 1 */
    uint32_t *left, *right;
    size_t n; /* 256 + merges */
};

static bool own_character(int b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

static void read_entries(const char *name, size_t max_merges, struct entries *x)
{
    char file[64];
    struct buf planes = BUF_INIT;
    snprintf(file, sizeof file, "%s_merges.bin.zst", name);
    tokdata_read(file, &planes);
    size_t merges = planes.len / 6;
    size_t kept = merges < max_merges ? merges : max_merges;
    *x = (struct entries){.n = 256 + kept};
    x->off = mem_array(x->n + 1, sizeof *x->off);
    x->left = mem_array(x->n, sizeof *x->left);
    x->right = mem_array(x->n, sizeof *x->right);
    size_t id = 0;
    for (int other = 0; other < 2; other++) {
        for (int b = 0, k = 0; b < 256; b++) {
            char c[4];
            if (own_character(b) != (other == 0)) {
                continue;
            }
            buf_add(&x->text, c, (size_t)utf8_put(other ? 256U + (uint32_t)k++ : (uint32_t)b, c));
            x->off[++id] = x->text.len;
        }
    }
    const unsigned char *p = (const unsigned char *)planes.data;
    for (size_t i = 0; i < kept; i++) {
        uint32_t v[2] = {0, 0};
        for (size_t k = 0; k < 6; k++) {
            v[k / 3] |= (uint32_t)p[k * merges + i] << (8 * (k % 3));
        }
        if (v[0] >= id || v[1] >= id) {
            die("a merge names a later entry");
        }
        for (int k = 0; k < 2; k++) {
            size_t n = x->off[v[k] + 1] - x->off[v[k]];
            buf_reserve(&x->text, n);
            buf_add(&x->text, x->text.data + x->off[v[k]], n);
        }
        x->left[id] = v[0];
        x->right[id] = v[1];
        x->off[++id] = x->text.len;
    }
    buf_free(&planes);
}

static void free_entries(struct entries *x)
{
    buf_free(&x->text);
    free(x->off);
    free(x->left);
    free(x->right);
}

static void add_quoted(const struct entries *x, size_t id, struct buf *out)
{
    buf_addc(out, '"');
    for (size_t i = x->off[id]; i < x->off[id + 1]; i++) {
        char c = x->text.data[i];
        if (c == '"' || c == '\\') {
            buf_addc(out, '\\');
        }
        buf_addc(out, c);
    }
    buf_addc(out, '"');
}

static json_t *read_rest(const char *name)
{
    char file[64];
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    json_t *v = NULL;
    snprintf(file, sizeof file, "%s_tokenizer.json", name);
    tokdata_read(file, &b);
    if (json_parse(b.data, b.len, file, &v, &e) < 0) {
        die(e.msg);
    }
    buf_free(&b);
    return v;
}

static void make_json(const char *name, const char *split_of, size_t max_merges, struct buf *out)
{
    struct entries x;
    json_t *rest = read_rest(name);
    json_t *split = read_rest(split_of);
    json_object_set(rest, "pre_tokenizer", json_object_get(split, "pre_tokenizer"));
    struct buf text = BUF_INIT;
    read_entries(name, max_merges, &x);
    json_t *added = json_object_get(rest, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        json_object_set_new(json_array_get(added, i), "id", json_integer((json_int_t)(x.n + i)));
    }
    json_write(rest, &text);
    const char *at = strstr(text.data, "\"vocab\":{},\"merges\":[]");
    if (!at) {
        die("the rest of a tokenizer has no place for its vocabulary");
    }
    buf_add(out, text.data, (size_t)(at - text.data));
    buf_adds(out, "\"vocab\":{");
    for (size_t id = 0; id < x.n; id++) {
        buf_adds(out, id ? "," : "");
        add_quoted(&x, id, out);
        buf_printf(out, ":%zu", id);
    }
    buf_adds(out, "},\"merges\":[");
    for (size_t id = 256; id < x.n; id++) {
        buf_adds(out, id > 256 ? ",[" : "[");
        add_quoted(&x, x.left[id], out);
        buf_addc(out, ',');
        add_quoted(&x, x.right[id], out);
        buf_addc(out, ']');
    }
    buf_adds(out, "]");
    buf_adds(out, at + strlen("\"vocab\":{},\"merges\":[]"));
    free_entries(&x);
    buf_free(&text);
    json_decref(rest);
    json_decref(split);
}

static void add_u32(struct buf *out, size_t v)
{
    for (int i = 0; i < 4; i++) {
        buf_addc(out, (char)(v >> (8 * i)));
    }
}

static void add_u16_text(struct buf *out, const char *p, size_t n)
{
    buf_addc(out, (char)n);
    buf_addc(out, (char)(n >> 8));
    buf_add(out, p, n);
}

static void make_tok(const char *name, size_t max_merges, struct buf *out)
{
    struct entries x;
    json_t *rest = read_rest(name);
    json_t *added = json_object_get(rest, "added_tokens");
    size_t n_added = json_array_size(added);
    read_entries(name, max_merges, &x);
    add_u32(out, 0x54373251);
    add_u32(out, 1);
    add_u32(out, x.n + n_added);
    add_u32(out, x.n);
    add_u32(out, x.n);
    for (size_t id = 0; id < x.n; id++) {
        add_u16_text(out, x.text.data + x.off[id], x.off[id + 1] - x.off[id]);
    }
    for (size_t i = 0; i < n_added; i++) {
        const json_t *text = json_object_get(json_array_get(added, i), "content");
        add_u16_text(out, json_string_value(text), json_string_length(text));
    }
    for (size_t id = 0; id < x.n; id++) {
        buf_addc(out, 1);
    }
    for (size_t i = 0; i < n_added; i++) {
        buf_addc(out, json_is_true(json_object_get(json_array_get(added, i), "special")) ? 3 : 4);
    }
    add_u32(out, x.n - 256);
    for (size_t id = 256; id < x.n; id++) {
        size_t a = x.off[x.left[id] + 1] - x.off[x.left[id]];
        size_t b = x.off[x.right[id] + 1] - x.off[x.right[id]];
        struct buf m = BUF_INIT;
        buf_add(&m, x.text.data + x.off[x.left[id]], a);
        buf_addc(&m, ' ');
        buf_add(&m, x.text.data + x.off[x.right[id]], b);
        add_u16_text(out, m.data, m.len);
        buf_free(&m);
    }
    free_entries(&x);
    json_decref(rest);
}

void tokdata_json(const char *name, const char *split_of, struct buf *out)
{
    make_json(name, split_of, SIZE_MAX, out);
}

void tokdata_json_small(const char *name, size_t merges, struct buf *out)
{
    make_json(name, name, merges, out);
}

void tokdata_tok(const char *name, struct buf *out)
{
    make_tok(name, SIZE_MAX, out);
}

void tokdata_tok_small(const char *name, size_t merges, struct buf *out)
{
    make_tok(name, merges, out);
}
