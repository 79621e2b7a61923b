#ifndef QUASAR_SESSIONS_STORE_INSIDE_H
#define QUASAR_SESSIONS_STORE_INSIDE_H

#include "sessions/store.h"

/* Inside of the store. */
struct store {
    char *dir, *states, *path;
    char *fixed; /* why it can only be read; NULL: it can be written */
    bool full;   /* because there is no room */
    uint64_t budget;
    struct catalog *c;
    struct salvage salvaged; /* kept NULL: nothing was */
};

/* Why it cannot be opened for writing (rc: what was met) if nothing can be written: then what
 * there is is opened for reading. */
int store_open_fixed(struct store *s, struct buf *notice, int rc, struct err *e);

/* Files in the order they go in, each once. */
struct files {
    char **v;
    uint64_t *bytes;
    size_t n;
    uint64_t total;
};

bool files_has(const struct files *l, const char *name);
/* A catalog_state_fn. */
bool files_add(void *ctx, const struct catalog_state *st);
void files_free(struct files *l);

/* A name is only ever a name. */
bool store_is_file_name(const char *file);
bool store_is_state_name(const char *name);
/* Its path; the caller frees it. */
char *store_file_path(const struct store *s, const char *file);

/* Takes away whatever is there: 0, or an errno (a folder that is not empty stays). */
int store_take_away(const char *path);
/* Takes a file out of the catalogue, then off the disk; *left (may be NULL): why it is
 * still there, or 0. */
int store_forget(struct store *s, const char *file, int *left, struct err *e);
/* What is wrong with a file: 0, QE_FORMAT (it is damaged), QE_NOTFOUND, or why it cannot
 * be told. whole: every byte is read, else what leads to the parts. */
int store_file_fault(const struct store *s, const char *file, bool whole, struct err *e);
/* Forgets file i of a list. */
int store_drop_file(struct store *s, struct files *l, size_t i, struct store_gc *done,
                    struct err *e);
/* Deletes states until there is room for so many bytes more: first what nobody can use. */
int store_make_room(struct store *s, uint64_t bytes, struct store_gc *done, struct err *e);
/* Notes what should have gone and is still there. */
void store_note_left(struct store_gc *done, const char *path, const char *why);

#endif
