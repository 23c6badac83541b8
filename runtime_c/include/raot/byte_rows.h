/* SPDX-License-Identifier: Apache-2.0 */
/*
 * byte_rows.h - a row of 16-bit integers by a matrix of bytes, both computed while a model runs.
 *
 *     raot_widen_row   row[k] = x[k * step] - zero; start = -other * sum of row[k]
 *     raot_dot_rows    sums[n] = start + sum of row[k] * matrix[n * step + k]
 *     raot_add_rows    sums[n] = start + sum of row[k] * matrix[k * step + n]
 *
 * summed over k < depth. `other` is the zero point of the matrix, which the start subtracts from
 * all sums. Sums wrap. Rows of 16-bit integers are aligned to four bytes.
 */
#ifndef RAOT_BYTE_ROWS_H
#define RAOT_BYTE_ROWS_H

#include <stdint.h>

#include "assembly.h"
#include "dsp.h"
#include "mve.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(RAOT_NO_INTRINSICS)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
#define RAOT_BYTE_ROWS_ASM 1
#define RAOT_BYTE_COLUMNS 8 /* of raot_add_columns */
/* clang-format off */
/*
 * Sums of `groups` times four columns, eight elements of each at a time.
 *
 *     r0, r2, r4, r6     sums
 *     r1, r3, r5, r7     columns
 *     r8, r10, r11, r12  step, depth, start, row
 *
 *     [sp], [sp, #4]     row, sums in memory
 *     [sp, #40]          arguments: groups, depth, step
 */
#define RAOT_DOT_COLUMNS_OF(suffix, byte, LOAD, unused) \
    RAOT_NAKED static void raot_dot_columns_##suffix( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const byte *matrix, \
        RAOT_ARGUMENT const int16_t *row, RAOT_ARGUMENT int32_t start, \
        RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t step) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n sub sp, #8\n mov r11, r3\n strd r2, r0, [sp]\n" \
            "ldrd r10, r8, [sp, #44]\n" \
            "1:\n add r3, r1, r8\n add r5, r3, r8\n add r7, r5, r8\n ldr r12, [sp]\n" \
            "mov r0, r11\n mov r2, r11\n mov r4, r11\n mov r6, r11\n wlstp.16 lr, r10, 3f\n" \
            "2:\n vldrh.16 q0, [r12], #16\n" LOAD "q1, [r1], #8\n vmladava.s16 r0, q0, q1\n" \
            LOAD "q2, [r3], #8\n vmladava.s16 r2, q0, q2\n" LOAD "q3, [r5], #8\n" \
            "vmladava.s16 r4, q0, q3\n" LOAD "q1, [r7], #8\n vmladava.s16 r6, q0, q1\n" \
            "letp lr, 2b\n" \
            "3:\n ldr r12, [sp, #4]\n stm r12!, {r0, r2, r4, r6}\n str r12, [sp, #4]\n" \
            "add r12, r10, #7\n bic r12, r12, #7\n sub r7, r7, r12\n add r1, r7, r8\n" \
            "ldr r12, [sp, #40]\n subs r12, #1\n str r12, [sp, #40]\n bne 1b\n" \
            "add sp, #8\n pop {r4-r8, r10, r11, pc}\n"); \
    }
/*
 * Sums of `groups` times eight contiguous columns.
 *
 *     r0, r1, r2         sums in memory, matrix, row
 *     r3 to r8           start, groups, depth, step, line, an element of the row
 */
