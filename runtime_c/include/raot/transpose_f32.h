/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transpose_f32.h - rows of floats as columns.
 *
 *     to[c * to_step + r] = x[r * row_step + c]
 *
 * for `rows` x `columns` floats. With vectors in blocks of 8x8 (AVX2) or 4x4 (Advanced SIMD), of
 * which the last ones end at the last row and at the last column: some floats are copied twice.
 */
#ifndef RAOT_TRANSPOSE_F32_H
#define RAOT_TRANSPOSE_F32_H

#include <stdint.h>

#include "function.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__) && !defined(RAOT_NO_INTRINSICS)
#define RAOT_TRANSPOSE_NEON 1
#include <arm_neon.h>
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
#elif defined(RAOT_TRANSPOSE_NEON)
#define RAOT_TRANSPOSE_SIDE 4

/* The even columns of two rows, or the odd ones, as pairs. */
RAOT_INLINE static inline float64x2_t raot_transpose_even(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f64_f32(vtrn1q_f32(a, b));
}

RAOT_INLINE static inline float64x2_t raot_transpose_odd(float32x4_t a, float32x4_t b)
{
    return vreinterpretq_f64_f32(vtrn2q_f32(a, b));
}

RAOT_INLINE static inline void raot_transpose_block_f32(float *to, const float *x, int32_t row_step,
                                                        int32_t to_step)
{
    const float32x4_t a = vld1q_f32(x);
    const float32x4_t b = vld1q_f32(x + row_step);
    const float32x4_t c = vld1q_f32(x + 2 * row_step);
    const float32x4_t d = vld1q_f32(x + 3 * row_step);
    const float64x2_t ab_even = raot_transpose_even(a, b);
    const float64x2_t ab_odd = raot_transpose_odd(a, b);
    const float64x2_t cd_even = raot_transpose_even(c, d);
    const float64x2_t cd_odd = raot_transpose_odd(c, d);

    vst1q_f32(to, vreinterpretq_f32_f64(vtrn1q_f64(ab_even, cd_even)));
    vst1q_f32(to + to_step, vreinterpretq_f32_f64(vtrn1q_f64(ab_odd, cd_odd)));
    vst1q_f32(to + 2 * to_step, vreinterpretq_f32_f64(vtrn2q_f64(ab_even, cd_even)));
    vst1q_f32(to + 3 * to_step, vreinterpretq_f32_f64(vtrn2q_f64(ab_odd, cd_odd)));
}
#endif

__attribute__((noinline, unused)) static void raot_transpose_f32(float *to, const float *x,
                                                                 int32_t rows, int32_t columns,
                                                                 int32_t row_step, int32_t to_step)
{
#if defined(RAOT_TRANSPOSE_SIDE)
    const int32_t side = RAOT_TRANSPOSE_SIDE;

    if (rows >= side && columns >= side) {
        /* A line of a cache holds the columns of two blocks. */
        for (int32_t two = 0; two < columns; two += 2 * side) {
            const int32_t end = two + 2 * side < columns ? two + 2 * side : columns;

            for (int32_t r = 0; r < rows; r += side) {
                const int32_t row = r + side > rows ? rows - side : r;

                for (int32_t c = two; c < end; c += side) {
                    const int32_t column = c + side > columns ? columns - side : c;

                    raot_transpose_block_f32(to + column * to_step + row,
                                             x + row * row_step + column, row_step, to_step);
                }
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
