/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma.cuh - products of matrices of half-precision values by a warp, and copies to shared memory
 * that a thread does not wait for.
 *
 * A matrix is in registers of all lanes, in the layouts of mma.sync.m16n8k8 and m16n8k16
 * (PTX ISA 8.5, 9.7.14.5.7 and 9.7.14.5.8); the pointers are those of each lane. Chips before compute capability 8.0, and
 * emulations of a device, exchange registers instead.
 */
#ifndef RAOT_MMA_CUH
#define RAOT_MMA_CUH

#include "convert.h"

#if defined(__CUDA_ARCH__)
#define RAOT_MMA (__CUDA_ARCH__ >= 800)
#else
#define RAOT_MMA 0
#endif

#if RAOT_MMA
/* An address in shared memory, so many bytes behind another one, which compilers compute once. So
   numbers are parts of instructions, and not in registers. */
static inline uint32_t raot_shared_address(const void *at, int32_t behind)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(at);

    asm("" : "+r"(address));
    return address + (uint32_t)behind;
}
#endif

/* Four matrices of eight by eight; each lane gives the address of a row, which is so many bytes
   behind `row`. */
static inline void raot_load_matrices(void *to, const void *row, int32_t behind)
{
#if RAOT_MMA
    uint32_t *const r = static_cast<uint32_t *>(to);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(raot_shared_address(row, behind))
                 : "memory");
#else
    (void)to;
    (void)row;
    (void)behind;
#endif
}

/* As raot_load_matrices, each matrix with rows and columns exchanged. */
static inline void raot_load_transposed(uint16_t *to, const uint16_t *row, int32_t behind)
{
#if RAOT_MMA
    uint32_t *const r = reinterpret_cast<uint32_t *>(to);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(raot_shared_address(row, behind))
                 : "memory");
#else
    (void)to;
    (void)row;
    (void)behind;
#endif
}

/* Four integers in shared memory, whose address is aligned to 16 bytes, so many elements behind
   `from`. */
static inline void raot_load_shared_i32(int32_t *to, const int32_t *from, int32_t far)
{
#if RAOT_MMA
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(raot_shared_address(from, far * 4))
                 : "memory");
#else
    for (int32_t i = 0; i < 4; i++) {
        to[i] = from[far + i];
    }
#endif
}

/* The elements of a lane, where a row and a step of the matrix are `row` and `step` elements
   apart. `after_row`: how far the element eight rows on is behind in its registers. */
static inline void raot_load_elements(uint16_t *to, const uint16_t *from, int32_t row, int32_t step,
                                      int32_t after_row)
{
    const int32_t lane = (int32_t)threadIdx.x % 32;

    for (int32_t n = 0; n < 8; n++) {
        const int32_t r = lane / 4 + n / 2 % 2 * 8;
        const int32_t k = lane % 4 * 2 + n % 2 + n / 4 * 8;

        to[n % 2 + n / 2 % 2 * after_row + n / 4 * (6 - after_row)] = from[r * row + k * step];
    }
}

/* clang-format off */

#define RAOT_LOAD_MATRIX(N, FORM, ROW, COLUMN, LINE, STEP, AFTER_ROW) \
    static inline void raot_load_##N(uint16_t *to, const uint16_t *from, int32_t pitch, \
                                     int32_t far, int32_t lane_row) \
    { \
        (void)lane_row; \
        if (RAOT_MMA) { \
            const int32_t lane = (int32_t)threadIdx.x % 32; \
            raot_load_##FORM(to, from + (ROW) * pitch + (COLUMN), far * 2); \
        } else { \
            raot_load_elements(to, from + far, LINE, STEP, AFTER_ROW); \
        } \
    }

#define RAOT_HALF(UNIT) (lane / (UNIT) % 2 * 8)

