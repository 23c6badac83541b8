/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_3x3.h - 3 x 3 convolutions of one channel, two products at a time.
 *
 * Some rows of the image are copied to a padded buffer, the plane, so no window is clipped. Sums
 * wrap.
 */
#ifndef RAOT_DEPTHWISE_3X3_H
#define RAOT_DEPTHWISE_3X3_H

#include <stdint.h>

#include "copy.h"
#include "dsp.h"

#include "mve.h"

/* Copies four bytes; both addresses may be unaligned. */
static inline void raot_copy_four(void *to, const void *from)
{
    uint32_t four;
    RAOT_COPY(&four, from, sizeof four);
    RAOT_COPY(to, &four, sizeof four);
}

/* Fills bytes from `to`, four at a time. */
static inline void raot_fill(void *to, int32_t byte, int32_t count)
{
    const uint32_t four = ((uint32_t)byte & 0xffu) * 0x01010101u;
    int32_t i = 0;
#if defined(RAOT_MVE)
    for (; i + 16 <= count; i += 16) {
        vst1q_u8((uint8_t *)to + i, vdupq_n_u8((uint8_t)byte));
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i += 4) {
        RAOT_COPY((uint8_t *)to + i, &four, sizeof four);
    }
}

/*
 * Copies the part of an image that starts at row `top` and column `left`, which may be negative,
 * to a plane of `rows` rows of `width`; elements outside the image are `zero`. Rows of the image
 * are `row_step` elements apart, columns `step`. The size of the plane is a multiple of four
 * bytes.
 */
/* clang-format off */
#define RAOT_PAD(N, T) \
    __attribute__((noinline, unused)) static void raot_pad_##N##_unpacked( \
        T *plane, const T *image, int32_t zero, int32_t rows, int32_t width, int32_t top, \
        int32_t left, int32_t image_rows, int32_t image_columns, int32_t row_step, int32_t step) \
    { \
        const int32_t first = top < 0 ? -top : 0; \
        const int32_t last = image_rows - top < rows ? image_rows - top : rows; \
        const int32_t begin = left < 0 ? -left : 0; \
        const int32_t reach = image_columns - left < width ? image_columns - left : width; \
        const int32_t count = reach - begin; \
        if (first > 0 || last < rows || count < width) { \
            raot_fill(plane, zero, rows * width); \
        } \
        /*@ loop unroll 4096; */                              \
        for (int32_t r = first; r < last && count > 0; r++) { \
            const T *from = image + (top + r) * row_step + (left + begin) * step; \
            T *to = plane + r * width + begin; \
            int32_t c = 0; \
            if (step == 1 && count >= 4) { \
                /*@ loop unroll 4096; */         \
                for (; c + 4 <= count; c += 4) { \
                    raot_copy_four(to + c, from + c); \
                } \
                raot_copy_four(to + count - 4, from + count - 4); \
                continue; \
            } \
            /*@ loop unroll 4096; */ \
            for (; c < count; c++) { \
                to[c] = *from; \
                from += step; \
            } \
        } \
    }
/* clang-format on */
RAOT_PAD(s8, int8_t)
RAOT_PAD(u8, uint8_t)
#undef RAOT_PAD

/*
 * sums[r * sum_step + c] = bias + the 3 x 3 window at row r * stride, column c * stride of the
 * plane, for `rows` rows and `columns` columns. The order of the weights is (0,0) (0,2), (1,0)
 * (1,2), (2,0) (2,2), (0,1) (1,1), (2,1) 0. `sums` has space for one additional sum, and 16 bytes
 * are readable at the first column of the last row of each window; their values change no sum.
 */
#define RAOT_TAP_ORDER            \
    {                             \
        0, 6, 1, 2, 7, 3, 4, 8, 5 \
    }

#if defined(RAOT_MVE)
/* Four sums at a time. */
/* clang-format off */
#define RAOT_DEPTHWISE(N, T, GATHER) \
    __attribute__((noinline, unused)) static void raot_depthwise_3x3_##N##_unpacked( \
        int32_t *sums, const T *plane, const int16_t *weights, const int32_t *bias, \
        int32_t rows, int32_t columns, int32_t width, int32_t stride, int32_t sum_step) \
    { \
        static const int32_t position[9] = RAOT_TAP_ORDER; \
        const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)stride); \
        for (int32_t r = 0; r < rows; r++) { \
            for (int32_t c = 0; c < columns; c += 4) { \
                const mve_pred16_t some = vctp32q((uint32_t)(columns - c)); \
                const T *at = plane + (r * width + c) * stride; \
                int32x4_t sum = vdupq_n_s32(bias[0]); \
                for (int32_t k = 0; k < 9; k++) { \
                    const T *tap = at + k / 3 * width + k % 3; \
                    const int32x4_t x = (int32x4_t)GATHER(tap, apart, some); \
                    sum = vmlaq_n_s32(sum, x, weights[position[k]]); \
                } \
                vst1q_p_s32(sums + r * sum_step + c, sum, some); \
            } \
        } \
    }
