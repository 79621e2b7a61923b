/* Keys, address, table: what serve and the workbench open a listener with. */
#include "config.h"
#include "cmd/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "view/requests.h"

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

struct listener {
    struct conv *conv;
    struct keys keys;
    struct http_opts opts;
    char *host; /* of an address given later */
    struct requests_control control;
    struct requests *requests;
    struct http *http;
};

static void cancel(void *ctx, uint64_t id)
{
    const struct listener *l = ctx;
    if (l->http) {
        http_cancel(l->http, id);
    }
}

static void pause_all(void *ctx, bool on)
{
    const struct listener *l = ctx;
    if (l->http) {
        http_pause(l->http, on);
    }
}

static bool body(void *ctx, uint64_t id, struct buf *out)
{
    const struct listener *l = ctx;
    return l->http && http_body(l->http, id, out);
}

int listener_create(const struct conf *cf, struct conv *c, bool loud, struct listener **out,
                    struct err *e)
{
    struct listener *l = mem_zalloc(sizeof *l);
    const int rc = take_keys(cf, &l->keys, e);
    if (rc < 0) {
        listener_free(l);
        return rc;
    }
    l->conv = c;
    l->control =
        (struct requests_control){.ctx = l, .cancel = cancel, .pause = pause_all, .body = body};
    l->requests = requests_create(&l->control);
    l->opts = (struct http_opts){
        .host = conf_str(cf, "host"),
        .port = (int)conf_int(cf, "port", 8080),
        .keys = l->keys.v,
        .n_keys = l->keys.n,
        .queue = (int)conf_int(cf, "max-queue", 0),
        .version = PACKAGE_VERSION,
        .requests = l->requests,
        .log = loud ? print_line : NULL,
    };
    *out = l;
    return 0;
}

static int take_address(struct listener *l, const char *address, struct err *e)
{
    const char *colon = strrchr(address, ':');
    const char *port = colon ? colon + 1 : address;
    char *end = NULL;
    const long n = strtol(port, &end, 10);
    if (!port[0] || *end || n < 0 || n > 65535) {
        return err_set(e, QE_USAGE, "\"%.80s\" is no address; HOST:PORT is one, or a port alone",
                       address);
    }
    l->opts.port = (int)n;
    if (colon && colon > address) {
        free(l->host);
        const bool bracket = address[0] == '[' && colon[-1] == ']';
        l->host = mem_strndup(address + bracket, (size_t)(colon - address) - 2 * bracket);
        l->opts.host = l->host;
    }
    return 0;
}

int listener_open(struct listener *l, const char *address, struct err *e)
{
    const int rc = address && address[0] ? take_address(l, address, e) : 0;
    if (rc < 0) {
        return rc;
    }
    listener_close(l);
    return http_open(l->conv, &l->opts, &l->http, e);
}

void listener_close(struct listener *l)
{
    http_close(l->http);
    l->http = NULL;
}

struct http *listener_http(const struct listener *l)
{
    return l->http;
}

struct requests *listener_requests(const struct listener *l)
{
    return l->requests;
}

bool listener_is_public(const struct listener *l)
{
    return l->http && !is_loopback(l->opts.host) && l->keys.n == 0;
}

void listener_free(struct listener *l)
{
    if (!l) {
        return;
    }
    listener_close(l);
    requests_free(l->requests);
    keys_free(&l->keys);
    free(l->host);
    free(l);
}
