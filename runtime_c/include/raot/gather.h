/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.h - packing of image bytes into the order in which tiles read them.
 *
 * A strip contains padded lines of an image with several channels, so no window is clipped. For
 * strided windows, the rows and columns of one phase of the stride are contiguous:
 *
 *     strip[channel][row phase][column phase][line][position]
 *
 * is the image at row top + line * row_stride + row phase and column left + position *
 * column_stride + column phase, or `zero` outside the image.
 */
#ifndef RAOT_GATHER_H
#define RAOT_GATHER_H

#include <stdint.h>
#include <string.h>

#include "copy.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Copies bytes, with the bits of `flip` inverted, without a call, because there are mostly few. */
__attribute__((always_inline)) static inline void
raot_copy_flipped(uint8_t *to, const uint8_t *from, int32_t count, const uint8_t flip)
{
    const uint64_t bits = UINT64_C(0x0101010101010101) * flip;

    if (count > 32 && flip == 0) {
        (void)memcpy(to, from, (size_t)count);
    } else if (count > 32) {
        /*@ loop unroll 4096; */
        for (int32_t i = 0; i < count; i++) {
            to[i] = (uint8_t)(from[i] ^ flip);
        }
    } else if (count >= 16) {
        uint64_t first[2], last[2];
        RAOT_COPY(first, from, sizeof first);
        RAOT_COPY(last, from + count - 16, sizeof last);
        /*@ loop unroll 2; */
        for (int32_t i = 0; i < 2; i++) {
            first[i] ^= bits;
            last[i] ^= bits;
        }
        RAOT_COPY(to, first, sizeof first);
        RAOT_COPY(to + count - 16, last, sizeof last);
    } else if (count >= 8) {
        uint64_t first, last;
        RAOT_COPY(&first, from, sizeof first);
        RAOT_COPY(&last, from + count - 8, sizeof last);
        first ^= bits;
        last ^= bits;
        RAOT_COPY(to, &first, sizeof first);
        RAOT_COPY(to + count - 8, &last, sizeof last);
    } else if (count >= 4) {
        uint32_t first, last;
        RAOT_COPY(&first, from, sizeof first);
        RAOT_COPY(&last, from + count - 4, sizeof last);
        first ^= (uint32_t)bits;
        last ^= (uint32_t)bits;
        RAOT_COPY(to, &first, sizeof first);
        RAOT_COPY(to + count - 4, &last, sizeof last);
    } else if (count > 0) {
        const uint8_t first = from[0], middle = from[count / 2], last = from[count - 1];
        to[0] = (uint8_t)(first ^ flip);
        to[count / 2] = (uint8_t)(middle ^ flip);
        to[count - 1] = (uint8_t)(last ^ flip);
    } else {
        /* nothing to copy */
    }
}

static inline void raot_copy_few(uint8_t *to, const uint8_t *from, int32_t count)
{
    raot_copy_flipped(to, from, count, 0);
}

/* Sets a line to `zero` before `first` and from `last`; may also overwrite the part between. */
static inline void raot_fill_ends(uint8_t *line, int32_t zero, int32_t first, int32_t last,
                                  int32_t positions)
{
    if (positions >= 8 && first <= 8 && positions - last <= 8) {
        const uint64_t some = UINT64_C(0x0101010101010101) * (uint8_t)zero;
        RAOT_COPY(line, &some, sizeof some);
        RAOT_COPY(line + positions - 8, &some, sizeof some);
    } else {
        (void)memset(line, zero, (size_t)positions);
    }
}

/* to[i] = from[i * step] for i < count. */
static inline void raot_copy_apart(uint8_t *to, const uint8_t *from, int32_t count, int32_t step)
{
    int32_t i = 0;

#if defined(__SSE2__)
    /* Eight of fifteen bytes: the even positions of the first eight, the odd positions of the
     * last eight.
     */
    for (; step == 2 && i + 8 <= count; i += 8) {
        const uint8_t *const at = from + 2 * i;
        const __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)at);
        const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(at + 7));
        const __m128i even = _mm_and_si128(a, _mm_set1_epi16(0xFF));
        const __m128i all = _mm_unpacklo_epi64(even, _mm_srli_epi16(b, 8));
        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_packus_epi16(all, all));
    }
