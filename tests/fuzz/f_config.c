/* Any bytes as a settings file: it is taken or refused with one line that names the file, and
 * pairs have a key and a place. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/mem.h"
#include "tests/fuzz/fuzz.h"

static const struct conf_opt table[] = {
    {"name", 'n', CONF_STR, "x", 1, 0, NULL, 1, "TEXT", "text", false},
    {"count", 0, CONF_INT, "auto", 1, 9, "auto", 1, "N", "number", false},
    {"ratio", 0, CONF_NUM, NULL, 0, 1, NULL, 1, "X", "number", false},
    {"flag", 0, CONF_FLAG, "no", 1, 0, NULL, 1, NULL, "flag", false},
    {"word", 0, CONF_ENUM, "a", 1, 0, "a|b", 1, "W", "word", false},
    {"list", 0, CONF_LIST, NULL, 1, 0, NULL, 1, "S", "texts", false},
    {"size", 0, CONF_SIZE, "auto", 1, 0, "auto", 1, "S", "size", false},
    {"bind", 0, CONF_PAIRS, NULL, 1, 0, NULL, 1, "K=V", "pairs", false},
    {NULL, 0, CONF_FLAG, NULL, 1, 0, NULL, 0, NULL, NULL, false},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char path[] = "/tmp/quasar-fuzz-config-XXXXXX";
    static int fd = -1;
    if (fd < 0) {
        fd = mkstemp(path);
        if (fd < 0) {
            abort();
        }
        unlink(path);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, n, 0) != (ssize_t)n) {
        abort();
    }
    struct err e = ERR_INIT;
    struct conf *c = conf_create(table);
    const int rc = conf_load_file(c, path, false, &e);
    if (rc < 0 && (!strstr(e.msg, path) || strchr(e.msg, '\n'))) {
        abort();
    }
    for (size_t i = 0; i < conf_pairs_len(c, "bind"); i++) {
        const struct conf_pair p = conf_pair_at(c, "bind", i);
        if (!p.key[0] || !strstr(p.where, path)) {
            abort();
        }
    }
    (void)conf_int(c, "count", 0);
    (void)conf_size(c, "size", 0);
    conf_free(c);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "# c\nname = \"a # b\" # c\ncount = 3\nratio=0.5\nflag = yes\n",
        "word = b\nlist = x\nlist = y\nsize = 1.5G\nbind.find = ^F, # g\nbind.x = \"a\" # c\n",
        "\xEF\xBB\xBF\r\nname =\nbind. = x\nbind = y\nnothing\n",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
        s[i].size = strlen(texts[i]);
    }
    return s;
}
