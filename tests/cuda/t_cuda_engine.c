/*
 * The whole engine on the CUDA backend, in the emulator and on a GPU: logits beside
 * the CPU backend's, and bit equality wherever only the company, the cut, the place or
 * the way of launching differs. QUASAR_CUDA_PATH=sm80|sm90 picks the kernels.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/rules.h"
#include "kernels/backend.h"
#include "kernels/sample.h"
#include "tests/cuda/engtest.h"
#include "tests/cuda/replaytest.h"
#include "tests/cuda/spectest.h"
#include "tests/cuda/testmodel.h"

#ifdef SANITIZED
enum { QUICK = 1 };
#else
enum { QUICK = 0 };
#endif
enum { PROMPT = 70, STEPS = 2, WALK = 3 };

static struct testmodel *model;
static int32_t text[512];

static struct engine *open_engine(enum engine_backend backend, const struct engine_opts *tweak)
{
    struct engine_opts o = *tweak;
    o.backend = backend;
    o.threads = 2;
    o.ctx = 1024;
    o.slots = o.slots ? o.slots : 6;
    o.vocab_used = TM_USED;
    o.chunk = o.chunk ? o.chunk : 128;
    o.cuda_path = wanted_path();
    struct engine *g = NULL;
    struct err e = ERR_INIT;
    int rc = engine_open_source(testmodel_source(model), &o, &g, &e);
    need_device(rc, &e);
    return g;
}

static struct engine *open_cuda(const struct engine_opts *tweak)
{
    return open_engine(EB_CUDA, tweak);
}

/* RMS difference in parts of the standard deviation of want. */
static double distance(const float *got, const float *want)
{
    double sum = 0, square = 0, d = 0;
    for (int i = 0; i < TM_USED; i++) {
        sum += (double)want[i];
        square += (double)want[i] * (double)want[i];
        d += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
    }
    const double mean = sum / TM_USED;
    return sqrt(d / TM_USED) / sqrt(square / TM_USED - mean * mean);
}

static bool same(const float *a, const float *b, int rows)
{
    return memcmp(a, b, (size_t)rows * TM_VOCAB * sizeof *a) == 0;
}

/* ---- beside the CPU ---- */

static void beside_the_cpu(enum engine_kv kv, double limit, int prompt)
{
    struct engine_opts o = {.kv = kv, .verify = true};
    /* fp8 beside fp16; of packed formats both store the same codes. */
    struct engine_opts plain = {.kv = kv > EKV_F8 ? kv : EKV_F16};
    struct engine *gpu = open_engine(EB_CUDA, &o), *cpu = open_engine(EB_CPU, &plain);
    float want[TM_VOCAB], got[TM_VOCAB];
    int a = open_seq(gpu), b = open_seq(cpu);
    printf("# %s\n", engine_info(gpu)->plan);
    if (prompt == PROMPT) {
        prefill(gpu, a, text, prompt, 0, got);
        prefill(cpu, b, text, prompt, 0, want);
    }
    for (int i = 0; i < prompt && prompt < PROMPT; i++) {
        decode(gpu, &a, &text[i], 1, got);
        decode(cpu, &b, &text[i], 1, want);
    }
    double d = distance(got, want);
    ok(d < limit, "%d tokens: logits within %.4f of their deviation (limit %g)", prompt, d, limit);
    ok(got[TM_USED] == -INFINITY && got[TM_VOCAB - 1] == -INFINITY, "padding ids are -inf");
    for (int i = 0; i < STEPS; i++) {
        decode(gpu, &a, &text[prompt + i], 1, got);
        decode(cpu, &b, &text[prompt + i], 1, want);
        d = distance(got, want);
        ok(d < limit, "step %d: within %.4f", i, d);
    }
    struct err e = ERR_INIT;
    int32_t drafts[2][3];
    must(engine_mtp_draft(gpu, a, text[90], 3, drafts[0], &e), &e);
    must(engine_mtp_draft(cpu, b, text[90], 3, drafts[1], &e), &e);
    ok(drafts[0][0] == drafts[1][0], "the first draft is the CPU's (%d, %d)", drafts[0][0],
       drafts[1][0]);
    /* states */
    const size_t s_n = 6 * 128 * 128, conv_n = 3 * 1280, kv_n = (size_t)(prompt + STEPS) * 256;
    float *s[2], *conv[2], *k[2], *v[2];
    struct engine *g[2] = {gpu, cpu};
    const int seq[2] = {a, b};
    double worst[4] = {0};
    for (int i = 0; i < 2; i++) {
        s[i] = mem_array(s_n, sizeof(float));
        conv[i] = mem_array(conv_n, sizeof(float));
        k[i] = mem_array(kv_n, sizeof(float));
        v[i] = mem_array(kv_n, sizeof(float));
        must(engine_read_gdn(g[i], seq[i], 1, conv[i], s[i], &e), &e);
        must(engine_read_kv(g[i], seq[i], 3, k[i], v[i], &e), &e);
    }
    float *const *all[4] = {s, conv, k, v};
    const size_t n[4] = {s_n, conv_n, kv_n, kv_n};
    for (int i = 0; i < 4; i++) {
        double diff = 0, norm = 0;
        for (size_t j = 0; j < n[i]; j++) {
            const double x = (double)all[i][0][j], y = (double)all[i][1][j];
            diff += (x - y) * (x - y);
            norm += y * y;
        }
        worst[i] = sqrt(diff / norm);
        free(all[i][0]);
        free(all[i][1]);
    }
    ok(worst[0] < limit && worst[1] < limit && worst[2] < 10 * limit && worst[3] < 10 * limit,
       "recurrent state, convolution, keys, values: relative error %.1e %.1e %.1e %.1e", worst[0],
       worst[1], worst[2], worst[3]);
    engine_close(gpu);
    engine_close(cpu);
}