#define RAOT_ADD_COLUMNS_OF(suffix, byte, unused, LOAD) \
    RAOT_NAKED static void raot_add_columns_##suffix( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const byte *matrix, \
        RAOT_ARGUMENT const int16_t *row, RAOT_ARGUMENT int32_t start, \
        RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t step) \
    { \
        __asm volatile( \
            "push {r4-r8, lr}\n ldrd r4, r5, [sp, #24]\n ldr r6, [sp, #32]\n mov r12, r2\n" \
            "1:\n vdup.32 q2, r3\n vdup.32 q3, r3\n mov r7, r1\n mov r2, r12\n" \
            "wls lr, r5, 3f\n" \
            "2:\n ldrsh r8, [r2], #2\n" LOAD "q0, [r7]\n" LOAD "q1, [r7, #4]\n" \
            "vmla.s32 q2, q0, r8\n add r7, r6\n vmla.s32 q3, q1, r8\n le lr, 2b\n" \
            "3:\n vstrw.32 q2, [r0], #16\n vstrw.32 q3, [r0], #16\n adds r1, #8\n" \
            "subs r4, #1\n bne 1b\n pop {r4-r8, pc}\n"); \
    }
#define RAOT_BYTE_ROWS_OF(FORM) \
    FORM(s8, int8_t, "vldrb.s16 ", "vldrb.s32 ") FORM(u8, uint8_t, "vldrb.u16 ", "vldrb.u32 ")
/* clang-format on */
#elif defined(RAOT_DSP) && defined(RAOT_ASM_THUMB) && !defined(RAOT_MVE)
#define RAOT_BYTE_ROWS_ASM 1
#define RAOT_BYTE_COLUMNS 4 /* of raot_add_columns */
/* clang-format off */
/*
 * Sums of `groups` times four columns, four elements of each at a time.
 *
 *     r3 to r6           sums
 *     r1, r7, r8         the first and the third column, step
 *     r2, r0             row, its end or remaining elements
 *     r10, r11           elements 0 and 2, 1 and 3 of the row
 *     r12, lr            bytes
 *
 *     [sp] to [sp, #12]  sums in memory, matrix, row, start
 *     [sp, #16]          end of the whole blocks of the row, elements behind them
 *     [sp, #56]          arguments: groups, depth, step
 */
#define RAOT_DOT_COLUMN(sum, PLACE, EXTEND) \
    "ldr r12, " PLACE "\n" EXTEND " lr, r12\n smlad " sum ", r10, lr, " sum "\n" \
    EXTEND " r12, r12, ror #8\n smlad " sum ", r11, r12, " sum "\n"
#define RAOT_DOT_COLUMNS_OF(suffix, byte, EXTEND, LOAD) \
    RAOT_NAKED static void raot_dot_columns_##suffix( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const byte *matrix, \
        RAOT_ARGUMENT const int16_t *row, RAOT_ARGUMENT int32_t start, \
        RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t step) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n sub sp, #24\n stm sp, {r0-r3}\n" \
            "ldrd r4, r8, [sp, #60]\n bic r5, r4, #3\n add r5, r2, r5, lsl #1\n and r4, #3\n" \
            "strd r5, r4, [sp, #16]\n" \
            "1: ldrd r1, r2, [sp, #4]\n ldrd r3, r0, [sp, #12]\n add r7, r1, r8, lsl #1\n" \
            "mov r4, r3\n mov r5, r3\n mov r6, r3\n cmp r2, r0\n beq 3f\n" \
            "2: ldrd r12, lr, [r2], #8\n pkhbt r10, r12, lr, lsl #16\n" \
            "pkhtb r11, lr, r12, asr #16\n" \
            RAOT_DOT_COLUMN("r4", "[r1, r8]", EXTEND) RAOT_DOT_COLUMN("r3", "[r1], #4", EXTEND) \
            RAOT_DOT_COLUMN("r6", "[r7, r8]", EXTEND) RAOT_DOT_COLUMN("r5", "[r7], #4", EXTEND) \
            "cmp r2, r0\n bne 2b\n" \
            "3: ldr r0, [sp, #20]\n cbz r0, 5f\n" \
            "4: ldrsh r10, [r2], #2\n" LOAD " r12, [r1, r8]\n" LOAD " lr, [r7, r8]\n" \
            "smlabb r4, r10, r12, r4\n smlabb r6, r10, lr, r6\n" \
            LOAD " r12, [r1], #1\n" LOAD " lr, [r7], #1\n" \
            "smlabb r3, r10, r12, r3\n smlabb r5, r10, lr, r5\n subs r0, #1\n bne 4b\n" \
            "5: ldrd r0, r1, [sp]\n stm r0!, {r3-r6}\n add r1, r1, r8, lsl #2\n" \
            "strd r0, r1, [sp]\n ldr r0, [sp, #56]\n subs r0, #1\n str r0, [sp, #56]\n bne 1b\n" \
            "add sp, #24\n pop {r4-r8, r10, r11, pc}\n"); \
    }
