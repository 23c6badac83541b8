/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instruction_counter.c - a QEMU TCG plugin that counts the instructions of each call of one
 * function, including its callees.
 *
 * Counting starts where the block at `start` runs and stops at the first block inside
 * `stop`, the address range of the caller. The caller's own instructions are therefore not
 * counted. Counts are by block: an instruction that a Thumb IT block skips is counted.
 *
 *     -plugin counter.so,out=FILE,start=0x...,stop=0x...-0x...,blocks=0|1
 *             [,flash=0x...-0x...,line=BYTES,fetches=LINES,reads=LINES][,mark=0x...]
 *
 * FILE gets a line `call COUNT` for each call. With blocks=1, a line for each executed block
 * precedes it: `block PC COUNT LENGTH JUMPS FETCHES FOLLOWING READS`. LENGTH is in instructions.
 * JUMPS are its runs that another block followed than the one behind it.
 *
 * With flash=, the flash is read in lines of BYTES, and buffers hold the lines that were used
 * last: `fetches` lines for instructions, `reads` for data. FETCHES are the lines of the block
 * that were not in a buffer, FOLLOWING those of them that lie behind the line fetched before.
 * READS are the lines that its loads needed and no buffer held. Without buffers for data, each
 * load from flash is a read.
 *
 * Each mark= is the address of a function. Where it is called, the blocks that ran before are
 * written, and a line `mark PC`: what follows belongs to this function until the next such line.
 *
 * Distributions do not package QEMU's plugin header, so this file declares the required
 * functions. They are equal in plugin interfaces 1 to 4.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PLUGIN_INTERFACE
#define PLUGIN_INTERFACE 1
#endif
#define EXPORTED __attribute__((visibility("default")))
#define BUCKETS 65536u
#define LINES 4096u /* of one buffer */
#define NO_SLOT 0xFFFFu
#define MARKS 4096u

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

enum callback_flags { CALLBACK_READS_NO_REGISTERS = 0 };
/* QEMU 7.2 calls back for no access where only loads are asked for. */
enum accesses { LOADS_AND_STORES = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
                                           void (*translated)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block,
                                          void (*executed)(unsigned int, void *),
                                          enum callback_flags flags, void *user);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction,
                                      void (*accessed)(unsigned int, uint32_t, uint64_t, void *),
                                      enum callback_flags flags, enum accesses accesses,
                                      void *user);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
unsigned int qemu_plugin_mem_size_shift(uint32_t access);
bool qemu_plugin_mem_is_store(uint32_t access);

EXPORTED int qemu_plugin_version = PLUGIN_INTERFACE;
EXPORTED int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int count,
                                 char **arguments);

/* A block may be translated more than once; address and length identify it. */
struct block {
    uint64_t address;
    uint64_t end;
    uint64_t length;
    uint64_t runs; /* this and the following in the current call */
    uint64_t jumps;
    uint64_t fetches;
    uint64_t following;
    uint64_t reads;
    struct block *next_in_bucket;
    struct block *next;
};

/* Lines of the flash that a buffer holds, in the order of their last use. */
struct buffer {
    uint16_t *slot_of; /* by line of the flash; NO_SLOT: not held */
    uint32_t line_in[LINES];
    uint16_t newer[LINES];
    uint16_t older[LINES];
    uint16_t newest;
    uint16_t oldest;
    uint16_t used;
    uint16_t size;
};

static struct block *buckets[BUCKETS];
static struct block *first_block;
static struct block **last_link = &first_block;
static uint64_t start_address;
static uint64_t stop_low;
static uint64_t stop_high;
static uint64_t total;
static bool counting;
static bool with_blocks;
static FILE *out;
static struct block *previous;
static struct buffer fetched;
static struct buffer loaded;
static uint64_t flash_low;
static uint64_t flash_high;
static uint64_t line_bytes = 4;
static uint32_t last_fetched;
static uint64_t marks[MARKS];
static size_t mark_count;

static void make_empty(struct buffer *buffer)
{
    for (uint16_t slot = 0; slot < buffer->used; slot++) {
        buffer->slot_of[buffer->line_in[slot]] = NO_SLOT;
    }
    buffer->used = 0;
    buffer->newest = NO_SLOT;
    buffer->oldest = NO_SLOT;
}

