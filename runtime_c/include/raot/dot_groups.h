/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups.h - quantized bytes times quantized weights with a scale per group of k.
 *
 *     sums[r][c] = sum over groups g of scales[g][c] * (sum over k in g of left[r][k] * w[k][c])
 *
 * The inner sum is an exact 32-bit integer, which is converted to a float; the outer one begins
 * with 0 and is accumulated in the order of g by raot_fmaf. Elements of `left` are -127..127.
 * Weights are signed integers of 8 or 4 bits, in blocks of C columns by K steps: block[c][k], block
 * after block along k and then along c. Two weights of 4 bits share a byte, so that a block has 2 *
 * K steps:
 *
 *     raot_dot_groups16   C = 16, K = 4; steps k and k + 4 in the low and the high half of byte k
 *     raot_dot_groups_s16 C = 4, K = 4; steps 4 * q + 2 * h and the next one in byte 2 * h + q. All
 *                         but those of steps 5 and 7 have 8 added.
 *                         Weights of 8 bits are K / 2 halfwords: step 2 * h and 256 times the next
 *     raot_dot_groups_mve C = 4, K = 16; steps k and k + 16 in byte k
 *     raot_dot_groups_asimd C = 32, K = 4; two weights of 4 bits are a block of 16 bytes by K: in
 * the low half of byte c the weight of column c with 8 added, in the high half that of column c +
 * 16
 *
 * Rows of sums and of scales have RAOT_GROUP_COLUMNS columns. `weights` are aligned to four bytes.
 * raot_dot_groups_s16 takes more columns: rows of sums are then a multiple of RAOT_GROUP_COLUMNS,
 * and scales are panels of so many columns, one behind the other. Weights have an even number of
 * blocks along c.
 */
#ifndef RAOT_DOT_GROUPS_H
#define RAOT_DOT_GROUPS_H

#include <stdint.h>

#include "assembly.h"
#include "copy.h"
#include "ieee.h"
#include "mve.h"

#define RAOT_GROUP_COLUMNS 32

/* `rows` and `columns` of the tile; `groups` of `group` steps each, a multiple of 32; `left_row`:
 * elements from row to row of the left operand. */
struct raot_dot_groups {
    int32_t rows;
    int32_t columns;
    int32_t groups;
    int32_t group;
    int32_t left_row;
};

/* Elements from row to row of the sums. */
static inline int32_t raot_group_row(int32_t columns)
{
    return (columns + RAOT_GROUP_COLUMNS - 1) / RAOT_GROUP_COLUMNS * RAOT_GROUP_COLUMNS;
}

/* Where the scale of a group and a column is. */
static inline int32_t raot_group_scale(int32_t groups, int32_t g, int32_t c)
{
    const int32_t panel = c / RAOT_GROUP_COLUMNS;

    return (panel * groups + g) * RAOT_GROUP_COLUMNS + c % RAOT_GROUP_COLUMNS;
}

/* The weight of a column at a step of a block; `columns` and `steps` are those of a block. */
static inline int32_t raot_group_weight(int32_t bits, int32_t columns, int32_t steps,
                                        const void *weights, int32_t depth, int32_t c, int32_t k)
{
    const int32_t per_block = bits == 8 || columns == 32 ? steps : 2 * steps;
    const int32_t block = c / columns * (depth / per_block) + k / per_block;
    const int32_t rest = k % per_block;
    int32_t at = rest % steps;
    int32_t is_high = rest / steps;
    int32_t sign = 8;
    if (bits == 4 && columns == 4 && steps == 4) {
        at = rest % 4 / 2 * 2 + rest / 4;
        is_high = rest % 2;
        sign = rest == 5 || rest == 7 ? (int32_t)8 : 0;
    }
    if (bits == 4 && columns == 32) {
        const uint8_t both = ((const uint8_t *)weights)[(block * 16 + c % 16) * steps + at];
        return c % 32 < 16 ? (both & 15) - 8 : ((both >> 4) ^ 8) - 8;
    }
    const int32_t place = (block * columns + c % columns) * steps + at;
    if (bits == 8 && columns == 4 && steps == 4) {
        const int32_t both = ((const int16_t *)weights)[place / 2] + 128;
        return at % 2 == 0 ? (both & 255) - 128 : (both >> 8);
    }
    const int8_t byte = ((const int8_t *)weights)[place];
    if (bits == 8) {
        return byte;
    }
    return (((uint8_t)byte >> (4 * is_high) & 15) ^ sign) - 8;
}

