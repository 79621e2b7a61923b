/* The lexer. A state holds what a line leaves open: nothing, a comment and how deep, a text and
 * how it ends, a tag. Everything that is not recognised is code as it stands. */
#include "config.h"
#include "tui/hl.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "tui/hl_lang.h"

/* Of a state: what is open, and its detail (depth, quote, number of #). */
enum open { O_NOTHING, O_COMMENT, O_TEXT, O_TRIPLE, O_RAW, O_TAG, O_COUNT };
#define STATE(what, detail) ((hl_state)(what) | (hl_state)(detail) << 8)
#define WHAT(s)             ((enum open)((s)&0xFF))
#define DETAIL(s)           ((s) >> 8 & 0xFF)
#define DETAIL_MOST         255

struct lexer {
    const struct hl_lang *l;
    const char *p;
    size_t n, at;   /* the line, and where in it */
    size_t from;    /* of the piece that is being collected … */
    enum role role; /* … with this role */
    hl_state open;
    hl_fn fn;
    void *ctx;
};

unsigned hl_language(const char *info, size_t n)
{
    char word[24];
    size_t k = 0;
    size_t i = 0;
    while (i < n && (info[i] == ' ' || info[i] == '{' || info[i] == '.')) {
        i++; /* {.python} */
    }
    while (i + k < n && !strchr(" \t,{}:;=", info[i + k]) && info[i + k] != 0) {
        if (k == sizeof word - 1) {
            return 0;
        }
        word[k] = (char)tolower((unsigned char)info[i + k]);
        k++;
    }
    word[k] = 0;
    for (unsigned lang = 1; k > 0 && lang <= HL_LANGUAGES; lang++) {
        for (const char *s = hl_langs[lang].names; *s; s += strspn(s, " ")) {
            const size_t m = strcspn(s, " ");
            if (m == k && memcmp(s, word, k) == 0) {
                return lang;
            }
            s += m;
        }
    }
    return 0;
}

