/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_asimd.h - the form _asimd of dot_groups.h and dot_blocks.h for 64-bit Arm, by SDOT or
 * by SMULL, SMLAL and SADALP.
 *
 * Weights of 4 bits: a byte is 16 * h + l, where h is the weight of column c + 16, and l is 8 more
 * than that of column c. SDOT of the bytes, less SDOT of their upper halves, which is 16 times the
 * sum of column c + 16, is the sum of column c and 8 times that of the left operand.
 */
#ifndef RAOT_DOT_GROUPS_ASIMD_H
#define RAOT_DOT_GROUPS_ASIMD_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "assembly.h"

#if defined(__clang__)
#define RAOT_ASIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define RAOT_ASIMD_UNROLL _Pragma("GCC unroll 8")
#endif
/* The pointer moves on, and no load is moved across: registers hold what is next. */
#if defined(RAOT_ASM_INLINE)
#define RAOT_ASIMD_NEXT(pointer, bytes)                    \
    do {                                                   \
        (pointer) += (bytes);                              \
        __asm__ volatile("" : "+r"(pointer) : : "memory"); \
    } while (0)
#else
#define RAOT_ASIMD_NEXT(pointer, bytes) ((pointer) += (bytes))
#endif
/* Steps whose products are added in one piece, and vectors of four columns. */
#define RAOT_ASIMD_STEPS 32
#define RAOT_ASIMD_VECTORS 8

/* What one row reads. If it `has_own`, each of its groups has a scale in `own`; scales are `halves`
 * or floats. */
struct raot_asimd_row {
    const int8_t *left;
    const int8_t *weights;
    const void *scales;
    const float *own;
    int32_t groups;
};

#if defined(__ARM_FEATURE_DOTPROD)
/* sum + the products of four columns and the steps 4 * part.. of x */
__attribute__((always_inline)) static inline int32x4_t
raot_asimd_four(int32x4_t sum, int8x16_t weight, int8x16_t x, const int32_t part)
{
    switch (part) {
    case 0:
        return vdotq_laneq_s32(sum, weight, x, 0);
    case 1:
        return vdotq_laneq_s32(sum, weight, x, 1);
    case 2:
        return vdotq_laneq_s32(sum, weight, x, 2);
    default:
        return vdotq_laneq_s32(sum, weight, x, 3);
    }
}

/* Adds 32 steps. Of weights of 4 bits, the latter four sums are 16 times as large. */
__attribute__((always_inline)) static inline void
raot_asimd_steps(const int32_t bits, int32x4_t sum[RAOT_ASIMD_VECTORS], const int8_t *left,
                 const int8_t *weights)
{
    const int8x16_t x[2] = {vld1q_s8(left), vld1q_s8(left + 16)};

    if (bits == 4) {
        const int8x16_t offset = vdupq_n_s8(-8);
        int32x4_t excess = vdotq_s32(vdupq_n_s32(0), x[0], offset);
        excess = vdotq_s32(excess, x[1], offset);
        excess = vpaddq_s32(excess, excess);
        excess = vpaddq_s32(excess, excess);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            sum[n] = vaddq_s32(sum[n], excess);
        }
    }
    RAOT_ASIMD_UNROLL
    for (int32_t k = 0; k < 8; k++) {
        if (bits == 8) {
            RAOT_ASIMD_UNROLL
            for (int32_t n = 0; n < RAOT_ASIMD_VECTORS; n += 4) {
                const int8x16x4_t by = vld1q_s8_x4(weights);
                RAOT_ASIMD_NEXT(weights, 64);
                RAOT_ASIMD_UNROLL
                for (int32_t i = 0; i < 4; i++) {
                    sum[n + i] = raot_asimd_four(sum[n + i], by.val[i], x[k / 4], k % 4);
                }
            }
        } else {
            const int8x16x4_t both = vld1q_s8_x4(weights);
            RAOT_ASIMD_NEXT(weights, 64);
            RAOT_ASIMD_UNROLL
            for (int32_t n = 0; n < 4; n++) {
                const int8x16_t high = vandq_s8(both.val[n], vdupq_n_s8((int8_t)0xf0));
                sum[n] = raot_asimd_four(sum[n], both.val[n], x[k / 4], k % 4);
                sum[n + 4] = raot_asimd_four(sum[n + 4], high, x[k / 4], k % 4);
            }
        }
    }
}

