/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_neon.h - dot_groups.h and dot_blocks.h by SDOT, or by SMULL and SADALP, for 64-bit
 * Arm.
 */
#ifndef RAOT_DOT_GROUPS_NEON_H
#define RAOT_DOT_GROUPS_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"

#define RAOT_DOT_ROWS 4
#if defined(__clang__)
#define RAOT_DOT_UNROLL
#else
#define RAOT_DOT_UNROLL _Pragma("GCC unroll 8")
#endif

/* sum + the products of four steps of four columns and steps 4 * part.. of a row */
__attribute__((always_inline)) static inline int32x4_t
raot_dot_four(int32x4_t sum, int8x16_t weight, int8x16_t x, const int32_t part)
{
#if defined(__ARM_FEATURE_DOTPROD)
    switch (part) {
    case 0:
        return vdotq_laneq_s32(sum, weight, x, 0);
    case 1:
        return vdotq_laneq_s32(sum, weight, x, 1);
    case 2:
        return vdotq_laneq_s32(sum, weight, x, 2);
    default:
        return vdotq_laneq_s32(sum, weight, x, 3);
    }
#else
    const int32x4_t words = vreinterpretq_s32_s8(x);
    const int32x4_t word = part == 0   ? vdupq_laneq_s32(words, 0)
                           : part == 1 ? vdupq_laneq_s32(words, 1)
                           : part == 2 ? vdupq_laneq_s32(words, 2)
                                       : vdupq_laneq_s32(words, 3);
    const int8x16_t four = vreinterpretq_s8_s32(word);
    const int16x8_t low = vmull_s8(vget_low_s8(weight), vget_low_s8(four));
    const int16x8_t high = vmull_high_s8(weight, four);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}

/* Scales of four columns, from element `at` on. */
typedef float32x4_t raot_dot_scale(const void *scales, int32_t at);

__attribute__((always_inline)) static inline float32x4_t raot_dot_scale_f32(const void *scales,
                                                                            int32_t at)
{
    return vld1q_f32((const float *)scales + at);
}

/*
 * Up to RAOT_DOT_ROWS rows and 16 columns from `column` on; `rows` is a constant in every call. If
 * it `has_own`, each group of a row has a scale of its own.
 */
__attribute__((always_inline)) static inline void
raot_dot_block_neon(const int32_t bits, const int32_t rows, raot_dot_scale *scale_of,
                    const int32_t has_own, float *sums, const int8_t *left, const int8_t *block,
                    const void *scales, const float *own, int32_t own_row,
                    const struct raot_dot_groups *sizes, int32_t column)
{
    for (int32_t g = 0; g < sizes->groups; g++) {
        int32x4_t sum[RAOT_DOT_ROWS][4];
        RAOT_DOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            RAOT_DOT_UNROLL
            for (int32_t n = 0; n < 4; n++) {
                sum[r][n] = vdupq_n_s32(0);
            }
        }
        for (int32_t k = 0; k < sizes->group; k += 16) {
            int8x16_t x[RAOT_DOT_ROWS];
            RAOT_DOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                x[r] = vld1q_s8(left + r * sizes->left_row + k);
            }
            RAOT_DOT_UNROLL
            for (int32_t part = 0; part < 4; part++) {
                RAOT_DOT_UNROLL
                for (int32_t n = 0; n < 4; n++) {
                    int8x16_t weight;
                    if (bits == 8) {
                        weight = vld1q_s8(block + 64 * part + 16 * n);
                    } else {
                        weight = vld1q_s8(block + part / 2 * 64 + 16 * n);
                        weight = part % 2 == 0 ? vshlq_n_s8(weight, 4) : weight;
                        weight = vshrq_n_s8(weight, 4);
                    }
                    RAOT_DOT_UNROLL
                    for (int32_t r = 0; r < rows; r++) {
                        sum[r][n] = raot_dot_four(sum[r][n], weight, x[r], part);
                    }
                }
            }
            block += 32 * bits;
        }
        RAOT_DOT_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            const float32x4_t scale = scale_of(scales, g * RAOT_GROUP_COLUMNS + column + 4 * n);
            RAOT_DOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                float *const to = sums + r * RAOT_GROUP_COLUMNS + 4 * n;
                const float32x4_t before = g == 0 ? vdupq_n_f32(0.0f) : vld1q_f32(to);
                const float32x4_t by = has_own ? vmulq_n_f32(scale, own[r * own_row + g]) : scale;
                vst1q_f32(to, vfmaq_f32(before, vcvtq_f32_s32(sum[r][n]), by));
            }
        }
        left += sizes->group;
    }
}

__attribute__((always_inline)) static inline void
raot_dot_rows_neon(const int32_t bits, raot_dot_scale *scale_of, const int32_t has_own, float *sums,
                   const int8_t *left, const int8_t *weights, const void *scales, const float *own,
                   int32_t own_row, const struct raot_dot_groups *sizes)
{
    const int32_t bytes = sizes->groups * sizes->group * 2 * bits;

    for (int32_t c = 0; c < sizes->columns; c += 16) {
        const int8_t *const block = weights + c / 16 * bytes;
        int32_t r = 0;
        for (; r + RAOT_DOT_ROWS <= sizes->rows; r += RAOT_DOT_ROWS) {
            raot_dot_block_neon(bits, RAOT_DOT_ROWS, scale_of, has_own,
                                sums + r * RAOT_GROUP_COLUMNS + c, left + r * sizes->left_row,
                                block, scales, has_own ? own + r * own_row : NULL, own_row, sizes,
                                c);
        }
        for (; r < sizes->rows; r++) {
            raot_dot_block_neon(bits, 1, scale_of, has_own, sums + r * RAOT_GROUP_COLUMNS + c,
                                left + r * sizes->left_row, block, scales,
                                has_own ? own + r * own_row : NULL, own_row, sizes, c);
        }
    }
}

#define RAOT_DOT_FAST_16(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES)                 \
    raot_dot_rows_neon(BITS, raot_dot_scale_f32, 0, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, \
                       NULL, 0, SIZES)

#endif
