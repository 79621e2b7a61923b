/* Where the listener listens: an Internet address, a socket in the file system that only its
 * owner may use, or a descriptor that a service manager has opened. */
#include "config.h"
#include "http/bind.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

#define BACKLOG 1024

static int resolve(const struct http_opts *o, struct sockaddr_storage *out, socklen_t *n,
                   struct err *e)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *all = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", o->port);
    const int rc = getaddrinfo(o->host, port, &hints, &all);
    if (rc != 0) {
        return err_set(e, QE_USAGE, "\"%s\" is no address to listen at: %s", o->host,
                       gai_strerror(rc));
    }
    memcpy(out, all->ai_addr, all->ai_addrlen);
    *n = all->ai_addrlen;
    freeaddrinfo(all);
    return 0;
}

/* The port that the system chose, if it was to choose. */
static int port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    memset(&at, 0, sizeof at);
    if (getsockname(fd, (struct sockaddr *)&at, &n) < 0) {
        return 0;
    }
    return at.ss_family == AF_INET6  ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
           : at.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&at)->sin_port)
                                     : 0;
}

static int open_inet(const struct http_opts *o, struct bound *b, struct err *e)
{
    struct sockaddr_storage at;
    socklen_t n = 0;
    const int one = 1;
    memset(&at, 0, sizeof at);
    const int rc = resolve(o, &at, &n, e);
    if (rc < 0) {
        return rc;
    }
    b->fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* an address that waits for the last packets of a program that ended may be taken; one at
     * which somebody listens may not */
    if (b->fd < 0 || setsockopt(b->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(b->fd, (struct sockaddr *)&at, n) < 0 || listen(b->fd, BACKLOG) < 0) {
        return err_sys(e, QE_IO, errno, "cannot listen at %s:%d (--port chooses another)", o->host,
                       o->port);
    }
    snprintf(b->address, sizeof b->address, strchr(o->host, ':') ? "[%.90s]:%d" : "%.90s:%d",
             o->host, port_of(b->fd));
    return 0;
}

/* Whether nobody listens at a socket that is left in the file system. */
static bool is_stale(const struct sockaddr_un *at)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 &&
                         errno == ECONNREFUSED;
    if (fd >= 0) {
        close(fd);
    }
    return refused;
}

static int open_unix(const char *path, struct bound *b, struct err *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    if (!path[0] || strlen(path) >= sizeof at.sun_path) {
        return err_set(e, QE_USAGE, "unix:%.80s: the path of a socket has 1 to %zu bytes", path,
                       sizeof at.sun_path - 1);
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode)) {
            return err_set(e, QE_IO, "%s is there and is no socket; name another path", path);
        }
        if (!is_stale(&at)) {
            return err_set(e, QE_IO, "cannot listen at unix:%s: somebody listens there already",
                           path);
        }
        (void)unlink(path);
    }
    b->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (b->fd < 0) {
        return err_sys(e, QE_IO, errno, "cannot make a socket");
    }
    const mode_t before = umask(0177);
    const int rc = bind(b->fd, (struct sockaddr *)&at, sizeof at);
    const int why = errno;
    umask(before);
    if (rc < 0) {
        return err_sys(e, QE_IO, why, "cannot listen at unix:%s", path);
    }
    b->path = mem_strdup(path);
    if (listen(b->fd, BACKLOG) < 0 || lstat(path, &st) < 0) {
        return err_sys(e, QE_IO, errno, "cannot listen at unix:%s", path);
    }
    b->dev = st.st_dev;
    b->ino = st.st_ino;
    snprintf(b->address, sizeof b->address, "unix:%.120s", path);
    return 0;
}

static int open_given(int fd, struct bound *b, struct err *e)
{
    int listens = 0;
    socklen_t n = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) < 0 || !listens) {
        return err_set(e, QE_USAGE, "descriptor %d, which LISTEN_FDS names, does not listen", fd);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    /* the listener may be closed and opened again; the descriptor is there once */
    b->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (b->fd < 0) {
        return err_sys(e, QE_IO, errno, "cannot listen at descriptor %d", fd);
    }
    const int port = port_of(fd);
    if (port > 0) {
        snprintf(b->address, sizeof b->address, "port %d of the service manager", port);
    } else {
        snprintf(b->address, sizeof b->address, "a socket of the service manager");
    }
    return 0;
}

int bound_open(const struct http_opts *o, struct bound *b, struct err *e)
{
    *b = (struct bound){.fd = -1};
    const int rc = o->given_fd > 0                     ? open_given(o->given_fd, b, e)
                   : strncmp(o->host, "unix:", 5) == 0 ? open_unix(o->host + 5, b, e)
                                                       : open_inet(o, b, e);
    if (rc < 0) {
        bound_close(b);
    }
    return rc;
}

void bound_close(struct bound *b)
{
    struct stat st;
    if (b->path && lstat(b->path, &st) == 0 && st.st_dev == b->dev && st.st_ino == b->ino) {
        (void)unlink(b->path);
    }
    free(b->path);
    b->path = NULL;
    if (b->fd >= 0) {
        close(b->fd);
    }
    b->fd = -1;
}
