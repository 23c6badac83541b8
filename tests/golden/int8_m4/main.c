/* main.c - the smallest complete use of lite: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "lite.h"

static RAOT_ALIGNAS(8) const unsigned char input_t0[LITE_T0_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_t13[LITE_T13_BYTES + 1];
LITE_ARENA(static, arena);

int main(void)
{
    const struct lite_memory memory = {
        .arena = arena,
        .arena_bytes = LITE_ARENA_BYTES,
    };
    const struct lite_inputs in = {
        .t0 = (const void *)input_t0,
    };
    const struct lite_outputs out = {
        .t13 = (void *)output_t13,
    };

    return lite_run(&memory, &in, &out) == RAOT_OK ? 0 : 1;
}
