/* quasar convert: from one form of a model to another, with a progress bar on a
 * terminal. Interrupting leaves nothing behind. */
#include "config.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/interrupt.h"
#include "format/convert.h"
#include "cmd/model.h"

struct bar {
    bool terminal;
    int64_t start, last;
};

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct bar *b = ctx;
    int64_t now = clock_now(clock_real());
    if (b->terminal && (now - b->last > 100000000 || done == total)) {
        enum { WIDTH = 30 };
        char line[WIDTH + 1];
        int full = total ? (int)((double)done / (double)total * WIDTH) : WIDTH;
        memset(line, '.', WIDTH);
        memset(line, '#', (size_t)(full < WIDTH ? full : WIDTH));
        line[WIDTH] = 0;
        double s = clock_seconds(now - b->start);
        fprintf(stderr, "\r[%s] %.2f of %.2f GB, %.0f MB/s \033[K", line, (double)done / 1e9,
                (double)total / 1e9, s > 0 ? (double)done / 1e6 / s : 0);
        b->last = now;
    }
    return interrupt_came();
}

static void on_note(void *ctx, const char *text)
{
    const struct bar *b = ctx;
    fprintf(stderr, "%squasar: %s\n", b->terminal ? "\r\033[K" : "", text);
}

/* What --to says, else what the target's name says. */
static enum convert_to target(const struct conf *cf, const char *dst)
{
    if (conf_is_word(cf, "to", "hf")) {
        return CONVERT_HF;
    }
    size_t n = strlen(dst);
    bool named = !conf_is_set(cf, "to") && n > 5 && strcmp(dst + n - 5, ".gguf") == 0;
    return named || conf_is_word(cf, "to", "gguf") ? CONVERT_GGUF : CONVERT_QSR;
}

int cmd_convert(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs != 2) {
        return err_set(e, QE_USAGE,
                       "quasar convert needs a source and a target: quasar convert FOLDER "
                       "model.qsr");
    }
    struct bar bar = {isatty(STDERR_FILENO) == 1, clock_now(clock_real()), 0};
    struct convert_opts o = {
        .tier = conf_str(cf, "tier"),
        .to = target(cf, args[1]),
        .force = conf_flag(cf, "force"),
        .progress = on_progress,
        .progress_ctx = &bar,
        .note = on_note,
        .note_ctx = &bar,
    };
    char *source = NULL;
    int rc = model_source(args[0], &source, e);
    if (rc < 0) {
        return rc;
    }
    interrupt_catch(false);
    rc = convert(source, args[1], &o, e);
    free(source);
    if (bar.terminal && bar.last) {
        fputs("\r\033[K", stderr);
    }
    return rc;
}
