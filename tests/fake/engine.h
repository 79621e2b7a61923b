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
 * ctx, slots, vocab, eos (one token in N is the end; 0 never), step_us,
 * prefill_us (a token), load_us, fail_decode, fail_prefill (the n-th call fails),
 * fail_load, and dir (a folder whose tokenizer.json, tokenizer_config.json,
 * chat_template.jinja and generation_config.json are the blobs).
 */

/* What the engine did, for assertions. */
struct fake_log {
    atomic_int decode_calls, prefill_calls, prefill_tokens, max_rows, open_seqs;
};
extern struct fake_log fake_log;
void fake_log_reset(void);

/* The token that follows n tokens. */
int32_t fake_next(const int32_t *ids, int n, int vocab, int eos, float temp, uint64_t seed);

#endif
