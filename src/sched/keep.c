/* Policy of reuse. States are taken at multiples of 64 tokens while a prompt is
 * computed, where another prompt is likely to go on from: the end of what all
 * conversations share, of the last question, of the turn's input, and every so many
 * tokens in between. As long as only prefill wrote a sequence they serve everybody;
 * after decoding they serve its own conversation. A state that cannot be kept costs
 * nothing but time later. */
#include "config.h"
#include "sched/keep.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define GRID      64
#define EVERY     4096
#define BYTES_MAX ((uint64_t)16 << 30)

void keep_open(struct keep *k, const struct sched_keep *o, struct engine *g)
{
    uint64_t bytes = o->bytes;
    if (bytes == 0) {
        bytes = mem_available() / 8;
        bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX;
    }
    *k = (struct keep){.g = g,
                       .on = !o->off,
                       .generated = o->generated,
                       .every = o->every < 0 ? 0
                                : o->every   ? o->every / GRID * GRID
                                             : EVERY};
    prefix_init(&k->prefix, g, bytes, NULL);
}

void keep_close(struct keep *k)
{
    if (k->g) {
        prefix_fini(&k->prefix);
    }
}

/* ---- starting ---- */

int keep_resume(struct keep *k, struct job *j, int seq)
{
    if (!k->on) {
        j->stats.why = JS_OFF;
        return 0;
    }
    struct prefix_look l = {.ids = j->prompt,
                            .n = j->n_prompt,
                            .owner = j->live,
                            .generated = k->generated,
                            .stable = j->input_end};
    prefix_find(&k->prefix, &l);
    j->stats.why = l.why;
    j->stats.why_at = l.at;
    if (!l.found || engine_snap_restore(k->g, seq, l.found->snap, NULL) < 0) {
        return 0;
    }
    j->stats.reuse = JU_MEMORY;
    return l.found->len;
}

/* ---- while a prompt is computed ---- */

/* The places of a job where a state is kept, and as what; 0: not there. */
static int places(const struct job *j, int at[3], enum prefix_kind kind[3])
{
    const int want[3] = {j->head_end, j->query_end, j->input_end};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        if (want[i] >= GRID && want[i] <= j->n_prompt) {
            at[n] = want[i] / GRID * GRID;
            kind[n++] = i == 0 ? PK_HEAD : PK_TURN;
        }
    }
    return n;
}

int keep_cut(const struct keep *k, const struct slot *slot)
{
    int at[3];
    enum prefix_kind kind[3];
    const int n = k->on ? places(slot->job, at, kind) : 0;
    int cut = k->on && k->every > 0 ? (slot->done / k->every + 1) * k->every : 0;
    for (int i = 0; i < n; i++) {
        if (at[i] > slot->done && (cut == 0 || at[i] < cut)) {
            cut = at[i];
        }
    }
    return cut;
}

static void take(struct keep *k, int seq, const int32_t *ids, int len, enum prefix_kind kind,
                 const struct live *owner)
{
    const bool pure = engine_seq_pure(k->g, seq) && len % GRID == 0;
    struct engine_snap *snap = NULL;
    if (!prefix_has(&k->prefix, ids, len, pure ? NULL : owner, !pure && k->generated, kind) &&
        engine_snap_take(k->g, seq, &snap, NULL) == 0) {
        prefix_add(&k->prefix, snap, ids, kind, owner, k->generated);
    }
}

void keep_chunk(struct keep *k, struct slot *slot)
{
    const struct job *j = slot->job;
    int at[3];
    enum prefix_kind kind[3], as = PK_RING;
    bool here = k->every > 0 && slot->done % k->every == 0;
    const int n = places(j, at, kind);
    for (int i = 0; i < n; i++) {
        if (at[i] == slot->done) {
            here = true;
            as = kind[i] > as ? kind[i] : as;
        }
    }
    if (k->on && here && slot->done % GRID == 0 &&
        (engine_seq_pure(k->g, slot->seq) || j->live || k->generated)) {
        take(k, slot->seq, slot->ids, slot->done, as, j->live);
    }
}

/* ---- ending ---- */

void keep_end(struct keep *k, struct slot *slot, int held)
{
    /* A prompt that was given up keeps what is done of it. */
    const bool part = !slot->decoding && held % GRID == 0 && engine_seq_pure(k->g, slot->seq);
    if (k->on && (part || (k->generated && slot->decoding))) {
        take(k, slot->seq, slot->ids, held, PK_TURN, NULL);
    }
}

void keep_park(struct keep *k, struct live *l)
{
    if (k->on && l->seq >= 0 && l->n > 0) {
        take(k, l->seq, l->ids, l->n, PK_TURN, l);
    }
    live_drop(l, k->g);
    prefix_fit(&k->prefix);
}

void keep_closed(struct keep *k)
{
    prefix_fit(&k->prefix);
}

void keep_forget(struct keep *k, const struct live *l)
{
    prefix_forget(&k->prefix, l);
    prefix_fit(&k->prefix);
}

/* ---- in words ---- */

const char *job_reuse_name(enum job_reuse r)
{
    switch (r) {
    case JU_LIVE:
        return "live";
    case JU_MEMORY:
        return "memory";
    case JU_DISK:
        return "disk";
    case JU_NONE:
        break;
    }
    return "none";
}

static const struct {
    const char *name, *words; /* words with one %d at most */
} shorts[] = {
    [JS_ALL] = {"all", "all that could be"},
    [JS_NEW] = {"new", "what follows token %d has not been seen before"},
    [JS_COLD] = {"cold", "nothing that is kept begins like this"},
    [JS_TINY] = {"tiny", "a prompt of at most 64 tokens is not kept"},
    [JS_DIFFERS] = {"differs", "it differs from what is kept after token %d"},
    [JS_EVICTED] = {"evicted", "the state after token %d made room for others"},
    [JS_GENERATED] = {"generated",
                      "what is known up to token %d was generated (see --cache-generated)"},
    [JS_NEARER] = {"nearer", "known up to token %d, but no state so near was kept"},
    [JS_OFF] = {"off", "reuse is switched off"},
};

const char *job_short_name(enum job_short s)
{
    return shorts[s].name;
}

void job_short_words(enum job_short s, int at, char *out)
{
    const char *w = shorts[s].words, *p = strstr(w, "%d");
    if (p) {
        snprintf(out, JOB_WORDS, "%.*s%d%s", (int)(p - w), w, at, p + 2);
    } else {
        snprintf(out, JOB_WORDS, "%s", w);
    }
}
