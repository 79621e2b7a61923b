/* Speculation on the CUDA backend: see spectest.h. */
#include "config.h"
#include "tests/cuda/spectest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/impl.h"
#include "engine/spec.h"
#include "kernels/backend.h"
#include "tests/cuda/engtest.h"
#include "tests/cuda/testmodel.h"

#ifdef SANITIZED
enum { QUICK = 1 };
#else
enum { QUICK = 0 };
#endif
enum { MOST = 15, FROM = 254, SEQS = 3, TEXT = 16 };

static uint32_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525U + 1013904223U;
    return (uint32_t)((uint64_t)drawn * below >> 32);
}

static bool same(const float *a, const float *b)
{
    return memcmp(a, b, TM_VOCAB * sizeof *a) == 0;
}

static int filled(struct engine *g, int len)
{
    struct err e = ERR_INIT;
    const int seq = open_seq(g);
    must(engine_seq_fill(g, seq, len, &e), &e);
    return seq;
}

/* A token after some, not the right one. */
static int32_t wrong(int32_t right, int i)
{
    return (right + 1 + i) % TM_USED;
}

/* One sequence decoded row by row: logits and states after each. */
struct plain {
    float *logits;         /* [n][TM_VOCAB] */
    char *state[MOST + 2]; /* after i rows */
    size_t size[MOST + 2];
    int n;
};

/* n steps of several sequences, next[i] those of seq[i]. */
static void plain_run(struct engine *g, const int *seq, const int32_t *const *next, int seqs, int n,
                      struct plain *p)
{
    float row[SEQS * TM_VOCAB];
    for (int i = 0; i < seqs; i++) {
        p[i] = (struct plain){.logits = mem_array((size_t)n * TM_VOCAB, sizeof(float)), .n = n};
        p[i].state[0] = export_state(g, seq[i], &p[i].size[0]);
    }
    for (int k = 0; k < n; k++) {
        int32_t ids[SEQS];
        for (int i = 0; i < seqs; i++) {
            ids[i] = next[i][k];
        }
        decode(g, seq, ids, seqs, row);
        for (int i = 0; i < seqs; i++) {
            memcpy(p[i].logits + (size_t)k * TM_VOCAB, row + (size_t)i * TM_VOCAB,
                   TM_VOCAB * sizeof *row);
            p[i].state[k + 1] = export_state(g, seq[i], &p[i].size[k + 1]);
        }
    }
}

static void plain_free(struct plain *p)
{
    for (int i = 0; i <= p->n; i++) {
        free(p->state[i]);
    }
    free(p->logits);
}

/* The states, the saved hidden row and all full pages; of the page that is not full only
 * what was written counts, and the next steps' logits tell of it. */
static bool same_state(struct engine *g, int seq, int rows, const struct plain *p)
{
    size_t n = 0;
    char *s = export_state(g, seq, &n);
    const size_t page = (size_t)engine_info(g)->memory.page;
    const bool good = n == p->size[rows] && memcmp(s, p->state[rows], n - page) == 0;
    free(s);
    return good;
}

/* n rows of a sequence of which `right` are so; whether these give p's logits from `at`. */
static bool verify_rows(struct engine *g, int seq, const int32_t *next, int n, int right,
                        const struct plain *p, int at)
{
    struct err e = ERR_INIT;
    int seqs[BE_MAX_ROWS];
    int32_t ids[BE_MAX_ROWS];
    float row[TM_VOCAB];
    bool good = true;
    for (int i = 0; i < n; i++) {
        seqs[i] = seq;
        ids[i] = i < right ? next[i] : wrong(next[i], i);
    }
    must(engine_verify(g, seqs, ids, n, &e), &e);
    for (int i = 0; i < right; i++) {
        must(engine_logits(g, i, row, &e), &e);
        good = good && same(row, p->logits + (size_t)(at + i) * TM_VOCAB);
    }
    return good;
}

