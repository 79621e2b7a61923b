/* Recorded requests of agents, turn by turn through the prompt code and the scheduler (on
 * the stand-in engine): on every turn that extends the one before it, all of that one's
 * stable tokens but the last 63 at most are reused. Stable are the whole messages that both prompts
 * have, told by their ids alone. Also what renderings of one
 * conversation have in common. */
#include "config.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "conv/prompt.h"
#include "tests/fake/engine.h"

static struct sched *sched;
static struct prompt prompt;

static int prepare(void **state)
{
    (void)state;
    char path[8192];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "ctx=400000,vocab=20000,model=%s/models/demo.qsr", src ? src : ".");
    struct sched_opts o = {.path = path, .wake_fd = -1};
    struct err e = ERR_INIT;
    if (sched_open(&o, &sched, &e) < 0 || sched_wait(sched, &e) < 0 ||
        prompt_open(&prompt, sched, NULL, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    return 0;
}

static int clean(void **state)
{
    (void)state;
    prompt_close(&prompt);
    sched_close(sched);
    return fake_log.snaps;
}

/* ---- requests to messages ---- */

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static json_t *message(const char *role, json_t *content)
{
    return json_pack("{s:s, s:o}", "role", role, "content", content);
}

/* Text parts of whatever dialect, as text parts. */
static json_t *text_parts(const json_t *content)
{
    json_t *out = json_array();
    size_t i = 0;
    json_t *p = NULL;
    if (json_is_string(content)) {
        json_array_append_new(out, json_pack("{s:s, s:O}", "type", "text", "text", content));
    }
    json_array_foreach(content, i, p)
    {
        if (json_is_string(json_object_get(p, "text"))) {
            json_array_append_new(
                out, json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(p, "text")));
        }
    }
    return out;
}

static json_t *call_of(const char *name, const json_t *arguments)
{
    return json_pack("{s:s, s:{s:s, s:O}}", "type", "function", "function", "name", name,
                     "arguments", arguments);
}

static void anthropic_message(json_t *all, json_t *m)
{
    const char *role = str(m, "role");
    json_t *content = json_object_get(m, "content"), *p = NULL;
    json_t *said = message(role, json_array()), *calls = json_array();
    size_t i = 0;
    if (json_is_string(content)) {
        json_object_set(said, "content", content);
    }
    json_array_foreach(content, i, p)
    {
        const char *type = str(p, "type");
        if (strcmp(type, "text") == 0) {
            json_array_append(json_object_get(said, "content"), p);
        } else if (strcmp(type, "thinking") == 0) {
            json_object_set(said, "reasoning_content", json_object_get(p, "thinking"));
        } else if (strcmp(type, "tool_use") == 0) {
            json_array_append_new(calls, call_of(str(p, "name"), json_object_get(p, "input")));
        } else if (strcmp(type, "tool_result") == 0) {
            json_array_append_new(all, message("tool", text_parts(json_object_get(p, "content"))));
        }
    }
    if (json_array_size(calls) > 0) {
        json_object_set(said, "tool_calls", calls);
    }
    json_decref(calls);
    if (json_is_string(content) || json_array_size(json_object_get(said, "content")) > 0 ||
        json_object_get(said, "tool_calls")) {
        json_array_append_new(all, said);
    } else {
        json_decref(said);
    }
}

static void responses_item(json_t *all, json_t *item)
{
    const char *type = str(item, "type");
    if (strcmp(type, "message") == 0) {
        json_array_append_new(
            all, message(str(item, "role"), text_parts(json_object_get(item, "content"))));
    } else if (strcmp(type, "function_call") == 0 || strcmp(type, "custom_tool_call") == 0) {
        const bool custom = type[0] == 'c';
        json_t *in = json_object_get(item, custom ? "input" : "arguments"), *args = NULL;
        args =
            custom ? json_pack("{s:O}", "input", in) : json_loads(json_string_value(in), 0, NULL);
        json_t *m = message("assistant", json_string(""));
        json_object_set_new(m, "tool_calls", json_pack("[o]", call_of(str(item, "name"), args)));
        json_decref(args);
        json_array_append_new(all, m);
    } else if (strstr(type, "_call_output")) {
        json_array_append_new(all, message("tool", json_incref(json_object_get(item, "output"))));
    }
}

