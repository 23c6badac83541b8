/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_s16.h - integer contractions by dual 16-bit multiply-add instructions (SMLAD).
 *
 * Two output positions are computed together. `columns` contains their windows as 16-bit
 * integers: element k of position p is columns[4 * (k / 2) + 2 * p + k % 2], so that two products
 * are one SMLAD and the elements of four products of both positions are one LDM. Weights of two
 * channels are interleaved, four k at a time: weights[n / 2][k / 4][n % 2][k % 4]; in 8-bit
 * weights the middle two of four are exchanged, because SXTB16 extracts bytes 0 and 2, then 1 and
 * 3. Sums wrap. `columns` and `weights` are aligned to four bytes.
 */
#ifndef RAOT_MULTIPLY_S16_H
#define RAOT_MULTIPLY_S16_H

#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "dsp.h"

/* Two adjacent 16-bit integers. */
static inline void raot_store_pair(int16_t *to, int32_t low, int32_t high)
{
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
    uint32_t both;
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"(low), "r"(high));
#else
    const uint32_t both = ((uint32_t)low & 0xffffu) | (uint32_t)high << 16;
#endif
    RAOT_COPY(to, &both, sizeof both);
}

/*
 * Packs a window into one of two columns (im2col). Loop l has `count` elements, `step` apart, of
 * which first..last are inside the image; `image` is the first one inside. Elements outside are
 * `zero`. Adjacent elements of loop 2 share a word: element (i, j, k, t) is stored at 4 * (((i *
 * count1 + j) * half + k / 2) * count3 + t) + k % 2, where half is count2 / 2, rounded up.
 */
/* clang-format off */
#define RAOT_COLUMN(N, T) \
    __attribute__((noinline, unused)) static void raot_column_##N##_unpacked( \
        int16_t *column, const T *image, int32_t zero, \
        int32_t count0, int32_t first0, int32_t last0, int32_t step0, \
        int32_t count1, int32_t first1, int32_t last1, int32_t step1, \
        int32_t count2, int32_t first2, int32_t last2, int32_t step2, \
        int32_t count3, int32_t first3, int32_t last3, int32_t step3) \
    { \
        const int32_t half = (count2 + 1) / 2; \
        const int32_t all = count0 * count1 * half * count3; \
        if (last0 - first0 < count0 || last1 - first1 < count1 || last2 - first2 < count2 || \
            last3 - first3 < count3) { \
            /*@ loop unroll 4096; */ \
            for (int32_t i = 0; i < all; i++) { \
                raot_store_pair(column + 4 * i, zero, zero); \
            } \
        } \
        /*@ loop unroll 4096; */ \
        for (int32_t i = first0; i < last0; i++) { \
            /*@ loop unroll 4096; */ \
            for (int32_t j = first1; j < last1; j++) { \
                /*@ loop unroll 4096; */ \
                for (int32_t t = first3; t < last3; t++) { \
                    const T *from = image + (i - first0) * step0 + (j - first1) * step1 + \
                                    (t - first3) * step3; \
                    int16_t *to = column + 4 * ((i * count1 + j) * half * count3 + t); \
                    int32_t k = first2; \
                    to += 4 * (k / 2) * count3; \
                    if ((k & 1) != 0 && k < last2) { \
                        to[1] = from[0]; \
                        from += step2; \
                        to += 4 * count3; \
                        k++; \
                    } \
                    /*@ loop unroll 4096; */ \
                    for (; k + 1 < last2; k += 2) { \
                        raot_store_pair(to, from[0], from[step2]); \
                        from += 2 * step2; \
                        to += 4 * count3; \
                    } \
                    if (k < last2) { \
                        to[0] = from[0]; \
                    } \
                } \
            } \
        } \
    }
/* clang-format on */
RAOT_COLUMN(s8, int8_t)
RAOT_COLUMN(u8, uint8_t)
#undef RAOT_COLUMN

#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP) && \
    defined(__ARM_FEATURE_UNALIGNED)
/*
 * Three adjacent taps for each of two adjacent positions, for 2 * `pairs` elements `step` apart:
 * four bytes of each contain all taps. EXTEND is SXTB16 or UXTB16.
 */
