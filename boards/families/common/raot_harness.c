/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_harness.c - runs a model on the calls of a request file and writes the responses.
 *
 * Calls are read, run and answered one at a time, in the memory of one call. All files are
 * little-endian words; relax_aot/emulation/harness.py writes and reads them.
 *
 * The harness calls no C library, so library functions in an image belong to the model.
 */
#include <stdint.h>

#include "model_sizes.h"
#include "raot_model.h"
#include "raot_platform.h"

#define GUARD_BYTES 64u
#define AT_LEAST_ONE(count) ((count) > 0 ? (count) : 1)

_Static_assert(RAOT_MODEL_ALIGNMENT <= GUARD_BYTES, "guards keep the alignment of what follows");

enum {
    FILL_GUARD = 0xA5,
    FILL_ARENA = 0x7F, /* huge as floats, so a read of uninitialized memory is visible */
    FILL_STATE = 0x6E,
    FILL_OUTPUT = 0x5A,
    UNUSED_SIZE = -1
};

enum call_flag {
    CALL_INIT = 1,        /* call init before run */
    CALL_ARENA_GIVEN = 2, /* the arena has `arena_bytes` bytes */
    CALL_ARENA_NEED = 4   /* the arena has the bytes of arena_need for these dims */
};

enum broken_bit {
    BROKEN_BEFORE_ARENA = 1,
    BROKEN_AFTER_ARENA = 2,
    BROKEN_BEFORE_STATE = 4,
    BROKEN_AFTER_STATE = 8,
    BROKEN_INPUT = 16,
    BROKEN_OUTPUT = 32,
    BROKEN_STACK = 64
};

enum changed_bit { CHANGED_ARENA = 1, CHANGED_STATE = 2, CHANGED_OUTPUT = 4, CHANGED_SIZES = 8 };

struct request_header {
    uint32_t magic;
    uint32_t call_count;
    uint32_t dim_count;
    uint32_t input_count;
};

struct call_header {
    uint32_t flags;
    uint32_t arena_bytes;
};

struct answer {
    int32_t ran; /* 0: init failed, so run was not called */
    int32_t status;
    uint32_t arena_bytes;
    uint32_t stack_bytes;
    uint32_t broken;
    uint32_t changed;
};

/* Not inlined and opaque to the compiler. */
#if defined(__clang__)
#define KEPT_APART __attribute__((noinline))
#else
#define KEPT_APART __attribute__((noipa))
#endif

#define NULL_INPUT UINT32_MAX
#define PAINT 0xC5C5C5C5u

static _Alignas(64) unsigned char arena[GUARD_BYTES + RAOT_MODEL_ARENA_BYTES + GUARD_BYTES];
static _Alignas(64) unsigned char state[GUARD_BYTES + RAOT_MODEL_STATE_BYTES + GUARD_BYTES];
static _Alignas(64) unsigned char inputs[RAOT_MODEL_INPUT_BYTES + 1];
static _Alignas(64) unsigned char outputs[GUARD_BYTES + RAOT_MODEL_OUTPUT_BYTES +
                                          GUARD_BYTES * RAOT_MODEL_OUTPUT_COUNT];

static int32_t dims[AT_LEAST_ONE(RAOT_MODEL_DIM_COUNT)];
static int32_t sizes[AT_LEAST_ONE(RAOT_MODEL_RESULT_COUNT)];
static const void *input_at[AT_LEAST_ONE(RAOT_MODEL_INPUT_COUNT)];
static uint32_t input_lengths[AT_LEAST_ONE(RAOT_MODEL_INPUT_COUNT)];
static void *output_at[AT_LEAST_ONE(RAOT_MODEL_OUTPUT_COUNT)];
static struct raot_buffers memory;

static void fill(unsigned char *start, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++) {
        start[i] = value;
    }
}

static int is_filled(const unsigned char *start, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++) {
        if (start[i] != value) {
            return 0;
        }
    }
    return 1;
}

/* FNV-1a. It detects every change of one byte. */
static uint32_t digest(const unsigned char *start, size_t bytes, uint32_t hash)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ start[i]) * 16777619u;
    }
    return hash;
}

static size_t round_up_64(size_t bytes)
{
    return (bytes + 63u) & ~(size_t)63u;
}

static uint32_t read_word(void)
{
    uint32_t word;

    raot_read(&word, sizeof word);
    return word;
}

