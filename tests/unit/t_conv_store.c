/* src/conv on the stand-in engine: the transcript on disk, conversations that are gone on
 * with, saved states, kept prompts. */
#include "config.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "conv/conv.h"
#include "sessions/catalog.h"
#include "sessions/lock.h"
#include "tests/fake/engine.h"
#include "tests/unit/conv_help.h"
#include "tokenizer/tokenizer.h"

struct rows {
    struct buf all;
};

static bool add_row(void *ctx, const struct catalog_turn *t)
{
    struct rows *r = ctx;
    buf_printf(&r->all, "%s|%.*s|%.*s|%s|%zu\n", t->role == CAT_USER ? "user" : "assistant",
               (int)t->text_n, t->text, (int)t->thought_n, t->thought ? t->thought : "",
               t->finish ? t->finish : "-", t->n_ids);
    return true;
}

static int64_t latest;
static bool first_conv(void *ctx, const struct catalog_conv *v)
{
    (void)ctx;
    latest = v->id;
    return false;
}

static void transcript_is_kept(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.system = "Be brief.";
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("Easy.\n</think>\n\nFour.<|im_end|>");
    ask(c, t, "2 + 2?", &h);
    heard_fini(&h);
    struct view_chat v;
    chat_view(t, &v);
    assert_true(v.saved);
    size_t n1 = chat_last(t)->n_ids;
    ask(c, t, "Again?", &h);
    heard_fini(&h);
    conv_close(c);
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct catalog *cat = NULL;
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    assert_int_equal(catalog_list(cat, 1, first_conv, NULL, NULL), 0);
    struct rows rows = {0};
    assert_int_equal(catalog_turns(cat, latest, add_row, &rows, NULL), 0);
    char want[256];
    snprintf(want, sizeof want,
             "user|2 + 2?||-|0\nassistant|Four.|Easy.|stop|%zu\n"
             "user|Again?||-|0\nassistant|Four.|Easy.|stop|%zu\n",
             n1, n1);
    assert_string_equal(rows.all.data, want);
    buf_free(&rows.all);
    catalog_close(cat);
}

/* Rows of the latest conversation, as text; the caller frees it. */
static char *latest_rows(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    struct catalog *cat = NULL;
    struct rows rows = {0};
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    assert_int_equal(catalog_verify(cat, NULL), 0);
    assert_int_equal(catalog_list(cat, 1, first_conv, NULL, NULL), 0);
    assert_int_equal(catalog_turns(cat, latest, add_row, &rows, NULL), 0);
    catalog_close(cat);
    return buf_take(&rows.all);
}

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

struct tree {
    int64_t id[16], parent[16];
    int n;
};

static bool add_node(void *ctx, const struct catalog_turn *t)
{
    struct tree *r = ctx;
    assert_true(r->n < 16);
    r->id[r->n] = t->id;
    r->parent[r->n++] = t->parent;
    return true;
}

/* Going back makes a branch: the prompt is what one without the rest would be, every
 * turn stays, and the conversation stands after the last one that was answered. */
static void a_rewound_chat_branches(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    const char *const asked[] = {"One?", "Two?", "Three?", "Other?", "Anew?"};
    const size_t keep[] = {9, 9, 9, 2, 0};
    int prompt[5];
    say("Yes.<|im_end|>");
    for (int i = 0; i < 5; i++) {
        chat_rewind(t, keep[i]); /* 9: more than there are */
        ask(c, t, asked[i], &h);
        prompt[i] = chat_last(t)->prompt_tokens;
        heard_fini(&h);
    }
    assert_true(prompt[0] < prompt[1] && prompt[1] < prompt[2]);
    assert_true(prompt[3] < prompt[2] && prompt[3] > prompt[0]);
    assert_true(prompt[4] < prompt[1]);
    chat_rewind(t, 1); /* and nothing is said after it */
    conv_close(c);
    struct tree r = {0};
    char *rows = latest_rows();
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    struct catalog *cat = NULL;
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    assert_int_equal(catalog_turns(cat, latest, add_node, &r, NULL), 0);
    assert_int_equal(r.n, 10);
    const int parent[] = {-1, 0, 1, 2, 3, 4, 1, 6, -1, 8};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(r.parent[i], parent[i] < 0 ? 0 : r.id[parent[i]]);
    }
    r.n = 0;
    assert_int_equal(catalog_path(cat, latest, 0, add_node, &r, NULL), 0);
    assert_int_equal(r.n, 2);
    assert_int_equal(count_of(rows, "Anew?"), 1);
    catalog_close(cat);
    free(rows);
}

struct listed {
    int64_t id[2];
    int n;
};

static bool list_two(void *ctx, const struct conv_stored *s)
{
    struct listed *l = ctx;
    assert_true(s->turns == 1 && s->updated > 0 && s->title[0]);
    l->id[l->n++] = s->id;
    return l->n < 2;
}

static int prompt_of(struct conv *c, struct chat *t, const char *text)
{
    struct heard h;
    ask(c, t, text, &h);
    heard_fini(&h);
    return chat_last(t)->prompt_tokens;
}

/* From one stored conversation to another and back: each has its own turns and its own
 * system prompt. */
