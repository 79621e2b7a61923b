#ifndef QUASAR_GRAMMAR_AUTO_H
#define QUASAR_GRAMMAR_AUTO_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/node.h"

/*
 * The automaton of a grammar, made as far as it is walked. A state is a set of stacks, each what
 * is still to come in one reading of the text so far; equal stacks and equal states are one.
 * One thread at a time.
 */
struct automaton;

#define AUTO_DEAD 0 /* the state in which nothing can follow */

/* x is borrowed and finished. */
struct automaton *auto_create(const struct nodes *x);
void auto_free(struct automaton *a);

/* The state before the first byte of a text of root. */
int32_t auto_start(struct automaton *a, node root);
/* The one after a byte. AUTO_DEAD: it may not come there, or there is no room (auto_full). */
int32_t auto_step(struct automaton *a, int32_t state, int byte);
/* Whether the text may end here. */
bool auto_accepts(const struct automaton *a, int32_t state);
/* Whether it may end, and nothing else. */
bool auto_over(const struct automaton *a, int32_t state);
/* The one byte beside white space that may follow, when there is one only and the text may not
 * end; else -1. *space: white space may follow too. */
int auto_only(struct automaton *a, int32_t state, bool *space);
/* A state in which the next n bytes, if they are as many, may be the same ones: bounds that are
 * further off are left open. What was kept for it holds for state too. */
int32_t auto_near(struct automaton *a, int32_t state, int n);
/* Whether a state is within a JSON string and nothing else, between two of its characters: any of
 * at most *most characters that need no escape may follow. */
bool auto_in_text(struct automaton *a, int32_t state, int32_t *most);
/* One text had too many readings at once, or was too deep, since the start. */
bool auto_full(const struct automaton *a);
/* It has grown so large that it should be made anew. */
bool auto_large(const struct automaton *a);
/* Forgets all states but those n, which get other numbers. */
void auto_shrink(struct automaton *a, int32_t *states, int n);

#endif
