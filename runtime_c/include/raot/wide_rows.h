/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide_rows.h - rows of 16-bit integers by columns of bytes, both computed while a model runs.
 *
 *     sums[r][c] = sum over k < depth of left[r * left_row + k] * matrix[c * step + k]
 *
 * for rows of `sums` one behind the other. Sums wrap. Rows and columns may have any address.
 *
 * With the DSP extension, rows are copied in the order of SXTB16, which extracts elements 0 and 2
 * or 1 and 3 of four bytes. Assembly multiplies two rows by two columns, or one row by four. What
 * is behind the last four elements of a column is multiplied together with elements before it,
 * for which the copy has zeros.
 */
#ifndef RAOT_WIDE_ROWS_H
#define RAOT_WIDE_ROWS_H

#include <stdint.h>

#include "assembly.h"
#include "byte_rows.h"
#include "dsp.h"

#if defined(RAOT_DSP) && defined(RAOT_ASM_THUMB) && !defined(RAOT_MVE)
#define RAOT_WIDE_STEPS 64 /* of four elements, copied at a time */

/* The elements of four that SXTB16 extracts together. */
static inline void raot_wide_step(uint32_t *to, uint32_t low, uint32_t high)
{
    to[0] = (low & 0xffffu) | high << 16;
    to[1] = low >> 16 | (high & 0xffff0000u);
}

/* A row in steps of four elements from the step `from` on, `apart` words from one to the next. */
static inline void raot_wide_copy(uint32_t *to, const int16_t *row, int32_t from, int32_t depth,
                                  int32_t apart)
{
    const int32_t rest = depth % 4;

    to += from * apart;
    row += 4 * from;
    for (int32_t k = from; k < depth / 4; k++) {
        raot_wide_step(to, raot_dsp_load(row), raot_dsp_load(row + 2));
        to += apart;
        row += 4;
    }
    if (rest > 0) {
        int16_t last[4] = {0, 0, 0, 0};
        for (int32_t i = 0; i < rest; i++) {
            last[4 - rest + i] = row[i];
        }
        raot_wide_step(to, raot_dsp_load(last), raot_dsp_load(last + 2));
    }
}

/* Whole steps of two rows, one behind the other; there is at least one. */
RAOT_NAKED static void raot_wide_copy_two(RAOT_ARGUMENT uint32_t *to,
                                          RAOT_ARGUMENT const int16_t *row,
                                          RAOT_ARGUMENT const int16_t *other,
                                          RAOT_ARGUMENT int32_t steps)
{
    __asm volatile("push {r4-r8, r10, r11, lr}\n"
                   "1: ldr r4, [r1], #4\n ldr r5, [r1], #4\n ldr r6, [r2], #4\n ldr r7, [r2], #4\n"
                   "pkhbt r8, r4, r5, lsl #16\n pkhtb r10, r5, r4, asr #16\n"
                   "pkhbt r11, r6, r7, lsl #16\n pkhtb r12, r7, r6, asr #16\n"
                   "subs r3, #1\n stmia r0!, {r8, r10, r11, r12}\n bgt 1b\n"
                   "pop {r4-r8, r10, r11, pc}\n");
}

/* Zeros, eight at a time. Functions of libraries may write bytes. */
RAOT_NAKED static void raot_wide_zeros(RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT int32_t blocks)
{
    __asm volatile("push {r4, lr}\n movs r2, #0\n movs r3, #0\n movs r4, #0\n mov r12, #0\n"
                   "1: stmia r0!, {r2, r3, r4, r12}\n subs r1, #1\n"
                   "stmia r0!, {r2, r3, r4, r12}\n bgt 1b\n pop {r4, pc}\n");
}

/* clang-format off */
/*
 * Adds the products of some steps of two rows by groups of two columns, or of one row by four.
 *
 *     r4 to r7              sums
 *     r1, r2, r3            rows, columns
 *     r8, r10 to r12        a step of two rows; or the distance of columns, a step, four bytes
 *     r0, lr                four bytes and what is extracted from them
 *     [sp] to [sp, #12]     sums in memory, columns, rows, the end of whole blocks of four steps
 *     [sp, #48]             arguments: the end of steps, what a last step moves back, whether there
 *                           are such steps behind the blocks, bytes from one column to the next and
 *                           from one row of sums to the next, the end of sums
 */
