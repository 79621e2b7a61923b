/* Drawing by temperature or with rules: the settings of up to CU_ROWS rows, their edits
 * and masks go to the device in one copy, one launch draws, the ids come back. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "kernels/cuda/host.h"
#include "kernels/sample.h"

/* Where the parts of an upload lie; all in bytes. */
struct parts {
    size_t row, edit, mask, size;
};

static size_t mask_words(const struct backend *b)
{
    return ((size_t)b->shape.vocab_used + 31) / 32;
}

/* The rows of a verified draft have one list. */
static bool shares_edits(const struct be_sample *s, int i)
{
    return i > 0 && s[i].edit == s[i - 1].edit && s[i].n_edit == s[i - 1].n_edit;
}

static struct parts parts_of(const struct backend *b, const struct be_sample *s, int n)
{
    size_t edits = 0, masks = 0;
    for (int i = 0; i < n; i++) {
        edits += (shares_edits(s, i) ? 0 : (size_t)s[i].n_edit) + (size_t)s[i].n_over;
        masks += s[i].allow ? mask_words(b) : 0;
    }
    struct parts p = {.row = 64}; /* after the count */
    p.edit = p.row + CU_ROWS * sizeof(struct cu_sample_row);
    p.mask = p.edit + edits * sizeof(struct be_edit);
    p.size = p.mask + masks * sizeof(uint32_t);
    return p;
}

/* Room for an upload, on both sides; grows now and then, with the prompts. */
static int make_room(struct backend *b, size_t size, struct err *e)
{
    if (size <= b->draw_size) {
        return 0;
    }
    size_t want = b->draw_size ? b->draw_size : 1 << 16;
    while (want < size) {
        want *= 2;
    }
    cuda_draw_close(b);
    void *host = NULL, *device = NULL;
    b->doing = "making room for the settings of draws";
    int status = rt_pin(b->rt, want, &host);
    status = status ? status : rt_alloc(b->rt, want, &device);
    if (status) {
        rt_unpin(b->rt, host);
        return cuda_fail(b, status, e);
    }
    b->draw_host = host;
    b->draw_device = device;
    b->draw_size = want;
    return 0;
}

void cuda_draw_close(struct backend *b)
{
    rt_unpin(b->rt, b->draw_host);
    rt_free(b->rt, b->draw_device);
    b->draw_host = b->draw_device = NULL;
    b->draw_size = 0;
}

static int32_t put_edits(struct be_edit *to, int32_t *used, const struct be_edit *from, int n)
{
    const int32_t at = *used;
    if (n > 0) {
        memcpy(to + at, from, (size_t)n * sizeof *to);
    }
    *used += n;
    return at;
}

static void fill(const struct backend *b, const struct be_sample *s, int n, const struct parts *p)
{
    uint8_t *host = b->draw_host;
    struct cu_sample_row *row = (struct cu_sample_row *)(host + p->row);
    struct be_edit *edit = (struct be_edit *)(host + p->edit);
    uint32_t *mask = (uint32_t *)(host + p->mask);
    int32_t edits = 0, masks = 0;
    *(int32_t *)host = n;
    for (int i = 0; i < n; i++) {
        row[i] = (struct cu_sample_row){
            .seed = s[i].seed,
            .temp = s[i].temp,
            .top_p = s[i].top_p,
            .log_min_p = s[i].min_p > 0 ? sample_log_min_p(s[i].min_p) : -INFINITY,
            .top_k = s[i].top_k > 0 ? s[i].top_k : 0,
            .pos = s[i].pos,
            .repetition = s[i].repetition,
            .frequency = s[i].frequency,
            .presence = s[i].presence,
            .n_edit = s[i].n_edit,
            .n_over = s[i].n_over,
            .allow = -1,
        };
        row[i].edit =
            shares_edits(s, i) ? row[i - 1].edit : put_edits(edit, &edits, s[i].edit, s[i].n_edit);
        row[i].over = put_edits(edit, &edits, s[i].over, s[i].n_over);
        if (s[i].allow) {
            row[i].allow = masks;
            memcpy(mask + masks, s[i].allow, mask_words(b) * sizeof *mask);
            masks += (int32_t)mask_words(b);
        }
    }
}

int cuda_draw(struct backend *b, int first, const struct be_sample *s, int n, int32_t *ids,
              struct err *e)
{
    const struct parts p = parts_of(b, s, n);
    int rc = cuda_flush(b, e);
    rc = rc < 0 ? rc : make_room(b, p.size, e);
    if (rc < 0) {
        return rc;
    }
    fill(b, s, n, &p);
    const uint8_t *device = b->draw_device;
    int looks = 0;
    for (int i = 0; i < n; i++) {
        const int more = cu_sample_looks(&s[i], b->shape.vocab_used);
        looks = more > looks ? more : looks;
    }
    const struct cu_sample a = {
        .logits = b->logits + (size_t)first * b->logits_ld,
        .ld = b->logits_ld,
        .used = b->shape.vocab_used,
        .n = (const int32_t *)device,
        .max_n = n,
        .row = (const struct cu_sample_row *)(device + p.row),
        .edit = (const struct be_edit *)(device + p.edit),
        .mask = (const uint32_t *)(device + p.mask),
        .work = b->sample_work,
        .ids = b->ids,
        .looks = looks,
    };
    b->doing = "drawing";
    int status = rt_upload(b->rt, b->draw_device, b->draw_host, p.size);
    status = status ? status : cu_sample(&b->cu, &a);
    status = status ? status : rt_download(b->rt, b->host_ids, b->ids, (size_t)n * sizeof *ids);
    rc = status ? cuda_fail(b, status, e) : cuda_finish(b, e);
    if (rc == 0) {
        memcpy(ids, b->host_ids, (size_t)n * sizeof *ids);
    }
    return rc;
}
