/* SPDX-License-Identifier: Apache-2.0 */
/*
 * byte_strips.h - bytes as 32-bit integers and back, which compilers make no vectors of on Helium.
 *
 *     raot_widen_strip    values[i] = x[i]
 *     raot_narrow_strip   out[i * step] = the lower byte of values[i]
 *
 * Seven results are at most 65535 bytes apart.
 */
#ifndef RAOT_BYTE_STRIPS_H
#define RAOT_BYTE_STRIPS_H

#include <stdint.h>

#include "mve.h"

#if defined(RAOT_MVE)
#define RAOT_BYTE_STRIPS(suffix, byte, WIDE)                                             \
    __attribute__((noinline, unused)) static void raot_widen_strip_##suffix(             \
        int32_t *values, const byte *x, int32_t count)                                   \
    {                                                                                    \
        for (int32_t i = 0; i < count; i += 4) {                                         \
            const mve_pred16_t some = vctp32q((uint32_t)(count - i));                    \
                                                                                         \
            vstrwq_p_s32(values + i, (int32x4_t)vldrbq_z_##WIDE##32(x + i, some), some); \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    __attribute__((noinline, unused)) static void raot_narrow_strip_##suffix(            \
        byte *out, const int32_t *values, int32_t count, int32_t step)                   \
    {                                                                                    \
        const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)step);       \
                                                                                         \
        for (int32_t i = 0; i < count; i += 4) {                                         \
            const mve_pred16_t some = vctp32q((uint32_t)(count - i));                    \
                                                                                         \
            vstrbq_scatter_offset_p_s32((int8_t *)(out + i * step), apart,               \
                                        vldrwq_z_s32(values + i, some), some);           \
        }                                                                                \
    }
#else
#define RAOT_BYTE_STRIPS(suffix, byte, WIDE)                                  \
    __attribute__((noinline, unused)) static void raot_widen_strip_##suffix(  \
        int32_t *values, const byte *x, int32_t count)                        \
    {                                                                         \
        /*@ loop unroll 4096; */                                              \
        for (int32_t i = 0; i < count; i++) {                                 \
            values[i] = x[i];                                                 \
        }                                                                     \
    }                                                                         \
                                                                              \
    __attribute__((noinline, unused)) static void raot_narrow_strip_##suffix( \
        byte *out, const int32_t *values, int32_t count, int32_t step)        \
    {                                                                         \
        /*@ loop unroll 4096; */                                              \
        for (int32_t i = 0; i < count; i++) {                                 \
            out[i * step] = (byte)(uint8_t)((uint32_t)values[i] & 0xFFu);     \
        }                                                                     \
    }
#endif
RAOT_BYTE_STRIPS(s8, int8_t, s)
RAOT_BYTE_STRIPS(u8, uint8_t, u)
#undef RAOT_BYTE_STRIPS

#endif
