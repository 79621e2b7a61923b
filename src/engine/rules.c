/*
 * The edits that a request's rules make to its logits. One list holds every id
 * that is not as the model left it, with its bias and its counts; an index by id
 * finds an entry in one step. What holds for one row only (drafts before it, stop
 * ids that come too early, the last id of a bad word) goes into a short list of
 * replacements, one for each number of drafts, so that all rows of a verified
 * draft can be drawn in one call.
 */
#include "config.h"
#include "engine/rules.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ROWS (ENGINE_MAX_DRAFT + 1)

struct rules {
    float repetition, frequency, presence;
    bool counting; /* any of the three */
    int vocab;

    int32_t *index; /* [vocab] 1 + place in edit, or 0 */
    struct be_edit *edit;
    int n_edit;
    uint32_t *allow; /* NULL: all */

    int taken, min_tokens;
    int32_t *stop;
    int n_stop;

    /* Bad words of two ids and more; one id alone is a banned edit. */
    int32_t *bad;
    int32_t *bad_len;
    int n_bad;
    int32_t *tail; /* the last tokens, a ring of tail_size (the longest word less one) */
    int tail_size, tail_n, tail_at;

    struct be_edit *over; /* [ROWS][over_cap], written by rules_row */
    int over_cap;

    struct engine_form form; /* ctx NULL: none */
    uint32_t *mask;          /* [ROWS][words], written by rules_row */
    size_t words;
};

/* ---- checking ---- */

static int check_id(const char *what, int32_t id, int vocab, struct err *e)
{
    if (id < 0 || id >= vocab) {
        return err_set(e, QE_USAGE, "%s: token id %d is outside 0..%d", what, (int)id, vocab - 1);
    }
    return 0;
}

static int check_ids(const char *what, const int32_t *ids, size_t n, int vocab, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = check_id(what, ids[i], vocab, e);
    }
    return rc;
}

static int check_penalty(const char *what, float v, struct err *e)
{
    if (!(v >= -2 && v <= 2)) {
        return err_set(e, QE_USAGE, "the %s penalty is %g; it must be from -2 to 2", what,
                       (double)v);
    }
    return 0;
}

static int check_bad(const struct engine_rules *r, int vocab, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_bad; i++) {
        if (r->bad_len[i] < 1) {
            return err_set(e, QE_USAGE, "bad words: one is empty");
        }
        n += (size_t)r->bad_len[i];
    }
    return check_ids("bad words", r->bad, n, vocab, e);
}

static int check(const struct engine_rules *r, int vocab, struct err *e)
{
    if (!(r->repetition >= 0 && r->repetition <= 1e6F)) {
        return err_set(e, QE_USAGE, "the repetition penalty is %g; it must be above 0",
                       (double)r->repetition);
    }
    int rc = check_penalty("frequency", r->frequency, e);
    rc = rc < 0 ? rc : check_penalty("presence", r->presence, e);
    for (size_t i = 0; i < r->n_bias && rc == 0; i++) {
        rc = check_id("logit bias", r->bias[i].id, vocab, e);
        if (rc == 0 && !(r->bias[i].value >= -100 && r->bias[i].value <= 100)) {
            rc = err_set(e, QE_USAGE, "logit bias: %g for token id %d is not from -100 to 100",
                         (double)r->bias[i].value, (int)r->bias[i].id);
        }
    }
    if (rc == 0 && r->allowed && r->n_allowed == 0) {
        rc = err_set(e, QE_USAGE, "allowed token ids: the list is empty");
    }
    rc = rc < 0 ? rc : check_ids("allowed token ids", r->allowed, r->n_allowed, vocab, e);
    rc = rc < 0 ? rc : check_bad(r, vocab, e);
    if (rc == 0 && r->min_tokens < 0) {
        rc = err_set(e, QE_USAGE, "min tokens is %d; it must not be negative", r->min_tokens);
    }
    return rc;
}

/* ---- the list ---- */

static struct be_edit *edit_of(struct rules *r, int32_t id)
{
    if (r->index[id] == 0) {
        r->edit[r->n_edit] = (struct be_edit){.id = id};
        r->index[id] = ++r->n_edit;
    }
    return &r->edit[r->index[id] - 1];
}

static void remember(struct rules *r, int32_t id)
{
    if (r->tail_size > 0) {
        r->tail[r->tail_at] = id;
        r->tail_at = (r->tail_at + 1) % r->tail_size;
        r->tail_n += r->tail_n < r->tail_size;
    }
}

