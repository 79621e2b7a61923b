/* quasar bench: speed of decode and prefill at given depths and widths, as
 * medians, beside what the memory gives in the same run. Text ids are random. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/philox.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "cmd/memplan.h"
#include "cmd/model.h"
#include "cmd/startup.h"
#include "cmd/synth.h"
#include "kernels/backend.h"

#define MAX_LIST     32
#define MAX_STEPS    64
#define WANT_SECONDS 0.4  /* of decoding per repetition */
#define MADE_UP_FROM 2048 /* deeper contexts are filled with random numbers */
#define DRAFTS       4
#define SPEC_CTX     16384 /* for prompts, and steps of 16 rows */

struct list {
    int v[MAX_LIST];
    int n;
};

static int parse_list(const struct conf *cf, const char *name, int lo, int hi, struct list *out,
                      struct err *e)
{
    const char *p = conf_str(cf, name);
    out->n = 0;
    while (*p) {
        char *end = NULL;
        long v = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || v < lo || v > hi) {
            return err_set(e, QE_USAGE, "--%s: \"%.20s\" is not a number from %d to %d", name, p,
                           lo, hi);
        }
        if (out->n == MAX_LIST) {
            return err_set(e, QE_USAGE, "--%s: more than %d numbers", name, MAX_LIST);
        }
        out->v[out->n++] = (int)v;
        p = *end ? end + 1 : end;
    }
    return out->n > 0 ? 0 : err_set(e, QE_USAGE, "--%s is empty", name);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double bench_since(int64_t start)
{
    return clock_seconds(clock_now(clock_real()) - start);
}

int32_t bench_random_id(struct bench *b)
{
    uint32_t w = philox_word(1, b->drawn++, PHILOX_TARGET, 0);
    return (int32_t)(w % (uint32_t)engine_info(b->g)->vocab_used);
}

int bench_fill(struct bench *b, int depth, int *seq, struct err *e)
{
    int rc = engine_seq_open(b->g, seq, e);
    if (rc < 0 || depth == 0) {
        return rc;
    }
    if (depth >= MADE_UP_FROM) {
        return engine_seq_fill(b->g, *seq, depth, e);
    }
    int32_t *ids = mem_array((size_t)depth, sizeof *ids);
    for (int i = 0; i < depth; i++) {
        ids[i] = bench_random_id(b);
    }
    struct engine_prefill p = {.seq = *seq, .tokens = ids, .n = depth};
    rc = engine_prefill(b->g, &p, e);
    free(ids);
    return rc;
}

int bench_step(struct bench *b, const int *seqs, int32_t *ids, int rows, struct err *e)
{
    struct engine_draw d[BE_MAX_ROWS];
    int out[BE_MAX_ROWS];
    for (int i = 0; i < rows; i++) {
        d[i] = (struct engine_draw){.top_p = 1};
        out[i] = i;
    }
    int rc = engine_decode(b->g, seqs, ids, rows, e);
    return rc == 0 ? engine_sample(b->g, out, d, rows, ids, e) : rc;
}

void bench_add(struct bench *b, json_t *o)
{
    json_object_set_new(o, "read_gb_s", json_real(b->bw.read));
    json_object_set_new(o, "copy_gb_s", json_real(b->bw.copy));
    json_array_append_new(b->results, o);
}

/* Times steps of rows sequences that all start as copies of base, or of as many rows
 * of one. */
static int time_decode(struct bench *b, int base, const int *seqs, int rows, double *ms,
                       double *launches, struct err *e)
{
    double t[BENCH_REPS];
    int32_t ids[16];
    int steps = 4, rc = 0;
    uint64_t done = 0, kernels = 0;
    for (int rep = -1; rep < b->reps && rc == 0; rep++) { /* the first warms up */
        for (int i = 0; i < rows && rc == 0; i++) {
            rc = i > 0 && b->one_seq ? 0 : engine_seq_fork(b->g, seqs[i], base, e);
            ids[i] = bench_random_id(b);
        }
        if (rc == 0) { /* pages of its own, whatever was shared */
            rc = bench_step(b, seqs, ids, rows, e);
        }
        const uint64_t before = engine_counters(b->g).kernels;
        int64_t start = clock_now(clock_real());
        for (int k = 0; k < steps && rc == 0; k++) {
            rc = bench_step(b, seqs, ids, rows, e);
        }
        double each = bench_since(start) / steps;
        if (rep < 0) {
            steps = (int)(WANT_SECONDS / (each > 1e-9 ? each : 1e-9));
            steps = steps < 4 ? 4 : steps > MAX_STEPS ? MAX_STEPS : steps;
        } else {
            t[rep] = 1e3 * each;
            kernels += engine_counters(b->g).kernels - before;
            done += (uint64_t)steps;
        }
    }
    *ms = rc == 0 ? bench_median(t, b->reps) : 0;
    *launches = done > 0 ? (double)kernels / (double)done : 0;
    return rc;
}

