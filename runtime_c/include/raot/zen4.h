/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zen4.h - what AMD's Zen 4 needs for multiply-adds with AVX-512 at their full rate.
 *
 *     RAOT_ZEN4  whether the program runs on this processor. Its units that convert numbers do not
 *                multiply, so packed weights are converted in registers for any number of rows.
 *                Others convert them once for several rows. The results are the same.
 *     RAOT_HIDE_POINTER
 *                hides from the compiler that a pointer equals another one. Otherwise two
 *                multiply-adds share a factor that is loaded to a register. If each loads it as an
 *                operand, a step of six rows and 32 columns of converted weights takes 12 instead
 *                of 14.5 cycles.
 *     RAOT_BY_ROWS
 *                calls a function of a block, whose number of rows is its second argument and a
 *                constant in each call
 */
#ifndef RAOT_ZEN4_H
#define RAOT_ZEN4_H

#include "assembly.h"

#if defined(__AVX512F__) && defined(RAOT_ASM_INLINE)
#define RAOT_HIDE_POINTER(pointer) __asm__("" : "+r"(pointer))
#else
#define RAOT_HIDE_POINTER(pointer) (void)0
#endif

#define RAOT_BY_ROWS(rows, DO, FIRST, ...) \
    switch (rows) {                        \
    case 1:                                \
        DO(FIRST, 1, __VA_ARGS__);         \
        break;                             \
    case 2:                                \
        DO(FIRST, 2, __VA_ARGS__);         \
        break;                             \
    case 3:                                \
        DO(FIRST, 3, __VA_ARGS__);         \
        break;                             \
    case 4:                                \
        DO(FIRST, 4, __VA_ARGS__);         \
        break;                             \
    case 5:                                \
        DO(FIRST, 5, __VA_ARGS__);         \
        break;                             \
    default:                               \
        DO(FIRST, RAOT_HIGH, __VA_ARGS__); \
        break;                             \
    }

/* Of its family, Zen 4 alone has AVX-512. Older compilers do not know the family. */
#if !defined(RAOT_ZEN4) && defined(__AVX512F__) && defined(RAOT_ASM_INLINE)
#if defined(__clang__)
#if __clang_major__ >= 12
#define RAOT_ZEN4 __builtin_cpu_is("amdfam19h")
#endif
#elif __GNUC__ >= 11
#define RAOT_ZEN4 __builtin_cpu_is("amdfam19h")
#endif
#endif
#if !defined(RAOT_ZEN4)
#define RAOT_ZEN4 0
#endif

#endif
