/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions_x86.h - functions_f32.h for hosts with AVX2 or AVX-512.
 *
 * Each function is the one of vector_functions.h, operation by operation, so an element has the
 * bits of a single call. Four vectors are computed at once, so that each operation stands next to
 * independent ones and a constant is read once for four. Long chains are cut into two loops over
 * a block: the registers of a processor hold the results of few iterations at a time. Bounds are
 * minima and maxima of floats, which leave the units that multiply alone.
 */
#ifndef RAOT_FUNCTIONS_X86_H
#define RAOT_FUNCTIONS_X86_H

#include <immintrin.h>
#include <stdint.h>

#include "copy.h"
#include "function.h"
#include "vector_functions.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define RAOT_FLOATS 16
#define RAOT_X86(operation) _mm512_##operation
#define RAOT_X86_BITS(x) _mm512_castps_si512(x)
#define RAOT_X86_FLOATS(x) _mm512_castsi512_ps(x)
#define RAOT_X86_REGISTER "+v"
typedef __m512 raot_floats;
#else
#define RAOT_FLOATS 8
#define RAOT_X86(operation) _mm256_##operation
#define RAOT_X86_BITS(x) _mm256_castps_si256(x)
#define RAOT_X86_FLOATS(x) _mm256_castsi256_ps(x)
#define RAOT_X86_REGISTER "+x"
typedef __m256 raot_floats;
#endif

/* Vectors that are computed at once, their elements, and those of a block. */
#define RAOT_AT_ONCE 4
#define RAOT_GROUP (RAOT_AT_ONCE * RAOT_FLOATS)
#define RAOT_BLOCK (4 * RAOT_GROUP)

#define RAOT_EACH(statement)                     \
    for (int32_t k = 0; k < RAOT_AT_ONCE; k++) { \
        statement;                               \
    }
#define RAOT_LOAD_X86(x, from) RAOT_EACH(x[k] = RAOT_X86(loadu_ps)((from) + k * RAOT_FLOATS))
#define RAOT_STORE_X86(to, x) RAOT_EACH(RAOT_X86(storeu_ps)((to) + k * RAOT_FLOATS, x[k]))

/* In a register: compilers would read it from memory for each use. */
RAOT_INLINE static inline raot_floats raot_all_x86(float value)
{
    raot_floats all = RAOT_X86(set1_ps)(value);

    __asm__ volatile("" : RAOT_X86_REGISTER(all));
    return all;
}

/* p = p * x + c */
RAOT_INLINE static inline void raot_step_x86(raot_floats *p, const raot_floats *x, float c)
{
    const raot_floats all = raot_all_x86(c);

    RAOT_EACH(p[k] = RAOT_X86(fmadd_ps)(p[k], x[k], all))
}

/* p = c1 * x + c0 */
RAOT_INLINE static inline void raot_line_x86(raot_floats *p, float c1, const raot_floats *x,
                                             float c0)
{
    const raot_floats slope = raot_all_x86(c1);
    const raot_floats all = raot_all_x86(c0);

    RAOT_EACH(p[k] = RAOT_X86(fmadd_ps)(slope, x[k], all))
}

/* Of two numbers, one of which is NaN, these instructions give the second: x. */
RAOT_INLINE static inline void raot_at_most_x86(raot_floats *x, float bound)
{
    const raot_floats all = raot_all_x86(bound);

    RAOT_EACH(x[k] = RAOT_X86(min_ps)(all, x[k]))
}

RAOT_INLINE static inline void raot_at_least_x86(raot_floats *x, float bound)
{
    const raot_floats all = raot_all_x86(bound);

    RAOT_EACH(x[k] = RAOT_X86(max_ps)(all, x[k]))
}

RAOT_INLINE static inline void raot_magnitude_x86(raot_floats *a, const raot_floats *x)
{
    const raot_floats sign = raot_all_x86(-0.0f);

    RAOT_EACH(a[k] = RAOT_X86(andnot_ps)(sign, x[k]))
}

/* The sign of x, to that of a, which is positive. */
RAOT_INLINE static inline void raot_signed_x86(raot_floats *a, const raot_floats *x)
{
    const raot_floats sign = raot_all_x86(-0.0f);

    RAOT_EACH(a[k] = RAOT_X86(or_ps)(a[k], RAOT_X86(and_ps)(x[k], sign)))
}

