/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_functions.h - exp, tanh, sigmoid and erf in float, for loops that compilers vectorize.
 *
 * No branches, no tables, no calls: every input takes the same operations, so a vector and a single
 * number give the same bits. Argument reduction of Cody and Waite (Software Manual for the
 * Elementary Functions, 1980), minimax polynomials, sums corrected as Dekker's (1971). NaN reaches
 * the result by arithmetic. raot_fmaf is fused where the target has FMA;
 * docs/reference/math_functions.md lists the errors with and without. For exponential.h,
 * which has other forms where compilers make no vectors. --numerics ordered, which defines
 * RAOT_NUMERICS_ORDERED, uses those on every target.
 */
#ifndef RAOT_VECTOR_FUNCTIONS_H
#define RAOT_VECTOR_FUNCTIONS_H

#include <stdint.h>

#include "ieee.h"

#if defined(__ARM_FEATURE_MVE)
#if __ARM_FEATURE_MVE & 2
#define RAOT_HAS_HELIUM
#endif
#endif

#if (defined(__SSE2__) || defined(__aarch64__) || defined(RAOT_HAS_HELIUM) || \
     defined(RAOT_DEVICE)) &&                                                 \
    !defined(RAOT_NUMERICS_ORDERED)
#define RAOT_VECTOR_FUNCTIONS

/* 1.5 * 2^23: in a sum with it, the lowest bits are the nearest integer. */
#define RAOT_SHIFTERF 12582912.0f

/* x = n * ln 2 + r with |r| < 0.35, for |x| < 180. Returns r; *shifted has the bits of n +
 * RAOT_SHIFTERF. */
static inline float raot_reducef(float x, uint32_t *shifted)
{
    const float sum = raot_fmaf(x, 1.442695f, RAOT_SHIFTERF);
    const float n = sum - RAOT_SHIFTERF;

    *shifted = raot_bitsf(sum);
    return raot_fmaf(n, -1.428606765330187e-06f, raot_fmaf(n, -0.693145751953125f, x));
}

/* (exp(r) - 1 - r) / r^2 for |r| < 0.35. */
static inline float raot_exp_tailf(float r)
{
    float p = 0.00019960135f;

    p = raot_fmaf(p, r, 0.0013933729f);
    p = raot_fmaf(p, r, 0.00833319f);
    p = raot_fmaf(p, r, 0.041666478f);
    p = raot_fmaf(p, r, 0.16666667f);
    return raot_fmaf(p, r, 0.5f);
}

/* exp(r) - 1 for |r| < 0.35, by a polynomial of one degree less. */
static inline float raot_exp_smallf(float r)
{
    float p = 0.001386701f;

    p = raot_fmaf(p, r, 0.00836417f);
    p = raot_fmaf(p, r, 0.041667186f);
    p = raot_fmaf(p, r, 0.1666656f);
    p = raot_fmaf(p, r, 0.5f);
    return raot_fmaf(r * r, p, r);
}

/* exp(r) for |r| < 0.35, with the rounding error of 1 + r. */
static inline float raot_exp_nearf(float r)
{
    const float high = 1.0f + r;
    const float low = r - (high - 1.0f);

    return high + raot_fmaf(r * r, raot_exp_tailf(r), low);
}

/* exp(x) for -87 < x < 88: the result is no subnormal number. */
static inline float raot_exp_normalf(float x)
{
    uint32_t shifted;
    const float r = raot_reducef(x, &shifted);
    const float scale = raot_of_bitsf((shifted << 23) + 0x3f800000u);

    return raot_fmaf(raot_exp_smallf(r), scale, scale);
}

/* 2^n in two factors, since it may be a subnormal number or too large. */
static inline float raot_expf(float x)
{
    const float above = -105.0f > x ? -105.0f : x;
    const float bounded = 105.0f < above ? 105.0f : above;
    const float last = bounded < 0.0f ? 5.421010862427522e-20f : 18446744073709551616.0f;
    uint32_t shifted;
    const float power = raot_exp_nearf(raot_reducef(bounded, &shifted));

    return power * raot_of_bitsf((shifted << 23) + (0x7f000000u - raot_bitsf(last))) * last;
}

/*
 * exp(x - peak) for x <= peak: as raot_expf, with one scale less. 2^-64 is a factor of its own, so
 * that the other one is no subnormal number. The lower bound is a variable, because GCC 12 makes a
 * maximum instruction of a comparison with a variable and none of one with a constant.
 */
