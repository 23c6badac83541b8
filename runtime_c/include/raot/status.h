/* status.h - what a call of a generated model can answer. */
#ifndef RAOT_STATUS_H
#define RAOT_STATUS_H

enum raot_status {
    RAOT_OK = 0,
    RAOT_ERR_NULL = -1,     /* a pointer that is needed is null */
    RAOT_ERR_ARENA = -2,    /* the arena is too small for these sizes */
    RAOT_ERR_ALIGN = -3,    /* arena or state is not aligned */
    RAOT_ERR_SIZE = -4,     /* a size is outside its bounds */
    RAOT_ERR_MISMATCH = -5, /* sizes that must agree do not */
    RAOT_ERR_INDEX = -6,    /* an index read from data is out of range */
    RAOT_ERR_CAPACITY = -7, /* a growing size passed its bound */
    RAOT_ERR_WEIGHTS = -8,  /* weights are wrong or damaged */
    RAOT_ERR_OVERLAP = -9,  /* buffers overlap */
    RAOT_ERR_STATE = -10    /* the state was not initialised */
};

#endif
