/* Blocks of a conversation and the window on them. A block caches its rows per
 * width and fold state; only an open one is laid out again. The view is
 * anchored to a block and a row of it, or follows the end. */
#include "config.h"
#include "tui/transcript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/md.h"

#define NEAR      32     /* blocks before and after the view whose rows are kept */
#define COUNT_ALL 64     /* blocks of a conversation whose rows are always counted */
#define ROWS_MOST 100000 /* that are counted */

enum kind { B_USER, B_MODEL, B_NOTICE };

struct block {
    enum kind kind;
    char clock[8];
    struct buf shown;   /* B_USER, B_NOTICE */
    struct buf full;    /* B_USER: what was sent; B_MODEL: unused */
    struct buf thought; /* B_MODEL */
    struct md *answer;  /* B_MODEL */
    long message;       /* its number in the conversation; -1: none */
    bool open;          /* still growing */
    bool thought_over;
    bool unfolded;
    double thought_s;
    int thought_tokens;
    enum role note_role; /* of shown in B_NOTICE, of note in B_MODEL */
    char note[256];
    /* cache */
    struct text_rows head; /* header and thought; the whole block but for B_MODEL's answer */
    struct text_rows tail; /* note and the blank row */
    const struct text_rows *body;
    int width;      /* of the cache; 0: none */
    size_t rows;    /* how many it has … */
    int rows_width; /* … at this width, also without the cache; 0: not known */
    /* what was looked for in it */
    struct search_hits head_hits, body_hits;
    unsigned searched; /* serial of that search */
};

struct transcript {
    struct block **block;
    size_t n, cap;
    bool show_thoughts;
    bool follow;
    size_t top_block; /* anchor, when not following */
    size_t top_row;
    int selected;                /* -1: none */
    int height;                  /* of the last drawing */
    size_t seen_block, seen_row; /* the end as it was when the view left it */
    int fresh;                   /* rows that came since, as last drawn */
    /* search */
    const struct search *search;
    unsigned serial;         /* of the search; never 0 in one */
    int step;                /* asked for since the last drawing; 0: none */
    bool go;                 /* show the nearest */
    size_t hit_block, hit_i; /* the match shown, by its block and number there */
    bool has_hit;
    size_t n_matches, shown; /* as last drawn */
};

struct transcript *transcript_create(void)
{
    struct transcript *t = mem_zalloc(sizeof *t);
    t->follow = true;
    t->selected = -1;
    return t;
}

static void block_free(struct block *b)
{
    buf_free(&b->shown);
    buf_free(&b->full);
    buf_free(&b->thought);
    md_free(b->answer);
    text_rows_free(&b->head);
    text_rows_free(&b->tail);
    search_hits_free(&b->head_hits);
    search_hits_free(&b->body_hits);
    free(b);
}

/* What it says changed. */
static void stale(struct block *b)
{
    b->width = 0;
    b->rows_width = 0;
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

void transcript_clear(struct transcript *t)
{
    for (size_t i = 0; i < t->n; i++) {
        block_free(t->block[i]);
    }
    t->n = 0;
    t->follow = true;
    t->selected = -1;
    t->has_hit = false;
    t->n_matches = t->shown = 0;
}

void transcript_free(struct transcript *t)
{
    if (t) {
        transcript_clear(t);
        free(t->block);
        free(t);
    }
}

bool transcript_is_empty(const struct transcript *t)
{
    return t->n == 0;
}

static struct block *push(struct transcript *t, enum kind kind, const char *clock)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 32;
        t->block = mem_realloc(t->block, t->cap * sizeof(struct block *));
    }
    struct block *b = mem_zalloc(sizeof *b);
    b->kind = kind;
    b->message = -1;
    snprintf(b->clock, sizeof b->clock, "%s", clock);
    t->block[t->n++] = b;
    return b;
}

/* The block that grows, or NULL. */
static struct block *growing(const struct transcript *t)
{
    for (size_t i = t->n; i > 0; i--) {
        if (t->block[i - 1]->kind == B_MODEL) {
            return t->block[i - 1]->open ? t->block[i - 1] : NULL;
        }
    }
    return NULL;
}

