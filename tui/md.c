/* Incremental Markdown over md4c. The source is cut at blank lines outside
 * fences; a piece that was cut off is laid out once per width, the open tail
 * on every call. The parser's text callbacks are counted against the letters
 * of the source: a piece in which markup would swallow letters (a reference
 * definition, a table row with too many cells) is shown as plain text. */
#include "config.h"
#include "tui/md.h"

#include <ctype.h>
#include <limits.h>
#include <md4c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tui/hl.h"
#include "tui/md_table.h"

#define MAX_NEST  12
#define MAX_CELLS 20000
#define MAX_PIECE (8U << 20) /* longer pieces are shown plain */
#define MIN_BOX   24

/* How far the source was cut into pieces, and where the next cut is looked for. */
struct cuts {
    size_t closed; /* bytes of the source in pieces that are done for good */
    uint32_t said; /* how much these say */
    size_t scan;   /* start of the first line not looked at */
    char fence;    /* its character inside a fence, else 0 */
    size_t fence_len;
    bool blank; /* the line before scan is blank, outside fences */
};

/* Where fenced code is in the rows. */
struct code_place {
    size_t row, rows;
};
struct code_places {
    struct code_place *v;
    size_t n, cap;
};

struct md {
    struct buf src;
    struct text_rows rows;
    int width;
    size_t closed_rows; /* of the pieces that are done */
    struct cuts cuts;   /* of the rows */
    struct code_places codes;
    size_t closed_codes; /* of the pieces that are done */
    struct buf said;
    struct cuts said_cuts;
    bool ended;
};

struct container {
    bool quote;
    bool used; /* its mark has been written */
    char mark[24];
};

struct list {
    bool ordered, tight;
    unsigned number;
    char delim;
};

struct render {
    const struct theme *th;
    struct text_rows *out;     /* NULL: only what is said is wanted … */
    struct buf *said;          /* … here */
    struct code_places *codes; /* where code went; NULL: not wanted */
    uint32_t at;               /* how much was said so far */
    int width;
    bool any; /* there was a leaf */
    struct container cont[MAX_NEST];
    int n_cont;
    struct list lists[MAX_NEST];
    int n_lists;
    int too_deep; /* containers beyond MAX_NEST */
    bool gap;     /* a blank row stands before the next leaf */
    struct text_flow flow;
    bool fresh;    /* the flow belongs to a leaf not flushed yet */
    uint16_t span; /* style bits of the open spans */
    int strong, em, code, del, link;
    size_t link_from; /* flow length where the link's text began */
    unsigned heading; /* level, 0 outside */
    struct buf info;  /* of the open code block */
    bool in_code, fenced, in_table;
    struct md_table table;
    size_t n_cells, cap_cells;
    size_t letters; /* letters shown so far */
};

static bool is_letter(char c)
{
    const unsigned char u = (unsigned char)c;
    return u >= 0x80 || (unsigned)((u | 0x20) - 'a') < 26;
}

static size_t count_letters(const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        k += is_letter(p[i]);
    }
    return k;
}

static bool ascii_text(const struct render *r)
{
    return r->th->ascii || !r->th->utf8;
}

/* ---- leaves -------------------------------------------------------------- */

/* Text goes to where the rows' runs say it is; lines of other text are other lines. */
static void say(struct render *r, struct text_flow *f)
{
    f->from = r->at;
    r->at += (uint32_t)f->text.len + 1;
    if (r->said) {
        buf_add(r->said, f->text.data ? f->text.data : "", f->text.len);
        buf_addc(r->said, '\n');
    }
}

static void prefixes(const struct render *r, struct text_prefix *first, struct text_prefix *next)
{
    first->n = 0;
    next->n = 0;
    for (int i = 0; i < r->n_cont; i++) {
        const struct container *c = &r->cont[i];
        if (c->quote) {
            text_prefix_push(first, R_BORDER, theme_glyph(r->th, G_QUOTE));
            text_prefix_push(first, R_TEXT, " ");
            text_prefix_push(next, R_BORDER, theme_glyph(r->th, G_QUOTE));
            text_prefix_push(next, R_TEXT, " ");
        } else {
            char spaces[24];
            int cells = text_cells(c->mark, strlen(c->mark));
            snprintf(spaces, sizeof spaces, "%*s", cells, "");
            text_prefix_push(first, R_STRONG, c->used ? spaces : c->mark);
            text_prefix_push(next, R_TEXT, spaces);
        }
    }
}

