/* The palette: every action by its name, commands behind a slash, words and files behind those.
 * All are one list over the transcript's last rows, the likeliest lowest; the entries are found
 * anew for each frame and key, since there are few. A list that shows by itself (a slash, an
 * argument) leaves the keys to the composer until one of Up and Down goes into it. */
#include "config.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/app.h"
#include "tui/complete.h"
#include "tui/files.h"
#include "tui/fuzzy.h"

#define ROWS 200

enum kind { L_NONE, L_ACTIONS, L_COMMANDS, L_WORDS, L_FILES };

#define SHOWN 14 /* rows at most */

struct entry {
    const char *text, *help;
    const struct key_action *row; /* NULL: a word or a file */
};

struct list {
    enum kind kind;
    struct entry v[ROWS];
    size_t n;
    struct buf draft; /* as it is written */
    size_t args;      /* of it: where the command's arguments begin … */
    size_t word;      /* … and the one that is completed */
};

/* ---- what is in it ------------------------------------------------------------ */

/* What an action is called: as its command without the slash, or its name. */
static const char *label(const struct key_action *row)
{
    return row->command ? row->command + 1 : row->name;
}

static int recent_bonus(const struct app *a, enum action act)
{
    for (size_t i = 0; i < a->n_recent; i++) {
        if (a->recent[i] == act) {
            return (int)(RECENT_MOST - i);
        }
    }
    return 0;
}

/* Of an action for a query: its name counts more than what is said of it. */
static int score(const struct app *a, const struct key_action *row, const char *query)
{
    const int name = fuzzy_score(query, label(row));
    const int help = fuzzy_score(query, row->help);
    if (name < 0 && help < 0) {
        return -1;
    }
    return (name >= 0 ? name * 2 : help) + recent_bonus(a, row->act);
}

/* Rows that are another way to an action that was there already. */
static bool is_again(const struct key_action *rows, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (rows[k].act == rows[i].act) {
            return true;
        }
    }
    return false;
}

static void collect(const struct app *a, const char *query, bool commands, struct list *l)
{
    struct fuzzy_hit hits[ROWS];
    size_t rows = 0, n = 0;
    const struct key_action *t = keymap_rows(a->keys, &rows);
    for (size_t i = 0; i < rows && n < ROWS; i++) {
        const bool here = !t[i].ctx || (t[i].ctx & CTX_BOTH); /* no key of a view or the help */
        const bool fit = commands ? t[i].command != NULL
                                  : t[i].name && here && t[i].act != ACT_PALETTE && !is_again(t, i);
        const int s = !fit       ? -1
                      : commands ? fuzzy_score(query, t[i].command + 1)
                                 : score(a, &t[i], query);
        if (s >= 0) {
            hits[n++] = (struct fuzzy_hit){i, s + (commands ? recent_bonus(a, t[i].act) : 0)};
        }
    }
    fuzzy_sort(hits, n);
    for (size_t i = 0; i < n; i++) {
        const struct key_action *row = &t[hits[i].index];
        l->v[l->n++] = (struct entry){commands ? row->command : label(row), row->help, row};
    }
}

static void collect_words(struct list *l, const char *draft)
{
    const char *words[COMPLETE_MOST];
    const char *nearest = NULL;
    const size_t n = strcspn(draft, " ");
    const struct key_action *c = keys_command(draft, n, &nearest);
    if (!c) {
        return;
    }
    size_t from = 0;
    const size_t found = complete_words(c, draft + n + 1, words, &from);
    l->args = n + 1;
    l->word = l->args + from;
    if (found == 1 && strcmp(words[0], draft + l->word) == 0) {
        return; /* it is there already */
    }
    for (size_t i = 0; i < found; i++) {
        const bool first = strchr(draft + l->args, ' ') == NULL;
        l->v[l->n++] = (struct entry){words[i], first ? complete_meaning(c, words[i]) : NULL, NULL};
    }
}

