/* The slash commands, and the actions that leave the screen for a moment or
 * write somewhere else: the editor, the clipboard, a file. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tui/app.h"
#include "tui/export.h"
#include "tui/clip.h"
#include "tui/term.h"

/* The next word of *s, cut off with a NUL; empty at the end. */
static char *next_word(char **s)
{
    while (isspace((unsigned char)**s)) {
        (*s)++;
    }
    char *word = *s;
    while (**s && !isspace((unsigned char)**s)) {
        (*s)++;
    }
    if (**s) {
        *(*s)++ = 0;
    }
    return word;
}

static char *rest_of(char *s)
{
    while (isspace((unsigned char)*s)) {
        s++;
    }
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1])) {
        s[--n] = 0;
    }
    return s;
}

/* A text that is too long for the terminal goes here. */
static int copy_to_file(const struct buf *text, char **path, struct err *e)
{
    char *dir = io_xdg_state();
    struct tmp_out t = TMP_OUT_INIT;
    *path = io_join(dir, "copied.txt");
    int rc = io_mkdirs(dir, 0700, e);
    if (rc == 0) {
        rc = tmp_out_create(&t, *path, 0600, e);
    }
    if (rc == 0) {
        rc = io_write_all(t.fd, text->data, text->len, *path, e);
    }
    if (rc == 0) {
        rc = tmp_out_commit(&t, *path, e);
    }
    tmp_out_fini(&t);
    free(dir);
    return rc;
}

void command_copy(struct app *a, const struct buf *text)
{
    struct err e = ERR_INIT;
    char size[16];
    char *path = NULL;
    if (!text || text->len == 0) {
        app_note(a, R_WARN, "there is nothing to copy");
        return;
    }
    status_count((double)text->len, size);
    const char *unit = text->len < 1000 ? " bytes" : "B";
    const char *program = clip_program();
    struct err given = ERR_INIT;
    const bool took = program && clip_give(program, text->data, text->len, &given) == 0;
    const char *also = took ? ", and to the clipboard by " : "", *whom = took ? program : "";
    if (clip_terminal(text->data, text->len, &e) == 0) {
        app_note(a, R_GOOD, "sent %s%s to the terminal%s%s", size, unit, also, whom);
    } else if (copy_to_file(text, &path, &e) == 0) {
        app_note(a, R_GOOD, "too long for the terminal: %s%s written to %s%s%s", size, unit, path,
                 also, whom);
    } else {
        app_note(a, R_BAD, "%s", e.msg);
    }
    if (given.msg[0]) {
        app_note(a, R_WARN, "%s%s%s", a->note.data, "; ", given.msg);
    }
    free(path);
}

void command_copy_selected(struct app *a)
{
    const struct buf *text = transcript_selected_text(a->cur->transcript);
    size_t of = 0;
    const size_t number = transcript_code(a->cur->transcript, &of);
    struct buf code = BUF_INIT, more = BUF_INIT;
    if (number == 0) {
        command_copy(a, text);
    } else if (export_code(text, number, &code) && !export_code(text, of + 1, &more)) {
        command_copy(a, &code);
    } else { /* fences that two readings take for different blocks */
        app_note(a, R_WARN, "where this code begins is not clear; nothing was copied");
    }
    buf_free(&code);
    buf_free(&more);
}

/* Writes text to a new file, never over one that is there. */
static void write_new(struct app *a, const char *path, const struct buf *b, size_t messages)
{
    struct err e = ERR_INIT;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool misnamed = fd < 0 && errno != ENOSPC && errno != EROFS;
    int rc = fd < 0 ? err_sys(&e, QE_IO, errno, "cannot write %s", path)
                    : io_write_all(fd, b->data ? b->data : "", b->len, path, &e);
    if (fd >= 0 && close(fd) < 0 && rc == 0) {
        rc = err_sys(&e, QE_IO, errno, "cannot write %s", path);
    }
    if (fd >= 0 && rc < 0) {
        unlink(path); /* else its name would be refused the next time */
    }
    if (rc == 0) {
        app_note(a, R_GOOD, "wrote %zu bytes, %zu message%s, to %s", b->len, messages,
                 messages == 1 ? "" : "s", path);
    } else {
        app_note(a, misnamed ? R_WARN : R_BAD, "%s", e.msg);
    }
}

