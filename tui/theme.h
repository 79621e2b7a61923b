#ifndef QUASAR_TUI_THEME_H
#define QUASAR_TUI_THEME_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Roles instead of colours, and the glyphs of the two drawing sets. A style is
 * a role with attribute bits; TEXT_DECOR marks what is ornament and not part
 * of the text itself.
 */
enum role {
    R_TEXT,
    R_DIM,
    R_STRONG,
    R_USER,
    R_MODEL,
    R_THOUGHT,
    R_CODE,
    R_KEYWORD,
    R_STRING,
    R_COMMENT,
    R_TOOL,
    R_GOOD,
    R_WARN,
    R_BAD,
    R_METER,
    R_METER_LOW,
    R_SELECT,
    R_SEARCH, /* what was looked for */
    R_BORDER,
    R_COUNT
};

#define STYLE_ROLE_MASK 0x1F
#define STYLE_BOLD      0x100
#define STYLE_ITALIC    0x200
#define STYLE_UNDER     0x400
#define STYLE_REVERSE   0x800
#define TEXT_DECOR      0x8000

enum glyph {
    G_BAR,       /* left edge of a message */
    G_SELBAR,    /* left edge of the selected message */
    G_THOUGHT,   /* left edge of a thought */
    G_QUOTE,     /* left edge of a quotation */
    G_FOLDED,    /* a folded block */
    G_OPEN,      /* an open one */
    G_BULLET,    /* list item */
    G_HLINE,     /* horizontal line */
    G_VLINE,     /* vertical line */
    G_TOP_LEFT,  /* corners of a code box */
    G_TOP_RIGHT, /* … */
    G_BOT_LEFT,
    G_BOT_RIGHT,
    G_CROSS,   /* crossing in a table's rule */
    G_WRAP,    /* mark of a wrapped code row */
    G_CURSOR,  /* where the answer grows */
    G_FULL,    /* filled part of a meter */
    G_EMPTY,   /* the rest of it */
    G_METER_L, /* ends of a meter */
    G_METER_R,
    G_DOWN,   /* arrow of "new rows below" */
    G_DOT,    /* separator in a line of facts */
    G_BOX_ON, /* task list */
    G_BOX_OFF,
    G_COUNT
};

/* THEME_AUTO: light or dark, as the terminal's background is; default until that is known. */
enum theme_kind { THEME_DEFAULT, THEME_AUTO, THEME_LIGHT, THEME_DARK, THEME_MONO };
#define THEME_COUNT 5

struct theme {
    bool ascii; /* ornaments from the ASCII set */
    bool utf8;  /* the locale can write any character */
    bool wide;  /* the font draws ornaments two cells wide: those of ASCII are taken */
    bool raw;   /* joiners and variation selectors are drawn, whatever the terminal makes of them */
    bool color;
    enum theme_kind kind; /* asked for */
    enum theme_kind look; /* drawn with; never THEME_AUTO */
};

/* The glyph in the theme's set; always one cell. */
const char *theme_glyph(const struct theme *th, enum glyph g);

/* After curses started: declares the colours of th->kind (unless NO_COLOR is set or the
 * terminal has none) and sets th->color. Again for another kind. */
void theme_start(struct theme *th);
/* Which background the terminal has (luminance of 0..1000): THEME_AUTO is decided. */
void theme_background(struct theme *th, int luminance);

/* "default", "auto", …; false: there is no such theme. */
extern const char *const theme_names[THEME_COUNT];
bool theme_named(const char *name, enum theme_kind *out);

/* Curses attributes and colour pair of a style. */
void theme_attrs(const struct theme *th, uint16_t style, unsigned long *attrs, short *pair);

#endif