/* Fills l; what is in it is borrowed until the next key. */
static void fill(struct app *a, struct list *l)
{
    memset(l, 0, sizeof *l);
    if (a->overlay == OV_PALETTE) {
        l->kind = L_ACTIONS;
        collect(a, a->query.data ? a->query.data : "", false, l);
    } else if (a->overlay == OV_FILES) {
        l->kind = L_FILES;
        for (size_t i = 0; i < a->files.n && l->n < ROWS; i++) {
            l->v[l->n++] = (struct entry){a->files.v[i], NULL, NULL};
        }
    } else if (a->overlay == OV_NONE && !views_ctx(a) && !a->cur->focus &&
               !composer_pending(a->cur->composer)) {
        composer_text(a->cur->composer, &l->draft);
        buf_addc(&l->draft, 0);
        const char *s = l->draft.data;
        if (s[0] != '/' || s[1] == '/' || strchr(s, '\n')) {
            return;
        }
        const bool words = strchr(s, ' ') != NULL;
        l->kind = words ? L_WORDS : L_COMMANDS;
        if (words) {
            collect_words(l, s);
        } else {
            collect(a, s + 1, true, l);
            if (l->n == 1 && strcmp(l->v[0].text, s) == 0) {
                l->n = 0; /* complete */
            }
        }
    }
    l->kind = l->n == 0 && l->kind != L_ACTIONS ? L_NONE : l->kind;
}

bool palette_shown(struct app *a)
{
    struct list l;
    fill(a, &l);
    buf_free(&l.draft);
    return l.kind != L_NONE;
}

void palette_open(struct app *a)
{
    a->overlay = a->overlay == OV_PALETTE ? OV_NONE : OV_PALETTE;
    a->pick = 0;
    a->picked = true;
    buf_truncate(&a->query, 0);
}

/* ---- choosing ------------------------------------------------------------------- */

static bool needs_words(const struct key_action *row)
{
    return row->args && row->args[0] != '[';
}

static void remember(struct app *a, enum action act)
{
    size_t k = 0;
    while (k < a->n_recent && a->recent[k] != act) {
        k++;
    }
    if (k == a->n_recent) {
        a->n_recent += a->n_recent < RECENT_MOST;
        k = a->n_recent - 1;
    }
    memmove(a->recent + 1, a->recent, k * sizeof *a->recent);
    a->recent[0] = act;
}

void palette_command(struct app *a, enum action act)
{
    size_t n = 0;
    const struct key_action *t = keys_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].act != act || !t[i].command) {
            continue;
        }
        if (!needs_words(&t[i])) {
            (void)command_run(a, t[i].command, strlen(t[i].command));
            return;
        }
        struct buf b = BUF_INIT;
        submit_keep_draft(a->cur);
        buf_printf(&b, "%s ", t[i].command);
        composer_set(a->cur->composer, b.data, b.len);
        a->cur->focus = false;
        transcript_select(a->cur->transcript, 0);
        app_note(a, R_TEXT, "%s %s: %s", t[i].command, t[i].args, t[i].help);
        buf_free(&b);
        return;
    }
}

static void run_action(struct app *a, const struct key_action *row)
{
    remember(a, row->act);
    if (row->ctx == CTX_TRANSCRIPT && !a->cur->focus && !row->command) {
        if (transcript_is_empty(a->cur->transcript)) {
            app_note(a, R_WARN, "there is no message yet");
            return;
        }
        a->cur->focus = true; /* it is about a message */
        transcript_select(a->cur->transcript, -1);
    }
    dispatch_action(a, row->act);
}

/* A file or folder was chosen for the @word, or the argument, at a->file_word. */
static void take_file(struct app *a, const char *name)
{
    struct buf path = BUF_INIT;
    struct buf word = BUF_INIT;
    const bool folder = name[0] && name[strlen(name) - 1] == '/';
    const bool at = a->file_at;
    buf_printf(&path, "%s%s", a->file_dir ? a->file_dir : "", name);
    a->overlay = OV_NONE;
    if (at && !folder) {
        command_attach_file(a, a->file_word, a->file_end, path.data);
    } else {
        buf_adds(&word, at ? "@" : "");
        if (at) {
            files_quote(path.data, true, &word);
        } else {
            buf_adds(&word, path.data);
        }
        composer_replace(a->cur->composer, a->file_word, a->file_end, word.data);
        if (folder) {
            (void)palette_complete(a);
        }
    }
    buf_free(&word);
    buf_free(&path);
}

