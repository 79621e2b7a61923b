/* From a script file to what the scripted backend reads: texts become the model's tokens,
 * the last question of a prompt is found again in its tokens. */
#include "config.h"
#include "cmd/script.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/vclock.h"
#include "cmd/scriptfile.h"
#include "format/container.h"
#include "tokenizer/tokenizer.h"
#include "sessions/catalog_fault.h"

#define FILE_MAX ((size_t)64 << 20)

/* One text of an answer while it is made and after. */
struct tokens {
    struct tok_ids ids;
    struct script_event *events;
    size_t n_events, cap_events;
    size_t answer; /* where the answer behind the thought begins */
};

struct script {
    struct scriptfile file;
    struct tokenizer *tok;
    int32_t end;          /* the token that ends a turn */
    struct tokens *texts; /* two an answer */
    struct script_answer *answers;
    size_t next; /* of the answers without a pattern: the one whose turn it is */
    struct buf question;
    struct be_script be;
};

/* ---- tokens ---- */

static void say(struct script *s, struct tokens *t, const char *p, size_t n, bool specials)
{
    tokenizer_encode(s->tok, p ? p : "", n, specials, &t->ids);
}

static void say_tag(struct script *s, struct tokens *t, const char *tag)
{
    say(s, t, tag, strlen(tag), true);
}

static void add_event(struct tokens *t, const struct scriptfile_part *p)
{
    if (t->n_events == t->cap_events) {
        t->cap_events = t->cap_events ? 2 * t->cap_events : 4;
        t->events = mem_realloc(t->events, t->cap_events * sizeof *t->events);
    }
    t->events[t->n_events++] = (struct script_event){.at = (int)t->ids.n,
                                                     .what = p->what,
                                                     .ns = p->ns,
                                                     .text = p->text.data ? p->text.data : ""};
}

static int say_tool(struct script *s, struct tokens *t, const struct scriptfile_part *p,
                    struct err *e)
{
    json_t *args = NULL;
    int rc = json_parse(p->text.data, p->text.len, "the arguments", &args, e);
    if (rc < 0) {
        return rc;
    }
    struct buf b = BUF_INIT;
    buf_printf(&b, "<function=%s>\n", p->name.data);
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(args, key, value)
    {
        buf_printf(&b, "<parameter=%s>\n", key);
        if (json_is_string(value)) {
            buf_add(&b, json_string_value(value), json_string_length(value));
        } else {
            json_write(value, &b);
        }
        buf_adds(&b, "\n</parameter>\n");
    }
    buf_adds(&b, "</function>\n");
    say_tag(s, t, "<tool_call>\n");
    say(s, t, b.data, b.len, false);
    say_tag(s, t, "</tool_call>");
    buf_free(&b);
    json_decref(args);
    return 0;
}

static bool thinks(const struct scriptfile_answer *a)
{
    for (size_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i].kind == SF_THOUGHT) {
            return true;
        }
    }
    return false;
}

/* inside: the prompt has opened a thought. */
static int make_text(struct script *s, const struct scriptfile_answer *a, bool inside,
                     struct tokens *t, struct err *e)
{
    bool open = inside;
    int rc = 0;
    if (!inside && thinks(a)) {
        say_tag(s, t, "<think>\n");
        open = true;
    }
    for (size_t i = 0; i < a->n_parts && rc == 0; i++) {
        const struct scriptfile_part *p = &a->parts[i];
        if (open && (p->kind == SF_TEXT || p->kind == SF_TOOL)) {
            say_tag(s, t, thinks(a) ? "\n</think>\n\n" : "</think>\n\n");
            open = false;
            t->answer = t->ids.n;
        }
        switch (p->kind) {
        case SF_TEXT:
        case SF_THOUGHT:
            say(s, t, p->text.data, p->text.len, false);
            break;
        case SF_TOOL:
            rc = say_tool(s, t, p, e);
            break;
        case SF_EVENT:
            add_event(t, p);
            break;
        }
    }
    if (!a->forever || t->ids.n == t->answer) {
        tok_ids_add(&t->ids, s->end);
    }
    return rc;
}

/* ---- which answer ---- */

static const char end_of_turn[] = "<|im_end|>";

/* The text of the last question in tokens of a prompt's end; the whole text where there is
 * none. Returns whether a thought is open behind it. */
static bool find_question(struct script *s, const int32_t *ids, int n, const char **q, size_t *q_n)
{
    static const char begin[] = "<|im_start|>user\n", think[] = "<think>\n";
    struct buf *b = &s->question;
    buf_truncate(b, 0);
    buf_adds(b, "");
    for (int i = 0; i < n; i++) {
        size_t k = 0;
        const char *p = tokenizer_bytes(s->tok, ids[i], &k);
        buf_add(b, p ? p : "", p ? k : 0);
    }
    const size_t tag = sizeof think - 1;
    const bool open = b->len >= tag && memcmp(b->data + b->len - tag, think, tag) == 0;
    *q = b->data;
    *q_n = b->len;
    for (char *at = b->data;
         (at = memmem(at, (size_t)(b->data + b->len - at), begin, sizeof begin - 1));) {
        at += sizeof begin - 1;
        *q = at;
        *q_n = (size_t)(b->data + b->len - at);
    }
    const char *end = memmem(*q, *q_n, end_of_turn, sizeof end_of_turn - 1);
    *q_n = end ? (size_t)(end - *q) : *q_n;
    return open;
}

