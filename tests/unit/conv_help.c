/* Conversations with the stand-in engine. */
#include "config.h"
#include "tests/unit/conv_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "conv/conv.h"
#include "format/container.h"
#include "tests/fake/engine.h"
#include "tokenizer/tokenizer.h"

char model[4096]; /* the demo's path */
struct tokenizer *tok;

struct conv_opts opts(const char *setup)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s,vocab=%d,eos_id=%d,model=%s", setup, tokenizer_size(tok),
             tokenizer_added_id(tok, "<|im_end|>", 10), model);
    struct conv_opts o = conv_opts_default();
    o.model = path;
    o.max_tokens = 64;
    return o;
}

struct conv *open_conv(const struct conv_opts *o)
{
    struct conv *c = NULL;
    struct err e = ERR_INIT;
    fake_log_reset();
    assert_int_equal(conv_open(o, &c, &e), 0);
    return c;
}

void say(const char *text)
{
    struct tok_ids ids = {0};
    tokenizer_encode(tok, text, strlen(text), true, &ids);
    fake_script(ids.v, (int)ids.n);
    tok_ids_free(&ids);
}

void heard_fini(struct heard *h)
{
    buf_free(&h->text);
    buf_free(&h->thought);
    buf_free(&h->calls);
    buf_free(&h->why);
    buf_free(&h->notice);
    memset(h, 0, sizeof *h);
}

void hear(struct conv *c, const struct chat *t, struct heard *h)
{
    memset(h, 0, sizeof *h);
    struct conv_event ev;
    for (bool over = false; !over;) {
        assert_true(conv_wait(c, &ev, 20000));
        struct buf *into = NULL;
        switch (ev.kind) {
        case CE_LOADING:
            break;
        case CE_READY:
            h->ready++;
            break;
        case CE_FAILED:
            fail_msg("%s", ev.text.data);
            break;
        case CE_QUEUED:
            h->queued++;
            break;
        case CE_PREFILL:
            assert_int_equal(h->text.len + h->thought.len, 0);
            h->prefill++;
            break;
        case CE_THOUGHT:
            into = &h->thought;
            break;
        case CE_TEXT:
            into = &h->text;
            break;
        case CE_TOOL:
            into = &h->calls;
            break;
        case CE_NOTICE:
            h->notices++;
            buf_add(&h->notice, ev.text.data, ev.text.len);
            buf_addc(&h->notice, '\n');
            break;
        case CE_SAVED:
        case CE_STORED:
        case CE_COUNTED:
            break;
        case CE_END:
            assert_ptr_equal(ev.chat, t);
            h->reason = ev.reason;
            into = &h->why;
            over = true;
            break;
        }
        if (into) {
            buf_add(into, ev.text.data ? ev.text.data : "", ev.text.len);
        }
        conv_event_fini(&ev);
    }
}

void ask(struct conv *c, struct chat *t, const char *text, struct heard *h)
{
    assert_int_equal(chat_send(t, text, strlen(text), NULL), 0);
    hear(c, t, h);
}

char state_home[] = "/tmp/quasar-conv-XXXXXX";

int conv_prepare(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(model, sizeof model, "%s/models/demo.qsr", src ? src : ".");
    struct container *c = NULL;
    struct err e = ERR_INIT;
    if (container_open(model, false, &c, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    const char *p = NULL;
    size_t n = 0;
    container_get(c, CB_TOKENIZER, &p, &n);
    int rc = tokenizer_open(p, n, NULL, 0, "demo", &tok, &e);
    container_close(c);
    if (rc < 0 || !mkdtemp(state_home)) {
        return -1;
    }
    setenv("XDG_STATE_HOME", state_home, 1);
    return 0;
}

int conv_clean(void **state)
{
    (void)state;
    tokenizer_free(tok);
    char cmd[256];
    snprintf(cmd, sizeof cmd, "rm -rf %s", state_home);
    return system(cmd);
}
