/* Runs a fuzz target without libFuzzer: every seed as it is, then mutated
 * copies from a fixed random stream, so that each run tests the same inputs.
 * Prints TAP. fuzz_seeds() is the target's own list of seed inputs.
 * QUASAR_FUZZ_RUNS sets the number of mutated inputs (default 2000; with
 * QUASAR_LONG ten times as many, or FUZZ_LONG). */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"

#ifndef FUZZ_LONG
#define FUZZ_LONG 20000UL
#endif

static uint64_t next_random(uint64_t *s)
{
    uint64_t x = *s;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *s = x;
    return x * 0x2545F4914F6CDD1DULL;
}

static const uint64_t odd_values[] = {0,         1,          0x7F,       0x80,       0xFF,
                                      0x7FFF,    0xFFFF,     0x7FFFFFFF, 0xFFFFFFFF, UINT64_MAX,
                                      INT64_MAX, 0x40000000, 65536};

/* One random change of p[0..n); returns the new length (never more than cap). */
static size_t mutate(uint8_t *p, size_t n, size_t cap, uint64_t *rng)
{
    if (n == 0) {
        p[0] = (uint8_t)next_random(rng);
        return 1;
    }
    /* Headers matter most: half of the changes hit the first 512 bytes. */
    size_t span = (next_random(rng) & 1) && n > 512 ? 512 : n;
    size_t at = next_random(rng) % span;
    switch (next_random(rng) % 8) {
    case 0: /* flip a bit */
    case 1:
        p[at] ^= (uint8_t)(1U << (next_random(rng) & 7));
        return n;
    case 2: /* a random byte */
        p[at] = (uint8_t)next_random(rng);
        return n;
    case 3: { /* a suspicious number */
        uint64_t v = odd_values[next_random(rng) % (sizeof odd_values / sizeof *odd_values)];
        size_t w = (size_t)1 << (next_random(rng) & 3);
        memcpy(p + at, &v, w < n - at ? w : n - at);
        return n;
    }
    case 4: /* cut the end off */
        return next_random(rng) % n;
    case 5: { /* remove a piece */
        size_t k = 1 + next_random(rng) % 16;
        k = k < n - at ? k : n - at;
        memmove(p + at, p + at + k, n - at - k);
        return n - k;
    }
    case 6: { /* repeat a piece */
        size_t k = 1 + next_random(rng) % 64;
        k = k < n - at ? k : n - at;
        if (n + k > cap) {
            return n;
        }
        memmove(p + at + k, p + at, n - at);
        return n + k;
    }
    default: { /* copy a piece over another */
        size_t from = next_random(rng) % n;
        size_t k = 1 + next_random(rng) % 32;
        size_t room = n - (from > at ? from : at);
        memmove(p + at, p + from, k < room ? k : room);
        return n;
    }
    }
}

int main(void)
{
    size_t n_seeds = 0;
    struct fuzz_seed *seeds = fuzz_seeds(&n_seeds);
    const char *runs_text = getenv("QUASAR_FUZZ_RUNS");
    unsigned long runs = runs_text ? strtoul(runs_text, NULL, 10) : 2000;
    if (!runs_text && getenv("QUASAR_LONG")) {
        runs = FUZZ_LONG;
    }
    uint64_t rng = 0x9E3779B97F4A7C15ULL;
    puts("1..2");
    for (size_t i = 0; i < n_seeds; i++) {
        LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].size);
    }
    printf("ok 1 - %zu seeds\n", n_seeds);
    fflush(stdout);
    for (unsigned long r = 0; r < runs && n_seeds > 0; r++) {
        const struct fuzz_seed *s = &seeds[next_random(&rng) % n_seeds];
        size_t cap = s->size + 256;
        uint8_t *p = mem_alloc(cap);
        memcpy(p, s->data, s->size);
        size_t n = s->size;
        unsigned changes = 1 + (unsigned)(next_random(&rng) % 6);
        for (unsigned k = 0; k < changes; k++) {
            n = mutate(p, n, cap, &rng);
        }
        /* an exact-size copy, so that AddressSanitizer sees reads past the end */
        uint8_t *exact = mem_alloc(n);
        memcpy(exact, p, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
        free(p);
    }
    printf("ok 2 - %lu mutated inputs\n", runs);
    for (size_t i = 0; i < n_seeds; i++) {
        free(seeds[i].data);
    }
    free(seeds);
    return 0;
}
