/* Every wrapper of ptx.cuh and every intrinsic that the emulator has, against plain
 * arithmetic on the host. On a GPU this is the proof of the emulator: both pass the
 * same tests. Warpgroup products: t_cuda_wgmma. */
#include "cutest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

enum { LANES = 32 };

static struct cu_ctx *ctx;

#define RUN(kernel, grid, block, smem, ...)                                                        \
    cut_must(cu_launch(ctx, #kernel, kernel, grid, block, smem, __VA_ARGS__), #kernel)

/* Random bits whose bytes, halves and words are all interesting. */
static uint32_t *random_words(size_t n)
{
    uint32_t *p = cut_host<uint32_t>(n);
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint32_t)cut_random();
    }
    return p;
}

/* ---- cp.async ---- */

enum { COPY_STAGES = 3, COPY_THREADS = 96 };

/* Rows of COPY_THREADS units through a ring of stages, as products stream weights. Odd
 * rows of the 16-byte way and threads past `valid` are zeros. */
static __global__ void copy16_kernel(const uint4 *src, uint4 *dst, int rows, int valid)
{
    uint4 *s = (uint4 *)cu_smem();
    const int t = (int)threadIdx.x;
    for (int i = 0; i < rows + COPY_STAGES - 1; i++) {
        if (i < rows) {
            uint32_t at = smem_addr(s + i % COPY_STAGES * COPY_THREADS + t);
            const uint4 *from = src + (size_t)i * COPY_THREADS + t;
            if (i % 2) {
                cp_async16_if(at, t < valid ? from : src, t < valid);
            } else {
                cp_async16(at, from);
            }
        }
        cp_async_commit();
        if (i >= COPY_STAGES - 1) {
            int r = i - (COPY_STAGES - 1);
            cp_async_wait<COPY_STAGES - 1>();
            __syncthreads();
            dst[(size_t)r * COPY_THREADS + t] =
                s[r % COPY_STAGES * COPY_THREADS + COPY_THREADS - 1 - t];
            __syncthreads();
        }
    }
}

static __global__ void copy4_kernel(const uint32_t *src, uint32_t *dst, int valid)
{
    __shared__ uint32_t s[2][COPY_THREADS];
    const int t = (int)threadIdx.x;
    cp_async4(smem_addr(&s[0][t]), src + t);
    cp_async_commit();
    cp_async4_if(smem_addr(&s[1][t]), src + (t < valid ? COPY_THREADS + t : 0), t < valid);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    dst[t] = s[0][COPY_THREADS - 1 - t];
    cp_async_wait<0>();
    __syncthreads();
    dst[COPY_THREADS + t] = s[1][COPY_THREADS - 1 - t];
}

static void test_cp_async(void)
{
    enum { ROWS = 9, VALID = 77, UNITS = ROWS * COPY_THREADS };
    uint32_t *h = random_words(4 * UNITS);
    uint32_t *want = cut_host<uint32_t>(4 * UNITS), *got = cut_host<uint32_t>(4 * UNITS);
    for (int i = 0; i < UNITS; i++) {
        int r = i / COPY_THREADS, from = COPY_THREADS - 1 - i % COPY_THREADS;
        for (int w = 0; w < 4; w++) {
            want[4 * i + w] =
                r % 2 && from >= VALID ? 0 : h[4 * (size_t)(r * COPY_THREADS + from) + (size_t)w];
        }
    }
    uint32_t *src = cut_upload(h, 4 * UNITS), *dst = cut_new<uint32_t>(4 * UNITS);
    RUN(copy16_kernel, dim3(1), dim3(COPY_THREADS), COPY_STAGES * COPY_THREADS * 16,
        (const uint4 *)src, (uint4 *)dst, ROWS, VALID);
    cut_download(got, dst, 4 * UNITS);
    cut_same(got, want, 4 * UNITS, "cp_async16, cp_async16_if, cp_async_wait<2>");
    for (int i = 0; i < 2 * COPY_THREADS; i++) {
        int from = COPY_THREADS - 1 - i % COPY_THREADS;
        want[i] =
            i >= COPY_THREADS && from >= VALID ? 0 : h[i / COPY_THREADS * COPY_THREADS + from];
    }
    RUN(copy4_kernel, dim3(1), dim3(COPY_THREADS), 0, src, dst, VALID);
    cut_download(got, dst, 2 * COPY_THREADS);
    cut_same(got, want, 2 * COPY_THREADS, "cp_async4, cp_async4_if, cp_async_wait<1>");
    cut_free(src);
    cut_free(dst);
    free(h);
    free(want);
    free(got);
}

/* ---- mbarrier and bulk copies ---- */

enum { BULK_STAGES = 2, BULK_BYTES = 2048, BULK_CONSUMERS = 64 };

/* Warp 2 produces, warps 0 and 1 consume. Stage s arrives in two copies, announced
 * together or one by one. */
static __global__ void bulk_kernel(const unsigned char *src, uint32_t *dst, int steps)
{
    unsigned char *s = cu_smem();
    __shared__ uint64_t full[BULK_STAGES], empty[BULK_STAGES];
    const int t = (int)threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < BULK_STAGES; i++) {
            mbar_init(smem_addr(&full[i]), 1);
            mbar_init(smem_addr(&empty[i]), BULK_CONSUMERS);
        }
        mbar_fence_init();
    }
    __syncthreads();
    if (t == BULK_CONSUMERS) {
        for (int i = 0; i < steps; i++) {
            const int st = i % BULK_STAGES;
            const uint32_t bar = smem_addr(&full[st]);
            mbar_wait(smem_addr(&empty[st]), (uint32_t)(i / BULK_STAGES + 1) & 1);
            const unsigned char *from = src + (size_t)i * BULK_BYTES;
            const uint32_t to = smem_addr(s + st * BULK_BYTES);
            if (i % 2) {
                mbar_expect(bar, 512);
                bulk_load(to, from, 512, bar);
                mbar_arrive_expect(bar, BULK_BYTES - 512);
            } else {
                mbar_arrive_expect(bar, BULK_BYTES);
                bulk_load(to, from, 512, bar);
            }
            bulk_load_hint(to + 512, from + 512, BULK_BYTES - 512, bar,
                           i % 4 < 2 ? l2_evict_first() : l2_evict_last());
        }
    } else if (t < BULK_CONSUMERS) {
        for (int i = 0; i < steps; i++) {
            const int st = i % BULK_STAGES;
            const uint32_t bar = smem_addr(&full[st]), parity = (uint32_t)(i / BULK_STAGES) & 1;
            if (i % 3 == 0) {
                while (!mbar_test(bar, parity)) {
                }
            } else {
                mbar_wait(bar, parity);
            }
            const uint32_t *w = (const uint32_t *)(s + st * BULK_BYTES);
            for (int k = t; k < BULK_BYTES / 4; k += BULK_CONSUMERS) {
                dst[(size_t)i * (BULK_BYTES / 4) + (size_t)k] = w[BULK_BYTES / 4 - 1 - k];
            }
            mbar_arrive(smem_addr(&empty[st]));
        }
    }
}

