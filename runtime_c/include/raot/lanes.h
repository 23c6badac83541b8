/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - the lanes of a reduction as one number, by a tree.
 *
 * The upper half of the lanes is added to the lower one (or its maximum or minimum is taken) until
 * one lane is left, lanes[0]. `count` is a power of two; the other lanes are undefined afterwards.
 * With a constant `count` the lanes stay in vector registers: GCC 12 unrolls the levels of the tree
 * only if told to.
 */
#ifndef RAOT_LANES_H
#define RAOT_LANES_H

#include <stdint.h>

#include "function.h"
#include "ieee.h"

#if defined(__GNUC__) && !defined(__clang__)
#define RAOT_UNROLL_LEVELS _Pragma("GCC unroll 8")
#else
#define RAOT_UNROLL_LEVELS
#endif

RAOT_INLINE static inline void raot_add_lanes_f32(float *lanes, int32_t count)
{
    RAOT_UNROLL_LEVELS
    for (int32_t half = count / 2; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = lanes[i] + lanes[i + half];
        }
    }
}

RAOT_INLINE static inline void raot_max_lanes_f32(float *lanes, int32_t count)
{
    RAOT_UNROLL_LEVELS
    for (int32_t half = count / 2; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = raot_maxf(lanes[i], lanes[i + half]);
        }
    }
}

RAOT_INLINE static inline void raot_min_lanes_f32(float *lanes, int32_t count)
{
    RAOT_UNROLL_LEVELS
    for (int32_t half = count / 2; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = raot_minf(lanes[i], lanes[i + half]);
        }
    }
}

RAOT_INLINE static inline void raot_add_lanes_f64(double *lanes, int32_t count)
{
    RAOT_UNROLL_LEVELS
    for (int32_t half = count / 2; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = lanes[i] + lanes[i + half];
        }
    }
}

RAOT_INLINE static inline void raot_max_lanes_f64(double *lanes, int32_t count)
{
    RAOT_UNROLL_LEVELS
    for (int32_t half = count / 2; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = raot_max(lanes[i], lanes[i + half]);
        }
    }
}

RAOT_INLINE static inline void raot_min_lanes_f64(double *lanes, int32_t count)
{
    RAOT_UNROLL_LEVELS
    for (int32_t half = count / 2; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            lanes[i] = raot_min(lanes[i], lanes[i + half]);
        }
    }
}

#endif
