/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_parts.h - a row of floats, split into integers, times quantized weights with a scale per
 * group of k.
 *
 *     sums[c] = sum over groups g of scales[g][c] * (sum over k in g of left[k] * w[k][c])
 *
 * raot_split_*_q*_f32 rounds the elements of a line of 32 steps to multiples of 2^(e - 157), where
 * e is the biased exponent of the largest one (at least 31), and splits the integers, which have 31
 * bits and a sign, into two of 16 bits: parts[k / K][0][k % K] + 65536 * parts[k / K][1][k % K].
 * units[k / 32] is 2^(e - 141). An element that is smaller than 2^(e - 137), infinite or NaN, is 0
 * there, and bit k % 32 of small[k / 32] is set for it.
 *
 * raot_dot_parts_*_q* sums the parts of each line as exact integers, and then adds the products of
 * the elements that `small` names, one by one. An element has an error of 2^-21 of itself at most,
 * so 8 units of its last place; elements that are multiples of 2^(e - 157) have none.
 *
 * Weights are signed integers of 8 or 4 bits, in blocks of K / 2 columns by K steps: block[c][k],
 * block after block along k and then along c. Two weights of 4 bits share a byte, so that a block
 * has 2 * K steps, of which some have 8 added: offsets[k / 32] are the products of -8 with both
 * parts of the elements of these steps.
 *
 *     _mve  K = 8; of 4 bits, step k with 8 added in the low half of byte k, step k + 8 in the high
 *     _s16  K = 4; step 2 * q + h in byte 2 * h + q; of 4 bits, steps 4 * q + h and 4 * q + h + 2
 *           in the low and the high half of byte 2 * h + q, all with 8 added
 *
 * Groups are whole lines. Sums are a multiple of RAOT_PART_COLUMNS, and scales are panels of so
 * many columns, one behind the other; unused columns may hold any value. Parts and weights are
 * aligned to four bytes.
 */
#ifndef RAOT_DOT_PARTS_H
#define RAOT_DOT_PARTS_H

#include <stdint.h>
#include <string.h>

#include "assembly.h"
#include "convert.h"
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

    (void)memcpy(&bits, &x, sizeof(bits));
    return bits & RAOT_PART_SIZE;
}

/* 2^(exponent - 127). */
static inline float raot_part_power(int32_t exponent)
{
    const int32_t bits = exponent * 0x800000;
    float power;

    (void)memcpy(&power, &bits, sizeof(power));
    return power;
}

/* The biased exponent of a line, one more where the largest element could round to 2^31. */
static inline int32_t raot_part_exponent(int32_t peak)
{
    const int32_t exponent = (peak + 256) >> 23;

    return exponent < 31 ? 31 : exponent;
}

/* What is added to a weight of a step where it is stored. */
static inline int32_t raot_part_raised(int32_t bits, int32_t steps, int32_t k)
{
    return bits == 4 && (steps == 4 || k % 16 < 8) ? 8 : 0;
}

#if defined(RAOT_MVE_F32)
#include "dot_parts_mve.h"
#elif defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && defined(__ARM_FEATURE_FMA)
#include "dot_parts_dsp.h"
#endif

static inline int32_t raot_split_peak(const float *left, int32_t count)
{
    int32_t peak = 0;

    for (int32_t i = 0; i < count; i++) {
        const int32_t size = raot_part_size(left[i]);
        peak = size > peak && size < RAOT_PART_INFINITE ? size : peak;
    }
    return peak;
}

/* One line, of which the row has `count` elements. The sums of the parts of raised steps are added
 * to `sums`, and the bits of small elements to `small`. The result is the exponent. */
