/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_groups_avx512.h - multiply_groups.h for AVX-512: rows that decode weights in registers.
 */
#ifndef RAOT_MULTIPLY_GROUPS_AVX512_H
#define RAOT_MULTIPLY_GROUPS_AVX512_H

#include <stdint.h>

#include "zen4.h"

/* Some rows and all columns, with the sums of groups and of all in registers. */
__attribute__((always_inline)) static inline void
raot_groups_high(const int32_t bits, const int32_t rows, float *sums, const float *left,
                 const void *weights, const float *scales, const struct raot_groups *sizes)
{
    const int32_t left_row = sizes->left_row;
    raot_lanes total[RAOT_HIGH][RAOT_ALL];
    int32_t k = 0;

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_ALL; w++) {
            total[r][w] = (raot_lanes){0};
        }
    }
    while (k < sizes->depth) {
        const int32_t last = sizes->depth - k < sizes->group ? sizes->depth : k + sizes->group;
        raot_lanes sum[RAOT_HIGH][RAOT_ALL];
        RAOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            RAOT_UNROLL
            for (int32_t w = 0; w < RAOT_ALL; w++) {
                sum[r][w] = (raot_lanes){0};
            }
        }
        for (; k < last; k++) {
            const float *from[RAOT_ALL] = {left, left};
            raot_lanes decoded[RAOT_ALL];
            RAOT_HIDE_POINTER(from[1]);
            raot_decode_step(bits, weights, k, decoded);
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                RAOT_UNROLL
                for (int32_t w = 0; w < RAOT_ALL; w++) {
                    sum[r][w] = raot_lanes_fma(from[w][r * left_row], decoded[w], sum[r][w]);
                }
            }
            left++;
        }
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_ALL; w++) {
            const raot_lanes scale = raot_lanes_load(scales + w * RAOT_LANES);
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                total[r][w] = raot_lanes_fma_lanes(sum[r][w], scale, total[r][w]);
            }
        }
        scales += RAOT_TILE_COLUMNS;
    }
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_ALL; w++) {
            raot_lanes_store(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES], total[r][w]);
        }
    }
}

/* Any number of rows, in blocks of up to RAOT_HIGH. */
__attribute__((always_inline)) static inline void
raot_groups_unpacked(const int32_t bits, float *sums, const float *left, const void *weights,
                     const float *scales, const struct raot_groups *sizes)
{
    int32_t high;

    for (int32_t r = 0; r < sizes->rows; r += high) {
        const float *const from = left + r * sizes->left_row;
        float *const to = sums + r * RAOT_TILE_COLUMNS;

        high = raot_block_rows(sizes->rows - r);
        RAOT_BY_ROWS(high, raot_groups_high, bits, to, from, weights, scales, sizes)
    }
}

/* Functions of their own, so that the compiler allots the registers of each separately. */
__attribute__((noinline, unused)) static void
raot_groups_unpacked_q8(float *sums, const float *left, const void *weights, const float *scales,
                        const struct raot_groups *sizes)
{
    raot_groups_unpacked(8, sums, left, weights, scales, sizes);
}

__attribute__((noinline, unused)) static void
raot_groups_unpacked_q4(float *sums, const float *left, const void *weights, const float *scales,
                        const struct raot_groups *sizes)
{
    raot_groups_unpacked(4, sums, left, weights, scales, sizes);
}
#endif
