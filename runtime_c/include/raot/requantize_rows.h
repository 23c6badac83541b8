/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_rows.h - requantization of rows of i32 sums, one per channel, to bytes.
 *
 * out[n * channel_step + p * step] is the requantized sum p of channel n, plus `zero`, clamped to
 * low..high. The variants are those of requantize_nhwc.h; `scales` and `shifts`
 * (not for floats) of channel n are scales[n * scale_step] and shifts[n * scale_step]. The sums of
 * channel n start at sums[n * sum_step].
 *
 * In the forms `_word`, a scale has 30 bits of a multiplier, whose next bit is set, and above them
 * two bits by which the shift is less than `base`.
 */
#ifndef RAOT_REQUANTIZE_ROWS_H
#define RAOT_REQUANTIZE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "dsp.h"
#include "requantize_nhwc.h"

/* The multiplier and the shift of a channel; without shifts, `scale` is a word of both. */
static inline int32_t raot_rows_scale(int32_t scale, const int8_t *shifts)
{
    return shifts != NULL ? scale : (scale & 0x3FFFFFFF) | 0x40000000;
}

static inline int32_t raot_rows_shift(int32_t scale, const int8_t *shifts, int32_t at, int32_t base)
{
    return shifts != NULL ? shifts[at] : base - (int32_t)((uint32_t)scale >> 30);
}

#if defined(RAOT_DSP)
/*
 * `zero` and half a unit are added to the upper half of a product before the shift, which is 1 to
 * 20. At most 2^30 in magnitude are the products, and 2^28 is what is added. Sums at twice the
 * scale may saturate, because the multiplier is at least 2^30: such results are clamped.
 */
static inline int32_t raot_rows_nearest(int32_t x, int32_t by)
{
    return (int32_t)(((int64_t)x * by) >> 32);
}

static inline int32_t raot_rows_above(int32_t x, int32_t by)
{
    const int32_t twice = (int32_t)__qadd(x, x);
    return (int32_t)(((int64_t)twice * by + ((int64_t)1 << 31)) >> 32);
}

static inline int32_t raot_rows_twice(int32_t x, int32_t by)
{
    const int32_t high = raot_rows_above(x, by);
    return high + (high >> 31);
}

static inline int8_t raot_rows_clamped(int32_t x, int32_t low, int32_t high)
{
    return (int8_t)(uint8_t)(x < low ? low : x > high ? high : x);
}

/* For the few rows that no other function takes. */
static inline int8_t raot_rows_limited(int32_t code, int32_t zero, int32_t low, int32_t high)
{
    const int64_t moved = (int64_t)code + zero;
    return (int8_t)(uint8_t)(moved < low ? low : moved > high ? high : moved);
}

static inline const int8_t *raot_rows_from(const int8_t *shifts, int32_t at)
{
    return shifts != NULL ? shifts + at : NULL;
}

/* Sizes of rows that are scaled by raot_rows_*; `sum_bytes` from row to row of the sums. */
struct raot_rows {
    int32_t positions;
    int32_t channel_step;
    int32_t step;
    int32_t sum_bytes;
    int32_t scale_step;
    int32_t zero; /* with shifts: twice the zero point, and one */
    int32_t down; /* without shifts: the least shift to the right */
};

/* Returns the number of rows from the first one on whose shift or scale does not fit. */
#if defined(RAOT_ASM_THUMB)
/*
 *     r0, r1, r2          result, sums, remaining sums
 *     r3, r7, r10         multiplier, what is added, shift
 *     r4, r5, r6, r8      four sums
 *     r11, r12, lr        step of the result, remaining rows, sizes
 *
 *     [sp] to [sp, #12]   result, sums, multipliers, shifts (or null) of the row
 *     [sp, #16]           saved registers
 *     [sp, #48]           arguments: rows, sizes
 */
