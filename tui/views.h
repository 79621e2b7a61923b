#ifndef QUASAR_TUI_VIEWS_H
#define QUASAR_TUI_VIEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/keys.h"
#include "tui/figures.h"
#include "tui/logbook.h"
#include "tui/panel.h"
#include "tui/sensors.h"
#include "tui/theme.h"
#include "tui/tui.h"
#include "tui/view_listen.h"
#include "tui/view_log.h"
#include "tui/view_stats.h"

/*
 * The views that take the whole body of the screen, and what they show: the history of
 * figures, the log, the listener's requests. UI thread only, but for the log.
 */
enum view_id { VIEW_NONE, VIEW_STATS, VIEW_LOG, VIEW_LISTEN, VIEW_COUNT };

struct app;

/* One view. Another one is another such table, in its own file. */
struct view_ops {
    enum key_ctx ctx; /* its keys */
    /* Exactly rows rows of at most cols cells. */
    void (*layout)(struct app *a, int cols, int rows, struct text_rows *out);
    /* What its keys ask for; false: it does not know that. */
    bool (*act)(struct app *a, enum action act);
};

struct views {
    enum view_id open;
    struct text_rows rows; /* as last drawn */
    int n_rows, cols;

    struct hist *hist;
    struct view_load load; /* as last taken */
    struct view_kv kv;
    struct sensors *sensors;
    int64_t asked_at; /* when they were asked last */
    struct logbook *log;
    struct requests *requests; /* borrowed; NULL: there is no listener */

    struct stats_view stats;
    struct log_view log_view;
    struct listen_view listen;
};

struct views *views_create(const struct tui_opts *o);
void views_free(struct views *v);

/* The keys of what is open; 0: nothing is. */
unsigned views_ctx(const struct app *a);
void views_open(struct app *a, enum view_id which); /* VIEW_NONE closes */
/* Opens it, or closes it when it is open. */
void views_toggle(struct app *a, enum view_id which);
/* Panel, statistics, closed, in turn. panel: it can be seen; the answer: it is to be seen. */
bool views_cycle(struct app *a, bool panel);
/* Draws what is open. */
void views_draw(struct app *a, int y, int rows, int cols);
/* A key while something is open; false: nothing is, or an action of everywhere, *act. */
bool views_key(struct app *a, const struct key *k, enum action *act);

/* Takes the figures as they are now. Every frame. */
void views_sample(struct app *a);
/* What the panel shows; borrows from a. */
struct panel views_panel(const struct app *a);
/* Figures for the status line, most wanted first; how many. */
#define VIEWS_PARTS 6
int views_parts(const struct app *a, int width, enum role role[VIEWS_PARTS],
                char out[VIEWS_PARTS][PART_SIZE]);

/* Notes a line for the log view. */
void views_log(struct app *a, enum role role, const char *text);
/* What libraries print; the context is the logbook. Any thread. */
void views_printed(void *logbook, const char *p, size_t n);

/* ---- commands ---- */
/* The cache in words. */
void views_kv(struct app *a);
/* What the rounds of the last seconds gave, while one answer alone is made; else 0: tokens, and
 * the share of drafts used. */
void views_pace(const struct app *a, double *tok_round, double *accept);
/* /listen ADDRESS, or off. */
void views_listen(struct app *a, const char *args);

#endif
