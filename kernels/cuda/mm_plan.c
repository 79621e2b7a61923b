/* The host plan of the weight-streaming product: slices of K, equal bytes for
 * every block, and the list of runs. */
#include "config.h"
#include "kernels/cuda/mm_plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICE_MAX = 64, /* most that may be asked for; on sm_80, two offsets for a thread, half */
    SLICE = 40,     /* steps: 92 KB of activations at 16 rows */
    SLICE_SM80 = 24,
    BY_TILE_FROM = 1,    /* tiles to a block from which a block keeps its tiles */
    SMEM_SM80 = 99 << 10 /* what every chip from sm_80 on gives a block */
};

/* Steps a .. b - 1 of a tile, done by a block. */
struct piece {
    int block, tile, a, b;
    int first, last; /* of the block's pieces on this tile */
};

/* Blocks' shares may differ that much for the sake of one slice each. */
static const double EVEN = 1.016;
/* Shares may differ that much for the sake of whole stages. */
static const double UNEQUAL = 1.04;

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
    return (int)((int64_t)m->p->kg / m->p->grain * s / m->slices) * m->p->grain;
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
            const int grain = m->p->grain;
            const double room = ((share - m->done) / bytes / grain + 0.5) * grain;
            n = room < n ? (int)room / grain * grain : n;
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

/* The longest of so many slices beside the mean. */
static double unevenness(const struct cu_mm_plan *p, int slices)
{
    const int grains = p->kg / p->grain;
    return (double)((grains + slices - 1) / slices) * slices / grains;
}

/* Gives every slice blocks of its own, by its bytes: a block with parts of two would have to
 * bring inputs twice. Returns the largest share of a block beside the mean. */
static double blocks_of_slices(const struct maker *m, int *blocks)
{
    double share = 0;
    for (int s = 0; s < m->slices; s++) {
        blocks[s] = 1;
    }
    for (int left = m->p->n_blocks - m->slices; left > 0; left--) {
        int most = 0;
        double bytes = 0;
        for (int s = 0; s < m->slices; s++) {
            const double each = (double)(slice_begin(m, s + 1) - slice_begin(m, s)) / blocks[s];
            if (each > bytes) {
                bytes = each;
                most = s;
            }
        }
        blocks[most]++;
    }
    for (int s = 0; s < m->slices; s++) {
        const double each = (double)(slice_begin(m, s + 1) - slice_begin(m, s)) / blocks[s];
        share = each > share ? each : share;
    }
    return share * m->p->n_blocks / m->p->kg;
}

static void cut_by_slice(struct maker *m)
{
    const struct cu_mm_plan *p = m->p;
    int *blocks = calloc((size_t)m->slices, sizeof *blocks);
    if (!blocks) {
        abort();
    }
    const bool own = p->n_blocks >= m->slices && blocks_of_slices(m, blocks) < EVEN;
    group(m, 0, p->n_blocks, bytes_of(p, p->kg));
    for (int s = 0, begin = 0; s < m->slices; begin += blocks[s++]) {
        const int a = slice_begin(m, s), b = slice_begin(m, s + 1);
        if (own) {
            group(m, begin, begin + blocks[s], bytes_of(p, b - a));
        }
        for (int t = 0; t < p->tiles; t++) {
            give(m, t, a, b);
        }
    }
    free(blocks);
}

static void cut_by_tile(struct maker *m)
{
    const struct cu_mm_plan *p = m->p;
    group(m, 0, p->n_blocks, bytes_of(p, p->kg));
    for (int t = 0; t < p->tiles; t++) {
        give(m, t, 0, p->kg);
    }
}

/* Whether the block does all of a piece's tile. */
static bool whole(const struct maker *m, const struct piece *q)
{
    return q->a == 0 && q->b == m->p->kg;
}