/* clang-format off */
#define RAOT_ROWS_SMMLA(X) "smmla " X ", " X ", r3, r7\n"
#define RAOT_ROWS_SMMLAR(X) "qadd " X ", " X ", " X "\n smmlar " X ", " X ", r3, r7\n"
#define RAOT_ROWS_LOWERED(X) \
    "qadd " X ", " X ", " X "\n smmulr " X ", " X ", r3\n" \
    "add " X ", " X ", " X ", asr #31\n add " X ", r7\n"
#define RAOT_ROWS_SHIFTED(X) "asr " X ", r10\n ssat " X ", #8, " X "\n"
#define RAOT_ROWS_CONTIGUOUS(X) "strb " X ", [r0], #1\n"
#define RAOT_ROWS_STRIDED(X) "strb " X ", [r0]\n add r0, r11\n"
#define RAOT_ROWS_FOUR_CONTIGUOUS \
    RAOT_ROWS_CONTIGUOUS("r4") RAOT_ROWS_CONTIGUOUS("r5") \
    RAOT_ROWS_CONTIGUOUS("r6") RAOT_ROWS_CONTIGUOUS("r8")
#define RAOT_ROWS_FOUR_STRIDED \
    "strb r4, [r0]\n strb r5, [r0, r11]\n add r0, r0, r11, lsl #1\n" \
    "strb r6, [r0]\n strb r8, [r0, r11]\n add r0, r0, r11, lsl #1\n"
#define RAOT_ROWS_RUN(NAME, SCALE, LEAST, STORE, FOUR) \
    RAOT_NAKED static int32_t NAME( \
        RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const int32_t *sums, \
        RAOT_ARGUMENT const int32_t *scales, RAOT_ARGUMENT const int8_t *shifts, \
        RAOT_ARGUMENT int32_t rows, RAOT_ARGUMENT const struct raot_rows *sizes) \
    { \
        __asm volatile( \
            "push {r0-r8, r10, r11, lr}\n ldr r12, [sp, #48]\n ldr lr, [sp, #52]\n" \
            "ldr r11, [lr, #8]\n ldr r6, [lr, #16]\n" \
            "1: ldr r4, [sp, #8]\n ldr r5, [sp, #12]\n" \
            "ldr r3, [r4]\n add r4, r4, r6, lsl #2\n str r4, [sp, #8]\n" \
            "cmp r5, #0\n bne 7f\n ldr r10, [lr, #24]\n add r10, r10, r3, lsr #30\n" \
            "bic r3, r3, #0xC0000000\n orr r3, r3, #0x40000000\n" \
            "8: sub r7, r10, #1\n cmp r7, #20\n bhs 6f\n" LEAST \
            "ldr r6, [lr, #20]\n lsl r7, r6, r7\n" \
            /* From here on if the previous row had the same scale. */ \
            "9: ldrd r0, r1, [sp]\n ldrd r2, r4, [lr]\n ldr r5, [lr, #12]\n" \
            "add r4, r0\n add r5, r1\n strd r4, r5, [sp]\n" \
            "subs r2, #4\n blt 3f\n" \
            "2: ldmia r1!, {r4, r5, r6, r8}\n" \
            SCALE("r4") SCALE("r5") SCALE("r6") SCALE("r8") \
            RAOT_ROWS_SHIFTED("r4") RAOT_ROWS_SHIFTED("r5") \
            RAOT_ROWS_SHIFTED("r6") RAOT_ROWS_SHIFTED("r8") \
            FOUR \
            "subs r2, #4\n bge 2b\n" \
            "3: adds r2, #4\n beq 5f\n" \
            "4: ldr r4, [r1], #4\n" SCALE("r4") RAOT_ROWS_SHIFTED("r4") STORE("r4") \
            "subs r2, #1\n bne 4b\n" \
            "5: ldr r6, [lr, #16]\n subs r12, #1\n ble 6f\n cmp r6, #0\n bne 1b\n b 9b\n" \
            "6: mov r0, r12\n add sp, #16\n pop {r4-r8, r10, r11, pc}\n" \
            "7: ldrsb r10, [r5]\n add r5, r6\n rsb r10, r10, #0\n str r5, [sp, #12]\n b 8b\n"); \
    }
