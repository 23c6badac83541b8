/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply.h - tiles of float contractions.
 *
 *     sums[r][c] = fma(left[r * left_row + i], right[c + j], sums[r][c])
 *
 * for all r < rows, c < columns, and for (i, j) of three nested loops, the outermost first: level
 * l has `count` iterations with steps of `left` and `right` elements. Each sum is accumulated in
 * this order by raot_fmaf, so a vector unit gives the same bits.
 *
 * rows is 1..RAOT_TILE_ROWS and columns 1..RAOT_TILE_COLUMNS. `sums` has rows of
 * RAOT_TILE_COLUMNS; elements beyond `columns` are undefined afterwards. Elements of `right`
 * beyond `columns` are not read.
 */
#ifndef RAOT_MULTIPLY_H
#define RAOT_MULTIPLY_H

#include <stdint.h>

#include "assembly.h"
#include "ieee.h"
#include "mve.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define RAOT_TILE_ROWS 24
#define RAOT_TILE_COLUMNS 32
/* Columns at most of a row whose sums are in registers, in multiply_store.h. */
#define RAOT_ROW_COLUMNS 64

/* `a * b` added to a sum: by two instructions where that is faster than FMA. */
#if defined(RAOT_SEPARATE)
#define RAOT_ADD_PRODUCT(a, b, sum) raot_madf(a, b, sum)
#else
#define RAOT_ADD_PRODUCT(a, b, sum) raot_fmaf(a, b, sum)
#endif

struct raot_level {
    int32_t count;
    int32_t left;
    int32_t right;
};

#if defined(__thumb2__) && defined(__ARM_FEATURE_FMA) && __ARM_ARCH_PROFILE == 'M' && \
    !defined(RAOT_MVE_F32)
#define RAOT_VFP
#include "multiply_vfp.h"
#elif defined(RAOT_MVE_F32) && defined(__OPTIMIZE_SIZE__)
#define RAOT_SMALL_MVE
#include "multiply_mve.h"
#endif

/*
 *     RAOT_LANES    floats in a vector
 *     RAOT_WIDE     vectors of sums in a row of a block
 *     RAOT_HIGH     rows of a block; its sums are kept in registers
 *     RAOT_LOW      up to this number of rows, a block has all columns: more independent sums
 *                   hide the latency of the FMA
 *     RAOT_ALL_LOW  tiles with all columns are computed in such blocks, however many rows they
 *                   have. Three rows of 32 columns read 7 vectors for 12 FMAs, six rows of 16 read
 *                   8; and rows whose distance is a multiple of 64 bytes, which are most, lie in
 *                   one bank of the cache of AMD's processors, which reads one of them in a cycle
 *     RAOT_AHEAD    blocks with all columns ask the cache for the row of packed weights that they
 *                   read after this number of iterations: weights come from far
 *     RAOT_STEPS    unrolled iterations of the innermost loop, if the left operand is contiguous
 *                   and the right operand has the step RAOT_NEXT; raot_steps is a vector of their
 *                   factors, and raot_lanes_step multiplies by one of them
 *     RAOT_APART    keeps the compiler from interleaving iterations, which needs too many registers
 */
#if defined(__AVX512F__)
#define RAOT_LANES 16
#define RAOT_WIDE 2
#define RAOT_HIGH 6
#define RAOT_LOW 2
typedef __m512 raot_lanes;

static inline raot_lanes raot_lanes_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void raot_lanes_store(float *to, raot_lanes value)
{
    _mm512_storeu_ps(to, value);
}

static inline raot_lanes raot_lanes_some(const float *from, int32_t count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((uint32_t)0xffffu >> (16 - count)), from);
}

static inline raot_lanes raot_lanes_fma(float a, raot_lanes b, raot_lanes c)
{
    return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c);
}

#elif defined(__AVX2__) && defined(__FMA__)
#define RAOT_LANES 8
#define RAOT_WIDE 2
#define RAOT_HIGH 6
#define RAOT_LOW 3
#define RAOT_ALL_LOW
#define RAOT_AHEAD 16
typedef __m256 raot_lanes;

