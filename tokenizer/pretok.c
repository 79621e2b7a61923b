/* Split patterns over PCRE2 with JIT. A published pattern is recognised by its
 * text and run as our own spelling of it: \s means Unicode's White_Space there,
 * while PCRE2's \s also takes U+180E, so the blanks are written out. */
#include "config.h"
#include "tokenizer/pretok.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/log.h"
#include "base/mem.h"
#include "tokenizer/vocab.h"

/* White_Space, for use inside a class. */
#define BLANK                                                                                      \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"       \
    "\\x{3000}"
/* Both patterns: they differ in whether a mark (\p{M}) belongs to a word. */
#define PUBLISHED(word, mark)                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" word "+|\\p{N}| ?[^\\s\\p{L}" mark       \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OURS(word, mark)                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" word "+|\\p{N}| ?[^" BLANK "\\p{L}" mark \
    "\\p{N}]+[\\r\\n]*|[" BLANK "]*[\\r\\n]+|[" BLANK "]+(?![^" BLANK "])|[" BLANK "]+"

static const struct {
    const char *published, *ours;
} known[] = {
    {PUBLISHED("[\\p{L}\\p{M}]", "\\p{M}"), OURS("[\\p{L}\\p{M}]", "\\p{M}")},
    {PUBLISHED("\\p{L}", ""), OURS("\\p{L}", "")},
};

struct pretok {
    pcre2_code *code;
};

int pretok_create(const char *pattern, size_t n, struct pretok **out, struct err *e)
{
    const char *ours = pattern ? NULL : known[0].ours;
    for (size_t i = 0; !ours && i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].published) == n && memcmp(known[i].published, pattern, n) == 0) {
            ours = known[i].ours;
        }
    }
    if (!ours) {
        char q[QUOTED_MAX];
        return err_set(e, QE_UNSUPPORTED,
                       "the split pattern \"%s\" is not one of the Qwen3 and Qwen3.5 families",
                       vocab_quote(pattern, n, q));
    }
    int code = 0;
    size_t at = 0;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)ours, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, NULL);
    if (!c) {
        char text[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        return err_set(e, QE_INTERNAL, "PCRE2 refuses the split pattern at %zu: %s", at, text);
    }
    /* Without JIT on this processor the same code is interpreted. */
    (void)pcre2_jit_compile(c, PCRE2_JIT_COMPLETE);
    struct pretok *p = mem_alloc(sizeof *p);
    p->code = c;
    *out = p;
    return 0;
}

void pretok_free(struct pretok *p)
{
    if (p) {
        pcre2_code_free(p->code);
        free(p);
    }
}

void pretok_run_init(struct pretok_run *r, const struct pretok *p)
{
    pcre2_match_context *ctx = pcre2_match_context_create(NULL);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!ctx || !match) {
        (void)mem_array(SIZE_MAX, 2);
    }
    /* Every alternative gives back one character at a time at most, so a match
     * costs a small multiple of its length; no limit may cut it. */
    pcre2_set_match_limit(ctx, UINT32_MAX);
    *r = (struct pretok_run){p, match, ctx};
}

void pretok_run_fini(struct pretok_run *r)
{
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->context);
}

size_t pretok_next(const struct pretok_run *r, const char *p, size_t n)
{
    int rc = pcre2_match(r->pattern->code, (PCRE2_SPTR)p, n, 0, PCRE2_NO_UTF_CHECK, r->match,
                         r->context);
    /* The patterns repeat only single characters, for which JIT needs no room
     * that grows with the text; a build of PCRE2 that does is not trusted to. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(r->pattern->code, (PCRE2_SPTR)p, n, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         r->match, r->context);
    }
    size_t end = rc >= 0 ? pcre2_get_ovector_pointer(r->match)[1] : 0;
    if (end == 0) {
        /* The alternatives cover every character: only exhausted memory is left. */
        log_line(LOG_ERROR, "PCRE2 cannot split a text of %zu bytes (error %d)", n, rc);
        abort();
    }
    return end;
}
