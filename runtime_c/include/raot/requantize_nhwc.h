/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_nhwc.h - requantization of the i32 sums of multiply_nhwc.h to bytes, channels-last.
 *
 * out[p * out_step + n * channel_step] is the requantized sum of position p and channel n, plus
 * `zero`, clamped to low..high. `scales` contains the parameters of the channels in the order of
 * the groups: four multipliers, followed by four shifts, which are not positive (not for floats).
 *
 *     raot_requantize_nhwc_f32      the product in float, rounded to nearest, halves to even; it
 *                                   is not NaN and its magnitude is less than 2^30
 *     raot_requantize_nhwc_nearest  the product in 64 bits, divided by 2^(32 - shift), halves up
 *     raot_requantize_nhwc_twice    divided by 2^31, halves up, then by 2^-shift, halves away
 *                                   from 0
 *     raot_requantize_nhwc_above    the same, but halves up, if numbers below 0 are clamped
 */
#ifndef RAOT_REQUANTIZE_NHWC_H
#define RAOT_REQUANTIZE_NHWC_H

#include <stdint.h>

#include "convert.h"
#include "mve.h"
#include "requantize_mve.h"
#include "scaled.h"

/* The group of four of a channel, and its position in the group. */
static inline int32_t raot_requantize_nhwc_group(int32_t n, int32_t channels)
{
    return channels - n / 8 * 8 > 4 ? n / 8 * 2 + n % 2 : n / 8 * 2;
}

static inline int32_t raot_requantize_nhwc_lane(int32_t n, int32_t channels)
{
    return channels - n / 8 * 8 > 4 ? n % 8 / 2 : n % 8;
}

#if defined(RAOT_MVE_F32)
/*
 * Eight channels of a position: even and odd ones adjacent in 16 bits. Saturation to 16 bits does
 * not change the final result.
 */
#define RAOT_REQUANTIZE_NHWC_EIGHT(EVEN, ODD)                                               \
    const int32x4_t even = EVEN;                                                            \
    int16x8_t y = vqmovnbq_s32(vreinterpretq_s16_s32(even), even);                          \
    y = vqaddq_n_s16(vqmovntq_s32(y, ODD), (int16_t)zero);                                  \
    if (bounded != 0) {                                                                     \
        y = vmaxq_s16(vminq_s16(y, vdupq_n_s16((int16_t)high)), vdupq_n_s16((int16_t)low)); \
    } else {                                                                                \
        y = vreinterpretq_s16_s8(vqmovnbq_s16(vreinterpretq_s8_s16(y), y));                 \
    }                                                                                       \
    if (contiguous != 0) {                                                                  \
        vstrbq_p_s16(to, y, some);                                                          \
    } else {                                                                                \
        vstrbq_scatter_offset_p_s16(to, apart, y, some);                                    \
    }

#define RAOT_REQUANTIZE_NHWC(T, PER, PARTS, SCALED)                                          \
    const int bounded = low > INT8_MIN || high < INT8_MAX;                                   \
    const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)channel_step);        \
    for (int32_t n = 0; n < channels; n += 8) {                                              \
        const int32_t *from = sums + n * 2;                                                  \
        int8_t *to = out + n * channel_step;                                                 \
        PARTS(a, scales)                                                                     \
        if (channels - n > 4) {                                                              \
            const mve_pred16_t some = vctp16q((uint32_t)(channels - n));                     \
            PARTS(b, scales + PER)                                                           \
            for (int32_t p = 0; p < positions; p += 2) {                                     \
                {                                                                            \
                    RAOT_REQUANTIZE_NHWC_EIGHT(SCALED(from, a), SCALED(from + 8, b))         \
                    to += out_step;                                                          \
                }                                                                            \
                if (p + 1 < positions) {                                                     \
                    RAOT_REQUANTIZE_NHWC_EIGHT(SCALED(from + 4, a), SCALED(from + 12, b))    \
                    to += out_step;                                                          \
                }                                                                            \
                from += groups * 8;                                                          \
            }                                                                                \
        } else {                                                                             \
            const mve_pred16_t some = vctp32q((uint32_t)(channels - n));                     \
            const uint32x4_t four = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)channel_step); \
            for (int32_t p = 0; p < positions; p++) {                                        \
                int32x4_t x = vqaddq_n_s32(SCALED(from, a), zero);                           \
                x = vminq_s32(vmaxq_s32(x, vdupq_n_s32(low)), vdupq_n_s32(high));            \
                vstrbq_scatter_offset_p_s32(to, four, x, some);                              \
                to += out_step;                                                              \
                from += p % 2 == 0 ? 4 : groups * 8 - 4;                                     \
            }                                                                                \
        }                                                                                    \
        scales += 2 * PER;                                                                   \
    }
