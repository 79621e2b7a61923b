/* The stand-in described in engine.h. It checks its callers: computing on closed
 * sequences or past the window ends the program. */
#include "config.h"
#include "tests/fake/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "format/container.h"

#define MAX_SEQS 64

struct fake_log fake_log;

struct seq {
    bool open;
    uint64_t h;
    int len;
    int drawn; /* since the prompt, for scripts */
    bool pure;
    int pages; /* that it has */
};

struct engine_snap {
    struct seq seq;
};

struct engine {
    struct engine_info info;
    struct seq seqs[MAX_SEQS];
    int eos, step_us, prefill_us, compat;
    int32_t eos_id;
    int fail_decode, fail_prefill; /* countdowns; 0: never */
    uint64_t out_h[16];
    int out_drawn[16];
    int out_len[16];
    int n_out;
    int wrong; /* one draft in so many */
    int pages;
    bool (*full)(void *ctx);
    void *full_ctx;
    int n_held, held_seq[16];
    int32_t held_token[16];
};

struct engine_model {
    struct engine engine;
    struct buf blobs[MB_COUNT];
};

static struct {
    int32_t ids[4096];
    int n;
} script;

void fake_script(const int32_t *ids, int n)
{
    assert(n <= (int)(sizeof script.ids / sizeof *script.ids));
    if (n > 0) {
        memcpy(script.ids, ids, (size_t)n * sizeof *ids);
    }
    script.n = n;
}

void fake_log_reset(void)
{
    memset(&fake_log, 0, sizeof fake_log);
}

static uint64_t mix(uint64_t h, int32_t id)
{
    return hash64(&id, sizeof id, h);
}

static int32_t draw(uint64_t h, int len, int vocab, int eos, float temp, uint64_t seed)
{
    if (temp > 0) {
        uint64_t v[2] = {h, (uint64_t)len};
        h = hash64(v, sizeof v, seed);
    }
    if (eos > 0 && h % (uint64_t)eos == 0) {
        return 2;
    }
    return (int32_t)(3 + (h >> 8) % (uint64_t)(vocab - 3));
}

int32_t fake_next(const int32_t *ids, int n, int vocab, int eos, float temp, uint64_t seed)
{
    uint64_t h = 0;
    for (int i = 0; i < n; i++) {
        h = mix(h, ids[i]);
    }
    return draw(h, n, vocab, eos, temp, seed);
}

static int setting(const char *path, const char *key, int def)
{
    size_t n = strlen(key);
    for (const char *p = path; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, key, n) == 0 && p[n] == '=') {
            return atoi(p + n + 1);
        }
    }
    return def;
}

static void copy_blob(const struct container *c, enum container_blob which, struct buf *out)
{
    const char *p = NULL;
    size_t n = 0;
    if (container_get(c, which, &p, &n)) {
        buf_add(out, p, n);
    }
}

static int read_blobs(struct engine_model *m, const char *path, struct err *e)
{
    struct container *c = NULL;
    int rc = container_open(path, false, &c, e);
    if (rc == 0) {
        copy_blob(c, CB_TOKENIZER, &m->blobs[MB_TOKENIZER]);
        copy_blob(c, CB_TOKENIZER_CONFIG, &m->blobs[MB_TOKENIZER_CONFIG]);
        copy_blob(c, CB_TEMPLATE, &m->blobs[MB_TEMPLATE]);
        copy_blob(c, CB_GENERATION, &m->blobs[MB_GENERATION]);
        container_close(c);
    }
    return rc;
}

int engine_check_file(const char *path, struct err *e)
{
    (void)path, (void)e;
    return 0;
}

