/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_shim.cpp - blocks of threads as fibers.
 *
 * A warp runs its lanes one after the other in random order, each until it waits. Where all lanes
 * wait for the warp, they go on; where all threads of the block wait for it, the block goes on.
 * Which warp runs next is random too: one may be at the end of its work before another begins, as
 * far as barriers allow. Memory of the block holds NaN and -1 at its start.
 */
#include "raot_shim.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "raot_shim_fiber.h"

raot_shim_dim threadIdx, blockIdx, blockDim, gridDim;

/* The bounds of the section of memory of blocks; absent where no kernel has any. */
extern "C" {
extern unsigned char __start_raot_shared[] __attribute__((weak));
extern unsigned char __stop_raot_shared[] __attribute__((weak));
}

namespace
{

enum State { READY, AT_WARP, AT_BLOCK, DONE, LEFT };

struct Copy {
    void *to;
    const void *from;
    int32_t count, bytes, group;
};

struct Thread {
    State state;
    int line;
    Fiber *fiber;
    bool leaves;
    std::vector<Copy> copies;
    int32_t groups;
};

constexpr unsigned WARP = 32u;

/* `lanes` are those of a warp that run one after the other, of which `next` is the next one. */
struct Run {
    const raot_shim_function *function;
    void *const *parameters;
    std::vector<Thread> threads;
    std::vector<raot_shim_given> given;
    std::vector<raot_shim_given> taken;
    unsigned current;
    unsigned lanes[WARP];
    unsigned count, next;
};

raot_shim_function *functions;
Run *run;
std::vector<Fiber *> idle;
Fiber scheduler;
char message[256];
uint64_t random_state;

/* Marsaglia's xorshift64*. */
uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(((random_state * UINT64_C(2685821657736338717)) >> 33) % limit);
}

template <class T> void shuffle(T *items, size_t count)
{
    for (size_t i = count; i > 1u; i--) {
        std::swap(items[i - 1u], items[random_below((uint32_t)i)]);
    }
}

void work(void);

/* Goes on with the next lane, or with the scheduler behind the last one. */
void switch_from(Fiber *fiber)
{
    if (run->next == run->count) {
        fiber_switch(fiber, &scheduler);
        return;
    }
    const unsigned number = run->lanes[run->next++];
    Thread &thread = run->threads[number];

    if (thread.fiber == nullptr) {
        if (idle.empty()) {
            idle.push_back(fiber_new(work));
        }
        thread.fiber = idle.back();
        idle.pop_back();
    }
    run->current = number;
    threadIdx.x = number;
    fiber_switch(fiber, thread.fiber);
}

/* What a fiber does: the threads that it is given, one after the other. */
void work(void)
{
    for (;;) {
        run->function->call(run->function->code, run->parameters);

        Thread &thread = run->threads[run->current];

        thread.state = thread.leaves ? LEFT : DONE;
        switch_from(thread.fiber);
    }
}

void wait(State state, int line)
{
    Thread &thread = run->threads[run->current];

    thread.state = state;
    thread.line = line;
    switch_from(thread.fiber);
}

bool fail(const char *what, int line, unsigned number)
{
    std::snprintf(message, sizeof message, "%s: %s, line %d, block %u, thread %u",
                  run->function->name, what, line, blockIdx.x, number);
    return false;
}

/* Lanes that all wait for their warp go on. False where some never can. */
bool release_warp(unsigned first, unsigned end)
{
    unsigned waiting = 0u;

    for (unsigned i = first; i < end; i++) {
        waiting += run->threads[i].state == AT_WARP ? 1u : 0u;
    }
    if (waiting == 0u) {
        return true;
    }
    int line = 0;

    for (unsigned i = first; i < end; i++) {
        const Thread &thread = run->threads[i];

        if (thread.state == LEFT) {
            continue;
        }
        if (thread.state == DONE) {
            return fail("a lane has ended and others wait for the warp", thread.line, i);
        }
        line = line == 0 ? thread.line : line;
        if (thread.state != AT_WARP || thread.line != line) {
            return fail("lanes of a warp wait in different places", thread.line, i);
        }
    }
    for (unsigned i = first; i < end; i++) {
        run->taken[i] = run->given[i];
        if (run->threads[i].state == AT_WARP) {
            run->threads[i].state = READY;
        }
    }
    return true;
}

