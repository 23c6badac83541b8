/* SPDX-License-Identifier: Apache-2.0 */
/*
 * integer_parts.h - parts of float sums by products of integers (multiply_integers.h).
 *
 * A line has RAOT_INTEGER_STEPS words for the factors of a part, as multiples of a power of two,
 * and the exponent of the largest magnitude. It is 0 where all are zeros, and RAOT_INTEGER_NONE
 * where the elements are no integers.
 */
#ifndef RAOT_INTEGER_PARTS_H
#define RAOT_INTEGER_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "assembly.h"
#include "ieee.h"

#define RAOT_INTEGER_STEPS 32
/* Rows whose sums are computed together. */
#define RAOT_INTEGER_HIGH 4
/* Thumb-1 has no instruction for the upper half of a product. */
#if defined(__thumb__) && !defined(__thumb2__)
#define RAOT_INTEGER_HALVES 1
#endif

/* Magnitudes of the integers are below 2 to this power, so 32 products are below 2^63, and 32 of
   their upper halves below 2^31. The second number times 2^32 is the least sum of magnitudes of
   products: n 2^-24 of it are more than n (2^digits + 2^16), by which rounded factors change the
   sum of n products at most. */
#if defined(RAOT_INTEGER_HALVES)
#define RAOT_INTEGER_DIGITS 28
#define RAOT_INTEGER_ENOUGH 0x100200u
#else
#define RAOT_INTEGER_DIGITS 29
#define RAOT_INTEGER_ENOUGH 0x200200u
#endif
/* Exponents of floats. Elements that are subnormal become 0 next to the least one. */
#define RAOT_INTEGER_LEAST 40
#define RAOT_INTEGER_INFINITE 255

#if defined(__GNUC__) && !defined(__clang__)
#define RAOT_INTEGER_UNROLL _Pragma("GCC unroll 4")
#else
#define RAOT_INTEGER_UNROLL
#endif
#define RAOT_INTEGER_NONE (-1)
#define RAOT_INTEGER_LINE (RAOT_INTEGER_STEPS + 1)

/* The exponent of a magnitude, which is shifted by one bit. */
static inline int32_t raot_integer_exponent(uint32_t magnitude)
{
    const int32_t exponent = (int32_t)(magnitude >> 24);

    if (magnitude == 0) {
        return 0;
    }
    return exponent >= RAOT_INTEGER_LEAST && exponent != RAOT_INTEGER_INFINITE ? exponent
                                                                               : RAOT_INTEGER_NONE;
}

/* The integers of `count` floats whose bits are in a line. */
__attribute__((noinline, unused)) static void raot_integer_round(int32_t *line, int32_t count,
                                                                 int32_t exponent)
{
    const uint32_t far = (uint32_t)exponent + (31u - RAOT_INTEGER_DIGITS);

    if (exponent <= 0) {
        for (int32_t i = 0; i < count; i++) {
            line[i] = 0;
        }
        return;
    }
    RAOT_INTEGER_UNROLL
    for (int32_t i = 0; i < count; i++) {
        const int32_t bits = line[i];
        const uint32_t shift = far - ((uint32_t)bits >> 23 & 255u);
        const uint32_t digits = (uint32_t)bits << 8 | 0x80000000u;
        const int32_t rounded = shift < 32u ? (int32_t)(((digits >> shift) + 1u) >> 1) : 0;
        line[i] = (rounded ^ bits >> 31) - (bits >> 31);
    }
}

/* The integers of `count` elements. */
__attribute__((noinline, unused)) static void raot_integer_line(int32_t *line, const float *from,
                                                                const int32_t *at, int32_t count)
{
    uint32_t most = 0;

    RAOT_INTEGER_UNROLL
    for (int32_t i = 0; i < count; i++) {
        const uint32_t bits = raot_bitsf(from[at[i]]);
        line[i] = (int32_t)bits;
        most = bits << 1 > most ? bits << 1 : most;
    }
    line[RAOT_INTEGER_STEPS] = raot_integer_exponent(most);
    raot_integer_round(line, count, line[RAOT_INTEGER_STEPS]);
}

#if defined(RAOT_INTEGER_HALVES)
/* The sum of the products of two lines, of which the elements of `other` are at `place` where that
   is not NULL, by products of halves; without the lowest 16 bits of each product. */
