#ifndef QUASAR_GRAMMAR_INSIDE_H
#define QUASAR_GRAMMAR_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/auto.h"
#include "grammar/grammar.h"
#include "grammar/node.h"
#include "grammar/walk.h"

/* The insides of a grammar, which its walks share: grammar.c and walk.c only. */

/* The ids that may follow in a state. */
struct mask {
    const struct words *words;
    int32_t state; /* near (auto_near) */
    uint32_t *bits;
};

struct grammar {
    atomic_int refs;
    struct nodes *nodes; /* constant */
    node root, gap;      /* constant; gap: line breaks before the answer */
    bool marks;          /* constant: added tokens are part of its texts */
    bool open;           /* constant: it is JSON with names that it does not know */

    pthread_mutex_t lock; /* all that follows */
    struct automaton *a;
    struct walk *walks; /* of it */
    struct mask *masks; /* of n slots, found by state */
    size_t n_masks, cap_masks;
    size_t mask_bytes;
};

/* Takes x, also on failure. marks as above. */
int grammar_of(struct nodes *x, node root, bool marks, struct grammar **out, struct err *e);
/* … and open. */
int grammar_of_json(struct nodes *x, node root, bool open, struct grammar **out, struct err *e);

#endif
