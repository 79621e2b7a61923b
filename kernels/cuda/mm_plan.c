/* The host plan of the weight-streaming product: slices of K, equal bytes for
 * every block, and the list of runs. */
#include "config.h"
#include "kernels/cuda/mm_plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICE_MAX = 64, /* a block's threads stage two offsets each */
    SLICE = 48,     /* steps: 98 KB of activations at 16 rows */
    SLICE_SM80 = 24,
    BY_TILE_FROM = 4,     /* tiles to a block from which a block keeps its tiles */
    SMEM_SM80 = 99 << 10, /* what every chip from sm_80 on gives a block */
    SMEM_SM90 = 227 << 10,
    PREFETCH = 96 << 10, /* what memory delivers while one product ends and the next begins */
    PREFETCH_ALONE = 128 << 10, /* the same where the next one's blocks have no room yet */
    STAGES_SM80 = 3,            /* fixed there */
    STAGES_MAX = 8
};

/* Steps a .. b - 1 of a tile, done by a block. */
struct piece {
    int block, tile, a, b;
    int first, last; /* of the block's pieces on this tile */
};

struct maker {
    struct cu_mm_plan *p;
    int slices;
    struct piece *piece;
    int n, cap;
    int block; /* being filled, up to block_end */
    int block_begin, block_end;
    double done, total; /* bytes of the group of blocks */
};

static int slice_begin(const struct maker *m, int s)
{
    return (int)((int64_t)m->p->kg * s / m->slices);
}

static int slice_of(const struct maker *m, int step)
{
    int s = (int)((int64_t)step * m->slices / m->p->kg);
    while (s + 1 < m->slices && slice_begin(m, s + 1) <= step) {
        s++;
    }
    while (slice_begin(m, s) > step) {
        s--;
    }
    return s;
}

static int mat_of(const struct cu_mm_plan *p, int tile)
{
    int m = p->n - 1;
    while (tile < p->tile0[m]) {
        m--;
    }
    return m;
}

static double step_bytes(const struct cu_mm_plan *p, int tile)
{
    return (double)cu_step_bytes(p->mat[mat_of(p, tile)].kind);
}

static void push(struct maker *m, int tile, int a, int b)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 256;
        m->piece = realloc(m->piece, (size_t)m->cap * sizeof *m->piece);
        if (!m->piece) {
            abort();
        }
    }
    m->piece[m->n++] = (struct piece){.block = m->block, .tile = tile, .a = a, .b = b};
}

/* Hands steps a .. b - 1 of a tile to the current block and, from the point where
 * it has its share, to the next. */
static void give(struct maker *m, int tile, int a, int b)
{
    const double bytes = step_bytes(m->p, tile);
    while (a < b) {
        const int blocks = m->block_end - m->block_begin;
        const double share = m->total * (m->block + 1 - m->block_begin) / blocks;
        int n = b - a;
        if (m->block + 1 < m->block_end) {
            const double room = (share - m->done) / bytes + 0.5;
            n = room < n ? (int)room : n;
        }
        if (n <= 0) {
            m->block++;
            continue;
        }
        push(m, tile, a, a + n);
        m->done += n * bytes;
        a += n;
    }
}

/* Bytes of all tiles for n steps. */
static double bytes_of(const struct cu_mm_plan *p, int n)
{
    double sum = 0;
    for (int i = 0; i < p->n; i++) {
        sum += (double)p->mat[i].tiles * n * (double)cu_step_bytes(p->mat[i].kind);
    }
    return sum;
}

static void group(struct maker *m, int begin, int end, double total)
{
    m->block = m->block_begin = begin;
    m->block_end = end;
    m->total = total;
    m->done = 0;
}

static void cut_by_slice(struct maker *m)
{
    const struct cu_mm_plan *p = m->p;
    const bool even = p->n_blocks % m->slices == 0;
    group(m, 0, p->n_blocks, bytes_of(p, p->kg));
    for (int s = 0; s < m->slices; s++) {
        const int a = slice_begin(m, s), b = slice_begin(m, s + 1);
        if (even) {
            const int each = p->n_blocks / m->slices;
            group(m, s * each, (s + 1) * each, bytes_of(p, b - a));
        }
        for (int t = 0; t < p->tiles; t++) {
            give(m, t, a, b);
        }
    }
}

static void cut_by_tile(struct maker *m)
{
    const struct cu_mm_plan *p = m->p;
    group(m, 0, p->n_blocks, bytes_of(p, p->kg));
    for (int t = 0; t < p->tiles; t++) {
        give(m, t, 0, p->kg);
    }
}

/* Splits pieces at the borders of slices and brings each block's into the order
 * of slices, tiles. Pieces come sorted by block. */
