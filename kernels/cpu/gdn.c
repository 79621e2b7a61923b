/*
 * Gated DeltaNet: convolution, recurrence, gated norm (docs/model.md). Decode
 * rows go one after the other; prefill goes by absolute blocks of 64 in the
 * chunked form, where new values N solve (I + A) N = beta (V - e^G K S) by
 * forward substitution. Every sum of row t runs over rows up to t in ascending
 * order, so that a block cut short gives the same bits for the rows it has.
 */
#include "config.h"
#include "kernels/cpu/isa.h"

#include <math.h>

#include "kernels/backend.h"
#include "kernels/cpu/gdn.h"
#include "kernels/cpu/tile.h"

enum { D = BE_DN_DIM, B = BE_BLOCK };

static int channels_of(const struct gdn_args *a)
{
    return (2 * a->k_heads + a->v_heads) * D;
}

/* x *= rsqrt(sum(x^2) + 1e-6) * scale */
static void l2_norm(float *x, float scale)
{
    v16 sum = v16_zero();
    for (int i = 0; i < D; i += 16) {
        v16 v = v16_load(x + i);
        sum = v16_fma(v, v, sum);
    }
    v16 s = v16_set1(scale / sqrtf(v16_sum(sum) + 1e-6F));
    for (int i = 0; i < D; i += 16) {
        v16_store(x + i, v16_mul(v16_load(x + i), s));
    }
}

/* Sixteen channels of one span, history in registers. */
static void conv_span(const struct gdn_args *a, const struct gdn_span *sp, int ch)
{
    const size_t ld = (size_t)channels_of(a);
    float taps[BE_CONV][16];
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < BE_CONV; j++) {
            taps[j][i] = a->conv_w[(size_t)(ch + i) * BE_CONV + (size_t)j];
        }
    }
    v16 w0 = v16_load(taps[0]);
    v16 w1 = v16_load(taps[1]);
    v16 w2 = v16_load(taps[2]);
    v16 w3 = v16_load(taps[3]);
    float *state = sp->conv + ch;
    v16 x0 = v16_load(state);
    v16 x1 = v16_load(state + ld);
    v16 x2 = v16_load(state + 2 * ld);
    for (int t = sp->first; t < sp->first + sp->n; t++) {
        v16 x3 = v16_load(a->qkv + (size_t)t * ld + ch);
        v16 y = v16_fma(w2, x2, v16_fma(w1, x1, v16_mul(w0, x0)));
        v16_store(a->c + (size_t)t * ld + ch, v16_silu(v16_fma(w3, x3, y)));
        x0 = x1;
        x1 = x2;
        x2 = x3;
    }
    if (!a->hold) {
        v16_store(state, x0);
        v16_store(state + ld, x1);
        v16_store(state + 2 * ld, x2);
    }
}

void ISA(gdn_conv)(const struct gdn_args *a, int tid, int nt)
{
    const size_t ld = (size_t)channels_of(a);
    for (int head = tid; head < 2 * a->k_heads + a->v_heads; head += nt) {
        for (int i = 0; i < a->n_spans; i++) {
            const struct gdn_span *sp = &a->span[i];
            for (int ch = head * D; ch < (head + 1) * D; ch += 16) {
                conv_span(a, sp, ch);
            }
            if (head >= 2 * a->k_heads) {
                continue;
            }
            float scale = head < a->k_heads ? 0.08838834764831845F : 1; /* q: 128^-1/2 */
            for (int t = sp->first; t < sp->first + sp->n; t++) {
                l2_norm(a->c + (size_t)t * ld + (size_t)head * D, scale);
            }
        }
    }
}

/* ---- one head ---- */

struct head {
    const struct gdn_args *a;
    int index;
    size_t ld;              /* of q, k, v */
    const float *q, *k, *v; /* row 0 of the batch */
    float *s;               /* [128 key][128 value] */
};

static float beta_of(const struct head *h, int t)
{
    const struct gdn_args *a = h->a;
    return 1 / (1 + expf(-a->b[(size_t)t * (size_t)a->v_heads + (size_t)h->index]));
}

/* Logarithm of the decay, not above 0. */
static float decay_of(const struct head *h, int t)
{
    const struct gdn_args *a = h->a;
    float u = a->a[(size_t)t * (size_t)a->v_heads + (size_t)h->index] + a->dt_bias[h->index];
    return a->a_log[h->index] * (u > 20 ? u : log1pf(expf(u)));
}

