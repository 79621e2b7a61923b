#ifndef QUASAR_KERNELS_CUDA_HOST_H
#define QUASAR_KERNELS_CUDA_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/phases.h"
#include "kernels/backend.h"
#include "kernels/cuda/cu.h"
#include "kernels/cuda/rt.h"
#include "kernels/sample.h"
#include "kernels/team.h"

/*
 * The host side of the CUDA backend: struct backend and what its files share.
 * All of it belongs to the engine's thread; while the backend is opened ready.c has a
 * part of it.
 *
 * A decode pass is not run call by call. begin … head append to a list of
 * operations; whatever needs a result flushes the list, which then runs at once
 * or, when the same list came before, as a CUDA graph. All that differs between
 * two runs of one list (tokens, positions, slots, pages, how many rows) lies in a
 * block of tables in device memory that is uploaded before. Prefill passes run
 * call by call.
 */

enum { CUDA_MAX_OUT = 64, CUDA_BATCHES = 2, CUDA_STAGES = 4 };

/* A layer's matrices and vectors on the device, and the decode plans over them.
 * in: qkv, z, b, a of a DeltaNet layer; q, k, v of an attention layer. */
struct cuda_layer {
    bool attention;
    int index; /* among its kind; the MTP layer's cache follows the others' */
    int n_in;
    struct cu_mat in[4], out, gate_up, down;
    int col[4]; /* where their outputs begin in a row of proj */
    size_t ld;  /* its width */
    struct cu_mm_plan *p_in, *p_kv, *p_out, *p_gate_up, *p_down;
    const float *norm, *post_norm, *q_norm, *k_norm;
    const float *conv_w, *a_log, *dt_bias, *gnorm;
};

/* One matrix or vector to bring to the device. */
struct cuda_mat_src {
    struct cu_mat *mat;
    const struct tensor *src[2];
    int n_src, k;
};
struct cuda_vec_src {
    const struct tensor *t;
    const float **to;
};

/* ---- tables ---- */

/* Where one batch's tables lie in a block. */
struct cuda_table {
    int cap; /* rows */
    size_t count, token, pos, span_of, span, rope, src;
};

/* A block of tables: the same offsets in device memory and in every stage. After
 * the batches: their rows together, for the rotary angles (the second batch's rope and
 * angles follow the first's); the rows of h (or m) that the head wants, in groups of
 * CU_ROWS with a count [2] each, and the other way round, of which output a row is;
 * the rows to save and their slots; a verified batch and what is kept of it; the page
 * tables of all batches. */
struct cuda_block {
    struct cuda_table batch[CUDA_BATCHES];
    size_t rot_count, out_of, out_count, out_rows, save_count, save_row, save_slot;
    size_t fold_count, fold_span, fold_accepted, page;
    size_t page_cap; /* entries */
    size_t size;
    uint8_t *device;
    struct {
        uint8_t *host; /* pinned */
        struct rt_event *sent;
    } stage[CUDA_STAGES];
    int stages, at;
    uint8_t *host; /* of the stage being filled; NULL: none */
    size_t page_used;
};

/* ---- the operations of a decode pass ---- */

enum cuda_op_kind {
    OP_EMBED,
    OP_GDN,
    OP_ATTENTION,
    OP_FFN,
    OP_FINAL,
    OP_MTP_EMBED,
    OP_MTP_LAYER,
    OP_MTP_KV,    /* its keys and values only */
    OP_HEAD,      /* over h */
    OP_FAST_HEAD, /* … with the copy */
    OP_MTP_HEAD,
    OP_SAVE,
    OP_ARGMAX,
    OP_FOLD /* of the batch before it, all DeltaNet layers */
};

struct cuda_op {
    uint8_t kind, batch;
    int16_t layer;
};

/* Upper bounds that grids are made for; the tables hold the true counts. */
struct cuda_bounds {
    int32_t rows, spans;
    int32_t mode; /* enum be_mode */
};

