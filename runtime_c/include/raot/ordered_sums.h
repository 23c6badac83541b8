/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ordered_sums.h - sums of dequantized bytes in the order in which ONNX Runtime adds them.
 *
 *     raot_sum_rows_f32      element by element: i0, then i1
 *     raot_sum_columns_f32   each column from top to bottom (i0), then the columns (i1)
 *     raot_sum_lanes_f32     four sums of every fourth element, (0 + 2) + (1 + 3), then the others
 *
 * An element is (image[c + i0 * step0 + i1 * step1] - zero) * scale[0], rounded: channels are
 * contiguous. Of lanes, the elements of a channel are contiguous: image[c * channel_step + i].
 */
#ifndef RAOT_ORDERED_SUMS_H
#define RAOT_ORDERED_SUMS_H

#include <stdint.h>

#include "mve.h"

/* Sizes of the functions below, by name. */
struct raot_ordered_sums {
    int32_t channels;
    int32_t count0;
    int32_t step0;
    int32_t count1;
    int32_t step1;
    int32_t zero;
};

struct raot_ordered_lanes {
    int32_t channels;
    int32_t channel_step;
    int32_t count;
    int32_t zero;
};

#if defined(RAOT_MVE_F32)
#define RAOT_ORDERED_TYPE float32x4_t
#define RAOT_ORDERED_ZERO vdupq_n_f32(0.0f)
#define RAOT_ORDERED_ADD(a, b) vaddq_f32(a, b)
#define RAOT_ORDERED_VALUE(WIDE, at)                                                               \
    vmulq_n_f32(vcvtq_f32_s32(vsubq_n_s32((int32x4_t)vldrbq_z_##WIDE##32(at, some), sizes->zero)), \
                scale[0])
#define RAOT_ORDERED_EACH(BODY)                                             \
    for (int32_t c = 0; c < sizes->channels; c += 4) {                      \
        const mve_pred16_t some = vctp32q((uint32_t)(sizes->channels - c)); \
        BODY vstrwq_p_f32(sums + c, total, some);                           \
    }
#else
#define RAOT_ORDERED_TYPE float
#define RAOT_ORDERED_ZERO 0.0f
#define RAOT_ORDERED_ADD(a, b) ((a) + (b))
#define RAOT_ORDERED_VALUE(WIDE, at) ((float)(*(at)-sizes->zero) * scale[0])
#define RAOT_ORDERED_EACH(BODY)                     \
    /*@ loop unroll 4096; */                        \
    for (int32_t c = 0; c < sizes->channels; c++) { \
        BODY sums[c] = total;                       \
    }
#endif

#define RAOT_ORDERED_SUMS(suffix, byte, WIDE)                                                      \
    __attribute__((noinline, unused)) static void raot_sum_rows_f32_##suffix(                      \
        float *sums, const byte *image, const float *scale, const struct raot_ordered_sums *sizes) \
    {                                                                                              \
        RAOT_ORDERED_EACH(RAOT_ORDERED_TYPE total = RAOT_ORDERED_ZERO; /*@ loop unroll 4096; */    \
                          for (int32_t i = 0; i < sizes->count0; i++) {                            \
                              const byte *from = image + i * sizes->step0 + c;                     \
                              /*@ loop unroll 4096; */                                             \
                              for (int32_t j = 0; j < sizes->count1; j++) {                        \
                                  total = RAOT_ORDERED_ADD(total, RAOT_ORDERED_VALUE(WIDE, from)); \
                                  from += j + 1 < sizes->count1 ? sizes->step1 : 0;                \
                              }                                                                    \
                          })                                                                       \
    }                                                                                              \
    __attribute__((noinline, unused)) static void raot_sum_columns_f32_##suffix(                   \
        float *sums, const byte *image, const float *scale, const struct raot_ordered_sums *sizes) \
    {                                                                                              \
        RAOT_ORDERED_EACH(RAOT_ORDERED_TYPE total = RAOT_ORDERED_ZERO; /*@ loop unroll 4096; */    \
                          for (int32_t j = 0; j < sizes->count1; j++) {                            \
                              const byte *from = image + j * sizes->step1 + c;                     \
                              RAOT_ORDERED_TYPE column = RAOT_ORDERED_ZERO;                        \
                              /*@ loop unroll 4096; */                                             \
                              for (int32_t i = 0; i < sizes->count0; i++) {                        \
                                  column =                                                         \
                                      RAOT_ORDERED_ADD(column, RAOT_ORDERED_VALUE(WIDE, from));    \
                                  from += i + 1 < sizes->count0 ? sizes->step0 : 0;                \
                              }                                                                    \
                              total = RAOT_ORDERED_ADD(total, column);                             \
                          })                                                                       \
    }
