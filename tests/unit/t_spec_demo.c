/* Speculation on the demo model says what plain decoding says, through the scheduler:
 * every drafter, greedy and seeded, alone and in company, on the prompts of tests/prompts.
 * Tokens a round are printed by category. QUASAR_LONG: 20 prompts of up to 256 tokens, no
 * fixed depth, 4, 8 and 12; else a few. */
#include "config.h"

#include <unistd.h>

#include "engine/load.h"
#include "sched/sched.h"
#include "spec_prompts.h"

/* ---- states of long prompts, which one scheduler leaves to the next (QUASAR_LONG) ---- */

struct kept {
    int32_t *ids;
    int len;
    uint8_t *bytes;
    size_t size, unit;
};

struct tier_fetch {
    const struct kept *found;
};

static struct kept kept[PROMPTS];
static int n_kept, n_given;

static void kept_engine(void *ctx, const uint8_t compat[32], const char *label)
{
    (void)ctx, (void)compat, (void)label; /* it is always the same model */
}

static struct tier_fetch *kept_fetch(void *ctx, const int32_t *ids, int n, int least)
{
    (void)ctx;
    struct tier_fetch *f = mem_zalloc(sizeof *f);
    for (int i = 0; i < n_kept; i++) {
        const struct kept *k = &kept[i];
        if (k->len > least && k->len < n &&
            memcmp(k->ids, ids, (size_t)k->len * sizeof *ids) == 0) {
            f->found = k;
            least = k->len;
        }
    }
    return f;
}

static bool kept_ready(void *ctx, const struct tier_fetch *f)
{
    (void)ctx, (void)f;
    return true;
}

static int kept_read(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    const struct kept *k = ctx;
    (void)e;
    memcpy(dst, k->bytes + at, n);
    return 0;
}

static bool kept_result(void *ctx, const struct tier_fetch *f, struct engine_saved *state, int *len)
{
    (void)ctx;
    if (!f->found) {
        return false;
    }
    *state = (struct engine_saved){f->found->size, f->found->unit, kept_read,
                                   (void *)(uintptr_t)f->found};
    *len = f->found->len;
    n_given++;
    return true;
}

static void kept_done(void *ctx, struct tier_fetch *f, const struct err *bad)
{
    (void)ctx;
    if (bad) {
        print_message("# a kept state was no use: %s\n", bad->msg);
    }
    free(f);
}

static bool kept_wants(void *ctx, const int32_t *ids, int len)
{
    (void)ctx, (void)ids;
    return len > 1024 && n_kept < PROMPTS;
}

static bool kept_store(void *ctx, const int32_t *ids, int len, bool head,
                       const struct engine_saved *state)
{
    (void)ctx, (void)head;
    struct kept *k = &kept[n_kept];
    *k = (struct kept){.len = len, .size = state->size, .unit = state->unit};
    k->ids = mem_array((size_t)len, sizeof *k->ids);
    memcpy(k->ids, ids, (size_t)len * sizeof *ids);
    k->bytes = mem_array(k->size, 1);
    for (size_t at = 0; at < k->size;) {
        const size_t n = k->size - at < k->unit ? k->size - at : k->unit;
        assert_int_equal(state->read(state->ctx, at, k->bytes + at, n, NULL), 0);
        at += n;
    }
    n_kept++;
    return true;
}

static bool kept_stored(void *ctx, bool wait)
{
    (void)ctx, (void)wait;
    return true;
}

static const struct tier keeper = {.engine = kept_engine,
                                   .fetch = kept_fetch,
                                   .ready = kept_ready,
                                   .result = kept_result,
                                   .done = kept_done,
                                   .wants = kept_wants,
                                   .store = kept_store,
                                   .stored = kept_stored};

static int clean(void **state)
{
    for (int i = 0; i < n_kept; i++) {
        free(kept[i].ids);
        free(kept[i].bytes);
    }
    return prompts_free(state);
}

