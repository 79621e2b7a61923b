#ifndef QUASAR_CONV_BUDGET_H
#define QUASAR_CONV_BUDGET_H

#include "grammar/words.h"
#include "sched/sched.h"
#include "tokenizer/tokenizer.h"

/*
 * A thought that has only so many tokens. When they are used up nothing but the text that closes
 * a thought may come, and after it an answer has to begin. It is a rule that walks along with
 * the tokens, so that drafts are judged by it as tokens are, and the text is the same with and
 * without them.
 */
struct budget_opts {
    const struct tokenizer *tok;
    struct words *words; /* of tok; borrowed */
    int thought;         /* tokens of it */
    const int32_t *end;  /* ids that end an answer */
    int n_end;
};

/* How many tokens of a thought there may be when `asked` are wanted (-1: as many as it likes) and
 * the whole answer has `most`: enough are kept for its end and for an answer. -1: there is no
 * budget to keep. */
int budget_fit(int asked, int most);
/* Wraps *form (ctx NULL: none), which from then on is owned by the rule. Nothing changes when the
 * tokenizer has no token that closes a thought. */
void budget_rule(const struct budget_opts *o, struct engine_form *form);

#endif
