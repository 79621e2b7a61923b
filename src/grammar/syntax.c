/* JSON text as expressions. */
#include "config.h"
#include "grammar/syntax.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/number.h"

#define INDENT 32 /* blanks at most, or an eighth as many tabs */

static node quote(struct nodes *x)
{
    return nodes_byte(x, '"');
}

static node one_of(struct nodes *x, const char *chars)
{
    struct byte_set s = {{0}};
    for (; *chars; chars++) {
        byte_add(&s, (unsigned char)*chars);
    }
    return nodes_set(x, &s);
}

/* \n and the like; \uHHHH, where those of a pair come as one. */
static node escapes(struct nodes *x)
{
    const node hex = one_of(x, "0123456789abcdefABCDEF");
    const node two = nodes_rep(x, hex, 2, 2), three = nodes_rep(x, hex, 3, 3);
    const node d = one_of(x, "dD");
    const node usual = nodes_alt(x, nodes_seq(x, one_of(x, "0123456789abcefABCEF"), three),
                                 nodes_seq3(x, d, one_of(x, "01234567"), two));
    const node high = nodes_seq3(x, d, one_of(x, "89abAB"), two);
    const node low = nodes_seq3(x, d, one_of(x, "cdefCDEF"), two);
    const node pair = nodes_seq3(x, high, nodes_str(x, "\\u"), low);
    const node unicode = nodes_seq(x, nodes_byte(x, 'u'), nodes_alt(x, usual, pair));
    return nodes_seq(x, nodes_byte(x, '\\'), nodes_alt(x, one_of(x, "\"\\/bfnrt"), unicode));
}

void syntax_init(struct syntax *s, struct nodes *x)
{
    s->x = x;
    const node indent = nodes_alt(x, nodes_rep(x, nodes_byte(x, ' '), 0, INDENT),
                                  nodes_rep(x, nodes_byte(x, '\t'), 0, INDENT / 8));
    const node line = nodes_seq(x, nodes_byte(x, '\n'), indent);
    s->space = nodes_opt(x, nodes_alt(x, nodes_byte(x, ' '), line));
    s->comma = nodes_seq(x, nodes_byte(x, ','), s->space);
    s->colon = nodes_seq(x, nodes_byte(x, ':'), nodes_opt(x, nodes_byte(x, ' ')));
    struct char_set plain = {0};
    char_set_add(&plain, 0x20, '"' - 1);
    char_set_add(&plain, '"' + 1, '\\' - 1);
    char_set_add(&plain, '\\' + 1, CHAR_MAX_CODE);
    char_set_close(&plain);
    s->character = nodes_alt(x, chars_of(x, &plain, CHARS_RAW), escapes(x));
    nodes_text_is(x, s->character, nodes_range(x, '\\' + 1, 0x7F));
    char_set_free(&plain);
    s->text = nodes_rep(x, s->character, 0, REP_ANY);
    s->string = nodes_seq3(x, quote(x), s->text, quote(x));
    const struct number_bounds any = {.lo = NULL};
    s->number = number_node(x, &any, false);
    s->whole = number_node(x, &any, true);

    const int32_t value = nodes_rule(x);
    s->value = nodes_ref(x, value);
    const node pair = syntax_pair(s, syntax_other_key(s, NULL, 0), s->value);
    const node pairs = nodes_seq(x, pair, nodes_rep(x, nodes_seq(x, s->comma, pair), 0, REP_ANY));
    s->object = nodes_seq3(
        x, nodes_byte(x, '{'), s->space,
        nodes_seq3(x, nodes_opt(x, nodes_seq(x, pairs, s->space)), nodes_byte(x, '}'), NODE_EMPTY));
    const node items =
        nodes_seq(x, s->value, nodes_rep(x, nodes_seq(x, s->comma, s->value), 0, REP_ANY));
    s->array = nodes_seq3(
        x, nodes_byte(x, '['), s->space,
        nodes_seq3(x, nodes_opt(x, nodes_seq(x, items, s->space)), nodes_byte(x, ']'), NODE_EMPTY));
    node any_value = nodes_alt(x, s->object, s->array);
    any_value = nodes_alt(x, any_value, s->string);
    any_value = nodes_alt(x, any_value, s->number);
    any_value = nodes_alt(x, any_value, nodes_str(x, "true"));
    any_value = nodes_alt(x, any_value, nodes_str(x, "false"));
    any_value = nodes_alt(x, any_value, nodes_str(x, "null"));
    nodes_rule_set(x, value, any_value);
}

