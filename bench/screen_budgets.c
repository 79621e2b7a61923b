/* The budgets of the screen, measured on the program itself and the demo model in a
 * terminal of our own, and on the transcript alone where no model can fill it. Prints one
 * table; a line over its limit is marked. bench/screen-budgets runs it. */
#define _GNU_SOURCE
#include "config.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tests/ptyterm.h"
#include "tui/search.h"
#include "tui/transcript.h"

static const char *quasar, *fake;
static int reps = 5;
static bool over;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts; q of 1: the largest. */
static double quantile(double *v, size_t n, double q)
{
    qsort(v, n, sizeof *v, by_value);
    const size_t at = (size_t)(q * (double)n);
    return n == 0 ? -1 : v[at < n ? at : n - 1];
}

static void say(const char *what, double value, double limit, const char *unit, const char *how)
{
    const bool bad = value < 0 || value > limit;
    over = over || bad;
    printf("| %s | %.3g %s | %g | %s%s |\n", what, value, unit, limit, how, bad ? " **over**" : "");
    fflush(stdout);
}

static struct ptyterm *start(int cols, int rows, const char *threads)
{
    const char *const argv[] = {quasar,         "--start", "new",     "--no-save",
                                "--threads",    threads,   "--think", "off",
                                "--min-tokens", "20000",   NULL};
    struct ptyterm *t = ptyterm_start(argv, cols, rows);
    if (!ptyterm_until(t, "idle", 20000)) {
        fprintf(stderr, "the program does not come up:\n%s\n", ptyterm_row(t, 0));
        exit(1);
    }
    return t;
}

static void ask(struct ptyterm *t, const char *text)
{
    ptyterm_send(t, text, strlen(text));
    while (ptyterm_find(t, text) < 0) {
        (void)ptyterm_read(t, 20);
    }
    ptyterm_send(t, "\r", 1);
}

static void drain(struct ptyterm *t, int ms)
{
    const int64_t end = ptyterm_now() + (int64_t)ms * 1000000;
    while (ptyterm_now() < end) {
        (void)ptyterm_read(t, 10);
    }
}

/* ---- while it answers at full speed ---- */

static void while_decoding(void)
{
    double *key = mem_array(4000, sizeof *key), *cpu = mem_array(20000, sizeof *cpu);
    size_t n_key = 0, n_cpu = 0;
    double share[64];
    for (int r = 0; r < reps; r++) {
        struct ptyterm *t = start(200, 60, "1");
        ask(t, "Tell me a story");
        (void)ptyterm_until(t, "decode", 5000);
        drain(t, 300);
        ptyterm_forget(t);
        const int64_t from = ptyterm_now(), cpu_from = ptyterm_cpu(t, false);
        for (int i = 1; i <= 80; i++) {
            char typed[128];
            snprintf(
                typed, sizeof typed, "> %.*s", i,
                "qwertyuiopasdfghjklzxcvbnmqwertyuiopasdfghjklzxcvbnmqwertyuiopasdfghjklzxcvbnmqw"
                "ertyuiop");
            const int64_t at = ptyterm_now();
            ptyterm_send(t, typed + 1 + i, 1);
            if (ptyterm_until(t, typed, 1000) && n_key < 4000) {
                key[n_key++] = (double)(ptyterm_now() - at) / 1e6;
            }
            drain(t, 20 + i % 17);
        }
        share[r] =
            100.0 * (double)(ptyterm_cpu(t, false) - cpu_from) / (double)(ptyterm_now() - from);
        size_t n = 0;
        const struct ptyterm_frame *f = ptyterm_frames(t, &n);
        for (size_t i = 1; i < n && n_cpu < 20000; i++) {
            cpu[n_cpu++] = (double)f[i].cpu_ns / 1e6;
        }
        ptyterm_free(t);
    }
    char how[128];
    snprintf(how, sizeof how, "200x60, %zu keys, median %.2f", n_key, quantile(key, n_key, 0.5));
    say("key to screen, p99", quantile(key, n_key, 0.99), 16, "ms", how);
    snprintf(how, sizeof how, "200x60, %zu frames while keys are typed, median %.2f", n_cpu,
             quantile(cpu, n_cpu, 0.5));
    say("frame, CPU p99", quantile(cpu, n_cpu, 0.99), 4, "ms", how);
    (void)quantile(share, (size_t)reps, 0.5);
    free(key);
    free(cpu);
}

