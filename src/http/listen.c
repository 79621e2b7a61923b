/* The sockets: libmicrohttpd's threads read requests, give what takes long to the work, and send
 * what comes back. A connection is suspended while it waits for anything but its own socket. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/server.h"

#define IDLE_S    75 /* a connection that says nothing */
#define S         1000000000LL
#define SOCKETS   2     /* threads for them */
#define TAKERS    4     /* threads for bodies */
#define LINE_MOST 65536 /* bytes of a request's first line, more than the library takes */

static const struct route routes[] = {
    {"/v1/chat/completions", true, &api_chat, false},
    {"/v1/completions", true, &api_completions, false},
    {"/v1/messages", true, &api_messages, false},
    {"/v1/responses", true, &api_responses, false},
    {"/v1/messages/count_tokens", true, NULL, false},
    {"/tokenize", true, NULL, false},
    {"/detokenize", true, NULL, false},
    {"/v1/models", false, NULL, false},
    {"/v1/models/", false, NULL, false},
    {"/health", false, NULL, true},
    {"/ready", false, NULL, true},
    {"/metrics", false, NULL, false},
    {"/v1/status", false, NULL, false},
    {"/version", false, NULL, false},
};

static const struct route *route_of(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const size_t n = strlen(routes[i].path);
        const bool below =
            routes[i].path[n - 1] == '/' && strncmp(path, routes[i].path, n) == 0 && path[n];
        if (below || strcmp(path, routes[i].path) == 0) {
            return &routes[i];
        }
    }
    return NULL;
}

