/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_bytes.cuh - products of matrices of bytes by a warp, with exact sums of 32 bits.
 *
 * A matrix is in registers of all lanes, in the layouts of mma.sync.m16n8k32 (PTX ISA 8.5,
 * 9.7.14.5.10); the pointers are those of each lane. Four bytes are a word, and the words of a
 * matrix lie as the pairs of mma.cuh do. Chips without such units exchange words, and multiply four
 * bytes at once from compute capability 6.1 on (dp4a: PTX ISA 8.5, 9.7.1.23).
 */
#ifndef RAOT_MMA_BYTES_CUH
#define RAOT_MMA_BYTES_CUH

#include "integer.h"
#include "lane.cuh"
#include "mma.cuh"

#if defined(__CUDA_ARCH__)
#define RAOT_DP4A (__CUDA_ARCH__ >= 610)
#else
#define RAOT_DP4A 0
#endif

/* Four bytes, which are aligned on a device. */
static inline void raot_copy_word(void *to, const void *from)
{
#if defined(__CUDA_ARCH__)
    *static_cast<uint32_t *>(to) = *static_cast<const uint32_t *>(from);
#else
    for (int32_t n = 0; n < 4; n++) {
        static_cast<uint8_t *>(to)[n] = static_cast<const uint8_t *>(from)[n];
    }
#endif
}

/* clang-format off */

#define RAOT_LOAD_BYTES(SIDE, N, T, ROW, COLUMN, AFTER_ROW) \
    static inline void raot_load_##SIDE##_##N(T *to, const T *from, int32_t pitch, \
                                              int32_t far, int32_t lane_row) \
    { \
        const int32_t lane = (int32_t)threadIdx.x % 32; \
        (void)lane_row; \
        if (RAOT_MMA) { \
            raot_load_matrices(to, from + (ROW) * pitch + 2 * (COLUMN), far); \
        } else { \
            for (int32_t n = 0; n < 4; n++) { \
                const int32_t row = lane / 4 + n % 2 * 8; \
                const int32_t k = lane % 4 * 4 + n / 2 * 16; \
                raot_copy_word(to + n % 2 * (AFTER_ROW) + n / 2 * (12 - (AFTER_ROW)), \
                               from + row * pitch + k + far); \
            } \
        } \
    }

/* Four bytes of a lane, the first one in the lowest bits. */
#if defined(__CUDA_ARCH__)
#define RAOT_WORD(X, N) (reinterpret_cast<const uint32_t *>(X)[(N) / 4])
#else
#define RAOT_WORD(X, N) \
    ((uint32_t)(uint8_t)(X)[N] | (uint32_t)(uint8_t)(X)[(N) + 1] << 8 | \
     (uint32_t)(uint8_t)(X)[(N) + 2] << 16 | (uint32_t)(uint8_t)(X)[(N) + 3] << 24)
#endif

