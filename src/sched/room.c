/* Pages for those that run. Admission is optimistic: a job starts when its prompt fits, and its
 * answer grows. When a page is missing and nothing idle can go, somebody gives way: his whole
 * state goes to host memory and comes back when there is room, or, where host memory is short,
 * is computed again from his tokens exactly as it came about. Nobody gives way more than
 * GIVES_WAY times; whoever has comes back only when all that he can ever need is there beside
 * what others of his kind can need, so nothing that waits for room waits for ever. */
#include "config.h"
#include "sched/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sched/job.h"

#define GIVES_WAY 3

int room_pages(const struct sched *s, int tokens)
{
    const int page = engine_kept(s->engine).page_tokens;
    return (tokens + page - 1) / page;
}

bool room_admits(const struct sched *s, int pages)
{
    const struct engine_kept kept = engine_kept(s->engine);
    int running = 0, coming = 0;
    for (int i = 0; i < ROWS; i++) {
        const struct slot *slot = &s->slots[i];
        if (!slot->job) {
            continue;
        }
        running++;
        const int has = slot->filling ? 0 : engine_seq_pages(s->engine, slot->seq);
        const int want = slot->decoding ? 0 : room_pages(s, slot->done + slot_left(slot));
        coming += 1 + (want > has ? want - has : 0);
    }
    return running == 0 ||
           pages + 1 + coming <= kept.pages_free + kept.pages_kept + lives_idle_pages(s);
}

/* ---- who gives way ---- */

/* Whether its state can be kept, or made again. */
static bool can_go(const struct sched *s, const struct slot *slot)
{
    return slot->filling || slot->exact || engine_seq_len(s->engine, slot->seq) == 0 ||
           s->swapped + engine_swap_size(s->engine, slot->seq) <= s->swap_most;
}

/* The screen's come last: somebody looks at them. */
static int rank_of(const struct slot *slot)
{
    return slot->job->screen ? JOB_PRIORITY_MAX + 1 : slot->job->priority;
}

struct slot *room_victim(struct sched *s, const uint64_t *owner)
{
    struct slot *best = NULL;
    for (int i = 0; i < ROWS; i++) {
        struct slot *c = &s->slots[i];
        if (!c->job || c->gave_way >= GIVES_WAY || (owner && c->job->owner != *owner) ||
            !can_go(s, c)) {
            continue;
        }
        const int a = rank_of(c), b = best ? rank_of(best) : 0;
        if (!best || a < b || (a == b && c->job->rank > best->job->rank)) {
            best = c;
        }
    }
    return best;
}

/* Among those that wait, by arrival. */
static void put(struct sched *s, const struct slot *slot)
{
    if (s->n_waiting == s->cap_waiting) {
        s->cap_waiting = s->cap_waiting ? 2 * s->cap_waiting : ROWS;
        s->waiting = mem_realloc(s->waiting, s->cap_waiting * sizeof *s->waiting);
    }
    size_t at = s->n_waiting++;
    for (; at > 0 && s->waiting[at - 1].job->rank > slot->job->rank; at--) {
        s->waiting[at] = s->waiting[at - 1];
    }
    s->waiting[at] = *slot;
}

static void remove_waiting(struct sched *s, size_t i)
{
    memmove(s->waiting + i, s->waiting + i + 1, (s->n_waiting - i - 1) * sizeof *s->waiting);
    s->n_waiting--;
}

static void free_swap(struct sched *s, struct slot *slot)
{
    if (slot->swap) {
        s->swapped -= engine_swap_bytes(s->engine, slot->swap);
        engine_swap_free(s->engine, slot->swap);
        slot->swap = NULL;
    }
}

/* Keeps the state, or sees that it can be made again. */
static bool save(struct sched *s, struct slot *slot)
{
    const int held = engine_seq_len(s->engine, slot->seq);
    const uint64_t bytes = engine_swap_size(s->engine, slot->seq);
    if (held == 0) {
        slot->done = 0;
        return true;
    }
    if (s->swapped + bytes <= s->swap_most &&
        engine_swap_out(s->engine, slot->seq, &slot->swap, NULL) == 0) {
        s->swapped += bytes;
        s->count.swapped_bytes += bytes;
        return true;
    }
    if (!slot->exact) {
        return false;
    }
    s->count.repeated++;
    if (slot->decoding) {
        slot->again = held;
        slot->decoding = false;
    }
    slot->done = 0;
    return true;
}

