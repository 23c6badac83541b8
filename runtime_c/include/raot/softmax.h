/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax.h - softmax of contiguous floats: powers exp(x - peak) by raot_exp_belowf, divided by
 * their sum in the order of the elements.
 *
 * `values` may be `from`. The masked form gives zeros for a row of nothing but -infinity.
 *
 * On Arm cores with FMA and without vectors (Cortex-M4, M7, M33), rows whose elements all lie near
 * the peak take assembly for four elements at a time, with the same bits: no power of 2 and no
 * product with it is a subnormal number there. NaN reaches the sum by arithmetic. With --numerics
 * ordered, VMLA and VMLS round products before they add them.
 */
#ifndef RAOT_SOFTMAX_H
#define RAOT_SOFTMAX_H

#include <stdint.h>

#include "exponential.h"
#include "powers_vfp.h"

#if defined(RAOT_VFP_POWERS)
/* VMAXNM is an instruction of FPv5: of Armv8-M, and of Armv7E-M with double precision. */
#if __ARM_ARCH >= 8 || (__ARM_FP & 8)
#define RAOT_SOFTMAX_ENDS 1
#endif
#if defined(RAOT_VECTOR_EXP)
#define RAOT_SOFTMAX_NEAR 86.0f
#else
/* (1 + p) * 2^n is 2^n + 2^n * p, where the product is no subnormal number. */
#define RAOT_SOFTMAX_NEAR 64.0f
#endif
/* clang-format off */
/* Powers of two elements, added to the sum. */
#define RAOT_SOFTMAX_SCALE(x0, x1, n0, n1) \
    "vmov r3, r8, " n0 ", " n1 "\n" \
    "add r3, r10, r3, lsl #23\n add r8, r10, r8, lsl #23\n vmov " n0 ", " n1 ", r3, r8\n" \
    RAOT_VFP_FMA n0 ", " n0 ", " x0 "\n" RAOT_VFP_FMA n1 ", " n1 ", " x1 "\n" \
    "vadd.f32 s28, s28, " n0 "\n vadd.f32 s28, s28, " n1 "\n"
/* The ends of two halves of the elements, which do not wait for each other. */
#define RAOT_SOFTMAX_ENDS_OF_FOUR(a, b, c, d) \
    "vmaxnm.f32 s16, s16, " #a "\n vminnm.f32 s17, s17, " #a "\n" \
    "vmaxnm.f32 s18, s18, " #b "\n vminnm.f32 s19, s19, " #b "\n" \
    "vmaxnm.f32 s16, s16, " #c "\n vminnm.f32 s17, s17, " #c "\n" \
    "vmaxnm.f32 s18, s18, " #d "\n vminnm.f32 s19, s19, " #d "\n"
/* Four elements, divided by the sum (s16). */
#define RAOT_SOFTMAX_DIVIDED(a, b, c, d) \
    "vdiv.f32 " #a ", " #a ", s16\n vdiv.f32 " #b ", " #b ", s16\n" \
    "vdiv.f32 " #c ", " #c ", s16\n vdiv.f32 " #d ", " #d ", s16\n"
/* clang-format on */

/* The greatest and the least of four elements for each block, if they are beyond those given. */
__attribute__((noinline, unused)) static void raot_softmax_range(const float *from, int32_t blocks,
                                                                 float ends[2])
{
#if defined(RAOT_SOFTMAX_ENDS)
    /* clang-format off */
    __asm__ volatile(
        "vldmia %[ends], {s16-s17}\n vldmia %[ends], {s18-s19}\n subs %[blocks], #4\n blt 2f\n"
        "1: vldmia %[from]!, {s0-s15}\n"
        RAOT_SOFTMAX_ENDS_OF_FOUR(s0, s1, s2, s3) RAOT_SOFTMAX_ENDS_OF_FOUR(s4, s5, s6, s7)
        RAOT_SOFTMAX_ENDS_OF_FOUR(s8, s9, s10, s11) RAOT_SOFTMAX_ENDS_OF_FOUR(s12, s13, s14, s15)
        "subs %[blocks], #4\n bge 1b\n"
        "2: adds %[blocks], #4\n beq 4f\n"
        "3: vldmia %[from]!, {s0-s3}\n" RAOT_SOFTMAX_ENDS_OF_FOUR(s0, s1, s2, s3)
        "subs %[blocks], #1\n bne 3b\n"
        "4: vmaxnm.f32 s16, s16, s18\n vminnm.f32 s17, s17, s19\n vstmia %[ends], {s16-s17}\n"
        : [from] "+&r"(from), [blocks] "+&r"(blocks)
        : [ends] "r"(ends)
        : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13",
          "s14", "s15", "s16", "s17", "s18", "s19", "memory", "cc");
    /* clang-format on */
#else
    float most = ends[0];
    float least = ends[1];

    for (int32_t i = 0; i < 4 * blocks; i++) {
        most = from[i] > most ? from[i] : most;
        least = from[i] < least ? from[i] : least;
    }
    ends[0] = most;
    ends[1] = least;
#endif
}

