/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exponential.h - powers, logarithms, hyperbolic functions, sigmoid and erf in float.
 *
 * Results are bit-identical on every target, except for the functions of vector_functions.h;
 * docs/reference/math_functions.md lists the errors. NaN gives NaN. The functions use only float
 * and integer arithmetic, because cores with a single-precision FPU or without FPU compute double
 * slowly.
 */
#ifndef RAOT_EXPONENTIAL_H
#define RAOT_EXPONENTIAL_H

#include <stdint.h>

#include "exp_parts.h"
#include "ieee.h"
#include "pair.h"
#include "quotient.h"
#include "rounding.h"
#include "vector_functions.h"

/* On targets without vectors, a branch is cheaper than what it skips: for |x| < 87.5, results are
 * scaled by one power of 2, with the same rounding. What is rare stays outside of loops. */
#if defined(__GNUC__) && !defined(RAOT_DEVICE) && !defined(__SSE2__) && !defined(__aarch64__) && \
    !defined(__ARM_FEATURE_MVE) && !defined(__OPTIMIZE_SIZE__)
#define RAOT_EXP_BRANCHES 1

/* Whether |x| < 87.5: exp(x) is 2^n times a number near 1, where 2^n is no subnormal. */
static inline int raot_exp_is_near(float x)
{
    return (raot_bitsf(x) & 0x7fffffffu) < 0x42af0000u;
}

#define RAOT_EXP_FAR __attribute__((noinline, unused)) static
#else
#define RAOT_EXP_FAR static inline
#endif

#if !defined(RAOT_VECTOR_EXP)
/* Without branches, so that loops vectorize. */
RAOT_EXP_FAR float raot_exp_farf(float x)
{
    const float above = x > -105.0f ? x : -105.0f;
    const float bounded = above < 105.0f ? above : 105.0f;
    struct raot_pairf part;
    const int32_t n = raot_exp_partsf(bounded, &part);
    const float result = raot_scalef(1.0f + part.high, n);

    return raot_isnanf(x) ? RAOT_NAN : result;
}

/* e^x: 0 or infinite above 105. */
static inline float raot_expf(float x)
{
#if defined(RAOT_EXP_BRANCHES)
    if (raot_exp_is_near(x) != 0) {
        struct raot_pairf part;
        const int32_t n = raot_exp_partsf(x, &part);

        return (1.0f + part.high) * raot_powerf(n);
    }
#endif
    return raot_exp_farf(x);
}

/* exp(x - peak) for x <= peak. */
static inline float raot_exp_belowf(float x, float peak)
{
    return raot_expf(x - peak);
}
#endif

/* 2^x */
static inline float raot_exp2f(float x)
{
    struct raot_pairf r;
    int32_t whole;
    float n;

    if (!(raot_absf(x) < 151.0f)) {
        return raot_isnanf(x) ? RAOT_NAN : x > 0.0f ? RAOT_INFINITY : 0.0f;
    }
    n = raot_nearestf(x, &whole);
    r = raot_pair_productf(x - n, 0.6931472f);
    r.low = raot_madf(x - n, -1.9046542e-09f, r.low);
    r = raot_expm1_nearf(r);
    return raot_scalef(1.0f + r.high, whole);
}

#if !defined(RAOT_VECTOR_EXP)
/* exp(x) - 1, accurate for small x. */
static inline float raot_expm1f(float x)
{
    struct raot_pairf part;
    struct raot_pairf sum;
    int32_t n;
    float scale;

    if (!(x < 89.0f)) {
        return raot_isnanf(x) ? RAOT_NAN : RAOT_INFINITY;
    }
    if (x < -18.0f) {
        return -1.0f;
    }
    if (raot_absf(x) < 0.34f) {
        part.high = x;
        part.low = 0.0f;
        return raot_absf(x) < 1e-10f ? x : raot_expm1_nearf(part).high;
    }
    n = raot_exp_partsf(x, &part);
    if (n > 25) {
        return raot_scalef(1.0f + part.high, n);
    }
    scale = raot_powerf(n);
    sum = n < 0 ? raot_pair_sumf(-1.0f, scale) : raot_pair_sumf(scale, -1.0f);
    part.high *= scale;
    part.low *= scale;
    if (raot_absf(sum.high) < raot_absf(part.high)) {
        sum = raot_pair_sumf(part.high, sum.high);
    } else {
        const float rest = sum.low;

        sum = raot_pair_sumf(sum.high, part.high);
        sum.low += rest;
    }
    return sum.high + (sum.low + part.low);
}
#endif

