/* The table of actions. A key's name is what keys_name gives for it; lookup
 * compares names, so that table, help and dispatch cannot drift apart. */
#include "config.h"
#include "tui/keys.h"

#include <string.h>

#include "base/utf8.h"

static const struct key_action table[] = {
    {ACT_SEND, CTX_COMPOSER, {"Enter"}, NULL, NULL, "send; while the model works: queue"},
    {ACT_NEWLINE,
     CTX_COMPOSER,
     {"Alt-Enter", "^J", "Shift-Enter"},
     NULL,
     NULL,
     "new line (also: a backslash, then Enter)"},
    {ACT_STOP_OR_QUIT,
     CTX_BOTH | CTX_HELP,
     {"^C"},
     NULL,
     NULL,
     "stop the answer; else clear the draft; twice: quit"},
    {ACT_ESCAPE,
     CTX_COMPOSER,
     {"Esc"},
     NULL,
     NULL,
     "close a list; else stop; twice: to earlier messages"},
    {ACT_EOF, CTX_COMPOSER, {"^D"}, NULL, NULL, "quit, when the composer is empty"},
    {ACT_FOCUS, CTX_BOTH, {"Tab", "Shift-Tab"}, NULL, NULL, "between composer and transcript"},
    {ACT_STATS, CTX_BOTH, {"F2"}, "/stats", NULL, "speed, tokens of a round, acceptance of drafts"},
    {ACT_SESSIONS, CTX_BOTH, {"F4"}, "/sessions", NULL, "stored conversations, to go on with one"},
    {ACT_FIND, CTX_BOTH, {"^S"}, "/find", "[TEXT]", "search the transcript"},
    {ACT_FIND, CTX_TRANSCRIPT, {"/"}, NULL, NULL, "search the transcript"},
    {ACT_FIND_OLDER, CTX_TRANSCRIPT, {"n"}, NULL, NULL, "the match before, further up"},
    {ACT_FIND_NEWER, CTX_TRANSCRIPT, {"N"}, NULL, NULL, "the match after, further down"},
    {ACT_HISTORY, CTX_COMPOSER, {"^R"}, NULL, NULL, "search earlier prompts"},
    {ACT_LIBEDIT, CTX_COMPOSER, {"Up", "Down"}, NULL, NULL, "move; at the edge: earlier prompts"},
    {ACT_EDITOR, CTX_COMPOSER, {"^G", "^X ^E"}, NULL, NULL, "edit the draft in $VISUAL or $EDITOR"},
    {ACT_UNQUEUE, CTX_COMPOSER, {"Alt-Up"}, NULL, NULL, "take back the last queued message"},
    {ACT_UNDO_EDIT, CTX_COMPOSER, {"^_"}, NULL, NULL, "undo in the draft"},
    {ACT_LIBEDIT, CTX_COMPOSER, {"^A", "^E"}, NULL, NULL, "start, end of the line"},
    {ACT_LIBEDIT, CTX_COMPOSER, {"Alt-b", "Alt-f"}, NULL, NULL, "a word back, forward"},
    {ACT_LIBEDIT,
     CTX_COMPOSER,
     {"^W", "^U", "^K"},
     NULL,
     NULL,
     "cut a word, to the start, to the end of the line"},
    {ACT_LIBEDIT, CTX_COMPOSER, {"^Y"}, NULL, NULL, "put back what was cut"},
    {ACT_PREV_BLOCK, CTX_TRANSCRIPT, {"Up", "k"}, NULL, NULL, "previous message"},
    {ACT_NEXT_BLOCK, CTX_TRANSCRIPT, {"Down", "j"}, NULL, NULL, "next message"},
    {ACT_FOLD, CTX_TRANSCRIPT, {"z", "Enter"}, NULL, NULL, "open or fold the thought"},
    {ACT_FOLD_ALL, CTX_TRANSCRIPT, {"Z"}, NULL, NULL, "open or fold all thoughts"},
    {ACT_COPY_BLOCK, CTX_TRANSCRIPT, {"y"}, NULL, NULL, "copy the message"},
    {ACT_RETRY, CTX_TRANSCRIPT, {"r"}, "/retry", NULL, "answer the question again"},
    {ACT_EDIT, CTX_TRANSCRIPT, {"e"}, "/edit", "[N]", "edit the question and ask it anew"},
    {ACT_BRANCH, CTX_TRANSCRIPT, {"b"}, "/branch", "[N]", "go on from this answer"},
    {ACT_BACK, CTX_TRANSCRIPT, {"Esc", "q"}, NULL, NULL, "back to the composer"},
    {ACT_PAGE_UP, CTX_BOTH | CTX_HELP, {"PgUp"}, NULL, NULL, "scroll up"},
    {ACT_PAGE_DOWN, CTX_BOTH | CTX_HELP, {"PgDn"}, NULL, NULL, "scroll down"},
    {ACT_PAGE_DOWN, CTX_TRANSCRIPT, {"^D", "Space"}, NULL, NULL, "scroll down"},
    {ACT_TOP, CTX_BOTH | CTX_HELP, {"^Home"}, NULL, NULL, "first row"},
    {ACT_BOTTOM, CTX_BOTH | CTX_HELP, {"^End"}, NULL, NULL, "last row, and follow"},
    {ACT_TOP, CTX_TRANSCRIPT, {"g"}, NULL, NULL, "first row"},
    {ACT_BOTTOM, CTX_TRANSCRIPT, {"G"}, NULL, NULL, "last row, and follow"},
    {ACT_HELP,
     CTX_BOTH | CTX_HELP,
     {"F1"},
     "/help",
     NULL,
     "the keys that work here; /help: all of them"},
    {ACT_HELP, CTX_TRANSCRIPT, {"?"}, NULL, NULL, "the keys that work here"},
    {ACT_REDRAW, CTX_BOTH | CTX_HELP, {"^L"}, NULL, NULL, "draw everything again"},
    {ACT_SUSPEND, CTX_BOTH | CTX_HELP, {"^Z"}, NULL, NULL, "suspend"},
    {ACT_PREV_BLOCK, CTX_HELP, {"Up"}, NULL, NULL, "a row up"},
    {ACT_NEXT_BLOCK, CTX_HELP, {"Down"}, NULL, NULL, "a row down"},
    {ACT_TOP, CTX_HELP, {"Home"}, NULL, NULL, "first row"},
    {ACT_BOTTOM, CTX_HELP, {"End"}, NULL, NULL, "last row"},
    {ACT_PAGE_DOWN, CTX_HELP, {"^D"}, NULL, NULL, "scroll down"},
    {ACT_BACK, CTX_HELP, {"Esc"}, NULL, NULL, "close"},
    {ACT_ATTACH, 0, {NULL}, "/attach", "FILE", "put a text file into the message"},
    {ACT_NEW, 0, {NULL}, "/new", NULL, "start a new conversation; this one stays saved"},
    {ACT_THINK, 0, {NULL}, "/think", "on|off|show|hide", "think before answering; show thoughts"},
    {ACT_SYSTEM, 0, {NULL}, "/system", "[TEXT]", "set the system prompt (empty: none)"},
    {ACT_COPY, 0, {NULL}, "/copy", NULL, "copy the last answer"},
    {ACT_EXPORT, 0, {NULL}, "/export", "md|txt FILE", "write the conversation to a file"},
    {ACT_SET,
     0,
     {NULL},
     "/set",
     "KEY VALUE",
     "temp, top-k, top-p, min-p, presence, frequency, repetition, seed, max-tokens, effort"},
    {ACT_EMACS, 0, {NULL}, "/emacs", NULL, "Emacs keys in the composer"},
    {ACT_VI, 0, {NULL}, "/vi", NULL, "vi keys in the composer"},
    {ACT_KEYS, 0, {NULL}, "/keys", NULL, "every key"},
    {ACT_QUIT, 0, {NULL}, "/quit", NULL, "leave"},
};

