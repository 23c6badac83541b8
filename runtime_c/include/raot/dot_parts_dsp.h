/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_parts_dsp.h - dot_parts.h by SMLAD, for Cortex-M with the DSP extension and an FPU.
 *
 * Each part takes a multiply-add for two weights, and weights are extended or masked once for both
 * parts of the row.
 */
#ifndef RAOT_DOT_PARTS_DSP_H
#define RAOT_DOT_PARTS_DSP_H

#include <stdint.h>

#include "assembly.h"

#if !defined(__OPTIMIZE_SIZE__)
#define RAOT_PARTS_ASM 4 /* steps of blocks */
/*
 * Adds the integers of some lines to sums of blocks of two columns.
 *
 *     r10, r12          sums of the lower parts of both columns
 *     r11, lr           sums of the upper parts
 *     r0, r1            parts, weights
 *     r2 to r5          lower and upper parts of four steps; behind a line, what [sp] has
 *     r6 to r8          weights; with weights of 4 bits, r8 is a mask
 *     s0, s1            sums of all lines
 *     [sp]              scales, units, offsets; from scales to those of the next line, in bytes;
 *                       the end of the units
 *     [sp, #20]         sums, parts, scales
 *     [sp, #64]         arguments: units, their end, offsets; from scales to those of the next line
 *                       and from the end of the weights to those of the next block, in bytes;
 *                       blocks
 */
/* clang-format off */
#define RAOT_PARTS_BEGUN(SUM, W, X) "smuad " SUM ", " W ", " X "\n"
#define RAOT_PARTS_ADDED(SUM, W, X) "smlad " SUM ", " W ", " X ", " SUM "\n"
/* Two steps of a column, those of the first or the second word of each part. */
#define RAOT_PARTS_FIRST(MULTIPLY, W, LOWER, UPPER) \
    MULTIPLY(LOWER, W, "r2") MULTIPLY(UPPER, W, "r4")
#define RAOT_PARTS_SECOND(W, LOWER, UPPER) \
    RAOT_PARTS_ADDED(LOWER, W, "r3") RAOT_PARTS_ADDED(UPPER, W, "r5")
#define RAOT_PARTS_FOUR(MULTIPLY, W, LOWER, UPPER) \
    "sxtb16 r8, " W "\n" RAOT_PARTS_FIRST(MULTIPLY, "r8", LOWER, UPPER) \
    "sxtb16 " W ", " W ", ror #8\n" RAOT_PARTS_SECOND(W, LOWER, UPPER)
#define RAOT_PARTS_BLOCK(MULTIPLY) \
    "ldmia r0!, {r2-r5}\n ldrd r6, r7, [r1], #8\n" \
    RAOT_PARTS_FOUR(MULTIPLY, "r6", "r10", "r11") RAOT_PARTS_FOUR(MULTIPLY, "r7", "r12", "lr")
#define RAOT_PARTS_Q8_DSP \
    RAOT_PARTS_BLOCK(RAOT_PARTS_BEGUN) ".rept 7\n" RAOT_PARTS_BLOCK(RAOT_PARTS_ADDED) ".endr\n"

/* Four of eight steps of a column, which r6 holds. */
#define RAOT_PARTS_HALVES(FIRST, SECOND, LOWER, UPPER) \
    "and r7, r8, r6" FIRST "\n" RAOT_PARTS_FIRST(RAOT_PARTS_ADDED, "r7", LOWER, UPPER) \
    "and r7, r8, r6" SECOND "\n" RAOT_PARTS_SECOND("r7", LOWER, UPPER)
#define RAOT_PARTS_Q4_DSP \
    ".rept 4\n ldmia r0!, {r2-r5}\n" \
    "ldr r6, [r1]\n" RAOT_PARTS_HALVES("", ", lsr #4", "r10", "r11") \
    "ldr r6, [r1, #4]\n" RAOT_PARTS_HALVES("", ", lsr #4", "r12", "lr") \
    "ldmia r0!, {r2-r5}\n" RAOT_PARTS_HALVES(", lsr #8", ", lsr #12", "r12", "lr") \
    "ldr r6, [r1], #8\n" RAOT_PARTS_HALVES(", lsr #8", ", lsr #12", "r10", "r11") ".endr\n"
#define RAOT_PARTS_OFFSETS "ldrd r10, r11, [r4]\n mov r12, r10\n mov lr, r11\n"

#define RAOT_PARTS_ASM_DSP(SETUP, START, LINE, NEXT) \
    __asm volatile( \
        "push {r4-r8, r10, r11, lr}\n push {r0, r1, r3}\n sub sp, #20\n mov r1, r2\n" SETUP \
        "1: ldr r0, [sp, #20]\n vldmia r0, {s0, s1}\n ldr r0, [sp, #24]\n ldr r2, [sp, #28]\n" \
        "ldr r3, [sp, #64]\n ldrd r4, r5, [sp, #72]\n ldr r6, [sp, #68]\n stmia sp, {r2-r6}\n" \
        "2:\n" START LINE \
        "vmov s4, s5, r10, r12\n vmov s6, s7, r11, lr\n ldmia sp, {r2-r6}\n" \
        "vcvt.f32.s32 s4, s4, #16\n vcvt.f32.s32 s5, s5, #16\n" \
        "vcvt.f32.s32 s6, s6\n vcvt.f32.s32 s7, s7\n" \
        "vldmia r2, {s8, s9}\n vldmia r3!, {s10}\n add r2, r5\n" NEXT "stmia sp, {r2-r4}\n" \
        "vadd.f32 s4, s4, s6\n vadd.f32 s5, s5, s7\n" \
        "vmul.f32 s4, s4, s10\n vmul.f32 s5, s5, s10\n" \
        "vfma.f32 s0, s4, s8\n vfma.f32 s1, s5, s9\n cmp r3, r6\n bne 2b\n" \
        "ldr r2, [sp, #20]\n vstmia r2!, {s0, s1}\n str r2, [sp, #20]\n" \
        "ldr r2, [sp, #28]\n adds r2, #8\n str r2, [sp, #28]\n" \
        "ldrd r2, r3, [sp, #80]\n add r1, r2\n subs r3, #1\n str r3, [sp, #84]\n bne 1b\n" \
        "add sp, #32\n pop {r4-r8, r10, r11, pc}\n")

#define RAOT_PARTS_LINES_DSP(NAME, SETUP, START, LINE, NEXT) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const int16_t *parts, \
        RAOT_ARGUMENT const int8_t *weights, RAOT_ARGUMENT const float *scales, \
        RAOT_ARGUMENT const float *units, RAOT_ARGUMENT const float *end, \
        RAOT_ARGUMENT const int32_t *offsets, RAOT_ARGUMENT int32_t next, \
        RAOT_ARGUMENT int32_t skipped, RAOT_ARGUMENT int32_t blocks) \
    { \
        RAOT_PARTS_ASM_DSP(SETUP, START, LINE, NEXT); \
    }
RAOT_PARTS_LINES_DSP(raot_parts_lines_q8, "", "", RAOT_PARTS_Q8_DSP, "")
RAOT_PARTS_LINES_DSP(raot_parts_lines_q4, "mov r8, #0x000f000f\n", RAOT_PARTS_OFFSETS,
                     RAOT_PARTS_Q4_DSP, "adds r4, #8\n")
/* clang-format on */
#endif

#endif
