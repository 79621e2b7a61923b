#ifndef QUASAR_CMD_PRINTSAFE_H
#define QUASAR_CMD_PRINTSAFE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes text from a model, a user or a file. On a terminal (tty) control codes other
 * than line feeds and tabs become question marks, so that nothing obeys them, and what
 * is hidden or turns the order of a line is named (<RLO>), as on the screen. */
void print_safe(FILE *f, const char *p, size_t n, bool tty);
/* The same, cut between characters to so many cells, with an ellipsis; 0: whole. */
void print_fit(FILE *f, const char *p, size_t n, bool tty, int cells);
/* Cells that a text takes. */
int print_cells(const char *p, size_t n);
/* Columns of the terminal on standard output: COLUMNS, else what it says, else 80. */
int print_columns(void);

#endif
