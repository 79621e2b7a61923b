/* The window on a conversation's blocks. A block caches its rows per width and fold state; only an
 * open one is laid out again. The view is anchored to a block and a row of it, or follows the
 * end. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tui/transcript_inside.h"

#define NEAR       32 /* blocks before and after the view whose rows are kept at most … */
#define KEPT_BYTES ((size_t)1 << 20) /* … and how much of memory they may take together */
#define COUNT_ALL  64                /* blocks of a conversation whose rows are always counted */
#define ROWS_MOST  100000            /* that are counted */

/* ---- layout -------------------------------------------------------------- */

static void barred(struct text_rows *out, const struct theme *th, enum glyph bar, uint16_t style,
                   const char *p, size_t n, int width)
{
    struct text_prefix pre = {0};
    struct text_flow f = {0};
    text_prefix_push(&pre, R_BORDER, " ");
    text_prefix_push(&pre, R_BORDER, theme_glyph(th, bar));
    text_prefix_push(&pre, R_TEXT, " ");
    text_flow_add(&f, style, p, n, th->ascii || !th->utf8);
    struct text_wrap w = {.width = width, .mode = WRAP_WORD, .first = &pre, .next = &pre};
    text_wrap(out, &f, &w);
    text_flow_free(&f);
}

static void seconds_text(double s, char out[24])
{
    if (s < 0) {
        snprintf(out, 24, "-");
    } else if (s < 60) {
        snprintf(out, 24, "%.1f s", s);
    } else {
        snprintf(out, 24, "%d min %d s", (int)s / 60, (int)s % 60);
    }
}

static void header(struct text_rows *out, const struct theme *th, const struct block *b, int width)
{
    text_rows_puts(out, R_TEXT | TEXT_DECOR, " ");
    if (b->kind == B_USER) {
        text_rows_puts(out, R_USER | TEXT_DECOR, "you");
    } else {
        text_rows_puts(out, R_MODEL | TEXT_DECOR, "model");
    }
    char s[96];
    snprintf(s, sizeof s, "  %s", b->clock);
    text_rows_puts(out, R_DIM | TEXT_DECOR, s);
    if (b->kind == B_MODEL && b->thought.len) {
        char secs[24];
        seconds_text(b->thought_s, secs);
        const char *hint = b->thought_over && !b->unfolded ? " (z opens)" : "";
        for (int full = 2; full >= 0; full--) { /* what does not fit is dropped whole */
            snprintf(s, sizeof s, "  %s %s%s%s", theme_glyph(th, b->unfolded ? G_OPEN : G_FOLDED),
                     b->thought_over ? "thought for " : "thinking ", secs, "");
            size_t n = strlen(s);
            if (full > 0 && b->thought_tokens < 0) {
                n += (size_t)snprintf(s + n, sizeof s - n, ", - tokens");
            } else if (full > 0 && b->thought_tokens > 0) {
                n += (size_t)snprintf(s + n, sizeof s - n, ", %d tokens", b->thought_tokens);
            }
            if (full > 1) {
                snprintf(s + n, sizeof s - n, "%s", hint);
            }
            if (out->cells + text_cells(s, strlen(s)) <= width) {
                text_rows_puts(out, R_THOUGHT | TEXT_DECOR, s);
                break;
            }
        }
    }
    if (b->waiting) {
        snprintf(s, sizeof s, "  %.80s", b->note);
        if (out->cells + text_cells(s, strlen(s)) <= width) {
            text_rows_puts(out, R_DIM | TEXT_DECOR, s);
        }
    }
    text_rows_end(out, true);
}

void block_thought(const struct block *b, const char **p, size_t *n)
{
    const struct buf *t = &b->thought;
    size_t from = 0;
    *n = t->len;
    while (*n && t->data[*n - 1] == '\n') {
        --*n;
    }
    while (from < *n && t->data[from] == '\n') {
        from++;
    }
    *p = t->data ? t->data + from : "";
    *n -= from;
}

void block_layout(struct block *b, const struct theme *th, int width)
{
    if (b->width == width) {
        return;
    }
    b->width = width;
    text_rows_truncate(&b->head, 0);
    text_rows_truncate(&b->tail, 0);
    b->body = NULL;
    switch (b->kind) {
    case B_NOTICE: {
        struct text_prefix pre = {0};
        struct text_flow f = {0};
        if (b->waiting) {
            header(&b->head, th, b, width);
            break;
        }
        text_prefix_push(&pre, R_TEXT, " ");
        text_flow_add(&f, (uint16_t)b->note_role, b->shown.data, b->shown.len,
                      th->ascii || !th->utf8);
        struct text_wrap w = {.width = width, .mode = WRAP_WORD, .first = &pre, .next = &pre};
        text_wrap(&b->head, &f, &w);
        text_flow_free(&f);
        break;
    }
    case B_USER:
        header(&b->head, th, b, width);
        barred(&b->head, th, G_BAR, R_TEXT, b->shown.data, b->shown.len, width);
        break;
    case B_MODEL:
        header(&b->head, th, b, width);
        if (b->thought.len && b->unfolded) {
            const char *p = NULL;
            size_t n = 0;
            block_thought(b, &p, &n);
            barred(&b->head, th, G_THOUGHT, R_THOUGHT, p, n, width);
        }
        b->body = md_layout(b->answer, th, width > 3 ? width - 3 : 1);
        if (b->note[0]) {
            barred(&b->tail, th, G_BAR, (uint16_t)b->note_role, b->note, strlen(b->note), width);
        }
        break;
    }
    text_rows_end(&b->tail, true); /* the blank row between blocks */
    b->rows = b->head.n_rows + (b->body ? b->body->n_rows : 0) + b->tail.n_rows;
    b->rows_width = width;
}

