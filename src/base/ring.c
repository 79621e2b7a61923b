/* Single producer, single consumer. head and tail only grow; their difference
 * is the fill, so a full and an empty ring look different. Each side writes its
 * own index with release order after touching the element and reads the
 * other's with acquire order before it. */
#include "config.h"
#include "base/ring.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define LINE 64 /* keep the two indices in different cache lines */

struct ring {
    _Alignas(LINE) atomic_size_t head; /* next to pop; written by the consumer */
    _Alignas(LINE) atomic_size_t tail; /* next to push; written by the producer */
    _Alignas(LINE) size_t cap;         /* power of two; constant */
    size_t size;                       /* constant */
    unsigned char *data;
};

struct ring *ring_create(size_t slots, size_t size)
{
    size_t cap = 1;
    while (cap < slots) {
        cap *= 2;
    }
    struct ring *r = mem_aligned(sizeof *r);
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
    r->cap = cap;
    r->size = size;
    r->data = mem_array(cap, size);
    return r;
}

void ring_free(struct ring *r)
{
    if (r) {
        free(r->data);
        free(r);
    }
}

bool ring_push(struct ring *r, const void *element)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == r->cap) {
        return false;
    }
    memcpy(r->data + (tail & (r->cap - 1)) * r->size, element, r->size);
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return true;
}

bool ring_pop(struct ring *r, void *element)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    if (atomic_load_explicit(&r->tail, memory_order_acquire) == head) {
        return false;
    }
    memcpy(element, r->data + (head & (r->cap - 1)) * r->size, r->size);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    return true;
}

size_t ring_len(const struct ring *r)
{
    /* head first: it never passes tail, so the difference cannot wrap. */
    size_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    size_t n = tail - head;
    return n > r->cap ? r->cap : n;
}

size_t ring_cap(const struct ring *r)
{
    return r->cap;
}
