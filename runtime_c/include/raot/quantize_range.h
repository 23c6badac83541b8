/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_range.h - ranges of floats, and quantization of floats to bytes by them.
 *
 *     raot_peak_f32       the bits of the largest magnitude
 *     raot_greatest_f32   the bits of the greatest float, 0 if none is positive
 *     raot_range_f32      the bits of the greatest float (0 if none is positive), and of the lowest
 *                         one (those of the greatest if none is negative)
 *     raot_quantize_row_s8  out[i] = x[i] / by[0], rounded to nearest, halves to even: the lowest
 * byte of the bits of the quotient plus 1.5 * 2^23; 0 where kept[0] is 0, not -1
 *     raot_quantize_pairs_s16 the same bytes as pairs of 16 bits that are `step` pairs apart, and
 *                         zeros up to a multiple of two pairs; pairs are aligned to four bytes
 *     raot_quantize_row_s16 as raot_quantize_row_s8, with x[i] * by[0] and the two lowest bytes
 *     raot_product_peak_f32 products[i] = x[i] * factors[i], and the bits of the largest magnitude
 *     raot_fill_bytes_s8  out[i] = value[0]
 *     raot_quantize_by_s8 out[i * step] = x[i] * by[0] + by[1], rounded to nearest, halves away
 *                         from 0, and saturated. NaN becomes 0
 *
 * Floats are compared as their bits: NaN is greater than infinity. Values are rounded in seven bits
 * of fraction: cutting off the others moves no value over the middle between two integers.
 * Seven results are at most 65535 bytes apart.
 */
#ifndef RAOT_QUANTIZE_RANGE_H
#define RAOT_QUANTIZE_RANGE_H

#include <stdint.h>

#include "convert.h"
#include "copy.h"
#include "ieee.h"
#include "mve.h"

/* The greater one of the bits of a magnitude and others. */
static inline uint32_t raot_magnitude_above(float x, uint32_t bits)
{
    const uint32_t magnitude = raot_bitsf(x) & 0x7FFFFFFFu;

    return magnitude > bits ? magnitude : bits;
}

#if defined(RAOT_MVE_F32)
/* Compilers make no loops that end with predicated elements of 32 bits and keep their counts in lr.
   `MOST` reads four floats from q0. */
#if defined(RAOT_ASM_INLINE)
/* clang-format off */
#define RAOT_RANGE_LOOP(MOST, ...)                                               \
    __asm volatile("wlstp.32 lr, %[count], 2f\n"                                 \
                   "1: vldrw.32 q0, [%[x]], #16\n" MOST "letp lr, 1b\n"          \
                   "2:\n"                                                        \
                   : [x] "+&r"(x), __VA_ARGS__                                    \
                   : [count] "r"(count)                                          \
                   : "lr", "s0", "s1", "s2", "s3", "memory")
#define RAOT_QUANTIZE_LOOP(STORE)                                                              \
    __asm volatile("wlstp.32 lr, %[count], 2f\n"                                               \
                   "1: vldrw.32 q0, [%[x]], #16\n vmul.f32 q0, q0, %[factor]\n"               \
                   "vadd.f32 q0, q0, %[offset]\n vcvta.s32.f32 q0, q0\n"                      \
                   "vqmovnb.s32 q0, q0\n vqmovnb.s16 q0, q0\n" STORE "letp lr, 1b\n"          \
                   "2:\n"                                                                      \
                   : [x] "+&r"(x), [out] "+&r"(out)                                              \
                   : [count] "r"(count), [factor] "r"(factor), [offset] "r"(offset),           \
                     [step] "r"(4 * step), [apart] "w"(apart)                                  \
                   : "lr", "s0", "s1", "s2", "s3", "memory")
/* clang-format on */
#endif
#if defined(RAOT_ASM_INLINE)
#define RAOT_PEAK_VECTORS \
    RAOT_RANGE_LOOP("vshl.i32 q0, q0, #1\n vmax.u32 %q[most], %q[most], q0\n", [most] "+&w"(most));
