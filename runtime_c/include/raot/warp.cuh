/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warp.cuh - reductions of a warp, and vectors of 16 bytes, for CUDA devices.
 *
 * Butterflies over lanes that differ by 16, 8, 4, 2 and 1. Every lane has the result, with the same
 * bits: sums do not depend on the order of two operands. The bits of a maximum of 0 and -0 do, so
 * that all lanes take the maximum of lane 0.
 */
#ifndef RAOT_WARP_CUH
#define RAOT_WARP_CUH

#include "ieee.h"
#include "integer.h"

/* clang-format off */

#define RAOT_WARP_SUM(N, T, SUM) \
    static inline void raot_warp_sum_##N(T *x) \
    { \
        for (int bits = 16; bits > 0; bits /= 2) { \
            *x = SUM(*x, __shfl_xor_sync(0xffffffffu, *x, bits)); \
        } \
    }

#define RAOT_WARP_EXTREME(N, T, WHICH, OF_TWO) \
    static inline void raot_warp_##WHICH##_##N(T *x) \
    { \
        for (int bits = 16; bits > 0; bits /= 2) { \
            *x = OF_TWO(*x, __shfl_xor_sync(0xffffffffu, *x, bits)); \
        } \
        *x = __shfl_sync(0xffffffffu, *x, 0); \
    }

/* clang-format on */

#define RAOT_WARP_ADD(a, b) ((a) + (b))
RAOT_WARP_SUM(f32, float, RAOT_WARP_ADD)
RAOT_WARP_SUM(f64, double, RAOT_WARP_ADD)
RAOT_WARP_SUM(i32, int32_t, raot_add_i32)
RAOT_WARP_SUM(i64, int64_t, raot_add_i64)
RAOT_WARP_EXTREME(f32, float, max, raot_maxf)
RAOT_WARP_EXTREME(f64, double, max, raot_max)
RAOT_WARP_EXTREME(i32, int32_t, max, raot_larger_i32)
RAOT_WARP_EXTREME(i64, int64_t, max, raot_larger_i64)
RAOT_WARP_EXTREME(f32, float, min, raot_minf)
RAOT_WARP_EXTREME(f64, double, min, raot_min)
RAOT_WARP_EXTREME(i32, int32_t, min, raot_smaller_i32)
RAOT_WARP_EXTREME(i64, int64_t, min, raot_smaller_i64)

/* clang-format off */

/* One access of 16 bytes, whose address is aligned to them: so many elements of a type. */
#define RAOT_VECTOR(N, T, COUNT) \
    static inline void raot_load##COUNT##_##N(T *to, const T *from) \
    { \
        union { float4 whole; T parts[COUNT]; } bytes; \
        bytes.whole = *reinterpret_cast<const float4 *>(from); \
        for (int i = 0; i < COUNT; i++) { \
            to[i] = bytes.parts[i]; \
        } \
    } \
    static inline void raot_store##COUNT##_##N(T *to, const T *from) \
    { \
        union { float4 whole; T parts[COUNT]; } bytes; \
        for (int i = 0; i < COUNT; i++) { \
            bytes.parts[i] = from[i]; \
        } \
        *reinterpret_cast<float4 *>(to) = bytes.whole; \
    }

/* One element, so far behind an address that compilers compute once, or zero where `count` is. */
#if defined(__CUDA_ARCH__)
#define RAOT_LOAD_ONE(N, T) \
    static inline void raot_load_one_##N(T *to, const T *from, int32_t count, int32_t ahead) \
    { \
        const T *at; \
        asm("{ .reg .s64 a; mul.wide.s32 a, %1, %3; add.s64 %0, %2, a; }" \
            : "=l"(at) \
            : "r"(ahead), "l"(from), "n"(sizeof(T))); \
        *to = count > 0 ? __ldg(at) : (T)0; \
    }
#else
#define RAOT_LOAD_ONE(N, T) \
    static inline void raot_load_one_##N(T *to, const T *from, int32_t count, int32_t ahead) \
    { \
        *to = (T)(count > 0 ? from[ahead] : (T)0); \
    }
#endif

/* clang-format on */

RAOT_LOAD_ONE(f32, float)
RAOT_LOAD_ONE(f16, uint16_t)
RAOT_LOAD_ONE(bf16, uint16_t)

/* One element of half precision of each of eight planes, which are `apart`, as raot_load_one. */
static inline void raot_load_planes(uint16_t *to, const uint16_t *from, int32_t count,
                                    int32_t ahead, int32_t apart)
{
#if defined(__CUDA_ARCH__)
    const uint16_t *at;
    uint32_t some[8];

    asm("{ .reg .s64 a; mul.wide.s32 a, %1, 2; add.s64 %0, %2, a; }"
        : "=l"(at)
        : "r"(ahead), "l"(from));
    for (int32_t i = 0; i < 8; i++) {
        some[i] = count > 0 ? __ldg(at + i * apart) : 0u;
    }
    for (int32_t i = 0; i < 4; i++) {
        reinterpret_cast<uint32_t *>(to)[i] = some[2 * i] | some[2 * i + 1] << 16;
    }
#else
    for (int32_t i = 0; i < 8; i++) {
        to[i] = (uint16_t)(count > 0 ? from[ahead + i * apart] : 0u);
    }
#endif
}

static inline void raot_load_planes_f16(uint16_t *to, const uint16_t *from, int32_t count,
                                        int32_t ahead, int32_t apart)
{
    raot_load_planes(to, from, count, ahead, apart);
}

static inline void raot_load_planes_bf16(uint16_t *to, const uint16_t *from, int32_t count,
                                         int32_t ahead, int32_t apart)
{
    raot_load_planes(to, from, count, ahead, apart);
}

/*
 * Eight elements of half precision at any address, as words of 4 bytes. Those that begin in the
 * middle of a word take what is behind them, so only an element before the first one is read too.
 */
static inline void raot_load_any8(uint16_t *to, const uint16_t *from)
{
    const uint32_t odd = (uint32_t)(reinterpret_cast<size_t>(from) >> 1) & 1u;
    const uint32_t *words = reinterpret_cast<const uint32_t *>(from - odd);
    uint32_t some[5];

    for (int32_t i = 0; i < 4; i++) {
        some[i] = words[i];
    }
    some[4] = odd != 0u ? (uint32_t)from[7] : 0u;
    for (int32_t i = 0; i < 4; i++) {
        const uint64_t both = (uint64_t)some[i + 1] << 32 | some[i];
        const uint32_t word = (uint32_t)(both >> (16u * odd));

#if defined(__CUDA_ARCH__)
        reinterpret_cast<uint32_t *>(to)[i] = word;
#else
        to[2 * i] = (uint16_t)word;
        to[2 * i + 1] = (uint16_t)(word >> 16);
#endif
    }
}

static inline void raot_load_any8_f16(uint16_t *to, const uint16_t *from)
{
    raot_load_any8(to, from);
}

static inline void raot_load_any8_bf16(uint16_t *to, const uint16_t *from)
{
    raot_load_any8(to, from);
}

RAOT_VECTOR(f32, float, 4)
RAOT_VECTOR(i32, int32_t, 4)
RAOT_VECTOR(f16, uint16_t, 8)
RAOT_VECTOR(bf16, uint16_t, 8)
RAOT_VECTOR(i8, int8_t, 16)
RAOT_VECTOR(u8, uint8_t, 16)

#endif
