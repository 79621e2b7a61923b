/* A conversation without a model: the words of the prompt choose a scripted
 * answer, so that a screen test sees the same text and the same order of
 * events in every run. FAKE_LOAD=fail makes loading fail, FAKE_LOAD=slow makes
 * it last until the first message. Several threads play the engine, FAKE_SLOTS of
 * them (4): so many conversations are answered at a time. */
#include "config.h"
#include "conv/conv.h"
#include "conv/finder.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

struct node {
    struct conv_event ev;
    struct node *next;
};

struct chat {
    struct conv *conv;
    struct view_chat view; /* under conv->lock */
    atomic_bool stop, busy;
    char settings[256];
    size_t messages;        /* of the conversation; under conv->lock */
    uint64_t prompt_tokens; /* of all its turns; under conv->lock */
    char *prompt;           /* waiting for the engine; under conv->lock */
    size_t n_prompt;
    bool aside; /* … and is no part of the conversation; under conv->lock */
    struct buf draft;
    bool freed;
};

#define CHATS_MAX 64
#define SLOTS_MAX 8

struct conv {
    pthread_t thread[SLOTS_MAX];
    int n_threads;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int fd;
    struct node *first, *last;
    struct view_model model;
    struct view_spec spec;        /* under lock */
    struct chat *chat[CHATS_MAX]; /* freed ones stay until the end */
    size_t n_chats;
    bool loaded;
    bool closing, fail, slow;
};

struct conv_opts conv_opts_default(void)
{
    struct conv_opts o;
    memset(&o, 0, sizeof o);
    o.think = -1;
    return o;
}

void conv_event_fini(struct conv_event *ev)
{
    buf_free(&ev->text);
}

