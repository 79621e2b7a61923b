/* The settings of a chat: checked where they are set, on the caller's thread,
 * and copied with every turn, so that the worker never shares them. */
#include "config.h"
#include "conv/settings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stddef.h>
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
        .logprobs = o->logprobs,
        .ignore_eos = o->ignore_eos,
        .think_budget = o->think_budget,
    };
    settings_stop(s, o->stop, o->n_stop);
    settings_bias(s, o->bias, o->n_bias);
    settings_form(s, &o->form);
}

static void free_stops(struct settings *s)
{
    for (size_t i = 0; i < s->n_stop; i++) {
        free(s->stop[i]);
    }
    free(s->stop);
}

void settings_stop(struct settings *s, const char *const *stop, size_t n)
{
    char **copy = n ? mem_array(n, sizeof *copy) : NULL;
    for (size_t i = 0; i < n; i++) {
        copy[i] = mem_strdup(stop[i]);
    }
    free_stops(s);
    s->stop = copy;
    s->n_stop = n;
}

void settings_bias(struct settings *s, const struct conv_bias *bias, size_t n)
{
    struct conv_bias *copy = n ? mem_array(n, sizeof *copy) : NULL;
    if (n) {
        memcpy(copy, bias, n * sizeof *copy);
    }
    free(s->bias);
    s->bias = copy;
    s->n_bias = n;
}

static void free_form(struct settings *s)
{
    free((char *)(uintptr_t)s->form.text);
    s->form = (struct conv_form){.kind = CF_NONE};
}

void settings_form(struct settings *s, const struct conv_form *form)
{
    struct conv_form copy = *form;
    copy.text = form->text ? mem_strndup(form->text, form->n) : NULL;
    free_form(s);
    s->form = copy;
}

static void free_calls(struct settings *s)
{
    free((char *)(uintptr_t)s->calls.only);
    free((char *)(uintptr_t)s->calls.allowed);
    free((char *)(uintptr_t)s->calls.strict);
    s->calls = (struct conv_calls){.kind = CK_AUTO};
}

void settings_calls(struct settings *s, const struct conv_calls *calls)
{
    struct conv_calls copy = *calls;
    copy.only = dup_or_null(calls->only);
    copy.allowed = dup_or_null(calls->allowed);
    copy.strict = dup_or_null(calls->strict);
    free_calls(s);
    s->calls = copy;
}

void settings_copy(struct settings *dst, const struct settings *src)
{
    *dst = *src;
    dst->effort = dup_or_null(src->effort);
    dst->system = dup_or_null(src->system);
    dst->stop = NULL;
    dst->n_stop = 0;
    settings_stop(dst, (const char *const *)src->stop, src->n_stop);
    dst->bias = NULL;
    dst->n_bias = 0;
    settings_bias(dst, src->bias, src->n_bias);
    dst->form = (struct conv_form){.kind = CF_NONE};
    settings_form(dst, &src->form);
    dst->calls = (struct conv_calls){.kind = CK_AUTO};
    settings_calls(dst, &src->calls);
}

