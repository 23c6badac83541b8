/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_counter.c - a Unicorn hook on basic blocks that counts the instructions of each call of
 * one function, including its callees.
 *
 * The counts equal those of instruction_counter.c under QEMU: from the block at `start` to the
 * first block inside `stop`, by block, so an instruction that a Thumb IT block skips is counted.
 * `jumps` are the runs of a block that another block followed than the one behind it.
 * The caller provides all memory, and no C library is used, so any host compiler works.
 * relax_aot/emulation/unicorn_machine.py uses it.
 */
#include <stdint.h>

struct block {
    uint64_t address;
    uint32_t bytes; /* 0: a free entry */
    uint32_t length;
    uint64_t runs; /* this and the following in the current call */
    uint64_t jumps;
};

struct counter {
    uint64_t start;
    uint64_t stop_low;
    uint64_t stop_high;
    uint64_t code_start;
    uint64_t code_bytes;
    const uint8_t *code; /* what is loaded at `code_start` */
    struct block *blocks;
    uint64_t block_mask; /* the number of entries, a power of two, minus one */
    uint64_t lost;       /* blocks without a free entry: counts are then invalid */
    uint64_t total;
    uint64_t counting;
    struct block *previous;
    void (*finished)(void); /* called when control is back in the caller */
};

__attribute__((visibility("default"))) void raot_on_block(void *engine, uint64_t address,
                                                          uint32_t bytes, void *user);

static uint32_t thumb_instructions(const struct counter *counter, uint64_t address, uint32_t bytes)
{
    const uint64_t at = address - counter->code_start;
    uint32_t count = 0;

    if (address < counter->code_start || at + bytes > counter->code_bytes) {
        return bytes / 2u;
    }
    for (uint32_t i = 0; i + 1u < bytes; count++) {
        i += counter->code[at + i + 1u] >> 3 >= 0x1Du ? 4u : 2u;
    }
    return count;
}

static struct block *block_of(struct counter *counter, uint64_t address, uint32_t bytes)
{
    for (uint64_t step = 0; step <= counter->block_mask; step++) {
        struct block *const block = &counter->blocks[(address / 2u + step) & counter->block_mask];

        if (block->bytes == 0u) {
            block->address = address;
            block->bytes = bytes;
            block->length = thumb_instructions(counter, address, bytes);
        }
        if (block->address == address && block->bytes == bytes) {
            return block;
        }
    }
    counter->lost++;
    return 0;
}

static void count_jump(struct counter *counter, uint64_t address)
{
    struct block *const previous = counter->previous;

    if (previous != 0) {
        const uint64_t end = previous->address + previous->bytes;

        previous->jumps += end != address && end + 2u != address;
    }
}

void raot_on_block(void *engine, uint64_t address, uint32_t bytes, void *user)
{
    struct counter *const counter = user;

    (void)engine;
    if (address == counter->start && counter->counting == 0u) {
        counter->counting = 1;
        counter->total = 0;
        counter->previous = 0;
    } else if (counter->counting != 0u && address >= counter->stop_low &&
               address < counter->stop_high) {
        counter->counting = 0;
        count_jump(counter, 0);
        counter->finished();
    }
    if (counter->counting != 0u && bytes != 0u) {
        struct block *const block = block_of(counter, address, bytes);

        if (block != 0) {
            count_jump(counter, address);
            counter->previous = block;
            block->runs++;
            counter->total += block->length;
        }
    }
}
