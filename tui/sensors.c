/* The thread is started by the first question. It shares the struct with the screen, and
 * the last of the two to let go frees it: a driver that never returns keeps what it
 * uses. The mutex is never held across a reading. */
#include "config.h"
#include "tui/sensors.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/gpu.h"
#include "base/mem.h"

#define PATIENCE_NS 200000000L /* for a reading under way, at the end */

struct sensors {
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t wake, ended;
    char *library;
    bool started, over, quit, asked;
    bool orphan; /* the screen has let go: the thread frees it */
    char device[128];
    int index;
    struct sensors_view view;
};

struct sensors *sensors_create(const char *library)
{
    struct sensors *s = mem_zalloc(sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->ended, NULL);
    s->library = library ? mem_strdup(library) : NULL;
    s->view = (struct sensors_view){NAN, NAN, NAN, NAN, NAN};
    return s;
}

static void destroy(struct sensors *s)
{
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    free(s->library);
    free(s);
}

/* What the thread knows of the GPU between readings. */
struct source {
    struct gpu *gpu;
    bool tried;
    char device[128];
    int index, number;
};

static void read_all(struct source *src, const char *library, const char *device, int index,
                     struct sensors_view *out)
{
    struct gpu_reading r = {NAN, NAN, NAN, NAN};
    if (device[0] && !src->tried) {
        src->tried = true;
        if (gpu_open(library, &src->gpu, NULL) < 0) {
            src->gpu = NULL;
        }
    }
    if (src->gpu && device[0]) {
        if (strcmp(src->device, device) != 0 || src->index != index) {
            snprintf(src->device, sizeof src->device, "%s", device);
            src->index = index;
            src->number = gpu_find(src->gpu, device, index, getenv("CUDA_VISIBLE_DEVICES"));
        }
        gpu_read(src->gpu, src->number, &r);
    }
    const uint64_t resident = mem_resident();
    *out = (struct sensors_view){r.temp_c, r.power_w, r.used, r.total,
                                 resident > 0 ? (double)resident : NAN};
}

static void *run(void *arg)
{
    struct sensors *s = arg;
    struct source src = {.gpu = NULL, .index = -1};
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        if (!s->asked) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        char device[128];
        struct sensors_view v;
        const int index = s->index;
        memcpy(device, s->device, sizeof device);
        s->asked = false;
        pthread_mutex_unlock(&s->lock);
        read_all(&src, s->library, device, index, &v);
        pthread_mutex_lock(&s->lock);
        s->view = v;
    }
    pthread_mutex_unlock(&s->lock);
    gpu_close(src.gpu);
    pthread_mutex_lock(&s->lock);
    const bool orphan = s->orphan;
    s->over = true;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    if (orphan) {
        destroy(s);
    }
    return NULL;
}

/* With the lock. */
static void start(struct sensors *s)
{
    /* signals belong to the main thread; threads inherit the mask */
    sigset_t all;
    sigset_t old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    s->started = pthread_create(&thread, NULL, run, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (s->started) {
        pthread_detach(thread);
    }
}

void sensors_ask(struct sensors *s, const char *device, int index)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->device, sizeof s->device, "%s", device ? device : "");
    s->index = index;
    s->asked = true;
    if (!s->started) {
        start(s);
    }
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void sensors_get(struct sensors *s, struct sensors_view *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->view;
    pthread_mutex_unlock(&s->lock);
}

void sensors_free(struct sensors *s)
{
    if (!s) {
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_signal(&s->wake);
    while (s->started && !s->over &&
           pthread_cond_timedwait(&s->ended, &s->lock, &until) != ETIMEDOUT) {
    }
    const bool mine = !s->started || s->over;
    s->orphan = !mine;
    pthread_mutex_unlock(&s->lock);
    if (mine) {
        destroy(s);
    }
}
