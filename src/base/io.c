/* File access. The fault counter is the one writable global here; it is only
 * ever set by tests and costs one relaxed load otherwise. */
#include "config.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static atomic_uint fault_countdown;
static atomic_int fault_errno;

void io_fault_set(unsigned n, int errnum)
{
    atomic_store(&fault_errno, errnum);
    atomic_store(&fault_countdown, n);
}

/* True when this call must fail; errno is set. */
static bool io_fault(void)
{
    if (atomic_load_explicit(&fault_countdown, memory_order_relaxed) == 0) {
        return false;
    }
    if (atomic_fetch_sub(&fault_countdown, 1) != 1) {
        return false;
    }
    int n = atomic_load(&fault_errno);
    if (n == 0) {
        _exit(99);
    }
    errno = n;
    return true;
}

/* True for a regular file and for the null device: what never keeps a reader waiting. */
static bool io_ends(int fd)
{
    struct stat st, null;
    return fstat(fd, &st) == 0 &&
           (S_ISREG(st.st_mode) || (S_ISCHR(st.st_mode) && stat("/dev/null", &null) == 0 &&
                                    S_ISCHR(null.st_mode) && st.st_rdev == null.st_rdev));
}

int io_map_open(struct io_map *m, const char *path, struct err *e)
{
    /* a pipe without a writer is refused below, not waited for */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return err_sys(e, errno == ENOENT ? QE_NOTFOUND : QE_IO, errno, "cannot open %s", path);
    }
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot read %s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, QE_IO, "%s is %s", path,
                     S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
        goto out;
    }
    m->size = (size_t)st.st_size;
    m->data = NULL;
    if (m->size > 0) {
        void *p = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = err_sys(e, QE_IO, errno, "cannot map %s (%zu bytes)", path, m->size);
            m->size = 0;
            goto out;
        }
        m->data = p;
        m->fd = fd;
        return 0;
    }
out:
    close(fd);
    return rc;
}

void io_hold_standard_fds(void)
{
    for (int fd = 0; fd < 3; fd++) {
        /* the lowest free number is the one that is missing; as it cannot be
         * written, what is printed still fails */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) {
            return;
        }
    }
}

bool io_flush_stdout(struct err *e)
{
    bool failed_before = ferror(stdout);
    if (fflush(stdout) != 0) {
        err_sys(e, QE_IO, errno, "cannot write to standard output");
        return false;
    }
    if (failed_before) {
        err_set(e, QE_IO, "cannot write to standard output");
    }
    return !failed_before;
}

void io_map_close(struct io_map *m)
{
    if (m->data) {
        munmap((void *)(uintptr_t)m->data, m->size);
        close(m->fd);
    }
    m->data = NULL;
    m->size = 0;
}

bool io_map_copy(const struct io_map *m, void *dst, const void *p, size_t n)
{
    const uintptr_t at = (uintptr_t)p, base = m ? (uintptr_t)m->data : 0;
    if (base == 0 || at < base || at - base > m->size || n > m->size - (at - base)) {
        memcpy(dst, p, n);
        return true;
    }
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(m->fd, (uint8_t *)dst + done, n - done, (off_t)(at - base + done));
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return false; /* cut off since, or damaged: the mapping would be no better */
        }
        done += (size_t)k;
    }
    return true;
}

int io_read_fd(int fd, const char *name, size_t max, struct buf *out, struct err *e)
{
    size_t start = out->len;
    for (;;) {
        buf_reserve(out, 65536);
        ssize_t n = read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_sys(e, QE_IO, errno, "cannot read %s", name);
        }
        if (n == 0) {
            break;
        }
        out->len += (size_t)n;
        if (out->len - start > max) {
            return err_set(e, QE_NOMEM, "%s is larger than the limit of %zu bytes", name, max);
        }
    }
    out->data[out->len] = 0;
    return 0;
}

static bool is_folder(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static int read_named(const char *path, int flags, bool any, size_t max, struct buf *out,
                      struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
    if (fd < 0) {
        bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_sys(e, absent ? QE_NOTFOUND : QE_IO, errno, "cannot open %s", path);
    }
    int rc = any || io_ends(fd) ? io_read_fd(fd, path, max, out, e)
                                : err_set(e, QE_IO, "%s is %s", path,
                                          is_folder(fd) ? "a folder" : "not a regular file");
    close(fd);
    return rc;
}

int io_read_file(const char *path, size_t max, struct buf *out, struct err *e)
{
    /* the open too would wait for the writer of a pipe */
    return read_named(path, O_NONBLOCK, false, max, out, e);
}

int io_read_stream(const char *path, size_t max, struct buf *out, struct err *e)
{
    return read_named(path, 0, true, max, out, e);
}

int io_write_all(int fd, const void *p, size_t n, const char *name, struct err *e)
{
    const char *s = p;
    while (n > 0) {
        ssize_t k = io_fault() ? -1 : write(fd, s, n);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_sys(e, QE_IO, errno, "cannot write %s", name);
        }
        s += k;
        n -= (size_t)k;
    }
    return 0;
}