size_t block_height(struct block *b, const struct theme *th, int width)
{
    if (b->rows_width != width) {
        block_layout(b, th, width);
    }
    return b->rows;
}

/* Marks row i of an answer, if it is one of the code that is selected. */
static void mark_code(const struct transcript *t, const struct block *b, const struct theme *th,
                      int y, int x, int width, size_t i)
{
    size_t row = 0;
    size_t rows = 0;
    if (t->code > md_codes(b->answer)) {
        return;
    }
    md_code_rows(b->answer, t->code - 1, &row, &rows);
    const int cells = text_cells(t->code_hint, strlen(t->code_hint));
    if (i >= row && i < row + rows && width > 1) {
        (void)text_put(th, y, x + 1, 1, R_USER, theme_glyph(th, G_SELBAR));
    }
    if (i == row && cells + 12 < width) {
        (void)text_put(th, y, x + width - cells - 2, cells, R_USER, t->code_hint);
    }
}

/* Draws row i of a laid-out block. */
static void draw_block_row(const struct transcript *t, size_t block, const struct theme *th, int y,
                           int x, int width, size_t i)
{
    const struct block *b = t->block[block];
    const bool selected = t->selected == (int)block;
    const bool last = i + 1 == b->rows;
    size_t body = b->body ? b->body->n_rows : 0;
    uint16_t header_bits = selected && i == 0 ? STYLE_REVERSE : 0;
    if (i < b->head.n_rows) {
        text_draw_row(th, y, x, width, &b->head, i, header_bits);
        find_mark(t, block, th, y, x, width, true, i);
    } else if (i < b->head.n_rows + body) {
        text_draw_row(th, y, x + 3, width - 3, b->body, i - b->head.n_rows, 0);
        char bar[12];
        snprintf(bar, sizeof bar, " %s ", theme_glyph(th, G_BAR));
        (void)text_put(th, y, x, width < 3 ? width : 3, R_BORDER, bar);
        find_mark(t, block, th, y, x + 3, width - 3, false, i - b->head.n_rows);
    } else {
        text_draw_row(th, y, x, width, &b->tail, i - b->head.n_rows - body, 0);
    }
    if (selected && t->code > 0 && b->body && i >= b->head.n_rows) {
        mark_code(t, b, th, y, x, width, i - b->head.n_rows);
    }
    if (selected && t->code == 0 && i > 0 && !last) {
        (void)text_put(th, y, x + 1, width - 1 < 1 ? 0 : 1, R_USER, theme_glyph(th, G_SELBAR));
    }
    /* where the next token will appear */
    if (b->open && b->body && body && i + 1 == b->head.n_rows + body) {
        size_t at = b->body->rows[body - 1].at;
        int cells = text_cells(b->body->text.data + at, b->body->text.len - at);
        if (3 + cells < width) {
            (void)text_put(th, y, x + 3 + cells, 1, R_MODEL, theme_glyph(th, G_CURSOR));
        }
    }
}

/* ---- the view ------------------------------------------------------------ */

void view_step_up(struct transcript *t, const struct theme *th, int width, size_t *block,
                  size_t *row, size_t rows)
{
    while (rows > 0) {
        if (*row >= rows) {
            *row -= rows;
            return;
        }
        rows -= *row;
        if (*block == 0) {
            *row = 0;
            return;
        }
        (*block)--;
        *row = block_height(t->block[*block], th, width);
    }
}

/* Rows from (block, row) to the end, as far as `most` of them; the last blank row does not
 * count. */
static size_t rows_from(struct transcript *t, const struct theme *th, int width, size_t block,
                        size_t row, size_t most)
{
    size_t sum = 0;
    for (size_t i = block; i < t->n && sum <= most + row + 1; i++) {
        sum += block_height(t->block[i], th, width);
    }
    sum = sum > row ? sum - row : 0;
    return sum > 0 ? sum - 1 : 0;
}

/* The same; -1: a long conversation has blocks there that were never on the screen. */
static int rows_known(struct transcript *t, const struct theme *th, int width, size_t block,
                      size_t row)
{
    for (size_t i = block; i < t->n && t->n > COUNT_ALL; i++) {
        if (t->block[i]->rows_width != width) {
            return -1;
        }
    }
    const size_t n = rows_from(t, th, width, block, row, ROWS_MOST);
    return n < ROWS_MOST ? (int)n : ROWS_MOST;
}

/* A scroll that was asked for is carried out by the next drawing, which knows
 * the width. */
