#ifndef QUASAR_KERNELS_CPU_ISA_H
#define QUASAR_KERNELS_CPU_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "kernels/backend.h"

/*
 * The arithmetic of the CPU backend, compiled once per instruction set
 * (gemm.c norm.c attn.c gdn.c with -DCPU_ISA=avx512 and so on) and reached
 * through one table. Every function is called by all threads of a team with
 * the same arguments and does its share, tid of nt; between two calls whose
 * data depend on each other the caller puts a barrier. Shares split outputs,
 * heads and rows, never a sum, so nt does not change a bit.
 *
 * scratch is memory of the calling thread, as large as cpu_scratch_floats says.
 */
#define ISA_PASTE(a, b) a##_##b
#define ISA_NAME(a, b)  ISA_PASTE(a, b)
#define ISA(name)       ISA_NAME(name, CPU_ISA)

/* Rows of activations: row i is x + (index ? index[i] : i) * ldx, k values; with
 * norm it is first normalised: x * rsqrt(mean(x^2) + eps) * norm. */
struct mm_in {
    const float *x;
    size_t ldx;
    const int32_t *index;
    int rows, k;
    const float *norm;
    float eps;
};

/* y[i * ldy + o] = (add ? itself : 0) + dot(row i, w[o]), o < n_out. */
struct mm_out {
    const struct tensor *w;
    float *y;
    size_t ldy;
    int n_out;
    bool add;
};

/* One row of the batch, as attention and convolution need it. */
struct cpu_row {
    const int32_t *pages;
    int pos;
};

struct attn_args {
    int rows, q_heads, kv_heads;
    const struct cpu_row *row;
    float *q;         /* [rows][q_heads][512]: q, gate; q is rotated in place */
    const float *k;   /* [rows][kv_heads][256] */
    const float *v;   /* the same */
    float *o;         /* [rows][q_heads][256] */
    const float *rot; /* [rows][64]: 32 cosines, 32 sines */
    const float *q_norm, *k_norm;
    float eps;
    enum be_kv kv;
    bool kv_only;
    uint8_t *cache;   /* pages of page_size bytes; this layer's part at offset: */
    size_t page_size; /* keys [kv_heads][256] rows, then values */
    size_t offset;
};

/* A run of rows of one sequence. */
struct gdn_span {
    int first, n, pos;
    float *s;    /* [v_heads][128][128] */
    float *conv; /* [3][channels], oldest first */
};

struct gdn_args {
    int n_spans, k_heads, v_heads;
    const struct gdn_span *span;
    const float *qkv; /* [rows][channels] */
    const float *z;   /* [rows][v_heads][128] */
    const float *b;   /* [rows][v_heads] */
    const float *a;   /* the same */
    float *c;         /* [rows][channels]: after convolution, silu, L2 norms */
    float *y;         /* [rows][v_heads][128] */
    const float *conv_w, *a_log, *dt_bias, *gnorm;
    float eps;
    bool steps; /* one row after the other instead of blocks of 64 */
    bool hold;  /* steps: both states stay as they are */
};

struct cpu_isa {
    const char *name;  /* "avx512" */
    const char *title; /* "AVX-512" */
    /* Thread tid's outputs of all jobs; jobs share the input. */
    void (*matmul)(const struct mm_in *in, const struct mm_out *out, int n_out, float *scratch,
                   int tid, int nt);
    /* g = silu(g) * u over the columns that matmul gives thread tid. */
    void (*silu_mul)(float *g, const float *u, size_t ld, int rows, int n, int tid, int nt);
    /* out[i] = row ids[i] of w, fp32. */
    void (*embed)(const struct tensor *w, const int32_t *ids, int n, float *out, size_t ldo,
                  int tid, int nt);
    /* out[i] = rmsnorm(x[i]) over k. In place is allowed. */
    void (*norm)(const float *x, size_t ldx, const float *w, float eps, int rows, int k, float *out,
                 size_t ldo, int tid, int nt);
    /* q and k norms, rotation, append to the cache. */
    void (*attn_append)(const struct attn_args *a, int tid, int nt);
    /* o = softmax(q k / 16) v * sigmoid(gate) */
    void (*attn)(const struct attn_args *a, float *scratch, int tid, int nt);
    void (*gdn_conv)(const struct gdn_args *a, int tid, int nt);
    void (*gdn)(const struct gdn_args *a, float *scratch, int tid, int nt);
    /* Advances s, and only that, by the rows of each span: c, a and b as a step with
     * hold left them. */
    void (*gdn_fold)(const struct gdn_args *a, int tid, int nt);
    /* The lowest index of the largest, and by how much it leads. n > 1. */
    void (*best)(const float *x, int n, int32_t *id, float *margin);
};

/* Floats of scratch per thread for inputs of up to max_k. */
size_t cpu_scratch_floats(int max_k);

/* The outputs of thread tid, in units of 16. */
static inline void cpu_share(int n, int tid, int nt, int *first, int *end)
{
    int units = (n + 15) / 16;
    int a = (int)((int64_t)units * tid / nt) * 16;
    int b = (int)((int64_t)units * (tid + 1) / nt) * 16;
    *first = a < n ? a : n;
    *end = b < n ? b : n;
}

extern const struct cpu_isa cpu_isa_portable;
extern const struct cpu_isa cpu_isa_avx2;
extern const struct cpu_isa cpu_isa_avx512;

/* The table for a name ("auto" or NULL: the best), or NULL with the reason. */
struct err;
const struct cpu_isa *cpu_isa_find(const char *name, struct err *e);

#ifdef CPU_ISA
void ISA(matmul)(const struct mm_in *in, const struct mm_out *out, int n_out, float *scratch,
                 int tid, int nt);
void ISA(silu_mul)(float *g, const float *u, size_t ld, int rows, int n, int tid, int nt);
void ISA(embed)(const struct tensor *w, const int32_t *ids, int n, float *out, size_t ldo, int tid,
                int nt);
void ISA(norm)(const float *x, size_t ldx, const float *w, float eps, int rows, int k, float *out,
               size_t ldo, int tid, int nt);
void ISA(norm_row)(const float *x, const float *w, float eps, int k, float *out);
void ISA(attn_append)(const struct attn_args *a, int tid, int nt);
void ISA(attn)(const struct attn_args *a, float *scratch, int tid, int nt);
void ISA(gdn_conv)(const struct gdn_args *a, int tid, int nt);
void ISA(gdn)(const struct gdn_args *a, float *scratch, int tid, int nt);
void ISA(gdn_fold)(const struct gdn_args *a, int tid, int nt);
void ISA(best)(const float *x, int n, int32_t *id, float *margin);
#endif

#endif
