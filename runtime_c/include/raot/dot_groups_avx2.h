/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_avx2.h - dot_groups.h and dot_blocks.h by VPMADDUBSW, for hosts with AVX2.
 *
 * The instruction multiplies unsigned bytes by signed ones and adds pairs in 16 bits. The magnitude
 * of a weight of 8 bits is multiplied by the left operand with the weight's sign, 2 * 128 * 127 at
 * most. Weights of 4 bits are multiplied with 8 added: products of 32 steps fit into 16 bits, and 8
 * times the sum of the left operand is subtracted.
 */
#ifndef RAOT_DOT_GROUPS_AVX2_H
#define RAOT_DOT_GROUPS_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"

#if defined(__clang__)
#define RAOT_DOT_UNROLL
#else
#define RAOT_DOT_UNROLL _Pragma("GCC unroll 8")
#endif
/* Rows of a tile, and parts of eight columns; at most eight sums are kept. */
#define RAOT_DOT_ROWS 4
#define RAOT_DOT_PARTS 4
/* One row asks the cache for weights that it reads after so many bytes: they come from far. */
#define RAOT_DOT_AHEAD 3072

/* Scales of eight columns, from element `at` on. */
typedef __m256 raot_dot_scale(const void *scales, int32_t at);

__attribute__((always_inline)) static inline __m256 raot_dot_scale_f32(const void *scales,
                                                                       int32_t at)
{
    return _mm256_loadu_ps((const float *)scales + at);
}

/* Four steps of a row, for all columns. */
__attribute__((always_inline)) static inline __m256i raot_dot_left(const int8_t *from)
{
    int32_t four;

    RAOT_COPY(&four, from, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Eight times the sum of 32 steps. */
__attribute__((always_inline)) static inline __m256i raot_dot_eights(const int8_t *from)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)from);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(8), x);
    const __m256i groups = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(groups), _mm256_extracti128_si256(groups, 1));

    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm256_broadcastd_epi32(sum);
}

/*
 * 32 steps of some rows and parts are added to `sum`; `next`: bytes from 16 columns to the next
 * ones. `bits`, `rows` and `parts` are constants in every call.
 */
__attribute__((always_inline)) static inline void
raot_dot_bytes_avx2(const int32_t rows, const int32_t parts, __m256i sum[][RAOT_DOT_PARTS],
                    const int8_t *left, int32_t left_row, const int8_t *block, int32_t next)
{
    const __m256i ones = _mm256_set1_epi16(1);

    for (int32_t k = 0; k < 32; k += 4) {
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            const int8_t *const from = block + p / 2 * next + p % 2 * 32 + k * 16;
            const __m256i weight = _mm256_loadu_si256((const __m256i *)from);
            const __m256i magnitude = _mm256_abs_epi8(weight);
            RAOT_DOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                const __m256i x = raot_dot_left(left + r * left_row + k);
                const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, weight));
                sum[r][p] = _mm256_add_epi32(sum[r][p], _mm256_madd_epi16(pairs, ones));
            }
        }
    }
}

__attribute__((always_inline)) static inline void
raot_dot_halves_avx2(const int32_t rows, const int32_t parts, __m256i sum[][RAOT_DOT_PARTS],
                     const int8_t *left, int32_t left_row, const int8_t *block, int32_t next)
{
    const __m256i lower = _mm256_set1_epi8(15);
    const __m256i eights = _mm256_set1_epi8((char)0x88);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[RAOT_DOT_ROWS][RAOT_DOT_PARTS];

    RAOT_DOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            pairs[r][p] = _mm256_setzero_si256();
        }
    }
    for (int32_t k = 0; k < 32; k += 8) {
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            const int8_t *const from = block + p / 2 * next + p % 2 * 32 + k * 8;
            const __m256i both =
                _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)from), eights);
            const __m256i low = _mm256_and_si256(both, lower);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), lower);
            RAOT_DOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                const int8_t *const x = left + r * left_row + k;
                const __m256i first = _mm256_maddubs_epi16(low, raot_dot_left(x));
                const __m256i second = _mm256_maddubs_epi16(high, raot_dot_left(x + 4));
                pairs[r][p] = _mm256_add_epi16(pairs[r][p], _mm256_add_epi16(first, second));
            }
        }
    }
    RAOT_DOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        const __m256i excess = raot_dot_eights(left + r * left_row);
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            const __m256i exact = _mm256_sub_epi32(_mm256_madd_epi16(pairs[r][p], ones), excess);
            sum[r][p] = _mm256_add_epi32(sum[r][p], exact);
        }
    }
}

