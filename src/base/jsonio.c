/* jansson helpers. */
#include "config.h"
#include "base/jsonio.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/utf8.h"

/* Text in which whole numbers beyond 64 bits are written as fractions; false: there are none. Such
 * bounds are found in schemas. */
static bool widen(const char *p, size_t n, struct buf *out)
{
    bool quoted = false, any = false;
    for (size_t i = 0; i < n;) {
        size_t k = 1;
        if (p[i] == '"') {
            quoted = !quoted;
        } else if (quoted && p[i] == '\\' && i + 1 < n) {
            k = 2;
        } else if (!quoted && p[i] >= '0' && p[i] <= '9') {
            bool whole = true;
            for (; i + k < n && memchr("0123456789.eE+-", p[i + k], 15); k++) {
                whole = whole && p[i + k] >= '0' && p[i + k] <= '9';
            }
            if (whole && k >= 19) {
                buf_add(out, p + i, k);
                buf_adds(out, ".0");
                any = true;
                i += k;
                continue;
            }
        }
        buf_add(out, p + i, k);
        i += k;
    }
    return any;
}

int json_parse(const char *p, size_t n, const char *what, json_t **out, struct err *e)
{
    json_error_t je;
    json_t *v = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!v && json_error_code(&je) == json_error_numeric_overflow) {
        struct buf b = BUF_INIT;
        if (widen(p, n, &b)) {
            v = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
                           &je);
        }
        buf_free(&b);
    }
    if (!v && json_error_code(&je) == json_error_duplicate_key) {
        return err_set(e, QE_FORMAT, "%s has a duplicate key in an object (line %d, column %d)",
                       what, je.line, je.column);
    }
    if (!v) {
        return err_set(e, QE_FORMAT, "%s is not valid JSON (line %d, column %d): %s", what, je.line,
                       je.column, je.text);
    }
    *out = v;
    return 0;
}

int json_parse_file(const char *path, size_t max, json_t **out, struct err *e)
{
    struct buf b = BUF_INIT;
    int rc = io_read_file(path, max, &b, e);
    if (rc == 0) {
        rc = json_parse(b.data, b.len, path, out, e);
    }
    buf_free(&b);
    return rc;
}

static int missing(const char *key, bool required, struct err *e)
{
    return required ? err_set(e, QE_FORMAT, "the field \"%s\" is missing", key) : 0;
}

int json_get_int(const json_t *o, const char *key, bool required, int64_t lo, int64_t hi,
                 int64_t *out, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        return missing(key, required, e);
    }
    int64_t x = 0;
    if (json_is_integer(v)) {
        x = json_integer_value(v);
    } else if (json_is_real(v) && floor(json_real_value(v)) == json_real_value(v) &&
               fabs(json_real_value(v)) < 9e15) {
        x = (int64_t)json_real_value(v);
    } else {
        return err_set(e, QE_FORMAT, "the field \"%s\" is not a whole number", key);
    }
    if (x < lo || x > hi) {
        return err_set(e, QE_FORMAT,
                       "the field \"%s\" is %" PRId64 ", outside %" PRId64 " to %" PRId64, key, x,
                       lo, hi);
    }
    *out = x;
    return 0;
}

int json_get_num(const json_t *o, const char *key, bool required, double *out, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        return missing(key, required, e);
    }
    if (!json_is_number(v)) {
        return err_set(e, QE_FORMAT, "the field \"%s\" is not a number", key);
    }
    *out = json_number_value(v);
    return 0;
}

int json_get_bool(const json_t *o, const char *key, bool required, bool *out, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        return missing(key, required, e);
    }
    if (!json_is_boolean(v)) {
        return err_set(e, QE_FORMAT, "the field \"%s\" is not true or false", key);
    }
    *out = json_is_true(v);
    return 0;
}

int json_get_str(const json_t *o, const char *key, bool required, const char **out, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        return missing(key, required, e);
    }
    if (!json_is_string(v)) {
        return err_set(e, QE_FORMAT, "the field \"%s\" is not a string", key);
    }
    *out = json_string_value(v);
    return 0;
}

static int dump_to_buf(const char *p, size_t n, void *ctx)
{
    buf_add(ctx, p, n);
    return 0;
}

