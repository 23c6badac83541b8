/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ieee.h - bits, classes and signs of floating-point numbers, and arithmetic that is
 * bit-identical on every target.
 *
 * Names end in f for float, as in C. Compilers may fuse a * b + c into one instruction that
 * rounds once, depending on target, language mode and options. raot_mulf and raot_madf are never
 * fused and give the same bits everywhere; raot_fmaf is fused on targets where this is fast.
 * Rounding is to nearest (the default of every target). Options such as -ffast-math, which
 * disable IEEE arithmetic, are an error.
 */
#ifndef RAOT_IEEE_H
#define RAOT_IEEE_H

#include <float.h>
#include <stdint.h>

#include "assembly.h"
#include "copy.h"

#if defined(__FAST_MATH__)
#error "build without -ffast-math and -Ofast: NaN, infinity and stated errors depend on it"
#endif

/* The compiler defines this; shifts of fixed-point numbers and bits of floats depend on it. */
#if !defined(__cplusplus)
_Static_assert((-1 >> 1) == -1, "shifts of negative numbers have to keep the sign");
#endif

#if defined(RAOT_DEVICE)
#define RAOT_INFINITY (raot_of_bitsf(0x7f800000u))
#define RAOT_NAN (raot_of_bitsf(0x7fc00000u))
#elif defined(__GNUC__)
/* Exact comparison, as in the models; it detects zeros, infinities and integers. */
#pragma GCC diagnostic ignored "-Wfloat-equal"
#define RAOT_INFINITY (__builtin_inff())
#define RAOT_NAN (__builtin_nanf(""))
#else
#define RAOT_INFINITY ((float)(1e300 * 1e300))
#define RAOT_NAN (RAOT_INFINITY * 0.0f)
#endif

/* The core has no instructions for floats: comparisons and conversions of bits take less time than
   calls. */
#if defined(__SOFTFP__) || (defined(__riscv) && !defined(__riscv_flen))
#define RAOT_FLOAT_CALLS 1
#endif

/*
 * Prevents FMA contraction of a product: nothing is needed on targets without FMA; otherwise an
 * empty asm statement marks the register as changed, or the value is stored to memory. A build
 * with -ffp-contract=off may define RAOT_CONTRACTION_OFF, so that loops with such products
 * vectorize.
 */
#define RAOT_FUSE_NEVER 0
#define RAOT_FUSE_REGISTER 1
#define RAOT_FUSE_MEMORY 2
#if defined(RAOT_ASM_INLINE)
#define RAOT_FUSE_BARRIER RAOT_FUSE_REGISTER
#else
#define RAOT_FUSE_BARRIER RAOT_FUSE_MEMORY
#endif

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#define RAOT_FUSE RAOT_FUSE_MEMORY
#define RAOT_FUSE64 RAOT_FUSE_MEMORY
#elif defined(RAOT_CONTRACTION_OFF) || defined(RAOT_DEVICE)
#define RAOT_FUSE RAOT_FUSE_NEVER
#define RAOT_FUSE64 RAOT_FUSE_NEVER
#elif defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#if defined(__FMA__) || defined(__FMA4__)
#define RAOT_FUSE RAOT_FUSE_BARRIER
#define RAOT_FUSE64 RAOT_FUSE_BARRIER
#else
#define RAOT_FUSE RAOT_FUSE_NEVER
#define RAOT_FUSE64 RAOT_FUSE_NEVER
#endif
#define RAOT_FLOAT_REGISTER "+x"
#define RAOT_DOUBLE_REGISTER "+x"
#elif defined(__GNUC__) && defined(__aarch64__)
#define RAOT_FUSE RAOT_FUSE_BARRIER
#define RAOT_FUSE64 RAOT_FUSE_BARRIER
#define RAOT_FLOAT_REGISTER "+w"
#define RAOT_DOUBLE_REGISTER "+w"
#elif defined(__GNUC__) && defined(__arm__)
#if defined(__ARM_FEATURE_FMA)
#define RAOT_FUSE RAOT_FUSE_BARRIER
#else
#define RAOT_FUSE RAOT_FUSE_NEVER
#endif
#if defined(__ARM_FEATURE_FMA) && (__ARM_FP & 8)
#define RAOT_FUSE64 RAOT_FUSE_BARRIER
#else
#define RAOT_FUSE64 RAOT_FUSE_NEVER
#endif
#define RAOT_FLOAT_REGISTER "+t"
#define RAOT_DOUBLE_REGISTER "+w"
#elif defined(__GNUC__) && defined(__riscv_flen)
#define RAOT_FUSE RAOT_FUSE_BARRIER
#if __riscv_flen >= 64
#define RAOT_FUSE64 RAOT_FUSE_BARRIER
#else
#define RAOT_FUSE64 RAOT_FUSE_NEVER
#endif
#define RAOT_FLOAT_REGISTER "+f"
#define RAOT_DOUBLE_REGISTER "+f"
#else
#define RAOT_FUSE RAOT_FUSE_MEMORY
#define RAOT_FUSE64 RAOT_FUSE_MEMORY
#endif

