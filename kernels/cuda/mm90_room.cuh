#ifndef QUASAR_KERNELS_CUDA_MM90_ROOM_CUH
#define QUASAR_KERNELS_CUDA_MM90_ROOM_CUH

/* A chain of products on sm_90 (mm_sm90.cuh): which warps a block has, what a launch is given,
 * where shared memory has its parts, and the tickets that mark words. */

#include "kernels/cuda/gdn_step.cuh"
#include "kernels/cuda/mm_put.cuh"

enum {
    MM90_STREAM = 8, /* streaming warps */
    MM90_STREAM_THREADS = MM90_STREAM * MM_LANES,
    MM90_STAGE = MM90_STREAM * MM_STAGE, /* bytes: 8 steps of W4, 4 of W8, 2 of W16 */
    MM90_X_ROW = MM_X_STEP + 16,         /* of a step of a row: rows do not share banks */
    MM90_PARTS = 4, /* contributions that are on their way at a time; of one row twice as many */
    MM90_EXCHANGE_BARS = 5, /* empty, full for each of at most two groups of takers; ready, read */
    BAR90_STREAM = 1
};

/* What finishing N rows of a tile needs beside its contributions, for a streaming warp; brought
 * by a taker while it has nothing else to do. */
template <int N> struct mm90_ready {
    int4 tile; /* struct mm_finish; parts 0: none */
    float2 old[N][MM_LANES];
};

/* Launches from one with a ticket to the next with the same: marks never pass 2^32 and so are
 * never MM90_KEPT. */
static const uint32_t MM90_TICKETS = UINT32_MAX / CU_LINKS - 1;
static const uint32_t MM90_KEPT = 0; /* a ticket that nobody waits for */

/* The warps of a block in order: those that stream, take sums, finish tiles, the producer. With
 * few rows tiles of several contributions have a warp of their own; with more the streaming warps
 * finish them when they are through with a link. */
template <int NT, bool MANY> struct mm90_warps {
    /* 12 warps either way, which may have 168 registers each. */
    static constexpr int take = MANY ? 3 : 2, finish = MANY ? 0 : 1;
    static constexpr int finish_0 = MM90_STREAM + take, producer = finish_0 + finish;
    static constexpr int threads = (producer + 1) * MM_LANES;
    static constexpr int asked = MANY ? 20 : 5; /* units of inputs that a lane asks for at a time */
    static constexpr bool ahead = !MANY;        /* a step is read while another is computed */
    static constexpr int rows = MANY ? 3 * NT : 4; /* of the batch that a taker takes */
    static constexpr int takers = MANY ? 3 : 1;    /* of a tile */
    static constexpr int groups = take / takers;   /* of takers, by tile */
    static constexpr int finished = NT;            /* rows that a streaming warp finishes */
};

/* Bytes of what takers bring for streaming warps that finish tiles: factors of rows, tiles. */
static constexpr __host__ __device__ uint32_t mm90_ready_bytes(int nt)
{
    return CU_ROWS * (uint32_t)sizeof(float2) +
           MM90_STREAM *
               (uint32_t)(nt == 1 ? sizeof(struct mm90_ready<1>) : sizeof(struct mm90_ready<2>));
}

/* Floats of the exchange. */
static constexpr __host__ __device__ int mm90_exchange(int nt)
{
    return MM90_STREAM * nt * 8 * MM_COL;
}

struct mm90_link {
    uint32_t gdn; /* or a product */
    union {
        struct {
            struct mm_op mm;
            int odd; /* which of the areas for contributions */
        };
        struct {
            struct cu_gdn g;
            struct gdn_step_args p;
            struct mm_words w; /* x: the inputs, values; out: the activations, pairs */
            uint2 *halves;     /* what halves of a head tell each other: [row][head][2] */
        } step;
    };
};

/* Where a block's shared memory has its parts; of x and offset each streaming warp has one. */
struct mm90_smem {
    uint32_t stages, x, x_warp, offset, offset_warp, exchange, ready, blocks, bars, bytes;
    uint32_t steps, step_rows; /* for how many steps, and rows of them, a warp has room */
};

