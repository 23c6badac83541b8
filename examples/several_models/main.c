/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - three models in one program, one arena: smooth a recording, see whether anything
 * moves, and only then recognize the gesture.
 *
 * The models run one after the other, so the arena is as large as the greatest need of one of
 * them, not the sum. Between calls it may be used for other things.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "active.h"
#include "gesture.h"
#include "gesture_sample.h"
#include "smooth.h"

static union {
    SMOOTH_ARENA(, smooth);
    ACTIVE_ARENA(, active);
    GESTURE_ARENA(, gesture);
} arena;

static RAOT_ALIGNAS(SMOOTH_ALIGNMENT) unsigned char state[SMOOTH_STATE_BYTES];
static float smoothed[SMOOTH_SMOOTHED_BYTES / sizeof(float)];
static float scores[GESTURE_SCORES_BYTES / sizeof(float)];
static float frames[GESTURE_FRAMES_BYTES / sizeof(float)];

static enum raot_status smooth_all(const float *motion, int32_t n)
{
    const struct smooth_memory memory = {
        .arena = &arena, .arena_bytes = sizeof arena, .state = state};
    const struct smooth_dims dims = {.n = n};
    const struct smooth_inputs in = {.motion = motion};
    const struct smooth_outputs out = {.smoothed = smoothed};
    const enum raot_status status = smooth_init(&memory, &dims);

    return status == RAOT_OK ? smooth_run(&memory, &dims, &in, &out) : status;
}

static enum raot_status is_active(int32_t n, uint8_t *moving)
{
    const struct active_memory memory = {.arena = &arena, .arena_bytes = sizeof arena};
    const struct active_dims dims = {.n = n};
    const struct active_inputs in = {.motion = smoothed};
    const struct active_outputs out = {.moving = moving};

    return active_run(&memory, &dims, &in, &out);
}

static enum raot_status recognize(int32_t n)
{
    const struct gesture_memory memory = {.arena = &arena, .arena_bytes = sizeof arena};
    const struct gesture_dims dims = {.n = n};
    const struct gesture_inputs in = {.motion = smoothed};
    const struct gesture_outputs out = {.scores = scores, .frames = frames};

    return gesture_run(&memory, &dims, &in, &out);
}

int main(void)
{
    const int32_t n = GESTURE_SAMPLE_N;
    int32_t best = 0;
    uint8_t moving = 0;

    if (smooth_all(&gesture_sample[0][0], n) != RAOT_OK || is_active(n, &moving) != RAOT_OK) {
        return 1;
    }
    if (!moving) {
        printf("nothing moves\n");
        return 1;
    }
    if (recognize(n) != RAOT_OK) {
        return 1;
    }
    for (int32_t i = 1; i < GESTURE_CLASSES; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    printf("%s; one arena of %d bytes instead of %d\n", gesture_class_names[best],
           (int)sizeof arena,
           (int)(sizeof arena.smooth + sizeof arena.active + sizeof arena.gesture));
    return best == GESTURE_SAMPLE_CLASS ? 0 : 1;
}
