/* libedit as the draft's editor. It lives on a pseudo-terminal of its own whose
 * output nobody reads, takes keys from our queue, and is asked for one command
 * at a time. Keys without a character are fed as C1 codes, which are bound to
 * the functions below and can come from nowhere else; that keeps a lone ESC
 * unambiguous in vi mode. Chips are code points of plane 15. */
#include "config.h"
#include "tui/composer_inside.h"

#include <errno.h>
#include <histedit.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"

enum feed {
    F_LEFT = 0x80,
    F_RIGHT,
    F_UP,
    F_DOWN,
    F_DELETE,
    F_HOME,
    F_END,
    F_NEWLINE,
    F_BACKSPACE,
    F_WORD_LEFT,
    F_WORD_RIGHT
};

/* ---- the line ------------------------------------------------------------ */

struct line line_of(const struct composer *c)
{
    const LineInfoW *li = el_wline(c->el);
    struct line l = {li->buffer, (size_t)(li->lastchar - li->buffer),
                     (size_t)(li->cursor - li->buffer)};
    return l;
}

bool line_is_chip(const struct composer *c, wchar_t w)
{
    return (uint32_t)w >= CHIP_FIRST && (uint32_t)w < CHIP_FIRST + c->n_chips;
}

void line_add_wchar(struct buf *out, wchar_t w)
{
    char u[4];
    uint32_t cp = (uint32_t)w;
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        cp = UTF8_REPLACEMENT;
    }
    buf_add(out, u, (size_t)utf8_put(cp, u));
}

/* Code points of the cluster that starts at i, or ends there. */
static size_t cluster_after(const struct composer *c, const struct line *l, size_t i)
{
    if (i >= l->n) {
        return 0;
    }
    if (l->text[i] == L'\n' || line_is_chip(c, l->text[i])) {
        return 1;
    }
    struct buf b = BUF_INIT;
    size_t end = i;
    while (end < l->n && end - i < 64 && l->text[end] != L'\n' && !line_is_chip(c, l->text[end])) {
        line_add_wchar(&b, l->text[end++]);
    }
    size_t bytes = utf8_cluster_len(b.data, b.len);
    size_t k = 0;
    for (size_t j = 0; j < bytes; j++) {
        k += ((unsigned char)b.data[j] & 0xC0) != 0x80;
    }
    buf_free(&b);
    return k ? k : 1;
}

static size_t cluster_before(const struct composer *c, const struct line *l, size_t i)
{
    if (i == 0) {
        return 0;
    }
    size_t from = i;
    while (from > 0 && i - from < 64 && l->text[from - 1] != L'\n' &&
           !line_is_chip(c, l->text[from - 1])) {
        from--;
    }
    if (from == i) {
        return 1;
    }
    size_t k = 0;
    while (from < i) {
        k = cluster_after(c, l, from);
        from += k;
    }
    return from > i ? 1 : k;
}

size_t line_start(const struct line *l, size_t i)
{
    while (i > 0 && l->text[i - 1] != L'\n') {
        i--;
    }
    return i;
}

static size_t line_end(const struct line *l, size_t i)
{
    while (i < l->n && l->text[i] != L'\n') {
        i++;
    }
    return i;
}

void line_move(struct composer *c, size_t i)
{
    struct line l = line_of(c);
    el_cursor(c->el, (int)i - (int)l.cursor);
}

static size_t draft_bytes(const struct composer *c)
{
    struct line l = line_of(c);
    size_t bytes = 0;
    for (size_t i = 0; i < l.n; i++) {
        uint32_t cp = (uint32_t)l.text[i];
        bytes += cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    }
    return bytes;
}

void line_replace(struct composer *c, const wchar_t *text, size_t n, size_t cursor)
{
    wchar_t *copy = mem_array(n + 1, sizeof *copy);
    memcpy(copy, text, n * sizeof *copy);
    if (n == 0) {
        struct line l = line_of(c);
        line_move(c, l.n);
        el_deletestr(c->el, (int)l.n);
    } else {
        el_wreplacestr(c->el, copy);
        line_move(c, cursor < n ? cursor : n);
    }
    free(copy);
}

/* Removes [from, to); the cursor ends at from. */
static void cut(struct composer *c, size_t from, size_t to, bool keep)
{
    struct line l = line_of(c);
    if (from >= to || to > l.n) {
        return;
    }
    if (keep) {
        free(c->killed);
        c->n_killed = to - from;
        c->killed = mem_array(c->n_killed + 1, sizeof *c->killed);
        memcpy(c->killed, l.text + from, c->n_killed * sizeof *c->killed);
    }
    size_t n = l.n - (to - from);
    wchar_t *rest = mem_array(n + 1, sizeof *rest);
    memcpy(rest, l.text, from * sizeof *rest);
    memcpy(rest + from, l.text + to, (l.n - to) * sizeof *rest);
    line_replace(c, rest, n, from);
    free(rest);
}