static __global__ void prefetch_kernel(const unsigned char *src, int bulk)
{
    if (bulk) {
        bulk_prefetch(src, 4096);
    }
    prefetch_l2(src);
}

static void test_bulk(bool sm90)
{
    enum { STEPS = 11, WORDS = STEPS * BULK_BYTES / 4, STEP = BULK_BYTES / 4 };
    uint32_t *h = random_words(WORDS), *want = cut_host<uint32_t>(WORDS);
    uint32_t *got = cut_host<uint32_t>(WORDS);
    for (int i = 0; i < WORDS; i++) {
        want[i] = h[i / STEP * STEP + STEP - 1 - i % STEP];
    }
    uint32_t *src = cut_upload(h, WORDS), *dst = cut_new<uint32_t>(WORDS);
    for (int o = 0; sm90 && o < 3; o++) {
        cut_order(o);
        cut_poison(dst, WORDS * 4);
        RUN(bulk_kernel, dim3(1), dim3(BULK_CONSUMERS + 32), BULK_STAGES * BULK_BYTES,
            (const unsigned char *)src, dst, STEPS);
        cut_download(got, dst, WORDS);
        cut_same(got, want, WORDS, "mbar_*, bulk_load, bulk_load_hint, order %d", o);
    }
    RUN(prefetch_kernel, dim3(1), dim3(1), 0, (const unsigned char *)src, (int)sm90);
    cut_sync();
    cut_ok(true, "bulk_prefetch, prefetch_l2");
    cut_free(src);
    cut_free(dst);
    free(h);
    free(want);
    free(got);
}

/* ---- ldmatrix ---- */

/* out[way][lane][register]; four 8x8 matrices of the source, one after the other. */
static __global__ void ldmatrix_kernel(const uint32_t *src, uint32_t *out)
{
    __shared__ __align__(16) uint32_t s[128];
    const int l = (int)threadIdx.x;
    for (int i = l; i < 128; i += LANES) {
        s[i] = src[i];
    }
    __syncthreads();
    uint32_t r[4] = {0, 0, 0, 0};
    for (int way = 0; way < 4; way++) {
        const uint32_t row = smem_addr(&s[l * 4]), row2 = smem_addr(&s[l % 16 * 4]);
        if (way == 0) {
            ldmatrix_x4(r, row);
        } else if (way == 1) {
            ldmatrix_x2(r, row2);
        } else if (way == 2) {
            ldmatrix_x4_trans(r, row);
        } else {
            ldmatrix_x2_trans(r, row2);
        }
        for (int i = 0; i < 4; i++) {
            out[(way * LANES + l) * 4 + i] = r[i];
        }
    }
}

static void test_ldmatrix(void)
{
    static const char *const names[] = {"ldmatrix_x4", "ldmatrix_x2", "ldmatrix_x4_trans",
                                        "ldmatrix_x2_trans"};
    uint32_t *h = random_words(128), got[512], want[4] = {0, 0, 0, 0};
    const uint16_t *m = (const uint16_t *)(const void *)h; /* [matrix][row][column] */
    uint32_t *src = cut_upload(h, 128), *out = cut_new<uint32_t>(512);
    RUN(ldmatrix_kernel, dim3(1), dim3(LANES), 0, (const uint32_t *)src, out);
    cut_download(got, out, 512);
    for (int way = 0; way < 4; way++) {
        bool good = true;
        for (int l = 0; l < LANES; l++) {
            int g = l / 4, t = l % 4;
            for (int i = 0; i < (way % 2 ? 2 : 4); i++) {
                uint32_t lo = way < 2 ? m[i * 64 + g * 8 + 2 * t] : m[i * 64 + 2 * t * 8 + g];
                uint32_t hi =
                    way < 2 ? m[i * 64 + g * 8 + 2 * t + 1] : m[i * 64 + (2 * t + 1) * 8 + g];
                want[i] = lo | hi << 16;
                good &= got[(way * LANES + l) * 4 + i] == want[i];
            }
        }
        cut_ok(good, "%s", names[way]);
    }
    cut_free(src);
    cut_free(out);
    free(h);
}

/* ---- warp products ---- */

enum mma_kind { F16, BF16, TF32, S8, E4M3, MMA_KINDS };

/* a[4], b[2], c[4] of every lane in, d[4] out; then once more with d as c. */
template <int KIND>
static __global__ void mma_kernel(const uint32_t *a, const uint32_t *b, const uint32_t *c,
                                  uint32_t *d)
{
    const int l = (int)threadIdx.x;
    uint32_t x[4];
    float y[4], z[4];
    int yi[4], zi[4];
    for (int i = 0; i < 4; i++) {
        x[i] = a[4 * l + i];
        y[i] = __uint_as_float(c[4 * l + i]);
        yi[i] = (int)c[4 * l + i];
    }
    const uint32_t b0 = b[2 * l], b1 = b[2 * l + 1];
    if (KIND == F16) {
        mma_f16(z, x, b0, b1, y);
        mma_f16(y, x, b0, b1, y);
    } else if (KIND == BF16) {
        mma_bf16(z, x, b0, b1, y);
        mma_bf16(y, x, b0, b1, y);
    } else if (KIND == TF32) {
        mma_tf32(z, x, b0, b1, y);
        mma_tf32(y, x, b0, b1, y);
    } else if (KIND == E4M3) {
        mma_e4m3(z, x, b0, b1, y);
        mma_e4m3(y, x, b0, b1, y);
    } else {
        mma_s8(zi, x, b0, b1, yi);
        mma_s8(yi, x, b0, b1, yi);
    }
    for (int i = 0; i < 4; i++) {
        d[8 * l + i] = KIND == S8 ? (uint32_t)zi[i] : __float_as_uint(z[i]);
        d[8 * l + 4 + i] = KIND == S8 ? (uint32_t)yi[i] : __float_as_uint(y[i]);
    }
}

/* x as the type has it, and its bits. */
static double mma_value(enum mma_kind kind, double x, uint32_t *bits)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    switch (kind) {
    case F16:
        *bits = cut_half(f);
        return cut_float((uint16_t)*bits);
    case BF16:
    case TF32:
        u &= kind == BF16 ? 0xffff0000u : 0xffffe000u;
        *bits = kind == BF16 ? u >> 16 : u;
        memcpy(&f, &u, sizeof f);
        return f;
    case E4M3: {
        /* a value from its bits: sign, 4 of exponent, 3 of mantissa */
        int e = 7, m = 0;
        double v = fabs(x);
        while (v >= 2 && e < 15) {
            v /= 2;
            e++;
        }
        while (v < 1 && e > 1) {
            v *= 2;
            e--;
        }
        m = (int)(v * 8);
        *bits = (x < 0 ? 0x80u : 0) | (uint32_t)(m < 8 ? m : e << 3 | (m - 8));
        return copysign(ldexp(m, e - 10), x);
    }
    case S8:
    case MMA_KINDS:
        break;
    }
    *bits = (uint32_t)(int)x & 0xff;
    return (int)x;
}