/* What all tiles read; `own`, if given, has scales of groups of the rows. */
struct raot_dot_given {
    const void *scales;
    const float *own;
    int32_t own_row;
    int32_t groups;
    int32_t group;
    int32_t left_row;
};

/* Some rows and parts of eight columns, the first of which is `column`. */
__attribute__((always_inline)) static inline void
raot_dot_tile_avx2(const int32_t bits, const int32_t rows, const int32_t parts,
                   raot_dot_scale *scale_of, const int32_t has_own, float *sums, const int8_t *left,
                   const int8_t *block, const float *own, const struct raot_dot_given *given,
                   int32_t column)
{
    const int32_t next = given->groups * given->group * 2 * bits;
    const int8_t *const end = block + next;
    __m256 total[RAOT_DOT_ROWS][RAOT_DOT_PARTS];

    RAOT_DOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            total[r][p] = _mm256_setzero_ps();
        }
    }
    for (int32_t g = 0; g < given->groups; g++) {
        __m256i sum[RAOT_DOT_ROWS][RAOT_DOT_PARTS];
        RAOT_DOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            RAOT_DOT_UNROLL
            for (int32_t p = 0; p < parts; p++) {
                sum[r][p] = _mm256_setzero_si256();
            }
        }
        for (int32_t k = 0; k < given->group; k += 32) {
            if (rows == 1) {
                const int32_t skipped = end - block <= RAOT_DOT_AHEAD ? next : 0;
                const char *const ahead = (const char *)block + RAOT_DOT_AHEAD + skipped;
                for (int32_t line = 0; line < 64 * bits; line += 64) {
                    _mm_prefetch(ahead + line, _MM_HINT_T1);
                    _mm_prefetch(ahead + next + line, _MM_HINT_T1);
                }
            }
            if (bits == 8) {
                raot_dot_bytes_avx2(rows, parts, sum, left, given->left_row, block, next);
            } else {
                raot_dot_halves_avx2(rows, parts, sum, left, given->left_row, block, next);
            }
            block += 64 * bits;
            left += 32;
        }
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            const __m256 scale = scale_of(given->scales, g * RAOT_GROUP_COLUMNS + column + p * 8);
            RAOT_DOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                const __m256 by =
                    has_own ? _mm256_mul_ps(scale, _mm256_set1_ps(own[r * given->own_row + g]))
                            : scale;
                total[r][p] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][p]), by, total[r][p]);
            }
        }
    }
    RAOT_DOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT_UNROLL
        for (int32_t p = 0; p < parts; p++) {
            _mm256_storeu_ps(sums + r * RAOT_GROUP_COLUMNS + p * 8, total[r][p]);
        }
    }
}

__attribute__((always_inline)) static inline void
raot_dot_rows_avx2(const int32_t bits, raot_dot_scale *scale_of, const int32_t has_own, float *sums,
                   const int8_t *left, const int8_t *weights, int32_t rows, int32_t columns,
                   const struct raot_dot_given *given)
{
    const int32_t next = given->groups * given->group * 2 * bits;
    const float *own = given->own;
    int32_t r = 0;

    for (; r + 4 <= rows; r += 4) {
        for (int32_t c = 0; c < columns; c += 16) {
            raot_dot_tile_avx2(bits, 4, 2, scale_of, has_own, sums + c, left,
                               weights + c / 16 * next, own, given, c);
        }
        sums += 4 * RAOT_GROUP_COLUMNS;
        left += 4 * given->left_row;
        own += has_own ? 4 * given->own_row : 0;
    }
    for (; r < rows; r++) {
        if (columns > 16) {
            raot_dot_tile_avx2(bits, 1, 4, scale_of, has_own, sums, left, weights, own, given, 0);
        } else {
            raot_dot_tile_avx2(bits, 1, 2, scale_of, has_own, sums, left, weights, own, given, 0);
        }
        sums += RAOT_GROUP_COLUMNS;
        left += given->left_row;
        own += has_own ? given->own_row : 0;
    }
}

__attribute__((always_inline)) static inline void
raot_dot_avx2(const int32_t bits, float *sums, const int8_t *left, const int8_t *weights,
              const float *scales, const struct raot_dot_groups *sizes)
{
    const struct raot_dot_given given = {
        .scales = scales,
        .own = NULL,
        .own_row = 0,
        .groups = sizes->groups,
        .group = sizes->group,
        .left_row = sizes->left_row,
    };

    raot_dot_rows_avx2(bits, raot_dot_scale_f32, 0, sums, left, weights, sizes->rows,
                       sizes->columns, &given);
}

#define RAOT_DOT_FAST_16(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES) \
    raot_dot_avx2(BITS, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, SIZES)

#endif
