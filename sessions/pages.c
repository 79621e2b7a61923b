/* SQLite's file format, as far as reading rows from table leaves takes. Layouts as
 * in its published description: the file header gives the page size, a leaf page
 * an array of cells, a cell a record that may go on in overflow pages; the log is
 * a header and frames of one page each with chained checksums. */
#include "config.h"
#include "sessions/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"

#define LEAF        0x0D
#define FRAME_HEAD  24
#define WAL_HEAD    32
#define NOT_WAL     UINT32_MAX
#define PAYLOAD_MAX (1U << 30)
#define PAGES_MAX   (1U << 22) /* of a file that only its log tells of */

struct file {
    struct io_map db, wal;
    size_t page, usable, n_pages;
    uint32_t *frame; /* by page number from 0: its frame in the log, or NOT_WAL */
};

static uint32_t be16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* A page size out of a header, or 0. */
static size_t page_size(uint32_t v)
{
    const size_t n = v == 1 ? 65536 : v;
    return n >= 512 && n <= 65536 && (n & (n - 1)) == 0 ? n : 0;
}

/* ---- the log ---- */

/* Goes on with the checksum of the log over n bytes (a multiple of 8). */
static void wal_sum(const uint8_t *p, size_t n, bool big, uint32_t s[2])
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        s[0] += (big ? be32(p + i) : le32(p + i)) + s[1];
        s[1] += (big ? be32(p + i + 4) : le32(p + i + 4)) + s[0];
    }
}

/* Frames of the log that are whole and committed. */
static size_t wal_frames(const struct file *f, size_t page)
{
    const uint8_t *w = f->wal.data;
    if (f->wal.size < WAL_HEAD || (be32(w) & ~1U) != 0x377F0682) {
        return 0;
    }
    const bool big = be32(w) & 1;
    uint32_t s[2] = {0, 0};
    wal_sum(w, 24, big, s);
    if (page_size(be32(w + 8)) != page || s[0] != be32(w + 24) || s[1] != be32(w + 28)) {
        return 0;
    }
    size_t good = 0;
    for (size_t i = 0; WAL_HEAD + (i + 1) * (FRAME_HEAD + page) <= f->wal.size; i++) {
        const uint8_t *h = w + WAL_HEAD + i * (FRAME_HEAD + page);
        wal_sum(h, 8, big, s);
        wal_sum(h + FRAME_HEAD, page, big, s);
        if (memcmp(h + 8, w + 16, 8) != 0 || s[0] != be32(h + 16) || s[1] != be32(h + 20)) {
            break;
        }
        if (be32(h + 4) != 0) {
            good = i + 1; /* the end of a commit */
        }
    }
    return good;
}

static const uint8_t *frame_at(const struct file *f, size_t i)
{
    return f->wal.data + WAL_HEAD + i * (FRAME_HEAD + f->page);
}

static void map_pages(struct file *f)
{
    const size_t frames = wal_frames(f, f->page);
    const size_t in_db = (f->db.size + f->page - 1) / f->page;
    size_t most = in_db + frames;
    for (size_t i = 0; i < frames && in_db == 0; i++) { /* the file is lost: as it was */
        const size_t was = be32(frame_at(f, i) + 4);
        most = was > most && was <= PAGES_MAX ? was : most;
    }
    f->n_pages = in_db;
    for (size_t i = 0; i < frames; i++) {
        const size_t number = be32(frame_at(f, i));
        if (number > f->n_pages && number <= most) {
            f->n_pages = number;
        }
    }
    f->frame = mem_array(f->n_pages + 1, sizeof *f->frame);
    memset(f->frame, 0xFF, (f->n_pages + 1) * sizeof *f->frame);
    for (size_t i = 0; i < frames; i++) {
        const size_t number = be32(frame_at(f, i));
        if (number >= 1 && number <= f->n_pages) {
            f->frame[number - 1] = (uint32_t)i;
        }
    }
}