static inline uint32_t raot_bitsf(float x)
{
    uint32_t bits;

    RAOT_COPY(&bits, &x, sizeof bits);
    return bits;
}

static inline uint64_t raot_bits(double x)
{
    uint64_t bits;

    RAOT_COPY(&bits, &x, sizeof bits);
    return bits;
}

static inline float raot_of_bitsf(uint32_t bits)
{
    float x;

    RAOT_COPY(&x, &bits, sizeof x);
    return x;
}

static inline double raot_of_bits(uint64_t bits)
{
    double x;

    RAOT_COPY(&x, &bits, sizeof x);
    return x;
}

static inline int raot_isnanf(float x)
{
#if defined(RAOT_FLOAT_CALLS)
    return raot_bitsf(x) << 1 > 0xff000000u;
#else
    return x != x;
#endif
}

/* x <= y; 0 if one is NaN. */
static inline int raot_is_at_mostf(float x, float y)
{
#if defined(RAOT_FLOAT_CALLS)
    const int32_t a = (int32_t)raot_bitsf(x);
    const int32_t b = (int32_t)raot_bitsf(y);
    /* Integers in the order of floats: -0 is next below 0. */
    const int32_t low = a ^ (int32_t)((uint32_t)(a >> 31) >> 1);
    const int32_t high = b ^ (int32_t)((uint32_t)(b >> 31) >> 1);

    return (low <= high || (low == 0 && high == -1)) && !raot_isnanf(x) && !raot_isnanf(y);
#else
    return x <= y;
#endif
}

static inline int raot_isnan(double x)
{
    return x != x;
}

static inline int raot_isinff(float x)
{
    return (raot_bitsf(x) & 0x7fffffffu) == 0x7f800000u;
}

static inline int raot_isinf(double x)
{
    return (raot_bits(x) & UINT64_C(0x7fffffffffffffff)) == UINT64_C(0x7ff0000000000000);
}

/* 1 if the sign bit is set, also for zeros and NaN. */
static inline int raot_signbitf(float x)
{
    return (int)(raot_bitsf(x) >> 31);
}

static inline int raot_signbit(double x)
{
    return (int)(raot_bits(x) >> 63);
}

static inline float raot_absf(float x)
{
    return raot_of_bitsf(raot_bitsf(x) & 0x7fffffffu);
}

static inline double raot_abs(double x)
{
    return raot_of_bits(raot_bits(x) & UINT64_C(0x7fffffffffffffff));
}

/* The magnitude of x with the sign of y. */
static inline float raot_copysignf(float x, float y)
{
    return raot_of_bitsf((raot_bitsf(x) & 0x7fffffffu) | (raot_bitsf(y) & 0x80000000u));
}

static inline double raot_copysign(double x, double y)
{
    return raot_of_bits((raot_bits(x) & UINT64_C(0x7fffffffffffffff)) |
                        (raot_bits(y) & 0x8000000000000000u));
}

