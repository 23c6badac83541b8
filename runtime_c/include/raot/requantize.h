/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize.h - requantization of i32 sums to signed bytes.
 *
 * For r < rows and c < columns, out[r * out_step + c] is sums[r * sum_step + c] times scale[r *
 * scale_step], plus `zero`, saturated to a signed byte. columns is at least 1; sums are read in
 * blocks of eight columns:
 *
 *     raot_requantize_f32   the product in float, rounded to nearest, halves to even;
 *                           it is no NaN and its magnitude is less than 2^30
 *     raot_requantize_i32   the product in 64 bits, divided by 2^shift, halves up; shift > 32
 */
#ifndef RAOT_REQUANTIZE_H
#define RAOT_REQUANTIZE_H

#include <stdint.h>

#include "assembly.h"
#include "convert.h"
#include "dsp.h"
#include "mve.h"
#include "scaled.h"

#if defined(RAOT_MVE)
/*
 * Eight sums: even and odd sums separately, then interleaved in 16 bits. Saturation to 16 bits
 * does not change the final result. The empty instruction keeps GCC 12 from an addressing mode
 * that the load does not have.
 */
#define RAOT_EIGHT(SCALED)                                              \
    const int32_t *at = sums + c;                                       \
    RAOT_KEEP_ADDRESS(at);                                              \
    const int32x4x2_t x = vld2q_s32(at);                                \
    const int32x4_t even = SCALED(x.val[0]);                            \
    int16x8_t y = vqmovnbq_s32(vreinterpretq_s16_s32(even), even);      \
    y = vqaddq_n_s16(vqmovntq_s32(y, SCALED(x.val[1])), (int16_t)zero); \
    const int8x16_t z = vqmovnbq_s16(vreinterpretq_s8_s16(y), y);

#define RAOT_REQUANTIZE(FACTOR, SCALED)                                           \
    const int32_t whole = columns > 8 ? columns - 8 : 0;                          \
    const mve_pred16_t some = vctp16q((uint32_t)(columns - (whole + 7) / 8 * 8)); \
    if (whole == 0) {                                                             \
        for (int32_t r = 0; r < rows; r++) {                                      \
            const FACTOR by = *scale;                                             \
            const int32_t c = 0;                                                  \
            RAOT_EIGHT(SCALED)                                                    \
            vstrbq_p_s16(out, vreinterpretq_s16_s8(z), some);                     \
            scale += scale_step;                                                  \
            out += out_step;                                                      \
            sums += sum_step;                                                     \
        }                                                                         \
        return;                                                                   \
    }                                                                             \
    for (int32_t r = 0; r < rows; r++) {                                          \
        const FACTOR by = scale[r * scale_step];                                  \
        int32_t c = 0;                                                            \
        for (; c < whole; c += 8) {                                               \
            RAOT_EIGHT(SCALED)                                                    \
            vstrbq_s16(out + c, vreinterpretq_s16_s8(z));                         \
        }                                                                         \
        RAOT_EIGHT(SCALED)                                                        \
        vstrbq_p_s16(out + c, vreinterpretq_s16_s8(z), some);                     \
        out += out_step;                                                          \
        sums += sum_step;                                                         \
    }
#endif

__attribute__((noinline, unused)) static void
raot_requantize_f32_unpacked(int8_t *out, const int32_t *sums, const float *scale, int32_t rows,
                             int32_t columns, int32_t out_step, int32_t sum_step,
                             int32_t scale_step, int32_t zero)
{
#if defined(RAOT_MVE_F32)
#define RAOT_SCALED(v) vcvtnq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(v), by))
    RAOT_REQUANTIZE(float, RAOT_SCALED)
#undef RAOT_SCALED
#else
    for (int32_t r = 0; r < rows; r++) {
        const float by = scale[r * scale_step];
        int8_t *const to = out + r * out_step;
        const int32_t *const from = sums + r * sum_step;
        for (int32_t c = 0; c < columns; c++) {
            const int32_t code = raot_scaled(from[c], by);
            to[c] = raot_clamp_i8((int32_t)((uint32_t)code + (uint32_t)zero));
        }
    }
#endif
}