/*
 * Sums of `groups` times four contiguous columns, two lines at a time.
 *
 *     r3 to r6           sums
 *     r1, r8             matrix, step
 *     r2, r0, r10        row, its end, two elements of it
 *     r7, r11, r12, lr   bytes of two lines
 *
 *     [sp] to [sp, #12]  sums in memory, matrix, row, start
 *     [sp, #16]          end of the pairs of the row, whether an element is behind them
 *     [sp, #56]          arguments: groups, depth, step
 */
#define RAOT_ADD_COLUMNS_OF(suffix, byte, EXTEND, LOAD) \
    RAOT_NAKED static void raot_add_columns_##suffix( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const byte *matrix, \
        RAOT_ARGUMENT const int16_t *row, RAOT_ARGUMENT int32_t start, \
        RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t step) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n sub sp, #24\n stm sp, {r0-r3}\n" \
            "ldrd r4, r8, [sp, #60]\n bic r5, r4, #1\n add r5, r2, r5, lsl #1\n and r4, #1\n" \
            "strd r5, r4, [sp, #16]\n" \
            "1: ldrd r1, r2, [sp, #4]\n ldrd r3, r0, [sp, #12]\n" \
            "mov r4, r3\n mov r5, r3\n mov r6, r3\n cmp r2, r0\n beq 3f\n" \
            "2: ldr r12, [r1]\n ldr lr, [r1, r8]\n ldr r10, [r2], #4\n add r1, r1, r8, lsl #1\n" \
            EXTEND " r7, r12\n" EXTEND " r11, lr\n" EXTEND " r12, r12, ror #8\n" \
            EXTEND " lr, lr, ror #8\n" \
            "smlabb r3, r10, r7, r3\n smlabb r4, r10, r12, r4\n" \
            "smlabt r5, r10, r7, r5\n smlabt r6, r10, r12, r6\n" \
            "smlatb r3, r10, r11, r3\n smlatb r4, r10, lr, r4\n" \
            "smlatt r5, r10, r11, r5\n smlatt r6, r10, lr, r6\n" \
            "cmp r2, r0\n bne 2b\n" \
            "3: ldr r0, [sp, #20]\n cbz r0, 4f\n ldrsh r10, [r2]\n ldr r12, [r1]\n" \
            EXTEND " r7, r12\n" EXTEND " r12, r12, ror #8\n" \
            "smlabb r3, r10, r7, r3\n smlabb r4, r10, r12, r4\n" \
            "smlabt r5, r10, r7, r5\n smlabt r6, r10, r12, r6\n" \
            "4: ldrd r0, r1, [sp]\n stm r0!, {r3-r6}\n adds r1, #4\n strd r0, r1, [sp]\n" \
            "ldr r0, [sp, #56]\n subs r0, #1\n str r0, [sp, #56]\n bne 1b\n" \
            "add sp, #24\n pop {r4-r8, r10, r11, pc}\n"); \
    }
#define RAOT_BYTE_ROWS_OF(FORM) \
    FORM(s8, int8_t, "sxtb16", "ldrsb") FORM(u8, uint8_t, "uxtb16", "ldrb")
