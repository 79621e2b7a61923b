/* Choosing drafts without a model: the suffix drafter against a plain search, copies
 * with small edits, the ladder's hysteresis, costs. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "engine/load.h"
#include "engine/spec.h"
#include "tests/fake/engine.h"

static uint32_t drawn;

static int32_t draw(uint32_t below)
{
    return (int32_t)(philox_word(3, drawn++, PHILOX_TARGET, 0) % below);
}

/* ---- exact matches ---- */

/* The longest earlier occurrence (at most 256 tokens of it), of equals the latest. */
static int longest(const int32_t *t, int n, int *match)
{
    int best = -1;
    *match = 3;
    for (int c = n - 2; c >= 3; c--) {
        int k = 0;
        while (k < 256 && c - k >= 0 && t[c - k] == t[n - 1 - k]) {
            k++;
        }
        if (k > *match) {
            *match = k;
            best = c;
        }
    }
    return best;
}

static void as_a_plain_search(void **state)
{
    (void)state;
    enum { N = 3000 };
    static int32_t t[N];
    struct suffix s;
    suffix_init(&s);
    int said = 0;
    for (int n = 0; n < N;) {
        /* now and then a piece of what was */
        int32_t piece[24];
        int k = 1 + draw(20);
        const int from = n > 60 && draw(3) ? draw((uint32_t)(n - 30)) : -1;
        for (int i = 0; i < k; i++) {
            piece[i] = from >= 0 ? t[from + i] : draw(200);
        }
        k = k < N - n ? k : N - n;
        memcpy(t + n, piece, (size_t)k * sizeof *piece);
        suffix_push(&s, piece, k);
        n += k;
        s.at = s.left_at = -1; /* only what can be found, not what is remembered */
        struct suffix_guess g;
        suffix_guess(&s, 12, &g);
        int match = 0;
        const int c = n >= 5 ? longest(t, n, &match) : -1;
        assert_int_equal(g.n, c >= 0 ? 12 : 0);
        if (c < 0) {
            continue;
        }
        said++;
        assert_int_equal(g.match, match);
        for (int i = 0; i < g.n; i++) {
            assert_int_equal(g.ids[i], c + 1 + i < n ? t[c + 1 + i] : g.ids[c + 1 + i - n]);
        }
    }
    assert_true(said > 100);
    suffix_fini(&s);
}

static void periods_go_on(void **state)
{
    (void)state;
    struct suffix s;
    struct suffix_guess g;
    suffix_init(&s);
    for (int i = 0; i < 20; i++) {
        const int32_t id = i % 3;
        suffix_push(&s, &id, 1);
    }
    suffix_guess(&s, 16, &g);
    assert_int_equal(g.n, 16);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(g.ids[i], (20 + i) % 3);
    }
    suffix_guess(&s, 0, &g);
    assert_int_equal(g.n, 0);
    suffix_clear(&s);
    suffix_guess(&s, 16, &g);
    assert_int_equal(g.n, 0);
    suffix_fini(&s);
}

/* Never more than SUFFIX_MOST tokens; what is recent is still found. */
static void memory_is_bounded(void **state)
{
    (void)state;
    struct suffix s;
    struct suffix_guess g;
    suffix_init(&s);
    for (int i = 0; i < SUFFIX_MOST + SUFFIX_MOST / 4; i++) {
        const int32_t id = i;
        suffix_push(&s, &id, 1);
        assert_true(s.n <= SUFFIX_MOST && s.cap <= SUFFIX_MOST);
    }
    const int32_t again = SUFFIX_MOST + 10;
    for (int i = 0; i < 5; i++) {
        const int32_t id = again + i;
        suffix_push(&s, &id, 1);
    }
    suffix_guess(&s, 3, &g);
    assert_int_equal(g.n, 3);
    assert_int_equal(g.match, 5);
    assert_int_equal(g.ids[0], again + 5);
    for (int i = 0; i < 5; i++) { /* long gone */
        const int32_t id = 100 + i;
        suffix_push(&s, &id, 1);
    }
    suffix_guess(&s, 3, &g);
    assert_int_equal(g.n, 0);
    suffix_fini(&s);
}

