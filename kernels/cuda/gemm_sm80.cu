/* The prefill product with mma.sync, for sm_80 and up: weights are dequantised in
 * registers as the rows of an MMA, tokens come by ldmatrix as its columns. cp.async
 * fills a ring of three stages, small enough for 99 KB of shared memory a block. */
#include "kernels/cuda/gemm.cuh"

/* Launch shapes: WR x WT warps of RB row blocks (16 rows) by NB x 8 tokens. */
template <int KIND, int WR, int WT, int RB, int NB> struct shape80 {
    static constexpr int rows = 16 * WR * RB, tokens = 8 * WT * NB, threads = 32 * WR * WT;
    static constexpr int step = gemm_kind<KIND>::step;
    static constexpr int xt = tokens * 128;
    static constexpr int stage = xt + rows / 64 * step;
    static constexpr int stages = 3;
    static constexpr int smem = stages * stage;
};

/* Step k of a tile into a stage of the ring. */
template <class S>
GEMM_FN void fetch80(uint32_t stage, const uint8_t *x, const uint8_t *w, uint32_t second, int k)
{
    for (int u = (int)threadIdx.x; u < S::xt / 16; u += S::threads) {
        cp_async16(stage + u * 16, x + (size_t)k * 16384 + u * 16);
    }
#pragma unroll
    for (int r = 0; r < S::rows / 64; r++) {
        for (int u = (int)threadIdx.x; u < S::step / 16; u += S::threads) {
            cp_async16(stage + S::xt + r * S::step + u * 16,
                       w + r * second + (size_t)k * S::step + u * 16);
        }
    }
}

template <int KIND, int WR, int WT, int RB, int NB>
__global__ void __launch_bounds__(32 * WR * WT, KIND == CU_W16 ? 1 : 2)
    gemm80(const __grid_constant__ gemm_args a)
{
    using S = shape80<KIND, WR, WT, RB, NB>;
    static_assert(S::smem <= 99 * 1024, "shared memory of the smaller chips");
    static_assert(WR * WT * GEMM_STAGE <= S::smem && S::tokens * 128 <= S::smem, "staging");
    uint8_t *const ring = cu_smem();
    const uint32_t base = smem_addr(ring);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    const int wr = warp % WR, wt = warp / WR;

    const int row_tile = (int)blockIdx.x / a.token_tiles;
    const int token = ((int)blockIdx.x - row_tile * a.token_tiles) * S::tokens;
    int im = 0;
    while (im + 1 < a.n && row_tile >= a.m[im + 1].first) {
        im++;
    }
    const struct gemm_mat *m = &a.m[im];
    const int row = (row_tile - m->first) * S::rows;
    const uint8_t *x =
        (const uint8_t *)a.xt + (size_t)(token >> 7) * a.kg * 16384 + (token & 127) * 128;
    static_assert(S::rows <= 128, "one tile or two");
    const uint8_t *const w = m->data + (size_t)(row / 64) * a.kg * S::step;
    /* bytes to the second tile; the first again where there is none */
    const uint32_t second = row / 64 + 1 < m->tiles ? (uint32_t)(a.kg * S::step) : 0;

    pdl_wait();
    pdl_launch();
#pragma unroll
    for (int k = 0; k < S::stages - 1; k++) {
        if (k < a.kg) {
            fetch80<S>(base + k * S::stage, x, w, second, k);
        }
        cp_async_commit();
    }
    float d[RB][NB * 4];
#pragma unroll
    for (int i = 0; i < RB * NB * 4; i++) {
        d[i / (NB * 4)][i % (NB * 4)] = 0;
    }
    /* ldmatrix: lanes 0..15 the two units of 8 tokens, lanes 16..31 of the next 8 */
    const uint32_t at = (uint32_t)(wt * NB * 8 + (lane >> 4) * 8 + (lane & 7)) * 128;
    const uint32_t swizzle = lane & 7, high = lane >> 3 & 1;
    int stage = 0;
    for (int k = 0; k < a.kg; k++) {
        cp_async_wait<S::stages - 2>();
        __syncthreads();
        if (k + S::stages - 1 < a.kg) {
            const int to = stage == 0 ? S::stages - 1 : stage - 1;
            fetch80<S>(base + to * S::stage, x, w, second, k + S::stages - 1);
        }
        cp_async_commit();
        uint32_t r[RB][16];
#pragma unroll
        for (int i = 0; i < RB; i++) {
            const int rb = wr * RB + i;
            gemm_load_a<KIND>(r[i], ring + stage * S::stage + S::xt + (rb >> 2) * S::step, rb & 3,
                              lane);
        }
        const uint32_t from = base + stage * S::stage + at;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b[NB * 2];
#pragma unroll
            for (int n = 0; n < NB; n += 2) {
                ldmatrix_x4(b + 2 * n, from + n * 1024 + (((2 * j + high) ^ swizzle) << 4));
            }
#pragma unroll
            for (int i = 0; i < RB; i++) {
#pragma unroll
                for (int n = 0; n < NB; n++) {
                    mma_f16(d[i] + 4 * n, r[i] + 4 * j, b[2 * n], b[2 * n + 1], d[i] + 4 * n);
                }
            }
        }
        stage = stage + 1 == S::stages ? 0 : stage + 1;
    }
    cp_async_wait<0>();
    __syncthreads();

