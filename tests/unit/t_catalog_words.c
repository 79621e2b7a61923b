/* Words that are looked for while they are typed: what they find, in which order and how much of
 * it, that nothing typed is an operator, and where a turn that was found can be read. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "catalog_help.h"
#include "sessions/catalog.h"

struct hits {
    struct buf all;
    int n, stop_after;
};

/* "conv:turn:role:[around]+more " with [ ] for the marks. */
static bool see_place(void *ctx, const struct catalog_hit *h)
{
    struct hits *s = ctx;
    buf_printf(&s->all, "%d:%d:%s:", (int)h->conv, (int)h->turn, cat_roles[h->role]);
    for (const char *p = h->around; *p;) {
        if (strncmp(p, CATALOG_FOUND_ON, 3) == 0 || strncmp(p, CATALOG_FOUND_OFF, 3) == 0) {
            buf_addc(&s->all, strncmp(p, CATALOG_FOUND_ON, 3) == 0 ? '[' : ']');
            p += 3;
        } else {
            buf_addc(&s->all, *p++);
        }
    }
    buf_printf(&s->all, "+%d ", h->more);
    s->n++;
    return s->n != s->stop_after;
}

static void finds(struct catalog *c, const char *words, size_t n, int most, int each, bool cut,
                  const char *want)
{
    struct hits s = {.all = BUF_INIT};
    struct err e = ERR_INIT;
    bool was_cut = !cut;
    buf_adds(&s.all, "");
    assert_int_equal(catalog_hits(c, words, n, most, each, NULL, see_place, &s, &was_cut, &e), 0);
    assert_string_equal(s.all.data ? s.all.data : "", want);
    assert_int_equal(was_cut, cut);
    buf_free(&s.all);
}

static void typed(struct catalog *c, const char *words, const char *want)
{
    finds(c, words, strlen(words), 10, 3, false, want);
}

static void words_as_they_are_typed(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q = add(c, a, 0, CAT_USER, "Where does the lexer drop columns?");
    add(c, a, q, CAT_ASSISTANT,
        "In the Lexer's loop: \xC3\x9C"
        "ber-long lines AND tabs.");
    add(c, b, 0, CAT_USER, "lexicon");
    typed(c, "lexer",
          "1:2:assistant:In the [Lexer]'s loop: \xC3\x9C"
          "ber-long lines AND tabs.+0 "
          "1:1:user:Where does the [lexer] drop columns?+0 ");
    /* the last word may go on, one with a blank behind it not; conversations stay together */
    typed(c, "lex",
          "2:3:user:[lexicon]+0 "
          "1:2:assistant:In the [Lexer]'s loop: \xC3\x9C"
          "ber-long lines AND tabs.+0 "
          "1:1:user:Where does the [lexer] drop columns?+0 ");
    typed(c, "lex ", "");
    typed(c, "uber LOOP",
          "1:2:assistant:In the Lexer's [loop]: [\xC3\x9C"
          "ber]-long lines AND"
          " tabs.+0 ");
    typed(c, "tabs lexer",
          "1:2:assistant:In the [Lexer]'s loop: \xC3\x9C"
          "ber-long lines AND "
          "[tabs].+0 ");
    typed(c, "columns loop", "");
    /* of a single letter nothing, before it is a word */
    typed(c, "l", "");
    typed(c, "lexicon l", "2:3:user:[lexicon]+0 ");
    typed(c, "", "");
    catalog_close(c);
}

static void no_word_is_an_operator(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL);
    add(c, a, 0, CAT_USER, "salt AND pepper near words");
    static const struct {
        const char *words;
        size_t n;
        bool found;
    } t[] = {
        {"\"", 1, false},
        {"\"salt", 5, true},
        {"salt\" OR \"zzz", 13, false},
        {"AND", 3, true},
        {"salt AND", 8, true},
        {"salt NOT pepper", 15, false},
        {"*", 1, false},
        {"s*lt", 4, false},
        {"sal*", 4, false}, /* "sal" and nothing that goes on */
        {"salt*", 5, true},
        {"-salt", 5, true},
        {"^salt", 5, true},
        {"text:salt", 9, false},
        {"NEAR(salt pepper)", 17, true},
        {"(salt", 5, true},
        {"{a b}:salt", 10, false},
        {"salt + pepper", 13, true},
        {"salt\0pepper", 11, true},
        {"salt\0zzz", 8, false},
        {"\0\0\0", 3, false},
        {"salt\x01\x7f", 6, true},
        {"\xFF\xFE", 2, false},
        {"salt \xF0\x9F", 7, true}, /* half a character is no word */
        {"\xE2\x80\xAE salt", 8, true},
        {"'; DROP TABLE turns; --", 23, false},
        {"\\", 1, false},
        {"%", 1, false},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct hits s = {.all = BUF_INIT};
        struct err e = ERR_INIT;
        bool cut = true;
        if (catalog_hits(c, t[i].words, t[i].n, 9, 3, NULL, see_place, &s, &cut, &e) != 0 || cut) {
            fail_msg("%zu: %s", i, e.msg);
        }
        if ((s.n > 0) != t[i].found) {
            fail_msg("%zu, \"%s\": %d hits", i, t[i].words, s.n);
        }
        buf_free(&s.all);
    }
    /* a line of many words is cut off, not refused */
    struct buf many = BUF_INIT;
    for (int i = 0; i < 5000; i++) {
        buf_adds(&many, "salt ");
    }
    finds(c, many.data, many.len, 9, 3, false, "1:1:user:[salt] AND pepper near words+0 ");
    buf_free(&many);
    catalog_close(c);
}

