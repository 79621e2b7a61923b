/* Copies beside passes: a stream of its own and two pinned buffers, one of which is
 * filled while the other travels. Nothing here is shared with the engine's thread but
 * the device. */
#include "config.h"

#include <stdlib.h>

#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/rt.h"

struct be_lane {
    struct rt *rt;
    uint8_t *host; /* pinned: the two buffers */
    size_t bytes;  /* of one */
    struct rt_event *over[2];
    int at; /* the one in use */
};

static int result(int status, struct err *e)
{
    return status ? err_set(e, rt_is_nomem(status) ? QE_NOMEM : QE_DEVICE,
                            "copying a state to or from the device failed: %s", rt_reason(status))
                  : 0;
}

int cuda_lane_open(struct backend *b, size_t bytes, struct be_lane **out, struct err *e)
{
    struct be_lane *l = mem_zalloc(sizeof *l);
    void *host = NULL;
    l->bytes = bytes;
    int status = rt_open(rt_device(b->rt), &l->rt);
    status = status ? status : rt_pin(l->rt, 2 * bytes, &host);
    l->host = host;
    for (int i = 0; i < 2 && status == 0; i++) {
        status = rt_event_create(l->rt, &l->over[i]);
    }
    if (status) {
        cuda_lane_close(l);
        return result(status, e);
    }
    *out = l;
    return 0;
}

void cuda_lane_close(struct be_lane *l)
{
    if (!l) {
        return;
    }
    if (l->rt) {
        (void)rt_sync(l->rt);
        rt_unpin(l->rt, l->host);
    }
    for (int i = 0; i < 2; i++) {
        rt_event_free(l->over[i]);
    }
    rt_close(l->rt);
    free(l);
}

int cuda_lane_buffer(struct be_lane *l, void **out, struct err *e)
{
    int status = rt_enter(l->rt);
    status = status ? status : rt_record(l->rt, l->over[l->at]);
    l->at = !l->at;
    status = status ? status : rt_wait(l->over[l->at]);
    *out = l->host + (size_t)l->at * l->bytes;
    return result(status, e);
}

int cuda_lane_put(struct be_lane *l, void *to, const void *from, size_t n, struct err *e)
{
    return result(rt_upload(l->rt, to, from, n), e);
}

int cuda_lane_get(struct be_lane *l, void *to, const void *from, size_t n, struct err *e)
{
    const int status = rt_enter(l->rt);
    return result(status ? status : rt_download(l->rt, to, from, n), e);
}

int cuda_lane_wait(struct be_lane *l, struct err *e)
{
    int status = rt_enter(l->rt);
    status = status ? status : rt_sync(l->rt);
    return result(status, e);
}
