/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_columns.h - depthwise convolutions of any window for cores with byte vectors (Helium).
 *
 * Each channel is a strip of image columns with a border, in which the window of a position is
 * contiguous:
 *
 *     sums[c * pitch + p] = strips[c * width + p * step + k] * weights[c][k]
 *
 * summed over k < depth, where `pitch` is `count` rounded up to a multiple of 8. Whole vectors are
 * read. Sums wrap. Windows of at most a vector: depthwise_bytes.h.
 */
#ifndef RAOT_DEPTHWISE_COLUMNS_H
#define RAOT_DEPTHWISE_COLUMNS_H

#include <stdint.h>

#include "assembly.h"
#include "multiply_nhwc.h"
#include "mve.h"

#if defined(RAOT_MVE)
/* As raot_across_s8, with the offsets of eight bytes. */
__attribute__((always_inline)) static inline void raot_strip_line(uint8_t *to, const uint8_t *from,
                                                                  int32_t count, int32_t next,
                                                                  int32_t to_next, uint16x8_t apart,
                                                                  uint16x8_t at, uint16x8_t flip)
{
#if defined(RAOT_ASM_INLINE)
    /* clang-format off */
    __asm volatile(
        "wls lr, %[blocks], 2f\n"
        "1:\n vldrb.u16 q0, [%[from], %q[apart]]\n add %[from], %[from], %[next]\n"
        "veor q0, q0, %q[flip]\n vstrb.16 q0, [%[to], %q[at]]\n"
        "add %[to], %[to], %[to_next]\n le lr, 1b\n"
        "2:\n"
        : [from] "+&r"(from), [to] "+&r"(to)
        : [blocks] "r"(count / 8), [next] "r"(next), [to_next] "r"(to_next), [apart] "w"(apart),
          [at] "w"(at), [flip] "w"(flip)
        : "lr", "s0", "s1", "s2", "s3", "cc", "memory");
    /* clang-format on */
#else
    for (int32_t blocks = count / 8; blocks > 0; blocks--) {
        const uint16x8_t x = veorq_u16(vldrbq_gather_offset_u16(from, apart), flip);
        vstrbq_scatter_offset_u16(to, at, x);
        from += next;
        to += to_next;
    }
#endif
    if (count % 8 != 0) {
        const mve_pred16_t some = vctp16q((uint32_t)(count % 8));
        const uint16x8_t x = veorq_u16(vldrbq_gather_offset_z_u16(from, apart, some), flip);
        vstrbq_scatter_offset_p_u16(to, at, x, some);
    }
}

/* Columns of a border, which is shorter than a vector in most cases. */
__attribute__((always_inline)) static inline void raot_strip_border(int8_t *to, int32_t zero,
                                                                    int32_t count)
{
    const int8x16_t x = vdupq_n_s8((int8_t)zero);

    for (; count > 0; count -= 16) {
        vstrbq_p_s8(to, x, vctp8q((uint32_t)count));
        to += 16;
    }
}
#else
/* Columns of a border. */
static inline void raot_strip_border(int8_t *to, int32_t zero, int32_t count)
{
    raot_fill_s8(to, zero, count);
}
#endif

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
/* One line of each channel between borders of at most a vector. */
struct raot_strip_lines {
    int32_t channels;
    int32_t left;
    int32_t inside;
    int32_t end; /* left + inside */
    int32_t right;
    int32_t next; /* bytes from block to block of the image */
    int32_t pitch;
    int32_t channel_step;
    int32_t zero;
    int32_t flip;
    int32_t column_step;
};

/*
 *     r0, r1, r2, r12    strip, first column inside, places in both
 *     r3                 remaining channels
 *     r4 to r8, r10, r11 left, inside, end, right, next, pitch, channel_step
 *     q1, q2, q3         zero, flip, offsets of eight columns
 */