static const char *header(struct MHD_Connection *conn, const char *name)
{
    return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

bool listen_anthropic(struct MHD_Connection *conn, const char *path)
{
    return strncmp(path, "/v1/messages", 12) == 0 || header(conn, "anthropic-version");
}

/* ---- answers ---- */

/* Text that may go back in a header as it came. */
static bool is_plain(const char *s, size_t most)
{
    size_t n = 0;
    for (; s[n]; n++) {
        if (s[n] < 0x20 || s[n] > 0x7e || n >= most) {
            return false;
        }
    }
    return n > 0;
}

static void add(struct MHD_Response *r, const char *name, const char *value)
{
    (void)MHD_add_response_header(r, name, value);
}

static void add_headers(const struct exchange *x, struct MHD_Response *r, const char *type,
                        int status)
{
    const char *session = header(x->conn, "x-session-id");
    const char *origin = guard_origin(x->h, x->conn);
    add(r, "Content-Type", type);
    add(r, "Cache-Control", "no-cache");
    if (session && is_plain(session, 127)) {
        add(r, "x-session-id", session);
    }
    if (x->trace[0]) {
        add(r, "x-request-id", x->trace);
    }
    if (origin && is_plain(origin, 255)) {
        add(r, "Access-Control-Allow-Origin", origin);
        add(r, "Access-Control-Expose-Headers",
            "request-id, x-request-id, x-session-id, Retry-After");
        add(r, "Vary", "Origin");
    }
    if (status == 429 || status == 503) {
        add(r, "Retry-After", "1");
    }
    if (status == 401) {
        add(r, "WWW-Authenticate", "Bearer");
    }
    if (status == 405) {
        add(r, "Allow", x->route && x->route->post ? "POST" : "GET, HEAD");
    }
    if (x->closes || atomic_load(&x->h->draining)) {
        add(r, "Connection", "close");
    }
}

/* Looks at how it goes would be most of the log, and of what is refused. */
static bool is_look(const struct exchange *x, int status)
{
    return x->route && !x->route->post && (status == 200 || x->route->open);
}

static void log_reply(const struct exchange *x, int status, size_t n, const char *id)
{
    char line[400], path[80];
    if (!x->h->opts.log || is_look(x, status)) {
        return;
    }
    snprintf(path, sizeof path, "%s", x->path);
    for (char *p = path; *p; p++) {
        *p = *p > 0x20 && *p < 0x7f ? *p : '?';
    }
    snprintf(line, sizeof line, "%s %s %.10s %s status %d, %zu bytes, %.3f s%s%s", id, x->client,
             x->method, path, status, n, clock_seconds(clock_now(clock_main()) - x->begun),
             x->trace[0] ? ", x-request-id " : "", x->trace);
    x->h->opts.log(x->h->opts.log_ctx, line);
}

/* Sends what is in body, and takes it. */
static enum MHD_Result reply(struct exchange *x, int status, const char *type, struct buf *body,
                             const char *id)
{
    char own[48];
    const size_t n = body->len;
    if (!id) {
        snprintf(own, sizeof own, "req_%012llx%04x", (unsigned long long)clock_wall(),
                 (unsigned)atomic_fetch_add(&x->h->serial, 1) & 0xffffU);
        id = own;
        log_reply(x, status, n, id);
        if (status >= 400 && !is_look(x, status)) {
            metrics_refuse(x->h->metrics, status);
        }
    }
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n, buf_take(body), MHD_RESPMEM_MUST_FREE);
    if (!r) {
        return MHD_NO;
    }
    add_headers(x, r, type, status);
    add(r, "request-id", id);
    const enum MHD_Result rc = MHD_queue_response(x->conn, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result refuse(struct exchange *x, int status, const char *why)
{
    take_refuse(x, status, NULL, why);
    return reply(x, status, "application/json", &x->out, NULL);
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
static enum MHD_Result respond(struct exchange *x)
{
    struct answer *a = x->answer;
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
        return reply(x, status, "application/json", &body, a->ask->id);
    }
    if (!stream) {
        return rc;
    }
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 32768, send_more, a, NULL);
    if (!r) {
        return MHD_NO;
    }
    add_headers(x, r, "text/event-stream", 200);
    add(r, "X-Accel-Buffering", "no");
    add(r, "request-id", a->ask->id);
    rc = MHD_queue_response(a->conn, 200, r);
    MHD_destroy_response(r);
    return rc;
}

/* ---- requests ---- */

/* Gives it to the work; the connection waits. */
static enum MHD_Result put_to_work(struct exchange *x)
{
    MHD_suspend_connection(x->conn);
    if (!work_put(x->h->work, x)) {
        if (x->route->api) {
            server_release(x->h, x->key);
        }
        take_refuse(x, 429, NULL, "too many requests wait already; try again");
        MHD_resume_connection(x->conn);
    }
    return MHD_YES;
}

static enum MHD_Result ask_model(struct exchange *x)
{
    struct http *h = x->h;
    struct view_model m;
    conv_view_model(h->conv, &m);
    if (!m.ready || atomic_load(&h->draining) || atomic_load(&h->paused)) {
        return refuse(x, 503,
                      !m.ready                    ? "the model is still being loaded"
                      : atomic_load(&h->draining) ? GOING_DOWN
                                                  : "the server takes no requests for now");
    }
    const char *full = server_reserve(h, x->key);
    if (full) {
        return refuse(x, 429, full);
    }
    return put_to_work(x);
}

/* The list of models is asked for often: it is made once. */
static enum MHD_Result send_models(struct exchange *x)
{
    struct http *h = x->h;
    struct MHD_Response *r = atomic_load(&h->models);
    if (!r) {
        struct buf b = BUF_INIT;
        info_models(h, &b);
        const size_t n = b.len;
        r = MHD_create_response_from_buffer(n, buf_take(&b), MHD_RESPMEM_MUST_FREE);
        if (!r) {
            return MHD_NO;
        }
        add(r, "Content-Type", "application/json");
        add(r, "Cache-Control", "no-cache");
        struct MHD_Response *none = NULL;
        if (!atomic_compare_exchange_strong(&h->models, &none, r)) {
            MHD_destroy_response(r);
            r = none;
        }
    }
    return MHD_queue_response(x->conn, 200, r);
}

/* A browser asks whether a page may ask. */
static enum MHD_Result preflight(struct exchange *x)
{
    static char none[1];
    struct MHD_Response *r = MHD_create_response_from_buffer(0, none, MHD_RESPMEM_PERSISTENT);
    const char *wanted = header(x->conn, "Access-Control-Request-Headers");
    if (!r) {
        return MHD_NO;
    }
    add_headers(x, r, "text/plain", 204);
    add(r, "Access-Control-Allow-Methods", "GET, HEAD, POST");
    add(r, "Access-Control-Allow-Headers",
        wanted && is_plain(wanted, 1000) ? wanted : "authorization, x-api-key, content-type");
    add(r, "Access-Control-Max-Age", "600");
    const enum MHD_Result rc = MHD_queue_response(x->conn, 204, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result get(struct exchange *x)
{
    const char *type = "application/json";
    const char *verify = MHD_lookup_connection_value(x->conn, MHD_GET_ARGUMENT_KIND, "verify");
    struct view_model m;
    if (strcmp(x->route->path, "/health") == 0 && verify && strcmp(verify, "1") == 0) {
        return put_to_work(x);
    }
    conv_view_model(x->h->conv, &m);
    if (strcmp(x->route->path, "/v1/models") == 0 && m.ready && !header(x->conn, "x-session-id") &&
        !header(x->conn, "Origin")) {
        return send_models(x);
    }
    info_get(x, &type);
    return reply(x, x->status, type, &x->out, NULL);
}

/* The whole request is there. */
static enum MHD_Result dispatch(struct exchange *x)
{
    const bool reads = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;
    guard_expect(x->peer, -1);
    if (x->refused) {
        return refuse(x, x->refused, x->why);
    }
    if (strcmp(x->method, "OPTIONS") == 0 && guard_origin(x->h, x->conn)) {
        return preflight(x);
    }
    if (!x->route) {
        char why[200];
        snprintf(why, sizeof why, "there is no %.100s here", x->path);
        for (char *p = why; *p; p++) {
            *p = *p >= 0x20 && *p < 0x7f ? *p : '?';
        }
        return refuse(x, 404, why);
    }
    if (x->route->post ? strcmp(x->method, "POST") != 0 : !reads) {
        return refuse(x, 405, x->route->post ? "this takes POST only" : "this takes GET only");
    }
    return x->route->api ? ask_model(x) : x->route->post ? put_to_work(x) : get(x);
}

static struct peer *peer_of(struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* What is asked for, before the library takes it apart. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *conn)
{
    struct peer *p = peer_of(conn);
    (void)cls;
    if (p) {
        p->target_n = strlen(target);
    }
    return NULL;
}

/* The library gives C strings, which end at a zero byte that was sent; but the version follows the
 * target in the line it has read, and tells where that really ended. */
static bool is_cut(const struct exchange *x)
{
    const uintptr_t from = (uintptr_t)x->path, to = (uintptr_t)x->version;
    return x->peer && x->version[0] && to > from && to - from < LINE_MOST &&
           to - from > x->peer->target_n + 1;
}

static struct exchange *begin(struct http *h, struct MHD_Connection *conn, const char *path,
                              const char *method, const char *version)
{
    struct exchange *x = mem_zalloc(sizeof *x);
    x->h = h;
    x->conn = conn;
    x->path = path;
    x->method = method;
    x->version = version ? version : "";
    x->key = -1;
    x->route = route_of(path);
    x->begun = clock_now(clock_main());
    x->peer = peer_of(conn);
    x->cut_path = is_cut(x);
    guard_client(header(conn, "User-Agent"), x->client);
    const char *trace = header(conn, "x-request-id");
    if (trace && is_plain(trace, sizeof x->trace - 1)) {
        snprintf(x->trace, sizeof x->trace, "%s", trace);
    }
    return x;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct exchange *x = *state;
    if (!x) {
        *state = x = begin(cls, conn, path, method, version);
        x->refused = guard_look(x);
        /* Else it is read first: a client that is still sending would not see the answer. */
        if (x->closes || (x->refused && header(conn, "Expect"))) {
            x->closes = true;
            return refuse(x, x->refused, x->why);
        }
        return MHD_YES;
    }
    if (x->answer) {
        return respond(x);
    }
    if (x->ready) {
        return reply(x, x->status, "application/json", &x->out, NULL);
    }
    if (*size > 0) {
        if (!x->refused && x->body.len + *size > x->h->opts.body) {
            x->refused = 413;
            x->why = "the request is too large";
            buf_free(&x->body);
        }
        if (!x->refused) {
            buf_add(&x->body, data, *size);
        }
        *size = 0;
        return MHD_YES;
    }
    return dispatch(x);
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
    if (x->answer) {
        pthread_mutex_lock(&h->lock);
        x->answer->gone = true;
        x->answer->conn = NULL;
        pthread_mutex_unlock(&h->lock);
        server_wake(h);
    }
    guard_expect(x->peer, IDLE_S * S);
    buf_free(&x->body);
    buf_free(&x->out);
    free(x);
    *state = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = guard_enter(h, info ? info->connect_fd : -1);
    } else {
        guard_leave(h, *context);
        *context = NULL;
    }
}

/* ---- the daemon ---- */

static void quiet(void *cls, const char *fmt, va_list ap)
{
    (void)cls, (void)fmt, (void)ap;
}

/* Paths are compared as they came: %2e or %00 is no other way to write one. */
static size_t as_it_came(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls, (void)conn;
    return strlen(s);
}

static int check_tls(const struct http_opts *o, struct err *e)
{
    if (!o->tls_cert != !o->tls_key) {
        return err_set(e, QE_USAGE, "encryption needs both --tls-cert and --tls-key");
    }
    if (o->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        return err_set(e, QE_UNSUPPORTED,
                       "this libmicrohttpd has no TLS: put a proxy that has it in front");
    }
    return 0;
}

static struct MHD_Daemon *start(struct http *h)
{
    /* not epoll, whose edges lose the end of a client that closes as it speaks */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (h->opts.tls_cert ? (unsigned)MHD_USE_TLS : 0U);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)h->opts.tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)h->opts.tls_key},
        {MHD_OPTION_END, 0, NULL}};
    if (!h->opts.tls_cert) {
        tls[0] = tls[2];
    }
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL,
        MHD_OPTION_LISTEN_SOCKET, h->bound.fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_UNESCAPE_CALLBACK, as_it_came,
        NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->opts.connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_THREAD_POOL_SIZE,
        (unsigned)SOCKETS, MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
}

