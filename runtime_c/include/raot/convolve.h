/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convolve.h - image convolutions as one function each, for --optimize size.
 *
 *     out[f, i, j] = clip(start[f] + sum over channels and taps of image * weights
 *                         + other[f, i, j])
 *
 * Tap (y, x) of output (i, j) reads this line and pixel of the image:
 *
 *     line  = i * line_step  - line_pad  + y * line_apart
 *     pixel = j * pixel_step - pixel_pad + x * pixel_apart
 *
 * Sums are accumulated by raot_fmaf, in the order of the weights. `out` and `other` may be the
 * same.
 *
 *     function                  image    order of the weights            taps outside the image
 *     raot_convolve_nchw_f32    NCHW     filter, channel, y, x           are zeros
 *     raot_convolve_nhwc_f32    NHWC     block, y, x, channel, filter    are skipped
 *     raot_depthwise_nchw_f32   NCHW     channel, y, x                   are skipped
 *     raot_depthwise_nhwc_f32   NHWC     y, x, channel                   are skipped
 *
 * raot_convolve_nchw_f32 copies the taps of `tile` pixels to `panel` (im2col). If `dense` is 1,
 * the image already has the layout of a panel and is not copied. raot_convolve_nhwc_f32: a block
 * is RAOT_TILE_COLUMNS adjacent filters, the last block has no padding, and pixel_apart is 1. A
 * depthwise convolution has one filter for each channel.
 */
#ifndef RAOT_CONVOLVE_H
#define RAOT_CONVOLVE_H

#include "convert.h"
#include "multiply.h"
#include "window.h"

struct raot_convolve {
    int16_t filters;
    int16_t channels;
    int16_t lines;
    int16_t pixels;
    int16_t out_lines;
    int16_t out_pixels;
    int16_t line_taps;
    int16_t pixel_taps;
    /* Strides, padding before the first line and pixel, and dilations. */
    int16_t line_step;
    int16_t pixel_step;
    int16_t line_pad;
    int16_t pixel_pad;
    int16_t line_apart;
    int16_t pixel_apart;
    /* The limits of the clip: the upper 16 bits of floats (bfloat16). */
    int16_t low;
    int16_t high;
    /* `starts`: 1 if sums start with `start`, else 0. `adds`: 1 if `other` is added, else 0. */
    int16_t starts;
    int16_t adds;
    int16_t dense;
    int16_t tile;
};

#if defined(RAOT_VFP)
#define RAOT_FEW_ROWS 4
#else
#define RAOT_FEW_ROWS 6
#endif

struct raot_inside {
    int32_t first;
    int32_t last;
};

/* The range first <= k < last of 0 <= k < count with 0 <= at + k * step < extent. */
__attribute__((noinline, unused)) static struct raot_inside
raot_inside(int32_t at, int32_t step, int32_t count, int32_t extent)
{
    struct raot_inside found = {0, 0};

    if (at < 0) {
        found.first = (step - 1 - at) / step;
    }
    if (at < extent) {
        found.last = (extent - at + step - 1) / step;
    }
    found.last = found.last < count ? found.last : count;
    found.first = found.first < found.last ? found.first : found.last;
    return found;
}

/* Initializes the sums: sums[r][c] = start[r * row + c * column], or 0 without `start`. */
__attribute__((noinline, unused)) static void raot_start_sums(float *sums, int32_t rows,
                                                              int32_t columns, const float *start,
                                                              int32_t row, int32_t column)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t c = 0; c < columns; c++) {
            sums[r * RAOT_TILE_COLUMNS + c] = start != NULL ? start[r * row + c * column] : 0.0f;
        }
    }
}

/* Adds `other`, clips and stores the sums; rows of results are `row` elements apart. */
__attribute__((noinline, unused)) static void raot_keep_sums(float *out, const float *other,
                                                             const float *sums, int32_t rows,
                                                             int32_t columns, int32_t row,
                                                             const struct raot_convolve *is)
{
    const float low = raot_bf16_to_f32((uint16_t)is->low);
    const float high = raot_bf16_to_f32((uint16_t)is->high);

    for (int32_t r = 0; r < rows; r++) {
        for (int32_t c = 0; c < columns; c++) {
            const int32_t at = r * row + c;
            float value = sums[r * RAOT_TILE_COLUMNS + c];
            if (is->adds != 0) {
                value = value + other[at];
            }
            out[at] = raot_at_mostf(raot_at_leastf(value, low), high);
        }
    }
}

