#ifndef QUASAR_BASE_HASH_H
#define QUASAR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* SHA-256 (libcrypto) for what must not be forged, XXH3-64 (xxhash) for what
 * must only be found. */

#define SHA256_BYTES 32
#define SHA256_HEX   65 /* with the NUL */

struct sha256; /* one running digest */

struct sha256 *sha256_create(void);
void sha256_add(struct sha256 *h, const void *p, size_t n);
/* Finishes; h may only be freed after this. */
void sha256_done(struct sha256 *h, uint8_t out[SHA256_BYTES]);
void sha256_free(struct sha256 *h);

void sha256_of(const void *p, size_t n, uint8_t out[SHA256_BYTES]);
void hex_of(const uint8_t *p, size_t n, char *out /* 2 n + 1 */);

uint64_t hash64(const void *p, size_t n, uint64_t seed);

#endif