#define RAOT_GREATEST_VECTORS \
    RAOT_RANGE_LOOP("vmax.s32 %q[high], %q[high], q0\n", [high] "+&w"(high));
#define RAOT_RANGE_VECTORS                                                               \
    RAOT_RANGE_LOOP("vmax.s32 %q[high], %q[high], q0\n vmax.u32 %q[low], %q[low], q0\n", \
                    [high] "+&w"(high), [low] "+&w"(low));
#define RAOT_QUANTIZE_VECTORS                                                           \
    if (step == 1) {                                                                    \
        RAOT_QUANTIZE_LOOP("vstrb.32 q0, [%[out]], #4\n");                              \
    } else {                                                                            \
        RAOT_QUANTIZE_LOOP("vstrb.32 q0, [%[out], %q[apart]]\n add %[out], %[step]\n"); \
    }
#else
#define RAOT_PEAK_VECTORS                                                   \
    for (; count > 0; count -= 4) {                                         \
        const mve_pred16_t some = vctp32q((uint32_t)count);                 \
        const uint32x4_t by = vreinterpretq_u32_f32(vldrwq_z_f32(x, some)); \
        most = vmaxq_u32(most, vshlq_n_u32(by, 1));                         \
        x += 4;                                                             \
    }
#define RAOT_GREATEST_VECTORS                                 \
    for (; count > 0; count -= 4) {                           \
        const mve_pred16_t some = vctp32q((uint32_t)count);   \
        const float32x4_t value = vldrwq_z_f32(x, some);      \
        high = vmaxq_s32(high, vreinterpretq_s32_f32(value)); \
        x += 4;                                               \
    }
#define RAOT_RANGE_VECTORS                                    \
    for (; count > 0; count -= 4) {                           \
        const mve_pred16_t some = vctp32q((uint32_t)count);   \
        const float32x4_t value = vldrwq_z_f32(x, some);      \
        high = vmaxq_s32(high, vreinterpretq_s32_f32(value)); \
        low = vmaxq_u32(low, vreinterpretq_u32_f32(value));   \
        x += 4;                                               \
    }
#define RAOT_QUANTIZE_VECTORS                                                                      \
    const int32x4_t low = vdupq_n_s32(INT8_MIN);                                                   \
    const int32x4_t high = vdupq_n_s32(INT8_MAX);                                                  \
    for (; count > 0; count -= 4) {                                                                \
        const mve_pred16_t some = vctp32q((uint32_t)count);                                        \
        const float32x4_t value = vaddq_n_f32(vmulq_n_f32(vldrwq_z_f32(x, some), factor), offset); \
        const int32x4_t whole = vmaxq_s32(vminq_s32(vcvtaq_s32_f32(value), high), low);            \
        vstrbq_scatter_offset_p_s32(out, apart, whole, some);                                      \
        x += 4;                                                                                    \
        out += 4 * step;                                                                           \
    }
#endif
#define RAOT_PEAK(bits)                \
    uint32x4_t most = vdupq_n_u32(0u); \
    RAOT_PEAK_VECTORS                  \
    bits = vmaxvq_u32(0u, most) >> 1;
#define RAOT_GREATEST(bits)          \
    int32x4_t high = vdupq_n_s32(0); \
    RAOT_GREATEST_VECTORS            \
    bits = vmaxvq_s32(0, high);
#define RAOT_RANGE(greatest, lowest)  \
    int32x4_t high = vdupq_n_s32(0);  \
    uint32x4_t low = vdupq_n_u32(0u); \
    RAOT_RANGE_VECTORS                \
    greatest = vmaxvq_s32(0, high);   \
    lowest = vmaxvq_u32(0u, low);
#define RAOT_QUANTIZE_BY                                                       \
    const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)step); \
    RAOT_QUANTIZE_VECTORS