static void nap(int ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static void post(struct conv *c, struct conv_event ev, const char *p, size_t n)
{
    struct node *k = mem_zalloc(sizeof *k);
    k->ev = ev;
    buf_add(&k->ev.text, p, n);
    pthread_mutex_lock(&c->lock);
    if (c->last) {
        c->last->next = k;
    } else {
        c->first = k;
    }
    c->last = k;
    pthread_mutex_unlock(&c->lock);
    uint64_t one = 1;
    (void)!write(c->fd, &one, sizeof one);
}

static void post_text(struct chat *t, enum conv_event_kind kind, const char *p, size_t n)
{
    struct conv_event ev = {.kind = kind, .chat = t};
    pthread_mutex_lock(&t->conv->lock);
    t->view.output_tokens++;
    t->view.thought_tokens += kind == CE_THOUGHT;
    t->view.context_used++;
    t->view.tok_s = 100;
    struct view_spec *s = &t->conv->spec;
    s->rounds[VS_MTP]++;
    s->tokens[VS_MTP] += 3;
    for (int i = 0; i < 3; i++) {
        s->drafted[VS_MTP][i]++;
        s->accepted[VS_MTP][i] += i < 2;
    }
    s->draft_s += 0.002;
    s->verify_s += 0.012;
    s->host_s += 0.001;
    pthread_mutex_unlock(&t->conv->lock);
    post(t->conv, ev, p, n);
}

static const char markdown[] =
    "# Columns\n\nThe column **drifts** because a tab is *one* byte. Two changes:\n\n"
    "1. keep byte offsets in the token, compute columns only when printing\n"
    "2. make `next_token` pure\n   - no globals\n   - no hidden state\n\n"
    "```c\nstatic size_t column_of(const char *line, size_t byte)\n{\n    size_t col = "
    "0;\n}\n```\n\n"
    "| name | cells | note |\n|:-----|------:|------|\n| tab | 8 | up to the next stop |\n"
    "| 漢字 | 4 | two each |\n\n> quoted once\n\nSee [the manual](https://example.org/m) for "
    "more.\n";

static const char hostile[] = "title \x1b]0;owned\x07 clear \x1b[2J bidi \xe2\x80\xae"
                              "abc c1 \xc2\x9b"
                              "31m bad \xff\xfe end\r\n";

/* Sends text in small pieces of whole characters. */
static void stream(struct chat *t, enum conv_event_kind kind, const char *s, size_t n, int ms)
{
    size_t i = 0;
    while (i < n && !atomic_load(&t->stop)) {
        size_t k = n - i < 7 ? n - i : 7;
        while (i + k < n && ((unsigned char)s[i + k] & 0xC0) == 0x80) {
            k++;
        }
        post_text(t, kind, s + i, k);
        i += k;
        if (ms) {
            nap(ms);
        }
    }
}

/* Whether what is said cannot be saved: while the file $FAKE_FULL is there. */
static bool disk_full(void)
{
    const char *mark = getenv("FAKE_FULL");
    return mark && access(mark, F_OK) == 0;
}

static void answer(struct chat *t, const char *p, size_t n)
{
    struct conv_event ev = {.kind = CE_PREFILL, .chat = t, .total = 100};
    char line[160];
    for (ev.done = 50; ev.done <= 100; ev.done += 50) {
        ev.progress = ev.done / 100.0;
        post(t->conv, ev, "", 0);
    }
    ev.kind = CE_END;
    ev.reason = CE_R_STOP;
    const char *why = "";
    if (strncmp(p, "md", 2) == 0) {
        stream(t, CE_TEXT, markdown, sizeof markdown - 1, 0);
    } else if (strncmp(p, "think", 5) == 0) {
        stream(t, CE_THOUGHT, "The user wants a thought.\nHere it is.\n", 38, 1);
        stream(t, CE_TEXT, "The answer after the thought.", 29, 0);
    } else if (strncmp(p, "hostile", 7) == 0) {
        stream(t, CE_TEXT, hostile, sizeof hostile - 1, 0);
    } else if (strncmp(p, "fail", 4) == 0) {
        ev.reason = CE_R_ERROR;
        why = "the engine lost its device";
    } else if (strncmp(p, "lines ", 6) == 0) {
        int count = atoi(p + 6);
        for (int i = 1; i <= count && !atomic_load(&t->stop); i++) {
            snprintf(line, sizeof line, "line %d of %d\n", i, count);
            stream(t, CE_TEXT, line, strlen(line), 0);
        }
    } else if (strncmp(p, "forever", 7) == 0) {
        for (int i = 1; !atomic_load(&t->stop); i++) {
            snprintf(line, sizeof line, "word%d ", i);
            stream(t, CE_TEXT, line, strlen(line), 5);
        }
    } else if (strncmp(p, "wait", 4) == 0) {
        while (!atomic_load(&t->stop)) {
            nap(5);
        }
    } else if (strncmp(p, "print ", 6) == 0) { /* as a library would */
        for (int i = 1; i <= atoi(p + 6); i++) {
            fprintf(i % 2 ? stderr : stdout, "library line %d \x1b[2J\n", i);
        }
        stream(t, CE_TEXT, "It printed.", 11, 0);
    } else if (strncmp(p, "notice", 6) == 0) {
        const struct conv_event news = {.kind = CE_NOTICE, .chat = t};
        post(t->conv, news, "the disk is nearly full", 23);
        stream(t, CE_TEXT, "It was said.", 12, 0);
    } else if (strncmp(p, "crash", 5) == 0) {
        fprintf(stderr, "the library's last words\n");
        abort();
    } else if (strncmp(p, "count", 5) == 0) {
        pthread_mutex_lock(&t->conv->lock);
        snprintf(line, sizeof line, "%zu messages were before this one", t->messages);
        pthread_mutex_unlock(&t->conv->lock);
        stream(t, CE_TEXT, line, strlen(line), 0);
    } else if (strncmp(p, "settings", 8) == 0) {
        stream(t, CE_TEXT, t->settings, strlen(t->settings), 0);
    } else {
        unsigned sum = 0;
        size_t rows = 1;
        for (size_t i = 0; i < n; i++) {
            sum = sum * 31 + (unsigned char)p[i];
            rows += p[i] == '\n';
        }
        snprintf(line, sizeof line, "got %zu bytes, %zu lines, sum %08x", n, rows, sum);
        stream(t, CE_TEXT, line, strlen(line), 0);
    }
    if (atomic_load(&t->stop)) {
        ev.reason = CE_R_CANCELLED;
    }
    pthread_mutex_lock(&t->conv->lock);
    t->view.saved = !disk_full();
    t->view.saved_at = clock_now(clock_real());
    t->messages += t->view.output_tokens > 0 && !t->aside ? 2 : 0;
    pthread_mutex_unlock(&t->conv->lock);
    atomic_store(&t->busy, false);
    post(t->conv, ev, why, strlen(why));
}

/* A chat whose prompt waits, with the lock; NULL: none. */
static struct chat *waiting(const struct conv *c)
{
    for (size_t i = 0; i < c->n_chats; i++) {
        if (c->chat[i]->prompt) {
            return c->chat[i];
        }
    }
    return NULL;
}

static void load(struct conv *c)
{
    struct conv_event ev = {.kind = CE_LOADING};
    for (int i = 0; i <= 2; i++) {
        ev.progress = i / 2.0;
        post(c, ev, "", 0);
    }
    if (c->fail) {
        static const char why[] = "models/none.qsr: there is no such file";
        ev.kind = CE_FAILED;
        post(c, ev, why, sizeof why - 1);
    }
    pthread_mutex_lock(&c->lock);
    while (c->slow && !waiting(c) && !c->closing) {
        pthread_cond_wait(&c->wake, &c->lock);
    }
    snprintf(c->model.name, sizeof c->model.name, "fake");
    snprintf(c->model.tier, sizeof c->model.tier, "q8");
    const bool gpu = getenv("FAKE_NVML") != NULL;
    snprintf(c->model.backend, sizeof c->model.backend, gpu ? "cuda" : "cpu");
    snprintf(c->model.device, sizeof c->model.device, gpu ? "NVIDIA Fake" : "script");
    c->model.gpu = gpu ? 0 : -1;
    c->model.ctx = 4096;
    c->model.ready = true;
    pthread_mutex_unlock(&c->lock);
    ev.kind = CE_READY;
    if (!c->fail) {
        post(c, ev, "", 0);
    }
    pthread_mutex_lock(&c->lock);
    c->loaded = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

static void *engine(void *arg)
{
    struct conv *c = arg;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (!c->closing && (!c->loaded || !waiting(c))) {
            pthread_cond_wait(&c->wake, &c->lock);
        }
        struct chat *t = c->closing ? NULL : waiting(c);
        char *p = NULL;
        size_t n = 0;
        if (t) {
            p = t->prompt;
            n = t->n_prompt;
            t->prompt = NULL;
            t->view.prompt_tokens = (int)(n / 4 + 1);
            t->view.context_used += (int)(n / 4 + 1);
            t->view.output_tokens = 0;
            t->view.thought_tokens = 0;
            t->view.prefill_s = t->view.prompt_tokens / 1000.0;
            t->prompt_tokens += (uint64_t)t->view.prompt_tokens;
        }
        pthread_mutex_unlock(&c->lock);
        if (!t) {
            return NULL;
        }
        answer(t, p, n);
        free(p);
    }
}

static void *loader(void *arg)
{
    load(arg);
    return engine(arg);
}

int conv_open(const struct conv_opts *o, struct conv **out, struct err *e)
{
    struct conv *c = mem_zalloc(sizeof *c);
    const char *load = getenv("FAKE_LOAD");
    (void)o;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    c->fail = load && strcmp(load, "fail") == 0;
    c->slow = load && strcmp(load, "slow") == 0;
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const char *slots = getenv("FAKE_SLOTS");
    int want = slots ? atoi(slots) : 4;
    want = want < 1 ? 1 : want > SLOTS_MAX ? SLOTS_MAX : want;
    while (c->fd >= 0 && c->n_threads < want &&
           pthread_create(&c->thread[c->n_threads], NULL, c->n_threads ? engine : loader, c) == 0) {
        c->n_threads++;
    }
    if (c->n_threads < want) {
        free(c);
        return err_set(e, QE_IO, "cannot start the scripted engine");
    }
    *out = c;
    return 0;
}

int conv_end(struct conv *c, struct err *e)
{
    struct conv_event ev;
    bool lost = false;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    for (size_t i = 0; i < c->n_chats; i++) {
        lost = lost || (c->chat[i]->messages > 0 && !c->chat[i]->view.saved && disk_full());
        atomic_store(&c->chat[i]->stop, true);
    }
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->n_threads; i++) {
        pthread_join(c->thread[i], NULL);
    }
    while (conv_next(c, &ev)) {
        conv_event_fini(&ev);
    }
    close(c->fd);
    for (size_t i = 0; i < c->n_chats; i++) {
        free(c->chat[i]->prompt);
        buf_free(&c->chat[i]->draft);
        free(c->chat[i]);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->wake);
    free(c);
    return lost ? err_set(e, QE_IO, "the conversation is not saved: the disk is full") : 0;
}

