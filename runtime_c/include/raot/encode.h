/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.h - text to tokens.
 *
 * Names of added tokens divide a text into parts. Each part is normalized, patterns divide it into
 * words, and each word is encoded by itself. The scratch memory holds the text from the current
 * word on: a text may have any length, and a word that it has no room for is RAOT_ERR_CAPACITY.
 */
#ifndef RAOT_ENCODE_H
#define RAOT_ENCODE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bpe.h"
#include "pieces.h"
#include "tokenizer.h"
#include "unigram.h"
#include "utf8.h"

/* The most bytes that are added to the window at once, and those of one code point. */
#define RAOT_ENCODE_STEP 64u
#define RAOT_ENCODE_POINT 12u

/* One call. */
struct raot_encoder {
    const struct raot_tokenizer *tokenizer;
    const unsigned char *text; /* what is left of a part in one piece: 0 bytes at its end only */
    size_t bytes;
    const struct raot_piece *piece;
    struct raot_place end; /* of the part */
    unsigned char *window; /* normalized text: [start, filled) waits to be encoded */
    size_t start;
    size_t filled;
    size_t longest; /* the most bytes of a word */
    void *work;
    int32_t *tokens;
    int32_t capacity;
    int32_t count;
    struct raot_nfc run;
};

static inline enum raot_status raot_encode_put(struct raot_encoder *to, int32_t token)
{
    if (to->count >= to->capacity) {
        return RAOT_ERR_CAPACITY;
    }
    to->tokens[to->count++] = token;
    return RAOT_OK;
}

/* The token of a word that is in no list: its bytes or the unknown token, if there are such. */
static inline enum raot_status raot_encode_unlisted(struct raot_encoder *to,
                                                    const unsigned char *word, size_t bytes)
{
    const struct raot_tokenizer *const by = to->tokenizer;
    const int32_t token = raot_words_find(&by->words, word, bytes);
    enum raot_status status = RAOT_OK;

    if (token >= 0 || by->byte_tokens == NULL) {
        return raot_encode_put(to, token >= 0 ? token : by->unknown);
    }
    for (size_t i = 0u; i < bytes && status == RAOT_OK; i++) {
        status = raot_encode_put(to, by->byte_tokens[word[i]]);
    }
    return status;
}

static inline enum raot_status raot_encode_unigram(struct raot_encoder *to,
                                                   const unsigned char *word, size_t bytes)
{
    struct raot_unigram_node *const nodes = to->work;
    const int32_t unknown = to->tokenizer->unknown;
    enum raot_status status = RAOT_OK;
    int32_t start = 0;

    raot_unigram_path(to->tokenizer, nodes, word, bytes);
    while (start < (int32_t)bytes && status == RAOT_OK) {
        int32_t end = nodes[start].start;

        if (nodes[end].token != unknown) {
            status = raot_encode_put(to, nodes[end].token);
            start = end;
            continue;
        }
        while (to->tokenizer->fuses != 0 && end < (int32_t)bytes &&
               nodes[nodes[end].start].token == unknown) {
            end = nodes[end].start;
        }
        status = raot_encode_unlisted(to, word + start, (size_t)(end - start));
        start = end;
    }
    return status;
}

/* The symbols that a word begins with; returns their number. */
static inline int32_t raot_encode_symbols(const struct raot_tokenizer *by,
                                          struct raot_symbol *symbols, const unsigned char *word,
                                          size_t bytes)
{
    int32_t count = 0;
    int32_t fuses = 0; /* 1 behind an unknown symbol that takes the next one too */
    size_t at = 0u;

    while (at < bytes) {
        const size_t begin = at;
        int32_t token;

        if (by->model == RAOT_BPE_BYTES) {
            token = by->byte_tokens[word[at++]];
        } else {
            (void)raot_utf8_next(word, bytes, &at);
            token = raot_words_find(&by->words, word + begin, at - begin);
            for (size_t i = begin; token < 0 && by->byte_tokens != NULL && i < at; i++) {
                symbols[count++].token = by->byte_tokens[word[i]];
            }
        }
        if (token >= 0) {
            symbols[count++].token = token;
            fuses = 0;
        } else if (by->unknown >= 0 && fuses == 0 &&
                   (by->model == RAOT_BPE_BYTES || by->byte_tokens == NULL)) {
            symbols[count++].token = by->unknown;
            fuses = by->fuses;
        } else {
            /* The symbol has no token, or belongs to the unknown one before. */
        }
    }
    return count;
}

