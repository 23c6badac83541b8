/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_blocks_lanes.h - dot_blocks.h for hosts and 64-bit Arm, with scales of half precision.
 */
#ifndef RAOT_DOT_BLOCKS_LANES_H
#define RAOT_DOT_BLOCKS_LANES_H

#include <stdint.h>

#include "dot_groups.h"
#include "multiply_half.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
__attribute__((always_inline)) static inline __m512 raot_blocks_scale(const void *scales,
                                                                      int32_t at)
{
    return raot_half_load(RAOT_F16, (const uint16_t *)scales + at);
}

__attribute__((always_inline)) static inline void
raot_blocks_lanes(const int32_t bits, float *sums, const int8_t *left, const int8_t *weights,
                  const uint16_t *scales, const float *own, const struct raot_dot_blocks *sizes)
{
    const struct raot_dot_groups plain = {sizes->rows, sizes->columns, sizes->groups, sizes->group,
                                          sizes->left_row};

    raot_dot_rows_vnni(bits, raot_blocks_scale, 1, sums, left, weights, scales, own, sizes->own_row,
                       &plain);
}
#elif defined(__AVX2__)
__attribute__((always_inline)) static inline __m256 raot_blocks_scale(const void *scales,
                                                                      int32_t at)
{
#if RAOT_LANES == 16
    const __m128i bits = _mm_loadu_si128((const __m128i *)((const uint16_t *)scales + at));

    return _mm512_castps512_ps256(_mm512_cvtph_ps(_mm256_castsi128_si256(bits)));
#else
    return raot_half_load(RAOT_F16, (const uint16_t *)scales + at);
#endif
}

__attribute__((always_inline)) static inline void
raot_blocks_lanes(const int32_t bits, float *sums, const int8_t *left, const int8_t *weights,
                  const uint16_t *scales, const float *own, const struct raot_dot_blocks *sizes)
{
    const struct raot_dot_given given = {
        .scales = scales,
        .own = own,
        .own_row = sizes->own_row,
        .groups = sizes->groups,
        .group = sizes->group,
        .left_row = sizes->left_row,
    };

    raot_dot_rows_avx2(bits, raot_blocks_scale, 1, sums, left, weights, sizes->rows, sizes->columns,
                       &given);
}
#elif defined(__ARM_NEON) && defined(__aarch64__)
__attribute__((always_inline)) static inline float32x4_t raot_blocks_scale(const void *scales,
                                                                           int32_t at)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)scales + at)));
}

__attribute__((always_inline)) static inline void
raot_blocks_lanes(const int32_t bits, float *sums, const int8_t *left, const int8_t *weights,
                  const uint16_t *scales, const float *own, const struct raot_dot_blocks *sizes)
{
    const struct raot_dot_groups plain = {sizes->rows, sizes->columns, sizes->groups, sizes->group,
                                          sizes->left_row};

    raot_dot_rows_neon(bits, raot_blocks_scale, 1, sums, left, weights, scales, own, sizes->own_row,
                       &plain);
}
#endif

#define RAOT_BLOCKS_FAST_16(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, OWN, SIZES) \
    raot_blocks_lanes(BITS, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, OWN, SIZES)

#endif