/* ---- the copy of the head ---- */

/* Drafts read the 4-bit copy, with the fast head all steps do; now and then they ask the
 * head itself and go on with the copy. */
static void heads(void)
{
    enum { N = 18 };
    struct engine_opts fast = {.kv = EKV_F16, .fast_head = true, .verify = true};
    struct engine_opts copy = {.kv = EKV_F16, .draft_head = EDH_Q4};
    struct engine *g[3] = {open_engine(EB_CUDA, &fast), open_engine(EB_CPU, &fast),
                           open_engine(EB_CUDA, &copy)};
    static float out[3][TM_VOCAB];
    int seq[3];
    int32_t first[3];
    double worst = 0, other = 1e9;
    struct err e = ERR_INIT;
    for (int k = 0; k < 3; k++) {
        seq[k] = open_seq(g[k]);
    }
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 3; k++) {
            decode(g[k], &seq[k], &text[i], 1, out[k]);
        }
        const double d = distance(out[0], out[1]), f = distance(out[2], out[1]);
        worst = d > worst ? d : worst;
        other = f < other ? f : other;
    }
    ok(worst < 0.005, "with the fast head logits are within %.4f of the CPU's", worst);
    ok(other > 0.02, "which are others than the head's (%.3f away)", other);
    const struct engine_counters a = engine_counters(g[0]), b = engine_counters(g[1]);
    ok(a.compared == 1 && b.compared == 1, "the head itself was asked for one row of %d", N);
    ok(engine_counters(g[2]).compared == 0 && !engine_info(g[2])->fast_head &&
           engine_info(g[2])->head_copy && engine_info(g[0])->fast_head,
       "and never without --fast-head");
    for (int k = 0; k < 3; k++) {
        must(engine_mtp_draft(g[k], seq[k], text[90], 1, &first[k], &e), &e);
        engine_close(g[k]);
    }
    ok(first[0] == first[1] && first[2] == first[1], "the first draft is the CPU's (%d, %d, %d)",
       first[0], first[2], first[1]);
}

/* ---- the same bits ---- */

static void fill(struct engine *g, int seq, int len)
{
    struct err e = ERR_INIT;
    must(engine_seq_fill(g, seq, len, &e), &e);
}

/* Sequences of different lengths; each one's steps alone, then together, with several
 * rows of one. */
