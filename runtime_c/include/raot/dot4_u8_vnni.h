/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot4_u8_vnni.h - the products of dot4_u8.h by VPDPBUSD, of AVX-512 VNNI or of AVX-VNNI.
 */
#ifndef RAOT_DOT4_U8_VNNI_H
#define RAOT_DOT4_U8_VNNI_H

#include <stdint.h>

#include "copy.h"
#include "dot_lanes.h"

#if !defined(RAOT_DOTS_HIGH)
#error "dot4_u8.h includes this where dot_lanes.h has VPDPBUSD"
#endif

/* Vectors per row where there are one or two rows. */
#define RAOT_DOT4_U8_MANY 4
/* Vectors per row otherwise, and their columns. Ice Lake starts two VPDPBUSD in a cycle, and each
 * takes five: six sums of one vector leave half of the cycles empty. */
#if defined(__AVX512BW__)
#define RAOT_DOT4_U8_WIDE 2
#else
#define RAOT_DOT4_U8_WIDE RAOT_DOTS_WIDE
#endif
#define RAOT_DOT4_U8_STEP (RAOT_DOT4_U8_WIDE * RAOT_DOTS_LANES)

/* `w` vectors from the first of RAOT_DOTS_LANES columns on: 64 bytes for four steps of 16. */
__attribute__((always_inline)) static inline raot_dots
raot_dot4_u8_right(const int is_panel, const void *right, int32_t w, int32_t depth, int32_t k)
{
    const int32_t column = w * RAOT_DOTS_LANES;
    const int32_t block = column / 16 * 16 * depth + 16 * k;
    const int32_t inside = column % 16;

    if (is_panel != 0) {
        const int16_t *const from = (const int16_t *)right + block + 2 * inside;
        return raot_dots_bytes(raot_dots_load(from), raot_dots_load(from + 32));
    }
    return raot_dots_load((const uint8_t *)right + block + 4 * inside);
}

/* `rows`, `wide` and `is_panel` are constants in every call, so the sums are in registers.
 * `is_panel`: the right operand is that of raot_dot4_su. */
__attribute__((always_inline)) static inline void
raot_dot4_u8_block(const int32_t rows, const int32_t wide, const int is_panel, int32_t *sums,
                   const uint8_t *left, const void *right, const int32_t *bias,
                   const struct raot_dot4_u8_sizes *sizes)
{
    raot_dots kept[RAOT_DOTS_HIGH][RAOT_DOT4_U8_MANY];
    const int32_t depth = sizes->depth;

    RAOT_DOTS_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        const int32_t *const start = bias + r * sizes->bias_row;
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            kept[r][w] = sizes->bias_column != 0 ? raot_dots_load(start + w * RAOT_DOTS_LANES)
                                                 : raot_dots_all(*start);
        }
    }
    for (int32_t k = 0; k < depth; k += 4) {
        raot_dots x[RAOT_DOT4_U8_MANY];
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            x[w] = raot_dot4_u8_right(is_panel, right, w, depth, k);
        }
        RAOT_DOTS_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            int32_t four;
            RAOT_COPY(&four, left + r * depth + k, sizeof four);
            const raot_dots factor = raot_dots_all(four);
            RAOT_DOTS_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                kept[r][w] = is_panel != 0 ? raot_dots_four(kept[r][w], x[w], factor)
                                           : raot_dots_four(kept[r][w], factor, x[w]);
                RAOT_DOTS_STAYS(kept[r][w]);
            }
        }
    }
    RAOT_DOTS_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOTS_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            raot_dots_store(sums + r * sizes->sum_step + w * RAOT_DOTS_LANES, kept[r][w]);
        }
    }
}

#define RAOT_DOT4_U8_CASE(rows)                                                   \
    case rows:                                                                    \
        raot_dot4_u8_block(rows, wide, is_panel, sums, left, right, bias, sizes); \
        break;