/* ---- near repeats ---- */

/* Writes text [0, n) again with an edit at `where`: `drop` tokens replaced by `put` new
 * ones, in rounds of up to eight drafts. Returns the tokens of the rounds from the edit
 * to 40 tokens after it, and counts those rounds. */
static int copy_with_edit(int drop, int put, int *rounds)
{
    enum { N = 200, WHERE = 100 };
    int32_t text[N], want[N + 8];
    int n = 0;
    struct suffix s;
    suffix_init(&s);
    for (int i = 0; i < N; i++) {
        text[i] = 1000 + draw(100000);
    }
    for (int i = 0; i < N; i++) {
        if (i == WHERE) {
            for (int k = 0; k < put; k++) {
                want[n++] = 500000 + k;
            }
            i += drop;
        }
        want[n++] = text[i];
    }
    suffix_push(&s, text, N);
    const int32_t other[] = {1, 2, 3, 4, 5, 6};
    suffix_push(&s, other, 6);
    suffix_push(&s, want, 20); /* now it is clear what is being copied */
    int at = 20, tokens = 0;
    *rounds = 0;
    while (at < WHERE + put + 40) {
        struct suffix_guess g;
        suffix_guess(&s, 8, &g);
        int k = 0;
        while (k < g.n && g.ids[k] == want[at + k]) {
            k++;
        }
        if (at >= WHERE) {
            (*rounds)++;
            tokens += k + 1;
        }
        suffix_push(&s, want + at, k + 1);
        at += k + 1;
    }
    suffix_fini(&s);
    return tokens;
}

static void edits_are_survived(void **state)
{
    (void)state;
    /* replaced, put in, left out, and some of each; without the anchor it takes four
     * tokens of the copy, one round each, until a match is found again */
    const int edits[][3] = {{1, 1, 1}, {0, 1, 2}, {1, 0, 1}, {2, 2, 2},
                            {0, 3, 3}, {3, 0, 2}, {2, 5, 5}, {4, 1, 2}};
    for (int i = 0; i < 8; i++) {
        const int put = edits[i][1];
        int rounds = 0;
        const int tokens = copy_with_edit(edits[i][0], put, &rounds);
        assert_true(tokens >= 40);
        /* one round for every new token and for finding back, the rest in nines */
        const int most = put + 2 + (tokens - put) / 9 + 1;
        if (rounds > most) {
            fail_msg("edit -%d +%d: %d rounds for %d tokens, at most %d expected", edits[i][0], put,
                     rounds, tokens, most);
        }
    }
}

static void a_text_without_repeats_is_silent(void **state)
{
    (void)state;
    struct suffix s;
    struct suffix_guess g;
    suffix_init(&s);
    for (int i = 0; i < 5000; i++) {
        const int32_t id = draw(1U << 30);
        suffix_push(&s, &id, 1);
        suffix_guess(&s, 8, &g);
        assert_int_equal(g.n, 0);
    }
    suffix_fini(&s);
}

/* ---- the ladder ---- */

static void rounds(struct ladder *l, int n, int accepted_of_level, int gap)
{
    for (int i = 0; i < n; i++) {
        const int drafted = gap && i % gap == 0 ? 1 : l->level;
        const int accepted = accepted_of_level >= 0 ? accepted_of_level : l->level;
        const int right = accepted < drafted ? accepted : drafted;
        ladder_observe(l, l->level, drafted < l->level ? drafted + 1 : drafted, drafted, right);
    }
}

