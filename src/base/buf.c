/* Growing byte buffer; doubles, keeps a NUL behind the last byte. */
#include "config.h"
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void buf_reserve(struct buf *b, size_t extra)
{
    if (extra < b->cap && b->len + extra < b->cap) {
        return;
    }
    if (extra > SIZE_MAX / 2 - b->len - 1) {
        (void)mem_array(SIZE_MAX, 2);
    }
    size_t want = b->len + extra + 1;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < want) {
        cap *= 2;
    }
    b->data = mem_realloc(b->data, cap);
    b->cap = cap;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    buf_reserve(b, n);
    if (n) {
        memcpy(b->data + b->len, p, n);
    }
    b->len += n;
    b->data[b->len] = 0;
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return;
    }
    buf_reserve(b, (size_t)n);
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void buf_truncate(struct buf *b, size_t len)
{
    assert(len <= b->len);
    if (b->data) {
        b->len = len;
        b->data[len] = 0;
    }
}

size_t buf_trimmed(const struct buf *b)
{
    size_t n = b->len;
    while (n > 0 && strchr(" \t\r\n", b->data[n - 1])) {
        n--;
    }
    return n;
}

void buf_shrink(struct buf *b)
{
    if (b->data && b->cap > b->len + 1) {
        b->data = mem_realloc(b->data, b->len + 1);
        b->cap = b->len + 1;
    }
}

void buf_free(struct buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = 0;
    b->cap = 0;
}

char *buf_take(struct buf *b)
{
    buf_reserve(b, 0);
    b->data[b->len] = 0;
    char *p = b->data;
    b->data = NULL;
    b->len = 0;
    b->cap = 0;
    return p;
}
