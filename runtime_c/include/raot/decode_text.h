/* SPDX-License-Identifier: Apache-2.0 */
/* decode_text.h - tokens to text, one after the other. */
#ifndef RAOT_DECODE_TEXT_H
#define RAOT_DECODE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tokenizer.h"
#include "utf8.h"

static inline size_t raot_text_replaced(size_t bytes, char *text)
{
    for (size_t i = 0u; i < bytes; i++) {
        (void)memcpy(text + 3u * i, "\xEF\xBF\xBD", 3u);
    }
    return 3u * bytes;
}

/* Ends a sequence that does not continue: one U+FFFD, or one for each byte if they are tokens. */
static inline size_t raot_text_broken(const struct raot_tokenizer *by, struct raot_text *state,
                                      char *text)
{
    const size_t held = state->held_bytes;

    state->held_bytes = 0u;
    return raot_text_replaced(held > 1u && by->spaces == RAOT_SPACES_PLAIN ? 1u : held, text);
}

/* Adds a byte: writes all that is complete, and returns its bytes. */
static inline size_t raot_text_byte(const struct raot_tokenizer *by, struct raot_text *state,
                                    unsigned char byte, char *text)
{
    unsigned char low;
    unsigned char high;
    size_t wrote = 0u;
    size_t length;

    if (state->held_bytes > 0u) {
        length = raot_utf8_length(state->held[0], &low, &high);
        low = state->held_bytes > 1u ? 0x80u : low;
        high = state->held_bytes > 1u ? 0xBFu : high;
        if (byte >= low && byte <= high) {
            state->held[state->held_bytes++] = byte;
            if (state->held_bytes < length) {
                return 0u;
            }
            (void)memcpy(text, state->held, length);
            state->held_bytes = 0u;
            return length;
        }
        wrote = raot_text_broken(by, state, text);
    }
    length = raot_utf8_length(byte, &low, &high);
    if (length == 0u) {
        return wrote + raot_text_replaced(1u, text + wrote);
    }
    if (length > 1u) {
        state->held[0] = byte;
        state->held_bytes = 1u;
        return wrote;
    }
    text[wrote] = (char)byte;
    return wrote + 1u;
}

static inline int32_t raot_text_digit(unsigned char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The byte that a token of the form <0xHH> stands for, or -1. */
static inline int32_t raot_text_escaped(const unsigned char *token, size_t bytes)
{
    if (bytes != 6u || token[0] != '<' || token[1] != '0' || token[2] != 'x' || token[5] != '>' ||
        raot_text_digit(token[3]) < 0 || raot_text_digit(token[4]) < 0) {
        return -1;
    }
    return raot_text_digit(token[3]) * 16 + raot_text_digit(token[4]);
}

/* The text of a token whose spaces are U+2581. */
static inline size_t raot_text_marked(const struct raot_tokenizer *by, struct raot_text *state,
                                      const unsigned char *token, size_t bytes, char *text)
{
    static const unsigned char mark[3] = {0xE2u, 0x96u, 0x81u};
    const int32_t escaped = raot_text_escaped(token, bytes);
    size_t wrote = 0u;
    size_t i = 0u;

    if (escaped >= 0) {
        wrote = raot_text_byte(by, state, (unsigned char)escaped, text);
    } else {
        wrote = raot_text_broken(by, state, text);
        while (i < bytes) {
            const int space = bytes - i >= 3u && memcmp(token + i, mark, sizeof mark) == 0;

            if (space == 0 || by->spaces != RAOT_SPACES_STRIP_TOKEN || state->begun != 0u) {
                text[wrote++] = space != 0 ? ' ' : (char)token[i];
            }
            i += space != 0 ? 3u : 1u;
        }
    }
    if (by->spaces == RAOT_SPACES_STRIP_TEXT && state->spoken == 0u && wrote > 0u) {
        state->spoken = 1u;
        if (text[0] == ' ') {
            wrote--;
            (void)memmove(text, text + 1, wrote);
        }
    }
    return wrote;
}

/*
 * Writes the text of a token behind those that `state` has seen, and its bytes: always valid UTF-8.
 * The start of a code point is held back until its rest comes, or RAOT_TEXT_END.
 */
static inline enum raot_status raot_decode_text(const struct raot_tokenizer *by,
                                                struct raot_text *state, int32_t token, char *text,
                                                size_t capacity, size_t *bytes)
{
    const unsigned char *word;
    size_t length;
    size_t wrote = 0u;

    if (state == NULL || text == NULL || bytes == NULL) {
        return RAOT_ERR_NULL;
    }
    if (token < RAOT_TEXT_END || token >= by->count) {
        return RAOT_ERR_INDEX;
    }
    length = token < 0 ? 0u : raot_word_bytes(&by->words, (uint32_t)token);
    if (capacity < RAOT_TEXT_BYTES(length)) {
        return RAOT_ERR_CAPACITY;
    }
    *bytes = 0u;
    if (token < 0) {
        *bytes = raot_text_broken(by, state, text);
        return RAOT_OK;
    }
    if (state->keeps_special == 0u && (by->special[token / 8] >> (token % 8) & 1u) != 0u) {
        return RAOT_OK;
    }
    word = by->words.bytes + by->words.starts[token];
    if (by->spaces != RAOT_SPACES_PLAIN) {
        wrote = raot_text_marked(by, state, word, length, text);
    } else {
        for (size_t i = 0u; i < length; i++) {
            wrote += raot_text_byte(by, state, word[i], text + wrote);
        }
    }
    state->begun = 1u;
    *bytes = wrote;
    return RAOT_OK;
}

#endif