int conv_fd(const struct conv *c)
{
    return c->fd;
}

bool conv_next(struct conv *c, struct conv_event *ev)
{
    uint64_t count = 0;
    pthread_mutex_lock(&c->lock);
    struct node *k = c->first;
    while (k && k->ev.chat && k->ev.chat->freed) { /* nobody is told of it any more */
        c->first = k->next;
        c->last = k->next ? c->last : NULL;
        conv_event_fini(&k->ev);
        free(k);
        k = c->first;
    }
    if (k) {
        c->first = k->next;
        c->last = k->next ? c->last : NULL;
        *ev = k->ev;
    } else {
        (void)!read(c->fd, &count, sizeof count);
    }
    pthread_mutex_unlock(&c->lock);
    free(k);
    return k != NULL;
}

bool conv_wait(struct conv *c, struct conv_event *ev, int timeout_ms)
{
    struct pollfd p = {c->fd, POLLIN, 0};
    return conv_next(c, ev) || (poll(&p, 1, timeout_ms) > 0 && conv_next(c, ev));
}

void conv_view_model(const struct conv *c, struct view_model *out)
{
    struct conv *w = (struct conv *)c;
    pthread_mutex_lock(&w->lock);
    *out = c->model;
    pthread_mutex_unlock(&w->lock);
}

