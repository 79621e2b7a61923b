/* The memory plan: which backend, how long a window, how many pages and sequences; and
 * what all of it takes. A device with a memory of its own says what fits
 * (be_ops.plan); of the host's, half of what is free goes to the cache at most. */
#include "config.h"
#include "engine/engine.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/impl.h"

/* Drafts may stand behind the last token of a full window. */
static int pages_of(const struct engine *g, int ctx)
{
    return kv_pages_for(ctx + g->max_draft);
}

uint64_t plan_token_bytes(const struct be_shape *s, enum be_kv kv)
{
    uint64_t layers = s->mtp;
    for (int i = 0; i < s->layers; i++) {
        layers += s->attention[i];
    }
    return layers * be_kv_bytes(kv, s->kv_heads);
}

/* How many pages may be taken: of a device's memory all that its plan leaves, of the
 * host's half of what is free. */
static int page_budget(struct engine *g, const struct be_opts *bo, struct be_plan *plan,
                       uint64_t *pages, struct err *e)
{
    if (g->ops->plan) {
        int rc = g->ops->plan(&g->m.shape, &g->w.w, bo, plan, e);
        *pages = rc == 0 ? (uint64_t)plan->pages : 0;
        return rc;
    }
    uint64_t page = plan_token_bytes(&g->m.shape, g->kv_format) * BE_PAGE;
    *pages = page ? mem_available() / 2 / page : 1 << 20;
    return 0;
}

/* The window: what was asked for, within the model's; automatically, what the budget
 * holds. whole: all of it fits. All sequences together get up to the budget too, and never less
 * than one full window. */
static int choose_pages(struct engine *g, const struct engine_opts *o, struct be_opts *bo,
                        struct be_plan *plan, bool *whole, struct err *e)
{
    if (o->ctx < 0 || o->ctx > g->m.ctx_max) {
        return err_set(e, QE_USAGE, "a window of %d tokens was asked for; the model's limit is %d",
                       o->ctx, g->m.ctx_max);
    }
    g->ctx = o->ctx ? o->ctx : g->m.ctx_max;
    uint64_t budget = 0;
    bo->ctx = g->ctx + g->max_draft;
    int rc = page_budget(g, bo, plan, &budget, e);
    if (rc < 0) {
        return rc;
    }
    /* A device keeps its states for good: few of them where memory is short. */
    while (g->ops->plan && o->slots == 0 && bo->slots > 2 && plan->states > plan->free / 8) {
        bo->slots /= 2;
        rc = page_budget(g, bo, plan, &budget, e);
        if (rc < 0) {
            return rc;
        }
    }
    *whole = (uint64_t)pages_of(g, g->ctx) <= budget;
    if (o->ctx == 0 && !*whole) {
        g->ctx = budget > 2 ? (int)(budget - 1) * BE_PAGE : BE_PAGE;
        bo->ctx = g->ctx + g->max_draft;
    }
    uint64_t most = (uint64_t)bo->slots * (uint64_t)pages_of(g, g->ctx);
    uint64_t least = (uint64_t)pages_of(g, g->ctx);
    uint64_t n = most < budget ? most : budget;
    if (o->cache > 0 && (uint64_t)kv_pages_for(o->cache) < n) {
        n = (uint64_t)kv_pages_for(o->cache);
    }
    n = n > least ? n : least;
    bo->pages = n < (1 << 24) ? (int)n : 1 << 24;
    return 0;
}

static enum be_kv format_of(enum engine_kv kv)
{
    switch (kv) {
    case EKV_F32:
        return BE_KV_F32;
    case EKV_F8:
        return BE_KV_F8;
    case EKV_K8V4:
        return BE_KV_K8V4;
    case EKV_K5V3:
        return BE_KV_K5V3;
    case EKV_K3V3:
        return BE_KV_K3V3;
    case EKV_AUTO:
    case EKV_F16:
        break;
    }
    return BE_KV_F16;
}

/* The cache's format, then its pages. Automatically the first format in which one full
 * window (the one asked for, or the model's) fits; where none does, the last, and what it
 * holds. fp8 is passed over on a device that has no instruction for it. */
static int choose_format(struct engine *g, const struct engine_opts *o, struct be_opts *bo,
                         struct be_plan *plan, struct err *e)
{
    static const enum be_kv by_width[] = {BE_KV_F16, BE_KV_F8, BE_KV_K8V4, BE_KV_K5V3};
    const size_t n = o->kv == EKV_AUTO ? sizeof by_width / sizeof *by_width : 1;
    const int slots = bo->slots;
    for (size_t i = 0; i < n; i++) {
        const enum be_kv kv = o->kv == EKV_AUTO ? by_width[i] : format_of(o->kv);
        if (kv == BE_KV_F8 && n > 1 && g->ops->plan && !plan->fp8) {
            continue;
        }
        g->kv_format = bo->kv = kv;
        bo->slots = slots;
        bool whole = false;
        int rc = choose_pages(g, o, bo, plan, &whole, e);
        if (rc < 0 || whole) {
            return rc;
        }
    }
    return 0;
}

static uint64_t used(const struct be_plan *p, int pages)
{
    return p->weights + p->states + p->work + p->graphs + p->page * (uint64_t)pages;
}

/* What other options would leave free in addition. */
static int saved(struct engine *g, const struct be_shape *shape, const struct be_opts *other,
                 uint64_t now, uint64_t *out, struct err *e)
{
    struct be_plan p;
    int rc = g->ops->plan(shape, &g->w.w, other, &p, e);
    if (rc == 0) {
        const uint64_t then = used(&p, other->pages);
        *out = now > then ? now - then : 0;
    }
    return rc;
}

