#ifndef QUASAR_SCHED_JOB_H
#define QUASAR_SCHED_JOB_H

#include <stdatomic.h>

#include "base/ring.h"
#include "sched/sched.h"

/* A decode round, so that figures can be given up to any token. */
struct job_round {
    uint8_t source, drafts, tokens; /* tokens that came out */
    uint16_t compared, differ;
    float draft_s, verify_s, host_s;
};

/* One job as the scheduler sees it. Two owners: the submitter and the engine
 * thread; the last to let go frees it. */
struct job {
    /* constant after submission */
    int32_t *prompt;
    int n_prompt;
    int max_tokens;
    struct engine_draw draw;
    int32_t *stop;
    size_t n_stop;
    int min_tokens;
    int logprobs; /* of each token: 0, or 1 + how many of the likeliest */
    struct live *live;
    int64_t tag;
    int head_end, query_end, input_end;
    bool screen, store;
    int wake_fd;
    uint64_t owner;
    int weight, owner_slots, priority;
    int wait_ms, deadline_ms;
    int64_t came;  /* when it was submitted, by the program's clock */
    uint64_t rank; /* of arrival; stays when it gives way */

    /* both threads */
    atomic_int refs;
    atomic_int cancel;
    struct ring *ring;          /* struct job_event; produced by the engine thread */
    atomic_int ended;           /* release after everything below is final */
    atomic_uint_least64_t pace; /* while it runs: tokens << 32 | the rounds that gave them */

    /* engine thread; what was written for a token stays, and is there when the token
     * is */
    struct rules *rules;
    bool known;                    /* to the scheduler's accounts */
    bool asked;                    /* the tier, for a state */
    struct tier_fetch *fetch;      /* what it was asked for */
    struct engine_logprob **noted; /* blocks of JOB_NOTED tokens, made when needed */
    int n_noted;
    struct job_round *rounds; /* then the submitter, as stats */
    size_t n_rounds, cap_rounds;

    /* engine thread until ended, then the submitter */
    int32_t *pending; /* tokens that found the ring full */
    size_t n_pending, cap_pending;
    struct job_stats stats;
    enum job_reason reason;
    struct err err;

    /* submitter */
    size_t taken; /* of pending, after the end */
    bool end_taken;
};

#define JOB_NOTED 256

/* vocab, ctx: the model's. QE_USAGE: rules that cannot be. */
int job_create(const struct job_spec *spec, int vocab, int ctx, struct job **out, struct err *e);
void job_ref(struct job *j);
void job_unref(struct job *j);

/* Engine thread. None of them waits. */
void job_started(struct job *j, int cached);
void job_progress(struct job *j, int done);
/* Where the log probabilities of the token that job_token will bring next go. */
struct engine_logprob *job_note(struct job *j);
void job_token(struct job *j, int32_t id);
/* A round is over: job_pace tells of what it gave too. */
void job_paced(struct job *j);
void job_round(struct job *j, const struct job_round *r);
void job_end(struct job *j, enum job_reason reason);
/* Why its time is up, waits: without having started; JR_STOP: it is not. */
enum job_reason job_late(const struct job *j, int64_t now, bool waits);

void wake(int fd);

#endif
