/*
 * multiply_s16.h - integer contractions for cores that multiply pairs of 16-bit numbers.
 *
 * Two places of the output are worked on at once. `columns` holds what their windows cover, as
 * 16-bit numbers: element k of place p is columns[4 * (k / 2) + 2 * p + k % 2], so that two
 * products are one SMLAD and the elements of four products of both places are one LDM.
 * Weights of two channels lie side by side, four k at a time: weights[n / 2][k / 4][n % 2][k % 4];
 * 8-bit ones with the two in the middle exchanged, as SXTB16 takes bytes apart. Sums wrap.
 * `columns` and `weights` are at multiples of four bytes.
 */
#ifndef RAOT_MULTIPLY_S16_H
#define RAOT_MULTIPLY_S16_H

#include <stdint.h>
#include <string.h>

/* Two neighbouring 16-bit numbers. */
static inline void raot_store_pair(int16_t *to, int32_t low, int32_t high)
{
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__)
    uint32_t both;
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"(low), "r"(high));
#else
    const uint32_t both = ((uint32_t)low & 0xffffu) | (uint32_t)high << 16;
#endif
    (void)memcpy(to, &both, sizeof both);
}

/*
 * Gathers what a window covers into one of two columns. Level l has `count` elements, of which
 * first..last lie inside the image, `step` elements apart; `image` is the first one inside. What
 * is cut off is `zero`. Pairs go along level 2: element (i, j, k, t) of the levels comes at
 * 4 * (((i * count1 + j) * half + k / 2) * count3 + t) + k % 2, where half is count2 / 2, up.
 */
/* clang-format off */
#define RAOT_COLUMN(N, T) \
    __attribute__((noinline, unused)) static void raot_column_##N( \
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

#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__OPTIMIZE__)
/*
 * Three neighbours for each of two neighbouring places, of `pairs` pairs of elements `step`
 * apart: four bytes of each hold them all. EXTEND is SXTB16 or UXTB16.
 */
