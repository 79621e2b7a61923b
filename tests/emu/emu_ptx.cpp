/* The emulator's side of kernels/cuda/ptx.cuh. Asynchronous copies poison their target
 * when issued and land at once or at the wait that asks for them, never in between:
 * a missing wait reads NaNs or the old data. */
#include "emu_priv.h"
#include "kernels/cuda/ptx.cuh"

/* Notes where the kernel called a wrapper. */
#define ENTER() (emu_self()->where = EMU_HERE)

static void check_global(const void *p, unsigned align, const char *what)
{
    if ((uintptr_t)p % align != 0) {
        emu_fail("%s: global address %p is not a multiple of %u", what, p, align);
    }
}

/* ---- cp.async ---- */

static void land(struct emu_queue *q, int n)
{
    if (n == 0) {
        return;
    }
    for (int i = 0; i < n; i++) {
        const struct emu_copy *c = &q->copy[i];
        if (c->src) {
            memcpy(c->dst, c->src, c->bytes);
        } else {
            memset(c->dst, 0, c->bytes);
        }
    }
    if (n > 0) {
        memmove(q->copy, q->copy + n, (size_t)(q->n - n) * sizeof *q->copy);
        q->n -= n;
    }
}

static void cp_async(uint32_t dst, const void *src, uint32_t bytes, bool valid, const char *what)
{
    struct emu_queue *q = &emu_self()->copies;
    unsigned char *d = emu_shared(dst, bytes, bytes, what);
    check_global(src, bytes, what);
    if (valid) {
        /* the kernel's own line in AddressSanitizer's report */
        unsigned char probe[16];
        memcpy(probe, src, bytes);
        emu_saw_read(src, bytes);
    }
    emu_saw_write(d, bytes);
    memset(d, 0xff, bytes);
    if (q->n == q->cap) {
        q->cap = q->cap ? 2 * q->cap : 64;
        q->copy = (struct emu_copy *)realloc(q->copy, (size_t)q->cap * sizeof *q->copy);
    }
    q->copy[q->n++] = {d, valid ? (const unsigned char *)src : NULL, bytes, 0};
    if (emu_early()) {
        struct emu_queue one = {&q->copy[q->n - 1], 1, 1, NULL, 0, 0};
        land(&one, 1);
        q->n--;
    }
}

void cp_async16(uint32_t dst, const void *src)
{
    ENTER();
    cp_async(dst, src, 16, true, "cp_async16");
}

void cp_async16_if(uint32_t dst, const void *src, bool valid)
{
    ENTER();
    cp_async(dst, src, 16, valid, "cp_async16_if");
}

void cp_async4(uint32_t dst, const void *src)
{
    ENTER();
    cp_async(dst, src, 4, true, "cp_async4");
}

void cp_async4_if(uint32_t dst, const void *src, bool valid)
{
    ENTER();
    cp_async(dst, src, 4, valid, "cp_async4_if");
}

void cp_async_commit(void)
{
    struct emu_queue *q = &emu_self()->copies;
    if (q->groups == q->groups_cap) {
        q->groups_cap = q->groups_cap ? 2 * q->groups_cap : 16;
        q->end = (int *)realloc(q->end, (size_t)q->groups_cap * sizeof *q->end);
    }
    q->end[q->groups++] = q->n;
}

void emu_cp_async_wait(int n)
{
    struct emu_queue *q = &emu_self()->copies;
    int done = q->groups - n;
    if (done <= 0) {
        return;
    }
    int copies = q->end[done - 1];
    land(q, copies);
    q->groups -= done;
    for (int i = 0; i < q->groups; i++) {
        q->end[i] = q->end[i + done] - copies;
    }
}

void emu_copies_finish(struct emu_thread *t)
{
    land(&t->copies, t->copies.n);
    t->copies.groups = 0;
}

/* ---- mbarrier: 2 bits of mark (01), phase, 20 expected, 20 pending, 21 bytes ---- */

struct mbar {
    bool phase;
    uint32_t expected, pending;
    int32_t bytes;
};

static struct mbar mbar_get(uint32_t bar, const char *what)
{
    uint64_t v;
    memcpy(&v, emu_shared(bar, 8, 8, what), sizeof v);
    if (v >> 62 != 1) {
        emu_fail("%s: no initialised mbarrier at %#x", what, bar);
    }
    struct mbar b = {(v >> 61 & 1) != 0, (uint32_t)(v >> 41 & 0xfffff),
                     (uint32_t)(v >> 21 & 0xfffff), (int32_t)((uint32_t)v << 11) >> 11};
    return b;
}

