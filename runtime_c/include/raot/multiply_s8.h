/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_s8.h - integer contractions for cores with byte vectors (Helium).
 *
 * Up to RAOT_ROWS output positions are computed together. Their windows are packed into rows of
 * `depth` signed bytes, a multiple of 16 (im2col). Weights of four channels are interleaved, 16 k
 * at a time: weights[n / 4][k / 16][n % 4][k % 16]. Sums wrap.
 */
#ifndef RAOT_MULTIPLY_S8_H
#define RAOT_MULTIPLY_S8_H

#include <stdint.h>

#include "convert.h"
#include "copy.h"
#include "mve.h"

#define RAOT_ROWS 8

/* Copies 16 bytes, four at a time. */
static inline void raot_fill_16(int8_t *to, uint32_t four)
{
#if defined(RAOT_MVE)
    vst1q_u32((uint32_t *)(void *)to, vdupq_n_u32(four));
#else
    for (int32_t i = 0; i < 16; i += 4) {
        RAOT_COPY(to + i, &four, sizeof four);
    }
#endif
}

/*
 * Packs the windows of `positions` adjacent positions of a row of the output. Element (i, j, t)
 * of a window is stored at i * to0 + j * to1 + t * to2 of its row: i < count0 are channels, j of
 * count1 are rows, of which first1..last1 are inside the image, and t < count2 are columns:
 * position p reads column lead + p * apart + t * tap. Elements outside the rows or outside
 * columns 0..width are `zero`. `image` is column 0 of the first row inside; columns are step2
 * elements apart. `flip` is 0, or 128 for unsigned bytes, which become signed.
 */
__attribute__((noinline, unused)) static void
raot_im2col_u8_unpacked(int8_t *rows, const uint8_t *image, int32_t zero, int32_t flip,
                        int32_t depth, int32_t positions, int32_t count0, int32_t step0,
                        int32_t to0, int32_t count1, int32_t first1, int32_t last1, int32_t step1,
                        int32_t to1, int32_t count2, int32_t step2, int32_t to2, int32_t lead,
                        int32_t apart, int32_t tap, int32_t width)
{
    const int32_t end = lead + (positions - 1) * apart + (count2 - 1) * tap;

    if (first1 > 0 || last1 < count1 || lead < 0 || end >= width) {
        const uint32_t four = ((uint32_t)zero & 0xffu) * 0x01010101u;
        for (int32_t i = 0; i < positions * depth; i += 16) {
            raot_fill_16(rows + i, four);
        }
    }
    if (count0 == 1) {
        /* With one channel, the innermost loop iterates over lines. */
        rows += first1 * to1;
        count0 = last1 - first1;
        step0 = step1;
        to0 = to1;
        first1 = 0;
        last1 = count0 > 0 ? (int32_t)1 : 0;
        to1 = 0;
    }
#if defined(RAOT_MVE)
    const uint16x8_t position = vidupq_n_u16(0, 1);
    const uint16x8_t offsets = vmulq_n_u16(position, (uint16_t)(apart * step2));
    const uint16x8_t at = vmulq_n_u16(position, (uint16_t)depth);
    const int contiguous = apart * step2 == 1 && flip == 0;
#endif
    /*@ loop unroll 4096; */
    for (int32_t j = first1; j < last1; j++) {
        /*@ loop unroll 4096; */
        for (int32_t t = 0; t < count2; t++) {
            const int32_t column = lead + t * tap;
            const uint8_t *const line = image + (j - first1) * step1;
            int8_t *const to = rows + j * to1 + t * to2;
            /* Positions low..high read this column. */
            int32_t low = 0;
            int32_t high = positions;
            if (apart == 1) {
                low = column < 0 ? -column : 0;
                high = width - column < positions ? width - column : positions;
            } else if (lead < 0 || end >= width) {
                /*@ loop unroll 4096; */
                while (low < positions && column + low * apart < 0) {
                    low++;
                }
                /*@ loop unroll 4096; */
                while (high > low && column + (high - 1) * apart >= width) {
                    high--;
                }
            } else {
                /* all positions read it */
            }
            if (step0 == 1 && to0 == 1 && count0 >= 8) {
                for (int32_t p = low; p < high; p++) {
                    const uint8_t *const from = line + (column + p * apart) * step2;
                    for (int32_t i = 0; i < count0; i++) {
                        to[p * depth + i] = (int8_t)(from[i] ^ flip);
                    }
                }
                continue;
            }
#if defined(RAOT_MVE)
            {
                const uint8_t *source = line + column * step2;
                uint8_t *target = (uint8_t *)to;
                int32_t i = 0;
                if (high - low == RAOT_ROWS && contiguous) {
                    for (; i + 2 <= count0; i += 2) {
                        const uint16x8_t x = vldrbq_u16(source);
                        const uint16x8_t y = vldrbq_u16(source + step0);
                        vstrbq_scatter_offset_u16(target, at, x);
                        vstrbq_scatter_offset_u16(target + to0, at, y);
                        source += 2 * step0;
                        target += 2 * to0;
                    }
                }
                if (high > low && i < count0) {
                    const mve_pred16_t some =
                        vcmpcsq_m_n_u16(position, (uint16_t)low, vctp16q((uint32_t)high));
                    for (; i < count0; i++) {
                        uint16x8_t x = vldrbq_gather_offset_z_u16(source, offsets, some);
                        x = veorq_u16(x, vdupq_n_u16((uint16_t)flip));
                        vstrbq_scatter_offset_p_u16(target, at, x, some);
                        source += step0;
                        target += to0;
                    }
                }
            }
#else
            for (int32_t i = 0; i < count0; i++) {
                for (int32_t p = low; p < high; p++) {
                    const int32_t position = (column + p * apart) * step2 + i * step0;
                    to[p * depth + i * to0] = (int8_t)(line[position] ^ flip);
                }
            }
#endif
        }
    }
}

