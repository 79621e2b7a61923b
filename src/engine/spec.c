/* The choice of drafters and depths. For each sequence two curves are drawn, one for
 * each drafter: the chance that its first, second … draft is used. The better one
 * (tokens per second, by measured costs) is taken; then rows are handed out to the
 * likeliest drafts of all sequences, as many as make the whole round fastest. */
#include "config.h"
#include "engine/spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define WORTH      1.02 /* times faster than not drafting, or it is not done */
#define KNOW_FIRST 3    /* plain steps before anything else: what a round without drafts costs */
#define KNOW_AGAIN 512  /* rounds after which that is measured again, and … */
#define KNOW_CLOSE 48   /* … where drafts win by less than CLOSE times */
#define OLD        24   /* rounds after which it is measured anew, not bettered */
#define CLOSE      1.3
#define GO_ON      0.8 /* of what a draft must be worth: others may follow it */
#define TRY_AGAIN  48  /* rounds without MTP drafts after which one is made, to learn */
#define TRIAL      16  /* rounds without drafts until some are tried, the first time … */
#define TRIAL_MOST 512 /* … and after many that did not pay */
#define AT_LEAST   0.9 /* of what was thought, or a trial has shown something */
#define TRIAL_ROWS 8   /* drafts of one sequence in a trial */
#define NO_TRIAL   8   /* rounds until it is looked again whether there is something to try */