static void ladder_climbs_and_sinks(void **state)
{
    (void)state;
    struct ladder l;
    ladder_init(&l);
    assert_int_equal(l.level, LADDER_LEAST);
    rounds(&l, 200, -1, 0);
    assert_int_equal(l.level, LADDER_MOST);
    assert_true(l.right > 0.99F && l.go_on > 0.99F);
    /* entering a level is a fresh start: one bad round does not undo it */
    rounds(&l, 1, 0, 0);
    assert_int_equal(l.level, LADDER_MOST);
    /* the top lane fails: down, and it stays down at 4 */
    rounds(&l, 400, 2, 0);
    assert_int_equal(l.level, LADDER_LEAST);
    assert_true(l.right < 0.75F);
    /* grants below the level say nothing about it */
    ladder_init(&l);
    for (int i = 0; i < 100; i++) {
        ladder_observe(&l, 2, 2, 2, 2);
    }
    assert_int_equal(l.level, LADDER_LEAST);
}

static void ladder_counts_only_what_fired(void **state)
{
    (void)state;
    struct ladder l;
    ladder_init(&l);
    rounds(&l, 200, -1, 0);
    /* The top lane is right whenever it fires, in a third of the rounds: deep levels are
     * given up for that, shallow ones are not. */
    for (int i = 0; i < 600; i++) {
        const bool fires = i % 3 == 0;
        ladder_observe(&l, l.level, fires ? l.level : 2, fires ? l.level : 1, fires ? l.level : 1);
    }
    assert_true(l.level <= 6 && l.level >= LADDER_LEAST);
}

/* ---- leads ---- */

static void leads_say_what_is_worth_it(void **state)
{
    (void)state;
    struct leads l;
    leads_init(&l);
    assert_true(leads_worth(&l, 0.1) == LEAD_LEAST);
    const float careful = leads_worth(&l, 0.9);
    assert_true(careful > 2 && careful <= 4);
    assert_true(leads_worth(&l, 2) == 6); /* nothing is that sure */
    /* such leads turn out to be right after all, whatever still smaller ones do … */
    for (int i = 0; i < 200; i++) {
        leads_learn(&l, 2.5F, true);
        leads_learn(&l, 1.5F, i % 2 == 0);
        leads_learn(&l, 0.1F, true); /* counts nowhere */
    }
    assert_true(leads_worth(&l, 0.9) == 2);
    assert_true(leads_worth(&l, 0.45) == 1);
    assert_true(leads_worth(&l, 0.3) == LEAD_LEAST);
    /* … and later not */
    for (int i = 0; i < 200; i++) {
        leads_learn(&l, 2.5F, false);
    }
    assert_true(leads_worth(&l, 0.9) == careful);
}

/* ---- costs ---- */

static void measure_step(struct cost *c, int rows, double s, int times)
{
    for (int i = 0; i < times; i++) {
        cost_add_step(c, rows, 0, s);
    }
}

static void costs_lie_between(void **state)
{
    (void)state;
    struct cost c = {.draft_share = 0.1, .guess = {.row = 0.06}, .round = 1};
    assert_true(cost_step(&c, 3, 0) == 0);
    measure_step(&c, 1, 1, 4);
    assert_true(cost_step(&c, 1, 0) == 1);
    assert_true(cost_step(&c, 5, 0) > 1 && cost_step(&c, 5, 0) < 1.5); /* hopeful */
    assert_true(cost_draft(&c, 1, 0) == 0.1);
    measure_step(&c, 9, 3, 1); /* once is not enough to give a width up */
    assert_true(cost_step(&c, 9, 0) < 2);
    measure_step(&c, 9, 3, 3);
    assert_true(cost_step(&c, 9, 0) == 3);
    assert_true(cost_step(&c, 5, 0) == 2);
    assert_true(cost_step(&c, 5.5, 0) == 2.125);
    assert_true(cost_step(&c, 16, 0) > 3);
    cost_add_draft(&c, 1, 0, 0.3);
    assert_true(cost_draft(&c, 1, 0) == 0.1);
    for (int i = 0; i < 3; i++) {
        cost_add_draft(&c, 1, 0, 0.3);
    }
    assert_true(cost_draft(&c, 1, 0) == 0.3 && cost_draft(&c, 4, 0) > 0.3);
    c.round = 2000; /* long ago */
    assert_true(cost_draft(&c, 1, 0) == 0.1);
    c.round = 1;
    /* one row takes no longer than nine */
    measure_step(&c, 1, 50, 1000);
    assert_true(cost_step(&c, 1, 0) == 3);
}

