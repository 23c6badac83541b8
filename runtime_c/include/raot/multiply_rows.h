/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_rows.h - products of a few rows of floats by a matrix.
 *
 *     to[r][c] = sum over k of left[r * left_row + k] * right[k * right_row + c]
 *
 * in the order of k, from 0 on, for rows of `to` one behind the other. raot_multiply_rows_f32 adds
 * by raot_fmaf, raot_multiply_rounded_rows_f32 rounds each product first. Unlike tiles of
 * multiply.h, sums begin and end in registers.
 *
 *     to[r * to_row + c] = starts[c] + sum over k of left[r * left_row + k] * right[c / 8][k][c %
 * 8]
 *
 * by raot_multiply_panels_f32 and raot_multiply_rounded_panels_f32, whose matrix is packed in
 * panels of eight columns; the last one may have columns that are not used.
 *
 * On Cortex-M with a single-precision FPU, assembly keeps 2 x 8 or 1 x 16 sums in registers, and
 * one instruction loads eight elements of the matrix, for both rows. The last columns are a block
 * that ends at the last one, whose first sums are computed twice. In panels, an address moves with
 * the load, and blocks of one row have eight sums. Of many columns, two rows take eight steps at a
 * time, whose addresses move with the loads, too, and sums wait in the result.
 */
#ifndef RAOT_MULTIPLY_ROWS_H
#define RAOT_MULTIPLY_ROWS_H

#include <stdint.h>

#include "assembly.h"
#include "ieee.h"

#if defined(RAOT_ASM_THUMB) && defined(__ARM_FEATURE_FMA) && !defined(__OPTIMIZE_SIZE__) && \
    __ARM_ARCH_PROFILE == 'M'
#define RAOT_ROWS_BLOCKS 1
#endif

#if defined(RAOT_ROWS_BLOCKS)
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Woverlength-strings"
#endif

/*
 * Blocks of columns of one or two rows.
 *
 *     s0 to s15    sums
 *     s16 to s23   right operand
 *     s24 to s31   four steps of the left operand, a row after the other, and two products; eight
 *                  steps of one row by panels
 *     r0, r1, r2   result, left and right operand of the block
 *     r3           steps
 *     r4, r5, r6   rows of the left operand and right operand, in the inner loop
 *     r7, r8       remaining iterations: of four or eight steps, single ones
 *     r10          bytes from what is loaded of a step of the right operand to the next step
 *     r11          bytes from one row of the result to the next
 *     r12          remaining blocks
 *     lr           bytes from one row of the left operand to the next
 *     [sp]         saved registers
 *     [sp, #96]    argument: bytes from one row of the left operand to the next
 *     [sp, #100]   argument: bytes from a step of the right operand to the next
 *     [sp, #104]   argument: bytes from one row of the result to the next
 *     [sp, #108]   argument: blocks
 *     [sp, #112]   argument: what the sums of a block begin with
 *     [sp, #116]   argument: bytes from there to that of the next block
 */
/* clang-format off */
#define RAOT_ROWS_FMA(s0, s1, s2, s3, a, b0, b1, b2, b3, t0, t1) \
    "vfma.f32 " #s0 ", " #a ", " #b0 "\n vfma.f32 " #s1 ", " #a ", " #b1 "\n" \
    "vfma.f32 " #s2 ", " #a ", " #b2 "\n vfma.f32 " #s3 ", " #a ", " #b3 "\n"
#define RAOT_ROWS_TWO(s0, s1, a, b0, b1, t0, t1) \
    "vmul.f32 " #t0 ", " #a ", " #b0 "\n vmul.f32 " #t1 ", " #a ", " #b1 "\n" \
    "vadd.f32 " #s0 ", " #s0 ", " #t0 "\n vadd.f32 " #s1 ", " #s1 ", " #t1 "\n"
#define RAOT_ROWS_ROUNDED(s0, s1, s2, s3, a, b0, b1, b2, b3, t0, t1) \
    RAOT_ROWS_TWO(s0, s1, a, b0, b1, t0, t1) RAOT_ROWS_TWO(s2, s3, a, b2, b3, t0, t1)

