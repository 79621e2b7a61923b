#ifndef QUASAR_TOKENIZER_THINK_H
#define QUASAR_TOKENIZER_THINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/*
 * Splits what a model says into thought and answer. The thought reaches to the
 * first </think>; the line breaks behind it belong to neither. Without an open
 * thought, one may still begin with <think> as the first thing but white space.
 * How the text is cut into pieces makes no difference: an unfinished tag is
 * held back.
 */
struct think {
    enum { THINK_START, THINK_THOUGHT, THINK_GAP, THINK_ANSWER } state;
    struct buf held;
};

/* in_thought: the prompt left <think> open. */
void think_init(struct think *t, bool in_thought);
void think_fini(struct think *t);
/* Appends what is certain after these bytes. */
void think_feed(struct think *t, const char *p, size_t n, struct buf *thought, struct buf *answer);
/* The stream is over: releases what was held back. An open thought stays one. */
void think_finish(struct think *t, struct buf *thought, struct buf *answer);
/* Still (or again) in the thought. */
bool think_inside(const struct think *t);

#endif
