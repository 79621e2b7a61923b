/* src/format/convert: tiers, every direction, exactness of the way back, and
 * refusals that leave nothing behind. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "format/container.h"
#include "format/convert.h"
#include "format/gguf.h"
#include "format/modelconf.h"
#include "format/names.h"
#include "format/quant.h"
#include "format/safetensors.h"
#include "format/tier.h"
#include "format/tokjson.h"
#include "tests/unit/small_model.h"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/t_convert-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir); /* fails when something was left behind */
}

static const char *in_dir(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", dir, name);
    return out;
}

static void run(const char *from, const char *to, const char *tier, enum convert_to what)
{
    struct convert_opts o = {.tier = tier, .to = what};
    struct err e = ERR_INIT;
    if (convert(from, to, &o, &e) < 0) {
        fail_msg("%s", e.msg);
    }
}

static void same_file(const char *a, const char *b)
{
    size_t n = 0;
    size_t k = 0;
    char *p = small_read(a, &n);
    char *q = small_read(b, &k);
    if (n != k || memcmp(p, q, n) != 0) {
        fail_msg("%s (%zu bytes) and %s (%zu bytes) differ", a, n, b, k);
    }
    free(p);
    free(q);
}

/* Every file of folder a is in folder b with the same bytes. */
static void same_folder(const char *a, const char *b)
{
    DIR *d = opendir(a);
    assert_non_null(d);
    int files = 0;
    for (struct dirent *x; (x = readdir(d));) {
        struct stat st;
        char *p = io_join(a, x->d_name);
        char *q = io_join(b, x->d_name);
        if (stat(p, &st) == 0 && S_ISREG(st.st_mode)) {
            same_file(p, q);
            files++;
        }
        free(p);
        free(q);
    }
    closedir(d);
    assert_true(files >= 6);
}

static void same_digest(const char *a, const char *b)
{
    struct container *x = NULL;
    struct container *y = NULL;
    assert_int_equal(container_open(a, true, &x, NULL), 0);
    assert_int_equal(container_open(b, true, &y, NULL), 0);
    assert_string_equal(container_digest(x), container_digest(y));
    container_close(x);
    container_close(y);
}

/* ---- tiers and names ---- */

static enum dtype type_of(const char *tier, bool is_38, const char *name)
{
    const uint64_t matrix[2] = {512, 512};
    const uint64_t conv[3] = {512, 1, 4};
    int n = strstr(name, "norm") || strstr(name, "A_log") || strstr(name, "dt_bias") ? 1 : 2;
    bool fell = true;
    bool is_conv = strstr(name, "conv1d") != NULL;
    enum dtype t =
        tier_dtype(tier_find(tier, is_38), name, is_conv ? 3 : n, is_conv ? conv : matrix, &fell);
    assert_false(fell);
    return t;
}

