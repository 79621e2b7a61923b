/* quasar config: the effective value of every setting and where it came from. */
#include "config.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

#include "base/jsonio.h"

static const char *shown(const struct conf *cf, const char *name)
{
    const char *s = conf_str(cf, name);
    return s ? s : "";
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
            const char *s = conf_str(cf, o->name);
            json_object_set_new(row, "value", s ? json_str_lossy(s, strlen(s)) : json_null());
            const char *from = conf_origin_text(cf, o->name);
            json_object_set_new(row, "origin", json_str_lossy(from, strlen(from)));
            json_object_set_new(root, o->name, row);
        } else {
            printf("%-20s = %-16s # %s\n", o->name, shown(cf, o->name),
                   conf_origin_text(cf, o->name));
        }
    }
    if (conf_flag(cf, "json")) {
        json_print_take(root);
    } else {
        json_decref(root);
    }
    return 0;
}