#define RAOT_COLUMNS_OF_THREE(N, T, EXTEND)                                                        \
    static inline int16_t *raot_three_##N(int16_t *to, const T *from, int32_t pairs, int32_t step) \
    {                                                                                              \
        __asm volatile(                                                                            \
            "1:\n"                                                                                 \
            "ldr r4, [%[a]]\n ldr r6, [%[a], %[s]]\n add %[a], %[a], %[s], lsl #1\n" EXTEND        \
            " r5, r4, ror #8\n " EXTEND " r4, r4\n" EXTEND " r8, r6, ror #8\n " EXTEND " r6, r6\n" \
            "pkhbt r10, r4, r6, lsl #16\n pkhtb r6, r6, r4, asr #16\n"                             \
            "pkhbt r4, r5, r8, lsl #16\n pkhtb r8, r8, r5, asr #16\n"                              \
            "strd r10, r4, [%[to]], #8\n strd r4, r6, [%[to]], #8\n"                               \
            "strd r6, r8, [%[to]], #8\n"                                                           \
            "subs %[n], #1\n bne 1b\n"                                                             \
            : [to] "+&r"(to), [a] "+&r"(from), [n] "+&r"(pairs)                                    \
            : [s] "r"(step)                                                                        \
            : "r4", "r5", "r6", "r8", "r10", "cc", "memory");                                      \
        return to;                                                                                 \
    }
#elif defined(RAOT_DSP)
#define RAOT_COLUMNS_OF_THREE(N, T, EXTEND)                                                        \
    static inline int16_t *raot_three_##N(int16_t *to, const T *from, int32_t pairs, int32_t step) \
    {                                                                                              \
        for (int32_t k = 0; k < pairs; k++) {                                                      \
            const uint32_t a = raot_dsp_load(from);                                                \
            const uint32_t b = raot_dsp_load(from + step);                                         \
            const uint32_t even_a = (uint32_t)raot_dsp_even_##N(a);                                \
            const uint32_t even_b = (uint32_t)raot_dsp_even_##N(b);                                \
            const uint32_t odd_a = (uint32_t)raot_dsp_odd_##N(a);                                  \
            const uint32_t odd_b = (uint32_t)raot_dsp_odd_##N(b);                                  \
            const uint32_t second = (odd_a & 0xffffu) | odd_b << 16;                               \
            const uint32_t third = even_a >> 16 | (even_b & 0xffff0000u);                          \
            const uint32_t words[6] = {                                                            \
                (even_a & 0xffffu) | even_b << 16,  second, second, third, third,                  \
                odd_a >> 16 | (odd_b & 0xffff0000u)};                                              \
            RAOT_COPY(to, words, sizeof words);                                                    \
            to += 12;                                                                              \
            from += 2 * step;                                                                      \
        }                                                                                          \
        return to;                                                                                 \
    }
#else
#define RAOT_COLUMNS_OF_THREE(N, T, EXTEND)                                                        \
    static inline int16_t *raot_three_##N(int16_t *to, const T *from, int32_t pairs, int32_t step) \
    {                                                                                              \
        /*@ loop unroll 4096; */                                                                   \
        for (int32_t k = 0; k < pairs; k++) {                                                      \
            /*@ loop unroll 4096; */                                                               \
            for (int32_t t = 0; t < 3; t++) {                                                      \
                raot_store_pair(to, from[t], from[t + step]);                                      \
                raot_store_pair(to + 2, from[t + 1], from[t + 1 + step]);                          \
                to += 4;                                                                           \
            }                                                                                      \
            from += 2 * step;                                                                      \
        }                                                                                          \
        return to;                                                                                 \
    }
#endif
RAOT_COLUMNS_OF_THREE(s8, int8_t, "sxtb16")
RAOT_COLUMNS_OF_THREE(u8, uint8_t, "uxtb16")
#undef RAOT_COLUMNS_OF_THREE