static void tiers_follow_the_table(void **state)
{
    (void)state;
    static const char out[] = "layers.0.linear_attn.out_proj.weight";
    static const char o[] = "layers.3.self_attn.o_proj.weight";
    static const char down[] = "layers.0.mlp.down_proj.weight";
    static const char gate[] = "layers.0.mlp.gate_proj.weight";
    static const char up[] = "layers.0.mlp.up_proj.weight";
    static const char head[] = "lm_head.weight";
    static const struct {
        const char *tier;
        bool is_38, out, o, down, gate, up, head, draft;
    } t[] = {
        {"q4s", false, false, false, false, false, false, false, false},
        {"default", false, true, true, false, false, false, true, true},
        {"q5f", false, false, false, true, false, false, false, false},
        {"q6", false, true, true, true, false, false, true, true},
        {"q6f", false, false, false, true, true, false, false, false},
        {"q6k", false, true, true, true, true, false, true, true},
        {"q8", false, true, true, true, true, true, true, true},
        {"q4s", true, false, true, false, false, false, false, false},
        {"default", true, false, true, false, false, false, true, true},
        {"q6", true, false, true, true, false, false, true, true},
        {"q6k", true, false, true, true, false, true, true, true},
        {"q8", true, true, true, true, true, true, true, true},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const char *n = t[i].tier;
        bool v = t[i].is_38;
        assert_int_equal(type_of(n, v, out) == DT_Q8_G128, t[i].out);
        assert_int_equal(type_of(n, v, o) == DT_Q8_G128, t[i].o);
        assert_int_equal(type_of(n, v, down) == DT_Q8_G128, t[i].down);
        assert_int_equal(type_of(n, v, gate) == DT_Q8_G128, t[i].gate);
        assert_int_equal(type_of(n, v, up) == DT_Q8_G128, t[i].up);
        assert_int_equal(type_of(n, v, head) == DT_Q8_G128, t[i].head);
        assert_int_equal(tier_has_draft_head(tier_find(n, v)), t[i].draft);
        assert_int_equal(type_of(n, v, "embed_tokens.weight"), DT_Q8_G128);
        assert_int_equal(type_of(n, v, "layers.3.self_attn.k_proj.weight"), DT_Q8_G128);
        assert_int_equal(type_of(n, v, "layers.3.self_attn.v_proj.weight"), DT_Q8_G128);
        assert_int_equal(type_of(n, v, "mtp.layers.0.mlp.up_proj.weight"), DT_Q8_G128);
        assert_int_equal(type_of(n, v, "mtp.fc.weight"), DT_Q8_G128);
        assert_int_equal(type_of(n, v, "layers.0.linear_attn.in_proj_a.weight"), DT_F16);
        assert_int_equal(type_of(n, v, "layers.0.linear_attn.in_proj_b.weight"), DT_F16);
        assert_int_equal(type_of(n, v, "layers.0.linear_attn.A_log"), DT_F32);
        assert_int_equal(type_of(n, v, "layers.0.linear_attn.conv1d.weight"), DT_F32);
        assert_int_equal(type_of(n, v, "mtp.pre_fc_norm_hidden.weight"), DT_F32);
        assert_int_equal(type_of(n, v, "lm_head.q4.weight"), DT_Q4_G64);
        if (strcmp(n, "q8") != 0) {
            assert_int_equal(type_of(n, v, "layers.0.linear_attn.in_proj_qkv.weight"), DT_Q4_G64);
            assert_int_equal(type_of(n, v, "layers.3.self_attn.q_proj.weight"), DT_Q4_G64);
        }
    }
    assert_int_equal(type_of("f32", false, up), DT_F32);
    assert_int_equal(type_of("bf16", false, up), DT_BF16);
    assert_int_equal(type_of("bf16", false, "layers.0.linear_attn.conv1d.weight"), DT_F32);
    bool fell = false;
    const uint64_t odd[2] = {8, 192};
    assert_int_equal(tier_dtype(tier_find("q8", false), up, 2, odd, &fell), DT_F16);
    assert_true(fell);
    assert_int_equal(tier_dtype(tier_find("q4s", false), up, 2, odd, &fell), DT_Q4_G64);
    assert_false(fell);
    assert_null(tier_find("q3", false));
    assert_true(modelconf_is_38("Qwen3.8-27B"));
    assert_false(modelconf_is_38("Qwen3.6-27B"));
}

static void names_go_both_ways(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"embed_tokens.weight", "token_embd.weight"},
        {"norm.weight", "output_norm.weight"},
        {"layers.12.self_attn.q_proj.weight", "blk.12.attn_q.weight"},
        {"layers.0.linear_attn.A_log", "blk.0.ssm_a"},
        {"layers.0.linear_attn.dt_bias", "blk.0.ssm_dt.bias"},
        {"mtp.fc.weight", "blk.64.nextn.eh_proj.weight"},
        {"mtp.norm.weight", "blk.64.nextn.shared_head_norm.weight"},
        {"mtp.layers.0.self_attn.o_proj.weight", "blk.64.attn_output.weight"},
    };
    char s[NAME_MAX_LEN];
    unsigned change = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_true(names_to_gguf(pairs[i][0], 64, s, &change));
        assert_string_equal(s, pairs[i][1]);
        assert_true(names_from_gguf(pairs[i][1], 64, s, &change));
        assert_string_equal(s, pairs[i][0]);
    }
    assert_false(names_from_gguf("blk.65.attn_q.weight", 64, s, &change));
    assert_false(names_from_gguf("blk.3.nextn.enorm.weight", 64, s, &change));
    assert_false(names_from_gguf("blk..attn_q.weight", 64, s, &change));
    assert_false(names_to_gguf("visual.patch_embed.weight", 64, s, &change));
    assert_string_equal(names_strip("model.language_model.layers.1.x"), "layers.1.x");
    assert_string_equal(names_strip("model.visual.blocks.0.x"), "visual.blocks.0.x");
    assert_null(names_strip("transformer.h.0.x"));
    /* 16 key and 48 value heads: 0 and 16 and 32 are those of key head 0 */
    struct modelconf m = {.k_heads = 16, .v_heads = 48, .k_dim = 128, .v_dim = 128};
    assert_int_equal(heads_ours(&m, 16), 1);
    assert_int_equal(heads_ours(&m, 1), 3);
    for (int h = 0; h < 48; h++) {
        assert_int_equal(heads_gguf(&m, heads_ours(&m, h)), h);
        assert_int_equal(heads_ours(&m, h) / 3, h % 16);
    }
    assert_int_equal(heads_source_row(&m, NC_V_ROWS, true, 4096 + 128 + 5), 4096 + 3 * 128 + 5);
    assert_int_equal(heads_source_row(&m, NC_V_ROWS, true, 4095), 4095);
    assert_int_equal(heads_source_row(&m, NC_HEADS, false, 1), 16);
}