#define N_TABLE (sizeof table / sizeof *table)

const struct key_action *keys_table(size_t *n)
{
    *n = N_TABLE;
    return table;
}

void keys_name(const struct key *k, char out[32])
{
    static const char *const names[] = {
        [K_ENTER] = "Enter",   [K_TAB] = "Tab",       [K_BACKSPACE] = "Backspace",
        [K_ESC] = "Esc",       [K_UP] = "Up",         [K_DOWN] = "Down",
        [K_LEFT] = "Left",     [K_RIGHT] = "Right",   [K_HOME] = "Home",
        [K_END] = "End",       [K_PGUP] = "PgUp",     [K_PGDN] = "PgDn",
        [K_INSERT] = "Insert", [K_DELETE] = "Delete",
    };
    char base[16] = "";
    if (k->type == K_CHAR) {
        if (k->code == ' ') {
            snprintf(base, sizeof base, "Space");
        } else if ((k->mods & KM_CTRL) && k->code >= 'a' && k->code <= 'z') {
            base[0] = (char)(k->code - 'a' + 'A');
        } else if (k->code < 0x110000 && (k->code < 0xD800 || k->code >= 0xE000)) {
            base[utf8_put(k->code, base)] = 0;
        }
    } else if (k->type == K_F) {
        snprintf(base, sizeof base, "F%u", (unsigned)(k->code % 100));
    } else if (k->type > K_CHAR && k->type < K_F && names[k->type]) {
        snprintf(base, sizeof base, "%s", names[k->type]);
    }
    snprintf(out, 32, "%s%s%s%s", k->mods & KM_CTRL ? "^" : "", k->mods & KM_ALT ? "Alt-" : "",
             k->mods & KM_SHIFT ? "Shift-" : "", base);
}