static void a_chat_goes_to_another_conversation(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.think = 0;
    say("Yes.<|im_end|>");
    struct conv *c = open_conv(&o);
    assert_int_equal(conv_list(c, 9, list_two, NULL, NULL), QE_USAGE);
    struct chat *t = chat_create(c);
    (void)prompt_of(c, t, "Plain?");
    const int plain = prompt_of(c, t, "Next?");
    conv_close(c);
    o.save = true;
    o.system = "Be brief, and say nothing that was not asked for.";
    c = open_conv(&o);
    t = chat_create(c);
    (void)prompt_of(c, t, "Brief?");
    conv_close(c);
    o.system = NULL;
    c = open_conv(&o);
    t = chat_create(c);
    (void)prompt_of(c, t, "Plain?");
    struct listed l = {.n = 0};
    assert_int_equal(conv_list(c, 9, list_two, &l, NULL), 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(chat_resume(t, l.id[1], NULL, NULL, NULL), 0);
    assert_true(prompt_of(c, t, "Next?") > plain);
    assert_int_equal(chat_resume(t, 999999, NULL, NULL, NULL), QE_NOTFOUND);
    struct view_chat v;
    chat_view(t, &v);
    assert_int_equal(v.conversation, l.id[1]);
    assert_int_equal(chat_resume(t, l.id[0], NULL, NULL, NULL), 0);
    assert_int_equal(prompt_of(c, t, "Next?"), plain);
    chat_view(t, &v);
    assert_int_equal(v.conversation, l.id[0]);
    conv_close(c);
}

struct tips {
    int64_t tip[4];
    int n, current;
};

static bool take_tip(void *ctx, const struct conv_branch *b)
{
    struct tips *t = ctx;
    t->current = b->current ? t->n : t->current;
    t->tip[t->n++] = b->tip;
    return t->n < 4;
}

static void hear_text(void *ctx, const struct conv_turn *turn)
{
    buf_add(ctx, turn->text, turn->text_n);
    buf_addc(ctx, '/');
}

/* To another branch and back, of the conversation that the chat has. */
static void branches_of_one_conversation(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("Yes.<|im_end|>");
    const char *const asked[] = {"One?", "Two?", "Three?"};
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            chat_rewind(t, 2);
        }
        ask(c, t, asked[i], &h);
        heard_fini(&h);
    }
    struct view_chat v;
    chat_view(t, &v);
    const int64_t id = v.conversation;
    struct tips tips = {.current = -1};
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    assert_int_equal(tips.n, 2);
    assert_int_equal(tips.current, 1);
    struct buf b = BUF_INIT;
    assert_int_equal(chat_resume_at(t, id, tips.tip[0], hear_text, &b, NULL), 0);
    assert_string_equal(b.data, "One?/Yes./Two?/Yes./");
    ask(c, t, "Four?", &h);
    heard_fini(&h);
    tips = (struct tips){.current = -1};
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    assert_int_equal(tips.n, 2); /* it went on */
    assert_int_equal(tips.current, 0);
    chat_view(t, &v);
    assert_int_equal(v.conversation, id);
    assert_true(v.saved);
    /* not twice on one branch; another one may be had beside it, and each goes on */
    struct chat *other = chat_create(c);
    struct err e = ERR_INIT;
    assert_int_equal(chat_resume_at(other, id, tips.tip[0], NULL, NULL, &e), QE_BUSY);
    assert_non_null(strstr(e.msg, "is open here already"));
    assert_int_equal(chat_resume(other, id, NULL, NULL, NULL), QE_BUSY);
    buf_truncate(&b, 0);
    assert_int_equal(chat_resume_at(other, id, tips.tip[1], hear_text, &b, &e), 0);
    assert_string_equal(b.data, "One?/Yes./Three?/Yes./");
    struct view_chat w;
    ask(c, other, "Beside?", &h);
    heard_fini(&h);
    ask(c, t, "Here?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    chat_view(other, &w);
    assert_true(v.saved && w.saved && v.conversation == id && w.conversation == id);
    assert_true(v.turn > 0 && w.turn > 0 && v.turn != w.turn);
    tips = (struct tips){.current = -1};
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    assert_int_equal(tips.n, 2);
    assert_int_equal(tips.tip[0], v.turn);
    assert_int_equal(tips.tip[1], w.turn);
    assert_int_equal(tips.current, 0); /* spoke last */
    /* one lets go, and the other still has the lock */
    chat_clear(t);
    for (int i = 0; i < 1000 && (chat_view(t, &v), v.conversation != 0); i++) {
        usleep(1000);
    }
    const pid_t pid = fork();
    if (pid == 0) {
        char states[300];
        snprintf(states, sizeof states, "%s/quasar", state_home);
        _exit(lock_holder(states, id) == getppid() ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(chat_resume_at(t, id, tips.tip[1], NULL, NULL, NULL), QE_BUSY);
    assert_int_equal(chat_resume_at(t, id, tips.tip[0], NULL, NULL, NULL), 0);
    assert_int_equal(chat_resume_at(t, id, 9999, NULL, NULL, NULL), QE_NOTFOUND);
    assert_int_equal(conv_elsewhere(c, id), 0);
    struct conv_disk disk;
    assert_int_equal(conv_disk(c, &disk, NULL), 0);
    assert_true(disk.text > 4096 && disk.budget > 0);
    buf_free(&b);
    conv_close(c);
}

static void waits_in(const struct chat *t, const char *want)
{
    struct buf b = BUF_INIT;
    struct conv_queued q;
    buf_adds(&b, "");
    for (size_t i = 0; chat_queued(t, i, &q); i++) {
        buf_printf(&b, "%.*s=%.*s;", (int)q.shown_n, q.shown, (int)q.message_n, q.message);
    }
    assert_string_equal(b.data, want);
    buf_free(&b);
}

/* Messages that wait go with the branch, through turns and another process, and are not sent. */
static void what_waits_is_kept(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    const struct conv_queued q[] = {{"[paste 1]", "a paste", 9, 7}, {"two", "two", 3, 3}};
    say("Yes.<|im_end|>");
    chat_queue(t, q, 2); /* before anything was said */
    ask(c, t, "One?", &h);
    heard_fini(&h);
    chat_rewind(t, 0);
    ask(c, t, "Other?", &h); /* they go with the chat */
    heard_fini(&h);
    struct view_chat v;
    chat_view(t, &v);
    const int64_t id = v.conversation;
    assert_int_equal(chat_last(t)->prompt_tokens > 0, 1);
    conv_close(c);
    c = open_conv(&o);
    t = chat_create(c);
    struct buf b = BUF_INIT;
    assert_int_equal(chat_resume(t, id, hear_text, &b, NULL), 0);
    assert_string_equal(b.data, "Other?/Yes./");
    waits_in(t, "[paste 1]=a paste;two=two;");
    struct tips tips = {.current = -1};
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    struct chat *other = chat_create(c);
    assert_int_equal(chat_resume_at(other, id, tips.tip[0], NULL, NULL, NULL), 0);
    waits_in(other, ""); /* that of the other branch */
    chat_queue(other, &q[1], 1);
    chat_queue(t, q, 1);
    ask(c, t, "On?", &h);
    heard_fini(&h);
    conv_close(c);
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_resume_at(t, id, tips.tip[0], NULL, NULL, NULL), 0);
    waits_in(t, "two=two;");
    chat_queue(t, NULL, 0);
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    assert_int_equal(chat_resume_at(t, id, tips.tip[3], NULL, NULL, NULL), 0);
    waits_in(t, "[paste 1]=a paste;");
    conv_close(c);
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_resume_at(t, id, tips.tip[0], NULL, NULL, NULL), 0);
    waits_in(t, "");
    buf_free(&b);
    conv_close(c);
}