/* The sums of four columns as floats. */
__attribute__((always_inline)) static inline float32x4_t
raot_asimd_float(const int32_t bits, const int32x4_t sum[RAOT_ASIMD_VECTORS], const int32_t n)
{
    if (bits == 8) {
        return vcvtq_f32_s32(sum[n]);
    }
    return n < 4 ? vcvtq_f32_s32(vsubq_s32(sum[n], sum[n + 4])) : vcvtq_n_f32_s32(sum[n], 4);
}
#else
/* The steps 4 * part.. of x, for each of four columns. */
__attribute__((always_inline)) static inline int8x16_t raot_asimd_four(int8x16_t x,
                                                                       const int32_t part)
{
    const int32x4_t words = vreinterpretq_s32_s8(x);

    return vreinterpretq_s8_s32(part == 0   ? vdupq_laneq_s32(words, 0)
                                : part == 1 ? vdupq_laneq_s32(words, 1)
                                : part == 2 ? vdupq_laneq_s32(words, 2)
                                            : vdupq_laneq_s32(words, 3));
}

/* Adds 32 steps of 16 columns, whose weights are 16 bytes each in `part` of 128. Two products of
 * bytes fit into 16 bits. */
__attribute__((always_inline)) static inline void
raot_asimd_bytes(int32x4_t sum[4], const int8x16_t x[2], const int8_t *weights)
{
    int16x8_t low[4];
    int16x8_t high[4];
    int32x4_t first[4];
    int32x4_t second[4];

    RAOT_ASIMD_UNROLL
    for (int32_t k = 0; k < 8; k++) {
        const int8x16_t four = raot_asimd_four(x[k / 4], k % 4);
        int8x16_t by[4];
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            by[n] = vld1q_s8(weights + 128 * k + 16 * n);
        }
        RAOT_ASIMD_NEXT(weights, 0);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            const int8x8_t half = vget_low_s8(by[n]);
            if (k % 2 == 0) {
                low[n] = vmull_s8(half, vget_low_s8(four));
                high[n] = vmull_high_s8(by[n], four);
                continue;
            }
            low[n] = vmlal_s8(low[n], half, vget_low_s8(four));
            high[n] = vmlal_high_s8(high[n], by[n], four);
            first[n] = k == 1 ? vpaddlq_s16(low[n]) : vpadalq_s16(first[n], low[n]);
            second[n] = k == 1 ? vpaddlq_s16(high[n]) : vpadalq_s16(second[n], high[n]);
        }
    }
    RAOT_ASIMD_UNROLL
    for (int32_t n = 0; n < 4; n++) {
        sum[n] = vaddq_s32(sum[n], vpaddq_s32(first[n], second[n]));
    }
}

/* The same for weights of 4 bits, eight products of which fit into 16 bits. */
__attribute__((always_inline)) static inline void raot_asimd_nibbles(const int32_t is_high,
                                                                     int32x4_t sum[4],
                                                                     const int8x16_t x[2],
                                                                     const int8_t *weights)
{
    int16x8_t first[4];
    int16x8_t second[4];

    RAOT_ASIMD_UNROLL
    for (int32_t k = 0; k < 8; k++) {
        const int8x16_t four = raot_asimd_four(x[k / 4], k % 4);
        const int8x16x4_t both = vld1q_s8_x4(weights);
        RAOT_ASIMD_NEXT(weights, 64);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            const int8x16_t by =
                is_high ? vshrq_n_s8(both.val[n], 4) : vandq_s8(both.val[n], vdupq_n_s8(15));
            const int8x8_t low = vget_low_s8(by);
            first[n] = k == 0 ? vmull_s8(low, vget_low_s8(four))
                              : vmlal_s8(first[n], low, vget_low_s8(four));
            second[n] = k == 0 ? vmull_high_s8(by, four) : vmlal_high_s8(second[n], by, four);
        }
    }
    RAOT_ASIMD_UNROLL
    for (int32_t n = 0; n < 4; n++) {
        sum[n] = vaddq_s32(sum[n], vpaddq_s32(vpaddlq_s16(first[n]), vpaddlq_s16(second[n])));
    }
}

__attribute__((always_inline)) static inline void
raot_asimd_steps(const int32_t bits, int32x4_t sum[RAOT_ASIMD_VECTORS], const int8_t *left,
                 const int8_t *weights)
{
    const int8x16_t x[2] = {vld1q_s8(left), vld1q_s8(left + 16)};

    if (bits == 8) {
        raot_asimd_bytes(sum, x, weights);
        raot_asimd_bytes(sum + 4, x, weights + 64);
    } else {
        const int16x8_t pairs = vpadalq_s8(vpaddlq_s8(x[0]), x[1]);
        const int32x4_t excess = vshlq_n_s32(vdupq_n_s32(vaddlvq_s16(pairs)), 3);
        raot_asimd_nibbles(0, sum, x, weights);
        raot_asimd_nibbles(1, sum + 4, x, weights);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            sum[n] = vsubq_s32(sum[n], excess);
        }
    }
}