__attribute__((noinline, unused)) static void
raot_requantize_i32_unpacked(int8_t *out, const int32_t *sums, const int32_t *scale, int32_t rows,
                             int32_t columns, int32_t out_step, int32_t sum_step,
                             int32_t scale_step, int32_t zero, int32_t shift)
{
#if defined(RAOT_MVE)
#define RAOT_SCALED(v) vrshlq_n_s32(vmulhq_s32(v, vdupq_n_s32(by)), 32 - shift)
    RAOT_REQUANTIZE(int32_t, RAOT_SCALED)
#undef RAOT_SCALED
#else
    const int32_t odd = 2 * zero + 1;

    for (int32_t r = 0; r < rows; r++) {
        const int32_t by = scale[r * scale_step];
        int8_t *const to = out + r * out_step;
        const int32_t *const from = sums + r * sum_step;
        /* Half a unit and `zero` are added at twice the scale; the magnitude is below 2^30. */
        for (int32_t c = 0; c < columns; c++) {
            const int32_t high = (int32_t)(((int64_t)from[c] * by) >> 32);
            to[c] = raot_clamp_i8(((high >> (shift - 33)) + odd) >> 1);
        }
    }
#endif
}

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
/* Sizes of the function below. */
struct raot_qadd_blocks {
    int32_t blocks;
    int32_t a_factor;
    int32_t b_factor;
    int32_t offset;
    int32_t shift;
};

/*
 * Blocks of eight bytes. Compilers keep no vector in the place of an instruction's result.
 *
 *     r0, r1, r2   result, a and b
 *     r4, r5, r6   factor of b, offset, and the negated shift
 *     q4, q5       factor of a, and offsets of the results: 0 4 1 5 2 6 3 7
 */
/* clang-format off */
RAOT_NAKED static void raot_qadd_blocks(
    RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const int8_t *a, RAOT_ARGUMENT const int8_t *b,
    RAOT_ARGUMENT const struct raot_qadd_blocks *sizes)
{
    __asm volatile(
        "push {r4, r5, r6, lr}\n vpush {d8, d9, d10, d11}\n"
        "movs r4, #0\n vidup.u32 q5, r4, #1\n movs r4, #1\n movt r4, #1\n"
        "vmul.i32 q5, q5, r4\n mov r4, #0x40000\n vadd.i32 q5, q5, r4\n"
        "ldrd lr, r4, [r3]\n vdup.32 q4, r4\n ldrd r4, r5, [r3, #8]\n ldr r6, [r3, #16]\n"
        "rsbs r6, r6, #0\n dls lr, lr\n"
        "1:\n vldrb.s32 q0, [r1], #4\n vldrb.s32 q1, [r1], #4\n"
        "vmlas.s32 q0, q4, r5\n vldrb.s32 q2, [r2], #4\n"
        "vmlas.s32 q1, q4, r5\n vldrb.s32 q3, [r2], #4\n"
        "vmla.s32 q0, q2, r4\n vmla.s32 q1, q3, r4\n vshl.s32 q0, r6\n vshl.s32 q1, r6\n"
        "vqmovnb.s32 q0, q0\n vqmovnt.s32 q0, q1\n vqmovnb.s16 q0, q0\n"
        "vstrb.16 q0, [r0, q5]\n adds r0, #8\n le lr, 1b\n"
        "vpop {d8, d9, d10, d11}\n pop {r4, r5, r6, pc}\n");
}
/* clang-format on */
#endif

/*
 *     out[r * out_step + c] =
 *         (a[r * a_step + c] * a_factor + b[r * b_step + c] * b_factor + offset) >> shift
 *
 * saturated to a byte, in 32-bit arithmetic that wraps; 0 < shift < 32. `out` may be b.
 */
