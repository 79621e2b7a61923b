/* Roles to curses attributes, and the two glyph sets. The default theme uses
 * the terminal's own 16 colours on its own background; with NO_COLOR only
 * bold, dim, italic, underline and reverse remain. */
#include "config.h"
#include "tui/theme.h"

#include <curses.h>
#include <stdlib.h>

struct look {
    short color; /* -1: the terminal's own */
    attr_t attr;
};

static const struct look looks[R_COUNT] = {
    [R_TEXT] = {-1, 0},
    [R_DIM] = {-1, A_DIM},
    [R_STRONG] = {-1, A_BOLD},
    [R_USER] = {COLOR_CYAN, A_BOLD},
    [R_MODEL] = {COLOR_GREEN, A_BOLD},
    [R_THOUGHT] = {COLOR_MAGENTA, 0},
    [R_CODE] = {COLOR_CYAN, 0},
    [R_GOOD] = {COLOR_GREEN, 0},
    [R_WARN] = {COLOR_YELLOW, 0},
    [R_BAD] = {COLOR_RED, A_BOLD},
    [R_METER] = {COLOR_GREEN, 0},
    [R_METER_LOW] = {-1, A_DIM},
    [R_SELECT] = {-1, A_REVERSE},
    [R_SEARCH] = {COLOR_YELLOW, A_REVERSE},
    [R_BORDER] = {-1, A_DIM},
};

static const char *const glyphs[2][G_COUNT] = {
    {
        [G_BAR] = "│",       [G_SELBAR] = "┃",   [G_THOUGHT] = "┊",   [G_QUOTE] = "▎",
        [G_FOLDED] = "▸",    [G_OPEN] = "▾",     [G_BULLET] = "•",    [G_HLINE] = "─",
        [G_VLINE] = "│",     [G_TOP_LEFT] = "┌", [G_TOP_RIGHT] = "┐", [G_BOT_LEFT] = "└",
        [G_BOT_RIGHT] = "┘", [G_CROSS] = "┼",    [G_WRAP] = "↪",      [G_CURSOR] = "▌",
        [G_FULL] = "█",      [G_EMPTY] = "░",    [G_METER_L] = "▕",   [G_METER_R] = "▏",
        [G_DOWN] = "↓",      [G_DOT] = "·",      [G_BOX_ON] = "☑",    [G_BOX_OFF] = "☐",
    },
    {
        [G_BAR] = "|",       [G_SELBAR] = "#",   [G_THOUGHT] = ":",   [G_QUOTE] = ">",
        [G_FOLDED] = ">",    [G_OPEN] = "v",     [G_BULLET] = "*",    [G_HLINE] = "-",
        [G_VLINE] = "|",     [G_TOP_LEFT] = "+", [G_TOP_RIGHT] = "+", [G_BOT_LEFT] = "+",
        [G_BOT_RIGHT] = "+", [G_CROSS] = "+",    [G_WRAP] = "\\",     [G_CURSOR] = "_",
        [G_FULL] = "#",      [G_EMPTY] = "-",    [G_METER_L] = "[",   [G_METER_R] = "]",
        [G_DOWN] = "v",      [G_DOT] = "-",      [G_BOX_ON] = "x",    [G_BOX_OFF] = "o",
    },
};

const char *theme_glyph(const struct theme *th, enum glyph g)
{
    return glyphs[th->ascii || !th->utf8][g];
}

void theme_start(struct theme *th)
{
    const char *no = getenv("NO_COLOR");
    th->color = !(no && no[0]) && has_colors() && start_color() == OK;
    if (!th->color) {
        return;
    }
    use_default_colors();
    for (short i = 0; i < R_COUNT; i++) {
        if (init_pair((short)(i + 1), looks[i].color, -1) == ERR) {
            th->color = false;
            return;
        }
    }
}

void theme_attrs(const struct theme *th, uint16_t style, unsigned long *attrs, short *pair)
{
    unsigned role = style & STYLE_ROLE_MASK;
    if (role >= R_COUNT) {
        role = R_TEXT;
    }
    attr_t a = looks[role].attr;
    a |= style & STYLE_BOLD ? A_BOLD : 0;
    a |= style & STYLE_ITALIC ? A_ITALIC : 0;
    a |= style & STYLE_UNDER ? A_UNDERLINE : 0;
    a |= style & STYLE_REVERSE ? A_REVERSE : 0;
    *attrs = a;
    *pair = th->color && looks[role].color >= 0 ? (short)(role + 1) : 0;
}
