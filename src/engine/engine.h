#ifndef QUASAR_ENGINE_ENGINE_H
#define QUASAR_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/io.h"
#include "base/phases.h"

/*
 * The inference engine: one model, many sequences. Tokens in, logits and tokens
 * out; no text, no files besides the model, no threads of its own (the backend
 * may use some inside a call). One thread at a time may call it. Sequences are
 * small integers; their order, company and slots never change a result.
 */
struct engine;
struct container;
struct be_script;

#define ENGINE_MAX_DRAFT 16

enum engine_backend {
    EB_AUTO,
    EB_CPU,
    EB_CUDA,
    EB_SCRIPT
}; /* AUTO: CUDA where there is a device */
/* AUTO: the widest of fp16, fp8, k8v4, k5v3 whose cache holds a full window (docs/kv.md). */
enum engine_kv { EKV_AUTO, EKV_F32, EKV_F16, EKV_F8, EKV_K8V4, EKV_K5V3, EKV_K3V3 };
/* What drafts multiply by: the file's 4-bit copy of the head where it has one; the head
 * itself; a 4-bit copy, made at open where the file has none. */
enum engine_draft_head { EDH_AUTO, EDH_FULL, EDH_Q4 };
enum engine_cuda_path { ECP_AUTO, ECP_SM80, ECP_SM90 };

struct engine_opts {
    enum engine_backend backend;
    int device;
    int threads;     /* 0: all cores */
    const char *isa; /* NULL: best */
    int ctx;         /* window in tokens of one sequence; 0: auto */
    int slots;       /* sequences at once; 0: 16 */
    int cache;       /* tokens that the cache of keys and values holds, all sequences together:
                        never less than a window; 0: as many as there is room for */
    enum engine_kv kv;
    int chunk; /* prefill rows per backend call, a multiple of 64; 0: 2048 */
    /* Ids from here on are padding and never drawn: the tokenizer's size. 0: as
     * the model file says, else the whole vocabulary. */
    int vocab_used;
    const char *fallback; /* why no GPU was chosen, for engine_info; copied; may be NULL */
    bool no_mtp;          /* leave the MTP layer out: no drafts */
    /* Caps, which make the work memory and the cache smaller on a device: the deepest
     * chain of drafts (0: ENGINE_MAX_DRAFT; negative: none, as no_mtp), and the rows of
     * one sequence in a step (0: one more than the drafts, at most 16). */
    int max_draft;
    int verify_width;
    enum engine_draft_head draft_head;
    /* Verified and plain steps read that copy too: other logits, and now and then another
     * text. The head itself is asked in some steps, to count how often they disagree. */
    bool fast_head;
    enum engine_cuda_path cuda_path;
    const struct be_script *script; /* EB_SCRIPT: what is said; outlives the engine */
    int graphs;                     /* CUDA graphs kept; 0: 16, negative: none */
    bool verify;                    /* compare the weights on the device with the model file */
    void (*progress)(void *ctx, double done); /* 0..1 while weights load; may be NULL */
    void *progress_ctx;
};

/* What lies in the device's memory, in bytes. save_…: what the caps at their least
 * would leave free. Without a device of its own memory (an empty name): the weights as
 * they are mapped, the cache when it is full, and what the host has. */
struct engine_plan {
    char device[128];
    uint64_t free; /* before */
    uint64_t weights, kv, states, work, graphs, margin;
    uint64_t left;         /* after all but the margin */
    uint64_t missing;      /* when it does not fit: that much */
    uint64_t page;         /* of kv: BE_PAGE tokens */
    const char *kv_format; /* "fp16" */
    int ctx, tokens, slots, n_graphs, verify_width, max_draft;
    uint64_t save_width;  /* --verify-width 1 */
    uint64_t save_draft;  /* --max-draft 0: the MTP layer with its cache */
    uint64_t save_graphs; /* --cuda-graphs 0 */
};

