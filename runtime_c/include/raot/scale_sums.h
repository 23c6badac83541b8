/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_sums.h - floats of i32 sums: sum * scale * by[0] + bias, limited to by[1]..by[2].
 *
 *     raot_scale_lines_f32   lines with a scale and a bias each, or the same ones (a step of 0)
 *     raot_scale_nhwc_f32    the sums of multiply_nhwc.h in natural order, by channel
 *     raot_scale_lines_from_f32, raot_scale_nhwc_from_f32   the same of sums plus `start`, which
 * wrap raot_scale_columns_f32   sum * a scale of the row * a scale of the column, without limits
 *
 * Each operation is rounded. NaN is not limited. Limits are not NaN.
 */
#ifndef RAOT_SCALE_SUMS_H
#define RAOT_SCALE_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "assembly.h"
#include "ieee.h"
#include "mve.h"

static inline float raot_scale_sum(int32_t sum, float scale, float bias, const float *by)
{
    return raot_at_mostf(raot_at_leastf((float)sum * scale * by[0] + bias, by[1]), by[2]);
}

static inline float raot_scale_sum_from(int32_t sum, int32_t start, float scale, float bias,
                                        const float *by)
{
    return raot_scale_sum((int32_t)((uint32_t)sum + (uint32_t)start), scale, bias, by);
}

#if defined(RAOT_MVE_F32)
/* Some of four floats from `sums` on, `apart` from each other; `from`: whether their starts are not
 * all 0. */
__attribute__((always_inline)) static inline void
raot_scale_some(float *out, const int32_t *sums, float32x4_t scale, float32x4_t bias,
                int32x4_t start, const int from, const float *by, uint32x4_t apart,
                mve_pred16_t some)
{
    const int32x4_t all = vldrwq_z_s32(sums, some);
    const int32x4_t sum = from ? vaddq_s32(all, start) : all;
    float32x4_t x = vmulq_f32(vcvtq_f32_s32(sum), scale);
    x = vaddq_f32(vmulq_n_f32(x, by[0]), bias);
    x = vdupq_m_n_f32(x, by[1], vcmpleq_n_f32(x, by[1]));
    x = vdupq_m_n_f32(x, by[2], vcmpgeq_n_f32(x, by[2]));
    vstrwq_scatter_shifted_offset_p_f32(out, apart, x, some);
}

#if defined(RAOT_ASM_INLINE)
/* Compilers copy predicates between registers. Steps are in bytes. */
/* clang-format off */
#define RAOT_SCALE_LEAST "vpt.f32 le, q0, %[low]\n vdupt.32 q0, %[low]\n"
#define RAOT_SCALE_MOST "vpt.f32 ge, q0, %[high]\n vdupt.32 q0, %[high]\n"
#define RAOT_SCALE_VECTORS(FROM, LIMITED)                                                      \
    __asm volatile(                                                                           \
        "wls lr, %[count], 2f\n"                                                              \
        "1:\n vldrw.32 q0, [%[sums]]\n add %[sums], %[sums], %[next]\n" FROM                  \
        "vcvt.f32.s32 q0, q0\n vmul.f32 q0, q0, %q[scale]\n vmul.f32 q0, q0, %[by]\n"         \
        "vadd.f32 q0, q0, %q[bias]\n" LIMITED                                                 \
        "vstrw.32 q0, [%[out], %q[apart], uxtw #2]\n add %[out], %[out], %[step]\n le lr, 1b\n" \
        "2:\n"                                                                                \
        : [out] "+&r"(out), [sums] "+&r"(sums)                                                  \
        : [count] "r"(count), [next] "r"(4 * next), [step] "r"(4 * step), [by] "r"(by[0]),    \
          [low] "r"(by[1]), [high] "r"(by[2]), [scale] "w"(scale),                      \
          [bias] "w"(bias), [apart] "w"(apart), [start] "w"(start)                \
        : "lr", "s0", "s1", "s2", "s3", "cc", "memory")
#define RAOT_SCALE_VECTORS_OF(FROM)                                \
    if (by[2] < RAOT_INFINITY) {                                   \
        RAOT_SCALE_VECTORS(FROM, RAOT_SCALE_LEAST RAOT_SCALE_MOST); \
    } else if (by[1] > -RAOT_INFINITY) {                           \
        RAOT_SCALE_VECTORS(FROM, RAOT_SCALE_LEAST);                \
    } else {                                                       \
        RAOT_SCALE_VECTORS(FROM, "");                              \
    }
/* clang-format on */
#endif

