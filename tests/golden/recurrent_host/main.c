/* main.c - the smallest complete use of words: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "words.h"

static RAOT_ALIGNAS(8) const unsigned char input_words[WORDS_WORDS_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_tags[WORDS_TAGS_BYTES + 1];
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
        .words = (const void *)input_words,
    };
    const struct words_outputs out = {
        .tags = (void *)output_tags,
    };

    return words_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