int engine_load(const char *path, bool verify, const struct engine_opts *o,
                struct engine_model **out, struct err *e)
{
    (void)verify;
    struct engine_model *m = mem_zalloc(sizeof *m);
    struct engine *g = &m->engine;
    int load_us = setting(path, "load_us", 0);
    for (int i = 0; i <= 4; i++) {
        usleep((useconds_t)load_us / 5);
        if (o->progress) {
            o->progress(o->progress_ctx, i / 4.0);
        }
    }
    int rc = 0;
    if (setting(path, "fail_load", 0)) {
        rc = err_set(e, QE_FORMAT, "%s: made to fail", path);
        goto fail;
    }
    const char *model = strstr(path, "model=");
    if (model) {
        rc = read_blobs(m, model + 6, e);
        if (rc < 0) {
            goto fail;
        }
    }
    g->info = (struct engine_info){
        .model_name = "fake",
        .tier = "none",
        .backend = "cpu",
        .device = "none",
        .ctx = o->ctx ? o->ctx : setting(path, "ctx", 4096),
        .vocab = setting(path, "vocab", 1000),
        .vocab_used = setting(path, "vocab", 1000),
        .slots = o->slots ? o->slots : setting(path, "slots", 16),
        .eos = &g->eos_id,
        .n_eos = 1,
    };
    g->info.mtp = setting(path, "mtp", 0);
    g->info.max_draft = g->info.mtp ? setting(path, "max_draft", 16) : 0;
    g->info.verify_width = setting(path, "width", 16);
    g->info.no_verify = setting(path, "no_verify", 0) ? "this engine cannot verify drafts" : NULL;
    g->wrong = setting(path, "wrong", 5);
    g->pages = setting(path, "pages", FAKE_PAGES);
    g->eos = setting(path, "eos", 0);
    g->compat = setting(path, "compat", 1);
    g->eos_id = setting(path, "eos_id", 2);
    g->step_us = setting(path, "step_us", 0);
    g->prefill_us = setting(path, "prefill_us", 0);
    g->fail_decode = setting(path, "fail_decode", 0);
    g->fail_prefill = setting(path, "fail_prefill", 0);
    *out = m;
    return 0;
fail:
    engine_unload(m);
    return rc;
}

void engine_unload(struct engine_model *m)
{
    if (m) {
        for (int i = 0; i < MB_COUNT; i++) {
            buf_free(&m->blobs[i]);
        }
        free(m);
    }
}

struct engine *engine_of(const struct engine_model *m)
{
    return (struct engine *)(uintptr_t)&m->engine;
}

bool engine_model_blob(const struct engine_model *m, enum engine_blob which, const char **p,
                       size_t *n)
{
    *p = m->blobs[which].data;
    *n = m->blobs[which].len;
    return *p != NULL;
}

const struct engine_info *engine_info(const struct engine *g)
{
    return &g->info;
}

struct engine_sampling engine_defaults(const struct engine *g)
{
    (void)g;
    return (struct engine_sampling){.temp = 0.7F, .top_p = 0.9F, .top_k = 20};
}

int engine_seq_open(struct engine *g, int *seq, struct err *e)
{
    for (int i = 0; i < g->info.slots && i < MAX_SEQS; i++) {
        if (!g->seqs[i].open) {
            g->seqs[i] = (struct seq){.open = true, .pure = true};
            fake_log.open_seqs++;
            *seq = i;
            return 0;
        }
    }
    return err_set(e, QE_BUSY, "no slot left");
}

void engine_seq_close(struct engine *g, int seq)
{
    assert(g->seqs[seq].open);
    g->seqs[seq].open = false;
    fake_log.open_seqs--;
}

void engine_seq_reset(struct engine *g, int seq)
{
    assert(g->seqs[seq].open);
    g->seqs[seq] = (struct seq){.open = true, .pure = true};
}

int engine_seq_len(const struct engine *g, int seq)
{
    assert(g->seqs[seq].open);
    return g->seqs[seq].len;
}

int engine_seq_pages(const struct engine *g, int seq)
{
    assert(g->seqs[seq].open);
    return g->seqs[seq].pages;
}

