/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_bytes.h - depthwise convolutions of short windows to bytes, for cores with byte vectors
 * (Helium).
 *
 * Each channel is a strip of image columns (depthwise_columns.h). `shared` positions, 1 or 4, are
 * computed from one vector of the strip: the weights of a channel are stored once for each of them,
 * moved by `step` bytes, with zeros around:
 *
 *     sum = start[c] + strips[c * width + p * step + k] * weights[c][p % shared][k + ...]
 *
 * summed over k < depth, where depth + (shared - 1) * step is at most 16. The sum is requantized to
 * out[c * channel_step + p * out_step] as in requantize_channel.h. Sums wrap. Whole vectors are
 * read for whole groups of four positions.
 */
#ifndef RAOT_DEPTHWISE_BYTES_H
#define RAOT_DEPTHWISE_BYTES_H

#include <stdint.h>

#include "assembly.h"
#include "mve.h"
#include "requantize_channel.h"

#if defined(RAOT_REQUANTIZE_MVE)
/* Sizes and pointers of the functions below, which move those to the next channel. */
struct raot_depthwise_lines {
    const int32_t *start;
    const void *scale;
    const int8_t *weights;
    const int8_t *end; /* of the weights */
    int8_t *out;
    const int8_t *strips;
    int32_t groups; /* of eight positions */
    int32_t rest;   /* positions behind them */
    int32_t next;   /* bytes of the strip from vector to vector */
    int32_t out_step;
    int32_t strip_rest; /* bytes from the end of a strip to the next one */
    int32_t out_rest;
    int32_t zero;
    int32_t low;
    int32_t high;
};

/* clang-format off */
/* Eight positions in q0 (even ones) and q1 (odd ones), from strips at r1 by the weights q4 to q7. */
#define RAOT_LINE_OF_FOUR(LOAD) \
    LOAD "vmladav.s8 r0, q2, q4\n vmladav.s8 r2, q2, q5\n" \
    "vmladav.s8 r4, q2, q6\n vmladav.s8 r6, q2, q7\n" \
    LOAD "vmov d0, r0, r4\n vmladav.s8 r0, q2, q4\n vmov d2, r2, r6\n vmladav.s8 r2, q2, q5\n" \
    "vmladav.s8 r4, q2, q6\n vmladav.s8 r6, q2, q7\n vmov d1, r0, r4\n vmov d3, r2, r6\n"
#define RAOT_LINE_OF_ONE(LOAD) \
    LOAD "vmladav.s8 r0, q2, q4\n" LOAD "vmladav.s8 r2, q2, q4\n" \
    LOAD "vmladav.s8 r4, q2, q4\n" LOAD "vmladav.s8 r6, q2, q4\n" \
    LOAD "vmov d0, r0, r4\n vmladav.s8 r0, q2, q4\n vmov d2, r2, r6\n" \
    LOAD "vmladav.s8 r2, q2, q4\n" LOAD "vmladav.s8 r4, q2, q4\n" LOAD "vmladav.s8 r6, q2, q4\n" \
    "vmov d1, r0, r4\n vmov d3, r2, r6\n"
/* The first four of them, in q0. */
#define RAOT_LINE_HALF_OF_FOUR(LOAD) \
    LOAD "vmladav.s8 r0, q2, q4\n vmladav.s8 r2, q2, q5\n" \
    "vmladav.s8 r4, q2, q6\n vmladav.s8 r6, q2, q7\n vmov d0, r0, r2\n vmov d1, r4, r6\n"
#define RAOT_LINE_HALF_OF_ONE(LOAD) \
    LOAD "vmladav.s8 r0, q2, q4\n" LOAD "vmladav.s8 r2, q2, q4\n" LOAD "vmladav.s8 r4, q2, q4\n" \
    LOAD "vmladav.s8 r6, q2, q4\n vmov d0, r0, r2\n vmov d1, r4, r6\n"
