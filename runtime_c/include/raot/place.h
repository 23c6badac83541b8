/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - offsets in an arena for the sizes of one call. */
#ifndef RAOT_PLACE_H
#define RAOT_PLACE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Place `count` values, each directly above the highest end of those below it: the longest path
 * over a table. `below` lists for each value how many lie directly below it, and their numbers,
 * which are less than its own. `size_of` is the index of its bytes in `sizes`. A negative size
 * counts as 0. Writes the offsets; returns the bytes of all.
 */
static inline size_t raot_place(const uint16_t *below, const uint16_t *size_of, int32_t count,
                                const int32_t *sizes, int32_t *offsets)
{
    int32_t top = 0;

    for (int32_t i = 0; i < count; i++) {
        const int32_t size = sizes[size_of[i]] > 0 ? sizes[size_of[i]] : 0;
        int32_t offset = 0;

        for (int32_t left = *below++; left > 0; left--) {
            const int32_t under = *below++;
            const int32_t bytes = sizes[size_of[under]] > 0 ? sizes[size_of[under]] : 0;

            if (offsets[under] + bytes > offset) {
                offset = offsets[under] + bytes;
            }
        }
        offsets[i] = offset;
        if (offset + size > top) {
            top = offset + size;
        }
    }
    return (size_t)top;
}

#endif
