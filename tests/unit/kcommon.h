#ifndef QUASAR_TESTS_KCOMMON_H
#define QUASAR_TESTS_KCOMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/isa.h"
#include "kmodel.h"

/* The instruction sets of this build that this processor has. */
static inline int kernel_isas(const struct cpu_isa *out[3])
{
    static const char *const names[] = {"avx512", "avx2", "portable"};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        const struct cpu_isa *isa = cpu_isa_find(names[i], NULL);
        if (isa) {
            out[n++] = isa;
        }
    }
    return n;
}

/* n random numbers; free() releases them. */
static inline float *krand_floats(uint64_t *seed, size_t n, float amp)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[i] = krandf(seed) * amp;
    }
    return p;
}

/* |got - want| within tol * (1 + |want|); NaN fails. */
static inline void assert_close(float got, double want, double tol)
{
    double d = (double)got - want;
    double limit = tol * (1 + (want < 0 ? -want : want));
    if (!(d <= limit && -d <= limit)) {
        fail_msg("%.9g instead of %.9g (tolerance %g)", (double)got, want, tol);
    }
}

/* Paths that must agree with the first one bit for bit: all but portable C
 * without a fast fmaf. */
static inline bool exact_isa(const struct cpu_isa *isa)
{
    return strcmp(isa->name, "portable") != 0;
}

#endif
