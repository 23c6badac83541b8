/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_vfp.h - multiply.h for Cortex-M with a single-precision FPU: 4 x 6 or 4 x 4 sums in
 * registers.
 *
 * One instruction loads several registers, whereas compilers load floats one by one. Four rows are
 * copied next to each other, so that one instruction loads a step of them, and flash is read once
 * for all columns. With --optimize size, they are read where they are, and remainders are computed
 * one sum at a time.
 */
#ifndef RAOT_MULTIPLY_VFP_H
#define RAOT_MULTIPLY_VFP_H

#include "assembly.h"
#include "multiply_one.h"

#if defined(__clang__) && defined(RAOT_SEPARATE)
/* Assembly with an addition for each product is longer than ISO C99 requires of strings. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Woverlength-strings"
#endif

#if defined(__OPTIMIZE_SIZE__)
#define RAOT_SMALL
#endif

#define RAOT_FOUR_FMA(s0, s1, s2, s3, a, b0, b1, b2, b3)                                    \
    "vfma.f32 " #s0 ", " #a ", " #b0 "\n vfma.f32 " #s1 ", " #a ", " #b1 "\n vfma.f32 " #s2 \
    ", " #a ", " #b2 "\n vfma.f32 " #s3 ", " #a ", " #b3 "\n"
/*
 * Two products of one factor and two others, added to two sums. With RAOT_SEPARATE by two
 * instructions each: VFMA takes three cycles on Cortex-M4, VMUL and VADD one each, and another one
 * if the next instruction needs the result.
 */
#if defined(RAOT_SEPARATE)
#define RAOT_TWO_PRODUCTS(s0, s1, a, b0, b1, t0, t1)                                        \
    "vmul.f32 " #t0 ", " #a ", " #b0 "\n vmul.f32 " #t1 ", " #a ", " #b1 "\n vadd.f32 " #s0 \
    ", " #s0 ", " #t0 "\n vadd.f32 " #s1 ", " #s1 ", " #t1 "\n"
#else
#define RAOT_TWO_PRODUCTS(s0, s1, a, b0, b1, t0, t1) \
    "vfma.f32 " #s0 ", " #a ", " #b0 "\n vfma.f32 " #s1 ", " #a ", " #b1 "\n"
#endif
#define RAOT_FOUR_PRODUCTS(s0, s1, s2, s3, a, b0, b1, b2, b3, t0, t1) \
    RAOT_TWO_PRODUCTS(s0, s1, a, b0, b1, t0, t1)                      \
    RAOT_TWO_PRODUCTS(s2, s3, a, b2, b3, t0, t1)
#define RAOT_BLOCK_PRODUCTS(a0, a1, a2, a3, b0, b1, b2, b3, t0, t1)  \
    RAOT_FOUR_PRODUCTS(s0, s1, s2, s3, a0, b0, b1, b2, b3, t0, t1)   \
    RAOT_FOUR_PRODUCTS(s4, s5, s6, s7, a1, b0, b1, b2, b3, t0, t1)   \
    RAOT_FOUR_PRODUCTS(s8, s9, s10, s11, a2, b0, b1, b2, b3, t0, t1) \
    RAOT_FOUR_PRODUCTS(s12, s13, s14, s15, a3, b0, b1, b2, b3, t0, t1)

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
    "vldmia r8, {s24-s27}\n add r8, r11\n subs r12, #1\n" \
    RAOT_BLOCK_PRODUCTS(s16, s18, s20, s22, s24, s25, s26, s27, s28, s29) \
    "vldmia r8, {s24-s27}\n add r8, r11\n" \
    RAOT_BLOCK_PRODUCTS(s17, s19, s21, s23, s24, s25, s26, s27, s28, s29) "bne 3b\n"
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
        RAOT_BLOCK_PRODUCTS(s16, s17, s18, s19, s24, s25, s26, s27, s28, s29) "bne 5b\n"
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
#define RAOT_ROW_FMA(S, R)                         \
    {                                              \
        const float factor = a[(R)*left_row];      \
        S##0 = RAOT_ADD_PRODUCT(factor, b0, S##0); \
        S##1 = RAOT_ADD_PRODUCT(factor, b1, S##1); \
        S##2 = RAOT_ADD_PRODUCT(factor, b2, S##2); \
        S##3 = RAOT_ADD_PRODUCT(factor, b3, S##3); \
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
                "subs %[count], #1\n" RAOT_FOUR_PRODUCTS(s0, s1, s2, s3, s16, s8, s9, s10, s11, s17,
                                                         s18)
                    RAOT_FOUR_PRODUCTS(s4, s5, s6, s7, s16, s12, s13, s14, s15, s17,
                                       s18) "bne 1b\n"
                                            "2: vstmia %[sums], {s0-s7}\n"
                : [a] "+&r"(a), [b] "+&r"(b), [count] "+&r"(count)
                : [sums] "r"(sums), [left] "r"(4 * levels[2].left), [right] "r"(4 * levels[2].right)
                : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",
                  "s13", "s14", "s15", "s16", "s17", "s18", "memory", "cc");