static inline float raot_exp_belowf(float x, float peak)
{
    const float low = peak < 0.0f ? -105.0f : -106.0f;
    const float difference = x - peak;
    uint32_t shifted;
    const float r = raot_reducef(difference < low ? low : difference, &shifted);
    const float scale = raot_of_bitsf((shifted << 23) + (191u << 23));

    return raot_fmaf(raot_exp_smallf(r), scale, scale) * 5.421010862427522e-20f;
}

/*
 * With e = exp(-|x|): 1/2 + q/2 and 1/2 - q/2, q = (1 - e) / (1 + e), near 0, and 1 - q and q,
 * q = e / (1 + e), elsewhere. So errors of q count less than those of the last sum, but for large
 * negative x. 2^64 stands for 1, so that 2^64 e is no subnormal number.
 */
static inline float raot_sigmoidf(float x)
{
    const float one = 18446744073709551616.0f;
    const float a = raot_absf(x);
    const float bounded = 105.0f < a ? 105.0f : a;
    float less = one;
    float share = 0.5f;
    uint32_t shifted;

    if (!(a < 0.85f)) {
        less = 0.0f;
        share = 1.0f;
    }
    {
        const float t = raot_exp_smallf(raot_reducef(-bounded, &shifted));
        const float scale = raot_of_bitsf((shifted << 23) + (191u << 23));
        const float q = raot_fmaf(t, scale, scale - less) / (one + raot_fmaf(t, scale, scale));
        const float part = raot_copysignf(share, x);

        return raot_fmaf(-part, q, raot_fmaf(part, share - 0.5f, 0.5f));
    }
}

/*
 * x - x z / d with z = x^2 and d by the continued fraction of tanh up to 1; 1 - 1 / h with
 * h = (exp(2 x) + 1) / 2 = p^2 + 1/2 beyond. The greater one of d and h is the right one, and x is
 * 1 beyond 1, so nothing is chosen. Errors of the quotient count less than the last rounding. The
 * leading coefficients of p are positive, so an infinity gives one.
 */
static inline float raot_tanhf(float x)
{
    const float a = raot_absf(x);
    const float one = 1.0f < a ? 1.0f : a;
    const float z = one * one;
    const float t = a * a;
    float even = 0.0002954217f;
    float odd = 1.2727628e-07f;
    float d = 0.00022790907f;

    even = raot_fmaf(even, t, 0.008078604f);
    even = raot_fmaf(even, t, 0.06071721f);
    even = raot_fmaf(even, t, 0.37913403f);
    even = raot_fmaf(even, t, 0.70902723f);
    odd = raot_fmaf(odd, t, -1.8620256e-05f);
    odd = raot_fmaf(odd, t, -0.0016626628f);
    odd = raot_fmaf(odd, t, -0.012336219f);
    odd = raot_fmaf(odd, t, 0.082374364f);
    odd = raot_fmaf(odd, t, 0.696506f);
    d = raot_fmaf(d, z, -0.0056946286f);
    d = raot_fmaf(d, z, 1.1999943f);
    d = raot_fmaf(d, z, 3.0000005f);
    {
        const float p = raot_fmaf(odd, a, even);
        const float h = raot_fmaf(p, p, 0.5f);

        return raot_copysignf(raot_fmaf(-one, z / (d < h ? h : d), one), x);
    }
}

/* x + x P(x^2) below 1, 1 - exp(-Q(x)) up to 3.93, where it becomes 1. */
static inline float raot_erff(float x)
{
    const float a = raot_absf(x);
    const float b = 3.93f < a ? 3.93f : a;
    const float z = x * x;
    float p = 7.919902e-05f;
    float q = 2.1697617e-05f;

    p = raot_fmaf(p, z, -0.0008030654f);
    p = raot_fmaf(p, z, 0.005190726f);
    p = raot_fmaf(p, z, -0.026855124f);
    p = raot_fmaf(p, z, 0.11283618f);
    p = raot_fmaf(p, z, -0.3761263f);
    p = raot_fmaf(p, z, 0.12837917f);
    p = raot_fmaf(x, p, x);
    q = raot_fmaf(q, b, -0.00044147269f);
    q = raot_fmaf(q, b, 0.004205285f);
    q = raot_fmaf(q, b, -0.02521034f);
    q = raot_fmaf(q, b, 0.1084221f);
    q = raot_fmaf(q, b, 0.6332164f);
    q = raot_fmaf(q, b, 1.1295803f);
    q = raot_fmaf(q, b, -0.00018846814f);
    return a < 1.0f ? p : raot_copysignf(1.0f - raot_exp_normalf(-q), x);
}

#endif

#endif
