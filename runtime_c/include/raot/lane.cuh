/* SPDX-License-Identifier: Apache-2.0 */
/* lane.cuh - the number of a thread in its warp, for CUDA devices. */
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

#endif