/* Copies tap (y, x) of `count` output pixels, starting at output pixel `at`. */
__attribute__((noinline, unused)) static void raot_gather_tap(float *to, const float *channel,
                                                              int32_t at, int32_t count, int32_t y,
                                                              int32_t x,
                                                              const struct raot_convolve *is)
{
    const int32_t wide = is->out_pixels;
    int32_t i = at / wide;
    int32_t j = at % wide;

    while (count > 0) {
        const int32_t some = wide - j < count ? wide - j : count;
        const int32_t line = i * is->line_step - is->line_pad + y * is->line_apart;
        const int32_t pixel = j * is->pixel_step - is->pixel_pad + x * is->pixel_apart;
        struct raot_inside inside = raot_inside(pixel, is->pixel_step, some, is->pixels);
        if (line < 0 || line >= is->lines) {
            inside.last = inside.first;
        }
        raot_window_f32(to, some, inside.first, inside.last, channel, line * is->pixels + pixel,
                        is->pixel_step);
        to += some;
        count -= some;
        i++;
        j = 0;
    }
}

__attribute__((noinline, unused)) static void
raot_convolve_nchw_f32(float *out, const float *image, const float *weights, const float *start,
                       const float *other, float *panel, const struct raot_convolve *is)
{
    const int32_t all = is->out_lines * is->out_pixels;
    const int32_t taps = is->channels * is->line_taps * is->pixel_taps;
    const int32_t size = is->lines * is->pixels;

    for (int32_t at = 0; at < all; at += is->tile) {
        const int32_t columns = all - at < is->tile ? all - at : is->tile;
        const float *right = is->dense != 0 ? image + at : panel;
        const struct raot_level levels[3] = {
            {1, 0, 0}, {1, 0, 0}, {taps, 1, is->dense != 0 ? size : is->tile}};
        if (is->dense == 0) {
            float *to = panel;
            for (int32_t c = 0; c < is->channels; c++) {
                for (int32_t y = 0; y < is->line_taps; y++) {
                    for (int32_t x = 0; x < is->pixel_taps; x++) {
                        raot_gather_tap(to, image + c * size, at, columns, y, x, is);
                        to += is->tile;
                    }
                }
            }
        }
        for (int32_t f = 0; f < is->filters; f += RAOT_FEW_ROWS) {
            const int32_t rows = is->filters - f < RAOT_FEW_ROWS ? is->filters - f : RAOT_FEW_ROWS;
            const int32_t position = f * all + at;
            float sums[RAOT_FEW_ROWS * RAOT_TILE_COLUMNS];
            raot_start_sums(sums, rows, columns, is->starts != 0 ? start + f : NULL, 1, 0);
            raot_multiply_f32(rows, columns, levels, weights + f * taps, taps, right, sums);
            raot_keep_sums(out + position, other + position, sums, rows, columns, all, is);
        }
    }
}

/* The number of output pixels from j whose windows are clipped to the same columns. */
static inline int32_t raot_alike(int32_t j, struct raot_inside inside,
                                 const struct raot_convolve *is)
{
    int32_t count = 1;

    while (count < RAOT_FEW_ROWS && j + count < is->out_pixels) {
        const int32_t pixel = (j + count) * is->pixel_step - is->pixel_pad;
        const struct raot_inside next = raot_inside(pixel, 1, is->pixel_taps, is->pixels);
        if (next.first != inside.first || next.last != inside.last) {
            break;
        }
        count++;
    }
    return count;
}