void transcript_user(struct transcript *t, const char *clock, const struct buf *shown,
                     const struct buf *full)
{
    struct block *b = push(t, B_USER, clock);
    buf_add(&b->shown, shown->data, shown->len);
    buf_add(&b->full, full->data, full->len);
}

void transcript_model(struct transcript *t, const char *clock)
{
    struct block *b = push(t, B_MODEL, clock);
    b->answer = md_create();
    b->open = true;
}

void transcript_thought(struct transcript *t, const char *p, size_t n)
{
    struct block *b = growing(t);
    if (b) {
        buf_add(&b->thought, p, n);
        stale(b);
    }
}

void transcript_thought_facts(struct transcript *t, bool over, double seconds, int tokens)
{
    struct block *b = growing(t);
    if (b && b->thought.len) {
        b->thought_over = over;
        b->thought_s = seconds;
        b->thought_tokens = tokens;
        b->unfolded = over ? t->show_thoughts : true;
        stale(b);
    }
}

void transcript_text(struct transcript *t, const char *p, size_t n)
{
    struct block *b = growing(t);
    if (!b) {
        return;
    }
    if (md_source(b->answer)->len == 0) { /* answers often begin with line ends */
        while (n && (*p == '\n' || *p == '\r')) {
            p++;
            n--;
        }
    }
    if (n) {
        md_add(b->answer, p, n);
        stale(b);
    }
}

void transcript_end(struct transcript *t, enum role role, const char *note)
{
    struct block *b = growing(t);
    if (b) {
        b->open = false;
        b->note_role = role;
        snprintf(b->note, sizeof b->note, "%s", note);
        stale(b);
    }
}

void transcript_notice(struct transcript *t, enum role role, const char *text)
{
    struct block *b = push(t, B_NOTICE, "");
    b->note_role = role;
    buf_adds(&b->shown, text);
}

void transcript_show_thoughts(struct transcript *t, bool show)
{
    t->show_thoughts = show;
    for (size_t i = 0; i < t->n; i++) {
        t->block[i]->unfolded = show || (t->block[i]->open && !t->block[i]->thought_over);
        stale(t->block[i]);
    }
}

/* ---- the conversation's messages ------------------------------------------ */

size_t transcript_kept(struct transcript *t, size_t n)
{
    size_t i = t->n;
    while (i > 0 && t->block[i - 1]->kind != B_USER) {
        i--;
    }
    for (i -= i > 0; i < t->n; i++) {
        struct block *b = t->block[i];
        if (b->kind != B_NOTICE && b->message < 0) {
            b->message = (long)n++;
        }
    }
    return n;
}

/* How many messages there are before a block. */
static size_t messages_before(const struct transcript *t, size_t block)
{
    for (size_t i = block; i > 0; i--) {
        if (t->block[i - 1]->message >= 0) {
            return (size_t)t->block[i - 1]->message + 1;
        }
    }
    return 0;
}

bool transcript_question(const struct transcript *t, size_t turn, size_t *keep,
                         const struct buf **text)
{
    size_t found = t->n;
    if (turn == 0) {
        const size_t from = t->selected >= 0 ? (size_t)t->selected + 1 : t->n;
        for (size_t i = from; i > 0 && found == t->n; i--) {
            found = t->block[i - 1]->kind == B_USER ? i - 1 : found;
        }
    }
    for (size_t i = 0; i < t->n && turn > 0; i++) {
        if (t->block[i]->kind == B_USER && --turn == 0) {
            found = i;
        }
    }
    if (found == t->n) {
        return false;
    }
    *keep = messages_before(t, found);
    *text = &t->block[found]->full;
    return true;
}

const struct buf *transcript_question_shown(const struct transcript *t, const struct buf *text)
{
    for (size_t i = 0; i < t->n; i++) {
        if (&t->block[i]->full == text) {
            return &t->block[i]->shown;
        }
    }
    return text;
}

size_t transcript_answered(const struct transcript *t, size_t keep)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct block *b = t->block[i];
        if (b->kind == B_MODEL && b->message > (long)keep) {
            return (size_t)b->message == keep + 1 ? keep + 2 : keep;
        }
    }
    return keep;
}