/* A step of one row, whose element is `a`. */
#define RAOT_ROWS_WIDE(ADD, a, c) \
    "vldmia r6!, {s16-s23}\n" \
    ADD(s0, s1, s2, s3, a, s16, s17, s18, s19, s28, s29) \
    ADD(s4, s5, s6, s7, a, s20, s21, s22, s23, s28, s29) \
    "vldmia r6, {s16-s23}\n add r6, r10\n" \
    ADD(s8, s9, s10, s11, a, s16, s17, s18, s19, s28, s29) \
    ADD(s12, s13, s14, s15, a, s20, s21, s22, s23, s28, s29)
#define RAOT_ROWS_NARROW(ADD, a, c) \
    "vldmia r6!, {s16-s23}\n" \
    ADD(s0, s1, s2, s3, a, s16, s17, s18, s19, s8, s9) \
    ADD(s4, s5, s6, s7, a, s20, s21, s22, s23, s8, s9)
/* A step of two rows, whose elements are `a` and `c`. */
#define RAOT_ROWS_PAIR_BY(LOAD, ADD, a, c) \
    LOAD \
    ADD(s0, s1, s2, s3, a, s16, s17, s18, s19, , ) \
    ADD(s4, s5, s6, s7, a, s20, s21, s22, s23, , ) \
    ADD(s8, s9, s10, s11, c, s16, s17, s18, s19, , ) \
    ADD(s12, s13, s14, s15, c, s20, s21, s22, s23, , )
#define RAOT_ROWS_PAIR(ADD, a, c) \
    RAOT_ROWS_PAIR_BY("vldmia r6, {s16-s23}\n add r6, r10\n", ADD, a, c)
#define RAOT_ROWS_PANEL_PAIR(ADD, a, c) RAOT_ROWS_PAIR_BY("vldmia r6!, {s16-s23}\n", ADD, a, c)
/* With two registers for products. */
#define RAOT_ROWS_HALVES_BY(LOAD, ADD, a, c) \
    "vldmia r6!, {s16-s19}\n" \
    ADD(s0, s1, s2, s3, a, s16, s17, s18, s19, s20, s21) \
    ADD(s8, s9, s10, s11, c, s16, s17, s18, s19, s20, s21) \
    LOAD \
    ADD(s4, s5, s6, s7, a, s16, s17, s18, s19, s20, s21) \
    ADD(s12, s13, s14, s15, c, s16, s17, s18, s19, s20, s21)
#define RAOT_ROWS_HALVES(ADD, a, c) \
    RAOT_ROWS_HALVES_BY("vldmia r6, {s16-s19}\n add r6, r10\n", ADD, a, c)
#define RAOT_ROWS_PANEL_HALVES(ADD, a, c) RAOT_ROWS_HALVES_BY("vldmia r6!, {s16-s19}\n", ADD, a, c)

/* The iterations of several steps; how many are left. */
#define RAOT_ROWS_FOUR(STEP, ADD, LOAD) \
    "lsrs r7, r3, #2\n beq 2f\n 1: " LOAD "subs r7, #1\n" STEP(ADD, s24, s28) \
    STEP(ADD, s25, s29) STEP(ADD, s26, s30) STEP(ADD, s27, s31) "bne 1b\n 2: ands r8, r3, #3\n"
#define RAOT_ROWS_EIGHT(STEP, ADD, LOAD) \
    "lsrs r7, r3, #3\n beq 2f\n 1: " LOAD "subs r7, #1\n" \
    STEP(ADD, s24, ) STEP(ADD, s25, ) STEP(ADD, s26, ) STEP(ADD, s27, ) \
    STEP(ADD, s28, ) STEP(ADD, s29, ) STEP(ADD, s30, ) STEP(ADD, s31, ) \
    "bne 1b\n 2: ands r8, r3, #7\n"

