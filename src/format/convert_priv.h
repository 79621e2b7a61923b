#ifndef QUASAR_FORMAT_CONVERT_PRIV_H
#define QUASAR_FORMAT_CONVERT_PRIV_H

#include "format/convert.h"
#include "format/source.h"
#include "format/tier.h"

/* One tensor to write. */
struct plan_item {
    const struct source_tensor *t;
    const char *name; /* ours; differs from t->name for the second head */
    enum dtype dtype;
};

struct plan {
    const struct convert_opts *o;
    struct source *s;
    const struct tier *tier; /* NULL: none of ours */
    bool keep;               /* every tensor in the type the source has */
    struct plan_item *items;
    size_t n;
    uint64_t done, total; /* bytes */
    float *scratch;       /* one chunk in fp32 */
    void *data, *scales;  /* one chunk in the target's form */
};

/* Rows of one chunk of a tensor. */
uint64_t plan_chunk_rows(const struct source_tensor *t);
/* Counts n more bytes; QE_CANCELLED when the user wants to stop. */
int plan_progress(struct plan *p, uint64_t n, struct err *e);
void plan_note(const struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Refuses when the target's file system has less than n bytes left. */
int plan_check_space(const char *dst, uint64_t n, struct err *e);

int convert_write_qsr(struct plan *p, const char *dst, struct err *e);
int convert_write_gguf(struct plan *p, const char *dst, struct err *e);
int convert_write_hf(struct plan *p, const char *dst, struct err *e);

#endif