#define RAOT_LOAD_MATRIX_OF(T) \
    RAOT_LOAD_MATRIX(left_##T, matrices, lane % 16, RAOT_HALF(16), pitch, 1, 2) \
    RAOT_LOAD_MATRIX(left_steps_##T, transposed, lane % 8 + RAOT_HALF(16), RAOT_HALF(8), \
                     1, pitch, 2) \
    RAOT_LOAD_MATRIX(right_##T, matrices, lane % 8 + RAOT_HALF(16), RAOT_HALF(8), pitch, 1, 4) \
    RAOT_LOAD_MATRIX(right_steps_##T, transposed, lane % 16, RAOT_HALF(16), 1, pitch, 4)

/* As exchanges of registers: exact products, one rounding per step. */
#if defined(RAOT_SHIM_MATRICES)
#define RAOT_MMA_EXCHANGED(T) \
    static inline void raot_mma_exchanged_##T(float *sums, const uint16_t *left, \
                                              const uint16_t *right, int32_t steps) \
    { \
        float a[8], b[4]; \
        for (int32_t n = 0; n < steps / 2; n++) { \
            a[n] = raot_##T##_to_f32(left[n]); \
            b[n / 2] = raot_##T##_to_f32(right[n / 2]); \
        } \
        raot_shim_multiply( \
            sums, a, steps / 2, b, steps / 4, 2, steps, \
            [](int k) { return raot_shim_step{k % 8 / 2, k % 2 + k / 8 * 4, k % 2 + k / 8 * 2}; }, \
            __fmaf_rn, __LINE__); \
    }
#else
#define RAOT_MMA_EXCHANGED(T) \
    static inline void raot_mma_exchanged_##T(float *sums, const uint16_t *left, \
                                              const uint16_t *right, int32_t steps) \
    { \
        const int32_t lane = (int32_t)threadIdx.x % 32; \
        for (int32_t k = 0; k < steps; k++) { \
            float a[2], b[2]; \
            for (int32_t n = 0; n < 2; n++) { \
                const int left_own = left[k % 2 + n * 2 + k / 8 * 4]; \
                const int right_own = right[k % 2 + k / 8 * 2]; \
                const int row = lane / 4, column = lane % 4 * 2 + n, step = k % 8 / 2; \
                a[n] = raot_##T##_to_f32( \
                    (uint16_t)__shfl_sync(0xffffffffu, left_own, row * 4 + step)); \
                b[n] = raot_##T##_to_f32( \
                    (uint16_t)__shfl_sync(0xffffffffu, right_own, column * 4 + step)); \
            } \
            for (int32_t n = 0; n < 4; n++) { \
                sums[n] = __fmaf_rn(a[n / 2], b[n % 2], sums[n]); \
            } \
        } \
    }
#endif

#if RAOT_MMA
#define RAOT_MMA_OF(T) \
    static inline void raot_mma_m16n8k16_##T(float *sums, const uint16_t *left, \
                                             const uint16_t *right, int32_t sums_row, \
                                             int32_t left_row, int32_t right_row) \
    { \
        const uint32_t *const a = reinterpret_cast<const uint32_t *>(left); \
        const uint32_t *const b = reinterpret_cast<const uint32_t *>(right); \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T ".f32 {%0, %1, %2, %3}, " \
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    } \
    static inline void raot_mma_m16n8k8_##T(float *sums, const uint16_t *left, \
                                            const uint16_t *right, int32_t sums_row, \
                                            int32_t left_row, int32_t right_row) \
    { \
        const uint32_t *const a = reinterpret_cast<const uint32_t *>(left); \
        const uint32_t *const b = reinterpret_cast<const uint32_t *>(right); \
        asm("mma.sync.aligned.m16n8k8.row.col.f32." #T "." #T ".f32 {%0, %1, %2, %3}, " \
            "{%4, %5}, {%6}, {%0, %1, %2, %3};" \
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(b[0])); \
    }
#else
#define RAOT_MMA_EXCHANGING(T, STEPS) \
    static inline void raot_mma_m16n8k##STEPS##_##T(float *sums, const uint16_t *left, \
                                                    const uint16_t *right, int32_t sums_row, \
                                                    int32_t left_row, int32_t right_row) \
    { \
        (void)sums_row; \
        (void)left_row; \
        (void)right_row; \
        raot_mma_exchanged_##T(sums, left, right, STEPS); \
    }
#define RAOT_MMA_OF(T) \
    RAOT_MMA_EXCHANGED(T) \
    RAOT_MMA_EXCHANGING(T, 8) \
    RAOT_MMA_EXCHANGING(T, 16)
#endif

/* Copies `count` elements to shared memory, zeros behind them: BYTES in all, to which both addresses
   are aligned. What was copied is there behind raot_wait_copies and a barrier. Vectors of 16 bytes
   pass by the cache of a multiprocessor. `ahead` + `part` * `apart` + `near`: how far the elements
   are behind `from`; `far`: how far their place is behind `to`. Compilers add `ahead` to an address
   once, multiply `part` and add the product by one instruction, and make `near` and `far`, which are
   numbers, parts of instructions. */