static void export_now(struct app *a, enum export_form form, const char *path, size_t last,
                       bool from_selected)
{
    char name[64];
    struct buf b = BUF_INIT;
    const size_t n = export_text(a->cur->transcript, form, last, from_selected, &b);
    if (!path[0]) {
        const time_t now = (time_t)clock_wall();
        struct tm tm;
        localtime_r(&now, &tm);
        char at[32];
        strftime(at, sizeof at, "%Y%m%d-%H%M%S", &tm);
        snprintf(name, sizeof name, "quasar-%s.%s", at, export_form_name(form));
        path = name;
    }
    if (n == 0) {
        app_note(a, R_WARN, "there is nothing to export");
    } else {
        char *whole = files_expand(path);
        write_new(a, whole, &b, n);
        free(whole);
    }
    buf_free(&b);
}

void command_export_here(struct app *a)
{
    export_now(a, EXPORT_MD, "", 0, true);
}

/* md|txt|json [FILE] [--last N] */
static void export_to(struct app *a, char *args)
{
    enum export_form form = EXPORT_MD;
    size_t last = 0;
    const bool known = export_form_named(next_word(&args), &form);
    char *path = rest_of(args);
    char *option = strstr(path, "--last ");
    bool good = known;
    if (option && (option == path || option[-1] == ' ')) {
        char *end = NULL;
        last = strtoul(option + 7, &end, 10);
        good = good && last > 0 && end != option + 7 && !*end;
        *option = 0;
        path = rest_of(path);
    }
    if (good) {
        export_now(a, form, path, last, false);
    } else {
        app_note(a, R_WARN, "usage: /export md, txt or json, then a FILE, then --last N");
    }
}

struct answers {
    size_t n, want;
    const struct buf *text;
};

static void count_answer(void *ctx, const struct transcript_message *m)
{
    struct answers *s = ctx;
    if (!m->user && ++s->n == s->want) {
        s->text = m->text;
    }
}

/* /copy, /copy N (the Nth answer from the last), /copy code */
static void copy_what(struct app *a, const char *what)
{
    const struct buf *last = transcript_last_answer(a->cur->transcript);
    if (strcmp(what, "code") == 0) {
        struct buf code = BUF_INIT;
        if (last && export_code(last, 0, &code)) {
            command_copy(a, &code);
        } else {
            app_note(a, R_WARN, "there is no code in the last answer");
        }
        buf_free(&code);
    } else if (what[0]) {
        const size_t digits = strspn(what, "0123456789");
        struct answers s = {0};
        transcript_each(a->cur->transcript, count_answer, &s);
        const size_t back = digits < 9 && !what[digits] ? strtoul(what, NULL, 10) : 0;
        if (back == 0 || back > s.n) {
            app_note(a, R_WARN, "usage: /copy N, of %zu answers from the last, or /copy code", s.n);
            return;
        }
        s = (struct answers){.want = s.n - back + 1};
        transcript_each(a->cur->transcript, count_answer, &s);
        command_copy(a, s.text);
    } else {
        command_copy(a, last);
    }
}

struct turn_text {
    struct buf text;
    bool over, taken; /* the selected message was there; its turn is over */
};

static void add_turn(void *ctx, const struct transcript_message *m)
{
    struct turn_text *t = ctx;
    if (m->user && t->taken) {
        t->over = true;
    }
    if (t->over) {
        return;
    }
    if (m->user) {
        buf_truncate(&t->text, 0);
    }
    t->taken = t->taken || m->selected;
    if (!m->user && m->thought->len > 0) {
        buf_adds(&t->text, "<think>\n");
        buf_add(&t->text, m->thought->data, m->thought->len);
        buf_adds(&t->text, "\n</think>\n\n");
    }
    buf_add(&t->text, m->text->data ? m->text->data : "", m->text->len);
    buf_adds(&t->text, "\n");
}

void command_copy_turn(struct app *a)
{
    struct turn_text t = {.text = BUF_INIT};
    transcript_each(a->cur->transcript, add_turn, &t);
    command_copy(a, t.taken ? &t.text : NULL);
    buf_free(&t.text);
}

