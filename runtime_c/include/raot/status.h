/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - the status codes of generated models. */
#ifndef RAOT_STATUS_H
#define RAOT_STATUS_H

enum raot_status {
    RAOT_OK = 0,
    RAOT_ERR_NULL = -1,     /* a required pointer is null */
    RAOT_ERR_ARENA = -2,    /* the arena is too small for these sizes */
    RAOT_ERR_ALIGN = -3,    /* arena, state, an input or an output is not aligned */
    RAOT_ERR_SIZE = -4,     /* a size is outside its bounds */
    RAOT_ERR_MISMATCH = -5, /* sizes violate a required relation */
    RAOT_ERR_INDEX = -6,    /* an index read from data is out of range */
    RAOT_ERR_CAPACITY = -7, /* a growing size exceeds its bound */
    RAOT_ERR_WEIGHTS = -8,  /* the weights are damaged or for other code */
    RAOT_ERR_OVERLAP = -9,  /* buffers overlap */
    RAOT_ERR_STATE = -10,   /* the state was not initialized */
    RAOT_ERR_EXTERN = -11,  /* a C function of the user failed */
    RAOT_ERR_LIMITS = -12,  /* a weights parameter is outside its limits */
    RAOT_ERR_DEVICE = -13   /* the GPU or its driver failed */
};

/* The name of a status, such as "RAOT_ERR_SIZE"; for messages and logs. */
static inline const char *raot_status_name(enum raot_status status)
{
    switch (status) {
    case RAOT_OK:
        return "RAOT_OK";
    case RAOT_ERR_NULL:
        return "RAOT_ERR_NULL";
    case RAOT_ERR_ARENA:
        return "RAOT_ERR_ARENA";
    case RAOT_ERR_ALIGN:
        return "RAOT_ERR_ALIGN";
    case RAOT_ERR_SIZE:
        return "RAOT_ERR_SIZE";
    case RAOT_ERR_MISMATCH:
        return "RAOT_ERR_MISMATCH";
    case RAOT_ERR_INDEX:
        return "RAOT_ERR_INDEX";
    case RAOT_ERR_CAPACITY:
        return "RAOT_ERR_CAPACITY";
    case RAOT_ERR_WEIGHTS:
        return "RAOT_ERR_WEIGHTS";
    case RAOT_ERR_OVERLAP:
        return "RAOT_ERR_OVERLAP";
    case RAOT_ERR_STATE:
        return "RAOT_ERR_STATE";
    case RAOT_ERR_EXTERN:
        return "RAOT_ERR_EXTERN";
    case RAOT_ERR_LIMITS:
        return "RAOT_ERR_LIMITS";
    case RAOT_ERR_DEVICE:
        return "RAOT_ERR_DEVICE";
    default:
        return "unknown status";
    }
}

#endif
