/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_nhwc.h - channels-last integer contractions (Helium).
 *
 * The windows of the positions are rows of `depth` signed bytes, `row_step` apart. Of more than 48
 * bytes, whole blocks of 16 are readable. The sums of
 * four channels and two positions are computed together. Weights are packed for four channels:
 * the initial sums for both positions, then 16 bytes of each channel, repeated and padded with
 * zeros. Channels are interleaved in groups of eight: 0 2 4 6, then 1 3 5 7; the last four or
 * fewer are in natural order. Sums wrap.
 */
#ifndef RAOT_MULTIPLY_NHWC_H
#define RAOT_MULTIPLY_NHWC_H

#include <stdint.h>
#include <string.h>

#include "assembly.h"
#include "convert.h"
#include "mve.h"

/* `count` bytes, each xor `flip`. */
static inline void raot_copy_s8(int8_t *to, const uint8_t *from, int32_t count, int32_t flip)
{
#if defined(RAOT_MVE)
    for (int32_t i = 0; i < count; i += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)(count - i));
        const uint8x16_t x = vldrbq_z_u8(from + i, some);
        vstrbq_p_u8((uint8_t *)to + i, veorq_u8(x, vdupq_n_u8((uint8_t)flip)), some);
    }
#else
    for (int32_t i = 0; i < count; i++) {
        to[i] = (int8_t)(from[i] ^ flip);
    }
#endif
}

static inline void raot_fill_s8(int8_t *to, int32_t byte, int32_t count)
{
#if defined(RAOT_MVE)
    for (int32_t i = 0; i < count; i += 16) {
        vstrbq_p_s8(to + i, vdupq_n_s8((int8_t)byte), vctp8q((uint32_t)(count - i)));
    }
#else
    (void)memset(to, byte, (size_t)count);
#endif
}

#if defined(RAOT_MVE)
/* Copies `count` bytes, `step` apart, each xor `flip`; `apart` has the offsets of eight of them. */
static inline void raot_apart_s8(int8_t *to, const uint8_t *from, int32_t count, int32_t step,
                                 uint16x8_t apart, int32_t flip)
{
    const uint16x8_t other = vdupq_n_u16((uint16_t)flip);
    uint8_t *out = (uint8_t *)to;
    for (; count >= 8; count -= 8) {
        vstrbq_u16(out, veorq_u16(vldrbq_gather_offset_u16(from, apart), other));
        out += 8;
        from += 8 * step;
    }
    if (count > 0) {
        const mve_pred16_t some = vctp16q((uint32_t)count);
        const uint16x8_t x = vldrbq_gather_offset_z_u16(from, apart, some);
        vstrbq_p_u16(out, veorq_u16(x, other), some);
    }
}

/* Copies `count` bytes, `step` apart, to addresses `to_step` apart, each xor `flip`. */
static inline void raot_across_s8(int8_t *to, const uint8_t *from, int32_t count, int32_t step,
                                  int32_t to_step, int32_t flip)
{
    const uint16x8_t position = vidupq_n_u16(0, 1);
    const uint16x8_t apart = vmulq_n_u16(position, (uint16_t)step);
    const uint16x8_t at = vmulq_n_u16(position, (uint16_t)to_step);
    const uint16x8_t other = vdupq_n_u16((uint16_t)flip);

    for (int32_t i = 0; i < count; i += 8) {
        const mve_pred16_t some = vctp16q((uint32_t)(count - i));
        const uint16x8_t x = vldrbq_gather_offset_z_u16(from + i * step, apart, some);
        vstrbq_scatter_offset_p_u16((uint8_t *)to + i * to_step, at, veorq_u16(x, other), some);
    }
}
#endif

/*
 * Copies columns first..first + columns of some lines of an image, column by column: `channels`
 * bytes of every line. Lines first1..last1 of `lines` and columns 0..width are inside the image;
 * elements outside are `zero`. `image` is column 0 of the first line inside. `flip` is 0, or 128
 * for unsigned bytes, which become signed.
 */
