/* The one way of foreign text to a terminal in commands that print lines. */
#include "config.h"
#include "cmd/printsafe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"

/* What a terminal may be given in the place of the text. */
static void make_safe(const char *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n;) {
        char form[12];
        uint32_t cp = 0;
        const size_t len = utf8_next(p + i, n - i, &cp);
        if ((cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7F && cp < 0xA0)) {
            buf_addc(out, '?');
        } else if (utf8_hidden_form(cp, form)) {
            buf_adds(out, form);
        } else {
            buf_add(out, p + i, len);
        }
        i += len;
    }
}

void print_safe(FILE *f, const char *p, size_t n, bool tty)
{
    struct buf b = BUF_INIT;
    if (tty) {
        make_safe(p, n, &b);
        fwrite(b.data ? b.data : "", 1, b.len, f);
    } else {
        fwrite(p, 1, n, f);
    }
    buf_free(&b);
}

/* Cells of the cluster at p, of len bytes: those of its widest code point. */
static int cluster_cells(const char *p, size_t len)
{
    int most = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp = 0;
        i += utf8_next(p + i, len - i, &cp);
        const int n = utf8_cells(cp);
        most = n < 0 ? 1 : n > most ? n : most;
    }
    return most;
}

int print_cells(const char *p, size_t n)
{
    int cells = 0;
    for (size_t i = 0; i < n;) {
        const size_t len = utf8_cluster_len(p + i, n - i);
        cells += cluster_cells(p + i, len);
        i += len;
    }
    return cells;
}

void print_fit(FILE *f, const char *p, size_t n, bool tty, int cells)
{
    struct buf b = BUF_INIT;
    if (tty) {
        make_safe(p, n, &b);
        p = b.data ? b.data : "";
        n = b.len;
    }
    const bool cut = cells > 0 && print_cells(p, n) > cells;
    if (cut) {
        size_t at = 0;
        for (int taken = 1;;) { /* the sign that something follows */
            const size_t len = utf8_cluster_len(p + at, n - at);
            taken += cluster_cells(p + at, len);
            if (taken > cells) {
                break;
            }
            at += len;
        }
        n = at;
    }
    fwrite(p, 1, n, f);
    fputs(cut ? "\xE2\x80\xA6" : "", f);
    buf_free(&b);
}

int print_columns(void)
{
    struct winsize w;
    const char *said = getenv("COLUMNS");
    const int n = said ? atoi(said) : 0;
    if (n > 0) {
        return n;
    }
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}
