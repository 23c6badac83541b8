/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_avx2.h - dot_groups.h by VPMADDUBSW, for hosts with AVX2.
 *
 * The instruction multiplies unsigned bytes by signed ones and adds pairs in 16 bits: the magnitude
 * of a weight is multiplied by the left operand with the weight's sign, 2 * 128 * 127 at most.
 */
#ifndef RAOT_DOT_GROUPS_AVX2_H
#define RAOT_DOT_GROUPS_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "copy.h"

/* Weights of eight columns and four steps, from step k on. */
__attribute__((always_inline)) static inline __m256i
raot_dot_weights(const int32_t bits, const int8_t *block, int32_t k)
{
    if (bits == 8) {
        return _mm256_loadu_si256((const __m256i *)(block + k * 16));
    }
    const __m256i both = _mm256_loadu_si256((const __m256i *)(block + k / 8 * 64));
    const __m256i low =
        _mm256_and_si256(k % 8 == 0 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
    const __m256i sign = _mm256_set1_epi8(8);
    return _mm256_sub_epi8(_mm256_xor_si256(low, sign), sign);
}

/* Some rows and eight columns. */
__attribute__((always_inline)) static inline void
raot_dot_block_avx2(const int32_t bits, const int32_t rows, float *sums, const int8_t *left,
                    const int8_t *block, const float *scales, const struct raot_dot_groups *sizes)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 total[4];

    for (int32_t r = 0; r < rows; r++) {
        total[r] = _mm256_setzero_ps();
    }
    for (int32_t g = 0; g < sizes->groups; g++) {
        __m256i sum[4];
        for (int32_t r = 0; r < rows; r++) {
            sum[r] = _mm256_setzero_si256();
        }
        for (int32_t k = 0; k < sizes->group; k += 4) {
            const __m256i weight = raot_dot_weights(bits, block, k);
            const __m256i magnitude = _mm256_abs_epi8(weight);
            for (int32_t r = 0; r < rows; r++) {
                int32_t four;
                RAOT_COPY(&four, left + r * sizes->left_row + k, sizeof four);
                const __m256i x = _mm256_sign_epi8(_mm256_set1_epi32(four), weight);
                const __m256i pairs = _mm256_maddubs_epi16(magnitude, x);
                sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs, ones));
            }
        }
        for (int32_t r = 0; r < rows; r++) {
            total[r] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), _mm256_loadu_ps(scales), total[r]);
        }
        block += sizes->group * 2 * bits;
        left += sizes->group;
        scales += RAOT_GROUP_COLUMNS;
    }
    for (int32_t r = 0; r < rows; r++) {
        _mm256_storeu_ps(sums + r * RAOT_GROUP_COLUMNS, total[r]);
    }
}

__attribute__((always_inline)) static inline void
raot_dot_avx2(const int32_t bits, float *sums, const int8_t *left, const int8_t *weights,
              const float *scales, const struct raot_dot_groups *sizes)
{
    const int32_t bytes = sizes->groups * sizes->group * 2 * bits;

    for (int32_t c = 0; c < sizes->columns; c += 8) {
        const int8_t *const block = weights + c / 16 * bytes + c % 16 * 4;
        int32_t r = 0;
        for (; r + 4 <= sizes->rows; r += 4) {
            raot_dot_block_avx2(bits, 4, sums + r * RAOT_GROUP_COLUMNS + c,
                                left + r * sizes->left_row, block, scales + c, sizes);
        }
        for (; r < sizes->rows; r++) {
            raot_dot_block_avx2(bits, 1, sums + r * RAOT_GROUP_COLUMNS + c,
                                left + r * sizes->left_row, block, scales + c, sizes);
        }
    }
}

#define RAOT_DOT_FAST_16(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES) \
    raot_dot_avx2(BITS, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, SIZES)

#endif
