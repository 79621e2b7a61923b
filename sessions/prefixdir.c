/* The folder's names in memory, and the rules of what goes. A name is
 * "ENGINE-HASH-TOKENS-KIND.prefix" in hexadecimal; files of other names are never
 * touched. The time of a file's last change is that of its last use. */
#include "config.h"
#include "sessions/prefixdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"

#define SUFFIX    ".prefix"
#define NAME_SIZE 64
#define STRIDE    4096 /* tokens: of a conversation's states the last in each is kept */
#define PIECE     (1 << 20)

struct item {
    uint64_t engine, hash;
    uint32_t len;
    bool head;
    uint64_t size;
    struct timespec used;
};

struct prefixdir {
    char *dir;
    uint64_t limit, engine;
    uint8_t compat[STATE_COMPAT];
    char label[STATE_LABEL_SIZE];
    pthread_mutex_t lock; /* all below */
    struct item *items;
    size_t n;
    struct timespec read; /* the folder's time when it was read */
    bool told;            /* of damage */
};

struct prefixdir *prefixdir_create(const char *dir, uint64_t limit,
                                   const uint8_t compat[STATE_COMPAT], const char *label)
{
    struct prefixdir *d = mem_zalloc(sizeof *d);
    d->dir = mem_strdup(dir);
    d->limit = limit;
    memcpy(d->compat, compat, STATE_COMPAT);
    memcpy(&d->engine, compat, sizeof d->engine);
    strncpy(d->label, label, sizeof d->label - 1);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

void prefixdir_free(struct prefixdir *d)
{
    if (d) {
        pthread_mutex_destroy(&d->lock);
        free(d->items);
        free(d->dir);
        free(d);
    }
}

/* ---- names ---- */

static void name_of(const struct item *it, char out[NAME_SIZE])
{
    snprintf(out, NAME_SIZE, "%016" PRIx64 "-%016" PRIx64 "-%06" PRIx32 "-%c" SUFFIX, it->engine,
             it->hash, it->len, it->head ? 'h' : 't');
}

/* Exactly what name_of writes. */
static bool parse_name(const char *name, struct item *out)
{
    unsigned long long engine = 0, hash = 0;
    unsigned len = 0;
    char kind = 0, again[NAME_SIZE];
    if (sscanf(name, "%16llx-%16llx-%6x-%c", &engine, &hash, &len, &kind) != 4) {
        return false;
    }
    *out = (struct item){.engine = engine, .hash = hash, .len = len, .head = kind == 'h'};
    name_of(out, again);
    return strcmp(name, again) == 0 && len > 0 && len % PREFIXDIR_BLOCK == 0;
}

static char *path_of(const struct prefixdir *d, const struct item *it)
{
    char name[NAME_SIZE];
    name_of(it, name);
    return io_join(d->dir, name);
}

/* The hash after each whole block of n tokens: n / PREFIXDIR_BLOCK + 1 of them. */
static uint64_t *chain_of(const struct prefixdir *d, const int32_t *ids, size_t n)
{
    uint64_t *h = mem_array(n / PREFIXDIR_BLOCK + 1, sizeof *h);
    h[0] = d->engine;
    for (size_t k = 1; k <= n / PREFIXDIR_BLOCK; k++) {
        h[k] = hash64(ids + (k - 1) * PREFIXDIR_BLOCK, PREFIXDIR_BLOCK * sizeof *ids, h[k - 1]);
    }
    return h;
}

/* ---- reading names ---- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static struct item *read_names(const struct prefixdir *d, size_t *n)
{
    struct item *v = NULL;
    size_t cap = 0;
    *n = 0;
    DIR *dir = opendir(d->dir);
    struct dirent *f = NULL;
    while (dir && (f = readdir(dir))) {
        struct item it;
        struct stat st;
        if (!parse_name(f->d_name, &it) || fstatat(dirfd(dir), f->d_name, &st, 0) < 0) {
            continue;
        }
        it.size = (uint64_t)st.st_size;
        it.used = st.st_mtim;
        if (*n == cap) {
            cap = cap ? 2 * cap : 64;
            v = mem_realloc(v, cap * sizeof *v);
        }
        v[(*n)++] = it;
    }
    if (dir) {
        closedir(dir);
    }
    return v;
}

static void scan(struct prefixdir *d, bool always)
{
    struct stat st;
    if (stat(d->dir, &st) < 0) {
        memset(&st, 0, sizeof st);
    }
    pthread_mutex_lock(&d->lock);
    const bool known = same_time(d->read, st.st_mtim) && !always;
    pthread_mutex_unlock(&d->lock);
    if (known) {
        return;
    }
    size_t n = 0;
    struct item *v = read_names(d, &n);
    pthread_mutex_lock(&d->lock);
    free(d->items);
    d->items = v;
    d->n = n;
    d->read = st.st_mtim;
    pthread_mutex_unlock(&d->lock);
}

void prefixdir_scan(struct prefixdir *d)
{
    scan(d, false);
}

/* A copy of what is known, for work that must not hold the lock. */
static struct item *copy_items(struct prefixdir *d, size_t *n)
{
    pthread_mutex_lock(&d->lock);
    struct item *v = mem_array(d->n + 1, sizeof *v);
    *n = d->n;
    if (d->n > 0) {
        memcpy(v, d->items, d->n * sizeof *v);
    }
    pthread_mutex_unlock(&d->lock);
    return v;
}

void prefixdir_size(struct prefixdir *d, size_t *files, uint64_t *bytes)
{
    pthread_mutex_lock(&d->lock);
    *files = d->n;
    *bytes = 0;
    for (size_t i = 0; i < d->n; i++) {
        *bytes += d->items[i].size;
    }
    pthread_mutex_unlock(&d->lock);
}

bool prefixdir_has(struct prefixdir *d, const int32_t *ids, size_t len)
{
    uint64_t *h = chain_of(d, ids, len);
    bool has = false;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n && !has; i++) {
        const struct item *it = &d->items[i];
        has = it->engine == d->engine && it->len == len && it->hash == h[len / PREFIXDIR_BLOCK];
    }
    pthread_mutex_unlock(&d->lock);
    free(h);
    return has;
}

