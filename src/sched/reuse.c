/* Policy of reuse. States are taken at multiples of 64 tokens while a prompt is
 * computed, where another prompt is likely to go on from: the end of what all
 * conversations share, of the last question, of the turn's input, and every so many
 * tokens in between. As long as only prefill wrote a sequence they serve everybody;
 * after decoding they serve its own conversation. A state that cannot be kept costs
 * nothing but time later. */
#include "config.h"
#include "sched/reuse.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define GRID      64
#define EVERY     4096
#define SPARE     3 /* states that the next prompt may want kept: head, question, input */
#define BYTES_MAX ((uint64_t)16 << 30)

void reuse_open(struct reuse *k, const struct sched_keep *o, struct engine *g)
{
    uint64_t bytes = o->bytes;
    if (bytes == 0) {
        bytes = mem_available() / 8;
        bytes = bytes < BYTES_MAX ? bytes : BYTES_MAX;
    }
    *k = (struct reuse){.g = g,
                        .on = !o->off,
                        .generated = o->generated,
                        .every = o->every < 0 ? 0
                                 : o->every   ? o->every / GRID * GRID
                                              : EVERY};
    prefix_init(&k->prefix, g, bytes, NULL);
    k->tier = o->off ? NULL : o->tier;
    if (k->tier) {
        uint8_t compat[32];
        char label[120];
        engine_state_compat(g, compat, label, sizeof label);
        k->tier->engine(k->tier->ctx, compat, label);
    }
}

/* What is still on its way is brought there: it is all of a short run's work. */
void reuse_close(struct reuse *k)
{
    while (k->g && k->tier && (k->out.outlet || k->prefix.n_outward > 0)) {
        if (k->out.outlet) {
            (void)k->tier->stored(k->tier->ctx, true);
        }
        reuse_move(k);
    }
    if (k->g) {
        prefix_fini(&k->prefix);
    }
}

/* ---- from the tier ---- */

static struct prefix_look look_of(const struct reuse *k, const struct job *j)
{
    return (struct prefix_look){.ids = j->prompt,
                                .n = j->n_prompt,
                                .owner = j->live,
                                .generated = k->generated,
                                .stable = j->input_end};
}

void reuse_ask(struct reuse *k, struct job *j)
{
    if (!k->tier || j->asked) {
        return;
    }
    j->asked = true;
    if (j->live && live_match(j->live, j->prompt, j->n_prompt) > 0) {
        return;
    }
    struct prefix_look l = look_of(k, j);
    prefix_find(&k->prefix, &l);
    j->fetch = k->tier->fetch(k->tier->ctx, j->prompt, j->n_prompt, l.found ? l.found->len : 0);
}

bool reuse_answered(const struct reuse *k, const struct job *j)
{
    return !j->fetch || k->tier->ready(k->tier->ctx, j->fetch);
}

void reuse_unasked(struct reuse *k, struct job *j)
{
    if (j->fetch) {
        k->tier->done(k->tier->ctx, j->fetch, NULL);
        j->fetch = NULL;
    }
}

int reuse_fetched(struct reuse *k, struct job *j)
{
    struct engine_saved state;
    int len = 0;
    if (!j->fetch) {
        return 0;
    }
    struct prefix_look l = look_of(k, j);
    prefix_find(&k->prefix, &l); /* others may have brought as much meanwhile */
    if (!k->tier->result(k->tier->ctx, j->fetch, &state, &len) ||
        (l.found && l.found->len >= len)) {
        reuse_unasked(k, j);
        return 0;
    }
    return len;
}

/* Of what the tier gave the bytes are of no use: asks for a shorter one. False: none is
 * worth it. */
static bool ask_for_shorter(struct reuse *k, struct job *j, int len, const struct err *bad)
{
    k->tier->done(k->tier->ctx, j->fetch, bad);
    struct prefix_look l = look_of(k, j);
    prefix_find(&k->prefix, &l);
    j->fetch = k->tier->fetch(k->tier->ctx, j->prompt, len, l.found ? l.found->len : 0);
    return j->fetch != NULL;
}

bool reuse_fill(struct reuse *k, struct slot *slot, int ms, int *cached)
{
    struct job *j = slot->job;
    struct engine_saved state;
    struct err e = ERR_INIT;
    int len = 0, rc = 0;
    if (!reuse_answered(k, j)) {
        if (ms > 0) {
            usleep(1000); /* the tier looks in a list and a file or two */
        }
        return false;
    }
    if (!slot->intake && reuse_fetched(k, j) == 0) {
        *cached = reuse_resume(k, j, slot->seq);
        return true;
    }
    (void)k->tier->result(k->tier->ctx, j->fetch, &state, &len);
    if (!slot->intake) {
        rc = engine_intake_open(k->g, slot->seq, len, &state, &slot->intake, &e);
    }
    if (rc == 0) {
        if (!engine_intake_wait(slot->intake, ms)) {
            return false;
        }
        rc = engine_intake_close(slot->intake, &e);
    }
    slot->intake = NULL;
    const bool good = rc == 0 && engine_seq_pure(k->g, slot->seq) && len % GRID == 0;
    if (rc == QE_FORMAT || rc == QE_IO) {
        engine_seq_reset(k->g, slot->seq);
        if (ask_for_shorter(k, j, len, &e)) {
            return false;
        }
    }
    reuse_unasked(k, j);
    if (!good) {
        engine_seq_reset(k->g, slot->seq);
        *cached = reuse_resume(k, j, slot->seq);
        return true;
    }
    struct engine_snap *snap = NULL;
    if (engine_snap_take(k->g, slot->seq, &snap, NULL) == 0) {
        prefix_add(&k->prefix, snap, j->prompt, PK_TURN, NULL, false);
    }
    j->stats.reuse = JU_DISK;
    j->stats.why =
        len / GRID >= (j->input_end > 0 ? j->input_end : j->n_prompt - 1) / GRID ? JS_ALL : JS_NEW;
    j->stats.why_at = *cached = len;
    return true;
}

