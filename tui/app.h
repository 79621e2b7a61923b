#ifndef QUASAR_TUI_APP_H
#define QUASAR_TUI_APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conv/conv.h"
#include "tui/composer.h"
#include "tui/files.h"
#include "tui/history.h"
#include "tui/input.h"
#include "tui/keys.h"
#include "tui/layout.h"
#include "tui/panel.h"
#include "tui/status.h"
#include "tui/tiles.h"
#include "tui/transcript.h"
#include "tui/tui.h"
#include "tui/views.h"

/* The state of the screen: the terminal's side in struct app, one conversation
 * and all that belongs to it in each struct pane. UI thread only. */
struct message {
    struct buf shown, full;
};

enum overlay {
    OV_NONE,
    OV_HELP,
    OV_HISTORY,
    OV_QUEUE,
    OV_FIND,
    OV_SESSIONS,
    OV_STATS,
    OV_PALETTE,
    OV_FILES
};

#define PANES_MAX   TILES_MAX
#define RECENT_MOST 8
#define LEAVE_NEW   (-1) /* for a new conversation, not a stored one of a number */
#define LEAVE_CLOSE (-2) /* the pane goes */

struct app;

/* How a stored conversation ends that its writer did not end. */
enum cut { CUT_NOT, CUT_END, CUT_ALL };

struct pane {
    struct app *app;
    enum cut cut; /* of the last turn that was shown from the store */
    struct chat *chat;
    struct transcript *transcript;
    struct composer *composer;
    struct status status;
    char *name;        /* what the conversation is called; NULL: nothing yet */
    char *branch;      /* "[main]"; NULL: not known */
    int branch_number; /* 0: not known */
    bool renamed;      /* they are not what the store says any more */

    int64_t draft_due;      /* when the draft is to be kept on disk; 0: it is as kept */
    struct buf draft_kept;  /* … as it was the last time */
    struct buf draft_found; /* of where the conversation stands; goes into the composer */

    struct message *queue; /* typed while the model answers */
    size_t n_queue, cap_queue;
    bool held; /* a stop keeps the queue until Enter */

    bool focus; /* the transcript has the keys */

    bool forking;          /* the next message begins a new branch … */
    size_t fork_keep;      /* … after so many messages */
    const char *fork_what; /* what the user asked for */
    struct draft *aside;   /* what was being written before; Esc gives it back */
    bool compacting;       /* this turn's answer is a summary to go on from */
    bool summed;           /* … which the branch begins with */
    size_t before_summary; /* transcript_mark */
    size_t n_messages;     /* that the conversation consists of */
    bool said;             /* this turn will be part of it */

    int64_t leave_tip; /* the branch's last turn, where leave_to is a stored one; 0: as it stands */
    int64_t leave_to;  /* where the user goes once all is on disk; 0: stays */
    int64_t leave_asked; /* where to it was said that something is not */
    bool sending;        /* a message waits for what was said to be written */
    bool stored_known;   /* CE_STORED came … */
    struct buf stored;   /* … with this */

    int64_t seek_in;         /* the conversation whose place is shown once it is there; 0: none */
    long seek_before;        /* … how many messages come before it; -1: not known … */
    struct buf seek_pattern; /* … and what is looked for there */

    struct search *search; /* what is marked in the transcript; NULL: nothing */
    struct buf find_text;  /* its pattern */
    bool find_followed;    /* the view was at the end when the search began */

    bool fresh; /* a conversation without a turn: no figure of the last one holds */
    bool in_turn;
    bool begun; /* the answer of this turn has a block */
    bool thinking;
    int64_t turn_start, prefill_start, thought_start;

    int below; /* rows hidden below the transcript's view */
};

struct app {
    struct conv *conv;
    const struct tui_opts *opts;
    struct theme theme;
    struct keymap *keys;
    bool key_debug;      /* keys are shown, not obeyed */
    int64_t color_asked; /* when the terminal was asked for its background */
    struct history *history;
    struct input *input;
    size_t typed; /* bytes that came from the terminal, its answers too */

    struct pane *panes[PANES_MAX]; /* as numbered on the screen; the rest is NULL */
    size_t n_panes;
    struct pane *cur; /* has the keys */
    struct tiles tiles;
    /* all line editors: their terminal calls would disturb curses later */
    struct composer *composers[PANES_MAX];

