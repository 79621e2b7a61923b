/* The clipboard: by the terminal (OSC 52, which goes through ssh), and by a program of the desktop
 * where the session is on it. Nothing is ever read from it, and nobody waits for the program. */
#include "config.h"
#include "tui/clip.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "tui/term.h"

#define COPY_MAX ((size_t)70 * 1024)

static void base64(const char *p, size_t n, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)(unsigned char)p[i] << 16;
        v |= i + 1 < n ? (unsigned)(unsigned char)p[i + 1] << 8 : 0;
        v |= i + 2 < n ? (unsigned)(unsigned char)p[i + 2] : 0;
        buf_addc(out, digits[v >> 18]);
        buf_addc(out, digits[v >> 12 & 63]);
        buf_addc(out, i + 1 < n ? digits[v >> 6 & 63] : '=');
        buf_addc(out, i + 2 < n ? digits[v & 63] : '=');
    }
}

int clip_terminal(const char *p, size_t n, struct err *e)
{
    if ((n + 2) / 3 * 4 > COPY_MAX) {
        return err_set(e, QE_NOMEM, "%zu bytes are too many for the terminal's clipboard", n);
    }
    const char *tmux = getenv("TMUX");
    const char *sty = getenv("STY");
    struct buf b = BUF_INIT;
    if (tmux && tmux[0]) {
        buf_adds(&b, "\x1bPtmux;\x1b\x1b]52;c;");
        base64(p, n, &b);
        buf_adds(&b, "\x07\x1b\\");
    } else if (sty && sty[0]) {
        /* screen takes short strings only: one string per 240 bytes */
        struct buf code = BUF_INIT;
        base64(p, n, &code);
        buf_adds(&b, "\x1bP\x1b]52;c;");
        for (size_t i = 0; i < code.len; i += 240) {
            size_t k = code.len - i < 240 ? code.len - i : 240;
            buf_add(&b, code.data + i, k);
            buf_adds(&b, i + k < code.len ? "\x1b\\\x1bP" : "");
        }
        buf_adds(&b, "\x07\x1b\\");
        buf_free(&code);
    } else {
        buf_adds(&b, "\x1b]52;c;");
        base64(p, n, &b);
        buf_adds(&b, "\x1b\\");
    }
    term_write(b.data, b.len);
    buf_free(&b);
    return 0;
}

/* ---- a program of the desktop ------------------------------------------------- */

static bool is_set(const char *name)
{
    const char *s = getenv(name);
    return s && s[0];
}

static bool in_path(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *s = path ? path : ""; *s;) {
        const size_t n = strcspn(s, ":");
        struct buf b = BUF_INIT;
        buf_printf(&b, "%.*s/%s", (int)n, s, name);
        const bool there = n > 0 && access(b.data, X_OK) == 0;
        buf_free(&b);
        if (there) {
            return true;
        }
        s += n + (s[n] == ':');
    }
    return false;
}

const char *clip_program(void)
{
    if (is_set("SSH_CONNECTION") || is_set("SSH_CLIENT") || is_set("SSH_TTY")) {
        return NULL; /* its clipboard is not the user's */
    }
    if (is_set("WAYLAND_DISPLAY") && in_path("wl-copy")) {
        return "wl-copy";
    }
    if (is_set("DISPLAY") && in_path("xclip")) {
        return "xclip";
    }
    return in_path("pbcopy") ? "pbcopy" : NULL;
}

/* What the grandchild does: it belongs to nobody, so that nobody has to wait for it. */
static _Noreturn void be_program(const char *program, int text)
{
    const int null = open("/dev/null", O_RDWR);
    char *const argv[] = {(char *)(uintptr_t)program,
                          strcmp(program, "xclip") == 0 ? (char *)(uintptr_t) "-selection" : NULL,
                          (char *)(uintptr_t) "clipboard", NULL};
    signal(SIGPIPE, SIG_DFL);
    if (null < 0 || dup2(text, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(null, STDERR_FILENO) < 0) {
        _exit(127);
    }
    execvp(program, argv);
    _exit(127);
}

int clip_give(const char *program, const char *p, size_t n, struct err *e)
{
    const int fd = memfd_create("copy", MFD_CLOEXEC);
    int rc = fd < 0 ? err_sys(e, QE_IO, errno, "cannot copy") : io_write_all(fd, p, n, "copy", e);
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot copy");
    }
    const pid_t child = rc == 0 ? fork() : 0;
    if (rc == 0 && child == 0) {
        (void)setsid();
        const pid_t program_pid = fork();
        if (program_pid == 0) {
            be_program(program, fd);
        }
        _exit(program_pid < 0);
    }
    if (rc == 0) {
        int status = 0;
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        if (child < 0 || status != 0) {
            rc = err_sys(e, QE_IO, errno, "cannot start %s", program);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}
