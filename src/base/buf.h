#ifndef QUASAR_BASE_BUF_H
#define QUASAR_BASE_BUF_H

#include <stddef.h>

/* Growing bytes. Zero initialised is empty. data is NUL terminated (the NUL is
 * not counted) once anything was appended; NULL before that. */
struct buf {
    char *data;
    size_t len;
    size_t cap;
};

#define BUF_INIT                                                                                   \
    {                                                                                              \
        NULL, 0, 0                                                                                 \
    }

void buf_reserve(struct buf *b, size_t extra);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_truncate(struct buf *b, size_t len);
/* The length without white space (blank, tab, CR, LF) at the end. */
size_t buf_trimmed(const struct buf *b);
/* Gives back what was reserved and is not used. */
void buf_shrink(struct buf *b);
void buf_free(struct buf *b);

/* Moves the bytes out (never NULL; caller frees) and leaves b empty. */
char *buf_take(struct buf *b);

#endif
