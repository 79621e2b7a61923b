/* The scripted backend: a sequence is a place in an answer of the script, and the end of its
 * prompt. It computes nothing, but keeps the contract of backend.h: states can be copied,
 * kept and taken back, verified rows change nothing until they are folded, and every
 * result depends on its own sequence alone. */
#include "config.h"
#include "kernels/script.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/geometry.h"

#define PAGE_BYTES 16
#define MAX_OUT    64
#define NO_TOKEN   (-1)

/* One sequence; also the blob of its state. */
struct script_slot {
    int32_t answer, text; /* answer -1: none was begun */
    int32_t fed;          /* tokens of it that were computed */
    int32_t round;
    int32_t n_window;
    int32_t window[SCRIPT_WINDOW]; /* the last tokens, oldest first */
};

struct backend {
    struct be_shape shape;
    const struct be_script *script;
    int slots, pages, max_rows;
    struct script_slot *slot;
    uint8_t *cache;

    struct be_batch batch; /* arrays below */
    struct be_span *span;
    int32_t *tokens;
    int32_t *row_at; /* of a decoded row: the number of the token it draws */
    int *row_slot;

    int32_t drawn[MAX_OUT]; /* of the last head call */
    int n_out;
};

/* ---- the script ---- */

static const struct script_text *text_of(const struct backend *b, const struct script_slot *s)
{
    return s->answer >= 0 && s->answer < b->script->n_answers
               ? &b->script->answers[s->answer].text[s->text != 0]
               : NULL;
}

/* Token i; after the last one its end is said again, or all of it. */
static int32_t token_at(const struct script_text *t, int i)
{
    return i < t->n     ? t->ids[i]
           : t->forever ? t->ids[t->again + (i - t->n) % (t->n - t->again)]
                        : t->ids[t->n - 1];
}

static int event_at(const struct script_event *ev, struct err *e)
{
    switch (ev->what) {
    case SCRIPT_PAUSE:
        clock_sleep(ev->ns);
        break;
    case SCRIPT_HOLD:
        clock_hold(ev->text);
        break;
    case SCRIPT_DEVICE:
        return err_set(e, QE_DEVICE, "%s", ev->text);
    case SCRIPT_MEMORY:
        return err_set(e, QE_NOMEM, "%s", ev->text);
    case SCRIPT_NAN:
        break; /* when it is drawn */
    }
    return 0;
}

/* What happens before token `at` of a slot's answer. */
static int happen(const struct backend *b, const struct script_slot *s, int at, struct err *e)
{
    const struct script_text *t = text_of(b, s);
    int rc = 0;
    for (int i = 0; t && i < t->n_events && rc == 0; i++) {
        if (t->events[i].at == at) {
            rc = event_at(&t->events[i], e);
        }
    }
    return rc;
}

static int32_t draw(const struct backend *b, const struct script_slot *s, int at)
{
    const struct script_text *t = text_of(b, s);
    for (int i = 0; t && i < t->n_events; i++) {
        if (t->events[i].at == at && t->events[i].what == SCRIPT_NAN) {
            return NO_TOKEN;
        }
    }
    return t ? token_at(t, at) : NO_TOKEN;
}

static void remember(struct script_slot *s, int32_t id)
{
    if (s->n_window == SCRIPT_WINDOW) {
        memmove(s->window, s->window + SCRIPT_WINDOW / 2, SCRIPT_WINDOW / 2 * sizeof *s->window);
        s->n_window = SCRIPT_WINDOW / 2;
    }
    s->window[s->n_window++] = id;
}

static void choose(const struct backend *b, struct script_slot *s)
{
    int text = 0;
    s->answer = b->script->choose(b->script->ctx, s->window, s->n_window, &text);
    s->text = text;
    s->fed = s->round = 0;
}

static const struct script_round *round_of(const struct backend *b, const struct script_slot *s)
{
    const struct script_answer *a = &b->script->answers[s->answer];
    return &a->rounds[s->round % a->n_rounds];
}