#else
#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && defined(__ARM_FP) && (__ARM_FP & 4)
#define RAOT_QUANTIZE_RANGE_BLOCKS 1
/* clang-format off */
/*
 * Eight floats in a step. Few are greater than all before.
 *
 *     r0, r1, r2          the greatest so far, remaining blocks, floats
 *     r3 to r8, r10, r11  floats
 */
#define RAOT_GREATEST_ONE(X, SHIFT, LESS) \
    "cmp r0, " X SHIFT "\n it " LESS "\n mov" LESS " r0, " X SHIFT "\n"
#define RAOT_GREATEST_TWO(A, B, SHIFT, LESS) \
    RAOT_GREATEST_ONE(A, SHIFT, LESS) RAOT_GREATEST_ONE(B, SHIFT, LESS)
#define RAOT_GREATEST_BLOCKS(NAME, SHIFT, LESS, NOT) \
    RAOT_NAKED static uint32_t raot_##NAME##_blocks(RAOT_ARGUMENT const float *x, \
                                                    RAOT_ARGUMENT int32_t blocks) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n mov r2, r0\n movs r0, #0\n" \
            "1: ldmia r2!, {r3-r8, r10, r11}\n cmp r0, r3" SHIFT "\n itttt " NOT "\n" \
            "cmp" NOT " r0, r4" SHIFT "\n cmp" NOT " r0, r5" SHIFT "\n" \
            "cmp" NOT " r0, r6" SHIFT "\n cmp" NOT " r0, r7" SHIFT "\n ittt " NOT "\n" \
            "cmp" NOT " r0, r8" SHIFT "\n cmp" NOT " r0, r10" SHIFT "\n" \
            "cmp" NOT " r0, r11" SHIFT "\n b" LESS " 3f\n" \
            "2: subs r1, #1\n bgt 1b\n" \
            "pop {r4-r8, r10, r11, pc}\n" \
            "3:\n" RAOT_GREATEST_TWO("r3", "r4", SHIFT, LESS) \
            RAOT_GREATEST_TWO("r5", "r6", SHIFT, LESS) \
            RAOT_GREATEST_TWO("r7", "r8", SHIFT, LESS) \
            RAOT_GREATEST_TWO("r10", "r11", SHIFT, LESS) "b 2b\n"); \
    }
/* Magnitudes without their sign, and doubled; floats as signed integers. */
RAOT_GREATEST_BLOCKS(peak, ", lsl #1", "lo", "hs")
RAOT_GREATEST_BLOCKS(greatest, "", "lt", "ge")

/*
 * Both of four floats in a step.
 *
 *     r0, r1, r2, r3   results, floats, remaining blocks, the greatest as a signed integer
 *     r8               the greatest as an unsigned integer
 */
#define RAOT_RANGE_ONE(X) \
    "cmp r3, " X "\n it lt\n movlt r3, " X "\n cmp r8, " X "\n it lo\n movlo r8, " X "\n"
RAOT_NAKED static void raot_range_blocks(RAOT_ARGUMENT int32_t *bits, RAOT_ARGUMENT const float *x,
                                         RAOT_ARGUMENT int32_t blocks)
{
    __asm volatile(
        "push {r4-r8, lr}\n movs r3, #0\n mov r8, r3\n"
        "1: ldmia r1!, {r4-r7}\n cmp r3, r4\n ittt ge\n cmpge r3, r5\n cmpge r3, r6\n"
        "cmpge r3, r7\n blt 3f\n cmp r8, r4\n ittt hs\n cmphs r8, r5\n cmphs r8, r6\n"
        "cmphs r8, r7\n blo 3f\n"
        "2: subs r2, #1\n bgt 1b\n strd r3, r8, [r0]\n pop {r4-r8, pc}\n"
        "3:\n" RAOT_RANGE_ONE("r4") RAOT_RANGE_ONE("r5") RAOT_RANGE_ONE("r6") RAOT_RANGE_ONE("r7")
        "b 2b\n");
}

