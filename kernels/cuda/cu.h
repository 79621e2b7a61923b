#ifndef QUASAR_KERNELS_CUDA_CU_H
#define QUASAR_KERNELS_CUDA_CU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

/*
 * Inside the CUDA backend: what its kernels and its host side share. Everything
 * here is C; `half` values travel as uint16_t. All pointers are device memory
 * unless said otherwise. Launch functions return a cudaError_t as int; they
 * enqueue on ctx->stream, never allocate and never wait.
 *
 * Two sets of kernels. Decode: up to CU_ROWS rows, bound by reading weights.
 * Prefill: spans of many rows on the 64-token grid, bound by tensor cores. A
 * row's bits depend on neither the other rows nor where the batch was cut.
 */

#ifdef __cplusplus
extern "C" {
#endif

enum { CU_ROWS = BE_MAX_ROWS };

/* How the chip is driven: CU_SM80 uses mma.sync and cp.async alone; CU_SM90 adds
 * bulk copies, wgmma and programmatic dependent launch. */
enum cu_path { CU_SM80, CU_SM90 };

struct cu_ctx {
    void *stream; /* cudaStream_t */
    enum cu_path path;
    bool pdl; /* programmatic dependent launch between decode kernels */
    int n_sm;
    int launches;       /* counts every kernel launch; the host reads and resets it */
    const char *kernel; /* name of the last launch, for error messages */
    bool dry;           /* launches only make the device load their kernels */
    /* Which are left out, by name; NULL: none. For measuring the others. */
    bool (*leave_out)(const struct cu_ctx *c, const char *name);
    unsigned parts; /* for leave_out */
};

/* ---- weights (docs/cuda.md, "Weight tiles") ---- */
enum cu_kind {
    CU_W4, /* 4-bit codes, fp16 scale per row and 64 inputs: 2,176 bytes a step */
    CU_W8, /* 8-bit codes, the same scales: 4,224 bytes a step */
    CU_W16 /* fp16 times a power of two per row: 8,192 bytes a step */
};

/* A matrix [rows][k] re-laid in tiles of 64 rows; a step is 64 rows by 64
 * inputs. Step (tile, g) is at data + (tile * kg + g) * step bytes. Rows past
 * the end are zero. */
struct cu_mat {
    const uint8_t *data;
    const float *row_scale; /* [tiles * 64], CU_W16 only, else NULL */
    enum cu_kind kind;
    int rows, tiles, kg; /* kg = k / 64 */
    const char *name;    /* host; for messages */
};

/* Bytes of a step, and of a whole matrix. */
size_t cu_step_bytes(enum cu_kind kind);
size_t cu_mat_bytes(enum cu_kind kind, int rows, int k);

/* The kind that holds a tensor of this dtype without loss (F32: rounded to
 * fp16 with 11 significant bits). */
enum cu_kind cu_kind_of(enum dtype t);

/* Packs 16 rows (row block `block` of the matrix) of all inputs into host memory,
 * at the places they have inside their 64-row tile (`tile` is its first byte).
 * With two sources of equal size (gate, up) they alternate by 8 rows, so that
 * rows g and g + 8 of every 16 are a pair; rows counts both. kind must hold the
 * dtypes. row_scale: 16 floats, written for CU_W16. The one definition of the
 * layout; also used for uploading. */
void cu_pack_block(enum cu_kind kind, const struct tensor *const src[2], int n_src, int rows, int k,
                   int block, uint8_t *tile, float *row_scale);

/* ---- the batch ---- */
struct cu_span {
    int32_t first; /* row */
    int32_t n, pos;
    int32_t slot;
    int32_t parity; /* which of the slot's two convolution states is read; the other is written */
    int32_t page;   /* where its page table begins in cu_batch.page */
};

struct cu_batch {
    const int32_t *count;   /* [2]: rows, spans: what kernels obey */
    const int32_t *token;   /* [rows] */
    const int32_t *pos;     /* [rows] */
    const int32_t *span_of; /* [rows] */
    const struct cu_span *span;
    const int32_t *page;
    const int32_t *rope; /* [rows][3] positions (T, H, W) */
    float *rot;          /* [rows][64]: 32 cosines, 32 sines; cu_rot fills it */
    int rows, spans;     /* host: at most this many; grids are made for it */
    enum be_mode mode;
};

/* Fills batch.rot from batch.rope; angles in double. axis[32], inv_freq[32]. */
int cu_rot(struct cu_ctx *c, const struct cu_batch *b, const uint8_t *axis, const double *inv_freq);

/* ---- decode: activations and the residual stream ---- */

/* fp16 inputs of a product, row-major [CU_ROWS][k], and the fp32 sums of every 32
 * of them as rounded, [k / 32][CU_ROWS]. Rows past count are never read into
 * results. */
struct cu_act {
    uint16_t *x;
    float *sum;
};

/* The residual stream x [CU_ROWS][hidden] fp32; ss [hidden / 64][CU_ROWS] holds
 * the sums of squares of every 64 of them; act is x * (1 + w of the next norm) *
 * power[row] in fp16, power a power of two near the previous 1/rms. The product
 * that reads act multiplies its results by (1/rms) / power[row]: the norm is
 * applied without a pass of its own. */
struct cu_resid {
    float *x, *ss, *power; /* power [CU_ROWS] */
    struct cu_act act;
};

/* x = embed[token]; ss, power and act for the norm w. table is the container's
 * tensor with device pointers. */
int cu_embed(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table, int hidden,
             const float *w, float eps, struct cu_resid *out);

/* h [rows][hidden] = norm(x) with w, fp32. With out_of [rows] (may be NULL): row
 * out_of[r] of out, if not negative, is also fp16 of h[r], as cu_gather makes it. */
int cu_final_norm(struct cu_ctx *c, const struct cu_batch *b, const struct cu_resid *in, int hidden,
                  const float *w, float eps, float *h, const int32_t *out_of,
                  const struct cu_act *out);

/* act rows i < n (a device count) = fp16 of h[rows[i]]; the head's input. */
int cu_gather(struct cu_ctx *c, const float *h, const int32_t *rows, const int32_t *n, int max_n,
              int hidden, struct cu_act *out);

/* MTP input: act [.][2 hidden] = enorm(embed[token]), hnorm(source row). src[i]
 * is a pointer to the hidden row (device array of device pointers). */
int cu_mtp_input(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table, int hidden,
                 const float *const *src, const float *enorm, const float *hnorm, float eps,
                 struct cu_act *out);

/* ids[i] = lowest id among the largest logits[i][0..used); margin[i] = distance
 * to the second. At most CU_ROWS rows. work: cu_argmax_work bytes, zeroed once. */
size_t cu_argmax_work(int vocab);
int cu_argmax(struct cu_ctx *c, const float *logits, size_t ld, int used, const int32_t *n,
              int max_n, void *work, int32_t *ids, float *margin);

/* ---- drawing (docs/sampling.md): ids[i] from logits[i] by row[i], the bits of
 * kernels/sample.c; -1: every id is -inf ---- */

/* struct be_sample as it lies on the device. */
struct cu_sample_row {
    uint64_t seed;
    float temp, top_p;
    float log_min_p; /* sample_log_min_p; -INFINITY: off */
    int32_t top_k;   /* 0: off */
    uint32_t pos;
    float repetition, frequency, presence;
    int32_t edit, n_edit, over, n_over; /* into cu_sample.edit */
    int32_t allow;                      /* first word in cu_sample.mask; -1: all ids */
};
struct cu_sample {
    const float *logits;
    size_t ld;
    int used;                        /* ids from here on are never drawn */
    const int32_t *n;                /* device: rows */
    int max_n;                       /* host: at most this many, CU_ROWS or less */
    const struct cu_sample_row *row; /* [max_n] */
    const struct be_edit *edit;
    const uint32_t *mask;
    void *work; /* cu_sample_work bytes, zeroed once; one stream's launches share it */
    int32_t *ids;
    int looks; /* host: the most that cu_sample_looks says of a row */
};
enum { CU_MAX_LOOKS = 4 };
/* Launches after the first that a row with these settings may need. */
int cu_sample_looks(const struct be_sample *s, int used);
size_t cu_sample_work(int used);
int cu_sample(struct cu_ctx *c, const struct cu_sample *s);

/* ---- decode: weight-streaming product of 1..16 rows ---- */
enum cu_mm_out {
    CU_MM_STORE,    /* y [rows][ldy] fp32, segments side by side */
    CU_MM_SILU,     /* interleaved gate/up: act = silu(gate) * up */
    CU_MM_RESIDUAL, /* x += y; ss, power and act for the next norm */
    CU_MM_START     /* x = y (the MTP's fc); else as RESIDUAL; power from x itself is
                       not known yet: 1 */
};

struct cu_mm_plan; /* host and device halves of a work list; made once */

/* Up to 4 matrices over the same input (their outputs follow each other), cut
 * among the grid by bytes. */
int cu_mm_plan_create(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                      struct cu_mm_plan **out);
void cu_mm_plan_free(struct cu_mm_plan *p);
/* Scratch for partial sums and counters (zeroed once), shared by all plans of
 * one stream: the largest of these. */
size_t cu_mm_work(const struct cu_mm_plan *p);

struct cu_mm {
    const struct cu_mm_plan *plan;
    struct cu_act in;
    const float *ss, *power; /* of the norm on the input, or NULL */
    int norm_k;              /* its width */
    float eps;
    enum cu_mm_out out;
    float *y; /* STORE */
    size_t ldy;
    struct cu_act act;      /* SILU */
    struct cu_resid resid;  /* RESIDUAL, START: x, act, power and ss are written; ... */
    const float *resid_ss;  /* ... this is of the state before (not the same memory) */
    const float *next_norm; /* [hidden] */
    void *work;
};
int cu_mm(struct cu_ctx *c, const struct cu_batch *b, const struct cu_mm *m);

/* ---- mixers, decode and prefill ---- */

/* Recurrent state of all slots, one layer: s [slot][v_heads][128 key][128 value]
 * and conv [slot][2][3][channels], strides in floats between slots. */
struct cu_gdn_state {
    float *s, *conv;
    size_t s_stride, conv_stride;
};
struct cu_gdn {
    int k_heads, v_heads;
    float eps;
    const float *proj; /* [rows][ld]: qkv, z, b, a at these columns */
    size_t ld;         /* like col_qkv and col_z a multiple of 4 */
    int col_qkv, col_z, col_b, col_a;
    const float *conv_w, *a_log, *dt_bias, *gnorm;
    struct cu_gdn_state state;
    struct cu_act act; /* decode: fp16 [rows][v_heads * 128] and sums */
    uint16_t *xt;      /* prefill: tiled activations (below) of the same */
    void *work;        /* prefill: cu_gdn_work bytes; one stream's launches share it */
    /* Decode of rows that may be rejected: */
    float *record; /* [rows][channels + 2 v_heads] of this layer: the step's inputs, or NULL */
    bool hold;     /* both states stay as they are; cu_gdn_fold will advance them */
};
/* For calls of at most max_rows rows. */
size_t cu_gdn_work(int k_heads, int v_heads, int max_rows);
/* The kernel launched just before must not write the states or the span table. */
int cu_gdn_decode(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g);
/* Advances the states by the first accepted[i] rows (device; 0 .. n) of span i, from
 * g->record; the batch as it was decoded. Same bits as decoding only those rows; the
 * convolution state goes to the other parity also when none was accepted. */
int cu_gdn_fold(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g,
                const int32_t *accepted);
int cu_gdn_prefill(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g);

/* ---- products and DeltaNet steps one after the other, each on the results of those
 * before; the same bits as their single launches. With CU_SM90 one launch, in which the
 * weights of what comes are on their way while results travel; before Hopper a launch
 * each. ---- */
enum { CU_LINKS = 20 };

struct cu_link {
    bool gdn; /* else a product */
    struct cu_mm mm;
    struct cu_gdn step;
};
/* Memory in which links of a launch hand on their results; one stream's launches share it. */
struct cu_edges {
    void *mem; /* cu_edges_bytes, zeroed once */
    int width; /* the most columns that a link writes */
};
size_t cu_edges_bytes(int width);
/* 1 .. CU_LINKS links over one batch, the products with one work memory. Each link's input
 * is what the link before writes. edges may be NULL for one link. */
int cu_chain(struct cu_ctx *c, const struct cu_batch *b, const struct cu_link *link, int n,
             const struct cu_edges *edges);

/* KV pages of one layer: page p, head h: keys at kv + p * page_stride +
 * h * 256 * 256 elements, values kv_heads * 256 * 256 elements after its keys.
 * kv: BE_KV_F32 is not supported (cudaErrorNotSupported); packed formats have heads of 256
 * rows of their own sizes (kvq.h) in tiles of 64 (kvlayout.h). Of fp16 and fp8 a head's 256 rows of
 * 256 lie in tiles that tensor cores read as they are: blocks of 64 rows by 128 bytes (8 KB; block
 * (row / 64) * (row bytes / 128) + byte / 128), a row's eight 16-byte units XOR-swizzled by row
 * % 8. cu_kv_offset gives an element's byte. */
size_t cu_kv_offset(enum be_kv kv, int row, int d);

struct cu_attn {
    int q_heads, kv_heads;
    float eps;
    const float *proj; /* [rows][ld]: q and gate per head (512), k, v at these columns */
    size_t ld;
    int col_q, col_k, col_v;
    const float *q_norm, *k_norm;
    enum be_kv kv;
    uint8_t *cache;     /* of this layer, page 0 */
    size_t page_stride; /* bytes */
    bool kv_only;
    struct cu_act act; /* decode: fp16 [rows][q_heads * 256] */
    uint16_t *xt;      /* prefill */
    void *work;        /* cu_attn_work bytes, zeroed once; decode */
    int max_ctx;       /* host: no position reaches this; may differ from call to call */
};
/* Bytes of work for decode steps of up to min(max_rows, CU_ROWS) rows. */
size_t cu_attn_work(int q_heads, int kv_heads, int max_ctx, int max_rows);
int cu_attn_decode(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a);
int cu_attn_prefill(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a);

/* ---- prefill: tiled activations ---- */

/* xt: fp16 activations [rows][k] for tensor cores, in blocks of 128 rows by 64
 * inputs (16 KB, block (r / 128) * (k / 64) + g), each row 128 bytes, its eight
 * 16-byte units XOR-swizzled by row % 8; inside the 64 the inputs are in the
 * order of the weight tiles. cu_xt_index gives an element's place. */
size_t cu_xt_bytes(int rows, int k);         /* rows rounded up to 128 */
size_t cu_xt_index(int row, int col, int k); /* in elements */

int cu_pre_embed(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table, int hidden,
                 float *x);
/* xt = fp16(norm(x)); with h (may be NULL) also fp32 rows. */
int cu_pre_norm(struct cu_ctx *c, const float *x, int rows, int hidden, const float *w, float eps,
                uint16_t *xt, float *h);
int cu_pre_mtp_input(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table,
                     int hidden, const float *const *src, const float *enorm, const float *hnorm,
                     float eps, uint16_t *xt);

enum cu_gemm_out {
    CU_GEMM_STORE, /* y [rows][ldy] fp32 at column col */
    CU_GEMM_ADD,   /* y += */
    CU_GEMM_SILU   /* interleaved gate/up: xt of [rows][mat rows / 2] */
};
struct cu_gemm {
    const struct cu_mat *w;
    const struct cu_mat *more[3]; /* or NULL: over the same xt, columns after those before */
    const uint16_t *xt;
    int rows;
    enum cu_gemm_out out;
    float *y;
    size_t ldy;
    int col;
    uint16_t *xt_out;
    /* cu_gemm_work bytes, zeroed once, one for a stream. NULL: slower, same bits; refused for
     * a matrix whose sums have several chains (sm_90: few rows, many inputs). */
    void *work;
};
size_t cu_gemm_work(const struct cu_ctx *c);
int cu_gemm(struct cu_ctx *c, const struct cu_gemm *g);

#ifdef __cplusplus
}
#endif

#endif
