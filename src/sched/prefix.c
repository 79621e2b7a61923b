/* The index of kept states. A bucket's key is the hash of an entry's whole blocks of 64
 * tokens, chained, so that one walk over a prompt's blocks, from the longest down, meets
 * every entry that could serve it. Who goes first when room is short: short prompts'
 * states when they hold more than their share, so that side requests do not push a long
 * conversation out; then the longest unused, the heads that all conversations share
 * last. */
#include "config.h"
#include "sched/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define GRID    64
#define SMALL   1024 /* tokens of a short prompt */
#define SIMILAR 16   /* equal tokens from which on two prompts count as the same that differ */

void prefix_init(struct prefix *p, struct engine *g, uint64_t budget,
                 uint64_t (*hash)(const void *, size_t, uint64_t))
{
    *p = (struct prefix){.g = g, .budget = budget, .hash = hash ? hash : hash64};
}

static bool is_small(const struct prefix_entry *e)
{
    return e->len < SMALL;
}

/* ---- leaving ---- */

static void drop(struct prefix *p, struct prefix_entry **at)
{
    struct prefix_entry *e = *at;
    *at = e->next;
    engine_snap_free(p->g, e->snap);
    p->ids_bytes -= (uint64_t)e->len * sizeof *e->ids;
    p->n_outward -= e->outward;
    free(e->ids);
    free(e);
    p->n--;
}

void prefix_fini(struct prefix *p)
{
    for (size_t i = 0; i < PREFIX_BUCKETS; i++) {
        while (p->bucket[i]) {
            drop(p, &p->bucket[i]);
        }
    }
}

void prefix_forget(struct prefix *p, const struct live *owner)
{
    for (size_t i = 0; i < PREFIX_BUCKETS; i++) {
        for (struct prefix_entry **at = &p->bucket[i]; *at;) {
            if ((*at)->owner == owner) {
                drop(p, at);
            } else {
                at = &(*at)->next;
            }
        }
    }
}

static void evict(struct prefix *p, struct prefix_entry **at)
{
    if (!(*at)->owner) {
        const size_t i = p->n_gone++ % PREFIX_GONE;
        p->gone[i].hash = (*at)->hash;
        p->gone[i].len = (*at)->len;
    }
    drop(p, at);
}

/* Bytes of the entries, of the short ones, of the heads. Pages that several share are
 * nobody's here. */
struct shares {
    uint64_t all, small, heads;
};

static struct shares shares_of(const struct prefix *p)
{
    struct shares s = {0, 0, 0};
    for (size_t i = 0; i < PREFIX_BUCKETS; i++) {
        for (const struct prefix_entry *e = p->bucket[i]; e; e = e->next) {
            const uint64_t n = engine_snap_bytes(p->g, e->snap);
            s.all += n;
            s.small += is_small(e) ? n : 0;
            s.heads += e->kind == PK_HEAD ? n : 0;
        }
    }
    return s;
}

/* The one that goes next, NULL when there is none. pages: only if that frees a page. */
static struct prefix_entry **victim(struct prefix *p, bool pages)
{
    const struct shares s = shares_of(p);
    const uint64_t values = engine_snap_bytes(p->g, NULL);
    struct prefix_entry **best = NULL;
    int best_rank = 0;
    for (size_t i = 0; i < PREFIX_BUCKETS; i++) {
        for (struct prefix_entry **at = &p->bucket[i]; *at; at = &(*at)->next) {
            const struct prefix_entry *e = *at;
            const bool head = e->kind == PK_HEAD && s.heads <= s.all / 2;
            const int rank = is_small(e) && s.small > s.all / 8 ? 2 : head ? 0 : 1;
            if (e->pins > 0) {
                continue;
            }
            if (pages && engine_snap_bytes(p->g, e->snap) == values) {
                continue;
            }
            if (!best || rank > best_rank || (rank == best_rank && e->used < (*best)->used)) {
                best = at;
                best_rank = rank;
            }
        }
    }
    return best;
}

void prefix_fit(struct prefix *p)
{
    struct prefix_entry **at = NULL;
    while (engine_kept(p->g).bytes + p->ids_bytes > p->budget && (at = victim(p, false))) {
        evict(p, at);
    }
}

bool prefix_reclaim(struct prefix *p)
{
    struct prefix_entry **at = victim(p, true);
    at = at ? at : victim(p, false);
    if (at) {
        evict(p, at);
    }
    return at != NULL;
}

/* ---- looking ---- */

/* The hash after each whole block: n / GRID + 1 of them. */
static uint64_t *chain_of(const struct prefix *p, const int32_t *ids, int n)
{
    uint64_t *h = mem_array((size_t)(n / GRID) + 1, sizeof *h);
    h[0] = 0;
    for (int k = 1; k <= n / GRID; k++) {
        h[k] = p->hash(ids + (size_t)(k - 1) * GRID, GRID * sizeof *ids, h[k - 1]);
    }
    return h;
}

static struct prefix_entry **bucket_of(struct prefix *p, uint64_t hash)
{
    return &p->bucket[hash % PREFIX_BUCKETS];
}

