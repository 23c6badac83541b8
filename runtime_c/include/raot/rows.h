/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - rows of states: those of a window move, and the first ones may be constants. */
#ifndef RAOT_ROWS_H
#define RAOT_ROWS_H

#include <stddef.h>
#include <string.h>

/*
 * Moves `rows` rows from row `first` to row 0, in each of `blocks` blocks with memory for `places`
 * rows of `row_bytes` bytes. `first + rows` is at most `places`.
 */
static inline void raot_move_rows(void *state, size_t blocks, size_t row_bytes, size_t places,
                                  size_t first, size_t rows)
{
    unsigned char *const bytes = state;

    for (size_t block = 0u; block < blocks; block++) {
        unsigned char *const start = bytes + block * places * row_bytes;

        (void)memmove(start, start + first * row_bytes, rows * row_bytes);
    }
}

/*
 * Copies the first `rows` rows of a state from constants that have no gaps: each of `blocks` blocks
 * has memory for `places` rows of `row_bytes` bytes.
 */
static inline void raot_place_rows(void *state, size_t blocks, size_t row_bytes, size_t places,
                                   const void *constants, size_t rows)
{
    unsigned char *const bytes = state;
    const unsigned char *const from = constants;

    for (size_t block = 0u; block < blocks; block++) {
        (void)memcpy(bytes + block * places * row_bytes, from + block * rows * row_bytes,
                     rows * row_bytes);
    }
}

#endif
