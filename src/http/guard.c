/* Who may ask, and how long asking may take: keys, pages of other sites, requests whose end cannot
 * be told, and connections that never finish saying what they want. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/server.h"

#define S 1000000000LL

static const char *header(struct MHD_Connection *conn, const char *name)
{
    return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

void guard_client(const char *agent, char out[32])
{
    static const struct {
        const char *agent, *name;
    } known[] = {{"claude-cli", "claude-code"},
                 {"codex", "codex"},
                 {"Anthropic/", "anthropic-sdk"},
                 {"OpenAI/", "openai-sdk"}};
    const char *name = NULL;
    size_t n = 0;
    for (size_t i = 0; agent && i < sizeof known / sizeof *known; i++) {
        if (strncmp(agent, known[i].agent, strlen(known[i].agent)) == 0) {
            name = known[i].name;
            n = strlen(name);
        }
    }
    if (!name) {
        name = agent && agent[0] ? agent : "-";
        n = strcspn(name, "/ ");
    }
    n = n < 31 ? n : 31;
    for (size_t i = 0; i < n; i++) { /* it goes to a log and a screen */
        out[i] = name[i] > 0x20 && name[i] < 0x7f ? name[i] : '?';
    }
    out[n] = 0;
}

/* ---- keys and origins ---- */

/* Which of the keys is s, -1: none; how long that takes tells nothing about them. */
static int key_of(const struct http *h, const char *s, size_t n)
{
    int found = -1;
    for (size_t k = 0; k < h->opts.n_keys; k++) {
        const char *key = h->opts.keys[k].key;
        const size_t m = strlen(key);
        unsigned differ = n != m;
        for (size_t i = 0; i < n; i++) {
            differ |= (unsigned char)(s[i] ^ key[m ? i % m : 0]);
        }
        found = differ == 0 && m > 0 ? (int)k : found;
    }
    return found;
}

static bool may_ask(struct exchange *x)
{
    const struct http *h = x->h;
    const char *bearer = header(x->conn, "Authorization"), *key = header(x->conn, "x-api-key");
    if (h->opts.n_keys == 0 || (x->route && x->route->open)) {
        return true;
    }
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) {
        x->key = key_of(h, bearer + 7, strlen(bearer + 7));
    }
    if (x->key < 0 && key) {
        x->key = key_of(h, key, strlen(key));
    }
    return x->key >= 0;
}

static bool is_listed(const struct http *h, const char *origin)
{
    for (size_t i = 0; i < h->opts.n_origins; i++) {
        if (strcmp(h->opts.origins[i], "*") == 0 || strcmp(h->opts.origins[i], origin) == 0) {
            return true;
        }
    }
    return false;
}

const char *guard_origin(const struct http *h, struct MHD_Connection *conn)
{
    const char *o = h->opts.n_origins > 0 ? header(conn, "Origin") : NULL;
    return o && is_listed(h, o) ? o : NULL;
}

/* A page of this machine, a page that was named, or no page at all: a browser names in Origin who
 * sent it, and no foreign site may use the model of whoever looks at it. */
static bool is_welcome(const struct exchange *x)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *o = header(x->conn, "Origin");
    if (!o || is_listed(x->h, o)) {
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

/* How long the client gives it, in seconds; false: it says something else. */
static bool read_limit(struct exchange *x)
{
    const char *s = header(x->conn, "x-request-timeout");
    char *end = NULL;
    const double v = s ? strtod(s, &end) : 0;
    if (s && (end == s || *end || !(v >= 0.001 && v <= 86400))) {
        return false;
    }
    x->limit_ms = (int)(v * 1000);
    return true;
}

/* ---- framing ---- */

struct framing {
    int lengths, codings, hosts;
    bool odd; /* a coding that is not chunked, a length that is no number, or a name with blanks */
    uint64_t length;
};

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    struct framing *f = cls;
    (void)kind;
    f->odd = f->odd || strpbrk(key, " \t");
    if (strcasecmp(key, "Content-Length") == 0) {
        f->lengths++;
        f->odd = f->odd || !value || !value[0] || strspn(value, "0123456789") != strlen(value);
        f->length = f->odd ? 0 : strtoull(value, NULL, 10);
    } else if (strcasecmp(key, "Transfer-Encoding") == 0) {
        f->codings++;
        f->odd = f->odd || !value || strcasecmp(value, "chunked") != 0;
    } else if (strcasecmp(key, "Host") == 0) {
        f->hosts++;
    }
    return MHD_YES;
}