__attribute__((noinline, unused)) static void
raot_im2col_nhwc_u8_unpacked(int8_t *strip, const uint8_t *image, int32_t zero, int32_t flip,
                             int32_t channels, int32_t channel_step, int32_t lines, int32_t first1,
                             int32_t last1, int32_t line_step, int32_t columns, int32_t first,
                             int32_t width, int32_t column_step)
{
    const int32_t piece = lines * channels;
    const int32_t left = first < 0 ? (-first < columns ? -first : columns) : 0;
    const int32_t inside = width - first < columns ? width - first : columns;
    const int32_t right = inside > left ? inside : left;

    if (left > 0) {
        raot_fill_s8(strip, zero, left * piece);
    }
    if (right < columns) {
        raot_fill_s8(strip + right * piece, zero, (columns - right) * piece);
    }
    /*@ loop unroll 4096; */
    for (int32_t j = 0; j < lines; j++) {
        int8_t *to = strip + left * piece + j * channels;
        if (j < first1 || j >= last1) {
            /*@ loop unroll 4096; */
            for (int32_t c = left; c < right; c++) {
                raot_fill_s8(to, zero, channels);
                to += piece;
            }
            continue;
        }
        const uint8_t *from = image + (j - first1) * line_step + (first + left) * column_step;
        if (channel_step == 1 && channels > 1) {
            if (lines == 1 && column_step == channels) {
                raot_copy_s8(to, from, (right - left) * channels, flip);
                continue;
            }
#if defined(RAOT_MVE)
            if (channels <= 16) {
                const mve_pred16_t some = vctp8q((uint32_t)channels);
                const uint8x16_t other = vdupq_n_u8((uint8_t)flip);
                for (int32_t c = left; c < right; c++) {
                    vstrbq_p_u8((uint8_t *)to, veorq_u8(vldrbq_z_u8(from, some), other), some);
                    to += piece;
                    from += column_step;
                }
                continue;
            }
#endif
            /*@ loop unroll 4096; */
            for (int32_t c = left; c < right; c++) {
                raot_copy_s8(to, from, channels, flip);
                to += piece;
                from += column_step;
            }
            continue;
        }
#if defined(RAOT_MVE)
        if (channels >= 4 && channel_step <= (int32_t)(UINT16_MAX / 7)) {
            const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)channel_step);
            for (int32_t c = left; c < right; c++) {
                raot_apart_s8(to, from, channels, channel_step, apart, flip);
                to += piece;
                from += column_step;
            }
            continue;
        }
        if (column_step <= (int32_t)(UINT16_MAX / 7) && piece <= (int32_t)(UINT16_MAX / 7)) {
            for (int32_t i = 0; i < channels; i++) {
                raot_across_s8(to + i, from + i * channel_step, right - left, column_step, piece,
                               flip);
            }
            continue;
        }
#endif
        /*@ loop unroll 4096; */
        for (int32_t i = 0; i < channels; i++) {
            const uint8_t *source = from + i * channel_step;
            int8_t *target = to + i;
            /*@ loop unroll 4096; */
            for (int32_t c = left; c < right; c++) {
                *target = (int8_t)(*source ^ flip);
                target += piece;
                source += column_step;
            }
        }
    }
}

#define raot_im2col_nhwc_s8_unpacked(strip, image, ...) \
    raot_im2col_nhwc_u8_unpacked(strip, (const uint8_t *)(image), __VA_ARGS__)

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
/* Sizes of the function below: bytes of the sums of a pair, blocks of 16 bytes of a window, and
 * bytes of the last one. */
struct raot_multiply_pairs {
    int32_t bytes;
    int32_t blocks;
    int32_t pairs;
    int32_t row_step;
    int32_t last;
};