static inline enum raot_status raot_encode_word(struct raot_encoder *to, const unsigned char *word,
                                                size_t bytes)
{
    const struct raot_tokenizer *const by = to->tokenizer;
    struct raot_symbol *const symbols = to->work;
    struct raot_bpe bpe = {&by->merges, symbols, (void *)(symbols + to->longest), 0};
    enum raot_status status = RAOT_OK;

    if (bytes > to->longest) {
        return RAOT_ERR_CAPACITY;
    }
    if (by->model == RAOT_UNIGRAM) {
        return raot_encode_unigram(to, word, bytes);
    }
    if (by->whole_words != 0) {
        const int32_t token = raot_words_find(&by->words, word, bytes);

        if (token >= 0) {
            return raot_encode_put(to, token);
        }
    }
    bpe.count = raot_encode_symbols(by, symbols, word, bytes);
    if (bpe.count == 0) {
        return RAOT_OK;
    }
    symbols[0].next = -1;
    if (bpe.count > 1) {
        raot_bpe_merge(&bpe);
    }
    for (int32_t i = 0; i >= 0 && status == RAOT_OK; i = symbols[i].next) {
        status = raot_encode_put(to, symbols[i].token);
    }
    return status;
}

/* Divides text by the patterns behind the first one. */
static inline enum raot_status raot_encode_divided(struct raot_encoder *to,
                                                   const unsigned char *text, size_t bytes)
{
    const struct raot_tokenizer *const by = to->tokenizer;
    size_t at[RAOT_MOST_PATTERNS + 1] = {0};
    size_t end[RAOT_MOST_PATTERNS + 1] = {0};
    int32_t depth = 0; /* how many patterns have divided [at, end) */
    enum raot_status status = RAOT_OK;

    end[0] = bytes;
    while (depth >= 0 && status == RAOT_OK) {
        size_t start = at[depth];
        struct raot_match match = raot_match_at(start);

        if (start == end[depth]) {
            depth--;
            continue;
        }
        if (depth + 1 >= by->pattern_count) {
            status = raot_encode_word(to, text + start, end[depth] - start);
            depth--;
            continue;
        }
        (void)raot_match_run(&by->patterns[depth + 1], &by->classes, &match, text, end[depth], 1);
        while (match.best == start && start < end[depth]) { /* no match: what lies before one */
            (void)raot_utf8_next(text, end[depth], &start);
            match = raot_match_at(start);
            (void)raot_match_run(&by->patterns[depth + 1], &by->classes, &match, text, end[depth],
                                 1);
        }
        start = start > at[depth] ? start : match.best;
        at[depth + 1] = at[depth];
        end[depth + 1] = start;
        at[depth] = start;
        depth++;
    }
    return status;
}

/* Goes to the next piece of a part that has text, from the byte `at` of this one on. */
static inline void raot_encode_at(struct raot_encoder *to, size_t at)
{
    for (;;) {
        const int last = to->piece == to->end.piece;
        const size_t bytes = last != 0 ? to->end.at : to->piece->bytes;

        to->bytes = bytes - at;
        if (to->bytes > 0u) {
            to->text = (const unsigned char *)to->piece->text + at;
            return;
        }
        if (last != 0) {
            return;
        }
        to->piece++;
        at = 0u;
    }
}

/* Whether all text of a part is in the window. */
static inline int raot_encode_ended(const struct raot_encoder *to)
{
    return to->bytes == 0u && to->run.taken == to->run.count ? 1 : 0;
}

