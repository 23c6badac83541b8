/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - memory of a function that generates text. */
#ifndef RAOT_GENERATE_H
#define RAOT_GENERATE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a part of memory, so that the next one is aligned. */
#define RAOT_GENERATE_PART(bytes) (((size_t)(bytes) + 63u) / 64u * 64u)

/* Memory in which the tokenizer encodes a prompt: the arena of the entries, if the host has it. */
#define RAOT_GENERATE_WORK(work) RAOT_GENERATE_PART((work) > 8192 ? (work) : 8192)

/* Behind `first` bytes: this memory, then so many logits, a text, a bit of each of `words` tokens,
   and the text of one. */
#define RAOT_GENERATE_BYTES(first, work, logits, words, context, text)                        \
    (RAOT_GENERATE_PART(first) + RAOT_GENERATE_WORK(work) +                                   \
     RAOT_GENERATE_PART(4u * (size_t)(logits)) + RAOT_GENERATE_PART(4u * (size_t)(context)) + \
     RAOT_GENERATE_PART((words) / 8 + 1) + RAOT_GENERATE_PART(text))

/* Marks tokens in a set that has a bit for each one. */
static inline void raot_mark_tokens(unsigned char *set, const int32_t *tokens, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        set[tokens[i] / 8] = (unsigned char)(set[tokens[i] / 8] | 1u << (tokens[i] % 8));
    }
}

/* 1 if `token` is one of `count` tokens. */
static inline int raot_is_token_of(const int32_t *tokens, int32_t count, int32_t token)
{
    for (int32_t i = 0; i < count; i++) {
        if (tokens[i] == token) {
            return 1;
        }
    }
    return 0;
}

#endif
