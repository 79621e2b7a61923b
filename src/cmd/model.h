#ifndef QUASAR_CMD_MODEL_H
#define QUASAR_CMD_MODEL_H

#include "base/conf.h"
#include "base/err.h"
#include "base/phases.h"
#include "engine/engine.h"
#include "format/container.h"

/* From a model's name to its path: a file, a name in the data folder's models/
 * (".qsr" may be left out), or "demo", the one that comes with the program. The
 * caller frees *path. */
int model_find(const char *name, char **path, struct err *e);

/* The same for what is read whole, not run: any existing file or folder as it is
 * named, else a model's name. The caller frees *path. */
int model_source(const char *name, char **path, struct err *e);

/* The engine's options as the command line has them. Refuses --backend cuda with
 * the reason; gpu_note (at least 256 bytes) gets why "auto" means the CPU.
 * Strings are borrowed from cf and gpu_note. */
int model_engine_opts(const struct conf *cf, struct engine_opts *o, char *gpu_note, struct err *e);

/* A model file with an engine on it. Zero initialised is closed. */
struct model {
    char *path;
    struct container *file;
    struct engine *engine;
    char gpu_note[256];
    struct cuda_wake *wake; /* a device that is being made ready; or NULL */
    struct phases phases;   /* of opening, before the engine's own */
};

/* The format that a word of --kv means. */
enum engine_kv model_kv(const char *word);

/* Opens the file that --model names, while a device that may be used wakes up, then, with
 * model_start, the engine: shows progress and says once why no GPU is used, when standard error is
 * a terminal. tweak may change the options (vocab_used, chunk …) before; NULL: nothing. */
int model_open(const struct conf *cf, struct model *m, struct err *e);
int model_start(const struct conf *cf, struct model *m, const struct engine_opts *tweak,
                struct err *e);
void model_close(struct model *m);

/* The parts of o that a command sets itself are taken from tweak where they are
 * not zero: ctx, slots, chunk, vocab_used, no_mtp. */
void model_apply_tweak(struct engine_opts *o, const struct engine_opts *tweak);

/* A progress callback for engine_opts on standard error; draws only on a terminal
 * and only when loading takes long. */
struct model_progress {
    int64_t start;
    bool shown;
    const char *what;
};
void model_progress_start(struct model_progress *p, const char *what, struct engine_opts *o);
void model_progress_end(struct model_progress *p);

#endif