#define RAOT_ROWS_NORMAL "cmp r3, #0x40000000\n blt 6f\n"
#define RAOT_ROWS_RUNS(FORM, SCALE, LEAST) \
    RAOT_ROWS_RUN(raot_rows_##FORM##_contiguous, SCALE, LEAST, RAOT_ROWS_CONTIGUOUS, \
                  RAOT_ROWS_FOUR_CONTIGUOUS) \
    RAOT_ROWS_RUN(raot_rows_##FORM##_strided, SCALE, LEAST, RAOT_ROWS_STRIDED, RAOT_ROWS_FOUR_STRIDED)
/* clang-format on */
RAOT_ROWS_RUNS(nearest, RAOT_ROWS_SMMLA, )
RAOT_ROWS_RUNS(above, RAOT_ROWS_SMMLAR, RAOT_ROWS_NORMAL)
RAOT_ROWS_RUNS(twice, RAOT_ROWS_LOWERED, RAOT_ROWS_NORMAL)

/*
 * Rows of one sum, as those of a fully connected layer.
 *
 *     r0, r1, r2          next result, sum and multiplier
 *     lr                  next shift, or the least shift to the right
 *     r3, r4, r7, r10     multiplier, sum, what is added, shift
 *     r5, r6, r8, r11     steps: channel_step, sum_bytes, scale_step in bytes; zero
 *     r12                 remaining rows
 *
 *     [sp]                saved registers
 *     [sp, #32]           arguments: rows, sizes
 */
/* clang-format off */
#define RAOT_ROWS_ONE(SCALE, LEAST) \
    "sub r7, r10, #1\n cmp r7, #20\n bhs 6f\n" LEAST \
    "ldr r4, [r1]\n add r1, r6\n lsl r7, r11, r7\n" SCALE("r4") RAOT_ROWS_SHIFTED("r4") \
    "strb r4, [r0]\n add r0, r5\n subs r12, #1\n"
#define RAOT_ROWS_ONES(FORM, SCALE, LEAST) \
    RAOT_NAKED static int32_t raot_rows_##FORM##_single( \
        RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const int32_t *sums, \
        RAOT_ARGUMENT const int32_t *scales, RAOT_ARGUMENT const int8_t *shifts, \
        RAOT_ARGUMENT int32_t rows, RAOT_ARGUMENT const struct raot_rows *sizes) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n mov lr, r3\n" \
            "ldrd r12, r4, [sp, #32]\n ldr r5, [r4, #4]\n ldrd r6, r8, [r4, #12]\n" \
            "ldrd r11, r4, [r4, #20]\n cmp lr, #0\n bne 2f\n mov lr, r4\n" \
            "1: ldr r3, [r2]\n add r2, r2, r8, lsl #2\n add r10, lr, r3, lsr #30\n" \
            "bic r3, r3, #0xC0000000\n orr r3, r3, #0x40000000\n" \
            RAOT_ROWS_ONE(SCALE, LEAST) "bgt 1b\n b 6f\n" \
            "2: ldrsb r10, [lr]\n add lr, r8\n ldr r3, [r2]\n add r2, r2, r8, lsl #2\n" \
            "rsb r10, r10, #0\n" \
            RAOT_ROWS_ONE(SCALE, LEAST) "bgt 2b\n" \
            "6: mov r0, r12\n pop {r4-r8, r10, r11, pc}\n"); \
    }
