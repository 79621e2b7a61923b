/* Owners' accounts. A handful of owners: looked up one by one. */
#include "config.h"
#include "sched/share.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

#define REMEMBER 64 /* owners without jobs */

void share_init(struct share *s)
{
    *s = (struct share){0};
}

void share_fini(struct share *s)
{
    free(s->v);
    *s = (struct share){0};
}

static struct share_owner *find(const struct share *s, uint64_t id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].id == id) {
            return &s->v[i];
        }
    }
    return NULL;
}

/* A place for one more: that of who was away longest, if many are. */
static struct share_owner *place(struct share *s)
{
    struct share_owner *oldest = NULL;
    size_t away = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct share_owner *o = &s->v[i];
        if (o->jobs == 0) {
            away++;
            oldest = !oldest || o->used < oldest->used ? o : oldest;
        }
    }
    if (away >= REMEMBER) {
        return oldest;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->v = mem_realloc(s->v, s->cap * sizeof *s->v);
    }
    return &s->v[s->n++];
}

/* The least that one of those who are served has had; of nobody: what was. */
static double floor_of(const struct share *s, double otherwise)
{
    double least = otherwise;
    int any = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].jobs > 0 && (!any || s->v[i].had < least)) {
            least = s->v[i].had;
            any = 1;
        }
    }
    return least;
}

void share_come(struct share *s, uint64_t id, int weight)
{
    struct share_owner *o = find(s, id);
    if (!o) {
        const double least = floor_of(s, 0);
        o = place(s);
        *o = (struct share_owner){.id = id, .had = least - SHARE_CREDIT};
    } else if (o->jobs == 0) {
        const double least = floor_of(s, o->had) - SHARE_CREDIT;
        o->had = o->had < least ? least : o->had;
    }
    o->weight = weight;
    o->jobs++;
    o->used = ++s->tick;
}

void share_gone(struct share *s, uint64_t id)
{
    struct share_owner *o = find(s, id);
    assert(o && o->jobs > 0);
    o->jobs--;
}

void share_run(struct share *s, uint64_t id, int more)
{
    struct share_owner *o = find(s, id);
    assert(o && o->running + more >= 0);
    o->running += more;
}

void share_charge(struct share *s, uint64_t id, int prompt, int decoded)
{
    struct share_owner *o = find(s, id);
    assert(o);
    o->had += ((double)prompt + SHARE_DECODE * (double)decoded) / o->weight;
}

const struct share_owner *share_of(const struct share *s, uint64_t id)
{
    return find(s, id);
}

int share_owes(const struct share_owner *a, const struct share_owner *b)
{
    return a->id != b->id &&
           (int64_t)a->running * b->weight > ((int64_t)b->running + 1) * a->weight;
}
