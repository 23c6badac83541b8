/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math64.h - elementary functions in double precision, without libm.
 *
 * docs/reference/math_functions.md lists the errors.
 */
#ifndef RAOT_MATH64_H
#define RAOT_MATH64_H

#include <stdint.h>

#include "convert.h"
#include "ieee.h"
#include "power64.h"
#include "rounding.h"
#include "trigonometry64.h"

#if defined(__GNUC__) && !defined(__clang__) && !defined(RAOT_DEVICE)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

static inline double raot_expm1(double x)
{
    double sum = 0.0;

    if (!(raot_abs(x) < 0.5)) {
        return raot_exp(x) - 1.0;
    }
    for (int32_t k = 17; k > 1; k--) {
        sum = (1.0 + sum) * x / (double)k;
    }
    return x + x * sum;
}

static inline double raot_log1p(double x)
{
    const struct raot_pair u = raot_pair_sum_any(1.0, x);
    struct raot_pair rest;

    if (!(u.high < (double)RAOT_INFINITY) || u.high <= 0.0) {
        return raot_log(u.high);
    }
    if (u.high == 1.0) {
        return x;
    }
    rest = raot_pair_sum(u.low / u.high, 0.0);
    return raot_pair_add(raot_log_pair(u.high), rest).high;
}

static inline double raot_exp2(double x)
{
    const double n = raot_abs(x) < 2000.0 ? raot_rint(x) : 0.0;

    return raot_scale(raot_exp((x - n) * 0.6931471805599453), raot_f64_to_i32_sat(n));
}

static inline double raot_tanh(double x)
{
    const double a = raot_abs(x);
    struct raot_pair below;
    double t;

    if (raot_isnan(x) != 0) {
        return x;
    }
    if (a > 0.55) {
        return raot_copysign(1.0 - 2.0 / (raot_exp(2.0 * a) + 1.0), x);
    }
    t = raot_expm1(2.0 * a);
    below = raot_pair_sum(2.0, t);
    t /= below.high;
    return raot_copysign(t - raot_mul(t, below.low / below.high), x);
}

static inline double raot_sigmoid(double x)
{
    const double e = raot_exp(-raot_abs(x));
    const struct raot_pair below = raot_pair_sum(1.0, e);
    const double quotient = (x < 0.0 ? e : 1.0) / below.high;

    return quotient - raot_mul(quotient, below.low / below.high);
}

static inline double raot_sinh(double x)
{
    const double t = raot_expm1(raot_abs(x));

    if (raot_abs(x) > 709.0) {
        const double half = raot_exp(0.5 * raot_abs(x));
        return raot_copysign(0.5 * half * half, x);
    }
    return raot_copysign(0.5 * (t + t / (t + 1.0)), x);
}

static inline double raot_cosh(double x)
{
    const double half = raot_exp(0.5 * raot_abs(x));

    if (raot_abs(x) > 709.0) {
        return 0.5 * half * half;
    }
    return 0.5 * (raot_exp(raot_abs(x)) + raot_exp(-raot_abs(x)));
}

static inline double raot_asinh(double x)
{
    const double a = raot_abs(x);

    if (a > 1e8) {
        return raot_copysign(raot_log(a) + 0.6931471805599453, x);
    }
    return raot_copysign(raot_log1p(a + a * a / (1.0 + raot_sqrt(a * a + 1.0))), x);
}

static inline double raot_acosh(double x)
{
    const double t = x - 1.0;

    if (x > 1e8) {
        return raot_log(x) + 0.6931471805599453;
    }
    return x < 1.0 ? (double)RAOT_NAN : raot_log1p(t + raot_sqrt(2.0 * t + t * t));
}

static inline double raot_atanh(double x)
{
    const double a = raot_abs(x);

    return raot_copysign(0.5 * raot_log1p(2.0 * a / (1.0 - a)), x);
}

/* erf by its series below 2.5, and by the continued fraction of erfc above. */
static inline double raot_erf(double x)
{
    const struct raot_pair two_over_root_pi = {1.1283791670955126, 1.533545961316588e-17};
    const double a = raot_abs(x);
    const struct raot_pair square = raot_pair_product(a, a);
    const struct raot_pair minus = {-square.high, -square.low};
    double sum;

    if (raot_isnan(x) != 0) {
        return x;
    }
    if (a < 1e-8) {
        return raot_mad(x, 0.1283791670955126, x);
    }
    if (a < 2.5) {
        struct raot_pair term = {a, 0.0};
        struct raot_pair total = term;
        const struct raot_pair twice = {2.0 * square.high, 2.0 * square.low};

        for (int32_t n = 1; n < 60 && term.high > 1e-18 * total.high; n++) {
            const struct raot_pair odd = {(double)(2 * n + 1), 0.0};
            term = raot_pair_mul(term, raot_pair_quotient(twice, odd));
            total = raot_pair_add(total, term);
        }
        total = raot_pair_mul(total, two_over_root_pi);
        return raot_copysign(raot_mul(raot_exp_pair(minus), total.high), x);
    }
    if (a > 6.0) {
        return raot_copysign(1.0, x);
    }
    sum = a;
    for (int32_t n = 60; n > 0; n--) {
        sum = a + 0.5 * (double)n / sum;
    }
    return raot_copysign(1.0 - raot_exp_pair(minus) / sum * 0.5641895835477563, x);
}

#if defined(__GNUC__) && !defined(__clang__) && !defined(RAOT_DEVICE)
#pragma GCC pop_options
#endif

#endif
