/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mve.h - macros that select Helium micro-kernels (ACLE intrinsics of arm_mve.h).
 *
 *     RAOT_MVE      integer vectors
 *     RAOT_MVE_F32  floating-point vectors as well
 *
 * -DRAOT_NO_INTRINSICS selects plain C.
 */
#ifndef RAOT_MVE_H
#define RAOT_MVE_H

#include "assembly.h"

#if defined(__ARM_FEATURE_MVE) && !defined(RAOT_NO_INTRINSICS)
#define RAOT_MVE 1
#include <arm_mve.h>
#if __ARM_FEATURE_MVE & 2
#define RAOT_MVE_F32 1
#endif
#endif

/*
 * An empty statement that keeps the address in a register. Otherwise GCC 12 folds it into
 * addressing modes that the loads do not have, or into post-increments that need register copies.
 */
#if defined(__GNUC__) && !defined(__clang__) && !defined(RAOT_OTHER_COMPILER)
#define RAOT_KEEP_ADDRESS(address) __asm("" : "+r"(address))
#else
#define RAOT_KEEP_ADDRESS(address) ((void)0)
#endif

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
/*
 * The products of 16 bytes of two rows and four channels, for naked functions. VMLADAVA needs
 * sums in even-numbered registers: those of the first row are in r0, r2, r4 and r6, those of the
 * second in r8, r10, r12 and r14. Rows and weights are read from r1, r3 and r7.
 */
#define RAOT_MVE_BLOCK                                                           \
    "vldrb.8 q0, [r1], #16\n vldrb.8 q1, [r3], #16\n"                            \
    "vldrb.8 q2, [r7], #16\n vldrb.8 q3, [r7], #16\n"                            \
    "vmladava.s8 r0, q0, q2\n vmladava.s8 r8, q1, q2\n vldrb.8 q2, [r7], #16\n"  \
    "vmladava.s8 r2, q0, q3\n vmladava.s8 r10, q1, q3\n vldrb.8 q3, [r7], #16\n" \
    "vmladava.s8 r4, q0, q2\n vmladava.s8 r12, q1, q2\n"                         \
    "vmladava.s8 r6, q0, q3\n vmladava.s8 r14, q1, q3\n"
#endif

#endif
