/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_parts_mve.h - dot_parts.h for Cortex-M with Helium: parts by VMLADAVA of 16-bit integers.
 */
#ifndef RAOT_DOT_PARTS_MVE_H
#define RAOT_DOT_PARTS_MVE_H

#include <stdint.h>

#include "mve.h"

static inline int32_t raot_split_peak_mve(const float *left, int32_t count)
{
    int32_t peak = 0;

    for (int32_t i = 0; i < count; i += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)(count - i));
        const int32x4_t sizes = vreinterpretq_s32_f32(vabsq_f32(vldrwq_z_f32(left + i, some)));
        const mve_pred16_t finite = vcmpltq_m_n_s32(sizes, RAOT_PART_INFINITE, some);
        peak = vmaxvq_p_s32(peak, sizes, finite);
    }
    return peak;
}

/* The elements of every other step as integers. The `bits` of small ones are added to `small`. */
static inline int32x4_t raot_split_4(float32x4_t x, int32_t exponent, uint32x4_t bits,
                                     uint32_t *small)
{
    const int32x4_t sizes = vreinterpretq_s32_f32(vabsq_f32(x));
    const mve_pred16_t large = vcmpgeq_n_s32(sizes, (exponent - 10) * 0x800000);
    const mve_pred16_t fits = vcmpltq_m_n_s32(sizes, RAOT_PART_INFINITE, large);
    const mve_pred16_t others = vcmpgtq_m_n_s32(sizes, 0, (mve_pred16_t)~fits);
    const float32x4_t scaled = vmulq_n_f32(x, raot_part_power(284 - exponent));

    *small = vaddvaq_p_u32(*small, bits, others);
    return vcvtnq_m_s32_f32(vdupq_n_s32(0), scaled, fits);
}

/* The upper and the lower parts of eight integers: even ones, then odd ones. */
static inline void raot_split_parts(int16_t *parts, int32x4_t even, int32x4_t odd, int32_t sums[2])
{
    const int16x8_t low = vmovntq_s32(vmovnbq_s32(vdupq_n_s16(0), even), odd);
    const int16x8_t high = vrshrntq_n_s32(vrshrnbq_n_s32(vdupq_n_s16(0), even, 16), odd, 16);

    vst1q_s16(parts, low);
    vst1q_s16(parts + 8, high);
    sums[0] = vaddvaq_s16(sums[0], low);
    sums[1] = vaddvaq_s16(sums[1], high);
}

/* A line without small elements. The result is the exponent, or 0 where it has some. */
__attribute__((always_inline)) static inline int32_t
raot_split_whole(int16_t *parts, const float *left, int32_t sums[2])
{
    const int32x4_t first = vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(left)));
    int32x4_t greatest = first;
    int32x4_t smallest = first;
    int32_t odd[2] = {0, 0};

    for (int32_t i = 4; i < RAOT_PART_STEPS; i += 4) {
        const int32x4_t sizes = vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(left + i)));
        greatest = vmaxq_s32(greatest, sizes);
        smallest = vminq_s32(smallest, sizes);
    }
    const int32_t peak = vmaxvq_s32(0, greatest);
    const int32_t exponent = raot_part_exponent(peak);
    if (peak >= RAOT_PART_INFINITE ||
        vminvq_s32(RAOT_PART_SIZE, smallest) < (exponent - 10) * 0x800000) {
        return 0;
    }
    const float factor = raot_part_power(284 - exponent);
    for (int32_t i = 0; i < RAOT_PART_STEPS; i += 8) {
        const float32x4x2_t x = vld2q_f32(left + i);
        raot_split_parts(parts + 2 * i, vcvtnq_s32_f32(vmulq_n_f32(x.val[0], factor)),
                         vcvtnq_s32_f32(vmulq_n_f32(x.val[1], factor)), i % 16 == 0 ? sums : odd);
    }
    return exponent;
}

/* Eight steps of a line, the last of which may lie behind `count` elements. The sums of the parts
 * are added to `sums`, and the bits of small elements are returned. */