void transcript_scroll(struct transcript *t, int rows)
{
    if (t->n == 0) {
        return;
    }
    if (rows < 0) {
        t->follow = false;
    }
    size_t up = rows < 0 ? (size_t)-rows : 0;
    while (up > 0) {
        if (t->top_row >= up) {
            t->top_row -= up;
            break;
        }
        up -= t->top_row;
        t->top_row = 0;
        if (t->top_block == 0) {
            break;
        }
        t->top_block--;
        struct block *b = t->block[t->top_block];
        if (b->rows_width == 0) {
            break; /* never laid out: its first row is near enough */
        }
        t->top_row = b->rows;
    }
    if (rows > 0 && !t->follow) {
        t->top_row += (size_t)rows;
    }
}

void transcript_top(struct transcript *t)
{
    t->follow = false;
    t->top_block = 0;
    t->top_row = 0;
}

void transcript_follow(struct transcript *t)
{
    t->follow = true;
}

/* Makes the anchor a real place: rows over the end of a block belong to the
 * next one, and the view never starts so low that it is not full. */
void view_settle(struct transcript *t, const struct theme *th, int height, int width)
{
    size_t h = height > 0 ? (size_t)height : 1;
    if (!t->follow) {
        if (t->top_block >= t->n) {
            t->top_block = t->n - 1;
            t->top_row = 0;
        }
        while (t->top_row >= block_height(t->block[t->top_block], th, width)) {
            if (t->top_block + 1 >= t->n) {
                t->follow = true;
                break;
            }
            t->top_row -= block_height(t->block[t->top_block], th, width);
            t->top_block++;
        }
        if (!t->follow && rows_from(t, th, width, t->top_block, t->top_row, h) <= h) {
            t->follow = true;
        }
    }
    if (t->follow) {
        t->top_block = t->n - 1;
        t->top_row = block_height(t->block[t->n - 1], th, width) - 1;
        view_step_up(t, th, width, &t->top_block, &t->top_row, h);
    }
}

bool transcript_following(const struct transcript *t)
{
    return t->follow;
}

/* While the view follows, everything is seen; else what comes is counted. */
static void note_end(struct transcript *t, const struct theme *th, int width)
{
    const size_t rows = block_height(t->block[t->n - 1], th, width) - 1;
    if (t->follow || t->seen_block >= t->n) {
        t->seen_block = t->n - 1;
        t->seen_row = rows;
        t->fresh = 0;
    } else {
        const size_t n = rows_from(t, th, width, t->seen_block, t->seen_row, ROWS_MOST);
        t->fresh = n < ROWS_MOST ? (int)n : ROWS_MOST;
    }
}

int transcript_fresh_rows(const struct transcript *t)
{
    return t->fresh;
}

/* Gives the cache back; how many rows there are stays known. */
static void forget_rows(struct block *b)
{
    text_rows_free(&b->head);
    text_rows_free(&b->tail);
    b->head = b->tail = (struct text_rows){0};
    if (b->answer) {
        md_forget(b->answer);
    }
    b->body = NULL;
    b->width = 0;
}

static size_t rows_bytes(const struct text_rows *r)
{
    return r->text.cap + r->cap_runs * sizeof *r->runs + r->cap_rows * sizeof *r->rows;
}

static size_t block_bytes(const struct block *b)
{
    return rows_bytes(&b->head) + (b->body ? rows_bytes(b->body) : 0);
}

/* The rows of what is near the view, which ends in block `last`, are kept as long as they are not
 * too many; those that can be seen, always. */
static void forget_far(struct transcript *t, size_t last)
{
    size_t kept = 0;
    for (size_t d = 1; d < t->n; d++) {
        const bool far = d > NEAR || kept > KEPT_BYTES;
        const size_t side[2] = {t->top_block - d, last + d}; /* below 0: beyond all */
        for (int k = 0; k < 2; k++) {
            struct block *b = side[k] < t->n ? t->block[side[k]] : NULL;
            if (b && far && b->width) {
                forget_rows(b);
            } else if (b && b->width) {
                kept += block_bytes(b);
            }
        }
        if (side[0] >= t->n && side[1] >= t->n) {
            break;
        }
    }
}

int transcript_draw(struct transcript *t, const struct theme *th, int y, int x, int height,
                    int width)
{
    t->height = height;
    if (t->n == 0) {
        for (int i = 0; i < height; i++) {
            text_blank(th, y + i, x, width);
        }
        return 0;
    }
    view_settle(t, th, height, width);
    if (t->search) {
        find_view(t, th, height, width);
    }
    note_end(t, th, width);
    size_t block = t->top_block;
    size_t row = t->top_row;
    int i = 0;
    for (; i < height && block < t->n; i++) {
        struct block *b = t->block[block];
        block_layout(b, th, width);
        draw_block_row(t, block, th, y + i, x, width, row);
        if (++row >= b->rows) {
            row = 0;
            block++;
        }
    }
    for (int k = i; k < height; k++) {
        text_blank(th, y + k, x, width);
    }
    const int below = block < t->n ? rows_known(t, th, width, block, row) : 0;
    forget_far(t, block);
    return below;
}
