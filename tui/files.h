#ifndef QUASAR_TUI_FILES_H
#define QUASAR_TUI_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Names of files for completion. Paths are bytes; what is shown of them goes through the
 * filter of tui/text.h.
 */
#define FILES_MOST 1000   /* names that are given */
#define FILES_READ 200000 /* entries of a folder that are looked at */

struct file_names {
    char **v; /* sorted; a folder's ends with a slash */
    size_t n;
    bool cut;        /* there are, or may be, more */
    size_t left_out; /* that cannot be typed: they have control characters, or are not UTF-8 */
};
void file_names_free(struct file_names *f);

/* The names in the folder of a path that begin with its last part. "~/" is the home folder;
 * hidden ones are given to a part that begins with a dot. Links are what they lead to. QE_IO and
 * QE_NOTFOUND name the folder. */
int files_match(const char *path, struct file_names *out, struct err *e);
/* The path with ~ and without the quotes of an @"word". Owned by the caller. */
char *files_expand(const char *path);

/* A path as it is written behind an @: with quotes if it has blanks or one of those. Appended;
 * open: without the last quote, to go on typing. */
void files_quote(const char *path, bool open, struct buf *out);
/* The path of a word that begins with @ (n bytes): without @, quotes and backslashes. Appended. */
void files_unquote(const char *word, size_t n, struct buf *out);
/* Length of what all names have in common at their beginning, in whole characters. */
size_t files_common(const struct file_names *f);

#endif
