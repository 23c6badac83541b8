/* main.c - the smallest complete use of gesture: one run on zeros at the greatest sizes. */
#include <stddef.h>

#include "gesture.h"

static RAOT_ALIGNAS(8) const unsigned char input_motion[GESTURE_MOTION_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_scores[GESTURE_SCORES_BYTES + 1];
static RAOT_ALIGNAS(8) unsigned char output_frames[GESTURE_FRAMES_BYTES + 1];
GESTURE_ARENA(static, arena);

int main(void)
{
    const struct gesture_memory memory = {
        .arena = arena,
        .arena_bytes = GESTURE_ARENA_BYTES,
    };
    const struct gesture_dims dims = {
        .n = GESTURE_N_MAX,
    };
    const struct gesture_inputs in = {
        .motion = (const void *)input_motion,
    };
    const struct gesture_outputs out = {
        .scores = (void *)output_scores,
        .frames = (void *)output_frames,
    };

    return gesture_run(&memory, &dims, &in, &out) == RAOT_OK ? 0 : 1;
}
