/* tui/keys and tui/keymap: names of keys, bindings that take the place of others, and what is
 * said of those that cannot be. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tui/keys.h"

static void parses_as(const char *name, const char *want)
{
    struct key k;
    char out[KEYS_NAME] = "";
    if (keys_parse(name, strlen(name), &k)) {
        keys_name(&k, out);
    }
    assert_string_equal(out, want);
}

static void names_of_keys(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"^F", "^F"},
        {"C-f", "^F"},
        {"ctrl-F", "^F"},
        {"Alt-x", "Alt-x"},
        {"M-x", "Alt-x"},
        {"meta-X", "Alt-X"},
        {"esc", "Esc"},
        {"Return", "Enter"},
        {"pagedown", "PgDn"},
        {"f1", "F1"},
        {"F12", "F12"},
        {"S-Tab", "Shift-Tab"},
        {"space", "Space"},
        {"C-Space", "^Space"},
        {"Comma", "Comma"},
        {"?", "?"},
        {"^I", "Tab"},
        {"C-m", "Enter"},
        {"^[", "Esc"},
        {"^H", "Backspace"},
        {"M-C-Up", "^Alt-Up"},
        {"^_", "^_"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"^", "^"},
        {"-", "-"},
        {"", ""},
        {"F13", ""},
        {"F0", ""},
        {"Shift-a", ""},
        {"^\xc3\xa9", ""},
        {"xx", ""},
        {"^1", ""},
        {"\x01", ""},
        {"\xff", ""},
        {"Alt-", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        parses_as(rows[i][0], rows[i][1]);
    }
    /* every key of the table is spelled as the parser spells it */
    size_t n = 0;
    const struct key_action *t = keys_table(&n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < KEYS_MOST && t[i].keys[j]; j++) {
            const char *blank = strchr(t[i].keys[j], ' ');
            if (blank) {
                parses_as(blank + 1, blank + 1);
            } else {
                parses_as(t[i].keys[j], t[i].keys[j]);
            }
        }
    }
}

/* What key does in a context, by the name of the action. */
static const char *does(const struct keymap *m, enum key_ctx ctx, const char *key)
{
    struct key k, prefix = {.type = K_NONE};
    bool is_prefix = false;
    const char *blank = strchr(key, ' ');
    if (blank) {
        assert_true(keys_parse(key, (size_t)(blank - key), &prefix));
        key = blank + 1;
    }
    assert_true(keys_parse(key, strlen(key), &k));
    const enum action act = keymap_lookup(m, ctx, &prefix, &k, &is_prefix);
    size_t n = 0;
    const struct key_action *t = keys_table(&n);
    for (size_t i = 0; act != ACT_NONE && i < n; i++) {
        if (t[i].act == act) {
            return t[i].name ? t[i].name : "-";
        }
    }
    return is_prefix ? "prefix" : "none";
}

/* Lines "what = keys", and what is complained of. */
static struct keymap *bound(const char *const *lines, struct buf *out)
{
    struct keymap *m = keymap_create();
    int number = 0;
    for (; *lines; lines += 2) {
        char where[16];
        snprintf(where, sizeof where, "f:%d", ++number);
        keymap_bind(m, lines[0], lines[1], where, out);
    }
    keymap_settle(m, out);
    buf_addc(out, 0);
    return m;
}
#define BOUND(out, ...) bound((const char *const[]){__VA_ARGS__, NULL}, out)

static void defaults_are_whole(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    struct keymap *m = BOUND(&b, NULL);
    assert_string_equal(b.data, "");
    assert_string_equal(does(m, CTX_COMPOSER, "^S"), "find");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "/"), "find");
    assert_string_equal(does(m, CTX_COMPOSER, "/"), "none");
    assert_string_equal(does(m, CTX_COMPOSER, "^X"), "prefix");
    assert_string_equal(does(m, CTX_COMPOSER, "^X ^E"), "editor");
    assert_string_equal(does(m, CTX_COMPOSER, "^A"), "-");
    assert_string_equal(keymap_key(m, ACT_HELP, CTX_BOTH), "F1");
    /* no key of the built-in table has two meanings */
    size_t n = 0;
    const struct key_action *t = keymap_rows(m, &n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            for (size_t k = 0; k < KEYS_MOST && t[i].keys[k]; k++) {
                for (size_t l = 0; l < KEYS_MOST && t[j].keys[l]; l++) {
                    assert_false((t[i].ctx & t[j].ctx) && strcmp(t[i].keys[k], t[j].keys[l]) == 0);
                }
            }
        }
    }
    keymap_free(m);
    buf_free(&b);
}

