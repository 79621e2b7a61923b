/* Catalogues in a folder of their own. */
#include "config.h"
#include "tests/unit/catalog_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "sessions/catalog.h"

char dir[] = "/tmp/quasar-catalog-XXXXXX";
char path[256];

void fresh(void)
{
    static int n;
    snprintf(path, sizeof path, "%s/%d/deep/catalog.db", dir, n++);
}

struct catalog *open_ok(void)
{
    struct catalog *c = NULL;
    struct err e = ERR_INIT;
    int rc = catalog_open(path, &c, &e);
    if (rc != 0) {
        fail_msg("%s", e.msg);
    }
    return c;
}

int64_t begin(struct catalog *c, const char *system)
{
    const struct catalog_new n = {.model = "demo", .system = system, .directory = "/home/me"};
    int64_t id = 0;
    struct err e = ERR_INIT;
    int rc = catalog_begin(c, &n, &id, &e);
    if (rc != 0) {
        fail_msg("%s", e.msg);
    }
    return id;
}

int64_t add(struct catalog *c, int64_t conv, int64_t parent, enum catalog_role role,
            const char *text)
{
    struct catalog_turn t = {.role = role, .text = text, .text_n = strlen(text)};
    int64_t id = 0;
    struct err e = ERR_INIT;
    int rc = catalog_add(c, conv, parent, &t, &id, &e);
    if (rc != 0) {
        fail_msg("%s", e.msg);
    }
    return id;
}

bool see_turn(void *ctx, const struct catalog_turn *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d<%d %d %.*s|%.*s|%s|%s|%s|", (int)t->id, (int)t->parent, (int)t->role,
               (int)t->text_n, t->text, (int)t->thought_n, t->thought ? t->thought : "",
               t->calls ? t->calls : "", t->finish ? t->finish : "", t->stats ? t->stats : "");
    for (size_t i = 0; i < t->n_ids; i++) {
        buf_printf(&s->all, "%d,", (int)t->ids[i]);
    }
    buf_adds(&s->all, "\n");
    return true;
}

bool see_hit(void *ctx, int64_t conv, const struct catalog_turn *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d/%d ", (int)conv, (int)t->id);
    return true;
}

bool see_conv(void *ctx, const struct catalog_conv *v)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d %s|%s|%s|%d\n", (int)v->id, v->title, v->model,
               v->system ? v->system : "-", v->turns);
    return true;
}

void slurp(struct buf *b)
{
    assert_int_equal(io_read_file(path, 1 << 26, b, NULL), 0);
}

bool see_text(void *ctx, const struct catalog_turn *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d:%s ", (int)t->id, t->text);
    return true;
}

void path_is(struct catalog *c, int64_t conv, int64_t turn, const char *want)
{
    struct seen s = {0};
    assert_int_equal(catalog_path(c, conv, turn, see_text, &s, NULL), 0);
    assert_string_equal(s.all.data ? s.all.data : "", want);
    buf_free(&s.all);
}

bool see_all(void *ctx, const struct catalog_conv *v)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d %s%s%s leaf %d dir %s tags %s\n", (int)v->id, v->title,
               v->named ? " named" : "", v->pinned ? " pinned" : "", (int)v->leaf,
               v->directory ? v->directory : "-", v->tags ? v->tags : "-");
    return true;
}

void conv_is(struct catalog *c, int64_t conv, const char *want)
{
    struct seen s = {0};
    assert_int_equal(catalog_get(c, conv, see_all, &s, NULL), 0);
    assert_string_equal(s.all.data, want);
    buf_free(&s.all);
}

int catalog_prepare(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

int catalog_clean(void **state)
{
    (void)state;
    char cmd[300];
    snprintf(cmd, sizeof cmd, "chmod -R u+w %s; rm -rf %s", dir, dir);
    return system(cmd);
}
