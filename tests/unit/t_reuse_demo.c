/* Reuse on the real engine and the demo model: a prompt resumed from any multiple of 64
 * draws the same tokens with the same probabilities, to the bit, as a cold one; the budget
 * is kept; what runs out of pages still answers. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "sched/sched.h"

#define OUT 4
#define TOP 5
#ifdef SANITIZED
#define PROMPT 140
#define USERS  2
#define TURNS  2
#define SHIFT  10
#else
#define PROMPT 630
#define USERS  4
#define TURNS  4
#define SHIFT  100
#endif

static char path[4096];
static enum engine_kv kv = EKV_AUTO; /* of the engines that are opened */

static int prepare(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "%s/models/demo.qsr", src ? src : ".");
    return 0;
}

static struct sched *open_sched(int ctx, int slots, struct sched_keep keep)
{
    struct sched_opts o = {
        .path = path,
        .wake_fd = -1,
        .keep = keep,
        .engine = {.backend = EB_CPU, .ctx = ctx, .slots = slots, .threads = 1, .kv = kv}};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    if (sched_open(&o, &s, &e) < 0 || sched_wait(s, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return s;
}

/* Ordinary ids; from token `from` on they depend on the salt. */
static void prompt_of(int32_t *p, int n, int from, int salt)
{
    uint32_t x = 1;
    for (int i = 0; i < n; i++) {
        x = x * 1664525U + 1013904223U + (i >= from ? (uint32_t)salt : 0);
        p[i] = (int32_t)(300 + (x >> 8) % 6000);
    }
}

struct answer {
    int32_t ids[OUT];
    struct engine_logprob p[OUT * (1 + TOP)];
    struct job_stats st;
};

static struct job *submit(struct sched *s, const int32_t *p, int n, int input_end)
{
    struct job_spec spec = {.prompt = p,
                            .n_prompt = (size_t)n,
                            .max_tokens = OUT,
                            .draw = {.temp = 0.8F, .top_p = 0.95F, .top_k = 40, .seed = 17},
                            .logprobs = true,
                            .top_logprobs = TOP,
                            .input_end = input_end,
                            .wake_fd = -1};
    struct job *j = NULL;
    struct err e = ERR_INIT;
    if (sched_submit(s, &spec, &j, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return j;
}

static bool take(struct job *j, struct answer *a, int *n)
{
    struct job_event ev;
    while (job_next(j, &ev)) {
        for (int i = 0; ev.kind == JE_TOKENS && i < ev.n; i++) {
            int m = 0;
            const struct engine_logprob *p = job_logprobs(j, *n, &m);
            memcpy(a->p + *n * (1 + TOP), p, (size_t)m * sizeof *p);
            a->ids[(*n)++] = ev.ids[i];
        }
        if (ev.kind == JE_END) {
            if (ev.reason == JR_ERROR) {
                fail_msg("%s", job_error(j));
            }
            a->st = job_stats(j);
            job_free(j);
            return true;
        }
    }
    return false;
}

static void ask(struct sched *s, const int32_t *p, int n, struct answer *a)
{
    int got = 0;
    memset(a, 0, sizeof *a);
    struct job *j = submit(s, p, n, n);
    while (!take(j, a, &got)) {
        usleep(100);
    }
    assert_int_equal(got, OUT);
}

static void same(const struct answer *a, const struct answer *b)
{
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_memory_equal(a->p, b->p, sizeof a->p);
}

/* A state at every multiple of 64; prompts that leave it at each of them. */
static void resumed_equals_cold(void **state)
{
    (void)state;
    static int32_t base[PROMPT], p[PROMPT];
    static struct answer warm, cold;
    struct sched *keeping = open_sched(2048, 4, (struct sched_keep){.every = 64});
    struct sched *none = open_sched(2048, 4, (struct sched_keep){.off = true});
    prompt_of(base, PROMPT, PROMPT, 0);
    ask(keeping, base, PROMPT, &warm);
    assert_int_equal(warm.st.cached_tokens, 0);
    for (int cut = 64; cut < PROMPT; cut += 64) {
        const int n = cut + 5 + cut % 41 < PROMPT ? cut + 5 + cut % 41 : PROMPT;
        prompt_of(p, n, cut, cut);
        ask(keeping, p, n, &warm);
        assert_int_equal(warm.st.cached_tokens, cut);
        assert_int_equal(warm.st.reuse, JU_MEMORY);
        ask(none, p, n, &cold);
        assert_int_equal(cold.st.cached_tokens, 0);
        same(&warm, &cold);
    }
    sched_close(keeping);
    sched_close(none);
}

/* Turn after turn, each longer than the last, several at once, an edit in the middle, and
 * an answer's tokens in the prompts: always what a cold run says. */
static void chains_and_edits(void **state)
{
    (void)state;
    static int32_t p[USERS][PROMPT];
    static struct answer warm[USERS], cold;
    struct sched *keeping = open_sched(2048, 4, (struct sched_keep){.every = 128});
    struct sched *none = open_sched(2048, 1, (struct sched_keep){.off = true});
    int n[USERS], got[USERS];
    for (int i = 0; i < USERS; i++) {
        prompt_of(p[i], PROMPT, i < 2 ? PROMPT : 70, i);
        n[i] = 80 + 31 * i;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        struct job *jobs[USERS];
        bool over[USERS] = {false};
        if (turn == 2) {
            prompt_of(p[0] + 150, 60, 0, 99);
        }
        for (int i = 0; i < USERS; i++) {
            got[i] = 0;
            jobs[i] = submit(keeping, p[i], n[i], n[i] - 7);
        }
        for (int left = USERS; left > 0; usleep(100)) {
            for (int i = 0; i < USERS; i++) {
                if (!over[i] && take(jobs[i], &warm[i], &got[i])) {
                    over[i] = true;
                    left--;
                }
            }
        }
        for (int i = 0; i < USERS; i++) {
            ask(none, p[i], n[i], &cold);
            same(&warm[i], &cold);
            if (turn > 0) {
                assert_true(warm[i].st.cached_tokens >= 64);
            }
            if (n[i] + OUT + 40 < PROMPT) { /* the answer, and what is said to it */
                memcpy(p[i] + n[i], warm[i].ids, sizeof warm[i].ids);
                n[i] += OUT + 40;
            }
        }
    }
    sched_close(keeping);
    sched_close(none);
}

static uint32_t drawn;

static int draw(int below)
{
    return (int)(philox_word(23, drawn++, PHILOX_TARGET, 0) % (uint32_t)below);
}

/* Conversations by chance: a turn goes on from the last one, asks it again, edits the
 * middle, goes back to an earlier turn, or begins anew with the same head; memory is short
 * in some of them. */
static void scripts(bool all)
{
    enum { MOST = 8 };
    static int32_t p[MOST][PROMPT];
    static struct answer warm, cold;
    struct sched *none = open_sched(2048, 1, (struct sched_keep){.off = true});
    int reused = 0;
    for (int script = 0; script < (all ? 20 : 2); script++) {
        int n[MOST];
        drawn = (uint32_t)script << 16;
        struct sched *keeping = open_sched(
            2048, 2,
            (struct sched_keep){.every = 64 << draw(3),
                                .bytes = script % 3 == 1 ? (uint64_t)(4 + draw(8)) << 20 : 0});
        prompt_of(p[0], PROMPT, 0, 1 + script);
        n[0] = PROMPT / 3 + draw(PROMPT / 4);
        for (int turn = 0; turn < (all ? MOST : TURNS); turn++) {
            if (turn > 0) { /* from whichever turn, mostly the last */
                const int from = draw(3) ? turn - 1 : draw(turn);
                memcpy(p[turn], p[from], sizeof p[turn]);
                n[turn] = n[from];
                switch (draw(4)) {
                case 0: /* an edit */
                    prompt_of(p[turn] + draw(n[turn] - 20), 20, 0, 500 + turn);
                    break;
                case 1: /* the same again, or cut back */
                    n[turn] -= draw(2) * draw(n[turn] / 2);
                    break;
                default:
                    n[turn] += draw(PROMPT / 6);
                    n[turn] = n[turn] < PROMPT ? n[turn] : PROMPT;
                    prompt_of(p[turn] + n[from], n[turn] - n[from], 0, 900 + turn);
                }
            }
            ask(keeping, p[turn], n[turn], &warm);
            ask(none, p[turn], n[turn], &cold);
            same(&warm, &cold);
            reused += warm.st.cached_tokens > 0;
        }
        sched_close(keeping);
    }
    assert_true(reused > 0);
    sched_close(none);
}

/* QUASAR_LONG: 20 of 8 turns in every format. */
static void random_scripts(void **state)
{
    (void)state;
    static const enum engine_kv every[] = {EKV_F16, EKV_K3V3, EKV_F32, EKV_F8, EKV_K8V4, EKV_K5V3};
    const bool all = getenv("QUASAR_LONG") != NULL;
    for (size_t i = 0; i < (all ? sizeof every / sizeof *every : 1); i++) {
        kv = every[i];
        scripts(all);
    }
    kv = EKV_AUTO;
}

/* A cache of one window's pages, full of kept states: running prompts get them. */
static void pages_run_out(void **state)
{
    (void)state;
    static int32_t p[PROMPT];
    static struct answer warm, cold;
    struct sched *keeping = open_sched(PROMPT + 60, 1, (struct sched_keep){.every = 64});
    struct sched *none = open_sched(PROMPT + 60, 1, (struct sched_keep){.off = true});
    for (int i = 0; i < TURNS; i++) {
        prompt_of(p, PROMPT, SHIFT * i, i + 1);
        ask(keeping, p, PROMPT, &warm);
        ask(none, p, PROMPT, &cold);
        same(&warm, &cold);
        const struct sched_counters c = sched_counters(keeping);
        assert_true(c.pages_free + c.pages_kept <= c.pages);
    }
    usleep(1000);
    const struct sched_counters c = sched_counters(keeping);
    assert_int_equal(c.running, 0);
    assert_int_equal(c.pages_free + c.pages_kept, c.pages); /* no page is lost */
    sched_close(keeping);
    sched_close(none);
}

/* A small budget is never passed, and nothing goes wrong at its edge. */
static void little_memory(void **state)
{
    (void)state;
    static int32_t p[PROMPT];
    static struct answer warm, cold;
    const uint64_t budget = 6 << 20;
    struct sched *keeping = open_sched(2048, 2, (struct sched_keep){.every = 64, .bytes = budget});
    struct sched *none = open_sched(2048, 1, (struct sched_keep){.off = true});
    for (int i = 0; i < TURNS; i++) {
        prompt_of(p, PROMPT, 2 * SHIFT * i, i + 1);
        ask(keeping, p, PROMPT, &warm);
        ask(none, p, PROMPT, &cold);
        same(&warm, &cold);
        assert_true(sched_counters(keeping).kept_bytes <= budget);
        assert_true(sched_counters(keeping).kept > 0);
    }
    sched_close(keeping);
    sched_close(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_equals_cold), cmocka_unit_test(chains_and_edits),
        cmocka_unit_test(random_scripts),      cmocka_unit_test(pages_run_out),
        cmocka_unit_test(little_memory),
    };
    return cmocka_run_group_tests_name("reuse", tests, prepare, NULL);
}
