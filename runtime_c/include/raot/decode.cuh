/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.cuh - quantized weights as half-precision values, for CUDA devices.
 *
 * A byte in the lowest bits of the half-precision number 1024 adds its value to that: a permutation
 * makes two numbers of two bytes, and one instruction subtracts 1024 and the zero point of both.
 */
#ifndef RAOT_DECODE_CUH
#define RAOT_DECODE_CUH

#include "convert.h"
#include "integer.h"

/* clang-format off */

/* One access of 8 bytes, whose address is aligned to them. `ahead`: how far it is behind
   `from`, an address that compilers compute once. */
#if defined(__CUDA_ARCH__)
#define RAOT_LOAD8(N, T) \
    static inline void raot_load8_##N(T *to, const T *from, int32_t ahead) \
    { \
        const T *at; \
        asm("{ .reg .s64 a; mul.wide.s32 a, %1, 1; add.s64 %0, %2, a; }" \
            : "=l"(at) : "r"(ahead), "l"(from)); \
        const uint2 both = __ldg(reinterpret_cast<const uint2 *>(at)); \
        reinterpret_cast<uint32_t *>(to)[0] = both.x; \
        reinterpret_cast<uint32_t *>(to)[1] = both.y; \
    }
#else
#define RAOT_LOAD8(N, T) \
    static inline void raot_load8_##N(T *to, const T *from, int32_t ahead) \
    { \
        for (int32_t n = 0; n < 8; n++) { \
            to[n] = from[ahead + n]; \
        } \
    }
#endif

/* Less `zero`, of at most 9 bits. SIGN: what makes bytes unsigned, and LEAST: how much less they are
   then. */
#if defined(__CUDA_ARCH__)
#define RAOT_WIDEN8(N, T, SIGN, LEAST) \
    static inline void raot_widen8_##N(uint16_t *to, const T *from, int32_t zero) \
    { \
        const uint32_t less = (uint32_t)(0x6400 + (LEAST) + zero) * 0x10001u; \
        uint32_t *const pairs = reinterpret_cast<uint32_t *>(to); \
        for (int32_t n = 0; n < 4; n++) { \
            const uint32_t word = reinterpret_cast<const uint32_t *>(from)[n / 2] ^ (SIGN); \
            const uint32_t own = __byte_perm(word, 0x64646464u, n % 2 ? 0x4342u : 0x4140u); \
            asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pairs[n]) : "r"(own), "r"(less)); \
        } \
    }
#else
#define RAOT_WIDEN8(N, T, SIGN, LEAST) \
    static inline void raot_widen8_##N(uint16_t *to, const T *from, int32_t zero) \
    { \
        for (int32_t n = 0; n < 8; n++) { \
            to[n] = raot_f32_to_f16((float)(from[n] - zero)); \
        } \
    }
#endif

/* Elements 0, 2, 4, 6, 1, 3, 5, 7 of a word are 4 bits each, from the lowest ones on. A mask gives two
   of them in the lowest bits of two numbers, or 4 bits higher: these are multiplied by 1/16. */
#if defined(__CUDA_ARCH__)
static inline void raot_load8_u4(uint8_t *to, const uint8_t *from, int32_t ahead)
{
    const uint8_t *at;
    asm("{ .reg .s64 a; mul.wide.s32 a, %1, 1; add.s64 %0, %2, a; }"
        : "=l"(at) : "r"(ahead), "l"(from));
    *reinterpret_cast<uint32_t *>(to) = __ldg(reinterpret_cast<const uint32_t *>(at));
}

static inline void raot_widen8_u4(uint16_t *to, const uint8_t *from, int32_t zero)
{
    const uint32_t less = (uint32_t)(0x6400 + zero) * 0x10001u;
    const uint32_t high = (uint32_t)(0xd400 + 16 * zero) * 0x10001u;
    uint32_t *const pairs = reinterpret_cast<uint32_t *>(to);
    uint32_t word = *reinterpret_cast<const uint32_t *>(from);

    for (int32_t n = 0; n < 4; n += 2) {
        uint32_t own;
        asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(own) : "r"(word));
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pairs[n]) : "r"(own), "r"(less));
        asm("lop3.b32 %0, %1, 0x00f000f0, 0x64006400, 0xea;" : "=r"(own) : "r"(word));
        asm("fma.rn.f16x2 %0, %1, %2, %3;"
            : "=r"(pairs[n + 1]) : "r"(own), "r"(0x2c002c00u), "r"(high));
        word >>= 8;
    }
}
#else
static inline void raot_load8_u4(uint8_t *to, const uint8_t *from, int32_t ahead)
{
    for (int32_t n = 0; n < 4; n++) {
        to[n] = from[ahead + n];
    }
}

static inline void raot_widen8_u4(uint16_t *to, const uint8_t *from, int32_t zero)
{
    for (int32_t n = 0; n < 8; n++) {
        const uint32_t own = ((uint32_t)from[n % 2 * 2 + n / 4] >> (n / 2 % 2 * 4)) & 15u;
        to[n] = raot_f32_to_f16((float)((int32_t)own - zero));
    }
}
#endif

/* Eight results, rounded once. `step`: how far the second operands are apart; one is that of all. */
#if defined(__CUDA_ARCH__)
#define RAOT_EIGHT(NAME, PTX, OP) \
    static inline void raot_##NAME##8_f16(uint16_t *x, const uint16_t *by, int32_t step) \
    { \
        uint32_t *const pairs = reinterpret_cast<uint32_t *>(x); \
        for (int32_t n = 0; n < 4; n++) { \
            const uint32_t own = \
                step ? reinterpret_cast<const uint32_t *>(by)[n] : (uint32_t)by[0] * 0x10001u; \
            asm(#PTX ".rn.f16x2 %0, %0, %1;" : "+r"(pairs[n]) : "r"(own)); \
        } \
    }
#else
#define RAOT_EIGHT(NAME, PTX, OP) \
    static inline void raot_##NAME##8_f16(uint16_t *x, const uint16_t *by, int32_t step) \
    { \
        for (int32_t n = 0; n < 8; n++) { \
            x[n] = raot_f32_to_f16(raot_f16_to_f32(x[n]) OP raot_f16_to_f32(by[n * step])); \
        } \
    }
#endif

/* clang-format on */

/* One access of 16 bytes of shared memory, which is aligned to them. */
static inline void raot_put8_f16(uint16_t *to, const uint16_t *from)
{
#if defined(__CUDA_ARCH__)
    const uint32_t *const pairs = reinterpret_cast<const uint32_t *>(from);

    *reinterpret_cast<uint4 *>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
#else
    for (int32_t n = 0; n < 8; n++) {
        to[n] = from[n];
    }
#endif
}

RAOT_LOAD8(i8, int8_t)
RAOT_LOAD8(u8, uint8_t)
RAOT_WIDEN8(i8, int8_t, 0x80808080u, 128)
RAOT_WIDEN8(u8, uint8_t, 0u, 0)
RAOT_EIGHT(subtract, sub, -)
RAOT_EIGHT(multiply, mul, *)

#endif