#endif
    for (; i < count; i++) {
        to[i] = from[i * step];
    }
}

__attribute__((noinline, unused)) static void
raot_padded_rows_u8_unpacked(uint8_t *strip, const uint8_t *image, int32_t zero, int32_t channels,
                             int32_t row_phases, int32_t column_phases, int32_t lines,
                             int32_t positions, int32_t row_stride, int32_t column_stride,
                             int32_t top, int32_t left, int32_t image_rows, int32_t image_columns,
                             int32_t channel_step, int32_t row_step, int32_t column_step)
{
    uint8_t *to = strip;

    /*@ loop unroll 4096; */
    for (int32_t c = 0; c < channels; c++) {
        const uint8_t *const plane = image + c * channel_step;
        /*@ loop unroll 4096; */
        for (int32_t phase = 0; phase < row_phases * column_phases; phase++) {
            const int32_t row = top + phase / column_phases;
            const int32_t column = left + phase % column_phases;
            /* Elements first..last are inside the image. */
            const int32_t first = column < 0 ? (-column + column_stride - 1) / column_stride : 0;
            int32_t last = (image_columns - column + column_stride - 1) / column_stride;
            last = image_columns <= column ? 0 : last;
            last = last < positions ? last : positions;
            /*@ loop unroll 4096; */
            for (int32_t line = 0; line < lines; line++) {
                const int32_t y = row + line * row_stride;
                if (y < 0 || y >= image_rows || first >= last) {
                    (void)memset(to, zero, (size_t)positions);
                } else {
                    const uint8_t *const from =
                        plane + y * row_step + (column + first * column_stride) * column_step;
                    raot_fill_ends(to, zero, first, last, positions);
                    if (column_stride * column_step == 1) {
                        raot_copy_few(to + first, from, last - first);
                    } else {
                        raot_copy_apart(to + first, from, last - first,
                                        column_stride * column_step);
                    }
                }
                to += positions;
            }
        }
    }
}

#define raot_padded_rows_s8_unpacked(strip, image, ...) \
    raot_padded_rows_u8_unpacked((uint8_t *)(strip), (const uint8_t *)(image), __VA_ARGS__)

/* The offset of each tap of a window in a strip, in the order channels, rows, columns.
 */
__attribute__((unused)) static void
raot_offsets_unpacked(int32_t *offsets, int32_t channels, int32_t rows, int32_t columns,
                      int32_t row_dilation, int32_t column_dilation, int32_t row_stride,
                      int32_t column_stride, int32_t channel_step, int32_t row_phase_step,
                      int32_t column_phase_step, int32_t line_step)
{
    /*@ loop unroll 4096; */
    for (int32_t c = 0; c < channels; c++) {
        /*@ loop unroll 4096; */
        for (int32_t y = 0; y < rows; y++) {
            const int32_t down = y * row_dilation;
            const int32_t line = down % row_stride * row_phase_step + down / row_stride * line_step;
            /*@ loop unroll 4096; */
            for (int32_t x = 0; x < columns; x++) {
                const int32_t across = x * column_dilation;
                *offsets++ = c * channel_step + line + across % column_stride * column_phase_step +
                             across / column_stride;
            }
        }
    }
}

/* Copies rows of bytes; their distance is `from_step` in the source and `to_step` in the target. */
__attribute__((unused)) static void raot_copy_rows_u8(uint8_t *to, const uint8_t *from,
                                                      int32_t rows, int32_t columns,
                                                      int32_t to_step, int32_t from_step)
{
    /*@ loop unroll 4096; */
    for (int32_t r = 0; r < rows; r++) {
        raot_copy_few(to + r * to_step, from + r * from_step, columns);
    }
}

