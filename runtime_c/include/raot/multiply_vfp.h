/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_vfp.h - multiply.h for Cortex-M with a single-precision FPU: 4 x 4 sums in s0..s15.
 *
 * One instruction loads several registers, whereas compilers load floats one by one. With
 * --optimize size, remainders are computed one sum at a time.
 */
#ifndef RAOT_MULTIPLY_VFP_H
#define RAOT_MULTIPLY_VFP_H

#include "assembly.h"
#include "multiply_one.h"

#if defined(__OPTIMIZE_SIZE__)
#define RAOT_SMALL
#endif

#define RAOT_FOUR_FMA(s0, s1, s2, s3, a, b0, b1, b2, b3)                                    \
    "vfma.f32 " #s0 ", " #a ", " #b0 "\n vfma.f32 " #s1 ", " #a ", " #b1 "\n vfma.f32 " #s2 \
    ", " #a ", " #b2 "\n vfma.f32 " #s3 ", " #a ", " #b3 "\n"
#define RAOT_BLOCK_FMA(a0, a1, a2, a3, b0, b1, b2, b3)  \
    RAOT_FOUR_FMA(s0, s1, s2, s3, a0, b0, b1, b2, b3)   \
    RAOT_FOUR_FMA(s4, s5, s6, s7, a1, b0, b1, b2, b3)   \
    RAOT_FOUR_FMA(s8, s9, s10, s11, a2, b0, b1, b2, b3) \
    RAOT_FOUR_FMA(s12, s13, s14, s15, a3, b0, b1, b2, b3)

/* Four rows and four columns. */
#if defined(RAOT_ASM_THUMB)
/*
 *     s0 to s15    sums, row by row
 *     r0           levels
 *     r1, r3       left and right operand of the middle loop
 *     r2           bytes from one row of the left operand to the next
 *     r4 to r7     the four rows of the left operand, in the inner loop
 *     r8           the right operand, in the inner loop
 *     r10, r11     their steps in bytes
 *     r12, lr      remaining iterations of the inner loop: pairs of iterations, single ones
 *     [sp]         remaining iterations of the outer loop
 *     [sp, #4]     remaining iterations of the middle loop
 *     [sp, #8]     left and right operand of the outer loop
 *     [sp, #16]    saved registers
 *     [sp, #112]   argument: sums
 */
/* clang-format off */
#if defined(RAOT_SMALL)
#define RAOT_BLOCK_PAIRS ""
#else
/* Two iterations of the inner loop at once, where the left operand is contiguous. */
#define RAOT_BLOCK_PAIRS \
    "cmp r10, #4\n bne 4f\n lsrs r12, lr, #1\n beq 4f\n and lr, lr, #1\n" \
    "3: vldmia r4!, {s16-s17}\n vldmia r5!, {s18-s19}\n" \
    "vldmia r6!, {s20-s21}\n vldmia r7!, {s22-s23}\n" \
    "vldmia r8, {s24-s27}\n add r8, r11\n vldmia r8, {s28-s31}\n add r8, r11\n" \
    "subs r12, #1\n" RAOT_BLOCK_FMA(s16, s18, s20, s22, s24, s25, s26, s27) \
    RAOT_BLOCK_FMA(s17, s19, s21, s23, s28, s29, s30, s31) "bne 3b\n"
