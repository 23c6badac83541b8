/*
 * main.c - a minimal program that runs perceptron.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "perceptron.h"
#include "perceptron_weights.h"

static const float input_x[PERCEPTRON_X_COUNT];
static float output_chances[PERCEPTRON_CHANCES_COUNT];
PERCEPTRON_ARENA(static, arena);

int main(void)
{
    struct perceptron_memory memory = {
        .arena = arena,
        .arena_bytes = PERCEPTRON_ARENA_BYTES,
    };
    const struct perceptron_dims dims = {
        .batch = PERCEPTRON_BATCH_MAX,
    };
    const struct perceptron_inputs in = {
        .x = input_x,
    };
    const struct perceptron_outputs out = {
        .chances = output_chances,
    };

    if (perceptron_bind_weights(&memory, perceptron_weights_block,
                                sizeof perceptron_weights_block) != RAOT_OK) {
        return 1;
    }
    if (perceptron_init(&memory, &dims) != RAOT_OK) {
        return 1;
    }
    return perceptron_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
