/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_blas.h - large products of a run by cuBLASLt, between the graphs of its other launches.
 *
 * Everything that the library gives is made when the model opens: the handle, descriptors, and an
 * algorithm for each class of sizes. A product runs once for each class then, so that the library
 * loads its kernels. A run changes descriptors where sizes differ, and has one algorithm checked;
 * where that does not serve these sizes, the kernels of the project compute the product.
 */
#ifndef RAOT_CUDA_BLAS_H
#define RAOT_CUDA_BLAS_H

#include "cuda.h"
#include "cuda_blas_driver.h"

enum {
    RAOT_BLAS_CLASSES = 8, /* sizes up to 1/128 of the greatest ones, to 1/64, ..., to all */
    RAOT_BLAS_LAYOUTS = 3, /* of the factors and the result of the library */
    RAOT_BLAS_RUN = -1
};

/* What is the same of a product at all sizes; enumerations of cuBLASLt. */
struct raot_blas_kind {
    int compute;
    int factors;
    int result;
    int32_t transposed[2];
    int32_t biased;
};

/* The sizes of a product: of its result, the steps of its sums, and the batch; then how many
   elements columns and matrices of the batch are apart, of the factors and the result. */
struct raot_blas_sizes {
    int64_t rows;
    int64_t columns;
    int64_t steps;
    int64_t batch;
    int64_t pitch[RAOT_BLAS_LAYOUTS];
    int64_t apart[RAOT_BLAS_LAYOUTS];
};

/* Where a product has its factors, result, bias and workspace; 0 for those that it lacks. */
struct raot_blas_operands {
    raot_address factors[2];
    raot_address result;
    raot_address bias;
    raot_address workspace;
    size_t workspace_bytes;
};

/* A product. Layouts are of its sizes; an algorithm is chosen where the library computes it. */
struct raot_blas_product {
    void *operation;
    void *layouts[RAOT_BLAS_LAYOUTS];
    struct raot_blas_sizes sizes;
    struct raot_blas_operands operands;
    struct raot_blas_algorithm algorithms[RAOT_BLAS_CLASSES];
    int64_t work[RAOT_BLAS_CLASSES]; /* that an algorithm is for; 0 without one */
    const struct raot_blas_algorithm *chosen;
    int32_t known; /* the choice is that for these sizes */
};

/* The library, as a model uses it. */
struct raot_blas {
    void *library;
    void *handle; /* null where the library is absent */
    void *preference;
    void *event;       /* the end of the last run: the next one waits for it, in whatever stream */
    int32_t preparing; /* for a class of sizes, or RAOT_BLAS_RUN */
    struct raot_blas_functions call;
};

/* 1 if a function of the library succeeded. */
static inline int raot_blas_try(struct raot_cuda *cuda, const char *what, int status)
{
    if (status == RAOT_BLAS_OK) {
        return 1;
    }
    if (cuda->status == RAOT_OK) {
        raot_cuda_fail(cuda, what, ": status ");
        raot_cuda_append_number(cuda, (size_t)status);
    }
    return 0;
}

/* A size of a class: the greatest one halved for each greater class, at least the lowest. */
static inline int32_t raot_blas_size(int32_t low, int32_t high, int32_t class)
{
    const int32_t size = high >> (RAOT_BLAS_CLASSES - 1 - class);

    return size < low ? low : size;
}

/* Loads the newest library that the driver can have, if there is one that works. */
static inline void raot_blas_load(struct raot_cuda *cuda, struct raot_blas *blas)
{
    int version = 0;
    size_t i;

    if (!raot_cuda_try(cuda, "cuDriverGetVersion", cuda->driver.driver_version(&version))) {
        return;
    }
    for (i = 0; i < RAOT_BLAS_FILES && blas->handle == NULL; i++) {
        if (raot_blas_files[i].toolkit > version / 1000) {
            continue;
        }
        blas->library = dlopen(raot_blas_files[i].name, RTLD_NOW | RTLD_LOCAL);
        if (blas->library == NULL) {
            continue;
        }
        if (!raot_blas_resolve(&blas->call, blas->library, cuda->library) ||
            blas->call.create(&blas->handle) != RAOT_BLAS_OK) {
            blas->handle = NULL;
            (void)dlclose(blas->library);
            blas->library = NULL;
        }
    }
}

