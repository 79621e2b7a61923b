/* quasar score: log probabilities of a given text, the likeliest tokens, drafts
 * and state. A measuring tool: text is taken raw, and special tokens written in
 * it count as such. */
#include "config.h"
#include "cmd/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/model.h"
#include "cmd/probe.h"

#define MAX_TEXT ((size_t)64 << 20)

int score_tokens(const struct scorer *s, int seq, const int32_t *ids, int n, score_row_fn row,
                 void *ctx, struct err *e)
{
    const int start = engine_seq_len(s->g, seq);
    const int most = s->from - start, behind = most < 0 ? 0 : most < n ? most : n;
    const int at_once = s->decode ? behind : n;
    int rc = 0;
    int32_t *want = mem_array((size_t)at_once + 1, sizeof *want);
    for (int i = 0; i < at_once; i++) {
        want[i] = i;
    }
    if (at_once > 0) {
        struct engine_prefill p = {.seq = seq,
                                   .tokens = ids,
                                   .n = at_once,
                                   .want = want,
                                   .n_want = row ? at_once : 0,
                                   .sink = row,
                                   .sink_ctx = ctx};
        rc = engine_prefill(s->g, &p, e);
    }
    free(want);
    for (int i = at_once; i < n && rc == 0; i++) {
        rc = engine_decode(s->g, &seq, &ids[i], 1, e);
        if (rc == 0 && row) {
            rc = row(ctx, start + i, 0, e);
        }
    }
    return rc;
}

struct rows {
    const struct scorer *s;
    const int32_t *ids;
    int n, top;
    bool logits;
    float *row;
    double nll;
    int counted;
    json_t *positions;
};

static json_t *top_list(const struct rows *r, int vocab, double lse)
{
    int k = r->top < vocab ? r->top : vocab;
    int32_t *ids = mem_array((size_t)k + 1, sizeof *ids);
    probe_top(r->row, vocab, k, ids);
    json_t *list = json_array();
    for (int i = 0; i < k; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "id", json_integer(ids[i]));
        json_object_set_new(o, "logprob", json_real((double)(float)((double)r->row[ids[i]] - lse)));
        if (r->logits) {
            json_object_set_new(o, "logit", json_real((double)r->row[ids[i]]));
        }
        json_array_append_new(list, o);
    }
    free(ids);
    return list;
}

static int one_row(void *ctx, int pos, int output, struct err *e)
{
    struct rows *r = ctx;
    int rc = engine_logits(r->s->g, output, r->row, e);
    if (rc < 0) {
        return rc;
    }
    const int vocab = engine_info(r->s->g)->vocab_used;
    double lse = probe_logsumexp(r->row, vocab);
    json_t *o = json_object();
    json_object_set_new(o, "pos", json_integer(pos));
    json_object_set_new(o, "id", json_integer(r->ids[pos]));
    json_t *lp = json_null();
    if (pos + 1 < r->n) {
        int32_t next = r->ids[pos + 1];
        double v = next < vocab ? (double)r->row[next] - lse : -INFINITY;
        if (isfinite(v)) {
            lp = json_real((double)(float)v); /* as requests get them; JSON has no infinity */
        }
        r->nll -= v;
        r->counted++;
    }
    json_object_set_new(o, "logprob", lp);
    if (r->top > 0) {
        json_object_set_new(o, "top", top_list(r, vocab, lse));
    }
    json_array_append_new(r->positions, o);
    return 0;
}

/* Drafts stand on the hidden state of the last token, so the text is walked
 * through again, one decode step at a time. */
static int add_drafts(struct rows *r, int depth, struct err *e)
{
    struct engine *g = r->s->g;
    int seq = -1;
    int rc = engine_seq_open(g, &seq, e);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i + 1 < r->n && rc == 0; i++) {
        int32_t ids[ENGINE_MAX_DRAFT];
        rc = engine_decode(g, &seq, &r->ids[i], 1, e);
        if (rc == 0) {
            rc = engine_mtp_draft(g, seq, r->ids[i + 1], depth, ids, e);
        }
        json_t *list = json_array();
        for (int k = 0; k < depth && rc == 0; k++) {
            json_array_append_new(list, json_integer(ids[k]));
        }
        json_object_set_new(json_array_get(r->positions, (size_t)i), "mtp", list);
    }
    engine_seq_close(g, seq);
    return rc;
}

static int add_states(const struct rows *r, int seq, json_t *root, struct err *e)
{
    struct engine *g = r->s->g;
    int before = -1;
    int rc = 0;
    if (r->n > 1) {
        rc = engine_seq_open(g, &before, e);
        if (rc == 0) {
            rc = score_tokens(r->s, before, r->ids, r->n - 1, NULL, NULL, e);
        }
    }
    json_t *states = NULL;
    if (rc == 0) {
        rc = probe_states(g, container_config(r->s->file), seq, before, &states, e);
    }
    if (rc == 0) {
        json_object_set_new(root, "states", states);
    }
    engine_seq_close(g, before);
    return rc;
}

