/* Any bytes as Markdown, whole and grown in pieces: the same rows, no control
 * character in them, no letter of the source missing. */
#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tui/md.h"

static size_t letters(const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        k += isascii((unsigned char)p[i]) && isalpha((unsigned char)p[i]);
    }
    return k;
}

/* Rows and what they say agree byte for byte, and nothing that is said is missing in them. */
static void agree(const struct text_rows *r, const struct buf *said)
{
    char *seen = mem_array(said->len + 1, 1);
    for (size_t i = 0; i < r->n_rows; i++) {
        size_t end = 0;
        for (const struct text_run *k = text_row_run(r, i, NULL, &end); k;
             k = text_row_run(r, i, k, &end)) {
            if (k->style & TEXT_DECOR) {
                continue;
            }
            if (k->from > said->len || end - k->at > said->len - k->from ||
                memcmp(r->text.data + k->at, said->data + k->from, end - k->at) != 0) {
                abort();
            }
            memset(seen + k->from, 1, end - k->at);
        }
    }
    for (size_t i = 0; i < said->len; i++) {
        if (!seen[i] && said->data[i] != '\n') {
            abort();
        }
    }
    free(seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct theme theme = {.ascii = false, .utf8 = true};
    struct md *whole = md_create();
    struct md *grown = md_create();
    md_add(whole, (const char *)p, n);
    size_t want = letters((const char *)p, n);
    for (size_t i = 0; i < n; i++) { /* entities and task marks become characters */
        size_t less = p[i] == '&' ? 8 : p[i] == '[' ? 1 : 0;
        want -= want < less ? want : less;
    }
    for (size_t i = 0; i < n; i += 13) {
        md_add(grown, (const char *)p + i, n - i < 13 ? n - i : 13);
        if (i % 5 == 0) {
            (void)md_layout(grown, &theme, 40);
            (void)md_said(grown, &theme);
        }
    }
    const struct text_rows *a = md_layout(grown, &theme, 40);
    const struct text_rows *b = md_layout(whole, &theme, 40);
    if (a->text.len != b->text.len || a->n_rows != b->n_rows ||
        (a->text.len && memcmp(a->text.data, b->text.data, a->text.len) != 0)) {
        abort();
    }
    for (int width = 1; width < 90; width += 11) {
        struct buf all = BUF_INIT;
        b = md_layout(whole, &theme, width);
        agree(b, md_said(whole, &theme));
        agree(b, md_said(grown, &theme));
        for (size_t i = 0; i < b->text.len; i++) {
            if ((unsigned char)b->text.data[i] < 0x20) {
                abort();
            }
        }
        for (size_t i = 0; i < b->n_rows; i++) {
            text_row_text(b, i, &all);
        }
        if (letters(all.data, all.len) < want) {
            abort();
        }
        buf_free(&all);
    }
    md_free(whole);
    md_free(grown);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "# T\n\ntext *em* **st** `code` [l](u \"t\") ![i](s) <http://a/>\n\n- a\n  - b\n\n1. x\n2. "
        "y\n",
        "```c\nint x;\n```\n\n> quote\n> more\n\n| a | b |\n|--:|:-:|\n| c | d | e |\n\n[r]: u\n",
        "- [x] t\n- [ ] u\n\n***\n\n    code\n\n~~s~~ &amp; &#233; <b>h</b>\n\n~~~~\nopen",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
        s[i].size = strlen(texts[i]);
    }
    return s;
}