static inline int32_t raot_split_8(int16_t *parts, const float *left, int32_t count,
                                   int32_t exponent, int32_t sums[2])
{
    const uint32x4_t bits = vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(vidupq_n_u32(0, 2)));
    float filled[8] = {0};
    uint32_t small = 0;

    if (count < 8) {
        for (int32_t i = 0; i < count; i++) {
            filled[i] = left[i];
        }
        left = filled;
    }
    const float32x4x2_t x = vld2q_f32(left);
    const int32x4_t even = raot_split_4(x.val[0], exponent, bits, &small);
    const int32x4_t odd = raot_split_4(x.val[1], exponent, vshlq_n_u32(bits, 1), &small);
    raot_split_parts(parts, even, odd, sums);
    return (int32_t)small;
}

/* As raot_split_line. */
static inline int32_t raot_split_line_mve(int16_t *parts, const float *left, int32_t count,
                                          int32_t sums[2], uint32_t *small)
{
    const int32_t whole = count == RAOT_PART_STEPS ? raot_split_whole(parts, left, sums) : 0;
    const int32_t exponent =
        whole > 0 ? whole : raot_part_exponent(raot_split_peak_mve(left, count));
    const int32_t steps = whole > 0 ? 0 : (int32_t)RAOT_PART_STEPS;
    int32_t odd[2] = {0, 0};

    for (int32_t k = 0; k < steps; k += 16) {
        int16_t *const to = parts + 2 * k;
        const int32_t first = raot_split_8(to, left + k, count - k, exponent, sums);
        const int32_t second = raot_split_8(to + 16, left + k + 8, count - k - 8, exponent, odd);
        *small |= (uint32_t)(first | second << 8) << k;
    }
    return exponent;
}

/* As raot_parts_step. */
__attribute__((always_inline)) static inline void
raot_parts_step_mve(const int32_t bits, const int32_t raised, float *sums, float x,
                    const int8_t *weights, int32_t bytes, const float *scales, int32_t k,
                    int32_t blocks)
{
    const int32_t steps = 64 / bits;
    const uint32x4_t columns = vidupq_n_u32(0, 8);

    weights += k / steps * 32 + k % 8;
    for (; blocks > 0; blocks--) {
        const int32x4_t stored = vldrbq_gather_offset_s32(weights, columns);
        int32x4_t weight = stored;
        if (bits == 4) {
            weight = raised != 0 ? vsubq_n_s32(vandq_s32(stored, vdupq_n_s32(15)), 8)
                                 : vshrq_n_s32(stored, 4);
        }
        const float32x4_t product = vmulq_n_f32(vcvtq_f32_s32(weight), x);
        vst1q_f32(sums, vfmaq_f32(vld1q_f32(sums), product, vld1q_f32(scales)));
        weights += bytes;
        scales += 4;
        sums += 4;
    }
}

#if defined(RAOT_ASM_THUMB) && !defined(__OPTIMIZE_SIZE__)
#define RAOT_PARTS_ASM 8 /* steps of blocks */
/*
 * Adds the integers of some lines to sums of blocks of four columns. This is assembly because GCC
 * does not keep eight sums in registers.
 *
 *     r0, r2, r4, r6    sums of the upper parts
 *     r8, r10, r12, lr  sums of the lower parts
 *     r1, r3, r5, r7    parts, weights, scales, units
 *     r11               with weights of 8 bits: from scales to those of the next line, in bytes;
 *                       with 4 bits: offsets
 *     q0 to q3          parts, weights
 *     q4                sums of all lines
 *     [sp, #64]         sums, parts, scales
 *     [sp, #108]        arguments: units, their end, offsets; from scales to those of the next line
 *                       and from the end of the weights to those of the next block, in bytes;
 *                       blocks
 */
