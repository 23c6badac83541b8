/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_half_vfp.h - multiply_half.h for Cortex-M with a single-precision FPU: one row of 16
 * sums in registers.
 *
 * Words hold two elements each, of which VCVTB converts the lower and VCVTT the upper one.
 */
#ifndef RAOT_MULTIPLY_HALF_VFP_H
#define RAOT_MULTIPLY_HALF_VFP_H

static inline int raot_half_words(const uint16_t *from, int32_t step)
{
    return (((uintptr_t)from >> 1 | (uintptr_t)step) & 1u) == 0u;
}

/* The first elements as floats; returns how many. */
__attribute__((always_inline)) static inline int32_t
raot_half_convert(const enum raot_half kind, float *to, const uint16_t *from, int32_t count)
{
    int32_t groups = count / 8;

    if (kind == RAOT_BF16) {
        for (int32_t i = 0; i < groups * 8; i += 2) {
            uint32_t two;
            RAOT_COPY(&two, from + i, sizeof two);
            to[i] = raot_of_bitsf(two << 16);
            to[i + 1] = raot_of_bitsf(two & 0xffff0000u);
        }
        return groups * 8;
    }
    if (groups == 0 || !raot_half_words(from, 0)) {
        return 0;
    }
    __asm__ volatile("1: vldmia %[from]!, {s0-s3}\n"
                     "vcvtb.f32.f16 s8, s0\n vcvtt.f32.f16 s9, s0\n"
                     "vcvtb.f32.f16 s10, s1\n vcvtt.f32.f16 s11, s1\n"
                     "vcvtb.f32.f16 s12, s2\n vcvtt.f32.f16 s13, s2\n"
                     "vcvtb.f32.f16 s14, s3\n vcvtt.f32.f16 s15, s3\n"
                     "subs %[groups], #1\n vstmia %[to]!, {s8-s15}\n bne 1b\n"
                     : [from] "+&r"(from), [to] "+&r"(to), [groups] "+&r"(groups)
                     :
                     : "s0", "s1", "s2", "s3", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15",
                       "memory", "cc");
    return count / 8 * 8;
}

/* Four rows of f16 as floats next to each other, two steps at a time; returns how many steps. */
__attribute__((always_inline)) static inline int32_t
raot_half_four_rows(float *to, const uint16_t *left, int32_t left_row, int32_t count)
{
    const uint16_t *b = left + left_row;
    const uint16_t *c = b + left_row;
    const uint16_t *d = c + left_row;
    int32_t groups = count / 4;

    if (groups == 0 || !raot_half_words(left, left_row)) {
        return 0;
    }
    /* clang-format off */
    __asm__ volatile(
        "1: vldr s0, [%[a]]\n vldr s1, [%[b]]\n vldr s2, [%[c]]\n vldr s3, [%[d]]\n"
        "vldr s4, [%[a], #4]\n vldr s5, [%[b], #4]\n vldr s6, [%[c], #4]\n vldr s7, [%[d], #4]\n"
        "vcvtb.f32.f16 s8, s0\n vcvtb.f32.f16 s9, s1\n"
        "vcvtb.f32.f16 s10, s2\n vcvtb.f32.f16 s11, s3\n"
        "vcvtt.f32.f16 s12, s0\n vcvtt.f32.f16 s13, s1\n"
        "vcvtt.f32.f16 s14, s2\n vcvtt.f32.f16 s15, s3\n"
        "vcvtb.f32.f16 s16, s4\n vcvtb.f32.f16 s17, s5\n"
        "vcvtb.f32.f16 s18, s6\n vcvtb.f32.f16 s19, s7\n"
        "vcvtt.f32.f16 s20, s4\n vcvtt.f32.f16 s21, s5\n"
        "vcvtt.f32.f16 s22, s6\n vcvtt.f32.f16 s23, s7\n"
        "add %[a], #8\n add %[b], #8\n add %[c], #8\n add %[d], #8\n"
        "subs %[groups], #1\n vstmia %[to]!, {s8-s23}\n bne 1b\n"
        : [to] "+&r"(to), [a] "+&r"(left), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d),
          [groups] "+&r"(groups)
        :
        : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13",
          "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "memory", "cc");
    /* clang-format on */
    return count / 4 * 4;
}

/* clang-format off */
#define RAOT_HALF_PRODUCTS(s0, s1, s2, s3, a, b0, b1) \
    "vcvtb.f32.f16 s20, " #b0 "\n vcvtt.f32.f16 s21, " #b0 "\n" \
    "vcvtb.f32.f16 s22, " #b1 "\n vcvtt.f32.f16 s23, " #b1 "\n" \
    RAOT_TWO_PRODUCTS(s0, s1, a, s20, s21, s20, s21) RAOT_TWO_PRODUCTS(s2, s3, a, s22, s23, s22, s23)
#define RAOT_HALF_STEP(a) \
    "vldmia %[b], {s24-s31}\n add %[b], %[right]\n" \
    RAOT_HALF_PRODUCTS(s0, s1, s2, s3, a, s24, s25) \
    RAOT_HALF_PRODUCTS(s4, s5, s6, s7, a, s26, s27) \
    RAOT_HALF_PRODUCTS(s8, s9, s10, s11, a, s28, s29) \
    RAOT_HALF_PRODUCTS(s12, s13, s14, s15, a, s30, s31)
/* clang-format on */

/* Whether raot_half_registers computes a loop: one row by words of f16. */
static inline int raot_half_fits(enum raot_half kind, int32_t rows, const struct raot_level *level,
                                 const uint16_t *right)
{
    return kind == RAOT_F16 && rows == 1 && raot_half_words(right, level->right);
}

/* One row and 16 columns. */
__attribute__((always_inline)) static inline void
raot_half_row(const struct raot_level *level, const float *left, const uint16_t *right, float *sums)
{
    int32_t pairs = level->left == 1 ? level->count / 2 : 0;
    int32_t count = level->count - 2 * pairs;

    /* clang-format off */
    __asm__ volatile(
        "vldmia %[sums], {s0-s15}\n cmp %[pairs], #0\n beq 2f\n"
        "1: vldmia %[a]!, {s16-s17}\n subs %[pairs], #1\n"
        RAOT_HALF_STEP(s16) RAOT_HALF_STEP(s17) "bne 1b\n"
        "2: cmp %[count], #0\n beq 4f\n"
        "3: vldr s16, [%[a]]\n add %[a], %[left]\n subs %[count], #1\n"
        RAOT_HALF_STEP(s16) "bne 3b\n"
        "4: vstmia %[sums], {s0-s15}\n"
        : [a] "+&r"(left), [b] "+&r"(right), [pairs] "+&r"(pairs), [count] "+&r"(count)
        : [sums] "r"(sums), [left] "r"(4 * level->left), [right] "r"(2 * level->right)
        : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13",
          "s14", "s15", "s16", "s17", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28",
          "s29", "s30", "s31", "memory", "cc");
    /* clang-format on */
}

/* The first columns of a row; returns how many. */
__attribute__((always_inline)) static inline int32_t
raot_half_registers(int32_t rows, int32_t columns, const struct raot_level *level,
                    const float *left, int32_t left_row, const uint16_t *right, float *sums)
{
    int32_t c = 0;

    (void)rows;
    (void)left_row;
    for (; c + 16 <= columns; c += 16) {
        raot_half_row(level, left, right + c, sums + c);
    }
    return c;
}

#endif
