#ifndef QUASAR_KERNELS_BACKEND_H
#define QUASAR_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/io.h"
#include "base/phases.h"

/*
 * The one interface between the forward pass (src/engine/graph.c, written once)
 * and what computes it. A backend works on batches of rows; a row is one token
 * of one sequence. Calls are made by one thread, the engine's.
 *
 * Row independence: a row's result depends only on its own sequence, bit for
 * bit, whatever other rows share the call, whatever slot and pages it has, and
 * however a prompt is cut on multiples of BE_BLOCK. All matrix products of one
 * backend accumulate over the input axis in one fixed order for every row count.
 *
 * Formulas: docs/model.md. Fixed for the family: attention heads of 256 with 64
 * rotated, DeltaNet heads of 128, convolution of 4.
 */

#define BE_HEAD_DIM 256 /* attention head */
#define BE_ROT_DIM  64
#define BE_DN_DIM   128 /* DeltaNet key and value head */
#define BE_CONV     4
#define BE_BLOCK    64        /* DeltaNet prefill block; the absolute grid of cuts */
#define BE_PAGE     256       /* tokens in one KV page; also the fixed attention split */
#define BE_MAX_ROWS 16        /* rows of one decode step */
#define BE_MAX_IDS  (1 << 18) /* that can be drawn: sums of their masses fit 64 bits */

/* Formats of keys and values (kernels/kvq.h). F8: E4M3, saturating, no scale; the rest in
 * bits of a key and of a value. */
enum be_kv { BE_KV_F32, BE_KV_F16, BE_KV_F8, BE_KV_K8V4, BE_KV_K5V3, BE_KV_K3V3 };
#ifdef __cplusplus
extern "C" {
#endif
const char *be_kv_name(enum be_kv kv); /* "k5v3" */
/* Bytes that a token takes in one layer, keys and values of all heads. */
size_t be_kv_bytes(enum be_kv kv, int kv_heads);
#ifdef __cplusplus
}
#endif

enum be_mode {
    BE_PREFILL, /* DeltaNet by blocks of BE_BLOCK; spans start on the grid, or
                   run a short first block up to it */
    BE_DECODE,  /* DeltaNet step by step; at most BE_MAX_ROWS rows */
    BE_VERIFY   /* the same rows with the same results, but they may be taken back:
                   the recurrent states stay as they are until fold */
};

/* Geometry; everything else is fixed. Layer i is attention iff attention[i]. */
struct be_shape {
    int hidden, layers, ffn, vocab;
    int vocab_used; /* ids from here on are padding: their logits are -inf */
    int q_heads, kv_heads;
    int k_heads, v_heads; /* DeltaNet; v head h reads k head h / (v_heads / k_heads) */
    float eps;
    double rope_base;
    int rope_sections[3]; /* frequencies of the T, H, W axes: 11, 11, 10 */
    const uint8_t *attention;
    bool mtp;
};

/* One layer's tensors. Matrices are [out, in] in any dtype. Vectors (norms, A,
 * dt_bias, conv, gated norm) are DT_F32 and in working form: norms hold 1 + w,
 * a holds -exp(A_log), conv is [channels, 4]. */
struct be_layer {
    struct tensor norm;      /* input_layernorm, [hidden] */
    struct tensor post_norm; /* the norm before the FFN, [hidden] */
    struct tensor gate, up, down;
    /* attention: q is [q_heads * 512, hidden], per head q 256 then gate 256 */
    struct tensor q, k, v, o, q_norm, k_norm;
    /* DeltaNet: qkv rows are q, k, v head-major */
    struct tensor qkv, z, b, a, out, conv, a_log, dt_bias, gnorm;
};

struct be_weights {
    struct tensor embed, head, norm;
    struct tensor head_copy; /* of fewer bits, which drafts read; without data: there is none */
    const struct be_layer *layers; /* shape.layers of them */
    /* MTP, when shape.mtp: fc is [hidden, 2 hidden], embedding half first */
    struct tensor mtp_fc, mtp_enorm, mtp_hnorm, mtp_norm;
    struct be_layer mtp_layer; /* attention */
};

/* What happens to one id's logit before temperature. */
enum {
    BE_SEEN = 1, /* in the prompt or the output: repetition applies */
    BE_BAN = 2   /* -inf */
};
struct be_edit {
    int32_t id;
    float bias;
    uint32_t count; /* in the output: frequency and presence apply */
    uint32_t flags;
};

/* Sampling of one row, in the order of docs/sampling.md. temp 0 is greedy: the
 * lowest id among the largest logits. Neutral values switch a filter off: top_k 0,
 * top_p 1, min_p 0. */
