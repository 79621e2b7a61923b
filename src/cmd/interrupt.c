/* Signals that end a command early, as a flag that its loop asks for. */
#include "config.h"
#include "cmd/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t came;

static void on_signal(int sig)
{
    (void)sig;
    came = 1;
}

void interrupt_catch(bool second_ends)
{
    struct sigaction sa = {.sa_handler = on_signal,
                           .sa_flags = second_ends ? (int)SA_RESETHAND : 0};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct sigaction old;
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &sa, NULL);
    }
}

bool interrupt_came(void)
{
    return came;
}
