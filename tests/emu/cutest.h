#ifndef QUASAR_TESTS_CUTEST_H
#define QUASAR_TESTS_CUTEST_H

/*
 * What tests/cuda/t_cuda_*.cu share, in the emulator and on a GPU: device memory with
 * guards, random data, comparisons, TAP. A program begins with cut_begin() and returns
 * cut_end(). QUASAR_TEST_SEED repeats its data, QUASAR_CUDA_PATH=sm80|sm90 picks one way
 * of driving the chip.
 */

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/cu.h"

#if defined QUASAR_EMULATE && defined __SANITIZE_ADDRESS__
enum { CUT_GUARD = 0 }; /* the sanitizer's are better */
#else
enum { CUT_GUARD = 256 };
#endif

struct cut_block {
    unsigned char *p;
    size_t bytes;
};

static struct {
    int tests, failed;
    uint64_t rng;
    struct cut_block *block;
    int blocks;
    struct cu_ctx ctx;
} cut;

/* ---- TAP ---- */

/* One test; the text says what. Returns good. */
__attribute__((format(printf, 2, 3))) static inline bool cut_ok(bool good, const char *fmt, ...)
{
    va_list ap;
    printf("%sok %d - ", good ? "" : "not ", ++cut.tests);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    cut.failed += !good;
    return good;
}

/* A runtime call that must work, or the program ends. */
static inline void cut_must(int rc, const char *what)
{
    if (rc != cudaSuccess) {
        const char *kernel = cut.ctx.kernel ? cut.ctx.kernel : "none";
        printf("not ok %d - %s: %s (last kernel: %s)\nBail out!\n", cut.tests + 1, what,
               cudaGetErrorString((cudaError_t)rc), kernel);
        fflush(stdout);
        _exit(1);
    }
}

/* Waits for the device; a kernel's fault ends the program here. */
static inline void cut_sync(void)
{
    cut_must(cudaDeviceSynchronize(), "a kernel");
}

static inline void cut_begin(void)
{
    const char *s = getenv("QUASAR_TEST_SEED");
    uint64_t seed = (uint64_t)time(NULL) ^ (uint64_t)getpid() << 20;
#ifdef QUASAR_EMULATE
    seed = getenv("QUASAR_LONG") ? seed : 1; /* the everyday run is the same every day */
#endif
    seed = s ? strtoull(s, NULL, 0) : seed;
    printf("# QUASAR_TEST_SEED=%llu\n", (unsigned long long)seed);
    cut.rng = seed;
#ifndef QUASAR_EMULATE
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("1..0 # SKIP no CUDA device\n");
        exit(0);
    }
#endif
}

static inline int cut_end(void)
{
    for (int i = 0; i < cut.blocks; i++) {
        printf("# never freed: %zu bytes\n", cut.block[i].bytes);
    }
    printf("1..%d\n", cut.tests);
    return cut.failed > 0;
}

/* Whether only the small shapes are wanted: in the emulator, and on a GPU with
 * QUASAR_TEST_SMALL, under a checker that makes everything slow. */
static inline bool cut_small(void)
{
#ifdef QUASAR_EMULATE
    return true;
#else
    return getenv("QUASAR_TEST_SMALL") != NULL;
#endif
}

/* ---- contexts ---- */

/* The ways of driving the chip to be tested here: 1 or 2 of them. */
static inline int cut_paths(enum cu_path out[2])
{
    const char *want = getenv("QUASAR_CUDA_PATH");
    int n = 0;
    if (!want || strcmp(want, "sm80") == 0) {
        out[n++] = CU_SM80;
    }
    int major = 9;
#ifndef QUASAR_EMULATE
    cut_must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "device");
#endif
    if (major == 9 && (!want || strcmp(want, "sm90") == 0)) {
        out[n++] = CU_SM90;
    }
    return n;
}

static inline const char *cut_path_name(enum cu_path p)
{
    return p == CU_SM90 ? "sm90" : "sm80";
}

