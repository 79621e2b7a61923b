/* The emulator's side of kernels/cuda/wgmma.cuh. A warp's part of a product is its own
 * 16 rows, so warps need not meet. Products read shared memory when issued or when
 * waited for; their d is NaN until the wait. */
#include "emu_priv.h"
#include "kernels/cuda/wgmma.cuh"

enum { MAX_N = 256, MAX_LIVE = 16, MAX_OPS = 256 };

/* An accumulator under way: where each lane keeps it, and its real value. */
struct live {
    float *d[32];
    int n;             /* columns */
    float (*v)[MAX_N]; /* [16] */
    int ops;           /* under way */
};

struct op {
    int live;
    bool tb, add, done;
    bool regs;
    float a_regs[16][16];
    uint64_t a, b;
    int group;
};

static struct warp_state {
    struct live live[MAX_LIVE];
    struct op *op;
    int n_op, group;
    int64_t issued;
    bool fenced;
} state[32];

struct wgmma {
    float *d;
    const uint32_t *a_regs;
    uint64_t a, b;
    int n, add;
    bool tb;
};

static struct warp_state *mine(void)
{
    struct warp_state *w = &state[emu_self()->warp];
    if (!w->op) {
        w->op = (struct op *)calloc(MAX_OPS, sizeof *w->op);
    }
    return w;
}

/* A half at byte `off` of the matrix whose descriptor is given: the chip adds first and
 * swizzles the sum. */
static float half_at(uint64_t desc, uint32_t off)
{
    uint32_t a = (uint32_t)(desc & 0x3fff) * 16 + off;
    a ^= a >> 3 & 0x70;
    uint16_t h;
    memcpy(&h, emu_shared(a, 2, 2, "wgmma"), sizeof h);
    return __half2float(__ushort_as_half(h));
}

/* Row r, place k along the sum. */
static float along_sum(uint64_t desc, int r, int k)
{
    uint32_t group = (uint32_t)(desc >> 32 & 0x3fff) * 16;
    return half_at(desc, (uint32_t)(r / 8) * group + (uint32_t)(r % 8) * 128 + (uint32_t)k * 2);
}

/* Column n of the row of place k. */
static float across_sum(uint64_t desc, int n, int k)
{
    uint32_t group = (uint32_t)(desc >> 32 & 0x3fff) * 16;
    uint32_t chunk = (uint32_t)(desc >> 16 & 0x3fff) * 16;
    return half_at(desc, (uint32_t)(n / 64) * chunk + (uint32_t)(n % 64) * 2 +
                             (uint32_t)(k / 8) * group + (uint32_t)(k % 8) * 128);
}

static void check_desc(uint64_t desc)
{
    if (desc >> 62 != 1 || desc & 0x3fffc000c000c000u) {
        emu_fail("wgmma: descriptor %#llx (128-byte swizzle, dynamic shared memory)",
                 (unsigned long long)desc);
    }
}

static void compute(struct warp_state *w, struct op *o, int warp)
{
    struct live *v = &w->live[o->live];
    for (int r = 0; r < 16; r++) {
        double a[16];
        for (int k = 0; k < 16; k++) {
            a[k] = o->regs ? o->a_regs[r][k] : along_sum(o->a, 16 * (warp % 4) + r, k);
        }
        for (int k = 0; k < 16; k++) {
            o->a_regs[r][k] = (float)a[k];
        }
    }
    for (int n = 0; n < v->n; n++) {
        double b[16];
        for (int k = 0; k < 16; k++) {
            b[k] = o->tb ? across_sum(o->b, n, k) : along_sum(o->b, n, k);
        }
        for (int r = 0; r < 16; r++) {
            double s = o->add ? (double)v->v[r][n] : 0;
            for (int k = 0; k < 16; k++) {
                s += (double)o->a_regs[r][k] * b[k];
            }
            v->v[r][n] = (float)s;
        }
    }
    o->done = true;
}

/* What the tensor cores read of shared memory, 16 bytes at a time. */
static void saw_unit(uint64_t desc, uint32_t off)
{
    uint32_t a = (uint32_t)(desc & 0x3fff) * 16 + off;
    emu_saw_read(emu_shared(a ^ (a >> 3 & 0x70), 16, 16, "wgmma"), 16);
}