/* Packs both columns at once, for windows completely inside the image. */
/* clang-format off */
#define RAOT_COLUMNS(N, T) \
    __attribute__((noinline, unused)) static void raot_columns_##N##_unpacked( \
        int16_t *columns, const T *left, const T *right, int32_t count0, int32_t step0, \
        int32_t count1, int32_t step1, int32_t count2, int32_t step2, int32_t count3, \
        int32_t step3) \
    { \
        int16_t *to = columns; \
        const ptrdiff_t apart = right - left; \
        /*@ loop unroll 4096; */ \
        for (int32_t i = 0; i < count0; i++) { \
            /*@ loop unroll 4096; */ \
            for (int32_t j = 0; j < count1; j++) { \
                const T *from = left + i * step0 + j * step1; \
                if (count3 == 3 && step3 == 1 && apart == 1 && (count2 & 1) == 0) { \
                    to = raot_three_##N(to, from, count2 / 2, step2); \
                    continue; \
                } \
                int32_t k = 0; \
                /*@ loop unroll 4096; */ \
                for (; count3 == 1 && k + 1 < count2; k += 2) { \
                    raot_store_pair(to, from[0], from[step2]); \
                    raot_store_pair(to + 2, from[apart], from[apart + step2]); \
                    from += 2 * step2; \
                    to += 4; \
                } \
                /*@ loop unroll 4096; */ \
                for (; k < count2; k += 2) { \
                    const int32_t next = k + 1 < count2 ? step2 : 0; \
                    const T *a = from; \
                    const T *b = from + apart; \
                    /*@ loop unroll 4096; */ \
                    for (int32_t t = 0; t < count3; t++) { \
                        raot_store_pair(to, a[0], a[next]); \
                        raot_store_pair(to + 2, b[0], b[next]); \
                        a += step3; \
                        b += step3; \
                        to += 4; \
                    } \
                    from += 2 * step2; \
                } \
            } \
        } \
    }
/* clang-format on */
RAOT_COLUMNS(s8, int8_t)
RAOT_COLUMNS(u8, uint8_t)
#undef RAOT_COLUMNS

#if defined(RAOT_ASM_THUMB) && defined(__ARM_FEATURE_DSP)
/*
 * Four products of two channels and two positions.
 *
 *     r0, r2      sums of the first channel
 *     r3, r11     sums of the second channel
 *     r1, r12     weights and columns
 *     lr          remaining blocks of four products
 */
#define RAOT_FOUR_STEPS_S16          \
    "ldmia r12!, {r4, r5, r6, r7}\n" \
    "ldrd r8, r10, [r1], #8\n"       \
    "smlad r0, r8, r4, r0\n"         \
    "smlad r2, r8, r5, r2\n"         \
    "smlad r0, r10, r6, r0\n"        \
    "smlad r2, r10, r7, r2\n"        \
    "ldrd r8, r10, [r1], #8\n"       \
    "smlad r3, r8, r4, r3\n"         \
    "smlad r11, r8, r5, r11\n"       \
    "smlad r3, r10, r6, r3\n"        \
    "smlad r11, r10, r7, r11\n"

#define RAOT_FOUR_STEPS_S8           \
    "ldmia r12!, {r4, r5, r6, r7}\n" \
    "ldr r8, [r1], #4\n"             \
    "sxtb16 r10, r8\n"               \
    "smlad r0, r10, r4, r0\n"        \
    "smlad r2, r10, r5, r2\n"        \
    "sxtb16 r10, r8, ror #8\n"       \
    "smlad r0, r10, r6, r0\n"        \
    "smlad r2, r10, r7, r2\n"        \
    "ldr r8, [r1], #4\n"             \
    "sxtb16 r10, r8\n"               \
    "smlad r3, r10, r4, r3\n"        \
    "smlad r11, r10, r5, r11\n"      \
    "sxtb16 r10, r8, ror #8\n"       \
    "smlad r3, r10, r6, r3\n"        \
    "smlad r11, r10, r7, r11\n"

/*
 *     [sp] to [sp, #12]       sums, weights, columns, bias
 *     [sp, #16]               saved registers
 *     [sp, #48], [sp, #52]    arguments: remaining channels, blocks
 */