#define RAOT_LINE_NEAR "vldrb.8 q2, [r1], #4\n"
#define RAOT_LINE_FAR "vldrb.8 q2, [r1]\n add r1, r7\n"
#define RAOT_LINE_WEIGHTS(COUNT) RAOT_LINE_WEIGHTS_##COUNT
#define RAOT_LINE_WEIGHTS_1 "vldrb.8 q4, [r5], #16\n"
#define RAOT_LINE_WEIGHTS_4 \
    "vldrb.8 q4, [r5], #16\n vldrb.8 q5, [r5], #16\n vldrb.8 q6, [r5], #16\n vldrb.8 q7, [r5], #16\n"

/* Their scaling: the multiplier is in r10, the shift in r11; q2 is free. */
#define RAOT_LINE_BOTH(STEP) STEP("q0") STEP("q1")
#define RAOT_LINE_FIRST(STEP) STEP("q0")
#define RAOT_LINE_ADDED(x) "vadd.i32 " x ", " x ", r5\n"
#define RAOT_LINE_FLOAT(x) "vcvt.f32.s32 " x ", " x "\n"
#define RAOT_LINE_TIMES(x) "vmul.f32 " x ", " x ", r10\n"
#define RAOT_LINE_ROUNDED(x) "vcvtn.s32.f32 " x ", " x "\n"
#define RAOT_LINE_CUT(x) "vqdmulh.s32 " x ", " x ", r10\n"
#define RAOT_LINE_HIGH(x) "vqrdmulh.s32 " x ", " x ", r10\n"
#define RAOT_LINE_LOWERED(x) RAOT_LANES_LOWERED(x, "q2")
#define RAOT_LINE_SHIFTED(x) "vrshl.s32 " x ", r11\n"
#define RAOT_LINE_SCALED_F32(EACH) \
    EACH(RAOT_LINE_FLOAT) EACH(RAOT_LINE_TIMES) EACH(RAOT_LINE_ROUNDED)
/* The double of the product, which is shifted by one more. */
#define RAOT_LINE_SCALED_NEAREST(EACH) EACH(RAOT_LINE_CUT) EACH(RAOT_LINE_SHIFTED)
#define RAOT_LINE_SCALED_ABOVE(EACH) EACH(RAOT_LINE_HIGH) EACH(RAOT_LINE_SHIFTED)
#define RAOT_LINE_SCALED_TWICE(EACH) \
    EACH(RAOT_LINE_HIGH) EACH(RAOT_LINE_LOWERED) EACH(RAOT_LINE_SHIFTED)
#define RAOT_LINE_SCALE_F32 "ldr r10, [r4], #4\n"
#define RAOT_LINE_SCALE_NEAREST "ldrd r10, r11, [r4], #8\n subs r11, #1\n"
#define RAOT_LINE_SCALE_ABOVE "ldrd r10, r11, [r4], #8\n"
#define RAOT_LINE_SCALE_TWICE RAOT_LINE_SCALE_ABOVE

#define RAOT_LINE_SATURATED "vqmovnb.s16 q0, q0\n"
#define RAOT_LINE_CLAMPED \
    "vldrw.32 q2, [sp]\n vmax.s16 q0, q0, q2\n vldrw.32 q2, [sp, #16]\n vmin.s16 q0, q0, q2\n"
#define RAOT_LINE_BYTES(EACH, NARROWED, SCALED, LIMITED) \
    EACH(RAOT_LINE_ADDED) SCALED(EACH) \
    "vqmovnb.s32 q0, q0\n" NARROWED "vqadd.s16 q0, q0, r12\n" LIMITED
#define RAOT_LINE_EIGHT(SCALED, LIMITED) \
    RAOT_LINE_BYTES(RAOT_LINE_BOTH, "vqmovnt.s32 q0, q1\n", SCALED, LIMITED)

