/*
 * main.c - a minimal program that runs tagger.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "tagger.h"

static const float input_frames[TAGGER_FRAMES_COUNT];
static float output_tags[TAGGER_TAGS_COUNT];
TAGGER_ARENA(static, arena);
static RAOT_ALIGNAS(TAGGER_ALIGNMENT) unsigned char state[TAGGER_STATE_BYTES];

int main(void)
{
    const struct tagger_memory memory = {
        .arena = arena,
        .arena_bytes = TAGGER_ARENA_BYTES,
        .state = state,
    };
    const struct tagger_dims dims = {
        .n = TAGGER_N_MAX,
        .batch = TAGGER_BATCH_MAX,
    };
    const struct tagger_inputs in = {
        .frames = input_frames,
    };
    const struct tagger_outputs out = {
        .tags = output_tags,
    };

    if (tagger_init(&memory, &dims) != RAOT_OK) {
        return 1;
    }
    return tagger_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
