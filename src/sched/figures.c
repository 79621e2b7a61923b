/* What the screen and the metrics show of the scheduler, copied after every turn. */
#include "config.h"
#include "sched/inside.h"

#include <string.h>

#include "sched/job.h"

static void add_seq(const struct sched *s, struct view_kv *v, int seq, int64_t tag, bool busy)
{
    if (v->n == VIEW_KV_SEQS) {
        v->more++;
        return;
    }
    v->seq[v->n++] = (struct view_kv_seq){.tag = tag,
                                          .tokens = engine_seq_len(s->engine, seq),
                                          .pages = engine_seq_pages(s->engine, seq),
                                          .busy = busy};
}

static int64_t tag_of(const struct live *l)
{
    return atomic_load_explicit(&l->tag, memory_order_relaxed);
}

static void publish_kv(struct sched *s, const struct engine_kept *kept)
{
    struct view_kv v;
    memset(&v, 0, sizeof v);
    v.pages = kept->pages;
    v.pages_free = kept->pages_free;
    v.pages_kept = kept->pages_kept;
    v.page_tokens = kept->page_tokens;
    v.page_bytes = kept->page_bytes;
    for (int i = 0; i < ROWS; i++) {
        const struct job *j = s->slots[i].job;
        if (j && !s->slots[i].filling) {
            add_seq(s, &v, s->slots[i].seq, j->live ? tag_of(j->live) : j->tag, true);
        }
    }
    for (size_t i = 0; i < s->n_lives; i++) {
        const struct live *l = s->lives[i];
        if (!l->busy && l->seq >= 0) {
            add_seq(s, &v, l->seq, tag_of(l), false);
        }
    }
    snap_put(&s->kv, &v, sizeof v);
}

void figures_publish(struct sched *s)
{
    int running = 0, idle = 0;
    for (int i = 0; i < ROWS; i++) {
        running += s->slots[i].job != NULL;
    }
    for (size_t i = 0; i < s->n_lives; i++) {
        idle += !s->lives[i]->busy && s->lives[i]->seq >= 0;
    }
    const struct engine_kept kept = engine_kept(s->engine);
    s->count.running = running;
    s->count.idle_lives = idle;
    s->count.gave_way = (int)s->n_waiting;
    s->count.gave_way_bytes = s->swapped;
    s->count.kept = kept.n;
    s->count.kept_bytes = kept.bytes;
    s->count.pages = kept.pages;
    s->count.pages_free = kept.pages_free;
    s->count.pages_kept = kept.pages_kept;
    snap_put(&s->snap, &s->count, sizeof s->count);
    publish_kv(s, &kept);
}
