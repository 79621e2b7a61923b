/* The listener as a whole. */
#include "config.h"
#include "http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "http/server.h"

/* The table shows how the listener stands. */
static void tell(const struct http *h, bool on)
{
    struct view_listener l = {
        .on = on, .token = h->opts.n_keys > 0, .paused = atomic_load(&h->paused)};
    memcpy(l.address, h->bound.address, strnlen(h->bound.address, sizeof l.address - 1));
    if (h->opts.requests) {
        requests_set_listener(h->opts.requests, &l);
    }
}

int http_open(struct conv *c, const struct http_opts *o, struct http **out, struct err *e)
{
    struct http *h = mem_zalloc(sizeof *h);
    h->opts = *o;
    h->opts.queue = o->queue > 0 ? o->queue : 64;
    h->opts.connections = o->connections > 0 ? o->connections : 1024;
    h->opts.body = o->body > 0 ? o->body : (size_t)32 << 20;
    h->conv = c;
    h->wake_fd = h->drained_fd = h->bound.fd = -1;
    h->metrics = metrics_create();
    h->keys = mem_array(o->n_keys + 1, sizeof *h->keys);
    memset(h->keys, 0, (o->n_keys + 1) * sizeof *h->keys);
    for (size_t i = 0; i < o->n_keys; i++) {
        if (o->keys[i].name) {
            snprintf(h->keys[i].name, sizeof h->keys[i].name, "%s", o->keys[i].name);
        } else {
            snprintf(h->keys[i].name, sizeof h->keys[i].name, "key%zu", i + 1);
        }
    }
    h->defaults = conv_request_default(c);
    if (!h->defaults.system) {
        h->defaults.system = "You are a helpful assistant.";
    }
    if (h->defaults.max_tokens < 0) {
        h->defaults.max_tokens = o->max_tokens > 0 ? o->max_tokens : 8192;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->peers_lock, NULL);
    int rc = server_start(h, e);
    rc = rc < 0 ? rc : listen_start(h, e);
    if (rc < 0) {
        http_close(h);
        return rc;
    }
    tell(h, true);
    *out = h;
    return 0;
}

const char *http_address(const struct http *h)
{
    return h->bound.address;
}

void http_drain(struct http *h)
{
    atomic_store(&h->draining, true);
    server_wake(h);
}

void http_cut(struct http *h)
{
    atomic_store(&h->cutting, true);
    server_wake(h);
}

/* With the lock held. */
static struct answer *find(struct http *h, uint64_t id)
{
    struct answer *a = h->answers;
    while (a && a->view.id != id) {
        a = a->next;
    }
    return a;
}

void http_cancel(struct http *h, uint64_t id)
{
    pthread_mutex_lock(&h->lock);
    struct answer *a = find(h, id);
    if (a && !a->gone && !a->done) {
        a->cancelled = a->broken = a->headed = a->done = true;
        listen_resume(a);
    }
    pthread_mutex_unlock(&h->lock);
    server_wake(h);
}

void http_pause(struct http *h, bool on)
{
    atomic_store(&h->paused, on);
    tell(h, true);
}

bool http_body(struct http *h, uint64_t id, struct buf *out)
{
    pthread_mutex_lock(&h->lock);
    const struct answer *a = find(h, id);
    if (a) {
        json_write_exact(a->ask->body, out);
    }
    pthread_mutex_unlock(&h->lock);
    return a != NULL;
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
    tell(h, false);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->peers_lock);
    metrics_free(h->metrics);
    free(h->keys);
    free(h);
}
