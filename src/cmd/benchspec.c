/* quasar bench --what verify,spec: what a verified step costs by its width; rounds whose
 * drafts are accepted by chance, for models that have nothing to say; and whole answers
 * to prompts, plain and with drafts, which must be the same. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/philox.h"
#include "cmd/bench.h"
#include "engine/spec.h"

#define STEPS  24 /* of one timing */
#define ANSWER 256
#define SLICE  16 /* tokens of an answer between two looks at the clock */

/* ---- verified steps ---- */

static int verify_once(struct bench *b, int seq, int rows, int keep, struct err *e)
{
    int seqs[COST_ROWS], outputs[COST_ROWS];
    int32_t ids[COST_ROWS];
    struct engine_draw d[COST_ROWS];
    for (int i = 0; i < rows; i++) {
        seqs[i] = seq;
        outputs[i] = i;
        ids[i] = bench_random_id(b);
        d[i] = (struct engine_draw){.top_p = 1};
    }
    int rc = engine_verify(b->g, seqs, ids, rows, e);
    rc = rc < 0 ? rc : engine_sample(b->g, outputs, d, rows, ids, e);
    return rc < 0 ? rc : engine_commit(b->g, &seq, &keep, 1, e);
}

/* Milliseconds of a verified step of which keep rows stay. */
static int time_verify(struct bench *b, int base, int seq, int rows, int keep, double *ms,
                       struct err *e)
{
    double t[BENCH_REPS];
    int rc = 0;
    for (int rep = -1; rep < b->reps && rc == 0; rep++) {
        rc = engine_seq_fork(b->g, seq, base, e);
        rc = rc < 0 ? rc : verify_once(b, seq, rows, keep, e); /* pages of its own */
        const int64_t start = clock_now(clock_real());
        for (int i = 0; i < STEPS && rc == 0; i++) {
            rc = verify_once(b, seq, rows, keep, e);
        }
        if (rep >= 0) {
            t[rep] = 1e3 * bench_since(start) / STEPS;
        }
    }
    *ms = rc == 0 ? bench_median(t, b->reps) : 0;
    return rc;
}

int bench_verify(struct bench *b, int depth, int rows, struct err *e)
{
    int base = -1, seq = -1;
    double all = 0, one = 0;
    int rc = bench_fill(b, depth, &base, e);
    rc = rc < 0 ? rc : engine_seq_open(b->g, &seq, e);
    rc = rc < 0 ? rc : time_verify(b, base, seq, rows, rows, &all, e);
    rc = rc < 0 ? rc : time_verify(b, base, seq, rows, 1, &one, e);
    engine_seq_close(b->g, base);
    engine_seq_close(b->g, seq);
    if (rc < 0) {
        return rc;
    }
    bench_add(b, json_pack("{s:s, s:i, s:i, s:f, s:f}", "what", "verify", "depth", depth, "rows",
                           rows, "ms_per_step", all, "ms_keeping_one", one));
    if (!b->json) {
        printf("verify   depth %6d  rows %2d  %9.3f ms keeping all  %9.3f ms keeping one\n", depth,
               rows, all, one);
        fflush(stdout);
    }
    return 0;
}

/* ---- acceptance by chance ---- */

/* One round of MTP drafts; each draft is taken with this chance as long as all before it
 * were. Returns tokens, or an error. */
static int scripted_round(struct bench *b, int seq, int drafts, double accept, struct err *e)
{
    struct engine_draft d = {.seq = seq, .next = bench_random_id(b), .depth = drafts};
    int rc = drafts > 0 ? engine_draft(b->g, &d, 1, e) : 0;
    int keep = 1;
    while (keep <= drafts && philox_word(5, b->drawn++, PHILOX_TARGET, 0) < accept * 0x1p32) {
        keep++;
    }
    rc = rc < 0 ? rc : verify_once(b, seq, drafts + 1, keep, e);
    return rc < 0 ? rc : keep;
}

