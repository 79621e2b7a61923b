#ifndef QUASAR_TESTS_CUDA_ATTN_PROBE_H
#define QUASAR_TESTS_CUDA_ATTN_PROBE_H

/*
 * t_cuda_attn --probe [key=value ...]: decode attention looked at from inside. For depths
 * from 0 up, with every path, cache and some divisions of the work, the partial results
 * of all units and groups that a launch left in its work memory are compared with sums
 * made here, then the rows. What is wrong is printed: where, and of what it is made. Keys:
 * path (80, 90), kv (16, 8), rows, heads (key heads), depth (only these), most (no depth
 * above), lines (of details in all).
 */

#include "kernels/cuda/attn_units.cuh"

struct probe {
    int kv_heads, most, lines;
    int filled; /* positions in the cache */
    enum be_kv kv;
    struct layer l;
    struct seq s;
    float *k, *v; /* [head][split] of 256 x 128, and [head][position][256] */
};

enum { P_GROUP = 6, P_ROWS = 16 };

/* Sums over one split for one query, with weights relative to the split's maximum. */
struct psum {
    double m, l, o[D];
};

static float probe_round(enum be_kv kv, float x)
{
    if (kv == BE_KV_F16) {
        return cut_float(cut_half(x));
    }
    int best = 0;
    for (int i = 0; i < 127; i++) {
        const double a = fabs(f8[i] - fabsf(x)), b = fabs(f8[best] - fabsf(x));
        best = a < b || (a == b && i % 2 == 0) ? i : best;
    }
    return (float)(x < 0 ? -f8[best] : f8[best]);
}

static float *probe_k(const struct probe *p, int head, int pos, int d)
{
    const size_t splits = (size_t)(p->most + P_ROWS) / AT_SPLIT + 1;
    return p->k + (((size_t)head * splits + (size_t)(pos / AT_SPLIT)) * D + (size_t)d) * AT_SPLIT +
           pos % AT_SPLIT;
}

static float *probe_v(const struct probe *p, int head, int pos)
{
    return p->v + ((size_t)head * (size_t)(p->most + P_ROWS) + (size_t)pos) * D;
}

static void probe_store(struct probe *p, int pos, int which, int head, int d, float x)
{
    const struct layer *l = &p->l;
    uint8_t *to = l->image + place(l, p->s.pages[pos / BE_PAGE], which, head, pos % BE_PAGE, d);
    const uint16_t half = cut_half(x);
    if (l->kv == BE_KV_F8) {
        *to = (uint8_t)(half % 64 | (half & 128));
        x = (float)f8[*to];
    } else {
        memcpy(to, &half, sizeof half);
        x = cut_float(half);
    }
    *(which ? probe_v(p, head, pos) + d : probe_k(p, head, pos, d)) = x;
}

static void probe_init(struct probe *p)
{
    const size_t rows = (size_t)(p->most + P_ROWS), splits = rows / AT_SPLIT + 1;
    layer_init(&p->l, P_GROUP * p->kv_heads, p->kv_heads, p->kv, CU_SM80,
               p->most + P_ROWS > PAGES * BE_PAGE ? p->most + P_ROWS : PAGES * BE_PAGE);
    shuffle_pages(&p->l, &p->s, 1, (int)p->l.pages);
    p->k = cut_host<float>((size_t)p->kv_heads * splits * D * AT_SPLIT);
    p->v = cut_host<float>((size_t)p->kv_heads * rows * D);
    for (int pos = 0; pos < p->most; pos++) {
        for (int h = 0; h < 2 * p->kv_heads; h++) {
            for (int d = 0; d < D; d++) {
                probe_store(p, pos, h / p->kv_heads, h % p->kv_heads, d,
                            (float)(cut_random() >> 40) * 0x1p-22f - 2);
            }
        }
    }
}

