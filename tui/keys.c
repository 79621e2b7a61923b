/* The table of actions, and the names of keys. A key's name is what keys_name gives for it;
 * lookup compares names, so that table, help and dispatch cannot drift apart. */
#include "config.h"
#include "tui/keys.h"

#include <string.h>
#include <strings.h>

#include "base/utf8.h"

static const struct key_action table[] = {
    {ACT_SEND, "send", CTX_COMPOSER, {"Enter"}, NULL, NULL, "send; while the model works: queue"},
    {ACT_NEWLINE,
     "newline",
     CTX_COMPOSER,
     {"Alt-Enter", "^J", "Shift-Enter"},
     NULL,
     NULL,
     "new line (also: a backslash, then Enter)"},
    {ACT_STOP_OR_QUIT,
     "stop",
     CTX_ALL,
     {"^C"},
     NULL,
     NULL,
     "stop the answer; else clear the draft; twice: quit"},
    {ACT_ESCAPE,
     "escape",
     CTX_COMPOSER,
     {"Esc"},
     NULL,
     NULL,
     "close a list; else stop; twice: to earlier messages"},
    {ACT_EOF,
     "quit-if-empty",
     CTX_COMPOSER,
     {"^D"},
     NULL,
     NULL,
     "quit, when the composer is empty"},
    {ACT_FOCUS,
     "focus",
     CTX_BOTH,
     {"Tab", "Shift-Tab"},
     NULL,
     NULL,
     "between composer and transcript"},
    {ACT_STATS,
     "stats",
     CTX_BOTH | CTX_VIEWS,
     {"F2"},
     NULL,
     NULL,
     "figures of the engine; again: over time; again: none"},
    {ACT_LISTENER,
     "listener",
     CTX_BOTH | CTX_VIEWS,
     {"F3"},
     NULL,
     NULL,
     "requests of other programs"},
    {ACT_SESSIONS,
     "sessions",
     CTX_BOTH | CTX_VIEWS,
     {"F4"},
     "/sessions",
     "[WORDS]",
     "stored conversations: go on, find words in any"},
    {ACT_PANE_BELOW, "below", CTX_BOTH, {"^X 2"}, "/below", NULL, "another conversation below"},
    {ACT_PANE_BESIDE, "beside", CTX_BOTH, {"^X 3"}, "/beside", NULL, "another conversation beside"},
    {ACT_PANE_CLOSE,
     "close",
     CTX_BOTH,
     {"^X 0"},
     "/close",
     NULL,
     "close this pane; the text stays saved"},
    {ACT_PANE_ONLY, "only", CTX_BOTH, {"^X 1"}, "/only", NULL, "close the other panes"},
    {ACT_PANE_OTHER, "other", CTX_BOTH, {"^X o"}, "/other", NULL, "to the next pane"},
    {ACT_LOG,
     "log",
     CTX_BOTH | CTX_VIEWS,
     {"F9"},
     "/log",
     NULL,
     "warnings, errors and what libraries print"},
    {ACT_FIND, "find", CTX_BOTH, {"^S"}, "/find", "[TEXT]", "search the transcript"},
    {ACT_FIND, "find", CTX_TRANSCRIPT, {"/"}, NULL, NULL, "search the transcript"},
    {ACT_FIND_OLDER,
     "find-older",
     CTX_TRANSCRIPT,
     {"n"},
     NULL,
     NULL,
     "the match before, further up"},
    {ACT_FIND_NEWER,
     "find-newer",
     CTX_TRANSCRIPT,
     {"N"},
     NULL,
     NULL,
     "the match after, further down"},
    {ACT_HISTORY, "history", CTX_COMPOSER, {"^R"}, NULL, NULL, "search earlier prompts"},
    {ACT_LIBEDIT,
     NULL,
     CTX_COMPOSER,
     {"Up", "Down"},
     NULL,
     NULL,
     "move; at the edge: earlier prompts"},
    {ACT_EDITOR,
     "editor",
     CTX_COMPOSER,
     {"^G", "^X ^E"},
     NULL,
     NULL,
     "edit the draft in $VISUAL or $EDITOR"},
    {ACT_UNQUEUE,
     "unqueue",
     CTX_COMPOSER,
     {"Alt-Up"},
     NULL,
     NULL,
     "take back the last queued message"},
    {ACT_QUEUE,
     "queue",
     CTX_BOTH,
     {"^X q"},
     "/queue",
     NULL,
     "messages that wait: edit, move, drop one"},
    {ACT_UNDO_EDIT, "undo-edit", CTX_COMPOSER, {"^_"}, NULL, NULL, "undo in the draft"},
    {ACT_LIBEDIT, NULL, CTX_COMPOSER, {"^A", "^E"}, NULL, NULL, "start, end of the line"},
    {ACT_LIBEDIT, NULL, CTX_COMPOSER, {"Alt-b", "Alt-f"}, NULL, NULL, "a word back, forward"},
    {ACT_LIBEDIT,
     NULL,
     CTX_COMPOSER,
     {"^W", "^U", "^K"},
     NULL,
     NULL,
     "cut a word, to the start, to the end of the line"},
    {ACT_LIBEDIT, NULL, CTX_COMPOSER, {"^Y"}, NULL, NULL, "put back what was cut"},
    {ACT_PREV_BLOCK, "previous", CTX_TRANSCRIPT, {"Up", "k"}, NULL, NULL, "previous message"},
    {ACT_NEXT_BLOCK, "next", CTX_TRANSCRIPT, {"Down", "j"}, NULL, NULL, "next message"},
    {ACT_FOLD, "fold", CTX_TRANSCRIPT, {"z", "Enter"}, NULL, NULL, "open or fold the thought"},
    {ACT_FOLD_ALL, "fold-all", CTX_TRANSCRIPT, {"Z"}, NULL, NULL, "open or fold all thoughts"},
    {ACT_COPY_BLOCK, "copy-message", CTX_TRANSCRIPT, {"y"}, NULL, NULL, "copy the message"},
    {ACT_CODE,
     "code",
     CTX_TRANSCRIPT,
     {"c"},
     NULL,
     NULL,
     "the next code in the message, to copy it alone"},
    {ACT_COPY_TURN,
     "copy-turn",
     CTX_TRANSCRIPT,
     {"Y"},
     NULL,
     NULL,
     "copy the question and its answer as they came"},
    {ACT_PAGER, "pager", CTX_TRANSCRIPT, {"^G"}, NULL, NULL, "the message in $PAGER"},
    {ACT_EXPORT_HERE,
     "export-here",
     CTX_TRANSCRIPT,
     {"x"},
     NULL,
     NULL,
     "write the conversation from here on to a file"},
    {ACT_RETRY, "retry", CTX_TRANSCRIPT, {"r"}, "/retry", NULL, "answer the question again"},
    {ACT_EDIT, "edit", CTX_TRANSCRIPT, {"e"}, "/edit", "[N]", "edit the question and ask it anew"},
    {ACT_BRANCH, "branch", CTX_TRANSCRIPT, {"b"}, "/branch", "[N]", "go on from this answer"},
    {ACT_BACK, "back", CTX_TRANSCRIPT, {"Esc", "q"}, NULL, NULL, "back to the composer"},
    {ACT_PAGE_UP, "page-up", CTX_ALL, {"PgUp"}, NULL, NULL, "scroll up"},
    {ACT_PAGE_DOWN, "page-down", CTX_ALL, {"PgDn"}, NULL, NULL, "scroll down"},
    {ACT_PAGE_DOWN, "page-down", CTX_TRANSCRIPT, {"^D", "Space"}, NULL, NULL, "scroll down"},
    {ACT_TOP, "top", CTX_ALL, {"^Home"}, NULL, NULL, "first row"},
    {ACT_BOTTOM, "bottom", CTX_ALL, {"^End"}, NULL, NULL, "last row, and follow"},
    {ACT_TOP, "top", CTX_TRANSCRIPT, {"g"}, NULL, NULL, "first row"},
    {ACT_BOTTOM, "bottom", CTX_TRANSCRIPT, {"G"}, NULL, NULL, "last row, and follow"},
    {ACT_HELP,
     "help",
     CTX_ALL,
     {"F1"},
     "/help",
     NULL,
     "the keys that work here; /help: all of them"},
    {ACT_HELP, "help", CTX_TRANSCRIPT, {"?"}, NULL, NULL, "the keys that work here"},
    {ACT_PALETTE, "palette", CTX_BOTH, {"Alt-x", "^X p"}, NULL, NULL, "every action, by its name"},
    {ACT_REDRAW, "redraw", CTX_ALL, {"^L"}, NULL, NULL, "draw everything again"},
    {ACT_SUSPEND, "suspend", CTX_ALL, {"^Z"}, NULL, NULL, "suspend"},
    {ACT_PREV_BLOCK, "previous", CTX_HELP | CTX_VIEWS, {"Up"}, NULL, NULL, "a row up"},
    {ACT_NEXT_BLOCK, "next", CTX_HELP | CTX_VIEWS, {"Down"}, NULL, NULL, "a row down"},
    {ACT_TOP, "top", CTX_HELP | CTX_VIEWS, {"Home"}, NULL, NULL, "first row"},
    {ACT_BOTTOM, "bottom", CTX_HELP | CTX_VIEWS, {"End"}, NULL, NULL, "last row"},
    {ACT_PAGE_DOWN, "page-down", CTX_HELP, {"^D"}, NULL, NULL, "scroll down"},
    {ACT_BACK, "back", CTX_HELP, {"Esc"}, NULL, NULL, "close"},
    {ACT_BACK, "back", CTX_VIEWS, {"Esc", "q"}, NULL, NULL, "close"},
    {ACT_EARLIER, "earlier", CTX_STATS, {"Left"}, NULL, NULL, "a column back in time"},
    {ACT_LATER, "later", CTX_STATS, {"Right"}, NULL, NULL, "a column forth, to now at last"},
    {ACT_SPAN, "span", CTX_STATS, {"Space"}, NULL, NULL, "the last 10 minutes or 24 hours"},
    {ACT_CSV, "csv", CTX_STATS, {"e"}, NULL, NULL, "write them to a file, as CSV"},
    {ACT_MARK, "mark", CTX_STATS, {"r"}, NULL, NULL, "averages begin here"},
    {ACT_FOLD, "fold", CTX_LISTEN, {"Enter"}, NULL, NULL, "what a request asks, and its times"},
    {ACT_BODY, "body", CTX_LISTEN, {"b"}, NULL, NULL, "its text"},
    {ACT_CANCEL, "cancel", CTX_LISTEN, {"k"}, NULL, NULL, "end the request"},
    {ACT_PAUSE, "pause", CTX_LISTEN, {"P"}, NULL, NULL, "take no new requests, or do again"},
    {ACT_PREV_BLOCK,
     "previous",
     CTX_SESSIONS | CTX_QUEUE | CTX_LIST,
     {"Up"},
     NULL,
     NULL,
     "the one above"},
    {ACT_NEXT_BLOCK,
     "next",
     CTX_SESSIONS | CTX_QUEUE | CTX_LIST,
     {"Down"},
     NULL,
     NULL,
     "the one below"},
    {ACT_PAGE_UP, "page-up", CTX_SESSIONS | CTX_LIST, {"PgUp"}, NULL, NULL, "a page up"},
    {ACT_PAGE_DOWN, "page-down", CTX_SESSIONS | CTX_LIST, {"PgDn"}, NULL, NULL, "a page down"},
    {ACT_EMPTY,
     "empty",
     CTX_SESSIONS | CTX_FIND | CTX_LIST,
     {"^U"},
     NULL,
     NULL,
     "take away what was typed"},
    {ACT_BACK, "back", CTX_LISTS, {"Esc"}, NULL, NULL, "close the list, or the search"},
    {ACT_CHOOSE, "choose", CTX_SESSIONS, {"Enter"}, NULL, NULL, "go on with it"},
    {ACT_CHOOSE_BESIDE,
     "choose-beside",
     CTX_SESSIONS,
     {"Alt-Enter"},
     NULL,
     NULL,
     "go on with it in a pane beside"},
    {ACT_RENAME_IT, "rename-it", CTX_SESSIONS, {"Alt-r"}, NULL, NULL, "give it another name"},
    {ACT_PIN_IT,
     "pin-it",
     CTX_SESSIONS,
     {"Alt-p"},
     NULL,
     NULL,
     "keep its saved state longest, or no more"},
    {ACT_FORGET_IT,
     "forget-it",
     CTX_SESSIONS,
     {"Alt-f"},
     NULL,
     NULL,
     "twice: delete its saved state; the text stays"},
    {ACT_CHOOSE, "choose", CTX_QUEUE, {"Enter"}, NULL, NULL, "take it into the composer"},
    {ACT_MOVE_UP, "move-up", CTX_QUEUE, {"Alt-Up"}, NULL, NULL, "send it earlier"},
    {ACT_MOVE_DOWN, "move-down", CTX_QUEUE, {"Alt-Down"}, NULL, NULL, "send it later"},
    {ACT_DROP, "drop", CTX_QUEUE, {"d", "Delete", "Backspace"}, NULL, NULL, "do not send it"},
    {ACT_CHOOSE, "choose", CTX_LIST, {"Enter", "Tab"}, NULL, NULL, "take it"},
    {ACT_FIND_OLDER, "find-older", CTX_FIND, {"Up"}, NULL, NULL, "the match before, further up"},
    {ACT_FIND_NEWER, "find-newer", CTX_FIND, {"Down"}, NULL, NULL, "the match after, further down"},
    {ACT_CHOOSE, "choose", CTX_FIND, {"Enter"}, NULL, NULL, "keep the marks; n and N step"},
    {ACT_ATTACH, "attach", 0, {NULL}, "/attach", "FILE", "put a text file into the message"},
    {ACT_NEW, "new", 0, {NULL}, "/new", NULL, "start a new conversation; this one stays saved"},
    {ACT_RESUME, "resume", 0, {NULL}, "/resume", "[ID]", "go on with a stored conversation"},
    {ACT_RENAME, "rename", 0, {NULL}, "/rename", "NAME", "name this conversation"},
    {ACT_UNDO, "undo", 0, {NULL}, "/undo", NULL, "take back the last question and its answer"},
    {ACT_COMPACT,
     "compact",
     0,
     {NULL},
     "/compact",
     "[HINT]",
     "go on from a summary, in a new branch"},
    {ACT_SYSTEM,
     "system",
     0,
     {NULL},
     "/system",
     "[TEXT|@FILE]",
     "set the system prompt (empty: none)"},
    {ACT_THINK,
     "think",
     0,
     {NULL},
     "/think",
     "WORD",
     "on, off, budget N: whether it thinks first; show, hide: its thoughts"},
    {ACT_SET,
     "set",
     0,
     {NULL},
     "/set",
     "KEY VALUE",
     "a setting of the answers or the screen; a blank behind /set lists them"},
    {ACT_SAMPLING, "sampling", 0, {NULL}, "/sampling", NULL, "what the next answer is drawn with"},
    {ACT_COPY,
     "copy",
     0,
     {NULL},
     "/copy",
     "[N|code]",
     "copy the last answer, the Nth from the last, or its code"},
    {ACT_PASTE,
     "paste",
     0,
     {NULL},
     "/paste",
     "[N]",
     "put a big paste of before into the message again"},
    {ACT_EXPORT,
     "export",
     0,
     {NULL},
     "/export",
     "FORM [FILE]",
     "write md, txt or json; --last N: only so many questions"},
    {ACT_PIN, "pin", 0, {NULL}, "/pin", "[on|off]", "keep this conversation's saved state longest"},
    {ACT_FORGET,
     "forget",
     0,
     {NULL},
     "/forget",
     NULL,
     "delete its saved state; what was said stays"},
    {ACT_THEME, "theme", 0, {NULL}, "/theme", "NAME", "colours: default, auto, light, dark, mono"},
    {ACT_STATS_VIEW, "stats-view", 0, {NULL}, "/stats", NULL, "figures of the engine over time"},
    {ACT_KV, "kv", 0, {NULL}, "/kv", NULL, "who has the memory of the context"},
    {ACT_LISTEN,
     "listen",
     0,
     {NULL},
     "/listen",
     "[ADDRESS|on|off]",
     "serve other programs, or stop"},
    {ACT_REQUESTS, "requests", 0, {NULL}, "/requests", NULL, "the requests of other programs"},
    {ACT_STATUS,
     "status",
     0,
     {NULL},
     "/status",
     NULL,
     "the model, the context, the last answer's speed"},
    {ACT_EMACS, "emacs", 0, {NULL}, "/emacs", NULL, "Emacs keys in the composer"},
    {ACT_VI, "vi", 0, {NULL}, "/vi", NULL, "vi keys in the composer"},
    {ACT_KEYS, "keys", 0, {NULL}, "/keys", "[debug]", "every key; debug: what a key sends"},
    {ACT_QUIT, "quit", 0, {NULL}, "/quit", NULL, "leave"},
};

