#ifndef QUASAR_TUI_STATUS_H
#define QUASAR_TUI_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "tui/theme.h"
#include "view/view.h"

/*
 * The rows of figures: title, activity rule, status line. Each shows what is
 * known and a dash for what is not; a part that does not fit is left out
 * whole, from the right.
 */
enum phase { P_LOADING, P_IDLE, P_WAITING, P_PREFILL, P_THINKING, P_ANSWERING, P_STOPPING };

struct status {
    struct view_model model;
    struct view_chat chat;
    enum phase phase;
    double progress;  /* loading */
    int done, total;  /* prefill */
    double elapsed_s; /* of this phase's turn, or of loading */
    double prefill_s; /* since prefill began */
    bool focus_transcript;
};

/* 999, 41.2K, 1.3M */
void status_count(double n, char out[16]);
/* "loading weights 62%", "decode 214 t/s", "idle" */
void status_activity(const struct status *s, char out[96]);

void status_draw_title(const struct status *s, const struct theme *th, int y, int width);
void status_draw_rule(const struct status *s, const struct theme *th, int y, int width);
void status_draw_line(const struct status *s, const struct theme *th, int y, int width);
void status_draw_hints(const struct status *s, const struct theme *th, int y, int width);
/* What an empty conversation shows. */
void status_draw_welcome(const struct status *s, const struct theme *th, int y, int height,
                         int width);

#endif