/* The launches of a step, or null where nothing is launched. */
static json_t *launches_or_null(double launches)
{
    return launches > 0 ? json_real(launches) : json_null();
}

static int bench_decode(struct bench *b, int depth, int rows, struct err *e)
{
    int base = -1, seqs[16], opened = 0;
    const int own = b->one_seq ? 1 : rows;
    int rc = bench_fill(b, depth, &base, e);
    while (rc == 0 && opened < own) {
        rc = engine_seq_open(b->g, &seqs[opened], e);
        opened += rc == 0;
    }
    for (int i = own; i < rows; i++) {
        seqs[i] = seqs[0];
    }
    double ms = 0, launches = 0;
    if (rc == 0) {
        rc = time_decode(b, base, seqs, rows, &ms, &launches, e);
    }
    engine_seq_close(b->g, base);
    for (int i = 0; i < opened; i++) {
        engine_seq_close(b->g, seqs[i]);
    }
    if (rc < 0) {
        return rc;
    }
    uint64_t bytes =
        engine_bytes_per_step(b->g) + (uint64_t)own * engine_bytes_per_row(b->g, depth);
    double gb_s = (double)bytes / 1e6 / ms;
    json_t *o = json_pack("{s:s, s:i, s:i, s:b, s:f, s:f, s:I, s:f, s:f, s:o}", "what", "decode",
                          "depth", depth, "rows", rows, "one_sequence", b->one_seq, "tok_s",
                          1e3 * rows / ms, "ms_per_step", ms, "bytes_per_step", (json_int_t)bytes,
                          "gb_s", gb_s, "fraction_of_read_bandwidth", gb_s / b->bw.read,
                          "launches_per_step", launches_or_null(launches));
    bench_add(b, o);
    if (!b->json) {
        printf(
            "decode   depth %6d  rows %2d%s  %9.1f tok/s  %9.3f ms/step  %6.1f GB/s  %3.0f %% of "
            "reading",
            depth, rows, b->one_seq && rows > 1 ? " of one" : "", 1e3 * rows / ms, ms, gb_s,
            100 * gb_s / b->bw.read);
        printf(launches > 0 ? "  %.0f launches\n" : "\n", launches);
        fflush(stdout);
    }
    return 0;
}

/* What the cache takes, and what reading it takes: a step at this depth less one at depth
 * 0, beside the bytes of keys and values that it read. */
static int bench_kv(struct bench *b, int depth, struct err *e)
{
    const struct engine_plan *m = &engine_info(b->g)->memory;
    const uint64_t token = m->page / BE_PAGE;
    const uint64_t bytes = engine_bytes_per_row(b->g, depth) - engine_bytes_per_row(b->g, 0);
    double ms[2] = {0}, launches = 0;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        int seq[2] = {-1, -1};
        rc = bench_fill(b, i ? depth : 0, &seq[0], e);
        rc = rc < 0 ? rc : engine_seq_open(b->g, &seq[1], e);
        rc = rc < 0 ? rc : time_decode(b, seq[0], &seq[1], 1, &ms[i], &launches, e);
        engine_seq_close(b->g, seq[0]);
        engine_seq_close(b->g, seq[1]);
    }
    if (rc < 0) {
        return rc;
    }
    const double more = ms[1] - ms[0], gb_s = more > 0 ? (double)bytes / 1e6 / more : 0;
    bench_add(b, json_pack("{s:s, s:s, s:i, s:I, s:I, s:i, s:f, s:f, s:f, s:I, s:f, s:f}", "what",
                           "kv", "kv_format", m->kv_format, "depth", depth, "token_bytes",
                           (json_int_t)token, "kv_bytes", (json_int_t)m->kv, "kv_tokens", m->tokens,
                           "ms_per_step", ms[1], "ms_at_0", ms[0], "kv_ms", more, "kv_read_bytes",
                           (json_int_t)bytes, "gb_s", gb_s, "fraction_of_read_bandwidth",
                           gb_s / b->bw.read));
    if (!b->json) {
        printf("kv       depth %6d  %s: %d bytes a token, %d tokens in %.2f GB; %9.3f ms/step, of "
               "which %.3f for %.1f MB of keys and values  %6.1f GB/s  %3.0f %% of reading\n",
               depth, m->kv_format, (int)token, m->tokens, (double)m->kv / 1e9, ms[1], more,
               (double)bytes / 1e6, gb_s, 100 * gb_s / b->bw.read);
        fflush(stdout);
    }
    return 0;
}