__attribute__((noinline, unused)) static void
raot_qadd_s8_unpacked(int8_t *out, const int8_t *a, const int8_t *b, int32_t rows, int32_t columns,
                      int32_t out_step, int32_t a_step, int32_t b_step, int32_t a_factor,
                      int32_t b_factor, int32_t offset, int32_t shift)
{
    /*@ loop unroll 4096; */
    for (int32_t r = 0; r < rows; r++) {
#if defined(RAOT_MVE)
        int32_t c = 0;
#if defined(RAOT_ASM_THUMB)
        if (columns >= 8) {
            const struct raot_qadd_blocks sizes = {columns / 8, a_factor, b_factor, offset, shift};
            raot_qadd_blocks(out, a, b, &sizes);
            c = columns / 8 * 8;
        }
#endif
        for (; c < columns; c += 4) {
            const mve_pred16_t some = vctp32q((uint32_t)(columns - c));
            int32x4_t sum = vmulq_n_s32(vldrbq_z_s32(a + c, some), a_factor);
            sum = vmlaq_n_s32(sum, vldrbq_z_s32(b + c, some), b_factor);
            sum = vshlq_r_s32(vaddq_n_s32(sum, offset), -shift);
            const int16x8_t half = vqmovnbq_s32(vreinterpretq_s16_s32(sum), sum);
            const int8x16_t byte = vqmovnbq_s16(vreinterpretq_s8_s16(half), half);
            vstrbq_p_s32(out + c, vreinterpretq_s32_s8(byte), some);
        }
#else
        for (int32_t c = 0; c < columns; c++) {
            const uint32_t sum = (uint32_t)a[c] * (uint32_t)a_factor +
                                 (uint32_t)b[c] * (uint32_t)b_factor + (uint32_t)offset;
            out[c] = raot_clamp_i8((int32_t)sum >> shift);
        }
#endif
        out += out_step;
        a += a_step;
        b += b_step;
    }
}

/* Sizes of the functions below, by name. */
struct raot_qadd {
    int32_t rows;
    int32_t columns;
    int32_t out_step;
    int32_t a_step;
    int32_t b_step;
    int32_t a_factor;
    int32_t b_factor;
    int32_t offset;
    int32_t shift;
};

/* Sizes of the function below, by name. */
struct raot_qadd_wide {
    int32_t rows;
    int32_t columns;
    int32_t out_step;
    int32_t a_step;
    int32_t b_step;
    int32_t a_factor;
    int32_t b_factor;
    int32_t offset;
    int32_t a_low;
    int32_t b_low;
    int32_t offset_low;
    int32_t shift;
};

#if defined(RAOT_DSP) && !defined(RAOT_MVE)
static inline int raot_qadd_is_half(int32_t number)
{
    return number >= INT16_MIN && number <= INT16_MAX;
}

/* Two numbers in a word. */
static inline int16x2_t raot_qadd_halves(int32_t low, int32_t high)
{
    return (int16x2_t)(((uint32_t)low & 0xFFFFu) | (uint32_t)high << 16);
}

/* The upper halves of two words. */
static inline int16x2_t raot_qadd_upper(int16x2_t low, int16x2_t high)
{
    return (int16x2_t)((uint32_t)low >> 16 | ((uint32_t)high & 0xFFFF0000u));
}

/* One result, of a pair of bytes. */
static inline int8_t raot_qadd_pair(int16x2_t pair, int16x2_t factors, int16x2_t lows,
                                    const struct raot_qadd_wide by)
{
    const int32_t low = raot_dsp_dot(pair, lows, by.offset_low);
    const int32_t sum = raot_dsp_dot(pair, factors, by.offset);

    return raot_clamp_i8((sum + (low >> 16)) >> by.shift);
}

/* The first `columns` of a row, a multiple of four: bytes of `a` and `b` are multiplied together.
 * Factors have 16 bits. */
static inline void raot_qadd_pairs(int8_t *out, const int8_t *a, const int8_t *b, int32_t columns,
                                   const struct raot_qadd_wide by)
{
    const int16x2_t factors = raot_qadd_halves(by.a_factor, by.b_factor);
    const int16x2_t lows = raot_qadd_halves(by.a_low, by.b_low);

    for (int32_t c = 0; c < columns; c += 4) {
        const uint32_t x = raot_dsp_load(a + c);
        const uint32_t y = raot_dsp_load(b + c);
        const int16x2_t even[2] = {raot_dsp_even_s8(x), raot_dsp_even_s8(y)};
        const int16x2_t odd[2] = {raot_dsp_odd_s8(x), raot_dsp_odd_s8(y)};
        out[c] = raot_qadd_pair(raot_qadd_halves(even[0], even[1]), factors, lows, by);
        out[c + 1] = raot_qadd_pair(raot_qadd_halves(odd[0], odd[1]), factors, lows, by);
        out[c + 2] = raot_qadd_pair(raot_qadd_upper(even[0], even[1]), factors, lows, by);
        out[c + 3] = raot_qadd_pair(raot_qadd_upper(odd[0], odd[1]), factors, lows, by);
    }
}
#endif

