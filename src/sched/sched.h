#ifndef QUASAR_SCHED_SCHED_H
#define QUASAR_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "engine/spec.h"
#include "sched/tier.h"
#include "view/load.h"

/*
 * The scheduler: owns the engine and its one thread. Jobs go in as token ids and
 * limits; tokens come out as events. Running jobs advance together, one row each
 * of one decode step; prompts are computed in chunks between the steps. Nobody
 * waits for anybody: submitting queues, and a consumer who does not read costs
 * the engine nothing.
 *
 * Unless it says otherwise, any thread may call, one at a time per object.
 */
struct sched;
struct job;
struct live;

/* States that are kept of prompts, so that what begins with the same tokens need not be
 * computed again (docs/reuse.md). Zero: as is best. */
struct sched_keep {
    bool off;                /* none are */
    uint64_t bytes;          /* of memory for them; 0: an eighth of what is free, at most 16 GiB */
    int every;               /* tokens between two of a long prompt, a multiple of 64; 0: 4096;
                                negative: none */
    bool generated;          /* also such as answers left behind, for everybody: faster, but not to
                                the bit what a cold prompt gives */
    const struct tier *tier; /* a larger place for them; NULL: none. Outlives the scheduler */
};
/* The tier has news. Any thread. */
struct sched;
void sched_nudge(struct sched *s);

struct sched_opts {
    const char *path;          /* the model file; copied */
    bool verify;               /* check every weight's digest while loading */
    struct engine_opts engine; /* strings copied; progress is the scheduler's own */
    struct spec_opts spec;     /* zero: as measured, with every drafter there is */
    struct sched_keep keep;
    int queue;     /* jobs of one owner that may wait, four times as many of all; 0: four for each
                      sequence */
    uint64_t swap; /* bytes of memory for the states of jobs that gave way to others; 0: half of
                      what is free */
    int wake_fd;   /* eventfd written when the state of loading changes; -1: none */
};

enum sched_state { SCHED_LOADING, SCHED_READY, SCHED_FAILED };

/* Starts the engine thread, which loads the model; returns at once. */
int sched_open(const struct sched_opts *o, struct sched **out, struct err *e);
/* Ends every job as cancelled, frees the engine, joins the thread. Jobs and lives
 * must still be freed by their owners, before or after. */
void sched_close(struct sched *s);

/* How loading stands; progress 0..1 (may be NULL). On SCHED_FAILED e has the
 * reason. */
enum sched_state sched_poll(const struct sched *s, double *progress, struct err *e);
/* Waits for the end of loading: 0 or the reason why it failed. */
int sched_wait(struct sched *s, struct err *e);

/* Once SCHED_READY; all of it constant and borrowed until sched_close. */
const struct engine_info *sched_info(const struct sched *s);
struct engine_sampling sched_defaults(const struct sched *s);
/* As engine_check_file; any thread. */
int sched_check_file(const char *path, struct err *e);
bool sched_blob(const struct sched *s, enum engine_blob which, const char **p, size_t *n);

/* ---- live states ----
 * What the engine remembers of one conversation between its turns: a sequence and
 * the tokens it holds. A job that names a live and whose prompt extends these
 * tokens computes only the rest; any other prompt starts from the longest kept state,
 * its own conversation's or one that serves everybody, or afresh. The scheduler takes
 * the sequence of the longest idle live when another job needs it, and keeps its state
 * as long as there is room. */
struct live *live_create(void);
/* The state of a running job goes when the job ends; of an idle one, when the
 * engine thread next has something to do. */
void live_free(struct live *l);
/* A number of the owner's, which the figures give back with the live's pages. */
void live_tag(struct live *l, int64_t tag);

/* ---- states that leave and enter ----
 * An idle live's state, kept as it is to be read by somebody else while the conversation
 * may go on; or a state on its way back into a live. Both happen beside the engine's steps;
 * nothing waits for it but a job of a live that is being filled. */
struct transfer;

/* Which engines may use a copy, exactly (32 bytes), and which that is in words. Once
 * SCHED_READY. */
void sched_compat(const struct sched *s, uint8_t compat[32], char *label, size_t label_size);

/* Asks for what l holds; wake_fd (-1: none) is written when it is there. QE_BUSY: the model is
 * not loaded. The live and the scheduler must outlive the transfer. */
