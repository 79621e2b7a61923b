/* The key decoder: control bytes, UTF-8, CSI and SS3 sequences, bracketed
 * paste. A sequence that stays incomplete for 25 ms is decided as it stands,
 * so a lone ESC is a key of its own; a paste that goes silent for 500 ms ends.
 * Inside a paste nothing is decoded. */
#include "config.h"
#include "tui/input.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define ESC_WAIT_NS   25000000LL
#define PASTE_WAIT_NS 500000000LL
#define SEQ_MAX       4096 /* longest control string we wait for */
#define BURST_MIN     10

static const char paste_end[] = "\x1b[201~";
#define PASTE_END_LEN (sizeof paste_end - 1)

struct input {
    struct buf raw;   /* bytes not decoded yet, from at */
    size_t at;        /* first of them */
    size_t replies;   /* bytes that were answers */
    int64_t last;     /* time of the last feed */
    bool in_paste;    /* between ESC[200~ and ESC[201~ */
    bool paste_ready; /* a burst without brackets waits in paste */
    bool paste_last_cr;
    bool paste_cut;
    struct buf paste; /* text of the paste, line ends made '\n' */
    size_t key_at;    /* where the last key's bytes begin in raw */
    bool bracketed;   /* the terminal has sent a bracketed paste before */
};

struct input *keyin_create(void)
{
    return mem_zalloc(sizeof(struct input));
}

void keyin_free(struct input *in)
{
    if (in) {
        buf_free(&in->raw);
        buf_free(&in->paste);
        free(in);
    }
}

const struct buf *keyin_paste(const struct input *in)
{
    return &in->paste;
}

bool keyin_paste_cut(const struct input *in)
{
    return in->paste_cut;
}

static void paste_begin(struct input *in)
{
    buf_truncate(&in->paste, 0);
    in->paste_last_cr = false;
    in->paste_cut = false;
}

/* Appends to the paste; CR LF and CR become LF. */
static void paste_add(struct input *in, const char *p, size_t n)
{
    size_t room = INPUT_PASTE_MAX - in->paste.len;
    if (n > room) {
        n = room;
        in->paste_cut = true;
    }
    size_t i = 0;
    while (i < n) {
        if (in->paste_last_cr && p[i] == '\n') {
            in->paste_last_cr = false;
            i++;
            continue;
        }
        const char *cr = memchr(p + i, '\r', n - i);
        size_t end = cr ? (size_t)(cr - p) : n;
        buf_add(&in->paste, p + i, end - i);
        in->paste_last_cr = cr != NULL;
        if (cr) {
            buf_addc(&in->paste, '\n');
            end++;
        }
        i = end;
    }
}

/* Without brackets: one read of ten or more plain bytes with a line end in the
 * middle is no typing. */
static bool is_burst(const char *p, size_t n)
{
    bool inner = false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '\r' || c == '\n') {
            inner = inner || i + 1 < n;
        } else if (c < 0x20 && c != '\t') {
            return false;
        } else if (c == 0x7F) {
            return false;
        }
    }
    return inner && n >= BURST_MIN;
}

void keyin_feed(struct input *in, const char *p, size_t n, int64_t now)
{
    in->last = now;
    if (in->at == in->raw.len) {
        buf_truncate(&in->raw, 0);
        in->at = 0;
        if (!in->in_paste && !in->bracketed && is_burst(p, n)) {
            paste_begin(in);
            paste_add(in, p, n);
            in->paste_ready = true;
            return;
        }
    } else if (in->at > 65536) {
        memmove(in->raw.data, in->raw.data + in->at, in->raw.len - in->at);
        buf_truncate(&in->raw, in->raw.len - in->at);
        in->at = 0;
    }
    buf_add(&in->raw, p, n);
}

/* Moves raw bytes into the paste up to its end mark; true when it was there. */
static bool paste_take(struct input *in, bool give_up)
{
    const char *p = in->raw.data + in->at;
    size_t n = in->raw.len - in->at;
    const char *end = n ? memmem(p, n, paste_end, PASTE_END_LEN) : NULL;
    if (end) {
        paste_add(in, p, (size_t)(end - p));
        in->at += (size_t)(end - p) + PASTE_END_LEN;
        return true;
    }
    /* the last bytes may be the beginning of the mark */
    size_t keep = 0;
    if (!give_up) {
        keep = n < PASTE_END_LEN - 1 ? n : PASTE_END_LEN - 1;
        while (keep && memcmp(p + n - keep, paste_end, keep) != 0) {
            keep--;
        }
    }
    paste_add(in, p, n - keep);
    in->at += n - keep;
    return give_up;
}

