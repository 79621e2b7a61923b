#ifndef QUASAR_ENGINE_WEIGHTS_H
#define QUASAR_ENGINE_WEIGHTS_H

#include "engine/config.h"
#include "engine/engine.h"
#include "engine/head.h"

/* The tensors of a model as the backend wants them. Matrices are borrowed from
 * the source; the small vectors are converted copies in working form. */
struct model_weights {
    struct be_weights w;
    struct be_layer *layers; /* w.layers; owned */
    float *vectors;          /* owned; all converted vectors */
    struct head_copy copy;   /* of the head, where the file has none and one is wanted */
    uint64_t step_bytes;     /* weights that one decode step of one row reads */
    uint64_t draft_bytes;    /* and one draft step */
};

/* Finds and checks every tensor of the config by name and shape. Clears
 * m->shape.mtp when the file has no MTP layer. fast: the copy of the head serves more
 * than drafts. */
int model_weights_read(const struct engine_source *src, struct model_config *m,
                       enum engine_draft_head drafts, bool fast, struct model_weights *out,
                       struct err *e);
void model_weights_fini(struct model_weights *w);

#endif
