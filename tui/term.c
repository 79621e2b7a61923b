/* Terminal modes. There is one table of the modes this program may set, with a
 * flag each; term_restore writes the off sequence of every flag that is up and
 * puts the line discipline back, with nothing but write() and tcsetattr().
 * While the screen is open, standard output and error are captured, so that
 * no library can scribble over the screen; what came last is written on the
 * way out. */
#include "config.h"
#include "tui/term.h"

#include <curses.h>
#include <term.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/vclock.h"
#include "tui/capture.h"
#include "tui/input.h"

enum mode { M_SYNC, M_PASTE, M_MOUSE, M_KEYS, M_CURSOR, M_ALT, M_COUNT };

/* Off sequences in the order they are written; M_CURSOR and M_ALT are taken
 * from the terminal's description when it is opened. */
static char mode_off[M_COUNT][64] = {
    [M_SYNC] = "\x1b[?2026l",       [M_PASTE] = "\x1b[?2004l", [M_MOUSE] = "\x1b[?1006l\x1b[?1000l",
    [M_KEYS] = "\x1b[>4;0m\x1b[<u", [M_CURSOR] = "\x1b[?25h",  [M_ALT] = "",
};
static _Atomic int mode_set[M_COUNT];

static int tty = -1;               /* our own descriptor of the terminal */
static struct termios saved_modes; /* before we touched it */
static _Atomic int modes_changed;
static int sig_pipe[2] = {-1, -1};
static bool sync_known;
static bool mouse_wanted;
static int well_due;       /* questions that the terminal has not answered */
static int64_t well_asked; /* the last one, in real time */
static bool is_open;
static SCREEN *curses_screen;
static _Atomic int drawn_on = -1; /* curses' own descriptor of the terminal */
static FILE *curses_out, *curses_in;
static _Atomic int end_asked;

static const int watched_signals[] = {SIGWINCH, SIGCONT, SIGTSTP, SIGTERM, SIGHUP, SIGINT, SIGQUIT};
#define N_WATCHED (sizeof watched_signals / sizeof *watched_signals)

static void raw_write(const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(tty, p, n);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return;
        }
        p += k;
        n -= (size_t)k;
    }
}

static void raw_puts(const char *s)
{
    raw_write(s, strlen(s));
}

void term_restore(void)
{
    int saved_errno = errno;
    if (tty >= 0) {
        for (int m = 0; m < M_COUNT; m++) {
            if (atomic_exchange(&mode_set[m], 0)) {
                raw_puts(mode_off[m]);
            }
        }
        if (atomic_exchange(&modes_changed, 0)) {
            tcsetattr(tty, TCSANOW, &saved_modes);
        }
    }
    errno = saved_errno;
}

/* ---- signals ------------------------------------------------------------- */

/* Another thread may be drawing, and must not draw over what is said last. Async-signal-safe. */
static void stop_drawing(void)
{
    const int fd = atomic_load(&drawn_on);
    const int nowhere = fd >= 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (nowhere >= 0) {
        (void)dup2(nowhere, fd);
    }
}

/* Before the last words of the process. */
static void on_fatal(void)
{
    stop_drawing();
    term_restore();
    capture_crash();
}

/* The main loop did not answer a request to end. */
static void on_alarm(int sig)
{
    (void)sig;
    int why = atomic_load(&end_asked);
    term_restore();
    capture_crash();
    _exit(128 + why);
}

static void on_watched(int sig)
{
    int saved_errno = errno;
    if (sig == SIGTERM || sig == SIGHUP || sig == SIGINT || sig == SIGQUIT) {
        if (atomic_exchange(&end_asked, sig) == 0) {
            alarm(3);
        } else {
            on_alarm(SIGALRM);
        }
    }
    unsigned char c = (unsigned char)sig;
    (void)!write(sig_pipe[1], &c, 1);
    errno = saved_errno;
}

static void handle(int sig, void (*fn)(int), int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = fn;
    sa.sa_flags = flags;
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
}

static void signals_install(void)
{
    crash_watch(on_fatal, 1);
    for (size_t i = 0; i < N_WATCHED; i++) {
        handle(watched_signals[i], on_watched, SA_RESTART);
    }
    handle(SIGALRM, on_alarm, 0);
    handle(SIGPIPE, SIG_IGN, 0);
}

static void signals_remove(void)
{
    crash_watch(NULL, 1);
    for (size_t i = 0; i < N_WATCHED; i++) {
        handle(watched_signals[i], SIG_DFL, 0);
    }
}

