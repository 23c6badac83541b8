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

/* One access of EACH elements of memory, whose address is aligned to them. `ahead` + `near`: how far it is behind
   `from`. Compilers add `ahead` to an address once, and make `near`, a number, part of the
   instruction. */
#if defined(__CUDA_ARCH__)
#define RAOT_LOAD(COUNT, N, T, EACH, LOAD) \
    static inline void raot_load##COUNT##_##N(T *to, const T *from, int32_t ahead, \
                                              int32_t near) \
    { \
        const T *at; \
        asm("{ .reg .s64 a; mul.wide.s32 a, %1, %3; add.s64 %0, %2, a; }" \
            : "=l"(at) : "r"(ahead), "l"(from), "n"(sizeof(T))); \
        LOAD(reinterpret_cast<uint32_t *>(to), at + near); \
    }
#else
#define RAOT_LOAD(COUNT, N, T, EACH, LOAD) \
    static inline void raot_load##COUNT##_##N(T *to, const T *from, int32_t ahead, \
                                              int32_t near) \
    { \
        for (int32_t n = 0; n < (EACH); n++) { \
            to[n] = from[ahead + near + n]; \
        } \
    }
#endif

/* Less `zero`, so that results have at most 9 bits. SIGN: what makes bytes unsigned, and LEAST: how
   much less they are then. */
#if defined(__CUDA_ARCH__)
#define RAOT_WIDEN(COUNT, N, T, SIGN, LEAST) \
    static inline void raot_widen##COUNT##_##N(uint16_t *to, const T *from, int32_t zero) \
    { \
        const uint32_t less = (uint32_t)(0x6400 + (LEAST) + zero) * 0x10001u; \
        uint32_t *const pairs = reinterpret_cast<uint32_t *>(to); \
        for (int32_t n = 0; n < (COUNT) / 2; n++) { \
            const uint32_t word = reinterpret_cast<const uint32_t *>(from)[n / 2] ^ (SIGN); \
            const uint32_t own = __byte_perm(word, 0x64646464u, n % 2 ? 0x4342u : 0x4140u); \
            asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pairs[n]) : "r"(own), "r"(less)); \
        } \
    }
#else
#define RAOT_WIDEN(COUNT, N, T, SIGN, LEAST) \
    static inline void raot_widen##COUNT##_##N(uint16_t *to, const T *from, int32_t zero) \
    { \
        for (int32_t n = 0; n < (COUNT); n++) { \
            to[n] = raot_f32_to_f16((float)(from[n] - zero)); \
        } \
    }
#endif

/* The same with a zero point that is in memory. */
#define RAOT_WIDEN_BY(COUNT, N, T) \
    static inline void raot_widen##COUNT##_by_##N(uint16_t *to, const T *from, \
                                                  const int32_t *zero) \
    { \
        raot_widen##COUNT##_##N(to, from, zero[0]); \
    }

/* Results that are rounded once. `step`: how far the second operands are apart; one is that of all.
   REST: what is added to a product, -0. */
#if defined(__CUDA_ARCH__)
#define RAOT_EACH(COUNT, NAME, N, PTX, OP, REST) \
    static inline void raot_##NAME##COUNT##_##N(uint16_t *x, const uint16_t *by, int32_t step) \
    { \
        uint32_t *const pairs = reinterpret_cast<uint32_t *>(x); \
        for (int32_t n = 0; n < (COUNT) / 2; n++) { \
            uint32_t own; \
            asm("mov.b32 %0, {%1, %2};" \
                : "=r"(own) : "h"(by[2 * n * step]), "h"(by[(2 * n + 1) * step])); \
            asm(#PTX ".rn." #N "x2 %0, %0, %1" REST ";" \
                : "+r"(pairs[n]) : "r"(own), "r"(0x80008000u)); \
        } \
    }
#else
#define RAOT_EACH(COUNT, NAME, N, PTX, OP, REST) \
    static inline void raot_##NAME##COUNT##_##N(uint16_t *x, const uint16_t *by, int32_t step) \
    { \
        for (int32_t n = 0; n < (COUNT); n++) { \
            x[n] = raot_f32_to_##N(raot_##N##_to_f32(x[n]) OP raot_##N##_to_f32(by[n * step])); \
        } \
    }
