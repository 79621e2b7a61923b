/* Signals that end a command early, as a flag that its loop asks for. */
#include "config.h"
#include "cmd/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

static volatile sig_atomic_t came, pipe_broke;

static void on_signal(int sig)
{
    came = came < SIG_ATOMIC_MAX ? came + 1 : came;
    if (sig == SIGPIPE) {
        pipe_broke = 1;
    }
}

/* Catches sig unless it is ignored already. */
static void take(int sig, const struct sigaction *sa)
{
    struct sigaction old;
    if (sigaction(sig, NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
        sigaction(sig, sa, NULL);
    }
}

void interrupt_catch(bool second_ends)
{
    struct sigaction sa = {.sa_handler = on_signal,
                           .sa_flags = second_ends ? (int)SA_RESETHAND : 0};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    take(SIGHUP, &sa);
    sa.sa_flags = 0; /* every write raises it again */
    take(SIGPIPE, &sa);
}

bool interrupt_came(void)
{
    return came > 0;
}

int interrupt_count(void)
{
    return came;
}

void interrupt_last(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

void interrupt_end(void)
{
    if (pipe_broke) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
}
