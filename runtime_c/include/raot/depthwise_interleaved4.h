/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_interleaved4.h - depthwise convolutions for cores with byte vectors (Helium).
 *
 * The padded image is stored as blocks of four interleaved lines: rows4[(b * length + c) * 4 + j]
 * is column c of line 2 * b + j. A window of at most four columns is then 16 contiguous bytes,
 * which serve two lines of the output with differently placed weights.
 *
 * Windows of up to eight lines: rows8[c * 8 + j] is column c of line j (depthwise_columns.h
 * multiplies them).
 */
#ifndef RAOT_DEPTHWISE_INTERLEAVED4_H
#define RAOT_DEPTHWISE_INTERLEAVED4_H

#include <stdint.h>

#include "assembly.h"
#include "convert.h"
#include "multiply_nhwc.h"
#include "mve.h"

/* Fills all bytes of the blocks, including the padding. */
__attribute__((noinline, unused)) static void raot_fill_interleaved4(int8_t *rows4, int32_t zero,
                                                                     int32_t count)
{
    raot_fill_s8(rows4, zero, count);
}

#if defined(RAOT_MVE)
/*
 * Copies `count` bytes to every fourth byte of two destinations, 16 at a time. Groups of 16 source
 * bytes are `jump` apart.
 */
static inline void raot_interleave4_line_8(uint8_t *to, uint8_t *before, const uint8_t *from,
                                           uint8x16_t apart, uint8_t flip, int32_t count,
                                           int32_t jump)
{
    const uint8x16_t at = vidupq_n_u8(0, 4);
    const uint8x16_t other = vdupq_n_u8(flip);

    for (; count >= 16; count -= 16) {
        const uint8x16_t x = veorq_u8(vldrbq_gather_offset_u8(from, apart), other);
        vstrbq_scatter_offset_u8(to, at, x);
        vstrbq_scatter_offset_u8(before, at, x);
        from += jump;
        to += 64;
        before += 64;
    }
    if (count > 0) {
        const mve_pred16_t some = vctp8q((uint32_t)count);
        const uint8x16_t x = veorq_u8(vldrbq_gather_offset_z_u8(from, apart, some), other);
        vstrbq_scatter_offset_p_u8(to, at, x, some);
        vstrbq_scatter_offset_p_u8(before, at, x, some);
    }
}

/* The same for strided bytes, eight at a time. */
static inline void raot_interleave4_line_16(uint8_t *to, uint8_t *before, const uint8_t *from,
                                            uint16x8_t apart, uint16_t flip, int32_t count,
                                            int32_t jump)
{
    const uint16x8_t at = vidupq_n_u16(0, 4);
    const uint16x8_t other = vdupq_n_u16(flip);

    for (; count >= 8; count -= 8) {
        const uint16x8_t x = veorq_u16(vldrbq_gather_offset_u16(from, apart), other);
        vstrbq_scatter_offset_u16(to, at, x);
        vstrbq_scatter_offset_u16(before, at, x);
        from += jump;
        to += 32;
        before += 32;
    }
    if (count > 0) {
        const mve_pred16_t some = vctp16q((uint32_t)count);
        const uint16x8_t x = veorq_u16(vldrbq_gather_offset_z_u16(from, apart, some), other);
        vstrbq_scatter_offset_p_u16(to, at, x, some);
        vstrbq_scatter_offset_p_u16(before, at, x, some);
    }
}
#endif

/*
 * Copies an image to blocks whose first line is `top` and whose first column is `left`; the
 * padding is unchanged. `image` is line 0 and column 0. `flip` is 0, or 128 for unsigned bytes,
 * which become signed. Seven columns are at most 65535 bytes apart.
 */