/* ---- finding ---- */

static int longest_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return (x->len < y->len) - (x->len > y->len);
}

/* Says it once: more files may be so, and nothing can be done about any of them. */
static void tell(struct prefixdir *d, const struct err *e)
{
    pthread_mutex_lock(&d->lock);
    const bool told = d->told;
    d->told = true;
    pthread_mutex_unlock(&d->lock);
    if (!told) {
        log_line(LOG_WARN, "a kept prompt cannot be used and is computed again: %s", e->msg);
    }
}

void prefixdir_damaged(struct prefixdir *d, struct state_file *f, const struct err *e)
{
    const struct state_meta *m = state_meta(f);
    uint64_t *h = chain_of(d, m->ids, m->n_ids);
    tell(d, e);
    for (int head = 0; head < 2; head++) {
        const struct item it = {.engine = d->engine,
                                .hash = h[m->n_ids / PREFIXDIR_BLOCK],
                                .len = (uint32_t)m->n_ids,
                                .head = head};
        char *path = path_of(d, &it);
        (void)unlink(path);
        free(path);
    }
    free(h);
}

/* The file, if it is what its name says and of these tokens. */
static struct state_file *try(struct prefixdir *d, const struct item *it, const int32_t *ids)
{
    struct state_file *f = NULL;
    struct err e = ERR_INIT;
    char *path = path_of(d, it);
    int rc = state_open(path, &f, &e);
    if (rc == QE_FORMAT) {
        tell(d, &e);
        (void)(unlink(path) == 0 || rmdir(path) == 0);
    } else if (rc == QE_IO) {
        tell(d, &e);
    }
    if (rc == 0) {
        const struct state_meta *m = state_meta(f);
        if (m->kind != STATE_PREFIX || m->n_ids != it->len ||
            state_check(f, d->compat, d->label, &e) < 0 ||
            memcmp(m->ids, ids, m->n_ids * sizeof *ids) != 0) {
            state_close(f);
            f = NULL;
        } else {
            (void)utimensat(AT_FDCWD, path, NULL, 0); /* now: it is used */
        }
    }
    free(path);
    return f;
}

struct state_file *prefixdir_find(struct prefixdir *d, const int32_t *ids, size_t n, size_t least)
{
    size_t n_items = 0, fit = 0;
    prefixdir_scan(d);
    struct item *v = copy_items(d, &n_items);
    uint64_t *h = chain_of(d, ids, n);
    for (size_t i = 0; i < n_items; i++) {
        const struct item it = v[i];
        if (it.engine == d->engine && it.len > least && it.len < n &&
            it.hash == h[it.len / PREFIXDIR_BLOCK]) {
            v[fit++] = it;
        }
    }
    qsort(v, fit, sizeof *v, longest_first);
    struct state_file *f = NULL;
    for (size_t i = 0; i < fit && !f; i++) {
        f = try(d, &v[i], ids);
    }
    free(h);
    free(v);
    return f;
}

/* ---- writing ---- */

static int oldest_first(const void *a, const void *b)
{
    const struct timespec x = ((const struct item *)a)->used, y = ((const struct item *)b)->used;
    return x.tv_sec != y.tv_sec ? (x.tv_sec > y.tv_sec) - (x.tv_sec < y.tv_sec)
                                : (x.tv_nsec > y.tv_nsec) - (x.tv_nsec < y.tv_nsec);
}

/* An earlier state of the same conversation, close before this one. */
static bool is_needless(const struct item *it, const struct item *by, const uint64_t *h)
{
    return it->engine == by->engine && !it->head && !by->head && it->len < by->len &&
           it->len / STRIDE == by->len / STRIDE && it->hash == h[it->len / PREFIXDIR_BLOCK];
}