static void make_buffer(struct buffer *buffer)
{
    const size_t lines = (size_t)((flash_high - flash_low) / line_bytes + 1u);

    buffer->slot_of = malloc(lines * sizeof *buffer->slot_of);
    if (buffer->slot_of == NULL) {
        abort();
    }
    memset(buffer->slot_of, 0xFF, lines * sizeof *buffer->slot_of);
    make_empty(buffer);
}

static void unlink_slot(struct buffer *buffer, uint16_t slot)
{
    const uint16_t newer = buffer->newer[slot];
    const uint16_t older = buffer->older[slot];

    if (newer == NO_SLOT) {
        buffer->newest = older;
    } else {
        buffer->older[newer] = older;
    }
    if (older == NO_SLOT) {
        buffer->oldest = newer;
    } else {
        buffer->newer[older] = newer;
    }
}

/* Uses a line; false where the buffer did not hold it. */
static bool use_line(struct buffer *buffer, uint32_t line)
{
    uint16_t slot = buffer->slot_of[line];
    const bool held = slot != NO_SLOT;

    if (held && slot == buffer->newest) {
        return true;
    }
    if (held) {
        unlink_slot(buffer, slot);
    } else if (buffer->used < buffer->size) {
        slot = buffer->used++;
    } else {
        slot = buffer->oldest;
        unlink_slot(buffer, slot);
        buffer->slot_of[buffer->line_in[slot]] = NO_SLOT;
    }
    buffer->line_in[slot] = line;
    buffer->slot_of[line] = slot;
    buffer->newer[slot] = NO_SLOT;
    buffer->older[slot] = buffer->newest;
    if (buffer->newest == NO_SLOT) {
        buffer->oldest = slot;
    } else {
        buffer->newer[buffer->newest] = slot;
    }
    buffer->newest = slot;
    return held;
}

static void fetch_block(struct block *block)
{
    const uint32_t first = (uint32_t)((block->address - flash_low) / line_bytes);
    const uint32_t last = (uint32_t)((block->end - 1u - flash_low) / line_bytes);

    for (uint32_t line = first; line <= last; line++) {
        if (!use_line(&fetched, line)) {
            block->fetches++;
            block->following += line == last_fetched + 1u;
        }
        last_fetched = line;
    }
}

static void load_data(unsigned int cpu, uint32_t access, uint64_t address, void *user)
{
    struct block *const block = user;
    const uint64_t end = address + (UINT64_C(1) << qemu_plugin_mem_size_shift(access));

    (void)cpu;
    if (!counting || address < flash_low || end > flash_high || qemu_plugin_mem_is_store(access)) {
        return;
    }
    if (loaded.size == 0u) {
        block->reads++;
        return;
    }
    for (uint64_t line = (address - flash_low) / line_bytes;
         line <= (end - 1u - flash_low) / line_bytes; line++) {
        block->reads += !use_line(&loaded, (uint32_t)line);
    }
}

static void print_block(struct block *block)
{
    fprintf(out,
            "block 0x%" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
            " %" PRIu64 "\n",
            block->address, block->runs * block->length, block->length, block->jumps,
            block->fetches, block->following, block->reads);
    block->runs = 0;
    block->jumps = 0;
    block->fetches = 0;
    block->following = 0;
    block->reads = 0;
}

static void print_blocks(void)
{
    for (struct block *block = first_block; block != NULL; block = block->next) {
        if (block->runs != 0) {
            print_block(block);
        }
    }
}

static void finish_call(void)
{
    if (previous != NULL) {
        previous->jumps++;
    }
    if (with_blocks) {
        print_blocks();
    }
    fprintf(out, "call %" PRIu64 "\n", total);
    fflush(out);
    counting = false;
}

static void count_block(unsigned int cpu, void *user)
{
    struct block *const block = user;

    (void)cpu;
    if (counting) {
        total += block->length;
        block->runs++;
        /* QEMU reads ahead of a block that ends before an instruction on two pages. */
        if (previous != NULL && previous->end != block->address &&
            previous->end != block->address + 2u) {
            previous->jumps++;
        }
        previous = block;
        if (block->address >= flash_low && block->end <= flash_high) {
            fetch_block(block);
        }
    }
}

