/* The screen on the scripted conversation, for tests/screen.sh. */
#include "config.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "conv/conv.h"
#include "tui/tui.h"
#include "view/requests.h"

/* Requests of other programs as a listener would have them, FAKE_REQUESTS of them. */
static struct requests *listener;

static void cancel(void *ctx, uint64_t id)
{
    struct view_request q;
    (void)ctx;
    if (requests_get(listener, id, &q)) {
        q.state = RQ_FAILED;
        snprintf(q.result, sizeof q.result, "cancelled on the screen");
        requests_update(listener, &q, clock_now(clock_real()));
    }
}

static void pause_all(void *ctx, bool on)
{
    struct view_listener l;
    (void)ctx;
    requests_listener(listener, &l);
    l.paused = on;
    requests_set_listener(listener, &l);
}

static bool body(void *ctx, uint64_t id, struct buf *out)
{
    (void)ctx;
    buf_printf(out, "user: the text of request %d \x1b]0;owned\x07\n", (int)id);
    return true;
}

static void make_requests(int n)
{
    const struct requests_control control = {NULL, cancel, pause_all, body};
    const struct view_listener l = {.on = true, .token = true, .address = "127.0.0.1:8080"};
    listener = requests_create(&control);
    requests_set_listener(listener, &l);
    for (int i = 0; i < n; i++) {
        struct view_request q = view_request_unknown();
        snprintf(q.client, sizeof q.client, i % 2 ? "curl" : "code\x1b[2J");
        snprintf(q.endpoint, sizeof q.endpoint, "/v1/messages");
        q.state = i % 2 ? RQ_QUEUED : RQ_DECODE;
        q.input = 1000 * (i + 1);
        q.messages[VR_USER] = i + 1;
        (void)requests_begin(listener, &q, clock_now(clock_real()));
    }
}

int main(int argc, char **argv)
{
    struct tui_bind binds[16];
    struct tui_opts o = {
        .history = getenv("FAKE_HISTORY"), .nvml = getenv("FAKE_NVML"), .binds = binds};
    struct err e = ERR_INIT;
    bool plain = false;
    setlocale(LC_ALL, "");
    for (int i = 1; i < argc; i++) {
        plain = plain || strcmp(argv[i], "--plain") == 0;
        o.ascii = o.ascii || strcmp(argv[i], "--ascii") == 0;
        o.vi = o.vi || strcmp(argv[i], "--vi") == 0;
        if (strcmp(argv[i], "--bind") == 0 && i + 1 < argc && o.n_binds < 16) {
            char *eq = strchr(argv[++i], '=');
            if (eq) {
                *eq = 0;
                binds[o.n_binds++] = (struct tui_bind){argv[i], eq + 1, "settings:7"};
            }
        }
        if (strcmp(argv[i], "--theme") == 0 && i + 1 < argc) {
            o.theme = argv[++i];
        }
        if (strcmp(argv[i], "--resume") == 0 && i + 1 < argc) {
            o.resume = atoi(argv[++i]);
            o.must_resume = o.resume == 9;
            o.notice = o.resume == 8 ? "a line that was recovered\n" : NULL;
        }
        if (strcmp(argv[i], "--reset-terminal") == 0) {
            tui_reset_terminal();
            return 0;
        }
    }
    if (getenv("FAKE_REQUESTS")) {
        make_requests(atoi(getenv("FAKE_REQUESTS")));
        o.requests = listener;
    }
    struct conv_opts co = conv_opts_default();
    struct conv *c = NULL;
    int sig = 0;
    int rc = conv_open(&co, &c, &e);
    if (rc == 0) {
        rc = plain ? tui_plain(c, &o, &e) : tui_chat(c, &o, &sig, &e);
        struct err lost = ERR_INIT;
        if (conv_end(c, &lost) < 0 && rc == 0) {
            rc = err_set(&e, lost.code, "%s", lost.msg);
        }
    }
    requests_free(listener);
    if (sig) {
        tui_die(sig);
    }
    if (rc < 0) {
        fprintf(stderr, "quasar: %s\n", e.msg);
    }
    return err_exit_status(rc);
}
