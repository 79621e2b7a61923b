/* Row independence of the whole engine on the demo model: a sequence's logits and
 * state are the same bits whatever company, order, slot, thread count, chunk size
 * or detour through an export it had. QUASAR_LONG: all the counts. */
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

#define ROWS 16

static struct container *file;
static uint32_t drawn;

static uint32_t draw(uint32_t below)
{
    return philox_word(7, drawn++, PHILOX_TARGET, 0) % below;
}

static bool is_long(void)
{
    return getenv("QUASAR_LONG") != NULL;
}

#ifdef SANITIZED
#define SHORT_ROWS 15 /* 1 and 16 rows */
#define STEPS      2
#define MIN_TEAM   2
#define SHORT_CUTS 2
#define SHORT_TEXT 5 /* tokens of most texts */
#define LONG_TEXT  66
#define CUT_TOKENS 200
#define N_LENGTHS  3
#else
#define SHORT_ROWS 5
#define STEPS      3
#define MIN_TEAM   1 /* threads */
#define SHORT_CUTS 6
#define SHORT_TEXT 30
#define LONG_TEXT  300
#define CUT_TOKENS 600
#define N_LENGTHS  7
#endif

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
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    container_close(file);
    return 0;
}

static enum engine_kv format; /* of engines opened from now on */

/* A test for every format of the cache. */
static void of_formats(void (*test)(void))
{
    for (format = EKV_F16; format <= EKV_K3V3; format++) {
        test();
    }
    format = EKV_AUTO;
}

/* NULL when this machine lacks the instruction set. */
static struct engine *open_engine(const char *isa, int threads, int slots)
{
    struct engine_opts o = {.backend = EB_CPU,
                            .isa = isa,
                            .threads = threads,
                            .slots = slots,
                            .ctx = 8192,
                            .kv = format};
    struct engine *g = NULL;
    struct err e = ERR_INIT;
    int rc = engine_open(file, &o, &g, &e);
    if (rc == QE_UNSUPPORTED && isa) {
        return NULL;
    }
    if (rc < 0) {
        fail_msg("%s", e.msg);
    }
    return g;
}

static int vocab_of(const struct engine *g)
{
    return engine_info(g)->vocab;
}

static int32_t some_id(const struct engine *g)
{
    return (int32_t)draw((uint32_t)engine_info(g)->vocab_used);
}