#define raot_copy_rows_s8(to, from, ...) \
    raot_copy_rows_u8((uint8_t *)(to), (const uint8_t *)(from), __VA_ARGS__)

#if defined(__AVX2__)
/* Loads fewer than sixteen bytes. */
__attribute__((noinline, unused)) static __m128i raot_few_bytes(const uint8_t *from, int32_t count)
{
    uint8_t some[16] = {0};

    raot_copy_few(some, from, count < 16 ? count : 15);
    return _mm_loadu_si128((const __m128i *)(const void *)some);
}

/* Loads sixteen bytes, of which `inside` are readable. */
static inline __m128i raot_bytes(const uint8_t *from, int32_t inside)
{
    if (__builtin_expect(inside < 16, 0) != 0) {
        return raot_few_bytes(from, inside);
    }
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Widens sixteen bytes to 16 bits. */
__attribute__((always_inline)) static inline __m256i raot_i16_values(__m128i bytes,
                                                                     const int32_t sign)
{
    return sign != 0 ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}
#endif

/* Widens the bits of a byte: `sign` is 128 for signed bytes, else 0. */
static inline int32_t raot_i16_value(int32_t byte, int32_t sign)
{
    return (byte ^ sign) - sign;
}

/*
 * Packs the right operand of a tile of raot_dot2_i16 (dot2_i16.h):
 *
 *     panel[k / 2][c][k % 2] = image[offsets[k] + c]      for k < depth, c < columns <= 16
 *
 * An odd depth is padded with zeros; columns beyond the last are undefined. `extent` bytes of the
 * image are readable. `flip`: bits of the bytes to invert first.
 */
__attribute__((always_inline)) static inline void
raot_panel_dot2_i16(int16_t *panel, const uint8_t *image, const int32_t *offsets, int32_t depth,
                    int32_t columns, int32_t extent, const int32_t sign, const uint8_t flip)
{
    int32_t k = 0;

    (void)extent;
#if defined(__AVX2__)
    for (; k + 2 <= depth; k += 2) {
        const __m128i flips = _mm_set1_epi8((char)flip);
        const __m128i one = raot_bytes(image + offsets[k], extent - offsets[k]);
        const __m128i two = raot_bytes(image + offsets[k + 1], extent - offsets[k + 1]);
        const __m128i a = flip != 0 ? _mm_xor_si128(one, flips) : one;
        const __m128i b = flip != 0 ? _mm_xor_si128(two, flips) : two;
        const __m256i x = raot_i16_values(_mm_unpacklo_epi8(a, b), sign);
        const __m256i y = raot_i16_values(_mm_unpackhi_epi8(a, b), sign);
        __m256i *const to = (__m256i *)(void *)(panel + 16 * k);
        _mm256_storeu_si256(to, x);
        _mm256_storeu_si256(to + 1, y);
    }
#endif
    /*@ loop unroll 4096; */
    for (; k < depth; k++) {
        const uint8_t *const from = image + offsets[k];
        int16_t *const to = panel + k / 2 * 32 + k % 2;
        for (int32_t c = 0; c < columns; c++) {
            to[2 * c] = (int16_t)raot_i16_value(from[c] ^ flip, sign);
        }
    }
    if (depth % 2 != 0) {
        for (int32_t c = 0; c < columns; c++) {
            panel[depth / 2 * 32 + 2 * c + 1] = 0;
        }
    }
}

__attribute__((noinline, unused)) static void
raot_panel_dot2_i16_s8(int16_t *panel, const int8_t *image, const int32_t *offsets, int32_t depth,
                       int32_t columns, int32_t extent)
{
    raot_panel_dot2_i16(panel, (const uint8_t *)image, offsets, depth, columns, extent, 128, 0);
}

__attribute__((noinline, unused)) static void
raot_panel_dot2_i16_u8(int16_t *panel, const uint8_t *image, const int32_t *offsets, int32_t depth,
                       int32_t columns, int32_t extent)
{
    raot_panel_dot2_i16(panel, image, offsets, depth, columns, extent, 0, 0);
}

/*
 * Packs the left operand of a tile (im2col): the windows of `rows` positions, row_step elements
 * apart, as one row of `depth` integers each. Loop l of a window has `count` steps, of which
 * first..last are inside the image; elements outside and the padding of `depth` are zero:
 *
 *     to[r * depth + (i * count1 + j) * count2 + t] = image[...] - zero
 */
__attribute__((always_inline)) static inline void
raot_rows_dot2_i16(int16_t *to, const uint8_t *image, int32_t zero, int32_t rows, int32_t row_step,
                   int32_t depth, int32_t count0, int32_t first0, int32_t last0, int32_t step0,
                   int32_t count1, int32_t first1, int32_t last1, int32_t step1, int32_t count2,
                   int32_t first2, int32_t last2, int32_t step2, const int32_t sign)
{
    const int32_t taps = count0 * count1 * count2;
    const int cut = last0 - first0 < count0 || last1 - first1 < count1 || last2 - first2 < count2;

    /*@ loop unroll 4096; */
    for (int32_t r = 0; r < rows; r++) {
        if (cut != 0) {
            (void)memset(to, 0, (size_t)depth * sizeof *to);
        }
        for (int32_t k = taps; k < depth; k++) {
            to[k] = 0;
        }
        for (int32_t i = first0; i < last0; i++) {
            for (int32_t j = first1; j < last1; j++) {
                const uint8_t *const from = image + (i - first0) * step0 + (j - first1) * step1;
                int16_t *const row = to + (i * count1 + j) * count2 + first2;
                const int32_t count = last2 - first2;
                int32_t t = 0;
#if defined(__AVX2__)
                if (step2 == 1) {
                    const __m256i less = _mm256_set1_epi16((int16_t)zero);
                    for (; t + 16 <= count; t += 16) {
                        const __m256i x = raot_i16_values(raot_bytes(from + t, 16), sign);
                        _mm256_storeu_si256((__m256i *)(void *)(row + t),
                                            _mm256_sub_epi16(x, less));
                    }
                }
#endif
                for (; t < count; t++) {
                    row[t] = (int16_t)(raot_i16_value(from[t * step2], sign) - zero);
                }
            }
        }
        to += depth;
        image += r + 1 < rows ? row_step : 0;
    }
}

#define RAOT_LEVELS_OF_ROWS                                                                      \
    int32_t zero, int32_t rows, int32_t row_step, int32_t depth, int32_t count0, int32_t first0, \
        int32_t last0, int32_t step0, int32_t count1, int32_t first1, int32_t last1,             \
        int32_t step1, int32_t count2, int32_t first2, int32_t last2, int32_t step2

__attribute__((noinline, unused)) static void
raot_rows_dot2_i16_s8_unpacked(int16_t *to, const int8_t *image, RAOT_LEVELS_OF_ROWS)
{
    raot_rows_dot2_i16(to, (const uint8_t *)image, zero, rows, row_step, depth, count0, first0,
                       last0, step0, count1, first1, last1, step1, count2, first2, last2, step2,
                       128);
}

__attribute__((noinline, unused)) static void
raot_rows_dot2_i16_u8_unpacked(int16_t *to, const uint8_t *image, RAOT_LEVELS_OF_ROWS)
{
    raot_rows_dot2_i16(to, image, zero, rows, row_step, depth, count0, first0, last0, step0, count1,
                       first1, last1, step1, count2, first2, last2, step2, 0);
}
#undef RAOT_LEVELS_OF_ROWS

/* Sizes of the functions below, by name. */
struct raot_tap_sizes {
    int32_t channels;
    int32_t rows;
    int32_t columns;
    int32_t row_dilation;
    int32_t column_dilation;
    int32_t row_stride;
    int32_t column_stride;
    int32_t channel_step;
    int32_t row_phase_step;
    int32_t column_phase_step;
    int32_t line_step;
};

#define raot_tap_offsets(offsets, sizes)                                                          \
    raot_offsets_unpacked(offsets, (sizes)->channels, (sizes)->rows, (sizes)->columns,            \
                          (sizes)->row_dilation, (sizes)->column_dilation, (sizes)->row_stride,   \
                          (sizes)->column_stride, (sizes)->channel_step, (sizes)->row_phase_step, \
                          (sizes)->column_phase_step, (sizes)->line_step)

/* Sizes of the functions below, by name. */
struct raot_padded_rows {
    int32_t zero;
    int32_t channels;
    int32_t row_phases;
    int32_t column_phases;
    int32_t lines;
    int32_t positions;
    int32_t row_stride;
    int32_t column_stride;
    int32_t top;
    int32_t left;
    int32_t image_rows;
    int32_t image_columns;
    int32_t channel_step;
    int32_t row_step;
    int32_t column_step;
};

#define raot_padded_rows_s8(strip, image, sizes)                                         \
    raot_padded_rows_s8_unpacked(                                                        \
        strip, image, (sizes)->zero, (sizes)->channels, (sizes)->row_phases,             \
        (sizes)->column_phases, (sizes)->lines, (sizes)->positions, (sizes)->row_stride, \
        (sizes)->column_stride, (sizes)->top, (sizes)->left, (sizes)->image_rows,        \
        (sizes)->image_columns, (sizes)->channel_step, (sizes)->row_step, (sizes)->column_step)

#define raot_padded_rows_u8(strip, image, sizes)                                         \
    raot_padded_rows_u8_unpacked(                                                        \
        strip, image, (sizes)->zero, (sizes)->channels, (sizes)->row_phases,             \
        (sizes)->column_phases, (sizes)->lines, (sizes)->positions, (sizes)->row_stride, \
        (sizes)->column_stride, (sizes)->top, (sizes)->left, (sizes)->image_rows,        \
        (sizes)->image_columns, (sizes)->channel_step, (sizes)->row_step, (sizes)->column_step)

/* Sizes of the functions below, by name. */
struct raot_rows_dot2_i16 {
    int32_t zero;
    int32_t rows;
    int32_t row_step;
    int32_t depth;
    int32_t count0;
    int32_t first0;
    int32_t last0;
    int32_t step0;
    int32_t count1;
    int32_t first1;
    int32_t last1;
    int32_t step1;
    int32_t count2;
    int32_t first2;
    int32_t last2;
    int32_t step2;
};

#define raot_rows_dot2_i16_s8(to, image, sizes)                                            \
    raot_rows_dot2_i16_s8_unpacked(                                                        \
        to, image, (sizes)->zero, (sizes)->rows, (sizes)->row_step, (sizes)->depth,        \
        (sizes)->count0, (sizes)->first0, (sizes)->last0, (sizes)->step0, (sizes)->count1, \
        (sizes)->first1, (sizes)->last1, (sizes)->step1, (sizes)->count2, (sizes)->first2, \
        (sizes)->last2, (sizes)->step2)

#define raot_rows_dot2_i16_u8(to, image, sizes)                                            \
    raot_rows_dot2_i16_u8_unpacked(                                                        \
        to, image, (sizes)->zero, (sizes)->rows, (sizes)->row_step, (sizes)->depth,        \
        (sizes)->count0, (sizes)->first0, (sizes)->last0, (sizes)->step0, (sizes)->count1, \
        (sizes)->first1, (sizes)->last1, (sizes)->step1, (sizes)->count2, (sizes)->first2, \
        (sizes)->last2, (sizes)->step2)

#endif
