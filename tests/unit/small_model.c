/* Synthetic checkpoints for the tests of containers and conversions. */
#include "config.h"
#include "tests/unit/small_model.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "format/tokjson.h"

enum { H = 256, FFN = 384, VOCAB = 320, QKV = 1280, VALUES = 768 };

static uint64_t rng = 88172645463325252ULL;

static double uniform(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (double)(rng >> 11) * 0x1p-53;
}

char *small_read(const char *path, size_t *n)
{
    struct buf b = BUF_INIT;
    assert_int_equal(io_read_file(path, (size_t)1 << 30, &b, NULL), 0);
    *n = b.len;
    return buf_take(&b);
}

void small_write(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void small_model_remove(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d));) {
        char *file = io_join(path, x->d_name);
        unlink(file);
        free(file);
    }
    if (d) {
        closedir(d);
        rmdir(path);
    } else {
        unlink(path);
    }
}

/* ---- the weights ---- */

struct writing {
    const struct small_opts *o;
    struct st_writer *w;
    bool values; /* second pass */
};

static void tensor(struct writing *x, const char *name, int n_dims, uint64_t a, uint64_t b,
                   uint64_t c)
{
    char full[288];
    bool bare = strncmp(name, "mtp.", 4) == 0 || strncmp(name, "lm_head", 7) == 0;
    snprintf(full, sizeof full, "%s%s",
             bare           ? ""
             : x->o->nested ? "model.language_model."
                            : "model.",
             name);
    if (x->o->leave_out && strcmp(full, x->o->leave_out) == 0) {
        return;
    }
    uint64_t shape[3] = {a, b, c};
    struct err e = ERR_INIT;
    if (!x->values) {
        assert_int_equal(st_writer_declare(x->w, full, DT_BF16, n_dims, shape, &e), 0);
        return;
    }
    size_t n = (size_t)(a * (n_dims > 1 ? b : 1) * (n_dims > 2 ? c : 1));
    uint16_t *v = mem_array(n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        double u = uniform() * 2 - 1;
        /* small weights of norms that 1 + w cannot hold exactly */
        double w = n_dims == 1 ? u * pow(10, -6 * uniform()) : u * 0.06;
        v[i] = f32_to_bf16((float)w);
    }
    if (x->o->poison && strcmp(full, x->o->poison) == 0) {
        v[n / 2] = 0x7FC0;
    }
    assert_int_equal(st_writer_data(x->w, v, n * 2, &e), 0);
    free(v);
}

static void vec(struct writing *x, const char *name, uint64_t n)
{
    tensor(x, name, 1, n, 0, 0);
}

static void mat(struct writing *x, const char *name, uint64_t rows, uint64_t cols)
{
    tensor(x, name, 2, rows, cols, 0);
}

static const char *at(char *out, const char *prefix, const char *leaf)
{
    snprintf(out, 256, "%s%s", prefix, leaf);
    return out;
}

static void block(struct writing *x, const char *p, bool full)
{
    char s[256];
    vec(x, at(s, p, "input_layernorm.weight"), H);
    vec(x, at(s, p, "post_attention_layernorm.weight"), H);
    mat(x, at(s, p, "mlp.gate_proj.weight"), FFN, H);
    mat(x, at(s, p, "mlp.up_proj.weight"), FFN, H);
    mat(x, at(s, p, "mlp.down_proj.weight"), H, FFN);
    if (full) {
        mat(x, at(s, p, "self_attn.q_proj.weight"), 1024, H);
        mat(x, at(s, p, "self_attn.k_proj.weight"), 256, H);
        mat(x, at(s, p, "self_attn.v_proj.weight"), 256, H);
        mat(x, at(s, p, "self_attn.o_proj.weight"), H, 512);
        vec(x, at(s, p, "self_attn.q_norm.weight"), 256);
        vec(x, at(s, p, "self_attn.k_norm.weight"), 256);
        return;
    }
    mat(x, at(s, p, "linear_attn.in_proj_qkv.weight"), QKV, H);
    mat(x, at(s, p, "linear_attn.in_proj_z.weight"), VALUES, H);
    mat(x, at(s, p, "linear_attn.in_proj_b.weight"), 6, H);
    mat(x, at(s, p, "linear_attn.in_proj_a.weight"), 6, H);
    vec(x, at(s, p, "linear_attn.A_log"), 6);
    vec(x, at(s, p, "linear_attn.dt_bias"), 6);
    tensor(x, at(s, p, "linear_attn.conv1d.weight"), 3, QKV, 1, 4);
    vec(x, at(s, p, "linear_attn.norm.weight"), 128);
    mat(x, at(s, p, "linear_attn.out_proj.weight"), H, VALUES);
}

