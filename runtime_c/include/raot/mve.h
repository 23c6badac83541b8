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
#if (__ARM_FEATURE_MVE & 2) != 0
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

#endif