/* Positions base ... base + n - 1 are this step's; none in the cache. */
static void probe_seq(struct probe *p, int base, int n)
{
    const struct layer *l = &p->l;
    seq_init(l, &p->s, base, n);
    const size_t element = l->kv == BE_KV_F8 ? 1 : 2;
    for (int pos = base; pos < base + n; pos++) {
        for (int h = 0; h < p->kv_heads; h++) {
            const float *in = p->s.proj + (size_t)(pos - base) * l->ld;
            double k[D];
            turned(in + l->col_k + h * D, l->k_norm, p->s.rot + (pos - base) * 64, k);
            for (int d = 0; d < D; d++) {
                *probe_k(p, h, pos, d) = probe_round(l->kv, (float)k[d]);
                probe_v(p, h, pos)[d] = probe_round(l->kv, in[l->col_v + h * D + d]);
            }
        }
    }
    for (int pos = base; pos < p->filled; pos++) {
        for (int h = 0; h < 2 * p->kv_heads; h++) {
            for (int d = 0; d < D; d++) {
                memset(l->image + place(l, p->s.pages[pos / BE_PAGE], h / p->kv_heads,
                                        h % p->kv_heads, pos % BE_PAGE, d),
                       0xff, element);
            }
        }
    }
    p->filled = base < p->filled ? base : p->filled;
}

/* All splits for one query. */
static struct psum *probe_sums(const struct probe *p, int row, int head, int q)
{
    const struct layer *l = &p->l;
    const int pos = p->s.base + row, splits = pos / AT_SPLIT + 1;
    struct psum *out = cut_host<struct psum>((size_t)splits);
    double turn[D];
    float w[D];
    turned(p->s.proj + (size_t)row * l->ld + l->col_q + (head * P_GROUP + q) * 2 * D, l->q_norm,
           p->s.rot + row * 64, turn);
    for (int d = 0; d < D; d++) {
        w[d] = cut_float(cut_half((float)turn[d]));
    }
    for (int s = 0; s < splits; s++) {
        const int n = pos + 1 - s * AT_SPLIT < AT_SPLIT ? pos + 1 - s * AT_SPLIT : AT_SPLIT;
        float e[AT_SPLIT] = {}, o[D] = {}, m = -INFINITY;
        for (int d = 0; d < D; d++) {
            const float *k = probe_k(p, head, s * AT_SPLIT, d);
            for (int t = 0; t < AT_SPLIT; t++) {
                e[t] += w[d] * k[t];
            }
        }
        for (int t = 0; t < n; t++) {
            e[t] *= AT_SCALE;
            m = e[t] > m ? e[t] : m;
        }
        for (int t = 0; t < n; t++) {
            const float x = exp2f(e[t] - m), *v = probe_v(p, head, s * AT_SPLIT + t);
            out[s].l += x;
            for (int d = 0; d < D; d++) {
                o[d] += x * v[d];
            }
        }
        out[s].m = m;
        for (int d = 0; d < D; d++) {
            out[s].o[d] = o[d];
        }
    }
    return out;
}

static struct psum probe_merge(const struct psum *s, int n)
{
    struct psum r = {};
    r.m = -INFINITY;
    for (int i = 0; i < n; i++) {
        r.m = s[i].m > r.m ? s[i].m : r.m;
    }
    for (int i = 0; i < n && r.m > -INFINITY; i++) {
        const double w = exp2(s[i].m - r.m);
        r.l += w * s[i].l;
        for (int d = 0; d < D; d++) {
            r.o[d] += w * s[i].o[d];
        }
    }
    return r;
}

/* Query number q (of 8) of a tile of results. */
static struct psum probe_tile(const struct probe *p, const float *o, const float *ml, int q)
{
    struct psum r = {};
    r.m = ml[q / 2 * 4 + q % 2 * 2];
    r.l = ml[q / 2 * 4 + q % 2 * 2 + 1];
    for (int d = 0; d < D; d++) {
        const int e = d % 16, f8e = p->kv == BE_KV_F8;
        const int g = f8e ? e / 2 : e % 8, up = f8e ? e % 2 : e / 8;
        r.o[d] = o[d / 16 * 128 + (4 * g + q / 2) * 4 + up * 2 + q % 2];
    }
    return r;
}

