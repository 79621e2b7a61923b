#ifndef QUASAR_BASE_UTF8_H
#define QUASAR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * UTF-8 as Unicode defines it: no surrogates, no overlong forms, nothing above
 * U+10FFFF. Ill-formed input is never an error here; it is reported byte-wise.
 */

#define UTF8_REPLACEMENT 0xFFFD

/* Decodes the code point at p (n > 0 bytes available). Returns the number of
 * bytes it takes and stores it, or returns 0 when the bytes are ill-formed, or
 * -1 when they are the beginning of a well-formed sequence that n cuts off. */
int utf8_decode(const char *p, size_t n, uint32_t *cp);

/* The code point at p (n > 0), or U+FFFD over one byte where the bytes are
 * ill-formed; returns how many bytes it takes. */
size_t utf8_next(const char *p, size_t n, uint32_t *cp);

/* Writes 1..4 bytes; returns how many. cp must be a scalar value. (Not named
 * utf8_encode: libjansson's static archive exports that.) */
int utf8_put(uint32_t cp, char out[4]);

/* Length of the longest prefix that does not end inside a character; bytes
 * that cannot become well-formed count as complete. */
size_t utf8_complete_prefix(const char *p, size_t n);

bool utf8_valid(const char *p, size_t n);

/* Appends the text with U+FFFD for each maximal ill-formed subpart (the
 * substitution of the WHATWG decoder and of Python's errors="replace"). */
void utf8_sanitize(const char *p, size_t n, struct buf *out);

/* Bytes of the first grapheme cluster of p (0 when n is 0; utf8proc). */
size_t utf8_cluster_len(const char *p, size_t n);
/* Bytes of the last grapheme cluster of p. */
size_t utf8_cluster_len_back(const char *p, size_t n);

/* The visible form of a code point that has none of its own and that could hide
 * something or turn the order of a line: <RLO>, <U+E0041>. False: it is not such. */
bool utf8_hidden_form(uint32_t cp, char out[12]);

/* Terminal cells of one code point as wcwidth of a UTF-8 locale would count:
 * 0, 1 or 2; -1 for controls. Independent of the process's locale. */
int utf8_cells(uint32_t cp);
/* How many cells the terminal's font gives the characters whose width Unicode leaves open: 1, as
 * at the start, or 2. For the whole process; before there are other threads, or by the one that
 * draws. */
void utf8_set_ambiguous(int cells);
/* For utf8_cells: what w cells are by that. */
int utf8_font_cells(uint32_t cp, int w);

#endif
