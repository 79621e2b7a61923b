#ifndef QUASAR_KERNELS_CUDA_GEMM_CUH
#define QUASAR_KERNELS_CUDA_GEMM_CUH

/*
 * What the two prefill products (gemm_sm90.cu, gemm_sm80.cu) share: their
 * arguments, the weights' way from a tile to an MMA's registers, and the ways of
 * finished sums out. Weights are an MMA's rows, tokens its columns. Every element
 * is the sum, in order, of 1, 2 or 4 chains of 16-input MMAs in the order of the inputs,
 * whatever the tile; of one but on sm_90 for narrow matrices of many inputs.
 */

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

/* The choice of a launch shape, and one matrix of a launch. first: its first row
 * tile of the launch shape; vec: 16-byte stores are aligned. */
struct gemm_mat {
    const uint8_t *data;
    const float *row_scale;
    int tiles, rows, col, first;
    int vec;
};

struct gemm_args {
    struct gemm_mat m[4];
    int n;   /* matrices */
    int kg;  /* steps of 64 inputs */
    int log; /* 1 << log chains, parts of `steps` of them each */
    int steps;
    int rows;        /* tokens */
    int token_tiles; /* of the launch shape */
    int tiles;       /* row tiles x token tiles */
    int blocks;      /* that share them (sm_90) */
    /* Block b's first `waves` tiles are b, b + blocks...; the steps of the remaining
     * tiles, as one row, are shared out, `share` to a block (0: none remain). */
    int waves, share;
    float *part;      /* [block] sums of a chain handed from block to block; before that, the
                         chains so far of a tile that the block has alone */
    float *chain;     /* [shared tile][1 << log] whole chains */
    uint32_t *flag;   /* [block] its sums are there */
    uint32_t *done;   /* [shared tile] chains that are there */
    uint32_t *ticket; /* numbers the blocks as they start */
    enum cu_gemm_out out;
    const uint16_t *xt;
    float *y;
    size_t ldy;
    uint16_t *xt_out;
};

/* Launch the matrices of args, which are of one kind (sm90: a[kind], all of them, n 0
 * where there are none); gemm.cu fills all but what depends on the launch shape. shape:
 * a row of the path's table, -1: the fastest. work may be NULL. */
int gemm_sm80(struct cu_ctx *c, enum cu_kind kind, struct gemm_args *a, int shape);
int gemm_sm90(struct cu_ctx *c, struct gemm_args a[3], void *work, int shape);
size_t gemm_sm90_work(int n_sm);

enum { GEMM_LOG = 2, GEMM_PARTS = 1 << GEMM_LOG }; /* at most */

/* cu_gemm with a launch shape (0..3 on sm_90, 0..1 on sm_80; -1: the fastest) and 1 << log
 * parts (sm_90; -1: the matrix's number), for tests. */
int gemm_run(struct cu_ctx *c, const struct cu_gemm *g, int shape, int log);

/* Sets first and token_tiles for tiles of rows x tokens; returns the row tiles. */
static inline int gemm_cut(struct gemm_args *a, int rows, int tokens)
{
    int first = 0;
    for (int i = 0; i < a->n; i++) {
        a->m[i].first = first;
        first += (a->m[i].tiles * 64 + rows - 1) / rows;
    }
    a->token_tiles = (a->rows + tokens - 1) / tokens;
    a->tiles = first * a->token_tiles;
    return first;
}

#define GEMM_FN static __device__ __forceinline__

template <int KIND> struct gemm_kind {
    static constexpr int step = KIND == CU_W4 ? 2176 : KIND == CU_W8 ? 4224 : 8192;
};

/* ---- weights: one row block (16 rows) of a step, as the A registers of 4 MMAs ---- */

GEMM_FN uint32_t gemm_half2(float x)
{
    const __half2 h = __floats2half2_rn(x, x);
    uint32_t r;
    memcpy(&r, &h, sizeof r);
    return r;
}

GEMM_FN __half2 gemm_h2(uint32_t v)
{
    __half2 h;
    memcpy((void *)&h, &v, sizeof h);
    return h;
}

GEMM_FN uint32_t gemm_u32(__half2 h)
{
    uint32_t r;
    memcpy(&r, &h, sizeof r);
    return r;
}

