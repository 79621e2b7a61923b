/* The commands of line mode: those of the one table that make sense where text only goes
 * forward. What is shown of it is listed by /help. */
#include "config.h"
#include "tui/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "tui/compact.h"
#include "tui/export.h"
#include "tui/files.h"
#include "tui/keys.h"
#include "tui/status.h"

static void answer(const struct plain *p, const char *s)
{
    fprintf(p->talk, "%s\n", s);
}

/* A message with text from outside in it. */
static void tell(const struct plain *p, const char *before, const char *text, const char *after)
{
    fputs(before, p->talk);
    plain_say(p, p->talk, text, strlen(text));
    fprintf(p->talk, "%s\n", after);
}

static void fail(const struct plain *p, const struct err *e)
{
    tell(p, "", e->msg, ".");
}

static void set(const struct plain *p, const char *key, const char *value)
{
    struct err e = ERR_INIT;
    if (chat_set(p->chat, key, value, &e) == 0) {
        answer(p, "Set, from the next message on.");
    } else {
        fail(p, &e);
    }
}

static bool is_number(const char *s, unsigned long *out)
{
    char *end = NULL;
    *out = strtoul(s, &end, 10);
    return s[0] >= '0' && s[0] <= '9' && !*end;
}

/* The question that is meant by a number from 1, or the last. */
static bool question(const struct plain *p, const char *number, size_t *keep,
                     const struct buf **text)
{
    unsigned long n = 0;
    if (number[0] && (!is_number(number, &n) || n == 0)) {
        answer(p, "A number is wanted, of a question from 1 on.");
        return false;
    }
    if (!transcript_question(p->log, n, keep, text)) {
        answer(p, n ? "There is no such question." : "Nothing was asked yet.");
        return false;
    }
    return true;
}

/* Forgets all but the first messages; what is stored stays. */
static void go_back(struct plain *p, size_t keep)
{
    chat_rewind(p->chat, keep);
    transcript_cut(p->log, keep);
    p->n_messages = keep;
}

/* ---- one function a command ---------------------------------------------------- */

static bool do_new(struct plain *p, char *args)
{
    (void)args;
    if (plain_leave(p, "/new")) {
        answer(p, "A new conversation.");
    }
    return true;
}

static bool do_edit(struct plain *p, char *args)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    if (!question(p, args, &keep, &text)) {
        return true;
    }
    fputs("The question was: ", p->talk);
    plain_say(p, p->talk, text->data, text->len);
    fputs("\nAsk it anew (an empty line leaves it): ", p->talk);
    fflush(p->talk);
    if (plain_read_line(p) <= 0 || p->line.len == 0) {
        answer(p, "Nothing was changed.");
        return true;
    }
    char *anew = mem_strndup(p->line.data, p->line.len);
    go_back(p, keep);
    const bool go_on = plain_send(p, anew, strlen(anew));
    free(anew);
    return go_on;
}

static bool do_retry(struct plain *p, char *args)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    (void)args;
    if (!question(p, "", &keep, &text)) {
        return true;
    }
    char *again = mem_strndup(text->data, text->len);
    const size_t n = text->len;
    go_back(p, keep);
    const bool go_on = plain_send(p, again, n);
    free(again);
    return go_on;
}

static bool do_branch(struct plain *p, char *args)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    if (!question(p, args, &keep, &text)) {
        return true;
    }
    const size_t after = transcript_answered(p->log, keep);
    if (after == keep) {
        answer(p, "That question has no answer to go on from.");
    } else {
        go_back(p, after);
        answer(p, "What you say next follows on that answer. What followed it stays stored.");
    }
    return true;
}

static bool do_undo(struct plain *p, char *args)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    (void)args;
    if (question(p, "", &keep, &text)) {
        go_back(p, keep);
        answer(p, "The last question and its answer are taken back.");
    }
    return true;
}

static bool do_compact(struct plain *p, char *args)
{
    struct buf request = BUF_INIT;
    if (p->n_messages == 0) {
        answer(p, "Nothing was said yet that could be summed up.");
        return true;
    }
    compact_request(args, &request);
    p->aside = true;
    const bool go_on = plain_send(p, request.data, request.len);
    p->aside = false;
    const struct buf *summary = transcript_last_answer(p->log);
    buf_free(&request);
    if (go_on && p->whole && summary && summary->len > 0) {
        buf_adds(&p->attached, COMPACT_HEAD);
        buf_add(&p->attached, summary->data, summary->len);
        buf_adds(&p->attached, "\n\n");
        go_back(p, 0);
        answer(p, "What you say next goes on from this summary alone. What was said stays stored.");
    } else if (go_on) {
        transcript_cut(p->log, p->n_messages);
        answer(p, "Nothing was summed up; the conversation goes on as it was.");
    }
    return go_on;
}

struct looking {
    const struct plain *p;
    const char *what;
    size_t question, found;
};

