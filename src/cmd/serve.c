/* quasar serve: the engine without a screen, for HTTP clients. */
#include "config.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/convopts.h"
#include "cmd/interrupt.h"
#include "cmd/listener.h"
#include "cmd/notify.h"

#define LAST_WORDS_NS 5000000000LL /* for answers that were cut to reach their clients */

/* A connection takes a descriptor: as many as the system lets us have. */
static void raise_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
}

static bool is_ready(const struct conv *c)
{
    struct view_model m;
    conv_view_model(c, &m);
    return m.ready;
}

/* How the end is gone about; times in nanoseconds of the real clock. */
struct drain {
    int64_t delay, grace; /* since the first signal: it listens at least, answers go on at most */
    int64_t begun;        /* 0: no signal came */
    int64_t cut;          /* when answers were cut; 0: they are not */
};

static int64_t now_ns(void)
{
    return clock_now(clock_real());
}

static void tell(struct conv *c, const struct conv_event *ev)
{
    struct view_model m;
    char line[200];
    switch (ev->kind) {
    case CE_READY:
        conv_view_model(c, &m);
        fprintf(stderr, "%s is ready: %s, %d tokens of context\n", m.name, m.device, m.ctx);
        if (m.fallback[0]) {
            fprintf(stderr, "%s\n", m.fallback);
        }
        snprintf(line, sizeof line, "READY=1\nSTATUS=%s on %s", m.name, m.device);
        notify_send(line);
        break;
    case CE_LOADING:
        snprintf(line, sizeof line, "STATUS=loading the model, %.0f %%", 100 * ev->progress);
        notify_send(line);
        break;
    case CE_NOTICE:
        fprintf(stderr, "%s\n", ev->text.data ? ev->text.data : "");
        break;
    default: /* of chats, which are the listener's */
        break;
    }
}

/* Signals that came are acted upon: the first begins the end, the second hastens it. */
static void heed(struct drain *d, struct http *h)
{
    const int64_t now = now_ns();
    if (interrupt_came() && d->begun == 0) {
        d->begun = now;
        http_drain(h);
        notify_send("STOPPING=1\nSTATUS=no more requests are taken");
        if (http_live(h) > 0) {
            fprintf(stderr, "no more requests are taken; %d still run, a second signal cuts them\n",
                    http_live(h));
        }
    }
    if (d->begun > 0 && d->cut == 0 && (interrupt_count() > 1 || now - d->begun >= d->grace)) {
        d->cut = now;
        interrupt_last();
        if (http_live(h) > 0) {
            fprintf(stderr, "%d answers are cut\n", http_live(h));
        }
        http_cut(h);
    }
}

/* Nanoseconds until something is due by itself; negative: nothing is, 0: it is over. */
static int64_t until(const struct drain *d, struct http *h)
{
    const int64_t now = now_ns();
    if (d->begun == 0) {
        return -1;
    }
    const int64_t listens = d->cut > 0 ? 0 : d->begun + d->delay - now;
    const int64_t runs = d->cut > 0 ? d->cut + LAST_WORDS_NS - now : d->begun + d->grace - now;
    if (http_live(h) == 0) {
        return listens > 0 ? listens : 0;
    }
    return runs <= 0 ? 0 : listens > 0 && listens < runs ? listens : runs;
}

/* Until a signal has had its way, or until the model turns out to be none. *loading: the signal
 * came before the model was there. */
static int watch(struct conv *c, struct http *h, struct drain *d, bool *loading, struct err *e)
{
    struct conv_event ev;
    sigset_t mine, before;
    int rc = 0;
    memset(&ev, 0, sizeof ev);
    /* only while it waits: one that came before the wait must not be slept over */
    sigemptyset(&mine);
    sigaddset(&mine, SIGINT);
    sigaddset(&mine, SIGTERM);
    sigaddset(&mine, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &mine, &before);
    for (;;) {
        while (conv_next(c, &ev)) {
            if (ev.kind == CE_FAILED) {
                rc = err_set(e, ev.code < 0 ? ev.code : QE_IO, "%s",
                             ev.text.data ? ev.text.data : "the model cannot be used");
            }
            tell(c, &ev);
            conv_event_fini(&ev);
            memset(&ev, 0, sizeof ev);
        }
        heed(d, h);
        *loading = d->begun > 0 && !is_ready(c);
        const int64_t ns = until(d, h);
        if (rc < 0 || *loading || ns == 0) {
            break;
        }
        /* what has become of answers matters once nothing else keeps it */
        const bool ends = d->begun > 0 && (d->cut > 0 || now_ns() - d->begun >= d->delay);
        struct pollfd p[2] = {{conv_fd(c), POLLIN, 0}, {http_drained_fd(h), POLLIN, 0}};
        const struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        if (ppoll(p, ends ? 2 : 1, ns < 0 ? NULL : &t, &before) < 0 && errno != EINTR) {
            rc = err_sys(e, QE_IO, errno, "cannot wait for requests");
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int serve(const struct conf *cf, struct conv *c, struct err *e)
{
    struct listener *l = NULL;
    struct drain d = {.delay = conf_int(cf, "drain-delay", 0) * 1000000000,
                      .grace = conf_int(cf, "grace", 600) * 1000000000};
    bool loading = false;
    int rc = listener_create(cf, c, true, &l, e);
    rc = rc < 0 ? rc : listener_open(l, conf_str(cf, "listen"), e);
    rc = rc < 0 ? rc : listener_agent(l, conf_str(cf, "agent"), e);
    if (rc == 0) {
        fprintf(stderr, "listening at %s%s\n", listener_scheme(l), http_address(listener_http(l)));
        if (listener_is_public(l)) {
            fprintf(stderr, "warning: whoever reaches this address may use the model; --api-key "
                            "asks for a key\n");
        }
        rc = watch(c, listener_http(l), &d, &loading, e);
    }
    listener_free(l);
    if (rc == 0 && loading) {
        /* Nothing was asked and nothing is to be stored; the model would be loaded to its end only
         * to be freed. */
        fflush(NULL);
        _exit(0);
    }
    return rc;
}

int cmd_serve(const struct conf *cf, int nargs, char **args, struct err *e)
{
    struct conv_opts co;
    struct convopts s = {0};
    struct conv *c = NULL;
    if (nargs > 0) {
        return err_set(e, QE_USAGE, "serve takes no words (\"%s\"); -m MODEL names the model",
                       args[0]);
    }
    interrupt_catch(false);
    raise_limit();
    int rc = convopts_from(cf, &co, &s, e);
    if (rc == 0) {
        co.slots = (int)conf_int(cf, "slots", 4);
        co.queue = (int)conf_int(cf, "max-queue", 64);
        rc = conv_open(&co, &c, e);
    }
    if (rc == 0) {
        rc = serve(cf, c, e);
    }
    struct err lost = ERR_INIT;
    if (conv_end(c, &lost) < 0 && rc == 0) {
        rc = err_set(e, lost.code, "%s", lost.msg);
    }
    convopts_free(&s);
    return rc;
}
