/* quasar config: the effective value of every setting and where it came from, and the
 * memory that they take with the model. */
#include "config.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "cmd/memplan.h"

static json_t *text_or_null(const char *s)
{
    return s ? json_str_lossy(s, strlen(s)) : json_null();
}

static json_t *value_of(const struct conf *cf, const struct conf_opt *o)
{
    if (o->type == CONF_PAIRS) {
        json_t *all = json_object();
        for (size_t i = 0; i < conf_pairs_len(cf, o->name); i++) {
            const struct conf_pair p = conf_pair_at(cf, o->name, i);
            json_object_set_new(all, p.key, text_or_null(p.value));
        }
        return all;
    }
    if (o->type != CONF_LIST) {
        return text_or_null(conf_str(cf, o->name));
    }
    json_t *all = json_array();
    for (size_t i = 0; i < conf_list_len(cf, o->name); i++) {
        json_array_append_new(all, text_or_null(conf_list_at(cf, o->name, i)));
    }
    return all;
}

/* A line of the settings file. What has none there, no value or one of several lines, is
 * a comment; a text has quotes, behind which a comment can be told from it. */
static void print_line(const struct conf_opt *o, const char *name, const char *value,
                       const char *origin)
{
    const bool text = conf_is_text(o->type) || o->type == CONF_PAIRS;
    const char *quote = text && value ? "\"" : "";
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s%s%s", quote, value ? value : "", quote);
    const bool lines = strpbrk(b.data, "\r\n");
    for (char *s = b.data; (s = strpbrk(s, "\r\n"));) {
        *s = ' ';
    }
    printf("%s%-20s = %-16s # %s\n", value && !lines ? "" : "# ", name, b.data, origin);
    buf_free(&b);
}

static void print_row(const struct conf *cf, const struct conf_opt *o)
{
    const char *origin = conf_origin_text(cf, o->name);
    const size_t n = o->type == CONF_LIST ? conf_list_len(cf, o->name) : 0;
    for (size_t i = 0; i < n; i++) {
        print_line(o, o->name, conf_list_at(cf, o->name, i), origin);
    }
    const size_t pairs = o->type == CONF_PAIRS ? conf_pairs_len(cf, o->name) : 0;
    for (size_t i = 0; i < pairs; i++) {
        const struct conf_pair p = conf_pair_at(cf, o->name, i);
        struct buf name = BUF_INIT;
        buf_printf(&name, "%s.%s", o->name, p.key);
        print_line(o, name.data, p.value, p.where);
        buf_free(&name);
    }
    if (n + pairs == 0 && o->type != CONF_PAIRS) {
        print_line(o, o->name, conf_str(cf, o->name), origin);
    }
}

/* The plan, or the reason why there is none: the settings are shown in either case. */
static void add_plan(const struct conf *cf, json_t *root)
{
    struct err why = ERR_INIT;
    struct engine_plan plan;
    char *line = NULL;
    const bool good = memplan_of(cf, &plan, &line, &why) == 0;
    if (conf_flag(cf, "json")) {
        json_t *o = good ? memplan_json(&plan) : json_object();
        json_object_set_new(o, "line", text_or_null(line));
        json_object_set_new(o, "error", text_or_null(good ? NULL : why.msg));
        json_object_set_new(root, "memory", o);
    } else {
        printf("# memory: %s\n", good ? line : why.msg);
    }
    free(line);
}

int cmd_config(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 0) {
        return err_set(e, QE_USAGE, "quasar config takes no argument (\"%s\")", args[0]);
    }
    json_t *root = json_object();
    for (const struct conf_opt *o = conf_table(cf); o->name; o++) {
        if (o->cli_only) {
            continue;
        }
        if (conf_flag(cf, "json")) {
            json_t *row = json_object();
            json_object_set_new(row, "value", value_of(cf, o));
            json_object_set_new(row, "origin", text_or_null(conf_origin_text(cf, o->name)));
            json_object_set_new(root, o->name, row);
        } else {
            print_row(cf, o);
        }
    }
    add_plan(cf, root);
    if (conf_flag(cf, "json")) {
        json_print_take(root);
    } else {
        json_decref(root);
    }
    return 0;
}