static bool probe_near(const struct psum *got, const struct psum *want, double tol)
{
    if (!(want->m > -INFINITY)) { /* nothing of it is seen */
        return got->m == -INFINITY && got->l == 0;
    }
    double err = 0, ref = 0;
    for (int d = 0; d < D; d++) {
        err += (got->o[d] - want->o[d]) * (got->o[d] - want->o[d]);
        ref += want->o[d] * want->o[d];
    }
    return fabs(got->m - want->m) <= 0.02 && fabs(got->l - want->l) <= tol * want->l &&
           err <= tol * tol * ref;
}

/* Prints of how much of each of n parts (weighted as they should be) a sum is made, by
 * least squares: 1 each, and nothing left over, where it is right. */
static void probe_made_of(const struct psum *got, const struct psum *part, int n, double m)
{
    double a[16][17] = {}, left = 0, all = 0;
    n = n < 16 ? n : 16;
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < D; d++) {
            const double x = exp2(part[i].m - m) * part[i].o[d];
            for (int j = 0; j < n; j++) {
                a[i][j] += x * exp2(part[j].m - m) * part[j].o[d];
            }
            a[i][n] += x * got->o[d];
        }
    }
    for (int i = 0; i < n; i++) {
        const double r = a[i][i] != 0 ? 1 / a[i][i] : 0;
        for (int j = 0; j < n; j++) {
            const double f = j != i ? a[j][i] * r : 0;
            for (int k = i; k <= n; k++) {
                a[j][k] -= f * a[i][k];
            }
        }
    }
    printf("; made of");
    for (int i = 0; i < n; i++) {
        printf(" %.3f", a[i][i] != 0 ? a[i][n] / a[i][i] : 0);
    }
    for (int d = 0; d < D; d++) {
        double x = got->o[d];
        for (int i = 0; i < n; i++) {
            x -= (a[i][i] != 0 ? a[i][n] / a[i][i] : 0) * exp2(part[i].m - m) * part[i].o[d];
        }
        left += x * x;
        all += got->o[d] * got->o[d];
    }
    printf(", left over %.3f", sqrt(left / all));
}

static void probe_say(struct probe *p, const char *what, const struct psum *got,
                      const struct psum *want, const struct psum *part, int n)
{
    if (p->lines <= 0) {
        return;
    }
    p->lines--;
    int nan = 0, first = -1;
    double a = 0, b = 0;
    for (int d = 0; d < D; d++) {
        const bool bad = !(fabs(got->o[d]) <= 3e38);
        nan += bad;
        first = first < 0 && (bad || fabs(got->o[d] - want->o[d]) > 0.02 * want->l) ? d : first;
        a += bad ? 0 : got->o[d] * got->o[d];
        b += want->o[d] * want->o[d];
    }
    printf("#   %s: max %.4f (%.4f), sum %.5g (%.5g), o x %.4f, %d not finite, first wrong [%d] "
           "%.4g (%.4g)",
           what, got->m, want->m, got->l, want->l, sqrt(a / b), nan, first,
           first < 0 ? 0 : got->o[first], first < 0 ? 0 : want->o[first]);
    if (nan == 0 && n > 0 && want->m > -INFINITY) {
        probe_made_of(got, part, n, want->m);
    }
    printf("\n");
}

/* Rows of a job as attn_units.cuh's make_jobs divides one span. */
static int probe_job_rows(int rows, int pos, int kv_heads, int grid, int tiles)
{
    const int splits = ((pos + rows - 1) / AT_SPLIT + 1) * kv_heads, want = grid / splits;
    const int most = tiles * 8 / P_GROUP;
    int parts = (rows + most - 1) / most;
    parts = parts > want ? parts : want < rows ? want : rows;
    return (rows + parts - 1) / parts;
}

