/* The sockets: libmicrohttpd's thread reads requests, checks who asks and how much, gives what
 * needs the model to the loop, and sends what comes back. */
#include "config.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "http/server.h"

#define IDLE_S 60 /* a connection that says nothing */

/* One request on its way in, and its answer. */
struct exchange {
    struct http *h;
    struct buf body;
    bool refused; /* answered already; what still comes is not read */
    struct answer *answer;
};

static const struct api *const apis[] = {&api_chat, &api_completions, &api_messages,
                                         &api_responses};

static const char *header(struct MHD_Connection *conn, const char *name)
{
    return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

static bool is_anthropic(struct MHD_Connection *conn, const char *path)
{
    return strncmp(path, "/v1/messages", 12) == 0 || header(conn, "anthropic-version");
}

/* ---- answers ---- */

/* Text that may go back in a header as it came. */
static bool is_plain(const char *s)
{
    size_t n = 0;
    for (; s[n]; n++) {
        if (s[n] < 0x21 || s[n] > 0x7e || n > 127) {
            return false;
        }
    }
    return n > 0;
}

static void add_headers(struct MHD_Connection *conn, struct MHD_Response *r, const char *type,
                        int status)
{
    const char *session = header(conn, "x-session-id");
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    if (session && is_plain(session)) {
        MHD_add_response_header(r, "x-session-id", session);
    }
    if (status == 429 || status == 503) {
        MHD_add_response_header(r, "Retry-After", "1");
    }
    if (status == 401) {
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    }
}

/* Takes what is in body. */
static enum MHD_Result reply(struct MHD_Connection *conn, int status, const char *type,
                             struct buf *body, const char *id)
{
    const size_t n = body->len;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n, buf_take(body), MHD_RESPMEM_MUST_FREE);
    if (!r) {
        return MHD_NO;
    }
    add_headers(conn, r, type, status);
    if (id) {
        MHD_add_response_header(r, "request-id", id);
    }
    const enum MHD_Result rc = MHD_queue_response(conn, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result refuse(struct MHD_Connection *conn, const char *path, int status,
                              const char *field, const char *why)
{
    struct buf b = BUF_INIT;
    const struct api *api = is_anthropic(conn, path) ? &api_messages : &api_chat;
    api->error(status, why, field, &b);
    return reply(conn, status, "application/json", &b, NULL);
}

void listen_resume(struct answer *a)
{
    if (a->suspended && a->conn) {
        a->suspended = false;
        MHD_resume_connection(a->conn);
    }
}

/* With the lock held. */
static void hold(struct answer *a)
{
    a->suspended = true;
    MHD_suspend_connection(a->conn);
}

static ssize_t send_more(void *cls, uint64_t pos, char *to, size_t max)
{
    struct answer *a = cls;
    struct http *h = a->h;
    ssize_t rc = 0;
    (void)pos;
    pthread_mutex_lock(&h->lock);
    size_t n = a->out.len - a->sent;
    if (n > 0) {
        n = n < max ? n : max;
        memcpy(to, a->out.data + a->sent, n);
        a->sent += n;
        if (a->sent == a->out.len) {
            buf_truncate(&a->out, 0);
            a->sent = 0;
        }
        rc = (ssize_t)n;
    } else if (a->broken) {
        rc = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (a->done) {
        rc = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        hold(a);
    }
    const bool room = a->held && a->out.len - a->sent < UNSENT_MOST / 2;
    pthread_mutex_unlock(&h->lock);
    if (room) {
        server_wake(h);
    }
    return rc;
}

/* What is known of the answer by now. */
static enum MHD_Result respond(struct answer *a)
{
    struct http *h = a->h;
    enum MHD_Result rc = MHD_YES;
    struct buf body = BUF_INIT;
    pthread_mutex_lock(&h->lock);
    const int status = a->status;
    const bool stream = a->headed && a->ask->stream && status == 200 && !a->broken;
    const bool whole = a->headed && a->done && !stream && !a->broken;
    if (whole) {
        body = a->out;
        memset(&a->out, 0, sizeof a->out);
    } else if (a->broken) {
        rc = MHD_NO;
    } else if (!stream) {
        hold(a);
    }
    pthread_mutex_unlock(&h->lock);
    if (whole) {
        return reply(a->conn, status, "application/json", &body, a->ask->id);
    }
    if (!stream) {
        return rc;
    }
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 32768, send_more, a, NULL);
    if (!r) {
        return MHD_NO;
    }
    add_headers(a->conn, r, "text/event-stream", 200);
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    MHD_add_response_header(r, "request-id", a->ask->id);
    rc = MHD_queue_response(a->conn, 200, r);
    MHD_destroy_response(r);
    return rc;
}

/* ---- requests ---- */

/* Whether one of the keys is s; how long that takes tells nothing about them. */
static bool is_key(const struct http *h, const char *s, size_t n)
{
    unsigned found = 0;
    for (size_t k = 0; k < h->opts.n_keys; k++) {
        const char *key = h->opts.keys[k];
        const size_t m = strlen(key);
        unsigned differ = n != m;
        for (size_t i = 0; i < n; i++) {
            differ |= (unsigned char)(s[i] ^ key[m ? i % m : 0]);
        }
        found |= differ == 0 && m > 0;
    }
    return found;
}

static bool may_ask(const struct http *h, struct MHD_Connection *conn, const char *path)
{
    const char *bearer = header(conn, "Authorization"), *key = header(conn, "x-api-key");
    if (h->opts.n_keys == 0 || strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0) {
        return true;
    }
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0 &&
        is_key(h, bearer + 7, strlen(bearer + 7))) {
        return true;
    }
    return key && is_key(h, key, strlen(key));
}

/* A page of this machine, or no page at all: a browser names in Origin who sent it, and no
 * foreign site may use the model of whoever looks at it. */
static bool is_from_here(struct MHD_Connection *conn)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *o = header(conn, "Origin");
    if (!o) {
        return true;
    }
    o = strncmp(o, "http://", 7) == 0 ? o + 7 : strncmp(o, "https://", 8) == 0 ? o + 8 : "";
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        const size_t n = strlen(hosts[i]);
        if (strncmp(o, hosts[i], n) == 0 && (o[n] == 0 || o[n] == ':')) {
            return true;
        }
    }
    return false;
}