static void weights(struct writing *x)
{
    mat(x, "embed_tokens.weight", VOCAB, H);
    for (int i = 0; i < 4; i++) {
        char p[32];
        snprintf(p, sizeof p, "layers.%d.", i);
        block(x, p, i == 3);
    }
    vec(x, "norm.weight", H);
    if (!x->o->tied) {
        mat(x, "lm_head.weight", VOCAB, H);
    }
    if (!x->o->no_mtp) {
        mat(x, "mtp.fc.weight", H, 2 * H);
        vec(x, "mtp.pre_fc_norm_embedding.weight", H);
        vec(x, "mtp.pre_fc_norm_hidden.weight", H);
        vec(x, "mtp.norm.weight", H);
        block(x, "mtp.layers.0.", true);
    }
}

/* ---- the documents ---- */

static const char text_config[] =
    "\"hidden_size\":256,\"num_hidden_layers\":4,\"intermediate_size\":384,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":256,"
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_key_head_dim\":128,"
    "\"linear_value_head_dim\":128,\"linear_conv_kernel_dim\":4,\"vocab_size\":320,"
    "\"rms_norm_eps\":1e-06,\"max_position_embeddings\":4096,\"full_attention_interval\":4,"
    "\"eos_token_id\":258,\"pad_token_id\":256";

static void write_config(const char *dir, const struct small_opts *o)
{
    struct buf b = BUF_INIT;
    const char *type = o->model_type ? o->model_type : o->nested ? "qwen3_5" : "qwen3_5_text";
    buf_printf(&b, "{\"model_type\":\"%s\",\"tie_word_embeddings\":%s,", type,
               o->tied ? "true" : "false");
    const char *mtp = o->no_mtp ? "" : ",\"mtp_num_hidden_layers\":1";
    if (o->nested) {
        buf_printf(&b,
                   "\"text_config\":{%s%s,\"rope_scaling\":{\"type\":\"default\","
                   "\"mrope_section\":[11,11,10]},\"rope_theta\":10000000}}",
                   text_config, mtp);
    } else {
        buf_printf(&b,
                   "%s%s,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000000,"
                   "\"partial_rotary_factor\":0.25,\"mrope_section\":[11,11,10],"
                   "\"mrope_interleaved\":true}}",
                   text_config, mtp);
    }
    char *path = io_join(dir, "config.json");
    small_write(path, b.data, b.len);
    free(path);
    buf_free(&b);
}

static void write_doc(const char *dir, const char *name, const char *s)
{
    char *path = io_join(dir, name);
    small_write(path, s, strlen(s));
    free(path);
}

static void write_tokenizer(const char *dir)
{
    struct tok_list l = {.marks_in_words = true};
    uint32_t next = 256;
    for (int c = 0; c < 256; c++) {
        bool self = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
        char s[4];
        int n = utf8_put(self ? (uint32_t)c : next++, s);
        assert_int_equal(tok_list_token(&l, c, s, (size_t)n, TOK_NORMAL, NULL), 0);
    }
    tok_list_token(&l, 256, "<|endoftext|>", 13, TOK_CONTROL, NULL);
    tok_list_token(&l, 257, "<|im_start|>", 12, TOK_CONTROL, NULL);
    tok_list_token(&l, 258, "<|im_end|>", 10, TOK_CONTROL, NULL);
    tok_list_token(&l, 259, "<think>", 7, TOK_USER, NULL);
    tok_list_token(&l, 260, "th", 2, TOK_NORMAL, NULL);
    tok_list_token(&l, 261, "the", 3, TOK_NORMAL, NULL);
    tok_list_merge(&l, "t h", 3, NULL);
    tok_list_merge(&l, "th e", 4, NULL);
    char *text = NULL;
    assert_int_equal(tok_list_json(&l, &text, NULL), 0);
    write_doc(dir, "tokenizer.json", text);
    free(text);
    tok_list_fini(&l);
}

