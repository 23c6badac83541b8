/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_half.h - tiles of float contractions whose right operand has half precision.
 *
 * raot_multiply_f16 and raot_multiply_bf16 are raot_multiply_f32 of multiply.h, with elements of
 * `right` as they are stored: IEEE binary16, or the upper halves of floats. They are converted as
 * they are read, which is exact, so sums have the bits of a product with converted elements. One or
 * two rows convert in registers: on Cortex-M one, with Helium and on Zen 4 all. More rows convert
 * some steps to a buffer, once for all of them.
 *
 * raot_widen_f16 and raot_widen_bf16 convert `count` elements.
 */
#ifndef RAOT_MULTIPLY_HALF_H
#define RAOT_MULTIPLY_HALF_H

#include <stdint.h>

#include "convert.h"
#include "multiply.h"
#include "zen4.h"

enum raot_half { RAOT_F16, RAOT_BF16 };

/*
 *     RAOT_HALF_LANES  vectors of converted elements
 *     RAOT_HALF_HIGH   rows that raot_half_registers computes together; it computes one, too
 *     RAOT_HALF_STEPS  steps of the buffer
 */
#if defined(RAOT_MVE_ROWS)
#if defined(RAOT_ASM_INLINE)
#define RAOT_HALF_HIGH 3
#include "multiply_half_mve.h"
#endif
#elif defined(RAOT_LANES)
#define RAOT_HALF_LANES
#if RAOT_LANES == 16
#define RAOT_HALF_SIXTEEN
#endif
#elif defined(RAOT_VFP) && defined(RAOT_ASM_INLINE) && !defined(RAOT_SMALL)
#define RAOT_HALF_HIGH 1
#include "multiply_half_vfp.h"
#endif
#if !defined(RAOT_HALF_STEPS)
#if defined(RAOT_HALF_LANES)
#define RAOT_HALF_STEPS 64
#else
#define RAOT_HALF_STEPS 16
#endif
#endif

#if defined(RAOT_HALF_LANES)
#define RAOT_HALF_ALL (RAOT_TILE_COLUMNS / RAOT_LANES)

/* Elements as floats; `kind` is a constant in every call. */
#if defined(__AVX512F__)
__attribute__((always_inline)) static inline raot_lanes raot_half_load(const enum raot_half kind,
                                                                       const uint16_t *from)
{
    const __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)from);

    if (kind == RAOT_F16) {
        return _mm512_cvtph_ps(bits);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

#elif defined(__AVX2__)
#if defined(__F16C__)
#define RAOT_F16_LANES(bits) _mm256_cvtph_ps(bits)
#else
/* The exponent is biased by 112 less; the product is exact for subnormal numbers, too. */
static inline raot_lanes raot_f16_lanes(__m128i bits)
{
    const __m256i wide = _mm256_cvtepu16_epi32(bits);
    const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi32(0x7fff));
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(wide, magnitude), 16);
    const __m256i special = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7bff));
    const __m256i most = _mm256_and_si256(special, _mm256_set1_epi32(0x7f800000));
    const __m256 scaled = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 13)),
                                        _mm256_set1_ps(5.192296858534828e33f));

    return _mm256_or_ps(scaled, _mm256_castsi256_ps(_mm256_or_si256(sign, most)));
}
#define RAOT_F16_LANES(bits) raot_f16_lanes(bits)
#endif

__attribute__((always_inline)) static inline raot_lanes raot_half_load(const enum raot_half kind,
                                                                       const uint16_t *from)
{
    const __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)from);

    if (kind == RAOT_F16) {
        return RAOT_F16_LANES(bits);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
#endif

/* One step of a panel. */
__attribute__((always_inline)) static inline void
raot_half_step(const enum raot_half kind, const uint16_t *from, raot_lanes converted[RAOT_HALF_ALL])
{
#if defined(__ARM_NEON)
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_HALF_ALL; w += 2) {
        const uint16x8_t bits = vld1q_u16(from + w * RAOT_LANES);
        if (kind == RAOT_F16) {
            const float16x8_t halves = vreinterpretq_f16_u16(bits);
            converted[w] = vcvt_f32_f16(vget_low_f16(halves));
            converted[w + 1] = vcvt_high_f32_f16(halves);
        } else {
            converted[w] = vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), bits));
            converted[w + 1] = vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), bits));
        }
    }
