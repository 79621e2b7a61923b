/*
 * The CUDA backend's table of operations. Decode operations are only written down
 * here (see host.h); what needs a result flushes them.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/bandwidth.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/plan.h"
#include "kernels/geometry.h"

int cuda_fail(struct backend *b, int status, struct err *e)
{
    const char *kernel = b->cu.kernel ? b->cu.kernel : "none";
    const char *doing = b->doing ? b->doing : "at the start";
    if (rt_is_nomem(status) && b->plan.page > 0) {
        return cuda_plan_refuse(&b->plan, b->pages, doing, e);
    }
    return err_set(e, rt_is_nomem(status) ? QE_NOMEM : QE_DEVICE,
                   "CUDA failed %s: %s (last kernel: %s)", doing, rt_reason(status), kernel);
}

/* ---- the list ---- */

/* Grids are made for these numbers of rows, spans or outputs. */
static int bucket(int n)
{
    int p = 1;
    while (p < n && p < CU_ROWS) {
        p *= 2;
    }
    return n <= p ? p : (n + CU_ROWS - 1) / CU_ROWS * CU_ROWS;
}

/* Of accepted rows, which are done quickly but come in all numbers: fewer bounds, since each
 * makes lists of its own with all that may follow. */
static int coarse(int n)
{
    return n <= 1 || n > CU_ROWS ? bucket(n) : n <= 4 ? 4 : CU_ROWS;
}

/* A bound of positions for attention's grid: powers of two from 1024 on. */
static int depth_bucket(const struct backend *b, int end)
{
    int p = 1024;
    while (p < end) {
        p *= 2;
    }
    return p < b->ctx ? p : b->ctx;
}

static void list_clear(struct backend *b)
{
    struct cuda_op *op = b->list.op;
    b->list = (struct cuda_list){.op = op};
}

int cuda_flush(struct backend *b, struct err *e)
{
    if (b->list.n == 0) {
        return 0;
    }
    struct cuda_list l = b->list;
    l.outs = l.outs ? bucket(l.outs) : 0;
    l.saves = l.saves ? bucket(l.saves) : 0;
    int rc = cuda_block_send(b, &b->dec, e);
    if (rc == 0) {
        b->doing = "in a decode step";
        int status = b->cu.leave_out ? cuda_run_only(b, &l) : cuda_graphs_run(b, &l);
        rc = status ? cuda_fail(b, status, e) : 0;
        struct cuda_op *op = b->last.op;
        memcpy(op, l.op, (size_t)l.n * sizeof *op);
        b->last = l;
        b->last.op = op;
    }
    list_clear(b);
    return rc;
}

int cuda_finish(struct backend *b, struct err *e)
{
    int rc = cuda_flush(b, e);
    if (rc < 0) {
        return rc;
    }
    int status = rt_sync(b->rt);
    return status ? cuda_fail(b, status, e) : 0;
}

/* The list has room for another operation, and a stage of tables to write to. */
static int list_ready(struct backend *b, struct err *e)
{
    int rc = 0;
    if (b->list.n == b->list_cap) {
        rc = cuda_flush(b, e);
    }
    if (rc == 0 && !b->list.open) {
        list_clear(b);
        rc = cuda_block_begin(b, &b->dec, e);
        b->list.open = rc == 0;
    }
    return rc;
}

static int append(struct backend *b, enum cuda_op_kind kind, int layer, struct err *e)
{
    int rc = list_ready(b, e);
    if (rc == 0) {
        b->list.op[b->list.n++] = (struct cuda_op){
            .kind = (uint8_t)kind, .batch = (uint8_t)b->batch, .layer = (int16_t)layer};
    }
    return rc;
}

/* An operation of the batch: written down, or run when it is a prefill. */
static int batch_op(struct backend *b, enum cuda_op_kind kind, int layer, struct err *e)
{
    if (b->mode != BE_PREFILL) {
        if (!b->list.open || (b->list.n == 0 && kind != OP_EMBED && kind != OP_MTP_EMBED)) {
            return err_set(e, QE_INTERNAL, "the decode pass was interrupted");
        }
        return append(b, kind, layer, e);
    }
    const int before = b->cu.launches;
    b->doing = "in a prefill";
    int status =
        cuda_prefill_op(b, (struct cuda_op){.kind = (uint8_t)kind, .layer = (int16_t)layer});
    b->count.kernels += (uint64_t)(b->cu.launches - before);
    return status ? cuda_fail(b, status, e) : 0;
}