/* The largest magnitude of products, which are stored. */
RAOT_NAKED static uint32_t raot_product_peak_blocks(RAOT_ARGUMENT float *products,
                                           RAOT_ARGUMENT const float *x,
                                           RAOT_ARGUMENT const float *factors,
                                           RAOT_ARGUMENT int32_t blocks)
{
    __asm volatile(
        "push {r4-r8, lr}\n mov r8, r0\n movs r0, #0\n"
        "1: vldmia r1!, {s0-s3}\n vldmia r2!, {s4-s7}\n"
        "vmul.f32 s0, s0, s4\n vmul.f32 s1, s1, s5\n vmul.f32 s2, s2, s6\n vmul.f32 s3, s3, s7\n"
        "vmov r4, r5, s0, s1\n vmov r6, r7, s2, s3\n vstmia r8!, {s0-s3}\n"
        "cmp r0, r4, lsl #1\n ittt hs\n cmphs r0, r5, lsl #1\n"
        "cmphs r0, r6, lsl #1\n cmphs r0, r7, lsl #1\n blo 3f\n"
        "2: subs r3, #1\n bgt 1b\n"
        "pop {r4-r8, pc}\n"
        "3:\n" RAOT_GREATEST_TWO("r4", "r5", ", lsl #1", "lo")
        RAOT_GREATEST_TWO("r6", "r7", ", lsl #1", "lo")
        "b 2b\n");
}

/*
 *     r0, r1, r2, r3   results, floats, remaining blocks of eight, factor and offset
 *     r4 to r7         four values in seven bits of fraction
 *     r8, r10          step, three steps
 *     r11              2^25 + 1: the upper word of a rounded product is the nearest integer, for
 *                      halves the one away from 0, because their product exceeds the middle
 */
#define RAOT_QUANTIZE_WHOLE(X) "smmulr " X ", " X ", r11\n ssat " X ", #8, " X "\n"
#define RAOT_QUANTIZE_EACH(FORM, X, BY) FORM " " X ", " X ", " BY "\n"
#define RAOT_QUANTIZE_ALL(FORM, A, B, C, D, BY) \
    RAOT_QUANTIZE_EACH(FORM, A, BY) RAOT_QUANTIZE_EACH(FORM, B, BY) \
    RAOT_QUANTIZE_EACH(FORM, C, BY) RAOT_QUANTIZE_EACH(FORM, D, BY)
#define RAOT_QUANTIZE_PRODUCTS(A, B, C, D) \
    RAOT_QUANTIZE_ALL("vmul.f32", A, B, C, D, "s8") RAOT_QUANTIZE_ALL("vadd.f32", A, B, C, D, "s9") \
    RAOT_QUANTIZE_ALL("vcvt.s16.f32", A, B, C, D, "#7")
#define RAOT_QUANTIZE_FOUR(A, B, C, D) \
    "vmov r4, r5, " A ", " B "\n vmov r6, r7, " C ", " D "\n" \
    RAOT_QUANTIZE_WHOLE("r4") RAOT_QUANTIZE_WHOLE("r5") \
    RAOT_QUANTIZE_WHOLE("r6") RAOT_QUANTIZE_WHOLE("r7") \
    "strb r4, [r0]\n strb r5, [r0, r8]\n strb r6, [r0, r8, lsl #1]\n strb r7, [r0, r10]\n" \
    "add r0, r0, r8, lsl #2\n"