#pragma unroll
    for (int i = 0; i < RB; i++) {
        const int rb = wr * RB + i, r = row + rb * 16, g = lane >> 2;
        float lo = 1, hi = 1;
        if (KIND == CU_W16 && r < m->rows) {
            lo = m->row_scale[r + g];
            hi = m->row_scale[r + g + 8];
        }
#pragma unroll
        for (int q = 0; q < NB / 4; q++) {
            const int t = wt * NB * 8 + 32 * q;
            if (a.out == CU_GEMM_SILU) {
                gemm_silu(d[i] + 16 * q, ring + t * 128, (row >> 4 & 4) + rb, lo, hi, lane);
            } else if (r < m->rows) {
                gemm_put(d[i] + 16 * q, (float *)(ring + warp * GEMM_STAGE),
                         a.y + (size_t)(token + t) * a.ldy + m->col + r, a.ldy, a.rows - token - t,
                         m->rows - r, m->vec, a.out == CU_GEMM_ADD, lo, hi, lane);
            }
        }
    }
    if (a.out == CU_GEMM_SILU) {
        __syncthreads();
        uint8_t *to = (uint8_t *)a.xt_out +
                      ((size_t)(token >> 7) * (m->rows >> 7) + (row >> 7)) * 16384 +
                      (token & 127) * 128;
        for (int u = (int)threadIdx.x; u < S::tokens * 8 && (u >> 3) < a.rows - token;
             u += S::threads) {
            if (S::rows == 128) {
                ((uint4 *)to)[u] = ((const uint4 *)ring)[u];
            } else { /* half of each unit */
                const int p = 2 * u + (row >> 6 & 1);
                ((uint2 *)to)[p] = ((const uint2 *)ring)[p];
            }
        }
    }
}

template <int KIND, int WR, int WT, int RB, int NB>
static int launch80(struct cu_ctx *c, struct gemm_args *a)
{
    using S = shape80<KIND, WR, WT, RB, NB>;
    gemm_cut(a, S::rows, S::tokens);
    return (int)cu_launch(c, "gemm_sm80", gemm80<KIND, WR, WT, RB, NB>, dim3((unsigned)a->tiles),
                          dim3(S::threads), S::smem, *a);
}

/* 128 x 128, or 64 x 64 where that leaves multiprocessors idle. Bits do not depend on it. */
template <int KIND> static int pick80(struct cu_ctx *c, struct gemm_args *a, int shape)
{
    gemm_cut(a, 128, 128);
    if (shape < 0) {
        shape = a->rows <= 64 || a->tiles < c->n_sm;
    }
    return shape == 0 ? launch80<KIND, 4, 2, 2, 8>(c, a) : launch80<KIND, 4, 1, 1, 8>(c, a);
}

int gemm_sm80(struct cu_ctx *c, enum cu_kind kind, struct gemm_args *a, int shape)
{
    switch (kind) {
    case CU_W4:
        return pick80<CU_W4>(c, a, shape);
    case CU_W8:
        return pick80<CU_W8>(c, a, shape);
    case CU_W16:
        return pick80<CU_W16>(c, a, shape);
    }
    return (int)cudaErrorInvalidValue;
}