/* The next code point of a part, normalized, which joins no pieces; *joined is set to 0 if its run
   is too long. */
static inline uint32_t raot_encode_point(struct raot_encoder *to, int *joined)
{
    const struct raot_nfc_tables *const nfc = to->tokenizer->nfc;
    struct raot_nfc *const run = &to->run;
    size_t at = 0u;
    uint32_t point;

    if (run->taken < run->count) {
        return run->points[run->taken++];
    }
    point = raot_utf8_next(to->text, to->bytes, &at);
    if (nfc != NULL) {
        size_t after = at;

        run->count = 0;
        run->taken = 0;
        *joined = raot_nfc_add(nfc, run, point);
        while (at < to->bytes) {
            point = raot_utf8_next(to->text, to->bytes, &after);
            if ((raot_nfc_flags(nfc, point) & RAOT_NFC_JOINS) == 0u) {
                break;
            }
            *joined &= raot_nfc_add(nfc, run, point);
            at = after;
        }
        raot_nfc_finish(nfc, run);
        point = run->points[run->taken++];
    }
    to->text += at;
    to->bytes -= at;
    if (to->bytes == 0u && to->piece != to->end.piece) {
        to->piece++;
        raot_encode_at(to, 0u);
    }
    return point;
}

/* Writes a code point, or what replaces it. */
static inline size_t raot_encode_replaced(const struct raot_tokenizer *by, uint32_t point,
                                          unsigned char *to)
{
    for (int32_t i = 0; i < by->replacement_count; i++) {
        if (by->replacements[i].point == point) {
            (void)memcpy(to, by->replacements[i].text, by->replacements[i].bytes);
            return by->replacements[i].bytes;
        }
    }
    return raot_utf8_put(point, to);
}

/* Adds up to about `most` bytes to the window. Returns how many, or 0 if it has no room. */
static inline size_t raot_encode_fill(struct raot_encoder *to, size_t most)
{
    const size_t room = to->longest + 4u; /* a code point more still fits */
    size_t added = 0u;

    if (to->filled > room && to->start > 0u) {
        to->filled -= to->start;
        (void)memmove(to->window, to->window + to->start, to->filled);
        to->start = 0u;
    }
    while (added < most && to->filled <= room && raot_encode_ended(to) == 0) {
        int joined = 1;
        const uint32_t point = raot_encode_point(to, &joined);
        size_t bytes;

        if (joined == 0) {
            return 0u;
        }
        bytes = raot_encode_replaced(to->tokenizer, point, to->window + to->filled);
        to->filled += bytes;
        added += bytes;
    }
    return added;
}

/* Puts the prefix of the tokenizer before a part, which is not empty; returns 0 if its first code
   point cannot be normalized. */
static inline int raot_encode_prefix(struct raot_encoder *to, int first)
{
    const struct raot_tokenizer *const by = to->tokenizer;
    const size_t bytes = (size_t)by->prefix_bytes;

    if (raot_encode_fill(to, 1u) == 0u) {
        return 0;
    }
    if (by->prefix_rule == RAOT_PREFIX_NEVER ||
        (by->prefix_rule == RAOT_PREFIX_FIRST && first == 0)) {
        return 1;
    }
    if (by->prefix_rule != RAOT_PREFIX_ALWAYS && to->filled >= bytes &&
        memcmp(to->window, by->prefix, bytes) == 0) {
        return 1;
    }
    (void)memmove(to->window + bytes, to->window, to->filled);
    (void)memcpy(to->window, by->prefix, bytes);
    to->filled += bytes;
    return 1;
}

/* Encodes text without added tokens. */
static inline enum raot_status raot_encode_part(struct raot_encoder *to, struct raot_place from,
                                                struct raot_place end, int first)
{
    const struct raot_tokenizer *const by = to->tokenizer;
    enum raot_status status = RAOT_OK;
    size_t gap = 0u; /* bytes that match no pattern */