/* u = 2^n * (1 + f) with 1 + f in sqrt(1/2)..sqrt(2); u is positive and finite. Returns n. */
static inline int32_t raot_log_splitf(float u, float *f)
{
    const uint32_t root_half = 0x3f3504f3u;
    int32_t n = 0;
    uint32_t bits;

    if (u < FLT_MIN) {
        u *= 8388608.0f;
        n = -23;
    }
    bits = raot_bitsf(u) + (0x3f800000u - root_half);
    *f = raot_of_bitsf((bits & 0x7fffffu) + root_half) - 1.0f;
    return n + (int32_t)(bits >> 23) - 127;
}

/* log(1 + f) - f + f^2/2 for 1 + f in sqrt(1/2)..sqrt(2). */
static inline float raot_log_tailf(float f)
{
    float p = 0.06864547f;

    p = raot_madf(p, f, -0.1176073f);
    p = raot_madf(p, f, 0.11880254f);
    p = raot_madf(p, f, -0.123898216f);
    p = raot_madf(p, f, 0.142184f);
    p = raot_madf(p, f, -0.16668925f);
    p = raot_madf(p, f, 0.20002227f);
    p = raot_madf(p, f, -0.24999993f);
    p = raot_madf(p, f, 0.3333331f);
    return raot_mulf(raot_mulf(raot_mulf(f, f), f), p);
}

/* log(2^shift * u * (1 + rest)) for positive finite u and |rest| < 2^-23. */
static inline float raot_log_sumf(float u, float rest, int32_t shift)
{
    float f;
    const int32_t exponent = raot_log_splitf(u, &f);
    const float n = (float)(exponent + shift);
    const struct raot_pairf sum = raot_pair_sumf(raot_mulf(n, RAOT_LN2_HIGHF), f);
    const float square = raot_mulf(0.5f * f, f);
    const float low = raot_madf(n, RAOT_LN2_LOWF, raot_log_tailf(f));

    return sum.high + (sum.low + ((low + rest) - square));
}

static inline float raot_logf(float x)
{
    if (!(x > 0.0f)) {
        return x == 0.0f ? -RAOT_INFINITY : RAOT_NAN;
    }
    return raot_isinff(x) ? x : raot_log_sumf(x, 0.0f, 0);
}

/* log(1 + x.high + x.low); the sum is positive and finite. */
static inline float raot_log1p_pairf(struct raot_pairf x)
{
    const struct raot_pairf u =
        raot_absf(x.high) < 1.0f ? raot_pair_sumf(1.0f, x.high) : raot_pair_sumf(x.high, 1.0f);

    return raot_log_sumf(u.high, raot_quotientf(u.low + x.low, u.high), 0);
}

/* log(1 + x), accurate for small x. */
static inline float raot_log1pf(float x)
{
    struct raot_pairf pair;

    if (!(x > -1.0f)) {
        return x == -1.0f ? -RAOT_INFINITY : RAOT_NAN;
    }
    if (raot_absf(x) < 2e-8f || raot_isinff(x)) {
        return x;
    }
    pair.high = x;
    pair.low = 0.0f;
    return raot_log1p_pairf(pair);
}

/* The logarithm to base 2; exact for powers of 2. */
static inline float raot_log2f(float x)
{
    struct raot_pairf sum;
    float f;
    float n;
    float square;
    float high;
    float low;

    if (!(x > 0.0f) || raot_isinff(x)) {
        return x > 0.0f ? x : x == 0.0f ? -RAOT_INFINITY : RAOT_NAN;
    }
    n = (float)raot_log_splitf(x, &f);
    square = raot_mulf(0.5f * f, f);
    high = raot_upperf(f - square);
    low = ((f - high) - square) + raot_log_tailf(f);
    /* 1 / ln 2 = 1.44287109375 - 0.000176...; the first part times `high` is exact. */
    sum = raot_pair_sumf(n, high * 1.44287109375f);
    low = raot_madf(low, 1.442695f, raot_mulf(high, -0.00017605286f));
    return sum.high + (sum.low + low);
}

