#ifndef QUASAR_SESSIONS_LOCK_H
#define QUASAR_SESSIONS_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Who may write a conversation: one holder at a time, among processes and within
 * one. The lock is the kernel's and ends with its process, however that ends; the
 * file only says who it is. Any thread.
 */
struct session_lock;

/* dir: the folder of sessions. QE_BUSY: somebody else holds it (the message names the
 * process and what can be done). */
int lock_take(const char *dir, int64_t conv, struct session_lock **out, struct err *e);
void lock_release(struct session_lock *l); /* NULL is allowed */

/* The locks that the parts of one process share: each may take what another one has, and a
 * conversation is let go when all that took it have released it. */
struct lock_set;
struct lock_set *lock_set_create(const char *dir);
/* After everything that was taken was released. */
void lock_set_free(struct lock_set *s); /* NULL is allowed */
/* As lock_take; *first: nobody else of this process has it. */
int lock_set_take(struct lock_set *s, int64_t conv, struct session_lock **out, bool *first,
                  struct err *e);

/* The process that holds it; 0: nobody does, -1: one that did not say which. */
pid_t lock_holder(const char *dir, int64_t conv);

/* Removes the file of a lock that nobody holds. */
void lock_forget(const char *dir, int64_t conv);

#endif
