/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_lines.h - quantization of lines of floats to bytes.
 *
 *     out[j * line_step + i * step] = x[j * x_step + i] / scale, rounded to nearest, halves to
 *                                     even, plus zero, saturated
 *
 *     raot_quantize_lines_s8       the zero point is a number
 *     raot_quantize_lines_from_s8  it is in memory
 *
 * NaN becomes 0. With Helium, which has no division of vectors, and on other Cortex-M with an FPU,
 * where a division takes 14 cycles, x is multiplied by the reciprocal of the scale. The integer can
 * differ from that of the quotient only where the product is next to the middle between two
 * integers: the errors of both are below 2^-14 + 2^-15 where the magnitude is below 2^9, and
 * results are saturated above it. Products have 16 bits of fraction, cut off, which adds 2^-16.
 * Blocks with a product within 2^-13 of a middle are divided. Seven results are at most 65535 bytes
 * apart.
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
        /*@ loop unroll 4096; */                                                                 \
        for (int32_t i = 0; i < count; i++) {                                                    \
            out[i * step] = raot_quantize_##suffix(x[i] / scale, zero);                          \
        }                                                                                        \
    }
RAOT_QUANTIZE_DIVIDED(i8, int8_t)
RAOT_QUANTIZE_DIVIDED(u8, uint8_t)

#if defined(RAOT_MVE_F32)
#define RAOT_QUANTIZE_BLOCK 128

/* The greatest of |fraction| * 2^16, where fractions are at most a half. */
#define RAOT_QUANTIZE_MIDDLE 0x7FF8u /* 2^15 - 2^3 */

#if defined(RAOT_ASM_INLINE)
/* Compilers keep no vectors of both halves, and do not narrow products as they round them. */
/* clang-format off */
#define RAOT_QUANTIZE_BLOCKS(narrow, unused)                                                  \
    __asm volatile(                                                                           \
        "wls lr, %[blocks], 2f\n"                                                             \
        "1:\n vld20.32 {q0, q1}, [%[from]]\n vld21.32 {q0, q1}, [%[from]]!\n"                 \
        "vmul.f32 q0, q0, %[by]\n vmul.f32 q1, q1, %[by]\n"                                   \
        "vfma.f32 %q[total], q0, q1\n"                                                        \
        "vcvt.s32.f32 q0, q0, #16\n vcvt.s32.f32 q1, q1, #16\n"                               \
        "vqrshrnb.s32 q2, q0, #16\n vqrshrnt.s32 q2, q1, #16\n"                               \
        "vmovnt.i32 q0, q1\n vqadd.s16 q2, q2, %[zero]\n"                                     \
        "vmaxa.s16 %q[worst], q0\n " narrow ".s16 q2, q2\n"                                   \
        "vstrb.16 q2, [%[to], %q[apart]]\n add %[to], %[to], %[next]\n le lr, 1b\n"           \
        "2:\n"                                                                                \
        : [from] "+&r"(from), [to] "+&r"(to), [worst] "+&w"(worst), [total] "+&w"(total)          \
        : [blocks] "r"(blocks), [by] "r"(by), [next] "r"(8 * step), [zero] "r"(zero),         \
          [apart] "w"(apart)                                                                  \
        : "lr", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",     \
          "cc", "memory");
/* clang-format on */
#else
#define RAOT_QUANTIZE_BLOCKS(unused, NARROW)                                      \
    for (int32_t n = blocks; n > 0; n--) {                                        \
        const float32x4x2_t pairs = vld2q_f32(from);                              \
        const float32x4_t lower = vmulq_n_f32(pairs.val[0], by);                  \
        const float32x4_t upper = vmulq_n_f32(pairs.val[1], by);                  \
        const int32x4_t even = vcvtq_n_s32_f32(lower, 16);                        \
        const int32x4_t odd = vcvtq_n_s32_f32(upper, 16);                         \
        int16x8_t code = vqrshrnbq_n_s32(vdupq_n_s16(0), even, 16);               \
        total = vfmaq_f32(total, lower, upper);                                   \
        worst = vmaxaq_s16(worst, vmovntq_s32(vreinterpretq_s16_s32(even), odd)); \
        code = vqaddq_n_s16(vqrshrntq_n_s32(code, odd, 16), (int16_t)zero);       \
        vstrbq_scatter_offset_u16((uint8_t *)to, apart, NARROW(code));            \
        from += 8;                                                                \
        to += 8 * step;                                                           \
    }
#endif

/* A line in blocks of eight; the last one may overlap the one before. */
#define RAOT_QUANTIZE_LINE(suffix, byte, narrow, NARROW)                                     \
    const int32_t left = count - first;                                                      \
    const int32_t block = left < RAOT_QUANTIZE_BLOCK ? left : RAOT_QUANTIZE_BLOCK;           \
    int32_t blocks = first + block < 8 ? 0 : block / 8;                                      \
    uint16x8_t worst = vdupq_n_u16(0u);                                                      \
    float32x4_t total = vdupq_n_f32(0.0f);                                                   \
    const float *from = x + first;                                                           \
    byte *to = out + first * step;                                                           \
    RAOT_QUANTIZE_BLOCKS(narrow, NARROW)                                                     \
    if (block % 8 != 0 && first + block >= 8) {                                              \
        from -= 8 - block % 8;                                                               \
        to -= (8 - block % 8) * step;                                                        \
        blocks = 1;                                                                          \
        RAOT_QUANTIZE_BLOCKS(narrow, NARROW)                                                 \
    }                                                                                        \
    if (first + block < 8 || !normal || vcmpneq_f32(total, total) != 0u ||                   \
        vmaxvq_u16(0u, worst) >= RAOT_QUANTIZE_MIDDLE) {                                     \
        const int32_t again = block < 8 && first >= 8 ? 8 : block;                           \
        raot_quantize_divided_##suffix(out + (first + block - again) * step,                 \
                                       x + first + block - again, scale, again, step, zero); \
    }                                                                                        \
    first += block;