__attribute__((always_inline)) static inline int64_t
raot_integer_sum(const int32_t *line, const int32_t *other, const int32_t *place, int32_t count)
{
    int32_t upper = 0;
    int32_t lower = 0;

    for (int32_t i = count - 1; i >= 0; i--) {
        const int32_t x = line[i];
        const int32_t by = other[place != NULL ? place[i] : i];
        const int32_t low_x = x & 0xffff;
        const int32_t low_by = by & 0xffff;
        const int32_t high_x = x >> 16;
        const int32_t high_by = by >> 16;
        const int32_t middle =
            (int32_t)((uint32_t)low_x * (uint32_t)low_by >> 16) + high_x * low_by + low_x * high_by;
        lower += middle & 0xffff;
        upper += high_x * high_by + (middle >> 16);
    }
    return (int64_t)((uint64_t)(uint32_t)upper << 32) + (int64_t)((uint64_t)(uint32_t)lower << 16);
}

static inline int64_t raot_integer_product(int32_t x, int32_t by)
{
    return raot_integer_sum(&x, &by, NULL, 1);
}
#else
static inline int64_t raot_integer_product(int32_t x, int32_t by)
{
    return (int64_t)x * by;
}
#endif

#if defined(RAOT_INTEGER_HALVES) && defined(RAOT_ASM_THUMB_1)
#define RAOT_INTEGER_NAKED 1
/* clang-format off */
/*
 * The sums of raot_integer_sums on Armv6-M, in 21 instructions for a product.
 *
 *     r1, r2, r12        line, column, end of the line
 *     r8, r10            sums of the upper and of the lower halves
 *     [sp] to [sp, #12]  results, column, bytes of a line, remaining lines
 */
RAOT_NAKED static void raot_integer_halves(
    RAOT_ARGUMENT int64_t *sums, RAOT_ARGUMENT const int32_t *rows,
    RAOT_ARGUMENT const int32_t *column, RAOT_ARGUMENT int32_t count)
{
    __asm volatile(
        ".syntax unified\n push {r4-r7, lr}\n mov r4, r8\n mov r5, r10\n push {r4, r5}\n"
        "sub sp, #16\n lsls r3, r3, #2\n movs r4, #4\n"
        "str r0, [sp]\n str r2, [sp, #4]\n str r3, [sp, #8]\n str r4, [sp, #12]\n"
        "1: ldr r2, [sp, #4]\n ldr r3, [sp, #8]\n adds r3, r1\n mov r12, r3\n"
        "movs r0, #0\n mov r8, r0\n mov r10, r0\n"
        "2: ldmia r1!, {r3}\n ldmia r2!, {r4}\n"
        "uxth r5, r3\n asrs r3, r3, #16\n uxth r6, r4\n asrs r4, r4, #16\n"
        "mov r7, r5\n muls r7, r6\n lsrs r7, r7, #16\n"
        "muls r5, r4\n adds r7, r5\n muls r6, r3\n adds r7, r6\n"
        "muls r4, r3\n asrs r0, r7, #16\n adds r4, r0\n add r8, r4\n"
        "uxth r7, r7\n add r10, r7\n cmp r1, r12\n bne 2b\n"
        "ldr r0, [sp]\n mov r4, r10\n lsls r3, r4, #16\n lsrs r4, r4, #16\n"
        "add r4, r8\n stmia r0!, {r3, r4}\n str r0, [sp]\n"
        "ldr r3, [sp, #8]\n movs r4, #132\n subs r4, r3\n adds r1, r4\n"
        "ldr r3, [sp, #12]\n subs r3, #1\n str r3, [sp, #12]\n bne 1b\n"
        "add sp, #16\n pop {r4, r5}\n mov r8, r4\n mov r10, r5\n pop {r4-r7, pc}\n");
}
/* clang-format on */
#endif

/* The sums of the products of a column and of RAOT_INTEGER_HIGH rows. */
__attribute__((noinline, unused)) static void raot_integer_sums(int64_t sums[RAOT_INTEGER_HIGH],
                                                                const int32_t *rows,
                                                                const int32_t *column,
                                                                int32_t count)
{
#if defined(RAOT_INTEGER_NAKED)
    raot_integer_halves(sums, rows, column, count);
#elif defined(RAOT_INTEGER_HALVES)
    for (int32_t r = 0; r < RAOT_INTEGER_HIGH; r++) {
        sums[r] = raot_integer_sum(rows + r * RAOT_INTEGER_LINE, column, NULL, count);
    }
#else
    int64_t sum0 = 0;
    int64_t sum1 = 0;
    int64_t sum2 = 0;
    int64_t sum3 = 0;

    RAOT_INTEGER_UNROLL
    for (int32_t i = 0; i < count; i++) {
        const int32_t factor = column[i];
        sum0 += raot_integer_product(rows[i], factor);
        sum1 += raot_integer_product(rows[RAOT_INTEGER_LINE + i], factor);
        sum2 += raot_integer_product(rows[2 * RAOT_INTEGER_LINE + i], factor);
        sum3 += raot_integer_product(rows[3 * RAOT_INTEGER_LINE + i], factor);
    }
    sums[0] = sum0;
    sums[1] = sum1;
    sums[2] = sum2;
    sums[3] = sum3;
#endif
}