/*
 * All positions of each channel, eight at a time:
 *
 *     r0, r2, r4, r6   sums
 *     r1, r3           strips and results
 *     r5, r10, r11     start, multiplier and shift of the channel
 *     r7, r8, r12      next, bytes between the results of eight positions, zero
 *     q3, q4 to q7     offsets of eight positions, weights
 *     [sp], [sp, #16]  low and high of eight positions
 *     [sp, #32]        sizes, address of the code for positions behind the groups
 *     [sp, #40]        offsets of four positions
 */
#define RAOT_DEPTHWISE_LINES(NAME, COUNT, SUMS, HALF, SCALE, SCALED, LIMITED) \
    RAOT_NAKED static void NAME(RAOT_ARGUMENT struct raot_depthwise_lines *sizes) \
    { \
        __asm volatile( \
            RAOT_REQUANTIZE_PUSH "sub sp, #56\n mov lr, r0\n" \
            "ldrd r4, r5, [lr, #52]\n vdup.16 q0, r4\n vdup.16 q1, r5\n" \
            "vstrw.32 q0, [sp]\n vstrw.32 q1, [sp, #16]\n" \
            "ldrd r7, r8, [lr, #32]\n ldr r12, [lr, #48]\n movs r4, #0\n vidup.u16 q3, r4, #1\n" \
            "vmul.i16 q3, q3, r8\n movs r4, #0\n vidup.u32 q0, r4, #1\n" \
            "vmul.i32 q0, q0, r8\n vstrw.32 q0, [sp, #40]\n lsls r8, r8, #3\n" \
            "ldrd r3, r1, [lr, #16]\n ldr r4, [lr, #28]\n vctp.16 r4\n adr.w r2, 7f\n" \
            "cmp r4, #4\n bhi 1f\n vctp.32 r4\n adr.w r2, 5f\n" \
            "cmp r4, #0\n it eq\n adreq.w r2, 4f\n" \
            "1:\n orr r2, #1\n strd r0, r2, [sp, #32]\n" \
            "1:\n ldm lr, {r2, r4, r5}\n" RAOT_LINE_WEIGHTS(COUNT) SCALE \
            "adds r2, #4\n stm lr, {r2, r4, r5}\n ldr r5, [r2, #-4]\n" \
            "ldr r4, [lr, #24]\n wls lr, r4, 3f\n" \
            "2:\n" SUMS RAOT_LINE_EIGHT(SCALED, LIMITED) \
            "vstrb.16 q0, [r3, q3]\n add r3, r8\n le lr, 2b\n" \
            "3:\n ldr pc, [sp, #36]\n .p2align 2\n" \
            "5:\n" HALF RAOT_LINE_BYTES(RAOT_LINE_FIRST, "", SCALED, LIMITED) \
            "vldrw.32 q1, [sp, #40]\n vpst\n vstrbt.32 q0, [r3, q1]\n b 4f\n" \
            "7:\n" SUMS RAOT_LINE_EIGHT(SCALED, LIMITED) "vpst\n vstrbt.16 q0, [r3, q3]\n" \
            "4:\n ldr lr, [sp, #32]\n ldrd r4, r2, [lr, #40]\n add r1, r4\n add r3, r2\n" \
            "ldrd r4, r2, [lr, #8]\n cmp r4, r2\n bne 1b\n" \
            "add sp, #56\n" RAOT_REQUANTIZE_POP); \
    }
#define RAOT_DEPTHWISE_LINES_OF(NAME, SCALE, SCALED, LIMITED) \
    RAOT_DEPTHWISE_LINES(NAME##_near, 4, RAOT_LINE_OF_FOUR(RAOT_LINE_NEAR), RAOT_LINE_HALF_OF_FOUR(RAOT_LINE_NEAR), \
                         SCALE, SCALED, LIMITED) \
    RAOT_DEPTHWISE_LINES(NAME##_far, 4, RAOT_LINE_OF_FOUR(RAOT_LINE_FAR), RAOT_LINE_HALF_OF_FOUR(RAOT_LINE_FAR), \
                         SCALE, SCALED, LIMITED) \
    RAOT_DEPTHWISE_LINES(NAME##_one, 1, RAOT_LINE_OF_ONE(RAOT_LINE_FAR), RAOT_LINE_HALF_OF_ONE(RAOT_LINE_FAR), \
                         SCALE, SCALED, LIMITED)
