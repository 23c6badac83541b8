/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions_mve.h - functions_f32.h for Cortex-M with Helium.
 *
 * Each function is the one of vector_functions.h with `_mve` instead of `f`, operation by
 * operation. Bounds are those of floats, and d of tanh has the bounded square: beyond 1 it is not
 * used, and fewer vectors are live.
 */
#ifndef RAOT_FUNCTIONS_MVE_H
#define RAOT_FUNCTIONS_MVE_H

#include <stdint.h>

#include "mve.h"
#include "vector_functions.h"

/* a / b, lane by lane: Helium has no division. */
static inline float32x4_t raot_divide_mve(float32x4_t a, float32x4_t b)
{
#if defined(__GNUC__) && !defined(__clang__)
    register float32x4_t quotient __asm("q0") = a;
    register float32x4_t divisor __asm("q1") = b;

    __asm("vdiv.f32 s0, s0, s4\n vdiv.f32 s1, s1, s5\n"
          " vdiv.f32 s2, s2, s6\n vdiv.f32 s3, s3, s7"
          : "+w"(quotient)
          : "w"(divisor));
    return quotient;
#else
    float above[4];
    float below[4];

    vst1q_f32(above, a);
    vst1q_f32(below, b);
    for (int32_t lane = 0; lane < 4; lane++) {
        above[lane] = above[lane] / below[lane];
    }
    return vld1q_f32(above);
#endif
}

/* All bits where x is NaN, elsewhere none. */
static inline uint32x4_t raot_nan_mve(float32x4_t x)
{
    const uint32x4_t magnitude = vshlq_n_u32(vreinterpretq_u32_f32(x), 1);

    return vqshlq_n_u32(vqsubq_n_u32(magnitude, 0xff000000u), 31);
}

/* `bits` are those of the result of a function of x: with the sign of x, and NaN where x is. */
static inline float32x4_t raot_odd_mve(uint32x4_t bits, float32x4_t x)
{
    const uint32x4_t sign = vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x80000000u));

    return vreinterpretq_f32_u32(vorrq_u32(vorrq_u32(bits, sign), raot_nan_mve(x)));
}

static inline float32x4_t raot_reduce_mve(float32x4_t x, uint32x4_t *shifted)
{
    const float32x4_t sum = vfmaq_n_f32(vdupq_n_f32(RAOT_SHIFTERF), x, 1.442695f);
    const float32x4_t n = vsubq_n_f32(sum, RAOT_SHIFTERF);

    *shifted = vreinterpretq_u32_f32(sum);
    return vfmaq_n_f32(vfmaq_n_f32(x, n, -0.693145751953125f), n, -1.428606765330187e-06f);
}

/* 2^n, where the exponent of 1 is `bias`. */
static inline float32x4_t raot_scale_mve(uint32x4_t shifted, uint32_t bias)
{
    return vreinterpretq_f32_u32(vaddq_n_u32(vshlq_n_u32(shifted, 23), bias << 23));
}

static inline float32x4_t raot_exp_tail_mve(float32x4_t r)
{
    float32x4_t p = vdupq_n_f32(0.00019960135f);

    p = vfmasq_n_f32(p, r, 0.0013933729f);
    p = vfmasq_n_f32(p, r, 0.00833319f);
    p = vfmasq_n_f32(p, r, 0.041666478f);
    p = vfmasq_n_f32(p, r, 0.16666667f);
    return vfmasq_n_f32(p, r, 0.5f);
}

static inline float32x4_t raot_exp_small_mve(float32x4_t r)
{
    const float32x4_t z = vmulq_f32(r, r);
    const float32x4_t low = vfmasq_n_f32(vdupq_n_f32(0.1666656f), r, 0.5f);
    const float32x4_t high = vfmasq_n_f32(vdupq_n_f32(0.00836417f), r, 0.041667186f);

    return vfmaq_f32(r, z, vfmaq_f32(low, z, vfmaq_n_f32(high, z, 0.001386701f)));
}

static inline float32x4_t raot_exp_near_mve(float32x4_t r)
{
    const float32x4_t high = vaddq_n_f32(r, 1.0f);
    const float32x4_t low = vsubq_f32(r, vsubq_n_f32(high, 1.0f));

    return vaddq_f32(high, vfmaq_f32(low, vmulq_f32(r, r), raot_exp_tail_mve(r)));
}