/*
 * The same with numbers of 16 bits more, in two parts: (a * a_low + b * b_low + offset_low) >> 16
 * is added before the shift.
 */
__attribute__((noinline, unused)) static void
raot_qadd_wide_s8(int8_t *out, const int8_t *a, const int8_t *b, const struct raot_qadd_wide *sizes)
{
    const struct raot_qadd_wide by = *sizes;
#if defined(RAOT_DSP) && !defined(RAOT_MVE)
    const int halves = raot_qadd_is_half(by.a_factor) && raot_qadd_is_half(by.b_factor) &&
                       raot_qadd_is_half(by.a_low) && raot_qadd_is_half(by.b_low);
#endif

    /*@ loop unroll 4096; */
    for (int32_t r = 0; r < by.rows; r++) {
#if defined(RAOT_MVE)
        for (int32_t c = 0; c < by.columns; c += 4) {
            const mve_pred16_t some = vctp32q((uint32_t)(by.columns - c));
            const int32x4_t x = vldrbq_z_s32(a + c, some);
            const int32x4_t y = vldrbq_z_s32(b + c, some);
            const int32x4_t low = vmlaq_n_s32(vmulq_n_s32(x, by.a_low), y, by.b_low);
            int32x4_t sum = vmlaq_n_s32(vmulq_n_s32(x, by.a_factor), y, by.b_factor);
            sum = vaddq_s32(sum, vshrq_n_s32(vaddq_n_s32(low, by.offset_low), 16));
            sum = vshlq_r_s32(vaddq_n_s32(sum, by.offset), -by.shift);
            const int16x8_t half = vqmovnbq_s32(vreinterpretq_s16_s32(sum), sum);
            const int8x16_t byte = vqmovnbq_s16(vreinterpretq_s8_s16(half), half);
            vstrbq_p_s32(out + c, vreinterpretq_s32_s8(byte), some);
        }
#else
        int32_t c = 0;
#if defined(RAOT_DSP) && !defined(RAOT_MVE)
        if (halves != 0) {
            c = by.columns / 4 * 4;
            raot_qadd_pairs(out, a, b, c, by);
        }
#endif
        for (; c < by.columns; c++) {
            const int32_t low = a[c] * by.a_low + b[c] * by.b_low + by.offset_low;
            const uint32_t sum = (uint32_t)a[c] * (uint32_t)by.a_factor +
                                 (uint32_t)b[c] * (uint32_t)by.b_factor + (uint32_t)by.offset;
            out[c] = raot_clamp_i8((int32_t)(sum + (uint32_t)(low >> 16)) >> by.shift);
        }
#endif
        out += by.out_step;
        a += by.a_step;
        b += by.b_step;
    }
}

#define raot_qadd_s8(out, a, b, sizes)                                                            \
    raot_qadd_s8_unpacked(out, a, b, (sizes)->rows, (sizes)->columns, (sizes)->out_step,          \
                          (sizes)->a_step, (sizes)->b_step, (sizes)->a_factor, (sizes)->b_factor, \
                          (sizes)->offset, (sizes)->shift)

/* Sizes of the functions below, by name. */
struct raot_requantize {
    int32_t rows;
    int32_t columns;
    int32_t out_step;
    int32_t sum_step;
    int32_t scale_step;
    int32_t zero;
    int32_t shift;
};

#define raot_requantize_f32(out, sums, scale, sizes)                                        \
    raot_requantize_f32_unpacked(out, sums, scale, (sizes)->rows, (sizes)->columns,         \
                                 (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                 (sizes)->zero)

#define raot_requantize_i32(out, sums, scale, sizes)                                        \
    raot_requantize_i32_unpacked(out, sums, scale, (sizes)->rows, (sizes)->columns,         \
                                 (sizes)->out_step, (sizes)->sum_step, (sizes)->scale_step, \
                                 (sizes)->zero, (sizes)->shift)

#endif
