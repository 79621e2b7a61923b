#ifndef QUASAR_TOKENIZER_TEMPLATE_INT_H
#define QUASAR_TOKENIZER_TEMPLATE_INT_H

#include "tokenizer/template.h"

/* Shared by the renderers of the template families; not for callers. */

/* Fixed texts the models were trained with. */
extern const char template_tools_head[];  /* "# Tools" up to and with <tools> */
extern const char template_tools_tail[];  /* </tools>, the call format, the reminder */
extern const char template_effort_low[];  /* the sentences of reasoning effort */
extern const char template_effort_high[]; /* xhigh */

/* Appends text of the template itself: control tokens in it become marks. */
void out_literal(struct rendered *r, const char *s);
/* Appends text from outside: never marked. */
void out_text(struct rendered *r, const char *p, size_t n);
/* Appends bytes [from, to) of src with the marks that lie in them. */
void out_range(struct rendered *r, const struct rendered *src, size_t from, size_t to);
/* Appends a JSON value as the templates' tojson filter. */
void out_json(struct rendered *r, const json_t *v);
/* Appends "\n<tools>" block: head, one tool a line, tail. */
void out_tools(struct rendered *r, const json_t *tools);

/* Whether the message's role is this one. */
bool role_is(const json_t *m, const char *role);

/* Narrows [*from, *to) of p by the white space at both ends. */
void span_trim(const char *p, size_t *from, size_t *to);
/* Offset of the first (last) needle in p[from..to), or SIZE_MAX. */
size_t span_find(const char *p, size_t from, size_t to, const char *needle);
size_t span_find_last(const char *p, size_t from, size_t to, const char *needle);

/* The body of one message: its content flattened, white space trimmed. */
struct body {
    struct rendered all;
    size_t from, to;
};
/* Running numbers of pictures and videos. */
struct vision_count {
    int images, videos;
};
/* Reads the content of a message. count: numbers the pictures ("Picture 1: ");
 * NULL for none. Zero initialised out, to be freed in any case. */
enum {
    BODY_SYSTEM = 1, /* pictures are refused */
    BODY_LENIENT = 2 /* a part may be a bare string, or of a kind that is passed over */
};
int body_read(const json_t *m, unsigned how, struct vision_count *count, struct body *out,
              struct err *e);
void body_free(struct body *b);
bool body_empty(const struct body *b);

/* Appends the message's tool calls, one after the other; after_text: with an
 * empty line before the first. Arguments may be an object or its JSON text. */
int render_calls(const json_t *m, enum template_kind kind, bool after_text, struct rendered *r,
                 struct err *e);

int render_qwen(const json_t *messages, const json_t *tools, const struct template_opts *o,
                struct rendered *r, struct err *e);
int render_demo(const json_t *messages, const json_t *tools, const struct template_opts *o,
                struct rendered *r, struct err *e);

#endif
