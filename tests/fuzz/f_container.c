/* Any bytes as a container of either version: refused with one line, or every
 * tensor and document lies inside and can be read. The digest of a version 2
 * head is made right first, or no change would ever get past it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/container.h"
#include "format/container_write.h"
#include "tests/fuzz/fuzz.h"

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static unsigned sum_of(const void *p, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += ((const unsigned char *)p)[i];
    }
    return sum;
}

static void read_all(const struct container *c)
{
    unsigned sum = 0;
    for (size_t i = 0; i < container_count(c); i++) {
        const struct tensor *t = container_at(c, i);
        size_t data = 0;
        size_t scales = 0;
        require(dtype_sizes(t->dtype, tensor_rows(t), tensor_cols(t), &data, &scales) == 0);
        require(data == t->size && scales == t->scale_size);
        require(container_find(c, t->name) == t);
        sum += sum_of(t->data, t->size) + sum_of(t->scales, t->scale_size);
        struct container_origin o = container_origin(c, i);
        sum += (unsigned)strlen(o.name) + (unsigned)strlen(o.type);
    }
    for (size_t i = 0; i < container_doc_count(c); i++) {
        struct container_doc d = container_doc_at(c, i);
        sum += sum_of(d.data, d.size) + sum_of(d.digest, SHA256_BYTES);
    }
    require(json_is_object(container_config(c)) && strlen(container_digest(c)) == 64);
    require(sum != 1);
}

static void open_one(const void *p, size_t n)
{
    struct container *c = NULL;
    struct err e = ERR_INIT;
    if (container_open_mem(p, n, "f", false, &c, &e) == 0) {
        read_all(c);
        container_close(c);
    } else {
        require(e.msg[0] != 0 && strchr(e.msg, '\n') == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    open_one(p, n);
    uint64_t start = 0;
    if (n < 96 || memcmp(p, "QSRF", 4) != 0) {
        return 0;
    }
    uint8_t *q = mem_alloc(n);
    memcpy(q, p, n);
    uint64_t size = n;
    memcpy(q + 40, &size, 8);
    memcpy(&start, q + 32, 8);
    if (start >= 96 && start <= n) {
        struct sha256 *h = sha256_create();
        sha256_add(h, q, 64);
        sha256_add(h, q + 96, (size_t)start - 96);
        sha256_done(h, q + 64);
        sha256_free(h);
        open_one(q, n);
    }
    free(q);
    return 0;
}

static const char config[] =
    "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,\"num_hidden_layers\":1,"
    "\"intermediate_size\":64,\"num_attention_heads\":1,\"num_key_value_heads\":1,"
    "\"head_dim\":64,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
    "\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":4,"
    "\"vocab_size\":8,\"max_position_embeddings\":64,\"layer_types\":[\"linear_attention\"],"
    "\"rms_norm_eps\":1e-6,\"rope_theta\":1e7}";

static void take_file(const char *path, struct fuzz_seed *s)
{
    struct buf b = BUF_INIT;
    require(io_read_file(path, 1 << 20, &b, NULL) == 0);
    unlink(path);
    s->size = b.len;
    s->data = (uint8_t *)buf_take(&b);
}

static void seed_v2(struct fuzz_seed *s)
{
    char path[] = "/tmp/f_container-XXXXXX";
    int fd = mkstemp(path);
    require(fd >= 0);
    close(fd);
    struct container_writer *w = container_writer_create();
    json_t *meta = json_pack("{s:s,s:o}", "tier", "q8", "config", json_loads(config, 0, NULL));
    container_writer_meta_take(w, meta);
    container_writer_doc(w, "tokenizer.json", "{}", 2);
    container_writer_doc(w, "empty", "", 0);
    const uint64_t shape[2] = {2, 128};
    const char zeros[1024] = "";
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_G128, DT_Q4_G64};
    for (int i = 0; i < 5; i++) {
        char name[] = "embed_tokens.weight";
        name[0] = (char)(name[0] + i);
        require(container_writer_declare(w, name, "model.x", "BF16", types[i], 2, shape, NULL) ==
                0);
    }
    require(container_writer_begin(w, path, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        size_t data = 0;
        size_t scales = 0;
        dtype_sizes(types[i], 2, 128, &data, &scales);
        require(container_writer_data(w, zeros, data, zeros, scales, NULL) == 0);
    }
    require(container_writer_commit(w, NULL) == 0);
    container_writer_free(w);
    take_file(path, s);
}

static void put(struct buf *b, uint64_t v, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        buf_addc(b, (char)(v >> (8 * i) & 255));
    }
}

static void entry(struct buf *b, const char *name, unsigned dtype, uint64_t rows, uint64_t cols,
                  uint64_t off, uint64_t size)
{
    put(b, strlen(name), 2);
    buf_adds(b, name);
    put(b, dtype, 1);
    put(b, rows ? 2 : 1, 1);
    if (rows) {
        put(b, rows, 8);
    }
    put(b, cols, 8);
    put(b, off, 8);
    put(b, size, 8);
    put(b, dtype == DT_Q4_G64 ? off : 0, 8);
    put(b, dtype == DT_Q4_G64 ? rows * cols / 32 : 0, 8);
}

static void seed_v1(struct fuzz_seed *s)
{
    static const char meta[] =
        "{\"general.architecture\":\"qwen35\",\"qwen35.block_count\":1,"
        "\"qwen35.embedding_length\":64,\"qwen35.feed_forward_length\":64,"
        "\"qwen35.attention.head_count\":1,\"qwen35.attention.head_count_kv\":[0,1],"
        "\"qwen35.attention.key_length\":64,\"qwen35.context_length\":64,"
        "\"qwen35.ssm.conv_kernel\":4,\"qwen35.ssm.state_size\":16,\"qwen35.ssm.group_count\":2,"
        "\"qwen35.ssm.time_step_rank\":4,\"qwen35.ssm.inner_size\":64}";
    struct buf b = BUF_INIT;
    put(&b, 0x46373251, 4);
    put(&b, 1, 4);
    put(&b, 6, 4);
    put(&b, strlen(meta), 4);
    buf_adds(&b, meta);
    entry(&b, "token_embd.weight", DT_F16, 8, 64, 0, 1024);
    entry(&b, "blk.0.ssm_a", DT_F32, 0, 4, 0, 16);
    entry(&b, "blk.0.ssm_alpha.weight", DT_F16, 4, 64, 0, 512);
    entry(&b, "blk.0.attn_gate.weight", DT_Q4_G64, 64, 64, 0, 2048);
    entry(&b, "blk.0.ssm_out.weight", DT_F32, 8, 64, 0, 2048);
    entry(&b, "blk.0.ssm_conv1d.weight", DT_F32, 128, 4, 0, 2048);
    while (b.len % 256 != 0) {
        buf_addc(&b, 0);
    }
    put(&b, 0, 8);
    while (b.len % 256 != 0) {
        buf_addc(&b, 1);
    }
    for (int i = 0; i < 1792; i++) {
        buf_addc(&b, (char)i);
    }
    s->size = b.len;
    s->data = (uint8_t *)buf_take(&b);
    struct container *c = NULL;
    struct err e = ERR_INIT;
    require(container_open_mem(s->data, s->size, "seed", false, &c, &e) == 0);
    require(container_version(c) == 1 && container_count(c) == 6);
    container_close(c);
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    struct fuzz_seed *s = mem_array(2, sizeof *s);
    seed_v2(&s[0]);
    seed_v1(&s[1]);
    *n = 2;
    return s;
}
