/* src/format/container: version 2 written and read, version 1 read, and every
 * way in which a file can be wrong. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/container.h"
#include "format/container_write.h"
#include "format/convert.h"
#include "format/quant.h"
#include "tests/unit/small_model.h"

static char dir[64], hf[96], qsr[96], gguf[96], q27[96], tok[96], other[96];

static void must_convert(const char *from, const char *to, const char *tier, enum convert_to what)
{
    struct convert_opts o = {.tier = tier, .to = what, .force = true};
    struct err e = ERR_INIT;
    if (convert(from, to, &o, &e) < 0) {
        fail_msg("%s", e.msg);
    }
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/t_container-XXXXXX");
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(hf, sizeof hf, "%s/hf", dir);
    snprintf(qsr, sizeof qsr, "%s/small.qsr", dir);
    snprintf(gguf, sizeof gguf, "%s/small.gguf", dir);
    snprintf(q27, sizeof q27, "%s/small.q27", dir);
    snprintf(tok, sizeof tok, "%s/small.tok", dir);
    snprintf(other, sizeof other, "%s/other.qsr", dir);
    struct small_opts o = {0};
    small_model_write(hf, &o);
    must_convert(hf, qsr, "q6", CONVERT_QSR);
    must_convert(qsr, gguf, NULL, CONVERT_GGUF);
    small_model_q27(gguf, q27);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    small_model_remove(hf);
    unlink(qsr);
    unlink(gguf);
    unlink(q27);
    unlink(tok);
    unlink(other);
    return rmdir(dir); /* fails when something was left behind */
}

/* One line that names the file. */
static void check_message(const struct err *e, const char *name)
{
    assert_true(e->msg[0] != 0);
    assert_null(strchr(e->msg, '\n'));
    if (!strstr(e->msg, name)) {
        fail_msg("\"%s\" does not name %s", e->msg, name);
    }
}

static void refuse(const void *p, size_t n, const char *why)
{
    struct container *c = NULL;
    struct err e = ERR_INIT;
    int rc = container_open_mem(p, n, "the-file", false, &c, &e);
    assert_true(rc < 0);
    assert_null(c);
    check_message(&e, "the-file");
    if (!strstr(e.msg, why)) {
        fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
    }
}

/* ---- what is there ---- */

static void reads_what_was_written(void **state)
{
    (void)state;
    struct container *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(container_open(qsr, true, &c, &e), 0);
    assert_int_equal(container_version(c), 2);
    assert_false(container_norms_folded(c));
    assert_int_equal(container_count(c), 3 + 3 * 14 + 11 + 15 + 1);
    assert_string_equal(json_string_value(json_object_get(container_meta(c), "tier")), "q6");
    assert_int_equal(json_integer_value(json_object_get(container_meta(c), "vocab_used")), 262);
    assert_string_equal(json_string_value(json_object_get(container_config(c), "model_type")),
                        "qwen3_5_text");
    assert_int_equal(json_array_size(json_object_get(container_config(c), "layer_types")), 4);
    assert_int_equal(strlen(container_digest(c)), 64);
    const struct tensor *t = container_find(c, "layers.2.linear_attn.out_proj.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, DT_Q8_G128);
    assert_int_equal(t->shape[0], 256);
    assert_int_equal(t->shape[1], 768);
    assert_int_equal((uintptr_t)t->data % 64, 0);
    t = container_find(c, "layers.0.linear_attn.conv1d.weight");
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dtype, DT_F32);
    assert_null(container_find(c, "layers.0.nothing"));
    static const char *const docs[] = {"tokenizer.json",      "tokenizer_config.json",
                                       "chat_template.jinja", "generation_config.json",
                                       "config.json",         "MODEL_CARD.md"};
    for (size_t i = 0; i < 6; i++) {
        const char *p = NULL;
        size_t n = 0;
        size_t want = 0;
        assert_true(container_get(c, (enum container_blob)i, &p, &n));
        char *path = io_join(hf, docs[i]);
        char *file = small_read(path, &want);
        assert_int_equal(n, want);
        assert_memory_equal(p, file, n);
        free(file);
        free(path);
    }
    container_close(c);
}

