/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_blas_driver.h - cuBLASLt, loaded while the program runs: nothing of CUDA is linked. */
#ifndef RAOT_CUDA_BLAS_DRIVER_H
#define RAOT_CUDA_BLAS_DRIVER_H

#include "cuda_device.h"

/*
 * The files of the library by major version, newest first. A program may name one file instead,
 * where the loader does not look for it.
 */
static const struct raot_blas_file {
    int32_t toolkit;
    const char *name;
} raot_blas_files[] = {
#ifdef RAOT_CUBLASLT_LIBRARY
    {RAOT_CUDA_ANY_TOOLKIT, RAOT_CUBLASLT_LIBRARY},
#else
    {13, "libcublasLt.so.13"},
    {12, "libcublasLt.so.12"},
    {11, "libcublasLt.so.11"},
#endif
};

enum { RAOT_BLAS_FILES = sizeof raot_blas_files / sizeof raot_blas_files[0] };

/* Values of enumerations of cublasLt.h, cublas_api.h, library_types.h and cuda.h. */
enum {
    RAOT_BLAS_OK = 0,
    RAOT_BLAS_LAYOUT_ROWS = 2,
    RAOT_BLAS_LAYOUT_COLUMNS = 3,
    RAOT_BLAS_LAYOUT_PITCH = 4,
    RAOT_BLAS_LAYOUT_BATCH = 5,
    RAOT_BLAS_LAYOUT_APART = 6,
    RAOT_BLAS_TRANSPOSE_A = 3,
    RAOT_BLAS_TRANSPOSE_B = 4,
    RAOT_BLAS_EPILOGUE = 7,
    RAOT_BLAS_BIAS_POINTER = 8,
    RAOT_BLAS_EPILOGUE_BIAS = 4,
    RAOT_BLAS_WORKSPACE_BYTES = 1,
    RAOT_BLAS_ALIGNMENT_A = 5, /* those of B, C and D follow */
    RAOT_BLAS_F32 = 0,         /* CUDA_R_32F */
    RAOT_CUDA_EVENT_PLAIN = 2  /* CU_EVENT_DISABLE_TIMING */
};

/* cublasLtMatmulHeuristicResult_t: an algorithm, and what it needs. */
struct raot_blas_algorithm {
    uint64_t data[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

/* The functions that are used: those of cuBLASLt 11, 12 and 13, and events of the driver. */
struct raot_blas_functions {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*operation_create)(void **operation, int compute, int scale);
    int (*operation_set)(void *operation, int attribute, const void *value, size_t bytes);
    int (*operation_destroy)(void *operation);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t pitch);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*preference_destroy)(void *preference);
    int (*algorithm_get)(void *handle, void *operation, void *a, void *b, void *c, void *d,
                         void *preference, int most, struct raot_blas_algorithm *found, int *count);
    int (*algorithm_check)(void *handle, void *operation, void *a, void *b, void *c, void *d,
                           const void *algorithm, struct raot_blas_algorithm *found);
    int (*multiply)(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
                    const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                    void *d, void *d_layout, const void *algorithm, void *workspace, size_t bytes,
                    void *stream);
    int (*event_create)(void **event, unsigned int flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *stream, void *event, unsigned int flags);
};

/* The symbols of these functions, in their order: first those of the library. */
static const char *const raot_blas_symbols[] = {
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoCheck",
    "cublasLtMatmul",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
};

enum {
    RAOT_BLAS_SYMBOLS = sizeof raot_blas_symbols / sizeof raot_blas_symbols[0],
    RAOT_BLAS_EVENTS = 4 /* the last symbols are the driver's */
};

/* 1 if the library and the driver have all functions; fills `functions`. */
static inline int raot_blas_resolve(struct raot_blas_functions *functions, void *library,
                                    void *driver)
{
    unsigned char *const places = (unsigned char *)functions;
    size_t i;

    _Static_assert(sizeof(struct raot_blas_functions) == RAOT_BLAS_SYMBOLS * sizeof(void *),
                   "each function has a symbol");
    for (i = 0; i < RAOT_BLAS_SYMBOLS; i++) {
        void *const from = i < RAOT_BLAS_SYMBOLS - RAOT_BLAS_EVENTS ? library : driver;
        void *const symbol = dlsym(from, raot_blas_symbols[i]);

        if (symbol == NULL) {
            return 0;
        }
        /* POSIX: the address of a function fits a pointer to data. */
        (void)memcpy(&places[i * sizeof symbol], &symbol, sizeof symbol);
    }
    return 1;
}

#endif