#else
            for (; count > 0; count--) {
                const float factor = *a;
                for (int32_t c = 0; c < 8; c++) {
                    sums[c] = RAOT_ADD_PRODUCT(factor, b[c], sums[c]);
                }
                a += levels[2].left;
                b += levels[2].right;
            }
#endif
        }
    }
}

#if defined(RAOT_ASM_INLINE) && !defined(RAOT_SMALL)
/* One row and 16 columns: four steps at once, where the left operand is contiguous. */
/* clang-format off */
#define RAOT_EIGHT_PRODUCTS(s0, s1, s2, s3, s4, s5, s6, s7, a) \
    RAOT_FOUR_PRODUCTS(s0, s1, s2, s3, a, s24, s25, s26, s27, s20, s21) \
    RAOT_FOUR_PRODUCTS(s4, s5, s6, s7, a, s28, s29, s30, s31, s20, s21)
#define RAOT_ROW_STEP(a) \
    "vldmia %[b]!, {s24-s31}\n" RAOT_EIGHT_PRODUCTS(s0, s1, s2, s3, s4, s5, s6, s7, a) \
    "vldmia %[b]!, {s24-s31}\n" RAOT_EIGHT_PRODUCTS(s8, s9, s10, s11, s12, s13, s14, s15, a) \
    "add %[b], %[skip]\n"
/* clang-format on */
__attribute__((noinline, unused)) static void raot_wide_row_f32(const struct raot_level *levels,
                                                                const float *left,
                                                                const float *right, float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            int32_t count = levels[2].count;
            int32_t groups = levels[2].left == 1 ? count / 4 : 0;

            count -= 4 * groups;
            /* clang-format off */
            __asm__ volatile(
                "vldmia %[sums], {s0-s15}\n cmp %[groups], #0\n beq 2f\n"
                "1: vldmia %[a]!, {s16-s19}\n"
                RAOT_ROW_STEP(s16) RAOT_ROW_STEP(s17) RAOT_ROW_STEP(s18)
                "subs %[groups], #1\n" RAOT_ROW_STEP(s19) "bne 1b\n"
                "2: cmp %[count], #0\n beq 4f\n"
                "3: vldr s16, [%[a]]\n add %[a], %[left]\n"
                "subs %[count], #1\n" RAOT_ROW_STEP(s16) "bne 3b\n"
                "4: vstmia %[sums], {s0-s15}\n"
                : [a] "+&r"(a), [b] "+&r"(b), [groups] "+&r"(groups), [count] "+&r"(count)
                : [sums] "r"(sums), [left] "r"(4 * levels[2].left),
                  [skip] "r"(4 * levels[2].right - 64)
                : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",
                  "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s24", "s25",
                  "s26", "s27", "s28", "s29", "s30", "s31", "memory", "cc");
            /* clang-format on */
        }
    }
}
#endif

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
                s0 = RAOT_ADD_PRODUCT(a[0], *b, s0);
                s1 = RAOT_ADD_PRODUCT(a[left_row], *b, s1);
                s2 = RAOT_ADD_PRODUCT(a[2 * left_row], *b, s2);
                s3 = RAOT_ADD_PRODUCT(a[3 * left_row], *b, s3);
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