static json_t *messages_of(const json_t *body)
{
    json_t *all = json_array(), *m = NULL;
    json_t *system = json_object_get(body, "system"), *input = json_object_get(body, "input");
    const bool anthropic = system != NULL;
    size_t i = 0;
    if (system) {
        json_array_append_new(all, message("system", json_incref(system)));
    }
    json_array_foreach(json_object_get(body, "messages"), i, m)
    {
        if (anthropic) {
            anthropic_message(all, m);
        } else {
            json_array_append(all, m);
        }
    }
    json_array_foreach(input, i, m)
    {
        responses_item(all, m);
    }
    return all;
}

/* ---- the replay ---- */

struct turn {
    char name[256];
    char scenario[200]; /* folder and scenario */
    int number;
    json_t *root;
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    int d = strcmp(x->scenario, y->scenario);
    return d ? d : x->number - y->number;
}

static size_t read_turns(const char *root, struct turn *t, size_t cap)
{
    size_t n = 0;
    DIR *top = opendir(root);
    struct dirent *folder = NULL, *f = NULL;
    while (top && (folder = readdir(top))) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/%s", root, folder->d_name);
        DIR *d = folder->d_name[0] == '.' ? NULL : opendir(dir);
        while (d && (f = readdir(d)) && n < cap) {
            char path[8192];
            snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
            json_t *v = strstr(f->d_name, ".json") ? json_load_file(path, 0, NULL) : NULL;
            if (!json_is_object(json_object_get(v, "body"))) {
                json_decref(v);
                continue;
            }
            snprintf(t[n].name, sizeof t[n].name, "%.100s/%.100s", folder->d_name, f->d_name);
            snprintf(t[n].scenario, sizeof t[n].scenario, "%.80s/%.80s", folder->d_name,
                     str(v, "scenario"));
            t[n].number = (int)json_integer_value(json_object_get(v, "turn"));
            t[n++].root = v;
        }
        if (d) {
            closedir(d);
        }
    }
    if (top) {
        closedir(top);
    }
    qsort(t, n, sizeof *t, by_turn);
    return n;
}

