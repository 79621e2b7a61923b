#ifndef QUASAR_TESTS_FAKE_ENGINE_H
#define QUASAR_TESTS_FAKE_ENGINE_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * A stand-in for the engine behind engine.h and load.h: no model, exact
 * arithmetic. A sequence is a running hash of its tokens; the token drawn next is
 * a function of that hash (and of the seed and position when sampling), so any
 * mistake of company, order or cutting changes the text.
 *
 * The path given to engine_load sets it up: comma separated key=value among
 * ctx, slots, vocab, eos (one token in N is token 2; 0 never), eos_id, step_us,
 * prefill_us (a token), load_us, fail_decode, fail_prefill (the n-th call fails),
 * fail_load, compat (of saved states), mtp (1: there is an MTP layer), max_draft, width
 * (the caps of drafts and of rows of one sequence, which it insists on), no_verify,
 * pages (of FAKE_PAGE tokens, for all sequences), wrong (one of its drafts in N is), and model (a
 * model file whose blobs are taken, last in the list).
 */

#define FAKE_STATE 1000 /* bytes of a kept state */
#define FAKE_PAGE  64   /* tokens of a page */
#define FAKE_PAGES 4096

/* What the engine did, for assertions. */
struct fake_log {
    atomic_int snaps, taken; /* kept states: there are; were taken */
    atomic_int swaps;        /* states that gave way: there are */
    atomic_int decode_calls, verify_calls, prefill_calls, prefill_tokens, max_rows, open_seqs,
        pieces;
};
extern struct fake_log fake_log;
void fake_log_reset(void);

/* From now on every sequence draws these tokens after its prompt, then the end;
 * n 0 goes back to the hash. Copied. Only while no job runs. */
void fake_script(const int32_t *ids, int n);

/* The token that follows n tokens. */
int32_t fake_next(const int32_t *ids, int n, int vocab, int eos, float temp, uint64_t seed);

#endif
