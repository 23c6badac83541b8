/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - checks of the caller's memory before the first write. */
#ifndef RAOT_CHECK_H
#define RAOT_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "arena.h"

/* Marks a state block that init has prepared. */
#define RAOT_STATE_MARK 0x54524f41

/* `bytes` bytes of memory from `start`. */
struct raot_span {
    const void *start;
    size_t bytes;
};

/*
 * 1 if no span of `writes` overlaps another span of `writes` or a span of `reads`, else 0.
 * Spans of `reads` may overlap each other.
 */
static inline int raot_disjoint(const struct raot_span *writes, int32_t write_count,
                                const struct raot_span *reads, int32_t read_count)
{
    for (int32_t i = 0; i < write_count; i++) {
        for (int32_t j = 0; j < i; j++) {
            if (raot_overlaps(writes[i].start, writes[i].bytes, writes[j].start, writes[j].bytes) !=
                0) {
                return 0;
            }
        }
        for (int32_t j = 0; j < read_count; j++) {
            if (raot_overlaps(writes[i].start, writes[i].bytes, reads[j].start, reads[j].bytes) !=
                0) {
                return 0;
            }
        }
    }
    return 1;
}

#endif
