/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_groups_lanes.h - multiply_groups.h for the vectors of multiply.h, of hosts and 64-bit
 * Arm.
 */
#ifndef RAOT_MULTIPLY_GROUPS_LANES_H
#define RAOT_MULTIPLY_GROUPS_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "copy.h"

/* Signed bytes as floats: RAOT_LANES of them, or the low and the high halves of so many. */
#if defined(__AVX512F__)
static inline raot_lanes raot_lanes_s8(const int8_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}

static inline raot_lanes raot_lanes_low(const uint8_t *from)
{
    const __m512i bytes = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(bytes, 28), 28));
}

static inline raot_lanes raot_lanes_high(const uint8_t *from)
{
    const __m512i bytes = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(bytes, 4));
}

static inline raot_lanes raot_lanes_fma_lanes(raot_lanes a, raot_lanes b, raot_lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#elif defined(__AVX2__)
static inline raot_lanes raot_lanes_s8(const int8_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}

static inline raot_lanes raot_lanes_low(const uint8_t *from)
{
    const __m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bytes, 28), 28));
}

static inline raot_lanes raot_lanes_high(const uint8_t *from)
{
    const __m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(bytes, 4));
}

static inline raot_lanes raot_lanes_fma_lanes(raot_lanes a, raot_lanes b, raot_lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#else
static inline raot_lanes raot_lanes_fma_lanes(raot_lanes a, raot_lanes b, raot_lanes c)
{
    return vfmaq_f32(c, a, b);
}
#endif

#define RAOT_ALL (RAOT_TILE_COLUMNS / RAOT_LANES)
#define RAOT_STRIP 32
#define RAOT_STRIP_HIGH 6

#if defined(__ARM_NEON)
/* Sixteen signed bytes as floats. */
static inline void raot_lanes_bytes(int8x16_t bytes, raot_lanes *decoded)
{
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
    const int16x8_t high = vmovl_high_s8(bytes);
    decoded[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    decoded[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    decoded[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    decoded[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}
#endif

/* One step of weights as floats; `bits` is a constant in every call. */
__attribute__((always_inline)) static inline void
raot_decode_step(const int32_t bits, const void *weights, int32_t k, raot_lanes decoded[RAOT_ALL])
{
#if defined(__ARM_NEON)
    if (bits == 8) {
        const int8_t *const from = (const int8_t *)weights + k * RAOT_TILE_COLUMNS;
        raot_lanes_bytes(vld1q_s8(from), decoded);
        raot_lanes_bytes(vld1q_s8(from + 16), decoded + 4);
    } else {
        const int8x16_t both = vld1q_s8((const int8_t *)weights + k * RAOT_Q4_BYTES);
        raot_lanes_bytes(vshrq_n_s8(vshlq_n_s8(both, 4), 4), decoded);
        raot_lanes_bytes(vshrq_n_s8(both, 4), decoded + 4);
    }
#else
    const int8_t *const bytes = (const int8_t *)weights + k * RAOT_TILE_COLUMNS;
    const uint8_t *const halves = (const uint8_t *)weights + k * RAOT_Q4_BYTES;
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_ALL; w++) {
        const int32_t column = w * RAOT_LANES;
        if (bits == 8) {
            decoded[w] = raot_lanes_s8(bytes + column);
        } else {
            decoded[w] = column < RAOT_Q4_BYTES ? raot_lanes_low(halves + column)
                                                : raot_lanes_high(halves + column - RAOT_Q4_BYTES);
        }
    }
#endif
}

/* One row: weights are decoded in registers. */
__attribute__((always_inline)) static inline void
raot_groups_row(const int32_t bits, float *sums, const float *left, const void *weights,
                const float *scales, const struct raot_groups *sizes)
{
    raot_lanes total[RAOT_ALL];
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_ALL; w++) {
        total[w] = (raot_lanes){0};
    }
    for (int32_t k = 0; k < sizes->depth; scales += RAOT_TILE_COLUMNS) {
        const int32_t last = sizes->depth - k < sizes->group ? sizes->depth : k + sizes->group;
        raot_lanes sum[RAOT_ALL];
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_ALL; w++) {
            sum[w] = (raot_lanes){0};
        }
        for (; k < last; k++) {
            raot_lanes decoded[RAOT_ALL];
            raot_decode_step(bits, weights, k, decoded);
            RAOT_UNROLL
            for (int32_t w = 0; w < RAOT_ALL; w++) {
                sum[w] = raot_lanes_fma(left[k], decoded[w], sum[w]);
            }
        }
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_ALL; w++) {
            const raot_lanes scale = raot_lanes_load(scales + w * RAOT_LANES);
            total[w] = raot_lanes_fma_lanes(sum[w], scale, total[w]);
        }
    }
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_ALL; w++) {
        raot_lanes_store(sums + w * RAOT_LANES, total[w]);
    }
}

