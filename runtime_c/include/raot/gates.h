/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gates.h - sigmoid and tanh by a table, for the gates of quantized recurrent layers.
 *
 * The sigmoid is interpolated between multiples of 1/8 from -16 to 16. Values there are less by
 * h^2 / 16 times the second derivative, with h = 1/8, which halves the greatest error. Arguments
 * have 18 bits of fraction (tanh: 19), and NaN counts as 0. The error of raot_gate_sigmoidf is
 * below 1.2e-4, that of raot_gate_tanhf below 2.4e-4; they are 0.5 and 0 at 0, and within 0..1 and
 * -1..1.
 *
 * Steps of an argument are numbered from -32768 to 32767 in every two intervals, so a word of the
 * table is for the upper end of the first one, or for the lower end of the second one: in its upper
 * half the sigmoid less 0.5 in 16 bits of fraction, in the lower one the slope, in 32 bits of
 * fraction for a step. The word plus the product of slope and step has 32 bits of fraction, and the
 * slope at 0 too much. Words of arguments below 0 are the second half of the table.
 */
#ifndef RAOT_GATES_H
#define RAOT_GATES_H

#include <stdint.h>

#include "assembly.h"
#include "convert.h"
#include "ieee.h"

#if defined(RAOT_ASM_INLINE) && defined(RAOT_SAT) && defined(RAOT_DSP) && defined(__ARM_FP) && \
    (__ARM_FP & 4)
#define RAOT_GATE_VCVT 1
#endif

/* The slope at 0. */
#define RAOT_GATE_SLOPE 4093u

/* clang-format off */
static const uint32_t raot_gate_table[256] = {
    0x00000ffdu, 0x0fed0fddu, 0x0fed0f9eu, 0x1f5d0f43u, 0x1f5d0ecdu, 0x2de40e40u, 0x2de40da0u,
    0x3b2c0cf1u, 0x3b2c0c37u, 0x47030b76u, 0x47030ab2u, 0x515309edu, 0x5153092bu, 0x5a1f086eu,
    0x5a1f07b8u, 0x6181070bu, 0x61810667u, 0x679c05ceu, 0x679c053fu, 0x6c9804bbu, 0x6c980441u,
    0x70a103d1u, 0x70a1036bu, 0x73df030fu, 0x73df02bbu, 0x76740270u, 0x7674022bu, 0x788101eeu,
    0x788101b7u, 0x7a200186u, 0x7a20015au, 0x7b660133u, 0x7b660110u, 0x7c6700f1u, 0x7c6700d6u,
    0x7d3100bdu, 0x7d3100a7u, 0x7dce0094u, 0x7dce0083u, 0x7e4a0074u, 0x7e4a0066u, 0x7eaa005au,
    0x7eaa0050u, 0x7ef60047u, 0x7ef6003eu, 0x7f300037u, 0x7f300031u, 0x7f5e002bu, 0x7f5e0026u,
    0x7f820022u, 0x7f82001eu, 0x7f9e001au, 0x7f9e0017u, 0x7fb30014u, 0x7fb30012u, 0x7fc40010u,
    0x7fc4000eu, 0x7fd2000cu, 0x7fd2000bu, 0x7fdc000au, 0x7fdc0009u, 0x7fe40008u, 0x7fe40007u,
    0x7fea0006u, 0x7fea0005u, 0x7fef0005u, 0x7fef0004u, 0x7ff30004u, 0x7ff30003u, 0x7ff60003u,
    0x7ff60002u, 0x7ff80002u, 0x7ff80002u, 0x7ffa0002u, 0x7ffa0001u, 0x7ffb0001u, 0x7ffb0001u,
    0x7ffc0001u, 0x7ffc0001u, 0x7ffd0001u, 0x7ffd0001u, 0x7ffe0001u, 0x7ffe0001u, 0x7ffe0000u,
    0x7ffe0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
    0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
    0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
    0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
    0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
    0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
    0x7fff0000u, 0x7fff0000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u,
    0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u,
    0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u,
    0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u,
    0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u,
    0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u, 0x80010000u,
    0x80010000u, 0x80010000u, 0x80010000u, 0x80020000u, 0x80020000u, 0x80020001u, 0x80020001u,
    0x80030001u, 0x80030001u, 0x80040001u, 0x80040001u, 0x80050001u, 0x80050001u, 0x80060001u,
    0x80060002u, 0x80080002u, 0x80080002u, 0x800a0002u, 0x800a0003u, 0x800d0003u, 0x800d0004u,
    0x80110004u, 0x80110005u, 0x80160005u, 0x80160006u, 0x801c0007u, 0x801c0008u, 0x80240009u,
    0x8024000au, 0x802f000bu, 0x802f000cu, 0x803c000eu, 0x803c0010u, 0x804d0012u, 0x804d0014u,
    0x80620017u, 0x8062001au, 0x807e001eu, 0x807e0022u, 0x80a20026u, 0x80a2002bu, 0x80d00031u,
    0x80d00037u, 0x810b003eu, 0x810b0047u, 0x81560050u, 0x8156005au, 0x81b60066u, 0x81b60074u,
    0x82320083u, 0x82320094u, 0x82cf00a7u, 0x82cf00bdu, 0x839900d6u, 0x839900f1u, 0x849a0110u,
    0x849a0133u, 0x85e1015au, 0x85e10186u, 0x877f01b7u, 0x877f01eeu, 0x898c022bu, 0x898c0270u,
    0x8c2202bbu, 0x8c22030fu, 0x8f5f036bu, 0x8f5f03d1u, 0x93680441u, 0x936804bbu, 0x9864053fu,
    0x986405ceu, 0x9e7f0667u, 0x9e7f070bu, 0xa5e107b8u, 0xa5e1086eu, 0xaead092bu, 0xaead09edu,
    0xb8fd0ab2u, 0xb8fd0b76u, 0xc4d40c37u, 0xc4d40cf1u, 0xd21c0da0u, 0xd21c0e40u, 0xe0a30ecdu,
    0xe0a30f43u, 0xf0130f9eu, 0xf0130fddu, 0x00000ffdu,
};
/* clang-format on */