static void leaf_begin(struct render *r)
{
    bool tight = r->n_lists > 0 && r->lists[r->n_lists - 1].tight;
    if (r->gap && !tight && r->out) {
        struct text_prefix first, next;
        struct render quotes = *r;
        quotes.n_cont = 0;
        while (quotes.n_cont < r->n_cont && r->cont[quotes.n_cont].quote) {
            quotes.n_cont++;
        }
        prefixes(&quotes, &first, &next);
        text_prefix_write(r->out, &next);
        text_rows_end(r->out, true);
    }
    r->gap = false;
    text_flow_clear(&r->flow);
    r->fresh = true;
}

static void leaf_end(struct render *r)
{
    for (int i = 0; i < r->n_cont; i++) {
        r->cont[i].used = true;
    }
    r->gap = true;
    r->fresh = false;
    r->any = true;
}

static void flush_text(struct render *r)
{
    struct text_prefix first, next;
    say(r, &r->flow);
    if (r->out) {
        prefixes(r, &first, &next);
        struct text_wrap w = {.width = r->width, .mode = WRAP_WORD, .first = &first, .next = &next};
        text_wrap(r->out, &r->flow, &w);
    }
    leaf_end(r);
}

/* The upper edge of a code box, with the fence's info string in it. */
static void box_edge(struct render *r, const struct text_prefix *p, enum glyph left,
                     enum glyph right, const struct text_flow *info)
{
    text_prefix_write(r->out, p);
    text_rows_puts(r->out, R_BORDER | TEXT_DECOR, theme_glyph(r->th, left));
    if (info && info->text.len) {
        text_rows_puts(r->out, R_TEXT | TEXT_DECOR, " ");
        int room = r->width - text_prefix_cells(p) - 4;
        size_t fit = text_fit(info->text.data, info->text.len, room);
        text_rows_said(r->out, R_CODE, info->text.data, fit, info->from);
        text_rows_puts(r->out, R_TEXT | TEXT_DECOR, " ");
    }
    text_rows_fill(r->out, R_BORDER | TEXT_DECOR, theme_glyph(r->th, G_HLINE),
                   r->width - 1 - r->out->cells);
    text_rows_puts(r->out, R_BORDER | TEXT_DECOR, theme_glyph(r->th, right));
    text_rows_end(r->out, true);
}

static void add_piece(void *ctx, enum role role, const char *p, size_t n)
{
    struct text_flow *f = ctx;
    (void)n;
    if (f->n_runs == f->cap_runs) {
        f->cap_runs = f->cap_runs ? f->cap_runs * 2 : 16;
        f->runs = mem_realloc(f->runs, f->cap_runs * sizeof *f->runs);
    }
    const size_t at = (size_t)(p - f->text.data);
    f->runs[f->n_runs++] = (struct text_run){at, (uint32_t)at, (uint16_t)role};
}

/* Gives the lines of a flow the colours of their language. */
static void highlight(struct text_flow *f, unsigned language)
{
    const char *p = f->text.data;
    const size_t n = f->text.len;
    hl_state open = 0;
    f->n_runs = 0;
    for (size_t i = 0; i < n;) {
        const char *nl = memchr(p + i, '\n', n - i);
        const size_t k = nl ? (size_t)(nl - p) - i : n - i;
        open = hl_line(language, open, p + i, k, add_piece, f);
        i += k + 1;
    }
}

static void code_rows(struct render *r, const struct text_flow *info)
{
    struct text_prefix first, next;
    prefixes(r, &first, &next);
    const unsigned language = hl_language(info->text.data ? info->text.data : "", info->text.len);
    if (language && r->flow.text.len) {
        highlight(&r->flow, language);
    }
    char mark[16];
    snprintf(mark, sizeof mark, "%s ", theme_glyph(r->th, G_WRAP));
    struct text_wrap w = {.width = r->width, .mode = WRAP_CHAR, .mark = mark};
    int info_cells = text_cells(info->text.data, info->text.len);
    bool box = r->fenced && r->width - text_prefix_cells(&first) >= MIN_BOX &&
               info_cells <= r->width - text_prefix_cells(&first) - 6;
    char edge[16];
    snprintf(edge, sizeof edge, " %s", theme_glyph(r->th, G_VLINE));
    if (box) {
        box_edge(r, &first, G_TOP_LEFT, G_TOP_RIGHT, info);
        struct text_prefix body = next;
        text_prefix_push(&body, R_BORDER, theme_glyph(r->th, G_VLINE));
        text_prefix_push(&body, R_TEXT, " ");
        w.first = &body;
        w.next = &body;
        w.right = edge;
        text_wrap(r->out, &r->flow, &w);
        box_edge(r, &next, G_BOT_LEFT, G_BOT_RIGHT, NULL);
        return;
    }
    if (info->text.len) {
        struct text_wrap wi = {
            .width = r->width, .mode = WRAP_CHAR, .first = &first, .next = &next};
        text_wrap(r->out, info, &wi);
        first = next;
    }
    if (!r->fenced) { /* an indented block stays indented */
        text_prefix_push(&first, R_TEXT, "    ");
        text_prefix_push(&next, R_TEXT, "    ");
    }
    w.first = &first;
    w.next = &next;
    text_wrap(r->out, &r->flow, &w);
}