__attribute__((noinline, unused)) static void
raot_interleave4_u8_unpacked(int8_t *rows4, const uint8_t *image, int32_t flip, int32_t blocks,
                             int32_t length, int32_t top, int32_t left, int32_t lines,
                             int32_t columns, int32_t line_step, int32_t step)
{
    const int32_t first = left > 0 ? left : 0;
    const int32_t last = columns < left + length ? columns : left + length;
    const int32_t end = lines < top + 2 * blocks + 2 ? lines : top + 2 * blocks + 2;
    const int32_t count = last - first;

    if (count <= 0) {
        return;
    }
#if defined(RAOT_MVE)
    const int narrow = step * 15 <= (int32_t)UINT8_MAX;
    const uint8x16_t apart8 = vmulq_n_u8(vidupq_n_u8(0, 1), (uint8_t)step);
    const uint16x8_t apart16 = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
#endif
    for (int32_t y = top > 0 ? top : 0; y < end; y++) {
        const uint8_t *from = image + y * line_step + first * step;
        const int32_t b = (y - top) / 2;
        /* Each line is in its own block, and is the third or fourth line of the previous block. */
        int8_t *to = rows4 + (b * length + first - left) * 4 + (y - top) % 2;
        int8_t *before = to - length * 4 + 2;

        if (b == blocks) {
            to = before;
        }
        if (b == 0) {
            before = to;
        }
#if defined(RAOT_MVE)
        if (narrow != 0) {
            raot_interleave4_line_8((uint8_t *)to, (uint8_t *)before, from, apart8, (uint8_t)flip,
                                    count, 16 * step);
        } else {
            raot_interleave4_line_16((uint8_t *)to, (uint8_t *)before, from, apart16,
                                     (uint16_t)flip, count, 8 * step);
        }
#else
        for (int32_t c = 0; c < count; c++) {
            to[4 * c] = (int8_t)(from[c * step] ^ flip);
            before[4 * c] = to[4 * c];
        }
#endif
    }
}

#define raot_interleave4_s8_unpacked(rows4, image, ...) \
    raot_interleave4_u8_unpacked(rows4, (const uint8_t *)(image), __VA_ARGS__)

/* Columns of a block of 16 channels: `left` and `right` of them are outside of the image. */
struct raot_interleave_block {
    const uint8_t *from[4]; /* four lines */
    int32_t next[4];        /* bytes from column to column, 0 outside of the image */
    int32_t flip;
    int32_t channels;
    int32_t left;
    int32_t inside;
    int32_t right;
    int8_t *to;
    int32_t apart;
    int32_t groups[3]; /* bytes from the first four channels to those of the other groups */
    int32_t zero;
    uint32_t words[16];
};

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
#define RAOT_INTERLEAVE_STEP(N) #N
/*
 *     r1 to r4, r5 to r8     lines, bytes from column to column
 *     r10, r11               flip, words
 *     q0 to q3, q4 to q7     four lines of 16 channels, the previous words of four channels each
 *
 * Groups without channels have the words of another group, which is written after them.
 */
/* clang-format off */
#define RAOT_INTERLEAVE_OUTSIDE(STEP, COUNT, LOOP, END) \
    "ldr r1, [r0, #72]\n vdup.8 q0, r1\n ldr r1, [r0, #" COUNT "]\n wls lr, r1, " END "f\n" \
    LOOP ": vstrw.32 q0, [q7, #" STEP "]!\n vstrw.32 q0, [q6, #" STEP "]!\n" \
    "vstrw.32 q0, [q5, #" STEP "]!\n vstrw.32 q0, [q4, #" STEP "]!\n le lr, " LOOP "b\n" \
    END ":\n"
#define RAOT_INTERLEAVE_GROUP(STEP, X, WORDS, TO) \
    "vldrw.32 " X ", [r11, #" WORDS "]\n vstrw.32 " X ", [" TO ", #" STEP "]!\n"