/* The sigmoid of `steps` times 2^-18, as the table gives it. */
static inline int32_t raot_gate_fixed(int32_t steps)
{
#if defined(RAOT_GATE_VCVT)
    const int32_t inside = RAOT_SSAT(steps, 23);
    const int32_t word = (int32_t)raot_gate_table[(uint32_t)inside >> 15 & 255u];

    return __smlabb(word, inside, word);
#else
    const int32_t inside = raot_clamp_i32(steps, -0x400000, 0x3fffff);
    const int32_t word = (int32_t)raot_gate_table[(uint32_t)inside >> 15 & 255u];

    return (int32_t)((uint32_t)word + (uint32_t)((int16_t)word * (int16_t)inside));
#endif
}

static inline float raot_gate_sigmoidf(float x)
{
    const float middle = 0.5f - (float)RAOT_GATE_SLOPE / 4294967296.0f;
#if defined(RAOT_GATE_VCVT)
    float result;

    __asm("vcvt.s32.f32 %0, %0, #18" : "+t"(x));
    result = raot_of_bitsf((uint32_t)raot_gate_fixed((int32_t)raot_bitsf(x)));
    __asm("vcvt.f32.s32 %0, %0, #32" : "+t"(result));
    return result + middle;
#else
    return (float)raot_gate_fixed(raot_f32_to_i32_sat(x * 262144.0f)) / 4294967296.0f + middle;
#endif
}

static inline float raot_gate_tanhf(float x)
{
#if defined(RAOT_GATE_VCVT)
    float result;

    __asm("vcvt.s32.f32 %0, %0, #19" : "+t"(x));
    result = raot_of_bitsf((uint32_t)raot_gate_fixed((int32_t)raot_bitsf(x)) - RAOT_GATE_SLOPE);
    __asm("vcvt.f32.s32 %0, %0, #31" : "+t"(result));
    return result;
#else
    const uint32_t fixed = (uint32_t)raot_gate_fixed(raot_f32_to_i32_sat(x * 524288.0f));

    return (float)(int32_t)(fixed - RAOT_GATE_SLOPE) / 2147483648.0f;
#endif
}

#endif
