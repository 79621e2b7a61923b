#ifndef QUASAR_CMD_BANDWIDTH_H
#define QUASAR_CMD_BANDWIDTH_H

#include <stddef.h>

/* What the machine's memory gives, in GB (1e9 bytes) per second, best of several
 * passes over a block of the given size with that many threads (0: all cores). A
 * block that fits a cache measures that cache. copy counts bytes read and
 * written. */
struct bandwidth {
    double read, copy;
};

struct bandwidth bandwidth_measure(size_t bytes, int threads);

#endif
