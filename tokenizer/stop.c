/* Stop strings across the edges of tokens. */
#include "config.h"
#include "tokenizer/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

int stop_init(struct stop *s, const char *const *strings, size_t n, struct err *e)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(strings[i]);
        if (len == 0) {
            return err_set(e, QE_USAGE, "a stop string is empty");
        }
        if (!utf8_valid(strings[i], len)) {
            return err_set(e, QE_USAGE, "stop string %zu is not valid UTF-8", i + 1);
        }
    }
    s->strings = mem_array(n, sizeof *s->strings);
    s->sizes = mem_array(n, sizeof *s->sizes);
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->strings[i] = mem_strdup(strings[i]);
        s->sizes[i] = strlen(strings[i]);
        s->longest = s->sizes[i] > s->longest ? s->sizes[i] : s->longest;
    }
    return 0;
}

void stop_fini(struct stop *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->strings[i]);
    }
    free(s->strings);
    free(s->sizes);
    buf_free(&s->held);
    memset(s, 0, sizeof *s);
}

void stop_reset(struct stop *s)
{
    buf_truncate(&s->held, 0);
    s->hit = false;
    s->which = 0;
}

/* The longest stop string that p[0..n) ends with; false when there is none. */
static bool ends_with_stop(const struct stop *s, const char *p, size_t n, size_t *which)
{
    bool found = false;
    for (size_t i = 0; i < s->n; i++) {
        size_t k = s->sizes[i];
        if (k <= n && memcmp(p + n - k, s->strings[i], k) == 0 &&
            (!found || k > s->sizes[*which])) {
            *which = i;
            found = true;
        }
    }
    return found;
}

/* Length of the longest end of p[0..n) that begins a stop string. */
static size_t promising(const struct stop *s, const char *p, size_t n)
{
    size_t k = s->longest > 0 ? s->longest - 1 : 0;
    for (k = k < n ? k : n; k > 0; k--) {
        for (size_t i = 0; i < s->n; i++) {
            if (k < s->sizes[i] && memcmp(p + n - k, s->strings[i], k) == 0) {
                return k;
            }
        }
    }
    return 0;
}

bool stop_feed(struct stop *s, const char *p, size_t n, struct buf *out)
{
    if (s->hit) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        buf_addc(&s->held, p[i]);
        if (ends_with_stop(s, s->held.data, s->held.len, &s->which)) {
            s->hit = true;
            buf_add(out, s->held.data, s->held.len - s->sizes[s->which]);
            buf_truncate(&s->held, 0);
            return true;
        }
    }
    size_t sure = s->held.len - promising(s, s->held.data, s->held.len);
    sure = sure ? utf8_complete_prefix(s->held.data, sure) : 0;
    if (sure > 0) {
        buf_add(out, s->held.data, sure);
        memmove(s->held.data, s->held.data + sure, s->held.len - sure);
        buf_truncate(&s->held, s->held.len - sure);
    }
    return false;
}

void stop_finish(struct stop *s, struct buf *out)
{
    if (!s->hit && s->held.len > 0) {
        buf_add(out, s->held.data, s->held.len);
    }
    buf_truncate(&s->held, 0);
}
