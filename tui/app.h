#ifndef QUASAR_TUI_APP_H
#define QUASAR_TUI_APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conv/conv.h"
#include "tui/composer.h"
#include "tui/history.h"
#include "tui/input.h"
#include "tui/keys.h"
#include "tui/panel.h"
#include "tui/status.h"
#include "tui/transcript.h"
#include "tui/tui.h"

/* The state of the screen, shared by chat.c (loop, keys, events), screen.c
 * (drawing) and commands.c. UI thread only. */
struct message {
    struct buf shown, full;
};

enum overlay { OV_NONE, OV_HELP, OV_HISTORY, OV_FIND, OV_SESSIONS, OV_STATS };

#define LEAVE_NEW (-1) /* for a new conversation, not a stored one of a number */

/* A stored conversation in the list. */
struct stored {
    int64_t id;
    char *title;
    char facts[96];
};

struct app {
    struct conv *conv;
    struct chat *chat;
    const struct tui_opts *opts;
    struct theme theme;
    struct transcript *transcript;
    struct composer *composer;
    struct history *history;
    struct input *input;
    struct status status;

    struct message *queue; /* typed while the model answers */
    size_t n_queue, cap_queue;
    bool held; /* a stop keeps the queue until Enter */

    bool focus; /* the transcript has the keys */
    enum overlay overlay;
    struct text_rows help; /* OV_HELP */
    int help_top, help_width;
    unsigned help_ctx;   /* of which keys it tells */
    struct buf query;    /* OV_HISTORY, OV_FIND */
    size_t pick;         /* entry chosen in a list, from its top */
    struct key prefix;   /* first key of a chord */
    struct key deferred; /* a key that ends an unfinished command first */
    bool quit_armed;     /* ^C again leaves */
    bool last_esc;
    bool asking; /* the draft was not sent unasked: Enter again sends it */
    bool asked;  /* … and this is the key after */

    struct gauges gauges;
    struct text_rows panel; /* as last drawn */
    bool no_panel;          /* the user closed it */

    struct stored *stored; /* OV_SESSIONS, latest first */
    size_t n_stored;

    bool forking;          /* the next message begins a new branch … */
    size_t fork_keep;      /* … after so many messages */
    const char *fork_what; /* what the user asked for */
    struct draft *aside;   /* what was being written before; Esc gives it back */
    size_t n_messages;     /* that the conversation consists of */
    bool said;             /* this turn will be part of it */

    int64_t leave_to;    /* where the user goes once all is on disk; 0: stays */
    int64_t leave_asked; /* where to it was said that something is not */

    struct search *search; /* what is marked in the transcript; NULL: nothing */
    bool find_followed;    /* the view was at the end when the search began */

    struct buf note; /* one line for the user, until the next key */
    enum role note_role;

    bool quit;
    int signal; /* that asked for the end */
    struct err failed;
    bool fresh; /* a conversation without a turn: no figure of the last one holds */
    bool in_turn;
    bool begun; /* the answer of this turn has a block */
    int64_t turn_start, prefill_start, thought_start, load_start;
    bool thinking;

    /* frames */
    bool dirty;  /* something is to be drawn */
    bool urgent; /* … because of a key: without waiting */
    bool redraw; /* everything, from nothing */
    int64_t last_frame, frame_gap;
    int quick_frames;
    int64_t resize_at; /* when the size has been quiet long enough; 0: no resize */
    int below;         /* rows hidden below the transcript's view */
};

/* screen.c */
void screen_draw(struct app *a);
/* Rows of the transcript at the present size. */
int screen_page(const struct app *a);
/* Opens or closes the panel of figures; on a narrow screen it takes the transcript's place. */
void screen_panel(struct app *a);

/* The list that is open above the composer, if one is: its entries (borrowed
 * until the next call or edit), most likely last. */
size_t app_list(struct app *a, const char **entry, const char **help, size_t max);

/* commands.c */
/* Runs a line that starts with "/"; false: no such command, the line stays. */
bool command_run(struct app *a, const char *line, size_t n);
/* Puts the files that /attach names at the beginning of a line into the draft; words: the line
 * can be sent as it is, which is told when that fails. */
enum attached { ATTACH_NONE, ATTACH_DONE, ATTACH_FAILED };
enum attached command_attach(struct app *a, bool words);
/* Whether the draft, as shown, ends with a command that does not work there; says so. */
bool command_misplaced(struct app *a, const char *shown);
void command_copy(struct app *a, const struct buf *text);
void command_editor(struct app *a);
/* Begins a new conversation; what is not on disk of this one is lost. */
void command_new(struct app *a);
void command_help(struct app *a, unsigned ctx);

/* find.c */
/* Opens the search of the transcript; text (may be empty) is looked for at once. */
void find_open(struct app *a, const char *text);
/* Keys while its pattern is typed; true when it was one. */
bool find_key(struct app *a, const struct key *k);
void find_step(struct app *a, int dir);
void find_close(struct app *a);
/* Over the activity rule. */
void find_draw(const struct app *a, int y);

/* sessions.c */
void sessions_open(struct app *a);
/* As app_list. */
size_t sessions_list(const struct app *a, const char **entry, const char **help, size_t max);
/* Goes on with the i-th of the list, from the latest. */
void sessions_pick(struct app *a, size_t i);
void sessions_free(struct app *a);
/* Goes on with a stored conversation, as command_new. */
void sessions_go_on(struct app *a, int64_t id);

/* branch.c */
/* Each of the question at the selection, or the last (turn 0), or of a number from 1. */
void branch_edit(struct app *a, size_t turn);
void branch_here(struct app *a, size_t turn);
void branch_retry(struct app *a);
/* The user gives it up: the draft is as it was before. */
void branch_cancel(struct app *a);
/* Nothing is going to be forked any more. */
void branch_forget(struct app *a);
/* A message is about to be sent: goes back to where it belongs. */
void branch_take(struct app *a);
/* Over the activity rule, while forking. */
void branch_draw(const struct app *a, int y);

/* chat.c */
/* Fills the transcript from a stored conversation and goes on with it. */
int app_resume(struct app *a, int64_t conversation, struct err *e);
void app_start_turn(struct app *a, const struct message *m);
void app_message_free(struct message *m);
/* Empties the composer; what was in it is in the history. */
void app_keep_draft(struct app *a);
/* Lets the gauges see the engine's counters; over: the answer is done. */
void app_gauges(struct app *a, bool over);
/* Keys that edit the query of a list; true when it was one. */
bool app_query_key(struct app *a, const struct key *k);
void app_note(struct app *a, enum role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void app_stop(struct app *a);
/* Leaves the conversation for LEAVE_NEW or a stored one. What could not be saved is tried again
 * first; if that fails the user is told, and asking once more leaves all the same. */
void app_leave(struct app *a, int64_t to);

#endif
