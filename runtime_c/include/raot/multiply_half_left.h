/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_half_left.h - tiles of float contractions whose left operand has half precision.
 *
 * raot_multiply_left_f16 and raot_multiply_left_bf16 are raot_multiply_f32 of multiply.h, with
 * elements of `left` as they are stored (see multiply_half.h). Some steps of a few rows are
 * converted to a buffer, once for all columns. Sums have the bits of a product with converted
 * elements.
 */
#ifndef RAOT_MULTIPLY_HALF_LEFT_H
#define RAOT_MULTIPLY_HALF_LEFT_H

#include <stdint.h>

#include "multiply_half.h"

/*
 *     RAOT_LEFT_ROWS   rows of the buffer: those of a block of multiply.h
 *     RAOT_LEFT_STEPS  its steps; fewer where no product has so many (see multiply_vfp.h)
 *     RAOT_LEFT_STEP   elements from one step to the next, and RAOT_LEFT_ROW from row to row:
 * blocks of multiply_vfp.h read the rows of a step next to each other
 */
#if defined(RAOT_VFP)
#define RAOT_LEFT_ROWS 4
#define RAOT_LEFT_MOST 144
#define RAOT_LEFT_STEP RAOT_LEFT_ROWS
#define RAOT_LEFT_ROW 1
#elif defined(RAOT_LANES)
#define RAOT_LEFT_ROWS RAOT_HIGH
#define RAOT_LEFT_MOST 144
#else
#define RAOT_LEFT_ROWS 4
#define RAOT_LEFT_MOST 64
#endif
#if defined(RAOT_MOST_STEPS) && RAOT_MOST_STEPS < RAOT_LEFT_MOST
#define RAOT_LEFT_STEPS RAOT_MOST_STEPS
#else
#define RAOT_LEFT_STEPS RAOT_LEFT_MOST
#endif
#if !defined(RAOT_LEFT_STEP)
#define RAOT_LEFT_STEP 1
#define RAOT_LEFT_ROW RAOT_LEFT_STEPS
#endif

/* Some steps of the rows as floats. */
__attribute__((always_inline)) static inline void
raot_left_convert(const enum raot_half kind, float *strip, int32_t rows, const uint16_t *left,
                  int32_t left_row, int32_t step, int32_t count)
{
    const int32_t row = RAOT_LEFT_ROW;
    const int32_t apart = RAOT_LEFT_STEP;
    int32_t done = 0;

#if defined(RAOT_VFP) && defined(RAOT_HALF_HIGH)
    if (kind == RAOT_F16 && rows == RAOT_LEFT_ROWS && step == 1) {
        done = raot_half_four_rows(strip, left, left_row, count);
    }
#endif
    for (int32_t r = 0; r < rows; r++) {
        float *const to = &strip[r * row];
        const uint16_t *const from = left + r * left_row;
        int32_t k = done;
#if defined(RAOT_MVE_ROWS) && defined(RAOT_HALF_HIGH)
        if (step == 1) {
            k = raot_half_convert(kind, to, from, count);
        }
#endif
        for (; k < count; k++) {
            const uint16_t bits = from[k * step];
            to[k * apart] = kind == RAOT_F16 ? raot_f16_to_f32(bits) : raot_bf16_to_f32(bits);
        }
    }
}

/* Products of the buffer. */
__attribute__((always_inline)) static inline void
raot_left_products(int32_t rows, int32_t columns, int32_t steps, int32_t right_step,
                   const float *strip, const float *right, float *sums)
{
    const struct raot_level levels[3] = {{1, 0, 0}, {1, 0, 0}, {steps, RAOT_LEFT_STEP, right_step}};
    int32_t done = 0;

#if defined(RAOT_VFP) && !defined(RAOT_SMALL)
    if (rows == RAOT_LEFT_ROWS && columns > RAOT_COPIED_COLUMNS) {
        const int32_t skip = (right_step - 6) * (int32_t)sizeof(float);
        int32_t sixes = 0;
        int32_t fives = 0;
        done = raot_columns_of_blocks(columns, &sixes, &fives);
        if (done > 0) {
            raot_blocks_f32(strip, steps, right, skip, sums, sixes, fives);
        }
    }
#endif
    if (done < columns) {
        raot_multiply_f32(rows, columns - done, levels, strip, RAOT_LEFT_ROW, right + done,
                          sums + done);
    }
}

/* One loop of steps; the parts of it are of about the same size. */
__attribute__((always_inline)) static inline void
raot_left_level(const enum raot_half kind, int32_t rows, int32_t columns,
                const struct raot_level *level, const uint16_t *left, int32_t left_row,
                const float *right, float *sums)
{
    const int32_t parts = (level->count + RAOT_LEFT_STEPS - 1) / RAOT_LEFT_STEPS;
    const int32_t size = parts > 0 ? (level->count + parts - 1) / parts : 0;
    float strip[RAOT_LEFT_ROWS * RAOT_LEFT_STEPS];

    for (int32_t first = 0; first < level->count; first += size) {
        const int32_t rest = level->count - first;
        const int32_t steps = rest < size ? rest : size;
        raot_left_convert(kind, strip, rows, left + first * level->left, left_row, level->left,
                          steps);
        raot_left_products(rows, columns, steps, level->right, strip, right + first * level->right,
                           sums);
    }
}

__attribute__((always_inline)) static inline void
raot_left_tile(const enum raot_half kind, int32_t rows, int32_t columns,
               const struct raot_level *levels, const uint16_t *left, int32_t left_row,
               const float *right, float *sums)
{
    for (int32_t r = 0; r < rows; r += RAOT_LEFT_ROWS) {
        const int32_t high = rows - r < RAOT_LEFT_ROWS ? rows - r : RAOT_LEFT_ROWS;
        for (int32_t i = 0; i < levels[0].count; i++) {
            for (int32_t j = 0; j < levels[1].count; j++) {
                raot_left_level(kind, high, columns, &levels[2],
                                left + r * left_row + i * levels[0].left + j * levels[1].left,
                                left_row, right + i * levels[0].right + j * levels[1].right,
                                sums + r * RAOT_TILE_COLUMNS);
            }
        }
    }
}

__attribute__((noinline, unused)) static void
raot_multiply_left_f16(int32_t rows, int32_t columns, const struct raot_level *levels,
                       const uint16_t *left, int32_t left_row, const float *right, float *sums)
{
    raot_left_tile(RAOT_F16, rows, columns, levels, left, left_row, right, sums);
}

__attribute__((noinline, unused)) static void
raot_multiply_left_bf16(int32_t rows, int32_t columns, const struct raot_level *levels,
                        const uint16_t *left, int32_t left_row, const float *right, float *sums)
{
    raot_left_tile(RAOT_BF16, rows, columns, levels, left, left_row, right, sums);
}

#endif
