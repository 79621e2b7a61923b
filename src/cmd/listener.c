/* Keys, address, table: what serve and the workbench open a listener with. */
#include "config.h"
#include "cmd/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "cmd/keys.h"
#include "http/agent.h"
#include "view/requests.h"

#define FILE_MAX 1048576

/* The socket that a service manager has opened for this process; 0: none. */
static int take_given(struct err *e)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    if (!pid || !fds || strtol(pid, NULL, 10) != (long)getpid()) {
        return 0;
    }
    const long n = strtol(fds, NULL, 10);
    return n == 1 ? 3
           : n < 1
               ? 0
               : err_set(e, QE_USAGE, "LISTEN_FDS names %ld sockets; one can be listened at", n);
}

static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "%s\n", line);
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "unix:", 5) == 0 || strcmp(host, "localhost") == 0 ||
           strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

struct listener {
    struct conv *conv;
    struct keys keys;
    const char **origins;
    size_t n_origins;
    struct buf cert, key;
    struct http_opts opts;
    char *host; /* of an address given later */
    struct requests_control control;
    struct requests *requests;
    struct http *http;
    struct agent *agent;
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

/* Certificate, key, and the pages that may ask. */
static int take_files(const struct conf *cf, struct listener *l, struct err *e)
{
    const char *cert = conf_str(cf, "tls-cert"), *key = conf_str(cf, "tls-key");
    const size_t n = conf_list_len(cf, "cors");
    l->origins = mem_array(n + 1, sizeof *l->origins);
    l->n_origins = n;
    for (size_t i = 0; i < n; i++) {
        l->origins[i] = conf_list_at(cf, "cors", i);
    }
    int rc = cert ? io_read_file(cert, FILE_MAX, &l->cert, e) : 0;
    rc = rc < 0 || !key ? rc : io_read_file(key, FILE_MAX, &l->key, e);
    return rc;
}

int listener_create(const struct conf *cf, struct conv *c, bool loud, struct listener **out,
                    struct err *e)
{
    struct listener *l = mem_zalloc(sizeof *l);
    int rc = keys_read(cf, &l->keys, e);
    rc = rc < 0 ? rc : take_files(cf, l, e);
    rc = rc < 0 ? rc : loud ? take_given(e) : 0;
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
        .given_fd = rc,
        .tls_cert = conf_str(cf, "tls-cert") ? l->cert.data ? l->cert.data : "" : NULL,
        .tls_key = conf_str(cf, "tls-key") ? l->key.data ? l->key.data : "" : NULL,
        .origins = l->origins,
        .n_origins = l->n_origins,
        .keys = l->keys.v,
        .n_keys = l->keys.n,
        .queue = (int)conf_int(cf, "max-queue", 0),
        .slots = (int)conf_int(cf, "slots", 4),
        .wait_s = (int)conf_int(cf, "queue-timeout", 120),
        .version = PACKAGE_VERSION,
        .requests = l->requests,
        .log = loud ? print_line : NULL,
    };
    *out = l;
    return 0;
}

/* Takes an address apart. *host: owned, NULL if it has none. */
static int parse_address(const char *address, char **host, int *port, struct err *e)
{
    *host = NULL;
    if (strncmp(address, "unix:", 5) == 0) {
        *host = mem_strdup(address);
        return 0;
    }
    const char *colon = strrchr(address, ':');
    const char *number = colon ? colon + 1 : address;
    char *end = NULL;
    const long n = strtol(number, &end, 10);
    if (!number[0] || *end || n < 0 || n > 65535) {
        return err_set(e, QE_USAGE,
                       "\"%.80s\" is no address; HOST:PORT is one, a port alone, or unix:PATH",
                       address);
    }
    *port = (int)n;
    if (colon && colon > address) {
        const bool bracket = address[0] == '[' && colon[-1] == ']';
        *host = mem_strndup(address + bracket, (size_t)(colon - address) - 2 * bracket);
    }
    return 0;
}

static int take_address(struct listener *l, const char *address, struct err *e)
{
    char *host = NULL;
    const int rc = parse_address(address, &host, &l->opts.port, e);
    if (rc == 0 && host) {
        free(l->host);
        l->opts.host = l->host = host;
    }
    return rc;
}

int listener_open(struct listener *l, const char *address, struct err *e)
{
    const int rc = address && address[0] ? take_address(l, address, e) : 0;
    if (rc < 0) {
        return rc;
    }
    if (address && address[0]) {
        l->opts.given_fd = 0; /* it is somewhere else that is wanted */
    }
    listener_close(l);
    return http_open(l->conv, &l->opts, &l->http, e);
}

int listener_agent(struct listener *l, const char *address, struct err *e)
{
    char *host = NULL;
    int port = 0;
    const bool own = strncmp(l->opts.host, "unix:", 5) != 0;
    int rc = address ? parse_address(address, &host, &port, e) : 0;
    if (address && rc == 0) {
        rc = agent_open(l->http,
                        host  ? host
                        : own ? l->opts.host
                              : "127.0.0.1",
                        port, &l->agent, e);
    }
    free(host);
    if (address && rc == 0) {
        fprintf(stderr, "load balancers are told at %s\n", agent_address(l->agent));
    }
    return rc;
}

const char *listener_scheme(const struct listener *l)
{
    if (l->opts.given_fd > 0 || strncmp(http_address(l->http), "unix:", 5) == 0) {
        return "";
    }
    return l->opts.tls_cert ? "https://" : "http://";
}

void listener_close(struct listener *l)
{
    agent_close(l->agent);
    l->agent = NULL;
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
    return l->http && (l->opts.given_fd > 0 || !is_loopback(l->opts.host)) && l->keys.n == 0;
}

void listener_free(struct listener *l)
{
    if (!l) {
        return;
    }
    listener_close(l);
    requests_free(l->requests);
    keys_free(&l->keys);
    free(l->origins);
    buf_free(&l->cert);
    buf_free(&l->key);
    free(l->host);
    free(l);
}