#define RAOT_ROWS(NAME, STEP, ADD, BACK, BEGIN, STEPS, LOAD, ONE, STORE, BYTES, NEXT) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT float *to, RAOT_ARGUMENT const float *left, \
        RAOT_ARGUMENT const float *right, RAOT_ARGUMENT int32_t depth, \
        RAOT_ARGUMENT int32_t left_row, RAOT_ARGUMENT int32_t right_row, \
        RAOT_ARGUMENT int32_t to_row, RAOT_ARGUMENT int32_t blocks, \
        RAOT_ARGUMENT const float *starts, RAOT_ARGUMENT int32_t starts_block) \
    { \
        __asm__ volatile( \
            "push {r4-r8, r10, r11, lr}\n vpush {d8-d15}\n" \
            "ldrd lr, r10, [sp, #96]\n ldrd r11, r12, [sp, #104]\n sub r10, #" BACK "\n" \
            "0: ldrd r4, r5, [sp, #112]\n" BEGIN "add r4, r5\n str r4, [sp, #112]\n" \
            "mov r4, r1\n add r5, r1, lr\n mov r6, r2\n" \
            STEPS(STEP, ADD, LOAD) \
            "beq 4f\n" \
            "3: " ONE "subs r8, #1\n" STEP(ADD, s24, s28) "bne 3b\n" \
            "4: " STORE "adds r0, #" BYTES "\n" NEXT "subs r12, #1\n bne 0b\n" \
            "vpop {d8-d15}\n pop {r4-r8, r10, r11, pc}\n"); \
    }
#define RAOT_ROWS_1(NAME, ADD) \
    RAOT_ROWS(NAME, RAOT_ROWS_WIDE, ADD, "32", "vldmia r4, {s0-s15}\n", RAOT_ROWS_FOUR, \
              "vldmia r4!, {s24-s27}\n", "vldmia r4!, {s24}\n", "vstmia r0, {s0-s15}\n", "64", \
              "adds r2, #64\n")
#define RAOT_PANEL_ROWS_1(NAME, ADD) \
    RAOT_ROWS(NAME, RAOT_ROWS_NARROW, ADD, "0", "vldmia r4, {s0-s7}\n", RAOT_ROWS_EIGHT, \
              "vldmia r4!, {s24-s31}\n", "vldmia r4!, {s24}\n", "vstmia r0, {s0-s7}\n", "32", \
              "mov r2, r6\n")
#define RAOT_ROWS_2(NAME, STEP, ADD, BACK, NEXT) \
    RAOT_ROWS(NAME, STEP, ADD, BACK, "vldmia r4, {s0-s7}\n vldmia r4, {s8-s15}\n", RAOT_ROWS_FOUR, \
              "vldmia r4!, {s24-s27}\n vldmia r5!, {s28-s31}\n", \
              "vldmia r4!, {s24}\n vldmia r5!, {s28}\n", \
              "add r8, r0, r11\n vstmia r0, {s0-s7}\n vstmia r8, {s8-s15}\n", "32", NEXT)
RAOT_ROWS_1(raot_row_blocks_f32, RAOT_ROWS_FMA)
RAOT_ROWS_1(raot_rounded_row_blocks_f32, RAOT_ROWS_ROUNDED)
RAOT_ROWS_2(raot_two_row_blocks_f32, RAOT_ROWS_PAIR, RAOT_ROWS_FMA, "0", "adds r2, #32\n")
RAOT_ROWS_2(raot_rounded_two_row_blocks_f32, RAOT_ROWS_HALVES, RAOT_ROWS_ROUNDED, "16",
            "adds r2, #32\n")
RAOT_PANEL_ROWS_1(raot_row_panels_f32, RAOT_ROWS_FMA)
RAOT_PANEL_ROWS_1(raot_rounded_row_panels_f32, RAOT_ROWS_ROUNDED)
RAOT_ROWS_2(raot_two_row_panels_f32, RAOT_ROWS_PANEL_PAIR, RAOT_ROWS_FMA, "0", "mov r2, r6\n")
RAOT_ROWS_2(raot_rounded_two_row_panels_f32, RAOT_ROWS_PANEL_HALVES, RAOT_ROWS_ROUNDED, "0",
            "mov r2, r6\n")