__attribute__((always_inline)) static inline float32x4_t
raot_asimd_float(const int32_t bits, const int32x4_t sum[RAOT_ASIMD_VECTORS], const int32_t n)
{
    (void)bits;
    return vcvtq_f32_s32(sum[n]);
}
#endif

/* The scales of 32 columns. */
__attribute__((always_inline)) static inline void
raot_asimd_scales(const int32_t halves, const void *from, float32x4_t scale[RAOT_ASIMD_VECTORS])
{
    if (halves != 0) {
        const uint16x8x4_t all = vld1q_u16_x4((const uint16_t *)from);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            const float16x8_t eight = vreinterpretq_f16_u16(all.val[n]);
            scale[2 * n] = vcvt_f32_f16(vget_low_f16(eight));
            scale[2 * n + 1] = vcvt_high_f32_f16(eight);
        }
    } else {
        const float32x4x4_t low = vld1q_f32_x4((const float *)from);
        const float32x4x4_t high = vld1q_f32_x4((const float *)from + 16);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < 4; n++) {
            scale[n] = low.val[n];
            scale[n + 4] = high.val[n];
        }
    }
}

/* One row and 32 columns. `bits`, `halves` and `has_own` are constants in every call, and so is
 * `group` if it is RAOT_ASIMD_STEPS. */
__attribute__((always_inline)) static inline void
raot_asimd_columns(const int32_t bits, const int32_t halves, const int32_t has_own, float *sums,
                   const struct raot_asimd_row *row, int32_t group)
{
    const int8_t *left = row->left;
    const int8_t *weights = row->weights;
    const uint8_t *scales = row->scales;
    const float *own = row->own;
    float32x4_t total[RAOT_ASIMD_VECTORS];

    RAOT_ASIMD_UNROLL
    for (int32_t n = 0; n < RAOT_ASIMD_VECTORS; n++) {
        total[n] = vdupq_n_f32(0.0f);
    }
    for (int32_t g = 0; g < row->groups; g++) {
        float32x4_t scale[RAOT_ASIMD_VECTORS];
        int32x4_t sum[RAOT_ASIMD_VECTORS];
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < RAOT_ASIMD_VECTORS; n++) {
            sum[n] = vdupq_n_s32(0);
        }
        for (int32_t k = 0; k < group; k += RAOT_ASIMD_STEPS) {
            raot_asimd_steps(bits, sum, left, weights);
            left += RAOT_ASIMD_STEPS;
            weights += RAOT_ASIMD_STEPS * 4 * bits;
        }
        raot_asimd_scales(halves, scales, scale);
        RAOT_ASIMD_UNROLL
        for (int32_t n = 0; n < RAOT_ASIMD_VECTORS; n++) {
            const float32x4_t by = has_own ? vmulq_n_f32(scale[n], own[g]) : scale[n];
            total[n] = vfmaq_f32(total[n], raot_asimd_float(bits, sum, n), by);
        }
        scales += halves ? 64 : 128;
    }
    RAOT_ASIMD_UNROLL
    for (int32_t n = 0; n < RAOT_ASIMD_VECTORS; n++) {
        vst1q_f32(sums + 4 * n, total[n]);
    }
}

/* The rows of a tile. */
__attribute__((always_inline)) static inline void
raot_asimd_rows(const int32_t bits, const int32_t halves, const int32_t has_own, float *sums,
                const int8_t *left, const int8_t *weights, const void *scales, const float *own,
                int32_t own_row, const struct raot_dot_groups *sizes)
{
    struct raot_asimd_row row = {left, weights, scales, own, sizes->groups};

    for (int32_t r = 0; r < sizes->rows; r++) {
        if (sizes->group == RAOT_ASIMD_STEPS) {
            raot_asimd_columns(bits, halves, has_own, sums, &row, RAOT_ASIMD_STEPS);
        } else {
            raot_asimd_columns(bits, halves, has_own, sums, &row, sizes->group);
        }
        sums += RAOT_GROUP_COLUMNS;
        row.left += sizes->left_row;
        row.own += has_own ? own_row : 0;
    }
}

#define RAOT_DOT_FAST_ASIMD(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES) \
    raot_asimd_rows(BITS, 0, 0, SUMS, LEFT, (const int8_t *)(WEIGHTS), SCALES, NULL, 0, SIZES)

#endif
