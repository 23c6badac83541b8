/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair64.h - double-double arithmetic for trigonometry64.h and power64.h; pair.h for double.
 */
#ifndef RAOT_PAIR64_H
#define RAOT_PAIR64_H

#include <stdint.h>

#include "ieee.h"
#include "rounding.h"

/* `high` is the sum rounded to double, `low` the rest. */
struct raot_pair {
    double high;
    double low;
};

/* a + b, exact if |a| >= |b| or a is 0. */
static inline struct raot_pair raot_pair_sum(double a, double b)
{
    struct raot_pair sum;

    sum.high = a + b;
    sum.low = b - (sum.high - a);
    return sum;
}

/* a + b, exact in any order of magnitudes. */
static inline struct raot_pair raot_pair_sum_any(double a, double b)
{
    struct raot_pair sum;
    double part;

    sum.high = a + b;
    part = sum.high - a;
    sum.low = (a - (sum.high - part)) + (b - part);
    return sum;
}

/* The upper 26 bits of a number: the product of two such numbers is exact. */
static inline double raot_upper(double x)
{
    return raot_of_bits(raot_bits(x) & ~UINT64_C(0x7ffffff));
}

/* a * b, exact. Both variants give the same bits, because each is exact. */
static inline struct raot_pair raot_pair_product(double a, double b)
{
    struct raot_pair product;

    product.high = raot_mul(a, b);
#if defined(RAOT_DEVICE)
    product.low = fma(a, b, -product.high);
#elif defined(__GNUC__) && (defined(__FMA__) || (defined(__ARM_FEATURE_FMA) && RAOT_FUSE64))
    product.low = __builtin_fma(a, b, -product.high);
#else
    {
        const double a_high = raot_upper(a);
        const double b_high = raot_upper(b);
        const double a_low = a - a_high;
        const double b_low = b - b_high;

        product.low = a_high * b_high - product.high;
        product.low += a_high * b_low;
        product.low += a_low * b_high;
        product.low += a_low * b_low;
    }
#endif
    return product;
}

/* a + b, relative error about 2^-102 without cancellation. */
static inline struct raot_pair raot_pair_add(struct raot_pair a, struct raot_pair b)
{
    const struct raot_pair sum = raot_pair_sum_any(a.high, b.high);

    return raot_pair_sum(sum.high, sum.low + (a.low + b.low));
}

/* a * b, relative error about 2^-102. */
static inline struct raot_pair raot_pair_mul(struct raot_pair a, struct raot_pair b)
{
    const struct raot_pair product = raot_pair_product(a.high, b.high);
    const double cross = raot_mad(a.high, b.low, raot_mul(a.low, b.high));

    return raot_pair_sum(product.high, product.low + cross);
}

/* a / b, relative error about 2^-102. b is neither 0 nor infinite. */
static inline struct raot_pair raot_pair_quotient(struct raot_pair a, struct raot_pair b)
{
    const double quotient = a.high / b.high;
    const struct raot_pair product = raot_pair_product(quotient, b.high);
    double rest = (a.high - product.high) - product.low;

    rest += a.low - raot_mul(quotient, b.low);
    return raot_pair_sum(quotient, rest / b.high);
}

/* The square root of a, relative error about 2^-102. a is positive and finite. */
static inline struct raot_pair raot_pair_sqrt(struct raot_pair a)
{
    const double root = raot_sqrt(a.high);
    const struct raot_pair square = raot_pair_product(root, root);

    return raot_pair_sum(root, (((a.high - square.high) - square.low) + a.low) / (2.0 * root));
}

#endif