static int used_pages(const struct engine *g)
{
    int used = 0;
    for (int i = 0; i < g->info.slots && i < MAX_SEQS; i++) {
        used += g->seqs[i].open ? g->seqs[i].pages : 0;
    }
    return used;
}

/* Pages for so many tokens. */
static int grow(struct engine *g, int seq, int tokens, struct err *e)
{
    struct seq *s = &g->seqs[seq];
    const int want = (tokens + FAKE_PAGE - 1) / FAKE_PAGE;
    assert(s->open);
    while (want > s->pages && used_pages(g) + want - s->pages > g->pages) {
        if (!g->full || !g->full(g->full_ctx)) {
            return err_set(e, QE_NOMEM, "the %d pages are in use", g->pages);
        }
    }
    s->pages = want > s->pages ? want : s->pages;
    return 0;
}

/* A sequence becomes another one's state, with pages of its own. */
static int become(struct engine *g, int seq, const struct seq *from, struct err *e)
{
    struct seq s = *from;
    g->seqs[seq].pages = 0;
    const int rc = grow(g, seq, s.len, e);
    if (rc == 0) {
        s.open = true;
        s.pages = g->seqs[seq].pages;
        g->seqs[seq] = s;
    }
    return rc;
}

int engine_seq_reserve(struct engine *g, int seq, int n, struct err *e)
{
    return grow(g, seq, g->seqs[seq].len + n, e);
}

struct engine_swap {
    struct seq seq;
};

uint64_t engine_swap_size(const struct engine *g, int seq)
{
    return FAKE_STATE + (uint64_t)g->seqs[seq].len;
}

uint64_t engine_swap_bytes(const struct engine *g, const struct engine_swap *w)
{
    (void)g;
    return FAKE_STATE + (uint64_t)w->seq.len;
}

int engine_swap_out(struct engine *g, int seq, struct engine_swap **out, struct err *e)
{
    (void)e;
    assert(g->seqs[seq].open);
    *out = mem_zalloc(sizeof **out);
    (*out)->seq = g->seqs[seq];
    fake_log.swaps++;
    return 0;
}

int engine_swap_in(struct engine *g, int seq, const struct engine_swap *w, struct err *e)
{
    return become(g, seq, &w->seq, e);
}

void engine_swap_free(struct engine *g, struct engine_swap *w)
{
    (void)g;
    fake_log.swaps -= w != NULL;
    free(w);
}

int engine_seq_fork(struct engine *g, int dst, int src, struct err *e)
{
    assert(g->seqs[dst].open && g->seqs[src].open);
    return become(g, dst, &g->seqs[src], e);
}

/* A state is the sequence's own struct and as many bytes of padding as tokens. */
#define FAKE_PAD 64

size_t engine_seq_state_size(const struct engine *g, int seq)
{
    return sizeof(struct seq) + FAKE_PAD * (size_t)g->seqs[seq].len;
}

static size_t size_of(const struct seq *s)
{
    return sizeof *s + FAKE_PAD * (size_t)s->len;
}

struct engine_outlet {
    struct seq seq;
    atomic_bool closed;
};

static int read_outlet(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    const struct engine_outlet *o = ctx;
    const uint8_t *s = (const uint8_t *)&o->seq;
    uint8_t *p = dst;
    if (o->closed) {
        return err_set(e, QE_CANCELLED, "the state was given up");
    }
    assert(at + n <= size_of(&o->seq));
    for (size_t i = 0; i < n; i++) {
        p[i] = at + i < sizeof o->seq ? s[at + i] : (uint8_t)((at + i) % 251);
    }
    return 0;
}

int engine_outlet_open(struct engine *g, const struct engine_snap *s, struct engine_outlet **out,
                       struct err *e)
{
    (void)g;
    (void)e;
    *out = mem_zalloc(sizeof **out);
    (*out)->seq = s->seq;
    return 0;
}

