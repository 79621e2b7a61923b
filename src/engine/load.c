/* Ties a container to the engine that reads its weights in place: the container
 * must outlive the engine, so both are owned here. */
#include "config.h"
#include "engine/load.h"

#include <stdlib.h>

#include "base/mem.h"
#include "format/container.h"

struct engine_model {
    struct container *container;
    struct engine *engine;
};

int engine_check_file(const char *path, struct err *e)
{
    struct container *c = NULL;
    const int rc = container_open(path, true, &c, e);
    container_close(c);
    return rc;
}

int engine_load(const char *path, bool verify, const struct engine_opts *o,
                struct engine_model **out, struct err *e)
{
    struct engine_model *m = mem_zalloc(sizeof *m);
    int rc = container_open(path, verify, &m->container, e);
    if (rc == 0) {
        rc = engine_open(m->container, o, &m->engine, e);
    }
    if (rc < 0) {
        engine_unload(m);
        return rc;
    }
    *out = m;
    return 0;
}

void engine_unload(struct engine_model *m)
{
    if (!m) {
        return;
    }
    if (m->engine) {
        engine_close(m->engine);
    }
    if (m->container) {
        container_close(m->container);
    }
    free(m);
}

struct engine *engine_of(const struct engine_model *m)
{
    return m->engine;
}

bool engine_model_blob(const struct engine_model *m, enum engine_blob which, const char **p,
                       size_t *n)
{
    static const enum container_blob map[MB_COUNT] = {
        [MB_TOKENIZER] = CB_TOKENIZER,
        [MB_TOKENIZER_CONFIG] = CB_TOKENIZER_CONFIG,
        [MB_TEMPLATE] = CB_TEMPLATE,
        [MB_GENERATION] = CB_GENERATION,
    };
    return container_get(m->container, map[which], p, n);
}