/* The first look at a request, before its body. 0: it may go on. */
static int look(const struct http *h, struct MHD_Connection *conn, const char *path,
                const char **why)
{
    const char *length = header(conn, "Content-Length");
    if (!may_ask(h, conn, path)) {
        *why = "a key is required: Authorization: Bearer KEY, or x-api-key: KEY";
        return 401;
    }
    if (!is_from_here(conn)) {
        *why = "pages of other sites may not ask (the header Origin)";
        return 403;
    }
    if (length && strtoull(length, NULL, 10) > h->opts.body) {
        *why = "the request is too large";
        return 413;
    }
    return 0;
}

static enum MHD_Result ask_model(struct exchange *x, const struct api *api,
                                 struct MHD_Connection *conn)
{
    struct http *h = x->h;
    struct err e = ERR_INIT;
    struct view_model m;
    struct ask *ask = NULL;
    json_t *body = NULL;
    const char *field = NULL;
    conv_view_model(h->conv, &m);
    if (!m.ready || atomic_load(&h->draining) || atomic_load(&h->paused)) {
        return refuse(conn, api->path, 503, NULL,
                      !m.ready                    ? "the model is still being loaded"
                      : atomic_load(&h->draining) ? "the server is going down"
                                                  : "the server takes no requests for now");
    }
    int rc = json_parse(x->body.data ? x->body.data : "", x->body.len, "the body", &body, &e);
    buf_free(&x->body);
    if (rc == 0) {
        rc = ask_create(api, body, false, &h->defaults, &ask, &field, &e);
    }
    if (rc < 0) {
        return refuse(conn, api->path, 400, field, e.msg);
    }
    if (!ask->model[0]) {
        memcpy(ask->own_model, m.name, sizeof m.name);
        ask->model = ask->own_model;
    }
    snprintf(ask->id, sizeof ask->id, "%s%012llx%04x", api->prefix,
             (unsigned long long)ask->created, (unsigned)atomic_fetch_add(&h->serial, 1) & 0xffffU);
    x->answer = answer_create(h, ask, conn);
    answer_client(x->answer, header(conn, "User-Agent"));
    if (!server_submit(x->answer)) {
        return refuse(conn, api->path, 429, NULL, "too many requests wait already; try again");
    }
    return respond(x->answer);
}

