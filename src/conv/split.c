/* A chain of streaming stages, each holding back only what is not yet decided:
 * detokeniser, thought, stop strings, tool calls. */
#include "config.h"
#include "conv/split.h"

#include <string.h>

int split_init(struct split *s, const struct tokenizer *tok, bool plain, bool opens_thought,
               const char *const *stops, size_t n_stops, const json_t *tools, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->tok = tok;
    s->plain = plain;
    int rc = stop_init(&s->stop, stops, n_stops, e);
    if (rc < 0) {
        return rc;
    }
    think_init(&s->think, opens_thought);
    s->calls = tools ? toolcall_create(tools) : NULL;
    return 0;
}

void split_fini(struct split *s)
{
    think_fini(&s->think);
    stop_fini(&s->stop);
    toolcall_free(s->calls);
}

static void take_calls(struct split *s, struct split_out *out)
{
    struct toolcall_item it;
    while (toolcall_next(s->calls, &it)) {
        if (it.is_call) {
            json_t *c = json_object();
            json_object_set_new(c, "name", json_string(it.name));
            json_object_set(c, "arguments", it.arguments);
            json_array_append_new(out->calls, c);
        } else {
            buf_add(&out->text, it.text.data, it.text.len);
        }
        toolcall_item_fini(&it);
    }
}

/* Text that stop strings have let through. */
static void let_out(struct split *s, const struct buf *b, struct split_out *out)
{
    if (!s->calls) {
        buf_add(&out->text, b->data, b->len);
    } else if (b->len > 0) {
        toolcall_feed(s->calls, b->data, b->len);
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
    struct buf rest = BUF_INIT;
    think_feed(&s->think, b->data ? b->data : "", b->len, &out->thought, &rest);
    answer(s, &rest, out);
    buf_free(&rest);
}

static void end_calls(struct split *s, struct split_out *out)
{
    if (s->calls) {
        toolcall_finish(s->calls);
        take_calls(s, out);
    }
}

void split_listen(struct split *s, bool on)
{
    s->deaf = !on;
}

bool split_token(struct split *s, int32_t id, struct split_out *out)
{
    struct buf b = BUF_INIT;
    detok_add(&s->detok, s->tok, id, false, &b);
    text(s, &b, out);
    buf_free(&b);
    if (s->stopped) {
        end_calls(s, out);
    }
    return s->stopped;
}

void split_finish(struct split *s, struct split_out *out)
{
    struct buf b = BUF_INIT, rest = BUF_INIT;
    detok_flush(&s->detok, &b);
    text(s, &b, out);
    if (!s->plain) {
        think_finish(&s->think, &out->thought, &rest);
        answer(s, &rest, out);
        buf_truncate(&rest, 0);
    }
    if (!s->stopped) {
        stop_finish(&s->stop, &rest);
        let_out(s, &rest, out);
    }
    end_calls(s, out);
    buf_free(&b);
    buf_free(&rest);
}