static void take_word(struct app *a, const struct list *l, const char *word)
{
    struct buf b = BUF_INIT;
    buf_add(&b, l->draft.data, l->word);
    buf_adds(&b, word);
    buf_addc(&b, ' ');
    composer_set(a->cur->composer, b.data, b.len);
    buf_free(&b);
}

/* Enter, or Tab, on an entry. */
static void choose(struct app *a, const struct list *l, const struct entry *e)
{
    a->picked = false;
    a->pick = 0;
    switch (l->kind) {
    case L_ACTIONS:
        a->overlay = OV_NONE;
        run_action(a, e->row);
        break;
    case L_COMMANDS:
        composer_clear(a->cur->composer);
        remember(a, e->row->act);
        palette_command(a, e->row->act);
        break;
    case L_WORDS:
        take_word(a, l, e->text);
        break;
    case L_FILES: {
        char *name = mem_strdup(e->text); /* the list may be made anew */
        take_file(a, name);
        free(name);
        break;
    }
    case L_NONE:
        break;
    }
}

bool palette_key(struct app *a, const struct key *k)
{
    const bool own = a->overlay == OV_PALETTE || a->overlay == OV_FILES;
    const struct key none = {.type = K_NONE};
    bool is_prefix = false;
    const enum action act = keymap_lookup(a->keys, CTX_LIST, &none, k, &is_prefix);
    const bool up = act == ACT_PREV_BLOCK, down = act == ACT_NEXT_BLOCK;
    const bool take = act == ACT_CHOOSE;
    if (!own && !up && !((down || take) && a->picked)) {
        a->picked = false;
        return false;
    }
    struct list l;
    fill(a, &l);
    bool taken = l.kind != L_NONE;
    const size_t page = (size_t)screen_page(a);
    if (!taken) {
        a->picked = false;
    } else if (up || (own && act == ACT_PAGE_UP)) {
        a->pick = !a->picked ? 0 : a->pick + (up ? 1 : page);
        a->picked = true;
        a->pick = a->pick < l.n ? a->pick : l.n ? l.n - 1 : 0;
    } else if (down || (own && act == ACT_PAGE_DOWN)) {
        const size_t by = down ? 1 : page;
        a->picked = own || a->pick > 0;
        a->pick -= a->pick < by ? a->pick : by;
    } else if (own && act == ACT_BACK) {
        a->overlay = OV_NONE;
        a->picked = false;
    } else if (take) {
        if (l.n > 0) {
            choose(a, &l, &l.v[a->pick < l.n ? a->pick : l.n - 1]);
        } else {
            a->overlay = OV_NONE;
        }
    } else if (a->overlay == OV_PALETTE && overlay_query_key(a, &a->query, k)) {
        a->pick = 0;
    } else {
        taken = false;
        a->picked = a->overlay == OV_PALETTE;
        a->overlay = a->overlay == OV_FILES ? OV_NONE : a->overlay;
    }
    buf_free(&l.draft);
    return taken;
}

bool palette_click(struct app *a, size_t up)
{
    struct list l;
    fill(a, &l);
    const size_t first =
        a->pick >= a->list_rows && a->list_rows > 0 ? a->pick - a->list_rows + 1 : 0;
    const bool there = l.kind != L_NONE && up < a->list_rows && first + up < l.n;
    if (there) {
        choose(a, &l, &l.v[first + up]);
    }
    buf_free(&l.draft);
    return there;
}

/* ---- Tab ---------------------------------------------------------------------------- */

/* What all the entries that begin with what is written have in common; those that only fit it
 * somehow do not count if there are any of them. */