/* clang-format on */
#endif
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(RAOT_NO_INTRINSICS)
#define RAOT_BYTE_COLUMNS 16 /* of raot_add_columns */
/* Sums of `groups` times sixteen contiguous columns. */
#define RAOT_ADD_COLUMNS_NEON(suffix, byte, LOAD, LOWER, UPPER)                               \
    static inline void raot_add_columns_##suffix(int32_t *sums, const byte *matrix,           \
                                                 const int16_t *row, int32_t start,           \
                                                 int32_t groups, int32_t depth, int32_t step) \
    {                                                                                         \
        for (; groups > 0; groups--) {                                                        \
            const byte *at = matrix;                                                          \
            int32x4_t a = vdupq_n_s32(start);                                                 \
            int32x4_t b = a;                                                                  \
            int32x4_t c = a;                                                                  \
            int32x4_t d = a;                                                                  \
            for (int32_t k = 0; k < depth; k++) {                                             \
                const int16x8_t lower = LOWER(LOAD(at));                                      \
                const int16x8_t upper = UPPER(LOAD(at));                                      \
                a = vmlal_n_s16(a, vget_low_s16(lower), row[k]);                              \
                b = vmlal_high_n_s16(b, lower, row[k]);                                       \
                c = vmlal_n_s16(c, vget_low_s16(upper), row[k]);                              \
                d = vmlal_high_n_s16(d, upper, row[k]);                                       \
                at += step;                                                                   \
            }                                                                                 \
            vst1q_s32(sums, a);                                                               \
            vst1q_s32(sums + 4, b);                                                           \
            vst1q_s32(sums + 8, c);                                                           \
            vst1q_s32(sums + 12, d);                                                          \
            sums += 16;                                                                       \
            matrix += 16;                                                                     \
        }                                                                                     \
    }
#define RAOT_NEON_LOWER_S8(x) vmovl_s8(vget_low_s8(x))
#define RAOT_NEON_LOWER_U8(x) vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(x)))
#define RAOT_NEON_UPPER_U8(x) vreinterpretq_s16_u16(vmovl_high_u8(x))
RAOT_ADD_COLUMNS_NEON(s8, int8_t, vld1q_s8, RAOT_NEON_LOWER_S8, vmovl_high_s8)
RAOT_ADD_COLUMNS_NEON(u8, uint8_t, vld1q_u8, RAOT_NEON_LOWER_U8, RAOT_NEON_UPPER_U8)
#undef RAOT_ADD_COLUMNS_NEON
#undef RAOT_NEON_LOWER_S8
#undef RAOT_NEON_LOWER_U8
#undef RAOT_NEON_UPPER_U8
#endif
#if defined(__AVX2__)
#define RAOT_BYTE_COLUMNS 16 /* of raot_add_columns */
#define RAOT_DOT_COLUMNS 4   /* of raot_dot_columns */
/*
 * Sums of `groups` times four columns, 16 elements of each at a time, and of sixteen contiguous
 * columns, two lines at a time.
 */
