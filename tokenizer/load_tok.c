/* The tokenizer file beside a .q27 container, little-endian: "Q27T" as a number,
 * version 1, the numbers of tokens, of the first and last token of a text; then
 * per token its length and text, per token its GGUF type, and the merges as
 * "left right". It names no split pattern: it belongs to the Qwen3.5 family. */
#include "config.h"
#include "tokenizer/load.h"

#include <inttypes.h>
#include <string.h>

#define TOK_MAGIC   0x54373251U
#define TOK_VERSION 1U

/* Token types as in GGUF. */
enum { T_NORMAL = 1, T_CONTROL = 3, T_USER = 4, T_UNUSED = 5 };

struct reader {
    const unsigned char *p, *end;
};

static bool take(struct reader *r, size_t n, const unsigned char **out)
{
    if ((size_t)(r->end - r->p) < n) {
        return false;
    }
    *out = r->p;
    r->p += n;
    return true;
}

static bool take_u32(struct reader *r, uint32_t *out)
{
    const unsigned char *b;
    if (!take(r, 4, &b)) {
        return false;
    }
    *out = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return true;
}

static bool take_text(struct reader *r, const char **p, size_t *n)
{
    const unsigned char *b;
    if (!take(r, 2, &b)) {
        return false;
    }
    *n = (size_t)(b[0] | b[1] << 8);
    if (!take(r, *n, &b)) {
        return false;
    }
    *p = (const char *)b;
    return true;
}

bool load_is_tok(const char *p, size_t n)
{
    struct reader r = {(const unsigned char *)p, (const unsigned char *)p + n};
    uint32_t magic = 0;
    return take_u32(&r, &magic) && magic == TOK_MAGIC;
}

static int cut(const char *where, struct err *e)
{
    return err_set(e, QE_FORMAT, "the .tok file ends inside its %s", where);
}

/* Tokens of one class, base entries or added ones, by their types. */
static int add_class(struct tokenizer *t, struct reader r, uint32_t n, const unsigned char *types,
                     bool base, struct err *e)
{
    int rc = 0;
    for (uint32_t id = 0; id < n && rc == 0; id++) {
        const char *p = NULL;
        size_t len = 0;
        if (!take_text(&r, &p, &len)) {
            return cut("tokens", e);
        }
        switch (types[id]) {
        case T_NORMAL:
            rc = base ? vocab_add_base(t, id, p, len, e) : 0;
            break;
        case T_CONTROL:
        case T_USER:
            rc = base ? 0 : vocab_add_added(t, id, p, len, types[id] == T_CONTROL, e);
            break;
        case T_UNUSED:
            break;
        default:
            rc = err_set(e, QE_UNSUPPORTED, "token %" PRIu32 " has the unknown type %d", id,
                         types[id]);
        }
    }
    return rc;
}

static int add_merges(struct tokenizer *t, struct reader *r, struct err *e)
{
    uint32_t n = 0;
    if (!take_u32(r, &n)) {
        return cut("merges", e);
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *p = NULL;
        size_t len = 0;
        if (!take_text(r, &p, &len)) {
            return cut("merges", e);
        }
        const char *blank = len ? memchr(p, ' ', len) : NULL;
        if (!blank) {
            return err_set(e, QE_FORMAT, "merge %" PRIu32 " has no space in it", i);
        }
        size_t left = (size_t)(blank - p);
        int rc = vocab_add_merge(t, p, left, blank + 1, len - left - 1, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int load_tok(struct tokenizer *t, const char *p, size_t n, struct err *e)
{
    struct reader r = {(const unsigned char *)p, (const unsigned char *)p + n};
    uint32_t head[5] = {0}; /* magic, version, tokens, first, last */
    for (int i = 0; i < 5; i++) {
        if (!take_u32(&r, &head[i])) {
            return cut("header", e);
        }
    }
    if (head[0] != TOK_MAGIC || head[1] != TOK_VERSION) {
        return err_set(e, QE_UNSUPPORTED, "the .tok file has version %" PRIu32 ", not %u", head[1],
                       TOK_VERSION);
    }
    if (head[2] > VOCAB_MAX_IDS) {
        return err_set(e, QE_FORMAT, "the .tok file claims %" PRIu32 " tokens, more than %d",
                       head[2], VOCAB_MAX_IDS);
    }
    struct reader tokens = r;
    for (uint32_t i = 0; i < head[2]; i++) {
        const char *text = NULL;
        size_t len = 0;
        if (!take_text(&r, &text, &len)) {
            return cut("tokens", e);
        }
    }
    const unsigned char *types = NULL;
    if (!take(&r, head[2], &types)) {
        return cut("token types", e);
    }
    int rc = add_class(t, tokens, head[2], types, true, e);
    rc = rc < 0 ? rc : vocab_index(t, e);
    rc = rc < 0 ? rc : add_merges(t, &r, e);
    rc = rc < 0 ? rc : add_class(t, tokens, head[2], types, false, e);
    if (rc == 0 && r.p != r.end) {
        rc = err_set(e, QE_FORMAT, "the .tok file has %td bytes after its merges", r.end - r.p);
    }
    t->nfc = true;
    return rc < 0 ? rc : pretok_create(NULL, 0, &t->pretok, e);
}
