/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_memory.h - memory of the GPU of the fake driver: it can be accessed only while a kernel or
 * a copy runs, and the bytes behind each block are checked.
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <map>

namespace fake
{

/* Errors of the driver, as cuda.h numbers them. */
enum Error {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
};

struct Block {
    size_t bytes = 0;
    size_t mapped = 0;
    unsigned char *device = nullptr;
    unsigned char *host = nullptr; /* another view of the same memory, or null */
};

/* All blocks, by their address on the GPU. */
extern std::map<uintptr_t, Block> blocks;

/* Memory of the GPU can be accessed while one of these exists. */
struct Access {
    Access();
    ~Access();
    Access(const Access &) = delete;
    Access &operator=(const Access &) = delete;
};

int allocate(Block *made, size_t bytes, bool host);
void drop(const Block &block);

/* The block that holds an address of the GPU, or null. */
const Block *block_at(uintptr_t address);

/* Whether all these bytes are in one block. */
bool inside(uintptr_t address, size_t bytes);

/* Ends the program if a kernel wrote behind a block. */
void check_guards();

} // namespace fake

#endif
