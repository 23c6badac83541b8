/*
 * math.h - elementary functions in single precision, without libm.
 *
 * exp, tanh, sigmoid and erf, which models use most, are computed in float; the others go
 * through double (math64.h). `max` and `min` give NaN where either argument is NaN.
 */
#ifndef RAOT_MATH_H
#define RAOT_MATH_H

#include <stdint.h>
#include <string.h>

#include "math64.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

static inline uint32_t raot_bitsf(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float raot_of_bitsf(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int raot_isnanf(float x)
{
    return (raot_bitsf(x) & 0x7fffffffu) > 0x7f800000u;
}

static inline int raot_isinff(float x)
{
    return (raot_bitsf(x) & 0x7fffffffu) == 0x7f800000u;
}

static inline int raot_signbitf(float x)
{
    return (int)(raot_bitsf(x) >> 31);
}

static inline float raot_absf(float x)
{
    return raot_of_bitsf(raot_bitsf(x) & 0x7fffffffu);
}

static inline float raot_copysignf(float x, float y)
{
    return raot_of_bitsf((raot_bitsf(x) & 0x7fffffffu) | (raot_bitsf(y) & 0x80000000u));
}

static inline float raot_maxf(float a, float b)
{
    return a > b || a != a ? a : b;
}

static inline float raot_minf(float a, float b)
{
    return a < b || a != a ? a : b;
}

/* a * b + c: one instruction where the target has one, else a product and a sum. */
static inline float raot_fmaf(float a, float b, float c)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline float raot_truncf(float x)
{
    return raot_absf(x) < 8388608.0f ? raot_copysignf((float)(int32_t)x, x) : x;
}

static inline float raot_floorf(float x)
{
    const float whole = raot_truncf(x);

    return whole > x ? whole - 1.0f : whole;
}

static inline float raot_ceilf(float x)
{
    const float whole = raot_truncf(x);

    return whole < x ? raot_copysignf(whole + 1.0f, x) : whole;
}

static inline float raot_rintf(float x)
{
    const float whole = raot_floorf(x);
    const float rest = x - whole;

    if (!(raot_absf(x) < 8388608.0f)) {
        return x;
    }
    if (rest > 0.5f || (rest == 0.5f && ((int32_t)whole & 1) != 0)) {
        return raot_copysignf(whole + 1.0f, x);
    }
    return raot_copysignf(whole, x);
}

static inline float raot_roundf(float x)
{
    return (float)raot_round((double)x);
}

/* Correctly rounded: double has more than twice the bits of float. */
static inline float raot_sqrtf(float x)
{
#if defined(__x86_64__) && defined(__GNUC__)
    float root;

    __asm__("sqrtss %1, %0" : "=x"(root) : "x"(x));
    return root;
#elif defined(__aarch64__) && defined(__GNUC__)
    float root;

    __asm__("fsqrt %s0, %s1" : "=w"(root) : "w"(x));
    return root;
#elif defined(__ARM_FP) && (__ARM_FP & 4) && defined(__GNUC__)
    float root;

    __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x));
    return root;
#else
    return (float)raot_sqrt((double)x);
#endif
}

static inline float raot_expf(float x)
{
    float n;
    float r;
    float power;
    int32_t half;

    if (!(x < 88.73f)) {
        return raot_isnanf(x) ? x : RAOT_INFINITY;
    }
    if (x < -104.0f) {
        return 0.0f;
    }
    n = raot_rintf(x * 1.44269504f);
    r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    power = 0.000198992871f;
    power = power * r + 0.00139336521f;
    power = power * r + 0.0083332984f;
    power = power * r + 0.0416664667f;
    power = power * r + 0.166666672f;
    power = power * r + 0.5f;
    power = 1.0f + (r + r * r * power);
    /* In two steps, so that neither factor leaves the range of exponents. */
    half = (int32_t)n / 2;
    power *= raot_of_bitsf((uint32_t)(half + 127) << 23);
    return power * raot_of_bitsf((uint32_t)((int32_t)n - half + 127) << 23);
}

static inline float raot_tanhf(float x)
{
    const float a = raot_absf(x);

    if (a < 0.625f) {
        const float square = x * x;
        float sum = 0.00231396384f;

        sum = sum * square - 0.00836565252f;
        sum = sum * square + 0.0217768408f;
        sum = sum * square - 0.0539604798f;
        sum = sum * square + 0.133333102f;
        sum = sum * square - 0.333333343f;
        return x + x * square * sum;
    }
    if (raot_isnanf(x)) {
        return x;
    }
    return raot_copysignf(1.0f - 2.0f / (raot_expf(2.0f * a) + 1.0f), x);
}

static inline float raot_sigmoidf(float x)
{
    const float e = raot_expf(-raot_absf(x));

    return x < 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
}