/* Chained drafts of the MTP layer; the time of one. */
static int bench_draft(struct bench *b, int depth, struct err *e)
{
    int seq = -1;
    double t[BENCH_REPS];
    int32_t ids[DRAFTS];
    const int cap = engine_info(b->g)->max_draft, drafts = cap < DRAFTS ? cap : DRAFTS;
    const uint64_t bytes = engine_bytes_per_draft(b->g);
    if (bytes == 0) {
        return err_set(e, QE_UNSUPPORTED,
                       "the model has no MTP layer to draft with, or --max-draft 0 leaves it out");
    }
    int rc = bench_fill(b, depth > 0 ? depth : 1, &seq, e);
    for (int rep = -2; rep < b->reps && rc == 0; rep++) { /* the first two warm up */
        int64_t start = clock_now(clock_real());
        int done = 0;
        for (int k = 0; k < MAX_STEPS / DRAFTS && rc == 0; k++, done += drafts) {
            rc = engine_mtp_draft(b->g, seq, bench_random_id(b), drafts, ids, e);
        }
        if (rep >= 0) {
            t[rep] = 1e3 * bench_since(start) / done;
        }
    }
    engine_seq_close(b->g, seq);
    if (rc < 0) {
        return rc;
    }
    const double ms = bench_median(t, b->reps), gb_s = (double)bytes / 1e6 / ms;
    bench_add(b, json_pack("{s:s, s:i, s:f, s:I, s:f, s:f}", "what", "draft", "depth", depth,
                           "ms_per_step", ms, "bytes_per_step", (json_int_t)bytes, "gb_s", gb_s,
                           "fraction_of_read_bandwidth", gb_s / b->bw.read));
    if (!b->json) {
        printf("draft    depth %6d  %9.3f ms/draft  %6.1f GB/s  %3.0f %% of reading\n", depth, ms,
               gb_s, 100 * gb_s / b->bw.read);
        fflush(stdout);
    }
    return 0;
}

static int bench_prefill(struct bench *b, const char *what, int depth, int n, struct err *e)
{
    int base = -1, seq = -1;
    int rc = bench_fill(b, depth, &base, e);
    if (rc == 0) {
        rc = engine_seq_open(b->g, &seq, e);
    }
    int32_t *ids = mem_array((size_t)n, sizeof *ids);
    for (int i = 0; i < n; i++) {
        ids[i] = bench_random_id(b);
    }
    double t[BENCH_REPS];
    int32_t last = n - 1, id = 0;
    int out = 0;
    const struct engine_draw greedy = {.top_p = 1};
    for (int rep = -1; rep < b->reps && rc == 0; rep++) {
        rc = engine_seq_fork(b->g, seq, base, e);
        struct engine_prefill p = {.seq = seq, .tokens = ids, .n = n, .want = &last, .n_want = 1};
        int64_t start = clock_now(clock_real());
        if (rc == 0) {
            rc = engine_prefill(b->g, &p, e);
        }
        if (rc == 0) {
            rc = engine_sample(b->g, &out, &greedy, 1, &id, e);
        }
        if (rep >= 0) {
            t[rep] = 1e3 * bench_since(start);
        }
    }
    free(ids);
    engine_seq_close(b->g, base);
    engine_seq_close(b->g, seq);
    if (rc < 0) {
        return rc;
    }
    double ms = bench_median(t, b->reps);
    bench_add(b, json_pack("{s:s, s:i, s:i, s:f, s:f}", "what", what, "depth", depth,
                           "prompt_tokens", n, "tok_s", 1e3 * n / ms, "ttft_ms", ms));
    if (!b->json) {
        printf("%-8s depth %6d  %6d tokens  %9.1f tok/s  %9.2f ms to the first token\n", what,
               depth, n, 1e3 * n / ms, ms);
        fflush(stdout);
    }
    return 0;
}

