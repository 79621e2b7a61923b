/* Any bytes through the filter: what comes out is well-formed, holds no
 * control character but the line end, is unchanged by a second pass, and the
 * rows at any width are it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tui/text.h"

static void check_harmless(const struct buf *b)
{
    size_t i = 0;
    while (i < b->len) {
        uint32_t cp = 0;
        int k = utf8_decode(b->data + i, b->len - i, &cp);
        if (k <= 0 || (cp < 0x20 && cp != '\n') || (cp >= 0x7F && cp < 0xA0) ||
            (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069)) {
            abort();
        }
        i += (size_t)k;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf once = BUF_INIT;
    struct buf twice = BUF_INIT;
    struct text_flow f = {0};
    text_filter((const char *)p, n, n & 1, NULL, &once);
    check_harmless(&once);
    text_filter(once.data, once.len, n & 1, NULL, &twice);
    if (once.len != twice.len || (once.len && memcmp(once.data, twice.data, once.len) != 0)) {
        abort();
    }
    text_flow_add(&f, R_TEXT, once.data, once.len, n & 1);
    for (int width = 1; width < 40; width += 7) {
        struct text_rows rows = {0};
        struct buf all = BUF_INIT;
        struct text_wrap w = {.width = width, .mode = width & 2 ? WRAP_WORD : WRAP_CHAR};
        text_wrap(&rows, &f, &w);
        for (size_t i = 0; i < rows.n_rows; i++) {
            text_row_text(&rows, i, &all);
            if (rows.rows[i].hard && i + 1 < rows.n_rows) {
                buf_addc(&all, '\n');
            }
        }
        if (all.len != once.len || (all.len && memcmp(all.data, once.data, all.len) != 0)) {
            abort();
        }
        buf_free(&all);
        text_rows_free(&rows);
    }
    text_flow_free(&f);
    buf_free(&once);
    buf_free(&twice);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "plain text with\ttabs\nand \x1b[31mcolour\x1b[0m\r\n",
        "漢字 e\xcc\x81 👨\xe2\x80\x8d👩\xe2\x80\x8d👧 \xe2\x80\xae over \xc2\x9b c1",
        "\xff\xfe\xf0\x9f\x92 cut \xed\xa0\x80 surrogate \xf3\xa0\x81\x81 tag",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
        s[i].size = strlen(texts[i]);
    }
    return s;
}