/* A page by its number from 1, or NULL. */
static const uint8_t *page_at(const struct file *f, size_t number)
{
    if (number < 1 || number > f->n_pages) {
        return NULL;
    }
    if (f->frame[number - 1] != NOT_WAL) {
        return frame_at(f, f->frame[number - 1]) + FRAME_HEAD;
    }
    return number * f->page <= f->db.size ? f->db.data + (number - 1) * f->page : NULL;
}

/* ---- rows ---- */

/* A number of 1 to 9 bytes; the bytes it takes, 0 when it is cut off. */
static size_t varint(const uint8_t *p, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 9 && i < n; i++) {
        if (i == 8) {
            *out = v << 8 | p[i];
            return 9;
        }
        v = v << 7 | (p[i] & 0x7F);
        if (!(p[i] & 0x80)) {
            *out = v;
            return i + 1;
        }
    }
    return 0;
}

/* The bytes of a column of that type; SIZE_MAX: there is no such type. */
static size_t type_size(uint64_t type)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
    if (type < 10) {
        return sizes[type];
    }
    return type < 12 || type > 2 * (uint64_t)PAYLOAD_MAX ? SIZE_MAX : (size_t)(type - 12) / 2;
}

static void read_cell(uint64_t type, const uint8_t *p, size_t n, struct cell *c)
{
    *c = (struct cell){.kind = CELL_INT};
    if (type == 0) {
        c->kind = CELL_NULL;
    } else if (type == 7) {
        c->kind = CELL_REAL;
    } else if (type == 8 || type == 9) {
        c->i = (int64_t)type - 8;
    } else if (type < 7) {
        uint64_t v = p[0] & 0x80 ? UINT64_MAX : 0;
        for (size_t i = 0; i < n; i++) {
            v = v << 8 | p[i];
        }
        c->i = (int64_t)v;
    } else {
        c->kind = type % 2 ? CELL_TEXT : CELL_BLOB;
        c->p = p;
        c->n = n;
    }
}

/* A record's cells; 0 when it is none. */
static int read_record(const uint8_t *p, size_t n, struct cell *cells)
{
    uint64_t head = 0;
    size_t at = varint(p, n, &head);
    if (at == 0 || head > n || head < at) {
        return 0;
    }
    size_t data = (size_t)head;
    int count = 0;
    while (at < head) {
        uint64_t type = 0;
        const size_t k = varint(p + at, (size_t)head - at, &type);
        const size_t size = k > 0 ? type_size(type) : SIZE_MAX;
        if (size == SIZE_MAX || size > n - data || count == PAGES_COLUMNS) {
            return 0;
        }
        read_cell(type, p + data, size, &cells[count++]);
        at += k;
        data += size;
    }
    return count;
}

/* Adds what lies in overflow pages until b has n bytes; false when the chain ends
 * before. */
static bool add_overflow(const struct file *f, uint32_t number, size_t n, struct buf *b)
{
    for (size_t pages = 0; b->len < n && pages <= f->n_pages; pages++) {
        const uint8_t *p = page_at(f, number);
        if (!p) {
            return false;
        }
        const size_t left = n - b->len, room = f->usable - 4;
        buf_add(b, p + 4, left < room ? left : room);
        number = be32(p);
    }
    return b->len == n;
}

/* How many of a payload's bytes lie in the leaf itself. */
static size_t local_part(const struct file *f, size_t payload)
{
    const size_t most = f->usable - 35;
    if (payload <= most) {
        return payload;
    }
    const size_t least = (f->usable - 12) * 32 / 255 - 23;
    const size_t k = least + (payload - least) % (f->usable - 4);
    return k <= most ? k : least;
}