/* What is not on disk after a try that was asked for before, in the words of its event. Each try
 * has one, so none may be left for the next. */
static void stored_comes(struct conv *c, struct buf *why)
{
    struct conv_event ev;
    for (bool over = false; !over; conv_event_fini(&ev)) {
        assert_true(conv_wait(c, &ev, 20000));
        over = ev.kind == CE_STORED;
        if (over) {
            buf_truncate(why, 0);
            buf_adds(why, ev.text.data ? ev.text.data : "");
        }
    }
}

static void flush_now(struct conv *c, struct chat *t, struct buf *why)
{
    chat_flush(t);
    stored_comes(c, why);
}

/* The folder goes while the conversation runs, and comes back; then another takes its place. */
static void a_folder_that_goes(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct view_chat v;
    char dir[256];
    char away[280];
    snprintf(dir, sizeof dir, "%s/quasar", state_home);
    snprintf(away, sizeof away, "%s.away", dir);
    say("Yes.<|im_end|>");
    ask(c, t, "One?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.saved);
    const int64_t id = v.conversation;
    assert_int_equal(rename(dir, away), 0);
    ask(c, t, "Two?", &h);
    assert_non_null(strstr(TEXT(h.notice), "is gone"));
    heard_fini(&h);
    chat_view(t, &v);
    assert_false(v.saved);
    assert_int_equal(access(dir, F_OK), -1); /* nobody makes an empty one in its place */
    assert_int_equal(rename(away, dir), 0);
    struct buf why = BUF_INIT;
    flush_now(c, t, &why);
    assert_int_equal(why.len, 0);
    buf_free(&why);
    ask(c, t, "Three?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.saved);
    assert_int_equal(v.conversation, id);
    char path[300];
    snprintf(path, sizeof path, "%s/catalog.db", dir);
    struct catalog *cat = NULL;
    struct rows rows = {0};
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    assert_int_equal(catalog_turns(cat, id, add_row, &rows, NULL), 0);
    assert_non_null(strstr(rows.all.data, "user|Two?"));
    assert_non_null(strstr(rows.all.data, "user|Three?"));
    catalog_close(cat);
    buf_free(&rows.all);
    /* a new one */
    snprintf(away, sizeof away, "%s.old", dir);
    assert_int_equal(rename(dir, away), 0);
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    catalog_close(cat);
    ask(c, t, "Four?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.saved);
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    memset(&rows, 0, sizeof rows);
    assert_int_equal(catalog_turns(cat, v.conversation, add_row, &rows, NULL), 0);
    assert_non_null(strstr(rows.all.data, "user|Four?"));
    catalog_close(cat);
    buf_free(&rows.all);
    conv_close(c);
}

/* Waits until a chat's draft is on disk as it should be. */
static void draft_becomes(struct conv *c, int64_t id, int64_t tip, const char *want)
{
    struct buf b = BUF_INIT;
    int64_t after = 0;
    for (int i = 0; i < 2000; i++) {
        struct catalog *cat = NULL;
        char path[256];
        snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
        buf_truncate(&b, 0);
        assert_int_equal(catalog_open(path, &cat, NULL), 0);
        assert_int_equal(catalog_draft_get(cat, id, tip, &after, &b, NULL), 0);
        catalog_close(cat);
        if (b.len == strlen(want) && (b.len == 0 || memcmp(b.data, want, b.len) == 0)) {
            break;
        }
        usleep(1000);
    }
    assert_int_equal(b.len, strlen(want));
    buf_free(&b);
    (void)c;
}

/* Each branch has its own draft, which a process that ends at once leaves behind. */
static void drafts_of_branches(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("Yes.<|im_end|>");
    const char *const asked[] = {"One?", "Two?", "Three?"};
    chat_draft(t, "before", 6);
    chat_draft(t, "", 0);
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            chat_rewind(t, 2);
        }
        ask(c, t, asked[i], &h);
        heard_fini(&h);
    }
    struct view_chat v;
    chat_view(t, &v);
    const int64_t id = v.conversation;
    struct tips tips = {.current = -1};
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    chat_draft(t, "of the second", 13);
    draft_becomes(c, id, tips.tip[1], "of the second");
    struct buf b = BUF_INIT;
    assert_int_equal(chat_resume_at(t, id, tips.tip[0], hear_text, &b, NULL), 0);
    assert_int_equal(chat_draft_of(t)->len, 0);
    chat_draft(t, "of the first", 12);
    draft_becomes(c, id, tips.tip[0], "of the first");
    ask(c, t, "Four?", &h); /* it goes on: the draft follows */
    heard_fini(&h);
    chat_draft(t, "later", 5);
    tips = (struct tips){.current = -1};
    assert_int_equal(conv_branches(c, &id, 1, take_tip, &tips, NULL), 0);
    draft_becomes(c, id, tips.tip[0], "later");
    conv_close(c);
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_resume(t, id, NULL, NULL, NULL), 0);
    assert_int_equal(chat_draft_of(t)->len, 5);
    assert_memory_equal(chat_draft_of(t)->data, "later", 5);
    assert_int_equal(chat_resume_at(t, id, tips.tip[1], NULL, NULL, NULL), 0);
    assert_int_equal(chat_draft_of(t)->len, 13);
    buf_free(&b);
    conv_close(c);
}

