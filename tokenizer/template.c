/* The face of the chat templates: which renderer serves a template file, the
 * checks all of them share. */
#include "config.h"
#include "tokenizer/template.h"

#include <string.h>

#include "base/hash.h"
#include "tokenizer/template_int.h"

static const struct known {
    enum template_kind kind;
    const char *name;
    const char *sha256; /* of the file with LF line ends and no final newline */
} known[] = {
    {TPL_DEMO, "demo", "0f135fd70fd6322123e8ed5f58ce037c3b08710abe72b2f0ef0711f78a1e24c2"},
    {TPL_QWEN35, "3.5", "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715"},
    {TPL_QWEN35_OFF, "3.5-off", "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80"},
    {TPL_QWEN36, "3.6", "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259"},
    {TPL_QWEN38, "3.8", "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041"},
};
#define N_KNOWN (sizeof known / sizeof *known)

int template_detect(const char *p, size_t n, enum template_kind *out, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_reserve(&b, n);
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\r' || i + 1 == n || p[i + 1] != '\n') {
            buf_addc(&b, p[i]);
        }
    }
    while (b.len > 0 && b.data[b.len - 1] == '\n') {
        b.len--;
    }
    uint8_t sum[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_of(b.data ? b.data : "", b.len, sum);
    hex_of(sum, sizeof sum, hex);
    buf_free(&b);
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (strcmp(known[i].sha256, hex) == 0) {
            *out = known[i].kind;
            return 0;
        }
    }
    return err_set(e, QE_UNSUPPORTED,
                   "this chat template (SHA-256 %.12s…) is none of those built in: choose the "
                   "nearest with --template 3.5, 3.5-off, 3.6, 3.8 or demo",
                   hex);
}

int template_by_name(const char *name, enum template_kind *out, struct err *e)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].kind;
            return 0;
        }
    }
    return err_set(e, QE_USAGE, "there is no template \"%s\" (3.5, 3.5-off, 3.6, 3.8, demo)", name);
}

const char *template_name(enum template_kind k)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (known[i].kind == k) {
            return known[i].name;
        }
    }
    return "?";
}

int template_render(const json_t *messages, const json_t *tools, const struct template_opts *o,
                    struct rendered *out, struct err *e)
{
    if (!json_is_array(messages)) {
        return err_set(e, QE_FORMAT, "the messages are not a JSON array");
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (!json_is_object(json_array_get(messages, i))) {
            return err_set(e, QE_FORMAT, "messages[%zu] is not an object", i);
        }
    }
    if (tools && !json_is_null(tools) && !json_is_array(tools)) {
        return err_set(e, QE_FORMAT, "the tools are not a JSON array");
    }
    struct rendered r = {0};
    int rc = o->kind == TPL_DEMO ? render_demo(messages, tools, o, &r, e)
                                 : render_qwen(messages, tools, o, &r, e);
    if (rc < 0) {
        rendered_free(&r);
        return rc;
    }
    if (o->generation_prompt && o->opens_call) {
        out_literal(&r, "<tool_call>\n");
    }
    *out = r;
    return 0;
}