static struct key key_of(enum key_type type, uint32_t code, unsigned mods)
{
    struct key k = {.type = type, .code = code, .mods = mods};
    return k;
}

/* A control byte or code point as a key. */
static struct key key_of_code(uint32_t c, unsigned mods)
{
    switch (c) {
    case '\r':
        return key_of(K_ENTER, 0, mods);
    case '\t':
        return key_of(K_TAB, 0, mods);
    case 0x1B:
        return key_of(K_ESC, 0, mods);
    case 0x08:
    case 0x7F:
        return key_of(K_BACKSPACE, 0, mods);
    }
    if (c == 0) {
        return key_of(K_CHAR, ' ', mods | KM_CTRL);
    }
    if (c < 0x20) {
        return key_of(K_CHAR, c <= 26 ? 'a' + c - 1 : c + 0x40, mods | KM_CTRL);
    }
    return key_of(K_CHAR, c, mods);
}

static unsigned mods_of(unsigned param)
{
    unsigned m = param > 0 ? param - 1 : 0;
    return (m & 1 ? KM_SHIFT : 0) | (m & 2 || m & 8 ? KM_ALT : 0) | (m & 4 ? KM_CTRL : 0);
}

static enum key_type letter_key(char c)
{
    switch (c) {
    case 'A':
        return K_UP;
    case 'B':
        return K_DOWN;
    case 'C':
        return K_RIGHT;
    case 'D':
        return K_LEFT;
    case 'F':
        return K_END;
    case 'H':
        return K_HOME;
    }
    return K_NONE;
}

static struct key tilde_key(unsigned n, unsigned mods)
{
    static const unsigned char fkeys[] = {
        [11] = 1, [12] = 2, [13] = 3, [14] = 4,  [15] = 5,  [17] = 6,
        [18] = 7, [19] = 8, [20] = 9, [21] = 10, [23] = 11, [24] = 12};
    switch (n) {
    case 1:
    case 7:
        return key_of(K_HOME, 0, mods);
    case 2:
        return key_of(K_INSERT, 0, mods);
    case 3:
        return key_of(K_DELETE, 0, mods);
    case 4:
    case 8:
        return key_of(K_END, 0, mods);
    case 5:
        return key_of(K_PGUP, 0, mods);
    case 6:
        return key_of(K_PGDN, 0, mods);
    }
    if (n < sizeof fkeys && fkeys[n]) {
        return key_of(K_F, fkeys[n], mods);
    }
    return key_of(K_NONE, 0, 0);
}

/* A key given by its code point, as modern terminals can. */
static struct key coded_key(unsigned code, unsigned mods)
{
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) || (code >= 0x80 && code < 0xA0)) {
        return key_of(K_NONE, 0, 0);
    }
    if (code >= 'A' && code <= 'Z' && (mods & KM_CTRL)) {
        code += 'a' - 'A';
    }
    struct key k = key_of_code(code, mods);
    if (k.type == K_CHAR && !(k.mods & (KM_CTRL | KM_ALT))) {
        k.mods = 0;
    }
    return k;
}

