/* Sequences that conversations keep between their jobs, and what is done when sequences or
 * pages run out: what nobody needs now goes first. */
#include "config.h"
#include "sched/inside.h"

#include <stdlib.h>

#include "base/mem.h"

void lives_sweep(struct sched *s)
{
    for (size_t i = 0; i < s->n_lives;) {
        struct live *l = s->lives[i];
        if (l->busy || !atomic_load_explicit(&l->doomed, memory_order_relaxed)) {
            i++;
            continue;
        }
        live_drop(l, s->engine);
        reuse_forget(&s->reuse, l);
        live_unref(l);
        s->lives[i] = s->lives[--s->n_lives];
    }
}

void lives_list(struct sched *s, struct live *l)
{
    if (l->listed) {
        return;
    }
    if (s->n_lives == s->cap_lives) {
        s->cap_lives = s->cap_lives ? s->cap_lives * 2 : 16;
        s->lives = mem_realloc(s->lives, s->cap_lives * sizeof *s->lives);
    }
    live_ref(l);
    s->lives[s->n_lives++] = l;
    l->listed = true;
}

static struct live *longest_idle(struct sched *s)
{
    struct live *best = NULL;
    for (size_t i = 0; i < s->n_lives; i++) {
        struct live *l = s->lives[i];
        if (!l->busy && l->seq >= 0 && (!best || l->used < best->used)) {
            best = l;
        }
    }
    return best;
}

/* Pages have run out: kept states go first, also one that is being written, then what idle
 * conversations hold, then what is being read of them. */
bool lives_make_pages(void *ctx)
{
    struct sched *s = ctx;
    if (prefix_reclaim(&s->reuse.prefix) || reuse_give_up(&s->reuse)) {
        return true;
    }
    struct live *l = longest_idle(s);
    if (l) {
        live_drop(l, s->engine);
    }
    return l != NULL || moves_clear(s, true);
}

int lives_open_seq(struct sched *s, int *seq, struct err *e)
{
    for (;;) {
        int rc = engine_seq_open(s->engine, seq, e);
        if (rc != QE_BUSY) {
            return rc;
        }
        struct live *l = longest_idle(s);
        if (!l) {
            return rc;
        }
        reuse_park(&s->reuse, l);
    }
}

int lives_idle_pages(const struct sched *s)
{
    int n = 0;
    for (size_t i = 0; i < s->n_lives; i++) {
        const struct live *l = s->lives[i];
        n += !l->busy && l->seq >= 0 ? engine_seq_pages(s->engine, l->seq) : 0;
    }
    return n;
}

void lives_drop_all(struct sched *s)
{
    for (size_t i = 0; i < s->n_lives; i++) {
        live_drop(s->lives[i], s->engine);
        live_unref(s->lives[i]);
    }
    free(s->lives);
    s->lives = NULL;
    s->n_lives = 0;
}
