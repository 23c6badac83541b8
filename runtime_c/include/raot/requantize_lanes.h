/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_lanes.h - requantization of i32 sums to bytes, for cores with vectors.
 *
 * For r < rows and c < columns, out[r * out_step + c] is sums[r * sum_step + c] times scale[r *
 * scale_step], plus `zero`, saturated to a byte. out_step is at least columns, |zero| < 2^14:
 *
 *     raot_rescale_f32      the product in float, rounded to nearest, halves to even; no NaN
 *     raot_rescale_i32      the product in 64 bits, divided by 2^shift, halves up; shift > 32
 *     raot_rescale_shifts   the same, with the shift at the same index of `shifts`
 *
 * Sums are read in blocks of eight columns, or as many as there are.
 */
#ifndef RAOT_REQUANTIZE_LANES_H
#define RAOT_REQUANTIZE_LANES_H

#include <stdint.h>
#include <string.h>

#include "convert.h"
#include "copy.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define RAOT_SIXTEEN_BYTES
typedef struct {
    __m512i scale, half, zero;
    __m128i shift;
} raot_rescales;

static inline raot_rescales raot_rescales_of(int32_t factor, int32_t down, int32_t zero,
                                             const int exact)
{
    const int32_t rest = exact != 0 ? down - 32 : 0;
    const raot_rescales result = {_mm512_set1_epi32(factor),
                                  _mm512_set1_epi32((int32_t)1 << rest >> 1),
                                  _mm512_set1_epi32(zero), _mm_cvtsi32_si128(rest)};

    return result;
}

/* Sixteen values, before they become bytes. */
__attribute__((always_inline)) static inline __m512i
raot_sixteen_rescaled(__m512i x, raot_rescales by, const int exact)
{
    if (exact != 0) {
        const __m512i even = _mm512_srli_epi64(_mm512_mul_epi32(x, by.scale), 32);
        const __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), by.scale);
        x = _mm512_mask_mov_epi32(even, 0xaaaa, odd);
        x = _mm512_sra_epi32(_mm512_add_epi32(x, by.half), by.shift);
    } else {
        const __m512 most = _mm512_set1_ps(1073741824.0f);
        const __m512 least = _mm512_sub_ps(_mm512_setzero_ps(), most);
        const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_castsi512_ps(by.scale));
        x = _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(v, most), least));
    }
    return _mm512_add_epi32(x, by.zero);
}

/* The first bytes of sixteen. */
__attribute__((always_inline)) static inline void raot_few_of_sixteen(uint8_t *out, __m512i x,
                                                                      int32_t count, const int sign)
{
    const __mmask16 there = (__mmask16)(0xffffu >> ((16 - count) & 15));

    if (sign != 0) {
        _mm512_mask_cvtsepi32_storeu_epi8(out, there, x);
    } else {
        x = _mm512_max_epi32(x, _mm512_setzero_si512());
        _mm512_mask_cvtusepi32_storeu_epi8(out, there, x);
    }
}

/* A row; `exact` and `sign` as below. */
__attribute__((always_inline)) static inline void
raot_rescale_row(uint8_t *out, const int32_t *sums, int32_t columns, raot_rescales by,
                 const int exact, const int sign)
{
    for (int32_t c = 0; c < columns; c += 16) {
        const int32_t count = columns - c < 16 ? columns - c : 16;
        const __mmask16 there = (__mmask16)(0xffffu >> ((16 - count) & 15));
        const __m512i x = _mm512_maskz_loadu_epi32(there, sums + c);

        raot_few_of_sixteen(out + c, raot_sixteen_rescaled(x, by, exact), count, sign);
    }
}

/* Rows of one scale, several at a time: `sum_step` + `columns` is at most 16, and rows of results
 * lie next to each other. */
__attribute__((always_inline)) static inline void
raot_rescale_few_columns(uint8_t *out, const int32_t *sums, int32_t rows, int32_t columns,
                         int32_t sum_step, raot_rescales by, const int exact, const int sign)
{
    const int32_t most = (16 - columns) / sum_step + 1;
    int32_t at[16];
    int32_t first = 0, c = 0;

    for (int32_t i = 0; i < 16; i++) {
        at[i] = first + c;
        c++;
        first = c < columns ? first : first + sum_step;
        c = c < columns ? c : 0;
    }
    const __m512i from = _mm512_loadu_si512(at);
    for (int32_t r = 0; r < rows; r += most) {
        const int32_t taken = rows - r < most ? rows - r : most;
        const int32_t read = (taken - 1) * sum_step + columns;
        const __mmask16 there = (__mmask16)(0xffffu >> ((16 - read) & 15));
        const __m512i x = _mm512_maskz_loadu_epi32(there, sums + r * sum_step);
        const __m512i y = raot_sixteen_rescaled(x, by, exact);

        raot_few_of_sixteen(out + r * columns, _mm512_permutexvar_epi32(from, y), taken * columns,
                            sign);
    }
}