/* One launch, looked at. sums: [row][head][q], of splits. */
static void probe_one(struct probe *p, enum cu_path path, int n, const struct attn_tune *tune,
                      struct psum *const *sums)
{
    struct layer *l = &p->l;
    const int base = p->s.base, kvh = p->kv_heads;
    struct cu_ctx *c = cut_ctx(path, true);
    const struct cu_span span = {0, n, base, 0, 0, 0};
    const int32_t count[2] = {n, 1};
    const size_t width = (size_t)l->q_heads * D;
    struct cu_batch b = {};
    b.count = cut_upload(count, 2);
    b.span = cut_upload(&span, 1);
    b.page = cut_upload(p->s.pages, (size_t)((base + n - 1) / BE_PAGE + 1));
    b.rot = cut_upload(p->s.rot, (size_t)n * 64);
    b.rows = n;
    b.spans = 1;
    b.mode = BE_DECODE;
    struct cu_attn a = {};
    a.q_heads = l->q_heads;
    a.kv_heads = kvh;
    a.eps = 1e-6f;
    a.proj = cut_upload(p->s.proj, (size_t)n * l->ld);
    a.ld = l->ld;
    a.col_q = l->col_q;
    a.col_k = l->col_k;
    a.col_v = l->col_v;
    a.q_norm = l->d_q_norm;
    a.k_norm = l->d_k_norm;
    a.kv = l->kv;
    a.cache = l->cache;
    a.page_stride = l->page_bytes;
    a.act.x = cut_new<uint16_t>(CU_ROWS * width);
    a.act.sum = cut_new<float>(width / 32 * CU_ROWS);
    a.work = l->work;
    a.max_ctx = base + n;
    const struct attn_layout w = attn_layout_of(kvh, a.max_ctx, n);
    cut_poison((uint8_t *)l->work + w.part, w.size - w.part);
    cut_must(attn_decode_tuned(c, &b, &a, tune), "attention");
    uint8_t *work = cut_host<uint8_t>(w.size);
    uint16_t *x = cut_host<uint16_t>((size_t)n * width);
    cut_download(work, (const uint8_t *)l->work, w.size);
    cut_download(x, a.act.x, (size_t)n * width);