#define N_TABLE (sizeof table / sizeof *table)

const struct key_action *keys_table(size_t *n)
{
    *n = N_TABLE;
    return table;
}

static const char *const named_keys[] = {
    [K_ENTER] = "Enter",   [K_TAB] = "Tab",       [K_BACKSPACE] = "Backspace", [K_ESC] = "Esc",
    [K_UP] = "Up",         [K_DOWN] = "Down",     [K_LEFT] = "Left",           [K_RIGHT] = "Right",
    [K_HOME] = "Home",     [K_END] = "End",       [K_PGUP] = "PgUp",           [K_PGDN] = "PgDn",
    [K_INSERT] = "Insert", [K_DELETE] = "Delete",
};
#define N_NAMED (sizeof named_keys / sizeof *named_keys)

void keys_name(const struct key *k, char out[KEYS_NAME])
{
    char base[16] = "";
    if (k->type == K_CHAR) {
        if (k->code == ' ' || k->code == ',') {
            snprintf(base, sizeof base, "%s", k->code == ' ' ? "Space" : "Comma");
        } else if ((k->mods & KM_CTRL) && k->code >= 'a' && k->code <= 'z') {
            base[0] = (char)(k->code - 'a' + 'A');
        } else if (k->code < 0x110000 && (k->code < 0xD800 || k->code >= 0xE000)) {
            base[utf8_put(k->code, base)] = 0;
        }
    } else if (k->type == K_F) {
        snprintf(base, sizeof base, "F%u", (unsigned)(k->code % 100));
    } else if (k->type < N_NAMED && named_keys[k->type]) {
        snprintf(base, sizeof base, "%s", named_keys[k->type]);
    }
    snprintf(out, KEYS_NAME, "%s%s%s%s", k->mods & KM_CTRL ? "^" : "",
             k->mods & KM_ALT ? "Alt-" : "", k->mods & KM_SHIFT ? "Shift-" : "", base);
}

