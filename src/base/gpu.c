/* NVML without its header: the few functions that are used, with the types that its
 * documentation gives them, found by name in the library that comes with the driver. */
#include "config.h"
#include "base/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define SENSOR_GPU 0 /* NVML_TEMPERATURE_GPU */
#define NAME_SIZE  96
#define UUID_SIZE  96

/* nvmlMemory_t */
struct memory {
    unsigned long long total, free, used;
};

typedef void *device;

struct gpu {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned i, device *out);
    int (*name)(device d, char *out, unsigned n);
    int (*uuid)(device d, char *out, unsigned n);
    int (*temperature)(device d, int sensor, unsigned *out);
    int (*power)(device d, unsigned *milliwatts);
    int (*memory)(device d, struct memory *out);
};

/* The symbol as a pointer to a function, which ISO C has no cast for. */
static bool find(void *library, const char *name, void *to)
{
    void *p = dlsym(library, name);
    memcpy(to, &p, sizeof p);
    return p != NULL;
}

int gpu_open(const char *library, struct gpu **out, struct err *e)
{
    const char *file = library ? library : "libnvidia-ml.so.1";
    struct gpu *g = mem_zalloc(sizeof *g);
    g->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!g->library) {
        const char *why = dlerror();
        free(g);
        return err_set(e, QE_UNSUPPORTED, "no figures of the GPU: %s", why ? why : file);
    }
    const bool all = find(g->library, "nvmlInit_v2", &g->init) &&
                     find(g->library, "nvmlShutdown", &g->shutdown) &&
                     find(g->library, "nvmlDeviceGetCount_v2", &g->count) &&
                     find(g->library, "nvmlDeviceGetHandleByIndex_v2", &g->by_index) &&
                     find(g->library, "nvmlDeviceGetName", &g->name) &&
                     find(g->library, "nvmlDeviceGetUUID", &g->uuid) &&
                     find(g->library, "nvmlDeviceGetTemperature", &g->temperature) &&
                     find(g->library, "nvmlDeviceGetPowerUsage", &g->power) &&
                     find(g->library, "nvmlDeviceGetMemoryInfo", &g->memory);
    int rc = all ? 0 : err_set(e, QE_UNSUPPORTED, "no figures of the GPU: %s is too old", file);
    if (rc == 0) {
        const int status = g->init();
        rc = status == 0 ? 0
                         : err_set(e, QE_DEVICE, "no figures of the GPU: %s refuses (status %d)",
                                   file, status);
    }
    if (rc < 0) {
        dlclose(g->library);
        free(g);
        return rc;
    }
    *out = g;
    return 0;
}

void gpu_close(struct gpu *g)
{
    if (g) {
        (void)g->shutdown();
        dlclose(g->library);
        free(g);
    }
}

/* The name of device i; empty: none. */
static void name_of(struct gpu *g, unsigned i, char out[NAME_SIZE])
{
    device d = NULL;
    out[0] = 0;
    if (g->by_index(i, &d) != 0 || g->name(d, out, NAME_SIZE) != 0) {
        out[0] = 0;
    }
    out[NAME_SIZE - 1] = 0;
}

static bool is_named(struct gpu *g, unsigned i, const char *description)
{
    char name[NAME_SIZE];
    name_of(g, i, name);
    const size_t n = strlen(name);
    return n > 0 && strncmp(description, name, n) == 0 &&
           (description[n] == 0 || description[n] == ',' || description[n] == ' ');
}

static bool has_uuid(struct gpu *g, unsigned i, const char *word, size_t n)
{
    char uuid[UUID_SIZE];
    device d = NULL;
    if (g->by_index(i, &d) != 0 || g->uuid(d, uuid, UUID_SIZE) != 0) {
        return false;
    }
    uuid[UUID_SIZE - 1] = 0;
    return strncmp(uuid, word, n) == 0;
}

/* The index-th entry of CUDA_VISIBLE_DEVICES, as a number of NVML's; -1: none. */
static int visible_at(struct gpu *g, unsigned count, const char *list, int index)
{
    for (; index > 0 && *list; index--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    const size_t n = strcspn(list, ",");
    if (n == 0) {
        return -1;
    }
    char *end = NULL;
    const long number = strtol(list, &end, 10);
    if (end == list + n) {
        return number >= 0 && number < (long)count ? (int)number : -1;
    }
    for (unsigned i = 0; i < count; i++) {
        if (has_uuid(g, i, list, n)) {
            return (int)i;
        }
    }
    return -1;
}

int gpu_find(struct gpu *g, const char *description, int index, const char *visible)
{
    unsigned count = 0;
    if (g->count(&count) != 0 || count > INT_MAX || index < 0) {
        return -1;
    }
    const int at = visible ? visible_at(g, count, visible, index) : index;
    if (at >= 0 && (unsigned)at < count && is_named(g, (unsigned)at, description)) {
        return at;
    }
    int only = -1;
    for (unsigned i = 0; i < count; i++) {
        if (is_named(g, i, description)) {
            if (only >= 0) {
                return -1; /* which of them is not known */
            }
            only = (int)i;
        }
    }
    return only;
}

void gpu_read(struct gpu *g, int number, struct gpu_reading *out)
{
    device d = NULL;
    unsigned value = 0;
    struct memory m = {0, 0, 0};
    *out = (struct gpu_reading){NAN, NAN, NAN, NAN};
    if (number < 0 || g->by_index((unsigned)number, &d) != 0) {
        return;
    }
    if (g->temperature(d, SENSOR_GPU, &value) == 0) {
        out->temp_c = value;
    }
    if (g->power(d, &value) == 0) {
        out->power_w = value / 1000.0;
    }
    if (g->memory(d, &m) == 0) {
        out->used = (double)m.used;
        out->total = (double)m.total;
    }
}
