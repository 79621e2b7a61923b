/* The thread that searches what was said. It holds the question as a number: a search whose
 * number is not the latest any more ends itself. */
#include "config.h"
#include "conv/finder.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "conv/chat.h"

_Static_assert(sizeof FOUND_ON == sizeof CATALOG_FOUND_ON, "the marks are the catalogue's");

struct finder {
    struct conv *conv;
    int fd; /* eventfd, written when an answer is there */
    pthread_t thread;
    bool started; /* the reader's thread */

    atomic_uint_least64_t latest; /* number of the question; a search of another one ends */

    pthread_mutex_t lock; /* all below */
    pthread_cond_t work;
    struct buf words;
    bool asked, quit;
    bool done; /* answer is that of the latest question */
    struct finding answer;
};

void finding_fini(struct finding *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->v[i].around);
    }
    free(f->v);
    buf_free(&f->words);
    memset(f, 0, sizeof *f);
}

/* One search. The thread. */
struct seeking {
    struct finder *f;
    uint64_t number;
    struct finding out;
};

static bool outdated(void *ctx)
{
    const struct seeking *s = ctx;
    return atomic_load_explicit(&s->f->latest, memory_order_relaxed) != s->number;
}

#define BEFORE_MOST 160 /* bytes of a place before its first found word */
#define AROUND_MOST 600

/* A place, also where a "word" is a line of a thousand letters. The caller frees it. */
static char *bounded(const char *around)
{
    const char *mark = strstr(around, FOUND_ON);
    size_t from = mark && mark - around > BEFORE_MOST ? (size_t)(mark - around) - BEFORE_MOST : 0;
    while (from > 0 && ((unsigned char)around[from] & 0xC0) == 0x80) {
        from++;
    }
    const size_t n = strlen(around + from);
    return mem_strndup(around + from,
                       n > AROUND_MOST ? utf8_complete_prefix(around + from, AROUND_MOST) : n);
}

static bool take_hit(void *ctx, const struct catalog_hit *h)
{
    struct seeking *s = ctx;
    struct finding *o = &s->out;
    o->v = mem_realloc(o->v, (o->n + 1) * sizeof *o->v);
    o->v[o->n++] = (struct found){.conversation = h->conv,
                                  .turn = h->turn,
                                  .user = h->role != CAT_ASSISTANT,
                                  .around = bounded(h->around),
                                  .more = h->more};
    return true;
}

static void seek(struct seeking *s)
{
    struct store *store = NULL;
    struct finding *o = &s->out;
    int rc = conv_open_store(s->f->conv, &store, NULL, &o->err);
    rc = rc < 0
             ? rc
             : catalog_hits(store_catalog(store), o->words.data ? o->words.data : "", o->words.len,
                            FOUND_MOST, FOUND_EACH, outdated, take_hit, s, &o->cut, &o->err);
    o->err.code = rc;
    store_close(store);
}

static void *finder_thread(void *arg)
{
    struct finder *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->asked && !f->quit) {
            clock_cond_wait(&f->work, &f->lock);
        }
        if (f->quit) {
            break;
        }
        f->asked = false;
        struct seeking s = {.f = f, .number = atomic_load(&f->latest)};
        buf_add(&s.out.words, f->words.data ? f->words.data : "", f->words.len);
        pthread_mutex_unlock(&f->lock);
        seek(&s);
        pthread_mutex_lock(&f->lock);
        if (outdated(&s)) {
            finding_fini(&s.out);
            continue;
        }
        finding_fini(&f->answer);
        f->answer = s.out;
        f->done = true;
        const uint64_t one = 1;
        const ssize_t rc = write(f->fd, &one, sizeof one);
        (void)rc; /* EAGAIN: it is readable anyway */
    }
    pthread_mutex_unlock(&f->lock);
    clock_leave();
    return NULL;
}

struct finder *finder_create(struct conv *c)
{
    struct finder *f = mem_zalloc(sizeof *f);
    f->conv = c;
    f->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    return f;
}

void finder_free(struct finder *f)
{
    if (!f) {
        return;
    }
    atomic_fetch_add(&f->latest, 1);
    pthread_mutex_lock(&f->lock);
    f->quit = true;
    clock_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
    if (f->started) {
        clock_leave();
        pthread_join(f->thread, NULL);
        clock_enter();
    }
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->work);
    finding_fini(&f->answer);
    buf_free(&f->words);
    if (f->fd >= 0) {
        close(f->fd);
    }
    free(f);
}

int finder_fd(const struct finder *f)
{
    return f->fd;
}

static bool start(struct finder *f)
{
    sigset_t all, old;
    if (f->started) {
        return true;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    clock_enter();
    f->started = pthread_create(&f->thread, NULL, finder_thread, f) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!f->started) {
        clock_leave();
    }
    return f->started;
}

/* The question from now on; none when words is NULL. */
static void set_question(struct finder *f, const char *words, size_t n)
{
    uint64_t old = 0;
    pthread_mutex_lock(&f->lock);
    atomic_fetch_add(&f->latest, 1);
    finding_fini(&f->answer);
    f->done = false;
    f->asked = words != NULL;
    buf_truncate(&f->words, 0);
    buf_add(&f->words, words ? words : "", n);
    const ssize_t rc = read(f->fd, &old, sizeof old);
    (void)rc; /* EAGAIN: nothing was told */
    clock_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
}

void finder_ask(struct finder *f, const char *words, size_t n)
{
    if (f->fd >= 0 && start(f)) {
        set_question(f, words, n);
    } else { /* told like any other failure */
        pthread_mutex_lock(&f->lock);
        finding_fini(&f->answer);
        buf_add(&f->answer.words, words, n);
        (void)err_set(&f->answer.err, QE_IO, "texts cannot be searched: no thread for it");
        f->done = true;
        pthread_mutex_unlock(&f->lock);
    }
}

void finder_drop(struct finder *f)
{
    set_question(f, NULL, 0);
}

bool finder_take(struct finder *f, struct finding *out)
{
    uint64_t old = 0;
    pthread_mutex_lock(&f->lock);
    const bool done = f->done;
    if (done) {
        *out = f->answer;
        memset(&f->answer, 0, sizeof f->answer);
        f->done = false;
        const ssize_t rc = read(f->fd, &old, sizeof old);
        (void)rc;
    }
    pthread_mutex_unlock(&f->lock);
    return done;
}
