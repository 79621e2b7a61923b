/* From the option table to conv_opts, for every command that holds a
 * conversation. */
#include "config.h"
#include "cmd/convopts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cmd/model.h"
#include "cmd/script.h"

static int tristate(const struct conf *cf, const char *name)
{
    if (!conf_str(cf, name)) {
        return -1;
    }
    return conf_is_word(cf, name, "on") || conf_is_word(cf, name, "yes");
}

static int parse_bias(const char *text, struct conv_bias *out, struct err *e)
{
    char *end = NULL;
    errno = 0;
    const long id = strtol(text, &end, 10);
    const bool has_id = end != text && *end == ':' && id >= 0 && id <= INT32_MAX && errno == 0;
    const char *number = has_id ? end + 1 : text;
    const double value = strtod(number, &end);
    if (!has_id || end == number || *end || !(value >= -100 && value <= 100)) {
        return err_set(e, QE_USAGE,
                       "logit-bias: \"%.60s\" is not ID:B, a token id and a number from -100 to "
                       "100",
                       text);
    }
    *out = (struct conv_bias){(int32_t)id, (float)value};
    return 0;
}

static int biases(const struct conf *cf, struct conv_opts *o, struct convopts *s, struct err *e)
{
    o->n_bias = conf_list_len(cf, "logit-bias");
    s->bias = mem_array(o->n_bias + 1, sizeof *s->bias);
    o->bias = s->bias;
    int rc = 0;
    for (size_t i = 0; i < o->n_bias && rc == 0; i++) {
        rc = parse_bias(conf_list_at(cf, "logit-bias", i), &s->bias[i], e);
    }
    return rc;
}

int convopts_prefix_dir(const struct conf *cf, char **out, struct err *e)
{
    const char *dir = conf_str(cf, "prefix-cache");
    *out = NULL;
    if (dir[strspn(dir, " \t\r\n")] == 0) {
        return err_set(e, QE_USAGE, "prefix-cache: \"%s\" is no name of a folder (%s)", dir,
                       conf_origin_text(cf, "prefix-cache"));
    }
    if (strcmp(dir, "auto") != 0) {
        *out = strcmp(dir, "off") == 0 ? NULL : mem_strdup(dir);
        return 0;
    }
    char *state = io_xdg_state();
    *out = io_join(state, "prefixes");
    free(state);
    return 0;
}

/* Which states of prompts are kept, and where. */
static int reuse(const struct conf *cf, struct conv_opts *o, struct convopts *s, struct err *e)
{
    const int64_t mib = conf_int(cf, "prefix-memory", -1);
    const int every = (int)conf_int(cf, "prefix-every", 0);
    o->prefix_memory = mib < 0 ? 0 : mib == 0 ? -1 : mib << 20;
    o->prefix_every = every > 0 ? every : -1;
    if (every % 64 != 0) {
        return err_set(e, QE_USAGE, "prefix-every: %d is not a multiple of 64", every);
    }
    o->cache_generated = conf_flag(cf, "cache-generated");
    const int rc = convopts_prefix_dir(cf, &s->prefix_dir, e);
    o->prefix_dir = s->prefix_dir;
    o->prefix_disk = conf_int(cf, "prefix-disk", 0) << 30;
    o->prefix_least = (int)conf_int(cf, "prefix-least", 0);
    return rc;
}

int convopts_from(const struct conf *cf, struct conv_opts *o, struct convopts *s, struct err *e)
{
    s->script = NULL;
    s->path = s->prefix_dir = NULL;
    s->stops = NULL;
    s->bias = NULL;
    s->gpu_note[0] = 0;
    int rc = model_find(conf_str(cf, "model"), &s->path, e);
    if (rc < 0) {
        return rc;
    }
    struct engine_opts eo;
    rc = model_engine_opts(cf, &eo, s->gpu_note, e);
    if (rc < 0) {
        return rc;
    }
    *o = conv_opts_default();
    o->model = s->path;
    o->backend = eo.backend == EB_CPU ? "cpu" : eo.backend == EB_CUDA ? "cuda" : "auto";
    o->fallback = eo.fallback;
    o->isa = conf_str(cf, "isa");
    o->kv = conf_str(cf, "kv");
    o->cuda_path = conf_str(cf, "cuda-path");
    o->graphs = eo.graphs;
    o->max_draft = eo.max_draft;
    o->verify_width = eo.verify_width;
    o->draft_head = conf_str(cf, "draft-head");
    o->fast_head = eo.fast_head;
    o->spec = conf_str(cf, "spec");
    o->draft = (int)conf_int(cf, "draft", 0);
    o->device = eo.device;
    o->threads = eo.threads;
    o->ctx = eo.ctx;
    o->verify_weights = conf_flag(cf, "verify-weights");
    o->template = conf_str(cf, "template");
    o->effort = conf_str(cf, "effort");
    o->think = tristate(cf, "think");
    o->think_budget = (int)conf_int(cf, "think-budget", -1);
    o->strict_calls =
        conf_str(cf, "tool-calls") && strcmp(conf_str(cf, "tool-calls"), "strict") == 0;
    o->tool_misses = conf_str(cf, "tool-misses");
    o->preserve = conf_str(cf, "preserve-thinking") ? conf_flag(cf, "preserve-thinking") : -1;
    o->system = conf_str(cf, "system");
    o->temp = conf_num(cf, "temp", NAN);
    o->top_p = conf_num(cf, "top-p", NAN);
    o->min_p = conf_num(cf, "min-p", NAN);
    o->top_k = (int)conf_int(cf, "top-k", -2);
    o->presence = conf_num(cf, "presence", NAN);
    o->frequency = conf_num(cf, "frequency", NAN);
    o->repetition = conf_num(cf, "repetition", NAN);
    o->seed = conf_int(cf, "seed", -1);
    o->max_tokens = (int)conf_int(cf, "max-tokens", -1);
    o->min_tokens = (int)conf_int(cf, "min-tokens", 0);
    o->n_stop = conf_list_len(cf, "stop");
    s->stops = mem_array(o->n_stop + 1, sizeof *s->stops);
    for (size_t i = 0; i < o->n_stop; i++) {
        s->stops[i] = conf_list_at(cf, "stop", i);
        size_t n = strlen(s->stops[i]);
        if (n == 0 || !utf8_valid(s->stops[i], n)) {
            return err_set(e, QE_USAGE, "stop: the text is %s", n == 0 ? "empty" : "not UTF-8");
        }
    }
    o->stop = s->stops;
    rc = reuse(cf, o, s, e);
    rc = rc < 0 ? rc : biases(cf, o, s, e);
    rc = rc < 0 ? rc : script_open(cf, s->path, &s->script, e);
    if (rc == 0 && s->script) {
        o->script = script_be(s->script);
        o->fallback = NULL;   /* it is no matter where nothing is computed */
        o->prefix_dir = NULL; /* its states are of no use to anybody else */
    }
    return rc;
}

void convopts_free(struct convopts *s)
{
    free(s->path);
    free(s->prefix_dir);
    free(s->stops);
    free(s->bias);
    script_free(s->script);
}
