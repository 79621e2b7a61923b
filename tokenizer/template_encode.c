/* From marked text to token ids. What lies between two marks goes through the
 * tokenizer as one run, as it would in a whole encoding, but with added tokens
 * off, so only the marks can become control tokens. */
#include "config.h"
#include "tokenizer/template.h"

/* Ends lie at marks or at the end of the text: n ids stand before offset at. */
static void note_ends(const struct rendered_ends *from, size_t at, size_t n,
                      struct rendered_ends *to)
{
    to->head = from->head == at ? n : to->head;
    to->query = from->query == at ? n : to->query;
    to->input = from->input == at ? n : to->input;
}

int rendered_encode_ends(const struct rendered *r, const struct tokenizer *t, struct tok_ids *out,
                         struct rendered_ends *ends, struct err *e)
{
    *ends = (struct rendered_ends){0, 0, 0};
    struct tok_ids ids = {0};
    size_t at = 0;
    for (size_t i = 0; i < r->n_marks; i++) {
        const struct rendered_mark *m = &r->marks[i];
        int32_t id = tokenizer_added_id(t, r->text.data + m->off, m->len);
        if (id < 0) {
            tok_ids_free(&ids);
            return err_set(e, QE_UNSUPPORTED,
                           "the tokenizer has no token \"%.*s\", which the chat template needs",
                           (int)m->len, r->text.data + m->off);
        }
        if (m->off > at) {
            tokenizer_encode(t, r->text.data + at, m->off - at, false, &ids);
        }
        note_ends(&r->ends, m->off, ids.n, ends);
        tok_ids_add(&ids, id);
        at = m->off + m->len;
    }
    if (r->text.len > at) {
        tokenizer_encode(t, r->text.data + at, r->text.len - at, false, &ids);
    }
    note_ends(&r->ends, r->text.len, ids.n, ends);
    for (size_t i = 0; i < ids.n; i++) {
        tok_ids_add(out, ids.v[i]);
    }
    tok_ids_free(&ids);
    return 0;
}

int rendered_encode(const struct rendered *r, const struct tokenizer *t, struct tok_ids *out,
                    struct err *e)
{
    struct rendered_ends ends;
    return rendered_encode_ends(r, t, out, &ends, e);
}
