/* Thin wrappers over libcrypto and xxhash. */
#include "config.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#include <openssl/evp.h>
#include <xxhash.h>

#include "base/mem.h"

struct sha256 {
    EVP_MD_CTX *ctx;
};

static void must(int ok)
{
    if (ok != 1) {
        fprintf(stderr, "quasar: libcrypto has no SHA-256\n");
        exit(1);
    }
}

struct sha256 *sha256_create(void)
{
    struct sha256 *h = mem_zalloc(sizeof *h);
    h->ctx = EVP_MD_CTX_new();
    must(h->ctx != NULL);
    must(EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL));
    return h;
}

void sha256_add(struct sha256 *h, const void *p, size_t n)
{
    must(EVP_DigestUpdate(h->ctx, p, n));
}

void sha256_done(struct sha256 *h, uint8_t out[SHA256_BYTES])
{
    unsigned n = 0;
    must(EVP_DigestFinal_ex(h->ctx, out, &n));
}

void sha256_free(struct sha256 *h)
{
    if (h) {
        EVP_MD_CTX_free(h->ctx);
        free(h);
    }
}

void sha256_of(const void *p, size_t n, uint8_t out[SHA256_BYTES])
{
    struct sha256 *h = sha256_create();
    sha256_add(h, p, n);
    sha256_done(h, out);
    sha256_free(h);
}

void hex_of(const uint8_t *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = 0;
}

uint64_t hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}
