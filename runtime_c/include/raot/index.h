/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - arithmetic of sizes and indices. */
#ifndef RAOT_INDEX_H
#define RAOT_INDEX_H

#include <stdint.h>

/* A compile-time error if the condition is false. */
#ifdef __cplusplus
#define RAOT_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define RAOT_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* For constant expressions; arguments are evaluated more than once. */
#define RAOT_MAX(a, b) ((a) > (b) ? (a) : (b))
#define RAOT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RAOT_FLOOR_DIV(a, b) ((a) >= 0 ? (a) / (b) : -((-(a) + (b)-1) / (b)))
#define RAOT_FLOOR_MOD(a, b) ((a)-RAOT_FLOOR_DIV(a, b) * (b))

static inline int32_t raot_max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline int32_t raot_min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* a / b rounded down. b is not 0. */
static inline int32_t raot_floor_div(int32_t a, int32_t b)
{
    const int32_t quotient = a / b;

    return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

/* The remainder of raot_floor_div: it has the sign of b. b is not 0. */
static inline int32_t raot_floor_mod(int32_t a, int32_t b)
{
    const int32_t rest = a % b;

    return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
}

#endif
