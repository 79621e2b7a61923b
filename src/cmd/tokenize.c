/* quasar tokenize: text to ids and back, whole files or one JSON value a line. */
#include "config.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "format/container.h"
#include "cmd/model.h"
#include "sessions/state.h"
#include "tokenizer/tokenizer.h"

#define MAX_INPUT ((size_t)1 << 30)

struct job {
    struct tokenizer *tok;
    bool decode, specials, json;
};

/* The tokenizer inside a model file. */
static int open_in_model(const char *path, struct tokenizer **out, struct err *e)
{
    struct container *c = NULL;
    const char *p = NULL;
    const char *config = NULL;
    size_t n = 0;
    size_t config_n = 0;
    int rc = container_open(path, false, &c, e);
    if (rc < 0) {
        return rc;
    }
    if (!container_get(c, CB_TOKENIZER, &p, &n)) {
        rc = err_set(e, QE_FORMAT, "%s has no tokenizer: give one with --tokenizer FILE", path);
    } else {
        (void)container_get(c, CB_TOKENIZER_CONFIG, &config, &config_n);
        rc = tokenizer_open(p, n, config, config_n, path, out, e);
    }
    container_close(c);
    return rc;
}

/* What a file is shows in its first bytes: JSON text, a .tok, or a model. */
static int open_tokenizer(const struct conf *cf, struct tokenizer **out, struct err *e)
{
    const char *path = conf_str(cf, "tokenizer");
    struct io_map m;
    if (!path) {
        char *model = NULL;
        int rc = model_find(conf_str(cf, "model"), &model, e);
        if (rc == 0) {
            rc = open_in_model(model, out, e);
        }
        free(model);
        return rc;
    }
    int rc = io_map_open(&m, path, e);
    if (rc < 0) {
        return rc;
    }
    const char *p = (const char *)m.data;
    bool model = m.size >= 4 && (memcmp(p, "QSRF", 4) == 0 || memcmp(p, "Q27F", 4) == 0);
    rc = model ? open_in_model(path, out, e) : tokenizer_open(p, m.size, NULL, 0, path, out, e);
    io_map_close(&m);
    return rc;
}

/* Whether the file is a saved state, of which the tokens are meant. */
static bool is_state(const char *path)
{
    char head[8] = "";
    FILE *f = fopen(path, "rb");
    const bool is = f && fread(head, 1, 8, f) == 8 && memcmp(head, "QSRSTATE", 8) == 0;
    if (f) {
        fclose(f);
    }
    return is;
}

static int read_state(const char *path, struct buf *in, struct err *e)
{
    struct state_file *f = NULL;
    const int rc = state_open(path, &f, e);
    for (size_t i = 0; rc == 0 && i < state_meta(f)->n_ids; i++) {
        buf_printf(in, "%" PRId32 " ", state_meta(f)->ids[i]);
    }
    state_close(f);
    return rc;
}

static int read_input(const struct conf *cf, struct buf *in, struct err *e)
{
    const char *path = conf_str(cf, "file");
    if (!path || strcmp(path, "-") == 0) {
        return io_read_fd(STDIN_FILENO, "standard input", MAX_INPUT, in, e);
    }
    struct stat st;
    const bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (regular && conf_flag(cf, "decode") && is_state(path)) {
        return read_state(path, in, e);
    }
    return io_read_stream(path, MAX_INPUT, in, e);
}

static json_t *ids_json(const struct tok_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n; i++) {
        json_array_append_new(list, json_integer(ids->v[i]));
    }
    return list;
}

static void print_ids(const struct tok_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        printf(i > 0 ? " %" PRId32 : "%" PRId32, ids->v[i]);
    }
    putchar('\n');
}

static int check_id(const struct job *j, int64_t id, struct err *e)
{
    size_t n = 0;
    if (id < 0 || id >= tokenizer_size(j->tok) || !tokenizer_bytes(j->tok, (int32_t)id, &n)) {
        return err_set(e, QE_USAGE, "there is no token %" PRId64 " (the largest is %" PRId32 ")",
                       id, tokenizer_size(j->tok) - 1);
    }
    return 0;
}

static void decode_ids(const struct job *j, const struct tok_ids *ids, struct buf *out)
{
    struct detok d = {0};
    for (size_t i = 0; i < ids->n; i++) {
        detok_add(&d, j->tok, ids->v[i], j->specials, out);
    }
    detok_flush(&d, out);
}