static inline raot_lanes raot_lanes_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void raot_lanes_store(float *to, raot_lanes value)
{
    _mm256_storeu_ps(to, value);
}

static inline raot_lanes raot_lanes_some(const float *from, int32_t count)
{
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), place));
}

static inline raot_lanes raot_lanes_fma(float a, raot_lanes b, raot_lanes c)
{
    return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
}

#elif defined(__ARM_NEON) && defined(__aarch64__)
#define RAOT_LANES 4
#define RAOT_WIDE 2
#define RAOT_HIGH 8
#define RAOT_LOW 2
#define RAOT_STEPS 4
#define RAOT_NEXT(step) RAOT_TILE_COLUMNS
#if defined(RAOT_ASM_INLINE)
#define RAOT_APART() __asm__ volatile("" ::: "memory")
#else
#define RAOT_APART() (void)0
#endif
typedef float32x4_t raot_lanes;
typedef float32x4_t raot_steps;

static inline raot_lanes raot_lanes_load(const float *from)
{
    return vld1q_f32(from);
}

static inline void raot_lanes_store(float *to, raot_lanes value)
{
    vst1q_f32(to, value);
}

static inline raot_lanes raot_lanes_some(const float *from, int32_t count)
{
    switch (count) {
    case 1:
        return vld1q_lane_f32(from, vdupq_n_f32(0.0f), 0);
    case 2:
        return vcombine_f32(vld1_f32(from), vdup_n_f32(0.0f));
    case 3:
        return vld1q_lane_f32(from + 2, vcombine_f32(vld1_f32(from), vdup_n_f32(0.0f)), 2);
    default:
        return vld1q_f32(from);
    }
}

static inline raot_lanes raot_lanes_fma(float a, raot_lanes b, raot_lanes c)
{
    return vfmaq_n_f32(c, b, a);
}

static inline raot_steps raot_steps_load(const float *from)
{
    return vld1q_f32(from);
}

static inline raot_lanes raot_lanes_step(raot_steps a, const int32_t step, raot_lanes b,
                                         raot_lanes c)
{
    switch (step) {
    case 0:
        return vfmaq_laneq_f32(c, b, a, 0);
    case 1:
        return vfmaq_laneq_f32(c, b, a, 1);
    case 2:
        return vfmaq_laneq_f32(c, b, a, 2);
    default:
        return vfmaq_laneq_f32(c, b, a, 3);
    }
}

#elif defined(RAOT_MVE_F32) && !defined(RAOT_SMALL_MVE)
/* Helium's floating point flushes subnormal numbers to zero (Arm DDI 0553, StandardFPSCRValue). */
#define RAOT_LANES 4
#define RAOT_WIDE 2
#define RAOT_HIGH 3
#define RAOT_LOW 0
#define RAOT_MVE_ROWS
typedef float32x4_t raot_lanes;

static inline raot_lanes raot_lanes_load(const float *from)
{
    return vld1q_f32(from);
}

static inline void raot_lanes_store(float *to, raot_lanes value)
{
    vst1q_f32(to, value);
}

static inline raot_lanes raot_lanes_some(const float *from, int32_t count)
{
    return vld1q_z_f32(from, vctp32q((uint32_t)count));
}

static inline raot_lanes raot_lanes_fma(float a, raot_lanes b, raot_lanes c)
{
    return vfmaq_n_f32(c, b, a);
}
#endif

#if defined(RAOT_LANES)
#if defined(__GNUC__)
#define RAOT_SAID(condition) ((condition) ? (void)0 : __builtin_unreachable())
#else
#define RAOT_SAID(condition) (void)(condition)
#endif
#if defined(__clang__)
#define RAOT_UNROLL
#else
#define RAOT_UNROLL _Pragma("GCC unroll 8")
#endif

/*
 * One iteration: a row of the right operand times the factor of each row. Whichever is shorter, the
 * vectors of the right operand or the factors, stays in registers.
 */
