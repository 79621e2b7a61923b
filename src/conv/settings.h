#ifndef QUASAR_CONV_SETTINGS_H
#define QUASAR_CONV_SETTINGS_H

#include "conv/conv.h"
#include "sched/sched.h"
#include "tokenizer/template.h"

/* What a turn is asked with. Zero initialised may be freed. */
struct settings {
    double temp, top_p, min_p; /* NaN: the model's */
    int top_k;                 /* -2: the model's */
    double presence, frequency, repetition;
    int64_t seed;   /* -1: a fresh one */
    int max_tokens; /* -1: to the end of the window */
    int min_tokens;
    int think, preserve; /* -1: the template's */
    char *effort;        /* NULL: the template's */
    char *system;        /* NULL: none */
    int logprobs;        /* -1: none; else also of so many of the likeliest tokens */
    bool ignore_eos;
    char **stop; /* texts */
    size_t n_stop;
    struct conv_bias *bias;
    size_t n_bias;
    struct conv_form form;   /* its text is owned */
    struct conv_calls calls; /* its strings too */
    int think_budget;        /* -1: none */
    uint64_t owner;          /* as in struct conv_share, like those below */
    int weight, owner_slots, priority, wait_ms, limit_ms;
};

void settings_from(struct settings *s, const struct conv_opts *o);
void settings_copy(struct settings *dst, const struct settings *src);
void settings_fini(struct settings *s);
/* QE_USAGE: a number is not what chat_set would allow. */
int settings_check(const struct settings *s, struct err *e);
/* As chat_set. */
int settings_set(struct settings *s, const char *key, const char *value, struct err *e);

/* Replaces the stop texts, and the biases; copied. */
void settings_stop(struct settings *s, const char *const *stop, size_t n);
void settings_bias(struct settings *s, const struct conv_bias *bias, size_t n);
/* Replaces the form of the answer; copied. */
void settings_form(struct settings *s, const struct conv_form *form);

/* Replaces what may be called; copied. */
void settings_calls(struct settings *s, const struct conv_calls *calls);

/* As chat_get. */
bool settings_get(const struct settings *s, const char *key, char out[64]);

/* The rules of these settings for a model; no bias. */
struct engine_rules settings_rules(const struct settings *s, struct engine_sampling model);

/* The draw these settings mean for a model; a fresh seed where none is set. */
struct engine_draw settings_draw(const struct settings *s, struct engine_sampling model);

#endif