void conv_view_load(const struct conv *c, struct view_load *out)
{
    struct conv *w = (struct conv *)c;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&w->lock);
    out->spec = w->spec;
    for (size_t i = 0; i < w->n_chats; i++) {
        out->prompt_tokens += w->chat[i]->prompt_tokens;
        out->running += atomic_load(&w->chat[i]->busy);
    }
    out->prefilled = out->prompt_tokens;
    out->prefill_s = (double)out->prefilled / 1000;
    pthread_mutex_unlock(&w->lock);
}

/* A cache of 100 pages of 64 tokens, 1 MB each; beside the chat another conversation. */
void conv_view_kv(const struct conv *c, struct view_kv *out)
{
    struct conv *w = (struct conv *)c;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&w->lock);
    if (w->model.ready) {
        out->pages = 100;
        out->page_tokens = 64;
        out->page_bytes = 1 << 20;
        out->pages_kept = 5;
        out->pages_free = 100 - 19 - out->pages_kept;
        for (size_t i = 0; i < w->n_chats && i < 4; i++) {
            const struct chat *t = w->chat[i];
            const int tokens = t->view.context_used < 1024 ? t->view.context_used : 1024;
            if (tokens > 0 && !t->freed) {
                out->seq[out->n++] = (struct view_kv_seq){
                    t->view.conversation, tokens, (tokens + 63) / 64, atomic_load(&t->busy)};
                out->pages_free -= (tokens + 63) / 64;
            }
        }
        out->seq[out->n++] = (struct view_kv_seq){8, 1200, 19, false};
    }
    pthread_mutex_unlock(&w->lock);
}

void chat_view(const struct chat *t, struct view_chat *out)
{
    pthread_mutex_lock(&t->conv->lock);
    *out = t->view;
    out->busy = atomic_load(&t->busy);
    pthread_mutex_unlock(&t->conv->lock);
}

struct chat *chat_create(struct conv *c)
{
    struct chat *t = mem_zalloc(sizeof *t);
    t->conv = c;
    snprintf(t->settings, sizeof t->settings, "settings:");
    pthread_mutex_lock(&c->lock);
    if (c->n_chats == CHATS_MAX) {
        abort(); /* a test that needs more */
    }
    c->chat[c->n_chats++] = t;
    pthread_mutex_unlock(&c->lock);
    return t;
}

void chat_free(struct chat *t)
{
    atomic_store(&t->stop, true); /* conv_end frees it, after its threads */
    pthread_mutex_lock(&t->conv->lock);
    t->freed = true;
    pthread_mutex_unlock(&t->conv->lock);
}

