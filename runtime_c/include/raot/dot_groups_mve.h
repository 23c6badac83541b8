/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_mve.h - dot_groups.h and dot_blocks.h by VMLADAVA, for Cortex-M with Helium.
 */
#ifndef RAOT_DOT_GROUPS_MVE_H
#define RAOT_DOT_GROUPS_MVE_H

#include <stdint.h>

#include "mve.h"

/* Four columns of one row. Weights of 4 bits are multiplied as 16 times their value, which the
 * conversion to float divides. With `blocks`, each group of the row has a scale in `own`. */
__attribute__((always_inline)) static inline const int8_t *
raot_dot_block_mve(const int32_t bits, const int32_t blocks, float *sums, const int8_t *left,
                   const int8_t *weights, const float *scales, const float *own, int32_t groups,
                   int32_t group)
{
    const int8x16_t upper = vdupq_n_s8((int8_t)-16);
    float32x4_t total = vdupq_n_f32(0.0f);

    for (; groups > 0; groups--) {
        int32_t a = 0;
        int32_t b = 0;
        int32_t c = 0;
        int32_t d = 0;
        for (int32_t k = group; k > 0; k -= 32) {
            const int8x16_t x = vld1q_s8(left);
            const int8x16_t y = vld1q_s8(left + 16);
            left += 32;
            if (bits == 8) {
                a = vmladavaq_s8(a, x, vld1q_s8(weights));
                b = vmladavaq_s8(b, x, vld1q_s8(weights + 16));
                c = vmladavaq_s8(c, x, vld1q_s8(weights + 32));
                d = vmladavaq_s8(d, x, vld1q_s8(weights + 48));
                a = vmladavaq_s8(a, y, vld1q_s8(weights + 64));
                b = vmladavaq_s8(b, y, vld1q_s8(weights + 80));
                c = vmladavaq_s8(c, y, vld1q_s8(weights + 96));
                d = vmladavaq_s8(d, y, vld1q_s8(weights + 112));
                weights += 128;
            } else {
                int8x16_t both = vld1q_s8(weights);
                a = vmladavaq_s8(a, x, vshlq_n_s8(both, 4));
                a = vmladavaq_s8(a, y, vandq_s8(both, upper));
                both = vld1q_s8(weights + 16);
                b = vmladavaq_s8(b, x, vshlq_n_s8(both, 4));
                b = vmladavaq_s8(b, y, vandq_s8(both, upper));
                both = vld1q_s8(weights + 32);
                c = vmladavaq_s8(c, x, vshlq_n_s8(both, 4));
                c = vmladavaq_s8(c, y, vandq_s8(both, upper));
                both = vld1q_s8(weights + 48);
                d = vmladavaq_s8(d, x, vshlq_n_s8(both, 4));
                d = vmladavaq_s8(d, y, vandq_s8(both, upper));
                weights += 64;
            }
        }
        int32x4_t sum = vdupq_n_s32(a);
        sum = vsetq_lane_s32(b, sum, 1);
        sum = vsetq_lane_s32(c, sum, 2);
        sum = vsetq_lane_s32(d, sum, 3);
        const float32x4_t value = bits == 8 ? vcvtq_f32_s32(sum) : vcvtq_n_f32_s32(sum, 4);
        const float32x4_t weight_scales = vld1q_f32(scales);
        const float32x4_t scale = blocks ? vmulq_n_f32(weight_scales, *own++) : weight_scales;
        total = vfmaq_f32(total, value, scale);
        scales += RAOT_GROUP_COLUMNS;
    }
    vst1q_f32(sums, total);
    return weights;
}

__attribute__((always_inline)) static inline void
raot_dot_mve(const int32_t bits, const int32_t blocks, float *sums, const int8_t *left,
             const void *weights, const float *scales, const float *own, int32_t own_row,
             const struct raot_dot_groups *sizes)
{
    for (int32_t r = 0; r < sizes->rows; r++) {
        const int8_t *from = weights;
        for (int32_t c = 0; c < sizes->columns; c += 4) {
            from = raot_dot_block_mve(bits, blocks, sums + r * RAOT_GROUP_COLUMNS + c,
                                      left + r * sizes->left_row, from, scales + c,
                                      own + r * own_row, sizes->groups, sizes->group);
        }
    }
}

#define RAOT_DOT_FAST_MVE(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES) \
    raot_dot_mve(BITS, 0, SUMS, LEFT, WEIGHTS, SCALES, SCALES, 0, SIZES)

#endif
