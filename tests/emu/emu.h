#ifndef QUASAR_TESTS_EMU_H
#define QUASAR_TESTS_EMU_H

/*
 * The CUDA language for g++: included before every .cu file of the emulator (g++
 * -DQUASAR_EMULATE -include tests/emu/emu.h -x c++). Vector types and fp16 come from
 * CUDA's own headers; a kernel is a function that one fiber per thread calls.
 */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>
#include <cuda_fp16.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
/* All in one section, so that every block starts with it poisoned. */
#define __shared__ static __attribute__((section("emu_shared")))

/* ---- launches ---- */

struct emu_call {
    const char *name;
    dim3 grid, block;
    size_t smem;
    bool sm90, pdl;
    bool together; /* all blocks are there at once; none has static shared memory */
    void (*body)(void *);
    void *arg;
    size_t arg_size; /* of the arguments, which may be copied byte by byte */
};
cudaError_t emu_run(const struct emu_call *c);

template <typename... P>
cudaError_t emu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                       bool sm90, bool pdl, bool together, P... args)
{
    auto body = [=] { kernel(args...); };
    struct emu_call c = {
        name,          grid,       block,    smem,
        sm90,          pdl,        together, [](void *p) { (*(decltype(body) *)p)(); },
        (void *)&body, sizeof body};
    return emu_run(&c);
}

/* The order of blocks, warps and lanes, and when copies land. Cycle: each launch takes
 * the next of the others; random ones differ. Also QUASAR_EMU_ORDER=forward|reverse|random|cycle
 * and QUASAR_EMU_SEED. */
enum emu_order { EMU_CYCLE, EMU_FORWARD, EMU_REVERSE, EMU_RANDOM };
void emu_set_order(enum emu_order order, uint64_t seed);

/* ---- what a kernel sees ---- */

struct emu_place {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
};
extern struct emu_place *emu_here;
#define threadIdx (emu_here->thread)
#define blockIdx  (emu_here->block)
#define blockDim  (emu_here->block_dim)
#define gridDim   (emu_here->grid_dim)
#define warpSize  32

unsigned char *cu_smem(void);
unsigned char *cu_smem_aligned(unsigned align);

void __syncthreads(void);
int __syncthreads_or(int v);
int __syncthreads_and(int v);
int __syncthreads_count(int v);
void __syncwarp(unsigned mask = 0xffffffff);
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}
[[noreturn]] void __trap(void);

/* Lane `from` of the mask gives its 8 bytes. */
uint64_t emu_shfl(const char *what, unsigned mask, uint64_t v, int from);
int emu_lane(void);
unsigned emu_vote(const char *what, unsigned mask, int v, int kind);
unsigned emu_reduce(const char *what, unsigned mask, unsigned v, int kind);

template <typename T> T emu_shfl_as(const char *what, unsigned mask, T v, int from)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t u = 0;
    memcpy(&u, &v, sizeof v);
    u = emu_shfl(what, mask, u, from);
    memcpy((void *)&v, &u, sizeof v);
    return v;
}
template <typename T> T __shfl_sync(unsigned mask, T v, int src, int width = 32)
{
    int l = emu_lane();
    return emu_shfl_as("__shfl_sync", mask, v, (l & ~(width - 1)) | (src & (width - 1)));
}
template <typename T> T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32)
{
    int l = emu_lane(), s = l ^ x;
    return emu_shfl_as("__shfl_xor_sync", mask, v, (s & ~(width - 1)) > l ? l : s);
}
template <typename T> T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32)
{
    int l = emu_lane(), s = l - (int)d;
    return emu_shfl_as("__shfl_up_sync", mask, v, s < (l & ~(width - 1)) ? l : s);
}
template <typename T> T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32)
{
    int l = emu_lane(), s = l + (int)d;
    return emu_shfl_as("__shfl_down_sync", mask, v, s > (l | (width - 1)) ? l : s);
}
static inline unsigned __ballot_sync(unsigned mask, int v)
{
    return emu_vote("__ballot_sync", mask, v, 0);
}
static inline int __any_sync(unsigned mask, int v)
{
    return (int)emu_vote("__any_sync", mask, v, 1);
}
static inline int __all_sync(unsigned mask, int v)
{
    return (int)emu_vote("__all_sync", mask, v, 2);
}
static inline unsigned __reduce_add_sync(unsigned mask, unsigned v)
{
    return emu_reduce("__reduce_add_sync", mask, v, 0);
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v)
{
    return emu_reduce("__reduce_max_sync", mask, v, 1);
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v)
{
    return emu_reduce("__reduce_min_sync", mask, v, 2);
}
static inline int __reduce_add_sync(unsigned mask, int v)
{
    return (int)emu_reduce("__reduce_add_sync", mask, (unsigned)v, 0);
}
static inline int __reduce_max_sync(unsigned mask, int v)
{
    return (int)emu_reduce("__reduce_max_sync", mask, (unsigned)v, 3);
}
static inline int __reduce_min_sync(unsigned mask, int v)
{
    return (int)emu_reduce("__reduce_min_sync", mask, (unsigned)v, 4);
}

