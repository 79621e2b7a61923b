/* The passes over device memory and their timing. */
#include "config.h"
#include "kernels/cuda/bandwidth.h"

#include <stdint.h>

#include "kernels/cuda/rt.h"

enum { PASSES = 9 };

struct timing {
    struct rt *r;
    struct rt_event *from, *to;
    double read_ms, copy_ms; /* best */
};

static int timed(struct timing *t, struct cu_ctx *c, uint8_t *block, size_t bytes, bool copy)
{
    float ms = 0;
    int rc = rt_record(t->r, t->from);
    rc = rc     ? rc
         : copy ? cu_bw_copy(c, block + bytes / 2, block, bytes / 2)
                : cu_bw_read(c, block, bytes, block);
    rc = rc ? rc : rt_record(t->r, t->to);
    rc = rc ? rc : rt_wait(t->to);
    rc = rc ? rc : rt_elapsed(t->from, t->to, &ms);
    double *best = copy ? &t->copy_ms : &t->read_ms;
    if (rc == 0 && (*best <= 0 || (double)ms < *best)) {
        *best = (double)ms;
    }
    return rc;
}

int cuda_bandwidth(struct rt *r, struct cu_ctx *c, size_t bytes, double *read, double *copy)
{
    struct timing t = {.r = r};
    void *block = NULL;
    const bool pdl = c->pdl;
    const int launches = c->launches;
    size_t size = (bytes + 127) / 128 * 128;
    int rc = rt_alloc(r, size, &block);
    while (rt_is_nomem(rc) && size > (64 << 20)) { /* beside a model there is little left */
        size = size / 2 / 128 * 128;
        rc = rt_alloc(r, size, &block);
    }
    c->pdl = false;
    rc = rc ? rc : rt_fill(r, block, 1, size);
    rc = rc ? rc : rt_event_create(r, &t.from);
    rc = rc ? rc : rt_event_create(r, &t.to);
    for (int i = 0; i < PASSES && rc == 0; i++) {
        rc = timed(&t, c, block, size, false);
        rc = rc ? rc : timed(&t, c, block, size, true);
    }
    c->pdl = pdl;
    c->launches = launches;
    rt_event_free(t.from);
    rt_event_free(t.to);
    rt_free(r, block);
    if (rc == 0) {
        *read = (double)size / 1e6 / (t.read_ms > 0 ? t.read_ms : 1e-6);
        *copy = (double)size / 1e6 / (t.copy_ms > 0 ? t.copy_ms : 1e-6);
    }
    return rc;
}