int guard_look(struct exchange *x)
{
    struct framing f = {.lengths = 0};
    MHD_get_connection_values(x->conn, MHD_HEADER_KIND, count_header, &f);
    if (f.lengths > 1 || f.codings > 1 || f.odd || f.hosts > 1 || (f.lengths && f.codings)) {
        /* where the next request begins is anybody's guess */
        x->closes = true;
        x->why = "the headers say in more than one way where the request ends, or whom it is for";
        return 400;
    }
    if (x->cut_path) {
        x->closes = true;
        x->why = "there is a zero byte in what is asked for";
        return 400;
    }
    /* the library's own answer to this has its head twice, in some versions */
    if (f.hosts == 0 && strcmp(x->version, "HTTP/1.0") != 0) {
        x->closes = true;
        x->why = "the header Host is missing";
        return 400;
    }
    guard_expect(x->peer, 60 * S + (int64_t)(f.length / 65536) * S);
    if (strcmp(x->method, "OPTIONS") == 0 && guard_origin(x->h, x->conn)) {
        return 0; /* a browser asks whether it may; keys come later */
    }
    if (!may_ask(x)) {
        x->why = "a key is required: Authorization: Bearer KEY, or x-api-key: KEY";
        return 401;
    }
    if (!is_welcome(x)) {
        x->why = "pages of other sites may not ask (the header Origin; --cors names those that "
                 "may)";
        return 403;
    }
    if (!read_limit(x)) {
        x->why = "x-request-timeout must be a number of seconds, 0.001 to 86400";
        return 400;
    }
    if (f.length > x->h->opts.body) {
        /* more is not read to the end, only so that the answer can be */
        x->closes = f.length > 4 * (uint64_t)x->h->opts.body;
        x->why = "the request is too large";
        return 413;
    }
    return 0;
}

/* ---- time ---- */

void guard_expect(struct peer *p, int64_t ns)
{
    if (p) {
        atomic_store_explicit(&p->deadline, ns < 0 ? INT64_MAX : clock_now(clock_main()) + ns,
                              memory_order_relaxed);
    }
}

struct peer *guard_enter(struct http *h, int fd)
{
    struct peer *p = mem_zalloc(sizeof *p);
    p->fd = fd;
    guard_expect(p, 15 * S);
    pthread_mutex_lock(&h->peers_lock);
    const bool first = h->peers == NULL;
    p->next = h->peers;
    p->prev = &h->peers;
    if (p->next) {
        p->next->prev = &p->next;
    }
    h->peers = p;
    pthread_mutex_unlock(&h->peers_lock);
    if (first) {
        server_wake(h); /* somebody is to be watched */
    }
    return p;
}

void guard_leave(struct http *h, struct peer *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&h->peers_lock);
    *p->prev = p->next;
    if (p->next) {
        p->next->prev = p->prev;
    }
    pthread_mutex_unlock(&h->peers_lock);
    free(p);
}

bool guard_empty(struct http *h)
{
    pthread_mutex_lock(&h->peers_lock);
    const bool empty = h->peers == NULL;
    pthread_mutex_unlock(&h->peers_lock);
    return empty;
}

void guard_sweep(struct http *h, int64_t now)
{
    pthread_mutex_lock(&h->peers_lock);
    for (struct peer *p = h->peers; p; p = p->next) {
        if (atomic_load_explicit(&p->deadline, memory_order_relaxed) < now) {
            /* its thread notices, and closes it */
            (void)shutdown(p->fd, SHUT_RDWR);
            atomic_store_explicit(&p->deadline, INT64_MAX, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&h->peers_lock);
}