/* Well-formed text as wide characters, without NUL; caller frees. */
wchar_t *line_widen(const char *p, size_t n, size_t *out_n)
{
    wchar_t *w = mem_array(n + 1, sizeof *w);
    size_t k = 0;
    size_t i = 0;
    while (i < n) {
        uint32_t cp = 0;
        int used = utf8_decode(p + i, n - i, &cp);
        if (used <= 0) {
            used = 1;
            cp = UTF8_REPLACEMENT;
        }
        i += (size_t)used;
        if (cp) {
            w[k++] = (wchar_t)cp;
        }
    }
    *out_n = k;
    return w;
}

/* ---- undo ---------------------------------------------------------------- */

static void undo_push(struct composer *c, wchar_t *text, size_t n, size_t cursor)
{
    if (c->n_undo == UNDO_MAX) {
        free(c->undo[0].text);
        memmove(c->undo, c->undo + 1, (UNDO_MAX - 1) * sizeof *c->undo);
        c->n_undo--;
    }
    c->undo[c->n_undo++] = (struct undo){text, n, cursor};
}

wchar_t *line_copy(const struct line *l)
{
    wchar_t *w = mem_array(l->n + 1, sizeof *w);
    memcpy(w, l->text, l->n * sizeof *w);
    return w;
}

/* Remembers the line as it was before a change. */
void line_mark(struct composer *c)
{
    struct line l = line_of(c);
    undo_push(c, line_copy(&l), l.n, l.cursor);
}

void composer_undo(struct composer *c)
{
    if (c->n_undo == 0 || c->inside) {
        return;
    }
    struct undo u = c->undo[--c->n_undo];
    line_replace(c, u.text, u.n, u.cursor);
    free(u.text);
}

static void undo_drop(struct composer *c)
{
    for (size_t i = 0; i < c->n_undo; i++) {
        free(c->undo[i].text);
    }
    c->n_undo = 0;
}

/* ---- layout -------------------------------------------------------------- */

/* Bytes of a file's chip that are not the file's: the line with its name. */
static size_t file_head(const struct buf *b)
{
    const size_t n = sizeof COMPOSER_FILE_HEAD - 1;
    const bool has = b->len > n && memcmp(b->data, COMPOSER_FILE_HEAD, n) == 0;
    const char *end = has ? memchr(b->data, '\n', b->len) : NULL;
    return end ? (size_t)(end - b->data) + 1 : 0;
}

void line_chip_label(const struct composer *c, size_t i, char out[64])
{
    const struct buf *b = &c->chips[i];
    const size_t n = b->len - (c->chip_name[i] ? file_head(b) : 0);
    size_t rows = 1, number = 1;
    for (size_t k = 0; k < b->len; k++) {
        rows += b->data[k] == '\n' && k + 1 < b->len;
    }
    for (size_t k = 0; k < i; k++) { /* pastes are counted, not files */
        number += !c->chip_name[k];
    }
    char size[24];
    if (n < 1024) {
        snprintf(size, sizeof size, "%zu byte%s", n, n == 1 ? "" : "s");
    } else if (n < 10240) {
        snprintf(size, sizeof size, "%.1f KB", (double)n / 1024);
    } else if (n < (size_t)10 << 20) {
        snprintf(size, sizeof size, "%zu KB", n / 1024);
    } else {
        snprintf(size, sizeof size, "%zu MB", n >> 20);
    }
    if (c->chip_name[i]) {
        snprintf(out, 64, "[file %s, %s]", c->chip_name[i], size);
        return;
    }
    snprintf(out, 64, "[paste %zu: %zu line%s, %s]", number, rows, rows == 1 ? "" : "s", size);
}

/* Where a character of the line is drawn. */
struct place {
    size_t index; /* in the line */
    int row, col;
};

static void shape(const struct composer *c, const struct line *l, size_t i, size_t k, bool ascii,
                  struct buf *out, uint16_t *style)
{
    buf_truncate(out, 0);
    *style = R_TEXT;
    if (line_is_chip(c, l->text[i])) {
        char label[64];
        line_chip_label(c, (size_t)l->text[i] - CHIP_FIRST, label);
        buf_adds(out, label);
        *style = R_CODE;
        return;
    }
    struct buf raw = BUF_INIT;
    for (size_t j = i; j < i + k; j++) {
        line_add_wchar(&raw, l->text[j]);
    }
    text_filter(raw.data, raw.len, ascii, NULL, out);
    buf_free(&raw);
}

/* Lays the line out; rows may be NULL. Finds the place of index at, and (when
 * nearest is not NULL) the index on row want_row nearest to want_col. */