/* r = raot_reducef(x, shifted), or that of -x; `negative` is a constant where this is inlined. */
RAOT_INLINE static inline void raot_reduce_x86(raot_floats *r, raot_floats *shifted,
                                               const raot_floats *x, int negative)
{
    const raot_floats shifter = raot_all_x86(RAOT_SHIFTERF);
    const raot_floats by = raot_all_x86(negative ? -1.442695f : 1.442695f);
    const raot_floats high = raot_all_x86(0.693145751953125f);
    const raot_floats low = raot_all_x86(1.428606765330187e-06f);
    raot_floats n[RAOT_AT_ONCE];

    RAOT_EACH(shifted[k] = RAOT_X86(fmadd_ps)(x[k], by, shifter))
    RAOT_EACH(n[k] = RAOT_X86(sub_ps)(shifted[k], shifter))
    if (negative != 0) {
        RAOT_EACH(r[k] = RAOT_X86(fnmsub_ps)(n[k], high, x[k]))
    } else {
        RAOT_EACH(r[k] = RAOT_X86(fnmadd_ps)(n[k], high, x[k]))
    }
    RAOT_EACH(r[k] = RAOT_X86(fnmadd_ps)(n[k], low, r[k]))
}

/* 2^n, where the exponent of 1 is `bias`. */
RAOT_INLINE static inline raot_floats raot_scale_x86(raot_floats shifted, int32_t bias)
{
    return RAOT_X86_FLOATS(RAOT_X86(add_epi32)(RAOT_X86(slli_epi32)(RAOT_X86_BITS(shifted), 23),
                                               RAOT_X86(set1_epi32)(bias * ((int32_t)1 << 23))));
}

/* t = raot_exp_smallf(r) */
RAOT_INLINE static inline void raot_exp_small_x86(raot_floats *t, const raot_floats *r)
{
    const raot_floats last = raot_all_x86(0.001386701f);
    raot_floats z[RAOT_AT_ONCE], low[RAOT_AT_ONCE];

    RAOT_EACH(z[k] = RAOT_X86(mul_ps)(r[k], r[k]))
    raot_line_x86(t, 0.00836417f, r, 0.041667186f);
    raot_line_x86(low, 0.1666656f, r, 0.5f);
    RAOT_EACH(t[k] = RAOT_X86(fmadd_ps)(z[k], last, t[k]))
    RAOT_EACH(t[k] = RAOT_X86(fmadd_ps)(z[k], t[k], low[k]))
    RAOT_EACH(t[k] = RAOT_X86(fmadd_ps)(z[k], t[k], r[k]))
}

/* p = raot_exp_tailf(r) */
RAOT_INLINE static inline void raot_exp_tail_x86(raot_floats *p, const raot_floats *r)
{
    raot_line_x86(p, 0.00019960135f, r, 0.0013933729f);
    raot_step_x86(p, r, 0.00833319f);
    raot_step_x86(p, r, 0.041666478f);
    raot_step_x86(p, r, 0.16666667f);
    raot_step_x86(p, r, 0.5f);
}

/* p = raot_exp_nearf(r) */
RAOT_INLINE static inline void raot_exp_near_x86(raot_floats *p, const raot_floats *r)
{
    const raot_floats one = raot_all_x86(1.0f);
    raot_floats high[RAOT_AT_ONCE], low[RAOT_AT_ONCE], z[RAOT_AT_ONCE];

    RAOT_EACH(high[k] = RAOT_X86(add_ps)(one, r[k]))
    RAOT_EACH(low[k] = RAOT_X86(sub_ps)(r[k], RAOT_X86(sub_ps)(high[k], one)))
    RAOT_EACH(z[k] = RAOT_X86(mul_ps)(r[k], r[k]))
    raot_exp_tail_x86(p, r);
    RAOT_EACH(p[k] = RAOT_X86(add_ps)(high[k], RAOT_X86(fmadd_ps)(z[k], p[k], low[k])))
}

/* The last factor of raot_expf: 2^-64 where x is negative, otherwise 2^64. */
RAOT_INLINE static inline raot_floats raot_exp_last_x86(raot_floats x)
{
    const raot_floats sign = RAOT_X86(and_ps)(x, RAOT_X86(set1_ps)(-0.0f));

    return RAOT_X86_FLOATS(RAOT_X86(sub_epi32)(RAOT_X86(set1_epi32)(0x5f800000),
                                               RAOT_X86(srli_epi32)(RAOT_X86_BITS(sign), 1)));
}

