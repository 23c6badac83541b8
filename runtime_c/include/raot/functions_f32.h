/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions_f32.h - exp, expm1, tanh, sigmoid and erf of contiguous floats.
 *
 * `values[i]` is the function of `from[i]`; both may be the same array. The functions are those of
 * vector_functions.h where the target has them. With Helium, four elements at a time take the same
 * operations in the same order, so the bits are those of single calls; Helium flushes subnormal
 * numbers to zero and gives the default NaN (Arm DDI 0553, StandardFPSCRValue). With AVX2 or
 * AVX-512, so do eight or sixteen.
 */
#ifndef RAOT_FUNCTIONS_F32_H
#define RAOT_FUNCTIONS_F32_H

#include <stdint.h>

#include "exponential.h"
#include "mve.h"
#include "powers_vfp.h"

#if defined(RAOT_MVE_F32) && defined(RAOT_VECTOR_FUNCTIONS)
#include "functions_mve.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(RAOT_VECTOR_FUNCTIONS)
#include "functions_x86.h"
#else
#if defined(RAOT_VFP_POWERS)
#include "functions_vfp.h"
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define RAOT_ANY_ORDER _Pragma("GCC ivdep")
#else
#define RAOT_ANY_ORDER
#endif
#define RAOT_EACH_F32(FUNCTION, values, from, count) \
    do {                                             \
        RAOT_ANY_ORDER                               \
        /*@ loop unroll 4096; */                     \
        for (int32_t i = 0; i < (count); i++) {      \
            (values)[i] = FUNCTION((from)[i]);       \
        }                                            \
    } while (0)
#define RAOT_EXP_F32(values, from, count) RAOT_EACH_F32(raot_expf, values, from, count)
#define RAOT_EXPM1_F32(values, from, count) RAOT_EACH_F32(raot_expm1f, values, from, count)
#define RAOT_TANH_F32(values, from, count) RAOT_EACH_F32(raot_tanhf, values, from, count)
#if !defined(RAOT_VFP_POWERS)
#define RAOT_SIGMOID_F32(values, from, count) RAOT_EACH_F32(raot_sigmoidf, values, from, count)
#endif
#define RAOT_ERF_F32(values, from, count) RAOT_EACH_F32(raot_erff, values, from, count)
#endif

__attribute__((noinline, unused)) static void raot_exp_f32(float *values, const float *from,
                                                           int32_t count)
{
    RAOT_EXP_F32(values, from, count);
}

__attribute__((noinline, unused)) static void raot_expm1_f32(float *values, const float *from,
                                                             int32_t count)
{
    RAOT_EXPM1_F32(values, from, count);
}

__attribute__((noinline, unused)) static void raot_tanh_f32(float *values, const float *from,
                                                            int32_t count)
{
    RAOT_TANH_F32(values, from, count);
}

__attribute__((noinline, unused)) static void raot_sigmoid_f32(float *values, const float *from,
                                                               int32_t count)
{
    RAOT_SIGMOID_F32(values, from, count);
}

__attribute__((noinline, unused)) static void raot_erf_f32(float *values, const float *from,
                                                           int32_t count)
{
    RAOT_ERF_F32(values, from, count);
}

#endif
