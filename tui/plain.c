/* Line mode, for screen readers, dumb terminals and logs: text only goes
 * forward. A ^C stops the answer; at the prompt, ^C twice or the end of input
 * leaves. The terminal stays in its own line discipline. When standard output
 * is no terminal, only the answers go there, and the talk to standard error. */
#include "config.h"
#include "tui/tui.h"

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "tui/keys.h"
#include "tui/status.h"
#include "tui/text.h"

static _Atomic int interrupts; /* SIGINTs not looked at yet */

struct plain {
    struct conv *conv;
    struct chat *chat;
    FILE *talk; /* for all but the answers: standard output when it is a terminal */
    bool ascii; /* the locale cannot write every character */
    struct buf line, in;
    bool eof;
    bool thinking;
    bool spoke; /* "Model:" is out for this answer */
    bool failed;
    struct err error;
    bool asked;         /* the user was told that the conversation is not saved */
    struct buf unsaved; /* why */
};

static void on_interrupt(int sig)
{
    (void)sig;
    atomic_fetch_add(&interrupts, 1);
}

static bool take_interrupt(void)
{
    return atomic_exchange(&interrupts, 0) > 0;
}

static void say(const struct plain *p, FILE *to, const char *s, size_t n)
{
    struct buf b = BUF_INIT;
    text_filter(s, n, p->ascii, NULL, &b);
    for (size_t i = 0; p->ascii && i < b.len; i++) {
        b.data[i] = (unsigned char)b.data[i] < 0x80 ? b.data[i] : '?';
    }
    fwrite(b.data ? b.data : "", 1, b.len, to);
    buf_free(&b);
}

/* Takes one line (without its end) into p->line; returns 0 at the end of
 * input, -1 on an interrupt. */
static int read_line(struct plain *p)
{
    buf_truncate(&p->line, 0);
    for (;;) {
        const char *nl = p->in.len ? memchr(p->in.data, '\n', p->in.len) : NULL;
        if (nl || (p->eof && p->in.len)) {
            size_t n = nl ? (size_t)(nl - p->in.data) : p->in.len;
            size_t used = nl ? n + 1 : n;
            buf_add(&p->line, p->in.data, n);
            memmove(p->in.data, p->in.data + used, p->in.len - used);
            buf_truncate(&p->in, p->in.len - used);
            return 1;
        }
        if (p->eof) {
            return 0;
        }
        char chunk[4096];
        ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) {
            if (take_interrupt()) {
                return -1;
            }
        } else if (n <= 0) {
            p->eof = true;
        } else {
            buf_add(&p->in, chunk, (size_t)n);
        }
    }
}

static void on_event(struct plain *p, const struct conv_event *ev, bool *over)
{
    struct view_chat v;
    switch (ev->kind) {
    case CE_LOADING:
    case CE_QUEUED:
    case CE_PREFILL:
        break;
    case CE_READY: {
        struct view_model m;
        conv_view_model(p->conv, &m);
        fprintf(p->talk, "%s%s%s is ready, on %s %s.\n", m.name, m.tier[0] ? " " : "", m.tier,
                m.backend, m.device);
        if (m.fallback[0]) {
            fprintf(p->talk, "Note: %s.\n", m.fallback);
        }
        *over = *over || !chat_busy(p->chat);
        break;
    }
    case CE_FAILED:
        p->failed = true;
        err_set(&p->error, ev->code < 0 ? ev->code : QE_IO, "%s",
                ev->text.data ? ev->text.data : "the model cannot be used");
        *over = true;
        break;
    case CE_NOTICE:
        fputs("Note: ", p->talk);
        say(p, p->talk, ev->text.data ? ev->text.data : "", ev->text.len);
        fputs(".\n", p->talk);
        break;
    case CE_SAVED:
        break;
    case CE_STORED:
        buf_truncate(&p->unsaved, 0);
        buf_add(&p->unsaved, ev->text.data, ev->text.len);
        *over = true;
        break;
    case CE_THOUGHT:
        if (!p->thinking) {
            p->thinking = true;
            fputs("(thinking)\n", p->talk);
        }
        break;
    case CE_TEXT:
    case CE_TOOL: {
        const char *s = ev->text.data ? ev->text.data : "";
        size_t n = ev->text.len;
        if (!p->spoke) {
            while (n && *s == '\n') {
                s++;
                n--;
            }
            fputs(n && p->talk == stdout ? "Model: " : "", stdout);
            p->spoke = n > 0;
        }
        say(p, stdout, s, n);
        break;
    }
    case CE_END:
        if (p->spoke) {
            putchar('\n');
        }
        chat_view(p->chat, &v);
        switch (ev->reason) {
        case CE_R_STOP:
        case CE_R_TOOL:
            break;
        case CE_R_LENGTH:
            fputs("(cut off: the token limit or the end of the context is reached)\n", p->talk);
            break;
        case CE_R_CANCELLED:
            fputs("(stopped)\n", p->talk);
            break;
        case CE_R_ERROR:
            fputs("(failed: ", p->talk);
            say(p, p->talk, ev->text.data ? ev->text.data : "", ev->text.len);
            fputs(")\n", p->talk);
            break;
        }
        *over = true;
        break;
    }
    fflush(stdout);
    fflush(p->talk);
}

