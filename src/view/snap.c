/* Copies under a sequence counter. The words are atomics with relaxed order, so
 * that the race which the counter detects is one the language allows. */
#include "config.h"
#include "view/snap.h"

#include <assert.h>
#include <string.h>

void snap_put(struct snap *s, const void *value, size_t n)
{
    assert(n <= SNAP_MAX);
    unsigned seq = atomic_load_explicit(&s->seq, memory_order_relaxed);
    atomic_store_explicit(&s->seq, seq + 1, memory_order_relaxed);
    /* What follows must not be seen before the odd count. */
    atomic_thread_fence(memory_order_release);
    for (size_t off = 0; off < n; off += 8) {
        uint64_t w = 0;
        memcpy(&w, (const char *)value + off, n - off < 8 ? n - off : 8);
        atomic_store_explicit(&s->words[off / 8], w, memory_order_relaxed);
    }
    atomic_store_explicit(&s->seq, seq + 2, memory_order_release);
}

void snap_get(const struct snap *s, void *value, size_t n)
{
    assert(n <= SNAP_MAX);
    for (;;) {
        unsigned before = atomic_load_explicit(&s->seq, memory_order_acquire);
        if (before & 1) {
            continue;
        }
        for (size_t off = 0; off < n; off += 8) {
            uint64_t w = atomic_load_explicit(&s->words[off / 8], memory_order_relaxed);
            memcpy((char *)value + off, &w, n - off < 8 ? n - off : 8);
        }
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&s->seq, memory_order_relaxed) == before) {
            return;
        }
    }
}