static void mma_launch(enum mma_kind kind, const uint32_t *a, const uint32_t *b, const uint32_t *c,
                       uint32_t *d)
{
    switch (kind) {
    case F16:
        RUN(mma_kernel<F16>, dim3(1), dim3(LANES), 0, a, b, c, d);
        break;
    case BF16:
        RUN(mma_kernel<BF16>, dim3(1), dim3(LANES), 0, a, b, c, d);
        break;
    case TF32:
        RUN(mma_kernel<TF32>, dim3(1), dim3(LANES), 0, a, b, c, d);
        break;
    case S8:
        RUN(mma_kernel<S8>, dim3(1), dim3(LANES), 0, a, b, c, d);
        break;
    case E4M3:
        RUN(mma_kernel<E4M3>, dim3(1), dim3(LANES), 0, a, b, c, d);
        break;
    case MMA_KINDS:
        break;
    }
}

/* Whole numbers must be exact, random ones close. */
static void test_mma(enum mma_kind kind, bool whole)
{
    static const char *const names[] = {"mma_f16", "mma_bf16", "mma_tf32", "mma_s8", "mma_e4m3"};
    static const int per_kind[] = {2, 2, 1, 4, 4};
    const int per = per_kind[kind], k_n = 8 * per, width = 32 / per;
    double a[16][32], b[32][8], c[16][8], want[256];
    uint32_t a_reg[128] = {0}, b_reg[64] = {0}, c_reg[128], bits;
    float got[256];
    for (int r = 0; r < 16; r++) {
        for (int k = 0; k < k_n; k++) {
            double x = whole || kind == S8 ? cut_below(17) - 8 : cut_normal();
            a[r][k] = mma_value(kind, kind == S8 && !whole ? cut_below(256) - 128 : x, &bits);
            int reg = k / per, g = r % 8, t = reg % 4, i = (r >= 8) + 2 * (reg >= 4);
            a_reg[4 * (4 * g + t) + i] |= bits << k % per * width % 32;
        }
    }
    for (int k = 0; k < k_n; k++) {
        for (int n = 0; n < 8; n++) {
            double x = whole || kind == S8 ? cut_below(17) - 8 : cut_normal();
            b[k][n] = mma_value(kind, kind == S8 && !whole ? cut_below(256) - 128 : x, &bits);
            int reg = k / per;
            b_reg[2 * (4 * n + reg % 4) + (reg >= 4)] |= bits << k % per * width % 32;
        }
    }
    for (int l = 0; l < LANES; l++) {
        for (int i = 0; i < 4; i++) {
            int r = l / 4 + 8 * (i >= 2), n = 2 * (l % 4) + i % 2;
            float f = whole || kind == S8 ? (float)(cut_below(2001) - 1000) : cut_normal();
            c[r][n] = f;
            int32_t s = (int32_t)f;
            memcpy(&c_reg[4 * l + i], kind == S8 ? (void *)&s : (void *)&f, 4);
        }
    }
    for (int l = 0; l < LANES; l++) {
        for (int i = 0; i < 4; i++) {
            int r = l / 4 + 8 * (i >= 2), n = 2 * (l % 4) + i % 2;
            double s = c[r][n];
            for (int k = 0; k < k_n; k++) {
                s += a[r][k] * b[k][n];
            }
            want[8 * l + i] = s;
            want[8 * l + 4 + i] = s;
        }
    }
    uint32_t *da = cut_upload(a_reg, 128), *db = cut_upload(b_reg, 64),
             *dc = cut_upload(c_reg, 128);
    uint32_t *dd = cut_new<uint32_t>(256);
    mma_launch(kind, da, db, dc, dd);
    cut_download((uint32_t *)(void *)got, dd, 256);
    if (kind == S8) {
        for (int i = 0; i < 256; i++) {
            int32_t v;
            memcpy(&v, &got[i], 4);
            got[i] = (float)v; /* below 2^24: exact */
        }
    }
    /* fp8 sums keep few bits on the chip */
    double tol = whole || kind == S8 ? 0 : kind == E4M3 ? 2e-3 : 1e-6;
    cut_rms(got, want, 256, tol, "%s, %s", names[kind], whole ? "whole numbers" : "random");
    cut_free(da);
    cut_free(db);
    cut_free(dc);
    cut_free(dd);
}

/* ---- barriers of some warps ---- */

/* Warps 0, 1 fill, warps 2, 3 take: barrier 1 says full, barrier 2 says taken; barrier
 * 3 is among the takers. */
static __global__ void bar_kernel(const uint32_t *src, uint32_t *dst, int steps)
{
    __shared__ uint32_t s[64], u[64];
    const int t = (int)threadIdx.x;
    for (int i = 0; i < steps; i++) {
        if (t < 64) {
            if (i > 0) {
                bar_sync(2, 128);
            }
            s[t] = src[i * 64 + t];
            bar_arrive(1, 128);
        } else {
            bar_sync(1, 128);
            u[t - 64] = s[127 - t];
            if (i + 1 < steps) {
                bar_arrive(2, 128);
            }
            bar_sync(3, 64);
            dst[i * 64 + t - 64] = u[(t - 64) ^ 32];
            bar_sync(3, 64);
        }
    }
}

static __global__ void __launch_bounds__(256, 1) regs_kernel(uint32_t *dst)
{
    if (threadIdx.x < 128) {
        regs_dec<40>();
        dst[threadIdx.x] = threadIdx.x;
    } else {
        regs_inc<160>();
        dst[threadIdx.x] = threadIdx.x + 1;
    }
}

static __global__ void vote_kernel(const int *v, int *out)
{
    const int t = (int)threadIdx.x;
    out[4 * t] = __syncthreads_or(v[t] == 3);
    out[4 * t + 1] = __syncthreads_and(v[t] < 7);
    out[4 * t + 2] = __syncthreads_count(v[t] & 1);
    out[4 * t + 3] = __syncthreads_or(v[t] == 100);
}