struct be_sample {
    float temp, top_p, min_p;
    int top_k;
    uint64_t seed;
    uint32_t pos; /* absolute position of the token being drawn */
    /* Edits, in any order, each id once; those in over replace others of the same
     * id. The three figures are of the edits. */
    const struct be_edit *edit, *over;
    int n_edit, n_over;
    float repetition, frequency, presence;
    const uint32_t *allow; /* bit i: id i may be drawn; NULL: all may */
};

/* A run of consecutive rows of one sequence. */
struct be_span {
    int slot;             /* recurrent state */
    int pos;              /* sequence index of the first row = its KV position */
    int n;                /* rows */
    const int32_t *pages; /* page table; covers positions 0 .. pos + n - 1 */
};

/* Rows of span i follow those of span i - 1. A slot has at most one span in a
 * batch: several rows of one sequence are one span. The page tables stay as
 * they are until the pass is over; the rest is copied by begin. */
struct be_batch {
    enum be_mode mode;
    int n_rows, n_spans;
    const struct be_span *spans;
    const int32_t *tokens;    /* n_rows */
    const int32_t (*rope)[3]; /* n_rows positions (T, H, W), or NULL: pos + i for all three */
};

enum be_cuda_path { BE_PATH_AUTO, BE_PATH_SM80, BE_PATH_SM90 }; /* which kernels run */

struct be_opts {
    int threads;     /* 0: all cores */
    const char *isa; /* CPU: NULL or "auto", "avx512", "avx2", "portable" */
    int device;      /* CUDA */
    enum be_kv kv;
    int slots;       /* recurrent states */
    int pages;       /* KV pages, shared by all sequences; per attention layer + MTP */
    int ctx;         /* no position reaches this; 0: as many as there are pages */
    int max_prefill; /* rows of one prefill call at most */
    int width;       /* CUDA: rows of one sequence in a decode step at most; 0: BE_MAX_ROWS.
                        A smaller one takes less work memory; outputs become fewer too */
    enum be_cuda_path cuda_path;
    int graphs;                     /* CUDA: graphs kept; 0: every kernel is launched by itself */
    const struct be_script *script; /* of the scripted backend (kernels/script.h) */
    bool verify;                    /* CUDA: compare the resident weights with the tensors */
    const struct io_map *file;      /* tensors that lie in it may be read from the file; or NULL */
};

/* What a backend with a memory of its own would do with it, in bytes. */
struct be_plan {
    char device[128];
    uint64_t free;    /* now */
    uint64_t weights; /* as they are kept */
    uint64_t states;  /* of opts.slots */
    uint64_t page;    /* one KV page: BE_PAGE tokens */
    uint64_t work;    /* activations, logits, tables */
    uint64_t graphs;  /* set aside for opts.graphs of them */
    uint64_t margin;  /* left alone */
    int pages;        /* how many fit beside all that, 0 when not even the rest does */
    bool fp8;         /* the device converts E4M3 by an instruction */
};

/* Figures since open. */
struct be_counters {
    uint64_t kernels;  /* launched, those of graphs too */
    uint64_t graphs;   /* replayed */
    uint64_t captured; /* graphs made */
    double upload_s;   /* bringing the weights to the device took this long */
};

/* Where a row of be_mtp_embed takes its hidden state from. BE_H_CHAIN - 1 - r is
 * row r of the last MTP pass's m, BE_H_CHAIN the row of the same number. */
enum { BE_H_SLOT = -1, BE_H_CHAIN = -2 };

/* Parts of a pass, by which its time is told. DELTANET and ATTENTION are what lies
 * between the products; SMALL is norms, embedding, angles, what is saved; HEAD with the
 * greedy draw. */
enum be_part {
    BE_PART_WEIGHTS, /* products but the head's */
    BE_PART_DELTANET,
    BE_PART_ATTENTION,
    BE_PART_SMALL,
    BE_PART_HEAD,
    BE_PARTS
};

struct backend; /* one model on one device, its caches and workspace */
struct be_lane; /* a way to its memory beside its work */

struct be_ops {
    const char *name; /* "cpu", "cuda" */