/* y = rms(o) * gnorm * silu(z); o may be y's place */
static void gated_norm(const struct head *h, int t, const float *o)
{
    const struct gdn_args *a = h->a;
    const size_t at = ((size_t)t * (size_t)a->v_heads + (size_t)h->index) * D;
    float *y = a->y + at;
    ISA(norm_row)(o, a->gnorm, a->eps, D, y);
    for (int i = 0; i < D; i += 16) {
        v16_store(y + i, v16_mul(v16_load(y + i), v16_silu(v16_load(a->z + at + i))));
    }
}

/* Columns that a step works on at a time. */
enum { VECTORS = V16_TILE > 1 ? 4 : 2, COLUMNS = 16 * VECTORS };

/* What rows of a step from `first` do to a head's state; first < 0: nothing yet. */
struct gates {
    int first;
    float decay[BE_MAX_ROWS], beta[BE_MAX_ROWS];
};

static void gates_of(const struct head *h, int t, int n, struct gates *g)
{
    for (int i = 0; i < n && g->first != t; i++) {
        g->decay[i] = expf(decay_of(h, t + i));
        g->beta[i] = beta_of(h, t + i);
    }
    g->first = t;
}

/* One row of some columns, s[key * ld + column]: the state is written, read with q into
 * out and, for the row after it, with k1 into acc, both in one pass. fresh: the state
 * is still to decay; otherwise the row before did that when it wrote. more: there is a
 * row after it. */
ALWAYS_INLINE void step_row(float *s, const size_t ld, const float *k, const float *q,
                            const float *k1, const v16 *u, v16 decay, v16 decay1, const bool fresh,
                            const bool more, const bool outputs, const float *next, v16 *acc,
                            v16 *out)
{
    for (size_t d = 0; d < D; d++) {
        const v16 kd = v16_set1(k[d]);
        const v16 qd = v16_set1(q[d]);
        const v16 kd1 = v16_set1(k1[d]);
        UNROLL for (int i = 0; i < VECTORS; i++)
        {
            float *at = s + d * ld + 16 * i;
            const v16 before = v16_load(at);
            v16 x = v16_fma(kd, u[i], fresh ? v16_mul(before, decay) : before);
            if (outputs) {
                out[i] = v16_fma(qd, x, out[i]);
            }
            if (more) {
                x = v16_mul(x, decay1);
                acc[i] = v16_fma(kd1, x, acc[i]);
            } else if (next) {
                __builtin_prefetch(next + d * D + 16 * i, 1, 2);
            }
            v16_store(at, x);
        }
    }
}

/* Rows t .. t + n of some columns, as many as have gates. Outputs go to o[row * ldo]; next:
 * memory wanted after this. */
ALWAYS_INLINE void few_rows(const struct head *h, const struct gates *g, int t, int n, int column,
                            float *s, const size_t ld, const bool outputs, float *o, size_t ldo,
                            const float *next)
{
    v16 acc[VECTORS];
    const v16 decay = v16_set1(g->decay[0]);
    const float *k = h->k + (size_t)t * h->ld;
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
        acc[i] = v16_zero();
    }
    for (size_t d = 0; d < D; d++) {
        v16 kd = v16_set1(k[d]);
        UNROLL for (int i = 0; i < VECTORS; i++)
        {
            acc[i] = v16_fma(kd, v16_mul(v16_load(s + d * ld + 16 * i), decay), acc[i]);
        }
    }
    for (int j = 0; j < n; j++) {
        const bool more = j + 1 < n;
        const float *q = h->q + (size_t)(t + j) * h->ld;
        const float *v = h->v + (size_t)(t + j) * h->ld + column;
        const float *k1 = more ? k + h->ld : k;
        const v16 decay1 = v16_set1(g->decay[more ? j + 1 : j]);
        const v16 beta = v16_set1(g->beta[j]);
        v16 u[VECTORS];
        v16 out[VECTORS];
        UNROLL for (int i = 0; i < VECTORS; i++)
        {
            u[i] = v16_mul(beta, v16_sub(v16_load(v + 16 * i), acc[i]));
            acc[i] = v16_zero();
            out[i] = acc[i];
        }
#define ROW(fresh, more)                                                                           \
    step_row(s, ld, k, q, k1, u, decay, decay1, fresh, more, outputs, next, acc, out)
        if (j > 0 && more) {
            ROW(false, true);
        } else if (j > 0) {
            ROW(false, false);
        } else if (more) {
            ROW(true, true);
        } else {
            ROW(true, false);
        }
#undef ROW
        UNROLL for (int i = 0; outputs && i < VECTORS; i++)
        {
            v16_store(o + 16 * i, out[i]);
        }
        o += ldo;
        k = k1;
    }
}