static void configs_of_every_shape(void **state)
{
    (void)state;
    char a[128];
    char b[128];
    struct small_opts flat = {0};
    struct small_opts nested = {.nested = true};
    small_model_write(in_dir(a, "flat"), &flat);
    small_model_write(in_dir(b, "nested"), &nested);
    char qa[128];
    char qb[128];
    run(a, in_dir(qa, "a.qsr"), "bf16", CONVERT_QSR);
    run(b, in_dir(qb, "b.qsr"), "bf16", CONVERT_QSR);
    struct container *x = NULL;
    struct container *y = NULL;
    assert_int_equal(container_open(qa, false, &x, NULL), 0);
    assert_int_equal(container_open(qb, false, &y, NULL), 0);
    assert_true(json_equal(container_config(x), container_config(y)));
    assert_string_equal(container_digest(x), container_digest(y));
    size_t i = 0;
    while (strcmp(container_at(y, i)->name, "norm.weight") != 0) {
        i++;
    }
    assert_string_equal(container_origin(y, i).name, "model.language_model.norm.weight");
    container_close(x);
    container_close(y);
    /* and each goes back to its own names */
    char back[128];
    run(qb, in_dir(back, "back"), NULL, CONVERT_HF);
    same_folder(b, back);
    small_model_remove(a);
    small_model_remove(b);
    small_model_remove(back);
    unlink(qa);
    unlink(qb);
}

/* Folders that conversions to the same place were writing when they were killed, or still
 * are. */
static void dead_folders_go(void **state)
{
    (void)state;
    static const char *const names[] = {"back.quasar-tmp-dead00", "back.quasar-tmp-live00",
                                        "back.quasar-tmp-mine", "other.quasar-tmp-dead00"};
    char hf[128], q[128], back[128], left[4][128];
    struct small_opts o = {0};
    small_model_write(in_dir(hf, "hf"), &o);
    run(hf, in_dir(q, "one.qsr"), "bf16", CONVERT_QSR);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mkdir(in_dir(left[i], names[i]), 0755), 0);
        char *file = io_join(left[i], "model.safetensors");
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fclose(f);
        free(file);
    }
    const int fd = open(left[1], O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    char slashes[140];
    snprintf(slashes, sizeof slashes, "%s//", in_dir(back, "back"));
    run(q, slashes, NULL, CONVERT_HF);
    same_folder(hf, back);
    for (int i = 0; i < 4; i++) {
        char *file = io_join(left[i], "model.safetensors");
        assert_int_equal(access(file, F_OK), i == 0 ? -1 : 0);
        unlink(file);
        assert_int_equal(rmdir(left[i]), i == 0 ? -1 : 0);
        free(file);
    }
    close(fd);
    small_model_remove(hf);
    small_model_remove(back);
    unlink(q);
}

/* ---- there and back ---- */

static void there_and_back(const char *hf, const char *tier)
{
    char q1[128];
    char q2[128];
    char g[128];
    char back[128];
    run(hf, in_dir(q1, "one.qsr"), tier, CONVERT_QSR);
    run(q1, in_dir(g, "one.gguf"), NULL, CONVERT_GGUF);
    run(g, in_dir(q2, "two.qsr"), tier, CONVERT_QSR);
    run(q2, in_dir(back, "back"), NULL, CONVERT_HF);
    same_digest(q1, q2);
    same_folder(hf, back);
    unlink(q1);
    unlink(q2);
    unlink(g);
    small_model_remove(back);
}