#define RAOT_WIDE(NAME, SETUP, STEP, BEGIN, END, SHIFT) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const int8_t *columns, \
        RAOT_ARGUMENT const uint32_t *rows, RAOT_ARGUMENT const uint32_t *blocks_end, \
        RAOT_ARGUMENT const uint32_t *steps_end, RAOT_ARGUMENT int32_t back, \
        RAOT_ARGUMENT int32_t more, RAOT_ARGUMENT int32_t apart, \
        RAOT_ARGUMENT int32_t sums_row, RAOT_ARGUMENT const int32_t *sums_end) \
    { \
        __asm volatile( \
            "push {r0-r8, r10, r11, lr}\n" \
            "0: ldrd r0, r2, [sp]\n ldr r1, [sp, #8]\n ldrd r8, lr, [sp, #60]\n" SETUP BEGIN \
            "ldr r0, [sp, #12]\n cmp r1, r0\n beq 2f\n" \
            "1: " STEP STEP STEP STEP "ldr r0, [sp, #12]\n cmp r1, r0\n bne 1b\n" \
            "2: ldr r0, [sp, #56]\n cmp r0, #0\n beq 5f\n" \
            "ldr r0, [sp, #48]\n cmp r1, r0\n beq 4f\n" \
            "3: " STEP "ldr r0, [sp, #48]\n cmp r1, r0\n bne 3b\n" \
            "4: ldr r0, [sp, #52]\n cbz r0, 5f\n subs r2, r2, r0\n subs r3, r3, r0\n" STEP \
            "5: ldrd r0, r2, [sp]\n ldrd r8, lr, [sp, #60]\n" END \
            "add r2, r2, r8, lsl #" SHIFT "\n strd r0, r2, [sp]\n" \
            "ldr r3, [sp, #68]\n cmp r0, r3\n bne 0b\n" \
            "add sp, #16\n pop {r4-r8, r10, r11, pc}\n"); \
    }
#define RAOT_WIDE_COLUMN_OF_TWO(A, B, FROM) \
    "ldr lr, [" FROM "], #4\n sxtb16 r0, lr\n" \
    "smlad " A ", r8, r0, " A "\n smlad " B ", r11, r0, " B "\n sxtb16 lr, lr, ror #8\n" \
    "smlad " A ", r10, lr, " A "\n smlad " B ", r12, lr, " B "\n"
#define RAOT_WIDE_COLUMN_OF_ONE(A, FROM) \
    "ldr r12, " FROM "\n sxtb16 lr, r12\n smlad " A ", r10, lr, " A "\n" \
    "sxtb16 r12, r12, ror #8\n smlad " A ", r11, r12, " A "\n"
RAOT_WIDE(raot_wide_two_rows, "add r3, r2, r8\n",
          "ldmia r1!, {r8, r10, r11, r12}\n" RAOT_WIDE_COLUMN_OF_TWO("r4", "r5", "r2")
          RAOT_WIDE_COLUMN_OF_TWO("r6", "r7", "r3"),
          "add lr, r0\n ldrd r4, r6, [r0]\n ldrd r5, r7, [lr]\n",
          "add lr, r0\n strd r4, r6, [r0], #8\n strd r5, r7, [lr]\n", "1")
RAOT_WIDE(raot_wide_one_row, "add r3, r2, r8, lsl #1\n",
          "ldrd r10, r11, [r1], #8\n" RAOT_WIDE_COLUMN_OF_ONE("r5", "[r2, r8]")
          RAOT_WIDE_COLUMN_OF_ONE("r4", "[r2], #4") RAOT_WIDE_COLUMN_OF_ONE("r7", "[r3, r8]")
          RAOT_WIDE_COLUMN_OF_ONE("r6", "[r3], #4"),
          "ldmia r0, {r4-r7}\n", "stmia r0!, {r4-r7}\n", "2")
#undef RAOT_WIDE
#undef RAOT_WIDE_COLUMN_OF_TWO
#undef RAOT_WIDE_COLUMN_OF_ONE
/* clang-format on */