static inline float raot_sinhf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf part;
    int32_t n;

    if (a < 1.0f) {
        const float z = raot_mulf(x, x);
        float p = 2.789984e-06f;

        p = raot_madf(p, z, 0.00019841666f);
        p = raot_madf(p, z, 0.008333315f);
        p = raot_madf(p, z, 0.16666667f);
        return a < 1e-5f ? x : raot_madf(raot_mulf(x, z), p, x);
    }
    if (!(a < 90.0f)) {
        return raot_isnanf(x) ? RAOT_NAN : raot_copysignf(RAOT_INFINITY, x);
    }
    if (a < 10.0f) {
        part = raot_exp_pairf(a, -1);
        part.low -= raot_quotientf(0.25f, part.high);
        return raot_copysignf(part.high + part.low, x);
    }
    n = raot_exp_partsf(a, &part);
    return raot_copysignf(raot_scalef(1.0f + part.high, (int32_t)((uint32_t)n - 1u)), x);
}

static inline float raot_coshf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf part;
    int32_t n;

    if (!(a < 90.0f)) {
        return raot_isnanf(x) ? RAOT_NAN : RAOT_INFINITY;
    }
    if (a < 10.0f) {
        part = raot_exp_pairf(a, -1);
        part.low += raot_quotientf(0.25f, part.high);
        return part.high + part.low;
    }
    n = raot_exp_partsf(a, &part);
    return raot_scalef(1.0f + part.high, (int32_t)((uint32_t)n - 1u));
}

#if !defined(RAOT_VECTOR_EXP)
static inline float raot_tanhf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf e;
    struct raot_pairf sum;
    float q;

    if (a < 0.625f) {
        const float z = raot_mulf(x, x);
        float p = -0.0056985817f;

        p = raot_madf(p, z, 0.02063283f);
        p = raot_madf(p, z, -0.05373759f);
        p = raot_madf(p, z, 0.13331413f);
        p = raot_madf(p, z, -0.3333328f);
        return a < 1e-5f ? x : raot_madf(raot_mulf(x, z), p, x);
    }
    if (!(a < 9.1f)) {
        return raot_isnanf(x) ? RAOT_NAN : raot_copysignf(1.0f, x);
    }
    /* 1 - 2 / (exp(2a) + 1), with the rounding errors of the sums added. */
    e = raot_exp_pairf(2.0f * a, 0);
    sum = raot_pair_sumf(e.high, 1.0f);
    q = raot_quotientf(2.0f, sum.high);
    e.low = raot_mulf(raot_mulf(0.5f * q, q), sum.low + e.low);
    sum = raot_pair_sumf(1.0f, -q);
    return raot_copysignf(sum.high + (sum.low + e.low), x);
}
#endif

#if !defined(RAOT_VECTOR_EXP)
/* 1 / (1 + e), for the pair e = exp(-|x|). */
static inline float raot_sigmoid_of_expf(float x, struct raot_pairf e)
{
    struct raot_pairf sum = raot_pair_sumf(1.0f, e.high);
    float q;

    sum.low += e.low;
    if (x < 0.0f) {
        q = raot_quotientf(e.high, sum.high);
        e.low -= raot_mulf(q, sum.low);
    } else {
        q = raot_quotientf(1.0f, sum.high);
        e.low = -raot_mulf(q, sum.low);
    }
    /* The correction is about half a unit of q, so 1 / sum within 4 % suffices, without a
     * division. */
    return raot_madf(e.low, raot_madf(sum.high, -0.5f, 1.457f), q);
}

#if defined(RAOT_EXP_BRANCHES)
RAOT_EXP_FAR float raot_sigmoid_farf(float x)
{
    return x > 0.0f ? 1.0f : raot_exp_farf(x);
}
#endif

/* 1 / (1 + exp(-x)) */
static inline float raot_sigmoidf(float x)
{
#if defined(RAOT_EXP_BRANCHES)
    return raot_exp_is_near(x) ? raot_sigmoid_of_expf(x, raot_exp_pairf(-raot_absf(x), 0))
                               : raot_sigmoid_farf(x);
#else
    struct raot_pairf part;
    struct raot_pairf e;
    int32_t n;
    const float a = raot_absf(x);

    if (!(a < 105.0f)) {
        return raot_isnanf(x) ? RAOT_NAN : x > 0.0f ? 1.0f : 0.0f;
    }
    n = raot_exp_partsf(-a, &part);
    e = raot_pair_sumf(1.0f, part.high);
    e.low = raot_scalef(e.low + part.low, n);
    e.high = raot_scalef(e.high, n);
    return raot_sigmoid_of_expf(x, e);
#endif
}
#endif

