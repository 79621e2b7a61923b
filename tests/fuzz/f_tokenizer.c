/* Tokenizer files: whatever the bytes, either a tokenizer that encodes and
 * decodes, or one line that says why not. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/tokdata.h"
#include "tokenizer/tokenizer.h"

static void require(int ok)
{
    if (!ok) {
        abort();
    }
}

static void use(const struct tokenizer *t)
{
    static const char text[] = "The in\xFFner <|im_start|>  \u4eba'll\r\n\r\n 12";
    struct tok_ids ids = {NULL, 0, 0};
    struct buf b = BUF_INIT;
    struct detok d = {0};
    tokenizer_encode(t, text, sizeof text - 1, true, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        require(ids.v[i] >= 0 && ids.v[i] < tokenizer_size(t));
        detok_add(&d, t, ids.v[i], true, &b);
    }
    detok_flush(&d, &b);
    for (int32_t id = -1; id <= tokenizer_size(t); id++) {
        size_t n = 0;
        require(!tokenizer_bytes(t, id, &n) || n > 0);
    }
    buf_free(&b);
    tok_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct tokenizer *t = NULL;
    struct err e = ERR_INIT;
    int rc = tokenizer_open((const char *)p, n, NULL, 0, "file", &t, &e);
    if (rc == 0) {
        use(t);
    } else {
        require(!t && strncmp(e.msg, "file: ", 6) == 0 && !strpbrk(e.msg, "\n\r\033"));
    }
    tokenizer_free(t);
    /* and with a token that only tokenizer_config.json lists */
    static const char *const config =
        "{\"added_tokens_decoder\":{\"400\":{\"content\":\"<x>\",\"special\":true}}}";
    t = NULL;
    if (tokenizer_open((const char *)p, n, config, strlen(config), "file", &t, NULL) == 0) {
        use(t);
    }
    tokenizer_free(t);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    struct fuzz_seed *s = mem_array(3, sizeof *s);
    for (size_t i = 0; i < 3; i++) {
        struct buf b = BUF_INIT;
        if (i == 0) {
            tokdata_json_small("demo", 60, &b);
        } else if (i == 1) {
            tokdata_tok_small("demo", 60, &b);
        } else {
            buf_adds(&b, "{\"model\":{\"merges\":[\"a b\"],\"vocab\":{\"a\":0}}}");
        }
        s[i].size = b.len;
        s[i].data = (uint8_t *)buf_take(&b);
    }
    *n = 3;
    return s;
}
