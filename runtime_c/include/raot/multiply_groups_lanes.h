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

/* The numbers of the lowest four bits: VPERMPS ignores the others. */
static inline raot_lanes raot_lanes_nibbles(__m512i indices)
{
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    return _mm512_permutexvar_ps(indices, numbers);
}

static inline raot_lanes raot_lanes_low(const uint8_t *from)
{
    return raot_lanes_nibbles(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)));
}

static inline raot_lanes raot_lanes_high(const uint8_t *from)
{
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
    return raot_lanes_nibbles(_mm512_srli_epi32(bytes, 4));
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
#define RAOT_STRIP_HIGH 6
/*
 *     RAOT_STRIP       steps of a strip of decoded weights
 *     RAOT_GROUP_ROWS  rows that a strip is decoded for
 *     RAOT_FETCH       the cache is asked for packed weights so many steps before they are decoded
 */
#if !defined(RAOT_STRIP)
#define RAOT_STRIP 128
#define RAOT_GROUP_ROWS 96
#endif
#define RAOT_FETCH 64

#if defined(__clang__)
#define RAOT_UNROLL_STEPS
#else
/* Without it, GCC 12 keeps sums in memory. */
#define RAOT_UNROLL_STEPS _Pragma("GCC unroll 4")
#endif

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

/*
 * RAOT_WIDE vectors of one step as floats, the first of them at column `half`, which is 0 or
 * RAOT_Q4_BYTES for weights of 4 bits. `bits` and `half` are constants in every call.
 */
__attribute__((always_inline)) static inline void raot_decode_wide(const int32_t bits,
                                                                   const int32_t half,
                                                                   const uint8_t *packed,
                                                                   raot_lanes decoded[RAOT_WIDE])
{
#if defined(__ARM_NEON)
    const int8x8_t bytes = vld1_s8((const int8_t *)packed);
    const int8x8_t low = vshr_n_s8(vshl_n_s8(bytes, 4), 4);
    const int8x8_t high = vshr_n_s8(bytes, 4);
    const int16x8_t weights = vmovl_s8(bits == 8 ? bytes : half == 0 ? low : high);
    decoded[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(weights)));
    decoded[1] = vcvtq_f32_s32(vmovl_high_s16(weights));
#else
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_WIDE; w++) {
        const int32_t column = half + w * RAOT_LANES;
        if (bits == 8) {
            decoded[w] = raot_lanes_s8((const int8_t *)packed + w * RAOT_LANES);
        } else {
            decoded[w] = column < RAOT_Q4_BYTES ? raot_lanes_low(packed + column)
                                                : raot_lanes_high(packed + column - RAOT_Q4_BYTES);
        }
    }
#endif
}

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

#if RAOT_LANES == 16
#include "multiply_groups_avx512.h"
#else
/* One row: weights are decoded in registers. */
__attribute__((always_inline)) static inline void
raot_groups_row(const int32_t bits, float *sums, const float *left, const void *weights,
                const float *scales, const struct raot_groups *sizes)
{
    raot_lanes total[RAOT_ALL];
    int32_t k = 0;
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_ALL; w++) {
        total[w] = (raot_lanes){0};
    }
    while (k < sizes->depth) {
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
        scales += RAOT_TILE_COLUMNS;
    }
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_ALL; w++) {
        raot_lanes_store(sums + w * RAOT_LANES, total[w]);
    }
}
#endif

/*
 * A strip of decoded weights: some of the columns, and steps of one group or of several whole ones.
 * The first tile of rows decodes it from `packed`, RAOT_FETCH steps behind its prefetch. `kept` has
 * the sums of a group that began in the strip before, or zeros. Where the strip ends a group
 * (`ends`), all its groups are added to `sums`.
 */
struct raot_strip {
    float *weights;
    const uint8_t *packed;
    const float *scales;
    int32_t steps;
    int32_t group;
    int32_t left_row;
    int32_t ends;
};

/* One step of the first tile: weights are decoded, multiplied and stored. */
#define RAOT_DECODE_STEP()                                                                     \
    do {                                                                                       \
        const uintptr_t next = (uintptr_t)packed + RAOT_FETCH * (uintptr_t)bytes;              \
        raot_lanes factor[RAOT_WIDE];                                                          \
        __builtin_prefetch((const void *)next);                                                \
        raot_decode_wide(bits, half, packed, factor);                                          \
        RAOT_UNROLL                                                                            \
        for (int32_t w = 0; w < RAOT_WIDE; w++) {                                              \
            raot_lanes_store(&weights[w * RAOT_LANES], factor[w]);                             \
        }                                                                                      \
        RAOT_UNROLL                                                                            \
        for (int32_t r = 0; r < rows; r++) {                                                   \
            RAOT_UNROLL                                                                        \
            for (int32_t w = 0; w < RAOT_WIDE; w++) {                                          \
                kept[r][w] = raot_lanes_fma(left[r * strip->left_row], factor[w], kept[r][w]); \
            }                                                                                  \
        }                                                                                      \
        packed += bytes;                                                                       \
    } while (0)