static void rebound(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    struct keymap *m =
        BOUND(&b, "find", "^T, C-x f", "transcript.fold", "o", "export", "F6", "history", "none");
    assert_string_equal(b.data, "");
    assert_string_equal(does(m, CTX_COMPOSER, "^T"), "find");
    assert_string_equal(does(m, CTX_COMPOSER, "^X f"), "find");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "^T"), "find");
    assert_string_equal(does(m, CTX_COMPOSER, "^S"), "none"); /* its own keys are gone … */
    assert_string_equal(does(m, CTX_TRANSCRIPT, "/"), "none");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "o"), "fold");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "z"), "none");
    assert_string_equal(does(m, CTX_COMPOSER, "F6"), "export"); /* one that has no key otherwise */
    assert_string_equal(does(m, CTX_COMPOSER, "^R"), "none");
    keymap_free(m);
    buf_truncate(&b, 0);
    /* in one context only: the other keeps what it has */
    m = BOUND(&b, "transcript.page-down", "Space", "help.page-down", "n", "composer.find", "^F");
    assert_string_equal(b.data, "");
    assert_string_equal(does(m, CTX_COMPOSER, "PgDn"), "page-down");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "PgDn"), "none");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "Space"), "page-down");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "^S"), "find");
    assert_string_equal(does(m, CTX_COMPOSER, "^F"), "find");
    assert_string_equal(does(m, CTX_HELP, "n"), "page-down");
    keymap_free(m);
    buf_free(&b);
}

static void clashes(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    /* a built-in key of another action is taken, and said, unless that one is bound too */
    struct keymap *m = BOUND(&b, "history", "^S");
    assert_string_equal(b.data, "f:1: ^S is history, no more find\n");
    assert_string_equal(does(m, CTX_COMPOSER, "^S"), "history");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "^S"), "find");
    keymap_free(m);
    buf_truncate(&b, 0);
    m = BOUND(&b, "history", "^S", "find", "^R");
    assert_string_equal(b.data, "");
    assert_string_equal(does(m, CTX_COMPOSER, "^S"), "history");
    assert_string_equal(does(m, CTX_COMPOSER, "^R"), "find");
    keymap_free(m);
    buf_truncate(&b, 0);
    m = BOUND(&b, "history", "^T", "find", "^T");
    assert_string_equal(b.data, "f:2: ^T is find, no more history\n");
    assert_string_equal(does(m, CTX_COMPOSER, "^T"), "find");
    keymap_free(m);
    buf_truncate(&b, 0);
    m = BOUND(&b, "history", "^X");
    assert_non_null(strstr(b.data, "f:1: ^X is history, so ^X ^E (editor) cannot be typed\n"));
    assert_string_equal(does(m, CTX_COMPOSER, "^X"), "history");
    keymap_free(m);
    buf_truncate(&b, 0);
    /* a key of the line editor */
    m = BOUND(&b, "history", "^A");
    assert_string_equal(b.data, "f:1: ^A is history, no more start, end of the line\n");
    keymap_free(m);
    buf_free(&b);
}

static void refused(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"fnd", "^F", "f:1: there is no action \"fnd\" (quasar --keys names them)\n"},
        {"find-old", "^F",
         "f:1: there is no action \"find-old\"; did you mean find-older (quasar --keys names "
         "them)\n"},
        {"nowhere.find", "^F",
         "f:1: \"nowhere.find\" begins with none of composer, transcript, help, stats, log, "
         "listener, sessions, queue, search, list\n"},
        {"find", "^FF", "f:1: \"^FF\" is no key\n"},
        {"find", "", "f:1: there is no key; none takes all of them away\n"},
        {"find", " , ^F", "f:1: \"\" is no key\n"},
        {"find", "^X ^Y ^Z", "f:1: \"^X ^Y ^Z\" is more than two keys\n"},
        {"find", "f", "f:1: \"f\" is a character that one types in the composer\n"},
        {"sessions.back", "q", "f:1: \"q\" is a character that one types there\n"},
        {"queue.drop", "^X d", "f:1: \"^X d\" are two keys, which lists do not know\n"},
        {"find", "F1,F2,F3,F4,F5,F6,F7", "f:1: \"F7\" is one key too many (6 at most)\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b = BUF_INIT;
        struct keymap *m = BOUND(&b, rows[i][0], rows[i][1]);
        assert_string_equal(b.data, rows[i][2]);
        assert_string_equal(does(m, CTX_COMPOSER, "^S"), "find"); /* nothing was changed */
        keymap_free(m);
        buf_free(&b);
    }
}