/* ---- the batch ---- */

static void take_batch(struct backend *b, const struct be_batch *t)
{
    b->mode = t->mode;
    b->n_rows = t->n_rows;
    b->n_spans = t->n_spans;
    b->flipped = false;
    memcpy(b->span, t->spans, (size_t)t->n_spans * sizeof *b->span);
    b->begun = true;
}

/* Begins a batch; with `more`, beside the one that the list holds. */
static int begin(struct backend *b, const struct be_batch *t, const int32_t *source, bool more,
                 struct err *e)
{
    const bool step = t->mode != BE_PREFILL;
    b->begun = b->held = false;
    int rc = be_check_batch(&b->shape, t, b->slots, b->pages, b->max_rows, e);
    int end = 0;
    for (int i = 0; i < t->n_spans && rc == 0; i++) {
        const int to = t->spans[i].pos + t->spans[i].n;
        end = to > end ? to : end;
        if (step && t->spans[i].n > b->width) {
            rc = err_set(e, QE_INTERNAL, "span %d: %d rows in a step; at most %d", i, t->spans[i].n,
                         b->width);
        } else if (to > b->ctx) {
            rc = err_set(e, QE_INTERNAL, "span %d: positions up to %d of a window of %d", i, to,
                         b->ctx);
        }
    }
    if (rc < 0) {
        return rc;
    }
    const bool folds = b->list.n > 0 && b->list.op[0].kind == OP_FOLD;
    const bool beside =
        more && step && (b->list.n_batches == 1 || (b->list.n_batches == 0 && folds));
    if (!beside) {
        rc = cuda_flush(b, e);
        b->list.open = false; /* a batch that was begun and not used */
    }
    struct cuda_block *k = step ? &b->dec : &b->pre;
    b->batch = beside ? b->list.n_batches : 0;
    if (rc == 0 && step) {
        rc = list_ready(b, e);
    } else if (rc == 0) {
        rc = cuda_block_begin(b, k, e);
    }
    rc = rc < 0 ? rc : cuda_block_batch(b, k, b->batch, t, source, e);
    if (rc == 0 && step) {
        const int depth = depth_bucket(b, end);
        b->list.batch[b->batch] = (struct cuda_bounds){
            beside && folds && b->batch == 0 ? coarse(t->n_rows) : bucket(t->n_rows),
            bucket(t->n_spans), (int32_t)t->mode};
        b->list.n_batches = b->batch + 1;
        b->list.depth = depth > b->list.depth ? depth : b->list.depth;
    } else if (rc == 0) {
        rc = cuda_block_send(b, k, e);
    }
    if (rc == 0) {
        take_batch(b, t);
    }
    return rc;
}

static int check_begun(const struct backend *b, const char *op, struct err *e)
{
    return b->begun ? 0 : err_set(e, QE_INTERNAL, "%s without a batch", op);
}

static int op_begin(struct backend *b, const struct be_batch *t, struct err *e)
{
    return begin(b, t, NULL, false, e);
}

static int op_embed(struct backend *b, struct err *e)
{
    int rc = check_begun(b, "embed", e);
    return rc < 0 ? rc : batch_op(b, OP_EMBED, 0, e);
}

/* The other convolution state of the batch's slots is the current one. */
static void flip(struct backend *b)
{
    for (int i = 0; i < b->n_spans; i++) {
        b->parity[b->span[i].slot] ^= 1;
    }
}

static int op_gdn(struct backend *b, int layer, struct err *e)
{
    int rc = check_begun(b, "gdn", e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers || b->attention[layer]) {
        return err_set(e, QE_INTERNAL, "layer %d is not a DeltaNet layer", layer);
    }
    rc = batch_op(b, OP_GDN, layer, e);
    if (rc == 0 && !b->flipped && b->mode != BE_VERIFY) {
        flip(b);
        b->flipped = true;
    }
    return rc;
}

static int op_attention(struct backend *b, int layer, struct err *e)
{
    int rc = check_begun(b, "attention", e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers || !b->attention[layer]) {
        return err_set(e, QE_INTERNAL, "layer %d is not an attention layer", layer);
    }
    return batch_op(b, OP_ATTENTION, layer, e);
}

static int op_ffn(struct backend *b, int layer, struct err *e)
{
    int rc = check_begun(b, "ffn", e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers) {
        return err_set(e, QE_INTERNAL, "no layer %d", layer);
    }
    return batch_op(b, OP_FFN, layer, e);
}

