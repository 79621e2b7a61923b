/* The memory plan, shown: of a running engine, and of settings alone. */
#include "config.h"
#include "cmd/memplan.h"

#include <string.h>

#include "base/jsonio.h"
#include "cmd/model.h"

json_t *memplan_json(const struct engine_plan *p)
{
    const struct {
        const char *name;
        uint64_t v;
    } bytes[] = {{"free", p->free},
                 {"weights", p->weights},
                 {"kv", p->kv},
                 {"page", p->page},
                 {"states", p->states},
                 {"work", p->work},
                 {"graphs", p->graphs},
                 {"margin", p->margin},
                 {"left", p->left},
                 {"missing", p->missing},
                 {"saved_by_verify_width_1", p->save_width},
                 {"saved_by_max_draft_0", p->save_draft},
                 {"saved_by_cuda_graphs_0", p->save_graphs}};
    const struct {
        const char *name;
        int v;
    } counts[] = {{"ctx", p->ctx},
                  {"kv_tokens", p->tokens},
                  {"sequences", p->slots},
                  {"cuda_graphs", p->n_graphs},
                  {"verify_width", p->verify_width},
                  {"max_draft", p->max_draft}};
    json_t *o = json_object();
    json_object_set_new(o, "kv_format", json_string(p->kv_format));
    json_object_set_new(o, "device", json_str_lossy(p->device, strlen(p->device)));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_object_set_new(o, counts[i].name, json_integer(counts[i].v));
    }
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        json_object_set_new(o, bytes[i].name, json_integer((json_int_t)bytes[i].v));
    }
    return o;
}

int memplan_of(const struct conf *cf, struct engine_plan *out, char **line, struct err *e)
{
    struct model m = {0};
    struct engine_opts o = {0};
    int rc = model_open(cf, &m, e);
    rc = rc < 0 ? rc : model_engine_opts(cf, &o, m.gpu_note, e);
    rc = rc < 0 ? rc : engine_plan(m.file, &o, out, line, e);
    model_close(&m);
    return rc;
}
