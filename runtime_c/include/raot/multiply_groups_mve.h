/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_groups_mve.h - multiply_groups.h for Cortex-M with Helium.
 */
#ifndef RAOT_MULTIPLY_GROUPS_MVE_H
#define RAOT_MULTIPLY_GROUPS_MVE_H

#include <stdint.h>

#include "mve.h"

#if defined(__clang__)
#define RAOT_GROUP_UNROLL
#else
#define RAOT_GROUP_UNROLL _Pragma("GCC unroll 8")
#endif

/* Four weights of a word as floats: bytes, or one half of each. */
__attribute__((always_inline)) static inline float32x4_t
raot_decode_mve(const int32_t bits, const int32_t is_high, int32x4_t bytes)
{
    if (bits == 8) {
        return vcvtq_f32_s32(bytes);
    }
    if (is_high != 0) {
        return vcvtq_f32_s32(vshrq_n_s32(bytes, 4));
    }
    return vcvtq_n_f32_s32(vshlq_n_s32(bytes, 28), 28);
}

#if defined(RAOT_ASM_THUMB) && !defined(__OPTIMIZE_SIZE__)
#define RAOT_GROUPS_MVE_ASM
/*
 * All groups of one row and 16 columns, four steps of the row at a time. This is assembly because
 * GCC copies addresses in the inner loop and does not load several factors at once.
 *
 *     q0 to q3    sums of a group
 *     q4 to q7    weights; behind a group, sums of all groups and scales
 *     r0          sums
 *     r1, r2, r3  left operand, weights, scales
 *     r4 to r7    four steps of the left operand
 *     r8          steps that are left
 *     r10         steps of this group
 *     r11         remaining steps of this group, behind blocks of four
 *     [sp, #96]   argument: depth
 *     [sp, #100]  argument: group
 */
/* clang-format off */
#define RAOT_Q8_MVE(X) \
    "vldrb.s32 q4, [r2, #4]\n vldrb.s32 q5, [r2, #8]\n" \
    "vcvt.f32.s32 q4, q4\n vcvt.f32.s32 q5, q5\n" \
    "vfma.f32 q1, q4, " X "\n vldrb.s32 q4, [r2, #12]\n" \
    "vfma.f32 q2, q5, " X "\n vldrb.s32 q5, [r2], #32\n" \
    "vcvt.f32.s32 q4, q4\n vcvt.f32.s32 q5, q5\n" \
    "vfma.f32 q3, q4, " X "\n vfma.f32 q0, q5, " X "\n"
/*
 * Eight bytes as 16-bit integers: columns 0 to 7 in the low halves, 16 to 23 in the high ones. They
 * are exact in half precision. VCVTB converts the even columns, VCVTT the odd ones; binutils 2.40
 * encodes other registers, so these two are numbers.
 */
#define RAOT_Q4_MVE(X) \
    "vldrb.s16 q4, [r2], #16\n vshl.i16 q5, q4, #12\n vshr.s16 q4, q4, #4\n" \
    "vcvt.f16.s16 q5, q5, #12\n vcvt.f16.s16 q4, q4\n" \
    ".inst.w 0xfe3fce0b @ vcvtb.f32.f16 q6, q5\n" \
    ".inst.w 0xfe3ffe0b @ vcvtt.f32.f16 q7, q5\n" \
    "vfma.f32 q0, q6, " X "\n vfma.f32 q1, q7, " X "\n" \
    ".inst.w 0xfe3fce09 @ vcvtb.f32.f16 q6, q4\n" \
    ".inst.w 0xfe3ffe09 @ vcvtt.f32.f16 q7, q4\n" \
    "vfma.f32 q2, q6, " X "\n vfma.f32 q3, q7, " X "\n"
#define RAOT_TOTAL_MVE(SUM, AT) \
    "vldrw.32 q6, [r0, #" AT "]\n vldrw.32 q7, [r3, #" AT "]\n" \
    "vfma.f32 q6, " SUM ", q7\n vstrw.32 q6, [r0, #" AT "]\n"