static int take_prompt(struct chat *t, const char *text, size_t n, bool aside, struct err *e)
{
    pthread_mutex_lock(&t->conv->lock);
    const bool full = t->prompt != NULL;
    pthread_mutex_unlock(&t->conv->lock);
    if (!full) {
        post(t->conv, (struct conv_event){.kind = CE_QUEUED, .chat = t}, "", 0);
        pthread_mutex_lock(&t->conv->lock);
        atomic_store(&t->stop, false);
        atomic_store(&t->busy, true);
        t->prompt = mem_strndup(text, n);
        t->n_prompt = n;
        t->aside = aside;
        pthread_cond_broadcast(&t->conv->wake);
        pthread_mutex_unlock(&t->conv->lock);
    }
    return full ? err_set(e, QE_BUSY, "a message is waiting already") : 0;
}

int chat_send(struct chat *t, const char *text, size_t n, struct err *e)
{
    return take_prompt(t, text, n, false, e);
}

int chat_aside(struct chat *t, const char *text, size_t n, struct err *e)
{
    return take_prompt(t, text, n, true, e);
}

int conv_list(struct conv *c, int limit, bool (*fn)(void *ctx, const struct conv_stored *s),
              void *ctx, struct err *e)
{
    const int64_t now = (int64_t)time(NULL);
    const struct conv_stored list[] = {
        {.id = 8,
         .updated = now - 120,
         .title = "locked away",
         .turns = 2,
         .pinned = true,
         .recovered = -1},
        {.id = 7,
         .updated = now - 3 * 86400,
         .title = "An old question?",
         .turns = 1,
         .state_bytes = 4096,
         .recovered = -1},
        {.id = 6,
         .updated = now - 9 * 86400,
         .title = "bad \x1b[2J title",
         .turns = -1,
         .recovered = 12},
    };
    (void)c;
    (void)e;
    for (int i = 0; i < 3 && i < limit && fn(ctx, &list[i]); i++) {
    }
    return 0;
}

/* Conversation 7 has two branches. */
int conv_branches(struct conv *c, const int64_t *conversation, size_t n,
                  bool (*fn)(void *ctx, const struct conv_branch *b), void *ctx, struct err *e)
{
    (void)c;
    (void)e;
    for (size_t i = 0; i < n; i++) {
        if (conversation[i] == 7) {
            const struct conv_branch one = {.conversation = 7,
                                            .tip = 2,
                                            .number = 1,
                                            .turns = 1,
                                            .head = "An old question?",
                                            .current = true};
            const struct conv_branch two = {.conversation = 7,
                                            .tip = 4,
                                            .number = 2,
                                            .from = 1,
                                            .turns = 1,
                                            .head = "Another way?"};
            (void)(fn(ctx, &one) && fn(ctx, &two));
        }
    }
    return 0;
}

/* ---- the search of what was said ---- */

struct finder {
    int fd;
    bool done;
    struct finding answer;
};

struct finder *finder_create(struct conv *c)
{
    struct finder *f = mem_zalloc(sizeof *f);
    (void)c;
    f->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return f;
}

void finding_fini(struct finding *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->v[i].around);
    }
    free(f->v);
    buf_free(&f->words);
    memset(f, 0, sizeof *f);
}

void finder_free(struct finder *f)
{
    if (f) {
        finding_fini(&f->answer);
        close(f->fd);
        free(f);
    }
}

int finder_fd(const struct finder *f)
{
    return f->fd;
}

void finder_drop(struct finder *f)
{
    uint64_t old = 0;
    finding_fini(&f->answer);
    f->done = false;
    (void)!read(f->fd, &old, sizeof old);
}

static void found_at(struct finding *f, int64_t conversation, int64_t turn, bool user,
                     const char *around, int more)
{
    f->v = mem_realloc(f->v, (f->n + 1) * sizeof *f->v);
    f->v[f->n++] = (struct found){conversation, turn, user, mem_strdup(around), more};
}

/* "answer" is in both branches of 7, "hostile" in what tries to paint the terminal, "old" in
 * one whose title has it too. */
