/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_groups.h - floats times quantized weights with a scale per group of k.
 *
 *     sums[r][c] = sum over groups g of scales[g][c] * (sum over k in g of left[r][k] * w[k][c])
 *
 * The inner sum begins with 0 and is accumulated in the order of k by raot_fmaf, and so is the
 * outer one in the order of g. Weights are signed integers that are decoded in registers: of 8
 * bits as weights[k][c], or of 4 bits with columns c and c + 16 in the low and the high half of
 * weights[k][c]. All rows have RAOT_TILE_COLUMNS columns; unused ones may hold any value.
 */
#ifndef RAOT_MULTIPLY_GROUPS_H
#define RAOT_MULTIPLY_GROUPS_H

#include <stdint.h>

#include "assembly.h"
#include "ieee.h"
#include "multiply.h"

/* `rows` and `columns` of the tile; `depth` steps in groups of `group`; `left_row`: elements from
 * row to row of the left operand. */
struct raot_groups {
    int32_t rows;
    int32_t columns;
    int32_t depth;
    int32_t group;
    int32_t left_row;
};

#define RAOT_Q4_BYTES (RAOT_TILE_COLUMNS / 2)

#if defined(RAOT_VFP) && defined(RAOT_ASM_INLINE) && !defined(RAOT_SMALL)
#define RAOT_GROUPS_VFP
#elif defined(RAOT_MVE_F32)
#define RAOT_GROUPS_MVE
#elif defined(RAOT_LANES)
#define RAOT_GROUPS_LANES
#endif

#if defined(RAOT_GROUPS_LANES)
#include "multiply_groups_lanes.h"
#elif defined(RAOT_GROUPS_VFP)
#include "multiply_groups_vfp.h"
#elif defined(RAOT_GROUPS_MVE)
#include "multiply_groups_mve.h"
#endif

#if !defined(RAOT_GROUPS_LANES) && !defined(RAOT_GROUPS_VFP) && !defined(RAOT_GROUPS_MVE)
/* One row, one sum at a time. */
__attribute__((always_inline)) static inline void
raot_groups_plain(const int32_t bits, float *sums, const float *left, const void *weights,
                  const float *scales, const struct raot_groups *sizes)
{
    for (int32_t c = 0; c < sizes->columns; c++) {
        const int32_t shift = c < RAOT_Q4_BYTES ? (int32_t)4 : 0;
        float total = 0.0f;
        for (int32_t k = 0; k < sizes->depth; k += sizes->group) {
            const int32_t rest = sizes->depth - k;
            const int32_t steps = rest < sizes->group ? rest : sizes->group;
            float sum = 0.0f;
            for (int32_t j = k; j < k + steps; j++) {
                int32_t weight = ((const int8_t *)weights)[j * RAOT_TILE_COLUMNS + c];
                if (bits == 4) {
                    const uint8_t byte =
                        ((const uint8_t *)weights)[j * RAOT_Q4_BYTES + c % RAOT_Q4_BYTES];
                    weight = (((byte << shift) >> 4 & 15) ^ 8) - 8;
                }
                sum = raot_fmaf(left[j], (float)weight, sum);
            }
            total = raot_fmaf(sum, scales[k / sizes->group * RAOT_TILE_COLUMNS + c], total);
        }
        sums[c] = total;
    }
}
#endif

__attribute__((always_inline)) static inline void
raot_groups_f32(const int32_t bits, float *sums, const float *left, const void *weights,
                const float *scales, const struct raot_groups *sizes)
{
#if defined(RAOT_GROUPS_LANES)
    raot_groups_lanes(bits, sums, left, weights, scales, sizes);
#elif defined(RAOT_GROUPS_MVE)
    raot_groups_mve(bits, sums, left, weights, scales, sizes);
#else
    int32_t r = 0;
#if defined(RAOT_GROUPS_VFP)
    for (; r + 4 <= sizes->rows; r += 4) {
        raot_groups_vfp(bits, 4, sums + r * RAOT_TILE_COLUMNS, left + r * sizes->left_row, weights,
                        scales, sizes);
    }
    for (; r < sizes->rows; r++) {
        raot_groups_vfp(bits, 1, sums + r * RAOT_TILE_COLUMNS, left + r * sizes->left_row, weights,
                        scales, sizes);
    }
#else
    for (; r < sizes->rows; r++) {
        raot_groups_plain(bits, sums + r * RAOT_TILE_COLUMNS, left + r * sizes->left_row, weights,
                          scales, sizes);
    }
#endif
#endif
}

__attribute__((noinline, unused)) static void raot_multiply_q8_f32(float *sums, const float *left,
                                                                   const int8_t *weights,
                                                                   const float *scales,
                                                                   const struct raot_groups *sizes)
{
    raot_groups_f32(8, sums, left, weights, scales, sizes);
}

__attribute__((noinline, unused)) static void raot_multiply_q4_f32(float *sums, const float *left,
                                                                   const uint8_t *weights,
                                                                   const float *scales,
                                                                   const struct raot_groups *sizes)
{
    raot_groups_f32(4, sums, left, weights, scales, sizes);
}

#endif