static bool at_once(void *ctx)
{
    (void)ctx;
    return true;
}

static void only_so_much(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    for (int k = 0; k < 3; k++) {
        const int64_t a = begin(c, NULL);
        for (int i = 0; i < 4; i++) {
            add(c, a, 0, CAT_USER, "same word");
        }
    }
    finds(c, "word", 4, 10, 2, false,
          "3:12:user:same [word]+2 3:11:user:same [word]+2 2:8:user:same [word]+2 "
          "2:7:user:same [word]+2 1:4:user:same [word]+2 1:3:user:same [word]+2 ");
    finds(c, "word", 4, 3, 2, true,
          "3:12:user:same [word]+2 3:11:user:same [word]+2 2:8:user:same [word]+0 ");
    finds(c, "word", 4, 0, 2, true, "");
    /* the caller ends it; it is ended */
    struct hits s = {.all = BUF_INIT, .stop_after = 1};
    bool cut = false;
    assert_int_equal(catalog_hits(c, "word", 4, 9, 9, NULL, see_place, &s, &cut, NULL), 0);
    assert_int_equal(s.n, 1);
    buf_free(&s.all);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_hits(c, "word", 4, 9, 9, at_once, see_place, &s, &cut, NULL), 0);
    assert_int_equal(s.n, 0);
    assert_true(cut);
    buf_free(&s.all);
    /* around the words of a long text there are only some others */
    struct buf text = BUF_INIT;
    for (int i = 0; i < 3000; i++) {
        buf_printf(&text, "w%d ", i);
    }
    const int64_t a = begin(c, NULL);
    add(c, a, 0, CAT_ASSISTANT, text.data);
    buf_free(&text);
    assert_int_equal(catalog_hits(c, "w2000", 5, 9, 9, NULL, see_place, &s, &cut, NULL), 0);
    assert_int_equal(s.n, 1);
    assert_non_null(strstr(s.all.data, "[w2000]"));
    assert_true(s.all.len < 400);
    buf_free(&s.all);
    catalog_close(c);
}

static void leads(struct catalog *c, int64_t conv, int64_t turn, int64_t at, int64_t want,
                  int want_before)
{
    int64_t tip = -7;
    int before = -7;
    struct err e = ERR_INIT;
    assert_int_equal(catalog_leads_to(c, conv, turn, at, &tip, &before, &e), 0);
    assert_int_equal(tip, want);
    assert_int_equal(before, want_before);
}

static void where_a_turn_can_be_read(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL), other = begin(c, NULL);
    const int64_t q1 = add(c, a, 0, CAT_USER, "one"), a1 = add(c, a, q1, CAT_ASSISTANT, "a1");
    const int64_t q2 = add(c, a, a1, CAT_USER, "two"), a2 = add(c, a, q2, CAT_ASSISTANT, "a2");
    const int64_t q3 = add(c, a, a1, CAT_USER, "three"), a3 = add(c, a, q3, CAT_ASSISTANT, "a3");
    const int64_t q4 = add(c, a, a3, CAT_USER, "no answer");
    const int64_t x = add(c, other, 0, CAT_USER, "elsewhere");
    assert_int_equal(catalog_set_leaf(c, a, a2, NULL), 0);
    leads(c, a, q1, 0, 0, 0);
    leads(c, a, a1, 0, 0, 1);
    leads(c, a, a2, 0, 0, 3);
    leads(c, a, q3, 0, a3, 2);
    leads(c, a, a3, 0, a3, 3);
    leads(c, a, q4, 0, q4, 4);  /* a question that nothing follows */
    leads(c, a, a1, a3, a3, 1); /* both branches have it */
    leads(c, a, q2, a3, a2, 2);
    leads(c, a, q3, a3, a3, 2);
    int64_t tip = 0;
    int before = 0;
    struct err e = ERR_INIT;
    assert_int_equal(catalog_leads_to(c, a, x, 0, &tip, &before, &e), QE_NOTFOUND);
    assert_int_equal(catalog_leads_to(c, 99, q1, 0, &tip, &before, &e), QE_NOTFOUND);
    catalog_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_as_they_are_typed),
        cmocka_unit_test(no_word_is_an_operator),
        cmocka_unit_test(only_so_much),
        cmocka_unit_test(where_a_turn_can_be_read),
    };
    return cmocka_run_group_tests(tests, catalog_prepare, catalog_clean);
}
