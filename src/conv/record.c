/* Keeps the catalogue in step with a chat, and keeps its troubles away from it. */
#include "config.h"
#include "conv/record.h"

#include <stdlib.h>

#include "base/io.h"
#include "base/log.h"

void record_open(struct record *r, bool wanted)
{
    r->catalog = NULL;
    if (!wanted) {
        return;
    }
    char *dir = io_xdg_state();
    char *path = io_join(dir, "catalog.db");
    struct err e = ERR_INIT;
    if (catalog_open(path, &r->catalog, &e) < 0) {
        r->catalog = NULL;
        log_line(LOG_WARN, "conversations are not saved this time: %s", e.msg);
    }
    free(path);
    free(dir);
}

void record_close(struct record *r)
{
    catalog_close(r->catalog);
    r->catalog = NULL;
}

/* The first failure is the last one heard of. */
static void give_up(struct record *r, struct record_chat *c, const struct err *e)
{
    log_line(LOG_WARN, "this conversation is not saved any more: %s", e->msg);
    record_close(r);
    c->saved = false;
}

bool record_user(struct record *r, struct record_chat *c, const char *model, const char *system,
                 const char *text, size_t n)
{
    c->user = c->answer = 0;
    c->saved = false;
    if (!r->catalog) {
        return false;
    }
    struct err e = ERR_INIT;
    const struct catalog_new fresh = {.model = model, .system = system};
    if (c->conv == 0 && catalog_begin(r->catalog, &fresh, &c->conv, &e) < 0) {
        give_up(r, c, &e);
        return false;
    }
    struct catalog_turn t = {.role = CAT_USER, .text = text, .text_n = n};
    if (catalog_add(r->catalog, c->conv, c->last, &t, &c->user, &e) < 0) {
        give_up(r, c, &e);
        return false;
    }
    return true;
}

void record_answer(struct record *r, struct record_chat *c, const struct catalog_turn *t)
{
    if (!r->catalog || c->user == 0) {
        return;
    }
    struct err e = ERR_INIT;
    int rc = c->answer == 0 ? catalog_add(r->catalog, c->conv, c->user, t, &c->answer, &e)
                            : catalog_update(r->catalog, c->answer, t, &e);
    if (rc < 0) {
        give_up(r, c, &e);
        return;
    }
    c->saved = true;
}

void record_done(struct record_chat *c, bool kept)
{
    if (kept && c->answer > 0) {
        c->last = c->answer;
    }
    c->user = c->answer = 0;
}