#endif
/* clang-format on */
RAOT_NAKED static void raot_block_f32(RAOT_ARGUMENT const struct raot_level *levels,
                                      RAOT_ARGUMENT const float *left,
                                      RAOT_ARGUMENT int32_t left_row,
                                      RAOT_ARGUMENT const float *right, RAOT_ARGUMENT float *sums)
{
    /* clang-format off */
    __asm__ volatile(
        "push {r4-r8, r10, r11, lr}\n vpush {d8-d15}\n sub sp, #16\n"
        "ldr r12, [sp, #112]\n vldmia r12, {s0-s3}\n add r12, #128\n vldmia r12, {s4-s7}\n"
        "add r12, #128\n vldmia r12, {s8-s11}\n add r12, #128\n vldmia r12, {s12-s15}\n"
        "lsls r2, r2, #2\n ldrd r10, r11, [r0, #28]\n lsl r10, r10, #2\n lsl r11, r11, #2\n"
        "ldr r12, [r0]\n cmp r12, #0\n ble 7f\n ldr lr, [r0, #12]\n cmp lr, #0\n ble 7f\n"
        "str r12, [sp]\n strd r1, r3, [sp, #8]\n"
        "1: ldr r12, [r0, #12]\n str r12, [sp, #4]\n"
        "2: mov r4, r1\n add r5, r4, r2\n add r6, r5, r2\n add r7, r6, r2\n mov r8, r3\n"
        "ldr lr, [r0, #24]\n"
        RAOT_BLOCK_PAIRS
        "4: cmp lr, #0\n ble 6f\n"
        "5: vldr s16, [r4]\n add r4, r10\n vldr s17, [r5]\n add r5, r10\n"
        "vldr s18, [r6]\n add r6, r10\n vldr s19, [r7]\n add r7, r10\n"
        "vldmia r8, {s24-s27}\n add r8, r11\n subs lr, #1\n"
        RAOT_BLOCK_FMA(s16, s17, s18, s19, s24, s25, s26, s27) "bne 5b\n"
        "6: ldrd r4, r5, [r0, #16]\n add r1, r1, r4, lsl #2\n add r3, r3, r5, lsl #2\n"
        "ldr r12, [sp, #4]\n subs r12, #1\n str r12, [sp, #4]\n bne 2b\n"
        "ldrd r1, r3, [sp, #8]\n ldrd r4, r5, [r0, #4]\n add r1, r1, r4, lsl #2\n"
        "add r3, r3, r5, lsl #2\n strd r1, r3, [sp, #8]\n"
        "ldr r12, [sp]\n subs r12, #1\n str r12, [sp]\n bne 1b\n"
        "7: ldr r12, [sp, #112]\n vstmia r12, {s0-s3}\n add r12, #128\n vstmia r12, {s4-s7}\n"
        "add r12, #128\n vstmia r12, {s8-s11}\n add r12, #128\n vstmia r12, {s12-s15}\n"
        "add sp, #16\n vpop {d8-d15}\n pop {r4-r8, r10, r11, pc}\n");
    /* clang-format on */
}
#else
#define RAOT_ROW_FMA(S, R)                    \
    {                                         \
        const float factor = a[(R)*left_row]; \
        S##0 = raot_fmaf(factor, b0, S##0);   \
        S##1 = raot_fmaf(factor, b1, S##1);   \
        S##2 = raot_fmaf(factor, b2, S##2);   \
        S##3 = raot_fmaf(factor, b3, S##3);   \
    }
#define RAOT_ROW_LOAD(S, R)                       \
    float S##0 = sums[(R)*RAOT_TILE_COLUMNS];     \
    float S##1 = sums[(R)*RAOT_TILE_COLUMNS + 1]; \
    float S##2 = sums[(R)*RAOT_TILE_COLUMNS + 2]; \
    float S##3 = sums[(R)*RAOT_TILE_COLUMNS + 3];
#define RAOT_ROW_STORE(S, R)                \
    sums[(R)*RAOT_TILE_COLUMNS] = S##0;     \
    sums[(R)*RAOT_TILE_COLUMNS + 1] = S##1; \
    sums[(R)*RAOT_TILE_COLUMNS + 2] = S##2; \
    sums[(R)*RAOT_TILE_COLUMNS + 3] = S##3;

__attribute__((noinline, unused)) static void raot_block_f32(const struct raot_level *levels,
                                                             const float *left, int32_t left_row,
                                                             const float *right, float *sums)
{
    RAOT_ROW_LOAD(k, 0)
    RAOT_ROW_LOAD(l, 1)
    RAOT_ROW_LOAD(m, 2)
    RAOT_ROW_LOAD(n, 3)

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t left_over = levels[2].count; left_over > 0; left_over--) {
                const float b0 = b[0];
                const float b1 = b[1];
                const float b2 = b[2];
                const float b3 = b[3];
                RAOT_ROW_FMA(k, 0)
                RAOT_ROW_FMA(l, 1)
                RAOT_ROW_FMA(m, 2)
                RAOT_ROW_FMA(n, 3)
                a += levels[2].left;
                b += levels[2].right;
            }
        }
    }
    RAOT_ROW_STORE(k, 0)
    RAOT_ROW_STORE(l, 1)
    RAOT_ROW_STORE(m, 2)
    RAOT_ROW_STORE(n, 3)
}
#undef RAOT_ROW_FMA
#undef RAOT_ROW_LOAD
#undef RAOT_ROW_STORE
#endif