#define raot_im2col_s8_unpacked(rows, image, ...) \
    raot_im2col_u8_unpacked(rows, (const uint8_t *)(image), __VA_ARGS__)

/*
 * sums[n * RAOT_ROWS + p] = bias[n] + the dot product of row p and the weights of channel n, for
 * at least one position (an odd number is rounded up), and for `channels` channels, a multiple of
 * four.
 */
#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
/*
 * Four channels of all rows, two rows at a time. The next pair of rows follows the second row.
 *
 *     r0, r2, r4, r6       sums of the first row
 *     r8, r10, r12, r14    sums of the second row
 *     r1, r3               the two rows
 *     r5                   remaining pairs of blocks of 16 bytes
 *     r7, r11              weights, and sums in memory
 *     [sp] to [sp, #12]    blocks of 16 bytes, bytes of weights, bytes of a row, remaining pairs
 *     [sp, #16]            initial sums of the four channels
 */
/* clang-format off */
RAOT_NAKED static void raot_rows_by_four_s8(
    RAOT_ARGUMENT int32_t *to, RAOT_ARGUMENT const int8_t *w, RAOT_ARGUMENT const int8_t *rows,
    RAOT_ARGUMENT const int32_t *bias, RAOT_ARGUMENT int32_t depth, RAOT_ARGUMENT int32_t pairs)
{
    __asm volatile(
        "push {r4, r5, r6, r7, r8, r10, r11, lr}\n"
        "mov r11, r0\n mov r7, r1\n"
        "ldm r3, {r4, r5, r6, r8}\n push {r4, r5, r6, r8}\n"
        "mov r1, r2\n ldrd r2, r3, [sp, #48]\n"
        "lsrs r0, r2, #4\n mov r12, r1\n lsls r1, r2, #2\n push {r0, r1, r2, r3}\n"
        "mov r1, r12\n add r3, r1, r2\n"
        "1:\n ldr r5, [sp]\n"
        "ldrd r0, r2, [sp, #16]\n ldrd r4, r6, [sp, #24]\n"
        "mov r8, r0\n mov r10, r2\n mov r12, r4\n mov r14, r6\n"
        "lsrs r5, r5, #1\n bcc 2f\n" RAOT_MVE_BLOCK
        "2:\n beq 4f\n"
        "3:\n" RAOT_MVE_BLOCK RAOT_MVE_BLOCK "subs r5, #1\n bne 3b\n"
        "4:\n strd r0, r8, [r11]\n strd r2, r10, [r11, #32]\n"
        "strd r4, r12, [r11, #64]\n strd r6, r14, [r11, #96]\n"
        "ldrd r0, r2, [sp, #4]\n ldr r4, [sp, #12]\n"
        "add r11, #8\n sub r7, r0\n mov r1, r3\n add r3, r2\n"
        "subs r4, #1\n str r4, [sp, #12]\n bne 1b\n"
        "add sp, #32\n pop {r4, r5, r6, r7, r8, r10, r11, pc}\n");
}
/* clang-format on */

