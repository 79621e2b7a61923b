/* Any bytes as a settings file, over a table with a row of every type: it is taken, or
 * refused in one line that names the file. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/mem.h"
#include "tests/fuzz/fuzz.h"

static const struct conf_opt table[] = {
    {"flag", 0, CONF_FLAG, "no", 1, 0, NULL, 1, NULL, "", false},
    {"text", 0, CONF_STR, NULL, 1, 0, NULL, 1, "T", "", false},
    {"whole", 0, CONF_INT, "auto", 1, 64, "auto", 1, "N", "", false},
    {"number", 0, CONF_NUM, NULL, 0, 1, NULL, 1, "X", "", false},
    {"word", 0, CONF_ENUM, "one", 1, 0, "one|two", 1, "W", "", false},
    {"list", 0, CONF_LIST, NULL, 1, 0, NULL, 1, "L", "", false},
    {"size", 0, CONF_SIZE, "auto", 1, 0, "auto", 1, "S", "", false},
    {NULL, 0, CONF_FLAG, NULL, 1, 0, NULL, 0, NULL, NULL, false},
};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char path[] = "/tmp/f_conf.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n) {
        abort();
    }
    close(fd);
    struct conf *c = conf_create(table);
    struct err e = ERR_INIT;
    const int rc = conf_load_file(c, path, false, &e);
    if (rc < 0 && (!strstr(e.msg, path) || strchr(e.msg, '\n'))) {
        abort();
    }
    if (rc == 0) {
        const int64_t whole = conf_int(c, "whole", 1);
        const double number = conf_num(c, "number", 0);
        if (whole < 1 || whole > 64 || !(number >= 0 && number <= 1)) {
            abort();
        }
        for (size_t i = 0; i < conf_list_len(c, "list"); i++) {
            if (!conf_list_at(c, "list", i)) {
                abort();
            }
        }
    }
    conf_free(c);
    unlink(path);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "# settings\nflag = yes\ntext = \"a # b\" # c\nwhole = 12\nnumber = 0.5\nword = two\n",
        "list = one\nlist = 'two'\nsize = 1.5G\nwhole = auto\n",
        "[section]\ntext =\nflag\nnumber = nan\nwhole = 65\nword = three\n",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].size = strlen(texts[i]);
        s[i].data = mem_alloc(s[i].size + 1);
        memcpy(s[i].data, texts[i], s[i].size);
    }
    return s;
}
