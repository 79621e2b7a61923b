/* Finding and opening the model that a command works on. The demo model is found
 * beside the program: in the build tree, or where it was installed. */
#include "config.h"
#include "cmd/model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* dir/name if that is a file, else NULL. */
static char *try_in(const char *dir, const char *name)
{
    char *p = io_join(dir, name);
    if (is_file(p)) {
        return p;
    }
    free(p);
    return NULL;
}

static char *try_named(const char *dir, const char *name)
{
    char *p = try_in(dir, name);
    if (!p) {
        struct buf b = BUF_INIT;
        buf_printf(&b, "%s.qsr", name);
        p = try_in(dir, b.data);
        buf_free(&b);
    }
    return p;
}

/* models/demo.qsr beside the folder that the program lies in, in the share folder
 * there (an installed tree may be moved), or where it was installed. */
static char *find_demo(void)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *found = NULL;
    if (n > 0) {
        exe[n] = 0;
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(exe, '/');
            if (slash) {
                *slash = 0;
            }
        }
        static const char *const dirs[] = {"models", "share/quasar/models"};
        for (size_t i = 0; i < 2 && !found; i++) {
            char *dir = io_join(exe, dirs[i]);
            found = try_in(dir, "demo.qsr");
            free(dir);
        }
    }
    return found ? found : try_in(PKGDATADIR "/models", "demo.qsr");
}

int model_find(const char *name, char **path, struct err *e)
{
    if (!name || !*name) {
        return err_set(e, QE_USAGE, "no model is named (--model)");
    }
    if (is_file(name)) {
        *path = mem_strdup(name);
        return 0;
    }
    char *data = io_xdg_data();
    char *dir = io_join(data, "models");
    char *found = strchr(name, '/') ? NULL : try_named(dir, name);
    if (!found && strcmp(name, "demo") == 0) {
        found = find_demo();
    }
    int rc = 0;
    struct stat st;
    bool there = !found && stat(name, &st) == 0;
    if (found) {
        *path = found;
    } else if (there) {
        rc = err_set(e, QE_NOTFOUND,
                     "%s is a folder, not a model file (quasar convert makes one of it)", name);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        rc = err_sys(e, QE_IO, errno, "cannot open %s", name);
    } else if (strchr(name, '/')) {
        rc = err_set(e, QE_NOTFOUND, "there is no model file %s", name);
    } else {
        rc = err_set(e, QE_NOTFOUND,
                     "there is no model \"%s\": no such file, and %s has none of that name", name,
                     dir);
    }
    free(dir);
    free(data);
    return rc;
}

int model_source(const char *name, char **path, struct err *e)
{
    if (!*name || access(name, F_OK) == 0 || strchr(name, '/')) {
        *path = mem_strdup(name);
        return 0;
    }
    return model_find(name, path, e);
}

/* Whether --backend means a CUDA device; why not goes into note. */
static int want_cuda(const struct conf *cf, int device, bool *cuda, char *note, struct err *e)
{
    char why[256] = "";
    struct cuda_device_info dev = {.name = ""};
    *cuda = false;
    if (conf_is_word(cf, "backend", "cpu")) {
        return 0;
    }
    const bool asked = conf_is_word(cf, "backend", "cuda");
    const bool there = cuda_device_count(why, sizeof why) > device;
    if (there && cuda_device_probe(device, &dev, why, sizeof why) == 0 && backend_cuda()) {
        *cuda = true;
        return 0;
    }
    if (asked) {
        return err_set(e, QE_DEVICE, "no CUDA device %d (%s): use --backend cpu", device,
                       why[0] ? why : "none found");
    }
    snprintf(note, 256, "%.200s, using the CPU", there && why[0] ? why : "no CUDA device");
    return 0;
}

enum engine_kv model_kv(const char *word)
{
    static const char *const words[] = {
        [EKV_AUTO] = "auto", [EKV_F32] = "f32",   [EKV_F16] = "fp16",  [EKV_F8] = "fp8",
        [EKV_K8V4] = "k8v4", [EKV_K5V3] = "k5v3", [EKV_K3V3] = "k3v3",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) {
            return (enum engine_kv)i;
        }
    }
    return EKV_AUTO;
}

