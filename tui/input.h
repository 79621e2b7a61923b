#ifndef QUASAR_TUI_INPUT_H
#define QUASAR_TUI_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * Bytes from the terminal to keys. Knows no terminal database: it accepts the
 * sequences of every common terminal at once. Pure: time comes in as an
 * argument. UI thread only.
 */
enum key_type {
    K_NONE,
    K_CHAR, /* code; with KM_CTRL or KM_ALT a chord */
    K_ENTER,
    K_TAB,
    K_BACKSPACE,
    K_ESC,
    K_UP,
    K_DOWN,
    K_LEFT,
    K_RIGHT,
    K_HOME,
    K_END,
    K_PGUP,
    K_PGDN,
    K_INSERT,
    K_DELETE,
    K_F,     /* code: 1..12 */
    K_PASTE, /* the bytes are keyin_paste() */
    K_COLOR, /* the background's luminance is value, 0..1000 */
    K_MOUSE, /* code: the button (64, 65: the wheel up, down), value: column, row: line */
    K_MODE   /* the terminal knows (value 1) or does not know (0) mode code; of KEY_IS_WELL:
                it has done all that it was told before it was asked */
};
#define KEY_IS_WELL 5
#define KM_SHIFT    1
#define KM_ALT      2
#define KM_CTRL     4

struct key {
    enum key_type type;
    uint32_t code;
    unsigned mods;
    int value; /* K_MODE, K_COLOR, K_MOUSE */
    int row;   /* K_MOUSE */
};

struct input;
struct input *keyin_create(void);
void keyin_free(struct input *in);

/* Takes bytes as one read() gave them, at time now (ns). */
void keyin_feed(struct input *in, const char *p, size_t n, int64_t now);
/* The next key; false when none is complete. */
bool keyin_next(struct input *in, int64_t now, struct key *out);
/* When keyin_next should be asked again although nothing came (a lone ESC, a
 * paste that stopped); -1: no need. */
int64_t keyin_deadline(const struct input *in);
/* The bytes that the last key came as, for showing them; borrowed until the next feed. */
const char *keyin_bytes(const struct input *in, size_t *n);
/* The text of the last K_PASTE, line ends as '\n'; valid until the next feed. */
const struct buf *keyin_paste(const struct input *in);
/* The last paste was longer than the limit and its end was dropped. */
bool keyin_paste_cut(const struct input *in);

/* How many of the bytes were answers of the terminal, which nobody typed. */
size_t keyin_replies(const struct input *in);

#define INPUT_PASTE_MAX ((size_t)64 << 20)

#endif