static void mbar_put(uint32_t bar, struct mbar b)
{
    bool flip = b.pending == 0 && b.bytes == 0;
    if (flip) {
        b.phase = !b.phase;
        b.pending = b.expected;
    }
    uint64_t v = (uint64_t)1 << 62 | (uint64_t)b.phase << 61 | (uint64_t)b.expected << 41 |
                 (uint64_t)b.pending << 21 | ((uint32_t)b.bytes & 0x1fffff);
    memcpy(emu_shared(bar, 8, 8, "mbarrier"), &v, sizeof v);
    if (flip) {
        emu_wake_mbar(bar);
    }
}

static void *mbar_sync(uint32_t bar)
{
    return emu_shared(bar, 8, 8, "mbarrier");
}

bool emu_mbar_done(uint32_t bar, uint32_t parity)
{
    return mbar_get(bar, "mbar_wait").phase != (parity != 0);
}

void mbar_init(uint32_t bar, uint32_t count)
{
    ENTER();
    if (count < 1 || count > 0xfffff) {
        emu_fail("mbar_init: count %u", count);
    }
    emu_shared(bar, 8, 8, "mbar_init");
    struct mbar b = {false, count, count, 0};
    mbar_put(bar, b);
    emu_release(mbar_sync(bar));
}

void mbar_fence_init(void)
{
}

static void arrive(uint32_t bar, uint32_t bytes, bool arrives, const char *what)
{
    struct mbar b = mbar_get(bar, what);
    emu_release(mbar_sync(bar));
    if (arrives && b.pending == 0) {
        emu_fail("%s at %#x: more than %u arrivals in a phase", what, bar, b.expected);
    }
    int64_t sum = (int64_t)b.bytes + bytes;
    if (sum > 0xfffff) {
        emu_fail("%s at %#x: %lld bytes in a phase", what, bar, (long long)sum);
    }
    b.bytes = (int32_t)sum;
    b.pending -= arrives;
    mbar_put(bar, b);
}

void mbar_arrive(uint32_t bar)
{
    ENTER();
    arrive(bar, 0, true, "mbar_arrive");
}

void mbar_expect(uint32_t bar, uint32_t bytes)
{
    ENTER();
    arrive(bar, bytes, false, "mbar_expect");
}

void mbar_arrive_expect(uint32_t bar, uint32_t bytes)
{
    ENTER();
    arrive(bar, bytes, true, "mbar_arrive_expect");
}

void emu_mbar_complete(uint32_t bar, uint32_t bytes)
{
    struct mbar b = mbar_get(bar, "a bulk copy");
    b.bytes -= (int32_t)bytes;
    if (b.bytes < -0xfffff) {
        emu_fail("a bulk copy at %#x: more bytes land than are expected", bar);
    }
    mbar_put(bar, b);
}

bool mbar_test(uint32_t bar, uint32_t parity)
{
    ENTER();
    if (!emu_mbar_done(bar, parity)) {
        emu_poll("mbar_test", EMU_HERE);
    }
    bool done = emu_mbar_done(bar, parity);
    emu_acquire(mbar_sync(bar));
    return done;
}

void mbar_wait(uint32_t bar, uint32_t parity)
{
    ENTER();
    if (parity > 1) {
        emu_fail("mbar_wait: parity %u", parity);
    }
    if (emu_mbar_done(bar, parity)) {
        emu_acquire(mbar_sync(bar));
        return;
    }
    do {
        emu_wait_mbar(bar, parity, EMU_HERE);
    } while (!emu_mbar_done(bar, parity));
}

/* ---- bulk copies ---- */

static void bulk(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar, const char *what)
{
    if (bytes == 0 || bytes % 16 != 0) {
        emu_fail("%s: %u bytes", what, bytes);
    }
    check_global(src, 16, what);
    struct emu_copy c = {emu_shared(dst, bytes, 16, what), (const unsigned char *)src, bytes, bar};
    volatile unsigned char probe = c.src[0];
    probe = c.src[bytes - 1];
    (void)probe;
    emu_saw_read(src, bytes);
    emu_saw_write(c.dst, bytes);
    mbar_get(bar, what);
    emu_bulk(&c);
}

void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    ENTER();
    bulk(dst, src, bytes, bar, "bulk_load");
}

void bulk_load_hint(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar, uint64_t policy)
{
    ENTER();
    if (policy != l2_evict_first() && policy != l2_evict_last()) {
        emu_fail("bulk_load_hint: a policy of l2_evict_first() or l2_evict_last() is wanted");
    }
    bulk(dst, src, bytes, bar, "bulk_load_hint");
}

