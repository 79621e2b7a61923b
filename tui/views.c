/* The table of views, what is common to them, and the figures that they share. A view
 * covers the body only: title, composer and status line stay. */
#include "config.h"
#include "tui/views.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "tui/app.h"

#define ASK_NS 400000000LL /* between two questions to the sensors */

struct views *views_create(const struct tui_opts *o)
{
    struct views *v = mem_zalloc(sizeof *v);
    v->hist = hist_create();
    v->log = logbook_create();
    v->sensors = sensors_create(o->nvml);
    v->requests = o->requests;
    return v;
}

void views_free(struct views *v)
{
    if (v) {
        sensors_free(v->sensors);
        log_view_fini(&v->log_view);
        text_rows_free(&v->rows);
        logbook_free(v->log);
        hist_free(v->hist);
        free(v);
    }
}

/* ---- figures ---- */

void views_sample(struct app *a)
{
    struct views *v = a->views;
    const int64_t now = app_now();
    const struct view_model *m = &a->cur->status.model;
    struct hist_sample s;
    struct sensors_view sensed;
    conv_view_load(a->conv, &v->load);
    conv_view_kv(a->conv, &v->kv);
    if (now - v->asked_at >= ASK_NS) {
        v->asked_at = now;
        sensors_ask(v->sensors, m->ready && m->gpu >= 0 ? m->device : NULL, m->gpu);
    }
    sensors_get(v->sensors, &sensed);
    s.load = v->load;
    s.gauge[HG_KV] = v->kv.pages > 0 ? 1 - (double)v->kv.pages_free / v->kv.pages : NAN;
    s.gauge[HG_QUEUE] = v->load.waiting;
    s.gauge[HG_GPU_TEMP] = sensed.temp_c;
    s.gauge[HG_GPU_POWER] = sensed.power_w;
    s.gauge[HG_GPU_MEM] = sensed.gpu_used;
    s.gauge[HG_HOST_MEM] = sensed.resident;
    hist_take(v->hist, now, &s);
}

static bool works(const struct app *a)
{
    return a->views->load.running > 0 || a->views->load.waiting > 0;
}

static const char *name_of(void *ctx, int64_t conversation)
{
    const struct app *a = ctx;
    for (size_t i = 0; i < a->n_panes; i++) {
        if (a->panes[i]->status.chat.conversation == conversation) {
            return a->panes[i]->name;
        }
    }
    return NULL;
}

struct panel views_panel(const struct app *a)
{
    const struct status *s = &a->cur->status;
    return (struct panel){.hist = a->views->hist,
                          .now = app_now(),
                          .busy = works(a),
                          .chat = &s->chat,
                          .model = &s->model,
                          .prefilling = s->phase == P_PREFILL,
                          .done = s->done,
                          .total = s->total,
                          .prefill_s = s->prefill_s,
                          .kv = &a->views->kv,
                          .name = name_of,
                          .name_ctx = (void *)(uintptr_t)a,
                          .requests = a->views->requests,
                          .listener_key = keymap_key(a->keys, ACT_LISTENER, CTX_BOTH)};
}

int views_parts(const struct app *a, int width, enum role role[VIEWS_PARTS],
                char out[VIEWS_PARTS][PART_SIZE])
{
    const struct views *v = a->views;
    const struct view_chat *c = &a->cur->status.chat;
    struct sensors_view sensed;
    struct view_listener l = {.on = false};
    if (v->requests) {
        requests_listener(v->requests, &l);
    }
    sensors_get(v->sensors, &sensed);
    const double age = c->saved_at > 0 ? clock_seconds(app_now() - c->saved_at) : -1;
    for (int i = 0; i < VIEWS_PARTS; i++) {
        role[i] = R_TEXT;
    }
    role[0] = role[1] = R_BAD;
    part_saved(c, a->cur->in_turn, age, width >= 100, out[c->saved ? 4 : 0]);
    out[c->saved ? 0 : 4][0] = 0;
    part_log(logbook_unseen(v->log), keymap_key(a->keys, ACT_LOG, CTX_BOTH), out[1]);
    part_kv(&v->kv, out[2]);
    part_http(v->requests ? &l : NULL, width >= 100, out[3]);
    part_gpu(sensed.temp_c, sensed.power_w, out[5]);
    return VIEWS_PARTS;
}

/* ---- statistics ---- */

static struct stats_now now_of(const struct app *a)
{
    return (struct stats_now){app_now(), clock_wall(), works(a)};
}

