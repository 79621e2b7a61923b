#ifndef QUASAR_CONV_POST_H
#define QUASAR_CONV_POST_H

#include "conv/conv.h"

/*
 * Events on their way from the worker to the reader: a ring, and behind it a
 * backlog that takes what a slow reader leaves no room for and merges it, so that
 * text is never lost and the worker never waits.
 */
struct post;

struct post_item {
    struct conv_event ev;
    struct chat_result *result; /* with CE_END */
    bool gone;                  /* the worker is done with ev.chat; no event */
};

/* worker_fd: eventfd of the worker, written when the reader made room. */
struct post *post_create(int worker_fd);
/* With both threads gone. */
void post_free(struct post *p);
int post_fd(const struct post *p);

/* Worker: takes the item. */
void post_put(struct post *p, struct post_item *item);
/* Worker: moves what fits from the backlog into the ring. */
void post_flush(struct post *p);

/* Worker, or the last thread left: something is in the backlog. */
bool post_waiting(const struct post *p);

/* Reader. */
bool post_take(struct post *p, struct post_item *item);

void chat_result_free(struct chat_result *r);

#endif