/* clang-format off */
#define RAOT_STRIP_LINES_OF(NAME, FLIPPED) \
    RAOT_NAKED static void NAME( \
        RAOT_ARGUMENT int8_t *strips, RAOT_ARGUMENT const uint8_t *image, \
        RAOT_ARGUMENT const struct raot_strip_lines *sizes) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n" \
            "ldr r12, [r2, #32]\n vdup.8 q1, r12\n ldr r12, [r2, #36]\n vdup.16 q2, r12\n" \
            "movs r4, #0\n vidup.u16 q3, r4, #1\n ldr r12, [r2, #40]\n vmul.i16 q3, q3, r12\n" \
            "ldrd r3, r4, [r2]\n ldrd r5, r6, [r2, #8]\n ldrd r7, r8, [r2, #16]\n" \
            "ldrd r10, r11, [r2, #24]\n vctp.8 r7\n" \
            "1:\n vstrb.8 q1, [r0]\n add r2, r0, r4\n mov r12, r1\n" \
            "wlstp.16 lr, r5, 3f\n" \
            "2:\n vldrb.u16 q0, [r12, q3]\n add r12, r8\n" FLIPPED \
            "vstrb.16 q0, [r2], #8\n letp lr, 2b\n" \
            "3:\n add r2, r0, r6\n vpst\n vstrbt.8 q1, [r2]\n" \
            "add r0, r10\n add r1, r11\n subs r3, #1\n bgt 1b\n" \
            "pop {r4-r8, r10, r11, pc}\n"); \
    }
RAOT_STRIP_LINES_OF(raot_strip_lines_same, "")
RAOT_STRIP_LINES_OF(raot_strip_lines_flipped, "veor q0, q0, q2\n")
/* clang-format on */
#define RAOT_STRIP_LINES 1
#endif

/*
 * Copies columns first..first + columns of some lines of each channel to a strip, column by
 * column; strips are `pitch` apart. Lines first1..last1 of `lines` and columns 0..width are inside
 * the image; elements outside are `zero`. `image` is column 0 of the first line inside. `flip` is
 * 0, or 128 for unsigned bytes, which become signed. Seven columns are at most 65535 bytes apart.
 * Strips have room for a vector, and bytes behind shorter ones may change.
 */
__attribute__((noinline, unused)) static void
raot_depthwise_strips_u8_unpacked(int8_t *strips, const uint8_t *image, int32_t zero, int32_t flip,
                                  int32_t channels, int32_t channel_step, int32_t lines,
                                  int32_t first1, int32_t last1, int32_t line_step, int32_t columns,
                                  int32_t first, int32_t width, int32_t column_step, int32_t pitch)
{
    const int32_t left = first < 0 ? (-first < columns ? -first : columns) : 0;
    const int32_t inside = width - first < columns ? width - first : columns;
    const int32_t count = inside > left ? inside - left : 0;
    const int clipped = last1 - first1 < lines;
#if defined(RAOT_STRIP_LINES)
    const int32_t right = columns - left - count;

    if (lines == 1 && !clipped && count > 0 && left <= 16 && right <= 16) {
        const struct raot_strip_lines sizes = {
            channels, left,         count, left + count, right,       8 * column_step,
            pitch,    channel_step, zero,  flip,         column_step,
        };
        const uint8_t *const from = image + (first + left) * column_step;
        if (flip == 0) {
            raot_strip_lines_same(strips, from, &sizes);
        } else {
            raot_strip_lines_flipped(strips, from, &sizes);
        }
        return;
    }
#endif
#if defined(RAOT_MVE)
    const uint16x8_t position = vidupq_n_u16(0, 1);
    const uint16x8_t apart = vmulq_n_u16(position, (uint16_t)column_step);
    const uint16x8_t at = vmulq_n_u16(position, (uint16_t)lines);
    const uint16x8_t other = vdupq_n_u16((uint16_t)flip);
#endif

    /*@ loop unroll 4096; */
    for (int32_t c = 0; c < channels; c++) {
        if (clipped != 0) {
            raot_strip_border(strips, zero, columns * lines);
        } else {
            if (left > 0) {
                raot_strip_border(strips, zero, left * lines);
            }
            if (left + count < columns) {
                raot_strip_border(strips + (left + count) * lines, zero,
                                  (columns - left - count) * lines);
            }
        }
        /*@ loop unroll 4096; */
        for (int32_t j = first1; count > 0 && j < last1; j++) {
            const uint8_t *from = image + (j - first1) * line_step + (first + left) * column_step;
            uint8_t *to = (uint8_t *)strips + left * lines + j;
#if defined(RAOT_MVE)
            raot_strip_line(to, from, count, 8 * column_step, 8 * lines, apart, at, other);
#else
            /*@ loop unroll 4096; */
            for (int32_t x = 0; x < count; x++) {
                to[x * lines] = (uint8_t)(from[x * column_step] ^ flip);
            }
#endif
        }
        strips += c + 1 < channels ? pitch : 0;
        image += c + 1 < channels ? channel_step : 0;
    }
}

