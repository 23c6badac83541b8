/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_f32.h - float depthwise convolutions with channels last: adjacent output positions.
 *
 *     sums[p][c] = start[c] + sum over taps i, j of
 *         x[p * step + i * row_step + j * tap_step + c] * weights[i * weight_row + j * channels +
 * c]
 *
 * for `rows` x `taps` taps, in this order, by raot_fmaf. With vectors, the sums of some positions
 * stay in registers, and positions share each vector of weights. The last block of positions ends
 * at the last one, and the last vector of channels too: some sums are computed twice.
 */
#ifndef RAOT_DEPTHWISE_F32_H
#define RAOT_DEPTHWISE_F32_H

#include <stdint.h>

#include "function.h"
#include "ieee.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

struct raot_depthwise {
    int32_t positions;
    int32_t channels;
    int32_t step;
    int32_t rows;
    int32_t row_step;
    int32_t taps;
    int32_t tap_step;
    int32_t weight_row;
};

#if defined(__AVX2__) && defined(__FMA__)
/*
 *     RAOT_DEPTHWISE_HIGH   positions of a block, with sums of up to two vectors each; one
 *                           position has up to four
 *     RAOT_DEPTHWISE_NEAR   positions of a block where each is a tap of the one before it: a vector
 *                           of x is read once for all of its taps
 *     RAOT_DEPTHWISE_MOST   taps of a row of such windows, whose weights fit in registers
 */
#define RAOT_DEPTHWISE_NEAR 8
#if defined(__AVX512F__)
#define RAOT_DEPTHWISE_LANES 16
#define RAOT_DEPTHWISE_HIGH 8
#define RAOT_DEPTHWISE_MOST 7
#define RAOT_DEPTHWISE_X86(operation) _mm512_##operation
typedef __m512 raot_depthwise_lanes;
#else
#define RAOT_DEPTHWISE_LANES 8
#define RAOT_DEPTHWISE_HIGH 4
#define RAOT_DEPTHWISE_MOST 5
#define RAOT_DEPTHWISE_X86(operation) _mm256_##operation
typedef __m256 raot_depthwise_lanes;
#endif
#if defined(__clang__)
#define RAOT_DEPTHWISE_UNROLL
#else
#define RAOT_DEPTHWISE_UNROLL _Pragma("GCC unroll 16")
#endif

/* `high` and `wide` are constants in every call, so the sums are in registers. */
RAOT_INLINE static inline void raot_depthwise_block_f32(const int32_t high, const int32_t wide,
                                                        float *sums, const float *x,
                                                        const float *weights, const float *start,
                                                        const struct raot_depthwise *sizes)
{
    raot_depthwise_lanes kept[2 * RAOT_DEPTHWISE_HIGH];

    RAOT_DEPTHWISE_UNROLL
    for (int32_t p = 0; p < high; p++) {
        RAOT_DEPTHWISE_UNROLL
        for (int32_t v = 0; v < wide; v++) {
            kept[p * wide + v] = RAOT_DEPTHWISE_X86(loadu_ps)(start + v * RAOT_DEPTHWISE_LANES);
        }
    }
    for (int32_t i = 0; i < sizes->rows; i++) {
        const float *a = x + i * sizes->row_step;
        const float *b = weights + i * sizes->weight_row;

        for (int32_t j = 0; j < sizes->taps; j++) {
            raot_depthwise_lanes by[4];

            RAOT_DEPTHWISE_UNROLL
            for (int32_t v = 0; v < wide; v++) {
                by[v] = RAOT_DEPTHWISE_X86(loadu_ps)(b + v * RAOT_DEPTHWISE_LANES);
            }
            RAOT_DEPTHWISE_UNROLL
            for (int32_t p = 0; p < high; p++) {
                RAOT_DEPTHWISE_UNROLL
                for (int32_t v = 0; v < wide; v++) {
                    const float *const from = a + p * sizes->step + v * RAOT_DEPTHWISE_LANES;

                    kept[p * wide + v] = RAOT_DEPTHWISE_X86(fmadd_ps)(
                        RAOT_DEPTHWISE_X86(loadu_ps)(from), by[v], kept[p * wide + v]);
                }
            }
            a += sizes->tap_step;
            b += sizes->channels;
        }
    }
    RAOT_DEPTHWISE_UNROLL
    for (int32_t p = 0; p < high; p++) {
        RAOT_DEPTHWISE_UNROLL
        for (int32_t v = 0; v < wide; v++) {
            RAOT_DEPTHWISE_X86(storeu_ps)
            (sums + p * sizes->channels + v * RAOT_DEPTHWISE_LANES, kept[p * wide + v]);
        }
    }
}