/*
 * Eight steps of two rows, for some blocks of eight columns.
 *
 *     s0 to s15           sums
 *     s16 to s23          right operand
 *     s24 to s31          four steps of the left operand, a row after the other
 *     r0, r11             result
 *     r1                  zeros
 *     r2 to r8, r10       right operand at each step
 *     r12                 remaining blocks
 *     [sp], lr            steps of the left operand: the first four, the last four
 *     [sp, #64]           saved registers
 *     [sp, #160]          argument: bytes from a step of the right operand to the next
 *     [sp, #164]          argument: bytes from one row of the result to the next
 *     [sp, #168]          argument: blocks
 *     [sp, #172]          argument: 16 zeros
 */
#define RAOT_ROWS_EIGHT_STEPS(NAME, BEGIN) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT float *to, RAOT_ARGUMENT const float *left, \
        RAOT_ARGUMENT const float *right, RAOT_ARGUMENT int32_t left_row, \
        RAOT_ARGUMENT int32_t right_row, RAOT_ARGUMENT int32_t to_row, \
        RAOT_ARGUMENT int32_t blocks, RAOT_ARGUMENT const float *zeros) \
    { \
        __asm__ volatile( \
            "push {r4-r8, r10, r11, lr}\n vpush {d8-d15}\n sub sp, #64\n add r3, r1\n" \
            "vldmia r1!, {s0-s3}\n vldmia r3!, {s4-s7}\n vldmia r1, {s8-s11}\n" \
            "vldmia r3, {s12-s15}\n mov r1, sp\n vstmia r1, {s0-s15}\n add lr, r1, #32\n" \
            "ldrd r10, r11, [sp, #160]\n ldrd r12, r1, [sp, #168]\n add r3, r2, r10\n" \
            "add r4, r3, r10\n add r5, r4, r10\n add r6, r5, r10\n add r7, r6, r10\n" \
            "add r8, r7, r10\n add r10, r8\n add r11, r0\n" \
            "1: vldmia sp, {s24-s31}\n" BEGIN \
            RAOT_ROWS_PAIR_BY("vldmia r2!, {s16-s23}\n", RAOT_ROWS_FMA, s24, s28) \
            RAOT_ROWS_PAIR_BY("vldmia r3!, {s16-s23}\n", RAOT_ROWS_FMA, s25, s29) \
            RAOT_ROWS_PAIR_BY("vldmia r4!, {s16-s23}\n", RAOT_ROWS_FMA, s26, s30) \
            RAOT_ROWS_PAIR_BY("vldmia r5!, {s16-s23}\n", RAOT_ROWS_FMA, s27, s31) \
            "vldmia lr, {s24-s31}\n" \
            RAOT_ROWS_PAIR_BY("vldmia r6!, {s16-s23}\n", RAOT_ROWS_FMA, s24, s28) \
            RAOT_ROWS_PAIR_BY("vldmia r7!, {s16-s23}\n", RAOT_ROWS_FMA, s25, s29) \
            RAOT_ROWS_PAIR_BY("vldmia r8!, {s16-s23}\n", RAOT_ROWS_FMA, s26, s30) \
            RAOT_ROWS_PAIR_BY("vldmia r10!, {s16-s23}\n", RAOT_ROWS_FMA, s27, s31) \
            "subs r12, #1\n vstmia r0!, {s0-s7}\n vstmia r11!, {s8-s15}\n bne 1b\n" \
            "add sp, #64\n vpop {d8-d15}\n pop {r4-r8, r10, r11, pc}\n"); \
    }
RAOT_ROWS_EIGHT_STEPS(raot_two_row_first_steps_f32, "vldmia r1, {s0-s15}\n")
RAOT_ROWS_EIGHT_STEPS(raot_two_row_next_steps_f32, "vldmia r0, {s0-s7}\n vldmia r11, {s8-s15}\n")
#define RAOT_ROWS_MANY 6 /* blocks */
/* clang-format on */

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

static const float raot_rows_zeros[16] = {0};

