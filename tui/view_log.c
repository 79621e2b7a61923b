/* The rows are kept until a line comes or the width changes. Scrolled up, the view stays
 * at its rows while others come below. */
#include "config.h"
#include "tui/view_log.h"

void log_view_fini(struct log_view *v)
{
    text_rows_free(&v->rows);
}

int log_view_update(struct log_view *v, struct logbook *b, const struct theme *th, int width,
                    int room, size_t *first)
{
    const unsigned version = logbook_version(b);
    if (v->width != width || v->version != version) {
        const int before = (int)v->rows.n_rows;
        const bool same = v->width == width;
        logbook_layout(b, th, width, &v->rows);
        v->version = version;
        v->width = width;
        if (v->up > 0 && same) {
            v->up += (int)v->rows.n_rows - before;
        }
    }
    const int n = (int)v->rows.n_rows;
    const int most = n > room ? n - room : 0;
    v->up = v->up < 0 ? 0 : v->up > most ? most : v->up;
    *first = (size_t)(most - v->up);
    return n < room ? n : room;
}
