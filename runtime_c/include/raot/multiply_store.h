/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_store.h - tiles of float contractions whose sums begin and end in registers.
 *
 *     to[r * to_row + c] = end(sum over i, j, k of
 *         left[r * left_row + i * left_line + j * left_tap + k * left_step] *
 *         right[i * right_line + j * right_tap + k * right_step + c])
 *
 * for `lines` x `taps` x `depth` products, in this order, by raot_fmaf. A sum begins with start[r *
 * start_row + c] where `starts` is 1, else with 0. end(sum) adds this where `starts` is 2, adds
 * other[r * other_row + c] where `adds` is not 0 and clips to low..high, numbers by their upper
 * halves; NaN stays. `other` and `to` may be the same place. There are 1..RAOT_ROW_COLUMNS columns,
 * of which all of one row are computed at once, and of a few rows with AVX-512: one vector of sums
 * alone would wait for its FMA, and the weights of all columns are read as one stream.
 *
 * Tiles of multiply.h keep sums in memory, for any other beginning and end.
 */
#ifndef RAOT_MULTIPLY_STORE_H
#define RAOT_MULTIPLY_STORE_H

#include <stdint.h>

#include "convert.h"
#include "function.h"
#include "ieee.h"
#include "multiply.h"

struct raot_multiply_store {
    int32_t rows;
    int32_t columns;
    int32_t lines;
    int32_t taps;
    int32_t depth;
    int32_t left_row;
    int32_t left_line;
    int32_t left_tap;
    int32_t left_step;
    int32_t right_line;
    int32_t right_tap;
    int32_t right_step;
    int32_t to_row;
    int32_t start_row;
    int32_t other_row;
    int32_t starts;
    int32_t adds;
    int32_t low;
    int32_t high;
};

#if defined(__AVX2__) && defined(__FMA__)
/*
 * RAOT_STORED_HIGH: rows of a block of two vectors. The addresses of more do not fit in registers.
 * RAOT_STORED_LOW: rows of a block of RAOT_ROW_COLUMNS.
 */
#if defined(__AVX512F__)
#define RAOT_STORED_HIGH 8
#define RAOT_STORED_LOW 6
#define RAOT_STORED_X86(operation) _mm512_##operation
#define RAOT_STORED_CHOSEN(x, limit, order) \
    _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, limit, order), limit)

/* The first `count` elements of a vector. */
static inline void raot_lanes_store_some(float *to, raot_lanes value, int32_t count)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1u), value);
}
#else
#define RAOT_STORED_HIGH RAOT_HIGH
#define RAOT_STORED_LOW 1
#define RAOT_STORED_X86(operation) _mm256_##operation
#define RAOT_STORED_CHOSEN(x, limit, order) \
    _mm256_blendv_ps(x, limit, _mm256_cmp_ps(x, limit, order))

/* The first `count` elements of a vector. */
static inline void raot_lanes_store_some(float *to, raot_lanes value, int32_t count)
{
    float all[RAOT_LANES];

    raot_lanes_store(all, value);
    for (int32_t c = 0; c < count; c++) {
        to[c] = all[c];
    }
}
#endif

/* A vector of a row; of the last one of a part of a panel, only the first columns are read. */
#define RAOT_STORED_LOAD(from)                                                                    \
    (some != 0 && w == wide - 1 ? raot_lanes_some((from) + w * RAOT_LANES, some - w * RAOT_LANES) \
                                : raot_lanes_load((from) + w * RAOT_LANES))

/* `rows` and `wide` are constants in every call, so the sums are in registers. `some`: columns, or
 * 0 where they are whole vectors. */