static void add_place(struct code_places *p, size_t row, size_t rows)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 8;
        p->v = mem_realloc(p->v, p->cap * sizeof *p->v);
    }
    p->v[p->n++] = (struct code_place){row, rows};
}

static void flush_code(struct render *r)
{
    struct buf *t = &r->flow.text;
    if (t->len && t->data[t->len - 1] == '\n') {
        buf_truncate(t, t->len - 1);
        while (r->flow.n_runs && r->flow.runs[r->flow.n_runs - 1].at >= t->len) {
            r->flow.n_runs--;
        }
    }
    struct text_flow info = {0};
    text_flow_add(&info, R_CODE | STYLE_UNDER, r->info.data ? r->info.data : "", r->info.len,
                  false);
    if (info.text.len) {
        say(r, &info);
    }
    say(r, &r->flow);
    if (r->out) {
        const size_t row = r->out->n_rows;
        code_rows(r, &info);
        if (r->fenced && r->codes) {
            add_place(r->codes, row, r->out->n_rows - row);
        }
    }
    text_flow_free(&info);
    leaf_end(r);
}

static void rule_row(struct render *r)
{
    struct text_prefix first, next;
    leaf_begin(r);
    if (r->out) {
        prefixes(r, &first, &next);
        text_prefix_write(r->out, &first);
        text_rows_fill(r->out, R_BORDER | TEXT_DECOR, theme_glyph(r->th, G_HLINE),
                       r->width - text_prefix_cells(&first));
        text_rows_end(r->out, true);
    }
    leaf_end(r);
}

/* ---- tables -------------------------------------------------------------- */

static void table_free(struct render *r)
{
    for (size_t i = 0; i < r->n_cells; i++) {
        text_flow_free(&r->table.cells[i]);
    }
    free(r->table.cells);
    free(r->table.align);
    memset(&r->table, 0, sizeof r->table);
    r->n_cells = 0;
    r->cap_cells = 0;
}

static int cell_end(struct render *r, MD_ALIGN align)
{
    if (r->n_cells >= MAX_CELLS) {
        return 1;
    }
    if (r->n_cells == r->cap_cells) {
        size_t want = r->cap_cells ? r->cap_cells * 2 : 32;
        r->table.cells = mem_realloc(r->table.cells, want * sizeof *r->table.cells);
        r->cap_cells = want;
    }
    size_t col = r->n_cells % r->table.cols;
    r->table.align[col] = align == MD_ALIGN_RIGHT    ? ALIGN_RIGHT
                          : align == MD_ALIGN_CENTER ? ALIGN_CENTER
                                                     : ALIGN_LEFT;
    say(r, &r->flow);
    r->table.cells[r->n_cells++] = r->flow; /* moved */
    memset(&r->flow, 0, sizeof r->flow);
    return 0;
}

/* ---- callbacks ----------------------------------------------------------- */

static void restyle(struct render *r)
{
    uint16_t s = R_TEXT;
    if (r->in_code || r->code) {
        s = R_CODE;
    }
    s |= r->strong || r->heading || (r->in_table && r->table.rows == 0) ? STYLE_BOLD : 0;
    s |= r->em ? STYLE_ITALIC : 0;
    s |= r->link || (r->heading && r->heading <= 2) ? STYLE_UNDER : 0;
    r->span = s;
}

static void show(struct render *r, uint16_t style, const char *p, size_t n)
{
    r->letters += count_letters(p, n);
    text_flow_add(&r->flow, style, p, n, ascii_text(r));
}

