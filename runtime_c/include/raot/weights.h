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
 *     12  bytes of the whole block, lower 32 bits
 *     16  16 bytes: hash of the code that reads the block
 *     32  entries of the table
 *     36  offset of the data
 *     40  bytes of the whole block, upper 32 bits
 *     44  8 bytes of zeros
 *     52  CRC-32 of the data
 *     56  CRC-32 of the table
 *     60  CRC-32 of the header before this word
 *
 * An entry is the lower 32 bits of the constant's offset, its size in bytes, its element type as a
 * number (8 bits) with the upper 24 bits of the offset above it, and the CRC-32 of its bytes. A
 * program expects a certain header up to the checksums.
 */
#define RAOT_WEIGHTS_HEADER_BYTES 64u
#define RAOT_WEIGHTS_ENTRY_BYTES 16u
#define RAOT_WEIGHTS_IDENTITY_BYTES 52u

static inline uint32_t raot_word_at(const unsigned char *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

/* Continue a CRC-32 before its last inversion, four bits at a time with a table of 64 bytes. */
static inline uint32_t raot_crc32_nibbles(uint32_t crc, const unsigned char *data, size_t bytes)
{
    static const uint32_t quarter[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };

    for (size_t i = 0; i < bytes; i++) {
        crc = quarter[(crc ^ data[i]) & 15u] ^ (crc >> 4);
        crc = quarter[(crc ^ ((uint32_t)data[i] >> 4)) & 15u] ^ (crc >> 4);
    }
    return crc;
}

#if UINTPTR_MAX > UINT32_MAX && !defined(__FRAMAC__)
#define RAOT_CRC32_SLICED_BYTES 65536u

/* The same, eight bytes at a time (slicing-by-8): the tables are 8 KiB of the stack. */
static inline uint32_t raot_crc32_sliced(uint32_t crc, const unsigned char *data, size_t bytes)
{
    uint32_t slices[8][256];
    size_t at = 0u;

    for (unsigned int byte = 0u; byte < 256u; byte++) {
        const unsigned char first = (unsigned char)byte;

        slices[0][byte] = raot_crc32_nibbles(0u, &first, 1u);
    }
    for (size_t slice = 1u; slice < 8u; slice++) {
        for (size_t byte = 0u; byte < 256u; byte++) {
            const uint32_t before = slices[slice - 1u][byte];

            slices[slice][byte] = slices[0][before & 255u] ^ (before >> 8);
        }
    }
    for (; bytes - at >= 8u; at += 8u) {
        const uint32_t low = crc ^ raot_word_at(data + at);
        const uint32_t high = raot_word_at(data + at + 4u);

        crc = slices[7][low & 255u] ^ slices[6][low >> 8 & 255u] ^ slices[5][low >> 16 & 255u] ^
              slices[4][low >> 24] ^ slices[3][high & 255u] ^ slices[2][high >> 8 & 255u] ^
              slices[1][high >> 16 & 255u] ^ slices[0][high >> 24];
    }
    return raot_crc32_nibbles(crc, data + at, bytes - at);
}
#endif

/* CRC-32 as in zlib and Ethernet. Large data on 64-bit targets are read eight bytes at a time. */
static inline uint32_t raot_crc32(const unsigned char *data, size_t bytes)
{
    const uint32_t start = 0xffffffffu;

#ifdef RAOT_CRC32_SLICED_BYTES
    if (bytes >= RAOT_CRC32_SLICED_BYTES) {
        return raot_crc32_sliced(start, data, bytes) ^ start;
    }
#endif
    return raot_crc32_nibbles(start, data, bytes) ^ start;
}

/* Bytes of the whole block. A program for a 32-bit target expects less than 2 GiB. */
static inline size_t raot_weights_bytes(const unsigned char *identity)
{
    size_t total = raot_word_at(identity + 12);

#if UINTPTR_MAX > UINT32_MAX
    total |= (size_t)raot_word_at(identity + 40) << 32;
#endif
    return total;
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
    const size_t total = raot_weights_bytes(identity);
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
    size_t offset;
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