static void look(void *ctx, const struct transcript_message *m)
{
    struct looking *l = ctx;
    l->question += m->user;
    const char *end = m->text->data + m->text->len;
    for (const char *s = m->text->data; m->text->len > 0 && s < end;) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        const size_t n = nl ? (size_t)(nl - s) : (size_t)(end - s);
        char *line = mem_strndup(s, n);
        if (strcasestr(line, l->what)) {
            fprintf(l->p->talk, "%zu, %s: ", l->question, m->user ? "you" : "model");
            tell(l->p, "", line, "");
            l->found++;
        }
        free(line);
        s += n + 1;
    }
}

static bool do_find(struct plain *p, char *args)
{
    struct looking l = {.p = p, .what = args};
    if (!args[0]) {
        answer(p, "Usage: /find TEXT");
        return true;
    }
    transcript_each(p->log, look, &l);
    if (l.found == 0) {
        tell(p, "Nothing of the conversation has \"", args, "\".");
    }
    return true;
}

static bool list_one(void *ctx, const struct conv_stored *s)
{
    const struct plain *p = ctx;
    char turns[24] = "";
    if (s->turns >= 0) {
        snprintf(turns, sizeof turns, ", %d turn%s", s->turns, s->turns == 1 ? "" : "s");
    }
    fprintf(p->talk, "%lld  ", (long long)s->id);
    plain_say(p, p->talk, s->title ? s->title : "", s->title ? strcspn(s->title, "\r\n") : 0);
    fprintf(p->talk, "%s%s\n", turns, s->pinned ? ", pinned" : "");
    return true;
}

static bool do_sessions(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    (void)args;
    if (conv_list(p->conv, 20, list_one, p, &e) < 0) {
        fail(p, &e);
    } else {
        answer(p, "/resume and the number goes on with one.");
    }
    return true;
}

static bool do_resume(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    unsigned long id = 0;
    if (!args[0]) {
        return do_sessions(p, args);
    }
    if (!is_number(args, &id) || id == 0) {
        answer(p, "Usage: /resume ID, a number; /sessions lists them");
    } else if (plain_resume(p, (int64_t)id, &e) < 0) {
        fail(p, &e);
    }
    return true;
}

static bool do_attach(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    char *path = files_expand(args);
    if (!args[0]) {
        answer(p, "Usage: /attach FILE");
    } else if (io_read_file(path, CHAT_TEXT_MAX / 2, &b, &e) < 0) {
        fail(p, &e);
    } else if (b.len == 0 || memchr(b.data, 0, b.len)) {
        tell(p, "", path, b.len ? " is no text: it has zero bytes in it." : " is empty.");
    } else {
        const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        buf_printf(&p->attached, "File %s:\n", base);
        buf_add(&p->attached, b.data, b.len);
        buf_adds(&p->attached, b.data[b.len - 1] == '\n' ? "" : "\n");
        tell(p, "", base, " goes with the next message.");
    }
    free(path);
    buf_free(&b);
    return true;
}

static bool do_export(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    enum export_form form = EXPORT_MD;
    char *path = strchr(args, ' ');
    if (path) {
        *path++ = 0;
    }
    if (!export_form_named(args, &form) || !path || !path[0]) {
        answer(p, "Usage: /export md, txt or json, then a FILE");
        return true;
    }
    const size_t n = export_text(p->log, form, 0, false, &b);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd < 0 ? err_sys(&e, QE_IO, errno, "cannot write %s", path)
                    : io_write_all(fd, b.data ? b.data : "", b.len, path, &e);
    if (fd >= 0 && close(fd) < 0 && rc == 0) {
        rc = err_sys(&e, QE_IO, errno, "cannot write %s", path);
    }
    if (rc < 0) {
        fail(p, &e);
    } else {
        fprintf(p->talk, "Wrote %zu messages.\n", n);
    }
    buf_free(&b);
    return true;
}

static int64_t stored_id(const struct plain *p)
{
    struct view_chat v;
    chat_view(p->chat, &v);
    if (v.conversation <= 0) {
        answer(p, "This conversation is not stored.");
    }
    return v.conversation;
}

static bool do_rename(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    const int64_t id = stored_id(p);
    if (id > 0 && conv_rename(p->conv, id, args, &e) < 0) {
        fail(p, &e);
    } else if (id > 0) {
        answer(p, "Named.");
    }
    return true;
}

static bool do_pin(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    const bool on = strcmp(args, "off") != 0;
    const int64_t id = stored_id(p);
    if (id > 0 && conv_pin(p->conv, id, on, &e) < 0) {
        fail(p, &e);
    } else if (id > 0) {
        answer(p, on ? "Pinned: its saved state goes last." : "Not pinned.");
    }
    return true;
}

static bool do_forget(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    uint64_t bytes = 0;
    const int64_t id = stored_id(p);
    (void)args;
    if (id > 0 && conv_forget(p->conv, id, &bytes, &e) < 0) {
        fail(p, &e);
    } else if (id > 0) {
        answer(p, "Its saved states are deleted; what was said stays.");
    }
    return true;
}

static bool do_system(struct plain *p, char *args)
{
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    if (args[0] != '@') {
        set(p, "system", args[0] ? args : "default");
    } else if (io_read_file(args + 1, 1 << 20, &b, &e) < 0) {
        fail(p, &e);
    } else {
        set(p, "system", b.len ? b.data : "default");
    }
    buf_free(&b);
    return true;
}

