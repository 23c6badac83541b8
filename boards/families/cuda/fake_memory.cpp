/* SPDX-License-Identifier: Apache-2.0 */
/* fake_memory.cpp - see fake_memory.h. */
#include "fake_memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace fake
{

std::map<uintptr_t, Block> blocks;

namespace
{

constexpr size_t GUARD = 64;
constexpr unsigned char FILL = 0xA5;
constexpr unsigned char POISON = 0x7F; /* as floats, huge numbers */

void protect(int how)
{
    for (const auto &[address, block] : blocks) {
        mprotect(block.device, block.mapped, how);
    }
}

unsigned char *view(int file, size_t bytes, int how)
{
    void *const found = mmap(nullptr, bytes, how, MAP_SHARED, file, 0);
    return found == MAP_FAILED ? nullptr : static_cast<unsigned char *>(found);
}

} // namespace

Access::Access()
{
    protect(PROT_READ | PROT_WRITE);
}

Access::~Access()
{
    protect(PROT_NONE);
}

int allocate(Block *made, size_t bytes, bool host)
{
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const int file = memfd_create("raot", 0);
    Block block;

    if (bytes == 0 || file < 0) {
        return INVALID_VALUE;
    }
    block.bytes = bytes;
    block.mapped = (bytes + GUARD + page - 1) / page * page;
    if (ftruncate(file, static_cast<off_t>(block.mapped)) != 0) {
        close(file);
        return OUT_OF_MEMORY;
    }
    block.device = view(file, block.mapped, PROT_READ | PROT_WRITE);
    block.host = host ? view(file, block.mapped, PROT_READ | PROT_WRITE) : nullptr;
    close(file);
    if (block.device == nullptr || (host && block.host == nullptr)) {
        return OUT_OF_MEMORY;
    }
    memset(block.device, POISON, bytes);
    memset(block.device + bytes, FILL, block.mapped - bytes);
    mprotect(block.device, block.mapped, PROT_NONE);
    blocks[reinterpret_cast<uintptr_t>(block.device)] = block;
    *made = block;
    return OK;
}

const Block *block_at(uintptr_t address)
{
    auto found = blocks.upper_bound(address);
    if (found == blocks.begin()) {
        return nullptr;
    }
    --found;
    return address < found->first + found->second.bytes ? &found->second : nullptr;
}

bool inside(uintptr_t address, size_t bytes)
{
    const Block *const block = block_at(address);
    return block != nullptr &&
           bytes <= block->bytes - (address - reinterpret_cast<uintptr_t>(block->device));
}

void check_guards()
{
    for (const auto &[address, block] : blocks) {
        for (size_t i = block.bytes; i < block.mapped; i++) {
            if (block.device[i] != FILL) {
                fprintf(stderr, "fake driver: a kernel wrote behind a block of %zu bytes\n",
                        block.bytes);
                abort();
            }
        }
    }
}

void drop(const Block &block)
{
    munmap(block.device, block.mapped);
    if (block.host != nullptr) {
        munmap(block.host, block.mapped);
    }
    blocks.erase(reinterpret_cast<uintptr_t>(block.device));
}

} // namespace fake
