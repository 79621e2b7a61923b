/* Reuse of prompts on the stand-in engine: the index by itself, with hashes that
 * collide on purpose; what jobs start from and why it is not more; who goes when room is
 * short; nothing is left behind. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/load.h"
#include "sched/live.h"
#include "sched/prefix.h"
#include "sched/sched.h"
#include "tests/fake/engine.h"

#define VOCAB 1000

/* Tokens that depend on the salt from token `from` on. */
static void tokens(int32_t *p, int n, int from, int salt)
{
    for (int i = 0; i < n; i++) {
        const int s = i < from ? 0 : salt;
        p[i] = 3 + (i * 7 + s * 13 + i / 5 + s * (i % 11)) % (VOCAB - 3);
    }
}

/* ---- the index by itself ---- */

static struct engine_model *model;
static struct engine *g;
static int seq;

static int open_engine(void **state)
{
    (void)state;
    const struct engine_opts o = {.slots = 4};
    fake_log_reset();
    if (engine_load("ctx=8192", false, &o, &model, NULL) < 0) {
        return -1;
    }
    g = engine_of(model);
    return engine_seq_open(g, &seq, NULL);
}

static int close_engine(void **state)
{
    (void)state;
    engine_seq_close(g, seq);
    engine_unload(model);
    return fake_log.snaps;
}

static struct engine_snap *state_of(const int32_t *ids, int n, bool decoded)
{
    struct engine_snap *s = NULL;
    struct engine_prefill p = {.seq = seq, .tokens = ids, .n = decoded ? n - 1 : n};
    engine_seq_reset(g, seq);
    assert_int_equal(engine_prefill(g, &p, NULL), 0);
    if (decoded) {
        assert_int_equal(engine_decode(g, &seq, ids + n - 1, 1, NULL), 0);
    }
    assert_int_equal(engine_snap_take(g, seq, &s, NULL), 0);
    return s;
}

static void add(struct prefix *p, const int32_t *ids, int n, enum prefix_kind kind)
{
    prefix_add(p, state_of(ids, n, false), ids, kind, NULL, false);
}

static struct prefix_look look(struct prefix *p, const int32_t *ids, int n)
{
    struct prefix_look l = {.ids = ids, .n = n};
    prefix_find(p, &l);
    return l;
}

static int found(struct prefix *p, const int32_t *ids, int n)
{
    const struct prefix_look l = look(p, ids, n);
    return l.found ? l.found->len : 0;
}

static void longest_wins(void **state)
{
    (void)state;
    static int32_t a[1024], b[1024];
    struct prefix p;
    prefix_init(&p, g, 1 << 20, NULL);
    tokens(a, 1024, 0, 0);
    tokens(b, 1024, 300, 5);
    for (int n = 64; n <= 960; n += 64) {
        add(&p, a, n, PK_RING);
    }
    for (int n = 2; n <= 1024; n++) {
        /* one token is always left to compute */
        const int want = (n - 1) / 64 * 64;
        assert_int_equal(found(&p, a, n), want < 960 ? want : 960);
    }
    assert_int_equal(found(&p, b, 1024), 256);
    struct prefix_look l = look(&p, b, 1024);
    assert_int_equal(l.why, JS_DIFFERS); /* no state between 256 and where it differs */
    assert_true(l.at >= 300 && l.at < 320);
    prefix_fini(&p);
    assert_int_equal(fake_log.snaps, 0);
}

static uint64_t always_one(const void *q, size_t n, uint64_t seed)
{
    (void)q;
    (void)n;
    (void)seed;
    return 1;
}

/* Every hash collides: only equal tokens are found, whatever the hash says. */
static void forged_hash_finds_nothing(void **state)
{
    (void)state;
    static int32_t a[512], b[512], c[512];
    struct prefix p;
    prefix_init(&p, g, 1 << 20, always_one);
    tokens(a, 512, 0, 0);
    tokens(b, 512, 319, 3); /* another last token of five blocks */
    memcpy(c, a, sizeof c);
    c[0]++;
    add(&p, a, 320, PK_TURN);
    assert_int_equal(found(&p, a, 512), 320);
    assert_int_equal(found(&p, b, 512), 0);
    assert_int_equal(found(&p, c, 512), 0);
    add(&p, b, 320, PK_TURN);
    add(&p, c, 320, PK_TURN);
    assert_int_equal(found(&p, a, 512), 320);
    assert_int_equal(found(&p, b, 512), 320);
    assert_memory_equal(look(&p, c, 512).found->ids, c, 320 * sizeof *c);
    assert_true(prefix_has(&p, b, 320, NULL, false, PK_TURN));
    b[5]++;
    assert_false(prefix_has(&p, b, 320, NULL, false, PK_TURN));
    prefix_fini(&p);
}

