#ifndef QUASAR_TOOLS_INSIDE_H
#define QUASAR_TOOLS_INSIDE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/toolset.h"

/*
 * The insides of the recogniser: tag.c (one tag), xmlish.c and jsonish.c (calls of the two
 * dialects and what models make of them), parse.c (which of them begins here), markdown.c (what is
 * only shown), recogniser.c (the stream). A reader looks at a window of text from a cursor on and
 * gives a verdict; it never looks before the window.
 */
enum verdict {
    V_MORE, /* what follows decides; not at the end */
    V_NO,
    V_YES,
    V_RESIDUE /* no call, but nothing that anybody should see */
};

struct cursor {
    const struct toolset *tools;
    const char *p;
    size_t n, at;
    bool eof;     /* nothing follows */
    bool cut;     /* … because it was cut off: what is incomplete stays text */
    bool guess;   /* the name may be guessed by the arguments */
    bool wrapped; /* inside <tool_call> */
    bool strict;  /* only the trained shape counts */
};

/* A call that was read; freed by who got it. */
struct call {
    const struct tool *tool; /* NULL: not declared */
    char *name;
    json_t *args;
    const char *mode; /* the shape it had; see recogniser.h */
    bool opened;      /* a wrapper stands before it */
};
void call_free(struct call *c);

/* ---- tag.c ---- */

enum tag_kind {
    TAG_WRAP,   /* tool_call, tool_calls, function_calls, tool_use */
    TAG_FUNC,   /* function, invoke, tool */
    TAG_PARAM,  /* parameter */
    TAG_NAME,   /* name, tool_name, parameter_name */
    TAG_RESULT, /* result, output, tool_response, function_results */
    TAG_VALUE   /* content: only as a closing one */
};

struct tag {
    enum tag_kind kind;
    bool closing;
    bool attribute; /* <function name=…>, not <function=…> */
    bool quoted;    /* a quote on at least one side */
    bool valued;    /* it has a value */
    const char *word;
    const char *value; /* without quotes and blanks */
    size_t value_n, end;
};

/* Reads the tag at c->at, which is not moved. V_MORE: it may become one. */
enum verdict tag_read(const struct cursor *c, struct tag *t);
/* The same, and whether it is of this kind; V_NO for others. */
enum verdict tag_is(const struct cursor *c, enum tag_kind kind, bool closing, struct tag *t);
/* Whether p is the beginning of a wrapper's or a function's tag and long enough to be meant. */
bool tag_is_stub(const char *p, size_t n);

bool is_blank(char c);
void skip_blank(struct cursor *c);
/* V_MORE, or V_NO at the end. */
enum verdict more(const struct cursor *c);
/* Whether the text comes next; steps over it if so. */
enum verdict match(struct cursor *c, const char *text);

/* ---- xmlish.c ---- */

/* A call that begins with a tag of a function, a name or a parameter. out is zero. */
enum verdict xml_call(struct cursor *c, struct call *out);
/* Parameters and what ends them, for a call whose name is known; adds to out->args. */
enum verdict xml_tail(struct cursor *c, struct call *out);

/* ---- jsonish.c ---- */

/* A call that begins with a brace. */
enum verdict json_call(struct cursor *c, struct call *out);
/* What follows a name: , "arguments": {…} */
enum verdict json_tail(struct cursor *c, struct call *out);
/* An object of arguments of a call whose name may be known; adds to out->args. */
enum verdict json_args(struct cursor *c, struct call *out, bool *loose);
/* A declared name with the rest of a call whose beginning is lost: open_file", "arguments": … */
enum verdict json_headless(struct cursor *c, struct call *out);
/* Length of the balanced value at c->at. */
enum verdict json_span(const struct cursor *c, size_t *len);

/* ---- parse.c ---- */

/* Reads what begins at c->at, where text stands at the start of a line or not. V_YES and
 * V_RESIDUE: *used bytes are it. */
enum verdict parse_one(const struct cursor *c, bool line_start, struct call *out, size_t *used);
/* What may follow a call and belongs to nobody: closing tags and braces, with the white space
 * before. V_YES: *used bytes; *wrapper: it closed a wrapper. */
enum verdict parse_closer(const struct cursor *c, size_t *used, bool *wrapper);
/* Whether what begins at c->at looks like a part of a call. */
bool parse_is_marker(const struct cursor *c);
/* Whether it looks like the beginning of one, with a name of its own. */
bool parse_is_head(const struct cursor *c);

/* ---- markdown.c ---- */

/* Where text stands: inside of what is only shown, or not. */
struct markdown {
    char fence; /* the character of the open one; 0: none */
    int fence_n;
    bool fence_line;   /* the line that opens it has not ended */
    bool fence_undone; /* … and turned out to be none */
    int ticks, run;    /* of an open code span; of backticks just now */
    bool straight;     /* between two " */
    bool escaped;
    bool marked;       /* a list shows markers */
    bool blank_before; /* the line before is empty */
    int results;       /* open <result> and the like */
    char line[64];     /* the beginning of the line */
    size_t line_n;     /* of the whole line */
    char tail[24];     /* its end */
    size_t tail_n;
};
void markdown_feed(struct markdown *m, char c);
/* A call or what is left of one stood here. */
void markdown_reset(struct markdown *m);
/* Nothing but white space stands before on this line. */
bool markdown_line_start(const struct markdown *m);
/* Whether a marker that comes next is shown, not meant. rest: from the marker on; V_MORE: what
 * follows decides. */
enum verdict markdown_shows(const struct markdown *m, const char *rest, size_t n, bool eof);
/* Whether the next thing is the first of a list's item. */
bool markdown_in_item(const struct markdown *m);
/* A marker was shown here. */
void markdown_marked(struct markdown *m);

#endif