#endif

/* clang-format on */

#if defined(__CUDA_ARCH__)
static inline void raot_load_word(uint32_t *to, const void *from)
{
    to[0] = __ldg(static_cast<const uint32_t *>(from));
}

static inline void raot_load_pair(uint32_t *to, const void *from)
{
    const uint2 both = __ldg(static_cast<const uint2 *>(from));

    to[0] = both.x;
    to[1] = both.y;
}

/* Elements 0, 2, 4, 6, 1, 3, 5, 7 of a word are 4 bits each, from the lowest ones on. A mask gives two
   of them in the lowest bits of two numbers, or 4 bits higher: these are multiplied by 1/16. */
static inline void raot_widen_nibbles(uint32_t *pairs, uint32_t word, int32_t zero)
{
    const uint32_t less = (uint32_t)(0x6400 + zero) * 0x10001u;
    const uint32_t high = (uint32_t)(0xd400 + 16 * zero) * 0x10001u;
    uint32_t own;

    asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(own) : "r"(word));
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pairs[0]) : "r"(own), "r"(less));
    asm("lop3.b32 %0, %1, 0x00f000f0, 0x64006400, 0xea;" : "=r"(own) : "r"(word));
    asm("fma.rn.f16x2 %0, %1, %2, %3;"
        : "=r"(pairs[1])
        : "r"(own), "r"(0x2c002c00u), "r"(high));
}
#endif

static inline void raot_widen8_u4(uint16_t *to, const uint8_t *from, int32_t zero)
{
#if defined(__CUDA_ARCH__)
    const uint32_t word = *reinterpret_cast<const uint32_t *>(from);

    raot_widen_nibbles(reinterpret_cast<uint32_t *>(to), word, zero);
    raot_widen_nibbles(reinterpret_cast<uint32_t *>(to) + 2, word >> 8, zero);
#else
    for (int32_t n = 0; n < 8; n++) {
        const uint32_t own = ((uint32_t)from[n % 2 * 2 + n / 4] >> (n / 2 % 2 * 4)) & 15u;
        to[n] = raot_f32_to_f16((float)((int32_t)own - zero));
    }
#endif
}

/* `part`: 0 for the first four elements of a word, 1 for the others. */
static inline void raot_widen4_u4(uint16_t *to, const uint8_t *from, int32_t zero, int32_t part)
{
#if defined(__CUDA_ARCH__)
    const uint32_t word = *reinterpret_cast<const uint32_t *>(from);

    raot_widen_nibbles(reinterpret_cast<uint32_t *>(to), word >> (8 * part), zero);
#else
    for (int32_t n = 0; n < 4; n++) {
        const uint32_t own = ((uint32_t)from[n % 2 * 2 + part] >> (n / 2 % 2 * 4)) & 15u;
        to[n] = raot_f32_to_f16((float)((int32_t)own - zero));
    }
#endif
}

static inline void raot_widen8_by_u4(uint16_t *to, const uint8_t *from, const int32_t *zero)
{
    raot_widen8_u4(to, from, zero[0]);
}

static inline void raot_widen4_by_u4(uint16_t *to, const uint8_t *from, const int32_t *zero,
                                     int32_t part)
{
    raot_widen4_u4(to, from, zero[0], part);
}

/* The same as bfloat16: 4 bits are the lowest ones of 128, and a multiplication by 1 and an addition
   are one instruction. */
#if defined(__CUDA_ARCH__)
static inline void raot_widen_nibbles_bf16(uint32_t *pairs, uint32_t word, int32_t zero)
{
    const uint32_t less = (uint32_t)(0xc300 + zero) * 0x10001u;

    for (int32_t n = 0; n < 2; n++) {
        uint32_t own;

        asm("lop3.b32 %0, %1, 0x000f000f, 0x43004300, 0xea;" : "=r"(own) : "r"(word >> (4 * n)));
        asm("fma.rn.bf16x2 %0, %1, %2, %3;"
            : "=r"(pairs[n])
            : "r"(own), "r"(0x3f803f80u), "r"(less));
    }
}
#endif

