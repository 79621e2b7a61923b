/* GGUF metadata: typed getters and cursors over arrays. The values were walked
 * through when the file was opened, so that nothing here can leave it. */
#include "config.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <string.h>

/* Reads a fixed-width number; false for strings and arrays. Exactly one of
 * *i and *d is the value, told by *real. */
static bool number_at(enum gguf_kv_type type, const uint8_t *p, size_t *width, bool *real,
                      int64_t *i, double *d)
{
    uint8_t u8 = 0;
    uint16_t u16 = 0;
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    float f = 0;
    *real = false;
    switch (type) {
    case GGUF_KV_U8:
    case GGUF_KV_BOOL:
    case GGUF_KV_I8:
        *width = 1;
        u8 = p[0];
        *i = type == GGUF_KV_I8 ? (int8_t)u8 : u8;
        return true;
    case GGUF_KV_U16:
    case GGUF_KV_I16:
        *width = 2;
        memcpy(&u16, p, 2);
        *i = type == GGUF_KV_I16 ? (int16_t)u16 : u16;
        return true;
    case GGUF_KV_U32:
    case GGUF_KV_I32:
        *width = 4;
        memcpy(&u32, p, 4);
        *i = type == GGUF_KV_I32 ? (int32_t)u32 : (int64_t)u32;
        return true;
    case GGUF_KV_U64:
        *width = 8;
        memcpy(&u64, p, 8);
        *i = u64 > INT64_MAX ? INT64_MAX : (int64_t)u64;
        return true;
    case GGUF_KV_I64:
        *width = 8;
        memcpy(i, p, 8);
        return true;
    case GGUF_KV_F32:
        *width = 4;
        memcpy(&f, p, 4);
        *d = (double)f;
        *real = true;
        return true;
    case GGUF_KV_F64:
        *width = 8;
        memcpy(d, p, 8);
        *real = true;
        return true;
    case GGUF_KV_STR:
    case GGUF_KV_ARR:
        break;
    }
    return false;
}

bool gguf_next_int(struct gguf_array *a, int64_t *out)
{
    size_t width = 0;
    bool real = false;
    int64_t i = 0;
    double d = 0;
    if (a->n == 0 || !number_at(a->type, a->p, &width, &real, &i, &d) || real) {
        return false;
    }
    *out = i;
    a->p += width;
    a->n--;
    return true;
}

bool gguf_next_num(struct gguf_array *a, double *out)
{
    size_t width = 0;
    bool real = false;
    int64_t i = 0;
    double d = 0;
    if (a->n == 0 || !number_at(a->type, a->p, &width, &real, &i, &d)) {
        return false;
    }
    *out = real ? d : (double)i;
    a->p += width;
    a->n--;
    return true;
}

static const uint8_t *string_at(const uint8_t *at, const char **p, size_t *n)
{
    uint64_t len = 0;
    memcpy(&len, at, 8);
    *p = (const char *)at + 8;
    *n = (size_t)len;
    return at + 8 + len;
}

bool gguf_next_str(struct gguf_array *a, const char **p, size_t *n)
{
    if (a->n == 0 || a->type != GGUF_KV_STR) {
        return false;
    }
    a->p = string_at(a->p, p, n);
    a->n--;
    return true;
}

static struct gguf_array array_at(const uint8_t *p)
{
    struct gguf_array a = {GGUF_KV_U8, 0, p + 12};
    uint32_t type = 0;
    memcpy(&type, p, 4);
    memcpy(&a.n, p + 4, 8);
    a.type = (enum gguf_kv_type)type;
    return a;
}

/* The first byte behind an array's elements. */
static const uint8_t *array_end(struct gguf_array a)
{
    const char *s = NULL;
    size_t n = 0;
    double d = 0;
    struct gguf_array inner;
    while (gguf_next_num(&a, &d) || gguf_next_str(&a, &s, &n) || gguf_next_arr(&a, &inner)) {
    }
    return a.p;
}