/* Going back where nothing is stored. */
static void a_rewound_chat_without_a_disk(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("Yes.<|im_end|>");
    ask(c, t, "One?", &h);
    const int first = chat_last(t)->prompt_tokens;
    heard_fini(&h);
    ask(c, t, "Two?", &h);
    heard_fini(&h);
    chat_rewind(t, 0);
    ask(c, t, "One?", &h);
    assert_int_equal(chat_last(t)->prompt_tokens, first);
    heard_fini(&h);
    conv_close(c);
}

/* What is asked aside is about the conversation, and changes neither it nor what is stored. */
static void an_aside_leaves_all_as_it_was(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct view_chat v, w;
    say("Yes.<|im_end|>");
    ask(c, t, "One?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    const int first = chat_last(t)->prompt_tokens;
    char *before = latest_rows();
    assert_int_equal(chat_aside(t, "Two?", 4, NULL), 0);
    hear(c, t, &h);
    assert_string_equal(TEXT(h.text), "Yes.");
    heard_fini(&h);
    const int aside = chat_last(t)->prompt_tokens;
    assert_true(aside > first);
    chat_view(t, &w);
    assert_true(w.conversation == v.conversation && w.turn == v.turn && w.saved);
    char *after = latest_rows();
    assert_string_equal(after, before);
    ask(c, t, "Two?", &h);
    assert_int_equal(chat_last(t)->prompt_tokens, aside);
    heard_fini(&h);
    conv_close(c);
    free(before);
    free(after);
}

/* A store that could not be opened when the program began is opened once that is possible, and
 * takes what was said until then. */
static void a_store_that_comes_later(void **state)
{
    (void)state;
    char home[256], dir[300];
    snprintf(home, sizeof home, "%s/later", state_home);
    snprintf(dir, sizeof dir, "%s/quasar", home);
    assert_int_equal(mkdir(home, 0700), 0);
    FILE *f = fopen(dir, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(setenv("XDG_STATE_HOME", home, 1), 0);
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct view_chat v;
    int told = 0;
    say("Yes.<|im_end|>");
    for (int i = 0; i < 2; i++) { /* it goes on meanwhile */
        ask(c, t, i == 0 ? "One?" : "Two?", &h);
        told += h.notices;
        heard_fini(&h);
    }
    assert_int_equal(told, 1);
    chat_view(t, &v);
    assert_true(!v.saved && !v.stuck && v.conversation == 0);
    assert_int_equal(unlink(dir), 0);
    chat_flush(t);
    struct conv_event ev;
    bool stored = false;
    while (!stored && conv_wait(c, &ev, 20000)) {
        stored = ev.kind == CE_STORED && ev.text.len == 0;
        conv_event_fini(&ev);
    }
    assert_true(stored);
    chat_view(t, &v);
    assert_true(v.saved && v.conversation > 0);
    ask(c, t, "Three?", &h);
    heard_fini(&h);
    assert_true(conv_close(c));
    struct buf b = BUF_INIT;
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_resume(t, v.conversation, hear_text, &b, NULL), 0);
    assert_string_equal(b.data, "One?/Yes./Two?/Yes./Three?/Yes./");
    buf_free(&b);
    conv_close(c);
    assert_int_equal(setenv("XDG_STATE_HOME", state_home, 1), 0);
}

struct thoughts {
    int tokens[8];
    int n;
};

static void take_thought(void *ctx, const struct conv_turn *turn)
{
    struct thoughts *k = ctx;
    if (!turn->user && k->n < 8) {
        assert_true(turn->thought_s >= 0);
        k->tokens[k->n++] = turn->thought_tokens;
    }
}

/* Waits until the context is counted. */
static int counted(const struct chat *t)
{
    struct view_chat v;
    for (int i = 0; i < 2000 && (chat_view(t, &v), v.context_used <= 0); i++) {
        usleep(1000);
    }
    return v.context_used;
}

/* The tokens of the thought alone, while it is there and afterwards; those of the context as it
 * would be asked, which nobody has to ask for. */
static void figures_outlive_the_turn(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct view_chat v;
    say("Easy.\n</think>\n\nFour, and a good deal more than was thought.<|im_end|>");
    ask(c, t, "2 + 2?", &h);
    heard_fini(&h);
    const int thought = chat_last(t)->thought_tokens;
    chat_view(t, &v);
    assert_true(thought > 0 && thought < (int)chat_last(t)->n_ids);
    assert_int_equal(v.thought_tokens, thought);
    const int first = chat_last(t)->prompt_tokens, drawn = (int)chat_last(t)->n_ids;
    const int64_t id = v.conversation;
    ask(c, t, "Again?", &h);
    const int second = chat_last(t)->prompt_tokens;
    heard_fini(&h);
    chat_rewind(t, 2);
    int n = 0;
    for (int i = 0; i < 2000 && (n = counted(t)) >= second; i++) {
        usleep(1000);
    }
    assert_true(n > first && n <= first + drawn + 2 && n < second);
    conv_close(c);
    c = open_conv(&o);
    t = chat_create(c);
    struct thoughts k = {.n = 0};
    assert_int_equal(chat_resume(t, id, take_thought, &k, NULL), 0);
    assert_int_equal(k.n, 2);
    assert_int_equal(k.tokens[0], thought);
    assert_int_equal(k.tokens[1], thought);
    assert_true(counted(t) > n);
    ask(c, t, "And?", &h);
    heard_fini(&h);
    conv_close(c);
}

/* What can be read of it is saved, one line says so, and the conversation is kept. */
static void a_bad_catalogue_is_salvaged(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    for (int i = 0; i < 4096; i++) {
        fputc('x', f);
    }
    fclose(f);
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    int told = 0;
    say("Still here.<|im_end|>");
    for (int i = 0; i < 3; i++) {
        ask(c, t, "?", &h);
        assert_string_equal(TEXT(h.text), "Still here.");
        told += h.notices;
        assert_true(h.notices == 0 || strstr(h.notice.data, "was damaged: 1 conversation"));
        heard_fini(&h);
    }
    struct view_chat v;
    chat_view(t, &v);
    assert_true(v.saved);
    conv_close(c);
    assert_int_equal(told, 1);
    char *rows = latest_rows();
    assert_int_equal(count_of(rows, "Still here."), 3);
    free(rows);
}

/* The disk takes no more in the middle of a conversation: one notice, and on; once
 * there is room again, all of it is there. */
static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    unlink(path);
    struct conv_opts o = opts("ctx=2048");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct view_chat v;
    say("Noted.<|im_end|>");
    ask(c, t, "one", &h);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.saved);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, tight;
    getrlimit(RLIMIT_FSIZE, &old);
    tight = old;
    tight.rlim_cur = 1024;
    setrlimit(RLIMIT_FSIZE, &tight);
    int told = 0;
    ask(c, t, "more", &h);
    assert_string_equal(TEXT(h.text), "Noted.");
    told += h.notices;
    heard_fini(&h);
    /* no more is taken until that is written; each that is refused tries */
    struct buf why = BUF_INIT;
    struct err refused = ERR_INIT;
    chat_view(t, &v);
    assert_true(v.stuck);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chat_send(t, "lost?", 5, &refused), QE_IO);
        assert_non_null(strstr(refused.msg, "is kept in memory, and nothing more is taken"));
        stored_comes(c, &why);
        assert_true(why.len > 0);
        flush_now(c, t, &why);
        assert_true(why.len > 0);
    }
    chat_view(t, &v);
    assert_false(v.saved);
    assert_int_equal(told, 1);
    setrlimit(RLIMIT_FSIZE, &old); /* from here on it may be tried without being asked */
    flush_now(c, t, &why);
    assert_int_equal(why.len, 0);
    chat_view(t, &v);
    assert_true(v.saved && !v.stuck);
    setrlimit(RLIMIT_FSIZE, &tight);
    ask(c, t, "more", &h);
    heard_fini(&h);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_true(conv_close(c)); /* there is room again */
    char *rows = latest_rows();
    const char *want = "user|one||-|0\nassistant|Noted.||stop|";
    assert_memory_equal(rows, want, strlen(want));
    assert_int_equal(count_of(rows, "user|more"), 2);
    assert_int_equal(count_of(rows, "user|lost?"), 0);
    assert_int_equal(count_of(rows, "assistant|Noted.||stop|"), 3);
    free(rows);

    c = open_conv(&o);
    t = chat_create(c);
    ask(c, t, "two", &h);
    heard_fini(&h);
    setrlimit(RLIMIT_FSIZE, &tight);
    ask(c, t, "more", &h);
    heard_fini(&h);
    struct err lost = ERR_INIT;
    assert_int_equal(conv_end(c, &lost), QE_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_non_null(strstr(lost.msg, "the end of conversation 2 is not saved: "));
    buf_free(&why);
}