static void decoded_states_are_their_owners(void **state)
{
    (void)state;
    static int32_t a[512];
    struct prefix p;
    struct live *one = live_create(), *two = live_create();
    prefix_init(&p, g, 1 << 20, NULL);
    tokens(a, 512, 0, 0);
    add(&p, a, 64, PK_HEAD);
    prefix_add(&p, state_of(a, 200, true), a, PK_TURN, one, false);
    struct prefix_look l = {.ids = a, .n = 400, .owner = one};
    prefix_find(&p, &l);
    assert_int_equal(l.found->len, 200); /* off the grid, to the token */
    l.owner = two;
    prefix_find(&p, &l);
    assert_int_equal(l.found->len, 64);
    assert_int_equal(l.why, JS_GENERATED);
    assert_int_equal(l.at, 200);
    prefix_add(&p, state_of(a, 300, true), a, PK_TURN, NULL, true);
    prefix_find(&p, &l);
    assert_int_equal(l.found->len, 64);
    l.generated = true;
    prefix_find(&p, &l);
    assert_int_equal(l.found->len, 300);
    /* on the grid, but decoded */
    prefix_add(&p, state_of(a, 320, true), a, PK_TURN, one, false);
    assert_int_equal(found(&p, a, 400), 64);
    prefix_forget(&p, one);
    l = (struct prefix_look){.ids = a, .n = 400, .owner = one};
    prefix_find(&p, &l);
    assert_int_equal(l.found->len, 64);
    live_free(one);
    live_free(two);
    prefix_fini(&p);
}

static void the_budget_holds(void **state)
{
    (void)state;
    static int32_t ids[8][2048];
    struct prefix p;
    const uint64_t each = FAKE_STATE + 2048 * sizeof(int32_t);
    prefix_init(&p, g, 4 * each, NULL);
    for (int i = 0; i < 8; i++) {
        tokens(ids[i], 2048, 0, i + 1);
    }
    for (int i = 0; i < 4; i++) {
        add(&p, ids[i], 2048 - 64, i == 0 ? PK_HEAD : PK_TURN);
    }
    assert_int_equal(p.n, 4);
    assert_int_equal(found(&p, ids[1], 2048), 1984); /* used: 2 is the oldest now */
    add(&p, ids[4], 1984, PK_TURN);
    assert_int_equal(p.n, 4);
    assert_int_equal(found(&p, ids[2], 2048), 0);
    assert_int_equal(look(&p, ids[2], 2048).why, JS_EVICTED);
    assert_int_equal(look(&p, ids[2], 2048).at, 1984);
    assert_int_equal(found(&p, ids[1], 2048), 1984);
    /* Short prompts push each other out before a long one; the head stays last. */
    for (int i = 0; i < 40; i++) {
        tokens(ids[7], 256, 0, 100 + i);
        add(&p, ids[7], 256, PK_TURN);
        assert_true(engine_kept(g).bytes + p.ids_bytes <= p.budget);
    }
    assert_int_equal(found(&p, ids[0], 2048), 1984);
    assert_int_equal(found(&p, ids[4], 2048), 1984);
    assert_int_equal(found(&p, ids[1], 2048), 1984);
    for (int i = 2; i < 8; i++) {
        tokens(ids[7], 2048, 0, 200 + i);
        add(&p, ids[7], 1984, PK_TURN);
    }
    assert_int_equal(found(&p, ids[0], 2048), 1984);
    assert_int_equal(found(&p, ids[4], 2048), 0);
    /* One larger than the budget is not kept, and takes nothing with it for good. */
    while (prefix_reclaim(&p)) {
    }
    assert_int_equal(p.n, 0);
    assert_int_equal(p.ids_bytes, 0);
    prefix_fini(&p);
}

/* ---- jobs ---- */

static struct sched *open_sched(const char *path, struct sched_keep keep)
{
    struct sched_opts o = {.path = path, .keep = keep, .wake_fd = -1};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    fake_log_reset();
    assert_int_equal(sched_open(&o, &s, &e), 0);
    assert_int_equal(sched_wait(s, &e), 0);
    return s;
}