#define RAOT_INTERLEAVE_COLUMNS(NAME, STEP) \
    RAOT_NAKED static void NAME(RAOT_ARGUMENT struct raot_interleave_block *block) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n vpush {d8-d15}\n" \
            "ldr r1, [r0, #52]\n ldr r2, [r0, #56]\n subs r1, #" STEP "\n movs r4, #0\n" \
            "vidup.u32 q4, r4, #1\n vmul.i32 q4, q4, r2\n vadd.i32 q4, q4, r1\n" \
            "ldr r1, [r0, #60]\n vadd.i32 q5, q4, r1\n ldr r1, [r0, #64]\n" \
            "vadd.i32 q6, q4, r1\n ldr r1, [r0, #68]\n vadd.i32 q7, q4, r1\n" \
            RAOT_INTERLEAVE_OUTSIDE(STEP, "40", "1", "2") \
            "ldr r1, [r0, #36]\n vctp.8 r1\n ldr r10, [r0, #32]\n add r11, r0, #76\n" \
            "ldr r12, [r0, #44]\n ldm r0, {r1-r8}\n wls lr, r12, 4f\n" \
            "3: vpstttt\n vldrbt.8 q0, [r1]\n vldrbt.8 q1, [r2]\n" \
            "vldrbt.8 q2, [r3]\n vldrbt.8 q3, [r4]\n" \
            "vadd.i8 q0, q0, r10\n vadd.i8 q1, q1, r10\n" \
            "vadd.i8 q2, q2, r10\n vadd.i8 q3, q3, r10\n" \
            "vst40.8 {q0, q1, q2, q3}, [r11]\n vst41.8 {q0, q1, q2, q3}, [r11]\n" \
            "vst42.8 {q0, q1, q2, q3}, [r11]\n vst43.8 {q0, q1, q2, q3}, [r11]\n" \
            "add r1, r5\n add r2, r6\n add r3, r7\n add r4, r8\n" \
            RAOT_INTERLEAVE_GROUP(STEP, "q3", "48", "q7") \
            RAOT_INTERLEAVE_GROUP(STEP, "q2", "32", "q6") \
            RAOT_INTERLEAVE_GROUP(STEP, "q1", "16", "q5") \
            RAOT_INTERLEAVE_GROUP(STEP, "q0", "0", "q4") \
            "le lr, 3b\n" \
            "4:\n" \
            RAOT_INTERLEAVE_OUTSIDE(STEP, "48", "5", "6") \
            "vpop {d8-d15}\n pop {r4-r8, r10, r11, pc}\n"); \
    }
/* clang-format on */
#else
#define RAOT_INTERLEAVE_STEP(N) (N)
/* The columns of a block. Its lines are advanced. */
#define RAOT_INTERLEAVE_COLUMNS(NAME, STEP)                                  \
    static inline void NAME(struct raot_interleave_block *block)             \
    {                                                                        \
        const int32_t end = block->left + block->inside;                     \
                                                                             \
        for (int32_t c = 0; c < end + block->right; c++) {                   \
            for (int32_t n = 0; n < block->channels; n++) {                  \
                int8_t *const to = block->to + n * block->apart + (STEP)*c;  \
                for (int32_t j = 0; j < 4; j++) {                            \
                    to[j] = c < block->left || c >= end                      \
                                ? (int8_t)block->zero                        \
                                : (int8_t)(block->from[j][n] ^ block->flip); \
                }                                                            \
            }                                                                \
            for (int32_t j = 0; j < 4 && c >= block->left; j++) {            \
                block->from[j] += block->next[j];                            \
            }                                                                \
        }                                                                    \
    }
#endif
RAOT_INTERLEAVE_COLUMNS(raot_interleave4_columns, RAOT_INTERLEAVE_STEP(4))
RAOT_INTERLEAVE_COLUMNS(raot_interleave8_columns, RAOT_INTERLEAVE_STEP(8))

/* Line j of a block is line y of `lines`, if it is inside. */
static inline void raot_interleave_line(struct raot_interleave_block *block, int32_t j,
                                        const uint8_t *image, const uint8_t *outside, int32_t y,
                                        int32_t lines, int32_t line_step, int32_t step)
{
    int32_t inside = y >= 0 && y < lines;
    /* GCC 12 makes a wrong vector of these conditions where they are constants. */
    RAOT_KEEP_ADDRESS(inside);
    block->from[j] = inside != 0 ? image + y * line_step : outside;
    block->next[j] = inside != 0 ? step : 0;
}

