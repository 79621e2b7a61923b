#ifndef QUASAR_CONV_CHAT_H
#define QUASAR_CONV_CHAT_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "conv/conv.h"
#include "conv/post.h"
#include "conv/prompt.h"
#include "conv/record.h"
#include "conv/settings.h"
#include "conv/split.h"
#include "sched/sched.h"
#include "view/snap.h"

/* The insides of a conv: shared by conv.c (threads, commands, the reader's side)
 * and turn.c (one exchange, the worker's side). */

enum input_kind { IN_SEND, IN_MESSAGES, IN_TEXT, IN_IDS };

/* A turn that was asked for. */
struct input {
    enum input_kind kind;
    uint64_t serial; /* of the chat's turns, from 1 */
    int64_t asked;   /* when */
    struct buf text; /* what the user said, or the messages */
    struct buf tools;
    struct tok_ids ids;
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
    struct split_out said; /* everything so far */
    size_t posted_thought, posted_text, posted_calls;
    struct tok_ids ids;
    struct conv_logprob *logprobs; /* [logprobs_cap][n_logprobs], of ids */
    size_t logprobs_cap;
    int n_logprobs;
    struct engine_draw draw;
    struct engine_rules rules;
    bool stopped; /* by a stop string: what still comes is not part of it */
    bool cancel;  /* the reader asked */
    int64_t began, first, saved_at;
    int cached, total;
};

struct chat {
    struct conv *conv;

    /* the reader's thread */
    struct settings settings;
    uint64_t asked, ended; /* turns */
    bool freed;
    struct chat_result *last;

    /* any thread */
    struct snap view;

    /* worker */
    struct input *inputs; /* oldest first */
    json_t *messages;     /* what was said, without the system prompt */
    struct live *live;
    struct record_chat record;
    struct turn turn;
    struct view_chat figures;
    bool closing;
};

enum cmd_kind { CMD_CREATE, CMD_INPUT, CMD_STOP, CMD_CLEAR, CMD_FREE };

struct cmd {
    enum cmd_kind kind;
    struct chat *chat;
    struct input *input;
    uint64_t serial;
    struct cmd *next;
};

struct conv {
    /* constant after conv_open */
    struct conv_opts opts; /* strings owned */
    char **stops;
    struct engine_bias *bias; /* opts.n_bias */
    int wake_fd;              /* eventfd: commands, engine, room for events */
    pthread_t worker;
    struct post *post;

    pthread_mutex_t lock; /* cmds, quit */
    struct cmd *cmds, **cmds_end;
    bool quit;

    /* the reader's thread */
    bool failed;

    /* any thread */
    struct snap model;

    /* worker */
    struct sched *sched;
    enum sched_state state;
    double progress;
    struct prompt prompt;
    struct record record;
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
/* Frees the worker's part. Not while working. */
void chat_work_free(struct chat *t);

void input_free(struct input *in);

#endif
