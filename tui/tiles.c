/* The tree of splits, in prefix notation: '.' a pane, '|' two parts side by side, '-' one below
 * the other. Parts in a row of equal splits get equal shares, however they were made. */
#include "config.h"
#include "tui/tiles.h"

#include <string.h>

#define PANE   '.'
#define BESIDE '|'
#define BELOW  '-'

void tiles_init(struct tiles *t)
{
    memset(t, 0, sizeof *t);
    t->code[0] = PANE;
}

size_t tiles_count(const struct tiles *t)
{
    size_t n = 0;
    for (const char *p = t->code; *p; p++) {
        n += *p == PANE;
    }
    return n;
}

/* Where the code of a pane is. */
static size_t find(const struct tiles *t, size_t pane)
{
    size_t i = 0;
    for (; t->code[i]; i++) {
        if (t->code[i] == PANE && pane-- == 0) {
            break;
        }
    }
    return i;
}

/* The end of the part that begins at i. */
static size_t part_end(const struct tiles *t, size_t i)
{
    for (size_t open = 1; open > 0 && t->code[i]; i++) {
        open = t->code[i] == PANE ? open - 1 : open + 1;
    }
    return i;
}

bool tiles_split(struct tiles *t, size_t pane, bool beside)
{
    const size_t n = strlen(t->code);
    const size_t i = find(t, pane);
    if (n + 2 >= sizeof t->code || i == n) {
        return false;
    }
    memmove(t->code + i + 2, t->code + i, n - i + 1);
    t->code[i] = beside ? BESIDE : BELOW;
    t->code[i + 1] = PANE;
    return true;
}

static void drop(struct tiles *t, size_t i)
{
    memmove(t->code + i, t->code + i + 1, strlen(t->code) - i);
}

void tiles_remove(struct tiles *t, size_t pane)
{
    const size_t i = find(t, pane);
    if (t->code[i] != PANE || tiles_count(t) < 2) {
        return;
    }
    size_t op = i - 1; /* the pane is its first part … */
    if (t->code[op] == PANE) {
        op = 0; /* … or the second of the one whose first ends here */
        while (t->code[op] == PANE || part_end(t, op + 1) != i) {
            op++;
        }
    }
    drop(t, i);
    drop(t, op);
}

/* How many shares along an axis the part at *i wants; *i goes behind it. */
static int shares(const struct tiles *t, size_t *i, char axis)
{
    const char c = t->code[(*i)++];
    if (c == PANE) {
        return 1;
    }
    const int a = shares(t, i, axis);
    const int b = shares(t, i, axis);
    return c != axis ? (a > b ? a : b) : a + b;
}

static void place(const struct tiles *t, size_t *i, struct rect r, struct rect *out, size_t *n)
{
    const char c = t->code[(*i)++];
    if (c == PANE) {
        out[(*n)++] = r;
        return;
    }
    size_t k = *i;
    const int a = shares(t, &k, c);
    const int b = shares(t, &k, c);
    struct rect first = r;
    struct rect second = r;
    if (c == BESIDE) {
        const int room = r.cols > 0 ? r.cols - 1 : 0;
        first.cols = (room * a + (a + b) / 2) / (a + b);
        second.cols = room - first.cols;
        second.x = r.x + r.cols - second.cols;
    } else {
        first.rows = (r.rows * a + (a + b) / 2) / (a + b);
        second.rows = r.rows - first.rows;
        second.y = r.y + first.rows;
    }
    place(t, i, first, out, n);
    place(t, i, second, out, n);
}

bool tiles_place(const struct tiles *t, const struct rect *area, int least_rows, int least_cols,
                 struct rect out[TILES_MAX])
{
    size_t i = 0;
    size_t n = 0;
    place(t, &i, *area, out, &n);
    bool fit = true;
    for (size_t k = 0; k < n; k++) {
        fit = fit && out[k].rows >= least_rows && out[k].cols >= least_cols;
    }
    return fit;
}
