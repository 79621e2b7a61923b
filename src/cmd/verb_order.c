/* quasar sessions gc and verify: what keeps the folder in order, and looks whether it
 * is. */
#include "config.h"
#include "cmd/verb.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "cmd/convopts.h"
#include "cmd/sessout.h"
#include "sessions/prefixdir.h"

static int gc_status(const struct store_gc *done, struct err *e)
{
    return done->left == 0 ? 0
           : done->left > 1
               ? err_set(e, QE_IO, "%d things could not be read or deleted, first: %s", done->left,
                         done->first.msg)
               : err_set(e, QE_IO, "one thing could not be read or deleted: %s", done->first.msg);
}

int verb_gc(struct verb_in *in, struct err *e)
{
    struct store_gc done;
    int prompts = 0;
    uint64_t prompt_bytes = 0;
    char *dir = NULL;
    int rc = convopts_prefix_dir(in->cf, &dir, e);
    rc = rc < 0 ? rc : store_gc(in->store, &done, e);
    if (rc < 0) {
        free(dir);
        return rc;
    }
    struct err why = ERR_INIT;
    if (dir && prefixdir_sweep(dir, &prompts, &prompt_bytes, &why) < 0 && done.left++ == 0) {
        done.first = why;
    }
    done.bytes += prompt_bytes;
    free(dir);
    if (in->json) {
        json_print_take(json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:i}", "states", done.states,
                                  "damaged", done.damaged, "damaged_prompts", prompts, "lost",
                                  done.lost, "leftovers", done.leftovers, "bytes",
                                  (json_int_t)done.bytes, "left", done.left));
        return gc_status(&done, e);
    }
    char size[16];
    sessout_size(done.bytes, size);
    printf("%d state%s deleted, %d whose file was gone forgotten, %d other file%s removed; %s "
           "freed\n",
           done.states, done.states == 1 ? "" : "s", done.lost, done.leftovers,
           done.leftovers == 1 ? "" : "s", size);
    if (done.damaged + prompts > 0) {
        printf("damaged, and deleted: %d state%s of conversations, %d of prompts; what was said is "
               "read again when it is gone on with\n",
               done.damaged, done.damaged == 1 ? "" : "s", prompts);
    }
    return gc_status(&done, e);
}

struct verdict {
    const struct verb_in *in;
    json_t *faults;
    int states, bad;
    bool reindexed;
};

static void verify_state(void *ctx, const struct catalog_state *st, const char *fault)
{
    struct verdict *v = ctx;
    v->states++;
    if (!fault) {
        return;
    }
    v->bad++;
    json_array_append_new(v->faults, json_str_lossy(fault, strlen(fault)));
    if (!v->in->json) {
        printf("conversation %lld, turn %lld: ", (long long)st->conv, (long long)st->turn);
        verb_safe(fault);
        putchar('\n');
    }
}

/* What was salvaged on the way in, or by --repair; null: nothing was. */
static json_t *salvaged_json(const struct salvage *s)
{
    return s ? json_pack("{s:i, s:i, s:i, s:i, s:s}", "conversations", s->conversations, "turns",
                         s->turns, "lost_turns", s->no_turn, "lost_titles", s->no_head, "kept",
                         s->kept)
             : json_null();
}

/* Damage is status 1, mended or not: whoever asks learns of it once. */
static int verdict_of(const struct verdict *v, const struct salvage *s, const struct err *why,
                      struct err *e)
{
    if (why->code < 0) {
        return err_set(e, why->code, "%s", why->msg);
    }
    if (s) {
        return err_set(e, QE_FORMAT,
                       "the catalogue was damaged; it has been salvaged and is sound now, and the "
                       "damaged one is %s",
                       s->kept);
    }
    if (v->reindexed) {
        return err_set(e, QE_FORMAT,
                       "the index of words was not that of the texts; it has been made anew");
    }
    return v->bad == 0 ? 0
                       : err_set(e, QE_FORMAT,
                                 "%d saved state%s cannot be used; what was said is not touched by "
                                 "that (quasar sessions gc deletes %s)",
                                 v->bad, v->bad == 1 ? "" : "s", v->bad == 1 ? "it" : "them");
}

int verb_verify(struct verb_in *in, struct err *e)
{
    struct verdict v = {.in = in, .faults = json_array()};
    struct err why = ERR_INIT;
    int rc = catalog_verify(in->c, &why);
    if (rc == QE_FORMAT && conf_flag(in->cf, "repair") && !store_fixed(in->store)) {
        struct buf notice = BUF_INIT;
        why = (struct err)ERR_INIT;
        v.reindexed = catalog_reindex(in->c, NULL) == 0 && catalog_verify(in->c, NULL) == 0;
        rc = v.reindexed ? 0 : store_repair(in->store, &notice, e);
        in->c = store_catalog(in->store);
        verb_notice(&notice);
        buf_free(&notice);
        if (rc < 0) {
            json_decref(v.faults);
            return rc;
        }
    } else if (rc < 0) {
        json_array_append_new(v.faults, json_str_lossy(why.msg, strlen(why.msg)));
    }
    const struct salvage *s = store_salvaged(in->store);
    const int states = rc == 0 ? store_verify_states(in->store, verify_state, &v, e) : 0;
    if (in->json) {
        json_print_take(json_pack("{s:b, s:o, s:i, s:i, s:O}", "catalog",
                                  rc == 0 && !s && !v.reindexed, "salvaged", salvaged_json(s),
                                  "states", v.states, "damaged_states", v.bad, "faults", v.faults));
    } else if (rc == 0 && states == 0) {
        printf("the catalogue is %s%s; %d of %d states can be used\n", s ? "salvaged" : "sound",
               v.reindexed ? " now" : "", v.states - v.bad, v.states);
    }
    json_decref(v.faults);
    return states < 0 ? states : verdict_of(&v, s, &why, e);
}
