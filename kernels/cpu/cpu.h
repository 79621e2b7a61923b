#ifndef QUASAR_KERNELS_CPU_CPU_H
#define QUASAR_KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/sample.h"
#include "kernels/team.h"

/* Memory from the system, zero, committed page by page as it is touched. */
struct cpu_map {
    void *p;
    size_t size;
};

/* The CPU's struct backend. Everything is written by the engine's thread or, in
 * disjoint shares, by its team during a call. */
struct backend {
    struct be_shape shape;
    struct be_weights weights;
    uint8_t *attention;      /* shape.attention */
    struct be_layer *layers; /* weights.layers */
    int *index;              /* layer -> number among its kind */
    int n_attention, n_gdn;  /* main layers; the MTP layer's cache follows */
    const struct cpu_isa *isa;
    int threads;
    struct team *team;
    enum be_kv kv;
    int slots, pages, max_rows;
    char describe[64];

    /* State: slots blobs of slot_floats, per DeltaNet layer the recurrent state
     * [v_heads][128][128] and the convolution's last inputs [3][channels], then
     * the saved hidden row. Pages: per attention layer keys, then values,
     * [kv_heads][256] rows (kvq.h). */
    int channels;
    size_t slot_floats, page_bytes, layer_bytes;
    struct cpu_map state, cache;

    /* The batch of the current pass. */
    enum be_mode mode;
    bool begun;
    int n_rows, n_spans;
    struct be_span *span;
    int32_t *tokens;
    struct cpu_row *row;
    struct gdn_span *gdn_span;
    int *row_span;             /* row -> span */
    int h_rows, m_rows, n_out; /* valid rows of h, m, logits */
    double inv_freq[BE_ROT_DIM / 2];
    uint8_t axis[BE_ROT_DIM / 2];

    /* Work: rows of x (residual), h (after the final norm), m (after the MTP
     * norm), rot [rows][64], and an arena for what lives inside one block. */
    struct cpu_map work;
    float *x, *h, *m, *rot, *arena, *logits, *scratch;
    /* What a held batch would have put into the recurrent states, per DeltaNet layer:
     * rows before and after the convolution, b, a. */
    float *record;
    size_t record_layer;
    bool held;             /* the batch waits for fold */
    bool fast;             /* the head reads its copy */
    double *clocks;        /* seconds by part; NULL: they are off */
    int64_t lap;           /* when the part that is under way began */
    size_t scratch_floats; /* per thread */
    float *draw;           /* max_out times draw_floats, for drawing */
    size_t draw_floats;
};

enum { CPU_MAX_OUT = 64 };

/* state.c */
float *cpu_slot(const struct backend *b, int slot);
float *cpu_slot_gdn(const struct backend *b, int slot, int index);
float *cpu_slot_hidden(const struct backend *b, int slot);
size_t cpu_state_size(const struct backend *b);
size_t cpu_page_size(const struct backend *b);
int cpu_state_reset(struct backend *b, int slot, struct err *e);
int cpu_state_copy(struct backend *b, int dst, int src, struct err *e);
int cpu_state_export(struct backend *b, int slot, void *out, struct err *e);
int cpu_state_import(struct backend *b, int slot, const void *in, struct err *e);
int cpu_page_copy(struct backend *b, int dst, int src, struct err *e);
int cpu_page_export(struct backend *b, int page, int n, void *out, struct err *e);
int cpu_page_import(struct backend *b, int page, const void *in, struct err *e);
void cpu_page_trim(const struct backend *b, int n, void *blob);
void *cpu_state_at(const struct backend *b, int slot, size_t at, size_t *n);
void *cpu_page_at(const struct backend *b, int page, size_t at, size_t *n);
int cpu_page_fill(struct backend *b, int page, struct err *e);
int cpu_read_gdn(struct backend *b, int layer, int slot, float *conv, float *s, struct err *e);
int cpu_read_kv(struct backend *b, int layer, const int32_t *pages, int n, float *k, float *v,
                struct err *e);

/* open.c */
int cpu_open(const struct be_shape *shape, const struct be_weights *weights,
             const struct be_opts *opts, void (*progress)(void *ctx, double done), void *ctx,
             struct backend **out, struct err *e);
void cpu_close(struct backend *b);

#endif