/* clang-format off */
#define RAOT_PARTS_TWO(ADD, Q, LOW, HIGH, LOWER, UPPER) \
    "vmladav" ADD ".s16 " LOWER ", " LOW ", " Q "\n vmladav" ADD ".s16 " UPPER ", " HIGH ", " Q "\n"
/* Eight steps of four columns, and a line of 32. */
#define RAOT_PARTS_EIGHT(ADD) \
    "vldrh.16 q0, [r1], #16\n vldrb.s16 q2, [r3], #8\n vldrh.16 q1, [r1], #16\n" \
    RAOT_PARTS_TWO(ADD, "q2", "q0", "q1", "r8", "r0") \
    "vldrb.s16 q3, [r3], #8\n" RAOT_PARTS_TWO(ADD, "q3", "q0", "q1", "r10", "r2") \
    "vldrb.s16 q2, [r3], #8\n" RAOT_PARTS_TWO(ADD, "q2", "q0", "q1", "r12", "r4") \
    "vldrb.s16 q3, [r3], #8\n" RAOT_PARTS_TWO(ADD, "q3", "q0", "q1", "lr", "r6")
#define RAOT_PARTS_Q8_MVE \
    RAOT_PARTS_EIGHT("") RAOT_PARTS_EIGHT("a") RAOT_PARTS_EIGHT("a") RAOT_PARTS_EIGHT("a")
/* Sixteen steps of a column: those in the low halves of its bytes, then the others. */
#define RAOT_PARTS_COLUMN(ADD, LOWER, UPPER) \
    "vldrb.s16 q5, [r3], #8\n vand q6, q5, q7\n" \
    RAOT_PARTS_TWO(ADD, "q6", "q0", "q1", LOWER, UPPER) \
    "vshr.s16 q5, q5, #4\n" RAOT_PARTS_TWO("a", "q5", "q2", "q3", LOWER, UPPER)
#define RAOT_PARTS_SIXTEEN(ADD) \
    "vldrh.16 q0, [r1], #16\n vldrh.16 q1, [r1], #16\n" \
    "vldrh.16 q2, [r1], #16\n vldrh.16 q3, [r1], #16\n" \
    RAOT_PARTS_COLUMN(ADD, "r8", "r0") RAOT_PARTS_COLUMN(ADD, "r10", "r2") \
    RAOT_PARTS_COLUMN(ADD, "r12", "r4") RAOT_PARTS_COLUMN(ADD, "lr", "r6")
#define RAOT_PARTS_Q4_MVE RAOT_PARTS_SIXTEEN("") RAOT_PARTS_SIXTEEN("a")
#define RAOT_PARTS_OFFSETS "ldrd r4, r6, [r11], #8\n vadd.i32 q1, q1, r4\n vadd.i32 q0, q0, r6\n"
#define RAOT_PARTS_ASM_MVE(LINE, SETUP, START, OFFSETS, NEXT) \
    __asm volatile( \
        "push {r0, r1, r3, r4, r5, r6, r7, r8, r10, r11, lr}\n" \
        "vpush {d8, d9, d10, d11, d12, d13, d14, d15}\n" \
        "mov r5, r3\n mov r3, r2\n" SETUP \
        "1:\n ldr r7, [sp, #108]\n vldrw.32 q4, [r0]\n" START \
        "2:\n" LINE \
        "vmov q0[2], q0[0], r0, r4\n vmov q0[3], q0[1], r2, r6\n" \
        "vmov q1[2], q1[0], r8, r12\n vmov q1[3], q1[1], r10, lr\n" OFFSETS \
        "ldr r0, [r7], #4\n vcvt.f32.s32 q0, q0\n vcvt.f32.s32 q1, q1, #16\n" \
        "vldrw.32 q2, [r5]\n vadd.f32 q0, q0, q1\n" NEXT "vmul.f32 q0, q0, r0\n" \
        "ldr r0, [sp, #112]\n vfma.f32 q4, q0, q2\n cmp r7, r0\n bne 2b\n" \
        "ldr r2, [sp, #124]\n add r3, r3, r2\n ldr r1, [sp, #68]\n" \
        "ldr r5, [sp, #72]\n adds r5, #16\n str r5, [sp, #72]\n" \
        "ldr r0, [sp, #64]\n vstrw.32 q4, [r0], #16\n str r0, [sp, #64]\n" \
        "ldr r2, [sp, #128]\n subs r2, #1\n str r2, [sp, #128]\n bne 1b\n" \
        "vpop {d8, d9, d10, d11, d12, d13, d14, d15}\n add sp, sp, #12\n" \
        "pop {r4, r5, r6, r7, r8, r10, r11, pc}\n")

