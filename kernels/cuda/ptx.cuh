#ifndef QUASAR_KERNELS_CUDA_PTX_CUH
#define QUASAR_KERNELS_CUDA_PTX_CUH

/*
 * One function per machine instruction that C++ cannot say: the only place with
 * asm. Under nvcc they are inline; with QUASAR_EMULATE they are ordinary functions
 * of tests/emu, which runs kernels on the host.
 *
 * Operands in shared memory are 32-bit addresses from smem_addr(). A warp's
 * collective instructions (ldmatrix, mma, wgmma) want all 32 lanes. Fragments:
 * g = lane / 4, t = lane % 4, and a register's low half or byte comes first.
 * What a chip lacks traps: sm_80 code must not reach it.
 */

#include <stdint.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* PTX_CVT: written here for the emulator too. */
#ifdef QUASAR_EMULATE
#define PTX_FN
#define PTX_CVT static inline
#else
#define PTX_FN  static __device__ __forceinline__
#define PTX_CVT static __device__ __forceinline__
#endif

/* ---- addresses and copies into shared memory ---- */

/* The 32-bit shared address of a pointer into shared memory. */
PTX_FN uint32_t smem_addr(const void *p);

/* 16 bytes (past L1), or 4; both addresses aligned to the size. _if: zeros instead of the
 * source, which is then not read, unless `valid`. Not there before cp_async_wait, and for
 * other threads a barrier after it. */
PTX_FN void cp_async16(uint32_t dst, const void *src);
PTX_FN void cp_async16_if(uint32_t dst, const void *src, bool valid);
PTX_FN void cp_async4(uint32_t dst, const void *src);
PTX_FN void cp_async4_if(uint32_t dst, const void *src, bool valid);
PTX_FN void cp_async_commit(void);
/* Waits until at most N of this thread's committed groups are under way. */
template <int N> PTX_FN void cp_async_wait(void);

/* ---- mbarrier (8 bytes of shared memory) and bulk copies; sm_90 ---- */

/* One thread initialises, fences, and then a block barrier. */
PTX_FN void mbar_init(uint32_t bar, uint32_t count);
PTX_FN void mbar_fence_init(void);
PTX_FN void mbar_arrive(uint32_t bar);
/* Adds bytes that this phase waits for; _arrive_expect arrives too. */
PTX_FN void mbar_expect(uint32_t bar, uint32_t bytes);
PTX_FN void mbar_arrive_expect(uint32_t bar, uint32_t bytes);
/* Whether the phase of this parity is complete; mbar_wait returns when it is. Phases
 * count 0, 1, 0...: a fresh barrier is in phase 0, and waiting for parity 1 passes. */
PTX_FN bool mbar_test(uint32_t bar, uint32_t parity);
PTX_FN void mbar_wait(uint32_t bar, uint32_t parity);

/* bytes (a multiple of 16; addresses too) from global memory; completes on bar. */
PTX_FN void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar);
/* The same with an L2 policy from l2_evict_first() or l2_evict_last(). */
PTX_FN void bulk_load_hint(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                           uint64_t policy);
PTX_FN uint64_t l2_evict_first(void);
PTX_FN uint64_t l2_evict_last(void);
/* Starts fetching into L2: bytes (a multiple of 16) or the line of an address. */
PTX_FN void bulk_prefetch(const void *src, uint32_t bytes);
PTX_FN void prefetch_l2(const void *src);
/* Before wgmma or a bulk copy touches shared memory that this thread wrote or read by
 * ordinary instructions; then the barrier. */
PTX_FN void fence_proxy_async(void);

/* ---- matrices in shared memory ---- */

/* 8x8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 hold the addresses of the rows
 * (16 bytes each, aligned) of matrix i, which lands in r[i]: elements (g, 2 t) and
 * (g, 2 t + 1); _trans: (2 t, g) and (2 t + 1, g). x2 uses the addresses of lanes 0..15. */
PTX_FN void ldmatrix_x4(uint32_t *r, uint32_t row);
PTX_FN void ldmatrix_x2(uint32_t *r, uint32_t row);
PTX_FN void ldmatrix_x4_trans(uint32_t *r, uint32_t row);
PTX_FN void ldmatrix_x2_trans(uint32_t *r, uint32_t row);

