/* Runs a kernel: the blocks one after the other, or all at once where they wait for each
 * other; a block's threads as fibers that give way at barriers, at warp collectives and where they
 * wait for copies. Owns the block's shared memory. Everything that the chip would leave undefined
 * and that can be seen here ends the program with a line that says where. */
#include "emu_priv.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <unistd.h>

#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { MAX_THREADS = 1024, WARPS = MAX_THREADS / 32, BARRIERS = 16, MAX_BULK = 4096 };

/* 32-bit shared addresses: dynamic memory as on the chip, where an mma descriptor can
 * say it, 128 bytes past a multiple of 1024; static memory above. */
enum { DYN_FIRST = 1024 + 128, STATIC_FIRST = 1 << 20, LEAD = 128 };

extern unsigned char __start_emu_shared[] __attribute__((weak));
extern unsigned char __stop_emu_shared[] __attribute__((weak));

struct barrier {
    int n, arrived, value;
};

struct running {
    const struct emu_call *call;
    dim3 block;
    enum emu_order order;
    uint64_t rng;
    int threads, warps, done;
    struct emu_thread thread[MAX_THREADS];
    uint32_t ready[WARPS]; /* lanes that can run */
    int n_ready;
    struct barrier bar[BARRIERS];
    struct emu_copy bulk[MAX_BULK];
    int n_bulk;
    bool started[MAX_THREADS];
    bool moved;          /* somebody ran since the pollers slept */
    unsigned char *smem; /* LEAD guard bytes, then call->smem */
    uint64_t begin, end; /* their addresses stand for the block's */
};

/* The block that runs: the only one, or one of those of a launch that are there together. */
static struct running alone, *now = &alone;
static struct running **company; /* never given back: their threads have stacks */
static size_t n_company;

static struct {
    enum emu_order order;
    uint64_t seed, launches;
    bool read;
} setting;

struct emu_place *emu_here;

/* ---- order ---- */

void emu_set_order(enum emu_order order, uint64_t seed)
{
    setting.order = order;
    setting.seed = seed;
    setting.launches = 0;
    setting.read = true;
}

static void read_setting(void)
{
    const char *o = getenv("QUASAR_EMU_ORDER"), *s = getenv("QUASAR_EMU_SEED");
    enum emu_order order = EMU_CYCLE;
    if (o && strcmp(o, "forward") == 0) {
        order = EMU_FORWARD;
    } else if (o && strcmp(o, "reverse") == 0) {
        order = EMU_REVERSE;
    } else if (o && strcmp(o, "random") == 0) {
        order = EMU_RANDOM;
    } else if (o && strcmp(o, "cycle") != 0) {
        fprintf(stderr, "QUASAR_EMU_ORDER=%s: forward, reverse, random or cycle\n", o);
        exit(2);
    }
    emu_set_order(order, s ? strtoull(s, NULL, 0) : 1);
}

enum emu_order emu_order_now(void)
{
    return now->order;
}

uint32_t emu_random(uint32_t n)
{
    now->rng ^= now->rng << 13;
    now->rng ^= now->rng >> 7;
    now->rng ^= now->rng << 17;
    return (uint32_t)((now->rng >> 32) * n >> 32);
}

bool emu_early(void)
{
    return now->order == EMU_REVERSE || (now->order == EMU_RANDOM && emu_random(2) == 0);
}

/* ---- saying what is wrong ---- */

static void print_where(const void *where)
{
    Dl_info info;
    char exe[512], line[600];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (!where || n <= 0 || !dladdr(where, &info)) {
        return;
    }
    exe[n] = 0;
    size_t offset = (size_t)((const char *)where - (const char *)info.dli_fbase) - 1;
    snprintf(line, sizeof line, "addr2line -s -i -e '%s' %#zx 2>/dev/null", exe, offset);
    FILE *p = popen(line, "r");
    while (p && fgets(line, sizeof line, p)) {
        line[strcspn(line, " \n")] = 0;
        fprintf(stderr, " %s", line);
    }
    if (p) {
        pclose(p);
    }
}

