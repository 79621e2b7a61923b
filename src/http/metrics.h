#ifndef QUASAR_HTTP_METRICS_H
#define QUASAR_HTTP_METRICS_H

#include "base/buf.h"
#include "conv/conv.h"

/*
 * What is counted of requests, and the text that Prometheus reads: the names of vLLM, which
 * dashboards know, and some of ours. Any thread.
 */
struct metrics;

/* Distributions; times in seconds. */
enum metric_kind {
    MK_FIRST,   /* from the request to the first token */
    MK_BETWEEN, /* from token to token */
    MK_EACH,    /* of one request: decode time by tokens after the first */
    MK_WHOLE,   /* from the request to its end */
    MK_QUEUE,
    MK_PREFILL,
    MK_DECODE,
    MK_INFERENCE, /* prefill and decode */
    MK_PROMPT,    /* tokens */
    MK_OUTPUT,
    MK_MOST, /* tokens that were allowed */
    MK_N,    /* answers that were asked for */
    MK_COUNT
};

struct metrics *metrics_create(void);
void metrics_free(struct metrics *m);
/* n times the value; one that is no number or below zero is not counted. */
void metrics_add(struct metrics *m, enum metric_kind kind, double value, int n);
/* A choice ended: "stop", "length", "tool_calls", "abort", "error". */
void metrics_finish(struct metrics *m, const char *reason);
/* A request was answered with this status instead. */
void metrics_refuse(struct metrics *m, int status);
/* Figures of whoever has one key. */
struct metrics_key {
    const char *name; /* plain */
    int live;         /* its requests that run or wait */
    uint64_t requests, refused, prompt, output, preemptions;
};
/* All of it, with the engine's own figures, and those of n keys. */
void metrics_write(struct metrics *m, const struct conv *c, const struct metrics_key *keys,
                   size_t n, struct buf *out);

#endif