/* Puts a file in the place of the command, with its name before it; *as becomes that name. */
static int attach(struct app *a, const struct line_command *in, const char *name, char **as,
                  struct err *e)
{
    struct buf b = BUF_INIT;
    const char *home = getenv("HOME");
    char *path =
        name[0] == '~' && name[1] == '/' && home ? io_join(home, name + 2) : mem_strdup(name);
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    buf_printf(&b, COMPOSER_FILE_HEAD "%s:\n", base);
    const size_t head = b.len;
    int rc = name[0] ? io_read_file(path, CHAT_TEXT_MAX / 2, &b, e)
                     : err_set(e, QE_USAGE, "usage: /attach FILE");
    if (rc == 0 && b.len == head) {
        rc = err_set(e, QE_FORMAT, "%s is empty", path);
    } else if (rc == 0 && memchr(b.data + head, 0, b.len - head)) {
        rc = err_set(e, QE_FORMAT, "%s is no text: it has zero bytes in it", path);
    }
    if (rc == 0) {
        rc = composer_attach(a->cur->composer, in, base, b.data, b.len, e);
    }
    if (rc == 0) {
        free(*as);
        *as = mem_strdup(base);
    }
    free(path);
    buf_free(&b);
    return rc;
}

void command_attach_file(struct app *a, size_t at, size_t end, const char *path)
{
    const struct line_command word = {.at = at, .end = end};
    struct err e = ERR_INIT;
    char *name = NULL;
    if (attach(a, &word, path, &name, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg);
    } else {
        app_note(a, R_GOOD, "%s is in the message; Enter sends it", name);
    }
    free(name);
}

enum attached command_attach(struct app *a, bool words)
{
    struct line_command cmd = {.text = BUF_INIT};
    struct err why = ERR_INIT;
    char *name = NULL;
    size_t n = 0;
    for (size_t from = 0; composer_command(a->cur->composer, from, &cmd);) {
        struct err e = ERR_INIT;
        char *args = cmd.text.data;
        from = cmd.end;
        if (strcmp(next_word(&args), "/attach") != 0) {
            continue;
        }
        if (attach(a, &cmd, rest_of(args), &name, &e) == 0) {
            from = cmd.at + 1;
            n++;
        } else if (why.code == 0) {
            why = e;
        }
    }
    if (why.code < 0) {
        app_note(a, R_WARN, "%s%s", why.msg, words ? "; Enter again sends it as words" : "");
    } else if (n == 1) {
        app_note(a, R_GOOD, "%s is in the message; Enter sends it", name);
    } else if (n > 1) {
        app_note(a, R_GOOD, "%zu files are in the message; Enter sends it", n);
    }
    free(name);
    buf_free(&cmd.text);
    return why.code < 0 ? ATTACH_FAILED : n > 0 ? ATTACH_DONE : ATTACH_NONE;
}

bool command_misplaced(struct app *a, const char *shown)
{
    struct line_command cmd = {.text = BUF_INIT};
    bool found = false;
    for (size_t from = 0; !found && composer_command(a->cur->composer, from, &cmd);
         from = cmd.end) {
        char *args = cmd.text.data;
        const char *word = next_word(&args);
        const char *nearest = NULL;
        if (cmd.last && cmd.at > 0 && keys_command(word, strlen(word), &nearest)) {
            app_note(a, R_WARN,
                     "%s works only as the whole message; %sEnter again sends it as words", word,
                     a->cur->summed ? "Esc takes the summary back; " : "");
            found = true;
        }
    }
    buf_free(&cmd.text);
    const char *line = strrchr(shown, '\n') ? strrchr(shown, '\n') : shown;
    const char *inside = found ? NULL : strstr(line, " /attach ");
    if (inside && inside[strspn(inside + 9, " ") + 9]) {
        app_note(a, R_WARN,
                 "/attach works at the beginning of a line (Alt-Enter begins one); "
                 "Enter again sends it as words");
        found = true;
    }
    return found;
}

static void set(struct app *a, const char *key, const char *value)
{
    struct err e = ERR_INIT;
    if (chat_set(a->cur->chat, key, value, &e) == 0) {
        app_note(a, R_GOOD, "%s: %s, from the next message on", key, value[0] ? value : "none");
    } else {
        app_error(a, &e);
    }
}