#define RAOT_Q8_TOTALS_MVE \
    RAOT_TOTAL_MVE("q0", "0") RAOT_TOTAL_MVE("q1", "16") \
    RAOT_TOTAL_MVE("q2", "32") RAOT_TOTAL_MVE("q3", "48")
/* Even and odd columns. */
#define RAOT_PAIR_MVE(EVEN, ODD, TO, SCALES) \
    "vld20.32 {q4, q5}, [" TO "]\n vld21.32 {q4, q5}, [" TO "]\n" \
    "vld20.32 {q6, q7}, [" SCALES "]\n vld21.32 {q6, q7}, [" SCALES "]\n" \
    "vfma.f32 q4, " EVEN ", q6\n vfma.f32 q5, " ODD ", q7\n" \
    "vst20.32 {q4, q5}, [" TO "]\n vst21.32 {q4, q5}, [" TO "]\n"
#define RAOT_Q4_TOTALS_MVE \
    "add r4, r0, #64\n add r5, r3, #64\n" \
    RAOT_PAIR_MVE("q0", "q1", "r0", "r3") RAOT_PAIR_MVE("q2", "q3", "r4", "r5")
#define RAOT_GROUPS_ASM_MVE(STEP, TOTALS, SECOND, THIRD, FOURTH) \
    __asm volatile( \
        "push {r4, r5, r6, r7, r8, r10, r11, lr}\n vpush {d8, d9, d10, d11, d12, d13, d14, d15}\n" \
        "ldr r8, [sp, #96]\n vmov.i32 q0, #0\n vstrw.32 q0, [r0]\n vstrw.32 q0, [r0, #" SECOND "]\n" \
        "vstrw.32 q0, [r0, #" THIRD "]\n vstrw.32 q0, [r0, #" FOURTH "]\n" \
        "1:\n ldr r10, [sp, #100]\n cmp r10, r8\n it gt\n movgt r10, r8\n sub r8, r8, r10\n" \
        "vmov.i32 q0, #0\n vmov.i32 q1, #0\n vmov.i32 q2, #0\n vmov.i32 q3, #0\n" \
        "and r11, r10, #3\n lsrs r10, r10, #2\n wls lr, r10, 3f\n" \
        "2:\n ldmia r1!, {r4, r5, r6, r7}\n" \
        STEP("r4") STEP("r5") STEP("r6") STEP("r7") "le lr, 2b\n" \
        "3:\n wls lr, r11, 5f\n" \
        "4:\n ldr r4, [r1], #4\n" STEP("r4") "le lr, 4b\n" \
        "5:\n" TOTALS \
        "adds r3, r3, #128\n cmp r8, #0\n bgt 1b\n" \
        "vpop {d8, d9, d10, d11, d12, d13, d14, d15}\n pop {r4, r5, r6, r7, r8, r10, r11, pc}\n")

RAOT_NAKED static void raot_groups_row_q8(
    RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const float *left, RAOT_ARGUMENT const void *weights,
    RAOT_ARGUMENT const float *scales, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t group)
{
    RAOT_GROUPS_ASM_MVE(RAOT_Q8_MVE, RAOT_Q8_TOTALS_MVE, "16", "32", "48");
}

RAOT_NAKED static void raot_groups_row_q4(
    RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const float *left, RAOT_ARGUMENT const void *weights,
    RAOT_ARGUMENT const float *scales, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t group)
{
    RAOT_GROUPS_ASM_MVE(RAOT_Q4_MVE, RAOT_Q4_TOTALS_MVE, "16", "64", "80");
}
/* clang-format on */
#endif

/*
 * Some rows and `wide` words of each step of weights, of which those of 4 bits have two vectors of
 * columns. `rows` and `wide` are constants in every call: six sums at most are in registers.
 */
