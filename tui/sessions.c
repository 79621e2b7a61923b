/* The list of stored conversations: read from the store, narrowed by what is typed (and
 * widened by the texts that have it), and what its keys do. A conversation's branches are asked for
 * when it comes into view. */
#include "config.h"
#include "tui/sessions.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tui/fuzzy.h"
#include "tui/layout.h"

#define LISTED 5000
#define AHEAD  64 /* conversations whose branches are asked for at a time */

static struct sessions *list_of(struct app *a)
{
    if (!a->sessions) {
        a->sessions = mem_zalloc(sizeof *a->sessions);
        a->sessions->stale = true;
    }
    return a->sessions;
}

/* ---- reading ---- */

static void forget_branches(struct stored *k)
{
    for (size_t i = 0; i < k->n_branches; i++) {
        free(k->branch[i].head);
    }
    free(k->branch);
    k->branch = NULL;
    k->n_branches = 0;
}

static void drop_all(struct sessions *s)
{
    for (size_t i = 0; i < s->n_stored; i++) {
        free(s->stored[i].title);
        forget_branches(&s->stored[i]);
    }
    free(s->stored);
    s->stored = NULL;
    s->n_stored = 0;
    s->n_rows = 0;
}

void sessions_free(struct app *a)
{
    if (a->sessions) {
        drop_all(a->sessions);
        found_free(&a->sessions->found);
        free(a->sessions->row);
        free(a->sessions);
        a->sessions = NULL;
    }
}

static bool take(void *ctx, const struct conv_stored *v)
{
    struct sessions *s = ctx;
    if ((s->n_stored & (s->n_stored - 1)) == 0) {
        const size_t cap = s->n_stored ? 2 * s->n_stored : 1;
        s->stored = mem_realloc(s->stored, cap * sizeof *s->stored);
    }
    s->stored[s->n_stored++] = (struct stored){.id = v->id,
                                               .updated = v->updated,
                                               .state_bytes = v->state_bytes,
                                               .title = mem_strdup(v->title ? v->title : ""),
                                               .turns = v->turns,
                                               .pinned = v->pinned,
                                               .recovered = v->recovered};
    return true;
}

static bool take_branch(void *ctx, const struct conv_branch *b)
{
    struct sessions *s = ctx;
    for (size_t i = 0; i < s->n_stored; i++) {
        struct stored *k = &s->stored[i];
        if (k->id == b->conversation) {
            k->branch = mem_realloc(k->branch, (k->n_branches + 1) * sizeof *k->branch);
            k->branch[k->n_branches++] = (struct stored_branch){.tip = b->tip,
                                                                .number = b->number,
                                                                .from = b->from,
                                                                .turns = b->turns,
                                                                .head = mem_strdup(b->head),
                                                                .current = b->current};
            break;
        }
    }
    return true;
}

void stored_branch_name(const struct stored_branch *b, char out[64])
{
    if (b->number == 1) {
        snprintf(out, 64, "main");
    } else {
        snprintf(out, 64, "main~%d: %s", b->number, b->head);
        size_t n = strlen(out); /* cut between characters */
        while (n == 63 && n > 0 && ((unsigned char)out[n - 1] & 0xC0) == 0x80) {
            out[--n] = 0;
        }
    }
}

size_t stored_pane(const struct app *a, int64_t id)
{
    for (size_t i = 0; i < a->n_panes; i++) {
        struct view_chat v;
        chat_view(a->panes[i]->chat, &v);
        if (!a->panes[i]->fresh && v.conversation == id) {
            return i + 1;
        }
    }
    return 0;
}

size_t stored_branch_pane(const struct app *a, int64_t id, int number)
{
    for (size_t i = 0; i < a->n_panes && number > 0; i++) {
        struct view_chat v;
        chat_view(a->panes[i]->chat, &v);
        if (!a->panes[i]->fresh && v.conversation == id && a->panes[i]->branch_number == number) {
            return i + 1;
        }
    }
    return 0;
}

