/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - runs of one model with one thread and with several, alternately. See threads.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "several_threads.h"
#include "single.h"

static double now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* arguments: n, runs. Prints the seconds of each pair; 1 where results differ. */
int main(int argc, char **argv)
{
    const int32_t n = argc > 1 ? (int32_t)atoi(argv[1]) : 1;
    const int runs = argc > 2 ? atoi(argv[2]) : 1;
    const size_t count = (size_t)n * 256u;
    float *const x = malloc(count * sizeof *x);
    float *const one = malloc(count * sizeof *one);
    float *const all = malloc(count * sizeof *all);
    const struct single_memory memory = {.arena =
                                             aligned_alloc(SINGLE_ALIGNMENT, SINGLE_ARENA_BYTES),
                                         .arena_bytes = SINGLE_ARENA_BYTES};
    struct several_memory shared = {.arena = aligned_alloc(SEVERAL_ALIGNMENT, SEVERAL_ARENA_BYTES),
                                    .arena_bytes = SEVERAL_ARENA_BYTES};
    const struct single_dims dims = {.n = n};
    const struct several_dims same = {.n = n};
    const struct single_inputs in = {.x = x};
    const struct several_inputs in_again = {.x = x};
    const struct single_outputs out = {.y = one};
    const struct several_outputs out_again = {.y = all};
    static struct several_threads threads;

    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(i % 97u) / 48.0f - 1.0f;
    }
    (void)several_threads_start(&threads, &shared);
    for (int run = 0; run < runs; run++) {
        const double start = now();
        const int failed = single_run(&memory, &dims, &in, &out) != RAOT_OK;
        const double middle = now();
        const int fails = several_run(&shared, &same, &in_again, &out_again) != RAOT_OK;

        (void)printf("%.9f %.9f\n", middle - start, now() - middle);
        if (failed || fails || memcmp(one, all, count * sizeof *one) != 0) {
            (void)fprintf(stderr, "results differ\n");
            return 1;
        }
    }
    several_threads_join(&threads, &shared);
    return 0;
}