    const int grid = (int)c->n_sm; /* as the kernel has it by itself */
    const int split_max = kvh * ((a.max_ctx + AT_SPLIT - 1) / AT_SPLIT) * n;
    const int blocks0 = tune->grid ? tune->grid : grid,
              blocks = blocks0 < split_max ? blocks0 : split_max;
    const int job_rows = probe_job_rows(n, base, kvh, blocks, tune->tiles);
    int bad_counters = 0, bad_units = 0, bad_groups = 0, bad_rows = 0, all_units = 0;
    char what[256], name[128];
    snprintf(name, sizeof name, "%s %s depth %d rows %d key heads %d, grid %d slots %d tiles %d",
             cut_path_name(path), p->kv == BE_KV_F8 ? "fp8" : "fp16", base, n, kvh, blocks,
             tune->slots, tune->tiles);
    const int lines = p->lines;
    p->lines = lines < 10 ? lines : 10;
    const uint32_t *counter = (const uint32_t *)work;
    for (int i = 0; i < n * kvh * AT_GROUPS_MAX; i++) {
        if (counter[i] != 0 && bad_counters++ < 3) {
            printf("#   counter of row %d, head %d, group %d is %u\n", i / AT_GROUPS_MAX / kvh,
                   i / AT_GROUPS_MAX % kvh, i % AT_GROUPS_MAX, counter[i]);
        }
    }
    cut_must(cudaMemset(l->work, 0, w.part), "cudaMemset");
    int work_base = 0;
    for (int first = 0; first < n; first += job_rows) {
        const int jn = n - first < job_rows ? n - first : job_rows;
        const int splits = (base + first + jn - 1) / AT_SPLIT + 1;
        const int units = unit_of(splits - 1) + 1, groups = (units + AT_GROUP - 1) / AT_GROUP;
        for (int row = first; row < first + jn; row++) {
            for (int h = 0; h < kvh; h++) {
                for (int q = 0; q < P_GROUP; q++) {
                    const struct psum *s = sums[(row * kvh + h) * P_GROUP + q];
                    const int mine = (base + row) / AT_SPLIT + 1; /* splits that it sees */
                    const int qn = (row - first) * P_GROUP + q;
                    struct psum *unit = cut_host<struct psum>((size_t)units);
                    struct psum *group = cut_host<struct psum>((size_t)groups);
                    struct psum got_unit[AT_GROUPS_MAX * AT_GROUP / 2],
                        *got_group = cut_host<struct psum>((size_t)groups);
                    for (int u = 0; u < units; u++) {
                        const int from = unit_first(u);
                        int to = unit_first(u + 1) < mine ? unit_first(u + 1) : mine;
                        to = to > from ? to : from;
                        unit[u] = probe_merge(s + from, to - from);
                        const size_t tile = ((size_t)h * (size_t)w.units + (size_t)u) * (size_t)n +
                                            (size_t)(first + qn / 8);
                        got_unit[u] =
                            probe_tile(p, (const float *)(work + w.part) + tile * AT_TILE,
                                       (const float *)(work + w.part_ml) + tile * 16, qn % 8);
                        all_units++;
                        if (splits > 1 && !probe_near(&got_unit[u], &unit[u], 0.01)) {
                            const int at = work_base + h * splits + from;
                            const int total = work_base + kvh * splits;
                            bad_units++;
                            snprintf(what, sizeof what,
                                     "row %d head %d.%d unit %d (splits %d..%d, block %d or so)",
                                     row, h, q, u, from, to - 1,
                                     (int)((int64_t)at * blocks / (total > 0 ? total : 1)));
                            probe_say(p, what, &got_unit[u], &unit[u], s + from, to - from);
                        }
                    }
                    for (int k = 0; k < groups; k++) {
                        const int from = k * AT_GROUP;
                        const int un = units - from < AT_GROUP ? units - from : AT_GROUP;
                        group[k] = probe_merge(unit + from, un);
                        const size_t tile = ((size_t)h * (size_t)w.groups + (size_t)k) * (size_t)n +
                                            (size_t)(first + qn / 8);
                        got_group[k] =
                            probe_tile(p, (const float *)(work + w.whole) + tile * AT_TILE,
                                       (const float *)(work + w.whole_ml) + tile * 16, qn % 8);
                        const struct psum as_is = probe_merge(got_unit + from, un);
                        if (groups > 1 && !probe_near(&got_group[k], &group[k], 0.01)) {
                            bad_groups++;
                            snprintf(what, sizeof what, "row %d head %d.%d group %d (%s)", row, h,
                                     q, k,
                                     probe_near(&got_group[k], &as_is, 0.001)
                                         ? "what its units give"
                                         : "not what its units give");
                            probe_say(p, what, &got_group[k], &group[k], unit + from, un);
                        }
                    }
                    struct psum want = probe_merge(group, groups), got = want;
                    const float *gate =
                        p->s.proj + (size_t)row * l->ld + l->col_q + (h * P_GROUP + q) * 2 * D + D;
                    double err = 0, ref = 0;
                    for (int d = 0; d < D; d++) {
                        const double sig = 1 / (1 + exp(-(double)gate[d]));
                        const double v =
                            cut_float(x[(size_t)row * width + (size_t)((h * P_GROUP + q) * D + d)]);
                        const double e = v - want.o[d] / want.l * sig;
                        err += e * e;
                        ref += want.o[d] / want.l * sig * (want.o[d] / want.l * sig);
                        got.o[d] = v / sig * want.l;
                    }
                    if (!(err <= 2e-5 * ref)) {
                        bad_rows++;
                        snprintf(what, sizeof what, "row %d head %d.%d result", row, h, q);
                        probe_say(p, what, &got, &want, group, groups < 16 ? groups : 0);
                    }
                    free(unit);
                    free(group);
                    free(got_group);
                }
            }
        }
        work_base += kvh * splits;
    }
    p->lines = lines - (10 - p->lines < lines ? 10 - p->lines : lines);
    cut_ok(bad_counters + bad_units + bad_groups + bad_rows == 0,
           "%s: wrong: %d of %d units, %d groups, %d of %d heads, %d counters", name, bad_units,
           all_units, bad_groups, bad_rows, n * l->q_heads, bad_counters);
    cut_free((void *)b.count);
    cut_free((void *)b.span);
    cut_free((void *)b.page);
    cut_free(b.rot);
    cut_free((void *)a.proj);
    cut_free(a.act.x);
    cut_free(a.act.sum);
    free(work);
    free(x);
}