static int op_final_norm(struct backend *b, struct err *e)
{
    int rc = check_begun(b, "final_norm", e);
    rc = rc < 0 ? rc : batch_op(b, OP_FINAL, 0, e);
    if (rc == 0) {
        b->h_rows = b->n_rows;
        b->held = b->mode == BE_VERIFY;
    }
    return rc;
}

/* ---- accepting rows of a held batch ---- */

static int op_fold(struct backend *b, const int32_t *accepted, struct err *e)
{
    if (!b->held) {
        return err_set(e, QE_INTERNAL, "there is no batch whose rows could be accepted");
    }
    for (int i = 0; i < b->n_spans; i++) {
        if (accepted[i] < 0 || accepted[i] > b->span[i].n) {
            return err_set(e, QE_INTERNAL, "%d rows accepted of %d", accepted[i], b->span[i].n);
        }
    }
    int rc = b->n_gdn > 0 ? append(b, OP_FOLD, 0, e) : 0;
    if (rc == 0 && b->n_gdn > 0) {
        cuda_block_fold(b, &b->dec, accepted);
        b->list.fold =
            (struct cuda_bounds){coarse(b->n_rows), bucket(b->n_spans), (int32_t)BE_VERIFY};
        flip(b);
    }
    b->held = b->held && rc < 0;
    return rc;
}

/* ---- results ---- */

/* How many outputs each group of CU_ROWS has. */
static void put_out_counts(struct backend *b, int n)
{
    int32_t *count = (int32_t *)(b->dec.host + b->dec.out_count);
    for (int g = 0; g < CUDA_MAX_OUT / CU_ROWS; g++) {
        const int left = n - g * CU_ROWS;
        count[2 * g] = left < 0 ? 0 : left < CU_ROWS ? left : CU_ROWS;
    }
}

/* Which output each row of a decode batch is; false when that is no function. */
static bool put_out_of(struct backend *b, const int32_t *rows, int n)
{
    int32_t *out_of = (int32_t *)(b->dec.host + b->dec.out_of);
    bool spread = n <= CU_ROWS && b->mode != BE_PREFILL;
    for (int r = 0; r < CU_ROWS; r++) {
        out_of[r] = -1;
    }
    for (int i = 0; i < n && spread; i++) {
        spread = rows[i] < CU_ROWS && out_of[rows[i]] < 0;
        if (spread) {
            out_of[rows[i]] = i;
        }
    }
    return spread;
}

/* Logits of rows of h or m, in groups of CU_ROWS. */
static int head(struct backend *b, enum cuda_op_kind kind, int have, const int32_t *rows, int n,
                struct err *e)
{
    int rc = be_check_rows(rows, n, have, b->max_out, e);
    if (rc == 0 && b->list.outs > 0) {
        rc = cuda_flush(b, e); /* the tables hold one head call's rows */
    }
    if (rc == 0) {
        b->n_out = n;
    }
    if (rc < 0 || n == 0) {
        return rc;
    }
    for (int g = 0; g * CU_ROWS < n && rc == 0; g++) {
        rc = append(b, kind, g, e);
    }
    if (rc < 0) {
        return rc;
    }
    put_out_counts(b, n);
    memcpy(b->dec.host + b->dec.out_rows, rows, (size_t)n * sizeof *rows);
    b->list.spread = put_out_of(b, rows, n);
    b->list.outs = n;
    return 0;
}

static int op_head(struct backend *b, const int32_t *rows, int n, struct err *e)
{
    return head(b, b->fast && b->p_copy ? OP_FAST_HEAD : OP_HEAD, b->h_rows, rows, n, e);
}

static void op_fast_head(struct backend *b, bool on)
{
    b->fast = on;
}

static int op_mtp_head(struct backend *b, const int32_t *rows, int n, struct err *e)
{
    return head(b, OP_MTP_HEAD, b->m_rows, rows, n, e);
}

