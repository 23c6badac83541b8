/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot4_i8.h - matrix products of signed bytes by four-byte dot product instructions (SDOT, VNNI),
 * and the packing of their operands.
 *
 *     sums[r * sum_step + c] = bias[r * bias_row + c * bias_column]
 *                            + left[r * depth + k] * right[c / 16][k / 4][c % 16][k % 4]
 *
 * summed over k < depth, a multiple of four, for r < rows and c < columns. Sums wrap. Each row of
 * `sums`, and `bias` if bias_column is 1, has a multiple of 16 elements; the values of `sums`
 * beyond `columns` are undefined.
 */
#ifndef RAOT_DOT4_I8_H
#define RAOT_DOT4_I8_H

#include <stdint.h>

#include "assembly.h"
#include "copy.h"
#include "gather4.h"

#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define RAOT_DOT4_COLUMNS 16

#if defined(__ARM_NEON) && defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define RAOT_DOT4_BY_TWOS
#define RAOT_DOT4_HIGH 6
#else
#define RAOT_DOT4_HIGH 4
#endif

/* Keeps the sums in registers and in order. */
#if defined(RAOT_ASM_INLINE)
#define RAOT_DOT4_STAYS(sum) __asm__("" : "+w"(sum))
#else
#define RAOT_DOT4_STAYS(sum) (void)(sum)
#endif
#if defined(__clang__)
#define RAOT_DOT4_UNROLL
#else
#define RAOT_DOT4_UNROLL _Pragma("GCC unroll 16")
#endif

/* Dot products of group `lane` of four bytes of each row with those of sixteen columns. */
#define RAOT_DOT4_STEP(lane)                                              \
    {                                                                     \
        RAOT_DOT4_UNROLL                                                  \
        for (int32_t w = 0; w < 4; w++) {                                 \
            const int8x16_t by = vld1q_s8(right + 64 * (lane) + 16 * w);  \
            RAOT_DOT4_UNROLL                                              \
            for (int32_t r = 0; r < rows; r++) {                          \
                kept[r][w] = vdotq_laneq_s32(kept[r][w], by, x[r], lane); \
                RAOT_DOT4_STAYS(kept[r][w]);                              \
            }                                                             \
        }                                                                 \
    }

/* `rows` is a constant in every call, so the sums are in registers. */
__attribute__((always_inline)) static inline void
raot_dot4_block(const int32_t rows, int32_t *sums, const int8_t *left, const int8_t *right,
                const int32_t *bias, int32_t depth, int32_t sum_step, int32_t bias_row,
                int32_t bias_column)
{
    int32x4_t kept[4][4];
    int32_t k = 0;

    RAOT_DOT4_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT4_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            kept[r][w] = bias_column != 0 ? vld1q_s32(bias + r * bias_row + 4 * w)
                                          : vdupq_n_s32(bias[r * bias_row]);
        }
    }
    for (; k + 16 <= depth; k += 16) {
        int8x16_t x[4];
        RAOT_DOT4_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            x[r] = vld1q_s8(left + r * depth + k);
        }
        RAOT_DOT4_STEP(0)
        RAOT_DOT4_STEP(1)
        RAOT_DOT4_STEP(2)
        RAOT_DOT4_STEP(3)
        right += 256;
    }
    for (; k < depth; k += 4) {
        int8x16_t x[4];
        RAOT_DOT4_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            int32_t four;
            RAOT_COPY(&four, left + r * depth + k, sizeof four);
            x[r] = vreinterpretq_s8_s32(vdupq_n_s32(four));
        }
        RAOT_DOT4_STEP(0)
        right += 64;
    }
    RAOT_DOT4_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_DOT4_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            vst1q_s32(sums + r * sum_step + 4 * w, kept[r][w]);
        }
    }
}

#if defined(RAOT_DOT4_BY_TWOS)
#if defined(RAOT_ASM_INLINE)
/* Keeps later loads from moving before this point, where registers are needed for sums. */
#define RAOT_DOT4_THEN __asm__ volatile("" : : : "memory")
/* A separate pointer that advances with the loads. */
#define RAOT_DOT4_MOVES(position) __asm__("" : "+r"(position))
#else
#define RAOT_DOT4_THEN (void)0
#define RAOT_DOT4_MOVES(position) (void)(position)
#endif

#define RAOT_DOT4_PRODUCTS(two, by)                                                  \
    {                                                                                \
        RAOT_DOT4_UNROLL                                                             \
        for (int32_t p = 0; p < pairs; p++) {                                        \
            kept[p][two] = vmmlaq_s32(kept[p][two], x[p], vreinterpretq_s8_s32(by)); \
            RAOT_DOT4_STAYS(kept[p][two]);                                           \
        }                                                                            \
    }