/* Splits pieces at the borders of slices and brings each block's into the order of slices;
 * in each the tiles that it shares come first, so that sums which have to travel are not the
 * last ones. Pieces come sorted by block. */
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
            for (int alone = 0; alone < 2; alone++) {
                for (int j = i; j < end; j++) {
                    const struct piece *q = &m->piece[j];
                    const int from = q->a > a ? q->a : a, to = q->b < b ? q->b : b;
                    if (from < to && whole(m, q) == (alone == 1)) {
                        push(&out, q->tile, from, to);
                    }
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
    for (int shared = 1; shared >= 0; shared--) {
        for (int t = 0; t < p->tiles; t++) {
            if ((parts[t] > 1) == (shared == 1)) {
                slot0[t] = n;
                n += parts[t];
            }
        }
        p->n_shared = shared ? n : p->n_shared;
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
    p->finish = calloc((size_t)p->tiles, sizeof *p->finish);
    if (!p->finish) {
        abort();
    }
    for (int t = 0; t < p->tiles; t++) {
        if (parts[t] > 1) {
            p->finish[p->n_finish++] = (struct mm_finish){
                .tile = t, .mat = mat_of(p, t), .slot0 = slot0[t], .parts = parts[t]};
        }
    }
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
        p->keeps = p->keeps || !q->first || !q->last;
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
    const int grains = p->kg / p->grain;
    const int least = (grains + most / p->grain - 1) / (most / p->grain);
    if (order == MM_BY_SLICE) {
        for (int s = least; s <= least + 1 && s <= grains; s++) {
            if (p->n_blocks % s == 0 && unevenness(p, s) < EVEN) {
                return s;
            }
        }
    }
    return least;
}

uint32_t mm_x_row(const struct cu_mm_plan *p)
{
    return (uint32_t)p->slice * 128 + 16;
}

struct mm_smem mm_smem_of(const struct cu_mm_plan *p, int nt)
{
    const uint32_t n = (uint32_t)nt;
    struct mm_smem s;
    s.x = MM80_WARPS * MM80_STAGES * MM_STAGE;
    s.offset = s.x + 8 * n * mm_x_row(p);
    s.exchange = s.offset + (uint32_t)p->slice * n * 64;
    s.sums = s.exchange + MM80_WARPS * n * 8 * MM_COL * 4;
    s.bytes = s.sums + 2 * MM80_WARPS * CU_ROWS * 4;
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

/* The most bytes of a block beside the mean. */
static double balance(const struct cu_mm_plan *p)
{
    double most = 0, total = 0;
    for (int b = 0; b < p->n_blocks; b++) {
        double bytes = 0;
        for (int r = 0; r < p->block[b].n_runs; r++) {
            const struct mm_run *run = &p->run[p->block[b].run + r];
            bytes += (double)run->n * (double)cu_step_bytes((enum cu_kind)run->kind);
        }
        most = bytes > most ? bytes : most;
        total += bytes;
    }
    return most * p->n_blocks / total;
}

/* The tables for p->grain. */
static void cut(struct cu_mm_plan *p, int64_t blocks, int slice, enum mm_order order)
{
    const int64_t grains = (int64_t)p->tiles * p->kg / p->grain;
    p->n_blocks = (int)(blocks < grains ? blocks : grains);
    if (order == MM_AUTO) {
        order = p->tiles >= BY_TILE_FROM * p->n_blocks ? MM_BY_TILE : MM_BY_SLICE;
    }
    struct maker m = {.p = p};
    m.slices = slices_for(p, slice, order);
    if (order == MM_BY_TILE) {
        cut_by_tile(&m);
    } else {
        cut_by_slice(&m);
    }
    sort_by_slice(&m);
    tables(&m);
    free(m.piece);
}

static void tables_free(struct cu_mm_plan *p)
{
    free(p->run);
    free(p->phase);
    free(p->block);
    free(p->finish);
    p->finish = NULL;
    p->n_finish = 0;
    p->run = NULL;
    p->phase = NULL;
    p->block = NULL;
    p->n_runs = p->n_phases = p->n_slots = p->n_shared = p->slice = 0;
    p->keeps = false;
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
    p->path = path;
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
    const int most = path == CU_SM80 ? SLICE_MAX / 2 : SLICE_MAX;
    const int usual = path == CU_SM80 ? SLICE_SM80 : SLICE;
    const int slice = tune->slice == 0 ? usual : tune->slice < most ? tune->slice : most;
    const int64_t blocks = (int64_t)n_sm * (path == CU_SM80 && tune->per_sm ? tune->per_sm : 1);
    /* A stage of the ring on sm_90 is 8 steps of W4; whole ones are the quickest, if the
     * shares do not become too unequal by it. */
    p->grain = path == CU_SM90 ? 8 : 1;
    for (;; p->grain /= 2) {
        if (p->grain > 1 && (p->grain > slice || p->kg % p->grain != 0)) {
            continue;
        }
        cut(p, blocks, slice, tune->order);
        if (p->grain == 1 || balance(p) < UNEQUAL) {
            break;
        }
        tables_free(p);
    }
    if (path == CU_SM80 && mm_smem_of(p, 2).bytes > SMEM_SM80) {
        mm_plan_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void mm_plan_free(struct cu_mm_plan *p)
{
    if (p) {
        tables_free(p);
        free(p);
    }
}