static void streaming(void)
{
    double bytes[20000], share[64], rate[64];
    size_t n_bytes = 0;
    for (int r = 0; r < reps; r++) {
        struct ptyterm *t = start(120, 40, "1");
        ask(t, "Tell me a story");
        (void)ptyterm_until(t, "decode", 5000);
        drain(t, 500);
        ptyterm_forget(t);
        const int64_t from = ptyterm_now(), cpu_from = ptyterm_cpu(t, false);
        drain(t, 4000);
        const double s = (double)(ptyterm_now() - from) / 1e9;
        share[r] = (double)(ptyterm_cpu(t, false) - cpu_from) / 1e7 / s;
        size_t n = 0;
        const struct ptyterm_frame *f = ptyterm_frames(t, &n);
        rate[r] = (double)n / s;
        for (size_t i = 1; i < n && n_bytes < 20000; i++) {
            bytes[n_bytes++] = (double)f[i].bytes;
        }
        ptyterm_free(t);
    }
    char how[128];
    snprintf(how, sizeof how, "120x40, %zu frames, p99 %.0f", n_bytes,
             quantile(bytes, n_bytes, 0.99));
    say("bytes of a streaming frame, median", quantile(bytes, n_bytes, 0.5), 2048, "B", how);
    say("frames a second while streaming", quantile(rate, (size_t)reps, 0.5), 31, "/s",
        "120x40, median of runs");
    say("CPU of the screen's thread while decoding", quantile(share, (size_t)reps, 0.5), 3, "%",
        "of one core, 120x40, median of runs");
}

static void idle(void)
{
    double v[64];
    for (int r = 0; r < reps; r++) {
        const char *const argv[] = {quasar, "--start", "new", "--threads", "1", NULL};
        struct ptyterm *t = ptyterm_start(argv, 120, 40);
        (void)ptyterm_until(t, "idle", 20000);
        ask(t, "Hello");
        (void)ptyterm_until(t, "idle", 30000);
        drain(t, 8000); /* the state is saved after five seconds */
        const uint64_t before = ptyterm_switches(t);
        sleep(3);
        v[r] = (double)(ptyterm_switches(t) - before) / 3;
        ptyterm_free(t);
    }
    say("wake-ups when idle", quantile(v, (size_t)reps, 0.5), 0, "/s",
        "all threads, 3 s after an answer was saved");
}

static void first_frame(void)
{
    double v[64];
    for (int r = 0; r < 3 * reps; r++) {
        const char *const argv[] = {quasar, "--start", "new", "--no-save", NULL};
        const int64_t at = ptyterm_now();
        struct ptyterm *t = ptyterm_start(argv, 120, 40);
        while (ptyterm_find(t, "F1") < 0 && ptyterm_now() - at < 5000000000) {
            (void)ptyterm_read(t, 5);
        }
        v[r] = (double)(ptyterm_now() - at) / 1e6;
        ptyterm_free(t);
    }
    say("first frame after start", quantile(v, (size_t)(3 * reps), 0.5), 100, "ms",
        "median of three times the runs");
}

static void first_token(void)
{
    double v[64];
    for (int r = 0; r < 3 * reps; r++) {
        struct ptyterm *t = start(120, 40, "2");
        ask(t, "Hello");
        const int64_t at = ptyterm_now();
        while (ptyterm_find(t, "out 1") < 0 && ptyterm_find(t, "decode") < 0 &&
               ptyterm_now() - at < 5000000000) {
            (void)ptyterm_read(t, 1);
        }
        v[r] = (double)(ptyterm_now() - at) / 1e6;
        ptyterm_free(t);
    }
    say("first token after Enter", quantile(v, (size_t)(3 * reps), 0.5), 150, "ms",
        "2 threads, short prompt, median of three times the runs");
}

/* ---- tokens a second, with the screen and without ---- */

/* CPU seconds of a process are what an engine alone on its core would take: other users of
 * the machine slow both down, but not by the same. */
