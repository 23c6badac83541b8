/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_windows.h - convolutions of one channel with windows of any size, by SMLAD where the
 * core has it.
 *
 * Lines of an image are 16-bit integers, of which two adjacent ones are a pair. A window of
 * `height` lines that are `dilation` apart has `count` pairs of weights in each line. The window at
 * element p * stride of line r * line_step gives
 *
 *     sums[r * up(positions, 4) + p] = bias + window
 *
 * With a stride of 1, windows at odd positions read the pairs of the position before, so they have
 * weights of their own, which are shifted by one. Sums wrap; those up to a multiple of four
 * positions are undefined.
 *
 *     raot_gather_lines_s8       lines of an image; element e is that of column
 *                                left + e * advance, and `zero` outside of the image
 *     raot_widen_window_1, _2    weights of 16 bits from those of a channel, whose lines have
 *                                `width` bytes, for one position or for two adjacent ones
 *     raot_depthwise_windows_1   windows that move by one element
 *     raot_depthwise_windows_2   windows that move by `apart` pairs
 */
#ifndef RAOT_DEPTHWISE_WINDOWS_H
#define RAOT_DEPTHWISE_WINDOWS_H

#include <stdint.h>

#include "depthwise_pairs.h"

/* clang-format off */
#define RAOT_GATHER_LINES(N, T) \
    __attribute__((noinline, unused)) static void raot_gather_lines_##N##_unpacked( \
        int16_t *to, const T *image, int32_t zero, int32_t lines, int32_t top, \
        int32_t image_lines, int32_t line_step, int32_t length, int32_t left, \
        int32_t image_columns, int32_t advance, int32_t step, int32_t pitch) \
    { \
        const uint32_t empty = raot_pair_lower((uint32_t)zero, (uint32_t)zero); \
        const int32_t begin = raot_pair_columns(-left, advance, length); \
        const int32_t most = raot_pair_columns(image_columns - left, advance, length); \
        const int32_t end = most < begin ? begin : most; \
        /*@ loop unroll 4096; */              \
        for (int32_t l = 0; l < lines; l++) { \
            const int32_t y = top + l; \
            if (y < 0 || y >= image_lines || begin == end) { \
                raot_pair_fill(to, empty, (length + 1) / 2); \
            } else { \
                const T *from = image + y * line_step + (left + begin * advance) * step; \
                int32_t at = begin; \
                raot_pair_fill(to, empty, (begin + 1) / 2); \
                if (begin % 2 != 0) { \
                    to[at] = *from; \
                    at++; \
                    from += at < end ? advance * step : 0; \
                } \
                raot_column_pairs_##N(to + at, from, end - at, advance * step); \
                /*@ loop unroll 4096; */            \
                for (at = end; at < length; at++) { \
                    to[at] = (int16_t)zero; \
                } \
            } \
            to += pitch; \
        } \
    }
RAOT_GATHER_LINES(s8, int8_t)
RAOT_GATHER_LINES(u8, uint8_t)
#undef RAOT_GATHER_LINES

#define RAOT_WIDEN_WINDOW(PHASES) \
    __attribute__((noinline, unused)) static void raot_widen_window_##PHASES( \
        int16_t *to, const int8_t *weights, int32_t height, int32_t width, int32_t count) \
    { \
        /*@ loop unroll 4096; */               \
        for (int32_t i = 0; i < height; i++) { \
            /*@ loop unroll 4096; */              \
            for (int32_t j = 0; j < count; j++) { \
                const int32_t k = 2 * j; \
                const int32_t first = k < width ? weights[k] : 0; \
                to[0] = (int16_t)first; \
                to[1] = (int16_t)(k + 1 < width ? weights[k + 1] : 0); \
                if (PHASES == 2) { \
                    to[2] = (int16_t)(k > 0 && k - 1 < width ? weights[k - 1] : 0); \
                    to[3] = (int16_t)first; \
                } \
                to += 2 * PHASES; \
            } \
            weights += width; \
        } \
    }
RAOT_WIDEN_WINDOW(1)
RAOT_WIDEN_WINDOW(2)
#undef RAOT_WIDEN_WINDOW
/* clang-format on */

#if defined(RAOT_DSP) || defined(RAOT_ASM_THUMB) || defined(RAOT_ASM_THUMB_1)
/* clang-format off */
/* One pair of a line of a window, at four positions. */
#if defined(RAOT_DSP)
static inline int16x2_t raot_window_pair(const int16_t *from)
{
    return (int16x2_t)raot_dsp_load(from);
}

