/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_blocks.h - dot_groups.h with a scale for each group of a row of the left operand.
 *
 *     sums[r][c] = sum over groups g of
 *                  scales[g][c] * own[r][g] * (sum over k in g of left[r][k] * w[k][c])
 *
 * The product of the scales is rounded once. Weights lie as in dot_groups.h, and so do scales: as
 * halves in raot_dot_blocks16 and raot_dot_blocks_asimd, else as floats.
 */
#ifndef RAOT_DOT_BLOCKS_H
#define RAOT_DOT_BLOCKS_H

#include <stdint.h>

#include "convert.h"
#include "dot_groups.h"
#include "multiply_half.h"

/* The members of raot_dot_groups; `own_row`: elements from row to row of `own`. */
struct raot_dot_blocks {
    int32_t rows;
    int32_t columns;
    int32_t groups;
    int32_t group;
    int32_t left_row;
    int32_t own_row;
};

/* Any number of rows and columns, one sum at a time. */
static inline void raot_blocks_plain(int32_t bits, int32_t columns, int32_t steps, float *sums,
                                     const int8_t *left, const void *weights, const void *scales,
                                     const float *own, const struct raot_dot_blocks *sizes)
{
    const int32_t depth = sizes->groups * sizes->group;

    for (int32_t r = 0; r < sizes->rows; r++) {
        for (int32_t c = 0; c < sizes->columns; c++) {
            const int8_t *const from = left + r * sizes->left_row;
            float total = 0.0f;
            for (int32_t g = 0; g < sizes->groups; g++) {
                const int32_t at = raot_group_scale(sizes->groups, g, c);
                int32_t sum = 0;
                for (int32_t k = g * sizes->group; k < (g + 1) * sizes->group; k++) {
                    sum += from[k] * raot_group_weight(bits, columns, steps, weights, depth, c, k);
                }
                const float scale = columns >= 16 ? raot_f16_to_f32(((const uint16_t *)scales)[at])
                                                  : ((const float *)scales)[at];
                total = raot_fmaf((float)sum, scale * own[r * sizes->own_row + g], total);
            }
            sums[r * raot_group_row(sizes->columns) + c] = total;
        }
    }
}

#if defined(RAOT_DOT_FAST_16)
#include "dot_blocks_lanes.h"
#endif

#if defined(RAOT_DOT_FAST_ASIMD)
__attribute__((always_inline)) static inline void
raot_dot_blocks_asimd(const int32_t bits, float *sums, const int8_t *left, const int8_t *weights,
                      const uint16_t *scales, const float *own, const struct raot_dot_blocks *sizes)
{
    const struct raot_dot_groups plain = {sizes->rows, sizes->columns, sizes->groups, sizes->group,
                                          sizes->left_row};

    raot_asimd_rows(bits, 1, 1, sums, left, weights, scales, own, sizes->own_row, &plain);
}

#define RAOT_BLOCKS_FAST_ASIMD(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, OWN, SIZES) \
    raot_dot_blocks_asimd(BITS, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, OWN, SIZES)
#endif

#if defined(RAOT_DOT_FAST_DSP)
__attribute__((always_inline)) static inline void
raot_dot_blocks_dsp(const int32_t bits, float *sums, const int8_t *left, const void *weights,
                    const float *scales, const float *own, const struct raot_dot_blocks *sizes)
{
    const struct raot_dot_groups plain = {sizes->rows, sizes->columns, sizes->groups, sizes->group,
                                          sizes->left_row};

    if (sizes->group == RAOT_DSP_GROUP) {
        raot_dot_dsp(bits, 1, sums, left, weights, scales, own, sizes->own_row, &plain);
    } else {
        raot_blocks_plain(bits, 4, 4, sums, left, weights, scales, own, sizes);
    }
}

#define RAOT_BLOCKS_FAST_DSP(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, OWN, SIZES) \
    raot_dot_blocks_dsp(BITS, SUMS, LEFT, WEIGHTS, SCALES, OWN, SIZES)
#endif

