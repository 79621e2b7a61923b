/* Conversations that are gone on with in another process, on the demo model: the
 * same tokens and, bit for bit, the same log probabilities as without the
 * interruption; and whatever befalls the state's file, the answer of a cold
 * start. QUASAR_LONG: all the counts. */
#include "config.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "conv/conv.h"
#include "sessions/store.h"

#define TURNS  3
#define TOKENS 24
#define TOP    (1 + 20)

static char home[] = "/tmp/quasar-session-XXXXXX";
static char model[4096];

static const char *const questions[] = {
    "How many days are in a week?", "Write a C function that reverses a string.",
    "And which of them is the longest?", "What does the command tar do?"};

/* One turn, as it comes out of a process. */
struct answer {
    int cached, notices, n;
    bool read_again;
    int32_t ids[TOKENS];
    struct conv_logprob probs[TOKENS][TOP];
};

static struct conv_opts opts_of(const char *kv, const char *spec, int64_t seed, int threads)
{
    struct conv_opts o = conv_opts_default();
    o.model = model;
    o.backend = "cpu";
    o.kv = kv;
    o.spec = spec;
    o.temp = seed < 0 ? 0 : 0.8;
    o.seed = seed < 0 ? 1 : seed;
    o.threads = threads;
    o.slots = 1;
    o.ctx = 2048;
    o.max_tokens = TOKENS;
    o.think = 0;
    o.preserve = 1;
    o.logprobs = TOP - 1;
    o.save = true;
    o.save_state = true;
    return o;
}

static int take(const struct chat_result *r, struct answer *a)
{
    a->cached = r->cached_tokens;
    a->n = (int)r->n_ids;
    if (r->n_logprobs != TOP || r->n_ids > TOKENS) {
        return -1;
    }
    for (int i = 0; i < a->n; i++) {
        a->ids[i] = r->ids[i];
        memcpy(a->probs[i], r->logprobs + (size_t)i * TOP, sizeof a->probs[i]);
    }
    return 0;
}

/* Waits for the end of a turn, or of saving. */
static int follow(struct conv *c, struct chat *t, enum conv_event_kind end, struct answer *a,
                  struct err *e)
{
    for (;;) {
        struct conv_event ev;
        if (!conv_wait(c, &ev, 60000)) {
            return err_set(e, QE_INTERNAL, "nothing came in a minute");
        }
        const enum conv_event_kind kind = ev.kind;
        if (kind == CE_FAILED || (kind == CE_END && ev.reason == CE_R_ERROR)) {
            return err_set(e, QE_INTERNAL, "%s", ev.text.data);
        }
        if (kind == CE_NOTICE) {
            a->notices++;
            a->read_again = strstr(ev.text.data, "read again") != NULL;
        }
        conv_event_fini(&ev);
        if (kind == end) {
            return kind == CE_END && take(chat_last(t), a) < 0
                       ? err_set(e, QE_INTERNAL, "%d log probabilities", chat_last(t)->n_logprobs)
                       : 0;
        }
    }
}

/* All turns in one process, or (one >= 0) just one of a stored conversation. */
static int talk(const struct conv_opts *o, const char *name, int one, struct answer *out,
                struct err *e)
{
    struct conv *c = NULL;
    int rc = conv_open(o, &c, e);
    if (rc < 0) {
        return rc;
    }
    struct chat *t = chat_create(c);
    rc = chat_session(t, name, e);
    for (int i = one < 0 ? 0 : one; rc == 0 && i < (one < 0 ? TURNS : one + 1); i++) {
        struct answer *a = one < 0 ? &out[i] : out;
        rc = chat_send(t, questions[i], strlen(questions[i]), e);
        rc = rc < 0 ? rc : follow(c, t, CE_END, a, e);
    }
    if (rc == 0) {
        chat_save(t);
        rc = follow(c, t, CE_SAVED, out, e);
    }
    conv_close(c);
    return rc;
}

