#ifndef QUASAR_KERNELS_CPU_GDN_H
#define QUASAR_KERNELS_CPU_GDN_H

/* Floats of scratch: three 64 x 128 matrices and two 64 x 64. */
#define GDN_SCRATCH (3 * 64 * 128 + 2 * 64 * 64)

#endif
