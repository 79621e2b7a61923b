/* Helpers for tests of whole engines on CUDA. */
#include "config.h"
#include "tests/cuda/engtest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/backend.h"

static int n_tests, n_failed;

bool ok(bool good, const char *fmt, ...)
{
    va_list ap;
    printf("%sok %d - ", good ? "" : "not ", ++n_tests);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    n_failed += !good;
    return good;
}

int done(void)
{
    printf("1..%d\n", n_tests);
    return n_failed > 0;
}

void must(int rc, const struct err *e)
{
    if (rc < 0) {
        printf("not ok %d - %s\nBail out!\n", n_tests + 1, e->msg);
        exit(1);
    }
}

void need_device(int rc, const struct err *e)
{
    if ((rc == QE_DEVICE || rc == QE_UNSUPPORTED) && n_tests == 0) {
        printf("1..0 # SKIP %s\n", e->msg);
        exit(0);
    }
    must(rc, e);
}

enum engine_cuda_path wanted_path(void)
{
    const char *path = getenv("QUASAR_CUDA_PATH");
    return !path ? ECP_AUTO : strcmp(path, "sm80") == 0 ? ECP_SM80 : ECP_SM90;
}

int open_seq(struct engine *g)
{
    struct err e = ERR_INIT;
    int seq = -1;
    must(engine_seq_open(g, &seq, &e), &e);
    return seq;
}

void prefill(struct engine *g, int seq, const int32_t *ids, int n, int max_rows, float *out)
{
    struct err e = ERR_INIT;
    const int32_t last = n - 1;
    const struct engine_prefill p = {
        .seq = seq, .tokens = ids, .n = n, .want = &last, .n_want = 1, .max_rows = max_rows};
    must(engine_prefill(g, &p, &e), &e);
    if (out) {
        must(engine_logits(g, 0, out, &e), &e);
    }
}

void decode(struct engine *g, const int *seqs, const int32_t *ids, int n, float *out)
{
    struct err e = ERR_INIT;
    const size_t vocab = (size_t)engine_info(g)->vocab;
    must(engine_decode(g, seqs, ids, n, &e), &e);
    for (int i = 0; i < n && out; i++) {
        must(engine_logits(g, i, out + (size_t)i * vocab, &e), &e);
    }
}

char *export_state(struct engine *g, int seq, size_t *n)
{
    struct err e = ERR_INIT;
    *n = engine_seq_state_size(g, seq);
    char *p = mem_alloc(*n);
    must(engine_seq_export(g, seq, p, &e), &e);
    return p;
}

/* ---- cuts ---- */

enum { MAX_CUTS = 12 };

/* What a prompt leaves: logits of its last token and of two steps after it; the state
 * and the full pages after the first of them, when the MTP layer too has seen every
 * position of the prompt. */
struct trace {
    float *logits; /* [3][vocab] */
    char *state;
    size_t n; /* of state, without the page that is not full */
};

static void trace_rest(struct engine *g, int seq, struct trace *t)
{
    const size_t vocab = (size_t)engine_info(g)->vocab;
    const size_t before = engine_seq_state_size(g, seq);
    const int32_t next[2] = {3, 5};
    size_t size = 0;
    decode(g, &seq, &next[0], 1, t->logits + vocab);
    t->state = export_state(g, seq, &size);
    const bool new_page = engine_seq_len(g, seq) % BE_PAGE == 1;
    t->n = new_page ? before : size - (size_t)engine_info(g)->memory.page;
    decode(g, &seq, &next[1], 1, t->logits + 2 * vocab);
}

/* The sequence goes on in another one; its neighbour moves out of the way. */
static int carry(struct engine *g, int seq, int *neighbour, uint32_t (*draw)(uint32_t))
{
    struct err e = ERR_INIT;
    size_t n = 0;
    char *state = export_state(g, seq, &n);
    const bool first = draw(2) == 0;
    int other = first ? open_seq(g) : -1;
    if (draw(2) == 0) {
        engine_seq_close(g, *neighbour);
        *neighbour = open_seq(g);
    }
    engine_seq_close(g, seq);
    must(engine_seq_fill(g, *neighbour, 1 + (int)draw((uint32_t)engine_info(g)->ctx / 8), &e), &e);
    other = first ? other : open_seq(g);
    must(engine_seq_import(g, other, state, n, &e), &e);
    free(state);
    return other;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Once, at random cuts. */
static void cut_once(struct engine *g, const int32_t *ids, int n, int *neighbour,
                     uint32_t (*draw)(uint32_t), struct trace *t)
{
    int cut[MAX_CUTS + 1], at = 0;
    const int cuts = 1 + (int)draw(MAX_CUTS);
    for (int i = 0; i < cuts; i++) {
        cut[i] = 64 * (1 + (int)draw((uint32_t)n / 64 - 1));
    }
    cut[cuts] = n;
    qsort(cut, (size_t)cuts + 1, sizeof *cut, by_number);
    int seq = open_seq(g);
    for (int i = 0; i <= cuts; i++) {
        if (cut[i] > at) {
            const int rows = 64 * (1 + (int)draw(32));
            prefill(g, seq, ids + at, cut[i] - at, rows, cut[i] == n ? t->logits : NULL);
            at = cut[i];
            seq = at < n ? carry(g, seq, neighbour, draw) : seq;
        }
    }
    trace_rest(g, seq, t);
    engine_seq_close(g, seq);
}

int cut_and_resume(struct engine *g, const int32_t *ids, int n, int sets,
                   uint32_t (*draw)(uint32_t))
{
    const size_t vocab = (size_t)engine_info(g)->vocab;
    struct trace want = {.logits = mem_array(3 * vocab, sizeof(float))};
    int whole = open_seq(g), wrong = 0;
    prefill(g, whole, ids, n, 0, want.logits);
    trace_rest(g, whole, &want);
    engine_seq_close(g, whole);
    int neighbour = open_seq(g);
    for (int s = 0; s < sets; s++) {
        struct trace got = {.logits = mem_array(3 * vocab, sizeof(float))};
        cut_once(g, ids, n, &neighbour, draw, &got);
        wrong += got.n != want.n || memcmp(got.state, want.state, want.n) != 0 ||
                 memcmp(got.logits, want.logits, 3 * vocab * sizeof(float)) != 0;
        free(got.logits);
        free(got.state);
    }
    engine_seq_close(g, neighbour);
    free(want.logits);
    free(want.state);
    return wrong;
}