static void test_barriers(bool sm90)
{
    enum { STEPS = 7 };
    uint32_t *h = random_words(STEPS * 64), want[STEPS * 64], got[STEPS * 64];
    for (int i = 0; i < STEPS * 64; i++) {
        want[i] = h[i / 64 * 64 + 63 - ((i % 64) ^ 32)];
    }
    uint32_t *src = cut_upload(h, STEPS * 64), *dst = cut_new<uint32_t>(STEPS * 64);
    for (int o = 0; o < 3; o++) {
        cut_order(o);
        cut_poison(dst, sizeof got);
        RUN(bar_kernel, dim3(1), dim3(128), 0, (const uint32_t *)src, dst, STEPS);
        cut_download(got, dst, STEPS * 64);
        cut_same(got, want, STEPS * 64, "bar_sync, bar_arrive, order %d", o);
    }
    if (sm90) {
        RUN(regs_kernel, dim3(1), dim3(256), 0, dst);
        cut_download(got, dst, 256);
        cut_ok(got[3] == 3 && got[130] == 131, "regs_inc, regs_dec");
    }
    cut_free(src);
    cut_free(dst);
    free(h);
    int v[96], out[4 * 96], ones = 0;
    bool good = true;
    for (int i = 0; i < 96; i++) {
        v[i] = i == 50 ? 3 : i % 3;
        ones += v[i] & 1;
    }
    int *dv = cut_upload(v, 96), *dout = cut_new<int>(4 * 96);
    RUN(vote_kernel, dim3(1), dim3(96), 0, (const int *)dv, dout);
    cut_download(out, dout, 4 * 96);
    for (int i = 0; i < 96; i++) {
        good &=
            out[4 * i] != 0 && out[4 * i + 1] != 0 && out[4 * i + 2] == ones && out[4 * i + 3] == 0;
    }
    cut_ok(good, "__syncthreads_or, _and, _count");
    cut_free(dv);
    cut_free(dout);
}

/* ---- launches in a chain; counters ---- */

static __global__ void chain_kernel(const uint32_t *in, uint32_t *out, uint32_t add)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    pdl_launch();
    pdl_wait();
    out[i] = ld_relaxed(in + i) * 3 + add;
}

/* Each block's sum to part[]; the last one adds them in order and resets the counter. */
static __global__ void last_kernel(const uint32_t *in, uint32_t *part, uint32_t *count,
                                   uint32_t *sum)
{
    __shared__ uint32_t s[64], last;
    const unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * 64 + t];
    __syncthreads();
    if (t == 0) {
        uint32_t v = 0;
        for (int i = 0; i < 64; i++) {
            v = v * 31 + s[i];
        }
        part[blockIdx.x] = v;
        last = atom_add_acq_rel(count, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        uint32_t v = 0;
        for (unsigned i = 0; i < gridDim.x; i++) {
            v = v * 17 + ld_relaxed(part + i);
        }
        fence_gpu();
        st_release(sum, v);
        st_release(count, 0);
        red_add_release(sum, 5);
    }
}

static __global__ void read_kernel(const uint32_t *in, uint32_t *out)
{
    const unsigned t = threadIdx.x;
    uint4 a = ldg_stream16(in + 4 * t);
    uint2 b = ldg_stream8(in + 2 * t);
    out[8 * t] = a.x;
    out[8 * t + 1] = a.y;
    out[8 * t + 2] = a.z;
    out[8 * t + 3] = a.w;
    out[8 * t + 4] = b.x;
    out[8 * t + 5] = b.y;
    out[8 * t + 6] = ld_acquire(in + t);
    out[8 * t + 7] = __ldg(in + t) ^ __ldcg(in + t) ^ __ldcs(in + t);
}

static __global__ void atomic_kernel(uint32_t *v, int *old)
{
    const int t = (int)threadIdx.x;
    old[t] = (int)atomicAdd(v, 2u);
    atomicMax(v + 1, (uint32_t)t);
    atomicMin(v + 2, (uint32_t)t);
    atomicOr(v + 3, 1u << t % 32);
    atomicAnd(v + 4, ~(1u << t % 16));
    atomicXor(v + 5, (uint32_t)t);
    atomicInc(v + 6, 9u);
    if (t == 40) {
        old[64] = (int)atomicExch(v + 7, 77u);
        old[65] = (int)atomicCAS(v + 8, 5u, 6u);
        old[66] = (int)atomicCAS(v + 8, 5u, 9u);
    }
}

static void test_global(void)
{
    enum { N = 16 * 64 };
    uint32_t *h = random_words(N), *got = cut_host<uint32_t>(N), *want = cut_host<uint32_t>(N);
    uint32_t *a = cut_upload(h, N), *b = cut_new<uint32_t>(N), *zero = cut_new<uint32_t>(64);
    for (int i = 0; i < 20; i++) {
        RUN(chain_kernel, dim3(16), dim3(64), 0, (const uint32_t *)(i % 2 ? b : a), i % 2 ? a : b,
            (uint32_t)i);
    }
    cut_download(got, a, N);
    for (int i = 0; i < N; i++) {
        want[i] = h[i];
        for (uint32_t k = 0; k < 20; k++) {
            want[i] = want[i] * 3 + k;
        }
    }
    cut_same(got, want, N, "pdl_wait, pdl_launch, ld_relaxed: a chain of 20");
    ctx->pdl = false;
    cut_put(a, h, N);
    uint32_t sum = 0, out[4];
    for (int i = 0; i < 16; i++) {
        uint32_t v = 0;
        for (int k = 0; k < 64; k++) {
            v = v * 31 + h[i * 64 + k];
        }
        sum = sum * 17 + v;
    }
    cut_must(cudaMemset(zero, 0, 64 * 4), "cudaMemset");
    bool good = true;
    for (int i = 0; i < 6; i++) {
        RUN(last_kernel, dim3(16), dim3(64), 0, (const uint32_t *)a, b, zero, zero + 1);
        cut_download(out, zero, 2);
        good &= out[0] == 0 && out[1] == sum + 5;
    }
    cut_ok(good, "atom_add_acq_rel, st_release, red_add_release, fence_gpu: the last block adds");
    RUN(read_kernel, dim3(1), dim3(64), 0, (const uint32_t *)a, b);
    cut_download(got, b, 512);
    good = true;
    for (int t = 0; t < 64; t++) {
        good &= memcmp(got + 8 * t, h + 4 * t, 16) == 0 &&
                memcmp(got + 8 * t + 4, h + 2 * t, 8) == 0 && got[8 * t + 6] == h[t] &&
                got[8 * t + 7] == h[t];
    }
    cut_ok(good, "ldg_stream16, ldg_stream8, ld_acquire, __ldg, __ldcg, __ldcs");
    uint32_t v[9] = {10, 0, 99, 0, 0xffffffff, 0, 0, 7, 5};
    int old[67], x = 0;
    int *dold = cut_new<int>(67);
    cut_put(a, v, 9);
    RUN(atomic_kernel, dim3(1), dim3(64), 0, a, dold);
    cut_download(v, a, 9);
    cut_download(old, dold, 67);
    uint64_t seen = 0;
    for (int t = 0; t < 64; t++) {
        x ^= t;
        seen |= (uint64_t)1 << (old[t] - 10) / 2;
    }
    cut_ok(seen == ~(uint64_t)0 && v[0] == 138 && v[1] == 63 && v[2] == 0 && v[3] == 0xffffffff &&
               v[4] == 0xffff0000 && v[5] == (uint32_t)x && v[6] == 4 && v[7] == 77 && v[8] == 6 &&
               old[64] == 7 && old[65] == 5 && old[66] == 6,
           "atomicAdd, Max, Min, Or, And, Xor, Inc, Exch, CAS");
    cut_free(a);
    cut_free(b);
    cut_free(zero);
    cut_free(dold);
    free(h);
    free(got);
    free(want);
}

