/* The scorer of lists that are narrowed by typing. A word of the query is laid over the text
 * at the place where it scores best, by a table of the best score that ends at each letter;
 * both are short, so that this is a few thousand steps. Letters beyond ASCII match as bytes. */
#include "config.h"
#include "tui/fuzzy.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define TEXT_MOST 256
#define WORD_MOST 32

enum points {
    LETTER = 16, /* each that matches */
    WORD_START = 14,
    FOLLOWS = 10, /* right after the one before it */
    GAP = 1,      /* taken off for each letter between two, up to GAP_MOST */
    GAP_MOST = 8,
    WHOLE_WORD = 8 /* the word ends where one of the text does */
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static bool starts_word(const char *text, size_t i)
{
    return is_word(text[i]) &&
           (i == 0 || !is_word(text[i - 1]) ||
            (isupper((unsigned char)text[i]) && islower((unsigned char)text[i - 1])));
}

static bool same(char q, char t, bool exact)
{
    return exact ? q == t : tolower((unsigned char)q) == tolower((unsigned char)t);
}

/* One word of the query; negative: it is not there. */
static int score_word(const char *word, size_t m, const char *text, size_t n, bool exact)
{
    int before[TEXT_MOST]; /* best score of the letters so far, the last of them at this place */
    int now[TEXT_MOST];
    for (size_t q = 0; q < m; q++) {
        bool any = false;
        for (size_t i = 0; i < n; i++) {
            now[i] = -1;
            if (!same(word[q], text[i], exact)) {
                continue;
            }
            const int here = LETTER + (starts_word(text, i) ? WORD_START : 0);
            if (q == 0) {
                now[i] = here;
            }
            for (size_t k = 0; q > 0 && k < i; k++) {
                const int gap = (int)(i - k - 1);
                const int got = before[k] < 0 ? -1
                                : gap == 0
                                    ? before[k] + here + FOLLOWS
                                    : before[k] + here - GAP * (gap < GAP_MOST ? gap : GAP_MOST);
                now[i] = got > now[i] ? got : now[i];
            }
            any = any || now[i] >= 0;
        }
        if (!any) {
            return -1;
        }
        memcpy(before, now, n * sizeof *now);
    }
    int best = -1;
    for (size_t i = 0; i < n; i++) {
        const bool ends = i + 1 == n || !is_word(text[i + 1]);
        const int got = before[i] < 0 ? -1 : before[i] + (ends ? WHOLE_WORD : 0);
        best = got > best ? got : best;
    }
    return best;
}

int fuzzy_score(const char *query, const char *text)
{
    size_t n = strlen(text);
    const size_t length = n;
    int total = 0;
    bool exact = false;
    n = n < TEXT_MOST ? n : TEXT_MOST;
    for (const char *s = query; *s; s++) {
        exact = exact || isupper((unsigned char)*s);
    }
    for (const char *s = query + strspn(query, " "); *s; s += strspn(s, " ")) {
        const size_t m = strcspn(s, " ");
        const int got = score_word(s, m < WORD_MOST ? m : WORD_MOST, text, n, exact);
        if (got < 0) {
            return -1;
        }
        total += got;
        s += m;
    }
    /* among equals the shorter one is nearer to what was typed */
    return total == 0 ? 0 : total * 4 + (length < 64 ? 64 - (int)length : 0) / 4;
}

void fuzzy_sort(struct fuzzy_hit *hits, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const struct fuzzy_hit h = hits[i];
        size_t k = i;
        for (; k > 0 && hits[k - 1].score < h.score; k--) {
            hits[k] = hits[k - 1];
        }
        hits[k] = h;
    }
}
