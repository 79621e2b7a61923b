#ifndef QUASAR_SCHED_QUEUE_H
#define QUASAR_SCHED_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

struct job;

/* Jobs that wait, oldest first, at most cap. No locking of its own. */
struct queue {
    struct job **v;
    size_t n, cap;
};

void queue_init(struct queue *q, size_t cap);
void queue_fini(struct queue *q);
bool queue_put(struct queue *q, struct job *j); /* false when full */
/* Takes the oldest job for which ok(ctx, job) holds; NULL when none. */
struct job *queue_take(struct queue *q, bool (*ok)(void *ctx, const struct job *j), void *ctx);

#endif