#define RAOT_STEP(b, factor_of)                                                            \
    do {                                                                                   \
        raot_lanes factor[RAOT_ROW_COLUMNS / RAOT_LANES];                                  \
        RAOT_UNROLL                                                                        \
        for (int32_t w = 0; w < wide; w++) {                                               \
            factor[w] = some != 0 && w == wide - 1                                         \
                            ? raot_lanes_some((b) + w * RAOT_LANES, some - w * RAOT_LANES) \
                            : raot_lanes_load((b) + w * RAOT_LANES);                       \
            if (rows < wide) {                                                             \
                RAOT_UNROLL                                                                \
                for (int32_t r = 0; r < rows; r++) {                                       \
                    kept[r][w] = factor_of;                                                \
                }                                                                          \
            }                                                                              \
        }                                                                                  \
        if (rows >= wide) {                                                                \
            RAOT_UNROLL                                                                    \
            for (int32_t r = 0; r < rows; r++) {                                           \
                RAOT_UNROLL                                                                \
                for (int32_t w = 0; w < wide; w++) {                                       \
                    kept[r][w] = factor_of;                                                \
                }                                                                          \
            }                                                                              \
        }                                                                                  \
    } while (0)

#if defined(RAOT_MVE_ROWS)
/*
 * `count` iterations of a tile with contiguous rows of `left`. The second vector of `right` is
 * loaded first, because GCC 12 generates a post-increment and a copy for the other order.
 */
__attribute__((always_inline)) static inline void
raot_tile_mve_rows(const int32_t rows, const int32_t wide, const int32_t some, int32_t count,
                   raot_lanes kept[RAOT_HIGH][RAOT_TILE_COLUMNS / RAOT_LANES], const float *left,
                   int32_t left_row, const float *right, int32_t right_step)
{
    const mve_pred16_t lanes = vctp32q((uint32_t)(some - (wide - 1) * RAOT_LANES));
    const float *from[RAOT_HIGH];

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        from[r] = left + r * left_row;
    }
    for (; count > 0; count--) {
        raot_lanes factor[RAOT_WIDE];
        RAOT_UNROLL
        for (int32_t w = wide - 1; w >= 0; w--) {
            factor[w] = some != 0 && w == wide - 1 ? vld1q_z_f32(right + w * RAOT_LANES, lanes)
                                                   : vld1q_f32(right + w * RAOT_LANES);
        }
        right += right_step;
        RAOT_KEEP_ADDRESS(right);
        RAOT_UNROLL
        for (int32_t r = 0; r < rows; r++) {
            const float by = *from[r]++;
            RAOT_UNROLL
            for (int32_t w = 0; w < wide; w++) {
                kept[r][w] = vfmaq_n_f32(kept[r][w], factor[w], by);
            }
        }
    }
}
#endif

/* `rows` and `wide` are constants in every call, so the sums are in registers. */
__attribute__((always_inline)) static inline void
raot_tile_f32(const int32_t rows, const int32_t wide, const int32_t some,
              const struct raot_level *levels, const float *left, int32_t left_row,
              const float *right, float *sums)
{
    const int32_t left_step = levels[2].left;
    const int32_t right_step = levels[2].right;
    raot_lanes kept[RAOT_HIGH > RAOT_LOW ? RAOT_HIGH : RAOT_LOW][RAOT_TILE_COLUMNS / RAOT_LANES];

    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            kept[r][w] = raot_lanes_load(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES]);
        }
    }
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            int32_t k = levels[2].count;
#if defined(RAOT_STEPS)
            const int32_t next = RAOT_NEXT(right_step);
            const int32_t blocks = left_step == 1 && right_step == next ? k / RAOT_STEPS : 0;
            for (int32_t block = 0; block < blocks; block++) {
                raot_steps steps[RAOT_HIGH];
                RAOT_UNROLL
                for (int32_t r = 0; r < rows; r++) {
                    steps[r] = raot_steps_load(&a[r * left_row]);
                }
                RAOT_UNROLL
                for (int32_t s = 0; s < RAOT_STEPS; s++) {
                    RAOT_STEP(b, raot_lanes_step(steps[r], s, factor[w], kept[r][w]));
                    b += next;
                    RAOT_APART();
                }
                a += RAOT_STEPS;
            }
            k -= blocks * RAOT_STEPS;