/* Follows events until the turn (or loading) is over; ^C stops it. Returns
 * false when loading was interrupted. */
static bool follow(struct plain *p)
{
    bool over = false;
    p->thinking = false;
    p->spoke = false;
    while (!over && !p->failed) {
        struct pollfd fd = {conv_fd(p->conv), POLLIN, 0};
        if (clock_poll(&fd, 1, -1, true) < 0 && errno != EINTR) {
            return false;
        }
        if (take_interrupt()) {
            if (!chat_busy(p->chat)) {
                return false;
            }
            chat_stop(p->chat);
        }
        struct conv_event ev;
        memset(&ev, 0, sizeof ev);
        while (!over && conv_next(p->conv, &ev)) {
            on_event(p, &ev, &over);
            conv_event_fini(&ev);
            memset(&ev, 0, sizeof ev);
        }
    }
    return true;
}

static void show_status(const struct plain *p)
{
    struct view_model m;
    struct view_chat v;
    char used[16];
    char ctx[16];
    conv_view_model(p->conv, &m);
    chat_view(p->chat, &v);
    status_count(v.context_used, used);
    status_count(m.ctx, ctx);
    fprintf(p->talk, "%s %s on %s %s. Context %s of %s tokens.", m.name, m.tier, m.backend,
            m.device, used, ctx);
    if (v.tok_s > 0) {
        fprintf(p->talk, " Last answer: %d tokens, %.0f per second.", v.output_tokens, v.tok_s);
    }
    putc('\n', p->talk);
}

static void answer(const struct plain *p, const char *s)
{
    fprintf(p->talk, "%s\n", s);
}

/* What could not be saved is tried again first; the user says whether to go all the same. */
static void begin_anew(struct plain *p)
{
    chat_flush(p->chat);
    bool over = false;
    while (!over && !p->failed) {
        struct conv_event ev;
        if (conv_wait(p->conv, &ev, -1)) {
            on_event(p, &ev, &over);
            conv_event_fini(&ev);
        }
    }
    if (p->unsaved.len > 0 && !p->asked) {
        p->asked = true;
        fputs("This conversation is not saved: ", p->talk);
        say(p, p->talk, p->unsaved.data, p->unsaved.len);
        fputs(". /new again leaves it all the same.\n", p->talk);
        return;
    }
    p->asked = false;
    chat_clear(p->chat);
    fputs("A new conversation.\n", p->talk);
}

/* A line that starts with a slash; false: leave. */
static bool command(struct plain *p, char *s)
{
    struct err e = ERR_INIT;
    char *word = strtok_r(s, " ", &s);
    char *key = NULL;
    if (!word) {
        return true;
    }
    if (strcmp(word, "/quit") == 0) {
        return false;
    }
    if (strcmp(word, "/new") == 0) {
        begin_anew(p);
    } else if (strcmp(word, "/status") == 0) {
        show_status(p);
    } else if (strcmp(word, "/set") == 0 && (key = strtok_r(NULL, " ", &s)) && s && s[0]) {
        answer(p, chat_set(p->chat, key, s, &e) == 0 ? "Set." : e.msg);
    } else if (strcmp(word, "/think") == 0 && s && s[0]) {
        answer(p, chat_set(p->chat, "think", s, &e) == 0 ? "Set." : e.msg);
    } else if (strcmp(word, "/system") == 0) {
        answer(p, chat_set(p->chat, "system", s && s[0] ? s : "default", &e) == 0 ? "Set." : e.msg);
    } else {
        if (strcmp(word, "/help") != 0) {
            fprintf(p->talk, "That is no command here. There are:\n");
        }
        answer(p, "/new  /status  /system [TEXT]  /think on|off  /set KEY VALUE  /quit\n"
                  "A line that ends with a backslash goes on. // sends a text with a slash.");
    }
    return true;
}

