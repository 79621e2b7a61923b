#ifndef QUASAR_TESTS_CUDA_MM_HELP_H
#define QUASAR_TESTS_CUDA_MM_HELP_H

/* Random matrices as tensors, as weight tiles and in double; activations with sums. */

#include <vector>

extern "C" {
#include "base/dtype.h"
}
#include "cutest.h"

struct test_mat {
    enum dtype type;
    int rows, k;
    double *w; /* [rows][k] */
    struct cu_mat mat;
};

/* data and scales of a random tensor; w gets its values, [rows][k]. */
static inline struct tensor random_tensor(enum dtype type, int rows, int k, double *w)
{
    const int group = dtype_group(type);
    size_t bytes = 0, scale_bytes = 0;
    cut_must(dtype_sizes(type, (uint64_t)rows, (uint64_t)k, &bytes, &scale_bytes), "dtype_sizes");
    uint8_t *data = cut_host<uint8_t>(bytes);
    uint16_t *scales = scale_bytes ? cut_host<uint16_t>(scale_bytes / 2) : NULL;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < k; c++) {
            const size_t at = (size_t)r * (size_t)k + (size_t)c;
            if (scales && c % group == 0) {
                scales[at / (size_t)group] = cut_half(0.01f + 0.005f * cut_uniform());
            }
            const float s = scales ? cut_float(scales[at / (size_t)group]) : 0;
            float v = cut_normal() * 0.05f;
            const int code = type == DT_Q4_G64 ? cut_below(16) - 8 : cut_below(255) - 127;
            if (type == DT_Q4_G64) {
                data[at / 2] |= (uint8_t)((code + 8) << (at % 2 ? 4 : 0));
                v = (float)code * s;
            } else if (type == DT_Q8_G128) {
                data[at] = (uint8_t)(int8_t)code;
                v = (float)code * s;
            } else if (type == DT_F16 || type == DT_BF16) {
                const uint16_t h = type == DT_F16 ? cut_half(v) : f32_to_bf16(v);
                memcpy(data + 2 * at, &h, sizeof h);
                v = type == DT_F16 ? cut_float(h) : bf16_to_f32(h);
            } else {
                memcpy(data + 4 * at, &v, sizeof v);
            }
            w[at] = v;
        }
    }
    struct tensor t = {};
    t.name = "test";
    t.dtype = type;
    t.n_dims = 2;
    t.shape[0] = (uint64_t)rows;
    t.shape[1] = (uint64_t)k;
    t.data = data;
    t.size = bytes;
    t.scales = scales;
    t.scale_size = scale_bytes;
    return t;
}

/* pair: two tensors of rows / 2, interleaved by 8 (gate and up); row r of w is then the
 * packed row. */
static inline struct test_mat mat_random(enum dtype type, int rows, int k, bool pair)
{
    struct test_mat m = {};
    m.type = type;
    m.rows = rows;
    m.k = k;
    m.w = cut_host<double>((size_t)rows * (size_t)k);
    const enum cu_kind kind = cu_kind_of(type);
    const int blocks = (rows + 63) / 64 * 4, each = pair ? rows / 2 : rows;
    double *w[2] = {cut_host<double>((size_t)each * (size_t)k),
                    cut_host<double>((size_t)each * (size_t)k)};
    struct tensor t[2] = {};
    for (int i = 0; i < (pair ? 2 : 1); i++) {
        t[i] = random_tensor(type, each, k, w[i]);
    }
    const size_t bytes = cu_mat_bytes(kind, rows, k);
    uint8_t *tiles = cut_host<uint8_t>(bytes);
    float *scale = cut_host<float>((size_t)blocks * 16);
    const struct tensor *src[2] = {&t[0], &t[1]};
    const size_t tile_bytes = (size_t)(k / 64) * cu_step_bytes(kind);
    for (int b = 0; b < blocks; b++) {
        cu_pack_block(kind, src, pair ? 2 : 1, rows, k, b, tiles + (size_t)(b / 4) * tile_bytes,
                      scale + b * 16);
    }
    for (int r = 0; r < rows; r++) {
        const int from = pair ? r / 16 * 8 + r % 8 : r;
        memcpy(m.w + (size_t)r * (size_t)k, w[pair ? r / 8 % 2 : 0] + (size_t)from * (size_t)k,
               (size_t)k * sizeof *m.w);
    }
    m.mat.data = cut_upload(tiles, bytes);
    m.mat.row_scale = kind == CU_W16 ? cut_upload(scale, (size_t)blocks * 16) : NULL;
    m.mat.kind = kind;
    m.mat.rows = rows;
    m.mat.tiles = blocks / 4;
    m.mat.kg = k / 64;
    m.mat.name = "test";
    for (int i = 0; i < 2; i++) {
        free(w[i]);
        free((void *)t[i].data);
        free((void *)t[i].scales);
    }
    free(tiles);
    free(scale);
    return m;
}

static inline void mat_free(struct test_mat *m)
{
    cut_free((void *)m->mat.data);
    cut_free((void *)m->mat.row_scale);
    free(m->w);
}

/* Sums of every 32 of a row, in any order (reference only). */
static inline float sum32(const uint16_t *x)
{
    double s = 0;
    for (int i = 0; i < 32; i++) {
        s += cut_float(x[i]);
    }
    return (float)s;
}

#endif