static void place_outputs(void)
{
    unsigned char *place = outputs + GUARD_BYTES;

    for (int32_t i = 0; i < raot_model.output_count; i++) {
        output_at[i] = place;
        place += round_up_64(raot_model.output_bytes[i]) + GUARD_BYTES;
    }
}

static void read_inputs(void)
{
    unsigned char *place = inputs;

    for (int32_t i = 0; i < raot_model.input_count; i++) {
        const uint32_t length = read_word();

        input_at[i] = length == NULL_INPUT ? NULL : place;
        input_lengths[i] = length == NULL_INPUT ? 0 : length;
        if (input_lengths[i] > raot_model.input_bytes[i]) {
            raot_exit(RAOT_EXIT_REQUEST);
        }
        raot_read(place, input_lengths[i]);
        place += round_up_64(raot_model.input_bytes[i]);
    }
}

static uint32_t inputs_digest(void)
{
    uint32_t hash = 2166136261u;

    for (int32_t i = 0; i < raot_model.input_count; i++) {
        hash = digest(input_at[i], input_lengths[i], hash);
    }
    return hash;
}

static uint32_t state_digest(void)
{
    return digest(state + GUARD_BYTES, RAOT_MODEL_STATE_BYTES, 2166136261u);
}

/* All bytes after the requested size of the arena are guard bytes. */
static void prepare(size_t arena_bytes)
{
    fill(arena, GUARD_BYTES, FILL_GUARD);
    fill(arena + GUARD_BYTES, arena_bytes, FILL_ARENA);
    fill(arena + GUARD_BYTES + arena_bytes, sizeof arena - GUARD_BYTES - arena_bytes, FILL_GUARD);
    fill(state, GUARD_BYTES, FILL_GUARD);
    fill(state + GUARD_BYTES + RAOT_MODEL_STATE_BYTES, GUARD_BYTES, FILL_GUARD);
    fill(outputs, sizeof outputs, FILL_GUARD);
    for (int32_t i = 0; i < raot_model.output_count; i++) {
        fill(output_at[i], raot_model.output_bytes[i], FILL_OUTPUT);
    }
    for (int32_t i = 0; i < raot_model.result_count; i++) {
        sizes[i] = UNUSED_SIZE;
    }
}

static uint32_t broken_guards(size_t arena_bytes)
{
    const unsigned char *gap = outputs;
    uint32_t broken = 0;

    if (!is_filled(arena, GUARD_BYTES, FILL_GUARD)) {
        broken |= BROKEN_BEFORE_ARENA;
    }
    if (!is_filled(arena + GUARD_BYTES + arena_bytes, sizeof arena - GUARD_BYTES - arena_bytes,
                   FILL_GUARD)) {
        broken |= BROKEN_AFTER_ARENA;
    }
    if (!is_filled(state, GUARD_BYTES, FILL_GUARD)) {
        broken |= BROKEN_BEFORE_STATE;
    }
    if (!is_filled(state + GUARD_BYTES + RAOT_MODEL_STATE_BYTES, GUARD_BYTES, FILL_GUARD)) {
        broken |= BROKEN_AFTER_STATE;
    }
    for (int32_t i = 0; i < raot_model.output_count; i++) {
        const unsigned char *const output = output_at[i];

        if (!is_filled(gap, (size_t)(output - gap), FILL_GUARD)) {
            broken |= BROKEN_OUTPUT;
        }
        gap = output + raot_model.output_bytes[i];
    }
    if (!is_filled(gap, (size_t)(outputs + sizeof outputs - gap), FILL_GUARD)) {
        broken |= BROKEN_OUTPUT;
    }
    return broken;
}

static uint32_t changed_buffers(size_t arena_bytes)
{
    uint32_t changed = 0;

    if (!is_filled(arena + GUARD_BYTES, arena_bytes, FILL_ARENA)) {
        changed |= CHANGED_ARENA;
    }
    for (int32_t i = 0; i < raot_model.output_count; i++) {
        if (!is_filled(output_at[i], raot_model.output_bytes[i], FILL_OUTPUT)) {
            changed |= CHANGED_OUTPUT;
        }
    }
    for (int32_t i = 0; i < raot_model.result_count; i++) {
        if (sizes[i] != UNUSED_SIZE) {
            changed |= CHANGED_SIZES;
        }
    }
    return changed;
}

