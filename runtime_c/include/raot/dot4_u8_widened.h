/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot4_u8_widened.h - the products of dot4_u8.h by products of 16-bit integers (PMADDWD).
 */
#ifndef RAOT_DOT4_U8_WIDENED_H
#define RAOT_DOT4_U8_WIDENED_H

#include <stdint.h>

#include "copy.h"
#include "dot2_i16.h"
#include "dot_lanes.h"
#include "index.h"

/* Rows and steps that are widened at once. 256 times the sum of 256 products fits 32 bits. */
#define RAOT_DOT4_U8_ROWS 24
#define RAOT_DOT4_U8_DEPTH 192

/* Steps of equal parts of `depth`, a multiple of 16. */
static inline int32_t raot_dot4_u8_part(int32_t depth)
{
    const int32_t parts = (depth + RAOT_DOT4_U8_DEPTH - 1) / RAOT_DOT4_U8_DEPTH;

    return (depth + 16 * parts - 1) / (16 * parts) * 16;
}

#if defined(RAOT_DOTS_LANES)
/* The bytes of each four steps in the order 0, 2, 1, 3. */
static inline void raot_dot4_u8_widen_image(int16_t *to, const uint8_t *from, int32_t depth)
{
    int32_t k = 0;

#if defined(__AVX2__)
    for (; k + 16 <= depth; k += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + k));
        const __m256i half = _mm256_shufflelo_epi16(_mm256_cvtepu8_epi16(bytes), 0xD8);
        _mm256_storeu_si256((__m256i *)(void *)(to + k), _mm256_shufflehi_epi16(half, 0xD8));
    }
#endif
    for (; k < depth; k += 4) {
        int32_t four;
        RAOT_COPY(&four, from + k, sizeof four);
        const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), _mm_setzero_si128());
        _mm_storel_epi64((__m128i *)(void *)(to + k), _mm_shufflelo_epi16(words, 0xD8));
    }
}

/* Adds the products of the even or the odd steps, `x`. */
#define RAOT_DOT4_U8_ADD(odd)                                            \
    {                                                                    \
        RAOT_DOTS_UNROLL                                                 \
        for (int32_t r = 0; r < rows; r++) {                             \
            int32_t pair;                                                \
            RAOT_COPY(&pair, left + r * depth + 2 * (odd), sizeof pair); \
            const raot_dots factor = raot_dots_all(pair);                \
            RAOT_DOTS_UNROLL                                             \
            for (int32_t w = 0; w < RAOT_DOTS_WIDE; w++) {               \
                kept[r][w] = raot_dots_add(kept[r][w], factor, x[w]);    \
                RAOT_DOTS_STAYS(kept[r][w]);                             \
            }                                                            \
        }                                                                \
    }

/* `rows`, a constant in every call, and RAOT_DOTS_STEP columns. */
__attribute__((always_inline)) static inline void
raot_dot4_u8_block(const int32_t rows, int32_t *sums, const int16_t *left, const int8_t *right,
                   const int32_t *bias, const struct raot_dot4_u8_sizes *sizes)
{
    raot_dots kept[RAOT_DOTS_HIGH][RAOT_DOTS_WIDE];
    const int32_t depth = sizes->depth;

    RAOT_DOTS_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < RAOT_DOTS_WIDE; w++) {
            kept[r][w] = raot_dots_all(0);
        }
    }
    for (int32_t k = 0; k < depth; k += 4) {
        raot_dots x[RAOT_DOTS_WIDE];
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < RAOT_DOTS_WIDE; w++) {
            x[w] = raot_dots_even_by_256(raot_dots_load(right + 4 * w * RAOT_DOTS_LANES));
        }
        RAOT_DOT4_U8_ADD(0)
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < RAOT_DOTS_WIDE; w++) {
            x[w] = raot_dots_odd_by_256(raot_dots_load(right + 4 * w * RAOT_DOTS_LANES));
        }
        RAOT_DOT4_U8_ADD(1)
        left += 4;
        right += 64;
    }
    RAOT_DOTS_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        const int32_t *const start = bias + r * sizes->bias_row;
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < RAOT_DOTS_WIDE; w++) {
            const int32_t at = w * RAOT_DOTS_LANES;
            const raot_dots from =
                sizes->bias_column != 0 ? raot_dots_load(start + at) : raot_dots_all(*start);
            raot_dots_store(sums + r * sizes->sum_step + at,
                            raot_dots_plus(from, raot_dots_by_256(kept[r][w])));
        }
    }
}