[[noreturn]] void emu_fail(const char *fmt, ...)
{
    va_list ap;
    fflush(stdout);
    fprintf(stderr, "# emulator: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    if (now->call) {
        static const char *const orders[] = {"cycle", "forward", "reverse", "random"};
        fprintf(stderr, "\n# in %s, block (%u, %u, %u) of (%u, %u, %u), order %s", now->call->name,
                now->block.x, now->block.y, now->block.z, now->call->grid.x, now->call->grid.y,
                now->call->grid.z, orders[now->order]);
        if (emu_here) {
            fprintf(stderr, ", thread %d", emu_self()->index);
            fprintf(stderr, "; called at");
            print_where(emu_self()->where);
        }
    }
    fprintf(stderr, "\n");
    fflush(stderr);
    _exit(70);
}

[[noreturn]] void __trap(void)
{
    emu_self()->where = EMU_HERE;
    emu_fail("__trap()");
}

/* Where every warp stands, lanes that wait for the same together. */
[[noreturn]] static void deadlock(void)
{
    fprintf(stderr, "# emulator: nobody can run\n");
    for (int w = 0; w < now->warps; w++) {
        uint32_t seen = 0;
        for (int l = 0; l < 32; l++) {
            struct emu_thread *t = emu_warp_thread(w, l);
            if (!t || seen >> l & 1) {
                continue;
            }
            uint32_t same = 0;
            for (int m = l; m < 32; m++) {
                struct emu_thread *o = emu_warp_thread(w, m);
                if (o && o->state == t->state && o->what == t->what && o->key == t->key &&
                    o->mask == t->mask && o->where == t->where && o->bar == t->bar &&
                    o->parity == t->parity) {
                    same |= 1u << m;
                }
            }
            seen |= same;
            fprintf(stderr, "#   warp %d lanes %08x: ", w, same);
            switch (t->state) {
            case EMU_WARP:
                fprintf(stderr, "%s with mask %08x", t->what, t->mask);
                break;
            case EMU_BARRIER:
                fprintf(stderr, "%s, barrier %d: %d of %d", t->what, t->key,
                        now->bar[t->key].arrived, now->bar[t->key].n);
                break;
            case EMU_MBAR:
                fprintf(stderr, "mbarrier at %#x, parity %u", t->bar, t->parity);
                break;
            case EMU_POLL:
                fprintf(stderr, "spins in %s", t->what);
                break;
            case EMU_READY:
                fprintf(stderr, "ready");
                break;
            case EMU_DONE:
                fprintf(stderr, "has returned");
                break;
            }
            if (t->state != EMU_DONE) {
                print_where(t->where);
            }
            fprintf(stderr, "\n");
        }
    }
    emu_here = NULL;
    emu_fail("deadlock");
}

/* ---- threads ---- */

struct emu_thread *emu_self(void)
{
    return (struct emu_thread *)(void *)emu_here;
}

int emu_lane(void)
{
    return emu_self()->lane;
}

struct emu_thread *emu_warp_thread(int warp, int lane)
{
    int i = warp * 32 + lane;
    return i < now->threads ? &now->thread[i] : NULL;
}

static void make_ready(struct emu_thread *t)
{
    t->state = EMU_READY;
    now->ready[t->warp] |= 1u << t->lane;
    now->n_ready++;
}

/* Gives way; the state says to what. */
static void sleep_as(enum emu_state state)
{
    struct emu_thread *t = emu_self();
    if (state == EMU_READY) {
        make_ready(t);
    }
    t->state = state;
    emu_fiber_leave();
}

static void thread_main(void *arg)
{
    struct emu_thread *t = (struct emu_thread *)arg;
    emu_acquire(&now->begin);
    now->call->body(now->call->arg);
    emu_release(&now->end);
    emu_copies_finish(t);
    t->state = EMU_DONE;
    now->done++;
}

/* ---- meeting ---- */

static void run_nothing(void *const *args, unsigned mask)
{
    (void)args;
    (void)mask;
}

