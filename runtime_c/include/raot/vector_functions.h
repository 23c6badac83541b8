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

#if (defined(__SSE2__) || defined(__aarch64__)) && !defined(RAOT_NUMERICS_ORDERED)
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
    const float power = raot_exp_nearf(raot_reducef(x, &shifted));

    return power * raot_of_bitsf((shifted << 23) + 0x3f800000u);
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

/* 1 / (1 + exp(-x)), for negative x exp(x) / (1 + exp(x)), both with 2^64 for 1, so that
 * 2^64 exp(-|x|) is no subnormal number. */
static inline float raot_sigmoidf(float x)
{
    const float one = 18446744073709551616.0f;
    const float a = raot_absf(x);
    uint32_t shifted;
    const float power = raot_exp_nearf(raot_reducef(105.0f < a ? -105.0f : -a, &shifted));
    const float e = power * raot_of_bitsf((shifted << 23) + (191u << 23));

    return (x < 0.0f ? e : one) / (one + e);
}

/* m / (m + 2) with m = exp(2 |x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1), accurate for small x too. */
static inline float raot_tanhf(float x)
{
    const float a = raot_absf(x);
    uint32_t shifted;
    const float r = raot_reducef(9.1f < a ? 18.2f : 2.0f * a, &shifted);
    const float scale = raot_of_bitsf((shifted << 23) + 0x3f800000u);
    const float m = raot_fmaf(scale, raot_fmaf(r * r, raot_exp_tailf(r), r), scale - 1.0f);

    return raot_copysignf(m / (m + 2.0f), x);
}

/* x + x P(x^2) below 1, 1 - exp(-Q(x)) up to 3.93, where it becomes 1. */
static inline float raot_erff(float x)
{
    const float a = raot_absf(x);
    const float b = 3.93f < a ? 3.93f : a;
    const float z = x * x;
    float p = 7.919902e-05f;
    float q = -1.06964414e-07f;

    p = raot_fmaf(p, z, -0.0008030654f);
    p = raot_fmaf(p, z, 0.005190726f);
    p = raot_fmaf(p, z, -0.026855124f);
    p = raot_fmaf(p, z, 0.11283618f);
    p = raot_fmaf(p, z, -0.3761263f);
    p = raot_fmaf(p, z, 0.12837917f);
    p = raot_fmaf(x, p, x);
    q = raot_fmaf(q, b, 2.321063e-05f);
    q = raot_fmaf(q, b, -0.00045064016f);
    q = raot_fmaf(q, b, 0.0042363717f);
    q = raot_fmaf(q, b, -0.025274895f);
    q = raot_fmaf(q, b, 0.10850621f);
    q = raot_fmaf(q, b, 0.6331492f);
    q = raot_fmaf(q, b, 1.1296104f);
    q = raot_fmaf(q, b, -0.00019426612f);
    return a < 1.0f ? p : raot_copysignf(1.0f - raot_exp_normalf(-q), x);
}

#endif

#endif
