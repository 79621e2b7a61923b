/* Counter-based random numbers: stateless, so that resuming, batching and
 * rolling back cannot shift a stream. */
#include "config.h"
#include "base/philox.h"

#include <math.h>

void philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0];
    uint32_t c1 = ctr[1];
    uint32_t c2 = ctr[2];
    uint32_t c3 = ctr[3];
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    for (int r = 0; r < 10; r++) {
        uint64_t a = (uint64_t)0xD2511F53U * c0;
        uint64_t b = (uint64_t)0xCD9E8D57U * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t philox_word(uint64_t seed, uint32_t pos, enum philox_kind kind, uint32_t id)
{
    const uint32_t ctr[4] = {id >> 2, pos, (uint32_t)kind, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox4x32(ctr, key, out);
    return out[id & 3];
}

float philox_gumbel(uint32_t word)
{
    double v = ((double)word + 0.5) * 0x1p-32;
    if (v > 1.0 - 0x1p-24) {
        v = 1.0 - 0x1p-24;
    }
    return (float)-log(-log1p(-v));
}
