/* SPDX-License-Identifier: Apache-2.0 */
/*
 * powers_vfp.h - exp of four floats in assembly, for softmax.h and functions_vfp.h.
 *
 * For Arm cores with FMA and without vectors (Cortex-M4, M7, M33). The operations are those of
 * raot_exp_belowf, or with --numerics ordered of raot_exp_partsf, where VMLA and VMLS round
 * products before they add them.
 */
#ifndef RAOT_POWERS_VFP_H
#define RAOT_POWERS_VFP_H

#include "assembly.h"
#include "exponential.h"

#if defined(RAOT_ASM_INLINE) && defined(RAOT_ASM_THUMB) && !defined(__OPTIMIZE_SIZE__) && \
    defined(__ARM_FEATURE_FMA) && defined(__ARM_FP) && !defined(__ARM_FEATURE_MVE)
#if (__ARM_FP & 4) != 0
#define RAOT_VFP_POWERS 1
#endif
#endif

#if defined(RAOT_VFP_POWERS)
/* In a sum with it, the lowest bits are the nearest integer and 126. */
#define RAOT_VFP_SHIFTERF 8388734.0f

/* clang-format off */
#define RAOT_VFP_LANES(OP, d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, b2, b3) \
    OP " " #d0 "," #a0 "," #b0 "\n" OP " " #d1 "," #a1 "," #b1 "\n" \
    OP " " #d2 "," #a2 "," #b2 "\n" OP " " #d3 "," #a3 "," #b3 "\n"
/* An operation on four elements. */
#define RAOT_VFP_DO(OP, ...) RAOT_VFP_LANES(OP ".f32", __VA_ARGS__)
#define RAOT_VFP_ALL(s) s, s, s, s
#define RAOT_VFP_A s0, s1, s2, s3
#define RAOT_VFP_B s4, s5, s6, s7
#define RAOT_VFP_C s8, s9, s10, s11
#define RAOT_VFP_D s12, s13, s14, s15
#define RAOT_VFP_E s16, s17, s18, s19

#if defined(RAOT_VECTOR_EXP)
/* The constants of raot_reducef and raot_exp_smallf: s20 to s27, then those that sums begin with;
 * behind them ones. */
static const float raot_vfp_constants[24] = {
    1.442695f, RAOT_VFP_SHIFTERF, -0.693145751953125f, -1.428606765330187e-06f,
    0.1666656f, 0.00836417f, 0.001386701f, 0.0f,
    RAOT_VFP_ALL(RAOT_VFP_SHIFTERF), RAOT_VFP_ALL(0.5f), RAOT_VFP_ALL(0.041667186f),
    RAOT_VFP_ALL(1.0f),
};
#define RAOT_VFP_FMA "vfma.f32 "
/* Of the elements A, exp(r) - 1; the low bits of B are the power of 2. P: the constants behind
 * s27. */
#define RAOT_VFP_EXP(P) \
    "vldmia " P "!, {s4-s7}\n" \
    RAOT_VFP_DO("vfma", RAOT_VFP_B, RAOT_VFP_A, RAOT_VFP_ALL(s20)) \
    RAOT_VFP_DO("vsub", RAOT_VFP_C, RAOT_VFP_B, RAOT_VFP_ALL(s21)) \
    RAOT_VFP_DO("vfma", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_ALL(s22)) \
    RAOT_VFP_DO("vfma", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_ALL(s23)) \
    "vldmia " P ", {s12-s19}\n sub " P ", #16\n" \
    RAOT_VFP_DO("vmul", RAOT_VFP_C, RAOT_VFP_A, RAOT_VFP_A) \
    RAOT_VFP_DO("vfma", RAOT_VFP_D, RAOT_VFP_A, RAOT_VFP_ALL(s24)) \
    RAOT_VFP_DO("vfma", RAOT_VFP_E, RAOT_VFP_A, RAOT_VFP_ALL(s25)) \
    RAOT_VFP_DO("vfma", RAOT_VFP_E, RAOT_VFP_C, RAOT_VFP_ALL(s26)) \
    RAOT_VFP_DO("vfma", RAOT_VFP_D, RAOT_VFP_C, RAOT_VFP_E) \
    RAOT_VFP_DO("vfma", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_D)
#else
/* The constants of raot_exp_partsf and raot_expm1_nearf; behind them one of
 * raot_sigmoid_of_expf. */
static const float raot_vfp_constants[36] = {
    1.442695f, RAOT_VFP_SHIFTERF, RAOT_LN2_HIGHF, RAOT_LN2_LOWF, 0.00019960135f, 0.5f, 0.0f, 0.0f,
    RAOT_VFP_ALL(RAOT_VFP_SHIFTERF), RAOT_VFP_ALL(0.0013933729f), RAOT_VFP_ALL(0.00833319f),
    RAOT_VFP_ALL(0.041666478f), RAOT_VFP_ALL(0.16666667f), RAOT_VFP_ALL(0.5f),
    RAOT_VFP_ALL(1.457f),
};
#define RAOT_VFP_FMA "vmla.f32 "
/* Of the elements A, exp(r) - 1 as C + D, and A as the sum of both. */
#define RAOT_VFP_EXP(P) \
    "vldmia " P "!, {s4-s7}\n" \
    RAOT_VFP_DO("vmla", RAOT_VFP_B, RAOT_VFP_A, RAOT_VFP_ALL(s20)) \
    RAOT_VFP_DO("vsub", RAOT_VFP_C, RAOT_VFP_B, RAOT_VFP_ALL(s21)) \
    RAOT_VFP_DO("vmls", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_ALL(s22)) \
    RAOT_VFP_DO("vnmul", RAOT_VFP_D, RAOT_VFP_C, RAOT_VFP_ALL(s23)) \
    RAOT_VFP_DO("vadd", RAOT_VFP_C, RAOT_VFP_A, RAOT_VFP_D) \
    RAOT_VFP_DO("vsub", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_A) \
    RAOT_VFP_DO("vsub", RAOT_VFP_D, RAOT_VFP_D, RAOT_VFP_A) \
    "vldmia " P "!, {s16-s19}\n" \
    RAOT_VFP_DO("vmla", RAOT_VFP_E, RAOT_VFP_C, RAOT_VFP_ALL(s24)) \
    RAOT_VFP_HORNER(P, "s0-s3", RAOT_VFP_A, RAOT_VFP_E) \
    RAOT_VFP_HORNER(P, "s16-s19", RAOT_VFP_E, RAOT_VFP_A) \
    RAOT_VFP_HORNER(P, "s0-s3", RAOT_VFP_A, RAOT_VFP_E) \
    RAOT_VFP_HORNER(P, "s16-s19", RAOT_VFP_E, RAOT_VFP_A) "sub " P ", #96\n" \
    RAOT_VFP_DO("vmul", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_C) \
    RAOT_VFP_DO("vmla", RAOT_VFP_D, RAOT_VFP_D, RAOT_VFP_C) \
    RAOT_VFP_DO("vmla", RAOT_VFP_D, RAOT_VFP_A, RAOT_VFP_E) \
    RAOT_VFP_DO("vadd", RAOT_VFP_A, RAOT_VFP_C, RAOT_VFP_D)
#define RAOT_VFP_HORNER(P, NEXT, TO, FROM) \
    "vldmia " P "!, {" NEXT "}\n" RAOT_VFP_DO("vmla", TO, FROM, RAOT_VFP_C)
#endif
/* clang-format on */
#endif

#endif
