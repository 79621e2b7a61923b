#ifndef QUASAR_FORMAT_NAMES_H
#define QUASAR_FORMAT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/modelconf.h"

/*
 * Tensor names: ours (Hugging Face without the text prefix) and GGUF's (also
 * those of version 1 containers), and what GGUF does to the values.
 */
#define NAME_MAX_LEN 256

enum name_change {
    NC_PLUS_ONE = 1, /* GGUF stores 1 + w */
    NC_NEG_EXP = 2,  /* GGUF stores -exp(w) */
    NC_V_ROWS = 4,   /* rows after q and k: value heads of v_dim rows, tiled */
    NC_Z_ROWS = 8,   /* all rows: value heads of v_dim rows, tiled */
    NC_HEADS = 16,   /* one row per value head, tiled */
    NC_COLS = 32,    /* columns: value heads, tiled (a vector of heads is one row) */
    NC_CONV = 64     /* [C, 1, 4] here is [C, 4] there */
};

/* "blk.3.attn_q.weight" to "layers.3.self_attn.q_proj.weight". Block number
 * `layers` is the MTP layer. False for a name that is not of the family. */
bool names_from_gguf(const char *gguf, int layers, char hf[NAME_MAX_LEN], unsigned *change);
/* The other way; false for names GGUF has no place for (visual.*). */
bool names_to_gguf(const char *hf, int layers, char gguf[NAME_MAX_LEN], unsigned *change);

/* Our name of a checkpoint's tensor: "model.language_model." or "model."
 * removed; NULL when the name belongs to neither text, MTP nor vision part.
 * Points into full. */
const char *names_strip(const char *full);

/* The kinds of tensor that tiers tell apart. */
bool name_is_norm(const char *hf);                    /* zero-centred norms and the gated norm */
bool name_has_leaf(const char *hf, const char *leaf); /* ends in "leaf.weight" */

/* Those that checkpoints of the family keep in fp32 where they tell them apart. */
bool name_is_f32(const char *hf);

/* Applies what a change does to values (1 + w, -exp(w)), and undoes it. */
void names_change(unsigned change, float *w, uint64_t n);
void names_unchange(unsigned change, float *w, uint64_t n);

/* Value-head order. GGUF's head n is ours number (n % k_heads) * r + n / k_heads. */
int heads_ours(const struct modelconf *m, int gguf_head);
int heads_gguf(const struct modelconf *m, int our_head);
/* Row of the source that becomes row `row` of the result, when converting to
 * GGUF order or from it. */
uint64_t heads_source_row(const struct modelconf *m, unsigned change, bool to_gguf, uint64_t row);
/* Permutes the heads inside one row of n bytes (n is a multiple of v_heads). */
void heads_permute_row(const struct modelconf *m, bool to_gguf, const void *src, void *dst,
                       size_t n);
/* True when a tensor of rows x cols has as many of them as the heads need. */
bool heads_fit(const struct modelconf *m, unsigned change, int n_dims, uint64_t rows,
               uint64_t cols);
/* True when the change moves anything at all for this model. */
bool heads_moved(const struct modelconf *m, unsigned change);

#endif
