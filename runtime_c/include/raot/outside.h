/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside.h - whether one of many indices is below `low` or above `high`.
 *
 * *outside becomes 1 if one is, else 0. With Helium, four indices at a time are compared by their
 * minimum and maximum; of 64-bit indices the upper words have to extend the sign of the lower ones.
 */
#ifndef RAOT_OUTSIDE_H
#define RAOT_OUTSIDE_H

#include <stdint.h>

#include "mve.h"

__attribute__((noinline, unused)) static void
raot_outside_i32(int32_t *outside, const int32_t *indices, int32_t count, int32_t low, int32_t high)
{
    int32_t least = INT32_MAX;
    int32_t greatest = INT32_MIN;
    int32_t i = 0;

#if defined(RAOT_MVE)
    for (; i <= count - 4; i += 4) {
        const int32x4_t four = vld1q_s32(indices + i);

        least = vminvq_s32(least, four);
        greatest = vmaxvq_s32(greatest, four);
    }
#endif
    for (; i < count; i++) {
        least = indices[i] < least ? indices[i] : least;
        greatest = indices[i] > greatest ? indices[i] : greatest;
    }
    *outside = count > 0 && (least < low || greatest > high);
}

__attribute__((noinline, unused)) static void
raot_outside_i64(int32_t *outside, const int64_t *indices, int32_t count, int32_t low, int32_t high)
{
    int32_t found = 0;
    int32_t i = 0;

#if defined(RAOT_MVE)
    int32x4_t wide = vdupq_n_s32(0);
    int32_t least = INT32_MAX;
    int32_t greatest = INT32_MIN;

    for (; i <= count - 4; i += 4) {
        const int32x4x2_t words = vld2q_s32((const int32_t *)(const void *)(indices + i));
        const int32x4_t lower = words.val[0];

        wide = vorrq_s32(wide, veorq_s32(words.val[1], vshrq_n_s32(lower, 31)));
        least = vminvq_s32(least, lower);
        greatest = vmaxvq_s32(greatest, lower);
    }
    found = i > 0 && (least < low || greatest > high);
    found |= vmaxvq_u32(0, vreinterpretq_u32_s32(wide)) != 0;
#endif
    for (; i < count; i++) {
        found |= indices[i] < low || indices[i] > high;
    }
    *outside = found;
}

#endif