    /* Opens a backend over tensors that stay mapped until close; checks every
     * shape and dtype and refuses by tensor name. progress (may be NULL) is
     * called with 0..1. */
    int (*open)(const struct be_shape *shape, const struct be_weights *weights,
                const struct be_opts *opts, void (*progress)(void *ctx, double done), void *ctx,
                struct backend **out, struct err *e);
    void (*close)(struct backend *b);
    /* Optional (NULL: host memory is all there is): what opts needs and how many
     * pages would fit; opts.pages is not looked at. */
    int (*plan)(const struct be_shape *shape, const struct be_weights *weights,
                const struct be_opts *opts, struct be_plan *out, struct err *e);
    /* Optional: figures; and what the device's memory gives in GB (1e9 bytes) per
     * second, the best of several passes over at least `bytes`. */
    void (*counters)(const struct backend *b, struct be_counters *out);
    /* Optional: where the time of open went, behind what is there. */
    void (*phases)(const struct backend *b, struct phases *out);
    int (*bandwidth)(struct backend *b, size_t bytes, double *read, double *copy, struct err *e);
    /* Optional: seconds for copying `bytes` to the device from pinned memory. */
    int (*upload_time)(struct backend *b, uint64_t bytes, double *seconds, struct err *e);
    /* ---- where the time of passes goes, one of two ways. A backend with clocks of its own
     * adds up the seconds of every part in part[BE_PARTS]; NULL: no more. */
    void (*clocks)(struct backend *b, double *part);
    /* One whose work overlaps runs parts by themselves: from `only` on no other operations
     * (results are of no use; 0: all again); `again` runs the last decode pass, those parts
     * of it, reps times one behind the other, and gives the milliseconds of one. It spoils
     * the state of the pass's sequences. peak: operations per second of its matrix units,
     * at most. */
    void (*only)(struct backend *b, unsigned parts);
    int (*again)(struct backend *b, unsigned parts, int reps, double *ms, struct err *e);
    double (*peak)(const struct backend *b);
    /* "AVX-512, 2 threads" or "NVIDIA H200, sm_90". Borrowed. */
    const char *(*describe)(const struct backend *b);

    /* ---- forward. begin fixes the batch; the calls that follow work on its
     * rows in the residual stream x [n_rows, hidden]. */
    int (*begin)(struct backend *b, const struct be_batch *batch, struct err *e);
    int (*embed)(struct backend *b, struct err *e);          /* x = embed[token] */
    int (*gdn)(struct backend *b, int layer, struct err *e); /* x += gdn(norm(x)); advances state */
    int (*attention)(struct backend *b, int layer, struct err *e); /* x += attention(norm(x)) */
    int (*ffn)(struct backend *b, int layer, struct err *e);       /* x += ffn(post_norm(x)) */
    int (*final_norm)(struct backend *b, struct err *e);           /* h = norm(x), every row */
    /* logits[i] = h[rows[i]] head^T, i < n <= max_out */
    int (*head)(struct backend *b, const int32_t *rows, int n, struct err *e);
    /* Whether head reads the copy too, from the next call on; it does not when opened. */
    void (*fast_head)(struct backend *b, bool on);
    /* ids[i] from logits[i]; n as in the head call before it. -1: every id is -inf. */
    int (*sample)(struct backend *b, const struct be_sample *s, int n, int32_t *ids, struct err *e);
    int max_out; /* most rows of one head call, at least BE_MAX_ROWS */
    /* Optional: max_out of this backend, at least the rows that a decode step can have. */
    int (*outputs)(const struct backend *b);
    /* Optional: the two largest of each row of logits. ids[i]: the lowest id among
     * the largest; margins[i]: the largest less the second, 0 for a tie; n as in the
     * head call before it. */
    int (*best)(struct backend *b, int n, int32_t *ids, float *margins, struct err *e);

    /* ---- verification. A pass over a BE_VERIFY batch computes every row as
     * BE_DECODE would and appends keys and values, but the recurrent states keep
     * their bits; the inputs that would have advanced them are recorded, one set of
     * BE_MAX_ROWS rows for the whole backend. fold then advances span i by its first
     * accepted[i] rows (0 .. n), to the bits that decoding only those leaves. It
     * comes before the next begin or mtp_embed, or not at all: then nothing of the
     * batch was accepted. h stays readable. Optional: NULL means that drafts cannot
     * be verified on this backend. */
    int (*fold)(struct backend *b, const int32_t *accepted, struct err *e);

    /* Optional: drafts of the backend's own, which come in the place of all others: at most
     * `most` for the slot's next round, 0 for a plain step; *source is an enum view_source. */
    int (*own_drafts)(struct backend *b, int slot, int most, int32_t *ids, int *source);

    /* ---- MTP. h rows of the main pass stay valid until the next final_norm;
     * hidden_save keeps one beside the slot's state. mtp_embed begins a batch of
     * its own whose row i pairs tokens[i] with the hidden state source[i]: a row
     * of h, BE_H_SLOT (the slot's saved one) or BE_H_CHAIN (row i of the last
     * MTP pass's m); then x = fc(concat(enorm(embed[token]), hnorm(hidden))).
     * mtp_layer runs the layer and m = mtp_norm(x). Row at position p pairs
     * hidden p with token p + 1. kv_only: only keys and values are needed.
     * mtp_head: logits[i] = m[rows[i]] head^T, of the copy where there is one. */
    int (*hidden_save)(struct backend *b, int row, int slot, struct err *e);
    int (*mtp_embed)(struct backend *b, const struct be_batch *batch, const int32_t *source,
                     struct err *e);
    int (*mtp_layer)(struct backend *b, bool kv_only, struct err *e);
    int (*mtp_head)(struct backend *b, const int32_t *rows, int n, struct err *e);