static struct place walk(const struct composer *c, bool ascii, int width, struct text_rows *rows,
                         size_t at, int want_row, int want_col, size_t *nearest, int *last_row)
{
    struct line l = line_of(c);
    struct place found = {0};
    struct buf b = BUF_INIT;
    int row = 0;
    int col = 0;
    size_t i = 0;
    bool have = false;
    while (i <= l.n) {
        size_t k = cluster_after(c, &l, i);
        uint16_t style = R_TEXT;
        int w = 0;
        if (k && l.text[i] != L'\n') {
            shape(c, &l, i, k, ascii, &b, &style);
            w = text_cells(b.data, b.len);
        }
        if (col > 0 && (col + w > width || (col == width && (k == 0 || i == at)))) {
            if (rows) {
                text_rows_end(rows, false);
            }
            row++;
            col = 0;
        }
        if (!have && i >= at) {
            found = (struct place){i, row, col};
            have = true;
        }
        if (nearest && row == want_row && col <= want_col) {
            *nearest = i;
        }
        if (k == 0) {
            break;
        }
        if (l.text[i] == L'\n') {
            if (rows) {
                text_rows_end(rows, true);
            }
            row++;
            col = 0;
        } else {
            if (rows) {
                text_rows_span(rows, style, b.data, b.len);
            }
            col += w;
        }
        i += k;
    }
    if (rows) {
        text_rows_end(rows, true);
    }
    if (last_row) {
        *last_row = row;
    }
    buf_free(&b);
    return found;
}

const struct text_rows *composer_layout(struct composer *c, const struct theme *th, int width,
                                        int *cur_row, int *cur_col)
{
    c->width = width > 1 ? width : 1;
    text_rows_truncate(&c->rows, 0);
    struct line l = line_of(c);
    struct place p =
        walk(c, th->ascii || !th->utf8, c->width, &c->rows, l.cursor, -1, 0, NULL, NULL);
    *cur_row = p.row;
    *cur_col = p.col;
    return &c->rows;
}

void composer_point(struct composer *c, int row, int col)
{
    struct line l = line_of(c);
    int last = 0;
    size_t to = l.n;
    (void)walk(c, false, c->width, NULL, l.cursor, -1, 0, NULL, &last);
    if (row <= last) { /* else behind the end */
        (void)walk(c, false, c->width, NULL, l.cursor, row, col, &to, NULL);
    }
    line_move(c, to);
}

/* ---- history ------------------------------------------------------------- */

static void set_text(struct composer *c, const char *p, size_t n)
{
    size_t k = 0;
    wchar_t *w = line_widen(p, n, &k);
    line_replace(c, w, k, k);
    free(w);
}

/* The character of a chip with this text, an old one where there is one; 0: no
 * room for another. */
static wchar_t chip_of(struct composer *c, const char *p, size_t n)
{
    size_t i = 0;
    while (i < c->n_chips && (c->chips[i].len != n || memcmp(c->chips[i].data, p, n) != 0)) {
        i++;
    }
    if (i == COMPOSER_CHIPS) {
        return 0;
    }
    if (i == c->n_chips) {
        buf_add(&c->chips[c->n_chips++], p, n);
    }
    return (wchar_t)(CHIP_FIRST + i);
}

static void history_step(struct composer *c, int dir)
{
    const size_t n = history_count(c->hist); /* another pane may have added some */
    if (c->hist_at > n) {
        c->hist_at = n;
    }
    if ((dir < 0 && c->hist_at == 0) || (dir > 0 && c->hist_at >= n)) {
        return;
    }
    if (c->hist_at == n) {
        /* chips keep their code points in the stash */
        struct line l = line_of(c);
        buf_truncate(&c->stash, 0);
        for (size_t i = 0; i < l.n; i++) {
            line_add_wchar(&c->stash, l.text[i]);
        }
    }
    c->hist_at = dir < 0 ? c->hist_at - 1 : c->hist_at + 1;
    if (c->hist_at == n) {
        c->hist_at = HIST_DRAFT;
        set_text(c, c->stash.data ? c->stash.data : "", c->stash.len);
    } else {
        const char *s = history_at(c->hist, c->hist_at);
        size_t len = strlen(s);
        wchar_t chip = len > COMPOSER_DRAFT_MAX / 2 ? chip_of(c, s, len) : 0;
        if (chip) {
            line_replace(c, &chip, 1, 1);
        } else {
            set_text(c, s, len < COMPOSER_DRAFT_MAX ? len : COMPOSER_DRAFT_MAX);
        }
    }
}

/* ---- functions bound in libedit ------------------------------------------ */

static struct composer *self(EditLine *el)
{
    struct composer *c = NULL;
    el_get(el, EL_CLIENTDATA, &c);
    return c;
}

