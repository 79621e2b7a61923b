/* Any bytes as a GGUF file: refused with one line, or every value and tensor
 * lies inside and can be read. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "tests/fuzz/fuzz.h"

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static uint64_t walk_array(struct gguf_array a, const uint8_t *p, size_t n)
{
    uint64_t sum = 0;
    const char *s = NULL;
    size_t len = 0;
    double d = 0;
    int64_t i = 0;
    struct gguf_array in;
    while (a.n > 0) {
        if (gguf_next_int(&a, &i) || gguf_next_num(&a, &d)) {
            sum += (uint64_t)i;
        } else if (gguf_next_str(&a, &s, &len)) {
            require((const uint8_t *)s >= p && len <= n && (const uint8_t *)s + len <= p + n);
            sum += len > 0 ? (uint8_t)s[len - 1] : 0;
        } else {
            require(gguf_next_arr(&a, &in));
            sum += walk_array(in, p, n);
        }
        require(a.p >= p && a.p <= p + n);
    }
    return sum;
}

static void read_value(const struct gguf *g, const char *key, const uint8_t *p, size_t n)
{
    struct err e = ERR_INIT;
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    size_t len = 0;
    struct gguf_array a;
    int kinds = 0;
    kinds += gguf_get_num(g, key, true, &d, &e) == 0;
    kinds += gguf_get_bool(g, key, true, &b, &e) == 0;
    kinds += gguf_get_str(g, key, true, &s, &len, &e) == 0;
    if (gguf_get_arr(g, key, true, -1, &a, &e) == 0) {
        kinds++;
        (void)walk_array(a, p, n);
    }
    require(kinds == 1);
    (void)gguf_get_int(g, key, false, -5, 5, &i, &e);
    require(i >= -5 && i <= 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct gguf *g = NULL;
    struct err e = ERR_INIT;
    int rc = gguf_open_mem(p, n, "input", &g, &e);
    if (rc < 0) {
        require((rc == QE_FORMAT || rc == QE_UNSUPPORTED) && e.code == rc && e.msg[0]);
        for (const char *m = e.msg; *m; m++) {
            require((unsigned char)*m >= 0x20);
        }
        return 0;
    }
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        read_value(g, gguf_kv_at(g, i)->key, p, n);
    }
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        require(gguf_find(g, t->name) == t);
        require(t->data >= p && t->size <= n && t->data + t->size <= p + n);
        require(gguf_row_size(t) * gguf_rows(t) == t->size);
        float *w = mem_array(gguf_cols(t), sizeof *w);
        rc = gguf_decode(t, gguf_rows(t) - 1, 1, w, &e);
        require(rc == (gguf_type_decodable(t->type) ? 0 : QE_UNSUPPORTED));
        free(w);
    }
    gguf_close(g);
    return 0;
}

static void u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, 4);
}

static void u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, 8);
}

static void str(struct buf *b, const char *s)
{
    u64(b, strlen(s));
    buf_adds(b, s);
}

static void key(struct buf *b, const char *name, uint32_t type)
{
    str(b, name);
    u32(b, type);
}

/* Every kind of value and one tensor of each type that is decoded. */
static struct fuzz_seed full_seed(void)
{
    static const uint32_t types[] = {GGUF_F32,  GGUF_F16,  GGUF_BF16, GGUF_Q4_0, GGUF_Q8_0,
                                     GGUF_Q4_K, GGUF_Q5_K, GGUF_Q6_K, 10};
    enum { N_TYPES = sizeof types / sizeof *types };
    struct buf b = BUF_INIT;
    buf_adds(&b, "GGUF");
    u32(&b, 3);
    u64(&b, N_TYPES);
    u64(&b, 16);
    const char fixed[8] = {1};
    const struct {
        const char *name;
        uint32_t type;
        size_t width;
    } plain[] = {{"u8", 0, 1},   {"i8", 1, 1},   {"u16", 2, 2}, {"i16", 3, 2},
                 {"u32", 4, 4},  {"i32", 5, 4},  {"f32", 6, 4}, {"bool", 7, 1},
                 {"u64", 10, 8}, {"i64", 11, 8}, {"f64", 12, 8}};
    for (size_t i = 0; i < 11; i++) {
        key(&b, plain[i].name, plain[i].type);
        buf_add(&b, fixed, plain[i].width);
    }
    key(&b, "general.alignment", 4);
    u32(&b, 32);
    key(&b, "general.architecture", 8);
    str(&b, "qwen35");
    key(&b, "tokens", 9);
    u32(&b, 8);
    u64(&b, 3);
    str(&b, "a");
    str(&b, "");
    str(&b, "bc");
    key(&b, "scores", 9);
    u32(&b, 6);
    u64(&b, 2);
    u64(&b, 0x3F8000003F800000);
    key(&b, "nested", 9);
    u32(&b, 9);
    u64(&b, 2);
    u32(&b, 7);
    u64(&b, 1);
    buf_addc(&b, 1);
    u32(&b, 1);
    u64(&b, 0);
    uint64_t offset = 0;
    for (size_t i = 0; i < N_TYPES; i++) {
        uint32_t elems = 1;
        uint32_t bytes = 1;
        (void)gguf_type_info(types[i], NULL, &elems, &bytes);
        char name[3] = {'t', (char)('0' + i), 0};
        str(&b, name);
        u32(&b, 2);
        u64(&b, elems);
        u64(&b, 2);
        u32(&b, types[i]);
        u64(&b, offset);
        offset += (2 * bytes + 31) / 32 * 32;
    }
    while (b.len % 32 != 0) {
        buf_addc(&b, 0);
    }
    for (uint64_t i = 0; i < offset; i++) {
        buf_addc(&b, (char)(i * 37));
    }
    struct fuzz_seed s = {NULL, b.len};
    s.data = (uint8_t *)buf_take(&b);
    return s;
}

static struct fuzz_seed small_seed(void)
{
    struct buf b = BUF_INIT;
    buf_adds(&b, "GGUF");
    u32(&b, 2);
    u64(&b, 0);
    u64(&b, 1);
    key(&b, "split.count", 2);
    buf_add(&b, "\1\0", 2);
    struct fuzz_seed s = {NULL, b.len};
    s.data = (uint8_t *)buf_take(&b);
    return s;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    struct fuzz_seed *s = mem_array(2, sizeof *s);
    s[0] = full_seed();
    s[1] = small_seed();
    *n = 2;
    return s;
}