/* What a conversation fits the query with; negative: not at all. */
static int fits(const char *query, const struct stored *k)
{
    int best = fuzzy_score(query, k->title);
    for (size_t i = 0; i < k->n_branches && query[0]; i++) {
        const int score = fuzzy_score(query, k->branch[i].head);
        best = score > best ? score : best;
    }
    return best;
}

static const char *query_of(const struct app *a)
{
    return a->sessions->naming || !a->query.data || a->overlay != OV_SESSIONS ? "" : a->query.data;
}

static void add_row(struct sessions *s, const struct stored_row *row)
{
    if ((s->n_rows & (s->n_rows - 1)) == 0) {
        s->row = mem_realloc(s->row, (s->n_rows ? 2 * s->n_rows : 1) * sizeof *s->row);
    }
    s->row[s->n_rows++] = *row;
}

/* The places that were found in a conversation. */
static void add_places(struct sessions *s, size_t stored)
{
    const struct finding *f = &s->found.answer;
    const size_t before = s->n_rows;
    for (size_t i = 0; i < f->n; i++) {
        if (f->v[i].conversation == s->stored[stored].id) {
            add_row(s, &(struct stored_row){stored, -1, (int)i, true, false});
        }
    }
    if (s->n_rows > before) {
        s->row[s->n_rows - 1].last = true;
    }
}

static size_t stored_of(const struct sessions *s, int64_t id)
{
    size_t i = 0;
    while (i < s->n_stored && s->stored[i].id != id) {
        i++;
    }
    return i;
}

static void make_rows(struct app *a)
{
    struct sessions *s = a->sessions;
    const struct finding *f = &s->found.answer;
    const char *query = query_of(a);
    struct fuzzy_hit *hit = mem_array(s->n_stored + 1, sizeof *hit);
    bool *listed = mem_zalloc(s->n_stored + 1);
    size_t n = 0;
    for (size_t i = 0; i < s->n_stored; i++) {
        const int score = fits(query, &s->stored[i]);
        if (score >= 0) {
            hit[n++] = (struct fuzzy_hit){i, score};
        }
    }
    if (query[0]) {
        fuzzy_sort(hit, n);
    }
    s->n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        const struct stored *k = &s->stored[hit[i].index];
        listed[hit[i].index] = true;
        add_row(s, &(struct stored_row){hit[i].index, -1, -1, false, false});
        for (size_t b = 0; k->n_branches > 1 && b < k->n_branches; b++) {
            add_row(s, &(struct stored_row){hit[i].index, (int)b, -1, false, false});
        }
        add_places(s, hit[i].index);
    }
    for (size_t i = 0; i < f->n; i++) { /* the rest: only their text has it */
        const size_t at = stored_of(s, f->v[i].conversation);
        if (at < s->n_stored && !listed[at]) {
            listed[at] = true;
            add_row(s, &(struct stored_row){at, -1, (int)i, false, false});
            add_places(s, at);
        }
    }
    free(hit);
    free(listed);
    s->pick = s->pick < s->n_rows ? s->pick : s->n_rows ? s->n_rows - 1 : 0;
}

/* Asks for the branches of what is about to be seen. */
static void look_closer(struct app *a)
{
    struct sessions *s = a->sessions;
    int64_t id[AHEAD];
    size_t n = 0;
    for (size_t i = s->top; i < s->n_rows && i < s->top + AHEAD; i++) {
        struct stored *k = &s->stored[s->row[i].stored];
        if (!k->known) {
            k->known = true;
            k->elsewhere = conv_elsewhere(a->conv, k->id);
            id[n++] = k->id;
        }
    }
    struct err e = ERR_INIT;
    if (n > 0 && conv_branches(a->conv, id, n, take_branch, s, &e) < 0) {
        app_error(a, &e);
    }
    if (n > 0) {
        make_rows(a);
    }
}

