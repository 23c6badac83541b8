/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigonometry.h - sines, tangents and their inverses in float, angles in radians.
 *
 * As in exponential.h, results are bit-identical on every target and use only float and integer
 * arithmetic. Angles of any magnitude are reduced exactly.
 */
#ifndef RAOT_TRIGONOMETRY_H
#define RAOT_TRIGONOMETRY_H

#include <stdint.h>

#include "ieee.h"
#include "pair.h"
#include "quotient.h"
#include "rounding.h"

/* pi / 2 in two parts. */
#define RAOT_HALF_PI_HIGHF 1.5707964f
#define RAOT_HALF_PI_LOWF (-4.371139e-08f)

/* 32 bits of two words, starting at bit `shift` < 32 of the first. */
static inline uint32_t raot_windowf(uint32_t first, uint32_t second, uint32_t shift)
{
    return (uint32_t)(((((uint64_t)first << 32) | second) << shift) >> 32);
}

/*
 * x minus the nearest multiple of pi / 2, for finite x >= 0; returns that multiple modulo 4.
 *
 * x is an integer m < 2^24 times a power of 2. Only the bits of m * 2 / pi below 4 matter, so a
 * window of 96 bits of 2 / pi is enough: 64 bits of the product are correct, and no float is
 * closer than 2^-31 to a multiple.
 */
static inline int32_t raot_angle_reducef(float x, struct raot_pairf *angle)
{
    /* The bits of 2 / pi, after a word of zeros. */
    static const uint32_t two_over_pi[8] = {0u,          0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                            0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    const struct raot_pairf half_pi = {RAOT_HALF_PI_HIGHF, RAOT_HALF_PI_LOWF};
    const uint32_t bits = raot_bitsf(x) & 0x7fffffffu;
    const uint32_t m = (bits & 0x7fffffu) | 0x800000u;
    const uint32_t *word;
    uint32_t place;
    uint64_t product;
    uint64_t quarters;
    int64_t rest;
    int32_t upper;
    float whole;

    if (bits < 0x3f490fdbu) { /* pi / 4 */
        angle->high = x;
        angle->low = 0.0f;
        return 0;
    }
    place = (bits >> 23) - 120u;
    word = two_over_pi + (place >> 5);
    product = (uint64_t)m * raot_windowf(word[2], word[3], place & 31u);
    product = (product >> 32) + (uint64_t)m * raot_windowf(word[1], word[2], place & 31u);
    product += (uint64_t)(m * raot_windowf(word[0], word[1], place & 31u)) << 32;

    /* In units of pi / 2: 2 integer bits, 62 fraction bits. */
    quarters = product + (UINT64_C(1) << 61);
    rest = (int64_t)(quarters & ((UINT64_C(1) << 62) - 1u)) - (INT64_C(1) << 61);
    upper = (int32_t)(rest >> 32);
    whole = (float)upper;
    angle->high = whole * 9.3132257e-10f;
    angle->low = (float)(upper - (int32_t)whole) + (float)(uint32_t)rest * 2.3283064e-10f;
    angle->low *= 9.3132257e-10f;
    *angle = raot_pair_mulf(raot_pair_sumf(angle->high, angle->low), half_pi);
    return (int32_t)(quarters >> 62);
}

/* sin(r) for |r| <= pi / 4. */
static inline struct raot_pairf raot_sin_nearf(struct raot_pairf r)
{
    const float z = raot_mulf(r.high, r.high);
    float low;
    float p = -0.0001951845f;

    p = raot_madf(p, z, 0.00833219f);
    p = raot_madf(p, z, -0.16666655f);
    low = raot_madf(raot_mulf(r.high, z), p, r.low - raot_mulf(0.5f * z, r.low));
    return raot_pair_sumf(r.high, low);
}

/* cos(r) for |r| <= pi / 4. */
static inline struct raot_pairf raot_cos_nearf(struct raot_pairf r)
{
    const float z = raot_mulf(r.high, r.high);
    struct raot_pairf cosine = raot_pair_sumf(1.0f, -0.5f * z);
    float p = 2.443297e-05f;

    p = raot_madf(p, z, -0.0013887313f);
    p = raot_madf(p, z, 0.041666646f);
    cosine.low += raot_mulf(raot_mulf(z, z), p) - raot_mulf(r.high, r.low);
    return raot_pair_sumf(cosine.high, cosine.low);
}

/* The sine of r + quarter * pi / 2. */
static inline float raot_quarterf(struct raot_pairf r, int32_t quarter)
{
    const float sine = (quarter & 1) == 0 ? raot_sin_nearf(r).high : raot_cos_nearf(r).high;

    return (quarter & 2) == 0 ? sine : -sine;
}

static inline float raot_sinf(float x)
{
    struct raot_pairf r;
    const float a = raot_absf(x);
    int32_t quarter;

    if (a < 1e-4f) {
        return x;
    }
    if (!(a < RAOT_INFINITY)) {
        return RAOT_NAN;
    }
    quarter = raot_angle_reducef(a, &r);
    return raot_signbitf(x) != 0 ? -raot_quarterf(r, quarter) : raot_quarterf(r, quarter);
}

static inline float raot_cosf(float x)
{
    struct raot_pairf r;
    const float a = raot_absf(x);
    int32_t quarter;

    if (!(a < RAOT_INFINITY)) {
        return RAOT_NAN;
    }
    quarter = raot_angle_reducef(a, &r);
    return raot_quarterf(r, quarter + 1);
}

static inline float raot_tanf(float x)
{
    struct raot_pairf r;
    struct raot_pairf quotient;
    const float a = raot_absf(x);
    int32_t quarter;
    float sum;

    if (a < 1e-4f) {
        return x;
    }
    if (!(a < RAOT_INFINITY)) {
        return RAOT_NAN;
    }
    quarter = raot_angle_reducef(a, &r);
    if ((quarter & 1) == 0) {
        quotient = raot_pair_quotientf(raot_sin_nearf(r), raot_cos_nearf(r));
    } else {
        quotient = raot_pair_quotientf(raot_cos_nearf(r), raot_sin_nearf(r));
        quotient.high = -quotient.high;
        quotient.low = -quotient.low;
    }
    sum = quotient.high + quotient.low;
    return raot_signbitf(x) != 0 ? -sum : sum;
}

static inline float raot_atanf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf base = {0.0f, 0.0f};
    struct raot_pairf t = {a, 0.0f};
    float z;
    float p = -0.060898177f;

    if (!(a < 1e8f)) {
        return raot_isnanf(x) ? RAOT_NAN : raot_copysignf(RAOT_HALF_PI_HIGHF, x);
    }
    if (a > 2.4142135f) {
        /* pi/2 + atan(-1/a) */
        t.high = raot_quotientf(-1.0f, a);
        base.high = RAOT_HALF_PI_HIGHF;
        base.low = RAOT_HALF_PI_LOWF;
    } else if (a > 0.41421356f) {
        /* pi/4 + atan((a - 1) / (a + 1)) */
        if (a < 1.0f) {
            t = raot_pair_quotientf(raot_pair_sumf(-1.0f, a), raot_pair_sumf(1.0f, a));
        } else {
            t = raot_pair_quotientf(raot_pair_sumf(a, -1.0f), raot_pair_sumf(a, 1.0f));
        }
        base.high = 0.5f * RAOT_HALF_PI_HIGHF;
        base.low = 0.5f * RAOT_HALF_PI_LOWF;
    } else {
        if (a < 1e-4f) {
            return x;
        }
    }
    z = raot_mulf(t.high, t.high);
    p = raot_madf(p, z, 0.10599103f);
    p = raot_madf(p, z, -0.14244387f);
    p = raot_madf(p, z, 0.19998528f);
    p = raot_madf(p, z, -0.33333316f);
    t.low += base.low + raot_mulf(raot_mulf(t.high, z), p);
    if (base.high != 0.0f) {
        base = raot_pair_sumf(base.high, t.high);
        t.high = base.high;
        t.low += base.low;
    }
    return raot_copysignf(t.high + t.low, x);
}