/* clang-format on */
RAOT_ROWS_ONES(nearest, RAOT_ROWS_SMMLA, )
RAOT_ROWS_ONES(above, RAOT_ROWS_SMMLAR, RAOT_ROWS_NORMAL)
RAOT_ROWS_ONES(twice, RAOT_ROWS_LOWERED, RAOT_ROWS_NORMAL)
#else
#define RAOT_ROWS_RUNS(FORM, LEAST)                                                               \
    static inline int32_t raot_rows_##FORM##_strided(int8_t *out, const int32_t *sums,            \
                                                     const int32_t *scales, const int8_t *shifts, \
                                                     int32_t rows, const struct raot_rows *sizes) \
    {                                                                                             \
        for (; rows > 0; rows--) {                                                                \
            const int32_t by = raot_rows_scale(*scales, shifts);                                  \
            const int32_t down = -raot_rows_shift(*scales, shifts, 0, -sizes->down);              \
            if (down < 1 || down > 20 || by < (LEAST)) {                                          \
                break;                                                                            \
            }                                                                                     \
            const int32_t offset = sizes->zero * ((int32_t)1 << (down - 1));                      \
            for (int32_t p = 0; p < sizes->positions; p++) {                                      \
                const int32_t scaled = raot_rows_##FORM(sums[p], by) + offset;                    \
                out[p * sizes->step] = raot_clamp_i8(scaled >> down);                             \
            }                                                                                     \
            out += sizes->channel_step;                                                           \
            sums += sizes->sum_bytes / 4;                                                         \
            scales += sizes->scale_step;                                                          \
            shifts = raot_rows_from(shifts, sizes->scale_step);                                   \
        }                                                                                         \
        return rows;                                                                              \
    }                                                                                             \
    static inline int32_t raot_rows_##FORM##_contiguous(                                          \
        int8_t *out, const int32_t *sums, const int32_t *scales, const int8_t *shifts,            \
        int32_t rows, const struct raot_rows *sizes)                                              \
    {                                                                                             \
        return raot_rows_##FORM##_strided(out, sums, scales, shifts, rows, sizes);                \
    }                                                                                             \
    static inline int32_t raot_rows_##FORM##_single(int8_t *out, const int32_t *sums,             \
                                                    const int32_t *scales, const int8_t *shifts,  \
                                                    int32_t rows, const struct raot_rows *sizes)  \
    {                                                                                             \
        return raot_rows_##FORM##_strided(out, sums, scales, shifts, rows, sizes);                \
    }
RAOT_ROWS_RUNS(nearest, INT32_MIN)
RAOT_ROWS_RUNS(above, (int32_t)1 << 30)
RAOT_ROWS_RUNS(twice, (int32_t)1 << 30)
#endif
#undef RAOT_ROWS_RUNS

#if defined(RAOT_ASM_THUMB) && defined(__ARM_FP) && (__ARM_FP & 4)
/*
 * Rows of sums times a float, in the order of RAOT_ROWS_RUN: VCVTR rounds to nearest, halves to
 * even, and saturates. At least one position; results are those of BITS.
 *
 *     s0 to s3, s4        four sums, scale
 *     r3, r7, r10         steps of results and in bytes of sums, `zero`
 *
 *     [sp] to [sp, #8]    result, sums, scales of the row
 *     [sp, #16]           saved registers
 *     [sp, #48]           arguments: rows, sizes
 */