static inline void raot_widen8_u4_bf16(uint16_t *to, const uint8_t *from, int32_t zero)
{
#if defined(__CUDA_ARCH__)
    const uint32_t word = *reinterpret_cast<const uint32_t *>(from);

    raot_widen_nibbles_bf16(reinterpret_cast<uint32_t *>(to), word, zero);
    raot_widen_nibbles_bf16(reinterpret_cast<uint32_t *>(to) + 2, word >> 8, zero);
#else
    for (int32_t n = 0; n < 8; n++) {
        const uint32_t own = ((uint32_t)from[n % 2 * 2 + n / 4] >> (n / 2 % 2 * 4)) & 15u;
        to[n] = raot_f32_to_bf16((float)((int32_t)own - zero));
    }
#endif
}

static inline void raot_widen4_u4_bf16(uint16_t *to, const uint8_t *from, int32_t zero,
                                       int32_t part)
{
#if defined(__CUDA_ARCH__)
    const uint32_t word = *reinterpret_cast<const uint32_t *>(from);

    raot_widen_nibbles_bf16(reinterpret_cast<uint32_t *>(to), word >> (8 * part), zero);
#else
    for (int32_t n = 0; n < 4; n++) {
        const uint32_t own = ((uint32_t)from[n % 2 * 2 + part] >> (n / 2 % 2 * 4)) & 15u;
        to[n] = raot_f32_to_bf16((float)((int32_t)own - zero));
    }
#endif
}

static inline void raot_widen8_by_u4_bf16(uint16_t *to, const uint8_t *from, const int32_t *zero)
{
    raot_widen8_u4_bf16(to, from, zero[0]);
}

static inline void raot_widen4_by_u4_bf16(uint16_t *to, const uint8_t *from, const int32_t *zero,
                                          int32_t part)
{
    raot_widen4_u4_bf16(to, from, zero[0], part);
}

/* One access of 16 bytes of shared memory, which is aligned to them, or of 8 bytes. */
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

static inline void raot_put4_f16(uint16_t *to, const uint16_t *from)
{
#if defined(__CUDA_ARCH__)
    const uint32_t *const pairs = reinterpret_cast<const uint32_t *>(from);

    *reinterpret_cast<uint2 *>(to) = make_uint2(pairs[0], pairs[1]);
#else
    for (int32_t n = 0; n < 4; n++) {
        to[n] = from[n];
    }
#endif
}

static inline void raot_put8_bf16(uint16_t *to, const uint16_t *from)
{
    raot_put8_f16(to, from);
}

static inline void raot_put4_bf16(uint16_t *to, const uint16_t *from)
{
    raot_put4_f16(to, from);
}

RAOT_LOAD(8, i8, int8_t, 8, raot_load_pair)
RAOT_LOAD(8, u8, uint8_t, 8, raot_load_pair)
RAOT_LOAD(4, i8, int8_t, 4, raot_load_word)
RAOT_LOAD(4, u8, uint8_t, 4, raot_load_word)
RAOT_LOAD(8, u4, uint8_t, 4, raot_load_word)
RAOT_LOAD(4, f16, uint16_t, 4, raot_load_pair)
RAOT_WIDEN(8, i8, int8_t, 0x80808080u, 128)
RAOT_WIDEN(8, u8, uint8_t, 0u, 0)
RAOT_WIDEN(4, i8, int8_t, 0x80808080u, 128)
RAOT_WIDEN(4, u8, uint8_t, 0u, 0)
RAOT_WIDEN_BY(8, i8, int8_t)
RAOT_WIDEN_BY(8, u8, uint8_t)
RAOT_WIDEN_BY(4, i8, int8_t)
RAOT_WIDEN_BY(4, u8, uint8_t)
RAOT_EACH(8, subtract, f16, sub, -, "")
RAOT_EACH(8, multiply, f16, mul, *, "")
RAOT_EACH(4, subtract, f16, sub, -, "")
RAOT_EACH(4, multiply, f16, mul, *, "")
RAOT_EACH(8, multiply, bf16, fma, *, ", %2")
RAOT_EACH(4, multiply, bf16, fma, *, ", %2")

#endif
