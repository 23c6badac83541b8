/*
 * main.c - a minimal program that runs sums.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "sums.h"

static const int8_t input_x[SUMS_X_COUNT];
static int8_t output_y[SUMS_Y_COUNT];
static int8_t output_sum[SUMS_SUM_COUNT];
SUMS_ARENA(static, arena);

int main(void)
{
    const struct sums_memory memory = {
        .arena = arena,
        .arena_bytes = SUMS_ARENA_BYTES,
    };
    const struct sums_dims dims = {
        .n = SUMS_N_MAX,
    };
    const struct sums_inputs in = {
        .x = input_x,
    };
    const struct sums_outputs out = {
        .y = output_y,
        .sum = output_sum,
    };

    return sums_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
