#ifndef QUASAR_KERNELS_CUDA_MM90_INPUTS_CUH
#define QUASAR_KERNELS_CUDA_MM90_INPUTS_CUH

/* A chain of products on sm_90 (mm_sm90.cuh): a streaming warp brings the inputs of its own
 * steps to shared memory. */

#include "kernels/cuda/mm90_room.cuh"

/* A warp's steps of a phase: number i is step first + 8 i of K. */
struct own_steps {
    int first, n;
};

static __device__ __forceinline__ struct own_steps own_steps_of(int k0, int n, int warp)
{
    struct own_steps o;
    o.first = k0 + ((warp - k0) & (MM90_STREAM - 1));
    o.n = (k0 + n - o.first + MM90_STREAM - 1) / MM90_STREAM;
    return o;
}

/* Inputs from another launch: all rows of the warp's steps, step by step. */
static __device__ __forceinline__ void inputs_plain(const struct mm_op &a, struct own_steps o,
                                                    uint32_t x, int lane, int count)
{
    int j = 0, row = lane / 8;
    while (row >= count) {
        row -= count;
        j++;
    }
    for (uint32_t p = (uint32_t)lane / 8; j < o.n; p += 4) {
        cp_async16(x + p * MM90_X_ROW + lane % 8 * 16,
                   a.x + (size_t)row * a.k + (o.first + MM90_STREAM * j) * 64 + lane % 8 * 8);
        row += 4;
        while (row >= count) {
            row -= count;
            j++;
        }
    }
    cp_async_commit();
    cp_async_wait<0>();
}

/* Inputs from the link before: a lane takes four of them at a time, in half a warp a row's
 * step; ASKED: units on their way. */
template <int ASKED>
static __device__ __forceinline__ void inputs_words(const struct mm_op &a, struct own_steps o,
                                                    uint8_t *x, int lane, int count,
                                                    uint32_t ticket)
{
    const int all = o.n * count;
    int j = 0, row = lane / 16;
    while (row >= count) {
        row -= count;
        j++;
    }
    const uint2 *from = a.w.x + o.first * 32 + lane % 16 * 2;
    for (int p0 = 0; p0 < all; p0 += 2 * ASKED) {
        int at[ASKED]; /* in words */
        uint4 t[ASKED];
#pragma unroll
        for (int i = 0; i < ASKED; i++) {
            at[i] = row * a.w.ld + j * (MM90_STREAM * 32);
            t[i] = make_uint4(0, ticket, 0, ticket);
            if (p0 + 2 * i + lane / 16 < all) {
                t[i] = ld_ticket(from + at[i]);
            }
            row += 2;
            while (row >= count) {
                row -= count;
                j++;
            }
        }
        for (bool again = true; again;) { /* all that are missing at once */
            again = false;
#pragma unroll
            for (int i = 0; i < ASKED; i++) {
                again = again || !is_there(t[i], ticket);
            }
            if (again) {
                look_again();
#pragma unroll
                for (int i = 0; i < ASKED; i++) {
                    if (!is_there(t[i], ticket)) {
                        t[i] = ld_ticket(from + at[i]);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < ASKED; i++) {
            const int p = p0 + 2 * i + lane / 16;
            if (p < all) {
                *(uint2 *)(x + (uint32_t)p * MM90_X_ROW + lane % 16 * 8) =
                    make_uint2(t[i].x, t[i].z);
            }
        }
    }
}

/* Brings a phase's inputs of the warp's steps to shared memory, and their offsets: what codes
 * have too much, -1032 and -1152 times the sum of the inputs, which is a product with ones. */
template <int NT, int ASKED>
static __device__ __forceinline__ void stage_phase(const struct mm_op &a, struct own_steps o,
                                                   uint8_t *x, uint8_t *offset, int lane, int count,
                                                   uint32_t ticket)
{
    __syncwarp(); /* nobody needs what was there */
    if (a.w.x) {
        inputs_words<ASKED>(a, o, x, lane, count, ticket + a.w.x_at);
    } else {
        inputs_plain(a, o, smem_addr(x), lane, count);
    }
    __syncwarp();
    const uint32_t one = 0x3C003C00, ones[4] = {one, one, one, one};
    const float zeros[4] = {0, 0, 0, 0};
#pragma unroll 3
    for (int j = 0; j < o.n; j++) {
        const uint8_t *step = x + (uint32_t)(j * count) * MM90_X_ROW;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int row = lane / 4 + 8 * n;
            const uint8_t *at = step + (row < count ? row : count - 1) * MM90_X_ROW + lane % 4 * 32;
            const uint4 b[2] = {*(const uint4 *)at, *(const uint4 *)(at + 16)};
            float d[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                mma_f16(d[h], ones, b[h].x, b[h].y, zeros);
                mma_f16(d[h], ones, b[h].z, b[h].w, d[h]);
            }
            if (lane < 4) {
                const float s0 = d[0][0] + d[1][0], s1 = d[0][1] + d[1][1];
                *(float4 *)(offset + (j * NT + n) * 64 + lane * 16) =
                    make_float4(-1032 * s0, -1032 * s1, -1152 * s0, -1152 * s1);
            }
        }
    }
    __syncwarp();
}

#endif