static void digest_follows_the_weights(void **state)
{
    (void)state;
    struct container *a = NULL;
    struct container *b = NULL;
    must_convert(hf, other, "q6", CONVERT_QSR);
    assert_int_equal(container_open(qsr, false, &a, NULL), 0);
    assert_int_equal(container_open(other, false, &b, NULL), 0);
    assert_string_equal(container_digest(a), container_digest(b));
    container_close(b);
    must_convert(hf, other, "q6k", CONVERT_QSR);
    assert_int_equal(container_open(other, false, &b, NULL), 0);
    assert_string_not_equal(container_digest(a), container_digest(b));
    container_close(a);
    container_close(b);
}

static void tied_head_is_the_embedding(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/tied", dir);
    struct small_opts o = {.tied = true, .no_mtp = true};
    small_model_write(path, &o);
    must_convert(path, other, "f32", CONVERT_QSR);
    struct container *c = NULL;
    assert_int_equal(container_open(other, false, &c, NULL), 0);
    assert_ptr_equal(container_find(c, "lm_head.weight")->data,
                     container_find(c, "embed_tokens.weight")->data);
    assert_int_equal(container_count(c), 2 + 3 * 14 + 11);
    container_close(c);
    small_model_remove(path);
}

/* Codes and scales of version 1 are those of version 2, with heads in our
 * order; only norms and A_log are folded. */
static void version_1_is_presented_alike(void **state)
{
    (void)state;
    struct container *a = NULL;
    struct container *b = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(container_open(qsr, false, &a, &e), 0);
    if (container_open(q27, false, &b, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(container_version(b), 1);
    assert_true(container_norms_folded(b));
    assert_int_equal(container_count(b) + 1, container_count(a)); /* no second head */
    size_t folded = 0;
    for (size_t i = 0; i < container_count(b); i++) {
        const struct tensor *y = container_at(b, i);
        const struct tensor *x = container_find(a, y->name);
        assert_non_null(x);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_dims, y->n_dims);
        assert_memory_equal(x->shape, y->shape, (size_t)x->n_dims * sizeof *x->shape);
        size_t len = strlen(x->name);
        bool gated = strstr(x->name, "linear_attn.norm") != NULL;
        bool a_log = len > 5 && strcmp(x->name + len - 5, "A_log") == 0;
        bool norm = strstr(x->name, "norm") && x->n_dims == 1 && !gated;
        if (norm || a_log) {
            const float *w = x->data;
            const float *v = y->data;
            for (uint64_t k = 0; k < x->shape[0]; k++) {
                float want = norm ? 1.0F + w[k] : (float)-exp((double)w[k]);
                assert_memory_equal(&want, &v[k], sizeof want);
            }
            folded++;
            continue;
        }
        assert_int_equal(x->size, y->size);
        assert_memory_equal(x->data, y->data, x->size);
        assert_int_equal(x->scale_size, y->scale_size);
        if (x->scale_size) {
            assert_memory_equal(x->scales, y->scales, x->scale_size);
        }
    }
    assert_int_equal(folded, 3 * 3 + 4 + 1 + 7);
    static const char *const same[] = {"hidden_size", "num_hidden_layers", "vocab_size",
                                       "layer_types", "rope_theta",        "mrope_section"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const json_t *x = json_object_get(container_config(a), same[i]);
        const json_t *y = json_object_get(container_config(b), same[i]);
        assert_true(json_equal(x, y) || json_number_value(x) == json_number_value(y));
    }
    const char *p = NULL;
    size_t n = 0;
    assert_true(container_get(b, CB_TOKENIZER, &p, &n));
    assert_memory_equal(p, "Q27T", 4);
    assert_false(container_get(b, CB_TEMPLATE, &p, &n));
    container_close(a);
    container_close(b);
}

/* ---- what is wrong ---- */

static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    size_t n = 0;
    char *p = small_read(qsr, &n);
    size_t runs = getenv("QUASAR_LONG") ? 4000 : 300;
    for (size_t r = 0; r < runs; r++) {
        /* the first 256 bytes one by one, then all over the file */
        size_t at = r < 256 ? r : (size_t)((double)n * (double)r / (double)runs);
        p[at] ^= (char)(1 << (r % 8));
        struct container *c = NULL;
        struct err e = ERR_INIT;
        if (container_open_mem(p, n, "the-file", false, &c, &e) == 0) {
            fail_msg("a flipped bit at %zu went unseen", at);
        }
        check_message(&e, "the-file");
        p[at] ^= (char)(1 << (r % 8));
    }
    struct container *c = NULL;
    assert_int_equal(container_open_mem(p, n, "the-file", false, &c, NULL), 0);
    container_close(c);
    free(p);
}

