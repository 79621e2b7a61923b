#ifndef QUASAR_CONV_FINDER_H
#define QUASAR_CONV_FINDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Looks for words in what was said in all stored conversations, on a thread of its own with its
 * own handle of the store, so that who asks never waits. What is asked last counts: what was
 * asked before is given up. All functions are the reader's thread's.
 */
struct finder;
struct conv;

/* Marks around each word that was found. */
#define FOUND_ON   "\xEF\xB7\x90"
#define FOUND_OFF  "\xEF\xB7\x91"
#define FOUND_EACH 3  /* places of a conversation at most */
#define FOUND_MOST 60 /* … and of all */

/* A place in a stored conversation. */
struct found {
    int64_t conversation, turn; /* as conv_leads_to */
    bool user;                  /* who said it; else the model */
    char *around;               /* some words of it, as they came */
    int more;                   /* other turns of this conversation that have the words */
};

/* What became of one question. */
struct finding {
    struct buf words; /* that were asked for */
    struct found *v;  /* conversation after conversation, the one with the newest first */
    size_t n;
    bool cut;       /* there are, or may be, others */
    struct err err; /* code 0: it was carried out */
};
void finding_fini(struct finding *f);

/* Starts no thread before something is asked. It has to be freed before the conv is closed. */
struct finder *finder_create(struct conv *c);
/* NULL is allowed; gives up what is under way. */
void finder_free(struct finder *f);
/* Readable (poll) when an answer can be taken. */
int finder_fd(const struct finder *f);
/* Asks for turns that have all of the words, the last one maybe only its beginning. Returns at
 * once. */
void finder_ask(struct finder *f, const char *words, size_t n);
/* Nothing is asked any more. */
void finder_drop(struct finder *f);
/* The answer to what was asked last, once; false: it is not there yet. */
bool finder_take(struct finder *f, struct finding *out);

#endif