/* "Left Right time  Space …", by the keys in force; acts and words in pairs, ended by ACT_NONE. */
struct hint {
    enum action act;
    const char *word;
};

static void hints(const struct app *a, unsigned ctx, const struct hint *h, char *out, size_t size)
{
    size_t n = 0;
    const char *gap = "";
    out[0] = 0;
    for (; h->act != ACT_NONE && n < size; h++) {
        const char *key = keymap_key(a->keys, h->act, ctx);
        if (key[0]) {
            n += (size_t)snprintf(out + n, size - n, "%s%s%s%s", gap, key, h->word[0] ? " " : "",
                                  h->word);
            gap = h->word[0] ? "  " : " ";
        }
    }
}

static void stats_view_layout(struct app *a, int cols, int rows, struct text_rows *out)
{
    const struct hint list[] = {{ACT_PREV_BLOCK, ""},
                                {ACT_NEXT_BLOCK, "rows"},
                                {ACT_EARLIER, ""},
                                {ACT_LATER, "time"},
                                {ACT_SPAN, a->views->stats.span == HS_SECONDS ? "24 h" : "10 min"},
                                {ACT_CSV, "CSV"},
                                {ACT_MARK, "averages anew"},
                                {ACT_BACK, "closes"},
                                {ACT_NONE, NULL}};
    char keys[160];
    const struct stats_now t = now_of(a);
    hints(a, CTX_STATS, list, keys, sizeof keys);
    stats_layout(a->views->hist, &a->views->stats, &t, keys, &a->theme, cols, rows, out);
}

/* Never over a file that is there. */
static int write_new(const char *path, const struct buf *b, struct err *e)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd < 0 ? err_sys(e, QE_IO, errno, "cannot write %s", path)
                    : io_write_all(fd, b->data, b->len, path, e);
    if (fd >= 0 && close(fd) < 0 && rc == 0) {
        rc = err_sys(e, QE_IO, errno, "cannot write %s", path);
    }
    if (fd >= 0 && rc < 0) {
        unlink(path); /* half a table helps nobody */
    }
    return rc;
}

static void export_csv(struct app *a)
{
    const struct stats_now t = now_of(a);
    const time_t wall = (time_t)t.wall;
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    struct tm tm;
    char name[64];
    char cwd[4096];
    localtime_r(&wall, &tm);
    strftime(name, sizeof name, "quasar-stats-%Y%m%d-%H%M%S.csv", &tm);
    char *path = io_join(getcwd(cwd, sizeof cwd) ? cwd : ".", name);
    hist_csv(a->views->hist, a->views->stats.span, t.now, t.wall, &b);
    size_t lines = 0;
    for (size_t i = 0; i < b.len; i++) {
        lines += b.data[i] == '\n';
    }
    if (write_new(path, &b, &e) == 0) {
        app_note(a, R_GOOD, "wrote %zu lines to %s", lines, path);
    } else {
        app_note(a, R_BAD, "%s", e.msg);
    }
    free(path);
    buf_free(&b);
}

/* Rows to go by for an action; 0: it is no way to move. far: to an end. */
static int step(const struct app *a, enum action act, int far)
{
    const int page = a->views->n_rows > 8 ? a->views->n_rows - 7 : 1;
    switch ((int)act) {
    case ACT_PREV_BLOCK:
        return -1;
    case ACT_NEXT_BLOCK:
        return 1;
    case ACT_PAGE_UP:
        return -page;
    case ACT_PAGE_DOWN:
        return page;
    case ACT_TOP:
        return -far;
    case ACT_BOTTOM:
        return far;
    default:
        return 0;
    }
}

static bool stats_act(struct app *a, enum action act)
{
    struct stats_view *v = &a->views->stats;
    const struct stats_now t = now_of(a);
    const int by = step(a, act, HR_COUNT);
    switch ((int)act) {
    case ACT_EARLIER:
    case ACT_LATER:
        stats_move(v, &t, a->views->cols, act == ACT_LATER ? 1 : -1);
        return true;
    case ACT_SPAN:
        v->span = v->span == HS_SECONDS ? HS_MINUTES : HS_SECONDS;
        return true;
    case ACT_CSV:
        export_csv(a);
        return true;
    case ACT_MARK:
        hist_reset(a->views->hist, t.now);
        return true;
    default:
        v->top += by;
        return by != 0;
    }
}

/* ---- log ---- */

