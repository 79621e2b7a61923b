/* A 4-bit copy of an output head for files that bring none: rows are decoded and encoded
 * some at a time, so that only the copy takes memory. */
#include "config.h"
#include "engine/head.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "format/quant.h"

#define ROWS 4096 /* at a time */

static void decode(const struct tensor *t, uint64_t row, uint64_t rows, float *out)
{
    size_t data = 0, scales = 0;
    quant_at(t->dtype, row, tensor_cols(t), &data, &scales);
    quant_decode(t->dtype, (const char *)t->data + data,
                 t->scales ? (const char *)t->scales + scales : NULL, rows, tensor_cols(t), out);
}

int head_copy_make(const struct tensor *head, struct head_copy *out, struct err *e)
{
    const uint64_t rows = tensor_rows(head), cols = tensor_cols(head);
    struct head_copy h = {
        .t = {.name = "lm_head.q4.weight", .dtype = DT_Q4_G64, .n_dims = 2, .shape = {rows, cols}}};
    if (dtype_sizes(DT_Q4_G64, rows, cols, &h.t.size, &h.t.scale_size) < 0) {
        return err_set(e, QE_UNSUPPORTED,
                       "rows of %" PRIu64 " weights cannot be held in groups of %d: there is no "
                       "4-bit copy of the head (--draft-head full, without --fast-head)",
                       cols, dtype_group(DT_Q4_G64));
    }
    h.data = mem_alloc(h.t.size);
    h.scales = mem_alloc(h.t.scale_size);
    h.t.data = h.data;
    h.t.scales = h.scales;
    float *some = mem_array(ROWS * (size_t)cols, sizeof *some);
    int rc = 0;
    for (uint64_t row = 0; row < rows && rc == 0; row += ROWS) {
        const uint64_t n = rows - row < ROWS ? rows - row : ROWS;
        size_t data = 0, scales = 0;
        quant_at(DT_Q4_G64, row, cols, &data, &scales);
        decode(head, row, n, some);
        rc = quant_encode(DT_Q4_G64, some, n, cols, (char *)h.data + data,
                          (char *)h.scales + scales, e);
    }
    free(some);
    if (rc < 0) {
        head_copy_free(&h);
        return rc;
    }
    *out = h;
    return 0;
}

void head_copy_free(struct head_copy *h)
{
    free(h->data);
    free(h->scales);
    *h = (struct head_copy){.data = NULL};
}
