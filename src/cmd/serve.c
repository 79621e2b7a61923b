/* quasar serve: the engine without a screen, for HTTP clients. */
#include "config.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "cmd/convopts.h"
#include "cmd/interrupt.h"
#include "http/http.h"

#define KEY_FILE_MAX 65536

/* The keys of --api-key and of the lines of --api-key-file. */
struct keys {
    struct buf text; /* of the file */
    const char **v;
    size_t n;
};

static void keys_free(struct keys *k)
{
    buf_free(&k->text);
    free(k->v);
}

static int take_keys(const struct conf *cf, struct keys *k, struct err *e)
{
    const char *path = conf_str(cf, "api-key-file");
    size_t lines = 0;
    if (path) {
        const int rc = io_read_file(path, KEY_FILE_MAX, &k->text, e);
        if (rc < 0) {
            return rc;
        }
        for (size_t i = 0; i < k->text.len; i++) {
            lines += k->text.data[i] == '\n';
        }
    }
    k->v = mem_array(conf_list_len(cf, "api-key") + lines + 2, sizeof *k->v);
    for (size_t i = 0; i < conf_list_len(cf, "api-key"); i++) {
        k->v[k->n++] = conf_list_at(cf, "api-key", i);
    }
    char *save = NULL;
    for (char *line = k->text.data ? strtok_r(k->text.data, "\r\n", &save) : NULL; line;
         line = strtok_r(NULL, "\r\n", &save)) {
        if (line[0] && line[0] != '#') {
            k->v[k->n++] = line;
        }
    }
    for (size_t i = 0; i < k->n; i++) {
        if (!k->v[i][0]) {
            return err_set(e, QE_USAGE, "an API key is empty");
        }
    }
    if (path && k->n == conf_list_len(cf, "api-key")) {
        return err_set(e, QE_USAGE, "%s has no API key; a line of it is one", path);
    }
    return 0;
}

static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "%s\n", line);
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* Until a signal, or until the model turns out to be none. */
static int watch(struct conv *c, struct http *h, struct err *e)
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

static int serve(const struct conf *cf, struct conv *c, const struct keys *keys, struct err *e)
{
    const struct http_opts o = {
        .host = conf_str(cf, "host"),
        .port = (int)conf_int(cf, "port", 8080),
        .keys = keys->v,
        .n_keys = keys->n,
        .queue = (int)conf_int(cf, "max-queue", 0),
        .version = PACKAGE_VERSION,
        .log = print_line,
    };
    struct http *h = NULL;
    int rc = http_open(c, &o, &h, e);
    if (rc < 0) {
        return rc;
    }
    fprintf(stderr, "listening at http://%s\n", http_address(h));
    if (!is_loopback(o.host) && o.n_keys == 0) {
        fprintf(stderr, "warning: whoever reaches this address may use the model; --api-key "
                        "asks for a key\n");
    }
    rc = watch(c, h, e);
    http_close(h);
    return rc;
}

int cmd_serve(const struct conf *cf, int nargs, char **args, struct err *e)
{
    struct conv_opts co;
    struct convopts s = {0};
    struct keys keys = {0};
    struct conv *c = NULL;
    if (nargs > 0) {
        return err_set(e, QE_USAGE, "serve takes no words (\"%s\"); -m MODEL names the model",
                       args[0]);
    }
    interrupt_catch(true);
    int rc = take_keys(cf, &keys, e);
    rc = rc < 0 ? rc : convopts_from(cf, &co, &s, e);
    if (rc == 0) {
        co.slots = (int)conf_int(cf, "slots", 4);
        rc = conv_open(&co, &c, e);
    }
    if (rc == 0) {
        rc = serve(cf, c, &keys, e);
    }
    struct err lost = ERR_INIT;
    if (conv_end(c, &lost) < 0 && rc == 0) {
        rc = err_set(e, lost.code, "%s", lost.msg);
    }
    convopts_free(&s);
    keys_free(&keys);
    return rc;
}