/* Begins with the library. A program that requires it fails where it is absent. */
static inline void raot_blas_open(struct raot_cuda *cuda, struct raot_blas *blas, int required)
{
    const uint32_t alignment = RAOT_CUDA_VALUE_ALIGNMENT;
    int i;

    blas->preparing = RAOT_BLAS_RUN;
    if (cuda->status == RAOT_OK) {
        raot_blas_load(cuda, blas);
    }
    if (cuda->status == RAOT_OK && blas->handle == NULL && required) {
        raot_cuda_fail(cuda, raot_blas_files[RAOT_BLAS_FILES - 1].name,
                       ": neither this library nor a later one works here");
    }
    if (cuda->status != RAOT_OK || blas->handle == NULL ||
        !raot_cuda_try(cuda, "cuEventCreate",
                       blas->call.event_create(&blas->event, RAOT_CUDA_EVENT_PLAIN)) ||
        !raot_blas_try(cuda, "cublasLtMatmulPreferenceCreate",
                       blas->call.preference_create(&blas->preference))) {
        return;
    }
    for (i = 0; i <= RAOT_BLAS_LAYOUTS && cuda->status == RAOT_OK; i++) {
        (void)raot_blas_try(cuda, "cublasLtMatmulPreferenceSetAttribute",
                            blas->call.preference_set(blas->preference, RAOT_BLAS_ALIGNMENT_A + i,
                                                      &alignment, sizeof alignment));
    }
}

static inline void raot_blas_set(struct raot_cuda *cuda, const struct raot_blas *blas,
                                 void *operation, int attribute, const void *value, size_t bytes)
{
    if (cuda->status == RAOT_OK) {
        (void)raot_blas_try(cuda, "cublasLtMatmulDescSetAttribute",
                            blas->call.operation_set(operation, attribute, value, bytes));
    }
}

/* Makes the descriptors of a product. */
static inline void raot_blas_describe(struct raot_cuda *cuda, const struct raot_blas *blas,
                                      struct raot_blas_product *product,
                                      const struct raot_blas_kind *kind)
{
    const int32_t epilogue = RAOT_BLAS_EPILOGUE_BIAS;
    int i;

    if (cuda->status != RAOT_OK || blas->handle == NULL ||
        !raot_blas_try(
            cuda, "cublasLtMatmulDescCreate",
            blas->call.operation_create(&product->operation, kind->compute, RAOT_BLAS_F32))) {
        return;
    }
    for (i = 0; i < 2; i++) {
        raot_blas_set(cuda, blas, product->operation, RAOT_BLAS_TRANSPOSE_A + i,
                      &kind->transposed[i], sizeof kind->transposed[i]);
    }
    if (kind->biased != 0) {
        raot_blas_set(cuda, blas, product->operation, RAOT_BLAS_EPILOGUE, &epilogue,
                      sizeof epilogue);
    }
    for (i = 0; i < RAOT_BLAS_LAYOUTS && cuda->status == RAOT_OK; i++) {
        const int type = i < 2 ? kind->factors : kind->result;

        (void)raot_blas_try(cuda, "cublasLtMatrixLayoutCreate",
                            blas->call.layout_create(&product->layouts[i], type, 1u, 1u, 1));
    }
}

/* Gives the descriptors of a product back. */
static inline void raot_blas_forget(struct raot_cuda *cuda, const struct raot_blas *blas,
                                    struct raot_blas_product *product)
{
    int i;

    for (i = 0; i < RAOT_BLAS_LAYOUTS; i++) {
        if (product->layouts[i] != NULL) {
            (void)raot_blas_try(cuda, "cublasLtMatrixLayoutDestroy",
                                blas->call.layout_destroy(product->layouts[i]));
        }
    }
    if (product->operation != NULL) {
        (void)raot_blas_try(cuda, "cublasLtMatmulDescDestroy",
                            blas->call.operation_destroy(product->operation));
    }
}

/* Ends with the library, after its products. */
static inline void raot_blas_close(struct raot_cuda *cuda, struct raot_blas *blas)
{
    if (blas->preference != NULL) {
        (void)raot_blas_try(cuda, "cublasLtMatmulPreferenceDestroy",
                            blas->call.preference_destroy(blas->preference));
    }
    if (blas->event != NULL) {
        (void)raot_cuda_try(cuda, "cuEventDestroy", blas->call.event_destroy(blas->event));
    }
    if (blas->handle != NULL) {
        (void)raot_blas_try(cuda, "cublasLtDestroy", blas->call.destroy(blas->handle));
    }
    if (blas->library != NULL) {
        (void)dlclose(blas->library);
    }
    (void)memset(blas, 0, sizeof *blas);
}