/* A list of operations and all that decides which kernels run, so that two equal
 * lists are one graph. */
struct cuda_list {
    int n, n_batches;
    struct cuda_bounds batch[CUDA_BATCHES], fold;
    int outs, saves;
    bool spread; /* the outputs are distinct rows of a decode batch, one group of them */
    int depth;   /* no position of the batches reaches this */
    bool open;   /* a stage of tables is being written for it */
    struct cuda_op *op;
};

struct cuda_upload; /* upload.c */
struct cuda_ready;  /* ready.c */
struct cuda_graph;  /* graphs.c */
struct cuda_graphs {
    struct cuda_graph *v;
    int n, cap;       /* cap: whole steps for which there is room */
    int step_kernels; /* kernels of such a step */
    uint64_t tick;
};

struct backend {
    struct be_shape shape;
    struct be_weights weights;
    uint8_t *attention;          /* shape.attention */
    struct be_layer *src_layers; /* weights.layers */
    int n_attention, n_gdn, channels;
    enum be_kv kv;
    int slots, pages, ctx, max_rows;
    int width;     /* rows of one sequence in a decode step at most */
    int step_rows; /* of all of them, a power of two */
    int max_out;
    int row_pages; /* entries of the longest page table */
    char describe[160];

    struct rt *rt;
    struct rt_info info;
    struct cu_ctx cu;
    struct team *team; /* NULL: nothing has been compared */
    struct be_counters count;
    struct phases start; /* where the time of opening went */
    struct be_plan plan; /* that it was opened by, for messages */

    /* weights */
    struct cuda_layer *layers; /* shape.layers, then the MTP layer */
    struct cu_mat head, copy, fc;
    struct cu_mm_plan *p_head, *p_copy, *p_fc; /* p_copy NULL: the head has no copy */
    bool fast;                                 /* the head reads its copy */
    struct tensor embed;                       /* device pointers */
    const float *norm, *enorm, *hnorm, *mtp_norm;
    struct cuda_mat_src *mats;
    struct cuda_vec_src *vecs;
    int n_mats, n_vecs;
    void *weight_mem;
    size_t weight_bytes;

    /* State: slot blobs of slot_floats: the recurrent states of all DeltaNet
     * layers, their convolution states [layer][2][3][channels], the hidden row.
     * parity says which of the two is current. Pages of page_bytes hold every
     * attention layer's keys and values, the MTP layer's last. */
    size_t s_floats, conv_floats, slot_floats, layer_bytes, page_bytes;
    float *state;
    uint8_t *cache;
    uint8_t *parity; /* [slots] */
    void *state_mem, *cache_mem;

    /* work memory */
    void *work_mem, *mm_mem;
    size_t work_bytes;
    float *x, *h, *m, *proj, *logits, *rot[CUDA_BATCHES], *pre_rot;
    float *ss[2], *power[2];
    struct cu_act act, act_mid, act_ffn, act_mtp, act_head;
    struct cu_edges edges;
    uint16_t *xt, *xt_mid;
    void *gdn_work, *attn_work, *gemm_work, *argmax_work, *sample_work;
    int32_t *ids;  /* [CUDA_MAX_OUT], and behind them */
    float *margin; /* as many */
    float *record; /* of verified rows: [DeltaNet layer][step_rows][record_ld] */
    size_t record_ld;
    uint8_t *axis;
    double *inv_freq;
    size_t logits_ld;

    /* the pass */
    struct cuda_block dec, pre;
    struct cuda_list list, last; /* last: that ran, for running it again */
    int list_cap;
    struct cuda_graphs graphs;
    bool begun;        /* a batch is there */
    enum be_mode mode; /* its */
    int batch;         /* its number in the list */
    int n_rows, n_spans;
    struct be_span *span; /* [max_rows], for BE_H_SLOT and parity */
    int *row_span;
    bool flipped;              /* the batch's slots have had their parity flipped */
    bool held;                 /* the batch waits for fold */
    int h_rows, m_rows, n_out; /* valid rows of h, m, logits */
    const char *doing;         /* for messages of what fails later */

