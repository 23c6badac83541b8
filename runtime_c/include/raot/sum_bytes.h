/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_bytes.h - sums of bytes along two axes, as average pools add them.
 *
 *     sums[c] = image[c * channel_step + i * step0 + j * step1]
 *
 * summed over i < count0 and j < count1, for each of `channels`. Steps of bytes that are not
 * contiguous are at most 9362 (seven of them are 16 bits).
 */
#ifndef RAOT_SUM_BYTES_H
#define RAOT_SUM_BYTES_H

#include <stdint.h>

#include "dsp.h"
#include "mve.h"

#if defined(RAOT_DSP) && !defined(RAOT_MVE)
/* The sum of contiguous bytes, each exclusive or that of `flip`: USADA8 adds four. */
static inline int32_t raot_sum_four_bytes(const uint8_t *from, int32_t count, uint32_t flip)
{
    const uint8x4_t zero = (uint8x4_t)0u;
    uint32_t sum = 0u;

    for (; count >= 8; count -= 8) {
        sum = __usada8((uint8x4_t)(raot_dsp_load(from) ^ flip), zero, sum);
        sum = __usada8((uint8x4_t)(raot_dsp_load(from + 4) ^ flip), zero, sum);
        from += 8;
    }
    for (; count > 0; count--) {
        sum += *from++ ^ (flip & 0xFFu);
    }
    return (int32_t)sum;
}

/* Four contiguous channels: sums of up to 256 bytes fit the halves of a word. */
static inline void raot_sum_four_channels(int32_t *sums, const uint8_t *image, int32_t count0,
                                          int32_t step0, int32_t count1, int32_t step1,
                                          uint32_t flip)
{
    const int32_t most = count0 * count1 * (int32_t)(flip & 0xFFu);
    uint32_t kept[4] = {0u, 0u, 0u, 0u};

    for (int32_t i = 0; i < count0; i++) {
        const uint8_t *from = image + i * step0;
        for (int32_t left = count1; left > 0; left -= 256) {
            uint32_t even = 0u;
            uint32_t odd = 0u;
            for (int32_t j = left < 256 ? left : 256; j > 0; j--) {
                const uint32_t x = raot_dsp_load(from) ^ flip;
                even += x & 0xFF00FFu;
                odd += x >> 8 & 0xFF00FFu;
                from += step1;
            }
            kept[0] += even & 0xFFFFu;
            kept[1] += odd & 0xFFFFu;
            kept[2] += even >> 16;
            kept[3] += odd >> 16;
        }
    }
    for (int32_t k = 0; k < 4; k++) {
        sums[k] = (int32_t)kept[k] - most;
    }
}

static inline void raot_sum_channels_s8(int32_t *sums, const int8_t *image, int32_t count0,
                                        int32_t step0, int32_t count1, int32_t step1)
{
    raot_sum_four_channels(sums, (const uint8_t *)image, count0, step0, count1, step1, 0x80808080u);
}

static inline void raot_sum_channels_u8(int32_t *sums, const uint8_t *image, int32_t count0,
                                        int32_t step0, int32_t count1, int32_t step1)
{
    raot_sum_four_channels(sums, image, count0, step0, count1, step1, 0u);
}

static inline int32_t raot_sum_line_s8(const int8_t *from, int32_t count)
{
    return raot_sum_four_bytes((const uint8_t *)from, count, 0x80808080u) - 128 * count;
}

static inline int32_t raot_sum_line_u8(const uint8_t *from, int32_t count)
{
    return raot_sum_four_bytes(from, count, 0u);
}
#endif