int model_engine_opts(const struct conf *cf, struct engine_opts *o, char *gpu_note, struct err *e)
{
    struct engine_opts r = {.backend = EB_CPU,
                            .device = (int)conf_int(cf, "device", 0),
                            .threads = (int)conf_int(cf, "threads", 0),
                            .isa = conf_str(cf, "isa"),
                            .ctx = (int)conf_int(cf, "ctx", 0),
                            .fast_head = conf_flag(cf, "fast-head"),
                            .verify = conf_flag(cf, "verify-weights")};
    r.kv = model_kv(conf_str(cf, "kv"));
    const char *path = conf_str(cf, "cuda-path");
    r.cuda_path = strcmp(path, "sm80") == 0   ? ECP_SM80
                  : strcmp(path, "sm90") == 0 ? ECP_SM90
                                              : ECP_AUTO;
    r.draft_head = conf_is_word(cf, "draft-head", "full") ? EDH_FULL
                   : conf_is_word(cf, "draft-head", "q4") ? EDH_Q4
                                                          : EDH_AUTO;
    const int graphs = (int)conf_int(cf, "cuda-graphs", 16);
    r.graphs = graphs > 0 ? graphs : -1;
    const int drafts = (int)conf_int(cf, "max-draft", ENGINE_MAX_DRAFT);
    r.max_draft = drafts > 0 ? drafts : -1;
    r.verify_width = (int)conf_int(cf, "verify-width", 0);
    bool cuda = false;
    int rc = want_cuda(cf, r.device, &cuda, gpu_note, e);
    if (rc < 0) {
        return rc;
    }
    r.backend = cuda ? EB_CUDA : EB_CPU;
    r.fallback = gpu_note[0] ? gpu_note : NULL;
    *o = r;
    return 0;
}

void model_apply_tweak(struct engine_opts *o, const struct engine_opts *tweak)
{
    if (!tweak) {
        return;
    }
    o->ctx = tweak->ctx ? tweak->ctx : o->ctx;
    o->slots = tweak->slots ? tweak->slots : o->slots;
    o->chunk = tweak->chunk ? tweak->chunk : o->chunk;
    o->vocab_used = tweak->vocab_used ? tweak->vocab_used : o->vocab_used;
    o->no_mtp = tweak->no_mtp || o->no_mtp;
}

static void show_progress(void *ctx, double done)
{
    struct model_progress *p = ctx;
    if (isatty(STDERR_FILENO) && clock_seconds(clock_now(clock_real()) - p->start) > 0.5) {
        fprintf(stderr, "\rloading %s  %3.0f %%", p->what, 100 * done);
        p->shown = true;
    }
}

void model_progress_start(struct model_progress *p, const char *what, struct engine_opts *o)
{
    *p = (struct model_progress){.start = clock_now(clock_real()), .what = what};
    o->progress = show_progress;
    o->progress_ctx = p;
}

void model_progress_end(struct model_progress *p)
{
    if (p->shown) {
        fprintf(stderr, "\r\033[K");
    }
}

int model_open(const struct conf *cf, struct model *m, struct err *e)
{
    const int64_t from = clock_now(clock_real());
    int rc = model_find(conf_str(cf, "model"), &m->path, e);
    if (rc == 0 && !conf_is_word(cf, "backend", "cpu")) {
        m->wake = cuda_device_wake((int)conf_int(cf, "device", 0));
    }
    if (rc == 0) {
        rc = container_open(m->path, conf_flag(cf, "verify-weights"), &m->file, e);
    }
    phases_lap(&m->phases, "file", from);
    return rc;
}

int model_start(const struct conf *cf, struct model *m, const struct engine_opts *tweak,
                struct err *e)
{
    struct engine_opts o = {0};
    const int64_t from = clock_now(clock_real());
    int rc = model_engine_opts(cf, &o, m->gpu_note, e);
    phases_lap(&m->phases, "context", from);
    if (rc < 0) {
        return rc;
    }
    model_apply_tweak(&o, tweak);
    if (o.fallback && isatty(STDERR_FILENO)) {
        fprintf(stderr, "quasar: %s\n", o.fallback);
    }
    struct model_progress p;
    model_progress_start(&p, m->path, &o);
    rc = engine_open(m->file, &o, &m->engine, e);
    model_progress_end(&p);
    if (rc == 0 && engine_info(m->engine)->plan && isatty(STDERR_FILENO)) {
        fprintf(stderr, "quasar: %s\n", engine_info(m->engine)->plan);
    }
    return rc < 0 ? err_wrap(e, rc, "%s", m->path) : 0;
}

void model_close(struct model *m)
{
    if (m->engine) {
        engine_close(m->engine);
    }
    if (m->file) {
        container_close(m->file);
    }
    cuda_device_woken(m->wake);
    free(m->path);
    *m = (struct model){0};
}
