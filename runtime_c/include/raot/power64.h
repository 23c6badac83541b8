/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power64.h - exp, log and pow in double, without libm, bit-identical on every target.
 *
 * pow is exp(y * log(x)); the logarithm and the product are computed in double-double precision,
 * so their errors do not affect the result.
 */
#ifndef RAOT_POWER64_H
#define RAOT_POWER64_H

#include <stdint.h>

#include "ieee.h"
#include "pair64.h"
#include "rounding.h"

/* 2^n * x, exact unless the result is subnormal. */
static inline double raot_scale(double x, int32_t n)
{
    while (n > 1000) {
        x *= raot_of_bits((uint64_t)2023 << 52);
        n -= 1000;
    }
    while (n < -1000) {
        x *= raot_of_bits((uint64_t)23 << 52);
        n += 1000;
    }
    return x * raot_of_bits((uint64_t)(n + 1023) << 52);
}

/* exp(x) for x.high in -746..710. */
static inline double raot_exp_pair(struct raot_pair x)
{
    const double n = raot_rint(x.high * 1.4426950408889634);
    /* The product is exact: ln(2) has 33 bits in its first part. */
    const double rest = x.high - raot_mul(n, 6.93147180369123816490e-01);
    struct raot_pair r = raot_pair_sum_any(rest, -raot_mul(n, 1.90821492927058770002e-10));
    struct raot_pair sum;
    int32_t whole;
    double p = 1.1470745597729725e-11; /* 1 / 14! */

    r = raot_pair_sum(r.high, r.low + x.low);
    p = raot_mad(p, r.high, 1.6059043836821613e-10);
    p = raot_mad(p, r.high, 2.0876756987868099e-09);
    p = raot_mad(p, r.high, 2.5052108385441720e-08);
    p = raot_mad(p, r.high, 2.7557319223985893e-07);
    p = raot_mad(p, r.high, 2.7557319223985893e-06);
    p = raot_mad(p, r.high, 2.4801587301587302e-05);
    p = raot_mad(p, r.high, 1.9841269841269841e-04);
    p = raot_mad(p, r.high, 1.3888888888888889e-03);
    p = raot_mad(p, r.high, 8.3333333333333333e-03);
    p = raot_mad(p, r.high, 4.1666666666666667e-02);
    p = raot_mad(p, r.high, 1.6666666666666667e-01);
    p = raot_mad(p, r.high, 0.5);
    /* r.low matters for large n: its part of ln(2) is truncated only below 2^-80. */
    p = raot_mad(raot_mul(r.high, r.high), p, raot_mad(r.low, r.high, r.low));
    sum = raot_pair_sum(1.0, r.high);
    /* The low bits of the sum are n. */
    whole = (int32_t)(uint32_t)raot_bits(raot_apart(n + 6755399441055744.0));
    return raot_scale(sum.high + (sum.low + p), whole);
}

/* log(x) with a relative error of about 2^-68, for positive finite x. */
static inline struct raot_pair raot_log_pair(double x)
{
    const struct raot_pair ln2 = {0.6931471805599453, 2.3190468138462996e-17};
    const struct raot_pair third = {0.3333333333333333, 1.850371707708594e-17};
    const struct raot_pair fifth = {0.2, -1.1102230246251566e-17};
    uint64_t bits = raot_bits(x);
    int32_t exponent = -1023;
    struct raot_pair s;
    struct raot_pair z;
    struct raot_pair sum;
    double m;
    double tail = 0.0;

    if ((bits >> 52) == 0u) {
        bits = raot_bits(x * 4503599627370496.0);
        exponent -= 52;
    }
    exponent += (int32_t)(bits >> 52);
    m = raot_of_bits((bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x3ff0000000000000));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    /* log(m) = 2 (s + s^3 / 3 + s^5 / 5 ...) with s = (m - 1) / (m + 1), below 0.172. */
    s = raot_pair_quotient(raot_pair_sum_any(m, -1.0), raot_pair_sum_any(m, 1.0));
    z = raot_pair_mul(s, s);
    for (int32_t k = 27; k > 5; k -= 2) {
        tail = raot_mul(tail + 1.0 / (double)k, z.high);
    }
    sum = raot_pair_add(fifth, raot_pair_sum(tail, 0.0));
    sum = raot_pair_add(third, raot_pair_mul(sum, z));
    sum = raot_pair_mul(raot_pair_mul(sum, z), s);
    sum = raot_pair_add(s, sum);
    sum.high *= 2.0;
    sum.low *= 2.0;
    if (exponent != 0) {
        const struct raot_pair whole = {(double)exponent, 0.0};
        sum = raot_pair_add(raot_pair_mul(whole, ln2), sum);
    }
    return sum;
}

static inline double raot_exp(double x)
{
    const struct raot_pair pair = {x, 0.0};

    if (raot_isnan(x) != 0) {
        return x;
    }
    if (x > 709.8) {
        return (double)RAOT_INFINITY;
    }
    return x < -745.2 ? 0.0 : raot_exp_pair(pair);
}

static inline double raot_log(double x)
{
    if (raot_isnan(x) || x == (double)RAOT_INFINITY) {
        return x;
    }
    if (x <= 0.0) {
        return x == 0.0 ? -(double)RAOT_INFINITY : (double)RAOT_NAN;
    }
    return raot_log_pair(x).high;
}

static inline double raot_log2(double x)
{
    const struct raot_pair per_ln2 = {1.4426950408889634, 2.0355273740931033e-17};

    if (!(x > 0.0) || x == (double)RAOT_INFINITY) {
        return raot_log(x);
    }
    return raot_pair_mul(raot_log_pair(x), per_ln2).high;
}

/* a^y for a other than 0, 1 and infinity, and y other than 0. */
static inline double raot_power(double a, double y)
{
    const struct raot_pair logarithm = raot_log_pair(a);
    const double size = y * logarithm.high;
    struct raot_pair product;

    if (size > 710.0) {
        return (double)RAOT_INFINITY;
    }
    if (size < -746.0) {
        return 0.0;
    }
    if (raot_abs(size) < 1e-20) {
        return 1.0;
    }
    product = raot_pair_product(y, logarithm.high);
    product.low += raot_mul(y, logarithm.low);
    return raot_exp_pair(raot_pair_sum(product.high, product.low));
}

static inline double raot_pow(double x, double y)
{
    const int whole = raot_trunc(y) == y;
    const int odd = whole && y == y && y > -9007199254740992.0 && y < 9007199254740992.0 &&
                    ((int64_t)y & 1) != 0;
    const double a = raot_abs(x);
    double power;

    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (raot_isnan(x) || raot_isnan(y) || (x < 0.0 && !whole && !raot_isinf(x))) {
        return (double)RAOT_NAN;
    }
    if (a == 1.0) {
        power = 1.0;
    } else if (a == 0.0 || raot_isinf(x)) {
        power = (a == 0.0) == (y > 0.0) ? 0.0 : (double)RAOT_INFINITY;
    } else {
        power = raot_power(a, y);
    }
    return odd && raot_signbit(x) ? -power : power;
}

#endif