int sched_export(struct sched *s, struct live *l, int wake_fd, struct transfer **out,
                 struct err *e);
/* Lets l stand after these ids, which are copied. The state is read, by threads of the
 * engine's, until the transfer is done. */
int sched_import(struct sched *s, struct live *l, const int32_t *ids, size_t n_ids,
                 const struct engine_saved *state, int wake_fd, struct transfer **out,
                 struct err *e);

/* Any thread, one at a time per transfer. */
bool transfer_done(const struct transfer *t);
/* Once it is done: 0, or why there is none. QE_CANCELLED: a job came in between, or the
 * engine closed. QE_NOTFOUND: the live holds nothing. QE_UNSUPPORTED, QE_FORMAT, QE_IO,
 * QE_NOMEM: the engine does not take what comes, or it cannot be read, and the live holds
 * nothing. */
int transfer_result(const struct transfer *t, struct err *e);
/* Of an export that is done, until transfer_free. Reading fails with QE_CANCELLED when the
 * engine needed the room meanwhile, or has closed. */
const int32_t *transfer_ids(const struct transfer *t, size_t *n);
struct engine_saved transfer_blob(const struct transfer *t);
/* Ends it if need be. */
void transfer_free(struct transfer *t);

/* ---- jobs ---- */
struct job_spec {
    const int32_t *prompt; /* copied; at least one */
    size_t n_prompt;
    int max_tokens;            /* -1: to the end of the window */
    struct engine_draw draw;   /* its rules and drafts are the scheduler's own */
    struct engine_rules rules; /* copied; its stop ids are those below; a form is taken, also when
                                  the job cannot be */
    const int32_t *stop;       /* ids that end the job; copied. They are still delivered. */
    size_t n_stop;
    bool logprobs;     /* of every token, see job_logprobs */
    int top_logprobs;  /* … and so many of the likeliest, at most ENGINE_MAX_LOGPROBS */
    struct live *live; /* NULL: the state is dropped at the end */
    int64_t tag;       /* as live_tag, of a job without a live */
    /* Where states are worth keeping, in tokens from the start, 0: nowhere: after the
     * system prompt and the tools; after the last question; after all that will come again
     * unchanged in the next turn. */
    int head_end, query_end, input_end;
    bool store;  /* the tier may have states of this prompt */
    bool screen; /* may take the slot kept for the screen */
    int wake_fd; /* eventfd written when events wait; -1: none */
    /* Sharing with others (docs/scheduler.md); zero: as everybody. None of it changes a token. */
    uint64_t owner;  /* jobs with one number share what one owner gets: an API key, a user */
    int weight;      /* of the owner's share against others', 1 .. JOB_WEIGHT_MAX; 0: 1 */
    int owner_slots; /* most of the owner's jobs that run at once; 0: no limit */
    int priority;    /* 0 .. JOB_PRIORITY_MAX: higher ones start first and give way last */
    int wait_ms;     /* JR_WAITED if it has not started by then; 0: it waits on */
    int deadline_ms; /* JR_DEADLINE if it is not over by then, waiting included; 0: none */
};
#define JOB_WEIGHT_MAX   1000
#define JOB_PRIORITY_MAX 9

enum job_event_kind {
    JE_STARTED, /* left the queue; done = prompt tokens that need no computing, total = all */
    JE_PREFILL, /* done of total prompt tokens stand computed */
    JE_TOKENS,  /* n ids */
    JE_END      /* nothing follows */
};
enum job_reason {
    JR_STOP,
    JR_LENGTH,
    JR_CANCELLED,
    JR_ERROR,   /* job_error says why */
    JR_WAITED,  /* wait_ms went by in the queue: nothing was computed; job_error says so */
    JR_DEADLINE /* deadline_ms went by: what was said stays; job_error says so */
};

#define JOB_BATCH 24

struct job_event {
    enum job_event_kind kind;
    enum job_reason reason;
    int done, total;
    int n;
    int32_t ids[JOB_BATCH];
};