static bool converse(struct plain *p, struct err *e)
{
    bool armed = false;
    for (;;) {
        fputs("You: ", p->talk);
        fflush(p->talk);
        int got = read_line(p);
        if (got == 0) {
            putc('\n', p->talk);
            return true;
        }
        if (got < 0) {
            if (armed) {
                putc('\n', p->talk);
                return true;
            }
            armed = true;
            fputs("\n(Control-C again leaves)\n", p->talk);
            continue;
        }
        armed = false;
        struct buf text = BUF_INIT;
        buf_add(&text, p->line.data ? p->line.data : "", p->line.len);
        while (text.len && text.data[text.len - 1] == '\\') {
            text.data[text.len - 1] = '\n';
            if (read_line(p) <= 0) {
                break;
            }
            buf_add(&text, p->line.data ? p->line.data : "", p->line.len);
        }
        bool go_on = true;
        size_t skip = text.len > 1 && text.data[0] == '/' && text.data[1] == '/';
        if (text.len == 0) {
            /* an empty line asks nothing */
        } else if (text.data[0] == '/' && !skip) {
            go_on = command(p, text.data);
        } else if (chat_send(p->chat, text.data + skip, text.len - skip, e) < 0) {
            fprintf(p->talk, "(not sent: %s)\n", e->msg);
        } else {
            p->asked = false;
            go_on = follow(p) && !p->failed;
        }
        buf_free(&text);
        if (!go_on) {
            return true;
        }
    }
}

/* The end of a stored conversation, and how much comes before it. */
struct tail {
    int messages;
    struct buf last; /* answer */
};

static void take_turn(void *ctx, const struct conv_turn *turn)
{
    struct tail *t = ctx;
    t->messages++;
    if (!turn->user) {
        buf_truncate(&t->last, 0);
        buf_add(&t->last, turn->text, turn->text_n);
    }
}

static int open_conversation(const struct plain *p, const struct tui_opts *o, struct err *e)
{
    struct tail t = {0};
    struct err why = ERR_INIT;
    int rc = 0;
    if (o->resume > 0) {
        rc = chat_resume(p->chat, o->resume, take_turn, &t, &why);
    }
    if (rc < 0 && o->must_resume) {
        *e = why;
    } else if (rc < 0) {
        fprintf(p->talk, "Note: %s.\n", why.msg);
        rc = 0;
    } else if (t.messages > 0) {
        fprintf(p->talk, "Resumed conversation %lld, %d messages. /new starts another one.\n",
                (long long)o->resume, t.messages);
        if (t.last.len > 0) {
            fputs("Model: ", p->talk);
            say(p, p->talk, t.last.data, t.last.len);
            putc('\n', p->talk);
        }
    }
    for (const char *s = o->notice; rc == 0 && s && *s;) {
        const size_t n = strcspn(s, "\n");
        fprintf(p->talk, "Note: %.*s.\n", (int)n, s);
        s += n + (s[n] != 0);
    }
    buf_free(&t.last);
    return rc;
}

int tui_plain(struct conv *c, const struct tui_opts *o, struct err *e)
{
    struct plain p;
    struct sigaction sa;
    struct sigaction old;
    memset(&p, 0, sizeof p);
    p.conv = c;
    p.ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
    p.chat = chat_create(c);
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_interrupt; /* without SA_RESTART: it ends read and poll */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, &old);
    p.talk = isatty(STDOUT_FILENO) ? stdout : stderr;
    answer(&p, "Loading the model. Type /help for commands; the end of input leaves.");
    fflush(p.talk);
    int rc = open_conversation(&p, o, e);
    fflush(p.talk);
    rc = rc < 0 || follow(&p) ? rc : QE_CANCELLED;
    if (rc == 0 && !p.failed) {
        (void)converse(&p, e);
    }
    if (p.failed) {
        rc = err_set(e, p.error.code, "%s", p.error.msg);
    }
    sigaction(SIGINT, &old, NULL);
    buf_free(&p.line);
    buf_free(&p.in);
    buf_free(&p.unsaved);
    chat_free(p.chat);
    return rc;
}
