#ifndef QUASAR_KERNELS_CUDA_KVLAYOUT_H
#define QUASAR_KERNELS_CUDA_KVLAYOUT_H

#include <stdint.h>

#include "kernels/backend.h"

/*
 * Where a head's rows lie in a cache page on the device: tiles of 64 rows, each one
 * block of memory. fp16 and fp8: see cu_kv_offset. Packed tiles have planes, in the
 * order in which the lanes of a warp feed mma.m16n8k16 with keys (values) as its wide
 * operand: a lane expands what it loads and needs nothing of its neighbours.
 *
 * T3 keys: [row] 96 bytes, [row] two fp16 scales. A row has for every 32 elements of the first
 *     half, then of the second, 3 words: [32 elements, t][half][word]. Nibbles of word i are
 *     codes of elements 32 t + 8 i + n; the fourth bits of the three words' nibbles n are bits
 *     0, 1 and 2 of element 32 t + 24 + n.
 * T5 keys: [half][row] 64 bytes, magnitudes 0..15, the even element low; [half][row] 16
 *     bytes, a word for every 32: element e is negative in bit 8 (e % 4) + 7 - e / 4; scales.
 * B8 keys: an fp8 tile of steps + 128; [row] 16 bytes, high bytes of the fp16 step sizes.
 * T3 values: planes of [number][64 rows] bytes (cu_kv_plane): number 8 w + g: low bits of
 *     elements 32 w + 2 g, + 1, + 16, + 17; number 4 w + g / 2: third bits of 2 g, + 1 and +
 *     16, + 17 in bits 0, 1 and 4, 5, for odd g two higher; [half][row] fp16 scales, rows ordered
 *     as in planes.
 * B4 values: number d / 2: steps + 8 of elements d, d + 1; [group] lines of high bytes
 *     of the fp16 step sizes.
 */
enum {
    KVL_ROWS = 64,   /* of a tile */
    KVL_T3_KEY = 96, /* bytes of a row of keys */
    KVL_T3_HI = 4096,
    KVL_T3_SCALE = 6144,
    KVL_T5_SIGN = 8192,
    KVL_T5_SCALE = 10240,
    KVL_B8_STEP = 16384,
    KVL_B4_STEP = 8192
};

/* Byte of row r (of 64) in line i of a plane: the rows that lane t of four has of 16 rows are
 * 4 t ... 4 t + 3, and its rows of all four sixteens follow each other. */
static inline int cu_kv_plane(int i, int r)
{
    return i * KVL_ROWS + r % 16 / 4 * 16 + r / 16 * 4 + r % 4;
}

#ifdef __cplusplus
extern "C" {
#endif

/* A row of a head's keys (values: which = 1), in the order of kvq.h, to and from its place
 * in a page. head: where that head's part of the page begins. */
void cu_kv_put(enum be_kv kv, int which, uint8_t *head, int row, const uint8_t *from);
void cu_kv_get(enum be_kv kv, int which, const uint8_t *head, int row, uint8_t *to);
/* The bits of a tile (KVL_ROWS rows' bytes of kvq.h) that its first rows have. */
void cu_kv_mask(enum be_kv kv, int which, int rows, uint8_t *mask);

#ifdef __cplusplus
}
#endif

#endif