struct engine_info {
    const char *model_name; /* "demo", "qwen3.6-27b" */
    const char *tier;
    const char *backend;  /* "cpu" or "cuda" */
    const char *device;   /* "AVX-512, 2 threads" */
    const char *fallback; /* why the GPU is not used, or NULL */
    const char *digest;   /* identifies the weights; empty: they are of no file */
    const char *plan;     /* one line: what lies in the device's memory; NULL on the CPU */
    struct engine_plan memory;
    int ctx, vocab, vocab_used, slots, hidden, layers;
    int max_draft, verify_width; /* the caps: 0 drafts without an MTP layer */
    bool mtp;
    bool head_copy, fast_head; /* drafts read a 4-bit copy of the head; all steps do */
    bool own_drafts;           /* the backend drafts itself: engine_own_drafts */
    const char *no_verify;     /* NULL: drafts can be verified; else why not */
    const int32_t *eos;
    int n_eos;
};

/* Sampling defaults of the model file (generation_config.json). */
struct engine_sampling {
    float temp, top_p, min_p;
    int top_k;
    float repetition, frequency, presence; /* as engine_rules */
};

/* c is borrowed and must outlive the engine. */
int engine_open(const struct container *c, const struct engine_opts *o, struct engine **out,
                struct err *e);
/* The verify width that the options mean. */
int engine_width_of(const struct engine_opts *o);

/* What engine_open would take, without taking it; what does not fit is no error here.
 * line (may be NULL) gets the plan in words; the caller frees it. */
int engine_plan(const struct container *c, const struct engine_opts *o, struct engine_plan *out,
                char **line, struct err *e);

/* The same over tensors from elsewhere (made in memory): names, order and
 * conventions as container.h describes. Everything is borrowed and must outlive
 * the engine. */
struct engine_source {
    const struct tensor *(*find)(void *ctx, const char *name); /* NULL: none of that name */
    void *ctx;
    const json_t *config;   /* keys of config.json */
    const char *generation; /* generation_config.json, or NULL */
    size_t generation_size;
    const char *name, *tier;
    const char *digest; /* identifies the weights: states of another are refused */
    bool norms_folded;
    const struct io_map *file; /* that tensors lie in; may be NULL */
};
int engine_open_source(const struct engine_source *s, const struct engine_opts *o,
                       struct engine **out, struct err *e);
void engine_close(struct engine *g);
const struct engine_info *engine_info(const struct engine *g);
struct engine_sampling engine_defaults(const struct engine *g);

/* ---- sequences ---- */
int engine_seq_open(struct engine *g, int *seq, struct err *e); /* QE_BUSY: no slot left */
void engine_seq_close(struct engine *g, int seq);
void engine_seq_reset(struct engine *g, int seq);
int engine_seq_len(const struct engine *g, int seq);   /* tokens computed so far */
int engine_seq_pages(const struct engine *g, int seq); /* of the cache, also shared ones */
/* dst becomes a copy of src (recurrent state copied, pages shared until written). */
int engine_seq_fork(struct engine *g, int dst, int src, struct err *e);
/* Whole state of a sequence as one buffer; size first. Exact restore. */
size_t engine_seq_state_size(const struct engine *g, int seq);
int engine_seq_export(struct engine *g, int seq, void *out, struct err *e);
int engine_seq_import(struct engine *g, int seq, const void *in, size_t n, struct err *e);
/* Which engines may use a state of this one, exactly: the same weights, geometry, cache
 * format and path of computing. label: it in words, at most label_size with the NUL. */
void engine_state_compat(const struct engine *g, uint8_t compat[32], char *label,
                         size_t label_size);

/* Whether the state is prefill's own and was cut on multiples of 64 only: to the bit what
 * one prefill call over all its tokens gives. Decoded rows end that. */
bool engine_seq_pure(const struct engine *g, int seq);

/* ---- kept states ----
 * The state of a sequence at the position where it stands, kept beside the sequences:
 * recurrent and convolution state and the saved hidden row by value in host memory, the
 * pages by reference (whoever writes into one of them gets a copy first). What is put back
 * into any sequence goes on with the bits that were there. */