static void list_enter(struct render *r, bool ordered, bool tight, unsigned start, char delim)
{
    if (r->n_lists < MAX_NEST) {
        r->lists[r->n_lists] = (struct list){ordered, tight, start, delim};
    }
    r->n_lists++;
}

static int container_enter(struct render *r, bool quote, const char *mark)
{
    if (r->n_cont >= MAX_NEST || r->n_lists > MAX_NEST) {
        return 1; /* nobody nests this deep: the piece is shown plain */
    }
    struct container *c = &r->cont[r->n_cont++];
    c->quote = quote;
    c->used = false;
    snprintf(c->mark, sizeof c->mark, "%s", mark);
    return 0;
}

static int item_enter(struct render *r, const MD_BLOCK_LI_DETAIL *d)
{
    char mark[24];
    if (r->n_lists < 1 || r->n_lists > MAX_NEST) {
        return 1;
    }
    struct list *l = &r->lists[r->n_lists - 1];
    if (d->is_task) {
        bool on = d->task_mark != ' ';
        snprintf(mark, sizeof mark, "%s ", theme_glyph(r->th, on ? G_BOX_ON : G_BOX_OFF));
        r->letters += on;
    } else if (l->ordered) {
        snprintf(mark, sizeof mark, "%u%c ", l->number, l->delim);
        l->number++;
    } else {
        snprintf(mark, sizeof mark, "%s ", theme_glyph(r->th, G_BULLET));
    }
    return container_enter(r, false, mark);
}

/* A list item whose text md4c gives without a paragraph (tight lists). */
static void flush_loose_text(struct render *r)
{
    if (r->fresh && !r->in_code && !r->in_table) {
        flush_text(r);
    }
}

static int enter_block(MD_BLOCKTYPE type, void *detail, void *ctx)
{
    struct render *r = ctx;
    flush_loose_text(r);
    switch (type) {
    case MD_BLOCK_QUOTE:
        return container_enter(r, true, "");
    case MD_BLOCK_UL:
        list_enter(r, false, ((MD_BLOCK_UL_DETAIL *)detail)->is_tight, 0, 0);
        break;
    case MD_BLOCK_OL: {
        const MD_BLOCK_OL_DETAIL *d = detail;
        list_enter(r, true, d->is_tight, d->start, d->mark_delimiter);
        break;
    }
    case MD_BLOCK_LI:
        return item_enter(r, detail);
    case MD_BLOCK_HR:
        rule_row(r);
        break;
    case MD_BLOCK_H:
        leaf_begin(r);
        r->heading = ((MD_BLOCK_H_DETAIL *)detail)->level;
        break;
    case MD_BLOCK_CODE: {
        const MD_BLOCK_CODE_DETAIL *d = detail;
        leaf_begin(r);
        r->in_code = true;
        r->fenced = d->fence_char != 0;
        buf_truncate(&r->info, 0);
        if (d->info.text) {
            r->letters += count_letters(d->info.text, d->info.size);
            text_filter(d->info.text, d->info.size, ascii_text(r), NULL, &r->info);
        }
        break;
    }
    case MD_BLOCK_P:
    case MD_BLOCK_HTML:
        leaf_begin(r);
        break;
    case MD_BLOCK_TABLE: {
        const MD_BLOCK_TABLE_DETAIL *d = detail;
        leaf_begin(r);
        if (d->col_count == 0 || d->col_count > MAX_CELLS) {
            return 1;
        }
        r->in_table = true;
        r->table.cols = d->col_count;
        r->table.align = mem_array(d->col_count, sizeof *r->table.align);
        break;
    }
    case MD_BLOCK_DOC:
    case MD_BLOCK_THEAD:
    case MD_BLOCK_TBODY:
    case MD_BLOCK_TR:
        break;
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
        text_flow_clear(&r->flow);
        break;
    }
    restyle(r);
    return 0;
}