void emu_meet(const char *what, int key, unsigned mask, void *args,
              void (*run)(void *const *args, unsigned mask), const void *where)
{
    struct emu_thread *t = emu_self();
    t->what = what;
    t->where = where;
    t->key = key;
    t->mask = mask;
    t->args = args;
    t->run = run;
    if (!(mask >> t->lane & 1)) {
        emu_fail("%s: lane %d is not in its mask %08x", what, t->lane, mask);
    }
    void *all[32] = {NULL};
    bool complete = true;
    for (int l = 0; l < 32; l++) {
        struct emu_thread *o = emu_warp_thread(t->warp, l);
        if (!(mask >> l & 1) || !o) {
            continue;
        }
        if (o->state == EMU_DONE) {
            emu_fail("%s with mask %08x: lane %d has returned", what, mask, l);
        }
        if (o == t) {
        } else if (o->state != EMU_WARP || !(o->mask >> t->lane & 1)) {
            complete = false; /* not there yet, or among others */
        } else if (o->run != run || o->key != key || o->mask != mask) {
            emu_fail("%s with mask %08x (%d): lane %d is in %s with mask %08x (%d)", what, mask,
                     key, l, o->what, o->mask, o->key);
        }
        all[l] = o->args;
    }
    /* of these only __syncwarp orders memory */
    void *meeting = run == run_nothing ? &now->ready[t->warp] : NULL;
    if (meeting) {
        emu_release(meeting);
    }
    if (!complete) {
        sleep_as(EMU_WARP);
    } else {
        emu_unseen(true);
        run(all, mask);
        emu_unseen(false);
        for (int l = 0; l < 32; l++) {
            struct emu_thread *o = emu_warp_thread(t->warp, l);
            if (!(mask >> l & 1) || !o) {
                continue;
            }
            if (meeting) {
                emu_acquire_for(o, meeting);
            }
            if (o != t) {
                make_ready(o);
            }
        }
        sleep_as(EMU_READY);
    }
}

int emu_barrier(const char *what, int id, int n, int v, bool wait, const void *where)
{
    struct emu_thread *t = emu_self();
    t->what = what;
    t->where = where;
    t->key = id;
    if (id < 0 || id >= BARRIERS || n <= 0 || (n % 32 != 0 && n != now->threads) ||
        n > (now->threads + 31) / 32 * 32) {
        emu_fail("%s: barrier %d of %d threads in a block of %d", what, id, n, now->threads);
    }
    struct barrier *b = &now->bar[id];
    if (b->arrived == 0) {
        b->n = n;
        b->value = 0;
    } else if (b->n != n) {
        emu_fail("%s: barrier %d is for %d threads here and %d elsewhere", what, id, n, b->n);
    }
    b->arrived++;
    b->value += v;
    emu_release(b);
    if (b->arrived < n) {
        if (!wait) {
            return 0;
        }
        sleep_as(EMU_BARRIER);
    } else {
        b->arrived = 0;
        for (int i = 0; i < now->threads; i++) {
            struct emu_thread *o = &now->thread[i];
            if (o->state == EMU_BARRIER && o->key == id) {
                emu_acquire_for(o, b);
                o->parity = (uint32_t)b->value;
                make_ready(o);
            }
        }
        t->parity = (uint32_t)b->value;
        if (wait) {
            emu_acquire(b);
        }
        sleep_as(EMU_READY);
    }
    return (int)t->parity;
}

void __syncthreads(void)
{
    emu_barrier("__syncthreads", 0, now->threads, 0, true, EMU_HERE);
}

int __syncthreads_or(int v)
{
    return emu_barrier("__syncthreads_or", 0, now->threads, v != 0, true, EMU_HERE) != 0;
}

int __syncthreads_and(int v)
{
    return emu_barrier("__syncthreads_and", 0, now->threads, v != 0, true, EMU_HERE) ==
           now->threads;
}

int __syncthreads_count(int v)
{
    return emu_barrier("__syncthreads_count", 0, now->threads, v != 0, true, EMU_HERE);
}

void __syncwarp(unsigned mask)
{
    emu_meet("__syncwarp", 0, mask, NULL, run_nothing, EMU_HERE);
}

void emu_sync_point(void *p)
{
    emu_acquire(p);
    emu_release(p);
}

/* ---- shuffles and votes ---- */

struct shuffle {
    uint64_t v, out;
    int from;
};

static void run_shuffle(void *const *args, unsigned mask)
{
    for (int l = 0; l < 32; l++) {
        struct shuffle *s = (struct shuffle *)args[l];
        if (!s) {
            continue;
        }
        if (s->from < 0 || s->from > 31 || !(mask >> s->from & 1) || !args[s->from]) {
            emu_fail("shuffle with mask %08x: lane %d reads lane %d", mask, l, s->from);
        }
        s->out = ((struct shuffle *)args[s->from])->v;
    }
}

uint64_t emu_shfl(const char *what, unsigned mask, uint64_t v, int from)
{
    struct shuffle s = {v, 0, from};
    emu_meet(what, 0, mask, &s, run_shuffle, EMU_HERE);
    return s.out;
}

struct vote {
    unsigned v, out;
    int kind;
};

