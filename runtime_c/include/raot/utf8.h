/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - code points of UTF-8. */
#ifndef RAOT_UTF8_H
#define RAOT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* What invalid bytes are read as. */
#define RAOT_REPLACEMENT 0xFFFDu

/*
 * The number of bytes of the sequence that starts with `lead`: 1 to 4, or 0 if no sequence starts
 * with it. The second byte of a valid sequence lies between *low and *high.
 */
static inline size_t raot_utf8_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xE0u ? 0xA0u : lead == 0xF0u ? 0x90u : 0x80u;
    *high = lead == 0xEDu ? 0x9Fu : lead == 0xF4u ? 0x8Fu : 0xBFu;
    if (lead < 0x80u) {
        return 1u;
    }
    if (lead < 0xC2u || lead > 0xF4u) {
        return 0u;
    }
    return lead < 0xE0u ? 2u : lead < 0xF0u ? 3u : 4u;
}

/*
 * The code point at text[*at], which lies below `bytes`; *at moves behind it. The longest start of
 * a valid sequence that does not continue is read as one RAOT_REPLACEMENT (Unicode 3.9,
 * "U+FFFD Substitution of Maximal Subparts"), and so is a byte that starts none.
 */
static inline uint32_t raot_utf8_next(const unsigned char *text, size_t bytes, size_t *at)
{
    const unsigned char lead = text[*at];
    unsigned char low;
    unsigned char high;
    const size_t length = raot_utf8_length(lead, &low, &high);
    uint32_t point = length == 1u ? lead : lead & (0x7Fu >> length);

    *at += 1u;
    if (length == 0u) {
        return RAOT_REPLACEMENT;
    }
    for (size_t i = 1u; i < length; i++) {
        if (*at == bytes || text[*at] < low || text[*at] > high) {
            return RAOT_REPLACEMENT;
        }
        point = point << 6 | (text[*at] & 0x3Fu);
        low = 0x80u;
        high = 0xBFu;
        *at += 1u;
    }
    return point;
}

/* Writes a code point as 1 to 4 bytes, and returns their number. */
static inline size_t raot_utf8_put(uint32_t point, unsigned char *text)
{
    if (point < 0x80u) {
        text[0] = (unsigned char)point;
        return 1u;
    }
    if (point < 0x800u) {
        text[0] = (unsigned char)(0xC0u | point >> 6);
        text[1] = (unsigned char)(0x80u | (point & 0x3Fu));
        return 2u;
    }
    if (point < 0x10000u) {
        text[0] = (unsigned char)(0xE0u | point >> 12);
        text[1] = (unsigned char)(0x80u | (point >> 6 & 0x3Fu));
        text[2] = (unsigned char)(0x80u | (point & 0x3Fu));
        return 3u;
    }
    text[0] = (unsigned char)(0xF0u | point >> 18);
    text[1] = (unsigned char)(0x80u | (point >> 12 & 0x3Fu));
    text[2] = (unsigned char)(0x80u | (point >> 6 & 0x3Fu));
    text[3] = (unsigned char)(0x80u | (point & 0x3Fu));
    return 4u;
}

#endif
