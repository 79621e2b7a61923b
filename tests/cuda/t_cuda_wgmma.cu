/* Warpgroup products against plain sums of whole numbers, which are exact: every width,
 * A from registers and from shared memory, both ways round for B, several groups under
 * way. */
#include "cutest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wgmma.cuh"

enum { K = 64, GROUPS = 2, THREADS = GROUPS * 128 };

/* The half at (row, k) of a tile of rows of 64, swizzled; and at (k, n) of chunks of 64
 * columns. Both in halves. */
static __host__ __device__ inline int place(int row, int k)
{
    return row * 64 + ((k / 8) ^ (row % 8)) * 8 + k % 8;
}

static __host__ __device__ inline int place_t(int k, int n)
{
    return n / 64 * (K * 64) + k * 64 + ((n % 64 / 8) ^ (k % 8)) * 8 + n % 8;
}

/* d[128][N] = a[128][64] b[64][N] + c: the sums of 64 in four products. Way 0: c is
 * zero by not adding at first. Way 1: c in the accumulator. */
template <int N, int RS, int TB>
static __global__ void __launch_bounds__(THREADS, 1)
    wgmma_kernel(const uint16_t *a, const uint16_t *b, const float *c, float *d, int way)
{
    uint16_t *s = (uint16_t *)cu_smem_aligned(1024), *sb = s + GROUPS * 64 * K;
    const int t = (int)threadIdx.x, group = t / 128, w = t % 128 / 32, g = t % 32 / 4, q = t % 4;
    for (int i = t; i < 64 * GROUPS * K; i += THREADS) {
        const int row = i / K, k = i % K;
        s[row / 64 * 64 * K + place(row % 64, k)] = a[i];
    }
    for (int i = t; i < N * K; i += THREADS) {
        const int k = i / N, n = i % N;
        sb[TB ? place_t(k, n) : place(n, k)] = b[i];
    }
    fence_proxy_async();
    __syncthreads();
    float acc[N / 2];
    const int row = 64 * group + 16 * w + g;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        acc[i] =
            way ? c[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + 2 * q + i % 2] : __int_as_float(-1);
    }
    uint32_t frag[4][4];
    for (int k = 0; k < 4; k++) {
        for (int r = 0; r < 4; r++) {
            const uint16_t *p = a + (row + r % 2 * 8) * K + 16 * k + r / 2 * 8 + 2 * q;
            frag[k][r] = p[0] | (uint32_t)p[1] << 16;
        }
    }
    const uint64_t da = wgmma_desc(smem_addr(s + group * 64 * K));
    const uint64_t db = TB ? wgmma_desc_t(smem_addr(sb), K * 128) : wgmma_desc(smem_addr(sb));
    wgmma_touch<N / 2>(acc);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint64_t bk = db + (uint64_t)(k * (TB ? WGMMA_T_K16 : WGMMA_K16));
        if (RS) {
            wgmma_rs<N, TB>(acc, frag[k], bk, way || k > 0);
        } else {
            wgmma_ss<N, TB>(acc, da + (uint64_t)(k * WGMMA_K16), bk, way || k > 0);
        }
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_touch<N / 2>(acc);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        d[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + 2 * q + i % 2] = acc[i];
    }
}

/* Three groups of products under way with two accumulators: d = 3 a b of the first 64
 * columns, e = a b of the next. */
static __global__ void __launch_bounds__(128, 1)
    groups_kernel(const uint16_t *a, const uint16_t *b, float *d, float *e)
{
    uint16_t *s = (uint16_t *)cu_smem_aligned(1024), *sb = s + 64 * K;
    const int t = (int)threadIdx.x, row = t / 32 * 16 + t % 32 / 4, q = t % 4;
    for (int i = t; i < 64 * K; i += 128) {
        s[place(i / K, i % K)] = a[i];
    }
    for (int i = t; i < 128 * K; i += 128) {
        sb[place(i % 128, i / 128)] = b[i];
    }
    fence_proxy_async();
    __syncthreads();
    float x[32], y[32];
#pragma unroll
    for (int i = 0; i < 32; i++) {
        x[i] = 0;
        y[i] = 0;
    }
    const uint64_t da = wgmma_desc(smem_addr(s)), db = wgmma_desc(smem_addr(sb));
    for (int step = 0; step < 3; step++) {
        wgmma_touch<32>(x);
        wgmma_touch<32>(y);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wgmma_ss<64>(x, da + (uint64_t)(k * WGMMA_K16), db + (uint64_t)(k * WGMMA_K16), 1);
        }
        wgmma_commit();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wgmma_ss<64>(y, da + (uint64_t)(k * WGMMA_K16), db + 512 + (uint64_t)(k * WGMMA_K16),
                         k > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_touch<32>(x);
        if (step < 2) {
            wgmma_wait<0>();
            wgmma_touch<32>(y);
        }
    }
    /* x is there while y is under way */
#pragma unroll
    for (int i = 0; i < 32; i++) {
        d[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + 2 * q + i % 2] = x[i];
    }
    wgmma_wait<0>();
    wgmma_touch<32>(y);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        e[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + 2 * q + i % 2] = y[i];
    }
}

