#ifndef QUASAR_CONV_CONV_H
#define QUASAR_CONV_CONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "view/load.h"
#include "view/tools.h"
#include "view/view.h"

/*
 * Conversations: the only place where text, tokens, the engine and the disk
 * meet. A conv owns the loaded model and the engine thread; a chat is one
 * conversation in it. Nothing here waits for the engine: requests are queued,
 * and what happens comes back as events, read by one thread.
 */
struct conv;
struct chat;

struct conv_bias {
    int32_t id;
    float value; /* added to the token's logit; -100 .. 100 */
};

/* What an answer must be, by grammar/grammar.h: any JSON object, a value of a JSON schema, what a
 * regular expression or a grammar describes, one of an array of strings. */
enum conv_form_kind { CF_NONE, CF_OBJECT, CF_SCHEMA, CF_REGEX, CF_CHOICE, CF_GRAMMAR };
struct conv_form {
    enum conv_form_kind kind;
    bool strict; /* of a schema: what cannot be kept is refused, not left out */
    const char *text;
    size_t n;
};

/* Which tools an answer may, or must, call. */
enum conv_call_kind { CK_AUTO, CK_ANY, CK_NAMED };
struct conv_calls {
    enum conv_call_kind kind;
    const char *only;    /* CK_NAMED: the tool */
    const char *allowed; /* the names of those that may be called, a line break after each; NULL:
                            all */
    const char *strict;  /* … of those whose calls are kept to their schemas; NULL: none */
    bool single;         /* at most one call */
};

struct be_script;

struct conv_opts {
    const char *model;              /* path of the model file */
    const char *backend, *isa, *kv; /* as the options; NULL: auto */
    const struct be_script *script; /* what is said instead of the model; outlives it */
    const char *fallback;           /* why no GPU was chosen, for view_model; NULL */
    const char *cuda_path;          /* as the option; NULL: auto */
    int device, threads, ctx, slots;
    int queue;                   /* turns that may wait for a slot; 0: four times the slots */
    int graphs;                  /* CUDA graphs kept; 0: the engine's default, negative: none */
    const char *spec;            /* as the option; NULL: auto */
    int draft;                   /* drafts of every round; 0: as measured */
    int max_draft, verify_width; /* as engine_opts */
    const char *draft_head;      /* as the option; NULL: auto */
    int64_t prefix_memory;       /* bytes for kept states; 0: auto, negative: none are kept */
    int prefix_every;            /* tokens between two of them; 0: auto, negative: none */
    const char *prefix_dir;      /* folder for states on disk; NULL: none are there */
    int64_t prefix_disk;         /* bytes of its files; 0: 16 GiB */
    int prefix_least;            /* tokens of the shortest that is written; 0: 1024 */
    bool cache_generated;        /* those that answers left are for everybody */
    bool fast_head;
    bool verify_weights;
    const char *template;    /* NULL: the model's own; a name, or a template file */
    const char *effort;      /* NULL: default */
    int think, preserve;     /* -1 default */
    int think_budget;        /* tokens of a thought at most; -1: as many as it likes */
    bool strict_calls;       /* of tool calls only the shape that the model was taught counts */
    const char *tool_misses; /* file for answers with calls that were missed; NULL: none */
    const char *system;      /* NULL: none */
    /* sampling; a NaN or -2 means the model's default */
    double temp, top_p, min_p;
    int top_k;
    double presence, frequency, repetition;
    int64_t seed;   /* -1: a fresh one per turn */
    int max_tokens; /* -1: to the end of the window */
    int min_tokens; /* neither an end nor a stop text before so many */
    const struct conv_bias *bias;
    size_t n_bias;
    int logprobs; /* -1: none; else also of so many of the likeliest tokens */
    const char *const *stop;
    size_t n_stop;
    struct conv_form form; /* of every answer */
    bool ignore_eos;       /* go on past the end-of-turn token */
    bool save;             /* keep the transcript in the catalogue of conversations */
    bool save_state; /* and the engine's state beside it, so that it can be gone on with at once */
    uint64_t state_budget; /* bytes of all saved states; UINT64_MAX: a part of the disk */
    const char *directory; /* where conversations are begun; NULL: not noted */
};

/* Everything at its default; model is NULL and must be set. Whatever the options
 * point to is copied by conv_open. */
struct conv_opts conv_opts_default(void);

