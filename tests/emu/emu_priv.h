#ifndef QUASAR_TESTS_EMU_PRIV_H
#define QUASAR_TESTS_EMU_PRIV_H

/* Inside the emulator. One host thread; everything is about the running block. */

#include "emu.h"

/* While a graph is captured: keeps the launch for later and returns true. */
bool emu_record(const struct emu_call *c);

struct emu_copy {
    unsigned char *dst;
    const unsigned char *src;
    uint32_t bytes;
    uint32_t bar; /* bulk copies: the mbarrier; else 0 */
};

/* cp.async of one thread: copies under way, in order; group g ends at end[g]. */
struct emu_queue {
    struct emu_copy *copy;
    int n, cap;
    int *end;
    int groups, groups_cap;
};

enum emu_state { EMU_READY, EMU_WARP, EMU_BARRIER, EMU_MBAR, EMU_POLL, EMU_DONE };

struct emu_thread {
    struct emu_place place; /* first: emu_here points to it */
    int index, warp, lane;
    enum emu_state state;
    /* what it waits for, and where in the program */
    const char *what;
    const void *where;
    int key; /* of the collective; barrier id */
    unsigned mask;
    void *args;
    void (*run)(void *const *args, unsigned mask);
    uint32_t bar, parity;
    struct emu_queue copies;
    bool reached_pdl;
    struct emu_fiber *fiber;
};

#define EMU_HERE __builtin_return_address(0)

struct emu_thread *emu_self(void);
/* One of a thread's 32; NULL where the block ends before. */
struct emu_thread *emu_warp_thread(int warp, int lane);

/* All lanes of mask (those that exist) meet; the last one calls run once with each
 * lane's args. key: parameters that must agree. */
void emu_meet(const char *what, int key, unsigned mask, void *args,
              void (*run)(void *const *args, unsigned mask), const void *where);
/* A block barrier; wait: false for an arrival. Returns the sum of v over those that met. */
int emu_barrier(const char *what, int id, int n, int v, bool wait, const void *where);

/* Sleeps until emu_wake_mbar(bar) finds the phase of that parity complete, or (POLL)
 * until others have run. */
void emu_wait_mbar(uint32_t bar, uint32_t parity, const void *where);
void emu_poll(const char *what, const void *where);
void emu_wake_mbar(uint32_t bar);

/* Bulk copies under way, completed by the scheduler. */
void emu_bulk(const struct emu_copy *c);

enum emu_order emu_order_now(void);
uint32_t emu_random(uint32_t n); /* 0 .. n - 1; fixed by the launch's seed */
/* Whether an asynchronous thing issued now happens at once instead of late. */
bool emu_early(void);

/* n bytes of shared memory by 32-bit address; ends the program where it is not the
 * block's. align: what the address must be a multiple of. */
unsigned char *emu_shared(uint32_t addr, size_t n, unsigned align, const char *what);

/* Says what is wrong, in which kernel, block and thread, and ends the program. */
[[noreturn]] void emu_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* mbarriers (emu_ptx.cpp) */
bool emu_mbar_done(uint32_t bar, uint32_t parity);
void emu_mbar_complete(uint32_t bar, uint32_t bytes);
/* Ends of threads and blocks (emu_ptx.cpp, emu_wgmma.cpp). */
void emu_copies_finish(struct emu_thread *t);
void emu_wgmma_block_end(int warps);

/* Fibers (fiber.cpp): call fn(arg) on a stack of its own; it may be used again after fn
 * returned. */
struct emu_fiber *emu_fiber_create(void);
void emu_fiber_enter(struct emu_fiber *f, void (*fn)(void *), void *arg);
void emu_fiber_leave(void); /* back to the enterer; emu_fiber_enter(f, NULL, NULL) resumes */

/* For ThreadSanitizer, which finds races between threads of a block; else nothing.
 * What others released at p is seen; memory that an instruction reads or writes; the
 * emulator's own accesses are not to be seen. */
void emu_release(void *p);
void emu_acquire(void *p);
/* At the moment when it is let go, not later when it runs: others have gone on then. */
void emu_acquire_for(struct emu_thread *t, void *p);
void emu_saw_read(const void *p, size_t n);
void emu_saw_write(void *p, size_t n);
void emu_unseen(bool begin);
/* Reads and releases of the tensor cores of a warp, which run beside its threads:
 * between begin and end the caller speaks for them. */
void emu_async_begin(int warp);
void emu_async_end(void);

#endif
