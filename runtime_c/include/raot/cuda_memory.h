/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.h - memory that both the CPU and the GPU access. */
#ifndef RAOT_CUDA_MEMORY_H
#define RAOT_CUDA_MEMORY_H

#include "cuda_device.h"

/* Mapped memory, aligned to RAOT_CUDA_ALIGNMENT; null on failure. */
static inline void *raot_cuda_alloc(struct raot_cuda *cuda, size_t bytes)
{
    void *pointer = NULL;
    raot_address address = 0u;
    struct raot_mapping *mapping;

    if (bytes > SIZE_MAX - RAOT_CUDA_ALIGNMENT || raot_cuda_enter(cuda) != RAOT_OK) {
        return NULL;
    }
    if (!raot_cuda_try(cuda, "cuMemHostAlloc",
                       cuda->driver.host_alloc(&pointer, RAOT_CUDA_ALIGNMENT + bytes,
                                               RAOT_CUDA_HOST_PORTABLE_MAPPED))) {
        pointer = NULL;
    } else if (!raot_cuda_try(cuda, "cuMemHostGetDevicePointer",
                              cuda->driver.host_address(&address, pointer, 0u))) {
        (void)cuda->driver.host_free(pointer);
        pointer = NULL;
    } else {
        /* The memory is mapped. */
    }
    (void)raot_cuda_leave(cuda);
    if (pointer == NULL) {
        return NULL;
    }
    mapping = pointer;
    mapping->next = cuda->mappings;
    mapping->bytes = bytes;
    mapping->address = address + RAOT_CUDA_ALIGNMENT;
    cuda->mappings = mapping;
    return raot_at(pointer, RAOT_CUDA_ALIGNMENT);
}

/* Gives mapped memory back; other pointers are left alone. What fails is tried again by close. */
static inline void raot_cuda_free(struct raot_cuda *cuda, const void *pointer)
{
    struct raot_mapping **link = &cuda->mappings;

    while (*link != NULL && raot_at(*link, RAOT_CUDA_ALIGNMENT) != pointer) {
        link = &(*link)->next;
    }
    if (*link != NULL && raot_cuda_enter(cuda) == RAOT_OK) {
        struct raot_mapping *const mapping = *link;
        struct raot_mapping *const next = mapping->next;

        if (raot_cuda_try(cuda, "cuMemFreeHost", cuda->driver.host_free(mapping)) != 0) {
            *link = next;
        }
        (void)raot_cuda_leave(cuda);
    }
}

/* The address on the GPU of `bytes` bytes of mapped memory; 0 if kernels cannot use them. */
static inline raot_address raot_cuda_mapped(const struct raot_cuda *cuda, const void *pointer,
                                            size_t bytes)
{
    struct raot_mapping *mapping;

    for (mapping = cuda->mappings; mapping != NULL; mapping = mapping->next) {
        const uintptr_t start = (uintptr_t)mapping + RAOT_CUDA_ALIGNMENT;
        const uintptr_t offset = (uintptr_t)pointer - start;

        if ((uintptr_t)pointer >= start && offset <= mapping->bytes &&
            bytes <= mapping->bytes - offset) {
            return offset % RAOT_CUDA_VALUE_ALIGNMENT == 0u ? mapping->address + offset : 0u;
        }
    }
    return 0u;
}

/* Where kernels read an input: mapped memory, or a copy at this offset. */
static inline raot_address raot_cuda_input(struct raot_cuda *cuda, const void *pointer,
                                           size_t bytes, size_t offset)
{
    const raot_address mapped = raot_cuda_mapped(cuda, pointer, bytes);
    unsigned char *const copy = cuda->host + RAOT_CUDA_FRAME_BYTES + offset;

    if (mapped != 0u) {
        return mapped;
    }
    if (bytes > 0u) {
        (void)memcpy(copy, pointer, bytes);
    }
    if (cuda->integrated != 0) {
        return cuda->host_address + RAOT_CUDA_FRAME_BYTES + offset;
    }
    if (bytes > 0u && cuda->status == RAOT_OK) {
        (void)raot_cuda_try(cuda, "cuMemcpyHtoDAsync",
                            cuda->driver.copy_in(cuda->inputs + offset, copy, bytes, cuda->stream));
    }
    return cuda->inputs + offset;
}

/* Where kernels write an output: mapped memory, or a copy at this offset. */
static inline raot_address raot_cuda_output(const struct raot_cuda *cuda, const void *pointer,
                                            size_t bytes, size_t offset)
{
    const raot_address mapped = raot_cuda_mapped(cuda, pointer, bytes);

    return mapped != 0u ? mapped : cuda->host_address + RAOT_CUDA_FRAME_BYTES + offset;
}

/* The bytes of an output reach the memory of the caller, if the run succeeded. */
static inline void raot_cuda_collect(const struct raot_cuda *cuda, void *pointer, size_t bytes,
                                     raot_address written, size_t offset)
{
    const raot_address copy = cuda->host_address + RAOT_CUDA_FRAME_BYTES + offset;

    if (cuda->status == RAOT_OK && bytes > 0u && written == copy) {
        (void)memcpy(pointer, cuda->host + RAOT_CUDA_FRAME_BYTES + offset, bytes);
    }
}

#endif
