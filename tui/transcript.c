/* The blocks of a conversation: how they come, grow, fold and go, which one is selected, and which
 * messages of the conversation they are. */
#include "config.h"
#include "tui/transcript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/md.h"
#include "tui/transcript_inside.h"

struct transcript *transcript_create(void)
{
    struct transcript *t = mem_zalloc(sizeof *t);
    t->follow = true;
    t->selected = -1;
    return t;
}

static void block_free(struct block *b)
{
    find_forget(b); /* also what it made of the answer */
    buf_free(&b->shown);
    buf_free(&b->full);
    buf_free(&b->thought);
    md_free(b->answer);
    text_rows_free(&b->head);
    text_rows_free(&b->tail);
    free(b);
}

void block_stale(struct block *b)
{
    b->width = 0;
    b->rows_width = 0;
    b->searched = 0;
    b->hits = 0;
    buf_free(&b->head_said);
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

void transcript_at(struct transcript *t, int64_t seconds)
{
    if (t->n > 0) {
        t->block[t->n - 1]->at = seconds;
    }
}

void transcript_model(struct transcript *t, const char *clock)
{
    struct block *b = push(t, B_MODEL, clock);
    b->answer = md_create();
    b->open = true;
}

/* Takes a block out; what is after it moves up. */
static void take_out(struct transcript *t, size_t i)
{
    block_free(t->block[i]);
    memmove(t->block + i, t->block + i + 1, (t->n - i - 1) * sizeof(struct block *));
    t->n--;
    t->selected = t->selected >= (int)i ? -1 : t->selected;
    t->top_row = t->top_block == i ? 0 : t->top_row;
    t->top_block -= t->top_block > i || (t->top_block == t->n && t->n > 0);
    t->seen_row = t->seen_block == i ? 0 : t->seen_row;
    t->seen_block -= t->seen_block > i || (t->seen_block == t->n && t->n > 0);
    t->has_hit = false;
}

void transcript_wait(struct transcript *t, const char *clock, int ahead)
{
    size_t i = t->n;
    while (i > 0 && !t->block[i - 1]->waiting) {
        i--;
    }
    if (ahead <= 0) {
        if (i > 0) {
            take_out(t, i - 1);
        }
        return;
    }
    struct block *b = i > 0 ? t->block[i - 1] : push(t, B_NOTICE, clock);
    char words[48];
    snprintf(words, sizeof words, "waiting for slot (%d ahead)", ahead);
    if (!b->waiting || strcmp(b->note, words) != 0) {
        b->waiting = true;
        snprintf(b->note, sizeof b->note, "%s", words);
        block_stale(b);
    }
}

void transcript_thought(struct transcript *t, const char *p, size_t n)
{
    struct block *b = growing(t);
    if (b) {
        buf_add(&b->thought, p, n);
        block_stale(b);
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
        block_stale(b);
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
        block_stale(b);
    }
}

void transcript_end(struct transcript *t, enum role role, const char *note)
{
    struct block *b = growing(t);
    if (b) {
        b->open = false;
        md_end(b->answer);
        b->note_role = role;
        snprintf(b->note, sizeof b->note, "%s", note);
        block_stale(b);
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
        block_stale(t->block[i]);
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

size_t transcript_mark(const struct transcript *t)
{
    return t->n;
}

void transcript_back_to(struct transcript *t, size_t mark)
{
    while (t->n > mark) {
        block_free(t->block[--t->n]);
        t->selected = -1;
        t->has_hit = false;
    }
}

/* ---- selection ----------------------------------------------------------- */

static bool selectable(const struct block *b)
{
    return b->kind != B_NOTICE;
}

bool transcript_next_code(struct transcript *t, const char *hint)
{
    const struct block *b = t->selected < 0 ? NULL : t->block[t->selected];
    const size_t n = b && b->answer && b->body ? md_codes(b->answer) : 0;
    size_t row = 0;
    size_t rows = 0;
    t->code = t->code < n ? t->code + 1 : 0;
    snprintf(t->code_hint, sizeof t->code_hint, " %s ", hint);
    if (t->code > 0) { /* into the view */
        md_code_rows(b->answer, t->code - 1, &row, &rows);
        t->follow = false;
        t->top_block = (size_t)t->selected;
        t->top_row = row + b->head.n_rows;
        t->top_row -= t->top_row < 2 ? t->top_row : 2;
    }
    return n > 0;
}

size_t transcript_code(const struct transcript *t, size_t *of)
{
    const struct block *b = t->selected < 0 ? NULL : t->block[t->selected];
    *of = b && b->answer ? md_codes(b->answer) : 0;
    return t->code <= *of ? t->code : 0;
}

void transcript_select(struct transcript *t, int dir)
{
    t->code = 0;
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
    t->code = 0;
    for (size_t i = 0; i < t->n; i++) {
        const size_t k = dir < 0 ? i : t->n - 1 - i;
        if (selectable(t->block[k])) {
            t->selected = (int)k;
            return;
        }
    }
}

bool transcript_fold(struct transcript *t)
{
    size_t i = t->n;
    if (t->selected >= 0) {
        i = (size_t)t->selected + 1;
    }
    for (; i > 0; i--) { /* without a selection: the last thought */
        struct block *b = t->block[i - 1];
        if (b->thought.len) {
            b->unfolded = !b->unfolded;
            block_stale(b);
            return true;
        }
        if (t->selected >= 0) {
            return false;
        }
    }
    return false;
}

bool transcript_click(struct transcript *t, int row)
{
    size_t block = t->top_block;
    size_t at = t->top_row + (size_t)row;
    while (block < t->n && at >= t->block[block]->rows) {
        at -= t->block[block++]->rows;
    }
    if (row < 0 || block >= t->n || !selectable(t->block[block])) {
        return false;
    }
    t->selected = (int)block;
    t->code = 0;
    if (at == 0 && t->block[block]->thought.len) {
        (void)transcript_fold(t);
    }
    return true;
}

void transcript_relayout(struct transcript *t)
{
    for (size_t i = 0; i < t->n; i++) {
        block_stale(t->block[i]);
        if (t->block[i]->answer) {
            md_forget(t->block[i]->answer);
            md_forget_said(t->block[i]->answer);
        }
        t->block[i]->body = NULL;
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
        block_stale(t->block[i]);
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
            .at = b->at,
            .text = b->kind == B_MODEL ? md_source(b->answer) : &b->full,
            .thought = &b->thought,
            .note = b->note,
            .selected = (int)i == t->selected,
        };
        fn(ctx, &m);
    }
}
