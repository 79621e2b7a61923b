#ifndef QUASAR_CONV_DISK_H
#define QUASAR_CONV_DISK_H

#include <stdint.h>

#include "sched/sched.h"
#include "sched/tier.h"

/*
 * The scheduler's tier on a disk: one thread reads, one writes, in a folder that
 * processes share (sessions/prefixdir.h). Trouble with the disk costs reuse, never an
 * answer: it is told once, and then nothing more is written.
 */
struct disk;

struct disk_opts {
    const char *dir;
    uint64_t limit; /* bytes of all files */
    int least;      /* states of fewer tokens are not written */
    int gain;       /* fewer tokens more than memory has are not fetched; 0: 256 */
};

struct disk *disk_open(const struct disk_opts *o);
const struct tier *disk_tier(const struct disk *d);
/* Whom to nudge: the scheduler once it is open, NULL before it is closed. */
void disk_attach(struct disk *d, struct sched *s);
/* After sched_close: waits until what came is written. NULL is allowed. */
void disk_close(struct disk *d);

#endif