/* `count` times four floats: of sums that are `next` apart, `step` apart. */
__attribute__((always_inline)) static inline void
raot_scale_vectors(float *out, const int32_t *sums, float32x4_t scale, float32x4_t bias,
                   int32x4_t start, const int from, const float *by, int32_t count, int32_t next,
                   int32_t step, uint32x4_t apart)
{
#if defined(RAOT_ASM_INLINE)
    if (from != 0) {
        RAOT_SCALE_VECTORS_OF("vadd.i32 q0, q0, %q[start]\n")
    } else {
        RAOT_SCALE_VECTORS_OF("")
    }
#else
    for (; count > 0; count--) {
        raot_scale_some(out, sums, scale, bias, start, from, by, apart, vctp32q(4u));
        sums += next;
        out += step;
    }
#endif
}
#define RAOT_SCALE_LINE(FROM, START, SUM)                                                        \
    const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)step);                   \
    const float32x4_t own = vdupq_n_f32(*scale);                                                 \
    const float32x4_t add = vdupq_n_f32(*bias);                                                  \
    const int32x4_t begin = vdupq_n_s32(START);                                                  \
    raot_scale_vectors(out, sums, own, add, begin, FROM, by, count / 4, 4, 4 * step, apart);     \
    if (count % 4 != 0) {                                                                        \
        raot_scale_some(out + count / 4 * 4 * step, sums + count / 4 * 4, own, add, begin, FROM, \
                        by, apart, vctp32q((uint32_t)(count % 4)));                              \
    }
#else
#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && defined(__ARM_FP) && (__ARM_FP & 4)
#define RAOT_SCALE_BLOCKS 1

/* Sizes and pointers of the functions below, which move those to the next line; steps in bytes.
 * `high` are the bits of the upper limit. */
struct raot_scale_blocks {
    const float *scale;
    const float *bias;
    int32_t scale_step;
    int32_t bias_step;
    int32_t line_step;
    int32_t sum_line;
    int32_t step;
    int32_t high;
    int32_t blocks;
    int32_t rest;
    int32_t lines;
    float by;
};

/* clang-format off */
#define RAOT_SCALE_FREE(X)
#define RAOT_SCALE_POSITIVE(X) "bic " X ", " X ", " X ", asr #31\n"
#define RAOT_SCALE_CAPPED(X) "cmp " X ", r11\n it gt\n movgt " X ", r11\n"
#define RAOT_SCALE_BOUNDED(X) RAOT_SCALE_POSITIVE(X) RAOT_SCALE_CAPPED(X)
#define RAOT_SCALE_EACH(FORM, A, B, C, D, BY) \
    FORM " " A ", " A BY "\n" FORM " " B ", " B BY "\n" \
    FORM " " C ", " C BY "\n" FORM " " D ", " D BY "\n"
#define RAOT_SCALE_FOUR(A, B, C, D) \
    RAOT_SCALE_EACH("vcvt.f32.s32", A, B, C, D, "") RAOT_SCALE_EACH("vmul.f32", A, B, C, D, ", s8") \
    RAOT_SCALE_EACH("vmul.f32", A, B, C, D, ", s9") RAOT_SCALE_EACH("vadd.f32", A, B, C, D, ", s10")
#define RAOT_SCALE_STORE(A, B, C, D, LIMITED) \
    "vmov r4, r5, " A ", " B "\n vmov r6, r7, " C ", " D "\n" \
    LIMITED("r4") LIMITED("r5") LIMITED("r6") LIMITED("r7") \
    "str r4, [r12]\n str r5, [r12, r8]\n str r6, [r12, r8, lsl #1]\n str r7, [r12, r10]\n" \
    "add r12, r12, r8, lsl #2\n"

/*
 * Eight sums in a step, and then four. Floats that are not NaN are compared with a positive limit
 * as their bits. The result is 0 if all scales and biases are finite, else NaN.
 *
 *     r0, r1, r12, lr   results and sums of a line, and of a step
 *     r2                remaining steps
 *     r4 to r7          results
 *     r8, r10, r11      step and three steps in bytes, high
 *     s0 to s7          sums; s8 to s10: scale, by, bias; s11, s12: the result, 0
 */
