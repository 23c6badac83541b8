/* main.c - the smallest complete use of planes: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "planes.h"

static RAOT_ALIGNAS(8) const unsigned char input_x[PLANES_X_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_y[PLANES_Y_BYTES + 1];
PLANES_ARENA(static, arena);

int main(void)
{
    const struct planes_memory memory = {
        .arena = arena,
        .arena_bytes = PLANES_ARENA_BYTES,
    };
    const struct planes_inputs in = {
        .x = (const void *)input_x,
    };
    const struct planes_outputs out = {
        .y = (void *)output_y,
    };

    return planes_run(&memory, &in, &out) == RAOT_OK ? 0 : 1;
}