static void saw_operands(const struct op *o, int n, int warp)
{
    uint32_t group = (uint32_t)(o->b >> 32 & 0x3fff) * 16;
    uint32_t chunk = (uint32_t)(o->b >> 16 & 0x3fff) * 16;
    for (int r = 16 * (warp % 4); !o->regs && r < 16 * (warp % 4) + 16; r++) {
        for (uint32_t u = 0; u < 2; u++) {
            saw_unit(o->a, (uint32_t)(r / 8) * group + (uint32_t)(r % 8) * 128 + u * 16);
        }
    }
    for (uint32_t i = 0; i < (uint32_t)n * 2; i++) {
        uint32_t k = i % 16, unit = i / 16;
        saw_unit(o->b, o->tb ? unit / 8 * chunk + unit % 8 * 16 + k / 8 * group + k % 8 * 128
                             : i / 16 * group + i / 2 % 8 * 128 + i % 2 * 16);
    }
}

/* Where d[i] of a lane is in its warp's 16 rows. */
static int row_of(int lane, int i)
{
    return lane / 4 + 8 * (i / 2 % 2);
}

static int column_of(int lane, int i)
{
    return 8 * (i / 4) + 2 * (lane % 4) + i % 2;
}

static bool is_poison(float x)
{
    return __float_as_uint(x) == 0xffffffff;
}

static void run_issue(void *const *args, unsigned mask)
{
    (void)mask;
    const struct wgmma *first = (const struct wgmma *)args[0];
    struct warp_state *w = mine();
    int warp = emu_self()->warp;
    if (!w->fenced) {
        emu_fail("wgmma: no wgmma_fence before the first product of a group");
    }
    int slot = -1;
    for (int i = 0; i < MAX_LIVE; i++) {
        if (w->live[i].ops > 0 && w->live[i].d[0] == first->d) {
            slot = i;
            break;
        }
        if (slot < 0 && w->live[i].ops == 0) {
            slot = i;
        }
    }
    if (slot < 0 || w->n_op == MAX_OPS) {
        emu_fail("wgmma: more than %d accumulators or %d products under way", MAX_LIVE, MAX_OPS);
    }
    struct live *v = &w->live[slot];
    bool fresh = v->ops == 0;
    if (!fresh && v->n != first->n) {
        emu_fail("wgmma: one accumulator, %d and %d columns", v->n, first->n);
    }
    v->n = first->n;
    if (!v->v) {
        v->v = (float(*)[MAX_N])malloc(16 * sizeof *v->v);
    }
    struct op *o = &w->op[w->n_op++];
    *o = {};
    o->live = slot;
    o->tb = first->tb;
    o->add = first->add != 0;
    o->regs = first->a_regs != NULL;
    o->a = first->a;
    o->b = first->b;
    o->group = w->group;
    check_desc(o->b);
    if (!o->regs) {
        check_desc(o->a);
    }
    for (int l = 0; l < 32; l++) {
        const struct wgmma *a = (const struct wgmma *)args[l];
        if (a->a != o->a || a->b != o->b || (a->add != 0) != o->add) {
            emu_fail("wgmma: lane %d has another descriptor or `add` than lane 0", l);
        }
        for (int i = 0; i < v->n / 2; i++) {
            if (fresh) {
                v->v[row_of(l, i)][column_of(l, i)] = a->d[i];
            } else if (!is_poison(a->d[i])) {
                emu_fail("wgmma: d[%d] was written while a product was under way", i);
            }
            memset(&a->d[i], 0xff, sizeof a->d[i]);
        }
        v->d[l] = a->d;
        for (int r = 0; o->regs && r < 4; r++) {
            for (int i = 0; i < 2; i++) {
                o->a_regs[l / 4 + 8 * (r & 1)][2 * (l % 4) + 8 * (r >> 1) + i] =
                    __half2float(__ushort_as_half((uint16_t)(a->a_regs[r] >> 16 * i)));
            }
        }
    }
    v->ops++;
    w->issued++;
    emu_unseen(false);
    emu_async_begin(warp);
    emu_acquire(w);
    saw_operands(o, v->n, warp);
    emu_async_end();
    emu_unseen(true);
    bool in_order = true; /* of one accumulator */
    for (int i = 0; i + 1 < w->n_op; i++) {
        in_order &= w->op[i].done || w->op[i].live != slot;
    }
    if (in_order && emu_early()) {
        compute(w, o, warp);
    }
}