static int leave_block(MD_BLOCKTYPE type, void *detail, void *ctx)
{
    struct render *r = ctx;
    switch (type) {
    case MD_BLOCK_QUOTE:
        flush_loose_text(r);
        r->n_cont--;
        break;
    case MD_BLOCK_UL:
    case MD_BLOCK_OL:
        r->n_lists--;
        break;
    case MD_BLOCK_LI:
        flush_loose_text(r);
        if (!r->cont[r->n_cont - 1].used) { /* an empty item still has its mark */
            leaf_begin(r);
            flush_text(r);
        }
        r->n_cont--;
        break;
    case MD_BLOCK_H:
        flush_text(r);
        r->heading = 0;
        break;
    case MD_BLOCK_CODE:
        flush_code(r);
        r->in_code = false;
        break;
    case MD_BLOCK_P:
    case MD_BLOCK_HTML:
        flush_text(r);
        break;
    case MD_BLOCK_TABLE: {
        struct text_prefix first, next;
        if (r->out) {
            prefixes(r, &first, &next);
            md_table_layout(&r->table, r->th, r->width, &first, &next, r->out);
        }
        table_free(r);
        r->in_table = false;
        leaf_end(r);
        break;
    }
    case MD_BLOCK_TR:
        r->table.rows++;
        if (r->n_cells != r->table.rows * r->table.cols) {
            return 1;
        }
        break;
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
        return cell_end(r, ((MD_BLOCK_TD_DETAIL *)detail)->align);
    case MD_BLOCK_DOC:
    case MD_BLOCK_HR:
    case MD_BLOCK_THEAD:
    case MD_BLOCK_TBODY:
        break;
    }
    restyle(r);
    return 0;
}

static int enter_span(MD_SPANTYPE type, void *detail, void *ctx)
{
    struct render *r = ctx;
    (void)detail;
    switch (type) {
    case MD_SPAN_EM:
    case MD_SPAN_U:
        r->em++;
        break;
    case MD_SPAN_STRONG:
        r->strong++;
        break;
    case MD_SPAN_A:
    case MD_SPAN_IMG:
    case MD_SPAN_WIKILINK:
        r->link++;
        r->link_from = r->flow.text.len;
        break;
    case MD_SPAN_CODE:
        r->code++;
        break;
    case MD_SPAN_DEL:
        show(r, R_DIM, "~~", 2);
        break;
    case MD_SPAN_LATEXMATH:
    case MD_SPAN_LATEXMATH_DISPLAY:
        break;
    }
    restyle(r);
    return 0;
}

/* The address behind a link, unless the link's text is the address. */
static void show_address(struct render *r, const MD_ATTRIBUTE *href, const MD_ATTRIBUTE *title)
{
    const char *p = href->text;
    size_t n = href->size;
    const char *shown = r->flow.text.data ? r->flow.text.data + r->link_from : "";
    size_t len = r->flow.text.len - r->link_from;
    size_t skip = n > 7 && memcmp(p, "mailto:", 7) == 0 && n - 7 == len ? 7 : 0;
    if (n && !(n - skip == len && memcmp(p + skip, shown, len) == 0)) {
        show(r, R_TEXT, " (", 2);
        show(r, R_TEXT | STYLE_UNDER, p, n);
        show(r, R_TEXT, ")", 1);
    }
    if (title->size) {
        show(r, R_TEXT, " \"", 2);
        show(r, R_TEXT, title->text, title->size);
        show(r, R_TEXT, "\"", 1);
    }
}

static int leave_span(MD_SPANTYPE type, void *detail, void *ctx)
{
    struct render *r = ctx;
    switch (type) {
    case MD_SPAN_EM:
    case MD_SPAN_U:
        r->em--;
        break;
    case MD_SPAN_STRONG:
        r->strong--;
        break;
    case MD_SPAN_A: {
        const MD_SPAN_A_DETAIL *d = detail;
        r->link--;
        show_address(r, &d->href, &d->title);
        break;
    }
    case MD_SPAN_IMG: {
        const MD_SPAN_IMG_DETAIL *d = detail;
        r->link--;
        show_address(r, &d->src, &d->title);
        break;
    }
    case MD_SPAN_WIKILINK:
        r->link--;
        break;
    case MD_SPAN_CODE:
        r->code--;
        break;
    case MD_SPAN_DEL:
        show(r, R_DIM, "~~", 2);
        break;
    case MD_SPAN_LATEXMATH:
    case MD_SPAN_LATEXMATH_DISPLAY:
        break;
    }
    restyle(r);
    return 0;
}

