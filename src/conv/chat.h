#ifndef QUASAR_CONV_CHAT_H
#define QUASAR_CONV_CHAT_H

#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "conv/conv.h"
#include "conv/disk.h"
#include "conv/form.h"
#include "conv/keeper.h"
#include "conv/landed.h"
#include "conv/post.h"
#include "conv/prompt.h"
#include "conv/record.h"
#include "conv/settings.h"
#include "conv/split.h"
#include "sched/sched.h"
#include "view/snap.h"

/* The insides of a conv: shared by conv.c (threads, commands, the reader's side)
 * and turn.c (one exchange, the worker's side). */

/* IN_ASIDE: as IN_SEND, but neither the question nor the answer becomes part of anything. */
enum input_kind { IN_SEND, IN_ASIDE, IN_MESSAGES, IN_TEXT, IN_IDS };

/* A prompt that was made before its turn was asked for. Constant once made. */
struct conv_prepared {
    atomic_int holders;
    enum input_kind kind;
    json_t *tools;
    struct tok_ids ids;
    struct prompt_shape shape;
};

/* A turn that was asked for. */
struct input {
    enum input_kind kind;
    uint64_t serial; /* of the chat's turns, from 1 */
    int64_t asked;   /* when */
    struct buf text; /* what the user said, or the messages */
    struct buf tools;
    struct tok_ids ids;
    struct conv_prepared *prepared; /* NULL: the prompt is still to be made of the others */
    struct settings settings;
    bool announced; /* CE_QUEUED was posted */
    struct input *next;
};

/* The exchange under way. Worker thread. */
struct turn {
    struct input *in; /* NULL: none */
    struct job *job;
    json_t *messages; /* the conversation it asks about */
    json_t *tools;
    struct split split;
    bool splitting;
    bool started;          /* the job left the scheduler's queue */
    struct split_out said; /* everything so far */
    size_t posted_thought, posted_text, posted_calls, posted_logprobs;
    struct tok_ids ids;
    struct conv_logprob *logprobs; /* [logprobs_cap][n_logprobs], of ids */
    size_t logprobs_cap;
    int n_logprobs;
    struct engine_draw draw;
    struct engine_rules rules;
    int code;     /* why it could not begin */
    bool stopped; /* by a stop string: what still comes is not part of it */
    bool cancel;  /* the reader asked */
    int64_t began, first, saved_at;
    int64_t part_at;                  /* when what is new in the answer was stored last */
    size_t saved_calls;               /* tool calls that are stored */
    int64_t thought_from, thought_to; /* when the first and the last token of it came; 0: none */
    int cached, total;
};

/* The way of a chat's state to disk and back. Worker thread. */
struct saving {
    struct transfer *out;       /* being copied out of the engine */
    struct live *left;          /* what it is copied from, when the chat has another one by now */
    int64_t out_conv, out_turn; /* where it belongs */
    struct transfer *in;        /* on its way into it … */
    struct keep_task *found;    /* … out of this one's file */
    int64_t turn;               /* the answer that the live state stands after; 0: none is stored */
    int64_t due;                /* when to save it; 0: it is saved, or there is none */
    bool wanted;                /* a saved one is to be loaded when the model is there */
    bool loading, saving;       /* the keeper is at it */
    bool asked;                 /* the reader waits for CE_SAVED */
};

/* A message that waits. */
struct waiting_text {
    struct buf shown, message;
};
struct waiting_list {
    struct waiting_text *v;
    size_t n;
};

/* What is to be sent when the turn is over, as it is stored. Worker thread. */
struct waiting {
    struct waiting_list list; /* the reader's */
    int64_t conv, turn;       /* where it is stored; conv 0: nothing is */
    bool changed;             /* it is not stored as it is here */
    int64_t retry_at;         /* when to try again what failed; 0: nothing did */
};

/* What is being written, as it is stored. Worker thread. */
struct drafting {
    struct buf text;    /* empty: nothing is */
    int64_t conv, turn; /* where it is stored; conv 0: of none yet; -1: nowhere */
    bool changed;       /* it is not stored as it is here */
    int64_t retry_at;   /* when to try again what failed; 0: nothing did */
};

