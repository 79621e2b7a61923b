/* What is in a draft besides letters: pastes and files, the word that names one, pastes of
 * before; and drafts that are put aside. */
#include "config.h"
#include "tui/composer_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/draft.h"

/* ---- parts of the draft ---------------------------------------------------- */

bool composer_at_word(const struct composer *c, struct line_command *out)
{
    struct line l = line_of(c);
    size_t at = SIZE_MAX;
    bool quoted = false;
    for (size_t i = line_start(&l, l.cursor); i < l.cursor; i++) {
        const wchar_t w = l.text[i];
        const bool first = i == 0 || l.text[i - 1] == L'\n' || l.text[i - 1] == L' ' ||
                           line_is_chip(c, l.text[i - 1]);
        if (at == SIZE_MAX && first && w == L'@') {
            at = i;
        } else if (at != SIZE_MAX && i == at + 1 && w == L'"') {
            quoted = true;
        } else if (quoted && w == L'\\') {
            i++;
        } else if (at != SIZE_MAX && (quoted ? w == L'"' : w == L' ' || line_is_chip(c, w))) {
            at = SIZE_MAX;
            quoted = false;
        }
    }
    if (at == SIZE_MAX || c->inside) {
        return false;
    }
    out->at = at;
    out->end = l.cursor;
    out->last = l.cursor == l.n;
    buf_truncate(&out->text, 0);
    for (size_t i = at; i < l.cursor; i++) {
        line_add_wchar(&out->text, l.text[i]);
    }
    return true;
}

/* Puts characters in the place of [at, end). */
static void splice(struct composer *c, size_t at, size_t end, const wchar_t *w, size_t n)
{
    struct line l = line_of(c);
    if (c->inside || at > end || end > l.n) {
        return;
    }
    line_mark(c);
    wchar_t *all = mem_array(l.n + n + 1, sizeof *all);
    memcpy(all, l.text, at * sizeof *all);
    memcpy(all + at, w, n * sizeof *all);
    memcpy(all + at + n, l.text + end, (l.n - end) * sizeof *all);
    line_replace(c, all, l.n - (end - at) + n, at + n);
    free(all);
}

size_t composer_cursor(const struct composer *c)
{
    return line_of(c).cursor;
}

void composer_replace(struct composer *c, size_t at, size_t end, const char *text)
{
    size_t n = 0;
    wchar_t *w = line_widen(text, strlen(text), &n);
    splice(c, at, end, w, n);
    free(w);
}

bool composer_chip(const struct composer *c, size_t *at, const char **name,
                   const struct buf **bytes)
{
    struct line l = line_of(c);
    size_t i = l.cursor;
    if (i >= l.n || !line_is_chip(c, l.text[i])) {
        if (i == 0 || !line_is_chip(c, l.text[i - 1])) {
            return false;
        }
        i--;
    }
    const size_t k = (size_t)l.text[i] - CHIP_FIRST;
    *at = i;
    *name = c->chip_name[k];
    *bytes = &c->chips[k];
    return true;
}

int composer_put_file(struct composer *c, const char *name, const char *p, size_t n, struct err *e)
{
    wchar_t w[2] = {0, L' '};
    if (c->inside) {
        return err_set(e, QE_BUSY, "the draft is being edited");
    }
    const int rc = line_make_chip(c, name, p, n, w, e);
    if (rc == 0) {
        splice(c, 0, 0, w, 2);
        line_move(c, line_of(c).n);
    }
    return rc;
}

bool composer_has_file(const struct composer *c, const char *name, bool shown)
{
    const struct line l = line_of(c);
    struct buf one = BUF_INIT;
    bool has = false;
    for (size_t k = 0; k < c->n_chips && !has; k++) {
        const wchar_t w = (wchar_t)(CHIP_FIRST + k);
        if (c->chip_name[k] && strcmp(c->chip_name[k], name) == 0) {
            buf_truncate(&one, 0);
            line_add_wchar(&one, w);
            has = wmemchr(l.text, w, l.n) != NULL ||
                  (!shown && c->hist_at != HIST_DRAFT && c->stash.len >= one.len &&
                   memmem(c->stash.data, c->stash.len, one.data, one.len) != NULL);
        }
    }
    buf_free(&one);
    return has;
}

int composer_chip_set(struct composer *c, size_t at, const char *p, size_t n, struct err *e)
{
    struct line l = line_of(c);
    wchar_t w = 0;
    if (c->inside || at >= l.n || !line_is_chip(c, l.text[at])) {
        return err_set(e, QE_BUSY, "the draft is being edited");
    }
    const int rc = line_make_chip(c, c->chip_name[(size_t)l.text[at] - CHIP_FIRST], p, n, &w, e);
    if (rc == 0) {
        splice(c, at, at + 1, &w, 1);
    }
    return rc;
}

void composer_set_shown(struct composer *c, const char *p, size_t n)
{
    struct buf held = BUF_INIT; /* the text with characters for its chips */
    size_t rows = 0;
    for (size_t i = 0; i < n;) {
        size_t used = 0;
        for (size_t k = 0; p[i] == '[' && used == 0 && k < c->n_chips; k++) {
            char label[64];
            line_chip_label(c, k, label);
            if (strlen(label) <= n - i && memcmp(p + i, label, strlen(label)) == 0) {
                used = strlen(label);
                line_add_wchar(&held, (wchar_t)(CHIP_FIRST + k));
            }
        }
        if (used == 0) {
            buf_addc(&held, p[i++]);
        }
        i += used;
    }
    if (held.len == n && (n > COMPOSER_DRAFT_MAX / 2 || !line_holds(p, n, &rows))) {
        composer_set(c, p, n); /* no chip is in it: it becomes one */
    } else {
        struct line l = line_of(c);
        size_t k = 0;
        wchar_t *w = line_widen(held.data ? held.data : "",
                                held.len < COMPOSER_DRAFT_MAX ? held.len : COMPOSER_DRAFT_MAX, &k);
        splice(c, 0, l.n, w, k);
        free(w);
    }
    buf_free(&held);
}

int composer_paste_again(struct composer *c, size_t back, struct err *e)
{
    if (back == 0 || back > c->n_kept || c->inside) {
        return c->n_kept == 0
                   ? err_set(e, QE_NOTFOUND, "nothing was pasted yet that is shown as one sign")
                   : err_set(e, QE_NOTFOUND, "there are %zu pastes, 1 is the last", c->n_kept);
    }
    const struct buf *b = &c->kept[c->n_kept - back];
    return composer_paste(c, b->data, b->len, e);
}

/* ---- a draft put aside ---------------------------------------------------- */

static void copy_chip(struct buf *to, char **to_name, const struct buf *from, const char *name)
{
    buf_add(to, from->data, from->len);
    *to_name = name ? mem_strdup(name) : NULL;
}

struct draft *composer_copy(const struct composer *c)
{
    struct draft *d = mem_zalloc(sizeof *d);
    struct line l = line_of(c);
    d->text = line_copy(&l);
    d->n = l.n;
    d->cursor = l.cursor;
    for (; d->n_chips < c->n_chips; d->n_chips++) {
        const size_t i = d->n_chips;
        copy_chip(&d->chips[i], &d->chip_name[i], &c->chips[i], c->chip_name[i]);
    }
    return d;
}

void composer_restore(struct composer *c, const struct draft *d)
{
    composer_clear(c);
    for (; c->n_chips < d->n_chips; c->n_chips++) {
        const size_t i = c->n_chips;
        copy_chip(&c->chips[i], &c->chip_name[i], &d->chips[i], d->chip_name[i]);
    }
    line_replace(c, d->text, d->n, d->cursor);
}
