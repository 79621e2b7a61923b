/* sessions/catalog: conversations as trees: branches, copies, names, unfinished ends,
 * saved states. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sessions/catalog.h"
#include "tests/unit/catalog_help.h"

static void branches(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q1 = add(c, a, 0, CAT_USER, "one"), r1 = add(c, a, q1, CAT_ASSISTANT, "two");
    const int64_t q2 = add(c, a, r1, CAT_USER, "three"), r2 = add(c, a, q2, CAT_ASSISTANT, "four");
    const int64_t q3 = add(c, a, r1, CAT_USER, "five"), r3 = add(c, a, q3, CAT_ASSISTANT, "six");
    const int64_t other = add(c, b, 0, CAT_USER, "elsewhere");
    path_is(c, a, 0, ""); /* no leaf yet */
    assert_int_equal(catalog_set_leaf(c, a, r3, &e), 0);
    path_is(c, a, 0, "1:one 2:two 5:five 6:six ");
    path_is(c, a, r2, "1:one 2:two 3:three 4:four ");
    path_is(c, a, q1, "1:one ");
    path_is(c, a, other, ""); /* another conversation's */
    assert_int_equal(catalog_set_leaf(c, a, other, &e), QE_NOTFOUND);
    assert_int_equal(catalog_set_leaf(c, 99, r3, &e), QE_NOTFOUND);
    /* a copy of a branch goes its own way */
    int64_t f = 0;
    assert_int_equal(catalog_fork(c, a, r2, "branch two", &f, &e), 0);
    path_is(c, f, 0, "8:one 9:two 10:three 11:four ");
    add(c, f, 11, CAT_USER, "only here");
    path_is(c, a, 0, "1:one 2:two 5:five 6:six ");
    conv_is(c, f, "3 branch two named leaf 11 dir /home/me tags -\n");
    assert_int_equal(catalog_fork(c, a, other, NULL, &f, &e), QE_NOTFOUND);
    assert_int_equal(catalog_fork(c, 99, 0, NULL, &f, &e), QE_NOTFOUND);
    assert_int_equal(catalog_fork(c, a, 0, NULL, &f, &e), 0);
    conv_is(c, f, "4 one (2) leaf 16 dir /home/me tags -\n");
    struct seen s = {0};
    assert_int_equal(catalog_list(c, 10, see_conv, &s, NULL), 0);
    assert_int_equal(s.n, 4); /* what failed left nothing */
    buf_free(&s.all);
    /* names, pins, tags */
    assert_int_equal(catalog_rename(c, a, "The plan", &e), 0);
    assert_int_equal(catalog_pin(c, a, true, &e), 0);
    assert_int_equal(catalog_tag(c, a, "work", true, &e), 0);
    assert_int_equal(catalog_tag(c, a, "work", true, &e), 0);
    assert_int_equal(catalog_tag(c, a, "c", true, &e), 0);
    conv_is(c, a, "1 The plan named pinned leaf 6 dir /home/me tags c, work\n");
    assert_int_equal(catalog_tag(c, a, "work", false, &e), 0);
    assert_int_equal(catalog_pin(c, a, false, &e), 0);
    conv_is(c, a, "1 The plan named leaf 6 dir /home/me tags c\n");
    assert_int_equal(catalog_rename(c, 99, "x", &e), QE_NOTFOUND);
    /* a name is given once; a copy's is told from the other's */
    assert_int_equal(catalog_rename(c, b, "The plan", &e), QE_USAGE);
    assert_string_equal(e.msg, "conversation 1 has the name \"The plan\" already: give another");
    assert_int_equal(catalog_fork(c, b, 0, "The plan", &f, &e), QE_USAGE);
    assert_int_equal(catalog_rename(c, a, "The plan", &e), 0);
    for (int i = 2; i < 5; i++) {
        char want[32];
        int64_t by_name = 0;
        assert_int_equal(catalog_fork(c, i == 4 ? f : a, 0, NULL, &f, &e), 0);
        snprintf(want, sizeof want, "The plan (%d)", i);
        assert_int_equal(catalog_named(c, want, &by_name, &e), 0);
        assert_int_equal(by_name, f);
    }
    assert_int_equal(catalog_pin(c, 99, true, &e), QE_NOTFOUND);
    assert_int_equal(catalog_tag(c, 99, "x", true, &e), QE_NOTFOUND);
    assert_int_equal(catalog_tag(c, a, "x", false, &e), QE_NOTFOUND);
    assert_string_equal(e.msg, "conversation 1 has no tag \"x\"");
    assert_int_equal(catalog_retarget(c, 99, "m", NULL, &e), QE_NOTFOUND);
    assert_int_equal(catalog_retarget(c, a, "m", "be brief", &e), 0);
    add(c, a, r3, CAT_USER, "a title is kept");
    conv_is(c, a, "1 The plan named leaf 6 dir /home/me tags c\n");
    /* removing takes what hangs on it */
    assert_int_equal(catalog_remove(c, a, &e), 0);
    path_is(c, a, 0, "");
    assert_int_equal(catalog_verify(c, NULL), 0);
    catalog_close(c);
}

