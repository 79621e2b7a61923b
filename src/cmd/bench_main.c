/* quasar-bench: the bench command alone, with every library but libc linked in,
 * so that the file can be copied to a bare machine. */
#include "config.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

static int run(int argc, char **argv, struct err *e)
{
    struct conf *cf = conf_create(options_table);
    char **args = mem_array((size_t)argc + 1, sizeof *args);
    int nargs = 0;
    int rc = conf_parse_args(cf, C_BENCH, argc, argv, &nargs, args, e);
    if (rc == 0 && conf_flag(cf, "help")) {
        struct buf b = BUF_INIT;
        conf_help(cf, C_BENCH, &b);
        printf("usage: quasar-bench [options]\nquasar bench, as a program of its own.\n\n%s",
               b.data ? b.data : "");
        buf_free(&b);
    } else if (rc == 0) {
        rc = conf_load_env(cf, e);
        if (rc == 0) {
            rc = cmd_bench(cf, nargs, args, e);
        }
    }
    free(args);
    conf_free(cf);
    return rc;
}

int main(int argc, char **argv)
{
    io_hold_standard_fds();
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C");
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("quasar-bench " PACKAGE_VERSION);
        return 0;
    }
    struct err e = ERR_INIT;
    int rc = run(argc - 1, argv + 1, &e);
    struct err out = ERR_INIT;
    if (!io_flush_stdout(&out) && rc == 0) {
        rc = out.code;
        e = out;
    }
    if (rc < 0 && e.msg[0]) {
        fprintf(stderr, "quasar-bench: %s\n", e.msg);
    }
    return err_exit_status(rc);
}