/* All ways to divide a step of n rows at this depth. */
static void probe_depth(struct probe *p, int depth, int n, const enum cu_path *path, int paths)
{
    probe_seq(p, depth, n);
    cut_put(p->l.cache, p->l.image, p->l.pages * p->l.page_bytes);
    struct psum **sums = cut_host<struct psum *>((size_t)(n * p->l.q_heads));
    for (int i = 0; i < n * p->l.q_heads; i++) {
        sums[i] = probe_sums(p, i / p->l.q_heads, i % p->l.q_heads / P_GROUP, i % P_GROUP);
    }
    static const struct attn_tune ways[] = {{1, 0, 0, 1, 0},  {1, 0, 0, 3, 0},  {1, 0, 0, 6, 0},
                                            {1, 0, 0, 12, 0}, {1, 0, 1, 1, 0},  {1, 2, 37, 3, 0},
                                            {1, 3, 1, 6, 0},  {1, 2, 23, 12, 0}};
    for (int i = 0; i < paths; i++) {
        int room = 0;
        cut_must(attn_smem_limit(cut_ctx(path[i], true), &room), "shared memory");
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            if (ways[k].tiles > 3 && room < 200 << 10) {
                continue; /* a kernel of fewer tiles may run */
            }
            probe_one(p, path[i], n, &ways[k], sums);
        }
    }
    for (int i = 0; i < n * p->l.q_heads; i++) {
        free(sums[i]);
    }
    free(sums);
    seq_free(&p->s);
}

static int probe_all(int argc, char **arg)
{
    static const int by_itself[] = {65500, 33000, 17003, 16384, 16100, 12000, 8300,
                                    8190,  8063,  6000,  4400,  4100,  4000,  2100,
                                    1100,  1000,  500,   127,   0};
    int only_path = 0, only_kv = 0, only_rows = 0, heads = 2, depth = -1, most = 65500, lines = 120;
    const struct cut_key keys[] = {{"path", &only_path}, {"kv", &only_kv},  {"rows", &only_rows},
                                   {"heads", &heads},    {"depth", &depth}, {"most", &most},
                                   {"lines", &lines}};
    cut_keys(keys, sizeof keys / sizeof *keys, argc, arg);
    most = depth >= 0 ? depth : most;
    const int *depths = depth >= 0 ? &depth : by_itself;
    const size_t n_depths = depth >= 0 ? 1 : sizeof by_itself / sizeof *by_itself;
    enum cu_path path[2] = {CU_SM80, CU_SM80};
    int paths = cut_paths(path);
    if (only_path) {
        path[0] = only_path == 80 ? CU_SM80 : CU_SM90;
        paths = 1;
    }
    for (int i = 0; i < 2; i++) {
        struct probe p = {};
        p.kv = i ? BE_KV_F8 : BE_KV_F16;
        if (only_kv && (only_kv == 8) != (p.kv == BE_KV_F8)) {
            continue;
        }
        p.kv_heads = heads;
        p.most = p.filled = most;
        p.lines = lines;
        probe_init(&p);
        for (size_t k = 0; k < n_depths; k++) {
            static const int rows[] = {1, 4, 6, 8};
            for (size_t r = 0; r < sizeof rows / sizeof *rows && depths[k] <= most; r++) {
                if (only_rows ? rows[r] == only_rows : r == 0 || k % 4 == r) {
                    probe_depth(&p, depths[k], rows[r], path, paths);
                }
            }
        }
        layer_free(&p.l);
        free(p.k);
        free(p.v);
    }
    return cut_end();
}

#endif