/* clang-format off */
#define RAOT_ROWS_TO_BYTE(X, SATURATE) "qadd " X ", " X ", r10\n " SATURATE " " X ", #8, " X "\n"
#define RAOT_ROWS_OF_FLOATS(NAME, SATURATE, STORE, FOUR) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT int8_t *out, RAOT_ARGUMENT const int32_t *sums, \
        RAOT_ARGUMENT const float *scales, RAOT_ARGUMENT int32_t channel_step, \
        RAOT_ARGUMENT int32_t rows, RAOT_ARGUMENT const struct raot_rows *sizes) \
    { \
        __asm volatile( \
            "push {r0-r8, r10, r11, lr}\n ldr r12, [sp, #48]\n ldr lr, [sp, #52]\n" \
            "ldr r11, [lr, #8]\n ldr r7, [lr, #12]\n ldr r10, [lr, #20]\n" \
            "1: ldr r0, [sp]\n ldr r1, [sp, #4]\n ldr r4, [sp, #8]\n ldr r6, [lr, #16]\n" \
            "vldr s4, [r4]\n add r4, r4, r6, lsl #2\n str r4, [sp, #8]\n" \
            "add r5, r0, r3\n add r6, r1, r7\n strd r5, r6, [sp]\n ldr r2, [lr]\n" \
            "subs r2, #4\n blt 3f\n" \
            "2: vldmia r1!, {s0-s3}\n" \
            "vcvt.f32.s32 s0, s0\n vcvt.f32.s32 s1, s1\n vcvt.f32.s32 s2, s2\n" \
            "vcvt.f32.s32 s3, s3\n vmul.f32 s0, s0, s4\n vmul.f32 s1, s1, s4\n" \
            "vmul.f32 s2, s2, s4\n vmul.f32 s3, s3, s4\n vcvtr.s32.f32 s0, s0\n" \
            "vcvtr.s32.f32 s1, s1\n vcvtr.s32.f32 s2, s2\n vcvtr.s32.f32 s3, s3\n" \
            "vmov r4, r5, s0, s1\n vmov r6, r8, s2, s3\n" \
            RAOT_ROWS_TO_BYTE("r4", SATURATE) RAOT_ROWS_TO_BYTE("r5", SATURATE) \
            RAOT_ROWS_TO_BYTE("r6", SATURATE) RAOT_ROWS_TO_BYTE("r8", SATURATE) \
            FOUR \
            "subs r2, #4\n bge 2b\n" \
            "3: adds r2, #4\n beq 5f\n" \
            "4: vldmia r1!, {s0}\n vcvt.f32.s32 s0, s0\n vmul.f32 s0, s0, s4\n" \
            "vcvtr.s32.f32 s0, s0\n vmov r4, s0\n" RAOT_ROWS_TO_BYTE("r4", SATURATE) STORE("r4") \
            "subs r2, #1\n bne 4b\n" \
            "5: subs r12, #1\n bgt 1b\n" \
            "add sp, #16\n pop {r4-r8, r10, r11, pc}\n"); \
    }
/* clang-format on */
RAOT_ROWS_OF_FLOATS(raot_rows_f32_s8_contiguous, "ssat", RAOT_ROWS_CONTIGUOUS,
                    RAOT_ROWS_FOUR_CONTIGUOUS)
RAOT_ROWS_OF_FLOATS(raot_rows_f32_s8_strided, "ssat", RAOT_ROWS_STRIDED, RAOT_ROWS_FOUR_STRIDED)
RAOT_ROWS_OF_FLOATS(raot_rows_f32_u8_contiguous, "usat", RAOT_ROWS_CONTIGUOUS,
                    RAOT_ROWS_FOUR_CONTIGUOUS)
RAOT_ROWS_OF_FLOATS(raot_rows_f32_u8_strided, "usat", RAOT_ROWS_STRIDED, RAOT_ROWS_FOUR_STRIDED)

/* All rows at once, where results are clipped to all values of a byte. */
#define RAOT_ROWS_ALL(N)                                                                       \
    {                                                                                          \
        const struct raot_rows sizes = {positions,  channel_step, step, 4 * sum_step,          \
                                        scale_step, zero,         0};                          \
        if (step == 1) {                                                                       \
            raot_rows_f32_##N##_contiguous(out, sums, scales, channel_step, channels, &sizes); \
        } else {                                                                               \
            raot_rows_f32_##N##_strided(out, sums, scales, channel_step, channels, &sizes);    \
        }                                                                                      \
        break;                                                                                 \
    }
#define RAOT_ROWS_FLOATS(FORM)                                   \
    if (positions > 0 && low == INT8_MIN && high == INT8_MAX) {  \
        RAOT_ROWS_ALL(s8)                                        \
    } else if (positions > 0 && low == 0 && high == UINT8_MAX) { \
        RAOT_ROWS_ALL(u8)                                        \
    } else {                                                     \
        /* Rows that are clipped follow. */                      \
    }
