/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_pair_rows.h - products of three rows of pairs with weights of two channels in 16 bits.
 *
 *     raot_multiply_pair_rows_f32   out[row][n] = sum * scale[n] * rows[row] + start[n]
 *
 * Weights are those of raot_multiply_pair_row_f32 (multiply_pairs.h), whose results have the same
 * bits; here they are loaded and extracted once for three rows. The pair k of row r is
 * pairs[k][r]; pairs are signed bytes, aligned to four bytes.
 */
#ifndef RAOT_MULTIPLY_PAIR_ROWS_H
#define RAOT_MULTIPLY_PAIR_ROWS_H

#include <stdint.h>

#include "multiply_pairs.h"

#if defined(RAOT_PAIR_ROW_F32)
/*
 * `twos` times two channels, over `count` times two pairs.
 *
 *     r3, r7, r10       products with the first channel, of three rows
 *     r11, r12, lr      products with both channels
 *     r4 to r6          pairs
 *     r0, r8            weights of both channels, then of the first one
 *     r1, r2            the next weights and pairs
 *     s12 to s14        scales of the rows
 *
 *     [sp] to [sp, #12]       results, pairs, scales, starts
 *     [sp, #16], [sp, #20]    bytes from the end of the weights to those of the next two channels,
 *                             and of the two behind them
 *     [sp, #24], [sp, #28]    bytes of a row of results, end of the first one
 *     [sp, #32], [sp, #36]    end of the pairs, entry of the loop, behind the steps that are too
 *                             many
 *     [sp, #40]               saved registers
 *     [sp, #72] to [sp, #88]  arguments: starts, row, twos, count, channels
 */
/* clang-format off */
#define RAOT_PAIR_ROWS_OF(ADD, WEIGHTS) \
    "ldmia.w r2!, {r4, r5, r6}\n" \
    ADD("r11", WEIGHTS, "r4") ADD("r12", WEIGHTS, "r5") ADD("lr", WEIGHTS, "r6") \
    "sxtb16 " WEIGHTS ", " WEIGHTS "\n" \
    ADD("r3", WEIGHTS, "r4") ADD("r7", WEIGHTS, "r5") ADD("r10", WEIGHTS, "r6")
#define RAOT_PAIR_ROWS_STEP(ADD) \
    "ldrd r0, r8, [r1], #16\n" RAOT_PAIR_ROWS_OF(ADD, "r0") \
    RAOT_PAIR_ROWS_OF(RAOT_PAIR_ROW_ADDED, "r8")