enum what {
    W_DECODE,
    W_PREFILL,
    W_DRAFT,
    W_TTFT,
    W_START,
    W_VERIFY,
    W_SPEC,
    W_RESTORE,
    W_PROFILE,
    W_KV,
    W_POOL,
    W_USERS,
    W_COUNT
};

static const char *const what_names[W_COUNT] = {"decode",  "prefill", "draft", "ttft",
                                                "start",   "verify",  "spec",  "restore",
                                                "profile", "kv",      "pool",  "users"};
#define WHATS "decode, prefill, draft, ttft, start, verify, spec, restore, profile, kv, pool, users"

struct plan {
    bool what[W_COUNT], one_seq;
    struct list depth, prompt, rows, users;
};

static int read_plan(const struct conf *cf, struct plan *p, struct err *e)
{
    const char *what = conf_str(cf, "what");
    if (!*what) {
        return err_set(e, QE_USAGE, "--what is empty: it lists " WHATS);
    }
    while (*what) {
        const size_t n = strcspn(what, ",");
        int k = 0;
        while (k < W_COUNT && (strlen(what_names[k]) != n || memcmp(what, what_names[k], n) != 0)) {
            k++;
        }
        if (k == W_COUNT) {
            return err_set(e, QE_USAGE, "--what: \"%.*s\" is none of " WHATS, (int)n, what);
        }
        p->what[k] = true;
        what += n + (what[n] == ',');
    }
    p->one_seq = conf_flag(cf, "one-sequence");
    int rc = parse_list(cf, "depth", 0, 1 << 20, &p->depth, e);
    if (rc == 0) {
        rc = parse_list(cf, "prompt-tokens", 1, 1 << 20, &p->prompt, e);
    }
    if (rc == 0) {
        rc = parse_list(cf, "rows", 1, BE_MAX_ROWS, &p->rows, e);
    }
    return rc == 0 ? parse_list(cf, "users", 1, BE_MAX_ROWS, &p->users, e) : rc;
}

static int largest(const struct list *l)
{
    int max = 0;
    for (int i = 0; i < l->n; i++) {
        max = l->v[i] > max ? l->v[i] : max;
    }
    return max;
}

/* The window that the plan needs: steps may take 16 rows each. */
static int plan_ctx(const struct plan *p)
{
    const int rows = p->one_seq ? largest(&p->rows) : 1;
    const int steps = (MAX_STEPS + 1) * rows;
    const bool prompts = p->what[W_PREFILL] || p->what[W_PROFILE] || p->what[W_USERS];
    const int prompt = prompts ? largest(&p->prompt) : 0;
    if (p->what[W_USERS]) {
        return largest(&p->depth) + BENCH_USERS_CTX + prompt;
    }
    if (p->what[W_VERIFY] || p->what[W_SPEC]) {
        return largest(&p->depth) + SPEC_CTX;
    }
    if (p->what[W_RESTORE]) { /* it decodes as long as a state is being written */
        return largest(&p->depth) + BENCH_RESTORE_CTX;
    }
    return largest(&p->depth) + (prompt > steps ? prompt : steps) + 64;
}

static int measure_users(struct bench *b, const struct conf *cf, const struct plan *p, int depth,
                         struct err *e)
{
    const struct bench_users o = {.accept = conf_num(cf, "accept", -1),
                                  .prompts = p->prompt.v,
                                  .n_prompts = conf_is_set(cf, "prompt-tokens") ? p->prompt.n : 0};
    struct bench_users first = {0};
    int rc = 0;
    for (int i = 0; i < p->users.n && rc == 0; i++) {
        rc = bench_users(b, &o, depth, p->users.v[i], &first, e);
    }
    return rc;
}

