#ifndef QUASAR_KERNELS_CUDA_DEVICE_H
#define QUASAR_KERNELS_CUDA_DEVICE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What there is to know about one CUDA device. */
struct cuda_device_info {
    char name[256];
    int cc_major, cc_minor; /* compute capability */
    int n_sm;
    size_t mem_total, mem_free;          /* bytes */
    int driver_version, runtime_version; /* 1000 major + 10 minor */
};

/* Number of usable devices: 0 when there is no device, no driver, or no CUDA
 * in this build; why (at least 256 bytes) then says which. */
int cuda_device_count(char *why, size_t why_size);

/* Fills *out; 0 on success, -1 with the reason in why. Runs a one-thread kernel
 * on the device and checks its answer, so that an architecture this build has
 * no code for is found here and not in the first forward pass. */
int cuda_device_probe(int index, struct cuda_device_info *out, char *why, size_t why_size);

/* Begins to make a device usable (a context, some 0.1 s) on a thread of its own; what is
 * asked of the device meanwhile waits for it. NULL: not begun. woken waits for the thread,
 * as must be done before the program ends. */
struct cuda_wake;
struct cuda_wake *cuda_device_wake(int index);
void cuda_device_woken(struct cuda_wake *w);

#ifdef __cplusplus
}
#endif

#endif
