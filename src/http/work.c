/* A bounded line of tasks and the threads that take from it. */
#include "config.h"
#include "http/work.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/mem.h"

struct work {
    void (*fn)(void *ctx, void *task);
    void *ctx;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t news;
    void **line; /* a ring */
    size_t most, first, n;
    bool closed;
    pthread_t *threads;
    int n_threads;
};

static void *work_thread(void *arg)
{
    struct work *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n == 0 && !w->closed) {
            pthread_cond_wait(&w->news, &w->lock);
        }
        if (w->n == 0) {
            break;
        }
        void *task = w->line[w->first];
        w->first = (w->first + 1) % w->most;
        w->n--;
        pthread_mutex_unlock(&w->lock);
        w->fn(w->ctx, task);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int work_create(int threads, size_t most, void (*fn)(void *ctx, void *task), void *ctx,
                struct work **out, struct err *e)
{
    struct work *w = mem_zalloc(sizeof *w);
    w->fn = fn;
    w->ctx = ctx;
    w->most = most;
    w->line = mem_array(most, sizeof *w->line);
    w->threads = mem_array((size_t)threads, sizeof *w->threads);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->news, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = 0;
    for (int i = 0; i < threads && rc == 0; i++) {
        rc = pthread_create(&w->threads[i], NULL, work_thread, w);
        w->n_threads += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        work_free(w);
        return err_sys(e, QE_NOMEM, rc, "cannot start the listener's threads");
    }
    *out = w;
    return 0;
}

bool work_put(struct work *w, void *task)
{
    pthread_mutex_lock(&w->lock);
    const bool room = w->n < w->most && !w->closed;
    if (room) {
        w->line[(w->first + w->n) % w->most] = task;
        w->n++;
        pthread_cond_signal(&w->news);
    }
    pthread_mutex_unlock(&w->lock);
    return room;
}

void work_close(struct work *w)
{
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++) {
        pthread_join(w->threads[i], NULL);
    }
    w->n_threads = 0;
}

void work_free(struct work *w)
{
    if (w) {
        work_close(w);
        pthread_cond_destroy(&w->news);
        pthread_mutex_destroy(&w->lock);
        free(w->line);
        free(w->threads);
        free(w);
    }
}