static bool see_branch(void *ctx, const struct catalog_branch *b)
{
    buf_printf(ctx, "%d<%zu tip %d, %d: %s%s\n", b->number, b->from, (int)b->tip, b->turns, b->head,
               b->current ? " *" : "");
    return true;
}

static void the_branches_of_a_tree(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct buf b = BUF_INIT;
    const int64_t a = begin(c, NULL);
    assert_int_equal(catalog_branches(c, a, see_branch, &b, NULL), 0);
    assert_int_equal(b.len, 0);
    const int64_t q1 = add(c, a, 0, CAT_USER, "one"), r1 = add(c, a, q1, CAT_ASSISTANT, "two");
    const int64_t q2 = add(c, a, r1, CAT_USER, "three"), r2 = add(c, a, q2, CAT_ASSISTANT, "four");
    const int64_t q3 = add(c, a, r1, CAT_USER, "five\nand more"),
                  r3 = add(c, a, q3, CAT_ASSISTANT, "six");
    const int64_t q4 = add(c, a, r3, CAT_USER, "seven"), r4 = add(c, a, q4, CAT_ASSISTANT, "8");
    add(c, a, r3, CAT_USER, "without an answer");
    const int64_t q5 = add(c, a, q1, CAT_USER, "odd"), r5 = add(c, a, q5, CAT_ASSISTANT, "nine");
    const int64_t q6 = add(c, a, 0, CAT_USER, "anew"), r6 = add(c, a, q6, CAT_ASSISTANT, "ten");
    const int64_t q7 = add(c, a, r2, CAT_USER, "more"), r7 = add(c, a, q7, CAT_ASSISTANT, "11");
    assert_int_equal(catalog_set_leaf(c, a, r4, NULL), 0);
    assert_int_equal(catalog_branches(c, a, see_branch, &b, NULL), 0);
    struct buf want = BUF_INIT;
    buf_printf(&want,
               "1<0 tip %d, 3: one\n2<1 tip %d, 2: five *\n3<1 tip %d, 1: odd\n"
               "4<1 tip %d, 1: anew\n",
               (int)r7, (int)r4, (int)r5, (int)r6);
    assert_string_equal(b.data, want.data);
    uint64_t text = 0, states = 1;
    assert_int_equal(catalog_sizes(c, &text, &states, NULL), 0);
    assert_true(text > 4096);
    assert_int_equal(states, 0);
    buf_free(&b);
    buf_free(&want);
    catalog_close(c);
}

static bool is_gone(void *ctx, int64_t owner)
{
    return owner == *(const int64_t *)ctx;
}

