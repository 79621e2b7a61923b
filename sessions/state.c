/* The format of saved engine states. A fixed header, a table of parts, token ids,
 * the parts one after another, a checksum for each of their chunks, and a SHA-256
 * over all but the parts themselves, which the checksums stand for. Offsets are
 * not stored but follow from the sizes, so none of them can point astray. */
#include "config.h"
#include "sessions/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"

#define HEADER_SIZE 256
#define ENTRY_SIZE  16
#define PART_MAX    (UINT64_C(1) << 40)

static const char magic[8] = {'Q', 'S', 'R', 'S', 'T', 'A', 'T', 'E'};

/* Places in the header. */
enum {
    AT_MAGIC = 0,
    AT_MAJOR = 8,
    AT_MINOR = 10,
    AT_KIND = 12,
    AT_SIZE = 16,
    AT_CREATED = 24,
    AT_IDS = 32,
    AT_PARTS = 36,
    AT_CHUNK = 40,
    AT_HEADER = 44,
    AT_COMPAT = 48,
    AT_WRITER = 80,
    AT_LABEL = 104,
    AT_SUM = 248,
};
#define WRITER_SIZE (AT_LABEL - AT_WRITER)

struct entry {
    uint32_t tag;
    uint64_t size, at; /* at: in the file */
    size_t sum;        /* its first chunk's number */
};

struct state_file {
    int fd;
    char *path;
    struct state_meta meta;
    char label[STATE_LABEL_SIZE];
    int32_t *ids;
    struct entry parts[STATE_PARTS_MAX];
    size_t n_parts;
    uint64_t size;
    uint64_t *sums; /* one for each chunk of each part */
    size_t n_sums;
    uint8_t *chunk; /* STATE_CHUNK, made when needed */
};

/* ---- numbers ---- */

