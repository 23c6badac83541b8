/* SPDX-License-Identifier: Apache-2.0 */
/* threads_driver.c - runs a model with and without workers under ThreadSanitizer. */
#include <stdio.h>
#include <string.h>

#include "tiny_threads.h"

#define WIDTH 64
#define CHECK(condition)                              \
    if (!(condition)) {                               \
        (void)fprintf(stderr, "line %d\n", __LINE__); \
        return 1;                                     \
    }

TINY_ARENA(static, arena);
static float x[TINY_N_MAX * WIDTH];
static float alone[TINY_N_MAX * WIDTH];
static float shared[TINY_N_MAX * WIDTH];
static struct tiny_threads threads;

static enum raot_status run(const struct tiny_memory *memory, int32_t n, float *y)
{
    const struct tiny_dims dims = {.n = n};
    const struct tiny_inputs in = {.x = x};
    const struct tiny_outputs out = {.y = y};

    (void)memset(y, 0, sizeof alone);
    return tiny_run(memory, &dims, &in, &out);
}

static void *take_part(void *context)
{
    static int done;

    done = tiny_worker(context, 1) == RAOT_OK;
    return &done;
}

int main(void)
{
    static const int32_t sizes[] = {1, 2, 7, 24, 25, 39, TINY_N_MAX};
    struct tiny_memory memory = {.arena = arena, .arena_bytes = TINY_ARENA_BYTES};
    static struct raot_team team;
    pthread_t thread;
    void *done = NULL;

    for (int32_t i = 0; i < TINY_N_MAX * WIDTH; i++) {
        x[i] = (float)(i * 37 % 101) / 50.0f - 1.0f;
    }
    CHECK(tiny_worker(NULL, 1) == RAOT_ERR_NULL);
    CHECK(tiny_worker(&memory, 1) == RAOT_ERR_NULL);
    tiny_stop(NULL);
    tiny_stop(&memory);

    /* A worker of its own, without hooks: it does not sleep. */
    memory.team = &team;
    CHECK(tiny_worker(&memory, 0) == RAOT_ERR_SIZE);
    CHECK(tiny_worker(&memory, TINY_THREADS) == RAOT_ERR_SIZE);
    CHECK(pthread_create(&thread, NULL, take_part, &memory) == 0);
    while (team.present == 0) {
        CHECK(run(&memory, 3, shared) == RAOT_OK);
    }
    CHECK(tiny_worker(&memory, 1) == RAOT_ERR_SIZE);
    CHECK(run(&memory, TINY_N_MAX, shared) == RAOT_OK);
    tiny_stop(&memory);
    CHECK(run(&memory, TINY_N_MAX, shared) == RAOT_OK);
    CHECK(pthread_join(thread, &done) == 0 && *(int *)done);

    for (int round = 0; round < 6; round++) {
        memory.team = NULL;
        CHECK(tiny_threads_start(&threads, &memory) == TINY_THREADS - 1);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct raot_team *const all = memory.team;

            CHECK(run(&memory, sizes[i], shared) == RAOT_OK);
            memory.team = NULL;
            CHECK(run(&memory, sizes[i], alone) == RAOT_OK);
            memory.team = all;
            CHECK(memcmp(alone, shared, sizeof alone) == 0);
        }
        CHECK(run(&memory, TINY_N_MAX + 1, shared) == RAOT_ERR_SIZE);
        tiny_threads_join(&threads, &memory);
        CHECK(memory.team == NULL);
    }
    return 0;
}