/* The character of a common entity, or its own spelling. */
static void show_entity(struct render *r, const char *p, size_t n)
{
    static const struct {
        const char *name, *text;
    } known[] = {{"&amp;", "&"},   {"&lt;", "<"},   {"&gt;", ">"},
                 {"&quot;", "\""}, {"&apos;", "'"}, {"&nbsp;", " "}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) == n && memcmp(p, known[i].name, n) == 0) {
            r->letters += count_letters(p, n);
            text_flow_add(&r->flow, r->span, known[i].text, 1, ascii_text(r));
            return;
        }
    }
    if (n > 3 && p[1] == '#' && n < 12) {
        bool hex = p[2] == 'x' || p[2] == 'X';
        unsigned long cp = strtoul(p + (hex ? 3 : 2), NULL, hex ? 16 : 10);
        if (cp >= 0xA0 && cp <= 0x10FFFF && (cp < 0xD800 || cp >= 0xE000)) {
            char u[4];
            int k = utf8_put((uint32_t)cp, u);
            r->letters += count_letters(p, n);
            text_flow_add(&r->flow, r->span, u, (size_t)k, ascii_text(r));
            return;
        }
    }
    show(r, r->span, p, n);
}

static int on_text(MD_TEXTTYPE type, const MD_CHAR *p, MD_SIZE n, void *ctx)
{
    struct render *r = ctx;
    if (!r->fresh && !r->in_table) {
        leaf_begin(r); /* a tight list item has no paragraph around its text */
    }
    switch (type) {
    case MD_TEXT_NULLCHAR:
        show(r, r->span, "", 1);
        break;
    case MD_TEXT_BR:
    case MD_TEXT_SOFTBR:
        show(r, r->span, r->in_table ? " " : "\n", 1);
        break;
    case MD_TEXT_ENTITY:
        show_entity(r, p, n);
        break;
    case MD_TEXT_NORMAL:
    case MD_TEXT_CODE:
    case MD_TEXT_HTML:
    case MD_TEXT_LATEXMATH:
        show(r, r->span, p, n);
        break;
    }
    return 0;
}

/* ---- pieces -------------------------------------------------------------- */

/* As it stands, without markup. */
static void piece_plain(struct render *r, const char *p, size_t n)
{
    struct text_flow f = {0};
    text_flow_add(&f, R_TEXT, p, n, ascii_text(r));
    say(r, &f);
    if (r->out) {
        struct text_wrap w = {.width = r->width, .mode = WRAP_WORD};
        text_wrap(r->out, &f, &w);
    }
    text_flow_free(&f);
}

/* Lays a piece out at the end of `out`, or (NULL) appends what it says to `said`. *at: how much was
 * said before, and then with it. */
static void piece(const char *p, size_t n, const struct theme *th, int width, struct text_rows *out,
                  struct code_places *codes, struct buf *said, uint32_t *at)
{
    while (n && (p[n - 1] == '\n' || p[n - 1] == '\r')) {
        n--;
    }
    while (n && *p == '\n') {
        p++;
        n--;
    }
    if (n == 0) {
        return;
    }
    if (out && out->n_rows) {
        text_rows_end(out, true); /* a blank row between pieces */
    }
    const size_t rows = out ? out->n_rows : 0;
    const size_t bytes = said ? said->len : 0;
    const size_t n_codes = codes ? codes->n : 0;
    struct render r = {.th = th,
                       .out = out,
                       .codes = codes,
                       .said = said,
                       .at = *at,
                       .width = width > 0 ? width : 1};
    MD_PARSER parser = {
        .flags = MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS | MD_FLAG_NOHTML,
        .enter_block = enter_block,
        .leave_block = leave_block,
        .enter_span = enter_span,
        .leave_span = leave_span,
        .text = on_text,
    };
    int rc = n > MAX_PIECE ? 1 : md_parse(p, (MD_SIZE)n, &parser, &r);
    if (rc == 0 && r.letters < count_letters(p, n)) {
        rc = 1;
    }
    if (rc != 0 || !r.any) {
        if (out) {
            text_rows_truncate(out, rows);
        }
        if (codes) {
            codes->n = n_codes;
        }
        if (said) {
            buf_truncate(said, bytes);
        }
        r.at = *at;
        piece_plain(&r, p, n);
    }
    *at = r.at;
    table_free(&r);
    text_flow_free(&r.flow);
    buf_free(&r.info);
}

/* ---- cutting ------------------------------------------------------------- */

/* Follows fences over the line [p, p + n). */
static void scan_fence(struct cuts *m, const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '>')) {
        i++;
    }
    if (i >= n || (p[i] != '`' && p[i] != '~')) {
        return;
    }
    char c = p[i];
    size_t k = 0;
    while (i + k < n && p[i + k] == c) {
        k++;
    }
    if (m->fence) {
        size_t j = i + k;
        while (j < n && (p[j] == ' ' || p[j] == '\t' || p[j] == '\r')) {
            j++;
        }
        if (c == m->fence && k >= m->fence_len && j == n) {
            m->fence = 0;
        }
    } else if (k >= 3 && !(c == '`' && memchr(p + i + k, '`', n - i - k))) {
        m->fence = c;
        m->fence_len = k;
    }
}