/* `bits`, `half` and `rows` are constants in every call; without `bits`, weights are decoded. */
__attribute__((always_inline)) static inline void
raot_strip_rows(const int32_t bits, const int32_t half, const int32_t rows,
                const struct raot_strip *strip, const float *left, float *partial, float *sums)
{
    const int32_t wide = RAOT_WIDE;
    const int32_t some = 0;
    const int32_t bytes = bits == 8 ? (int32_t)RAOT_TILE_COLUMNS : RAOT_Q4_BYTES;
    const uint8_t *packed = strip->packed;
    float *weights = strip->weights;
    const float *scales = strip->scales;
    const raot_lanes zeros = {0};
    raot_lanes kept[RAOT_STRIP_HIGH][RAOT_TILE_COLUMNS / RAOT_LANES];
    raot_lanes total[RAOT_STRIP_HIGH][RAOT_TILE_COLUMNS / RAOT_LANES];

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            total[r][w] = raot_lanes_load(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES]);
            kept[r][w] = partial == NULL
                             ? zeros
                             : raot_lanes_load(&partial[r * RAOT_TILE_COLUMNS + w * RAOT_LANES]);
        }
    }
    for (int32_t first = 0; first < strip->steps; first += strip->group) {
        const int32_t rest = strip->steps - first;
        int32_t k = rest < strip->group ? rest : strip->group;
#if defined(RAOT_STEPS)
        for (; bits == 0 && k >= RAOT_STEPS; k -= RAOT_STEPS) {
            raot_steps by[RAOT_STRIP_HIGH];
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                by[r] = raot_steps_load(&left[r * strip->left_row]);
            }
            RAOT_UNROLL
            for (int32_t s = 0; s < RAOT_STEPS; s++) {
                RAOT_STEP(weights, raot_lanes_step(by[r], s, factor[w], kept[r][w]));
                weights += RAOT_TILE_COLUMNS;
                RAOT_APART();
            }
            left += RAOT_STEPS;
        }
#endif
        RAOT_UNROLL_STEPS
        for (; k > 0; k--) {
            if (bits != 0) {
                RAOT_DECODE_STEP();
            } else {
                RAOT_STEP(weights,
                          raot_lanes_fma(left[r * strip->left_row], factor[w], kept[r][w]));
            }
            weights += RAOT_TILE_COLUMNS;
            left++;
        }
        if (strip->ends == 0) {
            break;
        }
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            const raot_lanes scale = raot_lanes_load(scales + w * RAOT_LANES);
            RAOT_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                total[r][w] = raot_lanes_fma_lanes(kept[r][w], scale, total[r][w]);
                kept[r][w] = (raot_lanes){0};
            }
        }
        scales += RAOT_TILE_COLUMNS;
    }
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            raot_lanes_store(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES], total[r][w]);
            if (partial != NULL) {
                raot_lanes_store(&partial[r * RAOT_TILE_COLUMNS + w * RAOT_LANES], kept[r][w]);
            }
        }
    }
}

__attribute__((always_inline)) static inline void raot_strip_tile(int32_t rows,
                                                                  const struct raot_strip *strip,
                                                                  const float *left, float *partial,
                                                                  float *sums)
{
    switch (rows) {
    case 1:
        raot_strip_rows(0, 0, 1, strip, left, partial, sums);
        break;
    case 2:
        raot_strip_rows(0, 0, 2, strip, left, partial, sums);
        break;
    case 3:
        raot_strip_rows(0, 0, 3, strip, left, partial, sums);
        break;
    case 4:
        raot_strip_rows(0, 0, 4, strip, left, partial, sums);
        break;
    case 5:
        raot_strip_rows(0, 0, 5, strip, left, partial, sums);
        break;
    default:
        raot_strip_rows(0, 0, RAOT_STRIP_HIGH, strip, left, partial, sums);
        break;
    }
}

/* The first tile of a strip that starts at column `c`, whose weights it decodes. */
__attribute__((always_inline)) static inline void raot_strip_first(const int32_t bits, int32_t c,
                                                                   const struct raot_strip *strip,
                                                                   const float *left,
                                                                   float *partial, float *sums)
{
    if (bits == 8 || c < RAOT_Q4_BYTES) {
        raot_strip_rows(bits, 0, RAOT_STRIP_HIGH, strip, left, partial, sums);
    } else {
        raot_strip_rows(bits, RAOT_Q4_BYTES, RAOT_STRIP_HIGH, strip, left, partial, sums);
    }
}

/* A strip of weights for fewer rows than a tile has. */
__attribute__((always_inline)) static inline void raot_decode_strip(const int32_t bits,
                                                                    const void *weights,
                                                                    int32_t first, int32_t steps,
                                                                    float *strip)
{
    const int32_t bytes = bits == 8 ? (int32_t)RAOT_TILE_COLUMNS : RAOT_Q4_BYTES;

    for (int32_t k = 0; k < steps; k++) {
        raot_lanes decoded[RAOT_ALL];
        raot_decode_step(bits, weights, first + k, decoded);
        __builtin_prefetch((const void *)((uintptr_t)weights +
                                          (uintptr_t)(first + k + RAOT_FETCH) * (uintptr_t)bytes));
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_ALL; w++) {
            raot_lanes_store(&strip[k * RAOT_TILE_COLUMNS + w * RAOT_LANES], decoded[w]);
        }
    }
}