#else
#define RAOT_REQUANTIZE_NHWC(T, PER, PARTS, SCALED)                                         \
    for (int32_t p = 0; p < positions; p++) {                                               \
        for (int32_t n = 0; n < channels; n++) {                                            \
            const int32_t group = raot_requantize_nhwc_group(n, channels);                  \
            const int32_t lane = raot_requantize_nhwc_lane(n, channels);                    \
            const int32_t sum = sums[(p / 2 * groups + group) * 8 + p % 2 * 4 + lane];      \
            const T *const by = scales + group * PER + lane;                                \
            const int64_t code = (int64_t)SCALED(sum, by) + zero;                           \
            out[p * out_step + n * channel_step] = (int8_t)(uint8_t)(code < low    ? low    \
                                                                     : code > high ? high   \
                                                                                   : code); \
        }                                                                                   \
    }
#endif

/* Blocks of eight channels are done by `BLOCKS`, others by C. */
#if defined(RAOT_REQUANTIZE_MVE)
#define RAOT_REQUANTIZE_NHWC_FORM(NAME, OF, BLOCKS, T, PER, PARTS, SCALED)                      \
    __attribute__((noinline, unused)) static void NAME(                                         \
        int8_t *out, const int32_t *sums, const T *scales, int32_t channels, int32_t positions, \
        int32_t out_step, int32_t channel_step, int32_t zero, int32_t low, int32_t high)        \
    {                                                                                           \
        const int32_t groups = (channels + 3) / 4;                                              \
        const int32_t blocks = channels / 8;                                                    \
        const int contiguous = 0;                                                               \
        if (blocks > 0) {                                                                       \
            const struct raot_requantize_blocks sizes = {                                       \
                blocks,       positions, out_step, (groups - 2 * blocks) * 32,                  \
                channel_step, zero,      low,      high};                                       \
            if (channel_step == 1 && low == INT8_MIN && high == INT8_MAX) {                     \
                BLOCKS##_saturated(out, sums, scales, &sizes);                                  \
            } else if (channel_step == 1) {                                                     \
                BLOCKS##_contiguous(out, sums, scales, &sizes);                                 \
            } else {                                                                            \
                BLOCKS##_apart(out, sums, scales, &sizes);                                      \
            }                                                                                   \
            channels -= 8 * blocks;                                                             \
            if (channels == 0) {                                                                \
                return;                                                                         \
            }                                                                                   \
            out += 8 * blocks * channel_step;                                                   \
            sums += 16 * blocks;                                                                \
            scales += 2 * PER * blocks;                                                         \
        }                                                                                       \
        RAOT_REQUANTIZE_NHWC(T, PER, PARTS, SCALED)                                             \
    }
