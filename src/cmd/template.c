/* quasar template: shows what the model would be given for a conversation, as
 * text or as token ids. */
#include "config.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "cmd/model.h"
#include "format/container.h"
#include "tokenizer/template.h"

#define MAX_JSON     ((size_t)256 << 20)
#define MAX_TEMPLATE ((size_t)1 << 20)

/* A file, or standard input by the name -. */
static int read_json(const char *path, json_t **out, struct err *e)
{
    const bool std = strcmp(path, "-") == 0;
    const char *name = std ? "standard input" : path;
    struct buf b = BUF_INIT;
    int rc = std ? io_read_fd(STDIN_FILENO, name, MAX_JSON, &b, e)
                 : io_read_stream(path, MAX_JSON, &b, e);
    if (rc == 0) {
        rc = json_parse(b.data, b.len, name, out, e);
    }
    buf_free(&b);
    return rc;
}

static int open_model(const struct conf *cf, struct container **out, struct err *e)
{
    char *path = NULL;
    int rc = model_find(conf_str(cf, "model"), &path, e);
    if (rc == 0) {
        rc = container_open(path, false, out, e);
    }
    free(path);
    return rc;
}

/* The renderer: by name, by a template file, or the model's own. */
static int choose(const char *name, const struct container *c, enum template_kind *out,
                  struct err *e)
{
    if (!name) {
        const char *p = NULL;
        size_t n = 0;
        if (!container_get(c, CB_TEMPLATE, &p, &n)) {
            return err_set(e, QE_NOTFOUND,
                           "the model has no chat template: choose one with --template 3.5, "
                           "3.5-off, 3.6, 3.8 or demo");
        }
        return template_detect(p, n, out, e);
    }
    struct err unknown = ERR_INIT;
    if (template_by_name(name, out, &unknown) == 0) {
        return 0;
    }
    if (access(name, F_OK) != 0 && !strchr(name, '/')) {
        return err_set(e, QE_USAGE, "%s", unknown.msg);
    }
    struct buf text = BUF_INIT;
    int rc = io_read_stream(name, MAX_TEMPLATE, &text, e);
    if (rc == 0) {
        rc = template_detect(text.data ? text.data : "", text.len, out, e);
        if (rc < 0) {
            err_wrap(e, rc, "%s", name);
        }
    }
    buf_free(&text);
    return rc;
}

static int tri_state(const struct conf *cf, const char *name)
{
    return conf_is_set(cf, name) ? conf_flag(cf, name) : -1;
}

static int read_options(const struct conf *cf, const struct container *c, struct template_opts *o,
                        struct err *e)
{
    const char *think = conf_str(cf, "think");
    o->think = !think ? -1 : strcmp(think, "on") == 0;
    o->preserve = tri_state(cf, "preserve-thinking");
    o->effort = conf_str(cf, "effort");
    o->generation_prompt = !conf_flag(cf, "no-generation-prompt");
    return choose(conf_str(cf, "template"), c, &o->kind, e);
}

static int encode(const struct container *c, const struct rendered *r, struct tok_ids *ids,
                  struct err *e)
{
    const char *p = NULL, *config = NULL;
    size_t n = 0, config_n = 0;
    if (!container_get(c, CB_TOKENIZER, &p, &n)) {
        return err_set(e, QE_NOTFOUND, "the model has no tokenizer");
    }
    container_get(c, CB_TOKENIZER_CONFIG, &config, &config_n);
    struct tokenizer *t = NULL;
    int rc = tokenizer_open(p, n, config, config_n, "the model's tokenizer", &t, e);
    if (rc == 0) {
        rc = rendered_encode(r, t, ids, e);
    }
    tokenizer_free(t);
    return rc;
}

static int show(const struct conf *cf, const struct container *c, const struct rendered *r,
                struct err *e)
{
    if (!conf_flag(cf, "json")) {
        fwrite(r->text.data ? r->text.data : "", 1, r->text.len, stdout);
        return 0;
    }
    struct tok_ids ids = {NULL, 0, 0};
    int rc = encode(c, r, &ids, e);
    if (rc == 0) {
        json_t *list = json_array();
        for (size_t i = 0; i < ids.n; i++) {
            json_array_append_new(list, json_integer(ids.v[i]));
        }
        json_t *o = json_object();
        json_object_set_new(o, "text",
                            json_str_lossy(r->text.data ? r->text.data : "", r->text.len));
        json_object_set_new(o, "tokens", list);
        json_print_take(o);
    }
    tok_ids_free(&ids);
    return rc;
}

int cmd_template(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 0) {
        return err_set(e, QE_USAGE, "quasar template takes no argument (\"%s\")", args[0]);
    }
    if (!conf_str(cf, "messages")) {
        return err_set(e, QE_USAGE, "quasar template needs --messages FILE");
    }
    struct container *c = NULL;
    json_t *messages = NULL, *tools = NULL;
    struct rendered r = {0};
    struct template_opts o = {.kind = TPL_DEMO};
    int rc = read_json(conf_str(cf, "messages"), &messages, e);
    if (rc == 0 && conf_str(cf, "tools")) {
        rc = read_json(conf_str(cf, "tools"), &tools, e);
    }
    if (rc == 0) {
        rc = open_model(cf, &c, e);
    }
    if (rc == 0) {
        rc = read_options(cf, c, &o, e);
    }
    if (rc == 0) {
        rc = template_render(messages, tools, &o, &r, e);
    }
    if (rc == 0) {
        rc = show(cf, c, &r, e);
    }
    rendered_free(&r);
    container_close(c);
    json_decref(tools);
    json_decref(messages);
    return rc;
}