/* Sets one layout of a product to its sizes; nothing is allocated. */
static inline void raot_blas_layout(struct raot_cuda *cuda, const struct raot_blas *blas,
                                    const struct raot_blas_product *product, int which,
                                    int64_t rows, int64_t columns)
{
    const int64_t values[] = {rows, columns, product->sizes.pitch[which],
                              product->sizes.apart[which]};
    const int attributes[] = {RAOT_BLAS_LAYOUT_ROWS, RAOT_BLAS_LAYOUT_COLUMNS,
                              RAOT_BLAS_LAYOUT_PITCH, RAOT_BLAS_LAYOUT_APART};
    const int32_t batch = (int32_t)product->sizes.batch;
    void *const layout = product->layouts[which];
    size_t i;

    for (i = 0; i < sizeof values / sizeof values[0] && cuda->status == RAOT_OK; i++) {
        (void)raot_blas_try(
            cuda, "cublasLtMatrixLayoutSetAttribute",
            blas->call.layout_set(layout, attributes[i], &values[i], sizeof values[i]));
    }
    if (cuda->status == RAOT_OK) {
        (void)raot_blas_try(
            cuda, "cublasLtMatrixLayoutSetAttribute",
            blas->call.layout_set(layout, RAOT_BLAS_LAYOUT_BATCH, &batch, sizeof batch));
    }
}

/* 1 if the sizes are equal. */
static inline int raot_blas_same(const struct raot_blas_sizes *a, const struct raot_blas_sizes *b)
{
    int same = a->rows == b->rows && a->columns == b->columns && a->steps == b->steps &&
               a->batch == b->batch;

    for (size_t i = 0; i < RAOT_BLAS_LAYOUTS; i++) {
        same = same != 0 && a->pitch[i] == b->pitch[i] && a->apart[i] == b->apart[i];
    }
    return same;
}

/* Sets the descriptors of a product to sizes and places. */
static inline void raot_blas_change(struct raot_cuda *cuda, const struct raot_blas *blas,
                                    struct raot_blas_product *product,
                                    const struct raot_blas_kind *kind,
                                    const struct raot_blas_sizes *sizes,
                                    const struct raot_blas_operands *operands)
{
    if (raot_blas_same(&product->sizes, sizes) == 0) {
        const int64_t first = kind->transposed[0], second = kind->transposed[1];

        product->sizes = *sizes;
        product->known = 0;
        raot_blas_layout(cuda, blas, product, 0, first ? sizes->steps : sizes->columns,
                         first ? sizes->columns : sizes->steps);
        raot_blas_layout(cuda, blas, product, 1, second ? sizes->rows : sizes->steps,
                         second ? sizes->steps : sizes->rows);
        raot_blas_layout(cuda, blas, product, 2, sizes->columns, sizes->rows);
    }
    if (kind->biased != 0 && product->operands.bias != operands->bias) {
        raot_blas_set(cuda, blas, product->operation, RAOT_BLAS_BIAS_POINTER, &operands->bias,
                      sizeof operands->bias);
    }
    product->operands = *operands;
    if (cuda->status != RAOT_OK) { /* what the descriptors have is unknown */
        product->sizes.batch = 0;
        product->operands.bias = 0u;
    }
}

static inline int64_t raot_blas_work(const struct raot_blas_sizes *sizes)
{
    return sizes->rows * sizes->columns * sizes->steps * sizes->batch;
}

/* Asks the library for an algorithm for a class of sizes. */
static inline void raot_blas_ask(struct raot_cuda *cuda, const struct raot_blas *blas,
                                 struct raot_blas_product *product)
{
    struct raot_blas_algorithm *const found = &product->algorithms[blas->preparing];
    const uint64_t bytes = product->operands.workspace_bytes;
    void *const *const layouts = product->layouts;
    int count = 0;

    product->chosen = NULL;
    if (!raot_blas_try(cuda, "cublasLtMatmulPreferenceSetAttribute",
                       blas->call.preference_set(blas->preference, RAOT_BLAS_WORKSPACE_BYTES,
                                                 &bytes, sizeof bytes))) {
        return;
    }
    if (blas->call.algorithm_get(blas->handle, product->operation, layouts[0], layouts[1],
                                 layouts[2], layouts[2], blas->preference, 1, found,
                                 &count) == RAOT_BLAS_OK &&
        count == 1 && found->status == RAOT_BLAS_OK) {
        product->work[blas->preparing] = raot_blas_work(&product->sizes);
        product->chosen = found;
    }
}

