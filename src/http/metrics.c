/* Histograms and counters of requests, and their text. */
#include "config.h"
#include "http/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_BOUNDS 20

struct shape {
    const char *name, *help;
    double bounds[MAX_BOUNDS]; /* upper ends; 0 ends the list */
};

static const struct shape shapes[MK_COUNT] = {
    [MK_FIRST] = {"vllm:time_to_first_token_seconds",
                  "From the request to its first token",
                  {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5,
                   10, 20, 40, 80}},
    [MK_BETWEEN] = {"vllm:inter_token_latency_seconds",
                    "From one token to the next",
                    {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                     0.75, 1, 2.5, 5}},
    [MK_EACH] = {"vllm:request_time_per_output_token_seconds",
                 "Decode time of a request by its tokens after the first",
                 {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                  0.75, 1, 2.5, 5}},
    [MK_WHOLE] = {"vllm:e2e_request_latency_seconds",
                  "From the request to its end",
                  {0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,
                   15,  20,  30,  40,  50, 60,  120, 240, 480, 960}},
    [MK_QUEUE] = {"vllm:request_queue_time_seconds",
                  "Waiting for a slot",
                  {0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5,
                   5,     10,   15,  20,  30,  40,  50, 60,  120, 240}},
    [MK_PREFILL] = {"vllm:request_prefill_time_seconds",
                    "Computing the prompt",
                    {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5,
                     5,    10,   15,  20,  30,  40,  50, 60,  120, 240}},
    [MK_DECODE] = {"vllm:request_decode_time_seconds",
                   "Drawing the answer",
                   {0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,
                    15,  20,  30,  40,  50, 60,  120, 240, 480, 960}},
    [MK_INFERENCE] = {"vllm:request_inference_time_seconds",
                      "Prefill and decode",
                      {0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,
                       15,  20,  30,  40,  50, 60,  120, 240, 480, 960}},
    [MK_PROMPT] = {"vllm:request_prompt_tokens",
                   "Tokens of the prompt",
                   {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000,
                    100000, 200000}},
    [MK_OUTPUT] = {"vllm:request_generation_tokens",
                   "Tokens of the answer",
                   {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000,
                    100000, 200000}},
    [MK_MOST] = {"vllm:request_params_max_tokens",
                 "Most tokens that the request allows",
                 {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
                  200000}},
    [MK_N] = {"vllm:request_params_n", "Answers that the request asks for", {1, 2, 5, 10, 20}},
};

static const char *const reasons[] = {"stop", "length", "tool_calls", "abort", "error"};
#define REASONS (sizeof reasons / sizeof *reasons)

static const int statuses[] = {400, 401, 403, 404, 405, 413, 429, 500, 503, 504};
#define STATUSES (sizeof statuses / sizeof *statuses)

struct histogram {
    uint64_t buckets[MAX_BOUNDS + 1]; /* not cumulated */
    uint64_t n;
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram all[MK_COUNT];
    uint64_t finished[REASONS], refused[STATUSES];
};

struct metrics *metrics_create(void)
{
    struct metrics *m = mem_zalloc(sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void metrics_free(struct metrics *m)
{
    if (m) {
        pthread_mutex_destroy(&m->lock);
        free(m);
    }
}

void metrics_add(struct metrics *m, enum metric_kind kind, double value, int n)
{
    if (!(value >= 0) || n < 1) {
        return;
    }
    const double *bounds = shapes[kind].bounds;
    size_t i = 0;
    while (i < MAX_BOUNDS && bounds[i] > 0 && value > bounds[i]) {
        i++;
    }
    pthread_mutex_lock(&m->lock);
    m->all[kind].buckets[i] += (uint64_t)n;
    m->all[kind].n += (uint64_t)n;
    m->all[kind].sum += value * n;
    pthread_mutex_unlock(&m->lock);
}

void metrics_finish(struct metrics *m, const char *reason)
{
    for (size_t i = 0; i < REASONS; i++) {
        if (strcmp(reasons[i], reason) == 0) {
            pthread_mutex_lock(&m->lock);
            m->finished[i]++;
            pthread_mutex_unlock(&m->lock);
        }
    }
}

void metrics_refuse(struct metrics *m, int status)
{
    for (size_t i = 0; i < STATUSES; i++) {
        if (statuses[i] == status) {
            pthread_mutex_lock(&m->lock);
            m->refused[i]++;
            pthread_mutex_unlock(&m->lock);
        }
    }
}

/* ---- text ---- */

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value, as the format wants it. */
static void label(const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') {
            buf_addc(out, '\\');
        }
        buf_adds(out, *s == '\n' ? "\\n" : (char[]){*s, 0});
    }
}

/* One sample; more: further labels, or "". */
static void sample(struct buf *out, const char *name, const char *model, const char *more,
                   double value)
{
    buf_printf(out, "%s{model_name=\"%s\"%s} %.17g\n", name, model, more, value);
}

static void single(struct buf *out, const char *name, const char *type, const char *help,
                   const char *model, double value)
{
    head(out, name, type, help);
    sample(out, name, model, "", value);
}

