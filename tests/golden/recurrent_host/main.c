/*
 * main.c - a minimal program that runs words.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "words.h"

static const int64_t input_words[WORDS_WORDS_COUNT];
static float output_tags[WORDS_TAGS_COUNT];
WORDS_ARENA(static, arena);

int main(void)
{
    const struct words_memory memory = {
        .arena = arena,
        .arena_bytes = WORDS_ARENA_BYTES,
    };
    const struct words_dims dims = {
        .batch = WORDS_BATCH_MAX,
        .n = WORDS_N_MAX,
    };
    const struct words_inputs in = {
        .words = input_words,
    };
    const struct words_outputs out = {
        .tags = output_tags,
    };

    return words_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
