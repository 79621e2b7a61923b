/* The prompt is always the template's rendering of the whole conversation; what
 * of it is already computed is found by comparing ids, never assumed. */
#include "config.h"
#include "conv/prompt.h"

#include <string.h>

#include "base/io.h"
#include "base/jsonio.h"

#define TEMPLATE_MAX (1 << 20)

static int open_template(struct prompt *p, const struct sched *s, const char *name, struct err *e)
{
    if (!name) {
        const char *text = NULL;
        size_t n = 0;
        if (!sched_blob(s, MB_TEMPLATE, &text, &n)) {
            return err_set(e, QE_NOTFOUND,
                           "the model file has no chat template: name one with --template");
        }
        return template_detect(text, n, &p->kind, e);
    }
    if (template_by_name(name, &p->kind, NULL) == 0) {
        return 0;
    }
    struct buf text = BUF_INIT;
    int rc = io_read_stream(name, TEMPLATE_MAX, &text, e);
    if (rc == QE_NOTFOUND && !strchr(name, '/')) {
        rc = template_by_name(name, &p->kind, e); /* its message lists the names */
    } else if (rc == 0) {
        rc = template_detect(text.data ? text.data : "", text.len, &p->kind, e);
    }
    buf_free(&text);
    return rc;
}

int prompt_open(struct prompt *p, const struct sched *s, const char *template, struct err *e)
{
    memset(p, 0, sizeof *p);
    const char *json = NULL, *config = NULL;
    size_t json_n = 0, config_n = 0;
    if (!sched_blob(s, MB_TOKENIZER, &json, &json_n)) {
        return err_set(e, QE_NOTFOUND,
                       "the model file has no tokenizer: convert it again with a tokenizer.json "
                       "beside the weights");
    }
    if (!sched_blob(s, MB_TOKENIZER_CONFIG, &config, &config_n)) {
        config = NULL;
        config_n = 0;
    }
    int rc = tokenizer_open(json, json_n, config, config_n, "the model's tokenizer", &p->tok, e);
    if (rc < 0) {
        return rc;
    }
    rc = open_template(p, s, template, &p->no_template);
    p->has_template = rc == 0;
    if (rc < 0 && template) {
        *e = p->no_template;
        prompt_close(p);
        return rc;
    }
    return 0;
}

void prompt_close(struct prompt *p)
{
    tokenizer_free(p->tok);
    p->tok = NULL;
}

/* Text that a client puts before its system prompt and that is another one in every
 * session; nothing of it is meant for the model. */
static bool is_volatile(const json_t *text)
{
    static const char start[] = "x-anthropic-billing-header:";
    return json_is_string(text) && strncmp(json_string_value(text), start, sizeof start - 1) == 0;
}

/* A system message without such parts; NULL when nothing else is in it. The caller gets
 * a reference. */
static json_t *without_volatile(json_t *m)
{
    json_t *content = json_object_get(m, "content");
    if (is_volatile(content)) {
        return NULL;
    }
    json_t *kept = json_array(), *part = NULL;
    size_t i = 0;
    json_array_foreach(content, i, part)
    {
        if (!is_volatile(json_object_get(part, "text"))) {
            json_array_append(kept, part);
        }
    }
    if (json_array_size(kept) == json_array_size(content)) {
        json_decref(kept);
        return json_incref(m);
    }
    json_t *copy = json_array_size(kept) > 0 ? json_copy(m) : NULL;
    if (copy) {
        json_object_set(copy, "content", kept);
    }
    json_decref(kept);
    return copy;
}

/* The text of a string or of the parts of an array. */
static void add_text(const json_t *content, struct buf *out)
{
    size_t i = 0;
    const json_t *part = NULL;
    if (json_is_string(content)) {
        buf_add(out, json_string_value(content), json_string_length(content));
    }
    json_array_foreach((json_t *)(uintptr_t)content, i, part)
    {
        const json_t *t = json_is_string(part) ? part : json_object_get(part, "text");
        if (json_is_string(t)) {
            buf_add(out, json_string_value(t), json_string_length(t));
        }
    }
}

static bool is_role(const json_t *m, const char *role)
{
    const char *r = json_string_value(json_object_get(m, "role"));
    return r && strcmp(r, role) == 0;
}

static bool is_system(const json_t *m)
{
    return is_role(m, "system") || is_role(m, "developer");
}

/* The settings' system prompt goes first, unless it is empty or the conversation has its own.
 * from: gets for each message its place among those that were given, -1: none. */
static json_t *with_system(const json_t *messages, const char *system, json_t *from)
{
    json_t *all = json_array();
    const json_t *first = json_array_get(messages, 0);
    if (system && system[0] && !is_system(first)) {
        json_t *m = json_object();
        json_object_set_new(m, "role", json_string("system"));
        json_object_set_new(m, "content", json_str_lossy(system, strlen(system)));
        json_array_append_new(all, m);
        json_array_append_new(from, json_integer(-1));
    }
    size_t i = 0;
    json_t *m = NULL;
    json_array_foreach((json_t *)(uintptr_t)messages, i, m)
    {
        json_t *kept = is_role(m, "system") ? without_volatile(m) : json_incref(m);
        if (kept) {
            json_array_append_new(all, kept);
            json_array_append_new(from, json_integer((json_int_t)i));
        }
    }
    return all;
}

static bool is_vision(const json_t *part)
{
    static const char *const keys[] = {"image", "image_url", "video"};
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (json_object_get(part, keys[i]) || (type && strcmp(type, keys[i]) == 0)) {
            return true;
        }
    }
    return false;
}