static bool same_word(const char *p, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(p, word, n) == 0;
}

/* Takes Ctrl-, Alt-, Shift- and their short forms off the beginning. */
static unsigned take_mods(const char **p, size_t *n)
{
    static const struct {
        const char *text;
        unsigned mod;
    } forms[] = {{"^", KM_CTRL},    {"Ctrl-", KM_CTRL}, {"C-", KM_CTRL},      {"Alt-", KM_ALT},
                 {"Meta-", KM_ALT}, {"M-", KM_ALT},     {"Shift-", KM_SHIFT}, {"S-", KM_SHIFT}};
    unsigned mods = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms;) {
        const size_t k = strlen(forms[i].text);
        if (*n > k && strncasecmp(*p, forms[i].text, k) == 0) {
            mods |= forms[i].mod;
            *p += k;
            *n -= k;
            i = 0;
        } else {
            i++;
        }
    }
    return mods;
}

/* What a terminal sends for Ctrl with these is a key of another name. */
static void fold_ctrl(struct key *k)
{
    if (k->type != K_CHAR || !(k->mods & KM_CTRL)) {
        return;
    }
    k->code += k->code >= 'A' && k->code <= 'Z' ? 'a' - 'A' : 0;
    const enum key_type other = k->code == 'i'   ? K_TAB
                                : k->code == 'm' ? K_ENTER
                                : k->code == 'h' ? K_BACKSPACE
                                : k->code == '[' ? K_ESC
                                                 : K_CHAR;
    if (other != K_CHAR) {
        *k = (struct key){.type = other, .mods = k->mods & ~(unsigned)KM_CTRL};
    }
}

