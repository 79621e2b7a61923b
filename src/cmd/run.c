/* quasar run: one prompt, one answer, in a pipe or on a terminal. Gathers the
 * prompt, waits for the events, turns an interrupt into a stop. */
#include "config.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "cmd/convopts.h"
#include "cmd/interrupt.h"
#include "cmd/runout.h"
#include "cmd/session.h"
#include "conv/conv.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

/* ---- the prompt ---- */

struct prompt_in {
    struct buf text, messages, tools;
    struct tok_ids ids;
    bool raw, is_messages, is_ids;
    struct buf form_text;
    struct conv_form form;
    bool chat; /* it can only come from standard input */
};

static void prompt_fini(struct prompt_in *p)
{
    buf_free(&p->text);
    buf_free(&p->messages);
    buf_free(&p->tools);
    buf_free(&p->form_text);
    tok_ids_free(&p->ids);
}

static int read_named(const char *path, struct buf *out, struct err *e)
{
    if (strcmp(path, "-") == 0) {
        return io_read_fd(STDIN_FILENO, "standard input", CHAT_TEXT_MAX, out, e);
    }
    return io_read_stream(path, CHAT_TEXT_MAX, out, e);
}

/* A JSON document; what is wrong with it is told with the name of its file. */
static int read_json(const char *path, struct buf *out, struct err *e)
{
    int rc = read_named(path, out, e);
    json_t *v = NULL;
    if (rc == 0) {
        rc = json_parse(out->data, out->len, strcmp(path, "-") == 0 ? "standard input" : path, &v,
                        e);
    }
    json_decref(v);
    return rc;
}

static int parse_ids(const char *s, struct tok_ids *out, struct err *e)
{
    const char *p = s;
    do {
        char *end = NULL;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && *end != ',')) {
            return err_set(e, QE_USAGE,
                           "--tokens: \"%.40s\" is no list of token ids with commas between them, "
                           "such as 1,2,3",
                           p);
        }
        tok_ids_add(out, (int32_t)v);
        p = *end ? end + 1 : end;
    } while (*p);
    return 0;
}

/* Standard input is the prompt, or goes on from it, unless it is a terminal. */
static int add_stdin(struct buf *text, struct err *e)
{
    struct buf in = BUF_INIT;
    int rc = io_read_fd(STDIN_FILENO, "standard input", CHAT_TEXT_MAX, &in, e);
    if (rc == 0 && in.len > 0) {
        if (text->len > 0) {
            buf_adds(text, "\n\n");
        }
        buf_add(text, in.data, in.len);
    }
    buf_free(&in);
    return rc;
}

static bool stdin_is_piped(void)
{
    return fcntl(STDIN_FILENO, F_GETFD) >= 0 && !isatty(STDIN_FILENO);
}

static int gather_text(const struct conf *cf, struct prompt_in *p, struct err *e)
{
    const char *text = conf_str(cf, "prompt");
    const char *file = conf_str(cf, "file");
    if (file) {
        const int rc = read_named(file, &p->text, e);
        return rc == 0 && p->text.len == 0
                   ? err_set(e, QE_USAGE, "the prompt is empty: there is no text in %s",
                             strcmp(file, "-") == 0 ? "standard input" : file)
                   : rc;
    }
    if (text) {
        buf_adds(&p->text, text);
    }
    int rc = stdin_is_piped() ? add_stdin(&p->text, e) : 0;
    if (rc == 0 && p->chat && p->text.len == 0) {
        rc = err_set(
            e, QE_USAGE,
            "standard input is no terminal to talk on, and holds no question: start it on a "
            "terminal, or pipe the question in (echo TEXT | quasar%s)",
            conf_flag(cf, "continue") ? " -c"
            : conf_str(cf, "resume")  ? " --resume ID"
                                      : "");
    } else if (rc == 0 && text && p->text.len == 0) {
        rc = err_set(e, QE_USAGE, "the prompt is empty: --prompt has no text");
    } else if (rc == 0 && p->text.len == 0) {
        rc = err_set(e, QE_USAGE,
                     "there is no prompt: give -p TEXT, -f FILE, --messages FILE, --tokens I,I,… "
                     "or text on standard input");
    }
    return rc;
}

/* Tools need a conversation: the text becomes its one message. */
static void text_to_messages(struct prompt_in *p)
{
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string("user"));
    json_object_set_new(m, "content",
                        json_str_lossy(p->text.data ? p->text.data : "", p->text.len));
    json_t *all = json_array();
    json_array_append_new(all, m);
    json_write(all, &p->messages);
    json_decref(all);
    p->is_messages = true;
}

