#ifndef QUASAR_VIEW_REQUESTS_H
#define QUASAR_VIEW_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * The listener's requests as plain data: those that live and the last 200 that ended.
 * Who serves them writes, who shows them reads; copies only, under one mutex that is never
 * held for longer than a copy. Any thread.
 */
#define REQUESTS_LIVE  64
#define REQUESTS_ENDED 200

enum view_request_state { RQ_QUEUED, RQ_PREFILL, RQ_DECODE, RQ_TOOL, RQ_DONE, RQ_FAILED };
/* "queued", … */
const char *view_request_word(enum view_request_state s);

enum view_role { VR_SYSTEM, VR_USER, VR_MODEL, VR_TOOL, VR_COUNT };

struct view_request {
    uint64_t id; /* from 1, given by the table */
    char client[32], endpoint[40];
    enum view_request_state state;
    int input, cached, output; /* tokens; negative: not known */
    double tok_s, tok_round;   /* NaN: not known */
    int64_t begun, ended;      /* ns of the real clock; ended 0: it lives */
    char result[96];           /* how it ended: "stop", or why it failed */
    /* what it asks */
    int messages[VR_COUNT]; /* by role */
    uint64_t bytes;         /* of all of them */
    int tools, max_tokens;  /* max_tokens negative: to the end of the window */
    double temp, top_p;     /* NaN: the model's own */
    int top_k;              /* negative: the model's own */
    bool stream;
    /* what the engine needed, in seconds; NaN: not known */
    double queue_s, prefill_s, decode_s, first_s;
};
/* One with nothing known. */
struct view_request view_request_unknown(void);

struct view_listener {
    bool on;
    bool paused; /* new requests are refused */
    bool token;  /* one is required */
    char address[64];
    int live, queued; /* at work; waiting: of the table */
};

struct requests;

/* What a user may ask of who serves; called with no lock held, by the reader's thread. */
struct requests_control {
    void *ctx;
    void (*cancel)(void *ctx, uint64_t id);
    void (*pause)(void *ctx, bool on);
    /* Appends the bodies of a request; false: they are not kept. */
    bool (*body)(void *ctx, uint64_t id, struct buf *out);
};

struct requests *requests_create(const struct requests_control *control);
void requests_free(struct requests *r);

/* ---- who serves ---- */
/* address, token, on and paused; the counts are the table's. */
void requests_set_listener(struct requests *r, const struct view_listener *l);
/* Adds a live one, whose id and times the table sets; 0: there are REQUESTS_LIVE already. */
uint64_t requests_begin(struct requests *r, const struct view_request *q, int64_t now);
/* Replaces the one of its id; in RQ_DONE or RQ_FAILED it has ended and moves to those. An id that
 * does not live changes nothing. */
void requests_update(struct requests *r, const struct view_request *q, int64_t now);

/* ---- who shows ---- */
void requests_listener(struct requests *r, struct view_listener *out);
/* Copies at most max: the live ones, oldest first, then the ended ones, latest first. */
size_t requests_list(struct requests *r, struct view_request *out, size_t max);
bool requests_get(struct requests *r, uint64_t id, struct view_request *out);
/* An eventfd: readable when one came, ended or changed its state, or the listener did; not for
 * figures. requests_look makes it quiet. */
int requests_fd(const struct requests *r);
void requests_look(struct requests *r);
void requests_cancel(struct requests *r, uint64_t id);
void requests_pause(struct requests *r, bool on);
bool requests_body(struct requests *r, uint64_t id, struct buf *out);

#endif
