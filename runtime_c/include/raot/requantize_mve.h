/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_mve.h - requantize_nhwc.h and requantize_channel.h for Cortex-M with Helium.
 *
 * Assembly, because GCC 12 keeps the constants of these loops in memory and copies vectors. Sums
 * are scaled in 32 bits. Even ones saturate to the lower and odd ones to the upper halves of 32-bit
 * lanes; the 16-bit lanes are clamped and stored as bytes.
 */
#ifndef RAOT_REQUANTIZE_MVE_H
#define RAOT_REQUANTIZE_MVE_H

#include <stdint.h>

#include "mve.h"

#if defined(RAOT_MVE_F32) && defined(RAOT_ASM_THUMB)
#define RAOT_REQUANTIZE_MVE 1

/* clang-format off */
#define RAOT_REQUANTIZE_PUSH \
    "push {r4, r5, r6, r7, r8, r10, r11, lr}\n vpush {d8, d9, d10, d11, d12, d13, d14, d15}\n"
#define RAOT_REQUANTIZE_POP \
    "vpop {d8, d9, d10, d11, d12, d13, d14, d15}\n pop {r4, r5, r6, r7, r8, r10, r11, pc}\n"

/* Negative sums are decremented, so that halves round away from zero. */
#define RAOT_LANES_NOT_LOWERED(x, free)
#define RAOT_LANES_LOWERED(x, free) \
    "vshr.s32 " free ", " x ", #31\n vadd.i32 " x ", " x ", " free "\n"

/* Blocks of channels */

/* Sizes of the functions below. `rest`: bytes between the sums of two pairs of positions. */
struct raot_requantize_blocks {
    int32_t blocks;
    int32_t positions;
    int32_t out_step;
    int32_t rest;
    int32_t channel_step;
    int32_t zero;
    int32_t low;
    int32_t high;
};

/* Four channels of positions x and y. */
#define RAOT_CHANNELS_F32(x, y)                                           \
    "vldrw.32 q4, [r12], #16\n"                                           \
    "vcvt.f32.s32 " x ", " x "\n vcvt.f32.s32 " y ", " y "\n"             \
    "vmul.f32 " x ", " x ", q4\n vmul.f32 " y ", " y ", q4\n"             \
    "vcvtn.s32.f32 " x ", " x "\n vcvtn.s32.f32 " y ", " y "\n"
#define RAOT_CHANNELS_I32(x, y, MULTIPLY, LOWER)                          \
    "vldrw.32 q4, [r12], #16\n"                                           \
    MULTIPLY " " x ", " x ", q4\n" MULTIPLY " " y ", " y ", q4\n"         \
    LOWER(x, "q4") LOWER(y, "q4") "vldrw.32 q4, [r12], #16\n"             \
    "vrshl.s32 " x ", " x ", q4\n vrshl.s32 " y ", " y ", q4\n"
#define RAOT_CHANNELS_NEAREST(x, y) RAOT_CHANNELS_I32(x, y, "vmulh.s32", RAOT_LANES_NOT_LOWERED)
#define RAOT_CHANNELS_ABOVE(x, y) RAOT_CHANNELS_I32(x, y, "vqrdmulh.s32", RAOT_LANES_NOT_LOWERED)
#define RAOT_CHANNELS_TWICE(x, y) RAOT_CHANNELS_I32(x, y, "vqrdmulh.s32", RAOT_LANES_LOWERED)

/*
 * Blocks of eight channels of all positions, two at a time. An odd last position is y, too; x is
 * stored behind it.
 *
 *     r0, r1, r2     results, sums, and scales
 *     r11, r5        blocks, and remaining positions
 *     r6, r7, r8     steps in bytes: out_step, rest, channel_step
 *     r10            zero
 *     r4, r3, r12    results of x, results of y, and scales of the inner loop
 *     q5, q6, q7     offsets of eight channels, low, and high
 */
