/* Speculation on the demo model says what plain decoding says, greedily: every drafter at
 * every depth, each from one prefill, on the prompts of tests/prompts. QUASAR_LONG: 20
 * prompts of 256 tokens, depths 1 to 12; else a few. QUASAR_PART=I/N: of N processes that
 * share the prompts this is number I, from 0. QUASAR_CUDA: on the GPU; QUASAR_MODEL: another model
 * whose vocabulary has the demo's ids. */
#include "config.h"

#include "engine/load.h"
#include "spec_prompts.h"

static struct engine_model *open_demo(void)
{
    const char *cuda = getenv("QUASAR_CUDA"), *other = getenv("QUASAR_MODEL");
    struct engine_model *m = NULL;
    const struct engine_opts o = {
        .backend = cuda ? EB_CUDA : EB_CPU, .ctx = 9000, .threads = 2, .slots = 2};
    struct err e = ERR_INIT;
    if (engine_load(other ? other : in_tree("models/demo.qsr"), false, &o, &m, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return m;
}

static void must(int rc, const struct err *e)
{
    if (rc < 0) {
        fail_msg("%s", e->msg);
    }
}

/* What base goes on with after the token first, ends of turns included: most tokens in
 * out. spec NULL: plain steps. Returns rounds. */
static int go_on(struct engine *g, int base, struct spec *spec, const struct prompt *p,
                 int32_t first, int32_t *out, int most)
{
    struct err e = ERR_INIT;
    struct spec_seq *q = spec_seq_create();
    struct view_spec stats = {0};
    int seq = -1, n = 0, rounds = 0;
    must(engine_seq_open(g, &seq, &e), &e);
    must(engine_seq_fork(g, seq, base, &e), &e);
    spec_seq_prompt(q, p->ids, p->n);
    spec_seq_push(q, &first, 1);
    for (; n < most; rounds++) {
        struct spec_part part = {
            .q = q, .seq = seq, .pending = n > 0 ? out[n - 1] : first, .room = most - n - 1};
        struct engine_draw d[COST_ROWS];
        int seqs[COST_ROWS], outputs[COST_ROWS];
        int32_t tokens[COST_ROWS], ids[COST_ROWS];
        if (spec) {
            must(spec_draft(spec, g, &part, 1, &e), &e);
        }
        for (int k = 0; k <= part.n; k++) {
            tokens[k] = k > 0 ? part.ids[k - 1] : part.pending;
            seqs[k] = seq;
            outputs[k] = k;
            d[k] = (struct engine_draw){.top_p = 1};
        }
        must(part.n > 0 ? engine_verify(g, seqs, tokens, part.n + 1, &e)
                        : engine_decode(g, seqs, tokens, 1, &e),
             &e);
        must(engine_sample(g, outputs, d, part.n + 1, ids, &e), &e);
        int keep = 1;
        while (keep <= part.n && part.ids[keep - 1] == ids[keep - 1]) {
            keep++;
        }
        if (part.n > 0) {
            must(engine_commit(g, &seq, &keep, 1, &e), &e);
        }
        const int accepted = keep - 1;
        if (spec) {
            spec_learn(spec, &part, 1, &accepted, 1e-3, (struct view_spec *[]){&stats});
        }
        spec_seq_push(q, ids, keep);
        memcpy(out + n, ids, (size_t)keep * sizeof *out);
        n += keep;
    }
    spec_seq_free(q);
    engine_seq_close(g, seq);
    return rounds;
}

/* Whether prompt i is this process's. */
static bool mine(int i)
{
    const char *part = getenv("QUASAR_PART");
    int number = 0, of = 1;
    if (part && (sscanf(part, "%d/%d", &number, &of) != 2 || of < 1)) {
        fail_msg("QUASAR_PART is I/N, not %s", part);
    }
    return i % of == number;
}

static void every_depth(void **state)
{
    (void)state;
    static int rounds[4][13];
    const int most = is_long() ? MOST : FEW / 2;
    const int step = is_long() ? 1 : 11;
    int tokens = 0;
    struct engine_model *m = open_demo();
    struct engine *g = engine_of(m);
    for (int i = 0; i < n_prompts; i += is_long() ? 1 : 2 * STRIDE) {
        const struct prompt *p = &prompts[i];
        if (!mine(i)) {
            continue;
        }
        const int32_t last = p->n - 1;
        const struct engine_prefill f = {
            .tokens = p->ids, .n = p->n, .want = &last, .n_want = 1, .seq = 0};
        const struct engine_draw greedy = {.top_p = 1};
        const int output = 0;
        static int32_t off[MOST], on[MOST];
        int32_t first = 0;
        struct err e = ERR_INIT;
        int base = -1;
        must(engine_seq_open(g, &base, &e), &e);
        assert_int_equal(base, f.seq);
        must(engine_prefill(g, &f, &e), &e);
        must(engine_sample(g, &output, &greedy, 1, &first, &e), &e);
        assert_int_equal(go_on(g, base, NULL, p, first, off, most), most);
        for (int mode = MODE; mode < 4; mode += is_long() ? 1 : 3) {
            for (int draft = 1; draft <= 12; draft += step) {
                struct spec spec;
                must(spec_init(&spec, &(struct spec_opts){modes[mode].mode, draft}, g, &e), &e);
                rounds[mode][draft] += go_on(g, base, &spec, p, first, on, most);
                if (memcmp(off, on, (size_t)most * sizeof *on) != 0) {
                    fail_msg("prompt %d, %s, %d drafts: another text", i, modes[mode].name, draft);
                }
            }
        }
        engine_seq_close(g, base);
        tokens += most;
    }
    for (int mode = MODE; mode < 4; mode += is_long() ? 1 : 3) {
        for (int draft = 1; draft <= 12; draft += step) {
            print_message("# %s %d: %d tokens in %d rounds\n", modes[mode].name, draft, tokens,
                          rounds[mode][draft]);
        }
    }
    engine_unload(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_depth),
    };
    return cmocka_run_group_tests(tests, prompts_read, prompts_free);
}