struct told {
    struct buf all;
};

static void hear_turn(void *ctx, const struct conv_turn *turn)
{
    struct told *s = ctx;
    buf_printf(&s->all, "%s:%.*s/%s ", turn->user ? "user" : "model", (int)turn->text_n, turn->text,
               turn->finish ? turn->finish : "-");
}

static struct conv_opts stored_opts(const char *setup)
{
    struct conv_opts o = opts(setup);
    o.save = true;
    o.save_state = true;
    o.directory = "/home/me";
    o.think = 0;
    o.preserve = 1;
    o.temp = 0;
    o.max_tokens = 9;
    return o;
}

/* Saves the state now; what it said about that. */
static void save_now(struct conv *c, struct chat *t, struct heard *h)
{
    memset(h, 0, sizeof *h);
    chat_save(t);
    struct conv_event ev;
    for (bool over = false; !over; conv_event_fini(&ev)) {
        assert_true(conv_wait(c, &ev, 20000));
        over = ev.kind == CE_SAVED;
        if (ev.kind == CE_NOTICE) {
            h->notices++;
            buf_adds(&h->notice, ev.text.data);
        }
    }
}

/* Texts that the tokenizer gives back as they were; in the end tokens that depend on all
 * that came before. */
static void answer_or_hash(int turn)
{
    if (turn < 2) {
        say(turn == 0 ? "First answer.<|im_end|>" : "Second.<|im_end|>");
    } else {
        fake_script(NULL, 0);
    }
}