static bool do_think(struct plain *p, char *args)
{
    if (strncmp(args, "budget", 6) == 0 && (args[6] == ' ' || args[6] == 0)) {
        args += 6 + strspn(args + 6, " ");
        set(p, "think-budget", args[0] && strcmp(args, "off") != 0 ? args : "default");
        return true;
    }
    if (strcmp(args, "show") == 0 || strcmp(args, "hide") == 0) {
        answer(p, "Thoughts do not fold in line mode. Usage: /think on, off, default or budget N");
        return true;
    }
    set(p, "think", args);
    return true;
}

static bool do_set(struct plain *p, char *args)
{
    char *value = strchr(args, ' ');
    if (!value || !value[1]) {
        answer(p, "Usage: /set KEY VALUE");
        return true;
    }
    *value = 0;
    set(p, args, value + 1);
    return true;
}

static bool do_status(struct plain *p, char *args)
{
    struct view_model m;
    struct view_chat v;
    char used[16], ctx[16];
    (void)args;
    conv_view_model(p->conv, &m);
    chat_view(p->chat, &v);
    if (v.context_used < 0) {
        snprintf(used, sizeof used, "-");
    } else {
        status_count(v.context_used, used);
    }
    status_count(m.ctx, ctx);
    fprintf(p->talk, "%s %s on %s %s. Context %s of %s tokens.", m.name, m.tier, m.backend,
            m.device, used, ctx);
    if (v.tok_s > 0) {
        fprintf(p->talk, " Last answer: %d tokens, %.0f per second.", v.output_tokens, v.tok_s);
    }
    putc('\n', p->talk);
    return true;
}

static bool do_quit(struct plain *p, char *args)
{
    (void)p;
    (void)args;
    return false;
}

static bool do_help(struct plain *p, char *args);

/* args and help: where line mode does less than the screen; NULL: what the table says. */
static const struct {
    enum action act;
    bool (*run)(struct plain *p, char *args);
    const char *args, *help;
} handlers[] = {
    {ACT_HELP, do_help, NULL, "these commands"},
    {ACT_NEW, do_new, NULL, NULL},
    {ACT_RESUME, do_resume, NULL, NULL},
    {ACT_SESSIONS, do_sessions, NULL, "stored conversations, the latest first"},
    {ACT_RENAME, do_rename, NULL, NULL},
    {ACT_EDIT, do_edit, NULL, NULL},
    {ACT_RETRY, do_retry, NULL, NULL},
    {ACT_BRANCH, do_branch, NULL, NULL},
    {ACT_UNDO, do_undo, NULL, NULL},
    {ACT_COMPACT, do_compact, NULL, "go on from a summary"},
    {ACT_FIND, do_find, "TEXT", "lines of the conversation with a text"},
    {ACT_ATTACH, do_attach, NULL, NULL},
    {ACT_EXPORT, do_export, "FORM FILE", "write md, txt or json"},
    {ACT_SYSTEM, do_system, NULL, NULL},
    {ACT_THINK, do_think, "on|off|default|budget N", "whether it thinks first, N tokens at most"},
    {ACT_SET, do_set, "KEY VALUE", "a setting of the answers; a wrong KEY lists them"},
    {ACT_PIN, do_pin, NULL, NULL},
    {ACT_FORGET, do_forget, NULL, NULL},
    {ACT_STATUS, do_status, NULL, NULL},
    {ACT_QUIT, do_quit, NULL, NULL},
};
#define N_HANDLERS (sizeof handlers / sizeof *handlers)

static bool do_help(struct plain *p, char *args)
{
    size_t n = 0;
    const struct key_action *t = keys_table(&n);
    (void)args;
    for (size_t k = 0; k < N_HANDLERS; k++) {
        for (size_t i = 0; i < n; i++) {
            if (t[i].act == handlers[k].act && t[i].command) {
                const char *takes = handlers[k].args ? handlers[k].args : t[i].args;
                fprintf(p->talk, "%s%s%s: %s\n", t[i].command, takes ? " " : "", takes ? takes : "",
                        handlers[k].help ? handlers[k].help : t[i].help);
            }
        }
    }
    answer(p, "A line that ends with a backslash goes on. // sends a text with a slash.");
    return true;
}

bool plain_command(struct plain *p, char *line)
{
    const size_t n = strcspn(line, " ");
    const char *nearest = NULL;
    const struct key_action *c = keys_command(line, n, &nearest);
    char *args = line + n + strspn(line + n, " ");
    for (size_t end = strlen(args); end > 0 && args[end - 1] == ' '; end--) {
        args[end - 1] = 0;
    }
    for (size_t k = 0; c && k < N_HANDLERS; k++) {
        if (handlers[k].act == c->act) {
            return handlers[k].run(p, args);
        }
    }
    if (c) {
        answer(p, "That command is of the screen; /help lists those of line mode.");
    } else if (nearest) {
        fprintf(p->talk,
                "There is no such command; did you mean %s? // sends a text with a slash.\n",
                nearest);
    } else {
        answer(p, "There is no such command; /help lists them. // sends a text with a slash.");
    }
    return true;
}
