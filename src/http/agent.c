/* One line for whoever connects. It says nothing of how busy the server is: a share that follows
 * the load would move places on the balancer's ring of hashes, and sessions with them, away from
 * where their states lie; how much one server may take beyond the others is the balancer's to
 * bound. */
#include "config.h"
#include "http/agent.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/server.h"

struct agent {
    struct http *http;
    struct bound bound;
    pthread_t thread;
    bool started;
    int quit_fd;
};

/* Some room stays below the limit, so that a server which a balancer has filled to the brim is
 * still ready, and whoever comes past the balancer is answered too. */
static int places(int queue)
{
    const int spare = 1 + queue / 16;
    return queue > spare ? queue - spare : 1;
}

static void say(const struct agent *a, char *line, size_t size)
{
    struct http *h = a->http;
    struct view_model m;
    conv_view_model(h->conv, &m);
    if (atomic_load(&h->draining) || atomic_load(&h->paused)) {
        snprintf(line, size, "drain\n");
    } else if (!m.ready) {
        snprintf(line, size, "ready stopped#the model is being loaded\n");
    } else {
        snprintf(line, size, "ready up 100%% maxconn:%d\n", places(h->opts.queue));
    }
}

/* The line fits a new socket's buffer: nothing here waits for the other side. */
static void serve_one(const struct agent *a)
{
    char line[80];
    const int fd = accept4(a->bound.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    say(a, line, sizeof line);
    const ssize_t rc = send(fd, line, strlen(line), MSG_NOSIGNAL);
    (void)rc;
    (void)shutdown(fd, SHUT_WR);
    close(fd);
}

static void *agent_thread(void *arg)
{
    const struct agent *a = arg;
    struct pollfd p[2] = {{a->bound.fd, POLLIN, 0}, {a->quit_fd, POLLIN, 0}};
    while (p[1].revents == 0) {
        if (poll(p, 2, -1) > 0 && p[0].revents) {
            serve_one(a);
        }
    }
    return NULL;
}

int agent_open(struct http *h, const char *host, int port, struct agent **out, struct err *e)
{
    struct agent *a = mem_zalloc(sizeof *a);
    const struct http_opts at = {.host = host, .port = port};
    sigset_t all, old;
    a->http = h;
    a->bound.fd = -1;
    a->quit_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = a->quit_fd < 0 ? err_sys(e, QE_IO, errno, "cannot make an event descriptor")
                            : bound_open(&at, &a->bound, e);
    if (rc < 0) {
        agent_close(a);
        return rc;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int why = pthread_create(&a->thread, NULL, agent_thread, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (why != 0) {
        agent_close(a);
        return err_sys(e, QE_NOMEM, why, "cannot start the agent's thread");
    }
    a->started = true;
    *out = a;
    return 0;
}

const char *agent_address(const struct agent *a)
{
    return a->bound.address;
}

void agent_close(struct agent *a)
{
    if (!a) {
        return;
    }
    if (a->started) {
        const uint64_t one = 1;
        const ssize_t rc = write(a->quit_fd, &one, sizeof one);
        (void)rc;
        pthread_join(a->thread, NULL);
    }
    if (a->quit_fd >= 0) {
        close(a->quit_fd);
    }
    bound_close(&a->bound);
    free(a);
}