#if defined(RAOT_ASM_THUMB)
/* Sizes of the functions below: bytes of lines, floats and blocks, and from the first block of a
 * line to the last one, which overlaps the one before; 0 where it is whole. */
struct raot_quantize_short {
    float by;
    int32_t zero;
    int32_t step;
    int32_t blocks;
    int32_t lines;
    int32_t next;
    int32_t x_step;
    int32_t line_step;
    int32_t x_last;
    int32_t last;
};

/*
 * Lines of at least a block. Returns whether a product is next to a middle, or no number.
 *
 *     r0, r1, r12, r2   line and block of the results, of the floats
 *     r3, r4            remaining lines, blocks of a line
 *     r5 to r8, r10     next, x_step, line_step, x_last, last
 *     q3, q4            worst, total
 *     q5, q6, q7        offsets of eight results, zero, by
 */
/* clang-format off */
#define RAOT_QUANTIZE_EIGHT(NARROW) \
    "vld20.32 {q0, q1}, [r2]\n vld21.32 {q0, q1}, [r2]!\n" \
    "vmul.f32 q0, q0, q7\n vmul.f32 q1, q1, q7\n vfma.f32 q4, q0, q1\n" \
    "vcvt.s32.f32 q0, q0, #16\n vcvt.s32.f32 q1, q1, #16\n" \
    "vqrshrnb.s32 q2, q0, #16\n vqrshrnt.s32 q2, q1, #16\n" \
    "vmovnt.i32 q0, q1\n vqadd.s16 q2, q2, q6\n vmaxa.s16 q3, q0\n" \
    NARROW ".s16 q2, q2\n vstrb.16 q2, [r12, q5]\n"
