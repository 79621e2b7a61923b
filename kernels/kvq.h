#ifndef QUASAR_KERNELS_KVQ_H
#define QUASAR_KERNELS_KVQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

/* Inline on the host and, compiled by nvcc, on the device. */
#ifdef __CUDACC__
#define KVQ_FN static __host__ __device__ __forceinline__
#else
#define KVQ_FN static inline
#endif

/*
 * How a head's 256 keys or values of one token are stored (docs/kv.md). The packed
 * forms turn numbers into codes here, for both backends; where the CUDA backend puts
 * a code is its own affair (kernels/cuda/kvlayout.h).
 *
 * T3, T5: halves of 128 are divided by their length and turned by R(x) = S2 H S1 x /
 * sqrt(128), H the Walsh-Hadamard transform in natural order, S1 and S2 fixed signs;
 * each coordinate becomes the nearest of 8 or 32 levels. A half's scale is such that
 * what is stored has the length of what came. B4: halves turned by H S1 / sqrt(128),
 * then as B8 with 4 bits. B8: 16 neighbours share a power of two. R is orthogonal:
 * scores are products of turned queries and turned keys; sums of values are turned
 * back at the end.
 */
enum kvq_kind { KVQ_F32, KVQ_F16, KVQ_F8, KVQ_B8, KVQ_T5, KVQ_T3, KVQ_B4 };

enum {
    KVQ_HALF = 128, /* elements that are turned together */
    KVQ_GROUP = 16, /* that share an exponent */
    KVQ_T3_HALF = 50,
    KVQ_T5_HALF = 82
};

/* What a format keeps keys as; values with which = 1. */
KVQ_FN enum kvq_kind kvq_of(enum be_kv kv, int which)
{
    switch (kv) {
    case BE_KV_F32:
        return KVQ_F32;
    case BE_KV_F16:
        return KVQ_F16;
    case BE_KV_F8:
        return KVQ_F8;
    case BE_KV_K8V4:
        return which ? KVQ_B4 : KVQ_B8;
    case BE_KV_K5V3:
        return which ? KVQ_T3 : KVQ_T5;
    case BE_KV_K3V3:
        return KVQ_T3;
    }
    return KVQ_F32;
}

/* Bytes of a head's row of 256. */
KVQ_FN size_t kvq_row_bytes(enum kvq_kind k)
{
    switch (k) {
    case KVQ_F32:
        return 1024;
    case KVQ_F16:
        return 512;
    case KVQ_F8:
        return 256;
    case KVQ_B8:
        return 272;
    case KVQ_T5:
        return 164;
    case KVQ_T3:
        return 100;
    case KVQ_B4:
        return 144;
    }
    return 0;
}

KVQ_FN bool kvq_packed(enum kvq_kind k)
{
    return k >= KVQ_B8;
}

KVQ_FN bool kvq_turned(enum kvq_kind k)
{
    return k >= KVQ_T5;
}

/* Codes of a row. T3: 0..7, T5: 0..31, ascending. B8: -127..127, B4: -7..7 steps; scale:
 * the biased exponents of 16 groups. T3, T5: scale has the fp16 bits of both halves. */
struct kvq_codes {
    int8_t code[BE_HEAD_DIM];
    uint16_t scale[BE_HEAD_DIM / KVQ_GROUP];
};

#ifdef __cplusplus
extern "C" {
#endif

/* Of a packed kind; x is the row as it comes. */
void kvq_quantise(enum kvq_kind k, const float *x, struct kvq_codes *out);

/* A packed row in the CPU's order:
 * T3: for each half fp16 scale; 32 bytes, the codes' low two bits, element j in bits
 *     2 (j % 4) of byte j / 4; 16 bytes, their third bit, element j in bit j % 8 of byte j / 8.
 * T5: fp16 scale; 64 bytes, low four bits, the even element low; 16 bytes, the fifth bit.
 * B8: 256 signed steps; 16 exponents.
 * B4: steps + 8 in 16 bytes for every 32 elements: j in the low half of byte j, 16 + j in
 *     its high half; 16 exponents. */
void kvq_pack(enum kvq_kind k, const struct kvq_codes *c, uint8_t *row);
void kvq_unpack(enum kvq_kind k, const uint8_t *row, struct kvq_codes *c);

/* What codes stand for; still turned where the kind is. */
void kvq_values(enum kvq_kind k, const struct kvq_codes *c, float *x);

/* A row of any kind, in the CPU's order, and back to what came, as far as it was kept. */
void kvq_store(enum kvq_kind k, const float *x, uint8_t *row);
void kvq_read(enum kvq_kind k, const uint8_t *row, float *x);

/* Turns a row of 256, and back; nothing for kinds that are not turned. */
void kvq_turn(enum kvq_kind k, float *x);
void kvq_turn_back(enum kvq_kind k, float *x);

/* Row `row` of made-up keys (values: which = 1) between -1 and 1, stored. */
void kvq_made_up(enum kvq_kind k, int row, int which, uint8_t *out);

#ifdef __cplusplus
}
#endif

#endif