static bool complete_command(struct app *a, const struct list *l)
{
    const char *typed = l->draft.data;
    const char *common = NULL;
    size_t len = 0, n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const char *s = l->v[i].text;
        if (strncmp(s, typed, strlen(typed)) != 0) {
            continue;
        }
        size_t k = 0;
        while (common && k < len && common[k] == s[k]) {
            k++;
        }
        len = common ? k : strlen(s);
        common = s;
        n++;
    }
    struct buf b = BUF_INIT;
    if (n == 0 && l->n > 0) {
        common = l->v[0].text;
        len = strlen(common);
        n = 1;
    }
    buf_add(&b, common, len);
    buf_adds(&b, n == 1 ? " " : "");
    composer_set(a->cur->composer, b.data, b.len);
    buf_free(&b);
    return true;
}

/* Looks for files that begin with path, which stands at [at, end) of the draft. */
static bool complete_file(struct app *a, const char *path, size_t at, size_t end, bool chip)
{
    struct err e = ERR_INIT;
    const char *slash = strrchr(path, '/');
    const size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    file_names_free(&a->files);
    if (files_match(path, &a->files, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg);
        return true;
    }
    if (a->files.left_out > 0) {
        app_note(a, R_WARN,
                 "left out: %zu file%s with control characters or broken UTF-8 in the name (rename "
                 "to attach)",
                 a->files.left_out, a->files.left_out == 1 ? "" : "s");
    } else if (a->files.n == 0) {
        app_note(a, R_WARN, "no file begins with %s", path);
    }
    if (a->files.n == 0) {
        return true;
    }
    free(a->file_dir);
    a->file_dir = mem_strndup(path, dir);
    a->file_word = at;
    a->file_end = end;
    a->file_at = chip;
    if (a->files.n == 1) {
        char *name = mem_strdup(a->files.v[0]);
        take_file(a, name);
        free(name);
        return true;
    }
    const size_t common = files_common(&a->files);
    if (common > strlen(path + dir)) {
        struct buf whole = BUF_INIT;
        struct buf word = BUF_INIT;
        buf_printf(&whole, "%.*s%.*s", (int)dir, path, (int)common, a->files.v[0]);
        buf_adds(&word, chip ? "@" : "");
        if (chip) {
            files_quote(whole.data, true, &word);
        } else {
            buf_adds(&word, whole.data);
        }
        composer_replace(a->cur->composer, at, end, word.data);
        a->file_end = composer_cursor(a->cur->composer);
        buf_free(&whole);
        buf_free(&word);
    }
    if (a->files.cut) {
        app_note(a, R_TEXT, "there are more than these %zu; type more of the name", a->files.n);
    }
    a->overlay = OV_FILES;
    a->pick = 0;
    a->picked = true;
    return true;
}

static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++) {
        n += ((unsigned char)*s & 0xC0) != 0x80;
    }
    return n;
}

/* An @word before the cursor, or the file behind a command. */
static bool complete_any_file(struct app *a)
{
    struct line_command w = {.text = BUF_INIT};
    struct buf path = BUF_INIT;
    bool done = false;
    if (composer_at_word(a->cur->composer, &w)) {
        files_unquote(w.text.data, w.text.len, &path);
        buf_addc(&path, 0);
        done = complete_file(a, path.data, w.at, w.end, true);
    } else if (composer_command(a->cur->composer, 0, &w)) {
        size_t from = 0;
        const char *nearest = NULL;
        buf_addc(&w.text, 0);
        const size_t n = strcspn(w.text.data, " ");
        const struct key_action *c = keys_command(w.text.data, n, &nearest);
        if (c && w.text.data[n] && complete_takes_file(c, w.text.data + n + 1, &from)) {
            const char *rest = w.text.data + n + 1 + from;
            done = complete_file(a, rest, w.end - characters(rest), w.end, false);
        }
    }
    buf_free(&path);
    buf_free(&w.text);
    return done;
}

/* Whether the word at the cursor is, or may be, the name of a file. */
static bool file_word(const struct app *a)
{
    struct line_command w = {.text = BUF_INIT};
    bool is = composer_at_word(a->cur->composer, &w);
    if (!is && composer_command(a->cur->composer, 0, &w)) {
        size_t from = 0;
        const char *nearest = NULL;
        buf_addc(&w.text, 0);
        const size_t n = strcspn(w.text.data, " ");
        const struct key_action *c = keys_command(w.text.data, n, &nearest);
        is = c && w.text.data[n] && complete_takes_file(c, w.text.data + n + 1, &from);
    }
    buf_free(&w.text);
    return is;
}