/* A slow moment hardly counts, a faster one soon, a machine that stays slow at once. */
static void costs_fall_faster_than_they_rise(void **state)
{
    (void)state;
    struct cost c = {.round = 1};
    measure_step(&c, 1, 1, 4);
    measure_step(&c, 1, 100, 1);
    assert_true(cost_step(&c, 1, 0) < 1.05);
    measure_step(&c, 1, 1, 3);
    measure_step(&c, 1, 2, 3);
    assert_true(cost_step(&c, 1, 0) < 1.3);
    measure_step(&c, 1, 2, 1);
    assert_true(cost_step(&c, 1, 0) == 2);
    measure_step(&c, 1, 0.5, 4);
    assert_true(cost_step(&c, 1, 0) == 0.5);
    c = (struct cost){.round = 1}; /* what lies between the first three */
    measure_step(&c, 1, 9, 1);
    measure_step(&c, 1, 2, 1);
    measure_step(&c, 1, 5, 1);
    assert_true(cost_step(&c, 1, 0) == 5);
}

static void words(void **state)
{
    (void)state;
    assert_int_equal(spec_mode_of("auto"), SPEC_AUTO);
    assert_int_equal(spec_mode_of("off"), SPEC_OFF);
    assert_int_equal(spec_mode_of("mtp"), SPEC_MTP);
    assert_int_equal(spec_mode_of("suffix"), SPEC_SUFFIX);
    assert_int_equal(spec_mode_of("mtp+suffix"), SPEC_MTP_SUFFIX);
    assert_int_equal(spec_mode_of("ngram"), -1);
}

/* A turn that goes on from the text adds what is new; one that departs from it finds the
 * earlier answer again, and nothing is drafted across the end of a text. */
static void earlier_turns_are_a_source(void **state)
{
    (void)state;
    enum { P = 60, A = 40 };
    int32_t prompt[P + A], edited[P];
    for (int i = 0; i < P + A; i++) {
        prompt[i] = 1000 + i;
    }
    struct spec_seq *q = spec_seq_create();
    struct suffix_guess g;
    spec_seq_prompt(q, prompt, P);
    spec_seq_push(q, prompt + P, A);
    assert_int_equal(q->text.n, P + A);
    spec_seq_prompt(q, prompt, P + A); /* the next turn: nothing new yet */
    assert_int_equal(q->text.n, P + A);
    suffix_guess(&q->text, 8, &g);
    assert_int_equal(g.n, 0);
    memcpy(edited, prompt, sizeof edited);
    edited[10] = 7; /* asked again in other words */
    spec_seq_reset(q);
    spec_seq_prompt(q, edited, P);
    assert_int_equal(q->text.n, P + A + 1 + P);
    suffix_guess(&q->text, 8, &g);
    assert_int_equal(g.n, 8);
    assert_memory_equal(g.ids, prompt + P, 8 * sizeof *g.ids);
    spec_seq_push(q, prompt + P, A - 3); /* the same answer */
    suffix_guess(&q->text, 8, &g);
    assert_int_equal(g.n, 3); /* then the first text was over */
    assert_memory_equal(g.ids, prompt + P + A - 3, 3 * sizeof *g.ids);
    spec_seq_prompt(q, prompt, 2); /* a shorter one is another */
    assert_int_equal(q->text.from, q->text.n - 2);
    spec_seq_free(q);
}

/* However many turns there are, memory is bounded, and the present text is found again
 * when the older half went. */
