/* Any bytes, in any pieces, at any times: the decoder ends, every key is one
 * the table can name, and nothing is left waiting for ever. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tui/input.h"
#include "tui/keys.h"

static void drain(struct input *in, int64_t now, size_t *left)
{
    struct key k;
    while (keyin_next(in, now, &k)) {
        char name[32];
        keys_name(&k, name);
        if (k.type == K_NONE || k.code > 0x10FFFF || (k.type == K_CHAR && k.code < 0x20)) {
            abort();
        }
        if ((*left)-- == 0) {
            abort(); /* more keys than bytes */
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct input *in = keyin_create();
    int64_t now = 0;
    size_t keys = n + 1;
    size_t i = 0;
    while (i < n) {
        size_t k = 1 + p[i] % 23;
        k = k < n - i ? k : n - i;
        keyin_feed(in, (const char *)p + i, k, now);
        drain(in, now, &keys);
        now += (p[i] % 5) * 10000000LL;
        drain(in, now, &keys);
        i += k;
    }
    drain(in, now + 1000000000, &keys);
    if (keyin_deadline(in) >= 0) {
        abort();
    }
    keyin_free(in);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "hello\r\x1b[A\x1b[1;5C\x1bOP\x1b[[A\x1b[200~paste\r\nmore\x1b[201~end",
        "\x1b[?2026;2$y\x1b]11;rgb:0/0/0\x1b\\\x1bP1$r\x1b\\\x1b\x1b[A",
        "\x1b[97;5u\x1b[27;2;13~\x1b[13:1:1;2:1u\xc3\xa9\xe6\xbc\xa2",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
        s[i].size = strlen(texts[i]);
    }
    return s;
}