static unsigned char fn_left(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    line_move(c, l.cursor - cluster_before(c, &l, l.cursor));
    return CC_REFRESH;
}

static unsigned char fn_right(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    line_move(c, l.cursor + cluster_after(c, &l, l.cursor));
    return CC_REFRESH;
}

static unsigned char vertical(EditLine *el, int dir)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    int last = 0;
    struct place p = walk(c, false, c->width, NULL, l.cursor, -1, 0, NULL, &last);
    if (p.row + dir < 0 || p.row + dir > last) {
        history_step(c, dir);
        return CC_REFRESH;
    }
    size_t to = l.cursor;
    walk(c, false, c->width, NULL, l.cursor, p.row + dir, p.col, &to, NULL);
    line_move(c, to);
    return CC_REFRESH;
}

static unsigned char fn_up(EditLine *el, wint_t ch)
{
    (void)ch;
    return vertical(el, -1);
}

static unsigned char fn_down(EditLine *el, wint_t ch)
{
    (void)ch;
    return vertical(el, 1);
}

static unsigned char fn_backspace(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    cut(c, l.cursor - cluster_before(c, &l, l.cursor), l.cursor, false);
    return CC_REFRESH;
}

static unsigned char fn_delete(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    cut(c, l.cursor, l.cursor + cluster_after(c, &l, l.cursor), false);
    return CC_REFRESH;
}

static unsigned char fn_home(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    line_move(c, line_start(&l, l.cursor));
    return CC_REFRESH;
}

static unsigned char fn_end(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    line_move(c, line_end(&l, l.cursor));
    return CC_REFRESH;
}

static unsigned char fn_newline(EditLine *el, wint_t ch)
{
    (void)ch;
    el_winsertstr(el, L"\n");
    return CC_REFRESH;
}

/* Word ends are spaces and line ends, as in the shell. */
static size_t word_before(const struct line *l, size_t i)
{
    while (i > 0 && (l->text[i - 1] == L' ' || l->text[i - 1] == L'\n')) {
        i--;
    }
    while (i > 0 && l->text[i - 1] != L' ' && l->text[i - 1] != L'\n') {
        i--;
    }
    return i;
}

static size_t word_after(const struct line *l, size_t i)
{
    while (i < l->n && (l->text[i] == L' ' || l->text[i] == L'\n')) {
        i++;
    }
    while (i < l->n && l->text[i] != L' ' && l->text[i] != L'\n') {
        i++;
    }
    return i;
}

static unsigned char fn_word_left(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    line_move(c, word_before(&l, l.cursor));
    return CC_REFRESH;
}

static unsigned char fn_word_right(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    line_move(c, word_after(&l, l.cursor));
    return CC_REFRESH;
}

static unsigned char fn_cut_word(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    cut(c, word_before(&l, l.cursor), l.cursor, true);
    return CC_REFRESH;
}

static unsigned char fn_cut_word_after(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    cut(c, l.cursor, word_after(&l, l.cursor), true);
    return CC_REFRESH;
}

static unsigned char fn_cut_start(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    cut(c, line_start(&l, l.cursor), l.cursor, true);
    return CC_REFRESH;
}

static unsigned char fn_cut_end(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    struct line l = line_of(c);
    (void)ch;
    size_t end = line_end(&l, l.cursor);
    cut(c, l.cursor, end == l.cursor && end < l.n ? end + 1 : end, true);
    return CC_REFRESH;
}

static unsigned char fn_yank(EditLine *el, wint_t ch)
{
    struct composer *c = self(el);
    (void)ch;
    if (c->n_killed && draft_bytes(c) + c->n_killed * 4 <= COMPOSER_DRAFT_MAX) {
        el_winsertstr(el, c->killed);
    }
    return CC_REFRESH;
}

static unsigned char fn_nothing(EditLine *el, wint_t ch)
{
    (void)el;
    (void)ch;
    return CC_NORM;
}

struct bound {
    const wchar_t *name;
    const char *fn; /* the same name for EL_BIND */
    unsigned char (*call)(EditLine *, wint_t);
    const char *keys[4];    /* in both modes (vi: while inserting) */
    const char *emacs[3];   /* with Emacs keys only */
    const char *command[3]; /* vi's command mode */
};