/* Where no warp can go on, all threads have ended or wait for the block. */
bool release_block(bool *ended)
{
    unsigned done = 0u;

    for (const Thread &thread : run->threads) {
        done += thread.state == DONE || thread.state == LEFT ? 1u : 0u;
    }
    *ended = done == run->threads.size();
    if (*ended) {
        for (unsigned i = 0u; i < run->threads.size(); i++) {
            if (!run->threads[i].copies.empty()) {
                return fail("a thread has not waited for its copies", 0, i);
            }
        }
        return true;
    }
    int line = 0;

    for (unsigned i = 0u; i < run->threads.size(); i++) {
        const Thread &thread = run->threads[i];

        if (thread.state == LEFT) {
            continue;
        }
        if (thread.state == DONE) {
            return fail("a thread has ended and others wait for the block", 0, i);
        }
        line = line == 0 ? thread.line : line;
        if (thread.line != line) {
            return fail("threads of a block wait at different barriers", thread.line, i);
        }
    }
    for (Thread &thread : run->threads) {
        thread.state = thread.state == AT_BLOCK ? READY : thread.state;
    }
    return true;
}

/* Not instrumented: between the variables lie the red zones of the sanitizer. */
__attribute__((no_sanitize_address, noinline)) void fill_shared(void)
{
    volatile unsigned char *byte = __start_raot_shared;

    while (byte != __stop_raot_shared) {
        *byte++ = 0xffu;
    }
}

bool run_warp(unsigned first, unsigned end)
{
    run->count = 0u;
    run->next = 0u;
    for (unsigned i = first; i < end; i++) {
        if (run->threads[i].state == READY) {
            run->lanes[run->count++] = i;
        }
    }
    shuffle(run->lanes, run->count);
    switch_from(&scheduler);
    for (unsigned i = 0u; i < run->count; i++) {
        const Thread &thread = run->threads[run->lanes[i]];

        if (thread.state == DONE || thread.state == LEFT) {
            idle.push_back(thread.fiber);
        }
    }
    return release_warp(first, end);
}

bool is_ready(unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i++) {
        if (run->threads[i].state == READY) {
            return true;
        }
    }
    return false;
}

/* The first threads of the warps that can go on. */
void find_ready(std::vector<unsigned> &warps)
{
    for (unsigned i = 0u; i < run->threads.size(); i++) {
        const unsigned first = i / WARP * WARP;

        if (run->threads[i].state == READY && (warps.empty() || warps.back() != first)) {
            warps.push_back(first);
        }
    }
}

bool run_block(void)
{
    const unsigned count = (unsigned)run->threads.size();
    std::vector<unsigned> warps;
    bool ended = false;

    for (Thread &thread : run->threads) {
        thread.state = READY;
        thread.line = 0;
        thread.fiber = nullptr;
        thread.leaves = false;
        thread.copies.clear();
        thread.groups = 0;
    }
    fill_shared();
    find_ready(warps);
    while (!ended) {
        if (warps.empty()) {
            if (!release_block(&ended)) {
                return false;
            }
            find_ready(warps);
            continue;
        }
        const unsigned place = random_below((uint32_t)warps.size());
        const unsigned first = warps[place], end = std::min(first + WARP, count);

        if (!run_warp(first, end)) {
            return false;
        }
        if (!is_ready(first, end)) {
            warps.erase(warps.begin() + place);
        }
    }
    return true;
}

