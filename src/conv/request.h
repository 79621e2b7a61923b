#ifndef QUASAR_CONV_REQUEST_H
#define QUASAR_CONV_REQUEST_H

#include "conv/conv.h"

/*
 * Requests of clients: each says all it wants, and nothing of it is stored or gone on with.
 * Their events go to a reader of their own, which is another thread's than conv_next's; that
 * thread makes, asks and frees the chats of it. They never take the slot that is kept for the
 * screen, and start from states that prefill left, as if cold (docs/reuse.md).
 */
struct conv_reader;

int conv_reader_create(struct conv *c, struct conv_reader **out, struct err *e);
/* Frees its chats, stops their turns and waits for that. Before conv_end; NULL is allowed. */
void conv_reader_free(struct conv_reader *r);
/* As conv_fd and conv_next, of the chats of this reader. What is told of no chat comes to
 * conv_next alone. */
int conv_reader_fd(const struct conv_reader *r);
bool conv_reader_next(struct conv_reader *r, struct conv_event *ev);
/* As chat_create; for chat_request, chat_stop, chat_view, chat_last and chat_free. */
struct chat *conv_reader_chat(struct conv_reader *r);

/* How a request shares the engine with others; zero: as everybody. None of it changes a token. */
struct conv_share {
    uint64_t owner; /* requests with one number share what one owner gets */
    int weight;     /* of the owner's share against others', 1 .. 1000; 0: 1 */
    int slots;      /* most of the owner's requests that run at once; 0: no limit */
    int priority;   /* 0 .. 9: higher ones start first */
    int wait_ms;    /* it ends, QE_CANCELLED, if it has not started by then; 0: it waits on */
    int limit_ms;   /* it is cancelled if it is not over by then; 0: it is not */
};

/* One request. All pointers are borrowed during the call. Exactly one of messages, text and ids
 * is what it asks about. */
struct conv_request {
    const char *messages, *tools; /* JSON arrays, as chat_messages; tools NULL: none */
    size_t messages_n, tools_n;
    const char *text; /* as chat_complete */
    size_t text_n;
    const int32_t *ids; /* as chat_complete_ids */
    size_t n_ids;
    struct conv_prepared
        *prepared; /* made of these by conv_make_prompt; NULL: that is still to do */
    /* as in conv_opts */
    double temp, top_p, min_p;
    int top_k;
    double presence, frequency, repetition;
    int64_t seed;
    int max_tokens, min_tokens;
    const struct conv_bias *bias;
    size_t n_bias;
    int logprobs;
    const char *const *stop;
    size_t n_stop;
    struct conv_form form;
    bool ignore_eos;
    int think, preserve, think_budget;
    struct conv_calls calls;
    const char *effort;
    const char *system; /* before the messages, unless they begin with a system message */
    struct conv_share share;
};

/* As the options of c say; no messages, no text, no ids. Strings and lists stay c's, until
 * conv_end. */
struct conv_request conv_request_default(const struct conv *c);

/* Asks; the events of the answer follow. A first CE_PREFILL with nothing done says that the
 * prompt is accepted, a second one how much of it need not be computed; a request that cannot be
 * answered ends before that, with a code. The chat answers its requests in order. QE_USAGE: a
 * value that cannot be (named, with what is allowed). QE_NOMEM: too long. */
int chat_request(struct chat *t, const struct conv_request *q, struct err *e);

/* The tokens of a request's prompt, made by whoever has the time: rendering and tokenizing a
 * long one takes seconds, in which no answer of others could go on. It depends on what the request
 * asks about, and on think, preserve, effort and system; several requests may have the same one.
 * Any thread; *tokens (its length) is set also when it is too long for the window (QE_NOMEM).
 * QE_BUSY: the model is not loaded yet. QE_FORMAT, QE_USAGE: the request is wrong. */
struct conv_prepared;
int conv_make_prompt(struct conv *c, const struct conv_request *q, struct conv_prepared **out,
                     int *tokens, struct err *e);
/* NULL is allowed; any thread, also while requests with it live. */
void conv_prepared_free(struct conv_prepared *p);

/* Reads the model file again and compares its weights with their digests; seconds per GiB. Any
 * thread. QE_FORMAT: they differ. */
int conv_check_weights(const struct conv *c, struct err *e);

/* How many tokens its prompt has, as chat_result.prompt_tokens would say; any thread, beside all
 * that is answered. QE_BUSY: the model is not loaded yet. QE_FORMAT, QE_USAGE: the request is
 * wrong. */
int conv_count_tokens(struct conv *c, const struct conv_request *q, int *out, struct err *e);

/* The model's tokens of a text (special ones count when special is set), and the text of tokens;
 * appended. Any thread. QE_BUSY: not loaded yet; QE_USAGE: no such token. */
int conv_tokenize(struct conv *c, const char *text, size_t n, bool special, int32_t **ids,
                  size_t *n_ids, struct err *e);
int conv_detokenize(struct conv *c, const int32_t *ids, size_t n, struct buf *out, struct err *e);

#endif