bool keys_parse(const char *name, size_t n, struct key *out)
{
    static const struct {
        const char *name;
        enum key_type type;
    } also[] = {{"Return", K_ENTER},  {"Escape", K_ESC}, {"PageUp", K_PGUP},
                {"PageDown", K_PGDN}, {"Del", K_DELETE}, {"Ins", K_INSERT}};
    struct key k = {.mods = take_mods(&name, &n)};
    for (size_t i = K_CHAR + 1; i < N_NAMED; i++) {
        if (same_word(name, n, named_keys[i])) {
            k.type = (enum key_type)i;
        }
    }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        if (same_word(name, n, also[i].name)) {
            k.type = also[i].type;
        }
    }
    if (same_word(name, n, "Space") || same_word(name, n, "Comma")) {
        k.type = K_CHAR;
        k.code = (name[0] | 0x20) == 's' ? ' ' : ',';
    }
    if (k.type == K_NONE && n >= 2 && n <= 3 && (name[0] == 'F' || name[0] == 'f')) {
        unsigned f = 0;
        for (size_t i = 1; i < n; i++) {
            f = name[i] >= '0' && name[i] <= '9' ? f * 10 + (unsigned)(name[i] - '0') : 100;
        }
        k.type = f >= 1 && f <= 12 ? K_F : K_NONE;
        k.code = f;
    }
    if (k.type == K_NONE && n > 0) {
        uint32_t cp = 0;
        const int used = utf8_decode(name, n, &cp);
        if (used <= 0 || (size_t)used != n || cp <= 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            return false;
        }
        k.type = K_CHAR;
        k.code = cp;
        if ((k.mods & KM_CTRL) && cp > 0x5F && !(cp >= 'a' && cp <= 'z')) {
            return false;
        }
        if ((k.mods & KM_CTRL) && cp < 0x40) {
            return false;
        }
        if (k.mods & KM_SHIFT) { /* a letter comes as the letter it is */
            return false;
        }
    }
    fold_ctrl(&k);
    *out = k;
    return k.type != K_NONE;
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
