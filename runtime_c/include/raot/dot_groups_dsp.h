/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_groups_dsp.h - dot_groups.h and dot_blocks.h by SMLAD, for Cortex-M with the DSP extension
 * and an FPU. Groups have 32 steps.
 *
 * The left operand is converted once for all columns, so that four weights take one load, one
 * extraction and two multiply-adds. With weights of 8 bits, a halfword 256 * o + e is multiplied by
 * the left element a of o, and e by 256 * b - a, where b is that of e. The sum is 256 * (a * o + b
 * * e). With weights of 4 bits, a halfword ((16 * p + q) * 16 + r) * 16 + s is multiplied by the
 * left element a of p, 256 * q + 16 * r + s by 16 * b - a, 256 * r + 16 * s by 16 * c - b, and 256
 * * s by 16 * d - c. The sum is 4096 * (a * p + b * q + c * r + d * s); q, r and s are the weights
 * with 8 added, so that sums begin with -8 times 4096 * (b + c + d). Partial sums may wrap, the
 * whole ones do not; the conversion to float divides them.
 */
#ifndef RAOT_DOT_GROUPS_DSP_H
#define RAOT_DOT_GROUPS_DSP_H

#include <stdint.h>

#define RAOT_DSP_GROUP 32
#define RAOT_DSP_GROUPS 8 /* converted at a time */
#define RAOT_DSP_PAIRS 21 /* words of a group at most */

/*
 * Two words for each four elements of the left operand up to `end`: those that are multiplied by
 * the halfwords of weights, and by what is extracted from them. With weights of 4 bits, four for
 * each eight, behind four words for each group with what sums begin with. The scale of a group is
 * its last word, where each has one. Elements may have any address.
 */
/* clang-format off */
#define RAOT_DOT_PAIRS_DSP(NAME, SETUP, START, EIGHT, END) \
    RAOT_NAKED static void NAME(RAOT_ARGUMENT uint32_t *pairs, RAOT_ARGUMENT const int8_t *left, \
                                RAOT_ARGUMENT const int8_t *end, RAOT_ARGUMENT const float *own) \
    { \
        __asm__ volatile( \
            "push {r4-r8, r10, r11, lr}\n mov r10, r3\n" SETUP "1:\n" START \
            ".rept 4\n ldr r4, [r1], #4\n ldr r12, [r1], #4\n" EIGHT \
            "stmia r0!, {r3, r4, r5, r12}\n .endr\n" END \
            "cmp r1, r2\n bne 1b\n pop {r4-r8, r10, r11, pc}\n"); \
    }
#define RAOT_DOT_DIFFERENCE_DSP(A, B) \
    "sxtb16 " A ", " B ", ror #8\n and " B ", r6, " B ", lsl #8\n ssub16 " B ", " B ", " A "\n"
#define RAOT_DOT_EXTENDED_DSP(A, B) "sxtb16 " A ", " B "\n sxtb16 " B ", " B ", ror #8\n"
#define RAOT_DOT_OFFSET_DSP(A) "smlad r8, " A ", r7, r8\n"
#define RAOT_DOT_NEXT_DSP(A, B) \
    "and " A ", r6, " A ", lsl #4\n ssub16 " A ", " A ", " B "\n"
#define RAOT_DOT_PAIRS_Q8_DSP(NAME, END) \
    RAOT_DOT_PAIRS_DSP(NAME, "mov r6, #0xff00ff00\n", "", \
                       RAOT_DOT_DIFFERENCE_DSP("r3", "r4") RAOT_DOT_DIFFERENCE_DSP("r5", "r12"), END)
#define RAOT_DOT_PAIRS_Q4_DSP(NAME, END) \
    RAOT_DOT_PAIRS_DSP(NAME, "mvn r6, #0x000f000f\n mov r7, #0x80008000\n", \
                       "mov r8, #0\n adds r0, #16\n", \
                       RAOT_DOT_EXTENDED_DSP("r3", "r4") RAOT_DOT_EXTENDED_DSP("r5", "r12") \
                       RAOT_DOT_OFFSET_DSP("r3") RAOT_DOT_OFFSET_DSP("r4") \
                       RAOT_DOT_OFFSET_DSP("r5") RAOT_DOT_NEXT_DSP("r3", "r4") \
                       RAOT_DOT_NEXT_DSP("r4", "r5") RAOT_DOT_NEXT_DSP("r5", "r12"), \
                       "strd r8, r8, [r0, #-80]\n strd r8, r8, [r0, #-72]\n" END)
