#ifndef QUASAR_GRAMMAR_CHARS_H
#define QUASAR_GRAMMAR_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar/node.h"

/* Characters as bytes: as they are (UTF-8), or as they stand in a JSON string. */
enum char_form { CHARS_RAW, CHARS_JSON };

#define CHAR_MAX_CODE 0x10FFFF

/* Code points, ascending ranges without touching each other after char_set_close. Zero
 * initialised is empty. */
struct char_range {
    int32_t from, to;
};
struct char_set {
    struct char_range *v;
    size_t n, cap;
};
void char_set_add(struct char_set *s, int32_t from, int32_t to);
void char_set_merge(struct char_set *s, const struct char_set *other);
void char_set_close(struct char_set *s);  /* sorts and joins */
void char_set_invert(struct char_set *s); /* closed, and is closed */
void char_set_free(struct char_set *s);

/* One character of a closed set; surrogates are in none. In JSON what must be escaped is, in one
 * way, and nothing else. */
node chars_of(struct nodes *x, const struct char_set *s, enum char_form form);
node chars_range(struct nodes *x, int32_t from, int32_t to, enum char_form form);
/* A text of valid UTF-8. */
node chars_text(struct nodes *x, const char *p, size_t n, enum char_form form);

/* The next code point of valid UTF-8 at p[*at]; -1: at the end, or it is not valid. */
int32_t chars_next(const char *p, size_t n, size_t *at);

#endif