static inline float32x4_t raot_exp_normal_mve(float32x4_t x)
{
    uint32x4_t shifted;
    const float32x4_t r = raot_reduce_mve(x, &shifted);
    const float32x4_t scale = raot_scale_mve(shifted, 127u);

    return vfmaq_f32(scale, raot_exp_small_mve(r), scale);
}

static inline float32x4_t raot_exp_mve(float32x4_t x)
{
    const float32x4_t above = vmaxnmq_f32(x, vdupq_n_f32(-105.0f));
    const float32x4_t bounded = vminnmq_f32(above, vdupq_n_f32(105.0f));
    uint32x4_t shifted;
    const float32x4_t power = raot_exp_near_mve(raot_reduce_mve(bounded, &shifted));
    /* From the bits of 2^64 to those of 2^-64. */
    const uint32x4_t less = vshlq_n_u32(vshrq_n_u32(vreinterpretq_u32_f32(bounded), 31), 30);
    const uint32x4_t last = vsubq_u32(vdupq_n_u32(0x5f800000u), less);
    const uint32x4_t first = vaddq_u32(vaddq_n_u32(vshlq_n_u32(shifted, 23), 0x1f800000u), less);
    const float32x4_t product = vmulq_f32(power, vreinterpretq_f32_u32(first));
    const float32x4_t result = vmulq_f32(product, vreinterpretq_f32_u32(last));

    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(result), raot_nan_mve(x)));
}

static inline float32x4_t raot_expm1_mve(float32x4_t x)
{
    const float32x4_t above = vmaxnmq_f32(x, vdupq_n_f32(-18.0f));
    const float32x4_t bounded = vminnmq_f32(above, vdupq_n_f32(89.0f));
    uint32x4_t shifted;
    const float32x4_t r = raot_reduce_mve(bounded, &shifted);
    const float32x4_t half = raot_scale_mve(shifted, 126u);
    const float32x4_t base = vsubq_n_f32(half, 0.5f);
    const float32x4_t sum = vfmaq_f32(base, half, r);
    const float32x4_t rest = vfmaq_f32(vsubq_f32(base, sum), half, r);
    const float32x4_t square = vmulq_f32(half, vmulq_f32(r, r));
    const float32x4_t result = vaddq_f32(sum, vfmaq_f32(rest, square, raot_exp_tail_mve(r)));
    const mve_pred16_t small = vcmpltq_n_f32(vabsq_f32(x), 1e-10f);
    const uint32x4_t bits = vreinterpretq_u32_f32(vaddq_f32(result, result));

    return vpselq_f32(x, vreinterpretq_f32_u32(vorrq_u32(bits, raot_nan_mve(x))), small);
}

static inline float32x4_t raot_sigmoid_mve(float32x4_t x)
{
    const float one = 5.421010862427522e-20f; /* 2^-64 */
    const float32x4_t below = vminnmq_f32(x, vdupq_n_f32(30.0f));
    const float32x4_t bounded = vmaxnmq_f32(below, vdupq_n_f32(-105.0f));
    uint32x4_t shifted;
    const float32x4_t t = raot_exp_small_mve(raot_reduce_mve(vnegq_f32(bounded), &shifted));
    const float32x4_t scale = raot_scale_mve(shifted, 63u);
    const float32x4_t high = vaddq_n_f32(scale, one);
    const float32x4_t d = vfmaq_f32(high, t, scale);
    const float32x4_t low = vfmaq_f32(vsubq_f32(high, d), t, scale);
    const float32x4_t q = raot_divide_mve(vdupq_n_f32(1.0f), d);
    const float32x4_t rest = vfmsq_f32(vfmsq_f32(vdupq_n_f32(1.0f), d, q), low, q);
    const float32x4_t scaled = vmulq_n_f32(q, one);
    const float32x4_t result = vfmaq_f32(scaled, scaled, rest);

    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(result), raot_nan_mve(x)));
}

