/* Comparison with a reference file of another implementation: token ids, top-20
 * logits at some positions, sums of every layer's state after the prompt, the
 * final hidden state, a greedy continuation and chained drafts. The limits are
 * those that the parity tests hold the engine to. */
#include "config.h"
#include "cmd/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/probe.h"

#define LOGIT_LIMIT 2e-3
#define STATE_LIMIT 1e-3 /* relative */
#define LOGIT_ROUND 1e-5 /* the files hold five decimals */

struct ref {
    const struct scorer *s;
    const json_t *file;
    int32_t *ids;
    int n;
    float *row;      /* vocab */
    float *hidden;   /* of the last prompt position */
    int32_t first;   /* greedy token after the prompt */
    double max_diff; /* logits */
    int max_pos;
    json_t *swaps; /* pairs out of order; judged once max_diff is known */
    json_t *top1;  /* per listed position: is ours the same, and the reference's margin */
    json_t *report;
    bool ok;
};

static void verdict(struct ref *r, json_t *part, bool ok)
{
    json_object_set_new(part, "ok", json_boolean(ok));
    r->ok = r->ok && ok;
}

static int read_ids(const json_t *list, const char *key, int32_t **out, int *n, struct err *e)
{
    size_t count = json_array_size(list);
    if (count == 0 || count > 1 << 24) {
        return err_set(e, QE_FORMAT, "the reference file has no %s", key);
    }
    int32_t *ids = mem_array(count, sizeof *ids);
    for (size_t i = 0; i < count; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    *out = ids;
    *n = (int)count;
    return 0;
}

static void note_swap(struct ref *r, int pos, int32_t a, int32_t b, double gap)
{
    json_t *o = json_object();
    json_object_set_new(o, "pos", json_integer(pos));
    json_object_set_new(o, "ids", json_pack("[i,i]", a, b));
    json_object_set_new(o, "gap", json_real(gap));
    json_array_append_new(r->swaps, o);
}

/* The listed logits, the order of each listed pair, and whether an id that is not
 * listed stands above the last that is. */
static void compare_row(struct ref *r, int pos, const json_t *top)
{
    const size_t k = json_array_size(top);
    const int vocab = engine_info(r->s->g)->vocab_used;
    double *want = mem_array(k, sizeof *want);
    int32_t *id = mem_array(k, sizeof *id), *ours = mem_array(k, sizeof *ours);
    for (size_t i = 0; i < k; i++) {
        const json_t *pair = json_array_get(top, i);
        id[i] = (int32_t)json_integer_value(json_array_get(pair, 0));
        want[i] = json_number_value(json_array_get(pair, 1));
        bool known = id[i] >= 0 && id[i] < vocab;
        double diff = known ? fabs((double)r->row[id[i]] - want[i]) : INFINITY;
        if (!(diff <= r->max_diff)) {
            r->max_diff = diff;
            r->max_pos = pos;
        }
        for (size_t j = 0; known && j < i; j++) {
            if (r->row[id[j]] < r->row[id[i]]) {
                note_swap(r, pos, id[j], id[i], want[j] - want[i]);
            }
        }
    }
    probe_top(r->row, vocab, (int)k, ours);
    json_array_append_new(r->top1, json_pack("{s:i, s:b, s:f}", "pos", pos, "same",
                                             k > 0 && ours[0] == id[0], "margin",
                                             k > 1 ? want[0] - want[1] : 0.0));
    for (size_t i = 0; i < k; i++) {
        bool listed = false;
        for (size_t j = 0; j < k; j++) {
            listed = listed || id[j] == ours[i];
        }
        if (!listed) {
            note_swap(r, pos, id[k - 1], ours[i], (double)r->row[ours[i]] - want[k - 1]);
        }
    }
    free(want);
    free(id);
    free(ours);
}

static int on_row(void *ctx, int pos, int output, struct err *e)
{
    struct ref *r = ctx;
    bool last = pos + 1 == r->n;
    const json_t *found = NULL, *p = NULL;
    size_t i = 0;
    json_array_foreach(json_object_get(r->file, "positions"), i, p)
    {
        if (json_integer_value(json_object_get(p, "pos")) == pos) {
            found = json_object_get(p, "top");
        }
    }
    if (!found && !last) {
        return 0;
    }
    int rc = engine_logits(r->s->g, output, r->row, e);
    if (rc == 0 && found) {
        compare_row(r, pos, found);
    }
    if (rc == 0 && last) {
        r->first = probe_argmax(r->row, engine_info(r->s->g)->vocab_used);
        rc = engine_hidden(r->s->g, output, r->hidden, e);
    }
    return rc;
}

static void check_text(struct ref *r)
{
    const json_t *prompt = json_object_get(r->file, "prompt");
    if (!r->s->tok || !json_is_string(prompt)) {
        return;
    }
    struct tok_ids t = {0};
    tokenizer_encode(r->s->tok, json_string_value(prompt), json_string_length(prompt), true, &t);
    bool same = t.n == (size_t)r->n && memcmp(t.v, r->ids, t.n * sizeof *t.v) == 0;
    json_t *part = json_object();
    json_object_set_new(part, "count", json_integer((json_int_t)t.n));
    verdict(r, part, same);
    json_object_set_new(r->report, "tokens", part);
    tok_ids_free(&t);
}

static void judge_logits(struct ref *r)
{
    json_t *part = json_object();
    double near = 2 * fmax(r->max_diff, LOGIT_ROUND);
    int wrong = 0;
    size_t i = 0;
    const json_t *o = NULL;
    json_array_foreach(r->swaps, i, o)
    {
        wrong += !(json_real_value(json_object_get(o, "gap")) <= near);
    }
    json_object_set_new(part, "max_abs",
                        isfinite(r->max_diff) ? json_real(r->max_diff) : json_null());
    json_object_set_new(part, "pos", json_integer(r->max_pos));
    json_object_set(part, "near_ties_swapped", r->swaps);
    json_object_set_new(part, "out_of_order", json_integer(wrong));
    json_object_set(part, "top1", r->top1);
    verdict(r, part, r->max_diff <= LOGIT_LIMIT && wrong == 0);
    json_object_set_new(r->report, "logits", part);
}

/* Largest relative difference of two checksums. The sum may cancel to nothing, so
 * it and the first values are measured against what they are sums and samples
 * of: the sum of absolute values, the root mean square. */
static double checksum_diff(const json_t *ours, const json_t *want)
{
    double n = 1, worst = 0;
    const json_t *shape = json_object_get(want, "shape");
    if (shape && !json_equal(shape, json_object_get(ours, "shape"))) {
        return INFINITY;
    }
    size_t i = 0;
    const json_t *v = NULL;
    json_array_foreach(json_object_get(ours, "shape"), i, v)
    {
        n *= json_number_value(v);
    }
    const json_t *abs_sum = json_object_get(want, "abs_sum");
    double l2 = json_number_value(json_object_get(want, "l2")), total = json_number_value(abs_sum);
    worst = fabs(json_number_value(json_object_get(ours, "l2")) - l2) / l2;
    if (abs_sum) {
        double d = fabs(json_number_value(json_object_get(ours, "abs_sum")) - total) / total;
        worst = fmax(worst, d);
        d = fabs(json_number_value(json_object_get(ours, "sum")) -
                 json_number_value(json_object_get(want, "sum"))) /
            total;
        worst = fmax(worst, d);
    }
    json_array_foreach(json_object_get(want, "head"), i, v)
    {
        double x = json_number_value(json_array_get(json_object_get(ours, "head"), i));
        worst = fmax(worst, fabs(x - json_number_value(v)) / fmax(fabs(x), l2 / sqrt(n)));
    }
    return worst;
}

static int compare_state(struct ref *r, int seq, struct err *e)
{
    static const char *const kinds[] = {"conv_states", "recurrent_states", "keys", "values"};
    const json_t *want = json_object_get(r->file, "state_after_prompt");
    int before = -1;
    json_t *ours = NULL, *part = json_object(), *layer = NULL;
    int rc = 0;
    if (r->n > 1) {
        rc = engine_seq_open(r->s->g, &before, e);
        if (rc == 0) {
            rc = score_tokens(r->s, before, r->ids, r->n - 1, NULL, NULL, e);
        }
    }
    if (rc == 0) {
        rc = probe_states(r->s->g, container_config(r->s->file), seq, before, &ours, e);
    }
    engine_seq_close(r->s->g, before);
    if (rc < 0) {
        json_decref(part);
        return rc;
    }
    bool ok = json_array_size(want) == json_array_size(ours);
    size_t i = 0;
    double worst[4] = {0};
    json_array_foreach(ours, i, layer)
    {
        for (int k = 0; k < 4; k++) {
            const json_t *a = json_object_get(layer, kinds[k]);
            const json_t *b = json_object_get(json_array_get(want, i), kinds[k]);
            ok = ok && !a == !b;
            if (a && b) {
                worst[k] = fmax(worst[k], checksum_diff(a, b));
            }
        }
    }
    for (int k = 0; k < 4; k++) {
        json_object_set_new(part, kinds[k], isfinite(worst[k]) ? json_real(worst[k]) : json_null());
        ok = ok && worst[k] <= STATE_LIMIT;
    }
    verdict(r, part, ok);
    json_object_set_new(r->report, "state", part);
    json_decref(ours);
    return 0;
}

/* ||ours - values|| / ||values||, where the file has the whole vector. */
static void compare_vector(const struct ref *r, const json_t *values, json_t *part)
{
    double d = 0, n = 0;
    size_t i = 0;
    const json_t *v = NULL;
    if (json_array_size(values) != (size_t)engine_info(r->s->g)->hidden) {
        return;
    }
    json_array_foreach(values, i, v)
    {
        const double x = json_number_value(v), y = (double)r->hidden[i] - x;
        d += y * y;
        n += x * x;
    }
    json_object_set_new(part, "relative_l2", json_real(sqrt(d / n)));
}

static void compare_hidden(struct ref *r)
{
    const int64_t shape[] = {engine_info(r->s->g)->hidden};
    json_t *ours = probe_checksum(r->hidden, shape, 1), *part = json_object();
    const json_t *want = json_object_get(r->file, "final_hidden_last_prompt_position");
    double d = checksum_diff(ours, want);
    compare_vector(r, json_object_get(want, "values"), part);
    json_object_set_new(part, "relative", isfinite(d) ? json_real(d) : json_null());
    verdict(r, part, d <= STATE_LIMIT);
    json_object_set_new(r->report, "hidden", part);
    json_decref(ours);
}

/* Drafts wherever the file has some that start at the sequence's last token. */
static int compare_drafts(struct ref *r, int seq, json_t *list, struct err *e)
{
    size_t i = 0;
    const json_t *m = NULL;
    int rc = 0;
    json_array_foreach(json_object_get(r->file, "mtp"), i, m)
    {
        const json_t *drafts = json_object_get(m, "drafts");
        int depth = (int)json_array_size(drafts), same = 0;
        int32_t next = (int32_t)json_integer_value(json_object_get(m, "known_next"));
        int32_t ids[ENGINE_MAX_DRAFT];
        int64_t base = json_integer_value(json_object_get(m, "base"));
        if (rc < 0 || base != engine_seq_len(r->s->g, seq) - 1) {
            continue;
        }
        rc = engine_mtp_draft(r->s->g, seq, next, depth, ids, e);
        for (int k = 0; k < depth && rc == 0; k++) {
            same += ids[k] == json_integer_value(json_array_get(drafts, (size_t)k));
        }
        json_t *o = json_object();
        json_object_set_new(o, "base", json_integer(base));
        json_object_set_new(o, "same", json_integer(same));
        verdict(r, o, same == depth);
        json_array_append_new(list, o);
    }
    return rc;
}

static int compare_greedy(struct ref *r, int seq, struct err *e)
{
    int32_t *want = NULL;
    int n = 0;
    int rc = read_ids(json_object_get(json_object_get(r->file, "greedy"), "ids"), "greedy.ids",
                      &want, &n, e);
    if (rc < 0) {
        return rc;
    }
    json_t *drafts = json_array(), *part = json_object();
    int32_t id = r->first;
    int same = 0, out = 0;
    struct engine_draw greedy = {.top_p = 1};
    while (rc == 0 && same < n && id == want[same]) {
        same++;
        rc = compare_drafts(r, seq, drafts, e);
        if (rc == 0 && same < n) {
            rc = engine_decode(r->s->g, &seq, &id, 1, e);
        }
        if (rc == 0 && same < n) {
            rc = engine_sample(r->s->g, &out, &greedy, 1, &id, e);
        }
    }
    json_object_set_new(part, "tokens", json_integer(n));
    json_object_set_new(part, "same", json_integer(same));
    verdict(r, part, same == n);
    json_object_set_new(r->report, "greedy", part);
    size_t wanted = json_array_size(json_object_get(r->file, "mtp"));
    r->ok = r->ok && json_array_size(drafts) == wanted;
    json_object_set_new(r->report, "mtp", drafts);
    free(want);
    return rc;
}

int score_reference(const struct scorer *s, const char *path, json_t **report, bool *ok,
                    struct err *e)
{
    json_t *file = NULL;
    struct buf text = BUF_INIT;
    int rc = io_read_stream(path, (size_t)64 << 20, &text, e);
    rc = rc < 0 ? rc : json_parse(text.data, text.len, path, &file, e);
    buf_free(&text);
    if (rc < 0) {
        return rc;
    }
    struct ref r = {.s = s, .file = file, .ok = true};
    int seq = -1;
    r.row = mem_array((size_t)engine_info(s->g)->vocab, sizeof *r.row);
    r.hidden = mem_array((size_t)engine_info(s->g)->hidden, sizeof *r.hidden);
    r.swaps = json_array();
    r.top1 = json_array();
    r.report = json_object();
    json_object_set(r.report, "name", json_object_get(file, "name"));
    rc = read_ids(json_object_get(file, "ids"), "ids", &r.ids, &r.n, e);
    if (rc == 0) {
        check_text(&r);
        rc = engine_seq_open(s->g, &seq, e);
    }
    if (rc == 0) {
        rc = score_tokens(s, seq, r.ids, r.n, on_row, &r, e);
    }
    if (rc == 0) {
        judge_logits(&r);
        compare_hidden(&r);
        rc = compare_state(&r, seq, e);
    }
    if (rc == 0) {
        rc = compare_greedy(&r, seq, e);
    }
    engine_seq_close(s->g, seq);
    if (rc == 0) {
        json_object_set_new(r.report, "ok", json_boolean(r.ok));
        *report = r.report;
        *ok = r.ok;
    } else {
        err_wrap(e, rc, "%s", path);
        json_decref(r.report);
    }
    json_decref(r.swaps);
    json_decref(r.top1);
    json_decref(file);
    free(r.ids);
    free(r.row);
    free(r.hidden);
    return rc;
}
