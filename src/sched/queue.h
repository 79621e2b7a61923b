#ifndef QUASAR_SCHED_QUEUE_H
#define QUASAR_SCHED_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job;

/* Jobs that wait, oldest first: at most `each` of one owner, so that one who sends many keeps
 * nobody out, and QUEUE_OWNERS times as many of all. No locking of its own. */
#define QUEUE_OWNERS 4
struct queue {
    struct job **v;
    size_t n, each;
};

void queue_init(struct queue *q, size_t each);
void queue_fini(struct queue *q);
/* False when there is no place; *before (may be NULL): how many wait that count. */
bool queue_put(struct queue *q, struct job *j, size_t *before);
/* Takes the oldest job for which ok(ctx, job) holds; NULL when none. */
struct job *queue_take(struct queue *q, bool (*ok)(void *ctx, const struct job *j), void *ctx);
/* The owner's job that is to start first, by priority and then by arrival, among those for
 * which ok(ctx, job) holds; it stays. NULL when none. */
struct job *queue_first(const struct queue *q, uint64_t owner,
                        bool (*ok)(void *ctx, const struct job *j), void *ctx);
void queue_remove(struct queue *q, const struct job *j);
/* How many of the owner's jobs start before this one; false: it does not wait. */
bool queue_before(const struct queue *q, const struct job *j, int *before);

#endif
