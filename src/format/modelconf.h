#ifndef QUASAR_FORMAT_MODELCONF_H
#define QUASAR_FORMAT_MODELCONF_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/err.h"

/*
 * The normalised model description: one flat JSON object with the keys of
 * config.json's text part, whatever the source spelled. model_type is always
 * "qwen3_5_text"; layer_types is always there; rope_theta,
 * partial_rotary_factor, mrope_section and mrope_interleaved stand both at the
 * top and in rope_parameters. A model of another architecture is refused by
 * its name (QE_UNSUPPORTED).
 */

/* From a config.json, nested (text_config) or flat. what names it in errors;
 * *out is a new reference. */
int modelconf_from_hf(const json_t *config, const char *what, json_t **out, struct err *e);

/* From GGUF metadata as one object of "general.architecture" and "qwen35.*"
 * keys (also the metadata of a version 1 container). */
int modelconf_from_gguf(const json_t *kv, const char *what, uint64_t vocab, bool tied, json_t **out,
                        struct err *e);

/* Checks that c is such an object: architecture, every needed key, its range. */
int modelconf_check(const json_t *c, const char *what, struct err *e);

/* Numbers the format code needs, from a checked object. */
struct modelconf {
    int layers, hidden, vocab;
    int k_heads, v_heads, k_dim, v_dim; /* DeltaNet */
    bool tied, mtp;
};
struct modelconf modelconf_get(const json_t *c);

/* True when a text that names a model (general.name, a folder) says Qwen3.8. */
bool modelconf_is_38(const char *name);

#endif
