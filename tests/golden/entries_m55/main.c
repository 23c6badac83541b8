/*
 * main.c - a minimal program that runs attend.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "attend.h"

ATTEND_ARENA(static, arena);
static RAOT_ALIGNAS(ATTEND_ALIGNMENT) unsigned char state[ATTEND_STATE_BYTES];
static const float attend_prefill_input_x[ATTEND_PREFILL_X_COUNT];
static float attend_prefill_output_y[ATTEND_PREFILL_Y_COUNT];
static const float attend_decode_input_x[ATTEND_DECODE_X_COUNT];
static float attend_decode_output_y[ATTEND_DECODE_Y_COUNT];

static const struct attend_memory memory = {
    .arena = arena,
    .arena_bytes = ATTEND_ARENA_BYTES,
    .state = state,
};

static enum raot_status call_attend_prefill(void)
{
    const struct attend_prefill_dims dims = {
        .n = ATTEND_N_MAX,
        .m = ATTEND_M_MAX,
    };
    const struct attend_prefill_inputs in = {
        .x = attend_prefill_input_x,
    };
    const struct attend_prefill_outputs out = {
        .y = attend_prefill_output_y,
    };

    return attend_prefill_run(&memory, &dims, &in, &out);
}

static enum raot_status call_attend_decode(void)
{
    const struct attend_decode_dims dims = {
        .m = ATTEND_M_MAX,
    };
    const struct attend_decode_inputs in = {
        .x = attend_decode_input_x,
    };
    const struct attend_decode_outputs out = {
        .y = attend_decode_output_y,
    };

    return attend_decode_run(&memory, &dims, &in, &out);
}

int main(void)
{
    const struct attend_dims dims = {
        .m = ATTEND_M_MAX,
    };

    if (attend_init(&memory, &dims) != RAOT_OK) {
        return 1;
    }
    if (call_attend_prefill() != RAOT_OK) {
        return 1;
    }
    if (call_attend_decode() != RAOT_OK) {
        return 1;
    }
    return 0;
}