/* ---- warp products: d = a b + c; d may be c ----
 * d, c: (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1). */

/* 16x8x16. a: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..);
 * b (k, n): (2t.., g), (2t + 8.., g). */
PTX_FN void mma_f16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c);
PTX_FN void mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c);
/* 16x8x8 of fp32 bits whose low 13 are ignored. a: (g, t), (g + 8, t), (g, t + 4),
 * (g + 8, t + 4); b: (t, g), (t + 4, g). */
PTX_FN void mma_tf32(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c);
/* Round to nearest (ties away), for operands of mma_tf32. */
PTX_FN uint32_t cvt_tf32(float x);
/* 16x8x32 of bytes. a: (g, 4t..), (g + 8, 4t..), (g, 4t + 16..), (g + 8, 4t + 16..);
 * b: (4t.., g), (4t + 16.., g). */
PTX_FN void mma_s8(int32_t *d, const uint32_t *a, uint32_t b0, uint32_t b1, const int32_t *c);
PTX_FN void mma_e4m3(float *d, const uint32_t *a, uint32_t b0, uint32_t b1,
                     const float *c); /* sm_89 */

/* ---- barriers of some warps; registers ---- */

/* Named barrier id 1..15 of n threads (a multiple of 32); 0 is __syncthreads. */
PTX_FN void bar_sync(int id, int n);
PTX_FN void bar_arrive(int id, int n);
/* Registers per thread of this warpgroup (multiple of 8, 24..256); sm_90a. */
template <int N> PTX_FN void regs_inc(void);
template <int N> PTX_FN void regs_dec(void);

/* ---- programmatic dependent launch; nothing before sm_90 ---- */

/* All that earlier kernels wrote is there after it. */
PTX_FN void pdl_wait(void);
/* The next kernel's blocks may start where there is room. */
PTX_FN void pdl_launch(void);

/* ---- global memory ---- */

/* Read-only data used once: 16 aligned bytes that pass by L1. */
PTX_FN uint4 ldg_stream16(const void *p);
PTX_FN uint2 ldg_stream8(const void *p);
/* 16 aligned bytes of shared memory; stays where it is written among loads, barriers and
 * products. */
PTX_FN uint4 ld_shared16(uint32_t p);
/* From L2, whatever L1 holds; not kept in L1. */
PTX_FN float4 ld_l2_f4(const float *p);
PTX_FN float ld_l2_f32(const float *p);
PTX_FN uint32_t ld_relaxed(const void *p);
PTX_FN uint2 ld_l2_8(const void *p);
PTX_FN uint32_t ld_acquire(const void *p);
/* Two words of 8 bytes, each a value and a ticket, as one store and as one load: {value,
 * ticket, value, ticket}. Each word arrives whole, so that whoever reads the ticket he
 * waits for has the value too. */
PTX_FN void st_ticket(void *p, uint32_t a, uint32_t b, uint32_t ticket);
PTX_FN uint4 ld_ticket(const void *p);
/* The same of one word. */
PTX_FN void st_word(void *p, uint32_t v, uint32_t ticket);
PTX_FN uint2 ld_word(const void *p);
/* Between one look and the next at what others will write. */
PTX_FN void look_again(void);
PTX_FN void st_release(void *p, uint32_t v);
/* 16 aligned bytes from L2 when valid, else zeros, without a branch. */
PTX_CVT float4 ld_l2_16_if(const void *p, bool valid);
/* Counters of the last arriver: returns the value before. A block's other threads
 * write, __syncthreads, then one thread adds; the last one's block reads after another
 * __syncthreads. */
PTX_FN uint32_t atom_add_acq_rel(void *p, uint32_t v);
/* Counts up to last, then from 0 again. */
PTX_FN uint32_t atom_inc_acq_rel(void *p, uint32_t last);
PTX_FN void red_add_release(void *p, uint32_t v);
PTX_FN void fence_gpu(void);

/* ---- bits ---- */

/* Bit i of the result is bit (a_i b_i c_i) of LUT: 0xF0 is a, 0xCC b, 0xAA c. */
template <int LUT> PTX_FN uint32_t lop3(uint32_t a, uint32_t b, uint32_t c);
/* Byte i of the result is byte sel[4 i .. 4 i + 2] of {b, a}; bit 3 of the nibble: its
 * sign, eight times. */
