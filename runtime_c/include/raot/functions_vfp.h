/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions_vfp.h - sigmoid of functions_f32.h in assembly, for the cores of powers_vfp.h.
 *
 * Four elements at a time take the operations of raot_sigmoidf, so the bits are the same, unless
 * one of them is NaN or far from 0: |x| > 21 (with --numerics ordered 86).
 */
#ifndef RAOT_FUNCTIONS_VFP_H
#define RAOT_FUNCTIONS_VFP_H

#include <stdint.h>

#include "powers_vfp.h"

/* clang-format off */
/*
 * Where elements are near, the bits of their powers of 2 are 0 to MOST above 0x4b000000 and LEAST.
 * SCALE: the power of 2 for the first one.
 */
#if defined(RAOT_VECTOR_EXP)
#define RAOT_SIGMOID_MOST "63"
#define RAOT_SIGMOID_LEAST "94"
#define RAOT_SIGMOID_SCALE "0x2f800000"
#define RAOT_SIGMOID_ARGUMENT \
    "vneg.f32 s0,s0\n vneg.f32 s1,s1\n vneg.f32 s2,s2\n vneg.f32 s3,s3\n"
/* D: the low part of 1 + exp(-x), E: the high one. */
#define RAOT_SIGMOID_QUOTIENT \
    RAOT_VFP_DO("vadd", RAOT_VFP_D, RAOT_VFP_B, RAOT_VFP_ALL(s31)) \
    RAOT_VFP_DO("vadd", RAOT_VFP_E, RAOT_VFP_B, RAOT_VFP_ALL(s31)) \
    RAOT_VFP_DO("vfma", RAOT_VFP_E, RAOT_VFP_A, RAOT_VFP_B) \
    RAOT_VFP_DO("vsub", RAOT_VFP_D, RAOT_VFP_D, RAOT_VFP_E) \
    RAOT_VFP_DO("vfma", RAOT_VFP_D, RAOT_VFP_A, RAOT_VFP_B) \
    RAOT_VFP_DO("vdiv", RAOT_VFP_C, RAOT_VFP_ALL(s31), RAOT_VFP_E) \
    "vldmia r12, {s4-s7}\n" \
    RAOT_VFP_DO("vfms", RAOT_VFP_B, RAOT_VFP_E, RAOT_VFP_C) \
    RAOT_VFP_DO("vfms", RAOT_VFP_B, RAOT_VFP_D, RAOT_VFP_C) \
    RAOT_VFP_DO("vfma", RAOT_VFP_C, RAOT_VFP_C, RAOT_VFP_B) \
    "vstmia r0!, {s8-s11}\n"
#define RAOT_SIGMOID_LAST "48" /* bytes from the constants of sums to the last ones */
#else
#define RAOT_SIGMOID_MOST "127"
#define RAOT_SIGMOID_LEAST "1"
#define RAOT_SIGMOID_SCALE "0x01000000"
#define RAOT_SIGMOID_ARGUMENT \
    "vabs.f32 s0,s0\n vabs.f32 s1,s1\n vabs.f32 s2,s2\n vabs.f32 s3,s3\n" \
    "vneg.f32 s0,s0\n vneg.f32 s1,s1\n vneg.f32 s2,s2\n vneg.f32 s3,s3\n"
/* The dividend E + C is 1 unless x is negative. */
#define RAOT_SIGMOID_DIVIDEND(x, high, low) \
    "cmp " x ",#0\n itt pl\n vmovpl.f32 " high ",s31\n vmovpl.f32 " low ",s30\n"