/* A block of windows of which each begins one tap after the one before; `taps`: a constant. */
RAOT_INLINE static inline void raot_depthwise_near_f32(const int32_t high, const int32_t taps,
                                                       float *sums, const float *x,
                                                       const float *weights, const float *start,
                                                       const struct raot_depthwise *sizes)
{
    raot_depthwise_lanes kept[RAOT_DEPTHWISE_NEAR];

    RAOT_DEPTHWISE_UNROLL
    for (int32_t p = 0; p < high; p++) {
        kept[p] = RAOT_DEPTHWISE_X86(loadu_ps)(start);
    }
    for (int32_t i = 0; i < sizes->rows; i++) {
        const float *a = x + i * sizes->row_step;
        const float *const b = weights + i * sizes->weight_row;
        raot_depthwise_lanes by[RAOT_DEPTHWISE_MOST];

        RAOT_DEPTHWISE_UNROLL
        for (int32_t j = 0; j < taps; j++) {
            by[j] = RAOT_DEPTHWISE_X86(loadu_ps)(b + j * sizes->channels);
        }
        RAOT_DEPTHWISE_UNROLL
        for (int32_t q = 0; q < high + taps - 1; q++) {
            const raot_depthwise_lanes here = RAOT_DEPTHWISE_X86(loadu_ps)(a);

            RAOT_DEPTHWISE_UNROLL
            for (int32_t j = 0; j < taps; j++) {
                if (q >= j && q - j < high) {
                    kept[q - j] = RAOT_DEPTHWISE_X86(fmadd_ps)(here, by[j], kept[q - j]);
                }
            }
            a += sizes->step;
        }
    }
    RAOT_DEPTHWISE_UNROLL
    for (int32_t p = 0; p < high; p++) {
        RAOT_DEPTHWISE_X86(storeu_ps)(sums + p * sizes->channels, kept[p]);
    }
}

/* Blocks of all positions, `high` of them each; the last one ends at the last position. */
#define RAOT_DEPTHWISE_BLOCKS(high, block, ...)                                                   \
    do {                                                                                          \
        for (int32_t p = 0; p < sizes->positions; p += (high)) {                                  \
            const int32_t at = p + (high) > sizes->positions ? sizes->positions - (high) : p;     \
                                                                                                  \
            block(__VA_ARGS__, sums + at * sizes->channels, x + at * sizes->step, weights, start, \
                  sizes);                                                                         \
        }                                                                                         \
    } while (0)

/* All positions, of up to `wide` vectors of channels; returns how many vectors. */
RAOT_INLINE static inline int32_t raot_depthwise_wide_f32(int32_t wide, float *sums, const float *x,
                                                          const float *weights, const float *start,
                                                          const struct raot_depthwise *sizes)
{
    if (sizes->positions < 3 && wide >= 4) {
        RAOT_DEPTHWISE_BLOCKS(1, raot_depthwise_block_f32, 1, 4);
        return 4;
    }
    if (sizes->positions < 3) {
        RAOT_DEPTHWISE_BLOCKS(1, raot_depthwise_block_f32, 1, 1);
        return 1;
    }
    if (sizes->positions < RAOT_DEPTHWISE_HIGH && wide >= 2) {
        RAOT_DEPTHWISE_BLOCKS(3, raot_depthwise_block_f32, 3, 2);
        return 2;
    }
    if (sizes->positions < RAOT_DEPTHWISE_HIGH) {
        RAOT_DEPTHWISE_BLOCKS(3, raot_depthwise_block_f32, 3, 1);
        return 1;
    }
    if (wide >= 2) {
        RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_HIGH, raot_depthwise_block_f32, RAOT_DEPTHWISE_HIGH,
                              2);
        return 2;
    }
    RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_HIGH, raot_depthwise_block_f32, RAOT_DEPTHWISE_HIGH, 1);
    return 1;
}