/* Eight elements of each row times those of sixteen columns; ZIP builds vectors of two columns. */
#define RAOT_DOT4_EIGHTS(next)                                                           \
    {                                                                                    \
        RAOT_DOT4_UNROLL                                                                 \
        for (int32_t w = 0; w < 8; w += 4) {                                             \
            const int32x4_t low0 = vreinterpretq_s32_s8(vld1q_s8(right + 8 * w));        \
            const int32x4_t low1 = vreinterpretq_s32_s8(vld1q_s8(right + 8 * w + 16));   \
            const int32x4_t high0 = vreinterpretq_s32_s8(vld1q_s8((next) + 8 * w));      \
            const int32x4_t high1 = vreinterpretq_s32_s8(vld1q_s8((next) + 8 * w + 16)); \
            RAOT_DOT4_PRODUCTS(w, vzip1q_s32(low0, high0))                               \
            RAOT_DOT4_PRODUCTS(w + 1, vzip2q_s32(low0, high0))                           \
            RAOT_DOT4_PRODUCTS(w + 2, vzip1q_s32(low1, high1))                           \
            RAOT_DOT4_PRODUCTS(w + 3, vzip2q_s32(low1, high1))                           \
            RAOT_DOT4_THEN;                                                              \
        }                                                                                \
    }

/* The first or the last two elements of each of two vectors. */
#define RAOT_DOT4_FIRST(one, two) \
    vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(one), vreinterpretq_s64_s32(two)))
#define RAOT_DOT4_LAST(one, two) \
    vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(one), vreinterpretq_s64_s32(two)))

/*
 * Two rows at a time; an odd last row is processed twice. SMMLA multiplies eight elements of two
 * rows by eight elements of two columns: a vector of sums is a 2 x 2 block.
 */
__attribute__((always_inline)) static inline void
raot_dot4_pairs(const int32_t pairs, int32_t rows, int32_t *sums, const int8_t *left,
                const int8_t *right, const int32_t *bias, int32_t depth, int32_t sum_step,
                int32_t bias_row, int32_t bias_column)
{
    int32x4_t kept[3][8];
    const int8_t *from[6];
    int32_t row[6];
    int32_t k = 0;

    RAOT_DOT4_UNROLL
    for (int32_t r = 0; r < 2 * pairs; r++) {
        row[r] = r < rows ? r : rows - 1;
        from[r] = left + row[r] * depth;
    }
    RAOT_DOT4_UNROLL
    for (int32_t p = 0; p < pairs; p++) {
        const int32_t *const one = bias + row[2 * p] * bias_row;
        const int32_t *const two = bias + row[2 * p + 1] * bias_row;
        RAOT_DOT4_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            const int32x4_t a = bias_column != 0 ? vld1q_s32(one + 4 * w) : vdupq_n_s32(*one);
            const int32x4_t b = bias_column != 0 ? vld1q_s32(two + 4 * w) : vdupq_n_s32(*two);
            kept[p][2 * w] = RAOT_DOT4_FIRST(a, b);
            kept[p][2 * w + 1] = RAOT_DOT4_LAST(a, b);
        }
    }
    for (; k + 8 <= depth; k += 8) {
        int8x16_t x[3];
        RAOT_DOT4_UNROLL
        for (int32_t p = 0; p < pairs; p++) {
            x[p] = vcombine_s8(vld1_s8(from[2 * p]), vld1_s8(from[2 * p + 1]));
            from[2 * p] += 8;
            from[2 * p + 1] += 8;
            RAOT_DOT4_MOVES(from[2 * p]);
            RAOT_DOT4_MOVES(from[2 * p + 1]);
        }
        RAOT_DOT4_EIGHTS(right + 64)
        right += 128;
    }
    if (k < depth) {
        /* Four elements and zeros; the factors of the zeros do not matter. */
        int8x16_t x[3];
        RAOT_DOT4_UNROLL
        for (int32_t p = 0; p < pairs; p++) {
            uint32_t one;
            uint32_t two;
            RAOT_COPY(&one, from[2 * p], sizeof one);
            RAOT_COPY(&two, from[2 * p + 1], sizeof two);
            x[p] = vcombine_s8(vcreate_s8(one), vcreate_s8(two));
        }
        RAOT_DOT4_EIGHTS(right)
    }
    RAOT_DOT4_UNROLL
    for (int32_t p = 0; p < pairs; p++) {
        int32_t *const one = sums + row[2 * p] * sum_step;
        int32_t *const two = sums + row[2 * p + 1] * sum_step;
        RAOT_DOT4_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            vst1q_s32(one + 4 * w, RAOT_DOT4_FIRST(kept[p][2 * w], kept[p][2 * w + 1]));
            vst1q_s32(two + 4 * w, RAOT_DOT4_LAST(kept[p][2 * w], kept[p][2 * w + 1]));
        }
    }
}
#endif