/* clang-format on */
RAOT_DEPTHWISE(u8, uint8_t, vldrbq_gather_offset_z_u32)
RAOT_DEPTHWISE(wide, int8_t, vldrbq_gather_offset_z_s32)
#undef RAOT_DEPTHWISE

/* In a plane this narrow, one vector covers two rows of a window. */
#define RAOT_NARROW 13

__attribute__((noinline, unused)) static void
raot_depthwise_3x3_s8_unpacked(int32_t *sums, const int8_t *plane, const int16_t *weights,
                               const int32_t *bias, int32_t rows, int32_t columns, int32_t width,
                               int32_t stride, int32_t sum_step)
{
    const int32_t start = bias[0];
    int8_t lines[4][16];
    uint32_t outside = 0;

    for (int32_t k = 0; k < 9; k++) {
        outside |= (uint32_t)(weights[k] - INT8_MIN) & ~0xffu;
    }
    if (width > RAOT_NARROW || outside != 0u || stride != 1) {
        raot_depthwise_3x3_wide_unpacked(sums, plane, weights, bias, rows, columns, width, stride,
                                         sum_step);
        return;
    }
    for (int32_t k = 0; k < 4; k++) {
        vst1q_s8(lines[k], vdupq_n_s8(0));
    }
    for (int32_t k = 0; k < 3; k++) {
        const int32_t middle = k == 1;
        const int8_t upper = (int8_t)weights[middle ? 6 : k / 2];
        const int8_t center = (int8_t)weights[middle ? 7 : 2 + k / 2];
        const int8_t lower = (int8_t)weights[middle ? 8 : 4 + k / 2];
        lines[0][k] = upper;
        lines[0][width + k] = center;
        lines[1][k] = lower;
        lines[2][width + k] = upper;
        lines[3][k] = center;
        lines[3][width + k] = lower;
    }
    /* Two rows of sums share their loads: rows r and r + 1 of the plane, and the next two. */
    const int8x16_t a = vld1q_s8(lines[0]);
    const int8x16_t b = vld1q_s8(lines[1]);
    const int8x16_t c = vld1q_s8(lines[2]);
    const int8x16_t d = vld1q_s8(lines[3]);
    for (int32_t r = 0; r < rows; r += 2) {
        const int8_t *at = plane + r * width;
        const int8_t *below = at + 2 * width;
        int32_t *to = sums + r * sum_step;
        /* An unneeded row of sums is overwritten by the next row. */
        int32_t *next = r + 1 < rows ? to + sum_step : to;
        for (int32_t n = 0; n < columns; n++) {
            const int8x16_t x = vld1q_s8(at++);
            const int8x16_t y = vld1q_s8(below++);
            *next++ = vmladavaq_s8(vmladavaq_s8(start, x, c), y, d);
            *to++ = vmladavaq_s8(vmladavaq_s8(start, x, a), y, b);
        }
    }
}
#else
#if defined(RAOT_ASM_THUMB) && defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_UNALIGNED)
/*
 *     r0, r11     bytes 0 and 2, and bytes 1 and 3, of one row of the window
 *     r1          the window
 *     r2, r3      sums
 *     r4 to r6    the outer two weights of each row
 *     r7, r8      the middle weights: rows 0 and 1, row 2
 *     r10, lr     the output and its end
 *     r12         width of the plane
 *
 * The middle weight of a row is in the lower (HALF is b) or the upper half (t) of MIDDLE.
 */
#define RAOT_ROW_OF_TWO(EXTEND, FROM, OUTER, MIDDLE, HALF)              \
    "ldr r0, " FROM "\n" EXTEND " r11, r0, ror #8\n" EXTEND " r0, r0\n" \
    "smlad r2, r0, " OUTER ", r2\n"                                     \
    "smlab" HALF " r2, r11, " MIDDLE ", r2\n"                           \
    "smlad r3, r11, " OUTER ", r3\n"                                    \
    "smlat" HALF " r3, r0, " MIDDLE ", r3\n"

#define RAOT_ROW_OF_ONE(EXTEND, FROM, OUTER, MIDDLE, HALF)              \
    "ldr r0, " FROM "\n" EXTEND " r11, r0, ror #8\n" EXTEND " r0, r0\n" \
    "smlad r2, r0, " OUTER ", r2\n"                                     \
    "smlab" HALF " r2, r11, " MIDDLE ", r2\n"

