/* Any bytes as a script: it is taken, or refused in one line that names file and line. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/scriptfile.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct scriptfile s;
    struct err e = ERR_INIT;
    const int rc = scriptfile_parse((const char *)p, n, "name", &s, &e);
    if (rc < 0) {
        if (rc != QE_USAGE || strncmp(e.msg, "name:", 5) != 0 || strchr(e.msg, '\n')) {
            abort();
        }
        return 0;
    }
    if (s.n_answers == 0 || s.n_rounds == 0 || s.load_steps < 1) {
        abort();
    }
    for (size_t i = 0; i < s.n_rounds; i++) {
        if (s.rounds[i].accepted > s.rounds[i].drafted || s.rounds[i].drafted > 15) {
            abort();
        }
    }
    scriptfile_free(&s);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "clock virtual 2026-01-30 14:02\ncontrol c\nreport r\nload 400ms 4\nprefill 3400\n"
        "round 21ms mtp 6 4 3ms\nround 3ms suffix 8 8\nanswer /a|b/\n thought x\\ny\n pause 5s\n"
        " text <<END\none\ntwo\nEND\n hold h\n tool f {\"a\": 1}\n fail device gone\n",
        "# c\nanswer\nrepeat 3 line %d\\n\nforever\nround 1us\nanswer\nfail nan\nfail memory\n",
        "disk 3 kill\nload fails because\nanswer /^x$/\ntext \\x41\\t\\\\\n",
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