static void company(void)
{
    enum { SEQS = 4 };
    static const int len[SEQS] = {3, 254, 600, 64};
    struct engine_opts o = {.slots = 2 * SEQS};
    struct engine *g = open_engine(EB_CUDA, &o);
    float *want = mem_array(SEQS * 2 * TM_VOCAB, sizeof *want);
    float *got = mem_array(SEQS * 2 * TM_VOCAB, sizeof *got);
    int alone[SEQS], together[SEQS];
    struct err e = ERR_INIT;
    for (int i = 0; i < SEQS; i++) {
        alone[i] = open_seq(g);
        together[i] = open_seq(g);
        fill(g, alone[i], len[i]);
        must(engine_seq_fork(g, together[i], alone[i], &e), &e);
    }
    for (int i = 0; i < SEQS; i++) {
        for (int k = 0; k < 2; k++) {
            decode(g, &alone[i], &text[100 + 2 * i + k], 1, want + (2 * i + k) * TM_VOCAB);
        }
    }
    /* two rows of each in one step, in a mixed order */
    static const int order[2 * SEQS] = {2, 0, 3, 2, 1, 0, 1, 3};
    int seqs[2 * SEQS], place[2 * SEQS], seen[SEQS] = {0};
    int32_t ids[2 * SEQS];
    for (int i = 0; i < 2 * SEQS; i++) {
        const int s = order[i];
        place[i] = 2 * s + seen[s]++;
        seqs[i] = together[s];
        ids[i] = text[100 + place[i]];
    }
    decode(g, seqs, ids, 2 * SEQS, got);
    bool good = true;
    for (int i = 0; i < 2 * SEQS; i++) {
        good = good && same(got + i * TM_VOCAB, want + place[i] * TM_VOCAB, 1);
    }
    ok(good, "8 rows of 4 sequences equal the steps alone, bit for bit");
    bool states = true;
    for (int i = 0; i < SEQS; i++) {
        size_t n[2];
        char *a = export_state(g, alone[i], &n[0]), *b = export_state(g, together[i], &n[1]);
        /* what others left in the cache's last page is not in it */
        states = states && n[0] == n[1] && memcmp(a, b, n[0]) == 0;
        free(a);
        free(b);
    }
    ok(states, "and so do their exported states, to the last byte");
    free(want);
    free(got);
    engine_close(g);
}

static int read_blob(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    (void)e;
    memcpy(dst, (const char *)ctx + at, n);
    return 0;
}

/* A state that is read by threads, in pieces of whole units. */
static int bring(struct engine *g, int seq, char *state, size_t n, int len, size_t unit)
{
    struct err e = ERR_INIT;
    const struct engine_saved b = {.size = n, .unit = unit, .read = read_blob, .ctx = state};
    struct engine_intake *k = NULL;
    int rc = engine_intake_open(g, seq, len, &b, &k, &e);
    if (rc < 0) {
        return rc;
    }
    while (!engine_intake_wait(k, 100)) {
    }
    return engine_intake_close(k, &e);
}

/* A prompt cut at 64 and 128 equals it whole; so does one resumed from an export. */
static void cuts(void)
{
    const int len = getenv("QUASAR_LONG") ? 140 : 66; /* the emulator's blocks are of 128 rows */
    struct engine_opts o = {.chunk = 192};
    struct engine *g = open_engine(EB_CUDA, &o);
    float want[TM_VOCAB], got[TM_VOCAB], next[TM_VOCAB];
    struct err e = ERR_INIT;
    int whole = open_seq(g), cut = open_seq(g), restored = open_seq(g);
    prefill(g, whole, text, len, 0, want);
    prefill(g, cut, text, 64, 0, NULL);
    size_t n = 0;
    char *state = export_state(g, cut, &n);
    must(engine_seq_import(g, restored, state, n, &e), &e);
    const int brought = open_seq(g);
    size_t again = 0;
    bool good = true;
    for (size_t unit = 100; unit < 99999; unit += 50000) { /* over a state that is there */
        good = good && bring(g, brought, state, n, 64, unit) == 0 && engine_seq_pure(g, brought);
        char *back = export_state(g, brought, &again);
        good = good && again == n && memcmp(back, state, n) == 0;
        free(back);
        decode(g, &brought, &text[64], 1, NULL);
    }
    ok(good, "a state brought by threads is the exported one");
    state[20] ^= 1;
    ok(bring(g, brought, state, n, 64, 4096) == QE_UNSUPPORTED && engine_seq_len(g, brought) == 0,
       "another model's is not");
    engine_seq_close(g, brought);
    free(state);
    prefill(g, cut, text + 64, len - 64, 64, got);
    ok(same(got, want, 1), "a prompt of %d cut at every 64: the same logits", len);
    prefill(g, restored, text + 64, len - 64, 0, got);
    ok(same(got, want, 1), "resumed from an exported state at 64: the same logits");
    decode(g, &whole, &text[len], 1, want);
    decode(g, &restored, &text[len], 1, got);
    ok(same(got, want, 1), "and the same step after it");
    must(engine_seq_fork(g, cut, whole, &e), &e);
    decode(g, &whole, &text[len + 1], 1, want);
    decode(g, &cut, &text[len + 1], 1, next);
    ok(same(next, want, 1), "a fork goes on with the same bits");
    engine_close(g);
}

