/* Root mean square norm and the gate of the feed-forward block. */
#include "config.h"
#include "kernels/cpu/isa.h"

#include <math.h>

#include "kernels/cpu/v16.h"

void ISA(norm_row)(const float *x, const float *w, float eps, int k, float *out)
{
    const int whole = k & ~15;
    v16 sum = v16_zero();
    for (int i = 0; i < whole; i += 16) {
        v16 v = v16_load(x + i);
        sum = v16_fma(v, v, sum);
    }
    if (whole < k) {
        v16 v = v16_load_part(x + whole, k - whole);
        sum = v16_fma(v, v, sum);
    }
    v16 scale = v16_set1(1 / sqrtf(v16_sum(sum) / (float)k + eps));
    for (int i = 0; i < whole; i += 16) {
        v16_store(out + i, v16_mul(v16_mul(v16_load(x + i), scale), v16_load(w + i)));
    }
    if (whole < k) {
        v16 v = v16_mul(v16_load_part(x + whole, k - whole), scale);
        v16_store_part(out + whole, v16_mul(v, v16_load_part(w + whole, k - whole)), k - whole);
    }
}

void ISA(norm)(const float *x, size_t ldx, const float *w, float eps, int rows, int k, float *out,
               size_t ldo, int tid, int nt)
{
    for (int i = tid; i < rows; i += nt) {
        ISA(norm_row)(x + (size_t)i * ldx, w, eps, k, out + (size_t)i * ldo);
    }
}

void ISA(silu_mul)(float *g, const float *u, size_t ld, int rows, int n, int tid, int nt)
{
    int first = 0;
    int end = 0;
    cpu_share(n, tid, nt, &first, &end);
    for (int r = 0; r < rows; r++) {
        float *a = g + (size_t)r * ld;
        const float *b = u + (size_t)r * ld;
        for (int i = first; i < end; i += 16) {
            if (end - i >= 16) {
                v16_store(a + i, v16_mul(v16_silu(v16_load(a + i)), v16_load(b + i)));
            } else {
                v16 s = v16_silu(v16_load_part(a + i, end - i));
                v16_store_part(a + i, v16_mul(s, v16_load_part(b + i, end - i)), end - i);
            }
        }
    }
}
