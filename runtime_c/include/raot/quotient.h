/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quotient.h - quotients without calls on GPUs.
 *
 * Compilers for GPUs divide by a short sequence of instructions, and call a function for subnormal,
 * infinite and very large numbers. Behind products, whose sums are in registers, such calls spill
 * registers. Here, instructions in place divide all numbers, with the bits of a / b. Other targets
 * divide by a / b.
 *
 * Source: P. Markstein, Computation of elementary functions on the IBM RISC System/6000 processor,
 * 1990 (fused multiply-adds round a quotient correctly, by its exact remainder).
 */
#ifndef RAOT_QUOTIENT_H
#define RAOT_QUOTIENT_H

#include <stdint.h>

#include "ieee.h"

#if defined(__CUDA_ARCH__)
/* 1 / d within one unit of the last bit, for normal d and 1 / d; else infinite, 0 or NaN. */
static inline float raot_near_reciprocalf(float d)
{
    float r;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
}

/* 1 / d with 20 bits, for normal d and 1 / d. */
static inline double raot_near_reciprocal(double d)
{
    double r;

    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(d));
    return r;
}

/* Whether a quotient with x needs no remainder: zeros, infinities and NaN. */
static inline int raot_exceptionalf(float x)
{
    return (raot_bitsf(x) << 1) - 1u >= 0xfeffffffu;
}

/* Whether 2^-63 <= |x| < 2^63. */
static inline int raot_moderatef(float x)
{
    return (raot_bitsf(x) & 0x7fffffffu) - 0x20000000u < 0x3f000000u;
}
#endif

/* 1 / d for 2^-126 <= |d| < 2^126. */
static inline float raot_reciprocalf(float d)
{
#if defined(__CUDA_ARCH__)
    const float r = raot_near_reciprocalf(d);

    return fmaf(r, fmaf(-d, r, 1.0f), r);
#else
    return 1.0f / d;
#endif
}

/* z / d for 0 <= z <= 1 and d >= 1/2, rounded once where it is at least 2^-64. */
static inline float raot_fractionf(float z, float d)
{
#if defined(__CUDA_ARCH__)
    const float most = 18446744073709551616.0f;
    const float by = d > most ? most : d; /* not NaN */
    const float r = raot_reciprocalf(by);
    const float q = z * r;

    return fmaf(r, fmaf(-by, q, z), q);
#else
    return z / d;
#endif
}

/* a / b of any numbers. */
static inline float raot_quotientf(float a, float b)
{
#if defined(__CUDA_ARCH__)
    /* A reciprocal of the largest mantissa may be rounded wrongly, and so would be quotients. */
    if (raot_moderatef(a) && raot_moderatef(b) && (~raot_bitsf(b) & 0x7fffffu) != 0) {
        const float r = raot_reciprocalf(b);
        const float product = a * r;
        const float q = fmaf(r, fmaf(-b, product, a), product);

        return fmaf(r, fmaf(-b, q, a), q);
    }
    if (raot_exceptionalf(a) || raot_exceptionalf(b)) {
        return a * (raot_exceptionalf(b) ? raot_near_reciprocalf(b) : b);
    }
    /* As doubles, all floats and their quotients are normal. A quotient that is not itself the
       midpoint of two floats is farther from it than q is from the quotient, so q is rounded to the
       float to which the quotient is. */
    const double d = (double)b;
    double r = raot_near_reciprocal(d);

    r = fma(r, fma(-d, r, 1.0), r);
    r = fma(r, fma(-d, r, 1.0), r);
    const double q = (double)a * r;

    return (float)fma(r, fma(-d, q, (double)a), q);
#else
    return a / b;
#endif
}

#endif