#endif

/* Rows from n on, as one row where they follow each other; then n is the first one that is left. */
#define RAOT_ROWS_FAST(FORM)                                                                    \
    if (low == INT8_MIN && high == INT8_MAX && zero >= INT8_MIN && zero <= INT8_MAX &&          \
        positions > 0) {                                                                        \
        const int whole =                                                                       \
            scale_step == 0 && step == 1 && sum_step == positions && channel_step == positions; \
        const int32_t rows = whole != 0 ? 1 : channels - n;                                     \
        const int32_t length = whole != 0 ? positions * (channels - n) : positions;             \
        const struct raot_rows sizes = {length,     channel_step, step, 4 * sum_step,           \
                                        scale_step, 2 * zero + 1, -base};                       \
        int8_t *const first = out + n * channel_step;                                           \
        const int32_t *const from = sums + n * sum_step;                                        \
        const int32_t *const by = scales + n * scale_step;                                      \
        const int8_t *const downs = raot_rows_from(shifts, n * scale_step);                     \
        const int32_t rest =                                                                    \
            (length == 1 ? raot_rows_##FORM##_single(first, from, by, downs, rows, &sizes)      \
             : step == 1 ? raot_rows_##FORM##_contiguous(first, from, by, downs, rows, &sizes)  \
                         : raot_rows_##FORM##_strided(first, from, by, downs, rows, &sizes));   \
        n = rest == 0 ? channels : whole != 0 ? n : channels - rest;                            \
        if (n == channels) {                                                                    \
            break;                                                                              \
        }                                                                                       \
    }
/* A row whose results are clipped. */
#define RAOT_ROWS_BOUNDED(FORM, LEAST)                                                       \
    if (shift <= -1 && shift >= -20 && by >= (LEAST) && zero >= INT8_MIN && zero <= 255) {   \
        const int32_t offset = ((int32_t)1 << (-shift - 1)) + zero * ((int32_t)1 << -shift); \
        for (int32_t p = 0; p < positions; p++) {                                            \
            const int32_t scaled = raot_rows_##FORM(row[p], by) + offset;                    \
            to[p * step] = raot_rows_clamped(scaled >> -shift, low, high);                   \
        }                                                                                    \
    } else
#else
/* Clamped before `zero` is added, whose magnitude is below 2^14. */
static inline int8_t raot_rows_limited(int32_t code, int32_t zero, int32_t low, int32_t high)
{
    return (int8_t)(uint8_t)(code < low - zero ? low : code > high - zero ? high : code + zero);
}

#define RAOT_ROWS_FAST(FORM)
#define RAOT_ROWS_BOUNDED(FORM, LEAST) RAOT_ROWS_BOUNDED_##FORM
#define RAOT_ROWS_BOUNDED_nearest                                                \
    if (shift <= -1 && shift >= -30) {                                           \
        const int32_t half = (int32_t)1 << (-shift - 1);                         \
        for (int32_t p = 0; p < positions; p++) {                                \
            const int32_t code = (raot_upper_half(row[p], by) + half) >> -shift; \
            to[p * step] = raot_rows_limited(code, zero, low, high);             \
        }                                                                        \
    } else
#define RAOT_ROWS_BOUNDED_above
#define RAOT_ROWS_BOUNDED_twice
#endif
#if !defined(RAOT_ROWS_FLOATS)
#define RAOT_ROWS_FLOATS(FORM)
#endif
#if defined(RAOT_FLOAT_CALLS)
#define RAOT_ROWS_BOUNDED_FLOATS(FORM, LEAST)                              \
    const int32_t down = raot_scaled_shift(by);                            \
    if (down != 0) {                                                       \
        const int32_t digits = raot_scaled_digits(by);                     \
        for (int32_t p = 0; p < positions; p++) {                          \
            const int32_t code = raot_scaled_by(row[p], by, digits, down); \
            to[p * step] = raot_rows_limited(code, zero, low, high);       \
        }                                                                  \
    } else
#else
#define RAOT_ROWS_BOUNDED_FLOATS(FORM, LEAST)
#endif

#define RAOT_ROWS_OF_F32(X) raot_scaled_float(X, by)
#define RAOT_ROWS_OF_NEAREST(X) raot_requantize_nhwc_rounded(raot_upper_half(X, by), shift)
#define RAOT_ROWS_OF_ABOVE(X) raot_requantize_nhwc_rounded(raot_requantize_nhwc_high(X, by), shift)
#define RAOT_ROWS_OF_TWICE(X)                                                                  \
    raot_requantize_nhwc_rounded(raot_requantize_nhwc_lower(raot_requantize_nhwc_high(X, by)), \
                                 shift)

#define RAOT_REQUANTIZE_ROWS(FORM, T, SHIFTS, SCALE, SHIFT, FAST, BOUNDED, LEAST, ONE)    \
    __attribute__((noinline, unused)) static void raot_requantize_rows_##FORM##_unpacked( \
        int8_t *out, const int32_t *sums, const T *scales, SHIFTS int32_t channels,       \
        int32_t positions, int32_t channel_step, int32_t step, int32_t sum_step,          \
        int32_t scale_step, int32_t zero, int32_t low, int32_t high)                      \
    {                                                                                     \
        int32_t n = 0;                                                                    \
        while (n < channels) {                                                            \
            FAST(FORM)                                                                    \
            const T by = SCALE(scales[n * scale_step]);                                   \
            const int32_t shift = SHIFT(scales[n * scale_step]);                          \
            const int32_t *const row = sums + n * sum_step;                               \
            int8_t *const to = out + n * channel_step;                                    \
            BOUNDED(FORM, LEAST)                                                          \
            {                                                                             \
                for (int32_t p = 0; p < positions; p++) {                                 \
                    to[p * step] = raot_rows_limited(ONE(row[p]), zero, low, high);       \
                }                                                                         \
            }                                                                             \
            (void)shift;                                                                  \
            n++;                                                                          \
        }                                                                                 \
    }