struct engine_snap;
/* QE_NOMEM: the host has no memory for it. */
int engine_snap_take(struct engine *g, int seq, struct engine_snap **out, struct err *e);
/* seq becomes what was kept, whatever it held. */
int engine_snap_restore(struct engine *g, int seq, const struct engine_snap *s, struct err *e);
void engine_snap_free(struct engine *g, struct engine_snap *s); /* NULL is allowed */
/* For idle moments: gets memory for one more kept state where that takes long (pinning),
 * unless there is memory for `spare` of them, or for a thread of an intake. True: it did,
 * and there may be more to do. */
bool engine_snap_prepare(struct engine *g, size_t spare);
int engine_snap_len(const struct engine_snap *s);
bool engine_snap_pure(const struct engine_snap *s); /* as engine_seq_pure */
/* Bytes that freeing it gives back: its values, and the pages that nothing else has.
 * NULL: the values alone. */
uint64_t engine_snap_bytes(const struct engine *g, const struct engine_snap *s);
/* Its bytes as the blob of a sequence. */
size_t engine_snap_state_size(const struct engine *g, const struct engine_snap *s);
/* What all kept states take, and the pool of pages. */
struct engine_kept {
    int n;
    uint64_t bytes; /* values, and pages that no sequence has */
    int pages, pages_free, pages_kept;
    int page_tokens; /* of a page, and what it takes */
    uint64_t page_bytes;
};
struct engine_kept engine_kept(const struct engine *g);
/* fn is called when no page is free in the middle of a call. It may free kept states and
 * close sequences that the call is not about, nothing else, and returns whether it did. */
void engine_on_full(struct engine *g, bool (*fn)(void *ctx), void *ctx);

/* ---- sequences that give way ----
 * The whole state of a sequence in host memory, pages too, so that others get its room: what
 * is put back goes on with the bits that were there. */
struct engine_swap;
/* What that takes. */
uint64_t engine_swap_size(const struct engine *g, int seq);
/* QE_NOMEM: the host has no memory for it. The sequence stays as it is; the caller closes it. */
int engine_swap_out(struct engine *g, int seq, struct engine_swap **out, struct err *e);
/* seq becomes what it was, whatever it held. QE_NOMEM: there are not pages enough; it is then
 * empty. */
int engine_swap_in(struct engine *g, int seq, const struct engine_swap *w, struct err *e);
void engine_swap_free(struct engine *g, struct engine_swap *w); /* NULL is allowed */
uint64_t engine_swap_bytes(const struct engine *g, const struct engine_swap *w);
int engine_swap_pages(const struct engine_swap *w);
/* Makes room for n more tokens, drafts included, which computing them then need not do.
 * QE_NOMEM: there are not pages enough; nothing else has changed. */
int engine_seq_reserve(struct engine *g, int seq, int n, struct err *e);

/* ---- states from elsewhere, and on their way there ----
 * A blob of a sequence (engine_seq_export) that lies somewhere else, such as in a file. */
struct engine_saved {
    uint64_t size;
    size_t unit; /* what is read begins at multiples of it, at most 2 MiB, and ends there or with
                    the blob */
    /* Brings n bytes from byte `at` on, checked: nothing that is not what was written. Any
     * thread, several at once. */
    int (*read)(void *ctx, uint64_t at, void *dst, size_t n, struct err *e);
    void *ctx;
};

/* Puts such a blob of len tokens into a sequence by threads of its own, each piece as soon
 * as it is read, beside whatever the engine computes for others. Until engine_intake_close
 * the sequence is not to be touched. The blob's functions are called until then. */
struct engine_intake;
int engine_intake_open(struct engine *g, int seq, int len, const struct engine_saved *b,
                       struct engine_intake **out, struct err *e);
/* Waits for the end, at most so many milliseconds; true: it is over. */
bool engine_intake_wait(struct engine_intake *k, int ms);
/* The sequence is what the blob says, if all of it has come and is right; else it is empty,
 * and the first reason is given. QE_CANCELLED: it was not over yet, and ends. */
int engine_intake_close(struct engine_intake *k, struct err *e);
/* Once it is over, what its threads did: seconds of all. */
struct engine_intake_times {
    int threads;
    double open, read, sent; /* readying the threads' buffers; reading; waiting for buffers */
};
struct engine_intake_times engine_intake_times(const struct engine_intake *k);

