#ifndef QUASAR_GRAMMAR_WALK_H
#define QUASAR_GRAMMAR_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar/grammar.h"
#include "grammar/words.h"

/*
 * One answer's way through a grammar, token by token. A walk is used by one thread at a time;
 * walks of one grammar may be used by several threads. What was worked out for one is there for
 * all.
 */
struct walk;

struct walk_opts {
    struct grammar *grammar; /* a reference is taken */
    struct words *words;     /* too */
    const int32_t *end;      /* ids that end the answer; copied */
    int n_end;
    bool in_thought;     /* the answer comes after the first </think>, and line breaks */
    int32_t call_opener; /* where the answer would begin, this id may stand instead, and nothing
                            after it is judged: a call; -1: none */
    bool between; /* the grammar is what follows each call_opener, and around that all may come;
                     not in a thought, where a call_opener is a token as others */
};

struct walk *walk_create(const struct walk_opts *o);
void walk_free(struct walk *w); /* NULL is allowed */

/* Sets in allow[n_words] the bits of the ids that may follow what was taken and then n drafts.
 * An id that ends the answer may come exactly where the answer is complete. Drafts that may not
 * stand there, or more states than there is room for: no bit at all. */
void walk_row(struct walk *w, const int32_t *draft, int n, uint32_t *allow, size_t n_words);
/* How many of n drafts may follow, one after the other. */
int walk_legal(struct walk *w, const int32_t *draft, int n);
/* Where only one text can follow: its usual tokens, at most `most`; returns how many. */
int walk_forced(struct walk *w, int32_t *ids, int most);
/* One more token of the answer. */
void walk_take(struct walk *w, int32_t id);
/* Nothing but an end may follow. */
bool walk_complete(struct walk *w);

#endif