/* Blocks of eight columns of two rows. */
__attribute__((unused)) static void raot_two_rows_f32(float *to, const float *left,
                                                      const float *right, int32_t depth,
                                                      int32_t left_bytes, int32_t right_row,
                                                      int32_t to_bytes, int32_t blocks)
{
    const int32_t right_bytes = right_row * (int32_t)sizeof(float);
    const int32_t alone = blocks < RAOT_ROWS_MANY ? depth : depth % 8;

    if (alone > 0 || depth <= 0) {
        raot_two_row_blocks_f32(to, left, right, alone, left_bytes, right_bytes, to_bytes, blocks,
                                raot_rows_zeros, 0);
    }
    for (int32_t k = alone; k < depth; k += 8) {
        if (k == 0) {
            raot_two_row_first_steps_f32(to, left, right, left_bytes, right_bytes, to_bytes, blocks,
                                         raot_rows_zeros);
        } else {
            raot_two_row_next_steps_f32(to, left + k, right + k * right_row, left_bytes,
                                        right_bytes, to_bytes, blocks, raot_rows_zeros);
        }
    }
}

/* The columns of one or two rows that are blocks of 16 or 8; returns how many are left. */
__attribute__((unused)) static int32_t raot_row_columns_f32(int32_t rounded, float *to,
                                                            const float *left, const float *right,
                                                            int32_t rows, int32_t columns,
                                                            int32_t depth, int32_t left_row,
                                                            int32_t right_row)
{
    const float *const zeros = raot_rows_zeros;
    const int32_t width = rows == 2 ? (int32_t)8 : 16;
    const int32_t left_bytes = left_row * (int32_t)sizeof(float);
    const int32_t right_bytes = right_row * (int32_t)sizeof(float);
    const int32_t to_bytes = columns * (int32_t)sizeof(float);
    int32_t blocks = columns / width;
    int32_t first = 0;

    if (blocks == 0) {
        return columns;
    }
    while (blocks > 0) {
        if (rows == 2 && rounded != 0) {
            raot_rounded_two_row_blocks_f32(to + first, left, right + first, depth, left_bytes,
                                            right_bytes, to_bytes, blocks, zeros, 0);
        } else if (rows == 2) {
            raot_two_rows_f32(to + first, left, right + first, depth, left_bytes, right_row,
                              to_bytes, blocks);
        } else if (rounded != 0) {
            raot_rounded_row_blocks_f32(to + first, left, right + first, depth, left_bytes,
                                        right_bytes, to_bytes, blocks, zeros, 0);
        } else {
            raot_row_blocks_f32(to + first, left, right + first, depth, left_bytes, right_bytes,
                                to_bytes, blocks, zeros, 0);
        }
        blocks = first == 0 && columns % width != 0 ? (int32_t)1 : 0;
        first = columns - width;
    }
    return 0;
}
#endif

__attribute__((always_inline)) static inline void
raot_multiply_rows(const int32_t rounded, float *to, const float *left, const float *right,
                   int32_t rows, int32_t columns, int32_t depth, int32_t left_row,
                   int32_t right_row)
{
    int32_t r = 0;

    while (r < rows) {
#if defined(RAOT_ROWS_BLOCKS)
        const int32_t high = rows - r >= 2 ? (int32_t)2 : 1;
        const int32_t rest = raot_row_columns_f32(rounded, to, left, right, high, columns, depth,
                                                  left_row, right_row);
#else
        const int32_t high = 1;
        const int32_t rest = columns;
#endif
        for (int32_t c = columns - rest; c < columns; c++) {
            for (int32_t h = 0; h < high; h++) {
                const float *b = right + c;
                float sum = 0.0f;

                for (int32_t k = 0; k < depth; k++) {
                    sum = rounded ? raot_madf(left[h * left_row + k], *b, sum)
                                  : raot_fmaf(left[h * left_row + k], *b, sum);
                    b += right_row;
                }
                to[h * columns + c] = sum;
            }
        }
        r += high;
        to += high * columns;
        left += high * left_row;
    }
}

__attribute__((noinline, unused)) static void
raot_multiply_rows_f32(float *to, const float *left, const float *right, int32_t rows,
                       int32_t columns, int32_t depth, int32_t left_row, int32_t right_row)
{
    raot_multiply_rows(0, to, left, right, rows, columns, depth, left_row, right_row);
}