RAOT_INLINE static inline void raot_stored_block_f32(const int32_t rows, const int32_t wide,
                                                     const int32_t some, float *to,
                                                     const float *left, const float *right,
                                                     const float *start, const float *other,
                                                     const struct raot_multiply_store *is)
{
    const int32_t left_row = is->left_row;
    const int32_t left_step = is->left_step;
    const int32_t right_step = is->right_step;
    const int32_t to_row = is->to_row;
    const int32_t start_row = is->start_row;
    const int32_t other_row = is->other_row;
    raot_lanes kept[RAOT_STORED_HIGH][RAOT_ROW_COLUMNS / RAOT_LANES];

    RAOT_UNROLL
    for (int32_t w = 0; w < wide; w++) {
        RAOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            kept[r][w] = is->starts == 1 ? RAOT_STORED_LOAD(start + r * start_row)
                                         : RAOT_STORED_X86(setzero_ps)();
        }
    }
    for (int32_t i = 0; i < is->lines; i++) {
        for (int32_t j = 0; j < is->taps; j++) {
            const float *a = left + i * is->left_line + j * is->left_tap;
            const float *b = right + i * is->right_line + j * is->right_tap;

            for (int32_t k = is->depth; k > 0; k--) {
#if defined(RAOT_AHEAD)
                if (wide * RAOT_LANES == RAOT_TILE_COLUMNS) {
                    const uintptr_t next =
                        (uintptr_t)b + RAOT_AHEAD * RAOT_TILE_COLUMNS * sizeof(float);

                    _mm_prefetch((const char *)next, _MM_HINT_T0);
                    _mm_prefetch((const char *)next + 64, _MM_HINT_T0);
                }
#endif
                RAOT_STEP(b, raot_lanes_fma(a[r * left_row], factor[w], kept[r][w]));
                a += left_step;
                b += right_step;
            }
        }
    }
    if (is->starts == 2) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                kept[r][w] =
                    RAOT_STORED_X86(add_ps)(kept[r][w], RAOT_STORED_LOAD(start + r * start_row));
            }
        }
    }
    if (is->adds != 0) {
        RAOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            RAOT_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                kept[r][w] =
                    RAOT_STORED_X86(add_ps)(kept[r][w], RAOT_STORED_LOAD(other + r * other_row));
            }
        }
    }
    const raot_lanes low = RAOT_STORED_X86(set1_ps)(raot_bf16_to_f32((uint16_t)is->low));
    const raot_lanes high = RAOT_STORED_X86(set1_ps)(raot_bf16_to_f32((uint16_t)is->high));
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            float *const at = to + r * to_row + w * RAOT_LANES;
            raot_lanes value = RAOT_STORED_CHOSEN(kept[r][w], low, _CMP_LE_OS);

            value = RAOT_STORED_CHOSEN(value, high, _CMP_GE_OS);
            if (some != 0 && w == wide - 1) {
                raot_lanes_store_some(at, value, some - w * RAOT_LANES);
            } else {
                raot_lanes_store(at, value);
            }
        }
    }
}

#define RAOT_STORED_ROWS(count)                                                         \
    case count:                                                                         \
        raot_stored_block_f32(count, wide, some, to, left, right, start, other, sizes); \
        break
/* Up to RAOT_STORED_HIGH rows of `vectors`, whole ones where `partial` is 0. */
#if defined(__AVX512F__)
#define RAOT_STORED_MORE_ROWS \
    RAOT_STORED_ROWS(6);      \
    RAOT_STORED_ROWS(7);
#else
#define RAOT_STORED_MORE_ROWS
#endif
#define RAOT_STORED_PANEL(name, vectors, partial)                                               \
    RAOT_NOINLINE static void name(int32_t rows, int32_t columns, float *to, const float *left, \
                                   const float *right, const float *start, const float *other,  \
                                   const struct raot_multiply_store *sizes)                     \
    {                                                                                           \
        const int32_t wide = vectors;                                                           \
        const int32_t some = (partial) != 0 ? columns : 0;                                      \
                                                                                                \
        switch (rows) {                                                                         \
            RAOT_STORED_ROWS(1);                                                                \
            RAOT_STORED_ROWS(2);                                                                \
            RAOT_STORED_ROWS(3);                                                                \
            RAOT_STORED_ROWS(4);                                                                \
            RAOT_STORED_ROWS(5);                                                                \
            RAOT_STORED_MORE_ROWS                                                               \
        default:                                                                                \
            raot_stored_block_f32(RAOT_STORED_HIGH, wide, some, to, left, right, start, other,  \
                                  sizes);                                                       \
            break;                                                                              \
        }                                                                                       \
    }
RAOT_STORED_PANEL(raot_stored_part_f32, 2, 1)
RAOT_STORED_PANEL(raot_stored_wide_f32, 2, 0)
RAOT_STORED_PANEL(raot_stored_some_f32, 1, 1)
RAOT_STORED_PANEL(raot_stored_one_f32, 1, 0)

/* Up to RAOT_STORED_LOW rows of RAOT_ROW_COLUMNS. */
RAOT_NOINLINE static void raot_stored_row_f32(int32_t rows, float *to, const float *left,
                                              const float *right, const float *start,
                                              const float *other,
                                              const struct raot_multiply_store *sizes)
{
    const int32_t wide = RAOT_ROW_COLUMNS / RAOT_LANES;
    const int32_t some = 0;

#if RAOT_STORED_LOW == 1
    (void)rows;
    raot_stored_block_f32(1, wide, some, to, left, right, start, other, sizes);
#else
    switch (rows) {
        RAOT_STORED_ROWS(1);
        RAOT_STORED_ROWS(2);
        RAOT_STORED_ROWS(3);
        RAOT_STORED_ROWS(4);
        RAOT_STORED_ROWS(5);
    default:
        raot_stored_block_f32(RAOT_STORED_LOW, wide, some, to, left, right, start, other, sizes);
        break;
    }
#endif
}
#if defined(RAOT_ALL_LOW)

RAOT_NOINLINE static void raot_stored_whole_f32(int32_t rows, float *to, const float *left,
                                                const float *right, const float *start,
                                                const float *other,
                                                const struct raot_multiply_store *sizes)
{
    const int32_t wide = RAOT_TILE_COLUMNS / RAOT_LANES;
    const int32_t some = 0;

    switch (rows) {
        RAOT_STORED_ROWS(1);
        RAOT_STORED_ROWS(2);
    default:
        raot_stored_block_f32(RAOT_LOW, wide, some, to, left, right, start, other, sizes);
        break;
    }
}
#endif
#endif

