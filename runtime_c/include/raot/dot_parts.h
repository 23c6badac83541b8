/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_parts.h - a row of floats, split into integers, times quantized weights with a scale per
 * group of k.
 *
 *     sums[c] = sum over groups g of scales[g][c] * (sum over k in g of left[k] * w[k][c])
 *
 * raot_split_q*_f32 rounds the elements of a line of 32 steps to multiples of 2^(e - 157), where e
 * is the biased exponent of the largest one (at least 31), and splits the integers, which have 31
 * bits and a sign, into two of 16 bits: parts[k / 8][0][k % 8] + 65536 * parts[k / 8][1][k % 8].
 * units[k / 32] is 2^(e - 141). An element that is smaller than 2^(e - 137), infinite or NaN, is 0
 * there, and bit k % 32 of small[k / 32] is set for it.
 *
 * raot_dot_parts_q* sums the parts of each line as exact integers, and then adds the products of
 * the elements that `small` names, one by one. An element has an error of 2^-21 of itself at most,
 * so 8 units of its last place; elements that are multiples of 2^(e - 157) have none.
 *
 * Weights are signed integers of 8 or 4 bits, in blocks of four columns by 8 steps: block[c][k],
 * block after block along k and then along c. Two weights of 4 bits share a byte, so that a block
 * has 16 steps: step k + 8 in the high half of byte k, step k with 8 added in the low half.
 * offsets[k / 32] are the products of these 8 with both parts of a line. Groups are whole lines.
 * Sums are a multiple of RAOT_PART_COLUMNS, and scales are panels of so many columns, one behind
 * the other; unused columns may hold any value.
 */
#ifndef RAOT_DOT_PARTS_H
#define RAOT_DOT_PARTS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "assembly.h"
#include "ieee.h"
#include "mve.h"

#define RAOT_PART_COLUMNS 32
#define RAOT_PART_STEPS 32
#define RAOT_PART_INFINITE 0x7f800000
#define RAOT_PART_SIZE 0x7fffffff
/* 2^-16: what a unit of the lower part is worth in units of the upper one. */
#define RAOT_PART_LOW 1.52587890625e-5f

/* `columns` of the sums; `lines` of 32 steps, of which a group has `group_lines`; `depth` elements
 * of the row, with which the last line may not be full. */
struct raot_dot_parts {
    int32_t columns;
    int32_t lines;
    int32_t group_lines;
    int32_t depth;
};

/* Magnitude of a float as an integer: the order is the same. */
static inline int32_t raot_part_size(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & RAOT_PART_SIZE;
}

/* 2^(exponent - 127). */
static inline float raot_part_power(int32_t exponent)
{
    const int32_t bits = exponent * 0x800000;
    float power;

    memcpy(&power, &bits, sizeof(power));
    return power;
}

/* The biased exponent of a line, one more where the largest element could round to 2^31. */
static inline int32_t raot_part_exponent(int32_t peak)
{
    const int32_t exponent = (peak + 256) >> 23;

    return exponent < 31 ? 31 : exponent;
}

#if defined(RAOT_MVE_F32)
#include "dot_parts_mve.h"
#else
/* Eight steps of a line, the last of which may lie behind `count` elements. The sums of the parts
 * are added to `sums`, and the bits of small elements are returned. */
static inline int32_t raot_split_8(int16_t *parts, const float *left, int32_t count,
                                   int32_t exponent, int32_t sums[2])
{
    const float factor = raot_part_power(284 - exponent);
    const int32_t least = (exponent - 10) * 0x800000;
    int32_t small = 0;

    for (int32_t i = 0; i < 8; i++) {
        const float x = i < count ? left[i] : 0.0f;
        const int32_t size = raot_part_size(x);
        const int fits = least <= size && size < RAOT_PART_INFINITE;
        const int32_t whole = fits ? (int32_t)rintf(x * factor) : 0;
        const int32_t high = (whole + 32768) >> 16;
        const int32_t low = whole - high * 65536;
        parts[i] = (int16_t)low;
        parts[8 + i] = (int16_t)high;
        sums[0] += low;
        sums[1] += high;
        small |= !fits && size > 0 ? 1 << i : 0;
    }
    return small;
}

static inline int32_t raot_split_peak(const float *left, int32_t count)
{
    int32_t peak = 0;

    for (int32_t i = 0; i < count; i++) {
        const int32_t size = raot_part_size(left[i]);
        peak = size > peak && size < RAOT_PART_INFINITE ? size : peak;
    }
    return peak;
}
#endif

