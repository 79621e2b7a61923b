/* States of prompts on disk, with the real engine and the demo model: what another
 * scheduler finds there answers to the bit as a cold run, in every cache format, also when
 * files are damaged, the disk does not write, or others are at it at the same time. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "conv/disk.h"
#include "sched/sched.h"

#define OUT 3
#define TOP 3
#ifdef SANITIZED
#define PROMPT 150 /* tokens */
#define HEAD   70  /* of all conversations */
#define HITS   2
#define MANY   2
#else
#define PROMPT 500
#define HEAD   335
#define HITS   6
#define MANY   3
#endif

static char model[4096], root[256];
static int notices;
static int32_t base[PROMPT];

static void count(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)line;
    notices += level <= LOG_WARN;
}

static void prompt_of(int32_t *p, int n, int from, int salt)
{
    uint32_t x = 5;
    for (int i = 0; i < n; i++) {
        x = x * 1664525U + 1013904223U + (i >= from ? (uint32_t)salt : 0);
        p[i] = (int32_t)(300 + (x >> 8) % 6000);
    }
}

static int fresh(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR"), *tmp = getenv("TMPDIR");
    snprintf(model, sizeof model, "%s/models/demo.qsr", src ? src : ".");
    snprintf(root, sizeof root, "%s/quasar-disk-XXXXXX", tmp ? tmp : "/tmp");
    notices = 0;
    log_set_sink(count, NULL);
    prompt_of(base, PROMPT, PROMPT, 0);
    return mkdtemp(root) ? 0 : -1;
}

static void each_file(void (*fn)(const char *path))
{
    DIR *d = opendir(root);
    struct dirent *f = NULL;
    while (d && (f = readdir(d))) {
        char path[1024];
        snprintf(path, sizeof path, "%.200s/%.255s", root, f->d_name);
        if (f->d_name[0] != '.') {
            fn(path);
        }
    }
    if (d) {
        closedir(d);
    }
}

static void discard(const char *path)
{
    (void)unlink(path);
}

static int clear(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    each_file(discard);
    return rmdir(root);
}

/* A scheduler and its place on disk; NULL path: without. */
struct place {
    struct disk *disk;
    struct sched *s;
};