static void histogram(struct buf *out, const struct shape *s, const struct histogram *h,
                      const char *model)
{
    uint64_t upto = 0;
    char name[96], more[48];
    head(out, s->name, "histogram", s->help);
    snprintf(name, sizeof name, "%s_bucket", s->name);
    for (size_t i = 0; i < MAX_BOUNDS && s->bounds[i] > 0; i++) {
        upto += h->buckets[i];
        snprintf(more, sizeof more, ",le=\"%g\"", s->bounds[i]);
        sample(out, name, model, more, (double)upto);
    }
    sample(out, name, model, ",le=\"+Inf\"", (double)h->n);
    snprintf(name, sizeof name, "%s_sum", s->name);
    sample(out, name, model, "", h->sum);
    snprintf(name, sizeof name, "%s_count", s->name);
    sample(out, name, model, "", (double)h->n);
}

/* Drafts and what became of them, also by their place in the draft. */
static void write_spec(struct buf *out, const struct view_spec *v, const char *model)
{
    static const char *const sources[] = {
        [VS_NONE] = "none", [VS_MTP] = "mtp", [VS_SUFFIX] = "suffix"};
    uint64_t drafts = 0, rounds = 0;
    char more[64];
    for (int s = 0; s < VS_COUNT; s++) {
        rounds += v->rounds[s];
        drafts += s == VS_NONE ? 0 : v->rounds[s];
    }
    single(out, "vllm:spec_decode_num_drafts_total", "counter", "Rounds with drafts", model,
           (double)drafts);
    single(out, "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens drafted", model,
           (double)view_spec_drafted(v));
    single(out, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts that were right",
           model, (double)view_spec_accepted(v));
    head(out, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
         "Drafts that were right, by their place in the draft");
    for (int i = 0; i < VIEW_DRAFTS; i++) {
        uint64_t n = 0;
        for (int s = 0; s < VS_COUNT; s++) {
            n += v->accepted[s][i];
        }
        snprintf(more, sizeof more, ",position=\"%d\"", i);
        sample(out, "vllm:spec_decode_num_accepted_tokens_per_pos_total", model, more, (double)n);
    }
    head(out, "quasar:draft_tokens_per_pos_total", "counter",
         "Tokens drafted, by their place in the draft");
    for (int i = 0; i < VIEW_DRAFTS; i++) {
        uint64_t n = 0;
        for (int s = 0; s < VS_COUNT; s++) {
            n += v->drafted[s][i];
        }
        snprintf(more, sizeof more, ",position=\"%d\"", i);
        sample(out, "quasar:draft_tokens_per_pos_total", model, more, (double)n);
    }
    head(out, "quasar:rounds_total", "counter", "Decode rounds, by what drafted in them");
    for (int s = 0; s < VS_COUNT; s++) {
        snprintf(more, sizeof more, ",source=\"%s\"", sources[s]);
        sample(out, "quasar:rounds_total", model, more, (double)v->rounds[s]);
    }
    single(out, "quasar:tokens_per_round", "gauge", "Tokens of one decode round on average", model,
           rounds > 0 ? view_spec_per_round(v) : 0);
    single(out, "quasar:draft_seconds_total", "counter", "Time of rounds spent on drafts", model,
           v->draft_s);
    single(out, "quasar:verify_seconds_total", "counter", "Time of rounds spent in the model",
           model, v->verify_s);
    single(out, "quasar:host_seconds_total", "counter", "Time of rounds spent between", model,
           v->host_s);
}

static void write_engine(struct buf *out, const struct conv *c, const char *model)
{
    struct view_load l;
    struct view_kv kv;
    conv_view_load(c, &l);
    conv_view_kv(c, &kv);
    uint64_t tokens = 0;
    for (int s = 0; s < VS_COUNT; s++) {
        tokens += l.spec.tokens[s];
    }
    single(out, "vllm:num_requests_running", "gauge", "Answers under way", model, l.running);
    single(out, "vllm:num_requests_waiting", "gauge", "Requests that wait for a slot", model,
           l.waiting);
    single(out, "vllm:num_preemptions_total", "counter", "Answers that gave their room to others",
           model, (double)l.preemptions);
    single(out, "quasar:swapped_bytes_total", "counter", "States that went to memory for that",
           model, (double)l.swapped_bytes);
    single(out, "vllm:kv_cache_usage_perc", "gauge", "Share of the cache's pages in use", model,
           kv.pages > 0 ? (double)(kv.pages - kv.pages_free - kv.pages_kept) / kv.pages : 0);
    head(out, "vllm:cache_config_info", "gauge", "The key/value cache");
    char more[96];
    snprintf(more, sizeof more, ",block_size=\"%d\",num_gpu_blocks=\"%d\"", kv.page_tokens,
             kv.pages);
    sample(out, "vllm:cache_config_info", model, more, 1);
    single(out, "vllm:prompt_tokens_total", "counter", "Tokens of prompts", model,
           (double)l.prompt_tokens);
    single(out, "vllm:generation_tokens_total", "counter", "Tokens of answers", model,
           (double)tokens);
    single(out, "vllm:prefix_cache_queries_total", "counter", "Tokens of prompts", model,
           (double)l.prompt_tokens);
    single(out, "vllm:prefix_cache_hits_total", "counter", "Of these, not computed again", model,
           (double)l.cached_tokens);
    single(out, "quasar:kv_pages_kept", "gauge", "Pages that only kept states have", model,
           kv.pages_kept);
    single(out, "quasar:prefilled_tokens_total", "counter", "Tokens of prompts that were computed",
           model, (double)l.prefilled);
    single(out, "quasar:prefill_seconds_total", "counter", "… in this time", model, l.prefill_s);
    single(out, "quasar:states_restored_total", "counter", "States put back from memory or disk",
           model, (double)l.restored);
    single(out, "quasar:failed_rounds_total", "counter", "Decode rounds that gave nothing", model,
           (double)l.failed);
    single(out, "quasar:requests_preempted", "gauge", "Answers that wait for their room", model,
           l.gave_way);
    single(out, "quasar:preempted_state_bytes", "gauge", "Memory of their states", model,
           (double)l.gave_way_bytes);
    single(out, "quasar:preemptions_repeated_total", "counter",
           "Answers that were read again for it", model, (double)l.repeated);
    write_spec(out, &l.spec, model);
}