/* Makes the copies of the groups up to the `last` one. */
static void finish_copies(int32_t last)
{
    std::vector<Copy> &copies = run->threads[run->current].copies;
    size_t count = 0u;

    while (count < copies.size() && copies[count].group <= last) {
        std::memset(copies[count].to, 0, (size_t)copies[count].bytes);
        std::memcpy(copies[count].to, copies[count].from, (size_t)copies[count].count);
        count++;
    }
    copies.erase(copies.begin(), copies.begin() + (std::ptrdiff_t)count);
}

} // namespace

void raot_shim_register(raot_shim_function *function)
{
    function->next = functions;
    functions = function;
}

void raot_shim_block(int line)
{
    wait(AT_BLOCK, line);
}

void raot_shim_leave(void)
{
    run->threads[run->current].leaves = true;
    run->threads[run->current].copies.clear();
}

void raot_shim_copy_later(void *to, const void *from, int32_t count, int32_t bytes)
{
    Thread &thread = run->threads[run->current];

    thread.copies.push_back({to, from, count, bytes, thread.groups});
}

void raot_shim_end_copies(void)
{
    run->threads[run->current].groups++;
}

void raot_shim_finish_copies(void)
{
    finish_copies(run->threads[run->current].groups);
}

void raot_shim_finish_ended_copies(void)
{
    finish_copies(run->threads[run->current].groups - 1);
}

void raot_shim_finish_older_copies(void)
{
    finish_copies(run->threads[run->current].groups - 2);
}

const raot_shim_given *raot_shim_warp(unsigned mask, const void *given, size_t bytes, int line)
{
    const unsigned number = run->current;

    if (mask != 0xffffffffu) {
        std::fprintf(stderr, "raot_shim: line %d: an exchange of a part of a warp\n", line);
        std::abort();
    }
    if (bytes != 0u) {
        std::memcpy(run->given[number].bytes, given, bytes);
    }
    wait(AT_WARP, line);
    return &run->taken[number - number % WARP];
}

const raot_shim_function *raot_shim_find(const char *name)
{
    for (const raot_shim_function *one = functions; one != nullptr; one = one->next) {
        if (std::strcmp(one->name, name) == 0) {
            return one;
        }
    }
    return nullptr;
}

int32_t raot_shim_parameter_count(const raot_shim_function *function)
{
    return function->count;
}

size_t raot_shim_parameter_bytes(const raot_shim_function *function, int32_t position)
{
    return function->bytes[position];
}

int32_t raot_shim_threads(const raot_shim_function *function)
{
    return function->threads;
}

int32_t raot_shim_shared_bytes(const raot_shim_function *function)
{
    return function->shared_bytes;
}

const char *raot_shim_launch(const raot_shim_function *function, int64_t blocks, int32_t threads,
                             void *const *parameters, uint64_t seed)
{
    Run own = {function,
               parameters,
               std::vector<Thread>((size_t)threads),
               std::vector<raot_shim_given>((size_t)threads),
               std::vector<raot_shim_given>((size_t)threads),
               0u,
               {},
               0u,
               0u};
    std::vector<uint32_t> order;

    if (threads != function->threads || blocks < 1 || blocks > INT32_MAX) {
        std::snprintf(message, sizeof message, "%s: launched with %d threads, %lld blocks",
                      function->name, (int)threads, (long long)blocks);
        return message;
    }
    run = &own;
    random_state = seed * 2u + 88172645463325252u;
    blockDim = {(unsigned)threads, 1u, 1u};
    gridDim = {(unsigned)blocks, 1u, 1u};
    for (uint32_t block = 0u; block < (uint32_t)blocks; block++) {
        order.push_back(block);
    }
    shuffle(order.data(), order.size());
    for (uint32_t block : order) {
        blockIdx = {block, 0u, 0u};
        if (!run_block()) {
            return message; /* fibers in the middle of their work are given up */
        }
    }
    return nullptr;
}