RAOT_INLINE static inline void raot_exp_block_x86(float *values, const float *from, int32_t count)
{
    float rests[RAOT_BLOCK], shifts[RAOT_BLOCK];
    raot_floats x[RAOT_AT_ONCE], r[RAOT_AT_ONCE], shifted[RAOT_AT_ONCE], p[RAOT_AT_ONCE];

    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(x, from + i)
        raot_at_least_x86(x, -105.0f);
        raot_at_most_x86(x, 105.0f);
        raot_reduce_x86(r, shifted, x, 0);
        RAOT_STORE_X86(rests + i, r)
        RAOT_STORE_X86(shifts + i, shifted)
    }
    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(r, rests + i)
        raot_exp_near_x86(p, r);
        RAOT_LOAD_X86(x, from + i)
        RAOT_LOAD_X86(shifted, shifts + i)
        RAOT_EACH(x[k] = raot_exp_last_x86(x[k]))
        RAOT_EACH(shifted[k] = RAOT_X86_FLOATS(RAOT_X86(sub_epi32)(
                      RAOT_X86_BITS(raot_scale_x86(shifted[k], 254)), RAOT_X86_BITS(x[k]))))
        RAOT_EACH(p[k] = RAOT_X86(mul_ps)(RAOT_X86(mul_ps)(p[k], shifted[k]), x[k]))
        RAOT_STORE_X86(values + i, p)
    }
}

/* `inside` where |x| is less than `bound`, otherwise, and for NaN, `outside`. */
RAOT_INLINE static inline raot_floats raot_choice_x86(raot_floats x, raot_floats bound,
                                                      raot_floats inside, raot_floats outside)
{
    const raot_floats a = RAOT_X86(andnot_ps)(RAOT_X86(set1_ps)(-0.0f), x);
#if RAOT_FLOATS == 16
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, bound, _CMP_LT_OQ), outside, inside);
#else
    return _mm256_blendv_ps(outside, inside, _mm256_cmp_ps(a, bound, _CMP_LT_OQ));
#endif
}

/* p = result / 2 of raot_expm1f, of r and half of the power of two. */
RAOT_INLINE static inline void raot_expm1_half_x86(raot_floats *p, const raot_floats *r,
                                                   const raot_floats *half)
{
    const raot_floats one_half = raot_all_x86(0.5f);
    raot_floats base[RAOT_AT_ONCE], sum[RAOT_AT_ONCE], z[RAOT_AT_ONCE];

    raot_exp_tail_x86(p, r);
    RAOT_EACH(base[k] = RAOT_X86(sub_ps)(half[k], one_half))
    RAOT_EACH(sum[k] = RAOT_X86(fmadd_ps)(half[k], r[k], base[k]))
    RAOT_EACH(base[k] = RAOT_X86(sub_ps)(base[k], sum[k]))
    RAOT_EACH(base[k] = RAOT_X86(fmadd_ps)(half[k], r[k], base[k]))
    RAOT_EACH(z[k] = RAOT_X86(mul_ps)(half[k], RAOT_X86(mul_ps)(r[k], r[k])))
    RAOT_EACH(p[k] = RAOT_X86(add_ps)(sum[k], RAOT_X86(fmadd_ps)(z[k], p[k], base[k])))
}

RAOT_INLINE static inline void raot_expm1_block_x86(float *values, const float *from, int32_t count)
{
    const raot_floats least = RAOT_X86(set1_ps)(1e-10f);
    float rests[RAOT_BLOCK], scales[RAOT_BLOCK];
    raot_floats x[RAOT_AT_ONCE], r[RAOT_AT_ONCE], half[RAOT_AT_ONCE], p[RAOT_AT_ONCE];

    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(x, from + i)
        raot_at_least_x86(x, -18.0f);
        raot_at_most_x86(x, 89.0f);
        raot_reduce_x86(r, half, x, 0);
        RAOT_EACH(half[k] = raot_scale_x86(half[k], 126))
        RAOT_STORE_X86(rests + i, r)
        RAOT_STORE_X86(scales + i, half)
    }
    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(r, rests + i)
        RAOT_LOAD_X86(half, scales + i)
        raot_expm1_half_x86(p, r, half);
        RAOT_LOAD_X86(x, from + i)
        RAOT_EACH(p[k] = raot_choice_x86(x[k], least, x[k], RAOT_X86(add_ps)(p[k], p[k])))
        RAOT_STORE_X86(values + i, p)
    }
}

