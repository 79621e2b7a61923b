/* A draft as bytes and back: a mark, then numbers in text, each with a blank behind it, and the
 * bytes that they count. Whatever is wrong with what is read, it is refused as a whole. */
#include "config.h"
#include "tui/draft.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define MARK "QD1 "

void draft_free(struct draft *d)
{
    if (!d) {
        return;
    }
    for (size_t i = 0; i < d->n_chips; i++) {
        buf_free(&d->chips[i]);
        free(d->chip_name[i]);
    }
    free(d->text);
    free(d);
}

void draft_write(const struct draft *d, struct buf *out)
{
    if (d->n == 0) {
        return;
    }
    struct buf text = BUF_INIT;
    for (size_t i = 0; i < d->n; i++) {
        char u[4];
        const uint32_t cp = (uint32_t)d->text[i];
        const bool sound = cp <= 0x10FFFF && (cp < 0xD800 || cp >= 0xE000);
        buf_add(&text, u, (size_t)utf8_put(sound ? cp : UTF8_REPLACEMENT, u));
    }
    buf_printf(out, MARK "%zu %zu %zu ", d->cursor, text.len, d->n_chips);
    buf_add(out, text.data, text.len);
    for (size_t i = 0; i < d->n_chips; i++) {
        const char *name = d->chip_name[i] ? d->chip_name[i] : "";
        buf_printf(out, "%zu %zu ", strlen(name), d->chips[i].len);
        buf_add(out, name, strlen(name));
        buf_add(out, d->chips[i].data, d->chips[i].len);
    }
    buf_free(&text);
}

struct bytes {
    const char *p;
    size_t n;
};

static bool number(struct bytes *b, size_t most, size_t *out)
{
    size_t v = 0;
    size_t i = 0;
    while (i < b->n && i < 12 && b->p[i] >= '0' && b->p[i] <= '9') {
        v = v * 10 + (size_t)(b->p[i++] - '0');
    }
    if (i == 0 || i == b->n || b->p[i] != ' ' || v > most) {
        return false;
    }
    b->p += i + 1;
    b->n -= i + 1;
    *out = v;
    return true;
}

static const char *run(struct bytes *b, size_t n)
{
    const char *p = b->p;
    b->p += n;
    b->n -= n;
    return p;
}

static bool read_line(struct draft *d, const char *p, size_t n)
{
    if (!utf8_valid(p, n)) {
        return false;
    }
    d->text = mem_array(n + 1, sizeof *d->text);
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        i += (size_t)utf8_decode(p + i, n - i, &cp);
        if (cp == 0) {
            return false; /* it would end the line */
        }
        d->text[d->n++] = (wchar_t)cp;
    }
    d->cursor = d->cursor < d->n ? d->cursor : d->n;
    return true;
}

struct draft *draft_read(const char *p, size_t n)
{
    struct bytes b = {p, n};
    size_t text = 0;
    size_t chips = 0;
    struct draft *d = mem_zalloc(sizeof *d);
    bool good = n > sizeof MARK && memcmp(p, MARK, sizeof MARK - 1) == 0;
    if (good) {
        (void)run(&b, sizeof MARK - 1);
        good = number(&b, SIZE_MAX, &d->cursor) && number(&b, 4 * COMPOSER_DRAFT_MAX, &text) &&
               number(&b, COMPOSER_CHIPS, &chips) && text <= b.n && text > 0 &&
               read_line(d, run(&b, text), text);
    }
    while (good && d->n_chips < chips) {
        size_t name = 0;
        size_t len = 0;
        good = number(&b, b.n, &name) && number(&b, b.n, &len) && name <= b.n && len <= b.n - name;
        if (good) {
            const char *s = run(&b, name);
            d->chip_name[d->n_chips] = name ? mem_strndup(s, name) : NULL;
            buf_add(&d->chips[d->n_chips++], run(&b, len), len);
        }
    }
    if (!good || b.n > 0) {
        draft_free(d);
        return NULL;
    }
    return d;
}