uint64_t l2_evict_first(void)
{
    return 0x12f0000000000000;
}

uint64_t l2_evict_last(void)
{
    return 0x14f0000000000000;
}

void bulk_prefetch(const void *src, uint32_t bytes)
{
    ENTER();
    if (bytes % 16 != 0) {
        emu_fail("bulk_prefetch: %u bytes", bytes);
    }
    check_global(src, 16, "bulk_prefetch");
}

void prefetch_l2(const void *src)
{
    (void)src;
}

void fence_proxy_async(void)
{
}

/* ---- ldmatrix ---- */

struct ldmatrix {
    uint32_t *r;
    uint32_t row;
    int n;
    bool trans;
};

static void run_ldmatrix(void *const *args, unsigned mask)
{
    (void)mask;
    const struct ldmatrix *first = (const struct ldmatrix *)args[0];
    for (int m = 0; m < first->n; m++) {
        uint16_t a[8][8];
        for (int i = 0; i < 8; i++) {
            const struct ldmatrix *src = (const struct ldmatrix *)args[8 * m + i];
            memcpy(a[i], emu_shared(src->row, 16, 16, "ldmatrix"), 16);
        }
        for (int l = 0; l < 32; l++) {
            int g = l / 4, t = l % 4;
            uint32_t lo = first->trans ? a[2 * t][g] : a[g][2 * t];
            uint32_t hi = first->trans ? a[2 * t + 1][g] : a[g][2 * t + 1];
            ((const struct ldmatrix *)args[l])->r[m] = lo | hi << 16;
        }
    }
}

static void load_matrix(uint32_t *r, uint32_t row, int n, bool trans, const void *where)
{
    struct emu_thread *t = emu_self();
    t->where = where;
    struct ldmatrix a = {r, row, n, trans};
    if (t->lane < 8 * n) {
        emu_saw_read(emu_shared(row, 16, 16, "ldmatrix"), 16);
    }
    emu_meet("ldmatrix", 2 * n + trans, 0xffffffff, &a, run_ldmatrix, where);
}

void ldmatrix_x4(uint32_t *r, uint32_t row)
{
    load_matrix(r, row, 4, false, EMU_HERE);
}

void ldmatrix_x2(uint32_t *r, uint32_t row)
{
    load_matrix(r, row, 2, false, EMU_HERE);
}

void ldmatrix_x4_trans(uint32_t *r, uint32_t row)
{
    load_matrix(r, row, 4, true, EMU_HERE);
}

void ldmatrix_x2_trans(uint32_t *r, uint32_t row)
{
    load_matrix(r, row, 2, true, EMU_HERE);
}

/* ---- mma ---- */

enum mma_type { MMA_F16, MMA_BF16, MMA_TF32, MMA_S8, MMA_E4M3 };

struct mma {
    float *d;
    int32_t *di;
    const uint32_t *a;
    uint32_t b0, b1;
    const float *c;
    const int32_t *ci;
};

static double value_of(uint32_t reg, int i, enum mma_type type)
{
    switch (type) {
    case MMA_F16:
        return __half2float(__ushort_as_half((uint16_t)(reg >> 16 * i)));
    case MMA_BF16:
        return __uint_as_float(reg >> 16 * i << 16);
    case MMA_TF32:
        return __uint_as_float(reg & ~0x1fffu);
    case MMA_S8:
        return (int8_t)(reg >> 8 * i);
    case MMA_E4M3:
        return __half2float(__ushort_as_half((uint16_t)soft_f16x2_of_e4m3x2(reg >> 8 * i & 0xff)));
    }
    return 0;
}

/* One product: every shape is 16 x 8 by 8 registers' worth of k, `per` elements each;
 * a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4) and b: (t, g), (t + 4, g), counting
 * k in registers. The sum is exact (double), rounded once. */