struct mm90_args {
    struct cu_batch b;
    uint32_t *left;   /* how many blocks have come to their end; zero before and after */
    uint32_t *ticket; /* of this launch; the next has the next */
    int n;
    int flying; /* stages on their way at a time: what waits behind them waits longer */
    struct mm90_smem at;
    struct mm90_link link[CU_LINKS];
};

/* A block's view of its shared memory. */
struct mm90_room {
    uint32_t ring, ring_full, ring_empty; /* shared addresses; a barrier per stage each */
    uint32_t full, empty;                 /* of the exchange; full: one for each group of takers */
    uint32_t ready, read;                 /* what finishing needs; link by link */
    uint8_t *base, *x, *offset, *ready_at;
    uint32_t x_warp, offset_warp;
    float *exchange;
    int4 *blocks;   /* by link */
    uint32_t *left; /* warps of the block that have come to their end */
    int stages, steps, step_rows;
};

static __device__ __forceinline__ struct mm90_room room_of(const struct mm90_smem &at,
                                                           unsigned char *smem)
{
    struct mm90_room r;
    r.base = smem;
    r.ring = smem_addr(smem);
    r.stages = (int)at.stages;
    r.steps = (int)at.steps;
    r.step_rows = (int)at.step_rows;
    r.ring_full = smem_addr(smem + at.bars);
    r.ring_empty = r.ring_full + at.stages * 8;
    r.empty = r.ring_empty + at.stages * 8;
    r.full = r.empty + 8;
    r.ready = r.full + 2 * 8;
    r.read = r.ready + 8;
    r.ready_at = smem + at.ready;
    r.x = smem + at.x;
    r.offset = smem + at.offset;
    r.x_warp = at.x_warp;
    r.offset_warp = at.offset_warp;
    r.exchange = (float *)(smem + at.exchange);
    r.blocks = (int4 *)(smem + at.blocks);
    r.left = (uint32_t *)(smem + at.blocks + CU_LINKS * sizeof(int4));
    return r;
}

/* A stage of the ring, for producer and consumers alike. */
struct cursor {
    int slot;
    uint32_t parity;
};

static __device__ __forceinline__ void advance(struct cursor &c, int stages)
{
    c.slot++;
    if (c.slot == stages) {
        c.slot = 0;
        c.parity ^= 1;
    }
}

/* Steps of this kind that a stage holds; it holds one kind. */
static __device__ __forceinline__ int stage_steps(int kind)
{
    return MM90_STREAM >> kind;
}

static __device__ __forceinline__ uint32_t step_bytes_of(int kind)
{
    return (uint32_t)(MM_STAGE - 64 * kind) << kind;
}

/* This block's part of link i, from shared memory. */
static __device__ __forceinline__ struct mm_block block_of(const struct mm90_room &room, int i)
{
    const int4 v = room.blocks[i];
    struct mm_block b;
    b.run = v.x;
    b.n_runs = v.y;
    b.phase = v.z;
    b.steps = v.w;
    return b;
}

/* What a warp that writes and reads words starts from: link i's are marked by this plus i,
 * never by MM90_KEPT. */
static __device__ __forceinline__ uint32_t first_ticket(const struct mm90_args &g)
{
    return (ld_relaxed(g.ticket) + 1) * CU_LINKS;
}

/* A warp that has read the ticket is done; the last of all blocks' raises it. */
static __device__ __forceinline__ void leave(const struct mm90_args &g,
                                             const struct mm90_room &room, uint32_t warps, int lane)
{
    __syncwarp();
    if (lane == 0 && atomicAdd(room.left, 1u) == warps - 1 &&
        atom_add_acq_rel(g.left, 1) == gridDim.x - 1) {
        const uint32_t next = *g.ticket + 1;
        *g.left = 0;
        *g.ticket = next < MM90_TICKETS ? next : 0;
    }
}

/* Whether both of two words have the ticket. */
static __device__ __forceinline__ bool is_there(uint4 t, uint32_t ticket)
{
    return t.y == ticket && t.w == ticket;
}

#endif
