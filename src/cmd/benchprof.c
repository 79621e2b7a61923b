/* quasar bench --what profile: a pass by part, each beside what the memory or the matrix
 * units would allow. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cmd/bench.h"

/* Milliseconds that a part takes at least by the figures of this run; negative: not to be
 * said. */
static double bound_of(const struct bench *b, const struct engine_profile *p, int part)
{
    const double bytes = p->part[part].bytes, flops = p->part[part].flops;
    if (bytes <= 0 || (flops > 0 && p->peak <= 0)) {
        return -1;
    }
    const double gb_s = p->part[part].both ? b->bw.copy : b->bw.read;
    const double memory = bytes / 1e6 / gb_s;
    return flops > 0 ? fmax(memory, 1e3 * flops / p->peak) : memory;
}

/* Of all that could be gained, the largest piece: what a part takes beyond its bound, or a
 * gap. */
static int most_to_gain(const struct bench *b, const struct engine_profile *p, double *gain)
{
    int best = -1;
    *gain = 0;
    for (int i = 0; i < EP_COUNT; i++) {
        const bool gap = i >= EP_LAUNCH_GAPS;
        const double bound = gap ? 0 : bound_of(b, p, i);
        if (bound >= 0 && p->part[i].ms - bound > *gain) {
            *gain = p->part[i].ms - bound;
            best = i;
        }
    }
    return best;
}

static json_t *real_or_null(bool there, double v)
{
    return there ? json_real(v) : json_null();
}

static json_t *parts_json(const struct bench *b, const struct engine_profile *p)
{
    json_t *a = json_array();
    for (int i = 0; i < EP_COUNT; i++) {
        const double ms = p->part[i].ms, bound = bound_of(b, p, i);
        json_array_append_new(a, json_pack("{s:s, s:f, s:f, s:f, s:f, s:o, s:o}", "part",
                                           engine_part_name((enum engine_part)i), "ms", ms, "share",
                                           ms / p->ms, "bytes", p->part[i].bytes, "flops",
                                           p->part[i].flops, "bound_ms",
                                           real_or_null(bound >= 0, bound), "fraction_of_bound",
                                           real_or_null(bound >= 0 && ms > 0, bound / ms)));
    }
    return a;
}

static void print_parts(const struct bench *b, const struct engine_profile *p)
{
    for (int i = 0; i < EP_COUNT; i++) {
        const double ms = p->part[i].ms, bound = bound_of(b, p, i);
        printf("  %-12s %10.3f ms  %5.1f %%", engine_part_name((enum engine_part)i), ms,
               100 * ms / p->ms);
        if (bound >= 0 && ms > 0) {
            printf("  bound %10.3f ms  reached %3.0f %%", bound, 100 * bound / ms);
        }
        printf("\n");
    }
    double gain = 0;
    const int best = most_to_gain(b, p, &gain);
    if (best >= 0) {
        printf("  most to gain: %s, %.3f ms of %.3f\n", engine_part_name((enum engine_part)best),
               gain, p->ms);
    }
    fflush(stdout);
}

/* n: 0 for a step of one row. */
static void report(struct bench *b, int depth, int n, const struct engine_profile *p)
{
    double gain = 0;
    const int best = most_to_gain(b, p, &gain);
    bench_add(
        b, json_pack("{s:s, s:s, s:i, s:o, s:f, s:o, s:o, s:s?, s:f}", "what", "profile", "pass",
                     n > 0 ? "prefill" : "decode", "depth", depth, "prompt_tokens",
                     n > 0 ? json_integer(n) : json_null(), "ms", p->ms, "parts", parts_json(b, p),
                     "peak_flops", real_or_null(p->peak > 0, p->peak), "most_to_gain",
                     best >= 0 ? engine_part_name((enum engine_part)best) : NULL, "gain_ms", gain));
    if (b->json) {
        return;
    }
    if (n > 0) {
        printf("profile  prefill of %d tokens behind %d: %.3f ms\n", n, depth, p->ms);
    } else {
        printf("profile  decode at depth %d: %.3f ms a step\n", depth, p->ms);
    }
    print_parts(b, p);
}

int bench_profile_step(struct bench *b, int depth, struct err *e)
{
    enum { STEPS = 8, MOST = 60 }; /* of each repetition; of all: the window has room for more */
    const int steps = b->reps * STEPS < MOST ? b->reps * STEPS : MOST;
    struct engine_profile p;
    int base = -1, seq = -1;
    int rc = bench_fill(b, depth, &base, e);
    rc = rc < 0 ? rc : engine_seq_open(b->g, &seq, e);
    rc = rc < 0 ? rc : engine_seq_fork(b->g, seq, base, e);
    rc = rc < 0 ? rc : engine_profile_step(b->g, &seq, 1, steps, &p, e);
    engine_seq_close(b->g, base);
    engine_seq_close(b->g, seq);
    if (rc == 0) {
        report(b, depth, 0, &p);
    }
    return rc;
}

int bench_profile_prompt(struct bench *b, int n, struct err *e)
{
    enum { TOKENS = 5 * 8192 }; /* of all repetitions of long prompts */
    const int most = n < TOKENS ? TOKENS / n : 1, reps = b->reps < most ? b->reps : most;
    struct engine_profile p;
    int base = -1, seq = -1;
    int32_t *ids = mem_array((size_t)n, sizeof *ids);
    for (int i = 0; i < n; i++) {
        ids[i] = bench_random_id(b);
    }
    int rc = engine_seq_open(b->g, &base, e);
    rc = rc < 0 ? rc : engine_seq_open(b->g, &seq, e);
    rc = rc < 0 ? rc : engine_profile_prompt(b->g, base, seq, ids, n, reps, &p, e);
    free(ids);
    engine_seq_close(b->g, base);
    engine_seq_close(b->g, seq);
    if (rc == 0) {
        report(b, 0, n, &p);
    }
    return rc;
}