void transcript_cut(struct transcript *t, size_t keep)
{
    size_t left = 0;
    for (size_t i = 0; i < t->n; i++) {
        const long m = t->block[i]->message;
        left = m >= 0 && (size_t)m < keep ? i + 1 : left;
    }
    while (t->n > left) {
        block_free(t->block[--t->n]);
    }
    t->selected = -1;
    t->has_hit = false;
    t->follow = true;
}

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
    if (s < 60) {
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
            if (full > 0 && b->thought_tokens > 0) {
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
    text_rows_end(out, true);
}

static void block_layout(struct block *b, const struct theme *th, int width)
{
    if (b->width == width) {
        return;
    }
    b->width = width;
    b->searched = 0;
    text_rows_truncate(&b->head, 0);
    text_rows_truncate(&b->tail, 0);
    b->body = NULL;
    switch (b->kind) {
    case B_NOTICE: {
        struct text_prefix pre = {0};
        struct text_flow f = {0};
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
            size_t n = b->thought.len;
            while (n && b->thought.data[n - 1] == '\n') {
                n--;
            }
            size_t from = 0;
            while (from < n && b->thought.data[from] == '\n') {
                from++;
            }
            barred(&b->head, th, G_THOUGHT, R_THOUGHT, b->thought.data + from, n - from, width);
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

static size_t block_height(struct block *b, const struct theme *th, int width)
{
    if (b->rows_width != width) {
        block_layout(b, th, width);
    }
    return b->rows;
}

/* Marks the matches of row i over what was drawn at x; shown: the number of the one that
 * is gone to, or -1. */
static void draw_hits(const struct theme *th, int y, int x, int width, const struct text_rows *r,
                      size_t i, const struct search_hits *h, long shown)
{
    long number = -1;
    for (size_t k = 0; k < h->n && h->v[k].row <= i; k++) {
        const struct search_hit *hit = &h->v[k];
        number += hit->first;
        if (hit->row != i) {
            continue;
        }
        const int before = text_cells(r->text.data + r->rows[i].at, hit->at - r->rows[i].at);
        if (before >= width) {
            continue;
        }
        char *s = mem_strndup(r->text.data + hit->at, hit->len);
        const uint16_t style = number == shown ? R_SEARCH | STYLE_UNDER | STYLE_BOLD : R_SEARCH;
        (void)text_put(th, y, x + before, width - before, style, s);
        free(s);
    }
}

/* Draws row i of a laid-out block. */
static void draw_block_row(const struct block *b, const struct theme *th, int y, int x, int width,
                           size_t i, bool selected, bool last, long shown)
{
    size_t body = b->body ? b->body->n_rows : 0;
    const long in_head = (long)b->head_hits.matches;
    uint16_t header_bits = selected && i == 0 ? STYLE_REVERSE : 0;
    if (i < b->head.n_rows) {
        text_draw_row(th, y, x, width, &b->head, i, header_bits);
        draw_hits(th, y, x, width, &b->head, i, &b->head_hits, shown < in_head ? shown : -1);
    } else if (i < b->head.n_rows + body) {
        text_draw_row(th, y, x + 3, width - 3, b->body, i - b->head.n_rows, 0);
        char bar[12];
        snprintf(bar, sizeof bar, " %s ", theme_glyph(th, G_BAR));
        (void)text_put(th, y, x, width < 3 ? width : 3, R_BORDER, bar);
        draw_hits(th, y, x + 3, width - 3, b->body, i - b->head.n_rows, &b->body_hits,
                  shown < in_head ? -1 : shown - in_head);
    } else {
        text_draw_row(th, y, x, width, &b->tail, i - b->head.n_rows - body, 0);
    }
    if (selected && i > 0 && !last) {
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

/* Moves (block, row) up by rows; stops at the top. */
static void step_up(struct transcript *t, const struct theme *th, int width, size_t *block,
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
static void settle(struct transcript *t, const struct theme *th, int height, int width)
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
        step_up(t, th, width, &t->top_block, &t->top_row, h);
    }
}

/* ---- search -------------------------------------------------------------- */

void transcript_search(struct transcript *t, const struct search *s)
{
    t->search = s;
    t->serial += t->serial + 1 == 0 ? 2 : 1;
    t->go = s != NULL;
    t->step = 0;
    t->has_hit = false;
    t->n_matches = t->shown = 0;
    for (size_t i = 0; i < t->n; i++) {
        search_hits_clear(&t->block[i]->head_hits);
        search_hits_clear(&t->block[i]->body_hits);
    }
}

void transcript_search_step(struct transcript *t, int dir)
{
    t->step = t->search ? dir : 0;
}

size_t transcript_search_count(const struct transcript *t, size_t *shown)
{
    *shown = t->shown;
    return t->n_matches;
}

bool transcript_following(const struct transcript *t)
{
    return t->follow;
}

static size_t block_matches(const struct block *b)
{
    return b->head_hits.matches + b->body_hits.matches;
}

/* Looks through what changed since it was last looked through. */
static void search_blocks(struct transcript *t, const struct theme *th, int width)
{
    t->n_matches = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct block *b = t->block[i];
        block_layout(b, th, width);
        if (b->searched != t->serial) {
            b->searched = t->serial;
            search_hits_clear(&b->head_hits);
            search_hits_clear(&b->body_hits);
            search_rows(t->search, &b->head, &b->head_hits);
            if (b->body) {
                search_rows(t->search, b->body, &b->body_hits);
            }
        }
        t->n_matches += block_matches(b);
    }
}

/* The last match up to a block's end; from the end of all when there is none. */
static bool match_up_to(struct transcript *t, size_t block)
{
    for (int round = 0; round < 2; round++, block = t->n - 1) {
        for (size_t i = block + 1; i > 0; i--) {
            const size_t n = block_matches(t->block[i - 1]);
            if (n) {
                t->hit_block = i - 1;
                t->hit_i = n - 1;
                return true;
            }
        }
    }
    return false;
}

static void match_step(struct transcript *t, int dir)
{
    const size_t n = block_matches(t->block[t->hit_block]);
    if (dir < 0 ? t->hit_i > 0 : t->hit_i + 1 < n) {
        t->hit_i = (size_t)((long)t->hit_i + dir);
        return;
    }
    size_t i = t->hit_block;
    do {
        i = dir < 0 ? (i + t->n - 1) % t->n : (i + 1) % t->n;
    } while (block_matches(t->block[i]) == 0);
    t->hit_block = i;
    t->hit_i = dir < 0 ? block_matches(t->block[i]) - 1 : 0;
}

/* The row of its block that the shown match begins in. */
static size_t match_row(const struct transcript *t)
{
    const struct block *b = t->block[t->hit_block];
    const struct search_hits *h = &b->head_hits;
    size_t k = t->hit_i;
    size_t base = 0;
    if (k >= h->matches) {
        k -= h->matches;
        h = &b->body_hits;
        base = b->head.n_rows;
    }
    for (size_t i = 0; i < h->n; i++) {
        if (h->v[i].first && k-- == 0) {
            return base + h->v[i].row;
        }
    }
    return 0;
}

/* Carries out what was asked of the search, after settle. */
static void search_view(struct transcript *t, const struct theme *th, int height, int width)
{
    search_blocks(t, th, width);
    if (t->has_hit && (t->hit_block >= t->n || t->hit_i >= block_matches(t->block[t->hit_block]))) {
        t->has_hit = false; /* folded away, or laid out anew */
        t->go = true;
    }
    const bool move = t->go || (t->has_hit && t->step != 0);
    if (t->go) {
        size_t block = t->top_block;
        size_t rows = t->n ? block_height(t->block[block], th, width) - t->top_row : 0;
        while (block + 1 < t->n && rows < (size_t)height) {
            rows += block_height(t->block[++block], th, width);
        }
        t->has_hit = match_up_to(t, block);
    } else if (t->has_hit && t->step != 0) {
        match_step(t, t->step);
    }
    t->go = false;
    t->step = 0;
    t->shown = 0;
    if (!t->has_hit) {
        return;
    }
    for (size_t i = 0; i < t->hit_block; i++) {
        t->shown += block_matches(t->block[i]);
    }
    t->shown += t->hit_i + 1;
    if (move) { /* a third down, so that what led to it can be read */
        t->follow = false;
        t->top_block = t->hit_block;
        t->top_row = match_row(t);
        step_up(t, th, width, &t->top_block, &t->top_row, (size_t)height / 3);
        settle(t, th, height, width);
    }
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

/* A long conversation keeps the rows of what is near the view, which ends in a block. */
static void forget_far(struct transcript *t, size_t last)
{
    for (size_t i = 0; i < t->n && !t->search; i++) {
        struct block *b = t->block[i];
        const bool near = i + NEAR >= t->top_block && i <= last + NEAR;
        if (b->width && !near && !b->open && i + NEAR < t->n) {
            forget_rows(b);
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
    settle(t, th, height, width);
    if (t->search) {
        search_view(t, th, height, width);
    }
    note_end(t, th, width);
    size_t block = t->top_block;
    size_t row = t->top_row;
    int i = 0;
    for (; i < height && block < t->n; i++) {
        struct block *b = t->block[block];
        block_layout(b, th, width);
        const size_t total = b->rows;
        const long shown = t->has_hit && t->hit_block == block ? (long)t->hit_i : -1;
        draw_block_row(b, th, y + i, x, width, row, t->selected == (int)block, row + 1 == total,
                       shown);
        if (++row >= total) {
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

/* ---- selection ----------------------------------------------------------- */

static bool selectable(const struct block *b)
{
    return b->kind != B_NOTICE;
}

void transcript_select(struct transcript *t, int dir)
{
    if (dir == 0 || t->n == 0) {
        t->selected = -1;
        return;
    }
    int i = t->selected < 0 ? (int)t->n : t->selected;
    int step = t->selected < 0 ? -1 : dir;
    for (i += step; i >= 0 && i < (int)t->n; i += step) {
        if (selectable(t->block[i])) {
            t->selected = i;
            break;
        }
    }
    if (t->selected < 0) {
        return;
    }
    /* bring its first row into view */
    if ((size_t)t->selected <= t->top_block) {
        t->follow = false;
        t->top_block = (size_t)t->selected;
        t->top_row = 0;
        return;
    }
    size_t rows = 0;
    for (size_t b = t->top_block; b < (size_t)t->selected; b++) {
        rows += t->block[b]->rows;
    }
    rows -= t->top_row < rows ? t->top_row : rows;
    if (t->height > 2 && rows > (size_t)t->height - 2) {
        t->follow = false;
        t->top_block = (size_t)t->selected;
        t->top_row = 0;
    }
}

void transcript_select_end(struct transcript *t, int dir)
{
    for (size_t i = 0; i < t->n; i++) {
        const size_t k = dir < 0 ? i : t->n - 1 - i;
        if (selectable(t->block[k])) {
            t->selected = (int)k;
            return;
        }
    }
}

void transcript_fold(struct transcript *t)
{
    size_t i = t->n;
    if (t->selected >= 0) {
        i = (size_t)t->selected + 1;
    }
    for (; i > 0; i--) { /* without a selection: the last thought */
        struct block *b = t->block[i - 1];
        if (b->thought.len) {
            b->unfolded = !b->unfolded;
            stale(b);
            return;
        }
        if (t->selected >= 0) {
            return;
        }
    }
}

void transcript_fold_all(struct transcript *t)
{
    bool any = false;
    for (size_t i = 0; i < t->n; i++) {
        any = any || (t->block[i]->thought.len && t->block[i]->unfolded);
    }
    for (size_t i = 0; i < t->n; i++) {
        t->block[i]->unfolded = !any;
        stale(t->block[i]);
    }
}

const struct buf *transcript_selected_text(const struct transcript *t)
{
    if (t->selected < 0) {
        return NULL;
    }
    const struct block *b = t->block[t->selected];
    return b->kind == B_MODEL ? md_source(b->answer) : &b->full;
}

const struct buf *transcript_last_answer(const struct transcript *t)
{
    for (size_t i = t->n; i > 0; i--) {
        const struct block *b = t->block[i - 1];
        if (b->kind == B_MODEL && md_source(b->answer)->len) {
            return md_source(b->answer);
        }
    }
    return NULL;
}

void transcript_each(const struct transcript *t,
                     void (*fn)(void *ctx, const struct transcript_message *m), void *ctx)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct block *b = t->block[i];
        if (b->kind == B_NOTICE) {
            continue;
        }
        const struct transcript_message m = {
            .user = b->kind == B_USER,
            .clock = b->clock,
            .text = b->kind == B_MODEL ? md_source(b->answer) : &b->full,
            .thought = &b->thought,
            .note = b->note,
            .selected = (int)i == t->selected,
        };
        fn(ctx, &m);
    }
}