#elif defined(RAOT_MVE_ROWS)
            if (left_step == 1) {
                raot_tile_mve_rows(rows, wide, some, k, kept, a, left_row, b, right_step);
                continue;
            }
#endif
            for (; k > 0; k--) {
#if defined(RAOT_AHEAD)
                if (wide * RAOT_LANES == RAOT_TILE_COLUMNS) {
                    const uintptr_t next =
                        (uintptr_t)b + RAOT_AHEAD * RAOT_TILE_COLUMNS * sizeof(float);
                    _mm_prefetch((const char *)next, _MM_HINT_T0);
                    _mm_prefetch((const char *)next + 64, _MM_HINT_T0);
                }
#endif
                RAOT_STEP(b, raot_lanes_fma(a[r * left_row], factor[w], kept[r][w]));
                a += left_step;
                b += right_step;
            }
        }
    }
    RAOT_UNROLL
    for (int32_t r = 0; r < rows; r++) {
        RAOT_UNROLL
        for (int32_t w = 0; w < wide; w++) {
            raot_lanes_store(&sums[r * RAOT_TILE_COLUMNS + w * RAOT_LANES], kept[r][w]);
        }
    }
}

/* Rows of the first block of `rows`. */
static inline int32_t raot_block_rows(int32_t rows)
{
#if RAOT_LOW > 0
    /* The last rows are split evenly: 8 rows are 4 and 4, because two rows alone would stall. */
    if (rows > RAOT_HIGH && rows < 2 * RAOT_HIGH) {
        return (rows + 1) / 2;
    }
#endif
    return rows < RAOT_HIGH ? rows : RAOT_HIGH;
}

/* Up to RAOT_HIGH rows; `wide` as above. */
__attribute__((always_inline)) static inline void
raot_tile_rows_f32(int32_t rows, const int32_t wide, const int32_t some,
                   const struct raot_level *levels, const float *left, int32_t left_row,
                   const float *right, float *sums)
{
#if defined(RAOT_MVE_ROWS)
    /* Two rows are rare: one at a time, to save code. */
    if (rows < RAOT_HIGH) {
        for (int32_t r = 0; r < rows; r++) {
            raot_tile_f32(1, wide, some, levels, left + r * left_row, 0, right,
                          sums + r * RAOT_TILE_COLUMNS);
        }
        return;
    }
    raot_tile_f32(RAOT_HIGH, wide, some, levels, left, left_row, right, sums);
#else
    switch (rows) {
    case 1:
        raot_tile_f32(1, wide, some, levels, left, left_row, right, sums);
        break;
    case 2:
        raot_tile_f32(2, wide, some, levels, left, left_row, right, sums);
        break;
#if RAOT_HIGH > 3
    case 3:
        raot_tile_f32(3, wide, some, levels, left, left_row, right, sums);
        break;
    case 4:
        raot_tile_f32(4, wide, some, levels, left, left_row, right, sums);
        break;
    case 5:
        raot_tile_f32(5, wide, some, levels, left, left_row, right, sums);
        break;
#endif
#if RAOT_HIGH > 6
    case 6:
        raot_tile_f32(6, wide, some, levels, left, left_row, right, sums);
        break;
    case 7:
        raot_tile_f32(7, wide, some, levels, left, left_row, right, sums);
        break;
#endif
    default:
        raot_tile_f32(RAOT_HIGH, wide, some, levels, left, left_row, right, sums);
        break;
    }
#endif
}

#if RAOT_LOW > 0
__attribute__((noinline, unused)) static void
raot_tile_whole_f32(int32_t rows, const struct raot_level *levels, const float *left,
                    int32_t left_row, const float *right, float *sums)
{
    const int32_t wide = RAOT_TILE_COLUMNS / RAOT_LANES;

    if (rows == 1) {
        raot_tile_f32(1, wide, 0, levels, left, left_row, right, sums);
    } else if (RAOT_LOW < 3 || rows == 2) {
        raot_tile_f32(2, wide, 0, levels, left, left_row, right, sums);
    } else {
        raot_tile_f32(RAOT_LOW, wide, 0, levels, left, left_row, right, sums);
    }
}
#endif

