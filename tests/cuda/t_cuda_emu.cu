/* The emulator notices what is wrong: each kernel here makes one mistake and must end
 * its process with the right words. */
#include "cutest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wgmma.cuh"

#ifdef QUASAR_EMULATE
#include <sys/wait.h>

enum mistake {
    NONE,
    HALF_SHUFFLE,
    RETURNED_LANE,
    OTHER_COLLECTIVE,
    LANE_OUTSIDE,
    LONELY_BARRIER,
    NAMED_BARRIER,
    ODD_COPY,
    COPY_OUTSIDE,
    NOT_SHARED,
    NO_MBARRIER,
    NO_BYTES,
    BULK_AT_END,
    TOO_MANY_ARRIVALS,
    NO_PDL,
    NO_FENCE,
    EARLY_READ,
    TOUCHED,
    NOT_WAITED,
    TRAP,
    RACE,
    WGMMA_RACE,
    PAST_STATIC,
    PAST_DYNAMIC,
    PAST_GLOBAL
};

static __global__ void wrong_kernel(int what, const float *src, float *dst)
{
    unsigned char *s = cu_smem_aligned(1024);
    __shared__ uint64_t bar;
    const int t = (int)threadIdx.x;
    float d[32];
    for (int i = 0; i < 32; i++) {
        d[i] = 0;
    }
    if (what != NO_PDL) {
        pdl_wait();
    }
    if (what == HALF_SHUFFLE && t % 2 == 0) {
        d[0] = __shfl_xor_sync(0xffffffff, d[0], 1);
    }
    if (what == RETURNED_LANE) {
        if (t == 3) {
            return;
        }
        __syncwarp();
    }
    if (what == OTHER_COLLECTIVE) {
        d[0] = t % 2 ? __shfl_sync(0xffffffff, d[0], 0) : (float)__any_sync(0xffffffff, t);
    }
    if (what == LANE_OUTSIDE && t < 16) {
        d[0] = __shfl_xor_sync(0x0000ffff, d[0], 16);
    }
    if (what == LONELY_BARRIER && t < 64) {
        __syncthreads();
    }
    if (what == NAMED_BARRIER) {
        bar_sync(1, t < 64 ? 128 : 96);
    }
    if (what == ODD_COPY) {
        cp_async16(smem_addr(s), src + 1);
    }
    if (what == COPY_OUTSIDE) {
        cp_async16(smem_addr(s) + 16384, src);
    }
    if (what == NOT_SHARED) {
        d[0] = (float)smem_addr(src);
    }
    if (what == NO_MBARRIER) {
        mbar_wait(smem_addr(&bar), 0);
    }
    if (what == NO_BYTES || what == BULK_AT_END || what == TOO_MANY_ARRIVALS) {
        if (t == 0) {
            mbar_init(smem_addr(&bar), 2);
            mbar_arrive_expect(smem_addr(&bar), 64);
            bulk_load(smem_addr(s), src, what == NO_BYTES ? 48 : 64, smem_addr(&bar));
            mbar_arrive(smem_addr(&bar));
            if (what == TOO_MANY_ARRIVALS) {
                mbar_arrive(smem_addr(&bar));
            }
        }
        __syncthreads();
        if (what == NO_BYTES) {
            mbar_wait(smem_addr(&bar), 0);
        }
    }
    if ((what >= NO_FENCE && what <= NOT_WAITED) || what == WGMMA_RACE) {
        for (int i = t; i < 4096; i += 128) {
            ((uint32_t *)s)[i] = 0;
        }
        fence_proxy_async();
        if (what != WGMMA_RACE) {
            __syncthreads();
        }
        const uint64_t a = wgmma_desc(smem_addr(s));
        if (what != NO_FENCE) {
            wgmma_fence();
        }
        wgmma_ss<64>(d, a, a + 512, 1);
        wgmma_commit();
        if (what == EARLY_READ) {
            dst[0] = d[0];
        }
        if (what == TOUCHED) {
            d[5] = 1;
        }
        if (what != NOT_WAITED) {
            wgmma_wait<0>();
        }
    }
    if (what == TRAP) {
        __trap();
    }
    if (what == RACE) {
        ((volatile int *)s)[t] = t;
        d[0] = (float)((volatile int *)s)[t ^ 1]; /* no __syncwarp between */
    }
    if (what == PAST_STATIC) {
        volatile uint64_t *volatile p = &bar; /* the compiler sees through less */
        d[0] = (float)p[t / 128 + 1];
    }
    if (what == PAST_DYNAMIC) {
        d[0] = ((volatile float *)s)[4096 + t];
    }
    if (what == PAST_GLOBAL) {
        d[0] = ((volatile const float *)src)[4096 + t];
    }
    if (what != EARLY_READ) {
        dst[t] = d[0];
    }
}

