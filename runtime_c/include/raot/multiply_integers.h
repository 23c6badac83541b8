/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_integers.h - tiles of float contractions by products of integers, for cores without
 * instructions for floats.
 *
 *     sums[r][c] += left[r * left_row + i] * right[c + j]
 *
 * for all r < rows, c < columns, and for (i, j) of three nested loops, the outermost first: lines,
 * taps and steps. `sums` has rows of RAOT_INTEGER_COLUMNS.
 *
 * Up to RAOT_INTEGER_STEPS steps of a sum are a part. The factors of a part are rounded to
 * multiples of 2^-28 of the power of two of the largest one, which are integers, and their products
 * are summed exactly. This changes the sum of n products by at most n 2^-24 times the sum of their
 * magnitudes S, which is what float sums may differ from exact ones by. It needs an S of at least
 * 2^-3 times the product of the powers of two: a part for which neither the sum nor the upper
 * halves of the factors tell that is computed in floats. So are parts with infinities, NaN, or a
 * largest magnitude below 2^-87. The sum of a part is added in 30 bits, and rounded to a float.
 */
#ifndef RAOT_MULTIPLY_INTEGERS_H
#define RAOT_MULTIPLY_INTEGERS_H

#include <stdint.h>

#include "ieee.h"
#include "integer_parts.h"

#define RAOT_INTEGER_COLUMNS 32
/* Lines of integers that there are at least. */
#define RAOT_INTEGER_ROWS 8

struct raot_multiply_integers {
    int32_t rows;
    int32_t columns;
    int32_t lines;
    int32_t taps;
    int32_t depth;
    int32_t left_row;
    int32_t left_line;
    int32_t left_tap;
    int32_t left_step;
    int32_t right_line;
    int32_t right_tap;
    int32_t right_step;
};

#if defined(RAOT_FLOAT_CALLS)
/* The words of `parts`: places of left factors, of right ones, the line of a column, those of rows.
 */
#define RAOT_INTEGER_RIGHT RAOT_INTEGER_STEPS
#define RAOT_INTEGER_COLUMN (RAOT_INTEGER_RIGHT + RAOT_INTEGER_STEPS)
#define RAOT_INTEGER_FIRST (RAOT_INTEGER_COLUMN + RAOT_INTEGER_LINE)
/* Those of a single row whose columns share elements: behind the row, and before a line. */
#define RAOT_INTEGER_SHARED (RAOT_INTEGER_FIRST + RAOT_INTEGER_LINE)
#define RAOT_INTEGER_LAST (RAOT_INTEGER_FIRST + (RAOT_INTEGER_ROWS - 1) * RAOT_INTEGER_LINE)

/* The products of a part in floats, but for those with zeros where all factors are `finite`. */
__attribute__((noinline, unused)) static float raot_integer_floats(float sum, const float *left,
                                                                   const float *right,
                                                                   const int32_t *parts,
                                                                   int32_t count, int finite)
{
    for (int32_t i = 0; i < count; i++) {
        const float x = left[parts[i]];
        const float by = right[parts[RAOT_INTEGER_RIGHT + i]];
        if (finite == 0 || (raot_bitsf(x) << 1 != 0 && raot_bitsf(by) << 1 != 0)) {
            sum = raot_fmaf(x, by, sum);
        }
    }
    return sum;
}

/* Whether the sum of a part has been added, if it tells that it is exact enough, or is `known` to
   be. */
static inline int raot_integer_added(float *sum, int64_t products, int32_t one, int32_t other,
                                     int known)
{
    return (known != 0 || raot_integer_is_enough(products)) &&
           raot_integer_add(sum, products, one + other - 254 - 2 * (RAOT_INTEGER_DIGITS - 1));
}

