#ifndef QUASAR_VIEW_LOAD_H
#define QUASAR_VIEW_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "view/spec.h"

/* What the engine has done since the model was loaded, and what it holds now. Zero
 * before. */
struct view_load {
    struct view_spec spec;
    uint64_t prompt_tokens, cached_tokens; /* of all prompts; of these, not computed again */
    uint64_t prefilled;                    /* prompt tokens computed … */
    double prefill_s;                      /* … in this time */
    uint64_t restored;                     /* states put back from memory or disk */
    uint64_t failed;                       /* decode rounds that failed and gave nothing */
    uint64_t preemptions, swapped_bytes;   /* jobs that gave way; what went to memory for it */
    int waiting, running;                  /* jobs; waiting: also those that gave way … */
    int gave_way;                          /* … which are so many */
    uint64_t gave_way_bytes;               /* memory of their states */
    uint64_t repeated;                     /* jobs that gave way and were read again */
};

/* Who has the pages of the key/value cache. */
#define VIEW_KV_SEQS 24

struct view_kv_seq {
    int64_t tag; /* the owner's own number: a stored conversation's; 0: none */
    int tokens, pages;
    bool busy; /* a job runs on it */
};

struct view_kv {
    int pages, pages_free;
    int pages_kept;      /* that only kept states have */
    int page_tokens;     /* tokens of a page … */
    uint64_t page_bytes; /* … and what it takes */
    int n;               /* sequences that hold tokens, the running ones first */
    int more;            /* … and those that found no place in seq */
    struct view_kv_seq seq[VIEW_KV_SEQS];
};

#endif