static void log_layout(struct app *a, int cols, int rows, struct text_rows *out)
{
    static const struct hint list[] = {
        {ACT_PREV_BLOCK, ""}, {ACT_NEXT_BLOCK, "scroll"}, {ACT_BACK, "closes"}, {ACT_NONE, NULL}};
    struct views *v = a->views;
    char keys[96];
    char foot[128];
    size_t first = 0;
    hints(a, CTX_LOG, list, keys, sizeof keys);
    const int room = rows > 2 ? rows - 2 : 0;
    text_rows_puts(out, R_STRONG, " LOG");
    text_rows_end(out, true);
    const int n = log_view_update(&v->log_view, v->log, &a->theme, cols, room, &first);
    for (int i = 0; i < room; i++) {
        if (i < n) {
            text_rows_copy(out, &v->log_view.rows, first + (size_t)i);
        } else if (i == 0) {
            text_rows_puts(out, R_TEXT,
                           " Nothing went wrong, and no library has printed anything.");
        }
        text_rows_end(out, true);
    }
    if (rows > 1) {
        snprintf(foot, sizeof foot, " %s", keys);
        text_rows_puts(out, R_STRONG, foot);
        text_rows_end(out, true);
    }
    logbook_seen(v->log);
}

static bool log_act(struct app *a, enum action act)
{
    const int by = step(a, act, 1 << 24);
    a->views->log_view.up -= by;
    return by != 0;
}

/* ---- listener ---- */

static void listen_view_layout(struct app *a, int cols, int rows, struct text_rows *out)
{
    static const struct hint some[] = {{ACT_FOLD, "its shape"}, {ACT_BODY, "its text"},
                                       {ACT_CANCEL, "cancels"}, {ACT_PAUSE, "pauses"},
                                       {ACT_BACK, "closes"},    {ACT_NONE, NULL}};
    char keys[128];
    hints(a, CTX_LISTEN, a->views->requests ? some : some + 4, keys, sizeof keys);
    listen_layout(a->views->requests, &a->views->listen, app_now(), keys, &a->theme, cols, rows,
                  out);
}

static bool listen_act(struct app *a, enum action act)
{
    struct views *v = a->views;
    struct view_request q;
    const bool any = listen_picked(v->requests, &v->listen, &q);
    const int by = step(a, act, 1 << 20);
    switch ((int)act) {
    case ACT_FOLD:
    case ACT_BODY:
        if (any) {
            struct listen_view *l = &v->listen;
            const bool body = act == ACT_BODY && !l->body;
            l->picked = q.id;
            l->detail = act == ACT_BODY || !l->detail;
            l->body = body;
            l->body_top = 0;
        }
        return true;
    case ACT_CANCEL:
        if (any && !q.ended) {
            requests_cancel(v->requests, q.id);
            app_note(a, R_TEXT, "request %llu is told to end", (unsigned long long)q.id);
        } else {
            app_note(a, R_WARN, "there is no request to cancel");
        }
        return true;
    case ACT_PAUSE:
        if (v->requests) {
            struct view_listener l;
            requests_listener(v->requests, &l);
            requests_pause(v->requests, !l.paused);
        } else {
            app_note(a, R_WARN, "there is no listener to pause");
        }
        return true;
    default:
        listen_move(v->requests, &v->listen, by);
        return by != 0;
    }
}

/* ---- all of them ---- */

static const struct view_ops ops[VIEW_COUNT] = {
    [VIEW_STATS] = {CTX_STATS, stats_view_layout, stats_act},
    [VIEW_LOG] = {CTX_LOG, log_layout, log_act},
    [VIEW_LISTEN] = {CTX_LISTEN, listen_view_layout, listen_act},
};

unsigned views_ctx(const struct app *a)
{
    return a->views->open == VIEW_NONE ? 0 : ops[a->views->open].ctx;
}

void views_open(struct app *a, enum view_id which)
{
    a->views->open = which;
    a->overlay = OV_NONE;
    a->dirty = true;
}

void views_toggle(struct app *a, enum view_id which)
{
    views_open(a, a->views->open == which ? VIEW_NONE : which);
}

bool views_cycle(struct app *a, bool panel)
{
    if (a->views->open == VIEW_STATS) {
        views_open(a, VIEW_NONE);
        return false;
    }
    if (panel || a->views->open != VIEW_NONE) {
        views_open(a, VIEW_STATS);
        return panel;
    }
    return true;
}