static void run_vote(void *const *args, unsigned mask)
{
    unsigned yes = 0, there = 0;
    for (int l = 0; l < 32; l++) {
        if (args[l]) {
            there |= 1u << l;
            yes |= (unsigned)(((struct vote *)args[l])->v != 0) << l;
        }
    }
    (void)mask;
    for (int l = 0; l < 32; l++) {
        struct vote *v = (struct vote *)args[l];
        if (v) {
            v->out = v->kind == 0 ? yes : v->kind == 1 ? yes != 0 : yes == there;
        }
    }
}

unsigned emu_vote(const char *what, unsigned mask, int v, int kind)
{
    struct vote a = {v != 0, 0, kind};
    emu_meet(what, kind, mask, &a, run_vote, EMU_HERE);
    return a.out;
}

static void run_reduce(void *const *args, unsigned mask)
{
    unsigned acc = 0;
    bool first = true;
    for (int l = 0; l < 32; l++) {
        const struct vote *v = (const struct vote *)args[l];
        if (!v) {
            continue;
        }
        bool greater = v->kind >= 3 ? (int)v->v > (int)acc : v->v > acc;
        bool less = v->kind >= 3 ? (int)v->v < (int)acc : v->v < acc;
        if (v->kind == 0) {
            acc += v->v;
        } else if (first || (v->kind == 1 || v->kind == 3 ? greater : less)) {
            acc = v->v;
        }
        first = false;
    }
    (void)mask;
    for (int l = 0; l < 32; l++) {
        if (args[l]) {
            ((struct vote *)args[l])->out = acc;
        }
    }
}

unsigned emu_reduce(const char *what, unsigned mask, unsigned v, int kind)
{
    struct vote a = {v, 0, kind};
    emu_meet(what, kind, mask, &a, run_reduce, EMU_HERE);
    return a.out;
}

/* ---- waiting for copies ---- */

void emu_wait_mbar(uint32_t bar, uint32_t parity, const void *where)
{
    struct emu_thread *t = emu_self();
    t->what = "mbar_wait";
    t->where = where;
    t->bar = bar;
    t->parity = parity;
    sleep_as(EMU_MBAR);
}

void emu_poll(const char *what, const void *where)
{
    struct emu_thread *t = emu_self();
    t->what = what;
    t->where = where;
    sleep_as(EMU_POLL);
}

void emu_wake_mbar(uint32_t bar)
{
    for (int i = 0; i < now->threads; i++) {
        struct emu_thread *t = &now->thread[i];
        if (t->state == EMU_MBAR && t->bar == bar && emu_mbar_done(bar, t->parity)) {
            emu_acquire_for(t, emu_shared(bar, 8, 8, "mbarrier"));
            make_ready(t);
        }
    }
}

static void bulk_land(int i)
{
    struct emu_copy c = now->bulk[i];
    now->n_bulk--;
    for (int k = i; k < now->n_bulk; k++) {
        now->bulk[k] = now->bulk[k + 1];
    }
    void *sync = emu_shared(c.bar, 8, 8, "mbarrier");
    emu_acquire(sync);
    memcpy(c.dst, c.src, c.bytes);
    emu_release(sync);
    emu_mbar_complete(c.bar, c.bytes);
    now->moved = true;
}

void emu_bulk(const struct emu_copy *c)
{
    if (now->n_bulk == MAX_BULK) {
        emu_fail("more than %d bulk copies under way", MAX_BULK);
    }
    memset(c->dst, 0xff, c->bytes);
    emu_release(emu_shared(c->bar, 8, 8, "mbarrier"));
    now->bulk[now->n_bulk++] = *c;
    if (emu_early()) {
        bulk_land(now->n_bulk - 1);
    }
}

/* ---- shared memory ---- */

static unsigned char *static_base(void)
{
    return (unsigned char *)((uintptr_t)__start_emu_shared & ~(uintptr_t)4095);
}

uint32_t smem_addr(const void *p)
{
    const unsigned char *q = (const unsigned char *)p;
    if (now->smem && q >= now->smem + LEAD && q <= now->smem + LEAD + now->call->smem) {
        return DYN_FIRST + (uint32_t)(q - now->smem - LEAD);
    }
    if (__start_emu_shared && q >= __start_emu_shared && q <= __stop_emu_shared) {
        return STATIC_FIRST + (uint32_t)(q - static_base());
    }
    emu_self()->where = EMU_HERE;
    emu_fail("smem_addr(%p): not shared memory", p);
}