    /* opening */
    struct cuda_upload *upload; /* NULL: its buffers have been given back */
    struct cuda_ready *ready;   /* NULL: not under way */
    atomic_bool given_up;       /* it has failed: the upload need not go on */
    pthread_t tidy;
    bool tidying;

    /* drawing */
    int32_t *host_ids;             /* pinned; ids, then margins */
    void *draw_host, *draw_device; /* settings of rows on their way; draw.c */
    size_t draw_size;
};

/* draw.c: ids[i] by s[i] from row first + i of the logits, n <= CU_ROWS. */
int cuda_draw(struct backend *b, int first, const struct be_sample *s, int n, int32_t *ids,
              struct err *e);
void cuda_draw_close(struct backend *b);

/* The error for a CUDA status: names the kernel and gives CUDA's reason. */
int cuda_fail(struct backend *b, int status, struct err *e);

/* weights.c: the list of all matrices and vectors; their places from base on (NULL:
 * only the size); comparison of what is resident; bytes of a tile. */
void cuda_weights_list(struct backend *b);
size_t cuda_weights_place(struct backend *b, uint8_t *base);
int cuda_weights_verify(struct backend *b, struct err *e);
size_t cuda_tile_bytes(const struct cu_mat *m);

/* upload.c: brings all weights to their places, by so many threads. While it runs it
 * changes nothing of the backend, and gives up when b->given_up is set. _end takes over
 * what became of it; _free gives back its buffers, after all are at rest. */
struct cuda_upload *cuda_upload_create(struct backend *b, int threads);
int cuda_upload_run(struct cuda_upload *u, const struct io_map *file,
                    void (*progress)(void *ctx, double done), void *ctx, struct err *e);
int cuda_upload_end(struct backend *b, int rc, struct err *e);
void cuda_upload_free(struct cuda_upload *u);
/* Seconds that copying as many bytes from pinned memory takes. */
int cuda_upload_time(struct backend *b, uint64_t bytes, double *seconds);

/* work.c: places of the work memory; tables. */
size_t cuda_work_place(struct backend *b, uint8_t *base);

/* table.c */
size_t cuda_block_layout(struct cuda_block *k, int rows0, int rows1, size_t pages);
int cuda_block_open(struct backend *b, struct cuda_block *k, int stages); /* a CUDA status */
void cuda_block_close(struct backend *b, struct cuda_block *k);
/* Takes a stage that is no longer being read; waits for one if it must. */
int cuda_block_begin(struct backend *b, struct cuda_block *k, struct err *e);
/* Which row of the last MTP pass a source from BE_H_CHAIN down names, for row `row`. */
static inline int32_t cuda_chain_row(int row, int32_t source)
{
    return source == BE_H_CHAIN ? row : BE_H_CHAIN - 1 - source;
}
/* Writes batch number i. source may be NULL. */
int cuda_block_batch(struct backend *b, struct cuda_block *k, int i, const struct be_batch *t,
                     const int32_t *source, struct err *e);
/* Writes how many rows of each span of the backend's verified batch are kept. */
void cuda_block_fold(struct backend *b, struct cuda_block *k, const int32_t *accepted);
/* Sends what was written. */
int cuda_block_send(struct backend *b, struct cuda_block *k, struct err *e);
/* Batch i as kernels see it. */
struct cu_batch cuda_block_view(const struct backend *b, const struct cuda_block *k, int i,
                                struct cuda_bounds bounds);
/* The batch that a fold is of: counts and spans alone. */
struct cu_batch cuda_block_folded(const struct cuda_block *k, struct cuda_bounds bounds);

/* pass.c: runs a decode list's kernels; 0 or a CUDA status. */
int cuda_pass_run(struct backend *b, const struct cuda_list *l);
/* prefill.c: one operation of a prefill batch. */
int cuda_prefill_op(struct backend *b, struct cuda_op op);
/* Arguments that decode and prefill share. */
struct cu_gdn cuda_gdn_args(const struct backend *b, const struct cuda_layer *l);
struct cu_attn cuda_attn_args(const struct backend *b, const struct cuda_layer *l, bool kv_only);

