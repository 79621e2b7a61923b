/* Allocation helpers. The process ends when memory is exhausted: everything
 * durable is already on disk by then, and no caller could do better. */
#include "config.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void out_of_memory(size_t n)
{
    fprintf(stderr, "quasar: out of memory (asked for %zu bytes)\n", n);
    exit(1);
}

bool arr_size(size_t n, size_t size, size_t *out)
{
    size_t r = 0;
    if (__builtin_mul_overflow(n, size, &r)) {
        return false;
    }
    *out = r;
    return true;
}

void *mem_alloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    if (!p) {
        out_of_memory(n);
    }
    return p;
}

void *mem_zalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p) {
        out_of_memory(n);
    }
    return p;
}

void *mem_realloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);
    if (!q) {
        out_of_memory(n);
    }
    return q;
}

char *mem_strndup(const char *s, size_t n)
{
    char *p = mem_alloc(n + 1);
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

void *mem_array(size_t n, size_t size)
{
    size_t bytes = 0;
    if (!arr_size(n, size, &bytes)) {
        out_of_memory(SIZE_MAX);
    }
    return mem_zalloc(bytes);
}

void *mem_aligned(size_t n)
{
    if (n > SIZE_MAX - 64) {
        out_of_memory(n);
    }
    size_t bytes = (n + 63) / 64 * 64;
    void *p = aligned_alloc(64, bytes ? bytes : 64);
    if (!p) {
        out_of_memory(n);
    }
    memset(p, 0, bytes);
    return p;
}

uint64_t mem_available(void)
{
    uint64_t kib = (uint64_t)1 << 20;
    FILE *f = fopen("/proc/meminfo", "re");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            kib = strtoull(line + 13, NULL, 10);
        }
    }
    if (f) {
        fclose(f);
    }
    return kib * 1024;
}

uint64_t mem_resident(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    const long page = sysconf(_SC_PAGESIZE);
    if (f) {
        if (fscanf(f, "%llu %llu", &all, &resident) != 2) {
            resident = 0;
        }
        fclose(f);
    }
    return page > 0 ? resident * (uint64_t)page : 0;
}