RAOT_NAKED static void raot_quantize_range_blocks(RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const float *x,
                                           RAOT_ARGUMENT int32_t blocks,
                                           RAOT_ARGUMENT const float *by,
                                           RAOT_ARGUMENT int32_t step)
{
    __asm volatile(
        "push {r4-r8, r10, r11, lr}\n ldr r8, [sp, #32]\n vldmia r3, {s8, s9}\n"
        "add r10, r8, r8, lsl #1\n mov r11, #0x02000000\n add r11, #1\n"
        "1: vldmia r1!, {s0-s7}\n"
        RAOT_QUANTIZE_PRODUCTS("s0", "s1", "s2", "s3") RAOT_QUANTIZE_PRODUCTS("s4", "s5", "s6", "s7")
        RAOT_QUANTIZE_FOUR("s0", "s1", "s2", "s3") RAOT_QUANTIZE_FOUR("s4", "s5", "s6", "s7")
        "subs r2, #1\n bgt 1b\n"
        "pop {r4-r8, r10, r11, pc}\n");
}
/*
 *     r0, r1, r2, r3   results, floats, remaining blocks, divisor
 *     r4 to r7         four sums of a quotient and 1.5 * 2^23
 *     r8               which bytes of two of them are kept
 */
RAOT_NAKED static void raot_quantize_row_blocks(RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const float *x,
                                           RAOT_ARGUMENT int32_t blocks,
                                           RAOT_ARGUMENT const float *by,
                                           RAOT_ARGUMENT int32_t kept)
{
    __asm volatile(
        "push {r4-r8, lr}\n ldr r8, [sp, #24]\n and r8, r8, #0x00ff00ff\n vldr s4, [r3]\n"
        "mov r4, #0x4b000000\n orr r4, r4, #0x400000\n vmov s5, r4\n"
        "1: vldmia r1!, {s0-s3}\n"
        "vdiv.f32 s0, s0, s4\n vdiv.f32 s1, s1, s4\n vdiv.f32 s2, s2, s4\n vdiv.f32 s3, s3, s4\n"
        "vadd.f32 s0, s0, s5\n vadd.f32 s1, s1, s5\n vadd.f32 s2, s2, s5\n vadd.f32 s3, s3, s5\n"
        "vmov r4, r5, s0, s1\n vmov r6, r7, s2, s3\n"
        "pkhbt r4, r4, r6, lsl #16\n pkhbt r5, r5, r7, lsl #16\n and r4, r4, r8\n and r5, r5, r8\n"
        "orr r4, r4, r5, lsl #8\n str r4, [r0], #4\n subs r2, #1\n bgt 1b\n"
        "pop {r4-r8, pc}\n");
}
/*
 *     r0, r1, r2, r3   pairs, floats, remaining blocks of eight, divisor
 *     r4 to r7         four sums of a quotient and 1.5 * 2^23, of which SXTB16 keeps the lowest bytes
 *     r8, r10          bytes from pair to pair, three times as many
 */
#define RAOT_QUANTIZE_PAIRS \
    "pkhbt r4, r4, r5, lsl #16\n pkhbt r6, r6, r7, lsl #16\n sxtb16 r4, r4\n sxtb16 r6, r6\n"
