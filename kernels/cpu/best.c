/* The winner of a row of logits and its lead. Lanes keep their two largest; the
 * sixteen pairs are then compared one by one. */
#include "config.h"
#include "kernels/cpu/isa.h"

#include <math.h>

#include "kernels/cpu/v16.h"

/* Takes x into the two largest. */
static void take(float x, float *first, float *second)
{
    if (x > *first) {
        *second = *first;
        *first = x;
    } else if (x > *second) {
        *second = x;
    }
}

void ISA(best)(const float *x, int n, int32_t *id, float *margin)
{
    float first = -INFINITY;
    float second = -INFINITY;
    int i = 0;
    v16 one = v16_set1(-INFINITY);
    v16 two = one;
    for (; i + 16 <= n; i += 16) {
        v16 v = v16_load(x + i);
        two = v16_max(two, v16_min(one, v));
        one = v16_max(one, v);
    }
    float lane[2][16];
    v16_store(lane[0], one);
    v16_store(lane[1], two);
    for (int j = 0; j < 16; j++) {
        take(lane[0][j], &first, &second);
        take(lane[1][j], &first, &second);
    }
    for (; i < n; i++) {
        take(x[i], &first, &second);
    }
    int32_t at = 0;
    while (at < n - 1 && x[at] != first) {
        at++;
    }
    *id = at;
    *margin = first > second ? first - second : 0;
}
