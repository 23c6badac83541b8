/* SPDX-License-Identifier: Apache-2.0 */
/* test_multiply_half.c - the bits of a product with converted elements, for tiles of every size. */
#include <stdint.h>
#include <string.h>

#include "raot/multiply_half.h"
#include "raot/multiply_half_left.h"

enum { LEFT = 2048, RIGHT = 8192, STEPS = 330, TILE = (RAOT_TILE_ROWS + 1) * RAOT_TILE_COLUMNS };

static float left[LEFT];
static uint16_t right[RIGHT];
static float converted[RIGHT];
static float sums[TILE];
static float wanted[TILE];
static uint32_t state = 1;

static int32_t below(int32_t limit)
{
    state = state * 1664525u + 1013904223u;
    return (int32_t)((state >> 8) % (uint32_t)limit);
}

static float number(void)
{
    return (float)(below(1 << 24) - (1 << 23)) / 3e6f;
}

/* All finite numbers, of which every 16th is subnormal. */
static void fill(int32_t exponents, int32_t bits, float (*convert)(uint16_t))
{
    for (int32_t i = 0; i < RIGHT; i++) {
        const int32_t exponent = below(16) == 0 ? 0 : below(exponents);
        const int32_t magnitude = exponent << bits | below(1 << bits);
        right[i] = (uint16_t)(magnitude | (below(2) << 15));
        converted[i] = convert(right[i]);
    }
}

/* Whether the columns of all rows are as wanted, and the row behind them is unchanged. */
static int is_equal(int32_t rows, int32_t columns)
{
    for (int32_t r = 0; r < rows; r++) {
        const size_t at = (size_t)r * RAOT_TILE_COLUMNS;
        if (memcmp(&sums[at], &wanted[at], (size_t)columns * sizeof(float)) != 0) {
            return 0;
        }
    }
    const size_t end = (size_t)rows * RAOT_TILE_COLUMNS;
    return memcmp(&sums[end], &wanted[end], RAOT_TILE_COLUMNS * sizeof(float)) == 0;
}

static int tile(int32_t rows, int32_t columns, int is_f16)
{
    const int32_t right_step = below(2) == 0 ? RAOT_TILE_COLUMNS : columns + below(4);
    const struct raot_level levels[3] = {
        {1 + below(2), below(20), below(9)},
        {1 + below(2), below(20), below(9)},
        {below(2) == 0 ? below(8) : below(150), below(3), right_step},
    };
    const int32_t left_row = below(40);
    const int32_t begin = below(64);

    for (int32_t i = 0; i < TILE; i++) {
        sums[i] = wanted[i] = number();
    }
    raot_multiply_f32(rows, columns, levels, left, left_row, converted + begin, wanted);
    if (is_f16) {
        raot_multiply_f16(rows, columns, levels, left, left_row, right + begin, sums);
    } else {
        raot_multiply_bf16(rows, columns, levels, left, left_row, right + begin, sums);
    }
    return is_equal(rows, columns);
}

/* The same with the elements of the other side: `converted` is the left operand. */
static int left_tile(int32_t rows, int32_t columns, int is_f16)
{
    const struct raot_level levels[3] = {
        {1 + below(2), below(20), below(9)},
        {1 + below(2), below(20), below(9)},
        {below(4) == 0 ? below(STEPS) : below(20), below(3), below(5)},
    };
    const int32_t left_row = below(200);
    const int32_t begin = below(64);

    for (int32_t i = 0; i < TILE; i++) {
        sums[i] = wanted[i] = number();
    }
    raot_multiply_f32(rows, columns, levels, converted + begin, left_row, left, wanted);
    if (is_f16) {
        raot_multiply_left_f16(rows, columns, levels, right + begin, left_row, left, sums);
    } else {
        raot_multiply_left_bf16(rows, columns, levels, right + begin, left_row, left, sums);
    }
    return is_equal(rows, columns);
}

int main(void)
{
    for (int32_t i = 0; i < LEFT; i++) {
        left[i] = number();
    }
    for (int is_f16 = 0; is_f16 < 2; is_f16++) {
        if (is_f16) {
            fill(31, 10, raot_f16_to_f32);
        } else {
            fill(200, 7, raot_bf16_to_f32);
        }
        for (int32_t rows = 1; rows <= RAOT_TILE_ROWS; rows++) {
            for (int32_t columns = 1; columns <= RAOT_TILE_COLUMNS; columns++) {
                if (!tile(rows, columns, is_f16) || !tile(rows, RAOT_TILE_COLUMNS, is_f16) ||
                    !left_tile(rows, columns, is_f16)) {
                    return rows;
                }
            }
        }
    }
    return 0;
}
