/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h - matches of a regular expression that was compiled to a table.
 *
 * The table is a deterministic automaton over classes of code points. As in RE2 (Cox, "Regular
 * Expression Matching in the Wild"), its states are lists of alternatives in the order in which
 * backtracking tries them, so that it finds the match that backtracking finds, in one pass. A
 * transition says whether a match ends before the code point that it reads: a look-ahead of one
 * code point needs nothing else.
 */
#ifndef RAOT_PATTERN_H
#define RAOT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "utf8.h"

/* A number for each code point, in blocks of which equal ones are stored once. */
struct raot_point_table {
    const uint16_t *blocks;
    const unsigned char *values;
    uint32_t shift; /* a block has 2^shift code points */
};

static inline uint32_t raot_point_value(const struct raot_point_table *table, uint32_t point)
{
    const uint32_t block = table->blocks[point >> table->shift];

    return table->values[(block << table->shift) + (point & ((1u << table->shift) - 1u))];
}

/*
 * next[state * (classes + 1) + class] is 2 * the next state, plus 1 if a match ends before the code
 * point. Class `classes` is the end of the text. State 0 ends, state 1 begins.
 */
struct raot_pattern {
    const uint16_t *next;
    uint32_t classes;
};

/* The search of one match. */
struct raot_match {
    uint32_t state;
    size_t at;   /* the next byte to read */
    size_t best; /* where the match ends so far */
};

static inline struct raot_match raot_match_at(size_t start)
{
    const struct raot_match match = {1u, start, start};

    return match;
}

/*
 * Goes on with a search in valid UTF-8. Returns 1 when `best` is known, and 0 when more text is
 * needed, which is not the case where the text is `whole`.
 */
static inline int raot_match_run(const struct raot_pattern *pattern,
                                 const struct raot_point_table *classes, struct raot_match *match,
                                 const unsigned char *text, size_t bytes, int whole)
{
    const uint32_t width = pattern->classes + 1u;

    while (match->state != 0u) {
        size_t after = match->at;
        uint32_t of_point = pattern->classes;
        uint32_t entry;

        if (after < bytes) {
            of_point = raot_point_value(classes, raot_utf8_next(text, bytes, &after));
        } else if (whole == 0) {
            return 0;
        } else {
            /* The end of the text is of no class. */
        }
        entry = pattern->next[match->state * width + of_point];
        if ((entry & 1u) != 0u) {
            match->best = match->at;
        }
        match->state = entry >> 1;
        match->at = after;
    }
    return 1;
}

#endif