static void start_block(unsigned int cpu, void *user)
{
    if (!counting) {
        counting = true;
        total = 0;
        previous = NULL;
        if (flash_high != 0u) {
            make_empty(&fetched);
            make_empty(&loaded);
        }
    }
    count_block(cpu, user);
}

static void mark_block(unsigned int cpu, void *user)
{
    const struct block *const block = user;

    if (counting && with_blocks) {
        if (previous != NULL) {
            previous->jumps++;
            previous = NULL;
        }
        print_blocks();
        fprintf(out, "mark 0x%" PRIx64 "\n", block->address);
    }
    count_block(cpu, user);
}

static bool is_mark(uint64_t address)
{
    for (size_t i = 0; i < mark_count; i++) {
        if (marks[i] == address) {
            return true;
        }
    }
    return false;
}

static void stop_block(unsigned int cpu, void *user)
{
    (void)cpu;
    (void)user;
    if (counting) {
        finish_call();
    }
}

static struct block *block_of(uint64_t address, uint64_t end, uint64_t length)
{
    struct block **const bucket = &buckets[(address >> 1) % BUCKETS];
    struct block *block = *bucket;

    while (block != NULL && (block->address != address || block->length != length)) {
        block = block->next_in_bucket;
    }
    if (block == NULL) {
        block = calloc(1, sizeof *block);
        if (block == NULL) {
            abort();
        }
        block->address = address;
        block->end = end;
        block->length = length;
        block->next_in_bucket = *bucket;
        *bucket = block;
        *last_link = block;
        last_link = &block->next;
    }
    return block;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *translated)
{
    const uint64_t address = qemu_plugin_tb_vaddr(translated);
    const size_t length = qemu_plugin_tb_n_insns(translated);
    struct qemu_plugin_insn *const last = qemu_plugin_tb_get_insn(translated, length - 1u);
    const uint64_t end = qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last);
    struct block *const block = block_of(address, end, length);
    void (*callback)(unsigned int, void *) = count_block;

    (void)id;
    if (address == start_address) {
        callback = start_block;
    } else if (address >= stop_low && address < stop_high) {
        callback = stop_block;
    } else if (is_mark(address)) {
        callback = mark_block;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(translated, callback, CALLBACK_READS_NO_REGISTERS, block);
    for (size_t i = 0; flash_high != 0u && i < length; i++) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(translated, i), load_data,
                                         CALLBACK_READS_NO_REGISTERS, LOADS_AND_STORES,
                                         block);
    }
}

static void read_range(const char *text, uint64_t *low, uint64_t *high)
{
    char *end;

    *low = strtoull(text, &end, 0);
    *high = *end == '-' ? strtoull(end + 1, NULL, 0) : 0;
}

static uint16_t lines_of(const char *text)
{
    const unsigned long lines = strtoul(text, NULL, 0);

    return lines > LINES ? (uint16_t)LINES : (uint16_t)lines;
}

static bool take(const char *key, const char *value)
{
    if (strcmp(key, "out") == 0) {
        out = fopen(value, "w");
    } else if (strcmp(key, "start") == 0) {
        start_address = strtoull(value, NULL, 0);
    } else if (strcmp(key, "stop") == 0) {
        read_range(value, &stop_low, &stop_high);
    } else if (strcmp(key, "blocks") == 0) {
        with_blocks = value[0] == '1' || value[0] == 'o';
    } else if (strcmp(key, "flash") == 0) {
        read_range(value, &flash_low, &flash_high);
    } else if (strcmp(key, "line") == 0) {
        line_bytes = strtoull(value, NULL, 0);
    } else if (strcmp(key, "fetches") == 0) {
        fetched.size = lines_of(value);
    } else if (strcmp(key, "reads") == 0) {
        loaded.size = lines_of(value);
    } else if (strcmp(key, "mark") == 0 && mark_count < MARKS) {
        marks[mark_count++] = strtoull(value, NULL, 0);
    } else {
        return false;
    }
    return true;
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        char *const value = strchr(arguments[i], '=');

        if (value == NULL) {
            return 1;
        }
        *value = '\0';
        if (!take(arguments[i], value + 1)) {
            return 1;
        }
    }
    if (out == NULL || line_bytes == 0u || (flash_high != 0u && fetched.size == 0u)) {
        return 1;
    }
    if (flash_high != 0u) {
        make_buffer(&fetched);
        make_buffer(&loaded);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
