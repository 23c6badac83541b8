/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines_f32.h - sums and products of contiguous floats, element by element.
 *
 * `values` may be any of the operands. Products of three are multiplied from left to right.
 *
 * On Arm cores with an FPU and without vectors (Cortex-M4, M7, M33), an instruction loads or stores
 * eight floats, whereas compilers load and store each of them, with the same bits.
 */
#ifndef RAOT_LINES_F32_H
#define RAOT_LINES_F32_H

#include <stdint.h>

#include "powers_vfp.h"

#if defined(RAOT_VFP_POWERS)
/* clang-format off */
#define RAOT_LINE_EIGHT(OP, A, B, C, D, E, F, G, H) \
    OP " s0, s0, " A "\n" OP " s1, s1, " B "\n" OP " s2, s2, " C "\n" OP " s3, s3, " D "\n" \
    OP " s4, s4, " E "\n" OP " s5, s5, " F "\n" OP " s6, s6, " G "\n" OP " s7, s7, " H "\n"
/* Blocks of eight elements; OPERATIONS: on the elements of `left` in s0 to s7, with those of
 * `right` (r2) in s8 to s15, or of `third` (r4), and its first one in s16. */
#define RAOT_LINE_BLOCKS(NAME, OPERATIONS) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT float *values, RAOT_ARGUMENT const float *left, \
        RAOT_ARGUMENT const float *right, RAOT_ARGUMENT int32_t blocks, \
        RAOT_ARGUMENT const float *third) \
    { \
        __asm__ volatile( \
            "push {r4, lr}\n vpush {d8}\n ldr r4, [sp, #16]\n vldr s16, [r4]\n" \
            "1: vldmia r1!, {s0-s7}\n subs r3, #1\n" \
            OPERATIONS "vstmia r0!, {s0-s7}\n bgt 1b\n vpop {d8}\n pop {r4, pc}\n"); \
    }
#define RAOT_LINE_BY(OP, FROM) \
    "vldmia " FROM "!, {s8-s15}\n" \
    RAOT_LINE_EIGHT(OP ".f32", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15")
#define RAOT_LINE_BY_ONE \
    RAOT_LINE_EIGHT("vmul.f32", "s16", "s16", "s16", "s16", "s16", "s16", "s16", "s16")
RAOT_LINE_BLOCKS(raot_line_sum_blocks, RAOT_LINE_BY("vadd", "r2"))
RAOT_LINE_BLOCKS(raot_line_product_blocks, RAOT_LINE_BY("vmul", "r2"))
RAOT_LINE_BLOCKS(raot_line_scaled_blocks, RAOT_LINE_BY_ONE)
RAOT_LINE_BLOCKS(raot_line_scaled_product_blocks, RAOT_LINE_BY_ONE RAOT_LINE_BY("vmul", "r2"))
RAOT_LINE_BLOCKS(raot_line_scaled_sum_blocks, RAOT_LINE_BY_ONE RAOT_LINE_BY("vadd", "r2"))
RAOT_LINE_BLOCKS(raot_line_three_blocks, RAOT_LINE_BY("vmul", "r2") RAOT_LINE_BY("vmul", "r4"))
/* clang-format on */

/* Blocks, and the elements behind them. */
#define RAOT_LINE(BLOCKS, RIGHT, THIRD, EXPRESSION) \
    const int32_t blocks = count / 8;               \
                                                    \
    if (blocks > 0) {                               \
        BLOCKS(values, left, RIGHT, blocks, THIRD); \
    }                                               \
    for (int32_t i = blocks * 8; i < count; i++) {  \
        values[i] = (EXPRESSION);                   \
    }
#else
#define RAOT_LINE(BLOCKS, RIGHT, THIRD, EXPRESSION) \
    for (int32_t i = 0; i < count; i++) {           \
        values[i] = (EXPRESSION);                   \
    }
#endif

__attribute__((noinline, unused)) static void raot_line_sum_f32(float *values, const float *left,
                                                                const float *right, int32_t count)
{
    RAOT_LINE(raot_line_sum_blocks, right, left, left[i] + right[i])
}

__attribute__((noinline, unused)) static void
raot_line_product_f32(float *values, const float *left, const float *right, int32_t count)
{
    RAOT_LINE(raot_line_product_blocks, right, left, left[i] * right[i])
}

/* left * by, where `by` is one number. */
__attribute__((noinline, unused)) static void raot_line_scaled_f32(float *values, const float *left,
                                                                   const float *by, int32_t count)
{
    RAOT_LINE(raot_line_scaled_blocks, left, by, left[i] * by[0])
}

/* left * by * right, where `by` is one number. */
__attribute__((noinline, unused)) static void
raot_line_scaled_product_f32(float *values, const float *left, const float *by, const float *right,
                             int32_t count)
{
    RAOT_LINE(raot_line_scaled_product_blocks, right, by, left[i] * by[0] * right[i])
}

/* left * by + right, where `by` is one number. The product is rounded. */
__attribute__((noinline, unused)) static void
raot_line_scaled_sum_f32(float *values, const float *left, const float *by, const float *right,
                         int32_t count)
{
    RAOT_LINE(raot_line_scaled_sum_blocks, right, by, left[i] * by[0] + right[i])
}

/* left * right * third. */
__attribute__((noinline, unused)) static void
raot_line_product_of_three_f32(float *values, const float *left, const float *right,
                               const float *third, int32_t count)
{
    RAOT_LINE(raot_line_three_blocks, right, third, left[i] * right[i] * third[i])
}

#endif