/*
 * Four rows whose steps lie next to each other, by `sixes` blocks of six columns and `fives` of
 * five. `skip` is the number of bytes from the end of one step of six columns to the next step.
 */
#if defined(RAOT_ASM_THUMB)
/*
 *     s0 to s23    sums, row by row
 *     s24 to s27   the left operand
 *     s28 to s31   two columns of the right operand and two products, or four columns
 *     r0           left operand
 *     r1           steps
 *     r2           right operand
 *     r3           skip
 *     r4, r5       left and right operand, in the inner loop
 *     r6           remaining iterations of two steps
 *     r7           sums
 *     r8           remaining blocks
 *     r12          sums of the second to fourth row
 */
/* clang-format off */
#if defined(RAOT_SEPARATE)
#define RAOT_TWO_COLUMNS(a0, a1, b0, b1, c0, c1, d0, d1) \
    "vldmia r5!, {s28-s29}\n" \
    RAOT_TWO_PRODUCTS(a0, b0, s28, s24, s25, s30, s31) \
    RAOT_TWO_PRODUCTS(c0, d0, s28, s26, s27, s30, s31) \
    RAOT_TWO_PRODUCTS(a1, b1, s29, s24, s25, s30, s31) \
    RAOT_TWO_PRODUCTS(c1, d1, s29, s26, s27, s30, s31)
#define RAOT_SIX_COLUMNS \
    RAOT_TWO_COLUMNS(s0, s1, s6, s7, s12, s13, s18, s19) \
    RAOT_TWO_COLUMNS(s2, s3, s8, s9, s14, s15, s20, s21) \
    RAOT_TWO_COLUMNS(s4, s5, s10, s11, s16, s17, s22, s23)
#else
#define RAOT_SIX_COLUMNS \
    "vldmia r5!, {s28-s31}\n" \
    RAOT_FOUR_FMA(s0, s1, s2, s3, s24, s28, s29, s30, s31) \
    RAOT_FOUR_FMA(s6, s7, s8, s9, s25, s28, s29, s30, s31) \
    RAOT_FOUR_FMA(s12, s13, s14, s15, s26, s28, s29, s30, s31) \
    RAOT_FOUR_FMA(s18, s19, s20, s21, s27, s28, s29, s30, s31) \
    "vldmia r5!, {s28-s29}\n" \
    RAOT_TWO_PRODUCTS(s4, s5, s24, s28, s29, , ) RAOT_TWO_PRODUCTS(s10, s11, s25, s28, s29, , ) \
    RAOT_TWO_PRODUCTS(s16, s17, s26, s28, s29, , ) RAOT_TWO_PRODUCTS(s22, s23, s27, s28, s29, , )
#endif
#define RAOT_SIX_STEP "vldmia r4!, {s24-s27}\n" RAOT_SIX_COLUMNS "add r5, r3\n"
#define RAOT_FOUR_OF_FIVE(s0, s1, s2, s3, a) \
    RAOT_FOUR_PRODUCTS(s0, s1, s2, s3, a, s24, s25, s26, s27, s30, s31)
#define RAOT_FIVE_STEP \
    "vldmia r4!, {s20-s23}\n vldmia r5!, {s24-s28}\n" \
    RAOT_FOUR_OF_FIVE(s0, s1, s2, s3, s20) RAOT_FOUR_OF_FIVE(s5, s6, s7, s8, s21) \
    RAOT_FOUR_OF_FIVE(s10, s11, s12, s13, s22) \
    RAOT_FOUR_OF_FIVE(s15, s16, s17, s18, s23) \
    RAOT_TWO_PRODUCTS(s4, s9, s28, s20, s21, s30, s31) \
    RAOT_TWO_PRODUCTS(s14, s19, s28, s22, s23, s30, s31) "add r5, r3\n"
/* An odd number of steps begins in the middle of the loop. */
#define RAOT_LOOP_OF(STEP) \
    "mov r4, r0\n mov r5, r2\n add r6, r1, #1\n lsr r6, r6, #1\n tst r1, #1\n bne 3f\n" \
    "2:" STEP "3: subs r6, #1\n" STEP "bne 2b\n"
