#ifndef QUASAR_ENGINE_HEAD_H
#define QUASAR_ENGINE_HEAD_H

#include "base/dtype.h"
#include "base/err.h"

/* A 4-bit copy of an output head, in memory. */
struct head_copy {
    struct tensor t;
    void *data, *scales; /* owned */
};

/* QE_UNSUPPORTED: its rows are no whole groups. */
int head_copy_make(const struct tensor *head, struct head_copy *out, struct err *e);
void head_copy_free(struct head_copy *h);

#endif