static struct job_stats run(struct sched *s, struct job_spec spec, int32_t *answer)
{
    struct job *j = NULL;
    struct job_event ev;
    bool over = false;
    int n = 0;
    spec.wake_fd = -1;
    spec.max_tokens = spec.max_tokens ? spec.max_tokens : 3;
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    while (!over) {
        while (!over && job_next(j, &ev)) {
            for (int i = 0; ev.kind == JE_TOKENS && i < ev.n; i++) {
                /* what a cold run of the stand-in says */
                static int32_t all[16384];
                memcpy(all, spec.prompt, spec.n_prompt * sizeof *all);
                if (answer) {
                    answer[n] = ev.ids[i];
                    memcpy(all + spec.n_prompt, answer, (size_t)n * sizeof *all);
                    assert_int_equal(ev.ids[i],
                                     fake_next(all, (int)spec.n_prompt + n, VOCAB, 0, 0, 0));
                }
                n++;
            }
            over = ev.kind == JE_END;
        }
        usleep(50);
    }
    struct job_stats st = job_stats(j);
    job_free(j);
    return st;
}

static void jobs_reuse_what_prompts_left(void **state)
{
    (void)state;
    static int32_t a[6000], b[6000], answer[64];
    struct sched *s = open_sched("ctx=8192", (struct sched_keep){.every = 1024});
    tokens(a, 6000, 0, 0);
    tokens(b, 6000, 2500, 4);
    struct job_spec spec = {
        .prompt = a, .n_prompt = 5000, .head_end = 700, .query_end = 3000, .input_end = 4990};
    struct job_stats st = run(s, spec, answer);
    assert_int_equal(st.cached_tokens, 0);
    assert_int_equal(st.reuse, JU_NONE);
    assert_int_equal(st.why, JS_COLD);
    assert_int_equal(fake_log.taken, 4 + 3); /* every 1024; 640, 2944, 4928 */
    st = run(s, spec, answer);               /* once more */
    assert_int_equal(st.cached_tokens, 4928);
    assert_int_equal(st.reuse, JU_MEMORY);
    assert_int_equal(st.why, JS_ALL);
    assert_int_equal(fake_log.taken, 7);
    spec.n_prompt = 5200; /* the next turn */
    spec.input_end = 5150;
    st = run(s, spec, answer);
    assert_int_equal(st.cached_tokens, 4928);
    assert_int_equal(st.why, JS_NEW);
    spec.prompt = b; /* the history was edited */
    st = run(s, spec, answer);
    assert_int_equal(st.cached_tokens, 2048);
    assert_int_equal(st.why, JS_DIFFERS);
    assert_true(st.why_at >= 2500 && st.why_at < 2600);
    tokens(b, 6000, 650, 9); /* another conversation with the same head */
    st = run(s, spec, answer);
    assert_int_equal(st.cached_tokens, 640);
    assert_int_equal(st.why, JS_DIFFERS);
    assert_true(st.why_at >= 650 && st.why_at < 670);
    spec.n_prompt = 60;
    st = run(s, spec, answer);
    assert_int_equal(st.why, JS_TINY);
    struct sched_counters c = sched_counters(s);
    assert_int_equal(c.cached_tokens, 4928 + 4928 + 2048 + 640);
    assert_true(c.kept > 7 && c.kept_bytes == (uint64_t)c.kept * FAKE_STATE);
    sched_close(s);
    assert_int_equal(fake_log.snaps, 0);
    assert_int_equal(fake_log.open_seqs, 0);
}

static void answers_are_not_prompts(void **state)
{
    (void)state;
    static int32_t a[6000], answer[64];
    for (int generated = 0; generated < 2; generated++) {
        struct sched *s = open_sched("ctx=8192", (struct sched_keep){.generated = generated});
        tokens(a, 6000, 0, 0);
        struct job_spec spec = {.prompt = a, .n_prompt = 1000, .max_tokens = 40, .input_end = 990};
        struct job_stats st = run(s, spec, answer);
        memcpy(a + 1000, answer, 40 * sizeof *a);
        spec.n_prompt = 1300;
        spec.input_end = 1290;
        st = run(s, spec, answer);
        assert_int_equal(st.cached_tokens, generated ? 1039 : 960);
        assert_int_equal(st.why, JS_NEW);
        sched_close(s);
        assert_int_equal(fake_log.snaps, 0);
    }
}

/* A conversation of its own: it goes on from its state; goes back to any turn; another
 * one does not see what decoding wrote. */
