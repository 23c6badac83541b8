/* SPDX-License-Identifier: Apache-2.0 */
/* exp_parts.h - exp(x) as a power of two and the rest, for exponential.h. */
#ifndef RAOT_EXP_PARTS_H
#define RAOT_EXP_PARTS_H

#include <stdint.h>

#include "ieee.h"
#include "pair.h"
#include "rounding.h"

/* ln 2 in two parts; the first has 16 bits, so that its product with an exponent is exact. */
#define RAOT_LN2_HIGHF 0.693145751953125f
#define RAOT_LN2_LOWF 1.428606765330187e-06f

/* The nearest integer, for |x| < 2^22, also in *whole: the low bits of the sum. */
static inline float raot_nearestf(float x, int32_t *whole)
{
    const float sum = raot_apartf(x + 12582912.0f);

    *whole = (int32_t)(raot_bitsf(sum) - 0x4b400000u);
    return sum - 12582912.0f;
}

/* 2^n for -127 < n < 128. */
static inline float raot_powerf(int32_t n)
{
    return raot_of_bitsf(((uint32_t)n << 23) + 0x3f800000u);
}

/* x * 2^n for x near 1 and |n| <= 252; rounded once. */
static inline float raot_scalef(float x, int32_t n)
{
    const int32_t half = n / 2;

    return x * raot_powerf(half) * raot_of_bitsf(((uint32_t)n - (uint32_t)half + 127u) << 23);
}

/* exp(r) - 1 for |r| <= 0.35. */
static inline struct raot_pairf raot_expm1_nearf(struct raot_pairf r)
{
    const float x = r.high;
    float p = 0.00019960135f;

    p = raot_madf(p, x, 0.0013933729f);
    p = raot_madf(p, x, 0.00833319f);
    p = raot_madf(p, x, 0.041666478f);
    p = raot_madf(p, x, 0.16666667f);
    p = raot_madf(p, x, 0.5f);
    p = raot_mulf(raot_mulf(x, x), p) + raot_madf(r.low, x, r.low);
    return raot_pair_sumf(x, p);
}

/* exp(x) = 2^n * (1 + part) for |x| < 180; returns n. */
static inline int32_t raot_exp_partsf(float x, struct raot_pairf *part)
{
    int32_t whole;
    const float n = raot_nearestf(raot_mulf(x, 1.442695f), &whole);

    *part = raot_expm1_nearf(
        raot_pair_sumf(x - raot_mulf(n, RAOT_LN2_HIGHF), -raot_mulf(n, RAOT_LN2_LOWF)));
    return whole;
}

/* exp(x) * 2^shift as a pair, for |x| < 87.5 and |shift| <= 1. */
static inline struct raot_pairf raot_exp_pairf(float x, int32_t shift)
{
    struct raot_pairf part;
    const uint32_t n = (uint32_t)raot_exp_partsf(x, &part) + (uint32_t)shift;
    const float scale = raot_powerf((int32_t)n);
    const float rest = part.low;

    part = raot_pair_sumf(1.0f, part.high);
    part.high *= scale;
    part.low = (part.low + rest) * scale;
    return part;
}

#endif