struct engine_saved engine_outlet_blob(struct engine_outlet *o)
{
    return (struct engine_saved){
        .size = size_of(&o->seq), .unit = 1, .read = read_outlet, .ctx = o};
}

void engine_outlet_close(struct engine_outlet *o)
{
    o->closed = true;
}

void engine_outlet_free(struct engine_outlet *o)
{
    free(o);
}

/* A piece of FAKE_PIECE bytes with every wait. */
#define FAKE_PIECE 4096
struct engine_intake {
    struct engine *g;
    struct engine_saved from;
    int seq, len, rc;
    uint64_t at;
    struct err err;
    struct seq got;
};

int engine_intake_open(struct engine *g, int seq, int len, const struct engine_saved *b,
                       struct engine_intake **out, struct err *e)
{
    assert(g->seqs[seq].open);
    if (b->size != sizeof(struct seq) + FAKE_PAD * (uint64_t)len) {
        return err_set(e, QE_FORMAT, "the state has another size");
    }
    *out = mem_zalloc(sizeof **out);
    **out = (struct engine_intake){.g = g, .from = *b, .seq = seq, .len = len};
    return 0;
}

bool engine_intake_wait(struct engine_intake *k, int ms)
{
    (void)ms;
    const size_t unit = k->from.unit, most = unit < FAKE_PIECE ? FAKE_PIECE / unit * unit : unit;
    const uint64_t left = k->from.size - k->at;
    const size_t n = left < most ? (size_t)left : most;
    uint8_t *piece = mem_alloc(n + 1);
    if (n > 0 && k->rc == 0) {
        k->rc = k->from.read(k->from.ctx, k->at, piece, n, &k->err);
        if (k->at == 0) {
            memcpy(&k->got, piece, sizeof k->got);
        }
        k->at += n;
        fake_log.pieces++;
    }
    free(piece);
    return k->at == k->from.size || k->rc < 0;
}

int engine_intake_close(struct engine_intake *k, struct err *e)
{
    int rc = k->rc;
    if (rc < 0 && e) {
        *e = k->err;
    }
    if (rc == 0 && k->at < k->from.size) {
        rc = err_set(e, QE_CANCELLED, "nobody waits");
    }
    if (rc == 0 && k->got.len != k->len) {
        rc = err_set(e, QE_FORMAT, "the state has another length");
    }
    if (rc == 0) {
        rc = become(k->g, k->seq, &k->got, e);
    }
    free(k);
    return rc;
}

void engine_state_compat(const struct engine *g, uint8_t compat[32], char *label, size_t label_size)
{
    memset(compat, g->compat, 32);
    snprintf(label, label_size, "fake of %d ids", g->info.vocab);
}

/* ---- kept states: FAKE_STATE bytes each, no pages ---- */

bool engine_seq_pure(const struct engine *g, int seq)
{
    assert(g->seqs[seq].open);
    return g->seqs[seq].pure;
}

int engine_snap_take(struct engine *g, int seq, struct engine_snap **out, struct err *e)
{
    (void)e;
    assert(g->seqs[seq].open);
    *out = mem_zalloc(sizeof **out);
    (*out)->seq = g->seqs[seq];
    fake_log.snaps++;
    fake_log.taken++;
    return 0;
}

int engine_snap_restore(struct engine *g, int seq, const struct engine_snap *s, struct err *e)
{
    assert(g->seqs[seq].open);
    return become(g, seq, &s->seq, e);
}

void engine_snap_free(struct engine *g, struct engine_snap *s)
{
    (void)g;
    fake_log.snaps -= s != NULL;
    free(s);
}

bool engine_snap_prepare(struct engine *g, size_t spare)
{
    (void)g;
    (void)spare;
    return false;
}

int engine_snap_len(const struct engine_snap *s)
{
    return s->seq.len;
}

bool engine_snap_pure(const struct engine_snap *s)
{
    return s->seq.pure;
}