/*
 * Emulators read the table and its functions from the image. Link-time optimization removes both
 * if it knows the table, so the run is called through an opaque pointer.
 */
static const struct raot_model *const volatile the_model = &raot_model;

/*
 * Fills the unused stack with a pattern and runs the model. The instruction counter of the
 * emulator refers to this function by name.
 */
KEPT_APART enum raot_status raot_call(volatile uint32_t *limit, uint32_t *stack_bytes)
{
    volatile uint32_t *top;
    volatile uint32_t *lowest = limit;

    __asm__ volatile("mov %0, sp" : "=r"(top));
    for (volatile uint32_t *word = limit; word < top; word++) {
        *word = PAINT;
    }
    const enum raot_status status = the_model->run(&memory, dims, input_at, output_at, sizes);

    while (lowest < top && *lowest == PAINT) {
        lowest++;
    }
    *stack_bytes = (uint32_t)((uintptr_t)top - (uintptr_t)lowest);
    return status;
}

static size_t arena_size(const struct call_header *call)
{
    size_t bytes = RAOT_MODEL_ARENA_BYTES;

    if ((call->flags & CALL_ARENA_GIVEN) != 0) {
        bytes = call->arena_bytes;
    } else if ((call->flags & CALL_ARENA_NEED) != 0) {
        bytes = raot_model.arena_need(dims);
    }
    if (bytes > sizeof arena - GUARD_BYTES - GUARD_BYTES) {
        raot_exit(RAOT_EXIT_REQUEST);
    }
    return bytes;
}

static void answer_call(void)
{
    struct answer answer = {.ran = 1};
    struct call_header call;
    uint32_t before_inputs;
    uint32_t before_state;

    raot_read(&call, sizeof call);
    raot_read(dims, (size_t)raot_model.dim_count * sizeof dims[0]);
    read_inputs();
    memory.arena = arena + GUARD_BYTES;
    memory.arena_bytes = arena_size(&call);
    memory.state = raot_model.state_bytes != 0 ? state + GUARD_BYTES : NULL;
    prepare(memory.arena_bytes);
    before_inputs = inputs_digest();
    before_state = state_digest();

    if ((call.flags & CALL_INIT) != 0 && raot_model.init != NULL) {
        answer.status = raot_model.init(&memory, dims);
        answer.ran = answer.status == RAOT_OK;
        answer.broken = broken_guards(memory.arena_bytes);
        if (answer.ran) {
            prepare(memory.arena_bytes);
            before_state = state_digest();
        }
    }
    if (answer.ran) {
        volatile uint32_t *const limit = raot_stack_limit();

        answer.status = raot_call(limit, &answer.stack_bytes);
        if (*limit != PAINT) {
            answer.broken |= BROKEN_STACK;
        }
    }
    answer.arena_bytes = (uint32_t)memory.arena_bytes;
    answer.broken |= broken_guards(memory.arena_bytes);
    answer.broken |= inputs_digest() != before_inputs ? BROKEN_INPUT : 0u;
    answer.changed = changed_buffers(memory.arena_bytes);
    answer.changed |= state_digest() != before_state ? CHANGED_STATE : 0u;

    raot_write(&answer, sizeof answer);
    raot_write(sizes, (size_t)raot_model.result_count * sizeof sizes[0]);
    for (int32_t i = 0; i < raot_model.output_count; i++) {
        raot_write(output_at[i], raot_model.output_bytes[i]);
    }
    raot_write(state + GUARD_BYTES, RAOT_MODEL_STATE_BYTES);
}

void raot_harness(void)
{
    const uint32_t magic = RAOT_RESPONSE_MAGIC;
    struct request_header header;

    raot_read(&header, sizeof header);
    if (header.magic != RAOT_REQUEST_MAGIC || header.dim_count != (uint32_t)raot_model.dim_count ||
        header.input_count != (uint32_t)raot_model.input_count) {
        raot_exit(RAOT_EXIT_REQUEST);
    }
    place_outputs();
    fill(state + GUARD_BYTES, RAOT_MODEL_STATE_BYTES, FILL_STATE);
    raot_write(&magic, sizeof magic);
    for (uint32_t i = 0; i < header.call_count; i++) {
        answer_call();
    }
}
