#ifndef QUASAR_TESTS_CUDA_REPLAYTEST_H
#define QUASAR_TESTS_CUDA_REPLAYTEST_H

#include <stdint.h>

#include "tests/cuda/spectest.h"

/* Every decision of seeded rounds with drafts is logged on CUDA (logits, settings, what
 * was drafted, drawn and kept) and made again from the log on the CPU: the same tokens,
 * the same drafts accepted. And the text is that of plain steps. rounds: of each setting. */
void replaytest_run(spectest_open *open, const int32_t *text, int rounds);

#endif
