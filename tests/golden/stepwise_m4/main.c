/*
 * main.c - a minimal program that runs branch.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "branch.h"

static const float input_x[BRANCH_X_COUNT];
static const uint8_t input_twice[BRANCH_TWICE_COUNT];
static float output_y[BRANCH_Y_COUNT];
static float output_total[BRANCH_TOTAL_COUNT];
BRANCH_ARENA(static, arena);

int main(void)
{
    const struct branch_memory memory = {
        .arena = arena,
        .arena_bytes = BRANCH_ARENA_BYTES,
    };
    const struct branch_dims dims = {
        .n = BRANCH_N_MAX,
    };
    struct branch_dims result;
    const struct branch_inputs in = {
        .x = input_x,
        .twice = input_twice,
    };
    const struct branch_outputs out = {
        .y = output_y,
        .total = output_total,
    };

    return branch_run(&memory, &dims, &in, &out, &result) == RAOT_OK ? 0 : 1;
}
