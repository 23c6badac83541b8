/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_channel.h - requantization of the i32 sums of one channel to bytes.
 *
 * out[r * line_step + c * step], for r < lines and c < count, is the requantized sum r * count +
 * c plus `start`, plus `zero`, clamped to low..high. Sums are read in blocks of eight. The
 * variants are those of requantize_nhwc.h; `scale` is the multiplier, followed by the shift (not
 * for floats). The results of seven columns are at most 65535 bytes apart.
 */
#ifndef RAOT_REQUANTIZE_CHANNEL_H
#define RAOT_REQUANTIZE_CHANNEL_H

#include <stdint.h>

#include "requantize_nhwc.h"

#if defined(RAOT_MVE_F32)
/* Even and odd sums separately, then interleaved in 16 bits, where they saturate. */
#define RAOT_REQUANTIZE_CHANNEL(SCALED)                                       \
    const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step); \
    const int16x8_t least = vdupq_n_s16((int16_t)low);                        \
    const int16x8_t most = vdupq_n_s16((int16_t)high);                        \
    if (line_step == count * step) {                                          \
        count *= lines;                                                       \
        lines = 1;                                                            \
    }                                                                         \
    for (int32_t r = 0; r < lines; r++) {                                     \
        const int32_t *from = sums + r * count;                               \
        int8_t *to = out + r * line_step;                                     \
        for (int32_t c = count; c > 0; c -= 8) {                              \
            const mve_pred16_t some = vctp16q((uint32_t)c);                   \
            RAOT_KEEP_ADDRESS(from);                                          \
            const int32x4x2_t x = vld2q_s32(from);                            \
            const int32x4_t even = SCALED(vaddq_n_s32(x.val[0], start));      \
            const int32x4_t odd = SCALED(vaddq_n_s32(x.val[1], start));       \
            int16x8_t y = vqmovnbq_s32(vreinterpretq_s16_s32(even), even);    \
            y = vqaddq_n_s16(vqmovntq_s32(y, odd), (int16_t)zero);            \
            y = vmaxq_s16(vminq_s16(y, most), least);                         \
            if (contiguous != 0) {                                            \
                vstrbq_p_s16(to, y, some);                                    \
            } else {                                                          \
                vstrbq_scatter_offset_p_s16(to, apart, y, some);              \
            }                                                                 \
            from += 8;                                                        \
            to += 8 * step;                                                   \
        }                                                                     \
    }
#define RAOT_REQUANTIZE_CHANNEL_F32(X) vcvtnq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(X), by))
#define RAOT_REQUANTIZE_CHANNEL_NEAREST(X) vrshlq_n_s32(vmulhq_s32(X, vdupq_n_s32(by)), shift)
#define RAOT_REQUANTIZE_CHANNEL_ABOVE(X) vrshlq_n_s32(vqrdmulhq_n_s32(X, by), shift)
#define RAOT_REQUANTIZE_CHANNEL_TWICE(X) vrshlq_n_s32(raot_lower(vqrdmulhq_n_s32(X, by)), shift)
#else
#define RAOT_REQUANTIZE_CHANNEL(SCALED)                                                     \
    for (int32_t r = 0; r < lines; r++) {                                                   \
        for (int32_t c = 0; c < count; c++) {                                               \
            const int32_t sum = (int32_t)((uint32_t)sums[r * count + c] + (uint32_t)start); \
            const int64_t code = (int64_t)SCALED(sum) + zero;                               \
            out[r * line_step + c * step] = (int8_t)(uint8_t)(code < low    ? low           \
                                                              : code > high ? high          \
                                                                            : code);        \
        }                                                                                   \
    }
#define RAOT_REQUANTIZE_CHANNEL_F32(X) raot_scaled(X, by)
#define RAOT_REQUANTIZE_CHANNEL_NEAREST(X) \
    raot_requantize_nhwc_rounded(raot_upper_half(X, by), shift)
#define RAOT_REQUANTIZE_CHANNEL_ABOVE(X) \
    raot_requantize_nhwc_rounded(raot_requantize_nhwc_high(X, by), shift)
#define RAOT_REQUANTIZE_CHANNEL_TWICE(X)                                                       \
    raot_requantize_nhwc_rounded(raot_requantize_nhwc_lower(raot_requantize_nhwc_high(X, by)), \
                                 shift)
#endif

#if defined(RAOT_REQUANTIZE_MVE)
#define RAOT_REQUANTIZE_CHANNEL_FORM(NAME, MANY, LINES, T, PER, SHIFT, SCALED)                    \
    __attribute__((noinline, unused)) static void NAME##_unpacked(                                \
        int8_t *out, const int32_t *sums, const int32_t *start, const T *scale, int32_t lines,    \
        int32_t count, int32_t line_step, int32_t step, int32_t zero, int32_t low, int32_t high)  \
    {                                                                                             \
        const int follow = line_step == count * step;                                             \
        const int32_t all = follow ? lines * count : count;                                       \
        struct raot_requantize_lines sizes = {                                                    \
            follow ? 1 : lines, all, line_step, step, zero, low, high, count, start};             \
        if (step == 1) {                                                                          \
            LINES##_contiguous(out, sums, scale, &sizes);                                         \
        } else {                                                                                  \
            LINES##_apart(out, sums, scale, &sizes);                                              \
        }                                                                                         \
    }                                                                                             \
    __attribute__((noinline, unused)) static void MANY##_unpacked(                                \
        int8_t *out, const int32_t *sums, const int32_t *start, const T *scale, int32_t channels, \
        int32_t count, int32_t channel_step, int32_t step, int32_t zero, int32_t low,             \
        int32_t high)                                                                             \
    {                                                                                             \
        struct raot_requantize_lines sizes = {channels, count, channel_step,        step, zero,   \
                                              low,      high,  (count + 7) / 8 * 8, start};       \
        if (low == INT8_MIN && high == INT8_MAX) {                                                \
            LINES##_saturated_each(out, sums, scale, &sizes);                                     \
        } else if (step == 1) {                                                                   \
            LINES##_contiguous_each(out, sums, scale, &sizes);                                    \
        } else {                                                                                  \
            LINES##_apart_each(out, sums, scale, &sizes);                                         \
        }                                                                                         \
    }