static void sort_by_slice(struct maker *m)
{
    struct maker out = {.p = m->p, .slices = m->slices};
    for (int i = 0, end; i < m->n; i = end) {
        for (end = i; end < m->n && m->piece[end].block == m->piece[i].block;) {
            end++;
        }
        out.block = m->piece[i].block;
        for (int s = 0; s < m->slices; s++) {
            const int a = slice_begin(m, s), b = slice_begin(m, s + 1);
            for (int j = i; j < end; j++) {
                const struct piece *q = &m->piece[j];
                const int from = q->a > a ? q->a : a, to = q->b < b ? q->b : b;
                if (from < to) {
                    push(&out, q->tile, from, to);
                }
            }
        }
    }
    free(m->piece);
    m->piece = out.piece;
    m->n = out.n;
}

/* Slots: those of a tile follow each other, one for each block that works on it,
 * in block order. */
static int slots(struct maker *m, int *slot0, int *parts, int *slot)
{
    struct cu_mm_plan *p = m->p;
    int *last = calloc((size_t)p->tiles, sizeof *last); /* latest piece, plus 1 */
    int *nth = calloc((size_t)m->n, sizeof *nth);
    if (!last || !nth) {
        abort();
    }
    for (int i = 0; i < m->n; i++) {
        struct piece *q = &m->piece[i];
        const int before = last[q->tile] - 1;
        q->first = before < 0 || m->piece[before].block != q->block;
        q->last = 1;
        if (!q->first) {
            m->piece[before].last = 0;
        }
        parts[q->tile] += q->first;
        nth[i] = parts[q->tile] - 1;
        last[q->tile] = i + 1;
    }
    int n = 0;
    for (int t = 0; t < p->tiles; t++) {
        slot0[t] = n;
        n += parts[t];
    }
    for (int i = 0; i < m->n; i++) {
        slot[i] = slot0[m->piece[i].tile] + nth[i];
    }
    free(last);
    free(nth);
    return n;
}

static void tables(struct maker *m)
{
    struct cu_mm_plan *p = m->p;
    int *slot0 = calloc((size_t)p->tiles, sizeof *slot0);
    int *parts = calloc((size_t)p->tiles, sizeof *parts);
    int *slot = calloc((size_t)m->n, sizeof *slot);
    p->run = calloc((size_t)m->n, sizeof *p->run);
    p->phase = calloc((size_t)m->n, sizeof *p->phase);
    p->block = calloc((size_t)p->n_blocks, sizeof *p->block);
    if (!slot0 || !parts || !slot || !p->run || !p->phase || !p->block) {
        abort();
    }
    p->n_slots = slots(m, slot0, parts, slot);
    p->n_runs = m->n;
    int at = -1, phase_slice = -1;
    for (int i = 0; i < m->n; i++) {
        const struct piece *q = &m->piece[i];
        const int s = slice_of(m, q->a), mat = mat_of(p, q->tile);
        struct mm_block *b = &p->block[q->block];
        if (q->block != at) {
            at = q->block;
            b->run = i;
            b->phase = p->n_phases;
            phase_slice = -1;
        }
        if (s != phase_slice) {
            phase_slice = s;
            struct mm_phase *f = &p->phase[p->n_phases++];
            f->k0 = slice_begin(m, s);
            f->n = slice_begin(m, s + 1) - f->k0;
            p->slice = f->n > p->slice ? f->n : p->slice;
        }
        struct mm_phase *f = &p->phase[p->n_phases - 1];
        b->n_runs++;
        b->steps += q->b - q->a;
        f->run_end = b->n_runs;
        const size_t tile = (size_t)(q->tile - p->tile0[mat]);
        const size_t first = tile * (size_t)p->kg + (size_t)q->a;
        p->run[i] = (struct mm_run){
            .src = (uint64_t)(uintptr_t)p->mat[mat].data + first * cu_step_bytes(p->mat[mat].kind),
            .n = q->b - q->a,
            .kind = (int32_t)p->mat[mat].kind,
            .tile = q->tile,
            .slot = slot[i],
            .slot0 = slot0[q->tile],
            .meta = MM_META(mat, q->first, q->last, parts[q->tile], q->a - f->k0)};
    }
    free(slot0);
    free(parts);
    free(slot);
}

/* As few slices as the limit allows, or a few more if that gives every block one
 * slice only. */
static int slices_for(const struct cu_mm_plan *p, int most, enum mm_order order)
{
    const int least = (p->kg + most - 1) / most;
    if (order == MM_BY_SLICE) {
        for (int s = least; s <= least + 1 && s <= p->kg; s++) {
            const double longest = (double)((p->kg + s - 1) / s) * s / p->kg;
            if (p->n_blocks % s == 0 && longest < 1.016) {
                return s;
            }
        }
    }
    return least;
}

