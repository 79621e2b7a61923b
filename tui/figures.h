#ifndef QUASAR_TUI_FIGURES_H
#define QUASAR_TUI_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "tui/theme.h"
#include "view/hist.h"
#include "view/load.h"
#include "view/requests.h"
#include "view/view.h"

/*
 * Figures as words and as bars, the same wherever they stand: panel, views, status line.
 * What is not known (NaN) is a dash.
 */
#define FIGURE_SIZE 16

void figure_count(double x, char out[FIGURE_SIZE]);   /* 999, 41.2K, 1.3M */
void figure_one(double x, char out[FIGURE_SIZE]);     /* 4.6 */
void figure_percent(double x, char out[FIGURE_SIZE]); /* of 0..1: 60% */
void figure_bytes(double x, char out[FIGURE_SIZE]);   /* 18 KB, 1.4 G */
void figure_seconds(double x, char out[FIGURE_SIZE]); /* 0.35 s, 9 s, 3 min, 2 h */
void figure_row(enum hist_row row, double x, char out[FIGURE_SIZE]);
/* The highest value of a row's sparks; 0: that of the highest one. */
double figure_full(enum hist_row row);

/* One cell: how high x is of top; a blank when it is not known. */
void figure_spark(const struct theme *th, double x, double top, struct buf *out);
/* A meter of n cells between its ends, for a share of 0..1. */
void figure_meter(const struct theme *th, int n, double share, struct buf *out);
/* The same of the cache's pages: a letter for each sequence, "k" for kept states, "?" for what
 * belongs to none of those. */
void figure_kv_meter(const struct theme *th, int n, const struct view_kv *v, struct buf *out);
/* "A", "B" … of the i-th sequence. */
char figure_kv_letter(int i);

/* Bytes of the cache: in use, in all, of a sequence. 0 in all: there is none. */
double figure_kv_used(const struct view_kv *v);
double figure_kv_all(const struct view_kv *v);

/* "5.2/18.0G", with blanks around the slash and before the unit if blank is " ". */
#define PART_SIZE 64
void figure_kv_both(const struct view_kv *v, const char *blank, char out[PART_SIZE / 2]);

/* ---- parts of the status line; an empty one is left out ---- */
/* "kv 5.2/18.0G 29%" */
void part_kv(const struct view_kv *v, char out[PART_SIZE]);
/* "http off", "http 2", if wide "http 2 live 1 queued"; l NULL: there is no listener at all. */
void part_http(const struct view_listener *l, bool wide, char out[PART_SIZE]);
/* "saved 3 s ago", "saved", "not saved"; age_s negative: not known how long ago, or nobody will
 * draw again soon. */
void part_saved(const struct view_chat *c, bool busy, double age_s, bool wide, char out[PART_SIZE]);
/* "gpu 71C 340W" */
void part_gpu(double temp_c, double power_w, char out[PART_SIZE]);
/* "! 2 errors F9" */
void part_log(int unseen, const char *key, char out[PART_SIZE]);

#endif
