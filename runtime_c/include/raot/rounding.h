/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounding.h - rounding to integers, remainders, square roots.
 *
 * All results are exact or correctly rounded. NaN and infinities are returned unchanged unless
 * stated otherwise; results have the sign of x, also for zeros.
 */
#ifndef RAOT_ROUNDING_H
#define RAOT_ROUNDING_H

#include <stdint.h>

#include "ieee.h"

/* All numbers of at least this magnitude are integers. */
#define RAOT_INTEGRALF 8388608.0f
#define RAOT_INTEGRAL 4503599627370496.0

/* Towards zero. */
static inline float raot_truncf(float x)
{
    if (x != x || x <= -RAOT_INTEGRALF || x >= RAOT_INTEGRALF) {
        return x;
    }
    return raot_copysignf((float)(int32_t)x, x);
}

static inline double raot_trunc(double x)
{
    if (x != x || x <= -RAOT_INTEGRAL || x >= RAOT_INTEGRAL) {
        return x;
    }
    return raot_copysign((double)(int64_t)x, x);
}

/* Downwards. */
static inline float raot_floorf(float x)
{
    const float whole = raot_truncf(x);

    return whole > x ? whole - 1.0f : whole;
}

static inline double raot_floor(double x)
{
    const double whole = raot_trunc(x);

    return whole > x ? whole - 1.0 : whole;
}

/* Upwards. */
static inline float raot_ceilf(float x)
{
    const float whole = raot_truncf(x);

    return whole < x ? raot_copysignf(whole + 1.0f, x) : whole;
}

static inline double raot_ceil(double x)
{
    const double whole = raot_trunc(x);

    return whole < x ? raot_copysign(whole + 1.0, x) : whole;
}

/* To the nearest integer, halves to even: the sum has no bits below 1, so adding rounds. */
static inline float raot_rintf(float x)
{
    const float magnitude = raot_absf(x);

    if (!(magnitude < RAOT_INTEGRALF)) {
        return x;
    }
    return raot_copysignf(raot_apartf(magnitude + RAOT_INTEGRALF) - RAOT_INTEGRALF, x);
}

static inline double raot_rint(double x)
{
    const double magnitude = raot_abs(x);

    if (!(magnitude < RAOT_INTEGRAL)) {
        return x;
    }
    return raot_copysign(raot_apart(magnitude + RAOT_INTEGRAL) - RAOT_INTEGRAL, x);
}

/* To the nearest integer, halves away from zero. */
static inline float raot_roundf(float x)
{
    const float whole = raot_truncf(x);

    return raot_absf(x - whole) < 0.5f || raot_isinff(x) ? whole : whole + raot_copysignf(1.0f, x);
}

static inline double raot_round(double x)
{
    const double whole = raot_trunc(x);

    return raot_abs(x - whole) < 0.5 || raot_isinf(x) ? whole : whole + raot_copysign(1.0, x);
}

/* A finite magnitude as mantissa * 2^(exponent - 150), the mantissa being 0 or above 2^23. */
static inline uint32_t raot_splitf(float magnitude, int32_t *exponent)
{
    const uint32_t bits = raot_bitsf(magnitude);
    uint32_t mantissa = bits & 0x7fffffu;
    int32_t shift = 0;

    *exponent = (int32_t)(bits >> 23);
    if (*exponent != 0) {
        return mantissa | 0x800000u;
    }
    while (mantissa != 0u && mantissa < 0x800000u && shift < 23) {
        mantissa <<= 1;
        shift++;
    }
    *exponent = 1 - shift;
    return mantissa;
}

/* A finite magnitude as mantissa * 2^(exponent - 1075), the mantissa being 0 or above 2^52. */
static inline uint64_t raot_split(double magnitude, int32_t *exponent)
{
    const uint64_t bits = raot_bits(magnitude);
    uint64_t mantissa = bits & UINT64_C(0xfffffffffffff);
    int32_t shift = 0;

    *exponent = (int32_t)(bits >> 52);
    if (*exponent != 0) {
        return mantissa | UINT64_C(0x10000000000000);
    }
    while (mantissa != 0u && mantissa < UINT64_C(0x10000000000000) && shift < 52) {
        mantissa <<= 1;
        shift++;
    }
    *exponent = 1 - shift;
    return mantissa;
}

/*
 * The remainder of x / y rounded towards zero, with the sign of x; exact. NaN if x is infinite or
 * y is 0. Long division, eight bits of the quotient at a time.
 */
static inline float raot_fmodf(float x, float y)
{
    int32_t exponent;
    int32_t least;
    int32_t gap;
    uint32_t rest;
    uint32_t divisor;

    if (raot_isnanf(x) || raot_isnanf(y) || raot_isinff(x)) {
        return RAOT_NAN;
    }
    if (raot_absf(x) < raot_absf(y)) {
        return x;
    }
    rest = raot_splitf(raot_absf(x), &exponent);
    divisor = raot_splitf(raot_absf(y), &least);
    if (divisor == 0u) {
        return RAOT_NAN;
    }
    rest %= divisor;
    gap = exponent - least;
    while (gap > 0 && rest != 0u) {
        const int32_t step = gap < 8 ? gap : 8;

        rest = (rest << step) % divisor;
        gap -= step;
    }
    if (rest == 0u) {
        return raot_copysignf(0.0f, x);
    }
    while (rest < 0x800000u && least > 1) {
        rest <<= 1;
        least--;
    }
    while (least < 1) {
        rest >>= 1;
        least++;
    }
    if (rest >= 0x800000u) {
        rest += (uint32_t)(least - 1) << 23;
    }
    return raot_copysignf(raot_of_bitsf(rest), x);
}

