/* Line mode, for screen readers, dumb terminals and logs: text only goes
 * forward. A ^C stops the answer; at the prompt, ^C twice or the end of input
 * leaves. The terminal stays in its own line discipline. When standard output
 * is no terminal, only the answers go there, and the talk to standard error. */
#include "config.h"
#include "tui/plain.h"

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
#include "base/vclock.h"
#include "tui/text.h"
#include "tui/tui.h"

static _Atomic int interrupts; /* SIGINTs not looked at yet */

static void on_interrupt(int sig)
{
    (void)sig;
    atomic_fetch_add(&interrupts, 1);
}

static bool take_interrupt(void)
{
    return atomic_exchange(&interrupts, 0) > 0;
}

static void say_from(const struct plain *p, FILE *to, const char *s, size_t n, int *column)
{
    struct buf b = BUF_INIT;
    text_filter(s, n, p->ascii, column, &b);
    for (size_t i = 0; p->ascii && i < b.len; i++) {
        b.data[i] = (unsigned char)b.data[i] < 0x80 ? b.data[i] : '?';
    }
    fwrite(b.data ? b.data : "", 1, b.len, to);
    buf_free(&b);
}

void plain_say(const struct plain *p, FILE *to, const char *s, size_t n)
{
    say_from(p, to, s, n, NULL);
}

int plain_read_line(struct plain *p)
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
        struct pollfd in = {STDIN_FILENO, POLLIN, 0};
        ssize_t n = clock_poll(&in, 1, -1, true) < 0 ? -1 : read(STDIN_FILENO, chunk, sizeof chunk);
        if (n > 0) {
            p->typed += (size_t)n;
            vclock_saw_input(p->typed);
        }
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

/* The answer's place in the log. */
static void open_answer(struct plain *p)
{
    if (!p->begun) {
        p->begun = true;
        transcript_model(p->log, "");
    }
}

static void on_event(struct plain *p, const struct conv_event *ev, bool *over)
{
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
        plain_say(p, p->talk, ev->text.data ? ev->text.data : "", ev->text.len);
        fputs(".\n", p->talk);
        break;
    case CE_SAVED:
    case CE_COUNTED:
        break;
    case CE_STORED:
        buf_truncate(&p->unsaved, 0);
        buf_add(&p->unsaved, ev->text.data, ev->text.len);
        *over = true;
        break;
    case CE_THOUGHT:
        open_answer(p);
        transcript_thought(p->log, ev->text.data ? ev->text.data : "", ev->text.len);
        if (!p->thinking) {
            p->thinking = true;
            fputs("(thinking)\n", p->talk);
        }
        break;
    case CE_TEXT:
    case CE_TOOL: {
        const char *s = ev->text.data ? ev->text.data : "";
        size_t n = ev->text.len;
        open_answer(p);
        transcript_text(p->log, s, n);
        if (!p->spoke) {
            while (n && *s == '\n') {
                s++;
                n--;
            }
            static const char model[] = "Model: ";
            const bool named = n && p->talk == stdout;
            fputs(named ? model : "", stdout);
            p->column = named ? (int)sizeof model - 1 : 0;
            p->spoke = n > 0;
        }
        say_from(p, stdout, s, n, &p->column);
        break;
    }
    case CE_END:
        if (p->spoke) {
            putchar('\n');
        }
        p->whole = ev->reason == CE_R_STOP && p->spoke;
        if (p->begun) {
            transcript_end(p->log, R_DIM, p->whole ? "" : "not complete");
            p->n_messages = p->aside ? p->n_messages : transcript_kept(p->log, p->n_messages);
        }
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
            plain_say(p, p->talk, ev->text.data ? ev->text.data : "", ev->text.len);
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
    p->begun = false;
    p->whole = false;
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

static void answer(const struct plain *p, const char *s)
{
    fprintf(p->talk, "%s\n", s);
}

bool plain_leave(struct plain *p, const char *again)
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
        plain_say(p, p->talk, p->unsaved.data, p->unsaved.len);
        fprintf(p->talk, ". %s again leaves it all the same.\n", again);
        return false;
    }
    p->asked = false;
    chat_clear(p->chat);
    transcript_clear(p->log);
    p->n_messages = 0;
    return true;
}