/* `offsets`: 8 times the sums of steps k with k % 16 < 8, where they are asked for. */
__attribute__((always_inline)) static inline void raot_split_row(const int32_t bits, int16_t *parts,
                                                                 float *units, int32_t *small,
                                                                 int32_t *offsets,
                                                                 const float *left, int32_t depth)
{
    for (int32_t rest = depth; rest > 0; rest -= RAOT_PART_STEPS) {
        const int32_t count = rest < RAOT_PART_STEPS ? rest : RAOT_PART_STEPS;
        int32_t even[2] = {0, 0};
        int32_t odd[2] = {0, 0};
        uint32_t word = 0;
#if defined(RAOT_MVE_F32)
        const int32_t whole = count == RAOT_PART_STEPS ? raot_split_whole(parts, left, even) : 0;
        const int32_t exponent =
            whole > 0 ? whole : raot_part_exponent(raot_split_peak(left, count));
        const int32_t steps = whole > 0 ? 0 : RAOT_PART_STEPS;
#else
        const int32_t exponent = raot_part_exponent(raot_split_peak(left, count));
        const int32_t steps = RAOT_PART_STEPS;
#endif

        for (int32_t k = 0; k < steps; k += 16) {
            int16_t *const to = parts + 2 * k;
            const int32_t first = raot_split_8(to, left + k, count - k, exponent, even);
            const int32_t second =
                raot_split_8(to + 16, left + k + 8, count - k - 8, exponent, odd);
            word |= (uint32_t)(first | second << 8) << k;
        }
        *units++ = raot_part_power(exponent - 14);
        *small++ = (int32_t)word;
        if (bits == 4) {
            *offsets++ = 8 * even[0];
            *offsets++ = 8 * even[1];
        }
        parts += 2 * RAOT_PART_STEPS;
        left += RAOT_PART_STEPS;
    }
}

__attribute__((noinline, unused)) static void
raot_split_q8_f32(int16_t *parts, float *units, int32_t *small, const float *left, int32_t depth)
{
    raot_split_row(8, parts, units, small, small, left, depth);
}

__attribute__((noinline, unused)) static void raot_split_q4_f32(int16_t *parts, float *units,
                                                                int32_t *small, int32_t *offsets,
                                                                const float *left, int32_t depth)
{
    raot_split_row(4, parts, units, small, offsets, left, depth);
}

/* Bytes of weights of four columns. */
static inline int32_t raot_part_bytes(int32_t bits, const struct raot_dot_parts *sizes)
{
    return sizes->lines * RAOT_PART_STEPS * bits / 2;
}

/* Scales of a panel of columns. */
static inline int32_t raot_part_panel(const struct raot_dot_parts *sizes)
{
    return (sizes->lines + sizes->group_lines - 1) / sizes->group_lines * RAOT_PART_COLUMNS;
}

/* Blocks of a panel of which so many columns are left. */
static inline int32_t raot_part_blocks(int32_t columns)
{
    return columns < RAOT_PART_COLUMNS ? (columns + 3) / 4 : RAOT_PART_COLUMNS / 4;
}

#if !defined(RAOT_MVE_F32)
/* The weight of a step in the four columns of a block as it is stored. */
static inline int32_t raot_part_weight(int32_t bits, const int8_t *block, int32_t c, int32_t k)
{
    if (bits == 8) {
        return block[(k / 8 * 4 + c) * 8 + k % 8];
    }
    const int8_t both = block[(k / 16 * 4 + c) * 8 + k % 8];
    return k % 16 < 8 ? both & 15 : both >> 4;
}

static inline void raot_parts_clear(float *sums, int32_t blocks)
{
    for (int32_t c = 0; c < 4 * blocks; c++) {
        sums[c] = 0.0f;
    }
}

/* Adds the integers of a line to the sums of four columns. */
static inline void raot_parts_line(int32_t bits, float *sums, const int16_t *parts, float unit,
                                   const int32_t *offsets, const int8_t *block, const float *scales)
{
    for (int32_t c = 0; c < 4; c++) {
        int32_t low = bits == 4 ? -offsets[0] : 0;
        int32_t high = bits == 4 ? -offsets[1] : 0;
        for (int32_t k = 0; k < RAOT_PART_STEPS; k++) {
            const int32_t weight = raot_part_weight(bits, block, c, k);
            low += parts[k / 8 * 16 + k % 8] * weight;
            high += parts[k / 8 * 16 + 8 + k % 8] * weight;
        }
        const float value = (float)high + (float)low * RAOT_PART_LOW;
        sums[c] = raot_fmaf(value * unit, scales[c], sums[c]);
    }
}

/* Adds x times the weights of a step and their scales to the sums of so many blocks, which are
 * `bytes` apart. `is_low`: weights of 4 bits in the low halves. */
__attribute__((always_inline)) static inline void
raot_parts_step(const int32_t bits, const int32_t is_low, float *sums, float x,
                const int8_t *weights, int32_t bytes, const float *scales, int32_t k,
                int32_t blocks)
{
    for (int32_t c = 0; c < 4 * blocks; c++) {
        const int32_t stored = raot_part_weight(bits, weights + c / 4 * bytes, c % 4, k);
        const int32_t weight = bits == 4 && is_low ? stored - 8 : stored;
        sums[c] = raot_fmaf(x * (float)weight, scales[c], sums[c]);
    }
}
#endif

