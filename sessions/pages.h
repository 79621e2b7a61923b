#ifndef QUASAR_SESSIONS_PAGES_H
#define QUASAR_SESSIONS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The rows of an SQLite database that SQLite itself refuses: every leaf page of a
 * table is read on its own, whatever became of the pages that lead there. Pages
 * that the write-ahead log has newer, in complete commits, are taken from it.
 * Nothing of the file is trusted.
 */
enum cell_kind { CELL_NULL, CELL_INT, CELL_REAL, CELL_TEXT, CELL_BLOB };

struct cell {
    enum cell_kind kind;
    int64_t i;
    const uint8_t *p; /* text and blob; not terminated */
    size_t n;
};
#define PAGES_COLUMNS 16

/* Calls fn with the cells of every row that can be read, tables mixed; rows with more
 * than PAGES_COLUMNS columns are left out. Cells live during the call. QE_IO: the file
 * cannot be read at all. */
int pages_rows(const char *path,
               void (*fn)(void *ctx, int64_t rowid, const struct cell *c, int n_cells), void *ctx,
               struct err *e);

/* A database of db_n bytes and the log beside path as one file without a log, of *n bytes;
 * the caller frees it. */
uint8_t *pages_image(const uint8_t *db, size_t db_n, const char *path, size_t *n);

#endif
