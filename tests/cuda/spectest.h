#ifndef QUASAR_TESTS_CUDA_SPECTEST_H
#define QUASAR_TESTS_CUDA_SPECTEST_H

#include <stdint.h>

#include "engine/engine.h"

/* Opens the test's model on the CUDA backend. */
typedef struct engine *spectest_open(const struct engine_opts *tweak);

/* Verified rows that are taken back, drafts of several sequences, and text with drafts
 * beside text without: bit for bit what plain decoding gives. text: at least 256 ids. */
void spectest_run(spectest_open *open, const int32_t *text);

#endif