PTX_FN uint32_t prmt(uint32_t a, uint32_t b, uint32_t sel);

/* ---- arithmetic ---- */

/* 2^x within 2 ulp, 1/x and 1/sqrt(x) within 1 ulp. Subnormal results are flushed. */
PTX_FN float ex2_approx(float x);
PTX_FN float rcp_approx(float x);
PTX_FN float rsqrt_approx(float x);

/* E4M3, two at a time, the low one first: to nearest even, beyond 448 becomes 448, NaN
 * becomes 0x7f. The way back is exact. Every architecture gives the same bits. */
PTX_FN uint16_t e4m3x2_of_f16x2(uint32_t h);
PTX_FN uint16_t e4m3x2_of_f32(float lo, float hi);
PTX_FN uint32_t f16x2_of_e4m3x2(uint16_t v);
/* Of four: bytes 0, 1 and 2, 3. */
PTX_CVT void f16x4_of_e4m3x4(uint32_t v, uint32_t *lo, uint32_t *hi);

/* fp16: to nearest even, saturated to +-65504; NaN becomes 0x7fff. */
PTX_FN uint32_t f16x2_of_f32(float lo, float hi);
PTX_FN uint16_t f16_of_f32(float x);

/* =========================================================================== */
#ifndef QUASAR_EMULATE

#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
#define PTX_SM90(...) asm volatile(__VA_ARGS__)
#else
#define PTX_SM90(...) __trap()
#endif

PTX_FN uint32_t smem_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

PTX_FN void cp_async16(uint32_t dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(dst),
                 "l"(__cvta_generic_to_global(src))
                 : "memory");
}

PTX_FN void cp_async16_if(uint32_t dst, const void *src, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst),
                 "l"(__cvta_generic_to_global(src)), "r"(valid ? 16 : 0)
                 : "memory");
}

PTX_FN void cp_async4(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst),
                 "l"(__cvta_generic_to_global(src))
                 : "memory");
}

PTX_FN void cp_async4_if(uint32_t dst, const void *src, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst),
                 "l"(__cvta_generic_to_global(src)), "r"(valid ? 4 : 0)
                 : "memory");
}

PTX_FN void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> PTX_FN void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

PTX_FN void mbar_init(uint32_t bar, uint32_t count)
{
    PTX_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

PTX_FN void mbar_fence_init(void)
{
    PTX_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
    PTX_SM90("fence.proxy.async.shared::cta;" ::: "memory");
}

PTX_FN void mbar_arrive(uint32_t bar)
{
    PTX_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

PTX_FN void mbar_expect(uint32_t bar, uint32_t bytes)
{
    PTX_SM90("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes)
             : "memory");
}

PTX_FN void mbar_arrive_expect(uint32_t bar, uint32_t bytes)
{
    PTX_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
             : "memory");
}

PTX_FN bool mbar_test(uint32_t bar, uint32_t parity)
{
    uint32_t done = 0;
    PTX_SM90("{\n\t.reg .pred p;\n\t"
             "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
             "selp.u32 %0, 1, 0, p;\n\t}"
             : "=r"(done)
             : "r"(bar), "r"(parity)
             : "memory");
    return done != 0;
}

PTX_FN void mbar_wait(uint32_t bar, uint32_t parity)
{
    while (!mbar_test(bar, parity)) {
    }
}

PTX_FN void bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    PTX_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%0], [%1], %2, [%3];" ::"r"(dst),
             "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(bar)
             : "memory");
}

PTX_FN void bulk_load_hint(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                           uint64_t policy)
{
    PTX_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
             "[%0], [%1], %2, [%3], %4;" ::"r"(dst),
             "l"(__cvta_generic_to_global(src)), "r"(bytes), "r"(bar), "l"(policy)
             : "memory");
}

PTX_FN uint64_t l2_evict_first(void)
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}

PTX_FN uint64_t l2_evict_last(void)
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
    return p;
}

PTX_FN void bulk_prefetch(const void *src, uint32_t bytes)
{
    PTX_SM90("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(src)),
             "r"(bytes)
             : "memory");
}

PTX_FN void prefetch_l2(const void *src)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(src)));
}

PTX_FN void fence_proxy_async(void)
{
    PTX_SM90("fence.proxy.async.shared::cta;" ::: "memory");
}

