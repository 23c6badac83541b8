/*
 * convert.h - conversions between element types that are defined for all values.
 *
 * Float to integer truncates; NaN becomes 0. `wrap` takes the low bits of what fits int64,
 * `sat` the nearest value of the type.
 */
#ifndef RAOT_CONVERT_H
#define RAOT_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "math.h"

static inline int64_t raot_f64_to_i64_sat(double x)
{
    if (raot_isnan(x)) {
        return 0;
    }
    if (x >= 9223372036854775808.0) {
        return INT64_MAX;
    }
    return x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

static inline uint64_t raot_f64_to_u64_sat(double x)
{
    if (!(x > 0.0)) {
        return 0;
    }
    return x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x;
}

static inline int64_t raot_f64_to_i64_wrap(double x)
{
    return raot_f64_to_i64_sat(x);
}

static inline uint64_t raot_f64_to_u64_wrap(double x)
{
    return x < 0.0 ? (uint64_t)raot_f64_to_i64_sat(x) : raot_f64_to_u64_sat(x);
}

static inline int64_t raot_sat_i64(int64_t x)
{
    return x;
}

static inline uint64_t raot_sat_u64(int64_t x)
{
    return x < 0 ? 0u : (uint64_t)x;
}

/* clang-format off */
#define RAOT_CONVERT(N, T, LOW, HIGH) \
    static inline T raot_sat_##N(int64_t x) \
    { return (T)(x < (int64_t)(LOW) ? (LOW) : x > (int64_t)(HIGH) ? (HIGH) : (T)x); } \
    static inline T raot_f64_to_##N##_sat(double x) \
    { return raot_sat_##N(raot_f64_to_i64_sat(x)); } \
    static inline T raot_f64_to_##N##_wrap(double x) { return (T)raot_f64_to_i64_sat(x); }

RAOT_CONVERT(i8, int8_t, INT8_MIN, INT8_MAX)
RAOT_CONVERT(i16, int16_t, INT16_MIN, INT16_MAX)
RAOT_CONVERT(i32, int32_t, INT32_MIN, INT32_MAX)
RAOT_CONVERT(u8, uint8_t, 0, UINT8_MAX)
RAOT_CONVERT(u16, uint16_t, 0, UINT16_MAX)
RAOT_CONVERT(u32, uint32_t, 0u, UINT32_MAX)

#define RAOT_CONVERT_F32(N, T) \
    static inline T raot_f32_to_##N##_sat(float x) { return raot_f64_to_##N##_sat((double)x); } \
    static inline T raot_f32_to_##N##_wrap(float x) { return raot_f64_to_##N##_wrap((double)x); }

RAOT_CONVERT_F32(i8, int8_t)
RAOT_CONVERT_F32(i16, int16_t)
RAOT_CONVERT_F32(i32, int32_t)
RAOT_CONVERT_F32(i64, int64_t)
RAOT_CONVERT_F32(u8, uint8_t)
RAOT_CONVERT_F32(u16, uint16_t)
RAOT_CONVERT_F32(u32, uint32_t)
RAOT_CONVERT_F32(u64, uint64_t)
/* clang-format on */

/* bfloat16 is the upper half of a float; rounds to nearest, halves to even, keeps NaN. */
static inline uint16_t raot_f32_to_bf16(float x)
{
    const uint32_t bits = raot_bitsf(x);

    if (raot_isnanf(x)) {
        return (uint16_t)((bits >> 16) | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float raot_bf16_to_f32(uint16_t x)
{
    return raot_of_bitsf((uint32_t)x << 16);
}

/* IEEE half precision; rounds to nearest, halves to even, keeps NaN. */
static inline uint16_t raot_f32_to_f16(float x)
{
    const uint32_t bits = raot_bitsf(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) {
        /* Subnormal: adding 0.5 aligns the bits, and the addition rounds them. */
        const float aligned = raot_of_bitsf(magnitude) + 0.5f;
        return (uint16_t)(sign | (raot_bitsf(aligned) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

static inline float raot_f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t magnitude = x & 0x7fffu;

    if (magnitude >= 0x7c00u) {
        return raot_of_bitsf(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    }
    if (magnitude < 0x400u) {
        const float value = (float)magnitude * 5.9604644775390625e-8f;
        return raot_of_bitsf(sign | raot_bitsf(value));
    }
    return raot_of_bitsf(sign | ((magnitude << 13) + 0x38000000u));
}

static inline float raot_bf16_round(float x)
{
    return raot_bf16_to_f32(raot_f32_to_bf16(x));
}

static inline float raot_f16_round(float x)
{
    return raot_f16_to_f32(raot_f32_to_f16(x));
}

#endif