/* A kept state put back into another sequence, and again after its own went on over the
 * pages that they share. */
static void kept(void)
{
    struct engine_opts o = {.slots = 3};
    struct engine *g = open_engine(EB_CUDA, &o);
    float want[2][TM_VOCAB], got[2][TM_VOCAB];
    struct err e = ERR_INIT;
    struct engine_snap *k = NULL, *pure = NULL;
    int a = open_seq(g), b = open_seq(g);
    prefill(g, a, text, 64, 0, NULL);
    must(engine_snap_take(g, a, &pure, &e), &e);
    decode(g, &a, &text[64], 1, NULL);
    int prepared = 0;
    while (engine_snap_prepare(g, 1)) {
        prepared++;
    }
    ok(prepared > 1 && !engine_snap_prepare(g, 1), "memory is prepared once");
    must(engine_snap_take(g, a, &k, &e), &e);
    ok(engine_snap_pure(pure) && !engine_snap_pure(k), "what decoding wrote is not prefill's own");
    for (int i = 0; i < 2; i++) {
        decode(g, &a, &text[65 + i], 1, want[i]);
    }
    bool good = true;
    for (int to = 0; to < 2; to++) {
        const int seq = to ? a : b;
        must(engine_snap_restore(g, seq, k, &e), &e);
        for (int i = 0; i < 2; i++) {
            decode(g, &seq, &text[65 + i], 1, got[i]);
        }
        good = good && same(got[0], want[0], 2);
    }
    ok(good, "a kept state goes on with the same bits, in either sequence");
    size_t n = 0;
    engine_seq_reset(g, a);
    prefill(g, a, text, 64, 0, NULL);
    char *blob = export_state(g, a, &n), *pieces = mem_alloc(n);
    struct engine_outlet *out = NULL;
    must(engine_outlet_open(g, pure, &out, &e), &e);
    const struct engine_saved s = engine_outlet_blob(out);
    for (size_t at = 0; at < s.size; at += 99999) {
        const size_t left = s.size - at;
        must(s.read(s.ctx, at, pieces + at, left < 99999 ? left : 99999, &e), &e);
    }
    engine_outlet_close(out);
    engine_outlet_free(out);
    ok(s.size == n && memcmp(blob, pieces, n) == 0, "what is read of it is the blob");
    free(blob);
    free(pieces);
    engine_snap_free(g, k);
    engine_snap_free(g, pure);
    engine_seq_close(g, a);
    engine_seq_close(g, b);
    ok(engine_kept(g).n == 0 && engine_kept(g).pages_free == engine_kept(g).pages,
       "all pages come back");
    engine_close(g);
}

/* The same at random cuts, everything that is left compared. */
static uint32_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525U + 1013904223U;
    return (uint32_t)((uint64_t)drawn * below >> 32);
}

static void random_cuts(void)
{
    const int n = getenv("QUASAR_LONG") ? 512 : 128, sets = getenv("QUASAR_LONG") ? 8 : 1;
    struct engine_opts o = {.slots = 4, .chunk = 128};
    struct engine *g = open_engine(EB_CUDA, &o);
    drawn = (uint32_t)text[0] + 1;
    const int wrong = cut_and_resume(g, text, n, sets, draw);
    ok(wrong == 0, "%d tokens cut at %d random sets of multiples of 64, resumed from each", n,
       sets);
    engine_close(g);
}

/* Graphs replay what single launches do: a walk of several kinds of steps. */
static void walk(struct engine *g, float *out, int32_t *ids, double *per_step)
{
    struct err e = ERR_INIT;
    int seq[2] = {open_seq(g), open_seq(g)};
    const int output[2] = {0, 1};
    const struct engine_draw draws[2] = {{.top_p = 1}, {.top_p = 1}};
    fill(g, seq[0], 5);
    fill(g, seq[1], 300);
    for (int i = 0; i < WALK; i++) {
        must(engine_decode(g, seq, &text[30 + 2 * i], 2, &e), &e);
        must(engine_sample(g, output, draws, 2, ids + 2 * i, &e), &e);
        must(engine_logits(g, 1, out + i * TM_VOCAB, &e), &e);
        must(engine_mtp_draft(g, seq[0], ids[2 * i], 2, ids + 2 * WALK + 2 * i, &e), &e);
    }
    uint64_t before = engine_counters(g).kernels;
    must(engine_decode(g, seq, &text[50], 1, &e), &e);
    must(engine_sample(g, output, draws, 1, ids + 4 * WALK, &e), &e);
    *per_step = (double)(engine_counters(g).kernels - before);
}