struct data {
    float a[128 * K], b[K * 256], c[128 * 256], got[128 * 256];
    uint16_t ha[128 * K], hb[K * 256];
    double want[128 * 256];
};

static void fill(struct data *x, int n, bool with_c)
{
    for (int i = 0; i < 128 * K; i++) {
        x->a[i] = (float)(cut_below(17) - 8);
        x->ha[i] = cut_half(x->a[i]);
    }
    for (int i = 0; i < K * n; i++) {
        x->b[i] = (float)(cut_below(17) - 8);
        x->hb[i] = cut_half(x->b[i]);
    }
    for (int i = 0; i < 128 * n; i++) {
        x->c[i] = (float)(cut_below(2001) - 1000);
        x->want[i] = with_c ? (double)x->c[i] : 0;
        for (int k = 0; k < K; k++) {
            x->want[i] += (double)x->a[i / n * K + k] * (double)x->b[k * n + i % n];
        }
    }
}

template <int N, int RS, int TB> static void test_shape(struct cu_ctx *c, struct data *x)
{
    for (int way = 0; way < 2; way++) {
        fill(x, N, way == 1);
        uint16_t *a = cut_upload(x->ha, 128 * K), *b = cut_upload(x->hb, K * N);
        float *cc = cut_upload(x->c, 128 * N), *d = cut_new<float>(128 * N);
        cut_must(cu_launch(c, "wgmma_kernel", wgmma_kernel<N, RS, TB>, dim3(1), dim3(THREADS),
                           896 + (128 + N) * K * 2, (const uint16_t *)a, (const uint16_t *)b,
                           (const float *)cc, d, way),
                 "wgmma_kernel");
        cut_download(x->got, d, 128 * N);
        cut_rms(x->got, x->want, 128 * N, 0, "wgmma_%s<%d>, %s, %s", RS ? "rs" : "ss", N,
                TB ? "wgmma_desc_t" : "wgmma_desc", way ? "added" : "from nothing");
        cut_free(a);
        cut_free(b);
        cut_free(cc);
        cut_free(d);
    }
}

static void test_groups(struct cu_ctx *c, struct data *x)
{
    for (int o = 0; o < 3; o++) {
        cut_order(o);
        fill(x, 128, false);
        uint16_t *a = cut_upload(x->ha, 64 * K), *b = cut_upload(x->hb, K * 128);
        float *d = cut_new<float>(64 * 64), *e = cut_new<float>(64 * 64);
        cut_must(cu_launch(c, "groups_kernel", groups_kernel, dim3(1), dim3(128), 896 + 192 * K * 2,
                           (const uint16_t *)a, (const uint16_t *)b, d, e),
                 "groups_kernel");
        cut_download(x->got, d, 64 * 64);
        cut_download(x->got + 64 * 64, e, 64 * 64);
        bool good = true;
        for (int i = 0; i < 64 * 64; i++) {
            good &= (double)x->got[i] == 3 * x->want[i / 64 * 128 + i % 64];
            good &= (double)x->got[64 * 64 + i] == x->want[i / 64 * 128 + 64 + i % 64];
        }
        cut_ok(good, "wgmma_commit, wgmma_wait: two accumulators, order %d", o);
        cut_free(a);
        cut_free(b);
        cut_free(d);
        cut_free(e);
    }
}

int main(void)
{
    cut_begin();
    enum cu_path paths[2];
    if (paths[cut_paths(paths) - 1] != CU_SM90) {
        printf("1..0 # SKIP no wgmma here\n");
        return 0;
    }
    struct cu_ctx *c = cut_ctx(CU_SM90, false);
    struct data *x = cut_host<struct data>(1);
    test_shape<64, 0, 0>(c, x);
    test_shape<128, 0, 0>(c, x);
    test_shape<256, 0, 0>(c, x);
    test_shape<64, 1, 0>(c, x);
    test_shape<128, 1, 0>(c, x);
    test_shape<256, 1, 0>(c, x);
    test_shape<64, 0, 1>(c, x);
    test_shape<128, 1, 1>(c, x);
    test_shape<256, 1, 1>(c, x);
    test_groups(c, x);
    free(x);
    return cut_end();
}