/* E + C: exp(-|x|), A + D: 1 + exp(-|x|). */
#define RAOT_SIGMOID_QUOTIENT \
    RAOT_VFP_DO("vsub", RAOT_VFP_C, RAOT_VFP_A, RAOT_VFP_C) \
    RAOT_VFP_DO("vsub", RAOT_VFP_D, RAOT_VFP_D, RAOT_VFP_C) \
    RAOT_VFP_DO("vadd", RAOT_VFP_E, RAOT_VFP_ALL(s31), RAOT_VFP_A) \
    RAOT_VFP_DO("vsub", RAOT_VFP_C, RAOT_VFP_E, RAOT_VFP_ALL(s31)) \
    RAOT_VFP_DO("vsub", RAOT_VFP_C, RAOT_VFP_A, RAOT_VFP_C) \
    RAOT_VFP_DO("vadd", RAOT_VFP_C, RAOT_VFP_C, RAOT_VFP_D) \
    RAOT_VFP_DO("vmul", RAOT_VFP_E, RAOT_VFP_E, RAOT_VFP_B) \
    RAOT_VFP_DO("vmul", RAOT_VFP_C, RAOT_VFP_C, RAOT_VFP_B) \
    RAOT_VFP_DO("vadd", RAOT_VFP_A, RAOT_VFP_ALL(s31), RAOT_VFP_E) \
    RAOT_VFP_DO("vsub", RAOT_VFP_D, RAOT_VFP_A, RAOT_VFP_ALL(s31)) \
    RAOT_VFP_DO("vsub", RAOT_VFP_D, RAOT_VFP_E, RAOT_VFP_D) \
    RAOT_VFP_DO("vadd", RAOT_VFP_D, RAOT_VFP_D, RAOT_VFP_C) \
    "ldmia r1, {r4-r7}\n" \
    RAOT_SIGMOID_DIVIDEND("r4", "s16", "s8") RAOT_SIGMOID_DIVIDEND("r5", "s17", "s9") \
    RAOT_SIGMOID_DIVIDEND("r6", "s18", "s10") RAOT_SIGMOID_DIVIDEND("r7", "s19", "s11") \
    RAOT_VFP_DO("vdiv", RAOT_VFP_B, RAOT_VFP_E, RAOT_VFP_A) \
    RAOT_VFP_DO("vmls", RAOT_VFP_C, RAOT_VFP_B, RAOT_VFP_D) \
    "vldmia r12, {s16-s19}\n" \
    RAOT_VFP_DO("vmls", RAOT_VFP_E, RAOT_VFP_A, RAOT_VFP_ALL(s25)) \
    RAOT_VFP_DO("vmla", RAOT_VFP_B, RAOT_VFP_C, RAOT_VFP_E) \
    "vstmia r0!, {s4-s7}\n"
#define RAOT_SIGMOID_LAST "96"
#endif

/*
 * Blocks of four elements up to the first one that has an element which is not near. Returns how
 * many are left.
 *
 *     r0, r1, r2, r3    results, elements, blocks, constants
 *     r4 to r8          powers of 2
 *     r10 to r12        SCALE, 0x4b000000 and LEAST, the last constants
 *     s20 to s27, s30   constants, 0
 *     s31               1
 */
RAOT_NAKED static int32_t raot_sigmoid_blocks(RAOT_ARGUMENT float *values,
                                              RAOT_ARGUMENT const float *from,
                                              RAOT_ARGUMENT int32_t blocks,
                                              RAOT_ARGUMENT const float *constants)
{
    __asm volatile(
        "push {r4-r8,r10,r11,lr}\n vpush {s16-s31}\n vldmia r3!, {s20-s27}\n"
        "mov r10,#" RAOT_SIGMOID_SCALE "\n movw r11,#" RAOT_SIGMOID_LEAST "\n movt r11,#0x4b00\n"
        "add r12,r3,#" RAOT_SIGMOID_LAST "\n vmov.f32 s31,#1.0\n vsub.f32 s30,s31,s31\n"
        "1: vldmia r1, {s0-s3}\n"
        RAOT_SIGMOID_ARGUMENT RAOT_VFP_EXP("r3")
        "vmov r4,r5,s4,s5\n vmov r6,r7,s6,s7\n"
        "sub r4,r4,r11\n sub r5,r5,r11\n sub r6,r6,r11\n sub r7,r7,r11\n"
        "orr r8,r4,r5\n orr r8,r8,r6\n orr r8,r8,r7\n cmp r8,#" RAOT_SIGMOID_MOST "\n bhi 2f\n"
        "add r4,r10,r4,lsl #23\n add r5,r10,r5,lsl #23\n"
        "add r6,r10,r6,lsl #23\n add r7,r10,r7,lsl #23\n"
        "vmov s4,s5,r4,r5\n vmov s6,s7,r6,r7\n"
        RAOT_SIGMOID_QUOTIENT
        "adds r1,#16\n subs r2,#1\n bne 1b\n"
        "2: mov r0,r2\n vpop {s16-s31}\n pop {r4-r8,r10,r11,pc}\n");
}
/* clang-format on */

__attribute__((unused)) static void raot_sigmoid_vfp(float *values, const float *from,
                                                     int32_t count)
{
    int32_t done = 0;

    while (done < count) {
        const int32_t blocks = (count - done) / 4;
        if (blocks > 0) {
            done += 4 * (blocks - raot_sigmoid_blocks(values + done, from + done, blocks,
                                                      raot_vfp_constants));
        }
        const int32_t end = count - done < 4 ? count : done + 4;
        for (; done < end; done++) {
            values[done] = raot_sigmoidf(from[done]);
        }
    }
}
#define RAOT_SIGMOID_F32(values, from, count) raot_sigmoid_vfp(values, from, count)

#endif
