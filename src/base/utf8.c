/* UTF-8 decoding, validation and repair; clusters and widths by utf8proc. */
#include "config.h"
#include "base/utf8.h"

#include <stdio.h>
#include <utf8proc.h>

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned c = p[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c < 0xC2 || c > 0xF4) {
        return 0;
    }
    unsigned lo = 0x80;
    unsigned hi = 0xBF;
    int len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0) {
        lo = 0xA0;
    } else if (c == 0xED) {
        hi = 0x9F;
    } else if (c == 0xF0) {
        lo = 0x90;
    } else if (c == 0xF4) {
        hi = 0x8F;
    }
    uint32_t v = c & (0xFFU >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) {
            return -1;
        }
        if (p[i] < lo || p[i] > hi) {
            return 0;
        }
        lo = 0x80;
        hi = 0xBF;
        v = v << 6 | (p[i] & 0x3FU);
    }
    *cp = v;
    return len;
}

int utf8_put(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_complete_prefix(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)p[n - back];
        if (c >= 0xC0) {
            uint32_t cp = 0;
            return utf8_decode(p + n - back, back, &cp) == -1 ? n - back : n;
        }
        if (c < 0x80) {
            break;
        }
    }
    return n;
}

bool utf8_valid(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp = 0;
        int k = utf8_decode(p + i, n - i, &cp);
        if (k <= 0) {
            return false;
        }
        i += (size_t)k;
    }
    return true;
}

/* Length of the maximal subpart of an ill-formed sequence at p: the lead byte
 * and those continuation bytes that could still have become a character. */
static size_t bad_subpart(const char *p, size_t n)
{
    size_t k = 1;
    uint32_t cp = 0;
    while (k < n && k < 4 && utf8_decode(p, k, &cp) == -1 && utf8_decode(p, k + 1, &cp) == -1) {
        k++;
    }
    return k;
}

void utf8_sanitize(const char *p, size_t n, struct buf *out)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp = 0;
        int k = utf8_decode(p + i, n - i, &cp);
        if (k > 0) {
            buf_add(out, p + i, (size_t)k);
            i += (size_t)k;
        } else {
            buf_adds(out, "\xEF\xBF\xBD");
            i += k == -1 ? n - i : bad_subpart(p + i, n - i);
        }
    }
}

size_t utf8_next(const char *p, size_t n, uint32_t *cp)
{
    int k = utf8_decode(p, n, cp);
    if (k > 0) {
        return (size_t)k;
    }
    *cp = UTF8_REPLACEMENT;
    return 1;
}

size_t utf8_cluster_len(const char *p, size_t n)
{
    if (n == 0) {
        return 0;
    }
    uint32_t prev = 0;
    size_t i = utf8_next(p, n, &prev);
    utf8proc_int32_t state = 0;
    while (i < n) {
        uint32_t cp = 0;
        size_t k = utf8_next(p + i, n - i, &cp);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)prev, (utf8proc_int32_t)cp,
                                             &state)) {
            break;
        }
        prev = cp;
        i += k;
    }
    return i;
}

size_t utf8_cluster_len_back(const char *p, size_t n)
{
    /* Clusters are found forwards only, so walk from a safe point: a line
     * start or 256 bytes back, whichever is nearer. */
    size_t start = n > 256 ? n - 256 : 0;
    while (start > 0 && ((unsigned char)p[start] & 0xC0) == 0x80) {
        start--;
    }
    for (size_t i = n; i > start; i--) {
        if (p[i - 1] == '\n' && i < n) {
            start = i;
            break;
        }
    }
    size_t last = 0;
    while (start < n) {
        last = utf8_cluster_len(p + start, n - start);
        start += last;
    }
    return last;
}

int utf8_cells(uint32_t cp)
{
    if (cp == 0) {
        return 0;
    }
    if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
        return -1;
    }
    int w = utf8proc_charwidth((utf8proc_int32_t)cp);
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    if (cat == UTF8PROC_CATEGORY_MN || cat == UTF8PROC_CATEGORY_ME || cp == 0x200D ||
        cp == 0x200B || cp == 0xFEFF) {
        return 0;
    }
    return utf8_font_cells(cp, w > 2 ? 2 : w);
}

/* Marks of direction that last, and line ends that few know. */
static const struct {
    uint32_t cp;
    const char *name;
} named[] = {
    {0x202A, "<LRE>"}, {0x202B, "<RLE>"}, {0x202C, "<PDF>"}, {0x202D, "<LRO>"},
    {0x202E, "<RLO>"}, {0x2066, "<LRI>"}, {0x2067, "<RLI>"}, {0x2068, "<FSI>"},
    {0x2069, "<PDI>"}, {0x2028, "<LS>"},  {0x2029, "<PS>"},
};

bool utf8_hidden_form(uint32_t cp, char out[12])
{
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (named[i].cp == cp) {
            snprintf(out, 12, "%s", named[i].name);
            return true;
        }
    }
    if ((cp >= 0xE0000 && cp <= 0xE007F) || (cp >= 0x206A && cp <= 0x206F) ||
        (cp >= 0xFFF9 && cp <= 0xFFFB) || (cp & 0xFFFE) == 0xFFFE) {
        snprintf(out, 12, "<U+%04X>", (unsigned)cp & 0x1FFFFF);
        return true;
    }
    return false;
}
