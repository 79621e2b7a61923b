/* Saved states that several threads bring in from a file, on the demo model: what has come
 * goes on with the same bits; damage anywhere, a file that shrinks under the readers, a
 * disk that fails and a reader that is called off leave an empty sequence and all pages. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "format/container.h"
#include "sessions/state.h"

enum { TAG = 7, THREADS = 4 };
#ifdef SANITIZED
enum { LEN = 320, MORE = 20, FEW = 2 };
#else
enum { LEN = 320, MORE = 64, FEW = 4 };
#endif

static struct container *model;
static struct engine *g;
static char path[300];
static int32_t text[LEN + MORE];
static float *want;
static size_t vocab;
static uint64_t size, part_at; /* of the state; where it begins in the file */

static void must(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

static int open_seq(void)
{
    struct err e = ERR_INIT;
    int seq = -1;
    must(engine_seq_open(g, &seq, &e), &e);
    return seq;
}

/* The logits after all of the text, of which `from` tokens are there. */
static void go_on(int seq, int from, float *out)
{
    struct err e = ERR_INIT;
    const int32_t last = LEN + MORE - from - 1;
    const struct engine_prefill p = {
        .seq = seq, .tokens = text + from, .n = last + 1, .want = &last, .n_want = 1};
    must(engine_prefill(g, &p, &e), &e);
    must(engine_logits(g, 0, out, &e), &e);
}

struct giving {
    struct engine_saved state;
    uint64_t at;
};

static int give(void *ctx, void *dst, size_t n, struct err *e)
{
    struct giving *w = ctx;
    const int rc = w->state.read(w->state.ctx, w->at, dst, n, e);
    w->at += n;
    return rc;
}

/* The state after LEN tokens, in a file. */
static void write_state(void)
{
    struct err e = ERR_INIT;
    struct engine_snap *k = NULL;
    struct engine_outlet *o = NULL;
    const int seq = open_seq();
    const struct engine_prefill p = {.seq = seq, .tokens = text, .n = LEN};
    must(engine_prefill(g, &p, &e), &e);
    must(engine_snap_take(g, seq, &k, &e), &e);
    must(engine_outlet_open(g, k, &o, &e), &e);
    go_on(seq, LEN, want);
    struct giving w = {.state = engine_outlet_blob(o)};
    const struct state_meta m = {.kind = STATE_PREFIX, .label = "test", .ids = text, .n_ids = LEN};
    const struct state_part part = {.tag = TAG, .size = w.state.size, .give = give, .ctx = &w};
    size = part.size;
    part_at = 256 + 16 + 4 * LEN;
    must(state_write(path, &m, &part, 1, &e), &e);
    engine_outlet_close(o);
    engine_outlet_free(o);
    engine_snap_free(g, k);
    engine_seq_close(g, seq);
}

static int prepare(void **state)
{
    (void)state;
    const char *dir = getenv("QUASAR_SRCDIR"), *tmp = getenv("TMPDIR");
    char name[4096];
    snprintf(name, sizeof name, "%s/models/demo.qsr", dir ? dir : ".");
    snprintf(path, sizeof path, "%.200s/quasar-intake-%ld", tmp ? tmp : "/tmp", (long)getpid());
    const struct engine_opts o = {
        .backend = EB_CPU, .threads = THREADS + 1, .slots = 2, .ctx = 1024, .kv = EKV_F16};
    struct err e = ERR_INIT;
    if (container_open(name, false, &model, &e) < 0 || engine_open(model, &o, &g, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    for (int i = 0; i < LEN + MORE; i++) {
        text[i] = (int32_t)(300 + philox_word(3, (uint32_t)i, PHILOX_TARGET, 0) % 6000);
    }
    vocab = (size_t)engine_info(g)->vocab;
    want = mem_array(vocab, sizeof *want);
    write_state();
    return 0;
}

static int clear(void **state)
{
    (void)state;
    unlink(path);
    free(want);
    engine_close(g);
    container_close(model);
    return 0;
}

/* ---- reading, with trouble ---- */

enum trouble { NONE, CUT, NO_DISK, SLOW };

struct source {
    struct state_file *f;
    enum trouble what;
    int when; /* the call that meets it */
    atomic_int calls;
    atomic_bool go; /* SLOW: nothing more is waited for */
};

static int read_source(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    struct source *s = ctx;
    const int call = atomic_fetch_add(&s->calls, 1);
    switch (s->what) {
    case CUT:
        if (call == s->when) { /* before what this call would read */
            assert_int_equal(truncate(path, (off_t)(part_at + at + n / 2)), 0);
        }
        break;
    case NO_DISK:
        if (call == s->when) {
            return err_set(e, QE_IO, "the disk is gone");
        }
        break;
    case SLOW:
        while (call >= s->when && !atomic_load(&s->go)) {
            usleep(100);
        }
        break;
    case NONE:
        break;
    }
    return state_read_at(s->f, TAG, at, dst, n, e);
}

static int begin(struct source *s, int seq, struct engine_intake **k, struct err *e)
{
    uint64_t n = 0;
    s->f = NULL;
    int rc = state_open(path, &s->f, e);
    if (rc < 0) {
        return rc;
    }
    assert_true(state_has(s->f, TAG, &n));
    const struct engine_saved b = {.size = n, .unit = STATE_CHUNK, .read = read_source, .ctx = s};
    return engine_intake_open(g, seq, (int)state_meta(s->f)->n_ids, &b, k, e);
}

static int bring(struct source *s, int seq, struct err *e)
{
    struct engine_intake *k = NULL;
    int rc = begin(s, seq, &k, e);
    if (rc == 0) {
        while (!engine_intake_wait(k, 1000)) {
        }
        assert_int_equal(engine_seq_len(g, seq), 0);
        rc = engine_intake_close(k, e);
    }
    state_close(s->f);
    return rc;
}

/* It has come and goes on as if it had never been away. */
static void all_is_well(void)
{
    struct err e = ERR_INIT;
    struct source s = {.what = NONE};
    float *got = mem_array(vocab, sizeof *got);
    const int seq = open_seq();
    must(bring(&s, seq, &e), &e);
    assert_int_equal(engine_seq_len(g, seq), LEN);
    assert_true(engine_seq_pure(g, seq));
    assert_true(s.calls >= 4);
    go_on(seq, LEN, got);
    assert_memory_equal(got, want, vocab * sizeof *want);
    engine_seq_close(g, seq);
    free(got);
}

/* It has not, and the sequence takes the whole prompt. */
static void it_fails(struct source *s, int rc, const char *words)
{
    struct err e = ERR_INIT;
    float *got = mem_array(vocab, sizeof *got);
    const int seq = open_seq();
    const int had = bring(s, seq, &e);
    if (had != rc || !strstr(e.msg, words)) {
        fail_msg("%d (%s), not %d with \"%s\"", had, e.msg, rc, words);
    }
    assert_int_equal(engine_seq_len(g, seq), 0);
    assert_int_equal(engine_kept(g).pages_free, engine_kept(g).pages);
    go_on(seq, 0, got);
    assert_memory_equal(got, want, vocab * sizeof *want);
    engine_seq_close(g, seq);
    free(got);
}

static void comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < FEW; i++) {
        all_is_well();
    }
}

static void flip(uint64_t at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_true(c != EOF && fputc(c ^ 16, f) != EOF);
    fclose(f);
}

static void damaged_anywhere(void **state)
{
    (void)state;
    const uint64_t at[] = {20, size / 2, size - 1, 0, 48, STATE_CHUNK - 1, size - STATE_CHUNK};
    for (int i = 0; i < 2 * FEW - 1; i++) {
        struct source s = {.what = NONE};
        flip(part_at + at[i]);
        it_fails(&s, QE_FORMAT, "do not match their checksum");
        flip(part_at + at[i]);
    }
    all_is_well();
}

static void shrinks_meanwhile(void **state)
{
    (void)state;
    for (int when = 0; when < FEW; when++) {
        struct source s = {.what = CUT, .when = when};
        it_fails(&s, QE_FORMAT, "is cut off");
        it_fails(&s, QE_FORMAT, "is cut off"); /* it cannot even be opened now */
        write_state();
    }
    all_is_well();
}

static void a_disk_that_fails(void **state)
{
    (void)state;
    for (int when = 0; when < FEW; when++) {
        struct source s = {.what = NO_DISK, .when = when};
        it_fails(&s, QE_IO, "the disk is gone");
    }
    all_is_well();
}

static void called_off(void **state)
{
    (void)state;
    for (int when = 0; when < FEW; when++) {
        struct source s = {.what = SLOW, .when = when};
        struct err e = ERR_INIT;
        struct engine_intake *k = NULL;
        const int seq = open_seq();
        must(begin(&s, seq, &k, &e), &e);
        assert_false(engine_intake_wait(k, 20));
        atomic_store(&s.go, true);
        const int rc = engine_intake_close(k, &e);
        state_close(s.f);
        assert_true(rc == QE_CANCELLED && engine_seq_len(g, seq) == 0);
        engine_seq_close(g, seq);
        assert_int_equal(engine_kept(g).pages_free, engine_kept(g).pages);
    }
    all_is_well();
}

static void what_does_not_fit(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct source s = {.what = NONE};
    struct engine_intake *k = NULL;
    const int seq = open_seq();
    must(state_open(path, &s.f, &e), &e);
    struct engine_saved b = {.size = size, .unit = STATE_CHUNK, .read = read_source, .ctx = &s};
    assert_int_equal(engine_intake_open(g, seq, LEN - 1, &b, &k, &e), 0); /* as many pages */
    while (!engine_intake_wait(k, 1000)) {
    }
    assert_int_equal(engine_intake_close(k, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "after 320 tokens, not 319"));
    assert_int_equal(engine_intake_open(g, seq, LEN - 256, &b, &k, &e), QE_FORMAT);
    assert_int_equal(engine_intake_open(g, seq, 5000, &b, &k, &e), QE_NOMEM);
    assert_int_equal(engine_seq_len(g, seq), 0);
    state_close(s.f);
    engine_seq_close(g, seq);
    all_is_well();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),        cmocka_unit_test(damaged_anywhere),
        cmocka_unit_test(shrinks_meanwhile), cmocka_unit_test(a_disk_that_fails),
        cmocka_unit_test(called_off),        cmocka_unit_test(what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, prepare, clear);
}