void small_model_write(const char *path, const struct small_opts *o)
{
    assert_int_equal(mkdir(path, 0755), 0);
    write_config(path, o);
    write_tokenizer(path);
    write_doc(path, "chat_template.jinja", "{{ messages }}\n");
    write_doc(path, "tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}\n");
    write_doc(path, "generation_config.json", "{\"eos_token_id\": [258, 256], \"top_k\": 20}\n");
    write_doc(path, "MODEL_CARD.md", "# A small model\n");
    struct writing x = {o, NULL, false};
    struct err e = ERR_INIT;
    rng = 88172645463325252ULL;
    assert_int_equal(st_writer_create(path, o->sharded ? 1000000 : (uint64_t)1 << 30, &x.w, &e), 0);
    weights(&x);
    x.values = true;
    weights(&x);
    assert_int_equal(st_writer_commit(x.w, &e), 0);
    st_writer_free(x.w);
}

/* ---- version 1 ---- */

static void put(struct buf *b, uint64_t v, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        buf_addc(b, (char)(v >> (8 * i) & 255));
    }
}

static void pad(struct buf *b)
{
    while (b->len % 256 != 0) {
        buf_addc(b, 0);
    }
}

static const char v1_meta[] =
    "{\"q27_version\":1,\"quant_policy\":\"v1.4\",\"general.architecture\":\"qwen35\","
    "\"general.name\":\"small\",\"qwen35.block_count\":5,\"qwen35.nextn_predict_layers\":1,"
    "\"qwen35.embedding_length\":256,\"qwen35.feed_forward_length\":384,"
    "\"qwen35.attention.head_count\":2,\"qwen35.attention.head_count_kv\":1,"
    "\"qwen35.attention.key_length\":256,\"qwen35.attention.layer_norm_rms_epsilon\":1e-06,"
    "\"qwen35.context_length\":4096,\"qwen35.rope.dimension_count\":64,"
    "\"qwen35.rope.dimension_sections\":[11,11,10,0],\"qwen35.rope.freq_base\":10000000.0,"
    "\"qwen35.ssm.conv_kernel\":4,\"qwen35.ssm.state_size\":128,\"qwen35.ssm.group_count\":2,"
    "\"qwen35.ssm.time_step_rank\":6,\"qwen35.ssm.inner_size\":768}";

static void write_tok(const char *q27)
{
    struct buf b = BUF_INIT;
    put(&b, 0x54373251, 4);
    put(&b, 1, 4);
    put(&b, 3, 4);
    put(&b, 0xFFFFFFFF, 4);
    put(&b, 2, 4);
    static const char *const tokens[] = {"a", "b", "ab"};
    for (int i = 0; i < 3; i++) {
        put(&b, strlen(tokens[i]), 2);
        buf_adds(&b, tokens[i]);
    }
    put(&b, 0x010101, 3);
    put(&b, 1, 4);
    put(&b, 3, 2);
    buf_adds(&b, "a b");
    char path[256];
    snprintf(path, sizeof path, "%.*s.tok", (int)strlen(q27) - 4, q27);
    small_write(path, b.data, b.len);
    buf_free(&b);
}

void small_model_q27(const char *gguf, const char *q27)
{
    struct gguf *g = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(gguf_open(gguf, &g, &e), 0);
    struct buf head = BUF_INIT;
    struct buf data = BUF_INIT;
    put(&head, 0x46373251, 4);
    put(&head, 1, 4);
    put(&head, gguf_count(g), 4);
    put(&head, strlen(v1_meta), 4);
    buf_adds(&head, v1_meta);
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        enum dtype type = DT_F32;
        assert_true(quant_gguf_shared(t->type, t->data, gguf_rows(t), gguf_cols(t), &type));
        size_t n = 0;
        size_t k = 0;
        assert_int_equal(dtype_sizes(type, gguf_rows(t), gguf_cols(t), &n, &k), 0);
        put(&head, strlen(t->name), 2);
        buf_adds(&head, t->name);
        put(&head, type, 1);
        put(&head, (uint64_t)t->n_dims, 1);
        for (int d = 0; d < t->n_dims; d++) {
            put(&head, t->shape[d], 8);
        }
        char *codes = mem_alloc(n + k + 1);
        quant_from_gguf(t->type, t->data, gguf_rows(t), gguf_cols(t), codes, codes + n);
        put(&head, data.len, 8);
        put(&head, n, 8);
        buf_add(&data, codes, n);
        pad(&data);
        put(&head, k ? data.len : 0, 8);
        put(&head, k, 8);
        buf_add(&data, codes + n, k);
        pad(&data);
        free(codes);
    }
    gguf_close(g);
    pad(&head);
    buf_add(&head, data.data, data.len);
    small_write(q27, head.data, head.len);
    buf_free(&head);
    buf_free(&data);
    write_tok(q27);
}
