/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - recognize a recorded gesture with the C project that relax_aot makes of gesture.onnx.
 *
 * Answers 0 where the gesture is the right one, so that a board without a console can be tested
 * too: compile it there with -DGESTURE_NO_STDIO.
 */
#include <stddef.h>
#include <stdint.h>

#ifndef GESTURE_NO_STDIO
#include <stdio.h>
#endif

#include "gesture.h"
#include "gesture_sample.h"

enum {
    SAMPLES_PER_FRAME = 4,
    MILLISECONDS_PER_FRAME = 80 /* 4 samples at 50 Hz */
};

_Static_assert(GESTURE_SAMPLE_N <= GESTURE_N_MAX, "the sample is longer than the model's bound");

/* What was recognized: which gesture, how surely, and from which frame to which. */
struct recognition {
    int32_t gesture;
    float score;
    int32_t first_frame;
    int32_t end_frame;
};

GESTURE_ARENA(static, arena);
static float scores[GESTURE_SCORES_BYTES / sizeof(float)];
static float frames[GESTURE_FRAMES_BYTES / sizeof(float)];

static int32_t likeliest(const float *chances)
{
    int32_t best = 0;

    for (int32_t i = 1; i < GESTURE_CLASSES; i++) {
        if (chances[i] > chances[best]) {
            best = i;
        }
    }
    return best;
}

/* Fills `found`, whatever the number of samples up to GESTURE_N_MAX. */
static enum raot_status recognize(const float (*motion)[6], int32_t n, struct recognition *found)
{
    const struct gesture_memory memory = {.arena = arena, .arena_bytes = sizeof(arena)};
    const struct gesture_dims dims = {.n = n};
    const struct gesture_inputs in = {.motion = &motion[0][0]};
    const struct gesture_outputs out = {.scores = scores, .frames = frames};
    const enum raot_status status = gesture_run(&memory, &dims, &in, &out);

    if (status != RAOT_OK) {
        return status;
    }
    const int32_t steps = (n + SAMPLES_PER_FRAME - 1) / SAMPLES_PER_FRAME;

    found->gesture = likeliest(scores);
    found->score = scores[found->gesture];
    found->first_frame = steps;
    found->end_frame = 0;
    for (int32_t step = 0; step < steps; step++) {
        if (likeliest(&frames[step * GESTURE_CLASSES]) == found->gesture) {
            found->first_frame = step < found->first_frame ? step : found->first_frame;
            found->end_frame = step + 1;
        }
    }
    return RAOT_OK;
}

#ifndef GESTURE_NO_STDIO
/* Whole numbers only: the printf of small C libraries has no %f. */
static void show(const struct recognition *found)
{
    printf("%s, %d %%", gesture_class_names[found->gesture], (int)(100.0f * found->score + 0.5f));
    if (found->first_frame < found->end_frame) {
        printf(", from %d ms to %d ms", (int)(found->first_frame * MILLISECONDS_PER_FRAME),
               (int)(found->end_frame * MILLISECONDS_PER_FRAME));
    }
    printf("\n");
}
#endif

int main(void)
{
    struct recognition found;
    const enum raot_status status = recognize(gesture_sample, GESTURE_SAMPLE_N, &found);

#ifndef GESTURE_NO_STDIO
    if (status != RAOT_OK) {
        printf("gesture_run failed with status %d\n", (int)status);
    } else {
        show(&found);
    }
#endif
    return status == RAOT_OK && found.gesture == GESTURE_SAMPLE_CLASS ? 0 : 1;
}