/*
 * The sums of pairs of output positions x and y: of each group of channels four of the first and
 * four of the second. VMLADAVA needs sums in even-numbered registers. Eight sums leave r1, r3, r5,
 * r7 and r11, which are too few for compilers. Loads and products alternate, since both take two
 * cycles.
 *
 *     r0, r2, r4, r6       sums of position x
 *     r8, r10, r12, r14    sums of position y
 *     r1, r3               bytes of x and y
 *     r5                   end of the sums of the pair, or remaining iterations of four blocks
 *     r7                   weights
 *     r11                  sums in memory
 *     [sp]                 address of the last blocks
 *     [sp, #4]             x and y
 *     [sp, #12]            address of the first blocks
 *     [sp, #16]            end of the sums of the pair
 *     [sp, #20]            iterations of four blocks
 *     [sp, #24]            weights, end of all sums
 *     [sp, #32]            bytes from one pair to the next, bytes of the sums of a pair
 *     [sp, #40]            of up to three blocks: from the end of a pair to the next one
 *
 * Up to three blocks of both positions are kept in vectors, without what is behind the last one.
 * For more, a block has loaded its first operands before: q0 is x and q2 the first channel.
 */
#define RAOT_SUMS_TWO "{r0, r2, r4, r6, r8, r10, r12, r14}"

/* clang-format off */
#define RAOT_NEXT_PAIR                                                           \
    "ldrd r0, r5, [sp, #36]\n add r1, r5\n add r3, r5\n add r5, r0, r11\n"   \
    "ldrd r7, r0, [sp, #24]\n cmp r11, r0\n"
#define RAOT_BLOCK_START                                                         \
    "vmladava.s8 r0, q0, q2\n vldrb.8 q3, [r7], #16\n"                          \
    "vmladava.s8 r2, q0, q3\n vldrb.8 q4, [r7], #16\n"                          \
    "vmladava.s8 r4, q0, q4\n vldrb.8 q5, [r7], #16\n"                          \
    "vmladava.s8 r6, q0, q5\n vldrb.8 q1, [r3], #16\n vmladava.s8 r8, q1, q2\n"
#define RAOT_BLOCK                                                               \
    RAOT_BLOCK_START "vldrb.8 q0, [r1], #16\n vmladava.s8 r10, q1, q3\n"        \
    "vldrb.8 q2, [r7], #16\n vmladava.s8 r12, q1, q4\n vmladava.s8 r14, q1, q5\n"

