/* The whole model over the backend interface: against double precision, and the
 * invariants of kernels/backend.h bit for bit: neighbours, slots, pages,
 * threads, cuts, verify spans, exported state. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "kcommon.h"

enum { VOCAB = 300, USED = 290, HIDDEN = 256, LAYERS = 4, SLOTS = 17, PAGES = 40 };

static const struct be_shape tiny = {
    .hidden = HIDDEN,
    .layers = LAYERS,
    .ffn = 384,
    .vocab = VOCAB,
    .vocab_used = USED,
    .q_heads = 6,
    .kv_heads = 1,
    .k_heads = 2,
    .v_heads = 6,
    .eps = 1e-6F,
    .rope_base = 1e7,
    .rope_sections = {11, 11, 10},
    .mtp = true,
};

static const struct cpu_isa *isas[3];
static int n_isas;

static struct backend *open_model(const struct kmodel *m, const char *isa, int threads,
                                  enum be_kv kv)
{
    const struct be_opts o = {
        .threads = threads,
        .isa = isa,
        .kv = kv,
        .slots = SLOTS,
        .pages = PAGES,
        .max_prefill = 768,
    };
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    if (backend_cpu()->open(&m->shape, &m->w, &o, NULL, NULL, &b, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return b;
}

static void ok(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

/* The layers and the final norm over a batch. */
static void pass(struct backend *b, const struct be_batch *t)
{
    const struct be_ops *ops = backend_cpu();
    struct err e = ERR_INIT;
    ok(ops->begin(b, t, &e), &e);
    ok(ops->embed(b, &e), &e);
    for (int i = 0; i < LAYERS; i++) {
        ok(i % 4 == 3 ? ops->attention(b, i, &e) : ops->gdn(b, i, &e), &e);
        ok(ops->ffn(b, i, &e), &e);
    }
    ok(ops->final_norm(b, &e), &e);
}

static void logits_of(struct backend *b, int row, float *out)
{
    const struct be_ops *ops = backend_cpu();
    struct err e = ERR_INIT;
    int32_t r = row;
    ok(ops->head(b, &r, 1, &e), &e);
    ok(ops->read_logits(b, 0, out, &e), &e);
}

static void advance(struct backend *b, enum be_mode mode, const struct be_span *sp,
                    const int32_t *tokens)
{
    const struct be_batch t = {mode, sp->n, 1, sp, tokens, NULL};
    pass(b, &t);
}

static void random_tokens(uint64_t seed, int32_t *t, int n)
{
    for (int i = 0; i < n; i++) {
        t[i] = (int32_t)(krand(&seed) % USED);
    }
}

/* ---- against double precision ---- */

static void reference(void **state)
{
    (void)state;
    enum { N = 67 };
    const enum dtype types[] = {DT_F32, DT_Q4_G64};
    for (int d = 0; d < 2; d++) {
        struct kmodel m;
        int32_t tokens[N];
        static double want[N][VOCAB];
        random_tokens(5, tokens, N);
        kmodel_init(&m, &tiny, types[d], 11);
        struct kref *r = kref_create(&m, N);
        for (int i = 0; i < N; i++) {
            kref_step(r, tokens[i], NULL, want[i], NULL);
        }
        for (int j = 0; j < n_isas; j++) {
            for (int mode = 0; mode < 2; mode++) {
                struct backend *b = open_model(&m, isas[j]->name, 2, BE_KV_F32);
                const int32_t pages[] = {3};
                for (int at = 0; at < N;) {
                    int n = mode == BE_PREFILL ? 64 : 5;
                    n = n < N - at ? n : N - at;
                    const struct be_span sp = {2, at, n, pages};
                    advance(b, (enum be_mode)mode, &sp, tokens + at);
                    for (int i = 0; i < n; i++) {
                        float l[VOCAB];
                        logits_of(b, i, l);
                        for (int v = 0; v < VOCAB; v++) {
                            if (v < USED) {
                                assert_close(l[v], want[at + i][v], 5e-5);
                            } else {
                                assert_true(l[v] == -INFINITY);
                            }
                        }
                    }
                    at += n;
                }
                backend_cpu()->close(b);
            }
        }
        kref_free(r);
        kmodel_free(&m);
    }
}

