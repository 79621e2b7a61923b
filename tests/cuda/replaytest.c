/* See replaytest.h. Drafts are the text that plain steps gave, spoilt at one place in
 * most rounds, so that every number of them is accepted now and then. */
#include "config.h"
#include "tests/cuda/replaytest.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/rules.h"
#include "kernels/sample.h"
#include "tests/cuda/engtest.h"
#include "tests/cuda/testmodel.h"

enum { DRAFTS = 3, ROWS = DRAFTS + 1 };

/* One round: its rows' logits, the drafts, what was drawn from each row, tokens kept. */
struct entry {
    float logits[ROWS][TM_VOCAB];
    int32_t drafts[DRAFTS], ids[ROWS];
    int pos; /* of the token that the first row draws */
    int kept;
};

struct setting {
    const char *name;
    struct engine_draw draw;
    struct engine_rules rules;
};

static struct rules *fresh(const struct setting *s, const int32_t *prompt)
{
    struct rules *r = NULL;
    struct err e = ERR_INIT;
    must(rules_create(&s->rules, prompt, 1, TM_USED, &r, &e), &e);
    return r;
}

/* n tokens after the first of text, one by one. */
static void plain(struct engine *g, const struct setting *s, const int32_t *text, int32_t *out,
                  int n)
{
    struct rules *r = fresh(s, text);
    struct engine_draw d = s->draw;
    struct err e = ERR_INIT;
    const int output = 0;
    int seq = open_seq(g);
    d.rules = r;
    for (int i = 0; i < n; i++) {
        must(engine_decode(g, &seq, i == 0 ? text : &out[i - 1], 1, &e), &e);
        must(engine_sample(g, &output, &d, 1, &out[i], &e), &e);
        rules_take(r, out[i]);
    }
    rules_free(r);
    engine_seq_close(g, seq);
}

/* Kept: the drawn tokens up to the first that was not drafted. */
static int judge(const int32_t *drafts, const int32_t *ids)
{
    int n = 0;
    while (n < DRAFTS && drafts[n] == ids[n]) {
        n++;
    }
    return n + 1;
}

/* The rounds, logged. Returns tokens; they stand in out. */
static int logged(struct engine *g, const struct setting *s, const int32_t *text,
                  const int32_t *right, struct entry *log, int rounds, int32_t *out)
{
    struct rules *r = fresh(s, text);
    struct err e = ERR_INIT;
    int seq = open_seq(g), n = 0;
    for (int i = 0; i < rounds; i++) {
        struct entry *l = &log[i];
        int seqs[ROWS], outputs[ROWS];
        int32_t tokens[ROWS];
        struct engine_draw d[ROWS];
        l->pos = 1 + n;
        for (int k = 0; k < ROWS; k++) {
            if (k < DRAFTS) {
                l->drafts[k] = k == i % ROWS ? (right[n + k] + 1) % TM_USED : right[n + k];
            }
            tokens[k] = k > 0 ? l->drafts[k - 1] : n > 0 ? out[n - 1] : text[0];
            seqs[k] = seq;
            outputs[k] = k;
            d[k] = s->draw;
            d[k].rules = r;
            d[k].draft = l->drafts;
            d[k].n_draft = k;
        }
        must(engine_verify(g, seqs, tokens, ROWS, &e), &e);
        must(engine_sample(g, outputs, d, ROWS, l->ids, &e), &e);
        for (int k = 0; k < ROWS; k++) {
            must(engine_logits(g, k, l->logits[k], &e), &e);
        }
        l->kept = judge(l->drafts, l->ids);
        must(engine_commit(g, &seq, &l->kept, 1, &e), &e);
        for (int k = 0; k < l->kept; k++) {
            rules_take(r, l->ids[k]);
            out[n++] = l->ids[k];
        }
    }
    rules_free(r);
    engine_seq_close(g, seq);
    return n;
}

/* Decisions of the log that the CPU makes otherwise. */
static int replayed(const struct setting *s, const int32_t *text, const struct entry *log,
                    int rounds)
{
    struct rules *r = fresh(s, text);
    float *work = mem_array(sample_work(TM_USED), sizeof *work);
    int wrong = 0;
    for (int i = 0; i < rounds; i++) {
        const struct entry *l = &log[i];
        int32_t ids[ROWS];
        for (int k = 0; k < ROWS; k++) {
            struct be_sample b = {.temp = s->draw.temp,
                                  .top_p = s->draw.top_p,
                                  .top_k = s->draw.top_k,
                                  .min_p = s->draw.min_p,
                                  .seed = s->draw.seed,
                                  .pos = l->pos + k};
            rules_row(r, l->drafts, k, &b);
            ids[k] = sample_row(l->logits[k], TM_USED, &b, work);
            wrong += ids[k] != l->ids[k];
        }
        wrong += judge(l->drafts, ids) != l->kept;
        for (int k = 0; k < l->kept; k++) {
            rules_take(r, ids[k]);
        }
    }
    free(work);
    rules_free(r);
    return wrong;
}

void replaytest_run(spectest_open *open, const int32_t *text, int rounds)
{
    const struct setting settings[] = {
        {"temperature 1", {.temp = 1, .top_p = 1, .seed = 11}, {.presence = 0}},
        {"nucleus, presence",
         {.temp = 0.7F, .top_p = 0.9F, .top_k = 20, .seed = 12},
         {.presence = 1.5F}},
        {"min-p, repetition, frequency",
         {.temp = 1.3F, .top_p = 1, .min_p = 0.02F, .seed = 13},
         {.repetition = 1.2F, .frequency = 0.3F}},
    };
    struct engine_opts o = {.slots = 2};
    struct engine *g = open(&o);
    struct entry *log = mem_array((size_t)rounds, sizeof *log);
    const int most = rounds * ROWS;
    int32_t *right = mem_array((size_t)most + DRAFTS, sizeof *right);
    int32_t *got = mem_array((size_t)most, sizeof *got);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const struct setting *s = &settings[i];
        plain(g, s, text, right, most + DRAFTS);
        const int n = logged(g, s, text, right, log, rounds, got);
        ok(memcmp(got, right, (size_t)n * sizeof *got) == 0,
           "%s: %d tokens in %d rounds are those of plain steps", s->name, n, rounds);
        ok(replayed(s, text, log, rounds) == 0, "%s: the CPU decides all rows of the log alike",
           s->name);
        /* the log decides: one logit raised, and a draw is another */
        int least = 0;
        for (int id = 1; id < TM_USED; id++) {
            least = log[0].logits[0][id] < log[0].logits[0][least] ? id : least;
        }
        log[0].logits[0][least] = 1e4F;
        ok(replayed(s, text, log, rounds) > 0, "%s: and not when one logit is another", s->name);
    }
    free(log);
    free(right);
    free(got);
    engine_close(g);
}