#define RAOT_DOT_PAIRS_OWN_DSP "ldr r4, [r10], #4\n str r4, [r0], #4\n"
RAOT_DOT_PAIRS_Q8_DSP(raot_dot_pairs_q8, "")
RAOT_DOT_PAIRS_Q4_DSP(raot_dot_pairs_q4, "")
RAOT_DOT_PAIRS_Q8_DSP(raot_dot_scaled_pairs_q8, RAOT_DOT_PAIRS_OWN_DSP)
RAOT_DOT_PAIRS_Q4_DSP(raot_dot_scaled_pairs_q4, RAOT_DOT_PAIRS_OWN_DSP)
/* clang-format on */

/*
 * Some groups of one row, eight columns after the other, panel by panel; sums begin with the first
 * group. Weights of 8 bits.
 *
 *     r4 to r7          integer sums of four columns; behind a group r4 is the scales
 *     r1, r2, r3        pairs, weights of the first and of the last four columns
 *     r0, lr            a pair of words
 *     r8, r10 to r12    weights of four columns
 *     s0 to s7          sums
 *     s8 to s15         sums of a group
 *     s16 to s24        scales
 *     [sp]              sums (r0)
 *     [sp, #4]          saved registers
 *     [sp, #76]         argument: scales
 *     [sp, #80]         argument: the end of `pairs`
 *     [sp, #84]         argument: pairs
 *     [sp, #88]         argument: 0 where the sums begin
 *     [sp, #92]         argument: bytes of weights from these groups to those of the next columns
 *     [sp, #96]         argument: bytes of weights of all groups of four columns
 *     [sp, #100]        argument: bytes of scales from these groups back to those of next columns
 *     [sp, #104]        argument: the end of the panel's sums
 *     [sp, #108]        argument: the end of all sums
 *     [sp, #112]        argument: bytes of scales from the end of a panel to the next one
 */
/* clang-format off */
/* One step of four: `FIRST` begins the sums. */
#define RAOT_DOT_WEIGHTS_DSP(FIRST, A, W) \
    FIRST(A, W, "r0") "sxtb16 " W ", " W "\n smlad " A ", " W ", lr, " A "\n"
#define RAOT_DOT_BEGUN_DSP(A, W, X) "smuad " A ", " W ", " X "\n"
#define RAOT_DOT_ADDED_DSP(A, W, X) "smlad " A ", " W ", " X ", " A "\n"
#define RAOT_DOT_FOUR_DSP(FIRST, P) \
    "ldrd r0, lr, [r1], #8\n ldmia " P "!, {r8, r10, r11, r12}\n" \
    RAOT_DOT_WEIGHTS_DSP(FIRST, "r4", "r8") RAOT_DOT_WEIGHTS_DSP(FIRST, "r5", "r10") \
    RAOT_DOT_WEIGHTS_DSP(FIRST, "r6", "r11") RAOT_DOT_WEIGHTS_DSP(FIRST, "r7", "r12")
#define RAOT_DOT_COLUMNS_OF_FOUR_DSP(P, A, B, C, D) \
    RAOT_DOT_FOUR_DSP(RAOT_DOT_BEGUN_DSP, P) \
    ".rept 7\n" RAOT_DOT_FOUR_DSP(RAOT_DOT_ADDED_DSP, P) ".endr\n" \
    "vmov " A ", " B ", r4, r5\n vmov " C ", " D ", r6, r7\n"
#define RAOT_DOT_FLOAT_DSP(A, B, C, D, BITS) \
    "vcvt.f32.s32 " A ", " A ", #" BITS "\n vcvt.f32.s32 " B ", " B ", #" BITS "\n" \
    "vcvt.f32.s32 " C ", " C ", #" BITS "\n vcvt.f32.s32 " D ", " D ", #" BITS "\n"
#define RAOT_DOT_BY_OWN_DSP(A, B, C, D, OWN) \
    "vmul.f32 " A ", " A ", " OWN "\n vmul.f32 " B ", " B ", " OWN "\n" \
    "vmul.f32 " C ", " C ", " OWN "\n vmul.f32 " D ", " D ", " OWN "\n"
#define RAOT_DOT_OWN_OF_EIGHT_DSP \
    "vldmia r1!, {s24}\n" RAOT_DOT_BY_OWN_DSP("s16", "s17", "s18", "s19", "s24") \
    RAOT_DOT_BY_OWN_DSP("s20", "s21", "s22", "s23", "s24")
