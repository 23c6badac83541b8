/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_vnni.h - dot_groups.h and dot_blocks.h by VPDPBUSD, for hosts with AVX-512 and VNNI.
 *
 * The instruction multiplies unsigned bytes by signed ones: the left operand is read with 128
 * added, and each sum of a group begins with -128 times the sum of its weights. Weights of 4 bits
 * are multiplied as 16 times their value. For one row, 128 is added to the weights instead.
 */
#ifndef RAOT_DOT_GROUPS_VNNI_H
#define RAOT_DOT_GROUPS_VNNI_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "copy.h"

#define RAOT_DOT_ROWS 6
/* One row asks the cache for weights that it reads after so many bytes: they come from far. */
#define RAOT_DOT_AHEAD 3072
#if defined(__clang__)
#define RAOT_DOT_UNROLL
#else
#define RAOT_DOT_UNROLL _Pragma("GCC unroll 8")
#endif

/* Weights of 16 columns and four steps, from step k on. */
__attribute__((always_inline)) static inline __m512i
raot_dot_weights(const int32_t bits, const int8_t *block, int32_t k)
{
    if (bits == 8) {
        return _mm512_loadu_si512(block + k * 16);
    }
    const __m512i both = _mm512_loadu_si512(block + k / 8 * 64);
    const __m512i upper = _mm512_set1_epi8((char)0xf0);
    return _mm512_and_si512(k % 8 == 0 ? _mm512_slli_epi16(both, 4) : both, upper);
}

/* Scales of 16 columns, from element `at` on. */
typedef __m512 raot_dot_scale(const void *scales, int32_t at);

__attribute__((always_inline)) static inline __m512 raot_dot_scale_f32(const void *scales,
                                                                       int32_t at)
{
    return _mm512_loadu_ps((const float *)scales + at);
}

/* Group `g` of the left operand, of the scales and, if it `has_own`, of those of the rows. */
struct raot_dot_group {
    const int8_t *left;
    const void *scales;
    const float *own;
    int32_t left_row;
    int32_t own_row;
    int32_t group;
    int32_t g;
};

/* A group of some rows and 32 columns; `next` is the second block of 16 columns. */
__attribute__((always_inline)) static inline void
raot_dot_group_vnni(const int32_t bits, const int32_t rows, raot_dot_scale *scale_of,
                    const int32_t has_own, float *sums, const struct raot_dot_group *given,
                    const int8_t *block, const int8_t *next)
{
    const __m512i offset = _mm512_set1_epi8((char)0x80);
    __m512i sum[RAOT_DOT_ROWS][2];
    __m512i weight[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};

    RAOT_DOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        sum[r][0] = _mm512_setzero_si512();
        sum[r][1] = _mm512_setzero_si512();
    }
    for (int32_t k = 0; k < given->group; k += 8) {
        RAOT_DOT_UNROLL
        for (int32_t part = 0; part < 8; part += 4) {
            const __m512i a = raot_dot_weights(bits, block, k + part);
            const __m512i b = raot_dot_weights(bits, next, k + part);
            weight[0] = _mm512_dpbusd_epi32(weight[0], offset, a);
            weight[1] = _mm512_dpbusd_epi32(weight[1], offset, b);
            RAOT_DOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                int32_t four;
                RAOT_COPY(&four, given->left + r * given->left_row + k + part, sizeof four);
                const __m512i x = _mm512_xor_si512(_mm512_set1_epi32(four), offset);
                sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], x, a);
                sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], x, b);
            }
        }
    }
    RAOT_DOT_UNROLL
    for (int32_t w = 0; w < 2; w++) {
        const __m512 scale = scale_of(given->scales, given->g * RAOT_GROUP_COLUMNS + 16 * w);
        RAOT_DOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            float *const to = sums + r * RAOT_GROUP_COLUMNS + 16 * w;
            __m512i exact = _mm512_sub_epi32(sum[r][w], weight[w]);
            if (bits == 4) {
                exact = _mm512_srai_epi32(exact, 4);
            }
            const __m512 value = _mm512_cvtepi32_ps(exact);
            const __m512 by =
                has_own ? _mm512_mul_ps(scale, _mm512_set1_ps(given->own[r * given->own_row]))
                        : scale;
            _mm512_storeu_ps(to, _mm512_fmadd_ps(value, by, _mm512_loadu_ps(to)));
        }
    }
}

/* Weights of 16 columns and four steps, from step k on, with 128 added. */
__attribute__((always_inline)) static inline __m512i
raot_dot_positive(const int32_t bits, const int8_t *block, int32_t k)
{
    const __m512i offset = _mm512_set1_epi8((char)0x80);
    const __m512i upper = _mm512_set1_epi8((char)0xf0);

    if (bits == 8) {
        return _mm512_xor_si512(_mm512_loadu_si512(block + k * 16), offset);
    }
    const __m512i both = _mm512_loadu_si512(block + k / 8 * 64);
    /* (one ^ offset) & upper */
    return _mm512_ternarylogic_epi32(k % 8 == 0 ? _mm512_slli_epi16(both, 4) : both, offset, upper,
                                     0x28);
}