static void graphs(void)
{
    float *want = mem_array(5 * TM_VOCAB, sizeof *want),
          *got = mem_array(5 * TM_VOCAB, sizeof *got);
    static const int kept[] = {16, 1};
    int32_t ids[2][4 * WALK + 1];
    double launches = 0;
    struct engine_opts o = {.graphs = -1};
    struct engine *g = open_engine(EB_CUDA, &o);
    walk(g, want, ids[0], &launches);
    ok(engine_counters(g).graphs == 0, "without graphs: %g launches a step with drawing", launches);
    int best = 0;
    for (int i = 1; i < TM_USED; i++) {
        best = want[i] > want[best] ? i : best;
    }
    ok(ids[0][1] == best, "the device's greedy draw is the largest logit's (%d, %d)", ids[0][1],
       best);
    engine_close(g);
    const size_t tried = getenv("QUASAR_LONG") ? sizeof kept / sizeof *kept : 1;
    for (size_t i = 0; i < tried && !QUICK; i++) {
        o = (struct engine_opts){.graphs = kept[i]};
        g = open_engine(EB_CUDA, &o);
        walk(g, got, ids[1], &launches);
        const unsigned long long replayed = engine_counters(g).graphs;
        ok(replayed > 0 && same(got, want, WALK) && memcmp(ids[0], ids[1], sizeof ids[0]) == 0,
           "%d graphs kept: %llu replays give the same bits and ids", kept[i], replayed);
        engine_close(g);
    }
#ifdef QUASAR_TEST_EMULATED
    setenv("QUASAR_EMU_GRAPHS", "1", 1); /* memory for one graph */
    o = (struct engine_opts){.graphs = 16};
    g = open_engine(EB_CUDA, &o);
    walk(g, got, ids[1], &launches);
    ok(engine_counters(g).graphs > 0 && same(got, want, WALK) &&
           memcmp(ids[0], ids[1], sizeof ids[0]) == 0,
       "when memory holds but one graph, older ones make room: the same bits");
    engine_close(g);
    if (!QUICK) {
        setenv("QUASAR_EMU_GRAPHS", "0", 1);
        g = open_engine(EB_CUDA, &o);
        walk(g, got, ids[1], &launches);
        ok(engine_counters(g).graphs == 0 && same(got, want, WALK),
           "when it holds none, launches go on one by one: the same bits");
        engine_close(g);
    }
    unsetenv("QUASAR_EMU_GRAPHS");
#endif
    free(want);
    free(got);
}

/* One round of a sequence: some drafts first or none, verified rows, as many kept. */
static void round_of(struct engine *g, int seq, int drafts, int rows, int keep)
{
    struct err e = ERR_INIT;
    int seqs[BE_MAX_ROWS], outputs[BE_MAX_ROWS];
    int32_t ids[BE_MAX_ROWS];
    struct engine_draw draws[BE_MAX_ROWS];
    for (int i = 0; i < rows; i++) {
        seqs[i] = seq;
        outputs[i] = i;
        draws[i] = (struct engine_draw){.top_p = 1};
    }
    if (drafts > 0) {
        must(engine_mtp_draft(g, seq, text[0], drafts, ids, &e), &e);
    }
    must(rows > 1 ? engine_verify(g, seqs, text, rows, &e) : engine_decode(g, seqs, text, 1, &e),
         &e);
    must(engine_sample(g, outputs, draws, rows, ids, &e), &e);
    if (rows > 1) {
        must(engine_commit(g, &seq, &keep, 1, &e), &e);
    }
}

