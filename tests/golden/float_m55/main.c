/*
 * main.c - a minimal program that runs planes.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "planes.h"

static const float input_x[PLANES_X_COUNT];
static float output_y[PLANES_Y_COUNT];
PLANES_ARENA(static, arena);

int main(void)
{
    const struct planes_memory memory = {
        .arena = arena,
        .arena_bytes = PLANES_ARENA_BYTES,
    };
    const struct planes_inputs in = {
        .x = input_x,
    };
    const struct planes_outputs out = {
        .y = output_y,
    };

    return planes_run(&memory, &in, &out) == RAOT_OK ? 0 : 1;
}
