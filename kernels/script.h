#ifndef QUASAR_KERNELS_SCRIPT_H
#define QUASAR_KERNELS_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What the scripted backend (backend_script) says and how long it takes: token ids and
 * times, made from a script file by whoever knows text. Everything is borrowed until the
 * backend is closed, and read by the engine's thread.
 */

/* Something that happens before the token of number `at` is said. */
enum script_what {
    SCRIPT_PAUSE,  /* ns pass */
    SCRIPT_HOLD,   /* until the clock's control says go */
    SCRIPT_DEVICE, /* the pass fails, with the text as the reason */
    SCRIPT_MEMORY, /* the same, for want of memory */
    SCRIPT_NAN     /* every logit is not a number: no token can be drawn */
};
struct script_event {
    int at;
    enum script_what what;
    int64_t ns;
    const char *text;
};

/* A decode round; those of an answer follow each other and begin anew. */
struct script_round {
    int64_t draft_ns, verify_ns;
    int source;            /* an enum view_source */
    int drafted, accepted; /* accepted: at most, since the end and events cut rounds short */
};

struct script_text {
    const int32_t *ids;
    int n;
    bool forever; /* from token `again` on again when it is said */
    int again;
    const struct script_event *events;
    int n_events;
};

struct script_answer {
    struct script_text text[2]; /* after a prompt that ends outside of a thought; inside of one */
    const struct script_round *rounds;
    int n_rounds; /* at least one */
};

#define SCRIPT_WINDOW 4096 /* tokens of a prompt's end that are remembered */

struct be_script {
    const struct script_answer *answers;
    int n_answers; /* at least one */
    /* Which of them follows a prompt that ends with these ids, and which of its texts. */
    int (*choose)(void *ctx, const int32_t *ids, int n, int *text);
    void *ctx;
    int64_t load_ns; /* in so many steps of progress, at least one: */
    int load_steps;
    const char *load_fails; /* NULL: it does not */
    int64_t prefill_ns;     /* a token */
};

#endif