/* What was collected ends before `end`; from there on it is of another role. */
static void turn(struct lexer *x, size_t end, enum role role)
{
    if (role == x->role) {
        return;
    }
    if (end > x->from) {
        x->fn(x->ctx, x->role, x->p + x->from, end - x->from);
    }
    x->from = end;
    x->role = role;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool at_text(const struct lexer *x, const char *s)
{
    const size_t n = s ? strlen(s) : 0;
    return n > 0 && x->n - x->at >= n && memcmp(x->p + x->at, s, n) == 0;
}

static bool in_set(const char *set, char c)
{
    return set && c && strchr(set, c);
}

static bool key_word(const struct hl_lang *l, const char *p, size_t n)
{
    char word[40];
    if (!l->words || n == 0 || n + 3 > sizeof word) {
        return false;
    }
    word[0] = ' ';
    for (size_t i = 0; i < n; i++) {
        word[i + 1] = l->any_case ? (char)tolower((unsigned char)p[i]) : p[i];
    }
    word[n + 1] = ' ';
    word[n + 2] = 0;
    return strlen(word) == n + 2 && strstr(l->words, word);
}

/* ---- what may be open at the end of the line -------------------------------- */

static void comment(struct lexer *x)
{
    unsigned depth = DETAIL(x->open);
    turn(x, x->at, R_COMMENT);
    while (x->at < x->n) {
        if (at_text(x, x->l->close)) {
            x->at += strlen(x->l->close);
            if (--depth == 0 || !x->l->nests) {
                x->open = 0;
                return;
            }
        } else if (x->l->nests && depth < DETAIL_MOST && at_text(x, x->l->open)) {
            x->at += strlen(x->l->open);
            depth++;
        } else {
            x->at++;
        }
    }
    x->open = STATE(O_COMMENT, depth);
}

static void text(struct lexer *x)
{
    const char quote = (char)DETAIL(x->open);
    const bool raw = in_set(x->l->raw, quote);
    turn(x, x->at, R_STRING);
    while (x->at < x->n) {
        const char c = x->p[x->at++];
        if (c == '\\' && !raw) {
            x->at += x->at < x->n;
        } else if (c == quote) {
            x->open = 0;
            return;
        }
    }
    /* a backslash at the end of the line goes on, where texts do */
    if (!in_set(x->l->lines, quote) && !(x->n > 0 && !raw && x->p[x->n - 1] == '\\')) {
        x->open = 0;
    }
}

static void triple(struct lexer *x)
{
    const char quote = (char)DETAIL(x->open);
    const char end[4] = {quote, quote, quote, 0};
    turn(x, x->at, R_STRING);
    while (x->at < x->n && !at_text(x, end)) {
        x->at += 1 + (x->p[x->at] == '\\' && x->at + 1 < x->n);
    }
    if (x->at < x->n) {
        x->at += 3;
        x->open = 0;
    }
}

/* r##"…"##: as many # as it began with. */
static void raw_hash(struct lexer *x)
{
    const size_t hashes = DETAIL(x->open);
    turn(x, x->at, R_STRING);
    while (x->at < x->n) {
        if (x->p[x->at++] != '"') {
            continue;
        }
        size_t k = 0;
        while (k < hashes && x->at + k < x->n && x->p[x->at + k] == '#') {
            k++;
        }
        if (k == hashes) {
            x->at += k;
            x->open = 0;
            return;
        }
    }
}

/* ---- code ------------------------------------------------------------------- */

/* r"…" and r#"…"# of Rust; false: it is none. */
static bool begins_raw(struct lexer *x)
{
    size_t i = x->at + (x->p[x->at] == 'b');
    size_t hashes = 0;
    if (!x->l->raw_hash || i >= x->n || x->p[i] != 'r') {
        return false;
    }
    for (i++; i < x->n && x->p[i] == '#'; i++) {
        hashes++;
    }
    if (i >= x->n || x->p[i] != '"' || hashes > DETAIL_MOST) {
        return false;
    }
    turn(x, x->at, R_STRING);
    x->at = i + 1;
    x->open = STATE(O_RAW, hashes);
    return true;
}

/* 'a' is a text, 'a is the name of a lifetime. */
static bool is_lifetime(const struct lexer *x)
{
    if (!x->l->lifetimes || x->p[x->at] != '\'' || x->at + 1 >= x->n) {
        return false;
    }
    return x->p[x->at + 1] != '\\' &&
           !memchr(x->p + x->at + 1, '\'', x->n - x->at - 1 < 6 ? x->n - x->at - 1 : 6);
}

static bool begins_comment(const struct lexer *x)
{
    const bool apart = x->at == 0 || isspace((unsigned char)x->p[x->at - 1]);
    for (int i = 0; i < 2; i++) {
        if (at_text(x, x->l->comment[i]) && (apart || !x->l->comment_apart)) {
            return true;
        }
    }
    return false;
}

static void word(struct lexer *x)
{
    const size_t from = x->at;
    while (x->at < x->n && is_word(x->p[x->at])) {
        x->at++;
    }
    turn(x, from, key_word(x->l, x->p + from, x->at - from) ? R_KEYWORD : R_CODE);
}

/* One step of code. */
static void code(struct lexer *x)
{
    const char c = x->p[x->at];
    if (at_text(x, x->l->open)) {
        turn(x, x->at, R_COMMENT);
        x->at += strlen(x->l->open);
        x->open = STATE(O_COMMENT, 1);
    } else if (begins_comment(x)) {
        turn(x, x->at, R_COMMENT);
        x->at = x->n;
    } else if (in_set(x->l->quotes, c) && !is_lifetime(x)) {
        const char three[4] = {c, c, c, 0};
        const bool more = x->l->triple && at_text(x, three);
        turn(x, x->at, R_STRING);
        x->at += more ? 3 : 1;
        x->open = STATE(more ? O_TRIPLE : O_TEXT, (unsigned char)c);
    } else if (x->l->begin && c == x->l->begin && x->at + 1 < x->n) {
        turn(x, x->at, R_KEYWORD);
        x->at++;
        while (x->at < x->n && (x->p[x->at] == ' ' || is_word(x->p[x->at]))) {
            if (x->p[x->at] == ' ' && is_word(x->p[x->at - 1])) {
                break;
            }
            x->at++;
        }
        turn(x, x->at, R_CODE);
    } else if (begins_raw(x)) {
        return;
    } else if (is_word(c)) {
        word(x);
    } else {
        turn(x, x->at, R_CODE);
        x->at++;
    }
}

/* Where the key of a line ends: before its first : or =, or behind the ] of a section; 0: it has
 * none. */
static size_t key_end(const struct lexer *x)
{
    size_t i = 0;
    while (i < x->n && (isspace((unsigned char)x->p[i]) || x->p[i] == '-')) {
        i++;
    }
    const size_t from = i;
    if (i < x->n && x->p[i] == '[') {
        const char *end = memchr(x->p + i, ']', x->n - i);
        return end ? (size_t)(end - x->p) + 1 : 0;
    }
    const char quote = i < x->n && (x->p[i] == '"' || x->p[i] == '\'') ? x->p[i] : 0;
    for (i += quote != 0; i < x->n; i++) {
        const char c = x->p[i];
        if (quote) {
            if (c == quote) {
                size_t k = i + 1;
                while (k < x->n && isspace((unsigned char)x->p[k])) {
                    k++;
                }
                return k < x->n && (x->p[k] == ':' || x->p[k] == '=') ? i + 1 : 0;
            }
            i += c == '\\' && i + 1 < x->n;
        } else if (c == ':' || c == '=') {
            return i > from ? i : 0;
        } else if (!is_word(c) && !strchr("-._ $()%/*+?", c)) {
            return 0;
        }
    }
    return 0;
}

/* ---- markup, differences ------------------------------------------------------ */

/* Inside < … >: names are key words, what is in quotes a text. detail: the quote, or 0. */
static void tag(struct lexer *x)
{
    char quote = (char)DETAIL(x->open);
    turn(x, x->at, quote ? R_STRING : R_KEYWORD);
    while (x->at < x->n) {
        const char c = x->p[x->at];
        if (quote) {
            x->at++;
            if (c == quote) {
                quote = 0;
                turn(x, x->at, R_KEYWORD);
            }
        } else if (c == '"' || c == '\'') {
            turn(x, x->at, R_STRING);
            x->at++;
            quote = c;
        } else {
            x->at++;
            if (c == '>') {
                x->open = 0;
                return;
            }
        }
    }
    x->open = STATE(O_TAG, (unsigned char)quote);
}

static void markup(struct lexer *x)
{
    if (at_text(x, x->l->open)) {
        turn(x, x->at, R_COMMENT);
        x->at += strlen(x->l->open);
        x->open = STATE(O_COMMENT, 1);
        return;
    }
    const bool begins = x->p[x->at] == '<' && x->at + 1 < x->n &&
                        (is_word(x->p[x->at + 1]) || strchr("/!?", x->p[x->at + 1]));
    turn(x, x->at, begins ? R_KEYWORD : R_CODE);
    x->at++;
    x->open = begins ? STATE(O_TAG, 0) : 0;
}

static enum role diff_role(const char *p, size_t n)
{
    const bool head = n >= 3 && (memcmp(p, "+++", 3) == 0 || memcmp(p, "---", 3) == 0 ||
                                 memcmp(p, "dif", 3) == 0 || memcmp(p, "ind", 3) == 0);
    return head                   ? R_COMMENT
           : n > 0 && p[0] == '+' ? R_GOOD
           : n > 0 && p[0] == '-' ? R_BAD
           : n > 0 && p[0] == '@' ? R_KEYWORD
                                  : R_CODE;
}

/* ---- a line ------------------------------------------------------------------- */

static void step(struct lexer *x)
{
    switch (WHAT(x->open)) {
    case O_COMMENT:
        comment(x);
        return;
    case O_TEXT:
        text(x);
        return;
    case O_TRIPLE:
        triple(x);
        return;
    case O_RAW:
        raw_hash(x);
        return;
    case O_TAG:
        tag(x);
        return;
    case O_NOTHING:
    case O_COUNT:
        break;
    }
    if (x->l->kind == HL_MARKUP) {
        markup(x);
    } else {
        code(x);
    }
}

/* A state that this language can be in, whatever was given. */
static hl_state checked(const struct hl_lang *l, hl_state s)
{
    const bool known = WHAT(s) < O_COUNT && (WHAT(s) != O_COMMENT || (l->close && DETAIL(s) > 0)) &&
                       ((WHAT(s) != O_TEXT && WHAT(s) != O_TRIPLE) || DETAIL(s) > 0);
    return known ? s : 0;
}

hl_state hl_line(unsigned language, hl_state from, const char *p, size_t n, hl_fn fn, void *ctx)
{
    const struct hl_lang *l = &hl_langs[language <= HL_LANGUAGES ? language : 0];
    struct lexer x = {.l = l, .p = p, .n = n, .role = R_CODE, .fn = fn, .ctx = ctx};
    if (language == 0 || language > HL_LANGUAGES || l->kind == HL_DIFF) {
        if (n > 0) {
            fn(ctx, l->kind == HL_DIFF && language ? diff_role(p, n) : R_CODE, p, n);
        }
        return 0;
    }
    x.open = checked(l, from);
    if (l->kind == HL_KEYED && WHAT(x.open) == O_NOTHING && n > 0 && !begins_comment(&x)) {
        x.at = key_end(&x);
        turn(&x, 0, x.at > 0 ? R_KEYWORD : R_CODE);
        turn(&x, x.at, R_CODE);
    }
    while (x.at < n) {
        step(&x);
    }
    if (x.from < n) {
        fn(ctx, x.role, p + x.from, n - x.from);
    }
    /* what began at the very end of the line, or what an empty line is in */
    if (WHAT(x.open) == O_TEXT && !in_set(l->lines, (char)DETAIL(x.open)) &&
        !(n > 0 && p[n - 1] == '\\')) {
        x.open = 0;
    }
    return x.open;
}