static struct place open_place(const char *path, enum engine_kv kv, int slots)
{
    const struct disk_opts d = {.dir = path, .limit = 64 << 20, .least = 64, .gain = 64};
    struct place p = {.disk = path ? disk_open(&d) : NULL};
    struct sched_opts o = {
        .path = model,
        .wake_fd = -1,
        .keep = {.off = !path, .tier = path ? disk_tier(p.disk) : NULL},
        .engine = {.backend = EB_CPU, .ctx = 1024, .slots = slots, .threads = 1, .kv = kv}};
    struct err e = ERR_INIT;
    if (sched_open(&o, &p.s, &e) < 0 || sched_wait(p.s, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    disk_attach(p.disk, p.s);
    return p;
}

static void close_place(struct place *p)
{
    disk_attach(p->disk, NULL);
    sched_close(p->s);
    disk_close(p->disk);
}

struct answer {
    int32_t ids[OUT];
    struct engine_logprob p[OUT * (1 + TOP)];
    struct job_stats st;
};

static struct job *submit(struct sched *s, const int32_t *p, int n, bool store)
{
    struct job_spec spec = {.prompt = p,
                            .n_prompt = (size_t)n,
                            .max_tokens = OUT,
                            .draw = {.top_p = 1},
                            .logprobs = true,
                            .top_logprobs = TOP,
                            .head_end = HEAD - 5,
                            .input_end = n - 10,
                            .store = store,
                            .wake_fd = -1};
    struct job *j = NULL;
    struct err e = ERR_INIT;
    if (sched_submit(s, &spec, &j, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return j;
}

static void answer_of(struct job *j, struct answer *a)
{
    struct job_event ev = {.kind = JE_STARTED};
    int n = 0;
    memset(a, 0, sizeof *a);
    while (ev.kind != JE_END) {
        if (!job_next(j, &ev)) {
            usleep(100);
            continue;
        }
        for (int i = 0; ev.kind == JE_TOKENS && i < ev.n; i++) {
            int m = 0;
            const struct engine_logprob *p = job_logprobs(j, n, &m);
            memcpy(a->p + n * (1 + TOP), p, (size_t)m * sizeof *p);
            a->ids[n++] = ev.ids[i];
        }
    }
    if (ev.reason == JR_ERROR) {
        fail_msg("%s", job_error(j));
    }
    assert_int_equal(n, OUT);
    a->st = job_stats(j);
    job_free(j);
}

static void ask(struct place *p, const int32_t *ids, int n, struct answer *a)
{
    answer_of(submit(p->s, ids, n, true), a);
}

static void same(const struct answer *a, const struct answer *b)
{
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_memory_equal(a->p, b->p, sizeof a->p);
}

static void another_run_goes_on(enum engine_kv kv, enum engine_kv alien)
{
    static int32_t other[PROMPT];
    static struct answer cold, warm;
    const int stable = (PROMPT - 10) / 64 * 64;
    struct place none = open_place(NULL, kv, 1), p = open_place(root, kv, 2);
    ask(&none, base, PROMPT, &cold);
    ask(&p, base, PROMPT, &warm);
    same(&warm, &cold);
    assert_int_equal(warm.st.cached_tokens, 0);
    close_place(&p); /* all is written */
    p = open_place(root, kv, 2);
    ask(&p, base, PROMPT, &warm);
    assert_int_equal(warm.st.reuse, JU_DISK);
    assert_int_equal(warm.st.cached_tokens, stable);
    same(&warm, &cold);
    ask(&p, base, PROMPT, &warm); /* it is in memory now */
    assert_int_equal(warm.st.reuse, JU_MEMORY);
    assert_int_equal(warm.st.cached_tokens, stable);
    same(&warm, &cold);
    /* another conversation with the same head, from disk too */
    prompt_of(other, PROMPT, HEAD, 3);
    ask(&none, other, PROMPT, &cold);
    ask(&p, other, PROMPT, &warm);
    assert_int_equal(warm.st.cached_tokens, HEAD / 64 * 64);
    same(&warm, &cold);
    close_place(&p);
    /* states of one cache format are not another's */
    p = open_place(root, alien, 2);
    ask(&p, base, PROMPT, &warm);
    assert_int_equal(warm.st.cached_tokens, 0);
    close_place(&p);
    close_place(&none);
    assert_int_equal(notices, 0);
}

static void in_f16(void **state)
{
    (void)state;
    another_run_goes_on(EKV_F16, EKV_F8);
}

static void in_k3v3(void **state)
{
    (void)state;
    another_run_goes_on(EKV_K3V3, EKV_K8V4);
}

#ifndef SANITIZED
static void in_f8(void **state)
{
    (void)state;
    another_run_goes_on(EKV_F8, EKV_F32);
}

static void in_k8v4(void **state)
{
    (void)state;
    another_run_goes_on(EKV_K8V4, EKV_K5V3);
}

static void in_k5v3(void **state)
{
    (void)state;
    another_run_goes_on(EKV_K5V3, EKV_K3V3);
}
#endif

/* ---- trouble ---- */

static uint64_t where;

static void hit(const char *path)
{
    struct stat st;
    if (!strstr(path, ".prefix") || stat(path, &st) < 0 || st.st_size == 0) {
        return;
    }
    FILE *f = fopen(path, "r+b");
    const long at = (long)(where % (uint64_t)st.st_size);
    int c = 0;
    if (where % 5 == 4) {
        assert_int_equal(truncate(path, at), 0);
    } else if (f && fseek(f, at, SEEK_SET) == 0 && (c = fgetc(f)) != EOF) {
        fseek(f, at, SEEK_SET);
        fputc(c ^ (1 << where % 8), f);
    }
    fclose(f);
}

static void damaged_files_cost_time_only(void **state)
{
    (void)state;
    static struct answer cold, warm;
    struct place none = open_place(NULL, EKV_F16, 1);
    ask(&none, base, PROMPT, &cold);
    close_place(&none);
    for (int i = 0; i < HITS; i++) {
        struct place p = open_place(root, EKV_F16, 2);
        ask(&p, base, PROMPT, &warm); /* whatever was left there */
        same(&warm, &cold);
        close_place(&p);
        /* the header, the tokens, the state: everywhere */
        where = i < 4 ? (uint64_t)i * 97 : (uint64_t)i * 2654435761U;
        each_file(hit);
    }
    assert_true(notices >= 1 && notices <= HITS); /* each run tells it once */
}

static char longest[1024];
static off_t longest_size;

static void take_longest(const char *path)
{
    struct stat st;
    if (strstr(path, ".prefix") && stat(path, &st) == 0 && st.st_size > longest_size) {
        longest_size = st.st_size;
        snprintf(longest, sizeof longest, "%s", path);
    }
}

/* Its header and tokens are sound, its state is not, which shows only while it is read. */
static void a_shorter_file_takes_the_place(void **state)
{
    (void)state;
    static struct answer cold, warm;
    struct place none = open_place(NULL, EKV_F16, 1), p = open_place(root, EKV_F16, 2);
    ask(&none, base, PROMPT, &cold);
    close_place(&none);
    ask(&p, base, PROMPT, &warm);
    close_place(&p);
    longest_size = 0;
    each_file(take_longest);
    where = (uint64_t)longest_size - 70000;
    where -= where % 5;
    hit(longest);
    p = open_place(root, EKV_F16, 2);
    ask(&p, base, PROMPT, &warm);
    assert_int_equal(warm.st.reuse, JU_DISK);
    assert_int_equal(warm.st.cached_tokens, (HEAD - 5) / 64 * 64);
    same(&warm, &cold);
    assert_int_equal(notices, 1);
    close_place(&p);
#ifndef SANITIZED
    /* none is sound: then it is computed */
    longest_size = 0;
    each_file(take_longest);
    where = 3 * (uint64_t)longest_size / 4;
    where -= where % 5;
    each_file(hit);
    p = open_place(root, EKV_F16, 2);
    ask(&p, base, PROMPT, &warm);
    assert_int_equal(warm.st.cached_tokens, 0);
    same(&warm, &cold);
    close_place(&p);
#endif
}

static void a_disk_that_does_not_write(void **state)
{
    (void)state;
    static int32_t other[PROMPT];
    static struct answer cold, warm;
    char below[300];
    snprintf(below, sizeof below, "%s/file", root);
    FILE *f = fopen(below, "w");
    fclose(f);
    snprintf(below, sizeof below, "%s/file/folder", root);
    struct place none = open_place(NULL, EKV_F16, 1), p = open_place(below, EKV_F16, 2);
    for (int i = 0; i < 2; i++) {
        prompt_of(other, PROMPT, 0, i + 1);
        ask(&none, other, PROMPT, &cold);
        ask(&p, other, PROMPT, &warm);
        same(&warm, &cold);
        ask(&p, other, PROMPT, &warm); /* memory still serves */
        assert_int_equal(warm.st.reuse, JU_MEMORY);
        same(&warm, &cold);
    }
    close_place(&p);
    close_place(&none);
    assert_int_equal(notices, 1);
}

/* Two at once over the same folder, each with several prompts under way. */
static void two_at_once(void **state)
{
    (void)state;
    enum { N = MANY };
    static int32_t ids[N][PROMPT];
    static struct answer cold[N], warm;
    struct place none = open_place(NULL, EKV_F16, 1);
    struct place p[2] = {open_place(root, EKV_F16, 3), open_place(root, EKV_F16, 3)};
    for (int i = 0; i < N; i++) {
        prompt_of(ids[i], PROMPT, i % 2 ? HEAD : 0, i + 1);
        ask(&none, ids[i], PROMPT, &cold[i]);
    }
    for (int round = 0; round < 2; round++) {
        struct job *jobs[2][N];
        for (int i = 0; i < N; i++) {
            jobs[0][i] = submit(p[0].s, ids[i], PROMPT, true);
            jobs[1][N - 1 - i] = submit(p[1].s, ids[N - 1 - i], PROMPT, true);
        }
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < 2; k++) {
                answer_of(jobs[k][i], &warm);
                same(&warm, &cold[i]);
            }
        }
        close_place(&p[round]);
        p[round] = open_place(root, EKV_F16, 3);
    }
    ask(&p[1], ids[N - 1], PROMPT, &warm);
    assert_int_equal(warm.st.reuse, JU_DISK);
    same(&warm, &cold[N - 1]);
    close_place(&p[0]);
    close_place(&p[1]);
    close_place(&none);
    assert_int_equal(notices, 0);
}

/* What nobody stores is not written; a cancelled job lets go of what it waited for. */
static void only_what_is_to_be_kept(void **state)
{
    (void)state;
    static struct answer warm;
    struct place p = open_place(root, EKV_F16, 2);
    answer_of(submit(p.s, base, PROMPT, false), &warm);
    close_place(&p);
    p = open_place(root, EKV_F16, 2);
    ask(&p, base, PROMPT, &warm);
    assert_int_equal(warm.st.cached_tokens, 0);
    close_place(&p);
    p = open_place(root, EKV_F16, 2);
    for (int i = 0; i < 5; i++) {
        struct job *j = submit(p.s, base, PROMPT, true);
        usleep((useconds_t)(i * 300));
        job_free(j); /* cancels it */
    }
    ask(&p, base, PROMPT, &warm);
    assert_true(warm.st.cached_tokens > 0);
    struct job *j = submit(p.s, base, PROMPT - 30, true);
    close_place(&p);
    job_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(in_f16, fresh, clear),
#ifndef SANITIZED
        cmocka_unit_test_setup_teardown(in_f8, fresh, clear),
        cmocka_unit_test_setup_teardown(in_k8v4, fresh, clear),
        cmocka_unit_test_setup_teardown(in_k5v3, fresh, clear),
#endif
        cmocka_unit_test_setup_teardown(in_k3v3, fresh, clear),
        cmocka_unit_test_setup_teardown(damaged_files_cost_time_only, fresh, clear),
        cmocka_unit_test_setup_teardown(a_shorter_file_takes_the_place, fresh, clear),
        cmocka_unit_test_setup_teardown(a_disk_that_does_not_write, fresh, clear),
        cmocka_unit_test_setup_teardown(two_at_once, fresh, clear),
        cmocka_unit_test_setup_teardown(only_what_is_to_be_kept, fresh, clear),
    };
    return cmocka_run_group_tests_name("prompts on disk", tests, NULL, NULL);
}