#else
/* Contiguous channels are stored at once: one loop body for them, one for others. */
#define RAOT_REQUANTIZE_NHWC_FORM(NAME, OF, BLOCKS, T, PER, PARTS, SCALED)                      \
    __attribute__((always_inline)) static inline void OF(                                       \
        int8_t *out, const int32_t *sums, const T *scales, int32_t channels, int32_t positions, \
        int32_t out_step, int32_t channel_step, int32_t zero, int32_t low, int32_t high,        \
        const int contiguous)                                                                   \
    {                                                                                           \
        const int32_t groups = (channels + 3) / 4;                                              \
        RAOT_REQUANTIZE_NHWC(T, PER, PARTS, SCALED)                                             \
        (void)contiguous;                                                                       \
    }                                                                                           \
    __attribute__((noinline, unused)) static void NAME(                                         \
        int8_t *out, const int32_t *sums, const T *scales, int32_t channels, int32_t positions, \
        int32_t out_step, int32_t channel_step, int32_t zero, int32_t low, int32_t high)        \
    {                                                                                           \
        if (channel_step == 1) {                                                                \
            OF(out, sums, scales, channels, positions, out_step, 1, zero, low, high, 1);        \
        } else {                                                                                \
            OF(out, sums, scales, channels, positions, out_step, channel_step, zero, low, high, \
               0);                                                                              \
        }                                                                                       \
    }
#endif

/* The bit behind the last one that is kept is what is added; behind 32 bits, results are 0. */
static inline int32_t raot_requantize_nhwc_rounded(int32_t x, int32_t shift)
{
    const int32_t behind = -shift - 1;

    return behind < 0 ? x : behind > 30 ? 0 : ((x >> behind) >> 1) + ((x >> behind) & 1);
}

static inline int32_t raot_requantize_nhwc_high(int32_t x, int32_t by)
{
#if defined(__thumb__) && !defined(__thumb2__)
    const uint32_t upper = (uint32_t)raot_upper_half(x, by);
    const uint32_t lower = (uint32_t)x * (uint32_t)by;
    return (int32_t)((upper << 1 | lower >> 31) + (lower >> 30 & 1u));
#else
    return (int32_t)(((int64_t)x * by + ((int64_t)1 << 30)) >> 31);
#endif
}

static inline int32_t raot_requantize_nhwc_lower(int32_t x)
{
    return x < 0 ? x - 1 : x;
}

#if defined(RAOT_MVE_F32)
#define RAOT_PARTS_F32(N, AT) const float32x4_t N##_factor = vld1q_f32(AT);
#define RAOT_PARTS_I32(N, AT)                   \
    const int32x4_t N##_factor = vld1q_s32(AT); \
    const int32x4_t N##_shift = vld1q_s32((AT) + 4);