/* ---- shuffles and votes ---- */

enum { SHUFFLES = 19 };

static __global__ void shuffle_kernel(const uint32_t *in, const double *in8, uint32_t *out,
                                      double *out8)
{
    const int l = (int)threadIdx.x;
    const uint32_t v = in[l];
    uint32_t *o = out + SHUFFLES * l;
    o[0] = __shfl_sync(0xffffffff, v, 5);
    o[1] = __shfl_sync(0xffffffff, v, 31 - l);
    o[2] = __shfl_sync(0xffffffff, v, l + 3, 8);
    o[3] = __shfl_xor_sync(0xffffffff, v, 16);
    o[4] = __shfl_xor_sync(0xffffffff, v, 5);
    o[5] = __shfl_xor_sync(0xffffffff, v, 4, 4);
    o[6] = __shfl_up_sync(0xffffffff, v, 3);
    o[7] = __shfl_up_sync(0xffffffff, v, 3, 8);
    o[8] = __shfl_down_sync(0xffffffff, v, 3);
    o[9] = __shfl_down_sync(0xffffffff, v, 3, 16);
    o[10] = __ballot_sync(0xffffffff, v & 1);
    o[11] = (uint32_t)__any_sync(0xffffffff, l == 7);
    o[12] = (uint32_t)__all_sync(0xffffffff, l != 7);
    o[13] = __reduce_add_sync(0xffffffff, v);
    o[14] = __reduce_max_sync(0xffffffff, v);
    o[15] = __reduce_min_sync(0xffffffff, v);
    o[16] = (uint32_t)__reduce_max_sync(0xffffffff, (int)v);
    o[17] = (uint32_t)__reduce_min_sync(0xffffffff, (int)v);
    /* each half alone */
    if (l < 16) {
        o[18] = __shfl_xor_sync(0x0000ffff, v, 1);
    } else {
        __syncwarp(0xffff0000);
        o[18] = __shfl_xor_sync(0xffff0000, v, 2);
    }
    __syncwarp();
    out8[l] = __shfl_xor_sync(0xffffffff, in8[l], 3);
}

static void test_shuffles(void)
{
    uint32_t *v = random_words(LANES), got[SHUFFLES * LANES], want[SHUFFLES * LANES], sum = 0;
    uint32_t ballot = 0, umax = 0, umin = UINT32_MAX;
    int32_t smax = INT32_MIN, smin = INT32_MAX;
    double v8[LANES], got8[LANES];
    for (int l = 0; l < LANES; l++) {
        v8[l] = cut_normal();
        sum += v[l];
        ballot |= (v[l] & 1) << l;
        umax = v[l] > umax ? v[l] : umax;
        umin = v[l] < umin ? v[l] : umin;
        smax = (int32_t)v[l] > smax ? (int32_t)v[l] : smax;
        smin = (int32_t)v[l] < smin ? (int32_t)v[l] : smin;
    }
    for (int l = 0; l < LANES; l++) {
        const uint32_t row[SHUFFLES] = {v[5],
                                        v[31 - l],
                                        v[(l & 24) | ((l + 3) & 7)],
                                        v[l ^ 16],
                                        v[l ^ 5],
                                        (l & 4) ? v[l ^ 4] : v[l],
                                        v[l < 3 ? l : l - 3],
                                        v[l % 8 < 3 ? l : l - 3],
                                        v[l > 28 ? l : l + 3],
                                        v[l % 16 > 12 ? l : l + 3],
                                        ballot,
                                        1,
                                        0,
                                        sum,
                                        umax,
                                        umin,
                                        (uint32_t)smax,
                                        (uint32_t)smin,
                                        l < 16 ? v[l ^ 1] : v[l ^ 2]};
        memcpy(want + SHUFFLES * l, row, sizeof row);
    }
    uint32_t *dv = cut_upload(v, LANES), *dout = cut_new<uint32_t>(SHUFFLES * LANES);
    double *dv8 = cut_upload(v8, LANES), *dout8 = cut_new<double>(LANES);
    for (int o = 0; o < 3; o++) {
        cut_order(o);
        RUN(shuffle_kernel, dim3(1), dim3(LANES), 0, (const uint32_t *)dv, (const double *)dv8,
            dout, dout8);
        cut_download(got, dout, SHUFFLES * LANES);
        cut_download(got8, dout8, LANES);
        bool good = true;
        for (int l = 0; l < LANES; l++) {
            good &= got8[l] == v8[l ^ 3];
            for (int i = 0; i < SHUFFLES; i++) {
                if (got[SHUFFLES * l + i] != want[SHUFFLES * l + i]) {
                    printf("# lane %d, shuffle %d\n", l, i);
                    good = false;
                }
            }
        }
        cut_ok(good, "__shfl*_sync, votes, __reduce_*_sync, order %d", o);
    }
    cut_free(dv);
    cut_free(dout);
    cut_free(dv8);
    cut_free(dout8);
    free(v);
}

/* ---- bits ---- */

enum { BITS = 20 };

static __global__ void bits_kernel(const uint32_t *in, uint32_t *out, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) {
        return;
    }
    const uint32_t a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    uint32_t *o = out + BITS * i;
    o[0] = lop3<0xEA>(a, b, c);
    o[1] = lop3<0x6C>(a, b, c);
    o[2] = lop3<0xB8>(a, b, c);
    o[3] = prmt(a, b, c & 0xffff);
    o[4] = __byte_perm(a, b, c & 0x7777);
    o[5] = __funnelshift_r(a, b, c & 31);
    o[6] = __funnelshift_l(a, b, c & 31);
    o[7] = (uint32_t)__dp4a((int)a, (int)b, (int)c);
    o[8] = (uint32_t)__popc(a);
    o[9] = (uint32_t)__clz((int)(a >> (b & 31)));
    o[10] = (uint32_t)__ffs((int)(a << (b & 31)));
    o[11] = __umulhi(a, b);
    o[12] = (uint32_t)__float2int_rn(__uint_as_float(a));
    o[13] = (uint32_t)__float2int_rz(__uint_as_float(a));
    o[14] = __float2uint_rn(__uint_as_float(a));
    o[15] = __float_as_uint(__int2float_rn((int)a));
    o[16] = __float_as_uint(__uint2float_rn(a));
    o[17] = (uint32_t)max((int)a, (int)b) ^ min(a, c);
    o[18] = __float_as_uint(__fmaf_rn(1.5f, (float)a, (float)b));
    o[19] = (uint32_t)__popcll((unsigned long long)a << 32 | b);
}