static void every_truncation_is_found(void **state)
{
    (void)state;
    const char *files[] = {qsr, q27};
    for (int f = 0; f < 2; f++) {
        size_t n = 0;
        char *p = small_read(files[f], &n);
        for (size_t r = 0; r < 400; r++) {
            size_t len = r < 200 ? r : (n - 1) * r / 400;
            char *exact = mem_alloc(len + 1);
            memcpy(exact, p, len);
            refuse(exact, len, "");
            free(exact);
        }
        /* version 1 pads behind the last blob: cut into the blob itself */
        refuse(p, f == 0 ? n - 1 : n - 512, f == 0 ? "cut off" : "");
        free(p);
    }
}

/* Changes bytes and makes the head's digest right again, as a hostile writer
 * would. */
static void reseal(char *p)
{
    uint64_t start = 0;
    memcpy(&start, p + 32, 8);
    struct sha256 *h = sha256_create();
    sha256_add(h, p, 64);
    sha256_add(h, p + 96, (size_t)start - 96);
    sha256_done(h, (uint8_t *)p + 64);
    sha256_free(h);
}

static void poke(const char *good, size_t n, size_t at, uint64_t v, size_t width, const char *why)
{
    char *p = mem_alloc(n);
    memcpy(p, good, n);
    for (size_t i = 0; i < width; i++) {
        p[at + i] = (char)(v >> (8 * i) & 255);
    }
    if (at != 32) {
        reseal(p);
    }
    refuse(p, n, why);
    free(p);
}

static void absurd_headers(void **state)
{
    (void)state;
    size_t n = 0;
    char *p = small_read(qsr, &n);
    refuse("", 0, "empty");
    refuse("Q27F", 4, "not a model");
    refuse("GGUF\3\0\0\0", 8, "convert");
    refuse("\x10\0\0\0\0\0\0\0{\"a\"", 12, "safetensors");
    poke(p, n, 4, 3, 4, "version 3");
    poke(p, n, 8, 0xFFFFFFFF, 4, "limits");
    poke(p, n, 8, 1, 4, "");
    poke(p, n, 12, 0xFFFFFFFF, 4, "limits");
    poke(p, n, 12, 0, 4, "");
    poke(p, n, 16, UINT64_MAX, 8, "limits");
    poke(p, n, 24, UINT64_MAX, 8, "limits");
    poke(p, n, 24, 5, 8, "behind the metadata");
    poke(p, n, 32, UINT64_MAX - 255, 8, "behind the metadata");
    poke(p, n, 40, n + 1, 8, "cut off");
    /* the first document's record */
    poke(p, n, 96, 0xFFFF, 2, "documents");
    poke(p, n, 98, 7, 1, "documents");
    size_t off = 98 + strlen("config.json");
    poke(p, n, off, 1, 8, "lies at");
    poke(p, n, off, UINT64_MAX, 8, "lies at");
    poke(p, n, off + 8, UINT64_MAX, 8, "lies at");
    /* the first tensor's record */
    static const char name[] = "embed_tokens.weight";
    char *t = memmem(p, n, name, strlen(name));
    assert_non_null(t);
    size_t at = (size_t)(t - p) + strlen(name);
    uint16_t source = 0;
    memcpy(&source, p + at, 2);
    at += 2 + (size_t)source;
    at += 1 + (size_t)p[at];
    poke(p, n, at, 99, 1, "unknown type 99");
    poke(p, n, at, DT_F32, 1, "bytes");
    poke(p, n, at + 1, 0, 1, "tensors");
    poke(p, n, at + 1, 5, 1, "tensors");
    poke(p, n, at + 2, 0, 8, "shape");
    poke(p, n, at + 2, UINT64_MAX, 8, "shape");
    poke(p, n, at + 10, 100, 8, "shape");
    poke(p, n, at + 18, 0, 8, "lies at");
    poke(p, n, at + 26, 1, 8, "bytes");
    free(p);
}

