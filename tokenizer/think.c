/* The boundary between thought and answer, on text. */
#include "config.h"
#include "tokenizer/think.h"

#include <string.h>

static const char tag_open[] = "<think>";
static const char tag_close[] = "</think>";

void think_init(struct think *t, bool in_thought)
{
    memset(t, 0, sizeof *t);
    t->state = in_thought ? THINK_THOUGHT : THINK_START;
}

void think_fini(struct think *t)
{
    buf_free(&t->held);
}

bool think_inside(const struct think *t)
{
    return t->state == THINK_THOUGHT;
}

static void give(struct think *t, size_t n, struct buf *out)
{
    buf_add(out, t->held.data, n);
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    buf_truncate(&t->held, t->held.len - n);
}

static void drop(struct think *t, size_t n)
{
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    buf_truncate(&t->held, t->held.len - n);
}

/* Length of the longest end of p that begins the tag without completing it. */
static size_t partial(const char *p, size_t n, const char *tag)
{
    size_t k = strlen(tag) - 1;
    for (k = k < n ? k : n; k > 0; k--) {
        if (memcmp(p + n - k, tag, k) == 0) {
            return k;
        }
    }
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* One step; false when more text is needed. */
static bool step(struct think *t, struct buf *thought, struct buf *answer)
{
    const char *p = t->held.data;
    size_t n = t->held.len;
    size_t i = 0;
    switch (t->state) {
    case THINK_START:
        while (i < n && is_blank(p[i])) {
            i++;
        }
        if (n - i >= strlen(tag_open) && memcmp(p + i, tag_open, strlen(tag_open)) == 0) {
            drop(t, i + strlen(tag_open));
            t->state = THINK_THOUGHT;
            return true;
        }
        if (i == n || (n - i < strlen(tag_open) && memcmp(p + i, tag_open, n - i) == 0)) {
            return false;
        }
        t->state = THINK_ANSWER;
        return true;
    case THINK_THOUGHT: {
        const char *hit = memmem(p, n, tag_close, strlen(tag_close));
        if (hit) {
            give(t, (size_t)(hit - p), thought);
            drop(t, strlen(tag_close));
            t->state = THINK_GAP;
            return true;
        }
        give(t, n - partial(p, n, tag_close), thought);
        return false;
    }
    case THINK_GAP:
        while (i < n && (p[i] == '\n' || p[i] == '\r')) {
            i++;
        }
        drop(t, i);
        if (t->held.len == 0) {
            return false;
        }
        t->state = THINK_ANSWER;
        return true;
    case THINK_ANSWER:
        give(t, n, answer);
        return false;
    }
    return false;
}

void think_feed(struct think *t, const char *p, size_t n, struct buf *thought, struct buf *answer)
{
    buf_add(&t->held, p, n);
    while (t->held.len > 0 && step(t, thought, answer)) {
    }
}

void think_finish(struct think *t, struct buf *thought, struct buf *answer)
{
    if (t->held.len > 0) {
        give(t, t->held.len, t->state == THINK_THOUGHT ? thought : answer);
    }
}