/* MTP: a prompt's keys, a draft from the saved hidden, a chained draft. */
static void mtp_reference(void **state)
{
    (void)state;
    enum { N = 6 };
    struct kmodel m;
    int32_t tokens[N + 3];
    double hidden[N][HIDDEN];
    double md[HIDDEN];
    double want[2][VOCAB];
    double unused[VOCAB];
    random_tokens(6, tokens, N + 3);
    kmodel_init(&m, &tiny, DT_F32, 12);
    struct kref *r = kref_create(&m, N + 4);
    for (int i = 0; i < N; i++) {
        kref_step(r, tokens[i], NULL, NULL, hidden[i]);
    }
    for (int i = 0; i + 1 < N; i++) {
        kref_mtp(r, hidden[i], tokens[i + 1], md, unused);
    }
    kref_mtp(r, hidden[N - 1], tokens[N], md, want[0]);
    double chain[HIDDEN];
    kref_mtp(r, md, tokens[N + 1], chain, want[1]);
    for (int j = 0; j < n_isas; j++) {
        const struct be_ops *ops = backend_cpu();
        struct backend *b = open_model(&m, isas[j]->name, 1, BE_KV_F32);
        struct err e = ERR_INIT;
        const int32_t pages[] = {1};
        const int32_t rows[] = {0, 1, 2, 3, 4};
        struct be_span sp = {0, 0, N, pages};
        advance(b, BE_PREFILL, &sp, tokens);
        ok(ops->hidden_save(b, N - 1, 0, &e), &e);
        sp.n = N - 1;
        struct be_batch t = {BE_PREFILL, N - 1, 1, &sp, tokens + 1, NULL};
        ok(ops->mtp_embed(b, &t, rows, &e), &e);
        ok(ops->mtp_layer(b, true, &e), &e);
        const int32_t sources[] = {BE_H_SLOT, BE_H_CHAIN};
        for (int i = 0; i < 2; i++) {
            float l[VOCAB];
            sp.pos = N - 1 + i;
            sp.n = 1;
            t = (struct be_batch){BE_DECODE, 1, 1, &sp, tokens + N + i, NULL};
            ok(ops->mtp_embed(b, &t, &sources[i], &e), &e);
            ok(ops->mtp_layer(b, false, &e), &e);
            ok(ops->mtp_head(b, rows, 1, &e), &e);
            ok(ops->read_logits(b, 0, l, &e), &e);
            for (int v = 0; v < USED; v++) {
                assert_close(l[v], want[i][v], 5e-5);
            }
        }
        ops->close(b);
    }
    kref_free(r);
    kmodel_free(&m);
}

/* ---- rows and neighbours ---- */

/* 16 sequences of different lengths, prefilled one by one; then decode steps of
 * each alone, and the same steps in mixed batches with several rows for some. */
enum { SEQS = 16, STEPS = 6 };

struct bench {
    int len[SEQS];
    int32_t prompt[SEQS][80];
    int32_t next[SEQS][STEPS];
    int32_t pages[SEQS];
};

static void bench_init(struct bench *w, uint64_t seed)
{
    for (int i = 0; i < SEQS; i++) {
        w->len[i] = 1 + (int)(krand(&seed) % 75);
        random_tokens(seed + 1 + (uint64_t)i, w->prompt[i], 80);
        random_tokens(seed + 100 + (uint64_t)i, w->next[i], STEPS);
    }
}