__attribute__((noinline, unused)) static void
raot_convolve_nhwc_f32(float *out, const float *image, const float *weights, const float *start,
                       const float *other, const struct raot_convolve *is)
{
    const int32_t depth = is->channels;
    const int32_t taps = is->line_taps * is->pixel_taps;

    for (int32_t i = 0; i < is->out_lines; i++) {
        const int32_t line = i * is->line_step - is->line_pad;
        const struct raot_inside down = raot_inside(line, is->line_apart, is->line_taps, is->lines);
        int32_t rows = 0;
        for (int32_t j = 0; j < is->out_pixels; j += rows) {
            const int32_t pixel = j * is->pixel_step - is->pixel_pad;
            const struct raot_inside across = raot_inside(pixel, 1, is->pixel_taps, is->pixels);
            struct raot_level levels[3] = {
                {1, 0, 0},
                {down.last - down.first, is->line_apart * is->pixels * depth, 0},
                {(across.last - across.first) * depth, 1, 0}};
            const int32_t from =
                ((line + down.first * is->line_apart) * is->pixels + pixel + across.first) * depth;
            rows = raot_alike(j, across, is);
            for (int32_t f = 0; f < is->filters; f += RAOT_TILE_COLUMNS) {
                const int32_t columns =
                    is->filters - f < RAOT_TILE_COLUMNS ? is->filters - f : RAOT_TILE_COLUMNS;
                const int32_t position = (i * is->out_pixels + j) * is->filters + f;
                const int32_t tap = depth * columns;
                const int32_t packed =
                    (f * taps) * depth + (down.first * is->pixel_taps + across.first) * tap;
                float sums[RAOT_FEW_ROWS * RAOT_TILE_COLUMNS];
                levels[1].right = is->pixel_taps * tap;
                levels[2].right = columns;
                raot_start_sums(sums, rows, columns, is->starts != 0 ? start + f : NULL, 0, 1);
                raot_multiply_f32(rows, columns, levels, image + from, is->pixel_step * depth,
                                  weights + packed, sums);
                raot_keep_sums(out + position, other + position, sums, rows, columns, is->filters,
                               is);
            }
        }
    }
}

/* sums[c] = fma(left[c], right[c], sums[c]) for c < count. */
__attribute__((noinline, unused)) static void raot_add_products(float *sums, const float *left,
                                                                const float *right, int32_t count)
{
#if defined(RAOT_VFP) && defined(RAOT_ASM_INLINE)
    for (; count >= 4; count -= 4) {
        __asm__ volatile("vldmia %[sums], {s0-s3}\n"
                         "vldmia %[left]!, {s4-s7}\n"
                         "vldmia %[right]!, {s8-s11}\n"
                         "vfma.f32 s0, s4, s8\n"
                         "vfma.f32 s1, s5, s9\n"
                         "vfma.f32 s2, s6, s10\n"
                         "vfma.f32 s3, s7, s11\n"
                         "vstmia %[sums]!, {s0-s3}\n"
                         : [sums] "+&r"(sums), [left] "+&r"(left), [right] "+&r"(right)
                         :
                         : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",
                           "memory");
    }
#elif defined(RAOT_SMALL_MVE)
    for (; count > 0; count -= 4) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const float32x4_t x = vld1q_z_f32(left, some);
        const float32x4_t y = vld1q_z_f32(right, some);
        vst1q_p_f32(sums, vfmaq_f32(vld1q_z_f32(sums, some), x, y), some);
        left += 4;
        right += 4;
        sums += 4;
    }
#endif
    for (int32_t c = 0; c < count; c++) {
        sums[c] = raot_fmaf(left[c], right[c], sums[c]);
    }
}

__attribute__((noinline, unused)) static void
raot_depthwise_nhwc_f32(float *out, const float *image, const float *weights, const float *start,
                        const float *other, const struct raot_convolve *is)
{
    const int32_t depth = is->channels;
    const int32_t pixels = is->out_lines * is->out_pixels;

    for (int32_t at = 0; at < pixels; at++) {
        const int32_t line = at / is->out_pixels * is->line_step - is->line_pad;
        const int32_t pixel = at % is->out_pixels * is->pixel_step - is->pixel_pad;
        const struct raot_inside down = raot_inside(line, is->line_apart, is->line_taps, is->lines);
        const struct raot_inside across =
            raot_inside(pixel, is->pixel_apart, is->pixel_taps, is->pixels);
        for (int32_t c = 0; c < depth; c += RAOT_TILE_COLUMNS) {
            const int32_t columns = depth - c < RAOT_TILE_COLUMNS ? depth - c : RAOT_TILE_COLUMNS;
            const int32_t position = at * depth + c;
            float sums[RAOT_TILE_COLUMNS];
            raot_start_sums(sums, 1, columns, is->starts != 0 ? start + c : NULL, 0, 1);
            for (int32_t y = down.first; y < down.last; y++) {
                for (int32_t x = across.first; x < across.last; x++) {
                    const int32_t from =
                        (line + y * is->line_apart) * is->pixels + pixel + x * is->pixel_apart;
                    raot_add_products(sums, image + (from * depth + c),
                                      weights + ((y * is->pixel_taps + x) * depth + c), columns);
                }
            }
            raot_keep_sums(out + position, other + position, sums, 1, columns, 0, is);
        }
    }
}