/* A stored conversation that a chat goes on with; made by the reader's thread. */
struct resume {
    int64_t conv, last;
    struct session_lock *lock; /* owned */
    char *model, *system;      /* as stored; owned */
    json_t *messages;          /* owned */
    struct buf notice;         /* lines for the user */
    struct waiting_list queue; /* what waits there … */
    int64_t queue_after;       /* … after this turn */
    struct buf draft;          /* what is being written there … */
    int64_t draft_after;       /* … after this turn */
};

/* To where the events of some chats go. */
struct conv_reader {
    struct conv *conv;
    struct post *post;
    struct chat *first;       /* the reader's thread */
    struct conv_reader *next; /* worker */
    sem_t dropped;            /* by the worker */
};

struct chat {
    struct conv *conv;
    struct conv_reader *reader;
    struct chat *next, **prev; /* of the reader; its thread */

    /* the reader's thread */
    struct settings settings;
    uint64_t asked, ended; /* turns */
    bool freed;
    bool system_stored; /* the system prompt is a stored conversation's */
    struct chat_result *last;
    struct buf draft;          /* of where it was resumed at */
    struct waiting_list queue; /* … and what waits there */

    /* any thread */
    struct snap view;

    /* worker */
    struct input *inputs; /* oldest first */
    json_t *messages;     /* what was said, without the system prompt */
    struct live *live;
    struct record_chat record;
    struct saving saving;
    struct drafting drafting;
    struct waiting waiting;
    struct turn turn;
    struct view_chat figures;
    bool uncounted;           /* figures.context_used is to be counted … */
    struct settings counting; /* … as it would be asked with these */
    bool closing;
};

enum cmd_kind {
    CMD_CREATE,
    CMD_INPUT,
    CMD_STOP,
    CMD_CLEAR,
    CMD_REWIND,
    CMD_RESUME,
    CMD_SAVE,
    CMD_FLUSH,
    CMD_DRAFT,
    CMD_QUEUE,
    CMD_BUDGET,
    CMD_FREE,
    CMD_READER,
    CMD_READER_GONE
};

struct cmd {
    enum cmd_kind kind;
    struct chat *chat;
    struct input *input;
    struct resume *resume;
    struct conv_reader *reader;
    uint64_t serial;
    size_t keep;               /* CMD_REWIND: messages */
    uint64_t budget;           /* CMD_BUDGET */
    struct buf draft;          /* CMD_DRAFT */
    struct waiting_list queue; /* CMD_QUEUE */
    struct settings settings;  /* CMD_REWIND, CMD_RESUME: of the next turn */
    struct cmd *next;
};

struct conv {
    /* constant after conv_open */
    struct conv_opts opts;    /* strings owned */
    struct settings settings; /* of a new chat */
    char *dir;                /* of sessions */
    struct lock_set *locks;   /* of the conversations that are open */
    struct landed *landed;
    struct forms *forms; /* any thread */
    int wake_fd;         /* eventfd: commands, engine, room for events */
    pthread_t worker;
    struct conv_reader screen;

    pthread_mutex_t lock; /* cmds, quit */
    struct cmd *cmds, **cmds_end;
    bool quit;

    atomic_bool failed;           /* to load the model */
    atomic_uint_least64_t budget; /* of saved states, as conv_opts.state_budget */

    /* any thread */
    struct snap model;

    /* worker */
    struct sched *sched;
    struct disk *disk; /* NULL: no states on disk */
    enum sched_state state;
    double progress;
    struct prompt prompt;
    struct record record;
    int64_t retry_at;      /* when to write again what could not be written */
    struct keeper *keeper; /* NULL: states are not saved */
    bool keep_failed;      /* that they cannot be was told */
    struct err lost; /* what a chat that went on or is gone could not write; code 0: nothing */
    uint8_t compat[STATE_COMPAT];
    char label[STATE_LABEL_SIZE];
    struct conv_reader *readers; /* beside screen */
    struct chat **chats;
    size_t n_chats, cap_chats;
};

/* ---- turn.c; worker thread ---- */