PTX_FN void ldmatrix_x4(uint32_t *r, uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

PTX_FN void ldmatrix_x2(uint32_t *r, uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row)
                 : "memory");
}

PTX_FN void ldmatrix_x4_trans(uint32_t *r, uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

PTX_FN void ldmatrix_x2_trans(uint32_t *r, uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row)
                 : "memory");
}

#define PTX_MMA(op, f, d, a, b0, b1, c)                                                            \
    asm volatile(op " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"         \
                 : "=" f((d)[0]), "=" f((d)[1]), "=" f((d)[2]), "=" f((d)[3])                      \
                 : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1),           \
                   f((c)[0]), f((c)[1]), f((c)[2]), f((c)[3]))

PTX_FN void mma_f16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    PTX_MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "f", d, a, b0, b1, c);
}

PTX_FN void mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    PTX_MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "f", d, a, b0, b1, c);
}

PTX_FN void mma_tf32(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
    PTX_MMA("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "f", d, a, b0, b1, c);
}

PTX_FN uint32_t cvt_tf32(float x)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

PTX_FN void mma_s8(int32_t *d, const uint32_t *a, uint32_t b0, uint32_t b1, const int32_t *c)
{
    PTX_MMA("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "r", d, a, b0, b1, c);
}

PTX_FN void mma_e4m3(float *d, const uint32_t *a, uint32_t b0, uint32_t b1, const float *c)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    PTX_MMA("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "f", d, a, b0, b1, c);
#else
    (void)d, (void)a, (void)b0, (void)b1, (void)c;
    __trap();
#endif
}

PTX_FN void bar_sync(int id, int n)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}

PTX_FN void bar_arrive(int id, int n)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

template <int N> PTX_FN void regs_inc(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#else
    __trap();
#endif
}

template <int N> PTX_FN void regs_dec(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#else
    __trap();
#endif
}

PTX_FN void pdl_wait(void)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

PTX_FN void pdl_launch(void)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

PTX_FN uint4 ldg_stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(p)));
    return v;
}

PTX_FN uint2 ldg_stream8(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(__cvta_generic_to_global(p)));
    return v;
}

PTX_FN uint4 ld_shared16(uint32_t p)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(p)
                 : "memory");
    return v;
}

PTX_FN float4 ld_l2_f4(const float *p)
{
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(__cvta_generic_to_global(p)));
    return v;
}

PTX_FN float ld_l2_f32(const float *p)
{
    float v;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(__cvta_generic_to_global(p)));
    return v;
}

PTX_FN uint32_t ld_relaxed(const void *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(v)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}

PTX_FN uint2 ld_l2_8(const void *p)
{
    uint2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}

PTX_FN uint32_t ld_acquire(const void *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(v)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return v;
}

PTX_FN void st_ticket(void *p, uint32_t a, uint32_t b, uint32_t ticket)
{
    const uint64_t t = (uint64_t)ticket << 32;
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)),
                 "l"(t | a), "l"(t | b)
                 : "memory");
}

PTX_FN uint4 ld_ticket(const void *p)
{
    uint64_t a, b;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(a), "=l"(b)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}

PTX_FN void st_word(void *p, uint32_t v, uint32_t ticket)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
                 "l"((uint64_t)ticket << 32 | v)
                 : "memory");
}

PTX_FN uint2 ld_word(const void *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                 : "=l"(v)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return make_uint2((uint32_t)v, (uint32_t)(v >> 32));
}

PTX_FN void look_again(void)
{
}

PTX_FN void st_release(void *p, uint32_t v)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(v)
                 : "memory");
}

PTX_FN uint32_t atom_add_acq_rel(void *p, uint32_t v)
{
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(__cvta_generic_to_global(p)), "r"(v)
                 : "memory");
    return old;
}

PTX_FN uint32_t atom_inc_acq_rel(void *p, uint32_t last)
{
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(__cvta_generic_to_global(p)), "r"(last)
                 : "memory");
    return old;
}

PTX_FN void red_add_release(void *p, uint32_t v)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)),
                 "r"(v)
                 : "memory");
}

PTX_FN void fence_gpu(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

template <int LUT> PTX_FN uint32_t lop3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(LUT));
    return r;
}

PTX_FN uint32_t prmt(uint32_t a, uint32_t b, uint32_t sel)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sel));
    return r;
}