static void write_tools(struct buf *out, const struct conv *c, const char *name)
{
    struct view_tools t;
    char more[48];
    conv_view_tools(c, &t);
    head(out, "quasar:tool_calls_landed_total", "counter", "Tool calls that were found");
    sample(out, "quasar:tool_calls_landed_total", name, "", (double)t.landed);
    head(out, "quasar:tool_calls_shape_total", "counter",
         "Tool calls by their shape; 0a and 0b are as taught, others were rescued");
    for (int i = 0; i < t.n; i++) {
        snprintf(more, sizeof more, ",shape=\"%s\"", t.shape[i].mode);
        sample(out, "quasar:tool_calls_shape_total", name, more, (double)t.shape[i].calls);
    }
    head(out, "quasar:tool_calls_missed_total", "counter",
         "Answers with marks of tool calls that were none");
    sample(out, "quasar:tool_calls_missed_total", name, "", (double)t.missed);
}

static void write_keys(struct buf *out, const char *model, const struct metrics_key *keys, size_t n)
{
    static const struct {
        const char *name, *kind, *help;
        size_t at; /* of a uint64_t; 0: of live */
    } rows[] = {
        {"quasar:key_requests_live", "gauge", "Requests of a key that run or wait", 0},
        {"quasar:key_requests_total", "counter", "Requests of a key that were taken",
         offsetof(struct metrics_key, requests)},
        {"quasar:key_requests_refused_total", "counter", "Requests of a key that were one too many",
         offsetof(struct metrics_key, refused)},
        {"quasar:key_prompt_tokens_total", "counter", "Tokens of a key's prompts",
         offsetof(struct metrics_key, prompt)},
        {"quasar:key_generation_tokens_total", "counter", "Tokens of a key's answers",
         offsetof(struct metrics_key, output)},
        {"quasar:key_preemptions_total", "counter", "Times that a key's answers gave way",
         offsetof(struct metrics_key, preemptions)},
    };
    char more[64];
    for (size_t r = 0; n > 0 && r < sizeof rows / sizeof *rows; r++) {
        head(out, rows[r].name, rows[r].kind, rows[r].help);
        for (size_t i = 0; i < n; i++) {
            const char *k = (const char *)&keys[i] + rows[r].at;
            const double v =
                rows[r].at == 0 ? keys[i].live : (double)*(const uint64_t *)(const void *)k;
            snprintf(more, sizeof more, ",key=\"%s\"", keys[i].name);
            sample(out, rows[r].name, model, more, v);
        }
    }
}

void metrics_write(struct metrics *m, const struct conv *c, const struct metrics_key *keys,
                   size_t n, struct buf *out)
{
    struct view_model v;
    struct buf model = BUF_INIT;
    char more[48];
    conv_view_model(c, &v);
    buf_adds(&model, "");
    label(v.name, &model);
    const char *name = model.data ? model.data : "";
    write_engine(out, c, name);
    write_tools(out, c, name);
    write_keys(out, name, keys, n);
    pthread_mutex_lock(&m->lock);
    head(out, "vllm:request_success_total", "counter", "Answers by how they ended");
    for (size_t i = 0; i < REASONS; i++) {
        snprintf(more, sizeof more, ",finished_reason=\"%s\"", reasons[i]);
        sample(out, "vllm:request_success_total", name, more, (double)m->finished[i]);
    }
    head(out, "quasar:requests_refused_total", "counter", "Requests by the error they were told");
    for (size_t i = 0; i < STATUSES; i++) {
        snprintf(more, sizeof more, ",status=\"%d\"", statuses[i]);
        sample(out, "quasar:requests_refused_total", name, more, (double)m->refused[i]);
    }
    for (size_t i = 0; i < MK_COUNT; i++) {
        histogram(out, &shapes[i], &m->all[i], name);
    }
    pthread_mutex_unlock(&m->lock);
    buf_free(&model);
}
