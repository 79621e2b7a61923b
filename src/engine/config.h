#ifndef QUASAR_ENGINE_CONFIG_H
#define QUASAR_ENGINE_CONFIG_H

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"
#include "kernels/backend.h"

/* What the engine needs to know of a model, read from its config keys. */
struct model_config {
    struct be_shape shape;
    uint8_t *attention; /* shape.attention; owned */
    int ctx_max;        /* max_position_embeddings */
    bool tied;          /* the head is the embedding */
    int32_t *eos;       /* owned */
    int n_eos;
    struct engine_sampling sampling;
};

/* Refuses by the key's name whatever is not of the family. Cheap: nothing of
 * the weights is looked at. shape.mtp says what the config promises. */
int model_config_read(const json_t *config, struct model_config *out, struct err *e);

/* Adds the ids and sampling defaults of a generation_config.json. */
int model_config_generation(struct model_config *m, const char *p, size_t n, struct err *e);

/* Whether the token is one of eos. */
bool model_config_ends(const struct model_config *m, int64_t id);

void model_config_fini(struct model_config *m);

#endif