#define RAOT_QUANTIZE_SHORT(suffix, byte, NARROW) \
    RAOT_NAKED static int32_t raot_quantize_short_##suffix( \
        RAOT_ARGUMENT byte *out, RAOT_ARGUMENT const float *x, \
        RAOT_ARGUMENT const struct raot_quantize_short *sizes) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n vpush {d8-d15}\n" \
            "ldrd r3, r4, [r2]\n vdup.32 q7, r3\n vdup.16 q6, r4\n" \
            "ldrd r3, r4, [r2, #8]\n movs r6, #0\n vidup.u16 q5, r6, #1\n vmul.i16 q5, q5, r3\n" \
            "movs r6, #0\n vdup.32 q3, r6\n vdup.32 q4, r6\n" \
            "ldrd r3, r5, [r2, #16]\n ldrd r6, r7, [r2, #24]\n ldrd r8, r10, [r2, #32]\n" \
            "1:\n cmp r8, #0\n beq 2f\n add r2, r1, r8\n add r12, r0, r10\n" \
            RAOT_QUANTIZE_EIGHT(NARROW) \
            "2:\n mov r2, r1\n mov r12, r0\n dls lr, r4\n" \
            "3:\n" RAOT_QUANTIZE_EIGHT(NARROW) "add r12, r5\n le lr, 3b\n" \
            "add r1, r6\n add r0, r7\n subs r3, #1\n bgt 1b\n" \
            "movs r0, #0\n vmaxv.u16 r0, q3\n movw r1, #0x7FF8\n" \
            "vcmp.f32 ne, q4, q4\n vmrs r2, p0\n lsls r2, r2, #16\n" \
            "it ne\n movne r0, r1\n cmp r0, r1\n ite hs\n movhs r0, #1\n movlo r0, #0\n" \
            "vpop {d8-d15}\n pop {r4-r8, r10, r11, pc}\n"); \
    }
RAOT_QUANTIZE_SHORT(i8, int8_t, "vqmovnb")
RAOT_QUANTIZE_SHORT(u8, uint8_t, "vqmovunb")
/* clang-format on */
#undef RAOT_QUANTIZE_EIGHT
#undef RAOT_QUANTIZE_SHORT

/* As many short lines as have the elements of a block. */
#define RAOT_QUANTIZE_SHORT_LINES(suffix, byte)                                               \
    const int32_t most = RAOT_QUANTIZE_BLOCK / (count > 0 ? count : 1);                       \
    while (normal && lines > 0 && count >= 8 && most > 0) {                                   \
        const int32_t some = lines < most ? lines : most;                                     \
        const int32_t left = count % 8 != 0 ? count - 8 : 0;                                  \
        const struct raot_quantize_short sizes =                                              \
            {                                                                                 \
                by,       zero,       step,      count / 8, some,                             \
                8 * step, 4 * x_step, line_step, 4 * left,  left * step,                      \
        };                                                                                    \
        const int again = raot_quantize_short_##suffix(out, x, &sizes);                       \
        for (int32_t j = 0; again != 0 && j < some; j++) {                                    \
            raot_quantize_divided_##suffix(out + j * line_step, x + j * x_step, scale, count, \
                                           step, zero);                                       \
        }                                                                                     \
        lines -= some;                                                                        \
        out += lines > 0 ? some * line_step : 0;                                              \
        x += lines > 0 ? some * x_step : 0;                                                   \
    }
#endif
#define RAOT_QUANTIZE_SETUP                                                   \
    const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step); \
    const float by = 1.0f / scale;                                            \
    const int normal = raot_absf(by) > 0x1p-120f && raot_absf(by) < 0x1p120f;
#define RAOT_NARROW_I8(code) vreinterpretq_u16_s8(vqmovnbq_s16(vreinterpretq_s8_s16(code), code))
#define RAOT_NARROW_U8(code) vreinterpretq_u16_u8(vqmovunbq_s16(vreinterpretq_u8_s16(code), code))
#elif defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && defined(__ARM_FP) && (__ARM_FP & 4)
#define RAOT_QUANTIZE_BLOCK 64