RAOT_NAKED static void raot_multiply_pairs_s8(
    RAOT_ARGUMENT int32_t *to, RAOT_ARGUMENT const int32_t *w, RAOT_ARGUMENT const int8_t *x,
    RAOT_ARGUMENT const struct raot_multiply_pairs *sizes)
{
    __asm volatile(
        "push {r4, r5, r6, r7, r8, r10, r11, lr}\n"
        "vpush {d8, d9, d10, d11, d12, d13, d14, d15}\n sub sp, #48\n"
        "ldr r4, [r3, #16]\n vctp.8 r4\n"
        "ldrd r4, r12, [r3]\n ldrd r6, r8, [r3, #8]\n mov r11, r0\n mov r7, r1\n"
        "mla r6, r6, r4, r0\n strd r1, r6, [sp, #24]\n lsl r10, r8, #1\n strd r10, r4, [sp, #32]\n"
        "sub r10, r10, r12, lsl #4\n add r10, #16\n str r10, [sp, #40]\n"
        "mov r1, r2\n add r3, r2, r8\n strd r1, r3, [sp, #4]\n add r5, r0, r4\n"
        "str r5, [sp, #16]\n"
        "cmp r12, #2\n blt 1f\n beq 2f\n cmp r12, #3\n beq 3f\n"
        /* A block has 56 bytes. Up to three blocks and the last one follow `iterations` of four. */
        "sub r12, #1\n and r2, r12, #3\n lsrs r6, r12, #2\n str r6, [sp, #20]\n"
        "mov r4, #56\n adr.w r0, 8f\n mls r0, r2, r4, r0\n orr r0, #1\n str r0, [sp]\n"
        "cmp r6, #0\n beq 6f\n adr.w r0, 7f\n orr r0, #1\n"
        "6:\n str r0, [sp, #12]\n adr.w r0, 10f\n b 4f\n"
        "1:\n adr.w r0, 11f\n b 4f\n 2:\n adr.w r0, 12f\n b 4f\n 3:\n adr.w r0, 13f\n"
        "4:\n orr r0, #1\n bx r0\n .p2align 2\n"
        /* More blocks than three. */
        "10:\n ldm r7!, " RAOT_SUMS_TWO "\n vldrb.8 q2, [r7], #16\n vldrb.8 q0, [r1], #16\n"
        "ldr pc, [sp, #12]\n"
        ".p2align 2\n 7:\n ldr r5, [sp, #20]\n"
        "3:\n" RAOT_BLOCK RAOT_BLOCK RAOT_BLOCK RAOT_BLOCK "subs r5, #1\n bgt 3b\n"
        "ldr r5, [sp, #16]\n ldr pc, [sp]\n .p2align 2\n"
        RAOT_BLOCK RAOT_BLOCK RAOT_BLOCK
        "8:\n" RAOT_BLOCK_START "ldrd r1, r3, [sp, #4]\n"
        "vmladava.s8 r10, q1, q3\n vmladava.s8 r12, q1, q4\n vmladava.s8 r14, q1, q5\n"
        "stm r11!, " RAOT_SUMS_TWO "\n cmp r11, r5\n bne 10b\n"
        /* The next pair. */
        "ldrd r1, r3, [sp, #4]\n ldrd r0, r5, [sp, #32]\n add r1, r0\n add r3, r0\n add r5, r11\n"
        "strd r1, r3, [sp, #4]\n str r5, [sp, #16]\n ldrd r7, r0, [sp, #24]\n"
        "cmp r11, r0\n bne.w 10b\n"
        "9:\n add sp, #48\n vpop {d8, d9, d10, d11, d12, d13, d14, d15}\n"
        "pop {r4, r5, r6, r7, r8, r10, r11, pc}\n .p2align 2\n");
    /* C compilers need not take longer texts than 4095 characters. One block, two and three. */
    __asm volatile(
        "11:\n"
        "vpstt\n vldrbt.8 q0, [r1]\n vldrbt.8 q1, [r3]\n"
        "21:\n ldm r7!, " RAOT_SUMS_TWO "\n"
        "vldrb.8 q2, [r7], #16\n vmladava.s8 r0, q0, q2\n vldrb.8 q3, [r7], #16\n"
        "vmladava.s8 r8, q1, q2\n vmladava.s8 r2, q0, q3\n vldrb.8 q4, [r7], #16\n"
        "vmladava.s8 r10, q1, q3\n vmladava.s8 r4, q0, q4\n vldrb.8 q5, [r7], #16\n"
        "vmladava.s8 r12, q1, q4\n vmladava.s8 r6, q0, q5\n vmladava.s8 r14, q1, q5\n"
        "stm r11!, " RAOT_SUMS_TWO "\n cmp r11, r5\n bne 21b\n" RAOT_NEXT_PAIR "bne.w 11b\n b.w 9b\n"
        "12:\n"
        "vldrb.8 q0, [r1], #16\n vldrb.8 q2, [r3], #16\n"
        "vpstt\n vldrbt.8 q1, [r1]\n vldrbt.8 q3, [r3]\n"
        "22:\n ldm r7!, " RAOT_SUMS_TWO "\n"
        "vldrb.8 q4, [r7], #16\n vmladava.s8 r0, q0, q4\n vldrb.8 q5, [r7], #16\n"
        "vmladava.s8 r8, q2, q4\n vmladava.s8 r2, q0, q5\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r10, q2, q5\n vmladava.s8 r4, q0, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r12, q2, q6\n vmladava.s8 r6, q0, q7\n vldrb.8 q4, [r7], #16\n"
        "vmladava.s8 r14, q2, q7\n vmladava.s8 r0, q1, q4\n vldrb.8 q5, [r7], #16\n"
        "vmladava.s8 r8, q3, q4\n vmladava.s8 r2, q1, q5\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r10, q3, q5\n vmladava.s8 r4, q1, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r12, q3, q6\n vmladava.s8 r6, q1, q7\n vmladava.s8 r14, q3, q7\n"
        "stm r11!, " RAOT_SUMS_TWO "\n cmp r11, r5\n bne 22b\n" RAOT_NEXT_PAIR "bne.w 12b\n b.w 9b\n"
        "13:\n"
        "vldrb.8 q0, [r1], #16\n vldrb.8 q1, [r1], #16\n"
        "vldrb.8 q3, [r3], #16\n vldrb.8 q4, [r3], #16\n"
        "vpstt\n vldrbt.8 q2, [r1]\n vldrbt.8 q5, [r3]\n"
        "23:\n ldm r7!, " RAOT_SUMS_TWO "\n"
        "vldrb.8 q6, [r7], #16\n vmladava.s8 r0, q0, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r8, q3, q6\n vmladava.s8 r2, q0, q7\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r10, q3, q7\n vmladava.s8 r4, q0, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r12, q3, q6\n vmladava.s8 r6, q0, q7\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r14, q3, q7\n vmladava.s8 r0, q1, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r8, q4, q6\n vmladava.s8 r2, q1, q7\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r10, q4, q7\n vmladava.s8 r4, q1, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r12, q4, q6\n vmladava.s8 r6, q1, q7\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r14, q4, q7\n vmladava.s8 r0, q2, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r8, q5, q6\n vmladava.s8 r2, q2, q7\n vldrb.8 q6, [r7], #16\n"
        "vmladava.s8 r10, q5, q7\n vmladava.s8 r4, q2, q6\n vldrb.8 q7, [r7], #16\n"
        "vmladava.s8 r12, q5, q6\n vmladava.s8 r6, q2, q7\n vmladava.s8 r14, q5, q7\n"
        "stm r11!, " RAOT_SUMS_TWO "\n cmp r11, r5\n bne 23b\n" RAOT_NEXT_PAIR "bne.w 13b\n b.w 9b\n");
}
/* clang-format on */
#undef RAOT_SUMS_TWO
#undef RAOT_NEXT_PAIR
#undef RAOT_BLOCK_START
#undef RAOT_BLOCK
#elif defined(RAOT_MVE)
/* For each group of channels up to `end`, the sums of two output positions x and y: four of the
 * first and four of the second. */
