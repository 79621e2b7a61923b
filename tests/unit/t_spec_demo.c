/* Speculation on the demo model says what plain decoding says: every drafter and depth,
 * greedy and seeded, alone and in company, on the prompts of tests/prompts. Tokens a
 * round are printed by category. QUASAR_LONG: 20 prompts of up to 256 tokens, depths 1
 * to 12; else a few. */
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

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "engine/load.h"
#include "engine/spec.h"
#include "sched/sched.h"

#define PROMPTS 20
#define MOST    256

#ifdef SANITIZED /* some thirty times slower */
#define FEW     6
#define CONTEXT 30
#define DEPTHS  12 /* from one depth to the next */
#define STRIDE  10 /* … and from one prompt */
#define MODE    3  /* the first of modes */
#else
#define FEW     40
#define CONTEXT 300
#define DEPTHS  5
#define STRIDE  5
#define MODE    0
#endif

struct prompt {
    char category[16];
    int32_t *ids;
    int n;
};

static struct prompt prompts[PROMPTS];
static int n_prompts;

static bool is_long(void)
{
    return getenv("QUASAR_LONG") != NULL;
}

static const char *in_tree(const char *name)
{
    static char path[4096];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "%s/%s", src ? src : ".", name);
    return path;
}

/* context tokens of the prompts read so far, over and over, then the prompt's own. */
static void read_prompt(const char *line, size_t n)
{
    json_t *v = NULL;
    assert_int_equal(json_parse(line, n, "a prompt", &v, NULL), 0);
    struct prompt *p = &prompts[n_prompts];
    const json_t *ids = json_object_get(v, "ids");
    int context = (int)json_integer_value(json_object_get(v, "context"));
    context = context > CONTEXT && !is_long() ? CONTEXT : context;
    snprintf(p->category, sizeof p->category, "%s",
             json_string_value(json_object_get(v, "category")));
    p->ids = mem_array((size_t)context + json_array_size(ids), sizeof *p->ids);
    for (int i = 0; p->n < context; i = (i + 1) % n_prompts) {
        for (int k = 0; k < prompts[i].n && p->n < context; k++) {
            p->ids[p->n++] = prompts[i].ids[k];
        }
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        p->ids[p->n++] = (int32_t)json_integer_value(json_array_get(ids, i));
    }
    json_decref(v);
    n_prompts++;
}

static int prepare(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    if (io_read_file(in_tree("tests/prompts/demo.jsonl"), 1 << 24, &b, NULL) < 0) {
        return -1;
    }
    for (char *p = b.data, *end = b.data + b.len; p < end && n_prompts < PROMPTS;) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        const size_t n = (size_t)((nl ? nl : end) - p);
        read_prompt(p, n);
        p += n + 1;
    }
    buf_free(&b);
    return n_prompts == PROMPTS ? 0 : -1;
}

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
static struct sched *asking;

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
    sched_nudge(asking);
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
    sched_nudge(asking);
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
    (void)state;
    for (int i = 0; i < n_prompts; i++) {
        free(prompts[i].ids);
    }
    for (int i = 0; i < n_kept; i++) {
        free(kept[i].ids);
        free(kept[i].bytes);
    }
    return 0;
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
    asking = s;
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

