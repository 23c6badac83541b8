/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixed_gates.h - sigmoid and tanh of integers, for the gates of integer LSTMs.
 *
 *     raot_fixed_sigmoid_i32, raot_fixed_tanh_i32   of one number, at most 2^22 from 0
 *
 * Arguments and results are in steps of 2^-15. The bits are those of gemmlowp's logistic and tanh
 * of 16-bit numbers. exp(-x) is a polynomial for the last quarter of x, times a factor for each bit
 * of the quarters before; 1 / (1 + exp(-x)) takes three steps of Newton's method. Products have 16
 * bits and are rounded to nearest, halves up.
 */
#ifndef RAOT_FIXED_GATES_H
#define RAOT_FIXED_GATES_H

#include <stdint.h>

/* exp(-1/8), 1/3, and exp(-2^k) for k from -2 on, in steps of 2^-15. */
#define RAOT_FIXED_MIDDLE 28918
#define RAOT_FIXED_THIRD 10923
#define RAOT_FIXED_POWERS(X) X(13, 25520) X(14, 19875) X(15, 12055) X(16, 4435) X(17, 600) X(18, 11)

/* 48/17 and -32/17, where Newton's method begins, in steps of 2^-13. */
#define RAOT_FIXED_START 23130
#define RAOT_FIXED_SLOPE (-15420)

static inline int32_t raot_fixed_times(int32_t x, int32_t y)
{
    return (x * y + 0x4000) >> 15;
}

/* exp(-x) of x > 0. */
static inline int32_t raot_fixed_exp(int32_t x)
{
    const int32_t before = x - 1;
    const int32_t a = 4095 - (before & 8191);
    const int32_t square = raot_fixed_times(a, a);
    const int32_t fourth = (raot_fixed_times(square, square) + 2) >> 2;
    const int32_t third = fourth + raot_fixed_times(square, a);
    const int32_t terms = (raot_fixed_times(third, RAOT_FIXED_THIRD) + square + 1) >> 1;
    int32_t result = RAOT_FIXED_MIDDLE + raot_fixed_times(a + terms, RAOT_FIXED_MIDDLE);

#define RAOT_FIXED_POWER(PLACE, FACTOR) \
    result = (before >> PLACE & 1) != 0 ? raot_fixed_times(result, FACTOR) : result;
    RAOT_FIXED_POWERS(RAOT_FIXED_POWER)
#undef RAOT_FIXED_POWER
    return before < 0x80000 ? result : 0;
}

/* 2 / (1 + e) of 0 <= e < 1, in steps of 2^-13. */
static inline int32_t raot_fixed_quotient(int32_t e)
{
    const int32_t half = (e + 0x8000) >> 1;
    int32_t x = RAOT_FIXED_START + raot_fixed_times(half, RAOT_FIXED_SLOPE);

    x += raot_fixed_times(x, 8192 - raot_fixed_times(half, x)) * 4;
    x += raot_fixed_times(x, 8192 - raot_fixed_times(half, x)) * 4;
    x += raot_fixed_times(x, 8192 - raot_fixed_times(half, x)) * 4;
    return x;
}

/* At most 1 - 2^-15. */
static inline int32_t raot_fixed_below_one(int32_t x)
{
    return x < 0x7fff ? x : 0x7fff;
}

static inline int32_t raot_fixed_sigmoid_i32(int32_t x)
{
    const int32_t magnitude = x > 0 ? x : x < 0 ? -x : 1;
    const int32_t twice = raot_fixed_quotient(raot_fixed_exp(magnitude)) * 2;
    const int32_t above = raot_fixed_below_one(twice);

    return x > 0 ? above : x < 0 ? 0x7fff - above : 0x4000;
}

static inline int32_t raot_fixed_tanh_i32(int32_t x)
{
    const int32_t magnitude = x > 0 ? x : x < 0 ? -x : 1;
    const int32_t rest = raot_fixed_quotient(raot_fixed_exp(2 * magnitude)) - 8192;
    const int32_t above = raot_fixed_below_one(rest * 4);

    return x > 0 ? above : x < 0 ? -above : 0;
}

#endif
