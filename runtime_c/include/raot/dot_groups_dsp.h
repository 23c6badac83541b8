/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_dsp.h - dot_groups.h by SMLAD, for Cortex-M with the DSP extension and an FPU.
 */
#ifndef RAOT_DOT_GROUPS_DSP_H
#define RAOT_DOT_GROUPS_DSP_H

#include <stdint.h>

/*
 * Four columns of one row. Weights of 4 bits are extracted to the upper bits of halfwords, so that
 * the sums are 4096 times as large; the conversion to float divides them.
 *
 *     r4 to r7         integer sums
 *     r1, r2, r3       left operand, weights, scales
 *     s0 to s3         sums of groups
 *     s12              scales, for weights of 4 bits
 *     [sp]             end of the group of the left operand
 *     [sp, #4]         sums (r0)
 *     [sp, #8]         saved registers
 *     [sp, #40]        argument: groups
 *     [sp, #44]        argument: group
 */
/* clang-format off */
#define RAOT_DOT_BEGIN_DSP \
    "push {r4-r8, r10, r11, lr}\n sub sp, #8\n str r0, [sp, #4]\n" \
    "movs r4, #0\n vmov s0, s1, r4, r4\n vmov s2, s3, r4, r4\n" \
    "1: ldr r4, [sp, #44]\n add r4, r1\n str r4, [sp]\n" \
    "movs r4, #0\n movs r5, #0\n movs r6, #0\n movs r7, #0\n"
#define RAOT_DOT_END_DSP(CONVERT) \
    "vmov s4, s5, r4, r5\n vmov s6, s7, r6, r7\n" CONVERT \
    "vldmia r3, {s8-s11}\n adds r3, #128\n ldr r4, [sp, #40]\n" \
    "vfma.f32 s0, s4, s8\n vfma.f32 s1, s5, s9\n" \
    "vfma.f32 s2, s6, s10\n vfma.f32 s3, s7, s11\n" \
    "subs r4, #1\n str r4, [sp, #40]\n bne 1b\n" \
    "ldr r0, [sp, #4]\n vstmia r0, {s0-s3}\n add sp, #8\n pop {r4-r8, r10, r11, pc}\n"

/* Two columns: r11 and r12 hold four weights each, r10 and r8 the left operand. */
#define RAOT_DOT_PAIR_DSP(A, B) \
    "ldrd r11, r12, [r2], #8\n" \
    "sxtb16 lr, r11\n sxtb16 r11, r11, ror #8\n" \
    "smlad " A ", lr, r10, " A "\n smlad " A ", r11, r8, " A "\n" \
    "sxtb16 lr, r12\n sxtb16 r12, r12, ror #8\n" \
    "smlad " B ", lr, r10, " B "\n smlad " B ", r12, r8, " B "\n"
#define RAOT_DOT_FOUR_DSP \
    "ldr r8, [r1], #4\n sxtb16 r10, r8\n sxtb16 r8, r8, ror #8\n" \
    RAOT_DOT_PAIR_DSP("r4", "r5") RAOT_DOT_PAIR_DSP("r6", "r7")

RAOT_NAKED static void raot_dot_block_q8(
    RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const int8_t *left, RAOT_ARGUMENT const void *weights,
    RAOT_ARGUMENT const float *scales, RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t group)
{
    __asm__ volatile(
        RAOT_DOT_BEGIN_DSP "ldr r0, [sp]\n"
        "3:\n .rept 8\n" RAOT_DOT_FOUR_DSP ".endr\n"
        "cmp r1, r0\n bne 3b\n"
        RAOT_DOT_END_DSP(
            "vcvt.f32.s32 s4, s4\n vcvt.f32.s32 s5, s5\n"
            "vcvt.f32.s32 s6, s6\n vcvt.f32.s32 s7, s7\n"));
}

/* Eight steps of a column: r12 holds the weights; r0, r8, r10 and r11 the left operand. */
#define RAOT_DOT_COLUMN_DSP(A) \
    "ldr r12, [r2], #4\n and r3, lr, r12, lsl #12\n smlad " A ", r3, r8, " A "\n" \
    "and r3, lr, r12, lsl #8\n smlad " A ", r3, r0, " A "\n" \
    "and r3, lr, r12, lsl #4\n smlad " A ", r3, r11, " A "\n" \
    "and r3, lr, r12\n smlad " A ", r3, r10, " A "\n"
#define RAOT_DOT_EIGHT_DSP \
    "ldrd r0, r10, [r1], #8\n sxtb16 r8, r0\n sxtb16 r0, r0, ror #8\n" \
    "sxtb16 r11, r10\n sxtb16 r10, r10, ror #8\n" \
    RAOT_DOT_COLUMN_DSP("r4") RAOT_DOT_COLUMN_DSP("r5") \
    RAOT_DOT_COLUMN_DSP("r6") RAOT_DOT_COLUMN_DSP("r7")

RAOT_NAKED static void raot_dot_block_q4(
    RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const int8_t *left, RAOT_ARGUMENT const void *weights,
    RAOT_ARGUMENT const float *scales, RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t group)
{
    __asm__ volatile(
        "vmov s12, r3\n"
        RAOT_DOT_BEGIN_DSP "mov lr, #0xf000f000\n"
        "3:\n .rept 4\n" RAOT_DOT_EIGHT_DSP ".endr\n"
        "ldr r3, [sp]\n cmp r1, r3\n bne 3b\n"
        "vmov r3, s12\n add r12, r3, #128\n vmov s12, r12\n"
        RAOT_DOT_END_DSP(
            "vcvt.f32.s32 s4, s4, #12\n vcvt.f32.s32 s5, s5, #12\n"
            "vcvt.f32.s32 s6, s6, #12\n vcvt.f32.s32 s7, s7, #12\n"));
}
/* clang-format on */

static inline void raot_dot_dsp(int32_t bits, float *sums, const int8_t *left, const void *weights,
                                const float *scales, const struct raot_dot_groups *sizes)
{
    const int32_t bytes = sizes->groups * sizes->group * bits / 2;

    /* LDRD does not read from any address. */
    if (bits == 4 && (((uintptr_t)left | (uintptr_t)sizes->left_row) & 3u) != 0) {
        raot_dot_plain(bits, 4, 4, sums, left, weights, scales, sizes);
        return;
    }

    for (int32_t r = 0; r < sizes->rows; r++) {
        const int8_t *const from = left + r * sizes->left_row;
        float *const to = sums + r * RAOT_GROUP_COLUMNS;
        const int8_t *block = weights;
        for (int32_t c = 0; c < sizes->columns; c += 4) {
            if (bits == 8) {
                raot_dot_block_q8(to + c, from, block, scales + c, sizes->groups, sizes->group);
            } else {
                raot_dot_block_q4(to + c, from, block, scales + c, sizes->groups, sizes->group);
            }
            block += bytes;
        }
    }
}

#define RAOT_DOT_FAST_DSP(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES) \
    raot_dot_dsp(BITS, SUMS, LEFT, WEIGHTS, SCALES, SIZES)

#endif
