/* Sixteen sequences of the demo model in steps of mixed widths, with guesses right and wrong,
 * in pages wherever they fall, giving way to each other between steps: every row's logits are,
 * bit for bit, those of the text alone. One whose state is not a number stays by itself. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "format/container.h"

#define SEQS 16
#define ROWS 16
#ifdef SANITIZED
#define STEPS   2
#define LONGEST 30
#else
#define STEPS   16
#define LONGEST 260
#endif
#define TEXT (STEPS * 3 + 8)

static struct container *file;
static struct engine *g;
static uint32_t drawn;
static float *row;

static uint32_t draw(uint32_t below)
{
    return philox_word(23, drawn++, PHILOX_TARGET, 0) % below;
}

static void must(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

static int prepare(void **state)
{
    (void)state;
    const char *dir = getenv("QUASAR_SRCDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/models/demo.qsr", dir ? dir : ".");
    struct err e = ERR_INIT;
    struct engine_opts o = {.backend = EB_CPU, .threads = 2, .slots = SEQS + 2, .ctx = 1024};
    if (container_open(path, false, &file, &e) < 0 || engine_open(file, &o, &g, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    row = mem_array((size_t)engine_info(g)->vocab, sizeof *row);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    free(row);
    engine_close(g);
    container_close(file);
    return 0;
}

static uint64_t logits_of(int output)
{
    struct err e = ERR_INIT;
    must(engine_logits(g, output, row, &e), &e);
    return hash64(row, (size_t)engine_info(g)->vocab * sizeof *row, 1);
}

/* One user: a prompt, a text after it, and what the model thinks after each of its tokens. */
struct user {
    int32_t prompt[LONGEST], text[TEXT];
    int n_prompt;
    uint64_t want[TEXT];
    /* now */
    int seq, done, steps; /* tokens of the text that stand computed */
    struct engine_swap *away;
};
static struct user users[SEQS];

static void prefill(const struct user *u, int seq)
{
    struct err e = ERR_INIT;
    const struct engine_prefill p = {.seq = seq, .tokens = u->prompt, .n = u->n_prompt};
    must(engine_prefill(g, &p, &e), &e);
}

static int open_seq(void)
{
    struct err e = ERR_INIT;
    int seq = -1;
    must(engine_seq_open(g, &seq, &e), &e);
    return seq;
}

static void make_user(struct user *u, int n_prompt)
{
    struct err e = ERR_INIT;
    memset(u, 0, sizeof *u);
    u->n_prompt = n_prompt;
    for (int i = 0; i < n_prompt; i++) {
        u->prompt[i] = (int32_t)draw((uint32_t)engine_info(g)->vocab_used);
    }
    const int seq = open_seq();
    prefill(u, seq);
    for (int i = 0; i < TEXT; i++) {
        u->text[i] = (int32_t)draw((uint32_t)engine_info(g)->vocab_used);
        must(engine_decode(g, &seq, &u->text[i], 1, &e), &e);
        u->want[i] = logits_of(0);
    }
    engine_seq_close(g, seq);
    u->seq = -1;
}

static void come_back(struct user *u)
{
    struct err e = ERR_INIT;
    u->seq = open_seq();
    if (u->away) {
        must(engine_swap_in(g, u->seq, u->away, &e), &e);
        engine_swap_free(g, u->away);
        u->away = NULL;
    } else {
        prefill(u, u->seq);
    }
}

/* Out to memory, and its slot and pages to whoever comes next. */
static void go_away(struct user *u)
{
    struct err e = ERR_INIT;
    must(engine_swap_out(g, u->seq, &u->away, &e), &e);
    assert_true(engine_swap_bytes(g, u->away) == engine_swap_size(g, u->seq));
    engine_seq_close(g, u->seq);
    u->seq = -1;
}

/* Drafts before a step, as rounds make them: they may change no row. */
static void some_drafts(struct user *const *who, int n)
{
    struct engine_draft d[SEQS];
    struct err e = ERR_INIT;
    for (int i = 0; i < n; i++) {
        d[i] = (struct engine_draft){
            .seq = who[i]->seq, .next = who[i]->text[who[i]->done], .depth = 1 + (int)draw(3)};
    }
    must(engine_draft(g, d, n, &e), &e);
}

/* A step, until everybody had so many, of some users of widths 1, 4 and 8, in any order; poisoned
 * (-1: none) is a sequence that takes part with a row or more. */
