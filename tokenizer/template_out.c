/* Building blocks of the template renderers: text with marks, trimming, message
 * bodies, tool calls. The one rule kept here: only out_literal makes marks, and
 * it is only ever given constants of the program, so nothing that comes from a
 * message can become a control token. */
#include "config.h"
#include "tokenizer/template_int.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"

static const char *const control_tokens[] = {
    "<|im_start|>",     "<|im_end|>",     "<think>",         "</think>",
    "<tool_call>",      "</tool_call>",   "<tool_response>", "</tool_response>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",   "<|video_pad|>",
};

static void add_mark(struct rendered *r, size_t off, size_t len)
{
    if ((r->n_marks & (r->n_marks - 1)) == 0) {
        size_t cap = r->n_marks ? r->n_marks * 2 : 1;
        size_t bytes = 0;
        if (!arr_size(cap, sizeof *r->marks, &bytes)) {
            bytes = SIZE_MAX;
        }
        r->marks = mem_realloc(r->marks, bytes);
    }
    r->marks[r->n_marks++] = (struct rendered_mark){off, len};
}

void out_literal(struct rendered *r, const char *s)
{
    size_t base = r->text.len;
    buf_adds(&r->text, s);
    for (const char *p = strchr(s, '<'); p; p = strchr(p + 1, '<')) {
        for (size_t i = 0; i < sizeof control_tokens / sizeof *control_tokens; i++) {
            size_t n = strlen(control_tokens[i]);
            if (strncmp(p, control_tokens[i], n) == 0) {
                add_mark(r, base + (size_t)(p - s), n);
                break;
            }
        }
    }
}

void out_text(struct rendered *r, const char *p, size_t n)
{
    buf_add(&r->text, p, n);
}

void out_range(struct rendered *r, const struct rendered *src, size_t from, size_t to)
{
    size_t base = r->text.len;
    if (to > from) {
        buf_add(&r->text, src->text.data + from, to - from);
    }
    for (size_t i = 0; i < src->n_marks; i++) {
        const struct rendered_mark *m = &src->marks[i];
        if (m->off >= from && m->off + m->len <= to) {
            add_mark(r, base + m->off - from, m->len);
        }
    }
}

void out_json(struct rendered *r, const json_t *v)
{
    json_write_spaced(v, &r->text);
}

void out_tools(struct rendered *r, const json_t *tools)
{
    out_literal(r, template_tools_head);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        out_literal(r, "\n");
        out_json(r, json_array_get(tools, i));
    }
    out_literal(r, template_tools_tail);
}

void rendered_free(struct rendered *r)
{
    buf_free(&r->text);
    free(r->marks);
    memset(r, 0, sizeof *r);
}

/* White space as ECMAScript's trim has it (Unicode's, with U+FEFF and without
 * U+0085 and the separators U+001C..U+001F, which Python's strip also takes). */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000 || c == 0xFEFF;
}

void span_trim(const char *p, size_t *from, size_t *to)
{
    uint32_t c = 0;
    while (*from < *to) {
        int k = utf8_decode(p + *from, *to - *from, &c);
        if (k <= 0 || !is_space(c)) {
            break;
        }
        *from += (size_t)k;
    }
    while (*to > *from) {
        size_t at = *to - 1;
        while (at > *from && ((unsigned char)p[at] & 0xC0) == 0x80) {
            at--;
        }
        int k = utf8_decode(p + at, *to - at, &c);
        if (k <= 0 || at + (size_t)k != *to || !is_space(c)) {
            break;
        }
        *to = at;
    }
}

size_t span_find(const char *p, size_t from, size_t to, const char *needle)
{
    size_t n = strlen(needle);
    for (size_t i = from; i + n <= to; i++) {
        const char *hit = memchr(p + i, needle[0], to - n + 1 - i);
        if (!hit) {
            break;
        }
        i = (size_t)(hit - p);
        if (memcmp(hit, needle, n) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

size_t span_find_last(const char *p, size_t from, size_t to, const char *needle)
{
    size_t n = strlen(needle);
    for (size_t i = to; i >= from + n; i--) {
        if (memcmp(p + i - n, needle, n) == 0) {
            return i - n;
        }
    }
    return SIZE_MAX;
}

static bool is_str(const json_t *v, const char *s)
{
    return json_is_string(v) && json_string_length(v) == strlen(s) &&
           memcmp(json_string_value(v), s, strlen(s)) == 0;
}

bool role_is(const json_t *m, const char *role)
{
    return is_str(json_object_get(m, "role"), role);
}

static int add_vision(bool video, unsigned how, struct vision_count *count, struct rendered *r,
                      struct err *e)
{
    if (how & BODY_SYSTEM) {
        return err_set(e, QE_FORMAT, "a system message cannot contain %s",
                       video ? "videos" : "images");
    }
    if (count) {
        int n = video ? ++count->videos : ++count->images;
        buf_printf(&r->text, "%s %d: ", video ? "Video" : "Picture", n);
    }
    out_literal(r, video ? "<|vision_start|><|video_pad|><|vision_end|>"
                         : "<|vision_start|><|image_pad|><|vision_end|>");
    return 0;
}

/* One part of a content list. */
static int add_part(const json_t *part, unsigned how, struct vision_count *count,
                    struct rendered *r, struct err *e)
{
    const json_t *type = json_object_get(part, "type");
    if (json_object_get(part, "image") || json_object_get(part, "image_url") ||
        is_str(type, "image")) {
        return add_vision(false, how, count, r, e);
    }
    if (json_object_get(part, "video") || is_str(type, "video")) {
        return add_vision(true, how, count, r, e);
    }
    const json_t *text = json_object_get(part, "text");
    if ((how & BODY_LENIENT) && json_is_string(part)) {
        text = part;
    }
    if ((how & BODY_LENIENT) && json_is_object(part) && !text) {
        return 0;
    }
    if (!json_is_string(text)) {
        return err_set(e, QE_FORMAT, "a part of \"content\" is neither text, an image nor a video");
    }
    out_text(r, json_string_value(text), json_string_length(text));
    return 0;
}

int body_read(const json_t *m, unsigned how, struct vision_count *count, struct body *out,
              struct err *e)
{
    const json_t *c = json_object_get(m, "content");
    if (json_is_string(c)) {
        out_text(&out->all, json_string_value(c), json_string_length(c));
    } else if (json_is_array(c)) {
        for (size_t i = 0; i < json_array_size(c); i++) {
            int rc = add_part(json_array_get(c, i), how, count, &out->all, e);
            if (rc < 0) {
                return rc;
            }
        }
    } else if (c && !json_is_null(c)) {
        return err_set(e, QE_FORMAT, "\"content\" is neither text, null nor a list of parts");
    }
    out->from = 0;
    out->to = out->all.text.len;
    span_trim(out->all.text.data, &out->from, &out->to);
    return 0;
}

void body_free(struct body *b)
{
    rendered_free(&b->all);
}

bool body_empty(const struct body *b)
{
    return b->from >= b->to;
}
