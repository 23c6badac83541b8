/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - a sorted list of byte strings in constant memory. */
#ifndef RAOT_WORDS_H
#define RAOT_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* An array of uint16_t (`width` 2) or uint32_t (`width` 4). */
struct raot_numbers {
    const void *at;
    int32_t width;
};

static inline uint32_t raot_number(const struct raot_numbers *numbers, int32_t i)
{
    return numbers->width == 2 ? ((const uint16_t *)numbers->at)[i]
                               : ((const uint32_t *)numbers->at)[i];
}

/* Words by number, and the order of their bytes. Words that no text contains are not listed. */
struct raot_words {
    const unsigned char *bytes;
    const uint32_t *starts;     /* where each word begins, and where the last one ends */
    struct raot_numbers sorted; /* numbers of the listed words */
    const uint32_t *first;      /* [257]: the listed words below each first byte */
};

/* Words in `sorted` that begin with the same bytes. */
struct raot_range {
    int32_t low;
    int32_t high;
};

static inline size_t raot_word_bytes(const struct raot_words *words, uint32_t word)
{
    return words->starts[word + 1u] - words->starts[word];
}

static inline struct raot_range raot_words_from(const struct raot_words *words, unsigned char first)
{
    const struct raot_range range = {(int32_t)words->first[first],
                                     (int32_t)words->first[first + 1]};

    return range;
}

/* Byte `depth` of the listed word i, and -1 behind its end. */
static inline int32_t raot_listed_byte(const struct raot_words *words, int32_t i, size_t depth)
{
    const uint32_t word = raot_number(&words->sorted, i);

    return raot_word_bytes(words, word) > depth ? words->bytes[words->starts[word] + depth] : -1;
}

/* The first word of a range whose byte `depth` is at least `byte`. */
static inline int32_t raot_words_bound(const struct raot_words *words, struct raot_range range,
                                       size_t depth, int32_t byte)
{
    while (range.low < range.high) {
        const int32_t middle = range.low + (range.high - range.low) / 2;

        if (raot_listed_byte(words, middle, depth) < byte) {
            range.low = middle + 1;
        } else {
            range.high = middle;
        }
    }
    return range.low;
}

/* Of words that share `depth` bytes, those whose next byte is `byte`. */
static inline struct raot_range raot_words_narrow(const struct raot_words *words,
                                                  struct raot_range range, size_t depth,
                                                  unsigned char byte)
{
    struct raot_range found = range;

    found.low = raot_words_bound(words, range, depth, byte);
    range.low = found.low;
    found.high = raot_words_bound(words, range, depth, byte + 1);
    return found;
}

/* The number of the listed word with these bytes, of which there is at least one; -1 without. */
static inline int32_t raot_words_find(const struct raot_words *words, const unsigned char *bytes,
                                      size_t count)
{
    struct raot_range range = raot_words_from(words, bytes[0]);

    while (range.low < range.high) {
        const int32_t middle = range.low + (range.high - range.low) / 2;
        const uint32_t word = raot_number(&words->sorted, middle);
        const size_t own = raot_word_bytes(words, word);
        const int order =
            memcmp(words->bytes + words->starts[word], bytes, own < count ? own : count);

        if (order == 0 && own == count) {
            return (int32_t)word;
        }
        if (order < 0 || (order == 0 && own < count)) {
            range.low = middle + 1;
        } else {
            range.high = middle;
        }
    }
    return -1;
}

#endif
