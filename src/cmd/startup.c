/* How long a start takes: from the process's first moment to the first token. */
#include "config.h"
#include "cmd/startup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

enum { PROMPT = 64, START_FIELD = 22 /* of /proc/self/stat, in clock ticks since boot */ };

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

static int first_token(struct engine *g, struct err *e)
{
    int32_t ids[PROMPT], id = 0;
    const int32_t last = PROMPT - 1;
    const int out = 0;
    const struct engine_draw greedy = {.top_p = 1};
    int seq = -1;
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = (i * 7919 + 13) % engine_info(g)->vocab_used;
    }
    int rc = engine_seq_open(g, &seq, e);
    if (rc < 0) {
        return rc;
    }
    const struct engine_prefill p = {
        .seq = seq, .tokens = ids, .n = PROMPT, .want = &last, .n_want = 1};
    rc = engine_prefill(g, &p, e);
    rc = rc < 0 ? rc : engine_sample(g, &out, &greedy, 1, &id, e);
    engine_seq_close(g, seq);
    return rc;
}

int startup_measure(struct engine *g, double opened, uint64_t file_bytes, json_t **out,
                    struct err *e)
{
    const double open = startup_age();
    int rc = first_token(g, e);
    if (rc < 0) {
        return rc;
    }
    const double done = startup_age();
    double copy = 0;
    rc = engine_upload_time(g, file_bytes, &copy, e);
    const bool device = rc == 0;
    if (rc < 0 && rc != QE_UNSUPPORTED) {
        return rc;
    }
    const double upload = engine_counters(g).upload_s;
    *out = json_pack("{s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "what", "start",
                     "prompt_tokens", PROMPT, "file_bytes", (json_int_t)file_bytes, "start_ms",
                     1e3 * done, "before_ms", 1e3 * opened, "open_ms", 1e3 * (open - opened),
                     "first_token_ms", 1e3 * (done - open), "upload_ms",
                     device ? json_real(1e3 * upload) : json_null(), "copy_ms",
                     device ? json_real(1e3 * copy) : json_null(), "copy_to_device_gb_s",
                     device ? json_real((double)file_bytes / 1e9 / copy) : json_null(),
                     "times_copy", device ? json_real(done / copy) : json_null());
    return 0;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

void startup_print(const json_t *o)
{
    printf("start    %9.0f ms from the process to the first token: %.0f before, %.0f opening, "
           "%.0f the prompt",
           number(o, "start_ms"), number(o, "before_ms"), number(o, "open_ms"),
           number(o, "first_token_ms"));
    if (json_is_real(json_object_get(o, "copy_ms"))) {
        printf("; upload %.0f ms; copying the file's %.1f GB alone %.0f ms (%.1f GB/s): %.2f times",
               number(o, "upload_ms"), number(o, "file_bytes") / 1e9, number(o, "copy_ms"),
               number(o, "copy_to_device_gb_s"), number(o, "times_copy"));
    }
    printf("\n");
    fflush(stdout);
}
