/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather4.h - packing of image bytes into groups of four, as tiles of four-byte dot products read
 * them.
 */
#ifndef RAOT_GATHER4_H
#define RAOT_GATHER4_H

#include <stdint.h>
#include <string.h>

#include "copy.h"
#include "gather.h"

#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

/*
 * Packs the right operand of a tile from contiguous bytes of an image:
 *
 *     panel[k / 4][c][k % 4] = image[offsets[k] + c]      for k < depth, c < columns <= 16
 *
 * with the bits of `flip` inverted: 128 makes unsigned bytes of signed ones, or signed ones of
 * unsigned ones. Padding of the depth to a multiple of four, and columns beyond the last, are
 * undefined. `extent` bytes of the image are readable.
 */
__attribute__((always_inline)) static inline void
raot_panel_dot4(uint8_t *panel, const uint8_t *image, const int32_t *offsets, int32_t depth,
                int32_t columns, int32_t extent, const uint8_t flip)
{
    int32_t k = 0;

    (void)extent;
#if defined(__ARM_NEON) && defined(__aarch64__)
    for (; k + 4 <= depth; k += 4) {
        uint8x16x4_t four;
        int inside = 1;
        for (int32_t n = 0; n < 4; n++) {
            inside = inside && offsets[k + n] + 16 <= extent;
        }
        if (!inside) {
            break;
        }
        for (int32_t n = 0; n < 4; n++) {
            four.val[n] = veorq_u8(vld1q_u8(image + offsets[k + n]), vdupq_n_u8(flip));
        }
        vst4q_u8(panel + 16 * k, four);
    }
#endif
    /*@ loop unroll 4096; */
    for (; k < depth; k++) {
        const uint8_t *const from = image + offsets[k];
        uint8_t *const to = panel + k / 4 * 64 + k % 4;
        /*@ loop unroll 4096; */
        for (int32_t c = 0; c < columns; c++) {
            to[4 * c] = (uint8_t)(from[c] ^ flip);
        }
    }
}

/*
 * Packs the left operand of a tile (im2col): the windows of `rows` positions, row_step elements
 * apart, as one row of `depth` bytes each. Loop l of a window has `count` steps, of which
 * first..last are inside the image; elements outside are `zero`, padding of `depth` is undefined:
 *
 *     to[r * depth + (i * count1 + j) * count2 + t] = image[...]
 *
 * with the bits of `flip` inverted.
 */
__attribute__((always_inline)) static inline void
raot_rows_dot4(uint8_t *to, const uint8_t *image, int32_t zero, int32_t rows, int32_t row_step,
               int32_t depth, int32_t count0, int32_t first0, int32_t last0, int32_t step0,
               int32_t count1, int32_t first1, int32_t last1, int32_t step1, int32_t count2,
               int32_t first2, int32_t last2, int32_t step2, const uint8_t flip)
{
    const int cut = last0 - first0 < count0 || last1 - first1 < count1 || last2 - first2 < count2;
    const int32_t count = last2 - first2;

    /*@ loop unroll 4096; */
    for (int32_t r = 0; r < rows; r++) {
        if (cut != 0) {
            (void)memset(to, (uint8_t)zero ^ flip, (size_t)depth);
        }
        /*@ loop unroll 4096; */
        for (int32_t i = first0; i < last0; i++) {
            /*@ loop unroll 4096; */
            for (int32_t j = first1; j < last1; j++) {
                const uint8_t *const from = image + (i - first0) * step0 + (j - first1) * step1;
                uint8_t *const row = to + (i * count1 + j) * count2 + first2;
                if (step2 == 1) {
                    raot_copy_flipped(row, from, count, flip);
                } else {
                    /*@ loop unroll 4096; */
                    for (int32_t t = 0; t < count; t++) {
                        row[t] = (uint8_t)(from[t * step2] ^ flip);
                    }
                }
            }
        }
        to += depth;
        image += r + 1 < rows ? row_step : 0;
    }
}

#endif