#define RAOT_SCALE_BLOCKS_OF(NAME, LIMITED) \
    RAOT_NAKED static uint32_t raot_scale_blocks_##NAME( \
        RAOT_ARGUMENT float *out, RAOT_ARGUMENT const int32_t *sums, RAOT_ARGUMENT int32_t unused, \
        RAOT_ARGUMENT struct raot_scale_blocks *sizes) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n ldrd r8, r11, [r3, #24]\n vldr s9, [r3, #44]\n" \
            "add r10, r8, r8, lsl #1\n movs r4, #0\n vmov s11, r4\n vmov s12, r4\n" \
            "1: ldrd r4, r5, [r3]\n ldrd r6, r7, [r3, #8]\n vldr s8, [r4]\n vldr s10, [r5]\n" \
            "add r4, r6\n add r5, r7\n strd r4, r5, [r3]\n" \
            "vmla.f32 s11, s8, s12\n vmla.f32 s11, s10, s12\n" \
            "mov r12, r0\n mov lr, r1\n ldr r2, [r3, #32]\n cmp r2, #0\n beq.w 3f\n" \
            "2: vldmia lr!, {s0-s7}\n" \
            RAOT_SCALE_FOUR("s0", "s1", "s2", "s3") RAOT_SCALE_FOUR("s4", "s5", "s6", "s7") \
            RAOT_SCALE_STORE("s0", "s1", "s2", "s3", LIMITED) \
            RAOT_SCALE_STORE("s4", "s5", "s6", "s7", LIMITED) \
            "subs r2, #1\n bgt.w 2b\n"); \
        /* C compilers need not take longer texts than 4095 characters. */ \
        __asm volatile( \
            "3: ldr r2, [r3, #36]\n cmp r2, #0\n beq 5f\n subs r2, #4\n bge 6f\n adds r2, #4\n" \
            "4: vldmia lr!, {s0}\n vcvt.f32.s32 s0, s0\n vmul.f32 s0, s0, s8\n" \
            "vmul.f32 s0, s0, s9\n vadd.f32 s0, s0, s10\n vmov r4, s0\n" LIMITED("r4") \
            "str r4, [r12]\n add r12, r8\n subs r2, #1\n bgt 4b\n" \
            "5: ldrd r4, r5, [r3, #16]\n add r0, r4\n add r1, r5\n" \
            "ldr r4, [r3, #40]\n subs r4, #1\n str r4, [r3, #40]\n bgt.w 1b\n" \
            "vmov r0, s11\n pop {r4-r8, r10, r11, pc}\n" \
            "6: vldmia lr!, {s0-s3}\n" RAOT_SCALE_FOUR("s0", "s1", "s2", "s3") \
            RAOT_SCALE_STORE("s0", "s1", "s2", "s3", LIMITED) "cmp r2, #0\n bgt 4b\n b 5b\n"); \
    }
RAOT_SCALE_BLOCKS_OF(free, RAOT_SCALE_FREE)
RAOT_SCALE_BLOCKS_OF(positive, RAOT_SCALE_POSITIVE)
RAOT_SCALE_BLOCKS_OF(capped, RAOT_SCALE_CAPPED)
RAOT_SCALE_BLOCKS_OF(bounded, RAOT_SCALE_BOUNDED)
/* clang-format on */

static inline uint32_t raot_scale_limited(float *out, const int32_t *sums, int low, int high,
                                          struct raot_scale_blocks *sizes)
{
    if (low == 0) {
        return raot_scale_blocks_capped(out, sums, 0, sizes);
    }
    return high == 0 ? raot_scale_blocks_positive(out, sums, 0, sizes)
                     : raot_scale_blocks_bounded(out, sums, 0, sizes);
}

/* Whether the lines are done. Finite operands give no NaN where the factor is not 0. */
#define RAOT_SCALE_ALL(out, sums, sizes)                                           \
    (by[1] == -RAOT_INFINITY && by[2] == RAOT_INFINITY                             \
         ? (raot_scale_blocks_free(out, sums, 0, sizes), 1)                        \
         : (by[1] == -RAOT_INFINITY || raot_bitsf(by[1]) == 0u) && by[2] > 0.0f && \
               by[0] != 0.0f && by[0] - by[0] == 0.0f &&                           \
               raot_scale_limited(out, sums, by[1] == 0.0f, by[2] < RAOT_INFINITY, sizes) == 0u)
#endif

#define RAOT_SCALE_LINE(FROM, START, SUM) \
    /*@ loop unroll 4096; */              \
    for (int32_t i = 0; i < count; i++) { \
        out[i * step] = SUM(sums[i]);     \
    }
#endif
#define RAOT_SCALE_LINE_SUM(X) raot_scale_sum(X, *scale, *bias, by)
#define RAOT_SCALE_LINE_SUM_FROM(X) raot_scale_sum_from(X, *start, *scale, *bias, by)

/* Sizes of the functions below, by name. */
struct raot_scale_lines {
    int32_t lines;
    int32_t count;
    int32_t line_step;
    int32_t step;
    int32_t sum_line;
    int32_t scale_step;
    int32_t bias_step;
};
struct raot_scale_lines_from {
    int32_t lines;
    int32_t count;
    int32_t line_step;
    int32_t step;
    int32_t sum_line;
    int32_t scale_step;
    int32_t bias_step;
    int32_t start_step;
};