static inline int raot_integer_is_enough(int64_t sum)
{
    const uint32_t upper = (uint32_t)((uint64_t)sum >> 32);

    return upper + RAOT_INTEGER_ENOUGH > 2u * RAOT_INTEGER_ENOUGH;
}

/* Whether the upper halves of the magnitudes of factors tell that the integers are exact enough:
   the sum of the magnitudes of the products is not less than that of theirs. */
__attribute__((noinline, unused)) static int
raot_integer_is_exact(const int32_t *row, const int32_t *column, int32_t count)
{
    uint32_t sum = 0;

    for (int32_t i = 0; i < count; i++) {
        const uint32_t x = (uint32_t)(row[i] ^ row[i] >> 31);
        const uint32_t by = (uint32_t)(column[i] ^ column[i] >> 31);
        sum += (x >> 16) * (by >> 16);
    }
    return sum > RAOT_INTEGER_ENOUGH;
}

/* Leading zeros of a number that is not 0. */
static inline int32_t raot_integer_zeros(uint32_t x)
{
#if defined(__GNUC__) && defined(__ARM_FEATURE_CLZ)
    return __builtin_clz(x);
#else
    int32_t zeros = 0;

    for (; x >> 24 == 0; x <<= 8) {
        zeros += 8;
    }
    for (; x >> 31 == 0; x <<= 1) {
        zeros++;
    }
    return zeros;
#endif
}

/* Adds products * 2^power in 30 bits, and rounds; returns 0 without a change where the sum or the
   result is not normal. */
static inline int raot_integer_add(float *sum, int64_t products, int32_t power)
{
    const uint32_t bits = raot_bitsf(*sum);
    const int32_t own = (int32_t)(bits >> 23 & 255u);
    int32_t upper = (int32_t)((uint64_t)products >> 32);
    uint32_t lower = (uint32_t)products;
    int32_t exponent = power + 127 + 64;

    if (upper == upper >> 31) {
        if (products == 0) {
            return 1;
        }
        /* One bit less than a word, so that the sign stays. */
        upper = (int32_t)((uint32_t)upper << 31 | lower >> 1);
        lower = lower << 31;
        exponent -= 31;
        if (upper == upper >> 31) {
            return 0;
        }
    }
    /* Bits that equal the sign, without it. */
    const int32_t same = raot_integer_zeros((uint32_t)(upper ^ upper >> 31)) - 1;
    int32_t all = (int32_t)((uint32_t)upper << same | lower >> 1 >> (31 - same)) >> 1;
    exponent -= same + 2;
    if (bits << 1 != 0) {
        const int32_t digits = (int32_t)((bits & 0x7fffffu) << 6 | 0x20000000u);
        const int32_t first = bits >> 31 != 0 ? -digits : digits;
        const int32_t apart = exponent - own;
        if (own == 0 || own == RAOT_INTEGER_INFINITE) {
            return 0;
        }
        if (apart >= 0) {
            all += first >> (apart < 31 ? apart : 31);
        } else {
            all = first + (all >> (apart > -31 ? -apart : 31));
            exponent = own;
        }
        if (all == 0) {
            *sum = 0.0f;
            return 1;
        }
    }
    const uint32_t sign = (uint32_t)all & 0x80000000u;
    const uint32_t magnitude = sign != 0 ? -(uint32_t)all : (uint32_t)all;
    const int32_t shift = raot_integer_zeros(magnitude);
    const uint32_t rounded = ((magnitude << shift >> 7) + 1u) >> 1;
    exponent += 1 - shift;
    if ((uint32_t)exponent > 252u) {
        return 0;
    }
    *sum = raot_of_bitsf(rounded + (sign | (uint32_t)exponent << 23));
    return 1;
}

#endif