static inline float raot_asinhf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf sum;
    float square;

    if (a < 1e-4f || !(a < RAOT_INFINITY)) {
        return raot_isnanf(x) ? RAOT_NAN : x;
    }
    if (a > 4096.0f) {
        return raot_copysignf(raot_log_sumf(a, 0.0f, 1), x);
    }
    /* log(1 + a + (sqrt(1 + a^2) - 1)) */
    square = raot_mulf(a, a);
    sum = raot_pair_sumf(a, raot_quotientf(square, 1.0f + raot_sqrtf(1.0f + square)));
    return raot_copysignf(raot_log1p_pairf(sum), x);
}

/* NaN below 1. */
static inline float raot_acoshf(float x)
{
    struct raot_pairf sum;
    struct raot_pairf square;
    float t;

    if (!(x > 1.0f) || raot_isinff(x)) {
        return x == 1.0f ? 0.0f : x > 1.0f ? x : RAOT_NAN;
    }
    if (x > 4096.0f) {
        return raot_log_sumf(x, 0.0f, 1);
    }
    /* log(1 + t + sqrt(t (t + 2))), t = x - 1 */
    t = x - 1.0f;
    sum = t < 2.0f ? raot_pair_sumf(2.0f, t) : raot_pair_sumf(t, 2.0f);
    square = raot_pair_productf(t, sum.high);
    square.low = raot_madf(t, sum.low, square.low);
    square = raot_pair_sqrtf(square);
    sum = raot_pair_sumf(square.high, t);
    sum.low += square.low;
    return raot_log1p_pairf(sum);
}

/* Infinite at -1 and 1, NaN outside. */
static inline float raot_atanhf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf sum;
    struct raot_pairf difference;

    if (!(a < 1.0f)) {
        return a == 1.0f ? raot_copysignf(RAOT_INFINITY, x) : RAOT_NAN;
    }
    if (a < 1e-4f) {
        return x;
    }
    /* log(1 + 2a / (1 - a)) / 2 */
    difference = raot_pair_sumf(1.0f, -a);
    sum.high = 2.0f * a;
    sum.low = 0.0f;
    sum = raot_pair_quotientf(sum, difference);
    return raot_copysignf(0.5f * raot_log1p_pairf(sum), x);
}

#if !defined(RAOT_VECTOR_FUNCTIONS)
/* erf(x) for |x| < 1. */
static inline float raot_erf_nearf(float x)
{
    const float z = raot_mulf(x, x);
    float p = 7.919902e-05f;

    p = raot_madf(p, z, -0.0008030654f);
    p = raot_madf(p, z, 0.005190726f);
    p = raot_madf(p, z, -0.026855124f);
    p = raot_madf(p, z, 0.11283618f);
    p = raot_madf(p, z, -0.3761263f);
    p = raot_madf(p, z, 0.12837917f);
    return raot_madf(x, p, x);
}

/* erf(a) = 1 - exp(-P(a)) for 1 <= a < 3.93; other a >= 0 are allowed, but the result is not
 * used. */
static inline float raot_erf_farf(float a)
{
    struct raot_pairf part;
    float p = -1.06964414e-07f;
    int32_t n;

    p = raot_madf(p, a, 2.321063e-05f);
    p = raot_madf(p, a, -0.00045064016f);
    p = raot_madf(p, a, 0.0042363717f);
    p = raot_madf(p, a, -0.025274895f);
    p = raot_madf(p, a, 0.10850621f);
    p = raot_madf(p, a, 0.6331492f);
    p = raot_madf(p, a, 1.1296104f);
    p = raot_madf(p, a, -0.00019426612f);
    n = raot_exp_partsf(-p, &part);
    return 1.0f - raot_scalef(1.0f + part.high, n);
}

static inline float raot_erff(float x)
{
    const float a = raot_absf(x);

#if defined(__SSE2__) || defined(__aarch64__)
    /* Both formulas and a selection, so that loops vectorize. */
    const float inside = raot_erf_nearf(x);
    const float outside = raot_erf_farf(a < 3.93f ? a : 3.93f);
    const float large = raot_copysignf(a < 3.93f ? outside : 1.0f, x);
    const float result = a < 1.0f ? inside : large;

    return raot_isnanf(x) ? RAOT_NAN : result;
#else
    if (a < 1.0f) {
        return raot_erf_nearf(x);
    }
    if (!(a < 3.93f)) {
        return raot_isnanf(x) ? RAOT_NAN : raot_copysignf(1.0f, x);
    }
    return raot_copysignf(raot_erf_farf(a), x);
#endif
}
#endif