__attribute__((noinline, unused)) static void
raot_multiply_rounded_rows_f32(float *to, const float *left, const float *right, int32_t rows,
                               int32_t columns, int32_t depth, int32_t left_row, int32_t right_row)
{
    raot_multiply_rows(1, to, left, right, rows, columns, depth, left_row, right_row);
}

/* Sizes of the functions below, by name. */
struct raot_multiply_panels {
    int32_t rows;
    int32_t columns;
    int32_t depth;
    int32_t left_row;
    int32_t to_row;
};

#if defined(RAOT_ROWS_BLOCKS)
/* One or two rows of some panels. */
__attribute__((always_inline)) static inline void
raot_panels_f32(const int32_t rounded, float *to, const float *left, const float *right,
                const float *starts, int32_t rows, const struct raot_multiply_panels *sizes,
                int32_t to_row, int32_t panels)
{
    const int32_t left_bytes = sizes->left_row * (int32_t)sizeof(float);
    const int32_t to_bytes = to_row * (int32_t)sizeof(float);

    if (rows == 2 && rounded != 0) {
        raot_rounded_two_row_panels_f32(to, left, right, sizes->depth, left_bytes, 0, to_bytes,
                                        panels, starts, 32);
    } else if (rows == 2) {
        raot_two_row_panels_f32(to, left, right, sizes->depth, left_bytes, 0, to_bytes, panels,
                                starts, 32);
    } else if (rounded != 0) {
        raot_rounded_row_panels_f32(to, left, right, sizes->depth, left_bytes, 0, to_bytes, panels,
                                    starts, 32);
    } else {
        raot_row_panels_f32(to, left, right, sizes->depth, left_bytes, 0, to_bytes, panels, starts,
                            32);
    }
}
#endif

__attribute__((always_inline)) static inline void
raot_multiply_panels(const int32_t rounded, float *to, const float *left, const float *right,
                     const float *starts, const struct raot_multiply_panels *sizes)
{
    int32_t r = 0;

    while (r < sizes->rows) {
#if defined(RAOT_ROWS_BLOCKS)
        const int32_t high = sizes->rows - r >= 2 ? (int32_t)2 : 1;
        const int32_t whole = sizes->columns / 8;
        const int32_t rest = sizes->columns % 8;

        if (whole > 0) {
            raot_panels_f32(rounded, to, left, right, starts, high, sizes, sizes->to_row, whole);
        }
        if (rest > 0) {
            float begin[8] = {0};
            float last[16];

            for (int32_t c = 0; c < rest; c++) {
                begin[c] = starts[8 * whole + c];
            }
            raot_panels_f32(rounded, last, left, right + 8 * whole * sizes->depth, begin, high,
                            sizes, 8, 1);
            for (int32_t h = 0; h < high; h++) {
                for (int32_t c = 0; c < rest; c++) {
                    to[h * sizes->to_row + 8 * whole + c] = last[8 * h + c];
                }
            }
        }
#else
        const int32_t high = 1;

        for (int32_t c = 0; c < sizes->columns; c++) {
            const float *b = right + c / 8 * 8 * sizes->depth + c % 8;
            float sum = starts[c];

            for (int32_t k = 0; k < sizes->depth; k++) {
                sum = rounded ? raot_madf(left[k], *b, sum) : raot_fmaf(left[k], *b, sum);
                b += 8;
            }
            to[c] = sum;
        }
#endif
        r += high;
        to += high * sizes->to_row;
        left += high * sizes->left_row;
    }
}

__attribute__((noinline, unused)) static void
raot_multiply_panels_f32(float *to, const float *left, const float *right, const float *starts,
                         const struct raot_multiply_panels *sizes)
{
    raot_multiply_panels(0, to, left, right, starts, sizes);
}

__attribute__((noinline, unused)) static void
raot_multiply_rounded_panels_f32(float *to, const float *left, const float *right,
                                 const float *starts, const struct raot_multiply_panels *sizes)
{
    raot_multiply_panels(1, to, left, right, starts, sizes);
}

#endif
