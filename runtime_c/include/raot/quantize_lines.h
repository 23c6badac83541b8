/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_lines.h - quantization of floats to bytes.
 *
 *     out[i * step] = x[i] / scale, rounded to nearest, halves to even, plus zero, saturated
 *
 * NaN becomes 0. With Helium, which has no division of vectors, x is multiplied by the reciprocal
 * of the scale. The integer can differ from that of the quotient only where the product is next to
 * the middle between two integers: the errors of both are below 2^-14 + 2^-15 where the magnitude
 * is below 2^9, and results are saturated above it. Blocks with a product within 2^-13 of a middle,
 * or with NaN, are divided. Seven results are at most 65535 bytes apart.
 */
#ifndef RAOT_QUANTIZE_LINES_H
#define RAOT_QUANTIZE_LINES_H

#include <stdint.h>

#include "convert.h"
#include "mve.h"

#define RAOT_QUANTIZE_DIVIDED(suffix, byte)                                                      \
    static inline void raot_quantize_divided_##suffix(byte *out, const float *x, float scale,    \
                                                      int32_t count, int32_t step, int32_t zero) \
    {                                                                                            \
        for (int32_t i = 0; i < count; i++) {                                                    \
            out[i * step] = raot_quantize_##suffix(x[i] / scale, zero);                          \
        }                                                                                        \
    }
RAOT_QUANTIZE_DIVIDED(i8, int8_t)
RAOT_QUANTIZE_DIVIDED(u8, uint8_t)

#if defined(RAOT_MVE_F32)
#define RAOT_QUANTIZE_BLOCK 128

/* The distance of four products from the nearest integers, as bits: those of NaN are greater. */
static inline uint32x4_t raot_quantize_four(float32x4_t x, float by, uint32x4_t worst,
                                            int32x4_t *code)
{
    const float32x4_t product = vmulq_n_f32(x, by);
    const float32x4_t whole = vrndnq_f32(product);

    *code = vcvtq_s32_f32(whole);
    return vmaxq_u32(worst, vreinterpretq_u32_f32(vabsq_f32(vsubq_f32(product, whole))));
}

#define RAOT_QUANTIZE_LINE(suffix, byte, NARROW)                                                   \
    const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);                      \
    const float by = 1.0f / scale;                                                                 \
    const int normal = raot_absf(by) > 0x1p-120f && raot_absf(by) < 0x1p120f;                      \
    for (int32_t first = 0; first < count;) {                                                      \
        int32_t block = count - first < RAOT_QUANTIZE_BLOCK ? count - first : RAOT_QUANTIZE_BLOCK; \
        if (block < 8 && count >= 8) {                                                             \
            first = count - 8;                                                                     \
            block = 8;                                                                             \
        }                                                                                          \
        block = block < 8 ? block : block / 8 * 8;                                                 \
        uint32x4_t worst = vdupq_n_u32(0u);                                                        \
        const float *from = x + first;                                                             \
        byte *to = out + first * step;                                                             \
        for (int32_t left = block / 8; left > 0; left--) {                                         \
            int32x4_t even;                                                                        \
            int32x4_t odd;                                                                         \
            const float32x4x2_t pairs = vld2q_f32(from);                                           \
            worst = raot_quantize_four(pairs.val[0], by, worst, &even);                            \
            worst = raot_quantize_four(pairs.val[1], by, worst, &odd);                             \
            int16x8_t code = vqmovnbq_s32(vreinterpretq_s16_s32(even), even);                      \
            code = vqaddq_n_s16(vqmovntq_s32(code, odd), (int16_t)zero);                           \
            vstrbq_scatter_offset_u16((uint8_t *)to, apart, NARROW(code));                         \
            from += 8;                                                                             \
            to += 8 * step;                                                                        \
        }                                                                                          \
        if (block < 8 || !normal || vmaxvq_u32(0u, worst) >= raot_bitsf(0.5f - 0x1p-13f)) {        \
            raot_quantize_divided_##suffix(out + first * step, x + first, scale, block, step,      \
                                           zero);                                                  \
        }                                                                                          \
        first += block;                                                                            \
    }
#define RAOT_NARROW_I8(code) vreinterpretq_u16_s8(vqmovnbq_s16(vreinterpretq_s8_s16(code), code))
#define RAOT_NARROW_U8(code) vreinterpretq_u16_u8(vqmovunbq_s16(vreinterpretq_u8_s16(code), code))
#else
#define RAOT_QUANTIZE_LINE(suffix, byte, NARROW) \
    raot_quantize_divided_##suffix(out, x, scale, count, step, zero);
#endif

__attribute__((noinline, unused)) static void raot_quantize_line_s8(int8_t *out, const float *x,
                                                                    const float *scales,
                                                                    int32_t count, int32_t step,
                                                                    int32_t zero)
{
    const float scale = *scales;
    RAOT_QUANTIZE_LINE(i8, int8_t, RAOT_NARROW_I8)
}

__attribute__((noinline, unused)) static void raot_quantize_line_u8(uint8_t *out, const float *x,
                                                                    const float *scales,
                                                                    int32_t count, int32_t step,
                                                                    int32_t zero)
{
    const float scale = *scales;
    RAOT_QUANTIZE_LINE(u8, uint8_t, RAOT_NARROW_U8)
}

#endif