static const struct {
    const char *name;
    enum spec_mode mode;
} modes[] = {{"auto", SPEC_AUTO},
             {"mtp", SPEC_MTP},
             {"suffix", SPEC_SUFFIX},
             {"mtp+suffix", SPEC_MTP_SUFFIX}};

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
    if (is_long()) { /* five prompts of 8,000 tokens, computed once */
        assert_int_equal(n_kept, 5);
        assert_true(n_given >= 5);
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

/* ---- every drafter at every depth, from one prefill (QUASAR_LONG) ---- */

static struct engine_model *open_demo(void)
{
    struct engine_model *m = NULL;
    const struct engine_opts o = {.backend = EB_CPU, .ctx = 9000, .threads = 2, .slots = 2};
    struct err e = ERR_INIT;
    if (engine_load(in_tree("models/demo.qsr"), false, &o, &m, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return m;
}

static void must(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

/* What base goes on with after the token first, ends of turns included: most tokens in
 * out. spec NULL: plain steps. Returns rounds. */
static int go_on(struct engine *g, int base, struct spec *spec, const struct prompt *p,
                 int32_t first, int32_t *out, int most)
{
    struct err e = ERR_INIT;
    struct spec_seq *q = spec_seq_create();
    struct view_spec stats = {0};
    int seq = -1, n = 0, rounds = 0;
    must(engine_seq_open(g, &seq, &e), &e);
    must(engine_seq_fork(g, seq, base, &e), &e);
    spec_seq_prompt(q, p->ids, p->n);
    spec_seq_push(q, &first, 1);
    for (; n < most; rounds++) {
        struct spec_part part = {
            .q = q, .seq = seq, .pending = n > 0 ? out[n - 1] : first, .room = most - n - 1};
        struct engine_draw d[COST_ROWS];
        int seqs[COST_ROWS], outputs[COST_ROWS];
        int32_t tokens[COST_ROWS], ids[COST_ROWS];
        if (spec) {
            must(spec_draft(spec, g, &part, 1, &e), &e);
        }
        for (int k = 0; k <= part.n; k++) {
            tokens[k] = k > 0 ? part.ids[k - 1] : part.pending;
            seqs[k] = seq;
            outputs[k] = k;
            d[k] = (struct engine_draw){.top_p = 1};
        }
        must(part.n > 0 ? engine_verify(g, seqs, tokens, part.n + 1, &e)
                        : engine_decode(g, seqs, tokens, 1, &e),
             &e);
        must(engine_sample(g, outputs, d, part.n + 1, ids, &e), &e);
        int keep = 1;
        while (keep <= part.n && part.ids[keep - 1] == ids[keep - 1]) {
            keep++;
        }
        if (part.n > 0) {
            must(engine_commit(g, &seq, &keep, 1, &e), &e);
        }
        const int accepted = keep - 1;
        if (spec) {
            spec_learn(spec, &part, 1, &accepted, 1e-3, (struct view_spec *[]){&stats});
        }
        spec_seq_push(q, ids, keep);
        memcpy(out + n, ids, (size_t)keep * sizeof *out);
        n += keep;
    }
    spec_seq_free(q);
    engine_seq_close(g, seq);
    return rounds;
}

static void every_depth(void **state)
{
    (void)state;
    static int rounds[4][13];
    const int most = is_long() ? MOST : FEW / 2;
    const int step = is_long() ? 1 : 11;
    int tokens = 0;
    struct engine_model *m = open_demo();
    struct engine *g = engine_of(m);
    for (int i = 0; i < n_prompts; i += is_long() ? 1 : 2 * STRIDE) {
        const struct prompt *p = &prompts[i];
        const int32_t last = p->n - 1;
        const struct engine_prefill f = {
            .tokens = p->ids, .n = p->n, .want = &last, .n_want = 1, .seq = 0};
        const struct engine_draw greedy = {.top_p = 1};
        const int output = 0;
        static int32_t off[MOST], on[MOST];
        int32_t first = 0;
        struct err e = ERR_INIT;
        int base = -1;
        must(engine_seq_open(g, &base, &e), &e);
        assert_int_equal(base, f.seq);
        must(engine_prefill(g, &f, &e), &e);
        must(engine_sample(g, &output, &greedy, 1, &first, &e), &e);
        assert_int_equal(go_on(g, base, NULL, p, first, off, most), most);
        for (int mode = MODE; mode < 4; mode += is_long() ? 1 : 3) {
            for (int draft = 1; draft <= 12; draft += step) {
                struct spec spec;
                must(spec_init(&spec, &(struct spec_opts){modes[mode].mode, draft}, g, &e), &e);
                rounds[mode][draft] += go_on(g, base, &spec, p, first, on, most);
                if (memcmp(off, on, (size_t)most * sizeof *on) != 0) {
                    fail_msg("prompt %d, %s, %d drafts: another text", i, modes[mode].name, draft);
                }
            }
        }
        engine_seq_close(g, base);
        tokens += most;
    }
    for (int mode = MODE; mode < 4; mode += is_long() ? 1 : 3) {
        for (int draft = 1; draft <= 12; draft += step) {
            print_message("# %s %d: %d tokens in %d rounds\n", modes[mode].name, draft, tokens,
                          rounds[mode][draft]);
        }
    }
    engine_unload(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_depth),
        cmocka_unit_test(greedy),
        cmocka_unit_test(seeded),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