/* clang-format on */
RAOT_NAKED static void raot_blocks_f32(RAOT_ARGUMENT const float *left, RAOT_ARGUMENT int32_t steps,
                                       RAOT_ARGUMENT const float *right, RAOT_ARGUMENT int32_t skip,
                                       RAOT_ARGUMENT float *sums, RAOT_ARGUMENT int32_t sixes,
                                       RAOT_ARGUMENT int32_t fives)
{
    /* clang-format off */
    __asm__ volatile(
        "push {r4-r8, lr}\n vpush {d8-d15}\n ldrd r7, r8, [sp, #88]\n"
        "cmp r8, #0\n beq 5f\n"
        "1: vldmia r7, {s0-s5}\n add r12, r7, #128\n vldmia r12, {s6-s11}\n add r12, #128\n"
        "vldmia r12, {s12-s17}\n add r12, #128\n vldmia r12, {s18-s23}\n"
        RAOT_LOOP_OF(RAOT_SIX_STEP)
        "add r12, r7, #128\n vstmia r7!, {s0-s5}\n vstmia r12, {s6-s11}\n add r12, #128\n"
        "vstmia r12, {s12-s17}\n add r12, #128\n vstmia r12, {s18-s23}\n"
        "add r2, #24\n subs r8, #1\n bne 1b\n"
        "5: ldr r8, [sp, #96]\n cmp r8, #0\n beq 6f\n add r3, #4\n"
        "1: vldmia r7, {s0-s4}\n add r12, r7, #128\n vldmia r12, {s5-s9}\n add r12, #128\n"
        "vldmia r12, {s10-s14}\n add r12, #128\n vldmia r12, {s15-s19}\n"
        RAOT_LOOP_OF(RAOT_FIVE_STEP)
        "add r12, r7, #128\n vstmia r7!, {s0-s4}\n vstmia r12, {s5-s9}\n add r12, #128\n"
        "vstmia r12, {s10-s14}\n add r12, #128\n vstmia r12, {s15-s19}\n"
        "add r2, #20\n subs r8, #1\n bne 1b\n"
        "6: vpop {d8-d15}\n pop {r4-r8, pc}\n");
    /* clang-format on */
}
#else
__attribute__((noinline, unused)) static void raot_blocks_f32(const float *left, int32_t steps,
                                                              const float *right, int32_t skip,
                                                              float *sums, int32_t sixes,
                                                              int32_t fives)
{
    const int32_t columns = 6 * sixes + 5 * fives;
    const int32_t step = skip / (int32_t)sizeof(float) + 6;

    for (int32_t r = 0; r < 4; r++) {
        for (int32_t c = 0; c < columns; c++) {
            float sum = sums[r * RAOT_TILE_COLUMNS + c];
            for (int32_t k = 0; k < steps; k++) {
                sum = RAOT_ADD_PRODUCT(left[4 * k + r], right[k * step + c], sum);
            }
            sums[r * RAOT_TILE_COLUMNS + c] = sum;
        }
    }
}
#endif

/*
 * Steps of four rows on the stack: 2.25 KB where flash is slow, else 1 KB, and less where no
 * product has so many: a model's C file says in RAOT_MOST_STEPS how many the longest has.
 */
#if defined(RAOT_SEPARATE)
#define RAOT_COPIED_MOST 144
#else
#define RAOT_COPIED_MOST 64
#endif
#if defined(RAOT_MOST_STEPS) && RAOT_MOST_STEPS < RAOT_COPIED_MOST
#define RAOT_COPIED_STEPS RAOT_MOST_STEPS
#else
#define RAOT_COPIED_STEPS RAOT_COPIED_MOST
#endif
#define RAOT_COPIED_COLUMNS 8 /* so few are not worth a copy of the rows */
#define RAOT_COPIED_LEAST 12  /* steps */

/*
 * `count` steps of four rows, next to each other. Loads behind loads and stores behind stores take
 * one cycle each.
 */