/* The powers of blocks of four elements near the peak (s29). Returns their sum (s28). */
__attribute__((noinline, unused)) static float raot_softmax_powers(float *values, const float *from,
                                                                   int32_t blocks, float peak)
{
    const float *constants = raot_vfp_constants;
    float ends[2] = {0.0f, peak};

    /* clang-format off */
    __asm__ volatile(
        "vldmia %[constants]!, {s20-s27}\n vldmia %[ends], {s28-s29}\n mov r10, #0x00800000\n"
        "1: vldmia %[from]!, {s0-s3}\n"
        RAOT_VFP_DO("vsub", RAOT_VFP_A, RAOT_VFP_A, RAOT_VFP_ALL(s29))
        RAOT_VFP_EXP("%[constants]")
        RAOT_SOFTMAX_SCALE("s0", "s1", "s4", "s5") RAOT_SOFTMAX_SCALE("s2", "s3", "s6", "s7")
        "subs %[blocks], #1\n vstmia %[values]!, {s4-s7}\n bne 1b\n vstmia %[ends], {s28}\n"
        : [from] "+&r"(from), [values] "+&r"(values), [blocks] "+&r"(blocks),
          [constants] "+&r"(constants)
        : [ends] "r"(ends)
        : "r3", "r8", "r10", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9",
          "s10", "s11", "s12", "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21",
          "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29", "memory", "cc");
    /* clang-format on */
    return ends[0];
}

/* Blocks of four elements, divided by a number. */
__attribute__((noinline, unused)) static void raot_softmax_quotients(float *values, int32_t blocks,
                                                                     const float *total)
{
    /* clang-format off */
    __asm__ volatile(
        "vldr s16, [%[total]]\n subs %[blocks], #4\n blt 2f\n"
        "1: vldmia %[values], {s0-s15}\n"
        RAOT_SOFTMAX_DIVIDED(s0, s1, s2, s3) RAOT_SOFTMAX_DIVIDED(s4, s5, s6, s7)
        RAOT_SOFTMAX_DIVIDED(s8, s9, s10, s11) RAOT_SOFTMAX_DIVIDED(s12, s13, s14, s15)
        "subs %[blocks], #4\n vstmia %[values]!, {s0-s15}\n bge 1b\n"
        "2: adds %[blocks], #4\n beq 4f\n"
        "3: vldmia %[values], {s0-s3}\n" RAOT_SOFTMAX_DIVIDED(s0, s1, s2, s3)
        "subs %[blocks], #1\n vstmia %[values]!, {s0-s3}\n bne 3b\n"
        "4:\n"
        : [values] "+&r"(values), [blocks] "+&r"(blocks)
        : [total] "r"(total)
        : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13",
          "s14", "s15", "s16", "memory", "cc");
    /* clang-format on */
}

/* Returns 0, with nothing written, where an element is far below the peak. */
__attribute__((unused)) static int raot_softmax_near(float *values, const float *from,
                                                     int32_t count)
{
    const int32_t blocks = count / 4;
    float ends[2] = {-RAOT_INFINITY, RAOT_INFINITY};
    float total;

    if (blocks == 0) {
        return 0;
    }
    raot_softmax_range(from, blocks, ends);
    for (int32_t i = 4 * blocks; i < count; i++) {
        ends[0] = from[i] > ends[0] ? from[i] : ends[0];
        ends[1] = from[i] < ends[1] ? from[i] : ends[1];
    }
    if (!(ends[1] - ends[0] > -RAOT_SOFTMAX_NEAR)) {
        return 0;
    }
    total = raot_softmax_powers(values, from, blocks, ends[0]);
    for (int32_t i = 4 * blocks; i < count; i++) {
        values[i] = raot_exp_belowf(from[i], ends[0]);
        total += values[i];
    }
    raot_softmax_quotients(values, blocks, &total);
    for (int32_t i = 4 * blocks; i < count; i++) {
        values[i] = values[i] / total;
    }
    return 1;
}
#else
/* Returns 0, with nothing written. */
static inline int raot_softmax_near(float *values, const float *from, int32_t count)
{
    (void)values;
    (void)from;
    (void)count;
    return 0;
}
#endif

__attribute__((unused)) static void raot_softmax_far(float *values, const float *from,
                                                     int32_t count, int32_t masked)
{
    float peak = -RAOT_INFINITY;
    float total = 0.0f;

    for (int32_t i = 0; i < count; i++) {
        peak = raot_maxf(peak, from[i]);
    }
    if (masked != 0 && peak == -RAOT_INFINITY) {
        peak = 0.0f;
    }
    for (int32_t i = 0; i < count; i++) {
        values[i] = raot_exp_belowf(from[i], peak);
        total += values[i];
    }
    if (masked != 0 && total == 0.0f) {
        total = 1.0f;
    }
    for (int32_t i = 0; i < count; i++) {
        values[i] = values[i] / total;
    }
}

__attribute__((noinline, unused)) static void raot_softmax_f32(float *values, const float *from,
                                                               int32_t count)
{
    if (raot_softmax_near(values, from, count) == 0) {
        raot_softmax_far(values, from, count, 0);
    }
}

__attribute__((noinline, unused)) static void
raot_softmax_masked_f32(float *values, const float *from, int32_t count)
{
    if (raot_softmax_near(values, from, count) == 0) {
        raot_softmax_far(values, from, count, 1);
    }
}

#endif