struct hidden_row {
    const struct rows *r;
    float *hidden;
};

static int row_and_hidden(void *ctx, int pos, int output, struct err *e)
{
    struct hidden_row *h = ctx;
    int rc = one_row((void *)(uintptr_t)h->r, pos, output, e);
    if (rc == 0 && pos + 1 == h->r->n) {
        rc = engine_hidden(h->r->s->g, output, h->hidden, e);
    }
    return rc;
}

static void print_text(const struct rows *r, const json_t *root)
{
    size_t i = 0;
    const json_t *o = NULL;
    json_array_foreach(r->positions, i, o)
    {
        const json_t *lp = json_object_get(o, "logprob");
        if (r->top == 0 && !json_object_get(o, "mtp")) {
            break;
        }
        printf("%6zu %7d", i, r->ids[i]);
        json_is_real(lp) ? printf(" %10.5f ", json_real_value(lp)) : printf(" %10s ", "-");
        size_t k = 0;
        const json_t *t = NULL;
        json_array_foreach(json_object_get(o, "top"), k, t)
        {
            printf(" %d:%.4f", (int)json_integer_value(json_object_get(t, "id")),
                   json_real_value(json_object_get(t, "logprob")));
        }
        json_array_foreach(json_object_get(o, "mtp"), k, t)
        {
            printf("%s%d", k ? "," : "  mtp ", (int)json_integer_value(t));
        }
        putchar('\n');
    }
    json_array_foreach(json_object_get(root, "states"), i, o)
    {
        struct buf b = BUF_INIT;
        json_write(o, &b);
        puts(b.data);
        buf_free(&b);
    }
    if (r->counted > 0) {
        printf("%d tokens, %.5f nats per token, perplexity %.4f\n", r->n, r->nll / r->counted,
               exp(r->nll / r->counted));
    } else {
        printf("%d token\n", r->n);
    }
}

static int score_ids(const struct scorer *s, const struct conf *cf, const struct tok_ids *ids,
                     struct err *e)
{
    const struct engine_info *info = engine_info(s->g);
    struct rows r = {.s = s,
                     .ids = ids->v,
                     .n = (int)ids->n,
                     .top = (int)conf_int(cf, "top", 0),
                     .logits = conf_flag(cf, "logits"),
                     .row = mem_array((size_t)info->vocab, sizeof(float)),
                     .positions = json_array()};
    float *hidden = mem_array((size_t)info->hidden, sizeof *hidden);
    struct hidden_row h = {&r, hidden};
    json_t *root = json_object();
    json_object_set(root, "positions", r.positions);
    int depth = (int)conf_int(cf, "mtp", 0), seq = -1;
    int rc = 0;
    if (depth > info->max_draft && info->mtp) {
        rc = err_set(e, QE_USAGE, "--mtp %d is more than --max-draft %d allows", depth,
                     info->max_draft);
    }
    rc = rc < 0 ? rc : engine_seq_open(s->g, &seq, e);
    if (rc == 0) {
        rc = score_tokens(s, seq, r.ids, r.n, row_and_hidden, &h, e);
    }
    if (rc == 0 && depth > 0) {
        rc = add_drafts(&r, depth, e);
    }
    if (rc == 0 && conf_flag(cf, "states")) {
        const int64_t shape[] = {info->hidden};
        json_object_set_new(root, "hidden", probe_checksum(hidden, shape, 1));
        rc = add_states(&r, seq, root, e);
    }
    double nll = r.counted > 0 ? r.nll / r.counted : NAN; /* of one token: none */
    json_object_set_new(root, "nll", isfinite(nll) ? json_real(nll) : json_null());
    json_object_set_new(root, "ppl", isfinite(exp(nll)) ? json_real(exp(nll)) : json_null());
    if (rc == 0 && conf_flag(cf, "json")) {
        json_incref(root);
        json_print_take(root);
    } else if (rc == 0) {
        print_text(&r, root);
    }
    engine_seq_close(s->g, seq);
    json_decref(root);
    json_decref(r.positions);
    free(r.row);
    free(hidden);
    return rc;
}

static int parse_ids(const char *text, struct tok_ids *out, struct err *e)
{
    const char *p = text;
    while (*p) {
        char *end = NULL;
        long v = strtol(p, &end, 10);
        if (end == p || v < 0 || v > INT32_MAX || (*end && *end != ',')) {
            return err_set(e, QE_USAGE, "--tokens: \"%.20s\" is not a token id", p);
        }
        tok_ids_add(out, (int32_t)v);
        p = *end ? end + 1 : end;
    }
    return 0;
}

