/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_open.h - a model begins and ends on a GPU. */
#ifndef RAOT_CUDA_OPEN_H
#define RAOT_CUDA_OPEN_H

#include "cuda_device.h"

/* The context that is current, or else that of the first GPU. */
static inline void raot_cuda_context(struct raot_cuda *cuda)
{
    const struct raot_driver *const driver = &cuda->driver;

    if (!raot_cuda_try(cuda, "cuInit", driver->init(0u)) ||
        !raot_cuda_try(cuda, "cuCtxGetCurrent", driver->context_current(&cuda->context))) {
        return;
    }
    if (cuda->context != NULL) {
        (void)raot_cuda_try(cuda, "cuCtxGetDevice", driver->context_device(&cuda->device));
        return;
    }
    if (raot_cuda_try(cuda, "cuDeviceGet", driver->device_get(&cuda->device, RAOT_CUDA_DEVICE)) &&
        raot_cuda_try(cuda, "cuDevicePrimaryCtxRetain",
                      driver->context_retain(&cuda->context, cuda->device))) {
        cuda->retained = 1;
    }
}

/*
 * Refuses a GPU whose instructions are others than those of the machine code. What a user's nvcc
 * made may have instructions for later GPUs too, of which the driver knows.
 */
static inline void raot_cuda_chip(struct raot_cuda *cuda, const struct raot_cuda_program *program)
{
    const int32_t sm = program->sm;
    const int later = program->cubins[0].toolkit == RAOT_CUDA_ANY_TOOLKIT;
    const struct raot_driver *const driver = &cuda->driver;
    int major = 0;
    int minor = 0;

    if (cuda->status != RAOT_OK ||
        !raot_cuda_try(cuda, "cuDeviceGetAttribute",
                       driver->device_attribute(&major, RAOT_CUDA_MAJOR, cuda->device)) ||
        !raot_cuda_try(cuda, "cuDeviceGetAttribute",
                       driver->device_attribute(&minor, RAOT_CUDA_MINOR, cuda->device)) ||
        !raot_cuda_try(
            cuda, "cuDeviceGetAttribute",
            driver->device_attribute(&cuda->integrated, RAOT_CUDA_INTEGRATED, cuda->device))) {
        return;
    }
    if ((major != sm / 10 || minor < sm % 10) && !(later && major > sm / 10)) {
        raot_cuda_fail(cuda, "the GPU has compute capability ", "");
        raot_cuda_append_number(cuda, (size_t)major);
        raot_cuda_append(cuda, ".");
        raot_cuda_append_number(cuda, (size_t)minor);
        raot_cuda_append(cuda, "; the kernels are machine code for ");
        raot_cuda_append_number(cuda, (size_t)(sm / 10));
        raot_cuda_append(cuda, ".");
        raot_cuda_append_number(cuda, (size_t)(sm % 10));
    }
}

/* Loads the newest machine code that the driver can have. */
static inline void raot_cuda_load(struct raot_cuda *cuda, const struct raot_cuda_program *program)
{
    const unsigned char *image = NULL;
    int version = 0;
    size_t i;

    if (cuda->status != RAOT_OK ||
        !raot_cuda_try(cuda, "cuDriverGetVersion", cuda->driver.driver_version(&version))) {
        return;
    }
    for (i = 0; i < program->cubin_count; i++) {
        if (program->cubins[i].toolkit <= version / 1000) {
            image = program->cubins[i].image;
        }
    }
    if (image == NULL) {
        raot_cuda_fail(cuda, "the driver is of CUDA ", "");
        raot_cuda_append_number(cuda, (size_t)version / 1000u);
        raot_cuda_append(cuda, "; the kernels need CUDA ");
        raot_cuda_append_number(cuda, (size_t)program->cubins[0].toolkit);
        return;
    }
    if (!raot_cuda_try(cuda, "cuModuleLoadData", cuda->driver.module_load(&cuda->module, image))) {
        cuda->module = NULL;
        return;
    }
    cuda->table = program->functions;
    for (i = 0; i < program->function_count && cuda->status == RAOT_OK; i++) {
        const struct raot_cuda_function *const one = &program->functions[i];

        if (raot_cuda_try(
                cuda, one->name,
                cuda->driver.module_function(&cuda->functions[i], cuda->module, one->name)) &&
            one->shared_bytes > 0) {
            (void)raot_cuda_try(cuda, "cuFuncSetAttribute",
                                cuda->driver.function_set(cuda->functions[i],
                                                          RAOT_CUDA_MOST_SHARED_BYTES,
                                                          one->shared_bytes));
        }
    }
}

/* One block on the GPU, and one that both sides access. */
static inline void raot_cuda_blocks(struct raot_cuda *cuda, const struct raot_cuda_program *program)
{
    const size_t weights = raot_cuda_rounded(program->weights_bytes);
    const size_t state = raot_cuda_rounded(program->state_bytes);
    const size_t arena = raot_cuda_rounded(program->arena_bytes);
    const size_t inputs = cuda->integrated ? 0u : program->input_bytes;
    const size_t bytes = RAOT_CUDA_FRAME_BYTES + weights + state + arena + inputs;
    void *host = NULL;

    if (cuda->status != RAOT_OK) {
        return;
    }
    if (!raot_cuda_try(cuda, "cuMemAlloc", cuda->driver.alloc(&cuda->block, bytes))) {
        cuda->block = 0u;
        raot_cuda_append(cuda, ", bytes: ");
        raot_cuda_append_number(cuda, bytes);
        return;
    }
    cuda->frame = cuda->block;
    cuda->weights = cuda->frame + RAOT_CUDA_FRAME_BYTES;
    cuda->state = cuda->weights + weights;
    cuda->arena = cuda->state + state;
    cuda->inputs = cuda->arena + arena;
    if (!raot_cuda_try(cuda, "cuMemHostAlloc",
                       cuda->driver.host_alloc(&host,
                                               RAOT_CUDA_FRAME_BYTES + program->input_bytes +
                                                   program->output_bytes,
                                               RAOT_CUDA_HOST_PORTABLE_MAPPED))) {
        return;
    }
    cuda->host = host;
    cuda->words = host;
    (void)memset(host, 0, RAOT_CUDA_FRAME_BYTES);
    (void)raot_cuda_try(cuda, "cuMemHostGetDevicePointer",
                        cuda->driver.host_address(&cuda->host_address, host, 0u));
}