/* Codes are laid into the mantissa of 1024 (times 16 for the higher nibble); what is
 * taken away and the sixteenth are exact, so that only the scale rounds. */
GEMM_FN void gemm_expand_w4(uint32_t *a, uint32_t w, uint32_t lo, uint32_t hi)
{
    const __half2 low = gemm_h2(0x64086408), high = gemm_h2(0xd480d480), part = gemm_h2(0x2c002c00);
    const uint32_t v = w >> 8;
    const uint32_t n0 = lop3<0xEA>(w, 0x000f000f, 0x64006400);
    const uint32_t n1 = lop3<0xEA>(w, 0x00f000f0, 0x64006400);
    const uint32_t n2 = lop3<0xEA>(v, 0x000f000f, 0x64006400);
    const uint32_t n3 = lop3<0xEA>(v, 0x00f000f0, 0x64006400);
    a[0] = gemm_u32(__hmul2(__hsub2(gemm_h2(n0), low), gemm_h2(lo)));
    a[1] = gemm_u32(__hmul2(__hfma2(gemm_h2(n1), part, high), gemm_h2(hi)));
    a[2] = gemm_u32(__hmul2(__hsub2(gemm_h2(n2), low), gemm_h2(lo)));
    a[3] = gemm_u32(__hmul2(__hfma2(gemm_h2(n3), part, high), gemm_h2(hi)));
}

GEMM_FN void gemm_expand_w8(uint32_t *a, uint32_t w0, uint32_t w1, uint32_t lo, uint32_t hi)
{
    const __half2 bias = gemm_h2(0x64806480); /* 1024 + 128 */
    a[0] = gemm_u32(__hmul2(__hsub2(gemm_h2(prmt(w0, 0x64646464, 0x4140)), bias), gemm_h2(lo)));
    a[2] = gemm_u32(__hmul2(__hsub2(gemm_h2(prmt(w0, 0x64646464, 0x4342)), bias), gemm_h2(lo)));
    a[1] = gemm_u32(__hmul2(__hsub2(gemm_h2(prmt(w1, 0x64646464, 0x4140)), bias), gemm_h2(hi)));
    a[3] = gemm_u32(__hmul2(__hsub2(gemm_h2(prmt(w1, 0x64646464, 0x4342)), bias), gemm_h2(hi)));
}

/* A lane's codes of a row block and step as they lie in shared memory. */
template <int KIND> struct gemm_raw {
    uint4 c[KIND == CU_W4 ? 1 : KIND == CU_W8 ? 2 : 4];
    uint32_t s;
};

/* step: a 64-row step in shared memory. */
template <int KIND>
GEMM_FN void gemm_fetch(struct gemm_raw<KIND> *r, const uint8_t *step, int rb, int lane)
{
    if constexpr (KIND == CU_W4) {
        r->c[0] = *(const uint4 *)(step + rb * 512 + lane * 16);
        r->s = *(const uint32_t *)(step + 2048 + (lane >> 2) * 16 + rb * 4);
    } else if constexpr (KIND == CU_W8) {
        const uint8_t *half = step + (rb >> 1) * 2112, *p = half + (rb & 1) * 1024 + lane * 16;
        r->c[0] = *(const uint4 *)p;
        r->c[1] = *(const uint4 *)(p + 512);
        r->s = *(const uint32_t *)(half + 2048 + (lane >> 2) * 8 + (rb & 1) * 4);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            r->c[j] = *(const uint4 *)(step + rb * 2048 + j * 512 + lane * 16);
        }
    }
}

/* a[4 j + i]: register i of MMA j. */
template <int KIND> GEMM_FN void gemm_expand(uint32_t *a, const struct gemm_raw<KIND> *r)
{
    if constexpr (KIND == CU_W16) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            a[4 * j] = r->c[j].x;
            a[4 * j + 1] = r->c[j].y;
            a[4 * j + 2] = r->c[j].z;
            a[4 * j + 3] = r->c[j].w;
        }
    } else {
        const uint32_t lo = prmt(r->s, r->s, 0x1010), hi = prmt(r->s, r->s, 0x3232);
        if constexpr (KIND == CU_W4) {
            gemm_expand_w4(a, r->c[0].x, lo, hi);
            gemm_expand_w4(a + 4, r->c[0].y, lo, hi);
            gemm_expand_w4(a + 8, r->c[0].z, lo, hi);
            gemm_expand_w4(a + 12, r->c[0].w, lo, hi);
        } else {
            gemm_expand_w8(a, r->c[0].x, r->c[0].y, lo, hi);
            gemm_expand_w8(a + 4, r->c[0].z, r->c[0].w, lo, hi);
            gemm_expand_w8(a + 8, r->c[1].x, r->c[1].y, lo, hi);
            gemm_expand_w8(a + 12, r->c[1].z, r->c[1].w, lo, hi);
        }
    }
}