int term_signal_fd(void)
{
    return sig_pipe[0];
}

int term_signal_next(void)
{
    unsigned char c = 0;
    return read(sig_pipe[0], &c, 1) == 1 ? c : 0;
}

void term_die(int sig)
{
    alarm(0);
    term_close();
    signal(sig, SIG_DFL);
    raise(sig);
    _exit(128 + sig);
}

/* ---- open and close ------------------------------------------------------ */

/* Remembers the description's own way out, for the signal handlers. */
static void learn_sequences(void)
{
    static const struct {
        enum mode mode;
        const char *cap;
    } caps[] = {{M_CURSOR, "cnorm"}, {M_ALT, "rmcup"}};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        const char *s = tigetstr(caps[i].cap);
        if (s && s != (const char *)-1 && strlen(s) < sizeof mode_off[0] - 8) {
            /* leave no colours behind either */
            snprintf(mode_off[caps[i].mode], sizeof mode_off[0], "%s%s",
                     caps[i].mode == M_ALT ? "\x1b[0m" : "", s);
        }
    }
}

static bool talks_ansi(void)
{
    const char *t = getenv("TERM");
    return t && strncmp(t, "linux", 5) != 0 && strncmp(t, "vt", 2) != 0;
}

/* Terminals, and what runs inside of them, that ignore control sequences they do not know. */
static bool talks_xterm(void)
{
    const char *t = getenv("TERM");
    static const char *const families[] = {"xterm",   "tmux",    "foot",    "kitty", "alacritty",
                                           "wezterm", "ghostty", "contour", "vte"};
    for (size_t i = 0; t && i < sizeof families / sizeof *families; i++) {
        if (strncmp(t, families[i], strlen(families[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void modes_on(void)
{
    atomic_store(&mode_set[M_ALT], 1);
    atomic_store(&mode_set[M_CURSOR], 1);
    atomic_store(&modes_changed, 1);
    raw_puts("\x1b[?2004h");
    atomic_store(&mode_set[M_PASTE], 1);
    if (talks_xterm()) {
        /* keys that have no code of their own, where the terminal can tell them: xterm's way and
         * kitty's; a terminal that knows neither ignores both */
        atomic_store(&mode_set[M_KEYS], 1);
        raw_puts("\x1b[>4;1m\x1b[>1u");
    }
    if (mouse_wanted) {
        atomic_store(&mode_set[M_MOUSE], 1);
        raw_puts("\x1b[?1000h\x1b[?1006h");
    }
}

/* Curses has undone its part; the rest is ours. */
static void modes_off(void)
{
    atomic_store(&mode_set[M_ALT], 0);
    term_restore();
}

int term_open(void (*printed)(void *ctx, const char *p, size_t n), void *ctx, struct err *e)
{
    static bool at_exit;
    tty = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (tty < 0 || tcgetattr(tty, &saved_modes) < 0) {
        int rc = err_sys(e, QE_IO, errno, "standard output is no usable terminal");
        if (tty >= 0) {
            close(tty);
        }
        tty = -1;
        return rc;
    }
    if (pipe2(sig_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
        return err_sys(e, QE_IO, errno, "cannot make a pipe");
    }
    if (!at_exit) {
        atexit(term_restore);
        at_exit = true;
    }
    signals_install();
    capture_begin(printed, ctx);
    curses_out = fdopen(fcntl(tty, F_DUPFD_CLOEXEC, 3), "w");
    curses_in = fdopen(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), "r");
    curses_screen = curses_out && curses_in ? newterm(NULL, curses_out, curses_in) : NULL;
    if (!curses_screen) {
        const char *t = getenv("TERM");
        int rc = err_set(e, QE_UNSUPPORTED,
                         "the terminal \"%s\" is not known here (try --plain, or another TERM)",
                         t ? t : "");
        signals_remove();
        capture_end();
        return rc;
    }
    set_term(curses_screen);
    atomic_store(&drawn_on, fileno(curses_out));
    learn_sequences();
    raw();
    noecho();
    nonl();
    idlok(stdscr, TRUE);
    scrollok(stdscr, FALSE);
    is_open = true;
    modes_on();
    if (talks_ansi()) {
        raw_puts("\x1b[?2026$p");
    }
    return 0;
}

void term_leave(void)
{
    curs_set(1);
    if (atomic_exchange(&mode_set[M_KEYS], 0)) {
        raw_puts(mode_off[M_KEYS]); /* it belongs to the alternate screen */
    }
    endwin();
    modes_off();
}

void term_enter(void)
{
    modes_on();
    int rows = 0;
    int cols = 0;
    term_size(&rows, &cols);
    resizeterm(rows, cols);
    raw();
    clearok(curscr, TRUE);
    refresh();
}

void term_close(void)
{
    if (!is_open) {
        return;
    }
    is_open = false;
    term_leave();
    atomic_store(&drawn_on, -1);
    delscreen(curses_screen);
    curses_screen = NULL;
    fclose(curses_out);
    fclose(curses_in);
    signals_remove();
    capture_end();
    close(sig_pipe[0]);
    close(sig_pipe[1]);
    sig_pipe[0] = -1;
    sig_pipe[1] = -1;
}

void term_suspend(void)
{
    handle(SIGTSTP, SIG_DFL, 0);
    kill(0, SIGTSTP);
    handle(SIGTSTP, on_watched, SA_RESTART);
}

int term_run(const char *command, const char *file)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s \"$1\"", command);
    term_leave();
    handle(SIGINT, SIG_IGN, 0); /* ^C belongs to the child now */
    handle(SIGQUIT, SIG_IGN, 0);
    pid_t pid = fork();
    if (pid == 0) {
        signals_remove();
        handle(SIGPIPE, SIG_DFL, 0);
        capture_child();
        execl("/bin/sh", "sh", "-c", b.data, "sh", file, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    handle(SIGINT, on_watched, SA_RESTART);
    handle(SIGQUIT, on_watched, SA_RESTART);
    term_enter();
    buf_free(&b);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

void term_mouse(bool on)
{
    mouse_wanted = on;
    if (!is_open) {
        return;
    }
    if (on) {
        atomic_store(&mode_set[M_MOUSE], 1);
        raw_puts("\x1b[?1000h\x1b[?1006h");
    } else if (atomic_exchange(&mode_set[M_MOUSE], 0)) {
        raw_puts(mode_off[M_MOUSE]);
    }
}

void term_ask_background(void)
{
    if (is_open && talks_ansi()) {
        raw_puts("\x1b]11;?\x1b\\");
    }
}

int term_fd(void)
{
    return STDIN_FILENO;
}

void term_mode_known(unsigned mode, bool known)
{
    if (mode == 2026) {
        sync_known = known;
    } else if (mode == KEY_IS_WELL) {
        well_due -= well_due > 0;
    }
}

int64_t term_update(void)
{
    int64_t t0 = clock_now(clock_main());
    if (sync_known) {
        atomic_store(&mode_set[M_SYNC], 1);
        raw_puts("\x1b[?2026h");
    }
    doupdate();
    if (sync_known) {
        raw_puts("\x1b[?2026l");
        atomic_store(&mode_set[M_SYNC], 0);
    }
    if (vclock_is_watched()) {
        raw_puts("\x1b[5n");
        well_asked = clock_now(clock_real());
        well_due++;
    }
    return clock_now(clock_main()) - t0;
}

bool term_settled(void)
{
    return well_due == 0 || clock_now(clock_real()) - well_asked > 2000000000;
}

void term_size(int *rows, int *cols)
{
    struct winsize ws;
    memset(&ws, 0, sizeof ws);
    *rows = 24;
    *cols = 80;
    if (ioctl(tty, TIOCGWINSZ, &ws) == 0 && ws.ws_row > 0 && ws.ws_col > 0) {
        *rows = ws.ws_row;
        *cols = ws.ws_col;
    }
}

void term_write(const char *p, size_t n)
{
    raw_write(p, n);
}

void term_reset_by_hand(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    tty = fd >= 0 ? fd : STDOUT_FILENO;
    /* synchronized output, coded keys, paste, mouse, keypad, cursor, colours, character
     * set, scroll region, then the normal screen */
    raw_puts("\x1b[?2026l\x1b[>4;0m\x1b[<u\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?"
             "1006l\x1b[?1l\x1b>"
             "\x1b[?25h\x1b[?7h\x1b[0m\x0f\x1b[r\x1b[?1049l");
    struct termios t;
    if (tcgetattr(tty, &t) == 0) {
        t.c_iflag |= ICRNL | IXON | BRKINT;
        t.c_iflag &= ~(tcflag_t)(INLCR | IGNCR | ISTRIP);
        t.c_oflag |= OPOST | ONLCR;
        t.c_lflag |= ICANON | ECHO | ECHOE | ECHOK | ISIG | IEXTEN;
        tcsetattr(tty, TCSANOW, &t);
    }
    if (fd >= 0) {
        close(fd);
    }
    tty = -1;
}
