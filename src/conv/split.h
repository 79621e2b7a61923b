#ifndef QUASAR_CONV_SPLIT_H
#define QUASAR_CONV_SPLIT_H

#include <jansson.h>

#include "base/buf.h"
#include "tokenizer/stop.h"
#include "tokenizer/think.h"
#include "tokenizer/tokenizer.h"
#include "tools/recogniser.h"

/*
 * From tokens to what a reader sees: characters, then thought or answer; the answer ends at a
 * stop string, and tool calls are taken out of it. Stop strings do not end a thought. Calls at the
 * end of a thought that no answer follows are calls too.
 */
struct split {
    const struct tokenizer *tok;
    struct detok detok;
    bool plain; /* all of it is the answer */
    bool deaf;  /* stop strings are not looked for yet */
    struct think think;
    struct stop stop;
    struct recogniser *calls;   /* NULL: not looked for */
    struct recogniser *thought; /* of the thought; NULL: not looked for */
    struct buf pending;         /* source of calls in the thought … */
    json_t *pending_calls;      /* … and they: what follows decides what they are */
    json_t *modes;              /* of the calls that came out: strings, as tool_item.mode */
    bool answered;              /* there was an answer that is not blank, or a call */
    bool single;                /* the first call ends the answer */
    int thought_tokens;         /* with the one that closes it */
    bool stopped;               /* a stop string was found, or the only call */
};

/* What came out; buffers are appended to, calls is a JSON array of {"name", "arguments"}. */
struct split_out {
    struct buf thought, text;
    json_t *calls;
};

struct split_opts {
    bool plain;
    bool opens_thought; /* the prompt ends inside one */
    const char *const *stops;
    size_t n_stops;
    const json_t *tools; /* NULL, or the definitions; borrowed */
    bool strict;         /* as recogniser_opts */
    bool declared;
    bool single;         /* at most one call */
    const char *prefill; /* of a call, which the prompt ends with; NULL: none */
};

/* QE_USAGE for a stop string that cannot be. */
int split_init(struct split *s, const struct tokenizer *tok, const struct split_opts *o,
               struct err *e);
void split_fini(struct split *s);
/* Whether stop strings are looked for in what comes from now on; at first they are. One
 * that has begun before is not found. */
void split_listen(struct split *s, bool on);
/* True once a stop string was found, or the only call; nothing comes out after that. */
bool split_token(struct split *s, int32_t id, struct split_out *out);
/* The stream is over: releases what was held back. cut: a limit ended it. */
void split_finish(struct split *s, bool cut, struct split_out *out);
/* Markers of calls that stayed in the text. */
int split_missed(const struct split *s);

#endif