/* clang-format off */
#define RAOT_MULTIPLY(N, T, QUAD) \
    RAOT_NAKED static void raot_multiply_##N( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const T *weights, \
        RAOT_ARGUMENT const int16_t *columns, RAOT_ARGUMENT const int32_t *bias, \
        RAOT_ARGUMENT int32_t channels, RAOT_ARGUMENT int32_t blocks) \
    { \
        __asm volatile( \
            "push {r0-r8, r10, r11, lr}\n" \
            "ldr r3, [sp, #48]\n cmp r3, #0\n ble 5f\n" \
            "0: ldrd r12, lr, [sp, #8]\n ldrd r0, r3, [lr], #8\n str lr, [sp, #12]\n" \
            "mov r2, r0\n mov r11, r3\n" \
            "ldr lr, [sp, #52]\n subs lr, #4\n blt 2f\n" \
            "1:\n" QUAD QUAD QUAD QUAD "subs lr, #4\n bge 1b\n" \
            "2: adds lr, #4\n beq 4f\n" \
            "3:\n" QUAD "subs lr, #1\n bne 3b\n" \
            "4: ldr lr, [sp]\n strd r0, r2, [lr], #8\n strd r3, r11, [lr], #8\n str lr, [sp]\n" \
            "ldr r3, [sp, #48]\n subs r3, #2\n str r3, [sp, #48]\n bgt 0b\n" \
            "5: add sp, #16\n pop {r4-r8, r10, r11, pc}\n"); \
    }
/* clang-format on */
RAOT_MULTIPLY(s16, int16_t, RAOT_FOUR_STEPS_S16)
RAOT_MULTIPLY(s8, int8_t, RAOT_FOUR_STEPS_S8)
#undef RAOT_MULTIPLY
#undef RAOT_FOUR_STEPS_S16
#undef RAOT_FOUR_STEPS_S8
#elif defined(RAOT_DSP)
/* Weights of one channel: k = 0 and 1, k = 2 and 3. */
#define RAOT_WEIGHTS_S16(W, FIRST, LAST)   \
    (FIRST) = (int16x2_t)raot_dsp_load(W); \
    (LAST) = (int16x2_t)raot_dsp_load((W) + 2)

#define RAOT_WEIGHTS_S8(W, FIRST, LAST)     \
    const uint32_t four = raot_dsp_load(W); \
    (FIRST) = raot_dsp_even_s8(four);       \
    (LAST) = raot_dsp_odd_s8(four)

/* clang-format off */
#define RAOT_MULTIPLY(N, T, WEIGHTS) \
    __attribute__((noinline, unused)) static void raot_multiply_##N( \
        int32_t *sums, const T *weights, const int16_t *columns, const int32_t *bias, \
        int32_t channels, int32_t blocks) \
    { \
        for (int32_t n = 0; n < channels; n += 2) { \
            const int16_t *x = columns; \
            int32_t a = bias[n]; \
            int32_t b = a; \
            int32_t c = bias[n + 1]; \
            int32_t d = c; \
            for (int32_t k = 0; k < blocks; k++) { \
                const int16x2_t first0 = (int16x2_t)raot_dsp_load(x); \
                const int16x2_t first1 = (int16x2_t)raot_dsp_load(x + 2); \
                const int16x2_t last0 = (int16x2_t)raot_dsp_load(x + 4); \
                const int16x2_t last1 = (int16x2_t)raot_dsp_load(x + 6); \
                int16x2_t first, last; \
                { WEIGHTS(weights, first, last); } \
                a = raot_dsp_dot(last, last0, raot_dsp_dot(first, first0, a)); \
                b = raot_dsp_dot(last, last1, raot_dsp_dot(first, first1, b)); \
                { WEIGHTS(weights + 4, first, last); } \
                c = raot_dsp_dot(last, last0, raot_dsp_dot(first, first0, c)); \
                d = raot_dsp_dot(last, last1, raot_dsp_dot(first, first1, d)); \
                weights += 8; \
                x += 8; \
            } \
            sums[0] = a; \
            sums[1] = b; \
            sums[2] = c; \
            sums[3] = d; \
            sums += 4; \
        } \
    }
