#ifndef QUASAR_VIEW_SNAP_H
#define QUASAR_VIEW_SNAP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The latest value of a plain struct, published by one thread and read by any.
 * The writer never waits; a reader copies again in the rare case that a write
 * came in between. Zero initialised holds zeroes.
 */
#define SNAP_MAX 768 /* bytes */

struct snap {
    atomic_uint seq; /* odd while a write is under way */
    _Atomic uint64_t words[SNAP_MAX / 8];
};

/* Publishes n bytes (n <= SNAP_MAX). One thread only. */
void snap_put(struct snap *s, const void *value, size_t n);
/* Copies the latest n bytes. Any thread. */
void snap_get(const struct snap *s, void *value, size_t n);

#endif
