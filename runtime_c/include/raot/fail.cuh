/* SPDX-License-Identifier: Apache-2.0 */
/* fail.cuh - the end of a run that failed, for CUDA devices. */
#ifndef RAOT_FAIL_CUH
#define RAOT_FAIL_CUH

#include "status.h"

/* Launches that follow leave at once. The thread that calls it ends; barriers and exchanges do not
   wait for it, and what others then compute is not used. */
static inline void raot_fail(int32_t *frame, enum raot_status status)
{
    frame[0] = status;
#if defined(RAOT_SHIM)
    raot_shim_leave();
#endif
}

/* 1 if the run has failed, also in a block of the same launch: threads of a block may differ. */
static inline int raot_failed(const int32_t *frame)
{
    const int failed = frame[0] != 0;

#if defined(RAOT_SHIM)
    if (failed) {
        raot_shim_leave();
    }
#endif
    return failed;
}

#endif
