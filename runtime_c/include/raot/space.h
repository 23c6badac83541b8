/* SPDX-License-Identifier: Apache-2.0 */
/* space.h - spaces at the ends of UTF-8: code points with the property White_Space of Unicode. */
#ifndef RAOT_SPACE_H
#define RAOT_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "utf8.h"

/* The most bytes of one space. */
#define RAOT_SPACE_BYTES 3u

static inline int raot_is_space(uint32_t point)
{
    const int latin =
        (point >= 0x09u && point <= 0x0Du) || point == 0x20u || point == 0x85u || point == 0xA0u;

    return latin || point == 0x1680u || (point >= 0x2000u && point <= 0x200Au) ||
           point == 0x2028u || point == 0x2029u || point == 0x202Fu || point == 0x205Fu ||
           point == 0x3000u;
}

/* The bytes of the space that a text begins with, or 0. */
static inline size_t raot_space_first(const unsigned char *text, size_t bytes)
{
    size_t at = 0u;

    return bytes > 0u && raot_is_space(raot_utf8_next(text, bytes, &at)) ? at : 0u;
}

/* The bytes of the space that a text ends with, or 0. */
static inline size_t raot_space_last(const unsigned char *text, size_t bytes)
{
    /* A byte that begins a sequence never continues one, so that the last bytes decide. */
    for (size_t size = 1u; size <= RAOT_SPACE_BYTES && size <= bytes; size++) {
        if (raot_space_first(text + (bytes - size), size) == size) {
            return size;
        }
    }
    return 0u;
}

#endif
