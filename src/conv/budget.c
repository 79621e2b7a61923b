/* Four states: thinking, closing (one of the closer's tokens after the other), beginning (one
 * token of an answer, neither an end nor white space), and the rest, where everything may come.
 * A thought that the model closes itself goes to the rest at once. */
#include "config.h"
#include "conv/budget.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define KEPT_LEAST 16
#define KEPT_MOST  1024
#define CLOSER     6 /* tokens of it at most */

enum where { THINKING, CLOSING, BEGINNING, REST };

struct at {
    enum where where;
    int n; /* THINKING: tokens so far; CLOSING: of the closer */
};

struct budget {
    struct engine_form inner;
    int most;
    int32_t close; /* </think> */
    struct tok_ids closer;
    uint32_t *begins; /* ids that an answer may begin with */
    size_t n_begins;  /* words of it */
    struct at at;
};

int budget_fit(int asked, int most)
{
    if (asked < 0 || most < KEPT_LEAST + CLOSER) {
        return -1;
    }
    int keep = most / 4;
    keep = keep < KEPT_LEAST ? KEPT_LEAST : keep > KEPT_MOST ? KEPT_MOST : keep;
    const int room = most - keep - CLOSER;
    return asked < room ? asked : room > 0 ? room : 0;
}

/* Where it stands after one more token. */
static struct at step(const struct budget *b, struct at at, int32_t id)
{
    switch (at.where) {
    case THINKING:
        if (id == b->close) {
            return (struct at){REST, 0};
        }
        at.n++;
        return at.n >= b->most ? (struct at){CLOSING, 0} : at;
    case CLOSING:
        at.n++;
        return (size_t)at.n == b->closer.n ? (struct at){BEGINNING, 0} : at;
    case BEGINNING:
    case REST:
        break;
    }
    return (struct at){REST, 0};
}

static struct at after(const struct budget *b, const int32_t *draft, int n)
{
    struct at at = b->at;
    for (int i = 0; i < n; i++) {
        at = step(b, at, draft[i]);
    }
    return at;
}

/* Whether an answer may begin with the id. */
static bool begins(const struct budget *b, int32_t id)
{
    return id >= 0 && (size_t)id / 32 < b->n_begins && (b->begins[id / 32] >> id % 32 & 1);
}

/* Whether the id may come there, the inner rule aside. */
static bool may_come(const struct budget *b, struct at at, int32_t id)
{
    return at.where == CLOSING     ? id == b->closer.v[at.n]
           : at.where == BEGINNING ? b->inner.ctx || begins(b, id)
                                   : true;
}

/* Leaves of what may come what an answer begins with, if there is any. */
static void keep_begins(const struct budget *b, uint32_t *allow, size_t n_words)
{
    bool some = false;
    for (size_t i = 0; i < n_words && i < b->n_begins; i++) {
        some = some || (allow[i] & b->begins[i]);
    }
    for (size_t i = 0; some && i < n_words; i++) {
        allow[i] &= i < b->n_begins ? b->begins[i] : 0;
    }
}

static void rule_row(void *ctx, const int32_t *draft, int n, uint32_t *allow, size_t n_words)
{
    const struct budget *b = ctx;
    const struct at at = after(b, draft, n);
    if (b->inner.ctx) {
        b->inner.ops->row(b->inner.ctx, draft, n, allow, n_words);
    } else {
        memset(allow, 0xFF, n_words * sizeof *allow);
    }
    if (at.where == CLOSING) {
        const size_t id = (size_t)b->closer.v[at.n];
        memset(allow, 0, n_words * sizeof *allow);
        if (id / 32 < n_words) {
            allow[id / 32] = 1U << id % 32;
        }
    } else if (at.where == BEGINNING) {
        keep_begins(b, allow, n_words);
    }
}

static int rule_legal(void *ctx, const int32_t *draft, int n)
{
    const struct budget *b = ctx;
    const int most = b->inner.ctx ? b->inner.ops->legal(b->inner.ctx, draft, n) : n;
    struct at at = b->at;
    int k = 0;
    for (; k < most && may_come(b, at, draft[k]); k++) {
        at = step(b, at, draft[k]);
    }
    return k;
}

static int rule_forced(void *ctx, int32_t *ids, int most)
{
    const struct budget *b = ctx;
    if (b->at.where != CLOSING) {
        return b->inner.ctx ? b->inner.ops->forced(b->inner.ctx, ids, most) : 0;
    }
    int n = 0;
    for (size_t i = (size_t)b->at.n; i < b->closer.n && n < most; i++) {
        ids[n++] = b->closer.v[i];
    }
    return n;
}

static void rule_take(void *ctx, int32_t id)
{
    struct budget *b = ctx;
    b->at = step(b, b->at, id);
    if (b->inner.ctx) {
        b->inner.ops->take(b->inner.ctx, id);
    }
}

static void rule_free(void *ctx)
{
    struct budget *b = ctx;
    if (b->inner.ctx) {
        b->inner.ops->free(b->inner.ctx);
    }
    tok_ids_free(&b->closer);
    free(b->begins);
    free(b);
}

static void leave_out(struct budget *b, int32_t id)
{
    if (begins(b, id)) {
        b->begins[id / 32] ^= 1U << id % 32;
    }
}

void budget_rule(const struct budget_opts *o, struct engine_form *form)
{
    static const struct engine_form_ops ops = {.row = rule_row,
                                               .legal = rule_legal,
                                               .forced = rule_forced,
                                               .take = rule_take,
                                               .free = rule_free};
    static const char tag[] = "</think>", closer[] = "\n</think>\n\n";
    const int32_t close = tokenizer_added_id(o->tok, tag, sizeof tag - 1);
    if (close < 0) {
        return;
    }
    struct budget *b = mem_zalloc(sizeof *b);
    b->inner = *form;
    b->most = o->thought;
    b->close = close;
    b->at = (struct at){o->thought > 0 ? THINKING : CLOSING, 0};
    tokenizer_encode(o->tok, closer, sizeof closer - 1, true, &b->closer);
    const uint32_t *all = words_begins(o->words, &b->n_begins);
    b->begins = mem_array(b->n_begins + 1, sizeof *b->begins);
    memcpy(b->begins, all, b->n_begins * sizeof *b->begins);
    leave_out(b, close);
    for (int i = 0; i < o->n_end; i++) {
        leave_out(b, o->end[i]);
    }
    *form = (struct engine_form){.ctx = b, .ops = &ops};
}