static void think(struct app *a, const char *what)
{
    if (strcmp(what, "on") == 0 || strcmp(what, "off") == 0 || strcmp(what, "default") == 0) {
        set(a, "think", what);
    } else if (strncmp(what, "budget", 6) == 0 && (what[6] == ' ' || what[6] == 0)) {
        what += 6 + strspn(what + 6, " ");
        set(a, "think-budget", what[0] && strcmp(what, "off") != 0 ? what : "default");
    } else if (strcmp(what, "show") == 0 || strcmp(what, "hide") == 0) {
        transcript_show_thoughts(a->cur->transcript, what[0] == 's');
        app_note(a, R_GOOD, "thoughts are %s", what[0] == 's' ? "shown" : "folded");
    } else {
        app_note(a, R_WARN, "usage: /think on, off, default, budget N, show or hide");
    }
}

static void set_theme(struct app *a, const char *name)
{
    if (!theme_named(name, &a->theme.kind)) {
        app_note(a, R_WARN,
                 "%s%s%sthere are the themes default, auto, light, dark and mono; this is %s",
                 name[0] ? "no theme " : "", name, name[0] ? "; " : "", theme_names[a->theme.kind]);
        return;
    }
    theme_start(&a->theme);
    if (a->theme.kind == THEME_AUTO) {
        a->color_asked = app_now();
        term_ask_background();
    }
    a->redraw = true;
    app_note(a, R_GOOD, "theme %s; theme = %s in the settings keeps it", name, name);
}

static void set_editor(struct app *a, bool vi)
{
    for (size_t i = 0; i < PANES_MAX; i++) {
        composer_set_editor(a->composers[i], vi);
    }
    app_note(a, R_GOOD, "%s keys", vi ? "vi" : "Emacs");
}

/* How the terminal draws what terminals do not agree on. */
static void set_widths(struct app *a, const char *key, const char *value)
{
    const bool joined = key[0] == 'u';
    const char *const words[2] = {joined ? "safe" : "1", joined ? "full" : "2"};
    if (strcmp(value, words[0]) != 0 && strcmp(value, words[1]) != 0) {
        app_note(a, R_WARN, "%s is \"%s\"; it must be %s or %s", key, value, words[0], words[1]);
        return;
    }
    const bool on = strcmp(value, words[1]) == 0;
    if (joined) {
        a->theme.raw = on;
        app_note(
            a, R_GOOD,
            on ? "joined characters are drawn raw; a row may shift where the terminal joins them"
               : "joiners and variation selectors are not drawn");
    } else {
        a->theme.wide = on;
        utf8_set_ambiguous(on ? 2 : 1);
        app_note(a, R_GOOD, "characters of open width take %s", on ? "two cells" : "one cell");
    }
    for (size_t i = 0; i < a->n_panes; i++) {
        transcript_relayout(a->panes[i]->transcript);
    }
    a->help_width = 0;
    a->redraw = true;
}

/* What saved states may take on the disk. */
static void set_budget(struct app *a, const char *value)
{
    struct err e = ERR_INIT;
    struct conv_disk disk;
    uint64_t budget = UINT64_MAX, freed = 0;
    char size[16], gone[16];
    if (strcmp(value, "auto") != 0 && strcmp(value, "default") != 0 &&
        !conf_read_size(value, &budget)) {
        app_note(a, R_WARN, "state-budget is \"%s\"; it must be auto, or bytes with K, M, G or T",
                 value);
    } else if (conv_set_budget(a->conv, budget, &freed, &e) < 0 ||
               conv_disk(a->conv, &disk, &e) < 0) {
        app_error(a, &e);
    } else {
        status_count((double)disk.budget, size);
        status_count((double)freed, gone);
        app_note(a, R_GOOD, "saved states may take %s bytes%s%s%s", size,
                 freed ? "; what went for it had " : "", freed ? gone : "", freed ? " bytes" : "");
        sessions_stale(a);
    }
}

