/* quasar tokenize as a program: whole texts, lines, both directions, faults. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "tests/unit/tokdata.h"

static char file[] = "/tmp/quasar-tokenizer-XXXXXX";

/* Runs the command with the input; its output (both streams) and exit status. */
static int run(const char *input, const char *args, char *out, size_t room)
{
    struct buf cmd = BUF_INIT;
    buf_printf(&cmd, "printf '%s' | '%s' tokenize --tokenizer %s %s 2>&1", input,
               getenv("QUASAR_BIN"), file, args);
    FILE *f = popen(cmd.data, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, room - 1, f);
    out[n] = 0;
    buf_free(&cmd);
    return WEXITSTATUS(pclose(f));
}

static void command_answers(void **state)
{
    (void)state;
    static const struct {
        const char *input, *args;
        int status;
        const char *output;
    } t[] = {
        {"Hello <|im_end|> thou", "", 0, "5372 220 8142 1251\n"},
        {"Hello <|im_end|> thou", "--no-specials", 0, "5372 513 91 340 3460 91 29 1251\n"},
        {"Hello thou", "-f - --json", 0, "{\"tokens\":[5372,1251]}\n"},
        {"", "", 0, "\n"},
        {"5372 220, 8142 [1251]", "--decode", 0, "Hello <|im_end|> thou"},
        {"5372 8142", "--decode --no-specials", 0, "Hello"},
        {"\"Hello\"\\n\"\"\\n\"a\\\\u0000b\"\\n", "--jsonl", 0, "[5372]\n[]\n[64,188,65]\n"},
        {"[5372,1251]\\n[]", "--jsonl --decode", 0, "\"Hello thou\"\n\"\"\n"},
        {"9999999", "--decode", 2, "quasar: there is no token 9999999 (the largest is 8172)\n"},
        {"5 x", "--decode", 2, "quasar: the input is not a list of token ids at \"x\"\n"},
        {"5\\0006", "--decode", 2,
         "quasar: the input holds a NUL byte: it is not a list of token ids\n"},
        {"\"a\"\\n5\\n", "--jsonl", 2, "[64]\nquasar: line 2: it is not a JSON string\n"},
    };
    if (!getenv("QUASAR_BIN")) {
        skip();
    }
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char out[512];
        int status = run(t[i].input, t[i].args, out, sizeof out);
        if (i + 1 == sizeof t / sizeof *t) { /* two streams: their order is free */
            assert_non_null(strstr(out, "quasar: line 2: it is not a JSON string\n"));
        } else {
            assert_string_equal(out, t[i].output);
        }
        assert_int_equal(status, t[i].status);
    }
}

static int setup(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    tokdata_json("demo", "demo", &b);
    int fd = mkstemp(file);
    int rc = fd < 0 ? -1 : io_write_all(fd, b.data, b.len, file, NULL);
    close(fd);
    buf_free(&b);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_answers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