/* ---- opening ---- */

static void script_close(struct backend *b)
{
    if (b) {
        free(b->slot);
        free(b->cache);
        free(b->span);
        free(b->tokens);
        free(b->row_at);
        free(b->row_slot);
        free(b);
    }
}

static int script_open(const struct be_shape *shape, const struct be_weights *weights,
                       const struct be_opts *opts, void (*progress)(void *ctx, double done),
                       void *ctx, struct backend **out, struct err *e)
{
    (void)weights; /* none is read */
    const struct be_script *s = opts->script;
    if (!s) {
        return err_set(e, QE_USAGE, "the scripted engine has no script: give --engine script:FILE");
    }
    int rc = be_check_shape(shape, opts, e);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < s->load_steps; i++) {
        if (progress) {
            progress(ctx, (double)i / s->load_steps);
        }
        clock_sleep(s->load_ns / s->load_steps);
    }
    if (s->load_fails) {
        return err_set(e, QE_FORMAT, "%s", s->load_fails);
    }
    struct backend *b = mem_zalloc(sizeof *b);
    b->shape = *shape;
    b->script = s;
    b->slots = opts->slots;
    b->pages = opts->pages;
    b->max_rows = opts->max_prefill > BE_MAX_ROWS ? opts->max_prefill : BE_MAX_ROWS;
    b->slot = mem_array((size_t)b->slots, sizeof *b->slot);
    b->cache = mem_array((size_t)b->pages, PAGE_BYTES);
    b->span = mem_array((size_t)b->max_rows, sizeof *b->span);
    b->tokens = mem_array((size_t)b->max_rows, sizeof *b->tokens);
    b->row_at = mem_array((size_t)b->max_rows, sizeof *b->row_at);
    b->row_slot = mem_array((size_t)b->max_rows, sizeof *b->row_slot);
    memset(b->slot, 0, (size_t)b->slots * sizeof *b->slot);
    memset(b->cache, 0, (size_t)b->pages * PAGE_BYTES);
    if (progress) {
        progress(ctx, 1);
    }
    *out = b;
    return 0;
}

static const char *script_describe(const struct backend *b)
{
    (void)b;
    return "scripted";
}

/* ---- a pass ---- */

static int script_begin(struct backend *b, const struct be_batch *t, struct err *e)
{
    int rc = be_check_batch(&b->shape, t, b->slots, b->pages, b->max_rows, e);
    if (rc < 0) {
        return rc;
    }
    b->batch = *t;
    memcpy(b->span, t->spans, (size_t)t->n_spans * sizeof *b->span);
    memcpy(b->tokens, t->tokens, (size_t)t->n_rows * sizeof *b->tokens);
    b->n_out = 0;
    return 0;
}

static int no_pass(struct backend *b, struct err *e)
{
    (void)b;
    (void)e;
    return 0;
}

static int no_layer(struct backend *b, int layer, struct err *e)
{
    (void)b;
    (void)layer;
    (void)e;
    return 0;
}

/* Takes rows of a span into its slot. */
static void take(struct backend *b, const struct be_span *span, const int32_t *tokens, int n)
{
    struct script_slot *s = &b->slot[span->slot];
    for (int i = 0; i < n; i++) {
        remember(s, tokens[i]);
    }
    if (b->batch.mode == BE_PREFILL) {
        s->answer = -1;
        s->fed = 0;
    } else {
        s->fed += n;
    }
}