/* The logarithm to base 2 of a positive finite number, with a relative error of about 2^-40. */
static inline struct raot_pairf raot_log2_pairf(float x)
{
    const struct raot_pairf third = {0.33333334f, -9.934108e-09f};
    const struct raot_pairf two_over_ln2 = {2.88539f, 3.851926e-08f};
    struct raot_pairf s;
    struct raot_pairf z;
    struct raot_pairf tail;
    struct raot_pairf sum;
    float f;
    float n;
    float p = 0.09763886f;

    /* atanh(s) = s (1 + z/3 + z^2 P(z)) with s = f / (2 + f), z = s^2 */
    n = (float)raot_log_splitf(x, &f);
    s.high = f;
    s.low = 0.0f;
    s = raot_pair_quotientf(s, raot_pair_sumf(2.0f, f));
    z = raot_pair_mulf(s, s);
    p = raot_madf(p, z.high, 0.11090531f);
    p = raot_madf(p, z.high, 0.14285979f);
    p = raot_madf(p, z.high, 0.19999999f);
    tail = raot_pair_mulf(z, third);
    tail.low = raot_madf(raot_mulf(z.high, z.high), p, tail.low);
    s = raot_pair_mulf(s, two_over_ln2);
    tail = raot_pair_mulf(s, tail);
    sum = raot_pair_sumf(s.high, tail.high);
    sum.low += s.low + tail.low;
    s = raot_pair_sumf(n, sum.high);
    s.low += sum.low;
    return raot_pair_sumf(s.high, s.low);
}

/* 2 if y is an even integer, 1 if y is an odd integer, else 0. */
static inline int raot_parityf(float y)
{
    const float half = 0.5f * y;

    if (raot_truncf(y) != y) {
        return 0;
    }
    return raot_truncf(half) == half ? 2 : 1;
}

/* x^y for the special cases of C: zero, infinity, NaN or 1 as x or y. */
static inline float raot_pow_specialf(float x, float y)
{
    float power;

    if (x == 1.0f || y == 0.0f) {
        return 1.0f;
    }
    if (raot_isnanf(x) || raot_isnanf(y)) {
        return RAOT_NAN;
    }
    if (raot_isinff(y) != 0) {
        const float a = raot_absf(x);

        return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? RAOT_INFINITY : 0.0f;
    }
    power = (x == 0.0f) == (y < 0.0f) ? RAOT_INFINITY : 0.0f;
    return raot_parityf(y) == 1 ? raot_copysignf(power, x) : power;
}

/* x^y as in C: NaN if x is negative and y is not an integer; 1 if x is 1 or y is 0. */
static inline float raot_powf(float x, float y)
{
    float sign = 1.0f;
    int32_t whole;
    struct raot_pairf exponent;
    struct raot_pairf r;
    float n;

    if (x == 0.0f || x == 1.0f || y == 0.0f || !(raot_absf(x) < RAOT_INFINITY) ||
        !(raot_absf(y) < RAOT_INFINITY)) {
        return raot_pow_specialf(x, y);
    }
    if (x < 0.0f) {
        const int parity = raot_parityf(y);

        if (parity == 0) {
            return RAOT_NAN;
        }
        sign = parity == 1 ? -1.0f : 1.0f;
    }
    exponent = raot_log2_pairf(raot_absf(x));
    if (!(raot_absf(raot_mulf(exponent.high, y)) < 152.0f)) {
        return (exponent.high > 0.0f) == (y > 0.0f) ? sign * RAOT_INFINITY : sign * 0.0f;
    }
    r = raot_pair_productf(y, exponent.high);
    r.low = raot_madf(y, exponent.low, r.low);
    n = raot_nearestf(r.high, &whole);
    r = raot_pair_sumf(r.high - n, r.low);
    /* exp(r ln 2) */
    {
        const struct raot_pairf ln2 = {0.6931472f, -1.9046542e-09f};

        r = raot_expm1_nearf(raot_pair_mulf(r, ln2));
    }
    return sign * raot_scalef(1.0f + r.high, whole);
}

#endif