__attribute__((noinline, unused)) static void
raot_multiply_rows_s8(int32_t *sums, const int8_t *weights, const int8_t *rows, const int32_t *bias,
                      int32_t channels, int32_t depth, int32_t positions)
{
    for (int32_t n = 0; n < channels; n += 4) {
        raot_rows_by_four_s8(sums + n * RAOT_ROWS, weights + n * depth, rows, bias + n, depth,
                             (positions + 1) / 2);
    }
}
#elif defined(RAOT_MVE)
/* Two channels and two rows at a time: VMLADAVA needs sums in even-numbered registers, and
   compilers allocate only four of them. */
__attribute__((noinline, unused)) static void
raot_multiply_rows_s8(int32_t *sums, const int8_t *weights, const int8_t *rows, const int32_t *bias,
                      int32_t channels, int32_t depth, int32_t positions)
{
    for (int32_t n = 0; n < channels; n += 2) {
        const int8_t *const channel = weights + n / 4 * 4 * depth + n % 4 * 16;
        const int8_t *x = rows;
        int32_t *to = sums + n * RAOT_ROWS;
        for (int32_t p = 0; p < positions; p += 2) {
            const int8_t *w = channel;
            const int8_t *y = x + depth;
            const int8_t *const end = y;
            int32_t sum0 = bias[n];
            int32_t sum1 = bias[n + 1];
            int32_t sum2 = sum0;
            int32_t sum3 = sum1;
            for (int32_t k = depth / 16; k > 0; k--) {
                const int8x16_t left = vldrbq_s8(x);
                const int8x16_t right = vldrbq_s8(y);
                const int8x16_t by0 = vldrbq_s8(w);
                const int8x16_t by1 = vldrbq_s8(w + 16);
                x += 16;
                y += 16;
                w += 64;
                sum0 = vmladavaq_s8(sum0, left, by0);
                sum2 = vmladavaq_s8(sum2, right, by0);
                sum1 = vmladavaq_s8(sum1, left, by1);
                sum3 = vmladavaq_s8(sum3, right, by1);
            }
            to[0] = sum0;
            to[1] = sum2;
            to[RAOT_ROWS] = sum1;
            to[RAOT_ROWS + 1] = sum3;
            to += 2;
            x = end + depth;
        }
    }
}
#else
__attribute__((unused)) static void raot_multiply_rows_s8(int32_t *sums, const int8_t *weights,
                                                          const int8_t *rows, const int32_t *bias,
                                                          int32_t channels, int32_t depth,
                                                          int32_t positions)
{
    for (int32_t n = 0; n < channels; n++) {
        const int8_t *const w = weights + n / 4 * 4 * depth + n % 4 * 16;
        for (int32_t p = 0; p < (positions + 1) / 2 * 2; p++) {
            uint32_t sum = (uint32_t)bias[n];
            for (int32_t k = 0; k < depth; k++) {
                sum += (uint32_t)(w[k / 16 * 64 + k % 16] * rows[p * depth + k]);
            }
            sums[n * RAOT_ROWS + p] = (int32_t)sum;
        }
    }
}
#endif

/* Sizes of the functions below, by name. */
struct raot_im2col {
    int32_t zero;
    int32_t flip;
    int32_t depth;
    int32_t positions;
    int32_t count0;
    int32_t step0;
    int32_t to0;
    int32_t count1;
    int32_t first1;
    int32_t last1;
    int32_t step1;
    int32_t to1;
    int32_t count2;
    int32_t step2;
    int32_t to2;
    int32_t lead;
    int32_t apart;
    int32_t tap;
    int32_t width;
};

#define raot_im2col_s8(rows, image, sizes)                                                     \
    raot_im2col_s8_unpacked(rows, image, (sizes)->zero, (sizes)->flip, (sizes)->depth,         \
                            (sizes)->positions, (sizes)->count0, (sizes)->step0, (sizes)->to0, \
                            (sizes)->count1, (sizes)->first1, (sizes)->last1, (sizes)->step1,  \
                            (sizes)->to1, (sizes)->count2, (sizes)->step2, (sizes)->to2,       \
                            (sizes)->lead, (sizes)->apart, (sizes)->tap, (sizes)->width)

#define raot_im2col_u8(rows, image, sizes)                                                     \
    raot_im2col_u8_unpacked(rows, image, (sizes)->zero, (sizes)->flip, (sizes)->depth,         \
                            (sizes)->positions, (sizes)->count0, (sizes)->step0, (sizes)->to0, \
                            (sizes)->count1, (sizes)->first1, (sizes)->last1, (sizes)->step1,  \
                            (sizes)->to1, (sizes)->count2, (sizes)->step2, (sizes)->to2,       \
                            (sizes)->lead, (sizes)->apart, (sizes)->tap, (sizes)->width)

#endif