bool gguf_next_arr(struct gguf_array *a, struct gguf_array *out)
{
    if (a->n == 0 || a->type != GGUF_KV_ARR) {
        return false;
    }
    *out = array_at(a->p);
    a->p = array_end(*out);
    a->n--;
    return true;
}

/* Finds the key; NULL with *rc = 0 when it may be missing. */
static const struct gguf_kv *lookup(const struct gguf *g, const char *key, bool required, int *rc,
                                    struct err *e)
{
    const struct gguf_kv *v = gguf_kv_find(g, key);
    *rc = 0;
    if (!v && required) {
        *rc = err_set(e, QE_FORMAT, "%s: the key %s is missing", gguf_name(g), key);
    }
    return v;
}

static int wrong_type(const struct gguf *g, const struct gguf_kv *v, const char *want,
                      struct err *e)
{
    return err_set(e, QE_FORMAT, "%s: the key %s is of type %s, not %s", gguf_name(g), v->key,
                   gguf_kv_type_name(v->type), want);
}

int gguf_get_int(const struct gguf *g, const char *key, bool required, int64_t lo, int64_t hi,
                 int64_t *out, struct err *e)
{
    int rc = 0;
    const struct gguf_kv *v = lookup(g, key, required, &rc, e);
    if (!v) {
        return rc;
    }
    struct gguf_array one = {v->type, 1, v->value};
    int64_t x = 0;
    if (v->type == GGUF_KV_BOOL || !gguf_next_int(&one, &x)) {
        return wrong_type(g, v, "an integer", e);
    }
    if (x < lo || x > hi) {
        return err_set(e, QE_FORMAT,
                       "%s: the key %s is %" PRId64 ", outside %" PRId64 " to %" PRId64,
                       gguf_name(g), key, x, lo, hi);
    }
    *out = x;
    return 0;
}

int gguf_get_num(const struct gguf *g, const char *key, bool required, double *out, struct err *e)
{
    int rc = 0;
    const struct gguf_kv *v = lookup(g, key, required, &rc, e);
    if (!v) {
        return rc;
    }
    struct gguf_array one = {v->type, 1, v->value};
    if (v->type == GGUF_KV_BOOL || !gguf_next_num(&one, out)) {
        return wrong_type(g, v, "a number", e);
    }
    return 0;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out, struct err *e)
{
    int rc = 0;
    const struct gguf_kv *v = lookup(g, key, required, &rc, e);
    if (!v) {
        return rc;
    }
    if (v->type != GGUF_KV_BOOL) {
        return wrong_type(g, v, "bool", e);
    }
    *out = v->value[0] != 0;
    return 0;
}

int gguf_get_str(const struct gguf *g, const char *key, bool required, const char **p, size_t *n,
                 struct err *e)
{
    int rc = 0;
    const struct gguf_kv *v = lookup(g, key, required, &rc, e);
    if (!v) {
        return rc;
    }
    if (v->type != GGUF_KV_STR) {
        return wrong_type(g, v, "string", e);
    }
    (void)string_at(v->value, p, n);
    return 0;
}

int gguf_get_arr(const struct gguf *g, const char *key, bool required, int elem,
                 struct gguf_array *out, struct err *e)
{
    int rc = 0;
    const struct gguf_kv *v = lookup(g, key, required, &rc, e);
    if (!v) {
        return rc;
    }
    if (v->type != GGUF_KV_ARR) {
        return wrong_type(g, v, "array", e);
    }
    struct gguf_array a = array_at(v->value);
    if (elem >= 0 && (int)a.type != elem) {
        return err_set(e, QE_FORMAT, "%s: the key %s is an array of %s, not of %s", gguf_name(g),
                       key, gguf_kv_type_name(a.type), gguf_kv_type_name((enum gguf_kv_type)elem));
    }
    *out = a;
    return 0;
}