static int scripted_depth(struct bench *b, int depth, int drafts, double accept, struct err *e)
{
    int base = -1, seq = -1;
    double t[BENCH_REPS], tok_s[BENCH_REPS];
    int rc = bench_fill(b, depth > 0 ? depth : 1, &base, e);
    rc = rc < 0 ? rc : engine_seq_open(b->g, &seq, e);
    for (int rep = -1; rep < b->reps && rc >= 0; rep++) {
        rc = engine_seq_fork(b->g, seq, base, e);
        rc = rc < 0 ? rc : scripted_round(b, seq, drafts, accept, e);
        int tokens = 0;
        const int64_t start = clock_now(clock_real());
        for (int i = 0; i < 2 * STEPS && rc >= 0; i++) {
            rc = scripted_round(b, seq, drafts, accept, e);
            tokens += rc;
        }
        if (rep >= 0) {
            const double s = bench_since(start);
            t[rep] = 1e3 * s / (2 * STEPS);
            tok_s[rep] = tokens / s;
        }
    }
    engine_seq_close(b->g, base);
    engine_seq_close(b->g, seq);
    if (rc < 0) {
        return rc;
    }
    const double ms = bench_median(t, b->reps), speed = bench_median(tok_s, b->reps);
    bench_add(b, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f}", "what", "spec", "depth", depth,
                           "drafts", drafts, "accept", accept, "ms_per_round", ms, "tok_s", speed));
    if (!b->json) {
        printf("spec     depth %6d  %2d drafts accepted at %.2f  %9.1f tok/s  %9.3f ms/round\n",
               depth, drafts, accept, speed, ms);
        fflush(stdout);
    }
    return 0;
}

int bench_scripted(struct bench *b, const struct conf *cf, int depth, struct err *e)
{
    const double accept = conf_num(cf, "accept", 0);
    const int asked = (int)conf_int(cf, "draft", 0);
    int rc = 0;
    for (int n = asked ? asked : 0; n <= (asked ? asked : 12) && rc == 0; n++) {
        rc = scripted_depth(b, depth, n, accept, e);
    }
    return rc;
}

/* ---- answers ---- */

struct prompt {
    char category[24];
    int32_t *ids;
    int n;
};

struct prompts {
    struct prompt *v;
    int n;
};

static void prompts_free(struct prompts *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->v[i].ids);
    }
    free(p->v);
}

/* One line: category, context (so many tokens of the prompts before it come first), ids. */
static int add_prompt(struct prompts *p, const char *line, size_t n, int vocab, struct err *e)
{
    json_t *o = NULL;
    int rc = json_parse(line, n, "a prompt", &o, e);
    if (rc < 0) {
        return rc;
    }
    const json_t *ids = json_object_get(o, "ids");
    const char *category = json_string_value(json_object_get(o, "category"));
    const json_int_t context = json_integer_value(json_object_get(o, "context"));
    const size_t own = json_array_size(ids);
    if (own == 0 || !category || context < 0 || context > 1 << 20 || (context > 0 && p->n == 0)) {
        json_decref(o);
        return err_set(e, QE_FORMAT, "prompt %d has no category, no ids or nothing for its context",
                       p->n + 1);
    }
    p->v = mem_realloc(p->v, (size_t)(p->n + 1) * sizeof *p->v);
    struct prompt *q = &p->v[p->n];
    *q = (struct prompt){.n = 0};
    snprintf(q->category, sizeof q->category, "%s", category);
    q->ids = mem_array((size_t)context + own, sizeof *q->ids);
    for (int i = 0; q->n < context; i = (i + 1) % p->n) {
        for (int k = 0; k < p->v[i].n && q->n < context; k++) {
            q->ids[q->n++] = p->v[i].ids[k];
        }
    }
    p->n++;
    for (size_t i = 0; i < own && rc == 0; i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));
        if (id < 0 || id >= vocab) {
            rc = err_set(e, QE_FORMAT, "prompt %d: token id %lld is outside 0..%d", p->n,
                         (long long)id, vocab - 1);
        }
        q->ids[q->n++] = (int32_t)id;
    }
    json_decref(o);
    return rc;
}