#if RAOT_MMA
#define RAOT_COPY_ASYNC(N, T, BYTES, CACHE) \
    static inline void raot_copy_async##N(T *to, const T *from, int32_t count, int32_t ahead, \
                                          int32_t part, int32_t apart, int32_t near, int32_t far) \
    { \
        const int32_t size = (int32_t)sizeof(T); \
        const T *at; \
        asm("{ .reg .s64 a; mul.wide.s32 a, %1, %3; add.s64 %0, %2, a; }" \
            : "=l"(at) \
            : "r"(ahead), "l"(from), "n"(sizeof(T))); \
        asm("{ .reg .u64 a; mul.wide.u32 a, %1, %2; add.u64 %0, %0, a; }" \
            : "+l"(at) \
            : "r"(part), "r"((uint32_t)apart * (uint32_t)sizeof(T))); \
        asm volatile("cp.async." #CACHE ".shared.global [%0], [%1], " #BYTES ", %2;" \
                     : \
                     : "r"(raot_shared_address(to, far * size)), "l"(at + near), \
                       "r"(count * size) \
                     : "memory"); \
    }
#else
#define RAOT_COPY_ASYNC(N, T, BYTES, CACHE) \
    static inline void raot_copy_async##N(T *to, const T *from, int32_t count, int32_t ahead, \
                                          int32_t part, int32_t apart, int32_t near, int32_t far) \
    { \
        raot_copy_later(to + far, from + ahead + (int64_t)part * apart + near, \
                        count * (int32_t)sizeof(T), BYTES); \
    }
#endif

/* clang-format on */

/* Where threads wait for a copy. */
static inline void raot_copy_later(void *to, const void *from, int32_t count, int32_t bytes)
{
#if defined(RAOT_SHIM)
    raot_shim_copy_later(to, from, count, bytes);
#else
    if (bytes == 16 && count == 16) {
        *static_cast<uint4 *>(to) = *static_cast<const uint4 *>(from);
        return;
    }
    for (int32_t n = 0; n < bytes; n++) {
        static_cast<uint8_t *>(to)[n] = n < count ? static_cast<const uint8_t *>(from)[n] : 0u;
    }
#endif
}

static inline void raot_wait_copies(void)
{
#if RAOT_MMA
    asm volatile("cp.async.wait_all;" : : : "memory");
#elif defined(RAOT_SHIM)
    raot_shim_finish_copies();
#endif
}

/* The copies of this thread so far, and behind the last call, are one group. */
static inline void raot_end_copies(void)
{
#if RAOT_MMA
    asm volatile("cp.async.commit_group;" : : : "memory");
#elif defined(RAOT_SHIM)
    raot_shim_end_copies();
#endif
}

/* Waits for the copies of all groups, which takes an instruction less where nothing was copied since
   the last one ended. */
static inline void raot_wait_ended_copies(void)
{
#if RAOT_MMA
    asm volatile("cp.async.wait_group 0;" : : : "memory");
#elif defined(RAOT_SHIM)
    raot_shim_finish_ended_copies();
#endif
}

/* Waits for the copies of all groups but the last one. */
static inline void raot_wait_older_copies(void)
{
#if RAOT_MMA
    asm volatile("cp.async.wait_group 1;" : : : "memory");
#elif defined(RAOT_SHIM)
    raot_shim_finish_older_copies();
#endif
}

RAOT_LOAD_MATRIX_OF(f16)
RAOT_LOAD_MATRIX_OF(bf16)
RAOT_MMA_OF(f16)
RAOT_MMA_OF(bf16)
RAOT_COPY_ASYNC(_f16, uint16_t, 16, cg)
RAOT_COPY_ASYNC(_bf16, uint16_t, 16, cg)
RAOT_COPY_ASYNC(4_f16, uint16_t, 8, ca)
RAOT_COPY_ASYNC(4_bf16, uint16_t, 8, ca)
RAOT_COPY_ASYNC(2_f16, uint16_t, 4, ca)
RAOT_COPY_ASYNC(2_bf16, uint16_t, 4, ca)
RAOT_COPY_ASYNC(1_f32, float, 4, ca)

#endif
