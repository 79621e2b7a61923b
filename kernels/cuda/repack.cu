/*
 * Weight tiles on the device: raw rows in a staging buffer become the tiles of
 * layout.c, whose words are written here in order, each gathered from its few source
 * elements. Runs once, at upload, at the speed of the memory.
 */
#include "kernels/cuda/repack.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };

struct source {
    const uint8_t *data, *scales;
    int dtype; /* enum dtype */
};

struct repack_args {
    struct source src[2];
    int n_src, rows, k, first, n;
    uint8_t *out;
    float *row_scale;
};

/* A row of the matrix as a row of its source; false past the end. */
struct place {
    struct source s;
    size_t row;
    bool there;
};

static __device__ __forceinline__ struct place place_of(const struct repack_args &a, int tile,
                                                        int row)
{
    struct place p;
    const int r = row % 16;
    p.s = a.src[a.n_src == 2 ? r / 8 : 0];
    p.row = a.n_src == 2 ? (size_t)(tile * 4 + row / 16) * 8 + (size_t)(r % 8)
                         : (size_t)tile * 64 + (size_t)row;
    p.there = (a.first + tile) * 64 + row < a.rows;
    return p;
}

/* Four codes of 4 bits from an even element on: 16 bits. */
static __device__ __forceinline__ uint32_t nibbles(const struct place &p, int k, int col)
{
    return *(const uint16_t *)(p.s.data + (p.row * (size_t)k + (size_t)col) / 2);
}

static __device__ __forceinline__ uint32_t scale_of(const struct place &p, int k, int step)
{
    const int group = p.s.dtype == DT_Q8_G128 ? 128 : 64;
    const size_t at = p.row * (size_t)(k / group) + (size_t)(step * 64 / group);
    return p.there ? ((const uint16_t *)p.s.scales)[at] : 0;
}

static __device__ float value_of(const struct place &p, int k, int col)
{
    const size_t at = p.row * (size_t)k + (size_t)col;
    if (p.s.dtype == DT_F32) {
        return ((const float *)p.s.data)[at];
    }
    const uint16_t h = ((const uint16_t *)p.s.data)[at];
    if (p.s.dtype == DT_BF16) {
        return __uint_as_float((uint32_t)h << 16);
    }
    __half v;
    memcpy((void *)&v, &h, sizeof v);
    return __half2float(v);
}

/* Word w of a step: its place (row block, lane, j) says which rows and inputs. */
static __device__ uint32_t word_w4(const struct repack_args &a, int tile, int step, int w)
{
    const int rb = w / 128, lane = w / 4 % 32, j = w % 4, g = lane / 4, t = lane % 4;
    uint32_t out = 0;
    for (int rr = 0; rr < 2; rr++) {
        const struct place p = place_of(a, tile, rb * 16 + g + 8 * rr);
        const uint32_t v = p.there ? nibbles(p, a.k, step * 64 + t * 16 + j * 4) : 0;
        out |= (v & 15) << (4 * rr) | (v >> 4 & 15) << (4 * rr + 16) |
               (v >> 8 & 15) << (4 * rr + 8) | (v >> 12 & 15) << (4 * rr + 24);
    }
    return out;
}

static __device__ uint32_t word_w8(const struct repack_args &a, int tile, int step, int w)
{
    const int rb = w / 256, j = w / 128 % 2 * 2 + w / 2 % 2, lane = w / 4 % 32, rr = w % 2;
    const struct place p = place_of(a, tile, rb * 16 + lane / 4 + 8 * rr);
    const int col = step * 64 + lane % 4 * 16 + j * 4;
    if (!p.there) {
        return 0x80808080u;
    }
    if (p.s.dtype == DT_Q8_G128) {
        return *(const uint32_t *)(p.s.data + p.row * (size_t)a.k + (size_t)col) ^ 0x80808080u;
    }
    const uint32_t v = nibbles(p, a.k, col);
    const uint32_t bytes =
        (v & 15) | (v >> 4 & 15) << 8 | (v >> 8 & 15) << 16 | (v >> 12 & 15) << 24;
    return bytes + 0x78787878u; /* - 8 + 128 */
}