static double headless(int tokens)
{
    char cmd[1024];
    snprintf(cmd, sizeof cmd,
             "%s run -p 'Tell me a story' --think off --threads 1 --seed 7 --spec off "
             "--min-tokens %d -n %d --json 2>/dev/null",
             quasar, tokens, tokens);
    FILE *f = popen(cmd, "r");
    char *line = NULL;
    size_t cap = 0;
    double s = -1;
    if (f && getline(&line, &cap, f) > 0) {
        const char *at = strstr(line, "\"decode_s\":");
        s = at ? strtod(at + 11, NULL) : -1;
    }
    free(line);
    if (f) {
        pclose(f);
    }
    return s > 0 ? (tokens - 1) / s : -1;
}

static double with_screen(int tokens)
{
    char n[16], want[32];
    snprintf(n, sizeof n, "%d", tokens);
    const char *const argv[] = {quasar,    "--start", "new",          "--no-save", "--threads", "1",
                                "--think", "off",     "--min-tokens", n,           "-n",        n,
                                "--seed",  "7",       "--spec",       "off",       NULL};
    struct ptyterm *t = ptyterm_start(argv, 120, 40);
    (void)ptyterm_until(t, "idle", 20000);
    ask(t, "Tell me a story");
    (void)ptyterm_until(t, "decode", 10000);
    const int64_t at = ptyterm_now();
    snprintf(want, sizeof want, "cut off");
    double s = -1;
    if (ptyterm_until(t, want, 120000)) {
        s = (double)(ptyterm_now() - at) / 1e9;
    }
    ptyterm_free(t);
    return s > 0 ? (tokens - 1) / s : -1;
}

static void speed(void)
{
    double loss[64], bare[64];
    const int tokens = 2000;
    for (int r = 0; r < reps; r++) {
        const double a = headless(tokens), b = with_screen(tokens);
        const double c = with_screen(tokens), d = headless(tokens);
        bare[r] = (a + d) / 2;
        loss[r] = a > 0 && b > 0 && c > 0 && d > 0 ? 100 * (1 - (b + c) / (a + d)) : 100;
    }
    char how[160];
    double copy[64];
    memcpy(copy, loss, sizeof copy);
    const double low = quantile(copy, (size_t)reps, 0), high = quantile(copy, (size_t)reps, 1);
    snprintf(how, sizeof how,
             "%d tokens, 1 thread, by turns (ABBA), %d rounds, %.1f to %.1f; headless %.0f t/s",
             tokens, reps, low, high, quantile(bare, (size_t)reps, 0.5));
    double m = quantile(loss, (size_t)reps, 0.5);
    say("tokens/s lost with the screen on", m < 0 ? 0 : m, 1, "%", how);
}

/* ---- a paste of 1 MB ---- */

static void paste(void)
{
    double v[64];
    bool whole = true;
    for (int r = 0; r < reps; r++) {
        const char *const argv[] = {fake, NULL};
        struct ptyterm *t = ptyterm_start(argv, 120, 40);
        (void)ptyterm_until(t, "idle", 10000);
        struct buf b = BUF_INIT;
        unsigned sum = 0;
        char want[64];
        while (b.len < 1 << 20) {
            buf_printf(&b, "line %zu of a long paste \xe6\xbc\xa2\xe5\xad\x97\n", b.len);
        }
        for (size_t i = 0; i < b.len; i++) {
            sum = sum * 31 + (unsigned char)b.data[i];
        }
        snprintf(want, sizeof want, "got %zu bytes", b.len);
        const int64_t at = ptyterm_now();
        ptyterm_send(t, "\x1b[200~", 6);
        ptyterm_send(t, b.data, b.len);
        ptyterm_send(t, "\x1b[201~", 6);
        (void)ptyterm_until(t, "[paste 1:", 10000);
        v[r] = (double)(ptyterm_now() - at) / 1e6;
        ptyterm_send(t, "\r", 1);
        char digits[16];
        snprintf(digits, sizeof digits, "sum %08x", sum);
        whole = whole && ptyterm_until(t, want, 10000) && ptyterm_until(t, digits, 1000);
        buf_free(&b);
        ptyterm_free(t);
    }
    say("paste of 1 MB", whole ? quantile(v, (size_t)reps, 0.5) : -1, 200, "ms",
        whole ? "byte for byte, the terminal's side in pieces of 512 bytes" : "bytes are missing");
}