__attribute__((noinline, unused)) static void
raot_multiply_store_f32(float *to, const float *left, const float *right, const float *start,
                        const float *other, const struct raot_multiply_store *sizes)
{
#if defined(RAOT_STORED_X86)
    int32_t high;

    for (int32_t r = 0; r < sizes->rows; r += high) {
        const int32_t rest = sizes->rows - r;
        const float *const from = left + r * sizes->left_row;
        float *const row = to + r * sizes->to_row;
        const float *const first = start + r * sizes->start_row;
        const float *const added = other + r * sizes->other_row;

        if (sizes->columns == RAOT_ROW_COLUMNS && (RAOT_STORED_LOW > 1 || sizes->rows == 1)) {
            const int32_t parts = (rest + RAOT_STORED_LOW - 1) / RAOT_STORED_LOW;

            high = (rest + parts - 1) / parts;
            raot_stored_row_f32(high, row, from, right, first, added, sizes);
            continue;
        }
#if defined(RAOT_ALL_LOW)
        if (sizes->columns % RAOT_TILE_COLUMNS == 0) {
            /* Four rows are 2 and 2: one row alone would stall. */
            high = rest == RAOT_LOW + 1 ? 2 : rest < RAOT_LOW ? rest : RAOT_LOW;
            for (int32_t c = 0; c < sizes->columns; c += RAOT_TILE_COLUMNS) {
                raot_stored_whole_f32(high, row + c, from, right + c, first + c, added + c, sizes);
            }
            continue;
        }
#endif
        /* Blocks of about the same height: those of one or two rows stall. */
        const int32_t blocks = (rest + RAOT_STORED_HIGH - 1) / RAOT_STORED_HIGH;
        high = (rest + blocks - 1) / blocks;
        for (int32_t c = 0; c < sizes->columns; c += RAOT_WIDE * RAOT_LANES) {
            const int32_t columns = sizes->columns - c;

            if (columns >= RAOT_WIDE * RAOT_LANES) {
                raot_stored_wide_f32(high, columns, row + c, from, right + c, first + c, added + c,
                                     sizes);
            } else if (columns > RAOT_LANES) {
                raot_stored_part_f32(high, columns, row + c, from, right + c, first + c, added + c,
                                     sizes);
            } else if (columns == RAOT_LANES) {
                raot_stored_one_f32(high, columns, row + c, from, right + c, first + c, added + c,
                                    sizes);
            } else {
                raot_stored_some_f32(high, columns, row + c, from, right + c, first + c, added + c,
                                     sizes);
            }
        }
    }
#else
    const struct raot_level levels[3] = {
        {sizes->lines, sizes->left_line, sizes->right_line},
        {sizes->taps, sizes->left_tap, sizes->right_tap},
        {sizes->depth, sizes->left_step, sizes->right_step},
    };
    const float low = raot_bf16_to_f32((uint16_t)sizes->low);
    const float high = raot_bf16_to_f32((uint16_t)sizes->high);
    float sums[RAOT_TILE_ROWS * RAOT_TILE_COLUMNS];

    /*@ loop unroll 2; */
    for (int32_t at = 0; at < sizes->columns; at += RAOT_TILE_COLUMNS) {
        const int32_t wide = sizes->columns - at;
        const int32_t columns = wide < RAOT_TILE_COLUMNS ? wide : RAOT_TILE_COLUMNS;
        int32_t rows;

        for (int32_t first = 0; first < sizes->rows; first += rows) {
            rows = sizes->rows - first < RAOT_TILE_ROWS ? sizes->rows - first : RAOT_TILE_ROWS;
            /*@ loop unroll 24; */
            for (int32_t r = 0; r < rows; r++) {
                /*@ loop unroll 32; */
                for (int32_t c = 0; c < RAOT_TILE_COLUMNS; c++) {
                    sums[r * RAOT_TILE_COLUMNS + c] =
                        sizes->starts == 1 && c < columns
                            ? start[(first + r) * sizes->start_row + at + c]
                            : 0.0f;
                }
            }
            raot_multiply_f32(rows, columns, levels, left + first * sizes->left_row,
                              sizes->left_row, right + at, sums);
            for (int32_t r = 0; r < rows; r++) {
                for (int32_t c = 0; c < columns; c++) {
                    float value = sums[r * RAOT_TILE_COLUMNS + c];

                    if (sizes->starts == 2) {
                        value += start[(first + r) * sizes->start_row + at + c];
                    }
                    if (sizes->adds != 0) {
                        value += other[(first + r) * sizes->other_row + at + c];
                    }
                    to[(first + r) * sizes->to_row + at + c] =
                        raot_at_mostf(raot_at_leastf(value, low), high);
                }
            }
        }
    }
#endif
}

#endif