static int read_prompts(const char *path, int vocab, struct prompts *out, struct err *e)
{
    struct buf b = BUF_INIT;
    int rc = io_read_stream(path, 64 << 20, &b, e);
    for (const char *p = b.data, *end = p + b.len; rc == 0 && p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const size_t n = (size_t)((nl ? nl : end) - p);
        if (n > 0) {
            rc = add_prompt(out, p, n, vocab, e);
        }
        p += n + 1;
    }
    buf_free(&b);
    if (rc == 0 && out->n == 0) {
        rc = err_set(e, QE_FORMAT, "there is no prompt in it");
    }
    return rc < 0 ? err_wrap(e, rc, "%s", path) : 0;
}

/* One answer on its way. */
struct answer {
    struct spec *spec;
    struct spec_seq *q; /* NULL: without drafts */
    int seq;
    int32_t ids[ANSWER];
    int n;
    double s, cpu_s; /* after the first token: by the clock, of the processors */
};

/* The rows of one round, drawn greedily: how many tokens came, in out. */
static int answer_round(struct bench *b, struct spec *spec, struct spec_seq *q, int seq,
                        int32_t pending, int room, int32_t *out, struct view_spec *v, struct err *e)
{
    struct spec_part p = {.q = q, .seq = seq, .pending = pending, .room = room - 1};
    int seqs[COST_ROWS], outputs[COST_ROWS];
    int32_t tokens[COST_ROWS], ids[COST_ROWS];
    struct engine_draw d[COST_ROWS];
    int rc = spec_on(spec) ? spec_draft(spec, b->g, &p, 1, e) : 0;
    const int rows = p.n + 1;
    const int64_t start = clock_now(clock_real());
    for (int i = 0; i < rows; i++) {
        seqs[i] = seq;
        outputs[i] = i;
        tokens[i] = i == 0 ? pending : p.ids[i - 1];
        d[i] = (struct engine_draw){.top_p = 1};
    }
    if (rc == 0) {
        rc = rows > 1 ? engine_verify(b->g, seqs, tokens, rows, e)
                      : engine_decode(b->g, seqs, tokens, rows, e);
    }
    rc = rc < 0 ? rc : engine_sample(b->g, outputs, d, rows, ids, e);
    if (rc < 0) {
        return rc;
    }
    int keep = 1;
    while (keep < rows && p.ids[keep - 1] == ids[keep - 1] && !engine_ends(b->g, ids[keep - 1])) {
        keep++;
    }
    rc = rows > 1 ? engine_commit(b->g, &seq, &keep, 1, e) : 0;
    const int accepted = keep - 1;
    spec_learn(spec, &p, 1, &accepted, bench_since(start), (struct view_spec *[]){v});
    if (q) {
        spec_seq_push(q, ids, keep);
    }
    memcpy(out, ids, (size_t)keep * sizeof *out);
    return rc < 0 ? rc : keep;
}

/* A prompt that was computed once, and the token that follows. */
static int prompt_start(struct bench *b, const struct prompt *p, int *seq, int32_t *first,
                        struct err *e)
{
    const int32_t last = p->n - 1;
    const int output = 0;
    const struct engine_draw greedy = {.top_p = 1};
    int rc = engine_seq_open(b->g, seq, e);
    const struct engine_prefill f = {
        .seq = *seq, .tokens = p->ids, .n = p->n, .want = &last, .n_want = 1};
    rc = rc < 0 ? rc : engine_prefill(b->g, &f, e);
    return rc < 0 ? rc : engine_sample(b->g, &output, &greedy, 1, first, e);
}

static int answer_start(struct bench *b, struct spec *spec, const struct prompt *p, int base,
                        int32_t first, struct answer *a, struct err *e)
{
    *a = (struct answer){.spec = spec, .seq = -1, .ids = {first}, .n = 1};
    int rc = engine_seq_open(b->g, &a->seq, e);
    rc = rc < 0 ? rc : engine_seq_fork(b->g, a->seq, base, e);
    if (rc == 0 && spec_on(spec)) {
        a->q = spec_seq_create();
        spec_seq_prompt(a->q, p->ids, p->n);
        spec_seq_push(a->q, a->ids, 1);
    }
    return rc;
}