/* The key of one whole CSI sequence: p[0..n) is what follows ESC [. */
static struct key csi_key(const char *p, size_t n)
{
    unsigned par[4] = {0};
    size_t np = 0;
    bool sub = false; /* inside a colon part, which we ignore */
    char private = 0;
    char inter = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        char c = p[i];
        if (c >= '0' && c <= '9') {
            if (np < 4 && !sub && par[np] < 10000000) {
                par[np] = par[np] * 10 + (unsigned)(c - '0');
            }
        } else if (c == ';') {
            np++;
            sub = false;
        } else if (c == ':') {
            sub = true;
        } else if (c >= '<' && c <= '?') {
            private = c;
        } else {
            inter = c;
        }
    }
    char final = p[n - 1];
    unsigned mods = mods_of(par[1]);
    if (private == '?' && inter == '$' && final == 'y') {
        struct key k = key_of(K_MODE, par[0], 0);
        k.value = par[1] != 0 && par[1] != 4;
        return k;
    }
    if (private == '<' && !inter && final == 'M' && par[0] < 128) {
        struct key k = key_of(K_MOUSE, par[0] & ~28U, par[0] & 4 ? KM_SHIFT : 0);
        k.value = (int)par[1] - 1;
        k.row = (int)par[2] - 1;
        return k;
    }
    if (private || inter) {
        return key_of(K_NONE, 0, 0);
    }
    enum key_type t = letter_key(final);
    if (t != K_NONE) {
        return key_of(t, 0, mods);
    }
    switch (final) {
    case 'P':
    case 'Q':
    case 'S':
        return key_of(K_F, (uint32_t)(final - 'P' + 1), mods);
    case 'R':
        return par[0] == 1 ? key_of(K_F, 3, mods) : key_of(K_NONE, 0, 0);
    case 'n': {
        struct key k = key_of(np == 0 && par[0] == 0 ? K_MODE : K_NONE, KEY_IS_WELL, 0);
        k.value = 1;
        return k;
    }
    case 'Z':
        return key_of(K_TAB, 0, KM_SHIFT);
    case 'a': /* rxvt */
    case 'b':
    case 'c':
    case 'd':
        return key_of(letter_key((char)(final - 'a' + 'A')), 0, KM_SHIFT);
    case '^':
        return tilde_key(par[0], KM_CTRL);
    case '@':
        return tilde_key(par[0], KM_CTRL | KM_SHIFT);
    case 'u':
        return coded_key(par[0], mods);
    case '~':
        return par[0] == 27 ? coded_key(par[2], mods) : tilde_key(par[0], mods);
    }
    return key_of(K_NONE, 0, 0);
}

/* What follows ESC O. */
static struct key ss3_key(char c)
{
    enum key_type t = letter_key(c);
    if (t != K_NONE) {
        return key_of(t, 0, 0);
    }
    if (c >= 'P' && c <= 'S') {
        return key_of(K_F, (uint32_t)(c - 'P' + 1), 0);
    }
    if (c == 'M') {
        return key_of(K_ENTER, 0, 0);
    }
    if (c >= 'a' && c <= 'd') { /* rxvt */
        return key_of(letter_key((char)(c - 'a' + 'A')), 0, KM_CTRL);
    }
    if (c >= 'j' && c <= 'y') {
        return key_of(K_CHAR, (uint32_t)(c - 'j' + '*'), 0);
    }
    return key_of(K_NONE, 0, 0);
}

/* One part of "rgb:RRRR/GGGG/BBBB", of 1 to 4 digits, as 0..65535; -1: it is none. */
static int color_part(const char **p, const char *end)
{
    int v = 0;
    int digits = 0;
    for (; *p < end && digits < 4; (*p)++, digits++) {
        const char c = **p;
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) {
            break;
        }
        v = v * 16 + d;
    }
    return digits == 0 ? -1 : (int)((int64_t)v * 65535 / ((1 << 4 * digits) - 1));
}

/* The answer to the question for the background: p[0..n) is what follows ESC ], without its end.
 * rgba: has a fourth part, which does not count. */
static struct key color_key(const char *p, size_t n)
{
    static const double weight[3] = {0.2126, 0.7152, 0.0722};
    const char *end = p + n;
    double sum = 0;
    if (n < 7 || memcmp(p, "11;rgb", 6) != 0) {
        return key_of(K_NONE, 0, 0);
    }
    p += 6 + (p[6] == 'a');
    for (int i = 0; i < 3; i++) {
        if (p >= end || *p++ != (i == 0 ? ':' : '/')) {
            return key_of(K_NONE, 0, 0);
        }
        const int part = color_part(&p, end);
        if (part < 0) {
            return key_of(K_NONE, 0, 0);
        }
        sum += weight[i] * part;
    }
    struct key k = key_of(K_COLOR, 0, 0);
    k.value = (int)(sum * 1000 / 65535);
    return k;
}

/* Decodes the sequence at p, which starts with ESC. Returns the bytes it takes
 * (0: incomplete) and the key (K_NONE: understood and ignored). */
