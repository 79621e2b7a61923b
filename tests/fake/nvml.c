/* A stand-in for libnvidia-ml.so.1, for tests: two devices of one name and one of another.
 * FAKE_NVML_MS makes every reading take so long, FAKE_NVML_FAIL=init refuses to begin, =power
 * knows no power; FAKE_NVML_COUNT is a file that grows by a byte with each reading. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

struct memory {
    unsigned long long total, free, used;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out);
int nvmlDeviceGetName(void *d, char *out, unsigned n);
int nvmlDeviceGetUUID(void *d, char *out, unsigned n);
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out);
int nvmlDeviceGetPowerUsage(void *d, unsigned *out);
int nvmlDeviceGetMemoryInfo(void *d, struct memory *out);

static char devices[3];

static int number(const void *d)
{
    return (int)((const char *)d - devices);
}

static int fails(const char *what)
{
    const char *mode = getenv("FAKE_NVML_FAIL");
    return mode && strcmp(mode, what) == 0;
}

int nvmlInit_v2(void)
{
    return fails("init") ? DRIVER_NOT_LOADED : OK;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 3;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
    *out = i < 3 ? &devices[i] : NULL;
    return i < 3 ? OK : NOT_FOUND;
}

int nvmlDeviceGetName(void *d, char *out, unsigned n)
{
    snprintf(out, n, "%s", number(d) == 1 ? "NVIDIA Other" : "NVIDIA Fake");
    return OK;
}

int nvmlDeviceGetUUID(void *d, char *out, unsigned n)
{
    snprintf(out, n, "GPU-%d234-abcd", number(d));
    return OK;
}

int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out)
{
    const char *ms = getenv("FAKE_NVML_MS");
    const char *file = getenv("FAKE_NVML_COUNT");
    FILE *f = file ? fopen(file, "ae") : NULL;
    if (f) {
        fputc('x', f);
        fclose(f);
    }
    if (ms) {
        const int t = atoi(ms);
        const struct timespec nap = {t / 1000, (long)(t % 1000) * 1000000};
        nanosleep(&nap, NULL);
    }
    *out = sensor == 0 ? 71U + (unsigned)number(d) : 0;
    return OK;
}

int nvmlDeviceGetPowerUsage(void *d, unsigned *out)
{
    *out = 340400U + 1000U * (unsigned)number(d);
    return fails("power") ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMemoryInfo(void *d, struct memory *out)
{
    (void)d;
    *out = (struct memory){80ULL << 30, 50ULL << 30, 30ULL << 30};
    return OK;
}