unsigned char *emu_shared(uint32_t addr, size_t n, unsigned align, const char *what)
{
    if (addr % align != 0) {
        emu_fail("%s: shared address %#x is not a multiple of %u", what, addr, align);
    }
    size_t off = addr - (size_t)DYN_FIRST;
    if (addr >= DYN_FIRST && off <= now->call->smem && n <= now->call->smem - off) {
        return now->smem + LEAD + off;
    }
    if (__start_emu_shared && addr >= STATIC_FIRST) {
        unsigned char *p = static_base() + (addr - STATIC_FIRST);
        if (p >= __start_emu_shared && p + n <= __stop_emu_shared) {
            return p;
        }
    }
    if (addr >= DYN_FIRST && addr < STATIC_FIRST) {
        emu_fail("%s: %zu bytes at byte %zd of %zu of dynamic shared memory", what, n,
                 (ssize_t)addr - DYN_FIRST, now->call->smem);
    }
    emu_fail("%s: %#x is no shared address", what, addr);
}

unsigned char *cu_smem(void)
{
    return now->smem + LEAD;
}

unsigned char *cu_smem_aligned(unsigned align)
{
    uint32_t a = (align - DYN_FIRST % align) & (align - 1);
    if (a > now->call->smem) {
        emu_fail("cu_smem_aligned(%u) needs %u bytes more of shared memory", align, a);
    }
    return now->smem + LEAD + a;
}

/* What shared memory holds before a kernel writes it differs from block to block, as on
 * the chip: NaNs, which a maximum hides; large numbers of either sign, as fp32 and as fp16,
 * which it does not; whatever bits. */
static uint32_t garbage(uint32_t kind)
{
    switch (kind) {
    case 0:
        return 0xffffffff;
    case 1:
        return 0x7149f2ca; /* 1e30; fp16 10832, -13904 */
    case 2:
        return 0x7f7fffff; /* the largest; fp16 NaN, NaN */
    case 3:
        return 0xf149f2ca;
    default:
        return emu_random(UINT32_MAX);
    }
}

/* Over AddressSanitizer's own guards, hence not memset. */
#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize_address))
#endif
static void
fill(unsigned char *p, unsigned char *end, uint32_t kind)
{
    for (volatile unsigned char *q = p; q < end;) {
        const uint32_t v = garbage(kind);
        for (int i = 0; i < 4 && q < end; i++) {
            *q++ = (unsigned char)(v >> 8 * i);
        }
    }
}

static void smem_create(void)
{
    size_t n = LEAD + now->call->smem;
#ifndef __SANITIZE_ADDRESS__
    n += LEAD; /* checked at the end of the block */
#endif
    void *p = NULL;
    if (posix_memalign(&p, 1024, n) != 0) {
        emu_fail("no memory for %zu bytes", n);
    }
    now->smem = (unsigned char *)p;
    memset(p, 0xff, n);
    const uint32_t kind = emu_random(5);
    fill(now->smem + LEAD, now->smem + LEAD + now->call->smem, kind);
#ifdef __SANITIZE_ADDRESS__
    ASAN_POISON_MEMORY_REGION(p, LEAD);
#endif
    if (__start_emu_shared) {
        fill(__start_emu_shared, __stop_emu_shared, kind);
    }
}

static void smem_free(void)
{
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(now->smem, LEAD);
#else
    for (int i = 0; i < LEAD; i++) {
        if (now->smem[i] != 0xff || now->smem[LEAD + now->call->smem + (size_t)i] != 0xff) {
            emu_here = NULL;
            emu_fail("wrote outside its %zu bytes of dynamic shared memory", now->call->smem);
        }
    }
#endif
    free(now->smem);
    now->smem = NULL;
}

/* ---- the block ---- */

/* The next thread: one warp runs on until it cannot, so that warps drift apart as far
 * as the barriers let them. */