static void run_mma_type(void *const *args, enum mma_type type)
{
    int per = type == MMA_TF32 ? 1 : type == MMA_F16 || type == MMA_BF16 ? 2 : 4;
    double a[16][32], b[8][32];
    for (int l = 0; l < 32; l++) {
        const struct mma *m = (const struct mma *)args[l];
        int g = l / 4, t = l % 4;
        for (int i = 0; i < per; i++) {
            for (int r = 0; r < 4; r++) {
                a[g + 8 * (r & 1)][(t + 4 * (r >> 1)) * per + i] = value_of(m->a[r], i, type);
            }
            b[g][t * per + i] = value_of(m->b0, i, type);
            b[g][(t + 4) * per + i] = value_of(m->b1, i, type);
        }
    }
    for (int l = 0; l < 32; l++) {
        const struct mma *m = (const struct mma *)args[l];
        int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; i++) {
            const double *x = a[g + 8 * (i >> 1)], *y = b[2 * t + (i & 1)];
            double s = type == MMA_S8 ? (double)m->ci[i] : (double)m->c[i];
            for (int k = 0; k < 8 * per; k++) {
                s += x[k] * y[k];
            }
            if (type == MMA_S8) {
                m->di[i] = (int32_t)(int64_t)s;
            } else {
                m->d[i] = (float)s;
            }
        }
    }
}

static void run_mma_f16(void *const *args, unsigned mask)
{
    (void)mask;
    run_mma_type(args, MMA_F16);
}

static void run_mma_bf16(void *const *args, unsigned mask)
{
    (void)mask;
    run_mma_type(args, MMA_BF16);
}

static void run_mma_tf32(void *const *args, unsigned mask)
{
    (void)mask;
    run_mma_type(args, MMA_TF32);
}

static void run_mma_s8(void *const *args, unsigned mask)
{
    (void)mask;
    run_mma_type(args, MMA_S8);
}

static void run_mma_e4m3(void *const *args, unsigned mask)
{
    (void)mask;
    run_mma_type(args, MMA_E4M3);
}

void mma_f16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    struct mma m = {d, NULL, a, b0, b1, c, NULL};
    emu_meet("mma_f16", 0, 0xffffffff, &m, run_mma_f16, EMU_HERE);
}

void mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    struct mma m = {d, NULL, a, b0, b1, c, NULL};
    emu_meet("mma_bf16", 0, 0xffffffff, &m, run_mma_bf16, EMU_HERE);
}

void mma_tf32(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    struct mma m = {d, NULL, a, b0, b1, c, NULL};
    emu_meet("mma_tf32", 0, 0xffffffff, &m, run_mma_tf32, EMU_HERE);
}

uint32_t cvt_tf32(float x)
{
    uint32_t u = __float_as_uint(x);
    if (x != x) {
        return 0x7fffffff;
    }
    return (u & 0x7f800000) == 0x7f800000 ? u : (u + 0x1000) & ~0x1fffu;
}

void mma_s8(int32_t *d, const uint32_t *a, uint32_t b0, uint32_t b1, const int32_t *c)
{
    struct mma m = {NULL, d, a, b0, b1, NULL, c};
    emu_meet("mma_s8", 0, 0xffffffff, &m, run_mma_s8, EMU_HERE);
}

void mma_e4m3(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    struct mma m = {d, NULL, a, b0, b1, c, NULL};
    emu_meet("mma_e4m3", 0, 0xffffffff, &m, run_mma_e4m3, EMU_HERE);
}

/* ---- barriers, registers, launches ---- */

void bar_sync(int id, int n)
{
    emu_barrier("bar_sync", id, n, 0, true, EMU_HERE);
}

void bar_arrive(int id, int n)
{
    emu_barrier("bar_arrive", id, n, 0, false, EMU_HERE);
}

void emu_setmaxnreg(int n, bool more)
{
    ENTER();
    if (n % 8 != 0 || n < 24 || n > 256) {
        emu_fail("%s<%d>: a multiple of 8 from 24 to 256 is wanted", more ? "regs_inc" : "regs_dec",
                 n);
    }
}

void pdl_wait(void)
{
    emu_self()->reached_pdl = true;
}

void pdl_launch(void)
{
}

/* ---- global memory ---- */

uint4 ldg_stream16(const void *p)
{
    ENTER();
    uint4 v;
    check_global(p, 16, "ldg_stream16");
    emu_saw_read(p, 16);
    memcpy(&v, p, sizeof v);
    return v;
}