/* What PTX says of prmt's default mode. */
static uint32_t plain_prmt(uint32_t a, uint32_t b, uint32_t sel, bool sign)
{
    uint8_t bytes[8];
    memcpy(bytes, &a, 4);
    memcpy(bytes + 4, &b, 4);
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = sel >> 4 * i & 15, v = bytes[s & 7];
        r |= (sign && s & 8 ? (v >> 7) * 0xff : v) << 8 * i;
    }
    return r;
}

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static void test_bits(void)
{
    enum { N = 700 };
    static const char *const names[BITS] = {
        "lop3<0xEA>",      "lop3<0x6C>",      "lop3<0xB8>",     "prmt",           "__byte_perm",
        "__funnelshift_r", "__funnelshift_l", "__dp4a",         "__popc",         "__clz",
        "__ffs",           "__umulhi",        "__float2int_rn", "__float2int_rz", "__float2uint_rn",
        "__int2float_rn",  "__uint2float_rn", "max, min",       "__fmaf_rn",      "__popcll"};
    uint32_t *h = random_words(3 * N), *got = cut_host<uint32_t>(BITS * N);
    for (int i = 0; i < N; i++) {
        /* half of them floats of a size that integers have */
        if (i % 2) {
            float f = cut_normal() * (float)(1u << cut_below(34) % 32);
            memcpy(&h[3 * i], &f, 4);
        }
        if (i % 8 == 6) {
            h[3 * i + 1] = 31;
        }
    }
    uint32_t *in = cut_upload(h, 3 * N), *out = cut_new<uint32_t>(BITS * N);
    RUN(bits_kernel, dim3((N + 63) / 64), dim3(64), 0, (const uint32_t *)in, out, (int)N);
    cut_download(got, out, BITS * N);
    int bad[BITS] = {0};
    for (int i = 0; i < N; i++) {
        const uint32_t a = h[3 * i], b = h[3 * i + 1], c = h[3 * i + 2];
        float f;
        memcpy(&f, &a, 4);
        const double x = f != f ? 0 : (double)f;
        int32_t dot = (int32_t)c, ffs = 0, clz = 32, pop = 0, popll = 0;
        for (int k = 0; k < 4; k++) {
            dot += (int8_t)(a >> 8 * k) * (int8_t)(b >> 8 * k);
        }
        for (int k = 31; k >= 0; k--) {
            pop += a >> k & 1;
            popll += (a >> k & 1) + (b >> k & 1);
            ffs = a << (b & 31) >> k & 1 ? k + 1 : ffs;
            clz = clz == 32 && a >> (b & 31) >> k & 1 ? 31 - k : clz;
        }
        const uint64_t ba = (uint64_t)b << 32 | a;
        const float sum = (float)(1.5 * (double)(float)a + (double)(float)b);
        const float ia = (float)(int32_t)a, ua = (float)a;
        uint32_t mm = (uint32_t)((int32_t)a > (int32_t)b ? a : b) ^ (a < c ? a : c);
        uint32_t want[BITS] = {(a & b) | c,
                               b ^ (a & c),
                               0,
                               plain_prmt(a, b, c, true),
                               plain_prmt(a, b, c & 0x7777, false),
                               (uint32_t)(ba >> (c & 31)),
                               (uint32_t)(ba << (c & 31) >> 32),
                               (uint32_t)dot,
                               (uint32_t)pop,
                               (uint32_t)clz,
                               (uint32_t)ffs,
                               (uint32_t)((uint64_t)a * b >> 32),
                               (uint32_t)(int32_t)clamp(rint(x), INT32_MIN, INT32_MAX),
                               (uint32_t)(int32_t)clamp(trunc(x), INT32_MIN, INT32_MAX),
                               (uint32_t)clamp(rint(x), 0, UINT32_MAX),
                               0,
                               0,
                               mm,
                               0,
                               (uint32_t)popll};
        /* 0xB8 by its bits */
        for (int k = 0; k < 32; k++) {
            want[2] |= (0xB8u >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1)) & 1) << k;
        }
        memcpy(&want[15], &ia, 4);
        memcpy(&want[16], &ua, 4);
        memcpy(&want[18], &sum, 4);
        for (int k = 0; k < BITS; k++) {
            if (got[BITS * i + k] != want[k] && bad[k]++ == 0) {
                printf("# %s(%#x, %#x, %#x): %#x, not %#x\n", names[k], a, b, c, got[BITS * i + k],
                       want[k]);
            }
        }
    }
    for (int k = 0; k < BITS; k++) {
        cut_ok(bad[k] == 0, "%s", names[k]);
    }
    cut_free(in);
    cut_free(out);
    free(h);
    free(got);
}

/* ---- arithmetic ---- */

enum { MATH = 14 };

static __global__ void math_kernel(const float *in, float *out, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) {
        return;
    }
    const float x = in[i], p = fabsf(x) + 1e-3f;
    float *o = out + MATH * i;
    o[0] = ex2_approx(x);
    o[1] = rcp_approx(x);
    o[2] = rsqrt_approx(p);
    o[3] = __expf(x);
    o[4] = expf(x);
    o[5] = __logf(p);
    o[6] = __fdividef(x, p);
    o[7] = rsqrtf(p);
    o[8] = __frcp_rn(p);
    o[9] = __fsqrt_rn(p);
    o[10] = __saturatef(x);
    o[11] = exp2f(x);
    o[12] = __fdiv_rn(x, 3.7f);
    o[13] = log1pf(p);
}

static void test_math(void)
{
    enum { N = 4000 };
    static const char *const names[MATH] = {"ex2_approx", "rcp_approx", "rsqrt_approx", "__expf",
                                            "expf",       "__logf",     "__fdividef",   "rsqrtf",
                                            "__frcp_rn",  "__fsqrt_rn", "__saturatef",  "exp2f",
                                            "__fdiv_rn",  "log1pf"};
    /* the largest relative error; __logf's and __expf's are absolute about 0 and of x */
    static const double most[MATH] = {3e-7, 2e-7, 2e-7, 3e-6, 3e-7, 4e-6, 3e-7,
                                      3e-7, 6e-8, 6e-8, 0,    3e-7, 6e-8, 3e-7};
    float *h = cut_normals(N, 8), *got = cut_host<float>(MATH * N);
    double worst[MATH] = {0};
    float *in = cut_upload(h, N), *out = cut_new<float>(MATH * N);
    RUN(math_kernel, dim3((N + 127) / 128), dim3(128), 0, (const float *)in, out, (int)N);
    cut_download(got, out, MATH * N);
    for (int i = 0; i < N; i++) {
        const double x = h[i], p = (double)(fabsf(h[i]) + 1e-3f);
        const double want[MATH] = {exp2(x),        1 / x,   1 / sqrt(p),      exp(x),  exp(x),
                                   log(p),         x / p,   1 / sqrt(p),      1 / p,   sqrt(p),
                                   clamp(x, 0, 1), exp2(x), x / (double)3.7f, log1p(p)};
        for (int k = 0; k < MATH; k++) {
            double e = fabs((double)got[MATH * i + k] - want[k]);
            e /= k == 5 ? fmax(1, fabs(want[k])) : want[k] != 0 ? fabs(want[k]) : 1;
            worst[k] = e <= worst[k] ? worst[k] : e;
        }
    }
    for (int k = 0; k < MATH; k++) {
        cut_ok(worst[k] <= most[k], "%s: error %.2g (at most %.2g)", names[k], worst[k], most[k]);
    }
    cut_free(in);
    cut_free(out);
    free(h);
    free(got);
}

