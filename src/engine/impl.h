#ifndef QUASAR_ENGINE_IMPL_H
#define QUASAR_ENGINE_IMPL_H

#include "engine/config.h"
#include "engine/engine.h"
#include "engine/graph.h"
#include "engine/kv.h"
#include "engine/rstate.h"
#include "engine/weights.h"

/* Inside of the engine, shared by engine.c, plan.c, compute.c and state.c. All of it
 * belongs to the one thread that calls. */

struct seq {
    int len;     /* tokens computed */
    bool pure;   /* all of it is prefill's own, cut on the grid: as if computed at once */
    bool broken; /* the backend failed in the middle of a step */
    /* The MTP layer's cache holds a pair of the last hidden state and this token: the
     * first step of a draft made it. -1: none. */
    int32_t ahead;
    struct kv_table kv;
};

/* Results of the last computing call. */
struct output {
    int row; /* of the backend's hidden rows */
    int seq;
    int pos; /* of the row's token */
};

/* A verify that waits for engine_commit. */
struct held {
    int n_spans; /* 0: none */
    int n_rows;
    struct be_span spans[BE_MAX_ROWS];
    int32_t tokens[BE_MAX_ROWS];
};

/* Kept states. Host memory of one goes to the next: pinning takes long. */
struct snaps {
    int n;        /* engine_snap that exist */
    void **spare; /* blocks of state_size that none of them uses */
    size_t n_spare, cap_spare;
};

/* Blocks of host memory of one size that nobody uses. */
struct blocks {
    void **spare;
    size_t n, cap;
};

/* Lanes of the backend that nobody uses. */
struct lanes {
    struct be_lane *spare[64];
    int n;
};

struct engine {
    struct model_config m;
    struct model_weights w;
    const struct be_ops *ops;
    struct backend *b;
    struct graph graph;
    enum be_kv kv_format;
    int ctx, chunk;
    int max_draft; /* the deepest chain of drafts; 0: no MTP layer */
    int width;     /* rows of one sequence in a step at most */
    bool mtp;      /* the MTP layer's cache is kept */
    bool fast;     /* the head reads its copy */
    int unasked;   /* steps since the head itself was asked */
    char digest[65];

    struct kv_pool pool;
    struct rstate slots;
    struct seq *seqs; /* slots.n */
    struct snaps snaps;
    struct blocks swaps; /* of page_size, pinned */
    struct lanes lanes;
    int readers; /* threads that bring a state */

    int max_out;        /* outputs of one computing call at most */
    struct output *out; /* max_out */
    int n_out;          /* readable now; 0 when none */
    struct held held;
    int32_t *head_rows; /* max_out */
    struct be_sample *draws;
    int32_t *ids;
    float *row; /* [vocab], for reading one output's logits */
    struct graph_scratch scratch;

    struct engine_counters count;
    struct engine_info info;
    struct phases phases;                /* of opening */
    char *name, *tier, *fallback, *plan; /* of info; owned */
};

/* plan.c: picks the backend (with EB_AUTO a device that is not there means the CPU) and
 * the window, completes bo by slots, pages and window, and says what that takes. */
int plan_make(struct engine *g, const struct engine_opts *o, struct be_opts *bo,
              struct engine_plan *out, struct err *e);
/* In words, in one line; the caller frees. */
char *plan_line(const struct engine_plan *p);
/* Bytes of cache that a token takes. */
uint64_t plan_token_bytes(const struct be_shape *s, enum be_kv kv);

/* snapshot.c: frees the spare memory; every snapshot is gone by then. */
void snaps_fini(struct engine *g);
/* Host memory of state_size bytes, pinned where the backend wants that, and back. */
int snap_take_values(struct engine *g, void **out, struct err *e);
void snap_give_values(struct engine *g, void *values);
/* swap.c: as snaps_fini. */
void swaps_fini(struct engine *g);
/* What a kept state has: its values, its pages; all borrowed. */
const void *snap_parts(const struct engine_snap *k, const int32_t **pages, int *n);
/* state.c: the first STATE_HEADER bytes of a state's blob; its size; a header that says
 * what it should, of a blob of n bytes in all: its tokens and whether they are pure. */
enum { STATE_HEADER = 48 };
void state_header(const struct engine *g, int len, bool pure, void *out);
size_t state_blob_size(const struct engine *g, int len);
int state_check_header(const struct engine *g, const void *in, size_t n, int *len, bool *pure,
                       struct err *e);
/* lane.c: a lane and the bytes of its buffers (a backend without: NULL); back to the spare
 * ones. One more spare one for idle moments: false when there are enough. */
enum { LANE_BYTES = 2 << 20 };
int lane_take(struct engine *g, struct be_lane **out, struct err *e);
void lane_give(struct engine *g, struct be_lane *l);
bool lane_prepare(struct engine *g);
void lanes_fini(struct engine *g);
/* Where byte `at` of the blob of a slot and so many pages lies, behind the blob's header. */
void *lane_place(const struct engine *g, int slot, const int32_t *pages, size_t at, size_t *n);
/* intake.c: how many threads bring a state, by --threads. */
int intake_readers(int threads);

/* The sequence, or an error that names it. */
int engine_seq_of(struct engine *g, int seq, struct seq **out, struct err *e);
/* The sequence, whose state can be copied: no step of it failed half way (QE_INTERNAL). */
int engine_seq_whole(struct engine *g, int seq, struct seq **out, struct err *e);
/* The sequence, ready for n more tokens. */
int engine_ready_for(struct engine *g, int seq, int n, struct seq **out, struct err *e);
int engine_check_tokens(const struct engine *g, const int32_t *tokens, int n, struct err *e);
/* The likeliest ids of the last head call's n rows, and their margins. */
int engine_choose(struct engine *g, int n, int32_t *ids, float *margins, struct err *e);
/* The outputs and the rows that wait for engine_commit are gone. */
void engine_forget(struct engine *g);

#endif