__attribute__((noinline, unused)) static void
raot_scale_lines_f32_unpacked(float *out, const int32_t *sums, const float *scale,
                              const float *bias, const float *by, int32_t lines, int32_t count,
                              int32_t line_step, int32_t step, int32_t sum_line, int32_t scale_step,
                              int32_t bias_step)
{
#if defined(RAOT_SCALE_BLOCKS)
    struct raot_scale_blocks sizes = {
        scale,         bias,         4 * scale_step, 4 * bias_step,
        4 * line_step, 4 * sum_line, 4 * step,       (int32_t)raot_bitsf(by[2]),
        count / 8,     count % 8,    lines,          by[0],
    };
    if (RAOT_SCALE_ALL(out, sums, &sizes) != 0) {
        return;
    }
#endif
    /*@ loop unroll 4096; */
    for (int32_t j = lines; j > 0; j--) {
        RAOT_SCALE_LINE(0, 0, RAOT_SCALE_LINE_SUM)
        if (j > 1) {
            out += line_step;
            sums += sum_line;
            scale += scale_step;
            bias += bias_step;
        }
    }
}

#define raot_scale_lines_f32(out, sums, scale, bias, by, sizes)                               \
    raot_scale_lines_f32_unpacked(out, sums, scale, bias, by, (sizes)->lines, (sizes)->count, \
                                  (sizes)->line_step, (sizes)->step, (sizes)->sum_line,       \
                                  (sizes)->scale_step, (sizes)->bias_step)

__attribute__((noinline, unused)) static void raot_scale_lines_from_f32_unpacked(
    float *out, const int32_t *sums, const int32_t *start, const float *scale, const float *bias,
    const float *by, int32_t lines, int32_t count, int32_t line_step, int32_t step,
    int32_t sum_line, int32_t scale_step, int32_t bias_step, int32_t start_step)
{
    /*@ loop unroll 4096; */
    for (int32_t j = lines; j > 0; j--) {
        RAOT_SCALE_LINE(1, *start, RAOT_SCALE_LINE_SUM_FROM)
        if (j > 1) {
            out += line_step;
            sums += sum_line;
            scale += scale_step;
            bias += bias_step;
            start += start_step;
        }
    }
}

#define raot_scale_lines_from_f32(out, sums, start, scale, bias, by, sizes)                        \
    raot_scale_lines_from_f32_unpacked(out, sums, start, scale, bias, by, (sizes)->lines,          \
                                       (sizes)->count, (sizes)->line_step, (sizes)->step,          \
                                       (sizes)->sum_line, (sizes)->scale_step, (sizes)->bias_step, \
                                       (sizes)->start_step)

/* Sizes of the functions below, by name. */
struct raot_scale_nhwc {
    int32_t channels;
    int32_t positions;
    int32_t out_step;
    int32_t channel_step;
    int32_t scale_step;
    int32_t bias_step;
};

/* `start` is null for sums that start with 0. */
__attribute__((always_inline)) static inline void
raot_scale_nhwc(float *out, const int32_t *sums, const int32_t *start, const float *scale,
                const float *bias, const float *by, int32_t channels, int32_t positions,
                int32_t out_step, int32_t channel_step, int32_t scale_step, int32_t bias_step)
{
    const int32_t pair = (channels + 3) / 4 * 8;
#if defined(RAOT_MVE_F32)
    const uint32x4_t each = vidupq_n_u32(0u, 1);
    const uint32x4_t apart = vmulq_n_u32(each, (uint32_t)channel_step);
    const uint32x4_t scales = vmulq_n_u32(each, (uint32_t)scale_step);
    const uint32x4_t biases = vmulq_n_u32(each, (uint32_t)bias_step);

    for (int32_t n = 0; n < channels; n += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)(channels - n));
        const float32x4_t own = vldrwq_gather_shifted_offset_z_f32(scale, scales, some);
        const float32x4_t add = vldrwq_gather_shifted_offset_z_f32(bias, biases, some);
        const int32x4_t begin = start ? vldrwq_z_s32(start + n, some) : vdupq_n_s32(0);
        const int32_t whole = channels - n < 4 ? 0 : positions;
        raot_scale_vectors(out, sums, own, add, begin, start != NULL, by, (whole + 1) / 2, pair,
                           2 * out_step, apart);
        raot_scale_vectors(out + out_step, sums + 4, own, add, begin, start != NULL, by, whole / 2,
                           pair, 2 * out_step, apart);
        for (int32_t p = whole; p < positions; p++) {
            raot_scale_some(out + p * out_step, sums + p / 2 * pair + p % 2 * 4, own, add, begin,
                            start != NULL, by, apart, some);
        }
        out += 4 * channel_step;
        sums += 8;
        scale += 4 * scale_step;
        bias += 4 * bias_step;
    }
