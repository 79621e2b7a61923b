/* The screen on the scripted conversation, for tests/screen.sh. */
#include "config.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv/conv.h"
#include "tui/tui.h"

int main(int argc, char **argv)
{
    struct tui_bind binds[16];
    struct tui_opts o = {.history = getenv("FAKE_HISTORY"), .binds = binds};
    struct err e = ERR_INIT;
    bool plain = false;
    setlocale(LC_ALL, "");
    for (int i = 1; i < argc; i++) {
        plain = plain || strcmp(argv[i], "--plain") == 0;
        o.ascii = o.ascii || strcmp(argv[i], "--ascii") == 0;
        o.vi = o.vi || strcmp(argv[i], "--vi") == 0;
        if (strcmp(argv[i], "--bind") == 0 && i + 1 < argc && o.n_binds < 16) {
            char *eq = strchr(argv[++i], '=');
            if (eq) {
                *eq = 0;
                binds[o.n_binds++] = (struct tui_bind){argv[i], eq + 1, "settings:7"};
            }
        }
        if (strcmp(argv[i], "--theme") == 0 && i + 1 < argc) {
            o.theme = argv[++i];
        }
        if (strcmp(argv[i], "--resume") == 0 && i + 1 < argc) {
            o.resume = atoi(argv[++i]);
            o.must_resume = o.resume == 9;
            o.notice = o.resume == 8 ? "a line that was recovered\n" : NULL;
        }
        if (strcmp(argv[i], "--reset-terminal") == 0) {
            tui_reset_terminal();
            return 0;
        }
    }
    struct conv_opts co = conv_opts_default();
    struct conv *c = NULL;
    int sig = 0;
    int rc = conv_open(&co, &c, &e);
    if (rc == 0) {
        rc = plain ? tui_plain(c, &o, &e) : tui_chat(c, &o, &sig, &e);
        struct err lost = ERR_INIT;
        if (conv_end(c, &lost) < 0 && rc == 0) {
            rc = err_set(&e, lost.code, "%s", lost.msg);
        }
    }
    if (sig) {
        tui_die(sig);
    }
    if (rc < 0) {
        fprintf(stderr, "quasar: %s\n", e.msg);
    }
    return err_exit_status(rc);
}
