/* Any text: encoding and decoding gives it back, repaired and normalised, and
 * no part of a character comes out alone on the way. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/tokdata.h"
#include "tests/unit/tokgen.h"
#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer.h"

#define N_SEEDS 300

static struct tokenizer *tok;

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

static void open_once(void)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    tokdata_json("demo", "demo", &b);
    if (tokenizer_open(b.data, b.len, NULL, 0, "demo", &tok, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    buf_free(&b);
}

static void close_it(void)
{
    tokenizer_free(tok);
}

/* Ids to text; checks that every step leaves whole characters. */
static void decode(const struct tok_ids *ids, struct buf *out)
{
    struct detok d = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t from = out->len;
        require(ids->v[i] >= 0 && ids->v[i] < tokenizer_size(tok));
        detok_add(&d, tok, ids->v[i], true, out);
        require(utf8_valid(out->data + from, out->len - from));
    }
    detok_flush(&d, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (!tok) {
        open_once();
        atexit(close_it);
    }
    struct buf clean = BUF_INIT;
    struct buf want = BUF_INIT;
    struct buf got = BUF_INIT;
    struct tok_ids ids = {NULL, 0, 0};
    utf8_sanitize((const char *)p, n, &clean);
    nfc_add(clean.data, clean.len, &want);
    tokenizer_encode(tok, (const char *)p, n, false, &ids);
    decode(&ids, &got);
    require(got.len == want.len && (got.len == 0 || memcmp(got.data, want.data, got.len) == 0));
    for (size_t i = 0; i < ids.n; i++) {
        require(!tokenizer_is_added(tok, ids.v[i]));
    }
    ids.n = 0;
    buf_truncate(&got, 0);
    tokenizer_encode(tok, (const char *)p, n, true, &ids);
    decode(&ids, &got);
    buf_free(&clean);
    buf_free(&want);
    buf_free(&got);
    tok_ids_free(&ids);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    struct fuzz_seed *s = mem_array(N_SEEDS, sizeof *s);
    struct tokgen *g = tokgen_create();
    for (uint32_t i = 0; i < N_SEEDS; i++) {
        struct buf b = BUF_INIT;
        tokgen_text(g, i, &b);
        s[i].size = b.len;
        s[i].data = (uint8_t *)buf_take(&b);
    }
    tokgen_free(g);
    *n = N_SEEDS;
    return s;
}
