/* One file per conversation under locks/, held by flock. A file that a dead
 * process left is just a file; one that was removed while it was waited for is
 * noticed by its inode. */
#include "config.h"
#include "sessions/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"

struct session_lock {
    int fd;
    struct lock_set *set; /* NULL: nobody shares it; what follows is under the set's lock */
    int64_t conv;
    int refs;
    struct session_lock *next;
};

struct lock_set {
    char *dir;
    pthread_mutex_t lock;
    struct session_lock *held;
};

static char *path_of(const char *dir, int64_t conv)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s/locks/%lld.lock", dir, (long long)conv);
    return buf_take(&b);
}

/* What the holder wrote. */
static pid_t read_pid(int fd)
{
    char text[32];
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) {
        return -1;
    }
    text[n] = 0;
    const long pid = strtol(text, NULL, 10);
    return pid > 0 && pid < INT32_MAX ? (pid_t)pid : -1;
}

static void write_pid(int fd)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0) {
        (void)io_pwrite_all(fd, text, (size_t)n, 0, "a lock", NULL); /* only for messages */
    }
}

static int busy(int64_t conv, pid_t pid, struct err *e)
{
    char who[40] = "";
    if (pid > 0) {
        snprintf(who, sizeof who, " (process %ld)", (long)pid);
    }
    return err_set(e, QE_BUSY,
                   "conversation %lld is open in another quasar%s: leave it there, or go on from a "
                   "copy (quasar sessions fork %lld)",
                   (long long)conv, who, (long long)conv);
}

/* Whether the file at path is still the one that is open. */
static bool still_there(int fd, const char *path)
{
    struct stat mine, now;
    return fstat(fd, &mine) == 0 && stat(path, &now) == 0 && mine.st_ino == now.st_ino &&
           mine.st_dev == now.st_dev;
}

int lock_take(const char *dir, int64_t conv, struct session_lock **out, struct err *e)
{
    char *locks = io_join(dir, "locks");
    int rc = io_mkdirs(locks, 0700, e);
    free(locks);
    if (rc < 0) {
        return rc;
    }
    char *path = path_of(dir, conv);
    int fd = -1;
    for (;;) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) {
            rc = err_sys(e, QE_IO, errno, "cannot open %s", path);
            break;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            rc = errno == EWOULDBLOCK ? busy(conv, read_pid(fd), e)
                                      : err_sys(e, QE_IO, errno, "cannot lock %s", path);
            break;
        }
        if (still_there(fd, path)) {
            break;
        }
        close(fd);
    }
    free(path);
    if (rc < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    write_pid(fd);
    *out = mem_zalloc(sizeof **out);
    (*out)->fd = fd;
    return 0;
}

/* Takes one that nobody has any more out of its set; under the set's lock. */
static void unlist(struct session_lock *l)
{
    struct session_lock **at = &l->set->held;
    while (*at != l) {
        at = &(*at)->next;
    }
    *at = l->next;
}

void lock_release(struct session_lock *l)
{
    struct lock_set *s = l ? l->set : NULL;
    bool over = l != NULL;
    if (s) {
        pthread_mutex_lock(&s->lock);
        over = --l->refs == 0;
        if (over) {
            unlist(l);
        }
        pthread_mutex_unlock(&s->lock);
    }
    if (over) {
        close(l->fd);
        free(l);
    }
}

struct lock_set *lock_set_create(const char *dir)
{
    struct lock_set *s = mem_zalloc(sizeof *s);
    s->dir = mem_strdup(dir);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void lock_set_free(struct lock_set *s)
{
    if (s) {
        pthread_mutex_destroy(&s->lock);
        free(s->dir);
        free(s);
    }
}

int lock_set_take(struct lock_set *s, int64_t conv, struct session_lock **out, bool *first,
                  struct err *e)
{
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    struct session_lock *l = s->held;
    while (l && l->conv != conv) {
        l = l->next;
    }
    *first = !l;
    if (!l) {
        rc = lock_take(s->dir, conv, &l, e);
        if (rc == 0) {
            l->set = s;
            l->conv = conv;
            l->next = s->held;
            s->held = l;
        }
    }
    if (rc == 0) {
        l->refs++;
        *out = l;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

pid_t lock_holder(const char *dir, int64_t conv)
{
    char *path = path_of(dir, conv);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may be a FIFO */
    free(path);
    if (fd < 0) {
        return 0;
    }
    pid_t pid = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        pid = read_pid(fd);
    }
    close(fd);
    return pid;
}

void lock_forget(const char *dir, int64_t conv)
{
    char *path = path_of(dir, conv);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && still_there(fd, path)) {
            unlink(path);
        }
        close(fd);
    }
    free(path);
}
