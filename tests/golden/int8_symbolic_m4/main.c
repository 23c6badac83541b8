/* main.c - the smallest complete use of sums: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "sums.h"

static RAOT_ALIGNAS(8) const unsigned char input_x[SUMS_X_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_y[SUMS_Y_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_sum[SUMS_SUM_BYTES + 1];
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
        .x = (const void *)input_x,
    };
    const struct sums_outputs out = {
        .y = (void *)output_y,
        .sum = (void *)output_sum,
    };

    return sums_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
