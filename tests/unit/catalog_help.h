#ifndef QUASAR_TESTS_CATALOG_HELP_H
#define QUASAR_TESTS_CATALOG_HELP_H

#include "base/buf.h"
#include "sessions/catalog.h"

/* Catalogues of one test program, in a folder of its own. */

extern char dir[];
extern char path[256];
void fresh(void);
struct catalog *open_ok(void);
int64_t begin(struct catalog *c, const char *system);
int64_t add(struct catalog *c, int64_t conv, int64_t parent, enum catalog_role role,
            const char *text);

struct seen {
    struct buf all;
    int n;
};
bool see_turn(void *ctx, const struct catalog_turn *t);
bool see_hit(void *ctx, int64_t conv, const struct catalog_turn *t);
bool see_conv(void *ctx, const struct catalog_conv *v);

/* Bytes of the file, to see that it is left alone. */
void slurp(struct buf *b);

/* Turns as "id:text " in the order they come. */
bool see_text(void *ctx, const struct catalog_turn *t);
void path_is(struct catalog *c, int64_t conv, int64_t turn, const char *want);
bool see_all(void *ctx, const struct catalog_conv *v);
void conv_is(struct catalog *c, int64_t conv, const char *want);
int catalog_prepare(void **state);
int catalog_clean(void **state);

#endif