#define RAOT_SCALED_F32(AT, N) vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(vld1q_s32(AT)), N##_factor))
#define RAOT_SCALED_NEAREST(AT, N) vrshlq_s32(vmulhq_s32(vld1q_s32(AT), N##_factor), N##_shift)
#define RAOT_SCALED_ABOVE(AT, N) vrshlq_s32(vqrdmulhq_s32(vld1q_s32(AT), N##_factor), N##_shift)
#define RAOT_SCALED_TWICE(AT, N) \
    vrshlq_s32(raot_lower(vqrdmulhq_s32(vld1q_s32(AT), N##_factor)), N##_shift)

/* Negative numbers are decremented, so that halves round away from zero. */
static inline int32x4_t raot_lower(int32x4_t x)
{
    return vaddq_s32(x, vshrq_n_s32(x, 31));
}
#else
#define RAOT_PARTS_F32(N, AT)
#define RAOT_PARTS_I32(N, AT)
#define RAOT_SCALED_F32(X, BY) raot_scaled(X, (BY)[0])
#define RAOT_SCALED_NEAREST(X, BY) \
    raot_requantize_nhwc_rounded(raot_upper_half(X, (BY)[0]), (BY)[4])
#define RAOT_SCALED_ABOVE(X, BY) \
    raot_requantize_nhwc_rounded(raot_requantize_nhwc_high(X, (BY)[0]), (BY)[4])
#define RAOT_SCALED_TWICE(X, BY)  \
    raot_requantize_nhwc_rounded( \
        raot_requantize_nhwc_lower(raot_requantize_nhwc_high(X, (BY)[0])), (BY)[4])
#endif

RAOT_REQUANTIZE_NHWC_FORM(raot_requantize_nhwc_f32_unpacked, raot_requantize_nhwc_f32_of,
                          raot_requantize_blocks_f32, float, 4, RAOT_PARTS_F32, RAOT_SCALED_F32)
RAOT_REQUANTIZE_NHWC_FORM(raot_requantize_nhwc_nearest_unpacked, raot_requantize_nhwc_nearest_of,
                          raot_requantize_blocks_nearest, int32_t, 8, RAOT_PARTS_I32,
                          RAOT_SCALED_NEAREST)
RAOT_REQUANTIZE_NHWC_FORM(raot_requantize_nhwc_twice_unpacked, raot_requantize_nhwc_twice_of,
                          raot_requantize_blocks_twice, int32_t, 8, RAOT_PARTS_I32,
                          RAOT_SCALED_TWICE)
RAOT_REQUANTIZE_NHWC_FORM(raot_requantize_nhwc_above_unpacked, raot_requantize_nhwc_above_of,
                          raot_requantize_blocks_above, int32_t, 8, RAOT_PARTS_I32,
                          RAOT_SCALED_ABOVE)

/* Unsigned bytes are stored like signed ones. */
#define raot_requantize_nhwc_f32_u8_unpacked(out, ...) \
    raot_requantize_nhwc_f32_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_nhwc_nearest_u8_unpacked(out, ...) \
    raot_requantize_nhwc_nearest_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_nhwc_twice_u8_unpacked(out, ...) \
    raot_requantize_nhwc_twice_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_nhwc_above_u8_unpacked(out, ...) \
    raot_requantize_nhwc_above_unpacked((int8_t *)(out), __VA_ARGS__)

/* Sizes of the functions below, by name. */
struct raot_requantize_nhwc {
    int32_t channels;
    int32_t positions;
    int32_t out_step;
    int32_t channel_step;
    int32_t zero;
    int32_t low;
    int32_t high;
};

#define raot_requantize_nhwc_f32(out, sums, scales, sizes)                                      \
    raot_requantize_nhwc_f32_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                      (sizes)->out_step, (sizes)->channel_step, (sizes)->zero,  \
                                      (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_f32_u8(out, sums, scales, sizes)                                      \
    raot_requantize_nhwc_f32_u8_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                         (sizes)->out_step, (sizes)->channel_step, (sizes)->zero,  \
                                         (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_nearest(out, sums, scales, sizes)                       \
    raot_requantize_nhwc_nearest_unpacked(                                           \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->out_step, \
        (sizes)->channel_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_nearest_u8(out, sums, scales, sizes)                    \
    raot_requantize_nhwc_nearest_u8_unpacked(                                        \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->out_step, \
        (sizes)->channel_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_above(out, sums, scales, sizes)                                      \
    raot_requantize_nhwc_above_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                        (sizes)->out_step, (sizes)->channel_step, (sizes)->zero,  \
                                        (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_above_u8(out, sums, scales, sizes)                      \
    raot_requantize_nhwc_above_u8_unpacked(                                          \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->out_step, \
        (sizes)->channel_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_twice(out, sums, scales, sizes)                                      \
    raot_requantize_nhwc_twice_unpacked(out, sums, scales, (sizes)->channels, (sizes)->positions, \
                                        (sizes)->out_step, (sizes)->channel_step, (sizes)->zero,  \
                                        (sizes)->low, (sizes)->high)

#define raot_requantize_nhwc_twice_u8(out, sums, scales, sizes)                      \
    raot_requantize_nhwc_twice_u8_unpacked(                                          \
        out, sums, scales, (sizes)->channels, (sizes)->positions, (sizes)->out_step, \
        (sizes)->channel_step, (sizes)->zero, (sizes)->low, (sizes)->high)

#endif