/* /set: what concerns the screen, else the conversation. */
static void set_any(struct app *a, const char *key, const char *value)
{
    if (!key[0] || !value[0]) {
        app_note(a, R_WARN,
                 "usage: /set KEY VALUE; the keys are listed behind \"/set \", and default is the "
                 "model's own");
    } else if (strcmp(key, "theme") == 0) {
        set_theme(a, value);
    } else if (strcmp(key, "mouse") == 0) {
        if (mouse_set(a, value)) {
            app_note(a, R_GOOD,
                     value[0] == 'w'   ? "the wheel scrolls; hold Shift to select text"
                     : value[1] == 'n' ? "the mouse scrolls and clicks; hold Shift to select text"
                                       : "the mouse is the terminal's own");
        } else {
            app_note(a, R_WARN, "mouse is \"%s\"; it must be off, wheel or on", value);
        }
    } else if (strcmp(key, "state-budget") == 0) {
        set_budget(a, value);
    } else if (strcmp(key, "unicode") == 0 || strcmp(key, "ambiguous") == 0) {
        set_widths(a, key, value);
    } else if (strcmp(key, "editor") == 0) {
        if (strcmp(value, "vi") == 0 || strcmp(value, "emacs") == 0) {
            set_editor(a, value[0] == 'v');
        } else {
            app_note(a, R_WARN, "editor is \"%s\"; it must be emacs or vi", value);
        }
    } else {
        set(a, key, value);
    }
}

/* What the next answer is drawn with. */
static void show_sampling(struct app *a)
{
    static const char *const keys[] = {"temp",       "top-k",     "top-p",      "min-p",
                                       "presence",   "frequency", "repetition", "seed",
                                       "max-tokens", "think",     "effort"};
    struct buf b = BUF_INIT, rest = BUF_INIT;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char value[64];
        if (chat_get(a->cur->chat, keys[i], value)) {
            buf_printf(&b, "%s%s %s", b.len ? ", " : "", keys[i], value);
        } else {
            buf_printf(&rest, "%s%s", rest.len ? ", " : "", keys[i]);
        }
    }
    buf_printf(&b, "%s%s%s",
               b.len && rest.len ? "; the model's own: "
               : rest.len        ? "the model's own: "
                                 : "",
               rest.data ? rest.data : "", "");
    app_note(a, R_TEXT, "%s", b.data);
    buf_free(&rest);
    buf_free(&b);
}

static void show_status(struct app *a)
{
    const struct view_model *m = &a->cur->status.model;
    const struct view_chat *v = &a->cur->status.chat;
    char used[16], ctx[16], last[64] = "";
    if (v->context_used < 0) {
        snprintf(used, sizeof used, "-");
    } else {
        status_count(v->context_used, used);
    }
    status_count(m->ctx, ctx);
    if (v->tok_s > 0) {
        snprintf(last, sizeof last, "; last answer: %d tokens, %.0f per second", v->output_tokens,
                 v->tok_s);
    }
    app_note(a, R_TEXT, "%s %s on %s %s; context %s of %s tokens%s", m->name, m->tier, m->backend,
             m->device, used, ctx, last);
}

/* The stored conversation on the screen; 0, and why, when there is none. */
static int64_t this_conversation(struct app *a)
{
    struct view_chat v;
    chat_view(a->cur->chat, &v);
    const int64_t id = a->cur->fresh ? 0 : v.conversation;
    if (id <= 0) {
        app_note(a, R_WARN, "this conversation is not stored: nothing was said yet, or --no-save");
    }
    return id > 0 ? id : 0;
}

static void rename_it(struct app *a, const char *name)
{
    struct err e = ERR_INIT;
    const int64_t id = name[0] ? this_conversation(a) : 0;
    if (!name[0]) {
        app_note(a, R_WARN, "usage: /rename NAME, of this conversation");
    } else if (id > 0 && conv_rename(a->conv, id, name, &e) == 0) {
        pane_names(a->cur);
        app_note(a, R_GOOD, "this conversation is \"%s\" from now on", name);
    } else if (id > 0) {
        app_error(a, &e);
    }
}