int listen_start(struct http *h, struct err *e)
{
    int rc = check_tls(&h->opts, e);
    rc = rc < 0 ? rc : work_create(TAKERS, WORK_MOST, take_task, h, &h->work, e);
    rc = rc < 0 ? rc : bound_open(&h->opts, &h->bound, e);
    if (rc < 0) {
        return rc;
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    h->daemon = start(h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!h->daemon) {
        if (fcntl(h->bound.fd, F_GETFD) < 0) {
            h->bound.fd = -1; /* it was closed on the way out */
        }
        return h->opts.tls_cert ? err_set(e, QE_USAGE,
                                          "--tls-cert and --tls-key are no certificate and its "
                                          "key, in PEM")
                                : err_set(e, QE_IO, "cannot start the listener's threads");
    }
    return 0;
}

void listen_stop(struct http *h)
{
    if (h->daemon) {
        /* a daemon that stops must find no connection suspended */
        atomic_store(&h->draining, true);
        const int fd = MHD_quiesce_daemon(h->daemon);
        (void)fd; /* bound_close has it */
        work_close(h->work);
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
    work_free(h->work);
    h->work = NULL;
    bound_close(&h->bound);
    if (atomic_load(&h->models)) {
        MHD_destroy_response(atomic_load(&h->models));
        atomic_store(&h->models, NULL);
    }
}
