#ifndef QUASAR_SESSIONS_STORE_H
#define QUASAR_SESSIONS_STORE_H

#include "sessions/catalog.h"
#include "sessions/salvage.h"
#include "sessions/state.h"

/*
 * The folder of sessions: the catalogue, and beside it states/ with the files of
 * saved states and locks/. Text is the catalogue's and never deleted here; states may
 * always be deleted, and are when they take more than the budget. Several processes
 * may use it; one thread per handle.
 */
struct store;

#define STORE_AUTO UINT64_MAX /* a tenth of the file system, at most 200 GB */

/* Opens the folder (0700, made if need be). A damaged catalogue is salvaged: notice, to
 * which a line is appended, says so, and what became of saved states that it does not name
 * any more. One that cannot be written is opened for reading, and one that cannot be made is
 * empty; notice says why. Errors as catalog_open's. */
int store_open(const char *dir, uint64_t budget, struct store **out, struct buf *notice,
               struct err *e);
void store_close(struct store *s);
/* Borrowed until store_close, store_repair or store_gc. */
struct catalog *store_catalog(struct store *s);
const char *store_dir(const struct store *s);
/* Why it can only be read; NULL: it can be written. */
const char *store_fixed(const struct store *s);
/* What was salvaged when it was opened or repaired; NULL: there was nothing to. */
const struct salvage *store_salvaged(const struct store *s);
uint64_t store_budget(const struct store *s); /* in bytes */
/* Another budget, as store_open's, for what is saved from now on. */
void store_set_budget(struct store *s, uint64_t budget);
/* Deletes states until what is left is within the budget; *bytes: how much that freed. */
int store_trim(struct store *s, uint64_t *bytes, struct err *e);

/* After QE_FORMAT from the catalogue: salvages and opens it again. On failure the store
 * has no catalogue any more and may only be closed. */
int store_repair(struct store *s, struct buf *notice, struct err *e);

/* Ends what dead writers left unfinished; says in notice what was recovered. */
int store_recover(struct store *s, struct buf *notice, struct err *e);

/* Saves a state that stands after a turn; older ones are deleted for it as far as the
 * budget says. QE_NOMEM: it alone is larger than the budget, or than what is free on the
 * disk; QE_IO as state_write. */
int store_save(struct store *s, int64_t turn, const struct state_meta *m,
               const struct state_part *parts, size_t n_parts, struct err *e);

/* Opens the nearest state of a turn (0: the leaf) or those before it that this engine can
 * use. QE_NOTFOUND: there is none; *e says what was wrong with the nearest, and has an
 * empty message when none was ever saved. Damaged files are deleted. */
int store_load(struct store *s, int64_t conv, int64_t turn, const uint8_t compat[STATE_COMPAT],
               const char *label, struct state_file **out, struct err *e);
/* A file that store_load gave turned out to be damaged: it is deleted. */
void store_damaged(struct store *s, const struct state_file *f);

/* Removes a conversation that the caller has the lock of, with the states that no other
 * one has. */
int store_remove(struct store *s, int64_t conv, struct err *e);
/* Deletes a conversation's saved states, but for those that another one has too; what was said
 * stays. *bytes: how much that freed. */
int store_forget_states(struct store *s, int64_t conv, uint64_t *bytes, struct err *e);

struct store_gc {
    int states;       /* deleted for the budget, or because no turn has them any more */
    int damaged;      /* deleted because they fail their checks */
    int lost;         /* turns whose file was gone */
    int leftovers;    /* temporary files, locks */
    uint64_t bytes;   /* of what was deleted */
    int left;         /* what should have gone, or could not be read, and is still there */
    struct err first; /* of them */
};
/* Brings folder, catalogue and budget into line; reads every state to the end. On a full disk
 * it deletes first, no more than it otherwise would, until the catalogue can be written. */
int store_gc(struct store *s, struct store_gc *out, struct err *e);

/* Reads every state file whole; fn is told of each, with why it cannot be used (NULL: it
 * is sound). */
int store_verify_states(struct store *s,
                        void (*fn)(void *ctx, const struct catalog_state *st, const char *fault),
                        void *ctx, struct err *e);

#endif
