#ifndef QUASAR_HTTP_BIND_H
#define QUASAR_HTTP_BIND_H

#include <sys/types.h>

#include "base/err.h"
#include "http/http.h"

/* A socket that listens, and what it is called. */
struct bound {
    int fd;
    char address[128]; /* "127.0.0.1:8080", "[::1]:8080", "unix:/run/x" */
    char *path;        /* of a socket in the file system; owned */
    dev_t dev;         /* … as it was made */
    ino_t ino;
};

/* Opens it as the options say: a descriptor that was handed over, "unix:PATH", or host and port.
 * QE_IO: it cannot be (somebody else listens there; the message says what to do). QE_USAGE: it is
 * no address. */
int bound_open(const struct http_opts *o, struct bound *b, struct err *e);
/* Closes it unless fd is -1, and removes the file if it is still the one that was made. */
void bound_close(struct bound *b);

#endif
