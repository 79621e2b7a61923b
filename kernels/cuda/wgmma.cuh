#ifndef QUASAR_KERNELS_CUDA_WGMMA_CUH
#define QUASAR_KERNELS_CUDA_WGMMA_CUH

/*
 * Warpgroup products of sm_90a: 64 x N x 16 halves into fp32 (N 64, 128 or 256),
 * issued by four warps, the first a multiple of 4, and running beside them until
 * waited for.
 *
 * d[N / 2] of warp w (0..3): d[i] is row 16 w + g + 8 (i / 2 % 2), column
 * 8 (i / 4) + 2 t + i % 2. A in registers: warp w has rows 16 w .. 16 w + 15, laid
 * out as for mma_f16. In shared memory (wgmma_desc): rows of A, or columns of B,
 * of 64 halves along the sum (128 bytes), from a 1024-byte boundary, the 16-byte
 * unit u of row r at u ^ r % 8.
 */

#include "kernels/cuda/ptx.cuh"

/* Between ordinary accesses to d or to A's registers and the first product. */
PTX_FN void wgmma_fence(void);
PTX_FN void wgmma_commit(void);
/* At most N committed groups are under way; d of the others may be read. */
template <int N> PTX_FN void wgmma_wait(void);
/* Keeps the compiler from moving accesses to d across it: before wgmma_fence and
 * after wgmma_wait. */
template <int REGS> PTX_FN void wgmma_touch(float *d);
/* The same for A's registers: before wgmma_fence, and after the wait so that nothing
 * else is put into them until then. */
template <int REGS> PTX_FN void wgmma_touch_a(uint32_t *a);

/* Add WGMMA_K16 for each 16 halves further along the rows (4 in 64), and bytes / 16
 * for a further tile. */
PTX_FN uint64_t wgmma_desc(uint32_t smem);
#define WGMMA_K16 2

/* B whose rows run along N (a value row per key): chunks of 64 columns, chunk_bytes
 * apart; in a chunk a row of 128 bytes for every step of the sum, swizzled as above.
 * For products with TB = 1. Add WGMMA_T_K16 for each 16 rows further. */
PTX_FN uint64_t wgmma_desc_t(uint32_t smem, uint32_t chunk_bytes);
#define WGMMA_T_K16 128

/* d = a b + (add ? d : 0); add must be the same in all threads. */
template <int N, int TB = 0> PTX_FN void wgmma_ss(float *d, uint64_t a, uint64_t b, int add);
template <int N, int TB = 0> PTX_FN void wgmma_rs(float *d, const uint32_t *a, uint64_t b, int add);

/* =========================================================================== */
/* Bits 0..13 address / 16, 16..29 leading offset / 16 (unused along the sum: 1; else
 * between chunks), 32..45 offset / 16 between groups of 8 rows, 62..63 swizzle mode 1
 * (128 bytes). */
#ifdef QUASAR_EMULATE
#define PTX_DESC static inline
#else
#define PTX_DESC static __device__ __forceinline__
#endif

PTX_DESC uint64_t wgmma_desc_bits(uint32_t smem, uint32_t lead)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(lead >> 4) << 16 |
           (smem & 0x3ffff) >> 4;
}

#ifndef QUASAR_EMULATE

PTX_FN uint64_t wgmma_desc(uint32_t smem)
{
    return wgmma_desc_bits(smem, 16);
}

