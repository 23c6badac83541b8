/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dsp.h - two 16-bit integers in a word, by intrinsics of Arm's 32-bit SIMD instructions.
 *
 * Functions exist where assembly.h defines RAOT_DSP. A word of four bytes extends to two words:
 * "even" from bytes 0 and 2, "odd" from bytes 1 and 3. Products are added to a sum, which wraps.
 */
#ifndef RAOT_DSP_H
#define RAOT_DSP_H

#include <stdint.h>

#include "assembly.h"
#include "copy.h"

#if defined(RAOT_DSP)
/* Loads four bytes from any address. */
static inline uint32_t raot_dsp_load(const void *from)
{
    uint32_t word;

    RAOT_COPY(&word, from, sizeof word);
    return word;
}

static inline int16x2_t raot_dsp_even_s8(uint32_t four)
{
    return __sxtb16((int8x4_t)four);
}

static inline int16x2_t raot_dsp_odd_s8(uint32_t four)
{
    return __sxtb16((int8x4_t)(four >> 8 | four << 24));
}

/* Clang's header declares signed types. */
static inline int16x2_t raot_dsp_even_u8(uint32_t four)
{
#if defined(__clang__)
    return __uxtb16((int8x4_t)four);
#else
    return (int16x2_t)__uxtb16((uint8x4_t)four);
#endif
}

static inline int16x2_t raot_dsp_odd_u8(uint32_t four)
{
    return raot_dsp_even_u8(four >> 8 | four << 24);
}

/* sum + a.low * b.low + a.high * b.high */
static inline int32_t raot_dsp_dot(int16x2_t a, int16x2_t b, int32_t sum)
{
    return __smlad(a, b, sum);
}
#endif

#endif