/* The end of the pass, where its time is spent and what was to happen does. */
static int script_final_norm(struct backend *b, struct err *e)
{
    int64_t ns = 0;
    int rc = 0;
    for (int i = 0, row = 0; i < b->batch.n_spans && rc == 0; row += b->span[i++].n) {
        const struct be_span *span = &b->span[i];
        const struct script_slot *s = &b->slot[span->slot];
        for (int k = 0; k < span->n; k++) {
            b->row_slot[row + k] = span->slot;
            b->row_at[row + k] = b->batch.mode == BE_PREFILL ? 0 : s->fed + k + 1;
        }
        if (b->batch.mode == BE_PREFILL) {
            ns += b->script->prefill_ns * span->n;
        } else if (s->answer >= 0) {
            const int64_t round = round_of(b, s)->verify_ns;
            ns = round > ns ? round : ns;
            rc = happen(b, s, s->fed + 1, e);
        }
        if (rc == 0 && b->batch.mode != BE_VERIFY) {
            take(b, span, b->tokens + row, span->n);
        }
    }
    clock_sleep(rc == 0 ? ns : 0);
    return rc;
}

static int script_head(struct backend *b, const int32_t *rows, int n, struct err *e)
{
    int rc = be_check_rows(rows, n, b->batch.n_rows, MAX_OUT, e);
    for (int i = 0; i < n && rc == 0; i++) {
        struct script_slot *s = &b->slot[b->row_slot[rows[i]]];
        if (b->batch.mode == BE_PREFILL && s->answer < 0) {
            choose(b, s);
            rc = happen(b, s, 0, e);
        }
        b->drawn[i] = draw(b, s, b->row_at[rows[i]]);
    }
    b->n_out = rc == 0 ? n : 0;
    return rc;
}

static void script_fast_head(struct backend *b, bool on)
{
    (void)b;
    (void)on; /* there is one head */
}

static int script_sample(struct backend *b, const struct be_sample *s, int n, int32_t *ids,
                         struct err *e)
{
    (void)s; /* the script has decided */
    if (n != b->n_out) {
        return err_set(e, QE_INTERNAL, "%d rows are to be drawn of %d", n, b->n_out);
    }
    memcpy(ids, b->drawn, (size_t)n * sizeof *ids);
    return 0;
}

static int script_fold(struct backend *b, const int32_t *accepted, struct err *e)
{
    (void)e;
    for (int i = 0, row = 0; i < b->batch.n_spans; row += b->span[i++].n) {
        take(b, &b->span[i], b->tokens + row, accepted[i]);
    }
    return 0;
}

static int script_own_drafts(struct backend *b, int slot, int most, int32_t *ids, int *source)
{
    struct script_slot *s = &b->slot[slot];
    const struct script_text *t = text_of(b, s);
    *source = 0;
    if (!t) {
        return 0;
    }
    s->round++;
    const struct script_round *r = round_of(b, s);
    const int first = s->fed + 1; /* the round's first token */
    int right = r->accepted;
    for (int i = 0; i < t->n_events; i++) {
        if (t->events[i].at > first && t->events[i].at - 1 - first < right) {
            right = t->events[i].at - 1 - first;
        }
    }
    const int n = r->drafted < most ? r->drafted : most;
    for (int i = 0; i < n; i++) {
        const int32_t id = token_at(t, first + i);
        ids[i] = i < right ? id : id == 0 ? 1 : id - 1;
    }
    *source = n > 0 ? r->source : 0;
    clock_sleep(r->draft_ns);
    return n;
}

static int script_read_logits(struct backend *b, int i, float *out, struct err *e)
{
    int rc = be_check_slot(b->n_out, i, e);
    for (int k = 0; k < b->shape.vocab && rc == 0; k++) {
        out[k] = k == b->drawn[i] ? 10 : 0;
    }
    return rc;
}

static int script_read_hidden(struct backend *b, int row, float *out, struct err *e)
{
    (void)row;
    (void)e;
    memset(out, 0, (size_t)b->shape.hidden * sizeof *out);
    return 0;
}

/* ---- states ---- */

static size_t script_state_size(const struct backend *b)
{
    (void)b;
    return sizeof(struct script_slot);
}

static size_t script_page_size(const struct backend *b)
{
    (void)b;
    return PAGE_BYTES;
}

static int script_state_reset(struct backend *b, int slot, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc == 0) {
        memset(&b->slot[slot], 0, sizeof *b->slot);
        b->slot[slot].answer = -1;
    }
    return rc;
}