static void unquantised_tiers_come_back_exactly(void **state)
{
    (void)state;
    char hf[128];
    struct small_opts o = {0};
    small_model_write(in_dir(hf, "hf"), &o);
    there_and_back(hf, "f32");
    there_and_back(hf, "bf16");
    small_model_remove(hf);
    struct small_opts tied = {.tied = true, .no_mtp = true};
    small_model_write(hf, &tied);
    there_and_back(hf, "bf16");
    small_model_remove(hf);
}

/* The folder of the demo's checkpoint, and whether it is there. */
static bool find_checkpoint(char hf[512])
{
    const char *src = getenv("QUASAR_SRCDIR");
    const char *env = getenv("QUASAR_DEMO_CHECKPOINT");
    snprintf(hf, 512, "%s%s", env ? env : src ? src : ".", env ? "" : "/../shared/models/demo");
    char *file = io_join(hf, "model.safetensors");
    bool there = access(file, R_OK) == 0;
    free(file);
    return there;
}

static void the_demo_comes_back_exactly(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR");
    char hf[512];
    assert_true(find_checkpoint(hf));
    if (getenv("QUASAR_LONG")) {
        there_and_back(hf, "f32");
    }
    there_and_back(hf, "bf16");
    /* the committed model is what it converts to */
    char q8[128];
    char demo[512];
    run(hf, in_dir(q8, "demo.qsr"), "q8", CONVERT_QSR);
    snprintf(demo, sizeof demo, "%s/models/demo.qsr", src ? src : ".");
    same_digest(q8, demo);
    unlink(q8);
}

static void shards_are_read(void **state)
{
    (void)state;
    char a[128];
    char b[128];
    char qa[128];
    char qb[128];
    struct small_opts one = {0};
    struct small_opts many = {.sharded = true};
    small_model_write(in_dir(a, "one"), &one);
    small_model_write(in_dir(b, "many"), &many);
    run(a, in_dir(qa, "a.qsr"), "q4s", CONVERT_QSR);
    run(b, in_dir(qb, "b.qsr"), "q4s", CONVERT_QSR);
    same_digest(qa, qb);
    small_model_remove(a);
    small_model_remove(b);
    unlink(qa);
    unlink(qb);
}

/* Q8 and Q4 codes survive GGUF; only the second head is made anew. */
static void codes_survive_gguf(void **state)
{
    (void)state;
    char hf[128];
    char q1[128];
    char q2[128];
    char g[128];
    struct small_opts o = {0};
    small_model_write(in_dir(hf, "hf"), &o);
    run(hf, in_dir(q1, "one.qsr"), "default", CONVERT_QSR);
    run(q1, in_dir(g, "one.gguf"), NULL, CONVERT_GGUF);
    run(g, in_dir(q2, "two.qsr"), "default", CONVERT_QSR);
    struct container *x = NULL;
    struct container *y = NULL;
    assert_int_equal(container_open(q1, false, &x, NULL), 0);
    assert_int_equal(container_open(q2, false, &y, NULL), 0);
    assert_int_equal(container_count(x), container_count(y));
    for (size_t i = 0; i < container_count(x); i++) {
        const struct tensor *s = container_at(x, i);
        const struct tensor *t = container_find(y, s->name);
        assert_non_null(t);
        assert_int_equal(s->dtype, t->dtype);
        if (strcmp(s->name, "lm_head.q4.weight") != 0) {
            assert_memory_equal(s->data, t->data, s->size);
            assert_int_equal(s->scale_size, t->scale_size);
            assert_memory_equal(s->scale_size ? s->scales : "", t->scale_size ? t->scales : "",
                                s->scale_size);
        }
    }
    /* a copy of a container is the container */
    char q3[128];
    run(q1, in_dir(q3, "three.qsr"), NULL, CONVERT_QSR);
    same_file(q1, q3);
    container_close(x);
    container_close(y);
    small_model_remove(hf);
    unlink(q1);
    unlink(q2);
    unlink(q3);
    unlink(g);
}

