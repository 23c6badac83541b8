/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integer.h - integer arithmetic that is defined for all values.
 *
 * Results wrap modulo 2^bits. Division truncates towards zero and gives 0 for a divisor
 * of 0; the remainder has the sign of the divisor. Shifts by the width or more give 0, or -1 for
 * right shifts of negative numbers. A power with a negative exponent is truncated: 1, -1 or 0.
 */
#ifndef RAOT_INTEGER_H
#define RAOT_INTEGER_H

#include <stdint.h>

/* clang-format off */

/* N: suffix, T: type, U: unsigned type of the same width, W: unsigned type wide enough that
   no promotion to int can overflow, BITS: width. */
#define RAOT_INTEGER_COMMON(N, T, U, W, BITS) \
    static inline T raot_add_##N(T a, T b) { return (T)(U)((W)a + (W)b); } \
    static inline T raot_sub_##N(T a, T b) { return (T)(U)((W)a - (W)b); } \
    static inline T raot_mul_##N(T a, T b) { return (T)(U)((W)a * (W)b); } \
    static inline T raot_and_##N(T a, T b) { return (T)(U)((U)a & (U)b); } \
    static inline T raot_or_##N(T a, T b) { return (T)(U)((U)a | (U)b); } \
    static inline T raot_xor_##N(T a, T b) { return (T)(U)((U)a ^ (U)b); } \
    static inline T raot_neg_##N(T a) { return (T)(U)((W)0 - (W)a); } \
    static inline T raot_shl_##N(T a, T b) \
    { \
        const W wide = (W)(U)a; \
        if ((U)b >= (BITS)) { return (T)0; } \
        return (T)(U)(wide << (U)b); \
    } \
    static inline T raot_larger_##N(T a, T b) { return a > b ? a : b; } \
    static inline T raot_smaller_##N(T a, T b) { return a < b ? a : b; }

#define RAOT_INTEGER_SIGNED(N, T, U, W, BITS) \
    static inline T raot_shr_##N(T a, T b) \
    { return (T)(a >> ((U)b < (BITS) ? (U)b : (U)((BITS)-1u))); } \
    static inline T raot_div_##N(T a, T b) \
    { \
        if (b > 0) { return (T)(a / b); } \
        if (b < -1) { return (T)(a / b); } \
        return b == 0 ? (T)0 : raot_neg_##N(a); \
    } \
    static inline T raot_fmod_##N(T a, T b) \
    { \
        if (b > 0) { return (T)(a % b); } \
        if (b < -1) { return (T)(a % b); } \
        return (T)0; \
    } \
    static inline T raot_mod_##N(T a, T b) \
    { \
        const T rest = raot_fmod_##N(a, b); \
        if (b > 0) { return rest < 0 ? (T)(rest + b) : rest; } \
        return rest > 0 ? (T)(rest + b) : rest; \
    } \
    static inline T raot_abs_##N(T a) { return a < 0 ? raot_neg_##N(a) : a; } \
    static inline T raot_pow_##N(T a, T b) \
    { \
        T power = 1; \
        if (b < (T)0) { return (T)(a == (T)1 || (a == (T)-1 && ((U)b & 1u) == 0u) ? 1 : \
                                   a == (T)-1 ? -1 : 0); } \
        while (b > (T)0) { \
            if (((U)b & 1u) != 0u) { power = raot_mul_##N(power, a); } \
            a = raot_mul_##N(a, a); \
            b = (T)(b / (T)2); \
        } \
        return power; \
    }

#define RAOT_INTEGER_UNSIGNED(N, T, W, BITS) \
    static inline T raot_shr_##N(T a, T b) \
    { \
        if (b >= (BITS)) { return (T)0; } \
        return (T)(a >> b); \
    } \
    static inline T raot_div_##N(T a, T b) \
    { \
        if (b == 0u) { return (T)0; } \
        return (T)(a / b); \
    } \
    static inline T raot_fmod_##N(T a, T b) \
    { \
        if (b == 0u) { return (T)0; } \
        return (T)(a % b); \
    } \
    static inline T raot_mod_##N(T a, T b) { return raot_fmod_##N(a, b); } \
    static inline T raot_abs_##N(T a) { return a; } \
    static inline T raot_pow_##N(T a, T b) \
    { \
        T power = 1; \
        while (b > (T)0) { \
            if (((T)b & 1u) != 0u) { power = raot_mul_##N(power, a); } \
            a = raot_mul_##N(a, a); \
            b = (T)(b / (T)2); \
        } \
        return power; \
    }

RAOT_INTEGER_COMMON(i8, int8_t, uint8_t, uint32_t, 8u)
RAOT_INTEGER_SIGNED(i8, int8_t, uint8_t, uint32_t, 8u)
RAOT_INTEGER_COMMON(i16, int16_t, uint16_t, uint32_t, 16u)
RAOT_INTEGER_SIGNED(i16, int16_t, uint16_t, uint32_t, 16u)
RAOT_INTEGER_COMMON(i32, int32_t, uint32_t, uint32_t, 32u)
RAOT_INTEGER_SIGNED(i32, int32_t, uint32_t, uint32_t, 32u)
RAOT_INTEGER_COMMON(i64, int64_t, uint64_t, uint64_t, 64u)
RAOT_INTEGER_SIGNED(i64, int64_t, uint64_t, uint64_t, 64u)
RAOT_INTEGER_COMMON(u8, uint8_t, uint8_t, uint32_t, 8u)
RAOT_INTEGER_UNSIGNED(u8, uint8_t, uint32_t, 8u)
RAOT_INTEGER_COMMON(u16, uint16_t, uint16_t, uint32_t, 16u)
RAOT_INTEGER_UNSIGNED(u16, uint16_t, uint32_t, 16u)
RAOT_INTEGER_COMMON(u32, uint32_t, uint32_t, uint32_t, 32u)
RAOT_INTEGER_UNSIGNED(u32, uint32_t, uint32_t, 32u)
RAOT_INTEGER_COMMON(u64, uint64_t, uint64_t, uint64_t, 64u)
RAOT_INTEGER_UNSIGNED(u64, uint64_t, uint64_t, 64u)

/* clang-format on */

#endif