__attribute__((always_inline)) static inline int32_t
raot_split_line(const int32_t bits, const int32_t steps, int16_t *parts, const float *left,
                int32_t count, int32_t sums[2], uint32_t *small)
{
#if defined(RAOT_MVE_F32)
    if (steps == 8) {
        return raot_split_line_mve(parts, left, count, sums, small);
    }
#endif
    const int32_t exponent = raot_part_exponent(raot_split_peak(left, count));
    const float factor = raot_part_power(284 - exponent);
    const int32_t least = (exponent - 10) * 0x800000;

    for (int32_t k = 0; k < RAOT_PART_STEPS; k += steps) {
        for (int32_t i = 0; i < steps; i++) {
            const float x = k + i < count ? left[k + i] : 0.0f;
            const int32_t size = raot_part_size(x);
            const int fits = least <= size && size < RAOT_PART_INFINITE;
            const int32_t whole = fits ? raot_f32_to_i32_nearest(x * factor) : 0;
            const int32_t high = (whole + 32768) >> 16;
            const int32_t low = whole - high * 65536;
            parts[i] = (int16_t)low;
            parts[i + steps] = (int16_t)high;
            if (raot_part_raised(bits, steps, k + i) != 0) {
                sums[0] += low;
                sums[1] += high;
            }
            *small |= (uint32_t)(!fits && size > 0) << (k + i);
        }
        parts += 2 * steps;
    }
    return exponent;
}

/* `offsets` where they are asked for. */
__attribute__((always_inline)) static inline void
raot_split_row(const int32_t bits, const int32_t steps, int16_t *parts, float *units,
               int32_t *small, int32_t *offsets, const float *left, int32_t depth)
{
    for (int32_t rest = depth; rest > 0; rest -= RAOT_PART_STEPS) {
        const int32_t count = rest < RAOT_PART_STEPS ? rest : RAOT_PART_STEPS;
        int32_t sums[2] = {0, 0};
        uint32_t word = 0;
        const int32_t exponent = raot_split_line(bits, steps, parts, left, count, sums, &word);

        *units++ = raot_part_power(exponent - 14);
        *small++ = (int32_t)word;
        if (bits == 4) {
            *offsets++ = -8 * sums[0];
            *offsets++ = -8 * sums[1];
        }
        parts += 2 * RAOT_PART_STEPS;
        left += RAOT_PART_STEPS;
    }
}

/* Bytes of a line of weights of a block of columns. */
static inline int32_t raot_part_line(int32_t bits, int32_t steps)
{
    return RAOT_PART_STEPS * steps * bits / 16;
}

/* Scales of a panel of columns. */
static inline int32_t raot_part_panel(const struct raot_dot_parts *sizes)
{
    return (sizes->lines + sizes->group_lines - 1) / sizes->group_lines * RAOT_PART_COLUMNS;
}

/* Blocks of a panel of which so many columns are left. */
static inline int32_t raot_part_blocks(int32_t steps, int32_t columns)
{
    const int32_t count = columns < RAOT_PART_COLUMNS ? columns : RAOT_PART_COLUMNS;

    return (2 * count + steps - 1) / steps;
}

/* Where the byte of a step is, in the first column of a block. */
static inline int32_t raot_part_place(int32_t bits, int32_t steps, int32_t k)
{
    const int32_t block = steps * 8 / bits;
    const int32_t at = steps == 8 ? k % 8 : k % 2 * 2 + k % block * bits / 16;

    return k / block * steps * steps / 2 + at;
}

/* How far the weight of a step is shifted in its byte, with weights of 4 bits. */
static inline int32_t raot_part_shift(int32_t steps, int32_t k)
{
    return steps == 8 ? k % 16 / 8 * 4 : k % 4 / 2 * 4;
}

/* The weight in a byte. */
static inline int32_t raot_part_weight(int32_t bits, int8_t byte, int32_t shift, int32_t raised)
{
    return bits == 8 ? byte : (((byte >> shift) & 15) ^ (8 - raised)) - 8;
}

/* Adds the integers of a line to the sums of a block. */
__attribute__((always_inline)) static inline void
raot_parts_line(const int32_t bits, const int32_t steps, float *sums, const int16_t *parts,
                float unit, const int32_t *offsets, const int8_t *block, const float *scales)
{
#if defined(RAOT_MVE_F32)
    if (steps == 8) {
        raot_parts_line_mve(bits, sums, parts, unit, offsets, block, scales);
        return;
    }
#endif
    for (int32_t c = 0; c < steps / 2; c++) {
        int32_t low = bits == 4 ? offsets[0] : 0;
        int32_t high = bits == 4 ? offsets[1] : 0;
        for (int32_t k = 0; k < RAOT_PART_STEPS; k++) {
            const int32_t raised = raot_part_raised(bits, steps, k);
            const int8_t byte = block[raot_part_place(bits, steps, k) + c * steps];
            const int32_t weight =
                raot_part_weight(bits, byte, raot_part_shift(steps, k), raised) + raised;
            low += parts[k / steps * 2 * steps + k % steps] * weight;
            high += parts[k / steps * 2 * steps + k % steps + steps] * weight;
        }
        const float value = (float)high + (float)low * RAOT_PART_LOW;
        sums[c] = raot_fmaf(value * unit, scales[c], sums[c]);
    }
}

