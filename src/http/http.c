/* The listener as a whole. */
#include "config.h"
#include "http/http.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/server.h"

int http_open(struct conv *c, const struct http_opts *o, struct http **out, struct err *e)
{
    struct http *h = mem_zalloc(sizeof *h);
    h->opts = *o;
    h->opts.queue = o->queue > 0 ? o->queue : 64;
    h->opts.connections = o->connections > 0 ? o->connections : 512;
    h->opts.body = o->body > 0 ? o->body : (size_t)32 << 20;
    h->conv = c;
    h->wake_fd = h->drained_fd = -1;
    h->defaults = conv_request_default(c);
    if (h->defaults.max_tokens < 0) {
        h->defaults.max_tokens = o->max_tokens > 0 ? o->max_tokens : 8192;
    }
    pthread_mutex_init(&h->lock, NULL);
    int rc = server_start(h, e);
    rc = rc < 0 ? rc : listen_start(h, e);
    if (rc < 0) {
        http_close(h);
        return rc;
    }
    if (o->requests) {
        struct view_listener l = {.on = true, .token = o->n_keys > 0};
        memcpy(l.address, h->address, strnlen(h->address, sizeof l.address - 1));
        requests_set_listener(o->requests, &l);
    }
    *out = h;
    return 0;
}

const char *http_address(const struct http *h)
{
    return h->address;
}

void http_drain(struct http *h)
{
    atomic_store(&h->draining, true);
    server_wake(h);
}

int http_live(struct http *h)
{
    return atomic_load(&h->live);
}

int http_drained_fd(const struct http *h)
{
    return h->drained_fd;
}

void http_close(struct http *h)
{
    if (!h) {
        return;
    }
    listen_stop(h);
    server_stop(h);
    if (h->opts.requests) {
        const struct view_listener off = {.on = false};
        requests_set_listener(h->opts.requests, &off);
    }
    pthread_mutex_destroy(&h->lock);
    free(h);
}