#define RAOT_DOT4_CASE(rows)                                                                    \
    case rows:                                                                                  \
        raot_dot4_block(rows, sums, left, right, bias, depth, sum_step, bias_row, bias_column); \
        break;

/* Up to RAOT_DOT4_HIGH rows. */
__attribute__((noinline, unused)) static void
raot_dot4_rows(int32_t rows, int32_t *sums, const int8_t *left, const int8_t *right,
               const int32_t *bias, int32_t depth, int32_t sum_step, int32_t bias_row,
               int32_t bias_column)
{
    switch (rows) {
        RAOT_DOT4_CASE(1)
        RAOT_DOT4_CASE(2)
        RAOT_DOT4_CASE(3)
#if defined(RAOT_DOT4_BY_TWOS)
    case 4:
        raot_dot4_pairs(2, 4, sums, left, right, bias, depth, sum_step, bias_row, bias_column);
        break;
    default:
        raot_dot4_pairs(3, rows, sums, left, right, bias, depth, sum_step, bias_row, bias_column);
        break;
#else
    default:
        raot_dot4_block(RAOT_DOT4_HIGH, sums, left, right, bias, depth, sum_step, bias_row,
                        bias_column);
        break;
#endif
    }
}

#elif defined(__ARM_NEON) && defined(__aarch64__)
#define RAOT_DOT4_HIGH 2

/*
 * Two rows of sixteen columns without dot product instructions: groups of four are multiplied in
 * 16 bits, and adjacent products are accumulated in 32 bits. Each sum is kept as two partial
 * sums.
 */
__attribute__((noinline, unused)) static void
raot_dot4_rows(int32_t rows, int32_t *sums, const int8_t *left, const int8_t *right,
               const int32_t *bias, int32_t depth, int32_t sum_step, int32_t bias_row,
               int32_t bias_column)
{
    for (int32_t r = 0; r < rows; r++) {
        int32x4_t kept[8];
        for (int32_t w = 0; w < 8; w++) {
            kept[w] = vdupq_n_s32(0);
        }
        for (int32_t k = 0; k < depth; k += 4) {
            int32_t four;
            RAOT_COPY(&four, left + r * depth + k, sizeof four);
            const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
            for (int32_t w = 0; w < 4; w++) {
                const int8x16_t by = vld1q_s8(right + 16 * k + 16 * w);
                kept[2 * w] = vpadalq_s16(kept[2 * w], vmull_s8(vget_low_s8(x), vget_low_s8(by)));
                kept[2 * w + 1] = vpadalq_s16(kept[2 * w + 1], vmull_high_s8(x, by));
            }
        }
        for (int32_t w = 0; w < 4; w++) {
            const int32x4_t start = bias_column != 0 ? vld1q_s32(bias + r * bias_row + 4 * w)
                                                     : vdupq_n_s32(bias[r * bias_row]);
            const int32x4_t sum = vpaddq_s32(kept[2 * w], kept[2 * w + 1]);
            vst1q_s32(sums + r * sum_step + 4 * w, vaddq_s32(sum, start));
        }
    }
}
#endif

