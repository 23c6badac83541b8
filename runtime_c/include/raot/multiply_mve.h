/*
 * multiply_mve.h - multiply.h for Cortex-M with Helium where code is made small: 3 x 8 or 1 x 8
 * sums in vectors; fewer columns than four are summed up one by one.
 */
#ifndef RAOT_MULTIPLY_MVE_H
#define RAOT_MULTIPLY_MVE_H

#include "multiply_one.h"

/* Three rows and eight columns, of which `some` are there, four at least. */
__attribute__((noinline, unused)) static void raot_block_f32(const struct raot_level *levels,
                                                             const float *left, int32_t left_row,
                                                             const float *right, int32_t some,
                                                             float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            int32_t at = 0;
            /* Registers are few: factors begin as what is needed once. */
            uint32_t factor[3] = {(uint32_t)(some - 4), (uint32_t)levels[2].count, 0};

            __asm__ volatile(
                "vldrw.u32 q0, [%[sums]]\n vldrw.u32 q1, [%[sums], #16]\n"
                "vldrw.u32 q2, [%[sums], #128]\n vldrw.u32 q3, [%[sums], #144]\n"
                "vldrw.u32 q4, [%[sums], #256]\n vldrw.u32 q5, [%[sums], #272]\n"
                "vctp.32 %[f0]\n"
                "wls lr, %[f1], 2f\n"
                "1: vldrw.u32 q6, [%[b]]\n"
                "vpst\n"
                "vldrwt.u32 q7, [%[b], #16]\n"
                "ldr %[f0], [%[a0], %[at]]\n"
                "ldr %[f1], [%[a1], %[at]]\n"
                "ldr %[f2], [%[a2], %[at]]\n"
                "add %[at], %[step]\n"
                "vfma.f32 q0, q6, %[f0]\n"
                "vfma.f32 q1, q7, %[f0]\n"
                "add %[b], %[right]\n"
                "vfma.f32 q2, q6, %[f1]\n"
                "vfma.f32 q3, q7, %[f1]\n"
                "vfma.f32 q4, q6, %[f2]\n"
                "vfma.f32 q5, q7, %[f2]\n"
                "le lr, 1b\n"
                "2: vstrw.32 q0, [%[sums]]\n vstrw.32 q1, [%[sums], #16]\n"
                "vstrw.32 q2, [%[sums], #128]\n vstrw.32 q3, [%[sums], #144]\n"
                "vstrw.32 q4, [%[sums], #256]\n vstrw.32 q5, [%[sums], #272]\n"
                : [f0] "+&r"(factor[0]), [f1] "+&r"(factor[1]), [f2] "=&r"(factor[2]), [b] "+r"(b),
                  [at] "+r"(at)
                : [a0] "r"(a), [a1] "r"(a + left_row), [a2] "r"(a + 2 * left_row), [sums] "r"(sums),
                  [step] "r"(4 * levels[2].left), [right] "r"(4 * levels[2].right)
                : "lr", "p0", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "memory", "cc");
        }
    }
}

/* One row of as many. */
__attribute__((noinline, unused)) static void raot_row_f32(const struct raot_level *levels,
                                                           const float *left, const float *right,
                                                           int32_t some, float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            uint32_t factor = (uint32_t)(some - 4);

            __asm__ volatile("vldrw.u32 q0, [%[sums]]\n vldrw.u32 q1, [%[sums], #16]\n"
                             "vctp.32 %[factor]\n"
                             "wls lr, %[count], 2f\n"
                             "1: vldrw.u32 q2, [%[b]]\n"
                             "vpst\n"
                             "vldrwt.u32 q3, [%[b], #16]\n"
                             "ldr %[factor], [%[a]]\n"
                             "add %[a], %[step]\n"
                             "add %[b], %[right]\n"
                             "vfma.f32 q0, q2, %[factor]\n"
                             "vfma.f32 q1, q3, %[factor]\n"
                             "le lr, 1b\n"
                             "2: vstrw.32 q0, [%[sums]]\n vstrw.32 q1, [%[sums], #16]\n"
                             : [factor] "+&r"(factor), [a] "+r"(a), [b] "+r"(b)
                             : [count] "r"(levels[2].count), [step] "r"(4 * levels[2].left),
                               [right] "r"(4 * levels[2].right), [sums] "r"(sums)
                             : "lr", "p0", "q0", "q1", "q2", "q3", "memory", "cc");
        }
    }
}

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