static int measure(struct bench *b, const struct conf *cf, const struct plan *p, struct err *e)
{
    int rc = 0;
    const bool scripted = conf_str(cf, "accept") != NULL;
    for (int d = 0; d < p->depth.n && rc == 0; d++) {
        const int depth = p->depth.v[d];
        for (int i = 0; p->what[W_DECODE] && i < p->rows.n && rc == 0; i++) {
            rc = bench_decode(b, depth, p->rows.v[i], e);
        }
        if (p->what[W_KV] && rc == 0) {
            rc = bench_kv(b, depth, e);
        }
        for (int i = 0; p->what[W_POOL] && i < p->rows.n && rc == 0; i++) {
            rc = bench_pool(b, depth, p->rows.v[i], e);
        }
        if (p->what[W_USERS] && rc == 0) {
            rc = measure_users(b, cf, p, depth, e);
        }
        for (int i = 0; p->what[W_VERIFY] && i < p->rows.n && rc == 0; i++) {
            rc = bench_verify(b, depth, p->rows.v[i], e);
        }
        if (p->what[W_RESTORE] && rc == 0) {
            rc = bench_restore(b, depth, e);
        }
        if (p->what[W_PROFILE] && rc == 0) {
            rc = bench_profile_step(b, depth, e);
        }
        if (p->what[W_SPEC] && scripted && rc == 0) {
            rc = bench_scripted(b, cf, depth, e);
        }
        if (p->what[W_DRAFT] && rc == 0) {
            rc = bench_draft(b, depth, e);
        }
        if (p->what[W_TTFT] && rc == 0) {
            rc = bench_prefill(b, "ttft", depth, 64, e);
        }
        for (int i = 0; p->what[W_PREFILL] && i < p->prompt.n && rc == 0; i++) {
            rc = bench_prefill(b, "prefill", depth, p->prompt.v[i], e);
        }
    }
    for (int i = 0; p->what[W_PROFILE] && i < p->prompt.n && rc == 0; i++) {
        rc = bench_profile_prompt(b, p->prompt.v[i], e);
    }
    if (p->what[W_SPEC] && !scripted && rc == 0) {
        rc = bench_prompts(b, cf, e);
    }
    return rc;
}

/* start: what has been measured of the start, taken over; NULL: nothing. */
static int run_plan(const struct conf *cf, struct engine *g, const struct plan *p, json_t *start,
                    struct err *e)
{
    const struct engine_info *info = engine_info(g);
    uint64_t bytes = engine_bytes_per_step(g);
    size_t block = bytes < ((uint64_t)1 << 30) ? (size_t)bytes : (size_t)1 << 30;
    struct bench b = {.g = g,
                      .reps = (int)conf_int(cf, "reps", 5),
                      .json = conf_flag(cf, "json"),
                      .one_seq = p->one_seq};
    int rc = engine_bandwidth(g, (size_t)2 << 30, &b.bw.read, &b.bw.copy, e);
    if (rc == QE_UNSUPPORTED) {
        b.bw = bandwidth_measure(block, (int)conf_int(cf, "threads", 0));
    } else if (rc < 0) {
        json_decref(start);
        return rc;
    }
    b.results = json_array();
    if (!b.json) {
        printf("%s %s on %s: %s; %.1f MB of weights per step; memory %.1f GB/s reading, %.1f "
               "copying\n",
               info->model_name, info->tier, info->backend, info->device, (double)bytes / 1e6,
               b.bw.read, b.bw.copy);
        if (info->plan) {
            printf("%s\n", info->plan);
        }
    }
    if (start) {
        if (!b.json) {
            startup_print(start);
        }
        bench_add(&b, start);
    }
    rc = measure(&b, cf, p, e);
    if (rc == 0 && b.json) {
        json_print_take(json_pack("{s:s, s:s, s:s, s:s, s:s?, s:o, s:i, s:f, s:f, s:O}", "model",
                                  info->model_name, "tier", info->tier, "backend", info->backend,
                                  "device", info->device, "plan", info->plan, "memory",
                                  memplan_json(&info->memory), "reps", b.reps, "read_gb_s",
                                  b.bw.read, "copy_gb_s", b.bw.copy, "results", b.results));
    }
    json_decref(b.results);
    return rc;
}

/* Options that have no meaning beside or without --synthetic. */
static int check_synthetic(const struct conf *cf, struct err *e)
{
    const char *path = conf_str(cf, "write");
    struct stat st;
    if (!conf_str(cf, "synthetic")) {
        return path || conf_str(cf, "tier")
                   ? err_set(e, QE_USAGE, "--%s goes with --synthetic", path ? "write" : "tier")
                   : 0;
    }
    if (conf_origin_of(cf, "model") == CONF_ARG) {
        return err_set(e, QE_USAGE, "--model and --synthetic cannot be given together");
    }
    if (path && lstat(path, &st) == 0) {
        return err_set(e, QE_USAGE, "%s exists already: choose another name", path);
    }
    return 0;
}