#define RAOT_REQUANTIZE_BLOCKS(NAME, T, CHANNELS, CLAMP, STORE)                                          \
    RAOT_NAKED static void NAME(                                                                  \
        RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const int32_t *sums,                             \
        RAOT_ARGUMENT const T *scales, RAOT_ARGUMENT const struct raot_requantize_blocks *sizes)  \
    {                                                                                             \
        __asm volatile(                                                                           \
            RAOT_REQUANTIZE_PUSH                                                                  \
            "ldrd r4, r5, [r3, #24]\n ldrd r6, r7, [r3, #8]\n ldrd r8, r10, [r3, #16]\n"          \
            "vdup.16 q6, r4\n vdup.16 q7, r5\n movs r4, #0\n vidup.u16 q5, r4, #1\n"              \
            "vmul.i16 q5, q5, r8\n ldrd r11, r5, [r3]\n"                                 \
            "1:\n mov r4, r0\n add r3, r0, r6\n cmp r5, #1\n it eq\n moveq r3, r0\n"             \
            "mov r12, r2\n dls lr, r11\n"                                                          \
            "2:\n vldrw.32 q0, [r1], #16\n vldrw.32 q1, [r1], #16\n" CHANNELS("q0", "q1")         \
            "vldrw.32 q2, [r1], #16\n vldrw.32 q3, [r1], #16\n" CHANNELS("q2", "q3")              \
            "vqmovnb.s32 q0, q0\n vqmovnb.s32 q1, q1\n vqmovnt.s32 q0, q2\n"                      \
            "vqmovnt.s32 q1, q3\n vqadd.s16 q0, q0, r10\n vqadd.s16 q1, q1, r10\n"                \
            CLAMP STORE                                   \
            "le lr, 2b\n add r1, r7\n add r0, r0, r6, lsl #1\n subs r5, #2\n bgt 1b\n"            \
            RAOT_REQUANTIZE_POP);                                                                 \
    }

#define RAOT_STORE_CHANNELS "vstrb.16 q1, [r3], #8\n vstrb.16 q0, [r4], #8\n"
#define RAOT_STORE_CHANNELS_APART                                                              \
    "vstrb.16 q1, [r3, q5]\n add r3, r3, r8, lsl #3\n"                                         \
    "vstrb.16 q0, [r4, q5]\n add r4, r4, r8, lsl #3\n"

/* All signed bytes are reached by saturation alone. */
#define RAOT_CLAMP_CHANNELS                                                                    \
    "vmin.s16 q0, q0, q7\n vmin.s16 q1, q1, q7\n vmax.s16 q0, q0, q6\n vmax.s16 q1, q1, q6\n"
#define RAOT_SATURATE_CHANNELS "vqmovnb.s16 q0, q0\n vqmovnb.s16 q1, q1\n"

