/* How long a start takes: from the process's first moment to the first token. */
#include "config.h"
#include "cmd/startup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <omp.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fetch.h"
#include "base/io.h"
#include "base/mem.h"

enum { PROMPT = 64, START_FIELD = 22 /* of /proc/self/stat, in clock ticks since boot */ };
enum { PIECE = 4 << 20, SPARE = 12 };

double startup_age(void)
{
    struct buf b = BUF_INIT;
    struct timespec now;
    double age = 0;
    if (io_read_file("/proc/self/stat", 1 << 16, &b, NULL) == 0 &&
        clock_gettime(CLOCK_BOOTTIME, &now) == 0) {
        const char *p = strrchr(b.data, ')'); /* the second field may hold anything */
        for (int field = 2; p && field < START_FIELD; field++) {
            p = strchr(p + 1, ' ');
        }
        if (p) {
            const double ticks = (double)strtoull(p, NULL, 10);
            age = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec -
                  ticks / (double)sysconf(_SC_CLK_TCK);
        }
    }
    buf_free(&b);
    return age > 0 ? age : 0;
}

/* phases: NULL, or where the parts of it go. */
static int first_token(struct engine *g, struct phases *phases, struct err *e)
{
    int32_t ids[PROMPT], id = 0;
    const int32_t last = PROMPT - 1;
    const int out = 0;
    const struct engine_draw greedy = {.top_p = 1};
    struct phases unused = {.n = 0};
    int seq = -1;
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = (i * 7919 + 13) % engine_info(g)->vocab_used;
    }
    phases = phases ? phases : &unused;
    int64_t now = clock_now(clock_real());
    int rc = engine_seq_open(g, &seq, e);
    if (rc < 0) {
        return rc;
    }
    const struct engine_prefill p = {
        .seq = seq, .tokens = ids, .n = PROMPT, .want = &last, .n_want = 1};
    rc = engine_prefill(g, &p, e);
    now = phases_lap(phases, "prompt", now);
    rc = rc < 0 ? rc : engine_sample(g, &out, &greedy, 1, &id, e);
    phases_lap(phases, "token", now);
    engine_seq_close(g, seq);
    return rc;
}

/* Seconds of the same with everything warm. */
static int warm_token(struct engine *g, double *seconds, struct err *e)
{
    int rc = first_token(g, NULL, e);
    const int64_t from = clock_now(clock_real());
    rc = rc < 0 ? rc : first_token(g, NULL, e);
    *seconds = clock_seconds(clock_now(clock_real()) - from);
    return rc;
}

double startup_reading(const struct io_map *file, int threads)
{
    const size_t n = file ? (file->size + PIECE - 1) / PIECE : 0;
    threads = threads > 0 ? threads : omp_get_num_procs() - 1;
    struct fetch_job *jobs = mem_array(n + 1, sizeof *jobs);
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * PIECE, left = file->size - at;
        jobs[i].parts = 1;
        jobs[i].part[0].from = file->data + at;
        jobs[i].part[0].n = left < PIECE ? left : PIECE;
    }
    struct fetch_plan plan = {
        .file = file, .jobs = jobs, .n = n, .size = PIECE, .threads = threads > 1 ? threads : 1};
    plan.buffers = plan.threads + SPARE;
    struct fetch *f = NULL;
    const int64_t from = clock_now(clock_real());
    double seconds = 0;
    if (n > 0 && fetch_start(&plan, &f, NULL) == 0) {
        size_t job = 0;
        int buffer = 0;
        while (fetch_take(f, true, &job, &buffer) > 0) {
            fetch_give(f, buffer);
        }
        seconds = fetch_failed(f) ? 0 : clock_seconds(clock_now(clock_real()) - from);
        fetch_free(f);
    }
    free(jobs);
    return seconds > 0 ? (double)file->size / 1e9 / seconds : 0;
}

static json_t *phases_json(const struct phases *p)
{
    json_t *a = json_array();
    for (int i = 0; i < p->n; i++) {
        json_array_append_new(a, json_pack("{s:s, s:f, s:b}", "name", p->v[i].name, "ms",
                                           1e3 * p->v[i].seconds, "beside", p->v[i].beside));
    }
    return a;
}

static json_t *real_or_null(bool there, double v)
{
    return there ? json_real(v) : json_null();
}

int startup_measure(const struct startup *s, json_t **out, struct err *e)
{
    struct engine *g = s->g;
    const double open = startup_age(), gb = (double)s->file_bytes / 1e9;
    struct phases p = {.n = 0};
    phases_add(&p, "process", s->began, false);
    phases_append(&p, s->before);
    phases_append(&p, engine_phases(g));
    int rc = first_token(g, &p, e);
    if (rc < 0) {
        return rc;
    }
    const double done = startup_age();
    double copy = 0, warm = 0;
    rc = warm_token(g, &warm, e);
    if (rc < 0) {
        return rc;
    }
    rc = engine_upload_time(g, s->file_bytes, &copy, e);
    const bool device = rc == 0;
    if (rc < 0 && rc != QE_UNSUPPORTED) {
        return rc;
    }
    const double upload = engine_counters(g).upload_s, files = startup_reading(s->file, s->threads);
    *out = json_pack(
        "{s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "what",
        "start", "prompt_tokens", PROMPT, "file_bytes", (json_int_t)s->file_bytes, "start_ms",
        1e3 * done, "before_ms", 1e3 * s->opened, "open_ms", 1e3 * (open - s->opened),
        "first_token_ms", 1e3 * (done - open), "warm_token_ms", 1e3 * warm, "phases",
        phases_json(&p), "file_gb_s", real_or_null(files > 0, files), "upload_ms",
        real_or_null(device, 1e3 * upload), "upload_gb_s", real_or_null(device, gb / upload),
        "copy_ms", real_or_null(device, 1e3 * copy), "copy_to_device_gb_s",
        real_or_null(device, gb / copy), "times_copy", real_or_null(device, done / copy));
    return 0;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void print_phases(const json_t *phases, bool beside)
{
    size_t i = 0;
    const json_t *p = NULL;
    const char *before = beside ? "  beside that:" : "  of that, ms:";
    json_array_foreach(phases, i, p)
    {
        if (json_is_true(json_object_get(p, "beside")) == beside) {
            printf("%s %s %.1f", before, json_string_value(json_object_get(p, "name")),
                   number(p, "ms"));
            before = ",";
        }
    }
    printf(*before == ',' ? "\n" : "");
}

void startup_print(const json_t *o)
{
    printf("start    %9.0f ms from the process to the first token: %.0f before, %.0f opening, "
           "%.0f the prompt (%.1f once warm)",
           number(o, "start_ms"), number(o, "before_ms"), number(o, "open_ms"),
           number(o, "first_token_ms"), number(o, "warm_token_ms"));
    if (json_is_real(json_object_get(o, "copy_ms"))) {
        printf("; upload %.0f ms (%.1f GB/s); copying the file's %.1f GB alone %.0f ms (%.1f "
               "GB/s): %.2f times",
               number(o, "upload_ms"), number(o, "upload_gb_s"), number(o, "file_bytes") / 1e9,
               number(o, "copy_ms"), number(o, "copy_to_device_gb_s"), number(o, "times_copy"));
    }
    printf("; reading the file alone %.1f GB/s\n", number(o, "file_gb_s"));
    print_phases(json_object_get(o, "phases"), false);
    print_phases(json_object_get(o, "phases"), true);
    fflush(stdout);
}