    enum overlay overlay;
    struct text_rows help; /* OV_HELP */
    int help_top, help_width;
    unsigned help_ctx;               /* of which keys it tells */
    struct buf query;                /* OV_HISTORY, OV_SESSIONS, OV_PALETTE */
    size_t pick;                     /* entry chosen in a list, from its top */
    size_t list_rows;                /* of it, as last drawn */
    bool picked;                     /* … of one that shows by itself: the user went into it */
    enum action recent[RECENT_MOST]; /* chosen in the palette, the last one first */
    size_t n_recent;
    struct file_names files;    /* OV_FILES … */
    char *file_dir;             /* … of this folder, as it was typed */
    size_t file_word, file_end; /* what they are to take the place of */
    bool file_at;               /* that is an @word: a file becomes a part of the message */
    struct key prefix;          /* first key of a chord */
    bool trying;                /* a key that is whole by itself: nothing is waited for */
    struct key deferred;        /* a key that ends an unfinished command first */
    bool suspend_arm;           /* it was said that answers freeze … */
    bool suspend_told;          /* … and this is the key after */
    bool quit_armed;            /* ^C again leaves */
    bool last_esc;
    bool recalled; /* the command put what is to be the latest into the history: not itself */
    bool asking;   /* the draft was not sent unasked: Enter again sends it */
    bool asked;    /* … and this is the key after */

    struct views *views;
    struct text_rows panel; /* as last drawn */
    struct layout layout;   /* … and where everything was */
    int composer_top;       /* first row of the draft that is shown */
    bool clicks;            /* of the mouse are obeyed, not its wheel alone */
    bool no_panel;          /* the user closed it */

    struct sessions *sessions; /* the list of stored conversations */
    bool no_list;              /* the user closed it where it is docked */

    struct buf note; /* one line for the user, until the next key */
    enum role note_role;

    bool quit;
    int signal; /* that asked for the end */
    struct err failed;

    /* frames */
    bool dirty;  /* something is to be drawn */
    bool urgent; /* … because of a key: without waiting */
    bool redraw; /* everything, from nothing */
    int64_t last_frame, frame_gap;
    int quick_frames;
    int64_t resize_at; /* when the size has been quiet long enough; 0: no resize */
};

/* screen.c: the layout and its frames */
void screen_draw(struct app *a);
/* Rows of the transcript at the present size. */
int screen_page(const struct app *a);
/* Opens or closes the panel of figures; on a narrow screen it takes the transcript's place. */
void screen_panel(struct app *a);