/* Three turns, uninterrupted; then the same with the program ended and started in
 * between, in several ways: the same tokens, and so much reused. */
static void gone_on_with(void **state)
{
    (void)state;
    struct conv_opts o = stored_opts("ctx=2048");
    struct err e = ERR_INIT;
    struct heard h;
    int32_t want[3][16];
    size_t want_n[3];
    int cached[3];
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    for (int i = 0; i < 3; i++) {
        answer_or_hash(i);
        ask(c, t, "Tell me more.", &h);
        const struct chat_result *r = chat_last(t);
        want_n[i] = r->n_ids;
        memcpy(want[i], r->ids, r->n_ids * sizeof *r->ids);
        cached[i] = r->cached_tokens;
        heard_fini(&h);
    }
    assert_true(cached[1] > 0 && cached[2] > cached[1]);
    conv_close(c);
    /* by name, and a process for each turn; the last finds the state of before */
    for (int i = 0; i < 3; i++) {
        answer_or_hash(i);
        c = open_conv(&o);
        t = chat_create(c);
        assert_int_equal(chat_session(t, "my talk", &e), 0);
        ask(c, t, "Tell me more.", &h);
        const struct chat_result *r = chat_last(t);
        assert_int_equal(r->n_ids, want_n[i]);
        assert_memory_equal(r->ids, want[i], want_n[i] * sizeof *r->ids);
        assert_int_equal(r->cached_tokens, cached[i]);
        assert_int_equal(h.notices, 0);
        heard_fini(&h);
        conv_close(c); /* which saves the state */
    }
    struct view_chat v;
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_session(t, "my talk", &e), 0);
    ask(c, t, "And?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    const int64_t id = v.conversation;
    assert_true(id > 0);
    save_now(c, t, &h);
    assert_int_equal(h.notices, 0);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.state_saved);
    save_now(c, t, &h); /* there is nothing more to save */
    heard_fini(&h);
    /* while it is open, nobody else goes on with it, here or elsewhere */
    struct chat *other = chat_create(c);
    assert_int_equal(chat_resume(other, id, NULL, NULL, &e), QE_BUSY);
    assert_non_null(strstr(e.msg, "is open here already"));
    assert_int_equal(chat_session(other, "my talk", &e), QE_BUSY);
    assert_int_equal(chat_resume(other, 99999, NULL, NULL, &e), QE_NOTFOUND);
    assert_int_equal(chat_session(other, "", &e), QE_USAGE);
    /* /new lets go of it */
    chat_clear(t);
    for (int i = 0; i < 1000 && (chat_view(t, &v), v.conversation != 0); i++) {
        usleep(1000);
    }
    struct told told = {0};
    assert_int_equal(chat_resume(other, id, hear_turn, &told, &e), 0);
    assert_int_equal(count_of(told.all.data, "user:Tell me more./- "), 3);
    assert_int_equal(count_of(told.all.data, "model:"), 4);
    buf_free(&told.all);
    conv_close(c);
}

static void the_states(char *path, size_t n, int *count)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s/quasar/states", state_home);
    DIR *d = opendir(folder);
    *count = 0;
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        if (f->d_name[0] != '.') {
            snprintf(path, n, "%s/%s", folder, f->d_name);
            (*count)++;
        }
    }
    closedir(d);
}

/* One turn of a stored conversation in a conv of its own. */
static void one_turn(struct conv_opts *o, const char *name, struct heard *h, int *cached,
                     int32_t *ids, size_t *n_ids)
{
    struct err e = ERR_INIT;
    struct conv *c = open_conv(o);
    struct chat *t = chat_create(c);
    assert_int_equal(chat_session(t, name, &e), 0);
    ask(c, t, "Tell me more.", h);
    *cached = chat_last(t)->cached_tokens;
    *n_ids = chat_last(t)->n_ids;
    memcpy(ids, chat_last(t)->ids, *n_ids * sizeof *ids);
    conv_close(c);
}