static void shown(void **state)
{
    (void)state;
    struct buf b = BUF_INIT, help = BUF_INIT;
    struct keymap *m = BOUND(&b, "find", "F7");
    keymap_help(m, CTX_BOTH, &help);
    assert_non_null(strstr(help.data, "F7  "));
    assert_null(strstr(help.data, "^S"));
    assert_non_null(strstr(help.data, "  /find [TEXT]"));
    assert_string_equal(keymap_key(m, ACT_FIND, CTX_COMPOSER), "F7");
    assert_string_equal(keymap_key(m, ACT_QUIT, CTX_BOTH), "");
    keymap_free(m);
    buf_free(&help);
    buf_free(&b);
}

/* Lists have keys of their own, which a line without their name does not touch. */
static void lists(void **state)
{
    (void)state;
    struct buf b = BUF_INIT, help = BUF_INIT;
    struct keymap *m =
        BOUND(&b, "previous", "p", "queue.drop", "x", "sessions.choose", "^Y", "pin-it", "F8");
    assert_string_equal(b.data ? b.data : "", "");
    assert_string_equal(does(m, CTX_TRANSCRIPT, "p"), "previous");
    assert_string_equal(does(m, CTX_SESSIONS, "Up"), "previous");
    assert_string_equal(does(m, CTX_LIST, "Up"), "previous");
    assert_string_equal(does(m, CTX_QUEUE, "x"), "drop");
    assert_string_equal(does(m, CTX_QUEUE, "d"), "none");
    assert_string_equal(does(m, CTX_SESSIONS, "^Y"), "choose");
    assert_string_equal(does(m, CTX_SESSIONS, "Enter"), "none");
    assert_string_equal(does(m, CTX_LIST, "Enter"), "choose");
    assert_string_equal(does(m, CTX_SESSIONS, "F8"), "pin-it");
    keymap_help(m, CTX_SESSIONS, &help);
    assert_non_null(strstr(help.data, "  ^Y "));
    assert_non_null(strstr(help.data, "  F8 "));
    assert_non_null(strstr(help.data, "In all lists\n"));
    assert_null(strstr(help.data, "do not send it"));
    keymap_free(m);
    buf_free(&help);
    buf_free(&b);
}

static void hints(void **state)
{
    (void)state;
    static const struct key_hint two[] = {{ACT_PREV_BLOCK, ACT_NEXT_BLOCK, "move"},
                                          {ACT_CHOOSE, ACT_NONE, "takes"}};
    struct buf b = BUF_INIT;
    char s[KEY_HINT];
    struct keymap *m = BOUND(&b, "list.next", "none", "sessions", "none", "find", "none");
    keymap_hints(m, two, 2, CTX_LIST, s, sizeof s);
    assert_string_equal(s, "Up move  Enter takes");
    keymap_hints(m, two, 2, CTX_QUEUE, s, sizeof s);
    assert_string_equal(s, "Up Down move  Enter takes");
    keymap_hint(m, &two[1], CTX_COMPOSER, s);
    assert_string_equal(s, "");
    assert_string_equal(keymap_way(m, ACT_SESSIONS, CTX_COMPOSER), "/sessions");
    assert_string_equal(keymap_way(m, ACT_HISTORY, CTX_COMPOSER), "^R");
    assert_string_equal(keymap_key(m, ACT_BOTTOM, CTX_TRANSCRIPT), "G");
    assert_string_equal(keymap_key(m, ACT_BOTTOM, CTX_COMPOSER), "^End");
    keymap_free(m);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_keys), cmocka_unit_test(defaults_are_whole),
        cmocka_unit_test(rebound),       cmocka_unit_test(clashes),
        cmocka_unit_test(refused),       cmocka_unit_test(shown),
        cmocka_unit_test(lists),         cmocka_unit_test(hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
