/* main.c - the smallest complete use of image: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "image.h"

static RAOT_ALIGNAS(8) const unsigned char input_image[IMAGE_IMAGE_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_logits[IMAGE_LOGITS_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_heat[IMAGE_HEAT_BYTES + 1];
IMAGE_ARENA(static, arena);

int main(void)
{
    const struct image_memory memory = {
        .arena = arena,
        .arena_bytes = IMAGE_ARENA_BYTES,
    };
    const struct image_dims dims = {
        .batch = IMAGE_BATCH_MAX,
        .height = IMAGE_HEIGHT_MAX,
        .width = IMAGE_WIDTH_MAX,
    };
    const struct image_inputs in = {
        .image = (const void *)input_image,
    };
    const struct image_outputs out = {
        .logits = (void *)output_logits,
        .heat = (void *)output_heat,
    };

    return image_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
