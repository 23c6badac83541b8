/* SPDX-License-Identifier: Apache-2.0 */
/* test_multiply.c - tiles of every size against the definition, bit by bit. */
#include <stdint.h>
#include <string.h>

#include "raot/multiply.h"

enum { LEFT = 4096, RIGHT = 16384, OUTSIDE = 64 };

static float left[LEFT];
static float right[RIGHT];
static float sums[(RAOT_TILE_ROWS + 1) * RAOT_TILE_COLUMNS];
static float wanted[(RAOT_TILE_ROWS + 1) * RAOT_TILE_COLUMNS];
static uint32_t state = 1;

static int32_t below(int32_t limit)
{
    state = state * 1664525u + 1013904223u;
    return (int32_t)((state >> 8) % (uint32_t)limit);
}

/* All bits of the mantissa in use, so that another order of sums would show. */
static float number(void)
{
    return (float)(below(1 << 24) - (1 << 23)) / 3e6f;
}

static void defined(int32_t rows, int32_t columns, const struct raot_level *levels, const float *a,
                    int32_t left_row, const float *b)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t c = 0; c < columns; c++) {
            float sum = wanted[r * RAOT_TILE_COLUMNS + c];
            for (int32_t i = 0; i < levels[0].count; i++) {
                for (int32_t j = 0; j < levels[1].count; j++) {
                    for (int32_t k = 0; k < levels[2].count; k++) {
                        const int32_t x = i * levels[0].left + j * levels[1].left +
                                          k * levels[2].left + r * left_row;
                        const int32_t y =
                            i * levels[0].right + j * levels[1].right + k * levels[2].right + c;
                        sum = RAOT_ADD_PRODUCT(a[x], b[y], sum);
                    }
                }
            }
            wanted[r * RAOT_TILE_COLUMNS + c] = sum;
        }
    }
}

/* What a row of the tile holds beyond its columns is not looked at, what follows the tile is. */
static int same(int32_t rows, int32_t columns)
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

static int tile(int32_t rows, int32_t columns)
{
    const int32_t inner = below(4) != 0 ? below(12) : below(140);
    const int32_t together = below(3) != 0;
    const int32_t row_step = together ? RAOT_TILE_COLUMNS : columns + below(4);
    const struct raot_level levels[3] = {
        {1 + below(2), below(20), below(9)},
        {1 + below(3), below(20), below(9)},
        {inner, together ? 1 : below(3), row_step},
    };
    const int32_t left_row = below(40);
    const float *a = left + below(OUTSIDE);
    const float *b = right + below(OUTSIDE);

    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        sums[i] = wanted[i] = number();
    }
    raot_multiply_f32(rows, columns, levels, a, left_row, b, sums);
    defined(rows, columns, levels, a, left_row, b);
    return same(rows, columns);
}

int main(void)
{
    for (int32_t i = 0; i < LEFT; i++) {
        left[i] = number();
    }
    for (int32_t i = 0; i < RIGHT; i++) {
        right[i] = number();
    }
    for (int32_t rows = 1; rows <= RAOT_TILE_ROWS; rows++) {
        for (int32_t columns = 1; columns <= RAOT_TILE_COLUMNS; columns++) {
            for (int32_t turn = 0; turn < 4; turn++) {
                if (!tile(rows, columns)) {
                    return rows;
                }
            }
        }
    }
    return 0;
}
