/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_groups_vfp.h - multiply_groups.h for Cortex-M with a single-precision FPU.
 */
#ifndef RAOT_MULTIPLY_GROUPS_VFP_H
#define RAOT_MULTIPLY_GROUPS_VFP_H

#include <stdint.h>

/*
 * `steps` products of four columns of weights and one row, or four: a word of weights has a column
 * in each byte. T0 to T3 extract them, and APART is the distance of the words.
 *
 *     s0 to s15     sums, row by row
 *     s16 to s19    the left operand, of four steps or of four rows
 *     s20 to s23    decoded weights
 */
/* clang-format off */
#define RAOT_CONVERT_VFP                              \
    "vcvt.f32.s32 s20, s20\n vcvt.f32.s32 s21, s21\n" \
    "vcvt.f32.s32 s22, s22\n vcvt.f32.s32 s23, s23\n"
#define RAOT_Q8_VFP                                                                            \
    "ldr %[word], [%[w]], #32\n"                                                               \
    "sxtb %[a], %[word]\n sxtb %[b], %[word], ror #8\n vmov s20, s21, %[a], %[b]\n"            \
    "sxtb %[a], %[word], ror #16\n asr %[b], %[word], #24\n vmov s22, s23, %[a], %[b]\n"       \
    RAOT_CONVERT_VFP
#define RAOT_Q4_VFP(AT0, AT1, AT2, AT3)                                                        \
    "ldr %[word], [%[w]], #16\n"                                                               \
    "sbfx %[a], %[word], #" AT0 ", #4\n sbfx %[b], %[word], #" AT1 ", #4\n"                    \
    "vmov s20, s21, %[a], %[b]\n"                                                              \
    "sbfx %[a], %[word], #" AT2 ", #4\n sbfx %[b], %[word], #" AT3 ", #4\n"                    \
    "vmov s22, s23, %[a], %[b]\n" RAOT_CONVERT_VFP
#define RAOT_CLOBBERED_VFP \
    "cc", "memory", "s0", "s1", "s2", "s3", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23"
#define RAOT_GROUP_VFP(NAME, DECODE)                                                        \
    __attribute__((noinline, unused)) static void raot_row_##NAME(                          \
        float *sums, const float *left, const void *weights, int32_t steps)                 \
    {                                                                                       \
        uint32_t word, a, b;                                                                \
        int32_t blocks = steps / 4;                                                         \
        int32_t rest = steps % 4;                                                           \
        __asm__ volatile(                                                                   \
            "mov %[a], #0\n vmov s0, s1, %[a], %[a]\n vmov s2, s3, %[a], %[a]\n"            \
            "cmp %[n], #0\n beq 2f\n"                                                       \
            "1: vldmia %[x]!, {s16-s19}\n"                                                  \
            DECODE RAOT_FOUR_FMA(s0, s1, s2, s3, s16, s20, s21, s22, s23)                   \
            DECODE RAOT_FOUR_FMA(s0, s1, s2, s3, s17, s20, s21, s22, s23)                   \
            DECODE RAOT_FOUR_FMA(s0, s1, s2, s3, s18, s20, s21, s22, s23) "subs %[n], #1\n" \
            DECODE RAOT_FOUR_FMA(s0, s1, s2, s3, s19, s20, s21, s22, s23) "bne 1b\n"        \
            "2: cmp %[m], #0\n beq 4f\n"                                                    \
            "3: vldmia %[x]!, {s16}\n subs %[m], #1\n"                                      \
            DECODE RAOT_FOUR_FMA(s0, s1, s2, s3, s16, s20, s21, s22, s23) "bne 3b\n"        \
            "4: vstmia %[to], {s0-s3}\n"                                                    \
            : [x] "+&r"(left), [w] "+&r"(weights), [n] "+&r"(blocks), [m] "+&r"(rest),          \
              [word] "=&r"(word), [a] "=&r"(a), [b] "=&r"(b)                                \
            : [to] "r"(sums)                                                                \
            : RAOT_CLOBBERED_VFP);                                                          \
    }                                                                                       \
    __attribute__((noinline, unused)) static void raot_rows_##NAME(                         \
        float *sums, const float *left, int32_t left_row, const void *weights, int32_t steps) \
    {                                                                                       \
        const float *second = left + left_row;                                              \
        const float *third = second + left_row;                                             \
        const float *fourth = third + left_row;                                             \
        uint32_t word, a, b;                                                                \
        __asm__ volatile(                                                                   \
            "mov %[a], #0\n vmov s0, s1, %[a], %[a]\n vmov s2, s3, %[a], %[a]\n"            \
            "vmov s4, s5, %[a], %[a]\n vmov s6, s7, %[a], %[a]\n"                           \
            "vmov s8, s9, %[a], %[a]\n vmov s10, s11, %[a], %[a]\n"                         \
            "vmov s12, s13, %[a], %[a]\n vmov s14, s15, %[a], %[a]\n"                       \
            "1: vldmia %[x0]!, {s16}\n vldmia %[x1]!, {s17}\n"                              \
            "vldmia %[x2]!, {s18}\n vldmia %[x3]!, {s19}\n"                                 \
            DECODE "subs %[n], #1\n"                                                        \
            RAOT_FOUR_FMA(s0, s1, s2, s3, s16, s20, s21, s22, s23)                          \
            RAOT_FOUR_FMA(s4, s5, s6, s7, s17, s20, s21, s22, s23)                          \
            RAOT_FOUR_FMA(s8, s9, s10, s11, s18, s20, s21, s22, s23)                        \
            RAOT_FOUR_FMA(s12, s13, s14, s15, s19, s20, s21, s22, s23) "bne 1b\n"           \
            "vstmia %[to], {s0-s15}\n"                                                      \
            : [x0] "+&r"(left), [x1] "+&r"(second), [x2] "+&r"(third), [x3] "+&r"(fourth),      \
              [w] "+&r"(weights), [n] "+&r"(steps), [word] "=&r"(word), [a] "=&r"(a),         \
              [b] "=&r"(b)                                                                  \
            : [to] "r"(sums)                                                                \
            : RAOT_CLOBBERED_VFP, "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",  \
              "s13", "s14", "s15");                                                         \
    }