/* Numbers of accepted rows out of w, over the end of a page; then rows that nobody accepts. */
static void every_length(struct engine *g, const int32_t *next, int w, int every, const char *how)
{
    struct err e = ERR_INIT;
    struct plain p;
    const int base = filled(g, FROM), plain = open_seq(g), seq = open_seq(g);
    float row[TM_VOCAB];
    bool rows = true, states = true, after = true;
    must(engine_seq_fork(g, plain, base, &e), &e);
    plain_run(g, &plain, &next, 1, w + 1, &p);
    for (int keep = 0; keep <= w; keep += every) {
        must(engine_seq_fork(g, seq, base, &e), &e);
        rows = verify_rows(g, seq, next, w, keep, &p, 0) && rows;
        must(engine_commit(g, &seq, &keep, 1, &e), &e);
        states = same_state(g, seq, keep, &p) && states;
        if (keep % 3 == 0) {
            decode(g, &seq, &next[keep], 1, row);
            after = same(row, p.logits + (size_t)keep * TM_VOCAB) &&
                    same_state(g, seq, keep + 1, &p) && after;
        }
    }
    ok(rows, "%s: verified rows have the logits of single steps", how);
    ok(states, "%s: after 0 .. %d accepted the states are those of plain decoding", how, w);
    ok(after, "%s: and so are the step after it and its states", how);
    must(engine_seq_fork(g, seq, base, &e), &e);
    rows = verify_rows(g, seq, next, 3, 2, &p, 0);
    decode(g, &seq, next, 1, row);
    ok(rows && same(row, p.logits) && same_state(g, seq, 1, &p),
       "%s: rows that were not committed leave nothing", how);
    plain_free(&p);
    engine_seq_close(g, base);
    engine_seq_close(g, plain);
    engine_seq_close(g, seq);
}

/* One round of all sequences that are not through; what each has done so far. */
static bool round_of_all(struct engine *g, const int *seq, const int32_t *const *next,
                         const struct plain *p, int *done_rows)
{
    struct err e = ERR_INIT;
    int seqs[BE_MAX_ROWS], who[SEQS], keep[SEQS], take[SEQS], n = 0, rows = 0;
    int32_t ids[BE_MAX_ROWS];
    float row[TM_VOCAB];
    bool good = true;
    for (int i = 0; i < SEQS; i++) {
        const int left = p[i].n - done_rows[i];
        const int want = 1 + (int)draw(5);
        take[n] = want < left ? want : left;
        keep[n] = (int)draw((uint32_t)take[n] + 1);
        for (int k = 0; k < take[n]; k++) {
            const int32_t right = next[i][done_rows[i] + k];
            seqs[rows] = seq[i];
            ids[rows++] = k < keep[n] ? right : wrong(right, k);
        }
        if (left > 0) {
            who[n++] = i;
        }
    }
    must(engine_verify(g, seqs, ids, rows, &e), &e);
    for (int i = 0, at = 0; i < n; at += take[i++]) {
        for (int k = 0; k < keep[i]; k++) {
            must(engine_logits(g, at + k, row, &e), &e);
            good = good && same(row, p[who[i]].logits + (size_t)(done_rows[who[i]] + k) * TM_VOCAB);
        }
    }
    int order[SEQS];
    for (int i = 0; i < n; i++) {
        order[i] = seq[who[i]];
    }
    must(engine_commit(g, order, keep, n, &e), &e);
    for (int i = 0; i < n; i++) {
        done_rows[who[i]] += keep[i];
        good = same_state(g, order[i], done_rows[who[i]], &p[who[i]]) && good;
    }
    return good;
}

/* Several sequences in one sweep, to the end of each one's text. */
static void many_at_once(struct engine *g, const int32_t *text, int n)
{
    static const int len[SEQS] = {250, 3, 64};
    struct plain p[SEQS];
    const int32_t *next[SEQS];
    struct err e = ERR_INIT;
    int alone[SEQS], seq[SEQS], done_rows[SEQS] = {0}, rounds = 0, left = SEQS;
    bool good = true;
    for (int i = 0; i < SEQS; i++) {
        alone[i] = filled(g, len[i]);
        seq[i] = open_seq(g);
        next[i] = text + 20 * (size_t)i;
        must(engine_seq_fork(g, seq[i], alone[i], &e), &e);
    }
    plain_run(g, alone, next, SEQS, n, p);
    for (; left > 0; rounds++) {
        good = round_of_all(g, seq, next, p, done_rows) && good;
        left = 0;
        for (int i = 0; i < SEQS; i++) {
            left += done_rows[i] < n;
        }
    }
    ok(good, "%d sequences in %d rounds of chance: logits and states of plain decoding", SEQS,
       rounds);
    for (int i = 0; i < SEQS; i++) {
        plain_free(&p[i]);
        engine_seq_close(g, alone[i]);
        engine_seq_close(g, seq[i]);
    }
}