RAOT_NAKED static void raot_parts_lines_q8(
    RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const int16_t *parts,
    RAOT_ARGUMENT const int8_t *weights, RAOT_ARGUMENT const float *scales,
    RAOT_ARGUMENT const float *units, RAOT_ARGUMENT const float *end,
    RAOT_ARGUMENT const int32_t *offsets, RAOT_ARGUMENT int32_t next, RAOT_ARGUMENT int32_t skipped,
    RAOT_ARGUMENT int32_t blocks)
{
    RAOT_PARTS_ASM_MVE(RAOT_PARTS_Q8_MVE, "ldr r11, [sp, #120]\n", "", "", "add r5, r5, r11\n");
}

RAOT_NAKED static void raot_parts_lines_q4(
    RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const int16_t *parts,
    RAOT_ARGUMENT const int8_t *weights, RAOT_ARGUMENT const float *scales,
    RAOT_ARGUMENT const float *units, RAOT_ARGUMENT const float *end,
    RAOT_ARGUMENT const int32_t *offsets, RAOT_ARGUMENT int32_t next, RAOT_ARGUMENT int32_t skipped,
    RAOT_ARGUMENT int32_t blocks)
{
    RAOT_PARTS_ASM_MVE(RAOT_PARTS_Q4_MVE, "vmov.i16 q7, #15\n", "ldr r11, [sp, #116]\n",
                       RAOT_PARTS_OFFSETS, "ldr r2, [sp, #120]\n add r5, r5, r2\n");
}
/* clang-format on */
#endif

/* As raot_parts_line. */
__attribute__((always_inline)) static inline void
raot_parts_line_mve(const int32_t bits, float *sums, const int16_t *parts, float unit,
                    const int32_t *offsets, const int8_t *block, const float *scales)
{
    int32_t low[4] = {0, 0, 0, 0};
    int32_t high[4] = {0, 0, 0, 0};

    for (int32_t k = 0; k < RAOT_PART_STEPS; k += bits == 8 ? 8 : 16) {
        for (int32_t c = 0; c < 4; c++) {
            const int16x8_t both = vldrbq_s16(block);
            const int16x8_t weight = bits == 8 ? both : vandq_s16(both, vdupq_n_s16(15));
            low[c] = vmladavaq_s16(low[c], vld1q_s16(parts), weight);
            high[c] = vmladavaq_s16(high[c], vld1q_s16(parts + 8), weight);
            if (bits == 4) {
                const int16x8_t upper = vshrq_n_s16(both, 4);
                low[c] = vmladavaq_s16(low[c], vld1q_s16(parts + 16), upper);
                high[c] = vmladavaq_s16(high[c], vld1q_s16(parts + 24), upper);
            }
            block += 8;
        }
        parts += bits == 8 ? 16 : 32;
    }
    int32x4_t lower = vld1q_s32(low);
    int32x4_t upper = vld1q_s32(high);
    if (bits == 4) {
        lower = vaddq_n_s32(lower, offsets[0]);
        upper = vaddq_n_s32(upper, offsets[1]);
    }
    const float32x4_t value = vaddq_f32(vcvtq_f32_s32(upper), vcvtq_n_f32_s32(lower, 16));
    vst1q_f32(sums, vfmaq_f32(vld1q_f32(sums), vmulq_n_f32(value, unit), vld1q_f32(scales)));
}

#endif
