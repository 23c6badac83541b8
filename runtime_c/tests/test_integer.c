/* SPDX-License-Identifier: Apache-2.0 */
/* test_integer.c - integer helpers at the ends of their ranges. */
#include <limits.h>
#include <stdint.h>

#include "raot/check.h"
#include "raot/convert.h"
#include "raot/index.h"
#include "raot/integer.h"
#include "raot/status.h"

/* Stops at the first check that fails: its line is the exit code, modulo 251, plus 1. */
#define CHECK(condition)               \
    do {                               \
        if (!(condition)) {            \
            return __LINE__ % 251 + 1; \
        }                              \
    } while (0)

int main(void)
{
    /* Sums and products wrap. */
    CHECK(raot_add_i32(INT32_MAX, 1) == INT32_MIN);
    CHECK(raot_sub_i64(INT64_MIN, 1) == INT64_MAX);
    CHECK(raot_mul_i16(INT16_MAX, INT16_MAX) == 1);
    CHECK(raot_add_u8(250, 10) == 4);
    CHECK(raot_neg_i8(INT8_MIN) == INT8_MIN);
    CHECK(raot_abs_i32(INT32_MIN) == INT32_MIN);

    /* Division truncates, and no divisor is trouble. */
    CHECK(raot_div_i32(-7, 2) == -3);
    CHECK(raot_div_i32(7, 0) == 0);
    CHECK(raot_div_i32(INT32_MIN, -1) == INT32_MIN);
    CHECK(raot_mod_i32(-7, 3) == 2);
    CHECK(raot_mod_i32(7, -3) == -2);
    CHECK(raot_fmod_i32(-7, 3) == -1);
    CHECK(raot_mod_i64(INT64_MIN, -1) == 0);
    CHECK(raot_div_u64(UINT64_MAX, 0) == 0);

    /* Shifts by the width or more. */
    CHECK(raot_shl_u8(1, 8) == 0);
    CHECK(raot_shr_u32(UINT32_MAX, 32) == 0);
    CHECK(raot_shr_i8(-128, 9) == -1);
    CHECK(raot_shr_i32(64, 40) == 0);
    CHECK(raot_pow_i32(-3, 3) == -27);
    CHECK(raot_pow_u8(2, 8) == 0);

    /* Rounding down, for sizes. */
    CHECK(raot_floor_div(-7, 2) == -4);
    CHECK(raot_floor_mod(-7, 2) == 1);
    CHECK(RAOT_FLOOR_DIV(-7LL, 2LL) == -4);
    CHECK(RAOT_FLOOR_MOD(-7LL, 2LL) == 1);

    /* Float to integer: saturation, NaN, and the low bits. */
    CHECK(raot_f32_to_i8_sat(1e9f) == INT8_MAX);
    CHECK(raot_f32_to_u8_sat(-1.0f) == 0);
    CHECK(raot_f32_to_i32_sat(RAOT_NAN) == 0);
    CHECK(raot_f32_to_i64_sat(-RAOT_INFINITY) == INT64_MIN);
    CHECK(raot_f32_to_u64_sat(1e30f) == UINT64_MAX);
    CHECK(raot_f32_to_i8_wrap(300.0f) == 44);
    CHECK(raot_f64_to_i32_sat(-1e300) == INT32_MIN);

    /* Halves: rounding to even, overflow, subnormals, NaN. */
    CHECK(raot_f32_to_f16(65504.0f) == 0x7bff);
    CHECK(raot_f32_to_f16(65520.0f) == 0x7c00);
    CHECK(raot_f32_to_f16(5.9604645e-8f) == 1);
    CHECK(raot_f32_to_f16(1.00048828125f) == 0x3c00);
    CHECK(raot_isnanf(raot_f16_to_f32(0x7e01)));
    CHECK(raot_f32_to_bf16(1.00390625f) == 0x3f80);
    for (uint32_t bits = 0; bits < 65536u; bits++) {
        const float value = raot_f16_to_f32((uint16_t)bits);
        CHECK(raot_isnanf(value) || raot_f32_to_f16(value) == bits);
    }

    /* Blocks that touch do not overlap; no bytes never do. */
    {
        unsigned char memory[16];

        CHECK(!raot_overlaps(memory, 8, memory + 8, 8));
        CHECK(raot_overlaps(memory, 9, memory + 8, 8));
        CHECK(!raot_overlaps(memory, 0, memory, 16));
        CHECK(raot_is_aligned((void *)(uintptr_t)64, 16) &&
              !raot_is_aligned((void *)(uintptr_t)65, 2));
    }
    CHECK(RAOT_OK == 0);
    return 0;
}
