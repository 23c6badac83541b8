/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_functions.h - exp, expm1, tanh, sigmoid and erf in float, for loops that compilers make
 * vectors of.
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
#include "quotient.h"

#if defined(__ARM_FEATURE_MVE)
#if (__ARM_FEATURE_MVE & 2) != 0
#define RAOT_HAS_HELIUM
#endif
#endif

#if (defined(__SSE2__) || defined(__aarch64__) || defined(RAOT_HAS_HELIUM) || \
     defined(RAOT_DEVICE)) &&                                                 \
    !defined(RAOT_NUMERICS_ORDERED)
#define RAOT_VECTOR_FUNCTIONS
#define RAOT_VECTOR_EXP
#endif

/* Cores with FMA and without vectors compute all but erf so, too, which are fewer
 * operations than in exponential.h. A branch is cheaper there than what it skips. */
#if defined(__ARM_FEATURE_FMA) && !defined(RAOT_VECTOR_FUNCTIONS) && !defined(RAOT_NUMERICS_ORDERED)
#define RAOT_VECTOR_EXP
#define RAOT_SCALAR_EXP
#endif

#if defined(RAOT_VECTOR_EXP)
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
    const float z = r * r;
    const float low = raot_fmaf(0.1666656f, r, 0.5f);
    const float high = raot_fmaf(0.00836417f, r, 0.041667186f);

    return raot_fmaf(z, raot_fmaf(z, raot_fmaf(z, 0.001386701f, high), low), r);
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
static inline float raot_exp_of_allf(float x)
{
    const float above = -105.0f > x ? -105.0f : x;
    const float bounded = 105.0f < above ? 105.0f : above;
    const float last = bounded < 0.0f ? 5.421010862427522e-20f : 18446744073709551616.0f;
    uint32_t shifted;
    const float power = raot_exp_nearf(raot_reducef(bounded, &shifted));

    return power * raot_of_bitsf((shifted << 23) + (0x7f000000u - raot_bitsf(last))) * last;
}

#if defined(RAOT_SCALAR_EXP)
__attribute__((noinline, unused)) static float raot_exp_farf(float x)
{
    return raot_exp_of_allf(x);
}
#endif

/* e^x: 0 or infinite above 105. */
static inline float raot_expf(float x)
{
#if defined(RAOT_SCALAR_EXP)
    /* For |x| < 87.5, 2^n is no subnormal number, and the same rounding is the only one. */
    if ((raot_bitsf(x) & 0x7fffffffu) < 0x42af0000u) {
        uint32_t shifted;
        const float power = raot_exp_nearf(raot_reducef(x, &shifted));

        return power * raot_of_bitsf((shifted << 23) + 0x3f800000u);
    }
    return raot_exp_farf(x);
#else
    return raot_exp_of_allf(x);
#endif
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
    const float scale = raot_of_bitsf((shifted << 23) + 0x5f800000u);

    return raot_fmaf(raot_exp_smallf(r), scale, scale) * 5.421010862427522e-20f;
}

/*
 * 1 / d with d = 1 + exp(-x), corrected by the rounding errors of d and of the quotient. d has a
 * factor of 2^-64, so that it is finite where the result is a subnormal number. x is bounded by its
 * bits, -105 as an unsigned number, because GCC 12 makes a minimum instruction of that and a choice
 * of a comparison of floats with a constant. A bound loses NaN, which `scale` restores.
 */
static inline float raot_sigmoid_of_allf(float x)
{
    const float one = 5.421010862427522e-20f;
    const int32_t bits = (int32_t)raot_bitsf(x);
    const int32_t below = bits < 0x41f00000 ? bits : 0x41f00000; /* 30 */
    const uint32_t from = (uint32_t)below;
    const uint32_t bounded = from < 0xc2d20000u ? from : 0xc2d20000u; /* -105 */
    const float least = raot_of_bitsf(raot_bitsf(x) | 0x80000000u);
    uint32_t shifted;
    const float r = raot_reducef(raot_of_bitsf(bounded ^ 0x80000000u), &shifted);
    const float power = raot_of_bitsf((shifted << 23) + 0x1f800000u);
    const float scale = least < power ? power : least;
    const float t = raot_exp_smallf(r);
    const float high = scale + one;
    const float d = raot_fmaf(t, scale, high);
    const float low = raot_fmaf(t, scale, high - d);
    const float q = raot_reciprocalf(d);
    const float rest = raot_fmaf(-low, q, raot_fmaf(-d, q, 1.0f));
    const float scaled = q * one;

    return raot_fmaf(scaled, rest, scaled);
}

#if defined(RAOT_SCALAR_EXP)
__attribute__((noinline, unused)) static float raot_sigmoid_farf(float x)
{
    return raot_sigmoid_of_allf(x);
}
#endif

/* 1 / (1 + exp(-x)) */
static inline float raot_sigmoidf(float x)
{
#if defined(RAOT_SCALAR_EXP)
    /* For |x| < 30, no factor of 2^-64 is needed. It is exact, so the bits are the same. */
    if ((raot_bitsf(x) & 0x7fffffffu) < 0x41f00000u) {
        uint32_t shifted;
        const float t = raot_exp_smallf(raot_reducef(-x, &shifted));
        const float scale = raot_of_bitsf((shifted << 23) + 0x3f800000u);
        const float high = scale + 1.0f;
        const float d = raot_fmaf(t, scale, high);
        const float low = raot_fmaf(t, scale, high - d);
        const float q = 1.0f / d;

        return raot_fmaf(q, raot_fmaf(-low, q, raot_fmaf(-d, q, 1.0f)), q);
    }
    return raot_sigmoid_farf(x);
#else
    return raot_sigmoid_of_allf(x);
#endif
}