static void step(int poisoned, int steps)
{
    static const int widths[] = {1, 4, 8};
    struct user *who[SEQS];
    int seqs[ROWS], width[SEQS], right[SEQS], first[SEQS], keep[SEQS + 1], of[SEQS + 1];
    int32_t tokens[ROWS];
    struct err e = ERR_INIT;
    int n = 0, rows = 0, at = (int)draw(SEQS), bad = poisoned >= 0 ? 1 + (int)draw(3) : 0;
    for (int i = 0; i < SEQS; i++) {
        struct user *u = &users[(at + i * 7) % SEQS];
        const int w = widths[draw(3)];
        if (u->steps >= steps || u->seq < 0 || rows + w + bad > ROWS || u->done + w > TEXT) {
            continue;
        }
        who[n] = u;
        width[n++] = w;
        rows += w;
    }
    if (n == 0) {
        return;
    }
    if (draw(2)) {
        some_drafts(who, n);
    }
    rows = 0;
    const int before = (int)draw((uint32_t)n + 1); /* the poisoned one's place */
    int bad_at = -1;
    for (int i = 0; i <= n; i++) {
        for (int k = 0; i == before && k < bad; k++) {
            bad_at = k == 0 ? rows : bad_at;
            seqs[rows] = poisoned;
            tokens[rows++] = (int32_t)(5 + k);
        }
        if (i == n) {
            break;
        }
        struct user *u = who[i];
        first[i] = rows;
        right[i] = 1 + (int)draw((uint32_t)width[i]);
        for (int k = 0; k < width[i]; k++) {
            seqs[rows] = u->seq;
            tokens[rows++] = k < right[i] ? u->text[u->done + k]
                                          : (u->text[u->done + k] + 1) % engine_info(g)->vocab_used;
        }
    }
    must(engine_verify(g, seqs, tokens, rows, &e), &e);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < right[i]; k++) {
            assert_true(logits_of(first[i] + k) == who[i]->want[who[i]->done + k]);
        }
        of[i] = who[i]->seq;
        keep[i] = 1 + (int)draw((uint32_t)right[i]);
        who[i]->done += keep[i];
        who[i]->steps++;
    }
    for (int k = 0; k < bad; k++) {
        must(engine_logits(g, bad_at + k, row, &e), &e);
        assert_true(isnan(row[0]) && isnan(row[17]));
    }
    of[n] = poisoned;
    keep[n] = bad;
    must(engine_commit(g, of, keep, n + (bad > 0), &e), &e);
}

static void all_together(int poisoned, int steps)
{
    for (int i = 0; i < SEQS; i++) {
        users[i].done = users[i].steps = 0;
        come_back(&users[i]);
    }
    for (bool more = true; more;) {
        step(poisoned, steps);
        if (draw(3) == 0) {
            struct user *u = &users[draw(SEQS)];
            if (u->seq >= 0) {
                go_away(u);
            }
        }
        more = false;
        for (int i = 0; i < SEQS; i++) {
            more = more || (users[i].steps < steps && users[i].done < TEXT);
            if (users[i].seq < 0 && draw(2)) {
                come_back(&users[i]);
            }
        }
    }
    for (int i = 0; i < SEQS; i++) {
        if (users[i].seq >= 0) {
            engine_seq_close(g, users[i].seq);
        }
        engine_swap_free(g, users[i].away);
        users[i].seq = -1;
        users[i].away = NULL;
    }
}

static void sixteen_are_each_alone(void **state)
{
    (void)state;
    for (int i = 0; i < SEQS; i++) {
        make_user(&users[i], 1 + (i * 67) % LONGEST);
    }
    all_together(-1, STEPS);
    const struct engine_kept k = engine_kept(g);
    assert_int_equal(k.pages_free, k.pages);
}

/* A state of nothing but NaNs, in its values and in its pages. */
static void poison_stays_where_it_is(void **state)
{
    (void)state;
    enum { HEADER = 48 };
    struct err e = ERR_INIT;
    const int seq = open_seq();
    prefill(&users[3], seq);
    const size_t n = engine_seq_state_size(g, seq);
    uint8_t *blob = mem_alloc(n);
    must(engine_seq_export(g, seq, blob, &e), &e);
    memset(blob + HEADER, 0xff, n - HEADER);
    must(engine_seq_import(g, seq, blob, n, &e), &e);
    free(blob);
    all_together(seq, STEPS / 3 + 1);
    engine_seq_close(g, seq);
    const struct engine_kept k = engine_kept(g);
    assert_int_equal(k.pages_free, k.pages);
}

/* Room for what comes, or nothing has changed. */
static void room_is_reserved(void **state)
{
    (void)state;
    struct engine *small = NULL;
    struct err e = ERR_INIT;
    const struct engine_opts o = {
        .backend = EB_CPU, .threads = 1, .slots = 4, .ctx = 512, .cache = 600, .no_mtp = true};
    must(engine_open(file, &o, &small, &e), &e);
    assert_int_equal(engine_kept(small).pages, 3); /* 600 tokens, and a window has two */
    int a = -1, b = -1;
    must(engine_seq_open(small, &a, &e), &e);
    must(engine_seq_open(small, &b, &e), &e);
    must(engine_seq_reserve(small, a, 512, &e), &e);
    assert_int_equal(engine_seq_pages(small, a), 2);
    must(engine_seq_reserve(small, b, 256, &e), &e);
    assert_int_equal(engine_seq_reserve(small, b, 257, &e), QE_NOMEM);
    assert_int_equal(engine_seq_len(small, b), 0);
    /* one that gives way makes room, and needs as much to come back */
    struct engine_swap *w = NULL;
    int32_t ids[300];
    for (int i = 0; i < 300; i++) {
        ids[i] = 300 + i;
    }
    const struct engine_prefill p = {.seq = a, .tokens = ids, .n = 300};
    must(engine_prefill(small, &p, &e), &e);
    must(engine_swap_out(small, a, &w, &e), &e);
    assert_int_equal(engine_swap_pages(w), 2);
    engine_seq_close(small, a);
    must(engine_seq_reserve(small, b, 257, &e), &e);
    must(engine_seq_open(small, &a, &e), &e);
    assert_int_equal(engine_swap_in(small, a, w, &e), QE_NOMEM);
    assert_int_equal(engine_seq_len(small, a), 0);
    engine_seq_close(small, b);
    must(engine_swap_in(small, a, w, &e), &e);
    assert_int_equal(engine_seq_len(small, a), 300);
    assert_true(engine_seq_pure(small, a));
    engine_swap_free(small, w);
    assert_int_equal(engine_swap_out(small, b, &w, &e), QE_USAGE); /* it is closed */
    engine_close(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_are_each_alone),
        cmocka_unit_test(poison_stays_where_it_is),
        cmocka_unit_test(room_is_reserved),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