/* Whole numbers between blanks, commas and brackets. */
static int parse_ids(const struct job *j, const char *p, struct tok_ids *ids, struct err *e)
{
    for (;;) {
        p += strspn(p, " \t\r\n,[]");
        if (!*p) {
            return 0;
        }
        char *end = NULL;
        errno = 0;
        long long id = strtoll(p, &end, 10);
        if (end == p || errno != 0) {
            return err_set(e, QE_USAGE, "the input is not a list of token ids at \"%.16s\"", p);
        }
        int rc = check_id(j, id, e);
        if (rc < 0) {
            return rc;
        }
        tok_ids_add(ids, (int32_t)id);
        p = end;
    }
}

static int whole(const struct job *j, const struct buf *in, struct err *e)
{
    struct tok_ids ids = {NULL, 0, 0};
    struct buf text = BUF_INIT;
    int rc = 0;
    if (!j->decode) {
        tokenizer_encode(j->tok, in->data, in->len, j->specials, &ids);
    } else {
        if (in->len && memchr(in->data, 0, in->len)) {
            rc = err_set(e, QE_USAGE, "the input holds a NUL byte: it is not a list of token ids");
        } else if (in->len) {
            rc = parse_ids(j, in->data, &ids, e);
        }
        decode_ids(j, &ids, &text);
    }
    if (rc == 0 && j->json) {
        json_t *o = json_object();
        json_object_set_new(o, "tokens", ids_json(&ids));
        if (j->decode) {
            json_object_set_new(o, "text", json_str_lossy(text.data, text.len));
        }
        json_print_take(o);
    } else if (rc == 0 && j->decode) {
        fwrite(text.data, 1, text.len, stdout);
    } else if (rc == 0) {
        print_ids(&ids);
    }
    buf_free(&text);
    tok_ids_free(&ids);
    return rc;
}

/* One line of --jsonl: a string, or an array of ids with --decode. */
static int json_line(const struct job *j, const json_t *v, struct err *e)
{
    struct tok_ids ids = {NULL, 0, 0};
    int rc = 0;
    if (j->decode) {
        rc = json_is_array(v) ? 0 : err_set(e, QE_USAGE, "it is not an array of token ids");
        for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
            const json_t *id = json_array_get(v, i);
            rc = json_is_integer(id) ? check_id(j, json_integer_value(id), e)
                                     : err_set(e, QE_USAGE, "it has something that is no id");
            if (rc == 0) {
                tok_ids_add(&ids, (int32_t)json_integer_value(id));
            }
        }
        if (rc == 0) {
            struct buf text = BUF_INIT;
            decode_ids(j, &ids, &text);
            json_print_take(json_str_lossy(text.data, text.len));
            buf_free(&text);
        }
    } else if (json_is_string(v)) {
        tokenizer_encode(j->tok, json_string_value(v), json_string_length(v), j->specials, &ids);
        json_print_take(ids_json(&ids));
    } else {
        rc = err_set(e, QE_USAGE, "it is not a JSON string");
    }
    tok_ids_free(&ids);
    return rc;
}

static int lines(const struct job *j, const struct buf *in, struct err *e)
{
    size_t number = 0;
    for (size_t at = 0; at < in->len;) {
        const char *end = memchr(in->data + at, '\n', in->len - at);
        size_t n = end ? (size_t)(end - in->data) - at : in->len - at;
        json_t *v = NULL;
        char what[32];
        snprintf(what, sizeof what, "line %zu", ++number);
        int rc = json_parse(in->data + at, n, what, &v, e);
        if (rc < 0) {
            return rc;
        }
        rc = json_line(j, v, e);
        json_decref(v);
        if (rc < 0) {
            return err_wrap(e, rc, "%s", what);
        }
        at += n + 1;
    }
    return 0;
}

int cmd_tokenize(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 0) {
        return err_set(e, QE_USAGE,
                       "quasar tokenize reads standard input or -f FILE, no argument (\"%s\")",
                       args[0]);
    }
    struct job j = {NULL, conf_flag(cf, "decode"), !conf_flag(cf, "no-specials"),
                    conf_flag(cf, "json")};
    struct buf in = BUF_INIT;
    int rc = open_tokenizer(cf, &j.tok, e);
    if (rc == 0) {
        rc = read_input(cf, &in, e);
    }
    if (rc == 0) {
        rc = conf_flag(cf, "jsonl") ? lines(&j, &in, e) : whole(&j, &in, e);
    }
    buf_free(&in);
    tokenizer_free(j.tok);
    return rc;
}
