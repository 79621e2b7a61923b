#ifndef QUASAR_BASE_RING_H
#define QUASAR_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A bounded queue of fixed-size elements between two threads: exactly one
 * pushes, exactly one pops. Neither ever waits; a full ring refuses, and the
 * producer decides what to merge or drop.
 */
struct ring;

/* Room for at least slots elements (rounded up to a power of two) of size
 * bytes each. Any thread, before and after the other two. */
struct ring *ring_create(size_t slots, size_t size);
void ring_free(struct ring *r);

/* Producer: copies one element in; false when the ring is full. */
bool ring_push(struct ring *r, const void *element);
/* Consumer: copies the oldest element out; false when the ring is empty. */
bool ring_pop(struct ring *r, void *element);

/* Elements inside. Exact for the caller's own side: the producer may see more
 * than are left, the consumer fewer than have come, never the reverse. */
size_t ring_len(const struct ring *r);
size_t ring_cap(const struct ring *r);

#endif