/* Windows near each other of 3, 5 or 7 taps, at four positions at least: all of one vector of
 * channels. Returns whether they are such. */
RAOT_INLINE static inline int32_t raot_depthwise_nears_f32(float *sums, const float *x,
                                                           const float *weights, const float *start,
                                                           const struct raot_depthwise *sizes)
{
    const int32_t few = sizes->positions < RAOT_DEPTHWISE_NEAR;

    if (sizes->step != sizes->tap_step || sizes->positions < RAOT_DEPTHWISE_NEAR / 2) {
        return 0;
    }
    if (sizes->taps == 3 && few) {
        RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_NEAR / 2, raot_depthwise_near_f32,
                              RAOT_DEPTHWISE_NEAR / 2, 3);
    } else if (sizes->taps == 3) {
        RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_NEAR, raot_depthwise_near_f32, RAOT_DEPTHWISE_NEAR, 3);
    } else if (sizes->taps == 5 && few) {
        RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_NEAR / 2, raot_depthwise_near_f32,
                              RAOT_DEPTHWISE_NEAR / 2, 5);
    } else if (sizes->taps == 5) {
        RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_NEAR, raot_depthwise_near_f32, RAOT_DEPTHWISE_NEAR, 5);
#if RAOT_DEPTHWISE_MOST >= 7
    } else if (sizes->taps == 7 && !few) {
        RAOT_DEPTHWISE_BLOCKS(RAOT_DEPTHWISE_NEAR, raot_depthwise_near_f32, RAOT_DEPTHWISE_NEAR, 7);
#endif
    } else {
        return 0;
    }
    return 1;
}
#endif

__attribute__((noinline, unused)) static void raot_depthwise_f32(float *sums, const float *x,
                                                                 const float *weights,
                                                                 const float *start,
                                                                 const struct raot_depthwise *sizes)
{
    const int32_t channels = sizes->channels;

#if defined(RAOT_DEPTHWISE_LANES)
    int32_t first = 0;

    while (channels >= RAOT_DEPTHWISE_LANES && first < channels) {
        if (channels - first < RAOT_DEPTHWISE_LANES) {
            first = channels - RAOT_DEPTHWISE_LANES;
        }
        if (raot_depthwise_nears_f32(sums + first, x + first, weights + first, start + first,
                                     sizes) != 0) {
            first += RAOT_DEPTHWISE_LANES;
        } else {
            first +=
                RAOT_DEPTHWISE_LANES *
                raot_depthwise_wide_f32((channels - first) / RAOT_DEPTHWISE_LANES, sums + first,
                                        x + first, weights + first, start + first, sizes);
        }
    }
    if (channels >= RAOT_DEPTHWISE_LANES) {
        return;
    }
#endif
    for (int32_t p = 0; p < sizes->positions; p++) {
        float *const to = sums + p * channels;

        for (int32_t c = 0; c < channels; c++) {
            to[c] = start[c];
        }
        for (int32_t i = 0; i < sizes->rows; i++) {
            for (int32_t j = 0; j < sizes->taps; j++) {
                const float *const a =
                    x + p * sizes->step + i * sizes->row_step + j * sizes->tap_step;
                const float *const b = weights + i * sizes->weight_row + j * channels;

                for (int32_t c = 0; c < channels; c++) {
                    to[c] = raot_fmaf(a[c], b[c], to[c]);
                }
            }
        }
    }
}

#endif
