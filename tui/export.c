/* Writes the conversation as Markdown, plain text or JSON, and finds code in an answer. The
 * texts are the bytes that were sent and came, but for JSON, where ill-formed ones cannot be. */
#include "config.h"
#include "tui/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

static const char *const names[] = {"md", "txt", "json"};

bool export_form_named(const char *word, enum export_form *out)
{
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(word, names[i]) == 0) {
            *out = (enum export_form)i;
            return true;
        }
    }
    return false;
}

const char *export_form_name(enum export_form f)
{
    return names[f];
}

struct writing {
    enum export_form form;
    size_t skip;        /* questions, with what follows them */
    bool from_selected; /* nothing before the selected message */
    size_t questions, written;
    struct buf *out;
};

static void count(void *ctx, const struct transcript_message *m)
{
    struct writing *w = ctx;
    w->questions += m->user;
}

static void json_text(struct buf *out, const char *key, const struct buf *text)
{
    struct buf clean = BUF_INIT;
    utf8_sanitize(text->data ? text->data : "", text->len, &clean);
    buf_printf(out, ", \"%s\": \"", key);
    for (size_t i = 0; i < clean.len; i++) {
        const unsigned char c = (unsigned char)clean.data[i];
        if (c == '"' || c == '\\') {
            buf_addc(out, '\\');
            buf_addc(out, (char)c);
        } else if (c == '\n') {
            buf_adds(out, "\\n");
        } else if (c < 0x20 || c == 0x7F) {
            buf_printf(out, "\\u%04x", c);
        } else {
            buf_addc(out, (char)c);
        }
    }
    buf_addc(out, '"');
    buf_free(&clean);
}

/* "2026-03-01T14:02:00Z"; the clock alone where the day is not known. */
static void moment(const struct transcript_message *m, char out[32])
{
    const time_t t = (time_t)m->at;
    struct tm tm;
    snprintf(out, 32, "%s", m->clock);
    if (m->at > 0 && gmtime_r(&t, &tm)) {
        strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
}

static void write_json(struct writing *w, const struct transcript_message *m)
{
    char at[32];
    moment(m, at);
    buf_printf(w->out, "%s{\"role\": \"%s\", \"at\": \"%s\"", w->written ? ",\n " : "[",
               m->user ? "user" : "assistant", at);
    if (m->thought->len > 0) {
        json_text(w->out, "thought", m->thought);
    }
    json_text(w->out, "content", m->text);
    buf_adds(w->out, m->note[0] ? ", \"complete\": false}" : "}");
}

static void write_one(void *ctx, const struct transcript_message *m)
{
    struct writing *w = ctx;
    w->from_selected = w->from_selected && !m->selected;
    w->questions += m->user;
    if (w->questions <= w->skip || w->from_selected) {
        return;
    }
    if (w->form == EXPORT_JSON) {
        write_json(w, m);
    } else {
        buf_printf(w->out, w->form == EXPORT_MD ? "## %s\n\n" : "%s:\n", m->user ? "You" : "Model");
        buf_add(w->out, m->text->data ? m->text->data : "", m->text->len);
        const bool ends = m->text->len > 0 && m->text->data[m->text->len - 1] == '\n';
        buf_adds(w->out, ends ? "\n" : "\n\n");
    }
    w->written++;
}

size_t export_text(const struct transcript *t, enum export_form f, size_t last, bool from_selected,
                   struct buf *out)
{
    struct writing all = {0};
    transcript_each(t, count, &all);
    struct writing w = {.form = f,
                        .skip = last > 0 && all.questions > last ? all.questions - last : 0,
                        .from_selected = from_selected,
                        .out = out};
    transcript_each(t, write_one, &w);
    if (f == EXPORT_JSON) {
        buf_adds(out, w.written ? "]\n" : "[]\n");
    }
    return w.written;
}

/* ---- code ------------------------------------------------------------------------- */

/* A fence that begins (or, of at least min of the same, ends) a block of code: its length. */
static size_t fence_of(const char *p, size_t n, char mark, size_t min, size_t *indent)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '>')) {
        i++;
    }
    *indent = i;
    if (i >= n || (p[i] != '`' && p[i] != '~') || (mark && p[i] != mark)) {
        return 0;
    }
    size_t k = 0;
    while (i + k < n && p[i + k] == p[i]) {
        k++;
    }
    if (k < min) {
        return 0;
    }
    if (!mark && p[i] == '`' && memchr(p + i + k, '`', n - i - k)) {
        return 0; /* code within a line */
    }
    for (size_t j = i + k; mark && j < n; j++) {
        if (p[j] != ' ' && p[j] != '\t' && p[j] != '\r') {
            return 0; /* words behind it: it does not end one */
        }
    }
    return k;
}

bool export_code(const struct buf *text, size_t number, struct buf *out)
{
    const char *p = text->data ? text->data : "";
    const size_t from = out->len;
    size_t open = 0, indent = 0, seen = 0;
    char mark = 0;
    for (size_t i = 0; i < text->len;) {
        const char *nl = memchr(p + i, '\n', text->len - i);
        const size_t n = nl ? (size_t)(nl - (p + i)) : text->len - i;
        size_t at = 0;
        const size_t k = fence_of(p + i, n, mark, open ? open : 3, &at);
        if (k && open) {
            open = 0;
            mark = 0;
            if (seen == number) {
                return true;
            }
        } else if (k) {
            open = k;
            mark = p[i + at];
            indent = at;
            seen++;
            buf_truncate(out, number == 0 ? from : out->len);
        } else if (open && (number == 0 || seen == number)) {
            size_t skip = 0; /* what the fence was indented by */
            while (skip < indent && skip < n && strchr(" \t>", p[i + skip])) {
                skip++;
            }
            buf_add(out, p + i + skip, n - skip);
            buf_addc(out, '\n');
        }
        i += n + 1;
    }
    return seen > 0 && (number == 0 || seen == number);
}