static const struct bound bounds[] = {
    {L"q-left", "q-left", fn_left, {"\\200"}, {"^B"}, {"\\200", "h"}},
    {L"q-right", "q-right", fn_right, {"\\201"}, {"^F"}, {"\\201", "l"}},
    {L"q-up", "q-up", fn_up, {"\\202"}, {"^P"}, {"\\202", "k"}},
    {L"q-down", "q-down", fn_down, {"\\203"}, {"^N"}, {"\\203", "j"}},
    {L"q-delete", "q-delete", fn_delete, {"\\204"}, {"^D"}, {"\\204"}},
    {L"q-home", "q-home", fn_home, {"\\205"}, {"^A"}, {"\\205"}},
    {L"q-end", "q-end", fn_end, {"\\206"}, {"^E"}, {"\\206"}},
    {L"q-newline", "q-newline", fn_newline, {"\\207"}, {NULL}, {"\\207"}},
    {L"q-backspace", "q-backspace", fn_backspace, {"\\210", "^?", "^H"}, {NULL}, {NULL}},
    {L"q-word-left", "q-word-left", fn_word_left, {"\\211"}, {NULL}, {"\\211"}},
    {L"q-word-right", "q-word-right", fn_word_right, {"\\212"}, {NULL}, {"\\212"}},
    {L"q-cut-word", "q-cut-word", fn_cut_word, {"^W"}, {"\\e^?", "\\e^H"}, {NULL}},
    {L"q-cut-word-after", "q-cut-word-after", fn_cut_word_after, {NULL}, {"\\ed"}, {NULL}},
    {L"q-cut-start", "q-cut-start", fn_cut_start, {"^U"}, {NULL}, {NULL}},
    {L"q-cut-end", "q-cut-end", fn_cut_end, {"^K"}, {NULL}, {NULL}},
    {L"q-yank", "q-yank", fn_yank, {NULL}, {"^Y"}, {NULL}},
    /* keys of ours, and commands that would talk to a terminal nobody sees */
    {L"q-nothing",
     "q-nothing",
     fn_nothing,
     {"^R", "^S", "^Z"},
     {"^G", "\\ex", "^L"},
     {"v", ":", "#"}},
    {L"q-nothing2",
     "q-nothing2",
     fn_nothing,
     {"^C", "^Q", "^\\\\"},
     {"^O", "^X^E", NULL},
     {"\\e", "/", "?"}},
    {L"q-nothing3", "q-nothing3", fn_nothing, {"^J", "^M", NULL}, {NULL}, {"^J", "^M", "\\210"}},
};

static void bind_keys(struct composer *c)
{
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const struct bound *b = &bounds[i];
        for (size_t k = 0; k < 4 && b->keys[k]; k++) {
            el_set(c->el, EL_BIND, b->keys[k], b->fn, NULL);
        }
        for (size_t k = 0; k < 3 && b->emacs[k] && !c->vi; k++) {
            el_set(c->el, EL_BIND, b->emacs[k], b->fn, NULL);
        }
        for (size_t k = 0; k < 3 && b->command[k] && c->vi; k++) {
            el_set(c->el, EL_BIND, "-a", b->command[k], b->fn, NULL);
        }
    }
    if (c->vi) {
        el_set(c->el, EL_BIND, "^D", "q-nothing", NULL);
        el_set(c->el, EL_BIND, "\\e", "vi-command-mode", NULL);
    }
}

/* ---- keys ---------------------------------------------------------------- */

static int get_char(EditLine *el, wchar_t *out)
{
    struct composer *c = self(el);
    while (c->q_len == 0) {
        c->pending = true;
        bool go_on = !c->give_up && c->wait(c->wait_ctx);
        c->pending = false;
        if (!go_on || c->give_up) {
            c->give_up = true;
            errno = EINTR;
            return -1;
        }
    }
    *out = c->queue[c->q_head];
    c->q_head = (c->q_head + 1) % QUEUE_MAX;
    c->q_len--;
    return 1;
}

static void enqueue(struct composer *c, wchar_t w)
{
    if (c->q_len < QUEUE_MAX) {
        c->queue[(c->q_head + c->q_len++) % QUEUE_MAX] = w;
    }
}

/* Runs commands until the queue is empty. */
static void run(struct composer *c)
{
    if (c->inside) {
        return; /* the command that waits will take the key */
    }
    c->inside = true;
    c->give_up = false;
    while (c->q_len > 0 && !c->give_up) {
        struct line before = line_of(c);
        wchar_t *old = line_copy(&before);
        size_t cursor = before.cursor;
        size_t n = before.n;
        int got = 0;
        (void)el_wgets(c->el, &got);
        struct line after = line_of(c);
        if (c->give_up && after.n == n + 1 && after.text[n] == 0x04) {
            cut(c, n, n + 1, false); /* libedit's mark of an end of input */
            after = line_of(c);
        }
        /* a letter typed after another one is undone together with it */
        bool typed = after.n == n + 1 && c->n_undo > 0 && after.cursor > 0 &&
                     after.text[after.cursor - 1] != L' ' &&
                     after.text[after.cursor - 1] != L'\n' && cursor > 0 && n > 0;
        if (after.n != n || memcmp(old, after.text, n * sizeof *old) != 0) {
            if (typed) {
                free(old);
            } else {
                undo_push(c, old, n, cursor);
            }
        } else {
            free(old);
        }
    }
    c->q_len = 0;
    c->inside = false;
    c->give_up = false;
}