/* Rounds of all kinds find their graphs made: eight whole steps hold more lists than that. */
static void graphs_settle(void)
{
    static const struct {
        int rows, keep;
    } rounds[] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}};
    enum { ROUNDS = sizeof rounds / sizeof *rounds, PASSES = 3 };
    struct engine_opts o = {.slots = 1, .graphs = 8};
    struct engine *g = open_engine(EB_CUDA, &o);
    const int seq = open_seq(g);
    uint64_t made[PASSES];
    fill(g, seq, 5);
    round_of(g, seq, 0, rounds[ROUNDS - 1].rows, rounds[ROUNDS - 1].keep); /* as before each pass */
    for (int pass = 0; pass < PASSES; pass++) {
        for (int i = 0; i < 2 * ROUNDS; i++) {
            const int at = i % ROUNDS;
            round_of(g, seq, i < ROUNDS ? 1 : 0, rounds[at].rows, rounds[at].keep);
        }
        made[pass] = engine_counters(g).captured;
    }
    ok(made[1] > 0 && made[2] == made[1], "rounds of %d kinds: %d, %d, %d graphs made", 2 * ROUNDS,
       (int)made[0], (int)made[1], (int)made[2]);
    engine_close(g);
}

/* Seeded draws are what the common sampler makes of the logits, with rules and without;
 * also of several rows that count drafts. */
static void draws(void)
{
    struct engine_opts o = {.slots = 2};
    struct engine *g = open_engine(EB_CUDA, &o);
    struct err e = ERR_INIT;
    float logits[TM_VOCAB];
    float *work = mem_array(sample_work(TM_USED), sizeof *work);
    int seq = open_seq(g);
    decode(g, &seq, text, 1, logits);
    static const int32_t allowed[] = {1, 2, 3, 5, 8, 13, 21, 34, 55}, drafts[] = {5, 8, 5};
    static const struct engine_bias bias[] = {{2, 3}, {4, -50}};
    const struct engine_rules specs[] = {
        {.presence = 0},
        {.presence = 1.5F, .frequency = 0.5F, .repetition = 1.2F, .bias = bias, .n_bias = 2},
        {.repetition = 1.5F, .allowed = allowed, .n_allowed = 9},
    };
    int wrong = 0;
    for (int i = 0; i < 60; i++) {
        struct rules *r = NULL;
        must(rules_create(&specs[i % 3], text, 40, TM_USED, &r, &e), &e);
        rules_take(r, 5);
        const struct engine_draw d = {.temp = i % 7 ? 0.3F + 0.05F * (float)i : 0,
                                      .top_p = 0.95F,
                                      .top_k = 40,
                                      .min_p = i % 5 ? 0 : 0.02F,
                                      .seed = (uint64_t)i,
                                      .rules = r,
                                      .draft = drafts,
                                      .n_draft = i % 4};
        struct be_sample s = {.temp = d.temp,
                              .top_p = d.top_p,
                              .top_k = d.top_k,
                              .min_p = d.min_p,
                              .seed = d.seed,
                              .pos = 1};
        int32_t id = -1;
        const int output = 0;
        must(engine_sample(g, &output, &d, 1, &id, &e), &e);
        rules_row(r, drafts, d.n_draft, &s);
        wrong += id != sample_row(logits, TM_USED, &s, work);
        rules_free(r);
    }
    ok(wrong == 0, "60 seeded draws are the common sampler's");
    free(work);
    engine_close(g);
}

/* More outputs than one product takes, through the sink; and refusals in one line. */
struct rows {
    struct engine *g;
    float *out;
};

static int keep_row(void *ctx, int index, int output, struct err *e)
{
    struct rows *r = ctx;
    return engine_logits(r->g, output, r->out + (size_t)index * TM_VOCAB, e);
}

static void outputs(void)
{
    enum { N = 40 };
    struct engine_opts o = {.slots = 3};
    struct engine *g = open_engine(EB_CUDA, &o);
    struct err e = ERR_INIT;
    float *all = mem_array(N * TM_VOCAB, sizeof *all), one[TM_VOCAB];
    int32_t want[N];
    for (int i = 0; i < N; i++) {
        want[i] = i;
    }
    struct rows r = {g, all};
    int seq = open_seq(g), other = open_seq(g);
    const struct engine_prefill p = {.seq = seq,
                                     .tokens = text,
                                     .n = N,
                                     .want = want,
                                     .n_want = N,
                                     .sink = keep_row,
                                     .sink_ctx = &r};
    must(engine_prefill(g, &p, &e), &e);
    prefill(g, other, text, 21, 0, one);
    ok(same(one, all + 20 * TM_VOCAB, 1), "row 20 of 40 wanted rows is that of a prompt of 21");
    must(engine_seq_fill(g, other, 600, &e), &e);
    decode(g, &other, text, 1, one);
    bool finite = true;
    for (int i = 0; i < TM_USED; i++) {
        finite = finite && isfinite(one[i]);
    }
    ok(finite, "a step after 600 made-up tokens");
    free(all);
    engine_close(g);
    g = NULL;
    o = (struct engine_opts){.backend = EB_CUDA, .kv = EKV_F32};
    int rc = engine_open_source(testmodel_source(model), &o, &g, &e);
    ok(rc == QE_UNSUPPORTED && strstr(e.msg, "fp16"), "f32 keys are refused: %s", e.msg);
}