static void must(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

static int open_seq(struct engine *g)
{
    struct err e = ERR_INIT;
    int seq = -1;
    must(engine_seq_open(g, &seq, &e), &e);
    return seq;
}

/* Logits after the last of n tokens, if out is given. */
static void prefill(struct engine *g, int seq, const int32_t *ids, int n, int max_rows, float *out)
{
    struct err e = ERR_INIT;
    int32_t last = n - 1;
    struct engine_prefill p = {
        .seq = seq, .tokens = ids, .n = n, .want = &last, .n_want = 1, .max_rows = max_rows};
    must(engine_prefill(g, &p, &e), &e);
    if (out) {
        must(engine_logits(g, 0, out, &e), &e);
    }
}

static void decode(struct engine *g, const int *seqs, const int32_t *ids, int n)
{
    struct err e = ERR_INIT;
    must(engine_decode(g, seqs, ids, n, &e), &e);
}

static void logits(struct engine *g, int i, float *out)
{
    struct err e = ERR_INIT;
    must(engine_logits(g, i, out, &e), &e);
}

static char *export_state(struct engine *g, int seq, size_t *n)
{
    struct err e = ERR_INIT;
    *n = engine_seq_state_size(g, seq);
    char *p = mem_alloc(*n);
    must(engine_seq_export(g, seq, p, &e), &e);
    return p;
}

/* Prompts of several lengths and the tokens fed to each afterwards. */
struct text {
    int32_t ids[400];
    int n;
    int32_t next[STEPS];
    char *state; /* after ids */
    size_t state_size;
};

static void make_texts(const struct engine *g, struct text *t)
{
    drawn = 0;
    for (int i = 0; i < ROWS; i++) {
        t[i].n = 1 + (int)draw(is_long() ? 390 : i == 7 ? LONG_TEXT : SHORT_TEXT);
        for (int k = 0; k < t[i].n; k++) {
            t[i].ids[k] = some_id(g);
        }
        for (int k = 0; k < STEPS; k++) {
            t[i].next[k] = some_id(g);
        }
    }
}

/* Rows [ROWS][STEPS][vocab] of each text decoded alone with one thread. */
static float *alone(const char *isa, struct text *t)
{
    struct engine *g = open_engine(isa, 1, 1);
    if (!g) {
        return NULL;
    }
    make_texts(g, t);
    const size_t vocab = (size_t)vocab_of(g);
    float *want = mem_array(ROWS * STEPS * vocab, sizeof *want);
    for (int i = 0; i < ROWS; i++) {
        int seq = open_seq(g);
        prefill(g, seq, t[i].ids, t[i].n, 0, NULL);
        t[i].state = export_state(g, seq, &t[i].state_size);
        for (int k = 0; k < STEPS; k++) {
            decode(g, &seq, &t[i].next[k], 1);
            logits(g, 0, want + ((size_t)i * STEPS + (size_t)k) * vocab);
        }
        engine_seq_close(g, seq);
    }
    engine_close(g);
    return want;
}

/* One round: n texts in random slots, mixed order, several steps; every second
 * round gives one text all its steps at once as consecutive rows. */
static void together(struct engine *g, const struct text *t, const float *want, int n)
{
    const size_t vocab = (size_t)vocab_of(g);
    float *got = mem_array(vocab, sizeof *got);
    struct err e = ERR_INIT;
    int who[ROWS], seqs[ROWS], filler[ROWS], n_fill = 0;
    for (int i = 0; i < ROWS; i++) {
        who[i] = i;
    }
    for (int i = ROWS - 1; i > 0; i--) {
        int j = (int)draw((uint32_t)i + 1), k = who[i];
        who[i] = who[j];
        who[j] = k;
    }
    for (int i = 0; i < n; i++) {
        while (n_fill < ROWS - n && draw(2)) { /* leaves holes in the slots */
            filler[n_fill++] = open_seq(g);
        }
        seqs[i] = open_seq(g);
        must(engine_seq_import(g, seqs[i], t[who[i]].state, t[who[i]].state_size, &e), &e);
    }
    int burst = n + STEPS - 1 <= ROWS && draw(2) ? 0 : -1; /* row of the text that runs ahead */
    for (int k = 0; k < STEPS; k++) {
        int row_seq[ROWS], row_text[ROWS], row_step[ROWS], rows = 0;
        int32_t ids[ROWS];
        for (int i = 0; i < n; i++) {
            int count = i == burst ? (k == 0 ? STEPS : 0) : 1;
            for (int s = 0; s < count; s++) {
                row_seq[rows] = seqs[i];
                row_text[rows] = who[i];
                row_step[rows] = i == burst ? s : k;
                ids[rows] = t[who[i]].next[row_step[rows]];
                rows++;
            }
        }
        if (rows == 0) {
            break;
        }
        if (burst >= 0 && k == 0 && rows > STEPS) { /* its rows need not be adjacent */
            int last = rows - 1, mid = 1;
            int s = row_seq[last], w = row_text[last], st = row_step[last];
            int32_t id = ids[last];
            for (int i = last; i > mid; i--) {
                row_seq[i] = row_seq[i - 1];
                row_text[i] = row_text[i - 1];
                row_step[i] = row_step[i - 1];
                ids[i] = ids[i - 1];
            }
            row_seq[mid] = s;
            row_text[mid] = w;
            row_step[mid] = st;
            ids[mid] = id;
        }
        decode(g, row_seq, ids, rows);
        for (int i = 0; i < rows; i++) {
            logits(g, i, got);
            const float *w = want + ((size_t)row_text[i] * STEPS + (size_t)row_step[i]) * vocab;
            if (memcmp(got, w, vocab * sizeof *got) != 0) {
                fail_msg("row %d of %d (text %d, step %d) differs from the row alone", i, rows,
                         row_text[i], row_step[i]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        engine_seq_close(g, seqs[i]);
    }
    for (int i = 0; i < n_fill; i++) {
        engine_seq_close(g, filler[i]);
    }
    free(got);
}

static void rows_equal_rows_alone(const char *isa)
{
    static struct text t[ROWS];
    float *want = alone(isa, t);
    if (!want) {
        skip();
        return;
    }
    for (int threads = MIN_TEAM; threads <= 2; threads++) {
        struct engine *g = open_engine(isa, threads, ROWS);
        for (int n = 1; n <= ROWS; n += is_long() ? 1 : SHORT_ROWS) {
            for (int rep = 0; rep < (is_long() ? 8 : 1); rep++) {
                together(g, t, want, n);
            }
        }
        engine_close(g);
    }
    for (int i = 0; i < ROWS; i++) {
        free(t[i].state);
    }
    free(want);
}

static void rows_portable(void **state)
{
    (void)state;
    rows_equal_rows_alone("portable");
}

static void rows_avx2(void **state)
{
    (void)state;
    rows_equal_rows_alone("avx2");
}

static void rows_avx512(void **state)
{
    (void)state;
    rows_equal_rows_alone("avx512");
}

/* Prefill cut in random places of the grid: logits and the whole state. */
static void cuts(void)
{
    const bool first = format == EKV_F16;
    const int n = is_long() ? 5000 : first ? CUT_TOKENS : 300;
    const int sets = is_long() ? 200 : first ? SHORT_CUTS : 2;
    struct engine *g = open_engine(NULL, 2, 2);
    const size_t vocab = (size_t)vocab_of(g);
    int32_t *ids = mem_array((size_t)n, sizeof *ids);
    float *want = mem_array(vocab, sizeof *want), *got = mem_array(vocab, sizeof *got);
    drawn = 1000;
    for (int i = 0; i < n; i++) {
        ids[i] = some_id(g);
    }
    int seq = open_seq(g);
    prefill(g, seq, ids, n, 0, want);
    size_t size = 0, size2 = 0;
    char *state_want = export_state(g, seq, &size);
    for (int set = 0; set < sets; set++) {
        engine_seq_reset(g, seq);
        int at = 0;
        while (at < n) {
            int piece = 64 * (1 + (int)draw(set % 2 ? 4 : 20));
            piece = piece < n - at ? piece : n - at;
            /* a piece may be cut once more inside one call */
            int rows = draw(2) ? 0 : 64 * (1 + (int)draw(6));
            prefill(g, seq, ids + at, piece, rows, got);
            at += piece;
        }
        assert_memory_equal(got, want, vocab * sizeof *want);
        char *now = export_state(g, seq, &size2);
        assert_int_equal(size2, size);
        if (memcmp(now, state_want, size) != 0) {
            fail_msg("cut set %d gives another state", set);
        }
        free(now);
    }
    free(state_want);
    free(ids);
    free(want);
    free(got);
    engine_close(g);
}

static void cuts_do_not_matter(void **state)
{
    (void)state;
    of_formats(cuts);
}

/* A sequence that left and came back, into another engine with other threads and
 * another slot, or that was forked, goes on with the same bits. */
/* A blob that is read from memory. */
static int read_blob(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    (void)e;
    memcpy(dst, (const char *)ctx + at, n);
    return 0;
}

static void import_by_threads(struct engine *g, int seq, char *saved, size_t size, int len)
{
    struct err e = ERR_INIT;
    const struct engine_saved b = {.size = size, .unit = 1000, .read = read_blob, .ctx = saved};
    struct engine_intake *k = NULL;
    must(engine_intake_open(g, seq, len, &b, &k, &e), &e);
    while (!engine_intake_wait(k, 100)) {
        assert_int_equal(engine_seq_len(g, seq), 0);
    }
    must(engine_intake_close(k, &e), &e);
}

static void export_and_fork(void)
{
    struct engine *a = open_engine(NULL, 2, 3), *b = open_engine(NULL, 1, 3);
    const size_t vocab = (size_t)vocab_of(a);
    float *want = mem_array(vocab, sizeof *want), *got = mem_array(vocab, sizeof *got);
    struct err e = ERR_INIT;
    const int lengths[] = {1, 64, 256, 63, 255, 300, 777};
    drawn = 2000;
    for (size_t l = 0; l < N_LENGTHS; l += format == EKV_F16 ? 1 : 2) {
        int32_t ids[800];
        for (int i = 0; i < 800; i++) {
            ids[i] = some_id(a);
        }
        int n = lengths[l], seq = open_seq(a);
        prefill(a, seq, ids, n, 0, NULL);
        decode(a, &seq, &ids[n], 1);
        size_t size = 0;
        char *saved = export_state(a, seq, &size);
        int fork = open_seq(a);
        must(engine_seq_fork(a, fork, seq, &e), &e);
        decode(a, &seq, &ids[n + 1], 1);
        decode(a, &seq, &ids[n + 2], 1);
        logits(a, 0, want);
        int32_t drafts[4], again[4];
        must(engine_mtp_draft(a, seq, ids[n + 3], 4, drafts, &e), &e);
        decode(a, &seq, &ids[n + 4], 1); /* the original moves on */

        decode(a, &fork, &ids[n + 1], 1);
        decode(a, &fork, &ids[n + 2], 1);
        logits(a, 0, got);
        assert_memory_equal(got, want, vocab * sizeof *want);
        must(engine_mtp_draft(a, fork, ids[n + 3], 4, again, &e), &e);
        assert_memory_equal(again, drafts, sizeof drafts);

        int other = open_seq(b), back = open_seq(b);
        engine_seq_close(b, other);
        if (l % 2) {
            must(engine_seq_import(b, back, saved, size, &e), &e);
        } else {
            import_by_threads(b, back, saved, size, n + 1);
        }
        assert_int_equal(engine_seq_len(b, back), n + 1);
        decode(b, &back, &ids[n + 1], 1);
        decode(b, &back, &ids[n + 2], 1);
        logits(b, 0, got);
        assert_memory_equal(got, want, vocab * sizeof *want);
        must(engine_mtp_draft(b, back, ids[n + 3], 4, again, &e), &e);
        assert_memory_equal(again, drafts, sizeof drafts);
        free(saved);
        engine_seq_close(a, seq);
        engine_seq_close(a, fork);
        engine_seq_close(b, back);
    }
    free(want);
    free(got);
    engine_close(a);
    engine_close(b);
}

static void export_and_fork_are_exact(void **state)
{
    (void)state;
    of_formats(export_and_fork);
}

/* Drafting leaves no trace in what follows. */
static void drafts_do_not_disturb(void **state)
{
    (void)state;
    struct engine *g = open_engine(NULL, 2, 2);
    const size_t vocab = (size_t)vocab_of(g);
    float *want = mem_array(vocab, sizeof *want), *got = mem_array(vocab, sizeof *got);
    struct err e = ERR_INIT;
    int32_t ids[300], drafts[ENGINE_MAX_DRAFT], want_drafts[4];
    drawn = 3000;
    for (int i = 0; i < 300; i++) {
        ids[i] = some_id(g);
    }
    int plain = open_seq(g), drafted = open_seq(g);
    prefill(g, plain, ids, 250, 0, NULL);
    prefill(g, drafted, ids, 250, 0, NULL);
    for (int i = 250; i < 270; i++) {
        must(engine_mtp_draft(g, drafted, ids[i], ENGINE_MAX_DRAFT, drafts, &e), &e);
        must(engine_mtp_draft(g, drafted, ids[i] / 2, 3, drafts, &e), &e); /* not what follows */
        decode(g, &plain, &ids[i], 1);
        logits(g, 0, want);
        decode(g, &drafted, &ids[i], 1);
        logits(g, 0, got);
        assert_memory_equal(got, want, vocab * sizeof *want);
    }
    assert_int_equal(engine_mtp_len(g, drafted), 269);
    must(engine_mtp_draft(g, plain, ids[270], 4, want_drafts, &e), &e);
    must(engine_mtp_draft(g, drafted, ids[270], 4, drafts, &e), &e);
    assert_memory_equal(drafts, want_drafts, sizeof want_drafts);
    free(want);
    free(got);
    engine_close(g);
}

static void refusals(void **state)
{
    (void)state;
    struct engine *g = open_engine(NULL, 1, 2);
    struct err e = ERR_INIT;
    int32_t id = 5, bad = vocab_of(g), negative = -1, many[64] = {0};
    int seq = open_seq(g), none = 77;
    assert_int_equal(engine_decode(g, &none, &id, 1, &e), QE_USAGE);
    assert_int_equal(engine_decode(g, &seq, &bad, 1, &e), QE_USAGE);
    assert_int_equal(engine_decode(g, &seq, &negative, 1, &e), QE_USAGE);
    assert_int_equal(engine_decode(g, &seq, many, 17, &e), QE_USAGE);
    assert_int_equal(engine_mtp_draft(g, seq, 5, 2, many, &e), QE_USAGE); /* nothing computed */
    int32_t want = 3;
    struct engine_prefill p = {.seq = seq, .tokens = many, .n = 2, .want = &want, .n_want = 1};
    assert_int_equal(engine_prefill(g, &p, &e), QE_USAGE);
    p.n_want = 0;
    p.max_rows = 65;
    assert_int_equal(engine_prefill(g, &p, &e), QE_USAGE);
    p.max_rows = 0;
    const volatile int stop = 1;
    p.cancel = &stop;
    assert_int_equal(engine_prefill(g, &p, &e), QE_CANCELLED);
    assert_int_equal(engine_seq_len(g, seq), 0);
    p.cancel = NULL;
    int32_t *lot = mem_array(9000, sizeof *lot);
    p.tokens = lot;
    p.n = 9000;
    assert_int_equal(engine_prefill(g, &p, &e), QE_NOMEM);
    assert_non_null(strstr(e.msg, "8192"));
    free(lot);
    decode(g, &seq, &id, 1);
    size_t n = 0;
    char *s = export_state(g, seq, &n);
    assert_int_equal(engine_seq_import(g, seq, s, n - 1, &e), QE_FORMAT);
    assert_int_equal(engine_seq_import(g, seq, s, 10, &e), QE_FORMAT);
    s[8] ^= 1; /* of another model */
    assert_int_equal(engine_seq_import(g, seq, s, n, &e), QE_UNSUPPORTED);
    assert_int_equal(engine_seq_len(g, seq), 1); /* untouched by the refusals */
    free(s);
    int second = open_seq(g), third = -1;
    assert_int_equal(engine_seq_open(g, &third, &e), QE_BUSY);
    engine_seq_close(g, second);
    engine_close(g);
    struct engine *cuda = NULL;
    struct engine_opts o = {.backend = EB_CUDA, .device = 63};
    int rc = engine_open(file, &o, &cuda, &e); /* as the build has CUDA or not */
    assert_true(rc == QE_UNSUPPORTED || rc == QE_DEVICE);
    o = (struct engine_opts){.ctx = 1 << 20};
    assert_int_equal(engine_open(file, &o, &cuda, &e), QE_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_portable),
        cmocka_unit_test(rows_avx2),
        cmocka_unit_test(rows_avx512),
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(export_and_fork_are_exact),
        cmocka_unit_test(drafts_do_not_disturb),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("engine", tests, open_file, close_file);
}