/* The sum of a part that does not tell that it is exact enough. */
__attribute__((noinline, unused)) static void
raot_integer_rest(float *sum, int64_t products, const int32_t *row, const int32_t *column,
                  const float *left, const float *right, const int32_t *parts, int32_t count)
{
    const int32_t one = row[RAOT_INTEGER_STEPS];
    const int32_t other = column[RAOT_INTEGER_STEPS];

    const int finite = one > 0 && other > 0;

    if (finite != 0) {
        if (raot_integer_is_exact(row, column, count) &&
            raot_integer_added(sum, products, one, other, 1)) {
            return;
        }
    } else {
        if (one >= 0 && other >= 0) {
            return;
        }
    }
    *sum = raot_integer_floats(*sum, left, right, parts, count, finite);
}

/* Zeros in the lines of the last block that do not exist. */
static inline void raot_integer_clear(int32_t *lines, int32_t used, int32_t count)
{
    for (int32_t n = used; n % RAOT_INTEGER_HIGH != 0; n++) {
        for (int32_t i = 0; i < count; i++) {
            lines[n * RAOT_INTEGER_LINE + i] = 0;
        }
    }
}

/* How many elements the columns of a part read, where those of adjacent steps are adjacent. */
static inline int32_t raot_integer_reach(const int32_t *at, int32_t count, int32_t columns)
{
    int32_t reach = 0;

    for (int32_t i = 0; i < count; i++) {
        reach += i > 0 && at[i] == at[i - 1] + 1 ? 1 : columns;
    }
    return reach;
}

/* The integers of all columns of a part, in RAOT_INTEGER_SHARED: `place` gets where those of a step
   begin. Returns their exponent. */
__attribute__((noinline, unused)) static int32_t raot_integer_share(int32_t *place,
                                                                    const float *right,
                                                                    int32_t *parts, int32_t count,
                                                                    int32_t columns)
{
    const int32_t *const at = parts + RAOT_INTEGER_RIGHT;
    int32_t *const shared = parts + RAOT_INTEGER_SHARED;
    const int32_t wide = (columns + RAOT_INTEGER_HIGH - 1) / RAOT_INTEGER_HIGH * RAOT_INTEGER_HIGH;
    uint32_t most = 0;
    int32_t to = 0;

    for (int32_t i = 0; i < count; i++) {
        const int next = i > 0 && at[i] == at[i - 1] + 1;
        const int32_t first = next != 0 ? columns - 1 : 0;
        if (next != 0) {
            to -= wide - columns;
        }
        place[i] = to - first;
        for (int32_t c = first; c < columns; c++) {
            const uint32_t bits = raot_bitsf(right[at[i] + c]);
            shared[to] = (int32_t)bits;
            most = bits << 1 > most ? bits << 1 : most;
            to++;
        }
        for (int32_t c = columns; c < wide; c++) {
            shared[to] = 0;
            to++;
        }
    }
    raot_integer_round(shared, to, raot_integer_exponent(most));
    return raot_integer_exponent(most);
}

/* The sums of the products of a row and of RAOT_INTEGER_HIGH adjacent columns. */
__attribute__((noinline, unused)) static void
raot_integer_near_sums(int64_t sums[RAOT_INTEGER_HIGH], const int32_t *row, const int32_t *columns,
                       const int32_t *place, int32_t count)
{
#if defined(RAOT_INTEGER_HALVES)
    for (int32_t c = 0; c < RAOT_INTEGER_HIGH; c++) {
        sums[c] = raot_integer_sum(row, columns + c, place, count);
    }
#else
    int64_t sum0 = 0;
    int64_t sum1 = 0;
    int64_t sum2 = 0;
    int64_t sum3 = 0;

    for (int32_t i = 0; i < count; i++) {
        const int32_t factor = row[i];
        const int32_t *const near = columns + place[i];
        sum0 += raot_integer_product(near[0], factor);
        sum1 += raot_integer_product(near[1], factor);
        sum2 += raot_integer_product(near[2], factor);
        sum3 += raot_integer_product(near[3], factor);
    }
    sums[0] = sum0;
    sums[1] = sum1;
    sums[2] = sum2;
    sums[3] = sum3;
#endif
}