static void pin_it(struct app *a, const char *word)
{
    struct err e = ERR_INIT;
    const bool off = strcmp(word, "off") == 0;
    const int64_t id = this_conversation(a);
    if (word[0] && !off && strcmp(word, "on") != 0) {
        app_note(a, R_WARN, "usage: /pin, or /pin off");
    } else if (id > 0 && conv_pin(a->conv, id, !off, &e) == 0) {
        app_note(a, R_GOOD,
                 off ? "no more pinned: its saved state goes when it is its turn"
                     : "pinned: its saved state goes last when there is no room");
    } else if (id > 0) {
        app_error(a, &e);
    }
}

static void forget_it(struct app *a)
{
    struct err e = ERR_INIT;
    uint64_t bytes = 0;
    const int64_t id = this_conversation(a);
    if (id > 0 && conv_forget(a->conv, id, &bytes, &e) == 0) {
        char size[16];
        status_count((double)bytes, size);
        app_note(a, R_GOOD,
                 "its saved states are deleted (%s bytes); what was said stays, and is "
                 "read again when it is gone on with",
                 size);
    } else if (id > 0) {
        app_error(a, &e);
    }
}

/* By a number, a name or its beginning. */
static void resume_it(struct app *a, const char *id)
{
    struct err e = ERR_INIT;
    int64_t found = 0;
    if (!id[0]) {
        sessions_open(a, "");
    } else if (conv_find(a->conv, id, &found, &e) < 0) {
        app_error(a, &e);
    } else if (chat_busy(a->cur->chat) || a->cur->n_queue > 0) {
        app_note(a, R_WARN, "the model is at work, or messages wait; stop it first (%s)",
                 app_way(a, ACT_STOP_OR_QUIT));
    } else {
        sessions_choose(a, found);
    }
}

static void paste_again(struct app *a, const char *number)
{
    struct err e = ERR_INIT;
    char *end = NULL;
    const unsigned long n = number[0] ? strtoul(number, &end, 10) : 1;
    if (number[0] && (*end || n == 0)) {
        app_note(a, R_WARN, "usage: /paste N, of the pastes before from the last");
    } else if (composer_paste_again(a->cur->composer, n, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg);
    }
}

/* /system: words, or the content of a file. */
static void set_system(struct app *a, const char *text)
{
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    char *path = text[0] == '@' && text[1] ? files_expand(text + 1) : NULL;
    if (!path) {
        set(a, "system", text[0] ? text : "default");
    } else if (io_read_file(path, 1 << 20, &b, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg);
    } else if (b.len == 0 || memchr(b.data, 0, b.len)) {
        app_note(a, R_WARN, "%s is %s", path, b.len ? "no text" : "empty");
    } else if (chat_set(a->cur->chat, "system", b.data, &e) < 0) {
        app_error(a, &e);
    } else {
        app_note(a, R_GOOD, "system: %zu bytes of %s, from the next message on", b.len, path);
    }
    free(path);
    buf_free(&b);
}

static void new_chat(struct app *a)
{
    if (chat_busy(a->cur->chat)) {
        app_note(a, R_WARN, "the model is at work; stop it first (%s)",
                 app_way(a, ACT_STOP_OR_QUIT));
        return;
    }
    if (a->cur->n_queue > 0) {
        app_note(a, R_WARN, "messages are queued; send them or take them back first (%s)",
                 app_way(a, ACT_UNQUEUE));
        return;
    }
    pane_leave(a->cur, LEAVE_NEW, 0);
}

void command_new(struct pane *p)
{
    pane_draft_keep(p); /* as it is now, also where there is none any more */
    chat_clear(p->chat);
    free(p->name);
    free(p->branch);
    p->name = p->branch = NULL;
    p->renamed = true;
    buf_truncate(&p->draft_kept, 0);
    p->n_messages = 0;
    branch_forget(p);
    p->fresh = true; /* the engine's side follows when it gets to it */
    find_close(p);
    transcript_clear(p->transcript);
    app_note(p->app, R_GOOD, "a new conversation");
}

/* /edit and /branch: of the last question, or the one of a number. */
static void branch_by_number(struct app *a, const struct key_action *act, const char *word)
{
    const size_t digits = strspn(word, "0123456789");
    if (word[digits] || digits > 9 || (digits && atoi(word) == 0)) {
        app_note(a, R_WARN, "usage: %s N, the Nth question; without N, the last", act->command);
        return;
    }
    const size_t turn = digits ? (size_t)atoi(word) : 0;
    if (act->act == ACT_EDIT) {
        branch_edit(a, turn);
    } else {
        branch_here(a, turn);
    }
}