static int bench_synthetic(const struct conf *cf, const struct plan *p,
                           const struct engine_opts *tweak, struct err *e)
{
    const char *tier = conf_str(cf, "tier"), *path = conf_str(cf, "write");
    struct synth *s = NULL;
    struct engine *g = NULL;
    struct engine_source src;
    struct engine_opts o = {0};
    char note[256] = "";
    int rc = model_engine_opts(cf, &o, note, e);
    if (rc == 0) {
        rc = synth_create(conf_str(cf, "synthetic"), tier ? tier : "default", &s, e);
    }
    if (rc == 0 && path) {
        rc = synth_write(s, path, e);
        goto out;
    }
    if (rc == 0) {
        rc = synth_fill(s, o.backend == EB_CUDA, &src, e);
    }
    model_apply_tweak(&o, tweak);
    if (rc == 0) {
        rc = engine_open_source(&src, &o, &g, e);
    }
    if (rc == 0) {
        rc = run_plan(cf, g, p, NULL, e);
    }
out:
    engine_close(g);
    synth_free(s);
    return rc;
}

/* Rows of one sequence are capped by two options. */
static int check_width(const struct conf *cf, const struct plan *p, struct err *e)
{
    const int drafts = (int)conf_int(cf, "max-draft", ENGINE_MAX_DRAFT);
    const struct engine_opts o = {.max_draft = drafts > 0 ? drafts : -1,
                                  .verify_width = (int)conf_int(cf, "verify-width", 0)};
    const int width = engine_width_of(&o), rows = largest(&p->rows);
    return !p->one_seq || rows <= width
               ? 0
               : err_set(e, QE_USAGE,
                         "--rows %d of one sequence are more than the verify width of %d "
                         "(--verify-width, --max-draft)",
                         rows, width);
}

static int bench_file(const struct conf *cf, const struct plan *p, const struct engine_opts *tweak,
                      struct err *e)
{
    struct model m = {0};
    json_t *start = NULL;
    bool others = false;
    for (int k = 0; k < W_COUNT; k++) {
        others = others || (p->what[k] && k != W_START);
    }
    const double began = startup_age();
    int rc = model_open(cf, &m, e);
    const double opened = startup_age();
    if (rc == 0) { /* a start by itself is that of any command */
        rc = model_start(cf, &m, others ? tweak : NULL, e);
    }
    if (rc == 0 && p->what[W_START]) {
        const struct startup s = {.began = began,
                                  .opened = opened,
                                  .g = m.engine,
                                  .before = &m.phases,
                                  .file = container_map(m.file),
                                  .file_bytes = container_file_size(m.file),
                                  .threads = (int)conf_int(cf, "threads", 0)};
        rc = startup_measure(&s, &start, e);
    }
    if (rc == 0) {
        rc = run_plan(cf, m.engine, p, start, e);
    }
    model_close(&m);
    return rc;
}

int cmd_bench(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 0) {
        return err_set(e, QE_USAGE,
                       "quasar bench takes no argument \"%s\" (the model goes with -m)", args[0]);
    }
    struct plan p = {0};
    int rc = read_plan(cf, &p, e);
    if (rc < 0) {
        return rc;
    }
    rc = check_synthetic(cf, e);
    if (rc < 0) {
        return rc;
    }
    if (p.what[W_START] && conf_str(cf, "synthetic")) {
        return err_set(
            e, QE_USAGE,
            "--what start wants a model file: make one with --write, and name it with -m");
    }
    rc = check_width(cf, &p, e);
    if (rc < 0) {
        return rc;
    }
    struct engine_opts tweak = {.slots = (p.one_seq ? 1 : largest(&p.rows)) + 1};
    if (p.what[W_SPEC] && tweak.slots < 3) { /* a prompt and two answers to it */
        tweak.slots = 3;
    }
    if (p.what[W_USERS] && tweak.slots < largest(&p.users) + 1) {
        tweak.slots = largest(&p.users) + 1; /* and one whose prompt comes */
    }
    if (conf_int(cf, "ctx", 0) == 0) {
        tweak.ctx = plan_ctx(&p);
    }
    if (conf_str(cf, "synthetic")) {
        return bench_synthetic(cf, &p, &tweak, e);
    }
    return bench_file(cf, &p, &tweak, e);
}
