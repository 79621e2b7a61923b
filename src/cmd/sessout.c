/* Forms of stored conversations. */
#include "config.h"
#include "cmd/sessout.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/jsonio.h"

static json_t *text_or_null(const char *s)
{
    return s ? json_str_lossy(s, strlen(s)) : json_null();
}

/* What is stored as JSON; null when it is none. */
static json_t *parsed(const char *s)
{
    json_t *v = NULL;
    return s && json_parse(s, strlen(s), "a stored value", &v, NULL) == 0 ? v : json_null();
}

static json_t *tags_of(const char *s)
{
    json_t *all = json_array();
    while (s && *s) {
        const char *end = strstr(s, ", ");
        const size_t n = end ? (size_t)(end - s) : strlen(s);
        json_array_append_new(all, json_str_lossy(s, n));
        s = end ? end + 2 : NULL;
    }
    return all;
}

json_t *sessout_conv(const struct catalog_conv *v, long open_by)
{
    json_t *o = json_object();
    json_object_set_new(o, "id", json_integer(v->id));
    json_object_set_new(o, "title", text_or_null(v->title));
    json_object_set_new(o, "named", json_boolean(v->named));
    json_object_set_new(o, "pinned", json_boolean(v->pinned));
    json_object_set_new(o, "tags", tags_of(v->tags));
    json_object_set_new(o, "model", text_or_null(v->model));
    json_object_set_new(o, "system", text_or_null(v->system));
    json_object_set_new(o, "directory", text_or_null(v->directory));
    json_object_set_new(o, "created", json_integer(v->created));
    json_object_set_new(o, "updated", json_integer(v->updated));
    json_object_set_new(o, "turns", v->turns < 0 ? json_null() : json_integer(v->turns));
    json_object_set_new(o, "leaf", v->leaf ? json_integer(v->leaf) : json_null());
    json_object_set_new(o, "state_bytes", json_integer(v->state_bytes));
    json_object_set_new(o, "open_by", open_by ? json_integer(open_by) : json_null());
    return o;
}

json_t *sessout_turn(const struct catalog_turn *t)
{
    json_t *o = json_object();
    json_t *ids = json_array();
    for (size_t i = 0; i < t->n_ids; i++) {
        json_array_append_new(ids, json_integer(t->ids[i]));
    }
    json_object_set_new(o, "id", json_integer(t->id));
    json_object_set_new(o, "parent", t->parent ? json_integer(t->parent) : json_null());
    json_object_set_new(o, "role", json_string(cat_roles[t->role]));
    json_object_set_new(o, "text", json_str_lossy(t->text, t->text_n));
    json_object_set_new(o, "thought",
                        t->thought ? json_str_lossy(t->thought, t->thought_n) : json_null());
    json_object_set_new(o, "tool_calls", parsed(t->calls));
    json_object_set_new(o, "tokens", ids);
    json_object_set_new(o, "finish_reason", text_or_null(t->finish));
    json_object_set_new(o, "settings", parsed(t->settings));
    json_object_set_new(o, "stats", parsed(t->stats));
    json_object_set_new(o, "created", json_integer(t->created));
    return o;
}

json_t *sessout_message(const struct catalog_turn *t)
{
    json_t *o = json_object();
    json_object_set_new(o, "role", json_string(cat_roles[t->role]));
    json_object_set_new(o, "content", json_str_lossy(t->text, t->text_n));
    if (t->thought_n > 0) {
        json_object_set_new(o, "reasoning_content", json_str_lossy(t->thought, t->thought_n));
    }
    json_t *calls = parsed(t->calls);
    if (json_array_size(calls) > 0) {
        json_t *all = json_array();
        size_t i = 0;
        json_t *c = NULL;
        json_array_foreach(calls, i, c)
        {
            json_array_append_new(all, json_pack("{s:s, s:O}", "type", "function", "function", c));
        }
        json_object_set_new(o, "tool_calls", all);
    }
    json_decref(calls);
    return o;
}

void sessout_time(int64_t at, char out[20])
{
    const time_t t = (time_t)at;
    struct tm tm;
    if (!localtime_r(&t, &tm) || strftime(out, 20, "%Y-%m-%d %H:%M", &tm) == 0) {
        out[0] = '-';
        out[1] = 0;
    }
}

void sessout_size(uint64_t bytes, char out[16])
{
    static const char units[] = " KMGTP";
    double v = (double)bytes;
    int u = 0;
    while (v >= 1000 && u < 5) {
        v /= 1024;
        u++;
    }
    snprintf(out, 16, u && v < 10 ? "%.1f %c" : "%.0f %c", v, u ? units[u] : 'B');
}

/* ---- Markdown ---- */

/* One line, whatever is in it. */
static void heading(const char *s, struct buf *out)
{
    for (; *s; s++) {
        const unsigned char ch = (unsigned char)*s;
        const bool c1 = ch == 0xC2 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xA0;
        buf_addc(out, ch < 0x20 || ch == 0x7F || c1 ? '?' : *s);
        s += c1;
    }
}

void sessout_md_head(const struct catalog_conv *v, struct buf *out)
{
    char when[20];
    sessout_time(v->created, when);
    buf_adds(out, "# ");
    heading(v->title[0] ? v->title : "(no title)", out);
    buf_printf(out, "\n\n%s, %s\n\n", when, v->model[0] ? v->model : "unknown model");
    if (v->system) {
        buf_printf(out, "## System\n\n%s\n\n", v->system);
    }
}

/* Every line with "> " before it. */
static void quoted(const char *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n;) {
        const char *end = memchr(p + i, '\n', n - i);
        const size_t len = end ? (size_t)(end - p) - i : n - i;
        buf_adds(out, "> ");
        buf_add(out, p + i, len);
        buf_addc(out, '\n');
        i += len + 1;
    }
    buf_addc(out, '\n');
}

void sessout_md_turn(const struct catalog_turn *t, struct buf *out)
{
    static const char *const names[] = {[CAT_USER] = "You",
                                        [CAT_ASSISTANT] = "Model",
                                        [CAT_TOOL] = "Tool",
                                        [CAT_SYSTEM] = "System"};
    buf_printf(out, "## %s\n\n", names[t->role]);
    if (t->thought_n > 0) {
        quoted(t->thought, t->thought_n, out);
    }
    buf_add(out, t->text, t->text_n);
    buf_adds(out, t->text_n > 0 && t->text[t->text_n - 1] == '\n' ? "\n" : "\n\n");
    if (t->calls) {
        buf_printf(out, "```json\n%s\n```\n\n", t->calls);
    }
    if (t->role == CAT_ASSISTANT && !t->finish) {
        buf_adds(out, "*(unfinished)*\n\n");
    } else if (t->finish && strcmp(t->finish, "stop") != 0 &&
               strcmp(t->finish, "tool_calls") != 0) {
        buf_printf(out, "*(%s)*\n\n", t->finish);
    }
}