/* ---- memory ---- */

/* Caps take less memory, change no bit, and are not overstepped. */
static void caps(void)
{
    struct engine_opts o = {.slots = 2, .kv = EKV_F16};
    const struct engine_plan *p[3];
    struct engine *g[3];
    float want[2 * TM_VOCAB], got[2 * TM_VOCAB];
    struct err e = ERR_INIT;
    for (int i = 0; i < 3; i++) {
        o.verify_width = i == 1 ? 2 : 0;
        o.max_draft = i == 1 ? 2 : i == 2 ? -1 : 0;
        g[i] = open_engine(EB_CUDA, &o);
        p[i] = &engine_info(g[i])->memory;
    }
    ok(p[1]->work + 64 * TM_VOCAB < p[0]->work && p[1]->weights == p[0]->weights &&
           engine_max_outputs(g[1]) < engine_max_outputs(g[0]),
       "a verify width of 2 takes %.1f kB less work memory",
       (double)(p[0]->work - p[1]->work) / 1e3);
    ok(p[2]->weights < p[0]->weights && p[2]->page < p[0]->page && p[2]->work < p[1]->work,
       "without drafts the MTP layer is not there: %.2f MB instead of %.2f",
       (double)p[2]->weights / 1e6, (double)p[0]->weights / 1e6);
    ok(p[0]->save_draft >= p[0]->weights - p[2]->weights && p[0]->save_width > 0 &&
           p[0]->save_graphs == p[0]->graphs && p[2]->save_draft == 0 && p[2]->save_width == 0,
       "and the plan says so before");
    const int seqs[3] = {open_seq(g[0]), open_seq(g[1]), open_seq(g[2])};
    const int two[2][2] = {{seqs[0], seqs[0]}, {seqs[1], seqs[1]}};
    const int three[3] = {seqs[1], seqs[1], seqs[1]};
    int32_t ids[3];
    decode(g[0], two[0], text, 2, want);
    decode(g[1], two[1], text, 2, got);
    bool good = same(got, want, 2);
    decode(g[2], &seqs[2], text, 1, got);
    ok(good && same(got, want, 1), "and the logits are the same, bit for bit");
    int rc = engine_decode(g[1], three, text, 3, &e);
    ok(rc == QE_USAGE && strstr(e.msg, "verify width is 2"), "three rows are refused: %s", e.msg);
    rc = engine_mtp_draft(g[1], seqs[1], text[2], 3, ids, &e);
    ok(rc == QE_USAGE && strstr(e.msg, "1 to 2"), "so are three drafts: %s", e.msg);
    must(engine_mtp_draft(g[1], seqs[1], text[2], 2, ids, &e), &e);
    rc = engine_mtp_draft(g[2], seqs[2], text[2], 1, ids, &e);
    ok(rc == QE_UNSUPPORTED, "and a single one without: %s", e.msg);
    for (int i = 0; i < 3; i++) {
        engine_close(g[i]);
    }
}

#ifdef QUASAR_TEST_EMULATED
/* A device that is too small, and one that gives less than it says. */
static void no_room(void)
{
    struct engine_opts o = {.backend = EB_CUDA, .ctx = 1024, .slots = 2, .chunk = 128};
    struct engine *g = NULL;
    struct err e = ERR_INIT;
    setenv("QUASAR_EMU_FREE", "100", 1);
    int rc = engine_open_source(testmodel_source(model), &o, &g, &e);
    ok(rc == QE_NOMEM && !g && strstr(e.msg, "0.1 GB free") && strstr(e.msg, "--max-draft 0") &&
           !strchr(e.msg, '\n'),
       "too small: %s", e.msg);
    unsetenv("QUASAR_EMU_FREE");
    setenv("QUASAR_EMU_BLOCK", "1", 1);
    rc = engine_open_source(testmodel_source(model), &o, &g, &e);
    ok(rc == QE_NOMEM && !g && strstr(e.msg, "out of memory") && strstr(e.msg, "KV cache") &&
           !strchr(e.msg, '\n'),
       "less than it says: %s", e.msg);
    unsetenv("QUASAR_EMU_BLOCK");
}
#endif