#else
    RAOT_UNROLL
    for (int32_t w = 0; w < RAOT_HALF_ALL; w++) {
        converted[w] = raot_half_load(kind, from + w * RAOT_LANES);
    }
#endif
}

/* All columns of `rows` rows; `kind` and `rows` are constants in every call. */
__attribute__((always_inline)) static inline void
raot_half_rows(const enum raot_half kind, const int32_t rows, const struct raot_level *level,
               const float *left, int32_t left_row, const uint16_t *right, float *sums)
{
    const int32_t left_step = level->left;
    raot_lanes kept[RAOT_HIGH][RAOT_HALF_ALL];

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_HALF_ALL; w++) {
            kept[r][w] = raot_lanes_load(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES]);
        }
    }
    for (int32_t k = 0; k < level->count; k++) {
        const float *again = left;
        raot_lanes converted[RAOT_HALF_ALL];
        RAOT_HIDE_POINTER(again);
        raot_half_step(kind, right, converted);
        RAOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            RAOT_UNROLL
            for (int32_t w = 0; w < RAOT_HALF_ALL; w++) {
                const float by = (w % 2 == 0 ? left : again)[r * left_row];
                kept[r][w] = raot_lanes_fma(by, converted[w], kept[r][w]);
            }
        }
        left += left_step;
        right += level->right;
    }
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < RAOT_HALF_ALL; w++) {
            raot_lanes_store(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES], kept[r][w]);
        }
    }
}

#if RAOT_LANES == 16
/* All columns of any number of rows, in blocks of up to RAOT_HIGH. */
__attribute__((always_inline)) static inline void
raot_half_blocks(const enum raot_half kind, int32_t rows, const struct raot_level *level,
                 const float *left, int32_t left_row, const uint16_t *right, float *sums)
{
    int32_t high;

    for (int32_t r = 0; r < rows; r += high) {
        const float *const from = left + r * left_row;
        float *const to = sums + r * RAOT_TILE_COLUMNS;
        high = raot_block_rows(rows - r);
        RAOT_BY_ROWS(high, raot_half_rows, kind, level, from, left_row, right, to)
    }
}

/* Functions of their own, so that the compiler allots the registers of each separately. */
__attribute__((noinline, unused)) static void
raot_half_blocks_f16(int32_t rows, const struct raot_level *level, const float *left,
                     int32_t left_row, const uint16_t *right, float *sums)
{
    raot_half_blocks(RAOT_F16, rows, level, left, left_row, right, sums);
}

__attribute__((noinline, unused)) static void
raot_half_blocks_bf16(int32_t rows, const struct raot_level *level, const float *left,
                      int32_t left_row, const uint16_t *right, float *sums)
{
    raot_half_blocks(RAOT_BF16, rows, level, left, left_row, right, sums);
}
#endif
#endif

/* Some steps of a panel as floats. */
__attribute__((always_inline)) static inline void
raot_half_strip(const enum raot_half kind, float *strip, int32_t steps, int32_t columns,
                const uint16_t *right, int32_t right_step)
{
    for (int32_t k = 0; k < steps; k++) {
#if defined(RAOT_HALF_LANES)
        if (columns == RAOT_TILE_COLUMNS) {
            raot_lanes converted[RAOT_HALF_ALL];
            raot_half_step(kind, right, converted);
            RAOT_UNROLL
            for (int32_t w = 0; w < RAOT_HALF_ALL; w++) {
                raot_lanes_store(strip + w * RAOT_LANES, converted[w]);
            }
            right += right_step;
            strip += RAOT_TILE_COLUMNS;
            continue;
        }
#endif
#if defined(RAOT_HALF_HIGH)
        int32_t c = raot_half_convert(kind, strip, right, columns);
#else
        int32_t c = 0;
#endif
        for (; c < columns; c++) {
            strip[c] = kind == RAOT_F16 ? raot_f16_to_f32(right[c]) : raot_bf16_to_f32(right[c]);
        }
        right += right_step;
        strip += RAOT_TILE_COLUMNS;
    }
}