static enum MHD_Result dispatch(struct exchange *x, struct MHD_Connection *conn, const char *path,
                                const char *method)
{
    const char *type = "application/json";
    struct buf out = BUF_INIT;
    int status = 200;
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++) {
        if (strcmp(path, apis[i]->path) == 0) {
            return strcmp(method, "POST") == 0
                       ? ask_model(x, apis[i], conn)
                       : refuse(conn, path, 405, NULL, "this takes POST only");
        }
    }
    if (info_answer(x->h, method, path, is_anthropic(conn, path), &x->body, &status, &type, &out)) {
        return reply(conn, status, type, &out, NULL);
    }
    buf_free(&out);
    char why[200];
    snprintf(why, sizeof why, "there is no %.100s here", path);
    for (char *p = why; *p; p++) {
        *p = *p >= 0x20 && *p < 0x7f ? *p : '?';
    }
    return refuse(conn, path, status == 405 ? 405 : 404, NULL,
                  status == 405 ? "this method is not for this path" : why);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct http *h = cls;
    struct exchange *x = *state;
    (void)version;
    if (!x) {
        const char *why = NULL;
        x = mem_zalloc(sizeof *x);
        x->h = h;
        *state = x;
        const int status = look(h, conn, path, &why);
        if (status != 0) {
            x->refused = true;
            return refuse(conn, path, status, NULL, why);
        }
        return MHD_YES;
    }
    if (x->answer) {
        return respond(x->answer);
    }
    if (*size > 0) {
        if (!x->refused && x->body.len + *size > h->opts.body) {
            x->refused = true;
            buf_free(&x->body);
        }
        if (!x->refused) {
            buf_add(&x->body, data, *size);
        }
        *size = 0;
        return MHD_YES;
    }
    return x->refused ? refuse(conn, path, 413, NULL, "the request is too large")
                      : dispatch(x, conn, path, method);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = cls;
    struct exchange *x = *state;
    (void)conn, (void)why;
    if (!x) {
        return;
    }
    if (x->answer && x->answer->submitted) {
        pthread_mutex_lock(&h->lock);
        x->answer->gone = true;
        x->answer->conn = NULL;
        pthread_mutex_unlock(&h->lock);
        server_wake(h);
    } else {
        answer_free(x->answer);
    }
    buf_free(&x->body);
    free(x);
    *state = NULL;
}

/* ---- the daemon ---- */

static int resolve(const struct http *h, struct sockaddr_storage *to, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", h->opts.port);
    const int rc = getaddrinfo(h->opts.host, port, &hints, &list);
    if (rc != 0) {
        return err_set(e, QE_USAGE, "the address %s cannot be listened at: %s", h->opts.host,
                       gai_strerror(rc));
    }
    memcpy(to, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return 0;
}

static void quiet(void *cls, const char *fmt, va_list ap)
{
    (void)cls, (void)fmt, (void)ap;
}

int listen_start(struct http *h, struct err *e)
{
    struct sockaddr_storage at;
    memset(&at, 0, sizeof at);
    const int rc = resolve(h, &at, e);
    if (rc < 0) {
        return rc;
    }
    /* not epoll, whose edges lose the end of a client that closes as it speaks */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    flags |= at.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    h->daemon = MHD_start_daemon(flags, (uint16_t)h->opts.port, NULL, NULL, on_request, h,
                                 MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL, MHD_OPTION_SOCK_ADDR,
                                 (struct sockaddr *)&at, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                                 h, MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->opts.connections,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    const int why = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!h->daemon) {
        return err_sys(e, QE_IO, why, "cannot listen at %s:%d (--port chooses another)",
                       h->opts.host, h->opts.port);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(h->address, sizeof h->address, strchr(h->opts.host, ':') ? "[%s]:%d" : "%s:%d",
             h->opts.host, info ? info->port : h->opts.port);
    return 0;
}

void listen_stop(struct http *h)
{
    if (!h->daemon) {
        return;
    }
    /* a daemon that stops must find no connection suspended */
    atomic_store(&h->draining, true);
    pthread_mutex_lock(&h->lock);
    for (struct answer *a = h->answers; a; a = a->next) {
        a->broken = true;
        a->headed = true;
        a->done = true;
        listen_resume(a);
    }
    pthread_mutex_unlock(&h->lock);
    MHD_stop_daemon(h->daemon);
    h->daemon = NULL;
}