/* Copies the constants. */
static inline void raot_cuda_upload(struct raot_cuda *cuda, const struct raot_upload *uploads,
                                    size_t count)
{
    size_t i;

    for (i = 0; i < count && cuda->status == RAOT_OK; i++) {
        const struct raot_upload *const one = &uploads[i];

        (void)raot_cuda_try(cuda, "cuMemcpyHtoDAsync",
                            cuda->driver.copy_in(cuda->weights + one->offset, one->source,
                                                 one->bytes, cuda->stream));
    }
}

/* Clears the frame and the state. */
static inline void raot_cuda_clear(struct raot_cuda *cuda, size_t state_bytes)
{
    if (cuda->status == RAOT_OK) {
        (void)raot_cuda_try(
            cuda, "cuMemsetD8Async",
            cuda->driver.fill(cuda->frame, 0u, RAOT_CUDA_FRAME_BYTES, cuda->stream));
    }
    if (cuda->status == RAOT_OK && state_bytes > 0u) {
        (void)raot_cuda_try(cuda, "cuMemsetD8Async",
                            cuda->driver.fill(cuda->state, 0u, state_bytes, cuda->stream));
    }
    if (cuda->status == RAOT_OK) {
        (void)raot_cuda_try(cuda, "cuStreamSynchronize", cuda->driver.stream_wait(cuda->stream));
    }
}

/* Gives everything but graphs back. The message stays. */
static inline void raot_cuda_release(struct raot_cuda *cuda)
{
    const struct raot_driver *const driver = &cuda->driver;

    while (cuda->mappings != NULL) {
        struct raot_mapping *const mapping = cuda->mappings;

        cuda->mappings = mapping->next;
        (void)raot_cuda_try(cuda, "cuMemFreeHost", driver->host_free(mapping));
    }
    if (cuda->host != NULL) {
        (void)raot_cuda_try(cuda, "cuMemFreeHost", driver->host_free(cuda->host));
    }
    if (cuda->block != 0u) {
        (void)raot_cuda_try(cuda, "cuMemFree", driver->free(cuda->block));
    }
    if (cuda->stream != NULL) {
        (void)raot_cuda_try(cuda, "cuStreamDestroy", driver->stream_destroy(cuda->stream));
    }
    if (cuda->module != NULL) {
        (void)raot_cuda_try(cuda, "cuModuleUnload", driver->module_unload(cuda->module));
    }
}

/* Leaves the context and the driver; the last step of a close. */
static inline void raot_cuda_end(struct raot_cuda *cuda)
{
    if (cuda->retained != 0) {
        (void)raot_cuda_try(cuda, "cuDevicePrimaryCtxRelease",
                            cuda->driver.context_release(cuda->device));
    }
    if (cuda->library != NULL) {
        (void)dlclose(cuda->library);
    }
    cuda->library = NULL;
}

/*
 * Opens a model: context, kernels, memory, constants. The fields `functions` and `parameters`
 * are set by the caller before. On failure, everything is given back.
 */
static inline enum raot_status raot_cuda_open(struct raot_cuda *cuda,
                                              const struct raot_cuda_program *program)
{
    const char *missing;

    cuda->mark = RAOT_CUDA_MARK;
    cuda->self = cuda;
    cuda->library = dlopen(RAOT_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (cuda->library == NULL) {
        raot_cuda_fail(cuda, RAOT_CUDA_LIBRARY, ": no such driver on this machine");
        return cuda->status;
    }
    missing = raot_driver_resolve(&cuda->driver, cuda->library);
    if (missing != NULL) {
        raot_cuda_fail(cuda, missing, ": the driver has no such function; it is too old");
        raot_cuda_end(cuda);
        return cuda->status;
    }
    raot_cuda_context(cuda);
    raot_cuda_chip(cuda, program);
    if (cuda->status != RAOT_OK ||
        !raot_cuda_try(cuda, "cuCtxPushCurrent", cuda->driver.context_push(cuda->context))) {
        raot_cuda_end(cuda);
        return cuda->status;
    }
    raot_cuda_load(cuda, program);
    if (cuda->status == RAOT_OK) {
        (void)raot_cuda_try(
            cuda, "cuStreamCreate",
            cuda->driver.stream_create(&cuda->stream, RAOT_CUDA_STREAM_NON_BLOCKING));
    }
    raot_cuda_blocks(cuda, program);
    raot_cuda_upload(cuda, program->uploads, program->upload_count);
    raot_cuda_clear(cuda, program->state_bytes);
    if (cuda->status != RAOT_OK) {
        raot_cuda_release(cuda);
    }
    (void)raot_cuda_leave(cuda);
    if (cuda->status != RAOT_OK) {
        raot_cuda_end(cuda);
    }
    return cuda->status;
}

#endif