/* Up to RAOT_GROUP_ROWS rows: strips of weights are decoded once for all of them. */
__attribute__((always_inline)) static inline void
raot_groups_strips(const int32_t bits, int32_t rows, float *sums, const float *left,
                   const void *weights, const float *scales, const struct raot_groups *sizes)
{
    const int32_t group = sizes->group;
    const int32_t bytes = bits == 8 ? (int32_t)RAOT_TILE_COLUMNS : RAOT_Q4_BYTES;
    const int32_t most = group < RAOT_STRIP ? RAOT_STRIP / group * group : RAOT_STRIP;
    float decoded_strip[RAOT_STRIP * RAOT_TILE_COLUMNS];
    float partial[RAOT_GROUP_ROWS * RAOT_TILE_COLUMNS];
    int32_t first = 0;

    for (int32_t i = 0; i < rows * RAOT_TILE_COLUMNS; i += RAOT_LANES) {
        raot_lanes_store(&sums[i], (raot_lanes){0});
        raot_lanes_store(&partial[i], (raot_lanes){0});
    }
    while (first < sizes->depth) {
        const int32_t begun = first % group;
        const int32_t rest = sizes->depth - first;
        const int32_t limit = group > most && group - begun < most ? group - begun : most;
        const int32_t steps = rest < limit ? rest : limit;
        const int32_t ends = steps == rest || group <= most || begun + steps == group;
        int32_t high;

        if (rows < RAOT_STRIP_HIGH) {
            raot_decode_strip(bits, weights, first, steps, decoded_strip);
        }
        for (int32_t r = 0; r < rows; r += high) {
            const float *const from = left + r * sizes->left_row + first;
            high = rows - r < RAOT_STRIP_HIGH ? rows - r : RAOT_STRIP_HIGH;
            for (int32_t c = 0; c < sizes->columns; c += RAOT_WIDE * RAOT_LANES) {
                const int32_t at = r * RAOT_TILE_COLUMNS + c;
                const struct raot_strip strip = {
                    .weights = decoded_strip + c,
                    .packed =
                        (const uint8_t *)weights + first * bytes + (bits == 8 ? c : c % bytes),
                    .scales = scales + first / group * RAOT_TILE_COLUMNS + c,
                    .steps = steps,
                    .group = group,
                    .left_row = sizes->left_row,
                    .ends = ends,
                };
                float *const begun_sums = group > most ? &partial[at] : NULL;
                if (r == 0 && high == RAOT_STRIP_HIGH) {
                    raot_strip_first(bits, c, &strip, from, begun_sums, &sums[at]);
                } else {
                    raot_strip_tile(high, &strip, from, begun_sums, &sums[at]);
                }
            }
        }
        first += steps;
    }
}

/* Several rows in strips. Functions of their own, so that the compiler allots the registers of each
 * separately. */
__attribute__((always_inline)) static inline void
raot_groups_in_strips(const int32_t bits, float *sums, const float *left, const void *weights,
                      const float *scales, const struct raot_groups *sizes)
{
    for (int32_t r = 0; r < sizes->rows; r += RAOT_GROUP_ROWS) {
        const int32_t rest = sizes->rows - r;
        raot_groups_strips(bits, rest < RAOT_GROUP_ROWS ? rest : RAOT_GROUP_ROWS,
                           sums + r * RAOT_TILE_COLUMNS, left + r * sizes->left_row, weights,
                           scales, sizes);
    }
}

__attribute__((noinline, unused)) static void
raot_groups_in_strips_q8(float *sums, const float *left, const void *weights, const float *scales,
                         const struct raot_groups *sizes)
{
    raot_groups_in_strips(8, sums, left, weights, scales, sizes);
}

__attribute__((noinline, unused)) static void
raot_groups_in_strips_q4(float *sums, const float *left, const void *weights, const float *scales,
                         const struct raot_groups *sizes)
{
    raot_groups_in_strips(4, sums, left, weights, scales, sizes);
}

/* `bits` is a constant in every call. */
__attribute__((always_inline)) static inline void
raot_groups_lanes(const int32_t bits, float *sums, const float *left, const void *weights,
                  const float *scales, const struct raot_groups *sizes)
{
#if RAOT_LANES == 16
    if (sizes->rows <= RAOT_HIGH || RAOT_ZEN4) {
        if (bits == 8) {
            raot_groups_unpacked_q8(sums, left, weights, scales, sizes);
        } else {
            raot_groups_unpacked_q4(sums, left, weights, scales, sizes);
        }
        return;
    }
#else
    if (sizes->rows == 1) {
        raot_groups_row(bits, sums, left, weights, scales, sizes);
        return;
    }
#endif
    if (bits == 8) {
        raot_groups_in_strips_q8(sums, left, weights, scales, sizes);
    } else {
        raot_groups_in_strips_q4(sums, left, weights, scales, sizes);
    }
}

#endif