struct raot_quantize {
    float by;
    int32_t step;
    int32_t offset;
};

/*
 * Four at a time: the products in 16 bits of fraction, plus the zero point, a half, and 8 * 2^-16.
 * They are next to a middle where the lower 16 bits are below 16. Returns whether any one is, or
 * their sum is NaN.
 *
 *     r0, r1, r2     results, floats, remaining blocks
 *     r4, r5, r6, r7 step, offset, whether any is next to a middle, 16 in both halves
 *     r3, r12, lr    two results
 *     s0 to s3       products; s4, s5: their sum, the factor
 */
/* clang-format off */
#define RAOT_QUANTIZE_BYTE(X, SATURATE) \
    SATURATE " " X ", #8, " X ", asr #16\n strb " X ", [r0]\n add r0, r4\n"
#define RAOT_QUANTIZE_TWO(A, B, SATURATE) \
    "vmov r3, r12, " A ", " B "\n qadd r3, r3, r5\n qadd r12, r12, r5\n" \
    "pkhbt lr, r3, r12, lsl #16\n uqsub16 lr, r7, lr\n orr r6, r6, lr\n" \
    RAOT_QUANTIZE_BYTE("r3", SATURATE) RAOT_QUANTIZE_BYTE("r12", SATURATE)
#define RAOT_QUANTIZE_BLOCKS(suffix, byte, SATURATE) \
    RAOT_NAKED static int32_t raot_quantize_blocks_##suffix( \
        RAOT_ARGUMENT byte *out, RAOT_ARGUMENT const float *x, RAOT_ARGUMENT int32_t blocks, \
        RAOT_ARGUMENT const struct raot_quantize *sizes) \
    { \
        __asm volatile( \
            "push {r4-r7, lr}\n vldr s5, [r3]\n ldrd r4, r5, [r3, #4]\n" \
            "movs r6, #0\n mov r7, #0x100010\n vmov s4, r6\n" \
            "1: vldmia r1!, {s0-s3}\n" \
            "vmul.f32 s0, s0, s5\n vmul.f32 s1, s1, s5\n vmul.f32 s2, s2, s5\n vmul.f32 s3, s3, s5\n" \
            "vadd.f32 s4, s4, s0\n vcvt.s32.f32 s0, s0, #16\n" \
            "vadd.f32 s4, s4, s1\n vcvt.s32.f32 s1, s1, #16\n" \
            "vadd.f32 s4, s4, s2\n vcvt.s32.f32 s2, s2, #16\n" \
            "vadd.f32 s4, s4, s3\n vcvt.s32.f32 s3, s3, #16\n" \
            RAOT_QUANTIZE_TWO("s0", "s1", SATURATE) RAOT_QUANTIZE_TWO("s2", "s3", SATURATE) \
            "subs r2, #1\n bne 1b\n" \
            "vcmp.f32 s4, s4\n vmrs APSR_nzcv, fpscr\n it vs\n movvs r6, #1\n" \
            "mov r0, r6\n pop {r4-r7, pc}\n"); \
    }
RAOT_QUANTIZE_BLOCKS(i8, int8_t, "ssat")
RAOT_QUANTIZE_BLOCKS(u8, uint8_t, "usat")
#undef RAOT_QUANTIZE_BLOCKS
/* clang-format on */

#define RAOT_QUANTIZE_LINE(suffix, byte, narrow, NARROW)                          \
    const int32_t left = count - first;                                           \
    const int32_t most = left < RAOT_QUANTIZE_BLOCK ? left : RAOT_QUANTIZE_BLOCK; \
    const int32_t block = most < 4 ? most : most / 4 * 4;                         \
    byte *const to = out + first * step;                                          \
    if (block < 4 || !normal ||                                                   \
        raot_quantize_blocks_##suffix(to, x + first, block / 4, &sizes) != 0) {   \
        raot_quantize_divided_##suffix(to, x + first, scale, block, step, zero);  \
    }                                                                             \
    first += block;