/* Whatever became of the state: one line, the same answer, nothing lost. */
static void states_that_cannot_be_used(void **state)
{
    (void)state;
    char path[600], folder[256], cmd[700];
    snprintf(folder, sizeof folder, "%s/quasar", state_home);
    const char *const ways[] = {"none", "missing", "flipped", "cut", "empty", "newer", "model"};
    int32_t ids[16], want[16];
    size_t n = 0, want_n = 0;
    say("An answer.<|im_end|>");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
        assert_int_equal(system(cmd), 0);
        struct conv_opts o = stored_opts("ctx=2048");
        struct heard h;
        int cached = 0, count = 0;
        o.save_state = i > 0;
        one_turn(&o, "talk", &h, &cached, ids, &n);
        heard_fini(&h);
        o.save_state = true;
        if (i > 0) {
            the_states(path, sizeof path, &count);
            assert_int_equal(count, 1);
            FILE *f = fopen(path, "r+");
            struct stat st;
            assert_int_equal(fstat(fileno(f), &st), 0);
            if (i == 2) {
                fseek(f, st.st_size / 2, SEEK_SET);
                const int ch = fgetc(f);
                fseek(f, st.st_size / 2, SEEK_SET);
                fputc(ch ^ 1, f);
            }
            if (i == 5) {
                fseek(f, 8, SEEK_SET);
                fputc(9, f);
            }
            fclose(f);
            assert_int_equal(i == 1   ? unlink(path)
                             : i == 3 ? truncate(path, st.st_size - 1)
                             : i == 4 ? truncate(path, 0)
                                      : 0,
                             0);
        }
        if (i == 6) {
            o = stored_opts("ctx=2048,compat=9");
        }
        one_turn(&o, "talk", &h, &cached, ids, &n);
        assert_int_equal(cached, 0);
        if (h.notices != 1 || !strstr(h.notice.data, "read again")) {
            fail_msg("%s: %d notices: %s", ways[i], h.notices, h.notices ? h.notice.data : "");
        }
        if (i == 0) {
            want_n = n;
            memcpy(want, ids, n * sizeof *ids);
        }
        assert_int_equal(n, want_n);
        assert_memory_equal(ids, want, n * sizeof *ids);
        /* damaged files are gone, foreign ones stay */
        the_states(path, sizeof path, &count);
        if (count != (i == 5 || i == 6 ? 2 : 1)) {
            fail_msg("%s: %d files; %s", ways[i], count, h.notice.data ? h.notice.data : "");
        }
        char *rows = latest_rows();
        assert_int_equal(count_of(rows, "user|Tell me more."), 2);
        assert_int_equal(count_of(rows, "assistant|"), 2);
        free(rows);
        heard_fini(&h);
        /* the turn after that has a state again */
        one_turn(&o, "talk", &h, &cached, ids, &n);
        assert_int_equal(h.notices, 0);
        assert_true(cached > 0);
        heard_fini(&h);
    }
}

/* States that cannot be written are told once; those over the budget go. */
static void no_room_for_states(void **state)
{
    (void)state;
    char cmd[300], path[600];
    snprintf(cmd, sizeof cmd, "rm -rf %s/quasar", state_home);
    assert_int_equal(system(cmd), 0);
    struct conv_opts o = stored_opts("ctx=2048");
    struct heard h;
    say("An answer.<|im_end|>");
    o.state_budget = 100;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    int told = 0;
    for (int i = 0; i < 3; i++) {
        ask(c, t, "Tell me more.", &h);
        heard_fini(&h);
        save_now(c, t, &h);
        told += h.notices;
        assert_true(h.notices == 0 || strstr(h.notice.data, "--state-budget"));
        heard_fini(&h);
    }
    assert_int_equal(told, 1);
    conv_close(c);
    /* room for two of them */
    int count = 0, cached = 0;
    int32_t ids[16];
    size_t n = 0;
    o.state_budget = 20000;
    for (int i = 0; i < 5; i++) {
        one_turn(&o, "talk", &h, &cached, ids, &n);
        assert_true(i == 0 || cached > 0);
        heard_fini(&h);
        the_states(path, sizeof path, &count);
        assert_true(count >= 1 && count <= 4);
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size * count <= 20000 + st.st_size);
}

/* A prompt that a conversation left on disk serves another run's; a bare continuation
 * leaves none. */
