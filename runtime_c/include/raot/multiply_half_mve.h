/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_half_mve.h - multiply_half.h for Cortex-M with Helium: one row of 16 sums in registers.
 *
 * Elements are loaded into the lower halves of words, which VCVTB converts.
 */
#ifndef RAOT_MULTIPLY_HALF_MVE_H
#define RAOT_MULTIPLY_HALF_MVE_H

/* VCVTB.F32.F16 of q4 to q7 in place: GNU as 2.40 encodes other registers for it. */
#define RAOT_WIDEN_Q4 ".inst.w 0xfe3f8e09\n"
#define RAOT_WIDEN_Q5 ".inst.w 0xfe3fae0b\n"
#define RAOT_WIDEN_Q6 ".inst.w 0xfe3fce0d\n"
#define RAOT_WIDEN_Q7 ".inst.w 0xfe3fee0f\n"

/* The first elements as floats; returns how many. */
__attribute__((always_inline)) static inline int32_t
raot_half_convert(const enum raot_half kind, float *to, const uint16_t *from, int32_t count)
{
    const int32_t groups = count / 8;

    if (kind == RAOT_BF16) {
        for (int32_t i = 0; i < 8 * groups; i += 4) {
            const uint32x4_t wide = vshlq_n_u32(vldrhq_u32(from + i), 16);
            vst1q_f32(to + i, vreinterpretq_f32_u32(wide));
        }
        return 8 * groups;
    }
    for (int32_t group = 0; group < groups; group++) {
        __asm__ volatile(
            "vldrh.u32 q4, [%[from]]\n vldrh.u32 q5, [%[from], #8]\n" RAOT_WIDEN_Q4 RAOT_WIDEN_Q5
            "vstrw.32 q4, [%[to]]\n vstrw.32 q5, [%[to], #16]\n"
            :
            : [from] "l"(from + 8 * group), [to] "r"(to + 8 * group)
            : "q4", "q5", "memory");
    }
    return 8 * groups;
}

/* One row and RAOT_HALF_WIDE columns; returns 0 if it does not compute them. */
__attribute__((always_inline)) static inline int raot_half_row(const enum raot_half kind,
                                                               const struct raot_level *level,
                                                               const float *left,
                                                               const uint16_t *right, float *sums)
{
    float factor;

    if (kind != RAOT_F16 || level->left != 1) {
        return 0;
    }
    /* clang-format off */
    __asm__ volatile(
        "vldrw.32 q0, [%[sums]]\n vldrw.32 q1, [%[sums], #16]\n"
        "vldrw.32 q2, [%[sums], #32]\n vldrw.32 q3, [%[sums], #48]\n"
        "wls lr, %[count], 2f\n"
        "1: vldrh.u32 q4, [%[b]]\n vldrh.u32 q5, [%[b], #8]\n" RAOT_WIDEN_Q4
        "vldrh.u32 q6, [%[b], #16]\n ldr %[factor], [%[a]], #4\n" RAOT_WIDEN_Q5
        "vfma.f32 q0, q4, %[factor]\n vldrh.u32 q7, [%[b], #24]\n" RAOT_WIDEN_Q6
        "vfma.f32 q1, q5, %[factor]\n add %[b], %[right]\n" RAOT_WIDEN_Q7
        "vfma.f32 q2, q6, %[factor]\n vfma.f32 q3, q7, %[factor]\n le lr, 1b\n"
        "2: vstrw.32 q0, [%[sums]]\n vstrw.32 q1, [%[sums], #16]\n"
        "vstrw.32 q2, [%[sums], #32]\n vstrw.32 q3, [%[sums], #48]\n"
        : [a] "+r"(left), [b] "+l"(right), [factor] "=&r"(factor)
        : [sums] "r"(sums), [count] "r"(level->count), [right] "r"(2 * level->right)
        : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "lr", "memory");
    /* clang-format on */
    return 1;
}

#endif