/* n answers of work(what, ...), which is done in a process of its own. */
static void elsewhere(int (*work)(const void *, struct answer *, struct err *), const void *what,
                      int n, struct answer *out)
{
    const size_t size = (size_t)n * sizeof *out;
    int p[2];
    assert_int_equal(pipe(p), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct answer *mine = mem_zalloc(size);
        struct err e = ERR_INIT;
        const int rc = work(what, mine, &e);
        if (rc < 0) {
            printf("# %s\n", e.msg);
            fflush(stdout);
        }
        _exit(rc == 0 && io_write_all(p[1], mine, size, "a pipe", NULL) == 0 ? 0 : 1);
    }
    close(p[1]);
    struct buf b = BUF_INIT;
    assert_int_equal(io_read_fd(p[0], "a pipe", size, &b, NULL), 0);
    close(p[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(b.len, size);
    memcpy(out, b.data, size);
    buf_free(&b);
}

struct talked {
    const struct conv_opts *o;
    const char *name;
    int one;
};

static int talk_as(const void *what, struct answer *out, struct err *e)
{
    const struct talked *t = what;
    return talk(t->o, t->name, t->one, out, e);
}

/* talk() in a process of its own. */
static void talk_elsewhere(const struct conv_opts *o, const char *name, int one, struct answer *out)
{
    const struct talked t = {o, name, one};
    elsewhere(talk_as, &t, one < 0 ? TURNS : 1, out);
}

static bool same(const struct answer *a, const struct answer *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0 &&
           memcmp(a->probs, b->probs, (size_t)a->n * sizeof a->probs[0]) == 0;
}

static void go_on(const char *kv, const char *spec, int64_t seed)
{
    static int number;
    char whole[32], parts[32];
    snprintf(whole, sizeof whole, "whole %d", ++number);
    snprintf(parts, sizeof parts, "parts %d", number);
    struct answer *want = mem_zalloc(TURNS * sizeof *want), *got = mem_zalloc(sizeof *got);
    struct conv_opts o = opts_of(kv, spec, seed, 2);
    talk_elsewhere(&o, whole, -1, want);
    assert_true(want[1].cached > 0 && want[2].cached > want[1].cached);
    for (int i = 0; i < TURNS; i++) {
        o.threads = 1 + i % 2;
        memset(got, 0, sizeof *got);
        talk_elsewhere(&o, parts, i, got);
        if (!same(got, &want[i]) || got->cached != want[i].cached || got->notices) {
            fail_msg("kv %s, spec %s, seed %d, turn %d: %d tokens instead of %d, %d reused instead "
                     "of %d, %d notices",
                     kv, spec, (int)seed, i, got->n, want[i].n, got->cached, want[i].cached,
                     got->notices);
        }
    }
    free(want);
    free(got);
}

static void the_same_bits(void **state)
{
    (void)state;
    go_on("fp16", "auto", -1);
    go_on("fp16", "auto", 11);
    go_on("fp16", "off", 11);
    go_on("fp8", "mtp+suffix", 5);
}

static void every_format(void **state)
{
    (void)state;
    const char *const formats[] = {"f32", "k8v4", "k5v3", "k3v3"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        go_on(formats[i], "auto", i % 2 ? 7 : -1);
    }
}

/* ---- random scripts ---- */

static void wipe(void)
{
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -rf %s/quasar", home);
    assert_int_equal(system(cmd), 0);
}

enum { SCRIPT = 8, SCRIPT_TOKENS = 10 };

/* Questions from..to of a path, in one process; out has one answer for each. */
struct leg {
    const struct conv_opts *o;
    char name[32];
    const int *asked;
    int from, to;
};

static int talk_leg(const struct leg *l, struct answer *out, struct err *e)
{
    struct conv *c = NULL;
    int rc = conv_open(l->o, &c, e);
    if (rc < 0) {
        return rc;
    }
    struct chat *t = chat_create(c);
    rc = chat_session(t, l->name, e);
    for (int i = l->from; rc == 0 && i < l->to; i++) {
        char text[120];
        const int q = l->asked[i];
        snprintf(text, sizeof text, "%s (%d)", questions[q % 4], q / 4);
        rc = chat_send(t, text, strlen(text), e);
        rc = rc < 0 ? rc : follow(c, t, CE_END, &out[i - l->from], e);
        if (rc == 0 && (i + 1 == l->to || q % 3 == 0)) { /* a state to go on from */
            chat_save(t);
            rc = follow(c, t, CE_SAVED, &out[i - l->from], e);
        }
    }
    conv_close(c);
    return rc;
}

static int talk_leg_as(const void *what, struct answer *out, struct err *e)
{
    return talk_leg(what, out, e);
}

static void leg_elsewhere(const struct leg *l, struct answer *out)
{
    elsewhere(talk_leg_as, l, l->to - l->from, out);
}

static bool add_turn(void *ctx, const struct catalog_turn *t)
{
    int64_t **at = ctx;
    *(*at)++ = t->id;
    return true;
}

/* A copy of a conversation up to its answer number n (from 0), by its number. */
static void fork_at(char name[32], int n)
{
    char *dir = io_join(home, "quasar");
    struct store *s = NULL;
    struct err e = ERR_INIT;
    int64_t conv = 0, copy = 0, ids[4 * SCRIPT], *at = ids;
    assert_int_equal(store_open(dir, STORE_AUTO, &s, NULL, &e), 0);
    assert_int_equal(catalog_find(store_catalog(s), name, &conv, &e), 0);
    assert_int_equal(catalog_path(store_catalog(s), conv, 0, add_turn, &at, &e), 0);
    assert_true(at - ids > 2 * n + 1);
    assert_int_equal(catalog_fork(store_catalog(s), conv, ids[2 * n + 1], NULL, &copy, &e), 0);
    store_close(s);
    free(dir);
    snprintf(name, 32, "%d", (int)copy);
}

/* Eight questions, each in the same process as the last or in a new one; now and then an
 * earlier answer is gone back to, in a copy, and asked something else. What is said on the
 * way that is left in the end is what one process says that never stopped. */
static void script(const char *kv, int number, int turns)
{
    static struct answer got[SCRIPT], want[SCRIPT];
    unsigned seed = (unsigned)number * 7919 + 1;
    struct conv_opts o = opts_of(kv, "auto", number % 3 ? number : -1, 1);
    int asked[SCRIPT], saved[SCRIPT] = {0}, n = 0, forks = 0, legs = 0;
    struct leg l = {.o = &o, .asked = asked};
    wipe();
    o.max_tokens = SCRIPT_TOKENS;
    o.prefix_dir = NULL;
    snprintf(l.name, sizeof l.name, "script");
    while (n < turns) {
        l.from = n;
        for (n += 1 + rand_r(&seed) % 3; n > turns; n--) {
        }
        for (int i = l.from; i < n; i++) {
            asked[i] = rand_r(&seed) % 400;
            saved[i] = i + 1 == n || asked[i] % 3 == 0;
        }
        l.to = n;
        memset(got + l.from, 0, sizeof *got * (size_t)(n - l.from));
        leg_elsewhere(&l, got + l.from);
        legs++;
        const int back = rand_r(&seed) % (n + 1);
        if (n < turns && forks < 3 && back < n && saved[back] && rand_r(&seed) % 2) {
            fork_at(l.name, back);
            n = back + 1;
            forks++;
        }
    }
    struct leg whole = {.o = &o, .name = "whole", .asked = asked, .from = 0, .to = turns};
    memset(want, 0, sizeof want);
    leg_elsewhere(&whole, want);
    for (int i = 0; i < turns; i++) {
        if (!same(&got[i], &want[i]) || got[i].notices || got[i].cached != want[i].cached) {
            fail_msg(
                "kv %s, script %d (%d processes, %d forks), turn %d: %s answer, %d tokens reused "
                "instead of %d, %d notices",
                kv, number, legs, forks, i, same(&got[i], &want[i]) ? "the same" : "another",
                got[i].cached, want[i].cached, got[i].notices);
        }
    }
}

static void random_scripts(void **state)
{
    (void)state;
    const char *const formats[] = {"fp16", "k3v3", "fp8", "k8v4", "k5v3", "f32"};
    const bool all = getenv("QUASAR_LONG") != NULL;
    for (int f = 0; f < (all ? 6 : 2); f++) {
        for (int i = 0; i < (all ? 20 : 1); i++) {
            script(formats[f], i + 1, all ? SCRIPT : 4);
        }
    }
}

/* ---- damage ---- */

static char *only_state(size_t *count)
{
    char *folder = io_join(home, "quasar/states");
    DIR *d = opendir(folder);
    char *path = NULL;
    *count = 0;
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        if (f->d_name[0] != '.') {
            free(path);
            path = io_join(folder, f->d_name);
            (*count)++;
        }
    }
    if (d) {
        closedir(d);
    }
    free(folder);
    return path;
}

static void put(const char *path, const char *p, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* A file of every kind of bytes: the header and the end byte by byte, the rest at random;
 * flipped, or cut off there. */
static size_t place(int round, size_t size, unsigned *seed)
{
    switch (round % 4) {
    case 0:
        return (size_t)rand_r(seed) % 256;
    case 1:
        return size - 1 - (size_t)rand_r(seed) % 80;
    case 2:
        return 256 + (size_t)rand_r(seed) % 300;
    default:
        return ((size_t)rand_r(seed) << 8 ^ (size_t)rand_r(seed)) % size;
    }
}

static bool count_turn(void *ctx, const struct catalog_turn *t)
{
    (void)t;
    ++*(int *)ctx;
    return true;
}

static void damaged_files(void **state)
{
    (void)state;
    wipe();
    struct conv_opts o = opts_of("fp16", "auto", -1, 1);
    struct answer first = {0}, cold = {0};
    o.save_state = false;
    talk_elsewhere(&o, "talk", 0, &first);
    char *db_path = io_join(home, "quasar/catalog.db");
    struct buf plain = BUF_INIT, db = BUF_INIT, good = BUF_INIT;
    assert_int_equal(io_read_file(db_path, 1 << 24, &plain, NULL), 0);
    o.save_state = true;
    talk_elsewhere(&o, "talk", 1, &cold);
    assert_int_equal(cold.cached, 0);
    assert_int_equal(cold.notices, 1);
    wipe();
    struct answer a = {0};
    talk_elsewhere(&o, "talk", 0, &a);
    assert_true(same(&a, &first));
    size_t count = 0;
    char *path = only_state(&count);
    assert_int_equal(count, 1);
    assert_int_equal(io_read_file(path, 1 << 26, &good, NULL), 0);
    assert_int_equal(io_read_file(db_path, 1 << 24, &db, NULL), 0);
    unsigned seed = 3;
    const int rounds = getenv("QUASAR_LONG") ? 2000 : 24;
    for (int round = 0; round < rounds; round++) {
        wipe();
        char *states = io_join(home, "quasar/states");
        assert_int_equal(io_mkdirs(states, 0700, NULL), 0);
        free(states);
        put(db_path, db.data, db.len);
        const size_t at = place(round, good.len, &seed);
        const bool cut = round % 7 == 6;
        char *bad = mem_alloc(good.len);
        memcpy(bad, good.data, good.len);
        bad[at] = (char)(bad[at] ^ (1 << round % 8));
        put(path, bad, cut ? at : good.len);
        free(bad);
        memset(&a, 0, sizeof a);
        talk_elsewhere(&o, "talk", 1, &a);
        if (!same(&a, &cold) || a.cached != 0 || a.notices != 1 || !a.read_again) {
            fail_msg("byte %zu %s: %d reused, %d notices, %s answer", at, cut ? "cut" : "flipped",
                     a.cached, a.notices, same(&a, &cold) ? "the same" : "another");
        }
        struct store *s = NULL;
        int turns = 0;
        int64_t conv = 0;
        char *dir = io_join(home, "quasar");
        assert_int_equal(store_open(dir, STORE_AUTO, &s, NULL, NULL), 0);
        assert_int_equal(catalog_named(store_catalog(s), "talk", &conv, NULL), 0);
        assert_int_equal(catalog_path(store_catalog(s), conv, 0, count_turn, &turns, NULL), 0);
        assert_int_equal(turns, 4);
        store_close(s);
        free(dir);
    }
    free(path);
    free(db_path);
    buf_free(&plain);
    buf_free(&db);
    buf_free(&good);
}

/* The disk takes no state, or nothing: one line, and the answers are the same. */
static void a_folder_that_is_read_only(void **state)
{
    (void)state;
    wipe();
    struct conv_opts o = opts_of("fp16", "auto", -1, 1);
    struct answer want[TURNS] = {0}, got[TURNS] = {0};
    talk_elsewhere(&o, "talk", -1, want);
    wipe();
    char *states = io_join(home, "quasar/states");
    char *dir = io_join(home, "quasar");
    assert_int_equal(io_mkdirs(dir, 0700, NULL), 0);
    put(states, "x", 1); /* a file where the folder should be */
    talk_elsewhere(&o, "talk", -1, got);
    int notices = 0;
    for (int i = 0; i < TURNS; i++) {
        assert_true(same(&got[i], &want[i]));
        notices += got[i].notices;
    }
    assert_int_equal(notices, 1);
    free(states);
    free(dir);
}

static int prepare(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(model, sizeof model, "%s/models/demo.qsr", src ? src : ".");
    return mkdtemp(home) && setenv("XDG_STATE_HOME", home, 1) == 0 ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -rf %s", home);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(every_format),
        cmocka_unit_test(random_scripts),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(a_folder_that_is_read_only),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