/* A GGUF that somebody changed: the file counts, not what travels beside it. */
static void edited_gguf_is_believed(void **state)
{
    (void)state;
    char hf[128];
    char q[128];
    char g[128];
    struct small_opts o = {0};
    small_model_write(in_dir(hf, "hf"), &o);
    run(hf, in_dir(g, "one.gguf"), "f32", CONVERT_GGUF);
    struct gguf *x = NULL;
    assert_int_equal(gguf_open(g, &x, NULL), 0);
    const struct gguf_tensor *t = gguf_find(x, "output_norm.weight");
    size_t n = 0;
    char *bytes = small_read(g, &n);
    char *at = memmem(bytes, n, t->data, t->size);
    assert_non_null(at);
    float three = 3;
    memcpy(at + 4, &three, 4);
    small_write(g, bytes, n);
    free(bytes);
    gguf_close(x);
    run(g, in_dir(q, "one.qsr"), "f32", CONVERT_QSR);
    struct container *c = NULL;
    assert_int_equal(container_open(q, false, &c, NULL), 0);
    assert_float_equal(((const float *)container_find(c, "norm.weight")->data)[1], 2, 0);
    container_close(c);
    small_model_remove(hf);
    unlink(q);
    unlink(g);
}

/* Everything of ours taken away: names, tokenizer and ends of turn come from
 * the standard keys. */
static void plain_gguf_is_enough(void **state)
{
    (void)state;
    char hf[128];
    char q1[128];
    char q2[128];
    char g[128];
    struct small_opts o = {0};
    small_model_write(in_dir(hf, "hf"), &o);
    run(hf, in_dir(q1, "one.qsr"), "bf16", CONVERT_QSR);
    run(q1, in_dir(g, "one.gguf"), NULL, CONVERT_GGUF);
    size_t n = 0;
    char *bytes = small_read(g, &n);
    for (char *at = bytes; (at = memmem(at, n - (size_t)(at - bytes), "quasar.", 7));) {
        memcpy(at, "foreign", 6);
        at += 6;
    }
    small_write(g, bytes, n);
    free(bytes);
    run(g, in_dir(q2, "two.qsr"), "bf16", CONVERT_QSR);
    struct container *x = NULL;
    struct container *y = NULL;
    assert_int_equal(container_open(q1, false, &x, NULL), 0);
    assert_int_equal(container_open(q2, false, &y, NULL), 0);
    for (size_t i = 0; i < container_count(x); i++) {
        const struct tensor *s = container_at(x, i);
        const struct tensor *t = container_find(y, s->name);
        assert_non_null(t);
        assert_int_equal(s->n_dims, t->n_dims);
        assert_int_equal(s->dtype, t->dtype);
        if (s->dtype == DT_BF16) {
            assert_memory_equal(s->data, t->data, s->size);
        } else {
            for (size_t k = 0; k < s->size / 4; k++) {
                assert_float_equal(((const float *)s->data)[k], ((const float *)t->data)[k], 2e-7);
            }
        }
    }
    const json_t *a = container_config(x);
    const json_t *b = container_config(y);
    static const char *const keys[] = {"hidden_size",  "num_hidden_layers",    "vocab_size",
                                       "layer_types",  "linear_num_key_heads", "mrope_section",
                                       "eos_token_id", "mtp_num_hidden_layers"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) {
            fail_msg("%s differs", keys[i]);
        }
    }
    assert_float_equal(json_number_value(json_object_get(b, "partial_rotary_factor")), 0.25, 0);
    const char *p = NULL;
    size_t k = 0;
    char *path = io_join(hf, "tokenizer.json");
    char *tok = small_read(path, &n);
    assert_true(container_get(y, CB_TOKENIZER, &p, &k));
    assert_int_equal(k, n);
    assert_memory_equal(p, tok, n); /* the small model's is of the same make */
    free(tok);
    free(path);
    assert_true(container_get(y, CB_GENERATION, &p, &k));
    char ids[64] = "";
    memcpy(ids, p, k < 63 ? k : 63);
    assert_non_null(strstr(ids, "258"));
    assert_non_null(strstr(ids, "256"));
    container_close(x);
    container_close(y);
    small_model_remove(hf);
    unlink(q1);
    unlink(q2);
    unlink(g);
}