RAOT_NAKED static void raot_quantize_pairs_blocks(RAOT_ARGUMENT int16_t *pairs, RAOT_ARGUMENT const float *x,
                                           RAOT_ARGUMENT int32_t blocks,
                                           RAOT_ARGUMENT const float *by,
                                           RAOT_ARGUMENT int32_t step)
{
    __asm volatile(
        "push {r4-r8, r10}\n ldr r8, [sp, #24]\n lsl r8, r8, #2\n add r10, r8, r8, lsl #1\n"
        "vldr s8, [r3]\n mov r4, #0x4b000000\n orr r4, r4, #0x400000\n vmov s9, r4\n"
        "1: vldmia r1!, {s0-s7}\n"
        RAOT_QUANTIZE_ALL("vdiv.f32", "s0", "s1", "s2", "s3", "s8")
        RAOT_QUANTIZE_ALL("vadd.f32", "s0", "s1", "s2", "s3", "s9")
        "vmov r4, r5, s0, s1\n vmov r6, r7, s2, s3\n"
        RAOT_QUANTIZE_EACH("vdiv.f32", "s4", "s8") /* while integers are computed */
        RAOT_QUANTIZE_PAIRS "str r4, [r0]\n str r6, [r0, r8]\n"
        RAOT_QUANTIZE_EACH("vdiv.f32", "s5", "s8") RAOT_QUANTIZE_EACH("vdiv.f32", "s6", "s8")
        RAOT_QUANTIZE_EACH("vdiv.f32", "s7", "s8")
        RAOT_QUANTIZE_ALL("vadd.f32", "s4", "s5", "s6", "s7", "s9")
        "vmov r4, r5, s4, s5\n vmov r6, r7, s6, s7\n" RAOT_QUANTIZE_PAIRS
        "str r4, [r0, r8, lsl #1]\n str r6, [r0, r10]\n add r0, r0, r8, lsl #2\n"
        "subs r2, #1\n bgt 1b\n"
        "pop {r4-r8, r10}\n bx lr\n");
}
/* With a factor, and results of two bytes at any address. */
RAOT_NAKED static void raot_quantize_wide_blocks(RAOT_ARGUMENT int16_t *out, RAOT_ARGUMENT const float *x,
                                           RAOT_ARGUMENT int32_t blocks,
                                           RAOT_ARGUMENT const float *by)
{
    __asm volatile(
        "push {r4-r7}\n vldr s4, [r3]\n"
        "mov r4, #0x4b000000\n orr r4, r4, #0x400000\n vmov s5, r4\n"
        "1: vldmia r1!, {s0-s3}\n"
        "vmul.f32 s0, s0, s4\n vmul.f32 s1, s1, s4\n vmul.f32 s2, s2, s4\n vmul.f32 s3, s3, s4\n"
        "vadd.f32 s0, s0, s5\n vadd.f32 s1, s1, s5\n vadd.f32 s2, s2, s5\n vadd.f32 s3, s3, s5\n"
        "vmov r4, r5, s0, s1\n vmov r6, r7, s2, s3\n"
        "pkhbt r4, r4, r5, lsl #16\n pkhbt r6, r6, r7, lsl #16\n"
        "str r4, [r0], #4\n str r6, [r0], #4\n subs r2, #1\n bgt 1b\n"
        "pop {r4-r7}\n bx lr\n");
}
/* clang-format on */
#endif

static inline int8_t raot_quantize_one(float x, float factor, float offset)
{
    const float value = x * factor + offset;
    const float least = value > -256.0f ? value : -256.0f;
    const float limited = least < 255.0f ? least : 255.0f;
    const int32_t fixed = value == value ? (int32_t)(limited * 128.0f) : 0;
    const int32_t away = fixed < 0 ? (int32_t)63 : 64;

    return raot_clamp_i8((fixed + away) >> 7);
}

#define RAOT_PEAK_ONES(bits)                     \
    /*@ loop unroll 4096; */                     \
    for (; count > 0; count--) {                 \
        bits = raot_magnitude_above(*x++, bits); \
    }
#define RAOT_QUANTIZE_ONES                                       \
    /*@ loop unroll 4096; */                                     \
    for (int32_t i = 0; i < count; i++) {                        \
        out[i * step] = raot_quantize_one(x[i], factor, offset); \
    }
#define RAOT_GREATEST_ONES(bits)                         \
    /*@ loop unroll 4096; */                             \
    for (; count > 0; count--) {                         \
        const int32_t value = (int32_t)raot_bitsf(*x++); \
        bits = value > bits ? value : bits;              \
    }
#if defined(RAOT_QUANTIZE_RANGE_BLOCKS)
#define RAOT_PEAK(bits)                             \
    if (count >= 8) {                               \
        bits = raot_peak_blocks(x, count / 8) >> 1; \
        x += count / 8 * 8;                         \
        count %= 8;                                 \
    }                                               \
    RAOT_PEAK_ONES(bits)
#define RAOT_GREATEST(bits)                                 \
    if (count >= 8) {                                       \
        bits = (int32_t)raot_greatest_blocks(x, count / 8); \
        x += count / 8 * 8;                                 \
        count %= 8;                                         \
    }                                                       \
    RAOT_GREATEST_ONES(bits)
