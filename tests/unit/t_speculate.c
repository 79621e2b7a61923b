/* engine_verify, engine_commit and engine_draft on the demo model, driven by a
 * script that forces every pattern of right and wrong guesses: what is computed
 * afterwards, drafts and their margins included, is bit for bit plain decoding's. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "format/container.h"

#define ROWS 16
#ifdef SANITIZED
#define EVERY  7
#define ROUNDS 4
#else
#define EVERY  3
#define ROUNDS 30
#endif

static struct container *file;
static struct engine *g;
static uint32_t drawn;

static uint32_t draw(uint32_t below)
{
    return philox_word(11, drawn++, PHILOX_TARGET, 0) % below;
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
    struct engine_opts o = {.backend = EB_CPU, .threads = 2, .slots = 8, .ctx = 2048};
    if (container_open(path, false, &file, &e) < 0 || engine_open(file, &o, &g, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    return 0;
}

static int clean(void **state)
{
    (void)state;
    engine_close(g);
    container_close(file);
    return 0;
}

static int32_t some_id(void)
{
    return (int32_t)draw((uint32_t)engine_info(g)->vocab_used);
}

static int vocab(void)
{
    return engine_info(g)->vocab;
}

static int open_seq(void)
{
    struct err e = ERR_INIT;
    int seq = -1;
    must(engine_seq_open(g, &seq, &e), &e);
    return seq;
}

/* What plain decoding of a text gives after each of its tokens. */
enum { PROMPT = 250, DRAFTS = 4 };
struct plain {
    int base;                /* a sequence that holds the prompt */
    int32_t next[ROWS + 1];  /* the text after it */
    float *logits[ROWS + 1]; /* after i tokens; 0 unused */
    struct engine_draft drafts[ROWS + 1];
};

static struct engine_draft drafts_of(int seq, int32_t next)
{
    struct engine_draft d = {.seq = seq, .next = next, .depth = DRAFTS};
    struct err e = ERR_INIT;
    must(engine_draft(g, &d, 1, &e), &e);
    assert_int_equal(d.n, DRAFTS);
    return d;
}

static void plain_init(struct plain *p, int prompt)
{
    struct err e = ERR_INIT;
    int32_t ids[PROMPT];
    for (int i = 0; i < prompt; i++) {
        ids[i] = some_id();
    }
    p->base = open_seq();
    const struct engine_prefill f = {.seq = p->base, .tokens = ids, .n = prompt};
    must(engine_prefill(g, &f, &e), &e);
    const int seq = open_seq();
    must(engine_seq_fork(g, seq, p->base, &e), &e);
    for (int i = 0; i <= ROWS; i++) {
        p->next[i] = some_id();
        p->logits[i] = mem_array((size_t)vocab(), sizeof **p->logits);
        if (i > 0) {
            must(engine_decode(g, &seq, &p->next[i - 1], 1, &e), &e);
            must(engine_logits(g, 0, p->logits[i], &e), &e);
        }
        p->drafts[i] = drafts_of(seq, p->next[i]);
    }
    engine_seq_close(g, seq);
}

static void plain_fini(struct plain *p)
{
    engine_seq_close(g, p->base);
    for (int i = 0; i <= ROWS; i++) {
        free(p->logits[i]);
    }
}

static void same_logits(int output, const float *want)
{
    struct err e = ERR_INIT;
    float *l = mem_array((size_t)vocab(), sizeof *l);
    must(engine_logits(g, output, l, &e), &e);
    assert_memory_equal(l, want, (size_t)vocab() * sizeof *l);
    free(l);
}

static void same_drafts(int seq, const struct plain *p, int at)
{
    const struct engine_draft d = drafts_of(seq, p->next[at]);
    assert_memory_equal(d.ids, p->drafts[at].ids, DRAFTS * sizeof *d.ids);
    assert_memory_equal(d.margins, p->drafts[at].margins, DRAFTS * sizeof *d.margins);
}

/* Rows of one verify: right guesses, then wrong ones. */
static void guess(const struct plain *p, int at, int n, int right, int32_t *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = i < right ? p->next[at + i] : (p->next[at + i] + 1) % vocab();
    }
}