static void draft_is_at(struct catalog *c, int64_t conv, int64_t turn, const char *want,
                        int64_t place)
{
    struct buf b = BUF_INIT;
    int64_t after = -1;
    assert_int_equal(catalog_draft_get(c, conv, turn, &after, &b, NULL), 0);
    assert_int_equal(after, b.len > 0 ? place : -1);
    buf_addc(&b, '.');
    buf_addc(&b, 0);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void draft_is(struct catalog *c, int64_t conv, int64_t turn, const char *want)
{
    draft_is_at(c, conv, turn, want, turn);
}

static bool is_other(void *ctx, int64_t conv)
{
    return conv != *(const int64_t *)ctx;
}

static void drafts(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q = add(c, a, 0, CAT_USER, "one"), r = add(c, a, q, CAT_ASSISTANT, "two");
    assert_int_equal(catalog_draft_put(c, a, r, 5, "first", 5, NULL), 0);
    assert_int_equal(catalog_draft_put(c, a, r, 6, "next", 4, NULL), 0);
    assert_int_equal(catalog_draft_put(c, a, 0, 5, "at the head", 11, NULL), 0);
    assert_int_equal(catalog_draft_put(c, b, 0, 5, "other", 5, NULL), 0);
    draft_is(c, a, r, "next.");
    draft_is(c, a, 0, "at the head.");
    draft_is(c, a, q, ".");
    assert_int_equal(catalog_draft_put(c, a, r, 5, "", 0, NULL), 0);
    draft_is(c, a, r, ".");
    /* one that was kept while the answer ran is found behind it, and behind no other */
    const int64_t next = add(c, a, r, CAT_USER, "three"), two = add(c, a, q, CAT_ASSISTANT, "2");
    assert_int_equal(catalog_draft_put(c, a, q, 5, "meanwhile", 9, NULL), 0);
    draft_is_at(c, a, q, "meanwhile.", q);
    draft_is_at(c, a, r, "meanwhile.", q);
    draft_is(c, a, next, ".");
    assert_int_equal(catalog_draft_put(c, a, two, 5, "later", 5, NULL), 0);
    draft_is(c, a, two, "later.");
    assert_int_equal(catalog_draft_put(c, a, q, 5, "", 0, NULL), 0);
    assert_true(catalog_draft_put(c, 99, 0, 5, "x", 1, NULL) < 0);
    /* without a conversation: each owner's, taken once, by those that are gone only */
    assert_int_equal(catalog_draft_put(c, 0, 0, 5, "mine", 4, NULL), 0);
    assert_int_equal(catalog_draft_put(c, 0, 0, 6, "yours", 5, NULL), 0);
    assert_int_equal(catalog_draft_put(c, 0, 0, 5, "mine too", 8, NULL), 0);
    struct buf got = BUF_INIT;
    int64_t gone = 7;
    assert_int_equal(catalog_draft_adopt(c, is_gone, &gone, &got, NULL), 0);
    assert_int_equal(got.len, 0);
    gone = 5;
    assert_int_equal(catalog_draft_adopt(c, is_gone, &gone, &got, NULL), 0);
    assert_int_equal(got.len, 8);
    assert_memory_equal(got.data, "mine too", 8);
    buf_truncate(&got, 0);
    assert_int_equal(catalog_draft_adopt(c, is_gone, &gone, &got, NULL), 0);
    assert_int_equal(got.len, 0);
    buf_free(&got);
    /* they go with their conversation */
    assert_int_equal(catalog_remove(c, b, NULL), 0);
    draft_is(c, b, 0, ".");
    assert_int_equal(catalog_verify(c, NULL), 0);
    catalog_close(c);
}

/* Answers without an end, and questions without an answer. */
static void unfinished_ends(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    int64_t tip = -1, f = 0;
    const int64_t a = begin(c, NULL);
    const int64_t q1 = add(c, a, 0, CAT_USER, "one");
    struct catalog_turn t = {.role = CAT_ASSISTANT, .text = "two", .text_n = 3, .finish = "stop"};
    int64_t r1 = 0, r2 = 0;
    assert_int_equal(catalog_add(c, a, q1, &t, &r1, &e), 0);
    assert_int_equal(catalog_set_leaf(c, a, r1, &e), 0);
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, 0);
    const int64_t q2 = add(c, a, r1, CAT_USER, "three");
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, q2);
    assert_int_equal(catalog_tip(c, a, true, &tip, &e), 0);
    assert_int_equal(tip, 0);
    t = (struct catalog_turn){.role = CAT_ASSISTANT};
    assert_int_equal(catalog_add(c, a, q2, &t, &r2, &e), 0);
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, r2);
    assert_int_equal(catalog_tip(c, a, true, &tip, &e), 0);
    assert_int_equal(tip, 0);
    assert_int_equal(catalog_fork(c, a, 0, NULL, &f, &e), 0);
    path_is(c, f, 0, "5:one 6:two ");
    t.thought = "hm";
    t.thought_n = 2;
    assert_int_equal(catalog_update(c, r2, &t, &e), 0);
    assert_int_equal(catalog_tip(c, a, true, &tip, &e), 0);
    assert_int_equal(tip, r2);
    path_is(c, a, 0, "1:one 2:two ");
    assert_int_equal(catalog_fork(c, a, 0, NULL, &f, &e), 0);
    path_is(c, f, 0, "7:one 8:two 9:three 10: ");
    assert_int_equal(catalog_tip(c, f, false, &tip, &e), 0);
    assert_int_equal(tip, 0); /* the copy has no writer */
    t.finish = "stop";
    assert_int_equal(catalog_update(c, r2, &t, &e), 0);
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, 0);
    catalog_close(c);
}

