/* The search of the transcript: its pattern is typed on the activity rule, and
 * every key of it shows what is found so far. Enter keeps the marks and gives
 * the keys to the transcript. */
#include "config.h"

#include <curses.h>
#include <stdio.h>
#include <string.h>

#include "tui/app.h"

static void look(struct app *a)
{
    transcript_search(a->cur->transcript, NULL);
    search_free(a->cur->search);
    a->cur->search =
        search_create(a->cur->find_text.data ? a->cur->find_text.data : "", a->cur->find_text.len);
    transcript_search(a->cur->transcript, a->cur->search);
}

void find_open(struct app *a, const char *text)
{
    if (transcript_is_empty(a->cur->transcript)) {
        app_note(a, R_WARN, "there is nothing to search yet");
        return;
    }
    if (!a->cur->search) {
        a->cur->find_followed = transcript_following(a->cur->transcript);
    }
    buf_truncate(&a->cur->find_text, 0);
    buf_adds(&a->cur->find_text, text);
    a->overlay = OV_FIND;
    look(a);
}

void find_in(struct pane *p, const char *pattern, long before)
{
    find_close(p);
    p->find_followed = true;
    buf_truncate(&p->find_text, 0);
    buf_adds(&p->find_text, pattern);
    p->search = search_create(pattern, strlen(pattern));
    p->focus = p->search != NULL;
    transcript_search_in(p->transcript, p->search, before);
}

void find_close(struct pane *p)
{
    if (p == p->app->cur && p->app->overlay == OV_FIND) {
        p->app->overlay = OV_NONE;
    }
    transcript_search(p->transcript, NULL);
    search_free(p->search);
    p->search = NULL;
}

bool find_key(struct app *a, const struct key *k)
{
    const struct key none = {.type = K_NONE};
    bool is_prefix = false;
    const enum action act = overlay_action(a, k);
    const bool again = keymap_lookup(a->keys, CTX_COMPOSER, &none, k, &is_prefix) == ACT_FIND;
    if (act == ACT_FIND_OLDER || act == ACT_FIND_NEWER || again) {
        find_step(a, act == ACT_FIND_NEWER ? 1 : -1);
    } else if (act == ACT_CHOOSE) {
        a->overlay = OV_NONE;
        if (!a->cur->search) {
            find_close(a->cur);
        } else {
            a->cur->focus = true;
        }
    } else if (act == ACT_BACK) {
        find_close(a->cur);
        if (a->cur->find_followed) {
            transcript_follow(a->cur->transcript);
        }
    } else if (overlay_query_key(a, &a->cur->find_text, k)) {
        look(a);
    } else {
        return false;
    }
    return true;
}

void find_step(struct app *a, int dir)
{
    if (!a->cur->search) {
        app_note(a, R_TEXT, "nothing is searched for; %s begins", app_way(a, ACT_FIND));
        return;
    }
    transcript_search_step(a->cur->transcript, dir);
}

void find_draw(const struct app *a, int y)
{
    const struct theme *th = &a->theme;
    size_t shown = 0;
    const size_t n = transcript_search_count(a->cur->transcript, &shown);
    char label[160];
    char count[48];
    const bool typing = a->overlay == OV_FIND;
    snprintf(count, sizeof count, "%zu/%zu", shown, n);
    snprintf(label, sizeof label, " find: %.100s%s ",
             a->cur->find_text.data ? a->cur->find_text.data : "", typing ? "" : " ");
    text_blank(th, y, 0, COLS);
    int x = text_put(th, y, 0, COLS, R_STRONG, label);
    if (!a->cur->search) {
        (void)text_put(th, y, x + 1, COLS - x - 1, R_DIM,
                       a->cur->focus ? "type what to look for; Esc Esc, then / is for commands"
                                     : "type what to look for");
        return;
    }
    if (n == 0) {
        const struct key_hint all = {ACT_SESSIONS, ACT_NONE, "looks in every conversation"};
        char hint[KEY_HINT];
        keymap_hint(a->keys, &all, CTX_COMPOSER, hint);
        x += 1 + text_put(th, y, x + 1, COLS - x - 1, R_WARN, "nothing found");
        if (a->cur->focus) {
            snprintf(hint, sizeof hint, "Esc Esc goes back to typing");
        }
        if (hint[0] && x + 3 + (int)strlen(hint) < COLS) {
            x += 2 + text_put(th, y, x + 2, COLS - x - 2, R_DIM, hint);
        }
    } else {
        x += 1 + text_put(th, y, x + 1, COLS - x - 1, R_TEXT, count);
    }
    static const struct key_hint keys[] = {{ACT_FIND_OLDER, ACT_FIND_NEWER, "step"},
                                           {ACT_CHOOSE, ACT_NONE, "keeps"},
                                           {ACT_BACK, ACT_NONE, "closes"}};
    char hint[160];
    keymap_hints(a->keys, keys, 3, typing ? CTX_FIND : CTX_TRANSCRIPT, hint, sizeof hint);
    if (x + 2 + (int)strlen(hint) < COLS) {
        (void)text_put(th, y, x + 2, COLS - x - 2, R_DIM, hint);
    }
}
