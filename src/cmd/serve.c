/* quasar serve: the engine without a screen, for HTTP clients. */
#include "config.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/convopts.h"
#include "cmd/interrupt.h"
#include "cmd/listener.h"

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

/* Until a signal, or until the model turns out to be none. *loading: the signal came before the
 * model was there. */
static int watch(struct conv *c, struct http *h, bool *loading, struct err *e)
{
    struct conv_event ev;
    memset(&ev, 0, sizeof ev);
    bool draining = false;
    int rc = 0;
    while (rc == 0) {
        struct pollfd p[2] = {{conv_fd(c), POLLIN, 0}, {http_drained_fd(h), POLLIN, 0}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) {
            return err_sys(e, QE_IO, errno, "cannot wait for requests");
        }
        while (conv_next(c, &ev)) {
            if (ev.kind == CE_READY) {
                struct view_model m;
                conv_view_model(c, &m);
                fprintf(stderr, "%s is ready: %s, %d tokens of context\n", m.name, m.device, m.ctx);
                if (m.fallback[0]) {
                    fprintf(stderr, "%s\n", m.fallback);
                }
            } else if (ev.kind == CE_NOTICE) {
                fprintf(stderr, "%s\n", ev.text.data ? ev.text.data : "");
            } else if (ev.kind == CE_FAILED) {
                rc = err_set(e, ev.code < 0 ? ev.code : QE_IO, "%s",
                             ev.text.data ? ev.text.data : "the model cannot be used");
            }
            conv_event_fini(&ev);
            memset(&ev, 0, sizeof ev);
        }
        if (interrupt_came() && !draining) {
            draining = true;
            *loading = !is_ready(c);
            http_drain(h);
            if (http_live(h) > 0) {
                fprintf(stderr,
                        "no more requests are taken; %d still run, a second signal cuts "
                        "them\n",
                        http_live(h));
            }
        }
        if (draining && http_live(h) == 0) {
            return 0;
        }
    }
    return rc;
}

static int serve(const struct conf *cf, struct conv *c, struct err *e)
{
    struct listener *l = NULL;
    bool loading = false;
    int rc = listener_create(cf, c, true, &l, e);
    rc = rc < 0 ? rc : listener_open(l, conf_str(cf, "listen"), e);
    if (rc == 0) {
        fprintf(stderr, "listening at %s%s\n", listener_scheme(l), http_address(listener_http(l)));
        if (listener_is_public(l)) {
            fprintf(stderr, "warning: whoever reaches this address may use the model; --api-key "
                            "asks for a key\n");
        }
        rc = watch(c, listener_http(l), &loading, e);
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
    interrupt_catch(true);
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