#define RAOT_DEPTHWISE_LINES_FORM(form, FORM) \
    RAOT_DEPTHWISE_LINES_OF(raot_depthwise_lines_##form##_saturated, RAOT_LINE_SCALE_##FORM, \
                            RAOT_LINE_SCALED_##FORM, RAOT_LINE_SATURATED) \
    RAOT_DEPTHWISE_LINES_OF(raot_depthwise_lines_##form##_clamped, RAOT_LINE_SCALE_##FORM, \
                            RAOT_LINE_SCALED_##FORM, RAOT_LINE_CLAMPED)
RAOT_DEPTHWISE_LINES_FORM(f32, F32)
RAOT_DEPTHWISE_LINES_FORM(nearest, NEAREST)
RAOT_DEPTHWISE_LINES_FORM(above, ABOVE)
RAOT_DEPTHWISE_LINES_FORM(twice, TWICE)
/* clang-format on */

#define RAOT_DEPTHWISE_CALL(form, shared, step, limits, sizes) \
    if ((shared) == 4 && (step) == 1) {                        \
        raot_depthwise_lines_##form##_##limits##_near(sizes);  \
    } else if ((shared) == 4) {                                \
        raot_depthwise_lines_##form##_##limits##_far(sizes);   \
    } else {                                                   \
        raot_depthwise_lines_##form##_##limits##_one(sizes);   \
    }
#define RAOT_DEPTHWISE_BYTES(form, T, PER)                         \
    const int32_t windows = (count + 3) / 4 * 4 / shared;          \
    struct raot_depthwise_lines sizes = {                          \
        start,                                                     \
        scale,                                                     \
        weights,                                                   \
        weights + 16 * shared * channels,                          \
        out,                                                       \
        strips,                                                    \
        count / 8,                                                 \
        count % 8,                                                 \
        shared * step,                                             \
        out_step,                                                  \
        width - windows * shared * step,                           \
        channel_step - count / 8 * 8 * out_step,                   \
        zero,                                                      \
        low,                                                       \
        high,                                                      \
    };                                                             \
    (void)depth;                                                   \
    if (low == INT8_MIN && high == INT8_MAX) {                     \
        RAOT_DEPTHWISE_CALL(form, shared, step, saturated, &sizes) \
    } else {                                                       \
        RAOT_DEPTHWISE_CALL(form, shared, step, clamped, &sizes)   \
    }
#elif defined(RAOT_MVE_F32)
#define RAOT_DEPTHWISE_BYTES(form, T, PER)                                           \
    (void)depth;                                                                     \
    for (int32_t c = 0; c < channels; c++) {                                         \
        for (int32_t p = 0; p < count; p += 8) {                                     \
            const int32_t four = (count - p + 3) / 4 * 4;                            \
            int32_t sums[8] = {0};                                                   \
            for (int32_t i = 0; i < 8 && i < four; i++) {                            \
                const int32_t which = i % shared;                                    \
                const int8x16_t window = vldrbq_s8(strips + (p + i - which) * step); \
                sums[i] = vmladavq_s8(window, vldrbq_s8(weights + 16 * which));      \
            }                                                                        \
            raot_requantize_channel_##form##_unpacked(                               \
                out + p * out_step, sums, start + c, scale + c * PER, 1,             \
                count - p < 8 ? count - p : 8, 0, out_step, zero, low, high);        \
        }                                                                            \
        out += channel_step;                                                         \
        strips += width;                                                             \
        weights += 16 * shared;                                                      \
    }
#else
#define RAOT_DEPTHWISE_BYTES(form, T, PER)                                                         \
    for (int32_t c = 0; c < channels; c++) {                                                       \
        for (int32_t p = 0; p < count; p++) {                                                      \
            const int8_t *const x = strips + c * width + p * step;                                 \
            const int8_t *const by = weights + 16 * (c * shared + p % shared) + p % shared * step; \
            uint32_t sum = 0u;                                                                     \
            for (int32_t k = 0; k < depth; k++) {                                                  \
                sum += (uint32_t)(x[k] * by[k]);                                                   \
            }                                                                                      \
            const int32_t one = (int32_t)sum;                                                      \
            raot_requantize_channel_##form##_unpacked(out + c * channel_step + p * out_step, &one, \
                                                      start + c, scale + c * PER, 1, 1, 0, 1,      \
                                                      zero, low, high);                            \
        }                                                                                          \
    }