/* The one context, for this path. pdl as decode has it: dependent launches on sm90. */
static inline struct cu_ctx *cut_ctx(enum cu_path path, bool pdl)
{
    struct cu_ctx *c = &cut.ctx;
    c->path = path;
    c->pdl = pdl && path == CU_SM90;
    c->n_sm = 7; /* odd on purpose; a GPU's own */
#ifndef QUASAR_EMULATE
    cut_must(cudaDeviceGetAttribute(&c->n_sm, cudaDevAttrMultiProcessorCount, 0), "device");
    if (!c->stream) {
        cudaStream_t s;
        cut_must(cudaStreamCreate(&s), "a stream");
        c->stream = s;
    }
#endif
    return c;
}

/* Order of blocks and threads of the launches that follow, 0..2; nothing on a GPU. */
static inline void cut_order(int i)
{
#ifdef QUASAR_EMULATE
    emu_set_order((enum emu_order)(EMU_FORWARD + i % 3), cut.rng);
#else
    (void)i;
#endif
}

/* ---- device memory ---- */

/* bytes of 0xff (NaNs), between guards that cut_free() checks. */
static inline void *cut_alloc(size_t bytes)
{
    unsigned char *p = NULL;
    cut_must(cudaMalloc((void **)&p, bytes + 2 * CUT_GUARD), "cudaMalloc");
    cut_must(cudaMemset(p, 0xa5, bytes + 2 * CUT_GUARD), "cudaMemset");
    cut_must(cudaMemset(p + CUT_GUARD, 0xff, bytes), "cudaMemset");
    size_t n = (size_t)cut.blocks + 1;
    cut.block = (struct cut_block *)realloc(cut.block, n * sizeof *cut.block);
    cut.block[cut.blocks++] = {p + CUT_GUARD, bytes};
    return p + CUT_GUARD;
}

static inline void cut_free(void *p)
{
    if (!p) {
        return;
    }
    cut_sync();
    int i = 0;
    while (i < cut.blocks && cut.block[i].p != p) {
        i++;
    }
    if (i == cut.blocks) {
        cut_ok(false, "cut_free of what cut_alloc never gave");
        return;
    }
    struct cut_block b = cut.block[i];
    cut.block[i] = cut.block[--cut.blocks];
    unsigned char *base = b.p - CUT_GUARD, guard[2 * CUT_GUARD + 1];
    cut_must(cudaMemcpy(guard, base, CUT_GUARD, cudaMemcpyDeviceToHost), "cudaMemcpy");
    cut_must(cudaMemcpy(guard + CUT_GUARD, b.p + b.bytes, CUT_GUARD, cudaMemcpyDeviceToHost),
             "cudaMemcpy");
    for (int g = 0; g < 2 * CUT_GUARD; g++) {
        if (guard[g] != 0xa5) {
            cut_ok(false, "a kernel wrote %d bytes %s a block of %zu",
                   g < CUT_GUARD ? CUT_GUARD - g : g - CUT_GUARD,
                   g < CUT_GUARD ? "before" : "after", b.bytes);
            break;
        }
    }
    cut_must(cudaFree(base), "cudaFree");
}

static inline void cut_poison(void *dev, size_t bytes)
{
    cut_must(cudaMemset(dev, 0xff, bytes), "cudaMemset");
}

template <typename T> T *cut_new(size_t n)
{
    return (T *)cut_alloc(n * sizeof(T));
}

