/* Status codes and messages. Messages are cut at ERR_MSG_MAX on a character
 * boundary, so that a hostile name in one cannot produce broken UTF-8. */
#include "config.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

/* Foreign names and texts end up in messages: a control character, which could
 * break the line or drive the terminal, becomes a question mark. */
static void mask_controls(char *s)
{
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        if (*p < 0x20 || *p == 0x7F) {
            *p = '?';
        } else if (*p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0) {
            p[0] = '?';
            p[1] = '?';
        }
    }
}

static void clean_message(char *s)
{
    mask_controls(s);
    size_t n = strlen(s);
    if (n < ERR_MSG_MAX - 1) {
        return;
    }
    size_t i = n;
    while (i > 0 && n - i < 4 && ((unsigned char)s[i - 1] & 0xC0) == 0x80) {
        i--;
    }
    if (i > 0 && (unsigned char)s[i - 1] >= 0xC0) {
        s[i - 1] = 0;
    }
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        clean_message(e->msg);
        e->code = code;
    }
    return code;
}

int err_sys(struct err *e, int code, int errnum, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        size_t n = strlen(e->msg);
        snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(errnum));
        clean_message(e->msg);
        e->code = code;
    }
    return code;
}

int err_wrap(struct err *e, int code, const char *fmt, ...)
{
    if (e) {
        char old[ERR_MSG_MAX];
        memcpy(old, e->msg, sizeof old);
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        size_t n = strlen(e->msg);
        if (old[0]) {
            snprintf(e->msg + n, sizeof e->msg - n, ": %s", old);
        }
        clean_message(e->msg);
        e->code = code;
    }
    return code;
}

int err_exit_status(int code)
{
    switch (code) {
    case QE_OK:
        return 0;
    case QE_USAGE:
        return 2;
    case QE_CANCELLED:
        return 130;
    default:
        return 1;
    }
}
