/* One instruction set's table of functions. */
#include "config.h"
#include "kernels/cpu/isa.h"

#if defined(__AVX512F__)
#define TITLE "AVX-512"
#elif defined(__AVX2__)
#define TITLE "AVX2"
#else
#define TITLE "portable C"
#endif
#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

const struct cpu_isa ISA(cpu_isa) = {
    .name = STRING(CPU_ISA),
    .title = TITLE,
    .matmul = ISA(matmul),
    .silu_mul = ISA(silu_mul),
    .embed = ISA(embed),
    .norm = ISA(norm),
    .attn_append = ISA(attn_append),
    .attn = ISA(attn),
    .gdn_conv = ISA(gdn_conv),
    .gdn = ISA(gdn),
    .gdn_fold = ISA(gdn_fold),
    .best = ISA(best),
};