#elif defined(__AVX2__)
#include <immintrin.h>
#define RAOT_EIGHT_BYTES
typedef struct {
    __m256i scale, odd, half, shift;
} raot_rescales;

static inline raot_rescales raot_rescales_of(int32_t factor, int32_t down)
{
    const __m256i scale = _mm256_set1_epi32(factor);
    const __m256i shift = _mm256_set1_epi32(down);
    const __m256i rest = _mm256_sub_epi32(shift, _mm256_set1_epi32(32));
    const __m256i one = _mm256_sllv_epi32(_mm256_set1_epi32(1), rest);
    const raot_rescales result = {scale, _mm256_srli_epi64(scale, 32), _mm256_srli_epi32(one, 1),
                                  rest};

    return result;
}

/* Eight bytes, the first lowest. */
__attribute__((always_inline)) static inline uint64_t
raot_eight_bytes(const int32_t *sums, raot_rescales by, int32_t zero, const int exact,
                 const int sign)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)sums);

    if (exact != 0) {
        const __m256i even = _mm256_mul_epi32(x, by.scale);
        const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(x, 32), by.odd);
        x = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
        x = _mm256_srav_epi32(_mm256_add_epi32(x, by.half), by.shift);
    } else {
        const __m256 most = _mm256_set1_ps(1073741824.0f);
        __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_castsi256_ps(by.scale));
        v = _mm256_max_ps(_mm256_min_ps(v, most), _mm256_sub_ps(_mm256_setzero_ps(), most));
        x = _mm256_cvtps_epi32(v);
    }
    __m128i y = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_adds_epi16(y, _mm_set1_epi16((int16_t)zero));
    y = sign != 0 ? _mm_packs_epi16(y, y) : _mm_packus_epi16(y, y);
    uint64_t bytes;
    _mm_storel_epi64((__m128i *)(void *)&bytes, y);
    return bytes;
}

#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#define RAOT_EIGHT_BYTES
typedef struct {
    int32x4_t scale, shift;
} raot_rescales;

static inline raot_rescales raot_rescales_of(int32_t factor, int32_t down)
{
    const raot_rescales result = {vdupq_n_s32(factor), vdupq_n_s32(down)};

    return result;
}

__attribute__((always_inline)) static inline int32x4_t
raot_four_rescaled(int32x4_t x, int32x4_t scale, int32x4_t shift, const int exact)
{
    if (exact != 0) {
        const int64x2_t low = vmull_s32(vget_low_s32(x), vget_low_s32(scale));
        const int64x2_t high = vmull_high_s32(x, scale);
        x = vuzp2q_s32(vreinterpretq_s32_s64(low), vreinterpretq_s32_s64(high));
        return vrshlq_s32(x, vsubq_s32(vdupq_n_s32(32), shift));
    }
    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(x), vreinterpretq_f32_s32(scale)));
}

/* Eight bytes, the first lowest. */
__attribute__((always_inline)) static inline uint64_t
raot_eight_bytes(const int32_t *sums, raot_rescales by, int32_t zero, const int exact,
                 const int sign)
{
    const int32x4_t a = raot_four_rescaled(vld1q_s32(sums), by.scale, by.shift, exact);
    const int32x4_t b = raot_four_rescaled(vld1q_s32(sums + 4), by.scale, by.shift, exact);
    const int16x8_t y = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(a), b), vdupq_n_s16((int16_t)zero));

    return sign != 0 ? vget_lane_u64(vreinterpret_u64_s8(vqmovn_s16(y)), 0)
                     : vget_lane_u64(vreinterpret_u64_u8(vqmovun_s16(y)), 0);
}
#endif

/* `exact`: 1 for an integer scale; `sign`: 1 for signed bytes. */
__attribute__((always_inline)) static inline void
raot_rescale(uint8_t *out, const int32_t *sums, const void *scale, const int32_t *shifts,
             int32_t rows, int32_t columns, int32_t out_step, int32_t sum_step, int32_t scale_step,
             int32_t zero, int32_t shift_step, const int exact, const int sign)
{
#if defined(RAOT_SIXTEEN_BYTES)
    if (rows > 1 && scale_step == 0 && shift_step == 0 && out_step == columns &&
        sum_step + columns <= 16) {
        const raot_rescales all =
            raot_rescales_of(((const int32_t *)scale)[0], shifts[0], zero, exact);
        raot_rescale_few_columns(out, sums, rows, columns, sum_step, all, exact, sign);
        return;
    }
    for (int32_t r = 0; r < rows; r++) {
        const raot_rescales one = raot_rescales_of(((const int32_t *)scale)[r * scale_step],
                                                   shifts[r * shift_step], zero, exact);
        raot_rescale_row(out + r * out_step, sums + r * sum_step, columns, one, exact, sign);
    }
#elif defined(RAOT_EIGHT_BYTES)
    for (int32_t r = 0; r < rows; r++) {
        const raot_rescales one =
            raot_rescales_of(((const int32_t *)scale)[r * scale_step], shifts[r * shift_step]);
        for (int32_t c = 0; c < columns; c += 8) {
            const int32_t left = columns - c;
            const uint64_t bytes = raot_eight_bytes(sums + c, one, zero, exact, sign);
            /* Bytes after the row are overwritten later by the next row. */
            if (left >= 8 || (out_step == columns && (rows - r) * columns - c >= 8)) {
                RAOT_COPY(out + c, &bytes, sizeof bytes);
            } else {
                for (int32_t n = 0; n < left; n++) {
                    const int32_t shift = 8 * n;
                    out[c + n] = (uint8_t)(bytes >> shift);
                }
            }
        }
        out += out_step;
        sums += sum_step;
    }
#else
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t c = 0; c < columns; c++) {
            const int32_t at = r * scale_step;
            const int32_t sum = sums[r * sum_step + c];
            int32_t code;
            if (exact != 0) {
                const int32_t high = (int32_t)(((int64_t)sum * ((const int32_t *)scale)[at]) >> 32);
                const int32_t shift = shifts[r * shift_step] - 32;
                code = (high + ((int32_t)1 << shift >> 1)) >> shift;
            } else {
                code = raot_f32_to_i32_nearest((float)sum * ((const float *)scale)[at]);
                code = code < -32768 ? -32768 : code > 32767 ? 32767 : code;
            }
            code += zero;
            out[r * out_step + c] = sign != 0 ? (uint8_t)raot_clamp_i8(code) : raot_clamp_u8(code);
        }
    }