void finder_ask(struct finder *f, const char *words, size_t n)
{
    const uint64_t one = 1;
    finder_drop(f);
    buf_add(&f->answer.words, words, n);
    const char *w = f->answer.words.data;
    if (strcmp(w, "answer") == 0) {
        found_at(&f->answer, 7, 4, false, "The other " FOUND_ON "answer" FOUND_OFF ".", 0);
        found_at(&f->answer, 7, 2, false, "An old " FOUND_ON "answer" FOUND_OFF ".", 5);
    } else if (strcmp(w, "hostile") == 0) {
        found_at(&f->answer, 6, 9, true,
                 "a \x1b[31m\n\r\x07 red\xE2\x80\xAE " FOUND_ON "hostile" FOUND_OFF
                 " \xFF text " FOUND_ON "hostile",
                 0);
    } else if (strcmp(w, "old") == 0) {
        found_at(&f->answer, 7, 1, true, "An " FOUND_ON "old" FOUND_OFF " question?", 0);
    } else if (strcmp(w, "broken") == 0) {
        (void)err_set(&f->answer.err, QE_IO, "the catalogue cannot be read");
    }
    f->done = true;
    (void)!write(f->fd, &one, sizeof one);
}

bool finder_take(struct finder *f, struct finding *out)
{
    const bool done = f->done;
    if (done) {
        uint64_t old = 0;
        *out = f->answer;
        memset(&f->answer, 0, sizeof f->answer);
        f->done = false;
        (void)!read(f->fd, &old, sizeof old);
    }
    return done;
}

int conv_leads_to(struct conv *c, int64_t conversation, int64_t turn, int64_t at, int64_t *tip,
                  int *before, struct err *e)
{
    (void)c;
    const int64_t branch = turn > 2 ? 4 : 2;
    if (conversation != 7) {
        return err_set(e, QE_NOTFOUND, "conversation %d has no turn %d", (int)conversation,
                       (int)turn);
    }
    *before = turn == 2 || turn == 4;
    *tip = (at == 0 && branch == 2) || at == branch ? at : branch;
    return 0;
}

struct wanted {
    int64_t id;
    bool found;
    bool (*fn)(void *ctx, const struct conv_stored *s);
    void *ctx;
};

static bool wanted_one(void *ctx, const struct conv_stored *s)
{
    struct wanted *w = ctx;
    if (s->id == w->id) {
        w->found = true;
        (void)w->fn(w->ctx, s);
    }
    return !w->found;
}

int conv_get(struct conv *c, int64_t conversation,
             bool (*fn)(void *ctx, const struct conv_stored *s), void *ctx, struct err *e)
{
    struct wanted w = {.id = conversation, .fn = fn, .ctx = ctx};
    (void)conv_list(c, 100, wanted_one, &w, e);
    return w.found ? 0 : err_set(e, QE_NOTFOUND, "there is no such conversation");
}

void chat_draft(struct chat *t, const char *p, size_t n)
{
    pthread_mutex_lock(&t->conv->lock);
    buf_truncate(&t->draft, 0);
    buf_add(&t->draft, p, n);
    pthread_mutex_unlock(&t->conv->lock);
}

const struct buf *chat_draft_of(const struct chat *t)
{
    return &t->draft;
}

void chat_queue(struct chat *t, const struct conv_queued *q, size_t n)
{
    (void)t;
    (void)q;
    (void)n;
}

bool chat_queued(const struct chat *t, size_t i, struct conv_queued *out)
{
    (void)t;
    (void)i;
    (void)out;
    return false;
}

int conv_fork(struct conv *c, int64_t conversation, int64_t *copy, struct err *e)
{
    (void)c;
    (void)e;
    *copy = 7;
    return conversation == 8 ? 0 : err_set(e, QE_NOTFOUND, "there is no such conversation");
}

int conv_find(struct conv *c, const char *what, int64_t *conversation, struct err *e)
{
    (void)c;
    *conversation = atoll(what);
    return *conversation > 0 ? 0
                             : err_set(e, QE_NOTFOUND,
                                       "there is no conversation \"%s\"; similar: 7 \"An old "
                                       "question?\" (quasar sessions list)",
                                       what);
}

void conv_draft_adopt(struct conv *c, struct buf *out)
{
    (void)c;
    (void)out;
}

int conv_elsewhere(const struct conv *c, int64_t conversation)
{
    (void)c;
    return conversation == 8 ? 1 : 0;
}

int conv_disk(struct conv *c, struct conv_disk *out, struct err *e)
{
    (void)c;
    (void)e;
    *out = (struct conv_disk){200000000, 40800000000, 200000000000};
    return 0;
}

