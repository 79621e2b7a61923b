/* Each API has its own words for the same few wishes; all of them are understood everywhere. */
#include "config.h"
#include "http/choice.h"

#include <string.h>

#define BUDGET_MOST (1 << 20)

/* ---- tools ---- */

/* The name of a tool, however deep it is. */
static const char *name_in(const json_t *o)
{
    static const char *const inner[] = {"function", "custom", "tool"};
    const char *name = field_str(o, "name");
    for (size_t i = 0; i < sizeof inner / sizeof *inner && !name[0]; i++) {
        name = field_str(json_object_get(o, inner[i]), "name");
    }
    return name;
}

static bool is_there(const json_t *tools, const char *name)
{
    size_t i = 0;
    const json_t *t = NULL;
    json_array_foreach((json_t *)(uintptr_t)tools, i, t)
    {
        if (strcmp(name_in(t), name) == 0) {
            return true;
        }
    }
    return false;
}

/* One that must be called, one of all, or as the model likes. */
static void take_word(struct ask *a, struct fields *f, const char *word, bool *none)
{
    if (strcmp(word, "none") == 0) {
        *none = true;
    } else if (strcmp(word, "required") == 0 || strcmp(word, "any") == 0) {
        a->q.calls.kind = CK_ANY;
    } else if (strcmp(word, "auto") != 0) {
        fields_wrong(f, "tool_choice",
                     "is \"%.40s\"; it must be auto, none, required, any, or name a tool", word);
    }
}

static void take_allowed(struct ask *a, struct fields *f, const json_t *choice, const json_t *tools)
{
    const json_t *in = json_object_get(choice, "allowed_tools");
    in = json_is_object(in) ? in : choice;
    bool none = false;
    size_t i = 0;
    const json_t *t = NULL;
    const char *mode = field_str(in, "mode");
    take_word(a, f, mode[0] ? mode : "auto", &none);
    json_array_foreach((json_t *)(uintptr_t)json_object_get(in, "tools"), i, t)
    {
        const char *name = json_is_string(t) ? json_string_value(t) : name_in(t);
        if (is_there(tools, name)) {
            buf_printf(&a->allowed, "%s\n", name);
        }
    }
    if (a->allowed.len == 0) {
        fields_wrong(f, "tool_choice", "allows none of the tools of this request");
    }
    a->q.calls.allowed = a->allowed.data;
}

static void take_object(struct ask *a, struct fields *f, const json_t *choice, const json_t *tools,
                        bool *none)
{
    const char *type = field_str(choice, "type"), *name = name_in(choice);
    if (strcmp(type, "allowed_tools") == 0) {
        take_allowed(a, f, choice, tools);
    } else if (name[0]) {
        a->q.calls.kind = CK_NAMED;
        a->q.calls.only = name;
        if (!is_there(tools, name)) {
            fields_wrong(f, "tool_choice", "names \"%.60s\", which is none of the tools", name);
        }
    } else if (type[0] && strcmp(type, "function") != 0 && strcmp(type, "tool") != 0 &&
               strcmp(type, "custom") != 0) {
        take_word(a, f, type, none);
    } else if (json_object_size(choice) > 0) {
        fields_wrong(f, "tool_choice", "names no tool");
    }
    a->q.calls.single =
        a->q.calls.single || json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
}

/* The names of the tools that are strict, also those in a namespace. */
static void take_strict(struct ask *a, const json_t *list, const json_t *tools)
{
    size_t i = 0;
    const json_t *t = NULL;
    json_array_foreach((json_t *)(uintptr_t)list, i, t)
    {
        const char *name = name_in(t);
        const bool strict = json_is_true(json_object_get(t, "strict")) ||
                            json_is_true(json_object_get(json_object_get(t, "function"), "strict"));
        if (strict && name[0] && is_there(tools, name)) {
            buf_printf(&a->strict, "%s\n", name);
        }
        take_strict(a, json_object_get(t, "tools"), tools);
    }
}

void choice_take(struct ask *a, struct fields *f, json_t *tools)
{
    const json_t *choice = json_object_get(f->o, "tool_choice");
    bool none = false, parallel = true;
    fields_bool(f, "parallel_tool_calls", &parallel);
    a->q.calls.single = !parallel;
    if (json_is_string(choice)) {
        take_word(a, f, json_string_value(choice), &none);
    } else if (json_is_object(choice)) {
        take_object(a, f, choice, tools, &none);
    }
    if (a->q.calls.kind != CK_AUTO && json_array_size(tools) == 0) {
        fields_wrong(f, "tool_choice", "wants a tool called, and there are no tools");
    }
    if (!none) {
        take_strict(a, json_object_get(f->o, "tools"), tools);
        a->q.calls.strict = a->strict.len > 0 ? a->strict.data : NULL;
        ask_tools(a, tools);
    }
}

/* ---- thinking ---- */

void choice_effort(struct ask *a, struct fields *f, const char *field, const char *word, bool on,
                   bool checked)
{
    static const char *const levels[] = {"low", "medium", "high", "xhigh"};
    if (!word || !word[0]) {
        return;
    }
    if (strcmp(word, "none") == 0 || strcmp(word, "minimal") == 0) {
        a->q.think = 0;
        return;
    }
    word = strcmp(word, "max") == 0 ? "xhigh" : word;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(word, levels[i]) == 0) {
            a->q.effort = levels[i];
            a->q.think = on ? 1 : a->q.think;
            return;
        }
    }
    if (checked) {
        fields_wrong(f, field, "is \"%.40s\"; it must be none, minimal, low, medium, high or xhigh",
                     word);
    }
}

static void take_switch(struct ask *a, const json_t *v)
{
    if (json_is_boolean(v)) {
        a->q.think = json_is_true(v);
    }
}

static void take_budget(struct ask *a, struct fields *f, const json_t *o, const char *key,
                        const char *name)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        return;
    }
    if (!json_is_number(v) || !(json_number_value(v) >= -1)) {
        fields_wrong(f, name, "must be a number of tokens");
        return;
    }
    const double most = json_number_value(v);
    a->q.think_budget = most >= BUDGET_MOST ? BUDGET_MOST : (int)most;
    if (a->q.think_budget == 0) {
        a->q.think = 0;
    }
}

void choice_thinking(struct ask *a, struct fields *f)
{
    const json_t *kw = fields_object(f, "chat_template_kwargs");
    take_switch(a, json_object_get(f->o, "enable_thinking"));
    take_switch(a, json_object_get(kw, "enable_thinking"));
    take_switch(a, json_object_get(kw, "thinking"));
    const json_t *r = json_object_get(f->o, "reasoning");
    take_switch(a, json_object_get(r, "enabled"));
    take_budget(a, f, r, "max_tokens", "reasoning.max_tokens");
    take_budget(a, f, f->o, "thinking_budget", "thinking_budget");
    take_budget(a, f, f->o, "thinking_token_budget", "thinking_token_budget");
    take_budget(a, f, kw, "thinking_budget", "chat_template_kwargs.thinking_budget");
    const char *type = fields_word(f, "thinking", "type", "thinking.type");
    if (type[0] && strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0 &&
        strcmp(type, "adaptive") != 0 && strcmp(type, "auto") != 0) {
        fields_wrong(f, "thinking.type",
                     "is \"%.40s\"; it must be enabled, disabled, adaptive or auto", type);
    } else if (type[0]) {
        a->q.think = strcmp(type, "disabled") != 0;
    }
    take_budget(a, f, json_object_get(f->o, "thinking"), "budget_tokens", "thinking.budget_tokens");
}