/* Moves the chat's work on as far as it goes without waiting. */
void chat_work(struct chat *t);
/* Stops the turn of that serial, under way or waiting. */
void chat_work_stop(struct chat *t, uint64_t serial);
/* Drops every waiting turn and stops the one under way. */
void chat_work_close(struct chat *t);
bool chat_working(const struct chat *t);
void chat_work_clear(struct chat *t);
/* Writes what could not be written; says whether that worked. */
void chat_work_flush(struct chat *t);
void chat_work_rewind(struct chat *t, size_t keep);
/* The context is to be counted anew, as a turn with these settings would ask; copied. */
void chat_work_recount(struct chat *t, const struct settings *set);
/* Goes on with a stored conversation; takes what r owns. */
void chat_work_resume(struct chat *t, struct resume *r);
/* Frees the worker's part. Not while working. */
void chat_work_free(struct chat *t);

/* Lets readers see the figures as they are now. */
void chat_publish(struct chat *t);

void input_free(struct input *in);
/* Parses what a turn of IN_MESSAGES asks about; the caller releases both, also on failure. */
int input_messages(const char *messages, size_t messages_n, const char *tools, size_t tools_n,
                   json_t **messages_out, json_t **tools_out, struct err *e);
/* One line for the user, of a chat or (NULL) of all. */
void conv_notice(struct conv *c, struct chat *t, const char *text);
/* Posts what the record has to say. */
void conv_record_news(struct conv *c, struct chat *t);
/* The answer as a message; calls: the array of calls, borrowed, may be NULL. */
json_t *answer_as_message(const char *text, size_t text_n, const char *thought, size_t thought_n,
                          json_t *calls);

/* ---- waiting.c ---- */

void waiting_list_add(struct waiting_list *l, const char *shown, size_t shown_n,
                      const char *message, size_t message_n);
void waiting_list_copy(struct waiting_list *to, const struct waiting_list *from);
void waiting_list_free(struct waiting_list *l);
/* Worker thread: l, which is taken, is what waits from now on. */
void waiting_set(struct chat *t, struct waiting_list *l);
/* It was found stored after a turn. Taken. */
void waiting_found(struct chat *t, int64_t conv, int64_t turn, struct waiting_list *l);
/* Stores it, and the questions that have not begun, where the chat stands now, if it is not. */
void waiting_work(struct chat *t);
/* The questions that have not begun will not: they wait like the others. */
void waiting_close(struct chat *t);
/* Forgets it, here: it stays stored where it is. */
void waiting_leave(struct chat *t);

/* ---- drafting.c; worker thread ---- */

void drafting_init(struct chat *t);
/* text, which is taken, is what is being written from now on. */
void drafting_set(struct chat *t, struct buf *text);
/* It was found stored after a turn. Taken. */
void drafting_found(struct chat *t, int64_t conv, int64_t turn, struct buf *text);
/* Stores it where the chat stands now, if it is not. */
void drafting_work(struct chat *t);
/* Forgets it, here: it stays stored where it is. */
void drafting_leave(struct chat *t);

/* ---- saving.c; worker thread ---- */

/* The engine holds a state after a turn that is on disk (0: after something else). */
void saving_turn_over(struct chat *t, int64_t turn);
/* The chat is about to forget its conversation. */
void saving_leave(struct chat *t);
/* It goes on with another, with a state of that one if there is one (load). */
void saving_restart(struct chat *t, bool load);
/* Moves copies and files on; with flush without waiting for a quiet moment. */
void saving_work(struct chat *t, bool flush);
/* Something is still on its way. */
bool saving_busy(const struct chat *t);
/* A state is being loaded, which the next turn waits for. */
bool saving_loading(const struct chat *t);
/* What the keeper has done. */
void saving_done(struct keep_task *task);
void saving_free(struct chat *t);

/* ---- resume.c ---- */

void resume_free(struct resume *r);
/* The store of the options, for one piece of work; QE_USAGE without conv_opts.save. Any thread. */
int conv_open_store(const struct conv *c, struct store **out, struct buf *notice, struct err *e);

/* ---- conv.c; the reader's thread ---- */

/* Queues it; taken. */
int chat_ask(struct chat *t, struct input *in, struct err *e);
void conv_command(struct conv *c, struct cmd *cmd);

/* Lets the worker go on with it; r is taken. */
void conv_command_resume(struct chat *t, struct resume *r);

#endif
