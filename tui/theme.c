/* Roles to curses attributes, and the two glyph sets. The default theme uses
 * the terminal's own 16 colours on its own background, light and dark use the
 * palette of 256 where there is one; with NO_COLOR, and in mono, only bold,
 * dim, italic, underline and reverse remain. No theme paints a background. */
#include "config.h"
#include "tui/theme.h"

#include <curses.h>
#include <stdlib.h>
#include <string.h>

struct look {
    short color; /* -1: the terminal's own */
    attr_t attr;
};

/* Also where a terminal has only 16 colours. */
static const struct look default_looks[R_COUNT] = {
    [R_TEXT] = {-1, 0},
    [R_DIM] = {-1, A_DIM},
    [R_STRONG] = {-1, A_BOLD},
    [R_USER] = {COLOR_CYAN, A_BOLD},
    [R_MODEL] = {COLOR_GREEN, A_BOLD},
    [R_THOUGHT] = {COLOR_MAGENTA, 0},
    [R_CODE] = {COLOR_CYAN, 0},
    [R_KEYWORD] = {COLOR_MAGENTA, A_BOLD},
    [R_STRING] = {COLOR_GREEN, 0},
    [R_COMMENT] = {COLOR_BLUE, 0},
    [R_TOOL] = {COLOR_YELLOW, 0},
    [R_GOOD] = {COLOR_GREEN, 0},
    [R_WARN] = {COLOR_YELLOW, 0},
    [R_BAD] = {COLOR_RED, A_BOLD},
    [R_METER] = {COLOR_GREEN, 0},
    [R_METER_LOW] = {-1, A_DIM},
    [R_SELECT] = {-1, A_REVERSE},
    [R_SEARCH] = {COLOR_YELLOW, A_REVERSE},
    [R_BORDER] = {-1, A_DIM},
};

static const struct look light_looks[R_COUNT] = {
    [R_TEXT] = {-1, 0},       [R_DIM] = {243, 0},           [R_STRONG] = {-1, A_BOLD},
    [R_USER] = {25, A_BOLD},  [R_MODEL] = {28, A_BOLD},     [R_THOUGHT] = {90, 0},
    [R_CODE] = {24, 0},       [R_KEYWORD] = {91, A_BOLD},   [R_STRING] = {28, 0},
    [R_COMMENT] = {59, 0},    [R_TOOL] = {94, 0},           [R_GOOD] = {28, 0},
    [R_WARN] = {130, 0},      [R_BAD] = {160, A_BOLD},      [R_METER] = {28, 0},
    [R_METER_LOW] = {250, 0}, [R_SELECT] = {-1, A_REVERSE}, [R_SEARCH] = {130, A_REVERSE},
    [R_BORDER] = {246, 0},
};

static const struct look dark_looks[R_COUNT] = {
    [R_TEXT] = {-1, 0},       [R_DIM] = {246, 0},           [R_STRONG] = {-1, A_BOLD},
    [R_USER] = {81, A_BOLD},  [R_MODEL] = {114, A_BOLD},    [R_THOUGHT] = {176, 0},
    [R_CODE] = {152, 0},      [R_KEYWORD] = {141, A_BOLD},  [R_STRING] = {150, 0},
    [R_COMMENT] = {109, 0},   [R_TOOL] = {180, 0},          [R_GOOD] = {114, 0},
    [R_WARN] = {221, 0},      [R_BAD] = {203, A_BOLD},      [R_METER] = {114, 0},
    [R_METER_LOW] = {240, 0}, [R_SELECT] = {-1, A_REVERSE}, [R_SEARCH] = {221, A_REVERSE},
    [R_BORDER] = {241, 0},
};

const char *const theme_names[THEME_COUNT] = {"default", "auto", "light", "dark", "mono"};

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
    return glyphs[th->ascii || !th->utf8 || th->wide][g];
}

bool theme_named(const char *name, enum theme_kind *out)
{
    for (int i = 0; i < THEME_COUNT; i++) {
        if (strcmp(name, theme_names[i]) == 0) {
            *out = (enum theme_kind)i;
            return true;
        }
    }
    return false;
}

static const struct look *looks_of(const struct theme *th)
{
    return th->look == THEME_LIGHT  ? light_looks
           : th->look == THEME_DARK ? dark_looks
                                    : default_looks;
}

static void declare(struct theme *th)
{
    const char *no = getenv("NO_COLOR");
    th->color = !(no && no[0]) && th->look != THEME_MONO && has_colors() && start_color() == OK;
    if (!th->color) {
        return;
    }
    if ((th->look == THEME_LIGHT || th->look == THEME_DARK) && COLORS < 256) {
        th->look = THEME_DEFAULT;
    }
    const struct look *looks = looks_of(th);
    use_default_colors();
    for (short i = 0; i < R_COUNT; i++) {
        if (init_pair((short)(i + 1), looks[i].color, -1) == ERR) {
            th->color = false;
            return;
        }
    }
}

void theme_start(struct theme *th)
{
    th->look = th->kind == THEME_AUTO ? THEME_DEFAULT : th->kind;
    declare(th);
}

void theme_background(struct theme *th, int luminance)
{
    if (th->kind == THEME_AUTO) {
        th->look = luminance > 500 ? THEME_LIGHT : THEME_DARK;
        declare(th);
    }
}

void theme_attrs(const struct theme *th, uint16_t style, unsigned long *attrs, short *pair)
{
    const struct look *looks = looks_of(th);
    unsigned role = style & STYLE_ROLE_MASK;
    if (role >= R_COUNT) {
        role = R_TEXT;
    }
    attr_t a = looks[role].attr;
    if (!th->color) {
        a = default_looks[role].attr;
        a |= role == R_COMMENT ? A_ITALIC : 0;
    }
    a |= style & STYLE_BOLD ? A_BOLD : 0;
    a |= style & STYLE_ITALIC ? A_ITALIC : 0;
    a |= style & STYLE_UNDER ? A_UNDERLINE : 0;
    a |= style & STYLE_REVERSE ? A_REVERSE : 0;
    *attrs = a;
    *pair = th->color && looks[role].color >= 0 ? (short)(role + 1) : 0;
}
