/* What all shapes of requests have in common. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "http/api.h"

int ask_create(const struct api *api, json_t *body, bool counting,
               const struct conv_request *defaults, struct ask **out, const char **field,
               struct err *e)
{
    struct ask *a = mem_zalloc(sizeof *a);
    a->api = api;
    a->body = body;
    a->counting = counting;
    a->q = *defaults;
    a->n = a->per = 1;
    a->model = "";
    a->created = clock_wall();
    *field = NULL;
    int rc = json_is_object(body) ? api->parse(a, field, e)
                                  : err_set(e, QE_FORMAT, "the body is not a JSON object");
    if (rc < 0) {
        ask_free(a);
        return rc;
    }
    *out = a;
    return 0;
}

void ask_free(struct ask *a)
{
    if (!a) {
        return;
    }
    for (size_t i = 0; i < a->n_prompts; i++) {
        free(a->prompts[i].ids);
    }
    free(a->prompts);
    free(a->bias);
    free(a->stop);
    buf_free(&a->messages);
    buf_free(&a->tools);
    buf_free(&a->allowed);
    buf_free(&a->strict);
    buf_free(&a->form);
    json_decref(a->body);
    free(a);
}

static enum view_role role_of(const json_t *m)
{
    static const char *const words[] = {
        [VR_SYSTEM] = "system", [VR_USER] = "user", [VR_MODEL] = "assistant", [VR_TOOL] = "tool"};
    const char *role = json_string_value(json_object_get(m, "role"));
    for (int i = 0; i < VR_COUNT; i++) {
        if (role && strcmp(role, words[i]) == 0) {
            return (enum view_role)i;
        }
    }
    return VR_SYSTEM; /* developer, and what will be refused */
}

void ask_messages(struct ask *a, const json_t *list)
{
    size_t i = 0;
    const json_t *m = NULL;
    json_array_foreach((json_t *)(uintptr_t)list, i, m)
    {
        a->roles[role_of(m)]++;
    }
    json_write_exact(list, &a->messages);
}

void ask_tools(struct ask *a, const json_t *list)
{
    a->n_tools = (int)json_array_size(list);
    if (a->n_tools > 0) {
        json_write_exact(list, &a->tools);
    }
}

struct conv_request ask_request(const struct ask *a, int i)
{
    struct conv_request q = a->q;
    if (a->messages.len > 0) {
        q.messages = a->messages.data;
        q.messages_n = a->messages.len;
        q.tools = a->tools.len > 0 ? a->tools.data : NULL;
        q.tools_n = a->tools.len;
    } else {
        const struct ask_prompt *p = &a->prompts[i / a->per];
        q.text = p->text;
        q.text_n = p->text_n;
        q.ids = p->ids;
        q.n_ids = p->n_ids;
    }
    if (i % a->per > 0 && q.seed >= 0) {
        q.seed = (int64_t)(((uint64_t)q.seed + (uint64_t)(i % a->per)) & INT64_MAX);
    }
    return q;
}

void ask_totals(const struct ask *a, const struct chat_result *const *r, int n, int *input,
                int *cached, int *output)
{
    *input = *cached = *output = 0;
    for (int i = 0; i < n; i++) {
        if (i % a->per == 0) {
            *input += r[i]->prompt_tokens;
            *cached += r[i]->cached_tokens;
        }
        *output += (int)r[i]->n_ids;
    }
}

void ask_error(const struct api *api, int status, const char *why, const char *field,
               struct buf *out)
{
    (api->error ? api : &api_chat)->error(status, why, field, out);
}

const struct conv_logprob *ask_untold(const struct ask *a, struct choice_out *c,
                                      const struct chat_result *r, size_t *n)
{
    const size_t per = (size_t)a->top + 1;
    /* they stay whole while they are told: emptying a buffer writes to its first byte */
    struct buf before = c->telling;
    c->telling = c->logprobs;
    buf_truncate(&before, 0);
    c->logprobs = before;
    const struct conv_logprob *l = (const struct conv_logprob *)(const void *)c->telling.data;
    *n = c->telling.len / (per * sizeof *l);
    if (r && r->n_logprobs > 0) {
        l = r->logprobs + c->told * (size_t)r->n_logprobs;
        *n = r->n_ids - c->told;
    }
    c->told += *n;
    return a->logprobs && *n > 0 ? l : NULL;
}

void choice_free(struct choice_out *c)
{
    buf_free(&c->logprobs);
    buf_free(&c->telling);
    buf_free(&c->text);
    json_decref(c->item);
    json_decref(c->items);
}

static void token_bytes(const struct ask *a, int32_t id, struct buf *out)
{
    if (a->token) {
        a->token(a->token_ctx, id, out);
    }
}

json_t *ask_token(const struct ask *a, int32_t id)
{
    struct buf b = BUF_INIT;
    token_bytes(a, id, &b);
    json_t *s = json_str_lossy(b.data ? b.data : "", b.len);
    buf_free(&b);
    return s;
}

json_t *ask_logprob(const struct ask *a, const struct conv_logprob *l)
{
    struct buf b = BUF_INIT;
    json_t *bytes = json_array();
    token_bytes(a, l->id, &b);
    for (size_t i = 0; i < b.len; i++) {
        json_array_append_new(bytes, json_integer((unsigned char)b.data[i]));
    }
    json_t *o = json_pack("{s:o, s:f, s:o}", "token", json_str_lossy(b.data ? b.data : "", b.len),
                          "logprob", (double)l->logprob, "bytes", bytes);
    buf_free(&b);
    return o;
}

void sse_event(const char *name, json_t *v, struct buf *out)
{
    if (name) {
        buf_printf(out, "event: %s\n", name);
    }
    buf_adds(out, "data: ");
    json_write_exact(v, out);
    buf_adds(out, "\n\n");
    json_decref(v);
}
