#ifndef QUASAR_SESSIONS_LOCK_H
#define QUASAR_SESSIONS_LOCK_H

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

/* The process that holds it; 0: nobody does, -1: one that did not say which. */
pid_t lock_holder(const char *dir, int64_t conv);

/* Removes the file of a lock that nobody holds. */
void lock_forget(const char *dir, int64_t conv);

#endif