/* chat.c: the main loop */
int64_t app_now(void);
void app_note(struct app *a, enum role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells why what the user asked for was not done. What he can mend (a wrong word, a limit) is a
 * warning; only what the system refused, or what is damaged, counts as an error. */
void app_error(struct app *a, const struct err *e);
/* Leaves the terminal to the shell until the program is continued. */
void app_suspend(struct app *a);
/* How the user gets to an action where he is: a key, a command, or a name. */
const char *app_way(const struct app *a, enum action act);
/* Whether a conversation is at work, or the model is being loaded: the figures change. */
bool app_busy(const struct app *a);

/* dispatch.c: keys to actions */
void dispatch_key(struct app *a, const struct key *k);
void dispatch_action(struct app *a, enum action act);

/* palette.c: actions, commands and what follows them, by name */
void palette_open(struct app *a);
/* Whether it shows, by itself or opened. */
bool palette_shown(struct app *a);
/* Keys of it; true when it was one. */
bool palette_key(struct app *a, const struct key *k);
/* Tab: completes what is being written; false when there is nothing to complete. */
bool palette_complete(struct app *a);
/* What Tab does in what is being written, if it completes; NULL: it does not. */
const char *palette_tab(struct app *a);
/* Over the rows above the activity rule, from top on, and over that. */
void palette_draw(struct app *a, int top, int rule);
/* The entry of the list that is drawn `up` rows above the activity rule (from 0) is chosen; false:
 * there is none. */
bool palette_click(struct app *a, size_t up);
/* Runs the command of an action, or begins it in the composer where it needs words. */
void palette_command(struct app *a, enum action act);

/* overlay.c: lists over the transcript's end */
/* The list that is open above the composer, if one is: its entries (borrowed
 * until the next call or edit), most likely last. */
size_t overlay_list(struct app *a, const char **entry, const char **help, size_t max);
/* Keys of what is open; true when it was one. */
bool overlay_key(struct app *a, const struct key *k);
/* What most lists say of their keys. */
extern const struct key_hint overlay_hints[3];
/* Which keys the open list has; 0: none is open. */
unsigned overlay_ctx(const struct app *a);
/* The action of a key in it. */
enum action overlay_action(const struct app *a, const struct key *k);
/* The entry of the list that is drawn so many rows above its end is picked; when it was already,
 * chosen. */
void overlay_click(struct app *a, size_t up);
/* Keys that edit what a list or a search is asked for; true when it was one. */
bool overlay_query_key(struct app *a, struct buf *query, const struct key *k);

/* mouse.c */
/* "off", "wheel" or "on"; false: it is none of these. */
bool mouse_set(struct app *a, const char *what);
/* A turn of the wheel, or a click where the last frame drew something. */
void mouse_key(struct app *a, const struct key *k);

/* submit.c: drafts */
/* Enter: the draft is a command, or a message that is sent or queued. */
void submit_draft(struct app *a);
/* What could not be written was tried again because of it: sends it, or says why not. */
void submit_settled(struct pane *p);
/* Puts the last queued message into the composer, before what is written there. */
void submit_take_back(struct app *a);
/* Puts a text into the history of prompts. */
void submit_remember(struct app *a, const struct buf *text);
/* Empties the composer; what was in it is in the history. */
void submit_keep_draft(struct pane *p);

/* turn.c: turns of a pane and their events */
void message_free(struct message *m);
void turn_begin(struct pane *p, const struct message *m);
/* Moves the message into the queue. */
void turn_enqueue(struct pane *p, struct message *m);
/* Begins with the first message that waits, if that can be now. */
void turn_send_queued(struct pane *p);
void turn_stop(struct pane *p);
/* Shows in the transcript how many are before the turn, if it waits. */
void turn_wait(struct pane *p);
/* What the conversation tells, for whichever pane it is. */
void turn_event(struct app *a, const struct conv_event *ev);
/* "14:02" */
void turn_clock(char out[8], int64_t seconds);

/* pane.c: a conversation on the screen */
/* A pane without a composer, of a new conversation. */
struct pane *pane_create(struct app *a);
void pane_free(struct pane *p);
/* Fills the transcript from a stored conversation and goes on with it, on the branch that ends
 * with a turn (0: where it stands). */
int pane_resume(struct pane *p, int64_t conversation, int64_t tip, struct err *e);
/* Says how a question of it is asked again that has no answer, or not all of it; once. */
void pane_tell_cut(struct pane *p);
/* Shows lines (NULL: none) as notices. */
void pane_notices(struct pane *p, const char *lines);
/* What the screen opens with. */
int pane_open_first(struct pane *p, struct err *e);
/* Leaves the conversation for LEAVE_NEW or a stored one, or (LEAVE_CLOSE) for good. What could
 * not be saved is tried again first; if that fails the user is told, and asking once more leaves
 * all the same. */
void pane_leave(struct pane *p, int64_t to, int64_t tip);
/* When the pane gets to a conversation (0: to any), it shows a place in it: the message with so
 * many before it, or (-1) where the pattern is found first from the end on. */
void pane_seek(struct pane *p, int64_t conversation, long before, const struct buf *pattern);
/* It got to this one: shows that place, with the search of the transcript on, if that is it. */
void pane_sought(struct pane *p, int64_t conversation);
/* Does what the answer of chat_flush allows. Not while a line editor waits for a key. */
void pane_settle(struct pane *p);
/* Asks the store what the conversation and its branch are called. */
void pane_names(struct pane *p);
/* The draft changed, maybe: it is kept on disk a moment later, or now. */
void pane_draft_changed(struct pane *p);
void pane_draft_keep(struct pane *p);
/* Puts the draft that was found with the conversation into the composer. */
void pane_draft_restore(struct pane *p);

/* panes.c: several of them */
/* From 1. */
size_t panes_number(const struct app *a, const struct pane *p);
/* Splits the pane that has the keys; the new one, of a new conversation, gets them. NULL: there
 * are as many as there can be, which is told. */
struct pane *panes_split(struct app *a, bool beside);
/* Closes the pane that has the keys; all but it; gives the keys to the next. */
void panes_close(struct app *a);
void panes_only(struct app *a);
void panes_other(struct app *a);
void panes_focus(struct app *a, struct pane *p);
/* The pane is taken off the screen, at once. */
void panes_remove(struct pane *p);

/* commands.c */
/* Runs a line that starts with "/"; false: no such command, the line stays. */
bool command_run(struct app *a, const char *line, size_t n);
/* Puts the files that /attach names at the beginning of a line into the draft; words: the line
 * can be sent as it is, which is told when that fails. */
enum attached { ATTACH_NONE, ATTACH_DONE, ATTACH_FAILED };
enum attached command_attach(struct app *a, bool words);
/* Puts a text file in the place of [at, end) of the draft; says what became of that. */
void command_attach_file(struct app *a, size_t at, size_t end, const char *path);
/* Whether the draft, as shown, ends with a command that does not work there; says so. */
bool command_misplaced(struct app *a, const char *shown);
void command_copy(struct app *a, const struct buf *text);
/* The selected message, or the code that is selected in it. */
void command_copy_selected(struct app *a);
/* The selected message's question and all that followed it, as it came. */
void command_copy_turn(struct app *a);
/* Writes the conversation from the selected message on to a new file. */
void command_export_here(struct app *a);
/* Shows the selected message in $PAGER. */
void command_pager(struct app *a);
void command_editor(struct app *a);
/* Begins a new conversation; what is not on disk of this one is lost. */
void command_new(struct pane *p);
void command_help(struct app *a, unsigned ctx);

/* find.c */
/* Opens the search of the transcript; text (may be empty) is looked for at once. */
void find_open(struct app *a, const char *text);
/* Marks a pattern in a pane's transcript, which gets the keys, and goes to where it is in the
 * message with so many before it; -1: in any. */
void find_in(struct pane *p, const char *pattern, long before);
/* Keys while its pattern is typed; true when it was one. */
bool find_key(struct app *a, const struct key *k);
void find_step(struct app *a, int dir);
void find_close(struct pane *p);
/* Over the activity rule. */
void find_draw(const struct app *a, int y);

/* queue.c: the messages that wait */
/* Opens their list, or closes it. */
void queue_open(struct app *a);
/* As overlay_list. */
size_t queue_list(const struct app *a, const char **entry, const char **help, size_t max);
/* Keys of the list; true when it was one. */
bool queue_key(struct app *a, const struct key *k);
/* Takes the i-th into the composer, before what is written there. */
void queue_edit(struct app *a, size_t i);
/* The queue changed: it is kept on disk as it is now. */
void queue_keep(struct pane *p);
/* Takes what waited where the conversation stands: it is shown, and not sent before the user says
 * so, which is told. */
void queue_restore(struct pane *p);

/* sessions.c: the stored conversations, as a tree with their branches */
/* Gives the keys to the list (OV_SESSIONS), which is read anew, and looks for words (may be
 * empty) in it; closes it when it has them. */
void sessions_open(struct app *a, const char *words);
/* Readable (poll) when sessions_found has something to take; -1: nothing is asked. */
int sessions_fd(const struct app *a);
/* Takes what was found in the texts, if it is there. */
void sessions_found(struct app *a);
void sessions_free(struct app *a);
/* Reads the list again if something changed and it is on the screen. */
void sessions_refresh(struct app *a);
/* What is stored changed. */
void sessions_stale(struct app *a);
/* Goes to a stored conversation, where it stands: to the pane that shows it, or in this one. */
void sessions_choose(struct app *a, int64_t id);
/* Goes on with a stored conversation, as command_new. */
void sessions_go_on(struct pane *p, int64_t id, int64_t tip);
/* Keys of the list; true when it was one. */
bool sessions_key(struct app *a, const struct key *k);
/* A click on a row of the list as it was drawn, its head not counted. */
void sessions_click(struct app *a, int row);
/* view_sessions.c */
void sessions_draw(struct app *a, const struct rect *r, bool docked);
/* What its keys are. */
void sessions_hints(const struct app *a, int y, int x, int width);

/* compact.c: going on with less */
/* Takes back the last question, or the one at the selection, and what followed. */
void compact_undo(struct app *a);
/* Asks for a summary, which the next message can go on from. hint may be empty. */
void compact_begin(struct app *a, const char *hint);
/* The turn of compact_begin is over; whole: with an answer. */
void compact_end(struct pane *p, bool whole);

/* Where the user took the summary out of the draft, nothing goes on from it. sending: the draft as
 * shown is about to be sent. */
void compact_settle(struct pane *p, bool sending);

/* branch.c */
/* Each of the question at the selection, or the last (turn 0), or of a number from 1. */
void branch_edit(struct app *a, size_t turn);
void branch_here(struct app *a, size_t turn);
void branch_retry(struct app *a);
/* The user gives it up: the draft is as it was before. */
void branch_cancel(struct app *a);
/* Nothing is going to be forked any more. */
void branch_forget(struct pane *p);
/* A message is about to be sent: goes back to where it belongs. */
void branch_take(struct pane *p);
/* The next message begins the conversation anew as a branch. before: the draft to go back to,
 * taken. */
void branch_from_start(struct pane *p, struct draft *before, const char *what);
/* Over the activity rule, while forking. */
void branch_draw(const struct app *a, int y);

#endif