/* The form that the answer is to have; a wrong one is told before a model is loaded. */
static int gather_form(const struct conf *cf, struct prompt_in *p, struct err *e)
{
    static const struct {
        const char *option;
        enum conv_form_kind kind;
        enum grammar_kind grammar;
    } forms[] = {{"json-schema", CF_SCHEMA, GK_SCHEMA},
                 {"regex", CF_REGEX, GK_REGEX},
                 {"grammar", CF_GRAMMAR, GK_EBNF}};
    const char *given = NULL;
    int rc = 0;
    for (size_t i = 0; i < 3 && rc == 0; i++) {
        const char *value = conf_str(cf, forms[i].option);
        if (!value) {
            continue;
        }
        if (given) {
            return err_set(e, QE_USAGE, "--%s and --%s cannot be given together", given,
                           forms[i].option);
        }
        given = forms[i].option;
        if (forms[i].kind == CF_REGEX) {
            buf_adds(&p->form_text, value);
        } else {
            rc = read_named(value, &p->form_text, e);
        }
        struct grammar *g = NULL;
        p->form = (struct conv_form){.kind = forms[i].kind,
                                     .text = p->form_text.data ? p->form_text.data : "",
                                     .n = p->form_text.len};
        rc = rc < 0
                 ? rc
                 : grammar_compile(forms[i].grammar, p->form.text, p->form.n, false, &g, NULL, e);
        grammar_free(g);
    }
    return rc == 0 && given && conf_flag(cf, "ignore-eos")
               ? err_set(e, QE_USAGE, "--%s and --ignore-eos cannot be given together", given)
               : rc;
}