#define RAOT_WINDOW_BEGIN_1 int16x2_t pair = raot_window_pair(x);
#define RAOT_WINDOW_STEP_1 \
    { \
        const int16x2_t next = raot_window_pair(x + 2); \
        const int16x2_t even = raot_window_pair(weights); \
        const int16x2_t odd = raot_window_pair(weights + 2); \
        a = raot_dsp_dot(pair, even, a); \
        b = raot_dsp_dot(pair, odd, b); \
        c = raot_dsp_dot(next, even, c); \
        d = raot_dsp_dot(next, odd, d); \
        pair = next; \
        x += 2; \
        weights += 4; \
    }
#define RAOT_WINDOW_BEGIN_2
#define RAOT_WINDOW_STEP_2 \
    { \
        const int16x2_t weight = raot_window_pair(weights); \
        a = raot_dsp_dot(raot_window_pair(x), weight, a); \
        b = raot_dsp_dot(raot_window_pair(x + 2 * apart), weight, b); \
        c = raot_dsp_dot(raot_window_pair(x + 4 * apart), weight, c); \
        d = raot_dsp_dot(raot_window_pair(x + 6 * apart), weight, d); \
        x += 2; \
        weights += 2; \
    }
#else
#define RAOT_WINDOW_DOT(SUM, X, W) \
    SUM = (int32_t)((uint32_t)SUM + (uint32_t)((X)[0] * (W)[0]) + (uint32_t)((X)[1] * (W)[1]));
#define RAOT_WINDOW_BEGIN_1
#define RAOT_WINDOW_STEP_1 \
    { \
        RAOT_WINDOW_DOT(a, x, weights) \
        RAOT_WINDOW_DOT(b, x, weights + 2) \
        RAOT_WINDOW_DOT(c, x + 2, weights) \
        RAOT_WINDOW_DOT(d, x + 2, weights + 2) \
        x += 2; \
        weights += 4; \
    }
#define RAOT_WINDOW_BEGIN_2
#define RAOT_WINDOW_STEP_2 \
    { \
        RAOT_WINDOW_DOT(a, x, weights) \
        RAOT_WINDOW_DOT(b, x + 2 * apart, weights) \
        RAOT_WINDOW_DOT(c, x + 4 * apart, weights) \
        RAOT_WINDOW_DOT(d, x + 6 * apart, weights) \
        x += 2; \
        weights += 2; \
    }
#endif
/* Sums of four positions; lines of a window are `line` elements apart. */
#define RAOT_WINDOW_TILE(STRIDE) \
    static inline __attribute__((always_inline)) void raot_window_tile_##STRIDE( \
        int32_t *sums, const int16_t *from, const int16_t *weights, int32_t start, \
        int32_t height, int32_t count, int32_t line, int32_t apart) \
    { \
        int32_t a = start; \
        int32_t b = start; \
        int32_t c = start; \
        int32_t d = start; \
        (void)apart; \
        do { \
            const int16_t *x = from; \
            RAOT_WINDOW_BEGIN_##STRIDE \
            _Pragma("GCC unroll 4") \
            for (int32_t j = 0; j < count; j++) { \
                RAOT_WINDOW_STEP_##STRIDE \
            } \
            from += line; \
        } while (--height > 0); \
        sums[0] = a; \
        sums[1] = b; \
        sums[2] = c; \
        sums[3] = d; \
    }
RAOT_WINDOW_TILE(1)
RAOT_WINDOW_TILE(2)
#undef RAOT_WINDOW_TILE
/* How far windows of adjacent positions are apart. */
#define RAOT_WINDOW_MOVE_1 1
#define RAOT_WINDOW_MOVE_2 (2 * apart)
#define RAOT_WINDOW_TILES(STRIDE, COUNT) \
    for (int32_t r = 0; r < rows; r++) { \
        for (int32_t p = 0; p < positions; p += 4) { \
            raot_window_tile_##STRIDE(sums, lines + p * RAOT_WINDOW_MOVE_##STRIDE, weights, \
                                      bias[0], height, COUNT, line, apart); \
            sums += 4; \
        } \
        lines += line_step * pitch; \
    }
/* The loop over the pairs of a line is written out where there are few. */
#define RAOT_WINDOW_ROWS(STRIDE) \
    switch (count) { \
    case 1: \
        RAOT_WINDOW_TILES(STRIDE, 1) \
        break; \
    case 2: \
        RAOT_WINDOW_TILES(STRIDE, 2) \
        break; \
    case 3: \
        RAOT_WINDOW_TILES(STRIDE, 3) \
        break; \
    case 4: \
        RAOT_WINDOW_TILES(STRIDE, 4) \
        break; \
    default: \
        RAOT_WINDOW_TILES(STRIDE, count) \
        break; \
    }
