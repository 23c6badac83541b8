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
 *
 * FILE gets a line `call COUNT` for each call. With blocks=1, a line `block PC COUNT` for each
 * executed block precedes it.
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

struct qemu_plugin_tb;
struct qemu_info;

enum callback_flags { CALLBACK_READS_NO_REGISTERS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
                                           void (*translated)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block,
                                          void (*executed)(unsigned int, void *),
                                          enum callback_flags flags, void *user);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);

EXPORTED int qemu_plugin_version = PLUGIN_INTERFACE;
EXPORTED int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int count,
                                 char **arguments);

/* A block may be translated more than once; address and length identify it. */
struct block {
    uint64_t address;
    uint64_t length;
    uint64_t runs; /* in the current call */
    struct block *next_in_bucket;
    struct block *next;
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

static void finish_call(void)
{
    if (with_blocks) {
        for (struct block *block = first_block; block != NULL; block = block->next) {
            if (block->runs != 0) {
                fprintf(out, "block 0x%" PRIx64 " %" PRIu64 "\n", block->address,
                        block->runs * block->length);
                block->runs = 0;
            }
        }
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
    }
}

static void start_block(unsigned int cpu, void *user)
{
    if (!counting) {
        counting = true;
        total = 0;
    }
    count_block(cpu, user);
}

static void stop_block(unsigned int cpu, void *user)
{
    (void)cpu;
    (void)user;
    if (counting) {
        finish_call();
    }
}

static struct block *block_of(uint64_t address, uint64_t length)
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
    struct block *const block = block_of(address, qemu_plugin_tb_n_insns(translated));
    void (*callback)(unsigned int, void *) = count_block;

    (void)id;
    if (address == start_address) {
        callback = start_block;
    } else if (address >= stop_low && address < stop_high) {
        callback = stop_block;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(translated, callback, CALLBACK_READS_NO_REGISTERS, block);
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        char *const value = strchr(arguments[i], '=');

        if (value == NULL) {
            return 1;
        }
        if (strncmp(arguments[i], "out=", 4) == 0) {
            out = fopen(value + 1, "w");
        } else if (strncmp(arguments[i], "start=", 6) == 0) {
            start_address = strtoull(value + 1, NULL, 0);
        } else if (strncmp(arguments[i], "stop=", 5) == 0) {
            char *end;

            stop_low = strtoull(value + 1, &end, 0);
            stop_high = *end == '-' ? strtoull(end + 1, NULL, 0) : 0;
        } else if (strncmp(arguments[i], "blocks=", 7) == 0) {
            with_blocks = value[1] == '1' || value[1] == 'o';
        } else {
            return 1;
        }
    }
    if (out == NULL) {
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
