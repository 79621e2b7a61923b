/* First in, first out, with exceptions only where the caller says so: a job may
 * be passed over when what it needs is not free yet. */
#include "config.h"
#include "sched/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void queue_init(struct queue *q, size_t cap)
{
    q->v = mem_array(cap, sizeof *q->v);
    q->n = 0;
    q->cap = cap;
}

void queue_fini(struct queue *q)
{
    free(q->v);
    q->v = NULL;
    q->n = q->cap = 0;
}

bool queue_put(struct queue *q, struct job *j)
{
    if (q->n == q->cap) {
        return false;
    }
    q->v[q->n++] = j;
    return true;
}

struct job *queue_take(struct queue *q, bool (*ok)(void *ctx, const struct job *j), void *ctx)
{
    for (size_t i = 0; i < q->n; i++) {
        if (ok(ctx, q->v[i])) {
            struct job *j = q->v[i];
            memmove(q->v + i, q->v + i + 1, (q->n - i - 1) * sizeof(struct job *));
            q->n--;
            return j;
        }
    }
    return NULL;
}