/* The row of the cell at off; -1 when there is none. Its payload goes to b. */
static int read_row(const struct file *f, const uint8_t *page, size_t off, struct buf *b,
                    int64_t *rowid, struct cell *cells)
{
    uint64_t payload = 0, row = 0;
    size_t k = varint(page + off, f->usable - off, &payload);
    if (k == 0 || payload > PAYLOAD_MAX || payload > f->n_pages * f->page) {
        return -1;
    }
    off += k;
    k = varint(page + off, f->usable - off, &row);
    off += k;
    const size_t n = (size_t)payload, local = local_part(f, n);
    if (k == 0 || local > f->usable - off) {
        return -1;
    }
    buf_truncate(b, 0);
    buf_add(b, page + off, local);
    if (local < n &&
        (f->usable - off - local < 4 || !add_overflow(f, be32(page + off + local), n, b))) {
        return -1;
    }
    *rowid = (int64_t)row;
    const int count = n > 0 ? read_record((const uint8_t *)b->data, n, cells) : 0;
    return count > 0 ? count : -1;
}

static void read_leaf(const struct file *f, size_t number, struct buf *b,
                      void (*fn)(void *ctx, int64_t rowid, const struct cell *c, int n_cells),
                      void *ctx)
{
    const uint8_t *p = page_at(f, number);
    const size_t head = number == 1 ? 100 : 0;
    if (!p || p[head] != LEAF) {
        return;
    }
    const size_t n = be16(p + head + 3);
    for (size_t i = 0; i < n && head + 8 + 2 * i + 2 <= f->usable; i++) {
        const size_t off = be16(p + head + 8 + 2 * i);
        struct cell cells[PAGES_COLUMNS];
        int64_t rowid = 0;
        if (off < head + 8 || off >= f->usable) {
            continue;
        }
        const int count = read_row(f, p, off, b, &rowid, cells);
        if (count > 0) {
            fn(ctx, rowid, cells, count);
        }
    }
}

/* From the file's header, else from that of the log, else the usual one. */
static void find_geometry(struct file *f)
{
    static const char magic[] = "SQLite format 3";
    const uint8_t *d = f->db.data, *w = f->wal.data;
    size_t reserved = 0;
    if (f->db.size >= 100 && memcmp(d, magic, sizeof magic) == 0) {
        f->page = page_size(be16(d + 16));
        reserved = d[20];
    }
    if (f->page == 0 && f->wal.size >= WAL_HEAD && (be32(w) & ~1U) == 0x377F0682) {
        f->page = page_size(be32(w + 8));
    }
    if (f->page == 0) {
        f->page = 4096;
    }
    f->usable = f->page - (reserved <= f->page - 480 ? reserved : 0);
}

/* The log beside a file that is in f->db already. */
static void open_log(const char *path, struct file *f)
{
    struct buf wal = BUF_INIT;
    buf_printf(&wal, "%s-wal", path);
    if (io_map_open(&f->wal, wal.data, NULL) < 0) {
        f->wal = (struct io_map){.data = NULL, .size = 0};
    }
    buf_free(&wal);
    find_geometry(f);
    map_pages(f);
}

int pages_rows(const char *path,
               void (*fn)(void *ctx, int64_t rowid, const struct cell *c, int n_cells), void *ctx,
               struct err *e)
{
    struct file f = {.page = 0};
    int rc = io_map_open(&f.db, path, e);
    if (rc < 0) {
        return rc;
    }
    open_log(path, &f);
    struct buf b = BUF_INIT;
    for (size_t i = 1; i <= f.n_pages; i++) {
        read_leaf(&f, i, &b, fn, ctx);
    }
    buf_free(&b);
    free(f.frame);
    io_map_close(&f.wal);
    io_map_close(&f.db);
    return 0;
}

uint8_t *pages_image(const uint8_t *db, size_t db_n, const char *path, size_t *n)
{
    struct file f = {.db = {.data = db, .size = db_n}};
    open_log(path, &f);
    uint8_t *p = mem_zalloc((f.n_pages + 1) * f.page);
    for (size_t i = 0; i < f.n_pages; i++) {
        const uint8_t *from = page_at(&f, i + 1);
        if (from) {
            memcpy(p + i * f.page, from, f.page);
        }
    }
    p[18] = p[19] = 1; /* it has no log any more */
    *n = f.n_pages * f.page;
    free(f.frame);
    io_map_close(&f.wal);
    return p;
}