/* The same for any number of rows, whose gates become those of the last. */
ALWAYS_INLINE void step_columns(const struct head *h, struct gates *g, int t, int n, int column,
                                float *s, const size_t ld, const bool outputs, float *o, size_t ldo,
                                const float *next)
{
    for (int i = 0; i < n; i += BE_MAX_ROWS) {
        const int m = n - i < BE_MAX_ROWS ? n - i : BE_MAX_ROWS;
        gates_of(h, t + i, m, g);
        few_rows(h, g, t + i, m, column, s, ld, outputs, outputs ? o + (size_t)i * ldo : NULL, ldo,
                 i + m == n ? next : NULL);
    }
}

/* Rows t .. t + n. With scratch the state is worked on there and stays. */
static void steps(const struct head *h, int t, int n, float *scratch)
{
    const struct gdn_args *a = h->a;
    const size_t ldo = (size_t)a->v_heads * D;
    float *y = a->y + (size_t)t * ldo + (size_t)h->index * D;
    struct gates g = {.first = -1};
    for (int c = 0; c < D; c += COLUMNS) {
        float *s = h->s + c;
        if (scratch) {
            for (size_t d = 0; d < D; d++) {
                memcpy(scratch + d * COLUMNS, s + d * D, COLUMNS * sizeof *s);
            }
            step_columns(h, &g, t, n, c, scratch, COLUMNS, true, y + c, ldo, NULL);
        } else {
            const float *next = c + COLUMNS < D ? s + COLUMNS : h->s + D * D;
            step_columns(h, &g, t, n, c, s, D, true, y + c, ldo, next);
        }
    }
    for (int i = 0; i < n; i++) {
        gated_norm(h, t + i, y + (size_t)i * ldo);
    }
}

/* c[rows][128] += a[rows][n] b[n][128] for a run-time number of rows. */
static void add_product(int rows, const float *a, size_t ar, size_t at, const float *b, int n,
                        float *c)
{
    for (int r = 0; r < rows; r += V16_TILE) {
        int m = rows - r < V16_TILE ? rows - r : V16_TILE;
        for (int i = 0; i < D; i += 64) {
#define AXPY(R)                                                                                    \
    tile_axpy(R, BE_KV_F32, a + (size_t)r * ar, ar, at, b + i, D, (size_t)n,                       \
              c + (size_t)r * D + i, D)
            TILE_SWITCH(m, AXPY);
#undef AXPY
        }
    }
}

/* The same with a lower triangular a [n][64]: row i adds rows j < i + diagonal
 * of b. b may be c itself when diagonal is 0. */
static void add_triangular(int n, const float *a, const float *b, float *c, int diagonal)
{
    for (int i = 0; i < n; i += V16_TILE) {
        int m = n - i < V16_TILE ? n - i : V16_TILE;
        int common = i + diagonal;
        add_product(m, a + i * B, B, 1, b, common, c + i * D);
        for (int r = i + 1; r < i + m; r++) {
            add_product(1, a + r * B + common, B, 1, b + common * D, r - i, c + r * D);
        }
    }
}

/* out[i][j] = x[i] k[j]^T for j <= i (entries right of the diagonal are junk). */
static void products(const float *x, const float *k, size_t ld, int n, float *out)
{
    for (int i = 0; i < n; i += V16_TILE) {
        int m = n - i < V16_TILE ? n - i : V16_TILE;
        for (int j = 0; j < i + m; j += 4) {
            float y[V16_TILE][4] = {{0}};
#define DOT(R) tile_dot(R, BE_KV_F32, k + (size_t)j * ld, 16, ld, x + (size_t)i * ld, ld, D / 16, y)
            TILE_SWITCH(m, DOT);
#undef DOT
            for (int r = 0; r < m; r++) {
                memcpy(out + (i + r) * B + j, y[r], sizeof y[r]);
            }
        }
    }
}