/* The two largest of the logits, and what ends a chain. */
static void margins(struct engine *g, const int32_t *text)
{
    struct err e = ERR_INIT;
    int seqs[2] = {filled(g, 3), filled(g, 9)}, bad = 0;
    int32_t ids[2];
    float got[2], row[2 * TM_VOCAB];
    decode(g, seqs, text, 2, row);
    must(g->ops->best(g->b, 2, ids, got, &e), &e);
    for (int i = 0; i < 2; i++) {
        const float *x = row + (size_t)i * TM_VOCAB;
        int first = 0, second = -1;
        for (int j = 1; j < TM_USED; j++) {
            first = x[j] > x[first] ? j : first;
        }
        for (int j = 0; j < TM_USED; j++) {
            second = j != first && (second < 0 || x[j] > x[second]) ? j : second;
        }
        bad += ids[i] != first || got[i] != x[first] - x[second];
    }
    ok(bad == 0, "the best of two rows lead by %g and %g, as their logits say", (double)got[0],
       (double)got[1]);
    ok(g->ops->best(g->b, 3, ids, got, &e) == QE_INTERNAL, "a third row is refused: %s", e.msg);
    const int32_t kept = 1;
    ok(g->ops->fold(g->b, &kept, &e) == QE_INTERNAL, "as is folding a plain step: %s", e.msg);
    engine_seq_close(g, seqs[0]);
    engine_seq_close(g, seqs[1]);
}

/* Chains of several sequences that end one by one, beside each alone. */
static void drafts(struct engine *g, const int32_t *text)
{
    static const int depth[SEQS] = {1, 2, 2};
    struct engine_draft alone[SEQS], together[SEQS];
    struct err e = ERR_INIT;
    int seq[SEQS];
    bool good = true;
    for (int i = 0; i < SEQS; i++) {
        seq[i] = filled(g, 5 + 100 * i);
    }
    decode(g, seq, text, SEQS, NULL);
    for (int i = 0; i < SEQS; i++) {
        alone[i] = (struct engine_draft){.seq = seq[i], .next = text[10 + i], .depth = depth[i]};
        together[i] = alone[i];
        must(engine_draft(g, &alone[i], 1, &e), &e);
    }
    must(engine_draft(g, together, SEQS, &e), &e);
    for (int i = 0; i < SEQS; i++) {
        good = good && together[i].n == depth[i] &&
               memcmp(alone[i].ids, together[i].ids, (size_t)depth[i] * sizeof(int32_t)) == 0 &&
               memcmp(alone[i].margins, together[i].margins, (size_t)depth[i] * sizeof(float)) == 0;
    }
    ok(good, "chains of 1, 2 and 2 drafts in one sweep: ids and margins of each alone");
    for (int i = 0; i < SEQS; i++) {
        engine_seq_close(g, seq[i]);
    }
}

/* Greedy text of two sequences, round by round. Drafts that are the text itself, where
 * `given` has it, take turns with the drafter's. Returns the drafts that were right. */
