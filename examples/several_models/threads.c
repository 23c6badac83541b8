/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.c - eight threads run three models at once, each thread with its own memory.
 *
 * Generated code has no writable data of its own: what a call may touch is what it is given.
 * So a context is an arena, a state and outputs, and threads need no lock.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "active.h"
#include "gesture.h"
#include "gesture_sample.h"
#include "smooth.h"

enum { THREADS = 8, RUNS = 40 };

struct context {
    union {
        SMOOTH_ARENA(, smooth);
        ACTIVE_ARENA(, active);
        GESTURE_ARENA(, gesture);
    } arena;
    RAOT_ALIGNAS(SMOOTH_ALIGNMENT) unsigned char state[SMOOTH_STATE_BYTES];
    float smoothed[SMOOTH_SMOOTHED_BYTES / sizeof(float)];
    float scores[RUNS][GESTURE_CLASSES];
    float frames[GESTURE_FRAMES_BYTES / sizeof(float)];
    uint8_t moving;
    int failed;
};

static struct context contexts[THREADS];

/* Each run has another length; the state is kept between runs. */
static enum raot_status run_of(struct context *own, int32_t n, float *scores)
{
    const struct smooth_memory memory = {
        .arena = &own->arena, .arena_bytes = sizeof own->arena, .state = own->state};
    const struct smooth_dims dims = {.n = n};
    const struct smooth_inputs in = {.motion = &gesture_sample[0][0]};
    const struct smooth_outputs out = {.smoothed = own->smoothed};
    enum raot_status status = smooth_run(&memory, &dims, &in, &out);

    if (status == RAOT_OK) {
        status = active_run(
            &(struct active_memory){.arena = &own->arena, .arena_bytes = sizeof own->arena},
            &(struct active_dims){.n = n}, &(struct active_inputs){.motion = own->smoothed},
            &(struct active_outputs){.moving = &own->moving});
    }
    if (status == RAOT_OK) {
        status = gesture_run(
            &(struct gesture_memory){.arena = &own->arena, .arena_bytes = sizeof own->arena},
            &(struct gesture_dims){.n = n}, &(struct gesture_inputs){.motion = own->smoothed},
            &(struct gesture_outputs){.scores = scores, .frames = own->frames});
    }
    return status;
}

static void *work(void *given)
{
    struct context *const own = given;
    const struct smooth_memory memory = {
        .arena = &own->arena, .arena_bytes = sizeof own->arena, .state = own->state};

    own->failed = smooth_init(&memory, &(struct smooth_dims){.n = 1}) != RAOT_OK;
    for (int32_t run = 0; run < RUNS && !own->failed; run++) {
        const int32_t n = 1 + run * (GESTURE_SAMPLE_N - 1) / (RUNS - 1);

        own->failed = run_of(own, n, own->scores[run]) != RAOT_OK;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int wrong = 0;

    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, &contexts[i]) != 0) {
            return 2;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        wrong += contexts[i].failed ||
                 memcmp(contexts[i].scores, contexts[0].scores, sizeof contexts[0].scores) != 0;
    }
    printf("%d threads, %d runs each, %d differ\n", (int)THREADS, (int)RUNS, wrong);
    return wrong == 0 ? 0 : 1;
}