/* slot and page of sequence i are a shuffle of the seed's. */
static void shuffle(int *p, int n, uint64_t *seed)
{
    for (int i = 0; i < n; i++) {
        p[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(krand(seed) % (uint32_t)(i + 1));
        int t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}

static void alone(const struct kmodel *m, const struct bench *w, const char *isa,
                  float (*want)[STEPS][VOCAB])
{
    struct backend *b = open_model(m, isa, 1, BE_KV_F16);
    const int32_t pages[] = {7};
    for (int i = 0; i < SEQS; i++) {
        struct err e = ERR_INIT;
        ok(backend_cpu()->state_reset(b, 4, &e), &e);
        struct be_span sp = {4, 0, w->len[i], pages};
        advance(b, BE_PREFILL, &sp, w->prompt[i]);
        for (int k = 0; k < STEPS; k++) {
            sp = (struct be_span){4, w->len[i] + k, 1, pages};
            advance(b, BE_DECODE, &sp, &w->next[i][k]);
            logits_of(b, 0, want[i][k]);
        }
    }
    backend_cpu()->close(b);
}

/* Prompts in mixed prefill batches, then decode batches of random company until
 * every sequence has made its steps. */
static void together(const struct kmodel *m, const struct bench *w, const char *isa, int threads,
                     uint64_t seed, float (*want)[STEPS][VOCAB])
{
    const struct be_ops *ops = backend_cpu();
    struct backend *b = open_model(m, isa, threads, BE_KV_F16);
    struct err e = ERR_INIT;
    int slot[SLOTS];
    int page[PAGES];
    int done[SEQS] = {0};
    int32_t pages[SEQS];
    shuffle(slot, SLOTS, &seed);
    shuffle(page, PAGES, &seed);
    for (int i = 0; i < SEQS; i += 4) {
        struct be_span sp[4];
        int32_t tokens[4 * 80];
        int rows = 0;
        for (int j = i; j < i + 4; j++) {
            pages[j] = page[j];
            sp[j - i] = (struct be_span){slot[j], 0, w->len[j], &pages[j]};
            memcpy(tokens + rows, w->prompt[j], (size_t)w->len[j] * sizeof *tokens);
            rows += w->len[j];
        }
        const struct be_batch t = {BE_PREFILL, rows, 4, sp, tokens, NULL};
        pass(b, &t);
    }
    for (;;) {
        struct be_span sp[SEQS];
        int32_t tokens[BE_MAX_ROWS];
        int32_t rows[BE_MAX_ROWS];
        int seq[BE_MAX_ROWS];
        int step[BE_MAX_ROWS];
        int order[SEQS];
        int n = 0;
        int spans = 0;
        int limit = 1 + (int)(krand(&seed) % BE_MAX_ROWS);
        shuffle(order, SEQS, &seed);
        for (int i = 0; i < SEQS && n < limit; i++) {
            int s = order[i];
            int take = 1 + (int)(krand(&seed) % 3);
            take = take < STEPS - done[s] ? take : STEPS - done[s];
            take = take < limit - n ? take : limit - n;
            if (take < 1) {
                continue;
            }
            sp[spans++] = (struct be_span){slot[s], w->len[s] + done[s], take, &pages[s]};
            for (int k = 0; k < take; k++, n++) {
                tokens[n] = w->next[s][done[s]];
                seq[n] = s;
                step[n] = done[s]++;
                rows[n] = n;
            }
        }
        if (n == 0) {
            break;
        }
        const struct be_batch t = {BE_DECODE, n, spans, sp, tokens, NULL};
        pass(b, &t);
        ok(ops->head(b, rows, n, &e), &e);
        for (int i = 0; i < n; i++) {
            float l[VOCAB];
            ok(ops->read_logits(b, i, l, &e), &e);
            assert_memory_equal(l, want[seq[i]][step[i]], sizeof l);
        }
    }
    ops->close(b);
}

static void neighbours(void **state)
{
    (void)state;
    static float want[SEQS][STEPS][VOCAB];
    static float first[SEQS][STEPS][VOCAB];
    const enum dtype types[] = {DT_Q8_G128, DT_Q4_G64, DT_BF16};
    const int rounds = getenv("QUASAR_LONG") ? 20 : 2;
    for (int d = 0; d < 3; d++) {
        struct kmodel m;
        struct bench w;
        kmodel_init(&m, &tiny, types[d], 21 + (uint64_t)d);
        bench_init(&w, 31);
        for (int j = 0; j < n_isas; j++) {
            if (d > 0 && !exact_isa(isas[j])) {
                continue; /* slow, and the same source */
            }
            alone(&m, &w, isas[j]->name, want);
            for (int i = 0; i < rounds; i++) {
                together(&m, &w, isas[j]->name, 1 + i % 3, (uint64_t)(41 + i), want);
            }
            if (j == 0) {
                memcpy(first, want, sizeof want);
            } else if (exact_isa(isas[j])) {
                assert_memory_equal(first, want, sizeof want);
            }
        }
        kmodel_free(&m);
    }
}

/* ---- cuts ---- */

/* A prompt in chunks that end at multiples of 64; fills the last row's logits,
 * the slot's state and all keys and values. */
struct result {
    float logits[VOCAB];
    uint8_t *state;
    float *kv;
};

enum { PROMPT = 700 };

static void prefill_cut(struct backend *b, const int32_t *tokens, int prompt, uint64_t *seed,
                        struct result *out)
{
    const struct be_ops *ops = backend_cpu();
    struct err e = ERR_INIT;
    int page[PAGES];
    int32_t pages[3];
    shuffle(page, PAGES, seed);
    for (int i = 0; i < 3; i++) {
        pages[i] = page[i];
    }
    const int slot = (int)(krand(seed) % SLOTS);
    ok(ops->state_reset(b, slot, &e), &e);
    int last = 0;
    for (int at = 0; at < prompt; at += last) {
        last = 64 * (1 + (int)(krand(seed) % 11));
        last = last < prompt - at ? last : prompt - at;
        const struct be_span sp = {slot, at, last, pages};
        advance(b, BE_PREFILL, &sp, tokens + at);
    }
    logits_of(b, last - 1, out->logits);
    ok(ops->hidden_save(b, last - 1, slot, &e), &e);
    ok(ops->state_export(b, slot, out->state, &e), &e);
    ok(ops->read_kv(b, 3, pages, prompt, out->kv, out->kv + prompt * BE_HEAD_DIM, &e), &e);
}

static void cuts(void **state)
{
    (void)state;
    struct kmodel m;
    int32_t tokens[PROMPT];
    uint64_t seed = 51;
    const int rounds = getenv("QUASAR_LONG") ? 200 : 6;
    random_tokens(50, tokens, PROMPT);
    kmodel_init(&m, &tiny, DT_Q8_G128, 52);
    for (int j = 0; j < n_isas; j++) {
        struct backend *b[2] = {open_model(&m, isas[j]->name, 1, BE_KV_F16),
                                open_model(&m, isas[j]->name, 2, BE_KV_F16)};
        const size_t size = backend_cpu()->state_size(b[0]);
        const int n = exact_isa(isas[j]) ? PROMPT : 200;
        const size_t kv = 2 * (size_t)n * BE_HEAD_DIM * sizeof(float);
        struct result r[2];
        for (int i = 0; i < 2; i++) {
            r[i].state = malloc(size);
            r[i].kv = malloc(kv);
            assert_true(r[i].state && r[i].kv);
        }
        prefill_cut(b[0], tokens, n, &seed, &r[0]);
        for (int i = 0; i < (exact_isa(isas[j]) ? rounds : 2); i++) {
            prefill_cut(b[i % 2], tokens, n, &seed, &r[1]);
            assert_memory_equal(r[0].logits, r[1].logits, sizeof r[0].logits);
            assert_memory_equal(r[0].state, r[1].state, size);
            assert_memory_equal(r[0].kv, r[1].kv, kv);
        }
        for (int i = 0; i < 2; i++) {
            free(r[i].state);
            free(r[i].kv);
            backend_cpu()->close(b[i]);
        }
    }
    kmodel_free(&m);
}

/* Blocks and steps of one prompt agree but for rounding. */
static void blocks_and_steps(void **state)
{
    (void)state;
    const int lengths[] = {1, 63, 64, 65, 130};
    struct kmodel m;
    int32_t tokens[130];
    random_tokens(60, tokens, 130);
    kmodel_init(&m, &tiny, DT_F32, 61);
    struct backend *b = open_model(&m, NULL, 2, BE_KV_F32);
    const int32_t pages[] = {5};
    for (int i = 0; i < 5; i++) {
        float logits[2][VOCAB];
        static float s[2][6 * 128 * 128];
        for (int mode = 0; mode < 2; mode++) {
            struct err e = ERR_INIT;
            ok(backend_cpu()->state_reset(b, 0, &e), &e);
            for (int at = 0, n = 0; at < lengths[i]; at += n) {
                n = mode == BE_PREFILL ? lengths[i] : 1;
                const struct be_span sp = {0, at, n, pages};
                advance(b, (enum be_mode)mode, &sp, tokens + at);
                logits_of(b, n - 1, logits[mode]);
            }
            ok(backend_cpu()->read_gdn(b, 2, 0, NULL, s[mode], &e), &e);
        }
        for (int v = 0; v < USED; v++) {
            assert_close(logits[0][v], (double)logits[1][v], 5e-5);
        }
        for (int v = 0; v < 6 * 128 * 128; v++) {
            assert_close(s[0][v], (double)s[1][v], 1e-5);
        }
    }
    backend_cpu()->close(b);
    kmodel_free(&m);
}

/* ---- rotary positions and the gate ---- */

static void rope_axes(void **state)
{
    (void)state;
    enum { N = 9 };
    struct kmodel m;
    int32_t tokens[N];
    int32_t rope[N][3];
    float plain[VOCAB];
    float l[VOCAB];
    double want[VOCAB];
    uint64_t seed = 70;
    const int32_t pages[] = {0};
    const struct be_span sp = {0, 0, N, pages};
    struct err e = ERR_INIT;
    random_tokens(71, tokens, N);
    kmodel_init(&m, &tiny, DT_F32, 72);
    struct backend *b = open_model(&m, NULL, 1, BE_KV_F32);
    advance(b, BE_PREFILL, &sp, tokens);
    logits_of(b, N - 1, plain);
    for (int i = 0; i < N; i++) {
        rope[i][0] = rope[i][1] = rope[i][2] = i;
    }
    struct be_batch t = {BE_PREFILL, N, 1, &sp, tokens, (const int32_t(*)[3])rope};
    ok(backend_cpu()->state_reset(b, 0, &e), &e);
    pass(b, &t);
    logits_of(b, N - 1, l);
    assert_memory_equal(l, plain, sizeof l);
    struct kref *r = kref_create(&m, N);
    for (int i = 0; i < N; i++) {
        for (int a = 0; a < 3; a++) {
            rope[i][a] = (int32_t)(krand(&seed) % 3000);
        }
        kref_step(r, tokens[i], rope[i], want, NULL);
    }
    ok(backend_cpu()->state_reset(b, 0, &e), &e);
    pass(b, &t);
    logits_of(b, N - 1, l);
    double moved = 0;
    for (int v = 0; v < USED; v++) {
        assert_close(l[v], want[v], 5e-5);
        moved += fabs((double)l[v] - (double)plain[v]);
    }
    assert_true(moved > 0.1);
    kref_free(r);
    backend_cpu()->close(b);
    kmodel_free(&m);
}

/* Gates of 1 leave attention as it is; gates of 1/2 before a doubled output
 * projection do the same, bit for bit. Wrong rows taken for gates would not. */
static void gate_packing(void **state)
{
    (void)state;
    enum { N = 5, QROWS = 6 * 512, O = HIDDEN * 6 * 256 };
    struct kmodel m;
    int32_t tokens[N];
    uint64_t seed = 80;
    const int32_t pages[] = {0};
    const struct be_span sp = {0, 0, N, pages};
    const struct be_batch t = {BE_PREFILL, N, 1, &sp, tokens, NULL};
    const struct be_ops *ops = backend_cpu();
    float h[3][HIDDEN];
    random_tokens(81, tokens, N);
    kmodel_init(&m, &tiny, DT_F32, 82);
    struct be_layer *l = &m.layers[3];
    float *q = malloc(QROWS * HIDDEN * sizeof *q);
    const float *plain = l->o.data;
    float *o = malloc(O * sizeof *o);
    float *embed = malloc(VOCAB * HIDDEN * sizeof *embed);
    assert_true(q && o && embed);
    memcpy(q, l->q.data, QROWS * HIDDEN * sizeof *q);
    for (int i = 0; i < VOCAB * HIDDEN; i++) {
        embed[i] = 1.5F + krandf(&seed); /* so that rows of ones give large gates */
    }
    m.w.embed.data = embed;
    l->q.data = q;
    l->o.data = o;
    struct backend *b = open_model(&m, NULL, 1, BE_KV_F32);
    /* 0: gates 1; 1: gates 1/2, output doubled; 2: gates 1/2 alone. */
    for (int g = 0; g < 3; g++) {
        struct err e = ERR_INIT;
        for (int i = 0; i < QROWS * HIDDEN; i++) {
            q[i] = i / HIDDEN % 512 < 256 ? q[i] : g == 0 ? 1 : 0;
        }
        for (int i = 0; i < O; i++) {
            o[i] = plain[i] * (g == 1 ? 2 : 1);
        }
        ok(ops->begin(b, &t, &e), &e);
        ok(ops->embed(b, &e), &e);
        ok(ops->attention(b, 3, &e), &e);
        ok(ops->final_norm(b, &e), &e);
        ok(ops->read_hidden(b, N - 1, h[g], &e), &e);
    }
    assert_memory_equal(h[0], h[1], sizeof h[0]);
    assert_memory_not_equal(h[0], h[2], sizeof h[0]);
    ops->close(b);
    free(q);
    free(o);
    free(embed);
    kmodel_free(&m);
}

/* ---- state ---- */

static void export_import(void **state)
{
    (void)state;
    enum { N = 300 };
    const struct be_ops *ops = backend_cpu();
    struct kmodel m;
    int32_t tokens[N + 4];
    struct err e = ERR_INIT;
    random_tokens(90, tokens, N + 4);
    kmodel_init(&m, &tiny, DT_Q8_G128, 91);
    struct backend *b = open_model(&m, NULL, 2, BE_KV_F16);
    struct backend *other = open_model(&m, NULL, 1, BE_KV_F16);
    const int32_t pages[] = {8, 2};
    const int32_t moved[] = {1, 30};
    const int32_t copied[] = {11, 12};
    struct be_span sp = {3, 0, N, pages};
    advance(b, BE_PREFILL, &sp, tokens);
    ok(ops->hidden_save(b, N - 1, 3, &e), &e);
    uint8_t *blob = malloc(ops->state_size(b));
    uint8_t *page[2] = {malloc(ops->page_size(b)), malloc(ops->page_size(b))};
    assert_true(blob && page[0] && page[1]);
    ok(ops->state_export(b, 3, blob, &e), &e);
    ok(ops->state_import(other, 16, blob, &e), &e);
    ok(ops->state_copy(b, 5, 3, &e), &e);
    for (int i = 0; i < 2; i++) {
        ok(ops->page_export(b, pages[i], N - i * BE_PAGE, page[i], &e), &e);
        ok(ops->page_import(other, moved[i], page[i], &e), &e);
        ok(ops->page_copy(b, copied[i], pages[i], &e), &e);
    }
    float want[VOCAB];
    float got[VOCAB];
    sp = (struct be_span){3, N, 4, pages};
    advance(b, BE_DECODE, &sp, tokens + N);
    logits_of(b, 3, want);
    sp = (struct be_span){16, N, 4, moved};
    advance(other, BE_DECODE, &sp, tokens + N);
    logits_of(other, 3, got);
    assert_memory_equal(got, want, sizeof got);
    sp = (struct be_span){5, N, 4, copied};
    advance(b, BE_DECODE, &sp, tokens + N);
    logits_of(b, 3, got);
    assert_memory_equal(got, want, sizeof got);
    /* An empty slot is all zero. */
    ok(ops->state_reset(b, 3, &e), &e);
    ok(ops->state_export(b, 3, blob, &e), &e);
    for (size_t i = 0; i < ops->state_size(b); i++) {
        assert_int_equal(blob[i], 0);
    }
    free(blob);
    free(page[0]);
    free(page[1]);
    ops->close(b);
    ops->close(other);
    kmodel_free(&m);
}

/* ---- refusals ---- */

static void refuse(const struct be_shape *s, const struct be_weights *w, const struct be_opts *o,
                   int code, const char *word)
{
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(backend_cpu()->open(s, w, o, NULL, NULL, &b, &e), code);
    assert_null(b);
    if (!strstr(e.msg, word)) {
        fail_msg("\"%s\" does not name %s", e.msg, word);
    }
}

static void refusals(void **state)
{
    (void)state;
    struct kmodel m;
    kmodel_init(&m, &tiny, DT_Q8_G128, 95);
    const struct be_opts good = {.threads = 1, .slots = 2, .pages = 4, .max_prefill = 64};
    struct be_opts o = good;
    o.isa = "sse9";
    refuse(&m.shape, &m.w, &o, QE_USAGE, "sse9");
    o = good;
    o.slots = 0;
    refuse(&m.shape, &m.w, &o, QE_UNSUPPORTED, "slots");
    struct be_shape s = m.shape;
    s.hidden = 384;
    refuse(&s, &m.w, &good, QE_FORMAT, "300 x 256, not 300 x 384");
    s = m.shape;
    s.q_heads = 5;
    s.kv_heads = 2;
    refuse(&s, &m.w, &good, QE_UNSUPPORTED, "multiple");
    struct be_weights w = m.w;
    w.embed.name = "embed_tokens.weight";
    w.embed.scale_size -= 2;
    refuse(&m.shape, &w, &good, QE_FORMAT, "embed_tokens.weight");
    m.layers[2].conv.name = "layers.2.linear_attn.conv1d.weight";
    m.layers[2].conv.dtype = DT_BF16;
    refuse(&m.shape, &m.w, &good, QE_FORMAT, "layers.2.linear_attn.conv1d.weight");
    m.layers[2].conv.dtype = DT_F32;
    m.layers[3].k.data = NULL;
    refuse(&m.shape, &m.w, &good, QE_FORMAT, "k projection of layer 3");
    kmodel_free(&m);
}

static void bad_batches(void **state)
{
    (void)state;
    const struct be_ops *ops = backend_cpu();
    struct kmodel m;
    struct err e = ERR_INIT;
    kmodel_init(&m, &tiny, DT_F32, 96);
    struct backend *b = open_model(&m, NULL, 1, BE_KV_F32);
    int32_t tokens[20] = {0};
    int32_t pages[] = {0};
    struct be_span sp[2] = {{0, 0, 1, pages}, {1, 0, 1, pages}};
    struct be_batch t = {BE_DECODE, 2, 2, sp, tokens, NULL};
    assert_int_equal(ops->embed(b, &e), QE_INTERNAL);
    ok(ops->begin(b, &t, &e), &e);
    sp[1].slot = 0;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    sp[1].slot = SLOTS;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    sp[1].slot = 1;
    sp[1].n = 2;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    sp[1].n = 1;
    tokens[1] = VOCAB;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    tokens[1] = -1;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    tokens[1] = 0;
    pages[0] = PAGES;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    pages[0] = 0;
    sp[0].n = 16;
    t.n_rows = 17;
    assert_int_equal(ops->begin(b, &t, &e), QE_INTERNAL);
    sp[0].n = 1;
    t.n_rows = 2;
    pass(b, &t);
    const int32_t row = 2;
    assert_int_equal(ops->head(b, &row, 1, &e), QE_INTERNAL);
    assert_int_equal(ops->gdn(b, 3, &e), QE_INTERNAL);
    assert_int_equal(ops->attention(b, 0, &e), QE_INTERNAL);
    assert_int_equal(ops->page_copy(b, 0, PAGES, &e), QE_INTERNAL);
    ops->close(b);
    kmodel_free(&m);
}

int main(void)
{
    n_isas = kernel_isas(isas);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference),        cmocka_unit_test(mtp_reference),
        cmocka_unit_test(neighbours),       cmocka_unit_test(cuts),
        cmocka_unit_test(blocks_and_steps), cmocka_unit_test(rope_axes),
        cmocka_unit_test(gate_packing),     cmocka_unit_test(export_import),
        cmocka_unit_test(refusals),         cmocka_unit_test(bad_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