struct mm_smem mm_smem_of(const struct cu_mm_plan *p, int nt)
{
    const uint32_t n = (uint32_t)nt, slice = (uint32_t)p->slice, warps = (uint32_t)p->warps;
    const uint32_t stages = (uint32_t)p->stages[nt - 1];
    struct mm_smem s;
    s.x_row = slice * 128 + 16; /* an odd number of 16-byte units: no bank conflicts */
    s.x = warps * stages * MM_STAGE;
    s.offset = s.x + 8 * n * s.x_row;
    s.exchange = s.offset + slice * n * 64;
    s.sums = s.exchange + warps * n * 8 * 68 * 4;
    s.bars = s.sums + 2 * warps * CU_ROWS * 4;
    s.bytes = s.bars + (warps * stages + 2 + MM_PUT_WARPS) * 8;
    return s;
}

/* The deepest ring that leaves the block within `limit`; at least `least`. */
static int stages_within(struct cu_mm_plan *p, int nt, uint32_t limit, int least)
{
    int s = STAGES_MAX;
    for (; s > least; s--) {
        p->stages[nt - 1] = s;
        if (mm_smem_of(p, nt).bytes <= limit) {
            break;
        }
    }
    return s;
}

static int check(const struct cu_mat *const *mats, int n)
{
    int64_t tiles = 0;
    if (n < 1 || n > MM_MATS) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        const struct cu_mat *m = mats[i];
        if (m->kg < 1 || m->kg != mats[0]->kg || m->rows < 1 || m->tiles != (m->rows + 63) / 64) {
            return -1;
        }
        tiles += m->tiles;
    }
    return tiles <= MM_MAX_TILES ? 0 : -1;
}

static void choose_stages(struct cu_mm_plan *p, enum cu_path path, const struct mm_tune *tune)
{
    if (path == CU_SM80) {
        p->stages[0] = p->stages[1] = STAGES_SM80;
        return;
    }
    for (int i = 0; i < 2; i++) {
        p->stages[i] = tune->stages[i] ? tune->stages[i] : stages_within(p, i + 1, SMEM_SM90, 2);
    }
}

int mm_plan_make(enum cu_path path, int n_sm, const struct cu_mat *const *mats, int n,
                 const struct mm_tune *tune, struct cu_mm_plan **out)
{
    static const struct mm_tune none;
    if (check(mats, n) < 0 || n_sm < 1) {
        return -1;
    }
    tune = tune ? tune : &none;
    struct cu_mm_plan *p = calloc(1, sizeof *p);
    if (!p) {
        abort();
    }
    p->n = n;
    p->kg = mats[0]->kg;
    int col = 0;
    for (int i = 0; i < n; i++) {
        p->mat[i] = *mats[i];
        p->tile0[i] = p->tiles;
        p->col0[i] = col;
        p->tiles += mats[i]->tiles;
        col += mats[i]->rows;
    }
    p->warps = path == CU_SM80 ? 4 : 8;
    p->trigger = tune->trigger ? tune->trigger - 1 : 1;
    for (int i = 0; i < 2; i++) {
        const int bytes = i == 0 ? PREFETCH : PREFETCH_ALONE;
        p->prefetch[i] = tune->prefetch < 0 ? 0 : tune->prefetch ? tune->prefetch : bytes;
    }
    const int64_t steps = (int64_t)p->tiles * p->kg;
    const int64_t blocks = (int64_t)n_sm * (tune->per_sm ? tune->per_sm : 1);
    p->n_blocks = (int)(blocks < steps ? blocks : steps);
    enum mm_order order = tune->order;
    if (order == MM_AUTO) {
        order = p->tiles >= BY_TILE_FROM * p->n_blocks ? MM_BY_TILE : MM_BY_SLICE;
    }
    struct maker m = {.p = p};
    const int most = path == CU_SM80 ? SLICE_MAX / 2 : SLICE_MAX;
    m.slices = slices_for(p,
                          tune->slice == 0     ? (path == CU_SM80 ? SLICE_SM80 : SLICE)
                          : tune->slice < most ? tune->slice
                                               : most,
                          order);
    if (order == MM_BY_TILE) {
        cut_by_tile(&m);
        sort_by_slice(&m);
    } else {
        cut_by_slice(&m);
    }
    tables(&m);
    free(m.piece);
    choose_stages(p, path, tune);
    if (mm_smem_of(p, 2).bytes > (path == CU_SM80 ? SMEM_SM80 : SMEM_SM90)) {
        mm_plan_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void mm_plan_free(struct cu_mm_plan *p)
{
    if (p) {
        free(p->run);
        free(p->phase);
        free(p->block);
        free(p);
    }
}