__attribute__((noinline, unused)) static void raot_multiply_two_s8(int32_t *to, const int32_t *w,
                                                                   const int8_t *x, const int8_t *y,
                                                                   int32_t *end, int32_t depth)
{
    for (; to != end; to += 8) {
        const int8_t *bytes = (const int8_t *)(w + 8);
        const int8_t *at = x;
        const int8_t *next = y;
        int32_t sum0 = w[0], sum1 = w[1], sum2 = w[2], sum3 = w[3];
        int32_t sum4 = sum0, sum5 = sum1, sum6 = sum2, sum7 = sum3;
        for (int32_t k = depth; k > 0; k -= 16) {
            const mve_pred16_t some = vctp8q((uint32_t)k);
            const int8x16_t left = vldrbq_z_s8(at, some);
            const int8x16_t right = vldrbq_z_s8(next, some);
            const int8x16_t by1 = vldrbq_s8(bytes + 16);
            const int8x16_t by2 = vldrbq_s8(bytes + 32);
            const int8x16_t by3 = vldrbq_s8(bytes + 48);
            const int8x16_t by0 = vldrbq_s8(bytes);
            bytes += 64;
            RAOT_KEEP_ADDRESS(bytes);
            sum0 = vmladavaq_s8(sum0, left, by0);
            sum4 = vmladavaq_s8(sum4, right, by0);
            sum1 = vmladavaq_s8(sum1, left, by1);
            sum5 = vmladavaq_s8(sum5, right, by1);
            sum2 = vmladavaq_s8(sum2, left, by2);
            sum6 = vmladavaq_s8(sum6, right, by2);
            sum3 = vmladavaq_s8(sum3, left, by3);
            sum7 = vmladavaq_s8(sum7, right, by3);
            at += 16;
            next += 16;
        }
        to[0] = sum0;
        to[1] = sum1;
        to[2] = sum2;
        to[3] = sum3;
        to[4] = sum4;
        to[5] = sum5;
        to[6] = sum6;
        to[7] = sum7;
        w = (const int32_t *)(const void *)bytes;
    }
}
#else
static inline void raot_multiply_two_s8(int32_t *to, const int32_t *w, const int8_t *x,
                                        const int8_t *y, int32_t *end, int32_t depth)
{
    /*@ loop unroll 4096; */
    for (; to != end; to += 8) {
        const int8_t *const bytes = (const int8_t *)(w + 8);
        /*@ loop unroll 4096; */
        for (int32_t n = 0; n < 4; n++) {
            uint32_t first = (uint32_t)w[n];
            uint32_t second = first;
            /*@ loop unroll 4096; */
            for (int32_t k = 0; k < depth; k++) {
                const int32_t by = bytes[k / 16 * 64 + n * 16 + k % 16];
                first += (uint32_t)(by * x[k]);
                second += (uint32_t)(by * y[k]);
            }
            to[n] = (int32_t)first;
            to[n + 4] = (int32_t)second;
        }
        w += 8 + (depth + 15) / 16 * 16;
    }
}
#endif