static void fill_bad(struct rules *r, const struct engine_rules *from)
{
    size_t total = 0;
    for (size_t i = 0; i < from->n_bad; i++) {
        total += (size_t)from->bad_len[i];
    }
    r->bad = mem_array(total + 1, sizeof *r->bad);
    r->bad_len = mem_array(from->n_bad + 1, sizeof *r->bad_len);
    const int32_t *w = from->bad;
    int32_t *to = r->bad;
    for (size_t i = 0; i < from->n_bad; w += from->bad_len[i++]) {
        const int len = from->bad_len[i];
        if (len == 1) {
            edit_of(r, w[0])->flags |= BE_BAN;
            continue;
        }
        memcpy(to, w, (size_t)len * sizeof *to);
        to += len;
        r->bad_len[r->n_bad++] = len;
        r->tail_size = len - 1 > r->tail_size ? len - 1 : r->tail_size;
    }
    r->tail = mem_array((size_t)r->tail_size + 1, sizeof *r->tail);
}

static void fill_stop(struct rules *r, const struct engine_rules *from)
{
    r->min_tokens = from->min_tokens;
    r->stop = mem_array(from->n_stop + 1, sizeof *r->stop);
    for (size_t i = 0; i < from->n_stop && r->min_tokens > 0; i++) {
        if (from->stop[i] >= 0 && from->stop[i] < r->vocab) {
            r->stop[r->n_stop++] = from->stop[i];
        }
    }
}

static bool does_nothing(const struct engine_rules *r)
{
    return (r->repetition == 0 || r->repetition == 1) && r->frequency == 0 && r->presence == 0 &&
           r->n_bias == 0 && !r->allowed && r->n_bad == 0 &&
           (r->min_tokens == 0 || r->n_stop == 0) && !r->form.ctx;
}

int rules_create(const struct engine_rules *from, const int32_t *prompt, size_t n_prompt, int vocab,
                 struct rules **out, struct err *e)
{
    int rc = check(from, vocab, e);
    if (rc < 0) {
        return rc;
    }
    if (does_nothing(from)) {
        *out = NULL;
        return 0;
    }
    struct rules *r = mem_zalloc(sizeof *r);
    r->repetition = from->repetition == 0 ? 1 : from->repetition;
    r->frequency = from->frequency;
    r->presence = from->presence;
    r->counting = r->repetition != 1 || r->frequency != 0 || r->presence != 0;
    r->vocab = vocab;
    /* Zero pages cost nothing until an id is used. */
    r->index = mem_zalloc((size_t)vocab * sizeof *r->index);
    r->edit = mem_array((size_t)vocab, sizeof *r->edit);
    for (size_t i = 0; i < from->n_bias; i++) {
        edit_of(r, from->bias[i].id)->bias = from->bias[i].value;
    }
    if (from->allowed) {
        r->allow = mem_zalloc(((size_t)vocab + 31) / 32 * sizeof *r->allow);
        for (size_t i = 0; i < from->n_allowed; i++) {
            r->allow[from->allowed[i] / 32] |= 1U << from->allowed[i] % 32;
        }
    }
    fill_bad(r, from);
    fill_stop(r, from);
    r->form = from->form;
    r->words = ((size_t)vocab + 31) / 32;
    r->mask = r->form.ctx ? mem_array(r->words * ROWS, sizeof *r->mask) : NULL;
    r->over_cap = ENGINE_MAX_DRAFT + r->n_stop + r->n_bad;
    r->over = mem_array((size_t)r->over_cap * ROWS, sizeof *r->over);
    for (size_t i = 0; i < n_prompt; i++) {
        if (r->repetition != 1 && prompt[i] >= 0 && prompt[i] < vocab) {
            edit_of(r, prompt[i])->flags |= BE_SEEN;
        }
        remember(r, prompt[i]);
    }
    *out = r;
    return 0;
}

void rules_free(struct rules *r)
{
    if (r) {
        free(r->index);
        free(r->edit);
        free(r->allow);
        free(r->stop);
        free(r->bad);
        free(r->bad_len);
        free(r->tail);
        free(r->over);
        free(r->mask);
        if (r->form.ctx) {
            r->form.ops->free(r->form.ctx);
        }
        free(r);
    }
}

