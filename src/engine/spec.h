#ifndef QUASAR_ENGINE_SPEC_H
#define QUASAR_ENGINE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/cost.h"
#include "engine/engine.h"
#include "engine/ladder.h"
#include "engine/lead.h"
#include "engine/suffix.h"
#include "view/spec.h"

/*
 * What to draft, for whom and how much. Drafts never change what is said: each round
 * the model computes the pending token and the drafts of every sequence in one step
 * (engine_verify), draws a token from every row as it would without drafts, and keeps
 * the rows whose draft is the token drawn. Here only the number of tokens a round
 * yields is decided. All of it belongs to the engine's thread.
 */
enum spec_mode { SPEC_AUTO, SPEC_OFF, SPEC_MTP, SPEC_SUFFIX, SPEC_MTP_SUFFIX };

/* "auto", "off", "mtp", "suffix", "mtp+suffix"; -1: another word. */
int spec_mode_of(const char *word);

struct spec_opts {
    enum spec_mode mode;
    int draft; /* drafts of every round, 1 .. VIEW_DRAFTS; 0: as measured */
};

/* What holds for an engine: the drafters in use, what rounds cost and what leads mean. */
struct spec {
    bool own; /* the backend drafts, nobody else */
    bool mtp, suffix;
    bool free; /* may also not draft at all (auto) */
    int draft; /* as in spec_opts */
    int most;  /* drafts that a step can verify, and … */
    int chain; /* … that the MTP layer can chain, at most as many */
    struct cost cost;
    struct leads leads;
    int undrafted; /* rounds without drafts where there were some to make, and … */
    int drafted;   /* rounds with drafts since */
    int patience;  /* … so many until they are tried whatever was measured */
    bool trying;   /* this round is such a trial */
};

/* QE_UNSUPPORTED: a drafter was named that this engine cannot serve; auto then means
 * none. QE_USAGE: more drafts a round than the engine was opened for. */
int spec_init(struct spec *s, const struct spec_opts *o, const struct engine *g, struct err *e);
/* Any drafter at all. */
bool spec_on(const struct spec *s);

/* What is known of one conversation. */
struct spec_class_rate {
    float first, more; /* how often the first draft is right; how often the next one is */
};
struct spec_seq {
    struct suffix text;
    struct ladder ladder;
    struct spec_class_rate rate[SC_COUNT];
    int quiet; /* rounds without MTP drafts */
    /* The draft that ended the last chain, because it led by too little to be verified:
     * the next pending token tells whether it was right. */
    bool doubted;
    int32_t doubted_id;
    float doubted_lead;
};

struct spec_seq *spec_seq_create(void);
void spec_seq_free(struct spec_seq *q); /* NULL is allowed */
/* Another conversation of the same session begins, or the same one from another place:
 * what was learnt of it is forgotten, its text is not. */
void spec_seq_reset(struct spec_seq *q);
/* The text now is a prompt. Earlier prompts with their answers, those that it does not go
 * on from too, stay a source of drafts as long as there is room (SUFFIX_MOST). */
void spec_seq_prompt(struct spec_seq *q, const int32_t *ids, int n);
/* Tokens that were decided. */
void spec_seq_push(struct spec_seq *q, const int32_t *ids, int n);

/* One sequence in a round. */
struct spec_part {
    /* in */
    struct spec_seq *q; /* spec_learn takes NULL for nothing to learn */
    int seq;
    int32_t pending; /* the token to be computed next; pushed already */
    int room;        /* most drafts that may be used */
    /* out */
    enum view_source source;
    int n;       /* drafts */
    bool over;   /* MTP: the last one ends the text */
    int ceiling; /* MTP: how many it was asked for */
    int steps;   /* MTP: steps made */
    float least; /* MTP: a draft that leads by less ends the chain; it is … */
    float last;  /* … verified if it leads by this much */
    int context; /* tokens before the pending one */
    bool given;  /* its drafts are not the drafters': nothing is learnt of them */
    enum suffix_class class;
    int32_t ids[VIEW_DRAFTS];
    float leads[VIEW_DRAFTS]; /* MTP: of each draft over the next best token */
};

/* Drafts for n sequences (at most COST_ROWS), at most COST_ROWS rows in all, pending
 * tokens included. */
int spec_draft(struct spec *s, struct engine *g, struct spec_part *p, int n, struct err *e);

/* How the round went: drafts accepted of each sequence, seconds of the step (model, draw
 * and commit). Adds to the figures of each, stats[i]. */
void spec_learn(struct spec *s, const struct spec_part *p, int n, const int *accepted,
                double step_s, struct view_spec *const *stats);

#endif