/* The larger operand; NaN if either is NaN. For 0 and -0, the result is either of them. On x86,
 * compilers make a maximum instruction of the first comparison. */
static inline float raot_maxf(float a, float b)
{
#if defined(__SSE2__)
    const float larger = a > b ? a : b;

    return raot_isnanf(a) ? a : larger;
#else
    return a > b || raot_isnanf(a) ? a : b;
#endif
}

static inline double raot_max(double a, double b)
{
    return a > b || raot_isnan(a) ? a : b;
}

/* The smaller operand; NaN if either is NaN. */
static inline float raot_minf(float a, float b)
{
#if defined(__SSE2__)
    const float smaller = a < b ? a : b;

    return raot_isnanf(a) ? a : smaller;
#else
    return a < b || raot_isnanf(a) ? a : b;
#endif
}

static inline double raot_min(double a, double b)
{
    return a < b || raot_isnan(a) ? a : b;
}

/* x clamped to low..high, which are not NaN; NaN stays. One comparison. */
static inline float raot_at_leastf(float x, float low)
{
    return raot_is_at_mostf(x, low) ? low : x;
}

static inline double raot_at_least(double x, double low)
{
    return x <= low ? low : x;
}

static inline float raot_at_mostf(float x, float high)
{
    return raot_is_at_mostf(high, x) ? high : x;
}

static inline double raot_at_most(double x, double high)
{
    return x >= high ? high : x;
}

/* The larger or smaller operand; if one operand is NaN, the other one, as C's fmaxf and fminf. */
static inline float raot_fmaxf(float a, float b)
{
    return a > b || raot_isnanf(b) ? a : b;
}

static inline float raot_fminf(float a, float b)
{
    return a < b || raot_isnanf(b) ? a : b;
}

/*
 * a * b + c, rounded once if the target has an FMA instruction, else twice. Fast; the last bits
 * depend on the target.
 */
static inline float raot_fmaf(float a, float b, float c)
{
#if defined(RAOT_DEVICE)
    return fmaf(a, b, c);
#elif defined(__GNUC__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__riscv_flen))
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline double raot_fma(double a, double b, double c)
{
#if defined(RAOT_DEVICE)
    return fma(a, b, c);
#elif defined(__GNUC__) && (defined(__FMA__) || (defined(__ARM_FEATURE_FMA) && RAOT_FUSE64) || \
                            (defined(__riscv_flen) && RAOT_FUSE64))
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

/* Returns x; prevents FMA contraction across it. */
static inline float raot_apartf(float x)
{
#if RAOT_FUSE == RAOT_FUSE_REGISTER
    __asm__("" : RAOT_FLOAT_REGISTER(x));
    return x;
#elif RAOT_FUSE == RAOT_FUSE_MEMORY
    volatile float kept = x;

    return kept;
#else
    return x;
#endif
}

static inline double raot_apart(double x)
{
#if RAOT_FUSE64 == RAOT_FUSE_REGISTER
    __asm__("" : RAOT_DOUBLE_REGISTER(x));
    return x;
#elif RAOT_FUSE64 == RAOT_FUSE_MEMORY
    volatile double kept = x;

    return kept;
#else
    return x;
#endif
}

/* a * b, always rounded. */
static inline float raot_mulf(float a, float b)
{
#if defined(RAOT_DEVICE)
    return __fmul_rn(a, b);
#else
    return raot_apartf(a * b);
#endif
}

static inline double raot_mul(double a, double b)
{
#if defined(RAOT_DEVICE)
    return __dmul_rn(a, b);
#else
    return raot_apart(a * b);
#endif
}

/* a * b + c, rounded twice. */
static inline float raot_madf(float a, float b, float c)
{
    return raot_mulf(a, b) + c;
}

static inline double raot_mad(double a, double b, double c)
{
    return raot_mul(a, b) + c;
}

#endif