static struct sched *open_ready(enum spec_mode mode, int draft)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", in_tree("models/demo.qsr"));
    struct sched_opts o = {.path = path,
                           .wake_fd = -1,
                           .engine = {.backend = EB_CPU, .ctx = 9000, .threads = 2},
                           .spec = {.mode = mode, .draft = draft},
                           .keep = {.tier = is_long() ? &keeper : NULL}};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    if (sched_open(&o, &s, &e) < 0 || sched_wait(s, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return s;
}

struct answer {
    int32_t ids[MOST];
    int n;
};

static struct job *ask(struct sched *s, const struct prompt *p, bool sampled, int most)
{
    const struct engine_info *info = sched_info(s);
    struct job_spec spec = {.prompt = p->ids,
                            .n_prompt = (size_t)p->n,
                            .max_tokens = most,
                            .stop = info->eos,
                            .n_stop = (size_t)info->n_eos,
                            .input_end = p->n,
                            .store = true,
                            .screen = true,
                            .wake_fd = -1};
    if (sampled) {
        spec.draw = (struct engine_draw){.temp = 0.9F, .top_p = 0.95F, .top_k = 40, .seed = 77};
        spec.rules.presence = 0.3F;
        spec.rules.repetition = 1.05F;
        spec.rules.min_tokens = most / 8;
    }
    struct job *j = NULL;
    struct err e = ERR_INIT;
    if (sched_submit(s, &spec, &j, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return j;
}

static void hear(struct job *j, struct answer *a)
{
    struct job_event ev = {.kind = JE_STARTED};
    a->n = 0;
    while (ev.kind != JE_END) {
        if (!job_next(j, &ev)) {
            ev.kind = JE_STARTED;
            usleep(100);
            continue;
        }
        if (ev.kind == JE_TOKENS) {
            memcpy(a->ids + a->n, ev.ids, (size_t)ev.n * sizeof *ev.ids);
            a->n += ev.n;
        }
    }
    if (ev.reason == JR_ERROR) {
        fail_msg("%s", job_error(j));
    }
}

/* Answers of the chosen prompts, all at once or one after the other. */
static void answers(struct sched *s, const int *which, int n, bool sampled, bool together, int most,
                    struct answer *out, struct view_spec *sum)
{
    struct job *jobs[PROMPTS];
    for (int i = 0; together && i < n; i++) {
        jobs[i] = ask(s, &prompts[which[i]], sampled, most);
    }
    for (int i = 0; i < n; i++) {
        if (!together) {
            jobs[i] = ask(s, &prompts[which[i]], sampled, most);
        }
        hear(jobs[i], &out[i]);
        const struct job_stats st = job_stats(jobs[i]);
        view_spec_add(&sum[i], &st.spec);
        job_free(jobs[i]);
    }
}

static void same_answers(const struct answer *a, const struct answer *b, int n, const char *mode,
                         int draft)
{
    for (int i = 0; i < n; i++) {
        if (a[i].n != b[i].n || memcmp(a[i].ids, b[i].ids, (size_t)a[i].n * sizeof *a[i].ids)) {
            fail_msg("%s, %d drafts: answer %d differs", mode, draft, i);
        }
    }
}

/* One of each category (chat and echo under a sanitizer), or all. */
static int choose(int *which)
{
    int n = 0;
    for (int i = is_long() ? 0 : 2; i < n_prompts; i += is_long() ? 1 : STRIDE) {
        which[n++] = i;
    }
    return n;
}

static void report(const char *mode, int draft, const int *which, int n,
                   const struct view_spec *sum)
{
    for (int i = 0; i < n;) {
        struct view_spec all = {0};
        const char *category = prompts[which[i]].category;
        for (; i < n && strcmp(category, prompts[which[i]].category) == 0; i++) {
            view_spec_add(&all, &sum[i]);
        }
        print_message("# %s %d: %s %.2f tokens a round\n", mode, draft, category,
                      view_spec_per_round(&all));
    }
}

static void compare(bool sampled)
{
    static struct answer off[PROMPTS], on[PROMPTS];
    struct view_spec sum[PROMPTS] = {0};
    int which[PROMPTS];
    const int n = choose(which);
    const int most = is_long() ? MOST : FEW;
    struct sched *s = open_ready(SPEC_OFF, 0);
    answers(s, which, n, sampled, false, most, off, sum);
    sched_close(s);
    for (int m = MODE; m < 4; m++) {
        for (int draft = 0; draft <= 12; draft += is_long() ? 4 : DEPTHS) {
            memset(sum, 0, sizeof sum);
            s = open_ready(modes[m].mode, draft);
            answers(s, which, n, sampled, false, most, on, sum);
            same_answers(off, on, n, modes[m].name, draft);
            report(modes[m].name, draft, which, n, sum);
            if (draft % (is_long() ? 4 : 6) == 0) {
                answers(s, which, n < 16 ? n : 16, sampled, true, most, on, sum);
                same_answers(off, on, n < 16 ? n : 16, modes[m].name, draft);
            }
            sched_close(s);
        }
    }
    if (is_long()) { /* five prompts that have their first 8,000 tokens in common */
        assert_true(n_kept > 0 && n_given > 5);
        print_message("# a kept state was given %d times\n", n_given);
    }
}

static void greedy(void **state)
{
    (void)state;
    compare(false);
}

static void seeded(void **state)
{
    (void)state;
    compare(true);
}

/* A chain of drafts ends behind the token that ends the text. */
static void chains_stop_at_the_end(void **state)
{
    (void)state;
    static struct answer whole;
    struct view_spec sum[1] = {0};
    const int which = 2;
    struct sched *s = open_ready(SPEC_OFF, 0);
    answers(s, &which, 1, false, false, MOST, &whole, sum);
    sched_close(s);
    assert_in_range(whole.n, 4, MOST - 1); /* it ends by itself */
    const struct prompt *p = &prompts[which];
    struct engine_model *m = NULL;
    struct err e = ERR_INIT;
    const struct engine_opts o = {.backend = EB_CPU, .ctx = 600, .threads = 2, .slots = 1};
    if (engine_load(in_tree("models/demo.qsr"), false, &o, &m, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    struct engine *g = engine_of(m);
    int seq = -1;
    assert_int_equal(engine_seq_open(g, &seq, &e), 0);
    const struct engine_prefill asked = {.seq = seq, .tokens = p->ids, .n = p->n};
    assert_int_equal(engine_prefill(g, &asked, &e), 0);
    const struct engine_prefill said = {.seq = seq, .tokens = whole.ids, .n = whole.n - 2};
    assert_int_equal(engine_prefill(g, &said, &e), 0);
    const int32_t last = whole.ids[whole.n - 2], end = whole.ids[whole.n - 1];
    assert_true(engine_ends(g, end) && !engine_ends(g, last));
    for (int to_end = 0; to_end < 2; to_end++) {
        struct engine_draft d = {.seq = seq, .next = last, .depth = 5, .to_end = to_end};
        assert_int_equal(engine_draft(g, &d, 1, &e), 0);
        assert_int_equal(d.ids[0], end);
        assert_int_equal(d.n, to_end ? 1 : 5);
        assert_int_equal(d.steps, d.n);
    }
    engine_seq_close(g, seq);
    engine_unload(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy),
        cmocka_unit_test(seeded),
        cmocka_unit_test(chains_stop_at_the_end),
    };
    return cmocka_run_group_tests(tests, prompts_read, clean);
}