    to->piece = from.piece;
    to->end = end;
    raot_encode_at(to, from.at);
    if (to->bytes == 0u) {
        return RAOT_OK;
    }
    to->start = 0u;
    to->filled = 0u;
    if (raot_encode_prefix(to, first) == 0) {
        return RAOT_ERR_CAPACITY;
    }
    while (status == RAOT_OK) {
        struct raot_match match = raot_match_at(gap);
        const unsigned char *waiting;

        while (by->pattern_count == 0
                   ? raot_encode_ended(to) == 0
                   : raot_match_run(by->patterns, &by->classes, &match, to->window + to->start,
                                    to->filled - to->start, raot_encode_ended(to)) == 0) {
            if (raot_encode_fill(to, RAOT_ENCODE_STEP) == 0u) {
                return RAOT_ERR_CAPACITY;
            }
        }
        waiting = to->window + to->start;
        if (by->pattern_count == 0) {
            return raot_encode_word(to, waiting, to->filled);
        }
        if (match.best == gap && gap < to->filled - to->start) {
            (void)raot_utf8_next(waiting, to->filled - to->start, &gap);
            continue;
        }
        status = raot_encode_divided(to, waiting, gap);
        if (match.best == gap) {
            return status;
        }
        if (status == RAOT_OK) {
            status = raot_encode_divided(to, waiting + gap, match.best - gap);
        }
        to->start += match.best;
        gap = 0u;
    }
    return status;
}

/* The added token whose name is the longest at the start of a text, or -1. */
static inline int32_t raot_encode_added(const struct raot_tokenizer *by, const unsigned char *text,
                                        size_t bytes)
{
    struct raot_range range = raot_words_from(&by->added, text[0]);
    int32_t found = -1;
    size_t depth = 1u;

    while (range.low < range.high) {
        const uint32_t word = raot_number(&by->added.sorted, range.low);

        found = raot_word_bytes(&by->added, word) == depth ? (int32_t)word : found;
        if (depth == bytes) {
            break;
        }
        range = raot_words_narrow(&by->added, range, depth, text[depth]);
        depth++;
    }
    return found;
}

/* The next name of an added token from a place on, which begins and ends in one piece and has the
   kind that its options ask for; returns the token's number, or -1 at the end of all pieces. */
static inline int32_t raot_encode_name(const struct raot_tokenizer *by,
                                       const struct raot_piece *behind, struct raot_place *from)
{
    while (from->piece != behind) {
        const size_t bytes = from->piece->bytes;

        while (from->at < bytes) {
            const unsigned char *const text = (const unsigned char *)from->piece->text + from->at;
            const int32_t word = raot_encode_added(by, text, bytes - from->at);
            const int special = (from->piece->options & RAOT_ENCODE_SPECIAL) != 0u;

            if (word >= 0 && (special != 0 || (by->added_flags[word] & RAOT_ADDED_SPECIAL) == 0u)) {
                return word;
            }
            from->at += word < 0 ? 1u : raot_word_bytes(&by->added, (uint32_t)word);
        }
        from->piece++;
        from->at = 0u;
    }
    return -1;
}

/* Encodes pieces of a text with names of added tokens. */
static inline enum raot_status raot_encode_parts(struct raot_encoder *to,
                                                 const struct raot_piece *pieces, int32_t count)
{
    const struct raot_tokenizer *const by = to->tokenizer;
    const struct raot_piece *const last = pieces + (count - 1);
    const struct raot_place end = {last, last->bytes};
    struct raot_place part = {pieces, 0u};
    struct raot_place place = part;
    enum raot_status status = RAOT_OK;
    int first = 1;

    while (status == RAOT_OK) {
        const int32_t word = raot_encode_name(by, pieces + count, &place);
        const unsigned flags = word < 0 ? 0u : by->added_flags[word];
        struct raot_place stop = word < 0 ? end : place;

        if ((flags & RAOT_ADDED_BEFORE) != 0u) {
            stop = raot_place_back(part, stop);
        }
        if (raot_place_before(part, stop) != 0) { /* else the token before took these spaces */
            status = raot_encode_part(to, part, stop, first);
        }
        if (word < 0 || status != RAOT_OK) {
            return status;
        }
        status = raot_encode_put(to, by->added_tokens[word]);
        place.at += raot_word_bytes(&by->added, (uint32_t)word);
        part = (flags & RAOT_ADDED_BEHIND) != 0u ? raot_place_forth(place, last) : place;
        first = 0;
    }
    return status;
}

