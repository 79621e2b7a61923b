/* Stands in for the CUDA room in a build without the toolkit. */
#include "config.h"
#include "kernels/cuda/device.h"

#include <stdio.h>

int cuda_device_count(char *why, size_t why_size)
{
    snprintf(why, why_size, "this build has no CUDA");
    return 0;
}

int cuda_device_probe(int index, struct cuda_device_info *out, char *why, size_t why_size)
{
    (void)index;
    (void)out;
    snprintf(why, why_size, "this build has no CUDA");
    return -1;
}

struct cuda_wake *cuda_device_wake(int index)
{
    (void)index;
    return NULL;
}

void cuda_device_woken(struct cuda_wake *w)
{
    (void)w;
}