int composer_key(struct composer *c, const struct key *k, struct err *e)
{
    static const wchar_t named[] = {
        [K_UP] = F_UP,     [K_DOWN] = F_DOWN, [K_LEFT] = F_LEFT,     [K_RIGHT] = F_RIGHT,
        [K_HOME] = F_HOME, [K_END] = F_END,   [K_DELETE] = F_DELETE, [K_BACKSPACE] = F_BACKSPACE,
    };
    if (k->type == K_CHAR) {
        uint32_t w = k->code;
        if (k->mods & KM_CTRL) {
            w = w == ' ' ? 0 : w & 0x1F;
            if (w == 0) {
                return 0; /* a NUL would end the line */
            }
        } else if (!(k->mods & KM_ALT)) {
            if (draft_bytes(c) + 4 > COMPOSER_DRAFT_MAX) {
                return err_set(e, QE_NOMEM, "the draft is full (32 KB); paste longer texts");
            }
            if (w >= CHIP_FIRST && w < CHIP_FIRST + COMPOSER_CHIPS) {
                w = UTF8_REPLACEMENT; /* not a chip of ours */
            }
            if (w >= 0x80 && w < 0x100 && !c->inside) {
                /* libedit looks these up as keys in some locales */
                wchar_t s[2] = {(wchar_t)w, 0};
                line_mark(c);
                el_winsertstr(c->el, s);
                return 0;
            }
        }
        if (k->mods & KM_ALT) {
            enqueue(c, 0x1B);
        }
        enqueue(c, (wchar_t)w);
    } else if (k->type == K_ESC) {
        enqueue(c, 0x1B);
    } else if ((k->type == K_LEFT || k->type == K_RIGHT) && (k->mods & (KM_CTRL | KM_ALT))) {
        enqueue(c, k->type == K_LEFT ? F_WORD_LEFT : F_WORD_RIGHT);
    } else if (k->type == K_BACKSPACE && (k->mods & KM_ALT)) {
        enqueue(c, 0x17);
    } else if (k->type < sizeof named / sizeof *named && named[k->type]) {
        enqueue(c, named[k->type]);
    } else {
        return 0;
    }
    run(c);
    return 0;
}

void composer_newline(struct composer *c)
{
    if (draft_bytes(c) < COMPOSER_DRAFT_MAX) {
        enqueue(c, F_NEWLINE);
        run(c);
    }
}

bool composer_enter(struct composer *c)
{
    struct line l = line_of(c);
    if (c->inside || l.cursor == 0 || l.text[l.cursor - 1] != L'\\') {
        return true;
    }
    line_mark(c);
    cut(c, l.cursor - 1, l.cursor, false);
    el_winsertstr(c->el, L"\n");
    return false;
}

/* Text that the line can hold and give back byte for byte; *rows counts its lines. */
bool line_holds(const char *p, size_t n, size_t *rows)
{
    if (!utf8_valid(p, n)) {
        return false;
    }
    size_t i = 0;
    *rows = 1;
    while (i < n) {
        uint32_t cp = 0;
        i += (size_t)utf8_decode(p + i, n - i, &cp);
        *rows += cp == '\n';
        if ((cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7F && cp < 0xA0) ||
            (cp >= CHIP_FIRST && cp < CHIP_FIRST + COMPOSER_CHIPS)) {
            return false;
        }
    }
    return true;
}

/* … and that is shown as text when it is pasted. */
static bool plain_paste(const char *p, size_t n)
{
    size_t rows = 0;
    return n <= COMPOSER_CHIP_SIZE && line_holds(p, n, &rows) && rows <= COMPOSER_CHIP_ROWS;
}

/* Makes another chip; *out is its character. */
int line_make_chip(struct composer *c, const char *name, const char *p, size_t n, wchar_t *out,
                   struct err *e)
{
    if (c->n_chips == COMPOSER_CHIPS || draft_bytes(c) + 4 > COMPOSER_DRAFT_MAX) {
        return err_set(e, QE_NOMEM, "no room for another paste or file (%d in one message)",
                       COMPOSER_CHIPS);
    }
    buf_add(&c->chips[c->n_chips], p, n);
    if (name) {
        struct buf b = BUF_INIT;
        text_filter(name, strlen(name), false, NULL, &b);
        size_t fit = b.len < 40 ? b.len : 40; /* room for the label's other words */
        while (fit < b.len && fit > 0 && ((unsigned char)b.data[fit] & 0xC0) == 0x80) {
            fit--;
        }
        c->chip_name[c->n_chips] = mem_strndup(b.data ? b.data : "", fit);
        buf_free(&b);
    }
    *out = (wchar_t)(CHIP_FIRST + c->n_chips++);
    return 0;
}

