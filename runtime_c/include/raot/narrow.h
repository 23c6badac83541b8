/* SPDX-License-Identifier: Apache-2.0 */
/*
 * narrow.h - storage element types of 8, 4 and 2 bits.
 *
 * An element is the low bits of a byte. Integers i4, u4, i2 and u2 are two's complement:
 *
 *     raot_i4_to_i32(x), raot_i32_to_i4(x)     the low bits
 *
 * Floats are named by their bits of exponent and mantissa, as in ONNX; "fn" has no infinities,
 * "uz" has no negative zero and one NaN:
 *
 *     raot_f8e5m2_to_f32(x)         exact
 *     raot_f32_to_f8e5m2(x)         to nearest, halves to even; overflow gives infinity, or NaN if
 *                                   the type has no infinity
 *     raot_f32_to_f8e5m2_sat(x)     the same, saturated to the largest finite number
 *
 * f8e8m0 represents only powers of two; conversion to it rounds up, down or to nearest.
 */
#ifndef RAOT_NARROW_H
#define RAOT_NARROW_H

#include <stdint.h>

#include "convert.h"
#include "ieee.h"

/* clang-format off */

#define RAOT_NARROW_SIGNED(N, BITS) \
    static inline int32_t raot_##N##_to_i32(uint8_t x) \
    { \
        const int32_t low = (int32_t)x & ((1 << (BITS)) - 1); \
        return low >= 1 << ((BITS) - 1) ? low - (1 << (BITS)) : low; \
    } \
    static inline uint8_t raot_i32_to_##N(int32_t x) \
    { return (uint8_t)((uint32_t)x & ((1u << (BITS)) - 1u)); }

#define RAOT_NARROW_UNSIGNED(N, BITS) \
    static inline int32_t raot_##N##_to_i32(uint8_t x) { return x & ((1 << (BITS)) - 1); } \
    static inline uint8_t raot_i32_to_##N(int32_t x) \
    { return (uint8_t)((uint32_t)x & ((1u << (BITS)) - 1u)); }

/* clang-format on */

RAOT_NARROW_SIGNED(i4, 4)
RAOT_NARROW_SIGNED(i2, 2)
RAOT_NARROW_UNSIGNED(u4, 4)
RAOT_NARROW_UNSIGNED(u2, 2)

/* The magnitude of a finite x in a format of `mantissa` bits and this bias; it may be larger
   than the largest number of the format. */
static inline uint32_t raot_narrow_code(float x, uint32_t mantissa, uint32_t bias)
{
    const uint32_t magnitude = raot_bitsf(x) & 0x7fffffffu;
    const uint32_t exponent = magnitude >> 23;

    if (exponent >= 128u - bias) {
        return raot_drop_bits(magnitude - ((127u - bias) << 23), 23u - mantissa);
    }
    /* Multiples of the smallest number; values below half of it become 0. */
    if (exponent + mantissa + bias < 127u) {
        return 0u;
    }
    return raot_drop_bits((magnitude & 0x7fffffu) | 0x800000u, 151u - mantissa - bias - exponent);
}

static inline float raot_narrow_value(uint32_t code, uint32_t mantissa, uint32_t bias)
{
    if (code >> mantissa == 0u) {
        return (float)code * raot_of_bitsf((128u - bias - mantissa) << 23);
    }
    return raot_of_bitsf((code << (23u - mantissa)) + ((127u - bias) << 23));
}

/* clang-format off */

/* N: name, M: bits of mantissa, B: bias, MAX: bits of the largest finite number, OVER: bits of an
   overflow, NAN_CODE: bits of NaN, SIGN: the sign bit, KEEP: 1 if -0 and -NaN exist. */