/* Whether what is there under a name is no sound state. whole: to its last byte. */
static bool is_damaged(const char *path, bool whole)
{
    struct state_file *f = NULL;
    int rc = state_open(path, &f, NULL);
    if (rc == 0 && whole) {
        rc = state_verify(f, NULL);
    }
    state_close(f);
    return rc == QE_FORMAT;
}

/* One process at a time; who finds another at it leaves it to that one. What nobody can
 * use goes before what was used longest ago. */
static void trim(struct prefixdir *d, const struct item *newest, const uint64_t *h)
{
    char *name = io_join(d->dir, "lock");
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(name);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    scan(d, true);
    size_t n = 0;
    uint64_t all = 0;
    bool gone = false;
    struct item *v = copy_items(d, &n);
    for (size_t i = 0; i < n; i++) {
        all += v[i].size;
    }
    qsort(v, n, sizeof *v, oldest_first);
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < n; i++) {
            char *path = path_of(d, &v[i]);
            const bool go = pass == 0 ? is_needless(&v[i], newest, h)
                                      : all > d->limit && v[i].size > 0 &&
                                            (pass == 2 || is_damaged(path, false));
            if (go) {
                gone = unlink(path) == 0 || gone;
                all -= v[i].size;
                v[i].size = 0;
            }
            free(path);
        }
    }
    free(v);
    if (gone) {
        scan(d, true);
    }
    close(fd); /* and unlocks */
}

int prefixdir_write(struct prefixdir *d, const int32_t *ids, size_t len, bool head,
                    const struct state_part *state, struct err *e)
{
    uint64_t *h = chain_of(d, ids, len);
    const struct item it = {
        .engine = d->engine, .hash = h[len / PREFIXDIR_BLOCK], .len = (uint32_t)len, .head = head};
    const struct state_meta m = {.kind = STATE_PREFIX, .label = d->label, .ids = ids, .n_ids = len};
    struct state_part part = *state;
    struct state_meta meta = m;
    part.tag = PREFIXDIR_TAG;
    memcpy(meta.compat, d->compat, STATE_COMPAT);
    char *path = path_of(d, &it);
    int rc = len % PREFIXDIR_BLOCK != 0 || len == 0 || len >= 1U << 24
                 ? err_set(e, QE_USAGE, "a prompt's state after %zu tokens is not kept", len)
                 : io_mkdirs(d->dir, 0700, e);
    if (rc == 0 && (access(path, F_OK) < 0 || is_damaged(path, false) ||
                    utimensat(AT_FDCWD, path, NULL, 0) < 0)) {
        rc = state_write(path, &meta, &part, 1, e);
    }
    if (rc == 0) {
        trim(d, &it, h);
    }
    free(path);
    free(h);
    return rc;
}

int prefixdir_sweep(const char *dir, int *files, uint64_t *bytes, struct err *e)
{
    const uint8_t none[STATE_COMPAT] = {0};
    struct prefixdir *d = prefixdir_create(dir, 0, none, "");
    size_t n = 0;
    int rc = 0;
    *files = 0;
    *bytes = 0;
    DIR *readable = opendir(dir);
    if (readable) {
        closedir(readable);
    } else if (errno != ENOENT) {
        rc = err_sys(e, QE_IO, errno, "cannot read %s", dir);
    }
    prefixdir_scan(d);
    struct item *v = copy_items(d, &n);
    for (size_t i = 0; i < n; i++) {
        char *path = path_of(d, &v[i]);
        if (is_damaged(path, true)) {
            if (unlink(path) == 0 || rmdir(path) == 0) {
                *files += 1;
                *bytes += v[i].size;
            } else {
                rc = err_sys(e, QE_IO, errno, "cannot delete %s", path);
            }
        }
        free(path);
    }
    free(v);
    prefixdir_free(d);
    return rc;
}

void prefixdir_warm(struct prefixdir *d, uint64_t bytes, bool (*go_on)(void *ctx), void *ctx)
{
    size_t n = 0;
    prefixdir_scan(d);
    struct item *v = copy_items(d, &n);
    char *piece = mem_alloc(PIECE);
    qsort(v, n, sizeof *v, oldest_first);
    for (size_t i = n; i-- > 0 && bytes > 0;) {
        char *path = path_of(d, &v[i]);
        /* a pipe under a state's name must not be waited for */
        const int fd =
            v[i].engine == d->engine ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        ssize_t k = 0;
        while (fd >= 0 && bytes > 0 && go_on(ctx) && (k = read(fd, piece, PIECE)) > 0) {
            bytes -= bytes < (uint64_t)k ? bytes : (uint64_t)k;
        }
        if (fd >= 0) {
            close(fd);
        }
        free(path);
    }
    free(piece);
    free(v);
}
