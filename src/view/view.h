#ifndef QUASAR_VIEW_VIEW_H
#define QUASAR_VIEW_VIEW_H

#include <stdbool.h>
#include <stdint.h>

/* Plain figures that lower parts fill and upper parts show. */

struct view_model {
    char name[64];
    char tier[16];
    char backend[16];   /* cpu, cuda */
    char device[64];    /* "AVX-512, 2 threads" */
    char fallback[128]; /* why the GPU is not used; empty when it is */
    char digest[65];    /* identifies the weights */
    char compat[65];    /* all that decides about the bits of an answer: weights, cache, kernels and
                           what they run on; equal here, equal everywhere */
    int ctx;            /* window in tokens */
    int gpu;            /* the number that CUDA gives the device; negative: no GPU computes */
    bool ready;
};

struct view_chat {
    bool busy;
    int ahead;         /* how many must end before its turn can begin; 0: none, or not known */
    int context_used;  /* tokens of this conversation; negative: not known */
    int prompt_tokens; /* of the running or last turn */
    int cached_tokens; /* of those, not computed again */
    int output_tokens;
    int thought_tokens; /* of those */
    double prefill_s, decode_s;
    double tok_s;         /* output tokens per second of decoding, this turn */
    double tok_round;     /* output tokens by passes of the model that gave them, this turn; NaN or
                             0: there is none */
    double ttft_s;        /* from chat_send to the first token */
    bool saved;           /* the transcript is on disk up to the last finished turn */
    bool stuck;           /* what was said cannot be written now: nothing more is taken */
    bool state_saved;     /* and so is the engine's state */
    int64_t saved_at;     /* when something was written last, of the real clock; 0: never */
    int64_t conversation; /* its number in the catalogue; 0: none */
    int64_t turn;         /* the stored turn that it stands after, or the question that is being
                             answered; 0: none */
};

#endif