/* Up to RAOT_DOTS_HIGH rows of `wide` vectors of columns. */
__attribute__((always_inline)) static inline void
raot_dot4_u8_rows(int32_t rows, const int32_t wide, const int is_panel, int32_t *sums,
                  const uint8_t *left, const void *right, const int32_t *bias,
                  const struct raot_dot4_u8_sizes *sizes)
{
    switch (rows) {
        RAOT_DOT4_U8_CASE(1)
        RAOT_DOT4_U8_CASE(2)
        RAOT_DOT4_U8_CASE(3)
        RAOT_DOT4_U8_CASE(4)
        RAOT_DOT4_U8_CASE(5)
#if RAOT_DOTS_HIGH > 6
        RAOT_DOT4_U8_CASE(6)
        RAOT_DOT4_U8_CASE(7)
#endif
    default:
        raot_dot4_u8_block(RAOT_DOTS_HIGH, wide, is_panel, sums, left, right, bias, sizes);
        break;
    }
}

/* All rows of `wide` vectors of columns. */
__attribute__((always_inline)) static inline void
raot_dot4_u8_strip(const int32_t wide, const int is_panel, int32_t *sums, const uint8_t *left,
                   const void *right, const int32_t *bias, const struct raot_dot4_u8_sizes *sizes)
{
    int32_t high;

    for (int32_t r = 0; r < sizes->rows; r += high) {
        high = raot_dot4_u8_high(sizes->rows - r);
        raot_dot4_u8_rows(high, wide, is_panel, sums + r * sizes->sum_step, left + r * sizes->depth,
                          right, bias + r * sizes->bias_row, sizes);
    }
}

/* GCC warns of blocks that a copy for one call does not reach. */
#if defined(__GNUC__) && !defined(__clang__)
#define RAOT_DOT4_U8_FUNCTION __attribute__((noinline, noclone, unused)) static void
#else
#define RAOT_DOT4_U8_FUNCTION __attribute__((noinline, unused)) static void
#endif

RAOT_DOT4_U8_FUNCTION raot_dot4_us(int32_t *sums, const uint8_t *left, const int8_t *right,
                                   const int32_t *bias, const struct raot_dot4_u8_sizes *sizes)
{
    const int32_t many = RAOT_DOT4_U8_MANY * RAOT_DOTS_LANES;
    int32_t c = 0;

    for (; sizes->rows <= 2 && sizes->columns - c > many - 16; c += many) {
        const int8_t *const x = right + c * sizes->depth;
        const int32_t *const start = bias + c * sizes->bias_column;
        if (sizes->rows == 1) {
            raot_dot4_u8_block(1, RAOT_DOT4_U8_MANY, 0, sums + c, left, x, start, sizes);
        } else {
            raot_dot4_u8_block(2, RAOT_DOT4_U8_MANY, 0, sums + c, left, x, start, sizes);
        }
    }
    for (; sizes->columns - c > RAOT_DOT4_U8_STEP - 16; c += RAOT_DOT4_U8_STEP) {
        raot_dot4_u8_strip(RAOT_DOT4_U8_WIDE, 0, sums + c, left, right + c * sizes->depth,
                           bias + c * sizes->bias_column, sizes);
    }
#if RAOT_DOT4_U8_WIDE > RAOT_DOTS_WIDE
    for (; c < sizes->columns; c += RAOT_DOTS_STEP) {
        raot_dot4_u8_strip(RAOT_DOTS_WIDE, 0, sums + c, left, right + c * sizes->depth,
                           bias + c * sizes->bias_column, sizes);
    }
#endif
}

RAOT_DOT4_U8_FUNCTION raot_dot4_su(int32_t *sums, const int8_t *left, const int16_t *right,
                                   const int32_t *bias, const struct raot_dot4_u8_sizes *sizes)
{
    const uint8_t *const rows = (const uint8_t *)left;
    int32_t c = 0;

    for (; sizes->columns - c > RAOT_DOT4_U8_STEP - 16; c += RAOT_DOT4_U8_STEP) {
        raot_dot4_u8_strip(RAOT_DOT4_U8_WIDE, 1, sums + c, rows, right + c * sizes->depth,
                           bias + c * sizes->bias_column, sizes);
    }
#if RAOT_DOT4_U8_WIDE > RAOT_DOTS_WIDE
    for (; c < sizes->columns; c += RAOT_DOTS_STEP) {
        raot_dot4_u8_strip(RAOT_DOTS_WIDE, 1, sums + c, rows, right + c * sizes->depth,
                           bias + c * sizes->bias_column, sizes);
    }
#endif
}

#endif
