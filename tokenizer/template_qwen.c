/* The published templates of Qwen3.5, 3.6 and 3.8. One renderer: they differ in
 * the default of thinking, in which old thoughts stay, in how scalar arguments
 * of tool calls are written, and (3.8) in the effort sentence. What the
 * templates refuse is refused here too. */
#include "config.h"
#include "tokenizer/template_int.h"

#include <stdint.h>
#include <string.h>

#include "base/jsonio.h"

struct qwen {
    const struct template_opts *o;
    const json_t *messages;
    size_t last_query; /* index of the last message that is a real question */
    struct vision_count seen;
};

/* The counter of pictures, where the caller wants them numbered. */
static struct vision_count *numbers(struct qwen *q)
{
    return q->o->vision_ids ? &q->seen : NULL;
}

/* Appends a body, whole. */
static void out_body(struct rendered *r, const struct body *b)
{
    out_range(r, &b->all, b->from, b->to);
}

static int effort_sentence(const struct template_opts *o, const char **out, struct err *e)
{
    *out = "";
    if (o->kind != TPL_QWEN38 || o->think == 0) {
        return 0;
    }
    const char *w = o->effort ? o->effort : "xhigh";
    if (strcmp(w, "low") == 0) {
        *out = template_effort_low;
    } else if (strcmp(w, "xhigh") == 0 || strcmp(w, "high") == 0) {
        *out = template_effort_high;
    } else if (strcmp(w, "medium") != 0) {
        return err_set(e, QE_USAGE,
                       "the reasoning effort \"%s\" is unknown (low, medium, high, xhigh)", w);
    }
    return 0;
}

/* The first turn: effort, tools, system text. */
static int render_head(struct qwen *q, const json_t *tools, struct rendered *r, struct err *e)
{
    const json_t *first = json_array_get(q->messages, 0);
    const char *effort = "";
    int rc = effort_sentence(q->o, &effort, e);
    if (rc < 0) {
        return rc;
    }
    bool has_system = role_is(first, "system");
    bool v38 = q->o->kind == TPL_QWEN38;
    struct body b = {0};
    if (has_system) {
        rc = body_read(first, BODY_SYSTEM, NULL, &b, e);
        if (rc < 0) {
            err_wrap(e, rc, "messages[0]");
            goto out;
        }
    }
    bool text = has_system && !body_empty(&b);
    if (json_array_size(tools) > 0) {
        out_literal(r, "<|im_start|>system\n");
        if (*effort) {
            out_literal(r, effort);
            out_literal(r, "\n\n");
        }
        out_tools(r, tools);
        if (text) {
            out_literal(r, "\n\n");
            out_body(r, &b);
        }
        out_literal(r, "<|im_end|>\n");
    } else if (text || *effort || (has_system && !v38)) {
        out_literal(r, "<|im_start|>system\n");
        out_literal(r, effort);
        if (*effort && text) {
            out_literal(r, "\n\n");
        }
        out_body(r, &b);
        out_literal(r, "<|im_end|>\n");
    }
out:
    body_free(&b);
    return rc;
}

static bool starts_with(const struct body *b, const char *s)
{
    size_t n = strlen(s);
    return b->to - b->from >= n && memcmp(b->all.text.data + b->from, s, n) == 0;
}

static bool ends_with(const struct body *b, const char *s)
{
    size_t n = strlen(s);
    return b->to - b->from >= n && memcmp(b->all.text.data + b->to - n, s, n) == 0;
}

/* The last user message that is not a wrapped tool result. */
static int find_last_query(struct qwen *q, struct err *e)
{
    for (size_t i = json_array_size(q->messages); i-- > 0;) {
        const json_t *m = json_array_get(q->messages, i);
        if (!role_is(m, "user")) {
            continue;
        }
        struct body b = {0};
        int rc = body_read(m, 0, NULL, &b, e);
        bool wrapped =
            rc == 0 && starts_with(&b, "<tool_response>") && ends_with(&b, "</tool_response>");
        body_free(&b);
        if (rc < 0) {
            return err_wrap(e, rc, "messages[%zu]", i);
        }
        if (!wrapped) {
            q->last_query = i;
            return 0;
        }
    }
    return err_set(e, QE_FORMAT, "the messages contain no question of the user");
}

/* Splits a thought written inside the content off it: the span of the thought
 * in b, and b narrowed to what follows. */
static void split_inline_thought(struct body *b, size_t *from, size_t *to)
{
    const char *p = b->all.text.data;
    size_t first = span_find(p, b->from, b->to, "</think>");
    if (first == SIZE_MAX) {
        return;
    }
    size_t open = span_find_last(p, b->from, first, "<think>");
    *from = open == SIZE_MAX ? b->from : open + strlen("<think>");
    *to = first;
    b->from = span_find_last(p, b->from, b->to, "</think>") + strlen("</think>");
    while (b->from < b->to && p[b->from] == '\n') {
        b->from++;
    }
}

