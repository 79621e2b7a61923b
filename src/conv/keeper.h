#ifndef QUASAR_CONV_KEEPER_H
#define QUASAR_CONV_KEEPER_H

#include "sched/sched.h"
#include "sessions/store.h"

/*
 * Writes states to disk and reads them, on a thread of its own with its own handle
 * of the store, so that neither the conversation nor the engine waits for a disk.
 */
struct keeper;
struct chat;

enum keep_what { KEEP_SAVE, KEEP_LOAD, KEEP_BURY };

struct keep_task {
    struct chat *chat;
    enum keep_what what;
    int64_t conv, turn;
    uint8_t compat[STATE_COMPAT];
    char label[STATE_LABEL_SIZE];
    struct transfer *copy;   /* save: what is written; owned */
    struct state_file *file; /* load: what was found, once it is done. Bury: found to be damaged.
                                Owned */

    /* when it is done */
    struct err err; /* code 0: done. A load with QE_NOTFOUND and no message: none was saved */
    uint64_t size;  /* load: of the file's KEEP_PART */
    struct keep_task *next;
};

/* The one part of a live state's file: what the engine exported. */
#define KEEP_PART 1

/* wake_fd: eventfd written when a task is done. Starts the thread. */
struct keeper *keeper_create(const char *dir, uint64_t budget, int wake_fd);
/* Finishes what was asked for, then ends. */
void keeper_close(struct keeper *k);

/* Another budget of saved states from the next task on. Any thread. */
void keeper_set_budget(struct keeper *k, uint64_t budget);
void keeper_put(struct keeper *k, struct keep_task *t); /* t is taken */
struct keep_task *keeper_take(struct keeper *k);        /* a finished one, or NULL */
void keep_task_free(struct keep_task *t);

#endif