#if defined(RAOT_MVE)
#define RAOT_SUM_BYTES_FORM(suffix, byte, LANES, WIDE, TOTAL)                                    \
    /* Up to eight contiguous channels: sums of up to 256 bytes fit 16 bits. */                  \
    __attribute__((always_inline)) static inline void raot_sum_channels_##suffix(                \
        int32_t *sums, const byte *image, int32_t channels, int32_t count0, int32_t step0,       \
        int32_t count1, int32_t step1)                                                           \
    {                                                                                            \
        const mve_pred16_t some = vctp16q((uint32_t)channels);                                   \
        const uint32x4_t even_at = vidupq_n_u32(0, 2);                                           \
        int32x4_t even = vdupq_n_s32(0);                                                         \
        int32x4_t odd = even;                                                                    \
        for (int32_t i = 0; i < count0; i++) {                                                   \
            const byte *from = image + i * step0;                                                \
            for (int32_t left = count1; left > 0; left -= 256) {                                 \
                LANES lanes = vreinterpretq_##WIDE##16_s32(vdupq_n_s32(0));                      \
                for (int32_t j = left < 256 ? left : 256; j > 0; j--) {                          \
                    lanes = vaddq_##WIDE##16(lanes, vldrbq_z_##WIDE##16(from, some));            \
                    from += step1;                                                               \
                }                                                                                \
                even = vaddq_s32(even, (int32x4_t)vmovlbq_##WIDE##16(lanes));                    \
                odd = vaddq_s32(odd, (int32x4_t)vmovltq_##WIDE##16(lanes));                      \
            }                                                                                    \
        }                                                                                        \
        vstrwq_scatter_shifted_offset_p_s32(sums, even_at, even,                                 \
                                            vctp32q((uint32_t)(channels + 1) / 2u));             \
        vstrwq_scatter_shifted_offset_p_s32(sums + 1, even_at, odd,                              \
                                            vctp32q((uint32_t)channels / 2u));                   \
    }                                                                                            \
                                                                                                 \
    /* The sum of one channel. */                                                                \
    __attribute__((always_inline)) static inline int32_t raot_sum_line_##suffix(                 \
        const byte *from, int32_t count, int32_t step, uint16x8_t apart)                         \
    {                                                                                            \
        TOTAL sum = 0;                                                                           \
        if (step == 1) {                                                                         \
            for (; count > 0; count -= 16) {                                                     \
                const mve_pred16_t some = vctp8q((uint32_t)count);                               \
                sum = vaddvaq_##WIDE##8(sum, vldrbq_z_##WIDE##8(from, some));                    \
                from += 16;                                                                      \
            }                                                                                    \
            return (int32_t)sum;                                                                 \
        }                                                                                        \
        for (; count > 0; count -= 8) {                                                          \
            const mve_pred16_t some = vctp16q((uint32_t)count);                                  \
            sum = vaddvaq_##WIDE##16(sum, vldrbq_gather_offset_z_##WIDE##16(from, apart, some)); \
            from += 8 * step;                                                                    \
        }                                                                                        \
        return (int32_t)sum;                                                                     \
    }
RAOT_SUM_BYTES_FORM(s8, int8_t, int16x8_t, s, int32_t)
RAOT_SUM_BYTES_FORM(u8, uint8_t, uint16x8_t, u, uint32_t)
#endif

#define RAOT_SUM_BYTES_FUNCTION(NAME, suffix, byte)                                               \
    __attribute__((noinline, unused)) static void NAME(                                           \
        int32_t *sums, const byte *image, int32_t channels, int32_t channel_step, int32_t count0, \
        int32_t step0, int32_t count1, int32_t step1)                                             \
    {                                                                                             \
        if (step0 == count1 * step1) {                                                            \
            count1 *= count0;                                                                     \
            count0 = 1;                                                                           \
        }                                                                                         \
        RAOT_SUM_BYTES(suffix)                                                                    \
    }

#if defined(RAOT_MVE)
#define RAOT_SUM_BYTES(suffix)                                                                   \
    if (channel_step == 1) {                                                                     \
        for (int32_t c = 0; c < channels; c += 8) {                                              \
            const int32_t some = channels - c < 8 ? channels - c : 8;                            \
            raot_sum_channels_##suffix(sums + c, image + c, some, count0, step0, count1, step1); \
        }                                                                                        \
        return;                                                                                  \
    }                                                                                            \
    const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step1);                   \
    for (int32_t c = 0; c < channels; c++) {                                                     \
        int32_t sum = 0;                                                                         \
        for (int32_t i = 0; i < count0; i++) {                                                   \
            sum += raot_sum_line_##suffix(image + c * channel_step + i * step0, count1, step1,   \
                                          apart);                                                \
        }                                                                                        \
        sums[c] = sum;                                                                           \
    }
#else
#if defined(RAOT_DSP)
#define RAOT_SUM_BYTES(suffix)                                                                 \
    int32_t first = 0;                                                                         \
    for (; channel_step == 1 && first + 4 <= channels; first += 4) {                           \
        raot_sum_channels_##suffix(sums + first, image + first, count0, step0, count1, step1); \
    }                                                                                          \
    for (; step1 == 1 && first < channels; first++) {                                          \
        int32_t sum = 0;                                                                       \
        for (int32_t i = 0; i < count0; i++) {                                                 \
            sum += raot_sum_line_##suffix(image + first * channel_step + i * step0, count1);   \
        }                                                                                      \
        sums[first] = sum;                                                                     \
    }                                                                                          \
    RAOT_SUM_BYTES_APART(first)
#else
#define RAOT_SUM_BYTES(suffix) RAOT_SUM_BYTES_APART(0)
#endif
#define RAOT_SUM_BYTES_APART(FIRST)                                     \
    /*@ loop unroll 4096; */                                            \
    for (int32_t c = FIRST; c < channels; c++) {                        \
        int32_t sum = 0;                                                \
        /*@ loop unroll 4096; */                                        \
        for (int32_t i = 0; i < count0; i++) {                          \
            /*@ loop unroll 4096; */                                    \
            for (int32_t j = 0; j < count1; j++) {                      \
                sum += image[c * channel_step + i * step0 + j * step1]; \
            }                                                           \
        }                                                               \
        sums[c] = sum;                                                  \
    }
#endif

RAOT_SUM_BYTES_FUNCTION(raot_sum_bytes_s8_unpacked, s8, int8_t)
RAOT_SUM_BYTES_FUNCTION(raot_sum_bytes_u8_unpacked, u8, uint8_t)

/* Sizes of the functions below, by name. */
struct raot_sum_bytes {
    int32_t channels;
    int32_t channel_step;
    int32_t count0;
    int32_t step0;
    int32_t count1;
    int32_t step1;
};

#define raot_sum_bytes_s8(sums, image, sizes)                                         \
    raot_sum_bytes_s8_unpacked(sums, image, (sizes)->channels, (sizes)->channel_step, \
                               (sizes)->count0, (sizes)->step0, (sizes)->count1, (sizes)->step1)

#define raot_sum_bytes_u8(sums, image, sizes)                                         \
    raot_sum_bytes_u8_unpacked(sums, image, (sizes)->channels, (sizes)->channel_step, \
                               (sizes)->count0, (sizes)->step0, (sizes)->count1, (sizes)->step1)

#endif