#endif
}

#define RAOT_RESCALE_SIZES                                                                 \
    int32_t rows, int32_t columns, int32_t out_step, int32_t sum_step, int32_t scale_step, \
        int32_t zero
#define RAOT_RESCALE(suffix, byte, sign)                                                         \
    __attribute__((noinline, unused)) static void raot_rescale_f32_##suffix##_unpacked(          \
        byte *out, const int32_t *sums, const float *scale, RAOT_RESCALE_SIZES)                  \
    {                                                                                            \
        const int32_t none = 0;                                                                  \
        raot_rescale((uint8_t *)out, sums, scale, &none, rows, columns, out_step, sum_step,      \
                     scale_step, zero, 0, 0, sign);                                              \
    }                                                                                            \
    __attribute__((noinline, unused)) static void raot_rescale_i32_##suffix##_unpacked(          \
        byte *out, const int32_t *sums, const int32_t *scale, RAOT_RESCALE_SIZES, int32_t shift) \
    {                                                                                            \
        raot_rescale((uint8_t *)out, sums, scale, &shift, rows, columns, out_step, sum_step,     \
                     scale_step, zero, 0, 1, sign);                                              \
    }                                                                                            \
    __attribute__((noinline, unused)) static void raot_rescale_shifts_##suffix##_unpacked(       \
        byte *out, const int32_t *sums, const int32_t *scale, const int32_t *shifts,             \
        RAOT_RESCALE_SIZES)                                                                      \
    {                                                                                            \
        raot_rescale((uint8_t *)out, sums, scale, shifts, rows, columns, out_step, sum_step,     \
                     scale_step, zero, scale_step, 1, sign);                                     \
    }

RAOT_RESCALE(s8, int8_t, 1)
RAOT_RESCALE(u8, uint8_t, 0)

/* Sizes of the functions below, by name. */
struct raot_rescale {
    int32_t rows;
    int32_t columns;
    int32_t out_step;
    int32_t sum_step;
    int32_t scale_step;
    int32_t zero;
    int32_t shift;
};

#define raot_rescale_f32_s8(out, sums, scale, sizes)                                        \
    raot_rescale_f32_s8_unpacked(out, sums, scale, (sizes)->rows, (sizes)->columns,         \
                                 (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                 (sizes)->zero)

#define raot_rescale_i32_s8(out, sums, scale, sizes)                                        \
    raot_rescale_i32_s8_unpacked(out, sums, scale, (sizes)->rows, (sizes)->columns,         \
                                 (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                 (sizes)->zero, (sizes)->shift)

#define raot_rescale_shifts_s8(out, sums, scale, shifts, sizes)                                \
    raot_rescale_shifts_s8_unpacked(out, sums, scale, shifts, (sizes)->rows, (sizes)->columns, \
                                    (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                    (sizes)->zero)

#define raot_rescale_f32_u8(out, sums, scale, sizes)                                        \
    raot_rescale_f32_u8_unpacked(out, sums, scale, (sizes)->rows, (sizes)->columns,         \
                                 (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                 (sizes)->zero)

#define raot_rescale_i32_u8(out, sums, scale, sizes)                                        \
    raot_rescale_i32_u8_unpacked(out, sums, scale, (sizes)->rows, (sizes)->columns,         \
                                 (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                 (sizes)->zero, (sizes)->shift)

#define raot_rescale_shifts_u8(out, sums, scale, shifts, sizes)                                \
    raot_rescale_shifts_u8_unpacked(out, sums, scale, shifts, (sizes)->rows, (sizes)->columns, \
                                    (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                    (sizes)->zero)

#endif