#define RAOT_DOT_Q8_DSP(SCALE) \
    "vpush {d8-d12}\n push {r0, r4-r8, r10, r11, lr}\n" \
    "0: ldr r4, [sp, #88]\n vmov s0, s1, r4, r4\n vmov s2, s3, r4, r4\n" \
    "vmov s4, s5, r4, r4\n vmov s6, s7, r4, r4\n cbz r4, 1f\n vldmia r0, {s0-s7}\n" \
    "1:\n" RAOT_DOT_COLUMNS_OF_FOUR_DSP("r2", "s8", "s9", "s10", "s11") "subs r1, #64\n" \
    RAOT_DOT_COLUMNS_OF_FOUR_DSP("r3", "s12", "s13", "s14", "s15") "ldrd r4, r5, [sp, #76]\n" \
    RAOT_DOT_FLOAT_DSP("s8", "s9", "s10", "s11", "8") \
    RAOT_DOT_FLOAT_DSP("s12", "s13", "s14", "s15", "8") \
    "vldmia r4, {s16-s23}\n adds r4, #128\n str r4, [sp, #76]\n" SCALE "cmp r1, r5\n" \
    "vfma.f32 s0, s8, s16\n vfma.f32 s1, s9, s17\n vfma.f32 s2, s10, s18\n" \
    "vfma.f32 s3, s11, s19\n vfma.f32 s4, s12, s20\n vfma.f32 s5, s13, s21\n" \
    "vfma.f32 s6, s14, s22\n vfma.f32 s7, s15, s23\n bne 1b\n" \
    "ldr r0, [sp]\n vstmia r0!, {s0-s7}\n str r0, [sp]\n ldrd r5, r6, [sp, #92]\n" \
    "adds r2, r3, r5\n adds r3, r2, r6\n ldr r1, [sp, #84]\n ldrd r5, r7, [sp, #100]\n" \
    "subs r4, r4, r5\n str r4, [sp, #76]\n cmp r0, r7\n bne 0b\n" \
    "ldrd r5, r6, [sp, #108]\n adds r4, r4, r6\n str r4, [sp, #76]\n" \
    "adds r7, #128\n cmp r7, r5\n it hi\n movhi r7, r5\n str r7, [sp, #104]\n" \
    "cmp r0, r5\n bne 0b\n pop {r0, r4-r8, r10, r11, lr}\n vpop {d8-d12}\n bx lr\n"
#define RAOT_DOT_EIGHT_COLUMNS_DSP(NAME, TEXT) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const uint32_t *pairs, \
        RAOT_ARGUMENT const void *weights, RAOT_ARGUMENT const void *others, \
        RAOT_ARGUMENT const float *scales, RAOT_ARGUMENT const uint32_t *pairs_end, \
        RAOT_ARGUMENT const uint32_t *pairs_begin, RAOT_ARGUMENT int32_t first, \
        RAOT_ARGUMENT int32_t skip, RAOT_ARGUMENT int32_t four, RAOT_ARGUMENT int32_t back, \
        RAOT_ARGUMENT const float *panel_end, RAOT_ARGUMENT const float *sums_end, \
        RAOT_ARGUMENT int32_t next) \
    { \
        __asm__ volatile(TEXT); \
    }
RAOT_DOT_EIGHT_COLUMNS_DSP(raot_dot_group_q8, RAOT_DOT_Q8_DSP(""))
RAOT_DOT_EIGHT_COLUMNS_DSP(raot_dot_block_q8, RAOT_DOT_Q8_DSP(RAOT_DOT_OWN_OF_EIGHT_DSP))
/* clang-format on */

/*
 * The same for weights of 4 bits, four columns after the other.
 *
 *     r4 to r7          integer sums
 *     r1, r2, r3        pairs, weights, scales
 *     r0, lr            weights of two columns and what is extracted
 *     r8, r10 to r12    two pairs of words
 *     s0 to s3          sums
 *     [sp]              sums (r0)
 *     [sp, #4]          saved registers
 *     [sp, #36]         argument: the end of `pairs`
 *     [sp, #40]         argument: the end of the panel's sums
 *     [sp, #44]         argument: bytes of weights from these groups to those of the next columns
 *     [sp, #48]         argument: bytes of scales from these groups back to those columns
 *     [sp, #52]         argument: pairs
 *     [sp, #56]         argument: 0 where the sums begin
 *     [sp, #60]         argument: the end of all sums
 *     [sp, #64]         argument: bytes of scales from the end of a panel to the next one
 */