/* clang-format on */
RAOT_MULTIPLY(s16, int16_t, RAOT_WEIGHTS_S16)
RAOT_MULTIPLY(s8, int8_t, RAOT_WEIGHTS_S8)
#undef RAOT_MULTIPLY
#undef RAOT_WEIGHTS_S16
#undef RAOT_WEIGHTS_S8
#else
/* clang-format off */
#define RAOT_MULTIPLY(N, T, MIDDLE) \
    __attribute__((unused)) static void raot_multiply_##N( \
        int32_t *sums, const T *weights, const int16_t *columns, const int32_t *bias, \
        int32_t channels, int32_t blocks) \
    { \
        static const int32_t order[4] = {0, MIDDLE, 3 - MIDDLE, 3}; \
        for (int32_t n = 0; n < channels; n++) { \
            const T *const w = weights + (n / 2) * blocks * 8 + (n % 2) * 4; \
            for (int32_t p = 0; p < 2; p++) { \
                uint32_t sum = (uint32_t)bias[n]; \
                for (int32_t k = 0; k < 4 * blocks; k++) { \
                    const int32_t x = columns[4 * (k / 2) + 2 * p + k % 2]; \
                    sum += (uint32_t)(w[(k / 4) * 8 + order[k % 4]] * x); \
                } \
                sums[2 * n + p] = (int32_t)sum; \
            } \
        } \
    }
/* clang-format on */
RAOT_MULTIPLY(s16, int16_t, 1)
RAOT_MULTIPLY(s8, int8_t, 2)
#undef RAOT_MULTIPLY
#endif

/* Sizes of the functions below, by name. */
struct raot_column {
    int32_t zero;
    int32_t count0;
    int32_t first0;
    int32_t last0;
    int32_t step0;
    int32_t count1;
    int32_t first1;
    int32_t last1;
    int32_t step1;
    int32_t count2;
    int32_t first2;
    int32_t last2;
    int32_t step2;
    int32_t count3;
    int32_t first3;
    int32_t last3;
    int32_t step3;
};

#define raot_column_s8(column, image, sizes)                                                  \
    raot_column_s8_unpacked(column, image, (sizes)->zero, (sizes)->count0, (sizes)->first0,   \
                            (sizes)->last0, (sizes)->step0, (sizes)->count1, (sizes)->first1, \
                            (sizes)->last1, (sizes)->step1, (sizes)->count2, (sizes)->first2, \
                            (sizes)->last2, (sizes)->step2, (sizes)->count3, (sizes)->first3, \
                            (sizes)->last3, (sizes)->step3)

#define raot_column_u8(column, image, sizes)                                                  \
    raot_column_u8_unpacked(column, image, (sizes)->zero, (sizes)->count0, (sizes)->first0,   \
                            (sizes)->last0, (sizes)->step0, (sizes)->count1, (sizes)->first1, \
                            (sizes)->last1, (sizes)->step1, (sizes)->count2, (sizes)->first2, \
                            (sizes)->last2, (sizes)->step2, (sizes)->count3, (sizes)->first3, \
                            (sizes)->last3, (sizes)->step3)

/* Sizes of the functions below, by name. */
struct raot_columns {
    int32_t count0;
    int32_t step0;
    int32_t count1;
    int32_t step1;
    int32_t count2;
    int32_t step2;
    int32_t count3;
    int32_t step3;
};

#define raot_columns_s8(columns, left, right, sizes)                                           \
    raot_columns_s8_unpacked(columns, left, right, (sizes)->count0, (sizes)->step0,            \
                             (sizes)->count1, (sizes)->step1, (sizes)->count2, (sizes)->step2, \
                             (sizes)->count3, (sizes)->step3)

#define raot_columns_u8(columns, left, right, sizes)                                           \
    raot_columns_u8_unpacked(columns, left, right, (sizes)->count0, (sizes)->step0,            \
                             (sizes)->count1, (sizes)->step1, (sizes)->count2, (sizes)->step2, \
                             (sizes)->count3, (sizes)->step3)

#endif