void command_help(struct app *a, unsigned ctx)
{
    a->overlay = OV_HELP;
    a->help_ctx = ctx;
    a->help_width = 0;
    a->help_top = 0;
}

bool command_run(struct app *a, const char *line, size_t n)
{
    char *copy = mem_strndup(line, n);
    char *args = copy;
    const char *word = next_word(&args);
    const char *nearest = NULL;
    const struct key_action *act = keys_command(word, strlen(word), &nearest);
    if (!act) {
        if (nearest) {
            app_note(a, R_WARN, "no command %s; did you mean %s? (// sends a text with a slash)",
                     word, nearest);
        } else {
            app_note(a, R_WARN, "no command %s; /help lists them (// sends a text with a slash)",
                     word);
        }
        free(copy);
        return false;
    }
    switch (act->act) {
    case ACT_NEW:
        new_chat(a);
        break;
    case ACT_THINK:
        think(a, rest_of(args));
        break;
    case ACT_SYSTEM:
        set_system(a, rest_of(args));
        break;
    case ACT_COPY:
        copy_what(a, rest_of(args));
        break;
    case ACT_EXPORT:
        export_to(a, args);
        break;
    case ACT_SET: {
        const char *key = next_word(&args);
        set_any(a, key, rest_of(args));
        break;
    }
    case ACT_THEME:
        set_theme(a, rest_of(args));
        break;
    case ACT_SAMPLING:
        show_sampling(a);
        break;
    case ACT_STATUS:
        show_status(a);
        break;
    case ACT_RENAME:
        rename_it(a, rest_of(args));
        break;
    case ACT_PIN:
        pin_it(a, rest_of(args));
        break;
    case ACT_FORGET:
        forget_it(a);
        break;
    case ACT_RESUME:
        resume_it(a, rest_of(args));
        break;
    case ACT_PASTE:
        paste_again(a, rest_of(args));
        break;
    case ACT_UNDO:
        compact_undo(a);
        break;
    case ACT_COMPACT:
        compact_begin(a, rest_of(args));
        break;
    case ACT_STATS_VIEW:
        views_open(a, VIEW_STATS);
        break;
    case ACT_LOG:
        views_open(a, VIEW_LOG);
        break;
    case ACT_REQUESTS:
        views_open(a, VIEW_LISTEN);
        break;
    case ACT_LISTEN:
        views_listen(a, rest_of(args));
        break;
    case ACT_KV:
        views_kv(a);
        break;
    case ACT_SESSIONS:
        sessions_open(a, rest_of(args));
        break;
    case ACT_QUEUE:
        queue_open(a);
        break;
    case ACT_PANE_BELOW:
    case ACT_PANE_BESIDE:
        (void)panes_split(a, act->act == ACT_PANE_BESIDE);
        break;
    case ACT_PANE_CLOSE:
        panes_close(a);
        break;
    case ACT_PANE_ONLY:
        panes_only(a);
        break;
    case ACT_PANE_OTHER:
        panes_other(a);
        break;
    case ACT_RETRY:
        branch_retry(a);
        break;
    case ACT_EDIT:
    case ACT_BRANCH:
        branch_by_number(a, act, next_word(&args));
        break;
    case ACT_FIND:
        find_open(a, rest_of(args));
        break;
    case ACT_EMACS:
    case ACT_VI:
        set_editor(a, act->act == ACT_VI);
        break;
    case ACT_QUIT:
        a->quit = true;
        break;
    case ACT_KEYS:
        if (strcmp(rest_of(args), "debug") == 0) {
            a->key_debug = true;
            app_note(a, R_TEXT, "press any key to see what it sends; ^C ends this");
        } else {
            command_help(a, CTX_BOTH);
        }
        break;
    default: /* /help */
        command_help(a, CTX_BOTH);
        break;
    }
    free(copy);
    return true;
}

