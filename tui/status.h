#ifndef QUASAR_TUI_STATUS_H
#define QUASAR_TUI_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "tui/theme.h"
#include "view/view.h"

/*
 * What title, activity rule and status line say of a conversation: what is known, and a dash
 * for what is not. bars.c draws them.
 */
enum phase { P_LOADING, P_IDLE, P_WAITING, P_PREFILL, P_THINKING, P_ANSWERING, P_STOPPING };

struct status {
    struct view_model model;
    struct view_chat chat;
    enum phase phase;
    double progress;          /* loading */
    int done, total;          /* prefill */
    double elapsed_s;         /* of this phase's turn, or of loading */
    double prefill_s;         /* since prefill began */
    double tok_round, accept; /* of the last seconds; 0: not known */
};

/* 999, 41.2K, 1.3M */
void status_count(double n, char out[16]);
/* "loading weights 62%", "decode 214 t/s", "idle" */
void status_activity(const struct status *s, char out[96]);
/* The same in a few cells, of a pane that has not the keys. */
void status_activity_short(const struct status *s, char out[48]);
/* "demo q8" and "cpu AVX-512", or dashes. */
void status_model(const struct view_model *m, char name[96], char backend[96]);

#define STATUS_HIGH 0.75
#define STATUS_FULL 0.95
/* "41.2K/131K" and "31%"; the share of the context that is used, negative: not known. */
double status_context(const struct status *s, char used[40], char share[24]);

#define STATUS_PARTS 6
/* What else the status line says of it, most wanted first; returns how many. */
int status_parts(const struct status *s, int width, char out[STATUS_PARTS][64]);

#endif