#define RAOT_REQUANTIZE_BLOCKS_FORM(NAME, T, CHANNELS)                                           \
    RAOT_REQUANTIZE_BLOCKS(NAME##_contiguous, T, CHANNELS, RAOT_CLAMP_CHANNELS,                  \
                           RAOT_STORE_CHANNELS)                                                  \
    RAOT_REQUANTIZE_BLOCKS(NAME##_saturated, T, CHANNELS, RAOT_SATURATE_CHANNELS,                \
                           RAOT_STORE_CHANNELS)                                                  \
    RAOT_REQUANTIZE_BLOCKS(NAME##_apart, T, CHANNELS, RAOT_CLAMP_CHANNELS, RAOT_STORE_CHANNELS_APART)

RAOT_REQUANTIZE_BLOCKS_FORM(raot_requantize_blocks_f32, float, RAOT_CHANNELS_F32)
RAOT_REQUANTIZE_BLOCKS_FORM(raot_requantize_blocks_nearest, int32_t, RAOT_CHANNELS_NEAREST)
RAOT_REQUANTIZE_BLOCKS_FORM(raot_requantize_blocks_above, int32_t, RAOT_CHANNELS_ABOVE)
RAOT_REQUANTIZE_BLOCKS_FORM(raot_requantize_blocks_twice, int32_t, RAOT_CHANNELS_TWICE)

/* Lines of one channel */

/* Sizes of the functions below; each sum of a line begins with its start. For the lines of one
 * channel, the start and the scale are those of the first line. */
struct raot_requantize_lines {
    int32_t lines;
    int32_t count;
    int32_t line_step;
    int32_t step;
    int32_t zero;
    int32_t low;
    int32_t high;
    int32_t sum_step;
    const int32_t *start;
};

/* Eight positions: the multiplier is in r10 and q2, the shift in r11. */
#define RAOT_POSITIONS_F32                                                \
    "vcvt.f32.s32 q0, q0\n vcvt.f32.s32 q1, q1\n"                         \
    "vmul.f32 q0, q0, r10\n vmul.f32 q1, q1, r10\n"                       \
    "vcvtn.s32.f32 q0, q0\n vcvtn.s32.f32 q1, q1\n"
#define RAOT_POSITIONS_SHIFTED "vrshl.s32 q0, r11\n vrshl.s32 q1, r11\n"
#define RAOT_POSITIONS_NEAREST \
    "vmulh.s32 q0, q0, q2\n vmulh.s32 q1, q1, q2\n" RAOT_POSITIONS_SHIFTED
#define RAOT_POSITIONS_ABOVE \
    "vqrdmulh.s32 q0, q0, r10\n vqrdmulh.s32 q1, q1, r10\n" RAOT_POSITIONS_SHIFTED
#define RAOT_POSITIONS_TWICE                                              \
    "vqrdmulh.s32 q0, q0, r10\n vqrdmulh.s32 q1, q1, r10\n"               \
    RAOT_LANES_LOWERED("q0", "q3") RAOT_LANES_LOWERED("q1", "q4") RAOT_POSITIONS_SHIFTED

#define RAOT_EIGHT_POSITIONS(POSITIONS, CLAMP)                                                        \
    "vld20.32 {q0, q1}, [r4]\n vld21.32 {q0, q1}, [r4]!\n"                                     \
    "vadd.i32 q0, q0, r8\n vadd.i32 q1, q1, r8\n" POSITIONS                                    \
    "vqmovnb.s32 q0, q0\n vqmovnt.s32 q0, q1\n vqadd.s16 q0, q0, r12\n"                        \
    CLAMP

/*
 * All positions, eight at a time:
 *
 *     r0, r1         results and sums
 *     r2             scales
 *     r3             sizes; the number of lines and the starts are those that remain
 *     r4, r5         sums and results of the inner loop
 *     r6, r7         blocks of eight, and bytes between their results
 *     r8, r10, r11   start, multiplier, and shift
 *     r12            zero
 *     q5, q6, q7     offsets of eight positions, low, and high
 */
#define RAOT_REQUANTIZE_LINES(NAME, T, ONCE, EACH, POSITIONS, CLAMP, STORE, SOME)                      \
    RAOT_NAKED static void NAME(                                                                \
        RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const int32_t *sums,                           \
        RAOT_ARGUMENT const T *scale, RAOT_ARGUMENT struct raot_requantize_lines *sizes)        \
    {                                                                                           \
        __asm volatile(                                                                         \
            RAOT_REQUANTIZE_PUSH                                                                \
            "ldrd r7, r12, [r3, #12]\n ldrd r4, r5, [r3, #20]\n"                                \
            "vdup.16 q6, r4\n vdup.16 q7, r5\n movs r4, #0\n vidup.u16 q5, r4, #1\n"            \
            "vmul.i16 q5, q5, r7\n lsls r7, r7, #3\n ldr r6, [r3, #4]\n"                        \
            "and r4, r6, #7\n vctp.16 r4\n lsrs r6, r6, #3\n" ONCE                              \
            "1:\n" EACH "mov r4, r1\n mov r5, r0\n wls lr, r6, 3f\n"                            \
            "2:\n" RAOT_EIGHT_POSITIONS(POSITIONS, CLAMP) STORE "le lr, 2b\n"                          \
            "3:\n ldr lr, [r3, #4]\n lsls lr, lr, #29\n beq 4f\n"                               \
            RAOT_EIGHT_POSITIONS(POSITIONS, CLAMP) "vpst\n" SOME                                       \
            "4:\n ldr r4, [r3, #8]\n ldr r5, [r3, #28]\n ldr lr, [r3]\n add r0, r4\n"            \
            "add r1, r1, r5, lsl #2\n subs lr, #1\n str lr, [r3]\n bgt 1b\n"                    \
            RAOT_REQUANTIZE_POP);                                                               \
    }

#define RAOT_LINE_START "ldr r4, [r3, #32]\n ldr r8, [r4], #4\n str r4, [r3, #32]\n"
#define RAOT_LINE_F32 "ldr r10, [r2], #4\n" RAOT_LINE_START
#define RAOT_LINE_I32 "ldrd r10, r11, [r2], #8\n vdup.32 q2, r10\n" RAOT_LINE_START
#define RAOT_CLAMP_POSITIONS "vmin.s16 q0, q0, q7\n vmax.s16 q0, q0, q6\n"
#define RAOT_SATURATE_POSITIONS "vqmovnb.s16 q0, q0\n"
#define RAOT_STORE_POSITIONS "vstrb.16 q0, [r5], #8\n", "vstrbt.16 q0, [r5]\n"
#define RAOT_STORE_POSITIONS_APART "vstrb.16 q0, [r5, q5]\n add r5, r7\n", "vstrbt.16 q0, [r5, q5]\n"
#define RAOT_REQUANTIZE_LINES_OF(...) RAOT_REQUANTIZE_LINES(__VA_ARGS__)
#define RAOT_REQUANTIZE_LINES_FORM(NAME, T, LINE, POSITIONS)                                      \
    RAOT_REQUANTIZE_LINES_OF(NAME##_contiguous, T, LINE, "", POSITIONS, RAOT_CLAMP_POSITIONS,     \
                             RAOT_STORE_POSITIONS)                                                \
    RAOT_REQUANTIZE_LINES_OF(NAME##_apart, T, LINE, "", POSITIONS, RAOT_CLAMP_POSITIONS,          \
                             RAOT_STORE_POSITIONS_APART)                                          \
    RAOT_REQUANTIZE_LINES_OF(NAME##_contiguous_each, T, "", LINE, POSITIONS,                      \
                             RAOT_CLAMP_POSITIONS, RAOT_STORE_POSITIONS)                          \
    RAOT_REQUANTIZE_LINES_OF(NAME##_apart_each, T, "", LINE, POSITIONS, RAOT_CLAMP_POSITIONS,     \
                             RAOT_STORE_POSITIONS_APART)                                          \
    RAOT_REQUANTIZE_LINES_OF(NAME##_saturated_each, T, "", LINE, POSITIONS,                       \
                             RAOT_SATURATE_POSITIONS, RAOT_STORE_POSITIONS_APART)

RAOT_REQUANTIZE_LINES_FORM(raot_requantize_lines_f32, float, RAOT_LINE_F32, RAOT_POSITIONS_F32)
RAOT_REQUANTIZE_LINES_FORM(raot_requantize_lines_nearest, int32_t, RAOT_LINE_I32,
                           RAOT_POSITIONS_NEAREST)
RAOT_REQUANTIZE_LINES_FORM(raot_requantize_lines_above, int32_t, RAOT_LINE_I32,
                           RAOT_POSITIONS_ABOVE)
RAOT_REQUANTIZE_LINES_FORM(raot_requantize_lines_twice, int32_t, RAOT_LINE_I32,
                           RAOT_POSITIONS_TWICE)
/* clang-format on */
#endif

#endif