PTX_FN uint64_t wgmma_desc_t(uint32_t smem, uint32_t chunk_bytes)
{
    return wgmma_desc_bits(smem, chunk_bytes);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PTX_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define PTX_SM90A(...) __trap()
#endif

PTX_FN void wgmma_fence(void)
{
    PTX_SM90A("wgmma.fence.sync.aligned;" ::: "memory");
}

PTX_FN void wgmma_commit(void)
{
    PTX_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> PTX_FN void wgmma_wait(void)
{
    PTX_SM90A("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

template <int REGS> PTX_FN void wgmma_touch(float *d)
{
#pragma unroll
    for (int i = 0; i < REGS; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

template <int REGS> PTX_FN void wgmma_touch_a(uint32_t *a)
{
#pragma unroll
    for (int i = 0; i < REGS; i++) {
        asm volatile("" : "+r"(a[i])::"memory");
    }
}

/* The registers of d; then where a, b, add and TB stand. */
// clang-format off
#define WG_D64 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define WG_D128 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
#define WG_D256 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
#define WG_SS64 "%32, %33, p, 1, 1, 0, %35;"
#define WG_RS64 "{%32, %33, %34, %35}, %36, p, 1, 1, %38;"
#define WG_PSS64 "setp.ne.b32 p, %34, 0;\n\t"
#define WG_PRS64 "setp.ne.b32 p, %37, 0;\n\t"
#define WG_SS128 "%64, %65, p, 1, 1, 0, %67;"
#define WG_RS128 "{%64, %65, %66, %67}, %68, p, 1, 1, %70;"
#define WG_PSS128 "setp.ne.b32 p, %66, 0;\n\t"
#define WG_PRS128 "setp.ne.b32 p, %69, 0;\n\t"
#define WG_SS256 "%128, %129, p, 1, 1, 0, %131;"
#define WG_RS256 "{%128, %129, %130, %131}, %132, p, 1, 1, %134;"
#define WG_PSS256 "setp.ne.b32 p, %130, 0;\n\t"
#define WG_PRS256 "setp.ne.b32 p, %133, 0;\n\t"

#define WG_F8(d, i) \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), \
    "+f"((d)[i + 4]), "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define WG_F32(d, i) WG_F8(d, i), WG_F8(d, i + 8), WG_F8(d, i + 16), WG_F8(d, i + 24)
#define WG_OUT64(d)  WG_F32(d, 0)
#define WG_OUT128(d) WG_F32(d, 0), WG_F32(d, 32)
#define WG_OUT256(d) WG_F32(d, 0), WG_F32(d, 32), WG_F32(d, 64), WG_F32(d, 96)

#define WG_SS(n) \
    PTX_SM90A("{\n\t.reg .pred p;\n\t" WG_PSS##n \
              "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 " WG_D##n WG_SS##n "\n\t}" \
              : WG_OUT##n(d) : "l"(a), "l"(b), "r"(add), "n"(TB))
#define WG_RS(n) \
    PTX_SM90A("{\n\t.reg .pred p;\n\t" WG_PRS##n \
              "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 " WG_D##n WG_RS##n "\n\t}" \
              : WG_OUT##n(d) \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB))
// clang-format on

template <int N, int TB> PTX_FN void wgmma_ss(float *d, uint64_t a, uint64_t b, int add)
{
    static_assert(N == 64 || N == 128 || N == 256, "wgmma width");
    if constexpr (N == 64) {
        WG_SS(64);
    } else if constexpr (N == 128) {
        WG_SS(128);
    } else {
        WG_SS(256);
    }
}

template <int N, int TB> PTX_FN void wgmma_rs(float *d, const uint32_t *a, uint64_t b, int add)
{
    static_assert(N == 64 || N == 128 || N == 256, "wgmma width");
    if constexpr (N == 64) {
        WG_RS(64);
    } else if constexpr (N == 128) {
        WG_RS(128);
    } else {
        WG_RS(256);
    }
}

#else

PTX_FN void emu_wgmma_wait(int n);
PTX_FN void emu_wgmma(float *d, int n, const uint32_t *a_regs, uint64_t a, uint64_t b, bool tb,
                      int add);

template <int N> void wgmma_wait(void)
{
    emu_wgmma_wait(N);
}

template <int REGS> void wgmma_touch(float *d)
{
    (void)d;
}

template <int REGS> void wgmma_touch_a(uint32_t *a)
{
    (void)a;
}

template <int N, int TB> void wgmma_ss(float *d, uint64_t a, uint64_t b, int add)
{
    static_assert(N == 64 || N == 128 || N == 256, "wgmma width");
    emu_wgmma(d, N, NULL, a, b, TB != 0, add);
}

template <int N, int TB> void wgmma_rs(float *d, const uint32_t *a, uint64_t b, int add)
{
    static_assert(N == 64 || N == 128 || N == 256, "wgmma width");
    emu_wgmma(d, N, a, 0, b, TB != 0, add);
}

#endif

#endif
