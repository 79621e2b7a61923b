/* Memory bandwidth, the yardstick of decode speed. */
#include "config.h"
#include "cmd/bandwidth.h"

#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define PASSES 9

/* Two accumulators of a cache line each: enough additions in flight that the
 * loads are what is measured. */
typedef uint64_t line __attribute__((vector_size(64)));

static uint64_t sum_words(const uint64_t *p, size_t n)
{
    line a = {0}, b = {0};
    for (size_t i = 0; i + 16 <= n; i += 16) {
        line x, y;
        memcpy(&x, p + i, sizeof x);
        memcpy(&y, p + i + 8, sizeof y);
        a += x;
        b += y;
    }
    a += b;
    uint64_t s = 0;
    for (int k = 0; k < 8; k++) {
        s += a[k];
    }
    return s;
}

struct bandwidth bandwidth_measure(size_t bytes, int threads)
{
    const int team = threads > 0 ? threads : omp_get_num_procs();
    const size_t words = bytes / 2 / sizeof(uint64_t) / (size_t)team * (size_t)team;
    /* One block in two halves: read both, or copy one to the other. */
    uint64_t *block = mem_aligned(2 * words * sizeof *block);
    double best_read = 1e30, best_copy = 1e30;
    volatile uint64_t keep = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t total = 0;
        int64_t t0 = clock_now(clock_real());
#pragma omp parallel num_threads(team) reduction(+ : total)
        {
            size_t share = 2 * words / (size_t)team, at = share * (size_t)omp_get_thread_num();
            total += sum_words(block + at, share);
        }
        int64_t t1 = clock_now(clock_real());
#pragma omp parallel num_threads(team)
        {
            size_t share = words / (size_t)team, at = share * (size_t)omp_get_thread_num();
            memcpy(block + words + at, block + at, share * sizeof *block);
        }
        int64_t t2 = clock_now(clock_real());
        keep += total;
        double read = clock_seconds(t1 - t0), copy = clock_seconds(t2 - t1);
        best_read = read < best_read ? read : best_read;
        best_copy = copy < best_copy ? copy : best_copy;
    }
    free(block);
    double moved = (double)(2 * words * sizeof *block) / 1e9;
    return (struct bandwidth){moved / best_read, moved / best_copy};
}