static void many_turns(void **state)
{
    (void)state;
    enum { P = 3000 };
    int32_t prompt[P];
    struct spec_seq *q = spec_seq_create();
    for (int turn = 0; turn < 120; turn++) {
        for (int i = 0; i < P; i++) {
            prompt[i] = draw(5000);
        }
        spec_seq_prompt(q, prompt, P);
        assert_true(q->text.n <= SUFFIX_MOST && q->text.cap <= SUFFIX_MOST);
        assert_true(q->text.from == q->text.n - P || q->text.from == -1);
        assert_memory_equal(q->text.ids + q->text.n - P, prompt, sizeof prompt);
        spec_seq_push(q, prompt + 100, 30);
        struct suffix_guess g;
        suffix_guess(&q->text, 8, &g);
        assert_int_equal(g.n, 8);
        assert_memory_equal(g.ids, prompt + 130, 8 * sizeof *g.ids);
    }
    spec_seq_free(q);
}

/* A plain step, as spec_learn tells it. */
static void plain(struct cost *c, double context, double s)
{
    cost_plain(c, 1, context, s);
    cost_add_step(c, 1, context, s);
}

/* What context costs is told from plain steps of several depths, and then foretold; odd
 * measurements do not tell it, and it stays near what bytes say. */
static void context_has_a_price(void **state)
{
    (void)state;
    struct cost c = {.guess = {.context = 1e-4, .row = 0.06}, .round = 1};
    for (int i = 0; i < 8; i++) {
        plain(&c, 100 + i, 1 + 3e-4 * (100 + i));
    }
    assert_float_equal(cost_context(&c, 1000), 0.1 * 1.03, 0.01); /* the guess, as yet */
    assert_true(cost_knows_depth(&c, 1000) && !cost_knows_depth(&c, 6000));
    for (int i = 0; i < 8; i++) {
        plain(&c, 6000 + i, (1 + 3e-4 * (6000 + i)) * (i % 4 == 1 ? 20 : 1));
    }
    assert_true(cost_knows_depth(&c, 6000));
    assert_float_equal(cost_context(&c, 1000), 0.3, 0.02);
    cost_plain(&c, 4, 4 * 40000, 9); /* several rows tell of depth alone */
    assert_true(cost_knows_depth(&c, 40000));
    assert_float_equal(cost_context(&c, 1000), 0.3, 0.02);
    for (int i = 0; i < 50; i++) { /* the machine is busy with something else */
        plain(&c, 12000, 50 * (1 + 3e-4 * 12000));
    }
    const double guess = c.step[1].s * 1e-4 / (1 + 1e-4 * c.step[1].at);
    assert_true(cost_context(&c, 1) <= 4 * guess && cost_context(&c, 1) >= guess / 4);
}

/* At the depth where it was measured a width takes what was measured, whatever a token of
 * context is thought to cost. */
static void a_wrong_price_does_not_last(void **state)
{
    (void)state;
    struct cost c = {.guess = {.context = 1e-4, .row = 0.25}, .round = 1};
    for (int i = 0; i < 8; i++) {
        plain(&c, 100, 1);
        plain(&c, 4000, 20); /* a bad time */
    }
    for (int i = 0; i < 8; i++) {
        plain(&c, 4000, 1.4);
        cost_add_step(&c, 16, 16 * 4000, 6);
    }
    assert_float_equal(cost_step(&c, 1, 4000), 1.4, 1e-6);
    assert_float_equal(cost_step(&c, 16, 16 * 4000), 6, 1e-6);
}

/* ---- what it comes to: whole answers with a clock that only counts ---- */

enum { TEXT = 6000, PERIOD = 97 };

struct machine {
    const char *name;
    double row, context; /* what a row more and a token of context take, in plain steps */
    double guess_row, guess_context;
    int changed; /* one token in so many of the text is another one; 0: none */
};

enum noise { QUIET, OUTLIERS, SLOW, BOTH };