static void put(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

static size_t chunks_of(uint64_t size)
{
    return (size_t)(size / STATE_CHUNK + (size % STATE_CHUNK != 0));
}

/* A chunk that stands in another's place does not have that one's sum. */
static uint64_t sum_of(const void *p, size_t n, size_t number)
{
    return hash64(p, n, (uint64_t)number);
}

/* Fills in where each part lies and returns the size of the whole file. */
static uint64_t lay_out(struct entry *parts, size_t n_parts, size_t n_ids, size_t *n_sums)
{
    uint64_t at = HEADER_SIZE + ENTRY_SIZE * (uint64_t)n_parts + 4 * (uint64_t)n_ids;
    size_t sums = 0;
    for (size_t i = 0; i < n_parts; i++) {
        parts[i].at = at;
        parts[i].sum = sums;
        at += parts[i].size;
        sums += chunks_of(parts[i].size);
    }
    *n_sums = sums;
    return at + 8 * (uint64_t)sums + SHA256_BYTES;
}

/* The parts are in it through their sums. */
static void digest_of(const uint8_t *head, size_t head_n, const uint8_t *sums, size_t sums_n,
                      uint8_t out[SHA256_BYTES])
{
    struct sha256 *h = sha256_create();
    sha256_add(h, head, head_n);
    sha256_add(h, sums, sums_n);
    sha256_done(h, out);
    sha256_free(h);
}

/* ---- writing ---- */

static int check_parts(const struct state_meta *m, const struct state_part *parts, size_t n,
                       struct err *e)
{
    if (n > STATE_PARTS_MAX || m->n_ids > STATE_IDS_MAX) {
        return err_set(e, QE_NOMEM,
                       "a saved state can have %d parts and %u tokens; this one has %zu and %zu",
                       STATE_PARTS_MAX, STATE_IDS_MAX, n, m->n_ids);
    }
    for (size_t i = 0; i < n; i++) {
        bool twice = parts[i].tag == 0;
        for (size_t k = 0; k < i; k++) {
            twice = twice || parts[k].tag == parts[i].tag;
        }
        if (twice || parts[i].size > PART_MAX) {
            return err_set(e, QE_INTERNAL, "part %u of a saved state cannot be (%" PRIu64 " bytes)",
                           parts[i].tag, parts[i].size);
        }
    }
    return 0;
}

/* Header, table and ids in one block; the caller frees it. */
static uint8_t *make_head(const struct state_meta *m, const struct entry *parts, size_t n_parts,
                          uint64_t file_size, size_t *head_n)
{
    *head_n = HEADER_SIZE + ENTRY_SIZE * n_parts + 4 * m->n_ids;
    uint8_t *p = mem_zalloc(*head_n);
    memcpy(p + AT_MAGIC, magic, sizeof magic);
    put(p + AT_MAJOR, STATE_MAJOR, 2);
    put(p + AT_MINOR, STATE_MINOR, 2);
    put(p + AT_KIND, (uint64_t)m->kind, 4);
    put(p + AT_SIZE, file_size, 8);
    put(p + AT_CREATED, (uint64_t)(m->created ? m->created : clock_wall()), 8);
    put(p + AT_IDS, m->n_ids, 4);
    put(p + AT_PARTS, n_parts, 4);
    put(p + AT_CHUNK, STATE_CHUNK, 4);
    put(p + AT_HEADER, HEADER_SIZE, 4);
    memcpy(p + AT_COMPAT, m->compat, STATE_COMPAT);
    memcpy(p + AT_WRITER, PACKAGE_VERSION, strnlen(PACKAGE_VERSION, WRITER_SIZE - 1));
    if (m->label) {
        memcpy(p + AT_LABEL, m->label, strnlen(m->label, STATE_LABEL_SIZE - 1));
    }
    put(p + AT_SUM, hash64(p, AT_SUM, 0), 8);
    uint8_t *q = p + HEADER_SIZE;
    for (size_t i = 0; i < n_parts; i++, q += ENTRY_SIZE) {
        put(q, parts[i].tag, 4);
        put(q + 8, parts[i].size, 8);
    }
    for (size_t i = 0; i < m->n_ids; i++, q += 4) {
        put(q, (uint32_t)m->ids[i], 4);
    }
    return p;
}

/* One part; its chunks' sums go to sums as bytes. */
static int write_part(int fd, const char *path, const struct state_part *part, size_t first,
                      uint8_t *sums, uint8_t *scratch, struct err *e)
{
    int rc = 0;
    size_t number = first;
    for (uint64_t off = 0; off < part->size && rc == 0; off += STATE_CHUNK, number++) {
        const uint64_t left = part->size - off;
        const size_t n = left < STATE_CHUNK ? (size_t)left : STATE_CHUNK;
        const uint8_t *p = scratch;
        if (part->data) {
            p = (const uint8_t *)part->data + off;
        } else {
            rc = part->give(part->ctx, scratch, n, e);
        }
        if (rc == 0) {
            put(sums + 8 * number, sum_of(p, n, number), 8);
            rc = io_write_all(fd, p, n, path, e);
        }
    }
    return rc;
}

int state_write(const char *path, const struct state_meta *m, const struct state_part *parts,
                size_t n_parts, struct err *e)
{
    int rc = check_parts(m, parts, n_parts, e);
    if (rc < 0) {
        return rc;
    }
    struct entry entries[STATE_PARTS_MAX];
    for (size_t i = 0; i < n_parts; i++) {
        entries[i] = (struct entry){.tag = parts[i].tag, .size = parts[i].size};
    }
    size_t n_sums = 0, head_n = 0;
    const uint64_t size = lay_out(entries, n_parts, m->n_ids, &n_sums);
    uint8_t *head = make_head(m, entries, n_parts, size, &head_n);
    uint8_t *sums = mem_array(n_sums + 1, 8);
    uint8_t *scratch = mem_alloc(STATE_CHUNK);
    struct tmp_out t = TMP_OUT_INIT;
    rc = tmp_out_create(&t, path, 0600, e);
    if (rc == 0) {
        rc = io_write_all(t.fd, head, head_n, path, e);
    }
    for (size_t i = 0; i < n_parts && rc == 0; i++) {
        rc = write_part(t.fd, path, &parts[i], entries[i].sum, sums, scratch, e);
    }
    if (rc == 0) {
        rc = io_write_all(t.fd, sums, 8 * n_sums, path, e);
    }
    if (rc == 0) {
        uint8_t digest[SHA256_BYTES];
        digest_of(head, head_n, sums, 8 * n_sums, digest);
        rc = io_write_all(t.fd, digest, sizeof digest, path, e);
    }
    if (rc == 0) {
        rc = tmp_out_commit(&t, path, e);
    }
    tmp_out_fini(&t);
    free(scratch);
    free(sums);
    free(head);
    return rc;
}

/* ---- reading ---- */

static int read_at(const struct state_file *f, void *dst, size_t n, uint64_t at, struct err *e)
{
    uint8_t *p = dst;
    while (n > 0) {
        const ssize_t k = pread(f->fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_sys(e, QE_IO, errno, "cannot read %s", f->path);
        }
        if (k == 0) {
            return err_set(e, QE_FORMAT, "%s is cut off", f->path);
        }
        p += k;
        n -= (size_t)k;
        at += (uint64_t)k;
    }
    return 0;
}

static int damaged(const struct state_file *f, const char *what, struct err *e)
{
    return err_set(e, QE_FORMAT, "%s is damaged: its %s not match the checksum", f->path, what);
}

/* The fixed part, and that the file is as long as it says. */
static int check_header(struct state_file *f, const uint8_t *h, struct err *e)
{
    if (memcmp(h + AT_MAGIC, magic, sizeof magic) != 0) {
        return err_set(e, QE_FORMAT, "%s is not a saved state", f->path);
    }
    const int major = (int)get(h + AT_MAJOR, 2);
    if (major != STATE_MAJOR) {
        return err_set(e, QE_UNSUPPORTED,
                       "%s is a saved state of format %d, %s than this quasar, which reads format "
                       "%d; it is left as it is",
                       f->path, major, major > STATE_MAJOR ? "newer" : "older", STATE_MAJOR);
    }
    if (get(h + AT_SUM, 8) != hash64(h, AT_SUM, 0)) {
        return damaged(f, "header does", e);
    }
    const uint64_t kind = get(h + AT_KIND, 4), want = get(h + AT_SIZE, 8);
    const uint64_t n_ids = get(h + AT_IDS, 4), n_parts = get(h + AT_PARTS, 4);
    if ((kind != STATE_LIVE && kind != STATE_PREFIX) || n_ids > STATE_IDS_MAX ||
        n_parts > STATE_PARTS_MAX || get(h + AT_CHUNK, 4) != STATE_CHUNK ||
        get(h + AT_HEADER, 4) != HEADER_SIZE) {
        return err_set(e, QE_FORMAT, "%s has a header with figures that cannot be", f->path);
    }
    if (f->size != want) {
        return err_set(e, QE_FORMAT, "%s is %s: it has %" PRIu64 " bytes instead of %" PRIu64,
                       f->path, f->size < want ? "cut off" : "too long", f->size, want);
    }
    f->meta.kind = (enum state_kind)kind;
    f->meta.created = (int64_t)get(h + AT_CREATED, 8);
    f->meta.n_ids = (size_t)n_ids;
    f->n_parts = (size_t)n_parts;
    memcpy(f->meta.compat, h + AT_COMPAT, STATE_COMPAT);
    memcpy(f->label, h + AT_LABEL, STATE_LABEL_SIZE - 1);
    f->meta.label = f->label;
    return 0;
}

static int check_table(struct state_file *f, const uint8_t *p, struct err *e)
{
    for (size_t i = 0; i < f->n_parts; i++, p += ENTRY_SIZE) {
        struct entry *part = &f->parts[i];
        part->tag = (uint32_t)get(p, 4);
        part->size = get(p + 8, 8);
        bool bad = part->tag == 0 || part->size > PART_MAX || get(p + 4, 4) != 0;
        for (size_t k = 0; k < i; k++) {
            bad = bad || f->parts[k].tag == part->tag;
        }
        if (bad) {
            return err_set(e, QE_FORMAT, "%s is damaged: its table of parts cannot be", f->path);
        }
    }
    const uint64_t size = lay_out(f->parts, f->n_parts, f->meta.n_ids, &f->n_sums);
    if (size != f->size) {
        return err_set(e, QE_FORMAT,
                       "%s is damaged: its parts make %" PRIu64 " bytes, and it has %" PRIu64,
                       f->path, size, f->size);
    }
    return 0;
}

/* Table and ids, then the sums at the end and the digest over all of them. */
static int read_rest(struct state_file *f, const uint8_t *header, struct err *e)
{
    const size_t table_n = ENTRY_SIZE * f->n_parts, ids_n = 4 * f->meta.n_ids;
    const size_t head_n = HEADER_SIZE + table_n + ids_n;
    if (f->size < head_n + SHA256_BYTES) {
        return err_set(e, QE_FORMAT, "%s is cut off", f->path);
    }
    uint8_t *head = mem_alloc(head_n), *sums = NULL;
    memcpy(head, header, HEADER_SIZE);
    int rc = read_at(f, head + HEADER_SIZE, table_n + ids_n, HEADER_SIZE, e);
    if (rc == 0) {
        rc = check_table(f, head + HEADER_SIZE, e);
    }
    if (rc < 0) {
        goto out;
    }
    /* the file is as long as the sums make it, so there is room for them */
    const size_t sums_n = 8 * f->n_sums;
    sums = mem_alloc(sums_n + SHA256_BYTES);
    rc = read_at(f, sums, sums_n + SHA256_BYTES, f->size - sums_n - SHA256_BYTES, e);
    if (rc < 0) {
        goto out;
    }
    uint8_t digest[SHA256_BYTES];
    digest_of(head, head_n, sums, sums_n, digest);
    if (memcmp(digest, sums + sums_n, SHA256_BYTES) != 0) {
        rc = damaged(f, "tokens and sums do", e);
        goto out;
    }
    f->ids = mem_array(f->meta.n_ids + 1, sizeof *f->ids);
    const uint8_t *p = head + HEADER_SIZE + table_n;
    for (size_t i = 0; i < f->meta.n_ids; i++, p += 4) {
        f->ids[i] = (int32_t)(uint32_t)get(p, 4);
        if (f->ids[i] < 0) {
            rc = err_set(e, QE_FORMAT, "%s has a token id below 0", f->path);
            goto out;
        }
    }
    f->meta.ids = f->ids;
    f->sums = mem_array(f->n_sums + 1, sizeof *f->sums);
    for (size_t i = 0; i < f->n_sums; i++) {
        f->sums[i] = get(sums + 8 * i, 8);
    }
out:
    free(sums);
    free(head);
    return rc;
}

int state_open(const char *path, struct state_file **out, struct err *e)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_sys(e, absent ? QE_NOTFOUND : QE_IO, errno, "cannot open %s", path);
    }
    struct state_file *f = mem_zalloc(sizeof *f);
    f->fd = fd;
    f->path = mem_strdup(path);
    struct stat st;
    uint8_t header[HEADER_SIZE];
    int rc = fstat(fd, &st) < 0 ? err_sys(e, QE_IO, errno, "cannot read %s", path) : 0;
    if (rc == 0 && !S_ISREG(st.st_mode)) {
        rc = err_set(e, QE_FORMAT, "%s is not a regular file", path);
    }
    if (rc == 0) {
        f->size = (uint64_t)st.st_size;
        if (f->size < HEADER_SIZE) {
            rc = err_set(e, QE_FORMAT, "%s is cut off: it has %" PRIu64 " bytes", path, f->size);
        }
    }
    rc = rc < 0 ? rc : read_at(f, header, sizeof header, 0, e);
    rc = rc < 0 ? rc : check_header(f, header, e);
    rc = rc < 0 ? rc : read_rest(f, header, e);
    if (rc < 0) {
        state_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

void state_close(struct state_file *f)
{
    if (f) {
        close(f->fd);
        free(f->path);
        free(f->ids);
        free(f->sums);
        free(f->chunk);
        free(f);
    }
}

const struct state_meta *state_meta(const struct state_file *f)
{
    return &f->meta;
}

uint64_t state_bytes(const struct state_file *f)
{
    return f->size;
}

const char *state_path(const struct state_file *f)
{
    return f->path;
}

int state_check(const struct state_file *f, const uint8_t compat[STATE_COMPAT], const char *label,
                struct err *e)
{
    if (memcmp(f->meta.compat, compat, STATE_COMPAT) == 0) {
        return 0;
    }
    return err_set(e, QE_UNSUPPORTED,
                   "%s was saved with another model or another way of computing: %s, and this is "
                   "%s",
                   f->path, f->label[0] ? f->label : "unnamed", label);
}

static const struct entry *find(const struct state_file *f, uint32_t tag)
{
    for (size_t i = 0; i < f->n_parts; i++) {
        if (f->parts[i].tag == tag) {
            return &f->parts[i];
        }
    }
    return NULL;
}

bool state_has(const struct state_file *f, uint32_t tag, uint64_t *size)
{
    const struct entry *part = find(f, tag);
    if (part && size) {
        *size = part->size;
    }
    return part != NULL;
}

/* Chunk i of a part, checked; n is its length. */
static int read_chunk(const struct state_file *f, const struct entry *part, size_t i, void *dst,
                      size_t n, struct err *e)
{
    const uint64_t off = (uint64_t)i * STATE_CHUNK;
    const int rc = read_at(f, dst, n, part->at + off, e);
    if (rc < 0) {
        return rc;
    }
    if (sum_of(dst, n, part->sum + i) != f->sums[part->sum + i]) {
        return err_set(e, QE_FORMAT,
                       "%s is damaged: bytes %" PRIu64 " to %" PRIu64
                       " do not match their checksum",
                       f->path, part->at + off, part->at + off + n - 1);
    }
    return 0;
}

static size_t chunk_len(const struct entry *part, size_t i)
{
    const uint64_t left = part->size - (uint64_t)i * STATE_CHUNK;
    return left < STATE_CHUNK ? (size_t)left : STATE_CHUNK;
}

static int no_part(const struct state_file *f, uint32_t tag, struct err *e)
{
    return err_set(e, QE_FORMAT, "%s has no part %u", f->path, tag);
}

int state_read_at(const struct state_file *f, uint32_t tag, uint64_t at, void *dst, uint64_t n,
                  struct err *e)
{
    const struct entry *part = find(f, tag);
    if (!part) {
        return no_part(f, tag, e);
    }
    if (at > part->size || n > part->size - at || at % STATE_CHUNK != 0 ||
        (n % STATE_CHUNK != 0 && at + n != part->size)) {
        return err_set(e, QE_INTERNAL,
                       "bytes %" PRIu64 " to %" PRIu64 " of part %u of %s are not whole chunks", at,
                       at + n, tag, f->path);
    }
    int rc = 0;
    uint8_t *p = dst;
    for (size_t i = 0; i < chunks_of(n) && rc == 0; i++, p += STATE_CHUNK) {
        const size_t chunk = (size_t)(at / STATE_CHUNK) + i;
        rc = read_chunk(f, part, chunk, p, chunk_len(part, chunk), e);
    }
    return rc;
}

int state_read(struct state_file *f, uint32_t tag, void *dst, uint64_t n, struct err *e)
{
    const struct entry *part = find(f, tag);
    if (!part) {
        return no_part(f, tag, e);
    }
    if (part->size != n) {
        return err_set(e, QE_FORMAT, "part %u of %s has %" PRIu64 " bytes instead of %" PRIu64, tag,
                       f->path, part->size, n);
    }
    return state_read_at(f, tag, 0, dst, n, e);
}

int state_stream(struct state_file *f, uint32_t tag,
                 int (*take)(void *ctx, const void *p, size_t n, struct err *e), void *ctx,
                 struct err *e)
{
    const struct entry *part = find(f, tag);
    if (!part) {
        return no_part(f, tag, e);
    }
    if (!f->chunk) {
        f->chunk = mem_alloc(STATE_CHUNK);
    }
    int rc = 0;
    for (size_t i = 0; i < chunks_of(part->size) && rc == 0; i++) {
        const size_t n = chunk_len(part, i);
        rc = read_chunk(f, part, i, f->chunk, n, e);
        if (rc == 0) {
            rc = take(ctx, f->chunk, n, e);
        }
    }
    return rc;
}

static int only_check(void *ctx, const void *p, size_t n, struct err *e)
{
    (void)ctx;
    (void)p;
    (void)n;
    (void)e;
    return 0;
}

int state_verify(struct state_file *f, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < f->n_parts && rc == 0; i++) {
        rc = state_stream(f, f->parts[i].tag, only_check, NULL, e);
    }
    return rc;
}