static void every_accept_length(void **state)
{
    (void)state;
    struct plain p;
    struct err e = ERR_INIT;
    plain_init(&p, PROMPT);
    const int seq = open_seq();
    for (int w = 1; w <= ROWS; w += EVERY) {
        for (int keep = 0; keep <= w; keep++) {
            int seqs[ROWS];
            int32_t tokens[ROWS];
            for (int i = 0; i < w; i++) {
                seqs[i] = seq;
            }
            must(engine_seq_fork(g, seq, p.base, &e), &e);
            if (keep % 2) { /* a chain of drafts before, as in a round */
                drafts_of(seq, p.next[0]);
            }
            guess(&p, 0, w, keep, tokens);
            must(engine_verify(g, seqs, tokens, w, &e), &e);
            for (int i = 0; i < keep; i++) {
                same_logits(i, p.logits[i + 1]);
            }
            assert_int_equal(engine_seq_len(g, seq), PROMPT);
            must(engine_commit(g, &seq, &keep, 1, &e), &e);
            assert_int_equal(engine_seq_len(g, seq), PROMPT + keep);
            if (keep > 0) {
                same_logits(keep - 1, p.logits[keep]); /* still readable */
            }
            same_drafts(seq, &p, keep);
            if (keep < ROWS) {
                must(engine_decode(g, &seq, &p.next[keep], 1, &e), &e);
                same_logits(0, p.logits[keep + 1]);
            }
        }
    }
    engine_seq_close(g, seq);
    plain_fini(&p);
}

/* Whole texts of several sequences in rounds of random widths, with drafts before
 * them, kept or dropped. */
static void random_rounds(void **state)
{
    (void)state;
    enum { SEQS = 3 };
    struct plain p[SEQS];
    struct err e = ERR_INIT;
    int seq[SEQS];
    for (int i = 0; i < SEQS; i++) {
        plain_init(&p[i], 40 + 70 * i);
        seq[i] = open_seq();
    }
    for (int round = 0; round < ROUNDS; round++) {
        int done[SEQS] = {0};
        for (int i = 0; i < SEQS; i++) {
            must(engine_seq_fork(g, seq[i], p[i].base, &e), &e);
        }
        for (int left = SEQS; left > 0;) {
            struct engine_draft d[SEQS];
            int seqs[ROWS], who[SEQS], keep[SEQS], spans = 0, rows = 0, n = 0;
            int32_t tokens[ROWS];
            for (int i = 0; i < SEQS; i++) {
                if (draw(2) && done[i] < ROWS) {
                    d[n++] = (struct engine_draft){.seq = seq[i],
                                                   .next = p[i].next[done[i]],
                                                   .depth = 1 + (int)draw(5),
                                                   .least = draw(2) ? 1.5F : 0};
                }
            }
            if (n > 0) {
                must(engine_draft(g, d, n, &e), &e);
            }
            for (int i = 0; i < SEQS; i++) {
                int take = (int)draw(6);
                take = take < ROWS - done[i] ? take : ROWS - done[i];
                if (take == 0) {
                    continue;
                }
                keep[spans] = (int)draw((uint32_t)take + 1);
                guess(&p[i], done[i], take, keep[spans], tokens + rows);
                for (int k = 0; k < take; k++) {
                    seqs[rows++] = seq[i];
                }
                who[spans++] = i;
            }
            if (rows == 0) {
                continue;
            }
            must(engine_verify(g, seqs, tokens, rows, &e), &e);
            int kept[SEQS], of[SEQS];
            for (int i = 0; i < spans; i++) { /* in any order */
                of[i] = seq[who[spans - 1 - i]];
                kept[i] = keep[spans - 1 - i];
            }
            if (draw(8) == 0) {
                continue; /* not committed: nothing is kept */
            }
            must(engine_commit(g, of, kept, spans, &e), &e);
            for (int i = 0; i < spans; i++) {
                done[who[i]] += keep[i];
                left -= keep[i] > 0 && done[who[i]] == ROWS;
            }
        }
        for (int i = 0; i < SEQS; i++) {
            same_drafts(seq[i], &p[i], ROWS);
        }
    }
    for (int i = 0; i < SEQS; i++) {
        engine_seq_close(g, seq[i]);
        plain_fini(&p[i]);
    }
}

