/* Forward reader of JSON text; see jscan.h. No recursion: skipping keeps the
 * open brackets in one 64-bit word. */
#include "config.h"
#include "tokenizer/jscan.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

#define MAX_DEPTH 64

void jscan_init(struct jscan *s, const char *p, size_t n, struct err *e)
{
    *s = (struct jscan){p, p, p + n, BUF_INIT, e};
}

void jscan_fini(struct jscan *s)
{
    buf_free(&s->tmp);
}

bool jtext_is(const struct jtext *t, const char *s)
{
    return strlen(s) == t->n && memcmp(t->p, s, t->n) == 0;
}

static int fail(const struct jscan *s, const char *reason)
{
    return err_set(s->e, QE_FORMAT, "the JSON text is broken at byte %td: %s", s->p - s->start,
                   s->p == s->end ? "it ends too early" : reason);
}

char jscan_peek(struct jscan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) {
        s->p++;
    }
    return s->p < s->end ? *s->p : 0;
}

int jscan_expect(struct jscan *s, char c)
{
    if (jscan_peek(s) != c || c == 0) {
        char reason[] = "expected '?'";
        reason[sizeof reason - 3] = c;
        return fail(s, reason);
    }
    s->p++;
    return 0;
}

int jscan_next(struct jscan *s, char close, bool *first)
{
    char c = jscan_peek(s);
    if (c == close && c != 0) {
        s->p++;
        return 0;
    }
    if (*first) {
        *first = false;
        return 1;
    }
    if (c != ',') {
        return fail(s, "expected a comma");
    }
    s->p++;
    return jscan_peek(s) == close ? fail(s, "a comma before the end") : 1;
}

static int hex4(struct jscan *s, uint32_t *out)
{
    if (s->end - s->p < 4) {
        s->p = s->end;
        return fail(s, "");
    }
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = *s->p;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            return fail(s, "a \\u escape without four hexadecimal digits");
        }
        v = v << 4 | (uint32_t)d;
        s->p++;
    }
    *out = v;
    return 0;
}

/* One escape sequence behind its backslash. */
static int escape(struct jscan *s)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end) {
        return fail(s, "");
    }
    char c = *s->p++;
    if (c != 'u') {
        const char *at = c ? strchr(from, c) : NULL;
        if (!at) {
            return fail(s, "an unknown escape");
        }
        buf_addc(&s->tmp, to[at - from]);
        return 0;
    }
    uint32_t cp = 0;
    int rc = hex4(s, &cp);
    if (rc == 0 && cp >= 0xD800 && cp < 0xDC00) {
        uint32_t low = 0;
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u') {
            return fail(s, "half of a surrogate pair");
        }
        s->p += 2;
        rc = hex4(s, &low);
        if (rc == 0 && (low < 0xDC00 || low > 0xDFFF)) {
            return fail(s, "half of a surrogate pair");
        }
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    } else if (rc == 0 && cp >= 0xDC00 && cp <= 0xDFFF) {
        return fail(s, "half of a surrogate pair");
    }
    if (rc == 0) {
        char b[4];
        buf_add(&s->tmp, b, (size_t)utf8_put(cp, b));
    }
    return rc;
}

int jscan_string(struct jscan *s, struct jtext *out)
{
    int rc = jscan_expect(s, '"');
    if (rc < 0) {
        return rc;
    }
    bool copied = false;
    const char *from = s->p;
    for (;;) {
        while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20) {
            s->p++;
        }
        if (s->p == s->end || (unsigned char)*s->p < 0x20) {
            return fail(s, "a control character in a string");
        }
        size_t n = (size_t)(s->p - from);
        if (*s->p == '"') {
            s->p++;
            if (!copied) {
                *out = (struct jtext){from, n};
                return 0;
            }
            buf_add(&s->tmp, from, n);
            *out = (struct jtext){s->tmp.data, s->tmp.len};
            return 0;
        }
        if (!copied) {
            copied = true;
            buf_truncate(&s->tmp, 0);
        }
        buf_add(&s->tmp, from, n);
        s->p++;
        rc = escape(s);
        if (rc < 0) {
            return rc;
        }
        from = s->p;
    }
}

int jscan_key(struct jscan *s, struct jtext *out)
{
    int rc = jscan_string(s, out);
    return rc < 0 ? rc : jscan_expect(s, ':');
}

int jscan_int(struct jscan *s, int64_t *out)
{
    bool negative = jscan_peek(s) == '-';
    const char *p = s->p + negative;
    int64_t v = 0;
    int digits = 0;
    while (p < s->end && *p >= '0' && *p <= '9' && digits < 18) {
        v = v * 10 + (*p++ - '0');
        digits++;
    }
    if (digits == 0 || digits == 18 || (p < s->end && (*p == '.' || *p == 'e' || *p == 'E'))) {
        return fail(s, "expected a whole number");
    }
    s->p = p;
    *out = negative ? -v : v;
    return 0;
}

/* A number, true, false or null: its letters are checked only as far as
 * needed to find the end; whoever uses the value parses it. */
static int skip_scalar(struct jscan *s)
{
    const char *from = s->p;
    while (s->p < s->end && ((*s->p >= '0' && *s->p <= '9') || (*s->p >= 'a' && *s->p <= 'z') ||
                             *s->p == '-' || *s->p == '+' || *s->p == '.' || *s->p == 'E')) {
        s->p++;
    }
    return s->p == from ? fail(s, "expected a value") : 0;
}

int jscan_skip(struct jscan *s, struct jtext *out)
{
    uint64_t objects = 0; /* bit per open bracket: 1 for an object */
    int depth = 0;
    bool first = false;
    jscan_peek(s);
    const char *from = s->p;
    for (;;) {
        struct jtext t;
        char c = jscan_peek(s);
        int rc = 0;
        if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH) {
                return fail(s, "nested too deeply");
            }
            objects = objects << 1 | (c == '{');
            depth++;
            first = true;
            s->p++;
        } else {
            rc = c == '"' ? jscan_string(s, &t) : skip_scalar(s);
        }
        int more = 0;
        while (rc == 0 && depth > 0 && more == 0) {
            more = jscan_next(s, objects & 1 ? '}' : ']', &first);
            if (more == 0) {
                depth--;
                objects >>= 1;
                first = false;
            }
        }
        if (rc == 0 && more > 0 && (objects & 1)) {
            rc = jscan_key(s, &t);
        }
        if (rc < 0 || more < 0) {
            return rc < 0 ? rc : more;
        }
        if (depth == 0) {
            break;
        }
    }
    if (out) {
        *out = (struct jtext){from, (size_t)(s->p - from)};
    }
    return 0;
}