RAOT_NAKED static void raot_pair_three_rows_f32(
    RAOT_ARGUMENT float *out, RAOT_ARGUMENT const int16_t *weights,
    RAOT_ARGUMENT const int16_t *pairs, RAOT_ARGUMENT const float *scales,
    RAOT_ARGUMENT const float *starts, RAOT_ARGUMENT const float *row,
    RAOT_ARGUMENT int32_t twos, RAOT_ARGUMENT int32_t count, RAOT_ARGUMENT int32_t channels)
{
    __asm volatile(
        "push {r4-r8, r10, r11, lr}\n sub sp, #40\n"
        "mov r4, r3\n ldrd r5, r3, [sp, #72]\n vldmia r3, {s12-s14}\n"
        "ldrd r10, r3, [sp, #80]\n add r10, r0, r10, lsl #3\n ldr r8, [sp, #88]\n lsls r8, r8, #2\n"
        "mvn r7, #7\n sub r6, r7, r3, lsl #4\n adds r6, #16\n stm sp, {r0, r2, r4-r8, r10}\n"
        "add r4, r3, r3, lsl #1\n add r4, r2, r4, lsl #3\n"
        "adr.w r5, 3f\n subs r3, #1\n beq 1f\n"
        "negs r3, r3\n and r3, r3, #7\n movs r6, #68\n adr.w r5, 2f\n mla r5, r3, r6, r5\n"
        "1: orr r5, r5, #1\n strd r4, r5, [sp, #32]\n"
        "1:\n" RAOT_PAIR_ROWS_STEP(RAOT_PAIR_ROW_BEGUN) "ldr pc, [sp, #36]\n"
        ".balign 4\n"
        "2:\n .rept 7\n" RAOT_PAIR_ROWS_STEP(RAOT_PAIR_ROW_ADDED) ".endr\n"
        RAOT_PAIR_ROWS_STEP(RAOT_PAIR_ROW_ADDED) "ldr r0, [sp, #32]\n cmp r2, r0\n bne.w 2b\n"
        "3: sub r11, r11, r3\n sub r12, r12, r7\n sub lr, lr, r10\n"
        "vmov s0, s1, r3, r11\n vmov s2, s3, r7, r12\n vmov s4, s5, r10, lr\n"
        "ldm sp, {r0, r2, r4-r8, r10}\n vldmia r4!, {s8-s9}\n vldmia r5!, {s10-s11}\n"
        "vcvt.f32.s32 s0, s0\n vcvt.f32.s32 s1, s1, #8\n vcvt.f32.s32 s2, s2\n"
        "vcvt.f32.s32 s3, s3, #8\n vcvt.f32.s32 s4, s4\n vcvt.f32.s32 s5, s5, #8\n"
        "vmul.f32 s0, s0, s8\n vmul.f32 s1, s1, s9\n vmul.f32 s2, s2, s8\n"
        "vmul.f32 s3, s3, s9\n vmul.f32 s4, s4, s8\n vmul.f32 s5, s5, s9\n"
        "vmul.f32 s0, s0, s12\n vmul.f32 s1, s1, s12\n vmul.f32 s2, s2, s13\n"
        "vmul.f32 s3, s3, s13\n vmul.f32 s4, s4, s14\n vmul.f32 s5, s5, s14\n"
        "vadd.f32 s0, s0, s10\n vadd.f32 s1, s1, s11\n vadd.f32 s2, s2, s10\n"
        "vadd.f32 s3, s3, s11\n vadd.f32 s4, s4, s10\n vadd.f32 s5, s5, s11\n"
        "add r3, r0, r8\n add r11, r3, r8\n"
        "vstmia r0!, {s0-s1}\n vstmia r3, {s2-s3}\n vstmia r11, {s4-s5}\n"
        "add r1, r6\n stm sp, {r0, r2, r4, r5}\n strd r7, r6, [sp, #16]\n cmp r0, r10\n bne.w 1b\n"
        "add sp, #40\n pop {r4-r8, r10, r11, pc}\n");
}
/* clang-format on */
#undef RAOT_PAIR_ROWS_STEP
#undef RAOT_PAIR_ROWS_OF
#endif

/* The sum of a channel, of one of three rows. */
static inline int32_t raot_pair_sum_of_three(const int16_t *weights, const int16_t *pairs,
                                             int32_t second, int32_t count)
{
    int32_t sum = 0;

    /*@ loop unroll 4096; */
    for (int32_t k = 0; k < 2 * count; k++) {
        const int32_t both = weights[k / 4 * 8 + k % 4];
        const int32_t first = raot_pair_first(both);

        sum += (second ? (both - first) / 256 : first) * pairs[k / 2 * 6 + k % 2];
    }
    return sum;
}

__attribute__((noinline, unused)) static void
raot_multiply_pair_rows_f32(float *out, const int16_t *weights, const int16_t *pairs,
                            const float *scales, const float *rows, const float *starts,
                            int32_t channels, int32_t count)
{
    int32_t n = 0;

#if defined(RAOT_PAIR_ROW_F32)
    if (channels >= 2 && count > 0 && count <= RAOT_PAIR_ROW_MOST) {
        n = channels / 2 * 2;
        raot_pair_three_rows_f32(out, weights, pairs, scales, starts, rows, n / 2, count / 2,
                                 channels);
    }
#endif
    /*@ loop unroll 4096; */
    for (; n < channels; n++) {
        const int16_t *const of_two = weights + n / 4 * 4 * count + n % 4 / 2 * 4;

        /*@ loop unroll 4096; */
        for (int32_t r = 0; r < 3; r++) {
            const int32_t sum = raot_pair_sum_of_three(of_two, pairs + 2 * r, n % 2, count);

            out[r * channels + n] = (float)sum * scales[n] * rows[r] + starts[n];
        }
    }
}

#endif