#define RAOT_DOT4_U8_CASE(rows)                                   \
    case rows:                                                    \
        raot_dot4_u8_block(rows, sums, left, right, bias, sizes); \
        break;

/* Up to RAOT_DOTS_HIGH rows. */
__attribute__((noinline, unused)) static void
raot_dot4_u8_rows(int32_t rows, int32_t *sums, const int16_t *left, const int8_t *right,
                  const int32_t *bias, const struct raot_dot4_u8_sizes *sizes)
{
    switch (rows) {
        RAOT_DOT4_U8_CASE(1)
        RAOT_DOT4_U8_CASE(2)
        RAOT_DOT4_U8_CASE(3)
        RAOT_DOT4_U8_CASE(4)
        RAOT_DOT4_U8_CASE(5)
#if RAOT_DOTS_HIGH > 6
        RAOT_DOT4_U8_CASE(6)
        RAOT_DOT4_U8_CASE(7)
#endif
    default:
        raot_dot4_u8_block(RAOT_DOTS_HIGH, sums, left, right, bias, sizes);
        break;
    }
}

/* The steps that are widened; `block`: bytes from 16 columns of the right operand to the next. */
static inline void raot_dot4_u8_columns(int32_t *sums, const int16_t *left, const int8_t *right,
                                        int32_t block, const int32_t *bias,
                                        const struct raot_dot4_u8_sizes *sizes)
{
    for (int32_t c = 0; c < sizes->columns; c += RAOT_DOTS_STEP) {
        const int32_t inside = c % RAOT_DOT4_U8_COLUMNS;
        const int8_t *const x = right + c / RAOT_DOT4_U8_COLUMNS * block + 4 * inside;
        int32_t high;
        for (int32_t r = 0; r < sizes->rows; r += high) {
            high = raot_dot4_u8_high(sizes->rows - r);
            raot_dot4_u8_rows(high, sums + r * sizes->sum_step + c, left + r * sizes->depth, x,
                              bias + r * sizes->bias_row + c * sizes->bias_column, sizes);
        }
    }
}

__attribute__((noinline, unused)) static void raot_dot4_us(int32_t *sums, const uint8_t *left,
                                                           const int8_t *right, const int32_t *bias,
                                                           const struct raot_dot4_u8_sizes *sizes)
{
    int16_t widened[RAOT_DOT4_U8_ROWS * RAOT_DOT4_U8_DEPTH];
    const int32_t deep = raot_dot4_u8_part(sizes->depth);

    /*@ loop unroll 4096; */
    for (int32_t top = 0; top < sizes->rows; top += RAOT_DOT4_U8_ROWS) {
        const int32_t below = sizes->rows - top;
        int32_t *const to = sums + top * sizes->sum_step;
        const int32_t *start = bias + top * sizes->bias_row;
        struct raot_dot4_u8_sizes part = *sizes;
        part.rows = below < RAOT_DOT4_U8_ROWS ? below : RAOT_DOT4_U8_ROWS;
        for (int32_t k = 0; k < sizes->depth; k += deep) {
            const int32_t rest = sizes->depth - k;
            part.depth = rest < deep ? rest : deep;
            for (int32_t r = 0; r < part.rows; r++) {
                raot_dot4_u8_widen_image(widened + r * part.depth,
                                         left + (top + r) * sizes->depth + k, part.depth);
            }
            raot_dot4_u8_columns(to, widened, right + RAOT_DOT4_U8_COLUMNS * k,
                                 RAOT_DOT4_U8_COLUMNS * sizes->depth, start, &part);
            /* The sums so far. */
            start = to;
            part.bias_row = sizes->sum_step;
            part.bias_column = 1;
        }
    }
}

