/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_half_mve.h - multiply_half.h for Cortex-M with Helium: one row of 16 sums, or three rows
 * of eight, in registers.
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

/* All elements as floats; returns how many. */
__attribute__((always_inline)) static inline int32_t
raot_half_convert(const enum raot_half kind, float *to, const uint16_t *from, int32_t count)
{
    if (kind == RAOT_BF16) {
        for (int32_t i = 0; i < count; i += 4) {
            const mve_pred16_t some = vctp32q((uint32_t)(count - i));
            const uint32x4_t wide = vshlq_n_u32(vldrhq_z_u32(from + i, some), 16);
            vstrwq_p_f32(to + i, vreinterpretq_f32_u32(wide), some);
        }
        return count;
    }
    __asm__ volatile(
        "wls lr, %[groups], 2f\n"
        "1: vldrh.u32 q4, [%[from]], #8\n vldrh.u32 q5, [%[from]], #8\n" RAOT_WIDEN_Q4 RAOT_WIDEN_Q5
        "vstrw.32 q4, [%[to]], #16\n vstrw.32 q5, [%[to]], #16\n le lr, 1b\n"
        "2: wlstp.32 lr, %[rest], 4f\n"
        "3: vldrh.u32 q4, [%[from]], #8\n" RAOT_WIDEN_Q4 "vstrw.32 q4, [%[to]], #16\n"
        "letp lr, 3b\n"
        "4:\n"
        : [from] "+&l"(from), [to] "+&r"(to)
        : [groups] "r"(count / 8), [rest] "r"(count % 8)
        : "q4", "q5", "lr", "memory");
    return count;
}

/* Whether raot_half_registers computes a loop: of f16, by contiguous rows. */
static inline int raot_half_fits(enum raot_half kind, int32_t rows, const struct raot_level *level,
                                 const uint16_t *right)
{
    (void)rows;
    (void)right;
    return kind == RAOT_F16 && level->left == 1;
}

/* One row and 16 columns. */
__attribute__((always_inline)) static inline void
raot_half_row(const struct raot_level *level, const float *left, const uint16_t *right, float *sums)
{
    float factor;

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
        : [a] "+&r"(left), [b] "+&l"(right), [factor] "=&r"(factor)
        : [sums] "r"(sums), [count] "r"(level->count), [right] "r"(2 * level->right)
        : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "lr", "memory");
    /* clang-format on */
}

/* Three rows and eight columns. */
__attribute__((always_inline)) static inline void
raot_half_three_rows(const struct raot_level *level, const float *left, int32_t left_row,
                     const uint16_t *right, float *sums)
{
    const float *second = left + left_row;
    const float *third = second + left_row;
    float factor;

    /* clang-format off */
    __asm__ volatile(
        "vldrw.32 q0, [%[sums]]\n vldrw.32 q1, [%[sums], #16]\n"
        "vldrw.32 q2, [%[sums], #128]\n vldrw.32 q3, [%[sums], #144]\n"
        "vldrw.32 q4, [%[sums], #256]\n vldrw.32 q5, [%[sums], #272]\n"
        "wls lr, %[count], 2f\n"
        "1: vldrh.u32 q6, [%[b]]\n vldrh.u32 q7, [%[b], #8]\n" RAOT_WIDEN_Q6
        "ldr %[factor], [%[a]], #4\n" RAOT_WIDEN_Q7
        "vfma.f32 q0, q6, %[factor]\n add %[b], %[right]\n vfma.f32 q1, q7, %[factor]\n"
        "ldr %[factor], [%[second]], #4\n"
        "vfma.f32 q2, q6, %[factor]\n vfma.f32 q3, q7, %[factor]\n"
        "ldr %[factor], [%[third]], #4\n"
        "vfma.f32 q4, q6, %[factor]\n vfma.f32 q5, q7, %[factor]\n le lr, 1b\n"
        "2: vstrw.32 q0, [%[sums]]\n vstrw.32 q1, [%[sums], #16]\n"
        "vstrw.32 q2, [%[sums], #128]\n vstrw.32 q3, [%[sums], #144]\n"
        "vstrw.32 q4, [%[sums], #256]\n vstrw.32 q5, [%[sums], #272]\n"
        : [a] "+&r"(left), [second] "+&r"(second), [third] "+&r"(third), [b] "+&l"(right),
          [factor] "=&r"(factor)
        : [sums] "r"(sums), [count] "r"(level->count), [right] "r"(2 * level->right)
        : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "lr", "memory");
    /* clang-format on */
}

/* The first columns of one or three rows; returns how many. */
__attribute__((always_inline)) static inline int32_t
raot_half_registers(int32_t rows, int32_t columns, const struct raot_level *level,
                    const float *left, int32_t left_row, const uint16_t *right, float *sums)
{
    int32_t c = 0;

    if (rows == 1) {
        for (; c + 16 <= columns; c += 16) {
            raot_half_row(level, left, right + c, sums + c);
        }
        return c;
    }
    for (; c + 8 <= columns; c += 8) {
        raot_half_three_rows(level, left, left_row, right + c, sums + c);
    }
    return c;
}

#endif