int io_pwrite_all(int fd, const void *p, size_t n, uint64_t off, const char *name, struct err *e)
{
    const char *s = p;
    while (n > 0) {
        ssize_t k = io_fault() ? -1 : pwrite(fd, s, n, (off_t)off);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_sys(e, QE_IO, errno, "cannot write %s", name);
        }
        s += k;
        off += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

int io_mkdirs(const char *path, mode_t mode, struct err *e)
{
    if (!path[0]) {
        return 0;
    }
    char *p = mem_strdup(path);
    int rc = 0;
    for (char *s = p + 1;; s++) {
        if (*s && *s != '/') {
            continue;
        }
        char c = *s;
        *s = 0;
        if (mkdir(p, mode) < 0 && errno != EEXIST) {
            rc = err_sys(e, QE_IO, errno, "cannot make the directory %s", p);
            break;
        }
        *s = c;
        if (!c) {
            break;
        }
    }
    free(p);
    return rc;
}

char *io_join(const char *dir, const char *name)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s/%s", dir, name);
    return buf_take(&b);
}

static char *xdg(const char *var, const char *under_home)
{
    const char *v = getenv(var);
    if (v && v[0] == '/') {
        return io_join(v, "quasar");
    }
    const char *home = getenv("HOME");
    struct passwd entry, *found = NULL;
    char text[4096];
    if ((!home || home[0] != '/') && getpwuid_r(getuid(), &entry, text, sizeof text, &found) == 0 &&
        found) {
        home = found->pw_dir;
    }
    struct buf b = BUF_INIT;
    /* never a folder like /tmp, where anyone could put settings; under
     * /dev/null nothing is found and nothing can be made */
    buf_printf(&b, "%s/%s/quasar", home && home[0] == '/' ? home : "/dev/null", under_home);
    return buf_take(&b);
}

char *io_xdg_config(void)
{
    return xdg("XDG_CONFIG_HOME", ".config");
}

char *io_xdg_data(void)
{
    return xdg("XDG_DATA_HOME", ".local/share");
}

char *io_xdg_state(void)
{
    return xdg("XDG_STATE_HOME", ".local/state");
}

/* The directory part of a path, "." when it has none (caller frees). */
static char *directory_of(const char *path)
{
    char *dir = mem_strdup(path);
    char *slash = strrchr(dir, '/');
    if (slash == dir) {
        slash[1] = 0;
    } else if (slash) {
        *slash = 0;
    } else {
        dir[0] = '.';
        dir[1] = 0;
    }
    return dir;
}

/* A file without a name where the file system has such, so that nothing stays
 * behind when the process is killed; else one with a temporary name. */
static int open_unnamed(const char *path, char **tmp_path)
{
    char *dir = directory_of(path);
    int fd = io_fault() ? -1 : open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    free(dir);
    *tmp_path = NULL;
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s.tmp-XXXXXX", path);
    *tmp_path = buf_take(&b);
    return mkostemp(*tmp_path, O_CLOEXEC);
}

/* Gives a nameless file a temporary name; false with errno set. */
static bool name_file(struct tmp_out *t, const char *path)
{
    char fd_path[40];
    snprintf(fd_path, sizeof fd_path, "/proc/self/fd/%d", t->fd);
    for (unsigned i = 0; i < 100; i++) {
        struct buf b = BUF_INIT;
        buf_printf(&b, "%s.tmp-%ld-%u", path, (long)getpid(), i);
        char *name = buf_take(&b);
        if (io_fault() || linkat(AT_FDCWD, fd_path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) < 0) {
            int n = errno;
            free(name);
            errno = n;
            if (n != EEXIST) {
                return false;
            }
            continue;
        }
        t->tmp_path = name;
        return true;
    }
    return false;
}

int tmp_out_create(struct tmp_out *t, const char *path, mode_t mode, struct err *e)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        /* a rename would put a file in the place of /dev/null */
        return err_set(e, QE_IO, "cannot create %s: %s is there, not a file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
    }
    char *tmp = NULL;
    int fd = open_unnamed(path, &tmp);
    if (fd < 0) {
        int rc = err_sys(e, QE_IO, errno, "cannot create %s", path);
        free(tmp);
        return rc;
    }
    if (fchmod(fd, mode) < 0) {
        int rc = err_sys(e, QE_IO, errno, "cannot set the mode of %s", path);
        close(fd);
        if (tmp) {
            unlink(tmp);
        }
        free(tmp);
        return rc;
    }
    t->fd = fd;
    t->tmp_path = tmp;
    t->committed = false;
    return 0;
}

static int sync_directory_of(const char *path, struct err *e)
{
    char *dir = directory_of(path);
    int rc = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || io_fault() || (fsync(fd) < 0 && errno != EINVAL)) {
        rc = err_sys(e, QE_IO, errno, "cannot sync the directory %s", dir);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(dir);
    return rc;
}

int tmp_out_commit(struct tmp_out *t, const char *path, struct err *e)
{
    if (io_fault() || fsync(t->fd) < 0) {
        return err_sys(e, QE_IO, errno, "cannot sync %s", path);
    }
    if (!t->tmp_path && !name_file(t, path)) {
        return err_sys(e, QE_IO, errno, "cannot name a temporary file for %s", path);
    }
    int fd = t->fd;
    t->fd = -1;
    if (close(fd) < 0) {
        return err_sys(e, QE_IO, errno, "cannot close %s", path);
    }
    if (io_fault() || rename(t->tmp_path, path) < 0) {
        return err_sys(e, QE_IO, errno, "cannot rename a temporary file to %s", path);
    }
    t->committed = true;
    return sync_directory_of(path, e);
}

void tmp_out_fini(struct tmp_out *t)
{
    if (t->fd >= 0) {
        close(t->fd);
    }
    if (t->tmp_path && !t->committed) {
        unlink(t->tmp_path);
    }
    free(t->tmp_path);
    t->fd = -1;
    t->tmp_path = NULL;
}