/* The sum of the elements of each four bytes and of the three others next to them. */
__attribute__((always_inline)) static inline __m512i raot_dot_all(__m512i sum)
{
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
    return _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
}

/* One row and 32 columns; `next` is the second block of 16 columns. */
__attribute__((always_inline)) static inline void
raot_dot_row_vnni(const int32_t bits, raot_dot_scale *scale_of, const int32_t has_own, float *sums,
                  const int8_t *left, const int8_t *block, const int8_t *next, const void *scales,
                  const float *own, const struct raot_dot_groups *sizes)
{
    const __m512i offset = _mm512_set1_epi8((char)0x80);
    const int32_t bytes = sizes->groups * sizes->group * 2 * bits;
    const int8_t *const end = block + bytes;
    __m512 total[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};

    for (int32_t g = 0; g < sizes->groups; g++) {
        __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        __m512i excess = _mm512_setzero_si512();
        for (int32_t k = 0; k < sizes->group; k += 32) {
            const int32_t skipped = end - block <= RAOT_DOT_AHEAD ? bytes : 0;
            const char *const ahead = (const char *)block + RAOT_DOT_AHEAD + skipped;
            RAOT_DOT_UNROLL
            for (int32_t line = 0; line < 64 * bits; line += 64) {
                _mm_prefetch(ahead + line, _MM_HINT_T1);
                _mm_prefetch(ahead + line + bytes, _MM_HINT_T1);
            }
            RAOT_DOT_UNROLL
            for (int32_t part = 0; part < 32; part += 16) {
                const void *const from = left + part;
                const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128(from));
                excess = _mm512_dpbusd_epi32(excess, offset, x);
            }
            RAOT_DOT_UNROLL
            for (int32_t part = 0; part < 32; part += 4) {
                int32_t four;
                RAOT_COPY(&four, left + part, sizeof four);
                const __m512i x = _mm512_set1_epi32(four);
                sum[0] = _mm512_dpbusd_epi32(sum[0], raot_dot_positive(bits, block, part), x);
                sum[1] = _mm512_dpbusd_epi32(sum[1], raot_dot_positive(bits, next, part), x);
            }
            left += 32;
            block += 64 * bits;
            next += 64 * bits;
        }
        excess = raot_dot_all(excess);
        RAOT_DOT_UNROLL
        for (int32_t w = 0; w < 2; w++) {
            const __m512 scale = scale_of(scales, g * RAOT_GROUP_COLUMNS + 16 * w);
            __m512i exact = _mm512_sub_epi32(sum[w], excess);
            if (bits == 4) {
                exact = _mm512_srai_epi32(exact, 4);
            }
            const __m512 by = has_own ? _mm512_mul_ps(scale, _mm512_set1_ps(own[g])) : scale;
            total[w] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(exact), by, total[w]);
        }
    }
    _mm512_storeu_ps(sums, total[0]);
    _mm512_storeu_ps(sums + 16, total[1]);
}

__attribute__((always_inline)) static inline void
raot_dot_rows_vnni(const int32_t bits, raot_dot_scale *scale_of, const int32_t has_own, float *sums,
                   const int8_t *left, const int8_t *weights, const void *scales, const float *own,
                   int32_t own_row, const struct raot_dot_groups *sizes)
{
    const int32_t bytes = sizes->group * 2 * bits;
    const int8_t *block = weights;
    const int8_t *next = sizes->columns > 16 ? block + sizes->groups * bytes : block;

    if (sizes->rows == 1) {
        raot_dot_row_vnni(bits, scale_of, has_own, sums, left, block, next, scales, own, sizes);
        return;
    }
    for (int32_t i = 0; i < sizes->rows * RAOT_GROUP_COLUMNS; i += 16) {
        _mm512_storeu_ps(sums + i, _mm512_setzero_ps());
    }
    for (int32_t g = 0; g < sizes->groups; g++) {
        struct raot_dot_group given = {
            .left = left + g * sizes->group,
            .scales = scales,
            .own = has_own ? own + g : NULL,
            .left_row = sizes->left_row,
            .own_row = own_row,
            .group = sizes->group,
            .g = g,
        };
        float *to = sums;
        int32_t high;
        for (int32_t r = sizes->rows; r > 0; r -= high) {
            if (r >= RAOT_DOT_ROWS) {
                high = RAOT_DOT_ROWS;
                raot_dot_group_vnni(bits, RAOT_DOT_ROWS, scale_of, has_own, to, &given, block,
                                    next);
            } else if (r >= 2) {
                high = 2;
                raot_dot_group_vnni(bits, 2, scale_of, has_own, to, &given, block, next);
            } else {
                high = 1;
                raot_dot_group_vnni(bits, 1, scale_of, has_own, to, &given, block, next);
            }
            given.left += high * sizes->left_row;
            given.own += has_own ? high * own_row : 0;
            to += high * RAOT_GROUP_COLUMNS;
        }
        block += bytes;
        next += bytes;
    }
}

#define RAOT_DOT_FAST_16(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES)                 \
    raot_dot_rows_vnni(BITS, raot_dot_scale_f32, 0, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, \
                       NULL, 0, SIZES)

#endif