static void prompts_on_disk(void **state)
{
    (void)state;
    struct buf text = BUF_INIT;
    for (int i = 0; i < 500; i++) {
        buf_printf(&text, "%d and ", i);
    }
    char dir[] = "/tmp/quasar-conv-prefixes-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int run = 0; run < 4; run++) {
        struct conv_opts o = opts("ctx=16384");
        o.prefix_dir = dir;
        o.prefix_least = 64;
        struct conv *c = open_conv(&o);
        struct chat *t = chat_create(c);
        struct heard h;
        say("Yes.<|im_end|>");
        if (run < 2) { /* never written */
            struct err e = ERR_INIT;
            assert_int_equal(chat_complete(t, text.data, text.len, &e), 0);
            hear(c, t, &h);
        } else {
            ask(c, t, text.data, &h);
        }
        const struct chat_result *r = chat_last(t);
        assert_string_equal(r->reuse, run < 3 ? "none" : "disk");
        assert_string_equal(r->reuse_short, run < 3 ? "cold" : "all");
        if (run == 3) {
            assert_true(r->cached_tokens > 1000 && r->cached_tokens % 64 == 0);
            assert_true(r->prompt_tokens - r->cached_tokens < 80);
        }
        heard_fini(&h);
        conv_close(c);
    }
    buf_free(&text);
    DIR *d = opendir(dir);
    struct dirent *f = NULL;
    int files = 0;
    while ((f = readdir(d))) {
        char path[512];
        snprintf(path, sizeof path, "%s/%.255s", dir, f->d_name);
        files += strstr(f->d_name, ".prefix") != NULL;
        if (f->d_name[0] != '.') {
            unlink(path);
        }
    }
    closedir(d);
    assert_int_equal(files, 1);
    assert_int_equal(rmdir(dir), 0);
}

struct seen {
    int64_t id;
    struct buf title;
    bool pinned;
    int64_t state_bytes;
};

static bool see(void *ctx, const struct conv_stored *s)
{
    struct seen *k = ctx;
    k->id = s->id;
    buf_truncate(&k->title, 0);
    buf_adds(&k->title, s->title);
    k->pinned = s->pinned;
    k->state_bytes = s->state_bytes;
    return false;
}

/* What the list shows of the conversation that was at work last. */
static void look(struct conv *c, struct seen *k)
{
    assert_int_equal(conv_list(c, 1, see, k, NULL), 0);
}

/* A smaller budget while it runs: states go at once, and none is saved that is too large. */
static void another_budget(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = o.save_state = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct conv_disk disk;
    uint64_t freed = 0;
    say("Yes.<|im_end|>");
    ask(c, t, "One?", &h);
    heard_fini(&h);
    save_now(c, t, &h);
    heard_fini(&h);
    assert_int_equal(conv_set_budget(c, UINT64_MAX, &freed, NULL), 0);
    assert_int_equal(freed, 0);
    assert_int_equal(conv_disk(c, &disk, NULL), 0);
    assert_true(disk.state > 0 && disk.budget > 1000000);
    assert_int_equal(conv_set_budget(c, 16, &freed, NULL), 0);
    assert_int_equal(freed > 0, 1);
    assert_int_equal(conv_disk(c, &disk, NULL), 0);
    assert_int_equal(disk.state, 0);
    assert_int_equal(disk.budget, 16);
    ask(c, t, "Two?", &h);
    heard_fini(&h);
    save_now(c, t, &h);
    assert_non_null(strstr(TEXT(h.notice), "the engine's state is not saved"));
    heard_fini(&h);
    struct view_chat v;
    chat_view(t, &v);
    assert_true(v.saved && !v.state_saved);
    conv_close(c);
}

static void named_pinned_and_forgotten(void **state)
{
    (void)state;
    struct conv_opts o = stored_opts("ctx=2048");
    struct err e = ERR_INIT;
    struct heard h;
    struct seen k = {0};
    uint64_t bytes = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    say("Yes.<|im_end|>");
    ask(c, t, "Something new?", &h);
    heard_fini(&h);
    save_now(c, t, &h);
    heard_fini(&h);
    look(c, &k);
    assert_string_equal(k.title.data, "Something new?");
    assert_false(k.pinned);
    assert_true(k.state_bytes > 0);
    assert_int_equal(conv_rename(c, k.id, "  the new one ", &e), 0);
    assert_int_equal(conv_pin(c, k.id, true, &e), 0);
    assert_int_equal(conv_forget(c, k.id, &bytes, &e), 0);
    const int64_t had = k.state_bytes;
    assert_int_equal(bytes, had);
    look(c, &k);
    assert_string_equal(k.title.data, "the new one");
    assert_true(k.pinned);
    assert_int_equal(k.state_bytes, 0);
    assert_int_equal(conv_pin(c, k.id, false, &e), 0);
    look(c, &k);
    assert_false(k.pinned);
    assert_int_equal(conv_rename(c, k.id, "17", &e), QE_USAGE);
    assert_int_equal(conv_rename(c, 99999, "no such", &e), QE_NOTFOUND);
    assert_int_equal(conv_pin(c, 99999, true, &e), QE_NOTFOUND);
    buf_free(&k.title);
    conv_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transcript_is_kept),
        cmocka_unit_test(prompts_on_disk),
        cmocka_unit_test(a_bad_catalogue_is_salvaged),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(gone_on_with),
        cmocka_unit_test(states_that_cannot_be_used),
        cmocka_unit_test(no_room_for_states),
        cmocka_unit_test(a_rewound_chat_branches),
        cmocka_unit_test(branches_of_one_conversation),
        cmocka_unit_test(what_waits_is_kept),
        cmocka_unit_test(drafts_of_branches),
        cmocka_unit_test(a_folder_that_goes),
        cmocka_unit_test(a_rewound_chat_without_a_disk),
        cmocka_unit_test(an_aside_leaves_all_as_it_was),
        cmocka_unit_test(a_store_that_comes_later),
        cmocka_unit_test(figures_outlive_the_turn),
        cmocka_unit_test(a_chat_goes_to_another_conversation),
        cmocka_unit_test(another_budget),
        cmocka_unit_test(named_pinned_and_forgotten),
    };
    return cmocka_run_group_tests(tests, conv_prepare, conv_clean);
}
