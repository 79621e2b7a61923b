/* A chain of streaming stages, each holding back only what is not yet decided:
 * detokeniser, thought, stop strings, tool calls. */
#include "config.h"
#include "conv/split.h"

#include <string.h>

#include "base/jsonio.h"

int split_init(struct split *s, const struct tokenizer *tok, const struct split_opts *o,
               struct err *e)
{
    memset(s, 0, sizeof *s);
    s->tok = tok;
    s->plain = o->plain;
    s->single = o->single;
    int rc = stop_init(&s->stop, o->stops, o->n_stops, e);
    if (rc < 0) {
        return rc;
    }
    think_init(&s->think, o->opens_thought);
    if (o->tools) {
        struct recogniser_opts r = {
            .tools = o->tools, .strict = o->strict, .declared = o->declared};
        s->calls = recogniser_create(&r);
        r.thought = true;
        s->thought = o->plain ? NULL : recogniser_create(&r);
        s->pending_calls = json_array();
        s->modes = json_array();
        if (o->prefill) {
            recogniser_feed(s->calls, o->prefill, strlen(o->prefill));
        }
    }
    return 0;
}

void split_fini(struct split *s)
{
    think_fini(&s->think);
    stop_fini(&s->stop);
    recogniser_free(s->calls);
    recogniser_free(s->thought);
    buf_free(&s->pending);
    json_decref(s->pending_calls);
    json_decref(s->modes);
}

int split_missed(const struct split *s)
{
    return s->calls ? recogniser_missed(s->calls) : 0;
}

/* Takes name and arguments of the item. */
static json_t *call_of(const struct tool_item *it)
{
    json_t *c = json_object();
    json_object_set_new(c, "name", json_str_lossy(it->name, strlen(it->name)));
    json_object_set(c, "arguments", it->arguments);
    return c;
}

static bool is_empty(const struct buf *b)
{
    return buf_trimmed(b) == 0;
}

/* What looked like calls in the thought is a part of it. */
static void keep_in_thought(struct split *s, struct split_out *out)
{
    if (s->pending_calls) {
        buf_add(&out->thought, s->pending.data, s->pending.len);
        buf_truncate(&s->pending, 0);
        json_array_clear(s->pending_calls);
    }
}

static void take_thought(struct split *s, struct split_out *out)
{
    struct tool_item it;
    while (recogniser_next(s->thought, &it)) {
        if (it.kind == TOOL_CALL) {
            json_array_append_new(s->pending_calls, call_of(&it));
        } else if (it.kind == TOOL_TEXT && !is_empty(&it.text)) {
            keep_in_thought(s, out);
        }
        const bool waits = it.kind != TOOL_TEXT || json_array_size(s->pending_calls) > 0;
        buf_add(waits ? &s->pending : &out->thought, it.text.data, it.text.len);
        tool_item_fini(&it);
    }
}

static void think_aloud(struct split *s, const struct buf *b, struct split_out *out)
{
    if (!s->thought) {
        buf_add(&out->thought, b->data, b->len);
    } else if (b->len > 0) {
        recogniser_feed(s->thought, b->data, b->len);
        take_thought(s, out);
    }
}

static void take_calls(struct split *s, struct split_out *out)
{
    struct tool_item it;
    while (recogniser_next(s->calls, &it)) {
        const bool over = s->single && json_array_size(out->calls) > 0;
        if (it.kind == TOOL_CALL && !over) {
            s->answered = true;
            keep_in_thought(s, out);
            json_array_append_new(out->calls, call_of(&it));
            json_array_append_new(s->modes, json_string(it.mode));
            s->stopped = s->stopped || s->single;
        } else if (it.kind == TOOL_TEXT && !over) {
            if (!s->answered && !is_empty(&it.text)) {
                s->answered = true;
                keep_in_thought(s, out);
            }
            buf_add(&out->text, it.text.data, it.text.len);
        }
        tool_item_fini(&it);
    }
}

/* Text that stop strings have let through. */
static void let_out(struct split *s, const struct buf *b, struct split_out *out)
{
    if (!s->calls) {
        buf_add(&out->text, b->data, b->len);
    } else if (b->len > 0) {
        recogniser_feed(s->calls, b->data, b->len);
        take_calls(s, out);
    }
}

static void answer(struct split *s, const struct buf *b, struct split_out *out)
{
    struct buf through = BUF_INIT;
    if (s->deaf) {
        let_out(s, b, out);
        return;
    }
    if (b->len > 0 && stop_feed(&s->stop, b->data, b->len, &through)) {
        s->stopped = true;
    }
    let_out(s, &through, out);
    buf_free(&through);
}

static void text(struct split *s, const struct buf *b, struct split_out *out)
{
    if (s->plain) {
        answer(s, b, out);
        return;
    }
    struct buf rest = BUF_INIT, thought = BUF_INIT;
    think_feed(&s->think, b->data ? b->data : "", b->len, &thought, &rest);
    think_aloud(s, &thought, out);
    answer(s, &rest, out);
    buf_free(&thought);
    buf_free(&rest);
}

static void end_calls(struct split *s, bool cut, struct split_out *out)
{
    if (!s->calls) {
        return;
    }
    recogniser_finish(s->calls, cut);
    take_calls(s, out);
    if (!s->thought) {
        return;
    }
    recogniser_finish(s->thought, cut);
    take_thought(s, out);
    if (!s->answered && json_array_size(s->pending_calls) > 0) {
        json_array_extend(out->calls, s->pending_calls);
        for (size_t i = 0; i < json_array_size(s->pending_calls); i++) {
            json_array_append_new(s->modes, json_string("u19"));
        }
        json_array_clear(s->pending_calls);
        buf_truncate(&s->pending, 0);
    } else {
        keep_in_thought(s, out);
    }
}

void split_listen(struct split *s, bool on)
{
    s->deaf = !on;
}

bool split_token(struct split *s, int32_t id, struct split_out *out)
{
    struct buf b = BUF_INIT;
    s->thought_tokens += !s->plain && think_inside(&s->think);
    detok_add(&s->detok, s->tok, id, false, &b);
    text(s, &b, out);
    buf_free(&b);
    if (s->stopped) {
        end_calls(s, true, out);
    }
    return s->stopped;
}

void split_finish(struct split *s, bool cut, struct split_out *out)
{
    struct buf b = BUF_INIT, rest = BUF_INIT;
    detok_flush(&s->detok, &b);
    text(s, &b, out);
    if (!s->plain) {
        struct buf thought = BUF_INIT;
        think_finish(&s->think, &thought, &rest);
        think_aloud(s, &thought, out);
        answer(s, &rest, out);
        buf_free(&thought);
        buf_truncate(&rest, 0);
    }
    if (!s->stopped) {
        stop_finish(&s->stop, &rest);
        let_out(s, &rest, out);
    }
    end_calls(s, cut, out);
    buf_free(&b);
    buf_free(&rest);
}