/* clang-format off */
#define RAOT_DOT_BEGIN_DSP(SETUP) \
    "push {r0, r4-r8, r10, r11, lr}\n" SETUP \
    "0: ldr r4, [sp, #56]\n vmov s0, s1, r4, r4\n vmov s2, s3, r4, r4\n" \
    "cbz r4, 1f\n vldmia r0, {s0-s3}\n"
#define RAOT_DOT_SUMS_DSP(BITS) \
    "vmov s4, s5, r4, r5\n vmov s6, s7, r6, r7\n" \
    RAOT_DOT_FLOAT_DSP("s4", "s5", "s6", "s7", BITS) "vldmia r3, {s8-s11}\n adds r3, #128\n"
#define RAOT_DOT_GROUP_DSP "ldr r4, [sp, #36]\n cmp r1, r4\n"
#define RAOT_DOT_OWN_DSP \
    "vldmia r1!, {s12}\n ldr r4, [sp, #36]\n cmp r1, r4\n" \
    RAOT_DOT_BY_OWN_DSP("s8", "s9", "s10", "s11", "s12")
#define RAOT_DOT_END_DSP \
    "vfma.f32 s0, s4, s8\n vfma.f32 s1, s5, s9\n" \
    "vfma.f32 s2, s6, s10\n vfma.f32 s3, s7, s11\n" \
    "bne 1b\n ldr r0, [sp]\n vstmia r0!, {s0-s3}\n str r0, [sp]\n" \
    "ldrd r4, r5, [sp, #40]\n ldrd r6, r1, [sp, #48]\n" \
    "add r2, r5\n subs r3, r3, r6\n cmp r0, r4\n bne 0b\n" \
    "ldrd r5, r6, [sp, #60]\n add r3, r6\n adds r4, #128\n cmp r4, r5\n it hi\n movhi r4, r5\n" \
    "str r4, [sp, #40]\n cmp r0, r5\n bne 0b\n" \
    "pop {r0, r4-r8, r10, r11, pc}\n"

/* Eight steps of two columns. The mask takes the place of the scales (r3), which s13 keeps. */
#define RAOT_DOT_TWO_DSP(A, B, X) \
    RAOT_DOT_ADDED_DSP(A, "r0", X) RAOT_DOT_ADDED_DSP(B, "lr", X)
#define RAOT_DOT_MASK_DSP(SHIFT) "and r0, r3, r0" SHIFT "\n and lr, r3, lr" SHIFT "\n"
#define RAOT_DOT_COLUMNS_DSP(A, B) \
    "ldrd r0, lr, [r2], #8\n" RAOT_DOT_TWO_DSP(A, B, "r12") \
    RAOT_DOT_MASK_DSP("") RAOT_DOT_TWO_DSP(A, B, "r11") \
    RAOT_DOT_MASK_DSP(", lsl #4") RAOT_DOT_TWO_DSP(A, B, "r10") \
    RAOT_DOT_MASK_DSP(", lsl #4") RAOT_DOT_TWO_DSP(A, B, "r8")
#define RAOT_DOT_Q4_DSP(SCALE) \
    RAOT_DOT_BEGIN_DSP("mvn r4, #0xf000f000\n vmov s14, r4\n") \
    "1: vmov s13, r3\n vmov r3, s14\n ldmia r1!, {r4-r7}\n" \
    ".rept 4\n ldmia r1!, {r8, r10, r11, r12}\n" \
    RAOT_DOT_COLUMNS_DSP("r4", "r5") RAOT_DOT_COLUMNS_DSP("r6", "r7") ".endr\n vmov r3, s13\n" \
    RAOT_DOT_SUMS_DSP("12") SCALE RAOT_DOT_END_DSP

#define RAOT_DOT_BLOCK_DSP(NAME, TEXT) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT float *sums, RAOT_ARGUMENT const uint32_t *pairs, \
        RAOT_ARGUMENT const void *weights, RAOT_ARGUMENT const float *scales, \
        RAOT_ARGUMENT const uint32_t *pairs_end, RAOT_ARGUMENT const float *panel_end, \
        RAOT_ARGUMENT int32_t skip, RAOT_ARGUMENT int32_t back, \
        RAOT_ARGUMENT const uint32_t *pairs_begin, RAOT_ARGUMENT int32_t first, \
        RAOT_ARGUMENT const float *sums_end, RAOT_ARGUMENT int32_t next) \
    { \
        __asm__ volatile(TEXT); \
    }
RAOT_DOT_BLOCK_DSP(raot_dot_group_q4, RAOT_DOT_Q4_DSP(RAOT_DOT_GROUP_DSP))
RAOT_DOT_BLOCK_DSP(raot_dot_block_q4, RAOT_DOT_Q4_DSP(RAOT_DOT_OWN_DSP))
/* clang-format on */