/* One row, whose columns share elements. */
__attribute__((noinline, unused)) static void raot_integer_near(float *sums, const float *left,
                                                                const float *right, int32_t *parts,
                                                                int32_t count, int32_t columns)
{
    int32_t *const place = parts + RAOT_INTEGER_COLUMN;
    int32_t *const row = parts + RAOT_INTEGER_FIRST;
    int32_t *const column = parts + RAOT_INTEGER_LAST;
    const int32_t *const shared = parts + RAOT_INTEGER_SHARED;

    raot_integer_line(row, left, parts, count);
    const int32_t one = row[RAOT_INTEGER_STEPS];
    column[RAOT_INTEGER_STEPS] = raot_integer_share(place, right, parts, count, columns);
    for (int32_t c = 0; c < columns; c += RAOT_INTEGER_HIGH) {
        const int32_t last = columns - c < RAOT_INTEGER_HIGH ? columns : c + RAOT_INTEGER_HIGH;
        int64_t products[RAOT_INTEGER_HIGH];
        raot_integer_near_sums(products, row, shared + c, place, count);
        for (int32_t n = c; n < last; n++) {
            const int64_t sum = products[n - c];
            if (!raot_integer_added(&sums[n], sum, one, column[RAOT_INTEGER_STEPS], 0)) {
                for (int32_t i = 0; i < count; i++) {
                    column[i] = shared[place[i] + n];
                }
                raot_integer_rest(&sums[n], sum, row, column, left, right + n, parts, count);
            }
        }
    }
}

/* The integers of so many rows of a part. */
static inline void raot_integer_rows(const float *left, int32_t *parts, int32_t count, int32_t rows,
                                     int32_t step)
{
    int32_t *row = parts + RAOT_INTEGER_FIRST;

    for (int32_t r = 0; r < rows; r++) {
        raot_integer_line(row, left + r * step, parts, count);
        row += RAOT_INTEGER_LINE;
    }
}

/* Less than RAOT_INTEGER_HIGH rows: each with so many columns together. */
__attribute__((noinline, unused)) static void
raot_integer_few(float *sums, const float *left, const float *right, int32_t *parts, int32_t count,
                 const struct raot_multiply_integers *is)
{
    int32_t *const first = parts + RAOT_INTEGER_FIRST + is->rows * RAOT_INTEGER_LINE;

    raot_integer_rows(left, parts, count, is->rows, is->left_row);
    for (int32_t c = 0; c < is->columns; c += RAOT_INTEGER_HIGH) {
        const int32_t last =
            is->columns - c < RAOT_INTEGER_HIGH ? is->columns : c + RAOT_INTEGER_HIGH;
        for (int32_t n = c; n < last; n++) {
            raot_integer_line(first + (n - c) * RAOT_INTEGER_LINE, right + n,
                              parts + RAOT_INTEGER_RIGHT, count);
        }
        raot_integer_clear(first, last - c, count);
        for (int32_t r = 0; r < is->rows; r++) {
            const int32_t *const row = parts + RAOT_INTEGER_FIRST + r * RAOT_INTEGER_LINE;
            int64_t products[RAOT_INTEGER_HIGH];
            raot_integer_sums(products, first, row, count);
            for (int32_t n = c; n < last; n++) {
                const int32_t *const column = first + (n - c) * RAOT_INTEGER_LINE;
                const int64_t sum = products[n - c];
                float *const to = sums + r * RAOT_INTEGER_COLUMNS + n;
                if (!raot_integer_added(to, sum, row[RAOT_INTEGER_STEPS],
                                        column[RAOT_INTEGER_STEPS], 0)) {
                    raot_integer_rest(to, sum, row, column, left + r * is->left_row, right + n,
                                      parts, count);
                }
            }
        }
    }
}

