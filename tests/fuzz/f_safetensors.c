/* Any bytes as a safetensors file: refused with one line, or every tensor lies
 * inside and can be read. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void read_tensor(const struct st_tensor *t, const uint8_t *p, size_t n)
{
    require(t->data >= p && t->size <= n && t->data + t->size <= p + n);
    if (!t->usable) {
        struct err e = ERR_INIT;
        require(st_decode(t, 0, 0, NULL, &e) == QE_UNSUPPORTED && e.msg[0]);
        return;
    }
    size_t width = t->dtype == DT_F32 ? 4 : 2;
    if (t->size > 0) {
        uint64_t cols = st_cols(t);
        require(st_rows(t) * cols * width == t->size);
        float *w = mem_array(cols, sizeof *w);
        require(st_decode(t, st_rows(t) - 1, 1, w, NULL) == 0);
        free(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct safetensors *s = NULL;
    struct err e = ERR_INIT;
    int rc = st_open_mem(p, n, "input", &s, &e);
    if (rc < 0) {
        require((rc == QE_FORMAT || rc == QE_UNSUPPORTED) && e.code == rc);
        for (const char *m = e.msg; *m; m++) {
            require((unsigned char)*m >= 0x20);
        }
        require(e.msg[0] != 0);
        return 0;
    }
    for (size_t i = 0; i < st_count(s); i++) {
        const struct st_tensor *t = st_at(s, i);
        require(st_find(s, t->name) == t);
        read_tensor(t, p, n);
    }
    (void)st_meta(s, "format");
    require(st_file_size(s) == n);
    st_close(s);
    return 0;
}

static struct fuzz_seed seed(const char *header, size_t data)
{
    uint64_t len = strlen(header);
    struct fuzz_seed x = {mem_zalloc(8 + (size_t)len + data), 8 + (size_t)len + data};
    memcpy(x.data, &len, 8);
    memcpy(x.data + 8, header, (size_t)len);
    return x;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    struct fuzz_seed *s = mem_array(3, sizeof *s);
    s[0] = seed("{\"__metadata__\":{\"format\":\"pt\"},"
                "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[4,8],\"data_offsets\":[0,64]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[64,76]},"
                "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[76,78]}}   ",
                78);
    s[1] = seed("{\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[16],\"data_offsets\":[4,20]},"
                "\"e\":{\"dtype\":\"F32\",\"shape\":[0,9],\"data_offsets\":[4,4]},"
                "\"n\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                20);
    s[2] = seed("{}", 0);
    *n = 3;
    return s;
}
