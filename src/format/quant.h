#ifndef QUASAR_FORMAT_QUANT_H
#define QUASAR_FORMAT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"

/*
 * Encode and decode of every weight type: our own (enum dtype) and the blocks
 * of GGUF. All functions work on a range of whole rows in contiguous memory, so
 * that a caller can stream a tensor of any size; all are safe to call from
 * several threads on distinct outputs, and use OpenMP over rows inside when the
 * range is large.
 *
 * Q8_G128: s = f16(max|w| / 127), q = rne(w / s) clipped to +-127.
 * Q4_G64:  s = f16(max|w| / 7), q = rne(w / s) clipped to -8..7, stored + 8.
 * The scale is rounded first and the codes are made with the rounded one. A
 * group whose scale rounds to 0 has only zero codes.
 */

/* Encodes rows x cols fp32 into t. data and scales are sized by dtype_sizes
 * (scales unused, may be NULL, for unquantised types). QE_USAGE when cols is
 * not a multiple of the group; QE_FORMAT, naming row and column, when a value
 * is NaN, infinite, or does not fit the type (the outputs are then unspecified). */
int quant_encode(enum dtype t, const float *src, uint64_t rows, uint64_t cols, void *data,
                 void *scales, struct err *e);

/* Decodes rows x cols to fp32: code * scale, exact. data and scales point at
 * the first of these rows; see quant_at. */
void quant_decode(enum dtype t, const void *data, const void *scales, uint64_t rows, uint64_t cols,
                  float *dst);

/* Bytes from the start of the blobs to the given row. cols is a multiple of the
 * group. */
void quant_at(enum dtype t, uint64_t row, uint64_t cols, size_t *data, size_t *scales);

/* The block types of GGUF, by the numbers of the format. */
enum gguf_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q8_0 = 8,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_BF16 = 30
};

/* Name ("Q4_K"), elements and bytes of one block of a type known to the format,
 * whether or not it can be decoded here; false for an unknown number. Each
 * out-parameter may be NULL. */
bool gguf_type_info(uint32_t type, const char **name, uint32_t *elems, uint32_t *bytes);

/* True for the types of enum gguf_type: those quant_decode_gguf knows. */
bool gguf_type_decodable(uint32_t type);

/* Decodes n elements (whole blocks; rows follow each other without padding).
 * QE_UNSUPPORTED for a type that is not decodable, QE_FORMAT when n is not a
 * multiple of the block. */
int quant_decode_gguf(uint32_t type, const void *data, uint64_t n, float *dst, struct err *e);

/* The GGUF type that holds t's values exactly, and the block's bytes from our
 * codes: unquantised types are copied, Q8_G128 becomes Q8_0 and Q4_G64 becomes
 * Q4_0 with the group's scale repeated in each of its blocks. */
enum gguf_type quant_gguf_type(enum dtype t);
void quant_to_gguf(enum dtype t, const void *data, const void *scales, uint64_t rows, uint64_t cols,
                   void *blocks);

/* The way back. quant_gguf_shared tells whether rows x cols of Q8_0 (Q4_0)
 * blocks hold exactly one scale per group of Q8_G128 (Q4_G64), with codes of
 * our range, so that quant_from_gguf copies codes and scales unchanged. Also
 * true for F32, F16 and BF16, which are copied. *t is the type that results;
 * false for everything else. */
bool quant_gguf_shared(uint32_t type, const void *blocks, uint64_t rows, uint64_t cols,
                       enum dtype *t);
void quant_from_gguf(uint32_t type, const void *blocks, uint64_t rows, uint64_t cols, void *data,
                     void *scales);

#endif
