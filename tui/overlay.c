/* What opens over the transcript's last rows: lists of earlier prompts and of
 * conversations, and the keys that a list or the help takes for itself. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/app.h"

const struct key_hint overlay_hints[3] = {{ACT_PREV_BLOCK, ACT_NEXT_BLOCK, "choose"},
                                          {ACT_CHOOSE, ACT_NONE, "takes"},
                                          {ACT_BACK, ACT_NONE, "closes"}};

static size_t list_history(const struct app *a, const char **entry, const char **help, size_t max)
{
    const char *query = a->query.data ? a->query.data : "";
    size_t found = 0;
    for (size_t i = history_count(a->history); i > 0 && found < max; i--) {
        const char *s = history_at(a->history, i - 1);
        bool again = false;
        for (size_t k = 0; k < found; k++) {
            again = again || strcmp(entry[k], s) == 0;
        }
        if (!again && strcasestr(s, query)) {
            entry[found] = s;
            help[found++] = NULL;
        }
    }
    for (size_t i = 0; i < found / 2; i++) { /* the newest stands lowest */
        const char *s = entry[i];
        entry[i] = entry[found - 1 - i];
        entry[found - 1 - i] = s;
    }
    return found;
}

size_t overlay_list(struct app *a, const char **entry, const char **help, size_t max)
{
    size_t n = 0;
    if (a->overlay == OV_HISTORY) {
        n = list_history(a, entry, help, max);
    } else if (a->overlay == OV_QUEUE) {
        n = queue_list(a, entry, help, max);
    }
    if (n && a->pick >= n) {
        a->pick = n - 1;
    }
    return n;
}

bool overlay_query_key(struct app *a, struct buf *query, const struct key *k)
{
    if (k->type == K_BACKSPACE) {
        size_t n = query->len;
        while (n && ((unsigned char)query->data[n - 1] & 0xC0) == 0x80) {
            n--;
        }
        buf_truncate(query, n ? n - 1 : 0);
    } else if (overlay_action(a, k) == ACT_EMPTY) {
        buf_truncate(query, 0);
    } else if (k->type == K_CHAR && k->mods == 0) {
        char name[32];
        keys_name(k, name);
        buf_adds(query, k->code == ' ' ? " " : name);
    } else if (k->type == K_PASTE) {
        const struct buf *b = keyin_paste(a->input);
        const char *nl = b->len ? memchr(b->data, '\n', b->len) : NULL;
        buf_add(query, b->data, nl ? (size_t)(nl - b->data) : b->len);
    } else {
        return false;
    }
    return true;
}

unsigned overlay_ctx(const struct app *a)
{
    switch (a->overlay) {
    case OV_SESSIONS:
        return CTX_SESSIONS;
    case OV_QUEUE:
        return CTX_QUEUE;
    case OV_FIND:
        return CTX_FIND;
    case OV_HISTORY:
    case OV_PALETTE:
    case OV_FILES:
        return CTX_LIST;
    case OV_NONE:
    case OV_HELP:
    case OV_STATS:
        break;
    }
    return 0;
}

enum action overlay_action(const struct app *a, const struct key *k)
{
    const struct key none = {.type = K_NONE};
    bool is_prefix = false;
    const unsigned ctx = overlay_ctx(a);
    return ctx ? keymap_lookup(a->keys, (enum key_ctx)ctx, &none, k, &is_prefix) : ACT_NONE;
}

/* The prompt that is picked goes into the composer. */
static void take_prompt(struct app *a)
{
    const char *entry[16];
    const char *help[16];
    const size_t n = overlay_list(a, entry, help, 16);
    if (n) {
        const char *s = entry[n - 1 - a->pick];
        composer_set(a->cur->composer, s, strlen(s));
        pane_draft_changed(a->cur);
    }
}

void overlay_click(struct app *a, size_t up)
{
    if (a->pick != up) {
        a->pick = up;
    } else if (a->overlay == OV_HISTORY) {
        take_prompt(a);
        a->overlay = OV_NONE;
    } else if (a->overlay == OV_QUEUE && up < a->cur->n_queue) {
        a->overlay = OV_NONE;
        a->cur->focus = false;
        queue_edit(a, a->cur->n_queue - 1 - up);
    }
}

/* Keys of the history list; true when it was one. */
static bool list_key(struct app *a, const struct key *k)
{
    if (a->overlay == OV_FIND) {
        return find_key(a, k);
    }
    if (a->overlay == OV_SESSIONS) {
        return sessions_key(a, k);
    }
    if (a->overlay == OV_QUEUE) {
        return queue_key(a, k);
    }
    if (a->overlay != OV_HISTORY) {
        return false;
    }
    const struct key none = {.type = K_NONE};
    bool is_prefix = false;
    const enum action act = overlay_action(a, k);
    const bool again = keymap_lookup(a->keys, CTX_COMPOSER, &none, k, &is_prefix) == ACT_HISTORY;
    const size_t page = (size_t)screen_page(a);
    if (act == ACT_PREV_BLOCK || again) {
        a->pick++;
    } else if (act == ACT_NEXT_BLOCK) {
        a->pick -= a->pick > 0;
    } else if (act == ACT_PAGE_UP) {
        a->pick += page;
    } else if (act == ACT_PAGE_DOWN) {
        a->pick -= a->pick < page ? a->pick : page;
    } else if (act == ACT_BACK) {
        a->overlay = OV_NONE;
    } else if (act == ACT_CHOOSE) {
        take_prompt(a);
        a->overlay = OV_NONE;
    } else if (overlay_query_key(a, &a->query, k)) {
        a->pick = 0;
    } else {
        return false;
    }
    return true;
}

/* Keys of the help; false: it is closed, and the key goes where the focus is. */
static bool help_key(struct app *a, const struct key *k)
{
    bool is_prefix = false;
    const struct key none = {.type = K_NONE};
    const enum action here =
        keymap_lookup(a->keys, a->cur->focus ? CTX_TRANSCRIPT : CTX_COMPOSER, &none, k, &is_prefix);
    switch (keymap_lookup(a->keys, CTX_HELP, &none, k, &is_prefix)) {
    case ACT_PREV_BLOCK:
        a->help_top--;
        return true;
    case ACT_NEXT_BLOCK:
        a->help_top++;
        return true;
    case ACT_PAGE_UP:
        a->help_top -= screen_page(a);
        return true;
    case ACT_PAGE_DOWN:
        a->help_top += screen_page(a);
        return true;
    case ACT_TOP:
        a->help_top = 0;
        return true;
    case ACT_BOTTOM:
        a->help_top = (int)a->help.n_rows; /* as far as there is something to show */
        return true;
    case ACT_REDRAW:
        a->redraw = true;
        return true;
    case ACT_SUSPEND:
        app_suspend(a);
        return true;
    case ACT_NONE:
        a->overlay = OV_NONE;
        return here == ACT_HELP || here == ACT_BACK; /* what opened it, or leaves */
    default:                                         /* it is closed */
        a->overlay = OV_NONE;
        a->last_esc = false;
        return true;
    }
}

bool overlay_key(struct app *a, const struct key *k)
{
    return palette_key(a, k) || list_key(a, k) || (a->overlay == OV_HELP && help_key(a, k));
}