/* Reads the list; false: it cannot be, which is told when asked for. */
static bool read_list(struct app *a, bool asked)
{
    struct sessions *s = list_of(a);
    struct err e = ERR_INIT;
    const int64_t was = s->pick < s->n_rows ? s->stored[s->row[s->pick].stored].id : 0;
    drop_all(s);
    s->stale = false;
    const int rc = conv_list(a->conv, LISTED, take, s, &e);
    s->disk_known = rc == 0 && conv_disk(a->conv, &s->disk, NULL) == 0;
    s->read_at = clock_wall();
    if (rc < 0 && asked) {
        app_error(a, &e);
    }
    found_ask(a, &s->found, query_of(a), strlen(query_of(a))); /* there may be more by now */
    make_rows(a);
    for (size_t i = 0; i < s->n_rows && was; i++) {
        s->pick = s->stored[s->row[i].stored].id == was && s->row[i].branch < 0 ? i : s->pick;
    }
    look_closer(a);
    return rc == 0;
}

void sessions_stale(struct app *a)
{
    list_of(a)->stale = true;
}

static bool docked(const struct app *a)
{
    return COLS >= LAYOUT_LIST_FROM && LINES >= LAYOUT_SIDE_ROWS && !a->no_list;
}

void sessions_refresh(struct app *a)
{
    struct sessions *s = list_of(a);
    if (s->stale && (docked(a) || a->overlay == OV_SESSIONS)) {
        (void)read_list(a, false);
        a->dirty = true;
    }
}

void sessions_close(struct app *a)
{
    a->overlay = OV_NONE;
    a->sessions->copying = 0;
    buf_truncate(&a->query, 0);
    found_ask(a, &a->sessions->found, "", 0);
    make_rows(a);
}

/* What is typed changed. */
static void look_for(struct app *a)
{
    struct sessions *s = a->sessions;
    s->pick = s->top = 0;
    found_ask(a, &s->found, query_of(a), strlen(query_of(a)));
    make_rows(a);
}

int sessions_fd(const struct app *a)
{
    const struct sessions *s = a->sessions;
    return s && s->found.finder ? finder_fd(s->found.finder) : -1;
}

void sessions_found(struct app *a)
{
    if (a->sessions && found_take(a, &a->sessions->found)) {
        make_rows(a);
        if (a->overlay == OV_SESSIONS) {
            look_closer(a);
        }
        a->dirty = true;
    }
}

void sessions_open(struct app *a, const char *words)
{
    struct sessions *s = list_of(a);
    if (a->overlay == OV_SESSIONS) {
        sessions_close(a);
        return;
    }
    buf_truncate(&a->query, 0);
    s->n_rows = s->pick = s->top = 0;
    s->naming = false;
    s->forgetting = 0;
    s->copying = 0;
    found_ask(a, &s->found, "", 0);
    if (!read_list(a, true)) {
        return;
    }
    if (s->n_stored == 0) {
        app_note(a, R_TEXT, "no conversation is stored yet");
        return;
    }
    a->no_list = false;
    a->overlay = OV_SESSIONS;
    if (words[0]) {
        buf_adds(&a->query, words);
        look_for(a);
        look_closer(a);
    }
}

/* ---- keys ---- */

static struct stored *picked(const struct sessions *s)
{
    return s->pick < s->n_rows ? &s->stored[s->row[s->pick].stored] : NULL;
}

static void rename_picked(struct app *a)
{
    struct sessions *s = a->sessions;
    struct stored *k = picked(s);
    struct err e = ERR_INIT;
    s->naming = false;
    if (!k) {
        return;
    }
    if (conv_rename(a->conv, k->id, a->query.data ? a->query.data : "", &e) < 0) {
        app_error(a, &e);
    } else {
        const size_t shown = stored_pane(a, k->id);
        app_note(a, R_GOOD, "it is called %s now", a->query.data);
        if (shown > 0) {
            pane_names(a->panes[shown - 1]);
        }
    }
    buf_truncate(&a->query, 0);
    (void)read_list(a, true);
}

