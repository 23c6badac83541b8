/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - places in caches that several texts share. */
#ifndef RAOT_POOL_H
#define RAOT_POOL_H

#include <stdint.h>

#include "status.h"

/*
 * Places 0 to `places` - 1. Those that are free are a list, which begins at `next`: the link of a
 * free place is minus the next one, where `places` is the end. The link of another place is the
 * number of texts that hold it.
 */
struct raot_pool {
    int32_t *links; /* `places` numbers of yours */
    int32_t places;
    int32_t next;
    int32_t free; /* so many places are free */
};

/* A pool whose places are all free. */
static inline void raot_pool_init(struct raot_pool *pool, int32_t *links, int32_t places)
{
    pool->links = links;
    pool->places = places;
    pool->next = 0;
    pool->free = places;
    for (int32_t place = 0; place < places; place++) {
        links[place] = -(place + 1);
    }
}

/*
 * Takes `count` places for the next tokens of a text and writes them behind its `held` places.
 * RAOT_ERR_CAPACITY: fewer are free, and nothing has changed.
 */
static inline enum raot_status raot_pool_extend(struct raot_pool *pool, int32_t *text, int32_t held,
                                                int32_t count)
{
    if (count > pool->free) {
        return RAOT_ERR_CAPACITY;
    }
    for (int32_t i = 0; i < count; i++) {
        const int32_t place = pool->next;

        pool->next = -pool->links[place];
        pool->links[place] = 1;
        text[held + i] = place;
    }
    pool->free -= count > 0 ? count : 0;
    return RAOT_OK;
}

/* Lets another text begin with the first `count` tokens of a text: it holds the same places. */
static inline void raot_pool_share(struct raot_pool *pool, const int32_t *text, int32_t count,
                                   int32_t *other)
{
    for (int32_t i = 0; i < count; i++) {
        other[i] = text[i];
        pool->links[text[i]]++;
    }
}

/* Gives back the `count` places of the last tokens of a text; those of other texts stay taken. */
static inline void raot_pool_release(struct raot_pool *pool, const int32_t *text, int32_t count)
{
    for (int32_t i = count - 1; i >= 0; i--) {
        pool->links[text[i]]--;
        if (pool->links[text[i]] == 0) {
            pool->links[text[i]] = -pool->next;
            pool->next = text[i];
            pool->free++;
        }
    }
}

#endif
