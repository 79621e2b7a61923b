/* Status codes and messages. Messages are cut at ERR_MSG_MAX on a character
 * boundary, so that a hostile name in one cannot produce broken UTF-8. */
#include "config.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Foreign names and texts end up in messages: a control character, which could
 * break the line or drive the terminal, and a byte that is no UTF-8 become
 * question marks; what the buffer cut in two goes. */
static void clean_message(char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int k = utf8_decode(s + i, n - i, &cp);
        if (k < 0 && n == ERR_MSG_MAX - 1) {
            s[i] = 0;
            return;
        }
        size_t len = k > 0 ? (size_t)k : 1;
        if (k <= 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            memset(s + i, '?', len);
        }
        i += len;
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