static void pin_picked(struct app *a)
{
    struct stored *k = picked(a->sessions);
    struct err e = ERR_INIT;
    if (k && conv_pin(a->conv, k->id, !k->pinned, &e) < 0) {
        app_error(a, &e);
    } else if (k) {
        k->pinned = !k->pinned;
        app_note(a, R_GOOD, "%s", k->pinned ? "pinned: its saved state goes last" : "not pinned");
    }
}

static void forget_picked(struct app *a)
{
    struct sessions *s = a->sessions;
    struct stored *k = picked(s);
    struct err e = ERR_INIT;
    uint64_t bytes = 0;
    char size[16];
    if (!k || s->forgetting != k->id) {
        s->forgetting = k ? k->id : 0;
        app_note(a, R_WARN, "the same key again drops its saved state; the text stays");
        return;
    }
    s->forgetting = 0;
    if (conv_forget(a->conv, k->id, &bytes, &e) < 0) {
        app_error(a, &e);
        return;
    }
    status_count((double)bytes, size);
    app_note(a, R_GOOD, "its saved state is gone, %s bytes; the text stays", size);
    (void)read_list(a, true);
}

static void name_key(struct app *a, const struct key *k)
{
    const enum action act = overlay_action(a, k);
    if (act == ACT_CHOOSE) {
        rename_picked(a);
    } else if (act == ACT_BACK) {
        a->sessions->naming = false;
        buf_truncate(&a->query, 0);
    } else {
        (void)overlay_query_key(a, &a->query, k);
    }
}

static void move_pick(struct sessions *s, int by)
{
    const size_t last = s->n_rows ? s->n_rows - 1 : 0;
    if (by < 0) {
        s->pick = s->pick > (size_t)-by ? s->pick - (size_t)-by : 0;
    } else {
        s->pick = s->pick + (size_t)by < last ? s->pick + (size_t)by : last;
    }
}

void sessions_click(struct app *a, int row)
{
    struct sessions *s = a->sessions;
    const size_t at = s->top + (size_t)row;
    if (s->naming || row < 0 || row >= s->page || at >= s->n_rows) {
        return;
    }
    if (a->overlay != OV_SESSIONS) {
        sessions_open(a, "");
        s->pick = at < s->n_rows ? at : s->pick;
    } else if (s->pick == at) {
        sessions_go(a, false);
        return;
    } else {
        s->pick = at;
    }
    s->forgetting = 0;
    s->copying = 0;
    look_closer(a);
}

bool sessions_key(struct app *a, const struct key *k)
{
    struct sessions *s = a->sessions;
    const int page = s->page > 1 ? s->page - 1 : 1;
    if (s->naming) {
        name_key(a, k);
        return true;
    }
    const enum action act = overlay_action(a, k);
    if (act == ACT_PREV_BLOCK || act == ACT_NEXT_BLOCK) {
        move_pick(s, act == ACT_PREV_BLOCK ? -1 : 1);
    } else if (act == ACT_PAGE_UP || act == ACT_PAGE_DOWN) {
        move_pick(s, act == ACT_PAGE_UP ? -page : page);
    } else if (act == ACT_CHOOSE || act == ACT_CHOOSE_BESIDE) {
        sessions_go(a, act == ACT_CHOOSE_BESIDE);
        s->forgetting = 0;
        return true;
    } else if (act == ACT_BACK) {
        sessions_close(a);
        return true;
    } else if (act == ACT_RENAME_IT) {
        const struct stored *it = picked(s);
        s->naming = it != NULL;
        buf_truncate(&a->query, 0);
        if (it) { /* the old name, to be changed */
            buf_add(&a->query, it->title, strcspn(it->title, "\r\n"));
        }
    } else if (act == ACT_PIN_IT) {
        pin_picked(a);
    } else if (act == ACT_FORGET_IT) {
        forget_picked(a);
        return true;
    } else if (overlay_query_key(a, &a->query, k)) {
        look_for(a);
    } else {
        return false;
    }
    s->forgetting = 0;
    s->copying = 0;
    look_closer(a);
    return true;
}
