/* What of a text is only shown: fenced blocks, code spans, quoted lines and words, indented code,
 * lists of examples, and results that are still open. A quote or a backtick that is never closed
 * counts up to the end of its line. */
#include "config.h"
#include "tools/inside.h"

#include <string.h>

/* The line's first characters that are not blank. */
static const char *line_text(const struct markdown *m, size_t *n)
{
    const size_t have = m->line_n < sizeof m->line ? m->line_n : sizeof m->line;
    size_t i = 0;
    while (i < have && is_blank(m->line[i])) {
        i++;
    }
    *n = have - i;
    return m->line + i;
}

bool markdown_line_start(const struct markdown *m)
{
    size_t n = 0;
    (void)line_text(m, &n);
    return n == 0 && m->line_n <= sizeof m->line;
}

void markdown_reset(struct markdown *m)
{
    const int results = m->results;
    memset(m, 0, sizeof *m);
    m->results = results;
}

static size_t run_of(const char *p, size_t n, char c)
{
    size_t k = 0;
    while (k < n && p[k] == c) {
        k++;
    }
    return k;
}

static void line_ends(struct markdown *m)
{
    size_t n = 0;
    const char *p = line_text(m, &n);
    const bool blank = n == 0;
    if (m->fence && m->fence_line) {
        if (m->fence_undone) {
            m->fence = 0;
        }
    } else if (m->fence && run_of(p, n, m->fence) >= (size_t)m->fence_n) {
        const size_t k = run_of(p, n, m->fence);
        size_t rest = k;
        while (rest < n && is_blank(p[rest])) {
            rest++;
        }
        m->fence = rest == n ? 0 : m->fence;
    }
    m->fence_line = m->fence_undone = false;
    m->ticks = m->run = 0;
    m->straight = m->escaped = false;
    m->marked = m->marked && !blank;
    m->blank_before = blank;
    m->line_n = m->tail_n = 0;
}

/* A line that begins with three of them opens a fence; more backticks on it, and it is a span. */
static void look_for_fence(struct markdown *m, char c)
{
    size_t n = 0;
    const char *p = line_text(m, &n);
    if (m->fence_line) {
        const size_t k = run_of(p, n, m->fence);
        if (k == n && c == m->fence) {
            m->fence_n = (int)k;
        } else if (c == '`' && m->fence == '`') {
            m->fence_undone = true;
        }
        return;
    }
    if (!m->fence && n == 3 && (c == '`' || c == '~') && run_of(p, n, c) == 3) {
        m->fence = c;
        m->fence_n = 3;
        m->fence_line = true;
    }
}

/* A tag of a result that ends here. */
static void look_for_result(struct markdown *m)
{
    const char *lt = NULL;
    for (size_t i = 0; i < m->tail_n; i++) {
        lt = m->tail[i] == '<' ? m->tail + i : lt;
    }
    struct cursor c = {.p = lt, .n = lt ? (size_t)(m->tail + m->tail_n - lt) : 0, .eof = true};
    struct tag t;
    if (!lt || tag_read(&c, &t) != V_YES || t.kind != TAG_RESULT) {
        return;
    }
    size_t n = 0;
    (void)line_text(m, &n);
    if (t.closing) {
        m->results -= m->results > 0;
    } else if (n == m->tail_n - (size_t)(lt - m->tail)) {
        m->results++; /* alone on its line */
    }
}

void markdown_feed(struct markdown *m, char c)
{
    if (c == '\n') {
        line_ends(m);
        return;
    }
    if (m->line_n < sizeof m->line) {
        m->line[m->line_n] = c;
    }
    m->line_n++;
    if (m->tail_n == sizeof m->tail) {
        memmove(m->tail, m->tail + 1, --m->tail_n);
    }
    m->tail[m->tail_n++] = c;
    look_for_fence(m, c);
    if (c == '`') {
        m->run++;
        return;
    }
    if (m->run > 0) {
        m->ticks = m->ticks == 0 ? m->run : m->ticks == m->run ? 0 : m->ticks;
        m->run = 0;
    }
    if (m->ticks == 0 && c == '"' && !m->escaped) {
        m->straight = !m->straight;
    }
    m->escaped = c == '\\' && !m->escaped;
    if (c == '>' && !m->fence && m->ticks == 0) {
        look_for_result(m);
    }
}

/* The line begins as an item of a list, and nothing but that stands before the marker. */
static bool is_bullet(const char *p, size_t n)
{
    size_t k = 0;
    while (k < n && p[k] >= '0' && p[k] <= '9') {
        k++;
    }
    if (k > 0) {
        if (k == n || (p[k] != '.' && p[k] != ')')) {
            return false;
        }
        k++;
    } else if (n > 0 && (p[0] == '-' || p[0] == '*' || p[0] == '+')) {
        k = 1;
    }
    while (k > 0 && k < n) {
        if (!is_blank(p[k++])) {
            return false;
        }
    }
    return k > 0;
}

bool markdown_in_item(const struct markdown *m)
{
    size_t n = 0;
    const char *line = line_text(m, &n);
    return is_bullet(line, n);
}

/* Others on the lines below are shown too, up to an empty one. */
void markdown_marked(struct markdown *m)
{
    m->marked = m->marked || markdown_in_item(m);
}

static bool is_indented_code(const struct markdown *m)
{
    size_t spaces = 0;
    for (size_t i = 0; i < m->line_n && i < sizeof m->line && is_blank(m->line[i]); i++) {
        spaces += m->line[i] == '\t' ? 4 : 1;
    }
    return spaces >= 4 && m->blank_before;
}

/* Whether the quote is closed before the line ends. */
static enum verdict closes_on_line(const char *p, size_t n, char quote, bool eof)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == quote || p[i] == '\n') {
            return p[i] == quote ? V_YES : V_NO;
        }
    }
    return eof ? V_NO : V_MORE;
}

enum verdict markdown_shows(const struct markdown *m, const char *rest, size_t n, bool eof)
{
    size_t line_n = 0;
    const char *line = line_text(m, &line_n);
    const int ticks = m->run == 0     ? m->ticks
                      : m->ticks == 0 ? m->run
                                      : (m->ticks == m->run ? 0 : m->ticks);
    if ((m->fence && !m->fence_undone) || m->results > 0 || ticks > 0 || m->marked ||
        is_indented_code(m) || (line_n > 0 && line[0] == '>') || markdown_in_item(m)) {
        return V_YES;
    }
    if (m->straight) {
        return closes_on_line(rest, n, '"', eof);
    }
    const char last = m->tail_n > 0 ? m->tail[m->tail_n - 1] : 0;
    return last == '\'' ? closes_on_line(rest, n, last, eof) : V_NO;
}
