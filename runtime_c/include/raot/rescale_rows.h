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

#include "assembly.h"
#include "convert.h"
#include "mve.h"

#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && !defined(RAOT_MVE)
#define RAOT_RESCALE_THUMB 1
/* With larger shifts, a sum that saturates when it is doubled would not saturate the result. */
#define RAOT_RESCALE_MOST 13
/*
 * Both roundings are one: SMMLAR rounds the product by 2^31 half up, and adds the half of 2^shift,
 * less 1 for negative sums, to its upper half.
 *
 * r0 to r3     results, sums, what is added, and how many
 * r4 to r6     factor, shift, half of 2^shift
 */
RAOT_NAKED static void
raot_rescale_add_row(RAOT_ARGUMENT int16_t *out, RAOT_ARGUMENT const int32_t *sums,
                     RAOT_ARGUMENT const int16_t *added, RAOT_ARGUMENT int32_t count,
                     RAOT_ARGUMENT int32_t factor, RAOT_ARGUMENT int32_t shift)
{
    __asm volatile("push {r4-r8, lr}\n ldrd r4, r5, [sp, #24]\n subs r6, r5, #1\n movs r7, #1\n"
                   "lsl r6, r7, r6\n"
                   "1: ldr r7, [r1], #4\n qadd r7, r7, r7\n add r8, r6, r7, asr #31\n"
                   "smmlar r8, r7, r4, r8\n asr r8, r8, r5\n ldrsh r7, [r2], #2\n add r8, r7\n"
                   "ssat r8, #16, r8\n strh r8, [r0], #2\n subs r3, #1\n bgt 1b\n"
                   "pop {r4-r8, pc}\n");
}
#endif

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
#if defined(RAOT_RESCALE_THUMB)
    if (shift <= RAOT_RESCALE_MOST) {
        if (count > 0) {
            raot_rescale_add_row(out, sums, added, count, factor, shift);
        }
        return;
    }
#endif
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
