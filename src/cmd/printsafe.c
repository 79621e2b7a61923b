/* The one way of foreign text to a terminal in commands that print lines. */
#include "config.h"
#include "cmd/printsafe.h"

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
