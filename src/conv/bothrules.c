/* Two rules that walk along with the same tokens. */
#include "config.h"
#include "conv/bothrules.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct both {
    struct engine_form a, b;
    uint32_t *row; /* [n_row], of b */
    size_t n_row;
};

static void rule_row(void *ctx, const int32_t *draft, int n, uint32_t *allow, size_t n_words)
{
    struct both *x = ctx;
    if (x->n_row < n_words) {
        x->row = mem_realloc(x->row, n_words * sizeof *x->row);
        x->n_row = n_words;
    }
    x->a.ops->row(x->a.ctx, draft, n, allow, n_words);
    x->b.ops->row(x->b.ctx, draft, n, x->row, n_words);
    for (size_t i = 0; i < n_words; i++) {
        allow[i] &= x->row[i];
    }
}

static int rule_legal(void *ctx, const int32_t *draft, int n)
{
    const struct both *x = ctx;
    return x->b.ops->legal(x->b.ctx, draft, x->a.ops->legal(x->a.ctx, draft, n));
}

static int rule_forced(void *ctx, int32_t *ids, int most)
{
    const struct both *x = ctx;
    const int n = x->a.ops->forced(x->a.ctx, ids, most);
    return n > 0 ? n : x->b.ops->forced(x->b.ctx, ids, most);
}

static void rule_take(void *ctx, int32_t id)
{
    const struct both *x = ctx;
    x->a.ops->take(x->a.ctx, id);
    x->b.ops->take(x->b.ctx, id);
}

static void rule_free(void *ctx)
{
    struct both *x = ctx;
    x->a.ops->free(x->a.ctx);
    x->b.ops->free(x->b.ctx);
    free(x->row);
    free(x);
}

void both_rules(const struct engine_form *more, struct engine_form *form)
{
    static const struct engine_form_ops ops = {.row = rule_row,
                                               .legal = rule_legal,
                                               .forced = rule_forced,
                                               .take = rule_take,
                                               .free = rule_free};
    if (!form->ctx) {
        *form = *more;
        return;
    }
    struct both *x = mem_zalloc(sizeof *x);
    x->a = *form;
    x->b = *more;
    *form = (struct engine_form){.ctx = x, .ops = &ops};
}
