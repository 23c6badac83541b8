/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_rows.h - requantization of rows of i32 sums, one per channel, to bytes.
 *
 * out[n * channel_step + p * step] is the requantized sum p of channel n, plus `zero`, clamped to
 * low..high. The variants are those of requantize_nhwc.h; `scales` are the multiplier of each
 * channel, followed by its shift (not for floats). The sums of channel n start at sums[n *
 * sum_step].
 */
#ifndef RAOT_REQUANTIZE_ROWS_H
#define RAOT_REQUANTIZE_ROWS_H

#include <stdint.h>

#include "dsp.h"
#include "requantize_nhwc.h"

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
    return (int32_t)(((int64_t)twice * by + INT64_C(0x80000000)) >> 32);
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

#if defined(RAOT_ASM_INLINE) && defined(__thumb2__)
/* clang-format off */
#define RAOT_ROWS_SMMUL(X) "smmul " X ", " X ", %[by]\n"
#define RAOT_ROWS_SMMULR(X) "qadd " X ", " X ", " X "\n smmulr " X ", " X ", %[by]\n"
#define RAOT_ROWS_LOWERED(X) RAOT_ROWS_SMMULR(X) "add " X ", " X ", " X ", asr #31\n"
#define RAOT_ROWS_ROUNDED(X) \
    "add " X ", %[offset]\n asr " X ", %[down]\n ssat " X ", #8, " X "\n"
#define RAOT_ROWS_RUN(NAME, SCALE, STORE) \
    static inline void NAME(int8_t *to, const int32_t *from, int32_t count, int32_t by, \
                            int32_t offset, int32_t down, int32_t step) \
    { \
        __asm volatile( \
            "subs %[n], #4\n blt 2f\n" \
            "1: ldmia %[from]!, {r4, r5, r6, r8}\n" \
            SCALE("r4") SCALE("r5") SCALE("r6") SCALE("r8") \
            RAOT_ROWS_ROUNDED("r4") RAOT_ROWS_ROUNDED("r5") \
            RAOT_ROWS_ROUNDED("r6") RAOT_ROWS_ROUNDED("r8") \
            STORE("r4") STORE("r5") STORE("r6") STORE("r8") \
            "subs %[n], #4\n bge 1b\n" \
            "2: adds %[n], #4\n beq 4f\n" \
            "3: ldr r4, [%[from]], #4\n" SCALE("r4") RAOT_ROWS_ROUNDED("r4") STORE("r4") \
            "subs %[n], #1\n bne 3b\n" \
            "4:\n" \
            : [to] "+r"(to), [from] "+r"(from), [n] "+r"(count) \
            : [by] "r"(by), [offset] "r"(offset), [down] "r"(down), [step] "r"(step) \
            : "r4", "r5", "r6", "r8", "cc", "memory"); \
    }