uint64_t engine_snap_bytes(const struct engine *g, const struct engine_snap *s)
{
    (void)g;
    (void)s;
    return FAKE_STATE;
}

struct engine_kept engine_kept(const struct engine *g)
{
    return (struct engine_kept){.n = fake_log.snaps,
                                .bytes = (uint64_t)fake_log.snaps * FAKE_STATE,
                                .pages = g->pages,
                                .pages_free = g->pages - used_pages(g),
                                .page_tokens = FAKE_PAGE,
                                .page_bytes = 4096};
}

void engine_on_full(struct engine *g, bool (*fn)(void *ctx), void *ctx)
{
    g->full = fn;
    g->full_ctx = ctx;
}

static void feed(struct engine *g, int seq, int32_t id)
{
    struct seq *s = &g->seqs[seq];
    assert(s->open && s->len < g->info.ctx);
    s->h = mix(s->h, id);
    s->len++;
}

static void output(struct engine *g, int i, int seq)
{
    g->out_h[i] = g->seqs[seq].h;
    g->out_len[i] = g->seqs[seq].len;
    g->out_drawn[i] = g->seqs[seq].drawn;
    g->n_out = i + 1;
}

int engine_prefill(struct engine *g, const struct engine_prefill *p, struct err *e)
{
    fake_log.prefill_calls++;
    fake_log.prefill_tokens += p->n;
    if (g->fail_prefill > 0 && --g->fail_prefill == 0) {
        return err_set(e, QE_DEVICE, "prefill made to fail");
    }
    const int rc = grow(g, p->seq, g->seqs[p->seq].len + p->n, e);
    if (rc < 0) {
        return rc;
    }
    usleep((useconds_t)(g->prefill_us * p->n));
    g->n_out = 0;
    int want = 0;
    g->seqs[p->seq].drawn = 0;
    g->seqs[p->seq].pure &= g->seqs[p->seq].len % 64 == 0;
    for (int i = 0; i < p->n; i++) {
        feed(g, p->seq, p->tokens[i]);
        if (want < p->n_want && p->want[want] == i) {
            output(g, want++, p->seq);
        }
    }
    return 0;
}

int engine_decode(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e)
{
    assert(n >= 1 && n <= 16);
    fake_log.decode_calls++;
    if (n > fake_log.max_rows) {
        fake_log.max_rows = n;
    }
    if (g->fail_decode > 0 && --g->fail_decode == 0) {
        return err_set(e, QE_DEVICE, "decode made to fail");
    }
    for (int i = 0; i < n; i++) {
        int rows = 0;
        for (int k = 0; k <= i; k++) {
            rows += seqs[k] == seqs[i];
        }
        const int rc = grow(g, seqs[i], g->seqs[seqs[i]].len + rows, e);
        if (rc < 0) {
            return rc;
        }
    }
    usleep((useconds_t)g->step_us);
    for (int i = 0; i < n; i++) {
        feed(g, seqs[i], tokens[i]);
        g->seqs[seqs[i]].drawn++;
        g->seqs[seqs[i]].pure = false;
        output(g, i, seqs[i]);
    }
    return 0;
}

int engine_sample(struct engine *g, const int *outputs, const struct engine_draw *d, int n,
                  int32_t *ids, struct err *e)
{
    (void)e;
    for (int i = 0; i < n; i++) {
        int o = outputs[i];
        assert(o < g->n_out);
        if (script.n > 0) {
            int k = g->out_drawn[o];
            ids[i] = k < script.n ? script.ids[k] : g->eos_id;
            continue;
        }
        ids[i] = draw(g->out_h[o], g->out_len[o], g->info.vocab_used, g->eos, d[i].temp, d[i].seed);
        if (g->eos == 0 && ids[i] == g->eos_id) {
            ids[i] = 3; /* never the end by chance */
        }
    }
    return 0;
}