void views_draw(struct app *a, int y, int rows, int cols)
{
    struct views *v = a->views;
    v->n_rows = rows;
    v->cols = cols;
    text_rows_truncate(&v->rows, 0);
    ops[v->open].layout(a, cols, rows, &v->rows);
    for (int i = 0; i < rows; i++) {
        text_draw_row(&a->theme, y + i, 0, cols, &v->rows, (size_t)i, 0);
    }
}

bool views_key(struct app *a, const struct key *k, enum action *act)
{
    static const struct key none = {.type = K_NONE};
    bool is_prefix = false;
    *act = ACT_NONE;
    if (a->views->open == VIEW_NONE) {
        return false;
    }
    const struct view_ops *v = &ops[a->views->open];
    const enum action it = keymap_lookup(a->keys, v->ctx, &none, k, &is_prefix);
    if (it == ACT_BACK) {
        views_open(a, VIEW_NONE);
    } else if (it != ACT_NONE && !v->act(a, it)) {
        *act = it;
        return false;
    } else if (it == ACT_NONE && !is_prefix) {
        app_note(a, R_TEXT, "%s goes back to the conversation, %s tells the keys",
                 keymap_key(a->keys, ACT_BACK, v->ctx), keymap_key(a->keys, ACT_HELP, v->ctx));
    }
    return true;
}

/* ---- the log, commands ---- */

void views_log(struct app *a, enum role role, const char *text)
{
    const enum log_kind kind = role == R_BAD ? LK_BAD : role == R_WARN ? LK_WARN : LK_NOTE;
    logbook_add(a->views->log, kind, clock_wall(), text, strlen(text));
}

void views_printed(void *logbook, const char *p, size_t n)
{
    logbook_output(logbook, clock_wall(), p, n);
}

void views_kv(struct app *a)
{
    struct buf b = BUF_INIT;
    conv_view_kv(a->conv, &a->views->kv);
    const struct panel p = views_panel(a);
    panel_kv_words(&p, &a->theme, &b);
    app_note(a, R_TEXT, "%s", b.data);
    buf_free(&b);
}

#define PACE_SLICES 5 /* seconds */

void views_pace(const struct app *a, double *tok_round, double *accept)
{
    struct view_load l;
    struct hist_slice sum;
    conv_view_load(a->conv, &l);
    *tok_round = *accept = 0;
    if (l.running == 1 &&
        hist_sum(a->views->hist, HS_SECONDS, app_now(), 0, PACE_SLICES, 0, &sum)) {
        const double per = hist_value(&sum, HR_ROUND), used = hist_value(&sum, HR_ACCEPT);
        *tok_round = isnan(per) ? 0 : per;
        *accept = isnan(used) ? 0 : used;
    }
}

static void close_listener(struct app *a)
{
    if (a->opts->listener) {
        a->opts->listener->close(a->opts->listener->ctx);
        app_note(a, R_TEXT, "the listener is off");
    }
}

/* Where it listens, as far as this can be told (note), and which key shows its requests. */
static void tell_listener(struct app *a, const char *note)
{
    const struct key_hint h = {ACT_LISTENER, ACT_NONE, "shows the requests"};
    struct view_listener now;
    char hint[KEY_HINT];
    keymap_hint(a->keys, &h, CTX_BOTH, hint);
    requests_listener(a->views->requests, &now);
    if (note[0]) {
        app_note(a, R_GOOD, "%s%s%s", note, hint[0] ? "; " : "", hint);
    } else {
        app_note(a, R_GOOD, "the listener is on at %s%s%s", now.address, hint[0] ? "; " : "", hint);
    }
}

static void open_listener(struct app *a, const char *address)
{
    struct err e = ERR_INIT;
    char note[256] = "";
    const struct tui_listener *l = a->opts->listener;
    if (!l) {
        app_note(a, R_WARN, "the listener cannot be changed from here");
    } else if (l->open(l->ctx, address[0] ? address : NULL, note, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg); /* another address may do */
    } else {
        tell_listener(a, note);
    }
}

void views_listen(struct app *a, const char *args)
{
    if (!a->views->requests) {
        app_note(a, R_WARN,
                 "nothing is served beside a conversation; quasar serve answers other programs");
    } else {
        struct view_listener now;
        requests_listener(a->views->requests, &now);
        if (strcmp(args, "off") == 0) {
            close_listener(a);
        } else if (!now.on || (args[0] && strcmp(args, "on") != 0)) {
            open_listener(a, strcmp(args, "on") == 0 ? "" : args);
        } else {
            tell_listener(a, "");
        }
    }
}