enum conv_event_kind {
    CE_LOADING, /* progress 0..1 */
    CE_READY,   /* the model can answer; view_model is filled */
    CE_FAILED,  /* loading failed: text says why; nothing more will come */
    CE_QUEUED,  /* a turn waits for the engine */
    CE_PREFILL, /* progress 0..1; done, total tokens */
    CE_THOUGHT, /* text: more of the thought */
    CE_TEXT,    /* text: more of the answer */
    CE_TOOL,    /* text: one whole tool call as JSON {name, arguments} */
    CE_END,     /* the turn is over and stored; reason; text on CE_R_ERROR */
    CE_NOTICE,  /* text: one line that the user should see; chat may be NULL */
    CE_SAVED,   /* chat_save: the state is on disk, or a CE_NOTICE said why not */
    CE_STORED,  /* chat_flush: text: why something is not on disk; empty: all of it is */
    CE_COUNTED  /* chat_resume, chat_rewind: view_chat.context_used is of what is left now */
};
enum conv_reason { CE_R_STOP, CE_R_LENGTH, CE_R_CANCELLED, CE_R_TOOL, CE_R_ERROR };
/* "stop", "length", "cancelled", "tool_calls", "error". */
const char *conv_reason_word(enum conv_reason r);

/* Text pieces are whole characters. text is owned by the event. */
struct conv_event {
    enum conv_event_kind kind;
    struct chat *chat; /* NULL for loading events */
    enum conv_reason reason;
    int code; /* CE_FAILED, and CE_END of a turn that could not begin: a status of base/err.h */
    double progress;
    int done, total; /* CE_PREFILL; CE_THOUGHT and CE_TEXT: done tokens are drawn by now */
    struct buf text;
    struct buf logprobs; /* CE_THOUGHT and CE_TEXT, where they are wanted: struct conv_logprob of
                            the tokens since the event before, as chat_result.logprobs */
};
void conv_event_fini(struct conv_event *ev);

/* Returns at once; the model loads behind it (CE_LOADING … CE_READY). */
int conv_open(const struct conv_opts *o, struct conv **out, struct err *e);
/* Stops every turn, waits for the engine thread, frees all chats. False: something that was said
 * and was to be kept could not be written to the end, and is gone. */
bool conv_close(struct conv *c);
/* The same; on QE_IO *e says of which conversation, and why. */
int conv_end(struct conv *c, struct err *e);

/* Readable (poll) when events wait. */
int conv_fd(const struct conv *c);
/* Takes the next event; false when there is none now. */
bool conv_next(struct conv *c, struct conv_event *ev);
/* Waits up to timeout_ms (-1: for ever) for one; false on timeout. */
bool conv_wait(struct conv *c, struct conv_event *ev, int timeout_ms);

/* All functions below are called by the thread that reads the events, except the
 * two views, which any thread may take.
 *
 * Latest figures; never blocks. Model name and so on are empty before CE_READY. */
void conv_view_model(const struct conv *c, struct view_model *out);
void chat_view(const struct chat *t, struct view_chat *out);
/* All that the engine did, and who has its cache; the tags are numbers of conversations. Zero
 * before the model was loaded. Any thread. */
void conv_view_load(const struct conv *c, struct view_load *out);
void conv_view_tools(const struct conv *c, struct view_tools *out);
void conv_view_kv(const struct conv *c, struct view_kv *out);

struct chat *chat_create(struct conv *c);
void chat_free(struct chat *t);
/* Queues one user turn; its events follow. Turns of one chat are answered in
 * order. Works before CE_READY too. QE_NOMEM when the text is longer than
 * CHAT_TEXT_MAX; one that does not fit the window ends with CE_R_ERROR. A turn
 * that ends without a word of an answer leaves the conversation as it was. */
#define CHAT_TEXT_MAX (16 << 20)
/* QE_IO: what was said before cannot be written (view_chat.stuck); it is tried again at once, and
 * CE_STORED tells. */
int chat_send(struct chat *t, const char *text, size_t n, struct err *e);
/* Asks about the conversation and leaves it as it is: neither the question nor the answer is stored
 * or becomes part of it. Events as of chat_send. */
int chat_aside(struct chat *t, const char *text, size_t n, struct err *e);
/* Replaces the conversation by a JSON array of messages and queues the answer to
 * it. tools: JSON array of tool definitions, or NULL. */
int chat_messages(struct chat *t, const char *messages, size_t n, const char *tools, size_t n_tools,
                  struct err *e);
/* Queues the bare continuation of a text, or of token ids: no template, nothing
 * of it becomes part of the conversation. Special tokens in the text count. */