/* ---- a pass by part ---- */

static double sum_of(const struct engine_profile *p)
{
    double sum = 0;
    for (int i = 0; i < EP_COUNT; i++) {
        sum += p->part[i].ms;
    }
    return sum;
}

static void parts(void)
{
    struct err e = ERR_INIT;
    for (int graphs = QUICK ? 8 : -1; graphs <= 8; graphs += 9) { /* none, and some */
        struct engine *g = open_cuda(&(struct engine_opts){.graphs = graphs});
        const size_t n = (size_t)engine_info(g)->vocab;
        float *before = mem_array(n, sizeof *before), *after = mem_array(n, sizeof *after);
        struct engine_profile p;
        int base = open_seq(g), seq = open_seq(g);
        prefill(g, base, text, 3, 0, NULL);
        must(engine_seq_fork(g, seq, base, &e), &e);
        decode(g, &seq, text, 1, before);
        must(engine_profile_step(g, &seq, 1, 1, &p, &e), &e);
        bool good = p.peak > 0;
        for (int i = 0; i < EP_LAUNCH_GAPS; i++) {
            good = good && p.part[i].bytes > 0 && (i == EP_WEIGHTS || p.part[i].ms > 0);
        }
        ok(good && fabs(sum_of(&p) - p.ms) < 1e-6 * fabs(p.ms) + 1e-6,
           "%s: the parts of a step add up to it: %.3f of %.3f ms", graphs < 0 ? "eager" : "graphs",
           sum_of(&p), p.ms);
#ifdef QUASAR_TEST_EMULATED
        /* its events count launches */
        ok(fabs(p.part[EP_LAUNCH_GAPS].ms) < 1e-6, "every launch belongs to one part: %.1f left",
           p.part[EP_LAUNCH_GAPS].ms);
#endif
        if (graphs > 0) { /* a prompt has none either way */
            must(engine_profile_prompt(g, base, seq, text, 4, 1, &p, &e), &e);
            good = true;
            for (int i = 0; i < EP_LAUNCH_GAPS; i++) {
                good = good && p.part[i].ms > 0 && p.part[i].bytes > 0;
            }
            ok(good && fabs(sum_of(&p) - p.ms) < 1e-6 * fabs(p.ms) + 1e-6,
               "and those of a prompt: %.3f of %.3f ms", sum_of(&p), p.ms);
        }
        must(engine_seq_fork(g, seq, base, &e), &e);
        decode(g, &seq, text, 1, after);
        ok(memcmp(before, after, n * sizeof *before) == 0, "a step after that is as before");
        free(before);
        free(after);
        engine_close(g);
    }
}

int main(void)
{
    const char *seed = getenv("QUASAR_TEST_SEED");
    const uint64_t s = seed ? strtoull(seed, NULL, 0) : 20;
    model = testmodel_create(s);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        text[i] = (int32_t)((i * 2654435761U + s) >> 7) % TM_USED;
        text[i] = text[i] < 0 ? -text[i] : text[i];
    }
    beside_the_cpu(EKV_F16, 0.005, PROMPT);
    if (!QUICK) {
        beside_the_cpu(EKV_F8, 0.1, 3);
        beside_the_cpu(EKV_K8V4, 0.02, 3);
        beside_the_cpu(EKV_K5V3, 0.02, PROMPT);
        beside_the_cpu(EKV_K3V3, 0.02, 3);
    }
    heads();
    company();
    cuts();
    kept();
    if (!QUICK) {
        random_cuts();
    }
    graphs();
    if (!QUICK) {
        graphs_settle();
    }
    draws();
    caps();
    parts();
    spectest_run(open_cuda, text);
#ifdef QUASAR_TEST_EMULATED
    replaytest_run(open_cuda, text, 4);
#else
    replaytest_run(open_cuda, text, 110);
#endif
#ifdef QUASAR_TEST_EMULATED
    no_room();
#endif
    if (!QUICK) {
        outputs();
    }
    testmodel_free(model);
    return done();
}
