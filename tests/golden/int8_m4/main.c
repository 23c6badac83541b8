/*
 * main.c - a minimal program that runs lite.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "lite.h"

static const int8_t input_t0[LITE_T0_COUNT];
static int8_t output_t13[LITE_T13_COUNT];
LITE_ARENA(static, arena);

int main(void)
{
    const struct lite_memory memory = {
        .arena = arena,
        .arena_bytes = LITE_ARENA_BYTES,
    };
    const struct lite_inputs in = {
        .t0 = input_t0,
    };
    const struct lite_outputs out = {
        .t13 = output_t13,
    };

    return lite_run(&memory, &in, &out) == RAOT_OK ? 0 : 1;
}