/* A one-tensor container with the given model type and tensor names. */
static int write_odd(const char *type, const char *a, const char *b, struct err *e)
{
    struct container *c = NULL;
    assert_int_equal(container_open(qsr, false, &c, NULL), 0);
    json_t *config = json_deep_copy(container_config(c));
    container_close(c);
    json_object_set_new(config, "model_type", json_string(type));
    struct container_writer *w = container_writer_create();
    container_writer_meta_take(w, json_pack("{s:o}", "config", config));
    uint64_t shape[2] = {2, 64};
    int rc = container_writer_declare(w, a, "", "", DT_F32, 2, shape, e);
    if (rc == 0 && b) {
        rc = container_writer_declare(w, b, "", "", DT_Q4_G64, 2, shape, e);
    }
    static const float zeros[128];
    if (rc == 0) {
        rc = container_writer_begin(w, other, e);
    }
    if (rc == 0) {
        rc = container_writer_data(w, zeros, 512, NULL, 0, e);
    }
    if (rc == 0 && b) {
        rc = container_writer_data(w, zeros, 64, zeros, 4, e);
    }
    if (rc == 0) {
        rc = container_writer_commit(w, e);
    }
    container_writer_free(w);
    return rc;
}

static void wrong_models_are_named(void **state)
{
    (void)state;
    struct container *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(write_odd("qwen3_5_text", "a.weight", "b.weight", &e), 0);
    assert_int_equal(container_open(other, false, &c, &e), 0);
    assert_int_equal(container_count(c), 2);
    container_close(c);
    assert_int_equal(write_odd("qwen4_exp", "a.weight", NULL, &e), 0);
    assert_int_equal(container_open(other, false, &c, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "qwen4_exp"));
    check_message(&e, other);
    assert_int_equal(write_odd("qwen3_5_text", "a.weight", "a.weight", &e), 0);
    assert_int_equal(container_open(other, false, &c, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "twice"));
    assert_int_equal(write_odd("qwen3_5_text", "a b", NULL, &e), QE_FORMAT);
    assert_int_equal(container_open("/nonexistent/x.qsr", false, &c, &e), QE_NOTFOUND);
    assert_int_equal(container_open(dir, false, &c, &e), QE_IO);
    unlink(other);
}

