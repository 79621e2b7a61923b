/* Ids to text, a token at a time. Tokens end anywhere inside characters; up to
 * three bytes wait until the rest of theirs has come. */
#include "config.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/utf8.h"

void detok_add(struct detok *d, const struct tokenizer *t, int32_t id, bool show_specials,
               struct buf *out)
{
    size_t n = 0;
    const char *p = tokenizer_bytes(t, id, &n);
    if (!p || (!show_specials && tokenizer_is_special(t, id))) {
        return;
    }
    struct buf all = BUF_INIT;
    if (d->n > 0) {
        buf_add(&all, d->pending, (size_t)d->n);
        buf_add(&all, p, n);
        p = all.data;
        n = all.len;
    }
    size_t done = utf8_complete_prefix(p, n);
    utf8_sanitize(p, done, out);
    d->n = (int)(n - done);
    memcpy(d->pending, p + done, n - done);
    buf_free(&all);
}

void detok_flush(struct detok *d, struct buf *out)
{
    if (d->n > 0) {
        buf_adds(out, "\xEF\xBF\xBD");
    }
    d->n = 0;
}
