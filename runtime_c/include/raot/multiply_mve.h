/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_mve.h - multiply.h for Cortex-M with Helium and --optimize size.
 *
 * A block of 3 x 8 or 1 x 8 sums is kept in vectors. Fewer than four remaining columns are computed
 * one sum at a time.
 */
#ifndef RAOT_MULTIPLY_MVE_H
#define RAOT_MULTIPLY_MVE_H

#include "multiply_one.h"
#include "mve.h"

#if defined(RAOT_ASM_THUMB)
/*
 * All iterations of a block of eight columns and one or three rows. `some` columns exist, at least
 * four. This is assembly because GCC generates no low-overhead loop at -Os.
 *
 *     q0 to q5   sums: q0 and q1 of the first row, q2 and q3 of the second, q4 and q5 of the third
 *     q6, q7     the right operand
 *     r0         levels
 *     r1, r3     left and right operand of the outer loop
 *     r6, r7     left and right operand of the middle loop
 *     r8, r10    left and right operand of the inner loop
 *     r12, r4    their steps in bytes
 *     r2         bytes from one row of the left operand to the next
 *     r5, lr     remaining iterations of the middle and the inner loop
 *     r11        a factor of the left operand
 *     [sp]       remaining iterations of the outer loop
 *     [sp, #4]   sums
 */
/* clang-format off */
#define RAOT_BLOCK_MVE(LOAD, FURTHER, STORE)                                                  \
    __asm volatile(                                                                           \
        "push {r4, r5, r6, r7, r8, r10, r11, lr}\n vpush {d8, d9, d10, d11, d12, d13, d14, d15}\n" \
        "ldrd r4, r5, [sp, #96]\n subs r4, #4\n vctp.32 r4\n"                                 \
        "vldrw.32 q0, [r5]\n vldrw.32 q1, [r5, #16]\n" LOAD                                   \
        "lsls r2, r2, #2\n ldr r4, [r0]\n push {r4, r5}\n cmp r4, #0\n ble 6f\n"               \
        "1:\n ldr r5, [r0, #12]\n mov r6, r1\n mov r7, r3\n cmp r5, #0\n ble 5f\n"            \
        "2:\n ldr r8, [r0, #24]\n ldrd r12, r4, [r0, #28]\n lsl r12, r12, #2\n lsls r4, r4, #2\n" \
        "mov r10, r7\n mov r11, r8\n mov r8, r6\n wls lr, r11, 4f\n"                          \
        "3:\n vldrw.32 q6, [r10]\n vpst\n vldrwt.32 q7, [r10, #16]\n"                         \
        "ldr r11, [r8]\n add r10, r4\n vfma.f32 q0, q6, r11\n vfma.f32 q1, q7, r11\n" FURTHER \
        "add r8, r12\n le lr, 3b\n"                                                           \
        "4:\n ldrd r8, r10, [r0, #16]\n add r6, r6, r8, lsl #2\n add r7, r7, r10, lsl #2\n"    \
        "subs r5, #1\n bne 2b\n"                                                              \
        "5:\n ldrd r8, r10, [r0, #4]\n add r1, r1, r8, lsl #2\n add r3, r3, r10, lsl #2\n"     \
        "ldr r4, [sp]\n subs r4, #1\n str r4, [sp]\n bne 1b\n"                                \
        "6:\n pop {r4, r5}\n vstrw.32 q0, [r5]\n vstrw.32 q1, [r5, #16]\n" STORE              \
        "vpop {d8, d9, d10, d11, d12, d13, d14, d15}\n pop {r4, r5, r6, r7, r8, r10, r11, pc}\n")

RAOT_NAKED static void raot_block_f32(
    RAOT_ARGUMENT const struct raot_level *levels, RAOT_ARGUMENT const float *left,
    RAOT_ARGUMENT int32_t left_row, RAOT_ARGUMENT const float *right, RAOT_ARGUMENT int32_t some,
    RAOT_ARGUMENT float *sums)
{
    RAOT_BLOCK_MVE(
        "vldrw.32 q2, [r5, #128]\n vldrw.32 q3, [r5, #144]\n"
        "vldrw.32 q4, [r5, #256]\n vldrw.32 q5, [r5, #272]\n",
        "ldr r11, [r8, r2]\n vfma.f32 q2, q6, r11\n vfma.f32 q3, q7, r11\n"
        "ldr r11, [r8, r2, lsl #1]\n vfma.f32 q4, q6, r11\n vfma.f32 q5, q7, r11\n",
        "vstrw.32 q2, [r5, #128]\n vstrw.32 q3, [r5, #144]\n"
        "vstrw.32 q4, [r5, #256]\n vstrw.32 q5, [r5, #272]\n");
}