static void version_1_converts(void **state)
{
    (void)state;
    char hf[128];
    char q[128];
    char g[128];
    char v1[128];
    char tok[128];
    char v2[128];
    struct small_opts o = {0};
    small_model_write(in_dir(hf, "hf"), &o);
    run(hf, in_dir(q, "one.qsr"), "q6f", CONVERT_QSR);
    run(q, in_dir(g, "one.gguf"), NULL, CONVERT_GGUF);
    small_model_q27(g, in_dir(v1, "one.q27"));
    run(v1, in_dir(v2, "two.qsr"), NULL, CONVERT_QSR);
    struct container *x = NULL;
    struct container *y = NULL;
    assert_int_equal(container_open(q, false, &x, NULL), 0);
    assert_int_equal(container_open(v2, false, &y, NULL), 0);
    for (size_t i = 0; i < container_count(x); i++) {
        const struct tensor *s = container_at(x, i);
        const struct tensor *t = container_find(y, s->name);
        assert_int_equal(s->dtype, t->dtype);
        if (s->dtype != DT_F32) {
            assert_memory_equal(s->data, t->data, s->size);
        } else {
            for (size_t k = 0; k < s->size / 4; k++) {
                assert_float_equal(((const float *)s->data)[k], ((const float *)t->data)[k], 2e-7);
            }
        }
    }
    const char *p = NULL;
    size_t n = 0;
    assert_true(container_get(y, CB_TOKENIZER, &p, &n));
    assert_int_equal(p[0], '{');
    container_close(x);
    container_close(y);
    small_model_remove(hf);
    unlink(q);
    unlink(g);
    unlink(v1);
    unlink(v2);
    unlink(in_dir(tok, "one.tok"));
}

/* ---- refusals ---- */

static void refuse(const struct small_opts *m, const char *why)
{
    char hf[128];
    char q[128];
    small_model_write(in_dir(hf, "hf"), m);
    struct convert_opts o = {.tier = "q8"};
    struct err e = ERR_INIT;
    assert_true(convert(hf, in_dir(q, "x.qsr"), &o, &e) < 0);
    if (!strstr(e.msg, why) || strchr(e.msg, '\n')) {
        fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
    }
    assert_int_equal(access(q, F_OK), -1);
    small_model_remove(hf);
}

static void wrong_checkpoints_are_refused(void **state)
{
    (void)state;
    refuse(&(struct small_opts){.model_type = "qwen4_exp"}, "qwen4_exp");
    refuse(&(struct small_opts){.model_type = "qwen3_5_moe"}, "qwen3_5_moe");
    refuse(&(struct small_opts){.model_type = "llama"}, "llama");
    refuse(&(struct small_opts){.leave_out = "model.layers.2.linear_attn.dt_bias"},
           "layers.2.linear_attn.dt_bias is missing");
    refuse(&(struct small_opts){.poison = "model.layers.1.mlp.up_proj.weight"},
           "model.layers.1.mlp.up_proj.weight");
}

static void odd_tokenizers_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{\"model\":{}}",
        "{\"model\":{\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",
        "{\"model\":{\"vocab\":{\"a\":4000000000},\"merges\":[]}}",
        "{\"model\":{\"vocab\":{\"a\":\"b\"},\"merges\":[]}}",
        "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[1]}}",
        "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}",
        "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1}]}",
        "{\"model\":{\"vocab\":{\"a\\u0000b\":0},\"merges\":[]}}",
        "{\"model\":{\"vocab\":{\"a\":400},\"merges\":[]}}", /* more than the model has rows */
    };
    char hf[128];
    char q[128];
    struct small_opts m = {0};
    small_model_write(in_dir(hf, "hf"), &m);
    char *path = io_join(hf, "tokenizer.json");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        small_write(path, bad[i], strlen(bad[i]));
        struct convert_opts o = {.tier = "q4s"};
        struct err e = ERR_INIT;
        int rc = convert(hf, in_dir(q, "x.qsr"), &o, &e);
        if (rc != QE_FORMAT || strchr(e.msg, '\n') || access(q, F_OK) == 0) {
            fail_msg("tokenizer %zu: %d \"%s\"", i, rc, e.msg);
        }
    }
    free(path);
    small_model_remove(hf);
    /* a .tok cut anywhere */
    static const char tok[] = "Q27T\1\0\0\0\2\0\0\0\377\377\377\377\1\0\0\0\1\0a\1\0b\1\1"
                              "\1\0\0\0\3\0a b";
    char *text = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(tokjson_from_tok(tok, sizeof tok - 1, "t", &text, &e), 0);
    assert_non_null(strstr(text, "\"a b\""));
    free(text);
    for (size_t n = 0; n + 1 < sizeof tok; n++) {
        assert_int_equal(tokjson_from_tok(tok, n, "t", &text, &e), QE_FORMAT);
    }
}

