/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - addresses inside memory that the caller owns. */
#ifndef RAOT_ARENA_H
#define RAOT_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* Declares an object at a multiple of `bytes`: RAOT_ALIGNAS(16) unsigned char arena[SIZE]; */
#ifdef __cplusplus
#define RAOT_ALIGNAS(bytes) alignas(bytes)
#elif defined(__FRAMAC__)
#define RAOT_ALIGNAS(bytes) __attribute__((aligned(bytes)))
#else
#define RAOT_ALIGNAS(bytes) _Alignas(bytes)
#endif

/* The address `offset` bytes into a block. */
static inline void *raot_at(void *base, size_t offset)
{
    return (unsigned char *)base + offset;
}

/* The same for a read-only block. */
static inline const void *raot_at_const(const void *base, size_t offset)
{
    return (const unsigned char *)base + offset;
}

/* 1 if the address is a multiple of `alignment`, a power of two. */
static inline int raot_is_aligned(const void *address, size_t alignment)
{
    return ((uintptr_t)address & (alignment - 1u)) == 0u;
}

/* 1 if two blocks overlap. An empty block overlaps nothing. */
static inline int raot_overlaps(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t a_start = (uintptr_t)a;
    const uintptr_t b_start = (uintptr_t)b;

    if (a_bytes == 0u || b_bytes == 0u) {
        return 0;
    }
    return a_start <= b_start ? b_start - a_start < a_bytes : a_start - b_start < b_bytes;
}

#endif
