/* main.c - the smallest complete use of branch: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "branch.h"

static RAOT_ALIGNAS(8) const unsigned char input_x[BRANCH_X_BYTES + 1];
static RAOT_ALIGNAS(8) const unsigned char input_twice[BRANCH_TWICE_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_y[BRANCH_Y_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_total[BRANCH_TOTAL_BYTES + 1];
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
        .x = (const void *)input_x,
        .twice = (const void *)input_twice,
    };
    const struct branch_outputs out = {
        .y = (void *)output_y,
        .total = (void *)output_total,
    };

    return branch_run(&memory, &dims, &in, &out, &result) == RAOT_OK ? 0 : 1;
}
