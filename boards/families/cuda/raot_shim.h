/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_shim.h - the words of CUDA C++ that printed kernels use, for a C++ compiler of the host.
 *
 * Included before a .cu text. RAOT_SHIM_KERNEL(name, threads, shared_bytes) behind it
 * registers a kernel.
 * A barrier or an exchange is known by its line, since all threads have to reach the same one.
 */
#ifndef RAOT_SHIM_H
#define RAOT_SHIM_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "raot_shim_host.h"

/* Headers of micro-kernels ask for it. */
#define RAOT_SHIM

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
/* One block runs at a time, so that one copy is enough. The section is filled before each block. */
#define __shared__ static __attribute__((section("raot_shared")))

struct raot_shim_dim {
    unsigned x, y, z;
};

extern raot_shim_dim threadIdx, blockIdx, blockDim, gridDim;

/* What one thread gives to the others of its warp. */
struct alignas(16) raot_shim_given {
    unsigned char bytes[64];
};

/* Waits for all threads of the block. */
void raot_shim_block(int line);

/* Waits for all lanes of the warp. Returns what each of them gave; it lasts until the next wait of
   this thread. */
const raot_shim_given *raot_shim_warp(unsigned mask, const void *given, size_t bytes, int line);

/* A copy of `count` of so many bytes, zeros behind them, that is made where its thread waits for it: who
   reads it earlier finds what was there before. */
void raot_shim_copy_later(void *to, const void *from, int32_t count, int32_t bytes);
void raot_shim_finish_copies(void);

/* Copies so far are of one group; waits for all groups, or for all but the last one. */
void raot_shim_end_copies(void);
void raot_shim_finish_ended_copies(void);
void raot_shim_finish_older_copies(void);

/* The thread ends soon, and no other waits for it. */
void raot_shim_leave(void);