static void finding(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const char *const names[] = {"parser", "parser rewrite", "notes", "3", "100% sure", "_"};
    for (size_t i = 0; i < 6; i++) {
        const struct catalog_new n = {.name = names[i], .directory = i < 2 ? "/a" : "/b"};
        int64_t id = 0;
        assert_int_equal(catalog_begin(c, &n, &id, NULL), 0);
        assert_int_equal(id, (int64_t)i + 1);
    }
    const struct {
        const char *what;
        int rc, id;
    } cases[] = {
        {"2", 0, 2}, {"parser", 0, 1},     {"parser r", 0, 2},     {"p", QE_USAGE, 0},
        {"n", 0, 3}, {"3", 0, 3},          {"100", 0, 5},          {"%", QE_NOTFOUND, 0},
        {"_", 0, 6}, {"", QE_NOTFOUND, 0}, {"99", QE_NOTFOUND, 0}, {"1x", QE_NOTFOUND, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t id = 0;
        const int rc = catalog_find(c, cases[i].what, &id, &e);
        if (rc != cases[i].rc || id != cases[i].id) {
            fail_msg("\"%s\": %d, %d: %s", cases[i].what, rc, (int)id, e.msg);
        }
    }
    int64_t id = 0;
    const struct {
        const char *given, *name, *why; /* name NULL: refused */
    } given[] = {
        {"", NULL, "cannot be empty"},
        {" \xC2\xA0", NULL, "cannot be empty"},
        {"12", NULL, "a number means"},
        {" 12 ", NULL, "a number means"},
        {"a\nb", NULL, "control character"},
        {"\x1B[31m", NULL, "control character"},
        {"a\x7F", NULL, "control character"},
        {"a\xC2\x9B", NULL, "control character"},
        {"a\xE2\x80\x8B", NULL, "is not seen"},
        {"gr\xC3\xBC\xC3\x9F \xC2\xA0", "gr\xC3\xBC\xC3\x9F", NULL},
        {" 12 a", "12 a", NULL},
        {"-1", "-1", NULL},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        char *name = NULL;
        const int rc = catalog_take_name(given[i].given, &name, &e);
        if (given[i].name ? rc != 0 || strcmp(name, given[i].name) != 0
                          : rc != QE_USAGE || !strstr(e.msg, given[i].why)) {
            fail_msg("name %zu: %d, %s: %s", i, rc, name ? name : "none", e.msg);
        }
        free(name);
    }
    assert_int_equal(catalog_find(c, "pars", &id, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "1 \"parser\""));
    assert_int_equal(catalog_named(c, "notes", &id, &e), 0);
    assert_int_equal(id, 3);
    assert_int_equal(catalog_named(c, "note", &id, &e), 0);
    assert_int_equal(id, 0);
    assert_int_equal(catalog_numbered(c, "3", &id, &e), 0);
    assert_int_equal(id, 3);
    assert_int_equal(catalog_numbered(c, "100", &id, &e), QE_NOTFOUND); /* a title begins so */
    assert_int_equal(catalog_last(c, "/a", NULL, NULL, &id, &e), 0);
    assert_int_equal(id, 2);
    int64_t but = 0;
    assert_int_equal(catalog_last(c, NULL, NULL, NULL, &but, &e), 0);
    assert_int_equal(catalog_last(c, NULL, is_other, &but, &id, &e), 0);
    assert_true(id > 0 && id != but);
    assert_int_equal(catalog_last(c, NULL, NULL, NULL, &id, &e), 0);
    assert_int_equal(id, 6);
    assert_int_equal(catalog_last(c, "/c", NULL, NULL, &id, &e), 0);
    assert_int_equal(id, 0);
    /* a given name goes before the same title; two of one name are told from each other */
    const struct catalog_new n = {.name = NULL}, twin = {.name = "notes"};
    assert_int_equal(catalog_begin(c, &n, &id, NULL), 0);
    add(c, id, 0, CAT_USER, "notes");
    assert_int_equal(catalog_find(c, "notes", &id, &e), 0);
    assert_int_equal(id, 3);
    assert_int_equal(catalog_begin(c, &twin, &id, NULL), 0); /* as older ones left them */
    assert_int_equal(catalog_find(c, "notes", &id, &e), QE_USAGE);
    assert_int_equal(catalog_named(c, "notes", &id, &e), QE_USAGE);
    assert_int_equal(catalog_named_or_new(c, &twin, &id, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "3 \"notes\" (0 turns)"));
    assert_non_null(strstr(e.msg, "8 \"notes\""));
    catalog_close(c);
}

static bool see_state(void *ctx, const struct catalog_state *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%s@%d%s%s ", t->file, (int)t->turn, t->pinned ? " pinned" : "",
               t->superseded ? " old" : "");
    return true;
}