#define RAOT_NARROW_FLOAT(N, M, B, MAX, OVER, NAN_CODE, SIGN, KEEP) \
    static inline uint8_t raot_narrow_##N(float x, uint32_t over) \
    { \
        const uint32_t sign = raot_signbitf(x) != 0 ? (uint32_t)(SIGN) : 0u; \
        uint32_t code; \
        if (raot_isnanf(x) != 0) { return (uint8_t)((NAN_CODE) | ((KEEP) != 0u ? sign : 0u)); } \
        code = raot_isinff(x) ? over : raot_narrow_code(x, M, B); \
        code = code > (MAX) ? over : code; \
        return (uint8_t)(code == 0u && (KEEP) == 0u ? 0u : code | sign); \
    } \
    static inline uint8_t raot_f32_to_##N(float x) { return raot_narrow_##N(x, OVER); } \
    static inline uint8_t raot_f32_to_##N##_sat(float x) { return raot_narrow_##N(x, MAX); } \
    static inline float raot_##N##_to_f32(uint8_t x) \
    { \
        const uint32_t code = (uint32_t)x & ((SIGN) - 1u); \
        const float value = raot_narrow_value(code, M, B); \
        if ((KEEP) == 0u && x == (NAN_CODE)) { return RAOT_NAN; } \
        if ((KEEP) != 0u && code > (MAX)) \
        { return code != (OVER) || (OVER) == (NAN_CODE) ? RAOT_NAN : \
                 (x & (SIGN)) != 0u ? -RAOT_INFINITY : RAOT_INFINITY; } \
        return (x & (SIGN)) != 0u ? -value : value; \
    } \
    static inline float raot_##N##_round(float x) \
    { return raot_##N##_to_f32(raot_f32_to_##N(x)); } \
    static inline float raot_##N##_round_sat(float x) \
    { return raot_##N##_to_f32(raot_f32_to_##N##_sat(x)); }

/* clang-format on */

RAOT_NARROW_FLOAT(f8e4m3fn, 3u, 7u, 0x7eu, 0x7fu, 0x7fu, 0x80u, 1u)
RAOT_NARROW_FLOAT(f8e5m2, 2u, 15u, 0x7bu, 0x7cu, 0x7eu, 0x80u, 1u)
RAOT_NARROW_FLOAT(f8e4m3fnuz, 3u, 8u, 0x7fu, 0x80u, 0x80u, 0x80u, 0u)
RAOT_NARROW_FLOAT(f8e5m2fnuz, 2u, 16u, 0x7fu, 0x80u, 0x80u, 0x80u, 0u)

static inline float raot_f4e2m1_to_f32(uint8_t x)
{
    const float value = raot_narrow_value(x & 7u, 1u, 1u);

    return (x & 8u) != 0u ? -value : value;
}

/* The type has neither infinities nor NaN; NaN becomes -0, as in the ONNX reference. */
static inline uint8_t raot_f32_to_f4e2m1(float x)
{
    const uint32_t sign = raot_signbitf(x) != 0 ? (uint32_t)8u : 0u;
    uint32_t code;

    if (raot_isnanf(x) != 0) {
        return (uint8_t)(sign ^ 8u);
    }
    code = raot_isinff(x) ? 7u : raot_narrow_code(x, 1u, 1u);
    return (uint8_t)(sign | (code > 7u ? 7u : code));
}

static inline uint8_t raot_f32_to_f4e2m1_sat(float x)
{
    return raot_f32_to_f4e2m1(x);
}

static inline float raot_f4e2m1_round(float x)
{
    return raot_f4e2m1_to_f32(raot_f32_to_f4e2m1(x));
}

static inline float raot_f4e2m1_round_sat(float x)
{
    return raot_f4e2m1_round(x);
}

/* 2^(x - 127), and NaN for 255. */
static inline float raot_f8e8m0_to_f32(uint8_t x)
{
    return x == 255u ? RAOT_NAN : raot_of_bitsf(x == 0u ? 0x400000u : (uint32_t)x << 23);
}

/*
 * |x| rounded to a power of two. Values above 2^127, the largest, become 2^127 with `saturate`,
 * else NaN. Values below 2^-127, the smallest, become 2^-127 or NaN in the same way, unless they
 * are rounded up.
 */
enum raot_rounding { RAOT_ROUND_UP, RAOT_ROUND_DOWN, RAOT_ROUND_NEAREST };

static inline uint8_t raot_f32_to_f8e8m0_by(float x, enum raot_rounding rounding, int saturate)
{
    const uint32_t magnitude = raot_bitsf(x) & 0x7fffffffu;
    /* The exponent precedes the fraction; 2^-127 is half of the smallest normal number. */
    uint32_t code = magnitude >> 23;
    uint32_t rest = magnitude & 0x7fffffu;

    if (raot_isnanf(x) != 0) {
        return 255u;
    }
    if (code == 0u) {
        const uint32_t none = saturate != 0 ? 0u : (uint32_t)255u;

        if (rest < 0x400000u) {
            const int up =
                rounding == RAOT_ROUND_UP || (rounding == RAOT_ROUND_NEAREST && rest >= 0x200000u);

            return (uint8_t)(up && rest != 0u ? 0u : none);
        }
        rest = (rest - 0x400000u) << 1;
    }
    if (code < 255u && rest != 0u) {
        code += rounding == RAOT_ROUND_UP || (rounding == RAOT_ROUND_NEAREST && rest >= 0x400000u);
    }
    return (uint8_t)(code < 255u ? code : saturate != 0 ? 254u : 255u);
}

static inline uint8_t raot_f32_to_f8e8m0(float x)
{
    return raot_f32_to_f8e8m0_by(x, RAOT_ROUND_NEAREST, 0);
}

#endif