/* What the kernel's process says; its exit status in *status. */
static void run_alone(enum mistake what, char *said, size_t size, int *status)
{
    int fd[2];
    fflush(stdout);
    if (pipe(fd) != 0) {
        exit(1);
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 2);
        close(fd[0]);
        float *src = cut_new<float>(4096), *dst = cut_new<float>(128);
        cut_order(0);
        cudaError_t rc = cu_launch(cut_ctx(CU_SM90, true), "wrong_kernel", wrong_kernel, dim3(1),
                                   dim3(128), 896 + 16384, (int)what, (const float *)src, dst);
        if (what == EARLY_READ && isnan(dst[0])) {
            fprintf(stderr, "not there yet\n");
            _exit(70);
        }
        _exit(rc == cudaSuccess ? 0 : 1);
    }
    close(fd[1]);
    size_t n = 0;
    ssize_t got;
    while (n + 1 < size && (got = read(fd[0], said + n, size - 1 - n)) > 0) {
        n += (size_t)got;
    }
    said[n] = 0;
    close(fd[0]);
    if (waitpid(pid, status, 0) != pid) {
        exit(1);
    }
}

static void test_shapes(void)
{
    struct cu_ctx *c = cut_ctx(CU_SM80, false);
    const float *src = NULL;
    float *dst = NULL;
    cut_ok(cu_launch(c, "wrong_kernel", wrong_kernel, dim3(1), dim3(1056), 0, 0, src, dst) ==
               cudaErrorInvalidConfiguration,
           "1056 threads");
    cut_ok(cu_launch(c, "wrong_kernel", wrong_kernel, dim3(1), dim3(128), 102 << 10, 0, src, dst) ==
               cudaErrorInvalidConfiguration,
           "102 KB of shared memory where there are 99");
    cut_ok(cu_launch(c, "wrong_kernel", wrong_kernel, dim3(0), dim3(128), 0, 0, src, dst) ==
               cudaErrorInvalidConfiguration,
           "no blocks");
}

int main(void)
{
    static const struct {
        enum mistake what;
        const char *words;
    } cases[] = {
        {HALF_SHUFFLE, "has returned"},
        {RETURNED_LANE, "lane 3 has returned"},
        {OTHER_COLLECTIVE, "is in __"},
        {LANE_OUTSIDE, "reads lane 16"},
        {LONELY_BARRIER, "nobody can run"},
        {NAMED_BARRIER, "is for 96 threads here and 128 elsewhere"},
        {ODD_COPY, "is not a multiple of 16"},
        {COPY_OUTSIDE, "of dynamic shared memory"},
        {NOT_SHARED, "not shared memory"},
        {NO_MBARRIER, "no initialised mbarrier"},
        {NO_BYTES, "nobody can run"},
        {BULK_AT_END, "bulk copies under way"},
        {TOO_MANY_ARRIVALS, "more than 2 arrivals"},
        {NO_PDL, "without pdl_wait()"},
        {NO_FENCE, "no wgmma_fence"},
        {EARLY_READ, "not there yet"},
        {TOUCHED, "was written while"},
        {NOT_WAITED, "not waited for"},
        {TRAP, "__trap()"},
#ifdef EMU_TSAN
        {RACE, "data race"},
        {WGMMA_RACE, "data race"},
#endif
#ifdef __SANITIZE_ADDRESS__
        {PAST_STATIC, "global-buffer-overflow"},
        {PAST_DYNAMIC, "heap-buffer-overflow"},
        {PAST_GLOBAL, "heap-buffer-overflow"},
#endif
    };
    char said[16384];
    int status;
    cut_begin();
    run_alone(NONE, said, sizeof said, &status);
    cut_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "nothing wrong: %s", said);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_alone(cases[i].what, said, sizeof said, &status);
        bool good = strstr(said, cases[i].words) != NULL;
#ifndef EMU_TSAN /* has a say in exit statuses */
        good &= cases[i].what > TRAP || (WIFEXITED(status) && WEXITSTATUS(status) == 70);
#endif
        if (!cut_ok(good, "\"%s\"", cases[i].words)) {
            printf("# status %#x, said: %.500s\n", status, said);
        }
    }
    test_shapes();
    return cut_end();
}

#else

int main(void)
{
    printf("1..0 # SKIP the emulator's own test\n");
    return 0;
}

#endif