static void states_are(struct catalog *c, const char *want)
{
    struct seen s = {0};
    assert_int_equal(catalog_states(c, see_state, &s, NULL), 0);
    assert_string_equal(s.all.data ? s.all.data : "", want);
    buf_free(&s.all);
}

static void state_files(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    int64_t last = 0;
    for (int i = 0; i < 6; i++) {
        last = add(c, a, last, i % 2 ? CAT_ASSISTANT : CAT_USER, "x");
    }
    assert_int_equal(catalog_set_leaf(c, a, 6, &e), 0);
    const int64_t q = add(c, b, 0, CAT_USER, "y");
    const struct {
        const char *file;
        int64_t turn;
    } files[] = {{"f2", 2}, {"f4", 4}, {"g", q}, {"f4b", 4}};
    for (size_t i = 0; i < 4; i++) {
        const struct catalog_state s = {
            .file = files[i].file, .turn = files[i].turn, .compat = "ab", .bytes = 100};
        assert_int_equal(catalog_state_add(c, &s, &e), 0);
        assert_int_equal(catalog_state_add(c, &s, &e), 0); /* once more is the same */
    }
    const struct catalog_state bad = {.file = "h", .turn = 77, .compat = "ab"};
    assert_int_equal(catalog_state_add(c, &bad, &e), QE_NOTFOUND);
    states_are(c, "f2@2 old f4@4 g@7 f4b@4 ");
    assert_int_equal(catalog_pin(c, a, true, &e), 0);
    states_are(c, "g@7 f2@2 pinned old f4@4 pinned f4b@4 pinned ");
    struct seen s = {0};
    assert_int_equal(catalog_states_for(c, a, 0, see_state, &s, &e), 0);
    assert_string_equal(s.all.data, "f4b@4 f4@4 f2@2 ");
    buf_free(&s.all);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_states_for(c, a, 3, see_state, &s, &e), 0);
    assert_string_equal(s.all.data, "f2@2 ");
    buf_free(&s.all);
    /* a copy of the branch may use the same files, which then belong to both */
    int64_t f = 0;
    assert_int_equal(catalog_fork(c, a, 4, NULL, &f, &e), 0);
    assert_int_equal(catalog_remove(c, a, &e), 0);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_states_for(c, f, 0, see_state, &s, &e), 0);
    assert_int_equal(s.n, 3);
    buf_free(&s.all);
    assert_int_equal(catalog_state_remove(c, "f2", &e), 0);
    assert_int_equal(catalog_state_used(c, "f4", &e), 0);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_states(c, see_state, &s, &e), 0);
    assert_int_equal(s.n, 3);
    assert_non_null(strstr(s.all.data, "f4b@11 "));
    buf_free(&s.all);
    catalog_close(c);
}