/* One loop of steps by the buffer. */
__attribute__((always_inline)) static inline void
raot_half_strips(const enum raot_half kind, int32_t rows, int32_t columns,
                 const struct raot_level *level, const float *left, int32_t left_row,
                 const uint16_t *right, float *sums)
{
    float strip[RAOT_HALF_STEPS * RAOT_TILE_COLUMNS];

    for (int32_t first = 0; first < level->count; first += RAOT_HALF_STEPS) {
        const int32_t rest = level->count - first;
        const int32_t steps = rest < RAOT_HALF_STEPS ? rest : RAOT_HALF_STEPS;
        const struct raot_level levels[3] = {
            {1, 0, 0}, {1, 0, 0}, {steps, level->left, RAOT_TILE_COLUMNS}};
        raot_half_strip(kind, strip, steps, columns, right + first * level->right, level->right);
        raot_multiply_f32(rows, columns, levels, left + first * level->left, left_row, strip, sums);
    }
}

/* One loop of steps. */
__attribute__((always_inline)) static inline void
raot_half_level(const enum raot_half kind, int32_t rows, int32_t columns,
                const struct raot_level *level, const float *left, int32_t left_row,
                const uint16_t *right, float *sums)
{
#if defined(RAOT_HALF_SIXTEEN)
    if ((rows <= 2 || RAOT_ZEN4) && columns == RAOT_TILE_COLUMNS) {
        if (kind == RAOT_F16) {
            raot_half_blocks_f16(rows, level, left, left_row, right, sums);
        } else {
            raot_half_blocks_bf16(rows, level, left, left_row, right, sums);
        }
        return;
    }
#elif defined(RAOT_HALF_LANES)
    if (rows <= 2 && columns == RAOT_TILE_COLUMNS) {
        if (rows == 1) {
            raot_half_rows(kind, 1, level, left, 0, right, sums);
        } else {
            raot_half_rows(kind, 2, level, left, left_row, right, sums);
        }
        return;
    }
#elif defined(RAOT_HALF_HIGH)
    while (rows > 0 && raot_half_fits(kind, rows, level, right)) {
        const int32_t high = rows < RAOT_HALF_HIGH ? (int32_t)1 : RAOT_HALF_HIGH;
        const int32_t done = raot_half_registers(high, columns, level, left, left_row, right, sums);
        if (done < columns) {
            raot_half_strips(kind, high, columns - done, level, left, left_row, right + done,
                             sums + done);
        }
        rows -= high;
        left += high * left_row;
        sums += high * RAOT_TILE_COLUMNS;
    }
    if (rows == 0) {
        return;
    }
#endif
    raot_half_strips(kind, rows, columns, level, left, left_row, right, sums);
}

__attribute__((always_inline)) static inline void
raot_half_tile(const enum raot_half kind, int32_t rows, int32_t columns,
               const struct raot_level *levels, const float *left, int32_t left_row,
               const uint16_t *right, float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            raot_half_level(kind, rows, columns, &levels[2],
                            left + i * levels[0].left + j * levels[1].left, left_row,
                            right + i * levels[0].right + j * levels[1].right, sums);
        }
    }
}

__attribute__((noinline, unused)) static void raot_multiply_f16(int32_t rows, int32_t columns,
                                                                const struct raot_level *levels,
                                                                const float *left, int32_t left_row,
                                                                const uint16_t *right, float *sums)
{
    raot_half_tile(RAOT_F16, rows, columns, levels, left, left_row, right, sums);
}

__attribute__((noinline, unused)) static void
raot_multiply_bf16(int32_t rows, int32_t columns, const struct raot_level *levels,
                   const float *left, int32_t left_row, const uint16_t *right, float *sums)
{
    raot_half_tile(RAOT_BF16, rows, columns, levels, left, left_row, right, sums);
}

#define RAOT_WIDEN(N, KIND)                                                                     \
    __attribute__((noinline, unused)) static void raot_widen_##N(float *out, const uint16_t *x, \
                                                                 int32_t count)                 \
    {                                                                                           \
        const int32_t whole = count / RAOT_TILE_COLUMNS;                                        \
        raot_half_strip(KIND, out, whole, RAOT_TILE_COLUMNS, x, RAOT_TILE_COLUMNS);             \
        for (int32_t i = whole * RAOT_TILE_COLUMNS; i < count; i++) {                           \
            out[i] = raot_##N##_to_f32(x[i]);                                                   \
        }                                                                                       \
    }
RAOT_WIDEN(f16, RAOT_F16)
RAOT_WIDEN(bf16, RAOT_BF16)
#undef RAOT_WIDEN

#endif