/* (asin(s) - s) / s for z = s^2 <= 1/4. */
static inline float raot_asin_tailf(float z)
{
    float p = 0.03755098f;

    p = raot_madf(p, z, 0.014408718f);
    p = raot_madf(p, z, 0.031817585f);
    p = raot_madf(p, z, 0.044515423f);
    p = raot_madf(p, z, 0.07500515f);
    p = raot_madf(p, z, 0.1666666f);
    return raot_mulf(z, p);
}

/* 2 asin(sqrt((1 - a) / 2)) for 1/2 <= a < 1, which is acos(a); `low` is not rounded off. */
static inline struct raot_pairf raot_acos_nearf(float a)
{
    const struct raot_pairf z = {0.5f * (1.0f - a), 0.0f};
    struct raot_pairf s = raot_pair_sqrtf(z);

    s.low = 2.0f * raot_madf(s.high, raot_asin_tailf(z.high), s.low);
    s.high *= 2.0f;
    return s;
}

/* NaN outside -1..1. */
static inline float raot_asinf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf s;
    struct raot_pairf sum;

    if (!(a < 1.0f)) {
        return a == 1.0f ? raot_copysignf(RAOT_HALF_PI_HIGHF, x) : RAOT_NAN;
    }
    if (a < 0.5f) {
        return a < 1e-4f ? x : raot_madf(x, raot_asin_tailf(raot_mulf(x, x)), x);
    }
    s = raot_acos_nearf(a);
    sum = raot_pair_sumf(RAOT_HALF_PI_HIGHF, -s.high);
    return raot_copysignf(sum.high + (sum.low + (RAOT_HALF_PI_LOWF - s.low)), x);
}

/* NaN outside -1..1. */
static inline float raot_acosf(float x)
{
    const float a = raot_absf(x);
    struct raot_pairf s;
    struct raot_pairf sum;

    if (!(a < 1.0f)) {
        return a > 1.0f || raot_isnanf(x) ? RAOT_NAN : x > 0.0f ? 0.0f : 2.0f * RAOT_HALF_PI_HIGHF;
    }
    if (a < 0.5f) {
        sum = raot_pair_sumf(RAOT_HALF_PI_HIGHF, -x);
        s.low = raot_mulf(x, raot_asin_tailf(raot_mulf(x, x)));
        return sum.high + (sum.low + (RAOT_HALF_PI_LOWF - s.low));
    }
    s = raot_acos_nearf(a);
    if (x > 0.0f) {
        return s.high + s.low;
    }
    sum = raot_pair_sumf(2.0f * RAOT_HALF_PI_HIGHF, -s.high);
    return sum.high + (sum.low + (2.0f * RAOT_HALF_PI_LOWF - s.low));
}

#endif
