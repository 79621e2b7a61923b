/* The thread that has the disk to itself. The store is opened with the first task
 * and opened again after a failure, since what was wrong may be over. */
#include "config.h"
#include "conv/keeper.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "conv/giving.h"

struct keeper {
    pthread_t thread;
    char *dir;
    int wake_fd;

    pthread_mutex_t lock; /* all below */
    uint64_t budget;
    pthread_cond_t work;
    struct keep_task *asked, **asked_end, *done, **done_end;
    bool quit;

    /* the thread */
    struct store *store;
};

void keep_task_free(struct keep_task *t)
{
    if (t) {
        transfer_free(t->copy);
        state_close(t->file);
        free(t);
    }
}

static int save(struct store *s, struct keep_task *t)
{
    struct state_meta m = {.kind = STATE_LIVE, .label = t->label};
    memcpy(m.compat, t->compat, sizeof m.compat);
    m.ids = transfer_ids(t->copy, &m.n_ids);
    struct giving g = {.state = transfer_blob(t->copy)};
    const struct state_part part = {
        .tag = KEEP_PART, .size = g.state.size, .give = giving_next, .ctx = &g};
    return store_save(s, t->turn, &m, &part, 1, &t->err);
}

static int load(struct store *s, struct keep_task *t)
{
    int rc = store_load(s, t->conv, t->turn, t->compat, t->label, &t->file, &t->err);
    if (rc < 0) {
        t->file = NULL;
        return rc;
    }
    const struct state_meta *m = state_meta(t->file);
    if (!state_has(t->file, KEEP_PART, &t->size) || m->kind != STATE_LIVE || m->n_ids == 0) {
        rc = err_set(&t->err, QE_FORMAT, "%s does not hold the state of a conversation",
                     state_path(t->file));
        store_damaged(s, t->file);
    }
    return rc;
}

static int act(struct store *s, struct keep_task *t)
{
    switch (t->what) {
    case KEEP_SAVE:
        return save(s, t);
    case KEEP_LOAD:
        return load(s, t);
    case KEEP_BURY:
        store_damaged(s, t->file);
        break;
    }
    return 0;
}

static void work_on(struct keeper *k, struct keep_task *t, uint64_t budget)
{
    int rc = 0;
    if (!k->store) {
        rc = store_open(k->dir, budget, &k->store, NULL, &t->err);
        k->store = rc < 0 ? NULL : k->store;
    } else {
        store_set_budget(k->store, budget);
    }
    if (rc == 0) {
        rc = act(k->store, t);
    }
    if (rc < 0) {
        t->err.code = rc;
        store_close(k->store);
        k->store = NULL;
    }
}

static void *keeper_thread(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->asked && !k->quit) {
            clock_cond_wait(&k->work, &k->lock);
        }
        struct keep_task *t = k->asked;
        if (!t) {
            break;
        }
        k->asked = t->next;
        k->asked_end = k->asked ? k->asked_end : &k->asked;
        const uint64_t budget = k->budget;
        pthread_mutex_unlock(&k->lock);
        work_on(k, t, budget);
        pthread_mutex_lock(&k->lock);
        t->next = NULL;
        *k->done_end = t;
        k->done_end = &t->next;
        const uint64_t one = 1;
        const ssize_t rc = write(k->wake_fd, &one, sizeof one);
        (void)rc; /* EAGAIN: it is readable anyway */
    }
    pthread_mutex_unlock(&k->lock);
    store_close(k->store);
    clock_leave();
    return NULL;
}

struct keeper *keeper_create(const char *dir, uint64_t budget, int wake_fd)
{
    struct keeper *k = mem_zalloc(sizeof *k);
    k->dir = mem_strdup(dir);
    k->budget = budget;
    k->wake_fd = wake_fd;
    k->asked_end = &k->asked;
    k->done_end = &k->done;
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->work, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    clock_enter();
    const int rc = pthread_create(&k->thread, NULL, keeper_thread, k);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        clock_leave();
        pthread_mutex_destroy(&k->lock);
        pthread_cond_destroy(&k->work);
        free(k->dir);
        free(k);
        return NULL;
    }
    return k;
}

void keeper_close(struct keeper *k)
{
    if (!k) {
        return;
    }
    pthread_mutex_lock(&k->lock);
    k->quit = true;
    clock_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
    clock_leave();
    pthread_join(k->thread, NULL);
    clock_enter();
    for (struct keep_task *t = keeper_take(k); t; t = keeper_take(k)) {
        keep_task_free(t);
    }
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->work);
    free(k->dir);
    free(k);
}

void keeper_set_budget(struct keeper *k, uint64_t budget)
{
    pthread_mutex_lock(&k->lock);
    k->budget = budget;
    pthread_mutex_unlock(&k->lock);
}

void keeper_put(struct keeper *k, struct keep_task *t)
{
    t->next = NULL;
    pthread_mutex_lock(&k->lock);
    *k->asked_end = t;
    k->asked_end = &t->next;
    clock_cond_signal(&k->work);
    pthread_mutex_unlock(&k->lock);
}

struct keep_task *keeper_take(struct keeper *k)
{
    pthread_mutex_lock(&k->lock);
    struct keep_task *t = k->done;
    if (t) {
        k->done = t->next;
        k->done_end = k->done ? k->done_end : &k->done;
    }
    pthread_mutex_unlock(&k->lock);
    return t;
}