#define RAOT_QUANTIZE_BY                                         \
    if (count >= 8) {                                            \
        raot_quantize_range_blocks(out, x, count / 8, by, step); \
        x += count / 8 * 8;                                      \
        out += count / 8 * 8 * step;                             \
        count %= 8;                                              \
    }                                                            \
    RAOT_QUANTIZE_ONES
#else
#define RAOT_PEAK(bits) RAOT_PEAK_ONES(bits)
#define RAOT_GREATEST(bits) RAOT_GREATEST_ONES(bits)
#define RAOT_QUANTIZE_BY RAOT_QUANTIZE_ONES
#endif
#if defined(RAOT_QUANTIZE_RANGE_BLOCKS)
#define RAOT_RANGE_WHOLE(greatest, lowest)     \
    if (count >= 4) {                          \
        int32_t ends[2];                       \
        raot_range_blocks(ends, x, count / 4); \
        greatest = ends[0];                    \
        lowest = (uint32_t)ends[1];            \
        x += count / 4 * 4;                    \
        count %= 4;                            \
    }
#else
#define RAOT_RANGE_WHOLE(greatest, lowest)
#endif
#define RAOT_RANGE(greatest, lowest)                                      \
    RAOT_RANGE_WHOLE(greatest, lowest)                                    \
    /*@ loop unroll 4096; */                                              \
    for (; count > 0; count--) {                                          \
        const uint32_t value = raot_bitsf(*x++);                          \
        greatest = (int32_t)value > greatest ? (int32_t)value : greatest; \
        lowest = value > lowest ? value : lowest;                         \
    }
#endif

__attribute__((noinline, unused)) static void raot_peak_f32(int32_t *bits, const float *x,
                                                            int32_t count)
{
    uint32_t most_bits = 0u;
    RAOT_PEAK(most_bits)
    *bits = (int32_t)most_bits;
}

__attribute__((noinline, unused)) static void raot_greatest_f32(int32_t *bits, const float *x,
                                                                int32_t count)
{
    int32_t greatest = 0;
    RAOT_GREATEST(greatest)
    *bits = greatest;
}

__attribute__((noinline, unused)) static void raot_range_f32(int32_t *bits, const float *x,
                                                             int32_t count)
{
    int32_t greatest = 0;
    uint32_t lowest = 0u;
    RAOT_RANGE(greatest, lowest)
    bits[0] = greatest;
    bits[1] = (int32_t)lowest;
}

__attribute__((noinline, unused)) static void
raot_quantize_by_s8(int8_t *out, const float *x, const float *by, int32_t count, int32_t step)
{
    const float factor = by[0];
    const float offset = by[1];
    RAOT_QUANTIZE_BY
}

__attribute__((noinline, unused)) static void raot_fill_bytes_u8(uint8_t *out, const uint8_t *value,
                                                                 int32_t count)
{
#if defined(RAOT_MVE)
    const uint8x16_t all = vdupq_n_u8(*value);
    for (; count > 0; count -= 16) {
        vstrbq_p_u8(out, all, vctp8q((uint32_t)count));
        out += 16;
    }
#else
    const uint32_t four = (uint32_t)*value * 0x01010101u;
    /*@ loop unroll 4096; */
    for (; count >= 16; count -= 16) {
        RAOT_COPY(out, &four, sizeof four);
        RAOT_COPY(out + 4, &four, sizeof four);
        RAOT_COPY(out + 8, &four, sizeof four);
        RAOT_COPY(out + 12, &four, sizeof four);
        out += 16;
    }
    /*@ loop unroll 4096; */
    for (; count > 0; count--) {
        *out++ = *value;
    }
#endif
}

#define raot_fill_bytes_s8(out, value, count) \
    raot_fill_bytes_u8((uint8_t *)(out), (const uint8_t *)(value), count)

