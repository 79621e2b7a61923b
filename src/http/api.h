#ifndef QUASAR_HTTP_API_H
#define QUASAR_HTTP_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "conv/request.h"
#include "http/fields.h"
#include "view/requests.h"

/*
 * One shape of request and answer on the wire: how a body becomes requests to the model, and
 * how what comes back becomes events or one body. Field mapping and nothing else: no sockets, no
 * threads. One ask is used by one thread at a time.
 */

#define API_CHOICES 16 /* answers to one request at most */

/* A request that was understood. */
struct ask {
    const struct api *api;
    json_t *body;      /* owned; strings below point into it */
    const char *model; /* as the client calls it; else own_model */
    char own_model[64];
    char id[48];
    int64_t created; /* seconds since 1970 */
    bool stream;
    bool usage;    /* stream_options.include_usage */
    bool echo;     /* completions */
    bool logprobs; /* wanted in the answer */
    bool counting; /* its tokens are only to be counted */
    int top;       /* of the likeliest tokens */

    /* The text of a token, for log probabilities; set by who runs the ask. */
    void (*token)(void *ctx, int32_t id, struct buf *out);
    void *token_ctx;

    struct conv_request q; /* of the first; the others differ in seed, or prompt */
    struct buf messages, tools;
    struct buf allowed, strict;   /* of q.calls */
    struct buf form;              /* the text of q.form */
    const char *form_field;       /* where it came in; NULL: there is none */
    int reasoning;                /* tokens of the thoughts of all choices, once they ended */
    int roles[VR_COUNT], n_tools; /* of them */
    struct conv_bias *bias;
    const char **stop;
    int n;   /* choices … */
    int per; /* … of each prompt, one after the other */
    struct ask_prompt {
        const char *text;
        size_t text_n;
        int32_t *ids; /* owned */
        size_t n_ids;
    } * prompts; /* completions: of each choice; else NULL */
    size_t n_prompts;
};

/* What has gone out of one choice of a streamed answer. */
struct choice_out {
    int index;
    int block;               /* number of the open content block or item; -1: none */
    char kind;               /* of the open one: t text, h thought, c call */
    int blocks;              /* begun so far */
    int calls;               /* tool calls so far */
    int sequence;            /* of the next event, for shapes that count them */
    bool begun;              /* its first event is out */
    struct buf text;         /* of the open item, for shapes that repeat it */
    struct buf logprobs;     /* that were not told yet: struct conv_logprob, 1 + top for a token */
    struct buf telling;      /* those that ask_untold gave last */
    size_t told, told_bytes; /* tokens whose log probabilities were; bytes of their texts */
    json_t *item;            /* the open one; owned */
    json_t *items;           /* those before; owned */
};

struct api {
    const char *path;
    const char *prefix; /* of an answer's id */
    bool aborts;        /* has a word for an answer that the server cut; else that is an error */
    bool early;         /* its stream begins before it is known what is cached */
    /* Fills a from a->body. q has the server's defaults. QE_FORMAT: a field is wrong (named in
     * the message, and in *field); QE_UNSUPPORTED: it asks for what is not there. */
    int (*parse)(struct ask *a, const char **field, struct err *e);
    /* Events of a stream; each appends whole ones. begin: once per choice, after the prompt is
     * known to fit: input, cached tokens. */
    void (*begin)(const struct ask *a, struct choice_out *c, int input, int cached,
                  struct buf *out);
    void (*thought)(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                    struct buf *out);
    void (*text)(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                 struct buf *out);
    /* call: {"name", "arguments"} */
    void (*call)(const struct ask *a, struct choice_out *c, const json_t *call, struct buf *out);
    void (*end)(const struct ask *a, struct choice_out *c, const struct chat_result *r,
                struct buf *out);
    /* After the last choice; totals of all. */
    void (*close)(const struct ask *a, int input, int cached, int output, struct buf *out);
    /* The stream fails; nothing follows. c: the first choice. */
    void (*fail)(const struct ask *a, struct choice_out *c, const char *why, struct buf *out);
    /* So that a silent stream is known to live. c: the first choice. */
    void (*ping)(const struct ask *a, struct choice_out *c, struct buf *out);
    /* The whole body, of n choices. */
    void (*whole)(const struct ask *a, const struct chat_result *const *r, int n, struct buf *out);
    /* The body of an error: an HTTP status, the field at fault (may be NULL). NULL: api_chat's. */
    void (*error)(int status, const char *why, const char *field, struct buf *out);
};

extern const struct api api_chat, api_completions, api_messages, api_responses;

/* Takes body (also on failure). defaults: the server's. */
int ask_create(const struct api *api, json_t *body, bool counting,
               const struct conv_request *defaults, struct ask **out, const char **field,
               struct err *e);
void ask_free(struct ask *a);
/* The request of choice i; borrowed from a. */
struct conv_request ask_request(const struct ask *a, int i);

/* A token's text as JSON, and its log probability: {"token", "logprob", "bytes"}. */
json_t *ask_token(const struct ask *a, int32_t id);
json_t *ask_logprob(const struct ask *a, const struct conv_logprob *l);

/* Sampling parameters, which every shape takes by the same names, and the stream's switch. */
void ask_sampling(struct ask *a, struct fields *f);
/* Log probabilities of choice c that are not told yet, which then are: those that came so far, or
 * (r) all to the end. *n: of how many tokens; NULL when there are none. Until the next call. */
const struct conv_logprob *ask_untold(const struct ask *a, struct choice_out *c,
                                      const struct chat_result *r, size_t *n);
/* Writes the messages, and the tools (NULL or empty: none), that the model is asked with. */
void ask_messages(struct ask *a, const json_t *list);
void ask_tools(struct ask *a, const json_t *list);
/* Tokens of all choices; a prompt that is asked for several counts once. */
void ask_totals(const struct ask *a, const struct chat_result *const *r, int n, int *input,
                int *cached, int *output);
/* The body of an error in the shape of api. */
void ask_error(const struct api *api, int status, const char *why, const char *field,
               struct buf *out);
void choice_free(struct choice_out *c);

/* "event: NAME\ndata: JSON\n\n"; name NULL: data alone. Takes v. */
void sse_event(const char *name, json_t *v, struct buf *out);

#endif
