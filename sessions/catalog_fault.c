/* A file layer of SQLite's over its own, where the writes of a catalogue can be made to fail.
 * What it holds is set by tests only; without them it is never registered, and costs nothing. */
#include "config.h"
#include "sessions/catalog_fault.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static atomic_uint seen, from, most;
static atomic_int error;
static sqlite3_vfs layer; /* written once */
static sqlite3_vfs *below;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* One of ours; SQLite's own follows it in memory. */
struct file {
    sqlite3_file base;
    sqlite3_file *own;
};

static sqlite3_file *own(sqlite3_file *f)
{
    return ((struct file *)(void *)f)->own;
}

/* Counts a call; true when it must fail, errno is set. */
static bool must_fail(void)
{
    const unsigned n = atomic_fetch_add(&seen, 1) + 1;
    const unsigned first = atomic_load(&from);
    const unsigned times = atomic_load(&most);
    if (first == 0 || n < first || (times > 0 && n - first >= times)) {
        return false;
    }
    if (atomic_load(&error) == 0) {
        _exit(99);
    }
    errno = atomic_load(&error);
    return true;
}

static int failure(int otherwise)
{
    return errno == ENOSPC ? SQLITE_FULL : otherwise;
}

static int f_close(sqlite3_file *f)
{
    return own(f)->pMethods->xClose(own(f));
}

static int f_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    return own(f)->pMethods->xRead(own(f), p, n, at);
}

static int f_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    return must_fail() ? failure(SQLITE_IOERR_WRITE) : own(f)->pMethods->xWrite(own(f), p, n, at);
}

static int f_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return must_fail() ? failure(SQLITE_IOERR_TRUNCATE) : own(f)->pMethods->xTruncate(own(f), size);
}

static int f_sync(sqlite3_file *f, int flags)
{
    return must_fail() ? SQLITE_IOERR_FSYNC : own(f)->pMethods->xSync(own(f), flags);
}

static int f_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return own(f)->pMethods->xFileSize(own(f), size);
}

static int f_lock(sqlite3_file *f, int how)
{
    return own(f)->pMethods->xLock(own(f), how);
}

static int f_unlock(sqlite3_file *f, int how)
{
    return own(f)->pMethods->xUnlock(own(f), how);
}

static int f_reserved(sqlite3_file *f, int *out)
{
    return own(f)->pMethods->xCheckReservedLock(own(f), out);
}

static int f_control(sqlite3_file *f, int op, void *arg)
{
    return own(f)->pMethods->xFileControl(own(f), op, arg);
}

static int f_sector(sqlite3_file *f)
{
    return own(f)->pMethods->xSectorSize(own(f));
}

static int f_traits(sqlite3_file *f)
{
    return own(f)->pMethods->xDeviceCharacteristics(own(f));
}

static int f_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **p)
{
    return own(f)->pMethods->xShmMap(own(f), page, size, extend, p);
}

static int f_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return own(f)->pMethods->xShmLock(own(f), at, n, flags);
}

static void f_shm_barrier(sqlite3_file *f)
{
    own(f)->pMethods->xShmBarrier(own(f));
}

static int f_shm_unmap(sqlite3_file *f, int remove)
{
    return own(f)->pMethods->xShmUnmap(own(f), remove);
}

/* Version 2: nothing is read through a mapping. */
static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = f_close,
    .xRead = f_read,
    .xWrite = f_write,
    .xTruncate = f_truncate,
    .xSync = f_sync,
    .xFileSize = f_size,
    .xLock = f_lock,
    .xUnlock = f_unlock,
    .xCheckReservedLock = f_reserved,
    .xFileControl = f_control,
    .xSectorSize = f_sector,
    .xDeviceCharacteristics = f_traits,
    .xShmMap = f_shm_map,
    .xShmLock = f_shm_lock,
    .xShmBarrier = f_shm_barrier,
    .xShmUnmap = f_shm_unmap,
};

static int v_open(sqlite3_vfs *v, sqlite3_filename name, sqlite3_file *f, int flags, int *got)
{
    struct file *mine = (struct file *)(void *)f;
    (void)v;
    mine->own = (sqlite3_file *)(void *)(mine + 1);
    memset(mine->own, 0, (size_t)below->szOsFile);
    const int rc = below->xOpen(below, name, mine->own, flags, got);
    mine->base.pMethods = mine->own->pMethods ? &methods : NULL;
    return rc;
}

static int v_delete(sqlite3_vfs *v, const char *name, int sync)
{
    (void)v;
    return must_fail() ? SQLITE_IOERR_DELETE : below->xDelete(below, name, sync);
}

static void put_in(void)
{
    below = sqlite3_vfs_find(NULL);
    layer = *below; /* the rest of its calls do not care by which name they are called */
    layer.zName = "quasar-faults";
    layer.szOsFile = (int)sizeof(struct file) + below->szOsFile;
    layer.xOpen = v_open;
    layer.xDelete = v_delete;
    layer.pNext = NULL;
    sqlite3_vfs_register(&layer, 1);
}

void catalog_fault_set(unsigned n, int errnum, unsigned times)
{
    pthread_once(&once, put_in);
    atomic_store(&from, 0);
    atomic_store(&error, errnum);
    atomic_store(&most, times);
    atomic_store(&seen, 0);
    atomic_store(&from, n);
}

unsigned catalog_fault_count(void)
{
    return atomic_load(&seen);
}
