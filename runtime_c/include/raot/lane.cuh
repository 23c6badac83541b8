/* SPDX-License-Identifier: Apache-2.0 */
/* lane.cuh - the numbers of a thread in its warp, of the warp and of the block, and the shared memory
   that a launch asks for, for CUDA devices. */
#ifndef RAOT_LANE_CUH
#define RAOT_LANE_CUH

#include <stdint.h>

/* As threadIdx.x % 32. Compilers do not know that it is the same, so that no register holds it
   during a loop that does not need it. */
static inline int32_t raot_lane(void)
{
#if defined(__CUDA_ARCH__)
    int32_t lane;

    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
#else
    return (int32_t)threadIdx.x % 32;
#endif
}

/* As threadIdx.x / 32, and not known to be the same. */
static inline int32_t raot_warp(void)
{
#if defined(__CUDA_ARCH__)
    uint32_t thread;

    asm("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return (int32_t)((thread - (uint32_t)raot_lane()) / 32u);
#else
    return (int32_t)threadIdx.x / 32;
#endif
}

/* As blockIdx.x, and not known to be the same. */
static inline int32_t raot_block(void)
{
#if defined(__CUDA_ARCH__)
    int32_t block;

    asm("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
#else
    return (int32_t)blockIdx.x;
#endif
}

/* As `size`, and not known to be the same: nothing that is computed from it is kept from before. */
static inline int32_t raot_size(int32_t size)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(size));
#endif
    return size;
}

/* Shared memory of a block, of which a launch asks for so many bytes: more than arrays may have. */
#if defined(RAOT_SHIM)
#define RAOT_DYNAMIC_SHARED(name, bytes) __shared__ __align__(16) unsigned char name[bytes]
#else
#define RAOT_DYNAMIC_SHARED(name, bytes) extern __shared__ __align__(16) unsigned char name[]
#endif

#endif