#define RAOT_COLUMNS_OF_THREE(N, T, EXTEND)                                                        \
    static inline int16_t *raot_three_##N(int16_t *to, const T *from, int32_t pairs, int32_t step) \
    {                                                                                              \
        const T *odd = from + step;                                                                \
        const int32_t twice = 2 * step;                                                            \
        __asm volatile("1:\n"                                                                      \
                       "ldr r4, [%[a]]\n ldr r6, [%[b]]\n"                                         \
                       "add %[a], %[s]\n add %[b], %[s]\n" EXTEND " r5, r4, ror #8\n " EXTEND      \
                       " r4, r4\n" EXTEND " r8, r6, ror #8\n " EXTEND " r6, r6\n"                  \
                       "pkhbt r9, r4, r6, lsl #16\n pkhbt r10, r5, r8, lsl #16\n"                  \
                       "pkhtb r6, r6, r4, asr #16\n pkhtb r8, r8, r5, asr #16\n"                   \
                       "strd r9, r10, [%[to]], #8\n strd r10, r6, [%[to]], #8\n"                   \
                       "strd r6, r8, [%[to]], #8\n"                                                \
                       "subs %[n], #1\n bne 1b\n"                                                  \
                       : [to] "+r"(to), [a] "+r"(from), [b] "+r"(odd), [n] "+r"(pairs)             \
                       : [s] "r"(twice)                                                            \
                       : "r4", "r5", "r6", "r8", "r9", "r10", "cc", "memory");                     \
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

/* Both columns at once, of windows that lie inside their images. */
/* clang-format off */
#define RAOT_COLUMNS(N, T) \
    __attribute__((noinline, unused)) static void raot_columns_##N( \
        int16_t *columns, const T *left, const T *right, int32_t count0, int32_t step0, \
        int32_t count1, int32_t step1, int32_t count2, int32_t step2, int32_t count3, \
        int32_t step3) \
    { \
        int16_t *to = columns; \
        const int32_t apart = (int32_t)(right - left); \
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

#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__OPTIMIZE__)
/* Four products of two channels at two places. */
#define RAOT_QUAD_S16                 \
    "ldmia %[x]!, {r4, r5, r6, r8}\n" \
    "ldrd r9, r10, [%[w]], #8\n"      \
    "smlad %[a], r9, r4, %[a]\n"      \
    "smlad %[b], r9, r5, %[b]\n"      \
    "smlad %[a], r10, r6, %[a]\n"     \
    "smlad %[b], r10, r8, %[b]\n"     \
    "ldrd r9, r10, [%[w]], #8\n"      \
    "smlad %[c], r9, r4, %[c]\n"      \
    "smlad %[d], r9, r5, %[d]\n"      \
    "smlad %[c], r10, r6, %[c]\n"     \
    "smlad %[d], r10, r8, %[d]\n"

#define RAOT_QUAD_S8                  \
    "ldmia %[x]!, {r4, r5, r6, r8}\n" \
    "ldr r9, [%[w]], #4\n"            \
    "sxtb16 r10, r9\n"                \
    "smlad %[a], r10, r4, %[a]\n"     \
    "smlad %[b], r10, r5, %[b]\n"     \
    "sxtb16 r10, r9, ror #8\n"        \
    "smlad %[a], r10, r6, %[a]\n"     \
    "smlad %[b], r10, r8, %[b]\n"     \
    "ldr r9, [%[w]], #4\n"            \
    "sxtb16 r10, r9\n"                \
    "smlad %[c], r10, r4, %[c]\n"     \
    "smlad %[d], r10, r5, %[d]\n"     \
    "sxtb16 r10, r9, ror #8\n"        \
    "smlad %[c], r10, r6, %[c]\n"     \
    "smlad %[d], r10, r8, %[d]\n"

/* clang-format off */
#define RAOT_MULTIPLY(N, T, QUAD) \
    __attribute__((noinline, unused)) static void raot_multiply_##N( \
        int32_t *sums, const T *weights, const int16_t *columns, const int32_t *bias, \
        int32_t channels, int32_t quads) \
    { \
        for (int32_t n = 0; n < channels; n += 2) { \
            const int16_t *x = columns; \
            int32_t left = quads; \
            int32_t a = bias[n]; \
            int32_t b = a; \
            int32_t c = bias[n + 1]; \
            int32_t d = c; \
            __asm volatile( \
                "subs %[n], #4\n blt 2f\n" \
                "1:\n" QUAD QUAD QUAD QUAD "subs %[n], #4\n bge 1b\n" \
                "2:\n adds %[n], #4\n beq 4f\n" \
                "3:\n" QUAD "subs %[n], #1\n bne 3b\n" \
                "4:\n" \
                : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), \
                  [w] "+r"(weights), [x] "+r"(x), [n] "+r"(left) \
                : \
                : "r4", "r5", "r6", "r8", "r9", "r10", "cc", "memory"); \
            sums[0] = a; \
            sums[1] = b; \
            sums[2] = c; \
            sums[3] = d; \
            sums += 4; \
        } \
    }
/* clang-format on */
RAOT_MULTIPLY(s16, int16_t, RAOT_QUAD_S16)
RAOT_MULTIPLY(s8, int8_t, RAOT_QUAD_S8)
#undef RAOT_MULTIPLY
#undef RAOT_QUAD_S16
#undef RAOT_QUAD_S8
#else
/* clang-format off */
#define RAOT_MULTIPLY(N, T, MIDDLE) \
    __attribute__((unused)) static void raot_multiply_##N( \
        int32_t *sums, const T *weights, const int16_t *columns, const int32_t *bias, \
        int32_t channels, int32_t quads) \
    { \
        static const int32_t order[4] = {0, MIDDLE, 3 - MIDDLE, 3}; \
        for (int32_t n = 0; n < channels; n++) { \
            const T *const w = weights + (n / 2) * quads * 8 + (n % 2) * 4; \
            for (int32_t p = 0; p < 2; p++) { \
                uint32_t sum = (uint32_t)bias[n]; \
                for (int32_t k = 0; k < 4 * quads; k++) { \
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

#endif
