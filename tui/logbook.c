/* Lines lie in a ring; the oldest give way when there are too many of them or too many
 * bytes. Bytes are kept as they came: only the layout filters them. */
#include "config.h"
#include "tui/logbook.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

struct line {
    int64_t wall;
    enum log_kind kind;
    size_t n;
    char *p;
};

struct logbook {
    pthread_mutex_t lock; /* everything below */
    struct line line[LOGBOOK_LINES];
    size_t first, n; /* oldest, how many */
    size_t bytes;
    uint64_t dropped;
    char open[LOGBOOK_LINE]; /* printed, and not ended */
    size_t n_open;
    int64_t open_wall;
    unsigned version;
    int unseen;
};

struct logbook *logbook_create(void)
{
    struct logbook *b = mem_zalloc(sizeof *b);
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

static void drop_oldest(struct logbook *b)
{
    struct line *l = &b->line[b->first];
    b->bytes -= l->n;
    free(l->p);
    b->first = (b->first + 1) % LOGBOOK_LINES;
    b->n--;
}

void logbook_free(struct logbook *b)
{
    if (b) {
        while (b->n > 0) {
            drop_oldest(b);
        }
        pthread_mutex_destroy(&b->lock);
        free(b);
    }
}

static void add_line(struct logbook *b, enum log_kind kind, int64_t wall, const char *p, size_t n)
{
    n -= n > 0 && p[n - 1] == '\r';
    if (n == 0) {
        return;
    }
    while (b->n == LOGBOOK_LINES || (b->n > 0 && b->bytes + n > LOGBOOK_BYTES)) {
        drop_oldest(b);
        b->dropped++;
    }
    b->line[(b->first + b->n++) % LOGBOOK_LINES] = (struct line){wall, kind, n, mem_strndup(p, n)};
    b->bytes += n;
    b->version++;
    b->unseen += kind == LK_BAD || kind == LK_OUTPUT;
}

/* Adds the whole lines of p; how many bytes they took. */
static size_t add_lines(struct logbook *b, enum log_kind kind, int64_t wall, const char *p,
                        size_t n)
{
    size_t at = 0;
    while (at < n) {
        const size_t left = n - at < LOGBOOK_LINE ? n - at : LOGBOOK_LINE;
        const char *nl = memchr(p + at, '\n', left);
        if (!nl && left < LOGBOOK_LINE) {
            break;
        }
        const size_t len = nl ? (size_t)(nl - (p + at)) : left;
        add_line(b, kind, wall, p + at, len);
        at += len + (nl != NULL);
    }
    return at;
}

void logbook_add(struct logbook *b, enum log_kind kind, int64_t wall, const char *p, size_t n)
{
    pthread_mutex_lock(&b->lock);
    const size_t used = add_lines(b, kind, wall, p, n);
    add_line(b, kind, wall, p + used, n - used);
    pthread_mutex_unlock(&b->lock);
}

void logbook_output(struct logbook *b, int64_t wall, const char *p, size_t n)
{
    pthread_mutex_lock(&b->lock);
    if (b->n_open > 0) { /* the end of what was begun */
        const char *nl = memchr(p, '\n', n);
        const size_t want = nl ? (size_t)(nl - p) + 1 : n;
        const size_t room = sizeof b->open - b->n_open;
        const size_t take = want < room ? want : room;
        memcpy(b->open + b->n_open, p, take);
        b->n_open += take;
        p += take;
        n -= take;
        if (add_lines(b, LK_OUTPUT, b->open_wall, b->open, b->n_open) > 0) {
            b->n_open = 0;
        }
    }
    if (n > 0) {
        const size_t used = add_lines(b, LK_OUTPUT, wall, p, n);
        b->n_open = n - used;
        memcpy(b->open, p + used, b->n_open);
        b->open_wall = wall;
    }
    b->version++;
    pthread_mutex_unlock(&b->lock);
}

unsigned logbook_version(struct logbook *b)
{
    pthread_mutex_lock(&b->lock);
    const unsigned v = b->version;
    pthread_mutex_unlock(&b->lock);
    return v;
}

int logbook_unseen(struct logbook *b)
{
    pthread_mutex_lock(&b->lock);
    const int n = b->unseen;
    pthread_mutex_unlock(&b->lock);
    return n;
}

void logbook_seen(struct logbook *b)
{
    pthread_mutex_lock(&b->lock);
    b->unseen = 0;
    pthread_mutex_unlock(&b->lock);
}

static void lay_line(const struct line *l, const struct theme *th, int width, struct text_flow *f,
                     struct text_rows *out)
{
    static const char *const words[LK_COUNT] = {"note", "warning", "error", "output"};
    static const uint16_t roles[LK_COUNT] = {R_TEXT, R_WARN, R_BAD, R_TEXT};
    struct text_prefix first = {0};
    struct text_prefix next = {0};
    struct tm tm;
    const time_t t = (time_t)l->wall;
    char s[24];
    localtime_r(&t, &tm);
    if (width >= 40) {
        snprintf(s, sizeof s, " %02d:%02d:%02d ", tm.tm_hour % 100, tm.tm_min % 100,
                 tm.tm_sec % 100);
        text_prefix_push(&first, R_DIM, s);
        snprintf(s, sizeof s, "%-8s", words[l->kind]);
        text_prefix_push(&first, roles[l->kind], s);
    }
    text_prefix_push(&next, R_DIM, width >= 60 ? "                  " : " ");
    text_flow_clear(f);
    text_flow_add(f, R_TEXT, l->p, l->n, th->ascii || !th->utf8);
    const struct text_wrap w = {.width = width, .mode = WRAP_WORD, .first = &first, .next = &next};
    text_wrap(out, f, &w);
}

void logbook_layout(struct logbook *b, const struct theme *th, int width, struct text_rows *out)
{
    struct text_flow f = {0};
    text_rows_truncate(out, 0);
    pthread_mutex_lock(&b->lock);
    if (b->dropped > 0) {
        char s[64];
        snprintf(s, sizeof s, " %llu earlier lines are gone", (unsigned long long)b->dropped);
        text_rows_span(out, R_DIM, s, text_fit(s, strlen(s), width));
        text_rows_end(out, true);
    }
    for (size_t i = 0; i < b->n; i++) {
        lay_line(&b->line[(b->first + i) % LOGBOOK_LINES], th, width, &f, out);
    }
    if (b->n_open > 0) {
        const struct line l = {b->open_wall, LK_OUTPUT, b->n_open, b->open};
        lay_line(&l, th, width, &f, out);
    }
    pthread_mutex_unlock(&b->lock);
    text_flow_free(&f);
}
