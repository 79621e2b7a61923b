#ifndef QUASAR_BASE_PHILOX_H
#define QUASAR_BASE_PHILOX_H

#include <stdint.h>

/*
 * Counter-based random numbers: stateless, so that resuming, batching and rolling
 * back cannot shift a stream. Inline, and valid CUDA too: both sides draw the same
 * words from the same source.
 */
#ifdef __CUDACC__
#define PHILOX_FN static __host__ __device__ __forceinline__
#else
#define PHILOX_FN static inline
#endif

/* Kinds of draws, counter word 2; see docs/sampling.md. */
enum philox_kind {
    PHILOX_TARGET = 0, /* plain, residual and bonus draws */
    PHILOX_ACCEPT = 1,
    PHILOX_DRAFT = 2,
    PHILOX_BLOCK = 3
};

#define PHILOX_STEP0 0x9E3779B9U
#define PHILOX_STEP1 0xBB67AE85U

PHILOX_FN void philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3, uint32_t k0,
                            uint32_t k1)
{
    const uint64_t a = (uint64_t)0xD2511F53U * *c0;
    const uint64_t b = (uint64_t)0xCD9E8D57U * *c2;
    *c0 = (uint32_t)(b >> 32) ^ *c1 ^ k0;
    *c2 = (uint32_t)(a >> 32) ^ *c3 ^ k1;
    *c1 = (uint32_t)b;
    *c3 = (uint32_t)a;
}

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011): four 32-bit words from a 128-bit counter and a 64-bit key. */
PHILOX_FN void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0];
    uint32_t c1 = ctr[1];
    uint32_t c2 = ctr[2];
    uint32_t c3 = ctr[3];
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    for (int r = 0; r < 10; r++) {
        philox_round(&c0, &c1, &c2, &c3, k0, k1);
        k0 += PHILOX_STEP0;
        k1 += PHILOX_STEP1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The words of vocabulary entries 4 quad .. 4 quad + 3 at absolute position pos:
 * key = seed, counter = { quad, pos, kind, 0 }. */
PHILOX_FN void philox_quad(uint64_t seed, uint32_t pos, enum philox_kind kind, uint32_t quad,
                           uint32_t out[4])
{
    const uint32_t ctr[4] = {quad, pos, (uint32_t)kind, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    philox4x32(ctr, key, out);
}

/* The word that belongs to vocabulary entry id. */
PHILOX_FN uint32_t philox_word(uint64_t seed, uint32_t pos, enum philox_kind kind, uint32_t id)
{
    uint32_t out[4];
    philox_quad(seed, pos, kind, id >> 2, out);
    return out[id & 3];
}

#endif
