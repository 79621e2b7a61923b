/* What goes into the device's memory and how much of the cache fits beside it. */
#include "config.h"
#include "kernels/cuda/plan.h"

#include <stdio.h>

#define MIB ((uint64_t)1 << 20)

int cuda_plan_step_kernels(int layers)
{
    return layers * 5 + 20;
}

/* A graph's memory goes by its kernels; before Hopper each takes about three times as
 * much. */
static uint64_t graph_bytes(const struct cuda_needs *n)
{
    const uint64_t node = n->cc < 90 ? 160 << 10 : 56 << 10;
    return (uint64_t)n->graphs * (uint64_t)cuda_plan_step_kernels(n->layers) * node;
}

/* Left for the driver, for products' scratch, and on cards that draw a screen. */
static uint64_t margin_bytes(const struct cuda_needs *n)
{
    const uint64_t fixed = n->cc == 80 || n->cc == 90 || n->cc == 100 ? 256 * MIB : 448 * MIB;
    return fixed + n->free / 100;
}

void cuda_plan_make(const struct cuda_needs *n, struct be_plan *out)
{
    *out = (struct be_plan){.free = n->free,
                            .weights = n->weights,
                            .states = n->slot * (uint64_t)n->slots,
                            .page = n->page,
                            .work = n->work,
                            .graphs = graph_bytes(n),
                            .margin = margin_bytes(n)};
    const uint64_t rest = out->weights + out->states + out->work + out->graphs + out->margin;
    const uint64_t pages = rest < n->free ? (n->free - rest) / n->page : 0;
    out->pages = pages < (1 << 24) ? (int)pages : 1 << 24;
}

static double gb(uint64_t n)
{
    return (double)n / 1e9;
}

int cuda_plan_refuse(const struct be_plan *p, int pages, const char *doing, struct err *e)
{
    const int fits = p->pages > 1 ? (p->pages - 1) * BE_PAGE : 0;
    char remedy[160] = "try --max-draft 0, --verify-width 1, --cuda-graphs 0, fewer sequences or a "
                       "tier with fewer bits, such as q4s";
    char before[64] = "";
    if (fits > 0 && !doing) {
        snprintf(remedy, sizeof remedy,
                 "try --ctx %d, --kv fp8, --max-draft 0 or a tier with fewer bits", fits);
    } else if (fits > 0) {
        snprintf(remedy, sizeof remedy,
                 "something else has taken some of it; try a smaller --ctx than %d", fits);
    }
    if (doing) {
        snprintf(before, sizeof before, "out of memory %.40s: ", doing);
    }
    return err_set(
        e, QE_NOMEM,
        "%s%s %s %.1f GB free; this needs %.1f GB of weights + %.1f GB of KV cache for "
        "%d tokens + %.1f GB of states + %.1f GB of work memory + %.1f GB for graphs and "
        "the driver: %s",
        before, p->device, doing ? "had" : "has", gb(p->free), gb(p->weights),
        gb(p->page * (uint64_t)pages), pages * BE_PAGE, gb(p->states), gb(p->work),
        gb(p->graphs + p->margin), remedy);
}
