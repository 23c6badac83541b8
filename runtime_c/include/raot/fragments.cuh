/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragments.cuh - rows of matrices in the registers of a warp.
 *
 * Two rows of a lane are those of the sums of mma.sync.m16n8k16 (PTX ISA 8.5, 9.7.14.5.8): of each
 * four elements, two of one row and two of the other. Four lanes share a row.
 */
#ifndef RAOT_FRAGMENTS_CUH
#define RAOT_FRAGMENTS_CUH

#include "convert.h"
#include "exponential.h"
#include "ieee.h"

/* The larger one; NaN where one is NaN. Zeros count as equal. */
static inline float raot_larger_f32(float a, float b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float larger;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return raot_maxf(a, b);
#endif
}

/* The greatest of `count` matrices and of what `peaks` has, for both rows. */
static inline void raot_row_peaks_f32(float *peaks, const float *scores, int32_t count,
                                      int32_t lane_row, int32_t peaks_row)
{
    (void)lane_row;
    (void)peaks_row;
#pragma unroll
    for (int32_t row = 0; row < 2; row++) {
        float peak = peaks[row];

#pragma unroll
        for (int32_t n = 0; n < count; n++) {
            peak = raot_larger_f32(peak, scores[4 * n + 2 * row]);
            peak = raot_larger_f32(peak, scores[4 * n + 2 * row + 1]);
        }
        peak = raot_larger_f32(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
        peaks[row] = raot_larger_f32(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
    }
}

/* 2^x of each number; on a device within two units in the last place, and 0 for subnormals. */
static inline void raot_powers_of_2_f32(float *x, int32_t count)
{
#pragma unroll
    for (int32_t n = 0; n < count; n++) {
#if defined(__CUDA_ARCH__)
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[n]) : "f"(x[n]));
#else
        x[n] = raot_exp2f(x[n]);
#endif
    }
}

/* Four floats in half precision. */
static inline void raot_round4_f16(uint16_t *to, const float *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t *const pairs = reinterpret_cast<uint32_t *>(to);

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs[0]) : "f"(from[1]), "f"(from[0]));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs[1]) : "f"(from[3]), "f"(from[2]));
#else
    for (int32_t n = 0; n < 4; n++) {
        to[n] = raot_f32_to_f16(from[n]);
    }
#endif
}

/* Four floats in half precision. */
static inline void raot_round4_bf16(uint16_t *to, const float *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t *const pairs = reinterpret_cast<uint32_t *>(to);

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[0]) : "f"(from[1]), "f"(from[0]));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[1]) : "f"(from[3]), "f"(from[2]));
#else
    for (int32_t n = 0; n < 4; n++) {
        to[n] = raot_f32_to_bf16(from[n]);
    }
#endif
}

#endif