__attribute__((noinline, unused)) static void
raot_tile_wide_f32(int32_t rows, const struct raot_level *levels, const float *left,
                   int32_t left_row, const float *right, float *sums)
{
    raot_tile_rows_f32(rows, RAOT_WIDE, 0, levels, left, left_row, right, sums);
}

__attribute__((noinline, unused)) static void
raot_tile_part_f32(int32_t rows, int32_t some, const struct raot_level *levels, const float *left,
                   int32_t left_row, const float *right, float *sums)
{
    RAOT_SAID(some > RAOT_LANES);
    raot_tile_rows_f32(rows, RAOT_WIDE, some, levels, left, left_row, right, sums);
}

__attribute__((noinline, unused)) static void
raot_tile_some_f32(int32_t rows, int32_t some, const struct raot_level *levels, const float *left,
                   int32_t left_row, const float *right, float *sums)
{
    RAOT_SAID(some > 0);
    raot_tile_rows_f32(rows, 1, some, levels, left, left_row, right, sums);
}
#endif

static inline void raot_multiply_f32(int32_t rows, int32_t columns, const struct raot_level *levels,
                                     const float *left, int32_t left_row, const float *right,
                                     float *sums)
{
#if defined(RAOT_LANES)
    int32_t high;

#if defined(RAOT_ALL_LOW)
    if (columns == RAOT_TILE_COLUMNS) {
        for (int32_t r = 0; r < rows; r += high) {
            /* Four rows are 2 and 2: one row alone would stall. */
            high = rows - r == RAOT_LOW + 1 ? 2 : rows - r < RAOT_LOW ? rows - r : RAOT_LOW;
            raot_tile_whole_f32(high, levels, left + r * left_row, left_row, right,
                                sums + r * RAOT_TILE_COLUMNS);
        }
        return;
    }
#elif RAOT_LOW > 0
    if (rows <= RAOT_LOW && columns == RAOT_TILE_COLUMNS) {
        raot_tile_whole_f32(rows, levels, left, left_row, right, sums);
        return;
    }
#endif

    for (int32_t r = 0; r < rows; r += high) {
        high = raot_block_rows(rows - r);
        const float *const rest = left + r * left_row;
        float *const row = sums + r * RAOT_TILE_COLUMNS;
        int32_t c = 0;
        for (; c + RAOT_WIDE * RAOT_LANES <= columns; c += RAOT_WIDE * RAOT_LANES) {
            raot_tile_wide_f32(high, levels, rest, left_row, right + c, row + c);
        }
        if (columns - c > RAOT_LANES) {
            raot_tile_part_f32(high, columns - c, levels, rest, left_row, right + c, row + c);
        } else {
            if (columns > c) {
                raot_tile_some_f32(high, columns - c, levels, rest, left_row, right + c, row + c);
            }
        }
    }
#elif defined(RAOT_VFP)
    raot_tile_vfp_f32(rows, columns, levels, left, left_row, right, sums);
#elif defined(RAOT_SMALL_MVE)
    raot_tile_mve_f32(rows, columns, levels, left, left_row, right, sums);
#else
    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            for (int32_t k = 0; k < levels[2].count; k++) {
                const float *const a =
                    left + (i * levels[0].left + j * levels[1].left + k * levels[2].left);
                const float *const b =
                    right + (i * levels[0].right + j * levels[1].right + k * levels[2].right);
                /*@ loop unroll 64; */
                for (int32_t r = 0; r < rows; r++) {
                    const float factor = a[r * left_row];
                    float *const row = sums + r * RAOT_TILE_COLUMNS;
                    for (int32_t c = 0; c < columns; c++) {
                        row[c] = raot_fmaf(factor, b[c], row[c]);
                    }
                }
            }
        }
    }
#endif
}

#endif