int spec_mode_of(const char *word)
{
    static const char *const words[] = {"auto", "off", "mtp", "suffix", "mtp+suffix"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Whether the engine was opened for what a drafter named, or a number of drafts, needs. */
static int check_caps(const struct spec_opts *o, const struct engine_info *info, bool mtp,
                      struct err *e)
{
    if (o->mode == SPEC_OFF || info->no_verify) {
        return 0;
    }
    if (o->mode != SPEC_AUTO && info->verify_width < 2) {
        return err_set(e, QE_USAGE,
                       "a verify width of 1 leaves no room for drafts (give --verify-width 2 or "
                       "more, or --spec off)");
    }
    if (mtp && o->draft > info->max_draft) {
        return err_set(e, QE_USAGE, "--draft %d is more than --max-draft %d allows", o->draft,
                       info->max_draft);
    }
    if (o->draft >= info->verify_width) {
        return err_set(e, QE_USAGE,
                       "--draft %d needs steps of %d rows, and the verify width is %d (give "
                       "--verify-width %d)",
                       o->draft, o->draft + 1, info->verify_width, o->draft + 1);
    }
    return 0;
}

int spec_init(struct spec *s, const struct spec_opts *o, const struct engine *g, struct err *e)
{
    const struct engine_info *info = engine_info(g);
    const bool wants_mtp = o->mode != SPEC_OFF && o->mode != SPEC_SUFFIX;
    const bool wants_suffix = o->mode != SPEC_OFF && o->mode != SPEC_MTP;
    if (o->mode != SPEC_AUTO && o->mode != SPEC_OFF && info->no_verify) {
        return err_set(e, QE_UNSUPPORTED, "%s", info->no_verify);
    }
    if (wants_mtp && o->mode != SPEC_AUTO && !info->mtp) {
        return err_set(e, QE_UNSUPPORTED,
                       "%s has no MTP layer to draft with, or --max-draft 0 leaves it out (--spec "
                       "suffix needs none)",
                       info->model_name);
    }
    const int rc = check_caps(o, info, wants_mtp && info->mtp, e);
    if (rc < 0) {
        return rc;
    }
    const bool can = !info->no_verify && info->verify_width > 1;
    *s = (struct spec){.own = info->own_drafts && o->mode != SPEC_OFF && can,
                       .mtp = wants_mtp && info->mtp && can,
                       .suffix = wants_suffix && can,
                       .free = o->mode == SPEC_AUTO,
                       .draft = o->draft,
                       .most = smaller(info->verify_width - 1, VIEW_DRAFTS)};
    s->chain = smaller(s->most, info->max_draft);
    cost_init(&s->cost, g);
    leads_init(&s->leads);
    s->patience = TRIAL;
    return 0;
}

bool spec_on(const struct spec *s)
{
    return s->own || s->mtp || s->suffix;
}

/* ---- one conversation ---- */

void spec_seq_reset(struct spec_seq *q)
{
    static const struct spec_class_rate rates[SC_COUNT] = {
        [SC_LOST0] = {0.35F, 0.85F}, [SC_LOST1] = {0.5F, 0.9F}, [SC_LOST2] = {0.7F, 0.92F},
        [SC_LOST3] = {0.8F, 0.93F},  [SC_4] = {0.35F, 0.75F},   [SC_6] = {0.5F, 0.8F},
        [SC_8] = {0.65F, 0.85F},     [SC_12] = {0.8F, 0.92F},   [SC_20] = {0.9F, 0.95F},
        [SC_40] = {0.95F, 0.97F},
    };
    ladder_init(&q->ladder);
    memcpy(q->rate, rates, sizeof rates);
    q->quiet = 0;
    q->doubted = false;
}

struct spec_seq *spec_seq_create(void)
{
    struct spec_seq *q = mem_zalloc(sizeof *q);
    suffix_init(&q->text);
    spec_seq_reset(q);
    return q;
}

void spec_seq_free(struct spec_seq *q)
{
    if (q) {
        suffix_fini(&q->text);
        free(q);
    }
}

void spec_seq_prompt(struct spec_seq *q, const int32_t *ids, int n)
{
    suffix_begin(&q->text, ids, n);
}

void spec_seq_push(struct spec_seq *q, const int32_t *ids, int n)
{
    suffix_push(&q->text, ids, n);
}

/* ---- what drafts are worth ---- */

/* Of the drafts of one source for one sequence. */
struct curve {
    int most;
    float used[VIEW_DRAFTS]; /* chance that draft i is made and right, with all before it */
    float made[VIEW_DRAFTS]; /* … that it is made, and costs a row */
};

static struct curve mtp_curve(const struct ladder *l, int most)
{
    struct curve c = {.most = most < l->level ? most : l->level};
    float used = 1, made = 1;
    for (int i = 0; i < c.most; i++) {
        made *= l->go_on;
        used *= l->go_on * l->right;
        c.used[i] = used;
        c.made[i] = made;
    }
    return c;
}

static struct curve suffix_curve(const struct spec_seq *q, const struct suffix_guess *g, int most)
{
    struct curve c = {.most = g->n < most ? g->n : most};
    float used = q->rate[g->class].first;
    for (int i = 0; i < c.most; i++) {
        c.used[i] = used;
        c.made[i] = 1;
        used *= q->rate[g->class].more;
    }
    return c;
}

/* The state of one plan: rows given to each sequence. */
struct plan {
    const struct curve *curve[COST_ROWS];
    bool mtp[COST_ROWS];
    int n;
    int context[COST_ROWS];
    int rows[COST_ROWS];
};

/* Tokens per second of the rows handed out; 0 while costs are not known. */
static double speed(const struct spec *s, const struct plan *p)
{
    double tokens = p->n, rows = p->n, drafts = 0, context = 0;
    for (int step = 0; step < VIEW_DRAFTS; step++) { /* draft steps, each for those left */
        int seqs = 0;
        float chance = 0;
        double read = 0;
        for (int i = 0; i < p->n; i++) {
            if (p->mtp[i] && step < p->rows[i]) {
                const float here = step > 0 ? p->curve[i]->made[step - 1] : 1;
                chance = here > chance ? here : chance;
                read += p->context[i];
                seqs++;
            }
        }
        read *= s->cost.guess.draft;
        drafts += seqs > 0 ? (double)chance * cost_draft(&s->cost, seqs, read) : 0;
    }
    for (int i = 0; i < p->n; i++) {
        double readers = 1;
        for (int k = 0; k < p->rows[i]; k++) {
            tokens += (double)p->curve[i]->used[k];
            rows += (double)p->curve[i]->made[k];
            readers += s->cost.guess.shared ? 0 : (double)p->curve[i]->made[k];
        }
        context += readers * p->context[i];
    }
    const double seconds = drafts + cost_step(&s->cost, rows, context);
    return seconds > 0 ? tokens / seconds : 0;
}

/* Hands rows out to the likeliest drafts; the best number of them stands in p->rows.
 * least: so many at any rate. Returns the speed. */
static double hand_out(const struct spec *s, struct plan *p, int least)
{
    int best_rows[COST_ROWS] = {0};
    memset(p->rows, 0, sizeof p->rows);
    double best = least > 0 ? 0 : speed(s, p);
    for (int given = 1; given <= COST_ROWS - p->n; given++) {
        int who = -1;
        for (int i = 0; i < p->n; i++) {
            const int k = p->rows[i];
            if (k < p->curve[i]->most &&
                (who < 0 || p->curve[i]->used[k] > p->curve[who]->used[p->rows[who]])) {
                who = i;
            }
        }
        if (who < 0) {
            break;
        }
        p->rows[who]++;
        const double v = speed(s, p);
        if (v > best || given <= least) {
            best = v;
            memcpy(best_rows, p->rows, sizeof best_rows);
        }
    }
    memcpy(p->rows, best_rows, sizeof best_rows);
    return best;
}

static double alone(const struct spec *s, const struct curve *c, bool mtp, int context)
{
    struct plan p = {.curve = {c}, .mtp = {mtp}, .n = 1, .context = {context}};
    return c->most > 0 ? hand_out(s, &p, 1) : 0;
}

/* ---- a round ---- */

struct offer {
    struct suffix_guess guess;
    struct curve suffix, mtp;
};

/* Every round the same number: from the text when it has a good match, else from the
 * MTP layer. */
static void fixed(const struct spec *s, struct spec_part *p, const struct offer *o, int most)
{
    const bool match = o->suffix.most > 0 && (!s->mtp || o->guess.match >= 12);
    p->source = match ? VS_SUFFIX : s->mtp ? VS_MTP : VS_NONE;
    p->ceiling = match && o->suffix.most < most ? o->suffix.most : most;
}

/* What one more row of sequence i costs in such a round. */
static double row_seconds(const struct spec *s, const struct plan *p, int i)
{
    int rows = p->n;
    double first = 0, more = 0; /* context that the pending tokens read, and drafts */
    for (int k = 0; k < p->n; k++) {
        rows += p->rows[k];
        first += p->context[k];
        more += (double)p->rows[k] * p->context[k];
    }
    if (rows == p->n) {
        rows++;
        more = p->context[i];
    }
    more = s->cost.guess.shared ? 0 : more;
    return (cost_step(&s->cost, rows, first + more) - cost_step(&s->cost, p->n, first)) /
           (double)(rows - p->n);
}

/* The better source for each sequence and as many rows as pay; returns how many times as
 * fast as without drafts that is. */
static double choose(const struct spec *s, struct plan *plan, const struct offer *o, int least)
{
    for (int i = 0; i < plan->n; i++) {
        const double by_mtp = alone(s, &o[i].mtp, true, plan->context[i]);
        const double by_text = alone(s, &o[i].suffix, false, plan->context[i]);
        plan->mtp[i] = by_mtp > by_text;
        plan->curve[i] = plan->mtp[i] ? &o[i].mtp : &o[i].suffix;
    }
    memset(plan->rows, 0, sizeof plan->rows);
    const double idle = speed(s, plan), best = hand_out(s, plan, least);
    return idle > 0 ? best / idle : 0;
}

/* Drafts did not seem to pay for a while. What was measured may be wrong, and nothing would
 * show it: they are made as if only guesses were known, and their width is measured anew. */
static bool trial(struct spec *s, struct plan *plan, const struct offer *o)
{
    bool some = false;
    for (int i = 0; i < plan->n; i++) {
        some |= plan->curve[i]->most > 0;
    }
    s->undrafted += some;
    s->drafted = 0;
    if (!some || s->undrafted < s->patience) {
        return false;
    }
    s->cost.hope = true;
    s->trying = choose(s, plan, o, 0) >= WORTH;
    s->cost.hope = false;
    for (int i = 0; s->trying && i < plan->n; i++) {
        plan->rows[i] = smaller(plan->rows[i], TRIAL_ROWS);
    }
    s->undrafted = s->trying ? 0 : s->patience - NO_TRIAL;
    s->patience = s->trying ? smaller(2 * s->patience, TRIAL_MOST) : s->patience;
    return s->trying;
}

/* As many as pay. */
static void measured(struct spec *s, struct spec_part *p, const struct offer *o, int n)
{
    struct plan plan = {.n = n};
    double context = 0;
    for (int i = 0; i < n; i++) {
        plan.context[i] = p[i].context;
        context += p[i].context;
    }
    const double gain = choose(s, &plan, o, s->free ? 0 : n);
    const uint64_t old = s->cost.round - s->cost.step[n].when;
    if (s->free && (s->cost.step[n].n < KNOW_FIRST || !cost_knows_depth(&s->cost, context / n) ||
                    old > (gain < CLOSE ? KNOW_CLOSE : KNOW_AGAIN))) {
        memset(plan.rows, 0, sizeof plan.rows);
    } else if (s->free && gain < WORTH && !trial(s, &plan, o)) {
        memset(plan.rows, 0, sizeof plan.rows);
        for (int i = 0; s->mtp && i < n; i++) {
            if (p[i].q->quiet >= TRY_AGAIN && o[i].mtp.most > 0) {
                plan.mtp[i] = true;
                plan.rows[i] = 1;
                break; /* one at a time */
            }
        }
    } else if (gain >= WORTH) {
        s->undrafted = 0;
        s->drafted++;
        s->patience = s->drafted >= TRIAL ? TRIAL : s->patience;
    }
    struct plan none = plan;
    memset(none.rows, 0, sizeof none.rows);
    const double fast = gain > 1 ? gain * speed(s, &none) : speed(s, &none);
    for (int i = 0; i < n; i++) {
        const double row = row_seconds(s, &plan, i);
        const double next = row + cost_draft(&s->cost, 1, p[i].context * s->cost.guess.draft);
        p[i].least = leads_worth(&s->leads, GO_ON * next * fast / (double)p[i].q->ladder.right);
        p[i].last = leads_worth(&s->leads, row * fast);
        p[i].ceiling = plan.rows[i];
        p[i].source = plan.rows[i] == 0 ? VS_NONE : plan.mtp[i] ? VS_MTP : VS_SUFFIX;
    }
}

static int run_mtp(struct spec *s, struct engine *g, struct spec_part *p, int n, struct err *e)
{
    struct engine_draft d[COST_ROWS];
    int who[COST_ROWS], k = 0, steps = 0;
    double context = 0;
    for (int i = 0; i < n; i++) {
        if (p[i].source == VS_MTP) {
            who[k] = i;
            context += p[i].context;
            d[k++] = (struct engine_draft){.seq = p[i].seq,
                                           .next = p[i].pending,
                                           .depth = p[i].ceiling,
                                           .least = p[i].least,
                                           .to_end = true};
        }
    }
    if (k == 0) {
        return 0;
    }
    const int64_t start = clock_now(clock_main());
    int rc = engine_draft(g, d, k, e);
    for (int i = 0; i < k && rc == 0; i++) {
        struct spec_part *to = &p[who[i]];
        to->n = d[i].n;
        to->steps = d[i].steps;
        to->n += d[i].n < d[i].steps && d[i].margins[d[i].n] >= to->last;
        to->over = to->n > 0 && engine_ends(g, d[i].ids[to->n - 1]);
        memcpy(to->ids, d[i].ids, (size_t)d[i].steps * sizeof *to->ids);
        memcpy(to->leads, d[i].margins, (size_t)d[i].steps * sizeof *to->leads);
        steps = d[i].steps > steps ? d[i].steps : steps;
    }
    if (rc == 0) {
        const double each = clock_seconds(clock_now(clock_main()) - start) / steps;
        cost_add_draft(&s->cost, k, context * s->cost.guess.draft, each);
    }
    return rc;
}

/* What the backend itself drafts. */
static void own_drafts(struct engine *g, struct spec_part *p, int n)
{
    int left = COST_ROWS - n;
    for (int i = 0; i < n; i++) {
        const int most = smaller(smaller(left, VIEW_DRAFTS), p[i].room);
        int source = VS_NONE;
        const int k = engine_own_drafts(g, p[i].seq, most > 0 ? most : 0, p[i].ids, &source);
        p[i].source = (enum view_source)source;
        p[i].n = p[i].steps = p[i].ceiling = k > 0 ? k : 0;
        p[i].least = p[i].last = 0;
        p[i].context = engine_seq_len(g, p[i].seq);
        memset(p[i].leads, 0, sizeof p[i].leads);
        left -= p[i].n;
    }
}

/* Nothing follows what ends a text, though it did in an earlier turn. */
static void cut_at_end(const struct engine *g, struct suffix_guess *guess)
{
    for (int i = 0; i < guess->n; i++) {
        if (engine_ends(g, guess->ids[i])) {
            guess->n = i + 1;
        }
    }
}

int spec_draft(struct spec *s, struct engine *g, struct spec_part *p, int n, struct err *e)
{
    struct offer o[COST_ROWS];
    n = n < COST_ROWS ? n : COST_ROWS; /* as promised; compilers cannot know it */
    s->cost.round++;
    s->trying = false;
    if (s->own) {
        own_drafts(g, p, n);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        const int most = smaller(smaller(COST_ROWS - n, s->most), p[i].room);
        o[i] = (struct offer){.guess = {0}};
        if (s->suffix && most > 0) {
            suffix_guess(&p[i].q->text, most, &o[i].guess);
            cut_at_end(g, &o[i].guess);
            o[i].suffix = suffix_curve(p[i].q, &o[i].guess, most);
        }
        if (s->mtp && engine_seq_len(g, p[i].seq) > 0) {
            o[i].mtp = mtp_curve(&p[i].q->ladder, smaller(most, s->chain));
        }
        p[i].source = VS_NONE;
        p[i].n = p[i].steps = p[i].ceiling = 0;
        p[i].over = false;
        p[i].least = p[i].last = 0;
        if (p[i].q->doubted) {
            leads_learn(&s->leads, p[i].q->doubted_lead, p[i].pending == p[i].q->doubted_id);
            p[i].q->doubted = false;
        }
        p[i].context = engine_seq_len(g, p[i].seq);
        p[i].class = o[i].guess.class;
    }
    if (s->draft) {
        int left = COST_ROWS - n;
        for (int i = 0; i < n; i++) {
            int most = s->draft < left ? s->draft : left;
            most = most < p[i].room ? most : p[i].room;
            if (most > 0) {
                fixed(s, &p[i], &o[i], most);
                left -= p[i].ceiling;
            }
        }
    } else {
        measured(s, p, o, n);
    }
    for (int i = 0; i < n; i++) {
        if (p[i].source == VS_SUFFIX) {
            p[i].n = p[i].ceiling;
            memcpy(p[i].ids, o[i].guess.ids, (size_t)p[i].n * sizeof *p[i].ids);
        }
    }
    return run_mtp(s, g, p, n, e);
}

/* ---- afterwards ---- */

static void rate_learn(struct spec_class_rate *r, int drafted, int accepted)
{
    r->first += ((accepted > 0 ? 1.0F : 0.0F) - r->first) / 8;
    for (int i = 1; i < drafted && i <= accepted; i++) {
        r->more += ((i < accepted ? 1.0F : 0.0F) - r->more) / 32;
    }
}

/* What a round says about a conversation. */
static void seq_learn(struct spec *s, struct spec_seq *q, const struct spec_part *p, int accepted)
{
    q->quiet = p->source == VS_MTP ? 0 : q->quiet + 1;
    if (p->source == VS_MTP) {
        /* A chain that ended with a verified draft did not go on: a step more. */
        const int steps = p->steps + (p->n == p->steps && p->n < p->ceiling && !p->over);
        ladder_observe(&q->ladder, p->ceiling, steps, p->n, accepted);
        for (int i = 0; i < p->n && i <= accepted; i++) {
            leads_learn(&s->leads, p->leads[i], i < accepted);
        }
        if (p->steps > p->n && accepted == p->n) {
            q->doubted = true;
            q->doubted_id = p->ids[p->n];
            q->doubted_lead = p->leads[p->n];
        }
    } else if (p->source == VS_SUFFIX) {
        rate_learn(&q->rate[p->class], p->n, accepted);
    }
}

void spec_learn(struct spec *s, const struct spec_part *p, int n, const int *accepted,
                double step_s, struct view_spec *const *stats)
{
    int rows = n;
    double context = 0;
    for (int i = 0; i < n; i++) {
        rows += p[i].n;
        context += (double)p[i].context * (s->cost.guess.shared ? 1 : 1 + p[i].n);
        if (p[i].q && !s->own && !p[i].given) {
            seq_learn(s, p[i].q, &p[i], accepted[i]);
        }
        view_spec_round(stats[i], p[i].source, p[i].n, accepted[i]);
    }
    /* What a trial finds to be cheaper than thought is measured anew. */
    struct cost_mean *m = &s->cost.step[rows];
    if (rows == n) {
        cost_plain(&s->cost, n, context, step_s);
    }
    const bool cheap = s->trying && step_s < AT_LEAST * cost_step(&s->cost, rows, context);
    if (cheap || (rows == n && s->cost.round - m->when > OLD)) {
        m->n = 0;
    }
    cost_add_step(&s->cost, rows, context, step_s);
}