static size_t escape(const char *p, size_t n, bool late, struct key *k)
{
    *k = key_of(K_NONE, 0, 0);
    if (n == 1) {
        *k = key_of(K_ESC, 0, 0);
        return late ? 1 : 0;
    }
    char c = p[1];
    if (c == 0x1B) {
        /* ESC before a sequence is Alt; before a lone ESC it is a key itself. */
        if (n == 2 && !late) {
            return 0;
        }
        if (n > 2 && (p[2] == '[' || p[2] == 'O')) {
            size_t used = escape(p + 1, n - 1, late, k);
            if (used > 2) {
                k->mods |= KM_ALT;
                return used + 1;
            }
            if (used == 0) {
                return 0;
            }
        }
        *k = key_of(K_ESC, 0, 0);
        return 1;
    }
    if (c == '[') {
        if (n >= 3 && p[2] == '[') { /* the Linux console's F1..F5 */
            if (n == 3) {
                return late ? 3 : 0;
            }
            if (p[3] >= 'A' && p[3] <= 'E') {
                *k = key_of(K_F, (uint32_t)(p[3] - 'A' + 1), 0);
            }
            return 4;
        }
        for (size_t i = 2; i < n; i++) {
            if (p[i] >= 0x40 && p[i] <= 0x7E) {
                *k = csi_key(p + 2, i - 1);
                return i + 1;
            }
            if (p[i] < 0x20 || p[i] > 0x3F || i > 64) {
                return i; /* broken off: the byte is decoded on its own */
            }
        }
        if (!late) {
            return 0;
        }
        *k = n == 2 ? key_of(K_CHAR, '[', KM_ALT) : *k;
        return n;
    }
    if (c == 'O') {
        if (n == 2) {
            *k = key_of(K_CHAR, 'O', KM_ALT);
            return late ? 2 : 0;
        }
        *k = ss3_key(p[2]);
        return p[2] < 0x20 ? 2 : 3;
    }
    if (c == ']' || c == 'P' || c == '_' || c == '^') { /* a reply we did not ask for */
        for (size_t i = 2; i < n; i++) {
            const bool st = p[i] == 0x1B && i + 1 < n && p[i + 1] == '\\';
            if (p[i] == 0x07 || st) {
                *k = c == ']' ? color_key(p + 2, i - 2) : *k;
                return i + 1 + st;
            }
        }
        if (late || n > SEQ_MAX) {
            *k = n == 2 ? key_of(K_CHAR, (unsigned char)c, KM_ALT) : *k;
            return n;
        }
        return 0;
    }
    /* Alt with a character */
    uint32_t cp = 0;
    int used = utf8_decode(p + 1, n - 1, &cp);
    if (used < 0 && !late) {
        return 0;
    }
    if (used <= 0) {
        *k = key_of(K_ESC, 0, 0);
        return 1;
    }
    *k = key_of_code(cp, KM_ALT);
    return (size_t)used + 1;
}

const char *keyin_bytes(const struct input *in, size_t *n)
{
    *n = in->at > in->key_at ? in->at - in->key_at : 0;
    return *n > 0 ? in->raw.data + in->key_at : "";
}

bool keyin_next(struct input *in, int64_t now, struct key *out)
{
    if (in->paste_ready) {
        in->paste_ready = false;
        *out = key_of(K_PASTE, 0, 0);
        return true;
    }
    for (;;) {
        if (in->in_paste) {
            if (!paste_take(in, now - in->last >= PASTE_WAIT_NS)) {
                return false;
            }
            in->in_paste = false;
            *out = key_of(K_PASTE, 0, 0);
            return true;
        }
        const char *p = in->raw.data + in->at;
        size_t n = in->raw.len - in->at;
        in->key_at = in->at;
        if (n == 0) {
            return false;
        }
        bool late = now - in->last >= ESC_WAIT_NS;
        if (p[0] != 0x1B) {
            uint32_t cp = 0;
            int used = utf8_decode(p, n, &cp);
            if (used < 0 && !late) {
                return false;
            }
            if (used <= 0) {
                used = 1;
                cp = UTF8_REPLACEMENT;
            }
            in->at += (size_t)used;
            if (cp >= 0x80 && cp < 0xA0) {
                cp = UTF8_REPLACEMENT;
            }
            *out = key_of_code(cp, 0);
            return true;
        }
        if (n >= 6 && memcmp(p, "\x1b[200~", 6) == 0) {
            in->at += 6;
            in->in_paste = true;
            in->bracketed = true;
            paste_begin(in);
            continue;
        }
        size_t used = escape(p, n, late, out);
        if (used == 0) {
            return false;
        }
        in->at += used;
        in->replies += out->type == K_MODE ? used : 0;
        if (out->type != K_NONE) {
            return true;
        }
    }
}

size_t keyin_replies(const struct input *in)
{
    return in->replies;
}

int64_t keyin_deadline(const struct input *in)
{
    if (in->in_paste) {
        return in->last + PASTE_WAIT_NS;
    }
    if (in->at < in->raw.len) {
        return in->last + ESC_WAIT_NS;
    }
    return -1;
}