static double noise_of(enum noise kind, int round)
{
    const uint32_t w = philox_word(5, (uint32_t)round, PHILOX_TARGET, 1);
    const bool odd = w % 100 == 0 && (kind == OUTLIERS || kind == BOTH);
    const bool slow = round % 700 >= 500 && (kind == SLOW || kind == BOTH);
    const double jitter = kind == QUIET ? 1 : 0.95 + (w >> 8) % 256 / 1024.0;
    return jitter * (odd ? 20 : 1) * (slow ? 2 : 1);
}

/* What an answer takes, in plain steps without context and without noise, which only the
 * measurements have. longest: of the stretches of rounds without drafts. */
static double answer(const struct machine *m, enum noise kind, enum spec_mode mode, int *longest)
{
    struct engine_model *model = NULL;
    struct err e = ERR_INIT;
    const struct engine_opts eo = {.ctx = TEXT + 100, .slots = 1};
    assert_int_equal(engine_load("ctx=20000,slots=1,vocab=50000", false, &eo, &model, &e), 0);
    struct engine *g = engine_of(model);
    struct spec s;
    const struct spec_opts so = {.mode = mode};
    assert_int_equal(spec_init(&s, &so, g, &e), 0);
    s.cost.guess = (struct engine_guess){.context = m->guess_context, .row = m->guess_row};
    static int32_t text[TEXT];
    drawn = 0;
    for (int i = 0; i < TEXT; i++) {
        const bool new = i < PERIOD || (m->changed && draw((uint32_t)m->changed) == 0);
        text[i] = new ? 10 + draw(40000) : text[i - PERIOD];
    }
    struct spec_seq *q = spec_seq_create();
    int seq = -1, n = 64, stretch = 0;
    double spent = 0;
    assert_int_equal(engine_seq_open(g, &seq, &e), 0);
    struct engine_prefill f = {.seq = seq, .tokens = text, .n = n - 1};
    assert_int_equal(engine_prefill(g, &f, &e), 0);
    spec_seq_prompt(q, text, n);
    *longest = 0;
    for (int round = 0; n < TEXT; round++) {
        struct spec_part p = {.q = q, .seq = seq, .pending = text[n - 1], .room = TEXT - n - 1};
        if (spec_on(&s)) {
            assert_int_equal(spec_draft(&s, g, &p, 1, &e), 0);
        }
        int right = 0;
        while (right < p.n && p.ids[right] == text[n + right]) {
            right++;
        }
        const double took = 1 + m->row * p.n + m->context * (n - 1) * (1 + p.n);
        struct view_spec v = {0};
        p.context = n - 1;
        spec_learn(&s, &p, 1, &right, 1e-3 * took * noise_of(kind, round),
                   (struct view_spec *[]){&v});
        spent += took;
        stretch = p.n > 0 ? 0 : stretch + 1;
        *longest = stretch > *longest ? stretch : *longest;
        f = (struct engine_prefill){.seq = seq, .tokens = text + n - 1, .n = right + 1};
        assert_int_equal(engine_prefill(g, &f, &e), 0);
        spec_seq_push(q, text + n, right + 1);
        n += right + 1;
    }
    spec_seq_free(q);
    engine_seq_close(g, seq);
    engine_unload(model);
    return spent;
}

static void auto_is_the_better_of_both(void **state)
{
    (void)state;
    static const struct machine machines[] = {
        {"a device", 0.06, 0, 0.06, 0, 200},
        {"cheap rows", 0.25, 3e-4, 0.25, 3e-4, 200},
        {"context dearer than guessed", 0.25, 6e-4, 0.25, 2e-4, 200},
        {"context cheaper than guessed", 0.2, 1e-4, 0.25, 5e-4, 0},
        {"rows dearer than guessed", 1.3, 3e-4, 0.25, 3e-4, 200},
        {"drafts half wrong", 0.5, 3e-4, 0.25, 3e-4, 4},
        {"drafts mostly wrong", 0.25, 3e-4, 0.25, 3e-4, 2},
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *m = &machines[i];
        for (int k = QUIET; k <= BOTH; k += getenv("QUASAR_LONG") ? 1 : BOTH) {
            int longest, stretch;
            const double off = answer(m, (enum noise)k, SPEC_OFF, &longest);
            const double text = answer(m, (enum noise)k, SPEC_SUFFIX, &longest);
            const double both = answer(m, (enum noise)k, SPEC_AUTO, &stretch);
            const double least = off < text ? off : text;
            const double step = 1 + m->context * TEXT;
            if (getenv("QUASAR_SHOW")) {
                print_message("%s, noise %d: off %.0f, suffix %.0f, auto %.0f (%+.1f %%, %d)\n",
                              m->name, k, off, text, both, 100 * (both / least - 1), stretch);
            }
            if (both > 1.02 * least + 30 * step) {
                fail_msg("%s, noise %d: off %.0f, suffix %.0f, but auto %.0f", m->name, k, off,
                         text, both);
            }
        }
    }
}

