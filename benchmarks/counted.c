/* SPDX-License-Identifier: Apache-2.0 */
/* counted.c - one call of a model in a function that callgrind counts; its sizes are arguments. */
#include <stdlib.h>

#include "raot_model.h"

#define MOST 16

__attribute__((noinline)) enum raot_status counted(const struct raot_buffers *memory,
                                                   const int32_t *dims, const void *const *inputs,
                                                   void *const *outputs, int32_t *result)
{
    return raot_model.run(memory, dims, inputs, outputs, result);
}

static void *line_up(size_t bytes)
{
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

int main(int argc, char **argv)
{
    const void *inputs[MOST];
    void *outputs[MOST];
    int32_t dims[MOST] = {0};
    int32_t result[MOST];

    for (int i = 1; i < argc && i <= MOST; i++) {
        dims[i - 1] = (int32_t)strtol(argv[i], NULL, 10);
    }
    for (int32_t i = 0; i < raot_model.input_count; i++) {
        float *const numbers = line_up(raot_model.input_bytes[i]);
        for (size_t n = 0; n < raot_model.input_bytes[i] / sizeof *numbers; n++) {
            numbers[n] = (float)(n * 37 % 101) / 50.0f - 1.0f;
        }
        inputs[i] = numbers;
    }
    for (int32_t i = 0; i < raot_model.output_count; i++) {
        outputs[i] = line_up(raot_model.output_bytes[i]);
    }
    const struct raot_buffers memory = {line_up(raot_model.arena_bytes), raot_model.arena_bytes,
                                        line_up(raot_model.state_bytes), NULL};
    return (int)counted(&memory, dims, inputs, outputs, result);
}
