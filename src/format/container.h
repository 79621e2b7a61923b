#ifndef QUASAR_FORMAT_CONTAINER_H
#define QUASAR_FORMAT_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/io.h"

/*
 * A model file, mapped: version 2 (.qsr, ours, docs/container.md) or version 1
 * (.q27 with its .tok beside it). After opening, a reader sees one convention
 * whatever the file: Hugging Face names without the text prefix
 * ("embed_tokens.weight", "layers.3.self_attn.q_proj.weight", "mtp.fc.weight",
 * "lm_head.weight", "norm.weight"), value heads in grouped (Hugging Face) order,
 * q_proj rows as [q | gate] per head. Two kinds of value differ by file and are
 * told by container_norms_folded: norm weights with the +1 already in, and
 * A_log already as -exp(A_log) (both true for version 1, false for version 2).
 *
 * Opening checks every size and offset, the digest of header, metadata and
 * small blobs; the digests of large weight blobs only with verify.
 */
struct container;

enum container_blob {
    CB_TOKENIZER,        /* tokenizer.json, or the bytes of a .tok */
    CB_TOKENIZER_CONFIG, /* tokenizer_config.json */
    CB_TEMPLATE,         /* chat_template.jinja */
    CB_GENERATION,       /* generation_config.json */
    CB_CONFIG,           /* config.json as the source had it */
    CB_CARD              /* model card, Markdown */
};

/* *out is owned by the caller; tensors and blobs are borrowed from it. */
int container_open(const char *path, bool verify, struct container **out, struct err *e);
/* The same over bytes that stay valid until container_close; name stands in
 * messages. A version 1 file opened this way has no tokenizer. */
int container_open_mem(const void *p, size_t n, const char *name, bool verify,
                       struct container **out, struct err *e);
void container_close(struct container *c);

size_t container_count(const struct container *c);
const struct tensor *container_at(const struct container *c, size_t i);
/* NULL when there is none. With tied embeddings "lm_head.weight" finds the
 * embedding's tensor (container_at lists it once, under its own name). */
const struct tensor *container_find(const struct container *c, const char *name);

/* Bytes of a blob; false when the file has none. */
bool container_get(const struct container *c, enum container_blob which, const char **p, size_t *n);

/* The normalised model description, keys of config.json's text part
 * ("hidden_size", "num_hidden_layers", "layer_types", …) whatever the source. */
const json_t *container_config(const struct container *c);
/* The file's own metadata object: "tier", "name", "source", "writer". */
const json_t *container_meta(const struct container *c);
bool container_norms_folded(const struct container *c);
int container_version(const struct container *c);
uint64_t container_file_size(const struct container *c);
/* The mapping that the tensors of a version 2 file lie in; NULL when opened over memory. */
const struct io_map *container_map(const struct container *c);
/* 64 hex digits that identify weights and configuration, the same wherever the
 * file lies. */
const char *container_digest(const struct container *c);

/* Where tensor i came from and what identifies its bytes. */
struct container_origin {
    const char *name;            /* its full name in the source */
    const char *type;            /* its type there ("BF16", "Q4_K"), "" when not known */
    const uint8_t *data_digest;  /* SHA-256, NULL in version 1 */
    const uint8_t *scale_digest; /* NULL without scales */
};
struct container_origin container_origin(const struct container *c, size_t i);

/* Every embedded document, the six above and others, by its file name. */
struct container_doc {
    const char *name;
    const char *data; /* not NUL terminated */
    size_t size;
    const uint8_t *digest;
};
size_t container_doc_count(const struct container *c);
struct container_doc container_doc_at(const struct container *c, size_t i);

#endif
