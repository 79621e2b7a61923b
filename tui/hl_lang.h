#ifndef QUASAR_TUI_HL_LANG_H
#define QUASAR_TUI_HL_LANG_H

#include <stdbool.h>

/* What the lexer of tui/hl.c knows of a language. */
enum hl_kind {
    HL_CODE,   /* comments, texts, key words */
    HL_KEYED,  /* the same, and what stands before the first : or = of a line is a key word */
    HL_MARKUP, /* tags */
    HL_DIFF    /* by the first character of the line */
};

struct hl_lang {
    const char *names; /* blank-separated */
    enum hl_kind kind;
    const char *words;        /* key words, with a blank before and after each; NULL: none */
    bool any_case;            /* in either case */
    const char *comment[2];   /* to the end of the line; NULL: none */
    bool comment_apart;       /* … only behind a blank or at the beginning */
    const char *open, *close; /* of a comment over several lines; NULL: none */
    bool nests;
    const char *quotes; /* characters that begin and end a text */
    const char *raw;    /* those in which a backslash is one */
    const char *lines;  /* those that may go on over several lines */
    bool triple;        /* three of them too, over several lines */
    bool raw_hash;      /* r#"…"# */
    bool lifetimes;     /* 'a without another ' is no text */
    char begin;         /* a word behind it is a key word: #define, @decorator; 0: none */
};

/* By number, from 1. */
extern const struct hl_lang hl_langs[];

#endif