static inline void raot_wide_begin(int32_t *sums, int32_t count)
{
    const int32_t blocks = count / 8;

    if (blocks > 0) {
        raot_wide_zeros(sums, blocks);
    }
    for (int32_t i = 8 * blocks; i < count; i++) {
        sums[i] = 0;
    }
}

/* Adds some products to the sums of some columns of a row. */
static inline void raot_wide_plain(int32_t *sums, const int16_t *row, const int8_t *matrix,
                                   int32_t columns, int32_t depth, int32_t step)
{
    for (int32_t c = 0; c < columns; c++) {
        uint32_t sum = (uint32_t)sums[c];
        for (int32_t k = 0; k < depth; k++) {
            sum += (uint32_t)(row[k] * matrix[c * step + k]);
        }
        sums[c] = (int32_t)sum;
    }
}

/* One or two rows in some groups of columns. */
static inline void raot_wide_groups(int32_t *sums, const uint32_t *copied, const int8_t *matrix,
                                    int32_t rows, int32_t columns, int32_t depth, int32_t step,
                                    int32_t sums_row)
{
    const int32_t words = 2 * rows; /* of a step */
    const int32_t back = depth % 4 > 0 ? 4 - depth % 4 : 0;
    const int32_t more = depth % 16;
    const uint32_t *const end = copied + depth / 4 * words;
    const uint32_t *const blocks = copied + depth / 16 * 4 * words;

    if (rows == 2) {
        raot_wide_two_rows(sums, matrix, copied, blocks, end, back, more, step, sums_row,
                           sums + columns);
    } else {
        raot_wide_one_row(sums, matrix, copied, blocks, end, back, more, step, sums_row,
                          sums + columns);
    }
}

/* Adds the products of a part of the depth, for one or two rows. */
__attribute__((noinline, unused)) static void raot_wide_part(int32_t *sums, const int16_t *left,
                                                             const int8_t *matrix, int32_t rows,
                                                             int32_t columns, int32_t depth,
                                                             int32_t left_row, int32_t step)
{
    const int32_t width = rows == 2 ? (int32_t)2 : 4;
    int32_t done = 0;

    if (columns >= width && depth >= 4) {
        uint32_t copied[4 * RAOT_WIDE_STEPS];
        const int32_t together = rows == 2 ? depth / 4 : 0;
        if (together > 0) {
            raot_wide_copy_two(copied, left, left + left_row, together);
        }
        for (int32_t r = 0; r < rows; r++) {
            raot_wide_copy(copied + 2 * r, left + r * left_row, together, depth, 2 * rows);
        }
        done = columns / width * width;
        raot_wide_groups(sums, copied, matrix, rows, done, depth, step,
                         columns * (int32_t)sizeof(int32_t));
    }
    for (int32_t r = 0; r < rows; r++) {
        raot_wide_plain(sums + r * columns + done, left + r * left_row, matrix + done * step,
                        columns - done, depth, step);
    }
}
#endif

__attribute__((noinline, unused)) static void
raot_dot_wide_rows_s8(int32_t *sums, const int16_t *left, const int8_t *matrix, int32_t rows,
                      int32_t columns, int32_t depth, int32_t left_row, int32_t step)
{
#if defined(RAOT_WIDE_STEPS)
    for (int32_t r = 0; r < rows; r += 2) {
        const int32_t together = rows - r > 1 ? (int32_t)2 : 1;
        raot_wide_begin(sums + r * columns, together * columns);
        for (int32_t k = 0; k < depth; k += 4 * RAOT_WIDE_STEPS) {
            const int32_t rest = depth - k;
            const int32_t part = rest < 4 * RAOT_WIDE_STEPS ? rest : 4 * RAOT_WIDE_STEPS;
            raot_wide_part(sums + r * columns, left + r * left_row + k, matrix + k, together,
                           columns, part, left_row, step);
        }
    }
#else
    const int32_t start = 0;

    for (int32_t r = 0; r < rows; r++) {
        raot_dot_rows_s8(sums + r * columns, matrix, left + r * left_row, &start, columns, depth,
                         step);
    }
#endif
}

#endif
