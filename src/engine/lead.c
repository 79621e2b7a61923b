/* What an MTP draft's lead over the next best token says about it: how often drafts with
 * such a lead were right, counted over all sequences. Until then it is assumed. */
#include "config.h"
#include "engine/lead.h"

#define PRIOR 8  /* drafts that what is assumed counts for */
#define MOST  64 /* … and that a rate stands on */

/* Where the steps begin. */
static const float from[LEADS] = {LEAD_LEAST, 1, 2, 3, 4, 6};

void leads_init(struct leads *l)
{
    static const float rate[LEADS] = {0.4F, 0.45F, 0.6F, 0.8F, 0.95F, 0.98F};
    for (int i = 0; i < LEADS; i++) {
        l->step[i] = (struct lead_rate){.rate = rate[i], .seen = PRIOR};
    }
}

void leads_learn(struct leads *l, float lead, bool right)
{
    int i = LEADS - 1;
    while (i >= 0 && lead < from[i]) {
        i--;
    }
    if (i >= 0) {
        struct lead_rate *r = &l->step[i];
        r->rate += ((right ? 1.0F : 0.0F) - r->rate) / (float)(r->seen + 1);
        r->seen += r->seen < MOST;
    }
}

float leads_worth(const struct leads *l, double chance)
{
    int i = 0;
    while (i < LEADS - 1 && (double)l->step[i].rate < chance) {
        i++;
    }
    return from[i];
}
