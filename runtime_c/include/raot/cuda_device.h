/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_device.h - a model on a GPU: what it has there, and how calls fail. */
#ifndef RAOT_CUDA_DEVICE_H
#define RAOT_CUDA_DEVICE_H

#include "arena.h"
#include "cuda_driver.h"
#include "status.h"

enum {
    RAOT_CUDA_ALIGNMENT = 256,
    RAOT_CUDA_VALUE_ALIGNMENT = 16, /* of every value that kernels access */
    RAOT_CUDA_MESSAGE_BYTES = 160,
    RAOT_CUDA_ANY_TOOLKIT = 0,   /* of a struct raot_cubin: the user's nvcc made the machine code */
    RAOT_CUDA_FRAME_BYTES = 4096 /* words that the kernels of a run share; the first is a status */
};

#define RAOT_CUDA_MARK UINT64_C(0x52414f5443554441)

/* Machine code of all kernels (a cubin or fatbin), for drivers of this major version of CUDA and
   later ones. */
struct raot_cubin {
    int32_t toolkit;
    const unsigned char *image;
};

/* Constants that are copied to `offset` bytes behind the weights on the GPU. */
struct raot_upload {
    const void *source;
    size_t bytes;
    size_t offset;
};

/* A kernel, and the shared memory that a launch of it asks for. */
struct raot_cuda_function {
    const char *name;
    int32_t shared_bytes;
};

/* What a model has on the GPU. */
struct raot_cuda_program {
    int32_t sm; /* ten times the compute capability of the machine code */
    const struct raot_cubin *cubins;
    size_t cubin_count;
    const struct raot_cuda_function *functions;
    size_t function_count;
    const struct raot_upload *uploads;
    size_t upload_count;
    size_t weights_bytes;
    size_t state_bytes;
    size_t arena_bytes;
    size_t input_bytes; /* copies of inputs and outputs, for runs with pointers to host memory */
    size_t output_bytes;
};

/* One launch of a kernel, as the executable graph has it. */
struct raot_launch {
    void *node;
    uint32_t blocks; /* 0 where that is unknown */
};

/* The launches of a run, as a graph. */
struct raot_cuda_run {
    void *graph;
    void *executable;
    struct raot_launch *launches;
    raot_address *words; /* the parameters of all launches */
    uint32_t next;
    uint32_t next_word;
};

/* Memory that both the CPU and the GPU access; `RAOT_CUDA_ALIGNMENT` bytes before it. */
struct raot_mapping {
    struct raot_mapping *next;
    size_t bytes;
    raot_address address;
};

/* A model that is open on a GPU. */
struct raot_cuda {
    uint64_t mark;
    const void *self;
    enum raot_status status; /* of the call in progress */
    int32_t integrated;      /* the GPU uses the memory of the CPU */
    int32_t retained;        /* the context is ours to release */
    int32_t device;
    struct raot_driver driver;
    void *library;
    void *context;
    void *module;
    void *stream;
    void **functions;
    const struct raot_cuda_function *table; /* of these functions */
    void **parameters;                      /* room for those of one launch */
    raot_address block;
    raot_address frame;
    raot_address weights;
    raot_address state;
    raot_address arena;
    raot_address inputs;
    unsigned char *host; /* words, then copies of inputs and outputs */
    raot_address host_address;
    int32_t *words; /* what the last run left in the frame */
    struct raot_mapping *mappings;
    char message[RAOT_CUDA_MESSAGE_BYTES];
};

/* The bytes between the copies of two values, as a constant expression. */
#define RAOT_CUDA_APART(bytes) \
    (((bytes) + RAOT_CUDA_ALIGNMENT - 1) / RAOT_CUDA_ALIGNMENT * RAOT_CUDA_ALIGNMENT)

/* A number as a parameter of a launch. */
#define RAOT_WORD(number) ((raot_address)(uint32_t)(number))

static inline size_t raot_cuda_rounded(size_t bytes)
{
    return (bytes + (RAOT_CUDA_ALIGNMENT - 1u)) / RAOT_CUDA_ALIGNMENT * RAOT_CUDA_ALIGNMENT;
}

/* 1 between a successful open and close. */
static inline int raot_cuda_is_open(const struct raot_cuda *cuda)
{
    return cuda->mark == RAOT_CUDA_MARK && cuda->self == (const void *)cuda &&
           cuda->library != NULL;
}

/* The reason of the last RAOT_ERR_DEVICE. */
static inline const char *raot_cuda_message(const struct raot_cuda *cuda)
{
    return cuda->mark == RAOT_CUDA_MARK ? cuda->message : "";
}

static inline void raot_cuda_append(struct raot_cuda *cuda, const char *text)
{
    size_t end = strlen(cuda->message);

    while (*text != '\0' && end + 1u < RAOT_CUDA_MESSAGE_BYTES) {
        cuda->message[end++] = *text++;
    }
    cuda->message[end] = '\0';
}

static inline void raot_cuda_append_number(struct raot_cuda *cuda, size_t number)
{
    char digits[24];
    size_t at = sizeof digits - 1u;

    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + (int)(number % 10u));
        number /= 10u;
    } while (number > 0u);
    raot_cuda_append(cuda, &digits[at]);
}

/* Ends the call in progress with a message; its first failure is the one that is told. */
static inline void raot_cuda_fail(struct raot_cuda *cuda, const char *what, const char *why)
{
    if (cuda->status == RAOT_OK) {
        cuda->status = RAOT_ERR_DEVICE;
        cuda->message[0] = '\0';
        raot_cuda_append(cuda, what);
        raot_cuda_append(cuda, why);
    }
}

/* 1 if a function of the driver succeeded. */
static inline int raot_cuda_try(struct raot_cuda *cuda, const char *what, int error)
{
    const char *text = NULL;

    if (error == 0) {
        return 1;
    }
    if (cuda->driver.error_text(error, &text) != 0 || text == NULL) {
        text = "unknown error";
    }
    if (cuda->status == RAOT_OK) {
        raot_cuda_fail(cuda, what, ": ");
        raot_cuda_append(cuda, text);
    }
    return 0;
}

/* Begins a call: the context becomes current. */
static inline enum raot_status raot_cuda_enter(struct raot_cuda *cuda)
{
    cuda->status = RAOT_OK;
    (void)raot_cuda_try(cuda, "cuCtxPushCurrent", cuda->driver.context_push(cuda->context));
    return cuda->status;
}

/* Ends a call that began: its status. What it did is done, also if the context stays current. */
static inline enum raot_status raot_cuda_leave(struct raot_cuda *cuda)
{
    void *context = NULL;

    (void)cuda->driver.context_pop(&context);
    return cuda->status;
}

#endif