__attribute__((always_inline)) static inline void
raot_groups_block_mve(const int32_t bits, const int32_t rows, const int32_t wide, float *sums,
                      const float *left, const int8_t *weights, const float *scales,
                      const struct raot_groups *sizes)
{
    const int32_t step = bits == 8 ? (int32_t)RAOT_TILE_COLUMNS : RAOT_Q4_BYTES;
    const int32_t halves = 8 / bits;

    RAOT_GROUP_UNROLL
    for (int32_t v = 0; v < rows * wide * halves; v++) {
        const int32_t at = v % halves * RAOT_Q4_BYTES + v / halves % wide * 4;
        vst1q_f32(&sums[v / (wide * halves) * RAOT_TILE_COLUMNS + at], vdupq_n_f32(0.0f));
    }
    for (int32_t k = 0; k < sizes->depth; k += sizes->group) {
        const int32_t rest = sizes->depth - k;
        int32_t steps = rest < sizes->group ? rest : sizes->group;
        const float *from[3];
        float32x4_t sum[6];

        RAOT_GROUP_UNROLL
        for (int32_t v = 0; v < rows * wide * halves; v++) {
            sum[v] = vdupq_n_f32(0.0f);
        }
        RAOT_GROUP_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            from[r] = left + r * sizes->left_row + k;
        }
        for (; steps > 0; steps--) {
            float by[3];
            RAOT_GROUP_UNROLL
            for (int32_t r = 0; r < rows; r++) {
                by[r] = *from[r]++;
            }
            RAOT_GROUP_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                const int32x4_t bytes = vldrbq_s32(weights + 4 * w);
                RAOT_GROUP_UNROLL
                for (int32_t h = 0; h < halves; h++) {
                    const float32x4_t decoded = raot_decode_mve(bits, h, bytes);
                    RAOT_GROUP_UNROLL
                    for (int32_t r = 0; r < rows; r++) {
                        const int32_t v = (r * wide + w) * halves + h;
                        sum[v] = vfmaq_n_f32(sum[v], decoded, by[r]);
                    }
                }
            }
            weights += step;
            RAOT_KEEP_ADDRESS(weights);
        }
        RAOT_GROUP_UNROLL
        for (int32_t v = 0; v < rows * wide * halves; v++) {
            const int32_t at = v % halves * RAOT_Q4_BYTES + v / halves % wide * 4;
            float *const to = &sums[v / (wide * halves) * RAOT_TILE_COLUMNS + at];
            vst1q_f32(to, vfmaq_f32(vld1q_f32(to), sum[v], vld1q_f32(scales + at)));
        }
        scales += RAOT_TILE_COLUMNS;
    }
}

__attribute__((always_inline)) static inline void
raot_groups_mve(const int32_t bits, float *sums, const float *left, const int8_t *weights,
                const float *scales, const struct raot_groups *sizes)
{
    const int32_t words = (bits == 8 ? (int32_t)RAOT_TILE_COLUMNS : RAOT_Q4_BYTES) / 4;
    const int32_t some = (sizes->columns + 3) / 4;
    const int32_t used = some < words ? some : words;
    int32_t r = 0;

    for (; r + 3 <= sizes->rows; r += 3) {
        float *const to = sums + r * RAOT_TILE_COLUMNS;
        const float *const from = left + r * sizes->left_row;
        if (bits == 8) {
            for (int32_t w = 0; w < used; w += 2) {
                raot_groups_block_mve(8, 3, 2, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
            }
        } else {
            for (int32_t w = 0; w < used; w++) {
                raot_groups_block_mve(4, 3, 1, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
            }
        }
    }
    for (; r < sizes->rows; r++) {
        float *const to = sums + r * RAOT_TILE_COLUMNS;
        const float *const from = left + r * sizes->left_row;
        if (bits == 8) {
            for (int32_t w = 0; w < used; w += 4) {
#if defined(RAOT_GROUPS_MVE_ASM)
                raot_groups_row_q8(to + 4 * w, from, weights + 4 * w, scales + 4 * w, sizes->depth,
                                   sizes->group);
#else
                raot_groups_block_mve(8, 1, 4, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
#endif
            }
        } else {
            for (int32_t w = 0; w < used; w += 2) {
#if defined(RAOT_GROUPS_MVE_ASM)
                raot_groups_row_q4(to + 4 * w, from, weights + 4 * w, scales + 4 * w, sizes->depth,
                                   sizes->group);
#else
                raot_groups_block_mve(4, 1, 2, to + 4 * w, from, weights + 4 * w, scales + 4 * w,
                                      sizes);
#endif
            }
        }
    }
}

#endif
