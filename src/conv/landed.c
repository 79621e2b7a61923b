/* One object for all conversations; counts are atomic, the file is opened for each line. */
#include "config.h"
#include "conv/landed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/jsonio.h"
#include "base/log.h"
#include "base/mem.h"
#include "tools/recogniser.h"

#define FILE_MOST (16L << 20) /* bytes of the file of misses */

struct landed {
    char *misses;
    atomic_uint_fast64_t landed, missed;
    atomic_uint_fast64_t shape[VIEW_TOOL_MODES]; /* in the order of tool_modes */
};

struct landed *landed_create(const char *misses)
{
    struct landed *l = mem_zalloc(sizeof *l);
    l->misses = misses && misses[0] ? mem_strdup(misses) : NULL;
    return l;
}

void landed_free(struct landed *l)
{
    if (l) {
        free(l->misses);
        free(l);
    }
}

static void keep(const struct landed *l, const char *text, size_t n, const json_t *tools)
{
    struct stat st;
    if (!l->misses || (stat(l->misses, &st) == 0 && st.st_size > FILE_MOST)) {
        return;
    }
    struct buf b = BUF_INIT;
    json_t *o = json_pack("{s:I, s:o, s:O?}", "time", (json_int_t)clock_wall(), "text",
                          json_str_lossy(text, n), "tools", tools);
    json_write(o, &b);
    buf_addc(&b, '\n');
    FILE *f = fopen(l->misses, "ae");
    const bool good = f && fwrite(b.data, 1, b.len, f) == b.len;
    if ((f && fclose(f) != 0) || !good) {
        log_line(LOG_WARN, "a missed tool call could not be written to %s", l->misses);
    }
    json_decref(o);
    buf_free(&b);
}

void landed_turn(struct landed *l, const json_t *modes, int missed, const char *text, size_t n,
                 const json_t *tools)
{
    size_t i = 0;
    const json_t *m = NULL;
    json_array_foreach((json_t *)(uintptr_t)modes, i, m)
    {
        const char *mode = json_string_value(m);
        atomic_fetch_add(&l->landed, 1);
        for (size_t k = 0; tool_modes[k] && k < VIEW_TOOL_MODES; k++) {
            if (strcmp(tool_modes[k], mode) == 0) {
                atomic_fetch_add(&l->shape[k], 1);
            }
        }
        if (!tool_mode_taught(mode)) {
            log_line(LOG_INFO, "a tool call was rescued (shape %s)", mode);
        }
    }
    if (missed > 0) {
        atomic_fetch_add(&l->missed, 1);
        log_line(LOG_WARN,
                 "an answer has %d marks of tool calls that are no calls%s; %zu bytes of text",
                 missed, json_array_size(modes) > 0 ? ", beside some that are" : "", n);
        keep(l, text ? text : "", n, tools);
    }
}

void landed_view(const struct landed *l, struct view_tools *out)
{
    memset(out, 0, sizeof *out);
    out->landed = atomic_load(&l->landed);
    out->missed = atomic_load(&l->missed);
    for (size_t k = 0; tool_modes[k] && k < VIEW_TOOL_MODES; k++) {
        out->shape[k].mode = tool_modes[k];
        out->shape[k].calls = atomic_load(&l->shape[k]);
        out->n = (int)k + 1;
    }
}
