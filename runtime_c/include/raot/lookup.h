/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - functions of bytes by tables of all their values.
 *
 *     raot_lookup_rows    to[r * to_step + i] = table[x[r * row_step + i]]
 *
 * Entries are in the order of unsigned bytes. Rows of `to` may be those of `x`.
 */
#ifndef RAOT_LOOKUP_H
#define RAOT_LOOKUP_H

#include <stdint.h>

#include "mve.h"

#if defined(RAOT_MVE)
/* Sixteen loads of one byte each are one instruction. */
static inline void raot_lookup_row(uint8_t *to, const uint8_t *x, const uint8_t *table,
                                   int32_t count)
{
    for (int32_t blocks = count / 16; blocks > 0; blocks--) {
        vstrbq_u8(to, vldrbq_gather_offset_u8(table, vldrbq_u8(x)));
        to += 16;
        x += 16;
    }
    if (count % 16 != 0) {
        const mve_pred16_t some = vctp8q((uint32_t)count & 15u);

        vstrbq_p_u8(to, vldrbq_gather_offset_z_u8(table, vldrbq_z_u8(x, some), some), some);
    }
}
#else
static inline void raot_lookup_row(uint8_t *to, const uint8_t *x, const uint8_t *table,
                                   int32_t count)
{
    /*@ loop unroll 4096; */
    for (int32_t i = 0; i < count; i++) {
        to[i] = table[x[i]];
    }
}
#endif

__attribute__((noinline, unused)) static void raot_lookup_rows_u8(uint8_t *to, const uint8_t *x,
                                                                  const uint8_t *table,
                                                                  int32_t rows, int32_t count,
                                                                  int32_t row_step, int32_t to_step)
{
    /*@ loop unroll 4096; */
    for (int32_t r = 0; r < rows; r++) {
        raot_lookup_row(to + r * to_step, x + r * row_step, table, count);
    }
}

/* Signed bytes are looked up and stored like unsigned ones. */
#define raot_lookup_rows_s8(to, x, table, ...)                                           \
    raot_lookup_rows_u8((uint8_t *)(to), (const uint8_t *)(x), (const uint8_t *)(table), \
                        __VA_ARGS__)
#define raot_lookup_rows_u8_s8 raot_lookup_rows_s8
#define raot_lookup_rows_s8_u8 raot_lookup_rows_s8

#endif
