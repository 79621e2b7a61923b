/* Every tier of the demo model: the engine on quantised weights against the same
 * engine on their fp32 values. What a kernel does to codes and scales may round
 * differently, no more. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "format/container.h"
#include "format/convert.h"
#include "format/quant.h"

#define TOKENS 130
#define STEPS  6
#define LIMIT  2e-3

/* fp32 copies of a container's tensors. */
struct plain {
    const struct container *c;
    struct tensor *t;
};

static const struct tensor *find_plain(void *ctx, const char *name)
{
    struct plain *p = ctx;
    size_t n = container_count(p->c);
    const struct tensor *from = container_find(p->c, name);
    if (!from) {
        return NULL;
    }
    size_t i = 0;
    while (i < n && container_at(p->c, i) != from) {
        i++;
    }
    assert_true(i < n);
    struct tensor *to = &p->t[i];
    if (!to->data) {
        size_t values = (size_t)(tensor_rows(from) * tensor_cols(from));
        float *v = mem_aligned(values * sizeof *v);
        quant_decode(from->dtype, from->data, from->scales, tensor_rows(from), tensor_cols(from),
                     v);
        *to = *from;
        to->dtype = DT_F32;
        to->data = v;
        to->size = values * sizeof *v;
        to->scales = NULL;
        to->scale_size = 0;
    }
    return to;
}

struct rows {
    struct engine *g;
    float *out;
    size_t vocab;
};

static int keep(void *ctx, int index, int output, struct err *e)
{
    struct rows *r = ctx;
    return engine_logits(r->g, output, r->out + (size_t)index * r->vocab, e);
}

/* Logits of every prompt row, then of some decode steps. */
static float *run(struct engine *g, int *n_rows, size_t *vocab)
{
    struct err e = ERR_INIT;
    struct rows r = {.g = g, .vocab = (size_t)engine_info(g)->vocab};
    r.out = mem_array((TOKENS + STEPS) * r.vocab, sizeof *r.out);
    int32_t ids[TOKENS + STEPS], want[TOKENS];
    for (int i = 0; i < TOKENS + STEPS; i++) {
        uint32_t w = philox_word(11, (uint32_t)i, PHILOX_TARGET, 0);
        ids[i] = (int32_t)(w % (uint32_t)engine_info(g)->vocab_used);
    }
    for (int i = 0; i < TOKENS; i++) {
        want[i] = i;
    }
    int seq = -1;
    struct engine_prefill p = {
        .tokens = ids, .n = TOKENS, .want = want, .n_want = TOKENS, .sink = keep, .sink_ctx = &r};
    int rc = engine_seq_open(g, &seq, &e);
    p.seq = seq;
    if (rc == 0) {
        rc = engine_prefill(g, &p, &e);
    }
    for (int i = TOKENS; i < TOKENS + STEPS && rc == 0; i++) {
        rc = engine_decode(g, &seq, &ids[i], 1, &e);
        if (rc == 0) {
            rc = engine_logits(g, 0, r.out + (size_t)i * r.vocab, &e);
        }
    }
    if (rc < 0) {
        fail_msg("%s", e.msg);
    }
    *n_rows = TOKENS + STEPS;
    *vocab = r.vocab;
    return r.out;
}

static void compare(const struct container *c, const char *tier, const char *isa)
{
    struct err e = ERR_INIT;
    struct engine_opts o = {
        .backend = EB_CPU, .isa = isa, .threads = 1, .slots = 1, .ctx = 1024, .kv = EKV_F32};
    struct engine *a = NULL, *b = NULL;
    int rc = engine_open(c, &o, &a, &e);
    if (rc == QE_UNSUPPORTED && isa) {
        return; /* this machine lacks it */
    }
    if (rc < 0) {
        fail_msg("%s: %s", tier, e.msg);
    }
    size_t n = container_count(c);
    struct plain p = {c, mem_array(n, sizeof *p.t)};
    struct engine_source s = {.find = find_plain,
                              .ctx = &p,
                              .config = container_config(c),
                              .norms_folded = container_norms_folded(c)};
    o.vocab_used = engine_info(a)->vocab_used;
    if (engine_open_source(&s, &o, &b, &e) < 0) {
        fail_msg("%s: %s", tier, e.msg);
    }
    int rows = 0;
    size_t vocab = 0;
    float *x = run(a, &rows, &vocab), *y = run(b, &rows, &vocab);
    double worst = 0;
    for (size_t i = 0; i < (size_t)rows * vocab; i++) {
        if (isinf(x[i]) && isinf(y[i])) {
            continue; /* padding */
        }
        double d = fabs((double)x[i] - (double)y[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    print_message("# %s, %s: max abs difference of a logit %.3g\n", tier, engine_info(a)->device,
                  worst);
    if (!(worst <= LIMIT)) {
        fail_msg("%s on %s: a logit differs by %g", tier, engine_info(a)->device, worst);
    }
    free(x);
    free(y);
    engine_close(a);
    engine_close(b);
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)p.t[i].data);
    }
    free(p.t);
}

static char *demo_path(void)
{
    const char *dir = getenv("QUASAR_SRCDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/models/demo.qsr", dir ? dir : ".");
    return mem_strdup(path);
}

static void check_tier(const char *tier)
{
    struct err e = ERR_INIT;
    char *demo = demo_path(), path[] = "/tmp/quasar-tier-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct convert_opts o = {.tier = tier, .to = CONVERT_QSR, .force = true};
    struct container *c = NULL;
    int rc = convert(demo, path, &o, &e);
    if (rc == 0) {
        rc = container_open(path, false, &c, &e);
    }
    unlink(path);
    if (rc < 0) {
        fail_msg("%s: %s", tier, e.msg);
    }
    compare(c, tier, NULL);
    if (strcmp(tier, "default") == 0) { /* has every format but bf16 */
        compare(c, tier, "avx2");
        compare(c, tier, "portable");
    }
    container_close(c);
    free(demo);
}

static void tier_of_state(void **state)
{
    check_tier(*state);
}

int main(void)
{
    static char names[][8] = {"bf16", "q8", "default", "q4s", "q5f", "q6", "q6f", "q6k"};
    struct CMUnitTest tests[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = tier_of_state, .initial_state = names[i]};
    }
    return cmocka_run_group_tests_name("tiers", tests, NULL, NULL);
}