static inline float32x4_t raot_tanh_mve(float32x4_t x)
{
    const float32x4_t a = vabsq_f32(x);
    const float32x4_t one = vminnmq_f32(a, vdupq_n_f32(1.0f));
    const float32x4_t z = vmulq_f32(one, one);
    const float32x4_t t = vmulq_f32(a, a);
    float32x4_t even = vdupq_n_f32(0.0002954217f);
    float32x4_t odd = vdupq_n_f32(1.2727628e-07f);
    float32x4_t d = vdupq_n_f32(0.00022790907f);

    even = vfmasq_n_f32(even, t, 0.008078604f);
    even = vfmasq_n_f32(even, t, 0.06071721f);
    even = vfmasq_n_f32(even, t, 0.37913403f);
    even = vfmasq_n_f32(even, t, 0.70902723f);
    odd = vfmasq_n_f32(odd, t, -1.8620256e-05f);
    odd = vfmasq_n_f32(odd, t, -0.0016626628f);
    odd = vfmasq_n_f32(odd, t, -0.012336219f);
    odd = vfmasq_n_f32(odd, t, 0.082374364f);
    odd = vfmasq_n_f32(odd, t, 0.696506f);
    d = vfmasq_n_f32(d, z, -0.0056946286f);
    d = vfmasq_n_f32(d, z, 1.1999943f);
    d = vfmasq_n_f32(d, z, 3.0000005f);
    {
        const float32x4_t p = vfmaq_f32(even, odd, a);
        const float32x4_t h = vfmaq_f32(vdupq_n_f32(0.5f), p, p);
        const float32x4_t q = raot_divide_mve(z, vmaxnmq_f32(d, h));

        return raot_odd_mve(vreinterpretq_u32_f32(vfmsq_f32(one, one, q)), x);
    }
}

static inline float32x4_t raot_erf_mve(float32x4_t x)
{
    const float32x4_t a = vabsq_f32(x);
    const float32x4_t b = vminnmq_f32(a, vdupq_n_f32(3.93f));
    const float32x4_t z = vmulq_f32(x, x);
    float32x4_t p = vdupq_n_f32(7.919902e-05f);
    float32x4_t q = vdupq_n_f32(2.1697617e-05f);

    q = vfmasq_n_f32(q, b, -0.00044147269f);
    q = vfmasq_n_f32(q, b, 0.004205285f);
    q = vfmasq_n_f32(q, b, -0.02521034f);
    q = vfmasq_n_f32(q, b, 0.1084221f);
    q = vfmasq_n_f32(q, b, 0.6332164f);
    q = vfmasq_n_f32(q, b, 1.1295803f);
    q = vfmasq_n_f32(q, b, -0.00018846814f);
    q = raot_exp_normal_mve(vnegq_f32(q));
    q = raot_odd_mve(vreinterpretq_u32_f32(vabsq_f32(vsubq_f32(vdupq_n_f32(1.0f), q))), x);
    p = vfmasq_n_f32(p, z, -0.0008030654f);
    p = vfmasq_n_f32(p, z, 0.005190726f);
    p = vfmasq_n_f32(p, z, -0.026855124f);
    p = vfmasq_n_f32(p, z, 0.11283618f);
    p = vfmasq_n_f32(p, z, -0.3761263f);
    p = vfmasq_n_f32(p, z, 0.12837917f);
    p = vfmaq_f32(x, x, p);
    return vpselq_f32(p, q, vcmpltq_n_f32(a, 1.0f));
}

#define RAOT_EACH_MVE(FUNCTION, values, from, count)                                    \
    do {                                                                                \
        for (int32_t i = 0; i < (count); i += 4) {                                      \
            const mve_pred16_t lanes = vctp32q((uint32_t)((count)-i));                  \
            vst1q_p_f32((values) + i, FUNCTION(vld1q_z_f32((from) + i, lanes)), lanes); \
        }                                                                               \
    } while (0)
#define RAOT_EXP_F32(values, from, count) RAOT_EACH_MVE(raot_exp_mve, values, from, count)
#define RAOT_EXPM1_F32(values, from, count) RAOT_EACH_MVE(raot_expm1_mve, values, from, count)
#define RAOT_TANH_F32(values, from, count) RAOT_EACH_MVE(raot_tanh_mve, values, from, count)
#define RAOT_SIGMOID_F32(values, from, count) RAOT_EACH_MVE(raot_sigmoid_mve, values, from, count)
#define RAOT_ERF_F32(values, from, count) RAOT_EACH_MVE(raot_erf_mve, values, from, count)

#endif
