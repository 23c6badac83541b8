/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.h - double-float arithmetic (a number as the sum of two floats), for exponential.h and
 * trigonometry.h.
 *
 * `high` is the sum rounded to float, `low` the rest. Exact means exact unless a number overflows
 * or is subnormal.
 */
#ifndef RAOT_PAIR_H
#define RAOT_PAIR_H

#include <stdint.h>

#include "ieee.h"
#include "quotient.h"
#include "rounding.h"

struct raot_pairf {
    float high;
    float low;
};

/* a + b, exact if |a| >= |b| or a is 0. */
static inline struct raot_pairf raot_pair_sumf(float a, float b)
{
    struct raot_pairf sum;

    sum.high = a + b;
    sum.low = b - (sum.high - a);
    return sum;
}

/* The upper 12 bits of a number: the product of two such numbers is exact. */
static inline float raot_upperf(float x)
{
    return raot_of_bitsf(raot_bitsf(x) & 0xfffff000u);
}

/* a * b, exact. Both variants give the same bits, because each is exact. */
static inline struct raot_pairf raot_pair_productf(float a, float b)
{
    struct raot_pairf product;

    product.high = raot_mulf(a, b);
#if defined(RAOT_DEVICE)
    product.low = fmaf(a, b, -product.high);
#elif defined(__GNUC__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
    product.low = __builtin_fmaf(a, b, -product.high);
#else
    {
        const float a_high = raot_upperf(a);
        const float b_high = raot_upperf(b);
        const float a_low = a - a_high;
        const float b_low = b - b_high;

        product.low = a_high * b_high - product.high;
        product.low += a_high * b_low;
        product.low += a_low * b_high;
        product.low += a_low * b_low;
    }
#endif
    return product;
}

/* a * b, relative error about 2^-44. */
static inline struct raot_pairf raot_pair_mulf(struct raot_pairf a, struct raot_pairf b)
{
    const struct raot_pairf product = raot_pair_productf(a.high, b.high);
    const float cross = raot_madf(a.high, b.low, raot_mulf(a.low, b.high));

    return raot_pair_sumf(product.high, product.low + cross);
}

/* a / b, relative error about 2^-44. b is neither 0 nor infinite. */
static inline struct raot_pairf raot_pair_quotientf(struct raot_pairf a, struct raot_pairf b)
{
    struct raot_pairf quotient;
    struct raot_pairf product;
    float rest;

    quotient.high = raot_quotientf(a.high, b.high);
    product = raot_pair_productf(quotient.high, b.high);
    rest = (a.high - product.high) - product.low;
    rest += a.low - raot_mulf(quotient.high, b.low);
    quotient.low = raot_quotientf(rest, b.high);
    return quotient;
}

/* The square root of a, relative error about 2^-44. a is positive and finite. */
static inline struct raot_pairf raot_pair_sqrtf(struct raot_pairf a)
{
    struct raot_pairf root;
    struct raot_pairf square;

    root.high = raot_sqrtf(a.high);
    square = raot_pair_productf(root.high, root.high);
    root.low = raot_quotientf(((a.high - square.high) - square.low) + a.low, 2.0f * root.high);
    return root;
}

#endif