/* All columns of some groups of a row, from the group `first` on. With `blocks`, each group has a
 * scale in `own`. */
__attribute__((always_inline)) static inline void
raot_dot_row_dsp(const int32_t bits, const int32_t blocks, float *sums, const int8_t *left,
                 const void *weights, const float *scales, const float *own, int32_t first,
                 const struct raot_dot_groups *sizes)
{
    const int32_t bytes = RAOT_DSP_GROUP * bits / 2; /* of a group of four columns */
    const int32_t rest = sizes->groups - first;
    const int32_t count = rest < RAOT_DSP_GROUPS ? rest : RAOT_DSP_GROUPS;
    const int32_t skip = (sizes->groups - count) * bytes;
    const int32_t together = bits == 8 ? (int32_t)8 : 4; /* columns */
    const int32_t back = (count * RAOT_GROUP_COLUMNS - together) * (int32_t)sizeof(float);
    const int32_t next = (sizes->groups - 1) * RAOT_GROUP_COLUMNS * (int32_t)sizeof(float);
    const int8_t *const block = (const int8_t *)weights + first * bytes;
    const int8_t *const other = block + sizes->groups * bytes;
    const float *const scale = scales + first * RAOT_GROUP_COLUMNS;
    const int8_t *const from = left + first * RAOT_DSP_GROUP;
    const int8_t *const to = from + count * RAOT_DSP_GROUP;
    const float *const end = sums + (sizes->columns + together - 1) / together * together;
    const float *const panel =
        sizes->columns < RAOT_GROUP_COLUMNS ? end : sums + RAOT_GROUP_COLUMNS;
    uint32_t pairs[RAOT_DSP_GROUPS * RAOT_DSP_PAIRS];
    const uint32_t *const last = pairs + count * ((bits == 8 ? 16 : 20) + blocks);

    if (sizes->columns <= 0) {
        return;
    }
    if (blocks != 0 && bits == 8) {
        raot_dot_scaled_pairs_q8(pairs, from, to, own + first);
        raot_dot_block_q8(sums, pairs, block, other, scale, last, pairs, first, skip,
                          sizes->groups * bytes, back, panel, end, next);
    } else if (blocks != 0) {
        raot_dot_scaled_pairs_q4(pairs, from, to, own + first);
        raot_dot_block_q4(sums, pairs, block, scale, last, panel, skip, back, pairs, first, end,
                          next);
    } else if (bits == 8) {
        raot_dot_pairs_q8(pairs, from, to, own);
        raot_dot_group_q8(sums, pairs, block, other, scale, last, pairs, first, skip,
                          sizes->groups * bytes, back, panel, end, next);
    } else {
        raot_dot_pairs_q4(pairs, from, to, own);
        raot_dot_group_q4(sums, pairs, block, scale, last, panel, skip, back, pairs, first, end,
                          next);
    }
}

/* All rows. With `blocks`, each group of a row has a scale in `own`. */
__attribute__((always_inline)) static inline void
raot_dot_dsp(const int32_t bits, const int32_t blocks, float *sums, const int8_t *left,
             const void *weights, const float *scales, const float *own, int32_t own_row,
             const struct raot_dot_groups *sizes)
{
    for (int32_t r = 0; r < sizes->rows; r++) {
        for (int32_t g = 0; g < sizes->groups; g += RAOT_DSP_GROUPS) {
            raot_dot_row_dsp(bits, blocks, sums + r * raot_group_row(sizes->columns),
                             left + r * sizes->left_row, weights, scales, own + r * own_row, g,
                             sizes);
        }
    }
}

__attribute__((always_inline)) static inline void
raot_dot_groups_dsp(const int32_t bits, float *sums, const int8_t *left, const void *weights,
                    const float *scales, const struct raot_dot_groups *sizes)
{
    if (sizes->group == RAOT_DSP_GROUP) {
        raot_dot_dsp(bits, 0, sums, left, weights, scales, scales, 0, sizes);
    } else {
        raot_dot_plain(bits, 4, 4, sums, left, weights, scales, sizes);
    }
}

#define RAOT_DOT_FAST_DSP(BITS, COLUMNS, STEPS, SUMS, LEFT, WEIGHTS, SCALES, SIZES) \
    raot_dot_groups_dsp(BITS, SUMS, LEFT, WEIGHTS, SCALES, SIZES)

#endif