static int script_state_copy(struct backend *b, int dst, int src, struct err *e)
{
    int rc = be_check_slot(b->slots, dst, e);
    rc = rc < 0 ? rc : be_check_slot(b->slots, src, e);
    if (rc == 0 && dst != src) {
        b->slot[dst] = b->slot[src];
    }
    return rc;
}

static int script_state_export(struct backend *b, int slot, void *out, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc == 0) {
        memcpy(out, &b->slot[slot], sizeof *b->slot);
    }
    return rc;
}

static int script_state_import(struct backend *b, int slot, const void *in, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc == 0) {
        memcpy(&b->slot[slot], in, sizeof *b->slot);
        struct script_slot *s = &b->slot[slot];
        s->n_window = s->n_window < 0 || s->n_window > SCRIPT_WINDOW ? 0 : s->n_window;
        s->fed = s->fed < 0 ? 0 : s->fed;
        s->round = s->round < 0 ? 0 : s->round;
        s->answer = s->answer < b->script->n_answers ? s->answer : -1;
    }
    return rc;
}

static int script_page_copy(struct backend *b, int dst, int src, struct err *e)
{
    int rc = be_check_page(b->pages, dst, e);
    rc = rc < 0 ? rc : be_check_page(b->pages, src, e);
    if (rc == 0 && dst != src) {
        memcpy(b->cache + (size_t)dst * PAGE_BYTES, b->cache + (size_t)src * PAGE_BYTES,
               PAGE_BYTES);
    }
    return rc;
}

static int script_page_export(struct backend *b, int page, int n, void *out, struct err *e)
{
    (void)n;
    int rc = be_check_page(b->pages, page, e);
    if (rc == 0) {
        memcpy(out, b->cache + (size_t)page * PAGE_BYTES, PAGE_BYTES);
    }
    return rc;
}

static void script_page_trim(const struct backend *b, int n, void *blob)
{
    (void)b;
    (void)n;
    (void)blob; /* a page holds nothing of anybody */
}

static int script_page_import(struct backend *b, int page, const void *in, struct err *e)
{
    int rc = be_check_page(b->pages, page, e);
    if (rc == 0) {
        memcpy(b->cache + (size_t)page * PAGE_BYTES, in, PAGE_BYTES);
    }
    return rc;
}

static void *script_state_at(const struct backend *b, int slot, size_t at, size_t *n)
{
    *n = sizeof *b->slot - at;
    return (uint8_t *)&b->slot[slot] + at;
}

static void *script_page_at(const struct backend *b, int page, size_t at, size_t *n)
{
    *n = PAGE_BYTES - at;
    return b->cache + (size_t)page * PAGE_BYTES + at;
}

static int script_page_fill(struct backend *b, int page, struct err *e)
{
    return be_check_page(b->pages, page, e);
}

/* There is no MTP layer (the engine leaves it out), and no state in numbers to compare. */
const struct be_ops *backend_script(void)
{
    static const struct be_ops ops = {
        .name = "script",
        .open = script_open,
        .close = script_close,
        .describe = script_describe,
        .begin = script_begin,
        .embed = no_pass,
        .gdn = no_layer,
        .attention = no_layer,
        .ffn = no_layer,
        .final_norm = script_final_norm,
        .head = script_head,
        .fast_head = script_fast_head,
        .sample = script_sample,
        .max_out = MAX_OUT,
        .fold = script_fold,
        .own_drafts = script_own_drafts,
        .read_logits = script_read_logits,
        .read_hidden = script_read_hidden,
        .state_size = script_state_size,
        .page_size = script_page_size,
        .state_reset = script_state_reset,
        .state_copy = script_state_copy,
        .state_export = script_state_export,
        .state_import = script_state_import,
        .page_copy = script_page_copy,
        .page_export = script_page_export,
        .page_trim = script_page_trim,
        .page_import = script_page_import,
        .state_at = script_state_at,
        .page_at = script_page_at,
        .page_fill = script_page_fill,
    };
    return &ops;
}