node syntax_string(struct syntax *s, const char *p, size_t n)
{
    return nodes_seq3(s->x, quote(s->x), chars_text(s->x, p, n, CHARS_JSON), quote(s->x));
}

node syntax_pair(struct syntax *s, node key, node value)
{
    return nodes_seq3(s->x, key, s->colon, value);
}

static node list(struct syntax *s, char open, const node *v, size_t n, char close)
{
    node r = nodes_byte(s->x, close);
    for (size_t i = n; i-- > 0;) {
        r = nodes_seq3(s->x, v[i], i + 1 < n ? s->comma : s->space, r);
    }
    return nodes_seq3(s->x, nodes_byte(s->x, open), s->space, r);
}

node syntax_literal(struct syntax *s, const json_t *v)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : json_object_size(v);
    node *part = mem_array(n + 1, sizeof *part), r = NODE_FAIL;
    size_t k = 0;
    if (json_is_string(v)) {
        r = syntax_string(s, json_string_value(v), json_string_length(v));
    } else if (json_is_array(v)) {
        for (; k < n; k++) {
            part[k] = syntax_literal(s, json_array_get(v, k));
        }
        r = list(s, '[', part, n, ']');
    } else if (json_is_object(v)) {
        const char *key = NULL;
        json_t *member = NULL;
        json_object_foreach((json_t *)(uintptr_t)v, key, member)
        {
            part[k++] =
                syntax_pair(s, syntax_string(s, key, strlen(key)), syntax_literal(s, member));
        }
        r = list(s, '{', part, n, '}');
    } else {
        struct buf b = BUF_INIT;
        json_write_exact(v, &b);
        r = nodes_text(s->x, b.data, b.len);
        buf_free(&b);
    }
    free(part);
    return r;
}

/* ---- all strings but some ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names are written in one way, so that equal ones are equal bytes; none has a zero, which many
 * readers of JSON do not take there. */
static node name_text(struct nodes *x)
{
    return nodes_rep(x, chars_range(x, 1, CHAR_MAX_CODE, CHARS_JSON), 0, REP_ANY);
}

/* What may follow the first `at` bytes, which n sorted keys share, up to the quote. */
static node other(struct syntax *s, const char *const *keys, size_t n, size_t at)
{
    struct nodes *x = s->x;
    struct char_set rest = {0};
    bool whole = false; /* one of the keys ends here */
    node all = NODE_FAIL;
    char_set_add(&rest, 0, 0);
    for (size_t i = 0; i < n;) {
        const size_t len = strlen(keys[i]);
        size_t next = at;
        const int32_t c = chars_next(keys[i], len, &next);
        if (c < 0) {
            whole = true;
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < n && strncmp(keys[end], keys[i], next) == 0) {
            end++;
        }
        char_set_add(&rest, c, c);
        all = nodes_alt(
            x, all,
            nodes_seq(x, chars_range(x, c, c, CHARS_JSON), other(s, keys + i, end - i, next)));
        i = end;
    }
    char_set_close(&rest);
    char_set_invert(&rest);
    all = nodes_alt(x, all, nodes_seq(x, chars_of(x, &rest, CHARS_JSON), name_text(x)));
    char_set_free(&rest);
    return whole ? all : nodes_alt(x, all, NODE_EMPTY);
}

node syntax_other_key(struct syntax *s, const char *const *keys, size_t n)
{
    const char **sorted = mem_array(n + 1, sizeof *sorted);
    if (n > 0) {
        memcpy(sorted, keys, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_text);
    }
    const node rest = n > 0 ? other(s, sorted, n, 0) : name_text(s->x);
    free(sorted);
    return nodes_seq3(s->x, quote(s->x), rest, quote(s->x));
}