void reuse_unfill(struct slot *slot)
{
    if (slot->intake) {
        (void)engine_intake_close(slot->intake, NULL);
        slot->intake = NULL;
    }
}

/* ---- to the tier ---- */

bool reuse_moving(const struct reuse *k)
{
    return k->tier &&
           (k->out.outlet ? k->tier->stored(k->tier->ctx, false) : k->prefix.n_outward > 0);
}

/* Sends the next one, if the tier wants it. */
static void begin_move(struct reuse *k)
{
    struct engine_outlet *o = NULL;
    struct prefix_entry *e = prefix_next_outward(&k->prefix);
    prefix_outward(&k->prefix, e, false);
    if (!k->tier->wants(k->tier->ctx, e->ids, e->len) ||
        engine_outlet_open(k->g, e->snap, &o, NULL) < 0) {
        return;
    }
    const struct engine_saved state = engine_outlet_blob(o);
    if (!k->tier->store(k->tier->ctx, e->ids, e->len, e->kind == PK_HEAD, &state)) {
        engine_outlet_close(o);
        engine_outlet_free(o);
        return;
    }
    e->pins++;
    k->out.entry = e;
    k->out.outlet = o;
}

bool reuse_give_up(struct reuse *k)
{
    struct prefix_entry *e = k->out.entry;
    if (e) {
        engine_outlet_close(k->out.outlet);
        e->pins--;
        k->out.entry = NULL;
    }
    return e != NULL;
}

void reuse_move(struct reuse *k)
{
    if (!reuse_moving(k)) {
        return;
    }
    if (!k->out.outlet) {
        begin_move(k);
        return;
    }
    (void)reuse_give_up(k);
    engine_outlet_free(k->out.outlet);
    k->out.outlet = NULL;
    prefix_fit(&k->prefix);
}

/* ---- starting ---- */

int reuse_resume(struct reuse *k, struct job *j, int seq)
{
    if (!k->on) {
        j->stats.why = JS_OFF;
        return 0;
    }
    struct prefix_look l = look_of(k, j);
    prefix_find(&k->prefix, &l);
    j->stats.why = l.why;
    j->stats.why_at = l.at;
    if (!l.found || engine_snap_restore(k->g, seq, l.found->snap, NULL) < 0) {
        return 0;
    }
    j->stats.reuse = JU_MEMORY;
    return l.found->len;
}

int reuse_again(struct reuse *k, const struct job *j, int seq)
{
    struct prefix_look l = {.ids = j->prompt, .n = j->n_prompt, .stable = j->input_end};
    if (!k->on) {
        return 0;
    }
    prefix_find(&k->prefix, &l);
    return l.found && engine_snap_restore(k->g, seq, l.found->snap, NULL) == 0 ? l.found->len : 0;
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

int reuse_cut(const struct reuse *k, const struct slot *slot)
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

/* outward: the tier may have it. */
static void take(struct reuse *k, int seq, const int32_t *ids, int len, enum prefix_kind kind,
                 const struct live *owner, bool outward)
{
    const bool pure = engine_seq_pure(k->g, seq) && len % GRID == 0;
    const struct live *who = pure ? NULL : owner;
    struct engine_snap *snap = NULL;
    if (!prefix_has(&k->prefix, ids, len, who, !pure && k->generated, kind) &&
        engine_snap_take(k->g, seq, &snap, NULL) == 0) {
        prefix_add(&k->prefix, snap, ids, kind, owner, k->generated);
    }
    struct prefix_entry *e =
        outward && pure && k->tier ? prefix_has(&k->prefix, ids, len, NULL, false, kind) : NULL;
    if (e && e != k->out.entry && k->tier->wants(k->tier->ctx, ids, len)) {
        prefix_outward(&k->prefix, e, true);
    }
}

void reuse_chunk(struct reuse *k, struct slot *slot)
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
        const bool last = slot->done == j->input_end / GRID * GRID;
        take(k, slot->seq, slot->ids, slot->done, as, j->live, j->store && (as == PK_HEAD || last));
    }
}

/* ---- ending ---- */

void reuse_end(struct reuse *k, struct slot *slot, int held)
{
    /* A prompt that was given up keeps what is done of it. */
    const bool part = !slot->decoding && held % GRID == 0 && engine_seq_pure(k->g, slot->seq);
    if (k->on && (part || (k->generated && slot->decoding))) {
        take(k, slot->seq, slot->ids, held, PK_TURN, NULL, false);
    }
}

void reuse_park(struct reuse *k, struct live *l)
{
    if (k->on && l->seq >= 0 && l->n > 0) {
        take(k, l->seq, l->ids, l->n, PK_TURN, l, false);
    }
    live_drop(l, k->g);
    prefix_fit(&k->prefix);
}

bool reuse_idle(struct reuse *k)
{
    const struct engine_kept kept = engine_kept(k->g);
    const uint64_t each = engine_snap_bytes(k->g, NULL);
    return k->on && kept.bytes + SPARE * each <= k->prefix.budget &&
           engine_snap_prepare(k->g, SPARE);
}

void reuse_closed(struct reuse *k)
{
    prefix_fit(&k->prefix);
}

void reuse_forget(struct reuse *k, const struct live *l)
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
