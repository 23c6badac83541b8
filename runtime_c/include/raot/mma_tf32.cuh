/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_tf32.cuh - products of matrices of floats by a warp, whose factors are rounded to TF32.
 *
 * A matrix is in registers of all lanes, in the layouts of mma.sync.m16n8k8 (PTX ISA 8.5,
 * 9.7.14.5.4); the pointers are those of each lane. Factors are rounded as they are loaded.
 */
#ifndef RAOT_MMA_TF32_CUH
#define RAOT_MMA_TF32_CUH

#include "ieee.h"
#include "mma.cuh"

/* To 11 significant bits; halfway cases away from zero. */
static inline float raot_round_tf32(float x)
{
#if RAOT_MMA
    uint32_t bits;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
#else
    return x == x ? raot_of_bitsf((raot_bitsf(x) + 0x1000u) & 0xffffe000u) : x;
#endif
}

/* The elements of a lane, where a row and a step of the matrix are `row` and `step` elements
   apart. `after_row`: how far the element eight rows on is behind in its registers. */
static inline void raot_load_floats(float *to, const float *from, int32_t row, int32_t step,
                                    int32_t after_row)
{
    const int32_t lane = (int32_t)threadIdx.x % 32;

    for (int32_t n = 0; n < 4; n++) {
        const int32_t r = lane / 4 + n % 2 * 8;
        const int32_t k = lane % 4 + n / 2 * 4;

        to[n % 2 * after_row + n / 2 * (3 - after_row)] = raot_round_tf32(from[r * row + k * step]);
    }
}

/* clang-format off */

#define RAOT_LOAD_FLOATS(N, ROW, COLUMN, AFTER_ROW) \
    static inline void raot_load_##N##_f32(float *to, const float *from, int32_t pitch, \
                                           int32_t far, int32_t lane_row) \
    { \
        (void)lane_row; \
        if (RAOT_MMA) { \
            const int32_t lane = (int32_t)threadIdx.x % 32; \
            raot_load_matrices(to, from + (ROW) * pitch + (COLUMN) / 2, far * 4); \
            for (int32_t n = 0; n < 4; n++) { \
                to[n] = raot_round_tf32(to[n]); \
            } \
        } else { \
            raot_load_floats(to, from + far, pitch, 1, AFTER_ROW); \
        } \
    } \
    static inline void raot_load_##N##_steps_f32(float *to, const float *from, int32_t pitch, \
                                                 int32_t far, int32_t lane_row) \
    { \
        (void)lane_row; \
        raot_load_floats(to, from + far, 1, pitch, AFTER_ROW); \
    }

/* clang-format on */

RAOT_LOAD_FLOATS(left, lane % 16, RAOT_HALF(16), 1)
RAOT_LOAD_FLOATS(right, lane % 8 + RAOT_HALF(16), RAOT_HALF(8), 2)
RAOT_COPY_ASYNC(_f32, float, 16, cg)

/* Adds the products of 8 steps: on a device exact ones, added in an order of its own. */
static inline void raot_mma_m16n8k8_f32(float *sums, const float *left, const float *right,
                                        int32_t sums_row, int32_t left_row, int32_t right_row)
{
#if RAOT_MMA
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])),
          "r"(__float_as_uint(left[2])), "r"(__float_as_uint(left[3])),
          "r"(__float_as_uint(right[0])), "r"(__float_as_uint(right[1])));
#elif defined(RAOT_SHIM_MATRICES)
    (void)sums_row;
    (void)left_row;
    (void)right_row;
    raot_shim_multiply(
        sums, left, 4, right, 2, 1, 8,
        [](int k) { return raot_shim_step{k % 4, k / 4 * 2, k / 4}; }, __fmaf_rn, __LINE__);
#else
    const int32_t lane = (int32_t)threadIdx.x % 32;

    (void)sums_row;
    (void)left_row;
    (void)right_row;
    for (int32_t k = 0; k < 8; k++) {
        float a[2], b[2];

        for (int32_t n = 0; n < 2; n++) {
            a[n] = __shfl_sync(0xffffffffu, left[n + k / 4 * 2], lane / 4 * 4 + k % 4);
            b[n] = __shfl_sync(0xffffffffu, right[k / 4], (lane % 4 * 2 + n) * 4 + k % 4);
        }
        for (int32_t n = 0; n < 4; n++) {
            sums[n] = __fmaf_rn(a[n / 2], b[n % 2], sums[n]);
        }
    }
#endif
}

#endif