/* The template has places for pictures, but nothing here fills them. */
static int refuse_vision(const json_t *messages, struct err *e)
{
    size_t i = 0, k = 0;
    const json_t *m = NULL, *part = NULL;
    json_array_foreach((json_t *)(uintptr_t)messages, i, m)
    {
        json_array_foreach(json_object_get(m, "content"), k, part)
        {
            if (is_vision(part)) {
                return err_set(e, QE_UNSUPPORTED,
                               "messages[%zu] has an image or a video: this version reads text "
                               "only, leave that part out",
                               i);
            }
        }
    }
    return 0;
}

/* Templates leave out what they do not know; whoever wrote it would not learn of it. */
static int check_messages(const json_t *messages, struct err *e)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    size_t i = 0;
    const json_t *m = NULL;
    json_array_foreach((json_t *)(uintptr_t)messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!json_is_object(m)) {
            return err_set(e, QE_FORMAT, "messages[%zu] is not an object", i);
        }
        bool known = !role; /* the template says what is wrong with that */
        for (size_t k = 0; k < sizeof roles / sizeof *roles && !known; k++) {
            known = strcmp(role, roles[k]) == 0;
        }
        if (!known) {
            return err_set(e, QE_FORMAT,
                           "messages[%zu]: the role \"%.40s\" is none of system, developer, user, "
                           "assistant and tool",
                           i, role);
        }
    }
    return 0;
}

static void add_message(json_t *all, const char *role, const struct buf *text)
{
    json_array_append_new(all, json_pack("{s:s, s:o}", "role", role, "content",
                                         json_str_lossy(text->data ? text->data : "", text->len)));
}

/* Of other templates than the demo's: the system messages at the start are one; later ones stay
 * where they are, as what the user's side adds. Developers' messages count as system messages. New
 * reference. from: as with_system made it, loses the places of those that are one now. */
static json_t *with_one_system(const json_t *messages, json_t *from)
{
    json_t *all = json_array();
    struct buf text = BUF_INIT;
    const size_t n = json_array_size(messages);
    size_t i = 0;
    for (; i < n && is_system(json_array_get(messages, i)); i++) {
        buf_adds(&text, text.len > 0 ? "\n\n" : "");
        add_text(json_object_get(json_array_get(messages, i), "content"), &text);
        if (i > 0) {
            json_array_remove(from, 0);
        }
    }
    if (i > 0) {
        add_message(all, "system", &text);
    }
    for (; i < n; i++) {
        json_t *m = json_array_get(messages, i);
        if (!is_system(m)) {
            json_array_append(all, m);
            continue;
        }
        buf_truncate(&text, 0);
        buf_adds(&text, "<system-reminder>\n");
        add_text(json_object_get(m, "content"), &text);
        buf_adds(&text, "\n</system-reminder>");
        add_message(all, "user", &text);
    }
    buf_free(&text);
    return all;
}

/* Tools that are shown later, where the conversation names them, are not among those at its
 * start. New reference; NULL: none. */
static json_t *shown_tools(const json_t *tools)
{
    json_t *some = tools ? json_array() : NULL;
    size_t i = 0;
    json_t *def = NULL;
    json_array_foreach((json_t *)(uintptr_t)tools, i, def)
    {
        if (!json_is_true(json_object_get(def, "defer_loading"))) {
            json_array_append(some, def);
        }
    }
    return some;
}

/* What the template says of a message, in the count of those that were given. */
static void count_as_given(struct err *e, const json_t *from)
{
    char rest[ERR_MSG_MAX];
    int n = 0;
    size_t i = 0;
    if (!e || sscanf(e->msg, "messages[%zu]%n", &i, &n) != 1 || n == 0) {
        return;
    }
    const json_int_t given = json_integer_value(json_array_get(from, i));
    snprintf(rest, sizeof rest, "%s", e->msg + n);
    if (given < 0) {
        err_set(e, e->code, "the system prompt%s", rest);
    } else {
        err_set(e, e->code, "messages[%zu]%s", (size_t)given, rest);
    }
}

int prompt_messages(const struct prompt *p, const json_t *messages, const json_t *tools,
                    const struct settings *s, struct tok_ids *ids, struct prompt_shape *shape,
                    struct err *e)
{
    if (!p->has_template) {
        return err_set(e, p->no_template.code, "%s", p->no_template.msg);
    }
    int rc = refuse_vision(messages, e);
    rc = rc < 0 ? rc : check_messages(messages, e);
    if (rc < 0) {
        return rc;
    }
    struct template_opts o = {
        .kind = p->kind,
        .think = s->calls.kind == CK_AUTO ? s->think : 0,
        .opens_call = s->calls.kind != CK_AUTO,
        .preserve = s->preserve,
        .effort = s->effort,
        .generation_prompt = true,
    };
    json_t *from = json_array(), *shown = shown_tools(tools);
    json_t *all = with_system(messages, s->system, from);
    if (p->kind != TPL_DEMO) {
        json_t *one = with_one_system(all, from);
        json_decref(all);
        all = one;
    }
    struct rendered r = {0};
    rc = template_render(all, shown, &o, &r, e);
    json_decref(shown);
    if (rc == 0) {
        shape->opens_thought = r.opens_thought;
        shape->opens_call = o.opens_call;
        rc = rendered_encode_ends(&r, p->tok, ids, &shape->ends, e);
    } else {
        count_as_given(e, from);
    }
    json_decref(from);
    rendered_free(&r);
    json_decref(all);
    return rc;
}