#define RAOT_BYTE_COLUMNS_AVX2(suffix, byte, WIDEN)                                                \
    static inline void raot_dot_columns_##suffix(int32_t *sums, const byte *matrix,                \
                                                 const int16_t *row, int32_t start,                \
                                                 int32_t groups, int32_t depth, int32_t step)      \
    {                                                                                              \
        for (; groups > 0; groups--) {                                                             \
            __m256i total[RAOT_DOT_COLUMNS];                                                       \
            int32_t k = 0;                                                                         \
                                                                                                   \
            for (int32_t n = 0; n < RAOT_DOT_COLUMNS; n++) {                                       \
                total[n] = _mm256_setzero_si256();                                                 \
            }                                                                                      \
            for (; k + 16 <= depth; k += 16) {                                                     \
                const __m256i by = _mm256_loadu_si256((const __m256i *)(row + k));                 \
                for (int32_t n = 0; n < RAOT_DOT_COLUMNS; n++) {                                   \
                    const byte *const at = matrix + n * step + k;                                  \
                    const __m256i wide = WIDEN(_mm_loadu_si128((const __m128i *)at));              \
                    total[n] = _mm256_add_epi32(total[n], _mm256_madd_epi16(wide, by));            \
                }                                                                                  \
            }                                                                                      \
            const __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(total[0], total[1]),         \
                                                    _mm256_hadd_epi32(total[2], total[3]));        \
            const __m128i all =                                                                    \
                _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));  \
            _mm_storeu_si128((__m128i *)sums, _mm_add_epi32(all, _mm_set1_epi32(start)));          \
            for (; k < depth; k++) {                                                               \
                for (int32_t n = 0; n < RAOT_DOT_COLUMNS; n++) {                                   \
                    const uint32_t product = (uint32_t)(row[k] * matrix[n * step + k]);            \
                    sums[n] = (int32_t)((uint32_t)sums[n] + product);                              \
                }                                                                                  \
            }                                                                                      \
            sums += RAOT_DOT_COLUMNS;                                                              \
            matrix += RAOT_DOT_COLUMNS * step;                                                     \
        }                                                                                          \
    }                                                                                              \
    static inline void raot_add_columns_##suffix(int32_t *sums, const byte *matrix,                \
                                                 const int16_t *row, int32_t start,                \
                                                 int32_t groups, int32_t depth, int32_t step)      \
    {                                                                                              \
        for (; groups > 0; groups--) {                                                             \
            const byte *at = matrix;                                                               \
            __m256i near = _mm256_set1_epi32(start);                                               \
            __m256i far = near;                                                                    \
                                                                                                   \
            for (int32_t k = 0; k < depth; k += 2) {                                               \
                const uint32_t next = k + 1 < depth ? (uint32_t)(uint16_t)row[k + 1] : 0u;         \
                const byte *const below = k + 1 < depth ? at + step : at;                          \
                const __m256i by =                                                                 \
                    _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)row[k] | next << 16));         \
                const __m256i a = WIDEN(_mm_loadu_si128((const __m128i *)at));                     \
                const __m256i b = WIDEN(_mm_loadu_si128((const __m128i *)below));                  \
                near = _mm256_add_epi32(near, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), by)); \
                far = _mm256_add_epi32(far, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), by));   \
                at = below + step;                                                                 \
            }                                                                                      \
            _mm256_storeu_si256((__m256i *)sums, _mm256_permute2x128_si256(near, far, 0x20));      \
            _mm256_storeu_si256((__m256i *)(sums + 8),                                             \
                                _mm256_permute2x128_si256(near, far, 0x31));                       \
            sums += RAOT_BYTE_COLUMNS;                                                             \
            matrix += RAOT_BYTE_COLUMNS;                                                           \
        }                                                                                          \
    }
RAOT_BYTE_COLUMNS_AVX2(s8, int8_t, _mm256_cvtepi8_epi16)
RAOT_BYTE_COLUMNS_AVX2(u8, uint8_t, _mm256_cvtepu8_epi16)
#undef RAOT_BYTE_COLUMNS_AVX2
#define RAOT_DOT_GROUPS(suffix) RAOT_BYTE_GROUPS(raot_dot_columns_##suffix, RAOT_DOT_COLUMNS, step)
#endif
#if defined(RAOT_BYTE_ROWS_ASM)
#define RAOT_DOT_GROUPS(suffix) RAOT_BYTE_GROUPS(raot_dot_columns_##suffix, 4, step)
RAOT_BYTE_ROWS_OF(RAOT_DOT_COLUMNS_OF)
RAOT_BYTE_ROWS_OF(RAOT_ADD_COLUMNS_OF)
#undef RAOT_BYTE_ROWS_OF
#undef RAOT_DOT_COLUMN
#undef RAOT_DOT_COLUMNS_OF
#undef RAOT_ADD_COLUMNS_OF
#elif !defined(RAOT_DOT_GROUPS)
#define RAOT_DOT_GROUPS(suffix)
#endif
#if defined(RAOT_BYTE_COLUMNS)
#define RAOT_ADD_GROUPS(suffix) RAOT_BYTE_GROUPS(raot_add_columns_##suffix, RAOT_BYTE_COLUMNS, 1)
/* Groups of columns, the last of which may overlap the one before; `next`: from column to column.
 */