/* Blocks of four lines, `advance` lines and `to_step` bytes apart. */
static inline void raot_interleave_channels(int8_t *to, const uint8_t *image, int32_t flip,
                                            int32_t zero, int32_t channels, int32_t apart,
                                            int32_t blocks, int32_t advance, int32_t to_step,
                                            int32_t length, int32_t top, int32_t left,
                                            int32_t lines, int32_t columns, int32_t line_step,
                                            int32_t step)
{
    const int32_t start = left < 0 ? -left : 0;
    const int32_t first = start < length ? start : length;
    const int32_t most = columns - left < length ? columns - left : length;
    const int32_t end = most > first ? most : first;
    const int32_t groups = (channels + 3) / 4;
    struct raot_interleave_block block;
    uint8_t outside[16];

    for (int32_t n = 0; n < 16; n++) {
        outside[n] = (uint8_t)(zero ^ flip);
    }
    for (int32_t k = 1; k < 4; k++) {
        block.groups[k - 1] = k % groups * 4 * apart;
    }
    block.flip = flip;
    block.channels = channels;
    block.left = first;
    block.inside = end - first;
    block.right = length - end;
    block.apart = apart;
    block.zero = zero;
    for (int32_t b = 0; b < blocks; b++) {
        const uint8_t *const from = image + (left + first) * step;
        const int32_t y = top + advance * b;
        raot_interleave_line(&block, 0, from, outside, y, lines, line_step, step);
        raot_interleave_line(&block, 1, from, outside, y + 1, lines, line_step, step);
        raot_interleave_line(&block, 2, from, outside, y + 2, lines, line_step, step);
        raot_interleave_line(&block, 3, from, outside, y + 3, lines, line_step, step);
        block.to = to + b * to_step;
        if (advance == 4) {
            raot_interleave8_columns(&block);
        } else {
            raot_interleave4_columns(&block);
        }
    }
}

/*
 * As raot_interleave4_u8_unpacked, for 1 to 16 channels that lie side by side, with the padding,
 * which is `zero`. Blocks of a channel begin `apart` bytes behind those of the previous one, a
 * multiple of four, and there is room for a multiple of four channels. rows4 is aligned to four
 * bytes.
 */
__attribute__((noinline, unused)) static void
raot_interleave4_channels_u8_unpacked(int8_t *rows4, const uint8_t *image, int32_t flip,
                                      int32_t zero, int32_t channels, int32_t apart, int32_t blocks,
                                      int32_t length, int32_t top, int32_t left, int32_t lines,
                                      int32_t columns, int32_t line_step, int32_t step)
{
    raot_interleave_channels(rows4, image, flip, zero, channels, apart, blocks, 2, length * 4,
                             length, top, left, lines, columns, line_step, step);
}

/* The same for one block of eight lines: rows8[c * 8 + j] is column c of line j. */
__attribute__((noinline, unused)) static void
raot_interleave8_channels_u8_unpacked(int8_t *rows8, const uint8_t *image, int32_t flip,
                                      int32_t zero, int32_t channels, int32_t apart, int32_t length,
                                      int32_t top, int32_t left, int32_t lines, int32_t columns,
                                      int32_t line_step, int32_t step)
{
    raot_interleave_channels(rows8, image, flip, zero, channels, apart, 2, 4, 4, length, top, left,
                             lines, columns, line_step, step);
}

#define raot_interleave4_channels_s8_unpacked(rows4, image, ...) \
    raot_interleave4_channels_u8_unpacked(rows4, (const uint8_t *)(image), __VA_ARGS__)

/*
 * sums[(b * outs + n) * count + p] is the dot product of the 16 weights of n and the 16 bytes at
 * column p * stride of block b, for one or two `outs` and a stride of one or two.
 */
#if defined(RAOT_MVE)
#if defined(RAOT_ASM_INLINE)
/*
 * Two sums per iteration and line. For two lines these are 9 instructions. Compilers need 13: they
 * do not store two sums at once, and they copy the address to another register.
 */