/* The greater one of d and h of raot_tanhf, of t = a^2. */
RAOT_INLINE static inline void raot_tanh_divisor_x86(raot_floats *d, const raot_floats *a,
                                                     const raot_floats *t)
{
    const raot_floats half = raot_all_x86(0.5f);
    raot_floats even[RAOT_AT_ONCE], odd[RAOT_AT_ONCE];

    raot_line_x86(even, 0.0002954217f, t, 0.008078604f);
    raot_line_x86(odd, 1.2727628e-07f, t, -1.8620256e-05f);
    raot_step_x86(even, t, 0.06071721f);
    raot_step_x86(odd, t, -0.0016626628f);
    raot_step_x86(even, t, 0.37913403f);
    raot_step_x86(odd, t, -0.012336219f);
    raot_step_x86(even, t, 0.70902723f);
    raot_step_x86(odd, t, 0.082374364f);
    raot_step_x86(odd, t, 0.696506f);
    RAOT_EACH(odd[k] = RAOT_X86(fmadd_ps)(odd[k], a[k], even[k]))
    raot_line_x86(d, 0.00022790907f, t, -0.0056946286f);
    raot_step_x86(d, t, 1.1999943f);
    raot_step_x86(d, t, 3.0000005f);
    RAOT_EACH(d[k] = RAOT_X86(max_ps)(RAOT_X86(fmadd_ps)(odd[k], odd[k], half), d[k]))
}

RAOT_INLINE static inline void raot_tanh_block_x86(float *values, const float *from, int32_t count)
{
    raot_floats x[RAOT_AT_ONCE], a[RAOT_AT_ONCE], t[RAOT_AT_ONCE], d[RAOT_AT_ONCE];

    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(x, from + i)
        raot_magnitude_x86(a, x);
        RAOT_EACH(t[k] = RAOT_X86(mul_ps)(a[k], a[k]))
        raot_tanh_divisor_x86(d, a, t);
        raot_at_most_x86(t, 1.0f);
        RAOT_EACH(d[k] = RAOT_X86(div_ps)(t[k], d[k]))
        raot_at_most_x86(a, 1.0f);
        RAOT_EACH(d[k] = RAOT_X86(fnmadd_ps)(a[k], d[k], a[k]))
        RAOT_LOAD_X86(x, from + i)
        raot_signed_x86(d, x);
        RAOT_STORE_X86(values + i, d)
    }
}

/* t = 1 / d of raot_sigmoidf with d = one + scale * (1 + t), corrected. */
RAOT_INLINE static inline void raot_sigmoid_quotient_x86(raot_floats *t, const raot_floats *scale)
{
    const raot_floats small = raot_all_x86(5.421010862427522e-20f);
    const raot_floats one = raot_all_x86(1.0f);
    raot_floats high[RAOT_AT_ONCE], d[RAOT_AT_ONCE], q[RAOT_AT_ONCE];

    RAOT_EACH(high[k] = RAOT_X86(add_ps)(scale[k], small))
    RAOT_EACH(d[k] = RAOT_X86(fmadd_ps)(t[k], scale[k], high[k]))
    RAOT_EACH(high[k] = RAOT_X86(sub_ps)(high[k], d[k]))
    RAOT_EACH(t[k] = RAOT_X86(fmadd_ps)(t[k], scale[k], high[k]))
    RAOT_EACH(q[k] = RAOT_X86(div_ps)(one, d[k]))
    RAOT_EACH(d[k] = RAOT_X86(fnmadd_ps)(d[k], q[k], one))
    RAOT_EACH(d[k] = RAOT_X86(fnmadd_ps)(t[k], q[k], d[k]))
    RAOT_EACH(q[k] = RAOT_X86(mul_ps)(q[k], small))
    RAOT_EACH(t[k] = RAOT_X86(fmadd_ps)(q[k], d[k], q[k]))
}

RAOT_INLINE static inline void raot_sigmoid_block_x86(float *values, const float *from,
                                                      int32_t count)
{
    float powers[RAOT_BLOCK], scales[RAOT_BLOCK];
    raot_floats x[RAOT_AT_ONCE], r[RAOT_AT_ONCE], scale[RAOT_AT_ONCE], t[RAOT_AT_ONCE];

    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(x, from + i)
        raot_at_least_x86(x, -105.0f);
        raot_at_most_x86(x, 30.0f);
        raot_reduce_x86(r, scale, x, 1);
        RAOT_EACH(scale[k] = raot_scale_x86(scale[k], 63))
        RAOT_STORE_X86(scales + i, scale)
        raot_exp_small_x86(t, r);
        RAOT_STORE_X86(powers + i, t)
    }
    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(t, powers + i)
        RAOT_LOAD_X86(scale, scales + i)
        raot_sigmoid_quotient_x86(t, scale);
        RAOT_STORE_X86(values + i, t)
    }
}

