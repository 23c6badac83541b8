/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - the launches of a run on a GPU, as one graph that is kept. */
#ifndef RAOT_CUDA_H
#define RAOT_CUDA_H

#include "cuda_device.h"
#include "cuda_memory.h"
#include "cuda_open.h"

/*
 * One launch of a run; the launches of a run are given in the same order each time. The first
 * time they become nodes of a graph, later what changed is changed in its executable.
 */
static inline void raot_launch(struct raot_cuda *cuda, struct raot_cuda_run *run, size_t function,
                               int32_t grid, uint32_t threads, const raot_address *words,
                               uint32_t count)
{
    struct raot_launch *const launch = &run->launches[run->next];
    raot_address *const kept = &run->words[run->next_word];
    void *const before = run->next > 0u ? run->launches[run->next - 1u].node : NULL;
    struct raot_cuda_node node = {0};
    uint32_t i;
    int made;

    node.function = cuda->functions[function];
    node.grid_x = grid < 1 ? 1u : (uint32_t)grid; /* a grid is never empty */
    node.grid_y = 1u;
    node.grid_z = 1u;
    node.block_x = threads;
    node.block_y = 1u;
    node.block_z = 1u;
    node.shared_bytes = (uint32_t)cuda->table[function].shared_bytes;
    node.parameters = cuda->parameters;
    run->next++;
    run->next_word += count;
    if (cuda->status != RAOT_OK || (run->executable != NULL && launch->blocks == node.grid_x &&
                                    memcmp(kept, words, count * sizeof *words) == 0)) {
        return;
    }
    launch->blocks = 0u;
    for (i = 0; i < count; i++) {
        kept[i] = words[i];
        cuda->parameters[i] = &kept[i];
    }
    if (run->executable != NULL) {
        made = raot_cuda_try(cuda, "cuGraphExecKernelNodeSetParams",
                             cuda->driver.executable_set(run->executable, launch->node, &node));
    } else {
        made = raot_cuda_try(cuda, "cuGraphAddKernelNode",
                             cuda->driver.graph_add(&launch->node, run->graph, &before,
                                                    before == NULL ? 0u : 1u, &node));
    }
    if (made != 0) {
        launch->blocks = node.grid_x;
    }
}

/* Makes the graph whose launches follow. */
static inline void raot_cuda_begin(struct raot_cuda *cuda, struct raot_cuda_run *run)
{
    run->next = 0u;
    run->next_word = 0u;
    if (run->graph == NULL && cuda->status == RAOT_OK) {
        (void)raot_cuda_try(cuda, "cuGraphCreate", cuda->driver.graph_create(&run->graph, 0u));
    }
}

/* Makes the graph executable once its launches are known. */
static inline void raot_cuda_instantiate(struct raot_cuda *cuda, struct raot_cuda_run *run)
{
    if (cuda->status == RAOT_OK) {
        (void)raot_cuda_try(
            cuda, "cuGraphInstantiate",
            cuda->driver.graph_instantiate(&run->executable, run->graph, NULL, NULL, 0u));
    }
}

/* Gives a graph back. */
static inline void raot_cuda_forget(struct raot_cuda *cuda, struct raot_cuda_run *run)
{
    if (run->executable != NULL) {
        (void)raot_cuda_try(cuda, "cuGraphExecDestroy",
                            cuda->driver.executable_destroy(run->executable));
        run->executable = NULL;
    }
    if (run->graph != NULL) {
        (void)raot_cuda_try(cuda, "cuGraphDestroy", cuda->driver.graph_destroy(run->graph));
        run->graph = NULL;
    }
}

/* Starts the launches of a run; 1 unless something failed before. */
static inline int raot_cuda_start(struct raot_cuda *cuda, const struct raot_cuda_run *run,
                                  void *stream)
{
    return cuda->status == RAOT_OK &&
           raot_cuda_try(cuda, "cuGraphLaunch",
                         cuda->driver.executable_launch(run->executable, stream));
}

/*
 * Waits for the runs of a stream. A failure on the GPU stays in its frame, so that later runs
 * leave, until it is told here.
 */
static inline void raot_cuda_wait(struct raot_cuda *cuda, void *stream)
{
    if (cuda->status != RAOT_OK ||
        !raot_cuda_try(cuda, "cuStreamSynchronize", cuda->driver.stream_wait(stream)) ||
        cuda->words[0] == 0) {
        return;
    }
    if (raot_cuda_try(cuda, "cuMemsetD8Async",
                      cuda->driver.fill(cuda->frame, 0u, sizeof(int32_t), stream)) &&
        raot_cuda_try(cuda, "cuStreamSynchronize", cuda->driver.stream_wait(stream))) {
        cuda->status = (enum raot_status)cuda->words[0];
        cuda->words[0] = 0;
    }
}

#endif