/* Any number of rows and columns, one sum at a time. */
static inline void raot_dot_plain(int32_t bits, int32_t columns, int32_t steps, float *sums,
                                  const int8_t *left, const void *weights, const float *scales,
                                  const struct raot_dot_groups *sizes)
{
    const int32_t depth = sizes->groups * sizes->group;

    for (int32_t r = 0; r < sizes->rows; r++) {
        for (int32_t c = 0; c < sizes->columns; c++) {
            const int8_t *const from = left + r * sizes->left_row;
            float total = 0.0f;
            for (int32_t g = 0; g < sizes->groups; g++) {
                int32_t sum = 0;
                for (int32_t k = g * sizes->group; k < (g + 1) * sizes->group; k++) {
                    sum += from[k] * raot_group_weight(bits, columns, steps, weights, depth, c, k);
                }
                total = raot_fmaf((float)sum, scales[raot_group_scale(sizes->groups, g, c)], total);
            }
            sums[r * raot_group_row(sizes->columns) + c] = total;
        }
    }
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include "dot_groups_vnni.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "dot_groups_avx2.h"
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include "dot_groups_asimd.h"
#include "dot_groups_neon.h"
#endif
#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && defined(__ARM_FEATURE_FMA)
#include "dot_groups_dsp.h"
#endif
#if defined(RAOT_MVE_F32)
#include "dot_groups_mve.h"
#endif

/* clang-format off */
#define RAOT_DOT_GROUPS(NAME, BITS, T, FAST, COLUMNS, STEPS) \
    __attribute__((noinline, unused)) static void NAME( \
        float *sums, const int8_t *left, const T *weights, const float *scales, \
        const struct raot_dot_groups *sizes) \
    { \
        FAST(BITS, COLUMNS, STEPS, sums, left, weights, scales, sizes); \
    }
#if defined(RAOT_DOT_FAST_16)
RAOT_DOT_GROUPS(raot_dot_groups16_q8, 8, int8_t, RAOT_DOT_FAST_16, 16, 4)
RAOT_DOT_GROUPS(raot_dot_groups16_q4, 4, uint8_t, RAOT_DOT_FAST_16, 16, 4)
#else
RAOT_DOT_GROUPS(raot_dot_groups16_q8, 8, int8_t, raot_dot_plain, 16, 4)
RAOT_DOT_GROUPS(raot_dot_groups16_q4, 4, uint8_t, raot_dot_plain, 16, 4)
#endif
#if defined(RAOT_DOT_FAST_ASIMD)
RAOT_DOT_GROUPS(raot_dot_groups_asimd_q8, 8, int8_t, RAOT_DOT_FAST_ASIMD, 32, 4)
RAOT_DOT_GROUPS(raot_dot_groups_asimd_q4, 4, uint8_t, RAOT_DOT_FAST_ASIMD, 32, 4)
#else
RAOT_DOT_GROUPS(raot_dot_groups_asimd_q8, 8, int8_t, raot_dot_plain, 32, 4)
RAOT_DOT_GROUPS(raot_dot_groups_asimd_q4, 4, uint8_t, raot_dot_plain, 32, 4)
#endif
#if defined(RAOT_DOT_FAST_DSP)
RAOT_DOT_GROUPS(raot_dot_groups_s16_q8, 8, int16_t, RAOT_DOT_FAST_DSP, 4, 4)
RAOT_DOT_GROUPS(raot_dot_groups_s16_q4, 4, uint8_t, RAOT_DOT_FAST_DSP, 4, 4)
#else
RAOT_DOT_GROUPS(raot_dot_groups_s16_q8, 8, int16_t, raot_dot_plain, 4, 4)
RAOT_DOT_GROUPS(raot_dot_groups_s16_q4, 4, uint8_t, raot_dot_plain, 4, 4)
#endif
#if defined(RAOT_DOT_FAST_MVE)
RAOT_DOT_GROUPS(raot_dot_groups_mve_q8, 8, int8_t, RAOT_DOT_FAST_MVE, 4, 16)
RAOT_DOT_GROUPS(raot_dot_groups_mve_q4, 4, uint8_t, RAOT_DOT_FAST_MVE, 4, 16)
#else
RAOT_DOT_GROUPS(raot_dot_groups_mve_q8, 8, int8_t, raot_dot_plain, 4, 16)
RAOT_DOT_GROUPS(raot_dot_groups_mve_q4, 4, uint8_t, raot_dot_plain, 4, 16)
#endif
/* clang-format on */
#undef RAOT_DOT_GROUPS

#endif
