#ifndef QUASAR_VIEW_TOOLS_H
#define QUASAR_VIEW_TOOLS_H

#include <stdint.h>

/* What became of tool calls since the start. */
#define VIEW_TOOL_MODES 48

struct view_tools {
    uint64_t landed; /* calls, of whatever shape */
    uint64_t missed; /* answers in which something that looks like a call stayed text */
    int n;
    struct {
        const char *mode; /* the shape (docs/tools.md); lives for ever */
        uint64_t calls;
    } shape[VIEW_TOOL_MODES];
};

#endif
