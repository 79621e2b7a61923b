/* Words in the texts of stored conversations: they are asked for while they are typed, and a
 * place where they are is drawn in a line. */
#include "config.h"
#include "tui/found.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "tui/text.h"

void found_ask(struct app *a, struct found_list *f, const char *words, size_t n)
{
    if (n == 0) {
        if (f->finder) {
            finder_drop(f->finder);
        }
        f->asked = false;
        finding_fini(&f->answer);
        return;
    }
    if (!f->finder) {
        f->finder = finder_create(a->conv);
    }
    f->asked = true;
    finder_ask(f->finder, words, n);
}

bool found_take(struct app *a, struct found_list *f)
{
    struct finding got;
    if (!f->finder || !finder_take(f->finder, &got)) {
        return false;
    }
    finding_fini(&f->answer);
    f->answer = got;
    f->asked = false;
    if (got.err.code) {
        app_error(a, &got.err);
    }
    return true;
}

void found_free(struct found_list *f)
{
    finder_free(f->finder);
    f->finder = NULL;
    finding_fini(&f->answer);
}

/* ---- what is looked for in the transcript ---- */

static bool is_mark(const char *p, size_t n, const char *mark)
{
    const size_t m = strlen(mark);
    return n >= m && memcmp(p, mark, m) == 0;
}

/* In small letters, so that case does not count. */
static void add_small(struct buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c = -1;
        utf8proc_uint8_t u[4];
        const utf8proc_ssize_t k =
            utf8proc_iterate((const utf8proc_uint8_t *)p + i, (utf8proc_ssize_t)(n - i), &c);
        if (k <= 0) {
            i++; /* no character: it is not found either */
            continue;
        }
        const utf8proc_ssize_t m = utf8proc_encode_char(utf8proc_tolower(c), u);
        if (c < 0x80 && ispunct(c)) {
            buf_addc(out, '\\');
        }
        buf_add(out, u, (size_t)m);
        i += (size_t)k;
    }
}

static bool parts_words(char c)
{
    return (unsigned char)c < 0x80 && !isalnum((unsigned char)c);
}

/* Whether one of the words that were asked for is in a word that was found. */
static bool has_asked(const char *asked, size_t n, const char *word)
{
    struct buf one = BUF_INIT;
    bool has = false;
    for (size_t i = 0; i < n && !has;) {
        size_t end = i;
        while (end < n && !parts_words(asked[end])) {
            end++;
        }
        buf_truncate(&one, 0);
        add_small(&one, asked + i, end - i);
        buf_adds(&one, "");
        has = end > i && one.data && one.len > 0 && strstr(word, one.data) != NULL;
        i = end + 1;
    }
    buf_free(&one);
    return has;
}

static void add_choice(struct buf *out, const char *p)
{
    const size_t n = strlen(p);
    for (size_t i = 0; i + n <= out->len && n > 0; i++) { /* once */
        const bool begins = i == 0 || out->data[i - 1] == '|';
        const bool ends = i + n == out->len || out->data[i + n] == '|';
        if (begins && ends && memcmp(out->data + i, p, n) == 0) {
            return;
        }
    }
    if (n > 0) {
        buf_adds(out, out->len ? "|" : "");
        buf_adds(out, p);
    }
}

void found_pattern(const struct finding *f, const struct found *at, struct buf *out)
{
    const char *asked = f->words.data ? f->words.data : "";
    struct buf word = BUF_INIT;
    for (size_t i = 0, end = 0; i < f->words.len; i = end + 1) {
        for (end = i; end < f->words.len && !parts_words(asked[end]); end++) {
        }
        buf_truncate(&word, 0);
        add_small(&word, asked + i, end - i);
        buf_addc(&word, 0);
        if (end - i > 1 || end < f->words.len) { /* as little as is asked for */
            add_choice(out, word.data);
        }
    }
    const char *p = at->around;
    for (size_t left = strlen(p); left > 0; p++, left--) {
        if (!is_mark(p, left, FOUND_ON)) {
            continue;
        }
        const char *from = p + strlen(FOUND_ON);
        const char *end = strstr(from, FOUND_OFF);
        if (!end) {
            break;
        }
        buf_truncate(&word, 0);
        add_small(&word, from, (size_t)(end - from));
        buf_addc(&word, 0);
        if (!strpbrk(word.data, "\r\n") && !has_asked(asked, f->words.len, word.data)) {
            add_choice(out, word.data);
        }
    }
    buf_free(&word);
}