static inline enum raot_status raot_encode_all(struct raot_encoder *to, const int32_t *tokens,
                                               int32_t count)
{
    enum raot_status status = RAOT_OK;

    for (int32_t i = 0; i < count && status == RAOT_OK; i++) {
        status = raot_encode_put(to, tokens[i]);
    }
    return status;
}

/* 1 if all pieces have what they say. */
static inline int raot_encode_has(const struct raot_piece *pieces, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (pieces[i].text == NULL && pieces[i].bytes > 0u) {
            return 0;
        }
    }
    return 1;
}

/*
 * Encodes the text that `count` pieces are together. Invalid UTF-8 of a piece is read as U+FFFD. A
 * token may begin in one piece and end in another, unless it has a name: names are looked for in
 * each piece, special ones where its options say so. `scratch` has RAOT_ENCODE_BYTES(longest)
 * bytes for words of up to `longest` bytes. Writes up to `capacity` tokens, and their number, which
 * stays as it is if a status is negative.
 */
static inline enum raot_status raot_encode_pieces(const struct raot_tokenizer *by,
                                                  const struct raot_piece *pieces, int32_t count,
                                                  uint32_t options, void *scratch,
                                                  size_t scratch_bytes, int32_t *tokens,
                                                  int32_t capacity, int32_t *made)
{
    const size_t skew = (size_t)(0u - (uintptr_t)scratch) & 7u;
    const int framed = (options & RAOT_ENCODE_FRAME) != 0u;
    struct raot_encoder to = {.tokenizer = by, .tokens = tokens, .capacity = capacity};
    enum raot_status status = RAOT_OK;

    if (scratch == NULL || made == NULL || (tokens == NULL && capacity > 0) ||
        (pieces == NULL && count > 0) || raot_encode_has(pieces, count) == 0) {
        return RAOT_ERR_NULL;
    }
    if (scratch_bytes < RAOT_ENCODE_BYTES(RAOT_ENCODE_LEAST)) {
        return RAOT_ERR_ARENA;
    }
    to.longest = RAOT_ENCODE_LONGEST(scratch_bytes);
    to.longest = to.longest < INT32_MAX / 2 ? to.longest : INT32_MAX / 2;
    to.work = (unsigned char *)scratch + skew;
    to.window = (unsigned char *)to.work + to.longest * (RAOT_ENCODE_BYTES_EACH - 1u) + 16u;
    if (framed != 0) {
        status = raot_encode_all(&to, by->frame, by->frame_before);
    }
    if (status == RAOT_OK && count > 0) {
        status = raot_encode_parts(&to, pieces, count);
    }
    if (status == RAOT_OK && framed != 0) {
        status = raot_encode_all(&to, by->frame + by->frame_before, by->frame_behind);
    }
    if (status == RAOT_OK) {
        *made = to.count;
    }
    return status;
}

/* Encodes `bytes` bytes of text: one piece. `options` joins those of pieces and texts. */
static inline enum raot_status raot_encode(const struct raot_tokenizer *by, const char *text,
                                           size_t bytes, uint32_t options, void *scratch,
                                           size_t scratch_bytes, int32_t *tokens, int32_t capacity,
                                           int32_t *count)
{
    const struct raot_piece piece = {text, bytes, options};

    return raot_encode_pieces(by, &piece, 1, options, scratch, scratch_bytes, tokens, capacity,
                              count);
}

#endif