#define RAOT_THREE_ROWS(ROW, EXTEND)          \
    ROW(EXTEND, "[r1]", "r4", "r7", "b")      \
    ROW(EXTEND, "[r1, r12]", "r5", "r7", "t") \
    ROW(EXTEND, "[r1, r12, lsl #1]", "r6", "r8", "b")

/*
 *     [sp]                    bias
 *     [sp, #4], [sp, #8]      window and sums of the current row
 *     [sp, #12], [sp, #16]    bytes from one row of windows, or of sums, to the next
 *     [sp, #20]               bytes of sums that are written per row
 *     [sp, #24]               saved registers
 *     [sp, #56] to [sp, #72]  arguments: rows, columns, width, stride, sum_step
 */
/* clang-format off */
#define RAOT_DEPTHWISE(N, T, EXTEND) \
    RAOT_NAKED static void raot_depthwise_3x3_##N##_unpacked( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const T *plane, \
        RAOT_ARGUMENT const int16_t *weights, RAOT_ARGUMENT const int32_t *bias, \
        RAOT_ARGUMENT int32_t rows, RAOT_ARGUMENT int32_t columns, RAOT_ARGUMENT int32_t width, \
        RAOT_ARGUMENT int32_t stride, RAOT_ARGUMENT int32_t sum_step) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n sub sp, #24\n" \
            "ldr r4, [r3]\n strd r4, r1, [sp]\n str r0, [sp, #8]\n" \
            "ldrd r12, r4, [sp, #64]\n mul r5, r12, r4\n ldr r6, [sp, #72]\n lsls r6, r6, #2\n" \
            "strd r5, r6, [sp, #12]\n" \
            /* Two sums at a time may write one sum more than columns. */ \
            "ldrd r6, r5, [sp, #56]\n lsls r5, r5, #2\n cmp r4, #1\n bne 1f\n" \
            "adds r5, #4\n bic r5, r5, #7\n" \
            "1: str r5, [sp, #20]\n" \
            "cmp r6, #0\n ble 6f\n cmp r5, #0\n ble 6f\n cmp r4, #1\n" \
            "ldr r4, [r2]\n ldr r5, [r2, #4]\n ldr r6, [r2, #8]\n ldr r7, [r2, #12]\n" \
            "ldr r8, [r2, #16]\n bne 4f\n" \
            "2: ldrd r1, r10, [sp, #4]\n ldr lr, [sp, #20]\n add lr, r10\n" \
            "3: ldr r2, [sp]\n mov r3, r2\n" \
            RAOT_THREE_ROWS(RAOT_ROW_OF_TWO, EXTEND) \
            "strd r2, r3, [r10], #8\n adds r1, #2\n cmp r10, lr\n bne 3b\n" \
            RAOT_NEXT_ROW "bne 2b\n b 6f\n" \
            "4: ldrd r1, r10, [sp, #4]\n ldr lr, [sp, #20]\n add lr, r10\n ldr r3, [sp, #68]\n" \
            "5: ldr r2, [sp]\n" \
            RAOT_THREE_ROWS(RAOT_ROW_OF_ONE, EXTEND) \
            "str r2, [r10], #4\n add r1, r3\n cmp r10, lr\n bne 5b\n" \
            RAOT_NEXT_ROW "bne 4b\n" \
            "6: add sp, #24\n pop {r4-r8, r10, r11, pc}\n"); \
    }
#define RAOT_NEXT_ROW \
    "ldrd r0, r1, [sp, #4]\n ldrd r2, r3, [sp, #12]\n add r0, r2\n add r1, r3\n" \
    "strd r0, r1, [sp, #4]\n ldr r0, [sp, #56]\n subs r0, #1\n str r0, [sp, #56]\n"
/* clang-format on */
#elif defined(RAOT_DSP)
/* One row of a window: the middle weight is in the lower (b) or the upper (t) half of a pair. */
#define RAOT_ROW(N, FROM, OUTER, MIDDLE, HALF)                            \
    {                                                                     \
        const uint32_t four = raot_dsp_load(FROM);                        \
        const int16x2_t even = raot_dsp_even_##N(four);                   \
        const int16x2_t odd = raot_dsp_odd_##N(four);                     \
        a = __smlab##HALF(odd, MIDDLE, raot_dsp_dot(even, OUTER, a));     \
        if (stride == 1) {                                                \
            b = __smlat##HALF(even, MIDDLE, raot_dsp_dot(odd, OUTER, b)); \
        }                                                                 \
    }