#if RAOT_LANES * RAOT_WIDE == RAOT_TILE_COLUMNS
/* Some rows and all columns, with the sums of groups and of all in registers. */
__attribute__((always_inline)) static inline void
raot_groups_high(const int32_t bits, const int32_t rows, float *sums, const float *left,
                 const void *weights, const float *scales, const struct raot_groups *sizes)
{
    raot_lanes total[RAOT_HIGH][RAOT_WIDE];

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_WIDE; w++) {
            total[r][w] = (raot_lanes){0};
        }
    }
    for (int32_t k = 0; k < sizes->depth; scales += RAOT_TILE_COLUMNS) {
        const int32_t last = sizes->depth - k < sizes->group ? sizes->depth : k + sizes->group;
        raot_lanes sum[RAOT_HIGH][RAOT_WIDE];
        RAOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            RAOT_UNROLL
            for (int32_t w = 0; w < RAOT_WIDE; w++) {
                sum[r][w] = (raot_lanes){0};
            }
        }
        for (; k < last; k++) {
            raot_lanes decoded[RAOT_ALL];
            raot_decode_step(bits, weights, k, decoded);
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                const float by = left[r * sizes->left_row + k];
                RAOT_UNROLL
                for (int32_t w = 0; w < RAOT_WIDE; w++) {
                    sum[r][w] = raot_lanes_fma(by, decoded[w], sum[r][w]);
                }
            }
        }
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_WIDE; w++) {
            const raot_lanes scale = raot_lanes_load(scales + w * RAOT_LANES);
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                total[r][w] = raot_lanes_fma_lanes(sum[r][w], scale, total[r][w]);
            }
        }
    }
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_WIDE; w++) {
            raot_lanes_store(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES], total[r][w]);
        }
    }
}

/* Several rows: weights are decoded in registers for up to six rows. */
__attribute__((always_inline)) static inline void
raot_groups_rows(const int32_t bits, float *sums, const float *left, const void *weights,
                 const float *scales, const struct raot_groups *sizes)
{
    int32_t r = 0;
    while (r < sizes->rows) {
        float *const to = sums + r * RAOT_TILE_COLUMNS;
        const float *const from = left + r * sizes->left_row;
        const int32_t rest = sizes->rows - r;
        if (rest >= 6) {
            raot_groups_high(bits, 6, to, from, weights, scales, sizes);
            r += 6;
        } else if (rest >= 4) {
            raot_groups_high(bits, 4, to, from, weights, scales, sizes);
            r += 4;
        } else if (rest >= 2) {
            raot_groups_high(bits, 2, to, from, weights, scales, sizes);
            r += 2;
        } else {
            raot_groups_high(bits, 1, to, from, weights, scales, sizes);
            r += 1;
        }
    }
}
#else
/* `steps` of a strip for some rows and RAOT_WIDE vectors of columns, added to partial sums. The
 * last strip of a group adds the group to the totals. */
