/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unigram.h - the most likely sequence of tokens for a word (Kudo, arXiv:1804.10959), found by the
 * Viterbi algorithm.
 */
#ifndef RAOT_UNIGRAM_H
#define RAOT_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer.h"
#include "utf8.h"

/* The best way to reach a byte of a word. */
struct raot_unigram_node {
    double score;
    int32_t start; /* where its last token begins, or -1; in the end, where the next one ends */
    int32_t token;
};

static inline void raot_unigram_reach(struct raot_unigram_node *node, double score, size_t start,
                                      int32_t token)
{
    if (node->start < 0 || score > node->score) {
        node->score = score;
        node->start = (int32_t)start;
        node->token = token;
    }
}

static inline double raot_unigram_score(const struct raot_tokenizer *by, uint32_t token)
{
    return by->scores != NULL ? (double)by->scores[token] : by->scores64[token];
}

/* Extends the best way to `at` by every token there; `length` is that of its code point. */
static inline void raot_unigram_extend(const struct raot_tokenizer *by,
                                       struct raot_unigram_node *nodes, const unsigned char *word,
                                       size_t bytes, size_t at, size_t length)
{
    struct raot_range range = raot_words_from(&by->words, word[at]);
    const double so_far = nodes[at].score;
    int32_t covered = 0; /* 1 if a token is the code point */
    size_t depth = 1u;

    while (range.low < range.high) {
        const uint32_t token = raot_number(&by->words.sorted, range.low);

        if (raot_word_bytes(&by->words, token) == depth) {
            raot_unigram_reach(&nodes[at + depth], raot_unigram_score(by, token) + so_far, at,
                               (int32_t)token);
            covered = depth == length ? 1 : covered;
        }
        if (at + depth == bytes) {
            break;
        }
        range = raot_words_narrow(&by->words, range, depth, word[at + depth]);
        depth++;
    }
    if (covered == 0) {
        raot_unigram_reach(&nodes[at + length], by->unknown_score + so_far, at, by->unknown);
    }
}

/*
 * Fills nodes[0 .. bytes]. Then the first token ends at e = nodes[0].start and is nodes[e].token,
 * the second one ends at nodes[e].start, and so on up to `bytes`.
 */
static inline void raot_unigram_path(const struct raot_tokenizer *by,
                                     struct raot_unigram_node *nodes, const unsigned char *word,
                                     size_t bytes)
{
    int32_t behind = -1;
    int32_t end = (int32_t)bytes;
    size_t at = 0u;

    for (size_t i = 0u; i <= bytes; i++) {
        nodes[i].start = -1;
        nodes[i].score = 0.0;
    }
    while (at < bytes) {
        size_t after = at;

        (void)raot_utf8_next(word, bytes, &after);
        raot_unigram_extend(by, nodes, word, bytes, at, after - at);
        at = after;
    }
    while (end > 0) {
        const int32_t start = nodes[end].start;

        nodes[end].start = behind;
        behind = end;
        end = start;
    }
    nodes[0].start = behind;
}

#endif
