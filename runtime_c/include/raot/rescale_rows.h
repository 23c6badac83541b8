/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rescale_rows.h - rows of sums of gates of integer LSTMs.
 *
 *     raot_rescale_add_s16   out[i] = sums[i] * factor / 2^(31 + shift) + added[i], saturated
 *
 * The product is rounded twice, as TensorFlow Lite's MultiplyByQuantizedMultiplier does: by 2^31,
 * halves up, then by 2^shift, halves away from 0. shift is at least 1.
 */
#ifndef RAOT_RESCALE_ROWS_H
#define RAOT_RESCALE_ROWS_H

#include <stdint.h>

#include "convert.h"
#include "mve.h"

__attribute__((noinline, unused)) static void
raot_rescale_add_s16(int16_t *out, const int32_t *sums, const int16_t *added, int32_t count,
                     int32_t factor, int32_t shift)
{
#if defined(RAOT_MVE)
    for (; count > 0; count -= 4) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const int32x4_t high = vqrdmulhq_n_s32(vldrwq_z_s32(sums, some), factor);
        const int32x4_t lower = vaddq_s32(high, vshrq_n_s32(high, 31));
        const int32x4_t scaled = vrshlq_n_s32(lower, -shift);
        const int32x4_t total = vaddq_s32(scaled, vldrhq_z_s32(added, some));
        const int16x8_t halves = vqmovnbq_s32(vreinterpretq_s16_s32(total), total);

        vstrhq_p_s32(out, vreinterpretq_s32_s16(halves), some);
        out += 4;
        sums += 4;
        added += 4;
    }
#else
    /*@ loop unroll 4096; */
    for (int32_t i = 0; i < count; i++) {
        const int64_t product = (int64_t)sums[i] * factor + 0x40000000;
        const int32_t high = (int32_t)(product >> 31);
        const int32_t lower = high + (high >> 31);

        out[i] = raot_sat_i16(added[i] + (((lower >> (shift - 1)) + 1) >> 1));
    }
#endif
}

#endif