static struct emu_thread *choose(int *warp)
{
    int w = *warp;
    if (!now->ready[w] || (now->order == EMU_RANDOM && emu_random(16) == 0)) {
        switch (now->order) {
        case EMU_REVERSE:
            for (w = now->warps - 1; !now->ready[w]; w--) {
            }
            break;
        case EMU_RANDOM:
            do {
                w = (int)emu_random((uint32_t)now->warps);
            } while (!now->ready[w]);
            break;
        case EMU_CYCLE:
        case EMU_FORWARD:
            for (w = 0; !now->ready[w]; w++) {
            }
            break;
        }
        *warp = w;
    }
    uint32_t r = now->ready[w];
    int lane = __builtin_ctz(r);
    if (now->order == EMU_REVERSE) {
        lane = 31 - __builtin_clz(r);
    } else if (now->order == EMU_RANDOM) {
        for (uint32_t skip = emu_random((uint32_t)__builtin_popcount(r)); skip > 0; skip--) {
            r &= r - 1;
        }
        lane = __builtin_ctz(r);
    }
    now->ready[w] &= ~(1u << lane);
    now->n_ready--;
    return &now->thread[w * 32 + lane];
}

/* Lets what is under way land, or pollers look again; false: nothing is left to do. */
static bool unblock(void)
{
    if (now->n_bulk > 0) {
        bulk_land(now->order == EMU_RANDOM ? (int)emu_random((uint32_t)now->n_bulk) : 0);
    }
    bool any = now->n_ready > 0;
    for (int i = 0; i < now->threads && now->moved; i++) {
        if (now->thread[i].state == EMU_POLL) {
            make_ready(&now->thread[i]);
            any = true;
        }
    }
    now->moved = false;
    return any || now->n_bulk > 0;
}

/* Makes a block of a launch ready to run as `now`. */
static void block_begin(uint64_t number)
{
    const struct emu_call *c = now->call;
    now->block.x = (unsigned)(number % c->grid.x);
    now->block.y = (unsigned)(number / c->grid.x % c->grid.y);
    now->block.z = (unsigned)(number / c->grid.x / c->grid.y);
    now->done = 0;
    now->n_ready = 0;
    now->moved = false;
    memset(now->bar, 0, sizeof now->bar);
    memset(now->started, 0, sizeof now->started);
    smem_create();
    for (int i = 0; i < now->threads; i++) {
        struct emu_thread *t = &now->thread[i];
        unsigned u = (unsigned)i;
        t->place.thread =
            make_uint3(u % c->block.x, u / c->block.x % c->block.y, u / c->block.x / c->block.y);
        t->place.block = make_uint3(now->block.x, now->block.y, now->block.z);
        t->place.block_dim = c->block;
        t->place.grid_dim = c->grid;
        t->index = i;
        t->warp = i / 32;
        t->lane = i % 32;
        t->reached_pdl = false;
        t->where = NULL;
        if (!t->fiber) {
            t->fiber = emu_fiber_create();
        }
        make_ready(t);
    }
    emu_release(&now->begin);
}

/* Runs the block until its end, until nobody in it can go on by himself, or for so many
 * turns. Returns how many turns brought it forward. */
static uint64_t block_run(uint64_t turns)
{
    uint64_t forward = 0;
    int warp = now->order == EMU_REVERSE ? now->warps - 1 : 0;
    while (now->done < now->threads && turns > 0) {
        if (now->n_ready == 0) {
            if (!unblock()) {
                break;
            }
            continue;
        }
        if (now->order == EMU_RANDOM && now->n_bulk > 0 && emu_random(32) == 0) {
            bulk_land((int)emu_random((uint32_t)now->n_bulk));
        }
        struct emu_thread *t = choose(&warp);
        emu_here = &t->place;
        if (now->started[t->index]) {
            emu_fiber_enter(t->fiber, NULL, NULL);
        } else {
            now->started[t->index] = true;
            emu_fiber_enter(t->fiber, thread_main, t);
        }
        emu_here = NULL;
        if (t->state != EMU_POLL) {
            now->moved = true;
            forward++;
        }
        turns--;
    }
    return forward;
}

static void block_end(void)
{
    emu_acquire(&now->end);
    if (now->n_bulk > 0) {
        emu_fail("ends with %d bulk copies under way", now->n_bulk);
    }
    for (int i = 0; i < BARRIERS; i++) {
        if (now->bar[i].arrived != 0) {
            emu_fail("ends with %d of %d threads arrived at barrier %d", now->bar[i].arrived,
                     now->bar[i].n, i);
        }
    }
    emu_wgmma_block_end(now->warps);
    bool pdl = false;
    for (int i = 0; i < now->threads; i++) {
        pdl |= now->thread[i].reached_pdl;
    }
    if (now->call->pdl && !pdl) {
        emu_fail("a block without pdl_wait() in a chain of dependent launches");
    }
    smem_free();
}

