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

#include "assembly.h"
#include "copy.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define RAOT_DOT2_COLUMNS 16

/*
 * Sums in registers: RAOT_DOT2_LANES per vector, RAOT_DOT2_WIDE vectors per row (RAOT_DOT2_STEP
 * sums), RAOT_DOT2_HIGH rows.
 */
#if defined(__AVX512BW__)
#define RAOT_DOT2_LANES 16
#define RAOT_DOT2_WIDE 1
#define RAOT_DOT2_STEP 16
#define RAOT_DOT2_HIGH 8
typedef __m512i raot_dots;

static inline raot_dots raot_dots_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

static inline void raot_dots_store(void *to, raot_dots value)
{
    _mm512_storeu_si512(to, value);
}

static inline raot_dots raot_dots_all(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline raot_dots raot_dots_add(raot_dots sum, raot_dots a, raot_dots b)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, a, b);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

#elif defined(__AVX2__)
#define RAOT_DOT2_LANES 8
#define RAOT_DOT2_WIDE 2
#define RAOT_DOT2_STEP 16
#define RAOT_DOT2_HIGH 6
typedef __m256i raot_dots;

static inline raot_dots raot_dots_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

static inline void raot_dots_store(void *to, raot_dots value)
{
    _mm256_storeu_si256((__m256i *)to, value);
}

static inline raot_dots raot_dots_all(int32_t value)
{
    return _mm256_set1_epi32(value);
}

static inline raot_dots raot_dots_add(raot_dots sum, raot_dots a, raot_dots b)
{
#if defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

#elif defined(__SSE2__)
#define RAOT_DOT2_LANES 4
#define RAOT_DOT2_WIDE 2
#define RAOT_DOT2_STEP 8
#define RAOT_DOT2_HIGH 6
typedef __m128i raot_dots;

static inline raot_dots raot_dots_load(const void *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

static inline void raot_dots_store(void *to, raot_dots value)
{
    _mm_storeu_si128((__m128i *)to, value);
}

static inline raot_dots raot_dots_all(int32_t value)
{
    return _mm_set1_epi32(value);
}

static inline raot_dots raot_dots_add(raot_dots sum, raot_dots a, raot_dots b)
{
    return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}
#endif

#if defined(RAOT_DOT2_LANES)
/* Keeps the sums in registers and in order; compilers spill them otherwise. */
#if !defined(RAOT_ASM_INLINE)
#define RAOT_DOT2_STAYS(sum) (void)(sum)
#elif defined(__AVX512BW__)
#define RAOT_DOT2_STAYS(sum) __asm__ volatile("" : "+v"(sum))
#else
#define RAOT_DOT2_STAYS(sum) __asm__ volatile("" : "+x"(sum))
#endif
#if defined(__clang__)
#define RAOT_DOT2_UNROLL
#else
#define RAOT_DOT2_UNROLL _Pragma("GCC unroll 16")
#endif

/* `rows` and `wide` are constants in every call, so the sums are in registers. */
__attribute__((always_inline)) static inline void
raot_dot2_block(const int32_t rows, const int32_t wide, int32_t *sums, const int16_t *left,
                const int16_t *right, const int32_t *bias, int32_t depth, int32_t sum_step,
                int32_t bias_row, int32_t bias_column)
{
    raot_dots kept[RAOT_DOT2_HIGH][RAOT_DOT2_WIDE];

    RAOT_DOT2_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT2_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            kept[r][w] = bias_column != 0
                             ? raot_dots_load(bias + r * bias_row + w * RAOT_DOT2_LANES)
                             : raot_dots_all(bias[r * bias_row]);
        }
    }
    for (int32_t k = 0; k < depth; k += 2) {
        raot_dots x[RAOT_DOT2_WIDE];
        RAOT_DOT2_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            x[w] = raot_dots_load(right + 2 * w * RAOT_DOT2_LANES);
        }
        RAOT_DOT2_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            int32_t pair;
            RAOT_COPY(&pair, left + r * depth + k, sizeof pair);
            const raot_dots factor = raot_dots_all(pair);
            RAOT_DOT2_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                kept[r][w] = raot_dots_add(kept[r][w], factor, x[w]);
                RAOT_DOT2_STAYS(kept[r][w]);
            }
        }
        right += 2 * RAOT_DOT2_COLUMNS;
    }
    RAOT_DOT2_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT2_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            raot_dots_store(sums + r * sum_step + w * RAOT_DOT2_LANES, kept[r][w]);
        }
    }
}

#define RAOT_DOT2_CASE(rows)                                                            \
    case rows:                                                                          \
        raot_dot2_block(rows, wide, sums, left, right, bias, depth, sum_step, bias_row, \
                        bias_column);                                                   \
        break;

/* Up to RAOT_DOT2_HIGH rows. */
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
#if RAOT_DOT2_HIGH > 6
        RAOT_DOT2_CASE(6)
        RAOT_DOT2_CASE(7)
#endif
    default:
        raot_dot2_block(RAOT_DOT2_HIGH, wide, sums, left, right, bias, depth, sum_step, bias_row,
                        bias_column);
        break;
    }
}

__attribute__((noinline, unused)) static void
raot_dot2_wide(int32_t rows, int32_t *sums, const int16_t *left, const int16_t *right,
               const int32_t *bias, int32_t depth, int32_t sum_step, int32_t bias_row,
               int32_t bias_column)
{
    raot_dot2_rows(rows, RAOT_DOT2_WIDE, sums, left, right, bias, depth, sum_step, bias_row,
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
#if defined(RAOT_DOT2_LANES)
    for (int32_t c = 0; c < columns; c += RAOT_DOT2_STEP) {
        const int32_t inside = c % RAOT_DOT2_COLUMNS;
        const int16_t *const x = right + (c - inside) * depth + 2 * inside;
        int32_t r = 0;
        while (r < rows) {
            /* Remaining rows are split evenly: of 6 at most, 8 rows are 4 and 4, not 6 and 2. */
            const int32_t left_over = rows - r;
            int32_t high = left_over < RAOT_DOT2_HIGH ? left_over : RAOT_DOT2_HIGH;
            if (left_over > RAOT_DOT2_HIGH && left_over < 2 * RAOT_DOT2_HIGH) {
                high = (left_over + 1) / 2;
            }
            int32_t *const to = sums + r * sum_step + c;
            const int16_t *const by = left + r * depth;
            const int32_t *const start = bias + r * bias_row + c * bias_column;
            if (columns - c > RAOT_DOT2_LANES) {
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
struct raot_dot2_i16 {
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