#define __syncthreads() raot_shim_block(__LINE__)
#define __syncwarp() ((void)raot_shim_warp(0xffffffffu, nullptr, 0, __LINE__))
#define __shfl_sync(mask, value, lane) \
    raot_shim_exchange(mask, value, (unsigned)(lane) % 32u, __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
    raot_shim_exchange(mask, value, (threadIdx.x % 32u) ^ (unsigned)(bits), __LINE__)
#define __shfl_down_sync(mask, value, steps) \
    raot_shim_exchange(mask, value, raot_shim_lane((int)(steps)), __LINE__)
#define __shfl_up_sync(mask, value, steps) \
    raot_shim_exchange(mask, value, raot_shim_lane(-(int)(steps)), __LINE__)

/* The lane that is `steps` away; the own lane where the warp has none there. */
inline unsigned raot_shim_lane(int steps)
{
    const int lane = (int)(threadIdx.x % 32u) + steps;

    return lane < 0 || lane > 31 ? threadIdx.x % 32u : (unsigned)lane;
}

template <class T> T raot_shim_exchange(unsigned mask, T value, unsigned lane, int line)
{
    const raot_shim_given *const all = raot_shim_warp(mask, &value, sizeof value, line);
    T other;

    std::memcpy(&other, all[lane].bytes, sizeof other);
    return other;
}

/* A bit for each lane whose predicate is not 0. */
#define __ballot_sync(mask, predicate) raot_shim_ballot(mask, (predicate) != 0, __LINE__)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0u)
#define __all_sync(mask, predicate) (__ballot_sync(mask, predicate) == 0xffffffffu)

inline unsigned raot_shim_ballot(unsigned mask, bool predicate, int line)
{
    const raot_shim_given *const all = raot_shim_warp(mask, &predicate, sizeof predicate, line);
    unsigned bits = 0u;

    for (unsigned lane = 0u; lane < 32u; lane++) {
        bits |= (all[lane].bytes[0] != 0 ? 1u : 0u) << lane;
    }
    return bits;
}

/* Matrices of a warp, all registers in one exchange: threads are switched less often than where each
   value is exchanged, as chips without matrix units do. RAOT_EXCHANGES keeps these exchanges. */
#if !defined(RAOT_EXCHANGES)
#define RAOT_SHIM_MATRICES
#endif

/* Which lane of four has the factors of a step, and at which places of its registers. */
struct raot_shim_step {
    int lane, row, column;
};

/* Adds the products of `steps` steps to four sums of a lane. `next`: how far the factor of the second
   row is behind that of the first one. */
template <class T, class Sum, class Step, class Add>
void raot_shim_multiply(Sum *sums, const T *left, int lefts, const T *right, int rights, int next,
                        int steps, Step step_of, Add add, int line)
{
    const int lane = (int)(threadIdx.x % 32u);
    T own[64 / sizeof(T)] = {};

    std::memcpy(own, left, sizeof(T) * (size_t)lefts);
    std::memcpy(own + lefts, right, sizeof(T) * (size_t)rights);

    const raot_shim_given *const all = raot_shim_warp(0xffffffffu, own, sizeof own, line);

    for (int k = 0; k < steps; k++) {
        const raot_shim_step at = step_of(k);
        const T *const rows = reinterpret_cast<const T *>(all[lane / 4 * 4 + at.lane].bytes);

        for (int n = 0; n < 4; n++) {
            const int column = (lane % 4 * 2 + n % 2) * 4 + at.lane;
            const T *const columns = reinterpret_cast<const T *>(all[column].bytes);

            sums[n] = add(rows[at.row + n / 2 * next], columns[lefts + at.column], sums[n]);
        }
    }
}

/* Arithmetic that is rounded once and never contracted: the host is built with
   -ffp-contract=off. */
inline float __fmul_rn(float a, float b)
{
    return a * b;
}

inline float __fadd_rn(float a, float b)
{
    return a + b;
}

inline float __fmaf_rn(float a, float b, float c)
{
    return std::fmaf(a, b, c);
}

inline double __dmul_rn(double a, double b)
{
    return a * b;
}

inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;

    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float __uint_as_float(uint32_t bits)
{
    float x;

    std::memcpy(&x, &bits, sizeof x);
    return x;
}

/* The sum of four products of signed bytes and a number. */
inline int __dp4a(int a, int b, int sum)
{
    for (int shift = 0; shift < 32; shift += 8) {
        sum += (int)(int8_t)(a >> shift) * (int)(int8_t)(b >> shift);
    }
    return sum;
}

template <class T> T __ldg(const T *from)
{
    return *from;
}

/* Types of 8 and 16 bytes, whose alignment is their size. */
#define RAOT_SHIM_VECTORS(T, name)        \
    struct alignas(2 * sizeof(T)) name##2 \
    {                                     \
        T x, y;                           \
    };                                    \
    struct alignas(4 * sizeof(T)) name##4 \
    {                                     \
        T x, y, z, w;                     \
    };

RAOT_SHIM_VECTORS(float, float)
RAOT_SHIM_VECTORS(int, int)
RAOT_SHIM_VECTORS(unsigned, uint)

inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

/* A kernel with its parameters. */
struct raot_shim_function {
    const char *name;
    int32_t threads;
    int32_t shared_bytes; /* that a launch asks for */
    int32_t count;
    const size_t *bytes;
    void (*call)(void (*code)(), void *const *parameters);
    void (*code)();
    raot_shim_function *next;
};

void raot_shim_register(raot_shim_function *function);

template <class... Types> struct raot_shim_kernel {
    raot_shim_function function;

    raot_shim_kernel(const char *name, int32_t threads, int32_t shared_bytes,
                     void (*code)(Types...))
    {
        static const size_t bytes[sizeof...(Types) + 1] = {sizeof(Types)..., 0};

        function = {name,
                    threads,
                    shared_bytes,
                    (int32_t)sizeof...(Types),
                    bytes,
                    call,
                    reinterpret_cast<void (*)()>(code),
                    nullptr};
        raot_shim_register(&function);
    }

    static void call(void (*code)(), void *const *parameters)
    {
        apply(reinterpret_cast<void (*)(Types...)>(code), parameters,
              std::index_sequence_for<Types...>());
    }

    template <size_t... Positions>
    static void apply(void (*code)(Types...), void *const *parameters,
                      std::index_sequence<Positions...>)
    {
        (void)parameters;
        code(*static_cast<Types *>(parameters[Positions])...);
    }
};

#define RAOT_SHIM_KERNEL(name, threads, shared_bytes) \
    static raot_shim_kernel raot_shim_of_##name(#name, threads, shared_bytes, name);

#endif
