#ifndef QUASAR_BASE_DTYPE_H
#define QUASAR_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Weight formats and the borrowed view of one tensor: the currency between the
 * file formats and the kernels. Codes 0..7 are those of the q27 version 1
 * container; 16 and up are ours.
 *
 * Quantised values: an element is code * scale, exact in fp32. Groups run along
 * the last (input) axis; scales lie in a blob of their own, fp16,
 * [rows][cols / group].
 */
enum dtype {
    DT_F32 = 0,
    DT_F16 = 1,
    DT_Q8_G128 = 2, /* int8, scale per 128 */
    DT_Q4_G64 = 3,  /* 4 bits, value nibble - 8, even element in the low nibble, scale per 64 */
    DT_BF16 = 16
};

#define TENSOR_MAX_DIMS 4

struct tensor {
    const char *name;
    enum dtype dtype;
    int n_dims;
    uint64_t shape[TENSOR_MAX_DIMS]; /* outer first: a matrix is [out, in] */
    const void *data;
    size_t size;
    const void *scales; /* NULL for unquantised formats */
    size_t scale_size;
};

/* "f32", "f16", "q8_g128", "q4_g64", "bf16"; NULL for an unknown code. */
const char *dtype_name(enum dtype t);

/* Elements per scale group (1 for unquantised formats). */
int dtype_group(enum dtype t);

/* Bytes of the data and of the scale blob for rows x cols elements; 0 on
 * success, -1 when cols is not a multiple of the group or the size overflows. */
int dtype_sizes(enum dtype t, uint64_t rows, uint64_t cols, size_t *data, size_t *scales);

/* Product of the shape without its last axis, and the last axis. */
uint64_t tensor_rows(const struct tensor *t);
uint64_t tensor_cols(const struct tensor *t);

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x); /* round to nearest even; overflow to infinity */
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float x); /* round to nearest even; NaN stays NaN */
/* E4M3 (no infinities, 0x7F is NaN): round to nearest even, saturating at 448. */
float f8_to_f32(uint8_t h);
uint8_t f32_to_f8(float x);

#endif
