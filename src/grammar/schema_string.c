/* Strings: any, of some length, of a pattern, or of a format that is a pattern. */
#include "config.h"
#include "grammar/schema.h"

#include <string.h>

#include "grammar/regex.h"

#define DAY   "(?:0[1-9]|1\\d|2[0-8])"
#define MONTH "(?:0[1-9]|1[0-2])"
#define LEAP  "(?:[12]\\d(?:0[48]|[2468][048]|[13579][26])|(?:12|16|20|24|28)00)"
#define DATE                                                                                       \
    "(?:[12]\\d{3}-(?:" MONTH "-" DAY "|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|" LEAP \
    "-02-29)"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  BYTE "(?:\\." BYTE "){3}"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define HEX4  "[0-9a-fA-F]{1,4}"
#define H(n)  "(?::" HEX4 "){1," #n "}"
#define G(n)  "(?:" HEX4 ":){1," #n "}"
#define URI   "[a-zA-Z][a-zA-Z0-9+.-]{0,31}://[a-zA-Z0-9._~-]{1,253}(?::\\d{1,5})?"
#define PATH                                                                                       \
    "(?:/[a-zA-Z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?"                   \
    "(?:#[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(?:\\d{1,6}W|(?:\\d{1,6}Y(?:\\d{1,6}M(?:\\d{1,6}D)?)?|\\d{1,6}M(?:\\d{1,6}D)?|"
                 "\\d{1,6}D)(?:T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|"
                 "\\d{1,6}S))?|T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|"
                 "\\d{1,6}S))$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email",
     "^[a-zA-Z0-9_+-]{1,32}(?:\\.[a-zA-Z0-9_+-]{1,16}){0,2}@" LABEL "(?:\\." LABEL "){1,4}$"},
    {"hostname", "^" LABEL "(?:\\." LABEL "){0,3}$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^(?:(?:" HEX4 ":){7}" HEX4 "|" G(7) ":|" G(6) ":" HEX4 "|" G(5) H(2) "|" G(4)
                 H(3) "|" G(3) H(4) "|" G(2) H(5) "|" HEX4 ":" H(6) "|:" H(7) "|::)$"},
    {"uri", "^" URI PATH "$"},
};

static const char *format_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(name, formats[i].name) == 0) {
            return formats[i].pattern;
        }
    }
    return NULL;
}

/* A repeated character of one byte has as many of them as it has bytes. False: it is another
 * text, whose length is not known. */
static bool with_length(struct nodes *x, node *text, int32_t least, int32_t most)
{
    const struct node_rec r = *nodes_at(x, *text);
    if (r.kind != NK_REP || nodes_at(x, r.a)->kind != NK_BYTES) {
        return false;
    }
    *text = nodes_rep(x, r.a, r.lo > least ? r.lo : least, r.hi < most ? r.hi : most);
    return true;
}

node schema_string(struct schema *c, const json_t *v)
{
    struct nodes *x = c->s.x;
    const node quote = nodes_byte(x, '"');
    const json_t *pattern = json_object_get(v, "pattern");
    const char *known = format_of(json_string_value(json_object_get(v, "format")));
    const int32_t least = schema_bound(c, v, "minLength", 0);
    const int32_t most = schema_bound(c, v, "maxLength", REP_ANY);
    const char *re = json_is_string(pattern) ? json_string_value(pattern) : known;
    if (pattern && !json_is_string(pattern)) {
        return schema_wrong(c, QE_FORMAT, "a pattern is no string");
    }
    if (re) {
        const struct regex_opts ro = {.form = CHARS_JSON, .any = c->s.text};
        node text = NODE_FAIL;
        struct err e = ERR_INIT;
        const int rc = regex_compile(x, re, strlen(re), &ro, &text, &e);
        if (rc == 0) {
            if (pattern && known) {
                schema_left_out(c, "format");
            }
            if ((least > 0 || most != REP_ANY) && !with_length(x, &text, least, most)) {
                schema_left_out(c, least > 0 ? "minLength" : "maxLength");
            }
            return nodes_seq3(x, quote, text, quote);
        }
        if (rc == QE_FORMAT) {
            return schema_wrong(c, rc, e.msg);
        }
        schema_left_out(c, "pattern");
    }
    if (least > most) {
        return NODE_FAIL;
    }
    return nodes_seq3(x, quote, nodes_rep(x, c->s.character, least, most), quote);
}