/* ---- conversions ---- */

static __global__ void cvt_kernel(uint16_t *of_half, uint32_t *to_half, const float *f, int n,
                                  uint16_t *of_float, uint32_t *half_of, uint16_t *half1,
                                  uint32_t *tf32)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 65536) {
        of_half[i] = e4m3x2_of_f16x2(i | (65535 - i) << 16);
        to_half[i] = f16x2_of_e4m3x2((uint16_t)i);
    }
    if (i < (uint32_t)n / 2) {
        of_float[i] = e4m3x2_of_f32(f[2 * i], f[2 * i + 1]);
        half_of[i] = f16x2_of_f32(f[2 * i], f[2 * i + 1]);
        half1[i] = f16_of_f32(f[2 * i]);
        tf32[i] = cvt_tf32(f[2 * i]);
    }
}

/* The value of an E4M3 byte (not 0x7f, 0xff), and the nearest byte to a number: of two
 * the even one. */
static double e4m3_value(int v)
{
    int e = v >> 3 & 15, m = v & 7;
    double x = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
    return v & 0x80 ? -x : x;
}

static int e4m3_nearest(double x)
{
    if (x != x) {
        return 0x7f;
    }
    double a = fabs(x);
    int best = 0;
    for (int v = 1; v < 0x7f; v++) {
        double d = fabs(e4m3_value(v) - a), b = fabs(e4m3_value(best) - a);
        if (d < b || (d == b && v % 2 == 0)) {
            best = v;
        }
    }
    if (a > 448) {
        best = 0x7e;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

/* fp16 bits nearest to x, saturated. */
static uint16_t half_nearest(float x)
{
    if (x != x) {
        return 0x7fff;
    }
    double a = fabs((double)x), step;
    if (a >= 65504) {
        return (uint16_t)(0x7bff | (signbit(x) ? 0x8000 : 0));
    }
    int e;
    frexp(a, &e);
    step = ldexp(1, (e < -13 ? -13 : e) - 11);
    double r = rint(a / step) * step; /* half to even */
    return (uint16_t)(cut_half((float)r) | (signbit(x) ? 0x8000 : 0));
}

/* NaNs of one kind and another are the same here, with or without a sign. */
static bool same_e4m3(int got, int want)
{
    return got == want || ((want & 0x7f) == 0x7f && (got & 0x7f) == 0x7f);
}

static void test_conversions(void)
{
    enum { N = 8192 };
    float *f = cut_normals(N, 1);
    for (int i = 0; i < N; i++) {
        /* all sizes; ties of E4M3 and of fp16; the edges */
        uint32_t u;
        memcpy(&u, &f[i], 4);
        switch (i % 4) {
        case 0:
            f[i] = ldexpf(f[i], cut_below(50) - 30);
            break;
        case 1:
            u &= 0xfff80000;
            break;
        case 2:
            u &= 0xfffff000;
            break;
        default:
            f[i] *= 300;
            break;
        }
        if (i % 4 == 1 || i % 4 == 2) {
            memcpy(&f[i], &u, 4);
            f[i] = ldexpf(f[i], cut_below(24) - 14);
        }
    }
    static const float edges[] = {0,        -0.0f,    448,        449,     463.9f,    464,
                                  465,      -1e30f,   65504,      65519,   65520,     -65536,
                                  INFINITY, NAN,      -INFINITY,  0x1p-9f, 0x1p-10f,  0x1.8p-9f,
                                  0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1p-6f, 0x1.fp-7f, 0x1p-14f};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        f[2 * i] = edges[i];
    }
    uint16_t *oh = cut_host<uint16_t>(65536), *of = cut_host<uint16_t>(N / 2);
    uint16_t *h1 = cut_host<uint16_t>(N / 2);
    uint32_t *th = cut_host<uint32_t>(65536), *ho = cut_host<uint32_t>(N / 2);
    uint32_t *tf = cut_host<uint32_t>(N / 2);
    float *df = cut_upload(f, N);
    uint16_t *doh = cut_new<uint16_t>(65536), *dof = cut_new<uint16_t>(N / 2);
    uint16_t *dh1 = cut_new<uint16_t>(N / 2);
    uint32_t *dth = cut_new<uint32_t>(65536), *dho = cut_new<uint32_t>(N / 2);
    uint32_t *dtf = cut_new<uint32_t>(N / 2);
    RUN(cvt_kernel, dim3(256), dim3(256), 0, doh, dth, (const float *)df, (int)N, dof, dho, dh1,
        dtf);
    cut_download(oh, doh, 65536);
    cut_download(th, dth, 65536);
    cut_download(of, dof, N / 2);
    cut_download(ho, dho, N / 2);
    cut_download(h1, dh1, N / 2);
    cut_download(tf, dtf, N / 2);
    int bad[6] = {0};
    for (int i = 0; i < 65536; i++) {
        int lo = e4m3_nearest((double)cut_float((uint16_t)i));
        int hi = e4m3_nearest((double)cut_float((uint16_t)(65535 - i)));
        if (!same_e4m3(oh[i] & 0xff, lo) || !same_e4m3(oh[i] >> 8, hi)) {
            if (bad[0]++ == 0) {
                printf("# half %#x, %#x: %#x, not %#x\n", i, 65535 - i, oh[i], hi << 8 | lo);
            }
        }
        for (int k = 0; k < 2; k++) {
            int byte = i >> 8 * k & 0xff;
            uint16_t h = (uint16_t)(th[i] >> 16 * k);
            bool good = (byte & 0x7f) == 0x7f
                            ? (h & 0x7fff) > 0x7c00
                            : h == cut_half((float)e4m3_value(byte)) && (h >> 15) == (byte >> 7);
            if (!good && bad[1]++ == 0) {
                printf("# E4M3 %#x: half %#x\n", byte, h);
            }
        }
    }
    for (int i = 0; i < N / 2; i++) {
        float a = f[2 * i], b = f[2 * i + 1];
        if (!same_e4m3(of[i] & 0xff, e4m3_nearest((double)a)) ||
            !same_e4m3(of[i] >> 8, e4m3_nearest((double)b))) {
            if (bad[2]++ == 0) {
                printf("# %.9g, %.9g: %#x, not %#x\n", (double)a, (double)b, of[i],
                       e4m3_nearest((double)b) << 8 | e4m3_nearest((double)a));
            }
        }
        uint32_t want = half_nearest(a) | (uint32_t)half_nearest(b) << 16;
        if (ho[i] != want && bad[3]++ == 0) {
            printf("# %.9g, %.9g: %#x, not %#x\n", (double)a, (double)b, ho[i], want);
        }
        if (h1[i] != half_nearest(a) && bad[4]++ == 0) {
            printf("# %.9g: %#x, not %#x\n", (double)a, h1[i], half_nearest(a));
        }
        double x = fabs((double)a);
        if (x >= 0x1p-126 && x < 1e30) {
            float t;
            memcpy(&t, &tf[i], 4);
            double step = ldexp(1, ilogb(x) - 10);
            double want_t = copysign(floor(x / step + 0.5) * step, (double)a); /* ties away */
            if (((double)t != want_t || tf[i] & 0x1fff) && bad[5]++ == 0) {
                printf("# %.9g: tf32 %.9g, not %.9g\n", (double)a, (double)t, want_t);
            }
        }
    }
    static const char *const names[] = {"e4m3x2_of_f16x2: all halves",
                                        "f16x2_of_e4m3x2",
                                        "e4m3x2_of_f32",
                                        "f16x2_of_f32",
                                        "f16_of_f32",
                                        "cvt_tf32"};
    for (int i = 0; i < 6; i++) {
        cut_ok(bad[i] == 0, "%s", names[i]);
    }
    cut_free(df);
    cut_free(doh);
    cut_free(dof);
    cut_free(dh1);
    cut_free(dth);
    cut_free(dho);
    cut_free(dtf);
    free(f);
    free(oh);
    free(of);
    free(h1);
    free(th);
    free(ho);
    free(tf);
}

/* ---- halves ---- */

enum { HALVES = 8 };

static __global__ void half_kernel(const uint32_t *in, uint32_t *out, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) {
        return;
    }
    __half2 v[3];
    memcpy((void *)v, in + 3 * i, 12);
    __half2 r[HALVES] = {
        __hadd2(v[0], v[1]),
        __hsub2(v[0], v[1]),
        __hmul2(v[0], v[1]),
        __hfma2(v[0], v[1], v[2]),
        __hmax2(v[0], v[1]),
        __hmin2(v[0], v[1]),
        __floats2half2_rn(__low2float(v[0]) + 1, __high2float(v[1])),
        __half2half2(__hfma(__low2half(v[0]), __high2half(v[1]), __low2half(v[2])))};
    memcpy((void *)(out + HALVES * i), (const void *)r, sizeof r);
}

