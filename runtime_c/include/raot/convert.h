/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - conversions between element types, defined for all values.
 *
 * From float or double to an integer type: x is truncated, and NaN gives 0:
 *
 *     raot_f32_to_i8_sat(x)      saturated to the range of the type
 *     raot_f32_to_i8_wrap(x)     the low bits of the nearest int64 (uint64 for u64)
 *     raot_f32_to_i8_nearest(x)  as sat, but rounded to nearest, halves to even
 *
 *     raot_quantize_i8(x, zero)  x rounded as by nearest, plus an integer, then saturated
 *
 * From integers, raot_sat_i8(x) saturates an int64, raot_satu_i8(x) a uint64, and
 * raot_clamp_i8(x) an int32 to the range of the type. Half precision (f16) and bfloat16 (bf16)
 * are stored as bits; conversion to them rounds to nearest, halves to even, and NaN stays NaN.
 */
#ifndef RAOT_CONVERT_H
#define RAOT_CONVERT_H

#include <stdint.h>

#include "assembly.h"
#include "ieee.h"
#include "rounding.h"

/* x clamped to low..high. */
static inline int32_t raot_clamp_i32(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* clang-format off */
#if defined(RAOT_SAT)
/* One instruction. The macros of arm_acle.h in GCC 12 cause -Wsign-conversion warnings. */
#if defined(__GNUC__)
#define RAOT_SSAT(x, bits) (int32_t)__builtin_arm_ssat(x, bits)
#define RAOT_USAT(x, bits) (uint32_t)__builtin_arm_usat(x, bits)
#else
#define RAOT_SSAT(x, bits) __ssat(x, bits)
#define RAOT_USAT(x, bits) __usat(x, bits)
#endif
#define RAOT_CLAMP(N, T, HOW, BITS, LOW, HIGH) \
    static inline T raot_clamp_##N(int32_t x) { return (T)HOW(x, BITS); }
#else
#define RAOT_CLAMP(N, T, HOW, BITS, LOW, HIGH) \
    static inline T raot_clamp_##N(int32_t x) { return (T)raot_clamp_i32(x, LOW, HIGH); }
#endif
RAOT_CLAMP(i8, int8_t, RAOT_SSAT, 8, INT8_MIN, INT8_MAX)
RAOT_CLAMP(i16, int16_t, RAOT_SSAT, 16, INT16_MIN, INT16_MAX)
RAOT_CLAMP(u8, uint8_t, RAOT_USAT, 8, 0, UINT8_MAX)
RAOT_CLAMP(u16, uint16_t, RAOT_USAT, 16, 0, UINT16_MAX)
#undef RAOT_CLAMP
/* clang-format on */

#if defined(RAOT_FLOAT_CALLS)
/* x * 2^power, truncated and saturated; NaN is 0. */
static inline int32_t raot_f32_to_fixed(float x, int32_t power)
{
    const uint32_t bits = raot_bitsf(x);
    const int32_t exponent = (int32_t)(bits >> 23 & 0xffu) - 127 + power;
    const uint32_t digits = (bits & 0x7fffffu) | 0x800000u;
    const int32_t negative = (int32_t)(bits >> 31);
    uint32_t magnitude;

    if (exponent < 0) {
        return 0;
    }
    if (exponent > 30) {
        return raot_isnanf(x) ? 0 : negative != 0 ? INT32_MIN : INT32_MAX;
    }
    magnitude =
        exponent < 23 ? digits >> (uint32_t)(23 - exponent) : digits << (uint32_t)(exponent - 23);
    return negative != 0 ? -(int32_t)magnitude : (int32_t)magnitude;
}
#endif

static inline int32_t raot_f32_to_i32_sat(float x)
{
#if defined(__CUDA_ARCH__)
    return __float2int_rz(x);
#elif defined(RAOT_FLOAT_CALLS)
    return raot_f32_to_fixed(x, 0);
#else
    if (x != x) {
        return 0;
    }
    if (x >= 2147483648.0f) {
        return INT32_MAX;
    }
    return x < -2147483648.0f ? INT32_MIN : (int32_t)x;
#endif
}

static inline int32_t raot_f64_to_i32_sat(double x)
{
    if (x != x) {
        return 0;
    }
    if (x >= 2147483648.0) {
        return INT32_MAX;
    }
    return x <= -2147483649.0 ? INT32_MIN : (int32_t)x;
}

static inline uint32_t raot_f32_to_u32_sat(float x)
{
    if (raot_isnanf(x) || x <= 0.0f) {
        return 0u;
    }
    return x < 4294967296.0f ? (uint32_t)x : UINT32_MAX;
}

static inline uint32_t raot_f64_to_u32_sat(double x)
{
    if (x != x || x <= 0.0) {
        return 0u;
    }
    return x < 4294967296.0 ? (uint32_t)x : UINT32_MAX;
}

static inline int64_t raot_f32_to_i64_sat(float x)
{
    if (raot_isnanf(x) != 0) {
        return 0;
    }
    if (x >= 9.223372036854775808e18f) {
        return INT64_MAX;
    }
    return x < -9.223372036854775808e18f ? -INT64_MAX - 1 : (int64_t)x;
}

static inline int64_t raot_f64_to_i64_sat(double x)
{
    if (x != x) {
        return 0;
    }
    if (x >= 9.223372036854775808e18) {
        return INT64_MAX;
    }
    return x < -9.223372036854775808e18 ? -INT64_MAX - 1 : (int64_t)x;
}

static inline uint64_t raot_f32_to_u64_sat(float x)
{
    if (raot_isnanf(x) || x <= 0.0f) {
        return 0u;
    }
    return x < 18446744073709551616.0f ? (uint64_t)x : UINT64_MAX;
}

static inline uint64_t raot_f64_to_u64_sat(double x)
{
    if (x != x || x <= 0.0) {
        return 0u;
    }
    return x < 18446744073709551616.0 ? (uint64_t)x : UINT64_MAX;
}

static inline int64_t raot_f32_to_i64_wrap(float x)
{
    return raot_f32_to_i64_sat(x);
}

static inline int64_t raot_f64_to_i64_wrap(double x)
{
    return raot_f64_to_i64_sat(x);
}

static inline uint64_t raot_f32_to_u64_wrap(float x)
{
    return x < 0.0f ? (uint64_t)raot_f32_to_i64_sat(x) : raot_f32_to_u64_sat(x);
}

static inline uint64_t raot_f64_to_u64_wrap(double x)
{
    return x < 0.0 ? (uint64_t)raot_f64_to_i64_sat(x) : raot_f64_to_u64_sat(x);
}

/* The low 32 bits of the nearest int64; the 64-bit conversion, often a library call, is rare. */
static inline uint32_t raot_f32_low_bits(float x)
{
    if (raot_isnanf(x) != 0) {
        return 0u;
    }
    if (x > -2147483648.0f && x < 2147483648.0f) {
        return (uint32_t)(int32_t)x;
    }
    return (uint32_t)raot_f32_to_i64_sat(x);
}

static inline uint32_t raot_f64_low_bits(double x)
{
    if (x != x) {
        return 0u;
    }
    if (x > -2147483648.0 && x < 2147483648.0) {
        return (uint32_t)(int32_t)x;
    }
    return (uint32_t)raot_f64_to_i64_sat(x);
}

static inline int64_t raot_sat_i64(int64_t x)
{
    return x;
}

static inline uint64_t raot_sat_u64(int64_t x)
{
    return x < 0 ? 0u : (uint64_t)x;
}

/* bits / 2^drop to the nearest integer, halves to even; 0 < drop < 32. */
static inline uint32_t raot_drop_bits(uint32_t bits, uint32_t drop)
{
    const uint32_t kept = bits >> drop;
    const uint32_t rest = bits & (((uint32_t)1u << drop) - 1u);
    const uint32_t half = (uint32_t)1u << (drop - 1u);

    return kept + (rest > half || (rest == half && (kept & 1u) != 0u) ? 1u : 0u);
}

/* clang-format off */

#define RAOT_SATURATE(N, T, LOW, HIGH) \
    static inline T raot_sat_##N(int64_t x) \
    { return x < (int64_t)(LOW) ? (T)(LOW) : x > (int64_t)(HIGH) ? (T)(HIGH) : (T)x; }

#define RAOT_SATURATE_UNSIGNED(N, T, HIGH) \
    static inline T raot_satu_##N(uint64_t x) \
    { return x > (uint64_t)(HIGH) ? (T)(HIGH) : (T)x; }

#define RAOT_FROM_FLOAT_NARROW(N, T, LOW, HIGH) \
    static inline T raot_f32_to_##N##_sat(float x) \
    { return (T)raot_clamp_i32(raot_f32_to_i32_sat(x), LOW, HIGH); } \
    static inline T raot_f64_to_##N##_sat(double x) \
    { return (T)raot_clamp_i32(raot_f64_to_i32_sat(x), LOW, HIGH); }

#define RAOT_FROM_FLOAT_WRAP(N, T) \
    static inline T raot_f32_to_##N##_wrap(float x) { return (T)raot_f32_low_bits(x); } \
    static inline T raot_f64_to_##N##_wrap(double x) { return (T)raot_f64_low_bits(x); }

#define RAOT_FROM_FLOAT_NEAREST(N, T) \
    static inline T raot_f32_to_##N##_nearest(float x) \
    { return raot_f32_to_##N##_sat(raot_rintf(x)); }

#define RAOT_FROM_DOUBLE_NEAREST(N, T) \
    static inline T raot_f64_to_##N##_nearest(double x) \
    { return raot_f64_to_##N##_sat(raot_rint(x)); }

RAOT_SATURATE(i8, int8_t, INT8_MIN, INT8_MAX)
RAOT_SATURATE(i16, int16_t, INT16_MIN, INT16_MAX)
RAOT_SATURATE(i32, int32_t, INT32_MIN, INT32_MAX)
RAOT_SATURATE(u8, uint8_t, 0, UINT8_MAX)
RAOT_SATURATE(u16, uint16_t, 0, UINT16_MAX)
RAOT_SATURATE(u32, uint32_t, 0u, UINT32_MAX)

RAOT_SATURATE_UNSIGNED(i8, int8_t, INT8_MAX)
RAOT_SATURATE_UNSIGNED(i16, int16_t, INT16_MAX)
RAOT_SATURATE_UNSIGNED(i32, int32_t, INT32_MAX)
RAOT_SATURATE_UNSIGNED(i64, int64_t, INT64_MAX)
RAOT_SATURATE_UNSIGNED(u8, uint8_t, UINT8_MAX)
RAOT_SATURATE_UNSIGNED(u16, uint16_t, UINT16_MAX)
RAOT_SATURATE_UNSIGNED(u32, uint32_t, UINT32_MAX)

RAOT_FROM_FLOAT_NARROW(i8, int8_t, INT8_MIN, INT8_MAX)
RAOT_FROM_FLOAT_NARROW(i16, int16_t, INT16_MIN, INT16_MAX)
RAOT_FROM_FLOAT_NARROW(u8, uint8_t, 0, UINT8_MAX)
RAOT_FROM_FLOAT_NARROW(u16, uint16_t, 0, UINT16_MAX)

RAOT_FROM_FLOAT_WRAP(i8, int8_t)
RAOT_FROM_FLOAT_WRAP(i16, int16_t)
RAOT_FROM_FLOAT_WRAP(i32, int32_t)
RAOT_FROM_FLOAT_WRAP(u8, uint8_t)
RAOT_FROM_FLOAT_WRAP(u16, uint16_t)
RAOT_FROM_FLOAT_WRAP(u32, uint32_t)

#if defined(RAOT_ASM_INLINE) && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4)
/* VCVTR rounds to nearest, halves to even, saturates, and converts NaN to 0. */
static inline int32_t raot_f32_to_i32_nearest(float x)
{
    int32_t y;
    __asm("vcvtr.s32.f32 %0, %1" : "=t"(y) : "t"(x));
    return y;
}

#elif defined(RAOT_FLOAT_CALLS)
static inline int32_t raot_f32_to_i32_nearest(float x)
{
    const uint32_t bits = raot_bitsf(x);
    const int32_t exponent = (int32_t)(bits >> 23 & 0xffu) - 127;
    const uint32_t digits = (bits & 0x7fffffu) | 0x800000u;
    const int32_t negative = (int32_t)(bits >> 31);
    uint32_t magnitude;

    if (exponent < -1) {
        return 0;
    }
    if (exponent > 30) {
        return raot_isnanf(x) ? 0 : negative != 0 ? INT32_MIN : INT32_MAX;
    }
    magnitude = exponent < 23 ? raot_drop_bits(digits, (uint32_t)(23 - exponent))
                              : digits << (uint32_t)(exponent - 23);
    return negative != 0 ? -(int32_t)magnitude : (int32_t)magnitude;
}
#endif

#if (defined(RAOT_ASM_INLINE) && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4)) || \
    defined(RAOT_FLOAT_CALLS)
#define RAOT_FROM_FLOAT_CLAMPED(N, T) \
    static inline T raot_f32_to_##N##_nearest(float x) \
    { return raot_clamp_##N(raot_f32_to_i32_nearest(x)); }

RAOT_FROM_FLOAT_CLAMPED(i8, int8_t)
RAOT_FROM_FLOAT_CLAMPED(i16, int16_t)
RAOT_FROM_FLOAT_CLAMPED(u8, uint8_t)
RAOT_FROM_FLOAT_CLAMPED(u16, uint16_t)
#else
RAOT_FROM_FLOAT_NEAREST(i8, int8_t)
RAOT_FROM_FLOAT_NEAREST(i16, int16_t)
RAOT_FROM_FLOAT_NEAREST(i32, int32_t)
RAOT_FROM_FLOAT_NEAREST(u8, uint8_t)
RAOT_FROM_FLOAT_NEAREST(u16, uint16_t)
#endif
RAOT_FROM_FLOAT_NEAREST(i64, int64_t)
RAOT_FROM_FLOAT_NEAREST(u32, uint32_t)
RAOT_FROM_FLOAT_NEAREST(u64, uint64_t)

RAOT_FROM_DOUBLE_NEAREST(i8, int8_t)
RAOT_FROM_DOUBLE_NEAREST(i16, int16_t)
RAOT_FROM_DOUBLE_NEAREST(i32, int32_t)
RAOT_FROM_DOUBLE_NEAREST(i64, int64_t)
RAOT_FROM_DOUBLE_NEAREST(u8, uint8_t)
RAOT_FROM_DOUBLE_NEAREST(u16, uint16_t)
RAOT_FROM_DOUBLE_NEAREST(u32, uint32_t)
RAOT_FROM_DOUBLE_NEAREST(u64, uint64_t)

/* clang-format on */

#if defined(__aarch64__)
/* One addition of floats and one check of the range cost less than two checks: the sum is exact
   where it lies within the type. */
static inline int8_t raot_quantize_i8(float x, int32_t zero)
{
    return raot_f32_to_i8_sat(raot_rintf(x) + (float)zero);
}

static inline uint8_t raot_quantize_u8(float x, int32_t zero)
{
    return raot_f32_to_u8_sat(raot_rintf(x) + (float)zero);
}
#else
static inline int8_t raot_quantize_i8(float x, int32_t zero)
{
    return raot_isnanf(x) ? 0 : raot_clamp_i8(raot_f32_to_i16_nearest(x) + zero);
}

static inline uint8_t raot_quantize_u8(float x, int32_t zero)
{
    return raot_isnanf(x) ? 0 : raot_clamp_u8(raot_f32_to_i16_nearest(x) + zero);
}
#endif

/* bfloat16 is the upper half of a float. Rounding up may carry into the exponent, which is
 * correct. */
static inline uint16_t raot_f32_to_bf16(float x)
{
    const uint32_t bits = raot_bitsf(x);

    return (uint16_t)(raot_isnanf(x) ? (bits >> 16) | 0x40u : raot_drop_bits(bits, 16u));
}

static inline float raot_bf16_to_f32(uint16_t x)
{
    return raot_of_bitsf((uint32_t)x << 16);
}

#if defined(__CUDA_ARCH__)
static inline uint16_t raot_f32_to_f16(float x)
{
    uint16_t half;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

static inline float raot_f16_to_f32(uint16_t x)
{
    float wide;

    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
#elif defined(RAOT_ASM_INLINE) && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) && \
    defined(__ARM_FEATURE_FMA)
/* FPUs with FMA convert half precision, whichever format the compiler is told that it has. */
static inline uint16_t raot_f32_to_f16(float x)
{
    float half;

    __asm("vcvtb.f16.f32 %0, %1" : "=t"(half) : "t"(x));
    return (uint16_t)raot_bitsf(half);
}

static inline float raot_f16_to_f32(uint16_t x)
{
    float wide;

    __asm("vcvtb.f32.f16 %0, %1" : "=t"(wide) : "t"(raot_of_bitsf(x)));
    return wide;
}
#else
static inline uint16_t raot_f32_to_f16(float x)
{
    const uint32_t sign = raot_bitsf(x) >> 16 & 0x8000u;
    const uint32_t magnitude = raot_bitsf(x) & 0x7fffffffu;
    const uint32_t exponent = magnitude >> 23;
    uint32_t half;

    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    } else if (exponent >= 143u) {
        /* 2^16 and above. */
        half = 0x7c00u;
    } else if (exponent >= 113u) {
        /* 2^-14 and above: the exponent is biased by 112 less. */
        half = raot_drop_bits(magnitude - 0x38000000u, 13u);
    } else if (exponent >= 102u) {
        /* Multiples of 2^-24. */
        half = raot_drop_bits((magnitude & 0x7fffffu) | 0x800000u, 126u - exponent);
    } else {
        half = 0u;
    }
    return (uint16_t)(sign | half);
}

static inline float raot_f16_to_f32(uint16_t x)
{
    const uint32_t sign = ((uint32_t)x & 0x8000u) << 16;
    const uint32_t magnitude = (uint32_t)x & 0x7fffu;

    if (magnitude < 0x400u) {
        /* Multiples of 2^-24. */
        return raot_of_bitsf(sign | raot_bitsf((float)magnitude * 5.9604645e-8f));
    }
    return raot_of_bitsf(sign |
                         ((magnitude << 13) + (magnitude < 0x7c00u ? 0x38000000u : 0x70000000u)));
}
#endif

/* x saturated to the range of the type. */
static inline float raot_bf16_round(float x)
{
    return raot_bf16_to_f32(raot_f32_to_bf16(x));
}

static inline float raot_f16_round(float x)
{
    return raot_f16_to_f32(raot_f32_to_f16(x));
}

#endif
