/*
 * multiply_vfp.h - multiply.h for Cortex-M with a single-precision FPU: 4 x 4 sums in s0..s15.
 *
 * A load of several registers is one instruction; compilers load floats one by one. Where code is
 * made small, what is left over is summed up one by one.
 */
#ifndef RAOT_MULTIPLY_VFP_H
#define RAOT_MULTIPLY_VFP_H

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
__attribute__((noinline, unused)) static void raot_block_f32(const struct raot_level *levels,
                                                             const float *left, int32_t left_row,
                                                             const float *right, float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a0 = left + i * levels[0].left + j * levels[1].left;
            const float *a1 = a0 + left_row;
            const float *a2 = a1 + left_row;
            const float *a3 = a2 + left_row;
            const float *b = right + i * levels[0].right + j * levels[1].right;
#if defined(RAOT_SMALL)
            int32_t ones = levels[2].count;
#else
            int32_t twos = levels[2].left == 1 ? levels[2].count / 2 : 0;
            int32_t ones = levels[2].count - 2 * twos;
#endif
            float *row = sums;

            __asm__ volatile(
                "vldmia %[row], {s0-s3}\n add %[row], #128\n"
                "vldmia %[row], {s4-s7}\n add %[row], #128\n"
                "vldmia %[row], {s8-s11}\n add %[row], #128\n"
                "vldmia %[row], {s12-s15}\n"
#if !defined(RAOT_SMALL)
                "cmp %[twos], #0\n"
                "beq 2f\n"
                "1: vldmia %[a0]!, {s16-s17}\n vldmia %[a1]!, {s18-s19}\n"
                "vldmia %[a2]!, {s20-s21}\n vldmia %[a3]!, {s22-s23}\n"
                "vldmia %[b], {s24-s27}\n add %[b], %[right]\n"
                "vldmia %[b], {s28-s31}\n add %[b], %[right]\n"
                "subs %[twos], #1\n" RAOT_BLOCK_FMA(s16, s18, s20, s22, s24, s25, s26, s27)
                    RAOT_BLOCK_FMA(s17, s19, s21, s23, s28, s29, s30,
                                   s31) "bne 1b\n"
#endif
                                        "2: cmp %[ones], #0\n"
                                        "beq 4f\n"
                                        "3: vldr s16, [%[a0]]\n add %[a0], %[left]\n"
                                        "vldr s17, [%[a1]]\n add %[a1], %[left]\n"
                                        "vldr s18, [%[a2]]\n add %[a2], %[left]\n"
                                        "vldr s19, [%[a3]]\n add %[a3], %[left]\n"
                                        "vldmia %[b], {s24-s27}\n add %[b], %[right]\n"
                                        "subs %[ones], #1\n" RAOT_BLOCK_FMA(
                                            s16, s17, s18, s19, s24, s25, s26,
                                            s27) "bne 3b\n"
                                                 "4: vstmia %[row], {s12-s15}\n sub %[row], #128\n"
                                                 "vstmia %[row], {s8-s11}\n sub %[row], #128\n"
                                                 "vstmia %[row], {s4-s7}\n sub %[row], #128\n"
                                                 "vstmia %[row], {s0-s3}\n"
                : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b] "+r"(b),
#if !defined(RAOT_SMALL)
                  [twos] "+r"(twos),
#endif
                  [ones] "+r"(ones), [row] "+r"(row)
                : [left] "r"(4 * levels[2].left), [right] "r"(4 * levels[2].right)
                : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",
                  "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23",
                  "s24", "s25", "s26", "s27", "s28", "s29", "s30", "s31", "memory", "cc");
        }
    }
}

/* One row and eight columns. */
__attribute__((noinline, unused)) static void
raot_row_f32(const struct raot_level *levels, const float *left, const float *right, float *sums)
{
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            int32_t count = levels[2].count;

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
 * Four rows and the last two or three columns after others: a block that ends where they end. What
 * it adds to columns that are done is taken back.
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