static int render_assistant(struct qwen *q, size_t i, struct rendered *r, struct err *e)
{
    const json_t *m = json_array_get(q->messages, i);
    struct body b = {0};
    struct rendered given = {0};
    int rc = body_read(m, 0, numbers(q), &b, e);
    if (rc < 0) {
        goto out;
    }
    bool keep = i > q->last_query;
    if (q->o->kind == TPL_QWEN36) {
        keep = keep || q->o->preserve == 1;
    } else if (q->o->kind == TPL_QWEN38) {
        keep = keep || q->o->preserve != 0;
    }
    const struct rendered *thought = &b.all;
    size_t from = 0, to = 0;
    const json_t *rc_text = json_object_get(m, "reasoning_content");
    if (json_is_string(rc_text)) {
        out_text(&given, json_string_value(rc_text), json_string_length(rc_text));
        thought = &given;
        to = given.text.len;
    } else if (q->o->kind != TPL_QWEN38) {
        split_inline_thought(&b, &from, &to);
    }
    span_trim(thought->text.data, &from, &to);
    out_literal(r, "<|im_start|>assistant\n");
    if (keep) {
        out_literal(r, "<think>\n");
        out_range(r, thought, from, to);
        out_literal(r, "\n</think>\n\n");
    }
    out_body(r, &b);
    rc = render_calls(m, q->o->kind, !body_empty(&b), r, e);
    out_literal(r, "<|im_end|>\n");
out:
    rendered_free(&given);
    body_free(&b);
    return rc;
}

/* Results that follow each other share one user turn. */
static int render_tool(struct qwen *q, size_t i, struct rendered *r, struct err *e)
{
    if (i == 0) {
        return err_set(e, QE_FORMAT, "a tool result cannot come first");
    }
    struct body b = {0};
    int rc = body_read(json_array_get(q->messages, i), 0, numbers(q), &b, e);
    if (rc == 0) {
        if (!role_is(json_array_get(q->messages, i - 1), "tool")) {
            out_literal(r, "<|im_start|>user");
        }
        out_literal(r, "\n<tool_response>\n");
        out_body(r, &b);
        out_literal(r, "\n</tool_response>");
        if (i + 1 == json_array_size(q->messages) ||
            !role_is(json_array_get(q->messages, i + 1), "tool")) {
            out_literal(r, "<|im_end|>\n");
        }
    }
    body_free(&b);
    return rc;
}

static int render_message(struct qwen *q, size_t i, struct rendered *r, struct err *e)
{
    const json_t *m = json_array_get(q->messages, i);
    if (role_is(m, "system")) {
        return i == 0 ? 0 : err_set(e, QE_FORMAT, "a system message must come first");
    }
    if (role_is(m, "assistant")) {
        return render_assistant(q, i, r, e);
    }
    if (role_is(m, "tool")) {
        return render_tool(q, i, r, e);
    }
    if (!role_is(m, "user")) {
        const char *role = json_string_value(json_object_get(m, "role"));
        return role ? err_set(e, QE_FORMAT,
                              "the role \"%.40s\" is unknown to this template (system, user, "
                              "assistant, tool)",
                              role)
                    : err_set(e, QE_FORMAT, "\"role\" is missing or is not a string");
    }
    struct body b = {0};
    int rc = body_read(m, 0, numbers(q), &b, e);
    if (rc == 0) {
        out_literal(r, "<|im_start|>user\n");
        out_body(r, &b);
        out_literal(r, "<|im_end|>\n");
    }
    body_free(&b);
    return rc;
}

int render_qwen(const json_t *messages, const json_t *tools, const struct template_opts *o,
                struct rendered *r, struct err *e)
{
    struct qwen q = {.o = o, .messages = messages};
    if (json_array_size(messages) == 0) {
        return err_set(e, QE_FORMAT, "there are no messages");
    }
    int rc = render_head(&q, tools, r, e);
    if (rc < 0) {
        return rc;
    }
    r->ends.head = r->text.len;
    rc = find_last_query(&q, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        rc = render_message(&q, i, r, e);
        if (rc < 0) {
            return err_wrap(e, rc, "messages[%zu]", i);
        }
        if (i == q.last_query) {
            r->ends.query = r->text.len;
        }
    }
    r->ends.input = r->text.len;
    if (o->generation_prompt) {
        bool think = o->kind == TPL_QWEN35_OFF ? o->think == 1 : o->think != 0;
        out_literal(r, "<|im_start|>assistant\n");
        out_literal(r, think ? "<think>\n" : "<think>\n\n</think>\n\n");
        r->opens_thought = think;
    }
    return 0;
}
