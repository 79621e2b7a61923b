/* What waits, in the order of arrival. Who starts next is the caller's to say: a job may be
 * passed over when what it needs is not free yet. */
#include "config.h"
#include "sched/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sched/job.h"

void queue_init(struct queue *q, size_t each)
{
    q->v = mem_array(QUEUE_OWNERS * each, sizeof(struct job *));
    q->n = 0;
    q->each = each;
}

void queue_fini(struct queue *q)
{
    free(q->v);
    *q = (struct queue){0};
}

bool queue_put(struct queue *q, struct job *j, size_t *before)
{
    size_t own = 0;
    for (size_t i = 0; i < q->n; i++) {
        own += q->v[i]->owner == j->owner;
    }
    const bool all = q->n == QUEUE_OWNERS * q->each;
    if (before) {
        *before = all ? q->n : own;
    }
    if (all || own == q->each) {
        return false;
    }
    q->v[q->n++] = j;
    return true;
}

static void drop(struct queue *q, size_t i)
{
    memmove(q->v + i, q->v + i + 1, (q->n - i - 1) * sizeof(struct job *));
    q->n--;
}

struct job *queue_take(struct queue *q, bool (*ok)(void *ctx, const struct job *j), void *ctx)
{
    for (size_t i = 0; i < q->n; i++) {
        if (ok(ctx, q->v[i])) {
            struct job *j = q->v[i];
            drop(q, i);
            return j;
        }
    }
    return NULL;
}

struct job *queue_first(const struct queue *q, uint64_t owner,
                        bool (*ok)(void *ctx, const struct job *j), void *ctx)
{
    struct job *best = NULL;
    for (size_t i = 0; i < q->n; i++) {
        struct job *j = q->v[i];
        if (j->owner == owner && (!best || j->priority > best->priority) && ok(ctx, j)) {
            best = j;
        }
    }
    return best;
}

void queue_remove(struct queue *q, const struct job *j)
{
    for (size_t i = 0; i < q->n; i++) {
        if (q->v[i] == j) {
            drop(q, i);
            return;
        }
    }
}

bool queue_before(const struct queue *q, const struct job *j, int *before)
{
    bool found = false;
    int n = 0;
    for (size_t i = 0; i < q->n; i++) {
        const struct job *o = q->v[i];
        found = found || o == j;
        const bool first = o->priority > j->priority || (o->priority == j->priority && !found);
        n += o != j && o->owner == j->owner && first &&
             !atomic_load_explicit(&o->cancel, memory_order_relaxed);
    }
    *before = n;
    return found;
}
