#ifndef QUASAR_TUI_SESSIONS_H
#define QUASAR_TUI_SESSIONS_H

#include "tui/app.h"
#include "tui/found.h"

/* The list of stored conversations, shared by sessions.c and view_sessions.c. */
struct stored_branch {
    int64_t tip;
    int number, from, turns;
    char *head;
    bool current;
};

struct stored {
    int64_t id, updated, state_bytes;
    char *title;
    int turns;
    bool pinned;
    int recovered; /* tokens of a last answer that was cut off; -1: none was */
    bool known;    /* what follows was asked for */
    int elsewhere; /* the process that has it open; 0: none, -1: one without a number */
    struct stored_branch *branch; /* NULL: only one */
    size_t n_branches;
};

/* A line of the list. */
struct stored_row {
    size_t stored;
    int branch; /* -1: the conversation, or a place in it */
    int found;  /* the place that is opened, in the answer of the texts; -1: none */
    bool place; /* the row shows that place, not the conversation */
    bool last;  /* … and no other of this conversation follows */
};

struct sessions {
    struct stored *stored; /* latest first */
    size_t n_stored;
    struct stored_row *row; /* what fits the query, best first; then those whose text has it */
    size_t n_rows;
    size_t pick, top;        /* rows */
    bool stale;              /* the store has something newer */
    struct found_list found; /* texts that have the query's words */
    struct conv_disk disk;
    bool disk_known;
    bool naming;        /* the query is a new name */
    int64_t copying;    /* it was said that it is open elsewhere; 0: of none */
    int64_t forgetting; /* asked to forget the states of it; 0: not */
    int page;           /* rows of the last drawing */
    int64_t read_at;    /* when, in seconds since 1970 */
};

/* "main", "main~2: no regex" */
void stored_branch_name(const struct stored_branch *b, char out[64]);
/* The number of the pane that shows a conversation; 0: none. */
size_t stored_pane(const struct app *a, int64_t id);
/* The same of one of its branches, by its number. */
size_t stored_branch_pane(const struct app *a, int64_t id, int number);

/* Enter on a row, or beside: goes on with what is picked. sessions_go.c */
void sessions_go(struct app *a, bool beside);
/* Nothing is looked for any more. */
void sessions_close(struct app *a);

#endif
