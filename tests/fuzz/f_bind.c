/* Any bytes as lines of bindings, "WHAT = KEYS": what is wrong is said in whole lines, every key
 * has one meaning in a context, and no name grows beyond what a table shows. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tui/keys.h"

static void bind_line(struct keymap *m, char *line, int number, struct buf *out)
{
    char where[32];
    char *eq = strchr(line, '=');
    snprintf(where, sizeof where, "file:%d", number);
    if (eq) {
        char *end = eq;
        while (end > line && end[-1] == ' ') {
            end--;
        }
        *end = 0;
        keymap_bind(m, line, eq + 1 + strspn(eq + 1, " "), where, out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = mem_strndup((const char *)data, n);
    struct keymap *m = keymap_create();
    struct buf wrong = BUF_INIT;
    struct buf help = BUF_INIT;
    int number = 0;
    for (char *s = text; s && *s;) {
        char *nl = strchr(s, '\n');
        if (nl) {
            *nl = 0;
        }
        bind_line(m, s, ++number, &wrong);
        s = nl ? nl + 1 : NULL;
    }
    keymap_settle(m, &wrong);
    keymap_help(m, CTX_BOTH, &help);
    if (wrong.len && wrong.data[wrong.len - 1] != '\n') {
        abort();
    }
    size_t rows = 0;
    const struct key_action *t = keymap_rows(m, &rows);
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < KEYS_MOST && t[i].keys[k]; k++) {
            for (size_t j = i + 1; j < rows; j++) {
                for (size_t l = 0; l < KEYS_MOST && t[j].keys[l]; l++) {
                    if ((t[i].ctx & t[j].ctx) && strcmp(t[i].keys[k], t[j].keys[l]) == 0) {
                        abort();
                    }
                }
            }
        }
    }
    keymap_free(m);
    buf_free(&wrong);
    buf_free(&help);
    free(text);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "find = ^F, C-x f\ntranscript.fold = o\nhelp.page-down = none\n",
        "history = ^S\nfind = ^R\nexport = F5, F6, F7, Alt-Enter, Comma, S-Tab\n",
        "composer.find = ^T\nsend = ^T\ntranscript.send = ^T\nstop = M-C-Up\n",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
        s[i].size = strlen(texts[i]);
    }
    return s;
}
