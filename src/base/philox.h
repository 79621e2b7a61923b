#ifndef QUASAR_BASE_PHILOX_H
#define QUASAR_BASE_PHILOX_H

#include <stdint.h>

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011): four 32-bit words from a 128-bit counter and a 64-bit key. */
void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* Kinds of draws, counter word 2; see docs/sampling.md. */
enum philox_kind {
    PHILOX_TARGET = 0, /* plain, residual and bonus draws */
    PHILOX_ACCEPT = 1,
    PHILOX_DRAFT = 2,
    PHILOX_BLOCK = 3
};

/* The word that belongs to vocabulary entry id at absolute position pos:
 * key = seed, counter = { id >> 2, pos, kind, 0 }, word id & 3. */
uint32_t philox_word(uint64_t seed, uint32_t pos, enum philox_kind kind, uint32_t id);

/* Gumbel noise of a word: v = min((w + 0.5) 2^-32, 1 - 2^-24) and
 * -ln(-log1p(-v)), evaluated in fp32 steps with a double logarithm. */
float philox_gumbel(uint32_t word);

#endif