#else
    /*@ loop unroll 4096; */
    for (int32_t p = 0; p < positions; p++) {
        /*@ loop unroll 4096; */
        for (int32_t n = 0; n < channels; n++) {
            const int32_t at = p / 2 * pair + n / 4 * 8 + p % 2 * 4 + n % 4;
            out[p * out_step + n * channel_step] =
                raot_scale_sum_from(sums[at], start != NULL ? start[n] : 0, scale[n * scale_step],
                                    bias[n * bias_step], by);
        }
    }
#endif
}

__attribute__((noinline, unused)) static void
raot_scale_nhwc_f32_unpacked(float *out, const int32_t *sums, const float *scale, const float *bias,
                             const float *by, int32_t channels, int32_t positions, int32_t out_step,
                             int32_t channel_step, int32_t scale_step, int32_t bias_step)
{
    raot_scale_nhwc(out, sums, (const int32_t *)0, scale, bias, by, channels, positions, out_step,
                    channel_step, scale_step, bias_step);
}

#define raot_scale_nhwc_f32(out, sums, scale, bias, by, sizes)                                 \
    raot_scale_nhwc_f32_unpacked(out, sums, scale, bias, by, (sizes)->channels,                \
                                 (sizes)->positions, (sizes)->out_step, (sizes)->channel_step, \
                                 (sizes)->scale_step, (sizes)->bias_step)

__attribute__((noinline, unused)) static void
raot_scale_nhwc_from_f32_unpacked(float *out, const int32_t *sums, const int32_t *start,
                                  const float *scale, const float *bias, const float *by,
                                  int32_t channels, int32_t positions, int32_t out_step,
                                  int32_t channel_step, int32_t scale_step, int32_t bias_step)
{
    raot_scale_nhwc(out, sums, start, scale, bias, by, channels, positions, out_step, channel_step,
                    scale_step, bias_step);
}

#define raot_scale_nhwc_from_f32(out, sums, start, scale, bias, by, sizes)        \
    raot_scale_nhwc_from_f32_unpacked(                                            \
        out, sums, start, scale, bias, by, (sizes)->channels, (sizes)->positions, \
        (sizes)->out_step, (sizes)->channel_step, (sizes)->scale_step, (sizes)->bias_step)

struct raot_scale_columns {
    int32_t rows;
    int32_t columns;
    int32_t out_row;
    int32_t row_step; /* of the scales of rows */
};

__attribute__((noinline, unused)) static void
raot_scale_columns_f32(float *out, const int32_t *sums, const float *row_scales,
                       const float *column_scales, const struct raot_scale_columns *sizes)
{
    for (int32_t r = 0; r < sizes->rows; r++) {
        const float scale = row_scales[r * sizes->row_step];
        float *to = out + r * sizes->out_row;
        const float *by = column_scales;
        int32_t count = sizes->columns;

#if defined(RAOT_ASM_INLINE) && defined(RAOT_SCALE_BLOCKS)
        if (count >= 4) {
            int32_t blocks = count / 4;
            count %= 4;
            /* clang-format off */
            __asm volatile(
                "vmov s8, %[scale]\n"
                "1: vldmia %[sums]!, {s0-s3}\n vldmia %[by]!, {s4-s7}\n"
                "vcvt.f32.s32 s0, s0\n vcvt.f32.s32 s1, s1\n"
                "vcvt.f32.s32 s2, s2\n vcvt.f32.s32 s3, s3\n"
                "vmul.f32 s0, s0, s8\n vmul.f32 s1, s1, s8\n"
                "vmul.f32 s2, s2, s8\n vmul.f32 s3, s3, s8\n"
                "vmul.f32 s0, s0, s4\n vmul.f32 s1, s1, s5\n"
                "vmul.f32 s2, s2, s6\n vmul.f32 s3, s3, s7\n"
                "subs %[blocks], #1\n vstmia %[to]!, {s0-s3}\n bne 1b\n"
                : [to] "+&r"(to), [sums] "+&r"(sums), [by] "+&r"(by), [blocks] "+&r"(blocks)
                : [scale] "r"(raot_bitsf(scale))
                : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "memory", "cc");
            /* clang-format on */
        }
#endif
        for (; count > 0; count--) {
            *to++ = (float)*sums++ * scale * *by++;
        }
    }
}

#endif