/* clang-format on */
#else
/* clang-format off */
/* With a stride of 1, two positions read the same pairs. */
#define RAOT_WINDOW_ROWS(STRIDE) \
    const int32_t phases = STRIDE == 1 ? 2 : (int32_t)1; \
    /*@ loop unroll 4096; */ \
    for (int32_t r = 0; r < rows; r++) { \
        /*@ loop unroll 4096; */ \
        for (int32_t p = 0; p < positions; p += phases) { \
            const int16_t *const x = lines + (STRIDE == 1 ? p : 2 * apart * p); \
            const int16_t *w = weights; \
            uint32_t sum = (uint32_t)bias[0]; \
            uint32_t next = sum; \
            /*@ loop unroll 4096; */ \
            for (int32_t i = 0; i < height; i++) { \
                const int16_t *pair = x + i * line; \
                /*@ loop unroll 4096; */ \
                for (int32_t j = 0; j < count; j++) { \
                    const int32_t a = pair[0]; \
                    const int32_t b = pair[1]; \
                    sum += (uint32_t)(a * w[0]); \
                    sum += (uint32_t)(b * w[1]); \
                    if (STRIDE == 1) { \
                        next += (uint32_t)(a * w[2]); \
                        next += (uint32_t)(b * w[3]); \
                    } \
                    pair += 2; \
                    w += 2 * phases; \
                } \
            } \
            sums[p] = (int32_t)sum; \
            if (STRIDE == 1 && p + 1 < positions) { \
                sums[p + 1] = (int32_t)next; \
            } \
        } \
        sums += (positions + 3) / 4 * 4; \
        lines += r + 1 < rows ? line_step * pitch : 0; \
    }
/* clang-format on */
#endif

/* clang-format off */
#define RAOT_DEPTHWISE_WINDOWS(STRIDE) \
    __attribute__((noinline, unused)) static void raot_depthwise_windows_##STRIDE##_unpacked( \
        int32_t *sums, const int16_t *lines, const int16_t *weights, const int32_t *bias, \
        int32_t rows, int32_t positions, int32_t height, int32_t count, int32_t line_step, \
        int32_t dilation, int32_t apart, int32_t pitch) \
    { \
        const int32_t line = dilation * pitch; \
        (void)apart; \
        RAOT_WINDOW_ROWS(STRIDE) \
    }
RAOT_DEPTHWISE_WINDOWS(1)
RAOT_DEPTHWISE_WINDOWS(2)
#undef RAOT_DEPTHWISE_WINDOWS
#undef RAOT_WINDOW_ROWS
/* clang-format on */

/* Sizes of the functions below, by name. */
struct raot_gather_lines {
    int32_t zero;
    int32_t lines;
    int32_t top;
    int32_t image_lines;
    int32_t line_step;
    int32_t length;
    int32_t left;
    int32_t image_columns;
    int32_t advance;
    int32_t step;
    int32_t pitch;
};

struct raot_depthwise_windows_1_sizes {
    int32_t rows;
    int32_t positions;
    int32_t height;
    int32_t count;
    int32_t line_step;
    int32_t dilation;
    int32_t pitch;
};

struct raot_depthwise_windows_2_sizes {
    int32_t rows;
    int32_t positions;
    int32_t height;
    int32_t count;
    int32_t line_step;
    int32_t dilation;
    int32_t apart;
    int32_t pitch;
};

#define raot_gather_lines_s8(to, image, sizes)                                               \
    raot_gather_lines_s8_unpacked(to, image, (sizes)->zero, (sizes)->lines, (sizes)->top,    \
                                  (sizes)->image_lines, (sizes)->line_step, (sizes)->length, \
                                  (sizes)->left, (sizes)->image_columns, (sizes)->advance,   \
                                  (sizes)->step, (sizes)->pitch)

#define raot_gather_lines_u8(to, image, sizes)                                               \
    raot_gather_lines_u8_unpacked(to, image, (sizes)->zero, (sizes)->lines, (sizes)->top,    \
                                  (sizes)->image_lines, (sizes)->line_step, (sizes)->length, \
                                  (sizes)->left, (sizes)->image_columns, (sizes)->advance,   \
                                  (sizes)->step, (sizes)->pitch)

#define raot_depthwise_windows_1(sums, lines, weights, bias, sizes)                        \
    raot_depthwise_windows_1_unpacked(sums, lines, weights, bias, (sizes)->rows,           \
                                      (sizes)->positions, (sizes)->height, (sizes)->count, \
                                      (sizes)->line_step, (sizes)->dilation, 0, (sizes)->pitch)

#define raot_depthwise_windows_2(sums, lines, weights, bias, sizes)                     \
    raot_depthwise_windows_2_unpacked(                                                  \
        sums, lines, weights, bias, (sizes)->rows, (sizes)->positions, (sizes)->height, \
        (sizes)->count, (sizes)->line_step, (sizes)->dilation, (sizes)->apart, (sizes)->pitch)

#endif