static bool stop(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total && total > 0);
    int *left = ctx;
    return --*left < 0;
}

static void count_note(void *ctx, const char *line)
{
    assert_null(strchr(line, '\n'));
    ++*(int *)ctx;
}

static void nothing_is_overwritten_or_left(void **state)
{
    (void)state;
    char hf[128];
    char q[128];
    struct small_opts m = {0};
    struct err e = ERR_INIT;
    small_model_write(in_dir(hf, "hf"), &m);
    struct convert_opts o = {.tier = "nonsense"};
    assert_int_equal(convert(hf, in_dir(q, "x.qsr"), &o, &e), QE_USAGE);
    o.tier = "q8";
    small_write(q, "precious", 8);
    assert_int_equal(convert(hf, q, &o, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "--force"));
    size_t n = 0;
    char *p = small_read(q, &n);
    assert_int_equal(n, 8);
    free(p);
    assert_int_equal(convert("/nonexistent", q, &o, &e), QE_USAGE);
    o.force = true;
    assert_int_equal(convert("/nonexistent", q, &o, &e), QE_NOTFOUND);
    assert_int_equal(convert(hf, hf, &o, &e), QE_USAGE);
    int notes = 0;
    o.note = count_note;
    o.note_ctx = &notes;
    assert_int_equal(convert(hf, q, &o, &e), 0);
    assert_int_equal(notes, 0);
    unlink(q);
    /* cancelled after a while, in each form */
    o.progress = stop;
    for (int to = CONVERT_QSR; to <= CONVERT_HF; to++) {
        int left = 20;
        o.progress_ctx = &left;
        o.tier = "bf16";
        o.to = (enum convert_to)to;
        assert_int_equal(convert(hf, q, &o, &e), QE_CANCELLED);
        assert_int_equal(access(q, F_OK), -1);
    }
    o = (struct convert_opts){.to = CONVERT_HF, .tier = "q8"};
    assert_int_equal(convert(hf, q, &o, &e), QE_USAGE);
    small_model_remove(hf);
}

/* --force into a folder replaces weights of either layout and keeps the rest. */
static void folders_are_replaced_with_force(void **state)
{
    (void)state;
    char hf[128];
    char back[128];
    char path[160];
    struct small_opts sharded = {.sharded = true};
    struct small_opts m = {0};
    small_model_write(in_dir(hf, "hf"), &m);
    small_model_write(in_dir(back, "back"), &sharded);
    snprintf(path, sizeof path, "%s/notes.txt", back);
    small_write(path, "mine", 4);
    struct convert_opts o = {.to = CONVERT_HF, .force = true};
    struct err e = ERR_INIT;
    if (convert(hf, back, &o, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    same_folder(hf, back);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", back);
    assert_int_equal(access(path, F_OK), -1);
    small_model_remove(hf);
    small_model_remove(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers_follow_the_table),
        cmocka_unit_test(names_go_both_ways),
        cmocka_unit_test(configs_of_every_shape),
        cmocka_unit_test(dead_folders_go),
        cmocka_unit_test(unquantised_tiers_come_back_exactly),
        cmocka_unit_test(shards_are_read),
        cmocka_unit_test(codes_survive_gguf),
        cmocka_unit_test(edited_gguf_is_believed),
        cmocka_unit_test(plain_gguf_is_enough),
        cmocka_unit_test(version_1_converts),
        cmocka_unit_test(wrong_checkpoints_are_refused),
        cmocka_unit_test(odd_tokenizers_are_refused),
        cmocka_unit_test(nothing_is_overwritten_or_left),
        cmocka_unit_test(folders_are_replaced_with_force),
    };
    const struct CMUnitTest demo[] = {cmocka_unit_test(the_demo_comes_back_exactly)};
    int bad = cmocka_run_group_tests(tests, setup, teardown);
    char hf[512];
    if (!find_checkpoint(hf)) {
        printf("1..1\nok 1 # SKIP the demo's conversion: no checkpoint in %s\n", hf);
        return bad;
    }
    return bad + cmocka_run_group_tests_name("demo", demo, setup, teardown);
}