/* A writer died in the middle of two answers, one without a word yet. */
static void unfinished_answers(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q = add(c, a, 0, CAT_USER, "q"), r = add(c, a, q, CAT_ASSISTANT, "");
    const int32_t ids[] = {4, 5, 6};
    struct catalog_turn t = {.text = "half an ans", .text_n = 11, .ids = ids, .n_ids = 3};
    assert_int_equal(catalog_update(c, r, &t, &e), 0);
    const int64_t q2 = add(c, b, 0, CAT_USER, "q");
    add(c, b, q2, CAT_ASSISTANT, "");
    struct seen s = {0};
    assert_int_equal(catalog_unfinished(c, see_all, &s, &e), 0);
    assert_int_equal(s.n, 2);
    buf_free(&s.all);
    int n = 0, tokens = 0;
    assert_int_equal(catalog_recover(c, a, &n, &tokens, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tokens, 3);
    path_is(c, a, 0, "1:q 2:half an ans ");
    assert_int_equal(catalog_recover(c, a, &n, &tokens, &e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(catalog_recover(c, b, &n, &tokens, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tokens, 0);
    path_is(c, b, 0, "3:q ");
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_unfinished(c, see_all, &s, &e), 0);
    assert_int_equal(s.n, 0);
    catalog_close(c);
}

static bool see_queued(void *ctx, const struct catalog_queued *q)
{
    buf_printf(ctx, "%.*s=%.*s;", (int)q->shown_n, q->shown, (int)q->message_n, q->message);
    return true;
}

/* What waits at a turn, or at the nearest one before it: "after: shown=message;…". */
static void queue_is(struct catalog *c, int64_t conv, int64_t turn, const char *want)
{
    struct buf b = BUF_INIT, all = BUF_INIT;
    int64_t after = -1;
    assert_int_equal(catalog_queue_get(c, conv, turn, &after, see_queued, &b, NULL), 0);
    buf_printf(&all, "%d: %s", (int)after, b.data ? b.data : "");
    assert_string_equal(all.data, want);
    buf_free(&b);
    buf_free(&all);
}

static void messages_that_wait(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const struct catalog_queued q[] = {
        {"[paste 1]", 9, "long\0text", 9}, {"two", 3, "two", 3}, {"three", 5, "three", 5}};
    queue_is(c, a, 0, "-1: ");
    /* before anything was said */
    assert_int_equal(catalog_queue_put(c, a, 0, 0, &q[1], 1, NULL), 0);
    queue_is(c, a, 0, "0: two=two;");
    queue_is(c, b, 0, "-1: ");
    const int64_t q1 = add(c, a, 0, CAT_USER, "one"), r1 = add(c, a, q1, CAT_ASSISTANT, "1");
    queue_is(c, a, r1, "0: two=two;");
    /* it goes with the turn that it follows */
    assert_int_equal(catalog_queue_put(c, a, 0, q1, q, 3, NULL), 0);
    queue_is(c, a, 0, "-1: ");
    queue_is(c, a, q1, "1: [paste 1]=long;two=two;three=three;");
    queue_is(c, a, r1, "1: [paste 1]=long;two=two;three=three;");
    /* every branch has its own */
    const int64_t q2 = add(c, a, r1, CAT_USER, "x"), r2 = add(c, a, q2, CAT_ASSISTANT, "x");
    const int64_t q3 = add(c, a, r1, CAT_USER, "y"), r3 = add(c, a, q3, CAT_ASSISTANT, "y");
    assert_int_equal(catalog_queue_put(c, a, q1, r2, &q[1], 2, NULL), 0);
    assert_int_equal(catalog_queue_put(c, a, r3, r3, &q[2], 1, NULL), 0);
    queue_is(c, a, r2, "4: two=two;three=three;");
    queue_is(c, a, r3, "6: three=three;");
    queue_is(c, a, r1, "-1: ");
    /* the order is the list's, and nothing is left of what was sent */
    const struct catalog_queued back[] = {q[2], q[1]};
    assert_int_equal(catalog_queue_put(c, a, r2, r2, back, 2, NULL), 0);
    queue_is(c, a, r2, "4: three=three;two=two;");
    assert_int_equal(catalog_queue_put(c, a, r2, r2, NULL, 0, NULL), 0);
    queue_is(c, a, r2, "-1: ");
    catalog_close(c);
    c = open_ok();
    queue_is(c, a, r3, "6: three=three;");
    assert_int_equal(catalog_remove(c, a, NULL), 0);
    queue_is(c, a, r3, "-1: ");
    assert_int_equal(catalog_verify(c, NULL), 0);
    catalog_close(c);
}

static bool take_recovered(void *ctx, const struct catalog_conv *v)
{
    *(int *)ctx = v->recovered;
    return false;
}

static void recovered_is(struct catalog *c, int64_t conv, int want)
{
    int got = -2;
    assert_int_equal(catalog_get(c, conv, take_recovered, &got, NULL), 0);
    assert_int_equal(got, want);
}

/* What was cut off is marked until somebody has looked at it. */
static void recovered_marks(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int32_t ids[] = {4, 5, 6};
    const struct catalog_turn t = {.text = "half", .text_n = 4, .ids = ids, .n_ids = 3};
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q = add(c, a, 0, CAT_USER, "q"), r = add(c, a, q, CAT_ASSISTANT, "");
    add(c, b, add(c, b, 0, CAT_USER, "q"), CAT_ASSISTANT, "");
    assert_int_equal(catalog_update(c, r, &t, NULL), 0);
    recovered_is(c, a, -1);
    int n = 0, tokens = 0;
    assert_int_equal(catalog_recover(c, a, &n, &tokens, NULL), 0);
    assert_int_equal(catalog_recover(c, b, &n, &tokens, NULL), 0);
    recovered_is(c, a, 3);
    recovered_is(c, b, 0);
    assert_int_equal(catalog_recover(c, a, &n, &tokens, NULL), 0); /* nothing more was cut off */
    recovered_is(c, a, 3);
    catalog_close(c);
    c = open_ok();
    recovered_is(c, a, 3);
    assert_int_equal(catalog_seen(c, a, NULL), 0);
    recovered_is(c, a, -1);
    recovered_is(c, b, 0);
    catalog_close(c);
}

/* A word that means nothing is told what is like it. */
static void similar_names(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    int64_t id = 0;
    const char *const names[] = {"parser rewrite", "notes on kernels", "Gr\xC3\xBC\xC3\x9F Gott",
                                 "parsers",        "parsing",          "a parser of dates"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct catalog_new n = {.name = names[i]};
        assert_int_equal(catalog_begin(c, &n, &id, NULL), 0);
    }
    const struct {
        const char *what, *similar;
    } cases[] = {
        {"Parser", "; similar: 4 \"parsers\", 1 \"parser rewrite\", 6 \"a parser of dates\""},
        {"kernals", "; similar: 2 \"notes on kernels\""},
        {"gruss gott", "; similar: 3 \"Gr\xC3\xBC\xC3\x9F Gott\""},
        {"rewirte", "; similar: 1 \"parser rewrite\""},
        {"something else", ""},
        {"zz", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[256];
        snprintf(want, sizeof want, "there is no conversation \"%s\"%s (quasar sessions list)",
                 cases[i].what, cases[i].similar);
        assert_int_equal(catalog_find(c, cases[i].what, &id, &e), QE_NOTFOUND);
        assert_string_equal(e.msg, want);
    }
    catalog_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches),
        cmocka_unit_test(the_branches_of_a_tree),
        cmocka_unit_test(drafts),
        cmocka_unit_test(unfinished_ends),
        cmocka_unit_test(finding),
        cmocka_unit_test(state_files),
        cmocka_unit_test(unfinished_answers),
        cmocka_unit_test(messages_that_wait),
        cmocka_unit_test(recovered_marks),
        cmocka_unit_test(similar_names),
    };
    return cmocka_run_group_tests(tests, catalog_prepare, catalog_clean);
}
