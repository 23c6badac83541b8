/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trigonometry64.h - sines, tangents and their inverses in double, angles in radians. As in
 * trigonometry.h, results are bit-identical on every target, and angles of any magnitude are
 * reduced exactly.
 */
#ifndef RAOT_TRIGONOMETRY64_H
#define RAOT_TRIGONOMETRY64_H

#include <stdint.h>

#include "ieee.h"
#include "pair64.h"
#include "rounding.h"
#include "trigonometry.h"

/*
 * |x| minus the nearest multiple of pi / 2, for finite x; returns that multiple modulo 4.
 *
 * |x| is an integer m < 2^53 times a power of 2. Only the bits of m * 2 / pi below 4 matter, so a
 * window of 192 bits of 2 / pi is enough: 137 bits of the fraction are correct, and no double is
 * closer than 2^-62 to a multiple.
 */
static inline int32_t raot_angle_reduce(double x, struct raot_pair *angle)
{
    /* The bits of 2 / pi, after two words of zeros. */
    static const uint32_t two_over_pi[40] = {
        0x00000000u, 0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u,
        0x3c439041u, 0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu,
        0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u, 0xe99c7026u, 0xb45f7e41u, 0x3991d639u,
        0x835339f4u, 0x9c845f8bu, 0xbdf9283bu, 0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu,
        0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u,
        0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu};
    const struct raot_pair half_pi = {1.5707963267948966, 6.123233995736766e-17};
    const uint64_t bits = raot_bits(x) & UINT64_C(0x7fffffffffffffff);
    const uint64_t m = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x10000000000000);
    uint32_t product[6];
    uint32_t window[6];
    uint32_t place;
    uint32_t quarter;
    uint64_t carry = 0u;
    double unit = 9.3132257461547852e-10; /* 2^-30 */
    int negative;

    angle->high = raot_abs(x);
    angle->low = 0.0;
    if (bits < UINT64_C(0x3fe921fb54442d18)) { /* pi / 4 */
        return 0;
    }
    place = (uint32_t)(bits >> 52) - 1013u;
    /*@ loop unroll 6; */
    for (uint32_t i = 0; i < 6u; i++) {
        const uint32_t *const word = two_over_pi + (place >> 5) + i;

        window[i] = raot_windowf(word[0], word[1], place & 31u);
    }
    /*@ loop unroll 6; */
    for (uint32_t left = 6u; left > 0u; left--) {
        const uint32_t i = left - 1u;

        carry += (m & 0xffffffffu) * window[i];
        product[i] = (uint32_t)carry;
        carry >>= 32;
    }
    carry = 0u;
    /*@ loop unroll 6; */
    for (uint32_t left = 5u; left > 0u; left--) {
        const uint32_t i = left - 1u;

        carry += (m >> 32) * window[i + 1u] + product[i];
        product[i] = (uint32_t)carry;
        carry >>= 32;
    }

    /* In units of pi / 2: 2 integer bits, 190 fraction bits. */
    quarter = (product[0] + 0x20000000u) >> 30;
    product[0] -= quarter << 30;
    negative = (product[0] >> 31) != 0u;
    if (negative != 0) {
        carry = 1u;
        /*@ loop unroll 6; */
        for (uint32_t left = 6u; left > 0u; left--) {
            const uint32_t i = left - 1u;

            carry += (uint32_t)~product[i];
            product[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    angle->high = 0.0;
    /*@ loop unroll 6; */
    for (uint32_t i = 0; i < 6u; i++) {
        const struct raot_pair sum = raot_pair_sum(angle->high, unit * (double)product[i]);

        angle->high = sum.high;
        angle->low += sum.low;
        unit *= 2.3283064365386963e-10; /* 2^-32 */
    }
    *angle = raot_pair_mul(raot_pair_sum(angle->high, angle->low), half_pi);
    if (negative != 0) {
        angle->high = -angle->high;
        angle->low = -angle->low;
    }
    return (int32_t)quarter;
}

/* sin(r) for |r| <= pi / 4, by its series. */
static inline struct raot_pair raot_sin_near(struct raot_pair r)
{
    const double z = raot_mul(r.high, r.high);
    double p = 2.8114572543455206e-15; /* 1 / 17! */

    p = raot_mad(p, z, -7.6471637318198164e-13);
    p = raot_mad(p, z, 1.6059043836821613e-10);
    p = raot_mad(p, z, -2.5052108385441720e-08);
    p = raot_mad(p, z, 2.7557319223985893e-06);
    p = raot_mad(p, z, -1.9841269841269841e-04);
    p = raot_mad(p, z, 8.3333333333333333e-03);
    p = raot_mad(p, z, -1.6666666666666667e-01);
    p = raot_mad(raot_mul(r.high, z), p, r.low - raot_mul(0.5 * z, r.low));
    return raot_pair_sum(r.high, p);
}

/* cos(r) for |r| <= pi / 4. */
static inline struct raot_pair raot_cos_near(struct raot_pair r)
{
    const struct raot_pair z = raot_pair_product(r.high, r.high);
    struct raot_pair cosine = raot_pair_sum(1.0, -0.5 * z.high);
    double p = -1.5619206968586226e-16; /* -1 / 18! */

    p = raot_mad(p, z.high, 4.7794773323873853e-14);
    p = raot_mad(p, z.high, -1.1470745597729725e-11);
    p = raot_mad(p, z.high, 2.0876756987868099e-09);
    p = raot_mad(p, z.high, -2.7557319223985891e-07);
    p = raot_mad(p, z.high, 2.4801587301587302e-05);
    p = raot_mad(p, z.high, -1.3888888888888889e-03);
    p = raot_mad(p, z.high, 4.1666666666666667e-02);
    p = raot_mul(raot_mul(z.high, z.high), p);
    cosine.low += (p - 0.5 * z.low) - raot_mul(r.high, r.low);
    return raot_pair_sum(cosine.high, cosine.low);
}

/* The sine of r + quarter * pi / 2. */
static inline double raot_quarter(struct raot_pair r, int32_t quarter)
{
    const double sine = (quarter & 1) == 0 ? raot_sin_near(r).high : raot_cos_near(r).high;

    return (quarter & 2) == 0 ? sine : -sine;
}

/* NaN if x is infinite; the same for cos and tan. */
static inline double raot_sin(double x)
{
    struct raot_pair r;
    int32_t quarter;
    double sine;

    if (raot_abs(x) < 1e-8) {
        return x;
    }
    if (!(raot_abs(x) < (double)RAOT_INFINITY)) {
        return (double)RAOT_NAN;
    }
    quarter = raot_angle_reduce(x, &r);
    sine = raot_quarter(r, quarter);
    return raot_signbit(x) != 0 ? -sine : sine;
}

static inline double raot_cos(double x)
{
    struct raot_pair r;
    int32_t quarter;

    if (!(raot_abs(x) < (double)RAOT_INFINITY)) {
        return (double)RAOT_NAN;
    }
    quarter = raot_angle_reduce(x, &r);
    return raot_quarter(r, quarter + 1);
}

static inline double raot_tan(double x)
{
    struct raot_pair r;
    struct raot_pair quotient;
    int32_t quarter;
    double tangent;

    if (raot_abs(x) < 1e-8) {
        return x;
    }
    if (!(raot_abs(x) < (double)RAOT_INFINITY)) {
        return (double)RAOT_NAN;
    }
    quarter = raot_angle_reduce(x, &r);
    if ((quarter & 1) == 0) {
        quotient = raot_pair_quotient(raot_sin_near(r), raot_cos_near(r));
        tangent = quotient.high;
    } else {
        quotient = raot_pair_quotient(raot_cos_near(r), raot_sin_near(r));
        tangent = -quotient.high;
    }
    return raot_signbit(x) != 0 ? -tangent : tangent;
}

/* atan(t) for t >= 0 and finite. */
static inline struct raot_pair raot_atan_pair(struct raot_pair t)
{
    const struct raot_pair one = {1.0, 0.0};
    const struct raot_pair minus_one = {-1.0, 0.0};
    const struct raot_pair half_pi = {1.5707963267948966, 6.123233995736766e-17};
    const struct raot_pair quarter_pi = {0.7853981633974483, 3.061616997868383e-17};
    const int inverse = t.high > 1.0;
    int turned;
    double z;
    double sum = 0.0;

    if (inverse != 0) {
        t = raot_pair_quotient(one, t);
    }
    turned = t.high > 0.4142135623730950;
    if (turned != 0) {
        t = raot_pair_quotient(raot_pair_add(t, minus_one), raot_pair_add(t, one));
    }
    z = raot_mul(t.high, t.high);
    for (int32_t k = 41; k > 1; k -= 2) {
        sum = raot_mul(1.0 / (double)k - sum, z);
    }
    t = raot_pair_sum(t.high, t.low - raot_mul(t.high, sum));
    if (turned != 0) {
        t = raot_pair_add(quarter_pi, t);
    }
    if (inverse != 0) {
        t.high = -t.high;
        t.low = -t.low;
        t = raot_pair_add(half_pi, t);
    }
    return t;
}

static inline double raot_atan(double x)
{
    const struct raot_pair t = {raot_abs(x), 0.0};

    if (raot_isnan(x) || t.high < 1e-8) {
        return x;
    }
    if (t.high > 1e17) {
        return raot_copysign(1.5707963267948966, x);
    }
    return raot_copysign(raot_atan_pair(t).high, x);
}

/* asin(a) for 1e-8 <= a <= 1/2. */
static inline struct raot_pair raot_asin_near(double a)
{
    const struct raot_pair sine = {a, 0.0};
    const struct raot_pair square = raot_pair_product(a, a);
    struct raot_pair cosine = raot_pair_sum(1.0, -square.high);

    cosine.low -= square.low;
    return raot_atan_pair(raot_pair_quotient(sine, raot_pair_sqrt(cosine)));
}

/* acos(a) for 1/2 < a < 1: twice the angle whose sine and cosine squared are (1 - a) / 2, (1 + a)
 * / 2. */
static inline struct raot_pair raot_acos_near(double a)
{
    const struct raot_pair sine = {0.5 * (1.0 - a), 0.0};
    struct raot_pair cosine = raot_pair_sum(1.0, a);
    struct raot_pair angle;

    cosine.high *= 0.5;
    cosine.low *= 0.5;
    angle = raot_atan_pair(raot_pair_quotient(raot_pair_sqrt(sine), raot_pair_sqrt(cosine)));
    angle.high *= 2.0;
    angle.low *= 2.0;
    return angle;
}

/* NaN outside -1..1. */
static inline double raot_asin(double x)
{
    const struct raot_pair half_pi = {1.5707963267948966, 6.123233995736766e-17};
    const double a = raot_abs(x);
    struct raot_pair angle;

    if (!(a < 1.0)) {
        return a == 1.0 ? raot_copysign(half_pi.high, x) : (double)RAOT_NAN;
    }
    if (a < 1e-8) {
        return x;
    }
    if (a <= 0.5) {
        return raot_copysign(raot_asin_near(a).high, x);
    }
    angle = raot_acos_near(a);
    angle.high = -angle.high;
    angle.low = -angle.low;
    return raot_copysign(raot_pair_add(half_pi, angle).high, x);
}

/* NaN outside -1..1. */
static inline double raot_acos(double x)
{
    const struct raot_pair half_pi = {1.5707963267948966, 6.123233995736766e-17};
    const double a = raot_abs(x);
    struct raot_pair angle = {a, 0.0};
    struct raot_pair base = half_pi;

    if (!(a < 1.0)) {
        return a != 1.0 ? (double)RAOT_NAN : x > 0.0 ? 0.0 : 2.0 * half_pi.high;
    }
    if (a > 0.5) {
        angle = raot_acos_near(a);
        if (x > 0.0) {
            return angle.high;
        }
        base.high *= 2.0;
        base.low *= 2.0;
    } else if (a >= 1e-8) {
        angle = raot_asin_near(a);
    } else {
        /* the difference from pi / 2 is below half a unit */
    }
    if (x > 0.0 || a > 0.5) {
        angle.high = -angle.high;
        angle.low = -angle.low;
    }
    return raot_pair_add(base, angle).high;
}

#endif