#define RAOT_QUANTIZE_SETUP                                                   \
    const float by = 1.0f / scale;                                            \
    const int normal = raot_absf(by) > 0x1p-120f && raot_absf(by) < 0x1p120f; \
    const struct raot_quantize sizes = {by, step, zero * 65536 + 32776};
#else
#define RAOT_QUANTIZE_LINE(suffix, byte, narrow, NARROW)              \
    raot_quantize_divided_##suffix(out, x, scale, count, step, zero); \
    first = count;
#define RAOT_QUANTIZE_SETUP
#endif

/* Sizes of the functions below, by name. */
struct raot_quantize_lines {
    int32_t lines;
    int32_t count;
    int32_t line_step;
    int32_t x_step;
    int32_t step;
    int32_t zero;
};

struct raot_quantize_lines_from {
    int32_t lines;
    int32_t count;
    int32_t line_step;
    int32_t x_step;
    int32_t step;
};

#if !defined(RAOT_QUANTIZE_SHORT_LINES)
#define RAOT_QUANTIZE_SHORT_LINES(suffix, byte)
#endif
#define RAOT_QUANTIZE_LINES(suffix, byte, narrow, NARROW)    \
    RAOT_QUANTIZE_SETUP                                      \
    RAOT_QUANTIZE_SHORT_LINES(suffix, byte)                  \
    /*@ loop unroll 4096; */                                 \
    for (int32_t j = lines; j > 0; j--) {                    \
        int32_t first = 0;                                   \
        /*@ loop unroll 4096; */                             \
        while (first < count) {                              \
            RAOT_QUANTIZE_LINE(suffix, byte, narrow, NARROW) \
        }                                                    \
        out += j > 1 ? line_step : 0;                        \
        x += j > 1 ? x_step : 0;                             \
    }

__attribute__((noinline, unused)) static void
raot_quantize_lines_s8_unpacked(int8_t *out, const float *x, const float *scales, int32_t lines,
                                int32_t count, int32_t line_step, int32_t x_step, int32_t step,
                                int32_t zero)
{
    const float scale = *scales;
    RAOT_QUANTIZE_LINES(i8, int8_t, "vqmovnb", RAOT_NARROW_I8)
}

__attribute__((noinline, unused)) static void
raot_quantize_lines_u8_unpacked(uint8_t *out, const float *x, const float *scales, int32_t lines,
                                int32_t count, int32_t line_step, int32_t x_step, int32_t step,
                                int32_t zero)
{
    const float scale = *scales;
    RAOT_QUANTIZE_LINES(u8, uint8_t, "vqmovunb", RAOT_NARROW_U8)
}

#define raot_quantize_lines_s8(out, x, scales, sizes)                                   \
    raot_quantize_lines_s8_unpacked(out, x, scales, (sizes)->lines, (sizes)->count,     \
                                    (sizes)->line_step, (sizes)->x_step, (sizes)->step, \
                                    (sizes)->zero)
#define raot_quantize_lines_u8(out, x, scales, sizes)                                   \
    raot_quantize_lines_u8_unpacked(out, x, scales, (sizes)->lines, (sizes)->count,     \
                                    (sizes)->line_step, (sizes)->x_step, (sizes)->step, \
                                    (sizes)->zero)

#define raot_quantize_lines_from_s8(out, x, scales, zeros, sizes)                   \
    raot_quantize_lines_s8_unpacked(out, x, scales, (sizes)->lines, (sizes)->count, \
                                    (sizes)->line_step, (sizes)->x_step, (sizes)->step, *(zeros))
#define raot_quantize_lines_from_u8(out, x, scales, zeros, sizes)                   \
    raot_quantize_lines_u8_unpacked(out, x, scales, (sizes)->lines, (sizes)->count, \
                                    (sizes)->line_step, (sizes)->x_step, (sizes)->step, *(zeros))

#endif
