/* SPDX-License-Identifier: Apache-2.0 */
/* nfc.h - Normalization Form C of Unicode (UAX 15), one code point after the other. */
#ifndef RAOT_NFC_H
#define RAOT_NFC_H

#include <stddef.h>
#include <stdint.h>

#include "pattern.h"
#include "utf8.h"

/* The most code points, decomposed, between two that normalization never joins. Stream-safe text
   (UAX 15, section 13) has at most 31. */
#define RAOT_NFC_LONGEST 128

#define RAOT_NFC_DECOMPOSES 1u
#define RAOT_NFC_JOINS 2u /* the code point may change with those before it */

struct raot_nfc_tables {
    struct raot_point_table kind_of;
    const unsigned char *kinds; /* pairs: canonical combining class and flags */
    const uint32_t *decomposed; /* sorted: code points that decompose, but Hangul */
    const uint16_t *starts;     /* where their parts begin, and where the last ones end */
    const uint32_t *parts;
    const uint32_t *pairs; /* sorted: two code points, and what they compose to */
    int32_t decomposed_count;
    int32_t pair_count;
};

/* Code points that are normalized, or wait for others. */
struct raot_nfc {
    uint32_t points[RAOT_NFC_LONGEST];
    int32_t count;
    int32_t taken;
};

static inline uint32_t raot_nfc_order(const struct raot_nfc_tables *tables, uint32_t point)
{
    return tables->kinds[2u * raot_point_value(&tables->kind_of, point)];
}

static inline uint32_t raot_nfc_flags(const struct raot_nfc_tables *tables, uint32_t point)
{
    return tables->kinds[2u * raot_point_value(&tables->kind_of, point) + 1u];
}

/* Adds the canonical decomposition of a code point; returns 0 if it has no room. */
static inline int raot_nfc_add(const struct raot_nfc_tables *tables, struct raot_nfc *run,
                               uint32_t point)
{
    const uint32_t hangul = point - 0xAC00u;
    int32_t low = 0;
    int32_t high = tables->decomposed_count;

    if (run->count + 4 > RAOT_NFC_LONGEST) {
        return 0;
    }
    if (hangul < 11172u) {
        run->points[run->count++] = 0x1100u + hangul / 588u;
        run->points[run->count++] = 0x1161u + hangul % 588u / 28u;
        if (hangul % 28u != 0u) {
            run->points[run->count++] = 0x11A7u + hangul % 28u;
        }
        return 1;
    }
    if ((raot_nfc_flags(tables, point) & RAOT_NFC_DECOMPOSES) == 0u) {
        run->points[run->count++] = point;
        return 1;
    }
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;

        if (tables->decomposed[middle] < point) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (int32_t i = tables->starts[low]; i < tables->starts[low + 1]; i++) {
        run->points[run->count++] = tables->parts[i];
    }
    return 1;
}

/* The code point that two compose to, or 0. */
static inline uint32_t raot_nfc_compose(const struct raot_nfc_tables *tables, uint32_t first,
                                        uint32_t second)
{
    int32_t low = 0;
    int32_t high = tables->pair_count;

    if (first - 0x1100u < 19u && second - 0x1161u < 21u) {
        return 0xAC00u + ((first - 0x1100u) * 21u + second - 0x1161u) * 28u;
    }
    if (first - 0xAC00u < 11172u && (first - 0xAC00u) % 28u == 0u && second - 0x11A8u < 27u) {
        return first + second - 0x11A7u;
    }
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const uint32_t *const pair = &tables->pairs[3 * middle];

        if (pair[0] == first && pair[1] == second) {
            return pair[2];
        }
        if (pair[0] < first || (pair[0] == first && pair[1] < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0u;
}

/* Orders marks by their classes, then composes; `run` holds decomposed code points. */
static inline void raot_nfc_finish(const struct raot_nfc_tables *tables, struct raot_nfc *run)
{
    int32_t starter = -1;
    int32_t kept = 0;
    uint32_t last = 0u;

    for (int32_t i = 1; i < run->count; i++) {
        const uint32_t point = run->points[i];
        const uint32_t order = raot_nfc_order(tables, point);
        int32_t to = i;

        while (order != 0u && to > 0 && raot_nfc_order(tables, run->points[to - 1]) > order) {
            run->points[to] = run->points[to - 1];
            to--;
        }
        run->points[to] = point;
    }
    for (int32_t i = 0; i < run->count; i++) {
        const uint32_t point = run->points[i];
        const uint32_t order = raot_nfc_order(tables, point);
        uint32_t composed = 0u;

        if (starter >= 0 && (starter == kept - 1 || last < order)) {
            composed = raot_nfc_compose(tables, run->points[starter], point);
        }
        if (composed != 0u) {
            run->points[starter] = composed;
            continue;
        }
        starter = order == 0u ? kept : starter;
        last = order;
        run->points[kept++] = point;
    }
    run->count = kept;
    run->taken = 0;
}

#endif