/* Atomics of integers; those of floats have no fixed order and are not wanted. */
template <typename T> struct emu_same {
    typedef T type;
};
void emu_sync_point(void *p);
#define EMU_ATOMIC(name, expr)                                                                     \
    template <typename T> T name(T *p, typename emu_same<T>::type v)                               \
    {                                                                                              \
        static_assert(T(1) / T(2) == T(0), "an atomic of floats has no fixed order");              \
        emu_sync_point(p);                                                                         \
        T old = *p;                                                                                \
        *p = (expr);                                                                               \
        emu_sync_point(p);                                                                         \
        return old;                                                                                \
    }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicExch, v)
EMU_ATOMIC(atomicMax, old > v ? old : v)
EMU_ATOMIC(atomicMin, old < v ? old : v)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicAnd, old &v)
EMU_ATOMIC(atomicXor, old ^ v)
EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
template <typename T>
T atomicCAS(T *p, typename emu_same<T>::type compare, typename emu_same<T>::type v)
{
    emu_sync_point(p);
    T old = *p;
    if (old == compare) {
        *p = v;
    }
    emu_sync_point(p);
    return old;
}

/* ---- intrinsics ---- */

template <typename To, typename From> To emu_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "sizes");
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
static inline unsigned __float_as_uint(float x)
{
    return emu_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return emu_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return emu_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return emu_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return emu_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return emu_bits<double>(x);
}
/* names that the C library keeps for itself */
#define __expf   expf
#define __exp10f exp10f
#define __logf   logf
#define __log2f  log2f
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float x)
{
    return 1 / x;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __saturatef(float x)
{
    return x > 0 ? x < 1 ? x : 1 : 0;
}
static inline float rsqrtf(float x)
{
    return (float)(1 / sqrt((double)x));
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
/* Out of range saturates, NaN is 0, as on the chip. */
static inline int __float2int_rn(float x)
{
    return x != x               ? 0
           : x >= 2147483648.0f ? INT32_MAX
           : x < -2147483648.0f ? INT32_MIN
                                : (int)rintf(x);
}
static inline int __float2int_rz(float x)
{
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int)x;
}
static inline unsigned __float2uint_rn(float x)
{
    return !(x > 0) ? 0 : x >= 4294967296.0f ? UINT32_MAX : (unsigned)rintf(x);
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) << (n & 31) >> 32);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned sel)
{
    uint64_t v = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        r |= (unsigned)(v >> (sel >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    }
    return r;
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++) {
        c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    }
    return c;
}
template <typename T> T __ldg(const T *p)
{
    return *p;
}
template <typename T> T __ldcg(const T *p)
{
    return *p;
}
template <typename T> T __ldcs(const T *p)
{
    return *p;
}
template <typename T> void __stcg(T *p, typename emu_same<T>::type v)
{
    *p = v;
}
template <typename T> void __stcs(T *p, typename emu_same<T>::type v)
{
    *p = v;
}

#define EMU_MINMAX(T)                                                                              \
    static inline T min(T a, T b)                                                                  \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    static inline T max(T a, T b)                                                                  \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }
EMU_MINMAX(int)
EMU_MINMAX(unsigned)
EMU_MINMAX(long)
EMU_MINMAX(unsigned long)
EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

/* What cuda_fp16.h has for the chip only: one rounding. */
static inline __half __hfma(__half a, __half b, __half c)
{
    return __double2half((double)__half2float(a) * (double)__half2float(b) +
                         (double)__half2float(c));
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return __halves2half2(__hfma(__low2half(a), __low2half(b), __low2half(c)),
                          __hfma(__high2half(a), __high2half(b), __high2half(c)));
}

#endif
