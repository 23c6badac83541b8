/*
 * multiply_mve.h - multiply.h for Cortex-M with Helium where code is made small: 3 x 8 or 1 x 8
 * sums in vectors; fewer columns than four are summed up one by one.
 */
#ifndef RAOT_MULTIPLY_MVE_H
#define RAOT_MULTIPLY_MVE_H

#include "multiply_one.h"
#include "mve.h"

/* Three rows and eight columns, of which `some` exist, at least four. */
__attribute__((noinline, unused)) static void raot_block_f32(const struct raot_level *levels,
                                                             const float *left, int32_t left_row,
                                                             const float *right, int32_t some,
                                                             float *sums)
{
    const mve_pred16_t far_lanes = vctp32q((uint32_t)(some - 4));
    float *const next_sums = sums + RAOT_TILE_COLUMNS;
    float *const last_sums = next_sums + RAOT_TILE_COLUMNS;
    float32x4_t sum0 = vld1q_f32(sums);
    float32x4_t sum1 = vld1q_f32(sums + 4);
    float32x4_t sum2 = vld1q_f32(next_sums);
    float32x4_t sum3 = vld1q_f32(next_sums + 4);
    float32x4_t sum4 = vld1q_f32(last_sums);
    float32x4_t sum5 = vld1q_f32(last_sums + 4);

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t k = levels[2].count; k > 0; k--) {
                const float32x4_t y = vld1q_z_f32(b + 4, far_lanes);
                const float32x4_t x = vld1q_f32(b);
                const float *const next = a + left_row;
                float factor = *a;
                sum0 = vfmaq_n_f32(sum0, x, factor);
                sum1 = vfmaq_n_f32(sum1, y, factor);
                factor = *next;
                sum2 = vfmaq_n_f32(sum2, x, factor);
                sum3 = vfmaq_n_f32(sum3, y, factor);
                factor = next[left_row];
                sum4 = vfmaq_n_f32(sum4, x, factor);
                sum5 = vfmaq_n_f32(sum5, y, factor);
                a += levels[2].left;
                b += levels[2].right;
                RAOT_KEEP_ADDRESS(b);
            }
        }
    }
    vst1q_f32(sums, sum0);
    vst1q_f32(sums + 4, sum1);
    vst1q_f32(next_sums, sum2);
    vst1q_f32(next_sums + 4, sum3);
    vst1q_f32(last_sums, sum4);
    vst1q_f32(last_sums + 4, sum5);
}

/* One row of as many. */
__attribute__((noinline, unused)) static void raot_row_f32(const struct raot_level *levels,
                                                           const float *left, const float *right,
                                                           int32_t some, float *sums)
{
    const mve_pred16_t far_lanes = vctp32q((uint32_t)(some - 4));
    float32x4_t sum0 = vld1q_f32(sums);
    float32x4_t sum1 = vld1q_f32(sums + 4);

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t k = levels[2].count; k > 0; k--) {
                const float32x4_t y = vld1q_z_f32(b + 4, far_lanes);
                sum0 = vfmaq_n_f32(sum0, vld1q_f32(b), *a);
                sum1 = vfmaq_n_f32(sum1, y, *a);
                a += levels[2].left;
                b += levels[2].right;
                RAOT_KEEP_ADDRESS(b);
            }
        }
    }
    vst1q_f32(sums, sum0);
    vst1q_f32(sums + 4, sum1);
}

__attribute__((noinline, unused)) static void raot_tile_mve_f32(int32_t rows, int32_t columns,
                                                                const struct raot_level *levels,
                                                                const float *left, int32_t left_row,
                                                                const float *right, float *sums)
{
    while (rows > 0) {
        const int32_t high = rows >= 3 ? (int32_t)3 : 1;
        int32_t c = 0;
        while (c < columns) {
            const int32_t some = columns - c < 8 ? columns - c : 8;
            if (some < 4) {
                for (int32_t r = 0; r < high; r++) {
                    raot_one_f32(levels, left + r * left_row, right + c,
                                 sums + r * RAOT_TILE_COLUMNS + c);
                }
                c += 1;
                continue;
            }
            if (high == 3) {
                raot_block_f32(levels, left, left_row, right + c, some, sums + c);
            } else {
                raot_row_f32(levels, left, right + c, some, sums + c);
            }
            c += 8;
        }
        rows -= high;
        left += high * left_row;
        sums += high * RAOT_TILE_COLUMNS;
    }
}

#endif