__attribute__((noinline, unused)) static void
raot_dot4_i8_unpacked(int32_t *sums, const int8_t *left, const int8_t *right, const int32_t *bias,
                      int32_t rows, int32_t columns, int32_t depth, int32_t sum_step,
                      int32_t bias_row, int32_t bias_column)
{
    for (int32_t c = 0; c < columns; c += RAOT_DOT4_COLUMNS) {
        const int8_t *const x = right + c * depth;
#if defined(RAOT_DOT4_HIGH)
        int32_t r = 0;
        while (r < rows) {
            const int32_t rest = rows - r;
            int32_t high = rest < RAOT_DOT4_HIGH ? rest : RAOT_DOT4_HIGH;
#if !defined(RAOT_DOT4_BY_TWOS)
            /* Remaining rows are split evenly: 6 rows are 3 and 3, not 4 and 2. */
            if (rest > RAOT_DOT4_HIGH && rest < 2 * RAOT_DOT4_HIGH) {
                high = (rest + 1) / 2;
            }
#endif
            raot_dot4_rows(high, sums + r * sum_step + c, left + r * depth, x,
                           bias + r * bias_row + c * bias_column, depth, sum_step, bias_row,
                           bias_column);
            r += high;
        }
#else
        const int32_t wide = columns - c < RAOT_DOT4_COLUMNS ? columns - c : RAOT_DOT4_COLUMNS;
        for (int32_t r = 0; r < rows; r++) {
            const int8_t *const by = left + r * depth;
            for (int32_t i = 0; i < wide; i++) {
                uint32_t sum = (uint32_t)bias[r * bias_row + (c + i) * bias_column];
                for (int32_t k = 0; k < depth; k++) {
                    sum += (uint32_t)(by[k] * x[k / 4 * 4 * RAOT_DOT4_COLUMNS + 4 * i + k % 4]);
                }
                sums[r * sum_step + c + i] = (int32_t)sum;
            }
        }
#endif
    }
}

/* Operands of a tile (gather4.h) as signed bytes: _u8 subtracts 128. */
__attribute__((noinline, unused)) static void
raot_panel_dot4_i8_s8(int8_t *panel, const int8_t *image, const int32_t *offsets, int32_t depth,
                      int32_t columns, int32_t extent)
{
    raot_panel_dot4((uint8_t *)panel, (const uint8_t *)image, offsets, depth, columns, extent, 0);
}

__attribute__((noinline, unused)) static void
raot_panel_dot4_i8_u8(int8_t *panel, const uint8_t *image, const int32_t *offsets, int32_t depth,
                      int32_t columns, int32_t extent)
{
    raot_panel_dot4((uint8_t *)panel, image, offsets, depth, columns, extent, 128);
}

#define RAOT_ROWS_DOT4(suffix, byte, flip)                                                         \
    __attribute__((noinline, unused)) static void raot_rows_dot4_i8_##suffix##_unpacked(           \
        int8_t *to, const byte *image, int32_t zero, int32_t rows, int32_t row_step,               \
        int32_t depth, int32_t count0, int32_t first0, int32_t last0, int32_t step0,               \
        int32_t count1, int32_t first1, int32_t last1, int32_t step1, int32_t count2,              \
        int32_t first2, int32_t last2, int32_t step2)                                              \
    {                                                                                              \
        raot_rows_dot4((uint8_t *)to, (const uint8_t *)image, zero, rows, row_step, depth, count0, \
                       first0, last0, step0, count1, first1, last1, step1, count2, first2, last2,  \
                       step2, flip);                                                               \
    }

RAOT_ROWS_DOT4(s8, int8_t, 0)
RAOT_ROWS_DOT4(u8, uint8_t, 128)

/* Sizes of the functions below, by name. */
struct raot_dot4_i8_sizes {
    int32_t rows;
    int32_t columns;
    int32_t depth;
    int32_t sum_step;
    int32_t bias_row;
    int32_t bias_column;
};

#define raot_dot4_i8(sums, left, right, bias, sizes)                                \
    raot_dot4_i8_unpacked(sums, left, right, bias, (sizes)->rows, (sizes)->columns, \
                          (sizes)->depth, (sizes)->sum_step, (sizes)->bias_row,     \
                          (sizes)->bias_column)

/* Sizes of the functions below, by name. */
struct raot_rows_dot4_i8 {
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

#define raot_rows_dot4_i8_s8(to, image, sizes)                                             \
    raot_rows_dot4_i8_s8_unpacked(                                                         \
        to, image, (sizes)->zero, (sizes)->rows, (sizes)->row_step, (sizes)->depth,        \
        (sizes)->count0, (sizes)->first0, (sizes)->last0, (sizes)->step0, (sizes)->count1, \
        (sizes)->first1, (sizes)->last1, (sizes)->step1, (sizes)->count2, (sizes)->first2, \
        (sizes)->last2, (sizes)->step2)

#define raot_rows_dot4_i8_u8(to, image, sizes)                                             \
    raot_rows_dot4_i8_u8_unpacked(                                                         \
        to, image, (sizes)->zero, (sizes)->rows, (sizes)->row_step, (sizes)->depth,        \
        (sizes)->count0, (sizes)->first0, (sizes)->last0, (sizes)->step0, (sizes)->count1, \
        (sizes)->first1, (sizes)->last1, (sizes)->step1, (sizes)->count2, (sizes)->first2, \
        (sizes)->last2, (sizes)->step2)

#endif