/* Rows t0 .. t0 + n of one block, n <= 64. */
static void block(const struct head *h, int t0, int n, float *scratch)
{
    float *nv = scratch; /* new values */
    float *o = nv + B * D;
    float *kd = o + B * D;
    float *am = kd + B * D; /* -A, strictly lower */
    float *pm = am + B * B; /* masked and decayed q k^T */
    const float *q = h->q + (size_t)t0 * h->ld;
    const float *k = h->k + (size_t)t0 * h->ld;
    const float *v = h->v + (size_t)t0 * h->ld;
    float beta[B];
    /* Sum of log decays up to each row as g + low: strong decay makes the sums
     * large, and only their differences count. */
    float g[B] = {0};
    float low[B] = {0};
    float eg[B];
    double sum = 0;
    for (int i = 0; i < n; i++) {
        beta[i] = beta_of(h, t0 + i);
        sum += (double)decay_of(h, t0 + i);
        g[i] = (float)sum;
        low[i] = (float)(sum - (double)g[i]);
        eg[i] = expf(g[i]);
    }
    products(k, k, h->ld, n, am);
    products(q, k, h->ld, n, pm);
    for (int i = 0; i < n; i++) {
        const v16 gi = v16_set1(g[i]);
        const v16 li = v16_set1(low[i]);
        const v16 nb = v16_set1(-beta[i]);
        for (int j = 0; j <= i; j += 16) {
            v16 d = v16_add(v16_sub(gi, v16_load(g + j)), v16_sub(li, v16_load(low + j)));
            d = v16_exp(d);
            float *a = am + i * B + j;
            float *p = pm + i * B + j;
            v16_store(a, v16_mul(v16_mul(v16_load(a), d), nb));
            v16_store(p, v16_mul(v16_load(p), d));
        }
    }
    memset(nv, 0, (size_t)n * D * sizeof *nv);
    memset(o, 0, (size_t)n * D * sizeof *o);
    add_product(n, k, h->ld, 1, h->s, D, nv);
    add_product(n, q, h->ld, 1, h->s, D, o);
    for (int i = 0; i < n; i++) {
        const v16 e = v16_set1(eg[i]);
        const v16 b = v16_set1(beta[i]);
        const v16 last = v16_set1(expf((g[n - 1] - g[i]) + (low[n - 1] - low[i])));
        for (int d = 0; d < D; d += 16) {
            float *x = nv + i * D + d;
            v16 ks = v16_mul(e, v16_load(x));
            v16_store(x, v16_mul(b, v16_sub(v16_load(v + (size_t)i * h->ld + d), ks)));
            v16_store(o + i * D + d, v16_mul(e, v16_load(o + i * D + d)));
            v16_store(kd + i * D + d, v16_mul(last, v16_load(k + (size_t)i * h->ld + d)));
        }
    }
    add_triangular(n, am, nv, nv, 0);
    add_triangular(n, pm, nv, o, 1);
    const v16 e = v16_set1(eg[n - 1]);
    for (int i = 0; i < D * D; i += 16) {
        v16_store(h->s + i, v16_mul(e, v16_load(h->s + i)));
    }
    add_product(D, kd, 1, D, nv, n, h->s);
    for (int i = 0; i < n; i++) {
        gated_norm(h, t0 + i, o + i * D);
    }
}

/* Value head i over the rows of a span. */
static struct head head_of(const struct gdn_args *a, const struct gdn_span *sp, int i)
{
    const int share = a->v_heads / a->k_heads;
    return (struct head){
        .a = a,
        .index = i,
        .ld = (size_t)channels_of(a),
        .q = a->c + (size_t)(i / share) * D,
        .k = a->c + (size_t)(a->k_heads + i / share) * D,
        .v = a->c + (size_t)(2 * a->k_heads + i) * D,
        .s = sp->s + (size_t)i * D * D,
    };
}

void ISA(gdn)(const struct gdn_args *a, float *scratch, int tid, int nt)
{
    for (int unit = tid; unit < a->n_spans * a->v_heads; unit += nt) {
        const struct gdn_span *sp = &a->span[unit / a->v_heads];
        const struct head h = head_of(a, sp, unit % a->v_heads);
        if (a->steps) {
            steps(&h, sp->first, sp->n, a->hold ? scratch : NULL);
            continue;
        }
        for (int t = 0; t < sp->n;) {
            int to_grid = B - (sp->pos + t) % B;
            int n = sp->n - t < to_grid ? sp->n - t : to_grid;
            block(&h, sp->first + t, n, scratch);
            t += n;
        }
    }
}

void ISA(gdn_fold)(const struct gdn_args *a, int tid, int nt)
{
    for (int unit = tid; unit < a->n_spans * a->v_heads; unit += nt) {
        const struct gdn_span *sp = &a->span[unit / a->v_heads];
        const struct head h = head_of(a, sp, unit % a->v_heads);
        struct gates g = {.first = -1};
        for (int c = 0; sp->n > 0 && c < D; c += COLUMNS) {
            step_columns(&h, &g, sp->first, sp->n, c, h.s + c, D, false, NULL, 0, NULL);
        }
    }
}
