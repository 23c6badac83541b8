/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - the separate block of a model's weights, and its checks. */
#ifndef RAOT_WEIGHTS_H
#define RAOT_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "status.h"

/*
 * A block is a header of 64 bytes, a table of 16 bytes per constant, and the data. Words are
 * little-endian:
 *
 *      0  "RAOTWGTS"
 *      8  version of this format, 1
 *     12  bytes of the whole block
 *     16  16 bytes: hash of the code that reads the block
 *     32  entries of the table
 *     36  offset of the data
 *     40  12 bytes of zeros
 *     52  CRC-32 of the data
 *     56  CRC-32 of the table
 *     60  CRC-32 of the header before this word
 *
 * An entry is the constant's offset, its size in bytes, its element type as a number, and the
 * CRC-32 of its bytes. A program expects a certain header up to the checksums.
 */
#define RAOT_WEIGHTS_HEADER_BYTES 64u
#define RAOT_WEIGHTS_ENTRY_BYTES 16u
#define RAOT_WEIGHTS_IDENTITY_BYTES 52u

/* CRC-32 as in zlib and Ethernet, four bits at a time: 64 bytes of table, no start-up. */
static inline uint32_t raot_crc32(const unsigned char *data, size_t bytes)
{
    static const uint32_t quarter[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < bytes; i++) {
        crc = quarter[(crc ^ data[i]) & 15u] ^ (crc >> 4);
        crc = quarter[(crc ^ ((uint32_t)data[i] >> 4)) & 15u] ^ (crc >> 4);
    }
    return crc ^ 0xffffffffu;
}

static inline uint32_t raot_word_at(const unsigned char *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

/* 1 if the header of the block matches this program. Cheap: the data are not read. */
static inline int raot_weights_match(const void *block, const unsigned char *identity)
{
    const unsigned char *const bytes = block;
    uint32_t changed = 0u;

    for (size_t i = 0u; i < RAOT_WEIGHTS_IDENTITY_BYTES; i++) {
        changed |= (uint32_t)bytes[i] ^ identity[i];
    }
    return changed == 0u;
}

/*
 * RAOT_OK if `block` is complete, undamaged and for this program. `bytes` are readable; they may
 * be more than the block, because a partition may be larger.
 */
static inline enum raot_status raot_weights_check(const void *block, size_t bytes,
                                                  const unsigned char *identity)
{
    const unsigned char *const at = block;
    const size_t total = raot_word_at(identity + 12);
    const size_t table_end =
        RAOT_WEIGHTS_HEADER_BYTES + RAOT_WEIGHTS_ENTRY_BYTES * (size_t)raot_word_at(identity + 32);

    if (bytes < total || !raot_weights_match(block, identity)) {
        return RAOT_ERR_WEIGHTS;
    }
    if (raot_crc32(at, 60) != raot_word_at(at + 60)) {
        return RAOT_ERR_WEIGHTS;
    }
    if (raot_crc32(at + RAOT_WEIGHTS_HEADER_BYTES, table_end - RAOT_WEIGHTS_HEADER_BYTES) !=
        raot_word_at(at + 56)) {
        return RAOT_ERR_WEIGHTS;
    }
    if (raot_crc32(at + table_end, total - table_end) != raot_word_at(at + 52)) {
        return RAOT_ERR_WEIGHTS;
    }
    return RAOT_OK;
}

/*
 * Limits of quantization parameters on which the code relies: `count` signed words from `offset`
 * are in `low..high` (inclusive). For positive floats, the limits apply to the bits.
 */
struct raot_weights_limit {
    uint32_t offset;
    uint32_t count;
    int32_t low;
    int32_t high;
};

/* RAOT_OK if the parameters of a checked block are within all limits, else RAOT_ERR_LIMITS. */
static inline enum raot_status
raot_weights_limited(const void *block, const struct raot_weights_limit *limits, size_t count)
{
    const unsigned char *const at = block;

    /*@ loop unroll 65536; */
    for (size_t i = 0u; i < count; i++) {
        /*@ loop unroll 65536; */
        for (uint32_t word = 0u; word < limits[i].count; word++) {
            int32_t number;

            (void)memcpy(&number, at + limits[i].offset + 4u * (size_t)word, sizeof number);
            if (number < limits[i].low || number > limits[i].high) {
                return RAOT_ERR_LIMITS;
            }
        }
    }
    return RAOT_OK;
}

#endif
