#ifndef QUASAR_SESSIONS_STATE_H
#define QUASAR_SESSIONS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Files that hold what an engine remembers after some tokens: which engine it
 * belongs to, the tokens themselves, and parts whose meaning is not known here.
 * Everything is checked before it is given out: the header, the table and the
 * tokens when the file is opened, each part in pieces of STATE_CHUNK bytes as it
 * is read. A file appears whole or not at all (0600, synced, renamed, folder
 * synced). Any thread, one at a time per object but for state_read_at. docs/sessions.md has the
 * layout.
 */
#define STATE_MAJOR      1 /* another one is not read */
#define STATE_MINOR      0 /* later ones are */
#define STATE_CHUNK      (1U << 20)
#define STATE_IDS_MAX    (1U << 21)
#define STATE_PARTS_MAX  64
#define STATE_COMPAT     32
#define STATE_LABEL_SIZE 120

enum state_kind {
    STATE_LIVE = 1,  /* of one conversation, at any position */
    STATE_PREFIX = 2 /* written by prefill, on the 64-token grid */
};

struct state_meta {
    enum state_kind kind;
    uint8_t compat[STATE_COMPAT]; /* only an engine with the same may use it */
    const char *label;            /* that engine in words, for messages; cut at 119 bytes */
    const int32_t *ids;           /* the tokens it stands after; none is negative */
    size_t n_ids;                 /* at most STATE_IDS_MAX */
    int64_t created;              /* seconds since 1970; 0 when writing: now */
};

/* One part to write: size bytes at data, or, with data NULL, as give brings them
 * (it fills n bytes; the pieces come in order). */
struct state_part {
    uint32_t tag; /* not 0, once in a file */
    uint64_t size;
    const void *data;
    int (*give)(void *ctx, void *dst, size_t n, struct err *e);
    void *ctx;
};

/* Writes path, in the place of what was there. On failure (also of give) nothing
 * has changed there. QE_IO: the disk is full, the folder cannot be written, … */
int state_write(const char *path, const struct state_meta *m, const struct state_part *parts,
                size_t n_parts, struct err *e);

struct state_file;

/* Opens and checks all but the parts. QE_NOTFOUND: no such file. QE_FORMAT: it is
 * damaged, or not a saved state. QE_UNSUPPORTED: of another format version. QE_IO:
 * it cannot be read. */
int state_open(const char *path, struct state_file **out, struct err *e);
void state_close(struct state_file *f);

/* Borrowed until state_close. */
const struct state_meta *state_meta(const struct state_file *f);
uint64_t state_bytes(const struct state_file *f); /* of the whole file */
const char *state_path(const struct state_file *f);

/* QE_UNSUPPORTED, with both in words, unless it was written for the engine that has
 * this hash. */
int state_check(const struct state_file *f, const uint8_t compat[STATE_COMPAT], const char *label,
                struct err *e);

/* Whether there is a part of that tag; *size (may be NULL) gets its bytes. */
bool state_has(const struct state_file *f, uint32_t tag, uint64_t *size);

/* The whole part into dst, which has exactly its n bytes. On failure dst is garbage. */
int state_read(struct state_file *f, uint32_t tag, void *dst, uint64_t n, struct err *e);

/* n bytes of the part from byte `at` on: whole chunks, the last of which may be the part's
 * shorter last one. Any thread, several at once. On failure dst is garbage. */
int state_read_at(const struct state_file *f, uint32_t tag, uint64_t at, void *dst, uint64_t n,
                  struct err *e);

/* The part piece by piece, each already checked; take may end it with a status of
 * its own. */
int state_stream(struct state_file *f, uint32_t tag,
                 int (*take)(void *ctx, const void *p, size_t n, struct err *e), void *ctx,
                 struct err *e);

/* Reads every part and checks it. */
int state_verify(struct state_file *f, struct err *e);

#endif