static inline float raot_erff(float x)
{
    const float a = raot_absf(x);
    float sum;

    if (a < 1.0f) {
        const float square = x * x;

        sum = -9.72833186e-06f;
        sum = sum * square + 0.000112881447f;
        sum = sum * square - 0.000848726311f;
        sum = sum * square + 0.00522126118f;
        sum = sum * square - 0.0268655177f;
        sum = sum * square + 0.112837844f;
        sum = sum * square - 0.376126379f;
        sum = sum * square + 1.12837923f;
        return x * sum;
    }
    if (a < 4.0f) {
        const float t = a - 2.5f;

        sum = 1.54239239e-07f;
        sum = sum * t + 2.02672163e-06f;
        sum = sum * t - 1.35875295e-05f;
        sum = sum * t + 7.60044131e-05f;
        sum = sum * t - 0.000420449622f;
        sum = sum * t + 0.00216643023f;
        sum = sum * t - 0.0108579788f;
        sum = sum * t + 0.0561061061f;
        sum = sum * t - 0.352680802f;
        sum = sum * t - 1.55681527f;
        return raot_copysignf(1.0f - raot_expf(sum - a * a), x);
    }
    return raot_isnanf(x) ? x : raot_copysignf(1.0f, x);
}

/* sin, cos and tan of any float: 2/pi to 224 bits, multiplied by the mantissa. */
static inline int32_t raot_reducef(float x, double *r)
{
    static const uint32_t two_over_pi[8] = {
        0u,          0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
        0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
    };
    const uint32_t bits = raot_bitsf(raot_absf(x));
    const int32_t exponent = (int32_t)(bits >> 23) - 150;
    const uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    const int32_t skipped = exponent + 32 - 2;
    const int32_t word = skipped / 32;
    const int32_t shift = skipped % 32;
    uint64_t high;
    uint64_t low;
    uint64_t fraction;
    int32_t quarter;

    if (raot_absf(x) < 1e6f) {
        return raot_reduce((double)x, r);
    }
    /* 96 bits of 2/pi from the place where the product's integer part has two bits left. */
    high = ((uint64_t)two_over_pi[word] << 32) | two_over_pi[word + 1];
    low = ((uint64_t)two_over_pi[word + 2] << 32) | two_over_pi[word + 3];
    if (shift != 0) {
        high = (high << shift) | (low >> (64 - shift));
        low <<= shift;
    }
    fraction = high * mantissa + (((low >> 32) * mantissa) >> 32);
    quarter = (int32_t)(fraction >> 62);
    fraction <<= 2;
    if ((fraction >> 63) != 0) {
        quarter = (quarter + 1) & 3;
        *r = -(double)(~fraction + 1u) * 8.515303950216386e-20;
    } else {
        *r = (double)fraction * 8.515303950216386e-20;
    }
    if (x < 0.0f) {
        *r = -*r;
        quarter = (4 - quarter) & 3;
    }
    return quarter;
}

static inline float raot_sinf(float x)
{
    double r;
    int32_t quarter;

    if (raot_isnanf(x) || raot_isinff(x)) {
        return RAOT_NAN;
    }
    if (x == 0.0f) {
        return x;
    }
    quarter = raot_reducef(x, &r);
    return (float)raot_quarter(r, quarter);
}

static inline float raot_cosf(float x)
{
    double r;
    int32_t quarter;

    if (raot_isnanf(x) || raot_isinff(x)) {
        return RAOT_NAN;
    }
    quarter = raot_reducef(x, &r);
    return (float)raot_quarter(r, (quarter + 1) & 3);
}

static inline float raot_tanf(float x)
{
    double r;
    int32_t quarter;

    if (raot_isnanf(x) || raot_isinff(x)) {
        return RAOT_NAN;
    }
    if (x == 0.0f) {
        return x;
    }
    quarter = raot_reducef(x, &r);
    return (float)(raot_quarter(r, quarter) / raot_quarter(r, (quarter + 1) & 3));
}

/* clang-format off */
#define RAOT_THROUGH_DOUBLE(NAME) \
    static inline float raot_##NAME##f(float x) { return (float)raot_##NAME((double)x); }

RAOT_THROUGH_DOUBLE(exp2)
RAOT_THROUGH_DOUBLE(expm1)
RAOT_THROUGH_DOUBLE(log)
RAOT_THROUGH_DOUBLE(log2)
RAOT_THROUGH_DOUBLE(log1p)
RAOT_THROUGH_DOUBLE(asin)
RAOT_THROUGH_DOUBLE(acos)
RAOT_THROUGH_DOUBLE(atan)
RAOT_THROUGH_DOUBLE(sinh)
RAOT_THROUGH_DOUBLE(cosh)
RAOT_THROUGH_DOUBLE(asinh)
RAOT_THROUGH_DOUBLE(acosh)
RAOT_THROUGH_DOUBLE(atanh)
/* clang-format on */

static inline float raot_powf(float x, float y)
{
    return (float)raot_pow((double)x, (double)y);
}

static inline float raot_fmodf(float x, float y)
{
    return (float)raot_fmod((double)x, (double)y);
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#endif