/* clang-format off */
#define RAOT_INTERLEAVED4_LOOP(first, second, third)                                           \
    __asm volatile(                                                                     \
        "wls lr, %[pairs], 2f\n"                                                        \
        "1:\n vldrb.8 q0, [%[x]], #" first "\n vldrb.8 q1, [%[x]], #" first "\n"        \
        "vmladav.s8 r0, q0, %q[w]\n vmladav.s8 r2, q1, %q[w]\n" second                  \
        "strd r0, r2, [%[a]], #8\n" third "le lr, 1b\n"                                 \
        "2:\n"                                                                          \
        : [x] "+&r"(x), [a] "+&r"(a), [b] "+&r"(b)                                         \
        : [pairs] "r"(count / 2), [w] "w"(w), [v] "w"(v)                                \
        : "lr", "r0", "r2", "r4", "r6", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", \
          "cc", "memory")
#define RAOT_INTERLEAVED4_SECOND "vmladav.s8 r4, q0, %q[v]\n vmladav.s8 r6, q1, %q[v]\n"
#define RAOT_INTERLEAVED4_THIRD "strd r4, r6, [%[b]], #8\n"
/* clang-format on */
#endif

/* `count` sums of one or two lines of the output. */
__attribute__((always_inline)) static inline void
raot_interleave4_sums(int32_t *a, int32_t *b, const int8_t *x, int8x16_t w, int8x16_t v,
                      int32_t count, const int32_t outs, const int32_t step)
{
#if defined(RAOT_ASM_INLINE)
    if (outs == 2 && step == 4) {
        RAOT_INTERLEAVED4_LOOP("4", RAOT_INTERLEAVED4_SECOND, RAOT_INTERLEAVED4_THIRD);
    } else if (outs == 2) {
        RAOT_INTERLEAVED4_LOOP("8", RAOT_INTERLEAVED4_SECOND, RAOT_INTERLEAVED4_THIRD);
    } else if (step == 4) {
        RAOT_INTERLEAVED4_LOOP("4", "", "");
    } else {
        RAOT_INTERLEAVED4_LOOP("8", "", "");
    }
#else
    for (int32_t pairs = count / 2; pairs > 0; pairs--) {
        /* In this order, because GCC 12 copies the address otherwise. */
        const int8x16_t second = vldrbq_s8(x + step);
        const int8x16_t first = vldrbq_s8(x);
        x += 2 * step;
        RAOT_KEEP_ADDRESS(x);
        const int32_t sum0 = vmladavq_s8(first, w);
        const int32_t sum1 = vmladavq_s8(second, w);
        a[0] = sum0;
        a[1] = sum1;
        a += 2;
        if (outs == 2) {
            const int32_t sum2 = vmladavq_s8(first, v);
            const int32_t sum3 = vmladavq_s8(second, v);
            b[0] = sum2;
            b[1] = sum3;
            b += 2;
        }
    }
#endif
    if (count % 2 != 0) {
        const int8x16_t last = vldrbq_s8(x);
        *a = vmladavq_s8(last, w);
        if (outs == 2) {
            *b = vmladavq_s8(last, v);
        }
    }
}
#endif

/* Adds `more` to the sums, which wrap. */
__attribute__((noinline, unused)) static void raot_add_sums(int32_t *sums, const int32_t *more,
                                                            int32_t count)
{
#if defined(RAOT_MVE)
    for (; count > 0; count -= 4) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const int32x4_t x = vaddq_s32(vldrwq_z_s32(sums, some), vldrwq_z_s32(more, some));
        vstrwq_p_s32(sums, x, some);
        sums += 4;
        more += 4;
    }
#else
    for (int32_t i = 0; i < count; i++) {
        sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)more[i]);
    }
#endif
}

__attribute__((noinline, unused)) static void
raot_depthwise_interleaved4_s8(int32_t *sums, const int8_t *rows4, const int8_t *weights,
                               int32_t blocks, int32_t outs, int32_t count, int32_t stride,
                               int32_t length)
{
#if defined(RAOT_MVE)
    const int8x16_t w = vldrbq_s8(weights);
    const int8x16_t v = vldrbq_s8(outs == 2 ? weights + 16 : weights);

    for (int32_t block = 0; block < blocks; block++) {
        const int8_t *const x = rows4 + block * length * 4;
        int32_t *const a = sums + block * outs * count;
        int32_t *const b = a + count;

        if (outs == 2 && stride == 1) {
            raot_interleave4_sums(a, b, x, w, v, count, 2, 4);
        } else if (outs == 2) {
            raot_interleave4_sums(a, b, x, w, v, count, 2, 8);
        } else if (stride == 1) {
            raot_interleave4_sums(a, b, x, w, v, count, 1, 4);
        } else {
            raot_interleave4_sums(a, b, x, w, v, count, 1, 8);
        }
    }
#else
    for (int32_t block = 0; block < blocks; block++) {
        for (int32_t n = 0; n < outs; n++) {
            for (int32_t p = 0; p < count; p++) {
                const int8_t *const x = rows4 + (block * length + p * stride) * 4;
                uint32_t sum = 0u;
                for (int32_t k = 0; k < 16; k++) {
                    sum += (uint32_t)(weights[n * 16 + k] * x[k]);
                }
                sums[(block * outs + n) * count + p] = (int32_t)sum;
            }
        }
    }
#endif
}

