/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot2_i16.h - matrix products of 16-bit integers by dual multiply-add instructions (PMADDWD).
 *
 *     sums[r * sum_step + c] = bias[r * bias_row + c * bias_column]
 *                            + left[r * depth + k] * right[c / 16][k / 2][c % 16][k % 2]
 *
 * summed over k < depth, which is even, for r < rows and c < columns. Sums wrap. The sum of two
 * adjacent products fits 32 bits. Each row of `sums`, and `bias` if bias_column is 1, has a
 * multiple of 16 elements; the values of `sums` beyond `columns` are undefined.
 */
#ifndef RAOT_DOT2_I16_H
#define RAOT_DOT2_I16_H

#include <stdint.h>

#include "copy.h"
#include "dot_lanes.h"

#define RAOT_DOT2_COLUMNS 16

#if defined(RAOT_DOTS_LANES)
/* `rows` and `wide` are constants in every call, so the sums are in registers. */
__attribute__((always_inline)) static inline void
raot_dot2_block(const int32_t rows, const int32_t wide, int32_t *sums, const int16_t *left,
                const int16_t *right, const int32_t *bias, int32_t depth, int32_t sum_step,
                int32_t bias_row, int32_t bias_column)
{
    raot_dots kept[RAOT_DOTS_HIGH][RAOT_DOTS_WIDE];

    RAOT_DOTS_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            kept[r][w] = bias_column != 0
                             ? raot_dots_load(bias + r * bias_row + w * RAOT_DOTS_LANES)
                             : raot_dots_all(bias[r * bias_row]);
        }
    }
    for (int32_t k = 0; k < depth; k += 2) {
        raot_dots x[RAOT_DOTS_WIDE];
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            x[w] = raot_dots_load(right + 2 * w * RAOT_DOTS_LANES);
        }
        RAOT_DOTS_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            int32_t pair;
            RAOT_COPY(&pair, left + r * depth + k, sizeof pair);
            const raot_dots factor = raot_dots_all(pair);
            RAOT_DOTS_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                kept[r][w] = raot_dots_add(kept[r][w], factor, x[w]);
                RAOT_DOTS_STAYS(kept[r][w]);
            }
        }
        right += 2 * RAOT_DOT2_COLUMNS;
    }
    RAOT_DOTS_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            raot_dots_store(sums + r * sum_step + w * RAOT_DOTS_LANES, kept[r][w]);
        }
    }
}

#define RAOT_DOT2_CASE(rows)                                                            \
    case rows:                                                                          \
        raot_dot2_block(rows, wide, sums, left, right, bias, depth, sum_step, bias_row, \
                        bias_column);                                                   \
        break;

/* Up to RAOT_DOTS_HIGH rows. */
__attribute__((always_inline)) static inline void
raot_dot2_rows(int32_t rows, const int32_t wide, int32_t *sums, const int16_t *left,
               const int16_t *right, const int32_t *bias, int32_t depth, int32_t sum_step,
               int32_t bias_row, int32_t bias_column)
{
    switch (rows) {
        RAOT_DOT2_CASE(1)
        RAOT_DOT2_CASE(2)
        RAOT_DOT2_CASE(3)
        RAOT_DOT2_CASE(4)
        RAOT_DOT2_CASE(5)
#if RAOT_DOTS_HIGH > 6
        RAOT_DOT2_CASE(6)
        RAOT_DOT2_CASE(7)
#endif
    default:
        raot_dot2_block(RAOT_DOTS_HIGH, wide, sums, left, right, bias, depth, sum_step, bias_row,
                        bias_column);
        break;
    }
}

__attribute__((noinline, unused)) static void
raot_dot2_wide(int32_t rows, int32_t *sums, const int16_t *left, const int16_t *right,
               const int32_t *bias, int32_t depth, int32_t sum_step, int32_t bias_row,
               int32_t bias_column)
{
    raot_dot2_rows(rows, RAOT_DOTS_WIDE, sums, left, right, bias, depth, sum_step, bias_row,
                   bias_column);
}

__attribute__((noinline, unused)) static void
raot_dot2_narrow(int32_t rows, int32_t *sums, const int16_t *left, const int16_t *right,
                 const int32_t *bias, int32_t depth, int32_t sum_step, int32_t bias_row,
                 int32_t bias_column)
{
    raot_dot2_rows(rows, 1, sums, left, right, bias, depth, sum_step, bias_row, bias_column);
}
#endif

__attribute__((noinline, unused)) static void
raot_dot2_i16_unpacked(int32_t *sums, const int16_t *left, const int16_t *right,
                       const int32_t *bias, int32_t rows, int32_t columns, int32_t depth,
                       int32_t sum_step, int32_t bias_row, int32_t bias_column)
{
#if defined(RAOT_DOTS_LANES)
    for (int32_t c = 0; c < columns; c += RAOT_DOTS_STEP) {
        const int32_t inside = c % RAOT_DOT2_COLUMNS;
        const int16_t *const x = right + (c - inside) * depth + 2 * inside;
        int32_t r = 0;
        while (r < rows) {
            /* Remaining rows are split evenly: of 6 at most, 8 rows are 4 and 4, not 6 and 2. */
            const int32_t left_over = rows - r;
            int32_t high = left_over < RAOT_DOTS_HIGH ? left_over : RAOT_DOTS_HIGH;
            if (left_over > RAOT_DOTS_HIGH && left_over < 2 * RAOT_DOTS_HIGH) {
                high = (left_over + 1) / 2;
            }
            int32_t *const to = sums + r * sum_step + c;
            const int16_t *const by = left + r * depth;
            const int32_t *const start = bias + r * bias_row + c * bias_column;
            if (columns - c > RAOT_DOTS_LANES) {
                raot_dot2_wide(high, to, by, x, start, depth, sum_step, bias_row, bias_column);
            } else {
                raot_dot2_narrow(high, to, by, x, start, depth, sum_step, bias_row, bias_column);
            }
            r += high;
        }
    }
#else
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t c = 0; c < columns; c++) {
            const int16_t *const by = left + r * depth;
            const int16_t *const x = right + c / RAOT_DOT2_COLUMNS * RAOT_DOT2_COLUMNS * depth +
                                     c % RAOT_DOT2_COLUMNS * 2;
            uint32_t sum = (uint32_t)bias[r * bias_row + c * bias_column];
            for (int32_t k = 0; k < depth; k++) {
                sum += (uint32_t)(by[k] * x[k / 2 * 2 * RAOT_DOT2_COLUMNS + k % 2]);
            }
            sums[r * sum_step + c] = (int32_t)sum;
        }
    }
#endif
}

/* Sizes of the functions below, by name. */
struct raot_dot2_i16_sizes {
    int32_t rows;
    int32_t columns;
    int32_t depth;
    int32_t sum_step;
    int32_t bias_row;
    int32_t bias_column;
};

#define raot_dot2_i16(sums, left, right, bias, sizes)                                \
    raot_dot2_i16_unpacked(sums, left, right, bias, (sizes)->rows, (sizes)->columns, \
                           (sizes)->depth, (sizes)->sum_step, (sizes)->bias_row,     \
                           (sizes)->bias_column)

#endif