static void test_halves(void)
{
    enum { N = 1000 };
    uint32_t *h = cut_host<uint32_t>(3 * N), *got = cut_host<uint32_t>(HALVES * N);
    for (int i = 0; i < 3 * N; i++) {
        h[i] = cut_half(cut_normal()) | (uint32_t)cut_half(cut_normal() * 20) << 16;
    }
    uint32_t *in = cut_upload(h, 3 * N), *out = cut_new<uint32_t>(HALVES * N);
    RUN(half_kernel, dim3((N + 63) / 64), dim3(64), 0, (const uint32_t *)in, out, (int)N);
    cut_download(got, out, HALVES * N);
    int bad = 0;
    for (int i = 0; i < N; i++) {
        double v[3][2];
        for (int k = 0; k < 6; k++) {
            v[k / 2][k % 2] = (double)cut_float((uint16_t)(h[3 * i + k / 2] >> 16 * (k % 2)));
        }
        for (int k = 0; k < 2; k++) {
            const double a = v[0][k], b = v[1][k], c = v[2][k];
            const double want[HALVES] = {
                a + b,      a - b,      a * b,         a * b + c,
                fmax(a, b), fmin(a, b), k ? b : a + 1, v[0][0] * v[1][1] + v[2][0]};
            for (int j = 0; j < HALVES; j++) {
                double x = (double)cut_float((uint16_t)(got[HALVES * i + j] >> 16 * k));
                bad += !(fabs(x - want[j]) <= 0x1p-11 * fabs(want[j]) + 0x1p-25);
            }
        }
    }
    cut_ok(bad == 0, "arithmetic of halves");
    cut_free(in);
    cut_free(out);
    free(h);
    free(got);
}

/* ---- places ---- */

static __global__ void place_kernel(uint32_t *out)
{
    __shared__ uint32_t mark[8];
    unsigned char *s = cu_smem(), *a = cu_smem_aligned(1024);
    if (threadIdx.x == 0 && threadIdx.y == 1) {
        uint32_t *o = out + 8 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
        mark[3] = 1;
        o[0] = smem_addr(s) % 128;
        o[1] = smem_addr(a) % 1024;
        o[2] = (uint32_t)(a - s) <= 896;
        o[3] = smem_addr(a) - smem_addr(s) == (uint32_t)(a - s);
        o[4] = smem_addr(&mark[3]) - smem_addr(&mark[0]);
        o[5] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z;
        o[6] = blockDim.x * 100 + blockDim.y * 10 + blockDim.z;
        o[7] = (uint32_t)warpSize;
        a[0] = 1;
        s[0] = 1;
    }
}

static void test_places(void)
{
    const uint32_t X = 3, Y = 2, Z = 2;
    uint32_t got[96], *out = cut_new<uint32_t>(8 * X * Y * Z);
    RUN(place_kernel, dim3(X, Y, Z), dim3(8, 4, 1), 1024, out);
    cut_download(got, out, 8 * X * Y * Z);
    bool good = true;
    for (uint32_t i = 0; i < X * Y * Z; i++) {
        const uint32_t want[8] = {0,   0, 1, 1, 12, i % X + 10 * (i / X % Y) + 100 * (i / X / Y),
                                  841, 32};
        good &= memcmp(want, got + 8 * i, sizeof want) == 0;
    }
    cut_ok(good, "smem_addr, cu_smem, cu_smem_aligned, blockIdx, blockDim");
    cut_free(out);
}

int main(void)
{
    cut_begin();
    enum cu_path paths[2];
    int n_paths = cut_paths(paths), minor = 9, major = 8;
    bool sm90 = paths[n_paths - 1] == CU_SM90;
    ctx = cut_ctx(paths[n_paths - 1], true);
#ifndef QUASAR_EMULATE
    cut_must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "device");
    cut_must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "device");
#endif
    test_global(); /* ends with ctx->pdl off */
    test_cp_async();
    test_bulk(sm90);
    test_ldmatrix();
    for (int k = 0; k < MMA_KINDS; k++) {
        if (k != E4M3 || 10 * major + minor >= 89) {
            test_mma((enum mma_kind)k, true);
            test_mma((enum mma_kind)k, false);
        }
    }
    test_barriers(sm90);
    test_shuffles();
    test_bits();
    test_math();
    test_conversions();
    test_halves();
    test_places();
    return cut_end();
}
