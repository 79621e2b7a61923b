#ifndef QUASAR_SCHED_PREFIX_H
#define QUASAR_SCHED_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "sched/sched.h"

/*
 * Which kept state serves which tokens. States are found by a chain of hashes over
 * blocks of 64 tokens, and used only when every token is the same: a hash that
 * collides, by chance or by design, finds nothing. Engine thread only.
 */
enum prefix_kind {
    PK_RING, /* every so many tokens of a long prompt */
    PK_TURN, /* where a turn's input ends, or a state somebody may come back to */
    PK_HEAD  /* where the system prompt and the tools end */
};

struct prefix_entry {
    struct engine_snap *snap;
    int32_t *ids;
    int len;
    uint64_t hash; /* of the whole blocks */
    enum prefix_kind kind;
    const struct live *owner; /* only its jobs may use it: decoding wrote some of it */
    bool generated;           /* the same, for all jobs that want that */
    uint64_t used;
    bool outward;              /* to be written to the tier */
    int pins;                  /* cannot go now */
    struct prefix_entry *next; /* in its bucket */
};

#define PREFIX_BUCKETS 1024
#define PREFIX_GONE    512 /* evicted states remembered, to say so */

struct prefix {
    struct engine *g;
    uint64_t budget;    /* of engine_kept.bytes and the tokens beside them */
    uint64_t ids_bytes; /* of these */
    uint64_t (*hash)(const void *p, size_t n, uint64_t seed);
    struct prefix_entry *bucket[PREFIX_BUCKETS];
    int n, n_outward;
    uint64_t tick;
    struct {
        uint64_t hash;
        int len;
    } gone[PREFIX_GONE];
    size_t n_gone; /* ever */
};

/* hash: NULL for the usual one. */
void prefix_init(struct prefix *p, struct engine *g, uint64_t budget,
                 uint64_t (*hash)(const void *, size_t, uint64_t));
void prefix_fini(struct prefix *p);

/* A prompt that looks for its longest state, one token short of all at most. */
struct prefix_look {
    /* in */
    const int32_t *ids;
    int n;
    const struct live *owner;
    bool generated;
    int stable; /* tokens that may come again, 0: all */
    /* out */
    struct prefix_entry *found; /* NULL: none */
    enum job_short why;         /* why it is not more */
    int at;                     /* the token that why is about */
};
void prefix_find(struct prefix *p, struct prefix_look *l);
/* The state of exactly these tokens for such a prompt, NULL: none is there; it then counts
 * as used, and as of that kind if that lets it stay longer. */
struct prefix_entry *prefix_has(struct prefix *p, const int32_t *ids, int len,
                                const struct live *owner, bool generated, enum prefix_kind kind);
/* It is to be written to the tier, or is not any more. */
void prefix_outward(struct prefix *p, struct prefix_entry *e, bool on);
/* The one that was used last of those; NULL: none. */
struct prefix_entry *prefix_next_outward(struct prefix *p);
/* Takes the state; ids are copied. owner and generated: as in the entry; both are dropped
 * for a state of prefill's own on the grid. States that are used least go to stay within
 * the budget, this one too when nothing else is left. */
void prefix_add(struct prefix *p, struct engine_snap *snap, const int32_t *ids,
                enum prefix_kind kind, const struct live *owner, bool generated);
/* Lets states go until the others fit the budget again: when a sequence is closed, pages
 * that it shared with them become theirs. */
void prefix_fit(struct prefix *p);
/* Frees one state for its pages; false when there is none. */
bool prefix_reclaim(struct prefix *p);
/* The owner's conversation is over. */
void prefix_forget(struct prefix *p, const struct live *owner);

#endif