/* x / by to nearest, halves to even, of a quotient that fits a byte: the lowest byte of the bits of
   x / by + 1.5 * 2^23. */
static inline int32_t raot_quotient_bits(float x, float by)
{
#if defined(RAOT_FLOAT_CALLS)
    const uint32_t bits = raot_bitsf(x);
    const uint32_t by_bits = raot_bitsf(by);
    const uint32_t exponent = bits >> 23 & 0xffu;
    const int32_t power = (int32_t)exponent - (int32_t)(by_bits >> 23);

    /* Normal numbers whose quotient is below 128. */
    if (power <= 6 && by_bits - 0x800000u < 0x7f000000u && exponent - 1u < 254u) {
        const uint32_t digits = (by_bits & 0x7fffffu) | 0x800000u;
        uint32_t twice;
        uint32_t rest;

        if (power < -1) {
            return 0;
        }
        rest = ((bits & 0x7fffffu) | 0x800000u) << (uint32_t)(power + 1);
        twice = rest / digits;
        rest -= twice * digits;
        if ((twice & 1u) == 0u) {
            rest = digits - rest;
        }
        /* Next to a half, the quotient is rounded first. */
        if (rest > digits >> 14) {
            const int32_t whole = (int32_t)((twice + 1u) >> 1);
            return bits >> 31 != 0u ? -whole : whole;
        }
    }
#endif
    return (int32_t)raot_bitsf(x / by + 12582912.0f);
}

__attribute__((noinline, unused)) static void raot_quantize_row_s8(int8_t *out, const float *x,
                                                                   const float *by,
                                                                   const int32_t *kept,
                                                                   int32_t count)
{
    int32_t i = 0;

#if defined(RAOT_QUANTIZE_RANGE_BLOCKS)
    if (count >= 4 && (uintptr_t)out % 4u == 0u) {
        i = count / 4 * 4;
        raot_quantize_row_blocks(out, x, count / 4, by, *kept);
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        out[i] = (int8_t)(raot_quotient_bits(x[i], *by) & *kept);
    }
}

__attribute__((noinline, unused)) static void
raot_quantize_pairs_s16(int16_t *pairs, const float *x, const float *by, const int32_t *kept,
                        int32_t count, int32_t step)
{
    int32_t i = 0;

#if defined(RAOT_QUANTIZE_RANGE_BLOCKS)
    if (count >= 8 && *kept != 0) {
        i = count / 8 * 8;
        raot_quantize_pairs_blocks(pairs, x, count / 8, by, step);
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < (count + 3) / 4 * 4; i++) {
        const int32_t whole = i < count ? raot_quotient_bits(x[i], *by) : 0;

        pairs[i / 2 * 2 * step + i % 2] = (int8_t)(whole & *kept);
    }
}

__attribute__((noinline, unused)) static void raot_quantize_row_s16(int16_t *out, const float *x,
                                                                    const float *by,
                                                                    const int32_t *kept,
                                                                    int32_t count)
{
    int32_t i = 0;

#if defined(RAOT_QUANTIZE_RANGE_BLOCKS)
    if (count >= 4 && *kept != 0) {
        i = count / 4 * 4;
        raot_quantize_wide_blocks(out, x, count / 4, by);
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        out[i] = (int16_t)((int32_t)raot_bitsf(x[i] * *by + 12582912.0f) & *kept);
    }
}

__attribute__((noinline, unused)) static void raot_product_peak_f32(float *products, int32_t *bits,
                                                                    const float *x,
                                                                    const float *factors,
                                                                    int32_t count)
{
    uint32_t most = 0u;
    int32_t i = 0;

#if defined(RAOT_QUANTIZE_RANGE_BLOCKS)
    if (count >= 4) {
        i = count / 4 * 4;
        most = raot_product_peak_blocks(products, x, factors, count / 4) >> 1;
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        products[i] = x[i] * factors[i];
        most = raot_magnitude_above(products[i], most);
    }
    *bits = (int32_t)most;
}

#endif