/* Several chains in one pass are each alone; a margin ends a chain. */
static void drafts_together(void **state)
{
    (void)state;
    enum { SEQS = 5, DEPTH = 6 };
    struct engine_draft alone[SEQS], d[SEQS];
    struct err e = ERR_INIT;
    int seq[SEQS];
    int stopped = 0;
    for (int i = 0; i < SEQS; i++) {
        int32_t ids[40];
        for (int k = 0; k < 40; k++) {
            ids[k] = some_id();
        }
        seq[i] = open_seq();
        const struct engine_prefill f = {.seq = seq[i], .tokens = ids, .n = 3 + 7 * i};
        must(engine_prefill(g, &f, &e), &e);
        alone[i] = (struct engine_draft){.seq = seq[i], .next = ids[39], .depth = DEPTH};
        must(engine_draft(g, &alone[i], 1, &e), &e);
    }
    for (int round = 0; round < 8; round++) {
        const float least = (float)round * 0.4F;
        for (int i = 0; i < SEQS; i++) {
            d[i] = (struct engine_draft){.seq = seq[i],
                                         .next = alone[i].next,
                                         .depth = 1 + (i + round) % DEPTH,
                                         .least = least};
        }
        must(engine_draft(g, d, SEQS, &e), &e);
        for (int i = 0; i < SEQS; i++) {
            int want = 0;
            while (want < d[i].depth && alone[i].margins[want] >= least) {
                want++;
            }
            assert_int_equal(d[i].n, want);
            assert_int_equal(d[i].steps, want < d[i].depth ? want + 1 : want);
            assert_memory_equal(d[i].ids, alone[i].ids, (size_t)d[i].steps * sizeof *d[i].ids);
            assert_memory_equal(d[i].margins, alone[i].margins,
                                (size_t)d[i].steps * sizeof *d[i].margins);
            stopped += want < d[i].depth;
        }
    }
    assert_true(stopped > 3);
    for (int i = 0; i < SEQS; i++) {
        engine_seq_close(g, seq[i]);
    }
}

static void refusals(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    const int seq = open_seq(), other = open_seq();
    const int two[] = {seq, other}, twice[] = {seq, seq};
    const int32_t ids[] = {5, 6};
    int keep[] = {1, 0};
    assert_int_equal(engine_commit(g, &seq, keep, 1, &e), QE_USAGE);
    must(engine_verify(g, two, ids, 2, &e), &e);
    assert_int_equal(engine_commit(g, two, keep, 1, &e), QE_USAGE);
    assert_int_equal(engine_commit(g, twice, keep, 2, &e), QE_USAGE);
    keep[1] = 2;
    assert_int_equal(engine_commit(g, two, keep, 2, &e), QE_USAGE);
    keep[1] = -1;
    assert_int_equal(engine_commit(g, two, keep, 2, &e), QE_USAGE);
    keep[1] = 0;
    must(engine_commit(g, two, keep, 2, &e), &e);
    assert_int_equal(engine_seq_len(g, seq), 1);
    assert_int_equal(engine_seq_len(g, other), 0);
    assert_int_equal(engine_commit(g, two, keep, 2, &e), QE_USAGE);
    must(engine_verify(g, &seq, ids, 1, &e), &e);
    engine_seq_reset(g, other);
    assert_int_equal(engine_commit(g, &seq, keep, 1, &e), QE_USAGE);
    assert_int_equal(engine_seq_len(g, seq), 1);
    struct engine_draft d[2] = {{.seq = seq, .next = 1, .depth = 1},
                                {.seq = seq, .next = 1, .depth = 1}};
    assert_int_equal(engine_draft(g, d, 2, &e), QE_USAGE);
    d[0].depth = 0;
    assert_int_equal(engine_draft(g, d, 1, &e), QE_USAGE);
    d[0] = (struct engine_draft){.seq = other, .next = 1, .depth = 1};
    assert_int_equal(engine_draft(g, d, 1, &e), QE_USAGE); /* nothing computed yet */
    engine_seq_close(g, seq);
    engine_seq_close(g, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_accept_length),
        cmocka_unit_test(random_rounds),
        cmocka_unit_test(drafts_together),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
