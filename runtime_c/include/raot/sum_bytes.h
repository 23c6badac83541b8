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

#include "mve.h"

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

#define RAOT_SUM_BYTES_FUNCTION(suffix, byte)                                                     \
    __attribute__((noinline, unused)) static void raot_sum_bytes_##suffix##_unpacked(             \
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
#define RAOT_SUM_BYTES(suffix)                                          \
    for (int32_t c = 0; c < channels; c++) {                            \
        int32_t sum = 0;                                                \
        for (int32_t i = 0; i < count0; i++) {                          \
            for (int32_t j = 0; j < count1; j++) {                      \
                sum += image[c * channel_step + i * step0 + j * step1]; \
            }                                                           \
        }                                                               \
        sums[c] = sum;                                                  \
    }
#endif

RAOT_SUM_BYTES_FUNCTION(s8, int8_t)
RAOT_SUM_BYTES_FUNCTION(u8, uint8_t)

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
