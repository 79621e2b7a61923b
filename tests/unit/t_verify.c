/* Verified rows that are taken back: after every number of accepted rows the
 * states, the cache and what is computed from them are bit for bit those of plain
 * decoding; on every instruction set, with any neighbours and threads. */
#include "config.h"

#include <math.h>

#include "kcommon.h"

enum { VOCAB = 300, USED = 290, HIDDEN = 256, LAYERS = 4, SLOTS = 8, PAGES = 12, W = BE_MAX_ROWS };

#ifdef SANITIZED
enum { EVERY = 5, ROUNDS = 1, MOST_ISAS = 1 };
#else
enum { EVERY = 1, ROUNDS = 6, MOST_ISAS = 3 };
#endif

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

static void ok(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

static struct backend *open_model(const struct kmodel *m, const char *isa, int threads,
                                  enum be_kv kv)
{
    const struct be_opts o = {.threads = threads,
                              .isa = isa,
                              .kv = kv,
                              .slots = SLOTS,
                              .pages = PAGES,
                              .max_prefill = 512};
    struct backend *b = NULL;
    struct err e = ERR_INIT;
    ok(backend_cpu()->open(&m->shape, &m->w, &o, NULL, NULL, &b, &e), &e);
    return b;
}

static void pass(struct backend *b, enum be_mode mode, const struct be_span *sp, int n_spans,
                 const int32_t *tokens)
{
    const struct be_ops *ops = backend_cpu();
    struct err e = ERR_INIT;
    int rows = 0;
    for (int i = 0; i < n_spans; i++) {
        rows += sp[i].n;
    }
    const struct be_batch t = {mode, rows, n_spans, sp, tokens, NULL};
    ok(ops->begin(b, &t, &e), &e);
    ok(ops->embed(b, &e), &e);
    for (int i = 0; i < LAYERS; i++) {
        ok(i % 4 == 3 ? ops->attention(b, i, &e) : ops->gdn(b, i, &e), &e);
        ok(ops->ffn(b, i, &e), &e);
    }
    ok(ops->final_norm(b, &e), &e);
}

static void read_rows(struct backend *b, int n, float (*out)[VOCAB])
{
    struct err e = ERR_INIT;
    int32_t rows[W];
    for (int i = 0; i < n; i++) {
        rows[i] = i;
    }
    ok(backend_cpu()->head(b, rows, n, &e), &e);
    for (int i = 0; i < n; i++) {
        ok(backend_cpu()->read_logits(b, i, out[i], &e), &e);
    }
}

/* One sequence decoded row by row: logits and states after each. */
struct plain {
    float logits[W + 1][VOCAB];
    uint8_t *state[W + 1]; /* after i rows */
    float *kv;             /* of all positions */
};

enum { KV_FLOATS = 2 * 512 * BE_HEAD_DIM };

static void random_tokens(uint64_t seed, int32_t *t, int n)
{
    for (int i = 0; i < n; i++) {
        t[i] = (int32_t)(krand(&seed) % USED);
    }
}

static void start(struct backend *b, int slot, const int32_t *prompt, int n, const int32_t *pages)
{
    struct err e = ERR_INIT;
    ok(backend_cpu()->state_reset(b, slot, &e), &e);
    const struct be_span sp = {slot, 0, n, pages};
    pass(b, BE_PREFILL, &sp, 1, prompt);
}

static void plain_run(struct backend *b, const int32_t *prompt, int n, const int32_t *next,
                      struct plain *p)
{
    const struct be_ops *ops = backend_cpu();
    const size_t size = ops->state_size(b);
    const int32_t pages[] = {1, 2};
    struct err e = ERR_INIT;
    start(b, 0, prompt, n, pages);
    for (int i = 0; i <= W; i++) {
        p->state[i] = malloc(size);
        assert_non_null(p->state[i]);
        ok(ops->state_export(b, 0, p->state[i], &e), &e);
        if (i < W) {
            const struct be_span sp = {0, n + i, 1, pages};
            pass(b, BE_DECODE, &sp, 1, &next[i]);
            read_rows(b, 1, &p->logits[i]);
        }
    }
    p->kv = calloc(KV_FLOATS, sizeof *p->kv);
    assert_non_null(p->kv);
    ok(ops->read_kv(b, 3, pages, n + W, p->kv, p->kv + KV_FLOATS / 2, &e), &e);
}

static void plain_free(struct plain *p)
{
    for (int i = 0; i <= W; i++) {
        free(p->state[i]);
    }
    free(p->kv);
}

static void same_state(struct backend *b, int slot, const int32_t *pages, int n, int accepted,
                       const struct plain *p)
{
    const struct be_ops *ops = backend_cpu();
    const size_t size = ops->state_size(b);
    static float kv[KV_FLOATS];
    struct err e = ERR_INIT;
    uint8_t *s = malloc(size);
    assert_non_null(s);
    ok(ops->state_export(b, slot, s, &e), &e);
    assert_int_equal(memcmp(s, p->state[accepted], size), 0);
    free(s);
    ok(ops->read_kv(b, 3, pages, n + accepted, kv, kv + KV_FLOATS / 2, &e), &e);
    const size_t bytes = (size_t)(n + accepted) * BE_HEAD_DIM * sizeof *kv;
    assert_int_equal(memcmp(kv, p->kv, bytes), 0);
    assert_int_equal(memcmp(kv + KV_FLOATS / 2, p->kv + KV_FLOATS / 2, bytes), 0);
}

/* Every width and every number of accepted rows. */
static void every_length(void **state)
{
    (void)state;
    enum { N = 250 }; /* the rows cross a page */
    const enum be_kv kvs[] = {BE_KV_F32, BE_KV_F16, BE_KV_F8, BE_KV_K3V3, BE_KV_K8V4, BE_KV_K5V3};
    struct kmodel m;
    int32_t prompt[N], next[W];
    random_tokens(7, prompt, N);
    random_tokens(8, next, W);
    kmodel_init(&m, &tiny, DT_Q8_G128, 70);
    for (size_t j = 0; j < sizeof kvs / sizeof *kvs; j++) {
        const int every = j == 0 ? EVERY : 5; /* the others are the same source */
        const struct cpu_isa *isa = isas[j % (size_t)n_isas];
        struct backend *b = open_model(&m, isa->name, 1 + (int)(j % 3), kvs[j]);
        struct plain p;
        const int32_t pages[] = {4, 3};
        plain_run(b, prompt, N, next, &p);
        start(b, 5, prompt, N, pages);
        for (int w = 1; w <= W; w += every) {
            for (int keep = 0; keep <= w; keep += every) {
                static float l[W][VOCAB];
                struct err e = ERR_INIT;
                ok(backend_cpu()->state_import(b, 5, p.state[0], &e), &e);
                const struct be_span sp = {5, N, w, pages};
                pass(b, BE_VERIFY, &sp, 1, next);
                read_rows(b, w, l);
                assert_int_equal(memcmp(l, p.logits, (size_t)w * sizeof l[0]), 0);
                same_state(b, 5, pages, N, 0, &p); /* held */
                const int32_t accepted = keep;
                ok(backend_cpu()->fold(b, &accepted, &e), &e);
                same_state(b, 5, pages, N, keep, &p);
            }
        }
        plain_free(&p);
        backend_cpu()->close(b);
    }
    kmodel_free(&m);
}

/* Random rounds of several sequences in one sweep: each keeps what chance says of
 * right and wrong guesses, to the end of its text. */
static void many_at_once(void **state)
{
    (void)state;
    enum { SEQS = 5, N = 60 };
    struct kmodel m;
    struct plain p[SEQS];
    int32_t prompt[SEQS][N], next[SEQS][W];
    const int32_t pages[SEQS][1] = {{7}, {2}, {9}, {0}, {5}};
    const int slot[SEQS] = {3, 0, 7, 5, 1};
    uint64_t seed = 91;
    kmodel_init(&m, &tiny, DT_Q4_G64, 71);
    for (int j = 0; j < n_isas; j++) {
        struct backend *b = open_model(&m, isas[j]->name, 2, BE_KV_F16);
        const int rounds = j == 0 ? ROUNDS : 1;
        for (int i = 0; i < SEQS; i++) {
            random_tokens(200 + (uint64_t)i, prompt[i], N);
            random_tokens(300 + (uint64_t)i, next[i], W);
            plain_run(b, prompt[i], N - i, next[i], &p[i]);
        }
        for (int round = 0; round < rounds; round++) {
            int done[SEQS] = {0};
            for (int i = 0; i < SEQS; i++) {
                start(b, slot[i], prompt[i], N - i, pages[i]);
            }
            for (;;) {
                struct be_span sp[SEQS];
                int32_t tokens[W], accepted[SEQS];
                int who[SEQS], spans = 0, rows = 0;
                for (int i = 0; i < SEQS; i++) {
                    int take = (int)(krand(&seed) % 6);
                    take = take < W - done[i] ? take : W - done[i];
                    take = take < W - rows ? take : W - rows;
                    if (take == 0) {
                        continue;
                    }
                    accepted[spans] = (int32_t)(krand(&seed) % (uint32_t)(take + 1));
                    sp[spans] = (struct be_span){slot[i], N - i + done[i], take, pages[i]};
                    for (int k = 0; k < take; k++) {
                        tokens[rows++] =
                            k < accepted[spans] ? next[i][done[i] + k] : (int32_t)(k + 1);
                    }
                    who[spans++] = i;
                }
                if (rows == 0) {
                    break;
                }
                struct err e = ERR_INIT;
                pass(b, BE_VERIFY, sp, spans, tokens);
                ok(backend_cpu()->fold(b, accepted, &e), &e);
                for (int i = 0; i < spans; i++) {
                    const int s = who[i];
                    done[s] += accepted[i];
                    same_state(b, slot[s], pages[s], N - s, done[s], &p[s]);
                }
            }
        }
        for (int i = 0; i < SEQS; i++) {
            plain_free(&p[i]);
        }
        backend_cpu()->close(b);
    }
    kmodel_free(&m);
}

static void fold_needs_rows(void **state)
{
    (void)state;
    struct kmodel m;
    struct err e = ERR_INIT;
    const int32_t pages[] = {0}, token = 1;
    const struct be_span sp = {0, 0, 1, pages};
    kmodel_init(&m, &tiny, DT_F32, 72);
    struct backend *b = open_model(&m, NULL, 1, BE_KV_F32);
    int32_t accepted = 1;
    assert_int_equal(backend_cpu()->fold(b, &accepted, &e), QE_INTERNAL);
    pass(b, BE_DECODE, &sp, 1, &token);
    assert_int_equal(backend_cpu()->fold(b, &accepted, &e), QE_INTERNAL);
    pass(b, BE_VERIFY, &sp, 1, &token);
    accepted = 2;
    assert_int_equal(backend_cpu()->fold(b, &accepted, &e), QE_INTERNAL);
    accepted = -1;
    assert_int_equal(backend_cpu()->fold(b, &accepted, &e), QE_INTERNAL);
    accepted = 1;
    ok(backend_cpu()->fold(b, &accepted, &e), &e);
    assert_int_equal(backend_cpu()->fold(b, &accepted, &e), QE_INTERNAL);
    backend_cpu()->close(b);
    kmodel_free(&m);
}

/* The two largest, wherever they stand; ties; ids that are not used. */
static void two_largest(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int j = 0; j < n_isas; j++) {
        for (int round = 0; round < 400; round++) {
            float x[300];
            const int n = 2 + (int)(krand(&seed) % 290);
            for (int i = 0; i < n; i++) {
                x[i] = round % 3 == 0 ? (float)(krand(&seed) % 5) : krandf(&seed);
            }
            x[n] = 100; /* not part of the row */
            int32_t id = -1;
            float margin = -1;
            isas[j]->best(x, n, &id, &margin);
            int first = 0;
            for (int i = 1; i < n; i++) {
                first = x[i] > x[first] ? i : first;
            }
            float second = -INFINITY;
            for (int i = 0; i < n; i++) {
                second = i != first && x[i] > second ? x[i] : second;
            }
            assert_int_equal(id, first);
            assert_true(margin == x[first] - second);
        }
    }
}

int main(void)
{
    n_isas = kernel_isas(isas);
    n_isas = n_isas < MOST_ISAS ? n_isas : MOST_ISAS;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(fold_needs_rows),
        cmocka_unit_test(two_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