static void wrong_version_1_files(void **state)
{
    (void)state;
    size_t n = 0;
    char *p = small_read(q27, &n);
    char *q = mem_alloc(n);
    const struct {
        const char *find, *put, *why;
    } t[] = {
        {"qwen35\",", "llama3\",", "llama3"},
        {"blk.0.attn_norm", "blk.0.attn_nurm", "not part of"},
        {"\"qwen35.ssm.time_step_rank\":6", "\"qwen35.ssm.time_step_rank\":8", "value heads"},
        {"\"qwen35.block_count\":5", "\"qwen35.block_count\":1", "block_count"},
        {"{\"q27", "[\"q27", "JSON"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        memcpy(q, p, n);
        char *at = memmem(q, n, t[i].find, strlen(t[i].find));
        assert_non_null(at);
        memcpy(at, t[i].put, strlen(t[i].put));
        refuse(q, n, t[i].why);
    }
    memcpy(q, p, n);
    char *at = memmem(q, n, "token_embd.weight", 17);
    at[17] = 4; /* its type: T2_G128 */
    refuse(q, n, "T2_G128");
    memcpy(q, p, n);
    memset(q + 8, 0xFF, 4);
    refuse(q, n, "tensors");
    memcpy(q, p, n);
    memset(q + 12, 0xFF, 4);
    refuse(q, n, "metadata");
    free(p);
    free(q);
    /* a .tok that is none */
    char *good = small_read(tok, &n);
    small_write(tok, "nonsense", 8);
    struct container *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(container_open(q27, false, &c, &e), QE_FORMAT);
    check_message(&e, tok);
    small_write(tok, good, n);
    free(good);
}

/* Damage inside the weights of a large file is seen with verify. */
static void large_files_are_checked_on_demand(void **state)
{
    (void)state;
    struct container *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(container_open(qsr, false, &c, NULL), 0);
    json_t *config = json_deep_copy(container_config(c));
    container_close(c);
    enum { ROWS = 70, COLS = 1 << 18 }; /* 73 MB */
    struct container_writer *w = container_writer_create();
    container_writer_meta_take(w, json_pack("{s:o}", "config", config));
    uint64_t shape[2] = {ROWS, COLS};
    float *row = mem_array(COLS, sizeof *row);
    assert_int_equal(container_writer_declare(w, "big", "", "", DT_F32, 2, shape, &e), 0);
    assert_int_equal(container_writer_begin(w, other, &e), 0);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(container_writer_data(w, row, COLS * sizeof *row, NULL, 0, &e), 0);
    }
    assert_int_equal(container_writer_data(w, row, 1, NULL, 0, &e), QE_INTERNAL);
    assert_int_equal(container_writer_commit(w, &e), 0);
    container_writer_free(w);
    free(row);
    assert_int_equal(container_open(other, true, &c, &e), 0);
    container_close(c);
    FILE *f = fopen(other, "r+b");
    assert_non_null(f);
    fseek(f, 50000000, SEEK_SET);
    fputc(1, f);
    fclose(f);
    assert_int_equal(container_open(other, false, &c, &e), 0);
    container_close(c);
    assert_int_equal(container_open(other, true, &c, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "tensor big"));
    check_message(&e, other);
    f = fopen(other, "r+b");
    fseek(f, 200, SEEK_SET);
    fputc('!', f);
    fclose(f);
    assert_int_equal(container_open(other, false, &c, &e), QE_FORMAT); /* its metadata */
    unlink(other);
}

/* Whatever system call fails, no file appears and nothing stays behind. */
static void failing_writes_leave_nothing(void **state)
{
    (void)state;
    unlink(other);
    for (unsigned n = 1; n < 20; n++) {
        struct err e = ERR_INIT;
        io_fault_set(n, ENOSPC);
        int rc = write_odd("qwen3_5_text", "a.weight", "b.weight", &e);
        io_fault_set(0, 0);
        if (rc == 0) {
            assert_true(n > 6);
            break;
        }
        assert_int_equal(rc, QE_IO);
        assert_non_null(strstr(e.msg, "No space left"));
        /* the last step, syncing the folder, comes after the rename */
        if (!strstr(e.msg, "sync the directory")) {
            assert_int_equal(access(other, F_OK), -1);
        }
        unlink(other);
    }
    unlink(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(digest_follows_the_weights),
        cmocka_unit_test(tied_head_is_the_embedding),
        cmocka_unit_test(version_1_is_presented_alike),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(absurd_headers),
        cmocka_unit_test(wrong_models_are_named),
        cmocka_unit_test(wrong_version_1_files),
        cmocka_unit_test(large_files_are_checked_on_demand),
        cmocka_unit_test(failing_writes_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
