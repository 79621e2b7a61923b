#ifndef QUASAR_BASE_GPU_H
#define QUASAR_BASE_GPU_H

#include <stdint.h>

#include "base/err.h"

/*
 * What a GPU says of itself: temperature, power, memory, read through the driver's
 * management library (NVML), which is looked for at run time. A reading takes
 * milliseconds. One thread at a time.
 */
struct gpu;

/* What is not known is NaN. */
struct gpu_reading {
    double temp_c, power_w;
    double used, total; /* bytes of its memory, of all programs */
};

/* library: NULL: libnvidia-ml.so.1, as the loader finds it. QE_UNSUPPORTED: there is none, or it
 * lacks what is needed; QE_DEVICE: it found no driver. */
int gpu_open(const char *library, struct gpu **out, struct err *e);
void gpu_close(struct gpu *g); /* NULL is allowed */
/* The number that the management library gives the device which CUDA calls number index and
 * whose name its description begins with. The two count differently when CUDA_VISIBLE_DEVICES is
 * set or names differ; visible: that variable's value, or NULL. -1: it cannot be told. */
int gpu_find(struct gpu *g, const char *description, int index, const char *visible);
void gpu_read(struct gpu *g, int device, struct gpu_reading *out);

#endif
