/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_groups_mve.h - multiply_groups.h for Cortex-M with Helium.
 */
#ifndef RAOT_MULTIPLY_GROUPS_MVE_H
#define RAOT_MULTIPLY_GROUPS_MVE_H

#include <stdint.h>

#include "mve.h"

#if defined(__clang__)
#define RAOT_GROUP_UNROLL
#else
#define RAOT_GROUP_UNROLL _Pragma("GCC unroll 8")
#endif

/* Four weights of a word as floats: bytes, or one half of each. */
__attribute__((always_inline)) static inline float32x4_t
raot_decode_mve(const int32_t bits, const int32_t is_high, int32x4_t bytes)
{
    if (bits == 8) {
        return vcvtq_f32_s32(bytes);
    }
    if (is_high != 0) {
        return vcvtq_f32_s32(vshrq_n_s32(bytes, 4));
    }
    return vcvtq_n_f32_s32(vshlq_n_s32(bytes, 28), 28);
}

/*
 * Some rows and `wide` words of each step of weights, of which those of 4 bits have two vectors of
 * columns. `rows` and `wide` are constants in every call: six sums at most are in registers.
 */
__attribute__((always_inline)) static inline void
raot_groups_block_mve(const int32_t bits, const int32_t rows, const int32_t wide, float *sums,
                      const float *left, const int8_t *weights, const float *scales,
                      const struct raot_groups *sizes)
{
    const int32_t step = bits == 8 ? RAOT_TILE_COLUMNS : RAOT_Q4_BYTES;
    const int32_t halves = bits == 8 ? 1 : 2;

    RAOT_GROUP_UNROLL
    for (int32_t v = 0; v < rows * wide * halves; v++) {
        const int32_t at = v % halves * RAOT_Q4_BYTES + v / halves % wide * 4;
        vst1q_f32(&sums[v / (wide * halves) * RAOT_TILE_COLUMNS + at], vdupq_n_f32(0.0f));
    }
    for (int32_t k = 0; k < sizes->depth; k += sizes->group) {
        const int32_t rest = sizes->depth - k;
        int32_t steps = rest < sizes->group ? rest : sizes->group;
        const float *from[3];
        float32x4_t sum[6];

        RAOT_GROUP_UNROLL
        for (int32_t v = 0; v < rows * wide * halves; v++) {
            sum[v] = vdupq_n_f32(0.0f);
        }
        RAOT_GROUP_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            from[r] = left + r * sizes->left_row + k;
        }
        for (; steps > 0; steps--) {
            float by[3];
            RAOT_GROUP_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                by[r] = *from[r]++;
            }
            RAOT_GROUP_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                const int32x4_t bytes = vldrbq_s32(weights + 4 * w);
                RAOT_GROUP_UNROLL
                for (int32_t h = 0; h < halves; h++) {
                    const float32x4_t decoded = raot_decode_mve(bits, h, bytes);
                    RAOT_GROUP_UNROLL
                    for (int32_t r = 0; r < rows; r++) {
                        const int32_t v = (r * wide + w) * halves + h;
                        sum[v] = vfmaq_n_f32(sum[v], decoded, by[r]);
                    }
                }
            }
            weights += step;
            RAOT_KEEP_ADDRESS(weights);
        }
        RAOT_GROUP_UNROLL
        for (int32_t v = 0; v < rows * wide * halves; v++) {
            const int32_t at = v % halves * RAOT_Q4_BYTES + v / halves % wide * 4;
            float *const to = &sums[v / (wide * halves) * RAOT_TILE_COLUMNS + at];
            vst1q_f32(to, vfmaq_f32(vld1q_f32(to), sum[v], vld1q_f32(scales + at)));
        }
        scales += RAOT_TILE_COLUMNS;
    }
}

__attribute__((always_inline)) static inline void
raot_groups_mve(const int32_t bits, float *sums, const float *left, const int8_t *weights,
                const float *scales, const struct raot_groups *sizes)
{
    const int32_t words = bits == 8 ? RAOT_TILE_COLUMNS / 4 : RAOT_Q4_BYTES / 4;
    const int32_t some = (sizes->columns + 3) / 4;
    const int32_t used = some < words ? some : words;
    int32_t r = 0;

    for (; r + 3 <= sizes->rows; r += 3) {
        float *const to = sums + r * RAOT_TILE_COLUMNS;
        const float *const from = left + r * sizes->left_row;
        if (bits == 8) {
            for (int32_t w = 0; w < used; w += 2) {
                raot_groups_block_mve(8, 3, 2, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
            }
        } else {
            for (int32_t w = 0; w < used; w++) {
                raot_groups_block_mve(4, 3, 1, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
            }
        }
    }
    for (; r < sizes->rows; r++) {
        float *const to = sums + r * RAOT_TILE_COLUMNS;
        const float *const from = left + r * sizes->left_row;
        if (bits == 8) {
            for (int32_t w = 0; w < used; w += 4) {
                raot_groups_block_mve(8, 1, 4, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
            }
        } else {
            for (int32_t w = 0; w < used; w += 2) {
                raot_groups_block_mve(4, 1, 2, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
            }
        }
    }
}

#endif