__attribute__((always_inline)) static inline void
raot_strip_rows(const int32_t rows, int32_t steps, const float *left, int32_t left_row,
                const float *strip, float *partial, const float *scale, float *total)
{
    const int32_t wide = RAOT_WIDE;
    const int32_t some = 0;
    raot_lanes kept[RAOT_HIGH][RAOT_TILE_COLUMNS / RAOT_LANES];

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            kept[r][w] = partial == NULL
                             ? (raot_lanes){0}
                             : raot_lanes_load(&partial[r * RAOT_TILE_COLUMNS + w * RAOT_LANES]);
        }
    }
    for (int32_t k = 0; k < steps; k++) {
        RAOT_STEP(strip, raot_lanes_fma(left[r * left_row], factor[w], kept[r][w]));
        strip += RAOT_TILE_COLUMNS;
        left++;
    }
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            float *const to = &total[r * RAOT_TILE_COLUMNS + w * RAOT_LANES];
            if (scale == NULL) {
                raot_lanes_store(to, kept[r][w]);
            } else {
                const raot_lanes by = raot_lanes_load(scale + w * RAOT_LANES);
                raot_lanes_store(to, raot_lanes_fma_lanes(kept[r][w], by, raot_lanes_load(to)));
            }
        }
    }
}

__attribute__((always_inline)) static inline void
raot_strip_tile(int32_t rows, int32_t steps, const float *left, int32_t left_row,
                const float *strip, float *partial, const float *scale, float *total)
{
    switch (rows) {
    case 1:
        raot_strip_rows(1, steps, left, left_row, strip, partial, scale, total);
        break;
    case 2:
        raot_strip_rows(2, steps, left, left_row, strip, partial, scale, total);
        break;
    case 3:
        raot_strip_rows(3, steps, left, left_row, strip, partial, scale, total);
        break;
    case 4:
        raot_strip_rows(4, steps, left, left_row, strip, partial, scale, total);
        break;
    case 5:
        raot_strip_rows(5, steps, left, left_row, strip, partial, scale, total);
        break;
    default:
        raot_strip_rows(RAOT_STRIP_HIGH, steps, left, left_row, strip, partial, scale, total);
        break;
    }
}

/* Several rows: strips of weights are decoded once for all of them. */
__attribute__((always_inline)) static inline void
raot_groups_rows(const int32_t bits, float *sums, const float *left, const void *weights,
                 const float *scales, const struct raot_groups *sizes)
{
    float strip[RAOT_STRIP * RAOT_TILE_COLUMNS];
    float partial[RAOT_TILE_ROWS * RAOT_TILE_COLUMNS];

    for (int32_t i = 0; i < sizes->rows * RAOT_TILE_COLUMNS; i += RAOT_LANES) {
        raot_lanes_store(&sums[i], (raot_lanes){0});
    }
    for (int32_t first = 0; first < sizes->depth; first += sizes->group) {
        const int32_t rest = sizes->depth - first;
        const int32_t group = rest < sizes->group ? rest : sizes->group;
        const float *const scale = scales + first / sizes->group * RAOT_TILE_COLUMNS;

        for (int32_t begin = 0; begin < group; begin += RAOT_STRIP) {
            const int32_t steps = group - begin < RAOT_STRIP ? group - begin : RAOT_STRIP;
            const int32_t is_last = begin + steps == group;
            int32_t high;

            for (int32_t k = 0; k < steps; k++) {
                raot_lanes decoded[RAOT_ALL];
                raot_decode_step(bits, weights, first + begin + k, decoded);
                RAOT_UNROLL
                for (int32_t w = 0; w < RAOT_ALL; w++) {
                    raot_lanes_store(&strip[k * RAOT_TILE_COLUMNS + w * RAOT_LANES], decoded[w]);
                }
            }
            for (int32_t r = 0; r < sizes->rows; r += high) {
                const float *const from = left + r * sizes->left_row + first + begin;
                high = sizes->rows - r < RAOT_STRIP_HIGH ? sizes->rows - r : RAOT_STRIP_HIGH;
                for (int32_t c = 0; c < sizes->columns; c += RAOT_WIDE * RAOT_LANES) {
                    const int32_t at = r * RAOT_TILE_COLUMNS + c;
                    float *const started = begin == 0 ? NULL : &partial[at];
                    if (is_last != 0) {
                        raot_strip_tile(high, steps, from, sizes->left_row, strip + c, started,
                                        scale + c, &sums[at]);
                    } else {
                        raot_strip_tile(high, steps, from, sizes->left_row, strip + c, started,
                                        NULL, &partial[at]);
                    }
                }
            }
        }
    }
}
#endif

#endif