static __device__ uint32_t word_w16(const struct repack_args &a, int tile, int step, int w)
{
    const int rb = w / 512, j = w / 128 % 4, lane = w / 4 % 32, high = w / 2 % 2, rr = w % 2;
    const int row = rb * 16 + lane / 4 + 8 * rr;
    const struct place p = place_of(a, tile, row);
    if (!p.there) {
        return 0;
    }
    const float power = 1 / a.row_scale[tile * 64 + row];
    const int col = step * 64 + lane % 4 * 16 + j * 4 + high * 2;
    const __half lo = __float2half_rn(value_of(p, a.k, col) * power);
    const __half hi = __float2half_rn(value_of(p, a.k, col + 1) * power);
    uint16_t l, h;
    memcpy(&l, (const void *)&lo, sizeof l);
    memcpy(&h, (const void *)&hi, sizeof h);
    return (uint32_t)l | (uint32_t)h << 16;
}

/* Scales of rows g and g + 8 of a row block. */
static __device__ uint32_t word_scale(const struct repack_args &a, int tile, int step, int rb,
                                      int g)
{
    const struct place p = place_of(a, tile, rb * 16 + g);
    const struct place q = place_of(a, tile, rb * 16 + g + 8);
    return scale_of(p, a.k, step) | scale_of(q, a.k, step) << 16;
}

/* One block per step of 64 by 64. */
template <int KIND> static __global__ void repack_kernel(const struct repack_args a)
{
    const int kg = a.k / 64, tile = (int)blockIdx.x / kg, step = (int)blockIdx.x % kg;
    const int bytes = KIND == CU_W4 ? 2176 : KIND == CU_W8 ? 4224 : 8192;
    uint32_t *out = (uint32_t *)(a.out + (size_t)blockIdx.x * (size_t)bytes);
    pdl_wait();
    pdl_launch();
    for (int w = (int)threadIdx.x; w < bytes / 4; w += THREADS) {
        if (KIND == CU_W4) {
            const int s = w - 512; /* 32 words of scales: row g, block rb */
            out[w] = s < 0 ? word_w4(a, tile, step, w) : word_scale(a, tile, step, s % 4, s / 4);
        } else if (KIND == CU_W8) {
            const int half = w / 528, i = w % 528, s = i - 512;
            out[w] = s < 0 ? word_w8(a, tile, step, half * 512 + i)
                           : word_scale(a, tile, step, half * 2 + s % 2, s / 2);
        } else {
            out[w] = word_w16(a, tile, step, w);
        }
    }
}

/* Each warp: the scale of a row, a power of two that its largest value sets. */
static __global__ void repack_power_kernel(const struct repack_args a)
{
    const int i = (int)blockIdx.x * (THREADS / 32) + (int)threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    const struct place p = place_of(a, i / 64, i % 64);
    float max = 0;
    pdl_wait();
    pdl_launch();
    for (int c = lane; p.there && c < a.k; c += 32) {
        max = fmaxf(max, fabsf(value_of(p, a.k, c)));
    }
    for (int d = 16; d > 0; d /= 2) {
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
    }
    if (lane == 0) {
        int e = 15;
        if (max > 0) {
            frexpf(max, &e);
        }
        a.row_scale[i] = ldexpf(1, e - 15);
    }
}

extern "C" int cu_repack(struct cu_ctx *c, const struct cu_repack *r)
{
    struct repack_args a;
    for (int i = 0; i < 2; i++) {
        const int s = i < r->n_src ? i : 0;
        a.src[i] = {(const uint8_t *)r->src[s].data, (const uint8_t *)r->src[s].scales,
                    (int)r->src[s].dtype};
    }
    a.n_src = r->n_src;
    a.rows = r->rows;
    a.k = r->k;
    a.first = r->first;
    a.n = r->n;
    a.out = r->out;
    a.row_scale = r->row_scale;
    const dim3 grid((unsigned)(r->n * (r->k / 64))), block(THREADS);
    if (r->kind == CU_W4) {
        return (int)cu_launch(c, "repack", repack_kernel<CU_W4>, grid, block, 0, a);
    }
    if (r->kind == CU_W8) {
        return (int)cu_launch(c, "repack", repack_kernel<CU_W8>, grid, block, 0, a);
    }
    const dim3 rows((unsigned)(r->n * 64 / (THREADS / 32)));
    int rc = (int)cu_launch(c, "repack_power", repack_power_kernel, rows, block, 0, a);
    return rc ? rc : (int)cu_launch(c, "repack", repack_kernel<CU_W16>, grid, block, 0, a);
}