uint2 ldg_stream8(const void *p)
{
    ENTER();
    uint2 v;
    check_global(p, 8, "ldg_stream8");
    emu_saw_read(p, 8);
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t load32(const void *p, const char *what)
{
    uint32_t v;
    check_global(p, 4, what);
    emu_acquire((void *)(uintptr_t)p);
    memcpy(&v, p, sizeof v);
    return v;
}

static void store32(void *p, uint32_t v, const char *what)
{
    check_global(p, 4, what);
    emu_release(p);
    memcpy(p, &v, sizeof v);
}

uint4 ld_shared16(uint32_t p)
{
    ENTER();
    return *(const uint4 *)emu_shared(p, 16, 16, "ld_shared16");
}

float4 ld_l2_f4(const float *p)
{
    ENTER();
    check_global(p, 16, "ld_l2_f4");
    return *(const float4 *)p;
}

float ld_l2_f32(const float *p)
{
    ENTER();
    check_global(p, 4, "ld_l2_f32");
    return *p;
}

uint32_t ld_relaxed(const void *p)
{
    ENTER();
    return load32(p, "ld_relaxed");
}

uint2 ld_l2_8(const void *p)
{
    ENTER();
    uint2 v;
    check_global(p, 8, "ld_l2_8");
    emu_acquire((void *)(uintptr_t)p);
    memcpy(&v, p, sizeof v);
    return v;
}

uint32_t ld_acquire(const void *p)
{
    ENTER();
    return load32(p, "ld_acquire");
}

void st_ticket(void *p, uint32_t a, uint32_t b, uint32_t ticket)
{
    ENTER();
    const uint32_t v[4] = {a, ticket, b, ticket};
    check_global(p, 16, "st_ticket");
    emu_release(p);
    memcpy(p, v, sizeof v);
}

uint4 ld_ticket(const void *p)
{
    ENTER();
    uint32_t v[4];
    check_global(p, 16, "ld_ticket");
    emu_acquire((void *)(uintptr_t)p);
    memcpy(v, p, sizeof v);
    return make_uint4(v[0], v[1], v[2], v[3]);
}

void st_word(void *p, uint32_t v, uint32_t ticket)
{
    ENTER();
    const uint32_t w[2] = {v, ticket};
    check_global(p, 8, "st_word");
    emu_release(p);
    memcpy(p, w, sizeof w);
}

uint2 ld_word(const void *p)
{
    ENTER();
    uint2 v;
    check_global(p, 8, "ld_word");
    emu_acquire((void *)(uintptr_t)p);
    memcpy(&v, p, sizeof v);
    return v;
}

void look_again(void)
{
    emu_poll("look_again", EMU_HERE);
}

void st_release(void *p, uint32_t v)
{
    ENTER();
    store32(p, v, "st_release");
}

uint32_t atom_add_acq_rel(void *p, uint32_t v)
{
    ENTER();
    uint32_t old = load32(p, "atom_add_acq_rel");
    store32(p, old + v, "atom_add_acq_rel");
    return old;
}

uint32_t atom_inc_acq_rel(void *p, uint32_t last)
{
    ENTER();
    uint32_t old = load32(p, "atom_inc_acq_rel");
    store32(p, old >= last ? 0 : old + 1, "atom_inc_acq_rel");
    return old;
}

void red_add_release(void *p, uint32_t v)
{
    ENTER();
    store32(p, load32(p, "red_add_release") + v, "red_add_release");
}

void fence_gpu(void)
{
}

/* ---- bits and arithmetic ---- */

uint32_t prmt(uint32_t a, uint32_t b, uint32_t sel)
{
    uint64_t v = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = sel >> 4 * i & 15, byte = (uint32_t)(v >> (s & 7) * 8) & 0xff;
        r |= (s & 8 ? byte & 0x80 ? 0xff : 0 : byte) << 8 * i;
    }
    return r;
}

static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

float ex2_approx(float x)
{
    return flush(exp2f(flush(x)));
}

float rcp_approx(float x)
{
    return flush(1 / flush(x));
}

float rsqrt_approx(float x)
{
    return (float)(1 / sqrt((double)flush(x)));
}

uint16_t e4m3x2_of_f16x2(uint32_t h)
{
    float lo = __half2float(__ushort_as_half((uint16_t)h));
    float hi = __half2float(__ushort_as_half((uint16_t)(h >> 16)));
    return (uint16_t)(soft_e4m3(lo) | soft_e4m3(hi) << 8);
}

uint16_t e4m3x2_of_f32(float lo, float hi)
{
    return (uint16_t)(soft_e4m3(lo) | soft_e4m3(hi) << 8);
}

uint32_t f16x2_of_e4m3x2(uint16_t v)
{
    return soft_f16x2_of_e4m3x2(v);
}

uint16_t f16_of_f32(float x)
{
    if (x != x) {
        return 0x7fff;
    }
    return __half_as_ushort(__float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f)));
}

uint32_t f16x2_of_f32(float lo, float hi)
{
    return f16_of_f32(lo) | (uint32_t)f16_of_f32(hi) << 16;
}