#define raot_depthwise_strips_s8_unpacked(strips, image, ...) \
    raot_depthwise_strips_u8_unpacked(strips, (const uint8_t *)(image), __VA_ARGS__)

#if defined(RAOT_MVE)
/* `count` sums of two to four vectors, of which the weights stay in registers. */
__attribute__((always_inline)) static inline void
raot_depthwise_line_s8(int32_t *sums, const int8_t *x, const int8_t *weights, int32_t count,
                       int32_t step, const int32_t vectors)
{
    const int8x16_t w0 = vldrbq_s8(weights);
    const int8x16_t w1 = vldrbq_s8(weights + 16);
    const int8x16_t w2 = vldrbq_s8(weights + (vectors > 2 ? 32 : 16));
    const int8x16_t w3 = vldrbq_s8(weights + (vectors > 3 ? 48 : 16));

    for (int32_t p = 0; p < count; p++) {
        int32_t sum = vmladavq_s8(vldrbq_s8(x), w0);
        sum = vmladavaq_s8(sum, vldrbq_s8(x + 16), w1);
        if (vectors > 2) {
            sum = vmladavaq_s8(sum, vldrbq_s8(x + 32), w2);
        }
        if (vectors > 3) {
            sum = vmladavaq_s8(sum, vldrbq_s8(x + 48), w3);
        }
        sums[p] = sum;
        x += step;
    }
}
#endif

__attribute__((noinline, unused)) static void
raot_depthwise_columns_s8(int32_t *sums, const int8_t *strips, const int8_t *weights,
                          int32_t channels, int32_t count, int32_t depth, int32_t step,
                          int32_t width)
{
    const int32_t pitch = (count + 7) / 8 * 8;
    const int32_t reach = (depth + 15) / 16 * 16;

    /*@ loop unroll 4096; */
    for (int32_t c = 0; c < channels; c++) {
#if defined(RAOT_MVE)
        if (reach == 32) {
            raot_depthwise_line_s8(sums, strips, weights, count, step, 2);
        } else if (reach == 48) {
            raot_depthwise_line_s8(sums, strips, weights, count, step, 3);
        } else if (reach == 64) {
            raot_depthwise_line_s8(sums, strips, weights, count, step, 4);
        } else {
            for (int32_t p = 0; p < count; p++) {
                const int8_t *x = strips + p * step;
                const int8_t *by = weights;
                int32_t sum = 0;
                for (int32_t left = reach; left > 0; left -= 16) {
                    sum = vmladavaq_s8(sum, vldrbq_s8(x), vldrbq_s8(by));
                    x += 16;
                    by += 16;
                }
                sums[p] = sum;
            }
        }
#else
        /*@ loop unroll 4096; */
        for (int32_t p = 0; p < count; p++) {
            const int8_t *x = strips + p * step;
            uint32_t sum = 0u;
            /*@ loop unroll 4096; */
            for (int32_t k = 0; k < depth; k++) {
                sum += (uint32_t)(x[k] * weights[k]);
            }
            sums[p] = (int32_t)sum;
        }
#endif
        sums += pitch;
        strips += width;
        weights += reach;
    }
}

/* Sizes of the functions below, by name. */
struct raot_depthwise_strips {
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
    int32_t pitch;
};

#define raot_depthwise_strips_s8(strips, image, sizes)                                         \
    raot_depthwise_strips_s8_unpacked(                                                         \
        strips, image, (sizes)->zero, (sizes)->flip, (sizes)->channels, (sizes)->channel_step, \
        (sizes)->lines, (sizes)->first1, (sizes)->last1, (sizes)->line_step, (sizes)->columns, \
        (sizes)->first, (sizes)->width, (sizes)->column_step, (sizes)->pitch)

#define raot_depthwise_strips_u8(strips, image, sizes)                                         \
    raot_depthwise_strips_u8_unpacked(                                                         \
        strips, image, (sizes)->zero, (sizes)->flip, (sizes)->channels, (sizes)->channel_step, \
        (sizes)->lines, (sizes)->first1, (sizes)->last1, (sizes)->line_step, (sizes)->columns, \
        (sizes)->first, (sizes)->width, (sizes)->column_step, (sizes)->pitch)

#endif