void emu_wgmma(float *d, int n, const uint32_t *a_regs, uint64_t a, uint64_t b, bool tb, int add)
{
    struct wgmma m = {d, a_regs, a, b, n, add, tb};
    emu_release(mine());
    emu_meet("wgmma", n + (a_regs != NULL) + 2 * tb, 0xffffffff, &m, run_issue, EMU_HERE);
}

static void run_fence(void *const *args, unsigned mask)
{
    (void)args;
    (void)mask;
    mine()->fenced = true;
}

void wgmma_fence(void)
{
    emu_meet("wgmma_fence", 0, 0xffffffff, NULL, run_fence, EMU_HERE);
}

static void run_commit(void *const *args, unsigned mask)
{
    (void)args;
    (void)mask;
    mine()->group++;
    mine()->fenced = false;
}

void wgmma_commit(void)
{
    emu_meet("wgmma_commit", 0, 0xffffffff, NULL, run_commit, EMU_HERE);
}

static void run_wait(void *const *args, unsigned mask)
{
    (void)mask;
    struct warp_state *w = mine();
    int n = *(const int *)args[0];
    int done = 0;
    for (; done < w->n_op && w->op[done].group < w->group - n; done++) {
        struct op *o = &w->op[done];
        if (!o->done) {
            compute(w, o, emu_self()->warp);
        }
        struct live *v = &w->live[o->live];
        if (--v->ops > 0) {
            continue;
        }
        for (int l = 0; l < 32; l++) {
            for (int i = 0; i < v->n / 2; i++) {
                if (!is_poison(v->d[l][i])) {
                    emu_fail("wgmma: lane %d's d[%d] was written while a product was under way", l,
                             i);
                }
                v->d[l][i] = v->v[row_of(l, i)][column_of(l, i)];
            }
        }
    }
    emu_unseen(false);
    emu_async_begin(emu_self()->warp);
    for (int i = 0; i < done; i++) {
        saw_operands(&w->op[i], w->live[w->op[i].live].n, emu_self()->warp);
    }
    emu_release(&w->group);
    emu_async_end();
    for (int l = 0; l < 32; l++) {
        emu_acquire_for(emu_warp_thread(emu_self()->warp, l), &w->group);
    }
    emu_unseen(true);
    w->n_op -= done;
    memmove(w->op, w->op + done, (size_t)w->n_op * sizeof *w->op);
}

void emu_wgmma_wait(int n)
{
    emu_meet("wgmma_wait", n, 0xffffffff, &n, run_wait, EMU_HERE);
}

void emu_wgmma_block_end(int warps)
{
    for (int i = 0; i < warps; i++) {
        if (state[i].n_op > 0) {
            emu_fail("warp %d ends with %d wgmma products not waited for", i, state[i].n_op);
        }
        if (state[i].issued != state[i / 4 * 4].issued) {
            emu_fail("warps %d and %d of one warpgroup issued %lld and %lld wgmma products",
                     i / 4 * 4, i, (long long)state[i / 4 * 4].issued, (long long)state[i].issued);
        }
    }
    for (int i = 0; i < (warps + 3) / 4 * 4; i++) {
        state[i].issued = 0;
        state[i].group = 0;
        state[i].fenced = false;
    }
}

uint64_t wgmma_desc(uint32_t smem)
{
    emu_self()->where = EMU_HERE;
    if (smem % 16 != 0 || smem >= 1 << 18) {
        emu_fail("wgmma_desc: shared address %#x (dynamic shared memory is wanted)", smem);
    }
    return wgmma_desc_bits(smem, 16);
}

uint64_t wgmma_desc_t(uint32_t smem, uint32_t chunk_bytes)
{
    emu_self()->where = EMU_HERE;
    if (smem % 1024 != 0 || smem >= 1 << 18 || chunk_bytes % 1024 != 0) {
        emu_fail("wgmma_desc_t: shared address %#x, chunks of %u bytes", smem, chunk_bytes);
    }
    return wgmma_desc_bits(smem, chunk_bytes);
}
