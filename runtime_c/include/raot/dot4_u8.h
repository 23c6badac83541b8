/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot4_u8.h - matrix products of unsigned by signed bytes on hosts (VPDPBUSD), and the packing of
 * their operands.
 *
 *     sums[r * sum_step + c] = bias[r * bias_row + c * bias_column] + left[r * depth + k] * x
 *
 * summed over k < depth, a multiple of four, for r < rows and c < columns, where x is
 *
 *     raot_dot4_us    right[c / 16][k / 4][c % 16][k % 4]; `left` is unsigned
 *     raot_dot4_su    right[c / 16][k / 2][c % 16][k % 2], 0..255 in 16 bits; `left` is signed
 *
 * Sums wrap. Each row of `sums`, and `bias` if bias_column is 1, has a multiple of 16 elements; the
 * values of `sums` beyond `columns` are undefined. Processors without VPDPBUSD widen bytes to 16
 * bits, since the sums of VPMADDUBSW saturate.
 */
#ifndef RAOT_DOT4_U8_H
#define RAOT_DOT4_U8_H

#include <stdint.h>

#include "dot_lanes.h"
#include "gather.h"
#include "gather4.h"

#define RAOT_DOT4_U8_COLUMNS 16

/* Sizes of the functions below, by name. */
struct raot_dot4_u8_sizes {
    int32_t rows;
    int32_t columns;
    int32_t depth;
    int32_t sum_step;
    int32_t bias_row;
    int32_t bias_column;
};

#if defined(RAOT_DOTS_LANES)
/* How many of the remaining rows are next: of 8 at most, 9 rows are 5 and 4, not 8 and 1. */
static inline int32_t raot_dot4_u8_high(int32_t rest)
{
    if (rest > RAOT_DOTS_HIGH && rest < 2 * RAOT_DOTS_HIGH) {
        return (rest + 1) / 2;
    }
    return rest < RAOT_DOTS_HIGH ? rest : RAOT_DOTS_HIGH;
}
#endif

#if defined(RAOT_DOTS_FOUR)
#include "dot4_u8_vnni.h"
#else
#include "dot4_u8_widened.h"
#endif

/* The right operand of raot_dot4_su, as raot_panel_dot2_i16 packs it: _s8 adds 128. */
__attribute__((noinline, unused)) static void
raot_panel_dot4_u8_s8(int16_t *panel, const int8_t *image, const int32_t *offsets, int32_t depth,
                      int32_t columns, int32_t extent)
{
    raot_panel_dot2_i16(panel, (const uint8_t *)image, offsets, depth, columns, extent, 0, 128);
}

__attribute__((noinline, unused)) static void
raot_panel_dot4_u8_u8(int16_t *panel, const uint8_t *image, const int32_t *offsets, int32_t depth,
                      int32_t columns, int32_t extent)
{
    raot_panel_dot2_i16(panel, image, offsets, depth, columns, extent, 0, 0);
}

/* Sizes of the functions below, by name. */
struct raot_rows_dot4_u8 {
    int32_t zero;
    int32_t rows;
    int32_t row_step;
    int32_t depth;
    int32_t count0;
    int32_t first0;
    int32_t last0;
    int32_t step0;
    int32_t count1;
    int32_t first1;
    int32_t last1;
    int32_t step1;
    int32_t count2;
    int32_t first2;
    int32_t last2;
    int32_t step2;
};

__attribute__((always_inline)) static inline void
raot_rows_dot4_u8(uint8_t *to, const uint8_t *image, const struct raot_rows_dot4_u8 *sizes,
                  const uint8_t flip)
{
    raot_rows_dot4(to, image, sizes->zero, sizes->rows, sizes->row_step, sizes->depth,
                   sizes->count0, sizes->first0, sizes->last0, sizes->step0, sizes->count1,
                   sizes->first1, sizes->last1, sizes->step1, sizes->count2, sizes->first2,
                   sizes->last2, sizes->step2, flip);
}

/* The left operand of raot_dot4_us (gather4.h): _s8 adds 128. */
__attribute__((noinline, unused)) static void
raot_rows_dot4_u8_s8(uint8_t *to, const int8_t *image, const struct raot_rows_dot4_u8 *sizes)
{
    raot_rows_dot4_u8(to, (const uint8_t *)image, sizes, 128);
}

__attribute__((noinline, unused)) static void
raot_rows_dot4_u8_u8(uint8_t *to, const uint8_t *image, const struct raot_rows_dot4_u8 *sizes)
{
    raot_rows_dot4_u8(to, image, sizes, 0);
}

#endif