enum action keys_lookup(enum key_ctx ctx, const struct key *prefix, const struct key *k,
                        bool *is_prefix)
{
    char name[80] = "";
    size_t n = 0;
    *is_prefix = false;
    if (prefix->type != K_NONE) {
        keys_name(prefix, name);
        n = strlen(name);
        name[n++] = ' ';
    }
    keys_name(k, name + n);
    n = strlen(name);
    for (size_t i = 0; i < N_TABLE; i++) {
        if (!(table[i].ctx & ctx)) {
            continue;
        }
        for (size_t j = 0; j < 4 && table[i].keys[j]; j++) {
            const char *have = table[i].keys[j];
            if (strcmp(have, name) == 0) {
                return table[i].act;
            }
            if (strncmp(have, name, n) == 0 && have[n] == ' ') {
                *is_prefix = true;
            }
        }
    }
    return ACT_NONE;
}

/* Edit distance of short words. */
static size_t distance(const char *a, size_t n, const char *b)
{
    size_t m = strlen(b);
    size_t row[33];
    if (n > 32 || m > 32) {
        return 99;
    }
    for (size_t j = 0; j <= m; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diag + (a[i - 1] != b[j - 1]);
            diag = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
        }
    }
    return row[m];
}

const struct key_action *keys_command(const char *word, size_t n, const char **nearest)
{
    size_t best = n / 2 < 3 ? n / 2 + 1 : 4; /* farther than half the word is a guess */
    *nearest = NULL;
    for (size_t i = 0; i < N_TABLE; i++) {
        const char *c = table[i].command;
        if (!c) {
            continue;
        }
        if (strlen(c) == n && memcmp(c, word, n) == 0) {
            return &table[i];
        }
        size_t d = distance(word, n, c);
        if (d < best) {
            best = d;
            *nearest = c;
        }
    }
    return NULL;
}

static void join_keys(const struct key_action *a, char out[48])
{
    size_t at = 0;
    out[0] = 0;
    for (size_t j = 0; j < 4 && a->keys[j]; j++) {
        at += (size_t)snprintf(out + at, 48 - at, "%s%s", j ? ", " : "", a->keys[j]);
    }
}

static void section(const char *title, unsigned ctx, unsigned not_ctx, struct buf *out)
{
    buf_printf(out, "%s\n", title);
    for (size_t i = 0; i < N_TABLE; i++) {
        if ((table[i].ctx & CTX_BOTH) == ctx && !(table[i].ctx & not_ctx)) {
            char keys[48];
            join_keys(&table[i], keys);
            buf_printf(out, "  %-27s %s\n", keys, table[i].help);
        }
    }
    buf_addc(out, '\n');
}

void keys_help(unsigned ctx, struct buf *out)
{
    if (ctx & CTX_COMPOSER) {
        section("While typing", CTX_COMPOSER, 0, out);
    }
    if (ctx & CTX_TRANSCRIPT) {
        section("In the transcript (Tab goes there)", CTX_TRANSCRIPT, 0, out);
    }
    section("Anywhere", CTX_BOTH, 0, out);
    buf_adds(out, "Commands (a message that starts with / is sent with //)\n");
    for (size_t i = 0; i < N_TABLE; i++) {
        if (table[i].command) {
            char call[48];
            snprintf(call, sizeof call, "%s %s", table[i].command,
                     table[i].args ? table[i].args : "");
            buf_printf(out, "  %-27s %s\n", call, table[i].help);
        }
    }
}

void keys_print(FILE *f)
{
    struct buf b = BUF_INIT;
    keys_help(CTX_BOTH, &b);
    fputs(b.data, f);
    buf_free(&b);
}