/* clang-format off */
#define RAOT_DEPTHWISE(N, T, EXTEND) \
    static inline void raot_depthwise_3x3_row_##N( \
        int32_t *to, const T *at, const int16_t *weights, int32_t start, int32_t columns, \
        int32_t width, const int32_t stride, int32_t column_step) \
    { \
        const int16x2_t upper = (int16x2_t)raot_dsp_load(weights); \
        const int16x2_t center = (int16x2_t)raot_dsp_load(weights + 2); \
        const int16x2_t lower = (int16x2_t)raot_dsp_load(weights + 4); \
        const int16x2_t middle = (int16x2_t)raot_dsp_load(weights + 6); \
        const int16x2_t last = (int16x2_t)raot_dsp_load(weights + 8); \
        for (int32_t c = 0; c < columns; c += stride == 1 ? 2 : 1) { \
            int32_t a = start; \
            int32_t b = start; \
            RAOT_ROW(N, at, upper, middle, b) \
            RAOT_ROW(N, at + width, center, middle, t) \
            RAOT_ROW(N, at + 2 * width, lower, last, b) \
            to[c] = a; \
            if (stride == 1) { \
                to[c + 1] = b; \
            } \
            at += column_step; \
        } \
    } \
    __attribute__((noinline, unused)) static void raot_depthwise_3x3_##N##_unpacked( \
        int32_t *sums, const T *plane, const int16_t *weights, const int32_t *bias, \
        int32_t rows, int32_t columns, int32_t width, int32_t stride, int32_t sum_step) \
    { \
        for (int32_t r = 0; r < rows; r++) { \
            const T *const at = plane + r * stride * width; \
            int32_t *const to = sums + r * sum_step; \
            if (stride == 1) { \
                raot_depthwise_3x3_row_##N(to, at, weights, bias[0], columns, width, 1, 2); \
            } else { \
                raot_depthwise_3x3_row_##N(to, at, weights, bias[0], columns, width, 2, stride); \
            } \
        } \
    }
/* clang-format on */
#else
/* clang-format off */
#define RAOT_DEPTHWISE(N, T, EXTEND) \
    __attribute__((unused)) static void raot_depthwise_3x3_##N##_unpacked( \
        int32_t *sums, const T *plane, const int16_t *weights, const int32_t *bias, \
        int32_t rows, int32_t columns, int32_t width, int32_t stride, int32_t sum_step) \
    { \
        static const int32_t position[9] = RAOT_TAP_ORDER; \
        for (int32_t r = 0; r < rows; r++) { \
            for (int32_t c = 0; c < columns; c++) { \
                const T *const at = plane + r * stride * width + c * stride; \
                uint32_t sum = (uint32_t)bias[0]; \
                for (int32_t k = 0; k < 9; k++) { \
                    sum += (uint32_t)(weights[position[k]] * at[k / 3 * width + k % 3]); \
                } \
                sums[r * sum_step + c] = (int32_t)sum; \
            } \
        } \
    }
#endif
/* clang-format on */
RAOT_DEPTHWISE(s8, int8_t, "sxtb16")
RAOT_DEPTHWISE(u8, uint8_t, "uxtb16")
#undef RAOT_DEPTHWISE
#endif

/* Sizes of the functions below, by name. */
struct raot_pad {
    int32_t zero;
    int32_t rows;
    int32_t width;
    int32_t top;
    int32_t left;
    int32_t image_rows;
    int32_t image_columns;
    int32_t row_step;
    int32_t step;
};

#define raot_pad_s8(plane, image, sizes)                                                           \
    raot_pad_s8_unpacked(plane, image, (sizes)->zero, (sizes)->rows, (sizes)->width, (sizes)->top, \
                         (sizes)->left, (sizes)->image_rows, (sizes)->image_columns,               \
                         (sizes)->row_step, (sizes)->step)

#define raot_pad_u8(plane, image, sizes)                                                           \
    raot_pad_u8_unpacked(plane, image, (sizes)->zero, (sizes)->rows, (sizes)->width, (sizes)->top, \
                         (sizes)->left, (sizes)->image_rows, (sizes)->image_columns,               \
                         (sizes)->row_step, (sizes)->step)

/* Sizes of the functions below, by name. */
struct raot_depthwise_3x3 {
    int32_t rows;
    int32_t columns;
    int32_t width;
    int32_t stride;
    int32_t sum_step;
};

#define raot_depthwise_3x3_s8(sums, plane, weights, bias, sizes)                                \
    raot_depthwise_3x3_s8_unpacked(sums, plane, weights, bias, (sizes)->rows, (sizes)->columns, \
                                   (sizes)->width, (sizes)->stride, (sizes)->sum_step)

#define raot_depthwise_3x3_u8(sums, plane, weights, bias, sizes)                                \
    raot_depthwise_3x3_u8_unpacked(sums, plane, weights, bias, (sizes)->rows, (sizes)->columns, \
                                   (sizes)->width, (sizes)->stride, (sizes)->sum_step)

#endif