#define RAOT_ROWS_SHIFTS const int8_t *shifts, int32_t base,
#define RAOT_ROWS_SCALE(WORD) raot_rows_scale(WORD, shifts)
#define RAOT_ROWS_SHIFT(WORD) raot_rows_shift(WORD, shifts, n *scale_step, base)
#define RAOT_ROWS_FLOAT(X) X
#define RAOT_ROWS_NO_SHIFT(X) 0
RAOT_REQUANTIZE_ROWS(f32, float, , RAOT_ROWS_FLOAT, RAOT_ROWS_NO_SHIFT, RAOT_ROWS_FLOATS,
                     RAOT_ROWS_BOUNDED_FLOATS, 0, RAOT_ROWS_OF_F32)
RAOT_REQUANTIZE_ROWS(nearest, int32_t, RAOT_ROWS_SHIFTS, RAOT_ROWS_SCALE, RAOT_ROWS_SHIFT,
                     RAOT_ROWS_FAST, RAOT_ROWS_BOUNDED, INT32_MIN, RAOT_ROWS_OF_NEAREST)
RAOT_REQUANTIZE_ROWS(above, int32_t, RAOT_ROWS_SHIFTS, RAOT_ROWS_SCALE, RAOT_ROWS_SHIFT,
                     RAOT_ROWS_FAST, RAOT_ROWS_BOUNDED, (int32_t)1 << 30, RAOT_ROWS_OF_ABOVE)
RAOT_REQUANTIZE_ROWS(twice, int32_t, RAOT_ROWS_SHIFTS, RAOT_ROWS_SCALE, RAOT_ROWS_SHIFT,
                     RAOT_ROWS_FAST, RAOT_ROWS_BOUNDED, (int32_t)1 << 30, RAOT_ROWS_OF_TWICE)
