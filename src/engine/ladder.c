/* Rates are exponential means. On entering a level its own figures start anew, the
 * top lane's at twice the bar that would demote it. */
#include "config.h"
#include "engine/ladder.h"

#include <stdbool.h>

#define WEIGHT       (1 / 16.0F)
#define REMEMBERED   32 /* drafts that the two rates stand on; fewer at first */
#define PRIOR        4  /* that what is assumed counts for */
#define DEMOTE       0.35F
#define DEMOTE_FIRED 0.45F
#define DEEP         6 /* from here on how often the lane fires counts too */

static void mean(float *m, bool hit, float weight)
{
    *m += weight * ((hit ? 1.0F : 0.0F) - *m);
}

static void enter(struct ladder *l, int level)
{
    l->level = level;
    l->full = 0;
    l->yield = 2 * DEMOTE;
    l->fired = 2 * DEMOTE_FIRED;
}

void ladder_init(struct ladder *l)
{
    *l = (struct ladder){.go_on = 0.95F, .right = 0.75F};
    enter(l, LADDER_LEAST);
}

static float promote_bar(int to)
{
    return to <= 5 ? 0.5F : 0.6F;
}

void ladder_observe(struct ladder *l, int ceiling, int steps, int drafted, int accepted)
{
    for (int i = 0; i < steps; i++) {
        mean(&l->go_on, i < drafted, 1 / (float)(l->seen + PRIOR));
        if (i < drafted && i <= accepted) {
            mean(&l->right, i < accepted, 1 / (float)(l->seen + PRIOR));
        }
        l->seen += l->seen < REMEMBERED - PRIOR;
    }
    if (ceiling < l->level) {
        return;
    }
    const bool fired = drafted >= l->level;
    const bool full = accepted >= l->level;
    mean(&l->full, full, WEIGHT);
    mean(&l->fired, fired, WEIGHT);
    if (fired) {
        mean(&l->yield, full, WEIGHT);
    }
    if (l->level < LADDER_MOST && l->full > promote_bar(l->level + 1)) {
        enter(l, l->level + 1);
    } else if (l->level > LADDER_LEAST &&
               (l->yield < DEMOTE || (l->level >= DEEP && l->fired < DEMOTE_FIRED))) {
        enter(l, l->level - 1);
    }
}
