/* The slash commands, and the actions that leave the screen for a moment or
 * write somewhere else: the editor, the clipboard, a file. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "tui/app.h"
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

void command_copy(struct app *a, const struct buf *text)
{
    struct err e = ERR_INIT;
    char size[16];
    if (!text || text->len == 0) {
        app_note(a, R_WARN, "there is nothing to copy");
        return;
    }
    if (term_copy(text->data, text->len, &e) == 0) {
        status_count((double)text->len, size);
        app_note(a, R_GOOD, "sent %s bytes to the terminal's clipboard", size);
        return;
    }
    char *dir = io_xdg_state();
    char *path = io_join(dir, "copied.txt");
    struct tmp_out t = TMP_OUT_INIT;
    int rc = io_mkdirs(dir, 0700, &e);
    if (rc == 0) {
        rc = tmp_out_create(&t, path, 0600, &e);
    }
    if (rc == 0) {
        rc = io_write_all(t.fd, text->data, text->len, path, &e);
    }
    if (rc == 0) {
        rc = tmp_out_commit(&t, path, &e);
    }
    tmp_out_fini(&t);
    if (rc == 0) {
        app_note(a, R_GOOD, "too long for the clipboard; written to %s", path);
    } else {
        app_note(a, R_BAD, "%s", e.msg);
    }
    free(path);
    free(dir);
}

static void export_to(struct app *a, char *args)
{
    const char *format = next_word(&args);
    const char *path = rest_of(args);
    bool md = strcmp(format, "md") == 0;
    if ((!md && strcmp(format, "txt") != 0) || !path[0]) {
        app_note(a, R_WARN, "usage: /export md FILE, or /export txt FILE");
        return;
    }
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    transcript_export(a->cur->transcript, md, &b);
    /* never over a file that is there */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd < 0 ? err_sys(&e, QE_IO, errno, "cannot write %s", path)
                    : io_write_all(fd, b.data ? b.data : "", b.len, path, &e);
    if (fd >= 0 && close(fd) < 0 && rc == 0) {
        rc = err_sys(&e, QE_IO, errno, "cannot write %s", path);
    }
    if (fd >= 0 && rc < 0) {
        unlink(path); /* else its name would be refused the next time */
    }
    if (rc == 0) {
        app_note(a, R_GOOD, "wrote %zu bytes to %s", b.len, path);
    } else {
        app_note(a, R_BAD, "%s", e.msg);
    }
    buf_free(&b);
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
    buf_printf(&b, "File %s:\n", base);
    const size_t head = b.len;
    int rc = name[0] ? io_read_file(path, CHAT_TEXT_MAX / 2, &b, e)
                     : err_set(e, QE_USAGE, "usage: /attach FILE");
    if (rc == 0 && b.len == head) {
        rc = err_set(e, QE_FORMAT, "%s is empty", path);
    } else if (rc == 0 && memchr(b.data + head, 0, b.len - head)) {
        rc = err_set(e, QE_FORMAT, "%s is no text: it has zero bytes in it", path);
    }
    if (rc == 0) {
        buf_adds(&b, b.data[b.len - 1] == '\n' ? "" : "\n");
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
        app_note(a, R_BAD, "%s", e.msg);
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
        app_note(a, R_BAD, "%s%s", why.msg, words ? "; Enter again sends it as words" : "");
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
            app_note(a, R_WARN, "%s works only as the whole message; Enter again sends it as words",
                     word);
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
        app_note(a, R_BAD, "%s", e.msg);
    }
}

static void think(struct app *a, const char *what)
{
    if (strcmp(what, "on") == 0 || strcmp(what, "off") == 0) {
        set(a, "think", what);
    } else if (strcmp(what, "show") == 0 || strcmp(what, "hide") == 0) {
        transcript_show_thoughts(a->cur->transcript, what[0] == 's');
        app_note(a, R_GOOD, "thoughts are %s", what[0] == 's' ? "shown" : "folded");
    } else {
        app_note(a, R_WARN, "usage: /think on, off, show or hide");
    }
}

static void new_chat(struct app *a)
{
    if (chat_busy(a->cur->chat)) {
        app_note(a, R_WARN, "the model is at work; stop it first (Esc)");
        return;
    }
    pane_leave(a->cur, LEAVE_NEW, 0);
}

void command_new(struct pane *p)
{
    chat_clear(p->chat);
    free(p->name);
    free(p->branch);
    p->name = p->branch = NULL;
    p->renamed = true;
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
    case ACT_SYSTEM: {
        const char *text = rest_of(args);
        set(a, "system", text[0] ? text : "default");
        break;
    }
    case ACT_COPY:
        command_copy(a, transcript_last_answer(a->cur->transcript));
        break;
    case ACT_EXPORT:
        export_to(a, args);
        break;
    case ACT_SET: {
        const char *key = next_word(&args);
        const char *value = rest_of(args);
        if (key[0] && value[0]) {
            set(a, key, value);
        } else {
            app_note(a, R_WARN, "usage: /set KEY VALUE, with %s", act->help);
        }
        break;
    }
    case ACT_STATS:
        screen_panel(a);
        break;
    case ACT_SESSIONS:
        sessions_open(a);
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
        for (size_t i = 0; i < PANES_MAX; i++) {
            composer_set_editor(a->composers[i], act->act == ACT_VI);
        }
        app_note(a, R_GOOD, "%s keys", act->act == ACT_VI ? "vi" : "Emacs");
        break;
    case ACT_QUIT:
        a->quit = true;
        break;
    default: /* /help and /keys: the same list */
        command_help(a, CTX_BOTH);
        break;
    }
    free(copy);
    return true;
}

void command_editor(struct app *a)
{
    const char *editor = getenv("VISUAL");
    if (!editor || !editor[0]) {
        editor = getenv("EDITOR");
    }
    if (!editor || !editor[0]) {
        editor = "vi";
    }
    const char *dir = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/quasar-draft-XXXXXX.md", dir && dir[0] ? dir : "/tmp");
    struct err e = ERR_INIT;
    struct buf text = BUF_INIT;
    int fd = mkostemps(path, 3, O_CLOEXEC);
    if (fd < 0) {
        app_note(a, R_BAD, "cannot make a file for the draft in %s: %s", dir ? dir : "/tmp",
                 strerror(errno));
        return;
    }
    composer_text(a->cur->composer, &text);
    int rc = io_write_all(fd, text.data ? text.data : "", text.len, path, &e);
    close(fd);
    int status = rc == 0 ? term_run(editor, path) : 1;
    struct buf back = BUF_INIT;
    if (rc == 0 && status == 0) {
        rc = io_read_file(path, INPUT_PASTE_MAX, &back, &e);
    }
    unlink(path);
    if (rc < 0) {
        app_note(a, R_BAD, "%s", e.msg);
    } else if (status == 127) {
        app_note(a, R_WARN, "there is no editor %s; set VISUAL or EDITOR to one", editor);
    } else if (status != 0) {
        app_note(a, R_WARN, "%s ended with status %d; the draft is as it was", editor, status);
    } else {
        if (back.len && back.data[back.len - 1] == '\n') {
            buf_truncate(&back, back.len - 1); /* editors add it */
        }
        if (back.len != text.len || (back.len && memcmp(back.data, text.data, back.len) != 0)) {
            composer_set(a->cur->composer, back.data ? back.data : "", back.len);
        }
    }
    buf_free(&back);
    buf_free(&text);
    a->redraw = true;
}