/* Nothing is drafted behind what ends the text, by neither drafter, and a text that is over
 * says nothing about how long chains are. */
static void drafts_stop_at_the_end(void **state)
{
    (void)state;
    enum { END = 2 };
    struct engine_model *model = NULL;
    struct err e = ERR_INIT;
    const struct engine_opts eo = {.ctx = 100, .slots = 1};
    assert_int_equal(
        engine_load("ctx=100,slots=1,vocab=1000,mtp=1,wrong=1000000007", false, &eo, &model, &e),
        0);
    struct engine *g = engine_of(model);
    const int32_t said[] = {40, 41, 42, 43};
    fake_script(said, 4); /* and then the end */
    static const int32_t text[] = {10, 11, 12, 13, 14, 15, END, 20, 21, 10, 11, 12, 13};
    const int n = sizeof text / sizeof *text;
    int seq = -1;
    assert_int_equal(engine_seq_open(g, &seq, &e), 0);
    const struct engine_prefill f = {.seq = seq, .tokens = text, .n = n - 1};
    assert_int_equal(engine_prefill(g, &f, &e), 0);
    static const struct {
        enum spec_mode mode;
        int drafts;
    } ways[] = {{SPEC_SUFFIX, 3}, {SPEC_MTP, 4}};
    for (int i = 0; i < 2; i++) {
        struct spec s;
        const struct spec_opts so = {.mode = ways[i].mode, .draft = 8};
        assert_int_equal(spec_init(&s, &so, g, &e), 0);
        struct spec_seq *q = spec_seq_create();
        spec_seq_prompt(q, text, n);
        const float go_on = q->ladder.go_on;
        struct spec_part p = {.q = q, .seq = seq, .pending = text[n - 1], .room = 20};
        assert_int_equal(spec_draft(&s, g, &p, 1, &e), 0);
        assert_int_equal(p.n, ways[i].drafts);
        assert_int_equal(p.ids[p.n - 1], END);
        struct view_spec v = {0};
        spec_learn(&s, &p, 1, &p.n, 1e-3, (struct view_spec *[]){&v});
        assert_true(q->ladder.go_on >= go_on);
        spec_seq_free(q);
    }
    fake_script(NULL, 0);
    engine_seq_close(g, seq);
    engine_unload(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_plain_search),
        cmocka_unit_test(periods_go_on),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(edits_are_survived),
        cmocka_unit_test(a_text_without_repeats_is_silent),
        cmocka_unit_test(ladder_climbs_and_sinks),
        cmocka_unit_test(ladder_counts_only_what_fired),
        cmocka_unit_test(earlier_turns_are_a_source),
        cmocka_unit_test(many_turns),
        cmocka_unit_test(leads_say_what_is_worth_it),
        cmocka_unit_test(costs_lie_between),
        cmocka_unit_test(context_has_a_price),
        cmocka_unit_test(a_wrong_price_does_not_last),
        cmocka_unit_test(auto_is_the_better_of_both),
        cmocka_unit_test(costs_fall_faster_than_they_rise),
        cmocka_unit_test(drafts_stop_at_the_end),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