template <typename T> void cut_put(T *dev, const T *host, size_t n)
{
    cut_must(cudaMemcpy((void *)dev, host, n * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
}

/* New device memory with n elements of the host's. */
template <typename T> T *cut_upload(const T *host, size_t n)
{
    T *dev = cut_new<T>(n);
    cut_put(dev, host, n);
    return dev;
}

/* After all that was launched. */
template <typename T> void cut_download(T *host, const T *dev, size_t n)
{
    cut_sync();
    cut_must(cudaMemcpy((void *)host, dev, n * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

/* n zeros of host memory; free() releases them. */
template <typename T> T *cut_host(size_t n)
{
    T *p = (T *)calloc(n ? n : 1, sizeof(T));
    if (!p) {
        printf("Bail out! no memory for %zu elements\n", n);
        _exit(1);
    }
    return p;
}

/* ---- random data ---- */

static inline uint64_t cut_random(void)
{
    uint64_t z = cut.rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. n - 1 */
static inline int cut_below(int n)
{
    return (int)((cut_random() >> 32) * (uint64_t)n >> 32);
}

/* -1 .. 1 */
static inline float cut_uniform(void)
{
    return (float)((double)(cut_random() >> 11) * 0x1p-52 - 1);
}

static inline float cut_normal(void)
{
    double u = ((double)(cut_random() >> 11) + 1) * 0x1p-53, v = (double)(cut_random() >> 11);
    return (float)(sqrt(-2 * log(u)) * cos(v * (0x1p-52 * 3.14159265358979323846)));
}

static inline float *cut_normals(size_t n, float scale)
{
    float *p = cut_host<float>(n);
    for (size_t i = 0; i < n; i++) {
        p[i] = cut_normal() * scale;
    }
    return p;
}

static inline uint16_t cut_half(float x)
{
    __half h = __float2half_rn(x);
    uint16_t u;
    memcpy(&u, &h, sizeof u);
    return u;
}

static inline float cut_float(uint16_t u)
{
    __half h;
    memcpy((void *)&h, &u, sizeof u);
    return __half2float(h);
}

/* ---- arguments ---- */

struct cut_key {
    const char *key;
    int *value;
};

/* Sets the values of arguments key=value; one that is none of the keys ends the program. */
static inline void cut_keys(const struct cut_key *keys, size_t n_keys, int n, char **arg)
{
    for (int i = 0; i < n; i++) {
        bool known = false;
        for (size_t j = 0; j < n_keys; j++) {
            const size_t len = strlen(keys[j].key);
            if (strncmp(arg[i], keys[j].key, len) == 0 && arg[i][len] == '=') {
                *keys[j].value = atoi(arg[i] + len + 1);
                known = true;
            }
        }
        if (!known) {
            printf("Bail out! %s: not a key\n", arg[i]);
            exit(2);
        }
    }
}

/* ---- comparing ---- */

/* A test: the root mean square of got - want is at most tol times that of want. */
__attribute__((format(printf, 5, 6))) static inline bool cut_rms(const float *got,
                                                                 const double *want, size_t n,
                                                                 double tol, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    double err = 0, ref = 0;
    size_t worst = 0;
    double most = -1;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        err += d * d;
        ref += want[i] * want[i];
        if (!(d <= most)) {
            most = d;
            worst = i;
            if (d != d) {
                break;
            }
        }
    }
    double rel = ref > 0 ? sqrt(err / ref) : sqrt(err);
    bool good = rel <= tol;
    cut_ok(good, "%s: relative error %.3g (at most %.3g)", what, rel, tol);
    if (!good && n > 0) {
        printf("# worst of %zu: [%zu] is %.9g, not %.9g\n", n, worst, (double)got[worst],
               want[worst]);
    }
    return good;
}

/* A test: n elements have the same bits. */
template <typename T>
__attribute__((format(printf, 4, 5))) bool cut_same(const T *got, const T *want, size_t n,
                                                    const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    size_t i = 0, differ = 0, first = 0;
    for (; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(T)) != 0 && differ++ == 0) {
            first = i;
        }
    }
    cut_ok(differ == 0, "%s: same bits", what);
    if (differ > 0) {
        uint64_t a = 0, b = 0;
        memcpy(&a, &got[first], sizeof(T) < 8 ? sizeof(T) : 8);
        memcpy(&b, &want[first], sizeof(T) < 8 ? sizeof(T) : 8);
        printf("# %zu of %zu differ, first [%zu]: %#llx, not %#llx\n", differ, n, first,
               (unsigned long long)a, (unsigned long long)b);
    }
    return differ == 0;
}

#endif