#define RAOT_ROWS_CONTIGUOUS(X) "strb " X ", [%[to]], #1\n"
#define RAOT_ROWS_STRIDED(X) "strb " X ", [%[to]]\n add %[to], %[step]\n"
/* clang-format on */
#define RAOT_ROWS_RUNS(FORM, SCALE)                                           \
    RAOT_ROWS_RUN(raot_rows_##FORM##_contiguous, SCALE, RAOT_ROWS_CONTIGUOUS) \
    RAOT_ROWS_RUN(raot_rows_##FORM##_strided, SCALE, RAOT_ROWS_STRIDED)
RAOT_ROWS_RUNS(nearest, RAOT_ROWS_SMMUL)
RAOT_ROWS_RUNS(above, RAOT_ROWS_SMMULR)
RAOT_ROWS_RUNS(twice, RAOT_ROWS_LOWERED)
#else
#define RAOT_ROWS_RUNS(FORM)                                                                      \
    static inline void raot_rows_##FORM##_strided(int8_t *to, const int32_t *from, int32_t count, \
                                                  int32_t by, int32_t offset, int32_t down,       \
                                                  int32_t step)                                   \
    {                                                                                             \
        for (int32_t p = 0; p < count; p++) {                                                     \
            to[p * step] = raot_clamp_i8((raot_rows_##FORM(from[p], by) + offset) >> down);       \
        }                                                                                         \
    }                                                                                             \
    static inline void raot_rows_##FORM##_contiguous(int8_t *to, const int32_t *from,             \
                                                     int32_t count, int32_t by, int32_t offset,   \
                                                     int32_t down, int32_t step)                  \
    {                                                                                             \
        raot_rows_##FORM##_strided(to, from, count, by, offset, down, step);                      \
    }
RAOT_ROWS_RUNS(nearest)
RAOT_ROWS_RUNS(above)
RAOT_ROWS_RUNS(twice)
#endif
#undef RAOT_ROWS_RUNS

#define RAOT_ROWS_FAST(FORM, LEAST)                                                          \
    const int32_t down = -scales[1];                                                         \
    if (down >= 1 && down <= 20 && by >= (LEAST) && zero >= INT8_MIN && zero <= UINT8_MAX) { \
        const int32_t offset = (1 << (down - 1)) + zero * (1 << down);                       \
        if (low != INT8_MIN || high != INT8_MAX) {                                           \
            for (int32_t p = 0; p < positions; p++) {                                        \
                const int32_t scaled = raot_rows_##FORM(from[p], by) + offset;               \
                to[p * step] = raot_rows_clamped(scaled >> down, low, high);                 \
            }                                                                                \
        } else if (step == 1) {                                                              \
            raot_rows_##FORM##_contiguous(to, from, positions, by, offset, down, step);      \
        } else {                                                                             \
            raot_rows_##FORM##_strided(to, from, positions, by, offset, down, step);         \
        }                                                                                    \
        continue;                                                                            \
    }
#else
#define RAOT_ROWS_FAST(FORM, LEAST)
#endif
#define RAOT_ROWS_NEVER(FORM, LEAST)

#define RAOT_ROWS_OF_F32(X) raot_f32_to_i32_nearest((float)(X)*by)
#define RAOT_ROWS_OF_NEAREST(X) \
    raot_requantize_nhwc_rounded((int32_t)(((int64_t)(X)*by) >> 32), scales[1])
#define RAOT_ROWS_OF_ABOVE(X) \
    raot_requantize_nhwc_rounded(raot_requantize_nhwc_high(X, by), scales[1])
#define RAOT_ROWS_OF_TWICE(X)                                                                  \
    raot_requantize_nhwc_rounded(raot_requantize_nhwc_lower(raot_requantize_nhwc_high(X, by)), \
                                 scales[1])

#define RAOT_REQUANTIZE_ROWS(FORM, T, PARTS, FAST, LEAST, ONE)                                  \
    __attribute__((noinline, unused)) static void raot_requantize_rows_##FORM##_unpacked(       \
        int8_t *out, const int32_t *sums, const T *scales, int32_t channels, int32_t positions, \
        int32_t channel_step, int32_t step, int32_t sum_step, int32_t zero, int32_t low,        \
        int32_t high)                                                                           \
    {                                                                                           \
        for (int32_t n = 0; n < channels; n++, scales += PARTS) {                               \
            const T by = scales[0];                                                             \
            const int32_t *from = sums + n * sum_step;                                          \
            int8_t *to = out + n * channel_step;                                                \
            FAST(FORM, LEAST)                                                                   \
            for (int32_t p = 0; p < positions; p++) {                                           \
                const int64_t code = (int64_t)ONE(from[p]) + zero;                              \
                to[p * step] = (int8_t)(uint8_t)(code < low ? low : code > high ? high : code); \
            }                                                                                   \
        }                                                                                       \
    }

RAOT_REQUANTIZE_ROWS(f32, float, 1, RAOT_ROWS_NEVER, 0, RAOT_ROWS_OF_F32)
RAOT_REQUANTIZE_ROWS(nearest, int32_t, 2, RAOT_ROWS_FAST, 0, RAOT_ROWS_OF_NEAREST)
RAOT_REQUANTIZE_ROWS(above, int32_t, 2, RAOT_ROWS_FAST, 1 << 30, RAOT_ROWS_OF_ABOVE)
RAOT_REQUANTIZE_ROWS(twice, int32_t, 2, RAOT_ROWS_FAST, 1 << 30, RAOT_ROWS_OF_TWICE)
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
    int32_t zero;
    int32_t low;
    int32_t high;
};

#define raot_requantize_rows_f32(out, sums, scales, sizes)                                      \
    raot_requantize_rows_f32_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                      (sizes)->channel_step, (sizes)->step, (sizes)->sum_step,  \
                                      (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_f32_u8(out, sums, scales, sizes)                                      \
    raot_requantize_rows_f32_u8_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                         (sizes)->channel_step, (sizes)->step, (sizes)->sum_step,  \
                                         (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_nearest(out, sums, scales, sizes)                           \
    raot_requantize_rows_nearest_unpacked(                                               \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->channel_step, \
        (sizes)->step, (sizes)->sum_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_nearest_u8(out, sums, scales, sizes)                        \
    raot_requantize_rows_nearest_u8_unpacked(                                            \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->channel_step, \
        (sizes)->step, (sizes)->sum_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_above(out, sums, scales, sizes)                                      \
    raot_requantize_rows_above_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                        (sizes)->channel_step, (sizes)->step, (sizes)->sum_step,  \
                                        (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_above_u8(out, sums, scales, sizes)                          \
    raot_requantize_rows_above_u8_unpacked(                                              \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->channel_step, \
        (sizes)->step, (sizes)->sum_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_twice(out, sums, scales, sizes)                                      \
    raot_requantize_rows_twice_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                        (sizes)->channel_step, (sizes)->step, (sizes)->sum_step,  \
                                        (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_rows_twice_u8(out, sums, scales, sizes)                          \
    raot_requantize_rows_twice_u8_unpacked(                                              \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->channel_step, \
        (sizes)->step, (sizes)->sum_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#endif