/* graphs.c: runs a list, by its graph when it has come before. */
int cuda_graphs_run(struct backend *b, const struct cuda_list *l);
void cuda_graphs_open(struct backend *b, int n);
void cuda_graphs_close(struct backend *b);

/* profile.c: a pass by part (be_ops.only, again, peak); a list under `only`. */
void cuda_only(struct backend *b, unsigned parts);
int cuda_run_only(struct backend *b, const struct cuda_list *l);
int cuda_again(struct backend *b, unsigned parts, int reps, double *ms, struct err *e);
double cuda_peak(const struct backend *b);

/* Runs what is pending; what follows on the stream sees its results. */
int cuda_flush(struct backend *b, struct err *e);
/* flush, and waits. */
int cuda_finish(struct backend *b, struct err *e);

/* state.c */
float *cuda_slot(const struct backend *b, int slot);
float *cuda_slot_hidden(const struct backend *b, int slot);
size_t cuda_state_size(const struct backend *b);
size_t cuda_page_size(const struct backend *b);
int cuda_state_reset(struct backend *b, int slot, struct err *e);
int cuda_state_copy(struct backend *b, int dst, int src, struct err *e);
int cuda_state_export(struct backend *b, int slot, void *out, struct err *e);
int cuda_state_import(struct backend *b, int slot, const void *in, struct err *e);
int cuda_page_copy(struct backend *b, int dst, int src, struct err *e);
int cuda_page_export(struct backend *b, int page, int n, void *out, struct err *e);
int cuda_page_import(struct backend *b, int page, const void *in, struct err *e);
int cuda_host_alloc(struct backend *b, size_t bytes, void **out, struct err *e);
void cuda_host_free(struct backend *b, void *p);
void cuda_page_trim(const struct backend *b, int n, void *blob);
void *cuda_state_at(const struct backend *b, int slot, size_t at, size_t *n);
void *cuda_page_at(const struct backend *b, int page, size_t at, size_t *n);
int cuda_page_fill(struct backend *b, int page, struct err *e);
int cuda_read_gdn(struct backend *b, int layer, int slot, float *conv, float *s, struct err *e);
int cuda_read_kv(struct backend *b, int layer, const int32_t *pages, int n, float *k, float *v,
                 struct err *e);

/* lane.c: be_ops.lane_*. */
int cuda_lane_open(struct backend *b, size_t bytes, struct be_lane **out, struct err *e);
void cuda_lane_close(struct be_lane *l);
int cuda_lane_buffer(struct be_lane *l, void **out, struct err *e);
int cuda_lane_put(struct be_lane *l, void *to, const void *from, size_t n, struct err *e);
int cuda_lane_get(struct be_lane *l, void *to, const void *from, size_t n, struct err *e);
int cuda_lane_wait(struct be_lane *l, struct err *e);

/* ready.c: what opening does beside the upload: begin; wait; end, with what became of
 * the upload; close. And afterwards: giving back what the upload held. */
int cuda_ready_begin(struct backend *b, int graphs, struct err *e);
void cuda_ready_wait(struct backend *b);
int cuda_ready_end(struct backend *b, int rc, struct err *e);
void cuda_ready_close(struct backend *b);
int cuda_tidy_begin(struct backend *b, struct err *e);
void cuda_tidy_end(struct backend *b);

/* open.c */
int cuda_open(const struct be_shape *shape, const struct be_weights *weights,
              const struct be_opts *opts, void (*progress)(void *ctx, double done), void *ctx,
              struct backend **out, struct err *e);
int cuda_plan(const struct be_shape *shape, const struct be_weights *weights,
              const struct be_opts *opts, struct be_plan *out, struct err *e);
void cuda_close(struct backend *b);

#endif