void rules_take(struct rules *r, int32_t id)
{
    if (!r) {
        return;
    }
    r->taken++;
    if (r->form.ctx) {
        r->form.ops->take(r->form.ctx, id);
    }
    remember(r, id);
    if (r->counting && id >= 0 && id < r->vocab) {
        struct be_edit *x = edit_of(r, id);
        x->flags |= BE_SEEN;
        x->count++;
    }
}

int rules_taken(const struct rules *r)
{
    return r ? r->taken : 0;
}

int rules_legal(const struct rules *r, const int32_t *draft, int n)
{
    return r && r->form.ctx ? r->form.ops->legal(r->form.ctx, draft, n) : n;
}

int rules_forced(const struct rules *r, int32_t *ids, int most)
{
    return r && r->form.ctx && most > 0 ? r->form.ops->forced(r->form.ctx, ids, most) : 0;
}

/* ---- one row ---- */

/* What may come by the form and by the list of the allowed; NULL: all. */
static uint32_t *mask_of(const struct rules *r, const int32_t *draft, int n)
{
    if (!r->form.ctx) {
        return r->allow;
    }
    uint32_t *m = r->mask + (size_t)n * r->words;
    r->form.ops->row(r->form.ctx, draft, n, m, r->words);
    for (size_t i = 0; r->allow && i < r->words; i++) {
        m[i] &= r->allow[i];
    }
    return m;
}

/* The form leaves nothing but an end, which then may come however early it is. */
static bool only_stops(const struct rules *r, uint32_t *m)
{
    bool some = false;
    for (int i = 0; i < r->n_stop; i++) {
        some |= m[r->stop[i] / 32] >> r->stop[i] % 32 & 1;
    }
    for (size_t i = 0; some && i < r->words; i++) {
        uint32_t rest = m[i];
        for (int k = 0; rest && k < r->n_stop; k++) {
            rest &= (size_t)r->stop[k] / 32 == i ? ~(1U << r->stop[k] % 32) : ~0U;
        }
        some = rest == 0;
    }
    return some;
}

/* The row's own entry of an id, begun as the list has it. */
static struct be_edit *over_of(const struct rules *r, struct be_edit *over, int *n, int32_t id)
{
    for (int i = 0; i < *n; i++) {
        if (over[i].id == id) {
            return &over[i];
        }
    }
    assert(*n < r->over_cap);
    over[*n] = r->index[id] ? r->edit[r->index[id] - 1] : (struct be_edit){.id = id};
    return &over[(*n)++];
}

/* The token `back` places before the row: 1 is the last. */
static int32_t before(const struct rules *r, const int32_t *draft, int n, int back)
{
    if (back <= n) {
        return draft[n - back];
    }
    back -= n;
    return back <= r->tail_n ? r->tail[(r->tail_at + r->tail_size - back) % r->tail_size] : -1;
}

static void ban_words(const struct rules *r, const int32_t *draft, int n, struct be_edit *over,
                      int *n_over)
{
    const int32_t *w = r->bad;
    for (int i = 0; i < r->n_bad; w += r->bad_len[i++]) {
        const int last = r->bad_len[i] - 1;
        int k = 0;
        while (k < last && before(r, draft, n, last - k) == w[k]) {
            k++;
        }
        if (k == last) {
            over_of(r, over, n_over, w[last])->flags |= BE_BAN;
        }
    }
}

void rules_row(const struct rules *r, const int32_t *draft, int n, struct be_sample *out)
{
    if (!r) {
        return;
    }
    assert(n >= 0 && n <= ENGINE_MAX_DRAFT);
    struct be_edit *over = r->over + (size_t)n * (size_t)r->over_cap;
    int n_over = 0;
    for (int i = 0; i < n && r->counting; i++) {
        if (draft[i] >= 0 && draft[i] < r->vocab) {
            struct be_edit *x = over_of(r, over, &n_over, draft[i]);
            x->flags |= BE_SEEN;
            x->count++;
        }
    }
    uint32_t *allow = mask_of(r, draft, n);
    if (r->taken + n < r->min_tokens && !(r->form.ctx && only_stops(r, allow))) {
        for (int i = 0; i < r->n_stop; i++) {
            over_of(r, over, &n_over, r->stop[i])->flags |= BE_BAN;
        }
    }
    ban_words(r, draft, n, over, &n_over);
    out->edit = r->edit;
    out->n_edit = r->n_edit;
    out->over = over;
    out->n_over = n_over;
    out->repetition = r->repetition;
    out->frequency = r->frequency;
    out->presence = r->presence;
    out->allow = allow;
}