void json_write(const json_t *v, struct buf *out)
{
    json_dump_callback(v, dump_to_buf, out,
                       JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
}

/* Shortest decimal form that reads back as the same double, as Python's repr. */
static void write_real(double x, struct buf *out)
{
    char s[40];
    for (int p = 1; p <= 17; p++) {
        snprintf(s, sizeof s, "%.*e", p - 1, x);
        if (strtod(s, NULL) == x) {
            break;
        }
    }
    char digits[24] = "";
    size_t nd = 0;
    const char *t = s;
    bool neg = *t == '-';
    t += neg;
    for (; *t && *t != 'e'; t++) {
        if (*t != '.') {
            digits[nd++] = *t;
        }
    }
    int ex = (int)strtol(t + 1, NULL, 10);
    if (neg) {
        buf_addc(out, '-');
    }
    if (ex < -4 || ex >= 16) {
        buf_addc(out, digits[0]);
        if (nd > 1) {
            buf_addc(out, '.');
            buf_add(out, digits + 1, nd - 1);
        }
        buf_printf(out, "e%c%02d", ex < 0 ? '-' : '+', abs(ex));
        return;
    }
    if (ex < 0) {
        buf_adds(out, "0.");
        for (int i = ex + 1; i < 0; i++) {
            buf_addc(out, '0');
        }
        buf_add(out, digits, nd);
        return;
    }
    for (int i = 0; i <= ex || (size_t)i < nd; i++) {
        if (i == ex + 1) {
            buf_addc(out, '.');
        }
        buf_addc(out, (size_t)i < nd ? digits[i] : '0');
    }
    if (nd <= (size_t)ex + 1) {
        buf_adds(out, ".0");
    }
}

static void write_string(const char *s, size_t n, struct buf *out)
{
    buf_addc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        switch (c) {
        case '"':
            buf_adds(out, "\\\"");
            break;
        case '\\':
            buf_adds(out, "\\\\");
            break;
        case '\n':
            buf_adds(out, "\\n");
            break;
        case '\r':
            buf_adds(out, "\\r");
            break;
        case '\t':
            buf_adds(out, "\\t");
            break;
        case '\b':
            buf_adds(out, "\\b");
            break;
        case '\f':
            buf_adds(out, "\\f");
            break;
        default:
            if (c < 0x20) {
                buf_printf(out, "\\u%04x", c);
            } else {
                buf_addc(out, (char)c);
            }
        }
    }
    buf_addc(out, '"');
}

static void write_value(const json_t *v, bool spaced, struct buf *out)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: {
        buf_addc(out, '{');
        const char *key = NULL;
        json_t *x = NULL;
        bool first = true;
        json_object_foreach((json_t *)(uintptr_t)v, key, x)
        {
            if (!first) {
                buf_adds(out, spaced ? ", " : ",");
            }
            first = false;
            write_string(key, strlen(key), out);
            buf_adds(out, spaced ? ": " : ":");
            write_value(x, spaced, out);
        }
        buf_addc(out, '}');
        break;
    }
    case JSON_ARRAY:
        buf_addc(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            if (i) {
                buf_adds(out, spaced ? ", " : ",");
            }
            write_value(json_array_get(v, i), spaced, out);
        }
        buf_addc(out, ']');
        break;
    case JSON_STRING:
        write_string(json_string_value(v), json_string_length(v), out);
        break;
    case JSON_INTEGER:
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        write_real(json_real_value(v), out);
        break;
    case JSON_TRUE:
        buf_adds(out, "true");
        break;
    case JSON_FALSE:
        buf_adds(out, "false");
        break;
    case JSON_NULL:
        buf_adds(out, "null");
        break;
    }
}

void json_write_spaced(const json_t *v, struct buf *out)
{
    write_value(v, true, out);
}

void json_write_exact(const json_t *v, struct buf *out)
{
    write_value(v, false, out);
}

void json_print_take(json_t *v)
{
    struct buf b = BUF_INIT;
    json_write(v, &b);
    buf_addc(&b, '\n');
    fwrite(b.data, 1, b.len, stdout);
    buf_free(&b);
    json_decref(v);
}

json_t *json_str_lossy(const char *p, size_t n)
{
    json_t *v = json_stringn(p, n);
    if (v) {
        return v;
    }
    struct buf b = BUF_INIT;
    utf8_sanitize(p, n, &b);
    v = json_stringn_nocheck(b.data ? b.data : "", b.len);
    buf_free(&b);
    return v;
}
