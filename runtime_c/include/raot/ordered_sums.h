/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ordered_sums.h - sums of dequantized bytes in the order in which ONNX Runtime adds them.
 *
 *     raot_sum_rows_f32      element by element: i0, then i1
 *     raot_sum_columns_f32   each column from top to bottom (i0), then the columns (i1)
 *
 * An element is (image[c + i0 * step0 + i1 * step1] - zero) * scale[0], rounded.
 * Channels are contiguous.
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
RAOT_ORDERED_SUMS(s8, int8_t, s)
RAOT_ORDERED_SUMS(u8, uint8_t, u)

#endif
