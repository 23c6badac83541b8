/*
 * main.c - a minimal program that runs image.
 * SPDX-License-Identifier: LicenseRef-Model
 */
#include "image.h"

static const float input_image[IMAGE_IMAGE_COUNT];
static float output_logits[IMAGE_LOGITS_COUNT];
static float output_heat[IMAGE_HEAT_COUNT];
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
        .image = input_image,
    };
    const struct image_outputs out = {
        .logits = output_logits,
        .heat = output_heat,
    };

    return image_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
