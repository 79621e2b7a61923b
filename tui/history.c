/* The prompt history: an array in memory and an append-only file. The file is
 * rewritten, oldest records dropped, when it holds twice as many as are kept. */
#include "config.h"
#include "tui/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"

#define KEEP       1000
#define RECORD_MAX 65536
#define FILE_MAX   ((size_t)256 << 20)

struct history {
    char *path;
    char **item;
    size_t n, cap;
};

static void push(struct history *h, char *text)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 64;
        h->item = mem_realloc(h->item, h->cap * sizeof *h->item);
    }
    h->item[h->n++] = text;
}

static void escape(const char *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n') {
            buf_adds(out, "\\n");
        } else if (p[i] == '\\') {
            buf_adds(out, "\\\\");
        } else if (p[i] != 0) {
            buf_addc(out, p[i]);
        }
    }
    buf_addc(out, '\n');
}

static char *unescape(const char *p, size_t n)
{
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && i + 1 < n) {
            i++;
            buf_addc(&b, p[i] == 'n' ? '\n' : p[i]);
        } else if (p[i] != 0) {
            buf_addc(&b, p[i]);
        }
    }
    return buf_take(&b);
}

static void shorten(struct history *h)
{
    size_t drop = h->n - KEEP;
    for (size_t i = 0; i < drop; i++) {
        free(h->item[i]);
    }
    memmove(h->item, h->item + drop, KEEP * sizeof *h->item);
    h->n = KEEP;
}

static void rewrite(const struct history *h)
{
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < h->n; i++) {
        escape(h->item[i], strlen(h->item[i]), &b);
    }
    struct tmp_out t = TMP_OUT_INIT;
    if (tmp_out_create(&t, h->path, 0600, NULL) == 0 &&
        io_write_all(t.fd, b.data, b.len, h->path, NULL) == 0) {
        (void)tmp_out_commit(&t, h->path, NULL); /* the old file serves as well */
    }
    tmp_out_fini(&t);
    buf_free(&b);
}

struct history *history_create(const char *path, struct err *e)
{
    struct history *h = mem_zalloc(sizeof *h);
    if (!path) {
        return h;
    }
    h->path = mem_strdup(path);
    if (access(path, F_OK) != 0) {
        return h;
    }
    struct buf b = BUF_INIT;
    if (io_read_file(path, FILE_MAX, &b, e) < 0) {
        /* nor is it added to: what is typed lasts as long as the program */
        free(h->path);
        h->path = NULL;
    } else {
        size_t i = 0;
        while (i < b.len) {
            const char *nl = memchr(b.data + i, '\n', b.len - i);
            size_t end = nl ? (size_t)(nl - b.data) : b.len;
            if (end > i) {
                push(h, unescape(b.data + i, end - i));
            }
            i = end + 1;
        }
        if (h->n > (size_t)2 * KEEP) {
            shorten(h);
            rewrite(h);
        } else if (h->n > KEEP) {
            shorten(h);
        }
    }
    buf_free(&b);
    return h;
}

void history_free(struct history *h)
{
    if (!h) {
        return;
    }
    for (size_t i = 0; i < h->n; i++) {
        free(h->item[i]);
    }
    free(h->item);
    free(h->path);
    free(h);
}

int history_add(struct history *h, const char *p, size_t n, struct err *e)
{
    if (n == 0 ||
        (h->n && strlen(h->item[h->n - 1]) == n && memcmp(h->item[h->n - 1], p, n) == 0)) {
        return 0;
    }
    struct buf b = BUF_INIT;
    escape(p, n, &b);
    push(h, unescape(b.data, b.len - 1));
    int rc = 0;
    if (h->path && n <= RECORD_MAX) { /* longer ones last as long as the program */
        char *dir = mem_strdup(h->path);
        char *slash = strrchr(dir, '/');
        if (slash && slash != dir) {
            *slash = 0;
            rc = io_mkdirs(dir, 0700, e);
        }
        free(dir);
        int fd = rc == 0
                     ? open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600)
                     : -1;
        if (rc == 0 && fd < 0) {
            rc = err_sys(e, QE_IO, errno, "cannot open the prompt history %s", h->path);
        }
        if (rc == 0) {
            rc = io_write_all(fd, b.data, b.len, h->path, e);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    buf_free(&b);
    return rc;
}

size_t history_count(const struct history *h)
{
    return h->n;
}

const char *history_at(const struct history *h, size_t i)
{
    return h->item[i];
}