static int choose(void *ctx, const int32_t *ids, int n, int *text)
{
    struct script *s = ctx;
    const char *p = NULL;
    size_t len = 0;
    *text = find_question(s, ids, n, &p, &len);
    char *q = mem_strndup(p, len);
    int plain = -1, first = -1;
    for (size_t i = 0; i < s->file.n_answers; i++) {
        const struct scriptfile_answer *a = &s->file.answers[i];
        if (a->has_pattern && regexec(&a->pattern, q, 0, NULL, 0) == 0) {
            free(q);
            return (int)i;
        }
        if (!a->has_pattern) {
            first = first < 0 ? (int)i : first;
            plain = plain < 0 && i >= s->next ? (int)i : plain;
        }
    }
    free(q);
    plain = plain < 0 ? first : plain;
    s->next = plain < 0 ? 0 : (size_t)plain + 1;
    return plain < 0 ? 0 : plain; /* patterns only: the first, rather than nothing */
}

/* ---- opening ---- */

static int open_tokenizer(struct script *s, const char *model, struct err *e)
{
    struct container *c = NULL;
    const char *p = NULL, *config = NULL;
    size_t n = 0, config_n = 0;
    int rc = container_open(model, false, &c, e);
    if (rc < 0) {
        return rc;
    }
    if (!container_get(c, CB_TOKENIZER, &p, &n)) {
        rc = err_set(e, QE_FORMAT, "%s has no tokenizer, which a script needs", model);
    } else {
        (void)container_get(c, CB_TOKENIZER_CONFIG, &config, &config_n);
        rc = tokenizer_open(p, n, config, config_n, model, &s->tok, e);
    }
    container_close(c);
    if (rc == 0) {
        s->end = tokenizer_added_id(s->tok, end_of_turn, sizeof end_of_turn - 1);
        rc = s->end >= 0 ? 0
                         : err_set(e, QE_FORMAT, "%s has no token %s, which a script needs", model,
                                   end_of_turn);
    }
    return rc;
}

static int make_answers(struct script *s, struct err *e)
{
    const struct scriptfile *f = &s->file;
    int rc = 0;
    s->texts = mem_array(2 * f->n_answers, sizeof *s->texts);
    memset(s->texts, 0, 2 * f->n_answers * sizeof *s->texts);
    s->answers = mem_array(f->n_answers, sizeof *s->answers);
    for (size_t i = 0; i < f->n_answers && rc == 0; i++) {
        const struct scriptfile_answer *a = &f->answers[i];
        s->answers[i] =
            (struct script_answer){.rounds = a->n_rounds ? a->rounds : f->rounds,
                                   .n_rounds = (int)(a->n_rounds ? a->n_rounds : f->n_rounds)};
        for (int k = 0; k < 2 && rc == 0; k++) {
            struct tokens *t = &s->texts[2 * i + (size_t)k];
            rc = make_text(s, a, k == 1, t, e);
            s->answers[i].text[k] = (struct script_text){.ids = t->ids.v,
                                                         .n = (int)t->ids.n,
                                                         .forever = a->forever,
                                                         .again = (int)t->answer,
                                                         .events = t->events,
                                                         .n_events = (int)t->n_events};
        }
    }
    return rc;
}

static int read_script(const char *path, struct scriptfile *out, struct err *e)
{
    struct buf b = BUF_INIT;
    int rc = io_read_stream(path, FILE_MAX, &b, e);
    rc = rc < 0 ? rc : scriptfile_parse(b.data ? b.data : "", b.len, path, out, e);
    buf_free(&b);
    return rc;
}

int script_open(const struct conf *cf, const char *model, struct script **out, struct err *e)
{
    const char *engine = conf_str(cf, "engine");
    *out = NULL;
    if (strcmp(engine, "model") == 0) {
        return 0;
    }
    if (strncmp(engine, "script:", 7) != 0 || !engine[7]) {
        return err_set(e, QE_USAGE, "engine is \"%s\"; it must be model or script:FILE", engine);
    }
    struct script *s = mem_zalloc(sizeof *s);
    const struct scriptfile *f = &s->file;
    int rc = read_script(engine + 7, &s->file, e);
    rc = rc < 0 ? rc : open_tokenizer(s, model, e);
    rc = rc < 0 ? rc : make_answers(s, e);
    if (rc == 0 && f->is_virtual) {
        rc = vclock_start(f->wall ? f->wall : clock_wall(), f->control, f->report, e);
    }
    if (rc < 0) {
        script_free(s);
        return rc;
    }
    if (f->disk_at > 0) {
        io_fault_set(f->disk_at, f->disk_errno);
    }
    if (f->catalog_at > 0) {
        catalog_fault_set(f->catalog_at, f->catalog_errno, f->catalog_times);
    }
    s->be = (struct be_script){.answers = s->answers,
                               .n_answers = (int)f->n_answers,
                               .choose = choose,
                               .ctx = s,
                               .load_ns = f->load_ns,
                               .load_steps = f->load_steps,
                               .load_fails = f->load_fails,
                               .prefill_ns = f->prefill_ns};
    *out = s;
    return 0;
}

void script_free(struct script *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; s->texts && i < 2 * s->file.n_answers; i++) {
        tok_ids_free(&s->texts[i].ids);
        free(s->texts[i].events);
    }
    free(s->texts);
    free(s->answers);
    buf_free(&s->question);
    tokenizer_free(s->tok);
    scriptfile_free(&s->file);
    free(s);
}

const struct be_script *script_be(const struct script *s)
{
    return &s->be;
}