int composer_paste(struct composer *c, const char *p, size_t n, struct err *e)
{
    if (n == 0 || c->inside) {
        return 0;
    }
    line_mark(c);
    if (plain_paste(p, n) && draft_bytes(c) + n <= COMPOSER_DRAFT_MAX) {
        size_t k = 0;
        wchar_t *w = line_widen(p, n, &k);
        el_winsertstr(c->el, w);
        free(w);
        return 0;
    }
    wchar_t s[2] = {0, 0};
    int rc = line_make_chip(c, NULL, p, n, s, e);
    if (rc == 0) {
        el_winsertstr(c->el, s);
    }
    return rc;
}

bool composer_command(const struct composer *c, size_t from, struct line_command *out)
{
    struct line l = line_of(c);
    for (size_t i = from; i < l.n; i = line_end(&l, i) + 1) {
        size_t at = i;
        while (at < l.n && (l.text[at] == L' ' || line_is_chip(c, l.text[at]))) {
            at++;
        }
        if (at == l.n || l.text[at] != L'/') {
            continue;
        }
        buf_truncate(&out->text, 0);
        out->at = at;
        for (; at < l.n && l.text[at] != L'\n' && !line_is_chip(c, l.text[at]); at++) {
            line_add_wchar(&out->text, l.text[at]);
        }
        out->end = at;
        while (at < l.n && (l.text[at] == L' ' || l.text[at] == L'\n')) {
            at++;
        }
        out->last = at == l.n;
        return true;
    }
    return false;
}

int composer_attach(struct composer *c, const struct line_command *in, const char *name,
                    const char *p, size_t n, struct err *e)
{
    wchar_t chip = 0;
    struct line l = line_of(c);
    if (c->inside || in->at >= in->end || in->end > l.n) {
        return err_set(e, QE_BUSY, "the draft is being edited");
    }
    int rc = line_make_chip(c, name, p, n, &chip, e);
    if (rc < 0) {
        return rc;
    }
    line_mark(c);
    const size_t cut_n = in->end - in->at - 1; /* characters fewer */
    const size_t cursor = l.cursor > in->end  ? l.cursor - cut_n
                          : l.cursor > in->at ? in->at + 1
                                              : l.cursor;
    wchar_t *text = line_copy(&l);
    text[in->at] = chip;
    memmove(text + in->at + 1, text + in->end, (l.n - in->end) * sizeof *text);
    line_replace(c, text, l.n - cut_n, cursor);
    free(text);
    return 0;
}

bool composer_pending(const struct composer *c)
{
    return c->pending;
}

void composer_give_up(struct composer *c)
{
    c->give_up = true;
}

bool composer_empty(const struct composer *c)
{
    return line_of(c).n == 0;
}

void composer_text(const struct composer *c, struct buf *out)
{
    struct line l = line_of(c);
    for (size_t i = 0; i < l.n; i++) {
        if (line_is_chip(c, l.text[i])) {
            const size_t k = (size_t)l.text[i] - CHIP_FIRST;
            const struct buf *b = &c->chips[k];
            buf_add(out, b->data, b->len);
            if (c->chip_name[k] && b->len > 0 && b->data[b->len - 1] != '\n') {
                buf_addc(out, '\n'); /* what is written behind a file is none of it */
            }
        } else {
            line_add_wchar(out, l.text[i]);
        }
    }
}

void composer_display(const struct composer *c, struct buf *out)
{
    struct line l = line_of(c);
    for (size_t i = 0; i < l.n; i++) {
        if (line_is_chip(c, l.text[i])) {
            char label[64];
            line_chip_label(c, (size_t)l.text[i] - CHIP_FIRST, label);
            buf_adds(out, label);
        } else {
            line_add_wchar(out, l.text[i]);
        }
    }
}

static void drop_kept(struct composer *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_free(&c->kept[i]);
    }
    c->n_kept -= n;
    if (c->n_kept > 0) {
        memmove(c->kept, c->kept + n, c->n_kept * sizeof *c->kept);
    }
}

/* Takes the bytes of a paste, so that it can be put into another draft. */
static void keep_paste(struct composer *c, struct buf *bytes)
{
    size_t total = bytes->len;
    size_t n = 0;
    for (size_t i = 0; i < c->n_kept; i++) {
        const struct buf *b = &c->kept[i];
        if (b->len == bytes->len && memcmp(b->data, bytes->data, b->len) == 0) {
            buf_free(bytes); /* it was put in again */
            return;
        }
        total += b->len;
    }
    for (; n < c->n_kept && total > COMPOSER_KEPT; n++) {
        total -= c->kept[n].len;
    }
    drop_kept(c, n);
    c->kept = mem_realloc(c->kept, (c->n_kept + 1) * sizeof *c->kept);
    c->kept[c->n_kept++] = *bytes;
    *bytes = (struct buf)BUF_INIT;
}

