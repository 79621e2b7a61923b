/* The plan of a conversion: which tensor in which type, and what all targets
 * share. Memory: one chunk of rows in fp32 and in the target's type. */
#include "config.h"
#include "format/convert.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/mem.h"
#include "format/convert_priv.h"

#define CHUNK_VALUES (4U << 20)

uint64_t plan_chunk_rows(const struct source_tensor *t)
{
    uint64_t rows = CHUNK_VALUES / source_cols(t);
    return rows > 0 ? rows : 1;
}

int plan_progress(struct plan *p, uint64_t n, struct err *e)
{
    p->done += n;
    if (p->o->progress && p->o->progress(p->o->progress_ctx, p->done, p->total)) {
        return err_set(e, QE_CANCELLED, "interrupted; nothing was written");
    }
    return 0;
}

void plan_note(const struct plan *p, const char *fmt, ...)
{
    if (!p->o->note) {
        return;
    }
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p->o->note(p->o->note_ctx, line);
}

/* The folder that holds path; the caller frees it. */
static char *folder_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    return n == 0 ? mem_strdup(".") : mem_strndup(path, n);
}

int plan_check_space(const char *dst, uint64_t n, struct err *e)
{
    char *dir = folder_of(dst);
    struct statvfs v;
    int rc = 0;
    if (statvfs(dir, &v) < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot write to %s", dir);
    } else if ((uint64_t)v.f_bavail * v.f_frsize < n) {
        rc = err_set(e, QE_IO, "%s needs %.2f GB, the disk under %s has %.2f GB free", dst,
                     (double)n / 1e9, dir, (double)v.f_bavail * (double)v.f_frsize / 1e9);
    }
    free(dir);
    return rc;
}

static int check_target(const char *src, const char *dst, const struct convert_opts *o,
                        struct err *e)
{
    struct stat a;
    struct stat b;
    if (!src[0] || !dst[0]) {
        return err_set(e, QE_USAGE, "the name of the %s is empty", src[0] ? "target" : "source");
    }
    if (lstat(dst, &b) < 0) {
        return 0;
    }
    if (S_ISLNK(b.st_mode)) {
        (void)stat(dst, &b);
    }
    if (stat(src, &a) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
        return err_set(e, QE_USAGE, "%s is both the source and the target", dst);
    }
    if (!o->force) {
        return err_set(e, QE_USAGE, "%s exists already: choose another name, or give --force", dst);
    }
    if (S_ISDIR(b.st_mode) != (o->to == CONVERT_HF)) {
        return err_set(e, QE_USAGE, "%s is %s", dst,
                       o->to == CONVERT_HF ? "not a folder" : "a folder, the target is a file");
    }
    if (!S_ISDIR(b.st_mode) && !S_ISREG(b.st_mode) && !S_ISLNK(b.st_mode)) {
        return err_set(e, QE_USAGE, "%s is a device or a pipe: the target must be a file", dst);
    }
    return 0;
}

static void add_item(struct plan *p, const struct source_tensor *t, const char *name)
{
    struct plan_item *it = &p->items[p->n++];
    it->t = t;
    it->name = name;
    it->dtype = t->native;
    if (p->tier && !p->keep) {
        bool fell_back = false;
        it->dtype = tier_dtype(p->tier, name, t->n_dims, t->shape, &fell_back);
        if (fell_back) {
            plan_note(p, "%s stays fp16: its rows of %llu are no multiple of the group", name,
                      (unsigned long long)source_cols(t));
        }
    }
}

static void make_plan(struct plan *p)
{
    struct source *s = p->s;
    p->items = mem_array(s->n + 2, sizeof *p->items);
    const struct source_tensor *head = source_find(s, "lm_head.weight");
    bool draft = p->o->to == CONVERT_QSR && p->tier && !p->keep && tier_has_draft_head(p->tier);
    if (!head) {
        head = source_find(s, "embed_tokens.weight");
    }
    for (size_t i = 0; i < s->n; i++) {
        /* the second head is copied only where nothing changes */
        if (strcmp(s->tensors[i].name, "lm_head.q4.weight") == 0 &&
            !(p->keep && p->o->to == CONVERT_QSR)) {
            continue;
        }
        add_item(p, &s->tensors[i], s->tensors[i].name);
        if (draft && &s->tensors[i] == head) {
            add_item(p, head, "lm_head.q4.weight");
        }
    }
    uint64_t most = 1;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t rows = source_rows(p->items[i].t);
        uint64_t cols = source_cols(p->items[i].t);
        uint64_t chunk = plan_chunk_rows(p->items[i].t);
        uint64_t values = (rows < chunk ? rows : chunk) * cols;
        most = values > most ? values : most;
    }
    p->scratch = mem_aligned(most * sizeof *p->scratch);
    p->data = mem_aligned(most * sizeof *p->scratch);
    p->scales = mem_aligned(most * sizeof(uint16_t));
}

int convert(const char *src, const char *dst, const struct convert_opts *o, struct err *e)
{
    struct plan p = {.o = o};
    if (o->tier && !tier_find(o->tier, false)) {
        return err_set(e, QE_USAGE, "there is no tier \"%s\" (%s)", o->tier, tier_names());
    }
    int rc = check_target(src, dst, o, e);
    if (rc == 0) {
        rc = source_open(src, &p.s, e);
    }
    if (rc < 0) {
        return rc;
    }
    const char *tier = o->tier;
    if (!tier) {
        p.keep = p.s->tier || o->to == CONVERT_HF;
        tier = p.keep ? p.s->tier : "default";
    }
    p.tier = tier ? tier_find(tier, modelconf_is_38(p.s->model_name)) : NULL;
    make_plan(&p);
    switch (o->to) {
    case CONVERT_QSR:
        rc = convert_write_qsr(&p, dst, e);
        break;
    case CONVERT_GGUF:
        rc = convert_write_gguf(&p, dst, e);
        break;
    case CONVERT_HF:
        rc = convert_write_hf(&p, dst, e);
        break;
    }
    free(p.items);
    free(p.scratch);
    free(p.data);
    free(p.scales);
    source_free(p.s);
    return rc;
}