#else
#define RAOT_REQUANTIZE_CHANNEL_FORM(NAME, MANY, LINES, T, PER, SHIFT, SCALED)                     \
    __attribute__((always_inline)) static inline void NAME##_of(                                   \
        int8_t *out, const int32_t *sums, int32_t start, const T by, int32_t shift, int32_t lines, \
        int32_t count, int32_t line_step, int32_t step, int32_t zero, int32_t low, int32_t high,   \
        const int contiguous)                                                                      \
    {                                                                                              \
        RAOT_REQUANTIZE_CHANNEL(SCALED)                                                            \
        (void)contiguous;                                                                          \
        (void)shift;                                                                               \
    }                                                                                              \
    __attribute__((noinline, unused)) static void NAME##_unpacked(                                 \
        int8_t *out, const int32_t *sums, const int32_t *start, const T *scale, int32_t lines,     \
        int32_t count, int32_t line_step, int32_t step, int32_t zero, int32_t low, int32_t high)   \
    {                                                                                              \
        if (step == 1) {                                                                           \
            NAME##_of(out, sums, *start, *scale, SHIFT, lines, count, line_step, 1, zero, low,     \
                      high, 1);                                                                    \
        } else {                                                                                   \
            NAME##_of(out, sums, *start, *scale, SHIFT, lines, count, line_step, step, zero, low,  \
                      high, 0);                                                                    \
        }                                                                                          \
    }                                                                                              \
    __attribute__((noinline, unused)) static void MANY##_unpacked(                                 \
        int8_t *out, const int32_t *sums, const int32_t *start, const T *scale, int32_t channels,  \
        int32_t count, int32_t channel_step, int32_t step, int32_t zero, int32_t low,              \
        int32_t high)                                                                              \
    {                                                                                              \
        for (int32_t c = 0; c < channels; c++) {                                                   \
            NAME##_unpacked(out + c * channel_step, sums + c * ((count + 7) / 8 * 8), start + c,   \
                            scale + c * PER, 1, count, count * step, step, zero, low, high);       \
        }                                                                                          \
    }
#endif

RAOT_REQUANTIZE_CHANNEL_FORM(raot_requantize_channel_f32, raot_requantize_channels_f32,
                             raot_requantize_lines_f32, float, 1, 0, RAOT_REQUANTIZE_CHANNEL_F32)
RAOT_REQUANTIZE_CHANNEL_FORM(raot_requantize_channel_nearest, raot_requantize_channels_nearest,
                             raot_requantize_lines_nearest, int32_t, 2, scale[1],
                             RAOT_REQUANTIZE_CHANNEL_NEAREST)
RAOT_REQUANTIZE_CHANNEL_FORM(raot_requantize_channel_twice, raot_requantize_channels_twice,
                             raot_requantize_lines_twice, int32_t, 2, scale[1],
                             RAOT_REQUANTIZE_CHANNEL_TWICE)
RAOT_REQUANTIZE_CHANNEL_FORM(raot_requantize_channel_above, raot_requantize_channels_above,
                             raot_requantize_lines_above, int32_t, 2, scale[1],
                             RAOT_REQUANTIZE_CHANNEL_ABOVE)

/* Unsigned bytes are stored like signed ones. */
#define raot_requantize_channel_f32_u8_unpacked(out, ...) \
    raot_requantize_channel_f32_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_channel_nearest_u8_unpacked(out, ...) \
    raot_requantize_channel_nearest_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_channel_twice_u8_unpacked(out, ...) \
    raot_requantize_channel_twice_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_channel_above_u8_unpacked(out, ...) \
    raot_requantize_channel_above_unpacked((int8_t *)(out), __VA_ARGS__)

/* Sizes of the functions below, by name. */
struct raot_requantize_channel {
    int32_t lines;
    int32_t count;
    int32_t line_step;
    int32_t step;
    int32_t zero;
    int32_t low;
    int32_t high;
};

#define raot_requantize_channel_f32(out, sums, start, scale, sizes)                               \
    raot_requantize_channel_f32_unpacked(out, sums, start, scale, (sizes)->lines, (sizes)->count, \
                                         (sizes)->line_step, (sizes)->step, (sizes)->zero,        \
                                         (sizes)->low, (sizes)->high)

#define raot_requantize_channel_f32_u8(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_f32_u8_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                            (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                            (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_channel_nearest(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_nearest_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                             (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                             (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_channel_nearest_u8(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_nearest_u8_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                                (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                                (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_channel_above(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_above_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                           (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                           (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_channel_above_u8(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_above_u8_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                              (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                              (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_channel_twice(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_twice_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                           (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                           (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_channel_twice_u8(out, sums, start, scale, sizes)                         \
    raot_requantize_channel_twice_u8_unpacked(out, sums, start, scale, (sizes)->lines,           \
                                              (sizes)->count, (sizes)->line_step, (sizes)->step, \
                                              (sizes)->zero, (sizes)->low, (sizes)->high)

#endif