template <int KIND> GEMM_FN void gemm_load_a(uint32_t *a, const uint8_t *step, int rb, int lane)
{
    struct gemm_raw<KIND> r;
    gemm_fetch<KIND>(&r, step, rb, lane);
    gemm_expand<KIND>(a, &r);
}

/* ---- results ----
 * A chunk is one row block (16 rows) by 32 tokens: d[4 nb + i] of lane 4 g + t is
 * row g + 8 (i / 2), token 8 nb + 2 t + i % 2. */

enum { GEMM_STAGE = 20 * 32 * 4 }; /* bytes of shared memory that a warp needs for a chunk */

/* y, at the row block's first row and the chunk's first token, of which `tokens` and
 * `rows` count. scale: of rows g and g + 8. stage: the warp's own. */
GEMM_FN void gemm_put(const float *d, float *stage, float *y, size_t ldy, int tokens, int rows,
                      bool vec, bool add, float scale_lo, float scale_hi, int lane)
{
    const int g = lane >> 2, t = lane & 3;
    /* out: lane's tokens are g + 8 i, its rows 4 t .. 4 t + 3 */
    const bool whole = vec && 4 * t + 4 <= rows;
    y += (size_t)g * ldy + 4 * t;
    float4 x[4] = {};
    if (add && whole) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (8 * i + g < tokens) {
                x[i] = *(const float4 *)(y + (size_t)(8 * i) * ldy);
            }
        }
    }
#pragma unroll
    for (int nb = 0; nb < 4; nb++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float *s = stage + (8 * nb + 2 * t + c) * 20 + g;
            s[0] = d[4 * nb + c] * scale_lo;
            s[8] = d[4 * nb + 2 + c] * scale_hi;
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++, y += 8 * ldy) {
        const float4 v = *(const float4 *)(stage + (8 * i + g) * 20 + 4 * t);
        if (8 * i + g >= tokens) {
            continue;
        }
        if (whole) {
            const float4 o = make_float4(x[i].x + v.x, x[i].y + v.y, x[i].z + v.z, x[i].w + v.w);
            *(float4 *)y = add ? o : v;
        } else {
#pragma unroll 1
            for (int q = 0; q < 4 && 4 * t + q < rows; q++) {
                const float e = stage[(8 * i + g) * 20 + 4 * t + q];
                y[q] = add ? y[q] + e : e;
            }
        }
    }
    __syncwarp();
}

/* Gate in rows g, up in rows g + 8: 8 outputs of 32 tokens go as fp16 into block, a
 * shared image of the xt block's rows of 128 bytes from the chunk's first token on (a
 * multiple of 8). rb: row block within the 128 rows that fill a block of 64 outputs. */
GEMM_FN void gemm_silu(const float *d, uint8_t *block, int rb, float scale_lo, float scale_hi,
                       int lane)
{
    const int g = lane >> 2, t = lane & 3, odd = g & 1;
    const int unit = 4 * (rb & 1) + (g >> 1);
#pragma unroll
    for (int nb = 0; nb < 4; nb++) {
        float o[2];
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const float gate = d[4 * nb + c] * scale_lo, up = d[4 * nb + 2 + c] * scale_hi;
            o[c] = gate * rcp_approx(1 + ex2_approx(gate * -1.44269504f)) * up;
        }
        /* even g keeps the first token of the pair, odd g the second */
        const float other = __shfl_xor_sync(0xffffffff, odd ? o[0] : o[1], 4);
        const uint32_t pair = odd ? f16x2_of_f32(other, o[1]) : f16x2_of_f32(o[0], other);
        const int token = 8 * nb + 2 * t + odd;
        *(uint32_t *)(block + token * 128 + ((unit ^ (token & 7)) << 4) + (rb >> 1) * 4) = pair;
    }
}

#endif