/* A new file with a text in it, for a program to work on; its path is in out. */
static int make_file(const struct buf *text, const char *suffix, char out[512], struct err *e)
{
    const char *dir = getenv("TMPDIR");
    snprintf(out, 512, "%s/quasar-draft-XXXXXX%s", dir && dir[0] ? dir : "/tmp", suffix);
    const int fd = mkostemps(out, (int)strlen(suffix), O_CLOEXEC);
    if (fd < 0) {
        return err_sys(e, QE_IO, errno, "cannot make a file for %s in %s",
                       suffix[0] ? "the draft" : "the text", dir && dir[0] ? dir : "/tmp");
    }
    int rc = io_write_all(fd, text->data ? text->data : "", text->len, out, e);
    if (close(fd) < 0 && rc == 0) {
        rc = err_sys(e, QE_IO, errno, "cannot write %s", out);
    }
    if (rc < 0) {
        unlink(out);
    }
    return rc;
}

/* The program that one of two variables names, or a usual one. */
static const char *program_of(const char *first, const char *second, const char *usual)
{
    const char *p = getenv(first);
    if (!p || !p[0]) {
        p = second ? getenv(second) : NULL;
    }
    return p && p[0] ? p : usual;
}

/* Lets the editor change a text; false: it is as it was, which is said. */
static bool edit_text(struct app *a, struct buf *text)
{
    const char *editor = program_of("VISUAL", "EDITOR", "vi");
    struct err e = ERR_INIT;
    struct buf back = BUF_INIT;
    char path[512];
    if (make_file(text, ".md", path, &e) < 0) {
        app_note(a, R_BAD, "%s", e.msg);
        return false;
    }
    const int status = term_run(editor, path);
    bool changed = false;
    if (status == 127) {
        app_note(a, R_WARN, "there is no editor %s; set VISUAL or EDITOR to one", editor);
    } else if (status != 0) {
        app_note(a, R_WARN, "%s ended with status %d; the draft is as it was", editor, status);
    } else if (io_read_file(path, INPUT_PASTE_MAX, &back, &e) < 0) {
        app_note(a, R_BAD, "%s", e.msg);
    } else {
        if (back.len && back.data[back.len - 1] == '\n' &&
            !(text->len && text->data[text->len - 1] == '\n')) {
            buf_truncate(&back, back.len - 1); /* editors add it */
        }
        changed =
            back.len != text->len || (back.len && memcmp(back.data, text->data, back.len) != 0);
        buf_truncate(text, 0);
        buf_add(text, back.data ? back.data : "", back.len);
    }
    unlink(path);
    buf_free(&back);
    a->redraw = true;
    return changed;
}

void command_editor(struct app *a)
{
    struct composer *c = a->cur->composer;
    struct err e = ERR_INIT;
    struct buf text = BUF_INIT;
    const char *name = NULL;
    const struct buf *bytes = NULL;
    size_t at = 0;
    if (composer_chip(c, &at, &name, &bytes)) { /* the one at the cursor is what is edited */
        buf_add(&text, bytes->data ? bytes->data : "", bytes->len);
        if (edit_text(a, &text) && composer_chip_set(c, at, text.data, text.len, &e) < 0) {
            app_error(a, &e);
        }
    } else {
        composer_display(c, &text); /* pastes and files are their labels there */
        if (edit_text(a, &text)) {
            composer_set_shown(c, text.data ? text.data : "", text.len);
        }
    }
    buf_free(&text);
}

void command_pager(struct app *a)
{
    const char *pager = program_of("PAGER", NULL, "less");
    const struct buf *text = transcript_selected_text(a->cur->transcript);
    struct err e = ERR_INIT;
    struct buf shown = BUF_INIT;
    char path[512];
    if (!text) {
        app_note(a, R_WARN, "no message is selected");
        return;
    }
    text_filter(text->data ? text->data : "", text->len, !a->theme.utf8, NULL, &shown);
    buf_addc(&shown, '\n');
    if (make_file(&shown, "", path, &e) < 0) {
        app_note(a, R_BAD, "%s", e.msg);
    } else {
        const int status = term_run(pager, path);
        if (status == 127) {
            app_note(a, R_WARN, "there is no pager %s; set PAGER to one", pager);
        }
        unlink(path);
        a->redraw = true;
    }
    buf_free(&shown);
}