PTX_FN float ex2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

PTX_FN float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

PTX_FN float rsqrt_approx(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif /* !QUASAR_EMULATE */

/* ---- conversions; in software where the chip has none, and in the emulator ---- */

PTX_CVT float4 ld_l2_16_if(const void *p, bool valid)
{
#ifdef QUASAR_EMULATE
    return valid ? *(const float4 *)p : make_float4(0, 0, 0, 0);
#else
    float4 v;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\t"
                 "mov.f32 %0, 0f00000000;\n\tmov.f32 %1, 0f00000000;\n\t"
                 "mov.f32 %2, 0f00000000;\n\tmov.f32 %3, 0f00000000;\n\t"
                 "@p ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "=&f"(v.x), "=&f"(v.y), "=&f"(v.z), "=&f"(v.w)
                 : "l"(__cvta_generic_to_global(p)), "r"((int)valid)
                 : "memory");
    return v;
#endif
}

/* |x| clamped to 448; below 2^-6 in steps of 2^-9. */
PTX_CVT uint32_t soft_e4m3(float x)
{
    uint32_t u = __float_as_uint(x), sign = u >> 24 & 0x80;
    float m = fabsf(x);
    if (!(m == m)) {
        return 0x7f;
    }
    if (m >= 448) {
        return sign | 0x7e;
    }
    if (m < 0.015625f) {
        return sign | (uint32_t)rintf(m * 512);
    }
    u &= 0x7fffffff;
    u += 0x7ffff + (u >> 20 & 1);
    return sign | ((u >> 20) - (120 << 3));
}

/* E4M3's exponent is 8 less than fp16's once its bits are in fp16's place. */
PTX_CVT uint32_t soft_f16x2_of_e4m3x2(uint32_t v)
{
    uint32_t w = (v & 0xff) | (v & 0xff00) << 8;
    uint32_t h = (w & 0x00800080) << 8 | (w & 0x007f007f) << 7;
    __half2 p;
    memcpy((void *)&p, &h, sizeof h);
    p = __hmul2(p, __floats2half2_rn(256, 256));
    memcpy(&h, &p, sizeof h);
    h = (v & 0x7f) == 0x7f ? h | 0x7fff : h;
    h = (v & 0x7f00) == 0x7f00 ? h | 0x7fff0000 : h;
    return h;
}

#ifndef QUASAR_EMULATE

PTX_FN uint16_t e4m3x2_of_f16x2(uint32_t h)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(r) : "r"(h));
    return r;
#else
    __half2 p;
    memcpy((void *)&p, &h, sizeof h);
    return (uint16_t)(soft_e4m3(__low2float(p)) | soft_e4m3(__high2float(p)) << 8);
#endif
}

PTX_FN uint16_t e4m3x2_of_f32(float lo, float hi)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
#else
    return (uint16_t)(soft_e4m3(lo) | soft_e4m3(hi) << 8);
#endif
}

PTX_FN uint32_t f16x2_of_e4m3x2(uint16_t v)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    uint32_t r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(v));
    return r;
#else
    return soft_f16x2_of_e4m3x2(v);
#endif
}

PTX_FN uint16_t f16_of_f32(float x)
{
    uint16_t r;
    asm("cvt.rn.satfinite.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

PTX_FN uint32_t f16x2_of_f32(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

#else

void emu_cp_async_wait(int n);
void emu_setmaxnreg(int n, bool more);

template <int N> void cp_async_wait(void)
{
    emu_cp_async_wait(N);
}

template <int N> void regs_inc(void)
{
    emu_setmaxnreg(N, true);
}

template <int N> void regs_dec(void)
{
    emu_setmaxnreg(N, false);
}

template <int LUT> uint32_t lop3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r = 0;
    for (int i = 0; i < 8; i++) {
        if (LUT >> i & 1) {
            r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        }
    }
    return r;
}

#endif

PTX_CVT void f16x4_of_e4m3x4(uint32_t v, uint32_t *lo, uint32_t *hi)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
        : "=&r"(*lo), "=r"(*hi)
        : "r"(v));
#else
    *lo = f16x2_of_e4m3x2((uint16_t)v);
    *hi = f16x2_of_e4m3x2((uint16_t)(v >> 16));
#endif
}

#endif