/* Adds x times the weights of a step, to which `raised` was added, and their scales to the sums of
 * so many blocks, which are `bytes` apart. */
__attribute__((always_inline)) static inline void
raot_parts_step(const int32_t bits, const int32_t steps, const int32_t raised, float *sums, float x,
                const int8_t *weights, int32_t bytes, const float *scales, int32_t k,
                int32_t blocks)
{
#if defined(RAOT_MVE_F32)
    if (steps == 8) {
        raot_parts_step_mve(bits, raised, sums, x, weights, bytes, scales, k, blocks);
        return;
    }
#endif
    const int32_t shift = raot_part_shift(steps, k);

    weights += raot_part_place(bits, steps, k);
    for (int32_t b = 0; b < blocks; b++) {
        for (int32_t c = 0; c < steps / 2; c++) {
            const int32_t weight = raot_part_weight(bits, weights[c * steps], shift, raised);
            sums[c] = raot_fmaf(x * (float)weight, scales[c], sums[c]);
        }
        weights += bytes;
        scales += steps / 2;
        sums += steps / 2;
    }
}

/* A panel of sums. */
static inline void raot_parts_clear(float *sums)
{
#if defined(RAOT_MVE_F32)
    for (int32_t c = 0; c < RAOT_PART_COLUMNS; c += 4) {
        vst1q_f32(sums + c, vdupq_n_f32(0.0f));
    }
#else
    for (int32_t c = 0; c < RAOT_PART_COLUMNS; c++) {
        sums[c] = 0.0f;
    }
#endif
}

/* Adds the integers to the sums of so many blocks of columns. */
__attribute__((always_inline)) static inline void
raot_parts_lines(const int32_t bits, const int32_t steps, float *sums, const int16_t *parts,
                 const float *units, const int32_t *offsets, const int8_t *weights,
                 const float *scales, const struct raot_dot_parts *sizes, int32_t blocks)
{
    const int32_t line = raot_part_line(bits, steps);
    const int32_t bytes = sizes->lines * line;
#if defined(RAOT_PARTS_ASM)
    if (steps == RAOT_PARTS_ASM) {
        const int32_t whole = sizes->group_lines == 1;
        const int32_t most = whole ? sizes->lines : sizes->group_lines;

        for (int32_t first = 0; first < sizes->lines; first += most) {
            const int32_t rest = sizes->lines - first;
            const int32_t count = rest < most ? rest : most;
            (bits == 8 ? raot_parts_lines_q8 : raot_parts_lines_q4)(
                sums, parts, weights, scales, units, units + count, offsets,
                whole ? RAOT_PART_COLUMNS * (int32_t)sizeof(float) : 0, bytes - count * line,
                blocks);
            parts += count * 2 * RAOT_PART_STEPS;
            weights += count * line;
            scales += RAOT_PART_COLUMNS;
            units += count;
            offsets += 2 * count;
        }
        return;
    }
#endif
    for (int32_t i = 0; i < sizes->lines; i++) {
        const float *const by = scales + i / sizes->group_lines * RAOT_PART_COLUMNS;
        for (int32_t b = 0; b < blocks; b++) {
            raot_parts_line(bits, steps, sums + b * steps / 2, parts, units[i], offsets + 2 * i,
                            weights + b * bytes + i * line, by + b * steps / 2);
        }
        parts += 2 * RAOT_PART_STEPS;
    }
}