int chat_complete(struct chat *t, const char *text, size_t n, struct err *e);
int chat_complete_ids(struct chat *t, const int32_t *ids, size_t n, struct err *e);
/* Stops the running turn (CE_END, cancelled, what was said stays); a turn that
 * only waits is dropped. No effect when idle. */
void chat_stop(struct chat *t);
/* Forgets the conversation and starts a new one. Only when idle. */
void chat_clear(struct chat *t);
/* Goes back to the conversation's first `keep` messages (a question and its answer are
 * two): the next turn is a new branch there. What followed stays stored, and the conversation
 * stands where it stood until that turn has an answer. Only when idle. */
void chat_rewind(struct chat *t, size_t keep);
/* Saves the engine's state now, as it otherwise is when the chat has been idle for some
 * seconds, and when it is freed. CE_SAVED follows, once. */
void chat_save(struct chat *t);
/* Tries now to write the text that could not be written. CE_STORED follows, once; what is not
 * on disk then is lost when the chat leaves its conversation (chat_clear, chat_resume). */
void chat_flush(struct chat *t);

/* ---- stored conversations ---- */

/* A turn of a stored conversation; what is pointed to lives during the call. */
struct conv_turn {
    bool user; /* else the model */
    const char *text, *thought;
    size_t text_n, thought_n;
    const char *calls;  /* a JSON array of tool calls; NULL: none */
    const char *finish; /* as conv_reason_word, or "interrupted"; NULL: of a user's turn */
    int64_t created;    /* seconds since 1970 */
    int tokens;         /* drawn */
    int thought_tokens; /* of those; negative: not known */
    double thought_s;   /* how long it took; negative: not known */
};

/* A stored conversation; title lives during the call. */
struct conv_stored {
    int64_t id, updated; /* seconds since 1970 */
    const char *title;
    int turns;           /* questions, of every branch; -1: they could not be counted */
    int64_t state_bytes; /* of its saved states; 0: only the text is there */
    bool pinned;
    int recovered; /* tokens of an answer that was cut off and not seen since; -1: none */
};
/* Those on disk, latest first, at most limit. The reader's thread; QE_USAGE without
 * conv_opts.save. */
int conv_list(struct conv *c, int limit, bool (*fn)(void *ctx, const struct conv_stored *s),
              void *ctx, struct err *e);
/* Gives a stored conversation a name; keeps its states longest, or no longer; deletes its saved
 * states (*bytes: how much that freed), so that what was said is read again. The reader's thread;
 * errors as conv_list's, QE_NOTFOUND, and QE_USAGE for what cannot be a name. */
int conv_rename(struct conv *c, int64_t conversation, const char *name, struct err *e);
int conv_pin(struct conv *c, int64_t conversation, bool pinned, struct err *e);
int conv_forget(struct conv *c, int64_t conversation, uint64_t *bytes, struct err *e);

/* A copy of a conversation as it is on disk now, whoever has it open; *copy is its number. */
int conv_fork(struct conv *c, int64_t conversation, int64_t *copy, struct err *e);
/* The one that a word means: a number, a name, a title or the beginning of one. QE_NOTFOUND tells
 * of those with a similar name, QE_USAGE of those that it may mean. */
int conv_find(struct conv *c, const char *what, int64_t *conversation, struct err *e);

/* One of them, or none, which is QE_NOTFOUND. */
int conv_get(struct conv *c, int64_t conversation,
             bool (*fn)(void *ctx, const struct conv_stored *s), void *ctx, struct err *e);

/* Goes on with a stored conversation, whose turns are told one by one; its system prompt
 * holds unless one was set. Only when idle, with conv_opts.save. The chat leaves the
 * conversation it was in, which stays stored; when this fails it is where it was.
 * The engine's state is loaded behind it: the next turn waits for that. QE_BUSY: another
 * process has it open, or another chat that branch. QE_NOTFOUND. */
int chat_resume(struct chat *t, int64_t conversation,
                void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e);
/* The same on the branch that ends with a turn (conv_branch.tip), which from now on is where the
 * conversation stands. It may be the chat's own conversation. */
int chat_resume_at(struct chat *t, int64_t conversation, int64_t tip,
                   void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e);

/* A branch of a stored conversation; head lives during the call. */
struct conv_branch {
    int64_t conversation, tip; /* tip: the turn to go on after */
    int number, from;          /* from 1; the one it leaves, 0: none */
    int turns;                 /* questions of its own */
    const char *head;          /* the beginning of the first of them */
    bool current;              /* the conversation stands on it */
};
/* Those of several conversations, in their order. As conv_list. */
int conv_branches(struct conv *c, const int64_t *conversation, size_t n,
                  bool (*fn)(void *ctx, const struct conv_branch *b), void *ctx, struct err *e);
