/* Helpers for tests of whole engines on CUDA. */
#include "config.h"
#include "tests/cuda/engtest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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