#endif

/* Sizes of the functions below, by name. */
struct raot_depthwise_bytes {
    int32_t channels;
    int32_t count;
    int32_t shared;
    int32_t depth;
    int32_t step;
    int32_t width;
    int32_t channel_step;
    int32_t out_step;
    int32_t zero;
    int32_t low;
    int32_t high;
};

#define RAOT_DEPTHWISE_BYTES_FORM(NAME, form, T, PER)                                      \
    __attribute__((noinline, unused)) static void NAME(                                    \
        int8_t *out, const int8_t *strips, const int8_t *weights, const int32_t *start,    \
        const T *scale, int32_t channels, int32_t count, int32_t shared, int32_t depth,    \
        int32_t step, int32_t width, int32_t channel_step, int32_t out_step, int32_t zero, \
        int32_t low, int32_t high)                                                         \
    {                                                                                      \
        RAOT_DEPTHWISE_BYTES(form, T, PER)                                                 \
    }
RAOT_DEPTHWISE_BYTES_FORM(raot_depthwise_bytes_f32_unpacked, f32, float, 1)
RAOT_DEPTHWISE_BYTES_FORM(raot_depthwise_bytes_nearest_unpacked, nearest, int32_t, 2)
RAOT_DEPTHWISE_BYTES_FORM(raot_depthwise_bytes_above_unpacked, above, int32_t, 2)
RAOT_DEPTHWISE_BYTES_FORM(raot_depthwise_bytes_twice_unpacked, twice, int32_t, 2)

#define RAOT_DEPTHWISE_BYTES_CALL(FUNCTION, out, strips, weights, start, scale, sizes) \
    FUNCTION(out, strips, weights, start, scale, (sizes)->channels, (sizes)->count,    \
             (sizes)->shared, (sizes)->depth, (sizes)->step, (sizes)->width,           \
             (sizes)->channel_step, (sizes)->out_step, (sizes)->zero, (sizes)->low, (sizes)->high)
#define raot_depthwise_bytes_f32(...) \
    RAOT_DEPTHWISE_BYTES_CALL(raot_depthwise_bytes_f32_unpacked, __VA_ARGS__)
#define raot_depthwise_bytes_nearest(...) \
    RAOT_DEPTHWISE_BYTES_CALL(raot_depthwise_bytes_nearest_unpacked, __VA_ARGS__)
#define raot_depthwise_bytes_above(...) \
    RAOT_DEPTHWISE_BYTES_CALL(raot_depthwise_bytes_above_unpacked, __VA_ARGS__)
#define raot_depthwise_bytes_twice(...) \
    RAOT_DEPTHWISE_BYTES_CALL(raot_depthwise_bytes_twice_unpacked, __VA_ARGS__)

/* Unsigned bytes are stored like signed ones. */
#define raot_depthwise_bytes_f32_u8(out, ...) raot_depthwise_bytes_f32((int8_t *)(out), __VA_ARGS__)
#define raot_depthwise_bytes_nearest_u8(out, ...) \
    raot_depthwise_bytes_nearest((int8_t *)(out), __VA_ARGS__)
#define raot_depthwise_bytes_above_u8(out, ...) \
    raot_depthwise_bytes_above((int8_t *)(out), __VA_ARGS__)
#define raot_depthwise_bytes_twice_u8(out, ...) \
    raot_depthwise_bytes_twice((int8_t *)(out), __VA_ARGS__)

#endif