#define RAOT_BYTE_GROUPS(function, count, next)                                         \
    if (columns >= (count)) {                                                           \
        const int32_t last = columns - (count);                                         \
        function(sums, matrix, row, *start, columns / (count), depth, step);            \
        if (columns % (count) != 0) {                                                   \
            function(sums + last, matrix + last * (next), row, *start, 1, depth, step); \
        }                                                                               \
        n = columns;                                                                    \
    }
#else
#define RAOT_ADD_GROUPS(suffix)
#endif

#if defined(RAOT_MVE)
#define RAOT_WIDEN_VECTORS(WIDE)                                         \
    for (; step == 1 && k < depth; k += 8) {                             \
        const mve_pred16_t some = vctp16q((uint32_t)(depth - k));        \
        const int16x8_t bytes = (int16x8_t)vldrbq_z_##WIDE(x + k, some); \
        const int16x8_t value = vsubq_n_s16(bytes, (int16_t)zero);       \
        sum = (uint32_t)vaddvaq_p_s16((int32_t)sum, value, some);        \
        vst1q_p_s16(row + k, value, some);                               \
    }
#else
#define RAOT_WIDEN_VECTORS(WIDE)
#endif
#define RAOT_BYTE_ROWS(suffix, byte, WIDE)                                                      \
    __attribute__((noinline, unused)) static void raot_widen_row_##suffix(                      \
        int16_t *row, int32_t *start, const byte *x, int32_t depth, int32_t step, int32_t zero, \
        int32_t other)                                                                          \
    {                                                                                           \
        uint32_t sum = 0u;                                                                      \
        int32_t k = 0;                                                                          \
                                                                                                \
        RAOT_WIDEN_VECTORS(WIDE)                                                                \
        for (; k < depth; k++) {                                                                \
            const int32_t value = x[k * step] - zero;                                           \
            row[k] = (int16_t)value;                                                            \
            sum += (uint32_t)value;                                                             \
        }                                                                                       \
        *start = (int32_t)(0u - (uint32_t)other * sum);                                         \
    }                                                                                           \
    __attribute__((noinline, unused)) static void raot_dot_rows_##suffix(                       \
        int32_t *sums, const byte *matrix, const int16_t *row, const int32_t *start,            \
        int32_t columns, int32_t depth, int32_t step)                                           \
    {                                                                                           \
        int32_t n = 0;                                                                          \
                                                                                                \
        RAOT_DOT_GROUPS(suffix)                                                                 \
        for (; n < columns; n++) {                                                              \
            const byte *const at = matrix + n * step;                                           \
            uint32_t sum = (uint32_t)*start;                                                    \
            for (int32_t k = 0; k < depth; k++) {                                               \
                sum += (uint32_t)(row[k] * at[k]);                                              \
            }                                                                                   \
            sums[n] = (int32_t)sum;                                                             \
        }                                                                                       \
    }                                                                                           \
    __attribute__((noinline, unused)) static void raot_add_rows_##suffix(                       \
        int32_t *sums, const byte *matrix, const int16_t *row, const int32_t *start,            \
        int32_t columns, int32_t depth, int32_t step)                                           \
    {                                                                                           \
        int32_t n = 0;                                                                          \
                                                                                                \
        RAOT_ADD_GROUPS(suffix)                                                                 \
        for (; n < columns; n++) {                                                              \
            const byte *const at = matrix + n;                                                  \
            uint32_t sum = (uint32_t)*start;                                                    \
            for (int32_t k = 0; k < depth; k++) {                                               \
                sum += (uint32_t)(row[k] * at[k * step]);                                       \
            }                                                                                   \
            sums[n] = (int32_t)sum;                                                             \
        }                                                                                       \
    }
RAOT_BYTE_ROWS(s8, int8_t, s16)
RAOT_BYTE_ROWS(u8, uint8_t, u16)
#undef RAOT_BYTE_ROWS
#undef RAOT_BYTE_GROUPS
#undef RAOT_DOT_GROUPS
#undef RAOT_ADD_GROUPS
#undef RAOT_WIDEN_VECTORS

#endif