/* The likeliest ids, found on the device; their margins where they are wanted. */
static int likeliest(struct backend *b, int n, int32_t *ids, float *margins, struct err *e)
{
    if (b->list.outs == 0) { /* the head ran already: its tables are gone */
        int rc = list_ready(b, e);
        if (rc < 0) {
            return rc;
        }
        put_out_counts(b, b->n_out);
        b->list.outs = b->n_out;
    }
    int rc = append(b, OP_ARGMAX, 0, e);
    rc = rc < 0 ? rc : cuda_flush(b, e);
    if (rc < 0) {
        return rc;
    }
    const size_t bytes = (size_t)n * sizeof *ids;
    int status = rt_download(b->rt, b->host_ids, b->ids,
                             margins ? CUDA_MAX_OUT * sizeof *ids + bytes : bytes);
    rc = status ? cuda_fail(b, status, e) : cuda_finish(b, e);
    if (rc == 0) {
        memcpy(ids, b->host_ids, bytes);
    }
    if (rc == 0 && margins) {
        memcpy(margins, b->host_ids + CUDA_MAX_OUT, bytes);
    }
    return rc;
}

static int op_sample(struct backend *b, const struct be_sample *s, int n, int32_t *ids,
                     struct err *e)
{
    if (n < 0 || n > b->n_out) {
        return err_set(e, QE_INTERNAL, "%d draws from %d rows of logits", n, b->n_out);
    }
    bool greedy = true;
    for (int i = 0; i < n; i++) {
        greedy = greedy && sample_is_greedy(&s[i]) && sample_is_plain(&s[i]);
    }
    if (n == 0) {
        return 0;
    }
    if (greedy) {
        return likeliest(b, n, ids, NULL, e);
    }
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i += CU_ROWS) {
        rc = cuda_draw(b, i, s + i, n - i < CU_ROWS ? n - i : CU_ROWS, ids + i, e);
    }
    return rc;
}

static int op_best(struct backend *b, int n, int32_t *ids, float *margins, struct err *e)
{
    if (n < 0 || n > b->n_out) {
        return err_set(e, QE_INTERNAL, "%d choices from %d rows of logits", n, b->n_out);
    }
    return n > 0 ? likeliest(b, n, ids, margins, e) : 0;
}

static int read_row(struct backend *b, const float *from, size_t n, float *out, struct err *e)
{
    int rc = cuda_flush(b, e);
    if (rc < 0) {
        return rc;
    }
    int status = rt_download(b->rt, out, from, n * sizeof *out);
    return status ? cuda_fail(b, status, e) : cuda_finish(b, e);
}

static int op_read_logits(struct backend *b, int i, float *out, struct err *e)
{
    if (i < 0 || i >= b->n_out) {
        return err_set(e, QE_INTERNAL, "logits row %d of %d", i, b->n_out);
    }
    int rc = read_row(b, b->logits + (size_t)i * b->logits_ld, (size_t)b->shape.vocab_used, out, e);
    for (int id = b->shape.vocab_used; id < b->shape.vocab && rc == 0; id++) {
        out[id] = -INFINITY;
    }
    return rc;
}

static int op_read_hidden(struct backend *b, int row, float *out, struct err *e)
{
    int32_t r = row;
    int rc = be_check_rows(&r, 1, b->h_rows, CUDA_MAX_OUT, e);
    const size_t hidden = (size_t)b->shape.hidden;
    return rc < 0 ? rc : read_row(b, b->h + (size_t)row * hidden, hidden, out, e);
}

/* ---- MTP ---- */

static int op_hidden_save(struct backend *b, int row, int slot, struct err *e)
{
    int32_t r = row;
    int rc = be_check_slot(b->slots, slot, e);
    rc = rc < 0 ? rc : be_check_rows(&r, 1, b->h_rows, CUDA_MAX_OUT, e);
    if (rc == 0 && b->list.saves == CU_ROWS) {
        rc = cuda_flush(b, e);
    }
    if (rc == 0 && b->list.saves == 0) { /* one kernel saves all that follow */
        rc = append(b, OP_SAVE, 0, e);
    } else if (rc == 0 && b->list.op[b->list.n - 1].kind != OP_SAVE) {
        rc = cuda_flush(b, e);
        rc = rc < 0 ? rc : append(b, OP_SAVE, 0, e);
    }
    if (rc < 0) {
        return rc;
    }
    const int i = b->list.saves++;
    ((int32_t *)(b->dec.host + b->dec.save_row))[i] = row;
    ((int32_t *)(b->dec.host + b->dec.save_slot))[i] = slot;
    ((int32_t *)(b->dec.host + b->dec.save_count))[0] = i + 1;
    return 0;
}