/* Where a turn can be read: *tip is `at` (a turn, 0: where the conversation stands) when the turn
 * is on the way to that, else the turn to go on after of the branch that it is on; *before: how
 * many messages come before it. As conv_list, and QE_NOTFOUND: the conversation has no such turn.
 */
int conv_leads_to(struct conv *c, int64_t conversation, int64_t turn, int64_t at, int64_t *tip,
                  int *before, struct err *e);
/* Whether another process has a conversation open: its number, -1 when that is not known, 0: none
 * has. */
int conv_elsewhere(const struct conv *c, int64_t conversation);
/* Keeps what is being written, to follow where the chat stands; n 0: nothing is. The bytes mean
 * something to the caller only. Returns at once; nothing happens without conv_opts.save. */
void chat_draft(struct chat *t, const char *p, size_t n);
/* What was being written where the chat was resumed at; empty: nothing. Until it is resumed again.
 */
const struct buf *chat_draft_of(const struct chat *t);
/* A message that is to be sent when the answers before it are over. */
struct conv_queued {
    const char *shown, *message; /* as the screen shows it, and as it is sent */
    size_t shown_n, message_n;
};
/* Keeps what waits, in its order, with the branch that the chat is on, in the place of what did
 * before: on disk, so that no end of the program loses it. Returns at once; nothing happens
 * without conv_opts.save. Nothing of it is sent. */
void chat_queue(struct chat *t, const struct conv_queued *q, size_t n);
/* The i-th that waited where the chat was resumed at (borrowed until it is resumed again); false:
 * there are no more. */
bool chat_queued(const struct chat *t, size_t i, struct conv_queued *out);
/* Takes what was being written to begin a conversation with by a process that is gone. */
void conv_draft_adopt(struct conv *c, struct buf *out);
/* What the store takes on the disk, and what saved states may take. As conv_list. */
struct conv_disk {
    uint64_t text, state, budget; /* bytes */
};
int conv_disk(struct conv *c, struct conv_disk *out, struct err *e);
/* What saved states may take from now on, as conv_opts.state_budget: what is over it goes at once,
 * *bytes. As conv_list. */
int conv_set_budget(struct conv *c, uint64_t budget, uint64_t *bytes, struct err *e);
/* The same with the conversation of this name, which is begun if there is none; a number
 * is that of one which exists. */
int chat_session(struct chat *t, const char *name, struct err *e);
bool chat_busy(const struct chat *t);

/* What the model thought of a token, before anything a setting does: its log
 * probability, and 1 + how many tokens are likelier. */
struct conv_logprob {
    int32_t id;
    float logprob;
    int rank;
};

/* One answer as a whole. */
struct chat_result {
    enum conv_reason reason;
    int stop; /* which of the stop texts ended it; -1: none */
    struct buf text, thought;
    struct buf calls; /* tool calls, a JSON array; empty when there are none */
    int32_t *ids;     /* every token drawn, an ending one included */
    size_t n_ids;
    struct conv_logprob *logprobs; /* [n_ids][n_logprobs]: the token, then the likeliest */
    int n_logprobs;                /* 0: not asked for */
    int prompt_tokens, cached_tokens;
    int thought_tokens; /* of ids: those of the thought, with the one that closes it */
    /* Where the cached ones came from ("none", "live", "memory", "disk"); why they were not
     * more ("all", "new", "cold", …), the token that is about, and the same in words. */
    const char *reuse, *reuse_short;
    int reuse_at;
    char reuse_words[160];
    int gave_way; /* times that others got its room meanwhile */
    int rounds;   /* passes of the model that gave a token */
    int drafted, accepted;
    double prefill_s, decode_s;
    struct view_spec spec; /* of the decode rounds */
    uint64_t seed;
};
/* Of the turn whose CE_END was taken last, NULL before the first; borrowed until
 * the next event of this chat is taken. */
const struct chat_result *chat_last(const struct chat *t);
/* Changes one setting for the turns that follow: temp, top-k, top-p, min-p,
 * presence, frequency, repetition, seed, max-tokens, min-tokens (as the options of these names),
 * think (on, off), think-budget, effort, system (any text); the value "default" goes back to the
 * model's own (system: none). QE_USAGE names the key, the value and what is allowed. */
int chat_set(struct chat *t, const char *key, const char *value, struct err *e);
/* What one of those is set to (cut off at the size of out); false: it is the model's own. */
bool chat_get(const struct chat *t, const char *key, char out[64]);

#endif