    /* ---- reading results (synchronises). */
    int (*read_logits)(struct backend *b, int i, float *out /* vocab */, struct err *e);
    int (*read_hidden)(struct backend *b, int row, float *out /* hidden */, struct err *e);

    /* ---- state. A slot's state is one opaque blob of state_size bytes: every
     * DeltaNet layer's recurrent and convolution state and the saved hidden. A
     * page's blob holds its keys and values in every layer. page_export writes those of a
     * sequence that has n positions (1 or more) from the page's first one on, and zeroes in
     * the place of the others, which may be of whoever had the page before. The last one of
     * the MTP layer is not there yet: it waits for the token after. page_trim puts these
     * zeroes into a blob that was copied from where page_at says; any thread. */
    size_t (*state_size)(const struct backend *b);
    size_t (*page_size)(const struct backend *b);
    int (*state_reset)(struct backend *b, int slot, struct err *e); /* empty sequence */
    int (*state_copy)(struct backend *b, int dst, int src, struct err *e);
    int (*state_export)(struct backend *b, int slot, void *out, struct err *e);
    int (*state_import)(struct backend *b, int slot, const void *in, struct err *e);
    int (*page_copy)(struct backend *b, int dst, int src, struct err *e);
    int (*page_export)(struct backend *b, int page, int n, void *out, struct err *e);
    void (*page_trim)(const struct backend *b, int n, void *blob);
    int (*page_import)(struct backend *b, int page, const void *in, struct err *e);
    /* Optional: host memory that blobs travel to and from the device fastest (pinned);
     * freed before close. NULL: any memory is as good. */
    int (*host_alloc)(struct backend *b, size_t bytes, void **out, struct err *e);
    void (*host_free)(struct backend *b, void *p);

    /* ---- states that other threads bring and take away beside passes. Where byte `at` of
     * a slot's (a page's) blob lies in the memory that the backend computes in, and how many
     * bytes lie behind each other from there on: *n. A slot's blob lies there as it was
     * imported or reset, until its sequence computes. Any thread. */
    void *(*state_at)(const struct backend *b, int slot, size_t at, size_t *n);
    void *(*page_at)(const struct backend *b, int page, size_t at, size_t *n);
    /* Optional (NULL: these places are host memory, which needs no lanes). settle: all that
     * was asked for has happened there. A lane copies to and from these places, for one
     * thread at a time, any; it is opened by the engine's, and closed before the backend.
     * It has two pinned buffers of `bytes`. */
    int (*settle)(struct backend *b, struct err *e);
    int (*lane_open)(struct backend *b, size_t bytes, struct be_lane **out, struct err *e);
    void (*lane_close)(struct be_lane *l); /* NULL is allowed */
    /* The next of its buffers, once the copies from it are over. */
    int (*lane_buffer)(struct be_lane *l, void **out, struct err *e);
    /* Begins a copy from the buffer; into it. */
    int (*lane_put)(struct be_lane *l, void *to, const void *from, size_t n, struct err *e);
    int (*lane_get)(struct be_lane *l, void *to, const void *from, size_t n, struct err *e);
    /* All its copies are over. */
    int (*lane_wait)(struct be_lane *l, struct err *e);

    /* Made-up keys and values of sane size, to measure with. */
    int (*page_fill)(struct backend *b, int page, struct err *e);
    /* For tests and score --states: fp32 copies. conv is [channels, 3] oldest
     * first; s is [v_heads, 128 (key), 128 (value)]; keys and values are
     * [n, kv_heads, 256] from position 0; the MTP layer's are layer shape.layers.
     * NULL skips one. */
    int (*read_gdn)(struct backend *b, int layer, int slot, float *conv, float *s, struct err *e);
    int (*read_kv)(struct backend *b, int layer, const int32_t *pages, int n, float *k, float *v,
                   struct err *e);
};

/* The CPU backend. Always there. */
const struct be_ops *backend_cpu(void);

/* A backend that says what a script says, at the script's pace (kernels/script.h). */
const struct be_ops *backend_script(void);

/* The CUDA backend; NULL when this build has none. A device is first looked for
 * by open and plan. */
const struct be_ops *backend_cuda(void);

#endif