/* Adds the products of a small element to all sums. */
__attribute__((always_inline)) static inline void
raot_parts_one(const int32_t bits, const int32_t steps, float *sums, float x, int32_t k,
               const int8_t *weights, const float *scales, const struct raot_dot_parts *sizes)
{
    const int32_t bytes = sizes->lines * raot_part_line(bits, steps);
    const int32_t panel = raot_part_panel(sizes);

    scales += k / RAOT_PART_STEPS / sizes->group_lines * RAOT_PART_COLUMNS;
    for (int32_t c = 0; c < sizes->columns; c += RAOT_PART_COLUMNS) {
        const int32_t blocks = raot_part_blocks(steps, sizes->columns - c);
        if (raot_part_raised(bits, steps, k) != 0) {
            raot_parts_step(bits, steps, 8, sums, x, weights, bytes, scales, k, blocks);
        } else {
            raot_parts_step(bits, steps, 0, sums, x, weights, bytes, scales, k, blocks);
        }
        sums += RAOT_PART_COLUMNS;
        weights += 2 * RAOT_PART_COLUMNS / steps * bytes;
        scales += panel;
    }
}

/* Adds the products of all small elements. */
__attribute__((always_inline)) static inline void
raot_parts_small(const int32_t bits, const int32_t steps, float *sums, const int32_t *small,
                 const float *left, const int8_t *weights, const float *scales,
                 const struct raot_dot_parts *sizes)
{
    for (int32_t i = 0; i < sizes->lines; i++) {
        uint32_t word = (uint32_t)small[i];
        int32_t k = i * RAOT_PART_STEPS;
        while (word != 0 && k < sizes->depth) {
            if ((word & 255) == 0) {
                word >>= 8;
                k += 8;
                continue;
            }
            if ((word & 1) != 0) {
                raot_parts_one(bits, steps, sums, left[k], k, weights, scales, sizes);
            }
            word >>= 1;
            k++;
        }
    }
}

__attribute__((always_inline)) static inline void
raot_dot_parts(const int32_t bits, const int32_t steps, float *sums, const int16_t *parts,
               const float *units, const int32_t *small, const int32_t *offsets, const float *left,
               const int8_t *weights, const float *scales, const struct raot_dot_parts *sizes)
{
    const int32_t panel =
        2 * RAOT_PART_COLUMNS / steps * sizes->lines * raot_part_line(bits, steps);

    for (int32_t c = 0; c < sizes->columns; c += RAOT_PART_COLUMNS) {
        const int32_t blocks = raot_part_blocks(steps, sizes->columns - c);
        raot_parts_clear(sums + c);
        raot_parts_lines(bits, steps, sums + c, parts, units, offsets,
                         weights + c / RAOT_PART_COLUMNS * panel,
                         scales + c / RAOT_PART_COLUMNS * raot_part_panel(sizes), sizes, blocks);
    }
    raot_parts_small(bits, steps, sums, small, left, weights, scales, sizes);
}

/* clang-format off */
#define RAOT_PARTS(FORM, STEPS) \
    __attribute__((noinline, unused)) static void raot_split_##FORM##_q8_f32( \
        int16_t *parts, float *units, int32_t *small, const float *left, int32_t depth) \
    { \
        raot_split_row(8, STEPS, parts, units, small, small, left, depth); \
    } \
    __attribute__((noinline, unused)) static void raot_split_##FORM##_q4_f32( \
        int16_t *parts, float *units, int32_t *small, int32_t *offsets, const float *left, \
        int32_t depth) \
    { \
        raot_split_row(4, STEPS, parts, units, small, offsets, left, depth); \
    } \
    __attribute__((noinline, unused)) static void raot_dot_parts_##FORM##_q8( \
        float *sums, const int16_t *parts, const float *units, const int32_t *small, \
        const float *left, const int8_t *weights, const float *scales, \
        const struct raot_dot_parts *sizes) \
    { \
        raot_dot_parts(8, STEPS, sums, parts, units, small, small, left, weights, scales, sizes); \
    } \
    __attribute__((noinline, unused)) static void raot_dot_parts_##FORM##_q4( \
        float *sums, const int16_t *parts, const float *units, const int32_t *small, \
        const int32_t *offsets, const float *left, const uint8_t *weights, const float *scales, \
        const struct raot_dot_parts *sizes) \
    { \
        raot_dot_parts(4, STEPS, sums, parts, units, small, offsets, left, \
                       (const int8_t *)weights, scales, sizes); \
    }
RAOT_PARTS(mve, 8)
RAOT_PARTS(s16, 4)
#undef RAOT_PARTS
/* clang-format on */

#endif