/* Adds the integers to the sums of so many blocks of columns. */
__attribute__((always_inline)) static inline void
raot_parts_lines(const int32_t bits, float *sums, const int16_t *parts, const float *units,
                 const int32_t *offsets, const int8_t *weights, const float *scales,
                 const struct raot_dot_parts *sizes, int32_t blocks)
{
    const int32_t bytes = raot_part_bytes(bits, sizes);
    const int32_t line = RAOT_PART_STEPS * bits / 2;
#if defined(RAOT_PARTS_ASM)
    const int32_t whole = sizes->group_lines == 1;
    const int32_t most = whole ? sizes->lines : sizes->group_lines;

    for (int32_t first = 0; first < sizes->lines; first += most) {
        const int32_t rest = sizes->lines - first;
        const int32_t count = rest < most ? rest : most;
        (bits == 8 ? raot_parts_lines_q8 : raot_parts_lines_q4)(
            sums, parts, weights, scales, units, units + count, offsets,
            whole ? RAOT_PART_COLUMNS * (int32_t)sizeof(float) : 0, bytes - count * line, blocks);
        parts += count * 2 * RAOT_PART_STEPS;
        weights += count * line;
        scales += RAOT_PART_COLUMNS;
        units += count;
        offsets += 2 * count;
    }
#else
    for (int32_t i = 0; i < sizes->lines; i++) {
        const float *const by = scales + i / sizes->group_lines * RAOT_PART_COLUMNS;
        for (int32_t b = 0; b < blocks; b++) {
            raot_parts_line(bits, sums + 4 * b, parts, units[i], offsets + 2 * i,
                            weights + b * bytes + i * line, by + 4 * b);
        }
        parts += 2 * RAOT_PART_STEPS;
    }
#endif
}

/* Adds the products of a small element to all sums. */
__attribute__((always_inline)) static inline void
raot_parts_one(const int32_t bits, float *sums, float x, int32_t k, const int8_t *weights,
               const float *scales, const struct raot_dot_parts *sizes)
{
    const int32_t bytes = raot_part_bytes(bits, sizes);
    const int32_t panel = raot_part_panel(sizes);

    scales += k / RAOT_PART_STEPS / sizes->group_lines * RAOT_PART_COLUMNS;
    for (int32_t c = 0; c < sizes->columns; c += RAOT_PART_COLUMNS) {
        const int32_t blocks = raot_part_blocks(sizes->columns - c);
        if (k % 16 < 8) {
            raot_parts_step(bits, 1, sums, x, weights, bytes, scales, k, blocks);
        } else {
            raot_parts_step(bits, 0, sums, x, weights, bytes, scales, k, blocks);
        }
        sums += RAOT_PART_COLUMNS;
        weights += RAOT_PART_COLUMNS / 4 * bytes;
        scales += panel;
    }
}

/* Adds the products of all small elements. */
__attribute__((always_inline)) static inline void
raot_parts_small(const int32_t bits, float *sums, const int32_t *small, const float *left,
                 const int8_t *weights, const float *scales, const struct raot_dot_parts *sizes)
{
    for (int32_t i = 0; i < sizes->lines; i++) {
        uint32_t word = (uint32_t)small[i];
        for (int32_t k = i * RAOT_PART_STEPS; word != 0 && k < sizes->depth;) {
            if ((word & 255) == 0) {
                word >>= 8;
                k += 8;
                continue;
            }
            if ((word & 1) != 0) {
                raot_parts_one(bits, sums, left[k], k, weights, scales, sizes);
            }
            word >>= 1;
            k++;
        }
    }
}

__attribute__((always_inline)) static inline void
raot_dot_parts(const int32_t bits, float *sums, const int16_t *parts, const float *units,
               const int32_t *small, const int32_t *offsets, const float *left,
               const int8_t *weights, const float *scales, const struct raot_dot_parts *sizes)
{
    const int32_t panel = RAOT_PART_COLUMNS / 4 * raot_part_bytes(bits, sizes);

    for (int32_t c = 0; c < sizes->columns; c += RAOT_PART_COLUMNS) {
        const int32_t blocks = raot_part_blocks(sizes->columns - c);
        raot_parts_clear(sums + c, blocks);
        raot_parts_lines(bits, sums + c, parts, units, offsets,
                         weights + c / RAOT_PART_COLUMNS * panel,
                         scales + c / RAOT_PART_COLUMNS * raot_part_panel(sizes), sizes, blocks);
    }
    raot_parts_small(bits, sums, small, left, weights, scales, sizes);
}

__attribute__((noinline, unused)) static void
raot_dot_parts_q8(float *sums, const int16_t *parts, const float *units, const int32_t *small,
                  const float *left, const int8_t *weights, const float *scales,
                  const struct raot_dot_parts *sizes)
{
    raot_dot_parts(8, sums, parts, units, small, small, left, weights, scales, sizes);
}

__attribute__((noinline, unused)) static void
raot_dot_parts_q4(float *sums, const int16_t *parts, const float *units, const int32_t *small,
                  const int32_t *offsets, const float *left, const uint8_t *weights,
                  const float *scales, const struct raot_dot_parts *sizes)
{
    raot_dot_parts(4, sums, parts, units, small, offsets, left, (const int8_t *)weights, scales,
                   sizes);
}

#endif