#if defined(RAOT_DOT_FAST_MVE)
__attribute__((always_inline)) static inline void
raot_dot_blocks_mve(const int32_t bits, float *sums, const int8_t *left, const void *weights,
                    const float *scales, const float *own, const struct raot_dot_blocks *sizes)
{
    const struct raot_dot_groups plain = {sizes->rows, sizes->columns, sizes->groups, sizes->group,
                                          sizes->left_row};

    raot_dot_mve(bits, 1, sums, left, weights, scales, own, sizes->own_row, &plain);
}

#define RAOT_BLOCKS_FAST_MVE(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, OWN, SIZES) \
    raot_dot_blocks_mve(BITS, SUMS, LEFT, WEIGHTS, SCALES, OWN, SIZES)
#endif

/* clang-format off */
#define RAOT_DOT_BLOCKS(NAME, BITS, T, S, FAST, COLUMNS, STEPS) \
    __attribute__((noinline, unused)) static void NAME( \
        float *sums, const int8_t *left, const T *weights, const S *scales, const float *own, \
        const struct raot_dot_blocks *sizes) \
    { \
        FAST(BITS, COLUMNS, STEPS, sums, left, weights, scales, own, sizes); \
    }
#if defined(RAOT_BLOCKS_FAST_16)
RAOT_DOT_BLOCKS(raot_dot_blocks16_q8, 8, int8_t, uint16_t, RAOT_BLOCKS_FAST_16, 16, 4)
RAOT_DOT_BLOCKS(raot_dot_blocks16_q4, 4, uint8_t, uint16_t, RAOT_BLOCKS_FAST_16, 16, 4)
#else
RAOT_DOT_BLOCKS(raot_dot_blocks16_q8, 8, int8_t, uint16_t, raot_blocks_plain, 16, 4)
RAOT_DOT_BLOCKS(raot_dot_blocks16_q4, 4, uint8_t, uint16_t, raot_blocks_plain, 16, 4)
#endif
#if defined(RAOT_BLOCKS_FAST_ASIMD)
RAOT_DOT_BLOCKS(raot_dot_blocks_asimd_q8, 8, int8_t, uint16_t, RAOT_BLOCKS_FAST_ASIMD, 32, 4)
RAOT_DOT_BLOCKS(raot_dot_blocks_asimd_q4, 4, uint8_t, uint16_t, RAOT_BLOCKS_FAST_ASIMD, 32, 4)
#else
RAOT_DOT_BLOCKS(raot_dot_blocks_asimd_q8, 8, int8_t, uint16_t, raot_blocks_plain, 32, 4)
RAOT_DOT_BLOCKS(raot_dot_blocks_asimd_q4, 4, uint8_t, uint16_t, raot_blocks_plain, 32, 4)
#endif
#if defined(RAOT_BLOCKS_FAST_DSP)
RAOT_DOT_BLOCKS(raot_dot_blocks_s16_q8, 8, int16_t, float, RAOT_BLOCKS_FAST_DSP, 4, 4)
RAOT_DOT_BLOCKS(raot_dot_blocks_s16_q4, 4, uint8_t, float, RAOT_BLOCKS_FAST_DSP, 4, 4)
#else
RAOT_DOT_BLOCKS(raot_dot_blocks_s16_q8, 8, int16_t, float, raot_blocks_plain, 4, 4)
RAOT_DOT_BLOCKS(raot_dot_blocks_s16_q4, 4, uint8_t, float, raot_blocks_plain, 4, 4)
#endif
#if defined(RAOT_BLOCKS_FAST_MVE)
RAOT_DOT_BLOCKS(raot_dot_blocks_mve_q8, 8, int8_t, float, RAOT_BLOCKS_FAST_MVE, 4, 16)
RAOT_DOT_BLOCKS(raot_dot_blocks_mve_q4, 4, uint8_t, float, RAOT_BLOCKS_FAST_MVE, 4, 16)
#else
RAOT_DOT_BLOCKS(raot_dot_blocks_mve_q8, 8, int8_t, float, raot_blocks_plain, 4, 16)
RAOT_DOT_BLOCKS(raot_dot_blocks_mve_q4, 4, uint8_t, float, raot_blocks_plain, 4, 16)
#endif
/* clang-format on */
#undef RAOT_DOT_BLOCKS

#endif
