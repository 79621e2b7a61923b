#ifndef QUASAR_TESTS_SPEC_PROMPTS_H
#define QUASAR_TESTS_SPEC_PROMPTS_H

/* What tests of speculation on the demo model share: the prompts of tests/prompts, and how
 * many of everything there is without QUASAR_LONG. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "engine/spec.h"

#define PROMPTS 20
#define MOST    256

#ifdef SANITIZED /* some thirty times slower */
#define FEW     6
#define CONTEXT 30
#define DEPTHS  12 /* from one depth to the next */
#define STRIDE  10 /* … and from one prompt */
#define MODE    3  /* the first of modes */
#else
#define FEW     40
#define CONTEXT 300
#define DEPTHS  5
#define STRIDE  5
#define MODE    0
#endif

struct prompt {
    char category[16];
    int32_t *ids;
    int n;
};

static struct prompt prompts[PROMPTS];
static int n_prompts;

static inline bool is_long(void)
{
    return getenv("QUASAR_LONG") != NULL;
}

static inline const char *in_tree(const char *name)
{
    static char path[4096];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "%s/%s", src ? src : ".", name);
    return path;
}

static const struct {
    const char *name;
    enum spec_mode mode;
} modes[] = {{"auto", SPEC_AUTO},
             {"mtp", SPEC_MTP},
             {"suffix", SPEC_SUFFIX},
             {"mtp+suffix", SPEC_MTP_SUFFIX}};

/* context tokens of the prompts read so far, over and over, then the prompt's own. */
static inline void read_prompt(const char *line, size_t n)
{
    json_t *v = NULL;
    assert_int_equal(json_parse(line, n, "a prompt", &v, NULL), 0);
    struct prompt *p = &prompts[n_prompts];
    const json_t *ids = json_object_get(v, "ids");
    int context = (int)json_integer_value(json_object_get(v, "context"));
    context = context > CONTEXT && !is_long() ? CONTEXT : context;
    snprintf(p->category, sizeof p->category, "%s",
             json_string_value(json_object_get(v, "category")));
    p->ids = mem_array((size_t)context + json_array_size(ids), sizeof *p->ids);
    for (int i = 0; p->n < context; i = (i + 1) % n_prompts) {
        for (int k = 0; k < prompts[i].n && p->n < context; k++) {
            p->ids[p->n++] = prompts[i].ids[k];
        }
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        p->ids[p->n++] = (int32_t)json_integer_value(json_array_get(ids, i));
    }
    json_decref(v);
    n_prompts++;
}

static inline int prompts_read(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    if (io_read_file(in_tree("tests/prompts/demo.jsonl"), 1 << 24, &b, NULL) < 0) {
        return -1;
    }
    for (char *p = b.data, *end = b.data + b.len; p < end && n_prompts < PROMPTS;) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        const size_t n = (size_t)((nl ? nl : end) - p);
        read_prompt(p, n);
        p += n + 1;
    }
    buf_free(&b);
    return n_prompts == PROMPTS ? 0 : -1;
}

static inline int prompts_free(void **state)
{
    (void)state;
    for (int i = 0; i < n_prompts; i++) {
        free(prompts[i].ids);
    }
    return 0;
}

#endif