int conv_set_budget(struct conv *c, uint64_t budget, uint64_t *bytes, struct err *e)
{
    (void)c;
    (void)e;
    *bytes = budget < 5000 ? 4096 : 0;
    return 0;
}

int conv_rename(struct conv *c, int64_t conversation, const char *name, struct err *e)
{
    (void)c;
    return conversation == 7 && strcmp(name, "taken") != 0
               ? 0
               : err_set(e, QE_USAGE, "conversation 8 is named \"%s\" already", name);
}

int conv_pin(struct conv *c, int64_t conversation, bool pinned, struct err *e)
{
    (void)c;
    (void)pinned;
    return conversation == 7 ? 0 : err_set(e, QE_NOTFOUND, "there is no such conversation");
}

int conv_forget(struct conv *c, int64_t conversation, uint64_t *bytes, struct err *e)
{
    (void)c;
    *bytes = 4096;
    return conversation == 7 ? 0 : err_set(e, QE_NOTFOUND, "there is no such conversation");
}

int chat_resume_at(struct chat *t, int64_t conversation, int64_t tip,
                   void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e)
{
    const bool other = tip == 4;
    const char *q = other ? "Another way?" : "An old question?";
    const char *answer = other ? "The other answer." : "An old answer.";
    const struct conv_turn turns[] = {
        {.user = true, .text = q, .text_n = strlen(q), .thought = ""},
        {.text = answer,
         .text_n = strlen(answer),
         .thought = "Hm.",
         .thought_n = 3,
         .finish = other ? "stop" : "interrupted",
         .tokens = 9,
         .thought_tokens = 5,
         .thought_s = -1},
    };
    if (conversation != 7) {
        return err_set(e, QE_BUSY, "conversation %d is open in another quasar (process 1)",
                       (int)conversation);
    }
    for (size_t i = 0; i < 2; i++) {
        fn(ctx, &turns[i]);
    }
    pthread_mutex_lock(&t->conv->lock);
    t->messages = 2;
    t->view.conversation = conversation;
    t->view.turn = other ? 4 : 2;
    t->view.saved = true;
    buf_truncate(&t->draft, 0);
    pthread_mutex_unlock(&t->conv->lock);
    return 0;
}

int chat_resume(struct chat *t, int64_t conversation,
                void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e)
{
    return chat_resume_at(t, conversation, 0, fn, ctx, e);
}

void chat_stop(struct chat *t)
{
    atomic_store(&t->stop, true);
}

void chat_clear(struct chat *t)
{
    pthread_mutex_lock(&t->conv->lock);
    memset(&t->view, 0, sizeof t->view);
    t->messages = 0;
    pthread_mutex_unlock(&t->conv->lock);
}

void chat_flush(struct chat *t)
{
    const struct conv_event ev = {.kind = CE_STORED, .chat = t};
    const char *why = "";
    pthread_mutex_lock(&t->conv->lock);
    t->view.saved = t->view.saved || (t->messages > 0 && !disk_full());
    if (t->messages > 0 && !t->view.saved) {
        why = "the disk is full";
    }
    pthread_mutex_unlock(&t->conv->lock);
    post(t->conv, ev, why, strlen(why));
}

void chat_rewind(struct chat *t, size_t keep)
{
    pthread_mutex_lock(&t->conv->lock);
    t->messages = keep < t->messages ? keep : t->messages;
    pthread_mutex_unlock(&t->conv->lock);
}

bool chat_busy(const struct chat *t)
{
    return atomic_load(&t->busy);
}

bool chat_get(const struct chat *t, const char *key, char out[64])
{
    char what[80];
    snprintf(what, sizeof what, " %s=", key);
    const char *at = strstr(t->settings, what);
    snprintf(out, 64, "%.*s", at ? (int)strcspn(at + strlen(what), " ") : 0,
             at ? at + strlen(what) : "");
    return at != NULL;
}

int chat_set(struct chat *t, const char *key, const char *value, struct err *e)
{
    size_t n = strlen(t->settings);
    if (strcmp(key, "nonsense") == 0) {
        return err_set(e, QE_USAGE,
                       "there is no setting \"%s\"; there are temp, top-k, top-p, min-p, seed, "
                       "max-tokens and effort",
                       key);
    }
    snprintf(t->settings + n, sizeof t->settings - n, " %s=%s", key, value);
    return 0;
}