/* The same for one position: four sums of each eight are undefined. */
#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
/*
 *     r0, r2, r4, r6   sums
 *     r1, r12          weights and bytes
 *     r3               end
 *     r5, r8           depth, and the first bytes
 *     r7               sums in memory
 */
/* clang-format off */
RAOT_NAKED static void raot_multiply_one_s8(
    RAOT_ARGUMENT int32_t *to, RAOT_ARGUMENT const int32_t *w, RAOT_ARGUMENT const int8_t *x,
    RAOT_ARGUMENT int32_t *end, RAOT_ARGUMENT int32_t depth)
{
    __asm volatile(
        "push {r4, r5, r6, r7, r8, lr}\n ldr r5, [sp, #24]\n mov r7, r0\n mov r8, r2\n"
        "0:\n mov r12, r8\n ldm r1!, {r0, r2, r4, r6}\n adds r1, #16\n dlstp.8 lr, r5\n"
        "1:\n vldrb.8 q0, [r12], #16\n vldrb.8 q1, [r1], #16\n"
        "vmladava.s8 r0, q0, q1\n vldrb.8 q2, [r1], #16\n"
        "vmladava.s8 r2, q0, q2\n vldrb.8 q3, [r1], #16\n"
        "vmladava.s8 r4, q0, q3\n vldrb.8 q1, [r1], #16\n"
        "vmladava.s8 r6, q0, q1\n letp lr, 1b\n"
        "stm r7!, {r0, r2, r4, r6}\n adds r7, #16\n cmp r7, r3\n bne 0b\n"
        "pop {r4, r5, r6, r7, r8, pc}\n");
}
/* clang-format on */
#elif defined(RAOT_MVE)
__attribute__((noinline, unused)) static void
raot_multiply_one_s8(int32_t *to, const int32_t *w, const int8_t *x, int32_t *end, int32_t depth)
{
    for (; to != end; to += 8) {
        const int8_t *bytes = (const int8_t *)(w + 8);
        const int8_t *at = x;
        int32_t sum0 = w[0], sum1 = w[1], sum2 = w[2], sum3 = w[3];
        for (int32_t k = depth; k > 0; k -= 16) {
            const int8x16_t left = vldrbq_z_s8(at, vctp8q((uint32_t)k));
            sum0 = vmladavaq_s8(sum0, left, vldrbq_s8(bytes));
            sum1 = vmladavaq_s8(sum1, left, vldrbq_s8(bytes + 16));
            sum2 = vmladavaq_s8(sum2, left, vldrbq_s8(bytes + 32));
            sum3 = vmladavaq_s8(sum3, left, vldrbq_s8(bytes + 48));
            bytes += 64;
            at += 16;
        }
        to[0] = sum0;
        to[1] = sum1;
        to[2] = sum2;
        to[3] = sum3;
        w = (const int32_t *)(const void *)bytes;
    }
}
#else
static inline void raot_multiply_one_s8(int32_t *to, const int32_t *w, const int8_t *x,
                                        int32_t *end, int32_t depth)
{
    raot_multiply_two_s8(to, w, x, x, end, depth);
}
#endif