bool plain_send(struct plain *p, const char *text, size_t n)
{
    struct err e = ERR_INIT;
    struct buf all = BUF_INIT;
    bool go_on = true;
    buf_add(&all, p->attached.data ? p->attached.data : "", p->attached.len);
    buf_add(&all, text, n);
    const int rc = p->aside ? chat_aside(p->chat, all.data, all.len, &e)
                            : chat_send(p->chat, all.data, all.len, &e);
    if (rc < 0) {
        fprintf(p->talk, "(not sent: %s)\n", e.msg);
    } else {
        p->asked = false;
        buf_truncate(&p->attached, 0);
        transcript_user(p->log, "", &all, &all);
        go_on = follow(p) && !p->failed;
    }
    buf_free(&all);
    return go_on;
}

static bool converse(struct plain *p)
{
    bool armed = false;
    for (;;) {
        fputs("You: ", p->talk);
        fflush(p->talk);
        int got = plain_read_line(p);
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
            if (plain_read_line(p) <= 0) {
                break;
            }
            buf_add(&text, p->line.data ? p->line.data : "", p->line.len);
        }
        bool go_on = true;
        size_t skip = text.len > 1 && text.data[0] == '/' && text.data[1] == '/';
        if (text.len == 0) {
            /* an empty line asks nothing */
        } else if (text.data[0] == '/' && !skip) {
            go_on = plain_command(p, text.data);
        } else {
            go_on = plain_send(p, text.data + skip, text.len - skip);
        }
        buf_free(&text);
        if (!go_on) {
            return true;
        }
    }
}

static void take_turn(void *ctx, const struct conv_turn *turn)
{
    struct plain *p = ctx;
    if (turn->user) {
        struct buf b = BUF_INIT;
        buf_add(&b, turn->text, turn->text_n);
        transcript_user(p->log, "", &b, &b);
        buf_free(&b);
    } else {
        transcript_model(p->log, "");
        transcript_thought(p->log, turn->thought, turn->thought_n);
        transcript_text(p->log, turn->text, turn->text_n);
        transcript_end(p->log, R_DIM, "");
    }
    p->n_messages = transcript_kept(p->log, p->n_messages);
}

int plain_resume(struct plain *p, int64_t id, struct err *e)
{
    struct transcript *before = p->log;
    const size_t n = p->n_messages;
    p->log = transcript_create();
    p->n_messages = 0;
    const int rc = chat_resume(p->chat, id, take_turn, p, e);
    if (rc < 0) {
        transcript_free(p->log);
        p->log = before;
        p->n_messages = n;
        return rc;
    }
    transcript_free(before);
    fprintf(p->talk, "Resumed conversation %lld, %zu messages. /new starts another one.\n",
            (long long)id, p->n_messages);
    const struct buf *last = transcript_last_answer(p->log);
    if (last && last->len > 0) {
        fputs("Model: ", p->talk);
        plain_say(p, p->talk, last->data, last->len);
        putc('\n', p->talk);
    }
    return 0;
}

static int open_conversation(struct plain *p, const struct tui_opts *o, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = 0;
    if (o->resume > 0) {
        rc = plain_resume(p, o->resume, &why);
    }
    if (rc < 0 && o->must_resume) {
        *e = why;
    } else if (rc < 0) {
        fprintf(p->talk, "Note: %s.\n", why.msg);
        rc = 0;
    }
    for (const char *s = o->notice; rc == 0 && s && *s;) {
        const size_t n = strcspn(s, "\n");
        fprintf(p->talk, "Note: %.*s.\n", (int)n, s);
        s += n + (s[n] != 0);
    }
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
    p.log = transcript_create();
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
        (void)converse(&p);
    }
    if (p.failed) {
        rc = err_set(e, p.error.code, "%s", p.error.msg);
    }
    sigaction(SIGINT, &old, NULL);
    buf_free(&p.line);
    buf_free(&p.in);
    buf_free(&p.unsaved);
    buf_free(&p.attached);
    transcript_free(p.log);
    chat_free(p.chat);
    return rc;
}
