/* What may follow a command: one list of words for each place, in the order of most use. */
#include "config.h"
#include "tui/complete.h"

#include <string.h>

#include "tui/theme.h"

#define WORDS 20

struct place {
    enum action act;
    const char *before; /* the first word; NULL: this is the place of the first */
    const char *words[WORDS];
};

static const struct place places[] = {
    {ACT_THINK, NULL, {"on", "off", "default", "budget", "show", "hide"}},
    {ACT_THINK, "budget", {"off"}},
    {ACT_EXPORT, NULL, {"md", "txt", "json"}},
    {ACT_EXPORT, "md", {"--last"}},
    {ACT_EXPORT, "txt", {"--last"}},
    {ACT_EXPORT, "json", {"--last"}},
    {ACT_COPY, NULL, {"code"}},
    {ACT_KEYS, NULL, {"debug"}},
    {ACT_PIN, NULL, {"on", "off"}},
    {ACT_LISTEN, NULL, {"on", "off"}},
    {ACT_THEME, NULL, {"default", "auto", "light", "dark", "mono"}},
    {ACT_SET, NULL, {"temp",      "top-k",        "top-p",   "min-p",      "presence",
                     "frequency", "repetition",   "seed",    "max-tokens", "min-tokens",
                     "think",     "think-budget", "effort",  "system",     "theme",
                     "editor",    "mouse",        "unicode", "ambiguous",  "state-budget"}},
    {ACT_SET, "think", {"on", "off", "default"}},
    {ACT_SET, "effort", {"low", "medium", "high", "xhigh", "default"}},
    {ACT_SET, "theme", {"default", "auto", "light", "dark", "mono"}},
    {ACT_SET, "editor", {"emacs", "vi"}},
    {ACT_SET, "mouse", {"off", "wheel", "on"}},
    {ACT_SET, "unicode", {"safe", "full"}},
    {ACT_SET, "ambiguous", {"1", "2"}},
};

/* What /set takes: its keys, in the order of the words above, and their values. */
static const char *const settings[][2] = {
    {"temp", "temperature; 0 always takes the likeliest token"},
    {"top-k", "draw from so many of the likeliest tokens; 0: all"},
    {"top-p", "draw from the likeliest tokens of this share, 0 to 1"},
    {"min-p", "no token below this share of the likeliest one's, 0 to 1"},
    {"presence", "penalty for tokens that came before, -2 to 2"},
    {"frequency", "penalty for each time a token came before, -2 to 2"},
    {"repetition", "factor against tokens that came before; 1: none"},
    {"seed", "of what is drawn: the same seed, the same answer"},
    {"max-tokens", "most tokens of an answer"},
    {"min-tokens", "fewest tokens of an answer"},
    {"think", "on, off or default: whether it thinks before it answers"},
    {"think-budget", "most tokens of a thought, or default: no limit"},
    {"effort", "low, medium, high, xhigh or default"},
    {"system", "the system message"},
    {"theme", "default, auto, light, dark or mono: colours"},
    {"editor", "emacs or vi: keys of the composer"},
    {"mouse", "off, wheel or on: what of the mouse the screen takes"},
    {"unicode", "safe or full: whether joined characters are drawn raw"},
    {"ambiguous", "1 or 2: cells of characters of open width"},
    {"state-budget", "what saved states may take on the disk: auto, or bytes with K, M, G"},
};

const char *complete_meaning(const struct key_action *c, const char *word)
{
    for (size_t i = 0; c->act == ACT_SET && i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(settings[i][0], word) == 0) {
            return settings[i][1];
        }
    }
    return NULL;
}

/* The last word of args, and whether it is the first one or follows on just one. */
static const char *last_word(const char *args, char first[32], bool *is_first)
{
    const char *last = args;
    size_t words = 0;
    first[0] = 0;
    for (const char *s = args; *s;) {
        s += strspn(s, " ");
        const size_t n = strcspn(s, " ");
        if (words == 0 && n < 32) {
            memcpy(first, s, n);
            first[n] = 0;
        }
        words += n > 0;
        last = s[n] || n == 0 ? s + n : s;
        s += n;
        if (*s) {
            last = s + strspn(s, " ");
        }
    }
    *is_first = words == 0 || (words == 1 && *last);
    return last;
}

size_t complete_words(const struct key_action *c, const char *args, const char **words,
                      size_t *from)
{
    char first[32];
    bool is_first = true;
    const char *last = last_word(args, first, &is_first);
    const bool second =
        !is_first && strlen(first) < (size_t)(last - args) && strcspn(last, " ") == strlen(last);
    size_t n = 0;
    *from = (size_t)(last - args);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct place *p = &places[i];
        if (p->act != c->act ||
            (p->before ? !second || strcmp(p->before, first) != 0 : !is_first)) {
            continue;
        }
        for (size_t k = 0; k < WORDS && p->words[k] && n < COMPLETE_MOST; k++) {
            if (strncmp(p->words[k], last, strlen(last)) == 0) {
                words[n++] = p->words[k];
            }
        }
    }
    return n;
}

bool complete_takes_file(const struct key_action *c, const char *args, size_t *from)
{
    const size_t blanks = strspn(args, " ");
    const size_t word = strcspn(args + blanks, " ");
    *from = blanks;
    switch (c->act) {
    case ACT_ATTACH:
        return true;
    case ACT_SYSTEM:
        *from = blanks + 1;
        return args[blanks] == '@';
    case ACT_EXPORT:
        *from = blanks + word + strspn(args + blanks + word, " ");
        return args[blanks + word] == ' ' && args[*from] != '-';
    default:
        return false;
    }
}