/* One row and eight columns. */
__attribute__((noinline, unused)) static void
raot_row_f32(const struct raot_level *levels, const float *left, const float *right, float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            int32_t count = levels[2].count;

#if defined(RAOT_ASM_INLINE)
            __asm__ volatile(
                "vldmia %[sums], {s0-s7}\n"
                "cmp %[count], #0\n"
                "beq 2f\n"
                "1: vldr s16, [%[a]]\n"
                "add %[a], %[left]\n"
                "vldmia %[b], {s8-s15}\n"
                "add %[b], %[right]\n"
                "subs %[count], #1\n" RAOT_FOUR_FMA(s0, s1, s2, s3, s16, s8, s9, s10, s11)
                    RAOT_FOUR_FMA(s4, s5, s6, s7, s16, s12, s13, s14, s15) "bne 1b\n"
                                                                           "2: vstmia %[sums], "
                                                                           "{s0-s7}\n"
                : [a] "+r"(a), [b] "+r"(b), [count] "+r"(count)
                : [sums] "r"(sums), [left] "r"(4 * levels[2].left), [right] "r"(4 * levels[2].right)
                : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",
                  "s13", "s14", "s15", "s16", "memory", "cc");
#else
            for (; count > 0; count--) {
                const float factor = *a;
                for (int32_t c = 0; c < 8; c++) {
                    sums[c] = raot_fmaf(factor, b[c], sums[c]);
                }
                a += levels[2].left;
                b += levels[2].right;
            }
#endif
        }
    }
}

#if !defined(RAOT_SMALL)
/* Four rows and one column. */
__attribute__((noinline, unused)) static void raot_column_f32(const struct raot_level *levels,
                                                              const float *left, int32_t left_row,
                                                              const float *right, float *sums)
{
    float s0 = sums[0];
    float s1 = sums[RAOT_TILE_COLUMNS];
    float s2 = sums[2 * RAOT_TILE_COLUMNS];
    float s3 = sums[3 * RAOT_TILE_COLUMNS];

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t k = levels[2].count; k > 0; k--) {
                s0 = raot_fmaf(a[0], *b, s0);
                s1 = raot_fmaf(a[left_row], *b, s1);
                s2 = raot_fmaf(a[2 * left_row], *b, s2);
                s3 = raot_fmaf(a[3 * left_row], *b, s3);
                a += levels[2].left;
                b += levels[2].right;
            }
        }
    }
    sums[0] = s0;
    sums[RAOT_TILE_COLUMNS] = s1;
    sums[2 * RAOT_TILE_COLUMNS] = s2;
    sums[3 * RAOT_TILE_COLUMNS] = s3;
}

/*
 * Four rows and the last two or three columns: a block that ends at the last column. Its
 * additions to finished columns are undone.
 */
__attribute__((noinline, unused)) static void raot_ending_f32(int32_t columns,
                                                              const struct raot_level *levels,
                                                              const float *left, int32_t left_row,
                                                              const float *right, float *sums)
{
    const int32_t back = 4 - columns;
    float done[8];

    for (int32_t i = 0; i < 8; i++) {
        done[i] = sums[i / 2 * RAOT_TILE_COLUMNS + i % 2 - 2];
    }
    raot_block_f32(levels, left, left_row, right - back, sums - back);
    for (int32_t i = 0; i < 8; i++) {
        sums[i / 2 * RAOT_TILE_COLUMNS + i % 2 - 2] = done[i];
    }
}
#endif

__attribute__((noinline, unused)) static void raot_tile_vfp_f32(int32_t rows, int32_t columns,
                                                                const struct raot_level *levels,
                                                                const float *left, int32_t left_row,
                                                                const float *right, float *sums)
{
    while (rows > 0) {
        const int32_t high = rows >= 4 ? (int32_t)4 : 1;
        int32_t c = 0;
        while (c < columns) {
            const float *const b = right + c;
            float *const to = sums + c;
            if (high == 4 && columns - c >= 4) {
                raot_block_f32(levels, left, left_row, b, to);
                c += 4;
#if !defined(RAOT_SMALL)
            } else if (high == 4 && c > 0 && columns - c > 1) {
                raot_ending_f32(columns - c, levels, left, left_row, b, to);
                c = columns;
            } else if (high == 4) {
                raot_column_f32(levels, left, left_row, b, to);
                c += 1;
#endif
            } else if (high == 1 && columns - c >= 8) {
                raot_row_f32(levels, left, b, to);
                c += 8;
            } else {
                for (int32_t r = 0; r < high; r++) {
                    raot_one_f32(levels, left + r * left_row, b, to + r * RAOT_TILE_COLUMNS);
                }
                c += 1;
            }
        }
        rows -= high;
        left += high * left_row;
        sums += high * RAOT_TILE_COLUMNS;
    }
}

#endif