/* The other way: a kept state's blob, read by another thread beside whatever the engine
 * computes. engine_outlet_close ends that: it waits for the read under way, those that
 * follow fail with QE_CANCELLED, and the kept state may go. */
struct engine_outlet;
int engine_outlet_open(struct engine *g, const struct engine_snap *s, struct engine_outlet **out,
                       struct err *e);
/* What may be read. Any thread, one at a time, until engine_outlet_free. */
struct engine_saved engine_outlet_blob(struct engine_outlet *o);
void engine_outlet_close(struct engine_outlet *o);
/* After that; any thread. NULL is allowed. */
void engine_outlet_free(struct engine_outlet *o);

/* ---- computing ----
 * Results of the last computing call are numbered by output; they stay readable
 * until the next one. */

/* Appends n tokens to a sequence by the prefill path, cutting them at multiples
 * of 64 into chunks of at most max_rows (0: the engine's own). Output i belongs
 * to want[i] (an index into tokens, ascending, n_want >= 0), at most
 * engine_max_outputs, all in the last 64 tokens; sink, when not NULL, is called
 * instead, once for each wanted row as soon as its chunk is done, and then any
 * number may be wanted anywhere. The sink may read the output it is given but
 * not compute. cancel (may be NULL) is polled between chunks. When cancelled the
 * sequence stands after the last finished chunk; when the backend fails the
 * sequence must be reset. */
typedef int (*engine_sink_fn)(void *ctx, int index, int output, struct err *e);
struct engine_prefill {
    int seq;
    const int32_t *tokens;
    int n;
    const int32_t *want;
    int n_want;
    engine_sink_fn sink;
    void *sink_ctx;
    const volatile int *cancel;
    void (*progress)(void *ctx, int done, int total);
    void *progress_ctx;
    int max_rows;
};
int engine_prefill(struct engine *g, const struct engine_prefill *p, struct err *e);
int engine_max_outputs(const struct engine *g);

/* One decode step: appends tokens[i] to sequence seqs[i], 1..16 rows. Several
 * rows of one sequence, at most engine_info.verify_width, are in order and equal the
 * same steps one by one. Output i is row i. */
int engine_decode(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e);

/* ---- speculation ----
 * A decode step whose rows may be taken back: of each sequence's rows the first is
 * the token that follows, the others are guesses at what comes after it. Outputs are
 * those of engine_decode, bit for bit; engine_sample, engine_logits and engine_hidden
 * may follow. The sequences stay as they were until engine_commit; computing
 * anything else instead, or closing, resetting, forking or importing any sequence,
 * keeps none of the rows. */
int engine_verify(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e);

/* Keeps the first keep[i] rows (0 .. all) that sequence seqs[i] had in the verify just
 * made; each of its sequences is named once, in any order. Everything (keys, values,
 * recurrent and convolution state, saved hidden, the MTP layer's cache) is then as if
 * only those rows had been decoded. The outputs stay readable. */
int engine_commit(struct engine *g, const int *seqs, const int *keep, int n, struct err *e);

/* Chained greedy drafts of the MTP layer for several sequences, one pass a step for
 * all of them. The sequences' own state does not change; the outputs of the last
 * computing call are gone. */
struct engine_draft {
    /* in */
    int seq;
    int32_t next; /* follows the sequence's last computed token */
    int depth;    /* most drafts, 1 .. engine_info.max_draft */
    float least;  /* the chain ends before a draft whose margin is less; 0: never */
    bool to_end;  /* … and behind one that ends the text, engine_info.eos */
    /* out */
    int n;     /* drafts */
    int steps; /* passes made: n, or n + 1 where the margin ended it */
    int32_t ids[ENGINE_MAX_DRAFT];
    float margins[ENGINE_MAX_DRAFT]; /* largest logit less the second; all infinite where
                                        the backend does not tell */
};
int engine_draft(struct engine *g, struct engine_draft *d, int n, struct err *e);
/* Whether a text of this model ends with the token: engine_info.eos. */
bool engine_ends(const struct engine *g, int32_t id);

