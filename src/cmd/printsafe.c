/* The one way of foreign text to a terminal in commands that print lines. */
#include "config.h"
#include "cmd/printsafe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"

void print_safe(FILE *f, const char *p, size_t n, bool tty)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char ch = (unsigned char)p[i];
        const bool c1 = ch == 0xC2 && i + 1 < n && (unsigned char)p[i + 1] < 0xA0;
        if (tty && ((ch < 0x20 && ch != '\n' && ch != '\t') || ch == 0x7F || c1)) {
            fputc('?', f);
            i += c1;
        } else {
            fputc(ch, f);
        }
    }
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
    if (cells <= 0 || print_cells(p, n) <= cells) {
        print_safe(f, p, n, tty);
        return;
    }
    size_t at = 0;
    for (int taken = 1;;) { /* the sign that something follows */
        const size_t len = utf8_cluster_len(p + at, n - at);
        taken += cluster_cells(p + at, len);
        if (taken > cells) {
            break;
        }
        at += len;
    }
    print_safe(f, p, at, tty);
    fputs("\xE2\x80\xA6", f);
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