__attribute__((noinline, unused)) static void
raot_copy_rows_f32(float *to, const float *left, int32_t left_row, int32_t left_step, int32_t count)
{
#if defined(RAOT_ASM_INLINE)
    if (left_step == 1 && count >= 4) {
        const float *b = left + left_row;
        const float *c = b + left_row;
        const float *d = c + left_row;
        int32_t groups = count / 4;
        __asm__ volatile(
            "1: vldr s0, [%[a]]\n vldr s1, [%[b]]\n vldr s2, [%[c]]\n vldr s3, [%[d]]\n"
            "vldr s4, [%[a], #4]\n vldr s5, [%[b], #4]\n"
            "vldr s6, [%[c], #4]\n vldr s7, [%[d], #4]\n"
            "vldr s8, [%[a], #8]\n vldr s9, [%[b], #8]\n"
            "vldr s10, [%[c], #8]\n vldr s11, [%[d], #8]\n"
            "vldr s12, [%[a], #12]\n vldr s13, [%[b], #12]\n"
            "vldr s14, [%[c], #12]\n vldr s15, [%[d], #12]\n"
            "add %[a], #16\n add %[b], #16\n add %[c], #16\n add %[d], #16\n"
            "subs %[groups], #1\n vstmia %[to]!, {s0-s15}\n bne 1b\n"
            : [to] "+&r"(to), [a] "+&r"(left), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d),
              [groups] "+&r"(groups)
            :
            : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",
              "s13", "s14", "s15", "memory", "cc");
        count %= 4;
    }
#endif
    for (; count > 0; count--) {
        to[0] = left[0];
        to[1] = left[left_row];
        to[2] = left[2 * left_row];
        to[3] = left[3 * left_row];
        to += 4;
        left += left_step;
    }
}

/*
 * Four rows, a part of the steps at a time. The parts are of about the same size, because sums are
 * loaded and stored for each.
 */
__attribute__((noinline, unused)) static void raot_copied_f32(const struct raot_level *levels,
                                                              const float *left, int32_t left_row,
                                                              const float *right, float *sums,
                                                              int32_t sixes, int32_t fives)
{
    const int32_t steps = levels[2].count;
    const int32_t parts = (steps + RAOT_COPIED_STEPS - 1) / RAOT_COPIED_STEPS;
    const int32_t size = parts > 0 ? (steps + parts - 1) / parts : 0;
    const int32_t left_step = levels[2].left;
    const int32_t right_step = levels[2].right;
    const int32_t skip = (right_step - 6) * (int32_t)sizeof(float);
    float copied[4 * RAOT_COPIED_STEPS];

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t rest = steps; rest > 0; rest -= size) {
                const int32_t count = rest < size ? rest : size;
                raot_copy_rows_f32(copied, a, left_row, left_step, count);
                a += count * left_step;
                raot_blocks_f32(copied, count, b, skip, sums, sixes, fives);
                b += count * right_step;
            }
        }
    }
}

/* The columns that blocks of six and of five take: all, or all but four or eight. */
static inline int32_t raot_columns_of_blocks(int32_t columns, int32_t *sixes, int32_t *fives)
{
    for (; columns >= 5; columns -= 4) {
        *fives = (60 - columns) % 6;
        if (5 * *fives <= columns) {
            *sixes = (columns - 5 * *fives) / 6;
            return columns;
        }
    }
    return 0;
}

__attribute__((noinline, unused)) static int32_t
raot_copied_tile_f32(int32_t columns, const struct raot_level *levels, const float *left,
                     int32_t left_row, const float *right, float *sums)
{
    int32_t sixes = 0;
    int32_t fives = 0;
    const int32_t done = raot_columns_of_blocks(columns, &sixes, &fives);

    if (done > 0) {
        raot_copied_f32(levels, left, left_row, right, sums, sixes, fives);
    }
    return done;
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
#if !defined(RAOT_SMALL) && RAOT_COPIED_STEPS >= RAOT_COPIED_LEAST
        if (high == 4 && columns > RAOT_COPIED_COLUMNS && levels[2].count >= RAOT_COPIED_LEAST) {
            c = raot_copied_tile_f32(columns, levels, left, left_row, right, sums);
        }
#endif
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
#if defined(RAOT_ASM_INLINE) && !defined(RAOT_SMALL)
            } else if (high == 1 && columns - c >= 16) {
                raot_wide_row_f32(levels, left, b, to);
                c += 16;
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

#if defined(__clang__) && defined(RAOT_SEPARATE)
#pragma clang diagnostic pop
#endif

#endif