/*
 * exp(x) - 1 = (s - 1) + s r + s (exp(r) - 1 - r) with s = 2^n. s r is exact, and so is s - 1 up to
 * 2^24; `rest` is the rounding error of their sum. Everything is half of that, since 2^128 is no
 * float. Below 1e-10, x is the nearest float.
 */
static inline float raot_expm1f(float x)
{
    const float above = -18.0f > x ? -18.0f : x;
    const float bounded = 89.0f < above ? 89.0f : above;
    uint32_t shifted;
    const float r = raot_reducef(bounded, &shifted);
    const float half = raot_of_bitsf((shifted << 23) + 0x3f000000u);
    const float base = half - 0.5f;
    const float sum = raot_fmaf(half, r, base);
    const float rest = raot_fmaf(half, r, base - sum);
    const float result = sum + raot_fmaf(half * (r * r), raot_exp_tailf(r), rest);

    return raot_absf(x) < 1e-10f ? x : result + result;
}

/* The denominator d of tanh up to 1, for t = x^2. */
static inline float raot_tanh_smallf(float t)
{
    float d = 0.00022790907f;

    d = raot_fmaf(d, t, -0.0056946286f);
    d = raot_fmaf(d, t, 1.1999943f);
    return raot_fmaf(d, t, 3.0000005f);
}

/* The denominator h beyond 1, for a = |x| and t = x^2. */
static inline float raot_tanh_largef(float a, float t)
{
    float even = 0.0002954217f;
    float odd = 1.2727628e-07f;
    float p;

    even = raot_fmaf(even, t, 0.008078604f);
    even = raot_fmaf(even, t, 0.06071721f);
    even = raot_fmaf(even, t, 0.37913403f);
    even = raot_fmaf(even, t, 0.70902723f);
    odd = raot_fmaf(odd, t, -1.8620256e-05f);
    odd = raot_fmaf(odd, t, -0.0016626628f);
    odd = raot_fmaf(odd, t, -0.012336219f);
    odd = raot_fmaf(odd, t, 0.082374364f);
    odd = raot_fmaf(odd, t, 0.696506f);
    p = raot_fmaf(odd, a, even);
    return raot_fmaf(p, p, 0.5f);
}

/*
 * x - x z / d with z = x^2 and d by the continued fraction of tanh up to 1; 1 - 1 / h with
 * h = (exp(2 x) + 1) / 2 = p^2 + 1/2 beyond. The greater one of d and h is the right one, and x is
 * 1 beyond 1, so nothing is chosen. Errors of the quotient count less than the last rounding. The
 * leading coefficients of p and d are positive, so an infinity gives one. The minimum of bits is
 * one instruction, and d restores the NaN that it loses.
 */
static inline float raot_tanhf(float x)
{
    const float a = raot_absf(x);
    const float t = a * a;
#if defined(RAOT_SCALAR_EXP)
    float result;

    /* d is the greater one below 1, h from there on, for every float. */
    if (raot_bitsf(a) < 0x3f800000u) {
        result = raot_fmaf(-a, t / raot_tanh_smallf(t), a);
    } else {
        result = 1.0f - 1.0f / raot_tanh_largef(a, t);
    }
    return raot_of_bitsf(raot_bitsf(result) | (raot_bitsf(x) & 0x80000000u));
#else
    const int32_t bits = (int32_t)raot_bitsf(a);
    const int32_t square = (int32_t)raot_bitsf(t);
    const int32_t bounded = bits < 0x3f800000 ? bits : 0x3f800000;
    const int32_t bounded_square = square < 0x3f800000 ? square : 0x3f800000;
    const float one = raot_of_bitsf((uint32_t)bounded);
    const float z = raot_of_bitsf((uint32_t)bounded_square);
    const float d = raot_tanh_smallf(t);
    const float h = raot_tanh_largef(a, t);
    const float result = raot_fmaf(-one, raot_fractionf(z, d < h ? h : d), one);

    return raot_of_bitsf(raot_bitsf(result) | (raot_bitsf(x) & 0x80000000u));
#endif
}
#endif

#if defined(RAOT_VECTOR_FUNCTIONS)
/* x + x P(x^2) below 1, 1 - exp(-Q(x)) up to 3.93, where it becomes 1. */
static inline float raot_erff(float x)
{
    const float a = raot_absf(x);
    const int32_t bits = (int32_t)raot_bitsf(a);
    const int32_t most = (int32_t)raot_bitsf(3.93f);
    const int32_t bounded = bits < most ? bits : most;
    const float b = raot_of_bitsf((uint32_t)bounded);
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
    q = 1.0f - raot_exp_normalf(-q);
    return a >= 1.0f ? raot_of_bitsf(raot_bitsf(q) | (raot_bitsf(x) & 0x80000000u)) : p;
}

#endif

#endif