/* One block after the other. */
static void run_alone(const std::vector<uint64_t> &number)
{
    for (size_t i = 0; i < number.size(); i++) {
        block_begin(number[i]);
        block_run(UINT64_MAX);
        if (now->done < now->threads) {
            deadlock();
        }
        block_end();
    }
}

/* All blocks at once: each runs until it must wait for another, or for a random while. */
static void run_together(const std::vector<uint64_t> &number)
{
    const struct running first = alone;
    if (n_company < number.size()) {
        company = (struct running **)realloc(company, number.size() * sizeof *company);
    }
    for (; company && n_company < number.size(); n_company++) {
        company[n_company] = (struct running *)calloc(1, sizeof **company);
    }
    std::vector<bool> ended(number.size());
    for (size_t i = 0; i < number.size(); i++) {
        now = company[i];
        now->call = first.call;
        now->order = first.order;
        now->rng = first.rng + 2 * i;
        now->threads = first.threads;
        now->warps = first.warps;
        block_begin(number[i]);
    }
    int idle = 0; /* rounds in which all only looked; each look may be at another word */
    for (size_t left = number.size(); left > 0;) {
        uint64_t forward = 0;
        for (size_t i = 0; i < number.size(); i++) {
            if (ended[i]) {
                continue;
            }
            now = company[i];
            now->moved = true; /* others may have done what it polls for */
            forward += block_run(now->order == EMU_RANDOM ? 1 + emu_random(4096) : UINT64_MAX);
            if (now->done == now->threads) {
                block_end();
                ended[i] = true;
                left--;
                forward++;
            }
        }
        idle = forward == 0 ? idle + 1 : 0;
        if (idle == 4096) {
            deadlock();
        }
    }
    now = &alone;
}

static bool wrong_shape(const struct emu_call *c)
{
    uint64_t threads = (uint64_t)c->block.x * c->block.y * c->block.z;
    size_t most = c->sm90 ? 232448 : 101376; /* sm_86, 89 and 120 have 99 KB */
    if (threads < 1 || threads > MAX_THREADS || c->block.z > 64 || c->grid.x < 1 || c->grid.y < 1 ||
        c->grid.z < 1 || c->grid.x > INT32_MAX || c->grid.y > 65535 || c->grid.z > 65535 ||
        c->smem > most) {
        fprintf(stderr, "# emulator: %s: grid (%u, %u, %u), block (%u, %u, %u), %zu bytes of %zu\n",
                c->name, c->grid.x, c->grid.y, c->grid.z, c->block.x, c->block.y, c->block.z,
                c->smem, most);
        return true;
    }
    return false;
}

cudaError_t emu_run(const struct emu_call *c)
{
    if (wrong_shape(c)) {
        return cudaErrorInvalidConfiguration;
    }
    if (emu_record(c)) {
        return cudaSuccess;
    }
    if (!setting.read) {
        read_setting();
    }
    uint64_t launch = setting.launches++;
    now->call = c;
    now->order = setting.order;
    if (now->order == EMU_CYCLE) {
        now->order = (enum emu_order)(EMU_FORWARD + launch % 3);
    }
    now->rng = (setting.seed + launch) * 0x9e3779b97f4a7c15u | 1;
    now->threads = (int)(c->block.x * c->block.y * c->block.z);
    now->warps = (now->threads + 31) / 32;
    for (int i = 0; i < 4; i++) {
        emu_random(2);
    }
    uint64_t n = (uint64_t)c->grid.x * c->grid.y * c->grid.z;
    /* random: a start and a stride without a common factor */
    uint64_t start = 0, stride = 1;
    if (now->order == EMU_REVERSE) {
        start = n - 1;
        stride = n - 1;
    } else if (now->order == EMU_RANDOM && n > 1) {
        start = emu_random((uint32_t)n);
        uint64_t g;
        do {
            stride = 1 + emu_random((uint32_t)(n - 1));
            g = n;
            for (uint64_t a = stride; a != 0;) {
                uint64_t r = g % a;
                g = a;
                a = r;
            }
        } while (g != 1);
    }
    std::vector<uint64_t> number;
    for (uint64_t i = 0, b = start; i < n; i++, b = (b + stride) % n) {
        number.push_back(b);
    }
    if (c->together) {
        run_together(number);
    } else {
        run_alone(number);
    }
    now->call = NULL;
    return cudaSuccess;
}