/* ---- a transcript of a million tokens ---- */

static double since(int64_t at)
{
    return (double)(ptyterm_now() - at) / 1e6;
}

static size_t resident(void)
{
    size_t pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        (void)!fscanf(f, "%zu %zu", &all, &pages);
        fclose(f);
    }
    return pages * 4096;
}

static void long_transcript(void)
{
    const struct theme th = {.utf8 = true};
    const size_t turns = 1000;
    struct buf text = BUF_INIT, q = BUF_INIT;
    for (int i = 0; text.len < 4000; i++) { /* a thousand tokens */
        buf_printf(&text, "Paragraph %d says that *nothing* is lost, in `words` of many kinds. ",
                   i);
        buf_adds(&text, i % 6 == 5 ? "\n\n- a point\n- another one\n\n" : "");
        buf_adds(&text, i % 20 == 19 ? "```c\nint x = 0;\nreturn x;\n```\n\n" : "");
    }
    buf_adds(&q, "And then?");
    SCREEN *s = newterm("xterm-256color", fopen("/dev/null", "w"), stdin);
    if (!s) {
        return;
    }
    resizeterm(60, 200);
    const size_t before = resident();
    int64_t at = ptyterm_now();
    struct transcript *t = transcript_create();
    for (size_t i = 0; i < turns; i++) {
        transcript_user(t, "14:02", &q, &q);
        transcript_model(t, "14:02");
        transcript_text(t, text.data, text.len);
        transcript_end(t, R_DIM, "");
    }
    (void)transcript_draw(t, &th, 1, 0, 56, 120);
    const double open = since(at);
    double scroll[400];
    for (int i = 0; i < 400; i++) {
        transcript_scroll(t, i % 40 == 39 ? -5000 : -3);
        at = ptyterm_now();
        (void)transcript_draw(t, &th, 1, 0, 56, 120);
        scroll[i] = since(at);
    }
    struct search *f = search_create("paragraph 7 says", 16);
    at = ptyterm_now();
    transcript_search(t, f);
    (void)transcript_draw(t, &th, 1, 0, 56, 120);
    const double find = since(at);
    transcript_search(t, NULL);
    search_free(f);
    const double bytes = (double)(resident() - before) / ((double)turns * (double)text.len);
    endwin();
    delscreen(s);
    char how[128];
    snprintf(how, sizeof how, "%.1f MB of text in %zu turns, 120 columns",
             (double)turns * (double)text.len / 1e6, turns);
    say("1 M tokens: open", open, 200, "ms", how);
    say("1 M tokens: scroll, p99", quantile(scroll, 400, 0.99), 4, "ms",
        "400 times, in steps of 3 rows and of 5,000");
    say("1 M tokens: search", find, 100, "ms", "a match in every turn");
    say("1 M tokens: memory", bytes, 3, "times", "of its bytes, after all of that");
    transcript_free(t);
    buf_free(&text);
    buf_free(&q);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: screen_budgets QUASAR FAKE_QUASAR [RUNS [PART…]]\n");
        return 2;
    }
    static const struct {
        const char *name;
        void (*fn)(void);
    } parts[] = {{"keys", while_decoding}, {"stream", streaming},    {"idle", idle},
                 {"first", first_frame},   {"token", first_token},   {"speed", speed},
                 {"paste", paste},         {"long", long_transcript}};
    quasar = argv[1];
    fake = argv[2];
    reps = argc > 3 ? atoi(argv[3]) : reps;
    reps = reps < 1 ? 1 : reps > 20 ? 20 : reps;
    printf("| what | measured | limit | how |\n|---|---:|---:|---|\n");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool wanted = argc <= 4;
        for (int k = 4; k < argc; k++) {
            wanted = wanted || strcmp(argv[k], parts[i].name) == 0;
        }
        if (wanted) {
            parts[i].fn();
        }
    }
    return over ? 1 : 0;
}
