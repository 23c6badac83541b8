/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transpose_f32.h - rows of floats as columns.
 *
 *     to[c * to_step + r] = x[r * row_step + c]
 *
 * for `rows` x `columns` floats. With vectors in blocks of 8x8, of which the last ones end
 * at the last row and at the last column: some floats are copied twice.
 */
#ifndef RAOT_TRANSPOSE_F32_H
#define RAOT_TRANSPOSE_F32_H

#include <stdint.h>

#include "function.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX2__)
#define RAOT_TRANSPOSE_SIDE 8

/* Four floats of row r, and of row r + 4. */
RAOT_INLINE static inline __m256 raot_transpose_two(const float *x, int32_t row_step)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)),
                                _mm_loadu_ps(x + 4 * row_step), 1);
}

RAOT_INLINE static inline void raot_transpose_block_f32(float *to, const float *x, int32_t row_step,
                                                        int32_t to_step)
{
    for (int32_t half = 0; half < 8; half += 4) {
        const __m256 a = raot_transpose_two(x + half, row_step);
        const __m256 b = raot_transpose_two(x + row_step + half, row_step);
        const __m256 c = raot_transpose_two(x + 2 * row_step + half, row_step);
        const __m256 d = raot_transpose_two(x + 3 * row_step + half, row_step);
        const __m256 ab_low = _mm256_unpacklo_ps(a, b);
        const __m256 ab_high = _mm256_unpackhi_ps(a, b);
        const __m256 cd_low = _mm256_unpacklo_ps(c, d);
        const __m256 cd_high = _mm256_unpackhi_ps(c, d);
        float *const from = to + half * to_step;

        _mm256_storeu_ps(from, _mm256_shuffle_ps(ab_low, cd_low, 0x44));
        _mm256_storeu_ps(from + to_step, _mm256_shuffle_ps(ab_low, cd_low, 0xEE));
        _mm256_storeu_ps(from + 2 * to_step, _mm256_shuffle_ps(ab_high, cd_high, 0x44));
        _mm256_storeu_ps(from + 3 * to_step, _mm256_shuffle_ps(ab_high, cd_high, 0xEE));
    }
}
#endif

__attribute__((noinline, unused)) static void raot_transpose_f32(float *to, const float *x,
                                                                 int32_t rows, int32_t columns,
                                                                 int32_t row_step, int32_t to_step)
{
#if defined(RAOT_TRANSPOSE_SIDE)
    const int32_t side = RAOT_TRANSPOSE_SIDE;

    if (rows >= side && columns >= side) {
        for (int32_t c = 0; c < columns; c += side) {
            const int32_t column = c + side > columns ? columns - side : c;

            for (int32_t r = 0; r < rows; r += side) {
                const int32_t row = r + side > rows ? rows - side : r;

                raot_transpose_block_f32(to + column * to_step + row, x + row * row_step + column,
                                         row_step, to_step);
            }
        }
        return;
    }
#endif
    for (int32_t c = 0; c < columns; c++) {
        for (int32_t r = 0; r < rows; r++) {
            to[c * to_step + r] = x[r * row_step + c];
        }
    }
}

#endif
