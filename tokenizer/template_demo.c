/* The demo model's template: the family's turns with a looser hand. Developer
 * messages count as system messages, which may also come later; an unknown role
 * is passed over; there need be no question. */
#include "config.h"
#include "tokenizer/template_int.h"

#include <stdint.h>
#include <string.h>

static bool is_lead(const json_t *m)
{
    return role_is(m, "system") || role_is(m, "developer");
}

static void out_turn(struct rendered *r, const char *open, const struct body *b)
{
    out_literal(r, open);
    out_range(r, &b->all, b->from, b->to);
    out_literal(r, "<|im_end|>\n");
}

static int render_head(const json_t *messages, const json_t *tools, struct rendered *r,
                       struct err *e)
{
    const json_t *first = json_array_get(messages, 0);
    struct body b = {0};
    int rc = is_lead(first) ? body_read(first, BODY_LENIENT, NULL, &b, e) : 0;
    if (rc < 0) {
        err_wrap(e, rc, "messages[0]");
    } else if (json_array_size(tools) > 0) {
        out_literal(r, "<|im_start|>system\n");
        out_tools(r, tools);
        out_turn(r, body_empty(&b) ? "" : "\n\n", &b);
    } else if (!body_empty(&b)) {
        out_turn(r, "<|im_start|>system\n", &b);
    }
    body_free(&b);
    return rc;
}

static int render_assistant(const json_t *m, struct body *b, bool keep, struct rendered *r,
                            struct err *e)
{
    struct rendered given = {0};
    const struct rendered *thought = &b->all;
    size_t from = 0, to = 0;
    const json_t *text = json_object_get(m, "reasoning_content");
    const char *p = b->all.text.data;
    size_t end = span_find(p, b->from, b->to, "</think>");
    if (json_is_string(text)) {
        out_text(&given, json_string_value(text), json_string_length(text));
        thought = &given;
        to = given.text.len;
    } else if (end != SIZE_MAX) {
        size_t open = span_find_last(p, b->from, end, "<think>");
        from = open == SIZE_MAX ? b->from : open + strlen("<think>");
        to = end;
        b->from = span_find_last(p, b->from, b->to, "</think>") + strlen("</think>");
        span_trim(p, &b->from, &b->to);
    }
    span_trim(thought->text.data, &from, &to);
    out_literal(r, "<|im_start|>assistant\n");
    if (keep) {
        out_literal(r, "<think>\n");
        out_range(r, thought, from, to);
        out_literal(r, "\n</think>\n\n");
    }
    out_range(r, &b->all, b->from, b->to);
    int rc = render_calls(m, TPL_DEMO, !body_empty(b), r, e);
    out_literal(r, "<|im_end|>\n");
    rendered_free(&given);
    return rc;
}

/* last_user: SIZE_MAX when there is none. */
static int render_message(const json_t *messages, size_t i, size_t last_user,
                          const struct template_opts *o, struct rendered *r, struct err *e)
{
    const json_t *m = json_array_get(messages, i);
    if (!json_is_string(json_object_get(m, "role"))) {
        return err_set(e, QE_FORMAT, "\"role\" is missing or is not a string");
    }
    struct body b = {0};
    int rc = body_read(m, BODY_LENIENT, NULL, &b, e);
    if (rc < 0) {
        goto out;
    }
    if (role_is(m, "user")) {
        out_turn(r, "<|im_start|>user\n", &b);
    } else if (role_is(m, "assistant")) {
        bool keep = last_user == SIZE_MAX || i > last_user || o->preserve == 1;
        rc = render_assistant(m, &b, keep, r, e);
    } else if (role_is(m, "tool")) {
        if (i == 0 || !role_is(json_array_get(messages, i - 1), "tool")) {
            out_literal(r, "<|im_start|>user");
        }
        out_literal(r, "\n<tool_response>\n");
        out_range(r, &b.all, b.from, b.to);
        out_literal(r, "\n</tool_response>");
        if (i + 1 == json_array_size(messages) ||
            !role_is(json_array_get(messages, i + 1), "tool")) {
            out_literal(r, "<|im_end|>\n");
        }
    } else if (is_lead(m) && i > 0) {
        out_turn(r, "<|im_start|>system\n", &b);
    }
out:
    body_free(&b);
    return rc;
}

int render_demo(const json_t *messages, const json_t *tools, const struct template_opts *o,
                struct rendered *r, struct err *e)
{
    int rc = render_head(messages, tools, r, e);
    size_t last_user = SIZE_MAX;
    r->ends.head = r->text.len;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (role_is(json_array_get(messages, i), "user")) {
            last_user = i;
        }
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(messages); i++) {
        rc = render_message(messages, i, last_user, o, r, e);
        if (rc < 0) {
            return err_wrap(e, rc, "messages[%zu]", i);
        }
        if (i == last_user) {
            r->ends.query = r->text.len;
        }
    }
    r->ends.input = r->text.len;
    if (rc == 0 && o->generation_prompt) {
        out_literal(r, "<|im_start|>assistant\n");
        out_literal(r, o->think == 0 ? "<think>\n\n</think>\n\n" : "<think>\n");
        r->opens_thought = o->think != 0;
    }
    return rc;
}
