/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - places in a text of several pieces, and the spaces around them. */
#ifndef RAOT_PIECES_H
#define RAOT_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "space.h"
#include "text.h"

/* A place in the pieces of a text. */
struct raot_place {
    const struct raot_piece *piece;
    size_t at;
};

/* Whether a place is before another one. */
static inline int raot_place_before(struct raot_place place, struct raot_place other)
{
    return place.piece < other.piece || (place.piece == other.piece && place.at < other.at) ? 1 : 0;
}

/* The place in front of the spaces that end at a place, but none before `first`. */
static inline struct raot_place raot_place_back(struct raot_place first, struct raot_place place)
{
    while (raot_place_before(first, place) != 0) {
        const size_t start = place.piece == first.piece ? first.at : 0u;
        size_t bytes;

        if (place.at == start) {
            place.piece--;
            place.at = place.piece->bytes;
            continue;
        }
        bytes = raot_space_last((const unsigned char *)place.piece->text + start, place.at - start);
        if (bytes == 0u) {
            break;
        }
        place.at -= bytes;
    }
    return place;
}

/* The place behind the spaces that begin at a place, up to the end of the last piece. */
static inline struct raot_place raot_place_forth(struct raot_place place,
                                                 const struct raot_piece *last)
{
    for (;;) {
        const size_t left = place.piece->bytes - place.at;
        size_t bytes;

        if (left == 0u && place.piece == last) {
            return place;
        }
        if (left == 0u) {
            place.piece++;
            place.at = 0u;
            continue;
        }
        bytes = raot_space_first((const unsigned char *)place.piece->text + place.at, left);
        if (bytes == 0u) {
            return place;
        }
        place.at += bytes;
    }
}

#endif
