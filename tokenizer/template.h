#ifndef QUASAR_TOKENIZER_TEMPLATE_H
#define QUASAR_TOKENIZER_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "tokenizer/tokenizer.h"

/* Chat messages to prompt text and token ids: the family's templates in C. */
enum template_kind {
    TPL_DEMO,
    TPL_QWEN35,     /* thinking on by default */
    TPL_QWEN35_OFF, /* the small 3.5 models: off by default */
    TPL_QWEN36,
    TPL_QWEN38
};

/* The renderer for a template file's text (by SHA-256, line endings and a final
 * newline aside). QE_UNSUPPORTED names what to pass as --template instead. */
int template_detect(const char *p, size_t n, enum template_kind *out, struct err *e);
/* "3.5", "3.5-off", "3.6", "3.8", "demo". */
int template_by_name(const char *name, enum template_kind *out, struct err *e);
const char *template_name(enum template_kind k);

struct template_opts {
    enum template_kind kind;
    int think;          /* 1 on, 0 off, -1 the template's default */
    int preserve;       /* keep old thoughts: 1, 0, -1 the template's default */
    const char *effort; /* NULL: default; low, medium, high, xhigh */
    bool generation_prompt;
    bool opens_call; /* … and opens a call instead of a thought */
    bool vision_ids; /* "Picture 1: " before images */
};

/* Where the system prompt with the tools, the last question, and all messages end; 0:
 * nowhere. A later rendering of the same conversation with more messages begins in the
 * same way: up to input as long as no question is added, else up to query. */
struct rendered_ends {
    size_t head, query, input;
};

/* Rendered text and where in it the template itself put control tokens. Only
 * those places may become added tokens. */
struct rendered {
    struct buf text;
    struct rendered_mark {
        size_t off, len;
    } * marks; /* ascending, each exactly one added token's text */
    size_t n_marks;
    bool opens_thought; /* the generation prompt leaves an open <think> */
    struct rendered_ends ends;
};
void rendered_free(struct rendered *r);

/* messages: array of {role, content, reasoning_content?, tool_calls?}, tools:
 * array or NULL. Errors say which message and what is wrong with it. */
int template_render(const json_t *messages, const json_t *tools, const struct template_opts *o,
                    struct rendered *out, struct err *e);

/* Token ids: marks by their added id, what is between two marks as one plain
 * run with added-token matching off. */
int rendered_encode(const struct rendered *r, const struct tokenizer *t, struct tok_ids *out,
                    struct err *e);
/* The same, and the ends of r, which are offsets in its text, as numbers of ids. */
int rendered_encode_ends(const struct rendered *r, const struct tokenizer *t, struct tok_ids *out,
                         struct rendered_ends *ends, struct err *e);

#endif