/* Drafts of the backend's own for a sequence's next round, as struct be_ops.own_drafts has
 * them; negative: this engine's backend has none, and the drafters do their work. */
int engine_own_drafts(struct engine *g, int seq, int most, int32_t *ids, int *source);

/* What one request does to its logits before temperature (docs/sampling.md). Zero
 * everywhere does nothing. */
struct engine_bias {
    int32_t id;
    float value; /* -100 .. 100 */
};
/* What may come next beyond all that can be said with lists of ids: the form of an answer, such
 * as a JSON schema, as something that walks along with the tokens. Called by the engine's thread,
 * but free, which is called once, by whoever frees the rules. */
struct engine_form_ops {
    /* Sets in allow[n_words] the bits of the ids that may follow what was taken and then n
     * drafts; no bit: there is none. */
    void (*row)(void *ctx, const int32_t *draft, int n, uint32_t *allow, size_t n_words);
    /* How many of n drafts may come, one after the other. */
    int (*legal)(void *ctx, const int32_t *draft, int n);
    /* Ids that are likely because only one text can come: at most `most`, returns how many. */
    int (*forced)(void *ctx, int32_t *ids, int most);
    void (*take)(void *ctx, int32_t id);
    void (*free)(void *ctx);
};
struct engine_form {
    void *ctx; /* NULL: there is none */
    const struct engine_form_ops *ops;
};
struct engine_rules {
    float repetition;          /* 0 or 1: none; else above 0 */
    float frequency, presence; /* -2 .. 2 */
    const struct engine_bias *bias;
    size_t n_bias;
    const int32_t *allowed; /* no other id; NULL: all */
    size_t n_allowed;
    const int32_t *bad;     /* sequences that must not come about, one after another */
    const int32_t *bad_len; /* their lengths, n_bad */
    size_t n_bad;
    int min_tokens;      /* until so many are drawn, none of stop comes */
    const int32_t *stop; /* NULL with n_stop 0 */
    size_t n_stop;
    struct engine_form form; /* taken by the rules made of these, unless that fails */
};

struct rules; /* engine/rules.h: rules and what they count, of one sequence */

struct engine_draw {
    float temp, top_p, min_p;
    int top_k;
    uint64_t seed;
    /* NULL: no rules. Borrowed until engine_sample returns. */
    const struct rules *rules;
    /* A row of a verified draft: the n_draft drafts that stand between the tokens
     * the rules have taken and this row, at most ENGINE_MAX_DRAFT. */
    const int32_t *draft;
    int n_draft;
};
/* Draws ids[i] from output outputs[i]; the noise is that of the position the drawn
 * token will take. Several outputs may belong to one sequence, with different
 * n_draft. -1: the rules leave no token at all. Allocates nothing. */
int engine_sample(struct engine *g, const int *outputs, const struct engine_draw *d, int n,
                  int32_t *ids, struct err *e);

/* Copies of output i: vocab logits (padding ids are -inf); hidden values after
 * the final norm. */
int engine_logits(struct engine *g, int output, float *out, struct err *e);
int engine_hidden(struct engine *g, int output, float *out, struct err *e);

/* What the model itself thought of a token: its raw log-softmax, before rules,
 * temperature and filters, and 1 + how many logits are larger. */
struct engine_logprob {
    int32_t id;
    float logprob;
    int rank;
};
#define ENGINE_MAX_LOGPROBS 20
/* out[0] is that of id at an output, out[1 .. n_top] those of the likeliest,
 * equal ones by id. At most ENGINE_MAX_LOGPROBS and the vocabulary. */
int engine_logprobs(struct engine *g, int output, int32_t id, int n_top, struct engine_logprob *out,
                    struct err *e);

/* engine_draft of one sequence: always depth drafts. */
int engine_mtp_draft(struct engine *g, int seq, int32_t next, int depth, int32_t *ids,
                     struct err *e);

/* The deepest position up to which the MTP layer's cache holds pairs of true
 * hidden states and tokens (not drafts): one less than the length. */