static int gather(const struct conf *cf, struct prompt_in *p, struct err *e)
{
    const char *const sources[] = {"prompt", "file", "messages", "tokens"};
    const char *given = NULL;
    for (size_t i = 0; i < 4; i++) {
        if (!conf_str(cf, sources[i])) {
            continue;
        }
        if (given) {
            return err_set(e, QE_USAGE, "--%s and --%s cannot be given together", given,
                           sources[i]);
        }
        given = sources[i];
    }
    const char *messages = conf_str(cf, "messages");
    const char *tokens = conf_str(cf, "tokens");
    const char *tools = conf_str(cf, "tools");
    if (messages && tools && strcmp(messages, "-") == 0 && strcmp(tools, "-") == 0) {
        return err_set(e, QE_USAGE, "--messages and --tools cannot both be standard input");
    }
    p->raw = conf_flag(cf, "raw");
    if (p->raw && (messages || tools)) {
        return err_set(e, QE_USAGE, "--raw has no chat template: it goes with text, not with --%s",
                       messages ? "messages" : "tools");
    }
    if (tokens && tools) {
        return err_set(e, QE_USAGE, "--tokens has no chat template: it does not go with --tools");
    }
    int rc = 0;
    if (tools) {
        rc = read_json(tools, &p->tools, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (tokens) {
        p->is_ids = true;
        return parse_ids(tokens, &p->ids, e);
    }
    if (messages) {
        p->is_messages = true;
        return read_json(messages, &p->messages, e);
    }
    rc = gather_text(cf, p, e);
    if (rc == 0 && tools) {
        text_to_messages(p);
    }
    return rc;
}

static int ask(struct chat *t, const struct prompt_in *p, struct err *e)
{
    if (p->is_ids) {
        return chat_complete_ids(t, p->ids.v, p->ids.n, e);
    }
    if (p->is_messages) {
        return chat_messages(t, p->messages.data ? p->messages.data : "", p->messages.len,
                             p->tools.data, p->tools.len, e);
    }
    const char *text = p->text.data ? p->text.data : "";
    return p->raw ? chat_complete(t, text, p->text.len, e) : chat_send(t, text, p->text.len, e);
}

/* ---- the conversation ---- */

/* Which stored conversation the prompt belongs to. */
struct session {
    const char *name;         /* NULL: see pick */
    struct session_pick pick; /* of -c and --resume */
    char *directory;
    bool stored; /* it belongs to one */
};

static int session_gather(const struct conf *cf, const struct prompt_in *p, struct conv_opts *o,
                          struct session *s, struct err *e)
{
    s->name = conf_str(cf, "session");
    const bool pick = conf_flag(cf, "continue") || conf_str(cf, "resume");
    s->stored = s->name || pick;
    if (s->stored && (p->is_ids || p->raw || p->is_messages)) {
        return err_set(e, QE_USAGE,
                       "a stored conversation goes on with a text: -p, -f or standard input, "
                       "without --raw and --tools");
    }
    if (!s->stored) {
        return 0;
    }
    session_options(cf, o, &s->directory);
    return pick ? session_pick(cf, s->directory, &s->pick, e) : session_must_save(cf, "session", e);
}

static void session_fini(struct session *s)
{
    buf_free(&s->pick.notice);
    free(s->directory);
}

static int session_enter(struct chat *t, const struct session *s, struct err *e)
{
    return s->name     ? chat_session(t, s->name, e)
           : s->stored ? chat_resume(t, s->pick.conversation, NULL, NULL, e)
                       : 0;
}

/* ---- the answer ---- */

static int answer(struct conv *c, struct chat *t, struct runout *out, struct err *e)
{
    bool stopping = false;
    for (;;) {
        if (interrupt_came() && !stopping) {
            stopping = true;
            chat_stop(t);
        }
        struct conv_event ev;
        /* The time limit is for an interrupt that comes just before the wait. */
        if (!conv_wait(c, &ev, 200)) {
            continue;
        }
        runout_event(out, c, &ev);
        int rc = 1;
        if (ev.kind == CE_FAILED || (ev.kind == CE_END && ev.reason == CE_R_ERROR)) {
            rc = err_set(e, ev.code < 0 ? ev.code : QE_INTERNAL, "%s",
                         ev.text.data ? ev.text.data : "it failed");
        } else if (ev.kind == CE_END) {
            struct view_chat v;
            chat_view(t, &v);
            out->conversation = v.conversation;
            runout_end(out, chat_last(t));
            rc = ev.reason == CE_R_CANCELLED ? QE_CANCELLED : 0;
        }
        conv_event_fini(&ev);
        if (rc <= 0) {
            return rc;
        }
    }
}

/* The engine's state is on disk before the program ends, or a notice says why not. */
static void save_state(struct conv *c, struct chat *t, struct runout *out)
{
    chat_save(t);
    for (bool over = false; !over;) {
        struct conv_event ev;
        if (conv_wait(c, &ev, 200)) {
            runout_event(out, c, &ev);
            over = ev.kind == CE_SAVED || ev.kind == CE_FAILED;
            conv_event_fini(&ev);
        }
    }
}

/* What was printed is no answer of the form, unless it ended by itself. */
static int form_kept(const struct chat_result *r, struct err *e)
{
    if (r->reason == CE_R_STOP && r->stop < 0) {
        return 0;
    }
    return err_set(e, QE_FORMAT, "the answer has not the form asked for: %s",
                   r->reason == CE_R_LENGTH ? "it was cut at the most tokens allowed (-n, --ctx)"
                   : r->stop >= 0           ? "a stop text ended it"
                                            : "it did not end by itself");
}

static int exchange(const struct conv_opts *o, const struct prompt_in *p, const struct session *s,
                    struct runout *out, struct err *e)
{
    struct conv *c = NULL;
    int rc = conv_open(o, &c, e);
    if (rc < 0) {
        return rc;
    }
    struct chat *t = chat_create(c);
    int kept = 0; /* the form of the answer */
    rc = session_enter(t, s, e);
    rc = rc < 0 ? rc : ask(t, p, e);
    if (rc == 0) {
        rc = answer(c, t, out, e);
        kept = rc == 0 && p->form.kind != CF_NONE ? form_kept(chat_last(t), e) : 0;
        if (s->stored && (rc == 0 || rc == QE_CANCELLED)) {
            save_state(c, t, out);
        }
    }
    if (!conv_close(c) && rc == 0 && s->stored) {
        return err_set(e, QE_IO,
                       "this turn is not stored: it could not be written until the end; ask again "
                       "when it can be");
    }
    return rc < 0 ? rc : kept;
}

static int run(const struct conf *cf, const struct prompt_in *p, struct err *e)
{
    struct conv_opts o;
    struct convopts s;
    struct session session = {0};
    int rc = convopts_from(cf, &o, &s, e);
    rc = rc < 0 ? rc : session_gather(cf, p, &o, &session, e);
    if (rc < 0) {
        session_fini(&session);
        convopts_free(&s);
        return rc;
    }
    o.ignore_eos = conf_flag(cf, "ignore-eos");
    o.form = p->form;
    o.slots = 1;
    o.logprobs = (int)conf_int(cf, "logprobs", -1);
    struct runout out = {
        .form = conf_flag(cf, "json")          ? OUT_JSON
                : conf_flag(cf, "json-stream") ? OUT_STREAM
                                               : OUT_TEXT,
        .tools = p->tools.len > 0,
        .thoughts = o.think == 1,
        .stats = conf_flag(cf, "stats"),
    };
    runout_start(&out);
    interrupt_catch(true); /* the first stops the answer, the second the program */
    runout_notice(&out, session.pick.notice.data);
    rc = exchange(&o, p, &session, &out, e);
    session_fini(&session);
    convopts_free(&s);
    interrupt_end();
    return rc;
}

static int gather_and_run(const struct conf *cf, bool chat, struct err *e)
{
    struct prompt_in p = {.chat = chat};
    int rc = chat ? 0 : gather_form(cf, &p, e);
    rc = rc < 0 ? rc : gather(cf, &p, e);
    if (rc == 0) {
        rc = run(cf, &p, e);
    }
    prompt_fini(&p);
    return rc;
}

int cmd_run(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 0) {
        return err_set(e, QE_USAGE,
                       "quasar run takes no argument (\"%s\"); the prompt is -p TEXT, the model "
                       "-m MODEL",
                       args[0]);
    }
    if (conf_flag(cf, "json") && conf_flag(cf, "json-stream")) {
        return err_set(e, QE_USAGE, "--json and --json-stream cannot be given together");
    }
    if (conf_str(cf, "logprobs") && !conf_flag(cf, "json") && !conf_flag(cf, "json-stream")) {
        return err_set(e, QE_USAGE, "--logprobs goes with --json or --json-stream");
    }
    return gather_and_run(cf, false, e);
}

int cmd_ask(const struct conf *cf, struct err *e)
{
    return gather_and_run(cf, true, e);
}
