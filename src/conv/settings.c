/* The settings of a chat: checked where they are set, on the caller's thread,
 * and copied with every turn, so that the worker never shares them. */
#include "config.h"
#include "conv/settings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"

static char *dup_or_null(const char *s)
{
    return s ? mem_strdup(s) : NULL;
}

void settings_from(struct settings *s, const struct conv_opts *o)
{
    *s = (struct settings){
        .temp = o->temp,
        .top_p = o->top_p,
        .min_p = o->min_p,
        .top_k = o->top_k,
        .presence = o->presence,
        .frequency = o->frequency,
        .repetition = o->repetition,
        .seed = o->seed,
        .max_tokens = o->max_tokens,
        .min_tokens = o->min_tokens,
        .think = o->think,
        .preserve = o->preserve,
        .effort = dup_or_null(o->effort),
        .system = dup_or_null(o->system),
    };
}

void settings_copy(struct settings *dst, const struct settings *src)
{
    *dst = *src;
    dst->effort = dup_or_null(src->effort);
    dst->system = dup_or_null(src->system);
}

void settings_fini(struct settings *s)
{
    free(s->effort);
    free(s->system);
    memset(s, 0, sizeof *s);
}

static int set_num(double *out, const char *key, const char *value, double lo, double hi,
                   struct err *e)
{
    char *end = NULL;
    double v = strtod(value, &end);
    if (end == value || *end || !(v >= lo && v <= hi)) {
        return err_set(e, QE_USAGE, "%s is \"%s\"; it must be a number from %g to %g, or default",
                       key, value, lo, hi);
    }
    *out = v;
    return 0;
}

static int set_int(int64_t *out, const char *key, const char *value, int64_t lo, int64_t hi,
                   struct err *e)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || errno || v < lo || v > hi) {
        return err_set(e, QE_USAGE,
                       "%s is \"%s\"; it must be a whole number from %lld to %lld, or default", key,
                       value, (long long)lo, (long long)hi);
    }
    *out = v;
    return 0;
}

static int set_words(struct settings *s, const char *key, const char *value, struct err *e)
{
    static const char *const efforts[] = {"low", "medium", "high", "xhigh"};
    if (strcmp(key, "think") == 0) {
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
            return err_set(e, QE_USAGE, "think is \"%s\"; it must be on, off or default", value);
        }
        s->think = strcmp(value, "on") == 0;
        return 0;
    }
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        if (strcmp(value, efforts[i]) == 0) {
            free(s->effort);
            s->effort = mem_strdup(value);
            return 0;
        }
    }
    return err_set(e, QE_USAGE, "effort is \"%s\"; it must be low, medium, high, xhigh or default",
                   value);
}

int settings_set(struct settings *s, const char *key, const char *value, struct err *e)
{
    const struct {
        const char *key;
        double *value, lo, hi;
    } nums[] = {
        {"temp", &s->temp, 0, 100},          {"top-p", &s->top_p, 0, 1},
        {"min-p", &s->min_p, 0, 1},          {"presence", &s->presence, -2, 2},
        {"frequency", &s->frequency, -2, 2}, {"repetition", &s->repetition, 0.01, 100},
    };
    const struct {
        const char *key;
        int *value, lo, def;
    } ints[] = {
        {"top-k", &s->top_k, -1, -2},
        {"max-tokens", &s->max_tokens, 1, -1},
        {"min-tokens", &s->min_tokens, 0, 0},
    };
    const bool def = strcmp(value, "default") == 0;
    for (size_t i = 0; i < sizeof nums / sizeof *nums; i++) {
        if (strcmp(key, nums[i].key) == 0) {
            return def ? (*nums[i].value = NAN, 0)
                       : set_num(nums[i].value, key, value, nums[i].lo, nums[i].hi, e);
        }
    }
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        if (strcmp(key, ints[i].key) == 0) {
            int64_t v = ints[i].def;
            int rc = def ? 0 : set_int(&v, key, value, ints[i].lo, 1 << 20, e);
            *ints[i].value = rc == 0 ? (int)v : *ints[i].value;
            return rc;
        }
    }
    if (strcmp(key, "seed") == 0) {
        return def ? (s->seed = -1, 0) : set_int(&s->seed, key, value, 0, INT64_MAX, e);
    }
    if (strcmp(key, "system") == 0) {
        free(s->system);
        s->system = def ? NULL : mem_strdup(value);
        return 0;
    }
    if (strcmp(key, "think") == 0 || strcmp(key, "effort") == 0) {
        if (!def) {
            return set_words(s, key, value, e);
        }
        if (key[0] == 't') {
            s->think = -1;
        } else {
            free(s->effort);
            s->effort = NULL;
        }
        return 0;
    }
    return err_set(e, QE_USAGE,
                   "there is no setting \"%s\"; there are temp, top-k, top-p, min-p, presence, "
                   "frequency, repetition, seed, max-tokens, min-tokens, think, effort, system",
                   key);
}

static uint64_t fresh_seed(void)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        v = (uint64_t)clock_now(clock_main());
    }
    return v >> 1; /* fits --seed, so that any answer can be asked for again */
}

struct engine_rules settings_rules(const struct settings *s, struct engine_sampling model)
{
    return (struct engine_rules){
        .repetition = isnan(s->repetition) ? model.repetition : (float)s->repetition,
        .frequency = isnan(s->frequency) ? model.frequency : (float)s->frequency,
        .presence = isnan(s->presence) ? model.presence : (float)s->presence,
        .min_tokens = s->min_tokens,
    };
}

struct engine_draw settings_draw(const struct settings *s, struct engine_sampling model)
{
    return (struct engine_draw){
        .temp = isnan(s->temp) ? model.temp : (float)s->temp,
        .top_p = isnan(s->top_p) ? model.top_p : (float)s->top_p,
        .min_p = isnan(s->min_p) ? model.min_p : (float)s->min_p,
        .top_k = s->top_k == -2 ? model.top_k : s->top_k,
        .seed = s->seed >= 0 ? (uint64_t)s->seed : fresh_seed(),
    };
}