int engine_mtp_len(const struct engine *g, int seq);

/* fp32 copies of internal state for comparison with other implementations; see
 * struct be_ops.read_gdn and read_kv. */
int engine_read_gdn(struct engine *g, int seq, int layer, float *conv, float *s, struct err *e);
int engine_read_kv(struct engine *g, int seq, int layer, float *k, float *v, struct err *e);

/* Figures for bench and gauges, since open. */
struct engine_counters {
    uint64_t prefill_tokens, decode_rows, decode_steps; /* verified rows and steps too */
    uint64_t draft_rows, draft_steps;
    double prefill_s, decode_s, draft_s;
    uint64_t kernels, graphs;  /* kernels launched, alone or in graphs; graphs replayed */
    uint64_t captured;         /* graphs made, which takes as long as some steps */
    uint64_t compared, differ; /* fast head: rows asked of both heads, other likeliest ids */
    double upload_s;           /* the weights' way to the device, at open */
};
struct engine_counters engine_counters(const struct engine *g);
/* Where the time of opening went; docs/cuda.md tells what a device's parts are. */
const struct phases *engine_phases(const struct engine *g);
/* Bytes of weights one decode step reads, however many rows it has. */
uint64_t engine_bytes_per_step(const struct engine *g);
/* Bytes of cache and recurrent state that one row reads after depth tokens. */
uint64_t engine_bytes_per_row(const struct engine *g, int depth);
/* Bytes of weights that one draft step reads; 0 without an MTP layer. */
uint64_t engine_bytes_per_draft(const struct engine *g);
/* First guesses at costs, in parts of a step of one row: what a token of context adds to
 * it (by bytes), the MTP layer's part of that, whether rows of one sequence share it, and
 * what a further row adds. */
struct engine_guess {
    double context, draft, row;
    bool shared;
};
struct engine_guess engine_guess_costs(const struct engine *g);
/* What the device's own memory gives, in GB (1e9 bytes) per second; QE_UNSUPPORTED
 * when the backend computes in host memory. */
int engine_bandwidth(struct engine *g, size_t bytes, double *read, double *copy, struct err *e);
/* Seconds that copying as many bytes to the device takes, from pinned memory as fast
 * as it goes; QE_UNSUPPORTED when the backend computes in host memory. */
int engine_upload_time(struct engine *g, uint64_t bytes, double *seconds, struct err *e);
/* ---- a pass by part ---- */

enum engine_part {
    EP_WEIGHTS, /* products but the head's, and what is fused into them */
    EP_DELTANET,
    EP_ATTENTION,
    EP_NORMS,       /* and embedding, angles, what is saved */
    EP_HEAD,        /* with the draw */
    EP_LAUNCH_GAPS, /* what the device needs beyond its parts; negative where they overlap */
    EP_HOST_GAPS,   /* what the pass needs beyond the device */
    EP_COUNT
};
const char *engine_part_name(enum engine_part p);

struct engine_profile {
    double ms; /* of the pass; the sum of all parts */
    struct {
        double ms;
        double bytes; /* that must be read and written at least; 0 for gaps */
        double flops; /* 0 where bytes decide */
        bool both;    /* half of the bytes are written */
    } part[EP_COUNT];
    double peak; /* operations per second, stated; 0: not known */
};

/* Steps of one row of each of n sequences, equally long, 1 to BE_MAX_ROWS, with the greedy
 * draw: the median of reps, and where the time goes (docs/cuda.md). The sequences are of no
 * use afterwards. */
int engine_profile_step(struct engine *g, const int *seqs, int n, int reps,
                        struct engine_profile *out, struct err *e);
/* Prompts of n tokens behind sequence base, in sequence seq, with the greedy draw of one
 * token. */
int engine_profile_prompt(struct engine *g, int base, int seq, const int32_t *tokens, int n,
                          int reps, struct engine_profile *out, struct err *e);

/* Makes a sequence of len tokens out of random numbers of sane size instead of
 * computing it, to measure at depths that would take long to fill. */
int engine_seq_fill(struct engine *g, int seq, int len, struct err *e);

#endif