#else
__attribute__((noinline, unused)) static void raot_dot4_us(int32_t *sums, const uint8_t *left,
                                                           const int8_t *right, const int32_t *bias,
                                                           const struct raot_dot4_u8_sizes *sizes)
{
    for (int32_t r = 0; r < sizes->rows; r++) {
        for (int32_t c = 0; c < sizes->columns; c++) {
            const uint8_t *const by = left + r * sizes->depth;
            const int8_t *const x = right +
                                    c / RAOT_DOT4_U8_COLUMNS * RAOT_DOT4_U8_COLUMNS * sizes->depth +
                                    c % RAOT_DOT4_U8_COLUMNS * 4;
            uint32_t sum = (uint32_t)bias[r * sizes->bias_row + c * sizes->bias_column];
            for (int32_t k = 0; k < sizes->depth; k++) {
                sum += (uint32_t)(by[k] * x[k / 4 * 4 * RAOT_DOT4_U8_COLUMNS + k % 4]);
            }
            sums[r * sizes->sum_step + c] = (int32_t)sum;
        }
    }
}
#endif

/* A multiple of four bytes. */
static inline void raot_dot4_u8_widen_row(int16_t *to, const int8_t *from, int32_t count)
{
    int32_t i = 0;

#if defined(__AVX2__)
    for (; i + 16 <= count; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_cvtepi8_epi16(bytes));
    }
#endif
#if defined(__SSE2__)
    for (; i < count; i += 4) {
        int32_t four;
        RAOT_COPY(&four, from + i, sizeof four);
        const __m128i upper = _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_cvtsi32_si128(four));
        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_srai_epi16(upper, 8));
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        to[i] = from[i];
    }
}

/* Rows are widened, for raot_dot2_i16. */
__attribute__((noinline, unused)) static void raot_dot4_su(int32_t *sums, const int8_t *left,
                                                           const int16_t *right,
                                                           const int32_t *bias,
                                                           const struct raot_dot4_u8_sizes *sizes)
{
    int16_t widened[RAOT_DOT4_U8_ROWS * RAOT_DOT4_U8_DEPTH];
    const int32_t part = raot_dot4_u8_part(sizes->depth);

    /*@ loop unroll 4096; */
    for (int32_t top = 0; top < sizes->rows; top += RAOT_DOT4_U8_ROWS) {
        const int32_t below = sizes->rows - top;
        const int32_t rows = below < RAOT_DOT4_U8_ROWS ? below : RAOT_DOT4_U8_ROWS;
        /*@ loop unroll 4096; */
        for (int32_t k = 0; k < sizes->depth; k += part) {
            const int32_t rest = sizes->depth - k;
            const int32_t deep = rest < part ? rest : part;
            /*@ loop unroll 4096; */
            for (int32_t r = 0; r < rows; r++) {
                raot_dot4_u8_widen_row(widened + r * deep, left + (top + r) * sizes->depth + k,
                                       deep);
            }
            for (int32_t c = 0; c < sizes->columns; c += RAOT_DOT4_U8_COLUMNS) {
                int32_t *const to = sums + top * sizes->sum_step + c;
                const int16_t *const x = right + c * sizes->depth + RAOT_DOT4_U8_COLUMNS * k;
                const int32_t wide = raot_min_i32(sizes->columns - c, RAOT_DOT4_U8_COLUMNS);
                if (k == 0) {
                    raot_dot2_i16_unpacked(
                        to, widened, x, bias + top * sizes->bias_row + c * sizes->bias_column, rows,
                        wide, deep, sizes->sum_step, sizes->bias_row, sizes->bias_column);
                } else {
                    /* The sums so far. */
                    raot_dot2_i16_unpacked(to, widened, x, to, rows, wide, deep, sizes->sum_step,
                                           sizes->sum_step, 1);
                }
            }
        }
    }
}

#endif