void settings_fini(struct settings *s)
{
    free(s->effort);
    free(s->system);
    free_stops(s);
    free(s->bias);
    free_form(s);
    free_calls(s);
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

/* Numbers with what each may be. */
static const struct num_key {
    const char *key;
    size_t at;
    double lo, hi;
} num_keys[] = {
    {"temp", offsetof(struct settings, temp), 0, 100},
    {"top-p", offsetof(struct settings, top_p), 0, 1},
    {"min-p", offsetof(struct settings, min_p), 0, 1},
    {"presence", offsetof(struct settings, presence), -2, 2},
    {"frequency", offsetof(struct settings, frequency), -2, 2},
    {"repetition", offsetof(struct settings, repetition), 0.01, 100},
};
static const struct int_key {
    const char *key;
    size_t at;
    int lo, def;
} int_keys[] = {
    {"top-k", offsetof(struct settings, top_k), -1, -2},
    {"max-tokens", offsetof(struct settings, max_tokens), 1, -1},
    {"min-tokens", offsetof(struct settings, min_tokens), 0, 0},
    {"think-budget", offsetof(struct settings, think_budget), 0, -1},
};
#define N_NUMS (sizeof num_keys / sizeof *num_keys)
#define N_INTS (sizeof int_keys / sizeof *int_keys)
#define INT_HI (1 << 20)

static double *num_at(const struct settings *s, size_t i)
{
    return (double *)((char *)(uintptr_t)s + num_keys[i].at);
}

static int *int_at(const struct settings *s, size_t i)
{
    return (int *)((char *)(uintptr_t)s + int_keys[i].at);
}

int settings_check(const struct settings *s, struct err *e)
{
    for (size_t i = 0; i < N_NUMS; i++) {
        const double v = *num_at(s, i);
        if (!isnan(v) && !(v >= num_keys[i].lo && v <= num_keys[i].hi)) {
            return err_set(e, QE_USAGE, "%s is %g; it must be a number from %g to %g",
                           num_keys[i].key, v, num_keys[i].lo, num_keys[i].hi);
        }
    }
    for (size_t i = 0; i < N_INTS; i++) {
        const int v = *int_at(s, i);
        if (v != int_keys[i].def && (v < int_keys[i].lo || v > INT_HI)) {
            return err_set(e, QE_USAGE, "%s is %d; it must be a whole number from %d to %d",
                           int_keys[i].key, v, int_keys[i].lo, INT_HI);
        }
    }
    if (s->form.kind != CF_NONE && s->ignore_eos) {
        return err_set(e, QE_USAGE,
                       "an answer that does not end at its end (ignore-eos) has no form");
    }
    return 0;
}

int settings_set(struct settings *s, const char *key, const char *value, struct err *e)
{
    const bool def = strcmp(value, "default") == 0;
    for (size_t i = 0; i < N_NUMS; i++) {
        if (strcmp(key, num_keys[i].key) == 0) {
            return def ? (*num_at(s, i) = NAN, 0)
                       : set_num(num_at(s, i), key, value, num_keys[i].lo, num_keys[i].hi, e);
        }
    }
    for (size_t i = 0; i < N_INTS; i++) {
        if (strcmp(key, int_keys[i].key) == 0) {
            int64_t v = int_keys[i].def;
            int rc = def ? 0 : set_int(&v, key, value, int_keys[i].lo, INT_HI, e);
            *int_at(s, i) = rc == 0 ? (int)v : *int_at(s, i);
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
                   "frequency, repetition, seed, max-tokens, min-tokens, think, think-budget, "
                   "effort, system",
                   key);
}

static bool put_num(double v, char out[64])
{
    snprintf(out, 64, "%g", v);
    return !isnan(v);
}

static bool put_int(int64_t v, int64_t unset, char out[64])
{
    snprintf(out, 64, "%lld", (long long)v);
    return v != unset;
}

static bool put_text(const char *s, char out[64])
{
    snprintf(out, 64, "%s", s ? s : "");
    return s != NULL;
}

bool settings_get(const struct settings *s, const char *key, char out[64])
{
    const struct {
        const char *key;
        double value;
    } nums[] = {{"temp", s->temp},           {"top-p", s->top_p},
                {"min-p", s->min_p},         {"presence", s->presence},
                {"frequency", s->frequency}, {"repetition", s->repetition}};
    const struct {
        const char *key;
        int64_t value, unset;
    } ints[] = {{"top-k", s->top_k, -2},
                {"max-tokens", s->max_tokens, -1},
                {"min-tokens", s->min_tokens, 0},
                {"think-budget", s->think_budget, -1},
                {"seed", s->seed, -1}};
    out[0] = 0;
    for (size_t i = 0; i < sizeof nums / sizeof *nums; i++) {
        if (strcmp(key, nums[i].key) == 0) {
            return put_num(nums[i].value, out);
        }
    }
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        if (strcmp(key, ints[i].key) == 0) {
            return put_int(ints[i].value, ints[i].unset, out);
        }
    }
    if (strcmp(key, "think") == 0) {
        return put_text(s->think < 0 ? NULL : s->think ? "on" : "off", out);
    }
    return strcmp(key, "effort") == 0   ? put_text(s->effort, out)
           : strcmp(key, "system") == 0 ? put_text(s->system, out)
                                        : false;
}

static uint64_t fresh_seed(void)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        v = (uint64_t)clock_now(clock_main());
    }
    return v >> 11; /* below 2^53: exact also where JSON numbers are doubles */
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