static inline double raot_fmod(double x, double y)
{
    int32_t exponent;
    int32_t least;
    int32_t gap;
    uint64_t rest;
    uint64_t divisor;

    if (raot_isnan(x) || raot_isnan(y) || raot_isinf(x)) {
        return (double)RAOT_NAN;
    }
    if (raot_abs(x) < raot_abs(y)) {
        return x;
    }
    rest = raot_split(raot_abs(x), &exponent);
    divisor = raot_split(raot_abs(y), &least);
    if (divisor == 0u) {
        return (double)RAOT_NAN;
    }
    rest %= divisor;
    gap = exponent - least;
    while (gap > 0 && rest != 0u) {
        const int32_t step = gap < 11 ? gap : 11;

        rest = (rest << step) % divisor;
        gap -= step;
    }
    if (rest == 0u) {
        return raot_copysign(0.0, x);
    }
    while (rest < UINT64_C(0x10000000000000) && least > 1) {
        rest <<= 1;
        least--;
    }
    while (least < 1) {
        rest >>= 1;
        least++;
    }
    if (rest >= UINT64_C(0x10000000000000)) {
        rest += (uint64_t)(least - 1) << 52;
    }
    return raot_copysign(raot_of_bits(rest), x);
}

/* Digit by digit, for targets without a square root instruction; x is positive and finite. */
static inline float raot_sqrt_digitsf(float x)
{
    int32_t exponent;
    uint32_t left = raot_splitf(x, &exponent);
    uint32_t root = 0u;
    uint32_t rest = 0u;

    left <<= (exponent & 1) == 0 ? 1 : 0;
    /* The mantissa is in 2^23..2^25; 25 bits of the root are 24 bits and a rounding bit. */
    left <<= 7;
    for (int32_t bit = 0; bit < 25; bit++) {
        const uint32_t trial = (root << 2) | 1u;

        rest = (rest << 2) | (left >> 30);
        left <<= 2;
        root <<= 1;
        if (rest >= trial) {
            rest -= trial;
            root |= 1u;
        }
    }
    /* A root is never at the midpoint between two floats. */
    root = (root + 1u) >> 1;
    return raot_of_bitsf(((uint32_t)((exponent + 125) >> 1) << 23) + root);
}

static inline double raot_sqrt_digits(double x)
{
    int32_t exponent;
    uint64_t left = raot_split(x, &exponent);
    uint64_t root = 0u;
    uint64_t rest = 0u;

    left <<= (exponent & 1) == 0 ? 1 : 0;
    left <<= 10;
    for (int32_t bit = 0; bit < 54; bit++) {
        const uint64_t trial = (root << 2) | 1u;

        rest = (rest << 2) | (left >> 62);
        left <<= 2;
        root <<= 1;
        if (rest >= trial) {
            rest -= trial;
            root |= 1u;
        }
    }
    root = (root + 1u) >> 1;
    return raot_of_bits(((uint64_t)((exponent + 1021) >> 1) << 52) + root);
}

/* Correctly rounded; NaN below zero, -0 for -0. */
static inline float raot_sqrtf(float x)
{
    float root;

    if (!(x > 0.0f)) {
        return x == 0.0f ? x : RAOT_NAN;
    }
#if defined(RAOT_DEVICE)
    root = sqrtf(x);
#elif defined(RAOT_ASM_INLINE) && defined(__AVX__)
    __asm__("vsqrtss %1, %1, %0" : "=x"(root) : "x"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__SSE__)
    __asm__("sqrtss %1, %0" : "=x"(root) : "x"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__aarch64__)
    __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4)
    __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__riscv_flen)
    __asm__("fsqrt.s %0, %1" : "=f"(root) : "f"(x));
#else
    root = raot_isinff(x) ? x : raot_sqrt_digitsf(x);
#endif
    return root;
}

static inline double raot_sqrt(double x)
{
    double root;

    if (!(x > 0.0)) {
        return x == 0.0 ? x : (double)RAOT_NAN;
    }
#if defined(RAOT_DEVICE)
    root = sqrt(x);
#elif defined(RAOT_ASM_INLINE) && defined(__AVX__)
    __asm__("vsqrtsd %1, %1, %0" : "=x"(root) : "x"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__SSE2__)
    __asm__("sqrtsd %1, %0" : "=x"(root) : "x"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__aarch64__)
    __asm__("fsqrt %d0, %d1" : "=w"(root) : "w"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 8)
    __asm__("vsqrt.f64 %P0, %P1" : "=w"(root) : "w"(x));
#elif defined(RAOT_ASM_INLINE) && defined(__riscv_flen) && __riscv_flen >= 64
    __asm__("fsqrt.d %0, %1" : "=f"(root) : "f"(x));
#else
    root = raot_isinf(x) ? x : raot_sqrt_digits(x);
#endif
    return root;
}

#endif