/* Like engine_decode on copies, which engine_commit makes true. */
int engine_verify(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e)
{
    struct seq was[MAX_SEQS];
    memcpy(was, g->seqs, sizeof was);
    for (int i = 0, rows = 0; i < n; i++) {
        rows = i > 0 && seqs[i] == seqs[i - 1] ? rows + 1 : 1;
        assert(rows <= g->info.verify_width);
    }
    int rc = engine_decode(g, seqs, tokens, n, e);
    fake_log.verify_calls++;
    memcpy(g->seqs, was, sizeof was);
    g->n_held = rc == 0 ? n : 0;
    for (int i = 0; i < n; i++) {
        g->held_seq[i] = seqs[i];
        g->held_token[i] = tokens[i];
    }
    return rc;
}

int engine_commit(struct engine *g, const int *seqs, const int *keep, int n, struct err *e)
{
    (void)e;
    assert(g->n_held > 0);
    for (int i = 0; i < n; i++) {
        int left = keep[i];
        for (int k = 0; k < g->n_held && left > 0; k++) {
            if (g->held_seq[k] == seqs[i]) {
                feed(g, seqs[i], g->held_token[k]);
                g->seqs[seqs[i]].drawn++;
                g->seqs[seqs[i]].pure = false;
                left--;
            }
        }
        assert(left == 0);
    }
    g->n_held = 0;
    return 0;
}

/* What will be drawn greedily, except that some drafts are wrong: one in `wrong`. */
int engine_draft(struct engine *g, struct engine_draft *d, int n, struct err *e)
{
    (void)e;
    g->n_out = g->n_held = 0;
    for (int i = 0; i < n; i++) {
        const struct seq *s = &g->seqs[d[i].seq];
        assert(s->open && s->len > 0);
        assert(d[i].depth >= 1 && d[i].depth <= g->info.max_draft);
        uint64_t h = mix(s->h, d[i].next);
        bool over = false;
        d[i].n = d[i].steps = 0;
        for (int k = 0; k < d[i].depth && !over; k++) {
            int32_t id = draw(h, s->len + k + 1, g->info.vocab_used, g->eos, 0, 0);
            id = g->eos == 0 && id == g->eos_id ? 3 : id;
            if (script.n > 0) {
                const int at = s->drawn + 1 + k;
                id = at < script.n ? script.ids[at] : g->eos_id;
            }
            if (h % (uint64_t)g->wrong == 0) {
                id = id == 5 ? 6 : 5;
            }
            d[i].ids[k] = id;
            d[i].margins[k] = 1;
            d[i].n = d[i].steps = k + 1;
            over = d[i].to_end && engine_ends(g, id);
            h = mix(h, id);
        }
    }
    return 0;
}

bool engine_ends(const struct engine *g, int32_t id)
{
    return id == g->eos_id;
}

int engine_own_drafts(struct engine *g, int seq, int most, int32_t *ids, int *source)
{
    (void)g;
    (void)seq;
    (void)most;
    (void)ids;
    (void)source;
    return -1;
}

uint64_t engine_bytes_per_step(const struct engine *g)
{
    (void)g;
    return 100;
}

struct engine_guess engine_guess_costs(const struct engine *g)
{
    (void)g;
    return (struct engine_guess){.row = 0.06};
}

uint64_t engine_bytes_per_draft(const struct engine *g)
{
    (void)g;
    return 5;
}

struct engine_counters engine_counters(const struct engine *g)
{
    (void)g;
    return (struct engine_counters){.decode_steps = 0};
}

int engine_logprobs(struct engine *g, int output, int32_t id, int n_top, struct engine_logprob *out,
                    struct err *e)
{
    (void)e;
    assert(output < g->n_out && id >= 0);
    for (int i = 0; i <= n_top; i++) {
        out[i] = (struct engine_logprob){
            .id = i == 0 ? id : i, .logprob = -(float)(i + 1) / 4, .rank = i == 0 ? 1 : i};
    }
    return 0;
}