static void conversations_go_back(void **state)
{
    (void)state;
    static int32_t a[6000], b[6000], answer[64];
    struct sched *s = open_sched("ctx=8192", (struct sched_keep){.off = false});
    struct live *l = live_create(), *other = live_create();
    tokens(a, 6000, 0, 0);
    int ends[5], n = 500;
    for (int turn = 0; turn < 4; turn++) {
        struct job_spec spec = {.prompt = a,
                                .n_prompt = (size_t)n,
                                .max_tokens = 20,
                                .live = l,
                                .head_end = 200,
                                .input_end = n - 8};
        struct job_stats st = run(s, spec, answer);
        assert_int_equal(st.cached_tokens, turn == 0 ? 0 : ends[turn - 1] + 19);
        assert_int_equal(st.reuse, turn == 0 ? JU_NONE : JU_LIVE);
        ends[turn] = n;
        memcpy(a + n, answer, 20 * sizeof *a);
        n += 20 + 300;
    }
    /* the third turn asked otherwise: the state at the end of its input's last block, then
     * back to where the fourth ended */
    memcpy(b, a, sizeof b);
    tokens(b + ends[2] - 100, 400, 0, 77);
    struct job_spec spec = {
        .prompt = b, .n_prompt = (size_t)ends[2] + 100, .live = l, .input_end = ends[2] + 92};
    struct job_stats st = run(s, spec, answer);
    assert_int_equal(st.reuse, JU_MEMORY);
    assert_int_equal(st.cached_tokens, (ends[1] - 8) / 64 * 64);
    spec.prompt = a;
    spec.n_prompt = (size_t)n;
    spec.live = other;
    st = run(s, spec, answer);
    assert_int_equal(st.cached_tokens, (ends[0] - 8) / 64 * 64); /* all that prefill wrote */
    assert_int_equal(st.why, JS_GENERATED);
    spec.live = l;
    st = run(s, spec, answer);
    assert_int_equal(st.cached_tokens, ends[3] + 19); /* it was kept when b took the place */
    live_free(l);
    live_free(other);
    /* what was theirs goes with them, what serves all stays */
    spec.live = NULL;
    spec.n_prompt = 30;
    (void)run(s, spec, NULL);
    assert_true(sched_counters(s).kept > 0 && sched_counters(s).kept <= 4);
    sched_close(s);
    assert_int_equal(fake_log.snaps, 0);
}

static void a_cancelled_prompt_is_not_lost(void **state)
{
    (void)state;
    static int32_t a[6000];
    struct sched *s = open_sched("ctx=8192,prefill_us=20", (struct sched_keep){.every = -1});
    tokens(a, 6000, 0, 0);
    struct job_spec spec = {.prompt = a, .n_prompt = 6000, .max_tokens = 1, .wake_fd = -1};
    struct job *j = NULL;
    struct job_event ev = {.kind = JE_STARTED};
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    while (fake_log.prefill_calls < 3) {
        usleep(50);
    }
    job_cancel(j);
    while (ev.kind != JE_END) {
        if (!job_next(j, &ev)) {
            usleep(50);
        }
    }
    assert_int_equal(ev.reason, JR_CANCELLED);
    job_free(j);
    struct job_stats st = run(s, spec, NULL);
    assert_true(st.cached_tokens > 0 && st.cached_tokens % 64 == 0);
    sched_close(s);
    assert_int_equal(fake_log.snaps, 0);
}

static void off_is_off(void **state)
{
    (void)state;
    static int32_t a[2000];
    struct sched *s = open_sched("ctx=8192", (struct sched_keep){.off = true});
    tokens(a, 2000, 0, 0);
    struct job_spec spec = {.prompt = a, .n_prompt = 2000, .head_end = 500, .input_end = 1990};
    for (int i = 0; i < 2; i++) {
        struct job_stats st = run(s, spec, NULL);
        assert_int_equal(st.cached_tokens, 0);
        assert_int_equal(st.why, JS_OFF);
    }
    assert_int_equal(fake_log.taken, 0);
    sched_close(s);
}

static void every_reason_has_words(void **state)
{
    (void)state;
    char words[JOB_WORDS];
    for (enum job_short w = JS_ALL; w <= JS_OFF; w++) {
        job_short_words(w, 4711, words);
        assert_true(strlen(words) > 8 && strchr(words, '%') == NULL);
        assert_non_null(job_short_name(w));
    }
    job_short_words(JS_DIFFERS, 4711, words);
    assert_non_null(strstr(words, "4711"));
    assert_string_equal(job_reuse_name(JU_MEMORY), "memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(longest_wins, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(forged_hash_finds_nothing, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(decoded_states_are_their_owners, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(the_budget_holds, open_engine, close_engine),
        cmocka_unit_test(jobs_reuse_what_prompts_left),
        cmocka_unit_test(answers_are_not_prompts),
        cmocka_unit_test(conversations_go_back),
        cmocka_unit_test(a_cancelled_prompt_is_not_lost),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(every_reason_has_words),
    };
    return cmocka_run_group_tests_name("prefixes", tests, NULL, NULL);
}
