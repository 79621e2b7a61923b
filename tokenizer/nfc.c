/* Normalisation form C over utf8proc's tables. The text is cut before every
 * character that cannot join the one before it; nearly all segments are then a
 * single character that stays as it is. In the others marks are ordered by a
 * counting sort, because utf8proc's own ordering is quadratic in a long run. */
#include "config.h"
#include "tokenizer/nfc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Lead bytes below this begin characters below U+0300: all in form C, none of
 * them joins the one before. */
#define FIRST_LEAD 0xCC

/* Longest canonical decomposition of one code point is 4. */
#define MAX_DECOMPOSITION 8

struct points {
    utf8proc_int32_t *v;
    size_t n, cap;
};

static bool joins_previous(utf8proc_int32_t cp, const utf8proc_property_t *pr)
{
    return pr->combining_class != 0 || pr->category == UTF8PROC_CATEGORY_MN ||
           pr->category == UTF8PROC_CATEGORY_MC || pr->category == UTF8PROC_CATEGORY_ME ||
           (cp >= 0x1160 && cp <= 0x11FF) || /* Hangul vowels and finals */
           (cp >= 0x16D63 && cp <= 0x16D6A); /* Kirat Rai vowels */
}

static bool stays_alone(utf8proc_int32_t cp, const utf8proc_property_t *pr)
{
    return cp < 0x300 || pr->decomp_seqindex == UINT16_MAX || pr->decomp_type != 0;
}

bool nfc_may_change(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if ((unsigned char)p[i] < FIRST_LEAD) {
            i++;
            continue;
        }
        uint32_t cp = 0;
        int k = utf8_decode(p + i, n - i, &cp);
        const utf8proc_property_t *pr = utf8proc_get_property((utf8proc_int32_t)cp);
        if (joins_previous((utf8proc_int32_t)cp, pr) || !stays_alone((utf8proc_int32_t)cp, pr)) {
            return true;
        }
        i += k > 0 ? (size_t)k : 1;
    }
    return false;
}

static void reserve(struct points *s, size_t extra)
{
    if (s->cap - s->n < extra) {
        s->cap = 2 * s->cap + extra + 32;
        s->v = mem_realloc(s->v, s->cap * sizeof *s->v);
    }
}

/* Stable order by combining class of v[0..n), all with a class above 0. */
static void order_marks(utf8proc_int32_t *v, size_t n)
{
    size_t count[257] = {0};
    bool sorted = true;
    unsigned last = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned c = (unsigned)utf8proc_get_property(v[i])->combining_class & 0xFF;
        count[c + 1]++;
        sorted = sorted && c >= last;
        last = c;
    }
    if (sorted) {
        return;
    }
    for (size_t c = 1; c <= 256; c++) {
        count[c] += count[c - 1];
    }
    utf8proc_int32_t *tmp = mem_array(n, sizeof *tmp);
    for (size_t i = 0; i < n; i++) {
        tmp[count[utf8proc_get_property(v[i])->combining_class & 0xFF]++] = v[i];
    }
    memcpy(v, tmp, n * sizeof *tmp);
    free(tmp);
}

/* Decomposes one segment into s, orders its marks, composes, appends. */
static void add_segment(const char *p, size_t n, struct points *s, struct buf *out)
{
    s->n = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        i += (size_t)utf8_decode(p + i, n - i, &cp);
        reserve(s, MAX_DECOMPOSITION);
        int last_class = 0;
        utf8proc_ssize_t k =
            utf8proc_decompose_char((utf8proc_int32_t)cp, s->v + s->n, MAX_DECOMPOSITION,
                                    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last_class);
        s->n += k > 0 ? (size_t)k : 0;
    }
    size_t i = 0;
    while (i < s->n) {
        size_t from = i;
        while (i < s->n && utf8proc_get_property(s->v[i])->combining_class != 0) {
            i++;
        }
        if (i - from > 1) {
            order_marks(s->v + from, i - from);
        }
        i += i == from;
    }
    utf8proc_ssize_t left =
        utf8proc_normalize_utf32(s->v, (utf8proc_ssize_t)s->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t k = 0; k < left; k++) {
        char b[4];
        buf_add(out, b, (size_t)utf8_put((uint32_t)s->v[k], b));
    }
}

void nfc_add(const char *p, size_t n, struct buf *out)
{
    struct points s = {NULL, 0, 0};
    size_t plain = 0; /* start of the text that can be copied as it is */
    size_t seg = 0;   /* start of the segment that i is in */
    bool changes = false;
    buf_reserve(out, n);
    for (size_t i = 0; i <= n;) {
        uint32_t cp = 0;
        int k = 1;
        bool joins = false;
        bool alone = true;
        if (i < n && (unsigned char)p[i] < 0x80) {
            cp = (unsigned char)p[i];
        } else if (i < n) {
            k = utf8_decode(p + i, n - i, &cp);
            const utf8proc_property_t *pr = utf8proc_get_property((utf8proc_int32_t)cp);
            joins = joins_previous((utf8proc_int32_t)cp, pr);
            alone = stays_alone((utf8proc_int32_t)cp, pr);
        }
        if (!joins) {
            if (changes) {
                buf_add(out, p + plain, seg - plain);
                add_segment(p + seg, i - seg, &s, out);
                plain = i;
            }
            seg = i;
            changes = false;
        }
        changes = changes || joins || !alone;
        i += (size_t)k;
    }
    buf_add(out, p + plain, n - plain);
    free(s.v);
}