static bool same_ids(const int32_t *a, const int32_t *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool may_use(const struct prefix_entry *e, const struct live *owner, bool generated)
{
    return e->owner ? e->owner == owner : !e->generated || generated;
}

static int common(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* Why nothing longer was found: what else is known of these tokens. */
static void explain(const struct prefix *p, struct prefix_look *l, const uint64_t *h)
{
    const int got = l->found ? l->found->len : 0;
    int longest = 0, generated = 0;
    l->at = got;
    if (l->n <= GRID && got == 0) {
        l->why = JS_TINY;
        return;
    }
    const int most = l->stable > 0 && l->stable < l->n ? l->stable : l->n - 1;
    if (got / GRID >= most / GRID) {
        l->why = JS_ALL;
        return;
    }
    for (size_t i = 0; i < p->n_gone && i < PREFIX_GONE; i++) {
        const int len = p->gone[i].len;
        if (len > got && len < l->n && h[len / GRID] == p->gone[i].hash) {
            l->why = JS_EVICTED;
            l->at = len > l->at ? len : l->at;
        }
    }
    if (l->at > got) {
        return;
    }
    for (size_t i = 0; i < PREFIX_BUCKETS; i++) {
        for (const struct prefix_entry *e = p->bucket[i]; e; e = e->next) {
            const int n = common(e->ids, l->ids, e->len < l->n ? e->len : l->n);
            if (n == e->len && n < l->n && !may_use(e, l->owner, l->generated)) {
                generated = n > generated ? n : generated;
            }
            longest = n > longest ? n : longest;
        }
    }
    l->at = longest;
    if (generated > got + GRID) {
        l->why = JS_GENERATED;
        l->at = generated;
    } else if (longest < SIMILAR) {
        l->why = JS_COLD;
        l->at = 0;
    } else if (longest >= l->n - 1) {
        l->why = JS_NEARER;
    } else if (longest > got) {
        l->why = JS_DIFFERS;
    } else {
        l->why = JS_NEW;
        l->at = got;
    }
}

void prefix_find(struct prefix *p, struct prefix_look *l)
{
    uint64_t *h = chain_of(p, l->ids, l->n);
    l->found = NULL;
    for (int k = (l->n - 1) / GRID; k >= 0 && !l->found; k--) {
        for (struct prefix_entry *e = *bucket_of(p, h[k]); e; e = e->next) {
            if (e->hash == h[k] && e->len / GRID == k && e->len < l->n &&
                may_use(e, l->owner, l->generated) && same_ids(e->ids, l->ids, e->len) &&
                (!l->found || e->len > l->found->len)) {
                l->found = e;
            }
        }
    }
    if (l->found) {
        l->found->used = ++p->tick;
    }
    explain(p, l, h);
    free(h);
}

struct prefix_entry *prefix_has(struct prefix *p, const int32_t *ids, int len,
                                const struct live *owner, bool generated, enum prefix_kind kind)
{
    uint64_t *h = chain_of(p, ids, len);
    struct prefix_entry *has = NULL;
    for (struct prefix_entry *e = *bucket_of(p, h[len / GRID]); e && !has; e = e->next) {
        if (e->len == len && may_use(e, owner, generated) && same_ids(e->ids, ids, len)) {
            e->used = ++p->tick;
            e->kind = kind > e->kind ? kind : e->kind;
            has = e;
        }
    }
    free(h);
    return has;
}

void prefix_outward(struct prefix *p, struct prefix_entry *e, bool on)
{
    p->n_outward += on - e->outward;
    e->outward = on;
}

struct prefix_entry *prefix_next_outward(struct prefix *p)
{
    struct prefix_entry *best = NULL;
    for (size_t i = 0; i < PREFIX_BUCKETS && p->n_outward > 0; i++) {
        for (struct prefix_entry *e = p->bucket[i]; e; e = e->next) {
            best = e->outward && (!best || e->used > best->used) ? e : best;
        }
    }
    return best;
}

void prefix_add(struct prefix *p, struct engine_snap *snap, const int32_t *ids,
                enum prefix_kind kind, const struct live *owner, bool generated)
{
    const int len = engine_snap_len(snap);
    const bool own = engine_snap_pure(snap) && len % GRID == 0;
    uint64_t *h = chain_of(p, ids, len);
    struct prefix_entry *e = mem_zalloc(sizeof *e);
    *e = (struct prefix_entry){.snap = snap,
                               .len = len,
                               .hash = h[len / GRID],
                               .kind = kind,
                               .owner = own ? NULL : owner,
                               .generated = !own && !owner && generated,
                               .used = ++p->tick};
    e->ids = mem_array((size_t)len + 1, sizeof *e->ids);
    memcpy(e->ids, ids, (size_t)len * sizeof *ids);
    struct prefix_entry **b = bucket_of(p, e->hash);
    e->next = *b;
    *b = e;
    p->n++;
    p->ids_bytes += (uint64_t)len * sizeof *e->ids;
    free(h);
    prefix_fit(p);
}
