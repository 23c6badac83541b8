/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax.h - softmax of contiguous floats: powers exp(x - peak) by raot_exp_belowf, divided by
 * their sum in the order of the elements.
 *
 * `values` may be `from`. The masked form gives zeros for a row of nothing but -infinity.
 *
 * On Arm cores with FPv5 (Cortex-M7, M33), rows whose elements all lie less than 86 below the peak
 * take instructions of assembly for four elements at a time: no power is a subnormal number there,
 * so that the power of 2 is added to the exponent, with the same bits. VMAXNM and VMINNM ignore
 * NaN, which then reaches the sum by arithmetic.
 */
#ifndef RAOT_SOFTMAX_H
#define RAOT_SOFTMAX_H

#include <stdint.h>

#include "assembly.h"
#include "exponential.h"

#if defined(RAOT_ASM_INLINE) && defined(RAOT_ASM_THUMB) && !defined(__OPTIMIZE_SIZE__) && \
    defined(__ARM_FEATURE_FMA) && defined(__ARM_FP)
/* VMAXNM is an instruction of FPv5: of Armv8-M, and of Armv7E-M with double precision. */
#if (__ARM_FP & 4) && (__ARM_ARCH >= 8 || (__ARM_FP & 8)) && defined(RAOT_VECTOR_EXP)
#define RAOT_SOFTMAX_BLOCKS 1
#endif
#endif

#if defined(RAOT_SOFTMAX_BLOCKS)
/* clang-format off */
#define RAOT_SOFTMAX_ADD(sum, a, b) "vfma.f32 " sum ", " a ", " b "\n"
#define RAOT_SOFTMAX_NEW(sum, a, b, c) \
    "vmov.f32 " sum ", " c "\n vfma.f32 " sum ", " a ", " b "\n"
/* x becomes 1 + (exp(r) - 1), n the sum whose low bits are the power of 2; s8 to s10 change. */
#define RAOT_SOFTMAX_POWER(x, n) \
    "vsub.f32 " x ", " x ", %[peak]\n" \
    RAOT_SOFTMAX_NEW(n, x, "s16", "s17") \
    "vsub.f32 s8, " n ", s17\n" \
    RAOT_SOFTMAX_ADD(x, "s8", "s18") \
    RAOT_SOFTMAX_ADD(x, "s8", "s19") \
    "vmul.f32 s8, " x ", " x "\n" \
    RAOT_SOFTMAX_NEW("s9", x, "s20", "s21") \
    RAOT_SOFTMAX_NEW("s10", x, "s22", "s23") \
    RAOT_SOFTMAX_ADD("s10", "s8", "s24") \
    RAOT_SOFTMAX_ADD("s9", "s8", "s10") \
    RAOT_SOFTMAX_ADD(x, "s8", "s9") \
    "vadd.f32 " x ", " x ", s25\n"
/* The powers of two elements, added to the sum. */
#define RAOT_SOFTMAX_TWO(x0, x1) \
    RAOT_SOFTMAX_POWER(x0, "s12") \
    RAOT_SOFTMAX_POWER(x1, "s13") \
    "vmov r3, r8, s12, s13\n vmov r10, r12, " x0 ", " x1 "\n" \
    "add r10, r10, r3, lsl #23\n add r12, r12, r8, lsl #23\n vmov " x0 ", " x1 ", r10, r12\n" \
    "vadd.f32 %[total], %[total], " x0 "\n vadd.f32 %[total], %[total], " x1 "\n"
/* clang-format on */

/* The constants of raot_reducef and raot_exp_smallf: s16 to s25. */
static const float raot_softmax_constants[10] = {
    1.442695f,    RAOT_SHIFTERF, -0.693145751953125f, -1.428606765330187e-06f,
    0.1666656f,   0.5f,          0.00836417f,         0.041667186f,
    0.001386701f, 1.0f,
};

/* The greatest and the least of four elements for each block, if they are beyond those given. */
__attribute__((noinline, unused)) static void raot_softmax_range(const float *from, int32_t blocks,
                                                                 float ends[2])
{
    __asm__ volatile("vldmia %[ends], {s4-s5}\n"
                     "1: vldmia %[from]!, {s0-s3}\n"
                     "vmaxnm.f32 s4, s4, s0\n vminnm.f32 s5, s5, s0\n"
                     "vmaxnm.f32 s4, s4, s1\n vminnm.f32 s5, s5, s1\n"
                     "vmaxnm.f32 s4, s4, s2\n vminnm.f32 s5, s5, s2\n"
                     "subs %[blocks], #1\n"
                     "vmaxnm.f32 s4, s4, s3\n vminnm.f32 s5, s5, s3\n"
                     "bne 1b\n vstmia %[ends], {s4-s5}\n"
                     : [from] "+r"(from), [blocks] "+r"(blocks)
                     : [ends] "r"(ends)
                     : "s0", "s1", "s2", "s3", "s4", "s5", "memory", "cc");
}

/* The powers of blocks of four elements above peak - 86. Returns their sum. */
__attribute__((noinline, unused)) static float raot_softmax_powers(float *values, const float *from,
                                                                   int32_t blocks, float peak)
{
    float total = 0.0f;

    /* clang-format off */
    __asm__ volatile(
        "vldmia %[constants], {s16-s25}\n"
        "1: vldmia %[from]!, {s0-s3}\n"
        RAOT_SOFTMAX_TWO("s0", "s1") RAOT_SOFTMAX_TWO("s2", "s3")
        "subs %[blocks], #1\n vstmia %[values]!, {s0-s3}\n bne 1b\n"
        : [from] "+r"(from), [values] "+r"(values), [blocks] "+r"(blocks), [total] "+t"(total)
        : [constants] "r"(raot_softmax_constants), [peak] "t"(peak)
        : "r3", "r8", "r10", "r12", "s0", "s1", "s2", "s3", "s8", "s9", "s10", "s12", "s13",
          "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "memory", "cc");
    /* clang-format on */
    return total;
}

/* Blocks of four elements, divided by a number. */
__attribute__((noinline, unused)) static void raot_softmax_quotients(float *values, int32_t blocks,
                                                                     const float *total)
{
    __asm__ volatile("vldr s4, [%[total]]\n"
                     "1: vldmia %[values], {s0-s3}\n"
                     "vdiv.f32 s0, s0, s4\n vdiv.f32 s1, s1, s4\n vdiv.f32 s2, s2, s4\n"
                     "subs %[blocks], #1\n vdiv.f32 s3, s3, s4\n"
                     "vstmia %[values]!, {s0-s3}\n bne 1b\n"
                     : [values] "+r"(values), [blocks] "+r"(blocks)
                     : [total] "r"(total)
                     : "s0", "s1", "s2", "s3", "s4", "memory", "cc");
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
    if (!(ends[1] - ends[0] > -86.0f)) {
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
#define raot_softmax_near(values, from, count) 0
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
    if (!raot_softmax_near(values, from, count)) {
        raot_softmax_far(values, from, count, 0);
    }
}

__attribute__((noinline, unused)) static void
raot_softmax_masked_f32(float *values, const float *from, int32_t count)
{
    if (!raot_softmax_near(values, from, count)) {
        raot_softmax_far(values, from, count, 1);
    }
}

#endif
