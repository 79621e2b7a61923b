#ifndef QUASAR_CONV_SPLIT_H
#define QUASAR_CONV_SPLIT_H

#include <jansson.h>

#include "base/buf.h"
#include "tokenizer/stop.h"
#include "tokenizer/think.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/toolcall.h"

/*
 * From tokens to what a reader sees: characters, then thought or answer; the
 * answer ends at a stop string, and tool calls are taken out of it. Stop strings
 * do not end a thought.
 */
struct split {
    const struct tokenizer *tok;
    struct detok detok;
    bool plain; /* all of it is the answer */
    bool deaf;  /* stop strings are not looked for yet */
    struct think think;
    struct stop stop;
    struct toolcall *calls; /* NULL: not looked for */
    bool stopped;
};

/* What came out; buffers are appended to, calls is a JSON array. */
struct split_out {
    struct buf thought, text;
    json_t *calls;
};

/* opens_thought: the prompt ends inside one. tools: NULL or the definitions,
 * borrowed. QE_USAGE for a stop string that cannot be. */
int split_init(struct split *s, const struct tokenizer *tok, bool plain, bool opens_thought,
               const char *const *stops, size_t n_stops, const json_t *tools, struct err *e);
void split_fini(struct split *s);
/* Whether stop strings are looked for in what comes from now on; at first they are. One
 * that has begun before is not found. */
void split_listen(struct split *s, bool on);
/* True once a stop string was found; nothing comes out after that. */
bool split_token(struct split *s, int32_t id, struct split_out *out);
/* The stream is over: releases what was held back. */
void split_finish(struct split *s, struct split_out *out);

#endif
