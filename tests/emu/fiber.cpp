/* Fibers: stacks of their own and a switch between them, by hand on x86-64 and by
 * ucontext elsewhere. Sanitizers are told of every switch. */
#include "emu_priv.h"

#include <sys/mman.h>
#include <unistd.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined __SANITIZE_ADDRESS__ || defined EMU_TSAN
static const size_t stack_bytes = 512 << 10;
#else
static const size_t stack_bytes = 256 << 10;
#endif

struct emu_fiber {
    const void *stack;
    size_t stack_size;
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
    void *fake; /* AddressSanitizer's */
    void *tsan;
    void (*fn)(void *);
    void *arg;
};

static struct emu_fiber host, *current = &host;

#ifdef __x86_64__
extern "C" void emu_switch(void **save, void *load);
__asm__(".text\n"
        ".globl emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, . - emu_switch\n");
#endif

static void switch_to(struct emu_fiber *to)
{
    struct emu_fiber *from = current;
    current = to;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_size);
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef __x86_64__
    emu_switch(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(from->fake, &bottom, &size);
#endif
}

static void fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
    /* the host's stack is learned here, at the first switch away from it */
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &size);
    if (!host.stack) {
        host.stack = bottom;
        host.stack_size = size;
    }
#endif
    for (;;) {
        current->fn(current->arg);
        current->fn = NULL;
        emu_fiber_leave();
    }
}

struct emu_fiber *emu_fiber_create(void)
{
    struct emu_fiber *f = (struct emu_fiber *)calloc(1, sizeof *f);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *m = (char *)mmap(NULL, stack_bytes + page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!f || m == MAP_FAILED || mprotect(m, page, PROT_NONE) != 0) {
        fprintf(stderr, "emulator: no memory for a thread's stack\n");
        abort();
    }
    f->stack = m + page;
    f->stack_size = stack_bytes;
#ifdef EMU_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
#ifdef __x86_64__
    void **top = (void **)(m + page + stack_bytes) - 2;
    top[0] = (void *)fiber_main; /* returned to with the stack as after a call */
    top[1] = NULL;
    f->sp = top - 6;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = m + page;
    f->context.uc_stack.ss_size = stack_bytes;
    makecontext(&f->context, fiber_main, 0);
#endif
    return f;
}

void emu_fiber_enter(struct emu_fiber *f, void (*fn)(void *), void *arg)
{
    if (fn) {
        f->fn = fn;
        f->arg = arg;
    }
#ifdef EMU_TSAN
    if (!host.tsan) {
        host.tsan = __tsan_get_current_fiber();
    }
#endif
    switch_to(f);
}

void emu_fiber_leave(void)
{
    switch_to(&host);
}

#ifdef EMU_TSAN

extern "C" {
void __tsan_read_range(void *p, size_t n);
void __tsan_write_range(void *p, size_t n);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}

void emu_release(void *p)
{
    __tsan_release(p);
}

void emu_acquire(void *p)
{
    __tsan_acquire(p);
}

void emu_acquire_for(struct emu_thread *t, void *p)
{
    void *self = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(t->fiber->tsan, __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(p);
    __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
}

void emu_saw_read(const void *p, size_t n)
{
    __tsan_read_range((void *)(uintptr_t)p, n);
}

void emu_saw_write(void *p, size_t n)
{
    __tsan_write_range(p, n);
}

void emu_unseen(bool begin)
{
    if (begin) {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    } else {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
}

void emu_async_begin(int warp)
{
    static void *async[32];
    if (!async[warp]) {
        async[warp] = __tsan_create_fiber(0);
    }
    __tsan_switch_to_fiber(async[warp], __tsan_switch_to_fiber_no_sync);
}

void emu_async_end(void)
{
    __tsan_switch_to_fiber(current->tsan, __tsan_switch_to_fiber_no_sync);
}

#else

void emu_release(void *)
{
}

void emu_acquire(void *)
{
}

void emu_acquire_for(struct emu_thread *, void *)
{
}

void emu_saw_read(const void *, size_t)
{
}

void emu_saw_write(void *, size_t)
{
}

void emu_unseen(bool)
{
}

void emu_async_begin(int)
{
}

void emu_async_end(void)
{
}

#endif