#if defined(RAOT_MVE_F32)
#define RAOT_ORDERED_LANES(suffix, byte, WIDE)                                                    \
    /* Some of four elements. */                                                                  \
    static inline float32x4_t raot_ordered_four_##suffix(const byte *from, int32_t count,         \
                                                         int32_t zero, float scale)               \
    {                                                                                             \
        const mve_pred16_t some = vctp32q((uint32_t)count);                                       \
        const int32x4_t whole = (int32x4_t)vldrbq_z_##WIDE##32(from, some);                       \
                                                                                                  \
        return vmulq_n_f32(vcvtq_f32_s32(vsubq_n_s32(whole, zero)), scale);                       \
    }                                                                                             \
                                                                                                  \
    __attribute__((noinline, unused)) static void raot_sum_lanes_f32_##suffix(                    \
        float *sums, const byte *image, const float *scale,                                       \
        const struct raot_ordered_lanes *sizes)                                                   \
    {                                                                                             \
        for (int32_t c = 0; c < sizes->channels; c++) {                                           \
            const byte *from = image + c * sizes->channel_step;                                   \
            const int32_t rest = sizes->count % 4;                                                \
            float32x4_t lanes = vdupq_n_f32(0.0f);                                                \
                                                                                                  \
            for (int32_t i = sizes->count / 4; i > 0; i--) {                                      \
                lanes =                                                                           \
                    vaddq_f32(lanes, raot_ordered_four_##suffix(from, 4, sizes->zero, scale[0])); \
                from += 4;                                                                        \
            }                                                                                     \
            float total = (vgetq_lane_f32(lanes, 0) + vgetq_lane_f32(lanes, 2)) +                 \
                          (vgetq_lane_f32(lanes, 1) + vgetq_lane_f32(lanes, 3));                  \
            if (rest > 0) {                                                                       \
                lanes = raot_ordered_four_##suffix(from, rest, sizes->zero, scale[0]);            \
                total += vgetq_lane_f32(lanes, 0);                                                \
            }                                                                                     \
            if (rest > 1) {                                                                       \
                total += vgetq_lane_f32(lanes, 1);                                                \
            }                                                                                     \
            if (rest > 2) {                                                                       \
                total += vgetq_lane_f32(lanes, 2);                                                \
            }                                                                                     \
            sums[c] = total;                                                                      \
        }                                                                                         \
    }
#else
#define RAOT_ORDERED_LANES(suffix, byte, WIDE)                                 \
    __attribute__((noinline, unused)) static void raot_sum_lanes_f32_##suffix( \
        float *sums, const byte *image, const float *scale,                    \
        const struct raot_ordered_lanes *sizes)                                \
    {                                                                          \
        const int32_t whole = sizes->count / 4 * 4;                            \
                                                                               \
        /*@ loop unroll 4096; */                                               \
        for (int32_t c = 0; c < sizes->channels; c++) {                        \
            const byte *const from = image + c * sizes->channel_step;          \
            float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};                         \
                                                                               \
            /*@ loop unroll 4096; */                                           \
            for (int32_t i = 0; i < whole; i++) {                              \
                lanes[i % 4] += (float)(from[i] - sizes->zero) * scale[0];     \
            }                                                                  \
            float total = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);       \
            /*@ loop unroll 4096; */                                           \
            for (int32_t i = whole; i < sizes->count; i++) {                   \
                total += (float)(from[i] - sizes->zero) * scale[0];            \
            }                                                                  \
            sums[c] = total;                                                   \
        }                                                                      \
    }
#endif
RAOT_ORDERED_SUMS(s8, int8_t, s)
RAOT_ORDERED_SUMS(u8, uint8_t, u)
RAOT_ORDERED_LANES(s8, int8_t, s)
RAOT_ORDERED_LANES(u8, uint8_t, u)

#endif
