/* The sampling parameters of a request, the same for every shape. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>

#include "base/mem.h"
#include "http/api.h"

#define MAX_STOPS 16
#define MAX_BIAS  1024

static void take_bias(struct ask *a, struct fields *f)
{
    json_t *o = fields_object(f, "logit_bias");
    const char *key = NULL;
    json_t *v = NULL;
    if (!o) {
        return;
    }
    if (json_object_size(o) > MAX_BIAS) {
        fields_wrong(f, "logit_bias", "has %zu tokens; at most %d can be given",
                     json_object_size(o), MAX_BIAS);
        return;
    }
    a->bias = mem_array(json_object_size(o) + 1, sizeof *a->bias);
    a->q.bias = a->bias;
    a->q.n_bias = 0;
    json_object_foreach(o, key, v)
    {
        char *end = NULL;
        const long id = strtol(key, &end, 10);
        const double x = json_number_value(v);
        if (end == key || *end || id < 0 || id > INT32_MAX) {
            fields_wrong(f, "logit_bias", "\"%.40s\" is no token's number", key);
            return;
        }
        if (!json_is_number(v) || !(x >= -100 && x <= 100)) {
            fields_wrong(f, "logit_bias", "of token %ld is no number from -100 to 100", id);
            return;
        }
        a->bias[a->q.n_bias++] = (struct conv_bias){(int32_t)id, (float)x};
    }
}

void ask_sampling(struct ask *a, struct fields *f)
{
    fields_str(f, "model", &a->model);
    fields_bool(f, "stream", &a->stream);
    fields_num(f, "temperature", 0, a->api == &api_messages ? 1 : 2, &a->q.temp);
    fields_num(f, "top_p", 0, 1, &a->q.top_p);
    fields_num(f, "min_p", 0, 1, &a->q.min_p);
    fields_limit(f, "top_k", -1, 1 << 20, &a->q.top_k);
    fields_num(f, "presence_penalty", -2, 2, &a->q.presence);
    fields_num(f, "frequency_penalty", -2, 2, &a->q.frequency);
    fields_num(f, "repetition_penalty", 0.01, 100, &a->q.repetition);
    fields_int(f, "seed", INT64_MIN, INT64_MAX, &a->q.seed);
    a->q.seed = a->q.seed < -1 ? a->q.seed & INT64_MAX : a->q.seed;
    fields_limit(f, "max_tokens", 1, 1 << 20, &a->q.max_tokens);
    fields_limit(f, "max_completion_tokens", 1, 1 << 20, &a->q.max_tokens);
    fields_limit(f, "max_output_tokens", 1, 1 << 20, &a->q.max_tokens);
    fields_limit(f, "min_tokens", 0, 1 << 20, &a->q.min_tokens);
    fields_bool(f, "ignore_eos", &a->q.ignore_eos);
    fields_strings(f, a->api == &api_messages ? "stop_sequences" : "stop", MAX_STOPS, &a->stop,
                   &a->q.n_stop);
    a->q.stop = a->stop ? a->stop : a->q.stop;
    take_bias(a, f);
}
