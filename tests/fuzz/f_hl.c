/* Any bytes as code of any language: the pieces of every line together are the line, and what a
 * line leaves open is all that the next one needs to know. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tui/hl.h"

static void follow(void *ctx, enum role role, const char *p, size_t n)
{
    const char **next = ctx;
    if (p != *next || n == 0 || (unsigned)role >= R_COUNT) {
        abort();
    }
    *next = p + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    const unsigned named = hl_language(p, n);
    if (named > HL_LANGUAGES) {
        abort();
    }
    for (unsigned lang = 0; lang <= HL_LANGUAGES; lang++) {
        hl_state s = n > 3 ? (hl_state)data[0] | (hl_state)data[1] << 8 : 0;
        for (size_t i = 0; i < n;) {
            const char *nl = memchr(p + i, '\n', n - i);
            const size_t k = nl ? (size_t)(nl - p) - i : n - i;
            const char *next = p + i;
            s = hl_line(lang, s, p + i, k, follow, &next);
            if (next != p + i + k) {
                abort();
            }
            i += k + 1;
        }
    }
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "#include <a>\nint x = 'a'; /* c\n*/ \"t\\\"\\\n\" // d\n",
        "def f():\n    '''doc\n''' + \"x\" # c\n@d\n",
        "r##\"a\"# \"## 'a /* /* */ */ 'c'\n",
        "<a b=\"c\n\" d='e'>t</a><!-- \n -->",
        "key: 'v' # c\n[s]\nk = \"\"\"a\n\"\"\"\n\"q\": 1\n",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
        s[i].size = strlen(texts[i]);
    }
    return s;
}