/* Where a prompt's first tokens came from, and why there were not more of them. */
enum job_reuse { JU_NONE, JU_LIVE, JU_MEMORY, JU_DISK };
enum job_short {
    JS_ALL,       /* nothing is missing that could be there */
    JS_NEW,       /* what follows has never been seen */
    JS_COLD,      /* nothing that is kept begins with these tokens */
    JS_TINY,      /* a prompt of at most 64 tokens is not kept */
    JS_DIFFERS,   /* it differs from what is kept from this token on */
    JS_EVICTED,   /* a state after this token made room for others */
    JS_GENERATED, /* a state after this token was made by decoding, not for everybody */
    JS_NEARER,    /* its tokens are known up to this one, but no state so near was kept */
    JS_OFF        /* nothing is to be kept */
};
/* "live", …; "all", "new", …: for machines. */
const char *job_reuse_name(enum job_reuse r);
const char *job_short_name(enum job_short s);
/* In words, at being the token it is about. out: JOB_WORDS bytes. */
#define JOB_WORDS 160
void job_short_words(enum job_short s, int at, char *out);

/* Figures of a job, complete once JE_END was taken. */
struct job_stats {
    int prompt_tokens, cached_tokens, output_tokens;
    enum job_reuse reuse;
    enum job_short why; /* not more of them were cached */
    int why_at;
    int gave_way; /* times that others got its room meanwhile */
    int rounds;   /* passes of the model that gave a token, the prompt's last included */
    int drafted, accepted;
    double prefill_s, decode_s;
    struct view_spec spec; /* of the decode rounds; rounds shared with other jobs count whole */
};

/* QE_NOMEM: a prompt of so many tokens does not fit the window. After loading. */
int sched_check_length(const struct sched *s, size_t n_prompt, struct err *e);
/* QE_BUSY: the queue is full, or the model is not loaded. QE_NOMEM: the prompt
 * does not fit the window (the message has both numbers). QE_USAGE: no prompt, or rules, a
 * weight, a priority or a limit that cannot be (the message says which). */
int sched_submit(struct sched *s, const struct job_spec *spec, struct job **out, struct err *e);

/* How many jobs must end, at least, before this one can start: those that wait before it, and
 * the first of those that run. 0: it runs, or it is not for others that it waits. Any thread. */
int sched_ahead(struct sched *s, const struct job *j);
/* The next event; false when there is none now. One thread per job. Tokens are
 * never dropped and come in order; JE_PREFILL may be. */
bool job_next(struct job *j, struct job_event *ev);
/* What the model thought of the i-th token of the output (from 0), one that job_next
 * has given: of the token itself, then of the likeliest; *n in all. NULL when it was
 * not asked for. Until job_free. */
const struct engine_logprob *job_logprobs(const struct job *j, int i, int *n);
/* Ends the job before its next step. Any thread. */
void job_cancel(struct job *j);
struct job_stats job_stats(const struct job *j);
/* Tokens of the output so far, by the passes that gave them; NaN: there was no decode round. Any
 * thread. */
double job_pace(const struct job *j);
/* Those up to so many tokens of its output: what came of them is counted, the round of the
 * last one as if nothing had been said after it. */
struct job_stats job_stats_until(const struct job *j, int tokens);
/* The message of JR_ERROR, JR_WAITED and JR_DEADLINE. */
const char *job_error(const struct job *j);
/* Cancels it when it still runs. */
void job_free(struct job *j);

/* Figures for gauges and tests; any thread. */
struct sched_counters {
    int waiting, running, idle_lives;
    uint64_t steps, rows, chunks;
    uint64_t prompt_tokens, cached_tokens; /* of all prompts */
    int kept;                              /* states, at the moment … */
    uint64_t kept_bytes;                   /* … and what they take */
    int pages, pages_free, pages_kept;     /* of the key/value cache */
    struct view_spec spec;                 /* of all jobs since the start */
    uint64_t prefilled;                    /* prompt tokens computed … */
    double prefill_s;                      /* … in this time */
    uint64_t restored;                     /* states put back from memory or elsewhere */
    uint64_t failed;                       /* decode rounds */
    int gave_way;                          /* jobs that gave way and wait, also in `waiting` … */
    uint64_t gave_way_bytes;               /* … and what their states take */
    uint64_t preemptions;                  /* jobs that gave way … */
    uint64_t swapped_bytes;                /* … states that went for it … */
    uint64_t repeated;                     /* … and such whose state is computed again */
};
struct sched_counters sched_counters(const struct sched *s);
/* Who has the cache's pages. Any thread. */
void sched_kv(const struct sched *s, struct view_kv *out);

#endif