static int say(struct engine *g, struct spec *s, const int32_t *text, int32_t (*given)[TEXT],
               int len, int32_t (*out)[TEXT], int *rounds)
{
    struct err e = ERR_INIT;
    int seq[2], n[2] = {0, 0}, right = 0;
    int32_t pending[2];
    struct spec_seq *q[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        seq[i] = filled(g, 254 + i);
        pending[i] = text[i];
        q[i] = spec_seq_create();
        spec_seq_prompt(q[i], &pending[i], 1);
    }
    for (*rounds = 0; n[0] < len || n[1] < len; ++*rounds) {
        struct spec_part part[2];
        struct engine_draw draws[BE_MAX_ROWS];
        int seqs[BE_MAX_ROWS], outputs[BE_MAX_ROWS], who[2], keep[2], order[2], parts = 0, rows = 0;
        int32_t ids[BE_MAX_ROWS], tokens[BE_MAX_ROWS];
        for (int i = 0; i < 2; i++) {
            if (n[i] < len) {
                part[parts] = (struct spec_part){
                    .q = q[i], .seq = seq[i], .pending = pending[i], .room = len - n[i] - 1};
                who[parts++] = i;
            }
        }
        if (s) {
            must(spec_draft(s, g, part, parts, &e), &e);
        }
        for (int i = 0; i < parts; i++) {
            struct spec_part *p = &part[i];
            for (int k = 0; k < p->n && given && *rounds % 2 == 1; k++) {
                p->ids[k] = given[who[i]][n[who[i]] + k];
            }
            for (int k = 0; k <= p->n; k++) {
                seqs[rows] = p->seq;
                outputs[rows] = rows;
                tokens[rows] = k == 0 ? p->pending : p->ids[k - 1];
                draws[rows++] = (struct engine_draw){.top_p = 1};
            }
        }
        must(s ? engine_verify(g, seqs, tokens, rows, &e)
               : engine_decode(g, seqs, tokens, rows, &e),
             &e);
        must(engine_sample(g, outputs, draws, rows, ids, &e), &e);
        for (int i = 0, at = 0; i < parts; at += part[i++].n + 1) {
            const int w = who[i];
            int k = 0;
            do {
                out[w][n[w]++] = pending[w] = ids[at + k];
                k++;
            } while (k <= part[i].n && part[i].ids[k - 1] == pending[w]);
            keep[i] = k;
            order[i] = part[i].seq;
            right += k - 1;
            spec_seq_push(q[w], &out[w][n[w] - k], k);
        }
        if (s) {
            must(engine_commit(g, order, keep, parts, &e), &e);
        }
    }
    for (int i = 0; i < 2; i++) {
        spec_seq_free(q[i]);
        engine_seq_close(g, seq[i]);
    }
    return right;
}

static void same_text(struct engine *g, const int32_t *text, int len)
{
    struct err e = ERR_INIT;
    struct spec s;
    const struct spec_opts mtp = {.mode = SPEC_MTP, .draft = 2};
    int32_t off[2][TEXT] = {{0}}, on[2][TEXT] = {{0}};
    int plain = 0, rounds = 0;
    must(spec_init(&s, &mtp, g, &e), &e);
    say(g, NULL, text, NULL, len, off, &plain);
    const int right = say(g, &s, text, off, len, on, &rounds);
    ok(memcmp(off, on, sizeof off) == 0 && right > 0 && rounds < plain,
       "greedy text with the MTP drafter and with none: the same, in %d rounds for %d (%d right)",
       rounds, plain, right);
}

void spectest_run(spectest_open *open, const int32_t *text)
{
    const bool full = getenv("QUASAR_LONG") != NULL;
    struct engine_opts o = {.slots = 6};
    struct engine *g = open(&o);
    drawn = (uint32_t)text[0] + 7;
    every_length(g, text, full ? MOST : 3, QUICK ? 3 : 1, "graphs");
    many_at_once(g, text + 30, full ? MOST : 3);
    margins(g, text + 100);
    drafts(g, text + 120);
    if (!QUICK) {
        same_text(g, text + 140, full ? TEXT : 4);
    }
    engine_close(g);
    if (wanted_path() == ECP_AUTO && !QUICK) { /* the other kernels, launched one by one */
        setenv("QUASAR_CUDA_PATH", "sm80", 1);
        o.graphs = -1;
        g = open(&o);
        every_length(g, text + 8, full ? MOST : 2, full ? 1 : 2, "sm_80, no graphs");
        if (full) {
            same_text(g, text + 150, TEXT);
        }
        engine_close(g);
        unsetenv("QUASAR_CUDA_PATH");
    }
}