/* Looks at the next whole line; true when the text may be cut before it. */
static bool scan_line(struct cuts *c, const struct buf *src, size_t *cut)
{
    const char *p = src->data + c->scan;
    size_t left = src->len - c->scan;
    const char *nl = left ? memchr(p, '\n', left) : NULL;
    if (!nl) {
        *cut = 0;
        return false;
    }
    size_t n = (size_t)(nl - p);
    bool can_cut = c->blank && n > 0 && !isspace((unsigned char)p[0]);
    *cut = c->scan;
    scan_fence(c, p, n);
    size_t i = 0;
    while (i < n && isspace((unsigned char)p[i])) {
        i++;
    }
    c->blank = i == n && !c->fence;
    c->scan += n + 1;
    return can_cut;
}

/* The next piece that is done for good; false: what is left is still open. */
static bool next_piece(struct cuts *c, const struct buf *src, const char **p, size_t *n)
{
    for (;;) {
        const size_t before = c->scan;
        size_t cut = 0;
        const bool can = scan_line(c, src, &cut);
        if (c->scan == before) {
            return false;
        }
        if (can && cut > c->closed) {
            *p = src->data + c->closed;
            *n = cut - c->closed;
            c->closed = cut;
            return true;
        }
    }
}

size_t md_codes(const struct md *m)
{
    return m->codes.n;
}

void md_code_rows(const struct md *m, size_t i, size_t *row, size_t *rows)
{
    *row = m->codes.v[i].row;
    *rows = m->codes.v[i].rows;
}

void md_forget(struct md *m)
{
    text_rows_free(&m->rows);
    m->codes.n = 0;
    m->width = INT_MIN;
}

void md_forget_said(struct md *m)
{
    buf_free(&m->said);
    m->said_cuts = (struct cuts){0};
}

const struct text_rows *md_layout(struct md *m, const struct theme *th, int width)
{
    const char *p = NULL;
    size_t n = 0;
    if (width != m->width) {
        m->width = width;
        m->closed_rows = 0;
        m->closed_codes = 0;
        m->cuts = (struct cuts){0};
    }
    text_rows_truncate(&m->rows, m->closed_rows);
    m->codes.n = m->closed_codes;
    while (next_piece(&m->cuts, &m->src, &p, &n)) {
        piece(p, n, th, width, &m->rows, &m->codes, NULL, &m->cuts.said);
    }
    m->closed_rows = m->rows.n_rows;
    m->closed_codes = m->codes.n;
    if (m->src.len > m->cuts.closed) {
        uint32_t at = m->cuts.said;
        piece(m->src.data + m->cuts.closed, m->src.len - m->cuts.closed, th, width, &m->rows,
              &m->codes, NULL, &at);
    }
    return &m->rows;
}

const struct buf *md_said(struct md *m, const struct theme *th)
{
    struct cuts *c = &m->said_cuts;
    const char *p = NULL;
    size_t n = 0;
    buf_truncate(&m->said, c->said);
    while (next_piece(c, &m->src, &p, &n)) {
        piece(p, n, th, 1, NULL, NULL, &m->said, &c->said);
    }
    if (m->src.len > c->closed) {
        uint32_t at = c->said;
        piece(m->src.data + c->closed, m->src.len - c->closed, th, 1, NULL, NULL, &m->said, &at);
    }
    if (m->ended) {
        buf_shrink(&m->said);
    }
    return &m->said;
}

struct md *md_create(void)
{
    struct md *m = mem_zalloc(sizeof *m);
    m->width = INT_MIN;
    return m;
}

void md_free(struct md *m)
{
    if (m) {
        buf_free(&m->src);
        buf_free(&m->said);
        free(m->codes.v);
        text_rows_free(&m->rows);
        free(m);
    }
}

void md_add(struct md *m, const char *p, size_t n)
{
    buf_add(&m->src, p, n);
}

void md_end(struct md *m)
{
    m->ended = true;
    buf_shrink(&m->src);
}

const struct buf *md_source(const struct md *m)
{
    return &m->src;
}