bool room_give_way(struct sched *s, struct slot *slot)
{
    if (slot->filling) {
        reuse_unfill(slot);
        reuse_unasked(&s->reuse, slot->job);
        slot->filling = false;
        slot->done = 0;
    } else if (!save(s, slot)) {
        slot->gave_way = GIVES_WAY; /* not he */
        return false;
    }
    engine_seq_close(s->engine, slot->seq);
    slot->seq = -1;
    slot->gave_way++;
    slot->job->stats.gave_way++;
    slot->since = clock_now(clock_main());
    share_run(&s->share, slot->job->owner, -1);
    s->count.preemptions++;
    put(s, slot);
    slot->job = NULL;
    reuse_closed(&s->reuse);
    return true;
}

static void no_room(const struct sched *s, struct err *e)
{
    const struct engine_kept kept = engine_kept(s->engine);
    err_set(e, QE_NOMEM,
            "the key/value cache (%d pages of %d tokens) has no room for more of this answer, and "
            "nothing else can give way (fewer --slots, a smaller --ctx or a narrower --kv make "
            "room)",
            kept.pages, kept.page_tokens);
}

bool room_for(struct sched *s, struct slot *slot, int n)
{
    struct err e = ERR_INIT;
    for (;;) {
        const int rc = engine_seq_reserve(s->engine, slot->seq, n, &e);
        if (rc == 0) {
            return true;
        }
        struct slot *who = rc == QE_NOMEM ? room_victim(s, NULL) : NULL;
        const bool alone = admit_running(s) == 1;
        if (rc == QE_NOMEM && (!who || alone) && s->moving) {
            return false; /* what comes in now will be idle then */
        }
        if (!who || alone) {
            slot->job->err = e;
            if (rc == QE_NOMEM) {
                no_room(s, &slot->job->err);
            }
            admit_finish(s, slot, JR_ERROR);
            return false;
        }
        const bool gone = room_give_way(s, who);
        if (gone && who == slot) {
            return false;
        }
    }
}

/* ---- coming back ---- */

bool room_may_return(const struct sched *s, size_t i)
{
    const struct slot *slot = &s->waiting[i];
    if (slot->gave_way < GIVES_WAY) {
        return room_admits(s, room_pages(s, slot->done + slot_left(slot) + 1));
    }
    int need = room_pages(s, slot_most(slot));
    for (size_t k = 0; k < i; k++) {
        if (s->waiting[k].gave_way >= GIVES_WAY) {
            return false; /* who came first comes first */
        }
    }
    for (int k = 0; k < ROWS; k++) {
        const struct slot *o = &s->slots[k];
        need += o->job && o->gave_way >= GIVES_WAY ? room_pages(s, slot_most(o)) : 0;
    }
    return need <= engine_kept(s->engine).pages;
}

/* Its state, as it was, in a fresh sequence. */
static int refill(struct sched *s, struct slot *slot, struct err *e)
{
    if (!slot->swap) {
        slot->done = slot->begun ? reuse_again(&s->reuse, slot->job, slot->seq)
                                 : reuse_resume(&s->reuse, slot->job, slot->seq);
        return 0;
    }
    for (;;) {
        const int rc = engine_swap_in(s->engine, slot->seq, slot->swap, e);
        struct slot *who =
            rc == QE_NOMEM && slot->gave_way >= GIVES_WAY ? room_victim(s, NULL) : NULL;
        if (rc == 0 || !who) {
            return rc;
        }
        (void)room_give_way(s, who);
    }
}

bool room_return(struct sched *s, size_t i)
{
    struct slot slot = s->waiting[i];
    struct err e = ERR_INIT;
    int rc = lives_open_seq(s, &slot.seq, &e);
    if (rc == 0) {
        remove_waiting(s, i); /* others may come to wait */
        rc = refill(s, &slot, &e);
        if (rc < 0) {
            engine_seq_close(s->engine, slot.seq);
            slot.seq = -1;
            put(s, &slot);
            for (i = 0; s->waiting[i].job != slot.job; i++) {
            }
        }
    }
    if (rc < 0) {
        if ((rc != QE_NOMEM && rc != QE_BUSY) || (admit_running(s) == 0 && !s->moving)) {
            slot.job->err = e;
            room_end(s, i, JR_ERROR);
        }
        return false;
    }
    free_swap(s, &slot);
    struct slot *to = s->slots;
    while (to->job) {
        to++;
    }
    *to = slot;
    share_run(&s->share, slot.job->owner, 1);
    if (!slot.begun) {
        admit_begin(s, to, slot.done);
    }
    return true;
}

void room_end(struct sched *s, size_t i, enum job_reason reason)
{
    struct slot slot = s->waiting[i];
    struct live *l = slot.job->live;
    remove_waiting(s, i);
    free_swap(s, &slot);
    free(slot.ids);
    if (l) {
        l->busy = false;
        l->used = ++s->tick;
        spec_seq_free(l->q);
        l->q = slot.q;
    } else {
        spec_seq_free(slot.q);
    }
    share_gone(&s->share, slot.job->owner);
    figures_publish(s);
    job_end(slot.job, reason);
}