/* q = -Q(x) of raot_erff, for its function beyond 1. */
RAOT_INLINE static inline void raot_erf_exponent_x86(raot_floats *q, const raot_floats *x)
{
    const raot_floats last = raot_all_x86(0.00018846814f);
    raot_floats b[RAOT_AT_ONCE];

    raot_magnitude_x86(b, x);
    raot_at_most_x86(b, 3.93f);
    raot_line_x86(q, 2.1697617e-05f, b, -0.00044147269f);
    raot_step_x86(q, b, 0.004205285f);
    raot_step_x86(q, b, -0.02521034f);
    raot_step_x86(q, b, 0.1084221f);
    raot_step_x86(q, b, 0.6332164f);
    raot_step_x86(q, b, 1.1295803f);
    RAOT_EACH(q[k] = RAOT_X86(fnmadd_ps)(q[k], b[k], last))
}

/* p = x + x P(x^2) */
RAOT_INLINE static inline void raot_erf_small_x86(raot_floats *p, const raot_floats *x)
{
    raot_floats z[RAOT_AT_ONCE];

    RAOT_EACH(z[k] = RAOT_X86(mul_ps)(x[k], x[k]))
    raot_line_x86(p, 7.919902e-05f, z, -0.0008030654f);
    raot_step_x86(p, z, 0.005190726f);
    raot_step_x86(p, z, -0.026855124f);
    raot_step_x86(p, z, 0.11283618f);
    raot_step_x86(p, z, -0.3761263f);
    raot_step_x86(p, z, 0.12837917f);
    RAOT_EACH(p[k] = RAOT_X86(fmadd_ps)(x[k], p[k], x[k]))
}

RAOT_INLINE static inline void raot_erf_block_x86(float *values, const float *from, int32_t count)
{
    const raot_floats one = RAOT_X86(set1_ps)(1.0f);
    float powers[RAOT_BLOCK], scales[RAOT_BLOCK];
    raot_floats x[RAOT_AT_ONCE], q[RAOT_AT_ONCE], r[RAOT_AT_ONCE], scale[RAOT_AT_ONCE];

    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(x, from + i)
        raot_erf_exponent_x86(q, x);
        raot_reduce_x86(r, scale, q, 0);
        RAOT_STORE_X86(powers + i, r)
        RAOT_STORE_X86(scales + i, scale)
    }
    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(r, powers + i)
        raot_exp_small_x86(q, r);
        RAOT_LOAD_X86(scale, scales + i)
        RAOT_EACH(scale[k] = raot_scale_x86(scale[k], 127))
        RAOT_EACH(q[k] = RAOT_X86(fmadd_ps)(q[k], scale[k], scale[k]))
        RAOT_EACH(q[k] = RAOT_X86(sub_ps)(one, q[k]))
        RAOT_STORE_X86(powers + i, q)
    }
    for (int32_t i = 0; i < count; i += RAOT_GROUP) {
        RAOT_LOAD_X86(x, from + i)
        raot_erf_small_x86(r, x);
        RAOT_LOAD_X86(q, powers + i)
        raot_signed_x86(q, x);
        RAOT_EACH(q[k] = raot_choice_x86(x[k], one, r[k], q[k]))
        RAOT_STORE_X86(values + i, q)
    }
}

/* Whole blocks, then whole groups of vectors, then a group of which a part is used. */
#define RAOT_EACH_X86(block, values, from, count)                                     \
    do {                                                                              \
        const int32_t whole = (count) - (count) % RAOT_GROUP;                         \
                                                                                      \
        for (int32_t at = 0; at < whole; at += RAOT_BLOCK) {                          \
            const int32_t left = whole - at;                                          \
                                                                                      \
            block((values) + at, (from) + at, left < RAOT_BLOCK ? left : RAOT_BLOCK); \
        }                                                                             \
        if (whole < (count)) {                                                        \
            const size_t bytes = sizeof(float) * (size_t)((count)-whole);             \
            float part[RAOT_GROUP] = {0};                                             \
                                                                                      \
            RAOT_COPY(part, (from) + whole, bytes);                                   \
            block(part, part, RAOT_GROUP);                                            \
            RAOT_COPY((values) + whole, part, bytes);                                 \
        }                                                                             \
    } while (0)
#define RAOT_EXP_F32(values, from, count) RAOT_EACH_X86(raot_exp_block_x86, values, from, count)
#define RAOT_EXPM1_F32(values, from, count) RAOT_EACH_X86(raot_expm1_block_x86, values, from, count)
#define RAOT_TANH_F32(values, from, count) RAOT_EACH_X86(raot_tanh_block_x86, values, from, count)
#define RAOT_SIGMOID_F32(values, from, count) \
    RAOT_EACH_X86(raot_sigmoid_block_x86, values, from, count)
#define RAOT_ERF_F32(values, from, count) RAOT_EACH_X86(raot_erf_block_x86, values, from, count)

#endif
