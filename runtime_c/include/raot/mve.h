/*
 * mve.h - whether micro-kernels use Helium (ACLE intrinsics of arm_mve.h).
 *
 *     RAOT_MVE      integer vectors
 *     RAOT_MVE_F32  floating-point vectors as well
 *
 * -DRAOT_NO_INTRINSICS leaves plain C.
 */
#ifndef RAOT_MVE_H
#define RAOT_MVE_H

#if defined(__ARM_FEATURE_MVE) && !defined(RAOT_NO_INTRINSICS)
#define RAOT_MVE 1
#include <arm_mve.h>
#if __ARM_FEATURE_MVE & 2
#define RAOT_MVE_F32 1
#endif
#endif

/*
 * The address in a register of its own, whose next value is not computed in advance: GCC 12 folds
 * neighboring addresses into post-increments and then copies registers.
 */
#if defined(__GNUC__) && !defined(__clang__) && !defined(RAOT_NO_ASSEMBLY)
#define RAOT_KEEP_ADDRESS(address) __asm("" : "+r"(address))
#else
#define RAOT_KEEP_ADDRESS(address) ((void)0)
#endif

#endif
