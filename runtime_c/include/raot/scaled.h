/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scaled.h - products of i32 sums and a float, rounded to nearest, halves to even.
 *
 * Cores without instructions for floats multiply integers. The product of a sum and the 24 digits
 * of a float is exact, and so is its rounding. Floats round three times: the sum, the product and
 * the result. Both results are equal unless the product is near a half, where floats are
 * computed.
 */
#ifndef RAOT_SCALED_H
#define RAOT_SCALED_H

#include <stdint.h>

#include "convert.h"

/* The upper half of the product; Thumb-1 has no instruction for it. */
static inline int32_t raot_upper_half(int32_t x, int32_t by)
{
#if defined(__thumb__) && !defined(__thumb2__)
    const int32_t low_x = x & 0xffff;
    const int32_t low_by = by & 0xffff;
    const int32_t carry = (int32_t)(((uint32_t)low_x * (uint32_t)low_by) >> 16);
    const int32_t a = (x >> 16) * low_by + carry;
    const int32_t b = low_x * (by >> 16) + (a & 0xffff);
    return (x >> 16) * (by >> 16) + (a >> 16) + (b >> 16);
#else
    return (int32_t)(((int64_t)x * by) >> 32);
#endif
}

#if defined(RAOT_FLOAT_CALLS)
__attribute__((noinline, unused)) static int32_t raot_scaled_float(int32_t x, float by)
#else
static inline int32_t raot_scaled_float(int32_t x, float by)
#endif
{
    return raot_f32_to_i32_nearest((float)x * by);
}

#if defined(RAOT_FLOAT_CALLS)
/* Of a unit, in units of 2^-32: floats differ less from products below 2^15 in magnitude, whose
   sum and product are both rounded by 2^-24 of their values. */
#define RAOT_SCALED_NEAR ((uint32_t)1 << 24)

/* The digits of a float, of which the first one is 2^30. */
static inline int32_t raot_scaled_digits(float by)
{
    return (int32_t)((raot_bitsf(by) << 7 & 0x3fffff80u) | 0x40000000u);
}

/* The float is these digits divided by 2^(32 + shift). The shift is 1 to 31 for floats from 2^-33
   to below 1/4, and 0 for all others. */
static inline int32_t raot_scaled_shift(float by)
{
    const uint32_t shift = 125u - (raot_bitsf(by) >> 23);

    return shift - 1u < 31u ? (int32_t)shift : 0;
}

/* By such digits and a shift that is not 0. */
static inline int32_t raot_scaled_by(int32_t x, float by, int32_t digits, int32_t shift)
{
#if defined(__thumb__) && !defined(__thumb2__)
    const uint32_t product = (uint32_t)raot_upper_half(x, digits);
    const uint32_t lower = (uint32_t)x * (uint32_t)digits;
#else
    const uint64_t whole = (uint64_t)((int64_t)x * digits);
    const uint32_t product = (uint32_t)(whole >> 32);
    const uint32_t lower = (uint32_t)whole;
#endif
    const uint32_t upper = product + ((uint32_t)1 << (shift - 1));
    const uint32_t fraction = upper << (32 - shift) | lower >> shift;

    if (fraction + RAOT_SCALED_NEAR < 2u * RAOT_SCALED_NEAR) {
        return raot_scaled_float(x, by);
    }
    return (int32_t)upper >> shift;
}
#endif

/* Exact below 2^15 in magnitude, and from there on at least as large. */
static inline int32_t raot_scaled(int32_t x, float by)
{
#if defined(RAOT_FLOAT_CALLS)
    const int32_t shift = raot_scaled_shift(by);

    if (shift != 0) {
        return raot_scaled_by(x, by, raot_scaled_digits(by), shift);
    }
#endif
    return raot_scaled_float(x, by);
}

#endif
