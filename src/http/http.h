#ifndef QUASAR_HTTP_HTTP_H
#define QUASAR_HTTP_HTTP_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "conv/conv.h"
#include "view/requests.h"

/*
 * The listener: serves the model of a conv to HTTP clients, in the shapes of the OpenAI and the
 * Anthropic API (quasar-listen(7)). Threads of its own: some for the sockets, some that turn
 * bodies into prompts, one that reads what the model says. None of them waits for the work of
 * another, and the engine waits for none of them.
 */
struct http;

/* A key, and what whoever has it may do. */
struct http_key {
    const char *key;
    const char *name; /* in figures; NULL: "key1" for the first, and so on */
    int weight;       /* of its share against others', 1 .. 1000; 0: 1 */
    int priority;     /* 0 .. 9: higher ones start first */
    int slots;        /* most of its answers that are computed at once; 0: no limit */
    int queue;        /* most of its requests that run or wait; 0: all but a quarter of those of the
                         server if there are other keys */
};

struct http_opts {
    const char *host; /* an address, "localhost", or unix:PATH, which port does not matter for */
    int port;         /* 0: any that is free */
    int given_fd;     /* a socket that listens already, used instead; 0: none. Stays the caller's */
    const char *tls_cert, *tls_key; /* texts in PEM; NULL: no encryption */
    const char *const *origins;     /* of pages that may ask from elsewhere; "*": of all */
    size_t n_origins;
    const struct http_key *keys;
    size_t n_keys;             /* 0: everybody may ask */
    int max_tokens;            /* of an answer whose request names no limit; 0: 8192 */
    int queue;                 /* requests that may wait or run at a time; 0: 64 */
    int slots;                 /* answers that are computed at a time, to be told */
    int wait_s;                /* a request that waited so long is refused; 0: it waits on */
    int connections;           /* 0: 1024 */
    size_t body;               /* bytes of a request at most; 0: 32 MiB */
    const char *version;       /* of the program */
    struct requests *requests; /* the table to keep; NULL: none. Outlives it */
    /* A line for each request that ended; NULL: none. Any thread. */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* Listens at once; until the model is loaded requests to it are answered 503. The strings must
 * live as long. QE_IO: the address cannot be listened at (why, and what to do). */
int http_open(struct conv *c, const struct http_opts *o, struct http **out, struct err *e);
/* "127.0.0.1:8080", "unix:/run/quasar.sock" */
const char *http_address(const struct http *h);
/* No further request is taken: they are answered 503. */
void http_drain(struct http *h);
/* Ends all answers that are under way, as far as they have come: their clients are told that they
 * were cut. After http_drain. */
void http_cut(struct http *h);
/* Ends the answer with this number of the table, as if its client had gone; any thread. */
void http_cancel(struct http *h, uint64_t id);
/* New requests are answered 503, until it is told otherwise. Any thread. */
void http_pause(struct http *h, bool on);
/* Appends what the answer of this number was asked, as JSON; false: it is over. Any thread. */
bool http_body(struct http *h, uint64_t id, struct buf *out);
/* Answers under way. */
int http_live(struct http *h);
/* Readable when http_live has become 0 after http_drain. */
int http_drained_fd(const struct http *h);
/* Cuts what is still under way, and frees. Before conv_end; NULL is allowed. */
void http_close(struct http *h);

#endif
