/* Kept states of the engine on the demo model: whatever position they were taken at and
 * whatever was computed in between, what is put back goes on with the same bits; pages
 * and bytes come back; which states count as prefill's own. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "format/container.h"

#ifdef SANITIZED
#define TEXT   330
#define FEW    1
#define MANY   2
#define MORE   20 /* tokens of one more prefill */
#define FIRST  3
#define STRIDE 8
#define MARKED 860
#else
#define TEXT   600
#define FEW    2
#define MANY   9
#define MORE   70
#define FIRST  0
#define STRIDE 1
#define MARKED 1190
#endif

static struct container *file;
static int32_t text[1200];

static int open_file(void **state)
{
    (void)state;
    const char *dir = getenv("QUASAR_SRCDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/models/demo.qsr", dir ? dir : ".");
    struct err e = ERR_INIT;
    if (container_open(path, false, &file, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    for (int i = 0; i < 1200; i++) {
        text[i] = (int32_t)(300 + philox_word(11, (uint32_t)i, PHILOX_TARGET, 0) % 6000);
    }
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    container_close(file);
    return 0;
}

static void must(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

static struct engine *open_engine(int ctx, int slots, enum engine_kv kv)
{
    struct engine_opts o = {.backend = EB_CPU, .threads = 1, .slots = slots, .ctx = ctx, .kv = kv};
    struct engine *g = NULL;
    struct err e = ERR_INIT;
    must(engine_open(file, &o, &g, &e), &e);
    return g;
}

static int open_seq(struct engine *g)
{
    struct err e = ERR_INIT;
    int seq = -1;
    must(engine_seq_open(g, &seq, &e), &e);
    return seq;
}

static void prefill(struct engine *g, int seq, int from, int to)
{
    struct err e = ERR_INIT;
    struct engine_prefill p = {.seq = seq, .tokens = text + from, .n = to - from};
    must(engine_prefill(g, &p, &e), &e);
}

static void step(struct engine *g, int seq, int32_t id)
{
    struct err e = ERR_INIT;
    must(engine_decode(g, &seq, &id, 1, &e), &e);
}

static struct engine_snap *keep(struct engine *g, int seq)
{
    struct err e = ERR_INIT;
    struct engine_snap *k = NULL;
    must(engine_snap_take(g, seq, &k, &e), &e);
    return k;
}

static void put_back(struct engine *g, int seq, const struct engine_snap *k)
{
    struct err e = ERR_INIT;
    must(engine_snap_restore(g, seq, k, &e), &e);
}

/* What a sequence says next: drafts, then the logits of a prefill's last row
 * and of two steps. out: 3 * vocab logits and 4 drafts behind them. */
static void go_on(struct engine *g, int seq, int at, float *out)
{
    struct err e = ERR_INIT;
    const size_t vocab = (size_t)engine_info(g)->vocab;
    int32_t drafts[4];
    must(engine_mtp_draft(g, seq, text[at], 4, drafts, &e), &e);
    for (int i = 0; i < 4; i++) {
        out[3 * vocab + (size_t)i] = (float)drafts[i];
    }
    const int32_t last = MORE - 1;
    struct engine_prefill p = {
        .seq = seq, .tokens = text + at, .n = MORE, .want = &last, .n_want = 1};
    must(engine_prefill(g, &p, &e), &e);
    must(engine_logits(g, 0, out, &e), &e);
    for (int i = 0; i < 2; i++) {
        step(g, seq, text[at + MORE + i]);
        must(engine_logits(g, 0, out + (size_t)(1 + i) * vocab, &e), &e);
    }
}

static size_t go_on_size(const struct engine *g)
{
    return 3 * (size_t)engine_info(g)->vocab + 4;
}

/* At each position: kept, gone on from, other things computed, put back into the same
 * sequence and into another one, gone on from again. */
static void goes_on_with_the_same_bits(enum engine_kv kv)
{
    struct engine *g = open_engine(2048, 3, kv);
    const size_t n = go_on_size(g);
    float *want = mem_array(n, sizeof *want), *got = mem_array(n, sizeof *got);
    static const int at[] = {64, 63, 257, 255, 1, TEXT, 65, 256, 300};
    const int n_at = kv == EKV_F16 ? MANY : FEW;
    for (int i = 0; i < n_at; i++) {
        const int a = open_seq(g), b = open_seq(g), other = open_seq(g);
        prefill(g, a, 0, at[i]);
        if (i % 2) { /* decoded rows too, some of them refused */
            struct err e = ERR_INIT;
            const int seqs[3] = {a, a, a}, two = 2;
            must(engine_verify(g, seqs, text + at[i], 3, &e), &e);
            must(engine_commit(g, &a, &two, 1, &e), &e);
        }
        struct engine_snap *k = keep(g, a);
        const int len = engine_snap_len(k);
        assert_int_equal(len, at[i] + 2 * (i % 2));
        go_on(g, a, len, want);
        prefill(g, other, 100, 100 + 4 * MORE);
        prefill(g, b, 7, 7 + 5 * MORE);
        put_back(g, b, k);
        assert_int_equal(engine_seq_len(g, b), len);
        go_on(g, b, len, got);
        assert_memory_equal(got, want, n * sizeof *want);
        put_back(g, a, k);
        put_back(g, b, k); /* two sequences over the same pages */
        go_on(g, a, len, got);
        assert_memory_equal(got, want, n * sizeof *want);
        engine_seq_close(g, a); /* the kept state outlives whom it was taken of */
        go_on(g, b, len, got);
        assert_memory_equal(got, want, n * sizeof *want);
        engine_seq_close(g, b);
        engine_seq_close(g, other);
        assert_int_equal(engine_kept(g).n, 1);
        assert_int_equal(engine_kept(g).pages_kept, (len + 255) / 256);
        assert_int_equal(engine_kept(g).bytes, engine_snap_bytes(g, k));
        engine_snap_free(g, k);
        assert_int_equal(engine_kept(g).bytes, 0);
        assert_int_equal(engine_kept(g).pages_free, engine_kept(g).pages);
    }
    free(want);
    free(got);
    engine_close(g);
}

static void exact_f16(void **state)
{
    (void)state;
    goes_on_with_the_same_bits(EKV_F16);
}

static void exact_k3v3(void **state)
{
    (void)state;
    goes_on_with_the_same_bits(EKV_K3V3);
}

#ifndef SANITIZED
static void exact_f8(void **state)
{
    (void)state;
    goes_on_with_the_same_bits(EKV_F8);
}

static void exact_f32(void **state)
{
    (void)state;
    goes_on_with_the_same_bits(EKV_F32);
}
#endif

/* A kept state as it is read is the blob of its sequence, and another engine goes on from
 * it. */
static void outlets_are_the_blob(void **state)
{
    (void)state;
    struct engine *g = open_engine(2048, 2, EKV_F16), *h = open_engine(2048, 1, EKV_F16);
    struct err e = ERR_INIT;
    const int a = open_seq(g), c = open_seq(h);
    prefill(g, a, 0, 320);
    struct engine_snap *k = keep(g, a);
    const size_t n = engine_seq_state_size(g, a);
    uint8_t *whole = mem_alloc(n), *pieces = mem_alloc(n);
    must(engine_seq_export(g, a, whole, &e), &e);
    assert_int_equal(engine_snap_state_size(g, k), n);
    struct engine_outlet *o = NULL;
    must(engine_outlet_open(g, k, &o, &e), &e);
    prefill(g, a, 320, 384); /* what is kept does not follow */
    const struct engine_saved s = engine_outlet_blob(o);
    assert_int_equal(s.size, n);
    for (size_t at = 0; at < n; at += 7777) {
        must(s.read(s.ctx, at, pieces + at, n - at < 7777 ? n - at : 7777, &e), &e);
    }
    assert_int_equal(s.read(s.ctx, n - 1, pieces, 2, &e), QE_INTERNAL);
    assert_memory_equal(pieces, whole, n);
    engine_outlet_close(o);
    assert_int_equal(s.read(s.ctx, 0, pieces, 1, &e), QE_CANCELLED);
    engine_outlet_free(o);
    put_back(g, a, k);
    must(engine_seq_import(h, c, pieces, n, &e), &e);
    assert_true(engine_seq_pure(h, c));
    const size_t m = go_on_size(g);
    float *want = mem_array(m, sizeof *want), *got = mem_array(m, sizeof *got);
    go_on(g, a, 320, want);
    go_on(h, c, 320, got);
    assert_memory_equal(got, want, m * sizeof *want);
    struct engine *f = open_engine(2048, 1, EKV_F8);
    const int d = open_seq(f);
    assert_int_equal(engine_seq_import(f, d, pieces, n, &e), QE_UNSUPPORTED);
    engine_snap_free(g, k);
    free(whole);
    free(pieces);
    free(want);
    free(got);
    engine_close(f);
    engine_close(g);
    engine_close(h);
}

/* ---- what others left in a page ---- */

static uint8_t *blob_of(struct engine *g, int seq, size_t *n)
{
    struct err e = ERR_INIT;
    *n = engine_seq_state_size(g, seq);
    uint8_t *p = mem_alloc(*n);
    memset(p, 0x5A, *n);
    must(engine_seq_export(g, seq, p, &e), &e);
    return p;
}

/* A short conversation in pages that others had, drafted over, and cut back. */
static void short_talk(struct engine *g, int seq, const struct engine_snap *head, int n)
{
    struct err e = ERR_INIT;
    int32_t drafts[4];
    const int seqs[3] = {seq, seq, seq}, one = 1;
    if (head) {
        put_back(g, seq, head);
    }
    prefill(g, seq, head ? 64 : 0, n);
    must(engine_mtp_draft(g, seq, 7, 4, drafts, &e), &e);
    must(engine_verify(g, seqs, text + n, 3, &e), &e);
    must(engine_commit(g, &seq, &one, 1, &e), &e);
}

static void nothing_of_others(enum engine_kv kv)
{
    struct engine *g = open_engine(768, 2, kv), *clean = open_engine(768, 1, kv);
    const int c = open_seq(clean);
    static const int len[] = {1, 63, 64, 100, 254, 255, 256, 260};
    for (size_t i = FIRST; i < sizeof len / sizeof *len; i += kv == EKV_F16 ? STRIDE : 3) {
        /* the marker: every page was another's, to its last row */
        int a = open_seq(g), b = open_seq(g);
        prefill(g, a, 600, MARKED);
        prefill(g, b, 610, 700);
        engine_seq_close(g, a);
        engine_seq_close(g, b);
        a = open_seq(g);
        b = open_seq(g);
        struct engine_snap *head = NULL;
        if (len[i] > 64) { /* a head that two have, in the page of one */
            prefill(g, b, 0, 64);
            head = keep(g, b);
            prefill(g, b, 700, 830);
        }
        short_talk(g, a, head, len[i]);
        size_t n = 0, m = 0;
        engine_seq_reset(clean, c);
        if (len[i] > 64) {
            prefill(clean, c, 0, 64);
            prefill(clean, c, 64, len[i]);
        } else {
            prefill(clean, c, 0, len[i]);
        }
        step(clean, c, text[len[i]]);
        uint8_t *got = blob_of(g, a, &n), *want = blob_of(clean, c, &m);
        assert_int_equal(n, m);
        assert_memory_equal(got, want, n);
        /* and neither has what a cut takes away: the other engine had longer ones before */
        struct engine_snap *k = keep(g, a);
        struct engine_outlet *o = NULL;
        struct err e = ERR_INIT;
        must(engine_outlet_open(g, k, &o, &e), &e);
        const struct engine_saved s = engine_outlet_blob(o);
        memset(got, 0xA5, n);
        for (size_t at = 0; at < n; at += 54321) {
            must(s.read(s.ctx, at, got + at, n - at < 54321 ? n - at : 54321, &e), &e);
        }
        engine_outlet_close(o);
        engine_outlet_free(o);
        assert_memory_equal(got, want, n);
        engine_snap_free(g, k);
        engine_snap_free(g, head);
        engine_seq_close(g, a);
        engine_seq_close(g, b);
        free(got);
        free(want);
    }
    engine_close(g);
    engine_close(clean);
}

static void pages_had_others(void **state)
{
    (void)state;
    nothing_of_others(EKV_F16);
#ifndef SANITIZED
    nothing_of_others(EKV_K3V3);
    nothing_of_others(EKV_F32);
    nothing_of_others(EKV_F8);
    nothing_of_others(EKV_K8V4);
    nothing_of_others(EKV_K5V3);
#endif
}

static void what_is_pure(void **state)
{
    (void)state;
    struct engine *g = open_engine(2048, 2, EKV_F16);
    struct err e = ERR_INIT;
    int a = open_seq(g), b = open_seq(g);
    assert_true(engine_seq_pure(g, a));
    prefill(g, a, 0, 64);
    prefill(g, a, 64, 200); /* from the grid, to anywhere */
    assert_true(engine_seq_pure(g, a));
    prefill(g, a, 200, 256); /* from elsewhere */
    assert_false(engine_seq_pure(g, a));
    engine_seq_reset(g, a);
    assert_true(engine_seq_pure(g, a));
    prefill(g, a, 0, 64);
    struct engine_snap *k = keep(g, a);
    assert_true(engine_snap_pure(k));
    int32_t drafts[2];
    must(engine_mtp_draft(g, a, 5, 2, drafts, &e), &e);
    assert_true(engine_seq_pure(g, a)); /* drafts leave nothing behind */
    const int none = 0;
    must(engine_verify(g, &a, text, 1, &e), &e);
    must(engine_commit(g, &a, &none, 1, &e), &e);
    assert_true(engine_seq_pure(g, a));
    step(g, a, 5);
    assert_false(engine_seq_pure(g, a));
    must(engine_seq_fork(g, b, a, &e), &e);
    assert_false(engine_seq_pure(g, b));
    put_back(g, b, k);
    assert_true(engine_seq_pure(g, b));
    engine_snap_free(g, k);
    engine_close(g);
}

/* ---- pages run out ---- */

static struct engine_snap *hoard[4];
static int asked;

static bool give_up_one(void *ctx)
{
    asked++;
    for (int i = 0; i < 4; i++) {
        if (hoard[i]) {
            engine_snap_free(ctx, hoard[i]);
            hoard[i] = NULL;
            return true;
        }
    }
    return false;
}

static void kept_states_make_room(void **state)
{
    (void)state;
    struct engine *g = open_engine(768, 1, EKV_F16);
    struct err e = ERR_INIT;
    const int a = open_seq(g);
    const int pages = engine_kept(g).pages;
    assert_int_equal(pages, 4); /* the window and the drafts behind it */
    prefill(g, a, 0, 700);
    hoard[0] = keep(g, a);
    engine_seq_reset(g, a);
    assert_int_equal(engine_kept(g).pages_kept, 3);
    prefill(g, a, 300, 400); /* what was free */
    hoard[1] = keep(g, a);
    struct engine_prefill p = {.seq = a, .tokens = text + 400, .n = 500};
    assert_int_equal(engine_prefill(g, &p, &e), QE_NOMEM); /* nobody was named to ask */
    assert_non_null(strstr(e.msg, "cache is full"));
    engine_on_full(g, give_up_one, g);
    engine_seq_reset(g, a);
    prefill(g, a, 300, 400);
    const int32_t last = 499;
    p.want = &last;
    p.n_want = 1;
    must(engine_prefill(g, &p, &e), &e);
    assert_true(asked > 0);
    const size_t vocab = (size_t)engine_info(g)->vocab;
    float *want = mem_array(vocab, sizeof *want), *got = mem_array(vocab, sizeof *got);
    must(engine_logits(g, 0, got, &e), &e);
    while (give_up_one(g)) {
    }
    engine_seq_reset(g, a);
    prefill(g, a, 300, 400);
    must(engine_prefill(g, &p, &e), &e);
    must(engine_logits(g, 0, want, &e), &e);
    assert_memory_equal(got, want, vocab * sizeof *want);
    engine_seq_close(g, a);
    assert_int_equal(engine_kept(g).n, 0);
    assert_int_equal(engine_kept(g).pages_free, pages);
    free(want);
    free(got);
    engine_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_f16),
        cmocka_unit_test(exact_k3v3),
#ifndef SANITIZED
        cmocka_unit_test(exact_f8),
        cmocka_unit_test(exact_f32),
#endif
        cmocka_unit_test(outlets_are_the_blob),
        cmocka_unit_test(pages_had_others),
        cmocka_unit_test(what_is_pure),
        cmocka_unit_test(kept_states_make_room),
    };
    return cmocka_run_group_tests_name("kept states", tests, open_file, close_file);
}