static void drop_chips(struct composer *c)
{
    for (size_t i = 0; i < c->n_chips; i++) {
        if (c->chip_name[i]) {
            buf_free(&c->chips[i]);
        } else {
            keep_paste(c, &c->chips[i]);
        }
        free(c->chip_name[i]);
        c->chip_name[i] = NULL;
    }
    c->n_chips = 0;
}

void composer_clear(struct composer *c)
{
    el_set(c->el, EL_UNBUFFERED, 0);
    el_set(c->el, EL_UNBUFFERED, 1);
    drop_chips(c);
    undo_drop(c);
    c->hist_at = HIST_DRAFT;
    free(c->killed); /* it may hold a chip that is gone */
    c->killed = NULL;
    c->n_killed = 0;
}

void composer_set(struct composer *c, const char *p, size_t n)
{
    size_t rows = 0;
    composer_clear(c);
    if (n > COMPOSER_DRAFT_MAX / 2 || !line_holds(p, n, &rows)) {
        (void)composer_paste(c, p, n, NULL); /* an empty draft has room for a chip */
        return;
    }
    set_text(c, p, n);
}

/* ---- making -------------------------------------------------------------- */

static wchar_t *no_prompt(EditLine *el)
{
    static wchar_t empty[] = L"";
    (void)el;
    return empty;
}

void composer_set_editor(struct composer *c, bool vi)
{
    c->vi = vi;
    el_set(c->el, EL_EDITOR, vi ? "vi" : "emacs");
    bind_keys(c);
}

bool composer_is_vi(const struct composer *c)
{
    return c->vi;
}

struct composer *composer_create(bool vi, struct history *h, bool (*wait)(void *), void *ctx,
                                 struct err *e)
{
    struct composer *c = mem_zalloc(sizeof *c);
    struct winsize ws = {.ws_row = 24, .ws_col = 80};
    c->hist = h;
    c->hist_at = HIST_DRAFT;
    c->wait = wait;
    c->wait_ctx = ctx;
    c->width = 80;
    c->master = -1;
    c->slave = -1;
    if (openpty(&c->master, &c->slave, NULL, NULL, &ws) < 0) {
        err_sys(e, QE_IO, errno, "no pseudo-terminal for the line editor (use --plain)");
        composer_free(c);
        return NULL;
    }
    c->slave_in = fdopen(dup(c->slave), "r");
    c->slave_out = fdopen(dup(c->slave), "w");
    c->devnull = fopen("/dev/null", "we");
    if (c->slave_in && c->slave_out && c->devnull) {
        c->el = el_init("quasar", c->slave_in, c->slave_out, c->devnull);
    }
    if (!c->el) {
        err_set(e, QE_IO, "the line editor does not start (use --plain)");
        composer_free(c);
        return NULL;
    }
    el_set(c->el, EL_SETFP, 1, c->devnull);
    el_set(c->el, EL_CLIENTDATA, c);
    el_set(c->el, EL_SIGNAL, 0);
    el_wset(c->el, EL_PROMPT, no_prompt);
    el_wset(c->el, EL_GETCFN, get_char);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        el_wset(c->el, EL_ADDFN, bounds[i].name, bounds[i].name, bounds[i].call);
    }
    /* for the editor's own searches */
    HistEventW ev;
    c->hist_w = history_winit();
    if (c->hist_w) {
        history_w(c->hist_w, &ev, H_SETSIZE, 1000);
        for (size_t i = 0; i < history_count(h); i++) {
            size_t n = 0;
            const char *s = history_at(h, i);
            wchar_t *w = line_widen(s, strlen(s), &n);
            history_w(c->hist_w, &ev, H_ENTER, w);
            free(w);
        }
        el_wset(c->el, EL_HIST, history_w, c->hist_w);
    }
    composer_set_editor(c, vi);
    el_source(c->el, NULL); /* ~/.editrc, its lines for "quasar:" */
    el_set(c->el, EL_UNBUFFERED, 1);
    return c;
}

void composer_free(struct composer *c)
{
    if (!c) {
        return;
    }
    if (c->el) {
        el_end(c->el);
    }
    if (c->hist_w) {
        history_wend(c->hist_w);
    }
    FILE *files[] = {c->slave_in, c->slave_out, c->devnull};
    for (size_t i = 0; i < 3; i++) {
        if (files[i]) {
            fclose(files[i]);
        }
    }
    if (c->slave >= 0) {
        close(c->slave);
        close(c->master);
    }
    drop_chips(c);
    drop_kept(c, c->n_kept);
    free(c->kept);
    undo_drop(c);
    free(c->killed);
    buf_free(&c->stash);
    text_rows_free(&c->rows);
    free(c);
}
