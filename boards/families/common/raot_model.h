/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_model.h - a uniform table for every generated model, used by the test harness.
 *
 * For verification only: firmware calls <name>_run directly.
 */
#ifndef RAOT_MODEL_H
#define RAOT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "raot/status.h"

/* The caller's memory. `arena` and `state` are aligned to raot_model.alignment. */
struct raot_buffers {
    void *arena;
    size_t arena_bytes;
    void *state;         /* null for a model without state */
    const void *weights; /* null for linked weights */
};

struct raot_model {
    const char *name; /* prefix of the model's public C names */
    size_t arena_bytes;
    size_t state_bytes;
    size_t alignment; /* a power of two, at most 64 */
    int32_t dim_count;
    int32_t input_count;
    int32_t output_count;
    int32_t result_count;       /* sizes that the model computes */
    const size_t *input_bytes;  /* maximum sizes, one per input */
    const size_t *output_bytes; /* maximum sizes, one per output: the capacity in every call */
    size_t (*arena_need)(const int32_t *dims);
    enum raot_status (*init)(const struct raot_buffers *memory, const int32_t *dims); /* or null */
    enum raot_status (*run)(const struct raot_buffers *memory, const int32_t *dims,
                            const void *const *inputs, void *const *outputs, int32_t *result);
    /* of growing states, by their number; or null */
    int32_t (*get_length)(const struct raot_buffers *memory, int32_t index);
    enum raot_status (*truncate_length)(const struct raot_buffers *memory, int32_t index,
                                        int32_t length);
    /* of a state on a GPU: its bytes, and a copy of them; or null */
    size_t kept_bytes;
    enum raot_status (*read_kept)(const struct raot_buffers *memory, void *kept);
};

extern const struct raot_model raot_model;

#endif