static void answer_end(struct bench *b, struct answer *a)
{
    spec_seq_free(a->q);
    engine_seq_close(b->g, a->seq);
}

static bool answered(const struct bench *b, const struct answer *a)
{
    return a->n >= ANSWER || engine_ends(b->g, a->ids[a->n - 1]);
}

/* Goes on until the answer has `until` tokens, or a few more. */
static int answer_on(struct bench *b, struct answer *a, int until, struct view_spec *v,
                     struct err *e)
{
    const int64_t start = clock_now(clock_real());
    const clock_t used = clock();
    int rc = 0;
    while (rc >= 0 && a->n < until && !answered(b, a)) {
        int32_t ids[COST_ROWS];
        rc = answer_round(b, a->spec, a->q, a->seq, a->ids[a->n - 1], ANSWER - a->n, ids, v, e);
        for (int i = 0; i < rc; i++) {
            a->ids[a->n++] = ids[i];
        }
    }
    a->s += bench_since(start);
    a->cpu_s += (double)(clock() - used) / CLOCKS_PER_SEC;
    return rc < 0 ? rc : 0;
}

/* What both ways of answering took, repetition by repetition. */
struct pairs {
    double plain[BENCH_REPS], drafted[BENCH_REPS]; /* seconds */
    double clock[BENCH_REPS], cpu[BENCH_REPS];     /* plain / drafted */
    int tokens;
};

/* One answer without drafts and one with, in turns of SLICE tokens, so that whatever
 * else the machine does meets both. */
static int answer_pair(struct bench *b, struct spec *spec, const struct prompt *p, int base,
                       int32_t first, int rep, struct pairs *out, struct view_spec *v,
                       struct err *e)
{
    static struct answer both[2];
    struct spec off = {.mtp = false};
    struct view_spec none = {.draft_s = 0};
    cost_init(&off.cost, b->g);
    int rc = answer_start(b, &off, p, base, first, &both[0], e);
    const bool opened = rc == 0;
    rc = rc < 0 ? rc : answer_start(b, spec, p, base, first, &both[1], e);
    for (int until = SLICE; until < ANSWER + SLICE && rc == 0; until += SLICE) {
        for (int k = 0; k < 2 && rc == 0; k++) {
            const int who = (k + rep) % 2;
            rc = answer_on(b, &both[who], until, who ? v : &none, e);
        }
    }
    if (rc == 0 && (both[0].n != both[1].n ||
                    memcmp(both[0].ids, both[1].ids, (size_t)both[0].n * sizeof *both[0].ids))) {
        rc = err_set(e, QE_INTERNAL, "an answer differs when it is drafted");
    }
    answer_end(b, &both[0]);
    if (opened) {
        answer_end(b, &both[1]);
    }
    if (rc == 0) {
        out->plain[rep] = both[0].s;
        out->drafted[rep] = both[1].s;
        out->clock[rep] = both[0].s / both[1].s;
        out->cpu[rep] = both[1].cpu_s > 0 ? both[0].cpu_s / both[1].cpu_s : 1;
        out->tokens = both[0].n;
    }
    return rc;
}