/* sums[i] = fma(from[i * step], factor, sums[i]) for i < count. */
static inline void raot_add_scaled(float *sums, const float *from, int32_t step, float factor,
                                   int32_t count)
{
#if defined(RAOT_SMALL_MVE)
    const uint32x4_t steps = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)step);

    for (; count > 0; count -= 4) {
        const mve_pred16_t some = vctp32q((uint32_t)count);
        const float32x4_t x = vldrwq_gather_shifted_offset_z_f32(from, steps, some);
        vst1q_p_f32(sums, vfmaq_n_f32(vld1q_z_f32(sums, some), x, factor), some);
        from += 4 * step;
        sums += 4;
    }
#else
#if defined(RAOT_VFP) && defined(RAOT_ASM_INLINE)
    for (; count >= 4; count -= 4) {
        __asm__ volatile("vldmia %[sums], {s0-s3}\n"
                         "vldr s4, [%[from]]\n add %[from], %[bytes]\n"
                         "vldr s5, [%[from]]\n add %[from], %[bytes]\n"
                         "vldr s6, [%[from]]\n add %[from], %[bytes]\n"
                         "vldr s7, [%[from]]\n add %[from], %[bytes]\n"
                         "vfma.f32 s0, s4, %[factor]\n"
                         "vfma.f32 s1, s5, %[factor]\n"
                         "vfma.f32 s2, s6, %[factor]\n"
                         "vfma.f32 s3, s7, %[factor]\n"
                         "vstmia %[sums]!, {s0-s3}\n"
                         : [sums] "+&r"(sums), [from] "+&r"(from)
                         : [bytes] "r"(4 * step), [factor] "t"(factor)
                         : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "memory");
    }
#endif
    for (int32_t i = 0; i < count; i++) {
        sums[i] = raot_fmaf(from[i * step], factor, sums[i]);
    }
#endif
}

/* Adds one channel to the sums of `high` lines from i and `columns` pixels from j. */
__attribute__((noinline, unused)) static void
raot_add_plane(float *sums, const float *plane, const float *taps, int32_t i, int32_t high,
               int32_t j, int32_t columns, const struct raot_convolve *is)
{
    for (int32_t y = 0; y < is->line_taps; y++) {
        const int32_t line = i * is->line_step - is->line_pad + y * is->line_apart;
        const struct raot_inside down = raot_inside(line, is->line_step, high, is->lines);
        for (int32_t x = 0; x < is->pixel_taps; x++) {
            const int32_t pixel = j * is->pixel_step - is->pixel_pad + x * is->pixel_apart;
            const struct raot_inside across =
                raot_inside(pixel, is->pixel_step, columns, is->pixels);
            for (int32_t g = down.first; g < down.last; g++) {
                const int32_t from =
                    (line + g * is->line_step) * is->pixels + pixel + across.first * is->pixel_step;
                raot_add_scaled(sums + (g * columns + across.first), plane + from, is->pixel_step,
                                *taps, across.last - across.first);
            }
            taps++;
        }
    }
}

__attribute__((noinline, unused)) static void
raot_depthwise_nchw_f32(float *out, const float *image, const float *weights, const float *start,
                        const float *other, const struct raot_convolve *is)
{
    const int32_t wide = is->out_pixels;
    const int32_t lines = wide < RAOT_TILE_COLUMNS ? RAOT_TILE_COLUMNS / wide : 1;
    float sums[RAOT_TILE_COLUMNS];

    for (int32_t c = 0; c < is->channels; c++) {
        for (int32_t i = 0; i < is->out_lines; i += lines) {
            const int32_t high = is->out_lines - i < lines ? is->out_lines - i : lines;
            for (int32_t j = 0; j < wide; j += RAOT_TILE_COLUMNS) {
                const int32_t columns = wide - j < RAOT_TILE_COLUMNS ? wide - j : RAOT_TILE_COLUMNS;
                raot_start_sums(sums, 1, high * columns, is->starts != 0 ? start + c : NULL, 0, 0);
                raot_add_plane(sums, image, weights, i, high, j, columns, is);
                raot_keep_sums(out + (i * wide + j), other + (i * wide + j), sums, 1,
                               high * columns, 0, is);
            }
        }
        image += is->lines * is->pixels;
        weights += is->line_taps * is->pixel_taps;
        out += is->out_lines * wide;
        other += is->out_lines * wide;
    }
}

#endif
