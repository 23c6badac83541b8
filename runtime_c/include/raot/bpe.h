/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpe.h - byte-pair encoding of a word (Sennrich et al., arXiv:1508.07909): of all neighbors, the
 * pair with the lowest rank is merged first, and of equal ones the leftmost.
 *
 * A tournament tree holds the winner of each group of neighbors. A word of n symbols takes
 * O(n log n) steps.
 */
#ifndef RAOT_BPE_H
#define RAOT_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer.h"

#define RAOT_NO_RANK 0xFFFFFFFFu

/* A part of a word: it stays at the place of its first byte or code point. */
struct raot_symbol {
    int32_t token;
    int32_t previous; /* its neighbors, or -1 */
    int32_t next;
    int32_t merge; /* what merges it with the next one, or -1 */
    uint32_t rank; /* of that merge */
};

struct raot_bpe {
    const struct raot_merges *merges;
    struct raot_symbol *symbols;
    int32_t
        *winners; /* winners[i]: of winners[2 i] and [2 i + 1]; from `count` on, symbol i - count */
    int32_t count;
};

/* The merge of two tokens, or -1. */
static inline int32_t raot_merge_find(const struct raot_merges *merges, int32_t left, int32_t right)
{
    int32_t low = (int32_t)merges->first[left];
    int32_t high = (int32_t)merges->first[left + 1];
    const int32_t end = high;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;

        if (raot_number(&merges->right, middle) < (uint32_t)right) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < end && raot_number(&merges->right, low) == (uint32_t)right ? low : -1;
}

static inline int32_t raot_bpe_winner(const struct raot_bpe *bpe, int32_t node)
{
    return node < bpe->count ? bpe->winners[node] : node - bpe->count;
}

static inline void raot_bpe_play(const struct raot_bpe *bpe, int32_t node)
{
    const int32_t a = raot_bpe_winner(bpe, 2 * node);
    const int32_t b = raot_bpe_winner(bpe, 2 * node + 1);
    const uint32_t rank_a = bpe->symbols[a].rank;
    const uint32_t rank_b = bpe->symbols[b].rank;

    bpe->winners[node] = rank_a < rank_b || (rank_a == rank_b && a < b) ? a : b;
}

/* Finds what merges a symbol with its next one. */
static inline void raot_bpe_pair(const struct raot_bpe *bpe, int32_t at)
{
    struct raot_symbol *const symbol = &bpe->symbols[at];

    symbol->merge = symbol->next < 0 ? -1
                                     : raot_merge_find(bpe->merges, symbol->token,
                                                       bpe->symbols[symbol->next].token);
    symbol->rank =
        symbol->merge < 0 ? RAOT_NO_RANK : raot_number(&bpe->merges->rank, symbol->merge);
}

static inline void raot_bpe_changed(const struct raot_bpe *bpe, int32_t at)
{
    for (int32_t node = (at + bpe->count) / 2; node >= 1; node /= 2) {
        raot_bpe_play(bpe, node);
    }
}

/* Merges symbols whose tokens are set, of which there are at least 2; the first one stays first. */
static inline void raot_bpe_merge(const struct raot_bpe *bpe)
{
    struct raot_symbol *const symbols = bpe->symbols;

    for (int32_t i = 0; i < bpe->count; i++) {
        symbols[i].previous = i - 1;
        symbols[i].next = i + 1 < bpe->count ? i + 1 : -1;
        raot_bpe_pair(bpe, i);
    }
    for (int32_t node = bpe->count - 1; node >= 1; node--) {
        raot_bpe_play(bpe, node);
    }
    for (;;) {
        const int32_t at = raot_bpe_winner(bpe, 1);
        struct raot_symbol *const left = &symbols[at];
        const int32_t gone = left->next;

        if (left->rank == RAOT_NO_RANK) {
            return;
        }
        left->token = (int32_t)raot_number(&bpe->merges->result, left->merge);
        left->next = symbols[gone].next;
        symbols[gone].rank = RAOT_NO_RANK;
        if (left->next >= 0) {
            symbols[left->next].previous = at;
        }
        raot_bpe_pair(bpe, at);
        raot_bpe_changed(bpe, gone);
        raot_bpe_changed(bpe, at);
        if (left->previous >= 0) {
            raot_bpe_pair(bpe, left->previous);
            raot_bpe_changed(bpe, left->previous);
        }
    }
}

#endif