static struct job_stats run(const struct tok_ids *ids, const struct rendered_ends *ends)
{
    struct job_spec spec = {.prompt = ids->v,
                            .n_prompt = ids->n,
                            .max_tokens = 2,
                            .head_end = (int)ends->head,
                            .query_end = (int)ends->query,
                            .input_end = (int)ends->input,
                            .wake_fd = -1};
    struct job *j = NULL;
    struct err e = ERR_INIT;
    struct job_event ev = {.kind = JE_STARTED};
    if (sched_submit(sched, &spec, &j, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    while (ev.kind != JE_END) {
        if (!job_next(j, &ev)) {
            usleep(50);
        }
    }
    struct job_stats st = job_stats(j);
    job_free(j);
    return st;
}

static size_t common(const struct tok_ids *a, const struct tok_ids *b)
{
    size_t i = 0;
    while (i < a->n && i < b->n && a->v[i] == b->v[i]) {
        i++;
    }
    return i;
}

/* Of n ids those of whole messages: what is behind the last <|im_start|> is no longer one. */
static size_t whole_messages(const struct tok_ids *a, size_t n)
{
    static const char mark[] = "<|im_start|>";
    const int32_t start = tokenizer_added_id(prompt.tok, mark, sizeof mark - 1);
    assert_true(start >= 0);
    while (n > 0 && (n >= a->n || a->v[n] != start)) {
        n--;
    }
    return n;
}

static int render(json_t *messages, json_t *tools, int preserve, struct tok_ids *ids,
                  struct prompt_shape *shape, struct err *e)
{
    struct conv_opts o = conv_opts_default();
    struct settings s = {0};
    o.preserve = preserve;
    settings_from(&s, &o);
    const int rc = prompt_messages(&prompt, messages, tools, &s, ids, shape, e);
    settings_fini(&s);
    return rc;
}

/* One request. before: the turn that came before this one in its scenario, or NULL, and where its
 * parts ended: all of it is still there if the template keeps it, else all up to the question. */
static bool replay(const struct turn *t, int preserve, const struct tok_ids *before,
                   const struct rendered_ends *last, struct tok_ids *ids,
                   struct prompt_shape *shape)
{
    json_t *body = json_object_get(t->root, "body"), *messages = messages_of(body);
    struct err e = ERR_INIT;
    const int rc = render(messages, json_object_get(body, "tools"), preserve, ids, shape, &e);
    json_decref(messages);
    if (rc < 0) {
        assert_non_null(strstr(e.msg, "image")); /* what the prompt code cannot read yet */
        return false;
    }
    const struct job_stats st = run(ids, &shape->ends);
    if (!before) {
        return true;
    }
    const size_t same = common(before, ids);
    const size_t stable = whole_messages(before, same);
    const size_t kept = same >= last->input || preserve == 1 ? last->input : last->query;
    if (stable < kept || stable == 0 || (size_t)st.cached_tokens + 63 < stable) {
        fail_msg("%s: %d of %d tokens reused, the turn before has %zu stable ones (%zu alike; %s "
                 "at %d)",
                 t->name, st.cached_tokens, st.prompt_tokens, stable, same, job_short_name(st.why),
                 st.why_at);
    }
    return true;
}

static void agents_reuse_their_prompts(void **state)
{
    (void)state;
    static struct turn turns[256];
    char root[2048];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(root, sizeof root, "%s/../shared/clients/fixtures", src ? src : ".");
    const size_t n = read_turns(root, turns, 256);
    if (n == 0) {
        skip();
    }
    for (int preserve = -1; preserve <= 1; preserve += 2) {
        /* Nothing of the first pass is reused in the second. */
        assert_int_equal(preserve == 1 ? clean(state) + prepare(state) : 0, 0);
        struct tok_ids last = {0};
        struct prompt_shape shape = {.opens_thought = false};
        int checked = 0;
        bool good = false;
        for (size_t i = 0; i < n; i++) {
            const struct turn *t = &turns[i], *p = i > 0 && good ? &turns[i - 1] : NULL;
            const json_t *expect = json_object_get(t->root, "expect");
            const bool next = p && strcmp(p->scenario, t->scenario) == 0 &&
                              p->number + 1 == t->number &&
                              json_is_true(json_object_get(expect, "prefix_of_previous"));
            const struct rendered_ends ends = shape.ends;
            struct tok_ids ids = {0};
            good = replay(t, preserve, next ? &last : NULL, &ends, &ids, &shape);
            checked += next && good;
            tok_ids_free(&last);
            last = ids;
        }
        tok_ids_free(&last);
        assert_true(checked >= 20);
    }
    for (size_t i = 0; i < n; i++) {
        json_decref(turns[i].root);
    }
}

/* ---- what stays ---- */

static json_t *parse(const char *text)
{
    json_t *v = json_loads(text, 0, NULL);
    assert_non_null(v);
    return v;
}

/* Ends are where renderings of more messages still agree, in every template. */
static void ends_are_stable(void **state)
{
    (void)state;
    static const char *const names[] = {"demo", "3.5", "3.5-off", "3.6", "3.8"};
    json_t *tools = parse("[{\"type\":\"function\",\"function\":{\"name\":\"run\"}}]");
    static const char head[] = "{\"role\":\"system\",\"content\":\"Be brief.\"},"
                               "{\"role\":\"user\",\"content\":\"First?\"}";
    static const char said[] =
        ",{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":\"\","
        "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"run\",\"arguments\":{}}}]}"
        ",{\"role\":\"tool\",\"content\":\"ok\"}";
    static const char then[] = ",{\"role\":\"assistant\",\"content\":\"Done.\"}"
                               ",{\"role\":\"user\",\"content\":\"Second?\"}";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct prompt p;
        struct err e = ERR_INIT;
        assert_int_equal(prompt_open(&p, sched, names[i], &e), 0);
        struct conv_opts o = conv_opts_default();
        struct settings s = {0};
        settings_from(&s, &o);
        struct tok_ids ids[4] = {{0}};
        struct prompt_shape shape[4];
        for (int k = 0; k < 4; k++) {
            char text[2048];
            snprintf(text, sizeof text, "[%s%s%s]", k == 3 ? "" : head, k > 0 && k < 3 ? said : "",
                     k == 2 ? then : "");
            json_t *m = parse(k == 3 ? "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                                       "{\"role\":\"user\",\"content\":\"Other\"}]"
                                     : text);
            assert_int_equal(prompt_messages(&p, m, tools, &s, &ids[k], &shape[k], &e), 0);
            assert_true(shape[k].ends.head > 0 && shape[k].ends.head < shape[k].ends.query);
            assert_true(shape[k].ends.query <= shape[k].ends.input);
            assert_true(shape[k].ends.input < ids[k].n);
            json_decref(m);
        }
        /* a tool's answer comes: all of the input stays */
        assert_true(common(&ids[0], &ids[1]) >= shape[0].ends.input);
        /* a question comes: up to the last one stays */
        assert_true(common(&ids[1], &ids[2]) >= shape[1].ends.query);
        /* another conversation: the head */
        assert_true(common(&ids[0], &ids[3]) >= shape[0].ends.head);
        assert_int_equal(shape[3].ends.head, shape[0].ends.head);
        for (int k = 0; k < 4; k++) {
            tok_ids_free(&ids[k]);
        }
        settings_fini(&s);
        prompt_close(&p);
    }
    json_decref(tools);
}

static void volatile_lines_go(void **state)
{
    (void)state;
    static const char *const same[] = {
        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Be brief.\"}]},"
        "{\"role\":\"user\",\"content\":\"Hi\"}]",
        "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\","
        "\"cache_control\":{\"type\":\"ephemeral\"}}]}]",
        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"x-anthropic-billing-header: cc_version=1.2.3.abc;\"},"
        "{\"type\":\"text\",\"text\":\"Be brief.\"}]},{\"role\":\"user\",\"content\":\"Hi\"}]",
        "[{\"role\":\"system\",\"content\":\"x-anthropic-billing-header: cc_version=1.2.3.def;\"},"
        "{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"}]",
    };
    struct tok_ids first = {0};
    struct prompt_shape shape;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct tok_ids ids = {0};
        json_t *m = parse(same[i]);
        assert_int_equal(render(m, NULL, -1, i == 0 ? &first : &ids, &shape, &e), 0);
        if (i > 0) {
            assert_int_equal(ids.n, first.n);
            assert_memory_equal(ids.v, first.v, first.n * sizeof *first.v);
        }
        json_decref(m);
        tok_ids_free(&ids);
    }
    /* the user may quote it */
    struct tok_ids ids = {0};
    json_t *m = parse("[{\"role\":\"user\",\"content\":\"x-anthropic-billing-header: what?\"}]");
    assert_int_equal(render(m, NULL, -1, &ids, &shape, &e), 0);
    assert_true(ids.n > 10);
    json_decref(m);
    tok_ids_free(&ids);
    tok_ids_free(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_reuse_their_prompts),
        cmocka_unit_test(ends_are_stable),
        cmocka_unit_test(volatile_lines_go),
    };
    return cmocka_run_group_tests_name("traces", tests, prepare, clean);
}