static int read_input(const struct conf *cf, const struct tokenizer *tok, struct tok_ids *ids,
                      struct err *e)
{
    const char *list = conf_str(cf, "tokens"), *file = conf_str(cf, "file");
    if (!list == !file) {
        return err_set(e, QE_USAGE, "score wants a text (-f FILE) or ids (--tokens I,I,…)");
    }
    int rc = 0;
    if (list) {
        rc = parse_ids(list, ids, e);
    } else if (!tok) {
        rc = err_set(e, QE_UNSUPPORTED, "the model file has no tokenizer: give --tokens");
    } else {
        struct buf text = BUF_INIT;
        rc = strcmp(file, "-") == 0 ? io_read_fd(0, "standard input", MAX_TEXT, &text, e)
                                    : io_read_stream(file, MAX_TEXT, &text, e);
        if (rc == 0 && text.len > 0) {
            tokenizer_encode(tok, text.data, text.len, true, ids);
        }
        buf_free(&text);
    }
    if (rc == 0 && ids->n == 0) {
        rc = err_set(e, QE_USAGE, "there is no text to score");
    }
    if (rc == 0 && ids->n > 1 << 24) {
        rc = err_set(e, QE_NOMEM, "%zu tokens are more than any window holds", ids->n);
    }
    return rc;
}

static int open_tokenizer(const struct container *file, struct tokenizer **out, struct err *e)
{
    const char *p = NULL, *config = NULL;
    size_t n = 0, config_n = 0;
    if (!container_get(file, CB_TOKENIZER, &p, &n)) {
        return 0;
    }
    if (!container_get(file, CB_TOKENIZER_CONFIG, &config, &config_n)) {
        config = NULL;
    }
    return tokenizer_open(p, n, config, config_n, "the model's tokenizer", out, e);
}

static int compare(const struct scorer *s, const struct conf *cf, struct err *e)
{
    const char *path = conf_str(cf, "ref");
    json_t *report = NULL;
    bool ok = false;
    int rc = score_reference(s, path, &report, &ok, e);
    if (rc < 0) {
        return rc;
    }
    json_print_take(report);
    return ok ? 0 : err_set(e, QE_FORMAT, "%s: the differences exceed the limits", path);
}

/* A second engine beside the first, which differs in its cache alone. */
static int against(const struct scorer *s, const struct conf *cf, const struct engine_opts *tweak,
                   const struct tok_ids *ids, struct err *e)
{
    struct engine_opts o = {0};
    struct engine *ref = NULL;
    json_t *report = NULL;
    char note[256] = "";
    int rc = model_engine_opts(cf, &o, note, e);
    model_apply_tweak(&o, tweak);
    o.kv = model_kv(conf_str(cf, "against"));
    o.ctx = engine_info(s->g)->ctx;
    rc = rc < 0 ? rc : engine_open(s->file, &o, &ref, e);
    rc = rc < 0 ? rc : score_against(s->g, ref, ids->v, (int)ids->n, &report, e);
    engine_close(ref);
    if (rc == 0 && conf_flag(cf, "json")) {
        json_print_take(report);
    } else if (rc == 0) {
        score_against_print(report);
        json_decref(report);
    }
    return rc;
}

int cmd_score(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 0) {
        return err_set(e, QE_USAGE,
                       "quasar score takes no argument \"%s\" (the model goes with -m)", args[0]);
    }
    const bool ref = conf_str(cf, "ref") != NULL;
    if (ref && (conf_str(cf, "tokens") || conf_str(cf, "file"))) {
        return err_set(e, QE_USAGE, "--ref has its own text: leave -f and --tokens out");
    }
    if (conf_str(cf, "against") && (ref || conf_is_word(cf, "as", "decode"))) {
        return err_set(e, QE_USAGE, "--against compares prefill by itself: leave --%s out",
                       ref ? "ref" : "as decode");
    }
    if (conf_int(cf, "from", 0) > 0 && !conf_is_word(cf, "as", "decode")) {
        return err_set(e, QE_USAGE, "--from says where --as decode begins: give that too");
    }
    struct model m = {0};
    struct tokenizer *tok = NULL;
    struct tok_ids ids = {0};
    int rc = model_open(cf, &m, e);
    if (rc == 0) {
        rc = open_tokenizer(m.file, &tok, e);
    }
    if (rc == 0 && !ref) {
        rc = read_input(cf, tok, &ids, e);
    }
    const bool other = conf_str(cf, "against") != NULL;
    struct engine_opts tweak = {.slots = 2, .vocab_used = tok ? tokenizer_size(tok) : 0};
    if (rc == 0) {
        rc = model_start(cf, &m, &tweak, e);
    }
    for (size_t i = 0; i < ids.n && rc == 0; i++) {
        const int most = engine_info(m.engine)->vocab_used - 1;
        if (ids.v[i] > most) {
            rc = err_set(e, QE_USAGE, "token id %d is outside 0..%d", (int)ids.v[i], most);
        }
    }
    if (rc == 0) {
        struct scorer s = {.g = m.engine,
                           .file = m.file,
                           .tok = tok,
                           .decode = conf_is_word(cf, "as", "decode"),
                           .from = (int)conf_int(cf, "from", 0)};
        rc = ref     ? compare(&s, cf, e)
             : other ? against(&s, cf, &tweak, &ids, e)
                     : score_ids(&s, cf, &ids, e);
    }
    tok_ids_free(&ids);
    tokenizer_free(tok);
    model_close(&m);
    return rc;
}