const char *palette_tab(struct app *a)
{
    struct list l;
    const char *does = NULL;
    if (a->cur->focus || a->overlay != OV_NONE || views_ctx(a) ||
        composer_pending(a->cur->composer)) {
        return NULL;
    }
    fill(a, &l);
    if (l.kind == L_WORDS) {
        does = "takes the lowest";
    } else if (l.kind == L_COMMANDS) {
        does = "completes";
    } else if (file_word(a)) {
        does = "lists files";
    }
    buf_free(&l.draft);
    return does;
}

bool palette_complete(struct app *a)
{
    struct list l;
    if (a->cur->focus) {
        return false;
    }
    fill(a, &l);
    bool done = false;
    if (l.kind == L_COMMANDS) {
        done = complete_command(a, &l);
    } else if (l.kind == L_WORDS) {
        take_word(a, &l, l.v[0].text);
        done = true;
    } else {
        done = complete_any_file(a);
    }
    buf_free(&l.draft);
    return done;
}

/* ---- drawing ------------------------------------------------------------------------- */

static void draw_entry(const struct app *a, const struct entry *e, int y, bool picked)
{
    const struct theme *th = &a->theme;
    const unsigned here = a->cur->focus ? CTX_TRANSCRIPT : CTX_COMPOSER;
    const char *key = e->row ? keymap_key(a->keys, e->row->act, here) : "";
    key = key[0] || !e->row ? key : keymap_key(a->keys, e->row->act, CTX_ALL);
    const int right = key[0] ? text_cells(key, strlen(key)) + 2 : 1;
    text_blank(th, y, 0, COLS);
    (void)text_put(th, y, 1, 2, R_USER, picked ? ">" : " ");
    int x = 3 + text_put(th, y, 3, COLS - 3 - right, picked ? R_SELECT : R_TEXT, e->text);
    if (e->row && e->row->args && e->row->command && COLS >= 100) {
        x += 1 + text_put(th, y, x + 1, COLS - x - right, R_DIM, e->row->args);
    }
    const int at = x + 2 > 28 ? x + 2 : 28;
    if (e->help && at + 8 + right < COLS) {
        (void)text_put(th, y, at, COLS - at - right - 1, R_DIM, e->help);
    }
    if (key[0]) {
        (void)text_put(th, y, COLS - right + 1, right - 1, R_TEXT, key);
    }
}

void palette_draw(struct app *a, int top, int rule)
{
    struct list l;
    fill(a, &l);
    const int room = rule - top - 1;
    const size_t most = room > 0 ? (size_t)(room < SHOWN ? room : SHOWN) : 0;
    const size_t shown = l.n < most ? l.n : most;
    a->pick = l.n == 0 || a->pick < l.n ? a->pick : l.n - 1;
    const size_t first = a->pick >= shown && shown > 0 ? a->pick - shown + 1 : 0;
    a->list_rows = shown;
    for (size_t i = 0; i < shown; i++) {
        draw_entry(a, &l.v[first + i], rule - 1 - (int)i, a->picked && first + i == a->pick);
    }
    if (a->overlay == OV_PALETTE || a->overlay == OV_FILES) {
        char text[160];
        snprintf(text, sizeof text, " %s: %.100s ", a->overlay == OV_FILES ? "files" : "actions",
                 a->overlay == OV_FILES ? a->file_dir ? a->file_dir : ""
                 : a->query.data        ? a->query.data
                                        : "");
        text_blank(&a->theme, rule, 0, COLS);
        const int x = text_put(&a->theme, rule, 0, COLS, R_STRONG, text);
        char keys[160];
        keymap_hints(a->keys, overlay_hints, 3, CTX_LIST, keys, sizeof keys);
        const char *hint = l.n == 0 ? "nothing found" : keys;
        if (x + 1 + (int)strlen(hint) < COLS) {
            (void)text_put(&a->theme, rule, x + 1, COLS, l.n == 0 ? R_WARN : R_DIM, hint);
        }
    }
    buf_free(&l.draft);
}
