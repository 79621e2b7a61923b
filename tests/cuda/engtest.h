#ifndef QUASAR_TESTS_CUDA_ENGTEST_H
#define QUASAR_TESTS_CUDA_ENGTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

/* What the tests of whole engines on CUDA share: TAP, and calls that must succeed. */

/* One test; the text says what. Returns good. */
bool ok(bool good, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last line; the exit status. */
int done(void);
/* Ends the program when rc is an error. */
void must(int rc, const struct err *e);
/* Ends the program, skipped, unless there is a CUDA device and a build for it. */
void need_device(int rc, const struct err *e);

/* QUASAR_CUDA_PATH=sm80|sm90 picks the kernels. */
enum engine_cuda_path wanted_path(void);

int open_seq(struct engine *g);
/* Appends n tokens in chunks of at most max_rows (0: the engine's); out: the logits
 * after the last, if not NULL. */
void prefill(struct engine *g, int seq, const int32_t *ids, int n, int max_rows, float *out);
/* A step; out: [n][vocab], if not NULL. */
void decode(struct engine *g, const int *seqs, const int32_t *ids, int n, float *out);
char *export_state(struct engine *g, int seq, size_t *n); /* the caller frees */

/* A prompt of n tokens, a multiple of 64, computed whole; and `sets` times over, cut at
 * random multiples of 64, in chunks of random size, and at every cut carried by its
 * exported state to another sequence, with other slots and pages and a neighbour that
 * comes and goes. Returns in how many sets anything differed: the logits, those of two
 * steps after it, or a byte of the state and of the full pages. draw(m) is below m. Wants
 * 4 sequences. */
int cut_and_resume(struct engine *g, const int32_t *ids, int n, int sets,
                   uint32_t (*draw)(uint32_t));

#endif
