/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.h - the CUDA driver, loaded while the program runs: nothing of CUDA is linked. */
#ifndef RAOT_CUDA_DRIVER_H
#define RAOT_CUDA_DRIVER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The file of the driver; a path where the loader does not look for it. */
#ifndef RAOT_CUDA_LIBRARY
#define RAOT_CUDA_LIBRARY "libcuda.so.1"
#endif

/* The GPU that is used where the calling thread has no current context. */
#ifndef RAOT_CUDA_DEVICE
#define RAOT_CUDA_DEVICE 0
#endif

/* CUdeviceptr: an address of the GPU. */
typedef uint64_t raot_address;

/* CUDA_KERNEL_NODE_PARAMS of CUDA 10.1. */
struct raot_cuda_node {
    void *function;
    unsigned int grid_x;
    unsigned int grid_y;
    unsigned int grid_z;
    unsigned int block_x;
    unsigned int block_y;
    unsigned int block_z;
    unsigned int shared_bytes;
    void **parameters;
    void **extra;
};

/* Values of enumerations of cuda.h. */
enum {
    RAOT_CUDA_INTEGRATED = 18,
    RAOT_CUDA_MAJOR = 75,
    RAOT_CUDA_MINOR = 76,
    RAOT_CUDA_MOST_SHARED_BYTES = 8, /* of a function: those that launches may ask for */
    RAOT_CUDA_STREAM_NON_BLOCKING = 1,
    RAOT_CUDA_HOST_PORTABLE_MAPPED = 3
};

/*
 * The functions that are used. Each has the binary interface of CUDA 10.1, which later drivers
 * keep under the same name.
 */
struct raot_driver {
    int (*init)(unsigned int flags);
    int (*driver_version)(int *version);
    int (*error_text)(int error, const char **text);
    int (*device_get)(int *device, int ordinal);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_current)(void **context);
    int (*context_device)(int *device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*module_load)(void **module, const void *image);
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    int (*function_set)(void *function, int attribute, int value);
    int (*alloc)(raot_address *address, size_t bytes);
    int (*free)(raot_address address);
    int (*host_alloc)(void **pointer, size_t bytes, unsigned int flags);
    int (*host_free)(void *pointer);
    int (*host_address)(raot_address *address, void *pointer, unsigned int flags);
    int (*copy_in)(raot_address target, const void *source, size_t bytes, void *stream);
    int (*fill)(raot_address target, unsigned char value, size_t bytes, void *stream);
    int (*stream_create)(void **stream, unsigned int flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*graph_create)(void **graph, unsigned int flags);
    int (*graph_destroy)(void *graph);
    int (*graph_add)(void **node, void *graph, void *const *after, size_t count,
                     const struct raot_cuda_node *parameters);
    int (*graph_instantiate)(void **executable, void *graph, void **node, char *log, size_t bytes);
    int (*executable_destroy)(void *executable);
    int (*executable_set)(void *executable, void *node, const struct raot_cuda_node *parameters);
    int (*executable_launch)(void *executable, void *stream);
};

/* The symbols of these functions, in their order. */
static const char *const raot_driver_symbols[] = {
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphAddKernelNode",
    "cuGraphInstantiate",
    "cuGraphExecDestroy",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphLaunch",
};

enum { RAOT_DRIVER_SYMBOLS = sizeof raot_driver_symbols / sizeof raot_driver_symbols[0] };

/* The name of the first symbol that the library lacks, else null; fills `driver`. */
static inline const char *raot_driver_resolve(struct raot_driver *driver, void *library)
{
    unsigned char *const places = (unsigned char *)driver;
    size_t i;

    _Static_assert(sizeof(struct raot_driver) == RAOT_DRIVER_SYMBOLS * sizeof(void *),
                   "each function has a symbol");
    for (i = 0; i < RAOT_DRIVER_SYMBOLS; i++) {
        void *const symbol = dlsym(library, raot_driver_symbols[i]);

        if (symbol == NULL) {
            return raot_driver_symbols[i];
        }
        /* POSIX: the address of a function fits a pointer to data. */
        (void)memcpy(places + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return NULL;
}

#endif