/* The plan of what was chosen, and what each cap at its least would save. */
static int on_device(struct engine *g, const struct be_opts *bo, struct engine_plan *out,
                     struct err *e)
{
    struct be_plan p;
    int rc = g->ops->plan(&g->m.shape, &g->w.w, bo, &p, e);
    if (rc < 0) {
        return rc;
    }
    const uint64_t all = used(&p, bo->pages);
    memcpy(out->device, p.device, sizeof out->device);
    out->free = p.free;
    out->weights = p.weights;
    out->states = p.states;
    out->work = p.work;
    out->graphs = p.graphs;
    out->margin = p.margin;
    out->page = p.page;
    out->kv = p.page * (uint64_t)bo->pages;
    out->left = p.free > all ? p.free - all : 0;
    out->missing = all + p.margin > p.free ? all + p.margin - p.free : 0;
    struct be_opts other = *bo;
    other.width = 1;
    rc = saved(g, &g->m.shape, &other, all, &out->save_width, e);
    other = *bo;
    other.graphs = 0;
    rc = rc < 0 ? rc : saved(g, &g->m.shape, &other, all, &out->save_graphs, e);
    if (rc == 0 && g->mtp) {
        struct be_shape plain = g->m.shape;
        plain.mtp = false;
        other = *bo;
        other.ctx = g->ctx;
        rc = saved(g, &plain, &other, all, &out->save_draft, e);
    }
    return rc;
}

static uint64_t bytes(const struct tensor *t)
{
    return t->size + t->scale_size;
}

static void on_host(const struct engine *g, const struct be_opts *bo, struct engine_plan *out)
{
    const struct be_weights *w = &g->w.w;
    out->free = mem_available();
    out->weights = g->w.step_bytes;
    const struct tensor *draft = w->head_copy.data ? &w->head_copy : &w->head;
    const struct tensor *step = g->fast ? draft : &w->head;
    out->weights += bytes(&w->head) + bytes(&w->head_copy) - bytes(step);
    out->weights += g->mtp ? g->w.draft_bytes - bytes(draft) : 0;
    out->weights += w->embed.data != w->head.data ? bytes(&w->embed) : 0;
    out->page = plan_token_bytes(&g->m.shape, g->kv_format) * BE_PAGE;
    out->kv = out->page * (uint64_t)bo->pages;
}

int plan_make(struct engine *g, const struct engine_opts *o, struct be_opts *bo,
              struct engine_plan *out, struct err *e)
{
    struct be_plan plan = {.page = 0};
    g->ops = o->backend == EB_SCRIPT                  ? backend_script()
             : o->backend != EB_CPU && backend_cuda() ? backend_cuda()
                                                      : backend_cpu();
    int rc = choose_format(g, o, bo, &plan, e);
    if (rc == QE_DEVICE && o->backend == EB_AUTO) {
        g->ops = backend_cpu();
        rc = choose_format(g, o, bo, &plan, e);
    }
    if (rc < 0) {
        return rc;
    }
    *out = (struct engine_plan){.ctx = g->ctx,
                                .tokens = bo->pages * BE_PAGE,
                                .kv_format = be_kv_name(bo->kv),
                                .slots = bo->slots,
                                .n_graphs = g->ops->plan ? bo->graphs : 0,
                                .verify_width = g->width,
                                .max_draft = g->max_draft};
    if (g->ops->plan) {
        return on_device(g, bo, out, e);
    }
    on_host(g, bo, out);
    return 0;
}

static double gb(uint64_t n)
{
    return (double)n / 1e9;
}

/* What would make more room, where there is something to gain. */
static void add_savings(struct buf *b, const struct engine_plan *p)
{
    const struct {
        uint64_t n;
        const char *how;
    } t[] = {{p->save_width, "--verify-width 1"},
             {p->save_draft, "--max-draft 0"},
             {p->save_graphs, "--cuda-graphs 0"}};
    const char *before = "; less: ";
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (t[i].n > 0) {
            buf_printf(b, "%s%.2f GB by %s", before, gb(t[i].n), t[i].how);
            before = ", ";
        }
    }
}

char *plan_line(const struct engine_plan *p)
{
    struct buf b = BUF_INIT;
    if (!p->device[0]) {
        buf_printf(&b,
                   "CPU: %.2f GB of weights, up to %.2f GB of KV cache (%s) for %d tokens; %.1f "
                   "GB of memory are free",
                   gb(p->weights), gb(p->kv), p->kv_format, p->tokens, gb(p->free));
        return buf_take(&b);
    }
    buf_printf(&b,
               "%s: %.1f GB of weights, %.1f GB of KV cache (%s) for %d tokens, %.1f GB of %d "
               "states, "
               "%.2f GB of work memory (steps of %d rows of a sequence, %d drafts), %.2f GB for %d "
               "graphs; ",
               p->device, gb(p->weights), gb(p->kv), p->kv_format, p->tokens, gb(p->states),
               p->slots, gb(p->work), p->verify_width, p->max_draft, gb(p->graphs), p->n_graphs);
    if (p->missing > 0) {
        buf_printf(&b, "%.1f GB more than the %.1f GB that are free", gb(p->missing), gb(p->free));
    } else {
        buf_printf(&b, "%.1f of %.1f GB stay free", gb(p->left), gb(p->free));
    }
    add_savings(&b, p);
    return buf_take(&b);
}