static int op_mtp_embed(struct backend *b, const struct be_batch *batch, const int32_t *source,
                        struct err *e)
{
    if (!b->shape.mtp) {
        return err_set(e, QE_UNSUPPORTED, "the model has no MTP layer");
    }
    for (int i = 0; i < batch->n_rows; i++) {
        const bool chained = source[i] <= BE_H_CHAIN;
        if (chained ? cuda_chain_row(i, source[i]) >= b->m_rows
                    : source[i] != BE_H_SLOT && source[i] >= b->h_rows) {
            b->begun = false;
            return err_set(e, QE_INTERNAL, "row %d has no hidden state %d", i, source[i]);
        }
    }
    int rc = begin(b, batch, source, true, e);
    return rc < 0 ? rc : batch_op(b, OP_MTP_EMBED, 0, e);
}

static int op_mtp_layer(struct backend *b, bool kv_only, struct err *e)
{
    int rc = check_begun(b, "mtp_layer", e);
    if (rc == 0 && !b->shape.mtp) {
        rc = err_set(e, QE_UNSUPPORTED, "the model has no MTP layer");
    }
    rc = rc < 0 ? rc : batch_op(b, kv_only ? OP_MTP_KV : OP_MTP_LAYER, b->shape.layers, e);
    if (rc == 0) {
        b->m_rows = kv_only ? 0 : b->n_rows;
    }
    return rc;
}

/* ---- figures ---- */

static const char *op_describe(const struct backend *b)
{
    return b->describe;
}

static void op_counters(const struct backend *b, struct be_counters *out)
{
    *out = b->count;
}

static void op_phases(const struct backend *b, struct phases *out)
{
    phases_append(out, &b->start);
}

static int op_bandwidth(struct backend *b, size_t bytes, double *read, double *copy, struct err *e)
{
    int rc = cuda_finish(b, e);
    if (rc < 0) {
        return rc;
    }
    b->doing = "measuring the memory";
    int status = cuda_bandwidth(b->rt, &b->cu, bytes, read, copy);
    return status ? cuda_fail(b, status, e) : 0;
}

static int op_upload_time(struct backend *b, uint64_t bytes, double *seconds, struct err *e)
{
    int rc = cuda_finish(b, e);
    if (rc < 0) {
        return rc;
    }
    b->doing = "copying to the device";
    int status = cuda_upload_time(b, bytes, seconds);
    return status ? cuda_fail(b, status, e) : 0;
}

static int op_outputs(const struct backend *b)
{
    return b->max_out;
}

const struct be_ops *backend_cuda(void)
{
    static const struct be_ops ops = {
        .name = "cuda",
        .open = cuda_open,
        .close = cuda_close,
        .plan = cuda_plan,
        .counters = op_counters,
        .phases = op_phases,
        .bandwidth = op_bandwidth,
        .upload_time = op_upload_time,
        .only = cuda_only,
        .again = cuda_again,
        .peak = cuda_peak,
        .describe = op_describe,
        .begin = op_begin,
        .embed = op_embed,
        .gdn = op_gdn,
        .attention = op_attention,
        .ffn = op_ffn,
        .final_norm = op_final_norm,
        .head = op_head,
        .fast_head = op_fast_head,
        .sample = op_sample,
        .max_out = CUDA_MAX_OUT,
        .outputs = op_outputs,
        .best = op_best,
        .fold = op_fold,
        .hidden_save = op_hidden_save,
        .mtp_embed = op_mtp_embed,
        .mtp_layer = op_mtp_layer,
        .mtp_head = op_mtp_head,
        .read_logits = op_read_logits,
        .read_hidden = op_read_hidden,
        .state_size = cuda_state_size,
        .page_size = cuda_page_size,
        .state_reset = cuda_state_reset,
        .state_copy = cuda_state_copy,
        .state_export = cuda_state_export,
        .state_import = cuda_state_import,
        .page_copy = cuda_page_copy,
        .page_export = cuda_page_export,
        .page_trim = cuda_page_trim,
        .page_import = cuda_page_import,
        .host_alloc = cuda_host_alloc,
        .host_free = cuda_host_free,
        .state_at = cuda_state_at,
        .page_at = cuda_page_at,
        .settle = cuda_finish,
        .lane_open = cuda_lane_open,
        .lane_close = cuda_lane_close,
        .lane_buffer = cuda_lane_buffer,
        .lane_put = cuda_lane_put,
        .lane_get = cuda_lane_get,
        .lane_wait = cuda_lane_wait,
        .page_fill = cuda_page_fill,
        .read_gdn = cuda_read_gdn,
        .read_kv = cuda_read_kv,
    };
    return &ops;
}