/* Adds the products of four bytes, on chips that do so in one instruction. */
#if RAOT_DP4A
#define RAOT_DOT4(PL, PR, SUM, A, B) \
    asm("dp4a." RAOT_WIDE_##PL "." RAOT_WIDE_##PR " %0, %1, %2, %0;" : "+r"(SUM) : "r"(A), "r"(B));
#define RAOT_WIDE_s8 "s32"
#define RAOT_WIDE_u8 "u32"
#else
#define RAOT_DOT4(PL, PR, SUM, A, B)
#endif

#if RAOT_MMA
#define RAOT_MMA_BYTES(L, TL, PL, R, TR, PR) \
    static inline void raot_mma_m16n8k32_##L##_##R(int32_t *sums, const TL *left, \
                                                   const TR *right, int32_t sums_row, \
                                                   int32_t left_row, int32_t right_row) \
    { \
        const uint32_t *const a = reinterpret_cast<const uint32_t *>(left); \
        const uint32_t *const b = reinterpret_cast<const uint32_t *>(right); \
        asm("mma.sync.aligned.m16n8k32.row.col.s32." #PL "." #PR ".s32 {%0, %1, %2, %3}, " \
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
#else
/* As exchanges of registers. */
#define RAOT_MMA_BYTES(L, TL, PL, R, TR, PR) \
    static inline int32_t raot_dot4_##L##_##R(uint32_t a, uint32_t b, int32_t sum) \
    { \
        if (RAOT_DP4A) { \
            RAOT_DOT4(PL, PR, sum, a, b) \
        } else { \
            for (int32_t shift = 0; shift < 32; shift += 8) { \
                const int32_t product = (int32_t)(TL)(a >> shift) * (int32_t)(TR)(b >> shift); \
                sum = raot_add_i32(sum, product); \
            } \
        } \
        return sum; \
    } \
    static inline void raot_mma_m16n8k32_##L##_##R(int32_t *sums, const TL *left, \
                                                   const TR *right, int32_t sums_row, \
                                                   int32_t left_row, int32_t right_row) \
    { \
        (void)sums_row; \
        (void)left_row; \
        (void)right_row; \
        RAOT_MMA_WORDS(L, R) \
    }
#if defined(RAOT_SHIM_MATRICES)
#define RAOT_MMA_WORDS(L, R) \
        uint32_t a[4], b[2]; \
        for (int32_t n = 0; n < 4; n++) { \
            a[n] = RAOT_WORD(left, 4 * n); \
            b[n / 2] = RAOT_WORD(right, n / 2 * 4); \
        } \
        raot_shim_multiply( \
            sums, a, 4, b, 2, 1, 8, \
            [](int word) { return raot_shim_step{word % 4, word / 4 * 2, word / 4}; }, \
            raot_dot4_##L##_##R, __LINE__);
#else
#define RAOT_MMA_WORDS(L, R) \
        const int32_t lane = (int32_t)threadIdx.x % 32; \
        for (int32_t word = 0; word < 8; word++) { \
            uint32_t a[2], b[2]; \
            for (int32_t n = 0; n < 2; n++) { \
                a[n] = __shfl_sync(0xffffffffu, RAOT_WORD(left, n * 4 + word / 4 * 8), \
                                   lane / 4 * 4 + word % 4); \
                b[n] = __shfl_sync(0xffffffffu, RAOT_WORD(right, word / 4 * 4), \
                                   (lane % 4 * 2 + n) * 4 + word % 4); \
            } \
            for (int32_t n = 0; n < 4; n++) { \
                sums[n] = raot_dot4_##L##_##R(a[n / 2], b[n % 2], sums[n]); \
            } \
        }
#endif
#endif

/* The bytes of two lines: those of a word each. FIRST, SECOND: the words of the first line. */
#if RAOT_DP4A
#define RAOT_ADD_BYTES(SIDE, N, T, P, FIRST, SECOND, NEXT) \
    static inline void raot_add_##SIDE##_##N(int32_t *sums, const T *from, int32_t lane_row, \
                                             int32_t sums_row) \
    { \
        const uint32_t *const words = reinterpret_cast<const uint32_t *>(from); \
        for (int32_t n = 0; n < 2; n++) { \
            asm("dp4a." #P ".s32 %0, %1, %2, %0;" \
                : "+r"(sums[n]) : "r"(words[FIRST + n * NEXT]), "r"(0x01010101)); \
            asm("dp4a." #P ".s32 %0, %1, %2, %0;" \
                : "+r"(sums[n]) : "r"(words[SECOND + n * NEXT]), "r"(0x01010101)); \
        } \
    }
#else
#define RAOT_ADD_BYTES(SIDE, N, T, P, FIRST, SECOND, NEXT) \
    static inline void raot_add_##SIDE##_##N(int32_t *sums, const T *from, int32_t lane_row, \
                                             int32_t sums_row) \
    { \
        (void)lane_row; \
        (void)sums_row; \
        for (int32_t n = 0; n < 16; n++) { \
            const int32_t line = n / 4 % 4 == FIRST || n / 4 % 4 == SECOND ? 0 : 1; \
            sums[line] = raot_add_i32(sums[line], from[n]); \
        } \
    }
#endif

/* clang-format on */

/* The sums of two rows. */
static inline void raot_total_left_i32(int32_t *to, const int32_t *from, int32_t from_row,
                                       int32_t to_row)
{
    (void)from_row;
    (void)to_row;
    for (int32_t n = 0; n < 2; n++) {
        const int32_t two = raot_add_i32(from[n], __shfl_xor_sync(0xffffffffu, from[n], 1));

        to[n] = raot_add_i32(two, __shfl_xor_sync(0xffffffffu, two, 2));
    }
}

/* The sums of two columns of both matrices. */
static inline void raot_total_right_i32(int32_t *to, const int32_t *from, int32_t from_row,
                                        int32_t to_row)
{
    const int32_t lane = raot_lane();
    int32_t own[2];

    (void)to_row;
    raot_total_left_i32(own, from, from_row, 2);
    for (int32_t n = 0; n < 4; n++) {
        to[n] = __shfl_sync(0xffffffffu, own[n / 2], (lane % 4 * 2 + n % 2) * 4);
    }
}

#define RAOT_BYTES(N, T, P)                                                 \
    RAOT_LOAD_BYTES(left, N, T, lane % 16, RAOT_HALF(16), 4)                \
    RAOT_LOAD_BYTES(right, N, T, lane % 8 + RAOT_HALF(16), RAOT_HALF(8), 8) \
    RAOT_ADD_BYTES(left, N, T, P, 0, 2, 1)                                  \
    RAOT_ADD_BYTES(right, N, T, P, 0, 1, 2)                                 \
    RAOT_COPY_ASYNC(_##N, T, 16, cg)

RAOT_BYTES(i8, int8_t, s32)
RAOT_BYTES(u8, uint8_t, u32)
RAOT_MMA_BYTES(i8, int8_t, s8, i8, int8_t, s8)
RAOT_MMA_BYTES(i8, int8_t, s8, u8, uint8_t, u8)
RAOT_MMA_BYTES(u8, uint8_t, u8, i8, int8_t, s8)
RAOT_MMA_BYTES(u8, uint8_t, u8, u8, uint8_t, u8)

#endif