RAOT_NAKED static void raot_line_f32(
    RAOT_ARGUMENT const struct raot_level *levels, RAOT_ARGUMENT const float *left,
    RAOT_ARGUMENT int32_t left_row, RAOT_ARGUMENT const float *right, RAOT_ARGUMENT int32_t some,
    RAOT_ARGUMENT float *sums)
{
    RAOT_BLOCK_MVE("", "", "");
}
/* clang-format on */
#undef RAOT_BLOCK_MVE

static inline void raot_row_f32(const struct raot_level *levels, const float *left,
                                const float *right, int32_t some, float *sums)
{
    raot_line_f32(levels, left, 0, right, some, sums);
}
#else
/* Three rows and eight columns. `some` columns exist, at least four. */
__attribute__((noinline, unused)) static void raot_block_f32(const struct raot_level *levels,
                                                             const float *left, int32_t left_row,
                                                             const float *right, int32_t some,
                                                             float *sums)
{
    const mve_pred16_t far_lanes = vctp32q((uint32_t)(some - 4));
    float *const next_sums = sums + RAOT_TILE_COLUMNS;
    float *const last_sums = next_sums + RAOT_TILE_COLUMNS;
    float32x4_t sum0 = vld1q_f32(sums);
    float32x4_t sum1 = vld1q_f32(sums + 4);
    float32x4_t sum2 = vld1q_f32(next_sums);
    float32x4_t sum3 = vld1q_f32(next_sums + 4);
    float32x4_t sum4 = vld1q_f32(last_sums);
    float32x4_t sum5 = vld1q_f32(last_sums + 4);

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t k = levels[2].count; k > 0; k--) {
                const float32x4_t y = vld1q_z_f32(b + 4, far_lanes);
                const float32x4_t x = vld1q_f32(b);
                const float *const next = a + left_row;
                float factor = *a;
                sum0 = vfmaq_n_f32(sum0, x, factor);
                sum1 = vfmaq_n_f32(sum1, y, factor);
                factor = *next;
                sum2 = vfmaq_n_f32(sum2, x, factor);
                sum3 = vfmaq_n_f32(sum3, y, factor);
                factor = next[left_row];
                sum4 = vfmaq_n_f32(sum4, x, factor);
                sum5 = vfmaq_n_f32(sum5, y, factor);
                a += levels[2].left;
                b += levels[2].right;
                RAOT_KEEP_ADDRESS(b);
            }
        }
    }
    vst1q_f32(sums, sum0);
    vst1q_f32(sums + 4, sum1);
    vst1q_f32(next_sums, sum2);
    vst1q_f32(next_sums + 4, sum3);
    vst1q_f32(last_sums, sum4);
    vst1q_f32(last_sums + 4, sum5);
}

/* One row and eight columns. `some` columns exist, at least four. */
__attribute__((noinline, unused)) static void raot_row_f32(const struct raot_level *levels,
                                                           const float *left, const float *right,
                                                           int32_t some, float *sums)
{
    const mve_pred16_t far_lanes = vctp32q((uint32_t)(some - 4));
    float32x4_t sum0 = vld1q_f32(sums);
    float32x4_t sum1 = vld1q_f32(sums + 4);

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t k = levels[2].count; k > 0; k--) {
                const float32x4_t y = vld1q_z_f32(b + 4, far_lanes);
                sum0 = vfmaq_n_f32(sum0, vld1q_f32(b), *a);
                sum1 = vfmaq_n_f32(sum1, y, *a);
                a += levels[2].left;
                b += levels[2].right;
                RAOT_KEEP_ADDRESS(b);
            }
        }
    }
    vst1q_f32(sums, sum0);
    vst1q_f32(sums + 4, sum1);
}
#endif

__attribute__((noinline, unused)) static void raot_tile_mve_f32(int32_t rows, int32_t columns,
                                                                const struct raot_level *levels,
                                                                const float *left, int32_t left_row,
                                                                const float *right, float *sums)
{
    while (rows > 0) {
        const int32_t high = rows >= 3 ? (int32_t)3 : 1;
        int32_t c = 0;
        while (c < columns) {
            const int32_t some = columns - c < 8 ? columns - c : 8;
            if (some < 4) {
                for (int32_t r = 0; r < high; r++) {
                    raot_one_f32(levels, left + r * left_row, right + c,
                                 sums + r * RAOT_TILE_COLUMNS + c);
                }
                c += 1;
                continue;
            }
            if (high == 3) {
                raot_block_f32(levels, left, left_row, right + c, some, sums + c);
            } else {
                raot_row_f32(levels, left, right + c, some, sums + c);
            }
            c += 8;
        }
        rows -= high;
        left += high * left_row;
        sums += high * RAOT_TILE_COLUMNS;
    }
}

#endif
