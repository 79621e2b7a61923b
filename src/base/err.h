#ifndef QUASAR_BASE_ERR_H
#define QUASAR_BASE_ERR_H

#include <stdarg.h>

/*
 * Status codes and the one-line message that goes with a failure.  A function
 * that can fail returns 0 or one of these, and writes the detail into the
 * caller's struct err, which may be NULL.
 */
enum qe {
    QE_OK = 0,
    QE_USAGE = -1,       /* the caller's arguments are wrong: exit status 2 */
    QE_IO = -2,          /* the system refused a read, write, map, rename */
    QE_FORMAT = -3,      /* foreign bytes are not what they claim to be */
    QE_UNSUPPORTED = -4, /* well formed, but not something we run */
    QE_NOMEM = -5,       /* memory or a stated limit is exhausted */
    QE_CANCELLED = -6,
    QE_NOTFOUND = -7,
    QE_BUSY = -8,     /* somebody else holds it, or a queue is full */
    QE_DEVICE = -9,   /* a GPU or its driver failed */
    QE_INTERNAL = -10 /* an invariant of ours does not hold */
};

#define ERR_MSG_MAX 512

/* Caller owned; zero initialised means "no error yet". */
struct err {
    int code;
    char msg[ERR_MSG_MAX];
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Formats the message into e (ignored when NULL) and returns code, so that
 * `return err_set(e, QE_IO, "…")` is the whole failure path.  The text names
 * the thing, the reason and, where there is one, the remedy; control characters
 * in it are replaced, so that it is one line whatever was formatted in. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, and appends ": " and the text of the given errno value. */
int err_sys(struct err *e, int code, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " before the message already there; returns e's code. */
int err_wrap(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Process exit status of a status code: 0, 2 for usage, 130 for cancelled, else 1. */
int err_exit_status(int code);

#endif
