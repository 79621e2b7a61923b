#ifndef QUASAR_TESTS_FUZZ_FUZZ_H
#define QUASAR_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* A fuzz target defines both: the entry point that libFuzzer calls too, which
 * aborts when an invariant does not hold, and its seed inputs (allocated, freed
 * by the driver). */
struct fuzz_seed {
    uint8_t *data;
    size_t size;
};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
struct fuzz_seed *fuzz_seeds(size_t *n);

#endif