__attribute__((noinline, unused)) static void
raot_multiply_nhwc_s8(int32_t *sums, const int32_t *weights, const int8_t *rows, int32_t groups,
                      int32_t depth, int32_t positions, int32_t row_step)
{
    int32_t left;

    /*@ split positions; */
    left = positions;
#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
    if (positions > 1) {
        const struct raot_multiply_pairs sizes = {32 * groups, (depth + 15) / 16, positions / 2,
                                                  row_step, (depth - 1) % 16 + 1};
        raot_multiply_pairs_s8(sums, weights, rows, &sizes);
        sums += positions / 2 * 8 * groups;
        rows += positions / 2 * 2 * row_step;
        left = positions % 2;
    }
#else
    /*@ loop unroll 4096; */
    for (; left > 1; left -= 2) {
        raot_multiply_two_s8(sums, weights, rows, rows + row_step, sums + 8 * groups, depth);
        sums += 8 * groups;
        rows += 2 * row_step;
    }
#endif
    if (left > 0) {
        raot_multiply_one_s8(sums, weights, rows, sums + 8 * groups, depth);
    }
}

/* Adds the sum of each window, times `by`, to the sums of all channels at its position. */
__attribute__((noinline, unused)) static void
raot_add_windows_nhwc_s8(int32_t *sums, const int8_t *rows, int32_t by, int32_t groups,
                         int32_t depth, int32_t positions, int32_t row_step)
{
    /*@ loop unroll 4096; */
    for (int32_t p = 0; p < positions; p++) {
        int32_t *const to = sums + p / 2 * 8 * groups + p % 2 * 4;
        int32_t total = 0;
#if defined(RAOT_MVE)
        const int8_t *from = rows;
        for (int32_t k = depth; k > 0; k -= 16) {
            const mve_pred16_t some = vctp8q((uint32_t)k);
            total = vaddvaq_p_s8(total, vldrbq_z_s8(from, some), some);
            from += 16;
        }
        total = (int32_t)((uint32_t)total * (uint32_t)by);
        for (int32_t g = 0; g < groups; g++) {
            vst1q_s32(to + 8 * g, vaddq_n_s32(vld1q_s32(to + 8 * g), total));
        }
#else
        /*@ loop unroll 4096; */
        for (int32_t k = 0; k < depth; k++) {
            total += rows[k];
        }
        total = (int32_t)((uint32_t)total * (uint32_t)by);
        /*@ loop unroll 4096; */
        for (int32_t n = 0; n < 4 * groups; n++) {
            int32_t *const sum = to + n / 4 * 8 + n % 4;
            *sum = (int32_t)((uint32_t)*sum + (uint32_t)total);
        }
#endif
        rows += row_step;
    }
}

/* Sizes of the functions below, by name. */
struct raot_im2col_nhwc {
    int32_t zero;
    int32_t flip;
    int32_t channels;
    int32_t channel_step;
    int32_t lines;
    int32_t first1;
    int32_t last1;
    int32_t line_step;
    int32_t columns;
    int32_t first;
    int32_t width;
    int32_t column_step;
};

#define raot_im2col_nhwc_s8(strip, image, sizes)                                                \
    raot_im2col_nhwc_s8_unpacked(strip, image, (sizes)->zero, (sizes)->flip, (sizes)->channels, \
                                 (sizes)->channel_step, (sizes)->lines, (sizes)->first1,        \
                                 (sizes)->last1, (sizes)->line_step, (sizes)->columns,          \
                                 (sizes)->first, (sizes)->width, (sizes)->column_step)

#define raot_im2col_nhwc_u8(strip, image, sizes)                                                \
    raot_im2col_nhwc_u8_unpacked(strip, image, (sizes)->zero, (sizes)->flip, (sizes)->channels, \
                                 (sizes)->channel_step, (sizes)->lines, (sizes)->first1,        \
                                 (sizes)->last1, (sizes)->line_step, (sizes)->columns,          \
                                 (sizes)->first, (sizes)->width, (sizes)->column_step)

#endif