#if defined(RAOT_MVE) && defined(RAOT_ASM_INLINE)
#undef RAOT_INTERLEAVED4_LOOP
#undef RAOT_INTERLEAVED4_SECOND
#undef RAOT_INTERLEAVED4_THIRD
#endif

#if defined(RAOT_MVE) && defined(RAOT_ASM_THUMB)
#undef RAOT_INTERLEAVE_OUTSIDE
#undef RAOT_INTERLEAVE_GROUP
#endif
#undef RAOT_INTERLEAVE_COLUMNS
#undef RAOT_INTERLEAVE_STEP

/* Sizes of the functions below, by name. */
struct raot_interleave4 {
    int32_t flip;
    int32_t blocks;
    int32_t length;
    int32_t top;
    int32_t left;
    int32_t lines;
    int32_t columns;
    int32_t line_step;
    int32_t step;
};

struct raot_interleave8_channels {
    int32_t flip;
    int32_t zero;
    int32_t channels;
    int32_t apart;
    int32_t length;
    int32_t top;
    int32_t left;
    int32_t lines;
    int32_t columns;
    int32_t line_step;
    int32_t step;
};

struct raot_interleave4_channels {
    int32_t flip;
    int32_t zero;
    int32_t channels;
    int32_t apart;
    int32_t blocks;
    int32_t length;
    int32_t top;
    int32_t left;
    int32_t lines;
    int32_t columns;
    int32_t line_step;
    int32_t step;
};

/* Sizes as arguments. */
#define RAOT_INTERLEAVE4_SIZES(SIZES)                                                   \
    (SIZES)->flip, (SIZES)->zero, (SIZES)->channels, (SIZES)->apart, (SIZES)->blocks,   \
        (SIZES)->length, (SIZES)->top, (SIZES)->left, (SIZES)->lines, (SIZES)->columns, \
        (SIZES)->line_step, (SIZES)->step

#define raot_interleave4_channels_s8(rows4, image, sizes) \
    raot_interleave4_channels_s8_unpacked(rows4, image, RAOT_INTERLEAVE4_SIZES(sizes))

/* Sizes as arguments. */
#define RAOT_INTERLEAVE8_SIZES(SIZES)                                                      \
    (SIZES)->flip, (SIZES)->zero, (SIZES)->channels, (SIZES)->apart, (SIZES)->length,      \
        (SIZES)->top, (SIZES)->left, (SIZES)->lines, (SIZES)->columns, (SIZES)->line_step, \
        (SIZES)->step

#define raot_interleave8_channels_s8(rows8, image, sizes)                  \
    raot_interleave8_channels_u8_unpacked(rows8, (const uint8_t *)(image), \
                                          RAOT_INTERLEAVE8_SIZES(sizes))

#define raot_interleave8_channels_u8(rows8, image, sizes) \
    raot_interleave8_channels_u8_unpacked(rows8, image, RAOT_INTERLEAVE8_SIZES(sizes))

#define raot_interleave4_channels_u8(rows4, image, sizes) \
    raot_interleave4_channels_u8_unpacked(rows4, image, RAOT_INTERLEAVE4_SIZES(sizes))

#define raot_interleave4_s8(rows4, image, sizes)                                                \
    raot_interleave4_s8_unpacked(rows4, image, (sizes)->flip, (sizes)->blocks, (sizes)->length, \
                                 (sizes)->top, (sizes)->left, (sizes)->lines, (sizes)->columns, \
                                 (sizes)->line_step, (sizes)->step)

#define raot_interleave4_u8(rows4, image, sizes)                                                \
    raot_interleave4_u8_unpacked(rows4, image, (sizes)->flip, (sizes)->blocks, (sizes)->length, \
                                 (sizes)->top, (sizes)->left, (sizes)->lines, (sizes)->columns, \
                                 (sizes)->line_step, (sizes)->step)

#endif
