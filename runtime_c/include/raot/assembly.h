/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assembly.h - where instruction intrinsics and assembly may be used.
 *
 * Micro-kernels are plain C or ACLE intrinsics, which define their results. If an instruction
 * sequence that compilers do not generate saves more than 8 %, there is also a variant in
 * assembly with the same results. These macros select the variant:
 *
 *     RAOT_SAT         intrinsics of the saturating instructions (arm_acle.h) are available
 *     RAOT_DSP         intrinsics of the 32-bit SIMD instructions (arm_acle.h) are available
 *     RAOT_ASM_INLINE  GNU extended assembly is available: at most 8 operands, registers r0 to r8
 *                      and r10 to r12 at most, independent of the optimization level
 *     RAOT_ASM_THUMB   naked functions of Thumb-2 assembly are available on this M-profile core:
 *                      arguments by the AAPCS, every callee-saved register restored, r9 untouched
 *     RAOT_ASM_THUMB_1 the same of Thumb-1 assembly, on Armv6-M
 *
 * RAOT_DEVICE is defined in the CUDA C++ of a model, which contains the text of these headers: its
 * compilers know no header of the host and no assembly of the host, though nvcc has its macros.
 *
 * -DRAOT_NO_ASSEMBLY selects intrinsics instead of assembly, -DRAOT_NO_INTRINSICS plain C.
 * Assembly is used with the tested compilers: GCC from version 8, Clang, Arm Compiler 6.
 * r9 is never written: it may be fixed (-ffixed-r9) or hold the static base (RWPI).
 */
#ifndef RAOT_ASSEMBLY_H
#define RAOT_ASSEMBLY_H

#if defined(RAOT_NO_INTRINSICS) && !defined(RAOT_NO_ASSEMBLY)
#define RAOT_NO_ASSEMBLY
#endif

/* Compilers that define __GNUC__ without GNU assembly of either kind. */
#if defined(__CC_ARM) || defined(__ICCARM__) || defined(__ghs__) || defined(__TASKING__) || \
    defined(__COMPCERT__)
#define RAOT_OTHER_COMPILER
#endif

#if !defined(RAOT_NO_ASSEMBLY) && !defined(RAOT_OTHER_COMPILER) && defined(__GNUC__) && \
    !defined(RAOT_DEVICE)
#define RAOT_ASM_INLINE 1
#endif

#if defined(__arm__) && !defined(RAOT_NO_INTRINSICS) && !defined(__CC_ARM) && \
    (defined(__GNUC__) || defined(__ICCARM__))
#if defined(__ARM_FEATURE_SAT)
#define RAOT_SAT 1
#endif
/* The halfwords of a word are in the order of their addresses. */
#if defined(__ARM_FEATURE_DSP) && !defined(__ARM_BIG_ENDIAN)
#define RAOT_DSP 1
#endif
#if defined(RAOT_SAT) || defined(RAOT_DSP)
#include <arm_acle.h>
#endif
#endif

#if defined(RAOT_ASM_INLINE) && defined(__thumb__) && !defined(__ARM_BIG_ENDIAN) && \
    (defined(__clang__) || __GNUC__ >= 8)
#if __ARM_ARCH_PROFILE == 'M'
#if defined(__thumb2__)
#define RAOT_ASM_THUMB 1
#else
#define RAOT_ASM_THUMB_1 1
#endif
#if defined(__clang__)
#define RAOT_NAKED __attribute__((naked, noinline, unused))
#else
/* noipa: callers must not infer unused arguments or preserved registers from the empty body. */
#define RAOT_NAKED __attribute__((naked, noinline, noipa, unused))
#endif
#endif
#endif

/* A parameter of a naked function, which only its assembly reads. */
#if defined(RAOT_NAKED)
#define RAOT_ARGUMENT __attribute__((unused))
#endif

#endif
