/* The search of a transcript. It goes over what the blocks say, which needs no layout; only what is
 * looked at is laid out, and the runs of its rows tell where a match is in them. */
#include "config.h"

#include <stdlib.h>

#include "base/mem.h"
#include "tui/transcript_inside.h"

void transcript_search(struct transcript *t, const struct search *s)
{
    t->search = s;
    t->serial += t->serial + 1 == 0 ? 2 : 1;
    t->go = s != NULL;
    t->go_message = -1;
    t->step = 0;
    t->has_hit = false;
    t->n_matches = t->shown = 0;
    for (size_t i = 0; i < t->n && !s; i++) {
        find_forget(t->block[i]);
    }
}

void transcript_search_in(struct transcript *t, const struct search *s, long message)
{
    transcript_search(t, s);
    t->go_message = message;
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

static size_t block_matches(const struct block *b)
{
    return b->in_head + b->in_body;
}

/* What the head of a block says, without ornaments. */
static const struct buf *head_said(struct block *b, bool ascii)
{
    const char *p = b->shown.data ? b->shown.data : "";
    size_t n = b->shown.len;
    if (b->head_said.data) {
        return &b->head_said;
    }
    if (b->kind == B_MODEL) {
        block_thought(b, &p, &n);
        n = b->unfolded ? n : 0;
    }
    text_filter(p, n, ascii, NULL, &b->head_said);
    buf_shrink(&b->head_said);
    return &b->head_said;
}

/* Looks through a block, if it changed since it was last looked through; finds where the matches
 * are, when that is asked for. */
static void look_through(const struct transcript *t, struct block *b, const struct theme *th,
                         bool where)
{
    const struct buf *head = NULL;
    const struct buf *body = NULL;
    if (b->searched == t->serial && (!where || b->hits == t->serial)) {
        return;
    }
    b->head_hits.n = b->body_hits.n = 0;
    head = head_said(b, th->ascii || !th->utf8);
    b->in_head = search_text(t->search, head->data, head->len, where ? &b->head_hits : NULL);
    b->in_body = 0;
    if (b->answer) {
        body = md_said(b->answer, th);
        b->in_body = search_text(t->search, body->data, body->len, where ? &b->body_hits : NULL);
    }
    b->searched = t->serial;
    b->hits = where ? t->serial : b->hits;
}

static void look_through_all(struct transcript *t, const struct theme *th)
{
    t->n_matches = 0;
    for (size_t i = 0; i < t->n; i++) {
        look_through(t, t->block[i], th, false);
        t->n_matches += block_matches(t->block[i]);
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

/* Goes to a message, and its first match, if it shows one; false: there is no such message. */
static bool go_to_message(struct transcript *t, long message)
{
    size_t i = 0;
    while (i < t->n && t->block[i]->message != message) {
        i++;
    }
    if (i == t->n || message < 0) {
        return false;
    }
    t->has_hit = block_matches(t->block[i]) > 0;
    t->hit_block = i;
    t->hit_i = 0;
    if (!t->has_hit) {
        t->follow = false;
        t->top_block = i;
        t->top_row = 0;
    }
    return true;
}

/* The first row that says the byte at `at`. */
static size_t row_of(const struct text_rows *r, uint32_t at)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        size_t end = 0;
        for (const struct text_run *k = text_row_run(r, i, NULL, &end); k;
             k = text_row_run(r, i, k, &end)) {
            if (!(k->style & TEXT_DECOR) && at >= k->from && at - k->from < end - k->at) {
                return i;
            }
        }
    }
    return 0;
}

/* The row of its block that the shown match begins in. */
static size_t match_row(const struct transcript *t, const struct theme *th, int width)
{
    struct block *b = t->block[t->hit_block];
    look_through(t, b, th, true);
    block_layout(b, th, width);
    if (t->hit_i < b->in_head) {
        return row_of(&b->head, b->head_hits.v[t->hit_i].at);
    }
    return b->head.n_rows + row_of(b->body, b->body_hits.v[t->hit_i - b->in_head].at);
}

void find_view(struct transcript *t, const struct theme *th, int height, int width)
{
    look_through_all(t, th);
    if (t->has_hit && (t->hit_block >= t->n || t->hit_i >= block_matches(t->block[t->hit_block]))) {
        t->has_hit = false; /* folded away, or laid out anew */
        t->go = true;
    }
    const bool move = t->go || t->step != 0;
    if (t->go && go_to_message(t, t->go_message)) {
        view_settle(t, th, height, width);
    } else if (t->go || (!t->has_hit && t->step != 0)) {
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
    t->go_message = -1;
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
        t->top_row = match_row(t, th, width);
        view_step_up(t, th, width, &t->top_block, &t->top_row, (size_t)height / 3);
        view_settle(t, th, height, width);
    }
    for (size_t i = t->top_block, rows = 0; i < t->n && rows < t->top_row + (size_t)height; i++) {
        look_through(t, t->block[i], th, true); /* these can be seen */
        rows += block_height(t->block[i], th, width);
    }
}

/* Marks bytes [at, end) of row i over what was drawn at x. */
static void mark(const struct theme *th, int y, int x, int width, const struct text_rows *r,
                 size_t i, size_t at, size_t end, uint16_t style)
{
    const int before = text_cells(r->text.data + r->rows[i].at, at - r->rows[i].at);
    if (before < width) {
        char *s = mem_strndup(r->text.data + at, end - at);
        (void)text_put(th, y, x + before, width - before, style, s);
        free(s);
    }
}

/* The first match that ends after `from`; they are in order. */
static size_t first_after(const struct search_hits *h, uint32_t from)
{
    size_t lo = 0;
    size_t hi = h->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (h->v[mid].at + h->v[mid].len > from) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

void find_mark(const struct transcript *t, size_t block, const struct theme *th, int y, int x,
               int width, bool head, size_t i)
{
    const struct block *b = t->block[block];
    if (!t->search || b->hits != t->serial) {
        return;
    }
    const struct text_rows *r = head ? &b->head : b->body;
    const struct search_hits *h = head ? &b->head_hits : &b->body_hits;
    const size_t shown = t->has_hit && t->hit_block == block ? t->hit_i : SIZE_MAX;
    size_t end = 0;
    for (const struct text_run *k = text_row_run(r, i, NULL, &end); k;
         k = text_row_run(r, i, k, &end)) {
        const uint32_t said = k->from + (uint32_t)(end - k->at);
        size_t n = k->style & TEXT_DECOR ? h->n : first_after(h, k->from);
        for (; n < h->n && h->v[n].at < said; n++) {
            const uint32_t from = h->v[n].at > k->from ? h->v[n].at : k->from;
            const uint32_t to = h->v[n].at + h->v[n].len < said ? h->v[n].at + h->v[n].len : said;
            if (from < to) {
                const bool this = n + (head ? 0 : b->in_head) == shown;
                mark(th, y, x, width, r, i, k->at + (from - k->from), k->at + (to - k->from),
                     this ? R_SEARCH | STYLE_UNDER | STYLE_BOLD : R_SEARCH);
            }
        }
    }
}

void find_forget(struct block *b)
{
    search_hits_free(&b->head_hits);
    search_hits_free(&b->body_hits);
    buf_free(&b->head_said);
    if (b->answer) {
        md_forget_said(b->answer);
    }
    b->searched = b->hits = 0;
}