#undef RAOT_REQUANTIZE_ROWS

/* Unsigned bytes are stored like signed ones. */
#define raot_requantize_rows_f32_u8_unpacked(out, ...) \
    raot_requantize_rows_f32_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_rows_nearest_u8_unpacked(out, ...) \
    raot_requantize_rows_nearest_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_rows_above_u8_unpacked(out, ...) \
    raot_requantize_rows_above_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_rows_twice_u8_unpacked(out, ...) \
    raot_requantize_rows_twice_unpacked((int8_t *)(out), __VA_ARGS__)

/* Sizes of the functions below, by name. */
struct raot_requantize_rows {
    int32_t channels;
    int32_t positions;
    int32_t channel_step;
    int32_t step;
    int32_t sum_step;
    int32_t scale_step;
    int32_t zero;
    int32_t low;
    int32_t high;
};

#define raot_requantize_rows_f32(out, sums, scales, sizes)                                      \
    raot_requantize_rows_f32_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                      (sizes)->channel_step, (sizes)->step, (sizes)->sum_step,  \
                                      (sizes)->scale_step, (sizes)->zero, (sizes)->low,         \
                                      (sizes)->high)

#define raot_requantize_rows_f32_u8(out, sums, scales, sizes)                                      \
    raot_requantize_rows_f32_u8_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                         (sizes)->channel_step, (sizes)->step, (sizes)->sum_step,  \
                                         (sizes)->scale_step, (sizes)->zero, (sizes)->low,         \
                                         (sizes)->high)

/* Sizes as arguments. */
#define RAOT_ROWS_SIZES(SIZES)                                                   \
    (SIZES)->channels, (SIZES)->positions, (SIZES)->channel_step, (SIZES)->step, \
        (SIZES)->sum_step, (SIZES)->scale_step, (SIZES)->zero, (SIZES)->low, (SIZES)->high

#define raot_requantize_rows_nearest(out, sums, scales, shifts, sizes) \
    raot_requantize_rows_nearest_unpacked(out, sums, scales, shifts, 0, RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_nearest_word(out, sums, scales, base, sizes) \
    raot_requantize_rows_nearest_unpacked(out, sums, scales, NULL, *(base), RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_nearest_u8(out, sums, scales, shifts, sizes) \
    raot_requantize_rows_nearest_u8_unpacked(out, sums, scales, shifts, 0, RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_nearest_word_u8(out, sums, scales, base, sizes)   \
    raot_requantize_rows_nearest_u8_unpacked(out, sums, scales, NULL, *(base), \
                                             RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_above(out, sums, scales, shifts, sizes) \
    raot_requantize_rows_above_unpacked(out, sums, scales, shifts, 0, RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_above_word(out, sums, scales, base, sizes) \
    raot_requantize_rows_above_unpacked(out, sums, scales, NULL, *(base), RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_above_u8(out, sums, scales, shifts, sizes) \
    raot_requantize_rows_above_u8_unpacked(out, sums, scales, shifts, 0, RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_above_word_u8(out, sums, scales, base, sizes) \
    raot_requantize_rows_above_u8_unpacked(out, sums, scales, NULL, *(base), RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_twice(out, sums, scales, shifts, sizes) \
    raot_requantize_rows_twice_unpacked(out, sums, scales, shifts, 0, RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_twice_word(out, sums, scales, base, sizes) \
    raot_requantize_rows_twice_unpacked(out, sums, scales, NULL, *(base), RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_twice_u8(out, sums, scales, shifts, sizes) \
    raot_requantize_rows_twice_u8_unpacked(out, sums, scales, shifts, 0, RAOT_ROWS_SIZES(sizes))

#define raot_requantize_rows_twice_word_u8(out, sums, scales, base, sizes) \
    raot_requantize_rows_twice_u8_unpacked(out, sums, scales, NULL, *(base), RAOT_ROWS_SIZES(sizes))

#endif
