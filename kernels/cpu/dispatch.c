/* Which instruction set runs. */
#include "config.h"
#include "kernels/cpu/isa.h"

#include <string.h>

#include "base/err.h"
#include "kernels/cpu/attn.h"
#include "kernels/cpu/gdn.h"
#include "kernels/cpu/gemm.h"

#ifdef HAVE_X86_SIMD
static bool have_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool have_avx512(void)
{
    return have_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct cpu_isa *cpu_isa_find(const char *name, struct err *e)
{
    const bool any = !name || strcmp(name, "auto") == 0;
#ifdef HAVE_X86_SIMD
    const struct {
        const struct cpu_isa *isa;
        bool have;
    } t[] = {{&cpu_isa_avx512, have_avx512()}, {&cpu_isa_avx2, have_avx2()}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (any && t[i].have) {
            return t[i].isa;
        }
        if (!any && strcmp(name, t[i].isa->name) == 0) {
            if (!t[i].have) {
                err_set(e, QE_UNSUPPORTED,
                        "this processor does not have what the %s path needs; "
                        "choose auto, avx2 or portable",
                        t[i].isa->title);
                return NULL;
            }
            return t[i].isa;
        }
    }
#endif
    if (any || strcmp(name, "portable") == 0) {
        return &cpu_isa_portable;
    }
    err_set(e, QE_USAGE, "no instruction set \"%s\" in this build; choose auto, %sportable", name,
#ifdef HAVE_X86_SIMD
            "avx512, avx2 or "
#else
            "or "
#endif
    );
    return NULL;
}

size_t cpu_scratch_floats(int max_k)
{
    size_t n = gemm_scratch(max_k);
    n = n > ATTN_SCRATCH ? n : ATTN_SCRATCH;
    n = n > GDN_SCRATCH ? n : GDN_SCRATCH;
    return (n + 15) / 16 * 16;
}
