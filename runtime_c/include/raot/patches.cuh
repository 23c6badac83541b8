/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patches.cuh - what a lane loads for products of windows.
 *
 * Elements are `ahead` + `near` behind an address. Compilers add `ahead` once, and make `near`, which
 * is a number, part of an instruction. Addresses are aligned to the bytes that are loaded.
 */
#ifndef RAOT_PATCHES_CUH
#define RAOT_PATCHES_CUH

#include "mma.cuh"

/* 16 bytes in shared memory; `ahead` and `near` are bytes. */
static inline void raot_load_group_16(void *to, const void *from, int32_t ahead, int32_t near)
{
#if RAOT_MMA
    uint32_t *const r = static_cast<uint32_t *>(to);

    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(raot_shared_address(from, ahead) + (uint32_t)near)
                 : "memory");
#else
    (void)to;
    (void)from;
    (void)ahead;
    (void)near;
#endif
}

/* The same of 8 bytes. */
static inline void raot_load_group_8(void *to, const void *from, int32_t ahead, int32_t near)
{
#if RAOT_MMA
    uint32_t *const r = static_cast<uint32_t *>(to);

    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(raot_shared_address(from, ahead) + (uint32_t)near)
                 : "memory");
#else
    (void)to;
    (void)from;
    (void)ahead;
    (void)near;
#endif
}

/* 16 bytes of constants in global memory. */
static inline void raot_load_weights_16(void *to, const void *from, int32_t ahead, int32_t near)
{
#if RAOT_MMA
    uint32_t *const r = static_cast<uint32_t *>(to);
    const uint8_t *at;

    asm("{ .reg .s64 a; cvt.s64.s32 a, %1; add.s64 %0, %2, a; }" : "=l"(at) : "r"(ahead), "l"(from));
    asm("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "l"(at + near));
#else
    (void)to;
    (void)from;
    (void)ahead;
    (void)near;
#endif
}

/* clang-format off */

#define RAOT_LOAD_PATCH(WHAT, N, T, COUNT, FORM) \
    static inline void raot_load_##WHAT##N(T *to, const T *from, int32_t ahead, int32_t near) \
    { \
        if (RAOT_MMA) { \
            const int32_t size = (int32_t)sizeof(T); \
            raot_load_##FORM(to, from, ahead * size, near * size); \
        } else { \
            for (int32_t n = 0; n < (COUNT); n++) { \
                to[n] = from[ahead + near + n]; \
            } \
        } \
    }

/* One access of 8 bytes in shared memory. */
#define RAOT_STORE_GROUP(N, T, COUNT) \
    static inline void raot_store_group##N(T *to, const T *from) \
    { \
        union { float2 whole; T parts[COUNT]; } bytes; \
        for (int32_t n = 0; n < (COUNT); n++) { \
            bytes.parts[n] = from[n]; \
        } \
        *reinterpret_cast<float2 *>(to) = bytes.whole; \
    }

/* clang-format on */

/* An integer of a table in global memory. */
static inline void raot_load_offset_i32(int32_t *to, const int32_t *from, int32_t ahead,
                                        int32_t near)
{
#if RAOT_MMA
    const int32_t *at;

    asm("{ .reg .s64 a; mul.wide.s32 a, %1, 4; add.s64 %0, %2, a; }"
        : "=l"(at)
        : "r"(ahead), "l"(from));
    *to = __ldg(at + near);
#else
    *to = from[ahead + near];
#endif
}

RAOT_LOAD_PATCH(group, 8_f16, uint16_t, 8, group_16)
RAOT_LOAD_PATCH(group, 8_bf16, uint16_t, 8, group_16)
RAOT_LOAD_PATCH(group, 16_i8, int8_t, 16, group_16)
RAOT_LOAD_PATCH(group, 16_u8, uint8_t, 16, group_16)
RAOT_LOAD_PATCH(group, 4_f16, uint16_t, 4, group_8)
RAOT_LOAD_PATCH(group, 4_bf16, uint16_t, 4, group_8)
RAOT_LOAD_PATCH(group, 8_i8, int8_t, 8, group_8)
RAOT_LOAD_PATCH(group, 8_u8, uint8_t, 8, group_8)
RAOT_STORE_GROUP(4_f16, uint16_t, 4)
RAOT_STORE_GROUP(4_bf16, uint16_t, 4)
RAOT_STORE_GROUP(8_i8, int8_t, 8)
RAOT_STORE_GROUP(8_u8, uint8_t, 8)
RAOT_LOAD_PATCH(weights, 8_f16, uint16_t, 8, weights_16)
RAOT_LOAD_PATCH(weights, 8_bf16, uint16_t, 8, weights_16)
RAOT_LOAD_PATCH(weights, 16_i8, int8_t, 16, weights_16)
RAOT_LOAD_PATCH(weights, 16_u8, uint8_t, 16, weights_16)

#endif