/* The prompts p[0 .. n), which are one category. */
static int bench_category(struct bench *b, struct spec *spec, const struct prompt *p, int n,
                          struct err *e)
{
    static struct pairs t;
    struct view_spec v = {.draft_s = 0};
    double plain = 0, drafted = 0, least = 1e9, least_cpu = 1e9; /* of one prompt */
    int tokens = 0, rc = 0;
    json_t *each = json_array();
    const struct engine_counters before = engine_counters(b->g);
    for (int i = 0; i < n && rc == 0; i++) {
        struct view_spec own = {.draft_s = 0};
        int32_t first = 0;
        int base = -1;
        rc = prompt_start(b, &p[i], &base, &first, e);
        for (int rep = 0; rep < b->reps && rc == 0; rep++) {
            rc = answer_pair(b, spec, &p[i], base, first, rep, &t, &own, e);
        }
        engine_seq_close(b->g, base);
        if (rc < 0) {
            break;
        }
        const double clocked = bench_median(t.clock, b->reps);
        const double cpu = bench_median(t.cpu, b->reps);
        tokens += t.tokens;
        plain += bench_median(t.plain, b->reps);
        drafted += bench_median(t.drafted, b->reps);
        least = clocked < least ? clocked : least;
        least_cpu = cpu < least_cpu ? cpu : least_cpu;
        view_spec_add(&v, &own);
        json_array_append_new(each, json_pack("{s:i, s:f, s:f, s:f}", "tokens", t.tokens,
                                              "tokens_per_round", view_spec_per_round(&own),
                                              "speed_up", clocked, "cpu_speed_up", cpu));
    }
    if (rc < 0) {
        json_decref(each);
        return rc;
    }
    const struct engine_counters after = engine_counters(b->g);
    json_t *o = json_pack(
        "{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:I, s:I}", "what", "spec", "category", p->category,
        "tokens", tokens, "tokens_per_round", view_spec_per_round(&v), "tok_s_off", tokens / plain,
        "tok_s", tokens / drafted, "speed_up", plain / drafted, "drafted",
        (json_int_t)view_spec_drafted(&v), "accepted", (json_int_t)view_spec_accepted(&v));
    json_object_set_new(o, "least_speed_up", json_real(least));
    json_object_set_new(o, "least_cpu_speed_up", json_real(least_cpu));
    json_object_set_new(o, "prompts", each);
    const uint64_t made = after.captured - before.captured;
    json_object_set_new(o, "graphs_made", json_integer((json_int_t)made));
    const uint64_t compared = after.compared - before.compared;
    const uint64_t differ = after.differ - before.differ;
    if (compared > 0) {
        json_object_set_new(o, "heads_compared", json_integer((json_int_t)compared));
        json_object_set_new(o, "heads_differ", json_integer((json_int_t)differ));
    }
    if (!b->json) {
        printf("spec     %-8s %5d tokens  %5.2f a round  %8.1f tok/s  %8.1f without drafts  %.2fx, "
               "at least %.2fx; by processor time at least %.2fx\n",
               p->category, tokens, view_spec_per_round(&v), tokens / drafted, tokens / plain,
               plain / drafted, least, least_cpu);
        if (after.graphs > before.graphs) {
            printf("spec     %-8s %" PRIu64 " graphs replayed, %" PRIu64 " made for it\n",
                   p->category, after.graphs - before.graphs, made);
        }
        if (compared > 0) {
            printf("spec     %-8s the fast head differs in %" PRIu64 " of %" PRIu64
                   " rows asked of both, %.1f %%\n",
                   p->category, differ, compared, 100.0 * (double)differ / (double)compared);
        }
        fflush(stdout);
    }
    bench_add(b, o);
    return 0;
}

int bench_prompts(struct bench *b, const struct conf *cf, struct err *e)
{
    const char *path = conf_str(cf, "prompts");
    const struct spec_opts o = {.mode = (enum spec_mode)spec_mode_of(conf_str(cf, "spec")),
                                .draft = (int)conf_int(cf, "draft", 0)};
    struct prompts p = {.n = 0};
    struct spec spec;
    if (!path) {
        return err_set(e, QE_USAGE,
                       "--what spec needs --prompts FILE, or --accept P to measure without any");
    }
    int rc = spec_init(&spec, &o, b->g, e);
    rc = rc < 0 ? rc : read_prompts(path, engine_info(b->g)->vocab_used, &p, e);
    for (int i = 0; i < p.n && rc == 0;) {
        int end = i + 1;
        while (end < p.n && strcmp(p.v[end].category, p.v[i].category) == 0) {
            end++;
        }
        rc = bench_category(b, &spec, &p.v[i], end - i, e);
        i = end;
    }
    prompts_free(&p);
    return rc;
}