/* Chooses the algorithm of the least class that has these sizes, if it serves them. */
static inline void raot_blas_choose(const struct raot_blas *blas, struct raot_blas_product *product)
{
    const int64_t work = raot_blas_work(&product->sizes);
    void *const *const layouts = product->layouts;
    struct raot_blas_algorithm checked;
    int i;

    product->chosen = NULL;
    for (i = 0; i < RAOT_BLAS_CLASSES && product->chosen == NULL; i++) {
        if (product->work[i] >= work) {
            product->chosen = &product->algorithms[i];
        }
    }
    if (product->chosen != NULL &&
        (blas->call.algorithm_check(blas->handle, product->operation, layouts[0], layouts[1],
                                    layouts[2], layouts[2], product->chosen->data,
                                    &checked) != RAOT_BLAS_OK ||
         checked.workspace_bytes > product->operands.workspace_bytes)) {
        product->chosen = NULL;
    }
    product->known = 1;
}

/* Starts a product in a stream. */
static inline void raot_blas_multiply(struct raot_cuda *cuda, const struct raot_blas *blas,
                                      const struct raot_blas_product *product, void *stream)
{
    const struct raot_blas_operands *const at = &product->operands;
    void *const *const layouts = product->layouts;
    const float one = 1.0f, zero = 0.0f;
    void *const result = (void *)(uintptr_t)at->result;

    (void)raot_blas_try(cuda, "cublasLtMatmul",
                        blas->call.multiply(blas->handle, product->operation, &one,
                                            (const void *)(uintptr_t)at->factors[0], layouts[0],
                                            (const void *)(uintptr_t)at->factors[1], layouts[1],
                                            &zero, result, layouts[2], result, layouts[2],
                                            product->chosen->data, (void *)(uintptr_t)at->workspace,
                                            at->workspace_bytes, stream));
}

/*
 * A product of a run, with its sizes and places; `wanted` where it is large enough at these sizes.
 * While the model opens, an algorithm for the class of sizes is asked for and tried.
 */
static inline void raot_blas_launch(struct raot_cuda *cuda, const struct raot_blas *blas,
                                    struct raot_blas_product *product,
                                    const struct raot_blas_kind *kind, int wanted,
                                    const struct raot_blas_sizes *sizes,
                                    const struct raot_blas_operands *operands)
{
    if (cuda->status != RAOT_OK || blas->handle == NULL || !wanted) {
        product->chosen = NULL;
        product->known = 0;
        return;
    }
    raot_blas_change(cuda, blas, product, kind, sizes, operands);
    if (cuda->status != RAOT_OK) {
        return;
    }
    if (blas->preparing == RAOT_BLAS_RUN) {
        if (!product->known) {
            raot_blas_choose(blas, product);
        }
        return;
    }
    raot_blas_ask(cuda, blas, product);
    if (product->chosen != NULL && cuda->status == RAOT_OK) {
        raot_blas_multiply(cuda, blas, product, cuda->stream);
    }
    product->known = 0;
}

/* Begins a run in a stream: behind the last one, in whatever stream that was. */
static inline void raot_blas_begin(struct raot_cuda *cuda, const struct raot_blas *blas,
                                   void *stream)
{
    if (cuda->status == RAOT_OK && blas->handle != NULL) {
        (void)raot_cuda_try(cuda, "cuStreamWaitEvent",
                            blas->call.event_wait(stream, blas->event, 0u));
    }
}

/* Starts a product by the library, or else the launches that compute it; 1 if it did. */
static inline int raot_blas_start(struct raot_cuda *cuda, const struct raot_blas *blas,
                                  const struct raot_blas_product *product,
                                  const struct raot_cuda_run *own, void *stream)
{
    if (product->chosen == NULL) {
        return raot_cuda_start(cuda, own, stream);
    }
    if (cuda->status == RAOT_OK) {
        raot_blas_multiply(cuda, blas, product, stream);
    }
    return cuda->status == RAOT_OK;
}

/* Ends a run in a stream. Of a run that began and failed nothing goes on behind it. */
static inline void raot_blas_end(struct raot_cuda *cuda, const struct raot_blas *blas, int started,
                                 void *stream)
{
    if (cuda->status == RAOT_OK && blas->handle != NULL) {
        (void)raot_cuda_try(cuda, "cuEventRecord", blas->call.event_record(blas->event, stream));
    }
    if (cuda->status != RAOT_OK && started) {
        (void)cuda->driver.stream_wait(stream);
    }
}

#endif