/* RAOT_INTEGER_HIGH rows and more. */
__attribute__((noinline, unused)) static void
raot_integer_many(float *sums, const float *left, const float *right, int32_t *parts, int32_t count,
                  const struct raot_multiply_integers *is)
{
    int32_t *const column = parts + RAOT_INTEGER_COLUMN;
    int32_t *const first = parts + RAOT_INTEGER_FIRST;

    raot_integer_rows(left, parts, count, is->rows, is->left_row);
    raot_integer_clear(first, is->rows, count);
    for (int32_t c = 0; c < is->columns; c++) {
        raot_integer_line(column, right + c, parts + RAOT_INTEGER_RIGHT, count);
        const int32_t other = column[RAOT_INTEGER_STEPS];
        for (int32_t r = 0; r < is->rows; r += RAOT_INTEGER_HIGH) {
            const int32_t *row = first + r * RAOT_INTEGER_LINE;
            const int32_t last =
                is->rows - r < RAOT_INTEGER_HIGH ? is->rows : r + RAOT_INTEGER_HIGH;
            int64_t products[RAOT_INTEGER_HIGH];
            raot_integer_sums(products, row, column, count);
            for (int32_t n = r; n < last; n++) {
                float *const sum = sums + n * RAOT_INTEGER_COLUMNS + c;
                const int32_t one = row[RAOT_INTEGER_STEPS];
                if (!raot_integer_added(sum, products[n - r], one, other, 0)) {
                    raot_integer_rest(sum, products[n - r], row, column, left + n * is->left_row,
                                      right + c, parts, count);
                }
                row += RAOT_INTEGER_LINE;
            }
        }
    }
}

/* All rows and columns of a part of `count` steps. */
static inline void raot_integer_part(float *sums, const float *left, const float *right,
                                     int32_t *parts, int32_t count,
                                     const struct raot_multiply_integers *is)
{
    if (is->rows >= RAOT_INTEGER_HIGH) {
        raot_integer_many(sums, left, right, parts, count, is);
    } else {
        const int32_t reach = raot_integer_reach(parts + RAOT_INTEGER_RIGHT, count, is->columns);
        const int32_t room = RAOT_INTEGER_LAST - RAOT_INTEGER_SHARED - 3 * count;
        if (is->rows == 1 && reach <= room && 2 * reach <= count * is->columns) {
            raot_integer_near(sums, left, right, parts, count, is->columns);
        } else {
            raot_integer_few(sums, left, right, parts, count, is);
        }
    }
}
#endif

__attribute__((noinline, unused)) static void
raot_multiply_integers_f32(float *sums, const float *left, const float *right, int32_t *parts,
                           const struct raot_multiply_integers *is)
{
    int32_t count = 0;

    for (int32_t i = 0; i < is->lines; i++) {
        for (int32_t j = 0; j < is->taps; j++) {
            int32_t left_at = i * is->left_line + j * is->left_tap;
            int32_t right_at = i * is->right_line + j * is->right_tap;
            for (int32_t k = 0; k < is->depth; k++) {
#if defined(RAOT_FLOAT_CALLS)
                parts[count] = left_at;
                parts[RAOT_INTEGER_RIGHT + count] = right_at;
                count++;
                if (count == RAOT_INTEGER_STEPS) {
                    raot_integer_part(sums, left, right, parts, count, is);
                    count = 0;
                }
#else
                for (int32_t r = 0; r < is->rows; r++) {
                    const float factor = left[r * is->left_row + left_at];
                    for (int32_t c = 0; c < is->columns; c++) {
                        float *const sum = sums + r * RAOT_INTEGER_COLUMNS + c;
                        *sum = raot_fmaf(factor, right[right_at + c], *sum);
                    }
                }
#endif
                left_at += is->left_step;
                right_at += is->right_step;
            }
        }
    }
#if defined(RAOT_FLOAT_CALLS)
    if (count > 0) {
        raot_integer_part(sums, left, right, parts, count, is);
    }
#else
    (void)parts;
    (void)count;
#endif
}

#endif