/* ---- drawing ---- */

struct span {
    size_t at, end; /* bytes of the line */
};
#define SPANS 32

/* The place in one line through the filter, and which bytes of it were found. */
static size_t one_line(const struct theme *th, const char *p, struct buf *line, struct span *span)
{
    struct buf piece = BUF_INIT;
    size_t n = 0;
    bool on = false;
    for (size_t left = strlen(p); left > 0 || piece.len > 0;) {
        const bool opens = is_mark(p, left, FOUND_ON);
        if (left > 0 && !opens && !is_mark(p, left, FOUND_OFF)) {
            const bool blank = *p == ' ' || *p == '\n' || *p == '\t' || *p == '\r';
            const bool again = blank && (piece.len ? piece.data[piece.len - 1] == ' '
                                                   : line->len && line->data[line->len - 1] == ' ');
            if (!again) {
                buf_addc(&piece, blank ? ' ' : *p);
            }
            p++;
            left--;
            continue;
        }
        if (on && n < SPANS) {
            span[n].at = line->len;
        }
        text_filter(piece.data ? piece.data : "", piece.len, th->ascii || !th->utf8, NULL, line);
        if (on && n < SPANS) {
            span[n++].end = line->len;
        }
        buf_truncate(&piece, 0);
        if (left > 0) {
            const size_t mark = strlen(opens ? FOUND_ON : FOUND_OFF);
            on = opens;
            p += mark;
            left -= mark;
        }
    }
    buf_free(&piece);
    return n;
}

/* From where on the line is drawn: its beginning, unless the first found word would be too far to
 * the right. */
static size_t first_shown(const struct buf *line, const struct span *span, size_t n, int width)
{
    size_t from = 0;
    if (n == 0 || text_cells(line->data, line->len) <= width) {
        return 0;
    }
    while (from < span[0].at && text_cells(line->data + from, span[0].at - from) > width / 3) {
        from++;
        while (from < span[0].at && ((unsigned char)line->data[from] & 0xC0) == 0x80) {
            from++;
        }
    }
    return from;
}

static int put_part(const struct theme *th, int y, int x, int width, uint16_t style,
                    const struct buf *line, size_t at, size_t end)
{
    char *s = mem_strndup(line->data + at, end > at ? end - at : 0);
    const int used = width > 0 ? text_put(th, y, x, width, style, s) : 0;
    free(s);
    return used;
}

void found_draw(const struct theme *th, int y, int x, int width, uint16_t style,
                const struct found *at)
{
    struct buf line = BUF_INIT;
    struct span span[SPANS];
    const size_t n = one_line(th, at->around, &line, span);
    const char *dots = th->ascii || !th->utf8 ? "..." : "…";
    size_t from = line.len ? first_shown(&line, span, n, width) : 0;
    int used = 0;
    if (from > 0) {
        from = from + text_fit(line.data + from, line.len - from, text_cells(dots, strlen(dots)));
        from = from < span[0].at ? from : span[0].at;
        used = text_put(th, y, x, width, style, dots);
    }
    for (size_t i = 0; i < n; i++) {
        if (span[i].end > from) {
            const size_t begin = span[i].at > from ? span[i].at : from;
            used += put_part(th, y, x + used, width - used, style, &line, from, begin);
            used += put_part(th, y, x + used, width - used, R_SEARCH | STYLE_BOLD, &line, begin,
                             span[i].end);
            from = span[i].end;
        }
    }
    if (from < line.len) {
        (void)put_part(th, y, x + used, width - used, style, &line, from, line.len);
    }
    buf_free(&line);
}
