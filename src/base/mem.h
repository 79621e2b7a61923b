#ifndef QUASAR_BASE_MEM_H
#define QUASAR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocation that ends the program when memory is exhausted, with one line on
 * standard error and exit status 1.  Sizes that come from outside are checked
 * with arr_size before they get here. */
void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
void *mem_realloc(void *p, size_t n);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

/* n * size and a zeroed array of it; ends the program on overflow too. */
void *mem_array(size_t n, size_t size);

/* Memory aligned to 64 bytes (one cache line, one AVX-512 register), zeroed;
 * free() releases it. */
void *mem_aligned(size_t n);

/* *out = n * size; false (and *out untouched) when that does not fit size_t. */
bool arr_size(size_t n, size_t size, size_t *out);

/* Bytes that new allocations may take without swapping, as the kernel estimates;
 * 1 GiB when it does not say. */
uint64_t mem_available(void);
/* Bytes of this process that are in memory; 0 when the kernel does not say. */
uint64_t mem_resident(void);

#endif