RAOT_GROUP_VFP(q8, RAOT_Q8_VFP)
RAOT_GROUP_VFP(q4_low, RAOT_Q4_VFP("0", "8", "16", "24"))
RAOT_GROUP_VFP(q4_high, RAOT_Q4_VFP("4", "12", "20", "28"))
/* clang-format on */

/* Four columns from `c` on of one row or of four. */
__attribute__((always_inline)) static inline void
raot_group_vfp(const int32_t bits, const int32_t rows, float *sums, const float *left,
               int32_t left_row, const void *weights, int32_t c, int32_t steps)
{
    if (bits == 8) {
        const int8_t *const from = (const int8_t *)weights + c;
        if (rows == 4) {
            raot_rows_q8(sums, left, left_row, from, steps);
        } else {
            raot_row_q8(sums, left, from, steps);
        }
    } else if (c < RAOT_Q4_BYTES) {
        const uint8_t *const from = (const uint8_t *)weights + c;
        if (rows == 4) {
            raot_rows_q4_low(sums, left, left_row, from, steps);
        } else {
            raot_row_q4_low(sums, left, from, steps);
        }
    } else {
        const uint8_t *const from = (const uint8_t *)weights + (c - RAOT_Q4_BYTES);
        if (rows == 4) {
            raot_rows_q4_high(sums, left, left_row, from, steps);
        } else {
            raot_row_q4_high(sums, left, from, steps);
        }
    }
}

/* `bits` and `rows`, one or four, are constants in every call. */
__attribute__((always_inline)) static inline void
raot_groups_vfp(const int32_t bits, const int32_t rows, float *sums, const float *left,
                const void *weights, const float *scales, const struct raot_groups *sizes)
{
    const int32_t step = bits == 8 ? (int32_t)RAOT_TILE_COLUMNS : RAOT_Q4_BYTES;

    for (int32_t c = 0; c < sizes->columns; c += 4) {
        const float *scale = scales + c;
        const uint8_t *from = weights;
        float total[16] = {0};
        for (int32_t k = 0; k < sizes->depth; k += sizes->group) {
            const int32_t rest = sizes->depth - k;
            const int32_t steps = rest < sizes->group ? rest : sizes->group;
            float sum[16];
            raot_group_vfp(bits, rows, sum, left + k, sizes->left_row, from, c, steps);
            for (int32_t r = 0; r < rows; r++) {
                total[4 * r] = raot_fmaf(sum[4 * r], scale[0], total[4 * r]);
                total[4 * r + 1] = raot_fmaf(sum[4 * r + 1], scale[1], total[4 * r + 1]);
                total[4 * r + 2] = raot_fmaf(sum[4 * r + 2], scale[2], total[4 * r + 2]);
                total[4 * r + 3] = raot_fmaf(sum[4 * r + 3], scale[3], total[4 * r + 3]);
            }
            scale += RAOT_TILE_COLUMNS;
            from += steps * step;
        }
        for (int32_t r = 0; r < rows; r++) {
            for (int32_t n = 0; n < 4; n++) {
                sums[r * RAOT_TILE_COLUMNS + c + n] = total[4 * r + n];
            }
        }
    }
}

#endif
